-- After: a task that waits for other tasks to end.
--
-- Fails if no end makes a check due, or if a check does not start the next
-- check. Fails if a task that is already due hides the tasks behind it. Fails
-- if the status of an archived predecessor does not count. Fails if a task of a
-- dropped queue counts as completed. Fails if the rows of a task stay when its
-- wait has ended. Fails if a purge or cancel_batch does not check again for
-- tasks that moved. Fails if a turn ends after a hundred checks. Fails if a
-- search for unfinished tasks always starts from the same side. Fails if the
-- transaction that has taken a task treats it as ended, or if its commit makes
-- no check due.
\a \t
SET client_min_messages = warning;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('first', max_attempts => 1), fairq.create_queue('then', retain => '1 hour');

-- The task waits for two other tasks, in any queue. Their ends make it ready at
-- once.
SELECT fairq.enqueue('first', 'a') AS a, fairq.enqueue('first', 'b') AS b \gset
SELECT fairq.enqueue('then', 'g', '{"n": 1}', headers => '{"trace": 7}', after => ARRAY[:a, :b, :a]) AS c \gset
SELECT status, reason, waits_for = ARRAY[:a, :b]::bigint[] AS both FROM fairq.tasks WHERE id = :c;
SELECT * FROM fairq.check_queue('then');
SELECT fairq.reschedule(:c);
SELECT count(*) FROM fairq.pop('then');
SELECT id = :a AS a, fairq.complete(id) FROM fairq.pop('first');
SELECT count(*) FROM fairq.pop('then');
SELECT waits_for = ARRAY[:b]::bigint[] AS b FROM fairq.tasks WHERE id = :c;
SELECT id = :b AS b, fairq.complete(id) FROM fairq.pop('first');
SELECT id = :c AS same, payload, headers, attempt FROM fairq.pop('then');
SELECT status, reason, waits_for FROM fairq.tasks WHERE id = :c;
SELECT count(*) FROM fairq.dependency;
SELECT fairq.complete(:c);

-- Each end without success cancels the waiting task, and then the tasks that
-- wait for it. A retry is not an end. A later redrive of a predecessor does not
-- bring the task back.
CREATE FUNCTION pg_temp.ends(ids bigint[]) RETURNS TABLE (status text, error text)
	LANGUAGE sql AS $$
	SELECT status, regexp_replace(error, '\d+', 'N') FROM fairq.tasks WHERE id = ANY (ids) ORDER BY id
$$;
SELECT fairq.enqueue('first', 'a', max_attempts => 2) AS a \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a]) AS b \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:b]) AS c \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:c, :a], after_any => true) AS d \gset
SELECT fairq.fail(id, error => 'no', retry_in => '0') FROM fairq.pop('first');
SELECT count(*) FROM fairq.pop('then', 9);
SELECT fairq.fail(id, error => 'no') FROM fairq.pop('first');
-- a single pop ends the waits of both tasks
SELECT id = :d AS d, fairq.complete(id) FROM fairq.pop('then', 9);
SELECT * FROM pg_temp.ends(ARRAY[:b, :c, :d]);
SELECT error = format('task %s did not succeed', :a) AS names FROM fairq.tasks WHERE id = :b;
SELECT fairq.redrive(:a);
SELECT fairq.complete(id) FROM fairq.pop('first');
SELECT count(*) FROM fairq.pop('then', 9);
SELECT status FROM fairq.tasks WHERE id = :b;

CREATE FUNCTION pg_temp.after_end(how text) RETURNS TABLE (status text, error text)
	LANGUAGE plpgsql AS $$
	DECLARE
		p bigint := fairq.enqueue('first', 'p', expires_at => CASE how WHEN 'expire' THEN now() END);
		t bigint := fairq.enqueue('then', 'g', after => ARRAY[p]);
		u bigint := fairq.enqueue('then', 'g', after => ARRAY[p], after_any => true);
	BEGIN
		IF how = 'cancel' THEN PERFORM fairq.cancel(p);
		ELSIF how = 'cancel a running one' THEN
			PERFORM FROM fairq.pop('first');
			PERFORM fairq.cancel(p), fairq.complete(p);
		ELSIF how = 'purge' THEN PERFORM fairq.purge('first');
		ELSIF how = 'expire' THEN PERFORM FROM fairq.pop('first');
		ELSIF how = 'fail what was taken' THEN
			PERFORM fairq.fail(id) FROM fairq.take('first');
		ELSIF how = 'take' THEN PERFORM FROM fairq.take('first');
		ELSIF how = 'delete by SQL' THEN DELETE FROM fairq.task WHERE id = p;
		ELSE
			PERFORM fairq.drop_queue('first', true), fairq.create_queue('first', max_attempts => 1);
		END IF;
		PERFORM fairq.reschedule(t), fairq.reschedule(u);
		PERFORM fairq.complete(id) FROM fairq.pop('then', 2);
		RETURN QUERY SELECT * FROM pg_temp.ends(ARRAY[t, u]);
	END
