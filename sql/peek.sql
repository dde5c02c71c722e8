-- peek() returns the tasks of the next pop in the same order, at the same
-- turns, and changes nothing. The oracle (test/oracle) compares peek() with
-- pop() before each pop of its histories.
--
-- Fails if a group's counter is not copied (own_counter() in
-- registry.c), or its bits (fairq_seats_copy()), or its entry
-- (find_own() in entry.c). Fails if a group's account is not copied
-- (copy_account() in lane_order.c). Fails if claimed tasks are not recorded
-- (fairq_shadow_claim() in pop.c). Fails if throttled groups do not return in
-- the copy (come_back() in serve.c).
\a \pset footer off
SET client_min_messages = warning;
-- if an interrupted run left them
DROP ROLE IF EXISTS regress_fairq_peek, regress_fairq_peek_work;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- peek() shows the tasks that fairq.peek() returns, each as its group and
-- payload. pop() shows those that fairq.pop() returns, or how they differ from
-- peek's.
CREATE FUNCTION pg_temp.peek(queue text, n int DEFAULT 10) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(group_key || (t.payload #>> '{}'), ' ' ORDER BY at)
	FROM fairq.peek(queue, n) WITH ORDINALITY p(id, group_key, addr, enqueued_at, at)
	JOIN fairq.tasks t USING (id, group_key, enqueued_at)
$$;
CREATE FUNCTION pg_temp.pop(of text, n int DEFAULT 10, lease interval DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	foreseen text[] := array(SELECT format('%s %s %s %s', id, group_key, addr, enqueued_at) FROM fairq.peek(of, n));
	served text[];
	shown text;
BEGIN
	SELECT array_agg(format('%s %s %s %s', id, group_key, addr, enqueued_at) ORDER BY ordinality),
		string_agg(group_key || (payload #>> '{}'), ' ' ORDER BY ordinality)
	INTO served, shown
	FROM fairq.pop(of, n, lease) WITH ORDINALITY;
	RETURN CASE WHEN foreseen = coalesce(served, '{}') THEN coalesce(shown, 'nothing')
		ELSE format('foreseen: %s, served: %s', foreseen, served) END;
END $$;
CREATE FUNCTION pg_temp.enqueue(queue text, groups text, priority int DEFAULT 0, run_at timestamptz DEFAULT NULL)
	RETURNS bigint LANGUAGE sql AS $$
	SELECT count(fairq.enqueue(queue, left(g, 1), to_jsonb(substr(g, 2)), priority, run_at))
	FROM string_to_table(groups, ' ') g
$$;
CREATE FUNCTION pg_temp.sleep_past(seconds float) RETURNS void LANGUAGE sql AS $$ SELECT pg_sleep(seconds) $$;

--
-- A queue without a pop so far, priorities, and as many tasks as requested
--

SELECT fairq.create_queue('peek', block_length => 1000);
SELECT count(*) FROM fairq.peek('peek');
SELECT pg_temp.enqueue('peek', 'a1 b1 a2 b2 a3 c1'), pg_temp.enqueue('peek', 'd1 d2', 3), pg_temp.enqueue('peek', 'e1', 1);
SELECT group_key, addr FROM fairq.peek('peek');
SELECT pg_temp.peek('peek', 3), pg_temp.peek('peek', NULL);
SELECT count(*) FROM fairq.peek(queue => 'peek', max_tasks => 1000000000);
SELECT pg_temp.enqueue('peek', string_agg('f' || i, ' '), 9) FROM generate_series(1, 20) i;
SELECT count(*) FROM fairq.peek('peek');

-- peek() changes nothing, so read-only transactions can call it
CREATE TEMP TABLE before AS SELECT id, ctid::text AS at, xmin::text AS by, xmax::text AS changed FROM fairq.task;
CREATE TEMP TABLE lanes AS SELECT * FROM fairq.lanes WHERE queue = 'peek';
CREATE TEMP TABLE groups AS SELECT p, g.* FROM generate_series(0, 9) p, fairq.lane_groups('peek', p) g;
BEGIN READ ONLY;
SELECT pg_temp.peek('peek', 5), pg_current_xact_id_if_assigned();
COMMIT;
SELECT id, ctid::text, xmin::text, xmax::text FROM fairq.task EXCEPT SELECT * FROM before;
SELECT * FROM fairq.lanes WHERE queue = 'peek' EXCEPT SELECT * FROM lanes;
SELECT p, g.* FROM generate_series(0, 9) p, fairq.lane_groups('peek', p) g EXCEPT SELECT * FROM groups;

-- turn by turn, with groups that become active after their seats were passed
SELECT pg_temp.pop('peek', 2);
SELECT pg_temp.enqueue('peek', 'a4 b3 g1 c2');
SELECT pg_temp.pop('peek', 1);
SELECT pg_temp.enqueue('peek', 'h1 a5');
SELECT pg_temp.pop('peek', 2), pg_temp.pop('peek', 3);
SELECT pg_temp.pop('peek', 100);
SELECT count(*) FROM fairq.peek('peek');

--
-- Weights, even in the middle of a turn
--

SELECT fairq.create_queue('peek_weights');
SELECT pg_temp.enqueue('peek_weights', 'a1 b1 c1'), fairq.set_group('peek_weights', 'b', weight => 3);
SELECT pg_temp.enqueue('peek_weights', 'a2 a3 b2 b3 b4 b5 b6 b7 b8 c2');
SELECT pg_temp.peek('peek_weights', 12);
SELECT pg_temp.pop('peek_weights', 2), pg_temp.pop('peek_weights', 1), pg_temp.pop('peek_weights', 2), pg_temp.pop('peek_weights', 20);

--
-- peek() returns at most as many tasks of a group or queue as it has slots
--

SELECT fairq.create_queue('peek_limits', concurrency => 2);
SELECT pg_temp.enqueue('peek_limits', 'a1 a2 a3 a4 b1 b2 b3 c1');
SELECT pg_temp.peek('peek_limits');
SELECT pg_temp.pop('peek_limits', 1), pg_temp.peek('peek_limits');
SELECT pg_temp.pop('peek_limits'), pg_temp.peek('peek_limits');
SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = 'peek_limits' AND payload = '"1"' AND group_key < 'c' ORDER BY id;
SELECT pg_temp.peek('peek_limits');
SELECT fairq.set_group('peek_limits', 'a', concurrency => 3), pg_temp.peek('peek_limits');
SELECT fairq.pause('peek_limits', 'a'), pg_temp.peek('peek_limits');
SELECT fairq.resume('peek_limits', 'a'), pg_temp.pop('peek_limits');
SELECT fairq.alter_queue('peek_limits', concurrency => 0, max_running => 6), pg_temp.peek('peek_limits');
SELECT pg_temp.enqueue('peek_limits', 'd1', 1), pg_temp.pop('peek_limits');
SELECT pg_temp.peek('peek_limits');
SELECT fairq.alter_queue('peek_limits', max_running => 0), fairq.pause('peek_limits'), pg_temp.peek('peek_limits');
SELECT fairq.resume('peek_limits'), pg_temp.pop('peek_limits');

--
-- Time: lapsed tasks come first, then due retries, then scheduled tasks in the
-- order in which they became ready. Future ones are absent.
--

SELECT fairq.create_queue('peek_time', backoff => '0');
SELECT pg_temp.enqueue('peek_time', 'a1 a2 a3 b1 b2 c1');
SELECT pg_temp.enqueue('peek_time', 'a4 d1', run_at => now() + interval '1 hour');
SELECT pg_temp.enqueue('peek_time', 'b3 e1', run_at => clock_timestamp() + interval '200 ms');
SELECT pg_temp.pop('peek_time', 3, '1 hour');
SELECT fairq.fail(id) FROM fairq.tasks WHERE queue = 'peek_time' AND payload = '"1"' AND group_key = 'a';
SELECT pg_temp.sleep_past(0.21);
SELECT pg_temp.peek('peek_time');
SELECT pg_temp.pop('peek_time', 4, '1 ms'), pg_temp.sleep_past(0.01);
SELECT pg_temp.peek('peek_time', 20);
SELECT pg_temp.pop('peek_time', 3, '1 hour'), pg_temp.pop('peek_time', 20);

-- in a full queue a lapsed task already has its slot
SELECT fairq.create_queue('peek_full', max_running => 3, max_attempts => 2);
SELECT pg_temp.enqueue('peek_full', 'a1 a2 b1 b2 c1');
SELECT pg_temp.pop('peek_full', 10, '1 ms'), pg_temp.sleep_past(0.01);
SELECT pg_temp.peek('peek_full', 2);
SELECT pg_temp.pop('peek_full', 2, '1 ms'), pg_temp.sleep_past(0.01);
-- a pop finishes lapsed tasks that have no attempts left, and then uses their
-- slots
SELECT pg_temp.pop('peek_full', 10);
SELECT pg_temp.pop('peek_full', 10);

-- a group that waited for its next start returns to the ring in the copy that
-- peek() uses
SELECT fairq.create_queue('peek_rate', rate => 1, per => '1 s');
SELECT pg_temp.enqueue('peek_rate', 'a1 a2 b1'), pg_temp.sleep_past(1.01);
SELECT pg_temp.pop('peek_rate'), pg_temp.pop('peek_rate', 1) AS aside, pg_temp.sleep_past(1.01);
SELECT pg_temp.peek('peek_rate');
SELECT throttled FROM fairq.lanes WHERE queue = 'peek_rate' AND priority = 0;
SELECT pg_temp.pop('peek_rate');
SELECT fairq.drop_queue('peek_rate', true);

-- in a cost-fair queue a group that becomes active again owes the same as
-- before
SELECT fairq.create_queue('peek_cost', fair_by => 'cost');
SELECT fairq.enqueue('peek_cost', 'a', '"1"', cost => 100) > 0, pg_temp.enqueue('peek_cost', 'b1 b2 b3');
SELECT pg_temp.pop('peek_cost', 2), pg_temp.pop('peek_cost', 10);
SELECT pg_temp.enqueue('peek_cost', 'b4 a2 b5'), pg_temp.pop('peek_cost', 10);
SELECT fairq.drop_queue('peek_cost', true);

--
-- Tasks of the same transaction, and purged tasks
--

BEGIN;
SELECT fairq.create_queue('peek_own'), pg_temp.enqueue('peek_own', 'a1 b1 a2');
SELECT pg_temp.peek('peek_own');
SAVEPOINT s;
SELECT pg_temp.pop('peek_own', 1), pg_temp.peek('peek_own');
ROLLBACK TO s;
SELECT pg_temp.peek('peek_own');
COMMIT;
SELECT fairq.purge('peek_own', 'a'), pg_temp.peek('peek_own');
SELECT pg_temp.pop('peek_own');

--
-- Many groups, most of which are unknown after all hints were dropped
--

SELECT fairq.create_queue('peek_many', block_length => 100000);
SELECT count(*) FROM fairq.enqueue_batch('peek_many', array(SELECT 'g' || i % 500 FROM generate_series(1, 1200) i), array_fill('1'::jsonb, ARRAY[1200]));
SELECT left(pg_temp.pop('peek_many', 730), 30) NOT LIKE 'foreseen%' AS same;
SELECT fairq.reset_hints();
SELECT left(pg_temp.pop('peek_many', 100), 30) NOT LIKE 'foreseen%' AS same;
SELECT left(pg_temp.pop('peek_many', 1000), 30) NOT LIKE 'foreseen%' AS same;
SELECT count(*) FROM fairq.peek('peek_many');

--
-- The number of rows that peek() reads depends on the tasks it returns, not on
-- the backlog
--

CREATE FUNCTION pg_temp.buffers(queue text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM fairq.peek(%L, 10)', queue) INTO plan;
	RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::int + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::int;
END $$;
SELECT fairq.create_queue('peek_flat');
SELECT pg_temp.enqueue('peek_flat', 'a1 b1 c1 d1 e1 f1 g1 h1 i1 j1 a2 b2 c2 d2 e2 f2 g2 h2 i2 j2');
SELECT pg_temp.pop('peek_flat', 3);
SELECT pg_temp.buffers('peek_flat') > 0;
-- the least of several readings counts, since the server may have to read its catalogs
-- again
SELECT min(pg_temp.buffers('peek_flat')) AS few FROM generate_series(1, 5) \gset
SELECT count(*) FROM fairq.enqueue_batch('peek_flat', array(SELECT left(md5((i % 5000)::text), 4) FROM generate_series(1, 30000) i), array_fill('1'::jsonb, ARRAY[30000]));
SELECT min(pg_temp.buffers('peek_flat')) AS many FROM generate_series(1, 5) \gset
-- with the backlog, an index has one more level, which is read once for each
-- group
SELECT :many < :few + 20 AS flat, :few < 100 AS few;
SELECT fairq.drop_queue('peek_flat', true);

--
-- Privileges and errors
--

CREATE ROLE regress_fairq_peek;
CREATE ROLE regress_fairq_peek_work;
SELECT fairq.grant_queue('peek_limits', 'regress_fairq_peek', 'enqueue'), fairq.grant_queue('peek_limits', 'regress_fairq_peek_work', 'work');
SET ROLE regress_fairq_peek;
SELECT fairq.peek('peek_limits');
SELECT fairq.peek('nowhere');
RESET ROLE;
SET ROLE regress_fairq_peek_work;
SELECT count(*) FROM fairq.peek('peek_limits');
RESET ROLE;
GRANT pg_monitor TO regress_fairq_peek;
SET ROLE regress_fairq_peek;
SELECT count(*) FROM fairq.peek('peek_limits');
RESET ROLE;
SELECT fairq.peek(NULL);
SELECT fairq.peek('peek', 0);
SELECT fairq.peek('nowhere');

SELECT fairq.check_queue(queue) FROM unnest('{peek,peek_weights,peek_limits,peek_time,peek_full,peek_own,peek_many}'::text[]) queue;
SELECT fairq.drop_queue(queue, true) FROM unnest('{peek,peek_weights,peek_limits,peek_time,peek_full,peek_own,peek_many}'::text[]) queue;
DROP ROLE regress_fairq_peek, regress_fairq_peek_work;
