# Logical replication of fairq's tables, as for a move to another server. The
# subscriber gets the rows that fairq's functions write without the executor.
# Duplicate rows of fairq.group_number, and their deletion, are replicated too.
#
# Fails if fairq.group_number has no replica identity, because maintain() and
# drop_queue() then cannot delete its rows. If store.c does not check for a
# replica identity either, the rows that maintain() deletes stay on the
# subscriber.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('publication', allows_streaming => 'logical');
my $sql = sub { return $node->safe_psql('postgres', $_[0]); };
my $copy = sub { return $node->safe_psql('copy', $_[0]); };

$sql->('CREATE DATABASE copy');
$copy->('CREATE EXTENSION fairq');
$sql->('CREATE PUBLICATION p FOR ALL TABLES');
# in one cluster, a subscription cannot create its slot on its own
$sql->(q{SELECT pg_create_logical_replication_slot('s', 'pgoutput')});
$copy->(sprintf
	  q{CREATE SUBSCRIPTION s CONNECTION '%s dbname=postgres' PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)},
	$node->connstr);

# All rows of a table, and how often the table has each row.
sub rows
{
	my ($database, $table) = @_;

	return $node->safe_psql($database,
		"SELECT count(*), t::text FROM fairq.$table t GROUP BY t::text ORDER BY 2");
}

sub is_copied
{
	my ($name) = @_;

	$node->wait_for_catchup('s');
	foreach my $table (
		qw(task group_number dedup archive queue group_setting queue_privilege))
	{
		is(rows('copy', $table), rows('postgres', $table), "$name: $table");
	}
	return;
}

$sql->(
	q{SELECT fairq.create_queue('q', concurrency => 2, backoff => '0'), fairq.create_queue('kept', retain => '1 day');
	SELECT fairq.set_group('q', 'a', weight => 2), fairq.grant_queue('q', 'pg_monitor', 'work');
	SELECT fairq.enqueue('q', g, to_jsonb(g || n), dedup_key => g || n)
		FROM generate_series(1, 4) n, unnest('{a,b,c}'::text[]) g;
	SELECT fairq.enqueue_batch('kept', '{x,y,z,z}', '{1,2,3,4}')});
is_copied('enqueued');

$sql->(
	q{SELECT fairq.complete(id, attempt) FROM fairq.pop('q', 2);
	SELECT fairq.release(id, attempt, '1 hour') FROM fairq.pop('q');
	SELECT fairq.fail(id, attempt, 'no') FROM fairq.pop('q');
	SELECT fairq.pop('q', worker => 'w');
	SELECT fairq.take('q');
	SELECT fairq.complete(id, attempt, '"done"') FROM fairq.pop('kept');
	SELECT fairq.fail(id, attempt, dead => true) FROM fairq.pop('kept', 2);
	SELECT fairq.redrive('kept', max_tasks => 1);
	BEGIN; SELECT fairq.take('kept', 10); ROLLBACK});
is_copied('worked on');

# A used and an unused group each have several equal rows. maintain() keeps
# only one row, which is that of the used group.
$sql->(
	q{SELECT fairq.set_group('q', 'unused');
	INSERT INTO fairq.group_number SELECT s.* FROM fairq.group_number s, generate_series(1, 2)});
is_copied('equal rows');
like(rows('postgres', 'group_number'), qr/^3\|.*unused/m, 'there are such');
$sql->('SELECT fairq.maintain()');
unlike(rows('postgres', 'group_number'), qr/unused|^[^1]/m, 'they are deleted');
is_copied('maintained');

# On the subscriber, too, a number that is used again belongs to only one key.
$sql->(
	q{SELECT fairq.purge('q'); SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'q' AND status = 'running';
	SELECT fairq.set_group('q', 'a', weight => 0);
	DELETE FROM fairq.group_setting;
	SELECT fairq.maintain('q');
	SELECT fairq.enqueue('q', 'eve')});
is( $sql->(
		q{SELECT group_key, group_no FROM fairq.groups WHERE queue = 'q'}),
	'eve|0',
	'a number is assigned again');
is_copied('a new group');
is($copy->(q{SELECT fairq_internal.check_tables(queue_id) FROM fairq.queue}),
	'', 'the copy is sound');

$sql->(q{SELECT fairq.drop_queue(queue, force => true) FROM fairq.queues});
is(rows('postgres', 'group_number'), '', 'queues are dropped');
is_copied('dropped');

$copy->('DROP SUBSCRIPTION s');
done_testing();
