DELETE FROM fifo.task
	WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM fifo.task
		ORDER BY id LIMIT $n
		FOR UPDATE SKIP LOCKED))
	RETURNING id, group_key, payload
