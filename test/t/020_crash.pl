# Backends and the postmaster are killed during work. Still each task whose
# enqueue has committed is done once.
#
# Fails if a new recovery of a lane leaves out one group (find_groups() in
# line.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('crash', restart_after_crash => 'on');

sub wait_until_up
{
	foreach (1 .. 1800)
	{
		# psql may end before it has read a statement, which would end the test
		return if system_log('pg_isready', '-h', $node->host, '-p', $node->port) == 0;
		usleep(100_000);
	}
	die 'the server does not come back';
}

# A backend dies with its transaction open.
$node->safe_psql('postgres',
	q{SELECT fairq.create_queue('r');
	  SELECT fairq.enqueue_batch('r', ARRAY['a', 'b', 'a', 'b', 'a', 'b'], ARRAY['1', '1', '2', '2', '3', '3']::jsonb[]);
	  SELECT id FROM fairq.pop('r');
	  SELECT fairq.create_queue('w');
	  SELECT fairq.create_batch('w', 'open');
	  SELECT fairq.close_batch(fairq.create_batch('w', 'closed'));
	  SELECT fairq.enqueue('w', 'after', after => '{1}')});
foreach my $call (
	q{SELECT count(*) FROM fairq.pop('r', 2)},
	q{SELECT count(*) FROM fairq.take('r', 2)},
	q{SELECT fairq.enqueue('r', 'c')},
	q{SELECT fairq.release(1)},
	q{SELECT fairq.complete(1)},
	q{SELECT fairq.enqueue('r', 'a', batch => 7)},
	q{SELECT fairq.close_batch(7)},
	q{SELECT fairq.pop('w')},
	q{SELECT fairq.enqueue('w', 'rolled back', after => '{1}')},
	q{SELECT fairq.fail(1, dead => true)},
	q{SELECT fairq.purge('r')})
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	$session->query_safe("BEGIN; $call");
	my $offset = -s $node->logfile;
	kill 'KILL', $pid;
	$session->{run}->finish;
	# Until the postmaster notices the kill, the server still accepts
	# connections.
	$node->wait_for_log(qr/reinitializing/, $offset);
	wait_until_up();
	is( $node->safe_psql(
			'postgres',
			q{SELECT string_agg(group_key || payload || left(status, 1), ' ' ORDER BY addr) FROM fairq.tasks
				WHERE queue = 'r' UNION ALL SELECT string_agg(status, ' ' ORDER BY id) FROM fairq.batches
				UNION ALL SELECT string_agg(d::text, ' ') FROM fairq.dependency d}
		),
		'a1r b1q a2q b2q a3q b3q' . "\nopen closed\n(9,1,t,)",
		"after \"$call\" nothing has changed");
	is($node->safe_psql('postgres', q{SELECT fairq.check_queue('r')}),
		'', 'and the queue is sound');
}
is( $node->safe_psql(
		'postgres',
		q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('r', 100)}
	),
	'a2 b1 a3 b2 b3',
	'ready tasks are served in order');
is( $node->safe_psql('postgres', q{SELECT group_key, headers IS NOT NULL FROM fairq.pop('w', 2)}),
	'closed|t', 'the task that waited for a batch is served');
is( $node->safe_psql('postgres', q{SELECT fairq.complete(1); SELECT fairq.reschedule(9);
		SELECT group_key FROM fairq.pop('w')}),
	"t\nt\nafter", 'the task that waited for a task is served');
$node->safe_psql('postgres', q{SELECT fairq.drop_queue('r', true), fairq.drop_queue('w', true)});
prepare_account($node);

# Any backend dies, under load.
my ($backends, $postmasters, $pause) = $ENV{FAIRQ_SHORT} ? (2, 1, 500_000) : (4, 2, 1_500_000);
my $load = start_load($node, producers => 2, workers => 3);
foreach my $round (1 .. $backends)
{
	my $pid;

	usleep($pause);
	foreach (1 .. 100)
	{
		$pid = $node->safe_psql(
			'postgres', q{
			SELECT pid FROM pg_stat_activity
			WHERE application_name IN ('producer', 'worker')
				AND backend_xid IS NOT NULL
			ORDER BY random() LIMIT 1});
		last if $pid;
		usleep(10_000);
	}
	isnt($pid, '', 'a session has an open transaction');
	kill 'KILL', $pid;
	usleep(300_000);
	wait_until_up();
}

# The postmaster dies.
foreach my $round (1 .. $postmasters)
{
	usleep($pause);
	$node->kill9;
	# The backends have to notice that their postmaster is gone before another
	# one can start.
	my $up = 0;
	foreach (1 .. 300)
	{
		last
		  if $up = system_log('pg_ctl', '-w', '-D', $node->data_dir, '-l',
			$node->logfile, 'start') == 0;
		usleep(100_000);
	}
	ok($up, 'the server starts again');
	# The node object needs a restart to notice the new postmaster.
	$node->restart;
}
usleep($pause);
end_load($load);
account($node, 'crash');
unlike(slurp_file($node->logfile),
	qr/PANIC|TRAP|terminated by signal (6|7|8|11)\b/, 'nothing has crashed by itself');

done_testing();
