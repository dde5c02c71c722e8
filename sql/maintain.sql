-- maintain() deletes old finished tasks, ends expired leases, and deletes
-- unused groups.
--
-- Fails if a group with settings counts as unused (delete_unused() in
-- maintain.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/tasks.psql

CREATE FUNCTION pg_temp.tasks(queue text) RETURNS TABLE (task text, status text, attempt int, error text)
LANGUAGE sql AS $$
	SELECT payload #>> '{}', status, attempt, error FROM fairq.tasks t WHERE t.queue = $1 ORDER BY id
$$;

-- The numbers of groups, according to the table.
CREATE FUNCTION pg_temp.seats(queue text) RETURNS TABLE (group_no int, group_key text, rows bigint)
LANGUAGE sql AS $$
	SELECT group_no, group_key, count(*) FROM fairq.group_number JOIN fairq.queue q USING (queue_id)
	WHERE q.name = $1 GROUP BY group_no, group_key ORDER BY group_no
$$;

SELECT fairq.maintain('maintain_none');
SELECT fairq.maintain('');

--
-- Retention
--

SELECT fairq.create_queue('maintain', retain => '1 hour', max_attempts => 1);
SELECT pg_temp.add('maintain', 'a1', 'a2', 'a3', 'a4', 'a5', 'a6');
SELECT pg_temp.pop('maintain', 5);
SELECT fairq.complete(pg_temp.id('maintain', 'a1'), 1, '1'), fairq.fail(pg_temp.id('maintain', 'a2'), 1, 'x'),
	fairq.cancel(pg_temp.id('maintain', 'a6'));
SELECT fairq.maintain('maintain');
SELECT * FROM pg_temp.tasks('maintain');
-- tasks are removed according to the time at which they finished
UPDATE fairq.archive SET finished_at = clock_timestamp() - interval '61 minutes' WHERE id IN (pg_temp.id('maintain', 'a1'), pg_temp.id('maintain', 'a2'));
SELECT fairq.maintain('maintain');
SELECT * FROM pg_temp.tasks('maintain');
UPDATE fairq.archive SET finished_at = clock_timestamp() - interval '59 minutes' WHERE id = pg_temp.id('maintain', 'a6');
SELECT fairq.maintain('maintain');
SELECT * FROM pg_temp.tasks('maintain');
SELECT fairq.alter_queue('maintain', retain => '58 minutes');
SELECT fairq.complete(pg_temp.id('maintain', 'a3'), 1, '3');
SELECT fairq.maintain('maintain');
SELECT * FROM pg_temp.tasks('maintain');
-- a maintain() that is rolled back removes nothing
SELECT fairq.alter_queue('maintain', retain => '1 microsecond');
BEGIN;
SELECT fairq.maintain('maintain');
SELECT * FROM pg_temp.tasks('maintain');
ROLLBACK;
SELECT * FROM pg_temp.tasks('maintain');
SELECT fairq.maintain('maintain');
SELECT * FROM pg_temp.tasks('maintain');
-- a queue without retain keeps only failed tasks
SELECT fairq.alter_queue('maintain', retain => '100 years');
SELECT fairq.complete(pg_temp.id('maintain', 'a4'), 1, '4');
SELECT fairq.alter_queue('maintain', retain => '0');
SELECT * FROM pg_temp.tasks('maintain');
SELECT fairq.maintain('maintain');
SELECT * FROM pg_temp.tasks('maintain');
-- tasks of another queue are not affected
SELECT fairq.create_queue('maintain_2', retain => '1 microsecond');
SELECT pg_temp.add('maintain_2', 'a1');
SELECT pg_temp.pop('maintain_2');
SELECT pg_temp.done('maintain_2');
SELECT fairq.maintain('maintain');
SELECT * FROM pg_temp.tasks('maintain_2');
-- NULL means all queues
SELECT fairq.maintain(NULL);
SELECT * FROM pg_temp.tasks('maintain_2');
SELECT pg_temp.add('maintain_2', 'a1');
SELECT pg_temp.pop('maintain_2');
SELECT pg_temp.done('maintain_2');
SELECT fairq.maintain();
SELECT * FROM pg_temp.tasks('maintain_2');
SELECT pg_temp.seats('maintain_2');
SELECT * FROM fairq.check_queue('maintain');
SELECT * FROM fairq.check_queue('maintain_2');
SELECT pg_temp.done('maintain');
DELETE FROM fairq.archive WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'maintain');

--
-- maintain() ends all expired leases
--

