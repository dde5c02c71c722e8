-- A queue in use.
CREATE ROLE gone;
CREATE ROLE producer;
CREATE ROLE worker;
CREATE ROLE "Big ""Boss""";

SELECT fairq.create_queue('dropped');
SELECT fairq.drop_queue('dropped');
SELECT fairq.create_queue('full', block_length => 1000, lease => '1 day');
SELECT fairq.enqueue_batch('full', ARRAY['a', 'b', 'a', 'b', 'a', 'b'],
	ARRAY['1', '1', '2', '2', '3', '3']::jsonb[]);
SELECT fairq.pop('full', 3, worker => 'w');
SELECT fairq.set_group('full', 'c', weight => 2);
SELECT fairq.enqueue('full', 'c', '1'), fairq.enqueue('full', 'c', '2');

SELECT fairq.create_queue('life', concurrency => 2, max_running => 50,
	retain => '1 day', lease => '1 day', backoff => '1 hour', max_attempts => 3,
	shares => '{70,20,10}');
SELECT fairq.enqueue('life', 't', '"twice"');
SELECT fairq.release(id, attempt) FROM fairq.pop('life');
SELECT fairq.pop('life', worker => 'again');
SELECT fairq.enqueue('life', 'd', '"doomed"');
SELECT fairq.cancel(id) FROM fairq.pop('life');
SELECT fairq.enqueue('life', 'r', '"retried"', dedup_key => 'r');
SELECT fairq.fail(id, attempt, 'not now') FROM fairq.pop('life');
SELECT fairq.enqueue('life', 'f', '"failed"', dedup_key => 'f');
SELECT fairq.fail(id, attempt, 'never', dead => true) FROM fairq.pop('life');
SELECT fairq.enqueue('life', 's', '"completed"');
SELECT fairq.complete(id, attempt, '"result"') FROM fairq.pop('life');
SELECT fairq.enqueue('life', 'x', '"expired"');
SELECT fairq.pop('life', lease => '1 ms');
SELECT fairq.enqueue('life', 'l', '"limited"') FROM generate_series(1, 5);
SELECT fairq.enqueue('life', 'l', '"later"', dedup_key => 'k', run_at => 'infinity');
SELECT fairq.enqueue('life', 'due', '"due"', run_at => clock_timestamp() + '2 s');
SELECT fairq.enqueue('life', 'paused', '"paused"', priority => 3);
SELECT fairq.pause('life', 'paused');
SELECT fairq.set_group('life', 'own', concurrency => 7);

SELECT fairq.create_queue('batches', lease => '1 day');
SELECT fairq.create_batch('batches', 'w', '"closed"') AS batch \gset
SELECT fairq.enqueue('batches', 'm', '"last"', batch => :batch),
	fairq.cancel(fairq.enqueue('batches', 'm', '"cancelled"', batch => :batch)),
	fairq.close_batch(:batch), fairq.create_batch('batches', 'w', '"open"');

SELECT fairq.grant_queue('life', 'producer', 'enqueue');
SELECT fairq.grant_queue('life', 'worker', 'work');
SELECT fairq.grant_queue('full', '"Big ""Boss"""', 'manage');
REVOKE EXECUTE ON FUNCTION fairq.pop(text, int, interval, int, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fairq.pop(text, int, interval, int, text) TO worker;
-- the dropped role leaves a gap, so without care the upgrade would give roles other OIDs
DROP ROLE gone;
