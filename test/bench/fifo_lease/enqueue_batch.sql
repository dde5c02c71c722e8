INSERT INTO fifo_lease.task (group_key, payload)
	SELECT 'g' || (1 + floor(random() * 1000))::int, '{"url": "https://example.org/invoices/2024/000001.pdf", "locale": "en_GB", "format": "A4", "retry": 0}'
	FROM generate_series(1, $n);