$$;
SELECT how, e.* FROM unnest('{cancel,cancel a running one,purge,expire,fail what was taken,take,delete by SQL,drop_queue}'::text[]) how,
	pg_temp.after_end(how) e;
-- the taken task has ended with the commit
SELECT count(fairq.complete(id)) FROM fairq.pop('then', 9);
SELECT count(*) FROM fairq.dependency;

-- The status of an archived predecessor counts. An enqueue fails if a finished
-- predecessor is not in the archive.
SELECT fairq.enqueue('then', 'g') AS done \gset
SELECT fairq.complete(id) FROM fairq.pop('then');
SELECT fairq.enqueue('then', 'g') AS dead \gset
SELECT fairq.fail(id, dead => true) FROM fairq.pop('then');
SELECT fairq.enqueue('then', 'g', after => ARRAY[:done]) AS ready \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:done, :dead]) AS cancelled \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:dead], after_any => true) AS anyway \gset
SELECT id IN (:ready, :anyway) AS right, fairq.complete(id) FROM fairq.pop('then', 9);
SELECT * FROM pg_temp.ends(ARRAY[:ready, :cancelled, :anyway]);
SELECT fairq.enqueue('first', 'a') AS gone \gset
SELECT fairq.complete(id) FROM fairq.pop('first');
SELECT fairq.enqueue('then', 'g', after => ARRAY[:done, :gone]);
SELECT fairq.enqueue_batch('then', '{g,h}', '{1,2}', after => ARRAY[:gone]);

-- Bad input changes nothing. The call refuses tasks that do not exist, tasks
-- of another shard, and the task itself, whose id is the next one.
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a + 1]);
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a, 8796093022209]);
SELECT fairq.enqueue('then', 'g', after => '{0}', after_any => true);
SELECT fairq.enqueue('then', 'g', after => '{-1}');
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a, NULL]);
SELECT fairq.enqueue('then', 'g', after => ARRAY[ARRAY[:a]]);
SELECT fairq.enqueue('then', 'g', after => array_agg(n)) FROM generate_series(1, 10000) n;
SELECT fairq.enqueue('then', 'g', after => array_agg(n)) FROM generate_series(1, 1001) n;
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a], run_at => now());
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a], delay => '1 s');
SELECT fairq.enqueue('then', 'g', dedup_key => 'k', after => ARRAY[:a], replace => true);
SELECT fairq.enqueue_or_find('then', 'g', after => ARRAY[:a], run_at => now());
SELECT fairq.enqueue_batch('then', '{g}', '{1}', after => ARRAY[:a], run_at => now());
SELECT fairq.enqueue_batch('then', '{g}', '{1}', after => ARRAY[:a], run_ats => ARRAY[now()]);
SELECT fairq.enqueue_batch('then', '{g}', '{1}', after => ARRAY[:a], delay => '0');
SELECT fairq.create_batch('then', 'g') AS batch \gset
SELECT fairq.enqueue('first', 'a', batch => :batch, after => ARRAY[:a, :batch]);
SELECT fairq.enqueue_batch('first', '{a}', '{1}', batch => :batch, after => ARRAY[:batch]);
SELECT fairq.cancel(:batch);
SELECT count(*) FROM fairq.dependency;
SELECT count(*) FROM fairq.live_tasks;

-- With an empty array the task waits for nothing.
SELECT count(fairq.enqueue('then', 'g', after => '{}', delay => '0'));
SELECT fairq.complete(id) FROM fairq.pop('then');

-- A rolled back enqueue or end has no effect.
BEGIN;
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a]) AS kept \gset
SAVEPOINT s;
SELECT count(fairq.enqueue('then', 'g', after => ARRAY[:a]));
ROLLBACK TO s;
SELECT fairq.cancel(:a);
ROLLBACK TO s;
SELECT waiting = :kept AS kept, status FROM fairq.dependency;
COMMIT;
BEGIN;
SELECT fairq.fail(id) FROM fairq.pop('first');
ROLLBACK;
SELECT fairq.reschedule(:kept);
SELECT count(*) FROM fairq.pop('then');
SELECT fairq.complete(id) FROM fairq.pop('first');
SELECT id = :kept AS kept, fairq.complete(id) FROM fairq.pop('then');

