-- No task is popped from a paused queue or group. Running tasks may end, and
-- all tasks are served in order after resume.
--
-- Fails if a paused queue is served (serve_lanes() in serve.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

--
-- A group
--

SELECT fairq.create_queue('pause');
SELECT pg_temp.add('pause', 'a', 1, 4), pg_temp.add('pause', 'b', 1, 2);
SELECT pg_temp.pop('pause', 3);
SELECT fairq.pause('pause', 'a');
SELECT * FROM pg_temp.stand('pause');
SELECT * FROM fairq.check_queue('pause');
SELECT pg_temp.pop('pause');
SELECT pg_temp.pop('pause');
SELECT count(*) FROM fairq.take('pause', 100);
-- running tasks may end, and tasks may be added
SELECT pg_temp.done('pause', 'a1');
SELECT pg_temp.release('pause', 'a2');
SELECT pg_temp.add('pause', 'a', 5, 6), pg_temp.add('pause', 'c', 1, 1);
SELECT * FROM pg_temp.stand('pause');
SELECT pg_temp.pop('pause');
SELECT * FROM fairq.check_queue('pause');
-- a second pause has no effect
SELECT fairq.pause('pause', 'a');
SELECT fairq.resume('pause', 'a');
SELECT * FROM pg_temp.stand('pause');
SELECT pg_temp.pop('pause', 3);
SELECT pg_temp.pop('pause');
SELECT fairq.resume('pause', 'a');
SELECT pg_temp.pop('pause');
SELECT * FROM fairq.check_queue('pause');
-- resume of a group that was not paused has no effect
SELECT fairq.resume('pause', 'b');
SELECT count(*) FROM fairq.group_setting JOIN fairq.queue USING (queue_id) WHERE name = 'pause';

-- a group can be paused before it has a task; resume of an unknown group fails
SELECT fairq.create_queue('pause_early');
SELECT fairq.resume('pause_early', 'a');
SELECT group_key FROM fairq.groups WHERE queue = 'pause_early';
SELECT fairq.pause('pause_early', 'a');
SELECT * FROM pg_temp.stand('pause_early');
SELECT fairq.resume('pause_early', 'b');
SELECT pg_temp.add('pause_early', 'a', 1, 3), pg_temp.add('pause_early', 'b', 1, 3);
SELECT * FROM pg_temp.stand('pause_early');
SELECT pg_temp.pop('pause_early');
SELECT * FROM fairq.check_queue('pause_early');
SELECT fairq.resume('pause_early', 'a');
SELECT pg_temp.pop('pause_early');
SELECT * FROM pg_temp.stand('pause_early');
SELECT * FROM fairq.check_queue('pause_early');
-- pause also fails if no group number is free
SELECT fairq.create_queue('pause_number', block_length => 1);
SELECT fairq.pause('pause_number', 'a');
SELECT fairq.pause('pause_number', 'b');
SELECT fairq.resume('pause_number', 'b');
SELECT group_key, paused FROM fairq.groups WHERE queue = 'pause_number';

-- no task is served while all groups are paused, and a resume returns only its
-- group
SELECT fairq.create_queue('pause_all');
SELECT pg_temp.add('pause_all', 'a', 1, 3), pg_temp.add('pause_all', 'b', 1, 3),
	pg_temp.add('pause_all', 'c', 1, 3);
SELECT fairq.pause('pause_all', group_key) FROM (VALUES ('a'), ('b'), ('c')) g (group_key);
SELECT pg_temp.pop('pause_all');
SELECT * FROM pg_temp.stand('pause_all');
SELECT fairq.resume('pause_all', 'b');
SELECT pg_temp.pop('pause_all', 1);
SELECT fairq.resume('pause_all', 'c');
SELECT * FROM pg_temp.pop_groups('pause_all', 2);
SELECT fairq.resume('pause_all', 'a');
SELECT * FROM pg_temp.pop_groups('pause_all');
SELECT * FROM fairq.check_queue('pause_all');

-- a pause holds back the group's tasks of all priorities; tasks of other
-- groups do not wait for them
SELECT fairq.create_queue('pause_priority');
SELECT pg_temp.add('pause_priority', 'a', 1, 2, 0), pg_temp.add('pause_priority', 'b', 1, 2, 5),
	pg_temp.add('pause_priority', 'a', 3, 4, 9);
SELECT fairq.pause('pause_priority', 'a');
SELECT pg_temp.pop('pause_priority');
SELECT pg_temp.add('pause_priority', 'a', 5, 5, 3);
SELECT pg_temp.pop('pause_priority');
SELECT fairq.resume('pause_priority', 'a');
SELECT pg_temp.pop('pause_priority');
SELECT * FROM fairq.check_queue('pause_priority');

--
-- A queue
--

SELECT fairq.create_queue('pause_queue', 2);
SELECT pg_temp.add('pause_queue', 'a', 1, 4), pg_temp.add('pause_queue', 'b', 1, 1);
SELECT pg_temp.pop('pause_queue', 1);
SELECT fairq.pause('pause_queue');
SELECT pg_temp.pop('pause_queue');
SELECT * FROM pg_temp.stand('pause_queue');
SELECT pg_temp.done('pause_queue', 'a1');
SELECT pg_temp.add('pause_queue', 'b', 2, 4);
SELECT pg_temp.pop('pause_queue');
SELECT fairq.alter_queue('pause_queue', 3);
SELECT fairq.resume('pause_queue', NULL);
SELECT * FROM pg_temp.pop_groups('pause_queue');
SELECT * FROM fairq.check_queue('pause_queue');

-- if queue and group are paused, the group's tasks wait until both are resumed
SELECT fairq.create_queue('pause_both');
SELECT pg_temp.add('pause_both', 'a', 1, 4), pg_temp.add('pause_both', 'b', 1, 4);
SELECT fairq.pause('pause_both', 'a');
SELECT fairq.pause('pause_both');
SELECT * FROM pg_temp.stand('pause_both');
SELECT pg_temp.pop('pause_both');
SELECT fairq.resume('pause_both', 'a');
SELECT pg_temp.pop('pause_both');
SELECT fairq.pause('pause_both', 'b');
SELECT fairq.resume('pause_both');
SELECT * FROM pg_temp.stand('pause_both');
SELECT pg_temp.pop('pause_both', 2);
SELECT fairq.pause('pause_both', 'a');
SELECT fairq.resume('pause_both', 'b');
SELECT pg_temp.pop('pause_both', 2);
SELECT fairq.pause('pause_both');
SELECT fairq.resume('pause_both');
SELECT fairq.resume('pause_both', 'a');
SELECT * FROM pg_temp.pop_groups('pause_both');
SELECT * FROM fairq.check_queue('pause_both');

--
-- With limits and weights
--

SELECT fairq.create_queue('pause_limits', 2, 3);
SELECT fairq.set_group('pause_limits', 'a', 3, 2);
SELECT pg_temp.add('pause_limits', 'a', 1, 9), pg_temp.add('pause_limits', 'b', 1, 9);
SELECT fairq.pause('pause_limits', 'a');
SELECT group_key, concurrency, weight, paused FROM fairq.groups WHERE queue = 'pause_limits' ORDER BY group_no;
SELECT * FROM pg_temp.stand('pause_limits');
SELECT pg_temp.pop('pause_limits');
-- a group keeps its settings during the pause, and they can be changed
SELECT fairq.set_group('pause_limits', 'a', 1);
SELECT group_key, concurrency, weight, paused FROM fairq.groups WHERE queue = 'pause_limits' ORDER BY group_no;
SELECT pg_temp.pop('pause_limits');
SELECT fairq.set_group('pause_limits', 'a', 0, 0);
SELECT group_key, concurrency, weight, paused FROM fairq.groups WHERE queue = 'pause_limits' ORDER BY group_no;
SELECT fairq.alter_queue('pause_limits', 4, 0);
SELECT pg_temp.pop('pause_limits');
SELECT fairq.resume('pause_limits', 'a');
SELECT pg_temp.pop('pause_limits');
SELECT * FROM pg_temp.stand('pause_limits');
-- a group is paused while it is full, and resumed when slots are free
SELECT fairq.pause('pause_limits', 'b');
SELECT pg_temp.done('pause_limits', 'b1', 'b2', 'a1');
SELECT pg_temp.pop('pause_limits');
SELECT fairq.resume('pause_limits', 'b');
SELECT pg_temp.pop('pause_limits');
SELECT pg_temp.pop('pause_limits');
SELECT * FROM fairq.check_queue('pause_limits');
-- the limit of a paused group is removed
SELECT fairq.pause('pause_limits', 'a');
SELECT fairq.alter_queue('pause_limits', 0);
SELECT pg_temp.pop('pause_limits');
SELECT * FROM pg_temp.stand('pause_limits');
SELECT fairq.resume('pause_limits', 'a');
SELECT pg_temp.pop('pause_limits');
SELECT * FROM fairq.check_queue('pause_limits');

-- purge, other block lengths, drop
SELECT fairq.create_queue('pause_purge', block_length => 10);
SELECT pg_temp.add('pause_purge', 'a', 1, 4), pg_temp.add('pause_purge', 'b', 1, 2);
SELECT fairq.pause('pause_purge', 'a');
SELECT pg_temp.pop('pause_purge', 1);
SELECT fairq.alter_queue('pause_purge', block_length => 100);
SELECT pg_temp.pop('pause_purge');
SELECT fairq.purge('pause_purge', 'a');
SELECT pg_temp.add('pause_purge', 'a', 5, 7);
SELECT * FROM fairq.check_queue('pause_purge');
SELECT pg_temp.pop('pause_purge');
SELECT fairq.drop_queue('pause_purge');
BEGIN;
SELECT fairq.drop_queue('pause_purge', true);
SELECT fairq.create_queue('pause_purge');
SELECT pg_temp.add('pause_purge', 'a', 1, 1);
SELECT pg_temp.pop('pause_purge');
ROLLBACK;
SELECT pg_temp.pop('pause_purge');
SELECT fairq.resume('pause_purge', 'a');
SELECT pg_temp.pop('pause_purge');
SELECT * FROM fairq.check_queue('pause_purge');

--
-- In transactions
--

SELECT fairq.create_queue('pause_rollback');
SELECT pg_temp.add('pause_rollback', 'a', 1, 6), pg_temp.add('pause_rollback', 'b', 1, 6);
BEGIN;
SELECT fairq.pause('pause_rollback', 'a');
SELECT paused FROM fairq.groups WHERE queue = 'pause_rollback' ORDER BY group_no;
SELECT pg_temp.pop('pause_rollback', 2);
ROLLBACK;
SELECT paused FROM fairq.groups WHERE queue = 'pause_rollback' ORDER BY group_no;
SELECT pg_temp.pop('pause_rollback', 2);
SELECT * FROM fairq.check_queue('pause_rollback');
BEGIN;
SAVEPOINT s;
SELECT fairq.pause('pause_rollback', 'a');
SELECT fairq.pause('pause_rollback', 'b');
SELECT pg_temp.pop('pause_rollback');
ROLLBACK TO s;
SELECT * FROM pg_temp.pop_groups('pause_rollback', 2);
SELECT fairq.pause('pause_rollback', 'b');
RELEASE s;
COMMIT;
SELECT * FROM pg_temp.pop_groups('pause_rollback', 2);
SELECT * FROM pg_temp.stand('pause_rollback');
SELECT * FROM fairq.check_queue('pause_rollback');
-- a resume that is rolled back has no effect
BEGIN;
SELECT fairq.resume('pause_rollback', 'b');
ROLLBACK;
SELECT * FROM pg_temp.pop_groups('pause_rollback');
SELECT paused FROM fairq.groups WHERE queue = 'pause_rollback' ORDER BY group_no;
SELECT fairq.resume('pause_rollback', 'b');
SELECT * FROM pg_temp.pop_groups('pause_rollback');
SELECT * FROM fairq.check_queue('pause_rollback');

-- a rolled back pause does not create its group
BEGIN;
SELECT fairq.pause('pause_rollback', 'new');
SELECT pg_temp.add('pause_rollback', 'new', 1, 2);
SELECT pg_temp.pop('pause_rollback');
ROLLBACK;
SELECT fairq.resume('pause_rollback', 'new');
SELECT pg_temp.add('pause_rollback', 'new', 3, 3);
SELECT pg_temp.pop('pause_rollback');
SELECT * FROM fairq.check_queue('pause_rollback');

-- caught errors
SELECT fairq.create_queue('pause_catch');
SELECT pg_temp.add('pause_catch', 'a', 1, 3);
DO $$
BEGIN
	FOR i IN 1..30 LOOP
		BEGIN
			PERFORM fairq.pause('pause_catch', 'a');
			PERFORM fairq.pop('pause_catch');
			PERFORM fairq.resume('pause_catch', 'none');
		EXCEPTION WHEN SQLSTATE 'QF007' THEN
		END;
	END LOOP;
END $$;
SELECT * FROM pg_temp.stand('pause_catch');
SELECT pg_temp.pop('pause_catch');
SELECT * FROM fairq.check_queue('pause_catch');

-- pauses apply with and without hints
SELECT fairq.create_queue('pause_reset');
SELECT pg_temp.add('pause_reset', 'a', 1, 4), pg_temp.add('pause_reset', 'b', 1, 4);
SELECT fairq.pause('pause_reset', 'a');
SELECT fairq.reset_hints();
SELECT pg_temp.pop('pause_reset', 2);
SELECT fairq.reset_hints();
SELECT pg_temp.pop('pause_reset');
SELECT pg_temp.pop('pause_reset');
SELECT * FROM fairq.check_queue('pause_reset');
SELECT fairq.resume('pause_reset', 'a');
SELECT fairq.reset_hints();
SELECT pg_temp.pop('pause_reset');
SELECT * FROM fairq.check_queue('pause_reset');

-- NULL, and unknown names
SELECT fairq.pause(NULL, 'a');
SELECT fairq.resume(NULL, NULL);
SELECT fairq.pause('pause_none', 'a');
SELECT fairq.resume('pause_none', 'a');
SELECT paused FROM fairq.queues WHERE queue = 'pause_reset';
SELECT fairq.pause('pause_reset', NULL);
SELECT paused FROM fairq.queues WHERE queue = 'pause_reset';

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'pause%';
