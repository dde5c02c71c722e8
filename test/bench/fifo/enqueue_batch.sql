INSERT INTO fifo.task (group_key, payload)
	SELECT $key, '$payload' FROM generate_series(1, $n)
