# Restarts during work: shared memory is read from the tables again. Ready tasks
# are served in fair order. Running tasks still run. No group gains more than
# one turn.
#
# Fails if a new recovery of a lane leaves out one group (find_groups() in
# line.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use List::Util qw(sum);
use Test::More;

my $node = new_server('restart');

# The tasks that a pop serves. peek() must have returned the same tasks,
# although shared memory was empty.
sub served
{
	my ($queue, $n) = @_;
	my $foreseen = $node->safe_psql('postgres',
		"SELECT id, group_key, addr FROM fairq.peek('$queue', $n)");
	my @served = split(
		/\n/,
		$node->safe_psql(
			'postgres',
			"SELECT id, group_key, addr, payload FROM fairq.pop('$queue', $n)"));

	is(join("\n", map { /(.*)\|/ } @served), $foreseen, "$queue: as foreseen");
	return join(' ', map { my (undef, $g, undef, $p) = split(/\|/); $g . $p } @served);
}

sub enqueue
{
	my ($queue, $group, @payloads) = @_;
	my $n = @payloads;
	my $payloads = join(', ', map { "'$_'" } @payloads);

	return
	  "SELECT count(*) FROM fairq.enqueue_batch('$queue', array_fill('$group'::text, ARRAY[$n]), ARRAY[$payloads]::jsonb[]);";
}

# By how many tasks one group gets ahead of the other while both have tasks.
sub most_ahead
{
	my ($served) = @_;
	my %count;
	my %left;
	my $most = 0;
	my @groups = $served =~ /([a-z])\d+/g;

	$left{$_}++ foreach @groups;
	$count{$_} = 0 foreach keys %left;
	foreach my $group (@groups)
	{
		$count{$group}++;
		$left{$group}--;
		foreach my $other (keys %left)
		{
			next if $other eq $group || $left{$other} == 0;
			$most = $count{$group} - $count{$other}
			  if $count{$group} - $count{$other} > $most;
		}
	}
	return $most;
}

is(most_ahead('a1 b1 a2 b2 b3 b4'), 1, 'self-test: in turns');
is(most_ahead('a1 b1 b2 b3 a2 b4'), 2, 'self-test: two extra turns');

# A queue with tasks of a and b. Behind a's first task, a rolled back enqueue
# has left turns of a without a task.
sub make_gap
{
	my ($q) = @_;
	$node->safe_psql('postgres',
			"SELECT fairq.create_queue('$q');"
		  . enqueue($q, 'a', 1)
		  . enqueue($q, 'b', 1 .. 20));
	my $open = $node->background_psql('postgres');
	$open->query_safe('BEGIN;' . enqueue($q, 'a', 2 .. 10));
	$node->safe_psql('postgres', enqueue($q, 'a', 11 .. 20));
	$open->query_safe('ROLLBACK');
	$open->quit;
	return;
}

# The number of tasks whose waiting and running times are known.
sub measured
{
	my ($q) = @_;
	return $node->safe_psql('postgres',
		"SELECT (SELECT sum(n) FROM unnest(wait_histogram) n), (SELECT sum(n) FROM unnest(run_histogram) n) FROM fairq.stats WHERE queue = '$q'"
	);
}

