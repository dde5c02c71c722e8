-- Tasks with a start time, and when they become due.
--
-- Fails if a task with a time in the past is scheduled instead of queued
-- (enqueue.c). Fails if the delay is ignored, or if run_at is used instead
-- (arg_run_at() in enqueue.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/tasks.psql

-- Adds tasks with these payloads; the first letter of each is its group.
CREATE FUNCTION pg_temp.put(queue text, run_at timestamptz, VARIADIC payloads text[]) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue(queue, left(p, 1), to_jsonb(p), run_at => run_at)) FROM unnest(payloads) p
$$;

-- All tasks, with their states; "after" is the number of minutes until the task is due.
CREATE FUNCTION pg_temp.tasks(queue text) RETURNS TABLE (task text, status text, placed boolean,
	attempt int, after numeric)
LANGUAGE sql AS $$
	SELECT payload #>> '{}', status, addr IS NOT NULL, attempt,
		CASE WHEN run_at > clock_timestamp() THEN round(extract(epoch FROM run_at - clock_timestamp()) / 60) END
	FROM fairq.tasks t WHERE t.queue = $1 ORDER BY id
$$;

-- The columns of the views for each group, and for the whole queue.
CREATE FUNCTION pg_temp.stand(queue text) RETURNS TABLE (who text, ready bigint,
	limited bigint, scheduled bigint, running bigint)
LANGUAGE sql AS $$
	(SELECT group_key, ready, limited, scheduled, running
	FROM fairq.groups g WHERE g.queue = $1 ORDER BY group_no)
	UNION ALL
	SELECT 'all', ready, limited, scheduled, running
	FROM fairq.queues q WHERE q.queue = $1
$$;

SELECT fairq.create_queue('schedule');

--
-- A time in the past, the present time, or none has no effect
--

SELECT pg_temp.put('schedule', NULL, 'a1'), pg_temp.put('schedule', '-infinity', 'a2'), pg_temp.put('schedule', now(), 'a3'),
	pg_temp.put('schedule', now() - interval '1 microsecond', 'a4'), pg_temp.put('schedule', '4713-01-01 BC', 'a5'),
	pg_temp.put('schedule', '2000-01-01 UTC', 'a6'), pg_temp.put('schedule', '1999-12-31 UTC', 'a7');
SELECT payload, status, run_at FROM fairq.tasks WHERE queue = 'schedule' ORDER BY id;
SELECT pg_temp.pop('schedule');
SELECT pg_temp.done('schedule');
SELECT * FROM fairq.check_queue('schedule');

--
-- Tasks with a delay, which is checked as in fail()
--

