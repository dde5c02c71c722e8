-- Batches: a task that waits for the end of others.
--
-- Broken on purpose to see it fail: ends were not counted (fairq_finish() in outcome.c), a
-- batch stayed open without its task, and no end made a look due.
\a \pset footer off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS fairq;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('parts'), fairq.create_queue('whole', retain => '1 hour');

-- The task waits until its batch is closed and all tasks have ended.  Its headers
-- have the numbers of their ends.
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
-- several looks change nothing but the time of the next one
SELECT fairq.reschedule(:batch);
SELECT id = :batch AS same, payload, headers, batch, attempt FROM fairq.pop('whole');
SELECT fairq.complete(:batch);
SELECT status, completed, failed, cancelled, expired, purged FROM fairq.batches WHERE id = :batch;
SELECT count(*) FROM fairq.batch_delta;

-- A closed batch without a task is finished at once.  It takes no more tasks, as one
-- that does not exist.
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

-- Rolled back, released, retried, replaced, rescheduled and found tasks: one counts until
-- its end, and once.
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
-- a pop that is rolled back has not looked, and the next one looks again
SELECT fairq.reschedule(:batch);
BEGIN;
SELECT count(*) FROM fairq.pop('whole');
ROLLBACK;
SELECT status, headers FROM fairq.tasks WHERE id = :batch;
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');

-- With on_success, the first other end fails the task that waits.  A failed task that is
-- redriven before a look is none.
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
-- it is of no batch any more if it is redriven now
SELECT fairq.redrive(:x), fairq.close_batch(:batch);
SELECT batch, fairq.complete(id) FROM fairq.pop('parts');
-- all succeed
SELECT fairq.create_batch('whole', 'a', on_success => true) AS batch \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) > 0 AS added;
SELECT fairq.close_batch(:batch), fairq.complete(id) FROM fairq.pop('parts');
SELECT headers, fairq.complete(id) FROM fairq.pop('whole');

-- The last end makes the next look due, which else would never come.  So does the first
-- one without success, if all have to succeed.
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

-- A pop that ends the last task of a batch returns the task that waits for it.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT count(fairq.enqueue('whole', 'x', expires_at => now(), batch => :batch)) FROM generate_series(1, 2);
SELECT fairq.close_batch(:batch), fairq.reschedule(:batch, 'infinity');
SELECT id = :batch AS same, headers, fairq.complete(id) FROM fairq.pop('whole');
-- The commit of a take is the end of the task.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT fairq.enqueue('parts', 'x', batch => :batch) > 0 AS added;
SELECT fairq.close_batch(:batch), fairq.reschedule(:batch, 'infinity');
SELECT count(*) FROM fairq.take('parts');
SELECT id = :batch AS same, fairq.complete(id) FROM fairq.pop('whole');

-- Batches in batches: the task that waits is one of another batch.
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

-- cancel_batch() cancels what is not running.  A batch is abandoned with its task.
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

-- Rows that SQL changes, and queues that are dropped.
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

-- maintain() forgets batches whose task is gone, and numbers that nobody asks for.
SELECT fairq.alter_queue('whole', retain => '0');
DELETE FROM fairq.archive;
SELECT fairq.maintain();
SELECT count(*) FROM fairq.batches;
SELECT count(*) FROM fairq.batch_delta;
SELECT * FROM fairq.check_queue('parts') UNION ALL SELECT * FROM fairq.check_queue('whole');

-- A blocked task is scheduled in the numbers, and does not wait for service.
SELECT fairq.create_batch('whole', 'a') AS batch \gset
SELECT fairq.close_batch(:batch);
SELECT ready, scheduled, running FROM fairq.queues WHERE queue = 'whole';
SELECT ready, scheduled FROM fairq.groups WHERE queue = 'whole' AND group_key = 'a';
SELECT count(*) FROM fairq.peek('whole');
CALL fairq.wait('whole', '10 seconds');
SELECT count(*) FROM fairq.pop('whole');

-- A purge also deletes the tasks that wait, although it changes them while it
-- deletes the ones that they wait for.
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