SELECT count(*) FROM fairq.enqueue_batch('maintain', array_fill('a'::text, ARRAY[1500]), array_fill('1'::jsonb, ARRAY[1500]), 4);
SELECT pg_temp.add('maintain', 'b1', 'b2');
SELECT count(*) FROM fairq.pop('maintain', 1400, '1 microsecond');
SELECT fairq.alter_queue('maintain', max_attempts => 20);
SELECT fairq.cancel(pg_temp.id('maintain', 'b2'));
SELECT fairq.extend(pg_temp.id('maintain', 'b1'), 1) > now() AS extended;
SELECT fairq.maintain('maintain');
SELECT status, attempt, count(*) FROM fairq.tasks WHERE queue = 'maintain' GROUP BY status, attempt ORDER BY status, attempt;
SELECT lapsed FROM fairq.queues WHERE queue = 'maintain';
SELECT * FROM fairq.check_queue('maintain');
SELECT fairq.purge('maintain'), pg_temp.done('maintain');

--
-- Unused groups
--

SELECT fairq.create_queue('maintain_g', block_length => 4);
SELECT pg_temp.add('maintain_g', 'a1', 'b1', 'c1', 'd1');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT pg_temp.add('maintain_g', 'e1');
SELECT fairq.enqueue('maintain_g', 'e');
-- no group is removed, since all have tasks
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT pg_temp.pop('maintain_g', 3);
SELECT fairq.maintain('maintain_g');
SELECT group_key FROM pg_temp.seats('maintain_g');
SELECT fairq.complete(pg_temp.id('maintain_g', 'b1'), 1), fairq.fail(pg_temp.id('maintain_g', 'c1'), 1, retry_in => '1 hour');
SELECT * FROM pg_temp.tasks('maintain_g');
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT group_key, group_no FROM fairq.groups WHERE queue = 'maintain_g' ORDER BY group_no;
SELECT fairq.address('maintain_g', 'b', 0);
SELECT fairq.purge('maintain_g', 'b');
SELECT fairq.resume('maintain_g', 'b');
SELECT * FROM fairq.check_queue('maintain_g');
-- the number of a deleted group goes to the next new group
SELECT pg_temp.add('maintain_g', 'e1', 'e2');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT pg_temp.add('maintain_g', 'b1');
SELECT * FROM fairq.check_queue('maintain_g');
SELECT pg_temp.pop('maintain_g', 2);
SELECT pg_temp.pop('maintain_g');
SELECT * FROM fairq.check_queue('maintain_g');
-- sessions that cached the number use the new one
SELECT pg_temp.done('maintain_g');
SELECT fairq.purge('maintain_g');
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT pg_temp.add('maintain_g', 'd1', 'c1', 'b1', 'a1', 'd2', 'a2');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT payload, group_key FROM fairq.pop('maintain_g', 100);
SELECT task FROM pg_temp.tasks('maintain_g');
SELECT * FROM fairq.check_queue('maintain_g');
SELECT pg_temp.done('maintain_g');
-- a group is kept as long as it has any settings
SELECT fairq.set_group('maintain_g', 'a', 3), fairq.set_group('maintain_g', 'b', weight => 2), fairq.pause('maintain_g', 'c');
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT group_key, concurrency, weight, paused FROM fairq.groups WHERE queue = 'maintain_g' ORDER BY group_key;
SELECT fairq.set_group('maintain_g', 'a', 0), fairq.resume('maintain_g', 'c'), fairq.set_group('maintain_g', 'b', 0);
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT fairq.set_group('maintain_g', 'b', weight => 0);
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
-- a group that was created without settings is unused, too
SELECT fairq.set_group('maintain_g', 'x');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
-- a new group has no settings of the former group with its number
SELECT fairq.set_group('maintain_g', 'p', 1, 5);
SELECT pg_temp.add('maintain_g', 'p1', 'p2', 'p3', 'q1');
SELECT pg_temp.pop('maintain_g');
SELECT fairq.pause('maintain_g', 'p');
SELECT fairq.purge('maintain_g'), pg_temp.done('maintain_g');
SELECT fairq.resume('maintain_g', 'p');
SELECT fairq.set_group('maintain_g', 'p', 0, 0);
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT pg_temp.add('maintain_g', 'r0', 's0');
SELECT pg_temp.pop('maintain_g');
SELECT pg_temp.add('maintain_g', 'r1', 'r2', 'r3', 's1', 's2');
SELECT group_key, concurrency, weight, paused, ready, limited FROM fairq.groups WHERE queue = 'maintain_g' ORDER BY group_no;
SELECT pg_temp.pop('maintain_g');
SELECT * FROM fairq.check_queue('maintain_g');
-- duplicate rows of fairq.group_number are harmless
INSERT INTO fairq.group_number SELECT queue_id, group_no, group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id), generate_series(1, 2) WHERE name = 'maintain_g';
SELECT pg_temp.done('maintain_g');
SELECT pg_temp.add('maintain_g', 'r1');
SELECT fairq.set_group('maintain_g', 't', weight => 2);
INSERT INTO fairq.group_number SELECT queue_id, group_no, group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id) WHERE name = 'maintain_g' AND group_key = 't';
SELECT * FROM pg_temp.seats('maintain_g');
SELECT * FROM fairq.check_queue('maintain_g');
SELECT fairq.maintain('maintain_g');
SELECT * FROM pg_temp.seats('maintain_g');
SELECT * FROM fairq.check_queue('maintain_g');
-- finished tasks do not keep a group's number, since their rows contain the
-- group's key
SELECT fairq.alter_queue('maintain_g', retain => '1 hour');
SELECT pg_temp.pop('maintain_g');
SELECT fairq.complete(pg_temp.id('maintain_g', 'r1'), 1, '1');
SELECT fairq.maintain('maintain_g');
SELECT group_key FROM pg_temp.seats('maintain_g');
SELECT payload, group_key, status FROM fairq.tasks WHERE queue = 'maintain_g';
SELECT fairq.drop_queue('maintain_g');

