UPDATE fifo_lease.task SET leased_until = now() + interval '5 minutes'
	WHERE ctid = (
		SELECT ctid FROM fifo_lease.task
		WHERE leased_until IS NULL OR leased_until < now()
		ORDER BY id LIMIT 1
		FOR UPDATE SKIP LOCKED)
	RETURNING id, group_key, payload
