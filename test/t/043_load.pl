# After a restart one pass over the table finds the running tasks. If the table
# is large, a background worker makes this pass. If no worker is available, the
# call that needs the pass makes it (load.c). Until then no limit is exceeded.
# Groups that were skipped until then do not wait for others afterwards.
#
# Fails if a load sees changes of its own transaction (begin_load() in
# load.c). Fails if a queue that is being dropped counts as loaded
# (publish_queue() in load.c). Fails if a call does not load by itself when
# there is no worker (fairq_load_finish()). Fails if a pop does not wait for
# the load (is_to_load() in serve.c). Fails if SQL does not wait for loads that
# it invalidates (fairq_load_precedes_sql() in load.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $workers = 8;
my $node = new_server('load', autovacuum => 'off');

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# Whether the call itself makes the pass, instead of a background worker.
sub loads
{
	my ($sql) = @_;
	my ($out, $err);

	$node->psql(
		'postgres', "SET client_min_messages = debug1; $sql",
		stdout => \$out,
		stderr => \$err);
	return $err =~ /the load has found/ ? 1 : 0;
}

sub enqueue
{
	my ($queue, $groups, $n) = @_;
	return "SELECT count(*) FROM fairq.enqueue_batch('$queue',"
	  . " ARRAY(SELECT '$groups' || i % 20 FROM generate_series(1, $n) i),"
	  . " array_fill('1'::jsonb, ARRAY[$n]));";
}

# Tasks of 1 kB each.
sub large
{
	my ($queue, $n) = @_;
	return "SELECT count(*) FROM fairq.enqueue_batch('$queue',"
	  . " ARRAY(SELECT 'o' || i % 20 FROM generate_series(1, $n) i),"
	  . " array_fill(to_jsonb(repeat('x', 1000)), ARRAY[$n]));";
}

# Statements that pop n tasks from the queue "others", which has enough of them.
sub pop_others
{
	my ($n) = @_;
	return "SELECT count(*) FROM fairq.pop('others', 1);" x $n;
}

my $pop = "SELECT count(*) FROM fairq.pop('limited', 100);";
my $running =
  "SELECT count(*) FROM fairq.tasks WHERE queue = 'limited' AND status = 'running' AND group_key = 'long';";

# The table has more rows than a call loads on its own. 3 tasks of "long" run,
# far back in the table.
sql("SELECT fairq.create_queue('limited', concurrency => 3, lease => '1 hour');"
	  . "SELECT fairq.create_queue('others', lease => '1 hour');"
	  . "SELECT fairq.create_queue('expired', lease => '1 microsecond');"
	  . "SELECT fairq.create_queue('full', max_running => 2, lease => '1 hour');"
	  . large('others', 70000)
	  . enqueue('expired', 'e', 3000)
	  . "SELECT count(*) FROM fairq.pop('expired', 30);"
	  . "SELECT count(*) FROM fairq.enqueue_batch('limited', array_fill('long'::text, ARRAY[5000]), array_fill('1'::jsonb, ARRAY[5000]));"
	  . "SELECT fairq.enqueue('limited', 'short');"
	  . enqueue('full', 'f', 3000)
	  . "SELECT count(*) FROM fairq.pop('full', 10);"
	  . $pop);
is(sql($running), '3', 'up to the limit');

foreach (0, 1)
{
	my $what = $workers ? 'a worker' : 'no worker';

	crash($node);
	is(loads(pop_others(3)), 0, "$what: a call that is served loads nothing");
	is(loads($pop), $workers ? 0 : 1, "$what: another one loads if there is no worker");
	is(sql($pop), '0', "$what: the limit holds");
	is(sql("SELECT count(*) FROM fairq.pop('full', 10)"),
		'0', "$what: so does that of a queue");
	cmp_ok(sql("SELECT count(*) FILTER (WHERE attempt > 1) FROM fairq.pop('expired', 40)"),
		'>', 0, "$what: earlier leases are known");
	# fairq.stats shows the numbers of running tasks as soon as they are known
	crash($node);
	sql('SELECT count(*) FROM fairq.stats') if $workers;
	sql('SELECT fairq.maintain()') if !$workers;
	ok( $node->poll_query_until('postgres',
			"SELECT count(running) = count(*) FROM fairq.stats"),
		"$what: and so are the numbers of tasks");
	$workers = $_ ? 8 : 0;
	$node->append_conf('postgresql.conf', "max_worker_processes = $workers");
	$node->restart;
}

