-- Tasks must begin before the time in expires_at.
--
-- Fails if a task that began still expires (fairq_is_expired() in store.h).
-- Fails if a pop finishes all expired tasks that it finds
-- (leaves_expired() in turn.c), or visits all groups that begin with
-- such tasks. Fails if an enqueue with the key of an expired task returns that
-- task's id (finish_expired() in enqueue.c). Fails if, in an in_order queue, an
-- expired task holds up other tasks (fairq_line_has_earlier() in line.c). Fails
-- if expired leases are left after a hundred tasks were finished
-- (leave_lapsed() in turn.c).
\a \pset footer off
\set VERBOSITY sqlstate

-- Adds tasks that expire after this time; the first letter of each payload is
-- the group.
CREATE FUNCTION pg_temp.add(expires_in interval, VARIADIC payloads text[]) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue('expires', left(p, 1), to_jsonb(p), expires_at => clock_timestamp() + expires_in))
	FROM unnest(payloads) p
$$;
CREATE FUNCTION pg_temp.pop(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(format('%s/%s', payload #>> '{}', attempt), ' ') FROM fairq.pop('expires', n) $$;
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$ SELECT id FROM fairq.tasks WHERE queue = 'expires' AND payload = to_jsonb($1) $$;
-- column "there" is false once a call has finished the task
CREATE VIEW pg_temp.stand AS
	SELECT payload #>> '{}' AS task, status, reason, attempt, expires_at <= clock_timestamp() AS is_past,
		finished_at IS NULL AS there
	FROM fairq.tasks WHERE queue = 'expires' ORDER BY id;
CREATE FUNCTION pg_temp.forget() RETURNS void
LANGUAGE sql AS $$
	SELECT fairq.complete_batch(array_agg(id)) FROM fairq.live_tasks WHERE queue = 'expires' AND status = 'running'
		HAVING count(*) > 0;
	SELECT fairq.purge('expires');
	DELETE FROM fairq.archive WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'expires')
$$;

-- Moves the expires_at of all tasks into the past.
CREATE FUNCTION pg_temp.later() RETURNS void
LANGUAGE sql AS $$
	UPDATE fairq.task SET expires_at = '-infinity' WHERE expires_at < 'infinity'
		AND queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'expires')
$$;

SELECT fairq.create_queue('expires', retain => '1 day', backoff => '0');
SELECT fairq.maintain('expires');

--
-- A task that has not begun by expires_at is not served
--

SELECT pg_temp.add('-1 s', 'a1', 'b1'), pg_temp.add('1 hour', 'a2'), pg_temp.add(NULL, 'a3');
SELECT fairq.enqueue('expires', 'a', '"a4"', expires_at => 'infinity') > 0 AS ok;
SELECT * FROM pg_temp.stand;
SELECT queue, ready, limited FROM fairq.queues WHERE queue = 'expires';
SELECT group_key, ready FROM fairq.groups WHERE queue = 'expires' ORDER BY 1;
SELECT group_key, queued FROM fairq.group_stats('expires') ORDER BY 1;
SELECT count(*) FROM fairq.peek('expires');
SELECT payload, fairq.turns_before(id) IS NULL AS unknown FROM fairq.tasks WHERE queue = 'expires' ORDER BY id;
CALL fairq.wait('expires', '10 s');
SELECT pg_temp.pop();
SELECT * FROM pg_temp.stand;
SELECT queued, scheduled, running, lapsed, expired FROM fairq.stats WHERE queue = 'expires';
SELECT lapsed, expired FROM fairq.queues WHERE queue = 'expires';
SELECT * FROM fairq.check_queue('expires');
-- wait does not report tasks if all of them are expired
SELECT pg_temp.forget(), pg_temp.add('-1 s', 'a1', 'a2', 'b1');
CALL fairq.wait('expires', '0.1 s');
SELECT pg_temp.pop();
CALL fairq.wait('expires', '0.1 s');
SELECT * FROM fairq.check_queue('expires');
-- take() does not return expired tasks either; a scheduled task expires, too
SELECT pg_temp.forget(), pg_temp.add('-1 s', 'a1'), pg_temp.add('1 hour', 'a2');
SELECT fairq.enqueue('expires', 'a', '"a3"', run_at => clock_timestamp() + '1 ms', expires_at => clock_timestamp() + '2 ms') > 0 AS ok;
SELECT pg_sleep(0.01);
SELECT payload FROM fairq.take('expires', 10);
SELECT task, status FROM pg_temp.stand;
-- without retain no row remains
SELECT fairq.alter_queue('expires', retain => '0');
SELECT pg_temp.forget(), pg_temp.add('-1 s', 'a1'), pg_temp.pop();
SELECT * FROM pg_temp.stand;
SELECT fairq.alter_queue('expires', retain => '1 day');

--
-- A task that began does not expire, unless it is released
--

SELECT pg_temp.forget(), pg_temp.add('1 hour', 'a1', 'b1', 'c1'), pg_temp.pop();
SELECT fairq.fail(pg_temp.id('a1')), fairq.release(pg_temp.id('b1')), pg_temp.later();
SELECT * FROM pg_temp.stand;
SELECT pg_temp.pop();
SELECT fairq.complete(pg_temp.id('a1'), 2), fairq.complete(pg_temp.id('c1'), 1), fairq.complete(pg_temp.id('b1'));
SELECT * FROM pg_temp.stand;
-- a task whose lease has expired, or that was redriven, does not expire either
SELECT pg_temp.forget(), pg_temp.add('1 hour', 'a1', 'a2');
SELECT count(*) FROM fairq.pop('expires', 10, lease => '1 ms');
SELECT fairq.fail(pg_temp.id('a1'), dead => true), pg_temp.later(), pg_sleep(0.01);
SELECT fairq.redrive('expires'), pg_temp.pop();
SELECT * FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('expires');

--
-- A call finishes a hundred of many expired tasks, and the group has its turn
-- later
--

-- a takes its turn in this block, so b is next. The previous pop may have begun
-- another block. If the table has more than 8 MB, a pop begins a load only if
-- it finds too few tasks.
SELECT pg_temp.forget(), pg_temp.add(NULL, 'a0');
SELECT pg_temp.pop(1), pg_temp.forget();
SELECT count(fairq.enqueue('expires', 'b', expires_at => '-infinity')) FROM generate_series(1, 250);
SELECT pg_temp.add(NULL, 'b1', 'b2', 'a1', 'a2', 'a3');
CALL fairq.wait('expires', '10 s');
SELECT payload FROM fairq.peek('expires', 1) p JOIN fairq.tasks USING (id);
SELECT expired AS before FROM fairq.stats WHERE queue = 'expires' \gset
CREATE FUNCTION pg_temp.finished() RETURNS bigint
LANGUAGE sql AS $$ SELECT expired FROM fairq.stats WHERE queue = 'expires' $$;
SELECT pg_temp.pop(1);
SELECT pg_temp.finished() - :before AS finished;
SELECT * FROM fairq.check_queue('expires');
SELECT pg_temp.pop(1);
SELECT pg_temp.finished() - :before AS finished;
SELECT pg_temp.pop(2);
SELECT pg_temp.finished() - :before AS finished;
SELECT pg_temp.pop(5);
SELECT * FROM fairq.check_queue('expires');
-- a rollback restores the finished tasks
SELECT pg_temp.forget(), pg_temp.add('-1 s', 'a1', 'a2'), pg_temp.add(NULL, 'a3');
BEGIN;
SELECT pg_temp.pop();
ROLLBACK;
SELECT task, status, there FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('expires');
SELECT pg_temp.pop();
-- maintain() finishes expired tasks in all states: those of a paused group, and
-- scheduled ones
SELECT pg_temp.forget(), pg_temp.add('-1 s', 'a1', 'b1'), pg_temp.add('1 hour', 'a2');
SELECT fairq.enqueue('expires', 'a', '"a3"', run_at => 'infinity', expires_at => clock_timestamp()) > 0 AS ok;
SELECT fairq.pause('expires', 'a');
SELECT task, status, there FROM pg_temp.stand;
SELECT pg_temp.pop();
SELECT fairq.maintain('expires');
SELECT task, status, there FROM pg_temp.stand;
SELECT fairq.resume('expires', 'a'), pg_temp.pop();
-- maintain() also deletes such tasks if they need not be retained
UPDATE fairq.archive SET finished_at = finished_at - interval '2 days' WHERE status = 4;
SELECT fairq.maintain('expires');
SELECT task, status, there FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('expires');
-- an expired task that waits for another task does not count as scheduled
SELECT pg_temp.forget(), fairq.enqueue('expires', 'b', '"b2"') AS b2 \gset
SELECT fairq.enqueue('expires', 'b', '"b3"', after => ARRAY[:b2]::bigint[], expires_at => clock_timestamp()) > 0 AS ok;
SELECT status FROM fairq.tasks WHERE queue = 'expires' ORDER BY id;
SELECT ready, scheduled FROM fairq.groups WHERE queue = 'expires' AND group_key = 'b';
SELECT ready, scheduled FROM fairq.queues WHERE queue = 'expires';

--
-- Weights, limits, priorities, cost-fair and time-fair queues
--

SELECT pg_temp.forget(), fairq.set_group('expires', 'a', concurrency => 1, weight => 3);
SELECT pg_temp.add('-1 s', 'a1', 'a2'), pg_temp.add(NULL, 'a3', 'a4', 'b1'), pg_temp.pop();
SELECT * FROM fairq.check_queue('expires');
SELECT fairq.complete(pg_temp.id('a3')), pg_temp.pop();
SELECT fairq.set_group('expires', 'a', concurrency => 0, weight => 0);
SELECT pg_temp.forget(), fairq.alter_queue('expires', fair_by => 'cost');
SELECT pg_temp.add('-1 s', 'a1', 'a2', 'c1'), pg_temp.add(NULL, 'a3', 'a4', 'b1', 'b2'), pg_temp.pop();
SELECT pg_temp.forget(), fairq.alter_queue('expires', fair_by => 'time', max_running => 3);
SELECT pg_temp.add('-1 s', 'a1', 'a2', 'c1'), pg_temp.add(NULL, 'a3', 'a4', 'b1', 'b2'), pg_temp.pop();
SELECT * FROM fairq.check_queue('expires');
SELECT fairq.alter_queue('expires', fair_by => 'tasks', max_running => 0);

--
-- An expired task loses its key
--

SELECT pg_temp.forget();
SELECT fairq.enqueue('expires', 'a', '"a1"', dedup_key => 'k', dedup_for => '1 hour', expires_at => '-infinity') > 0 AS ok;
SELECT fairq.find('expires', 'k') IS NULL AS free;
SELECT added, id = pg_temp.id('a1') AS the_same
FROM fairq.enqueue_or_find('expires', 'a', '"a2"', dedup_key => 'k', expires_at => clock_timestamp());
SELECT added FROM fairq.enqueue_or_find('expires', 'a', '"a3"', dedup_key => 'k', replace => true);
SELECT added FROM fairq.enqueue_or_find('expires', 'a', '"a4"', dedup_key => 'k');
SELECT * FROM pg_temp.stand;
-- a replacement also sets expires_at
SELECT fairq.enqueue('expires', 'a', '"a5"', dedup_key => 'k', replace => true, expires_at => '2100-01-01') = fairq.find('expires', 'k') AS the_same;
SELECT payload, extract(year FROM expires_at) AS year FROM fairq.live_tasks WHERE queue = 'expires' AND status = 'queued';
SELECT fairq.enqueue('expires', 'a', '"a6"', dedup_key => 'k', replace => true) = fairq.find('expires', 'k') AS the_same;
SELECT payload, expires_at FROM fairq.live_tasks WHERE queue = 'expires' AND status = 'queued';
-- enqueue_batch also takes the key of an expired task, and of no other task
SELECT fairq.enqueue('expires', 'b', '"b1"', dedup_key => 'b', expires_at => '-infinity') > 0 AS ok;
SELECT id > pg_temp.id('b1') AS added FROM fairq.enqueue_batch('expires', '{b,b,a}', '{"\"b2\"","\"b3\"","\"a7\""}',
	dedup_keys => '{b,NULL,k}', expires_at => clock_timestamp() + interval '1 hour') id;
SELECT payload, status, expires_at > clock_timestamp() AS will_expire FROM fairq.tasks WHERE queue = 'expires' ORDER BY id;
-- a redrive leaves a failed task if another task has its key, unless the other
-- task has expired
SELECT pg_temp.forget();
SELECT fairq.enqueue('expires', 'a', '"a1"', dedup_key => 'k', max_attempts => 1) > 0 AS ok;
SELECT pg_temp.pop(), fairq.fail(pg_temp.id('a1'));
SELECT fairq.enqueue('expires', 'a', '"a2"', dedup_key => 'k', expires_at => clock_timestamp() + interval '1 hour') > 0 AS ok;
SELECT fairq.redrive('expires'), pg_temp.later();
SELECT fairq.redrive('expires'), fairq.find('expires', 'k') = pg_temp.id('a1') AS the_same;
SELECT task, status FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('expires');

--
-- In an in_order queue an expired task does not hold up its group
--

SELECT pg_temp.forget(), fairq.alter_queue('expires', concurrency => 1, in_order => true);
SELECT pg_temp.add('-1 s', 'a1', 'a2'), pg_temp.add(NULL, 'a3');
CALL fairq.wait('expires', '10 s');
SELECT pg_temp.pop();
SELECT pg_temp.forget(), fairq.alter_queue('expires', concurrency => 0, in_order => false);

--
-- Very many tasks have expired
--

-- 500 expired tasks of one group do not prevent a call from serving another
-- group's task whose lease has expired
SELECT pg_temp.add(NULL, 'z1');
SELECT count(*) FROM fairq.pop('expires', lease => '1 us');
SELECT count(fairq.enqueue('expires', 'b', expires_at => '-infinity')) FROM generate_series(1, 500);
SELECT pg_temp.pop(1);
-- if tasks of many groups have expired, a call visits only some of the groups
SELECT pg_temp.forget();
SELECT count(fairq.enqueue('expires', 'group ' || i, expires_at => '-infinity')) FROM generate_series(1, 1000) i;
SELECT pg_temp.add(NULL, 'z1');
CREATE TEMP TABLE calls AS SELECT i AS call, pg_temp.pop(10) AS popped FROM generate_series(1, 5) i;
SELECT count(*) AS without, (SELECT count(*) FROM pg_temp.stand WHERE there AND status = 'expired') AS left FROM calls WHERE popped IS NULL;
DO $$ BEGIN
	FOR i IN 6..20 LOOP
		INSERT INTO calls SELECT i, pg_temp.pop(10);
	END LOOP;
END $$;
SELECT popped, call BETWEEN 2 AND 11 AS soon FROM calls WHERE popped IS NOT NULL;
SELECT * FROM fairq.check_queue('expires');

--
-- By SQL
--

SELECT pg_temp.forget(), pg_temp.add('-1 s', 'a1', 'a2');
SELECT fairq.reschedule(pg_temp.id('a1')), fairq.cancel(pg_temp.id('a2'));
SELECT * FROM pg_temp.stand;
SELECT fairq.reschedule(pg_temp.id('a1'), 'infinity'), fairq.purge('expires');
SELECT * FROM pg_temp.stand;
SELECT * FROM fairq.check_queue('expires');
SELECT fairq.drop_queue('expires', true);
