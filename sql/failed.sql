-- Tasks that have failed permanently: they are redriven one by one, deleted, or
-- kept for some time.
--
-- Fails if any role can redrive a task (find_failed() in maintain.c). Fails if
-- maintain() applies the setting retain to failed tasks (maintain_tasks()).
-- Fails if the archive loses released attempts (archive_task() in outcome.c).
-- Fails if a redrive decompresses a task's values (redrive_task()).
\a \pset footer off
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_fairq_failed;	-- if an interrupted run left it
RESET client_min_messages;
\set VERBOSITY sqlstate

CREATE FUNCTION pg_temp.fail(VARIADIC payloads text[]) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue('failed', left(p, 1), to_jsonb(p))) FROM unnest(payloads) p;
	SELECT count(fairq.fail(id, attempt, 'e')) FROM fairq.pop('failed', 100)
$$;
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$ SELECT id FROM fairq.tasks WHERE queue = 'failed' AND payload = to_jsonb($1) $$;
CREATE VIEW pg_temp.stand AS
	SELECT payload #>> '{}' AS task, status, attempt, error FROM fairq.tasks WHERE queue = 'failed' ORDER BY id;
-- Time passes.
CREATE FUNCTION pg_temp.later(by interval, tasks text DEFAULT '%') RETURNS void
LANGUAGE sql AS $$ UPDATE fairq.archive SET finished_at = finished_at - by WHERE payload #>> '{}' LIKE tasks $$;

SELECT fairq.create_queue('failed', max_attempts => 1, retain => '1 hour');
SELECT pg_temp.fail('a1', 'a2', 'b1', 'b2', 'c1');

--
-- pop shows the attempts used and left; after a redrive the attempt number
-- continues
--

SELECT fairq.create_queue('failed_attempts', max_attempts => 3, retain => '1 hour', concurrency => 1, in_order => true);
CREATE VIEW pg_temp.attempts AS
	SELECT payload, status, attempt, max_attempts AS most, attempts_used AS used, attempts_left AS "left", lapses
	FROM fairq.tasks WHERE queue = 'failed_attempts' ORDER BY id;
CREATE FUNCTION pg_temp.claim() RETURNS TABLE (payload jsonb, attempt int, attempts_left int)
LANGUAGE sql AS $$ SELECT payload, attempt, attempts_left FROM fairq.pop('failed_attempts') $$;
SELECT count(fairq.enqueue('failed_attempts', 'g', to_jsonb(n), max_attempts => n)) FROM generate_series(2, 3) n;
SELECT id AS first FROM fairq.tasks WHERE queue = 'failed_attempts' AND payload = '2' \gset
SELECT * FROM pg_temp.attempts;
SELECT * FROM pg_temp.claim();
SELECT * FROM pg_temp.attempts;
SELECT fairq.release(:first, 1);
SELECT * FROM pg_temp.attempts;
SELECT * FROM pg_temp.claim();
SELECT id AS second FROM fairq.tasks WHERE queue = 'failed_attempts' AND payload = '3' \gset
SELECT fairq.complete(:second, 1);
SELECT * FROM pg_temp.claim();
SELECT fairq.fail(:first, 2, retry_in => '0');
SELECT * FROM pg_temp.attempts;
SELECT * FROM pg_temp.claim();
SELECT * FROM pg_temp.attempts;
SELECT fairq.fail(:first, 3);
SELECT * FROM pg_temp.attempts;
-- a redriven task comes behind tasks that were enqueued later, even in an
-- in_order queue
SELECT fairq.enqueue('failed_attempts', 'g', '4') > 0 AS ok;
SELECT fairq.redrive(:first);
SELECT * FROM pg_temp.attempts;
SELECT * FROM pg_temp.claim();
SELECT fairq.complete(id, attempt) FROM fairq.tasks WHERE queue = 'failed_attempts' AND status = 'running';
SELECT * FROM pg_temp.claim();
SELECT * FROM pg_temp.attempts;
-- a task that fails with dead => true has attempts left that it never uses
SELECT fairq.fail(:first, 4, dead => true);
SELECT * FROM pg_temp.attempts;
SELECT released FROM fairq.archive WHERE id = :first;
-- if max_attempts is lowered below the attempts made, attempts_left is 0, and not
-- negative
SELECT fairq.redrive(:first), fairq.alter_queue('failed_attempts', max_attempts => 1);
SELECT fairq.enqueue('failed_attempts', 'h') > 0 AS ok;
UPDATE fairq.task SET attempt = 4, released = 1 WHERE payload = '{}' AND queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'failed_attempts');
SELECT * FROM pg_temp.attempts WHERE payload = '{}';
SELECT * FROM fairq.check_queue('failed_attempts');
SELECT fairq.drop_queue('failed_attempts', true);

