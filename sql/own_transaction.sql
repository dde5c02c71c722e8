-- A transaction works on tasks that it has enqueued. The transaction's time is
-- linear in its work, and its pops find a lapsed lease of its own.
--
-- Fails if each pop publishes all tasks of its transaction again, and so reads
-- the index entries of finished tasks again (fairq_pending_show() in
-- transaction.c).
\a \t

-- The number of entries of both indexes that scans have read in this
-- transaction.
CREATE FUNCTION pg_temp.entries() RETURNS bigint
LANGUAGE sql AS $$
	SELECT pg_stat_get_xact_tuples_returned('fairq.task_by_time'::regclass)
		+ pg_stat_get_xact_tuples_returned('fairq.task_by_group'::regclass)
$$;

CREATE FUNCTION pg_temp.start_counting() RETURNS void
LANGUAGE sql AS $$
	SELECT set_config('own.entries', pg_temp.entries()::text, false)
$$;

-- "linear" if few entries were read for each task. With quadratic time, 250
-- entries or more would be read.
CREATE FUNCTION pg_temp.read_for(tasks int) RETURNS text
LANGUAGE sql AS $$
	SELECT CASE
		WHEN pg_temp.entries() - current_setting('own.entries')::bigint < 10 * tasks THEN 'linear'
		ELSE format('%s entries', pg_temp.entries() - current_setting('own.entries')::bigint)
	END
$$;

CREATE FUNCTION pg_temp.add(queue text, groups int, tasks int) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(*) FROM fairq.enqueue_batch(queue,
		ARRAY(SELECT 'g' || i % groups FROM generate_series(1, tasks) i),
		ARRAY(SELECT to_jsonb(i) FROM generate_series(1, tasks) i))
$$;

-- Pops a task and completes it.
CREATE FUNCTION pg_temp.work(queue text) RETURNS int
LANGUAGE sql AS $$
	SELECT count(*)::int FROM fairq.pop(queue) WHERE fairq.complete(id, attempt)
$$;

--
-- How many index entries a transaction reads
--

-- all tasks are in one group
SELECT fairq.create_queue('own_one');
BEGIN;
SELECT pg_temp.start_counting();
SELECT pg_temp.add('own_one', 1, 2000);
SELECT sum(pg_temp.work('own_one')) FROM generate_series(1, 2001);
SELECT pg_temp.read_for(2000);
COMMIT;
SELECT * FROM fairq.check_queue('own_one');

-- several groups
SELECT fairq.create_queue('own_groups');
BEGIN;
SELECT pg_temp.start_counting();
SELECT pg_temp.add('own_groups', 40, 2000);
SELECT sum(pg_temp.work('own_groups')) FROM generate_series(1, 2001);
SELECT pg_temp.read_for(2000);
COMMIT;
SELECT * FROM fairq.check_queue('own_groups');

-- pops that find fewer tasks than they request
SELECT fairq.create_queue('own_short');
BEGIN;
SELECT pg_temp.start_counting();
DO $$
BEGIN
	FOR i IN 1 .. 1000 LOOP
		PERFORM fairq.enqueue('own_short', 'g' || i % 40);
		ASSERT (SELECT count(*) FROM fairq.pop('own_short', 10) WHERE fairq.complete(id)) = 1;
		BEGIN
			PERFORM fairq.enqueue('own_short', 'g' || i % 3);
		EXCEPTION WHEN division_by_zero THEN
		END;
		ASSERT (SELECT count(*) FROM fairq.take('own_short', 10)) = 1;
	END LOOP;
END
$$;
SELECT pg_temp.read_for(2000);
COMMIT;
SELECT * FROM fairq.check_queue('own_short');

-- groups with a limit, whose tasks keep their slots until the commit
SELECT fairq.create_queue('own_limited', concurrency => 1);
BEGIN;
SELECT pg_temp.start_counting();
SELECT pg_temp.add('own_limited', 4, 2000);
SELECT sum(pg_temp.work('own_limited')) FROM generate_series(1, 2001);
SELECT pg_temp.read_for(2000);
COMMIT;
SELECT * FROM fairq.check_queue('own_limited');

