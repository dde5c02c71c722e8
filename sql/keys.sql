-- enqueue_or_find() finds or adds the task of a dedup_key, and find() finds it.
--
-- Fails if enqueue_or_find() reports each task as added (enqueue.c), or if
-- find() does not check that the key's task exists (dedup.c).
\a \pset footer off
\set VERBOSITY sqlstate

-- The payload of the task that has a key.
CREATE FUNCTION pg_temp.find(dedup_key text, queue text DEFAULT 'keys') RETURNS text
LANGUAGE sql AS $$
	SELECT payload #>> '{}' FROM fairq.tasks WHERE id = fairq.find($2, $1)
$$;

-- The payload of the key's task after the call, and whether it was added.
CREATE FUNCTION pg_temp.put(payload text, dedup_key text, run_at timestamptz DEFAULT NULL)
	RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	task record := fairq.enqueue_or_find('keys', left(payload, 1), to_jsonb(payload), run_at => run_at,
		dedup_key => dedup_key);
BEGIN
	RETURN format('%s %s', t.payload #>> '{}', task.added) FROM fairq.tasks t WHERE id = task.id;
END $$;

CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$ SELECT id FROM fairq.tasks WHERE queue = 'keys' AND payload = to_jsonb($1) $$;

SELECT fairq.create_queue('keys'), fairq.create_queue('keys_2');

--
-- Was the task added?
--

SELECT pg_temp.put('a1', 'x'), pg_temp.put('a2', 'x'), pg_temp.put('a3', 'y'), pg_temp.put('a4', NULL), pg_temp.put('a5', NULL);
SELECT added, id = pg_temp.id('a1') AS the_same FROM fairq.enqueue_or_find('keys', 'other', '"other"', 9, 'infinity', 'x', 1, 2);
SELECT count(*) FROM fairq.tasks WHERE queue = 'keys';
-- the other arguments have the defaults of enqueue
SELECT added FROM fairq.enqueue_or_find('keys_2', 'g');
SELECT added FROM fairq.enqueue_or_find('keys_2', 'g', '7', 2, 'infinity', 'k', 3, 4, '{"h": 1}');
SELECT group_key, payload, priority, run_at, max_attempts, cost, headers FROM fairq.tasks WHERE queue = 'keys_2' ORDER BY id;
SELECT pg_get_function_arguments('fairq.enqueue'::regproc) || ', OUT id bigint, OUT added boolean' =
	pg_get_function_arguments('fairq.enqueue_or_find'::regproc) AS the_same;
SELECT fairq.purge('keys_2');
-- invalid arguments cause the same errors as in enqueue
SELECT fairq.enqueue_or_find(NULL, 'g');
SELECT fairq.enqueue_or_find('keys', NULL);
SELECT fairq.enqueue_or_find('keys_none', 'g');
SELECT fairq.enqueue_or_find('keys', 'g', priority => 10);
SELECT fairq.enqueue_or_find('keys', 'g', dedup_key => '');
BEGIN READ ONLY;
SELECT fairq.enqueue_or_find('keys', 'g');
COMMIT;

--
-- A task is found as long as it is unfinished
--

SELECT pg_temp.find('x'), pg_temp.find('y'), pg_temp.find('z'), pg_temp.find('x', 'keys_2'), pg_temp.find('X'), pg_temp.find('x ');
SELECT pg_temp.put('b1', 'later', 'infinity'), pg_temp.find('later');
SELECT payload FROM fairq.pop('keys', 2);
SELECT pg_temp.find('x'), pg_temp.find('y');
SELECT fairq.fail(pg_temp.id('a1'), retry_in => '1 hour'), fairq.cancel(pg_temp.id('a3'));
SELECT pg_temp.find('x'), pg_temp.find('y');
SELECT fairq.complete(pg_temp.id('a3')), fairq.release(pg_temp.id('a3'));
SELECT pg_temp.find('y');
SELECT fairq.purge('keys');
SELECT pg_temp.find('x'), pg_temp.find('later');
-- a task that the same transaction adds is found
BEGIN;
SELECT pg_temp.put('c1', 'c'), pg_temp.find('c');
SAVEPOINT s;
SELECT fairq.cancel(fairq.find('keys', 'c')), pg_temp.find('c'), pg_temp.put('c2', 'c'), pg_temp.find('c');
ROLLBACK TO s;
SELECT pg_temp.find('c');
ROLLBACK;
SELECT pg_temp.find('c');
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT fairq.find('keys', 'c');
COMMIT;
-- if SQL has deleted the task of a key, the key has no task
SELECT pg_temp.put('d1', 'd');
DELETE FROM fairq.task t USING fairq.queue q WHERE q.queue_id = t.queue_id AND name = 'keys';
SELECT count(*) FROM fairq.dedup d JOIN fairq.queue q USING (queue_id) WHERE name = 'keys';
SELECT fairq.find('keys', 'd'), pg_temp.put('d2', 'd'), pg_temp.find('d');
-- invalid arguments
SELECT fairq.find(NULL, 'x');
SELECT fairq.find('keys', NULL);
SELECT fairq.find('keys_none', 'x');
SELECT fairq.find('keys', '');
SELECT fairq.find('keys', repeat('x', 1025));
SELECT * FROM fairq.check_queue('keys');
SELECT fairq.drop_queue('keys', true), fairq.drop_queue('keys_2');