--
-- One task
--

SELECT fairq.redrive(pg_temp.id('a2')), fairq.redrive(pg_temp.id('a2')), fairq.redrive(NULL::bigint), fairq.redrive(-1);
SELECT * FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('failed');
-- a redriven task has all of its attempts again, and its attempt number
-- increases
SELECT payload, attempt, attempts_left FROM fairq.pop('failed');
SELECT fairq.redrive(pg_temp.id('a2')), fairq.complete(pg_temp.id('a2'), 1), fairq.complete(pg_temp.id('a2'), 2);
-- redrive returns false for a completed task
SELECT fairq.redrive(pg_temp.id('a2'));
-- a task is not redriven while another task has its key
SELECT fairq.enqueue('failed', 'k', '"k1"', dedup_key => 'k') > 0 AS ok;
SELECT fairq.fail(id, attempt) FROM fairq.pop('failed');
SELECT fairq.enqueue('failed', 'k', '"k2"', dedup_key => 'k') > 0 AS ok;
SELECT fairq.redrive(pg_temp.id('k1')), fairq.cancel(pg_temp.id('k2')), fairq.redrive(pg_temp.id('k1'));
SELECT payload FROM fairq.take('failed');
-- redrive and purge_failed require the privilege manage
CREATE ROLE regress_fairq_failed;
SELECT id FROM fairq.tasks WHERE id = pg_temp.id('a1') \gset
SELECT fairq.grant_queue('failed', 'regress_fairq_failed', 'work');
SET ROLE regress_fairq_failed;
SELECT fairq.redrive(:id);
SELECT fairq.purge_failed('failed');
RESET ROLE;
SELECT fairq.grant_queue('failed', 'regress_fairq_failed', 'manage');
SET ROLE regress_fairq_failed;
SELECT fairq.redrive(:id), fairq.purge_failed('failed', 'c');
RESET ROLE;
SELECT fairq.revoke_queue('failed', 'regress_fairq_failed', privilege) FROM unnest('{work,manage}'::text[]) privilege;
DROP ROLE regress_fairq_failed;
SELECT * FROM pg_temp.stand;
BEGIN READ ONLY;
SELECT fairq.redrive(1);
ROLLBACK;
BEGIN READ ONLY;
SELECT fairq.purge_failed('failed');
ROLLBACK;

--
-- Deletion of failed tasks
--

SELECT fairq.purge('failed'), fairq.purge_failed('failed');
SELECT pg_temp.fail('a1', 'a2', 'b1', 'b2', 'c1'), pg_temp.later('1 day', 'a%');
SELECT fairq.purge_failed('failed', 'b', '12 hours'), fairq.purge_failed('failed', older_than => '12 hours');
SELECT * FROM pg_temp.stand;
SELECT fairq.purge_failed('failed', 'b', NULL), fairq.purge_failed('failed', 'b');
-- a group has only failed tasks
SELECT fairq.maintain('failed');
SELECT count(*) FROM fairq.groups WHERE queue = 'failed';
SELECT fairq.purge_failed('failed', 'c', '1 hour'), fairq.purge_failed('failed', 'c');
SELECT fairq.purge_failed('failed', 'c');
SELECT fairq.purge_failed('nowhere');
SELECT fairq.purge_failed(NULL);
SELECT fairq.purge_failed('failed', older_than => '-1 second');
SELECT fairq.purge_failed('failed', older_than => '200 years');
-- purge_failed deletes only failed tasks
SELECT pg_temp.fail('a1'), fairq.enqueue('failed', 'a', '"a2"') > 0, fairq.enqueue('failed', 'a', '"a3"') > 0,
	fairq.enqueue('failed', 'a', '"a4"') > 0 AS ok;
