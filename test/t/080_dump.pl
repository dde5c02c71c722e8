# pg_dump and restore of a live queue: tasks, addresses, leases and sequences
# are restored, and work continues.
#
# Fails if pg_dump leaves out the rows of fairq.archive and fairq.task_id_seq
# (fairq--1.0.sql).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('dump');
$node->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('other', fair_by => 'cost'), fairq.create_queue('tenants', separator => '/'), fairq.create_queue('ordered', concurrency => 1, in_order => true), fairq.create_queue('q', block_length => 1000, lease => '1 hour');
	SELECT fairq.enqueue_batch('q', ARRAY['a', 'b', 'a', 'b', 'a', 'b'], ARRAY['1', '1', '2', '2', '3', '3']::jsonb[]);
	SELECT fairq.set_group('q', 'c', weight => 2);
	SELECT fairq.pop('q', 3, worker => 'w');
	SELECT fairq.enqueue('q', 'a', '9', priority => 3);
	SELECT fairq.register_worker(gen_random_uuid(), 'w', '{q}');

	-- a queue in full life
	SELECT fairq.create_queue('life', concurrency => 2, retain => '1 day', notify => true,
		backoff => '1 hour', max_attempts => 3, shares => '{70,20,10}', retain_failed => '2 days', max_run_time => '3 hours', backoff_max => '2 hours');
	SELECT fairq.enqueue('life', 'l', '"done"'), fairq.enqueue('life', 'l', '"dead"');
	SELECT fairq.complete(id, attempt, '"result"') FROM fairq.pop('life');
	SELECT fairq.fail(id, attempt, 'no way', dead => true) FROM fairq.pop('life');
	SELECT fairq.enqueue('life', 'm', '"retried"');
	SELECT fairq.fail(id, attempt, 'not now') FROM fairq.pop('life');
	SELECT fairq.enqueue('life', 'l', '"expires"', dedup_key => 'e');
	SELECT fairq.pop('life', lease => '1 ms');
	SELECT fairq.enqueue('life', 'n', '"expired"', expires_at => '-infinity');
	SELECT fairq.enqueue('life', 'l', '"later"', dedup_key => 'k', run_at => 'infinity');
	SELECT fairq.enqueue('life', 'l', '"soon"', run_at => clock_timestamp() + '1 s');
	SELECT fairq.enqueue('life', 'l', '"waits"') FROM generate_series(1, 4);

	-- and one that is fair by cost
	SELECT fairq.enqueue_batch('other', ARRAY['o', 'o', 'p', 'p', 'p', 'p'], ARRAY['1', '2', '1', '2', '3', '4']::jsonb[],
		costs => ARRAY[2.5, 2.5, 1, 1, 1, 1]);
	SELECT fairq.enqueue_batch('tenants', ARRAY['a/x', 'a/y', 'a/y', 'b/z', 'b/z', 'b/z'], ARRAY['1', '1', '2', '1', '2', '3']::jsonb[]);
	SELECT fairq.enqueue('ordered', 'part', batch => fairq.create_batch('ordered', 'whole'));
	SELECT fairq.enqueue('ordered', 'last', after => array_agg(id)) FROM fairq.tasks WHERE group_key = 'part';
});
my $open = $node->background_psql('postgres');
$open->query_safe(
	q{BEGIN; SELECT id FROM fairq.pop('q'); SELECT fairq.enqueue('q', 'late')});

my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump";
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(plain custom);
$node->command_ok([ 'pg_dump', '-f', "$dump.sql", 'postgres' ], 'plain dump');
$node->command_ok(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.sql", 'plain' ],
	'its restore');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dump.dump", 'postgres' ],
	'custom dump');
$node->command_ok(
	[ 'pg_restore', '-e', '-j', '2', '-d', 'custom', "$dump.dump" ],
	'its restore');
$open->query_safe('ROLLBACK');
$open->quit;

