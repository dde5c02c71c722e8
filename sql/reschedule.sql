-- Tasks that are not running get another time.
--
-- Fails if a retried task becomes a scheduled one (address_again() in
-- outcome.c). Fails if a moved task is not published, or its old place is not
-- published at an abort (reschedule_task()).
\a \pset footer off
\set VERBOSITY sqlstate

CREATE FUNCTION pg_temp.add(VARIADIC payloads text[]) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue('reschedule', left(p, 1), to_jsonb(p))) FROM unnest(payloads) p
$$;
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$ SELECT id FROM fairq.tasks WHERE queue = 'reschedule' AND payload = to_jsonb($1) $$;
CREATE FUNCTION pg_temp.to(payload text, run_at timestamptz) RETURNS boolean
LANGUAGE sql AS $$ SELECT fairq.reschedule(pg_temp.id($1), $2) $$;
CREATE FUNCTION pg_temp.pop(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(format('%s/%s', payload #>> '{}', attempt), ' ') FROM fairq.pop('reschedule', n) $$;
CREATE VIEW pg_temp.stand AS
	SELECT payload, status, addr IS NOT NULL AS at_a_turn,
		CASE WHEN isfinite(run_at) THEN round(extract(epoch FROM run_at - clock_timestamp()) / 60) END AS minutes
	FROM fairq.tasks WHERE queue = 'reschedule' ORDER BY id;
-- the counts of tasks, which each commit updates
CREATE VIEW pg_temp.counts AS
	SELECT s.queued, s.scheduled, s.running
	FROM fairq.stats s JOIN fairq.queues q USING (queue) WHERE queue = 'reschedule';

SELECT fairq.create_queue('reschedule');
SELECT fairq.maintain('reschedule');

--
-- A ready task is postponed; a scheduled one runs earlier, later, or now
--

SELECT pg_temp.add('a1', 'a2', 'a3', 'b1');
SELECT pg_temp.to('a1', now() + interval '1 hour'), pg_temp.to('b1', 'infinity');
SELECT * FROM pg_temp.stand;
SELECT * FROM pg_temp.counts;
SELECT * FROM fairq.check_queue('reschedule');
SELECT pg_temp.pop(1);
SELECT pg_temp.to('a1', now() + interval '2 hours'), pg_temp.to('b1', now() + interval '30 minutes');
SELECT * FROM pg_temp.stand;
SELECT fairq.reschedule(pg_temp.id('a1')), pg_temp.to('b1', '-infinity');
SELECT * FROM pg_temp.stand;
SELECT * FROM pg_temp.counts;
SELECT * FROM fairq.check_queue('reschedule');
-- a1 is now behind the other tasks of its group
SELECT pg_temp.pop();
SELECT fairq.complete_batch(array_agg(id)) IS NOT NULL AS done FROM fairq.tasks WHERE queue = 'reschedule';
-- wait() returns once a task that was postponed by a moment is due
SELECT pg_temp.add('c1');
SELECT pg_temp.to('c1', clock_timestamp() + interval '200 ms');
SELECT pg_temp.pop();
CALL fairq.wait('reschedule', '5 seconds');
SELECT pg_temp.pop();
SELECT fairq.complete(pg_temp.id('c1'));
-- NULL means now; a ready task keeps its turn and its time
SELECT pg_temp.add('d1', 'd2');
SELECT addr AS before, run_at FROM fairq.tasks WHERE id = pg_temp.id('d1') \gset
SELECT fairq.reschedule(pg_temp.id('d1'), NULL), fairq.reschedule(pg_temp.id('d1')), pg_temp.to('d1', now() - interval '1 day');
SELECT addr = :before AS kept, run_at FROM fairq.tasks WHERE id = pg_temp.id('d1');
SELECT pg_temp.pop();

--
-- A task that waits for a retry still comes before the others of its group
--

SELECT pg_temp.add('d3');
SELECT fairq.fail(pg_temp.id('d2'), retry_in => '1 hour', error => 'why');
SELECT * FROM pg_temp.stand;
SELECT pg_temp.pop(1);
SELECT pg_temp.add('d4');
SELECT pg_temp.to('d2', now() + interval '2 hours');
SELECT * FROM pg_temp.stand;
SELECT fairq.reschedule(pg_temp.id('d2'));
SELECT status, error FROM fairq.tasks WHERE id = pg_temp.id('d2');
SELECT * FROM pg_temp.counts;
SELECT * FROM fairq.check_queue('reschedule');
SELECT pg_temp.pop(1), pg_temp.pop(1);
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'reschedule';
-- in an in_order queue, a retry that runs now makes the group ready
SELECT fairq.alter_queue('reschedule', concurrency => 1, in_order => true);
SELECT pg_temp.add('e1', 'e2');
SELECT pg_temp.pop();
SELECT fairq.fail(pg_temp.id('e1'), retry_in => '1 hour'), pg_temp.pop();
SELECT fairq.reschedule(pg_temp.id('e1'));
SELECT pg_temp.pop(), pg_temp.pop();
SELECT fairq.fail(pg_temp.id('e1'), retry_in => '1 hour'), pg_temp.pop();
SELECT pg_temp.to('e1', clock_timestamp() + interval '100 ms');
CALL fairq.wait('reschedule', '5 seconds');
SELECT pg_temp.pop(), pg_temp.pop();
SELECT fairq.complete(pg_temp.id('e1'));
SELECT pg_temp.pop();
SELECT fairq.complete(pg_temp.id('e2'));
SELECT fairq.alter_queue('reschedule', concurrency => 0, in_order => false);

--
-- Transactions
--

SELECT pg_temp.add('f1', 'f2');
BEGIN;
SELECT pg_temp.to('f1', 'infinity'), pg_temp.pop(1);
SELECT fairq.reschedule(pg_temp.id('f1')), pg_temp.pop(1);
ROLLBACK;
SELECT pg_temp.pop();
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'reschedule';
SELECT pg_temp.add('g1', 'g2');
BEGIN;
SELECT pg_temp.add('g3');
SELECT pg_temp.to('g3', 'infinity'), pg_temp.to('g2', 'infinity');
SAVEPOINT s;
SELECT pg_temp.to('g1', 'infinity'), fairq.reschedule(pg_temp.id('g3')), fairq.reschedule(pg_temp.id('g3'), 'infinity');
ROLLBACK TO s;
COMMIT;
SELECT * FROM pg_temp.stand;
SELECT * FROM pg_temp.counts;
SELECT * FROM fairq.check_queue('reschedule');
SELECT fairq.reschedule(pg_temp.id('g3')), fairq.reschedule(pg_temp.id('g2'));
SELECT pg_temp.pop();

--
-- Running, finished and unknown tasks do not change
--

SELECT pg_temp.to('g1', 'infinity') AS running, fairq.reschedule(-1) AS unknown, fairq.reschedule(NULL) AS nobody;
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'reschedule';
SELECT pg_temp.to('g1', 'infinity') AS finished;
SELECT locktype, mode FROM pg_locks WHERE relation = 'fairq.task'::regclass AND pid = pg_backend_pid();
BEGIN READ ONLY;
SELECT fairq.reschedule(1);
COMMIT;
-- a dedup_key and all other values stay
SELECT fairq.enqueue('reschedule', 'h', '"h1"', 3, 'infinity', 'k', 7, 2, '{"x": 1}') AS h1 \gset
SELECT fairq.reschedule(:h1), fairq.find('reschedule', 'k') = :h1 AS found;
SELECT priority, payload, max_attempts, cost, headers, dedup_key FROM fairq.task WHERE id = :h1;
SELECT pg_temp.pop();
-- reschedule also works in cost-fair and time-fair queues
SELECT fairq.create_queue('reschedule_' || f, fair_by => f) FROM unnest('{cost,time}'::text[]) f;
SELECT count(fairq.reschedule(fairq.enqueue('reschedule_' || f, 'a', run_at => 'infinity'))) FROM unnest('{cost,time}'::text[]) f;
SELECT count(*) FROM unnest('{cost,time}'::text[]) f, fairq.pop('reschedule_' || f, 2);
SELECT fairq.check_queue('reschedule_' || f) FROM unnest('{cost,time}'::text[]) f;
SELECT fairq.drop_queue('reschedule_' || f, true) FROM unnest('{cost,time}'::text[]) f;
SELECT fairq.drop_queue('reschedule', true);
