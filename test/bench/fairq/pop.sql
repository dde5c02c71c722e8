SELECT count(*) AS popped, coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(attempt), '{}') AS attempts
	FROM fairq.pop('bench', $n)