foreach my $database ('plain', 'custom')
{
	foreach my $table ('queue', 'group_number', 'group_setting', 'task', 'dedup',
		'archive', 'batch', 'batch_delta', 'dependency')
	{
		my $rows =
		  "SELECT string_agg(t::text, chr(10) ORDER BY t::text) FROM fairq.$table t";

		is( $node->safe_psql($database, $rows),
			# neither database has the group of the open transaction, which was
			# rolled back
			$node->safe_psql('postgres', $rows),
			"$database: fairq.$table");
	}
	is($node->safe_psql($database, 'SELECT count(*) FROM fairq.worker'),
		'0', "$database: workers are not dumped");
	is( $node->safe_psql(
			$database,
			q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('q', 2)}
		),
		'a3 b2',
		"$database: a round begins");
	is($node->safe_psql($database, q{SELECT fairq.complete(1, 1)}),
		't', "$database: running tasks can be completed");
	$node->safe_psql($database,
		q{SELECT fairq.enqueue('q', 'c', '1'), fairq.enqueue('q', 'c', '2')});
	is( $node->safe_psql(
			$database,
			q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('q', 100)}
		),
		'c1 c2 b3 a9',
		"$database: in fair order, by weight and priority");
	is( $node->safe_psql(
			$database,
			q{SELECT count(DISTINCT id), min(id) FROM fairq.tasks WHERE queue = 'q'}),
		'8|2',
		"$database: ids are distinct");
	is( $node->safe_psql(
			$database,
			q{SELECT fairq.enqueue('life', 'l', dedup_key => 'k') =
				(SELECT id FROM fairq.tasks WHERE payload = '"later"')}),
		't',
		"$database: keys are taken");
	$node->poll_query_until($database,
		q{SELECT bool_and(run_at < now()) FROM fairq.tasks WHERE payload = '"soon"'});
	is( $node->safe_psql(
			$database,
			q{SELECT string_agg(payload::text || ' ' || attempt, ', ' ORDER BY payload::text) FROM fairq.pop('life', 10)}
		),
		'"expires" 2, "waits" 1',
		"$database: tasks with expired leases are popped, and waiting ones");
	is($node->safe_psql($database, q{SELECT fairq.redrive('life')}),
		'1', "$database: dead letters can be redriven");
	is( $node->safe_psql(
			$database,
			q{SELECT string_agg(payload::text || ' ' || status, ', ' ORDER BY id) FROM fairq.tasks
			  WHERE queue = 'life'}),
		join(', ',
			'"done" completed',
			'"dead" queued',
			'"retried" scheduled',
			'"expires" running',
			'"expired" expired',
			'"later" scheduled',
			'"soon" queued',
			'"waits" running',
			('"waits" queued') x 3),
		"$database: all states are kept");
	is($node->safe_psql($database, q{SELECT fairq.check_queue('life')}),
		'', "$database: and sound");
	# The order is "o1 p1 o2 p2 p3 p4" if costs are not restored.
	is( $node->safe_psql(
			$database,
			q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('other', 100)}
		),
		'o1 p1 p2 p3 o2 p4',
		"$database: costs and fair_by are kept");
	is( $node->safe_psql(
			$database,
			q{SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('tenants', 100);
			  SELECT fairq.check_queue('tenants')}
		),
		'a/x1 b/z1 a/y1 b/z2 a/y2 b/z3',
		"$database: tenants are kept");
	is( $node->safe_psql(
			$database,
			q{SELECT fairq.close_batch(id) FROM fairq.batches;
			  SELECT fairq.complete(id) FROM fairq.pop('ordered');
			  SELECT fairq.reschedule(id) FROM fairq.batches;
			  SELECT group_key, headers->'batch'->'completed' FROM fairq.pop('ordered')}
		),
		"t\nt\nt\nwhole|1",
		"$database: a batch is finished");
	is( $node->safe_psql(
			$database,
			q{SELECT fairq.reschedule(id) FROM fairq.tasks WHERE group_key = 'last';
			  SELECT group_key FROM fairq.pop('ordered')}
		),
		"t\nlast",
		"$database: a wait for a task ends");
	$node->safe_psql($database, q{SELECT fairq.create_queue('third')});
	is( $node->safe_psql(
			$database, q{SELECT max(queue_id) FROM fairq.queue}),
		'6',
		"$database: queues' ids continue");
	is($node->safe_psql($database, q{SELECT fairq.check_queue('q')}),
		'', "$database: the queue is sound");
}

done_testing();
