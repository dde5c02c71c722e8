-- The contents of shared memory for lanes and their groups, as fairq.lanes and
-- fairq.lane_groups() show them.
--
-- Fails if invalid data is shown (fairq_lane_view() in lane_view.c). Fails if
-- lane_groups() visits only the groups of one set (fairq_lane_waits() in
-- lane_view.c). Fails if the view creates a queue's hints. Fails if a parked
-- group behind lapsed groups is not found (lapse_word() in seats.c).
\a \t
SET client_min_messages = warning;
-- if an interrupted run left them
DROP ROLE IF EXISTS regress_fairq_nobody, regress_fairq_enqueue, regress_fairq_monitor;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- Shows lanes with the groups of each set, one lane per line. Addresses are
-- shown as blocks.
CREATE FUNCTION pg_temp.show(of text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('priority %s %s, block %s, seat %s, turn %s:', priority,
			CASE WHEN known THEN 'known' WHEN known_from IS NULL THEN 'not known'
				ELSE format('known from %s to %s', known_from, known_to) END,
			block, seat, turn / q.block_length)
		|| (SELECT string_agg(format(' %s %s', n, name), '' ORDER BY at)
			FROM unnest(ARRAY[active, front, served, parked, late, due, leased, lapsed],
				'{active,front,served,parked,late,due,leased,lapsed}'::text[])
				WITH ORDINALITY s(n, name, at)
			WHERE n > 0)
	FROM fairq.lanes l JOIN fairq.queue q ON q.name = l.queue
	WHERE queue = of AND active + served + parked + leased + lapsed > 0 ORDER BY priority
$$;
CREATE FUNCTION pg_temp.show_groups(of text, of_priority int DEFAULT 0)
	RETURNS TABLE (group_key text, state text, next_turn bigint, next_task bigint)
	LANGUAGE sql AS $$
	SELECT n.group_key, l.state, l.next_turn / block_length, l.next_task / block_length
	FROM fairq.lane_groups(of, of_priority) l
	JOIN fairq.queue q ON q.name = of
	JOIN (SELECT DISTINCT * FROM fairq.group_number) n USING (queue_id, group_no)
	ORDER BY group_no
$$;

--
-- A fresh queue, tasks, pops
--

SELECT fairq.create_queue('lanes', block_length => 1000);
SELECT * FROM pg_temp.show('lanes');
SELECT * FROM pg_temp.show_groups('lanes');

SELECT count(fairq.enqueue('lanes', g)) FROM unnest('{a,a,b,c}'::text[]) g;
SELECT * FROM pg_temp.show('lanes');
SELECT * FROM pg_temp.show_groups('lanes');
SELECT * FROM fairq.lane_groups('lanes', 0);

SELECT id AS first, group_key, addr FROM fairq.pop('lanes') \gset
SELECT :'group_key' AS group_key, :addr AS addr;
SELECT turn = :addr AS same FROM fairq.lanes WHERE queue = 'lanes';
SELECT * FROM pg_temp.show('lanes');
SELECT * FROM pg_temp.show_groups('lanes');
SELECT group_key FROM fairq.pop('lanes', 3);
SELECT * FROM pg_temp.show('lanes');
SELECT * FROM pg_temp.show_groups('lanes');

-- next_lease_end is not later than the first end of a lease
SELECT next_retry, next_scheduled,
	next_lease_end <= (SELECT min(lease_until) FROM fairq.tasks WHERE queue = 'lanes') AS lease
FROM fairq.lanes WHERE queue = 'lanes';

-- a group that becomes active after its seat was passed, and has not been
-- served, is in front
SELECT fairq.enqueue('lanes', 'c') > 0 AS ok;
SELECT group_key FROM fairq.pop('lanes');
SELECT fairq.enqueue('lanes', 'b') > 0 AS ok;
SELECT * FROM pg_temp.show_groups('lanes');
SELECT group_key FROM fairq.pop('lanes');

-- a timer has a time in milliseconds
SELECT fairq.fail(:first, retry_in => '1 hour');
SELECT next_retry - run_at BETWEEN '0' AND '1 ms' AS retry
FROM fairq.lanes JOIN fairq.tasks USING (queue) WHERE id = :first AND lanes.priority = 0;
SELECT fairq.purge('lanes');

--
-- With a limit, a group is parked and later taken back
--

SELECT fairq.create_queue('lanes_limit', concurrency => 1);
SELECT count(fairq.enqueue('lanes_limit', g, priority => 3)) FROM unnest('{a,a,b}'::text[]) g;
SELECT id AS first, group_key FROM fairq.pop('lanes_limit') \gset
SELECT group_key FROM fairq.pop('lanes_limit', 5);
SELECT * FROM pg_temp.show('lanes_limit');
SELECT * FROM pg_temp.show_groups('lanes_limit', 3);
SELECT * FROM pg_temp.show_groups('lanes_limit', 2);
SELECT fairq.complete(:first);
SELECT * FROM pg_temp.show_groups('lanes_limit', 3);

--
-- Tasks with a time
--

SELECT fairq.create_queue('lanes_time');
SELECT fairq.enqueue('lanes_time', 'a', run_at => now() + '1 day') > 0 AS ok;
SELECT fairq.enqueue('lanes_time', 'b', run_at => 'infinity', priority => 1) > 0 AS ok;
SELECT count(*) FROM fairq.pop('lanes_time');
SELECT * FROM pg_temp.show('lanes_time');
SELECT priority, next_retry, next_lease_end,
	CASE WHEN next_scheduled BETWEEN now() + '23 hours' AND now() + '25 hours' THEN 'in a day'
		ELSE next_scheduled::text END AS next_scheduled
FROM fairq.lanes WHERE queue = 'lanes_time' AND priority < 3 ORDER BY 1;
SELECT count(fairq.enqueue('lanes_time', 'a', run_at => clock_timestamp() + '50 ms'::interval * n))
FROM generate_series(1, 3) n;
SELECT pg_sleep(0.2);
-- no set changes when a task becomes due or its lease expires, until a pop
-- finds such a task
SELECT * FROM pg_temp.show_groups('lanes_time');
SELECT group_key FROM fairq.pop('lanes_time', lease => '1 us');
SELECT * FROM pg_temp.show_groups('lanes_time');
SELECT pg_sleep(0.01);
SELECT * FROM pg_temp.show('lanes_time');
SELECT group_key FROM fairq.pop('lanes_time', lease => '1 us');
SELECT pg_sleep(0.01);
CALL fairq.wait('lanes_time');
SELECT * FROM pg_temp.show('lanes_time');
SELECT group_key FROM generate_series(1, 3) n, LATERAL fairq.pop('lanes_time', n);
SELECT * FROM pg_temp.show_groups('lanes_time');

--
-- A parked group behind a group that was also parked, but only until its lease
-- ended. take() records no leases, so the parked group is in no other set.
--

SELECT fairq.create_queue('lanes_parked', concurrency => 1);
SELECT count(*) FROM fairq.enqueue_batch('lanes_parked',
	(SELECT array_agg('g' || n) FROM generate_series(1, 450) n), array_fill('1'::jsonb, '{450}'));
SELECT count(*) FROM fairq.take('lanes_parked', 450);
SELECT fairq.pause('lanes_parked', 'g450');
SELECT count(fairq.enqueue('lanes_parked', g)) FROM unnest('{g350,g350,g450}'::text[]) g;
SELECT group_key FROM fairq.pop('lanes_parked');
SELECT count(*) FROM fairq.take('lanes_parked');
SELECT group_key, state FROM pg_temp.show_groups('lanes_parked');
SELECT count(fairq.extend(id, lease => '1 microsecond')) FROM fairq.live_tasks WHERE queue = 'lanes_parked';
SELECT group_key FROM fairq.pop('lanes_parked');
SELECT group_key, state FROM pg_temp.show_groups('lanes_parked');

--
-- Uncommitted tasks of this transaction are published when its own pop runs
--

SELECT fairq.create_queue('lanes_own');
BEGIN;
SELECT count(fairq.enqueue('lanes_own', g)) FROM unnest('{a,b}'::text[]) g;
SELECT * FROM pg_temp.show_groups('lanes_own');
SELECT group_key FROM fairq.pop('lanes_own');
SELECT * FROM pg_temp.show_groups('lanes_own');
ROLLBACK;
SELECT * FROM pg_temp.show_groups('lanes_own');
SELECT group_key FROM fairq.pop('lanes_own');
SELECT * FROM pg_temp.show('lanes_own');

--
-- After a reset only leases are known; recovery proceeds in steps
--

SELECT fairq.create_queue('lanes_many');
SELECT count(*) FROM fairq.enqueue_batch('lanes_many',
	(SELECT array_agg('g' || n) FROM generate_series(1, 300) n), array_fill('1'::jsonb, '{300}'));
SELECT group_key FROM fairq.pop('lanes_many');
SELECT count(*), count(next_task), min(group_no), max(group_no), count(DISTINCT group_no)
FROM fairq.lane_groups('lanes_many', 0);
SELECT fairq.reset_hints();
SELECT * FROM pg_temp.show('lanes_own');
SELECT * FROM pg_temp.show('lanes_many');
SELECT * FROM fairq.lane_groups('lanes_many', 0);
SELECT known, block, seat, turn, next_retry, next_scheduled, next_lease_end > now() AS lease
FROM fairq.lanes WHERE queue = 'lanes_many';
SELECT group_key FROM fairq.pop('lanes_many');
SELECT known, known_from, known_to BETWEEN 2 AND 299 AS partly, active BETWEEN 1 AND 298 AS some_active
FROM fairq.lanes WHERE queue = 'lanes_many' AND priority = 0;
SELECT count(*) < 300 AS not_all FROM fairq.lane_groups('lanes_many', 0);
SELECT count(*) FROM fairq.pop('lanes_many', 300);
SELECT * FROM pg_temp.show('lanes_many');

-- groups of the other queues are known again, too, once a call serves these
-- queues
SELECT count(*) FROM fairq.pop('lanes');
-- (the call requests more tasks than there are, to reach the last lane)
SELECT count(*) FROM fairq.pop('lanes_limit', 5);
SELECT fairq.enqueue('lanes_limit', 'c', priority => 3) > 0 AS ok;

--
-- The views add no queue to shared memory
--

-- SQL adds this queue, since each function of fairq would create its hints.
INSERT INTO fairq.queue (name, block_length, lease, max_attempts, notify, backoff)
VALUES ('lanes_fresh', 1000, '1 min', 1, false, '1 s');
BEGIN;
SELECT count(*) FROM fairq.lane_groups('lanes_fresh', 0);
SELECT count(*) FROM fairq.lanes WHERE queue = 'lanes_fresh';
-- lane_groups() locks a queue that is in shared memory, so the lock shows
-- whether a queue is there
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND classid = 'fairq.queue'::regclass;
SELECT count(*) FROM fairq.lane_groups('lanes', 0);
SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND classid = 'fairq.queue'::regclass;
COMMIT;

-- read-only transactions can use the views, at each isolation level
BEGIN READ ONLY ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM pg_temp.show('lanes_many');
SELECT count(*) FROM fairq.lane_groups('lanes_many', 0);
COMMIT;

-- the view locks no queue
BEGIN;
SELECT count(*) > 0 AS any FROM fairq.lanes;
SELECT count(*) FROM pg_locks
WHERE pid = pg_backend_pid() AND classid = 'fairq.queue'::regclass;
COMMIT;

--
-- Errors and privileges
--

SELECT fairq.lane_groups(NULL, 0);
SELECT fairq.lane_groups('lanes', NULL);
SELECT fairq.lane_groups('lanes', -1);
SELECT fairq.lane_groups('lanes', 10);
SELECT fairq.lane_groups('nowhere', 0);
SELECT fairq.lane_groups(repeat('x', 58), 0);

CREATE ROLE regress_fairq_nobody;
CREATE ROLE regress_fairq_enqueue;
CREATE ROLE regress_fairq_monitor;
SELECT fairq.grant_queue('lanes_limit', 'regress_fairq_enqueue', 'enqueue');
SELECT fairq.grant_queue('lanes_limit', 'regress_fairq_monitor', 'monitor');
SET ROLE regress_fairq_nobody;
SELECT count(*) FROM fairq.lanes;
SELECT fairq.lane_groups('lanes_limit', 3);
SELECT fairq.lane_groups('nowhere', 3);
SET ROLE regress_fairq_enqueue;
SELECT count(*) FROM fairq.lanes;
SELECT fairq.lane_groups('lanes_limit', 3);
SET ROLE regress_fairq_monitor;
SELECT queue, priority, active FROM fairq.lanes;
SELECT count(*) FROM fairq.lane_groups('lanes_limit', 3);
SELECT fairq.lane_groups('lanes', 0);
RESET ROLE;
-- the same for a queue that is not in shared memory
INSERT INTO fairq.queue_privilege SELECT queue_id, r::regrole, p
FROM fairq.queue, (VALUES ('regress_fairq_enqueue', 'enqueue'), ('regress_fairq_monitor', 'monitor')) v(r, p)
WHERE name = 'lanes_fresh';
SET ROLE regress_fairq_enqueue;
SELECT fairq.lane_groups('lanes_fresh', 0);
SET ROLE regress_fairq_monitor;
BEGIN;
SELECT count(*) FROM fairq.lane_groups('lanes_fresh', 0);
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'object';
COMMIT;
RESET ROLE;

-- DROP EXTENSION, which locks no queue, waits for a reader of a queue
BEGIN;
SELECT count(*) FROM fairq.lane_groups('lanes_limit', 3);
SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'fairq.task'::regclass;
COMMIT;

-- a queue that this transaction has dropped is not shown
BEGIN;
SELECT fairq.drop_queue('lanes_limit', true);
SELECT count(*) FROM fairq.lanes WHERE queue = 'lanes_limit';
SELECT fairq.lane_groups('lanes_limit', 3);
ROLLBACK;
SELECT count(*) FROM fairq.lane_groups('lanes_limit', 3);
SELECT fairq.drop_queue('lanes_limit', true);
SELECT count(*) FROM fairq.lanes WHERE queue = 'lanes_limit';
SELECT fairq.lane_groups('lanes_limit', 3);

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'lanes%';
SELECT count(*) FROM fairq.lanes WHERE queue LIKE 'lanes%';
DROP ROLE regress_fairq_nobody, regress_fairq_enqueue, regress_fairq_monitor;
