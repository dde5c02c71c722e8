-- A group of weight w has w tasks in a round. Tasks of a lower priority number
-- come first, and each priority is fair.
--
-- Fails if a turn lasts for one task, whatever the weight (take_turn() in
-- lane_turns.c).
\a \t
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

-- Weights 3 and 1: three tasks of a for each task of another group.
SELECT fairq.create_queue('weights');
SELECT fairq.set_group('weights', 'a', weight => 3);
SELECT pg_temp.add('weights', 'a', 1, 9), pg_temp.add('weights', 'b', 1, 3);
SELECT group_key, group_no, weight, ready FROM fairq.groups
WHERE queue = 'weights' ORDER BY group_no;
SELECT pg_temp.pop('weights', 100);

-- the order is the same with one task per call, and with two
SELECT pg_temp.add('weights', 'a', 1, 6), pg_temp.add('weights', 'b', 1, 2);
SELECT string_agg(pg_temp.pop('weights', 1), ' ') FROM generate_series(1, 9);
SELECT pg_temp.add('weights', 'a', 1, 6), pg_temp.add('weights', 'b', 1, 2);
SELECT string_agg(pg_temp.pop('weights', 2), ', ') FROM generate_series(1, 4);

-- per_group counts rounds, not tasks
SELECT pg_temp.add('weights', 'a', 1, 6), pg_temp.add('weights', 'b', 1, 2);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('weights', 100, per_group => 1);
SELECT pg_temp.pop('weights', 100);
SELECT * FROM fairq.check_queue('weights');

-- a changed weight applies from then on, also to queued tasks
SELECT fairq.create_queue('weights_changed');
SELECT pg_temp.add('weights_changed', 'a', 1, 2), pg_temp.add('weights_changed', 'b', 1, 5);
SELECT fairq.set_group('weights_changed', 'a', weight => 2);
SELECT pg_temp.add('weights_changed', 'a', 3, 5);
SELECT fairq.set_group('weights_changed', 'a', weight => 0);	-- its weight is 1
SELECT weight FROM fairq.groups WHERE queue = 'weights_changed' AND group_key = 'a';
SELECT pg_temp.add('weights_changed', 'a', 6, 7);
SELECT payload, fairq.block_of('weights_changed', addr) AS block
FROM fairq.tasks WHERE queue = 'weights_changed' AND group_key = 'a' ORDER BY id;
SELECT pg_temp.pop('weights_changed', 6);
SELECT fairq.set_group('weights_changed', 'a', weight => 3);
SELECT pg_temp.pop('weights_changed', 100);
SELECT * FROM fairq.check_queue('weights_changed');

-- NULL keeps the weight; a group can get a weight before it has tasks
SELECT fairq.set_group('weights_changed', 'c', weight => 1000);
SELECT fairq.set_group('weights_changed', 'c', weight => NULL);
SELECT fairq.set_group('weights_changed', 'd');
SELECT group_key, weight FROM fairq.groups WHERE queue = 'weights_changed' ORDER BY 1;

-- a change that is rolled back has no effect
BEGIN;
SELECT fairq.set_group('weights_changed', 'd', weight => 2);
SELECT pg_temp.add('weights_changed', 'd', 1, 2);
SELECT count(DISTINCT addr) AS addresses FROM fairq.tasks
WHERE queue = 'weights_changed' AND group_key = 'd';
ROLLBACK;
SELECT pg_temp.add('weights_changed', 'd', 1, 2);
SELECT count(DISTINCT addr) AS addresses FROM fairq.tasks
WHERE queue = 'weights_changed' AND group_key = 'd';
BEGIN;
SAVEPOINT s;
SELECT fairq.set_group('weights_changed', 'd', weight => 2);
ROLLBACK TO s;
SELECT pg_temp.add('weights_changed', 'd', 3, 4);
COMMIT;
SELECT count(DISTINCT addr) AS addresses FROM fairq.tasks
WHERE queue = 'weights_changed' AND group_key = 'd';
SELECT * FROM fairq.check_queue('weights_changed');

-- after a pop is rolled back, each group again has its whole weight
SELECT fairq.create_queue('weights_rollback');
SELECT fairq.set_group('weights_rollback', 'a', weight => 2);
SELECT pg_temp.add('weights_rollback', 'a', 1, 6), pg_temp.add('weights_rollback', 'b', 1, 3);
BEGIN;
SELECT pg_temp.pop('weights_rollback', 6);
ROLLBACK;
SELECT pg_temp.pop('weights_rollback', 6);
SELECT pg_temp.pop('weights_rollback', 6);
SELECT * FROM fairq.check_queue('weights_rollback');