-- take
SELECT fairq.create_queue('own_take');
BEGIN;
SELECT pg_temp.start_counting();
SELECT pg_temp.add('own_take', 4, 2000);
SELECT sum((SELECT count(*) FROM fairq.take('own_take') WHERE i > 0)) FROM generate_series(1, 2001) i;
SELECT pg_temp.read_for(2000);
COMMIT;
SELECT * FROM fairq.check_queue('own_take');

-- a transaction adds and pops one task at a time, while ten earlier tasks of
-- its group wait
SELECT fairq.create_queue('own_turns');
BEGIN;
SELECT pg_temp.start_counting();
SELECT pg_temp.add('own_turns', 1, 10);
DO $$
BEGIN
	FOR i IN 1 .. 2000 LOOP
		PERFORM fairq.enqueue('own_turns', 'g0', to_jsonb(10 + i));
		-- the pop returns the task that was added first
		ASSERT (SELECT payload = to_jsonb(i) AND fairq.complete(id) FROM fairq.pop('own_turns'));
	END LOOP;
END
$$;
SELECT pg_temp.read_for(2000);
SELECT payload FROM fairq.pop('own_turns', 100);
COMMIT;
SELECT * FROM fairq.check_queue('own_turns');

-- two queues
SELECT fairq.create_queue('own_left'), fairq.create_queue('own_right');
BEGIN;
SELECT pg_temp.start_counting();
SELECT pg_temp.add('own_left', 1, 1000), pg_temp.add('own_right', 3, 1000);
SELECT sum(pg_temp.work('own_left')), sum(pg_temp.work('own_right')) FROM generate_series(1, 1001);
SELECT pg_temp.read_for(2000);
COMMIT;
SELECT * FROM fairq.check_queue('own_left');
SELECT * FROM fairq.check_queue('own_right');

-- the transaction uses many queues, and drops some of them
BEGIN;
DO $$
BEGIN
	BEGIN
		PERFORM fairq.create_queue('own_gone' || q), fairq.enqueue('own_gone' || q, 'a'),
			pg_temp.work('own_gone' || q) FROM generate_series(1, 5) q;
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
	END;
	PERFORM fairq.create_queue('own_many' || q), pg_temp.add('own_many' || q, 1, 5)
	FROM generate_series(1, 20) q;
	FOR i IN 1 .. 5 LOOP
		ASSERT (SELECT bool_and((SELECT payload = to_jsonb(i) FROM fairq.pop('own_many' || q)))
			FROM generate_series(1, 20) q);
		PERFORM fairq.enqueue('own_many' || q, 'g0', to_jsonb(i + 5)) FROM generate_series(1, 20) q;
	END LOOP;
END
$$;
SELECT sum((SELECT count(*) FROM fairq.pop('own_many' || q, 100))) FROM generate_series(1, 20) q;
COMMIT;
SELECT f.* FROM generate_series(1, 20) q, fairq.check_queue('own_many' || q) f;

-- two priorities
SELECT fairq.create_queue('own_lanes');
BEGIN;
SELECT pg_temp.start_counting();
DO $$
BEGIN
	PERFORM fairq.enqueue_batch('own_lanes', array_fill('a'::text, '{1000}'),
		array_fill('"low"'::jsonb, '{1000}'), priority => 5);
	FOR i IN 1 .. 1000 LOOP
		ASSERT (SELECT payload = '"low"' AND fairq.complete(id) FROM fairq.pop('own_lanes'));
		PERFORM fairq.enqueue('own_lanes', 'a', '"high"');
		ASSERT (SELECT payload = '"high"' AND fairq.complete(id) FROM fairq.pop('own_lanes'));
	END LOOP;
END
$$;
SELECT pg_temp.read_for(2000);
COMMIT;
SELECT * FROM fairq.check_queue('own_lanes');

