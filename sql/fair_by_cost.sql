-- Cost-fair queues: all groups get the same cost per weight.
--
-- Fails if an active or newly active group is not charged. Fails if the
-- estimated cost of a turn is not corrected. Fails if a turn that yields no
-- task is charged (fairq_account_comes(), fairq_lane_charge(),
-- fairq_account_uncharge(), fairq_lane_order_back()).
\a \t

-- Adds tasks <group><from> to <group><upto> of that cost.
CREATE FUNCTION pg_temp.add(queue text, group_key text, "from" int, upto int,
	cost real DEFAULT NULL, priority int DEFAULT 0) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue(queue, group_key, to_jsonb(group_key || i),
		cost => cost, priority => priority))
	FROM generate_series("from", upto) i
$$;

CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1, per_group int DEFAULT NULL)
	RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ')
	FROM fairq.pop(queue, n, per_group => per_group)
$$;

-- A group whose tasks cost 3 is served once while other groups, whose tasks
-- cost 1, are served three times.
SELECT fairq.create_queue('cost', fair_by => 'cost');
SELECT fair_by FROM fairq.queues WHERE queue = 'cost';
SELECT pg_temp.add('cost', 'a', 1, 6, 3), pg_temp.add('cost', 'b', 1, 20);
SELECT pg_temp.pop('cost', 12);
-- one task per pop gives the same order
SELECT string_agg(pg_temp.pop('cost'), ' ') FROM generate_series(1, 8);
-- a newly active group is next; so is a group that was inactive, which has no
-- credit
SELECT pg_temp.add('cost', 'c', 1, 5, 0.5);
SELECT pg_temp.pop('cost', 9);
SELECT pg_temp.pop('cost', 100);
SELECT count(*), count(DISTINCT cost), sum(cost) FROM fairq.tasks WHERE queue = 'cost';
SELECT * FROM fairq.check_queue('cost');

-- After other groups were served while a group was idle, the group gets the same as
-- they do. A group that got more than its share still owes the excess.
SELECT fairq.create_queue('cost_idle', fair_by => 'cost');
SELECT pg_temp.add('cost_idle', 'a', 1, 100), pg_temp.add('cost_idle', 'idle', 1, 1);
SELECT pg_temp.pop('cost_idle', 40) LIKE '%idle1%' AS served;
SELECT pg_temp.add('cost_idle', 'idle', 2, 10);
SELECT pg_temp.pop('cost_idle', 6);
SELECT pg_temp.add('cost_idle', 'debtor', 1, 1, 5), pg_temp.pop('cost_idle', 1);
SELECT pg_temp.add('cost_idle', 'debtor', 2, 3, 5), pg_temp.pop('cost_idle', 14);
SELECT * FROM fairq.check_queue('cost_idle');

-- A group of weight 2 gets twice the cost. Weights apply at once.
SELECT fairq.create_queue('cost_weights', fair_by => 'cost');
SELECT fairq.set_group('cost_weights', 'a', weight => 2);
SELECT pg_temp.add('cost_weights', 'a', 1, 20, 2), pg_temp.add('cost_weights', 'b', 1, 20, 2);
SELECT pg_temp.pop('cost_weights', 9);
SELECT fairq.set_group('cost_weights', 'a', weight => 0);
SELECT fairq.set_group('cost_weights', 'b', weight => 3);
SELECT pg_temp.pop('cost_weights', 12);
SELECT * FROM fairq.check_queue('cost_weights');

-- a call serves at most per_group tasks of each group, times the group's weight
SELECT fairq.create_queue('cost_per_group', fair_by => 'cost');
SELECT fairq.set_group('cost_per_group', 'c', weight => 2);
SELECT pg_temp.add('cost_per_group', 'a', 1, 9, 0.1), pg_temp.add('cost_per_group', 'b', 1, 9, 10),
	pg_temp.add('cost_per_group', 'c', 1, 9, 1);
SELECT pg_temp.pop('cost_per_group', 100, 2);
SELECT pg_temp.pop('cost_per_group', 100, 1);
SELECT * FROM fairq.check_queue('cost_per_group');

