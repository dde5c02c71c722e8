-- SQL changes rows of fairq.queue. Groups that were parked under the old
-- settings are taken back, whatever else the transaction changes in the row.
--
-- Fails if changed settings take no parked group back (publish_rest() in
-- transaction.c).
\a \t
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE FUNCTION pg_temp.pop(queue text) RETURNS bigint LANGUAGE sql AS
	$$SELECT count(*) FROM fairq.pop($1, 100)$$;
CREATE FUNCTION pg_temp.fill(queue text, n int) RETURNS bigint LANGUAGE sql AS
	$$SELECT count(fairq.enqueue($1, 'bob')) FROM generate_series(1, $2)$$;

-- a transaction can rename the queue and then resume a group
SELECT fairq.create_queue('by_hand');
SELECT pg_temp.fill('by_hand', 1), fairq.pause('by_hand', 'bob');
SELECT pg_temp.pop('by_hand');
BEGIN;
UPDATE fairq.queue SET name = 'by_hand_2' WHERE name = 'by_hand';
SELECT fairq.resume('by_hand_2', 'bob');
COMMIT;
SELECT pg_temp.pop('by_hand'), pg_temp.pop('by_hand_2');
SELECT pg_temp.pop('by_hand_2');
SELECT * FROM fairq.check_queue('by_hand_2');
-- A call changes a row that its own statement has just changed. Fails if such
-- calls loop forever.
SELECT count(*) FROM fairq.enqueue('by_hand_2', 'c');
CREATE TEMP TABLE popped AS SELECT id FROM fairq.pop('by_hand_2');
UPDATE fairq.task t SET worker = 'x' FROM popped p WHERE t.id = p.id RETURNING fairq.extend(t.id) > now() AS extended;
UPDATE fairq.task t SET worker = 'y' FROM popped p WHERE t.id = p.id RETURNING fairq.extend_batch(ARRAY[t.id]);
UPDATE fairq.task t SET worker = 'z' FROM popped p WHERE t.id = p.id RETURNING fairq.complete(t.id);
SELECT * FROM fairq.check_queue('by_hand_2');

SELECT fairq.drop_queue('by_hand_2', true);

-- one UPDATE can set a new name and a higher limit
SELECT fairq.create_queue('by_hand', concurrency => 1);
SELECT pg_temp.fill('by_hand', 5);
SELECT pg_temp.pop('by_hand');
SELECT pg_temp.pop('by_hand');
UPDATE fairq.queue SET name = 'by_hand_2', concurrency = 4 WHERE name = 'by_hand';
SELECT pg_temp.pop('by_hand_2');
SELECT * FROM fairq.check_queue('by_hand_2');

-- SQL replaces the queue's row
CREATE TEMP TABLE saved AS SELECT * FROM fairq.queue WHERE name = 'by_hand_2';
UPDATE saved SET concurrency = 5;
BEGIN;
DELETE FROM fairq.queue WHERE name = 'by_hand_2';
INSERT INTO fairq.queue SELECT * FROM saved;
COMMIT;
SELECT pg_temp.pop('by_hand_2');
SELECT * FROM fairq.check_queue('by_hand_2');

SELECT fairq.drop_queue('by_hand_2', true);

-- Settings that SQL changed apply again once the change is rolled back.
BEGIN;
INSERT INTO fairq.queue (name, lease, block_length, max_attempts, backoff, notify)
	VALUES ('by_hand_new', '5 min', 1000000, 20, '1s', false) RETURNING queue_id \gset
INSERT INTO fairq.group_number (queue_id, group_no, group_key) VALUES (:queue_id, 0, 'g');
INSERT INTO fairq.group_setting (queue_id, group_no, concurrency, weight, paused) VALUES (:queue_id, 0, 1, 1, false);
SAVEPOINT s;
DELETE FROM fairq.group_setting WHERE queue_id = :queue_id;
SELECT fairq.enqueue('by_hand_new', 'g') > 0 AS ok;
ROLLBACK TO s;
SELECT count(fairq.enqueue('by_hand_new', 'g')) FROM generate_series(1, 4);
COMMIT;
SELECT count(*) AS one FROM fairq.pop('by_hand_new', 10);
SELECT fairq.drop_queue('by_hand_new', true);
