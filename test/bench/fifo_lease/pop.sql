WITH leased AS (
	UPDATE fifo_lease.task SET leased_until = now() + interval '5 minutes'
	WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM fifo_lease.task
		WHERE leased_until IS NULL OR leased_until < now()
		ORDER BY id LIMIT $n
		FOR UPDATE SKIP LOCKED))
	RETURNING id, group_key, payload
)
SELECT count(*) AS popped, coalesce(array_agg(id), '{}') AS ids FROM leased
