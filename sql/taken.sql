-- A taken task fails or is released in the same transaction. At the commit it
-- exists again, and only the failed attempt counts.
--
-- Fails if taken tasks are not recorded (fairq_taken_note() in taken.c). Fails
-- if a second fail() returns the task twice (fairq_taken_ended()). Fails if a
-- returned task has lost its key (fairq_run_again() in outcome.c). Fails if
-- maintain() deletes the task's group (fairq_taken_any()).
\a \pset footer off
\set VERBOSITY sqlstate

CREATE FUNCTION pg_temp.add(VARIADIC payloads text[]) RETURNS bigint
LANGUAGE sql AS $$ SELECT count(fairq.enqueue('taken', left(p, 1), to_jsonb(p))) FROM unnest(payloads) p $$;
CREATE FUNCTION pg_temp.take(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(format('%s/%s', payload #>> '{}', attempt), ' ') FROM fairq.take('taken', n) $$;
-- note() records the ids in advance, because no view shows a taken task
CREATE TEMP TABLE ids (task text PRIMARY KEY, id bigint);
CREATE FUNCTION pg_temp.note() RETURNS void
LANGUAGE sql AS $$
	INSERT INTO ids SELECT payload #>> '{}', id FROM fairq.tasks WHERE queue = 'taken' ON CONFLICT (task) DO UPDATE SET id = excluded.id
$$;
CREATE FUNCTION pg_temp.id(task text) RETURNS bigint
LANGUAGE sql AS $$ SELECT id FROM ids WHERE ids.task = $1 $$;
CREATE VIEW pg_temp.stand AS
	SELECT payload #>> '{}' AS task, status, addr IS NOT NULL AS at_a_turn, attempt, error, worker, popped_at IS NOT NULL AS popped,
		CASE WHEN run_at > clock_timestamp() THEN round(extract(epoch FROM run_at - clock_timestamp()) / 60) END AS minutes
	FROM fairq.tasks WHERE queue = 'taken' ORDER BY id;
CREATE FUNCTION pg_temp.forget() RETURNS void
LANGUAGE sql AS $$
	SELECT fairq.purge('taken');
	DELETE FROM fairq.archive WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'taken')
$$;

SELECT fairq.create_queue('taken', max_attempts => 3);
SELECT fairq.maintain('taken');

--
-- The failed task is back at the commit, and the other tasks are done
--

SELECT pg_temp.add('a1', 'b1', 'c1', 'd1'), pg_temp.note();
BEGIN;
SELECT pg_temp.take();
SELECT fairq.fail(pg_temp.id('a1'), 1, 'the API is down', retry_in => '5 min'), fairq.fail(pg_temp.id('b1'), 1, retry_in => '0'),
	fairq.release(pg_temp.id('c1'));
SELECT * FROM pg_temp.stand;
-- a second call for these tasks has no effect
SELECT fairq.fail(pg_temp.id('a1'), 1), fairq.release(pg_temp.id('b1')), fairq.release(pg_temp.id('c1'), 1);
-- a call with the number of another attempt, or with an unknown id, has no
-- effect
SELECT fairq.fail(pg_temp.id('d1'), 2), fairq.release(pg_temp.id('d1'), 0), fairq.fail(pg_temp.id('d1') + 1000000);
-- extend, complete and set_progress do not find a taken task
SELECT fairq.extend(pg_temp.id('d1')) IS NULL AS lost, fairq.complete(pg_temp.id('d1')), fairq.set_progress(pg_temp.id('d1'), 1, '1');
SELECT * FROM fairq.check_queue('taken');
COMMIT;
SELECT * FROM pg_temp.stand;
SELECT queued, scheduled, running, popped, completed, released, retried FROM fairq.stats WHERE queue = 'taken';
SELECT * FROM fairq.check_queue('taken');
SELECT pg_temp.take();
SELECT fairq.fail(pg_temp.id('b1')), fairq.release(pg_temp.id('c1'));
-- the tasks were taken in the previous transaction, so the calls find none
SELECT * FROM pg_temp.stand;
-- a returned task keeps the values of all columns
SELECT pg_temp.forget();
SELECT fairq.enqueue('taken', 'a', jsonb_build_object('long', repeat(md5('a'), 10000), 'n', (SELECT jsonb_agg(md5(i::text)) FROM generate_series(1, 1000) i)),
	3, NULL, 'key', 7, 5, '{"h": 1}', 'infinity', false, 'finished', '1 hour') AS id \gset
CREATE TEMP TABLE before AS SELECT * FROM fairq.task WHERE id = :id;
BEGIN;
SELECT id = :id AS ok, attempts_left FROM fairq.take('taken');
SELECT fairq.fail(:id, 1, 'e', retry_in => '0');
COMMIT;
SELECT key AS changed FROM before b, jsonb_each(to_jsonb(b)) JOIN (SELECT to_jsonb(t) AS now FROM fairq.task t WHERE id = :id) t
	ON now -> key <> value ORDER BY 1;
SELECT id = :id AS ok, attempt, attempts_left, length(payload ->> 'long') AS long, headers, priority FROM fairq.take('taken');

--
-- The last attempt of a taken task
--

SELECT pg_temp.forget(), pg_temp.add('a1', 'a2'), pg_temp.note();
SELECT fairq.fail(id, attempt, retry_in => '0') FROM fairq.take('taken', 1);
SELECT fairq.fail(id, attempt, 'e', retry_in => '0') FROM fairq.pop('taken', 1, worker => 'w');
BEGIN;
SELECT pg_temp.take();
SELECT fairq.fail(pg_temp.id('a1')), fairq.fail(pg_temp.id('a2'), 1, 'never', dead => true), fairq.fail(pg_temp.id('a1')), fairq.release(pg_temp.id('a2'));
COMMIT;
SELECT * FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('taken');

--
-- Batches
--

SELECT pg_temp.forget(), pg_temp.add('a1', 'b1', 'c1', 'd1', 'e1'), pg_temp.note();
BEGIN;
SELECT pg_temp.take(4);
SELECT array_agg(task ORDER BY n) AS lost FROM unnest(fairq.fail_batch(ARRAY[pg_temp.id('a1'), pg_temp.id('b1'), pg_temp.id('e1'), pg_temp.id('a1')],
	'{1,2,1,1}', retry_in => '0')) WITH ORDINALITY f (id, n) JOIN ids USING (id);
SELECT array_agg(task ORDER BY n) AS lost FROM unnest(fairq.release_batch(ARRAY[pg_temp.id('d1'), pg_temp.id('a1'), pg_temp.id('c1')])) WITH ORDINALITY f (id, n) JOIN ids USING (id);
SELECT array_agg(task ORDER BY n) AS lost FROM unnest(fairq.extend_batch(ARRAY[pg_temp.id('b1')])) WITH ORDINALITY f (id, n) JOIN ids USING (id);
COMMIT;
SELECT * FROM pg_temp.stand;

--
-- Savepoints
--

SELECT pg_temp.forget(), pg_temp.add('a1', 'b1', 'c1'), pg_temp.note();
BEGIN;
SELECT pg_temp.take();
-- fail and release are rolled back to a savepoint, and then called again
SAVEPOINT work;
SELECT fairq.fail(pg_temp.id('a1')), fairq.release(pg_temp.id('b1'));
ROLLBACK TO work;
SELECT fairq.fail(pg_temp.id('a1'), 1, 'e', retry_in => '0'), fairq.release(pg_temp.id('b1'), 1);
SAVEPOINT more;
SELECT fairq.fail(pg_temp.id('c1'), 1, 'e2', retry_in => '0');
RELEASE more;
SELECT fairq.fail(pg_temp.id('c1'), 1, 'e3');
-- the returned tasks can be taken again, and returned again
SELECT pg_temp.take();
SAVEPOINT again;
SELECT fairq.release(pg_temp.id('a1'), 2), fairq.fail(pg_temp.id('c1'), 1, 'of the first');
ROLLBACK TO again;
SELECT fairq.release(pg_temp.id('c1'), 2);
COMMIT;
SELECT * FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('taken');
-- a task is no longer taken once a rollback to a savepoint undoes its take
SELECT pg_temp.forget(), pg_temp.add('a1', 'b1'), pg_temp.note();
BEGIN;
SAVEPOINT one;
SELECT pg_temp.take();
SELECT fairq.release(pg_temp.id('b1'));
ROLLBACK TO one;
SELECT fairq.fail(pg_temp.id('a1')), fairq.release(pg_temp.id('b1'));
SELECT fairq.cancel(pg_temp.id('a1'));
SELECT fairq.fail(pg_temp.id('a1')), fairq.release(pg_temp.id('a1'));
SELECT pg_temp.take();
SELECT fairq.release(pg_temp.id('b1'), 1);
COMMIT;
SELECT * FROM pg_temp.stand;
-- a release that is rolled back has no effect
BEGIN;
SELECT pg_temp.take();
SELECT fairq.release(pg_temp.id('b1'));
ROLLBACK;
SELECT * FROM pg_temp.stand;
SELECT queued, scheduled, running FROM fairq.stats WHERE queue = 'taken';
SELECT * FROM fairq.check_queue('taken');

--
-- Keys
--

SELECT pg_temp.forget();
SELECT fairq.enqueue('taken', 'a', '"a1"', dedup_key => 'until_finished', dedup_for => '1 hour') > 0,
	fairq.enqueue('taken', 'a', '"a2"', dedup_key => 'until_started', dedup_until => 'started') > 0,
	fairq.enqueue('taken', 'a', '"a3"', dedup_key => 'given_away') > 0, pg_temp.note();
BEGIN;
SELECT pg_temp.take();
SELECT fairq.enqueue('taken', 'a', '"a4"', dedup_key => 'given_away') <> pg_temp.id('a3') AS another;
SELECT fairq.fail(id, retry_in => '0') FROM ids WHERE task IN ('a1', 'a2', 'a3') ORDER BY task;
COMMIT;
SELECT task, status, attempt FROM pg_temp.stand;
SELECT fairq.find('taken', 'until_finished') = pg_temp.id('a1') AS a1, fairq.find('taken', 'until_started') IS NULL AS none,
	fairq.find('taken', 'given_away') <> pg_temp.id('a3') AS a4;
SELECT * FROM fairq.check_queue('taken');
SELECT pg_temp.take();
SELECT fairq.enqueue('taken', 'a', dedup_key => 'until_finished') = pg_temp.id('a1') AS held;

--
-- Limits, order, cost-fair and time-fair queues
--

SELECT pg_temp.forget(), fairq.alter_queue('taken', concurrency => 1, in_order => true);
SELECT pg_temp.add('a1', 'a2', 'b1'), pg_temp.note();
BEGIN;
SELECT pg_temp.take();
SELECT fairq.fail(pg_temp.id('a1'), retry_in => '0'), fairq.release(pg_temp.id('b1'));
-- the slots of returned tasks stay in use until the commit
SELECT pg_temp.take();
COMMIT;
SELECT * FROM fairq.check_queue('taken');
SELECT pg_temp.take();
SELECT pg_temp.take();
SELECT pg_temp.forget(), fairq.alter_queue('taken', concurrency => 0, in_order => false, fair_by => 'time', max_running => 2);
SELECT pg_temp.add('a1', 'a2', 'b1'), pg_temp.note();
BEGIN;
SELECT pg_temp.take();
SELECT fairq.fail(pg_temp.id('a1'), retry_in => '0'), fairq.release(pg_temp.id('b1'), delay => '1 hour');
COMMIT;
SELECT * FROM pg_temp.stand;
SELECT pg_temp.take();
SELECT * FROM fairq.check_queue('taken');
-- maintain keeps a group whose only task is taken
SELECT pg_temp.forget(), pg_temp.add('z1'), pg_temp.note();
DO $$ BEGIN
	PERFORM pg_temp.take();
	PERFORM fairq.maintain('taken');
	PERFORM fairq.release(pg_temp.id('z1'));
END $$;
SELECT pg_temp.add('y1');
SELECT * FROM pg_temp.stand;
SELECT group_key, payload FROM fairq.take('taken', 10) ORDER BY 1;
SELECT * FROM fairq.check_queue('taken');
-- the call fails if rows were moved or truncated, since it does not find them;
-- no task is lost
SELECT pg_temp.forget(), pg_temp.add('x1'), pg_temp.note();
BEGIN;
SELECT pg_temp.take();
TRUNCATE fairq.task;
SELECT fairq.fail(pg_temp.id('x1'));
ROLLBACK;
BEGIN;
SELECT pg_temp.take();
CLUSTER fairq.task USING task_by_group;
SELECT fairq.release(pg_temp.id('x1'));
ROLLBACK;
BEGIN;
SELECT pg_temp.take();
SAVEPOINT s;
CLUSTER fairq.task USING task_by_group;
ROLLBACK TO s;
SELECT fairq.release(pg_temp.id('x1'));
COMMIT;
SELECT pg_temp.take();
-- many tasks are taken and returned many times
SELECT pg_temp.forget(), fairq.alter_queue('taken', max_running => 0, fair_by => 'tasks', max_attempts => 100);
SELECT count(fairq.enqueue('taken', (i % 7)::text)) FROM generate_series(1, 2000) i;
BEGIN;
CREATE TEMP TABLE hand AS SELECT id, attempt FROM fairq.take('taken', 5000);
SELECT fairq.release_batch(array_agg(id), array_agg(attempt)) FROM hand;
SELECT count(*) FROM fairq.take('taken', 5000) WHERE attempt = 2;
SELECT fairq.fail_batch(array_agg(id), retry_in => '0') FROM hand;
SELECT count(*) FROM fairq.take('taken', 1000) WHERE attempt = 3;
COMMIT;
SELECT count(*), min(attempt), max(attempt) FROM fairq.tasks WHERE queue = 'taken';
SELECT * FROM fairq.check_queue('taken');
SELECT fairq.drop_queue('taken', true);
