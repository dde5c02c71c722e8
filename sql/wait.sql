-- fairq.wait() returns true once a pop can return a task, and false at the
-- timeout. It is refused where it cannot end a transaction.
--
-- Fails if wait() does not know when a task becomes due (next_due() in
-- wait.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/tasks.psql

--
-- Arguments
--

SELECT fairq.create_queue('wait');
CALL fairq.wait(NULL);
CALL fairq.wait('wait_none');
CALL fairq.wait('wait_none', '0');
CALL fairq.wait('');
CALL fairq.wait(repeat('x', 58));
CALL fairq.wait(repeat('x', 10000));
CALL fairq.wait('wait', '-1 microsecond');
CALL fairq.wait('wait', '-1 hour');
CALL fairq.wait('wait', '1 day -25 hours');
CALL fairq.wait('wait', '110 years');
CALL fairq.wait('wait', '178000000 years');
CALL fairq.wait('wait', '-178000000 years');
-- without a task the result is false, at the timeout
CALL fairq.wait('wait', '0');
CALL fairq.wait('wait', '1 microsecond');
SELECT clock_timestamp() AS before \gset
CALL fairq.wait('wait', '100 milliseconds');
SELECT clock_timestamp() - :'before' >= '100 milliseconds' AS waited;
-- the third argument is only for the result
CALL fairq.wait('wait', '0', NULL);
CALL fairq.wait('wait', '0', true);
CALL fairq.wait(timeout => '0', queue => 'wait');
CALL fairq.wait(ready => NULL, timeout => '0', queue => 'wait');
-- with a task the result is true, at once, and the task is still there
SELECT pg_temp.add('wait', 'a1');
SELECT clock_timestamp() AS before \gset
CALL fairq.wait('wait');
CALL fairq.wait('wait', NULL);
CALL fairq.wait('wait', '0');
CALL fairq.wait('wait', '100 years');
SELECT clock_timestamp() - :'before' < '20 seconds' AS at_once;
SELECT payload, status, attempt FROM fairq.tasks WHERE queue = 'wait';
SELECT * FROM fairq.check_queue('wait');
SELECT pg_temp.pop('wait');
CALL fairq.wait('wait', '0');
SELECT pg_temp.done('wait');

--
-- Reasons to return
--

-- a task in any lane is ready
SELECT fairq.enqueue('wait', 'a', '"a1"', 9) > 0 AS ok;
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait');
-- a lease has expired, or expires meanwhile
CALL fairq.wait('wait', '0');
SELECT fairq.extend(id, 1, '1 microsecond') IS NOT NULL AS lapsed FROM fairq.tasks WHERE queue = 'wait';
CALL fairq.wait('wait', '0');
SELECT clock_timestamp() AS before \gset
SELECT pg_temp.pop('wait', 100, '150 milliseconds');
CALL fairq.wait('wait', '1 minute');
SELECT clock_timestamp() - :'before' BETWEEN '150 milliseconds' AND '20 seconds' AS in_time;
SELECT pg_temp.pop('wait');
SELECT pg_temp.done('wait');
-- a wait ends if a task is due or becomes due meanwhile, but not for a later task
SELECT clock_timestamp() AS before \gset
SELECT fairq.enqueue('wait', 'a', '"a1"', run_at => clock_timestamp() + interval '150 milliseconds') > 0 AS ok;
SELECT fairq.enqueue('wait', 'b', '"b1"', run_at => clock_timestamp() + interval '1 hour') > 0 AS ok;
SELECT fairq.enqueue('wait', 'c', '"c1"', run_at => 'infinity') > 0 AS ok;
CALL fairq.wait('wait', '1 minute');
SELECT clock_timestamp() - :'before' BETWEEN '150 milliseconds' AND '20 seconds' AS in_time;
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait');
CALL fairq.wait('wait', '0');
CALL fairq.wait('wait', '50 milliseconds');
-- a retry or a task released with a delay becomes due
SELECT clock_timestamp() AS before \gset
SELECT fairq.fail(id, 1, 'x', '150 milliseconds') FROM fairq.tasks WHERE queue = 'wait' AND status = 'running';
CALL fairq.wait('wait', '1 minute');
SELECT pg_temp.pop('wait');
SELECT fairq.release(id, 2, '150 milliseconds') FROM fairq.tasks WHERE queue = 'wait' AND status = 'running';
CALL fairq.wait('wait', '1 minute');
SELECT pg_temp.pop('wait');
SELECT clock_timestamp() - :'before' BETWEEN '300 milliseconds' AND '20 seconds' AS in_time;
SELECT * FROM fairq.check_queue('wait');
SELECT pg_temp.done('wait'), fairq.purge('wait');
-- a failed task ends a wait once it is redriven
SELECT pg_temp.add('wait', 'a1');
SELECT count(fairq.fail(id, attempt, dead => true)) FROM fairq.pop('wait');
CALL fairq.wait('wait', '0');
SELECT fairq.redrive('wait');
CALL fairq.wait('wait', '0');
SELECT fairq.purge('wait');
CALL fairq.wait('wait', '0');
-- a paused queue or group has no ready task
SELECT pg_temp.add('wait', 'a1');
SELECT fairq.pause('wait');
CALL fairq.wait('wait', '0');
CALL fairq.wait('wait', '20 milliseconds');
SELECT fairq.resume('wait');
CALL fairq.wait('wait', '0');
SELECT fairq.pause('wait', 'a');
CALL fairq.wait('wait', '0');
SELECT pg_temp.add('wait', 'b1');
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait');
CALL fairq.wait('wait', '0');
SELECT fairq.resume('wait', 'a');
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait');
-- a lapsed task of a paused group does not end a wait either
SELECT fairq.extend(id, 1, '1 microsecond') IS NOT NULL AS lapsed FROM fairq.tasks WHERE queue = 'wait' AND payload = '"a1"';
SELECT fairq.pause('wait', 'a');
CALL fairq.wait('wait', '0');
CALL fairq.wait('wait', '20 milliseconds');
SELECT fairq.resume('wait', 'a');
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait');
SELECT * FROM fairq.check_queue('wait');
SELECT pg_temp.done('wait');
-- a task that a limit holds back does not end a wait; one with an expired lease
-- does, if it is under the limit
SELECT fairq.alter_queue('wait', 1, 2);
SELECT pg_temp.add('wait', 'a1', 'a2', 'b1', 'b2', 'c1');
SELECT pg_temp.pop('wait', 1), pg_temp.pop('wait', 1);
CALL fairq.wait('wait', '0');
CALL fairq.wait('wait', '20 milliseconds');
SELECT fairq.extend(min(id), 1, '1 microsecond') IS NOT NULL AS lapsed FROM fairq.tasks WHERE queue = 'wait' AND status = 'running';
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait') IS NOT NULL AS popped;
CALL fairq.wait('wait', '0');
SELECT fairq.complete(min(id)) FROM fairq.tasks WHERE queue = 'wait' AND status = 'running';
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait') IS NOT NULL AS popped;
CALL fairq.wait('wait', '0');
SELECT fairq.alter_queue('wait', 0, 3);
CALL fairq.wait('wait', '0');
SELECT fairq.alter_queue('wait', 0, 0);
SELECT * FROM fairq.check_queue('wait');
SELECT fairq.purge('wait'), pg_temp.done('wait');
-- the result is also right after hints are lost
SELECT pg_temp.add('wait', 'a1');
SELECT fairq.reset_hints();
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait');
SELECT fairq.reset_hints();
CALL fairq.wait('wait', '0');
SELECT * FROM fairq.check_queue('wait');

--
-- Only some places allow wait(), since it ends transactions
--

BEGIN;
CALL fairq.wait('wait', '0');
ROLLBACK;
BEGIN;
SELECT pg_temp.add('wait', 'b1');
CALL fairq.wait('wait');
COMMIT;
SELECT count(*) FROM fairq.tasks WHERE queue = 'wait' AND status = 'queued';
-- the error about an invalid argument precedes the one about a transaction
-- block
BEGIN;
CALL fairq.wait(NULL);
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
CALL fairq.wait('wait', '0');
ROLLBACK;
BEGIN READ ONLY;
CALL fairq.wait('wait', '0');
ROLLBACK;
-- several statements in one message form one transaction
SELECT 1 AS one \; CALL fairq.wait('wait', '0');
CALL fairq.wait('wait', '0') \; SELECT 1 AS one;
SET default_transaction_read_only = on;
CALL fairq.wait('wait', '0');
RESET default_transaction_read_only;
SET default_transaction_isolation = 'serializable';
CALL fairq.wait('wait', '0');
SELECT pg_temp.add('wait', 'b1');
CALL fairq.wait('wait', '0');
SET default_transaction_isolation = 'repeatable read';
CALL fairq.wait('wait', '0');
SELECT pg_temp.pop('wait');
CALL fairq.wait('wait', '20 milliseconds');
RESET default_transaction_isolation;
-- a function cannot call wait(), because it runs in a transaction
CREATE FUNCTION pg_temp.wait() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	ready boolean;
BEGIN
	CALL fairq.wait('wait', '0', ready);
	RETURN ready;
END $$;
SELECT pg_temp.wait();
-- a procedure and a DO block may call wait(), unless they run in a transaction
-- block
CREATE PROCEDURE pg_temp.work(INOUT served text, n int) LANGUAGE plpgsql AS $$
DECLARE
	ready boolean;
BEGIN
	LOOP
		CALL fairq.wait('wait', '0', ready);
		EXIT WHEN NOT ready;
		served := concat_ws(', ', served, (SELECT string_agg(payload #>> '{}' || CASE WHEN fairq.complete(id, attempt) THEN '' ELSE '?' END, ' ')
			FROM fairq.pop('wait', n)));
		COMMIT;
	END LOOP;
END $$;
SELECT pg_temp.done('wait');
SELECT pg_temp.add('wait', 'a1', 'a2', 'b1', 'c1', 'c2');
CALL pg_temp.work(NULL, 2);
CALL pg_temp.work(NULL, 2);
BEGIN;
CALL pg_temp.work(NULL, 2);
ROLLBACK;
SELECT pg_temp.add('wait', 'd1');
\set VERBOSITY terse
DO $$
DECLARE
	ready boolean;
BEGIN
	CALL fairq.wait('wait', '1 minute', ready);
	RAISE NOTICE '%', ready;
	PERFORM fairq.take('wait');
	CALL fairq.wait('wait', '10 milliseconds', ready);
	RAISE NOTICE '%', ready;
END $$;
\set VERBOSITY sqlstate
SELECT count(*) FROM fairq.tasks WHERE queue = 'wait';
BEGIN;
DO $$
DECLARE
	ready boolean;
BEGIN
	CALL fairq.wait('wait', '0', ready);
END $$;
ROLLBACK;
-- a block with an exception handler is a subtransaction, so the call fails
DO $$
DECLARE
	ready boolean;
BEGIN
	CALL fairq.wait('wait', '0', ready);
EXCEPTION WHEN division_by_zero THEN
	NULL;
END $$;
-- the failed call has changed nothing
CALL fairq.wait('wait', '0');
SELECT pg_temp.add('wait', 'e1');
CALL fairq.wait('wait', '0');
-- wait() commits earlier work of the block
DO $$
DECLARE
	ready boolean;
BEGIN
	PERFORM fairq.enqueue('wait', 'f', '"f1"');
	CALL fairq.wait('wait', '0', ready);
	PERFORM fairq.enqueue('wait', 'f', '"f2"');
	RAISE EXCEPTION 'rolled back';
END $$;
SELECT pg_temp.pop('wait');
SELECT * FROM fairq.check_queue('wait');
-- statement_timeout ends a wait, and later calls are not affected
SELECT pg_temp.done('wait');
SET statement_timeout = '50ms';
CALL fairq.wait('wait');
RESET statement_timeout;
CALL fairq.wait('wait', '0');
SELECT pg_temp.add('wait', 'g1');
CALL fairq.wait('wait');
SELECT pg_temp.pop('wait');
SELECT * FROM fairq.check_queue('wait');
-- a wait for another queue immediately after the first
SELECT fairq.create_queue('wait_2');
SELECT pg_temp.add('wait_2', 'a1');
CALL fairq.wait('wait', '0');
CALL fairq.wait('wait_2', '0');
SELECT fairq.drop_queue('wait_2', true);
CALL fairq.wait('wait_2', '0');

-- A task that a pop would finish without returning it does not end a wait. wait() finishes
-- such a task itself, and then finds tasks that can use its slot.
SELECT fairq.create_queue('wait_over', concurrency => 1, max_attempts => 1, retain => '1 day');
SELECT pg_temp.add('wait_over', 'a1'), pg_temp.add('wait_over', 'b1');
SELECT count(*) FROM fairq.pop('wait_over', 2, '1 microsecond');
CALL fairq.wait('wait_over', '0');
SELECT payload, status, error FROM fairq.tasks WHERE queue = 'wait_over' ORDER BY payload;
SELECT pg_temp.add('wait_over', 'a2');
CALL fairq.wait('wait_over', '0');
SELECT count(*) FROM fairq.pop('wait_over', 2, '1 microsecond');
SELECT pg_temp.add('wait_over', 'a3'), pg_temp.add('wait_over', 'a4');
CALL fairq.wait('wait_over', '0');
SELECT pg_temp.pop('wait_over');
-- the same in a full queue, and in a queue without limits
SELECT fairq.alter_queue('wait_over', concurrency => 0, max_running => 1);
SELECT pg_temp.done('wait_over');
SELECT count(*) FROM fairq.pop('wait_over', 2, '1 microsecond');
SELECT pg_temp.add('wait_over', 'c1');
CALL fairq.wait('wait_over', '0');
SELECT pg_temp.pop('wait_over');
SELECT fairq.alter_queue('wait_over', max_running => 0, max_attempts => 5);
-- a lapsed cancelled task does not end a wait; a lapsed task that runs again does
SELECT pg_temp.done('wait_over'), pg_temp.add('wait_over', 'd1'), pg_temp.add('wait_over', 'e1');
SELECT count(fairq.cancel(id)) FROM fairq.pop('wait_over', 1, '1 microsecond');
SELECT count(*) FROM fairq.pop('wait_over', 1, '1 hour');
CALL fairq.wait('wait_over', '0');
SELECT payload, status FROM fairq.tasks WHERE queue = 'wait_over' AND payload >= '"d1"' ORDER BY payload;
SELECT fairq.extend(id, lease => '1 microsecond') IS NOT NULL AS ok FROM fairq.task WHERE payload = '"e1"';
CALL fairq.wait('wait_over', '0');
SELECT pg_temp.pop('wait_over');
-- more lapsed tasks than one search finishes, and then more running tasks than a lowered
-- limit allows
SELECT pg_temp.done('wait_over'), fairq.alter_queue('wait_over', max_attempts => 1, retain => '0');
SELECT count(fairq.enqueue('wait_over', 'f')) FROM generate_series(1, 250);
SELECT count(*) FROM fairq.pop('wait_over', 250, '1 microsecond');
CALL fairq.wait('wait_over', '0');
SELECT status, count(*) FROM fairq.tasks WHERE queue = 'wait_over' AND group_key = 'f' GROUP BY status;
SELECT fairq.alter_queue('wait_over', max_attempts => 5);
SELECT count(fairq.enqueue('wait_over', 'g')) FROM generate_series(1, 3);
SELECT count(*) FROM fairq.pop('wait_over', 2, '1 hour');
SELECT count(*) FROM fairq.pop('wait_over', 1, '1 microsecond');
SELECT fairq.alter_queue('wait_over', concurrency => 2);
CALL fairq.wait('wait_over', '0');
SELECT pg_temp.pop('wait_over');
SELECT * FROM fairq.check_queue('wait_over');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'wait%';

-- wait() repeatedly finishes tasks whose values are in a TOAST table.
SELECT fairq.create_queue('wait_large', max_attempts => 1), fairq.create_queue('wait_expired');
CREATE FUNCTION pg_temp.large() RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_agg(md5(g::text) || md5((g + 1)::text)) FROM generate_series(1, 2000) g
$$;
SELECT fairq.enqueue('wait_large', 'a', pg_temp.large()) > 0 AS ok FROM generate_series(1, 3);
SELECT count(*) FROM fairq.pop('wait_large', 1, '1 microsecond');
CALL fairq.wait('wait_large', '1 second');
SELECT count(*) FROM fairq.pop('wait_large', 1, '1 microsecond');
CALL fairq.wait('wait_large', '1 second');
SELECT count(*) FROM fairq.pop('wait_large', 1, '1 microsecond');
CALL fairq.wait('wait_large', '1 millisecond');
SELECT count(fairq.enqueue('wait_expired', 'a', pg_temp.large(), expires_at => now() - interval '1 second')) FROM generate_series(1, 200);
CALL fairq.wait('wait_expired', '1 millisecond');
SELECT count(*) FROM fairq.task;
SELECT fairq.drop_queue('wait_large', true), fairq.drop_queue('wait_expired', true);
