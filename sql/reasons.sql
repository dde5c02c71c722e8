-- Why a task does not run: each reason, from its cause to its end.
--
-- Fails if reasons are checked in another order, if the value of an unknown
-- counter is used, or if wait_reason() is VOLATILE. Fails if a group still
-- counts as throttled once its tasks may start (lane_view.c). Fails if a task
-- still waits for its predecessors when they have ended (view live_tasks).
\a \pset footer off
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_fairq_reasons;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- The unfinished tasks of each group, with the reason and status of each task.
CREATE FUNCTION pg_temp.reasons(queue text, OUT group_key text, OUT tasks text)
	RETURNS SETOF record
LANGUAGE sql AS $$
	SELECT group_key, string_agg((payload #>> '{}') || ':' || status || ':'
		|| coalesce(reason, 'NULL'), ' ' ORDER BY id)
	FROM fairq.tasks t WHERE t.queue = reasons.queue
	GROUP BY group_key ORDER BY group_key
$$;
CREATE FUNCTION pg_temp.add(queue text, group_key text, VARIADIC names text[])
	RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue(queue, group_key, to_jsonb(n))) FROM unnest(names) n
$$;
CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop(queue, n)
$$;
CREATE FUNCTION pg_temp.id(queue text, name text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT id FROM fairq.tasks t WHERE t.queue = id.queue AND payload #>> '{}' = name
$$;

-- no reason: the task waits for a worker
SELECT fairq.create_queue('reasons', backoff => '1 hour', retain => '1 hour');
SELECT pg_temp.add('reasons', 'a', 'a1', 'a2', 'a3'),
	pg_temp.add('reasons', 'b', 'b1', 'b2');
SELECT * FROM pg_temp.reasons('reasons');
SELECT pg_temp.pop('reasons', 2);
SELECT * FROM pg_temp.reasons('reasons');

-- the group has no slot from the moment its only slot is used until the end of
-- that task
SELECT fairq.set_group('reasons', 'a', concurrency => 1);
-- the call requests more tasks than it can get, so it waits until the number
-- of running tasks is known
SELECT pg_temp.pop('reasons', 2);
SELECT * FROM pg_temp.reasons('reasons');
BEGIN;
SELECT fairq.complete(pg_temp.id('reasons', 'a1'));
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key = 'a';
COMMIT;
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key = 'a';
BEGIN;
SELECT pg_temp.pop('reasons');
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key = 'a';
ROLLBACK;
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key = 'a';
-- the queue's limit applies to the group, unless it has its own
SELECT fairq.set_group('reasons', 'a', concurrency => 0);
SELECT fairq.alter_queue('reasons', concurrency => 1);
SELECT pg_temp.pop('reasons', 5);
SELECT * FROM pg_temp.reasons('reasons');
SELECT pg_temp.add('reasons', 'b', 'b3');
SELECT pg_temp.pop('reasons', 5);
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key = 'b';
SELECT fairq.set_group('reasons', 'b', concurrency => 3);
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key = 'b';
SELECT fairq.alter_queue('reasons', concurrency => 0);

-- the queue has no slot, whatever limits its groups have
SELECT fairq.alter_queue('reasons', max_running => 3);
SELECT pg_temp.pop('reasons', 5);
SELECT * FROM pg_temp.reasons('reasons');
SELECT fairq.set_group('reasons', 'b', concurrency => 1);
SELECT pg_temp.add('reasons', 'c', 'c1');
SELECT * FROM pg_temp.reasons('reasons');
SELECT fairq.alter_queue('reasons', max_running => 4);
SELECT * FROM pg_temp.reasons('reasons');
SELECT fairq.alter_queue('reasons', max_running => 0);

-- a paused group waits for resume, whatever its limits are
SELECT fairq.pause('reasons', 'b');
SELECT * FROM pg_temp.reasons('reasons');
SELECT fairq.pause('reasons');
SELECT fairq.resume('reasons', 'b');
SELECT * FROM pg_temp.reasons('reasons');
SELECT fairq.resume('reasons');
SELECT * FROM pg_temp.reasons('reasons');

-- a task with a time waits for it: scheduled, released with a delay, or
-- retried. Once due, it waits like other tasks.
SELECT fairq.enqueue('reasons', 'd', '"d1"', run_at => 'infinity') > 0 AS ok,
	fairq.enqueue('reasons', 'd', '"d2"', run_at => clock_timestamp() + '1 hour') > 0 AS ok,
	fairq.enqueue('reasons', 'd', '"d3"', run_at => clock_timestamp() - interval '1 hour') > 0 AS ok;
SELECT fairq.pause('reasons', 'd');
SELECT fairq.release(pg_temp.id('reasons', 'a2'), delay => '1 hour');
SELECT fairq.fail(pg_temp.id('reasons', 'b2'));
SELECT * FROM pg_temp.reasons('reasons');
SELECT fairq.resume('reasons', 'd');

-- a running, expired or finished task waits for nothing
SELECT fairq.cancel(pg_temp.id('reasons', 'c1'));
SELECT fairq.fail(pg_temp.id('reasons', 'b1'), dead => true);
SELECT count(*) FROM fairq.pop('reasons', 1, lease => '1 microsecond');
SELECT pg_sleep(0.01);
SELECT * FROM pg_temp.reasons('reasons');
SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = 'reasons' AND status = 'running';

-- while the number of running tasks is unknown, a task waits for the pop that
-- counts them
SELECT fairq.alter_queue('reasons', concurrency => 1);
SELECT pg_temp.add('reasons', 'e', 'e1', 'e2') = pg_temp.add('reasons', 'f', 'f1', 'f2') AS ok;
SELECT pg_temp.pop('reasons', 5);
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key IN ('e', 'f');
SELECT fairq.reset_hints();
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key IN ('e', 'f');
SELECT pg_temp.pop('reasons', 5);
SELECT * FROM pg_temp.reasons('reasons') WHERE group_key IN ('e', 'f');

-- a task of an unknown group waits for a worker; roles that may not see groups get no
-- reason
SELECT queue_id AS id FROM fairq.queue WHERE name = 'reasons' \gset
SELECT fairq_internal.wait_reason(:id, 999999, NULL, NULL), fairq_internal.wait_reason(:id, -1, NULL, NULL),
	fairq_internal.wait_reason(:id, 0, 'infinity', NULL), fairq_internal.wait_reason(:id, 0, '-infinity', NULL);
SELECT fairq_internal.wait_reason(0, 0, NULL, NULL), fairq_internal.wait_reason(NULL, 0, NULL, NULL),
	fairq_internal.wait_reason(:id, NULL, NULL, NULL);
CREATE ROLE regress_fairq_reasons;
GRANT USAGE ON SCHEMA fairq_internal TO regress_fairq_reasons;
SELECT fairq.grant_queue('reasons', 'regress_fairq_reasons', 'enqueue');
SET ROLE regress_fairq_reasons;
SELECT fairq_internal.wait_reason(:id, 0, NULL, NULL), fairq_internal.wait_reason(:id, 0, 'infinity', NULL);
RESET ROLE;
REVOKE USAGE ON SCHEMA fairq_internal FROM regress_fairq_reasons;

-- A pop puts a group of an in_order queue aside because of a hold. After the
-- hold, the group's task waits for a worker, and not for a retry.
SELECT fairq.create_queue('reasons_held', concurrency => 1, in_order => true);
SELECT pg_temp.add('reasons_held', 'a', 'h1', 'h2');
CREATE PROCEDURE pg_temp.meet_hold() LANGUAGE plpgsql AS $$
DECLARE
	span interval := '250 ms';
	until timestamptz;
BEGIN
	LOOP
		until := clock_timestamp() + span;
		PERFORM fairq.hold('reasons_held', 'a', until);
		COMMIT;
		PERFORM fairq.release(id) FROM fairq.pop('reasons_held');
		COMMIT;
		EXIT WHEN EXISTS (SELECT FROM fairq.lanes WHERE queue = 'reasons_held' AND throttled > 0);
		-- the hold ended before the pop, because the machine is slow
		span := span * 2;
	END LOOP;
	PERFORM pg_sleep_until(until + interval '10 ms');
END $$;
CALL pg_temp.meet_hold();
SELECT DISTINCT status, reason FROM fairq.tasks WHERE queue = 'reasons_held';
SELECT reason FROM fairq.group_stats('reasons_held');
SELECT groups_active, groups_throttled, oldest_ready IS NULL AS none_ready, oldest_limited IS NULL AS none_limited
FROM fairq.stats WHERE queue = 'reasons_held';
SELECT fairq.drop_queue('reasons_held', true);

-- A task whose predecessors have ended waits for a pop, which its queue may not
-- allow.
SELECT fairq.create_queue('reasons_first'), fairq.create_queue('reasons_after');
SELECT fairq.enqueue('reasons_first', 'a') AS first \gset
SELECT fairq.enqueue('reasons_after', 'a', '"after"', after => ARRAY[:first]) > 0 AS ok;
SELECT fairq.pause('reasons_after');
SELECT * FROM pg_temp.reasons('reasons_after');
SELECT fairq.complete(id) FROM fairq.pop('reasons_first');
SELECT fairq.reschedule(pg_temp.id('reasons_after', 'after'));
SELECT pg_sleep(0.01);
SELECT * FROM pg_temp.reasons('reasons_after');
SELECT fairq.resume('reasons_after');
SELECT * FROM pg_temp.reasons('reasons_after');
SELECT fairq.complete(id) FROM fairq.pop('reasons_after');
SELECT fairq.drop_queue('reasons_first', true), fairq.drop_queue('reasons_after', true);

-- a query that does not read the column does not compute the reason
CREATE FUNCTION pg_temp.calls_it(query text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
		IF line LIKE '%wait_reason%' THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END $$;
SELECT query, pg_temp.calls_it(query) FROM unnest(ARRAY[
	'SELECT id, reason FROM fairq.tasks',
	'SELECT id, reason FROM fairq.live_tasks',
	'SELECT id, payload FROM fairq.tasks',
	'SELECT count(*) FROM fairq.tasks',
	'SELECT count(*) FROM fairq.live_tasks']) query;

SELECT * FROM fairq.check_queue('reasons');
SELECT fairq.drop_queue('reasons', true);
DROP ROLE regress_fairq_reasons;
