\set group $group
INSERT INTO fifo.task (group_key, payload) VALUES ('g' || :group, '{"url": "https://example.org/invoices/2024/000001.pdf", "locale": "en_GB", "format": "A4", "retry": 0}');
