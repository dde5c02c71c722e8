-- How fair cost-fair and time-fair queues are: the view fairness,
-- group_shares(), and the columns of fairq.groups.
--
-- Fails if a group that has left the ring counts in the spread. Fails if only
-- the last level counts (find_end() in lane_view.c). Fails if a group's rank
-- replaces the amount that the group received (got_of() there). Fails if
-- "ahead" is the value of the last lane only (add_share() in group_stats.c).
-- Fails if groups that got the least come first (compare_shares() there). Fails
-- if the privilege enqueue suffices to read these views.
\a \pset footer off
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/time.psql

CREATE FUNCTION pg_temp.add(queue text, group_key text, cost real DEFAULT NULL,
	n int DEFAULT 1, priority int DEFAULT 0) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(*) FROM fairq.enqueue_batch(queue, array_fill(group_key, ARRAY[n]),
		array_fill('{}'::jsonb, ARRAY[n]), priority, costs => CASE WHEN cost IS NOT NULL THEN array_fill(cost, ARRAY[n]) END)
$$;
CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(group_key, ' ') FROM fairq.pop(queue, n) $$;
-- Shows the columns that do not depend on a clock.
CREATE FUNCTION pg_temp.shares(queue text, top int DEFAULT 20) RETURNS TABLE (group_key text,
	got float8, ahead float8, running int, level int, waits boolean)
LANGUAGE sql AS $$
	SELECT group_key, got, ahead, running, level, waiting_since IS NOT NULL
	FROM fairq.group_shares(queue, top)
$$;

-- Task-fair queues have turns but no accounts.
SELECT fairq.create_queue('fairness');
SELECT * FROM fairq.fairness WHERE queue = 'fairness';
SELECT pg_temp.add('fairness', 'a', n => 3), pg_temp.add('fairness', 'b', priority => 2);
SELECT pg_temp.pop('fairness');
SELECT * FROM fairq.fairness WHERE queue = 'fairness' AND groups_active > 0 ORDER BY priority;
SELECT * FROM fairq.group_shares('fairness');
SELECT group_key, got, ahead FROM fairq.groups WHERE queue = 'fairness' ORDER BY 1;

-- Cost-fair.
SELECT fairq.create_queue('fairness_cost', fair_by => 'cost');
SELECT fairq.set_group('fairness_cost', 'heavy', weight => 2);
SELECT pg_temp.add('fairness_cost', 'a', 3, 9), pg_temp.add('fairness_cost', 'b', 2, 9),
	pg_temp.add('fairness_cost', 'heavy', 5, 9);
-- no group has been served, and none is in the lane's order yet
SELECT * FROM fairq.fairness WHERE queue = 'fairness_cost';
SELECT * FROM pg_temp.shares('fairness_cost');
SELECT pg_temp.pop('fairness_cost', 3);
SELECT * FROM fairq.fairness WHERE queue = 'fairness_cost';
SELECT * FROM pg_temp.shares('fairness_cost');
SELECT pg_temp.pop('fairness_cost', 4);
SELECT * FROM fairq.fairness WHERE queue = 'fairness_cost';
SELECT * FROM pg_temp.shares('fairness_cost');
SELECT * FROM pg_temp.shares('fairness_cost', 1);
SELECT group_key, got, ahead FROM fairq.groups WHERE queue = 'fairness_cost' ORDER BY 1;
-- a turn that yields no task, because its group is paused, charges nothing;
-- paused groups do not count
SELECT fairq.pause('fairness_cost', 'heavy');
SELECT pg_temp.pop('fairness_cost');
SELECT * FROM pg_temp.shares('fairness_cost');
SELECT groups_active, spread FROM fairq.fairness WHERE queue = 'fairness_cost';
SELECT fairq.resume('fairness_cost', 'heavy');
-- groups without tasks do not count
SELECT pg_temp.add('fairness_cost', 'last', 50);
SELECT pg_temp.pop('fairness_cost', 2);
SELECT * FROM fairq.fairness WHERE queue = 'fairness_cost';
SELECT group_key, got, ahead FROM fairq.groups WHERE queue = 'fairness_cost' ORDER BY 1;
-- the view shows each priority separately
SELECT pg_temp.add('fairness_cost', 'a', 1, 9, priority => 3), pg_temp.add('fairness_cost', 'b', 7, 9, priority => 3);
SELECT count(*) FROM fairq.pop('fairness_cost', 25);
SELECT * FROM fairq.fairness WHERE queue = 'fairness_cost' ORDER BY priority;
SELECT * FROM pg_temp.shares('fairness_cost');
SELECT group_key FROM pg_temp.shares('fairness_cost', 2);
-- with a limit the number of running tasks is known
SELECT fairq.set_group('fairness_cost', 'a', concurrency => 99);
SELECT pg_temp.pop('fairness_cost');
SELECT group_key, running FROM pg_temp.shares('fairness_cost') WHERE group_key = 'a';
SELECT pg_temp.pop('fairness_cost', 100) <> '' AS ok;
SELECT * FROM fairq.fairness WHERE queue = 'fairness_cost' AND priority = 3;

