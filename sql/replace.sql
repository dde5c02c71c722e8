-- The last enqueue with a key determines the task's contents, and the first
-- enqueue determines its turn.
--
-- Fails if a replaced task is not published at the commit (publish_again() in
-- outcome.c). Fails if a task that waits for a retry runs at once, or if a
-- blocked task leaves its place (replace_locked() in enqueue.c).
\a \pset footer off
\set VERBOSITY sqlstate

CREATE FUNCTION pg_temp.put(payload text, key text, run_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL)
	RETURNS boolean
LANGUAGE sql AS $$
	SELECT added FROM fairq.enqueue_or_find('replace', left($1, 1), to_jsonb($1), run_at => $3, dedup_key => $2, headers => $4, replace => true)
$$;
CREATE FUNCTION pg_temp.pop(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(format('%s/%s', payload #>> '{}', attempt), ' ') FROM fairq.pop('replace', n) $$;
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$ SELECT id FROM fairq.tasks WHERE queue = 'replace' AND payload = to_jsonb($1) $$;
CREATE VIEW pg_temp.stand AS
	SELECT payload #>> '{}' AS task, headers, status, addr IS NOT NULL AS at_a_turn, attempt, error,
		CASE WHEN isfinite(run_at) THEN round(extract(epoch FROM run_at - clock_timestamp()) / 60) END AS minutes
	FROM fairq.tasks WHERE queue = 'replace' ORDER BY id;

SELECT fairq.create_queue('replace');
SELECT fairq.maintain('replace');

--
-- A ready task keeps its turn
--

SELECT pg_temp.put('a1', 'x', headers => '1'), pg_temp.put('b1', 'y'), pg_temp.put('a2', NULL);
SELECT id AS id, addr AS addr, enqueued_at AS at FROM fairq.tasks WHERE id = pg_temp.id('a1') \gset
SELECT pg_temp.put('a3', 'x', headers => '{"n": 3}'), pg_temp.put('b2', 'y');
SELECT * FROM pg_temp.stand;
SELECT pg_temp.put('a4', 'x');
SELECT id = :id AS id, addr = :addr AS addr, enqueued_at = :'at' AS at, headers FROM fairq.tasks WHERE id = pg_temp.id('a4');
-- the other arguments do not change the task: group, priority, attempts, cost
SELECT fairq.enqueue('replace', 'other', '"a5"', 9, NULL, 'x', 1, 7, replace => true) = :id AS the_same;
SELECT group_key, priority, max_attempts, cost FROM fairq.tasks WHERE id = :id;
SELECT fairq.enqueue('replace', 'a', '"not this"', dedup_key => 'x') = :id AS the_same;
SELECT queued, scheduled, running FROM fairq.stats WHERE queue = 'replace';
SELECT * FROM fairq.check_queue('replace');
SELECT pg_temp.pop();
-- a running task does not change
SELECT pg_temp.put('a6', 'x'), fairq.find('replace', 'x') = :id AS the_same;
SELECT * FROM pg_temp.stand;
SELECT locktype, mode FROM pg_locks WHERE relation = 'fairq.task'::regclass AND pid = pg_backend_pid();
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'replace';
SELECT pg_temp.put('a7', 'x'), pg_temp.pop(), fairq.complete(fairq.find('replace', 'x'));
-- without replace, or without a key, no task changes
SELECT pg_temp.put('a8', NULL), pg_temp.put('a8', NULL), fairq.purge('replace');

--
-- A replaced task that is scheduled gets another time, or becomes ready
--

SELECT pg_temp.put('c1', 'z', now() + interval '1 hour');
SELECT pg_temp.put('c2', 'z', now() + interval '2 hours');
SELECT * FROM pg_temp.stand;
SELECT pg_temp.pop();
SELECT pg_temp.put('c3', 'z', now() + interval '30 minutes'), pg_temp.put('c4', 'z', now() + interval '30 minutes');
SELECT * FROM pg_temp.stand;
SELECT pg_temp.put('c5', 'z');
SELECT * FROM pg_temp.stand;
SELECT pg_temp.put('c6', 'z', 'infinity');
SELECT * FROM pg_temp.stand;
SELECT queued, scheduled, running FROM fairq.stats WHERE queue = 'replace';
SELECT pg_temp.put('c7', 'z', '-infinity');
SELECT * FROM fairq.check_queue('replace');
SELECT pg_temp.pop();
-- a debounce: each event postpones the task
SELECT pg_temp.put('d' || i, 'd', clock_timestamp() + interval '100 ms') FROM generate_series(1, 20) i;
SELECT pg_temp.pop();
CALL fairq.wait('replace', '5 seconds');
SELECT pg_temp.pop();

--
-- A task that waits for a retry keeps its attempts, and keeps its time unless
-- the call gives another one
--

SELECT fairq.fail(pg_temp.id('c7'), retry_in => '1 hour', error => 'why');
SELECT pg_temp.put('c8', 'z');
SELECT * FROM pg_temp.stand;
SELECT pg_temp.put('c9', 'z', now() + interval '2 hours');
SELECT * FROM pg_temp.stand;
SELECT pg_temp.put('c0', 'z', now());
SELECT * FROM fairq.check_queue('replace');
SELECT pg_temp.pop();
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'replace';

--
-- A blocked task stays blocked, and gets no time
--

SELECT pg_temp.put('h1', NULL);
SELECT fairq.enqueue('replace', 'i', '"i1"', dedup_key => 'i', after => ARRAY[pg_temp.id('h1')]) = pg_temp.id('i1') AS ok;
SELECT pg_temp.put('i2', 'i');
SELECT pg_temp.put('i3', 'i', now());
SELECT fairq.enqueue('replace', 'i', '"i4"', dedup_key => 'i', delay => '1 hour', replace => true);
SELECT task, status, at_a_turn FROM pg_temp.stand;
SELECT queued, scheduled, running FROM fairq.stats WHERE queue = 'replace';
SELECT * FROM fairq.check_queue('replace');
SELECT pg_temp.pop();
SELECT fairq.complete(pg_temp.id('h1'));
SELECT pg_temp.pop(), fairq.complete(pg_temp.id('i2'));

--
-- Transactions, and large tasks
--

SELECT pg_temp.put('e1', 'e'), pg_temp.put('f1', 'f');
BEGIN;
SELECT pg_temp.put('e2', 'e'), pg_temp.put('e3', 'e'), pg_temp.pop(1);
ROLLBACK;
SELECT * FROM pg_temp.stand;
BEGIN;
SELECT pg_temp.put('e4', 'e'), pg_temp.put('g1', 'g'), pg_temp.put('g2', 'g');
SAVEPOINT s;
SELECT pg_temp.put('e5', 'e', 'infinity'), pg_temp.put('g3', 'g'), fairq.cancel(fairq.find('replace', 'f')), pg_temp.put('f2', 'f');
ROLLBACK TO s;
COMMIT;
SELECT * FROM pg_temp.stand;
SELECT fairq.enqueue('replace', 'e', jsonb_build_object('h', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 4000) i)),
	headers => jsonb_build_object('h', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 4000) i)), dedup_key => 'e', replace => true) = fairq.find('replace', 'e') AS the_same;
SELECT * FROM fairq.check_queue('replace');
SELECT count(*), max(length(payload->>'h')), max(length(headers->>'h')) FROM fairq.pop('replace', 10);
SELECT fairq.enqueue('replace', 'e', replace => NULL, dedup_key => 'e') = fairq.find('replace', 'e') AS the_same;
-- tasks are replaced in cost-fair and time-fair queues, too
SELECT fairq.create_queue('replace_' || f, fair_by => f) FROM unnest('{cost,time}'::text[]) f;
SELECT count(fairq.enqueue('replace_' || f, 'a', to_jsonb(n), dedup_key => 'k', replace => true)) FROM unnest('{cost,time}'::text[]) f, generate_series(1, 3) n;
SELECT payload FROM unnest('{cost,time}'::text[]) f, fairq.pop('replace_' || f, 2);
SELECT fairq.drop_queue('replace_' || f, true) FROM unnest('{cost,time}'::text[]) f;
SELECT fairq.drop_queue('replace', true);
