# maintain() visits more queues than the server has space for locks. It keeps
# only the locks of queues that it has changed.
#
# Fails if maintain() keeps the lock of every queue (maintain_each() in
# maintain.c), or releases the lock of a queue in which it has written.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib $FindBin::Bin;
use Load;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $queues = 3000;
my $node = PostgreSQL::Test::Cluster->new('many_queues');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
max_connections = 10
max_locks_per_transaction = 10
max_worker_processes = 1
max_wal_senders = 0
autovacuum = off
fsync = off
fairq.shared_memory = 192MB
CONF
$node->start;
# fairq gets its own memory at its first use, which is before locks take all of
# the memory.
$node->safe_psql('postgres', 'CREATE EXTENSION fairq');
$node->restart;
$node->safe_psql('postgres', q{SELECT fairq.create_queue('q')});
$node->restart;
$node->safe_psql('postgres', q{SELECT fairq.purge('q')});
$node->safe_psql('postgres', qq{
	INSERT INTO fairq.queue (name, block_length, lease, max_attempts, notify, backoff)
	SELECT 'q' || n, 100, '1 hour', 20, false, '1 s' FROM generate_series(1, $queues) n});

# There must be more queues than the lock table has space for, or the test
# shows nothing.
my ($status, undef, $error) = $node->psql('postgres', qq{
	SELECT count(fairq.purge('q' || n)) FROM generate_series(1, $queues) n});
isnt($status, 0, 'that many queues cannot be locked');
like($error, qr/out of shared memory/, 'the lock table has no room for them');

$node->safe_psql('postgres', q{
	SELECT fairq.enqueue('q7', g, dedup_key => g) FROM unnest('{a,b,c}'::text[]) g;
	SELECT fairq.purge('q7', 'a');
	SELECT fairq.enqueue('q8', 'a');
	SELECT fairq.pop('q8', lease => '1 microsecond');
	DELETE FROM fairq.task WHERE dedup_key = 'b'});
is($node->psql('postgres', 'SELECT fairq.maintain()'), 0,
	'maintain has enough memory');
is( $node->safe_psql('postgres', q{
		SELECT string_agg(group_key, ' ' ORDER BY group_key) FROM fairq.groups;
		SELECT string_agg(dedup_key, ' ') FROM fairq.dedup;
		SELECT string_agg(status, ' ') FROM fairq.tasks}),
	"a c\nc\nqueued queued", 'and has done all');
is($node->safe_psql('postgres', q{SELECT fairq.maintain()}),
	'', 'it does so again');

# maintain() runs in a transaction block, so that the query after it shows the
# locks.
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM fairq.pop('q8', lease => '1 microsecond');
		BEGIN;
		SELECT fairq.maintain();
		SELECT string_agg(name || ' ' || mode, ', ') FROM pg_locks
		JOIN fairq.queue ON objid = queue_id
		WHERE locktype = 'object' AND classid = 'fairq.queue'::regclass;
		ROLLBACK}),
	"1\n\nq8 AccessShareLock", 'the lock of the queue that was changed is kept');

$node->stop;
done_testing();
