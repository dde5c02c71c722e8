# A transaction that has changed tasks cannot be prepared, because its pending
# changes would be lost. Other transactions can be prepared, and leave a valid
# state.
#
# Fails if a transaction that has written can be prepared (xact_callback() in
# transaction.c).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('prepare', max_prepared_transactions => 10);
$node->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('q'), fairq.create_queue('empty');
	SELECT fairq.enqueue_batch('q', ARRAY['a', 'b', 'a'], ARRAY['1', '1', '2']::jsonb[]);
	SELECT fairq.pop('q');
});
my $tasks = q{SELECT string_agg(group_key || payload || left(status, 1), ' ' ORDER BY id) FROM fairq.tasks};

foreach my $call (
	q{SELECT fairq.enqueue('q', 'a')},
	q{SELECT fairq.pop('q')},
	q{SELECT fairq.take('q')},
	q{SELECT fairq.complete(1)},
	q{SELECT fairq.release(1)},
	q{SELECT fairq.release(1, delay => '1 hour')},
	q{SELECT fairq.fail(1)},
	q{SELECT fairq.fail(1, dead => true)},
	q{SELECT fairq.extend(1)},
	q{SELECT fairq.cancel(1)},
	q{SELECT fairq.cancel(2)},
	q{SELECT fairq.enqueue('q', 'a', run_at => 'infinity')},
	q{SELECT fairq.enqueue('q', 'a', dedup_key => 'k')},
	q{SELECT fairq.purge('q')},
	q{SAVEPOINT s; SELECT fairq.pop('q'); RELEASE s},
	q{SAVEPOINT s; SAVEPOINT t; SELECT fairq.pop('q'); RELEASE t; RELEASE s; SAVEPOINT s; SELECT fairq.pop('q'); ROLLBACK TO s},
	q{UPDATE fairq.task SET payload = '3'},
	q{SELECT fairq.create_queue('r')},
	q{SELECT fairq.drop_queue('q', true)},
	q{SELECT fairq.set_group('q', 'new')},
	q{SELECT fairq.pause('q')},
	q{SELECT fairq.enqueue_batch('q', ARRAY['a'], ARRAY['1']::jsonb[])},
	q{SELECT fairq.complete_batch(ARRAY[1])},
	q{SELECT fairq.alter_queue('q', lease => '1 hour')},
	q{SELECT fairq.resume('q')},
	q{SELECT fairq.grant_queue('q', 'postgres', 'work')},
	q{SELECT fairq.grant_queue('q', 'postgres', 'work'), fairq.revoke_queue('q', 'postgres', 'work')},
	q{SELECT fairq.extend(1, lease => '1 microsecond'), fairq.expire_leases('q')},
	q{SELECT fairq.extend(1, lease => '1 microsecond'), fairq.maintain('q')},
	q{DELETE FROM fairq.task},
	q{TRUNCATE fairq.task})
{
	my ($status, $stdout, $stderr) = $node->psql('postgres',
		"\\set VERBOSITY sqlstate\nBEGIN; $call; PREPARE TRANSACTION 'p'");
	like($stderr, qr/ERROR:  0A000/, "not after: $call");
	is($node->safe_psql('postgres', $tasks),
		'a1r b1q a2q', 'and the transaction is rolled back');
	# in case the transaction could be prepared
	$node->psql('postgres', q{ROLLBACK PREPARED 'p'});
}

# Transactions that wrote nothing can be prepared.
$node->safe_psql(
	'postgres', q{
	SELECT fairq.create_queue('full', max_running => 1), fairq.create_queue('paused');
	SELECT fairq.enqueue('full', 'a', dedup_key => 'k'), fairq.enqueue('full', 'a'), fairq.enqueue('paused', 'a');
	SELECT fairq.pop('full'), fairq.pause('paused');
});
foreach my $call (
	q{SELECT fairq.pop('empty')},
	q{SELECT fairq.take('empty')},
	q{SELECT fairq.pop('full')},
	q{SELECT fairq.pop('paused')},
	q{SELECT fairq.complete(1000)},
	q{SELECT fairq.complete_batch(ARRAY[1000, 1001])},
	q{SELECT fairq.fail(1000), fairq.release(1000), fairq.extend(1000), fairq.cancel(1000)},
	q{SELECT fairq.complete(1, 7), fairq.fail(1, 7), fairq.release(1, 7), fairq.extend(1, 7)},
	# enqueues with a key that is in use
	q{SELECT fairq.enqueue('full', 'a', dedup_key => 'k')},
	q{SELECT fairq.enqueue_batch('full', ARRAY['a'], ARRAY['1']::jsonb[], dedup_keys => ARRAY['k'])},
	q{SELECT fairq.enqueue_batch('q', '{}', '{}')},
	q{SELECT fairq.purge('empty'), fairq.expire_leases('q'), fairq.redrive('q')},
	q{SELECT fairq.version(), fairq.address('q', 'a', 1), fairq.block_of('q', 1)},
	q{SELECT fairq.check_queue('q')},
	q{SELECT fairq.reset_hints()},
	q{SELECT * FROM fairq.queues, fairq.groups},
	q{SELECT * FROM fairq.tasks},
	q{SELECT * FROM fairq.task FOR UPDATE},
	# transactions whose changes were undone
	q{SAVEPOINT s; SELECT fairq.pop('q'); ROLLBACK TO s},
	q{SAVEPOINT s; SAVEPOINT t; SELECT fairq.enqueue('q', 'new'); RELEASE t; ROLLBACK TO s; SAVEPOINT s; SELECT fairq.complete(1), fairq.pause('q'); ROLLBACK TO s},
	q{SAVEPOINT s; UPDATE fairq.task SET payload = '3'; DELETE FROM fairq.group_number; ROLLBACK TO s; RELEASE s})
{
	$node->safe_psql('postgres', "BEGIN; $call; PREPARE TRANSACTION 'p'");
	$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
	pass("prepared: $call");
}
is( $node->safe_psql(
		'postgres',
		q{SELECT string_agg(queue || payload || left(status, 1), ' ' ORDER BY id) FROM fairq.tasks WHERE queue IN ('full', 'paused')}
	),
	'full{}r full{}q paused{}q',
	'the prepared transactions have had no effect');

