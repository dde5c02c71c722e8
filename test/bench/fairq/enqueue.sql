\set group $group
SELECT fairq.enqueue('bench', 'g' || :group, '{"url": "https://example.org/invoices/2024/000001.pdf", "locale": "en_GB", "format": "A4", "retry": 0}');
