-- docs/monitoring.md speaks of a queue that there is.
SELECT fairq.create_queue('scan');
SELECT fairq.enqueue('scan', 'bob');
