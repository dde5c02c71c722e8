# Logical replication of fairq's tables. The apply worker fires no statement
# triggers. Still, the subscriber serves the tasks that it applies, with the
# publisher's groups and settings.
#
# Fails if the trigger task_applied does not fire (fairq--1.0.sql).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('subscriber', allows_streaming => 'logical');
$node->safe_psql('postgres',
	q{CREATE DATABASE other; ALTER TABLE fairq.group_number REPLICA IDENTITY FULL;
	CREATE PUBLICATION p FOR TABLE fairq.queue, fairq.task, fairq.dedup, fairq.archive, fairq.group_setting, fairq.queue_privilege, fairq.group_number});
$node->safe_psql('other', 'CREATE EXTENSION fairq');
# in one cluster, a subscription cannot create its slot on its own
$node->safe_psql('postgres',
	q{SELECT fairq.create_queue('q'), fairq.enqueue('q', 'a', '"a1"');
	CREATE ROLE worker; SELECT pg_create_logical_replication_slot('s', 'pgoutput')});
my $publisher = $node->connstr . ' dbname=postgres';
$node->safe_psql('other',
	"CREATE SUBSCRIPTION s CONNECTION '$publisher' PUBLICATION p WITH (create_slot = false, slot_name = 's')"
);
$node->wait_for_subscription_sync($node, 's', 'other')
  if $node->can('wait_for_subscription_sync');
$node->poll_query_until('other',
	q{SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate <> 'r'})
  or die 'the subscriber is not in sync';

# A session on the subscriber continues, with all its caches. It rolls back its
# pops, since the rows belong to the publisher. Rolled back pops use turns, so
# the order may differ.
my $session = $node->background_psql('other');
my $pop = q{BEGIN; SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('q', 10); ROLLBACK};

# Changes on the publisher, then pops on the subscriber.
sub after
{
	my ($sql, $expected, $what) = @_;
	$node->safe_psql('postgres', $sql);
	$node->wait_for_catchup('s');
	is($session->query_safe($pop), $expected, $what);
	is($session->query_safe(q{SELECT fairq.check_queue('q')}), '', 'it is sound');
	return;
}

after('', 'a1', 'the first');
after(q{SELECT fairq.enqueue('q', 'a', '"a2"')}, 'a1 a2', 'a task that comes');
after(q{SELECT fairq.enqueue('q', 'b', '"b1"')}, 'a1 a2 b1', 'of a new group');
after(q{SELECT fairq.pop('q')}, 'a2 b1', 'one that is popped');
after(q{SELECT fairq.release(id) FROM fairq.tasks WHERE status = 'running'},
	'a1 a2 b1', 'and handed back');
after(q{SELECT fairq.pause('q', 'a')}, 'b1', 'a group that is paused');
after(q{SELECT fairq.resume('q', 'a')}, 'a1 a2 b1', 'and resumed');
after(q{SELECT fairq.alter_queue('q', 1)}, 'a2 b1', 'a limit');
after(q{SELECT fairq.pause('q')}, '', 'a queue that is paused');
after(q{SELECT fairq.resume('q')}, 'a2 b1', 'and resumed');
after(q{SELECT fairq.purge('q', 'b')}, 'a2', 'tasks that are purged');
is($session->query_safe(q{SELECT fairq.address('q', 'b', 0)}),
	'1', 'a number is cached');
after(q{SELECT fairq.maintain(); SELECT fairq.enqueue('q', 'c', '"c1"')},
	'a2 c1', 'the number then belongs to another group');
is($session->query_safe(
		q{BEGIN; SELECT group_key FROM fairq.take('q', 10) WHERE payload = '"c1"'; ROLLBACK}),
	'c', 'as is its task');
$node->safe_psql('postgres', q{SELECT fairq.grant_queue('q', 'worker', 'work')});
$node->wait_for_catchup('s');
is( $session->query_safe(
		q{SET ROLE worker; BEGIN; SELECT count(*) FROM fairq.pop('q', 10); ROLLBACK; RESET ROLE}),
	'2',
	'a grant takes effect');
$node->safe_psql('postgres', q{TRUNCATE fairq.task});
$node->wait_for_catchup('s');
is($session->query_safe($pop), '', 'truncated tasks are gone');
$session->quit;

$node->safe_psql('other', 'ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE)');
$node->safe_psql('other', 'DROP SUBSCRIPTION s');
done_testing();
