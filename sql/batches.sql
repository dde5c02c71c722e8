-- complete_batch, fail_batch, release_batch and extend_batch act on each task
-- as the call for a single task does. They return the tasks that the worker
-- must know about: lost, cancelled and unknown ones.
--
-- Fails if a task counts twice when its id is given twice (find_item() in
-- finish.c). Fails if lost tasks are returned in the order of their ids. Fails
-- if cancelled tasks are not returned. Fails if errors are assigned in the
-- order of the ids. Fails if the lease of a cancelled task begins again.
\a \pset footer off
SET client_min_messages = warning;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('batches', retain => '1 day', max_attempts => 2, backoff => '1 hour');
SELECT fairq.create_queue('others', lease => '1 minute');
SELECT array_agg(id ORDER BY n) AS ids FROM fairq.enqueue_batch('batches',
	'{a,b,c,d,e,f}', '{1,2,3,4,5,6}') WITH ORDINALITY t(id, n) \gset
SELECT fairq.enqueue('others', 'o') AS other \gset

CREATE FUNCTION pg_temp.nth(ids bigint[], wanted bigint[]) RETURNS int[]
	LANGUAGE sql AS $$
	SELECT coalesce(array_agg(coalesce(array_position(ids, id), id::int) ORDER BY n), '{}')
	FROM unnest(wanted) WITH ORDINALITY t(id, n)
$$;
CREATE FUNCTION pg_temp.tasks() RETURNS TABLE (payload jsonb, status text,
	attempt int, error text, in_minutes numeric, lease_minutes numeric)
	LANGUAGE sql AS $$
	SELECT payload, status, attempt, error,
		round(extract(epoch FROM run_at - clock_timestamp()) / 60),
		round(extract(epoch FROM lease_until - clock_timestamp()) / 60)
	FROM fairq.tasks WHERE queue = 'batches' ORDER BY payload
$$;

-- no task has a lease yet
SELECT pg_temp.nth(:'ids', fairq.extend_batch(:'ids'));
SELECT pg_temp.nth(:'ids', fairq.fail_batch(:'ids'));
SELECT pg_temp.nth(:'ids', fairq.release_batch(:'ids'));

SELECT count(*) FROM fairq.pop('batches', 6);
SELECT count(*) FROM fairq.pop('others');

-- leases of two queues, in any order; the default is that of each task's queue
SELECT pg_temp.nth(:'ids', fairq.extend_batch(ARRAY[0] || :other::bigint || (:'ids'::bigint[])[2:3], NULL, '30 minutes'));
SELECT payload, lease_minutes FROM pg_temp.tasks();
SELECT pg_temp.nth(:'ids', fairq.extend_batch((:'ids'::bigint[])[2:2] || :other::bigint));
SELECT payload, lease_minutes FROM pg_temp.tasks() WHERE payload = '2';
SELECT round(extract(epoch FROM lease_until - clock_timestamp()) / 60) FROM fairq.tasks WHERE id = :other;

-- no lease is extended with a wrong attempt number, or for a cancelled task
SELECT fairq.cancel((:'ids'::bigint[])[4]);
SELECT pg_temp.nth(:'ids', fairq.extend_batch(ARRAY[(:'ids'::bigint[])[5], (:'ids'::bigint[])[4], (:'ids'::bigint[])[1], (:'ids'::bigint[])[2]], '{2,1,0,1}', '40 minutes'));
SELECT payload, lease_minutes FROM pg_temp.tasks();

-- each task has its own error or no error; a cancelled task ends, and is
-- returned
SELECT pg_temp.nth(:'ids', fairq.fail_batch(ARRAY[(:'ids'::bigint[])[4], (:'ids'::bigint[])[2], (:'ids'::bigint[])[1]], '{1,1,1}', '{four,two,NULL}', '50 minutes'));
SELECT * FROM pg_temp.tasks();
SELECT pg_temp.nth(:'ids', fairq.fail_batch((:'ids'::bigint[])[3:4], errors => '{three,four}', retry_in => '0'));
SELECT id = (:'ids'::bigint[])[3] AS third, attempt FROM fairq.pop('batches');
SELECT pg_temp.nth(:'ids', fairq.fail_batch((:'ids'::bigint[])[3:3], '{2}', '{again}', '0'));
SELECT * FROM pg_temp.tasks();

