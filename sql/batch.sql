-- Batches: a task that waits until other tasks have ended.
--
-- Fails if ends are not counted (fairq_finish() in outcome.c). Fails if a
-- batch stays open without its task. Fails if no end makes a check due. Fails
-- if taken tasks count as ended before the commit.
\a \t
SET client_min_messages = warning;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('parts'), fairq.create_queue('whole', retain => '1 hour');

-- The task waits until its batch is closed and all its tasks have ended. Its headers then
-- contain how many of the tasks have ended in each way.
SELECT fairq.create_batch('whole', 'a', '{"what": "report"}', headers => '{"trace": 7}') AS batch \gset
SELECT status, reason, batch FROM fairq.tasks WHERE id = :batch;
SELECT queue, status, on_success, completed FROM fairq.batches WHERE id = :batch;
SELECT fairq.enqueue('parts', 'x', batch => :batch) AS x \gset
SELECT count(*) FROM fairq.enqueue_batch('parts', ARRAY['y', 'z', 'z', 'z'], array_fill('{}'::jsonb, ARRAY[4]), batch => :batch);
SELECT batch = :batch AS same, fairq.complete(id) FROM fairq.pop('parts', 2);
SELECT fairq.reschedule(:batch), fairq.close_batch(:batch);
SELECT count(*) FROM fairq.pop('whole');
SELECT count(*) FROM fairq.pop('whole');
SELECT status FROM fairq.batches WHERE id = :batch;
SELECT fairq.fail(id, dead => true) FROM fairq.pop('parts');
SELECT fairq.cancel(id) FROM fairq.tasks WHERE queue = 'parts' AND status = 'queued' ORDER BY id LIMIT 1;
SELECT fairq.purge('parts');
-- several checks change only the time of the next check
SELECT fairq.reschedule(:batch);
SELECT id = :batch AS same, payload, headers, batch, attempt FROM fairq.pop('whole');
SELECT fairq.complete(:batch);
SELECT status, completed, failed, cancelled, expired, purged FROM fairq.batches WHERE id = :batch;
SELECT count(*) FROM fairq.batch_delta;

-- A closed batch without tasks is finished at once. Then it accepts no tasks,
-- like a batch that does not exist.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT fairq.close_batch(:batch), fairq.close_batch(:batch), fairq.close_batch(0);
SELECT fairq.enqueue('parts', 'x', batch => :batch);
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');
SELECT fairq.enqueue('parts', 'x', batch => :batch);
SELECT fairq.enqueue_batch('parts', ARRAY['x'], ARRAY['{}']::jsonb[], batch => 0);
SELECT fairq.enqueue_or_find('parts', 'x', batch => -5);
SELECT fairq.close_batch(NULL);
SELECT fairq.cancel_batch(NULL);
SELECT fairq.create_batch('whole', 'a', headers => '[1]');
SELECT fairq.create_batch('whole', 'a', batch => 1);
SELECT fairq.create_batch('none', 'a');
SELECT count(*) FROM fairq.task;

-- Tasks that are rolled back, released, retried, replaced, rescheduled, or
-- found by their keys: each counts once, until its end.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
BEGIN;
SELECT fairq.enqueue('parts', 'x', batch => :batch) > 0 AS added;
SAVEPOINT s;
SELECT fairq.enqueue('parts', 'x', batch => :batch) > 0 AS added;
ROLLBACK TO s;
COMMIT;
SELECT fairq.enqueue('parts', 'x', dedup_key => 'k', batch => :batch) AS k \gset
SELECT id = :k AS same, added FROM fairq.enqueue_or_find('parts', 'x', dedup_key => 'k', batch => :batch);
SELECT fairq.enqueue('parts', 'x', '2', dedup_key => 'k', replace => true, batch => :batch) = :k AS same;
SELECT fairq.reschedule(:k, 'infinity'), fairq.reschedule(:k, now());
SELECT fairq.close_batch(:batch);
BEGIN;
SELECT count(fairq.complete(id)) FROM fairq.pop('parts', 5);
ROLLBACK;
SELECT count(fairq.release(id)) FROM fairq.pop('parts', 5);
SELECT count(fairq.fail(id, retry_in => '0')) FROM fairq.pop('parts', 5);
BEGIN;
SELECT count(fairq.fail(id, retry_in => '0')) FROM fairq.take('parts', 5);
COMMIT;
SELECT fairq.reschedule(:batch);
SELECT count(*) FROM fairq.pop('whole');
SELECT count(*) FROM fairq.pop('whole');
SELECT count(*) FROM fairq.take('parts', 5);
-- a check is undone if its pop is rolled back, and the next pop checks again
SELECT fairq.reschedule(:batch);
BEGIN;
SELECT count(*) FROM fairq.pop('whole');
ROLLBACK;
SELECT status, headers FROM fairq.tasks WHERE id = :batch;
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');

