-- docs/monitoring.md uses a queue that exists.
SELECT fairq.create_queue('scan');
SELECT fairq.enqueue('scan', 'bob');
