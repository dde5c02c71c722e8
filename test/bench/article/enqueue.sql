WITH moved AS (
	UPDATE article.group_pointer p
	SET last_block = greatest(p.last_block + 1, q.block)
	FROM article.queue q
	WHERE p.group_key = 'g' || :group
	RETURNING p.group_no, p.group_key, p.last_block
)
INSERT INTO article.task (id, group_key, payload)
	SELECT group_no + 1048576 * last_block, group_key, '$payload' FROM moved
