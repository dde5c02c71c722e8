-- The queue works after the upgrade.
\echo sound
SELECT fairq.check_queue(name) FROM fairq.queue;
\echo the round continues in the order of weights
SELECT group_key, payload, addr FROM fairq.pop('full', 3);
\echo a lease belongs to its attempt
SELECT fairq.complete(id, 1), fairq.extend(id, 2) > now(), fairq.complete(id, 2)
FROM fairq.tasks WHERE payload = '"twice"';
\echo extend reports a cancelled task
SELECT fairq.extend(id, 1) IS NULL FROM fairq.tasks WHERE payload = '"doomed"';
\echo a key is taken
SELECT id = fairq.enqueue('life', 'l', dedup_key => 'k')
FROM fairq.tasks WHERE payload = '"later"';
\echo ids continue
SELECT fairq.enqueue('full', 'z', '1') > max(id) FROM (
	SELECT id FROM fairq.task UNION ALL SELECT id FROM fairq.archive) i;
\echo expired leases, due tasks, and at most as many as the limit
SELECT group_key, payload, attempt FROM fairq.pop('life', 10)
ORDER BY payload::text, id;
\echo a resumed group is served
SELECT fairq.resume('life', 'paused');
SELECT group_key, payload FROM fairq.pop('life', 10);
\echo a task that waits for a batch starts after it
SELECT payload, fairq.complete(id, attempt) FROM fairq.pop('batches', 10);
SELECT payload, headers, fairq.complete(id, attempt) FROM fairq.pop('batches', 10);
SELECT fairq.close_batch(id) FROM fairq.batches WHERE status = 'open';
SELECT payload, headers, fairq.complete(id, attempt) FROM fairq.pop('batches', 10);
\echo a failed task is redriven
SELECT fairq.redrive('life');
\echo privileges
\set VERBOSITY sqlstate
SET ROLE producer;
SELECT fairq.enqueue('life', 'p', run_at => 'infinity') > 0;
SELECT fairq.take('life');
SET ROLE worker;
SELECT group_key, payload FROM fairq.pop('life');
SELECT fairq.take('full');
SET ROLE "Big ""Boss""";
SELECT fairq.purge('full', 'nobody');
SET ROLE NONE;
\set VERBOSITY default
\echo all tasks can be finished
SELECT fairq.alter_queue('life', concurrency => 0);
SELECT count(fairq.cancel(id)) FROM fairq.tasks WHERE status = 'scheduled';
SELECT count(*) FROM fairq.queue, fairq.pop(name, 100);
SELECT count(*) FILTER (WHERE fairq.complete(id)) FROM fairq.tasks
WHERE status = 'running';
SELECT count(*) FROM fairq.task;
SELECT fairq.check_queue(name) FROM fairq.queue;
SELECT fairq.create_queue('new');
SELECT queue_id FROM fairq.queue WHERE name = 'new';