-- A new group is next among 1,000 groups with work, however late it becomes
-- active.
SELECT fairq.create_queue('cost_many', fair_by => 'cost');
SELECT count(fairq.enqueue('cost_many', 'g' || i % 1000, cost => (1 + i % 7)::real))
FROM generate_series(1, 5000) i;
SELECT count(*) FROM fairq.pop('cost_many', 2345);
SELECT fairq.enqueue('cost_many', 'new', '"new"') > 0 AS ok;
SELECT pg_temp.pop('cost_many');
SELECT max(n) - min(n) <= 7 AS even FROM (
	SELECT sum(cost) AS n FROM fairq.tasks
	WHERE queue = 'cost_many' AND status = 'running' AND group_key <> 'new' GROUP BY group_key) n;
SELECT * FROM fairq.check_queue('cost_many');

-- The charge for a pop remains after a rollback, and a retry or a take-over is
-- charged again.
SELECT fairq.create_queue('cost_again', fair_by => 'cost', backoff => '0');
SELECT pg_temp.add('cost_again', 'a', 1, 9, 4), pg_temp.add('cost_again', 'b', 1, 20);
BEGIN;
SELECT pg_temp.pop('cost_again');
ROLLBACK;
SELECT pg_temp.pop('cost_again', 5);
SELECT fairq.fail(id) FROM fairq.live_tasks
WHERE queue = 'cost_again' AND group_key = 'a' AND status = 'running';
SELECT pg_temp.pop('cost_again', 5);
SELECT payload FROM fairq.pop('cost_again', lease => '1 us');
SELECT pg_temp.pop('cost_again', 2);
SELECT * FROM fairq.check_queue('cost_again');

-- Limits, pause, priorities, max_running. Fails if turns without a task increase the
-- virtual time (fairq_account_uncharge()): then the last pop returns "a3 b6 a4".
SELECT fairq.create_queue('cost_limits', concurrency => 2, fair_by => 'cost');
SELECT pg_temp.add('cost_limits', 'a', 1, 6, 0.1), pg_temp.add('cost_limits', 'b', 1, 6),
	pg_temp.add('cost_limits', 'b', 7, 7, priority => 1);
SELECT pg_temp.pop('cost_limits', 100);
SELECT fairq.complete(id) FROM fairq.live_tasks
WHERE queue = 'cost_limits' AND group_key = 'b' AND status = 'running' LIMIT 1;
SELECT pg_temp.pop('cost_limits', 100);
SELECT fairq.pause('cost_limits', 'a');
SELECT count(fairq.complete(id)) FROM fairq.live_tasks
WHERE queue = 'cost_limits' AND status = 'running';
SELECT pg_temp.pop('cost_limits', 100);
SELECT fairq.resume('cost_limits', 'a'), fairq.alter_queue('cost_limits', concurrency => 0, max_running => 5);
SELECT pg_temp.pop('cost_limits', 100);
SELECT * FROM fairq.check_queue('cost_limits');

-- take() charges, too, and a take that is rolled back stays charged.
SELECT fairq.create_queue('cost_take', fair_by => 'cost');
SELECT pg_temp.add('cost_take', 'a', 1, 4, 2), pg_temp.add('cost_take', 'b', 1, 6);
BEGIN;
SELECT payload FROM fairq.take('cost_take', 4);
SAVEPOINT s;
SELECT payload FROM fairq.take('cost_take', 3);
ROLLBACK TO s;
SELECT payload FROM fairq.take('cost_take', 1);
COMMIT;
SELECT payload FROM fairq.take('cost_take', 100);