--
-- Once each number has been assigned to a group, the first free number is found
-- without a search through used numbers
--

-- Adds a task for a group. Returns the group's number, and whether few rows
-- were read.
CREATE FUNCTION pg_temp.number(queue text, group_key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	looked bigint := pg_stat_get_xact_tuples_returned('fairq.group_number_by_no'::regclass);
BEGIN
	PERFORM fairq.enqueue(queue, group_key);
	RETURN fairq.address(queue, group_key, 0) || CASE
		WHEN pg_stat_get_xact_tuples_returned('fairq.group_number_by_no'::regclass) - looked < 300
		THEN ' soon' ELSE '' END;
END $$;

SELECT fairq.create_queue('maintain_n', block_length => 1000);
SELECT count(*) FROM fairq.enqueue_batch('maintain_n', (SELECT array_agg('g' || n) FROM generate_series(0, 999) n), array_fill('1'::jsonb, '{1000}'));
SELECT pg_temp.number('maintain_n', 'x');
SELECT fairq.purge('maintain_n', 'g' || n) FROM unnest('{600,601,602,603,998}'::int[]) n;
SELECT pg_temp.number('maintain_n', 'x');
SELECT fairq.maintain('maintain_n');
SELECT pg_temp.number('maintain_n', 'x');
SELECT pg_temp.number('maintain_n', 'y');
-- after a rollback the number is free for the next group
BEGIN;
SELECT pg_temp.number('maintain_n', 'z');
SAVEPOINT s;
SELECT pg_temp.number('maintain_n', 'z2');
ROLLBACK TO s;
SELECT pg_temp.number('maintain_n', 'z3');
ROLLBACK;
-- the lower number, which only the rollback freed, is used once there is no
-- other free number
SELECT pg_temp.number('maintain_n', 'u');
SELECT pg_temp.number('maintain_n', 'v');
SELECT pg_temp.number('maintain_n', 'w');
SELECT pg_temp.number('maintain_n', 'none');
-- maintain and SQL free numbers that are lower than the end of the last search
SELECT fairq.purge('maintain_n', 'g7');
SELECT fairq.maintain('maintain_n');
SELECT pg_temp.number('maintain_n', 'a');
DELETE FROM fairq.task WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'maintain_n') AND group_no = 3;
DELETE FROM fairq.group_number WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'maintain_n') AND group_no = 3;
SELECT pg_temp.number('maintain_n', 'b');
SELECT pg_temp.number('maintain_n', 'none');
-- the first free number is also found with a longer block
SELECT fairq.alter_queue('maintain_n', block_length => 1001);
SELECT pg_temp.number('maintain_n', 'c');
SELECT pg_temp.number('maintain_n', 'none');
-- all numbers are free again
SELECT fairq.purge('maintain_n');
SELECT fairq.set_group('maintain_n', 'c', weight => 2);
SELECT fairq.maintain('maintain_n');
SELECT pg_temp.number('maintain_n', k) FROM unnest('{d,e,f,g}'::text[]) k;
SELECT count(DISTINCT group_no), count(DISTINCT group_key), count(*) FROM fairq.groups WHERE queue = 'maintain_n';
SELECT * FROM fairq.check_queue('maintain_n');
SELECT fairq.drop_queue('maintain_n', true);

--
-- In a transaction with other calls maintain() keeps groups
--