-- With on_success, the first end without success fails the waiting task. A
-- failed task does not count as failed if it is redriven before a check.
SELECT fairq.create_batch('whole', 'a', on_success => true) AS batch \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) AS x \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) AS rest \gset
SELECT fairq.fail(id, dead => true) FROM fairq.pop('parts');
SELECT fairq.redrive(:x), fairq.reschedule(:batch);
SELECT count(*) FROM fairq.pop('whole');
SELECT status FROM fairq.batches WHERE id = :batch;
SELECT id = :rest AS second, fairq.complete(id) FROM fairq.pop('parts');
SELECT id = :x AS first, batch = :batch AS same, fairq.fail(id, dead => true) FROM fairq.pop('parts');
SELECT fairq.reschedule(:batch);
SELECT count(*) FROM fairq.pop('whole');
SELECT status, regexp_replace(error, '\d+', 'N') AS error, error LIKE format('task %s %%', :x) AS names FROM fairq.tasks WHERE id = :batch;
SELECT status, completed, failed FROM fairq.batches WHERE id = :batch;
-- a task that is redriven now no longer belongs to a batch
SELECT fairq.redrive(:x), fairq.close_batch(:batch);
SELECT batch, fairq.complete(id) FROM fairq.pop('parts');
-- all tasks succeed
SELECT fairq.create_batch('whole', 'a', on_success => true) AS batch \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) > 0 AS added;
SELECT fairq.close_batch(:batch), fairq.complete(id) FROM fairq.pop('parts');
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');

-- The end of the last task makes the next check due. Otherwise that check would never
-- happen. If all tasks have to succeed, the first end without success makes the check
-- due.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT count(fairq.enqueue('parts', 'x', batch => :batch)) FROM generate_series(1, 3);
SELECT fairq.close_batch(:batch);
SELECT count(*) FROM fairq.pop('whole');
SELECT fairq.reschedule(:batch, 'infinity');
SELECT fairq.complete(id) FROM fairq.pop('parts');
SELECT fairq.complete_batch(array_agg(id)) FROM fairq.pop('parts');
SELECT run_at FROM fairq.tasks WHERE id = :batch;
BEGIN;
SELECT fairq.complete(id) FROM fairq.pop('parts');
ROLLBACK;
SELECT run_at FROM fairq.tasks WHERE id = :batch;
SELECT fairq.cancel(id) FROM fairq.tasks WHERE batch = :batch;
CALL fairq.wait('whole', '1 minute');
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');
SELECT fairq.create_batch('whole', 'a', on_success => true) AS batch \gset
SELECT count(fairq.enqueue('parts', 'x', batch => :batch)) FROM generate_series(1, 2);
SELECT fairq.reschedule(:batch, 'infinity');
SELECT fairq.fail(id, dead => true) FROM fairq.pop('parts');
SELECT count(*) FROM fairq.pop('whole');
SELECT status FROM fairq.batches WHERE id = :batch;
SELECT fairq.complete(id) FROM fairq.pop('parts');

-- A pop that ends a batch's last task returns the task that waits for the
-- batch.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT count(fairq.enqueue('whole', 'x', expires_at => now(), batch => :batch)) FROM generate_series(1, 2);
SELECT fairq.close_batch(:batch), fairq.reschedule(:batch, 'infinity');
SELECT id = :batch AS same, headers, fairq.complete(id) FROM fairq.pop('whole');
-- A taken task ends when the transaction that took it commits.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) > 0 AS added;
SELECT fairq.close_batch(:batch), fairq.reschedule(:batch, 'infinity');
SELECT count(*) FROM fairq.take('parts');
SELECT id = :batch AS same, fairq.complete(id) FROM fairq.pop('whole');
-- Before the commit the taken task can be put back, so the batch is not
-- finished.
SELECT fairq.create_batch('parts', 'a') AS batch \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) AS x \gset
SELECT fairq.enqueue('parts', 'y', batch => :batch) AS y \gset
BEGIN;
SELECT count(*) FROM fairq.take('parts', 9);
SELECT fairq.close_batch(:batch);
SELECT count(*) FROM fairq.take('parts', 9);
SAVEPOINT s;
SELECT fairq.fail(:y, 1, dead => true);
SELECT count(*) FROM fairq.take('parts', 9);
SELECT fairq.fail(:x, 1, dead => true);
SELECT headers FROM fairq.take('parts', 9);
ROLLBACK TO s;
SELECT count(*) FROM fairq.take('parts', 9);
SELECT fairq.fail(:x, 1, dead => true);
SELECT count(*), fairq.cancel_batch(:batch) FROM fairq.take('parts', 9);
SELECT status FROM fairq.live_tasks WHERE id = :batch;
COMMIT;
SELECT id = :batch AS same, headers FROM fairq.take('parts', 9);

