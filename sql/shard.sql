-- Ids contain the shard of their database. set_shard() fails once there are
-- tasks, only increases the number, and is undone by a rollback. A shard
-- without free ids adds no task.
--
-- Fails if set_shard() calls setval(), which no rollback undoes, instead of
-- ALTER SEQUENCE. Fails without check_no_tasks(). Fails without
-- check_shard_end(), since ids of shard 8 are assigned.
\a \t
SET client_min_messages = warning;
SELECT current_database() AS old \gset
DROP DATABASE IF EXISTS regress_fairq_shard;
CREATE DATABASE regress_fairq_shard;
\c regress_fairq_shard
CREATE EXTENSION fairq;
\set VERBOSITY sqlstate

SELECT fairq.shard(), fairq.shard(0);
SELECT fairq.shard(1);
SELECT fairq.set_shard(NULL);
SELECT fairq.set_shard(0);
SELECT fairq.set_shard(-1);
SELECT fairq.set_shard(1024);
BEGIN READ ONLY;
SELECT fairq.set_shard(7);
ROLLBACK;

SELECT fairq.create_queue('q', retain => '1 day');
BEGIN;
SELECT fairq.set_shard(7);
SELECT fairq.shard(), fairq.enqueue('q', 'a') - (7::bigint << 43) AS id;
ROLLBACK;
SELECT fairq.shard(), fairq.enqueue('q', 'a') < 1000 AS low;
SELECT fairq.set_shard(7);
SELECT fairq.cancel(id) FROM fairq.tasks;
SELECT count(*) FROM fairq.finished_tasks;
SELECT fairq.set_shard(7);	-- the queue's archived task is kept, and has an id
SELECT fairq.drop_queue('q', true), fairq.create_queue('q');

SELECT fairq.set_shard(7);
SELECT fairq.shard(7);
SELECT fairq.shard(8);
SELECT fairq.enqueue('q', 'a') - (7::bigint << 43) AS id;
SELECT array_agg(id - (7::bigint << 43)) FROM fairq.enqueue_batch('q',
	array_fill('b'::text, '{40}'), array_fill('1'::jsonb, '{40}')) id;
SELECT fairq.set_shard(7);	-- 7 is already the shard's number
SELECT fairq.set_shard(8);
SELECT count(fairq.complete(id)) FROM fairq.pop('q', 100);
SELECT fairq.set_shard(6);	-- refused, since ids could be used twice
SELECT fairq.shard();
SET client_min_messages = error;
TRUNCATE fairq.task RESTART IDENTITY;	-- a purge by SQL; the shard stays
SET client_min_messages = warning;
SELECT fairq.shard();

-- the shard assigns its last ids, except for those that are reserved
SELECT setval('fairq.task_id_seq', (8::bigint << 43) - (1 << 20) - 1) > 0 AS set;
SELECT (8::bigint << 43) - fairq.enqueue('q', 'a') AS left;
SELECT count(fairq.enqueue('q', 'a')) FROM generate_series(1, 30);
SELECT fairq.enqueue('q', 'a');
SELECT fairq.enqueue_batch('q', '{a,b}', '{1,2}');
SELECT count(*), max(id) < 8::bigint << 43 AS below FROM fairq.tasks;
SELECT * FROM fairq.check_queue('q');

-- the greatest shard whose ids are exact in JavaScript
SELECT fairq.drop_queue('q', true), fairq.create_queue('q');
SELECT fairq.set_shard(1023);
SELECT fairq.enqueue('q', 'a') < 9007199254740992 AS safe;

-- SQL has set an id beyond all shards
SELECT fairq.drop_queue('q', true), fairq.create_queue('q');
SELECT setval('fairq.task_id_seq', 9007199254740992) > 0 AS set, fairq.shard();
SELECT fairq.enqueue('q', 'a') - 9007199254740992 AS id, fairq.shard();

\c :old
DROP DATABASE regress_fairq_shard;
