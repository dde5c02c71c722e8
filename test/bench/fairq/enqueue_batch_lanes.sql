SELECT count(*) FROM fairq.enqueue_batch('bench',
	ARRAY(SELECT $key FROM generate_series(1, $n)),
	array_fill('$payload'::jsonb, ARRAY[$n]), priority => $lane)
