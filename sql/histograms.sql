-- How long tasks wait and run: the histograms and percentiles of fairq.stats.
--
-- Fails if buckets are off by one. Fails if an abort keeps samples, a
-- subtransaction's commit loses them, or hints keep them for the next queue.
-- Fails if the wait of a returned task begins at its enqueue, or if a released
-- task counts as a run.
\a \t
\set VERBOSITY sqlstate

-- The buckets that are not empty. Short times, below 8 s, are in "0". "21" is
-- the bucket from 2^21 ms (35 minutes) to 2^22 ms.
CREATE FUNCTION pg_temp.buckets(histogram bigint[]) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(format('%s:%s', k, n), ' ' ORDER BY k), '-') FROM (
		SELECT CASE WHEN i <= 14 THEN 0 ELSE i - 2 END AS k, sum(h) AS n
		FROM unnest(histogram) WITH ORDINALITY u (h, i) GROUP BY 1) b
	WHERE n > 0
$$;
CREATE FUNCTION pg_temp.times(queue text, OUT waits text, OUT runs text) LANGUAGE sql AS $$
	SELECT pg_temp.buckets(wait_histogram), pg_temp.buckets(run_histogram)
	FROM fairq.stats s WHERE s.queue = $1
$$;

-- SQL moves times into the past. 3000 s is in bucket 21, and 200 s in bucket
-- 17.
CREATE FUNCTION pg_temp.backdate(columns text[], by interval, which text DEFAULT 'true') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY columns LOOP
		EXECUTE format('UPDATE fairq.task SET %1$I = clock_timestamp() - $1 WHERE %1$I IS NOT NULL AND %2$s'
			' AND queue_id IN (SELECT queue_id FROM fairq.queue WHERE name LIKE ''histograms%%'')', name, which)
		USING by;
	END LOOP;
END $$;

SELECT fairq.create_queue('histograms', max_attempts => 100);
SELECT array_length(wait_histogram, 1), array_length(run_histogram, 1), 0 = ALL (wait_histogram) AS empty,
	0 = ALL (run_histogram) AS empty, wait_p50, wait_p95, wait_p99, run_p50, run_p95, run_p99
FROM fairq.stats WHERE queue = 'histograms';

--
-- Which events count as a wait or a run
--

-- A new task waits from its enqueue to the pop, and runs until complete.
SELECT fairq.enqueue('histograms', 'g', '1') > 0 AS ok;
SELECT pg_temp.backdate('{enqueued_at}', '3000 s');
SELECT id, attempt FROM fairq.pop('histograms') \gset
SELECT * FROM pg_temp.times('histograms');
SELECT pg_temp.backdate('{popped_at}', '200 s');
-- the length of the lease has no effect
SELECT fairq.extend(:id, 1, '1 day') IS NOT NULL AS extended;
SELECT fairq.complete(:id, 1), fairq.complete(:id, 1);
SELECT * FROM pg_temp.times('histograms');

-- A task that returns to the queue waits from its return.
SELECT fairq.enqueue('histograms', 'g', '2') > 0 AS ok;
SELECT pg_temp.backdate('{enqueued_at}', '3000 s');
SELECT id, attempt FROM fairq.pop('histograms') \gset
SELECT fairq.release(:id, 1);
SELECT * FROM pg_temp.times('histograms');
SELECT pg_temp.backdate('{run_at}', '200 s');
SELECT attempt FROM fairq.pop('histograms');
SELECT * FROM pg_temp.times('histograms');
-- a task that is released with a delay waits only from the moment it is due
SELECT fairq.release(:id, 2, '1 ms');
SELECT pg_sleep(0.01);
SELECT attempt FROM fairq.pop('histograms');
SELECT * FROM pg_temp.times('histograms');
-- a failed attempt counts as a run
SELECT pg_temp.backdate('{popped_at}', '200 s');
SELECT fairq.fail(:id, 3, 'first', '0'), fairq.fail(:id, 3, 'late', '0');
SELECT * FROM pg_temp.times('histograms');
SELECT pg_temp.backdate('{run_at}', '200 s');
SELECT attempt FROM fairq.pop('histograms');
SELECT * FROM pg_temp.times('histograms');

