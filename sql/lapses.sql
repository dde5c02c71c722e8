-- Attempts that end since their lease expires, which may be since the task kills its
-- workers: they are counted, for fairq.claim and the views.
--
-- Broken on purpose to see it fail: the claim that takes a task over does not count
-- (fairq_take_over() in claim.c); nor does the end of a lease by expire_leases()
-- (fairq_expire() in outcome.c); a task that was taken forgets it (fairq_taken_find()
-- in taken.c).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS fairq;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- What a pop serves, in its order, each with its attempt and its lapses.
CREATE FUNCTION pg_temp.pop(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(format('%s/%s/%s', payload #>> '{}', attempt, lapses), ' ') FROM fairq.pop('lapses', n)
$$;

CREATE FUNCTION pg_temp.take(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(format('%s/%s/%s', payload #>> '{}', attempt, lapses), ' ') FROM fairq.take('lapses', n)
$$;

CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT id FROM fairq.tasks t WHERE t.queue = 'lapses' AND t.payload = to_jsonb(id.payload)
$$;

-- The leases of all running tasks, or of those, expire now.
CREATE FUNCTION pg_temp.lapse(VARIADIC tasks text[] DEFAULT NULL) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.extend(id, lease => '1 microsecond')) FROM fairq.live_tasks
	WHERE queue = 'lapses' AND status = 'running' AND (tasks IS NULL OR payload #>> '{}' = ANY (tasks))
$$;

CREATE VIEW pg_temp.stand AS
	SELECT payload #>> '{}' AS task, status, attempt, lapses FROM fairq.tasks
	WHERE queue = 'lapses' ORDER BY id;

SELECT fairq.create_queue('lapses', max_attempts => 4, retain => '1 day', backoff => '0');

--
-- What counts
--

SELECT fairq.enqueue('lapses', 'a', '"a1"') > 0 AS ok;
SELECT pg_temp.pop();
-- not before another call finds it
SELECT pg_temp.lapse();
SELECT * FROM pg_temp.stand;
SELECT pg_temp.pop();
SELECT * FROM pg_temp.stand;
-- what was released, or has failed, was ended by a worker that lives
SELECT fairq.release(pg_temp.id('a1')), pg_temp.pop();
SELECT fairq.fail(pg_temp.id('a1'), retry_in => '0'), pg_temp.pop();
SELECT pg_temp.lapse(), fairq.fail(pg_temp.id('a1'), retry_in => '0'), pg_temp.pop();
SELECT pg_temp.lapse(), fairq.complete(pg_temp.id('a1'));
SELECT * FROM pg_temp.stand;
-- expire_leases() and maintain() end leases, too; and the last one counts
SELECT fairq.enqueue('lapses', 'b', '"b1"') > 0, pg_temp.pop(), pg_temp.lapse();
SELECT fairq.expire_leases('lapses'), pg_temp.pop(), pg_temp.lapse();
SELECT fairq.maintain('lapses'), pg_temp.pop(), pg_temp.lapse();
SELECT pg_temp.pop(), pg_temp.lapse();
SELECT pg_temp.pop();
SELECT * FROM pg_temp.stand;
-- a rollback takes it back
SELECT fairq.enqueue('lapses', 'c', '"c1"') > 0, pg_temp.pop(), pg_temp.lapse();
BEGIN;
SELECT pg_temp.pop();
ROLLBACK;
SELECT * FROM pg_temp.stand WHERE task = 'c1';
-- a task that is cancelled ends with its lease
SELECT fairq.cancel(pg_temp.id('c1')), fairq.expire_leases('lapses');
SELECT * FROM pg_temp.stand WHERE task = 'c1';
SELECT * FROM fairq.check_queue('lapses');

--
-- take
--

SELECT fairq.enqueue('lapses', 'd', '"d1"') > 0, pg_temp.pop(), pg_temp.lapse();
BEGIN;
SELECT pg_temp.take();
ROLLBACK;
-- it comes back as often lapsed as take() has said
SELECT pg_temp.id('d1') AS d1 \gset
BEGIN;
SELECT pg_temp.take();
SELECT fairq.fail(:d1, retry_in => '0');
COMMIT;
SELECT * FROM pg_temp.stand WHERE task = 'd1';

--
-- redrive: a new start
--

SELECT fairq.redrive(pg_temp.id('b1'));
SELECT * FROM pg_temp.stand WHERE task = 'b1';
SELECT pg_temp.pop();

-- by SQL, anything may stand there
UPDATE fairq.task SET lapses = 100 WHERE id = pg_temp.id('b1');
SELECT regexp_replace(c, '[0-9]+', 'N') FROM fairq.check_queue('lapses') c;
UPDATE fairq.task SET lapses = -1 WHERE id = pg_temp.id('b1');
SELECT regexp_replace(c, '[0-9]+', 'N') FROM fairq.check_queue('lapses') c;
SELECT fairq.drop_queue('lapses', true);
