-- Groups take turns under limits, too. The tasks of each group are served in
-- order, including those that its limit held back.
--
-- Fails if each turn goes to the lowest seat of the ring (find_next() in
-- lane_turns.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

-- Pops and completes tasks in a loop, with a commit after each pass. Shows the tasks in the
-- order of service, and the largest number that ran at once.
CREATE TEMP TABLE served (n serial, queue text, group_key text, task text, running int, all_running int);
CREATE PROCEDURE pg_temp.work(queue text, batch int, keep int)
LANGUAGE plpgsql AS $$
DECLARE
	claims fairq.claim[];
	c fairq.claim;
	held bigint[];
BEGIN
	LOOP
		claims := ARRAY(SELECT p FROM fairq.pop(work.queue, batch) p);
		COMMIT;
		FOREACH c IN ARRAY claims LOOP
			held := held || c.id;
			INSERT INTO served (queue, group_key, task, running, all_running)
			SELECT work.queue, c.group_key, c.payload #>> '{}',
				count(*) FILTER (WHERE t.group_key = c.group_key), count(*)
			FROM fairq.tasks t WHERE t.queue = work.queue AND status = 'running';
		END LOOP;
		EXIT WHEN claims = '{}' AND cardinality(held) IS NOT DISTINCT FROM 0;
		-- complete the task that has run longest
		IF claims = '{}' OR cardinality(held) > keep THEN
			PERFORM fairq.complete(held[1]);
			held := held[2:];
		END IF;
		COMMIT;
	END LOOP;
END $$;

CREATE FUNCTION pg_temp.served(queue text, OUT served text, OUT group_running int, OUT all_running int)
LANGUAGE sql AS $$
	SELECT string_agg(task, ' ' ORDER BY n), max(running), max(s.all_running)
	FROM served s WHERE s.queue = $1
$$;

--
-- Turns
--

-- limited and unlimited groups, one task per call; no call waits for a full
-- group
SELECT fairq.create_queue('limits_order');
SELECT fairq.set_group('limits_order', 'b', 1);
SELECT pg_temp.add('limits_order', 'a', 1, 5), pg_temp.add('limits_order', 'b', 1, 5),
	pg_temp.add('limits_order', 'c', 1, 5);
SELECT pg_temp.pop('limits_order', 1);
SELECT pg_temp.pop('limits_order', 1);
SELECT pg_temp.pop('limits_order', 1);
SELECT pg_temp.pop('limits_order', 1);
SELECT pg_temp.pop('limits_order', 1);
SELECT pg_temp.done('limits_order', 'b1');
SELECT pg_temp.pop('limits_order', 1);
SELECT pg_temp.pop('limits_order', 1);
SELECT pg_temp.pop('limits_order', 1);
SELECT * FROM pg_temp.stand('limits_order');
SELECT * FROM fairq.check_queue('limits_order');
SELECT pg_temp.pop('limits_order');
SELECT * FROM fairq.check_queue('limits_order');

-- while slots are free, the order is the same as without limits
SELECT fairq.create_queue('limits_order_free', 10, 10);
SELECT pg_temp.add('limits_order_free', 'a', 1, 4), pg_temp.add('limits_order_free', 'b', 1, 2),
	pg_temp.add('limits_order_free', 'c', 1, 3);
SELECT string_agg(pg_temp.pop('limits_order_free', 1), ' ') FROM generate_series(1, 10);
SELECT * FROM fairq.check_queue('limits_order_free');

-- even if there are many more tasks than slots, all are served in turn
SELECT fairq.create_queue('limits_order_many', 3);
SELECT pg_temp.add('limits_order_many', 'a', 1, 12), pg_temp.add('limits_order_many', 'b', 1, 12);
CALL pg_temp.work('limits_order_many', 1, 0);
SELECT * FROM pg_temp.served('limits_order_many');
SELECT pg_temp.add('limits_order_many', 'a', 13, 24), pg_temp.add('limits_order_many', 'b', 13, 24);
DELETE FROM served;
CALL pg_temp.work('limits_order_many', 2, 3);
SELECT * FROM pg_temp.served('limits_order_many');
SELECT * FROM fairq.check_queue('limits_order_many');

-- in large batches, tasks are served in order, and the limit is never exceeded
SELECT fairq.create_queue('limits_order_batch', 4, 6);
SELECT count(*) FROM generate_series(1, 5) i, pg_temp.add('limits_order_batch', 'g' || i || '_', 1, 40);
SELECT * FROM pg_temp.stand('limits_order_batch');
CALL pg_temp.work('limits_order_batch', 100, 0);
SELECT count(*), max(running), max(all_running) FROM served WHERE queue = 'limits_order_batch';
SELECT group_key, count(*), bool_and(task::int > previous) AS in_order
FROM (SELECT group_key, n, split_part(task, '_', 2)::int AS task,
		lag(split_part(task, '_', 2)::int, 1, 0) OVER (PARTITION BY group_key ORDER BY n) AS previous
	FROM served WHERE queue = 'limits_order_batch') s
GROUP BY group_key ORDER BY group_key;
SELECT * FROM pg_temp.stand('limits_order_batch');
SELECT * FROM fairq.check_queue('limits_order_batch');

-- a single task of a group does not wait for 3,000 tasks of a limited group
SELECT fairq.create_queue('limits_order_bob', 2);
SELECT pg_temp.add('limits_order_bob', 'bob', 1, 3000);
SELECT pg_temp.pop('limits_order_bob');
SELECT pg_temp.add('limits_order_bob', 'alice', 1, 1);
SELECT pg_temp.pop('limits_order_bob');
SELECT pg_temp.done('limits_order_bob', 'bob1');
SELECT pg_temp.pop('limits_order_bob');
SELECT * FROM pg_temp.stand('limits_order_bob');
SELECT * FROM fairq.check_queue('limits_order_bob');
SELECT fairq.alter_queue('limits_order_bob', 0);
SELECT count(*), bool_and(id > previous) AS in_order
FROM (SELECT id, lag(id, 1, 0::bigint) OVER () AS previous FROM fairq.pop('limits_order_bob', 10000)) p;
SELECT * FROM fairq.check_queue('limits_order_bob');

-- 500 groups with a limit of 1
SELECT fairq.create_queue('limits_order_groups', 1);
SELECT count(*) FROM (
	SELECT fairq.enqueue_batch('limits_order_groups', array_agg('g' || g ORDER BY g, n),
		array_agg(to_jsonb(n) ORDER BY g, n))
	FROM generate_series(1, 500) g, generate_series(1, 4) n) s;
SELECT count(*), count(DISTINCT group_key), min(payload::int), max(payload::int)
FROM fairq.pop('limits_order_groups', 10000);
SELECT count(*) FROM fairq.pop('limits_order_groups', 10000);
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'limits_order_groups' AND status = 'running' AND right(group_key, 1) < '5';
SELECT count(*), count(DISTINCT group_key), min(payload::int), max(payload::int)
FROM fairq.pop('limits_order_groups', 10000);
SELECT ready, limited, running FROM fairq.queues WHERE queue = 'limits_order_groups';
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'limits_order_groups' AND status = 'running';
SELECT count(*), count(DISTINCT group_key) FROM fairq.pop('limits_order_groups', 300);
SELECT count(*), count(DISTINCT group_key) FROM fairq.pop('limits_order_groups', 300);
SELECT payload, count(*), count(DISTINCT group_key) FROM fairq.tasks
WHERE queue = 'limits_order_groups' AND status = 'running' GROUP BY payload ORDER BY payload;
SELECT * FROM fairq.check_queue('limits_order_groups');

--
-- Order within a group
--

-- new tasks come behind waiting ones, also when slots are free, and when the
-- limit is removed
SELECT fairq.create_queue('limits_order_fifo', 2);
SELECT pg_temp.add('limits_order_fifo', 'a', 1, 4);
SELECT pg_temp.pop('limits_order_fifo');
SELECT pg_temp.done('limits_order_fifo', 'a1', 'a2');
SELECT pg_temp.add('limits_order_fifo', 'a', 5, 5);
SELECT * FROM pg_temp.tasks('limits_order_fifo');
SELECT pg_temp.pop('limits_order_fifo', 1);
SELECT fairq.alter_queue('limits_order_fifo', 0);
SELECT pg_temp.add('limits_order_fifo', 'a', 6, 7);
SELECT pg_temp.release('limits_order_fifo', 'a3');
SELECT pg_temp.add('limits_order_fifo', 'a', 8, 8);
SELECT * FROM pg_temp.tasks('limits_order_fifo');
SELECT pg_temp.pop('limits_order_fifo', 3);
SELECT fairq.alter_queue('limits_order_fifo', 5);
SELECT pg_temp.add('limits_order_fifo', 'a', 9, 11);
SELECT pg_temp.pop('limits_order_fifo');
SELECT pg_temp.done('limits_order_fifo', 'a4', 'a5', 'a6');
SELECT pg_temp.pop('limits_order_fifo');
SELECT pg_temp.done('limits_order_fifo', 'a7', 'a3', 'a8', 'a9', 'a10');
SELECT pg_temp.pop('limits_order_fifo');
SELECT * FROM fairq.check_queue('limits_order_fifo');

-- released tasks are served in order
SELECT fairq.create_queue('limits_order_release', 3);
SELECT pg_temp.add('limits_order_release', 'a', 1, 5), pg_temp.add('limits_order_release', 'b', 1, 2);
SELECT pg_temp.pop('limits_order_release');
SELECT pg_temp.release('limits_order_release', 'a2');
SELECT pg_temp.release('limits_order_release', 'a1');
SELECT pg_temp.release('limits_order_release', 'b1');
SELECT pg_temp.add('limits_order_release', 'a', 6, 6), pg_temp.add('limits_order_release', 'b', 3, 3);
SELECT * FROM pg_temp.pop_groups('limits_order_release');
SELECT pg_temp.done('limits_order_release', 'a3', 'a4', 'a5');
SELECT pg_temp.pop('limits_order_release');
SELECT * FROM fairq.check_queue('limits_order_release');

--
-- Weights
--

SELECT fairq.create_queue('limits_order_weights', 4);
SELECT fairq.set_group('limits_order_weights', 'a', weight => 3);
SELECT pg_temp.add('limits_order_weights', 'a', 1, 12), pg_temp.add('limits_order_weights', 'b', 1, 12);
SELECT * FROM pg_temp.stand('limits_order_weights');
SELECT pg_temp.pop('limits_order_weights');
SELECT pg_temp.pop('limits_order_weights');
SELECT pg_temp.done('limits_order_weights', 'a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'b3', 'b4');
SELECT * FROM pg_temp.pop_groups('limits_order_weights');
SELECT * FROM fairq.check_queue('limits_order_weights');
-- if a group's weight is larger than its limit, the limit ends its turns
SELECT fairq.create_queue('limits_order_heavy');
SELECT fairq.set_group('limits_order_heavy', 'a', 2, 5);
SELECT pg_temp.add('limits_order_heavy', 'a', 1, 7), pg_temp.add('limits_order_heavy', 'b', 1, 4);
SELECT pg_temp.pop('limits_order_heavy', 3);
SELECT pg_temp.done('limits_order_heavy', 'a1', 'a2');
SELECT pg_temp.pop('limits_order_heavy', 3);
SELECT pg_temp.done('limits_order_heavy', 'a3');
SELECT pg_temp.pop('limits_order_heavy');
SELECT * FROM pg_temp.stand('limits_order_heavy');
SELECT * FROM fairq.check_queue('limits_order_heavy');

--
-- A limit counts the tasks of all priorities together
--

SELECT fairq.create_queue('limits_order_priority', 2);
SELECT pg_temp.add('limits_order_priority', 'a', 1, 3, 5), pg_temp.add('limits_order_priority', 'b', 1, 1, 5);
SELECT pg_temp.pop('limits_order_priority', 1);
SELECT pg_temp.add('limits_order_priority', 'a', 4, 7, 2);
SELECT payload, priority, status FROM fairq.tasks WHERE queue = 'limits_order_priority' ORDER BY id;
SELECT pg_temp.pop('limits_order_priority');
SELECT pg_temp.pop('limits_order_priority');
SELECT pg_temp.done('limits_order_priority', 'a1');
SELECT pg_temp.pop('limits_order_priority');
SELECT pg_temp.add('limits_order_priority', 'a', 8, 8, 0);
SELECT pg_temp.pop('limits_order_priority');
SELECT pg_temp.done('limits_order_priority', 'a4');
SELECT pg_temp.pop('limits_order_priority');
SELECT pg_temp.done('limits_order_priority', 'a5', 'a8');
SELECT pg_temp.pop('limits_order_priority');
SELECT pg_temp.done('limits_order_priority', 'a6', 'a7');
SELECT pg_temp.pop('limits_order_priority');
SELECT * FROM pg_temp.stand('limits_order_priority');
SELECT * FROM fairq.check_queue('limits_order_priority');

--
-- per_group applies to one call, but a limit applies to all running tasks
--

SELECT fairq.create_queue('limits_order_per_group', 3);
SELECT pg_temp.add('limits_order_per_group', 'a', 1, 9), pg_temp.add('limits_order_per_group', 'b', 1, 9);
SELECT pg_temp.pop('limits_order_per_group', 100, per_group => 2);
SELECT pg_temp.pop('limits_order_per_group', 100, per_group => 2);
SELECT pg_temp.pop('limits_order_per_group', 100, per_group => 2);
SELECT pg_temp.done('limits_order_per_group', 'a1', 'a2', 'a3', 'b1', 'b2', 'b3');
SELECT * FROM pg_temp.pop_groups('limits_order_per_group', per_group => 1);
SELECT * FROM pg_temp.pop_groups('limits_order_per_group', per_group => 100);
SELECT * FROM pg_temp.pop_groups('limits_order_per_group', per_group => 100);
SELECT * FROM pg_temp.stand('limits_order_per_group');
SELECT * FROM fairq.check_queue('limits_order_per_group');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'limits\_order%';
