-- The cost of a batch does not depend on how many tasks were added to it or have ended.
-- The cost of a worker's registration does not depend on other workers.
--
-- Fails if a search for tasks of a batch begins at the last task (has_tasks()
-- in blocked.c).  Fails if a check reads all rows of fairq.batch_delta
-- (first_failed()).  Fails if each registration searches for old workers
-- (admin.c).
\a \t

CREATE FUNCTION pg_temp.buffers(command text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ' || command INTO plan;
	RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::int + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::int;
END $$;
SELECT fairq.create_queue('batch_cost');

-- the cost stays the same if the tasks of a batch end in descending order of their ids,
-- while a snapshot needs their rows
SELECT fairq.create_batch('batch_cost', 'then') AS b \gset
SELECT count(*) FROM fairq.enqueue_batch('batch_cost', array_fill('a'::text, ARRAY[4000]), array_fill('1'::jsonb, ARRAY[4000]), batch => :b);
SELECT fairq.close_batch(:b);
CREATE TEMP TABLE popped AS SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM fairq.pop('batch_cost', 4000, lease => '1 hour');
CREATE FUNCTION pg_temp.complete(first int, last int) RETURNS int
LANGUAGE sql AS $$ SELECT min(pg_temp.buffers(format('SELECT fairq.complete(%s)', id))) FROM popped WHERE n BETWEEN first AND last $$;
BEGIN;
SELECT pg_temp.complete(1, 5) AS few \gset
SELECT count(fairq.complete(id)) FROM (SELECT id FROM popped WHERE n BETWEEN 6 AND 3995 ORDER BY n) p;
SELECT pg_temp.complete(3996, 3999) AS many \gset
COMMIT;
SELECT :many < :few + 20 AS flat;
SELECT status FROM fairq.batches WHERE id = :b;
SELECT fairq.complete(id) FROM popped WHERE n = 4000;
SELECT id = :b AS "then", headers -> 'batch' ->> 'completed' AS completed, fairq.complete(id) FROM fairq.pop('batch_cost');

-- many calls have added tasks to a batch, and each call has left a row that a
-- check could read
SELECT fairq.create_batch('batch_cost', 'then', on_success => true) AS b \gset
-- each check runs in its own transaction, because a check reads all earlier row
-- versions of its transaction
CREATE PROCEDURE pg_temp.check(batch bigint, INOUT buffers int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 5 LOOP
		buffers := least(buffers, pg_temp.buffers(format('SELECT (SELECT count(*) FROM fairq.pop(''batch_cost'')) FROM fairq.reschedule(%s)', batch)));
		COMMIT;
	END LOOP;
END $$;
SELECT fairq.enqueue('batch_cost', 'b', batch => :b) AS first \gset
SELECT id = :first FROM fairq.pop('batch_cost', lease => '1 hour');
CALL pg_temp.check(:b, NULL) \gset few_
INSERT INTO fairq.batch_delta (batch, status, n) SELECT :b, 1, 1 FROM generate_series(1, 20000);
CALL pg_temp.check(:b, NULL) \gset many_
SELECT :many_buffers < :few_buffers + 40 AS flat;
-- a check finds a task that did not succeed
SELECT fairq.cancel(:first), fairq.complete(:first);
SELECT count(*) FROM fairq.pop('batch_cost');
SELECT status, error = 'task ' || :first || ' did not succeed' AS error FROM fairq.tasks WHERE id = :b;

-- the cost of registering a worker does not depend on the number of other workers
SELECT fairq.register_worker('00000000-0000-0000-0000-00000000000a', 'one', '{batch_cost}');
CREATE FUNCTION pg_temp.register() RETURNS int
LANGUAGE sql AS $$ SELECT min(pg_temp.buffers('SELECT fairq.register_worker(''00000000-0000-0000-0000-00000000000a'', ''one'', ''{batch_cost}'')')) FROM generate_series(1, 5) $$;
SELECT pg_temp.register() AS few \gset
INSERT INTO fairq.worker (worker_id, worker, queues, started_at, last_seen)
	SELECT gen_random_uuid(), 'many', '{batch_cost}', now(), now() FROM generate_series(1, 5000);
SELECT pg_temp.register() AS many \gset
SELECT :many < :few + 20 AS flat;
DELETE FROM fairq.worker;
SELECT fairq.drop_queue('batch_cost', true);