-- A lapsed task waits from the end of its lease. The time of its attempt is
-- unknown.
SELECT pg_temp.backdate('{popped_at}', '200 s');
SELECT pg_temp.backdate('{lease_until}', '100 s');
SELECT attempt FROM fairq.pop('histograms');
SELECT * FROM pg_temp.times('histograms');
SELECT pg_temp.backdate('{popped_at}', '200 s');
SELECT pg_temp.backdate('{lease_until}', '100 s');
SELECT fairq.expire_leases('histograms');
SELECT * FROM pg_temp.times('histograms');
SELECT attempt FROM fairq.pop('histograms');
-- a permanent failure counts as a run, too, which ends with the call
SELECT pg_temp.backdate('{popped_at}', '3000 s');
SELECT fairq.fail(:id, 6, 'dead', dead => true);
SELECT * FROM pg_temp.times('histograms');
-- a redriven task waits from its redrive
SELECT fairq.redrive('histograms');
SELECT attempt FROM fairq.pop('histograms');
SELECT * FROM pg_temp.times('histograms');
SELECT fairq.complete(:id, 7);

-- take counts as a wait and not as a run. A cancelled task that was never
-- popped has neither. A cancelled task that was popped counts as a run once its worker ends
-- it.
SELECT fairq.enqueue_batch('histograms', ARRAY['g', 'g', 'g', 'g'], ARRAY['3', '4', '5', '6']::jsonb[]) IS NOT NULL AS ok;
SELECT pg_temp.backdate('{enqueued_at}', '3000 s');
SELECT payload FROM fairq.take('histograms');
SELECT * FROM pg_temp.times('histograms');
SELECT fairq.cancel(id) FROM fairq.tasks WHERE queue = 'histograms' AND payload = '4';
SELECT id FROM fairq.pop('histograms') \gset
SELECT fairq.cancel(:id);
SELECT * FROM pg_temp.times('histograms');
SELECT pg_temp.backdate('{popped_at}', '3000 s');
SELECT fairq.fail(:id, 1, 'cancelled');
SELECT * FROM pg_temp.times('histograms');
-- a pop adds a wait, but a purge of a task that waits adds nothing
SELECT attempt FROM fairq.pop('histograms');
SELECT fairq.enqueue('histograms', 'g', '7') > 0 AS ok;
SELECT pg_temp.backdate('{enqueued_at}', '3000 s');
SELECT fairq.purge('histograms');
SELECT * FROM pg_temp.times('histograms');

-- Each way to complete a task counts: archived, with a dedup_key, and in a
-- batch.
SELECT fairq.create_queue('histograms_kept', retain => '1 day');
SELECT fairq.enqueue('histograms_kept', 'g', '1', dedup_key => 'k') > 0 AS ok;
SELECT fairq.enqueue('histograms_kept', 'g', to_jsonb(n)) > 0 AS ok FROM generate_series(2, 4) n;
SELECT count(*) FROM fairq.pop('histograms_kept', 10);
SELECT pg_temp.backdate('{popped_at}', '200 s');
SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = 'histograms_kept' AND payload = '1';
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'histograms_kept' AND status = 'running';
SELECT * FROM pg_temp.times('histograms_kept');
-- the other queue has none of these samples, and reset_hints() loses no sample
SELECT * FROM pg_temp.times('histograms');
SELECT fairq.reset_hints();
SELECT * FROM pg_temp.times('histograms_kept');

-- Hints that are reused for another queue begin at zero.
SELECT fairq.drop_queue('histograms', true), fairq.drop_queue('histograms_kept', true);
SELECT fairq.create_queue('histograms_1'), fairq.create_queue('histograms_2'), fairq.create_queue('histograms_3');
SELECT q, (pg_temp.times(q)).* FROM unnest(ARRAY['histograms_1', 'histograms_2', 'histograms_3']) q;

--
-- Transactions
--

