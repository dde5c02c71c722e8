-- Finished tasks: which tasks are kept, with which data, and how failed tasks
-- return to the queue.
--
-- Fails if redrive() of one group also takes failed tasks of other groups
-- (fairq_redrive() in maintain.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/tasks.psql

-- Makes the running tasks with these payloads fail permanently, in the given
-- order.
CREATE FUNCTION pg_temp.fail(queue text, VARIADIC payloads text[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	n int := 0;
	p text;
BEGIN
	FOREACH p IN ARRAY payloads LOOP
		n := n + fairq.fail(pg_temp.id(queue, p), error => 'no ' || p, dead => true)::int;
	END LOOP;
	RETURN n;
END $$;

CREATE FUNCTION pg_temp.tasks(queue text) RETURNS TABLE (task text, group_key text, status text,
	attempt int, max int, error text, result jsonb, finished boolean)
LANGUAGE sql AS $$
	SELECT payload #>> '{}', group_key, status, attempt, max_attempts, error, result, finished_at IS NOT NULL
	FROM fairq.tasks t WHERE t.queue = $1 ORDER BY id
$$;

--
-- By default only failed tasks are kept
--

SELECT fairq.create_queue('archive');
SELECT retain FROM fairq.queues WHERE queue = 'archive';
SELECT pg_temp.add('archive', 'a1', 'a2', 'a3', 'a4', 'a5', 'a6');
SELECT pg_temp.pop('archive', 4, worker => 'me');
SELECT fairq.complete(pg_temp.id('archive', 'a1'), 1, '{"result": 1}'), cardinality(fairq.complete_batch(ARRAY[pg_temp.id('archive', 'a2')])),
	fairq.fail(pg_temp.id('archive', 'a3'), 1, 'no good', dead => true), fairq.cancel(pg_temp.id('archive', 'a4')),
	fairq.cancel(pg_temp.id('archive', 'a5'));
SELECT fairq.release(pg_temp.id('archive', 'a4'), 1);
SELECT payload FROM fairq.take('archive');
SELECT * FROM pg_temp.tasks('archive');
SELECT worker, priority, addr, lease_until, run_at, finished_at - now() BETWEEN '-1 minute' AND '1 minute' AS just_now,
	finished_at > enqueued_at AS later
FROM fairq.tasks WHERE queue = 'archive';
SELECT failed, completed, cancelled FROM fairq.queues WHERE queue = 'archive';
-- a failed task does not count as a task of the queue
SELECT ready, limited, scheduled, running, oldest_enqueued_at FROM fairq.queues WHERE queue = 'archive';
SELECT ready, limited, scheduled, running FROM fairq.groups WHERE queue = 'archive';
SELECT * FROM fairq.check_queue('archive');
SELECT fairq.purge('archive');
SELECT * FROM pg_temp.tasks('archive');
-- a failed task does not prevent a drop
SELECT fairq.drop_queue('archive');
SELECT count(*) FROM fairq.archive;

--
-- If retain is set, all finished tasks are kept, except taken and purged ones
--

SELECT fairq.create_queue('archive', retain => '1 hour');
SELECT pg_temp.add('archive', 'a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8', 'a9');
SELECT fairq.enqueue('archive', 'group with a key', '"b1"', 3, 'infinity', 'key', 7) > 0 AS ok;
SELECT pg_temp.pop('archive', 7, worker => 'me');
SELECT fairq.complete(pg_temp.id('archive', 'a1'), 1, '{"result": [1, null]}'), cardinality(fairq.complete_batch(ARRAY[pg_temp.id('archive', 'a2')], '{1}')),
	fairq.fail(pg_temp.id('archive', 'a3'), 1, 'no good', dead => true), fairq.cancel(pg_temp.id('archive', 'a4')),
	fairq.cancel(pg_temp.id('archive', 'b1'));
SELECT fairq.cancel(pg_temp.id('archive', 'a5')), fairq.cancel(pg_temp.id('archive', 'a6')), fairq.cancel(pg_temp.id('archive', 'a7'));
SELECT fairq.release(pg_temp.id('archive', 'a4'), 1, '1 hour'), fairq.fail(pg_temp.id('archive', 'a5'), 1, 'given up'),
	fairq.complete(pg_temp.id('archive', 'a6'), 1, 'null');
SELECT fairq.fail(pg_temp.id('archive', 'a7'), 1);
SELECT payload FROM fairq.take('archive');
SELECT fairq.purge('archive');
SELECT * FROM pg_temp.tasks('archive');
SELECT payload, worker, priority, addr, lease_until, run_at, enqueued_at < finished_at AS later
FROM fairq.tasks WHERE queue = 'archive' ORDER BY id;
SELECT dedup_key FROM fairq.archive WHERE dedup_key IS NOT NULL;
SELECT popped, completed, released, retried, failed, cancelled, lapsed FROM fairq.queues WHERE queue = 'archive';
SELECT * FROM fairq.check_queue('archive');
-- a finished task cannot finish again
SELECT bool_or(fairq.complete(id)), bool_or(fairq.complete(id, attempt, '1')), bool_or(fairq.fail(id, attempt)), bool_or(fairq.release(id)),
	bool_or(fairq.cancel(id)), max(fairq.extend(id)), max(cardinality(fairq.complete_batch(ARRAY[id])))
FROM fairq.tasks WHERE queue = 'archive';
SELECT pg_temp.pop('archive');
-- a result may be any JSON value, even null; a task may also have no result
SELECT payload, result IS NULL AS none, result FROM fairq.tasks
WHERE queue = 'archive' AND payload IN ('"a1"', '"a2"', '"a6"') ORDER BY id;
-- the last error stays, however the task ends
SELECT pg_temp.add('archive', 'c1', 'c2');
SELECT pg_temp.pop('archive');
SELECT fairq.fail(pg_temp.id('archive', 'c1'), 1, 'first', '0'), fairq.fail(pg_temp.id('archive', 'c2'), 1, 'first', '0');
SELECT pg_temp.pop('archive');
SELECT fairq.complete(pg_temp.id('archive', 'c1'), 2, '"second"'), fairq.cancel(pg_temp.id('archive', 'c2'));
SELECT fairq.release(pg_temp.id('archive', 'c2'), 2);
SELECT * FROM pg_temp.tasks('archive') WHERE task LIKE 'c%';
SELECT * FROM fairq.check_queue('archive');
-- retain => '0' removes the setting, another value sets it, and NULL keeps it
SELECT fairq.alter_queue('archive', retain => '0');
SELECT retain FROM fairq.queues WHERE queue = 'archive';
SELECT pg_temp.add('archive', 'd1', 'd2', 'd3');
SELECT pg_temp.pop('archive', 1);
SELECT fairq.complete(pg_temp.id('archive', 'd1'), 1, '1');
SELECT fairq.alter_queue('archive', retain => '100 years');
SELECT pg_temp.pop('archive', 1);
SELECT fairq.complete(pg_temp.id('archive', 'd2'), 1, '2');
SELECT fairq.alter_queue('archive');
SELECT fairq.alter_queue('archive', retain => NULL);
SELECT retain FROM fairq.queues WHERE queue = 'archive';
SELECT pg_temp.pop('archive', 1);
SELECT fairq.complete(pg_temp.id('archive', 'd3'), 1, '3');
SELECT * FROM pg_temp.tasks('archive') WHERE task LIKE 'd%';
SELECT fairq.alter_queue('archive', retain => '-1 hour');
SELECT fairq.alter_queue('archive', retain => '110 years');
SELECT fairq.create_queue('archive_x', retain => '-1 microsecond');
SELECT fairq.create_queue('archive_x', retain => '0');
SELECT retain FROM fairq.queues WHERE queue = 'archive_x';
SELECT fairq.drop_queue('archive_x');
-- drop_queue removes all finished tasks
SELECT fairq.drop_queue('archive');
SELECT count(*) FROM fairq.archive;

--
-- In transactions
--

SELECT fairq.create_queue('archive', retain => '1 hour');
SELECT pg_temp.add('archive', 'a1', 'a2', 'a3');
BEGIN;
SELECT pg_temp.pop('archive', 2);
SELECT fairq.complete(pg_temp.id('archive', 'a1'), 1, '1'), pg_temp.fail('archive', 'a2'), fairq.cancel(pg_temp.id('archive', 'a3'));
SELECT * FROM pg_temp.tasks('archive');
SELECT * FROM fairq.check_queue('archive');
ROLLBACK;
SELECT * FROM pg_temp.tasks('archive');
SELECT * FROM fairq.check_queue('archive');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT pg_temp.pop('archive', 2);
SAVEPOINT s;
SELECT fairq.complete(pg_temp.id('archive', 'a1'), 1, '"not this"'), pg_temp.fail('archive', 'a2');
ROLLBACK TO s;
SELECT fairq.complete(pg_temp.id('archive', 'a1'), 1, '"but this"'), pg_temp.fail('archive', 'a2'), fairq.cancel(pg_temp.id('archive', 'a3'));
COMMIT;
SELECT * FROM pg_temp.tasks('archive');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT fairq.redrive('archive');
SELECT payload, fairq.complete(id, attempt, '"again"') FROM fairq.pop('archive');
COMMIT;
SELECT * FROM pg_temp.tasks('archive');
SELECT * FROM fairq.check_queue('archive');
BEGIN READ ONLY;
SAVEPOINT s;
SELECT fairq.redrive('archive');
ROLLBACK TO s;
SELECT fairq.complete(0, 1, '1');
ROLLBACK TO s;
SELECT count(*) FROM fairq.tasks WHERE queue = 'archive';
COMMIT;
SELECT fairq.drop_queue('archive');

--
-- Large payloads, results and errors
--

SELECT fairq.create_queue('archive', retain => '1 hour');
-- A payload that does not compress: hexadecimal digits.
CREATE FUNCTION pg_temp.noise(n int) RETURNS text LANGUAGE sql AS $$
	SELECT left(string_agg(md5(i::text), '' ORDER BY i), n) FROM generate_series(1, n / 32 + 1) i
$$;
CREATE TEMP TABLE noise AS SELECT pg_temp.noise(1000000) AS noise;
SELECT fairq.enqueue('archive', 'large', jsonb_build_object('is', 'also', 'zeros', repeat('0', 2000000))) > 0 AS ok;
SELECT fairq.enqueue('archive', 'large', jsonb_build_object('is', 'large', 'noise', noise)) > 0 AS ok FROM noise;
SELECT fairq.enqueue('archive', 'large', '{"is": "small"}') > 0 AS ok;
SELECT payload ->> 'is' AS is, length(payload ->> 'noise') AS noise, length(payload ->> 'zeros') AS zeros,
	fairq.complete(id, attempt, jsonb_build_object('twice', noise.noise || noise.noise))
FROM noise, fairq.pop('archive', 1);
SELECT payload ->> 'is' AS is, length(payload ->> 'noise') AS noise, length(payload ->> 'zeros') AS zeros,
	fairq.fail(id, attempt, noise.noise, dead => true)
FROM noise, fairq.pop('archive', 2);
SELECT status, payload ->> 'is' AS is, payload ->> 'noise' = noise AS same, payload ->> 'zeros' = repeat('0', 2000000) AS same,
	result ->> 'twice' = noise || noise AS twice, error = noise AS error
FROM noise, fairq.tasks WHERE queue = 'archive' ORDER BY id;
SELECT * FROM fairq.check_queue('archive');
-- VACUUM removes the deleted rows of fairq.task, but the archive has all
-- values
VACUUM fairq.task;
SELECT status, md5(payload::text) = md5(jsonb_build_object('is', 'large', 'noise', noise)::text) AS same, length(result::text), length(error)
FROM noise, fairq.tasks WHERE queue = 'archive' ORDER BY id;
-- the tasks are redriven with those values that are not stored in the task's row
BEGIN;
SELECT fairq.redrive('archive');
ROLLBACK;
SELECT fairq.redrive('archive');
VACUUM fairq.archive;
SELECT status, payload ->> 'is' AS is, payload ->> 'noise' = noise AS same, length(error) AS error FROM noise, fairq.tasks WHERE queue = 'archive' ORDER BY id;
SELECT payload ->> 'is' AS is, payload ->> 'noise' = noise AS same, fairq.extend(id, attempt, '1 microsecond') IS NOT NULL AS extended
FROM noise, fairq.pop('archive', 100);
SELECT fairq.alter_queue('archive', max_attempts => 1);
SELECT fairq.expire_leases('archive');
SELECT status, payload ->> 'is' AS is, payload ->> 'noise' = noise AS same, error FROM noise, fairq.tasks WHERE queue = 'archive' ORDER BY id;
SELECT * FROM fairq.check_queue('archive');
SELECT fairq.drop_queue('archive');

--
-- redrive
--

SELECT fairq.redrive(NULL);
SELECT fairq.redrive('archive_none');
SELECT fairq.create_queue('archive', max_attempts => 2);
SELECT fairq.redrive('archive'), fairq.redrive('archive', NULL, NULL), fairq.redrive('archive', max_tasks => 2147483647);
SELECT fairq.redrive('archive', max_tasks => 0);
SELECT fairq.redrive('archive', max_tasks => -1);
SELECT fairq.redrive('archive', 'a', -2147483648);
SELECT fairq.redrive('archive', 'a');
SELECT pg_temp.add('archive', 'a1', 'b1', 'a2', 'b2', 'c1');
SELECT fairq.redrive('archive', 'a');
SELECT pg_temp.pop('archive', 4, worker => 'me');
SELECT pg_temp.fail('archive', 'a2', 'b1', 'a1');
-- tasks return in the order of their failures, at new addresses, behind queued
-- tasks
SELECT fairq.redrive('archive', max_tasks => 1);
SELECT * FROM pg_temp.tasks('archive');
SELECT fairq.redrive('archive', max_tasks => 2);
SELECT * FROM pg_temp.tasks('archive');
SELECT payload, worker, run_at > enqueued_at AND run_at <= now() AS put_back, lease_until, addr >= 0 AS placed
FROM fairq.tasks WHERE queue = 'archive' AND status = 'queued' ORDER BY id;
SELECT pg_temp.add('archive', 'a3', 'b3');
SELECT fairq.redrive('archive'), fairq.redrive('archive');
SELECT * FROM fairq.check_queue('archive');
SELECT pg_temp.pop('archive');
-- a redriven task has two attempts again
SELECT fairq.fail(pg_temp.id('archive', 'a1'), 1), fairq.complete(pg_temp.id('archive', 'a1'), 1);
SELECT count(fairq.fail(id, attempt, 'no ' || attempt, '0')) FROM (SELECT id, attempt FROM fairq.tasks WHERE queue = 'archive' AND payload IN ('"a1"', '"a2"') ORDER BY id) t;
SELECT pg_temp.pop('archive');
SELECT count(fairq.fail(id, attempt, 'no ' || attempt, '0')) FROM (SELECT id, attempt FROM fairq.tasks WHERE queue = 'archive' AND payload IN ('"a1"', '"a2"') ORDER BY id) t;
SELECT * FROM pg_temp.tasks('archive');
SELECT * FROM fairq.check_queue('archive');
-- only the tasks of one group are redriven
SELECT pg_temp.fail('archive', 'b1', 'b2', 'a3', 'c1', 'b3');
SELECT fairq.redrive('archive', 'b', 2);
SELECT task, status FROM pg_temp.tasks('archive');
SELECT fairq.redrive('archive', 'c', 2), fairq.redrive('archive', 'c', 2);
SELECT fairq.redrive('archive', 'd');
SELECT fairq.redrive('archive', '');
SELECT task, status FROM pg_temp.tasks('archive');
-- a group has only failed tasks
SELECT fairq.purge('archive');
SELECT fairq.maintain('archive');
SELECT group_key FROM fairq.groups WHERE queue = 'archive';
SELECT fairq.redrive('archive', 'a', 1);
SELECT fairq.redrive('archive', 'c', 1);
SELECT group_key, ready FROM fairq.groups WHERE queue = 'archive';
SELECT * FROM fairq.check_queue('archive');
SELECT fairq.redrive('archive');
SELECT fairq.purge('archive');
-- SQL may delete archived tasks
SELECT pg_temp.add('archive', 'a1', 'a2');
SELECT pg_temp.pop('archive');
SELECT pg_temp.fail('archive', 'a1', 'a2');
DELETE FROM fairq.archive WHERE id = pg_temp.id('archive', 'a1');
SELECT fairq.redrive('archive');
SELECT * FROM pg_temp.tasks('archive');
SELECT fairq.purge('archive');
-- the task returns with its priority, its number of attempts and its key, but
-- without its time
SELECT fairq.enqueue('archive', 'e', '"e1"', 7, clock_timestamp() + interval '5 milliseconds', 'key', 1) AS e1 \gset
SELECT pg_sleep(0.01);
SELECT pg_temp.pop('archive');
SELECT enqueued_at AS enqueued_at FROM fairq.task WHERE id = :e1 \gset
SELECT pg_temp.fail('archive', 'e1');
SELECT fairq.redrive('archive');
SELECT id = :e1 AS same, enqueued_at = :'enqueued_at' AS since, group_key, priority, attempt, max_attempts, status,
	run_at > enqueued_at AND run_at <= now() AS put_back, error
FROM fairq.tasks WHERE queue = 'archive';
SELECT fairq.enqueue('archive', 'f', dedup_key => 'key') = :e1 AS same;
SELECT fairq.cancel(:e1);
SELECT * FROM fairq.check_queue('archive');
-- only failed tasks are redriven
SELECT fairq.alter_queue('archive', retain => '1 hour');
SELECT pg_temp.add('archive', 'g1', 'g2', 'g3');
SELECT fairq.cancel(pg_temp.id('archive', 'g1'));
SELECT pg_temp.pop('archive');
SELECT fairq.complete(pg_temp.id('archive', 'g2'), 1), pg_temp.fail('archive', 'g3');
SELECT fairq.redrive('archive');
SELECT task, status FROM pg_temp.tasks('archive');
-- rolled back
SELECT pg_temp.pop('archive');
SELECT pg_temp.fail('archive', 'g3');
BEGIN;
SELECT fairq.redrive('archive');
SELECT pg_temp.pop('archive');
SELECT fairq.redrive('archive');
ROLLBACK;
SELECT task, status, attempt FROM pg_temp.tasks('archive');
SELECT pg_temp.pop('archive');
SELECT * FROM fairq.check_queue('archive');
BEGIN;
SELECT fairq.redrive('archive');
PREPARE TRANSACTION 'fairq';
SELECT task, status, attempt FROM pg_temp.tasks('archive');
-- a task can fail, be redriven and start again in one transaction
BEGIN;
SELECT pg_temp.add('archive', 'h1');
SELECT pg_temp.pop('archive');
SELECT pg_temp.fail('archive', 'h1');
SELECT fairq.redrive('archive', 'h');
SELECT pg_temp.pop('archive');
COMMIT;
SELECT task, status, attempt FROM pg_temp.tasks('archive');
SELECT * FROM fairq.check_queue('archive');
-- a task is redriven into a limited group, and into a paused one
SELECT fairq.set_group('archive', 'h', 1);
SELECT fairq.pause('archive', 'h');
SELECT pg_temp.fail('archive', 'h1');
SELECT pg_temp.add('archive', 'h2');
SELECT fairq.redrive('archive');
SELECT pg_temp.pop('archive');
SELECT fairq.resume('archive', 'h');
SELECT pg_temp.pop('archive'), pg_temp.pop('archive');
SELECT task, status, attempt FROM pg_temp.tasks('archive');
SELECT * FROM fairq.check_queue('archive');
-- many tasks
SELECT fairq.drop_queue('archive', true);
SELECT fairq.create_queue('archive', max_attempts => 1);
SELECT count(*) FROM fairq.enqueue_batch('archive', (SELECT array_agg('g' || i % 7) FROM generate_series(1, 700) i),
	array_fill('1'::jsonb, ARRAY[700]));
SELECT count(fairq.fail(id, attempt)) FROM fairq.pop('archive', 700);
SELECT fairq.redrive('archive', 'g3', 60), fairq.redrive('archive', 'g3', 60), fairq.redrive('archive', NULL, 300), fairq.redrive('archive');
SELECT count(*), count(DISTINCT id), min(attempt), max(attempt) FROM fairq.pop('archive', 1000);
SELECT * FROM fairq.check_queue('archive');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'archive%';
SELECT count(*) FROM fairq.archive;