-- When a queue in use gets another fair_by, no task is lost, and all groups are equal.
SELECT fairq.create_queue('cost_changed');
SELECT pg_temp.add('cost_changed', 'a', 1, 12, 2), pg_temp.add('cost_changed', 'b', 1, 12);
SELECT fairq.enqueue('cost_changed', 'c', '"later"', run_at => now() + '1 day') > 0 AS ok;
SELECT pg_temp.pop('cost_changed', 4);
SELECT fairq.alter_queue('cost_changed', fair_by => 'cost');
SELECT pg_temp.pop('cost_changed', 6);
SELECT fairq.alter_queue('cost_changed', fair_by => 'tasks');
SELECT pg_temp.pop('cost_changed', 4);
BEGIN;
SELECT fairq.alter_queue('cost_changed', fair_by => 'cost');
SELECT pg_temp.pop('cost_changed', 2);
ROLLBACK;
SELECT fair_by FROM fairq.queues WHERE queue = 'cost_changed';
SELECT pg_temp.pop('cost_changed', 100);
SELECT count(*) FILTER (WHERE status = 'scheduled') AS scheduled,
	count(*) FILTER (WHERE status = 'running') AS running
FROM fairq.tasks WHERE queue = 'cost_changed';
SELECT * FROM fairq.check_queue('cost_changed');

-- A task keeps its cost in a batch, in the archive and after a redrive, and
-- SQL can set it.
SELECT fairq.create_queue('cost_rows', fair_by => 'cost', retain => '1 day', max_attempts => 1);
SELECT count(*) FROM fairq.enqueue_batch('cost_rows', '{a,b,c}', '{1,2,3}', costs => '{0.25,1000000,3}');
SELECT payload, fairq.fail(id) FROM fairq.pop('cost_rows', 2);
SELECT payload, fairq.complete(id) FROM fairq.pop('cost_rows');
SELECT payload, status, cost FROM fairq.tasks WHERE queue = 'cost_rows' ORDER BY payload;
SELECT fairq.redrive('cost_rows');
SELECT payload, status, cost FROM fairq.tasks WHERE queue = 'cost_rows' ORDER BY payload;
\set VERBOSITY sqlstate
UPDATE fairq.task t SET cost = 'NaN' FROM fairq.queue q
WHERE q.queue_id = t.queue_id AND q.name = 'cost_rows';
\set VERBOSITY default
UPDATE fairq.task t SET cost = NULL FROM fairq.queue q
WHERE q.queue_id = t.queue_id AND q.name = 'cost_rows';
SELECT pg_temp.pop('cost_rows', 100);
SELECT * FROM fairq.check_queue('cost_rows');

-- After all hints are lost the groups are equal.
SELECT fairq.create_queue('cost_reset', fair_by => 'cost');
SELECT pg_temp.add('cost_reset', 'a', 1, 5, 5), pg_temp.add('cost_reset', 'b', 1, 9), pg_temp.add('cost_reset', 'c', 1, 9);
SELECT pg_temp.pop('cost_reset', 7);
SELECT fairq.reset_hints();
SELECT pg_temp.pop('cost_reset', 4);
SELECT pg_temp.pop('cost_reset', 100);

-- How long the oldest task has waited
SELECT fairq.create_queue('cost_ages', fair_by => 'cost');
SELECT count(fairq.enqueue('cost_ages', 'g' || g)) FROM generate_series(1, 100) g;
-- (the view may have read the clock shortly after the statement began)
SELECT pg_sleep(0.5);
SELECT clock_timestamp() AS between_them \gset
SELECT pg_sleep(0.5);
SELECT count(fairq.enqueue('cost_ages', 'g' || g)) FROM generate_series(1, 100) g, generate_series(1, 9);
SELECT count(*) FROM fairq.pop('cost_ages', 90);
SELECT statement_timestamp() - oldest_ready < :'between_them' AS old FROM fairq.stats WHERE queue = 'cost_ages';
SELECT count(*) FROM fairq.pop('cost_ages', 500);
SELECT clock_timestamp() - oldest_ready >= :'between_them' AS young FROM fairq.stats WHERE queue = 'cost_ages';

-- peek() returns the tasks of the next pop
SELECT fairq.create_queue('cost_peek', fair_by => 'cost', concurrency => 3);
SELECT sum(pg_temp.add('cost_peek', 'g' || g, 1, 5, (1 + g % 4)::real, g % 2)) FROM generate_series(1, 9) g;
CREATE TEMP TABLE peeked AS
SELECT fairq.pop('cost_peek', 3), (SELECT array_agg(id) FROM fairq.peek('cost_peek', 20)) AS ids LIMIT 1;
SELECT (SELECT array_agg(id) FROM fairq.pop('cost_peek', 20)) = ids AS same FROM peeked;