-- Tasks at one address come in the order of their ids, even if their rows are
-- in the opposite order. They also do so after a rolled back pop.
CREATE FUNCTION pg_temp.in_order(queue text, popped_before int) RETURNS TABLE
	(addresses bigint, popped bigint, in_order boolean, found text)
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fairq.create_queue(queue);
	PERFORM fairq.set_group(queue, 'a', weight => 50);
	PERFORM pg_temp.add(queue, 'a', 1, 120), pg_temp.add(queue, 'b', 1, 3);
	UPDATE fairq.task t SET id = -id FROM fairq.queue q
	WHERE q.name = queue AND t.queue_id = q.queue_id;
	BEGIN
		PERFORM fairq.pop(queue, popped_before) WHERE popped_before > 0;
		RAISE SQLSTATE 'TEST0';
	EXCEPTION WHEN SQLSTATE 'TEST0' THEN
	END;
	CREATE TEMP TABLE popped (n serial, id bigint, addr bigint, group_key text);
	FOR i IN 1..20 LOOP
		INSERT INTO popped (id, addr, group_key)
		SELECT p.id, p.addr, p.group_key FROM fairq.pop(queue, 7) p;
	END LOOP;
	RETURN QUERY SELECT count(DISTINCT (p.group_key, p.addr)), count(*),
		bool_and(p.id > p.last), (SELECT string_agg(c, ' ') FROM fairq.check_queue(queue) c)
	FROM (SELECT *, lag(id, 1, id - 1) OVER (PARTITION BY group_key, addr ORDER BY n) AS last
		FROM popped) p;
	DROP TABLE popped;
END $$;
SELECT * FROM pg_temp.in_order('weights_order', 0);
SELECT * FROM pg_temp.in_order('weights_order_again', 123);

-- priorities 0 to 9
SELECT fairq.create_queue('priorities');
SELECT count(fairq.enqueue('priorities', 'a', to_jsonb(p), p))
FROM generate_series(9, 0, -1) p;
SELECT string_agg(priority::text, ' ') AS priority, string_agg(payload::text, ' ') AS payload
FROM fairq.pop('priorities', 100);

-- each priority is fair
SELECT pg_temp.add('priorities', 'a', 1, 3, 5), pg_temp.add('priorities', 'b', 1, 3, 5);
SELECT pg_temp.add('priorities', 'b', 4, 5, 2), pg_temp.add('priorities', 'a', 4, 4, 2);
SELECT pg_temp.pop('priorities', 100);

-- a later task with a lower priority number comes first; then the others
-- continue
SELECT pg_temp.add('priorities', 'a', 1, 3, 5), pg_temp.add('priorities', 'b', 1, 3, 5);
SELECT pg_temp.pop('priorities', 3);
SELECT pg_temp.add('priorities', 'c', 1, 1, 0);
SELECT pg_temp.pop('priorities', 2);
SELECT pg_temp.pop('priorities', 2);

-- per_group applies across the blocks of one priority
SELECT pg_temp.add('priorities', 'a', 1, 2, 5), pg_temp.add('priorities', 'a', 3, 4, 6);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('priorities', 100, per_group => 1);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('priorities', 100, per_group => 3);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('priorities', 100, per_group => 3);

-- a task that is released keeps its priority
SELECT fairq.release(id) FROM fairq.tasks
WHERE queue = 'priorities' AND payload = '"c1"';
SELECT pg_temp.add('priorities', 'c', 2, 2, 1);
SELECT payload, priority FROM fairq.pop('priorities', 2);
SELECT * FROM fairq.check_queue('priorities');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'weights%' OR queue = 'priorities';

--
-- Lapsed tasks at one address are served in the order of their ids. VACUUM has
-- freed a place in the table, so the row of a later task precedes those of the
-- others. Fails if tasks behind the served one are kept for the next turn in
-- the order of the index (fairq_task_ahead() in store_scan.c).
--

SELECT fairq.create_queue('weights_gone'), fairq.create_queue('weights_abreast');
SELECT fairq.set_group('weights_abreast', 'a', weight => 2);
SELECT fairq.enqueue('weights_gone', 'z') > 0;
SELECT count(fairq.enqueue('weights_abreast', 'a', to_jsonb(i))) FROM generate_series(1, 3) i;
SELECT count(*) FROM fairq.take('weights_gone');
VACUUM fairq.task;
SELECT fairq.enqueue('weights_abreast', 'a', '4') > 0;
SELECT string_agg(payload::text, ' ' ORDER BY ctid) FROM fairq.task;
SELECT count(*) FROM fairq.pop('weights_abreast', 10, '1 microsecond');
SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = 'weights_abreast' AND payload = '2';
SELECT payload FROM fairq.pop('weights_abreast');
SELECT payload FROM fairq.pop('weights_abreast');
SELECT payload FROM fairq.pop('weights_abreast');
SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'weights%';
