-- enqueue_batch() takes a priority and a time for each task.
--
-- Fails if the time of one task also applies to later tasks of the batch
-- (put_off() in enqueue.c).
\a \t
\set VERBOSITY sqlstate

CREATE FUNCTION pg_temp.pop(n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('batch_each', n) $$;
CREATE VIEW pg_temp.stand AS
	SELECT payload, priority, status, CASE WHEN isfinite(run_at) THEN round(extract(epoch FROM run_at - clock_timestamp()) / 60) END AS minutes
	FROM fairq.tasks WHERE queue = 'batch_each' ORDER BY id;
SELECT fairq.create_queue('batch_each', notify => true);
SELECT fairq.maintain('batch_each');

SELECT count(*) FROM fairq.enqueue_batch('batch_each', '{a,a,b,a,b}', '{1,2,3,4,5}', priorities => '{2,0,9,0,0}');
SELECT * FROM pg_temp.stand;
SELECT pg_temp.pop();
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'batch_each';
SELECT count(*) FROM fairq.enqueue_batch('batch_each', '{a,a,b,a,b,a}', '{1,2,3,4,5,6}',
	run_ats => ARRAY[NULL, now() + interval '1 hour', now(), '-infinity', 'infinity', NULL]);
SELECT * FROM pg_temp.stand;
SELECT queued, scheduled FROM fairq.stats WHERE queue = 'batch_each';
SELECT pg_temp.pop();
SELECT fairq.purge('batch_each');
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'batch_each';
-- both arrays, with keys, costs and headers; a task that is already queued
-- does not change
SELECT fairq.enqueue('batch_each', 'a', '"old"', 4, dedup_key => 'k') AS old \gset
SELECT id = :old AS old FROM fairq.enqueue_batch('batch_each', '{a,b,c}', '{1,2,3}', dedup_keys => '{k,NULL,l}', costs => '{1,2,3}',
	priorities => '{1,2,3}', run_ats => ARRAY['infinity', NULL, now() + interval '1 day'], headers => ARRAY['1', NULL, '3']::jsonb[]) id;
SELECT payload, priority, status, cost, headers, run_at > now() AS later FROM fairq.tasks WHERE queue = 'batch_each' ORDER BY id;
SELECT fairq.purge('batch_each');
-- the batch has more tasks than fairq writes at once
SELECT count(*) FROM fairq.enqueue_batch('batch_each', array_fill('a'::text, ARRAY[1000]), (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 1000) i),
	priorities => (SELECT array_agg(i % 10) FROM generate_series(1, 1000) i),
	run_ats => (SELECT array_agg(CASE WHEN i % 3 = 0 THEN now() + i * interval '1 hour' END) FROM generate_series(1, 1000) i));
SELECT bool_and(priority = payload::int % 10), bool_and((status = 'scheduled') = (payload::int % 3 = 0)),
	bool_and(round(extract(epoch FROM run_at - enqueued_at) / 3600) = payload::int)
	FROM fairq.tasks WHERE queue = 'batch_each';
SELECT count(*) FROM fairq.pop('batch_each', 1000);
SELECT * FROM fairq.check_queue('batch_each');
SELECT count(fairq.complete(id)), fairq.purge('batch_each') FROM fairq.tasks WHERE queue = 'batch_each' GROUP BY ();
-- one value for all tasks together with an array of the other argument; an
-- element of 0 does not mean the default
SELECT count(*) FROM fairq.enqueue_batch('batch_each', '{a}', '{1}', 3, priorities => NULL, run_ats => '{infinity}');
SELECT count(*) FROM fairq.enqueue_batch('batch_each', '{a}', '{2}', 0, 'infinity', priorities => '{5}');
SELECT count(*) FROM fairq.enqueue_batch('batch_each', '{}', '{}', priorities => '{}', run_ats => '{}');
SELECT * FROM pg_temp.stand;
SELECT fairq.purge('batch_each');
-- A scheduled task precedes a ready one. The pop finds the ready task by the TID
-- in its group's hand, without a search in the index by group.
SELECT count(*) FROM fairq.enqueue_batch('batch_each', '{a,b}', '{1,2}', run_ats => '{infinity,NULL}');
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT payload FROM fairq.pop('batch_each');
SELECT pg_stat_get_xact_numscans('fairq.task_by_group'::regclass);
ROLLBACK;
SELECT fairq.purge('batch_each');
-- a call that fails adds no task
\set VERBOSITY default
SELECT fairq.enqueue_batch('batch_each', '{a}', '{1}', 3, priorities => '{3}');
SELECT fairq.enqueue_batch('batch_each', '{a}', '{1}', run_at => 'infinity', run_ats => '{NULL}');
SELECT fairq.enqueue_batch('batch_each', '{a,b}', '{1,2}', priorities => '{3,10}');
\set VERBOSITY sqlstate
SELECT fairq.enqueue_batch('batch_each', '{a,b}', '{1,2}', priorities => '{3,-1}');
SELECT fairq.enqueue_batch('batch_each', '{a,b}', '{1,2}', priorities => '{3,NULL}');
SELECT fairq.enqueue_batch('batch_each', '{a,b}', '{1,2}', priorities => '{3}');
SELECT fairq.enqueue_batch('batch_each', '{a,b}', '{1,2}', priorities => '{{3,3}}');
SELECT fairq.enqueue_batch('batch_each', '{a,b}', '{1,2}', run_ats => '{NULL}');
SELECT fairq.enqueue_batch('batch_each', '{a,b}', '{1,2}', run_ats => '{{NULL,NULL}}');
SELECT * FROM pg_temp.stand;
SELECT fairq.drop_queue('batch_each');