SELECT fairq.create_queue('schedule_delay');
SELECT fairq.enqueue('schedule_delay', 'd', '"d1"', delay => '0') > 0 AS ok;
SELECT fairq.enqueue('schedule_delay', 'd', '"d2"', delay => NULL) > 0 AS ok;
SELECT fairq.enqueue('schedule_delay', 'd', '"d3"', delay => '1 hour') > 0 AS ok;
SELECT fairq.enqueue('schedule_delay', 'd', '"d4"', delay => '1 month -29 days') > 0 AS ok;
SELECT fairq.enqueue('schedule_delay', 'd', '"d5"', delay => '36600 days') > 0 AS ok;
SELECT added FROM fairq.enqueue_or_find('schedule_delay', 'd', '"d6"', delay => '1 month', dedup_key => 'd6');
SELECT added FROM fairq.enqueue_or_find('schedule_delay', 'd', '"d6"', delay => '2 days', dedup_key => 'd6', replace => true);
SELECT added FROM fairq.enqueue_or_find('schedule_delay', 'd', '"d7"', delay => '1 hour', dedup_key => 'd7');
SELECT added FROM fairq.enqueue_or_find('schedule_delay', 'd', '"d7"', delay => '0', dedup_key => 'd7', replace => true);
SELECT count(*) FROM fairq.enqueue_batch('schedule_delay', '{d,d}', '{"\"d8\"","\"d9\""}', delay => '3 hours');
SELECT * FROM pg_temp.tasks('schedule_delay');
-- the delay begins with the enqueue, and not with the start of the transaction
BEGIN;
SELECT pg_sleep(0.01);
SELECT fairq.enqueue('schedule_delay', 'd', '"d10"', delay => '1 hour') > 0 AS ok;
SELECT run_at > now() + interval '1 hour 10 ms' AS later FROM fairq.tasks WHERE queue = 'schedule_delay' AND payload = '"d10"';
COMMIT;
SELECT fairq.enqueue('schedule_delay', 'd', delay => '-1 microsecond');
SELECT fairq.enqueue('schedule_delay', 'd', delay => '1 month -31 days');
SELECT fairq.enqueue('schedule_delay', 'd', delay => '36600 days 1 microsecond');
SELECT fairq.enqueue('schedule_delay', 'd', delay => '102 years');
SELECT fairq.enqueue('schedule_delay', 'd', run_at => now(), delay => '1 hour');
SELECT fairq.enqueue_or_find('schedule_delay', 'd', delay => '-1 day');
SELECT fairq.enqueue_or_find('schedule_delay', 'd', run_at => '-infinity', delay => '0');
SELECT fairq.enqueue_batch('schedule_delay', '{d}', '{1}', delay => '-1 day');
SELECT fairq.enqueue_batch('schedule_delay', '{d}', '{1}', run_at => now(), delay => '0');
SELECT fairq.enqueue_batch('schedule_delay', '{d}', '{1}', run_ats => '{NULL}', delay => '0');
SELECT * FROM fairq.check_queue('schedule_delay');
SELECT fairq.drop_queue('schedule_delay', true);

--
-- Tasks that become due later
--

SELECT pg_temp.put('schedule', now() + interval '1 hour', 'a1'), pg_temp.put('schedule', now() + interval '2 hours', 'b1'),
	pg_temp.put('schedule', 'infinity', 'c1'), pg_temp.put('schedule', '294276-12-31', 'd1'),
	pg_temp.put('schedule', '9999-12-31', 'e1'), pg_temp.put('schedule', NULL, 'f1');
SELECT payload, status, addr IS NULL AS placeless, attempt, lease_until FROM fairq.tasks WHERE queue = 'schedule' ORDER BY id;
SELECT payload, run_at = 'infinity' AS never, run_at > '9998-01-01' AS late FROM fairq.tasks WHERE queue = 'schedule' ORDER BY id;
SELECT * FROM pg_temp.stand('schedule');
SELECT oldest_enqueued_at = enqueued_at AS oldest FROM fairq.queues q JOIN fairq.tasks USING (queue) WHERE queue = 'schedule' AND payload = '"f1"';
SELECT pg_temp.pop('schedule');
SELECT oldest_enqueued_at FROM fairq.queues WHERE queue = 'schedule';
SELECT pg_temp.pop('schedule'), pg_temp.take('schedule');
SELECT * FROM fairq.check_queue('schedule');
SELECT pg_temp.done('schedule');
-- calls for running tasks have no effect on a scheduled task
SELECT fairq.complete(id), fairq.fail(id), fairq.release(id), fairq.extend(id), fairq.complete(id, 0), fairq.extend(id, 0),
	cardinality(fairq.complete_batch(ARRAY[id]))
FROM fairq.tasks WHERE queue = 'schedule';
-- expire_leases does not change such a task
SELECT fairq.expire_leases('schedule');
-- hints are lost
SELECT fairq.reset_hints();
SELECT pg_temp.pop('schedule');
SELECT * FROM fairq.check_queue('schedule');
-- purge and cancel remove such a task
SELECT fairq.cancel(pg_temp.id('schedule', 'a1')), fairq.purge('schedule', 'b');
SELECT * FROM pg_temp.stand('schedule');
SELECT fairq.drop_queue('schedule');
SELECT fairq.purge('schedule');
SELECT * FROM pg_temp.tasks('schedule');
SELECT * FROM fairq.check_queue('schedule');

