-- The groups have had tasks before: they have their seats, and it is not their
-- order in which the tasks that are measured arrive.
SELECT count(*) FROM fairq.enqueue_batch('bench',
	ARRAY(SELECT 'g' || n FROM generate_series(1, $groups) n),
	array_fill('{}'::jsonb, ARRAY[$groups]));
TRUNCATE fairq.task;
