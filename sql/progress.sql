-- A worker reports its progress, for the views and the next attempt.
--
-- Fails if put_claim() in pop.c does not return progress, a redriven task has
-- none (maintain.c), or a replaced one keeps it (fairq_task_change()).
\a \pset footer off
SET client_min_messages = warning;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('progress', concurrency => 1, retain => '1 hour');
SELECT fairq.enqueue('progress', 'a') AS task \gset
SELECT fairq.set_progress(:task, 1, '{"pages": 1}');
SELECT id = :task AS same, attempt, progress IS NULL AS none FROM fairq.pop('progress');
SELECT fairq.set_progress(:task, 1, '{"pages": 1}');
SELECT status, progress FROM fairq.tasks WHERE id = :task;
-- progress can be set any number of times in one transaction, but only by the
-- attempt that has the lease
BEGIN;
SELECT fairq.set_progress(:task, 1, '2'), fairq.set_progress(:task, NULL, '3');
SELECT fairq.set_progress(:task, 2, '4'), fairq.set_progress(:task, -1, '5');
SELECT progress FROM fairq.tasks WHERE id = :task;
SAVEPOINT s;
SELECT fairq.set_progress(:task, 1, '6');
ROLLBACK TO s;
COMMIT;
SELECT progress FROM fairq.tasks WHERE id = :task;

-- the task keeps its slot, also after a rollback of set_progress()
BEGIN;
SELECT fairq.set_progress(:task, 1, '7');
ROLLBACK;
SELECT fairq.enqueue('progress', 'a') AS other \gset
SELECT count(*) FROM fairq.pop('progress');
SELECT running FROM fairq.queues WHERE queue = 'progress';

-- progress stays when the task is returned, until it is set again; NULL
-- removes it
SELECT fairq.release(:task), progress FROM fairq.tasks WHERE id = :task;
SELECT progress FROM fairq.tasks WHERE id = :task;
SELECT fairq.set_progress(:task, 1, '8');
SELECT id = :other AS other FROM fairq.pop('progress');
SELECT fairq.set_progress(:other, 1, '{"done": true}'), fairq.complete(:other, 1);
SELECT fairq.set_progress(:other, 1, '9');
SELECT status, progress FROM fairq.tasks WHERE id = :other;
SELECT attempt, progress FROM fairq.pop('progress');
SELECT fairq.set_progress(:task, 2, NULL);
SELECT progress FROM fairq.tasks WHERE id = :task;

-- the worker of a cancelled task is notified
SELECT fairq.cancel(:task);
SELECT fairq.set_progress(:task, 2, '10');
SELECT progress FROM fairq.tasks WHERE id = :task;
SELECT fairq.fail(:task);

-- set_progress() changes no index and needs no space on another page
SELECT fairq.enqueue('progress', 'b') AS task \gset
SELECT count(*) FROM fairq.pop('progress');
VACUUM fairq.task;
SELECT pg_stat_force_next_flush();
SELECT n_tup_hot_upd AS hot, n_tup_upd AS all FROM pg_stat_user_tables
WHERE relid = 'fairq.task'::regclass \gset
SELECT fairq.set_progress(:task, 1, to_jsonb(i)) FROM generate_series(1, 5) i;
SELECT pg_stat_force_next_flush();
SELECT n_tup_upd - :all AS updates, n_tup_hot_upd - :hot AS hot FROM pg_stat_user_tables
WHERE relid = 'fairq.task'::regclass;

-- whatever ended the last attempt, the next attempt's claim returns the progress, even if
-- the progress is stored out of line
SELECT repeat(string_agg(md5(i::text), ''), 10) AS long FROM generate_series(1, 500) i \gset
SELECT fairq.set_progress(:task, 1, to_jsonb(:'long'::text)), fairq.fail(:task, 1, retry_in => '0');
SELECT attempt, progress = to_jsonb(:'long'::text) AS same FROM fairq.pop('progress', 1, '1 microsecond');
SELECT attempt, lapses, progress = to_jsonb(:'long'::text) AS same FROM fairq.pop('progress');
SELECT fairq.set_progress(:task, 3, '{"pages": 2}'), fairq.set_progress(:task, 2, '"a lost worker"');
SELECT fairq.fail(:task, 3, dead => true), fairq.redrive(:task);
BEGIN;
SELECT attempt, progress FROM fairq.take('progress');
SELECT fairq.release(:task, 4), progress FROM fairq.tasks WHERE id = :task;
SELECT progress FROM fairq.tasks WHERE id = :task;
ROLLBACK;
SELECT attempt, progress FROM fairq.pop('progress');

-- a task that is replaced loses its progress
SELECT fairq.complete(:task);
SELECT fairq.enqueue('progress', 'c', '"old"', dedup_key => 'k') AS task \gset
SELECT attempt, payload FROM fairq.pop('progress');
SELECT fairq.set_progress(:task, 1, '"of old"'), fairq.fail(:task, 1, retry_in => '0');
SELECT fairq.enqueue('progress', 'c', '"new"', dedup_key => 'k', replace => true) = :task AS same;
SELECT attempt, payload, progress FROM fairq.pop('progress');
SELECT fairq.set_progress(:task, 2, '5');

-- an unknown task, and a role without the privilege
SELECT fairq.set_progress(NULL, 1, '1'), fairq.set_progress(-1, 1, '1');
BEGIN READ ONLY;
SELECT fairq.set_progress(:task, 1, '1');
ROLLBACK;
CREATE ROLE fairq_stranger;
SET ROLE fairq_stranger;
SELECT fairq.set_progress(:task, 1, '1');
RESET ROLE;
DROP ROLE fairq_stranger;
SELECT progress FROM fairq.tasks WHERE id = :task;

SELECT * FROM fairq.check_queue('progress');
SELECT fairq.drop_queue('progress', true);