SELECT fairq.complete(id) FROM fairq.pop('failed');
SELECT fairq.cancel(pg_temp.id('a3'));
SELECT fairq.purge_failed('failed');
SELECT * FROM pg_temp.stand;

-- A redrive copies values as they are stored, because several large values together would
-- not fit. Here the table does not compress, so a value of 100 kB would take 100 kB if it
-- were stored anew.
SELECT fairq.enqueue('failed', 'large', to_jsonb(repeat('p', 100000)), headers => to_jsonb(repeat('h', 100000)), dedup_key => 'large') AS large \gset
SELECT fairq.fail(id, attempt, repeat('e', 100000), dead => true) FROM fairq.pop('failed') WHERE id = :large;
BEGIN;
ALTER TABLE fairq.task ALTER payload SET STORAGE EXTERNAL, ALTER headers SET STORAGE EXTERNAL, ALTER error SET STORAGE EXTERNAL;
SELECT fairq.redrive('failed', 'large');
SELECT pg_column_size(payload) < 10000 AS payload, pg_column_size(headers) < 10000 AS headers, pg_column_size(error) < 10000 AS error
FROM fairq.task WHERE id = :large;
SELECT payload = to_jsonb(repeat('p', 100000)) AS payload, headers = to_jsonb(repeat('h', 100000)) AS headers,
	error = repeat('e', 100000) AS error
FROM fairq.tasks WHERE id = :large;
ROLLBACK;
SELECT fairq.redrive(:large);
VACUUM fairq.archive;
SELECT payload = to_jsonb(repeat('p', 100000)) AS payload, headers = to_jsonb(repeat('h', 100000)) AS headers,
	error = repeat('e', 100000) AS error, fairq.find('failed', 'large') = id AS found
FROM fairq.tasks WHERE id = :large;
SELECT * FROM fairq.check_queue('failed');

--
-- retain_failed keeps failed tasks for some time
--

SELECT fairq.purge('failed');
SELECT queue, retain, retain_failed FROM fairq.queues WHERE queue = 'failed';
SELECT pg_temp.fail('b1', 'b2'), pg_temp.later('2 hours');
-- without retain_failed, failed tasks are kept until they are redriven or
-- purged
SELECT fairq.maintain('failed');
SELECT * FROM pg_temp.stand;
SELECT fairq.alter_queue('failed', retain_failed => '1 day');
SELECT fairq.alter_queue('failed', retain => NULL);
SELECT queue, retain, retain_failed FROM fairq.queues WHERE queue = 'failed';
SELECT fairq.maintain('failed'), pg_temp.later('1 day', 'b1');
SELECT * FROM pg_temp.stand;
SELECT fairq.maintain('failed');
SELECT * FROM pg_temp.stand;
SELECT fairq.alter_queue('failed', retain_failed => '0'), pg_temp.later('1 year');
SELECT fairq.maintain('failed');
SELECT task FROM pg_temp.stand;
SELECT fairq.alter_queue('failed', retain_failed => '-1 second');
SELECT fairq.create_queue('failed_other', retain_failed => '-1 second');
SELECT fairq.create_queue('failed_other', retain_failed => '0');
SELECT fairq.create_queue('failed_third', retain_failed => '1 week');
SELECT queue, retain_failed FROM fairq.queues WHERE queue LIKE 'failed%' ORDER BY 1;
SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue LIKE 'failed%';
