-- A running task counts until its end is committed. A rolled back change of
-- tasks or settings has no effect. reset_hints() can be called at any time;
-- running tasks are then counted again.
--
-- Fails if an abort frees no slot (apply_pending() in transaction.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

--
-- The end of a task counts when its transaction ends
--

-- completed tasks
SELECT fairq.create_queue('limits_rollback', 2);
SELECT pg_temp.add('limits_rollback', 'a', 1, 20);
SELECT pg_temp.pop('limits_rollback');
BEGIN;
SELECT pg_temp.done('limits_rollback', 'a1', 'a2');
SELECT pg_temp.pop('limits_rollback');
ROLLBACK;
SELECT pg_temp.pop('limits_rollback');
SELECT * FROM fairq.check_queue('limits_rollback');
BEGIN;
SELECT pg_temp.done('limits_rollback', 'a1', 'a2');
SELECT pg_temp.pop('limits_rollback');
COMMIT;
SELECT * FROM fairq.check_queue('limits_rollback');
SELECT pg_temp.pop('limits_rollback');
-- after a rollback to a savepoint, a task that had ended since then has its
-- slot again
BEGIN;
SAVEPOINT s;
SELECT pg_temp.done('limits_rollback', 'a3');
ROLLBACK TO s;
SELECT pg_temp.pop('limits_rollback');
SELECT pg_temp.done('limits_rollback', 'a4');
RELEASE s;
SELECT pg_temp.pop('limits_rollback');
COMMIT;
SELECT * FROM pg_temp.tasks('limits_rollback');
SELECT pg_temp.pop('limits_rollback');
SELECT pg_temp.pop('limits_rollback');
SELECT * FROM fairq.check_queue('limits_rollback');

-- released tasks
BEGIN;
SELECT pg_temp.release('limits_rollback', 'a3');
SELECT pg_temp.pop('limits_rollback');
ROLLBACK;
SELECT pg_temp.pop('limits_rollback');
BEGIN;
SAVEPOINT s;
SELECT pg_temp.release('limits_rollback', 'a3');
ROLLBACK TO s;
SELECT pg_temp.pop('limits_rollback');
SELECT pg_temp.release('limits_rollback', 'a3');
SELECT pg_temp.pop('limits_rollback');
COMMIT;
SELECT pg_temp.pop('limits_rollback');
SELECT pg_temp.pop('limits_rollback');
SELECT * FROM fairq.check_queue('limits_rollback');
SELECT pg_temp.done('limits_rollback', 'a5', 'a6');

-- a rollback restores popped tasks and frees their slots at once
BEGIN;
SELECT pg_temp.pop('limits_rollback');
SELECT pg_temp.pop('limits_rollback');
ROLLBACK;
SELECT * FROM pg_temp.stand('limits_rollback');
SELECT * FROM fairq.check_queue('limits_rollback');
BEGIN;
SAVEPOINT s;
SELECT pg_temp.pop('limits_rollback', 1);
SAVEPOINT t;
SELECT pg_temp.pop('limits_rollback');
ROLLBACK TO t;
SELECT pg_temp.pop('limits_rollback');
ROLLBACK TO s;
SELECT pg_temp.pop('limits_rollback', 1);
RELEASE s;
SELECT pg_temp.pop('limits_rollback');
SELECT pg_temp.pop('limits_rollback');
COMMIT;
SELECT * FROM pg_temp.stand('limits_rollback');
SELECT * FROM fairq.check_queue('limits_rollback');

-- a task is popped and completed in one transaction
SELECT pg_temp.done('limits_rollback', 'a7', 'a8');
BEGIN;
SELECT pg_temp.pop('limits_rollback', 1);
SELECT pg_temp.done('limits_rollback', 'a9');
SELECT pg_temp.pop('limits_rollback');
SELECT pg_temp.pop('limits_rollback');
ROLLBACK;
BEGIN;
SELECT pg_temp.pop('limits_rollback', 1);
SAVEPOINT s;
SELECT pg_temp.done('limits_rollback', 'a9');
ROLLBACK TO s;
SELECT pg_temp.pop('limits_rollback');
SAVEPOINT t;
SELECT pg_temp.done('limits_rollback', 'a9', 'a10');
RELEASE t;
SELECT pg_temp.pop('limits_rollback');
COMMIT;
SELECT * FROM pg_temp.stand('limits_rollback');
SELECT pg_temp.pop('limits_rollback');
SELECT * FROM fairq.check_queue('limits_rollback');

-- taken tasks count as running as long as their transaction is open
SELECT fairq.create_queue('limits_rollback_take', 2, 3);
SELECT pg_temp.add('limits_rollback_take', 'a', 1, 9), pg_temp.add('limits_rollback_take', 'b', 1, 9);
BEGIN;
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.take('limits_rollback_take', 100);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.take('limits_rollback_take', 100);
SELECT pg_temp.pop('limits_rollback_take');
SELECT * FROM pg_temp.stand('limits_rollback_take');
ROLLBACK;
SELECT * FROM fairq.check_queue('limits_rollback_take');
BEGIN;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.take('limits_rollback_take', 2);
SAVEPOINT s;
SELECT count(*) FROM fairq.take('limits_rollback_take', 100);
SELECT count(*) FROM fairq.pop('limits_rollback_take', 100);
ROLLBACK TO s;
SELECT count(*) FROM fairq.pop('limits_rollback_take', 100);
SELECT count(*) FROM fairq.take('limits_rollback_take', 100);
ROLLBACK TO s;
SELECT count(*) FROM fairq.take('limits_rollback_take', 100);
RELEASE s;
SELECT count(*) FROM fairq.take('limits_rollback_take', 100);
COMMIT;
SELECT group_key, ready + limited FROM fairq.groups WHERE queue = 'limits_rollback_take' ORDER BY 1;
SELECT * FROM fairq.check_queue('limits_rollback_take');
SELECT count(*) FROM fairq.take('limits_rollback_take', 100);
SELECT count(*) FROM fairq.take('limits_rollback_take', 100);
SELECT count(*) FROM fairq.pop('limits_rollback_take', 100);
SELECT count(*) FROM fairq.take('limits_rollback_take', 100);
SELECT * FROM fairq.check_queue('limits_rollback_take');

--
-- Caught errors
--

SELECT fairq.create_queue('limits_rollback_catch', 1);
SELECT pg_temp.add('limits_rollback_catch', 'a', 1, 9), pg_temp.add('limits_rollback_catch', 'b', 1, 9);
DO $$
BEGIN
	FOR i IN 1..20 LOOP
		BEGIN
			PERFORM fairq.pop('limits_rollback_catch', 1);
			PERFORM fairq.take('limits_rollback_catch', 1);
			PERFORM fairq.enqueue('limits_rollback_catch', 'a', '"none"');
			RAISE EXCEPTION 'no';
		EXCEPTION WHEN raise_exception THEN
		END;
		-- a task whose pop is not rolled back uses only one slot
		IF i = 10 THEN
			PERFORM fairq.pop('limits_rollback_catch', 1);
		END IF;
	END LOOP;
END $$;
SELECT * FROM pg_temp.stand('limits_rollback_catch');
SELECT * FROM fairq.check_queue('limits_rollback_catch');
SELECT count(*), count(DISTINCT group_key), bool_and(payload #>> '{}' IN ('a1', 'b1')) AS first
FROM fairq.pop('limits_rollback_catch', 100);
DO $$
DECLARE
	c record;
BEGIN
	FOR c IN SELECT id, attempt FROM fairq.tasks
		WHERE queue = 'limits_rollback_catch' AND status = 'running' ORDER BY id
	LOOP
		FOR i IN 1..5 LOOP
			BEGIN
				PERFORM fairq.complete(c.id, c.attempt);
				RAISE EXCEPTION 'no';
			EXCEPTION WHEN raise_exception THEN
			END;
			BEGIN
				PERFORM fairq.release(c.id, c.attempt);
				PERFORM fairq.pop('limits_rollback_catch', 100);
				RAISE EXCEPTION 'no';
			EXCEPTION WHEN raise_exception THEN
			END;
			BEGIN
				PERFORM fairq.set_group('limits_rollback_catch', 'a', 5);
				PERFORM fairq.alter_queue('limits_rollback_catch', 5, 7);
				PERFORM fairq.pop('limits_rollback_catch', 100);
				RAISE EXCEPTION 'no';
			EXCEPTION WHEN raise_exception THEN
			END;
			BEGIN
				PERFORM fairq.pause('limits_rollback_catch', 'a');
				PERFORM fairq.pause('limits_rollback_catch', 'new');
				PERFORM fairq.pause('limits_rollback_catch');
				RAISE EXCEPTION 'no';
			EXCEPTION WHEN raise_exception THEN
			END;
			PERFORM 1 FROM fairq.pop('limits_rollback_catch', 100);
			IF FOUND THEN
				RAISE 'more than one is running';
			END IF;
		END LOOP;
	END LOOP;
END $$;
SELECT * FROM pg_temp.stand('limits_rollback_catch');
SELECT * FROM fairq.check_queue('limits_rollback_catch');
SELECT pg_temp.done('limits_rollback_catch', 'a1', 'b1');
SELECT group_key, payload FROM fairq.pop('limits_rollback_catch', 100) ORDER BY 1;
SELECT * FROM fairq.check_queue('limits_rollback_catch');

-- an error ends a call in its middle
SELECT fairq.create_queue('limits_rollback_error', 1, block_length => 2);
SELECT pg_temp.add('limits_rollback_error', 'a', 1, 3), pg_temp.add('limits_rollback_error', 'b', 1, 3);
SELECT fairq.enqueue_batch('limits_rollback_error', '{a,b,c}', '{1,2,3}');
SELECT 1 / (count(*) - 2) FROM fairq.pop('limits_rollback_error', 100);
SELECT 1 / (count(*) - 2) FROM fairq.take('limits_rollback_error', 100);
SELECT pg_temp.pop('limits_rollback_error');
SELECT * FROM pg_temp.tasks('limits_rollback_error');
SELECT * FROM fairq.check_queue('limits_rollback_error');

--
-- Tasks that are enqueued and popped in one transaction
--

SELECT fairq.create_queue('limits_rollback_own', 2);
BEGIN;
SELECT pg_temp.add('limits_rollback_own', 'a', 1, 6);
SELECT * FROM pg_temp.tasks('limits_rollback_own');
SELECT pg_temp.pop('limits_rollback_own');
SELECT pg_temp.pop('limits_rollback_own');
SAVEPOINT s;
SELECT pg_temp.add('limits_rollback_own', 'a', 7, 9), pg_temp.add('limits_rollback_own', 'b', 7, 9);
SELECT pg_temp.pop('limits_rollback_own');
ROLLBACK TO s;
SELECT pg_temp.add('limits_rollback_own', 'a', 10, 11), pg_temp.add('limits_rollback_own', 'b', 10, 13);
SELECT pg_temp.pop('limits_rollback_own');
SELECT * FROM fairq.check_queue('limits_rollback_own');
COMMIT;
SELECT * FROM pg_temp.tasks('limits_rollback_own');
SELECT pg_temp.done('limits_rollback_own', 'a1', 'a2', 'b10');
SELECT * FROM pg_temp.pop_groups('limits_rollback_own');
SELECT * FROM fairq.check_queue('limits_rollback_own');
-- a rollback removes enqueued tasks that exceed the limit
BEGIN;
SELECT pg_temp.add('limits_rollback_own', 'a', 20, 25), pg_temp.add('limits_rollback_own', 'c', 20, 25);
ROLLBACK;
SELECT pg_temp.add('limits_rollback_own', 'a', 30, 31), pg_temp.add('limits_rollback_own', 'c', 30, 33);
SELECT fairq.alter_queue('limits_rollback_own', 0);
SELECT * FROM pg_temp.pop_groups('limits_rollback_own');
SELECT * FROM fairq.check_queue('limits_rollback_own');

--
-- Settings that are changed and used in one transaction
--

SELECT fairq.create_queue('limits_rollback_set');
BEGIN;
SELECT fairq.set_group('limits_rollback_set', 'a', 1);
SELECT pg_temp.add('limits_rollback_set', 'a', 1, 9), pg_temp.add('limits_rollback_set', 'b', 1, 9);
SELECT pg_temp.pop('limits_rollback_set', 2);
SELECT fairq.alter_queue('limits_rollback_set', 2);
SELECT pg_temp.pop('limits_rollback_set', 1);
SELECT fairq.set_group('limits_rollback_set', 'a', 0);
SELECT pg_temp.pop('limits_rollback_set', 1);
SAVEPOINT s;
SELECT fairq.alter_queue('limits_rollback_set', 0, 5);
SELECT count(*) FROM fairq.pop('limits_rollback_set', 100);
SELECT concurrency, max_running FROM fairq.queues WHERE queue = 'limits_rollback_set';
ROLLBACK TO s;
SELECT concurrency, max_running FROM fairq.queues WHERE queue = 'limits_rollback_set';
SELECT pg_temp.pop('limits_rollback_set');
SELECT * FROM fairq.check_queue('limits_rollback_set');
COMMIT;
SELECT * FROM pg_temp.stand('limits_rollback_set');
SELECT pg_temp.pop('limits_rollback_set');
SELECT * FROM fairq.check_queue('limits_rollback_set');
-- a transaction that raises a limit is rolled back
SELECT pg_temp.done('limits_rollback_set', 'a1', 'b1');
BEGIN;
SELECT fairq.alter_queue('limits_rollback_set', 4);
SELECT * FROM pg_temp.pop_groups('limits_rollback_set');
ROLLBACK;
SELECT * FROM pg_temp.stand('limits_rollback_set');
SELECT * FROM pg_temp.pop_groups('limits_rollback_set');
SELECT pg_temp.pop('limits_rollback_set');
SELECT * FROM fairq.check_queue('limits_rollback_set');
-- the lowering of a limit is rolled back
SELECT pg_temp.done('limits_rollback_set', 'a2', 'b2');
BEGIN;
SELECT fairq.alter_queue('limits_rollback_set', 1);
SELECT pg_temp.pop('limits_rollback_set');
ROLLBACK;
SELECT * FROM fairq.check_queue('limits_rollback_set');
SELECT * FROM pg_temp.pop_groups('limits_rollback_set');
-- the removal of a limit is rolled back, with a savepoint
SELECT pg_temp.done('limits_rollback_set', 'a3', 'b3');
BEGIN;
SAVEPOINT s;
SELECT fairq.alter_queue('limits_rollback_set', 0);
SELECT count(*) FROM fairq.take('limits_rollback_set', 100);
ROLLBACK TO s;
SELECT count(*) FROM fairq.take('limits_rollback_set', 100);
COMMIT;
SELECT * FROM pg_temp.stand('limits_rollback_set');
SELECT * FROM fairq.check_queue('limits_rollback_set');
SELECT * FROM pg_temp.pop_groups('limits_rollback_set');
SELECT pg_temp.pop('limits_rollback_set');
SELECT * FROM fairq.check_queue('limits_rollback_set');

-- the very first limit applies in its own transaction, and after that only if
-- the transaction commits
SELECT fairq.create_queue('limits_rollback_first');
SELECT pg_temp.add('limits_rollback_first', 'a', 1, 12);
SELECT pg_temp.pop('limits_rollback_first', 3);
BEGIN;
SELECT fairq.alter_queue('limits_rollback_first', 2);
SELECT pg_temp.pop('limits_rollback_first');
ROLLBACK;
SELECT pg_temp.pop('limits_rollback_first', 1);
BEGIN;
SELECT pg_temp.pop('limits_rollback_first', 1);
SELECT fairq.alter_queue('limits_rollback_first', 7);
SELECT pg_temp.pop('limits_rollback_first');
ROLLBACK;
SELECT pg_temp.pop('limits_rollback_first', 1);
SELECT * FROM fairq.check_queue('limits_rollback_first');
BEGIN;
SELECT pg_temp.pop('limits_rollback_first', 1);
SELECT fairq.alter_queue('limits_rollback_first', 8);
SELECT pg_temp.pop('limits_rollback_first');
SELECT pg_temp.done('limits_rollback_first', 'a1');
SELECT pg_temp.pop('limits_rollback_first');
COMMIT;
SELECT * FROM pg_temp.stand('limits_rollback_first');
SELECT pg_temp.pop('limits_rollback_first');
SELECT pg_temp.pop('limits_rollback_first');
SELECT * FROM fairq.check_queue('limits_rollback_first');

-- a queue that is created, used and limited in one transaction, and rolled
-- back
BEGIN;
SELECT fairq.create_queue('limits_rollback_new', 1);
SELECT pg_temp.add('limits_rollback_new', 'a', 1, 3);
SELECT pg_temp.pop('limits_rollback_new', 1);
SELECT fairq.alter_queue('limits_rollback_new', 2);
SELECT pg_temp.pop('limits_rollback_new');
SELECT fairq.drop_queue('limits_rollback_new', true);
SELECT fairq.create_queue('limits_rollback_new');
SELECT pg_temp.add('limits_rollback_new', 'a', 1, 3);
SELECT pg_temp.pop('limits_rollback_new');
ROLLBACK;
SELECT fairq.create_queue('limits_rollback_new', 1);
SELECT pg_temp.add('limits_rollback_new', 'a', 1, 3);
SELECT pg_temp.pop('limits_rollback_new');
SELECT * FROM fairq.check_queue('limits_rollback_new');

--
-- Running tasks are counted again
--

SELECT fairq.create_queue('limits_rollback_reset', 2, 3);
SELECT pg_temp.add('limits_rollback_reset', 'a', 1, 9), pg_temp.add('limits_rollback_reset', 'b', 1, 9);
SELECT fairq.reset_hints();
SELECT * FROM fairq.check_queue('limits_rollback_reset');
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 2);
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
SELECT * FROM pg_temp.stand('limits_rollback_reset');
SELECT * FROM fairq.check_queue('limits_rollback_reset');
SELECT fairq.reset_hints();
SELECT pg_temp.add('limits_rollback_reset', 'a', 10, 10);
SELECT pg_temp.done('limits_rollback_reset', 'a1', 'b1');
SELECT fairq.reset_hints();
SELECT group_key, ready + limited AS left, running FROM fairq.groups
WHERE queue = 'limits_rollback_reset' ORDER BY 1;
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
SELECT * FROM fairq.check_queue('limits_rollback_reset');

-- limits hold if hints are reset in the middle of a transaction, between any two
-- calls
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'limits_rollback_reset' AND status = 'running';
SELECT fairq.alter_queue('limits_rollback_reset', 2, 0);
BEGIN;
SELECT count(*) FROM fairq.take('limits_rollback_reset', 2);
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.take('limits_rollback_reset', 100);
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
ROLLBACK;
SELECT * FROM fairq.check_queue('limits_rollback_reset');
BEGIN;
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 2);
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
SELECT fairq.reset_hints();
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'limits_rollback_reset' AND status = 'running';
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
COMMIT;
SELECT * FROM fairq.check_queue('limits_rollback_reset');
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
BEGIN;
SAVEPOINT s;
SELECT count(fairq.release(id)) FROM fairq.tasks
WHERE queue = 'limits_rollback_reset' AND status = 'running';
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
ROLLBACK TO s;
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
COMMIT;
SELECT count(*) FROM fairq.pop('limits_rollback_reset', 100);
SELECT group_key, running FROM fairq.groups WHERE queue = 'limits_rollback_reset' ORDER BY 1;
SELECT * FROM fairq.check_queue('limits_rollback_reset');

