# Rates under load: workers pop, roll back and lose leases, and some are killed,
# which restarts the server. In any span of time, at most burst + time * rate / per
# tasks of a group, or of the queue, start.
#
# A start happens between the moments at which its statement began and returned.
# So the starts of all statements within a span must not exceed the bound.
#
# The burst is so large that a restart is too short to fill the bucket.
#
# Fails if a counter has a full bucket after a restart (init_hints() in
# registry.c). Fails if a start of a group or of the queue is always available
# (start_in(), start_in_queue() in running.c). Fails if a burst is larger
# by one (counter.h). Fails if a hold of groups has no effect (start_in()).
# test/rates makes stricter checks and takes longer.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('rates', restart_after_crash => 'on');

# Starts per second, and the burst, which is so large that a restart is too
# short to fill the bucket.
my ($rate, $max_rate, $burst) = (10, 30, 30);

$node->safe_psql(
	'postgres', qq{
	SELECT fairq.create_queue('q', rate => $rate, burst => $burst,
		per => '1 second', max_attempts => 1000000);
	SELECT fairq.create_queue('all', max_rate => $max_rate, burst => $burst,
		per => '1 second', max_attempts => 1000000);
	SELECT count(*) FROM fairq.enqueue_batch('q',
		(SELECT array_agg('g' || i % 4) FROM generate_series(1, 4000) i),
		array_fill('1'::jsonb, ARRAY[4000]));
	SELECT count(*) FROM fairq.enqueue_batch('all',
		array_fill('all'::text, ARRAY[4000]), array_fill('1'::jsonb, ARRAY[4000]));
	CREATE TABLE started (group_key text, since float8, by float8);
});

my $directory = PostgreSQL::Test::Utils::tempdir_short();
append_to_file("$directory/worker", <<'SQL');
\set n random(1, 3)
\set way random(1, 10)
BEGIN;
INSERT INTO started
	SELECT group_key, extract(epoch FROM statement_timestamp()),
		extract(epoch FROM clock_timestamp())
	FROM fairq.pop('q', :n, lease => '20 ms');
INSERT INTO started
	SELECT group_key, extract(epoch FROM statement_timestamp()),
		extract(epoch FROM clock_timestamp())
	FROM fairq.pop('all', :n, lease => '20 ms');
\if :way <= 1
ROLLBACK;
\else
COMMIT;
\endif
\if :way <= 5
SELECT count(fairq.complete(id)) FROM fairq.live_tasks WHERE status = 'running';
\endif
SQL

# Several workers, during several restarts of the server.
my $bench = $node->installed_command('pgbench');
foreach my $life (1 .. 3)
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	my $run = IPC::Run::start([ $bench, '-n', '-c', 4, '-T', $life < 3 ? 60 : 3, '-f', "$directory/worker" ],
		'>', "$PostgreSQL::Test::Utils::log_path/worker_$life.log", '2>&1');

	usleep(2_000_000);
	if ($life == 1)
	{
		# one backend is killed: the server ends the others, and all shared
		# memory is lost
		my $pid = '';
		$pid = $node->safe_psql('postgres',
			q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1}
		) while $pid eq '';
		kill 'KILL', $pid;
		$run->finish;
		# until the server notices the kill, it accepts connections and lists
		# the session
		$node->poll_query_until('postgres',
			"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
		next;
	}
	crash($node) if $life == 2;
	$run->finish;
}

# The largest number of starts above the bound, in all spans that begin with a
# start.
sub most_above
{
	my ($per_second, @starts) = @_;
	my $most = -1e9;

	foreach my $first (@starts)
	{
		my $n = 0;
		foreach my $start (grep { $_->[0] >= $first->[0] } @starts)
		{
			my $above = ++$n - $burst - ($start->[1] - $first->[0] + 0.001) * $per_second;
			$most = $above if $above > $most;
		}
	}
	return $most;
}

my %starts;
foreach my $row (split /\n/, $node->safe_psql('postgres', 'SELECT * FROM started ORDER BY by'))
{
	my ($group, $since, $by) = split /\|/, $row;
	push @{ $starts{$group} }, [ $since, $by ];
}
foreach my $group (sort keys %starts)
{
	my $above = most_above($group eq 'all' ? $max_rate : $rate, @{ $starts{$group} });

	cmp_ok($above, '<=', 0, "$group: never more starts than may be");
}
is(scalar keys %starts, 5, 'each group has started tasks');
is($node->safe_psql('postgres', q{SELECT fairq.check_queue(queue) FROM fairq.queues}),
	'', 'the queues are sound');

# A hold survives a restart. Used starts do not become available either,
# because the bucket is empty after a restart.
$node->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('slow', rate => 1, per => '1 hour', burst => 5);
	SELECT count(fairq.enqueue('slow', 'a')) FROM generate_series(1, 9);
	SELECT fairq.create_queue('held');
	SELECT fairq.enqueue('held', 'a'), fairq.hold('held', 'a', until => now() + interval '1 hour');
});
is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.pop('slow', 100)}), 5, 'the burst');
foreach my $mode ('fast', 'immediate')
{
	$node->stop($mode);
	$node->start;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.pop('slow', 100)}),
		0, "$mode: no other one after a restart");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.pop('held', 100)}),
		0, "$mode: what is held is held after it");
}
$node->safe_psql('postgres', q{SELECT fairq.hold('held', 'a')});
is($node->safe_psql('postgres', q{SELECT count(*) FROM fairq.pop('held', 100)}),
	1, 'and released');

$node->stop('fast');
done_testing();
