-- Groups take turns, in whatever order tasks were enqueued, and however many
-- tasks a call pops.
--
-- Fails if each turn goes to the lowest seat of the ring (find_next() in
-- lane_turns.c). Fails if a turn that yields no task counts (give_back()
-- there).
\a \t

-- Adds tasks <group>1 to <group>n.
CREATE FUNCTION pg_temp.add(queue text, group_key text, n int) RETURNS void
LANGUAGE sql AS $$
	SELECT count(*) FROM fairq.enqueue_batch(queue,
		array_fill(group_key, ARRAY[n]),
		(SELECT array_agg(to_jsonb(group_key || i)) FROM generate_series(1, n) i))
$$;

-- Pops n tasks and shows them in the order of service.
CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop(queue, n)
$$;

-- Tasks that were enqueued group by group are served in rounds.
SELECT fairq.create_queue('fairness');
SELECT pg_temp.add('fairness', 'a', 3), pg_temp.add('fairness', 'b', 3),
	pg_temp.add('fairness', 'c', 3);
SELECT pg_temp.pop('fairness', 100);

-- The groups are unequal, and a batch has several groups.
SELECT count(*) FROM fairq.enqueue_batch('fairness',
	'{g1,g1,g1,g1,g1,g2,g2}', '{11,12,13,14,15,21,22}');