-- Tasks become due as time passes, without a call.
SELECT clock_timestamp() + interval '400 milliseconds' AS t0 \gset
SELECT pg_temp.put('schedule', :'t0', 'a1', 'b1'), pg_temp.put('schedule', timestamptz :'t0' + interval '1 hour', 'a2');
SELECT * FROM pg_temp.tasks('schedule');
SELECT pg_temp.pop('schedule');
SELECT * FROM pg_temp.stand('schedule');
SELECT pg_sleep(extract(epoch FROM timestamptz :'t0' - clock_timestamp()) + 0.003);
-- due tasks do not change until a pop finds them
SELECT payload, status, addr, run_at = :'t0' AS then FROM fairq.tasks WHERE queue = 'schedule' ORDER BY id;
SELECT * FROM pg_temp.stand('schedule');
SELECT oldest_enqueued_at IS NOT NULL AS any_ready FROM fairq.queues WHERE queue = 'schedule';
SELECT * FROM fairq.check_queue('schedule');
SELECT payload, attempt, addr >= 0 AS has_address, lease_until > now() AS leased FROM fairq.pop('schedule', 100);
SELECT * FROM pg_temp.tasks('schedule');
SELECT pg_temp.pop('schedule');
SELECT * FROM fairq.check_queue('schedule');
SELECT pg_temp.done('schedule');
SELECT fairq.purge('schedule');

--
-- Order
--

-- A time in the near future; the test waits until it is past.
CREATE FUNCTION pg_temp.soon() RETURNS timestamptz LANGUAGE sql AS $$
	SELECT clock_timestamp() + interval '200 milliseconds'
$$;
CREATE FUNCTION pg_temp.wait_for(t timestamptz) RETURNS void LANGUAGE sql AS $$
	SELECT pg_sleep(extract(epoch FROM t - clock_timestamp()) + 0.003)
$$;

SELECT count(fairq.create_queue('schedule_' || n)) FROM generate_series(1, 6) n;
SELECT fairq.set_group('schedule_4', 'a', weight => 3);
-- this time is late enough for a slow machine to add all tasks before it
SELECT pg_temp.soon() + interval '4 seconds' AS t \gset
-- 1: times in another order than the ids, and equal times
SELECT pg_temp.put('schedule_1', :'t', 'a3', 'a4'), pg_temp.put('schedule_1', timestamptz :'t' - interval '2 milliseconds', 'a2'),
	pg_temp.put('schedule_1', timestamptz :'t' - interval '4 milliseconds', 'a1'), pg_temp.put('schedule_1', :'t', 'b1', 'b2', 'c1');
-- 2: the group has other tasks, before and after
SELECT pg_temp.put('schedule_2', :'t', 'a3'), pg_temp.put('schedule_2', NULL, 'a1', 'a2');
-- 3: many of one group, some of others; 4: with a weight
SELECT pg_temp.put('schedule_3', :'t', 'a1', 'a2', 'a3', 'a4', 'd1'), pg_temp.put('schedule_3', NULL, 'b1', 'b2', 'b3', 'c1', 'c2');
SELECT pg_temp.put('schedule_4', :'t', 'a1', 'a2', 'a3', 'a4', 'b1', 'b2');
-- 5: leases end before and after the time t
SELECT pg_temp.put('schedule_5', NULL, 'a1', 'a3');
SELECT payload FROM fairq.pop('schedule_5', 1, timestamptz :'t' - interval '10 milliseconds' - clock_timestamp());
SELECT payload FROM fairq.pop('schedule_5', 1, timestamptz :'t' + interval '10 milliseconds' - clock_timestamp());
SELECT pg_temp.put('schedule_5', :'t', 'a2'), pg_temp.put('schedule_5', timestamptz :'t' + interval '20 milliseconds', 'a4');
-- 6: priorities
SELECT fairq.enqueue('schedule_6', 'a', '"low"', 9, :'t') > 0 AS ok;
SELECT fairq.enqueue('schedule_6', 'b', '"high"', 0, :'t') > 0 AS ok;
SELECT fairq.enqueue('schedule_6', 'b', '"middle"', 5) > 0 AS ok;
SELECT pg_temp.wait_for(timestamptz :'t' + interval '20 milliseconds');
SELECT pg_temp.put('schedule_2', NULL, 'a4', 'a5');