SELECT fairq.create_queue('maintain_t', block_length => 3, retain => '1 microsecond');
SELECT pg_temp.add('maintain_t', 'a1', 'b1', 'c1', 'c2');
SELECT pg_temp.pop('maintain_t', 3);
SELECT pg_temp.done('maintain_t');
SELECT pg_temp.pop('maintain_t', 1, '1 microsecond');
BEGIN;
SELECT fairq.maintain('maintain_t');
SELECT * FROM pg_temp.tasks('maintain_t');
SELECT * FROM pg_temp.seats('maintain_t');
SELECT pg_temp.add('maintain_t', 'a2');
SELECT pg_temp.pop('maintain_t', 1, '1 microsecond');
SELECT * FROM fairq.check_queue('maintain_t');
ROLLBACK;
SELECT * FROM pg_temp.tasks('maintain_t');
SELECT * FROM pg_temp.seats('maintain_t');
SELECT * FROM fairq.check_queue('maintain_t');
BEGIN;
SAVEPOINT s;
SELECT fairq.maintain('maintain_t');
ROLLBACK TO s;
SELECT fairq.maintain();
SELECT pg_temp.add('maintain_t', 'b2');
COMMIT;
SELECT * FROM pg_temp.tasks('maintain_t');
SELECT * FROM pg_temp.seats('maintain_t');
SELECT * FROM fairq.check_queue('maintain_t');
BEGIN;
SELECT pg_temp.pop('maintain_t', 100, '1 microsecond');
SELECT fairq.maintain('maintain_t');
PREPARE TRANSACTION 'fairq';
BEGIN READ ONLY;
SAVEPOINT s;
SELECT fairq.maintain('maintain_t');
ROLLBACK TO s;
SELECT fairq.maintain();
COMMIT;
-- at the other isolation levels, maintain() works as the only call of a
-- transaction
SELECT pg_temp.pop('maintain_t') IS NOT NULL AS popped;
SELECT pg_temp.done('maintain_t');
SELECT pg_temp.add('maintain_t', 'b3');
SET default_transaction_isolation = 'serializable';
SELECT fairq.maintain('maintain_t');
RESET default_transaction_isolation;
SELECT * FROM pg_temp.seats('maintain_t');
SET default_transaction_isolation = 'repeatable read';
SELECT fairq.purge('maintain_t');
SELECT fairq.maintain();
RESET default_transaction_isolation;
SELECT * FROM pg_temp.seats('maintain_t');
SELECT * FROM fairq.check_queue('maintain_t');
-- A statement in which maintain() has freed a number adds no group, but it can
-- add tasks of existing groups.
CREATE FUNCTION pg_temp.maintain_and_add(queue text, group_key text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fairq.maintain(queue);
	RETURN fairq.enqueue(queue, group_key) > 0;
END $$;
SELECT pg_temp.add('maintain_t', 'd1', 'e1');
SELECT fairq.purge('maintain_t', 'd');
SELECT pg_temp.maintain_and_add('maintain_t', 'f');
SELECT pg_temp.maintain_and_add('maintain_t', 'd');
SELECT * FROM pg_temp.seats('maintain_t');
SELECT pg_temp.maintain_and_add('maintain_t', 'e');
SELECT * FROM pg_temp.seats('maintain_t');
SELECT * FROM fairq.check_queue('maintain_t');
-- if maintain() has nothing to free, the same statement can add groups
SELECT pg_temp.maintain_and_add('maintain_t', 'f');
SELECT * FROM pg_temp.seats('maintain_t');
-- a statement of several transactions calls maintain() in a part that is
-- rolled back, and again later
DO $$
BEGIN
	PERFORM fairq.purge('maintain_t', 'f');
	COMMIT;
	BEGIN
		PERFORM fairq.maintain('maintain_t');
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM fairq.enqueue('maintain_t', 'f', '"f1"');
	END;
	COMMIT;
	PERFORM fairq.purge('maintain_t', 'e');
	COMMIT;
	PERFORM fairq.maintain('maintain_t');
	COMMIT;
	PERFORM fairq.enqueue('maintain_t', 'g', '"g1"');
END $$;
SELECT * FROM pg_temp.seats('maintain_t');
SELECT payload, group_key FROM fairq.pop('maintain_t', 100) ORDER BY 1;
SELECT * FROM fairq.check_queue('maintain_t');

-- the numbers of many deleted groups can be used again, several times
SELECT fairq.create_queue('maintain_m', block_length => 300);
DO $$
BEGIN
	FOR i IN 1 .. 4 LOOP
		PERFORM fairq.enqueue_batch('maintain_m', (SELECT array_agg(format('g %s %s', i, n)) FROM generate_series(1, 250) n),
			array_fill('1'::jsonb, ARRAY[250]));
		PERFORM fairq.complete(id, attempt) FROM fairq.pop('maintain_m', 250) WHERE group_key <> format('g %s 7', i);
		PERFORM fairq.maintain('maintain_m');
		COMMIT;
	END LOOP;
END $$;
SELECT group_key FROM pg_temp.seats('maintain_m') ORDER BY 1;
SELECT * FROM fairq.check_queue('maintain_m');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'maintain%';
