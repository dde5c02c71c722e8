-- How long a task may run: max_run_time of a queue. No lease ends later than
-- this time after the pop, even after an extend. Then the worker loses the
-- task, like any task whose lease expires.
--
-- Fails if fairq_arg_lease() in args.c and extend() in finish.c do not use
-- fairq_last_lease_end().
\a \pset footer off
\set VERBOSITY sqlstate

-- How long after the pop the lease of each running task ends.
CREATE VIEW pg_temp.stand AS
	SELECT payload #>> '{}' AS task, status, attempt, lapses, date_trunc('minute', lease_until - popped_at) AS lease
	FROM fairq.tasks WHERE queue = 'max_run_time' ORDER BY id;

-- Moves the pops of a queue's running tasks into the past.
CREATE FUNCTION pg_temp.earlier(by interval) RETURNS void LANGUAGE sql AS $$
	UPDATE fairq.task t SET popped_at = popped_at - by, lease_until = lease_until - by FROM fairq.queue q
	WHERE q.name = 'max_run_time' AND t.queue_id = q.queue_id AND lease_until IS NOT NULL
$$;

SELECT fairq.create_queue('max_run_time', lease => '10 minutes', max_run_time => '1 hour');
SELECT queue, lease, max_run_time FROM fairq.queues WHERE queue = 'max_run_time';
SELECT count(fairq.enqueue('max_run_time', 'g', to_jsonb(n))) FROM generate_series(1, 4) n;
-- a pop that requests a longer lease
SELECT count(*) FROM fairq.pop('max_run_time', 1, '2 hours');
SELECT count(*) FROM fairq.pop('{max_run_time}'::text[], 1, '2 hours');
SELECT count(*) FROM fairq.pop('max_run_time', 1, '20 minutes');
SELECT count(*) FROM fairq.pop('max_run_time');
SELECT * FROM pg_temp.stand;
-- an extend that requests a longer lease
SELECT id AS t1 FROM fairq.tasks WHERE queue = 'max_run_time' AND payload = '1' \gset
SELECT id AS t4 FROM fairq.tasks WHERE queue = 'max_run_time' AND payload = '4' \gset
SELECT fairq.extend(:t4, 1, '3 hours') > now() AS extended;
SELECT fairq.extend_batch(array_agg(id), lease => '30 minutes') FROM fairq.tasks WHERE queue = 'max_run_time';
SELECT * FROM pg_temp.stand;
SELECT pg_temp.earlier('50 minutes');
SELECT fairq.extend(:t4, 1) > now() AS extended;
SELECT fairq.extend_batch(array_agg(id ORDER BY id), lease => '20 minutes') FROM fairq.tasks WHERE queue = 'max_run_time';
SELECT * FROM pg_temp.stand;
-- an extend succeeds until the task's time is over
SELECT pg_temp.earlier('10 minutes');
SELECT fairq.extend(:t4, 1), fairq.extend(:t4, 1, '1 second');
SELECT fairq.extend_batch(array_agg(id ORDER BY id)) = array_agg(id ORDER BY id) AS all_lost
FROM fairq.tasks WHERE queue = 'max_run_time';
SELECT fairq.set_progress(:t4, 1, '1'), fairq.set_progress(:t4, 2, '1');
SELECT * FROM pg_temp.stand;
-- after that time, the task can still be completed until a pop takes it over
SELECT fairq.complete(:t1, 1);
-- when the other tasks are popped again, each has the whole time
SELECT payload, attempt, lapses FROM fairq.pop('max_run_time', 10);
SELECT fairq.extend(:t4, 1), fairq.extend(:t4, 2, '2 hours') > now() AS extended;
SELECT * FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('max_run_time');

-- max_run_time may change while tasks run. A shorter time takes effect when a
-- lease is extended.
SELECT fairq.alter_queue('max_run_time', max_run_time => '30 minutes');
SELECT fairq.alter_queue('max_run_time', max_run_time => NULL, lease => '2 hours');
SELECT queue, lease, max_run_time FROM fairq.queues WHERE queue = 'max_run_time';
SELECT * FROM pg_temp.stand;
SELECT fairq.extend(:t4, 2) > now() AS extended;
SELECT * FROM pg_temp.stand;
SELECT fairq.alter_queue('max_run_time', max_run_time => '0');
SELECT fairq.extend(:t4, 2) > now() AS extended;
SELECT * FROM pg_temp.stand;
SELECT queue, max_run_time FROM fairq.queues WHERE queue = 'max_run_time';
-- taken tasks have no lease
SELECT fairq.alter_queue('max_run_time', max_run_time => '1 microsecond');
SELECT fairq.enqueue('max_run_time', 'h', '5') > 0 AS ok;
SELECT payload, lease_until FROM fairq.take('max_run_time', 1);
-- a month is 30 days
SELECT fairq.alter_queue('max_run_time', max_run_time => '1 month', lease => '1 year');
SELECT fairq.enqueue('max_run_time', 'h', '6') > 0 AS ok;
SELECT count(*) FROM fairq.pop('max_run_time', 1);
SELECT task, lease FROM pg_temp.stand WHERE task = '6';
-- SQL wrote the row, so the time of its pop is unknown
UPDATE fairq.task SET popped_at = NULL WHERE id = :t4;
SELECT fairq.extend(:t4, 2, '2 years') > now() + '1 year' AS extended;
UPDATE fairq.task SET popped_at = 'infinity' WHERE id = :t4;
SELECT fairq.extend(:t4, 2, '2 years') > now() + '1 year' AS extended;

SELECT fairq.create_queue('max_run_2', max_run_time => '0');
SELECT fairq.create_queue('max_run_2', max_run_time => '-1 second');
SELECT fairq.create_queue('max_run_2', max_run_time => '102 years');
SELECT fairq.alter_queue('max_run_time', max_run_time => '-1 second');
SELECT fairq.alter_queue('max_run_time', max_run_time => '102 years');
\set VERBOSITY default
SELECT fairq.create_queue('max_run_2', max_run_time => '0');
SELECT fairq.alter_queue('max_run_time', max_run_time => '-1 second');
SELECT fairq.drop_queue('max_run_time', true);
