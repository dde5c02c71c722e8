-- Shares of priorities determine the lane of each task exactly. A newly active
-- lane has no credit, and other rules still apply.
--
-- Fails if a newly active lane begins with the amount that it had before (find_starts()
-- in shares.c). Fails if lanes with equal amounts are not ordered by priority
-- (is_before() there). Fails if unserved tasks stay charged (settle_charge() there, and
-- after an error fairq_serve_end() in serve.c). Fails if a run of a lane is as long as
-- the call. Fails if the turns of one window of per_group are of several lanes
-- (serve_by_shares() and is_over() in serve.c). Fails if peek() sees all lanes as equal
-- (copy_queue() in serve.c). Fails if all tasks of a window of per_group advance the
-- virtual time (settle_charge() there). Cost-fair: fails if each task is charged as
-- one, or a lane is chosen for several tasks at once (fairq_charge_of() in claim.h,
-- choose_lane() in serve.c). Time-fair: fails if a newly active lane is not charged or
-- is not the first of equals. Fails if new shares do not make all lanes equal. Fails
-- if levels do not count (find_got(), is_before(), key_of() in shares.c), or if peek()
-- does not count tasks that it has already returned as running.
\a \pset footer off
\set VERBOSITY sqlstate

-- The priorities of the tasks that a pop returns, and whether peek() returned
-- the same.
CREATE FUNCTION pg_temp.pop(of text, n int DEFAULT 1, per_group int DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	foreseen bigint[] := array(SELECT id FROM fairq.peek(of, n));
	served bigint[];
	shown text;
BEGIN
	SELECT coalesce(array_agg(id ORDER BY ordinality), '{}'), string_agg(priority::text, '' ORDER BY ordinality)
	INTO served, shown
	FROM fairq.pop(of, n, per_group => per_group) WITH ORDINALITY;
	PERFORM fairq.complete_batch(served);
	RETURN CASE WHEN foreseen = served OR per_group IS NOT NULL THEN coalesce(shown, 'nothing')
		ELSE format('foreseen: %s, served: %s', foreseen, served) END;
END $$;
CREATE FUNCTION pg_temp.enqueue(of text, priority int, n int, groups int DEFAULT 3) RETURNS void LANGUAGE sql AS $$
	SELECT fairq.enqueue_batch(of, array_agg('g' || i % groups), array_agg('{}'::jsonb), priority)
	FROM generate_series(1, n) i
$$;
-- The results of many pops of n tasks each, as one string.
CREATE FUNCTION pg_temp.pops(of text, times int, n int DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r text := '';
BEGIN
	FOR i IN 1 .. times LOOP
		r := r || pg_temp.pop(of, n);
	END LOOP;
	RETURN r;
END $$;

-- Many pops of one task, each in a transaction of its own, so that slots are free again.
CREATE PROCEDURE pg_temp.pops_apart(of text, times int, INOUT r text DEFAULT '') LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		r := r || pg_temp.pop(of);
		COMMIT;
	END LOOP;
END $$;

--
-- Settings
--

SELECT fairq.create_queue('shares_bad', shares => '{}');
SELECT fairq.create_queue('shares_bad', shares => '{1,2,3,4,5,6,7,8,9,10,11}');
SELECT fairq.create_queue('shares_bad', shares => '{0}');
SELECT fairq.create_queue('shares_bad', shares => '{1,1000001}');
SELECT fairq.create_queue('shares_bad', shares => '{1,NULL}');
SELECT fairq.create_queue('shares_bad', shares => '{{1},{2}}');
SELECT fairq.create_queue('shares', shares => '{70,20,10}');
SELECT fairq.alter_queue('shares', shares => '{-1}');
SELECT fairq.alter_queue('shares', shares => '{{1,2}}');
SELECT fairq.alter_queue('shares', notify => false);
SELECT queue, shares FROM fairq.queues WHERE queue LIKE 'shares%';
SELECT fairq.alter_queue('shares', shares => '{}');
SELECT queue, shares FROM fairq.queues WHERE queue LIKE 'shares%';
SELECT fairq.alter_queue('shares', shares => '{7,2,1}');
SELECT queue, shares FROM fairq.queues WHERE queue LIKE 'shares%';

--
-- The order, with one task per call and with many; lanes without a share come
-- last
--

SELECT pg_temp.enqueue('shares', p, 40) FROM generate_series(0, 3) p;
SELECT pg_temp.pops('shares', 20);
SELECT pg_temp.pops('shares', 2, 10);
SELECT pg_temp.pop('shares', 20);
-- lane 0 becomes empty, then lane 1; lanes without a share follow
SELECT pg_temp.pop('shares', 200);
SELECT pg_temp.pop('shares', 20);

--
-- A newly active lane begins where the others are, and has no credit
--

SELECT pg_temp.enqueue('shares', 2, 30);
SELECT pg_temp.pops('shares', 20);
SELECT pg_temp.enqueue('shares', 0, 20);
SELECT pg_temp.pops('shares', 20);
SELECT pg_temp.enqueue('shares', 1, 4);
SELECT pg_temp.pops('shares', 20);

-- after that all lanes have got equal amounts, or nearly
SELECT pg_temp.enqueue('shares', p, 20) FROM generate_series(0, 2) p;
SELECT pg_temp.pop('shares', 20);

-- the lanes contain the same group
SELECT fairq.purge('shares') > 0;
SELECT pg_temp.enqueue('shares', p, 20, 1) FROM generate_series(0, 2) p;
SELECT pg_temp.pops('shares', 10, 2);

--
-- A change of the shares makes the amounts of all lanes equal. Without shares
-- the order of priorities is strict.
--

SELECT fairq.alter_queue('shares', shares => '{1,3}');
SELECT pg_temp.pops('shares', 8);
SELECT fairq.alter_queue('shares', shares => '{1,3,1}');
SELECT pg_temp.pop('shares', 8);
SELECT fairq.alter_queue('shares', shares => '{}');
SELECT pg_temp.pop('shares', 8);
-- the loss of hints does not change what each lane has received
SELECT pg_temp.enqueue('shares', p, 20) FROM generate_series(0, 1) p;
SELECT fairq.alter_queue('shares', shares => '{1,3}');
SELECT pg_temp.pops('shares', 3);
SELECT fairq.reset_hints();
SELECT pg_temp.pops('shares', 6);
SELECT fairq.purge('shares') > 0;

--
-- The bound holds between any two tasks. After a number of tasks that is a
-- multiple of the sum of the shares, each lane has exactly its share. The
-- shares have no small common multiple.
--

CREATE TEMP TABLE served (n int, p int);
SELECT fairq.alter_queue('shares', shares => '{13,7,5,1}');
SELECT pg_temp.enqueue('shares', p, 260) FROM generate_series(0, 3) p;
INSERT INTO served SELECT i, p::int FROM string_to_table(pg_temp.pops('shares', 30, 7), NULL) WITH ORDINALITY t(p, i);
WITH share(p, s) AS (VALUES (0, 13), (1, 7), (2, 5), (3, 1)),
so_far AS (
	SELECT a.n, share.p, s, count(b.n) AS served
	FROM served a CROSS JOIN share LEFT JOIN served b ON b.n <= a.n AND b.p = share.p
	GROUP BY 1, 2, 3)
SELECT count(*) > 0 AS compared,
	max(abs((b.served - a.served)::numeric / a.s - (d.served - c.served)::numeric / c.s) / (1.0 / a.s + 1.0 / c.s)) <= 1 AS bound
FROM so_far a JOIN so_far b ON b.p = a.p AND b.n > a.n
JOIN so_far c ON c.n = a.n AND c.p > a.p JOIN so_far d ON d.p = c.p AND d.n = b.n;
SELECT p, count(*) FROM served WHERE n <= 208 GROUP BY p ORDER BY p;
SELECT fairq.purge('shares') > 0;

-- extreme shares are exact, too: no lane drifts, and no product overflows
SELECT fairq.alter_queue('shares', shares => '{999999,1000000,1}');
SELECT pg_temp.enqueue('shares', p, 12) FROM generate_series(0, 2) p;
SELECT pg_temp.pops('shares', 5, 4);
SELECT fairq.purge('shares') > 0;

--
-- Weights, per_group, limits, a full queue, take
--

SELECT fairq.alter_queue('shares', shares => '{2,1}');
SELECT fairq.set_group('shares', 'g0', weight => 3);
SELECT pg_temp.enqueue('shares', p, 30) FROM generate_series(0, 1) p;
SELECT pg_temp.pops('shares', 6, 3);
-- all turns in one window of per_group come from one lane, which is charged for
-- all of them
SELECT pg_temp.pop('shares', 9, per_group => 1);
SELECT pg_temp.pop('shares', 9, per_group => 1);
SELECT pg_temp.pops('shares', 6);
SELECT fairq.purge('shares') > 0;
SELECT fairq.set_group('shares', 'g0', weight => 0);
SELECT fairq.alter_queue('shares', concurrency => 1);
SELECT pg_temp.enqueue('shares', p, 9, 1) FROM generate_series(0, 1) p;
CALL pg_temp.pops_apart('shares', 7);
SELECT pg_temp.pop('shares', 6);
-- a lane whose group has no slot is skipped, and earns no credit
SELECT id AS running FROM fairq.pop('shares') \gset
SELECT pg_temp.pop('shares', 6);
SELECT fairq.complete(:running);
SELECT fairq.purge('shares') > 0;
SELECT fairq.alter_queue('shares', concurrency => 0, max_running => 1);
SELECT pg_temp.enqueue('shares', p, 9) FROM generate_series(0, 1) p;
CALL pg_temp.pops_apart('shares', 7);
-- lapsed tasks of a full queue are served according to the shares
SELECT fairq.alter_queue('shares', max_running => 9);
SELECT string_agg(priority::text, '') FROM fairq.pop('shares', 20, '1 microsecond');
SELECT pg_temp.pop('shares', 6);
SELECT pg_temp.pop('shares', 20);
SELECT fairq.alter_queue('shares', max_running => 0);
SELECT fairq.purge('shares') >= 0;
SELECT pg_temp.enqueue('shares', p, 6) FROM generate_series(0, 1) p;
SELECT string_agg(priority::text, '') FROM fairq.take('shares', 6);
CALL fairq.wait('shares', '0');
-- a task whose pop is rolled back stays charged, and its group has used its
-- turn
BEGIN;
SELECT pg_temp.pop('shares', 2);
ROLLBACK;
SELECT pg_temp.pop('shares', 6);
-- a failed call returns its charges, except that of one task
SELECT fairq.alter_queue('shares', shares => '{1,1}');
SELECT pg_temp.enqueue('shares', 0, 50000);
SET statement_timeout = '50 ms';
SELECT count(*) FROM fairq.pop('shares', 50000);
SELECT count(*) FROM fairq.pop('shares', 50000);
RESET statement_timeout;
SELECT pg_temp.enqueue('shares', 1, 10);
SELECT pg_temp.pops('shares', 8);
SELECT * FROM fairq.check_queue('shares');
SELECT fairq.drop_queue('shares', force => true);

--
-- In cost-fair queues, shares are shares of the cost. Each task of a large pop
-- is of the lane that is next, as with many small pops.
--

SELECT fairq.create_queue('shares', fair_by => 'cost', shares => '{1,1}');
CREATE FUNCTION pg_temp.enqueue_at(of text, priority int, n int, cost real) RETURNS void LANGUAGE sql AS $$
	SELECT fairq.enqueue_batch(of, array_agg('g' || i % 3), array_agg('{}'::jsonb), priority, costs => array_agg(cost))
	FROM generate_series(1, n) i
$$;
SELECT pg_temp.enqueue_at('shares', 0, 20, 3), pg_temp.enqueue_at('shares', 1, 60, 1);
SELECT pg_temp.pops('shares', 12);
SELECT pg_temp.pops('shares', 2, 8);
-- all turns in one window of per_group come from one lane, which is charged for
-- all of them
SELECT pg_temp.pop('shares', 4, per_group => 1);
SELECT pg_temp.pops('shares', 8);
-- an idle lane earns no credit
SELECT fairq.purge('shares') > 0;
SELECT pg_temp.enqueue_at('shares', 0, 9, 1000000), pg_temp.enqueue_at('shares', 1, 9, 1e-30);
SELECT pg_temp.pops('shares', 12);
SELECT fairq.purge('shares') > 0;
-- the bound, in cost, holds between any two tasks, with costs of 1 to 20
SELECT fairq.alter_queue('shares', shares => '{13,7,5}');
SELECT fairq.enqueue('shares', 'g' || i % 5, jsonb_build_object('cost', cost), priority => p, cost => cost)
FROM generate_series(0, 2) p, generate_series(1, 150) i, LATERAL (SELECT 1 + (i * i + 7 * i + p) % 20) c(cost) \g /dev/null
CREATE TEMP TABLE charged (n int, p int, cost int);
DO $$
BEGIN
	FOR i IN 1 .. 30 LOOP
		INSERT INTO charged SELECT 7 * i + ordinality, priority, (payload ->> 'cost')::int
		FROM fairq.pop('shares', 7) WITH ORDINALITY;
	END LOOP;
END $$;
WITH share(p, s) AS (VALUES (0, 13), (1, 7), (2, 5)),
so_far AS (
	SELECT a.n, share.p, s, coalesce(sum(b.cost), 0) AS served
	FROM charged a CROSS JOIN share LEFT JOIN charged b ON b.n <= a.n AND b.p = share.p
	GROUP BY 1, 2, 3)
SELECT count(*) > 0 AS compared,
	max(abs((b.served - a.served)::numeric / a.s - (d.served - c.served)::numeric / c.s) / (20.0 / a.s + 20.0 / c.s)) <= 1 AS bound
FROM so_far a JOIN so_far b ON b.p = a.p AND b.n > a.n
JOIN so_far c ON c.n = a.n AND c.p > a.p JOIN so_far d ON d.p = c.p AND d.n = b.n;
SELECT * FROM fairq.check_queue('shares');
SELECT fairq.drop_queue('shares', force => true);

--
-- In time-fair queues, shares are shares of worker time. Which lane is next, if
-- tasks of priority 0 take ten seconds, and other tasks take one second.
--

SELECT fairq.create_queue('shares', fair_by => 'time', shares => '{1,1}');
SELECT pg_temp.enqueue('shares', p, 60) FROM generate_series(0, 2) p;
-- The priorities that many pops serve, each pop in a transaction of its own.
CREATE PROCEDURE pg_temp.work(of text, times int, INOUT r text DEFAULT '') LANGUAGE plpgsql AS $$
DECLARE
	foreseen bigint;
	id bigint;
	priority int;
BEGIN
	FOR i IN 1 .. times LOOP
		foreseen := (SELECT p.id FROM fairq.peek(of, 1) p);
		SELECT p.id, p.priority INTO id, priority FROM fairq.pop(of) p;
		COMMIT;
		PERFORM fairq.complete(id, took => CASE priority WHEN 0 THEN '10 s' ELSE '1 s' END::interval);
		COMMIT;
		r := r || priority || CASE WHEN id = foreseen THEN '' ELSE '?' END;
	END LOOP;
END $$;
CALL pg_temp.work('shares', 1);
CALL pg_temp.work('shares', 24);
-- each level of running tasks counts as a task that takes as long as the
-- longest one
CREATE TEMP TABLE running AS SELECT id, priority FROM fairq.pop('shares', 6);
SELECT string_agg(priority::text, '' ORDER BY ctid) FROM running;
SELECT string_agg(t.priority::text, '' ORDER BY n) FROM fairq.peek('shares', 6) WITH ORDINALITY p(id, group_key, addr, enqueued_at, n) JOIN fairq.task t USING (id);
SELECT count(*) FROM running, fairq.complete(id, took => '10 s');
-- with shares of 3 and 1, lane 0 gets three times the time
SELECT fairq.alter_queue('shares', shares => '{3,1}');
CALL pg_temp.work('shares', 1);
CALL pg_temp.work('shares', 30);
-- a level is the number of running tasks divided by the lane's share
SELECT string_agg(priority::text, '') FROM fairq.pop('shares', 8);
SELECT fairq.purge('shares') > 0;
SELECT fairq.complete(id, took => '1 s') FROM fairq.tasks WHERE queue = 'shares' AND status = 'running';
-- an idle lane earns no credit
SELECT fairq.drop_queue('shares', force => true);
SELECT fairq.create_queue('shares', fair_by => 'time', shares => '{1,1}');
SELECT pg_temp.enqueue('shares', 1, 60);
CALL pg_temp.work('shares', 20);
SELECT pg_temp.enqueue('shares', 0, 9);
CALL pg_temp.work('shares', 13);
-- a rolled back pop uses no time
BEGIN;
SELECT string_agg(priority::text, '') FROM fairq.pop('shares', 4);
ROLLBACK;
CALL pg_temp.work('shares', 12);
SELECT * FROM fairq.check_queue('shares');
SELECT fairq.drop_queue('shares', force => true);