foreach my $mode ('fast', 'immediate')
{
	my $q = "q_$mode";

	$node->safe_psql('postgres',
			"SELECT fairq.create_queue('$q', lease => '1 hour');"
		  . enqueue($q, 'a', 1 .. 6)
		  . enqueue($q, 'b', 1 .. 3)
		  . enqueue($q, 'c', 1 .. 6)
		  . "SELECT fairq.enqueue('$q', 'b', '9', priority => 5);");
	is(served($q, 4), 'a1 b1 c1 a2', "$mode: before");
	is(measured($q), '4|0', "$mode: their waits are counted");
	my $running = $node->safe_psql('postgres',
		q{SELECT id, attempt, popped_at, lease_until FROM fairq.tasks WHERE status = 'running' ORDER BY id}
	);

	my $last_id =
	  $node->safe_psql('postgres', "SELECT fairq.enqueue('$q', 'e')");
	$node->safe_psql('postgres', "SELECT fairq.cancel($last_id)");

	$node->stop($mode);
	$node->start;

	is( $node->safe_psql(
			'postgres',
			q{SELECT id, attempt, popped_at, lease_until FROM fairq.tasks WHERE status = 'running' ORDER BY id}
		),
		$running,
		"$mode: running tasks still run");
	is(measured($q), '0|0', "$mode: counts begin at zero");
	$node->safe_psql('postgres', enqueue($q, 'd', 1, 2));
	my $left_out = $node->safe_psql('postgres',
		"SELECT min(id) - $last_id - 1 FROM fairq.tasks WHERE group_key = 'd' AND queue = '$q'"
	);
	cmp_ok($left_out, '>=', 0, "$mode: ids continue");
	cmp_ok($left_out, '<', 1024, "$mode: and leave few out");
	is(served($q, 3), 'a3 b2 c2', "$mode: a round begins");
	is(served($q, 100), 'd1 a4 b3 c3 d2 a5 c4 a6 c5 c6 b9',
		"$mode: ready tasks are served in fair order");
	is( $node->safe_psql(
			'postgres',
			"SELECT count(*) FILTER (WHERE fairq.complete(id)) FROM fairq.tasks WHERE queue = '$q'"
		),
		'18',
		"$mode: all tasks can be completed");
	is(measured($q), '14|18',
		"$mode: run times include the time before the restart");
	is($node->safe_psql('postgres', "SELECT fairq.check_queue('$q')"),
		'', "$mode: the queue is sound");

	# Tasks that committed late, half of which are served.
	my $late = $node->background_psql('postgres');
	$q = "late_$mode";
	$node->safe_psql('postgres',
			"SELECT fairq.create_queue('$q');"
		  . enqueue($q, 'a', 1)
		  . "SELECT fairq.pop('$q');"
		  . enqueue($q, 'b', 1 .. 20));
	$late->query_safe('BEGIN;' . enqueue($q, 'a', 1 .. 12));
	is(served($q, 8), 'b1 b2 b3 b4 b5 b6 b7 b8', "$mode: other groups are served meanwhile");
	$late->query_safe('COMMIT');
	is(served($q, 5), 'a1 a2 b9 a3 b10', "$mode: late tasks take turns");
	$late->quit;
	$node->stop($mode);
	$node->start;
	my $served = served($q, 100);
	is(scalar(() = $served =~ /\d+/g), 19, "$mode: all other tasks are served");
	cmp_ok(most_ahead($served), '<=', 1,
		"$mode: late tasks still take turns: $served");
	is($node->safe_psql('postgres', "SELECT fairq.check_queue('$q')"),
		'', "$mode: the queue is sound");

	# A pop is rolled back, but pops after it are committed.
	$q = "back_$mode";
	$node->safe_psql('postgres',
			"SELECT fairq.create_queue('$q');"
		  . enqueue($q, 'a', 1 .. 20)
		  . enqueue($q, 'b', 1 .. 20));
	my $open = $node->background_psql('postgres');
	$open->query_safe("BEGIN; SELECT count(*) FROM fairq.pop('$q', 4)");
	is(served($q, 8), 'a3 b3 a4 b4 a5 b5 a6 b6', "$mode: other groups are served meanwhile");
	$open->query_safe('ROLLBACK');
	is(served($q, 1), 'a1', "$mode: rolled back tasks at their turn");
	$open->quit;
	$node->stop($mode);
	$node->start;
	$served = served($q, 100);
	is(scalar(() = $served =~ /\d+/g), 31, "$mode: all other tasks are served");
	cmp_ok(most_ahead($served), '<=', 2,
		"$mode: rolled back tasks still take turns: $served");

	# A rolled back enqueue behind a group's first task costs no group a turn.
	$q = "gap_$mode";
	make_gap($q);
	$node->stop($mode);
	$node->start;
	$served = served($q, 100);
	is(scalar(() = $served =~ /\d+/g), 31, "$mode: all other tasks are served");
	cmp_ok(most_ahead($served), '<=', 2,
		"$mode: no group gains from a rollback: $served");

	# The same holds if some of the tasks are served before the restart.
	$q = "part_$mode";
	make_gap($q);
	is(served($q, 5), 'a1 b1 a11 b2 a12', "$mode: in turns before");
	$node->stop($mode);
	$node->start;
	$served = served($q, 100);
	cmp_ok(most_ahead($served), '<=', 2,
		"$mode: nor if part was served: $served");
}

# Recovery finds many groups a few at a time. Changes by SQL do not affect the
# order, even during enqueues. A new round begins after a restart.
sub course
{
	my ($q, $lose) = @_;
	my $course = '';
	my $n = 0;
	my $groups = 300;

	$node->safe_psql('postgres',
		"SELECT fairq.create_queue('$q', block_length => 1000, lease => '1 hour');
		SELECT fairq.set_group('$q', 'g' || n, weight => 2) FROM generate_series(0, $groups - 1, 7) n;
		SELECT count(*) FROM fairq.enqueue_batch('$q',
			ARRAY(SELECT 'g' || g FROM generate_series(1, 6 + 40) r, generate_series(0, $groups - 1) g
				WHERE r <= 6 OR g % 50 = 3), array_fill('{}'::jsonb, ARRAY[6 * $groups + 40 * 6]));");
	foreach my $pop (130, 1, 100, 37, 64, 500, 2, 200, 90)
	{
		$course .= $node->safe_psql('postgres',
			"SELECT string_agg(group_key || '\@' || addr, ' ') FROM fairq.pop('$q', $pop)") . "\n";
		$lose->() if $n++ % 2 == 0;

		# a task for a group with a backlog, which is behind or ahead of the
		# others, and a task for a new group
		$node->safe_psql('postgres',
			"SELECT fairq.enqueue('$q', 'g' || (53 * $n % $groups), '1'), fairq.enqueue('$q', 'new$n', '1')");
	}
	return $course;
}

my $course = course('undisturbed', sub { });
is(course('reset', sub { $node->safe_psql('postgres', 'SELECT fairq.reset_hints()') }),
	$course, 'the order of many groups after reset_hints()');

# The number of tasks served per group.
sub counts
{
	my %n;

	$n{$_}++ foreach $_[0] =~ /(\w+)\@/g;
	return \%n;
}

my $before = counts($course);
my $after = counts(course('restarted', sub { crash($node) }));
is(sum(values %$after), sum(values %$before), 'five restarts lose no task');
is( join(' ', grep { $after->{$_} > ($before->{$_} // 0) + 2 * 5 } sort keys %$after),
	'', 'no group gains more than one turn at each restart');
$node->safe_psql('postgres',
		"SELECT fairq.create_queue('round');"
	  . join('', map { enqueue('round', "g$_", 1 .. 3) } 100 .. 399)
	  . "SELECT count(*) FROM fairq.pop('round', 430)");
crash($node);
$node->safe_psql('postgres', enqueue('round', 'new', 1));
is(served('round', 301), join(' ', (map { "g$_" . ($_ < 230 ? 3 : 2) } 100 .. 399), 'new1'),
	'a restart begins a round');
is($node->safe_psql('postgres', "SELECT fairq.check_queue('restarted')"),
	'', 'and the queue is sound');

done_testing();
