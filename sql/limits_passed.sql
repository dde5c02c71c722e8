--
-- Groups with long lines get a limit and are put aside. Groups that become
-- active meanwhile have their turns, and no task of any group is missed.
--
-- Fails if each turn goes to the lowest seat of the ring (find_next() in
-- lane_turns.c). Fails if one task beyond the limit gets a slot (find_slot() in
-- counter.c).
--
\a \t
SELECT fairq.create_queue('passed');

-- the functions show a task as its group and its payload, as in "a1 a2 b1"
CREATE FUNCTION passed_pop(n int) RETURNS text LANGUAGE sql AS
	$$ SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('passed', n) $$;
CREATE FUNCTION passed_enqueue(who text, low int, high int) RETURNS bigint LANGUAGE sql AS
	$$ SELECT count(*) FROM fairq.enqueue_batch('passed', array_fill(who, ARRAY[high - low + 1]),
		ARRAY(SELECT to_jsonb(n) FROM generate_series(low, high) n)) $$;
CREATE FUNCTION passed_complete(task text) RETURNS boolean LANGUAGE sql AS
	$$ SELECT fairq.complete(id) FROM fairq.tasks
		WHERE queue = 'passed' AND status = 'running' AND group_key || payload = task $$;

-- two groups with long lines get a limit and are served up to it
SELECT passed_enqueue('a', 1, 300), passed_enqueue('b', 1, 400);
SELECT passed_pop(4);
SELECT fairq.alter_queue('passed', concurrency => 2);
SELECT passed_pop(100);
SELECT passed_pop(100);
SELECT * FROM fairq.check_queue('passed');

-- other groups become active, with one task and with many
SELECT passed_enqueue('c', 1, 1);
SELECT passed_pop(100);
SELECT fairq.set_group('passed', 'd', concurrency => 1000);
SELECT passed_enqueue('d', 1, 200);
SELECT count(*) FROM fairq.pop('passed', 150);
SELECT * FROM fairq.check_queue('passed');
SELECT count(*) FROM fairq.pop('passed', 150);
SELECT passed_pop(100);

-- several groups become active at once in one transaction, which also pops
BEGIN;
SELECT passed_enqueue('d', 201, 300), passed_enqueue('e', 1, 2);
SELECT count(*), min(payload::text), max(payload::text) FROM fairq.pop('passed', 60);
SAVEPOINT s;
SELECT count(*) FROM fairq.pop('passed', 60);
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM fairq.pop('passed', 60);
SELECT passed_pop(10);
SELECT * FROM fairq.check_queue('passed');

-- the first two groups continue where they were, one slot at a time
SELECT passed_complete('a1'), passed_complete('b2');
SELECT passed_pop(100);
SELECT passed_complete('a2'), passed_complete('a3');
SELECT passed_pop(100);
SELECT passed_pop(100);
SELECT * FROM fairq.check_queue('passed');

-- a rollback returns a slot, and further tasks are popped with that slot
BEGIN;
SELECT passed_complete('b1');
SELECT fairq.set_group('passed', 'a', concurrency => 100);
SELECT passed_pop(5);
ROLLBACK;
SELECT passed_pop(100);
SELECT fairq.pause('passed', 'b');
SELECT fairq.set_group('passed', 'a', concurrency => 100);
SELECT count(*), min(payload::text), max(payload::text) FROM fairq.pop('passed', 1000);
SELECT fairq.resume('passed', 'b');
SELECT * FROM fairq.check_queue('passed');

-- without limits all groups take turns again
SELECT fairq.alter_queue('passed', concurrency => 0);
SELECT fairq.set_group('passed', 'a', concurrency => 0);
SELECT passed_enqueue('f', 1, 3);
SELECT passed_pop(9);
SELECT count(*), count(DISTINCT id) FROM fairq.pop('passed', 1000);
SELECT passed_pop(1);
SELECT * FROM fairq.check_queue('passed');
SELECT fairq.drop_queue('passed', force => true);
DROP FUNCTION passed_pop, passed_enqueue, passed_complete;
