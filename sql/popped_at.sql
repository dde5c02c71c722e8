-- popped_at shows when the last attempt of a task began, in each later state.
--
-- Fails if a claim does not set the column, a return clears it, or the archive
-- and redrive lose it.
\a \pset footer off
\set VERBOSITY sqlstate

CREATE TABLE popped_at_seen (name text PRIMARY KEY, popped_at timestamptz);

-- The value in each view. "same" and "later" compare it with the previous value.
CREATE FUNCTION pg_temp.look(name text, OUT status text, OUT attempt int, OUT popped_at text)
LANGUAGE plpgsql AS $$
DECLARE
	now_at timestamptz;
	seen_at timestamptz;
	other_at timestamptz;
BEGIN
	SELECT t.status, t.attempt, t.popped_at INTO STRICT status, attempt, now_at
	FROM fairq.tasks t WHERE t.payload = to_jsonb(look.name);
	SELECT v.popped_at INTO STRICT other_at FROM (
		SELECT l.payload, l.popped_at FROM fairq.live_tasks l
		UNION ALL SELECT f.payload, f.popped_at FROM fairq.finished_tasks f) v
	WHERE v.payload = to_jsonb(look.name);
	SELECT s.popped_at INTO seen_at FROM popped_at_seen s WHERE s.name = look.name;
	popped_at := CASE WHEN now_at IS NULL THEN 'null' WHEN other_at IS DISTINCT FROM now_at THEN 'differs'
		WHEN now_at = seen_at THEN 'same' WHEN now_at > seen_at THEN 'later'
		WHEN now_at BETWEEN transaction_timestamp() - interval '1 min' AND clock_timestamp() THEN 'first'
		ELSE now_at::text END;
	INSERT INTO popped_at_seen VALUES (look.name, now_at)
		ON CONFLICT ON CONSTRAINT popped_at_seen_pkey DO UPDATE SET popped_at = excluded.popped_at;
END $$;

CREATE FUNCTION pg_temp.id(name text) RETURNS bigint LANGUAGE sql AS $$
	SELECT id FROM fairq.tasks WHERE payload = to_jsonb(name)
$$;

SELECT fairq.create_queue('popped_at', retain => '1 day', max_attempts => 3);

-- A claim sets popped_at to the time at which the lease begins.
SELECT fairq.enqueue('popped_at', 'g', '"a"') > 0 AS ok;
SELECT * FROM pg_temp.look('a');
SELECT attempt FROM fairq.pop('popped_at', lease => '70 s');
SELECT lease_until - popped_at AS lease, popped_at >= enqueued_at AS after
FROM fairq.tasks WHERE id = pg_temp.id('a');
SELECT * FROM pg_temp.look('a');
-- changes of the lease keep the value
SELECT fairq.extend(pg_temp.id('a'), 1, '1 h') IS NOT NULL AS extended;
SELECT * FROM pg_temp.look('a');
SELECT fairq.cancel(pg_temp.id('a'));
SELECT * FROM pg_temp.look('a');
-- the archive keeps the value, too
SELECT fairq.complete(pg_temp.id('a'), 1);
SELECT * FROM pg_temp.look('a');

-- A task keeps the value, however it is returned. The next claim sets it again.
SELECT fairq.enqueue('popped_at', 'g', '"b"') > 0 AS ok;
SELECT attempt FROM fairq.pop('popped_at');
SELECT * FROM pg_temp.look('b');
SELECT fairq.release(pg_temp.id('b'), 1);
SELECT * FROM pg_temp.look('b');
SELECT attempt FROM fairq.pop('popped_at');
SELECT * FROM pg_temp.look('b');
SELECT fairq.release(pg_temp.id('b'), 2, '1 ms');
SELECT popped_at FROM pg_temp.look('b');
SELECT pg_sleep(0.01);
SELECT attempt FROM fairq.pop('popped_at');
SELECT * FROM pg_temp.look('b');
SELECT fairq.fail(pg_temp.id('b'), 3, 'first', '0');
SELECT * FROM pg_temp.look('b');
SELECT attempt FROM fairq.pop('popped_at', lease => '1 ms');
SELECT * FROM pg_temp.look('b');
-- a pop takes over a task with an expired lease, and later expire_leases ends
-- the attempt
SELECT pg_sleep(0.01);
SELECT attempt FROM fairq.pop('popped_at', lease => '1 ms');
SELECT * FROM pg_temp.look('b');
SELECT pg_sleep(0.01);
SELECT fairq.expire_leases('popped_at');
SELECT * FROM pg_temp.look('b');
-- a task that is redriven from the archive keeps the value
SELECT fairq.redrive('popped_at');
SELECT * FROM pg_temp.look('b');
SELECT attempt FROM fairq.pop('popped_at');
SELECT * FROM pg_temp.look('b');

-- A rolled back claim does not count.
SELECT fairq.enqueue('popped_at', 'g', '"c"') > 0 AS ok;
BEGIN;
SELECT attempt FROM fairq.pop('popped_at');
SELECT * FROM pg_temp.look('c');
ROLLBACK;
SELECT * FROM pg_temp.look('c');
BEGIN;
SAVEPOINT s;
SELECT attempt FROM fairq.pop('popped_at');
ROLLBACK TO s;
COMMIT;
SELECT * FROM pg_temp.look('c');
-- a task that was cancelled or failed, before its first attempt or in it
SELECT fairq.cancel(pg_temp.id('c'));
SELECT * FROM pg_temp.look('c');
SELECT fairq.enqueue('popped_at', 'g', '"d"') > 0 AS ok;
SELECT fairq.fail(id, attempt, 'dead', dead => true) FROM fairq.pop('popped_at');
SELECT * FROM pg_temp.look('d');

-- A row of an older dump, which has no value, is served, too.
INSERT INTO fairq.task (id, addr, enqueued_at, queue_id, group_no, priority, attempt, lease_until, payload)
SELECT 1000000000, 0, now(), queue_id, 0, 0, 1, now(), '"e"' FROM fairq.queue WHERE name = 'popped_at';
SELECT * FROM pg_temp.look('e');
SELECT attempt FROM fairq.pop('popped_at');
SELECT * FROM pg_temp.look('e');
SELECT * FROM fairq.check_queue('popped_at');

DROP TABLE popped_at_seen;
SELECT fairq.drop_queue('popped_at', true);