-- A group without tasks does not count, also if it is last in the order.
SELECT fairq.create_queue('fairness_last', fair_by => 'cost');
SELECT pg_temp.add('fairness_last', 'a', 2, 9, priority => 5), pg_temp.add('fairness_last', 'b', 3, 9, priority => 5);
SELECT pg_temp.pop('fairness_last', 2);
-- a group's last task is not in its entry's hand, so only a pop finds that the
-- group has no other task
SELECT pg_temp.add('fairness_last', 'rich', 50, 9);
SELECT pg_temp.pop('fairness_last', 9);
SELECT pg_temp.add('fairness_last', 'a', 2, 9), pg_temp.add('fairness_last', 'b', 9, 9);
SELECT pg_temp.pop('fairness_last', 2);
SELECT active, served FROM fairq.lanes WHERE queue = 'fairness_last' AND priority = 0;
SELECT * FROM fairq.fairness WHERE queue = 'fairness_last' AND groups_active > 0 ORDER BY priority;
-- "ahead" of a group is its largest value in any lane
SELECT * FROM pg_temp.shares('fairness_last');

-- Time-fair: seconds, and levels.
SELECT fairq.create_queue('fairness_time', fair_by => 'time');
SELECT pg_temp.add('fairness_time', 'a', n => 9), pg_temp.add('fairness_time', 'b', n => 9), pg_temp.add('fairness_time', 'c', n => 9);
SELECT pg_temp.pop('fairness_time', 3);
SELECT pg_temp.done('fairness_time', 'a', '1 min'), pg_temp.done('fairness_time', 'b', '20 s'), pg_temp.done('fairness_time', 'c', '15 s');
SELECT * FROM fairq.fairness WHERE queue = 'fairness_time';
SELECT * FROM pg_temp.shares('fairness_time');
SELECT group_key, got, ahead FROM fairq.groups WHERE queue = 'fairness_time' ORDER BY 1;
-- two groups have running tasks, at other levels than the groups without
-- tasks, for tens of seconds
SELECT pg_temp.pop('fairness_time', 2);
SELECT group_key, floor(got / 10) AS got, floor(ahead / 10) AS ahead, running, level FROM pg_temp.shares('fairness_time') ORDER BY 1;
SELECT floor(spread / 10) AS spread, longest FROM fairq.fairness WHERE queue = 'fairness_time';
SELECT pg_sleep(0.01);
SELECT group_key, got > 15 AS goes_on FROM pg_temp.shares('fairness_time') WHERE group_key = 'c';
-- the initial charge of a newly active group counts as received
SELECT pg_temp.done('fairness_time', 'b', '0'), pg_temp.done('fairness_time', 'c', '5 s');
SELECT pg_temp.add('fairness_time', 'new', n => 3);
SELECT pg_temp.pop('fairness_time');
SELECT group_key, floor(got / 10) AS got, running FROM pg_temp.shares('fairness_time') ORDER BY 1;
-- the end of a task in an open transaction counts when the transaction commits
BEGIN;
SELECT pg_temp.done('fairness_time', 'new', '9 s');
SELECT floor(got / 10) AS got FROM pg_temp.shares('fairness_time') WHERE group_key = 'new';
ROLLBACK;
SELECT pg_temp.done('fairness_time', 'new', '9 s');
SELECT floor(got) AS got FROM pg_temp.shares('fairness_time') WHERE group_key = 'new';
SELECT fairq.create_queue('fairness_other', fair_by => 'time');
SELECT pg_temp.add('fairness_other', 'a', n => 9);