-- savepoints are released
SELECT fairq.create_queue('own_released');
BEGIN;
SELECT pg_temp.start_counting();
SELECT pg_temp.add('own_released', 3, 1000);
DO $$
DECLARE
	served int := 0;
BEGIN
	FOR i IN 1 .. 1000 LOOP
		BEGIN
			PERFORM fairq.enqueue('own_released', 'g1', '0');
			served := served + pg_temp.work('own_released');
		EXCEPTION WHEN division_by_zero THEN
		END;
		served := served + pg_temp.work('own_released');
	END LOOP;
	ASSERT served = 2000, served;
END
$$;
SELECT pg_temp.read_for(2000);
SELECT count(*) FROM fairq.pop('own_released');
COMMIT;
SELECT * FROM fairq.check_queue('own_released');

-- savepoints that are rolled back
SELECT fairq.create_queue('own_undone');
BEGIN;
SELECT pg_temp.start_counting();
SELECT pg_temp.add('own_undone', 3, 1000);
DO $$
DECLARE
	served int := 0;
BEGIN
	FOR i IN 1 .. 1000 LOOP
		BEGIN
			PERFORM fairq.enqueue('own_undone', 'g1', '0');
			ASSERT pg_temp.work('own_undone') = 1;
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
		END;
		served := served + pg_temp.work('own_undone');
	END LOOP;
	ASSERT served = 1000, served;
END
$$;
SELECT pg_temp.read_for(2000);
SELECT count(*) FROM fairq.pop('own_undone');
COMMIT;
SELECT * FROM fairq.check_queue('own_undone');

--
-- A lease that lapses in the transaction that created it
--

-- a pop finds the lapsed lease
SELECT fairq.create_queue('own_leases');
BEGIN;
SELECT count(fairq.enqueue('own_leases', g, to_jsonb(g))) FROM unnest('{a,b}'::text[]) g;
SELECT payload, attempt FROM fairq.pop('own_leases', 100, '1 microsecond');
SELECT payload, attempt FROM fairq.pop('own_leases', 1, '1 hour');
SELECT payload, attempt FROM fairq.pop('own_leases', 100, '1 hour');
SELECT payload, attempt FROM fairq.pop('own_leases', 100);
-- a pop finds a lease that was shortened, too
SELECT count(*) FROM fairq.live_tasks
WHERE queue = 'own_leases' AND payload = '"a"' AND fairq.extend(id, 2, '1 microsecond') IS NOT NULL;
SELECT payload, attempt FROM fairq.pop('own_leases', 100, '1 microsecond');
-- expire_leases also sees the lease as lapsed
SELECT fairq.expire_leases('own_leases'), fairq.expire_leases('own_leases');
SELECT payload, attempt FROM fairq.pop('own_leases', 100, '1 hour');
COMMIT;
SELECT payload, status, attempt FROM fairq.tasks WHERE queue = 'own_leases' ORDER BY id;
SELECT lapsed FROM fairq.queues WHERE queue = 'own_leases';
SELECT * FROM fairq.check_queue('own_leases');
-- a lease from an earlier transaction is taken over after a savepoint, and the
-- take-over is rolled back
SELECT count(*) FROM fairq.live_tasks
WHERE queue = 'own_leases' AND fairq.extend(id, attempt, '1 microsecond') IS NOT NULL;
BEGIN;
SAVEPOINT s;
SELECT payload, attempt FROM fairq.pop('own_leases', 100, '1 hour');
ROLLBACK TO s;
SELECT payload, attempt FROM fairq.pop('own_leases', 1, '1 microsecond');
SELECT payload, attempt FROM fairq.pop('own_leases', 100, '1 hour');
SELECT payload, attempt FROM fairq.pop('own_leases', 100, '1 hour');
COMMIT;
SELECT payload, status, attempt FROM fairq.tasks WHERE queue = 'own_leases' ORDER BY id;
SELECT * FROM fairq.check_queue('own_leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'own_leases';

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'own\_%';