SELECT count(fairq.enqueue('histograms_1', 'g', to_jsonb(n))) FROM generate_series(1, 100) n;
SELECT pg_temp.backdate('{enqueued_at}', '3000 s');
BEGIN;
SELECT count(*) FROM fairq.pop('histograms_1', 10);
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.live_tasks WHERE status = 'running';
-- the views show samples once their transaction commits
SELECT * FROM pg_temp.times('histograms_1');
ROLLBACK;
SELECT * FROM pg_temp.times('histograms_1');
BEGIN;
SELECT count(*) FROM fairq.pop('histograms_1', 1);
SAVEPOINT a;
SELECT count(*) FROM fairq.pop('histograms_1', 2);
SAVEPOINT b;
SELECT count(*) FROM fairq.pop('histograms_1', 4);
RELEASE b;
SELECT count(*) FROM fairq.pop('histograms_1', 8);
SAVEPOINT c;
SELECT count(*) FROM fairq.pop('histograms_1', 16);
ROLLBACK TO c;
SELECT count(*) FROM fairq.take('histograms_1', 2);
RELEASE a;
SAVEPOINT d;
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.live_tasks WHERE queue = 'histograms_1' AND status = 'running';
ROLLBACK TO d;
SELECT fairq.complete(id) FROM fairq.live_tasks WHERE queue = 'histograms_1' AND status = 'running' ORDER BY id LIMIT 1;
COMMIT;
-- 1 + 2 + 4 + 8 + 2 samples
SELECT * FROM pg_temp.times('histograms_1');
BEGIN;
SAVEPOINT a;
SELECT count(*) FROM fairq.pop('histograms_1', 3);
SAVEPOINT b;
SELECT count(*) FROM fairq.pop('histograms_1', 3);
RELEASE b;
ROLLBACK TO a;
SELECT count(*) FROM fairq.pop('histograms_1', 3);
COMMIT;
SELECT * FROM pg_temp.times('histograms_1');
-- many subtransactions, some of which fail, in more than one queue
SELECT count(fairq.enqueue('histograms_2', 'g', to_jsonb(n))) FROM generate_series(1, 3000) n;
DO $$
BEGIN
	FOR n IN 1..300 LOOP
		BEGIN
			PERFORM fairq.complete(id) FROM fairq.pop('histograms_2') LIMIT 1;
			IF n % 3 = 0 THEN
				PERFORM 1 / 0;
			END IF;
			IF n % 30 = 1 THEN
				PERFORM FROM fairq.take('histograms_1');
			END IF;
		EXCEPTION WHEN division_by_zero THEN
		END;
	END LOOP;
END $$;
SELECT q, (pg_temp.times(q)).* FROM unnest(ARRAY['histograms_1', 'histograms_2', 'histograms_3']) q;
-- samples of a queue that the same transaction drops do not go to the next queue
BEGIN;
SELECT count(*) FROM fairq.pop('histograms_2', 5);
SELECT fairq.drop_queue('histograms_2', true);
COMMIT;
SELECT fairq.create_queue('histograms_4');
SELECT * FROM pg_temp.times('histograms_4');

--
-- Buckets and percentiles
--

-- Both ends of each bucket from 2^15 ms on.
SELECT count(fairq.enqueue('histograms_3', 'g', to_jsonb(n))) FROM generate_series(15, 31) n, generate_series(1, 2);
UPDATE fairq.task t SET enqueued_at = clock_timestamp() - (2 ^ (payload::int)) * interval '1 ms' + interval '8 s' * lower
FROM (SELECT id, row_number() OVER (PARTITION BY payload ORDER BY id) - 1 AS lower FROM fairq.live_tasks WHERE queue = 'histograms_3') l
WHERE l.id = t.id;
SELECT count(*) FROM fairq.pop('histograms_3', 100);
SELECT * FROM pg_temp.times('histograms_3');
SELECT wait_histogram[1:15] FROM fairq.stats WHERE queue = 'histograms_3';
-- Times that only SQL can store: infinite, in the future, and NULL.
SELECT count(fairq.enqueue('histograms_4', 'g', to_jsonb(n))) FROM generate_series(1, 4) n;
UPDATE fairq.task SET enqueued_at = CASE payload WHEN '1' THEN '-infinity' WHEN '2' THEN 'infinity'
	WHEN '3' THEN now() + interval '1 day' ELSE '4713-01-01 BC'::timestamptz END
WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'histograms_4');
SELECT count(*) FROM fairq.pop('histograms_4', 4);
UPDATE fairq.task SET popped_at = CASE payload WHEN '1' THEN '-infinity' WHEN '2' THEN 'infinity'
	WHEN '3' THEN now() + interval '1 day' END
WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'histograms_4');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.live_tasks WHERE queue = 'histograms_4';
SELECT * FROM pg_temp.times('histograms_4');
SELECT wait_histogram[1], run_histogram[1], run_p50, extract(epoch FROM run_sum)::bigint / 86400 AS run_days
FROM fairq.stats WHERE queue = 'histograms_4';

