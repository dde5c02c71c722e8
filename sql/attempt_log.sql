-- The log of a task's failed attempts: what it contains, when it gets an
-- entry, and how large it can be.
--
-- Fails if the end of a lapsed lease adds no entry, or the end of a blocked
-- task adds one (archive_task()). Fails if a released attempt adds an entry
-- (fairq_task_return()). Fails if a long error is not cut, or the oldest entry
-- is not dropped (fairq_task_log()). Fails if an entry gets the error of a
-- later attempt (past_log()), or a redriven task has no log (maintain.c).
\a \t
SET client_min_messages = warning;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('attempt_log', backoff => '0', retain => '1 hour', max_attempts => 100);
CREATE VIEW pg_temp.log AS
	SELECT t.payload #>> '{}' AS task, t.status, l.attempt, l.worker, l.error,
		l.at BETWEEN t.enqueued_at AND clock_timestamp() AS in_time
	FROM fairq.tasks t
	LEFT JOIN LATERAL jsonb_to_recordset(t.attempt_log) AS l (at timestamptz, attempt int, worker text, error text) ON true
	WHERE t.queue = 'attempt_log';

-- failures, with an error and without; a release adds no entry
SELECT fairq.enqueue('attempt_log', 'a', '"a"') AS task \gset
SELECT attempt_log IS NULL AS none FROM fairq.tasks WHERE id = :task;
SELECT attempt FROM fairq.pop('attempt_log', worker => 'w1');
SELECT fairq.fail(:task, 1, E'it "broke"\n\u00fc\t\\', retry_in => '0');
SELECT attempt FROM fairq.pop('attempt_log');
SELECT fairq.release(:task, 2);
SELECT attempt FROM fairq.pop('attempt_log', worker => 'w3');
SELECT fairq.fail(:task, 3);
SELECT attempt FROM fairq.pop('attempt_log', worker => 'w4');
SELECT fairq.fail_batch(ARRAY[:task], errors => ARRAY['of a batch']);
SELECT * FROM pg_temp.log;
-- a rolled back attempt adds nothing
BEGIN;
SELECT attempt FROM fairq.take('attempt_log');
SELECT fairq.fail(:task, 5, 'taken');
SELECT attempt, worker, error FROM pg_temp.log WHERE attempt > 3;
ROLLBACK;
SELECT count(*) FROM pg_temp.log;
BEGIN;
SELECT attempt FROM fairq.take('attempt_log');
SELECT fairq.fail(:task, 5, 'taken'), fairq.fail(:task, 5, 'twice');
COMMIT;
SELECT attempt, worker, error FROM pg_temp.log WHERE attempt > 3;

-- expired leases: a pop that takes the task over adds no entry, and a call that ends the
-- lease adds one
SELECT attempt FROM fairq.pop('attempt_log', 1, '1 microsecond', worker => 'w6');
SELECT attempt, lapses FROM fairq.pop('attempt_log', 1, '1 microsecond', worker => 'w7');
SELECT fairq.expire_leases('attempt_log');
SELECT attempt, worker, error FROM pg_temp.log WHERE attempt > 5;

-- the archive has the last attempt, too, and redrive keeps all entries
SELECT attempt FROM fairq.pop('attempt_log', worker => 'w8');
SELECT fairq.fail(:task, 8, 'for good', dead => true);
SELECT status, attempt, worker, error FROM pg_temp.log WHERE attempt > 6;
SELECT fairq.redrive(:task);
SELECT status, attempt, worker, error FROM pg_temp.log WHERE attempt > 6;
SELECT attempt FROM fairq.pop('attempt_log', worker => 'w9');
SELECT fairq.complete(:task);
SELECT status, array_agg(attempt || coalesce(' ' || error, '')) FROM pg_temp.log GROUP BY 1;

-- other ends: a cancelled task whose worker fails it, one whose worker
-- completes it, and a task whose last lease lapses
SELECT count(fairq.enqueue('attempt_log', 'b', to_jsonb('b' || n), max_attempts => 1)) FROM generate_series(1, 3) n;
SELECT count(*) FROM fairq.pop('attempt_log', 2, worker => 'w');
SELECT fairq.cancel(id) FROM fairq.tasks WHERE queue = 'attempt_log' AND status = 'running' ORDER BY id;
SELECT fairq.fail(id, 1, 'stopped'), fairq.complete(id + 1) FROM fairq.tasks WHERE payload = '"b1"';
SELECT count(*) FROM fairq.pop('attempt_log', 1, '1 microsecond', worker => 'w');
SELECT fairq.expire_leases('attempt_log');
SELECT * FROM pg_temp.log WHERE task ~ '^b' ORDER BY task;

-- a task that ends without any attempt adds no entry: the waiting task of a failed
-- batch, and the task that waits for that one
SELECT fairq.create_batch('attempt_log', 'd', '"d1"', on_success => true) AS batch \gset
SELECT fairq.enqueue('attempt_log', 'd', batch => :batch) AS task \gset
SELECT fairq.close_batch(:batch);
SELECT fairq.enqueue('attempt_log', 'd', '"d2"', after => ARRAY[:batch]) > 0 AS ok;
SELECT fairq.fail(id, attempt, dead => true) FROM fairq.pop('attempt_log');
SELECT count(*) FROM fairq.pop('attempt_log');
SELECT * FROM pg_temp.log WHERE task ~ '^d' ORDER BY task;

-- the log has at most ten entries, and each entry is cut, whatever the errors
-- are
SELECT fairq.enqueue('attempt_log', 'c', '"c"') AS task \gset
CREATE PROCEDURE pg_temp.fail_often(task bigint, error text) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..12 LOOP
		PERFORM fairq.fail(id, attempt, i || error, retry_in => '0') FROM fairq.pop('attempt_log', worker => repeat('w', 1024));
		COMMIT;
	END LOOP;
END $$;
CALL pg_temp.fail_often(:task, repeat(E'\u00fc', 1000000));
SELECT min(attempt), max(attempt), count(*), min(octet_length(error)), max(octet_length(error)), max(octet_length(worker)),
	bool_and(error ~ E'^\\d+\u00fc+$') AS whole
FROM pg_temp.log WHERE task = 'c';
SELECT octet_length(attempt_log::text) < 15000 AS small, octet_length(error) FROM fairq.tasks WHERE id = :task;
-- SQL can only store a log that the view can show
UPDATE fairq.task SET attempt_log = 'x' WHERE id = :task;
UPDATE fairq.task SET attempt_log = '' WHERE id = :task;
UPDATE fairq.task SET attempt_log = '["x",1]' WHERE id = :task;
SELECT fairq.reset_hints();
UPDATE fairq.task SET attempt_log = '5' WHERE id = :task;
SELECT fairq.fail(id, attempt, 'x', dead => true) FROM fairq.pop('attempt_log');
SELECT attempt_log #- '{1,at}' FROM fairq.tasks WHERE id = :task;
SELECT * FROM fairq.check_queue('attempt_log');
SELECT fairq.drop_queue('attempt_log', true);
