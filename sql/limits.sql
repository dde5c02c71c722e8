-- A group or queue never has more running tasks than its limit. Tasks that the
-- limit holds back are served later, in order, and no other group waits for
-- them.
--
-- Fails if one task more than the limit allows gets a slot (find_slot() in
-- counter.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

--
-- Every group of a queue
--

SELECT fairq.create_queue('limits', 2);
SELECT pg_temp.add('limits', 'a', 1, 5), pg_temp.add('limits', 'b', 1, 3);
SELECT * FROM pg_temp.stand('limits');
-- each task gets an address, also a task that the limit holds back
SELECT payload, status, addr, lease_until FROM fairq.tasks WHERE queue = 'limits' ORDER BY id;
SELECT * FROM fairq.check_queue('limits');
SELECT pg_temp.pop('limits');
SELECT pg_temp.pop('limits');
SELECT * FROM pg_temp.stand('limits');
SELECT * FROM fairq.check_queue('limits');

-- each task that ends gives its slot to the next task
SELECT pg_temp.done('limits', 'a2');
SELECT * FROM pg_temp.stand('limits');
SELECT pg_temp.pop('limits');
SELECT pg_temp.pop('limits');
SELECT pg_temp.done('limits', 'a1', 'a3', 'b2');
SELECT * FROM pg_temp.stand('limits');
SELECT * FROM fairq.check_queue('limits');
-- a task that waited still has an address when it is popped
SELECT payload, addr >= 0 AS has_address, addr % 1048576 AS seat
FROM fairq.pop('limits', 100) ORDER BY payload;
SELECT count(*), count(addr) FROM fairq.tasks WHERE queue = 'limits' AND status = 'running';
SELECT pg_temp.done('limits', 'a4', 'a5', 'b1', 'b3');
SELECT * FROM pg_temp.stand('limits');
SELECT pg_temp.pop('limits');
SELECT * FROM fairq.check_queue('limits');

-- new tasks of the group get addresses in advance again
SELECT pg_temp.add('limits', 'a', 6, 8), pg_temp.add('limits', 'b', 4, 4);
SELECT * FROM pg_temp.tasks('limits');
SELECT pg_temp.pop('limits');
SELECT fairq.purge('limits'), pg_temp.done('limits', 'a6', 'a7', 'b4');
SELECT * FROM pg_temp.tasks('limits');

-- release frees the slot, too; the released task goes behind the others
SELECT pg_temp.add('limits', 'a', 1, 4);
SELECT pg_temp.pop('limits');
SELECT pg_temp.release('limits', 'a1');
SELECT * FROM pg_temp.tasks('limits');
SELECT * FROM pg_temp.stand('limits');
SELECT * FROM fairq.check_queue('limits');
SELECT pg_temp.pop('limits');
SELECT pg_temp.done('limits', 'a2');
SELECT pg_temp.pop('limits');
SELECT pg_temp.release('limits', 'a3');
SELECT pg_temp.pop('limits');
SELECT pg_temp.done('limits', 'a1', 'a4');
SELECT pg_temp.pop('limits');
SELECT payload, attempt FROM fairq.tasks WHERE queue = 'limits';
-- a released task is also served again if it is the group's only task
SELECT pg_temp.release('limits', 'a3');
SELECT pg_temp.pop('limits');
SELECT pg_temp.done('limits', 'a3');
SELECT * FROM fairq.check_queue('limits');

-- with a limit of 1, tasks run one after the other
SELECT fairq.create_queue('limits_one', concurrency => 1);
SELECT pg_temp.add('limits_one', 'a', 1, 4), pg_temp.add('limits_one', 'b', 1, 2);
SELECT pg_temp.pop('limits_one');
SELECT pg_temp.done('limits_one', 'a1', 'b1');
SELECT pg_temp.pop('limits_one');
SELECT pg_temp.done('limits_one', 'a2', 'b2');
SELECT pg_temp.pop('limits_one');
SELECT pg_temp.done('limits_one', 'a3');
SELECT pg_temp.pop('limits_one');
SELECT pg_temp.done('limits_one', 'a4');
SELECT pg_temp.pop('limits_one');
SELECT * FROM fairq.check_queue('limits_one');

-- the largest limit, and one larger than the number of tasks
SELECT fairq.create_queue('limits_max', 2147483647, 2147483647);
SELECT pg_temp.add('limits_max', 'a', 1, 3), pg_temp.add('limits_max', 'b', 1, 1);
SELECT * FROM pg_temp.stand('limits_max');
SELECT pg_temp.pop('limits_max');
SELECT fairq.alter_queue('limits_max', 1000, 1000);
SELECT pg_temp.add('limits_max', 'a', 4, 5);
SELECT pg_temp.pop('limits_max');
SELECT * FROM pg_temp.stand('limits_max');
SELECT * FROM fairq.check_queue('limits_max');

--
-- A group's own limit
--

-- groups have a lower limit than the queue's, a higher one, and then the
-- queue's again
SELECT fairq.create_queue('limits_own', 2);
SELECT fairq.set_group('limits_own', 'a', 1);
SELECT fairq.set_group('limits_own', 'b', concurrency => 4);
SELECT pg_temp.add('limits_own', 'a', 1, 5), pg_temp.add('limits_own', 'b', 1, 5),
	pg_temp.add('limits_own', 'c', 1, 5);
SELECT * FROM pg_temp.stand('limits_own');
SELECT * FROM pg_temp.tasks('limits_own');
SELECT pg_temp.pop('limits_own');
SELECT pg_temp.pop('limits_own');
SELECT * FROM pg_temp.stand('limits_own');
SELECT fairq.set_group('limits_own', 'a', 0), fairq.set_group('limits_own', 'b', 0);
SELECT * FROM pg_temp.stand('limits_own');
SELECT pg_temp.pop('limits_own');
SELECT pg_temp.done('limits_own', 'b1', 'b2');
SELECT pg_temp.pop('limits_own');
SELECT pg_temp.done('limits_own', 'b3');
SELECT pg_temp.pop('limits_own');
SELECT * FROM fairq.check_queue('limits_own');

-- the queue's limit changes for groups without their own; NULL changes nothing
SELECT fairq.set_group('limits_own', 'a', 3);
SELECT fairq.alter_queue('limits_own', 1);
SELECT fairq.set_group('limits_own', 'a');
SELECT fairq.set_group('limits_own', 'a', NULL, 5);
SELECT fairq.set_group('limits_own', 'b', NULL, NULL);
SELECT fairq.alter_queue('limits_own');
SELECT fairq.alter_queue('limits_own', NULL, NULL, '1 hour');
SELECT group_key, concurrency, weight FROM fairq.groups WHERE queue = 'limits_own' ORDER BY group_no;
SELECT concurrency, max_running, lease FROM fairq.queues WHERE queue = 'limits_own';
SELECT pg_temp.pop('limits_own');
SELECT * FROM pg_temp.stand('limits_own');
-- the weight is removed and the limit stays, then the limit is removed and the weight stays
SELECT fairq.set_group('limits_own', 'a', weight => 0);
SELECT group_key, concurrency, weight FROM fairq.groups WHERE queue = 'limits_own' ORDER BY group_no;
SELECT fairq.set_group('limits_own', 'a', 0, 7);
SELECT group_key, concurrency, weight FROM fairq.groups WHERE queue = 'limits_own' ORDER BY group_no;
-- a group without settings of its own needs no row
SELECT fairq.set_group('limits_own', 'a', weight => 1), fairq.set_group('limits_own', 'd', 3);
SELECT fairq.set_group('limits_own', 'd', 0, 0);
SELECT count(*) FROM fairq.group_setting JOIN fairq.queue USING (queue_id) WHERE name = 'limits_own';
SELECT * FROM fairq.check_queue('limits_own');

-- a limited group among unlimited ones; a group that does not exist yet
SELECT fairq.create_queue('limits_among');
SELECT fairq.set_group('limits_among', 'a', 1);
SELECT * FROM pg_temp.stand('limits_among');
SELECT pg_temp.add('limits_among', 'a', 1, 3), pg_temp.add('limits_among', 'b', 1, 3);
SELECT * FROM pg_temp.stand('limits_among');
SELECT pg_temp.pop('limits_among');
SELECT * FROM pg_temp.stand('limits_among');
SELECT fairq.set_group('limits_among', 'a', 0);
SELECT * FROM pg_temp.stand('limits_among');
SELECT pg_temp.pop('limits_among');
SELECT * FROM fairq.check_queue('limits_among');

--
-- Limits are changed
--

-- a raised limit applies at once, while tasks are running and others wait
SELECT fairq.create_queue('limits_change', 2);
SELECT pg_temp.add('limits_change', 'a', 1, 9);
SELECT pg_temp.pop('limits_change');
SELECT fairq.alter_queue('limits_change', 4);
SELECT * FROM pg_temp.stand('limits_change');
SELECT pg_temp.pop('limits_change');
SELECT pg_temp.done('limits_change', 'a1', 'a2', 'a3');
SELECT fairq.set_group('limits_change', 'a', 5);
SELECT pg_temp.pop('limits_change', 1);
SELECT pg_temp.pop('limits_change');
SELECT * FROM pg_temp.stand('limits_change');
SELECT * FROM fairq.check_queue('limits_change');
-- if a limit is lowered below the number of running tasks, no task starts until
-- enough have ended
SELECT fairq.set_group('limits_change', 'a', 2);
SELECT pg_temp.add('limits_change', 'a', 10, 12);
SELECT * FROM pg_temp.stand('limits_change');
SELECT pg_temp.pop('limits_change');
SELECT pg_temp.done('limits_change', 'a4', 'a5', 'a6');
SELECT * FROM pg_temp.stand('limits_change');
SELECT pg_temp.pop('limits_change');
SELECT pg_temp.done('limits_change', 'a7');
SELECT pg_temp.pop('limits_change');
SELECT pg_temp.pop('limits_change');
SELECT * FROM pg_temp.tasks('limits_change');
-- a change to the same value has no effect
SELECT fairq.set_group('limits_change', 'a', 2);
SELECT pg_temp.pop('limits_change');
-- with a limit of 0 the group has the limit of the queue
SELECT fairq.set_group('limits_change', 'a', 0);
SELECT pg_temp.pop('limits_change');
SELECT * FROM pg_temp.stand('limits_change');
SELECT * FROM fairq.check_queue('limits_change');

-- a limit is lowered while more tasks are ready than may run
SELECT fairq.create_queue('limits_lower', 5);
SELECT pg_temp.add('limits_lower', 'a', 1, 7), pg_temp.add('limits_lower', 'b', 1, 7);
SELECT * FROM pg_temp.tasks('limits_lower');
SELECT fairq.alter_queue('limits_lower', 1);
SELECT * FROM pg_temp.stand('limits_lower');
SELECT pg_temp.pop('limits_lower');
SELECT pg_temp.done('limits_lower', 'a1');
SELECT pg_temp.pop('limits_lower');
SELECT pg_temp.done('limits_lower', 'a2', 'b1');
SELECT pg_temp.add('limits_lower', 'a', 8, 8), pg_temp.add('limits_lower', 'c', 1, 2);
SELECT pg_temp.pop('limits_lower');
SELECT * FROM pg_temp.stand('limits_lower');
SELECT * FROM fairq.check_queue('limits_lower');
-- if a limit is removed while tasks wait, they are served in the same order
SELECT fairq.alter_queue('limits_lower', 0);
SELECT * FROM pg_temp.stand('limits_lower');
SELECT pg_temp.add('limits_lower', 'a', 9, 10), pg_temp.add('limits_lower', 'c', 3, 3);
SELECT * FROM fairq.check_queue('limits_lower');
SELECT * FROM pg_temp.pop_groups('limits_lower');
SELECT * FROM pg_temp.stand('limits_lower');
SELECT pg_temp.add('limits_lower', 'a', 11, 12);
SELECT * FROM pg_temp.tasks('limits_lower');
SELECT pg_temp.pop('limits_lower');
SELECT * FROM fairq.check_queue('limits_lower');

-- a queue in full use gets its first limit
SELECT fairq.create_queue('limits_first');
SELECT pg_temp.add('limits_first', 'a', 1, 9), pg_temp.add('limits_first', 'b', 1, 5);
SELECT pg_temp.pop('limits_first', 6);
SELECT fairq.alter_queue('limits_first', 3);
SELECT * FROM pg_temp.stand('limits_first');
SELECT pg_temp.pop('limits_first');
SELECT pg_temp.done('limits_first', 'a1', 'b2');
SELECT pg_temp.pop('limits_first');
SELECT pg_temp.add('limits_first', 'a', 10, 10), pg_temp.add('limits_first', 'b', 6, 6);
SELECT fairq.set_group('limits_first', 'b', 1);
SELECT pg_temp.done('limits_first', 'b1', 'b3');
SELECT pg_temp.pop('limits_first');
SELECT pg_temp.done('limits_first', 'b4');
SELECT pg_temp.pop('limits_first');
SELECT * FROM pg_temp.stand('limits_first');
SELECT * FROM fairq.check_queue('limits_first');

-- a single group, which has too many running tasks, gets the first limit
SELECT fairq.create_queue('limits_first_group');
SELECT pg_temp.add('limits_first_group', 'a', 1, 9), pg_temp.add('limits_first_group', 'b', 1, 5);
SELECT pg_temp.pop('limits_first_group', 6);
SELECT fairq.set_group('limits_first_group', 'a', 2);
SELECT pg_temp.pop('limits_first_group', 1);
SELECT pg_temp.pop('limits_first_group', 1);
SELECT pg_temp.pop('limits_first_group', 1);
SELECT pg_temp.done('limits_first_group', 'a1');
SELECT pg_temp.pop('limits_first_group');
SELECT pg_temp.done('limits_first_group', 'a2');
SELECT pg_temp.pop('limits_first_group', 1);
SELECT pg_temp.pop('limits_first_group', 1);
SELECT * FROM pg_temp.stand('limits_first_group');
SELECT * FROM fairq.check_queue('limits_first_group');

--
-- The whole queue
--

-- the queue has max_running, and no limit for groups
SELECT fairq.create_queue('limits_queue', max_running => 3);
SELECT pg_temp.add('limits_queue', 'a', 1, 5), pg_temp.add('limits_queue', 'b', 1, 2);
SELECT * FROM pg_temp.stand('limits_queue');
SELECT pg_temp.pop('limits_queue', 2);
SELECT pg_temp.pop('limits_queue');
SELECT pg_temp.pop('limits_queue');
SELECT count(*) FROM fairq.take('limits_queue', 100);
SELECT * FROM pg_temp.stand('limits_queue');
SELECT pg_temp.done('limits_queue', 'b1');
SELECT pg_temp.pop('limits_queue');
SELECT pg_temp.release('limits_queue', 'a1');
SELECT pg_temp.pop('limits_queue');
SELECT pg_temp.done('limits_queue', 'a2', 'b2');
-- tasks of any priority count
SELECT pg_temp.add('limits_queue', 'c', 1, 3, 9), pg_temp.add('limits_queue', 'd', 1, 1, 3);
SELECT pg_temp.pop('limits_queue', 1);
SELECT pg_temp.pop('limits_queue');
SELECT pg_temp.pop('limits_queue');
SELECT * FROM fairq.check_queue('limits_queue');
-- max_running is raised, lowered, removed, and set again
SELECT fairq.alter_queue('limits_queue', max_running => 5);
SELECT * FROM pg_temp.stand('limits_queue');
SELECT pg_temp.pop('limits_queue');
SELECT fairq.alter_queue('limits_queue', max_running => 2);
SELECT pg_temp.done('limits_queue', 'a3', 'a4', 'a5');
SELECT pg_temp.pop('limits_queue');
SELECT pg_temp.done('limits_queue', 'a1');
SELECT pg_temp.pop('limits_queue');
SELECT pg_temp.add('limits_queue', 'a', 6, 6), pg_temp.add('limits_queue', 'b', 3, 4);
SELECT fairq.alter_queue('limits_queue', max_running => 0);
SELECT max_running FROM fairq.queues WHERE queue = 'limits_queue';
SELECT pg_temp.pop('limits_queue');
SELECT fairq.alter_queue('limits_queue', max_running => 1);
SELECT pg_temp.add('limits_queue', 'a', 7, 7);
SELECT pg_temp.pop('limits_queue');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'limits_queue';
SELECT pg_temp.pop('limits_queue');
SELECT * FROM fairq.check_queue('limits_queue');

-- max_running and a limit for groups both apply
SELECT fairq.create_queue('limits_both', 2, 3);
SELECT pg_temp.add('limits_both', 'a', 1, 6), pg_temp.add('limits_both', 'b', 1, 6),
	pg_temp.add('limits_both', 'c', 1, 1);
SELECT * FROM pg_temp.stand('limits_both');
SELECT pg_temp.pop('limits_both');
SELECT * FROM pg_temp.stand('limits_both');
SELECT pg_temp.done('limits_both', 'a1');
SELECT pg_temp.pop('limits_both');
SELECT pg_temp.done('limits_both', 'c1');
SELECT pg_temp.pop('limits_both');
SELECT pg_temp.done('limits_both', 'a2', 'b1');
SELECT fairq.set_group('limits_both', 'b', 5);
SELECT pg_temp.pop('limits_both');
SELECT fairq.alter_queue('limits_both', max_running => 0);
SELECT pg_temp.pop('limits_both');
SELECT * FROM pg_temp.stand('limits_both');
SELECT fairq.alter_queue('limits_both', 0);
SELECT pg_temp.pop('limits_both');
SELECT * FROM fairq.check_queue('limits_both');

-- a group's limit above that of the queue has no effect
SELECT fairq.create_queue('limits_above', max_running => 2);
SELECT fairq.set_group('limits_above', 'a', 5);
SELECT pg_temp.add('limits_above', 'a', 1, 7);
SELECT pg_temp.pop('limits_above');
SELECT * FROM pg_temp.stand('limits_above');
SELECT fairq.alter_queue('limits_above', max_running => 100);
SELECT pg_temp.pop('limits_above');
SELECT * FROM fairq.check_queue('limits_above');

-- a queue gets its first max_running while more tasks than that are running
SELECT fairq.create_queue('limits_first_queue');
SELECT pg_temp.add('limits_first_queue', 'a', 1, 4), pg_temp.add('limits_first_queue', 'b', 1, 4, 7);
SELECT pg_temp.pop('limits_first_queue', 5);
SELECT fairq.alter_queue('limits_first_queue', max_running => 4);
SELECT pg_temp.pop('limits_first_queue');
SELECT pg_temp.done('limits_first_queue', 'a1');
SELECT pg_temp.pop('limits_first_queue');
SELECT pg_temp.done('limits_first_queue', 'b1');
SELECT pg_temp.pop('limits_first_queue');
SELECT * FROM fairq.check_queue('limits_first_queue');

--
-- Purge, drop, other block lengths
--

-- a purge removes waiting tasks; running tasks stay and count
SELECT fairq.create_queue('limits_purge', 2);
SELECT pg_temp.add('limits_purge', 'a', 1, 6), pg_temp.add('limits_purge', 'b', 1, 6);
SELECT pg_temp.pop('limits_purge', 3);
SELECT fairq.purge('limits_purge', 'a');
SELECT * FROM pg_temp.stand('limits_purge');
SELECT pg_temp.add('limits_purge', 'a', 7, 8);
SELECT * FROM fairq.check_queue('limits_purge');
SELECT pg_temp.pop('limits_purge');
SELECT pg_temp.done('limits_purge', 'a1');
SELECT pg_temp.pop('limits_purge');
SELECT fairq.purge('limits_purge');
SELECT * FROM pg_temp.stand('limits_purge');
SELECT pg_temp.done('limits_purge', 'a2', 'a7', 'b1', 'b2');
SELECT pg_temp.add('limits_purge', 'a', 9, 12), pg_temp.add('limits_purge', 'b', 7, 7);
SELECT pg_temp.pop('limits_purge');
SELECT * FROM fairq.check_queue('limits_purge');
-- rolled back
BEGIN;
SELECT fairq.purge('limits_purge', 'a');
SELECT pg_temp.add('limits_purge', 'a', 13, 13);
ROLLBACK;
SELECT pg_temp.add('limits_purge', 'a', 14, 14);
SELECT pg_temp.done('limits_purge', 'a9', 'a10');
SELECT pg_temp.pop('limits_purge');
SELECT pg_temp.done('limits_purge', 'a11', 'a12');
SELECT pg_temp.pop('limits_purge');
SELECT * FROM fairq.check_queue('limits_purge');

-- a queue with tasks that wait for a limit is not empty
SELECT fairq.create_queue('limits_drop', 1);
SELECT pg_temp.add('limits_drop', 'a', 1, 3);
SELECT count(*) FROM fairq.take('limits_drop', 100);
SELECT fairq.drop_queue('limits_drop');
SELECT fairq.drop_queue('limits_drop', force => true);
SELECT fairq.create_queue('limits_drop');
SELECT pg_temp.add('limits_drop', 'a', 1, 3);
SELECT * FROM pg_temp.stand('limits_drop');
SELECT pg_temp.pop('limits_drop');
SELECT * FROM fairq.check_queue('limits_drop');

-- limits hold after the block length has changed while tasks waited for a slot
SELECT fairq.create_queue('limits_block', 2, block_length => 10);
SELECT pg_temp.add('limits_block', 'a', 1, 6), pg_temp.add('limits_block', 'b', 1, 6);
SELECT pg_temp.pop('limits_block', 3);
SELECT fairq.alter_queue('limits_block', block_length => 1000);
SELECT payload, status, addr FROM fairq.tasks WHERE queue = 'limits_block' ORDER BY id;
SELECT * FROM pg_temp.stand('limits_block');
SELECT * FROM fairq.check_queue('limits_block');
SELECT pg_temp.pop('limits_block');
SELECT pg_temp.done('limits_block', 'a1', 'a2', 'b1');
SELECT pg_temp.add('limits_block', 'a', 7, 7), pg_temp.add('limits_block', 'b', 7, 7);
SELECT fairq.alter_queue('limits_block', block_length => 2);
SELECT * FROM fairq.check_queue('limits_block');
SELECT pg_temp.pop('limits_block');
SELECT fairq.alter_queue('limits_block', 0, block_length => 1000000);
SELECT pg_temp.pop('limits_block');
SELECT * FROM fairq.check_queue('limits_block');
-- the block length is too large if tasks have addresses in blocks that would
-- not exist
SELECT fairq.create_queue('limits_block_all', 1, block_length => 2);
SELECT pg_temp.add('limits_block_all', 'a', 1, 4);
SELECT count(*) FROM fairq.take('limits_block_all');
SELECT * FROM pg_temp.tasks('limits_block_all');
SELECT fairq.alter_queue('limits_block_all', block_length => 1537228672809129302);
SELECT fairq.alter_queue('limits_block_all', block_length => 1537228672809129301);
SELECT * FROM fairq.check_queue('limits_block_all');
SELECT payload, fairq.block_of('limits_block_all', addr) AS block FROM fairq.pop('limits_block_all', 100);
SELECT pg_temp.done('limits_block_all', 'a2');
SELECT fairq.reset_hints();
SELECT payload, fairq.block_of('limits_block_all', addr) AS block FROM fairq.pop('limits_block_all', 100);
SELECT * FROM fairq.check_queue('limits_block_all');

--
-- Out of range
--

CREATE FUNCTION pg_temp.refusal(statement text, OUT state text, OUT message text)
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT;
END $$;
SELECT r.state, substring(r.message, '[0-9].*') AS range
FROM unnest(ARRAY[
	$$SELECT fairq.create_queue('limits_x', 0)$$,
	$$SELECT fairq.create_queue('limits_x', -1)$$,
	$$SELECT fairq.create_queue('limits_x', max_running => 0)$$,
	$$SELECT fairq.create_queue('limits_x', max_running => -2147483648)$$,
	$$SELECT fairq.alter_queue('limits', -1)$$,
	$$SELECT fairq.alter_queue('limits', max_running => -1)$$,
	$$SELECT fairq.set_group('limits', 'a', -1)$$,
	$$SELECT fairq.set_group('limits', 'a', 1, -1)$$,
	$$SELECT fairq.set_group('limits', 'a', 1, 1001)$$]) WITH ORDINALITY AS s (statement, n),
	pg_temp.refusal(statement) r
ORDER BY n;
-- these calls have changed nothing
SELECT concurrency, max_running FROM fairq.queues WHERE queue LIKE 'limits' OR queue = 'limits_x';
SELECT group_key, concurrency, weight FROM fairq.groups WHERE queue = 'limits' AND group_key = 'a';

--
-- Rows that SQL damaged
--

SELECT fairq.create_queue('limits_damaged', 2);
SELECT pg_temp.add('limits_damaged', 'a', 1, 4);
SELECT pg_temp.pop('limits_damaged', 1);
-- SQL gives a running task an address among those of timed tasks
UPDATE fairq.task SET addr = (1::bigint << 62) + id
FROM fairq.queue q WHERE q.queue_id = task.queue_id AND q.name = 'limits_damaged'
	AND lease_until IS NOT NULL;
SELECT regexp_replace(c, '\d+', 'N', 'g') AS damage FROM fairq.check_queue('limits_damaged') c;
UPDATE fairq.task SET addr = 0
FROM fairq.queue q WHERE q.queue_id = task.queue_id AND q.name = 'limits_damaged'
	AND lease_until IS NOT NULL;
SELECT * FROM fairq.check_queue('limits_damaged');
-- running tasks in rows that SQL wrote count, too
UPDATE fairq.task SET lease_until = 'infinity', attempt = 1
FROM fairq.queue q WHERE q.queue_id = task.queue_id AND q.name = 'limits_damaged'
	AND payload = '"a2"';
SELECT pg_temp.pop('limits_damaged');
UPDATE fairq.task SET lease_until = NULL
FROM fairq.queue q WHERE q.queue_id = task.queue_id AND q.name = 'limits_damaged';
SELECT pg_temp.pop('limits_damaged');
SELECT * FROM fairq.check_queue('limits_damaged');

-- A group with its own weight has the limit of the queue, even after that limit changes.
SELECT fairq.create_queue('limits_default', concurrency => 1);
SELECT count(fairq.enqueue('limits_default', 'a', to_jsonb(i))) FROM generate_series(1, 3) i;
SELECT fairq.set_group('limits_default', 'a', weight => 2);
SELECT pg_temp.pop('limits_default');
SELECT fairq.alter_queue('limits_default', concurrency => 2);
SELECT pg_temp.pop('limits_default');
SELECT * FROM fairq.check_queue('limits_default');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'limits%';
