-- Keys that are free once their task starts, and keys that are held for a time
-- after the task's start or end.
--
-- Fails if a retried task still has its key (fairq_task_read() in
-- store_scan.c). Fails if a key is not held (fairq_dedup_free() in dedup.c).
-- Fails if an invalid row counts as the owner of a key (is_void()).
\a \pset footer off
\set VERBOSITY sqlstate

-- Enqueues a task. Returns "new", or the payload of the task that has the key.
CREATE FUNCTION pg_temp.put(payload text, key text, until text DEFAULT 'finished', held interval DEFAULT NULL)
	RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	task record := fairq.enqueue_or_find('until', left($1, 1), to_jsonb($1), dedup_key => $2, dedup_until => $3, dedup_for => $4);
BEGIN
	RETURN CASE WHEN task.added THEN 'new' ELSE coalesce((SELECT t.payload #>> '{}' FROM fairq.tasks t WHERE id = task.id), 'gone') END;
END $$;
CREATE FUNCTION pg_temp.pop(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(format('%s/%s', payload #>> '{}', attempt), ' ') FROM fairq.pop('until', n) $$;
CREATE FUNCTION pg_temp.take(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(format('%s/%s', payload #>> '{}', attempt), ' ') FROM fairq.take('until', n) $$;
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$ SELECT id FROM fairq.tasks WHERE queue = 'until' AND payload = to_jsonb($1) $$;
CREATE FUNCTION pg_temp.found(key text) RETURNS text
LANGUAGE sql AS $$ SELECT payload #>> '{}' FROM fairq.tasks WHERE id = fairq.find('until', $1) $$;
CREATE VIEW pg_temp.keys AS
	SELECT d.dedup_key, t.payload #>> '{}' AS task, free_at IS NULL AS had, round(extract(epoch FROM free_at - clock_timestamp()) / 60) AS minutes
	FROM fairq.dedup d JOIN fairq.queue q USING (queue_id) LEFT JOIN fairq.tasks t USING (id)
	WHERE q.name = 'until' ORDER BY 1;
CREATE VIEW pg_temp.stand AS
	SELECT payload #>> '{}' AS task, status, attempt FROM fairq.tasks WHERE queue = 'until' ORDER BY id;

SELECT fairq.create_queue('until', retain => '1 hour');

--
-- A key is free once its task starts, so an enqueue while the task runs is not
-- lost
--

SELECT pg_temp.put('a1', 'a', 'started'), pg_temp.put('a2', 'a', 'started'), pg_temp.found('a');
SELECT pg_temp.pop(), pg_temp.found('a');
SELECT * FROM pg_temp.keys;
SELECT pg_temp.put('a3', 'a', 'started'), pg_temp.put('a4', 'a', 'started'), pg_temp.found('a');
SELECT * FROM fairq.check_queue('until');
-- a retry, a release and an expiry of the first task do not affect the key
SELECT fairq.fail(pg_temp.id('a1'), retry_in => '0'), pg_temp.put('a5', 'a');
SELECT * FROM pg_temp.keys;
SELECT * FROM fairq.check_queue('until');
SELECT pg_temp.pop(1), pg_temp.put('a5', 'a'), fairq.release(pg_temp.id('a1'));
SELECT pg_temp.put('a5', 'a'), fairq.purge('until');
SELECT * FROM pg_temp.keys;
-- redrive returns a failed task without its key
SELECT pg_temp.put('b1', 'b', 'started'), pg_temp.pop(), fairq.fail(pg_temp.id('b1'), dead => true);
SELECT pg_temp.put('b2', 'b', 'started');
SELECT fairq.redrive('until');
SELECT * FROM pg_temp.stand WHERE task LIKE 'b%';
SELECT * FROM pg_temp.keys;
SELECT * FROM fairq.check_queue('until');
SELECT pg_temp.pop(), pg_temp.put('b3', 'b', 'started');
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'until' AND status = 'running';
SELECT * FROM pg_temp.keys;
-- a key is free at once if its task is cancelled, purged or taken
SELECT fairq.cancel(pg_temp.id('b3')), pg_temp.put('b4', 'b', 'started'), pg_temp.take(), pg_temp.put('b5', 'b', 'started'), fairq.purge('until'), pg_temp.put('b6', 'b', 'started'), fairq.purge('until');
SELECT * FROM pg_temp.keys;
-- a rolled back pop gives the key back to the task; in the popping transaction
-- the key is free at once
SELECT pg_temp.put('c1', 'c', 'started');
BEGIN;
SELECT pg_temp.pop(), pg_temp.put('c2', 'c', 'started'), pg_temp.found('c');
ROLLBACK;
SELECT pg_temp.put('c3', 'c', 'started'), pg_temp.found('c');
BEGIN;
SAVEPOINT s;
SELECT pg_temp.pop();
ROLLBACK TO s;
SELECT pg_temp.put('c4', 'c', 'started'), pg_temp.pop(), pg_temp.put('c5', 'c', 'started'), pg_temp.pop(), pg_temp.put('c6', 'c', 'started');
COMMIT;
SELECT * FROM pg_temp.keys;
SELECT * FROM fairq.check_queue('until');
-- replace acts on the task that has the key
SELECT fairq.enqueue('until', 'c', '"c7"', dedup_key => 'c', dedup_until => 'started', replace => true) = pg_temp.id('c6') AS the_same;
SELECT pg_temp.pop();
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'until' AND status = 'running';
-- dedup_until and dedup_for have no effect without a key
SELECT pg_temp.put('d1', NULL, 'started', '1 hour'), pg_temp.put('d2', NULL, 'started', '1 hour'), pg_temp.pop();
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'until' AND status = 'running';

--
-- A key can be held for a time
--

-- a key is held after its task has finished, in whatever way, if the task was started
SELECT pg_temp.put(p, p, 'finished', '1 hour') FROM unnest('{e1,e2,e3,e4,e5,e6,e7}'::text[]) p;
SELECT pg_temp.take(1), pg_temp.pop(4);
SELECT * FROM pg_temp.keys;
SELECT fairq.complete(pg_temp.id('e2')), fairq.fail(pg_temp.id('e3'), dead => true), fairq.cancel(pg_temp.id('e4')), fairq.cancel(pg_temp.id('e6'));
SELECT fairq.fail(pg_temp.id('e4')), fairq.release(pg_temp.id('e5')), fairq.purge('until');
SELECT * FROM pg_temp.keys;
SELECT p, pg_temp.put(p || ' again', p), pg_temp.found(p) FROM unnest('{e1,e2,e3,e4,e5,e6,e7}'::text[]) p;
SELECT * FROM fairq.check_queue('until');
-- enqueue returns the id of the earlier task, also if that task was not
-- retained
SELECT fairq.enqueue('until', 'e', dedup_key => 'e2', replace => true) = pg_temp.id('e2') AS the_same;
SELECT id = pg_temp.id('e2') AS the_same FROM fairq.enqueue_batch('until', '{e,e}', '{1,2}', dedup_keys => '{e2,e2}') id;
-- redrive returns the task's key, and the key is held again
SELECT fairq.redrive('until'), pg_temp.found('e3');
SELECT * FROM pg_temp.keys WHERE dedup_key = 'e3';
SELECT fairq.purge('until', 'e');
SELECT * FROM pg_temp.keys;
-- maintain removes keys whose time is over, and drop_queue removes all keys
SELECT fairq.maintain('until');
SELECT count(*) FROM pg_temp.keys;
UPDATE fairq.dedup d SET free_at = clock_timestamp() - interval '1 microsecond' FROM fairq.queue q
	WHERE q.queue_id = d.queue_id AND name = 'until' AND dedup_key IN ('e2', 'e4');
SELECT pg_temp.put('e8', 'e2'), pg_temp.found('e2'), pg_temp.found('e4');
SELECT fairq.maintain('until');
SELECT * FROM pg_temp.keys;
SELECT * FROM fairq.check_queue('until');
-- the key becomes free as time passes, without a call
SELECT pg_temp.put('f1', 'f', 'finished', '300 ms'), pg_temp.take(), pg_temp.put('f2', 'f');
SELECT pg_sleep(0.31);
SELECT pg_temp.put('f3', 'f'), pg_temp.take();
-- the key is held for an hour after the start, so at most one of its tasks begins per hour
SELECT pg_temp.put('g1', 'g', 'started', '1 hour'), pg_temp.pop(), pg_temp.put('g2', 'g', 'started', '1 hour'), pg_temp.found('g');
SELECT * FROM pg_temp.keys WHERE dedup_key = 'g';
SELECT fairq.fail(pg_temp.id('g1'), retry_in => '0'), pg_temp.pop(), fairq.complete(pg_temp.id('g1'));
SELECT pg_temp.put('g3', 'g', 'started', '1 hour');
SELECT * FROM pg_temp.keys WHERE dedup_key = 'g';
SELECT * FROM fairq.check_queue('until');
-- a rolled back end holds no key
SELECT pg_temp.put('h1', 'h', 'started', '1 hour');
BEGIN;
SELECT pg_temp.pop(), pg_temp.put('h2', 'h');
ROLLBACK;
SELECT pg_temp.found('h'), pg_temp.put('h3', 'h'), fairq.cancel(pg_temp.id('h1')), pg_temp.put('h4', 'h');
-- dedup_for => 0 does not hold the key; a month is a calendar month
SELECT pg_temp.put('i1', 'i', 'finished', '0'), pg_temp.put('i2', 'j', 'finished', '1 month'), pg_temp.take();
SELECT dedup_key, free_at > now() + interval '27 days' AS later FROM fairq.dedup d JOIN fairq.queue q USING (queue_id)
	WHERE name = 'until' AND dedup_key IN ('i', 'j');
-- if SQL deletes all tasks, held keys stay held
SELECT pg_temp.put('k1', 'k');
DELETE FROM fairq.task t USING fairq.queue q WHERE q.queue_id = t.queue_id AND name = 'until';
SELECT pg_temp.put('k2', 'k'), pg_temp.put('k3', 'j');

--
-- Bad input
--

\set VERBOSITY default
SELECT fairq.enqueue('until', 'a', dedup_key => 'x', dedup_until => 'begun');
\set VERBOSITY sqlstate
SELECT fairq.enqueue('until', 'a', dedup_until => '');
SELECT fairq.enqueue('until', 'a', dedup_key => 'x', dedup_until => 'Started');
SELECT fairq.enqueue('until', 'a', dedup_key => 'x', dedup_for => '-1 microsecond');
SELECT fairq.enqueue('until', 'a', dedup_key => 'x', dedup_for => '101 years') = fairq.find('until', 'x') AS added;
SELECT fairq.enqueue('until', 'a', dedup_key => 'x', dedup_until => NULL) = fairq.find('until', 'x') AS added;
SELECT fairq.drop_queue('until', true);
SELECT count(*) FROM fairq.dedup;
