-- Once a lease has expired, the next pop finds the task. Its own worker may end
-- the task until another worker has it. The attempt number distinguishes the
-- two workers.
--
-- Fails if an attempt that is over can end the lease of a later one
-- (is_leased() in finish.c). Fails if a load records the last lease that it
-- finds in a group instead of the first to end (fairq_leases_add() in lane.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/tasks.psql

-- Ends the lease of a task now.
CREATE FUNCTION pg_temp.lapse(queue text, payload text) RETURNS boolean
LANGUAGE sql AS $$
	SELECT fairq.extend(pg_temp.id(queue, payload), lease => '1 microsecond') IS NOT NULL
$$;

-- All tasks, with their states.
CREATE FUNCTION pg_temp.tasks(queue text) RETURNS TABLE (task text, status text,
	attempt int, worker text, lease text, error text)
LANGUAGE sql AS $$
	SELECT payload #>> '{}', status, attempt, worker,
		CASE WHEN lease_until <= clock_timestamp() THEN 'expired'
			WHEN lease_until < clock_timestamp() + '1 minute' THEN 'seconds'
			WHEN lease_until < clock_timestamp() + '1 hour' THEN 'minutes'
			WHEN lease_until IS NOT NULL THEN 'hours' END, error
	FROM fairq.tasks t WHERE t.queue = $1 ORDER BY id
$$;

--
-- The next pop
--

SELECT fairq.create_queue('leases');
SELECT pg_temp.add('leases', 'a1');
SELECT id, lease_until - now() BETWEEN '299 seconds' AND '305 seconds' AS five_minutes
FROM fairq.pop('leases', worker => 'w1') \gset
\echo :five_minutes
SELECT * FROM pg_temp.tasks('leases');
SELECT pg_temp.pop('leases');
SELECT pg_temp.lapse('leases', 'a1');
-- a lapsed task does not change until a call finds it
SELECT * FROM pg_temp.tasks('leases');
SELECT ready, limited, scheduled, running, oldest_enqueued_at, lapsed FROM fairq.queues WHERE queue = 'leases';
SELECT * FROM fairq.check_queue('leases');
SELECT payload, attempt, addr > 0 AS later, priority, group_key, lease_until > now() AS leased
FROM fairq.pop('leases', worker => 'w2');
SELECT * FROM pg_temp.tasks('leases');
SELECT * FROM fairq.check_queue('leases');
-- only one pop gets the task
SELECT pg_temp.pop('leases');
-- the first worker returns, but its attempt is over
SELECT fairq.complete(:id, 1), fairq.fail(:id, 1), fairq.release(:id, 1), fairq.extend(:id, 1),
	fairq.fail(:id, 1, dead => true), fairq.release(:id, 1, '1 hour'), fairq.extend(:id, 1, '1 hour'),
	fairq.complete(:id, 1, '1'), cardinality(fairq.complete_batch(ARRAY[:id], '{1}'));
-- a third attempt does not exist yet, and attempts before the first one do not
-- exist
SELECT fairq.complete(:id, n), fairq.fail(:id, n), fairq.release(:id, n), fairq.extend(:id, n),
	cardinality(fairq.complete_batch(ARRAY[:id], ARRAY[n]))
FROM unnest('{3,0,-1,2147483647,-2147483648}'::int[]) n;
SELECT * FROM pg_temp.tasks('leases');
-- the second worker has the lease
SELECT fairq.extend(:id, 2) > now() AS extended;
SELECT fairq.complete(:id, 2), fairq.complete(:id, 2);
SELECT * FROM pg_temp.tasks('leases');
SELECT popped, completed, released, retried, failed, cancelled, lapsed FROM fairq.queues WHERE queue = 'leases';
SELECT * FROM fairq.check_queue('leases');

-- A task's leases can expire any number of times. Here the lease is the queue's
-- own.
SELECT fairq.alter_queue('leases', lease => '1 microsecond');
SELECT pg_temp.add('leases', 'a1', 'b1');
SELECT pg_temp.pop('leases'), pg_temp.pop('leases');
-- after two expired leases a task is served alone: see sql/lapses.sql
SELECT pg_temp.pop('leases'), pg_temp.pop('leases');
SELECT pg_temp.pop('leases'), pg_temp.pop('leases');
SELECT pg_temp.pop('leases', lease => '1 hour'), pg_temp.pop('leases', lease => '1 hour');
SELECT pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id), array_agg(3))) FROM fairq.tasks WHERE queue = 'leases';
SELECT * FROM fairq.check_queue('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id), array_agg(attempt))) FROM fairq.tasks WHERE queue = 'leases';
SELECT fairq.alter_queue('leases', lease => '5 minutes');

-- A lease ends as time passes, without a call.
SELECT pg_temp.add('leases', 'a1', 'a2');
SELECT pg_temp.pop('leases', 1, '300 milliseconds');
SELECT pg_temp.pop('leases', 1, '1 hour');
SELECT pg_temp.pop('leases');
SELECT pg_sleep(0.3);
SELECT pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
SELECT * FROM fairq.check_queue('leases');

-- If SQL has changed several leases of a group, the load that follows finds
-- each of them.
SELECT pg_temp.add('leases', 'a1', 'a2', 'a3');
SELECT pg_temp.pop('leases');
UPDATE fairq.task SET lease_until = now() + CASE payload WHEN '"a2"' THEN '-1 s' ELSE '1 hour' END::interval
WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'leases');
SELECT pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
SELECT * FROM fairq.check_queue('leases');