-- Due tasks come in the order of their times, whatever their ids, and tasks of
-- the same time come in the order of their ids.
SELECT pg_temp.pop('schedule_1', 5), pg_temp.pop('schedule_1');
-- A due task comes behind tasks of its group that were enqueued before it was
-- due, and before later ones.
SELECT pg_temp.pop('schedule_2', 1), pg_temp.pop('schedule_2', 1), pg_temp.pop('schedule_2', 1), pg_temp.pop('schedule_2');
-- Each group is served at its turn and according to its weight, however many due tasks it
-- or other groups have.
SELECT pg_temp.pop('schedule_3', 4), pg_temp.pop('schedule_3');
SELECT pg_temp.pop('schedule_4', 4), pg_temp.pop('schedule_4');
-- Lapsed tasks have begun before, and come before due ones, whatever their
-- times.
SELECT pg_temp.pop('schedule_5');
-- Priorities stay strict.
SELECT pg_temp.pop('schedule_6');
SELECT fairq.check_queue('schedule_' || n) FROM generate_series(1, 6) n;
SELECT fairq.pop('schedule_' || n) FROM generate_series(1, 6) n;
SELECT count(fairq.drop_queue('schedule_' || n, true)) FROM generate_series(1, 6) n;

-- If one group has many due tasks, and other groups have some, each call serves each group
-- in turn.
SELECT pg_temp.soon() AS t \gset
SELECT count(*) FROM fairq.enqueue_batch('schedule', array_fill('g'::text, ARRAY[6000]), array_fill('1'::jsonb, ARRAY[6000]), run_at => :'t');
SELECT pg_temp.put('schedule', :'t', 'a1', 'b1', 'b2');
SELECT pg_temp.wait_for(:'t');
SELECT * FROM pg_temp.stand('schedule');
SELECT group_key, count(*) FROM fairq.pop('schedule', 6) GROUP BY group_key ORDER BY group_key;
SELECT count(*), count(DISTINCT id) FROM fairq.pop('schedule', 7000);
SELECT count(*) FROM fairq.pop('schedule', 7000);
SELECT * FROM fairq.check_queue('schedule');
SELECT pg_temp.done('schedule');

--
-- A batch
--

SELECT count(*) FROM fairq.enqueue_batch('schedule', '{a,b,a}', '{"\"a1\"","\"b1\"","\"a2\""}', 0, now() + interval '1 hour');
SELECT count(*) FROM fairq.enqueue_batch('schedule', '{a}', '{"\"a3\""}', run_at => now() - interval '1 hour');
SELECT count(*) FROM fairq.enqueue_batch('schedule', '{a}', '{"\"a4\""}', run_at => NULL);
SELECT count(*) FROM fairq.enqueue_batch('schedule', '{}', '{}', run_at => 'infinity');
SELECT * FROM pg_temp.tasks('schedule');
SELECT pg_temp.pop('schedule');
SELECT fairq.purge('schedule'), pg_temp.done('schedule');
SELECT fairq.enqueue('schedule_none', 'a', run_at => now() + interval '1 hour');
SELECT fairq.enqueue('schedule', NULL, run_at => now() + interval '1 hour');
SELECT fairq.enqueue('schedule', 'a', priority => 10, run_at => now() + interval '1 hour');
SELECT * FROM fairq.check_queue('schedule');

