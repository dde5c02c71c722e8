-- One unfinished task per queue and key: which task has a key, and when the
-- key is free again.
--
-- Fails if a completed task keeps its key (fairq_finish() in outcome.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/tasks.psql

-- Enqueues a task with a key. Returns "new", or the payload of the task that
-- has the key.
CREATE FUNCTION pg_temp.put(queue text, payload text, dedup_key text, run_at timestamptz DEFAULT NULL)
	RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	task bigint := fairq.enqueue(queue, left(payload, 1), to_jsonb(payload), run_at => run_at, dedup_key => dedup_key);
BEGIN
	RETURN CASE WHEN t.payload = to_jsonb(put.payload) THEN 'new' ELSE t.payload #>> '{}' END
	FROM fairq.tasks t WHERE id = task;
END $$;

-- Enqueues a batch of tasks with keys. Returns "new", or the payload of the task that has
-- the key, for each task in the order of the input.
CREATE FUNCTION pg_temp.put_batch(queue text, payloads text[], dedup_keys text[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	ids bigint[] := array(SELECT fairq.enqueue_batch(queue, (SELECT array_agg(left(p, 1)) FROM unnest(payloads) p),
		(SELECT array_agg(to_jsonb(p)) FROM unnest(payloads) p), dedup_keys => dedup_keys));
BEGIN
	RETURN (SELECT string_agg(t.payload #>> '{}', ' ' ORDER BY n)
	FROM unnest(ids) WITH ORDINALITY i (id, n) JOIN fairq.tasks t USING (id));
END $$;

CREATE FUNCTION pg_temp.tasks(queue text) RETURNS TABLE (task text, status text, attempt int)
LANGUAGE sql AS $$
	SELECT payload #>> '{}', status, attempt FROM fairq.tasks t WHERE t.queue = $1 ORDER BY id
$$;

-- The keys in use, and their tasks.
CREATE FUNCTION pg_temp.keys(queue text) RETURNS TABLE (key text, task text)
LANGUAGE sql AS $$
	SELECT d.dedup_key, t.payload #>> '{}'
	FROM fairq.dedup d JOIN fairq.queue q USING (queue_id) LEFT JOIN fairq.task t USING (id)
	WHERE q.name = $1 ORDER BY 1
$$;

--
-- A second enqueue returns the first task's id and changes nothing
--

SELECT fairq.create_queue('dedup');
SELECT pg_temp.put('dedup', 'a1', 'x'), pg_temp.put('dedup', 'a2', 'x'), pg_temp.put('dedup', 'a3', 'y'),
	pg_temp.put('dedup', 'a4', NULL), pg_temp.put('dedup', 'a5', NULL);
SELECT * FROM pg_temp.tasks('dedup');
SELECT * FROM pg_temp.keys('dedup');
SELECT enqueued FROM fairq.queues WHERE queue = 'dedup';
-- the other arguments do not matter: group, payload, priority, time, attempts
SELECT fairq.enqueue('dedup', 'other', '"other"', 9, 'infinity', 'x', 1) = pg_temp.id('dedup', 'a1') AS the_same;
SELECT group_key, payload, priority, status, run_at, max_attempts FROM fairq.tasks WHERE queue = 'dedup' AND payload = '"a1"';
SELECT group_key FROM fairq.groups WHERE queue = 'dedup' AND group_key = 'other';
-- invalid arguments still fail
SELECT fairq.enqueue('dedup', NULL, dedup_key => 'x');
SELECT fairq.enqueue('dedup', 'a', priority => 10, dedup_key => 'x');
SELECT fairq.enqueue('dedup', 'a', dedup_key => 'x', max_attempts => 0);
SELECT fairq.enqueue('dedup_none', 'a', dedup_key => 'x');
-- keys of different queues are different
SELECT fairq.create_queue('dedup_2');
SELECT pg_temp.put('dedup_2', 'a1', 'x'), pg_temp.put('dedup_2', 'a2', 'x');
SELECT fairq.drop_queue('dedup_2', true);
SELECT pg_temp.put('dedup', 'a6', 'x');
SELECT * FROM pg_temp.keys('dedup');
-- keys are compared as bytes
SELECT pg_temp.put('dedup', 'b1', 'X'), pg_temp.put('dedup', 'b2', 'x '), pg_temp.put('dedup', 'b3', ' x'), pg_temp.put('dedup', 'b4', U&'\00E9'),
	pg_temp.put('dedup', 'b5', U&'e\0301'), pg_temp.put('dedup', 'b6', repeat('x', 1024)), pg_temp.put('dedup', 'b7', repeat('x', 1023)),
	pg_temp.put('dedup', 'b8', '0'), pg_temp.put('dedup', 'b9', U&'\00E9'), pg_temp.put('dedup', 'b10', repeat('x', 1024));
SELECT fairq.enqueue('dedup', 'a', dedup_key => '');
SELECT fairq.enqueue('dedup', 'a', dedup_key => repeat('x', 1025));
SELECT fairq.enqueue('dedup', 'a', dedup_key => repeat(U&'\00E9', 513));
SELECT pg_temp.put('dedup', 'b11', repeat(U&'\00E9', 512)), pg_temp.put('dedup', 'b12', repeat(U&'\00E9', 512));
SELECT fairq.enqueue('dedup', 'a', dedup_key => repeat('x', 1000000));
SELECT * FROM fairq.check_queue('dedup');
SELECT count(*) FROM fairq.dedup d JOIN fairq.queue q USING (queue_id) WHERE name = 'dedup';
SELECT fairq.purge('dedup');
SELECT * FROM pg_temp.keys('dedup');

--
-- A key is in use as long as its task is unfinished, in each of the task's
-- states
--

SELECT pg_temp.put('dedup', 'a1', 'queued'), pg_temp.put('dedup', 'b1', 'later', 'infinity');
SELECT pg_temp.put('dedup', 'x1', 'queued'), pg_temp.put('dedup', 'x2', 'later');
SELECT pg_temp.pop('dedup');
SELECT pg_temp.put('dedup', 'x3', 'queued');
SELECT fairq.extend(pg_temp.id('dedup', 'a1'), 1, '1 microsecond') IS NOT NULL AS extended;
SELECT pg_temp.put('dedup', 'x4', 'queued');
SELECT fairq.expire_leases('dedup');
SELECT pg_temp.put('dedup', 'x5', 'queued');
SELECT pg_temp.pop('dedup');
SELECT fairq.fail(pg_temp.id('dedup', 'a1'), 2, 'x', '0');
SELECT pg_temp.put('dedup', 'x6', 'queued');
SELECT pg_temp.pop('dedup');
SELECT fairq.fail(pg_temp.id('dedup', 'a1'), 3, 'x', '1 millisecond');
SELECT pg_temp.put('dedup', 'x7', 'queued');
SELECT pg_sleep(0.005);
SELECT pg_temp.put('dedup', 'x8', 'queued');
SELECT pg_temp.pop('dedup');
SELECT fairq.release(pg_temp.id('dedup', 'a1'), 4);
SELECT pg_temp.put('dedup', 'x9', 'queued');
SELECT pg_temp.pop('dedup');
SELECT fairq.cancel(pg_temp.id('dedup', 'a1'));
SELECT pg_temp.put('dedup', 'x10', 'queued');
SELECT * FROM pg_temp.tasks('dedup');
SELECT * FROM fairq.check_queue('dedup');
SELECT fairq.release(pg_temp.id('dedup', 'a1'), 5), fairq.cancel(pg_temp.id('dedup', 'b1'));
SELECT * FROM pg_temp.keys('dedup');
-- a task has its key while it waits for a slot
SELECT fairq.set_group('dedup', 'a', 1);
SELECT pg_temp.put('dedup', 'a1', 'k1'), pg_temp.put('dedup', 'a2', 'k2'), pg_temp.put('dedup', 'a3', 'k3');
SELECT pg_temp.put('dedup', 'x1', 'k1'), pg_temp.put('dedup', 'x2', 'k2'), pg_temp.put('dedup', 'x3', 'k3');
SELECT pg_temp.pop('dedup');
SELECT pg_temp.put('dedup', 'x1', 'k1'), pg_temp.put('dedup', 'x2', 'k2'), pg_temp.put('dedup', 'x3', 'k3');
SELECT fairq.complete(pg_temp.id('dedup', 'a1'), 1);
SELECT payload FROM fairq.take('dedup');
SELECT * FROM pg_temp.keys('dedup');
SELECT fairq.set_group('dedup', 'a', 0);
SELECT * FROM fairq.check_queue('dedup');
SELECT fairq.purge('dedup');

--
-- A key is free once its task is finished, however the task has ended
--

-- the task ends by complete, complete_batch, take, fail, cancel, purge or
-- expiry
SELECT fairq.alter_queue('dedup', max_attempts => 1);
SELECT pg_temp.put('dedup', p, p) FROM unnest('{a1,a2,a3,a4,a5,a6,a7}'::text[]) p;
SELECT payload FROM fairq.take('dedup');
SELECT pg_temp.pop('dedup', 4);
SELECT fairq.complete(pg_temp.id('dedup', 'a2'), 1), cardinality(fairq.complete_batch(ARRAY[pg_temp.id('dedup', 'a3')])),
	fairq.fail(pg_temp.id('dedup', 'a4'), 1, 'x'), fairq.cancel(pg_temp.id('dedup', 'a6'));
SELECT * FROM pg_temp.keys('dedup');
SELECT fairq.purge('dedup');
SELECT fairq.extend(pg_temp.id('dedup', 'a5'), 1, '1 microsecond') IS NOT NULL AS extended;
SELECT * FROM pg_temp.keys('dedup');
SELECT pg_temp.pop('dedup');
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM pg_temp.tasks('dedup');
SELECT pg_temp.put('dedup', 'b' || p, p) FROM unnest('{a1,a2,a3,a4,a5,a6,a7}'::text[]) p;
SELECT * FROM fairq.check_queue('dedup');
-- fail() frees the key of a task that has attempts left only with dead => true
SELECT fairq.purge('dedup');
SELECT fairq.alter_queue('dedup', max_attempts => 20);
SELECT pg_temp.put('dedup', p, p) FROM unnest('{a1,a2,a3}'::text[]) p;
SELECT pg_temp.pop('dedup', lease => '1 microsecond');
SELECT fairq.fail(pg_temp.id('dedup', 'a1'), 1, 'x', '1 hour'), fairq.fail(pg_temp.id('dedup', 'a2'), 1, 'x', dead => true),
	fairq.cancel(pg_temp.id('dedup', 'a3'));
SELECT * FROM pg_temp.keys('dedup');
-- the end of a cancelled task frees its key
SELECT fairq.expire_leases('dedup');
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM fairq.check_queue('dedup');
-- ended tasks in the archive do not keep their keys either
SELECT fairq.alter_queue('dedup', retain => '1 hour');
SELECT fairq.purge('dedup');
SELECT pg_temp.put('dedup', 'c1', 'c'), pg_temp.pop('dedup'), fairq.complete(pg_temp.id('dedup', 'c1'), 1, '1'),
	pg_temp.put('dedup', 'c2', 'c'), pg_temp.put('dedup', 'c3', 'c');
SELECT fairq.cancel(pg_temp.id('dedup', 'c2')), pg_temp.put('dedup', 'c4', 'c');
SELECT * FROM pg_temp.tasks('dedup') WHERE task LIKE 'c%';
SELECT dedup_key, payload FROM fairq.archive a JOIN fairq.queue q USING (queue_id) WHERE name = 'dedup' AND group_key = 'c' ORDER BY id;
-- drop_queue frees all keys of the queue
SELECT fairq.drop_queue('dedup', true);
SELECT count(*) FROM fairq.dedup;
SELECT fairq.create_queue('dedup');
SELECT pg_temp.put('dedup', 'a1', 'c');
SELECT fairq.purge('dedup');

--
-- Batches
--

-- Equal keys in a batch give equal ids. NULL is not a key. A key in use gives
-- its task's id.
SELECT pg_temp.put('dedup', 'a0', 'k0');
SELECT pg_temp.put_batch('dedup', '{a1,b2,a3,b4,a5,b6,a7,b8}', '{k2,k1,NULL,k2,k0,NULL,k1,k2}');
SELECT * FROM pg_temp.tasks('dedup');
SELECT * FROM pg_temp.keys('dedup');
SELECT enqueued FROM fairq.queues WHERE queue = 'dedup';
SELECT pg_temp.put_batch('dedup', '{c1,c2,c3}', '{k1,k2,k0}');
SELECT pg_temp.put_batch('dedup', '{c1,c2,c3}', '{NULL,NULL,NULL}');
SELECT pg_temp.put_batch('dedup', '{c4,c5}', NULL);
SELECT count(*), count(DISTINCT id) FROM fairq.enqueue_batch('dedup', array_fill('d'::text, ARRAY[1000]), array_fill('1'::jsonb, ARRAY[1000]),
	dedup_keys => (SELECT array_agg('many ' || i % 300 ORDER BY i) FROM generate_series(1, 1000) i)) id;
SELECT * FROM fairq.check_queue('dedup');
SELECT fairq.purge('dedup', 'd');
-- no group is created for a task that is not added
SELECT pg_temp.put_batch('dedup', '{y1,z1}', '{k1,k3}');
SELECT group_key FROM fairq.groups WHERE queue = 'dedup' ORDER BY group_no;
-- all keys are distinct, also if one is the start of another
SELECT pg_temp.put_batch('dedup', '{e1,e2,e3,e4,e5,e6}', '{abc,a,ab,abcd,b,a}');
SELECT pg_temp.put_batch('dedup', '{f1,f2,f3,f4,f5}', '{a,b,ab,abc,abcd}');
-- a call adds one of two scheduled tasks with the same key, in another lane
SELECT count(DISTINCT id) FROM fairq.enqueue_batch('dedup', '{g,g}', '{"\"g1\"","\"g2\""}', 3, 'infinity', '{g,g}') id;
SELECT payload, priority, status FROM fairq.tasks WHERE queue = 'dedup' AND group_key = 'g';
SELECT * FROM fairq.check_queue('dedup');
-- a call that fails adds no task
SELECT fairq.enqueue_batch('dedup', '{h,h}', '{1,2}', dedup_keys => ARRAY['h', repeat('x', 1025)]);
SELECT fairq.enqueue_batch('dedup', '{h,h}', '{1,2}', dedup_keys => ARRAY['h', '']);
SELECT fairq.enqueue_batch('dedup', ARRAY['h', repeat('x', 1025)], '{1,2}', dedup_keys => '{h1,h2}');
SELECT fairq.enqueue_batch('dedup', '{h,h}', '{1,2}', dedup_keys => '{h}');
SELECT fairq.enqueue_batch('dedup', '{h}', '{1}', dedup_keys => '{h,i}');
SELECT fairq.enqueue_batch('dedup', '{h}', '{1}', dedup_keys => '{}');
SELECT fairq.enqueue_batch('dedup', '{h}', '{1}', dedup_keys => '{{h}}');
SELECT fairq.enqueue_batch('dedup', '{NULL}', '{1}', dedup_keys => '{h}');
SELECT fairq.enqueue_batch('dedup', '{h}', '{NULL}', dedup_keys => '{h}');
SELECT count(*) FROM fairq.enqueue_batch('dedup', '{}', '{}', dedup_keys => '{}');
SELECT key FROM pg_temp.keys('dedup') WHERE key LIKE 'h%';
SELECT group_key FROM fairq.groups WHERE queue = 'dedup' AND group_key LIKE 'h%';
SELECT * FROM fairq.check_queue('dedup');
SELECT fairq.purge('dedup');

--
-- Transactions
--

-- a task that the transaction enqueues has its key
BEGIN;
SELECT pg_temp.put('dedup', 'a1', 'k'), pg_temp.put('dedup', 'a2', 'k');
SELECT pg_temp.put_batch('dedup', '{a3,a4}', '{k,l}');
SELECT * FROM fairq.check_queue('dedup');
COMMIT;
SELECT * FROM pg_temp.tasks('dedup');
-- a task that the transaction finishes has released its key
BEGIN;
SELECT pg_temp.pop('dedup', 1);
SELECT fairq.complete(pg_temp.id('dedup', 'a1'), 1);
SELECT pg_temp.put('dedup', 'a5', 'k'), pg_temp.put('dedup', 'a6', 'k');
SELECT fairq.cancel(pg_temp.id('dedup', 'a5'));
SELECT pg_temp.put('dedup', 'a7', 'k');
SELECT fairq.purge('dedup');
SELECT pg_temp.put('dedup', 'a8', 'k'), pg_temp.put('dedup', 'a9', 'l');
SELECT payload FROM fairq.take('dedup');
SELECT pg_temp.put('dedup', 'a10', 'k');
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM fairq.check_queue('dedup');
ROLLBACK;
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM fairq.check_queue('dedup');
-- a part of the transaction is rolled back
BEGIN;
SAVEPOINT s;
SELECT fairq.cancel(pg_temp.id('dedup', 'a1'));
SELECT pg_temp.put('dedup', 'b1', 'k');
ROLLBACK TO s;
SELECT pg_temp.put('dedup', 'b2', 'k'), pg_temp.put('dedup', 'b3', 'm');
SAVEPOINT s;
SELECT pg_temp.put('dedup', 'b4', 'n'), pg_temp.put('dedup', 'b5', 'm');
ROLLBACK TO s;
SELECT pg_temp.put('dedup', 'b6', 'n');
COMMIT;
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM fairq.check_queue('dedup');
SELECT fairq.purge('dedup');
-- the snapshot is older than the key, at each isolation level
SELECT pg_temp.put('dedup', 'a1', 'k');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT pg_temp.put('dedup', 'a2', 'k'), fairq.cancel(pg_temp.id('dedup', 'a1')), pg_temp.put('dedup', 'a3', 'k');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pg_temp.put('dedup', 'a4', 'k'), pg_temp.put('dedup', 'a5', 'l');
SELECT count(fairq.complete(id, attempt)) FROM fairq.pop('dedup', 100);
SELECT pg_temp.put('dedup', 'a6', 'k');
COMMIT;
SELECT * FROM pg_temp.keys('dedup');
-- a failed task gives up its key, and a redrive takes the key again
SELECT pg_temp.pop('dedup');
SELECT fairq.fail(pg_temp.id('dedup', 'a6'), 1, 'x', dead => true);
SELECT * FROM pg_temp.keys('dedup');
SELECT fairq.redrive('dedup');
SELECT * FROM pg_temp.keys('dedup');
SELECT pg_temp.put('dedup', 'a7', 'k');
SELECT pg_temp.pop('dedup');
SELECT fairq.fail(pg_temp.id('dedup', 'a6'), 2, 'x', dead => true);
SELECT pg_temp.put('dedup', 'a7', 'k');
-- the key belongs to another task by now, so the failed task stays in the
-- archive
SELECT fairq.redrive('dedup');
SELECT * FROM pg_temp.tasks('dedup');
SELECT fairq.cancel(pg_temp.id('dedup', 'a7'));
SELECT fairq.redrive('dedup');
SELECT * FROM pg_temp.tasks('dedup');
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM fairq.check_queue('dedup');
BEGIN READ ONLY;
SELECT fairq.enqueue('dedup', 'a', dedup_key => 'k');
COMMIT;
BEGIN;
SELECT pg_temp.put('dedup', 'a8', 'two');
PREPARE TRANSACTION 'fairq';
SELECT * FROM pg_temp.keys('dedup');

-- An exception undoes the block that handles it, but not the statements before
-- that block.
DO $$
BEGIN
	PERFORM fairq.enqueue('dedup', 'a', '"p1"', dedup_key => 'p');
	BEGIN
		PERFORM fairq.enqueue('dedup', 'a', '"p2"', dedup_key => 'q');
		PERFORM fairq.cancel(id) FROM fairq.tasks WHERE queue = 'dedup' AND payload = '"p1"';
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM fairq.enqueue('dedup', 'a', '"p3"', dedup_key => 'p');
		PERFORM fairq.enqueue('dedup', 'a', '"p4"', dedup_key => 'q');
	END;
END $$;
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM fairq.check_queue('dedup');

-- maintain() removes the keys of tasks that SQL has deleted.
DELETE FROM fairq.task WHERE id = pg_temp.id('dedup', 'p1');
SELECT regexp_replace(c, '\d+', 'N', 'g') FROM fairq.check_queue('dedup') c;
SELECT fairq.maintain('dedup');
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM fairq.check_queue('dedup');

-- If an enqueue uses such a key before maintain() runs, the enqueue removes
-- the key's old row.
SELECT pg_temp.put('dedup', 'g1', 'g'), pg_temp.put('dedup', 'h1', 'h', 'infinity'), pg_temp.put('dedup', 'i1', 'i');
DELETE FROM fairq.task WHERE dedup_key IN ('g', 'h', 'i');
BEGIN;
SELECT pg_temp.put('dedup', 'g2', 'g');
SELECT pg_temp.put('dedup', 'g3', 'g');
ROLLBACK;
SELECT pg_temp.put('dedup', 'g4', 'g');
SELECT pg_temp.put('dedup', 'g5', 'g');
SELECT pg_temp.put_batch('dedup', '{i2,g6,h2,i3,h3,j1}', '{i,g,h,i,h,NULL}');
SELECT * FROM pg_temp.keys('dedup') WHERE key BETWEEN 'g' AND 'i';
SELECT * FROM fairq.check_queue('dedup');
-- one transaction deletes tasks by SQL and takes over their keys
BEGIN;
SELECT pg_temp.put('dedup', 'g7', 'g'), pg_temp.put('dedup', 'm1', 'm');
DELETE FROM fairq.task WHERE dedup_key IN ('g', 'm');
SELECT pg_temp.put('dedup', 'g8', 'g'), pg_temp.put('dedup', 'm2', 'm');
SAVEPOINT a;
DELETE FROM fairq.task WHERE dedup_key IN ('g', 'm');
SELECT pg_temp.put('dedup', 'g9', 'g'), pg_temp.put('dedup', 'm3', 'm');
ROLLBACK TO a;
SELECT pg_temp.put('dedup', 'g10', 'g'), pg_temp.put('dedup', 'm4', 'm');
COMMIT;
SELECT * FROM pg_temp.keys('dedup') WHERE key IN ('g', 'm');
SELECT * FROM fairq.check_queue('dedup');
-- a key's row has the id of a task without the key, or of a task in another
-- queue
UPDATE fairq.dedup SET id = pg_temp.id('dedup', 'j1') WHERE dedup_key = 'g';
UPDATE fairq.task SET dedup_key = NULL WHERE dedup_key = 'g';
SELECT pg_temp.put('dedup', 'g11', 'g');
SELECT fairq.create_queue('dedup_there');
SELECT pg_temp.put('dedup_there', 'g12', 'g');
INSERT INTO fairq.dedup SELECT q.queue_id, 'g13', pg_temp.id('dedup_there', 'g12') FROM fairq.queue q WHERE name = 'dedup';
UPDATE fairq.task SET dedup_key = 'g13' WHERE id = pg_temp.id('dedup_there', 'g12');
SELECT pg_temp.put('dedup', 'g13', 'g13');
UPDATE fairq.task SET dedup_key = 'g' WHERE id = pg_temp.id('dedup_there', 'g12');
SELECT * FROM fairq.check_queue('dedup');
SELECT * FROM fairq.check_queue('dedup_there');
-- a failed task is redriven even if a stale row of its key has the task's own
-- id
SELECT fairq.purge('dedup');
SELECT pg_temp.put('dedup', 'n1', 'n'), pg_temp.put('dedup', 'o1', 'o');
SELECT count(fairq.fail(id, dead => true)) FROM fairq.pop('dedup', 2);
SELECT pg_temp.put('dedup', 'n2', 'n');
INSERT INTO fairq.dedup SELECT queue_id, dedup_key, id FROM fairq.archive WHERE dedup_key = 'o';
SELECT fairq.redrive('dedup', 'n');
DELETE FROM fairq.task WHERE id = pg_temp.id('dedup', 'n2');
SELECT fairq.redrive('dedup', 'n'), fairq.redrive('dedup', 'o');
SELECT * FROM pg_temp.keys('dedup');
SELECT * FROM fairq.check_queue('dedup');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'dedup%';
SELECT count(*) FROM fairq.dedup;
