-- The pointer moves only when a new block is served.
WITH taken AS (
	DELETE FROM article.task
	WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM article.task
		ORDER BY id LIMIT $n
		FOR UPDATE SKIP LOCKED))
	RETURNING id, group_key, payload
), served AS (
	UPDATE article.queue q SET block = t.block
	FROM (SELECT max(id) / 1048576 AS block FROM taken) t
	WHERE q.block < t.block
)
SELECT id, group_key, payload FROM taken ORDER BY id