--
-- take
--

SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule', :'t', 'a1', 'a2', 'b1');
SELECT pg_temp.wait_for(:'t');
BEGIN;
SELECT pg_temp.take('schedule', 2);
ROLLBACK;
SELECT * FROM pg_temp.tasks('schedule');
SELECT * FROM fairq.check_queue('schedule');
SELECT payload, lease_until FROM fairq.take('schedule', 2);
SELECT pg_temp.take('schedule');
SELECT * FROM pg_temp.tasks('schedule');
SELECT * FROM fairq.check_queue('schedule');

--
-- Transactions
--

SELECT pg_temp.soon() AS t \gset
BEGIN;
SELECT pg_temp.put('schedule', :'t', 'a1', 'b1');
SELECT pg_temp.put('schedule', 'infinity', 'a2');
SELECT * FROM fairq.check_queue('schedule');
ROLLBACK;
SELECT * FROM pg_temp.tasks('schedule');
-- a transaction pops its own task once the task is due
BEGIN;
SELECT pg_temp.put('schedule', :'t', 'a3', 'b3');
SELECT pg_temp.wait_for(:'t');
SELECT pg_temp.pop('schedule', 1);
SELECT * FROM fairq.check_queue('schedule');
COMMIT;
SELECT pg_temp.pop('schedule');
SELECT pg_temp.done('schedule');
SELECT * FROM fairq.check_queue('schedule');
-- after a pop is rolled back, its due tasks can be popped again
SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule', :'t', 'a1', 'a2', 'b1');
SELECT pg_temp.wait_for(:'t');
BEGIN;
SELECT pg_temp.pop('schedule');
SELECT pg_temp.pop('schedule');
ROLLBACK;
SELECT * FROM pg_temp.tasks('schedule');
SELECT * FROM fairq.check_queue('schedule');
BEGIN;
SAVEPOINT s;
SELECT pg_temp.pop('schedule', 1);
ROLLBACK TO s;
SELECT pg_temp.pop('schedule', 2);
COMMIT;
SELECT pg_temp.pop('schedule');
SELECT * FROM fairq.check_queue('schedule');
-- popped and completed in one transaction
SELECT pg_temp.done('schedule');
SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule', :'t', 'a1', 'b1');
SELECT pg_temp.wait_for(:'t');
BEGIN;
SELECT payload, fairq.complete(id, attempt) FROM fairq.pop('schedule');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT count(fairq.complete(id, attempt)) FROM fairq.pop('schedule', 100);
COMMIT;
SELECT * FROM pg_temp.tasks('schedule');
SELECT * FROM fairq.check_queue('schedule');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pg_temp.put('schedule', now() + interval '1 hour', 'a1');
SELECT fairq.cancel(pg_temp.id('schedule', 'a1'));
COMMIT;
SELECT * FROM pg_temp.tasks('schedule');
BEGIN READ ONLY;
SELECT fairq.enqueue('schedule', 'a', run_at => 'infinity');
COMMIT;
-- a purge and a cancel that are rolled back have no effect
SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule', :'t', 'a1', 'b1', 'b2');
BEGIN;
SELECT fairq.cancel(pg_temp.id('schedule', 'b1')), fairq.purge('schedule');
SELECT pg_temp.wait_for(:'t');
SELECT pg_temp.pop('schedule');
ROLLBACK;
SELECT pg_temp.pop('schedule');
SELECT * FROM fairq.check_queue('schedule');
SELECT pg_temp.done('schedule');
-- a purge of three tasks, one of which is due, is rolled back
SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule', :'t', 'a1'), pg_temp.put('schedule', timestamptz :'t' + interval '1 second', 'a2'),
	pg_temp.put('schedule', timestamptz :'t' + interval '1 hour', 'a3');