-- One transaction adds both tasks, and the second task waits for the first.
BEGIN;
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a]) AS b \gset
SELECT count(*) FROM fairq.pop('then');
SELECT fairq.complete(id) FROM fairq.pop('first');
SELECT id = :b AS b, fairq.complete(id) FROM fairq.pop('then');
COMMIT;

-- A task that is found by its key still waits for the same tasks.
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT fairq.enqueue('then', 'g', dedup_key => 'k') AS k \gset
SELECT id = :k AS found, added FROM fairq.enqueue_or_find('then', 'g', dedup_key => 'k', after => ARRAY[:a]);
SELECT count(*) FROM fairq.dependency;
SELECT fairq.complete(id) FROM fairq.pop('then');

-- The waiting task can be cancelled, can expire, and can be in a batch.
SELECT fairq.create_batch('then', 'all', on_success => true) AS batch \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a]) AS x \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a], expires_at => now()) AS y \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a], batch => :batch) AS z \gset
SELECT fairq.cancel(:x), fairq.close_batch(:batch), fairq.maintain('then');
SELECT * FROM pg_temp.ends(ARRAY[:x, :y, :z, :batch]);
SELECT waiting = :z AS z FROM fairq.dependency;
SELECT fairq.cancel(:a);
SELECT count(*) FROM fairq.pop('then');
SELECT count(*) FROM fairq.pop('then');
SELECT * FROM pg_temp.ends(ARRAY[:z, :batch]);
SELECT error = format('task %s did not succeed', :z) AS names FROM fairq.tasks WHERE id = :batch;

-- SQL removes rows: a dependency, then the task that waits.
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT count(*) FROM fairq.enqueue_batch('then', '{g,g}', '{1,2}', after => ARRAY[:a]);
DELETE FROM fairq.dependency WHERE waiting = (SELECT min(waiting) FROM fairq.dependency);
SELECT regexp_replace(check_queue, '\d+', 'N') FROM fairq.check_queue('then');
SELECT fairq.reschedule(id) FROM fairq.tasks WHERE queue = 'then' AND status = 'blocked';
SELECT payload, fairq.complete(id) FROM fairq.pop('then', 9);
DELETE FROM fairq.task WHERE blocked;
SELECT count(*) FROM fairq.dependency;
SELECT fairq.maintain();
SELECT count(*) FROM fairq.dependency;
SELECT fairq.complete(id) FROM fairq.pop('first');

-- A taken predecessor ends at the commit, which makes the check due.
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a]) AS b \gset
SELECT count(*) FROM fairq.take('first');
SELECT id = :b AS b, fairq.complete(id) FROM fairq.pop('then');

-- Before the commit the taken task can be put back. So the waiting task stays
-- blocked. After a check it stays due for another check.
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT fairq.enqueue('first', 'g', after => ARRAY[:a]) AS b \gset
SELECT fairq.enqueue('first', 'g', after => ARRAY[:b], after_any => true) AS c \gset
BEGIN;
SAVEPOINT s;
SELECT id = :a AS a FROM fairq.take('first', 9);
ROLLBACK TO s;
SELECT id = :a AS a FROM fairq.take('first', 9);
SELECT count(*) FROM fairq.take('first', 9);
SAVEPOINT s;
SELECT fairq.release(:a, 1);
SELECT id = :a AS a, attempt FROM fairq.take('first', 9);
SELECT fairq.fail(:a, 2, dead => true);
SELECT id = :c AS c FROM fairq.take('first', 9);
ROLLBACK TO s;
SELECT count(*) FROM fairq.take('first', 9);
SELECT status FROM fairq.live_tasks WHERE id = :b;
COMMIT;
SELECT id = :b AS b FROM fairq.take('first', 9);
SELECT id = :c AS c FROM fairq.take('first', 9);

-- Many tasks wait for one task. No call changes more than a hundred of them,
-- and none is forgotten.
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT count(*) FROM fairq.enqueue_batch('then', array_fill('g'::text, '{250}'), array_fill('1'::jsonb, '{250}'), after => ARRAY[:a]);
SELECT count(fairq.reschedule(id, 'infinity')) FROM fairq.live_tasks WHERE status = 'blocked';
SELECT fairq.complete(id) FROM fairq.pop('first');
SELECT count(*) FROM fairq.live_tasks WHERE run_at < 'infinity';
SELECT sum(done) FROM generate_series(1, 9) n,
	LATERAL (SELECT count(fairq.complete(id)) AS done FROM fairq.pop('then', 100 + n)) p;
SELECT count(*) FROM fairq.live_tasks;

