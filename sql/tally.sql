-- fairq.stats shows how many tasks are ready, scheduled and running, without
-- reading their rows. It agrees with the rows after each call that changes a
-- row.
--
-- Fails if a call does not record its change, or records a wrong kind of change
-- (FairqPending). Fails if rolled back changes count (apply_pending() in
-- transaction.c). Fails if a count that did not include a queue marks its
-- numbers as known (add_found() in load.c).
\a \pset footer off

-- The numbers of the view, and the faults of the queue.
CREATE FUNCTION pg_temp.tally(of text DEFAULT 'tally', OUT queued bigint, OUT scheduled bigint,
	OUT running bigint, OUT wrong text)
LANGUAGE sql AS $$
	SELECT s.queued, s.scheduled, s.running,
		(SELECT string_agg(c, '; ') FROM fairq.check_queue(of) c)
	FROM fairq.stats s WHERE queue = of
$$;

-- The id of the task with that payload.
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT id FROM fairq.tasks t WHERE queue = 'tally' AND t.payload = to_jsonb(id.payload)
$$;

CREATE FUNCTION pg_temp.pop(n int, lease interval DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('tally', n, lease)
$$;

SELECT fairq.create_queue('tally', max_attempts => 2, backoff => '1 hour', retain => '1 hour');
-- maintain() makes fairq count all existing rows now
SELECT fairq.maintain('tally');
SELECT * FROM pg_temp.tally();

-- Tasks that are enqueued as ready or scheduled, and one that exists already.
SELECT count(fairq.enqueue('tally', 'g', to_jsonb(p))) FROM unnest('{a,b,c,d,e,f,g,h}'::text[]) p;
SELECT count(*) FROM fairq.enqueue_batch('tally', ARRAY['g', 'h'], ARRAY['"i"', '"j"']::jsonb[],
	run_at => clock_timestamp() + '1 hour');
SELECT fairq.enqueue('tally', 'g', '"k"', dedup_key => 'k') = fairq.enqueue('tally', 'g', '"k"', dedup_key => 'k') AS one;
SELECT * FROM pg_temp.tally();

-- Pop and take.
SELECT pg_temp.pop(5);
SELECT * FROM pg_temp.tally();
SELECT payload FROM fairq.take('tally');
SELECT * FROM pg_temp.tally();

-- Leases end in every possible way, and tasks are changed.
SELECT fairq.complete(pg_temp.id('a'));
SELECT * FROM pg_temp.tally();
SELECT fairq.fail(pg_temp.id('b'), dead => true);
SELECT * FROM pg_temp.tally();
SELECT fairq.fail(pg_temp.id('c'));
SELECT * FROM pg_temp.tally();
SELECT fairq.release(pg_temp.id('d'));
SELECT * FROM pg_temp.tally();
SELECT fairq.extend(pg_temp.id('e')) IS NOT NULL AS extended, fairq.cancel(pg_temp.id('e'));
SELECT * FROM pg_temp.tally();
SELECT fairq.release(pg_temp.id('e'), delay => '1 hour');
SELECT * FROM pg_temp.tally();
SELECT pg_temp.pop(1), fairq.release(pg_temp.id('g'), delay => '1 hour');
SELECT * FROM pg_temp.tally();
SELECT cardinality(fairq.complete_batch(ARRAY(SELECT id FROM fairq.pop('tally', 1))));
SELECT * FROM pg_temp.tally();

-- A due task counts as scheduled until a pop takes it.
SELECT fairq.enqueue('tally', 'due', '"l"', run_at => clock_timestamp() + '1 millisecond') > 0 AS enqueued;
SELECT pg_sleep(0.01);
SELECT * FROM pg_temp.tally();
SELECT pg_temp.pop(10) LIKE '%l%' AS due;
SELECT * FROM pg_temp.tally();

-- Tasks whose leases have expired are popped again, taken, returned, and failed
-- permanently.
SELECT count(fairq.extend(id, lease => '1 microsecond')) FROM fairq.tasks WHERE queue = 'tally' AND status = 'running';
SELECT * FROM pg_temp.tally();
SELECT pg_temp.pop(1, '1 microsecond') IS NOT NULL AS popped;
SELECT * FROM pg_temp.tally();
SELECT count(*) FROM fairq.take('tally', 1);
SELECT * FROM pg_temp.tally();
SELECT fairq.expire_leases('tally');
SELECT * FROM pg_temp.tally();

-- Cancel tasks that do not run, redrive failed ones, purge.
SELECT fairq.cancel(pg_temp.id('i'));
SELECT * FROM pg_temp.tally();
SELECT fairq.redrive('tally') > 0 AS redriven;
SELECT * FROM pg_temp.tally();
SELECT fairq.purge('tally', 'h');
SELECT * FROM pg_temp.tally();
SELECT fairq.purge('tally') > 0 AS purged;
SELECT * FROM pg_temp.tally();

-- A rolled back change does not count. Each part that is committed counts
-- once.
BEGIN;
SELECT count(fairq.enqueue('tally', 'g' || i, to_jsonb('t' || i))) FROM generate_series(1, 10) i;
SELECT count(*) FROM fairq.pop('tally', 3);
-- uncommitted changes of this transaction are not a fault
SELECT * FROM pg_temp.tally();
ROLLBACK;
SELECT * FROM pg_temp.tally();
BEGIN;
SELECT count(fairq.enqueue('tally', 'g' || i, to_jsonb('t' || i))) FROM generate_series(1, 10) i;
SAVEPOINT a;
SELECT count(*) FROM fairq.pop('tally', 3);
SAVEPOINT b;
SELECT count(*) FROM fairq.take('tally', 2);
ROLLBACK TO b;
SELECT count(*) FROM fairq.pop('tally', 1);
RELEASE a;
SAVEPOINT c;
SELECT fairq.purge('tally');
ROLLBACK TO c;
SELECT * FROM pg_temp.tally();
COMMIT;
SELECT * FROM pg_temp.tally();

-- After a change by SQL, a query of the view counts the tasks again.
UPDATE fairq.task SET payload = '2' WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'tally')
	AND payload = '"t1"';