--
-- Order
--

-- A task whose lease has expired has begun before, so it comes before the
-- others of its group.
SELECT pg_temp.add('leases', 'a1', 'a2', 'a3');
SELECT pg_temp.pop('leases', 1);
SELECT pg_temp.lapse('leases', 'a1');
SELECT pg_temp.add('leases', 'a4', 'a5');
SELECT pg_temp.pop('leases', 1), pg_temp.pop('leases', 1), pg_temp.pop('leases', 1),
	pg_temp.pop('leases', 1), pg_temp.pop('leases', 1), pg_temp.pop('leases', 1);
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
-- one call serves a lapsed task and then the others of its group
SELECT pg_temp.add('leases', 'a1', 'a2', 'a3');
SELECT pg_temp.pop('leases', 1);
SELECT pg_temp.lapse('leases', 'a1');
SELECT pg_temp.add('leases', 'a4', 'a5');
SELECT pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
-- a group's tasks with expired leases are served in the order of their addresses,
-- and not in the order in which their leases ended
SELECT pg_temp.add('leases', 'a1', 'a2', 'a3', 'a4');
SELECT pg_temp.pop('leases');
SELECT pg_temp.lapse('leases', 'a3'), pg_temp.lapse('leases', 'a4'), pg_temp.lapse('leases', 'a2');
SELECT pg_temp.pop('leases');
SELECT pg_temp.lapse('leases', 'a1');
SELECT pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
-- a group's tasks with expired leases take turns, so one whose lease expires
-- repeatedly does not delay other tasks, even at the same address
SELECT fairq.set_group('leases', 'a', weight => 3);
SELECT pg_temp.add('leases', 'a1', 'a2', 'a3', 'a4');
SELECT fairq.set_group('leases', 'a', weight => 0);
SELECT pg_temp.pop('leases', lease => '1 microsecond');
SELECT $$SELECT pg_temp.pop('leases', 1, '1 microsecond')$$ FROM generate_series(1, 9) \gexec
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
-- Each group is served at its turn, however many of its leases have expired.
SELECT pg_temp.add('leases', 'a1', 'a2', 'a3', 'a4', 'b1', 'c1');
SELECT pg_temp.pop('leases', lease => '1 microsecond');
SELECT pg_temp.add('leases', 'b2', 'b3', 'c2', 'd1');
SELECT pg_temp.pop('leases', 3);
SELECT pg_temp.pop('leases', 4);
SELECT pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
SELECT * FROM fairq.check_queue('leases');
-- the group of weight 2 has two tasks per turn
SELECT fairq.set_group('leases', 'a', weight => 2);
SELECT pg_temp.add('leases', 'a1', 'a2', 'a3', 'a4', 'b1', 'b2');
SELECT pg_temp.pop('leases', lease => '1 microsecond') IS NOT NULL AS popped;
SELECT pg_temp.pop('leases', 3), pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
SELECT fairq.set_group('leases', 'a', weight => 0);
-- per_group spans one round
SELECT pg_temp.add('leases', 'a1', 'a2', 'b1', 'b2');
SELECT pg_temp.pop('leases', lease => '1 microsecond') IS NOT NULL AS popped;
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('leases', 100, per_group => 1);
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('leases', 100, per_group => 1);
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
-- Priorities stay strict: lapsed tasks of a lower priority wait.
SELECT fairq.enqueue('leases', 'a', '"low1"', 5) > 0 AS ok;
SELECT pg_temp.pop('leases', lease => '1 microsecond');
SELECT pg_temp.add('leases', 'a1', 'b1');
SELECT pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
SELECT * FROM fairq.check_queue('leases');

