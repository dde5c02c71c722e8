-- A task can be cancelled in each of its states.
--
-- Fails if a cancelled task whose lease expired is queued again
-- (fairq_end_lapsed() in outcome.c). Fails if fail or release of a cancelled
-- task returns true (finish.c).
\a \pset footer off
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/tasks.psql

CREATE FUNCTION pg_temp.cancel(queue text, payload text) RETURNS boolean
LANGUAGE sql AS $$
	SELECT fairq.cancel(pg_temp.id(queue, payload))
$$;

CREATE FUNCTION pg_temp.tasks(queue text) RETURNS TABLE (task text, status text,
	attempt int, error text, result jsonb)
LANGUAGE sql AS $$
	SELECT payload #>> '{}', status, attempt, error, result FROM fairq.tasks t WHERE t.queue = $1 ORDER BY id
$$;

CREATE FUNCTION pg_temp.counters(queue text, OUT popped bigint, OUT completed bigint,
	OUT released bigint, OUT retried bigint, OUT failed bigint, OUT cancelled bigint, OUT lapsed bigint)
LANGUAGE sql AS $$
	SELECT popped, completed, released, retried, failed, cancelled, lapsed
	FROM fairq.queues q WHERE q.queue = $1
$$;

SELECT fairq.create_queue('cancel', retain => '1 hour');

--
-- A task that is not running is removed
--

SELECT fairq.cancel(NULL), fairq.cancel(0), fairq.cancel(-1), fairq.cancel(9223372036854775807), fairq.cancel(-9223372036854775808);
SELECT pg_temp.add('cancel', 'a1', 'a2', 'a3', 'b1');
SELECT pg_temp.id('cancel', 'a2') AS a2 \gset
SELECT fairq.cancel(:a2), fairq.cancel(:a2);
SELECT * FROM pg_temp.tasks('cancel');
SELECT * FROM pg_temp.counters('cancel');
SELECT * FROM fairq.check_queue('cancel');
-- the cancelled task's turn is gone, and no other group loses a turn
SELECT pg_temp.add('cancel', 'b2', 'b3');
SELECT pg_temp.pop('cancel', 4), pg_temp.pop('cancel');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'cancel' AND status = 'running';
-- the first and the last task of a group, and all tasks of another group
SELECT pg_temp.add('cancel', 'c1', 'c2', 'c3', 'd1', 'd2');
SELECT pg_temp.cancel('cancel', 'c1'), pg_temp.cancel('cancel', 'c3'), pg_temp.cancel('cancel', 'd1'), pg_temp.cancel('cancel', 'd2');
SELECT * FROM fairq.check_queue('cancel');
SELECT pg_temp.add('cancel', 'd3', 'c4');
SELECT pg_temp.pop('cancel');
SELECT * FROM fairq.check_queue('cancel');
-- a scheduled task, a due one, one that a limit holds back, and a released one
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'cancel' AND status = 'running';
SELECT fairq.create_queue('cancel_2', concurrency => 1, retain => '1 hour');
SELECT fairq.enqueue('cancel_2', 's', '"s1"', run_at => 'infinity') > 0 AS ok;
SELECT fairq.enqueue('cancel_2', 's', '"s2"', run_at => clock_timestamp() + interval '1 millisecond') > 0 AS ok;
SELECT pg_sleep(0.005);
SELECT pg_temp.add('cancel_2', 'a1', 'a2', 'a3', 'b1', 'b2');
SELECT pg_temp.pop('cancel_2', 2) IS NOT NULL AS popped;
SELECT count(fairq.release(id, attempt)) FROM fairq.tasks WHERE queue = 'cancel_2' AND status = 'running';
SELECT task, status FROM pg_temp.tasks('cancel_2');
SELECT count(*) FILTER (WHERE fairq.cancel(id)), count(*) FILTER (WHERE fairq.cancel(id)) FROM fairq.tasks WHERE queue = 'cancel_2';
SELECT task, status FROM pg_temp.tasks('cancel_2');
SELECT ready, limited, scheduled, running FROM fairq.queues WHERE queue = 'cancel_2';
SELECT * FROM fairq.check_queue('cancel_2');
SELECT pg_temp.pop('cancel_2');
-- the task waits for a retry
SELECT pg_temp.add('cancel_2', 'r1', 'r2');
SELECT pg_temp.pop('cancel_2');
SELECT fairq.fail(pg_temp.id('cancel_2', 'r1'), 1, 'failed', '1 hour');
SELECT pg_temp.pop('cancel_2');
SELECT fairq.fail(pg_temp.id('cancel_2', 'r2'), 1, 'failed', '0');
SELECT pg_temp.cancel('cancel_2', 'r1'), pg_temp.cancel('cancel_2', 'r2');
SELECT * FROM pg_temp.tasks('cancel_2') WHERE task LIKE 'r%';
SELECT * FROM fairq.check_queue('cancel_2');