-- Batches in batches: the task that waits for a batch belongs to another
-- batch.
SELECT fairq.create_batch('whole', 'a', '"outer"', on_success => true) AS outer_batch \gset
SELECT fairq.create_batch('whole', 'a', '"inner"', on_success => true, batch => :outer_batch) AS batch \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) > 0 AS added;
SELECT fairq.close_batch(:batch), fairq.close_batch(:outer_batch);
SELECT count(*) FROM fairq.pop('whole', 10);
SELECT fairq.complete(id) FROM fairq.pop('parts');
SELECT fairq.reschedule(:batch), fairq.reschedule(:outer_batch);
SELECT payload, batch = :outer_batch AS same, fairq.fail(id, dead => true) FROM fairq.pop('whole', 10);
SELECT fairq.reschedule(:outer_batch);
SELECT count(*) FROM fairq.pop('whole', 10);
SELECT payload, status FROM fairq.tasks WHERE id = :outer_batch;

-- cancel_batch() cancels tasks that are not running. A batch ends when the task
-- that waits for it ends.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT count(*) FROM fairq.enqueue_batch('parts', ARRAY['x', 'x', 'x'], array_fill('{}'::jsonb, ARRAY[3]), batch => :batch);
SELECT count(*) FROM fairq.pop('parts');
SELECT fairq.cancel_batch(:batch), fairq.cancel_batch(:batch), fairq.cancel_batch(0);
SELECT status FROM fairq.batches WHERE id = :batch;
SELECT fairq.complete(id) FROM fairq.tasks WHERE batch = :batch AND status = 'running';
SELECT fairq.reschedule(:batch);
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT fairq.cancel(:batch), status FROM fairq.batches WHERE id = :batch;
SELECT status FROM fairq.batches WHERE id = :batch;
SELECT fairq.enqueue('parts', 'x', batch => :batch);

-- SQL changes rows, and queues are dropped.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT fairq.create_queue('gone');
SELECT fairq.enqueue('gone', 'x', batch => :batch) > 0 AS added;
SELECT count(*) FROM fairq.enqueue_batch('parts', ARRAY['x', 'x'], array_fill('{}'::jsonb, ARRAY[2]), batch => :batch);
SELECT fairq.close_batch(:batch), fairq.drop_queue('gone', force => true);
DELETE FROM fairq.task WHERE id = (SELECT min(id) FROM fairq.task WHERE batch = :batch);
SELECT count(*) FROM fairq.pop('whole');
UPDATE fairq.task SET batch = NULL WHERE batch = :batch;
SELECT fairq.reschedule(:batch);
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) > 0 AS added;
SELECT * FROM fairq.check_queue('whole');
DELETE FROM fairq.batch WHERE id = :batch;
SELECT regexp_replace(c, '\d+', 'N') AS check_queue FROM fairq.check_queue('whole') c;
SELECT fairq.reschedule(:batch);
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');
SELECT fairq.purge('parts');

-- maintain() deletes batches whose task is gone, and numbers that are no
-- longer used.
SELECT fairq.alter_queue('whole', retain => '0');
DELETE FROM fairq.archive;
SELECT fairq.maintain();
SELECT count(*) FROM fairq.batches;
SELECT count(*) FROM fairq.batch_delta;
SELECT * FROM fairq.check_queue('parts') UNION ALL SELECT * FROM fairq.check_queue('whole');

-- A blocked task counts as scheduled, and does not count as ready.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT fairq.close_batch(:batch);
SELECT ready, scheduled, running FROM fairq.queues WHERE queue = 'whole';
SELECT ready, scheduled FROM fairq.groups WHERE queue = 'whole' AND group_key = 'a';
SELECT count(*) FROM fairq.peek('whole');
CALL fairq.wait('whole', '10 seconds');
SELECT count(*) FROM fairq.pop('whole');

-- A purge also deletes the waiting tasks, although it changes them while it
-- deletes the tasks that they wait for.
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'whole';
SELECT fairq.create_batch('whole', 'a', on_success => true) AS batch \gset
SELECT count(fairq.enqueue('whole', 'a', batch => :batch)) FROM generate_series(1, 3);
SELECT fairq.enqueue('whole', 'b') AS first \gset
SELECT count(fairq.enqueue('whole', 'b', after => ARRAY[:first], after_any => true)) FROM generate_series(1, 3);
SELECT fairq.purge('whole', 'a'), fairq.purge('whole');
SELECT count(*) FROM fairq.tasks WHERE queue = 'whole';
SELECT fairq.drop_queue('whole', force => true);
SELECT count(*) FROM fairq.batch;
SELECT fairq.drop_queue('parts', force => true);

-- When the last taken task ends, so does the batch, which changes its waiting
-- task. This adds one to the 16 pending changes, so their array moves to get
-- more room. Fails if serve_task() in claim.c uses the array's old place.
SELECT fairq.create_queue('many');
SELECT fairq.create_batch('many', 'w') AS batch \gset
SELECT count(fairq.enqueue('many', 'g' || i, batch => :batch)) FROM generate_series(1, 16) i;
SELECT fairq.close_batch(:batch), fairq.reschedule(:batch, now() + interval '1 hour');
SELECT count(*) FROM fairq.take('many', 16);
SELECT * FROM fairq.check_queue('many');
SELECT fairq.drop_queue('many', force => true);