# The first pop after a crash uses a free slot, and wait() reports that a task
# is ready for the slot.
sub complete_one
{
	return
	  "SELECT fairq.complete(min(id)) FROM fairq.tasks WHERE queue = 'limited' AND status = 'running' AND group_key = 'long';";
}
sql(complete_one());
crash($node);
is(sql($pop), '1', 'a group with a free slot is served by the first pop');
sql(complete_one());
crash($node);
is(sql("CALL fairq.wait('limited', '10 seconds')"),
	't', 'wait() finds it, too');
is(sql($pop), '1', 'and a pop finds a task');
is(sql($running), '3', 'tasks run up to the limit again');

# A pop that is the first call after a crash returns a task, too.
sql("SELECT fairq.create_queue('short'), fairq.set_group('short', 'x', concurrency => 1);"
	  . "SELECT fairq.enqueue('short', 'x');");
crash($node);
is(sql("SELECT group_key FROM fairq.pop('short')"),
	'x', 'a pop is the first call after a crash');

# Some calls are cancelled while they wait.
crash($node);
my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
$_->query_safe(pop_others(2)) foreach @sessions, @sessions;
$node->psql('postgres',
	"SET statement_timeout = '1ms'; $pop" . pop_others(20));
is(sql($pop), '0', 'cancelled: the limit holds');
is(sql($running), '3', 'cancelled: the limit is not exceeded');

# For other sessions, tasks that an open transaction has ended count as
# running.
crash($node);
$sessions[0] = $node->background_psql('postgres');
$sessions[0]->query_safe('BEGIN;' . complete_one());
is($sessions[0]->query_safe($pop), '0', 'own: there is no free slot yet');
is(sql($pop), '0', 'own: nor for others');
$sessions[0]->query_safe('ROLLBACK');
is(sql($pop), '0', 'own: there is no free slot after a rollback');
$sessions[0]->query_safe('BEGIN;' . complete_one());
$sessions[0]->query_safe('COMMIT');
is(sql($pop), '1', 'own: there is a free slot after a commit');

# The table is rewritten during the load: rows move to the front.
crash($node);
sql(pop_others(3));
sql('CLUSTER fairq.task USING task_by_group');
is(sql($pop), '0', 'rewritten: the limit holds');
is(sql($running), '3', 'rewritten: the limit is not exceeded');

# The queue is dropped during the load, and the drop is rolled back.
crash($node);
$sessions[0] = $node->background_psql('postgres');
$sessions[0]->query_safe("BEGIN; SELECT fairq.drop_queue('limited', force => true)");
cmp_ok(sql("SET statement_timeout = '60s'; SELECT count(*) FROM fairq.pop('expired', 1000000)"),
	'>', 0, 'dropped: no call waits for the drop');
$node->poll_query_until('postgres', 'SELECT count(running) > 0 FROM fairq.stats')
  or die 'the load does not end';
is(sql("SELECT string_agg(queue, ' ') FROM fairq.stats WHERE running IS NULL"),
	'limited', 'dropped: the running tasks of the queue are not loaded');
$sessions[0]->query_safe('ROLLBACK');
is(sql($pop), '0', 'dropped and back: the limit holds');
is(sql($running), '3', 'dropped and back: the limit is not exceeded');

# SQL changes rows repeatedly, which would invalidate each load.
sql('CREATE TABLE enough ()');
my $changing = $node->background_psql('postgres');
$changing->query_until(
	qr/started/, q{\echo started
	DO $$BEGIN WHILE NOT EXISTS (SELECT FROM enough) LOOP
		UPDATE fairq.task SET worker = worker WHERE id = -1; COMMIT;
	END LOOP; END$$;
});
is(sql($pop), '0', 'changed all the time: the limit holds')
  foreach 1 .. 3;
sql(complete_one());
ok($node->poll_query_until('postgres', $pop, '1'),
	'changed all the time: a free slot is used');
is(sql($running), '3', 'changed all the time: tasks run up to the limit');
sql('INSERT INTO enough DEFAULT VALUES');
$changing->quit;

is(sql("SELECT fairq.check_queue(q) FROM unnest('{limited,others,expired,full}'::text[]) q"
	),
	'',
	'the queues are sound');

done_testing();