--
-- The worker of a running task learns of the cancellation
--

SELECT pg_temp.add('cancel', 'e1', 'e2', 'e3', 'e4', 'e5', 'e6', 'e7');
SELECT pg_temp.pop('cancel');
SELECT bool_and(pg_temp.cancel('cancel', 'e' || n)) FROM generate_series(1, 6) n;
-- a second cancel also returns true
SELECT pg_temp.cancel('cancel', 'e1'), pg_temp.cancel('cancel', 'e1');
SELECT * FROM pg_temp.tasks('cancel') WHERE task LIKE 'e%';
SELECT * FROM fairq.check_queue('cancel');
SELECT cancelled FROM pg_temp.counters('cancel');
SELECT lease_until > now() AS leased FROM fairq.tasks WHERE queue = 'cancel' AND payload = '"e1"';
-- extend reports the cancellation, whether or not the call gives the attempt or
-- a lease
SELECT fairq.extend(pg_temp.id('cancel', 'e1'), 1), fairq.extend(pg_temp.id('cancel', 'e1')),
	fairq.extend(pg_temp.id('cancel', 'e1'), 1, '1 hour'), fairq.extend(pg_temp.id('cancel', 'e7'), 1) > now() AS other;
-- Whatever the worker calls, the task ends as cancelled. Each call returns
-- false, and complete keeps the result.
SELECT fairq.complete(pg_temp.id('cancel', 'e1'), 1, '"done"'), cardinality(fairq.complete_batch(ARRAY[pg_temp.id('cancel', 'e2')], '{1}')),
	fairq.fail(pg_temp.id('cancel', 'e3'), 1, 'stopped'), fairq.fail(pg_temp.id('cancel', 'e4'), 1, 'stopped', '0', true),
	fairq.release(pg_temp.id('cancel', 'e5'), 1), fairq.release(pg_temp.id('cancel', 'e6'), 1, '1 hour');
-- each of these tasks is counted only as cancelled
SELECT completed, released, retried, failed, cancelled FROM pg_temp.counters('cancel');
SELECT * FROM pg_temp.tasks('cancel') WHERE task LIKE 'e%';
SELECT * FROM fairq.check_queue('cancel');
-- they are also counted in a queue without an archive
SELECT fairq.create_queue('cancel_3');
SELECT pg_temp.add('cancel_3', 'c1');
SELECT pg_temp.pop('cancel_3'), pg_temp.cancel('cancel_3', 'c1');
SELECT fairq.complete(id, attempt) FROM fairq.tasks WHERE queue = 'cancel_3';
SELECT completed, cancelled FROM pg_temp.counters('cancel_3');
-- the batch calls return this task only
SELECT pg_temp.add('cancel', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'h7', 'h8');
SELECT count(*) FROM fairq.pop('cancel', 8);
SELECT bool_and(pg_temp.cancel('cancel', 'h' || n)) FROM generate_series(1, 7, 2) n;
CREATE TEMP TABLE h AS SELECT payload #>> '{}' AS task, id FROM fairq.tasks WHERE queue = 'cancel' AND payload::text LIKE '"h%';
SELECT call, (SELECT task FROM h WHERE ARRAY[id] = lost) FROM (
	SELECT 'complete' AS call, fairq.complete_batch(array_agg(id)) AS lost FROM h WHERE task IN ('h1', 'h2')
	UNION ALL SELECT 'fail', fairq.fail_batch(array_agg(id), errors => '{x,x}') FROM h WHERE task IN ('h3', 'h4')
	UNION ALL SELECT 'release', fairq.release_batch(array_agg(id)) FROM h WHERE task IN ('h5', 'h6')
	UNION ALL SELECT 'extend', fairq.extend_batch(array_agg(id)) FROM h WHERE task IN ('h7', 'h8')) b;
