-- Attempts that end because their lease expires, perhaps because the task
-- kills its workers. fairq.claim and the views count them, and after two such
-- attempts the task is served alone.
--
-- Fails if a take-over does not count (take_over() in claim.c). Fails if
-- a lease that expire_leases() ends does not count (fairq_end_lapsed() in
-- outcome.c). Fails if a taken task loses its count of lapses
-- (fairq_taken_find() in taken.c). Fails if no call stops before a task that is
-- served alone (stops_before() in turn.c). Fails if no call ends after such a
-- task (serve_task() in claim.c). Fails if the interrupted turn is not the next
-- one (fairq_lane_stopped() in lane_turns.c). Fails if a call does not begin
-- with the lane that another call left (serve_alone() in serve.c). Fails if
-- several queues count as several calls (serve_claims() in pop.c).
\a \pset footer off
\set VERBOSITY sqlstate

-- The tasks that a pop returns, in its order, each with its attempt and its
-- lapses.
CREATE FUNCTION pg_temp.pop(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(format('%s/%s/%s', payload #>> '{}', attempt, lapses), ' ') FROM fairq.pop('lapses', n)
$$;

CREATE FUNCTION pg_temp.take(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(format('%s/%s/%s', payload #>> '{}', attempt, lapses), ' ') FROM fairq.take('lapses', n)
$$;

CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT id FROM fairq.tasks t WHERE t.queue = 'lapses' AND t.payload = to_jsonb(id.payload)
$$;

-- The leases of all running tasks, or of the given ones, expire now.
CREATE FUNCTION pg_temp.lapse(VARIADIC tasks text[] DEFAULT NULL) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.extend(id, lease => '1 microsecond')) FROM fairq.live_tasks
	WHERE queue = 'lapses' AND status = 'running' AND (tasks IS NULL OR payload #>> '{}' = ANY (tasks))
$$;

CREATE VIEW pg_temp.stand AS
	SELECT payload #>> '{}' AS task, status, attempt, lapses FROM fairq.tasks
	WHERE queue = 'lapses' ORDER BY id;

SELECT fairq.create_queue('lapses', max_attempts => 4, retain => '1 day', backoff => '0');

--
-- What counts
--

SELECT fairq.enqueue('lapses', 'a', '"a1"') > 0 AS ok;
SELECT pg_temp.pop();
-- an expired lease counts when another call finds it
SELECT pg_temp.lapse();
SELECT * FROM pg_temp.stand;
SELECT pg_temp.pop();
SELECT * FROM pg_temp.stand;
-- a released or failed attempt does not count, because its worker is alive
SELECT fairq.release(pg_temp.id('a1')), pg_temp.pop();
SELECT fairq.fail(pg_temp.id('a1'), retry_in => '0'), pg_temp.pop();
SELECT pg_temp.lapse(), fairq.fail(pg_temp.id('a1'), retry_in => '0'), pg_temp.pop();
SELECT pg_temp.lapse(), fairq.complete(pg_temp.id('a1'));
SELECT * FROM pg_temp.stand;
-- expire_leases() and maintain() also end leases; the last attempt counts, too
SELECT fairq.enqueue('lapses', 'b', '"b1"') > 0, pg_temp.pop(), pg_temp.lapse();
SELECT fairq.expire_leases('lapses'), pg_temp.pop(), pg_temp.lapse();
SELECT fairq.maintain('lapses'), pg_temp.pop(), pg_temp.lapse();
SELECT pg_temp.pop(), pg_temp.lapse();
SELECT pg_temp.pop();
SELECT * FROM pg_temp.stand;
-- a rollback undoes the count
SELECT fairq.enqueue('lapses', 'c', '"c1"') > 0, pg_temp.pop(), pg_temp.lapse();
BEGIN;
SELECT pg_temp.pop();
ROLLBACK;
SELECT * FROM pg_temp.stand WHERE task = 'c1';
-- a cancelled task ends when its lease ends
SELECT fairq.cancel(pg_temp.id('c1')), fairq.expire_leases('lapses');
SELECT * FROM pg_temp.stand WHERE task = 'c1';
SELECT * FROM fairq.check_queue('lapses');

--
-- take
--

SELECT fairq.enqueue('lapses', 'd', '"d1"') > 0, pg_temp.pop(), pg_temp.lapse();
BEGIN;
SELECT pg_temp.take();
ROLLBACK;
-- a taken task returns to the queue with the lapses that take() returned
SELECT pg_temp.id('d1') AS d1 \gset
BEGIN;
SELECT pg_temp.take();
SELECT fairq.fail(:d1, retry_in => '0');
COMMIT;
SELECT * FROM pg_temp.stand WHERE task = 'd1';

--
-- a redriven task has no lapses
--

SELECT fairq.redrive(pg_temp.id('b1'));
SELECT * FROM pg_temp.stand WHERE task = 'b1';
SELECT pg_temp.pop();

-- SQL can store any number of lapses
UPDATE fairq.task SET lapses = 100 WHERE id = pg_temp.id('b1');
SELECT regexp_replace(c, '[0-9]+', 'N') FROM fairq.check_queue('lapses') c;
UPDATE fairq.task SET lapses = -1 WHERE id = pg_temp.id('b1');
SELECT regexp_replace(c, '[0-9]+', 'N') FROM fairq.check_queue('lapses') c;
SELECT fairq.drop_queue('lapses', true);

--
-- A task whose lease has expired twice is served alone. A call that has other
-- tasks stops before it, and the next call begins with it.
--

-- Adds tasks with these payloads; the first letter of each is its group.
CREATE FUNCTION pg_temp.add(queue text, tasks text, priority int DEFAULT 0) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue(queue, left(t, 1), to_jsonb(t), priority)) FROM string_to_table(tasks, ' ') t
$$;

-- The tasks that a pop returns, if peek() returned the same.
CREATE FUNCTION pg_temp.serve(of text, n int DEFAULT 10, lease interval DEFAULT '1 hour') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	foreseen text := (SELECT string_agg(format('%s at %s', id, addr), ' ' ORDER BY ordinality)
		FROM fairq.peek(of, n) WITH ORDINALITY);
	served text;
	shown text;
BEGIN
	SELECT string_agg(format('%s at %s', id, addr), ' ' ORDER BY ordinality),
		string_agg(format('%s/%s', payload #>> '{}', lapses), ' ' ORDER BY ordinality)
	INTO served, shown FROM fairq.pop(of, n, lease) WITH ORDINALITY;
	RETURN CASE WHEN foreseen IS DISTINCT FROM served THEN format('foreseen: %s, served: %s', foreseen, served)
		ELSE shown END;
END $$;

-- Adds a task to an empty queue; its lease expires twice.
CREATE FUNCTION pg_temp.poison(of text, task text, priority int DEFAULT 0) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_temp.add(of, task, priority);
	PERFORM FROM fairq.pop(of, 1, '1 microsecond');
	PERFORM FROM fairq.pop(of, 1, '1 microsecond');
END $$;

CREATE FUNCTION pg_temp.done(of text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(*) FILTER (WHERE fairq.complete(id)) FROM fairq.live_tasks WHERE queue = of AND status = 'running'
$$;

-- after a single lapse the task is still served with others
SELECT fairq.create_queue('lapses_1', block_length => 1000);
SELECT pg_temp.add('lapses_1', 'a1 a2 b1 b2');
SELECT pg_temp.serve('lapses_1', lease => '1 microsecond');
SELECT pg_temp.serve('lapses_1'), pg_temp.done('lapses_1');
-- after two lapses the task is served alone at its turn, whatever is before and
-- behind it
SELECT pg_temp.poison('lapses_1', 'b1'), pg_temp.add('lapses_1', 'a1 a2 a3 b2 b3 c1 c2');
\t on
SELECT $$SELECT pg_temp.serve('lapses_1')$$ FROM generate_series(1, 3) \gexec
\t off
SELECT * FROM fairq.check_queue('lapses_1');
SELECT pg_temp.done('lapses_1');
-- take() also serves such a task alone if it is the first task of the call
SELECT pg_temp.poison('lapses_1', 'b1'), pg_temp.add('lapses_1', 'b2');
SELECT payload, lapses FROM fairq.take('lapses_1', 10);
SELECT payload, lapses FROM fairq.take('lapses_1', 10);
-- When a task that is served alone is released, it gets a time instead of a
-- turn. If it got a turn, a call that takes several rounds at once would lose
-- turns of other groups (address_again() in outcome.c).
SELECT pg_temp.poison('lapses_1', 'b1');
SELECT fairq.release(id) FROM fairq.pop('lapses_1');
SELECT pg_temp.add('lapses_1', 'a1 a2 a3 a4 a5 a6 b2 b3 c1 c2 c3 c4');
\t on
SELECT $$SELECT pg_temp.serve('lapses_1', 30)$$ FROM generate_series(1, 4) \gexec
\t off
SELECT pg_temp.done('lapses_1');
-- in a group with a weight the rest of the turn comes next
SELECT fairq.set_group('lapses_1', 'b', weight => 3);
SELECT pg_temp.poison('lapses_1', 'b1');
SELECT fairq.release(id) FROM fairq.pop('lapses_1');
SELECT pg_temp.add('lapses_1', 'a1 a2 a3 b2 b3 b4 b5 b6 c1 c2 c3');
\t on
SELECT $$SELECT pg_temp.serve('lapses_1', 30)$$ FROM generate_series(1, 4) \gexec
\t off
SELECT * FROM fairq.check_queue('lapses_1');
SELECT pg_temp.done('lapses_1'), fairq.set_group('lapses_1', 'b', weight => 0);
-- the rest of the turn also precedes the groups behind it, whose turns the
-- call had already taken
SELECT fairq.create_queue('lapses_w', block_length => 1000);
SELECT pg_temp.add('lapses_w', 'b0 a0 c0'), pg_temp.serve('lapses_w'), pg_temp.done('lapses_w');
SELECT pg_temp.poison('lapses_w', 'a1'), fairq.set_group('lapses_w', 'a', weight => 3);
SELECT pg_temp.add('lapses_w', 'a2 a3 a4 b1 b2 c1 c2');
\t on
SELECT format('SELECT pg_temp.serve(''lapses_w'', %s)', n) FROM unnest('{3,30,30}'::int[]) n \gexec
\t off
-- a released task costs no other group a turn
SELECT fairq.create_queue('lapses_r', block_length => 1000);
SELECT pg_temp.add('lapses_r', 'a0 b0 c0'), pg_temp.serve('lapses_r'), pg_temp.done('lapses_r');
SELECT pg_temp.poison('lapses_r', 'b1');
SELECT fairq.release(id) FROM fairq.pop('lapses_r');
SELECT pg_temp.add('lapses_r', 'a1 a2 a3 a4 b2 b3 b4 c1 c2 c3 c4');
\t on
SELECT format('SELECT pg_temp.serve(''lapses_r'', %s)', n) FROM unnest('{1,1,1,30,1,30}'::int[]) n \gexec
\t off
-- a call with per_group also stops before the task
SELECT pg_temp.poison('lapses_1', 'b1'), pg_temp.add('lapses_1', 'a1 a2 b2 c1');
\t on
SELECT $$SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('lapses_1', 10, per_group => 2)$$
FROM generate_series(1, 4) \gexec
\t off
SELECT pg_temp.done('lapses_1');
-- a task that ends is not served, so no call stops before it
SELECT pg_temp.poison('lapses_1', 'b1'), pg_temp.add('lapses_1', 'a1 b2 c1');
SELECT fairq.cancel(id) FROM fairq.live_tasks WHERE queue = 'lapses_1' AND payload = '"b1"';
SELECT pg_temp.serve('lapses_1');
SELECT pg_temp.done('lapses_1');
-- a rollback restores the task's place
SELECT pg_temp.poison('lapses_1', 'b1'), pg_temp.add('lapses_1', 'a1 b2');
SELECT pg_temp.serve('lapses_1');
BEGIN;
SELECT pg_temp.serve('lapses_1');
ROLLBACK;
SELECT pg_temp.serve('lapses_1');
SELECT pg_temp.serve('lapses_1'), pg_temp.done('lapses_1');
-- several calls in one transaction serve such tasks alone, too
BEGIN;
SELECT pg_temp.add('lapses_1', 'a1 b1');
SELECT pg_temp.serve('lapses_1', lease => '1 microsecond'), pg_temp.serve('lapses_1', lease => '1 microsecond');
SELECT pg_temp.serve('lapses_1'), pg_temp.serve('lapses_1');
COMMIT;
SELECT * FROM fairq.check_queue('lapses_1');
SELECT pg_temp.done('lapses_1');

-- If a call has stopped before a task, the next call continues with this task, even if
-- tasks of earlier priorities have been added since. Otherwise one task could hold up its
-- lane.
SELECT pg_temp.poison('lapses_1', 'b1', 5), pg_temp.add('lapses_1', 'a1 a2'), pg_temp.add('lapses_1', 'd1 d2', 5);
SELECT pg_temp.serve('lapses_1'), pg_temp.add('lapses_1', 'a3 a4');
\t on
SELECT $$SELECT pg_temp.serve('lapses_1')$$ FROM generate_series(1, 3) \gexec
\t off
SELECT pg_temp.done('lapses_1');
-- the next call continues in that lane only while the task exists
SELECT pg_temp.poison('lapses_1', 'b1', 5), pg_temp.add('lapses_1', 'a1'), pg_temp.add('lapses_1', 'd1 d2', 5);
SELECT pg_temp.serve('lapses_1');
SELECT fairq.complete(id) FROM fairq.live_tasks WHERE queue = 'lapses_1' AND payload = '"b1"';
SELECT pg_temp.add('lapses_1', 'a2 a3'), pg_temp.serve('lapses_1'), pg_temp.serve('lapses_1');
SELECT pg_temp.done('lapses_1');

-- A call for several queues counts as one call.
SELECT fairq.create_queue('lapses_2', block_length => 1000);
SELECT pg_temp.poison('lapses_2', 'b1'), pg_temp.add('lapses_1', 'a1 a2'), pg_temp.add('lapses_2', 'd1 d2');
SELECT queue, payload, lapses FROM fairq.pop('{lapses_1,lapses_2}'::text[], 10);
SELECT pg_temp.add('lapses_1', 'a3 a4');
SELECT queue, payload, lapses FROM fairq.pop('{lapses_1,lapses_2}'::text[], 10);
SELECT queue, payload, lapses FROM fairq.pop('{lapses_1,lapses_2}'::text[], 10);
SELECT pg_temp.done('lapses_1'), pg_temp.done('lapses_2');
-- the same holds if a task that is served alone is the first of the second
-- queue
SELECT pg_temp.poison('lapses_2', 'b1'), pg_temp.add('lapses_1', 'a1'), pg_temp.add('lapses_2', 'b2');
SELECT queue, payload, lapses FROM fairq.pop('{lapses_1,lapses_2}'::text[], 10);
SELECT queue, payload, lapses FROM fairq.pop('{lapses_1,lapses_2}'::text[], 10);
SELECT queue, payload, lapses FROM fairq.pop('{lapses_1,lapses_2}'::text[], 10);

-- The same holds with shares, in cost-fair and time-fair queues, and in a full queue.
SELECT fairq.create_queue('lapses_s', block_length => 1000, shares => '{3,1}');
SELECT pg_temp.poison('lapses_s', 'b1', 1), pg_temp.add('lapses_s', 'a1 a2 a3 a4 a5 a6 a7 a8'), pg_temp.add('lapses_s', 'd1 d2', 1);
SELECT fairq.create_queue('lapses_c', fair_by => 'cost'), fairq.create_queue('lapses_t', fair_by => 'time');
SELECT pg_temp.poison(q, 'b1'), pg_temp.add(q, 'a1 a2 b2 c1 c2') FROM unnest('{lapses_c,lapses_t}'::text[]) q;
SELECT fairq.create_queue('lapses_f', max_running => 3);
SELECT pg_temp.add('lapses_f', 'a1'), pg_temp.serve('lapses_f', lease => '1 microsecond');
SELECT fairq.pause('lapses_f', 'a'), pg_temp.poison('lapses_f', 'b1'), fairq.pause('lapses_f', 'b');
SELECT pg_temp.add('lapses_f', 'c1 a2 b2'), pg_temp.serve('lapses_f', lease => '1 microsecond');
SELECT fairq.resume('lapses_f', 'a'), fairq.resume('lapses_f', 'b');
\t on
SELECT format('SELECT pg_temp.serve(%L)', q) FROM unnest('{lapses_s,lapses_c,lapses_t,lapses_f}'::text[]) q, generate_series(1, 4) \gexec
\t off
SELECT queue, c FROM fairq.queues, fairq.check_queue(queue) c WHERE queue LIKE 'lapses%';
SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'lapses%';

-- If a call stopped in a lane that no longer has a task to be served alone, the next call
-- serves the lane's next task.
SELECT fairq.create_queue('lapses_' || by, fair_by => by) FROM unnest('{tasks,cost,time}'::text[]) by;
\t on
SELECT format(statement, 'lapses_' || by)
	FROM unnest('{tasks,cost,time}'::text[]) by, unnest(ARRAY[
		$$SELECT fairq.enqueue(%L, 'a', '"bad"', priority => 5) > 0$$,
		$$SELECT payload FROM fairq.pop(%L, 1, '1 microsecond')$$,
		$$SELECT payload FROM fairq.pop(%L, 1, '1 microsecond')$$,
		$$SELECT fairq.enqueue(%L, 'x', '"first"') > 0$$,
		$$SELECT payload FROM fairq.pop(%L, 10, '1 hour')$$,
		$$SELECT fairq.enqueue(%L, 'a', '"good"', priority => 5) > 0$$,
		$$SELECT fairq.cancel(id) FROM fairq.live_tasks WHERE queue = %L AND payload = '"bad"'$$,
		$$SELECT fairq.expire_leases(%L)$$,
		$$SELECT count(*) FROM fairq.peek(%L, 1)$$,
		$$SELECT payload FROM fairq.pop(%L, 1, '1 hour')$$]) statement \gexec
\t off
SELECT count(fairq.drop_queue('lapses_' || by, true)) FROM unnest('{tasks,cost,time}'::text[]) by;

-- A full queue ends a cancelled task whose lease has expired, although a hold
-- keeps its group from starting tasks. Fails if next_lapsed() in lane_turns.c
-- skips throttled groups.
SELECT fairq.create_queue('lapses_held', max_running => 1, concurrency => 1, max_attempts => 9);
SELECT fairq.enqueue('lapses_held', 'a') AS id \gset
SELECT count(*) FROM fairq.pop('lapses_held', lease => '1 microsecond');
SELECT fairq.enqueue('lapses_held', 'b') > :id AS later;
SELECT fairq.hold('lapses_held', 'a', 'tomorrow');
SELECT count(*) FROM fairq.pop('lapses_held');
SELECT fairq.cancel(:id);
SELECT count(*) FROM fairq.pop('lapses_held');
SELECT group_key FROM fairq.pop('lapses_held');
SELECT fairq.drop_queue('lapses_held', true);
