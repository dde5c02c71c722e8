# fairq.stats shows how many tasks are ready, scheduled and running, whatever
# events lose or delay these numbers. The test has open transactions during the
# load, killed sessions and servers, restarts, and changes by SQL. It also has
# more rows than a call loads on its own.
#
# Fails if a load does not record which transactions were running, including its
# own (keep_snapshot() in load.c). Fails if no load follows the creation of the
# first queue (fairq_load_first() in load.c). Fails if a subtransaction's
# changes do not reach its parent (merge() in transaction.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server(
	'tally',
	autovacuum => 'off',
	max_connections => 50,
	restart_after_crash => 'on');

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub enqueue
{
	my ($queue, $n, $groups) = @_;
	$groups ||= 5;
	return "SELECT count(*) FROM fairq.enqueue_batch('$queue',"
	  . " ARRAY(SELECT 'g' || i % $groups FROM generate_series(1, $n) i),"
	  . " array_fill('1'::jsonb, ARRAY[$n]));";
}

# The numbers that the view shows for all queues.
sub shown
{
	return sql("SELECT queue, queued, scheduled, running FROM fairq.stats ORDER BY queue");
}

# The numbers of tasks according to the rows of fairq.task.
sub rows
{
	return sql(
		"SELECT q.name, count(t.id) FILTER (WHERE lease_until IS NULL AND addr < 1::bigint << 62),"
		  . " count(t.id) FILTER (WHERE lease_until IS NULL AND addr >= 1::bigint << 62),"
		  . " count(lease_until)"
		  . " FROM fairq.queue q LEFT JOIN fairq.task t USING (queue_id) GROUP BY 1 ORDER BY 1");
}

# The first queue of a new extension. Changes of the transaction that creates
# the queue count once, even if transactions with later xids have already ended.
sub first_queue
{
	my ($older, $subtransaction) = @_;
	my $what = ($older ? 'an older' : 'a new') . ' transaction'
	  . ($subtransaction ? ', a savepoint' : '');
	my $numbers = "SELECT queue, queued, scheduled, running FROM fairq.stats ORDER BY queue";
	my $first;

	sql('CREATE DATABASE first');
	$first = $node->background_psql('first');
	$first->query_safe('BEGIN');
	$first->query_safe('SELECT pg_current_xact_id()') if $older;
	sql('CREATE TABLE later (); DROP TABLE later') if $older;
	$first->query_safe('CREATE EXTENSION fairq');
	$first->query_safe('SAVEPOINT s') if $subtransaction;
	is($first->query_safe("SELECT fairq.create_queue('n'); $numbers"),
		"\nn|0|0|0", "$what: nothing is there");
	$first->query_safe(enqueue('n', 5) . "SELECT count(*) FROM fairq.pop('n', 2);");
	$first->query_safe('ROLLBACK TO s; ' . "SELECT fairq.create_queue('n');" . enqueue('n', 5)
		  . "SELECT count(*) FROM fairq.pop('n', 2);") if $subtransaction;
	$first->query_safe('COMMIT');
	is($first->query_safe($numbers), 'n|3|0|2', "$what: and then it is known");
	is($first->query_safe("SELECT fairq.create_queue('m'); $numbers"),
		"\nm|0|0|0\nn|3|0|2", "$what: a second one");
	is($first->query_safe("SELECT check_queue FROM fairq.check_queue('n')"),
		'', "$what: the queue is sound");
	$first->quit;
	sql('DROP DATABASE first');
	return;
}

sub is_right
{
	my ($what) = @_;

	is(shown(), rows(), $what);
	is(sql("SELECT check_queue FROM fairq.queue, fairq.check_queue(name)"),
		'', "$what: the queues are sound");
	return;
}

foreach my $older (0, 1)
{
	first_queue($older, $_) foreach 0, 1;
}
sql("SELECT fairq.create_queue('q', backoff => '1 hour');" . enqueue('q', 20));
is_right('from the first queue on');
sql("SELECT fairq.reset_hints()");
sql("SELECT count(*) FROM fairq.pop('q', 3)");
is_right('a pop has loaded');
sql("SELECT fairq.create_queue('p');" . enqueue('p', 5));
is_right('the numbers of a queue that is created later are known at once');

# Transactions that are open when the count begins, and end in several orders.
# Each has changed rows that are visible to the count, and rows that are not.
foreach my $end ('COMMIT', 'ROLLBACK')
{
	foreach my $when ('before', 'open', 'in a subtransaction', 'in a released one')
	{
		my $open = $node->background_psql('postgres');
		my $change =
			enqueue('q', 4)
		  . "SELECT count(*) FROM fairq.pop('q', 2);"
		  . "SELECT fairq.enqueue('p', 'x', run_at => now() + '1 hour');"
		  . "SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = 'q' AND status = 'running' LIMIT 2;";

		sql("SELECT fairq.reset_hints()");
		$open->query_safe('BEGIN');
		$open->query_safe($change) if $when eq 'open';
		$open->query_safe("SAVEPOINT s; $change") if $when eq 'in a subtransaction';
		$open->query_safe("SAVEPOINT s; $change RELEASE s; SAVEPOINT t; "
			  . enqueue('q', 7) . " ROLLBACK TO t;")
		  if $when eq 'in a released one';
		# this makes sure that the xid of the open transaction is not the last
		# one
		sql("SELECT fairq.enqueue('p', 'y')");
		sql("SELECT fairq.maintain('q')");
		is_right("counted during the transaction, $when, $end");
		$open->query_safe($change);
		sql("SELECT fairq.enqueue('p', 'z')");
		is_right("and continued, $when, $end");
		$open->query_safe($end);
		is_right("and ended, $when, $end");
		$open->quit;
	}
}

