-- The groups have had tasks before, so they have their seats.  The measured
-- tasks do not arrive in the order of these seats.
SELECT count(*) FROM fairq.enqueue_batch('bench',
	ARRAY(SELECT 'g' || n FROM generate_series(1, $groups) n),
	array_fill('{}'::jsonb, ARRAY[$groups]));
TRUNCATE fairq.task;
