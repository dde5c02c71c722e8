-- The pointers are locked in the order of their keys, so that two batches
-- cannot end in a deadlock.
WITH input AS MATERIALIZED (
	SELECT $key AS group_key FROM generate_series(1, $n)
), counted AS MATERIALIZED (
	SELECT group_key, count(*) AS tasks FROM input GROUP BY group_key
), locked AS MATERIALIZED (
	SELECT p.group_key, c.tasks
	FROM article.group_pointer p JOIN counted c USING (group_key)
	ORDER BY p.group_key
	FOR UPDATE OF p
), moved AS (
	UPDATE article.group_pointer p
	SET last_block = greatest(p.last_block + 1, q.block) + l.tasks - 1
	FROM locked l, article.queue q
	WHERE p.group_key = l.group_key
	RETURNING p.group_no, p.group_key, l.tasks, p.last_block - l.tasks + 1 AS first_block
)
INSERT INTO article.task (id, group_key, payload)
	SELECT group_no + 1048576 * (first_block + nth), group_key, '$payload'
	FROM moved, generate_series(0, tasks - 1) nth