-- A waiting task that is already due for a check hides no other waiting task.
-- The end of the predecessor finds both waiting tasks, and so does a pop of
-- another queue.
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a]) AS x \gset
SELECT count(*) FROM fairq.enqueue_batch('first', array_fill('g'::text, '{99}'), array_fill('1'::jsonb, '{99}'), after => ARRAY[:a]);
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a]) AS y \gset
SELECT count(fairq.reschedule(id, CASE WHEN id > :x THEN 'infinity' ELSE now() END::timestamptz)) FROM fairq.live_tasks WHERE status = 'blocked';
SELECT fairq.complete(:a) FROM fairq.pop('first');
SELECT count(*), max(id) = :y AS y FROM fairq.live_tasks WHERE run_at = 'infinity';
SELECT id = ANY (ARRAY[:x, :y]) AS ok, fairq.complete(id) FROM fairq.pop('then', 9);
SELECT fairq.purge('first');

-- One task waits for many tasks. The task with the highest id ends first.
SELECT array_agg(fairq.enqueue('first', 'a', payload => to_jsonb(n))) AS many FROM generate_series(1, 1000) n \gset
SELECT fairq.enqueue('then', 'g', after => :'many') AS last \gset
SELECT count(fairq.reschedule(:last)), count(p.*) FROM fairq.pop('first', 1000) p;
-- completing a task reads few of the other tasks, in whatever order the tasks are completed
BEGIN;
SELECT count(fairq.complete(id)) FROM (SELECT id FROM unnest(:'many'::bigint[]) WITH ORDINALITY m(id, n) WHERE n > 1 ORDER BY n DESC) m;
SELECT pg_stat_get_xact_numscans('fairq.task_pkey'::regclass) < 10000 AS few;
COMMIT;
SELECT count(*) FROM fairq.pop('then');
SELECT waits_for = (:'many'::bigint[])[1:1] AS first FROM fairq.tasks WHERE id = :last;
SELECT fairq.complete((:'many'::bigint[])[1]);
SELECT id = :last AS last, fairq.complete(id) FROM fairq.pop('then');

-- A task can expire while it waits.
SELECT fairq.enqueue('first', 'a') AS a \gset
SELECT fairq.enqueue('then', 'g', after => ARRAY[:a], expires_at => now()) AS e \gset
SELECT status, waits_for = ARRAY[:a]::bigint[] AS waits FROM fairq.tasks WHERE id = :e;
SELECT fairq.cancel(:e);

-- The group's ready task is served, even if many checks find that their tasks
-- are still blocked.
SELECT count(*) FROM fairq.enqueue_batch('then', array_fill('g'::text, '{250}'), array_fill('1'::jsonb, '{250}'), after => ARRAY[:a]);
SELECT count(fairq.reschedule(id)) FROM fairq.live_tasks WHERE status = 'blocked';
SELECT count(fairq.enqueue('then', 'g', '"ready"'));
SELECT payload, fairq.complete(id) FROM fairq.pop('then');
SELECT fairq.purge('first'), fairq.purge('then');

-- A purge and the cancellation of a batch also remove the tasks that they make
-- due. Here one such task waits for another task, and one waits for a batch.
SELECT fairq.create_batch('first', 'a') AS batch \gset
SELECT fairq.enqueue('first', 'a', delay => '1 h', batch => :batch) AS a \gset
SELECT fairq.enqueue('first', 'a', after => ARRAY[:a], after_any => true) AS b \gset
SELECT fairq.close_batch(:batch), count(p.*) FROM fairq.pop('first') p;
SELECT fairq.reschedule(:batch, now() + '2 h'), fairq.reschedule(:b, now() + '2 h');
BEGIN;
SELECT fairq.purge('first');
SELECT count(*) FROM fairq.pop('first', 9);
ROLLBACK;
SELECT fairq.purge('first', 'a');
SELECT count(*) FROM fairq.pop('first', 9);
SELECT fairq.create_batch('first', 'a') AS batch \gset
SELECT fairq.enqueue('first', 'a', batch => :batch) AS a \gset
SELECT fairq.enqueue('first', 'a', batch => :batch, after => ARRAY[:a], after_any => true) AS b \gset
SELECT fairq.cancel_batch(:batch);
SELECT id = :batch AS batch, fairq.complete(id) FROM fairq.pop('first', 9);

SELECT count(*) FROM fairq.dependency;
SELECT * FROM fairq.check_queue('first') UNION ALL SELECT * FROM fairq.check_queue('then');
SELECT fairq.drop_queue('first'), fairq.drop_queue('then', true);
-- numbers of the batch whose task was purged
SELECT fairq.maintain();