-- The same applies to groups that per_group has passed over and that have tasks with
-- expired leases. Fails if such groups enter the order again: then peek() returns "a b
-- b a".
SELECT fairq.create_queue('cost_passed', fair_by => 'cost');
SELECT pg_temp.add('cost_passed', 'c', 1, 2, 7), pg_temp.pop('cost_passed');
SELECT pg_temp.add('cost_passed', 'a', 1, 2, 0.7), pg_temp.add('cost_passed', 'b', 1, 2, 0.1);
SELECT payload FROM fairq.pop('cost_passed', 100, per_group => 1, lease => '1 us');
SELECT string_agg(group_key, ' ') FROM fairq.peek('cost_passed', 4);
SELECT pg_temp.pop('cost_passed', 4);

-- A new group owes nothing for a former group with its number. There are two
-- former groups: one was rolled back with its pop, and maintain() has deleted
-- the other one.
SELECT fairq.create_queue('cost_new', fair_by => 'cost');
SELECT pg_temp.add('cost_new', 'a', 1, 9);
BEGIN;
SELECT pg_temp.add('cost_new', 'gone', 1, 1, 1000), pg_temp.pop('cost_new', 2);
ROLLBACK;
SELECT pg_temp.add('cost_new', 'new', 1, 2), pg_temp.pop('cost_new', 4);
SELECT pg_temp.add('cost_new', 'large', 1, 1, 1000);
SELECT group_key, fairq.complete(id) FROM fairq.pop('cost_new');
SELECT fairq.maintain('cost_new');
SELECT pg_temp.add('cost_new', 'next', 1, 2), pg_temp.pop('cost_new', 3);
SELECT group_no, group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id)
WHERE name = 'cost_new' ORDER BY group_no;
SELECT * FROM fairq.check_queue('cost_new');

-- A turn at which the group has no task left to serve costs the group nothing.
SELECT fairq.create_queue('cost_spared', fair_by => 'cost');
SELECT pg_temp.add('cost_spared', 'a', 1, 1, 10), pg_temp.pop('cost_spared');
SELECT fairq.enqueue('cost_spared', 'a', expires_at => now() + '1 us') IS NOT NULL AS enqueued;
SELECT pg_temp.add('cost_spared', 'b', 1, 20), pg_temp.pop('cost_spared', 12);
SELECT pg_temp.add('cost_spared', 'a', 2, 2), pg_temp.pop('cost_spared', 2);

\set VERBOSITY sqlstate
SELECT fairq.create_queue('cost_errors', fair_by => 'costs');
SELECT fairq.create_queue('cost_errors', fair_by => '');
SELECT fairq.create_queue('cost_errors', fair_by => NULL);
SELECT fairq.alter_queue('cost_errors', fair_by => 'Cost');
SELECT fairq.enqueue('cost_errors', 'a', cost => 0);
SELECT fairq.enqueue('cost_errors', 'a', cost => -1);
SELECT fairq.enqueue('cost_errors', 'a', cost => 'NaN');
SELECT fairq.enqueue('cost_errors', 'a', cost => 'infinity');
SELECT fairq.enqueue('cost_errors', 'a', cost => 1000001);
SELECT fairq.enqueue_batch('cost_errors', '{a,b}', '{1,2}', costs => '{1}');
SELECT fairq.enqueue_batch('cost_errors', '{a,b}', '{1,2}', costs => '{1,NULL}');
SELECT fairq.enqueue_batch('cost_errors', '{a,b}', '{1,2}', costs => '{{1,2}}');
SELECT fairq.enqueue_batch('cost_errors', '{a,b}', '{1,2}', costs => '{1,0}');
\set VERBOSITY default
SELECT fair_by, ready FROM fairq.queues WHERE queue = 'cost_errors';

SELECT count(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'cost%';