# Many transactions, which end in another order than they began.
my @open = map { $node->background_psql('postgres') } 1 .. 10;
sql("SELECT fairq.reset_hints()");
$open[$_]->query_safe('BEGIN;' . enqueue($_ % 2 ? 'p' : 'q', $_)) foreach 0, 3, 6, 9, 1, 4;
sql("SELECT fairq.maintain()");
$open[$_]->query_safe('BEGIN;' . enqueue($_ % 2 ? 'p' : 'q', $_)) foreach 2, 5;
$open[$_]->query_safe($_ % 3 ? 'COMMIT' : 'ROLLBACK') foreach 4, 0, 5, 9, 1, 2, 6, 3;
$_->quit foreach @open;
is_right('many transactions ended in another order');

# A transaction changes rows by SQL before the count, and commits after it. The
# commit makes the numbers unknown again.
my $by_hand = $node->background_psql('postgres');
sql("SELECT fairq.reset_hints()");
$by_hand->query_safe("BEGIN; DELETE FROM fairq.task WHERE id IN (SELECT min(id) FROM fairq.task)");
sql("SELECT fairq.maintain('q')");
is_right('counted during changes by SQL');
$by_hand->query_safe('COMMIT');
$by_hand->quit;
is_right('changed by SQL');

# A session is killed, which makes the server restart.
my $killed = $node->background_psql('postgres', on_error_stop => 0);
my $pid = $killed->query_safe('SELECT pg_backend_pid()');
$killed->query_safe('BEGIN;' . enqueue('q', 50) . "SELECT count(*) FROM fairq.pop('q', 5)");
kill 'KILL', $pid;
eval { $killed->quit };
# until the server notices the kill, it accepts connections and lists the
# session
ok( $node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)"),
	'a session was killed');
is_right('a session was killed');
sql("SELECT count(*) FROM fairq.pop('q', 3)");
is_right('a session was killed, and a pop counted');
crash($node);
is_right('the server has crashed');
$node->restart;
sql("SELECT count(*) FROM fairq.take('q', 3)");
is_right('loaded by take() after a restart');

# A session disconnects in the middle of its transaction.
my $ended = $node->background_psql('postgres', on_error_stop => 0);
$pid = $ended->query_safe('SELECT pg_backend_pid()');
$ended->query_safe('BEGIN;' . enqueue('q', 50));
sql("SELECT pg_terminate_backend($pid, 10000)");
eval { $ended->quit };
is_right('a session was ended');

# Errors in subtransactions, and outside of any subtransaction.
$node->psql('postgres', 'BEGIN;' . enqueue('q', 5) . 'SELECT 1 / 0; COMMIT');
sql('DO $$ BEGIN PERFORM fairq.enqueue(\'q\', \'e\'); BEGIN PERFORM fairq.pop(\'q\', 3);'
	  . ' PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN PERFORM fairq.pop(\'q\', 1); END; END $$');
is_right('errors');

# More changes than a transaction keeps for each group.
sql("SELECT fairq.create_queue('r'); BEGIN;" . enqueue('r', 70000, 70000) . 'ROLLBACK;');
is_right('70,000 changes, rolled back');
sql('BEGIN;' . enqueue('r', 70000, 70000) . 'COMMIT;');
is_right('70,000 changes');
sql("BEGIN; SELECT count(*) FROM fairq.pop('r', 69000); SAVEPOINT s;"
	  . "SELECT count(*) FROM fairq.take('r', 300);"
	  . enqueue('r', 100) . "RELEASE s; SAVEPOINT t;"
	  . "SELECT count(*) FROM fairq.take('r', 500); ROLLBACK TO t; SELECT fairq.purge('q'); COMMIT");
is_right('69,000 popped, 300 taken in a savepoint, and another queue purged');

# By now there are more rows than a call loads on its own, so a worker loads
# them.
sql("SELECT fairq.reset_hints()");
sql("SELECT count(*) FROM fairq.pop('p', 1)");
ok( $node->poll_query_until('postgres', "SELECT count(queued) = count(*) FROM fairq.stats"),
	'a large table: a worker finds all numbers');
is_right('a large table');
sql("SELECT fairq.reset_hints(); SELECT fairq.maintain('p')");
is_right('maintain() of a large table');

# Dropped queues, whose hints other queues get.
sql("SELECT fairq.drop_queue('r', true)");
sql("SELECT fairq.create_queue('s$_');" . enqueue("s$_", $_)) foreach 1 .. 3;
is_right('queues that were created after another one was dropped');
sql("BEGIN; SELECT fairq.create_queue('t');" . enqueue('t', 5) . 'ROLLBACK');
sql("SELECT fairq.create_queue('u')");
is_right('a queue whose creation was rolled back');

$node->stop;
done_testing();