SELECT string_agg(group_key, ' ') AS groups, string_agg(payload #>> '{}', ' ') AS tasks
FROM fairq.pop('fairness', 7);
SELECT * FROM fairq.check_queue('fairness');

-- The order is the same with one task per call, and with two.
SELECT fairq.create_queue('fairness_by_one');
SELECT pg_temp.add('fairness_by_one', 'a', 5), pg_temp.add('fairness_by_one', 'b', 2);
SELECT pg_temp.pop('fairness_by_one') FROM generate_series(1, 8);
SELECT pg_temp.add('fairness_by_one', 'a', 4), pg_temp.add('fairness_by_one', 'b', 3);
SELECT pg_temp.pop('fairness_by_one', 2) FROM generate_series(1, 4);
SELECT * FROM fairq.check_queue('fairness_by_one');

-- First in, first out within a group, over many calls.
SELECT fairq.create_queue('fairness_fifo');
SELECT pg_temp.add('fairness_fifo', 'a', 200), pg_temp.add('fairness_fifo', 'b', 100);
CREATE TEMP TABLE served (n serial, queue text, group_key text, payload jsonb, id bigint);
INSERT INTO served (queue, group_key, payload, id)
SELECT 'fairness_fifo', group_key, payload, id
FROM generate_series(1, 7) i, fairq.pop('fairness_fifo', i * 6);
SELECT group_key, count(*), bool_and(id > previous) AS in_order
FROM (SELECT *, lag(id, 1, 0::bigint) OVER (PARTITION BY group_key ORDER BY n) AS previous
	FROM served) s
GROUP BY group_key ORDER BY group_key;
SELECT * FROM fairq.check_queue('fairness_fifo');

-- More tasks of a group than shared memory has room for, each in a transaction
-- of its own.
SELECT fairq.create_queue('fairness_hand');
SELECT pg_temp.pop('fairness_hand');
DO $$BEGIN FOR i IN 1 .. 12 LOOP PERFORM fairq.enqueue('fairness_hand', 'a', to_jsonb(i)); COMMIT; END LOOP; END$$;
SELECT pg_temp.pop('fairness_hand', 100);
SELECT * FROM fairq.check_queue('fairness_hand');

-- A new group has its turn in the present round.
SELECT fairq.create_queue('fairness_new');
SELECT pg_temp.add('fairness_new', 'a', 4), pg_temp.add('fairness_new', 'b', 4);
SELECT pg_temp.pop('fairness_new', 4);
SELECT pg_temp.add('fairness_new', 'c', 2);
SELECT payload, addr = fairq.address('fairness_new', group_key, block) AS at_seat, block
FROM fairq.tasks, fairq.block_of('fairness_new', addr) AS block
WHERE queue = 'fairness_new' AND status = 'queued' ORDER BY addr;
SELECT pg_temp.pop('fairness_new', 100);
SELECT * FROM fairq.check_queue('fairness_new');

-- A group that becomes active again also has its turn in the present round.
SELECT pg_temp.add('fairness_new', 'a', 3), pg_temp.add('fairness_new', 'b', 3);
SELECT pg_temp.pop('fairness_new', 3);		-- a b a
SELECT pg_temp.add('fairness_new', 'c', 2);
SELECT pg_temp.pop('fairness_new', 100);
SELECT * FROM fairq.check_queue('fairness_new');

-- A group that becomes active is next even if service has passed its seat. The
-- group still has one turn per round, and pop returns the turn's address.
SELECT fairq.create_queue('fairness_front', block_length => 10);
SELECT pg_temp.add('fairness_front', 'x', 1), pg_temp.add('fairness_front', 'a', 4),
	pg_temp.add('fairness_front', 'b', 4);
SELECT pg_temp.pop('fairness_front', 4);
SELECT pg_temp.add('fairness_front', 'x', 2);
SELECT payload, addr FROM fairq.tasks
WHERE queue = 'fairness_front' AND status = 'queued' ORDER BY addr;
SELECT string_agg(p.payload #>> '{}' || '@' || p.addr, ' ')
FROM generate_series(1, 4) i, LATERAL fairq.pop('fairness_front', 1 + 0 * i) p;
-- a group that has already had its turn in the round is not next
SELECT pg_temp.add('fairness_front', 'x', 1);
SELECT string_agg(p.payload #>> '{}' || '@' || p.addr, ' ')
FROM generate_series(1, 9) i, LATERAL fairq.pop('fairness_front', 1 + 0 * i) p;
-- several groups that become active are served in the order of their seats
SELECT pg_temp.add('fairness_front', 'c', 4);
SELECT pg_temp.pop('fairness_front', 2);
SELECT pg_temp.add('fairness_front', 'b', 2), pg_temp.add('fairness_front', 'a', 2);
SELECT pg_temp.pop('fairness_front');
SELECT pg_temp.add('fairness_front', 'x', 2);
SELECT pg_temp.pop('fairness_front', 100);
SELECT * FROM fairq.check_queue('fairness_front');

-- 1,000 tasks of bob, popped one by one, then a single task of alice: she is
-- next.
SELECT fairq.create_queue('fairness_bob');
SELECT pg_temp.add('fairness_bob', 'bob', 1000);
SELECT count(*) FROM generate_series(1, 100), fairq.pop('fairness_bob');
SELECT pg_temp.add('fairness_bob', 'alice', 1);
SELECT pg_temp.pop('fairness_bob');
SELECT count(*) FROM generate_series(1, 100), fairq.pop('fairness_bob');
SELECT pg_temp.add('fairness_bob', 'alice', 1), pg_temp.add('fairness_bob', 'carol', 1);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload)
FROM fairq.pop('fairness_bob', 2);
SELECT * FROM fairq.check_queue('fairness_bob');

-- alice becomes active before bob, and enqueues one task after each
-- completion. Each of the two has every second turn.
SELECT fairq.create_queue('fairness_one');
SELECT pg_temp.add('fairness_one', 'alice', 1), pg_temp.add('fairness_one', 'bob', 100);
DO $$
DECLARE
	task fairq.claim;
BEGIN
	FOR i IN 1..20 LOOP
		SELECT * INTO task FROM fairq.pop('fairness_one');
		COMMIT;
		PERFORM fairq.complete(task.id, task.attempt);
		COMMIT;
		INSERT INTO served (queue, group_key) VALUES ('fairness_one', task.group_key);
		IF task.group_key = 'alice' THEN
			PERFORM fairq.enqueue('fairness_one', 'alice');
		END IF;
		COMMIT;
	END LOOP;
END $$;
SELECT string_agg(group_key, ' ' ORDER BY n) FROM served WHERE queue = 'fairness_one';
SELECT * FROM fairq.check_queue('fairness_one');

-- Ten groups like alice, each with just one task, and bob: each gets an
-- eleventh of the service.
SELECT fairq.create_queue('fairness_ten');
SELECT count(*) FROM generate_series(1, 10) i, pg_temp.add('fairness_ten', 'u' || i, 1);
SELECT pg_temp.add('fairness_ten', 'bob', 100);
DO $$
DECLARE
	task fairq.claim;
BEGIN
	FOR i IN 1..110 LOOP
		SELECT * INTO task FROM fairq.take('fairness_ten');
		IF task.group_key <> 'bob' THEN
			PERFORM fairq.enqueue('fairness_ten', task.group_key);
		END IF;
		INSERT INTO served (queue, group_key) VALUES ('fairness_ten', task.group_key);
		COMMIT;
	END LOOP;
END $$;
SELECT count(*) AS groups, min(tasks), max(tasks)
FROM (SELECT count(*) AS tasks FROM served WHERE queue = 'fairness_ten' GROUP BY group_key) s;
SELECT * FROM fairq.check_queue('fairness_ten');

-- per_group spans the turns of this number of blocks, beginning with the first
-- turn. So a call may end in the middle of its last block.
SELECT fairq.create_queue('fairness_per_group');
SELECT pg_temp.add('fairness_per_group', 'a', 9), pg_temp.add('fairness_per_group', 'b', 2),
	pg_temp.add('fairness_per_group', 'c', 4);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('fairness_per_group', 100, per_group => 1);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('fairness_per_group', 100, per_group => 2);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('fairness_per_group', 1, per_group => 2);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.take('fairness_per_group', 100, per_group => 2);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('fairness_per_group', 100, per_group => 2147483647);
SELECT * FROM fairq.check_queue('fairness_per_group');

-- Before it commits, a transaction can pop its own tasks, and gets them in a
-- fair order.
SELECT fairq.create_queue('fairness_own');
BEGIN;
SELECT pg_temp.add('fairness_own', 'a', 2), pg_temp.add('fairness_own', 'b', 2);
SELECT pg_temp.pop('fairness_own', 3);
SELECT pg_temp.add('fairness_own', 'c', 2);
SELECT pg_temp.pop('fairness_own', 100);
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'fairness_own' AND group_key <> 'b';
COMMIT;
SELECT payload, status FROM fairq.tasks WHERE queue = 'fairness_own' ORDER BY id;
SELECT pg_temp.pop('fairness_own', 100);
SELECT * FROM fairq.check_queue('fairness_own');

-- A turn that finds only an expired task does not count, so the group's next
-- task is first.
SELECT fairq.create_queue('fairness_expired');
SELECT pg_temp.add('fairness_expired', 'a', 2);
SELECT fairq.enqueue('fairness_expired', 'b', '"b1"', expires_at => '-infinity') > 0 AS ok;
SELECT pg_temp.add('fairness_expired', 'c', 2);
SELECT pg_temp.pop('fairness_expired', 2);
SELECT pg_temp.add('fairness_expired', 'b', 1);
SELECT pg_temp.pop('fairness_expired', 100);

-- A task that take() returns is gone, and its attempt counts.
SELECT fairq.create_queue('fairness_take');
SELECT pg_temp.add('fairness_take', 'a', 3), pg_temp.add('fairness_take', 'b', 1);
SELECT payload, attempt, lease_until FROM fairq.take('fairness_take', 3);
SELECT payload, status FROM fairq.tasks WHERE queue = 'fairness_take';
SELECT payload FROM fairq.take('fairness_take', 3);
SELECT payload FROM fairq.take('fairness_take', 3);
SELECT * FROM fairq.check_queue('fairness_take');

-- 100 groups with 5 tasks each, enqueued in one batch and sorted by group, are
-- served in five full rounds.
SELECT fairq.create_queue('fairness_many');
SELECT count(*) FROM (
	SELECT fairq.enqueue_batch('fairness_many', array_agg('g' || g ORDER BY g, n),
		array_agg(to_jsonb(n) ORDER BY g, n))
	FROM generate_series(1, 100) g, generate_series(1, 5) n) s;
INSERT INTO served (queue, group_key, payload)
SELECT 'fairness_many', group_key, payload FROM fairq.pop('fairness_many', 500);
SELECT (row_number - 1) / 100 + 1 AS round, count(DISTINCT group_key) AS groups,
	min(payload::int), max(payload::int)
FROM (SELECT *, row_number() OVER (ORDER BY n) FROM served WHERE queue = 'fairness_many') s
GROUP BY round ORDER BY round;
SELECT * FROM fairq.check_queue('fairness_many');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'fairness%';