-- tasks are served in order, with and without hints
SELECT fairq.create_queue('limits_rollback_fifo', 3);
SELECT pg_temp.add('limits_rollback_fifo', 'a', 1, 8);
SELECT fairq.reset_hints();
SELECT pg_temp.pop('limits_rollback_fifo', 2);
SELECT fairq.reset_hints();
SELECT pg_temp.add('limits_rollback_fifo', 'a', 9, 10);
SELECT fairq.reset_hints();
SELECT pg_temp.release('limits_rollback_fifo', 'a1');
SELECT fairq.reset_hints();
SELECT pg_temp.add('limits_rollback_fifo', 'a', 11, 11);
SELECT * FROM pg_temp.tasks('limits_rollback_fifo');
SELECT pg_temp.pop('limits_rollback_fifo');
SELECT fairq.alter_queue('limits_rollback_fifo', 0);
SELECT fairq.reset_hints();
SELECT pg_temp.pop('limits_rollback_fifo', 3);
SELECT pg_temp.add('limits_rollback_fifo', 'a', 12, 12);
SELECT pg_temp.pop('limits_rollback_fifo');
SELECT * FROM fairq.check_queue('limits_rollback_fifo');

--
-- Under uncommitted settings, turns yield no task; then the settings are
-- rolled back. A group that gets tasks afterwards is not served before the
-- others.
--