-- if a batch names a task twice, the second end has no effect, but extend begins the lease
-- twice
SELECT pg_temp.nth(:'ids', fairq.extend_batch((:'ids'::bigint[])[5:6] || (:'ids'::bigint[])[5:6], lease => '3 hours'));
SELECT pg_temp.nth(:'ids', fairq.release_batch(ARRAY[(:'ids'::bigint[])[6], (:'ids'::bigint[])[5], (:'ids'::bigint[])[6]], delay => '20 minutes'));
SELECT * FROM pg_temp.tasks();

SELECT fairq.fail_batch('{}'), fairq.release_batch('{}'), fairq.extend_batch('{}');
SELECT * FROM fairq.check_queue('batches');
SELECT enqueued, popped, retried, failed, released, cancelled FROM fairq.queues WHERE queue = 'batches';

-- complete_batch: each task has its own result or no result; a cancelled task
-- is returned, ends as cancelled, and keeps its result
SELECT array_agg(id ORDER BY n) AS done FROM fairq.enqueue_batch('batches',
	'{h,i,j,k}', '{11,12,13,14}') WITH ORDINALITY t(id, n) \gset
SELECT count(*) FROM fairq.pop('batches', 100);
SELECT fairq.cancel((:'done'::bigint[])[3]);
SELECT payload, status, cancelled FROM fairq.tasks WHERE id = ANY (:'done') ORDER BY id;
SELECT pg_temp.nth(:'done', fairq.complete_batch(ARRAY[(:'done'::bigint[])[4], (:'done'::bigint[])[3], -1, (:'done'::bigint[])[1]],
	'{1,1,1,2}', '{"\"d\"","\"c\"",1,2}', took => '{1 s,1 s,1 s,1 s}'));
SELECT pg_temp.nth(:'done', fairq.complete_batch((:'done'::bigint[])[1:2], results => ARRAY[NULL, 'null']::jsonb[]));
SELECT payload, status, cancelled, result, result IS NULL AS none FROM fairq.tasks WHERE id = ANY (:'done') ORDER BY id;
SELECT fairq.complete_batch('{1,2}', NULL, '{1}');
SELECT fairq.complete_batch('{1,2}', NULL, '{{1,2}}');
SELECT fairq.complete_batch('{}', NULL, '{}');

-- a call that fails changes nothing
SELECT fairq.enqueue('batches', 'z') AS z \gset
SELECT count(*) FROM fairq.pop('batches');
BEGIN;
SAVEPOINT s;
SELECT pg_temp.nth(:'ids', fairq.release_batch(ARRAY[:z::bigint]));
ROLLBACK TO s;
SELECT pg_temp.nth(:'ids', fairq.extend_batch(ARRAY[:z::bigint], lease => '50 minutes'));
COMMIT;
SELECT fairq.fail_batch(NULL);
SELECT fairq.fail_batch(ARRAY[:z, NULL]);
SELECT fairq.fail_batch(ARRAY[:z], '{1,2}');
SELECT fairq.fail_batch(ARRAY[:z], '{NULL}');
SELECT fairq.fail_batch(ARRAY[:z], NULL, '{a,b}');
SELECT fairq.fail_batch(ARRAY[:z], retry_in => '-1 s');
SELECT fairq.fail_batch(ARRAY[ARRAY[:z::bigint]]);
SELECT fairq.release_batch(NULL);
SELECT fairq.release_batch(ARRAY[:z], delay => '200 years');
SELECT fairq.release_batch(ARRAY[:z], '{}');
SELECT fairq.extend_batch(NULL);
SELECT fairq.extend_batch(ARRAY[:z], lease => '0');
SELECT fairq.extend_batch('{}', lease => '-1 s');
BEGIN READ ONLY;
SELECT fairq.fail_batch(ARRAY[:z]);
ROLLBACK;
BEGIN READ ONLY;
SELECT fairq.release_batch(ARRAY[:z]);
ROLLBACK;
BEGIN READ ONLY;
SELECT fairq.extend_batch(ARRAY[:z]);
ROLLBACK;
SELECT status, round(extract(epoch FROM lease_until - clock_timestamp()) / 60) AS minutes
FROM fairq.tasks WHERE id = :z;

-- for a role without the privilege to work on the queue, all tasks count as
-- lost
CREATE ROLE regress_fairq_batches;
SET ROLE regress_fairq_batches;
SELECT fairq.fail_batch(ARRAY[:z]) = ARRAY[:z::bigint] AS fail,
	fairq.release_batch(ARRAY[:z]) = ARRAY[:z::bigint] AS release,
	fairq.extend_batch(ARRAY[:z]) = ARRAY[:z::bigint] AS extend;
RESET ROLE;
DROP ROLE regress_fairq_batches;
SELECT fairq.drop_queue('batches', true), fairq.drop_queue('others', true);