SELECT * FROM pg_temp.tally();
-- A transaction that has already written counts the tasks again, and counts its
-- own rows only once.
SELECT fairq.reset_hints();
BEGIN;
SELECT fairq.enqueue('tally', 'g1') > 0 AS enqueued;
SELECT fairq.maintain('tally');
SAVEPOINT s;
SELECT count(*) FROM fairq.pop('tally');
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('tally');
ROLLBACK TO s;
SELECT count(*) FROM fairq.pop('tally');
COMMIT;
SELECT * FROM pg_temp.tally();
-- The tasks are also counted again after changes by SQL are rolled back.
BEGIN;
UPDATE fairq.task SET payload = '3' WHERE payload = '2';
-- the transaction's own UPDATE is not a fault
SELECT fairq.check_queue('tally');
ROLLBACK;
SELECT * FROM pg_temp.tally();

-- If a queue's row is deleted and restored, while its tasks stay, the numbers
-- are right.
CREATE TEMP TABLE kept AS SELECT * FROM fairq.queue WHERE name = 'tally';
SELECT fairq.create_queue('tally_other');
SELECT fairq.create_queue('tally_hints');
DELETE FROM fairq.queue WHERE name = 'tally';
SELECT fairq.reset_hints();
SELECT fairq.maintain('tally_other');
SELECT queued FROM fairq.stats WHERE queue = 'tally_other';
INSERT INTO fairq.queue OVERRIDING SYSTEM VALUE SELECT * FROM kept;
SELECT queued FROM fairq.stats WHERE queue = 'tally';
SELECT fairq.maintain('tally');
SELECT * FROM pg_temp.tally();

-- A new queue gets the hints of a dropped one.
SELECT fairq.drop_queue('tally', true);
SELECT fairq.create_queue('tally');
SELECT * FROM pg_temp.tally();
SELECT fairq.drop_queue('tally_other'), fairq.drop_queue('tally_hints'), fairq.drop_queue('tally');