SELECT task, status, error FROM pg_temp.tasks('cancel') WHERE task LIKE 'h%';
SELECT fairq.release(id) FROM h WHERE task = 'h7';
SELECT count(*) FROM h WHERE fairq.cancel(id) IS NOT NULL;
SELECT count(*) FROM h WHERE fairq.complete(id);
SELECT * FROM fairq.check_queue('cancel');
SELECT bool_or(pg_temp.cancel('cancel', 'e' || n)) FROM generate_series(1, 6) n;
SELECT * FROM pg_temp.counters('cancel');
-- the worker of another attempt changes nothing
SELECT pg_temp.cancel('cancel', 'e7');
SELECT fairq.fail(pg_temp.id('cancel', 'e7'), 2), fairq.release(pg_temp.id('cancel', 'e7'), 0), fairq.complete(pg_temp.id('cancel', 'e7'), -1);
-- purge keeps the cancelled task, because it is running
SELECT fairq.purge('cancel');
SELECT fairq.release(pg_temp.id('cancel', 'e7'));

-- A cancelled task whose lease expires does not run again. A pop or
-- expire_leases ends it.
SELECT pg_temp.add('cancel', 'f1', 'f2', 'f3', 'f4');
SELECT pg_temp.pop('cancel', 3, '1 microsecond');
SELECT pg_temp.cancel('cancel', 'f1'), pg_temp.cancel('cancel', 'f2');
-- until that call the worker may still end the task
SELECT fairq.extend(pg_temp.id('cancel', 'f1'), 1), fairq.complete(pg_temp.id('cancel', 'f1'), 1);
SELECT pg_temp.pop('cancel');
SELECT * FROM pg_temp.tasks('cancel') WHERE task LIKE 'f%';
SELECT * FROM fairq.check_queue('cancel');
SELECT fairq.extend(pg_temp.id('cancel', 'f3'), 2, '1 microsecond') IS NOT NULL AS lapsed, pg_temp.cancel('cancel', 'f3');
SELECT fairq.expire_leases('cancel');
SELECT * FROM pg_temp.tasks('cancel') WHERE task LIKE 'f%';
-- a cancelled task that has no attempts left ends as cancelled
SELECT fairq.alter_queue('cancel', max_attempts => 1);
SELECT fairq.extend(pg_temp.id('cancel', 'f4'), 1, '1 microsecond') IS NOT NULL AS lapsed, pg_temp.cancel('cancel', 'f4');
SELECT payload FROM fairq.take('cancel');
SELECT * FROM pg_temp.tasks('cancel') WHERE task = 'f4';
SELECT pg_temp.add('cancel', 'g1');
SELECT pg_temp.pop('cancel');
SELECT pg_temp.cancel('cancel', 'g1'), fairq.fail(pg_temp.id('cancel', 'g1'), 1, 'the last attempt');
SELECT * FROM pg_temp.tasks('cancel') WHERE task = 'g1';
SELECT * FROM pg_temp.counters('cancel');
SELECT * FROM fairq.check_queue('cancel');
-- the cancelled task is not redriven
SELECT fairq.redrive('cancel');

-- Without an archive no row remains.
SELECT fairq.alter_queue('cancel', max_attempts => 20, retain => '0');
SELECT fairq.maintain('cancel');
SELECT * FROM pg_temp.tasks('cancel');
SELECT pg_temp.add('cancel', 'a1', 'a2', 'a3', 'a4');
SELECT pg_temp.pop('cancel', 3);
SELECT pg_temp.cancel('cancel', 'a1'), pg_temp.cancel('cancel', 'a2'), pg_temp.cancel('cancel', 'a3'), pg_temp.cancel('cancel', 'a4');
SELECT fairq.complete(pg_temp.id('cancel', 'a1'), 1, '1'), fairq.fail(pg_temp.id('cancel', 'a2'), 1, 'x', dead => true), fairq.release(pg_temp.id('cancel', 'a3'), 1);
SELECT * FROM pg_temp.tasks('cancel');
SELECT * FROM fairq.check_queue('cancel');