# A transaction that has used a queue prevents a drop while it is prepared,
# also after a restart. A prepared transaction that has locked a task protects
# that task.
$node->safe_psql(
	'postgres', q{
	BEGIN; SELECT fairq.pop('empty'); PREPARE TRANSACTION 'uses';
	BEGIN; SELECT * FROM fairq.task WHERE id = 1 FOR UPDATE; PREPARE TRANSACTION 'locks';
});
foreach my $mode ('fast', 'immediate')
{
	foreach my $call (
		q{fairq.drop_queue('empty')},
		q{fairq.alter_queue('empty', block_length => 10)},
		q{fairq.complete(1)})
	{
		my ($status, $stdout, $stderr) = $node->psql('postgres',
			"\\set VERBOSITY sqlstate\nSET lock_timeout = '50ms'; SELECT $call");
		like($stderr, qr/ERROR:  55P03/, "$mode: waits for the prepared: $call");
	}
	is( $node->safe_psql(
			'postgres', q{
			BEGIN; SELECT count(*) FROM fairq.pop('q', 2); ROLLBACK;
			SELECT fairq.enqueue('empty', 'a') > 0;
			SELECT count(*) FROM fairq.take('empty')}),
		"2\nt\n1",
		"$mode: other calls do not");
	$node->stop($mode);
	$node->start;
}
$node->safe_psql('postgres', q{COMMIT PREPARED 'uses'});
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'locks'});
is($node->safe_psql('postgres', q{SELECT fairq.drop_queue('empty')}),
	't', 'and after both have ended the queue can be dropped');

# A transaction that has changed nothing, because a faster session has ended
# its task, can be prepared.
{
	my $slow = $node->background_psql('postgres', on_error_stop => 0);
	my $fast = $node->background_psql('postgres');

	$node->safe_psql('postgres',
		q{SELECT fairq.create_queue('race'), fairq.enqueue('race', 'r');
		  SELECT fairq.pop('race')});
	my $id = $node->safe_psql('postgres',
		q{SELECT id FROM fairq.tasks WHERE queue = 'race'});
	$fast->query_safe("BEGIN; SELECT 1 FROM fairq.task WHERE id = $id FOR UPDATE");
	$slow->query_until(qr/begun/,
		"BEGIN;\n\\echo begun\nSELECT fairq.complete($id);\nPREPARE TRANSACTION 'p';\nROLLBACK;\n");
	$node->poll_query_until('postgres',
		q{SELECT count(*) > 0 FROM pg_locks WHERE NOT granted})
	  or die 'nobody waits';
	$fast->query_safe("SELECT fairq.complete($id)");
	$fast->query_safe('COMMIT');
	like($slow->query(q{SELECT fairq.enqueue('q', 'a') > 0}),
		qr/t$/, 'the session continues');
	$slow->query(q{SELECT fairq.cancel((SELECT max(id) FROM fairq.tasks))});
	$slow->quit;
	$fast->quit;
	$node->psql('postgres', q{ROLLBACK PREPARED 'p'});
}

is( $node->safe_psql(
		'postgres',
		q{SELECT string_agg(group_key || payload, ' ' ORDER BY id) FROM fairq.pop('q', 100)}
	),
	'b1 a2',
	'all ready tasks are served');
is($node->safe_psql('postgres', q{SELECT fairq.check_queue('q')}),
	'', 'the queue is sound');

# The session's cache keeps nothing of a group whose creation was rolled back.
$node->psql('postgres',
	q{BEGIN; SELECT fairq.set_group('q', 'new'); PREPARE TRANSACTION 'p';
	  ROLLBACK PREPARED 'p'; ROLLBACK; SELECT fairq.enqueue('q', 'new')},
	on_error_stop => 0);
$node->safe_psql('postgres', q{SELECT fairq.enqueue('q', 'other')});
is( $node->safe_psql(
		'postgres',
		q{SELECT string_agg(group_key, ' ' ORDER BY id) FROM fairq.pop('q', 100)}),
	'new other',
	'tasks are of the groups that they were enqueued for');

done_testing();
