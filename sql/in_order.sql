-- In order: a group waits for its retried task, in all priorities, and also
-- after hints were lost. Other groups do not wait.
--
-- Fails if a claim does not search for a retried task (waits_for_other() in
-- turn.c), or searches only in its own priority (fairq_line_retries() in
-- line.c). Fails if the group is not put aside (fairq_wait_for_retry() in
-- running.c), or stays aside after the task was cancelled (fairq_finish() in
-- outcome.c).
\a \t
\set VERBOSITY sqlstate

-- The tasks that a pop returns, and whether peek() returned the same.
CREATE FUNCTION pg_temp.pop(n int DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	foreseen bigint[] := array(SELECT id FROM fairq.peek('in_order', n));
	served bigint[];
	shown text;
BEGIN
	SELECT coalesce(array_agg(id ORDER BY ordinality), '{}'), string_agg(payload #>> '{}', ' ' ORDER BY ordinality)
	INTO served, shown
	FROM fairq.pop('in_order', n) WITH ORDINALITY;
	RETURN CASE WHEN foreseen = served THEN coalesce(shown, 'nothing')
		ELSE format('foreseen: %s, served: %s', foreseen, served) END;
END $$;
CREATE FUNCTION pg_temp.enqueue(key text, payload text, priority int DEFAULT 0) RETURNS void LANGUAGE sql AS $$
	SELECT fairq.enqueue('in_order', key, to_jsonb(payload), priority)
$$;
CREATE FUNCTION pg_temp.id(of text) RETURNS bigint LANGUAGE sql AS $$
	SELECT id FROM fairq.live_tasks WHERE queue = 'in_order' AND payload = to_jsonb(of)
$$;
CREATE FUNCTION pg_temp.fail(of text, delay interval DEFAULT '1 hour') RETURNS text LANGUAGE sql AS $$
	SELECT fairq.fail(pg_temp.id(of), error => 'no', retry_in => delay)
$$;
CREATE FUNCTION pg_temp.complete(of text) RETURNS boolean LANGUAGE sql AS $$
	SELECT fairq.complete(pg_temp.id(of))
$$;
CREATE VIEW pg_temp.throttled AS
	SELECT priority, throttled FROM fairq.lanes WHERE queue = 'in_order' ORDER BY 1;

--
-- Settings
--

SELECT fairq.create_queue('in_order', in_order => true);
SELECT fairq.create_queue('in_order', concurrency => 2, in_order => true);
SELECT fairq.create_queue('in_order', concurrency => 1, in_order => true);
SELECT concurrency, in_order FROM fairq.queues WHERE queue = 'in_order';
SELECT fairq.alter_queue('in_order', concurrency => 2);
SELECT fairq.alter_queue('in_order', concurrency => 0);
SELECT fairq.set_group('in_order', 'a', concurrency => 2);
SELECT fairq.set_group('in_order', 'a', concurrency => 1);
SELECT fairq.alter_queue('in_order', concurrency => 2, in_order => false);
SELECT fairq.set_group('in_order', 'a', concurrency => 3);
SELECT fairq.pause('in_order', 'a');
SELECT fairq.alter_queue('in_order', in_order => true);
SELECT fairq.alter_queue('in_order', concurrency => 1, in_order => true);
SELECT fairq.resume('in_order', 'a');
SELECT fairq.set_group('in_order', 'a', concurrency => 0);
SELECT fairq.alter_queue('in_order', concurrency => 1, in_order => true);
SELECT concurrency, in_order FROM fairq.queues WHERE queue = 'in_order';

--
-- The group waits and no pop visits it; other groups continue
--

SELECT pg_temp.enqueue('a', 'a1'), pg_temp.enqueue('a', 'a2'), pg_temp.enqueue('a', 'a0', 5);
SELECT pg_temp.enqueue('b', 'b1'), pg_temp.enqueue('b', 'b2');
SELECT pg_temp.pop(3);
SELECT pg_temp.fail('a1');
SELECT pg_temp.complete('b1');
SELECT pg_temp.pop(3);
SELECT * FROM pg_temp.throttled;
SELECT payload, status, reason FROM fairq.tasks WHERE queue = 'in_order' ORDER BY id;
SELECT group_key, reason FROM fairq.group_stats('in_order') ORDER BY 1;
-- a pop does not visit the waiting group, also after hints were lost
SELECT pg_temp.pop(3);
SELECT fairq.reset_hints();
SELECT pg_temp.pop(3);
SELECT * FROM pg_temp.throttled;
SELECT * FROM fairq.check_queue('in_order');
CALL fairq.wait('in_order', '0');
SELECT pg_temp.complete('b2');

-- once the retried task is cancelled, the next tasks may run, even in the same
-- transaction
BEGIN;
SELECT fairq.cancel(pg_temp.id('a1'));
SELECT pg_temp.pop(3);
ROLLBACK;
SELECT pg_temp.pop(3);
SELECT fairq.cancel(pg_temp.id('a1'));
SELECT pg_temp.pop(3);
SELECT pg_temp.complete('a2');
SELECT pg_temp.pop(3);

-- while a task of another priority waits for its retry, the group's tasks of
-- the first priority wait as well
SELECT pg_temp.fail('a0', '1 hour');
SELECT pg_temp.enqueue('a', 'a3');
SELECT pg_temp.pop(3);
SELECT * FROM pg_temp.throttled;
-- in_order is turned off, and on again
SELECT fairq.alter_queue('in_order', in_order => false);
SELECT pg_temp.pop(3);
SELECT fairq.alter_queue('in_order', in_order => true);
SELECT pg_temp.enqueue('a', 'a4');
SELECT pg_temp.complete('a3');
SELECT pg_temp.pop(3);
SELECT fairq.purge('in_order', 'a');

-- the task that is due for its retry is served first, then the other tasks, one per call
SELECT pg_temp.enqueue('a', 'a5', 3), pg_temp.enqueue('a', 'a6'), pg_temp.enqueue('a', 'a7', 3);
SELECT pg_temp.pop(3);
SELECT pg_temp.fail('a6', '0');
SELECT pg_temp.pop(3);
SELECT pg_temp.complete('a6');
SELECT pg_temp.pop(3);
SELECT pg_temp.enqueue('a', 'a8');
SELECT pg_temp.fail('a5', '0');
SELECT pg_temp.pop(3);
SELECT pg_temp.complete('a5');
SELECT pg_temp.pop(3);
SELECT pg_temp.complete('a8');

-- wait() sleeps until the retry is due, and then returns
SELECT pg_temp.pop(3);
SELECT pg_temp.fail('a7', '4 s');
SELECT pg_temp.enqueue('a', 'a9');
SELECT pg_temp.pop(3);
CALL fairq.wait('in_order', '60 s');
SELECT pg_temp.pop(3);
SELECT pg_temp.complete('a7');
SELECT pg_temp.pop(3);

-- a failed attempt that is rolled back, and a permanent failure, hold up no
-- other task
BEGIN;
SELECT pg_temp.fail('a9');
ROLLBACK;
SELECT pg_temp.complete('a9');
SELECT fairq.enqueue('in_order', 'a', '"a10"', max_attempts => 1) > 0, pg_temp.enqueue('a', 'a11');
SELECT pg_temp.pop(3);
SELECT pg_temp.fail('a10');
SELECT pg_temp.pop(3);
-- a released task and a scheduled one hold up no other task
SELECT fairq.release(pg_temp.id('a11'), delay => '1 hour');
SELECT fairq.enqueue('in_order', 'a', '"a12"', run_at => now() + interval '1 hour') > 0, pg_temp.enqueue('a', 'a13');
SELECT pg_temp.pop(3);
SELECT pg_temp.complete('a13');
SELECT fairq.purge('in_order');

-- a task with an expired lease is taken over by the next worker; if a call ends
-- the lease, the task comes first
SELECT pg_temp.enqueue('a', 'a14'), pg_temp.enqueue('a', 'a15');
SELECT payload FROM fairq.pop('in_order', lease => '1 microsecond');
SELECT pg_temp.pop(3);
SELECT pg_temp.fail('a14');
-- a pop does not read waiting groups, even if there are many
SELECT count(pg_temp.enqueue('c' || i, i::text)) FROM generate_series(1, 200) i;
SELECT count(fairq.fail(id, retry_in => '1 hour')) FROM fairq.pop('in_order', 200);
SELECT count(pg_temp.enqueue('c' || i, 'second ' || i)) FROM generate_series(1, 200) i;
SELECT pg_temp.pop(300);
SELECT * FROM pg_temp.throttled WHERE priority = 0;
SELECT * FROM fairq.check_queue('in_order');
-- Nor does a pop read such groups when their retries, which have another
-- priority, are due. The end of each retried task makes its group ready. Fails
-- if a group whose retry is due is not put aside. Fails if the end or the take
-- of the retried task does not make the group ready again (FAIRQ_ENDS_RETRIED
-- in outcome.c, running.c, transaction.c).
SELECT fairq.purge('in_order');
SELECT count(fairq.enqueue('in_order', 'd' || i, to_jsonb('first ' || i), 5)) FROM generate_series(1, 200) i;
SELECT count(fairq.fail(id, retry_in => '0')) FROM fairq.pop('in_order', 200);
SELECT pg_sleep(2) IS NOT NULL AS due_for_long;
SELECT count(pg_temp.enqueue('d' || i, 'second ' || i)) FROM generate_series(1, 200) i;
SELECT pg_temp.pop();
SELECT throttled >= 200 AS aside FROM pg_temp.throttled WHERE priority = 0;
SELECT pg_temp.complete('first 1');
SELECT pg_temp.pop();
SELECT payload FROM fairq.take('in_order');
SELECT pg_temp.pop();
SELECT * FROM fairq.check_queue('in_order');
SELECT fairq.drop_queue('in_order', force => true);

-- the same in a time-fair and a cost-fair queue, and with shares
SELECT fairq.create_queue('in_order', concurrency => 1, in_order => true, fair_by => 'time', shares => '{1,1}');
SELECT pg_temp.enqueue('a', 'a1', 1), pg_temp.enqueue('a', 'a2'), pg_temp.enqueue('b', 'b1', 1);
SELECT pg_temp.pop();
SELECT pg_temp.fail(payload #>> '{}') FROM fairq.tasks WHERE queue = 'in_order' AND status = 'running';
SELECT pg_temp.pop(3);
SELECT pg_temp.pop(3);
SELECT * FROM fairq.check_queue('in_order');
SELECT fairq.drop_queue('in_order', force => true);
