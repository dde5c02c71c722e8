SELECT count(*) FROM fairq.enqueue_batch('bench',
	ARRAY(SELECT 'g' || (1 + floor(random() * 1000))::int FROM generate_series(1, $n)),
	array_fill('{"url": "https://example.org/invoices/2024/000001.pdf", "locale": "en_GB", "format": "A4", "retry": 0}'::jsonb, ARRAY[$n]));
