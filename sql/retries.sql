-- Failed and released attempts: when the task runs again, which attempts
-- count, and when the task fails permanently.
--
-- Fails if retried tasks come in the order of scheduled ones
-- (fairq_run_again() in outcome.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/tasks.psql

-- All tasks, with their states; "after" is the delay, in whole minutes.
CREATE FUNCTION pg_temp.tasks(queue text) RETURNS TABLE (task text, status text,
	attempt int, max int, worker text, after numeric, error text)
LANGUAGE sql AS $$
	SELECT payload #>> '{}', status, attempt, max_attempts, worker,
		CASE WHEN run_at > clock_timestamp() THEN round(extract(epoch FROM run_at - clock_timestamp()) / 60) END, error
	FROM fairq.tasks t WHERE t.queue = $1 ORDER BY id
$$;

-- Deletes the archived tasks of the queues whose names match.
CREATE FUNCTION pg_temp.forget(queues text) RETURNS void
LANGUAGE sql AS $$
	DELETE FROM fairq.archive WHERE queue_id IN (SELECT queue_id FROM fairq.queue WHERE name LIKE queues)
$$;

CREATE FUNCTION pg_temp.counters(queue text, OUT popped bigint, OUT completed bigint,
	OUT released bigint, OUT retried bigint, OUT failed bigint, OUT cancelled bigint, OUT lapsed bigint)
LANGUAGE sql AS $$
	SELECT popped, completed, released, retried, failed, cancelled, lapsed
	FROM fairq.queues q WHERE q.queue = $1
$$;

SELECT fairq.create_queue('retries');

--
-- A retry
--

SELECT pg_temp.add('retries', 'a1', 'a2', 'a3', 'b1');
SELECT pg_temp.pop('retries', 1);
SELECT pg_temp.id('retries', 'a1') AS id \gset
-- a task that is retried at once comes before the others of its group, and has
-- no address
SELECT fairq.fail(:id, 1, 'first', '0');
SELECT * FROM pg_temp.tasks('retries');
SELECT addr, lease_until, run_at > enqueued_at AND run_at <= now() AS put_back, finished_at FROM fairq.tasks WHERE id = :id;
SELECT * FROM fairq.check_queue('retries');
-- the attempt is over, whether or not a call gives its number
SELECT fairq.fail(:id, 1), fairq.fail(:id), fairq.complete(:id, 1), fairq.complete(:id), fairq.release(:id, 1),
	fairq.release(:id), fairq.extend(:id, 1), fairq.extend(:id), cardinality(fairq.complete_batch(ARRAY[:id]));
SELECT pg_temp.pop('retries');
-- the error stays until another attempt fails with an error
SELECT * FROM pg_temp.tasks('retries') WHERE task = 'a1';
SELECT fairq.fail(:id, 2, NULL, '0');
SELECT * FROM pg_temp.tasks('retries') WHERE task = 'a1';
SELECT pg_temp.pop('retries');
SELECT fairq.fail(:id, 3, 'third', '1 hour');
SELECT * FROM pg_temp.tasks('retries') WHERE task = 'a1';
SELECT * FROM pg_temp.counters('retries');
SELECT scheduled, ready, limited, running FROM fairq.queues WHERE queue = 'retries';
SELECT group_key, scheduled, ready, limited, running FROM fairq.groups WHERE queue = 'retries' ORDER BY group_no;
SELECT pg_temp.pop('retries');
SELECT * FROM fairq.check_queue('retries');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'retries' AND status = 'running';
-- an empty error text is stored, too
SELECT pg_temp.add('retries', 'b2', 'b3');
SELECT pg_temp.pop('retries');
SELECT fairq.fail(pg_temp.id('retries', 'b2'), 1, '', '0');
SELECT error = '' AS empty FROM fairq.tasks WHERE queue = 'retries' AND payload = '"b2"';
-- an error has some MB
SELECT fairq.fail(pg_temp.id('retries', 'b3'), 1, repeat('x', 5000000), '0');
SELECT length(error) FROM fairq.tasks WHERE queue = 'retries' AND payload = '"b3"';
SELECT pg_temp.pop('retries');
SELECT fairq.fail(pg_temp.id('retries', 'b3'), 2, dead => true);
SELECT length(error), status FROM fairq.tasks WHERE queue = 'retries' AND payload = '"b3"';
SELECT fairq.complete(pg_temp.id('retries', 'b2'), 2);
SELECT fairq.purge('retries');

-- The task is retried after some time, without a call.
SELECT pg_temp.add('retries', 'a1', 'a2');
SELECT pg_temp.pop('retries');
SELECT fairq.release(pg_temp.id('retries', 'a2'), 1, '1 second');
SELECT fairq.fail(pg_temp.id('retries', 'a1'), 1, 'again', '1.05 seconds');
SELECT status FROM fairq.tasks WHERE queue = 'retries' AND status <> 'failed';
SELECT pg_temp.pop('retries');
SELECT * FROM fairq.check_queue('retries');
SELECT pg_sleep(1.1);
SELECT status FROM fairq.tasks WHERE queue = 'retries' AND status <> 'failed';
SELECT * FROM fairq.check_queue('retries');
-- retried tasks come first, whatever their times
SELECT pg_temp.pop('retries');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'retries';
SELECT * FROM fairq.check_queue('retries');

-- Arguments
SELECT pg_temp.add('retries', 'a1');
SELECT fairq.fail(pg_temp.id('retries', 'a1')), fairq.release(pg_temp.id('retries', 'a1'));
SELECT pg_temp.pop('retries');
SELECT pg_temp.id('retries', 'a1') AS id \gset
SELECT fairq.fail(NULL), fairq.fail(NULL, 1), fairq.fail(0), fairq.fail(-1, 1, 'x', '0', true), fairq.fail(9223372036854775807),
	fairq.release(NULL), fairq.release(NULL, 1, '1 hour'), fairq.release(0), fairq.release(-9223372036854775808, 1);
SELECT fairq.fail(:id, n), fairq.fail(:id, n, dead => true), fairq.release(:id, n), fairq.release(:id, n, '1 s')
FROM unnest('{0,-1,2,2147483647,-2147483648}'::int[]) n;
SELECT fairq.fail(:id, 1, 'x', '-1 microsecond');
SELECT fairq.fail(:id, 1, 'x', '-1 hour');
SELECT fairq.fail(:id, 1, 'x', '1 day -25 hours');
SELECT fairq.fail(:id, 1, 'x', '110 years');
SELECT fairq.fail(:id, 1, 'x', '178000000 years');
SELECT fairq.fail(:id, 1, 'x', '-178000000 years');
SELECT fairq.fail(0, 1, 'x', '-1 hour');
SELECT fairq.fail(:id, 1, 'x', '-1 hour', true);
SELECT fairq.release(:id, 1, '-1 microsecond');
SELECT fairq.release(:id, 1, '-1 month');
SELECT fairq.release(:id, 1, '110 years');
SELECT fairq.release(:id, 1, '178000000 years');
SELECT fairq.release(NULL, 1, '-1 hour');
SELECT * FROM pg_temp.tasks('retries') WHERE status <> 'failed';
-- a long delay
SELECT fairq.fail(:id, 1, 'x', '100 years');
SELECT status, run_at > now() + '98 years' AS late FROM fairq.tasks WHERE id = :id;
SELECT * FROM fairq.check_queue('retries');
SELECT fairq.cancel(:id);
-- NULL means the default, and arguments have names
SELECT pg_temp.add('retries', 'a1', 'a2', 'a3');
SELECT pg_temp.pop('retries');
SELECT clock_timestamp() AS before \gset
SELECT fairq.fail(pg_temp.id('retries', 'a1'), NULL, NULL, NULL, NULL);
SELECT fairq.fail(error => 'by name', id => pg_temp.id('retries', 'a2'));
SELECT fairq.release(delay => NULL, id => pg_temp.id('retries', 'a3'), attempt => NULL);
SELECT payload, status, error,
	run_at BETWEEN timestamptz :'before' + interval '0.75 s' AND clock_timestamp() + interval '1.25 s' AS a_second,
	run_at <= clock_timestamp() AS put_back
FROM fairq.tasks WHERE queue = 'retries' AND status <> 'failed' ORDER BY id;
SELECT fairq.purge('retries');
SELECT * FROM fairq.check_queue('retries');

--
-- Backoff: retry n waits backoff * 2^(n-1), with a jitter of 25 %, and at most
-- backoff_max, which is an hour by default
--

-- Fails a task n times; the n-th time with the default delay. Returns the
-- range of the delay, as multiples of the queue's backoff.
CREATE FUNCTION pg_temp.delay(queue text, n int, OUT shortest numeric, OUT longest numeric)
LANGUAGE plpgsql AS $$
DECLARE
	task bigint := fairq.enqueue(queue, 'backoff', max_attempts => 2147483647);
	before timestamptz;
BEGIN
	FOR i IN 1 .. n LOOP
		IF (SELECT id FROM fairq.pop(queue)) IS DISTINCT FROM task THEN
			RAISE 'somebody else''s task';
		END IF;
		before := clock_timestamp();
		PERFORM fairq.fail(task, i, retry_in => CASE WHEN i < n THEN interval '0' END);
	END LOOP;
	SELECT extract(epoch FROM run_at - clock_timestamp()) / nullif(extract(epoch FROM backoff), 0),
		extract(epoch FROM run_at - before) / nullif(extract(epoch FROM backoff), 0)
	INTO shortest, longest
	FROM fairq.tasks t JOIN fairq.queues q USING (queue) WHERE t.id = task;
	PERFORM fairq.cancel(task);
END $$;
SELECT fairq.create_queue('retries_backoff', backoff => '10 seconds');
SELECT n, bool_and(longest >= 0.75 * 2 ^ (n - 1) AND shortest <= 1.25 * 2 ^ (n - 1)) AS within,
	max(shortest) - min(longest) > 0.1 * 2 ^ (n - 1) AS jitter, min(longest) < 2 ^ (n - 1) AS less, max(shortest) > 2 ^ (n - 1) AS more
FROM unnest('{1,2,3,6}'::int[]) n, generate_series(1, 30) again, LATERAL pg_temp.delay('retries_backoff', n + 0 * again) d
GROUP BY n ORDER BY n;
-- an hour is 360 * 10 seconds
SELECT n, bool_and(longest >= 0.75 * 360 AND shortest <= 360) AS within
FROM unnest('{10,11,33,64,65,100}'::int[]) n, LATERAL pg_temp.delay('retries_backoff', n) d
GROUP BY n ORDER BY n;
SELECT bool_and(longest >= 0.75 * 360 AND shortest <= 360) AS within, max(shortest) - min(longest) > 10 AS jitter
FROM generate_series(1, 20) again, LATERAL pg_temp.delay('retries_backoff', 10 + 0 * again) d;
SELECT bool_and(longest >= 0.75 * 256 AND shortest <= 1.25 * 256) AS within
FROM generate_series(1, 10) again, LATERAL pg_temp.delay('retries_backoff', 9 + 0 * again) d;
-- a longer backoff, a shorter one, and none
SELECT fairq.alter_queue('retries_backoff', backoff => '100 hours');
SELECT bool_and(longest >= 0.0075 AND shortest <= 0.01) AS an_hour
FROM unnest('{1,1,50}'::int[]) n, LATERAL pg_temp.delay('retries_backoff', n) d;
SELECT fairq.alter_queue('retries_backoff', backoff => '100 years');
SELECT bool_and(longest * extract(epoch FROM interval '100 years') >= 2700
	AND shortest * extract(epoch FROM interval '100 years') <= 3600.001) AS an_hour
FROM unnest('{1,1,70}'::int[]) n, LATERAL pg_temp.delay('retries_backoff', n) d;
SELECT fairq.alter_queue('retries_backoff', backoff => '1 microsecond');
SELECT n, longest >= 0.75 * CASE n WHEN 31 THEN 2 ^ 30 ELSE 3.6e9 END
	AND shortest <= CASE n WHEN 31 THEN 1.25 * 2 ^ 30 ELSE 3.6e9 END AS within
FROM unnest('{31,33}'::int[]) n, LATERAL pg_temp.delay('retries_backoff', n) d;
SELECT fairq.alter_queue('retries_backoff', backoff => '10 seconds', backoff_max => '100 seconds');
SELECT n, bool_and(longest >= 7.5 AND shortest <= 10) AS within
FROM unnest('{5,100}'::int[]) n, LATERAL pg_temp.delay('retries_backoff', n) d GROUP BY n ORDER BY n;
SELECT fairq.alter_queue('retries_backoff', backoff_max => '10 hours');
SELECT longest >= 0.75 * 512 AND shortest <= 1.25 * 512 AS longer_than_an_hour FROM pg_temp.delay('retries_backoff', 10);
SELECT fairq.alter_queue('retries_backoff', backoff_max => '0');
SELECT shortest <= 0 AS at_once FROM pg_temp.delay('retries_backoff', 2);
SELECT fairq.alter_queue('retries_backoff', backoff_max => '-1 second');
SELECT fairq.alter_queue('retries_backoff', backoff_max => '110 years');
SELECT fairq.create_queue('retries_max', backoff_max => '1 minute'), fairq.create_queue('retries_max_2');
SELECT queue, backoff, backoff_max FROM fairq.queues WHERE queue LIKE 'retries\_max%' ORDER BY queue;
SELECT fairq.drop_queue('retries_max'), fairq.drop_queue('retries_max_2');
SELECT fairq.alter_queue('retries_backoff', backoff => '0', backoff_max => '1 hour');
SELECT n, shortest, longest FROM unnest('{1,40}'::int[]) n, LATERAL pg_temp.delay('retries_backoff', n) d;
SELECT pg_temp.add('retries_backoff', 'a1');
SELECT pg_temp.pop('retries_backoff');
SELECT fairq.fail(pg_temp.id('retries_backoff', 'a1'), 1);
SELECT status, run_at <= now() AS put_back FROM fairq.tasks WHERE queue = 'retries_backoff';
SELECT pg_temp.pop('retries_backoff');
SELECT fairq.alter_queue('retries_backoff', backoff => '-1 second');
SELECT fairq.alter_queue('retries_backoff', backoff => '110 years');
SELECT fairq.create_queue('retries_x', backoff => '-1 second');
SELECT fairq.create_queue('retries_x', backoff => '178000000 years');
SELECT * FROM fairq.check_queue('retries_backoff');
-- Released attempts do not count for the backoff, either.
SELECT fairq.alter_queue('retries_backoff', backoff => '1 hour');
SELECT fairq.release(pg_temp.id('retries_backoff', 'a1'), 2);
SELECT pg_temp.pop('retries_backoff');
SELECT fairq.release(pg_temp.id('retries_backoff', 'a1'), 3);
SELECT pg_temp.pop('retries_backoff');
SELECT fairq.alter_queue('retries_backoff', backoff => '1 minute');
SELECT clock_timestamp() AS before \gset
SELECT fairq.fail(pg_temp.id('retries_backoff', 'a1'), 4, 'second');
SELECT run_at BETWEEN timestamptz :'before' + interval '90 s' AND clock_timestamp() + interval '150 s' AS two_minutes, attempt FROM fairq.tasks WHERE queue = 'retries_backoff';
SELECT fairq.drop_queue('retries_backoff', true);

--
-- release
--

SELECT pg_temp.add('retries', 'a1', 'a2', 'b1');
SELECT pg_temp.pop('retries', 2);
SELECT pg_temp.id('retries', 'a1') AS id \gset
SELECT fairq.release(:id, 1);
SELECT fairq.release(:id, 1), fairq.release(:id), fairq.fail(:id, 1), fairq.extend(:id, 1);
SELECT * FROM pg_temp.tasks('retries') WHERE status <> 'failed';
SELECT pg_temp.pop('retries');
SELECT fairq.release(:id, 1), fairq.release(:id, 2, '1 hour');
SELECT * FROM pg_temp.tasks('retries') WHERE status <> 'failed';
SELECT pg_temp.pop('retries');
SELECT * FROM fairq.check_queue('retries');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'retries' AND status = 'running';
SELECT fairq.cancel(:id);

--
-- Attempts that count
--

SELECT fairq.alter_queue('retries', max_attempts => 3);
SELECT pg_temp.forget('retries%');
SELECT pg_temp.add('retries', 'a1');
SELECT fairq.enqueue('retries', 'a', '"a2"', max_attempts => 1) > 0 AS ok;
SELECT fairq.enqueue('retries', 'a', '"a3"', max_attempts => 4) > 0 AS ok;
SELECT pg_temp.pop('retries');
SELECT count(fairq.fail(id, attempt, 'no ' || attempt, '0')) FROM (SELECT id, attempt FROM fairq.tasks WHERE queue = 'retries' AND status = 'running' ORDER BY id) t;
SELECT * FROM pg_temp.tasks('retries');
SELECT pg_temp.pop('retries');
SELECT count(fairq.fail(id, attempt, 'no ' || attempt, '0')) FROM (SELECT id, attempt FROM fairq.tasks WHERE queue = 'retries' AND status = 'running' ORDER BY id) t;
SELECT pg_temp.pop('retries');
SELECT count(fairq.fail(id, attempt, 'no ' || attempt, '1 hour')) FROM fairq.tasks WHERE queue = 'retries' AND status = 'running';
SELECT * FROM pg_temp.tasks('retries');
SELECT * FROM pg_temp.counters('retries');
SELECT * FROM fairq.check_queue('retries');
SELECT status, finished_at - now() BETWEEN '-1 minute' AND '1 minute' AS just_now, addr, lease_until, result
FROM fairq.tasks WHERE queue = 'retries' AND status = 'failed';
-- a finished task does not change
SELECT fairq.fail(id), fairq.fail(id, attempt), fairq.complete(id, attempt), fairq.release(id, attempt), fairq.extend(id, attempt),
	fairq.cancel(id), cardinality(fairq.complete_batch(ARRAY[id]))
FROM fairq.tasks WHERE queue = 'retries' AND status = 'failed';
SELECT fairq.purge('retries');
-- the value of max_attempts at the moment of the failure applies
SELECT pg_temp.add('retries', 'b1', 'b2');
SELECT pg_temp.pop('retries');
SELECT fairq.alter_queue('retries', max_attempts => 1);
SELECT max_attempts FROM fairq.tasks WHERE queue = 'retries' AND payload = '"b1"';
SELECT fairq.fail(pg_temp.id('retries', 'b1'), 1, 'too many by now');
SELECT fairq.alter_queue('retries', max_attempts => 2147483647);
SELECT fairq.fail(pg_temp.id('retries', 'b2'), 1, 'may be retried', '0');
SELECT * FROM pg_temp.tasks('retries') WHERE task LIKE 'b%';
-- released attempts do not count towards max_attempts, but attempts before them
-- still do
SELECT fairq.alter_queue('retries', max_attempts => 2);
SELECT pg_temp.pop('retries');
SELECT fairq.release(pg_temp.id('retries', 'b2'), 2);
SELECT pg_temp.pop('retries');
SELECT fairq.release(pg_temp.id('retries', 'b2'), 3, '1 millisecond');
SELECT pg_sleep(0.01);
SELECT pg_temp.pop('retries');
SELECT * FROM fairq.check_queue('retries');
SELECT fairq.fail(pg_temp.id('retries', 'b2'), 4, 'the second');
SELECT * FROM pg_temp.tasks('retries') WHERE task = 'b2';
-- an expired attempt counts
SELECT pg_temp.add('retries', 'b3', 'b4');
SELECT pg_temp.pop('retries', lease => '1 microsecond');
SELECT pg_temp.pop('retries', lease => '1 hour');
SELECT fairq.fail(pg_temp.id('retries', 'b3'), 2, 'the second'), fairq.release(pg_temp.id('retries', 'b4'), 2);
SELECT pg_temp.pop('retries', lease => '1 microsecond');
SELECT pg_temp.pop('retries', lease => '1 hour');
SELECT * FROM pg_temp.tasks('retries') WHERE task IN ('b3', 'b4');
SELECT * FROM pg_temp.counters('retries');
SELECT * FROM fairq.check_queue('retries');
-- with dead => true there is no further attempt
SELECT fairq.alter_queue('retries', max_attempts => 20);
SELECT pg_temp.add('retries', 'c1', 'c2', 'c3');
SELECT pg_temp.pop('retries');
SELECT fairq.fail(pg_temp.id('retries', 'c1'), 1, 'dead', dead => true), fairq.fail(pg_temp.id('retries', 'c2'), 1, 'dead', '1 hour', true),
	fairq.fail(pg_temp.id('retries', 'c3'), dead => true);
SELECT * FROM pg_temp.tasks('retries') WHERE task LIKE 'c%';
SELECT * FROM fairq.check_queue('retries');

-- max_attempts
SELECT fairq.enqueue('retries', 'a', '1', max_attempts => 0);
SELECT fairq.enqueue('retries', 'a', '1', max_attempts => -1);
SELECT fairq.enqueue('retries', 'a', '1', max_attempts => -2147483648);
SELECT fairq.alter_queue('retries', max_attempts => 0);
SELECT fairq.alter_queue('retries', max_attempts => -1);
SELECT fairq.create_queue('retries_x', max_attempts => 0);
SELECT fairq.create_queue('retries_x', max_attempts => -2147483648);
SELECT fairq.enqueue('retries', 'm', '"m1"', max_attempts => 2147483647) > 0 AS ok;
SELECT fairq.enqueue('retries', 'm', '"m2"', max_attempts => NULL) > 0 AS ok;
SELECT payload, max_attempts FROM fairq.tasks WHERE queue = 'retries' AND group_key = 'm' ORDER BY id;
SELECT fairq.create_queue('retries_x');
SELECT max_attempts, backoff FROM fairq.queues WHERE queue = 'retries_x';
SELECT fairq.purge('retries');

--
-- A failed or released task frees its slot under a limit
--

SELECT fairq.alter_queue('retries_x', concurrency => 1, max_running => 2);
SELECT pg_temp.add('retries_x', 'a1', 'a2', 'b1', 'c1');
SELECT pg_temp.pop('retries_x');
SELECT fairq.fail(pg_temp.id('retries_x', 'a1'), 1, 'x', '0');
SELECT * FROM fairq.check_queue('retries_x');
SELECT pg_temp.pop('retries_x');
SELECT fairq.fail(pg_temp.id('retries_x', 'b1'), 1, 'x', '1 hour');
SELECT pg_temp.pop('retries_x');
SELECT fairq.fail(id, attempt, 'x', dead => true) FROM fairq.tasks WHERE queue = 'retries_x' AND status = 'running' ORDER BY id;
SELECT pg_temp.pop('retries_x');
SELECT fairq.release(pg_temp.id('retries_x', 'a2'), 1);
SELECT pg_temp.pop('retries_x');
SELECT fairq.release(pg_temp.id('retries_x', 'a2'), 2, '1 hour');
SELECT pg_temp.pop('retries_x');
SELECT * FROM pg_temp.tasks('retries_x');
SELECT group_key, ready, limited, scheduled, running FROM fairq.groups WHERE queue = 'retries_x' ORDER BY group_no;
SELECT * FROM fairq.check_queue('retries_x');
SELECT fairq.drop_queue('retries_x', true);

--
-- Transactions
--

SELECT pg_temp.forget('retries%');
SELECT fairq.create_queue('retries_t', max_attempts => 2);
SELECT pg_temp.add('retries_t', 'a1', 'a2', 'b1', 'b2', 'c1', 'c2');
SELECT pg_temp.pop('retries_t');
SELECT * FROM pg_temp.tasks('retries_t');
BEGIN;
SELECT fairq.fail(pg_temp.id('retries_t', 'a1'), 1, 'x', '0'), fairq.fail(pg_temp.id('retries_t', 'a2'), 1, 'x', '1 hour'),
	fairq.fail(pg_temp.id('retries_t', 'b1'), 1, 'x', dead => true), fairq.release(pg_temp.id('retries_t', 'b2'), 1),
	fairq.release(pg_temp.id('retries_t', 'c1'), 1, '1 hour'), fairq.complete(pg_temp.id('retries_t', 'c2'), 1);
SELECT * FROM pg_temp.tasks('retries_t');
-- a transaction may pop a task that it has made ready
SELECT pg_temp.pop('retries_t');
ROLLBACK;
SELECT * FROM pg_temp.tasks('retries_t');
SELECT * FROM pg_temp.counters('retries_t');
SELECT * FROM fairq.check_queue('retries_t');
SELECT pg_temp.pop('retries_t');
-- the leases are the same as before that transaction
SELECT count(fairq.extend(id, 1)) FROM fairq.tasks WHERE queue = 'retries_t';
BEGIN;
SAVEPOINT s;
SELECT fairq.fail(pg_temp.id('retries_t', 'a1'), 1, 'x', '0'), fairq.release(pg_temp.id('retries_t', 'b2'), 1, '1 hour');
ROLLBACK TO s;
SELECT fairq.fail(pg_temp.id('retries_t', 'a1'), 1, 'y', '1 hour'), fairq.release(pg_temp.id('retries_t', 'b2'), 1);
COMMIT;
SELECT * FROM pg_temp.tasks('retries_t');
SELECT pg_temp.pop('retries_t');
SELECT * FROM fairq.check_queue('retries_t');
-- popped, failed and popped again in one transaction
SELECT fairq.purge('retries_t');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'retries_t';
SELECT pg_temp.add('retries_t', 'd1', 'd2');
BEGIN;
SELECT pg_temp.pop('retries_t', 1);
SELECT fairq.fail(pg_temp.id('retries_t', 'd1'), 1, 'x', '0');
SELECT pg_temp.pop('retries_t', 1), pg_temp.pop('retries_t', 1);
SELECT fairq.fail(pg_temp.id('retries_t', 'd1'), 2, 'y', '0');
SELECT pg_temp.pop('retries_t', 1);
COMMIT;
SELECT * FROM pg_temp.tasks('retries_t');
SELECT * FROM fairq.check_queue('retries_t');
SELECT pg_temp.forget('retries%');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT pg_temp.add('retries_t', 'e1', 'e2');
SELECT pg_temp.pop('retries_t');
SELECT fairq.fail(pg_temp.id('retries_t', 'e1'), 1, 'x', '1 hour'), fairq.fail(pg_temp.id('retries_t', 'e2'), 1, 'x', dead => true),
	fairq.release(pg_temp.id('retries_t', 'd2'), 1);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pg_temp.pop('retries_t');
SELECT fairq.fail(pg_temp.id('retries_t', 'd2'), 2, 'z', '0');
COMMIT;
SELECT * FROM pg_temp.tasks('retries_t');
SELECT * FROM fairq.check_queue('retries_t');
BEGIN READ ONLY;
SAVEPOINT s;
SELECT fairq.fail(0);
ROLLBACK TO s;
SELECT fairq.release(0, 1, '1 hour');
ROLLBACK TO s;
SELECT fairq.fail(NULL);
COMMIT;
BEGIN;
SELECT pg_temp.pop('retries_t');
SELECT fairq.fail(pg_temp.id('retries_t', 'd2'), 3, 'z', '0');
PREPARE TRANSACTION 'fairq';
SELECT * FROM pg_temp.tasks('retries_t');
SELECT * FROM fairq.check_queue('retries_t');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'retries%';