--
-- A cancelled task keeps its slot under a limit until it ends
--

SELECT pg_temp.add('cancel_2', 'a1', 'a2', 'a3', 'a4');
SELECT pg_temp.pop('cancel_2');
SELECT pg_temp.cancel('cancel_2', 'a1') FROM fairq.queues WHERE queue = 'cancel_2' AND running = 1;
SELECT pg_temp.pop('cancel_2');
SELECT running, ready, limited FROM fairq.queues WHERE queue = 'cancel_2';
SELECT * FROM fairq.check_queue('cancel_2');
SELECT max(id) AS a1 FROM fairq.tasks WHERE queue = 'cancel_2' AND status = 'running' \gset
SELECT fairq.cancel(:a1), fairq.release(:a1, 1);
SELECT pg_temp.pop('cancel_2');
SELECT * FROM fairq.check_queue('cancel_2');
SELECT fairq.drop_queue('cancel_2', true);

--
-- Transactions
--

SELECT fairq.alter_queue('cancel', retain => '1 hour');
SELECT pg_temp.add('cancel', 'a1', 'a2', 'b1');
SELECT pg_temp.pop('cancel', 1);
BEGIN;
SELECT pg_temp.cancel('cancel', 'a1'), pg_temp.cancel('cancel', 'a2'), pg_temp.cancel('cancel', 'b1');
SELECT fairq.extend(pg_temp.id('cancel', 'a1'), 1), fairq.extend(pg_temp.id('cancel', 'b1'), 1);
SELECT * FROM pg_temp.tasks('cancel');
ROLLBACK;
SELECT * FROM pg_temp.tasks('cancel');
SELECT count(fairq.extend(id, 1)) AS extended FROM fairq.tasks WHERE queue = 'cancel' AND status = 'running';
SELECT * FROM fairq.check_queue('cancel');
SELECT pg_temp.pop('cancel');
BEGIN;
SELECT pg_temp.cancel('cancel', 'a1');
SAVEPOINT s;
SELECT pg_temp.cancel('cancel', 'a2'), fairq.release(pg_temp.id('cancel', 'a1'), 1);
ROLLBACK TO s;
SELECT fairq.extend(pg_temp.id('cancel', 'a1'), 1), fairq.extend(pg_temp.id('cancel', 'a2'), 1) > now() AS a2;
COMMIT;
SELECT fairq.extend(pg_temp.id('cancel', 'a1'), 1), fairq.extend(pg_temp.id('cancel', 'a2'), 1) > now() AS a2;
SELECT * FROM fairq.check_queue('cancel');
-- a transaction cancels tasks of its own
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT pg_temp.add('cancel', 'c1', 'c2');
SELECT pg_temp.cancel('cancel', 'c1'), pg_temp.cancel('cancel', 'c1');
SELECT pg_temp.pop('cancel');
SELECT pg_temp.cancel('cancel', 'c2'), fairq.release(pg_temp.id('cancel', 'c2'), 1);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pg_temp.cancel('cancel', 'a2'), fairq.fail(pg_temp.id('cancel', 'a2'), 1, 'x');
COMMIT;
SELECT * FROM pg_temp.tasks('cancel');
SELECT * FROM fairq.check_queue('cancel');
BEGIN READ ONLY;
SELECT fairq.cancel(0);
COMMIT;
BEGIN;
SELECT pg_temp.cancel('cancel', 'b1');
PREPARE TRANSACTION 'fairq';
SELECT fairq.extend(pg_temp.id('cancel', 'b1'), 1) > now() AS extended;
BEGIN;
SELECT fairq.extend(pg_temp.id('cancel', 'b1'), 1) > now() AS extended;
PREPARE TRANSACTION 'fairq';
-- a cancel that finds no task writes nothing
BEGIN;
SELECT fairq.cancel(0), fairq.extend(0);
COMMIT;
SELECT * FROM fairq.check_queue('cancel');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'cancel%';