-- Invalid arguments, an unknown queue, and hints that are lost.
\set VERBOSITY sqlstate
SELECT * FROM fairq.group_shares('fairness_cost', 0);
SELECT * FROM fairq.group_shares('fairness_cost', 1001);
SELECT * FROM fairq.group_shares(NULL);
SELECT * FROM fairq.group_shares('nobody');
SELECT count(*) FROM fairq.group_shares('fairness_time', NULL);
\set VERBOSITY default
SELECT fairq.reset_hints();
SELECT * FROM fairq.fairness WHERE queue LIKE 'fairness%';
SELECT * FROM fairq.group_shares('fairness_time');
SELECT DISTINCT got, ahead FROM fairq.groups WHERE queue LIKE 'fairness%';
SELECT pg_temp.pop('fairness_time');
SELECT * FROM fairq.fairness WHERE queue = 'fairness_time' AND groups_active > 0;
SELECT group_key, floor(got) AS got, floor(ahead) AS ahead, running FROM pg_temp.shares('fairness_time');

-- Queues that the role may not monitor are left out.
CREATE TEMP TABLE ids AS SELECT DISTINCT q.queue, t.queue_id
FROM fairq.queues q JOIN fairq.live_tasks l USING (queue) JOIN fairq.task t USING (id) WHERE queue LIKE 'fairness%';
GRANT SELECT ON ids TO PUBLIC;
CREATE ROLE regress_fairness;
GRANT USAGE ON SCHEMA fairq_internal TO regress_fairness;
SELECT fairq.grant_queue('fairness_time', 'regress_fairness', 'enqueue');
SELECT fairq.grant_queue('fairness_other', 'regress_fairness', 'monitor');
SELECT pg_temp.pop('fairness_other') IS NOT NULL AS ok;
SET ROLE regress_fairness;
SELECT DISTINCT queue FROM fairq.fairness;
SELECT count(*) > 0 AS ok FROM fairq.group_shares('fairness_other');
\set VERBOSITY sqlstate
SELECT * FROM fairq.group_shares('fairness_time');
\set VERBOSITY default
SELECT queue, got IS NOT NULL AS known FROM ids, fairq_internal.group_state(queue_id, 0) ORDER BY queue COLLATE "C";
RESET ROLE;
GRANT pg_monitor TO regress_fairness;
SET ROLE regress_fairness;
SELECT queue FROM fairq.fairness WHERE queue LIKE 'fairness%' GROUP BY queue ORDER BY queue COLLATE "C";
SELECT count(*) > 0 AS ok FROM fairq.group_shares('fairness_time');
RESET ROLE;
SELECT queue, got IS NOT NULL AS known FROM ids, fairq_internal.group_state(queue_id, 0) ORDER BY queue COLLATE "C";

-- An invalid group number yields NULL. Fails if -2147483648 makes the server crash.
SELECT DISTINCT n, got, ahead FROM ids, unnest(ARRAY[-2147483648, -64, -1, 2147483647]) n, fairq_internal.group_state(queue_id, n) ORDER BY n;
SELECT fairq.revoke_queue('fairness_time', 'regress_fairness', 'enqueue'), fairq.revoke_queue('fairness_other', 'regress_fairness', 'monitor');
REVOKE USAGE ON SCHEMA fairq_internal FROM regress_fairness;
DROP ROLE regress_fairness;

SELECT count(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'fairness%';