SELECT pg_temp.wait_for(:'t');
BEGIN;
SELECT fairq.purge('schedule');
SELECT pg_temp.pop('schedule');
ROLLBACK;
SELECT pg_temp.pop('schedule');
SELECT * FROM fairq.check_queue('schedule');
SELECT pg_temp.wait_for(timestamptz :'t' + interval '1 second');
SELECT pg_temp.pop('schedule');
SELECT * FROM fairq.check_queue('schedule');
SELECT pg_temp.done('schedule'), fairq.purge('schedule');
-- a rollback to a savepoint undoes a purge
SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule', :'t', 'a1'), pg_temp.put('schedule', timestamptz :'t' + interval '1 hour', 'a2');
SELECT pg_temp.wait_for(:'t');
BEGIN;
SAVEPOINT s;
SELECT fairq.purge('schedule');
SELECT pg_temp.pop('schedule');
ROLLBACK TO s;
SELECT pg_temp.pop('schedule');
COMMIT;
SELECT * FROM fairq.check_queue('schedule');
SELECT pg_temp.done('schedule'), fairq.purge('schedule');

--
-- Limits and pause
--

SELECT fairq.create_queue('schedule_l', concurrency => 1);
SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule_l', :'t', 'a2', 'a3', 'b1'), pg_temp.put('schedule_l', NULL, 'a1');
SELECT pg_temp.wait_for(:'t');
SELECT * FROM pg_temp.stand('schedule_l');
SELECT pg_temp.pop('schedule_l'), pg_temp.pop('schedule_l');
SELECT * FROM pg_temp.stand('schedule_l');
SELECT pg_temp.pop('schedule_l');
SELECT * FROM fairq.check_queue('schedule_l');
SELECT pg_temp.done('schedule_l');
SELECT pg_temp.pop('schedule_l');
SELECT fairq.complete(pg_temp.id('schedule_l', 'a2'));
SELECT fairq.pause('schedule_l', 'a');
SELECT pg_temp.pop('schedule_l');
SELECT * FROM pg_temp.tasks('schedule_l');
SELECT * FROM fairq.check_queue('schedule_l');
SELECT fairq.resume('schedule_l', 'a');
SELECT fairq.pause('schedule_l');
SELECT pg_temp.pop('schedule_l');
SELECT fairq.resume('schedule_l');
SELECT pg_temp.pop('schedule_l');
SELECT pg_temp.done('schedule_l');
SELECT fairq.alter_queue('schedule_l', 0, 1);
SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule_l', :'t', 'a1', 'a2', 'b1');
SELECT pg_temp.wait_for(:'t');
SELECT pg_temp.pop('schedule_l'), pg_temp.pop('schedule_l');
SELECT pg_temp.done('schedule_l');
SELECT pg_temp.pop('schedule_l');
SELECT pg_temp.done('schedule_l');
SELECT pg_temp.pop('schedule_l');
SELECT * FROM fairq.check_queue('schedule_l');

-- A scheduled task keeps its time when addresses are assigned again. The index
-- is cleaned first, since otherwise the first search reads all earlier
-- entries.
VACUUM (INDEX_CLEANUP ON) fairq.task;
SELECT pg_temp.soon() AS t \gset
SELECT pg_temp.put('schedule', :'t', 'a1'), pg_temp.put('schedule', NULL, 'b1', 'b2'),
	pg_temp.put('schedule', timestamptz :'t' + interval '1 hour', 'a2');
SELECT fairq.alter_queue('schedule', block_length => 1000);
SELECT * FROM fairq.check_queue('schedule');
SELECT pg_temp.wait_for(:'t');
SELECT pg_temp.pop('schedule');
SELECT * FROM pg_temp.tasks('schedule');
SELECT * FROM fairq.check_queue('schedule');
SELECT fairq.drop_queue('schedule');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'schedule%';
