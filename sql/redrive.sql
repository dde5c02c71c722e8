-- Failed tasks are redriven into another queue, group or priority.
--
-- Fails if the privilege manage is required for the target queue, too
-- (arg_target() in maintain.c). Fails if the target queue is searched for the
-- failed tasks' group (fairq_redrive()).
\a \pset footer off
SET client_min_messages = warning;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('redrive_a', max_attempts => 1), fairq.create_queue('redrive_b', concurrency => 1, in_order => true, max_attempts => 2);
CREATE FUNCTION pg_temp.failed(payload text, dedup_key text DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
	SELECT fairq.enqueue('redrive_a', left($1, 1), to_jsonb($1), 3, dedup_key => $2);
	SELECT fairq.fail(id, attempt, 'no ' || $1) FROM fairq.pop('redrive_a') WHERE payload = to_jsonb($1);
	SELECT id FROM fairq.tasks WHERE payload = to_jsonb($1) AND status = 'failed'
$$;
CREATE VIEW pg_temp.tasks AS
	SELECT payload #>> '{}' AS task, queue, group_key, priority, status, attempt, attempts_left, error
	FROM fairq.tasks WHERE queue LIKE 'redrive\__' ORDER BY id;

-- each option of a redrive works alone, and all of them work together
SELECT count(pg_temp.failed(p)) FROM unnest('{a1,a2,a3,a4,a5}'::text[]) p;
SELECT array_agg(id ORDER BY id) AS ids FROM fairq.tasks WHERE queue = 'redrive_a' \gset
SELECT fairq.redrive((:'ids'::bigint[])[1], 'redrive_b'), fairq.redrive((:'ids'::bigint[])[2], to_group => 'x'),
	fairq.redrive((:'ids'::bigint[])[3], to_priority => 0), fairq.redrive((:'ids'::bigint[])[4], 'redrive_b', 9, 'y'),
	fairq.redrive((:'ids'::bigint[])[5]);
SELECT * FROM pg_temp.tasks;
SELECT payload, queue, group_key, attempt, priority FROM fairq.pop('{redrive_a,redrive_b}'::text[], 10);
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue LIKE 'redrive\__';

-- the tasks of a group are redriven in the order of their failures
SELECT count(pg_temp.failed(p)) FROM unnest('{b1,c1,b2,c2,b3}'::text[]) p;
SELECT fairq.redrive('redrive_a', 'b', 2, to_queue => 'redrive_b', to_group => 'z'), fairq.redrive('redrive_a', 'c', to_priority => 1);
SELECT * FROM pg_temp.tasks;
SELECT fairq.redrive('redrive_a', 'c', to_queue => 'redrive_b');
SELECT fairq.redrive('redrive_a', 'z', to_queue => 'redrive_b');
-- failed tasks of all groups return to the same queue
SELECT fairq.redrive('redrive_a', to_queue => 'redrive_a', to_group => 'all');
SELECT task, group_key FROM pg_temp.tasks WHERE queue = 'redrive_a';
SELECT queue, queued, running FROM fairq.stats WHERE queue LIKE 'redrive\__' ORDER BY 1;
SELECT fairq.purge('redrive_a'), fairq.purge('redrive_b');

-- after a rollback the task is still failed
SELECT pg_temp.failed('d1') AS task \gset
BEGIN;
SELECT fairq.redrive(:task, 'redrive_b');
ROLLBACK;
SELECT task, queue, status FROM pg_temp.tasks;

-- the dedup_key applies in the target queue
SELECT pg_temp.failed('e1', 'k') AS task \gset
SELECT fairq.enqueue('redrive_a', 'e', '"in a"', dedup_key => 'k') > 0 AS ok;
SELECT fairq.redrive(:task), fairq.redrive(:task, 'redrive_b'), fairq.find('redrive_b', 'k') = :task AS has_it;
SELECT fairq.enqueue('redrive_b', 'e', dedup_key => 'k') = :task AS the_same;
SELECT fairq.purge('redrive_a'), pg_temp.failed('e2', 'k') AS task \gset
SELECT fairq.redrive(:task, 'redrive_b'), fairq.redrive('redrive_a', 'e', to_queue => 'redrive_b'), fairq.redrive(:task);

-- privileges: manage on the queue of the failed tasks, enqueue on the target queue
CREATE ROLE fairq_mover;
SELECT fairq.grant_queue('redrive_a', 'fairq_mover', 'manage');
SET ROLE fairq_mover;
SELECT fairq.redrive(:task, 'redrive_b');
SELECT fairq.redrive('redrive_a', to_queue => 'redrive_b');
RESET ROLE;
SELECT fairq.grant_queue('redrive_b', 'fairq_mover', 'enqueue');
SET ROLE fairq_mover;
SELECT fairq.redrive('redrive_a', to_queue => 'redrive_b');
SELECT fairq.redrive('redrive_b', to_queue => 'redrive_a');
RESET ROLE;
SELECT task, queue FROM pg_temp.tasks WHERE task = 'd1';

-- invalid arguments
SELECT fairq.redrive('redrive_a', to_queue => 'no such queue');
SELECT fairq.redrive('redrive_a', to_priority => 10);
SELECT fairq.redrive(0, to_priority => -1);
SELECT pg_temp.failed('f1') AS task \gset
SELECT fairq.redrive('redrive_a', to_group => repeat('x', 1025));
SELECT fairq.redrive(:task, to_group => '');
SELECT fairq.redrive(0, 'redrive_b'), fairq.redrive(NULL::bigint, 'redrive_b');
SELECT * FROM fairq.check_queue('redrive_a') UNION ALL SELECT * FROM fairq.check_queue('redrive_b');
SELECT fairq.drop_queue('redrive_a', true), fairq.drop_queue('redrive_b', true);
DROP ROLE fairq_mover;
