-- Due tasks come behind the tasks of their group that were ready earlier, and
-- before tasks that were released later. Tasks that are due for a retry come
-- before all of these.
--
-- Fails if retried tasks come in the order of scheduled ones
-- (fairq_run_again() in outcome.c).
\a \pset footer off
\set VERBOSITY sqlstate
SELECT fairq.create_queue('due_order');

-- a task that is released repeatedly delays no other task
SELECT fairq.enqueue('due_order', 'g', '"released"') > 0 AS ok,
	fairq.enqueue('due_order', 'g', '"due"', run_at => clock_timestamp() + '20 ms') > 0 AS ok,
	fairq.enqueue('due_order', 'h', '"expires"') > 0 AS ok,
	fairq.enqueue('due_order', 'h', '"released, too"') > 0 AS ok;
SELECT payload FROM fairq.pop('due_order', 2, '20 ms') WHERE group_key = 'h';
SELECT fairq.release(id) FROM fairq.tasks
WHERE queue = 'due_order' AND payload = '"released"';
SELECT pg_sleep(0.05);
CREATE FUNCTION pop_and_release() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	task record;
BEGIN
	SELECT * INTO task FROM fairq.pop('due_order');
	PERFORM fairq.release(task.id, task.attempt);
	RETURN task.group_key || ' ' || task.payload;
END
$$;
SELECT count(DISTINCT pop_and_release) AS served, count(*) FROM (
	SELECT pop_and_release() FROM generate_series(1, 8)) p;
DROP FUNCTION pop_and_release;
SELECT * FROM fairq.check_queue('due_order');

-- a retried task comes before a scheduled task that is due; a redriven task
-- comes behind those that were ready before it
SELECT fairq.purge('due_order');
SELECT fairq.enqueue('due_order', 'g', '"retried"') > 0 AS ok,
	fairq.enqueue('due_order', 'g', '"redriven"') > 0 AS ok,
	fairq.enqueue('due_order', 'g', '"due"', run_at => clock_timestamp() + '20 ms') > 0 AS ok;
SELECT payload, fairq.fail(id, attempt, retry_in => CASE payload WHEN '"retried"' THEN interval '50 ms' END,
	dead => payload = '"redriven"')
FROM fairq.pop('due_order', 2);
SELECT pg_sleep(0.1);
SELECT fairq.enqueue('due_order', 'g', '"later"') > 0 AS ok;
SELECT fairq.redrive('due_order');
SELECT payload FROM fairq.pop('due_order', 10);
SELECT fairq.drop_queue('due_order', true);

-- a group's entry contains the places of due and lapsed tasks; pops still find
-- them after VACUUM FULL has moved the rows (forget_due() in turn.c)
SELECT fairq.create_queue('due_moved');
SELECT count(fairq.enqueue('due_moved', 'g', i::text::jsonb,
	run_at => clock_timestamp() + '20 ms' + i * interval '1 ms')) FROM generate_series(1, 12) i;
SELECT pg_sleep(0.1);
SELECT payload FROM fairq.pop('due_moved', 2);
VACUUM FULL fairq.task;
SELECT * FROM fairq.check_queue('due_moved');
SELECT payload FROM fairq.pop('due_moved', 2);
VACUUM FULL fairq.task;
SELECT count(*) FROM fairq.pop('due_moved', 100, '20 ms');
SELECT pg_sleep(0.05);
SELECT count(*) FROM fairq.pop('due_moved', 2);
VACUUM FULL fairq.task;
SELECT count(*) FROM fairq.pop('due_moved', 100);
SELECT * FROM fairq.check_queue('due_moved');
SELECT fairq.drop_queue('due_moved', true);
