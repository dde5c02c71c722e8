-- The text of each error of fairq, once, with its detail and hint. Most other
-- tests check only SQLSTATEs, so usually only this test changes with a message.
-- Fails if a hint is missing.
--
-- A session cannot cause these four messages on its own. A table of fairq does
-- not exist any more: test/t/039_wait_drop.pl drops it while another call
-- waits. Shared memory was set up by another version of fairq: another library
-- was installed without a restart. Could not stat file: the database's
-- directory cannot be read. Connection to client lost: the client of wait() is
-- gone.
\a \t
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_fairq_messages;	-- if an interrupted run left it
RESET client_min_messages;

SELECT fairq.create_queue('messages', block_length => 3);
SELECT count(fairq.enqueue('messages', g)) FROM unnest('{a,b,c}'::text[]) g;

--
-- Arguments
--

SELECT fairq.pop(NULL);
SELECT fairq.enqueue_batch('messages', NULL, '{}');
SELECT fairq.block_of('messages', NULL);
SELECT fairq.grant_queue('messages', NULL, 'work');
SELECT fairq.pop('messages', 0);
SELECT fairq.pop('messages', lease => '-1 hour');
SELECT fairq.create_queue('messages_more', backoff => '-1 second');
SELECT fairq.enqueue('messages', 'a', dedup_key => '');
SELECT fairq.enqueue('messages', repeat('k', 1025));
SELECT fairq.complete_batch('{{1,2},{3,4}}');
SELECT fairq.complete_batch('{1,NULL}');
SELECT fairq.enqueue_batch('messages', '{a,b}', '{1}');
SELECT fairq.grant_queue('messages', 'pg_monitor', 'read');
SELECT fairq.create_queue('messages_more', fair_by => 'money');
SELECT fairq.enqueue('messages', 'a', cost => -1);
SELECT fairq.enqueue('messages', 'a', run_at => now(), delay => '1 hour');
SELECT fairq.enqueue('messages', 'a', delay => '-1 hour');

--
-- Queues and groups
--

SELECT fairq.create_queue('');
SELECT fairq.create_queue('messages');
SELECT fairq.create_queue('messages', if_not_exists => true);
SELECT fairq.drop_queue('messages_none', if_exists => true);
SELECT fairq.pause('messages_2', 'nobody')
FROM (SELECT fairq.create_queue('messages_2') OFFSET 0) q;
SELECT fairq.drop_queue('messages_2');
SELECT fairq.drop_queue('messages');
SELECT fairq.pop('messages_none');
SELECT fairq.address('messages', 'none', 0);
SELECT fairq.grant_queue('messages', 4294967295::oid::regrole, 'work');
CREATE ROLE regress_fairq_messages;
SET ROLE regress_fairq_messages;
SELECT fairq.pop('messages');
RESET ROLE;
DROP ROLE regress_fairq_messages;

--
-- Numbers
--

SELECT fairq.enqueue('messages', 'd');
SELECT fairq.create_queue('messages_blocks', block_length => 4611686018427387904);
SELECT fairq.enqueue('messages_blocks', 'a') > 0 AS ok;
SELECT fairq.enqueue('messages_blocks', 'a');
SELECT fairq.drop_queue('messages_blocks', true);
SELECT fairq.alter_queue('messages', block_length => 1);
SELECT fairq.enqueue('messages', 'a') > 0 AS ok;	-- the task is in block 1
SELECT fairq.alter_queue('messages', block_length => 9223372036854775807);
SELECT fairq.create_queue('messages_shares', shares => '{}');
SELECT fairq.alter_queue('messages', shares => '{1,0}');
SELECT fairq.create_queue('messages_in_order', in_order => true);
SELECT fairq.create_queue('messages_in_order', in_order => true, concurrency => 2);
SELECT fairq.create_queue('messages_in_order', concurrency => 1);
SELECT fairq.set_group('messages_in_order', 'a', concurrency => 2);
SELECT fairq.alter_queue('messages_in_order', in_order => true);
SELECT fairq.drop_queue('messages_in_order');

--
-- Transactions
--

BEGIN;
CALL fairq.wait('messages');
ROLLBACK;
BEGIN;
SELECT fairq.enqueue('messages', 'a') > 0 AS ok;
PREPARE TRANSACTION 'messages';
SELECT fairq.create_queue('messages_forgotten');
SELECT fairq.enqueue('messages_forgotten', 'a') > 0 AS ok;
SELECT count(*) FROM fairq.take('messages_forgotten');
\set SHOW_CONTEXT never
DO $$
BEGIN
	PERFORM fairq.maintain('messages_forgotten');
	PERFORM fairq.enqueue('messages_forgotten', 'b');
END $$;
SELECT fairq.drop_queue('messages_forgotten');
SELECT fairq_internal.task_changed();

--
-- Tables: missing objects, and objects that fairq's functions would bypass
--

