WITH next AS MATERIALIZED (
	SELECT id FROM fifo_lease.task
	WHERE leased_until < now()
	ORDER BY id LIMIT $n
	FOR UPDATE SKIP LOCKED
), leased AS (
	UPDATE fifo_lease.task t SET leased_until = now() + '5 minutes'
	FROM next WHERE t.id = next.id
	RETURNING t.id, t.group_key, t.payload
)
SELECT coalesce(array_agg(id), '{}') AS ids FROM leased
