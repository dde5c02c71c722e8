-- Each group's pointer exists before its first task.
INSERT INTO article.group_pointer (group_key)
	SELECT 'g' || n FROM generate_series(1, $groups) n
	ON CONFLICT DO NOTHING;