-- 50 tasks waited 3000 s, 45 waited 100 s and 5 waited 10 s. A percentile
-- assumes that the values of a bucket are evenly spread.
SELECT fairq.create_queue('histograms_5');
SELECT count(fairq.enqueue('histograms_5', 'g', to_jsonb(n))) FROM generate_series(1, 100) n;
SELECT pg_temp.backdate('{enqueued_at}', '3000 s', 'payload::int <= 50');
SELECT pg_temp.backdate('{enqueued_at}', '100 s', 'payload::int BETWEEN 51 AND 95');
SELECT pg_temp.backdate('{enqueued_at}', '10 s', 'payload::int > 95');
SELECT count(*) FROM fairq.pop('histograms_5', 50, per_group => 50);
SELECT wait_p50 = make_interval(secs => 3 * 2 ^ 20 / 1000) AS p50, wait_p95 = make_interval(secs => 2 ^ 21 * 1.95 / 1000) AS p95,
	wait_p99 = make_interval(secs => 2 ^ 21 * 1.99 / 1000) AS p99, run_p50, wait_p50 AS is
FROM fairq.stats WHERE queue = 'histograms_5';
SELECT count(*) FROM fairq.pop('histograms_5', 50);
SELECT * FROM pg_temp.times('histograms_5');
-- each wait may be up to a minute longer, since the test itself takes some
-- time
SELECT wait_sum BETWEEN '154550 s' AND '154550 s'::interval + 100 * interval '1 min' AS wait_sum, run_sum
FROM fairq.stats WHERE queue = 'histograms_5';
BEGIN;
SELECT count(*) FROM fairq.live_tasks WHERE queue = 'histograms_5' AND fairq.complete(id);
ROLLBACK;
SELECT run_sum = '0' AS none FROM fairq.stats WHERE queue = 'histograms_5';
SELECT wait_p50 = make_interval(secs => 2 ^ 17 / 1000) AS p50, wait_p95 = make_interval(secs => 2 ^ 21 * 1.9 / 1000) AS p95,
	wait_p99 = make_interval(secs => 2 ^ 21 * 1.98 / 1000) AS p99, wait_p50 AS is
FROM fairq.stats WHERE queue = 'histograms_5';

-- A client measures times, too, and its percentiles agree with those of the
-- view within one bucket. As its calls take time, it knows only two bounds of
-- each time.
CREATE TABLE histograms_client (kind text, least_ms numeric, most_ms numeric);
SELECT fairq.create_queue('histograms_6');
DO $$
DECLARE
	task fairq.claim;
	at timestamptz[];
BEGIN
	FOR n IN 1..40 LOOP
		at[1] := clock_timestamp();
		PERFORM fairq.enqueue('histograms_6', 'g', '1');
		at[2] := clock_timestamp();
		COMMIT;
		PERFORM pg_sleep(CASE WHEN n <= 22 THEN 0.003 WHEN n <= 38 THEN 0.02 ELSE 0.2 END);
		at[3] := clock_timestamp();
		SELECT * INTO task FROM fairq.pop('histograms_6');
		at[4] := clock_timestamp();
		COMMIT;
		PERFORM pg_sleep(CASE WHEN n <= 30 THEN 0.001 WHEN n <= 38 THEN 0.04 ELSE 0.1 END);
		at[5] := clock_timestamp();
		PERFORM fairq.complete(task.id, task.attempt);
		at[6] := clock_timestamp();
		COMMIT;
		INSERT INTO histograms_client VALUES
			('wait', extract(epoch FROM at[3] - at[2]) * 1000, extract(epoch FROM at[4] - at[1]) * 1000),
			('run', extract(epoch FROM at[5] - at[4]) * 1000, extract(epoch FROM at[6] - at[3]) * 1000);
	END LOOP;
END $$;
SELECT kind, p, extract(epoch FROM said) * 1000 BETWEEN 2 ^ floor(log(2, least)) / 2 AND 2 ^ floor(log(2, most)) * 4 AS agrees
FROM (
	SELECT kind, p, percentile_disc(p) WITHIN GROUP (ORDER BY least_ms) AS least,
		percentile_disc(p) WITHIN GROUP (ORDER BY most_ms) AS most
	FROM histograms_client, unnest(ARRAY[0.5, 0.95, 0.99]) p GROUP BY kind, p) c
JOIN (
	SELECT k AS kind, p, said FROM fairq.stats, LATERAL (VALUES
		('wait', 0.5, wait_p50), ('wait', 0.95, wait_p95), ('wait', 0.99, wait_p99),
		('run', 0.5, run_p50), ('run', 0.95, run_p95), ('run', 0.99, run_p99)) v (k, p, said)
	WHERE queue = 'histograms_6') s USING (kind, p)
ORDER BY kind DESC, p;
SELECT pg_temp.times('histograms_6');

DROP TABLE histograms_client;
SELECT count(*) FROM fairq.queues WHERE queue LIKE 'histograms%' AND fairq.drop_queue(queue, true);
