# Calls in a session without a client. The apply worker of logical replication
# fires a trigger, which enqueues, pops and completes.
#
# Fails if a task whose claim is undone is not ready again (fairq_claim()).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use Test::More;

my $node = new_server('apply', allows_streaming => 'logical');
my $orders = 'CREATE TABLE orders (id int PRIMARY KEY, customer text);';

$node->safe_psql('postgres', "$orders CREATE PUBLICATION p FOR TABLE orders");
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql(
	'other', qq{
	$orders
	CREATE EXTENSION fairq;
	SELECT fairq.create_queue('q', concurrency => 1), fairq.create_queue('bills', retain => '1 day');
	SELECT fairq.enqueue('bills', 'x', to_jsonb(n)) FROM generate_series(1, 2) n;
	CREATE FUNCTION apply_order() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM fairq.enqueue('q', NEW.customer, to_jsonb(NEW.id), dedup_key => NEW.id::text);
		BEGIN
			PERFORM fairq.take('q', 10);
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
		END;
		PERFORM fairq.complete(id, attempt) FROM fairq.pop('bills');
		RETURN NEW;
	END \$\$;
	CREATE TRIGGER apply_order BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION apply_order();
	ALTER TABLE orders ENABLE ALWAYS TRIGGER apply_order;
});
# in one cluster, a subscription cannot create its slot on its own
$node->safe_psql('postgres',
	q{SELECT pg_create_logical_replication_slot('s', 'pgoutput')});
my $publisher = $node->connstr . ' dbname=postgres';
$node->safe_psql('other',
	"CREATE SUBSCRIPTION s CONNECTION '$publisher' PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)"
);
# the apply worker wakes a waiter
my $waiting = $node->background_psql('other');
$waiting->query_until(qr/begun/,
	"\\echo begun\nCALL fairq.wait('q', '1 minute');\n");
$node->safe_psql(
	'postgres', q{
	INSERT INTO orders VALUES (1, 'ann'), (2, 'ann'), (3, 'bob');
	BEGIN; INSERT INTO orders VALUES (4, 'eve'); ROLLBACK;
	BEGIN; SAVEPOINT s; INSERT INTO orders VALUES (5, 'eve'); ROLLBACK TO s; INSERT INTO orders VALUES (6, 'bob'); COMMIT});
like($waiting->query('SELECT 1'), qr/^t/, 'a waiter is woken');
$waiting->quit;
$node->wait_for_catchup('s');
is( $node->safe_psql(
		'other',
		q{SELECT string_agg(group_key || payload, ' ' ORDER BY id) FROM fairq.tasks WHERE queue = 'q'}),
	'ann1 ann2 bob3 bob6',
	'tasks are enqueued');
is( $node->safe_psql(
		'other', q{SELECT string_agg(group_key || payload, ' ' ORDER BY id) FROM fairq.pop('q', 10)}),
	'ann1 bob3',
	'and popped, within limits');
is( $node->safe_psql(
		'other', q{SELECT string_agg(status, ' ') FROM fairq.tasks WHERE queue = 'bills'}),
	'completed completed',
	'others are finished');
is($node->safe_psql('other', q{SELECT fairq.check_queue('q') UNION ALL SELECT fairq.check_queue('bills')}),
	'', 'the queues are sound');

$node->safe_psql('other', 'DROP SUBSCRIPTION s');
done_testing();
