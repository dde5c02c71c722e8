-- At most one task of a key runs, where the key is a group, a user of a
-- tenant, or a queue. Tasks that wait for a busy key delay no other tasks, and
-- a pop does not read them.
--
-- Fails if one task more than the limit has a slot (fairq_counter_enter() in
-- counter.c). Fails if a group without a slot is not parked and its turn reads
-- its line (fairq_serve_turn() in turn.c).
\a \pset footer off
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

-- Pops a task of each idle key, completes it, and records the buffers that the
-- pop read.
CREATE TEMP TABLE pops (queue text, waiting int, buffers int);
CREATE PROCEDURE pg_temp.pop_idle(name text, waiting int) LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	FOR i IN 1..8 LOOP
		EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM fairq.pop(%L, 11)', name) INTO plan;
		ASSERT 10 = (SELECT count(fairq.complete(id, attempt)) FROM fairq.live_tasks
			WHERE queue = name AND status = 'running' AND payload #>> '{}' ~ 'idle');
		INSERT INTO pops VALUES (name, waiting, (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::int
			+ (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::int);
		COMMIT;
	END LOOP;
END $$;

-- The number of running tasks of the busy key.
CREATE FUNCTION pg_temp.busy(name text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ' ORDER BY id) FROM fairq.live_tasks
	WHERE queue = name AND status = 'running' AND payload #>> '{}' ~ 'busy'
$$;

SELECT fairq.create_queue('key_group', concurrency => 1);
SELECT fairq.create_queue('key_user', separator => '/', concurrency => 1);
SELECT fairq.set_group('key_user', 'acme/-', concurrency => 100);
SELECT fairq.create_queue('key_queue', max_running => 1), fairq.create_queue('key_queue_2', max_running => 1);

-- The key is the group.
SELECT pg_temp.add('key_group', 'busy', 1, 3), pg_temp.add('key_group', 'other', 1, 2);
SELECT pg_temp.pop('key_group');
SELECT pg_temp.pop('key_group');
SELECT pg_temp.done('key_group', 'other1');
SELECT pg_temp.pop('key_group');

-- The key is a tenant's user. Another tenant may have a user of the same name. The tenant's
-- tasks without a key do not wait.
SELECT pg_temp.add('key_user', 'acme/busy', 1, 3), pg_temp.add('key_user', 'acme/other', 1, 2),
	pg_temp.add('key_user', 'acme/-', 1, 3), pg_temp.add('key_user', 'beta/busy', 1, 2);
SELECT group_key, count(*) FROM fairq.pop('key_user', 100) GROUP BY 1 ORDER BY group_key COLLATE "C";
SELECT pg_temp.pop('key_user');
SELECT pg_temp.done('key_user', 'acme/busy1');
SELECT pg_temp.pop('key_user');

-- The key is the queue, and tenants take turns.
SELECT pg_temp.add('key_queue', g, 1, 2), pg_temp.add('key_queue_2', g, 1, 2) FROM unnest('{acme,beta}'::text[]) g;
SELECT queue, payload FROM fairq.pop('{key_queue,key_queue_2}'::text[], 100);
SELECT count(*) FROM fairq.pop('{key_queue,key_queue_2}'::text[], 100);
SELECT pg_temp.done('key_queue', 'acme1');
SELECT queue, payload FROM fairq.pop('{key_queue,key_queue_2}'::text[], 100);

-- A key stays busy when a pop or an end is rolled back, also to a savepoint.
SELECT pg_temp.busy('key_group');
BEGIN;
SELECT pg_temp.done('key_group', 'busy1');
SELECT pg_temp.pop('key_group');
SAVEPOINT s;
SELECT pg_temp.pop('key_group');
ROLLBACK TO s;
ROLLBACK;
SELECT pg_temp.busy('key_group'), pg_temp.pop('key_group');

-- When the lease expires, the same task runs again, while the others still wait.
SELECT fairq.extend(id, attempt, '1 microsecond') IS NOT NULL AS extended FROM fairq.live_tasks WHERE queue = 'key_group' AND payload = '"busy1"';
SELECT pg_temp.pop('key_group', 1);
SELECT pg_temp.busy('key_group'), pg_temp.pop('key_group');

-- A failed task waits for its retry, and the next task of its key runs meanwhile.
SELECT fairq.fail(id, attempt, 'no', retry_in => '1 hour') FROM fairq.live_tasks WHERE queue = 'key_group' AND payload = '"busy1"';
SELECT pg_temp.pop('key_group');
SELECT fairq.reschedule(id) FROM fairq.live_tasks WHERE queue = 'key_group' AND payload = '"busy1"';
SELECT pg_temp.busy('key_group'), pg_temp.pop('key_group');

-- A pop reads the same number of buffers, however many tasks wait for the busy
-- key. The number is the least of several readings, since the server may have
-- to read its catalogs again.
SELECT count(*) FROM generate_series(1, 10) g, pg_temp.add('key_group', 'idle' || g, 1, 16) a,
	pg_temp.add('key_user', 'acme/idle' || g, 1, 16) b;
CALL pg_temp.pop_idle('key_group', 1);
CALL pg_temp.pop_idle('key_user', 1);
SELECT pg_temp.add('key_group', 'busy', 4, 20000), pg_temp.add('key_user', 'acme/busy', 4, 20000);
CALL pg_temp.pop_idle('key_group', 20000);
CALL pg_temp.pop_idle('key_user', 20000);
-- an index may have one more level, which costs one more buffer for each group
SELECT queue, min(buffers) FILTER (WHERE waiting > 1) <= min(buffers) FILTER (WHERE waiting = 1) + 12 AS flat
FROM pops GROUP BY queue ORDER BY queue;
SELECT pg_temp.busy('key_group'), pg_temp.busy('key_user');

SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue ~ '^key_' ORDER BY queue;