--
-- A task's own worker returns late, before another worker has the task
--

SELECT pg_temp.add('leases', 'a1', 'a2', 'a3', 'a4', 'a5', 'a6');
SELECT pg_temp.pop('leases');
SELECT bool_and(pg_temp.lapse('leases', 'a' || n)) FROM generate_series(1, 6) n;
SELECT fairq.complete(pg_temp.id('leases', 'a1'), 1), fairq.fail(pg_temp.id('leases', 'a2'), 1, 'late'),
	fairq.release(pg_temp.id('leases', 'a3'), 1), fairq.extend(pg_temp.id('leases', 'a4'), 1) > now() AS extended,
	cardinality(fairq.complete_batch(ARRAY[pg_temp.id('leases', 'a5')], '{1}'));
SELECT * FROM pg_temp.tasks('leases');
SELECT pg_temp.pop('leases');
SELECT * FROM fairq.check_queue('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases' AND status = 'running';
SELECT fairq.purge('leases');
SELECT lapsed, retried, released FROM fairq.queues WHERE queue = 'leases';

--
-- extend
--

SELECT pg_temp.add('leases', 'a1');
SELECT fairq.extend(pg_temp.id('leases', 'a1')), fairq.extend(NULL), fairq.extend(NULL, 1), fairq.extend(0),
	fairq.extend(-1, 1, '1 hour'), fairq.extend(9223372036854775807);
SELECT pg_temp.pop('leases', 1, '1 second');
SELECT id FROM fairq.tasks WHERE queue = 'leases' \gset
SELECT fairq.extend(:id, 1) - now() BETWEEN '299 seconds' AND '305 seconds' AS the_queues;
SELECT fairq.extend(:id) - now() BETWEEN '299 seconds' AND '305 seconds' AS the_queues;
SELECT fairq.extend(:id, NULL, NULL) - now() BETWEEN '299 seconds' AND '305 seconds' AS the_queues;
SELECT fairq.extend(:id, 1, '10 minutes') - now() BETWEEN '599 seconds' AND '605 seconds' AS ten_minutes;
SELECT fairq.extend(id => :id, lease => '100 years') > now() + '99 years' AS a_lifetime;
-- the lease begins again, so it may also end earlier
SELECT fairq.extend(:id, 1, '1 second') < now() + '10 seconds' AS shorter;
SELECT lease_until = fairq.extend(:id, 1, '1 hour') AS before FROM fairq.tasks WHERE id = :id;
SELECT fairq.extend(:id, 1, '1 month 1 second') > now() + '27 days' AS a_month;
SELECT lease_until > now() + '27 days' AS a_month FROM fairq.tasks WHERE id = :id;
SELECT fairq.extend(:id, 1, '0');
SELECT fairq.extend(:id, 1, '-1 second');
SELECT fairq.extend(:id, 1, '-1 microsecond');
SELECT fairq.extend(:id, 1, '1 month -40 days');
SELECT fairq.extend(:id, 1, '110 years');
SELECT fairq.extend(:id, 1, '178000000 years');
SELECT fairq.extend(:id, 1, '-178000000 years');
-- the arguments are also checked if there is no lease to extend
SELECT fairq.extend(0, 1, '0');
SELECT fairq.extend(NULL, 1, '-1 hour');
SELECT lease_until > now() + '27 days' AS as_before FROM fairq.tasks WHERE id = :id;
-- rolled back
BEGIN;
SELECT fairq.extend(:id, 1, '1 microsecond') IS NOT NULL AS extended;
ROLLBACK;
SELECT pg_temp.pop('leases');
SELECT pg_temp.lapse('leases', 'a1');
BEGIN;
SELECT fairq.extend(:id, 1) > now() AS extended;
ROLLBACK;
SELECT pg_temp.pop('leases');
SELECT * FROM fairq.check_queue('leases');
-- of two calls in one transaction, the last one counts
BEGIN;
SELECT fairq.extend(:id, 2, '1 hour') > now() AS extended;
SELECT fairq.extend(:id, 2, '1 microsecond') > now() AS extended;
COMMIT;
SELECT pg_temp.pop('leases');
SELECT * FROM fairq.check_queue('leases');
SELECT fairq.complete(:id, 3);
SELECT fairq.extend(:id), fairq.extend(:id, 3);

--
-- take
--

SELECT pg_temp.add('leases', 'a1', 'a2', 'b1');
SELECT pg_temp.pop('leases', lease => '1 microsecond');
SELECT payload, attempt, lease_until FROM fairq.take('leases');
SELECT * FROM pg_temp.tasks('leases');
BEGIN;
SELECT pg_temp.take('leases');
SELECT * FROM pg_temp.tasks('leases');
ROLLBACK;
SELECT * FROM pg_temp.tasks('leases');
SELECT * FROM fairq.check_queue('leases');
SELECT pg_temp.take('leases');
SELECT * FROM pg_temp.tasks('leases');
SELECT * FROM fairq.check_queue('leases');

--
-- Transactions
--

-- A pop that takes a lease over and is rolled back has no effect.
SELECT pg_temp.add('leases', 'a1', 'b1');
SELECT pg_temp.pop('leases', lease => '1 microsecond');
BEGIN;
SELECT pg_temp.pop('leases');
SELECT * FROM pg_temp.tasks('leases');
ROLLBACK;
SELECT * FROM pg_temp.tasks('leases');
SELECT * FROM fairq.check_queue('leases');
BEGIN;
SAVEPOINT s;
SELECT pg_temp.pop('leases', 1);
ROLLBACK TO s;
SELECT pg_temp.pop('leases', 1);
SAVEPOINT s;
SELECT pg_temp.pop('leases', 1);
RELEASE s;
COMMIT;
SELECT * FROM pg_temp.tasks('leases');
SELECT * FROM fairq.check_queue('leases');
-- a rollback undoes both the pop and the completion of a task in one
-- transaction
SELECT pg_temp.lapse('leases', 'a1'), pg_temp.lapse('leases', 'b1');
BEGIN;
SELECT count(fairq.complete(id, attempt)) FROM fairq.pop('leases', 100);
ROLLBACK;
SELECT * FROM pg_temp.tasks('leases');
BEGIN;
SELECT fairq.complete(id, attempt) FROM fairq.pop('leases');
COMMIT;
SELECT * FROM pg_temp.tasks('leases');
-- a lease begins, expires and is extended within a transaction
BEGIN;
SELECT pg_temp.pop('leases', lease => '1 microsecond');
SELECT fairq.extend(pg_temp.id('leases', 'b1'), 3) > now() AS extended;
SELECT pg_temp.lapse('leases', 'b1');
SELECT * FROM fairq.check_queue('leases');
COMMIT;
SELECT * FROM pg_temp.tasks('leases');
SELECT pg_temp.pop('leases');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
-- leases can begin, expire and be extended at the other isolation levels
SELECT pg_temp.add('leases', 'a1', 'b1');
SELECT pg_temp.pop('leases', lease => '1 microsecond');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT pg_temp.pop('leases', 1, '1 hour');
SELECT pg_temp.pop('leases', 1, '1 microsecond');
SELECT fairq.extend(pg_temp.id('leases', 'a1'), 2, '2 hours') > now() AS extended;
SELECT fairq.complete(pg_temp.id('leases', 'a1'), 1), fairq.complete(pg_temp.id('leases', 'a1'), 2);
SELECT fairq.expire_leases('leases');
SELECT * FROM pg_temp.tasks('leases');
COMMIT;
SELECT pg_temp.pop('leases', lease => '1 microsecond');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT payload, fairq.extend(id, attempt) IS NOT NULL AS extended, fairq.complete(id, attempt)
FROM fairq.pop('leases');
COMMIT;
SELECT * FROM pg_temp.tasks('leases');
SELECT * FROM fairq.check_queue('leases');
-- a read-only transaction changes nothing
SELECT pg_temp.add('leases', 'a1');
SELECT pg_temp.pop('leases', lease => '1 microsecond');
BEGIN READ ONLY;
SAVEPOINT s;
SELECT pg_temp.pop('leases');
ROLLBACK TO s;
SELECT fairq.extend(0);
ROLLBACK TO s;
SELECT fairq.expire_leases('leases');
ROLLBACK TO s;
SELECT * FROM pg_temp.tasks('leases');
SELECT * FROM fairq.check_queue('leases');
COMMIT;
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';

--
-- If a task has no attempts left, the pop that finds it ends it, and continues
-- with the group's next task
--

SELECT fairq.alter_queue('leases', max_attempts => 2);
SELECT pg_temp.add('leases', 'a1', 'a2');
SELECT pg_temp.pop('leases', 1, '1 microsecond');
SELECT pg_temp.pop('leases', 1, '1 microsecond');
SELECT pg_temp.pop('leases', 1, '1 microsecond');
SELECT * FROM pg_temp.tasks('leases');
SELECT pg_temp.pop('leases', 1, '1 hour');
SELECT * FROM pg_temp.tasks('leases');
SELECT pg_temp.pop('leases');
SELECT * FROM pg_temp.tasks('leases');
SELECT finished_at IS NOT NULL AS finished, lease_until FROM fairq.tasks WHERE queue = 'leases' AND status = 'failed';
SELECT * FROM fairq.check_queue('leases');
-- a rollback restores a task that has no attempts left; a pop in a transaction block leaves
-- the task to other calls
SELECT pg_temp.lapse('leases', 'a2');
BEGIN;
SELECT pg_temp.pop('leases');
SELECT task, status FROM pg_temp.tasks('leases');
SELECT fairq.expire_leases('leases');
SELECT * FROM pg_temp.tasks('leases');
ROLLBACK;
SELECT * FROM pg_temp.tasks('leases');
SELECT * FROM fairq.check_queue('leases');
-- until a call ends the task, its worker may return
SELECT fairq.complete(pg_temp.id('leases', 'a2'), 2);
SELECT fairq.alter_queue('leases', max_attempts => 1);
SELECT pg_temp.add('leases', 'a3', 'a4', 'a5', 'b3');
SELECT pg_temp.pop('leases', 4, '1 microsecond');
SELECT pg_temp.add('leases', 'a6');
SELECT pg_temp.pop('leases');
SELECT * FROM pg_temp.tasks('leases');
SELECT lapsed, failed FROM fairq.queues WHERE queue = 'leases';
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'leases';
SELECT * FROM fairq.check_queue('leases');
SELECT fairq.drop_queue('leases');

--
-- Under a limit, a worker that takes a lease over gets the task's slot
--

SELECT fairq.create_queue('leases_c', concurrency => 1);
SELECT pg_temp.add('leases_c', 'a1', 'a2', 'b1');
SELECT pg_temp.pop('leases_c');
SELECT pg_temp.lapse('leases_c', 'a1');
-- a1 has the slot until a call ends a1
SELECT group_key, ready, limited, running FROM fairq.groups WHERE queue = 'leases_c' ORDER BY group_no;
SELECT pg_temp.pop('leases_c');
SELECT pg_temp.pop('leases_c');
SELECT group_key, ready, limited, running FROM fairq.groups WHERE queue = 'leases_c' ORDER BY group_no;
SELECT * FROM fairq.check_queue('leases_c');
SELECT fairq.complete(pg_temp.id('leases_c', 'a1'), 1), fairq.complete(pg_temp.id('leases_c', 'a1'), 2);
SELECT pg_temp.pop('leases_c');
SELECT * FROM fairq.check_queue('leases_c');
-- once the lease of a task without attempts left has expired, its slot is free
-- for the next task
SELECT pg_temp.add('leases_c', 'a3', 'a4');
SELECT fairq.alter_queue('leases_c', max_attempts => 1);
SELECT pg_temp.lapse('leases_c', 'a2');
SELECT pg_temp.pop('leases_c');
SELECT pg_temp.pop('leases_c');
SELECT * FROM pg_temp.tasks('leases_c');
SELECT * FROM fairq.check_queue('leases_c');
SELECT fairq.alter_queue('leases_c', max_attempts => 20);
-- after the rollback a3 has the slot again
SELECT pg_temp.lapse('leases_c', 'a3');
BEGIN;
SELECT pg_temp.pop('leases_c');
ROLLBACK;
SELECT * FROM pg_temp.tasks('leases_c');
SELECT * FROM fairq.check_queue('leases_c');
BEGIN;
SELECT pg_temp.take('leases_c');
SELECT pg_temp.pop('leases_c');
ROLLBACK;
SELECT * FROM pg_temp.tasks('leases_c');
SELECT * FROM fairq.check_queue('leases_c');
SELECT pg_temp.take('leases_c');
SELECT pg_temp.pop('leases_c');
SELECT * FROM fairq.check_queue('leases_c');
SELECT fairq.drop_queue('leases_c', true);

-- the queue has one slot
SELECT fairq.create_queue('leases_m', max_running => 1);
SELECT pg_temp.add('leases_m', 'a1', 'b1', 'b2');
SELECT pg_temp.pop('leases_m');
SELECT pg_temp.lapse('leases_m', 'a1');
SELECT pg_temp.pop('leases_m');
SELECT pg_temp.pop('leases_m');
SELECT * FROM pg_temp.tasks('leases_m');
SELECT * FROM fairq.check_queue('leases_m');
SELECT fairq.complete(pg_temp.id('leases_m', 'a1'), 2);
SELECT pg_temp.pop('leases_m');
SELECT pg_temp.lapse('leases_m', 'b1');
SELECT fairq.alter_queue('leases_m', max_attempts => 1);
SELECT pg_temp.pop('leases_m');
SELECT * FROM pg_temp.tasks('leases_m');
SELECT * FROM fairq.check_queue('leases_m');
SELECT fairq.drop_queue('leases_m', true);

-- A limit is lowered below the number of running tasks. Lapsed tasks are ready
-- again and wait like the other tasks, but come before these.
SELECT fairq.create_queue('leases_l', concurrency => 3);
SELECT pg_temp.add('leases_l', 'a1', 'a2', 'a3', 'a4');
SELECT pg_temp.pop('leases_l');
SELECT fairq.alter_queue('leases_l', concurrency => 1);
SELECT pg_temp.lapse('leases_l', 'a1'), pg_temp.lapse('leases_l', 'a2');
SELECT pg_temp.pop('leases_l');
SELECT * FROM pg_temp.tasks('leases_l');
SELECT * FROM fairq.check_queue('leases_l');
SELECT pg_temp.lapse('leases_l', 'a3');
SELECT pg_temp.pop('leases_l');
SELECT * FROM pg_temp.tasks('leases_l');
SELECT fairq.complete(pg_temp.id('leases_l', 'a3'), 2);
SELECT pg_temp.pop('leases_l');
SELECT * FROM fairq.check_queue('leases_l');
SELECT fairq.drop_queue('leases_l', true);

-- A paused group keeps its lapsed tasks, and so does a paused queue.
SELECT fairq.create_queue('leases_p');
SELECT pg_temp.add('leases_p', 'a1', 'a2', 'b1');
SELECT pg_temp.pop('leases_p');
SELECT fairq.pause('leases_p', 'a');
SELECT bool_and(pg_temp.lapse('leases_p', p)) FROM unnest('{a1,a2,b1}'::text[]) p;
SELECT pg_temp.pop('leases_p');
SELECT pg_temp.pop('leases_p');
SELECT * FROM pg_temp.tasks('leases_p');
SELECT * FROM fairq.check_queue('leases_p');
SELECT fairq.complete(pg_temp.id('leases_p', 'a2'), 1);
SELECT fairq.resume('leases_p', 'a');
SELECT pg_temp.pop('leases_p');
SELECT bool_and(pg_temp.lapse('leases_p', p)) FROM unnest('{a1,b1}'::text[]) p;
SELECT fairq.pause('leases_p');
SELECT pg_temp.pop('leases_p');
-- expire_leases still ends a lease of the paused queue
SELECT fairq.expire_leases('leases_p', 1);
SELECT pg_temp.pop('leases_p');
SELECT fairq.resume('leases_p');
SELECT * FROM fairq.check_queue('leases_p');
SELECT pg_temp.pop('leases_p'), pg_temp.pop('leases_p');
SELECT * FROM fairq.check_queue('leases_p');
-- purge keeps a running task whose lease has ended, and drop_queue refuses
SELECT pg_temp.lapse('leases_p', 'a1');
SELECT fairq.purge('leases_p'), fairq.purge('leases_p', 'a');
SELECT fairq.drop_queue('leases_p');
SELECT fairq.drop_queue('leases_p', true);

--
-- expire_leases
--

SELECT fairq.expire_leases(NULL);
SELECT fairq.expire_leases('leases_none');
SELECT fairq.create_queue('leases_e', max_attempts => 2, block_length => 100);
SELECT fairq.expire_leases('leases_e', 0);
SELECT fairq.expire_leases('leases_e', -1);
SELECT fairq.expire_leases('leases_e', -2147483648);
SELECT fairq.expire_leases('leases_e'), fairq.expire_leases('leases_e', NULL), fairq.expire_leases('leases_e', 2147483647);
SELECT pg_temp.add('leases_e', 'a1', 'a2', 'a3', 'b1');
SELECT pg_temp.pop('leases_e', lease => '1 hour');
SELECT fairq.expire_leases('leases_e');
SELECT pg_temp.lapse('leases_e', 'a1'), pg_temp.lapse('leases_e', 'a3'), pg_temp.lapse('leases_e', 'b1');
-- expire_leases ends tasks in the order of their addresses
SELECT fairq.expire_leases('leases_e', 2);
SELECT * FROM pg_temp.tasks('leases_e');
SELECT fairq.expire_leases('leases_e', 2), fairq.expire_leases('leases_e', 2);
SELECT * FROM pg_temp.tasks('leases_e');
SELECT * FROM fairq.check_queue('leases_e');
-- the attempt is over, so its worker cannot complete the task
SELECT fairq.complete(pg_temp.id('leases_e', 'a1'), 1), fairq.extend(pg_temp.id('leases_e', 'a1'), 1);
-- the tasks whose leases have expired have already begun, so they come before the other
-- tasks of their groups, and have no address
SELECT pg_temp.add('leases_e', 'a4');
SELECT payload, addr IS NOT NULL AS placed FROM fairq.tasks WHERE queue = 'leases_e' AND status = 'queued' ORDER BY id;
SELECT pg_temp.pop('leases_e', lease => '1 microsecond');
SELECT fairq.complete(pg_temp.id('leases_e', 'a4'), 1);
SELECT fairq.fail(pg_temp.id('leases_e', 'a3'), 2, 'no good', '0');
SELECT pg_temp.lapse('leases_e', 'a2');
SELECT fairq.cancel(pg_temp.id('leases_e', 'a2'));
BEGIN;
SELECT fairq.expire_leases('leases_e');
SELECT * FROM pg_temp.tasks('leases_e');
ROLLBACK;
SELECT * FROM pg_temp.tasks('leases_e');
SELECT fairq.expire_leases('leases_e');
SELECT * FROM pg_temp.tasks('leases_e');
SELECT * FROM fairq.check_queue('leases_e');
SELECT popped, completed, released, retried, failed, cancelled, lapsed FROM fairq.queues WHERE queue = 'leases_e';
-- leases in all lanes, more than a call ends by default
SELECT fairq.create_queue('leases_all');
SELECT count(*) FROM generate_series(0, 9) p, LATERAL fairq.enqueue_batch('leases_all',
	array_fill('g'::text, ARRAY[110]), array_fill('1'::jsonb, ARRAY[110]), p);
SELECT count(*), min(priority), max(priority) FROM fairq.pop('leases_all', 2000, '1 microsecond');
SELECT fairq.expire_leases('leases_all'), fairq.expire_leases('leases_all'), fairq.expire_leases('leases_all');
SELECT ready, running, lapsed FROM fairq.queues WHERE queue = 'leases_all';
SELECT * FROM fairq.check_queue('leases_all');
-- a pop also finds all of these leases
SELECT count(*), max(attempt) FROM fairq.pop('leases_all', 2000, '1 microsecond');
SELECT count(*), max(attempt) FROM generate_series(1, 1200) n, LATERAL fairq.pop('leases_all', 2000 + 0 * n);
SELECT count(*), max(attempt) FROM fairq.pop('leases_all', 2000);
SELECT * FROM fairq.check_queue('leases_all');

-- Hints of the leases are lost.
SELECT fairq.create_queue('leases_r');
SELECT pg_temp.add('leases_r', 'a1', 'b1');
SELECT pg_temp.pop('leases_r', lease => '1 microsecond');
SELECT fairq.reset_hints();
SELECT * FROM fairq.check_queue('leases_r');
SELECT pg_temp.pop('leases_r', lease => '1 microsecond');
SELECT fairq.reset_hints();
SELECT fairq.complete(pg_temp.id('leases_r', 'a1'), 2);
SELECT pg_temp.pop('leases_r', lease => '1 microsecond');
SELECT fairq.reset_hints();
SELECT fairq.expire_leases('leases_r');
SELECT pg_temp.pop('leases_r');
SELECT * FROM fairq.check_queue('leases_r');
-- SQL changes the ends of leases
UPDATE fairq.task SET lease_until = now() - interval '1 day' WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'leases_r');
SELECT pg_temp.pop('leases_r');
SELECT * FROM fairq.check_queue('leases_r');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'leases%';