BEGIN;
ALTER TABLE fairq.dedup RENAME TO other;
SELECT fairq.enqueue('messages', 'a', dedup_key => 'k');
ROLLBACK;
BEGIN;
DROP INDEX fairq.group_number_by_key;
SELECT fairq.enqueue('messages', 'd');
ROLLBACK;
BEGIN;
ALTER TABLE fairq.dedup RENAME TO other;
CREATE TABLE fairq.dedup (queue_id int, dedup_key text COLLATE "C", PRIMARY KEY (queue_id, dedup_key));
SELECT fairq.enqueue('messages', 'a', dedup_key => 'k');
ROLLBACK;
BEGIN;
ALTER TYPE fairq.claim ADD ATTRIBUTE added text;
SELECT fairq.pop('messages');
ROLLBACK;
BEGIN;
ALTER TABLE fairq.dedup ALTER COLUMN id TYPE numeric;
SELECT fairq.enqueue('messages', 'a', dedup_key => 'k');
ROLLBACK;
BEGIN;
ALTER TABLE fairq.task ADD COLUMN tenant int NOT NULL DEFAULT 7;
SELECT fairq.enqueue('messages', 'a');
ROLLBACK;
BEGIN;
UPDATE fairq.task SET worker = 'me';
ALTER TABLE fairq.task ALTER COLUMN worker SET NOT NULL;
SELECT fairq.enqueue('messages', 'a');
ROLLBACK;
BEGIN;
ALTER TABLE fairq.task ADD CONSTRAINT small CHECK (pg_column_size(payload) < 100);
SELECT fairq.enqueue('messages', 'a');
ROLLBACK;
BEGIN;
ALTER TABLE fairq.task ADD CONSTRAINT alone UNIQUE (id) DEFERRABLE;
SELECT fairq.pop('messages');
ROLLBACK;
BEGIN;
CREATE TABLE messages_file (task_id bigint REFERENCES fairq.task);
SELECT fairq.pop('messages');
ROLLBACK;
BEGIN;
CREATE INDEX expression ON fairq.task ((payload->>'x'));
SELECT fairq.enqueue('messages', 'a');
ROLLBACK;
BEGIN;
CREATE TRIGGER audit BEFORE UPDATE ON fairq.task
	FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT fairq.pop('messages');
ROLLBACK;
BEGIN;
CREATE RULE keep AS ON DELETE TO fairq.task DO INSTEAD NOTHING;
SELECT fairq.take('messages');
ROLLBACK;
BEGIN;
ALTER TABLE fairq.task ENABLE ROW LEVEL SECURITY;
SELECT fairq.pop('messages');
ROLLBACK;
BEGIN;
CREATE TABLE messages_parent (LIKE fairq.task INCLUDING GENERATED);
ALTER TABLE fairq.task INHERIT messages_parent;
SELECT fairq.pop('messages');
ROLLBACK;
BEGIN;
CREATE TABLE messages_child () INHERITS (fairq.task);
SELECT fairq.pop('messages');
ROLLBACK;
BEGIN;
CREATE ACCESS METHOD messages_am TYPE TABLE HANDLER heap_tableam_handler;
ALTER TABLE fairq.dedup SET ACCESS METHOD messages_am;
SELECT fairq.enqueue('messages', 'a', dedup_key => 'k');
ROLLBACK;

-- rates
SELECT fairq.create_queue('messages_x', rate => 0);
SELECT fairq.alter_queue('messages', rate => -1);
SELECT fairq.create_queue('messages_x', burst => 0);
SELECT fairq.alter_queue('messages', burst => 0);
SELECT fairq.create_queue('messages_x', max_rate => 0);
SELECT fairq.alter_queue('messages', max_rate => -1);
SELECT fairq.set_group('messages', 'a', rate => -1);
SELECT fairq.create_queue('messages_x', per => '0');
SELECT fairq.alter_queue('messages', per => '1 month -31 days');
SELECT fairq.alter_queue('messages', per => '367 days');
SELECT fairq.hold('messages', until => 'infinity');
SELECT fairq.hold('messages', 'nobody');

SELECT * FROM fairq.check_queue('messages');

-- shards
SELECT fairq.set_shard(1024);
SELECT fairq.set_shard(1);
SELECT fairq.shard(1);
SELECT fairq.drop_queue('messages', true);
SELECT current_database() AS old \gset
SET client_min_messages = warning;
DROP DATABASE IF EXISTS regress_fairq_messages;
RESET client_min_messages;
CREATE DATABASE regress_fairq_messages;
\c regress_fairq_messages
CREATE EXTENSION fairq;
SELECT fairq.create_queue('messages'), fairq.set_shard(2);
SELECT fairq.shard(1);
SELECT fairq.set_shard(1);
SELECT setval('fairq.task_id_seq', (3::bigint << 43) - 1) > 0 AS set;
SELECT fairq.enqueue('messages', 'a');
\c :old
DROP DATABASE regress_fairq_messages;