SELECT fairq.create_queue('limits_rollback_told');
SELECT pg_temp.add('limits_rollback_told', 'a', 1, 1), pg_temp.add('limits_rollback_told', 'b', 1, 1);
SELECT pg_temp.pop('limits_rollback_told', 2);
SELECT pg_temp.add('limits_rollback_told', 'a', 2, 3), pg_temp.add('limits_rollback_told', 'b', 2, 3),
	pg_temp.add('limits_rollback_told', 'c', 2, 3);
BEGIN;
SELECT fairq.alter_queue('limits_rollback_told', concurrency => 1);
SELECT pg_temp.pop('limits_rollback_told', 2);
ROLLBACK;
SELECT pg_temp.pop('limits_rollback_told', 1);
SELECT pg_temp.add('limits_rollback_told', 'a', 4, 4);
SELECT pg_temp.pop('limits_rollback_told', 6);
SELECT * FROM fairq.check_queue('limits_rollback_told');

--
-- Functions that only read, in a read-only transaction
--

BEGIN READ ONLY;
SELECT * FROM pg_temp.stand('limits_rollback_catch');
SELECT * FROM pg_temp.tasks('limits_rollback_catch');
SELECT * FROM fairq.check_queue('limits_rollback_catch');
SAVEPOINT s;
SELECT fairq.create_queue('limits_rollback_x', 1, 2);
ROLLBACK TO s;
SELECT fairq.alter_queue('limits_rollback_catch', 0);
ROLLBACK TO s;
SELECT fairq.set_group('limits_rollback_catch', 'a', 0);
ROLLBACK TO s;
SELECT fairq.pop('limits_rollback_catch');
ROLLBACK TO s;
COMMIT;

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'limits\_rollback%';
