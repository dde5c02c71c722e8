-- SQL changes rows, the tables are maintained, and the extension is created
-- again. The test deletes all tasks of the database.
--
-- Fails if hints stay when SQL changes fairq.task (fairq_task_changed() in
-- fairq.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

CREATE FUNCTION pg_temp.queue_id(queue text) RETURNS int
LANGUAGE sql AS $$
	SELECT queue_id FROM fairq.queue WHERE name = $1
$$;

-- The faults that check_queue() finds in a queue, without the numbers of tasks
-- and lanes.
CREATE FUNCTION pg_temp.check(queue text) RETURNS SETOF text
LANGUAGE sql AS $$
	SELECT regexp_replace(c, '(task|lane) \d+', '\1 ...', 'g') FROM fairq.check_queue(queue) c ORDER BY 1
$$;

--
-- The size of shared memory
--

SELECT fairq.create_queue('storage_lost');
SELECT size = pg_size_bytes(current_setting('fairq.shared_memory')) AS size,
	area < size AND area_used BETWEEN 1 AND area AS area,
	entries > 0 AND entries_used BETWEEN 0 AND entries AS entries,
	queues > 0 AS queues, counters >= 0 AS counters
FROM fairq.shared_memory();
ALTER SYSTEM SET fairq.shared_memory = '3MB';
SET fairq.shared_memory = '48MB';

--
-- When shared memory is lost
--

SELECT pg_temp.add('storage_lost', 'a', 1, 4), pg_temp.add('storage_lost', 'b', 1, 4);
SELECT fairq.reset_hints();
SELECT pg_temp.add('storage_lost', 'a', 5, 5), pg_temp.add('storage_lost', 'c', 1, 1);
SELECT * FROM pg_temp.check('storage_lost');
SELECT pg_temp.pop('storage_lost', 4);
SELECT fairq.reset_hints();
SELECT fairq.release(id) FROM fairq.tasks WHERE queue = 'storage_lost' AND payload = '"a1"';
SELECT pg_temp.pop('storage_lost', 3);
SELECT fairq.reset_hints();
SELECT pg_temp.pop('storage_lost');
SELECT * FROM pg_temp.check('storage_lost');

-- Shared memory is lost between a call and the end of its transaction.
SELECT pg_temp.add('storage_lost', 'a', 11, 13), pg_temp.add('storage_lost', 'b', 11, 13);
BEGIN;
SELECT pg_temp.pop('storage_lost', 2) IS NOT NULL AS popped;
SELECT fairq.reset_hints();
ROLLBACK;
SELECT * FROM pg_temp.check('storage_lost');
BEGIN;
SELECT pg_temp.add('storage_lost', 'c', 11, 11);
SELECT fairq.reset_hints();
SELECT pg_temp.add('storage_lost', 'c', 12, 12);
COMMIT;
SELECT * FROM pg_temp.check('storage_lost');
BEGIN;
SELECT pg_temp.add('storage_lost', 'a', 0, 0);
SELECT fairq.reset_hints();
ROLLBACK;
SELECT * FROM pg_temp.check('storage_lost');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage_lost', 3);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage_lost', 3);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage_lost', 3);
SELECT * FROM pg_temp.check('storage_lost');

--
-- Changes by SQL
--

SELECT fairq.create_queue('storage', block_length => 10);
SELECT pg_temp.add('storage', 'a', 1, 5), pg_temp.add('storage', 'b', 1, 5);
SELECT pg_temp.pop('storage', 4);

-- UPDATE: a popped task is ready again, and a ready task moves back
UPDATE fairq.task SET lease_until = NULL
WHERE queue_id = pg_temp.queue_id('storage') AND payload = '"b1"';
SELECT * FROM pg_temp.check('storage');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
UPDATE fairq.task SET addr = 0
WHERE queue_id = pg_temp.queue_id('storage') AND payload = '"a5"';
SELECT * FROM pg_temp.check('storage');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 100);
SELECT * FROM pg_temp.check('storage');

-- after a DELETE the remaining tasks stay in order
SELECT pg_temp.add('storage', 'a', 11, 16), pg_temp.add('storage', 'b', 11, 13);
DELETE FROM fairq.task
WHERE queue_id = pg_temp.queue_id('storage') AND payload IN ('"a11"', '"a12"', '"a14"', '"b12"');
SELECT * FROM pg_temp.check('storage');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
SELECT pg_temp.pop('storage');
SELECT * FROM pg_temp.check('storage');

-- an INSERT adds tasks far behind and far ahead of the others
INSERT INTO fairq.task (id, addr, enqueued_at, queue_id, group_no, attempt, priority, payload)
SELECT nextval('fairq.task_id_seq'), block * 10, now(), pg_temp.queue_id('storage'), 0, 0, 0, to_jsonb(block)
FROM unnest('{0, 1, 1000}'::int[]) block;
SELECT pg_temp.add('storage', 'a', 21, 21), pg_temp.add('storage', 'b', 21, 21);
SELECT * FROM pg_temp.check('storage');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 3);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 3);
CREATE TEMP TABLE save AS SELECT * FROM fairq.task WHERE queue_id = pg_temp.queue_id('storage');
UPDATE save SET lease_until = NULL;
TRUNCATE fairq.task;
SELECT pg_temp.pop('storage');
SELECT fairq.enqueue('storage', 'a', '"anew"') > 0 AS ok;
SELECT pg_temp.pop('storage');
INSERT INTO fairq.task (id, addr, enqueued_at, queue_id, group_no, attempt, priority, payload)
SELECT id, addr, enqueued_at, queue_id, group_no, attempt, priority, payload FROM save;
SELECT (SELECT count(*) FROM save) = (SELECT count(*) FROM fairq.pop('storage', 1000)) AS all_found;
SELECT * FROM pg_temp.check('storage');

-- the changes are rolled back, as a whole or in part, or their statement fails
TRUNCATE fairq.task;
SELECT pg_temp.add('storage', 'a', 31, 33), pg_temp.add('storage', 'b', 31, 33);
BEGIN;
DELETE FROM fairq.task WHERE queue_id = pg_temp.queue_id('storage') AND payload = '"a31"';
SELECT pg_temp.pop('storage', 2) IS NOT NULL AS popped;
ROLLBACK;
SELECT * FROM pg_temp.check('storage');
BEGIN;
SAVEPOINT s;
UPDATE fairq.task SET addr = addr + 1000 WHERE queue_id = pg_temp.queue_id('storage');
SELECT count(*) FROM fairq.pop('storage', 3);
ROLLBACK TO s;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
COMMIT;
UPDATE fairq.task SET addr = addr / (id - (SELECT max(id) FROM fairq.task))
WHERE queue_id = pg_temp.queue_id('storage');
SELECT * FROM pg_temp.check('storage');
BEGIN;
TRUNCATE fairq.task;
SELECT pg_temp.pop('storage');
ROLLBACK;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 100);
SELECT * FROM pg_temp.check('storage');

-- fairq also notices changes when only triggers that are ENABLE ALWAYS fire
SELECT pg_temp.add('storage', 'a', 41, 42);
SELECT count(*) FROM fairq.take('storage', 100);
SET session_replication_role = replica;
INSERT INTO fairq.task (id, addr, enqueued_at, queue_id, group_no, attempt, priority, payload)
VALUES (nextval('fairq.task_id_seq'), 0, now(), pg_temp.queue_id('storage'), 0, 0, 0, '"replica"');
RESET session_replication_role;
SELECT pg_temp.pop('storage');

--
-- check_queue reports errors
--

TRUNCATE fairq.task;
SELECT pg_temp.add('storage', 'a', 1, 3), pg_temp.add('storage', 'b', 1, 3);
SELECT * FROM pg_temp.check('storage');
CREATE FUNCTION pg_temp.broken(change text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
	found text[];
BEGIN
	-- each change is undone at once
	BEGIN
		EXECUTE change;
		SELECT array_agg(c) INTO found FROM pg_temp.check('storage') c;
		RAISE SQLSTATE 'TEST0';
	EXCEPTION WHEN SQLSTATE 'TEST0' THEN
		RETURN QUERY SELECT * FROM unnest(found);
	END;
END $$;
SELECT pg_temp.broken($$UPDATE fairq.task SET addr = addr + 1 WHERE payload = '"a1"'$$);
SELECT pg_temp.broken($$UPDATE fairq.task SET addr = -10 WHERE payload = '"a1"'$$);
SELECT pg_temp.broken($$UPDATE fairq.task SET group_no = 7, addr = 7 WHERE payload = '"a3"'$$);
SELECT pg_temp.broken($$UPDATE fairq.task SET lease_until = now() WHERE payload = '"b1"'$$);
SELECT pg_temp.broken($$UPDATE fairq.task SET worker = 'me' WHERE payload = '"b1"'$$);
SELECT pg_temp.broken($$DELETE FROM fairq.group_number
	WHERE queue_id = pg_temp.queue_id('storage') AND group_key = 'b'$$);
SELECT pg_temp.broken($$UPDATE fairq.group_number SET group_no = 0
	WHERE queue_id = pg_temp.queue_id('storage') AND group_key = 'b';
	DELETE FROM fairq.task WHERE group_no = 1$$);
SELECT pg_temp.broken($$INSERT INTO fairq.group_number
	VALUES (pg_temp.queue_id('storage'), 5, 'b'), (pg_temp.queue_id('storage'), 10, 'c')$$);
SELECT pg_temp.broken($$UPDATE fairq.queue SET block_length = 7 WHERE name = 'storage'$$);
-- check_queue or an error reports each invalid change of a task's lane
SELECT pg_temp.broken($$ALTER TABLE fairq.task ALTER COLUMN lane DROP EXPRESSION;
	UPDATE fairq.task SET lane = lane + 1 WHERE payload = '"a1"'$$);
UPDATE fairq.task SET priority = 10;
UPDATE fairq.task SET lane = lane + 1;
-- no table accepts a negative group number
UPDATE fairq.task SET group_no = -1;
INSERT INTO fairq.group_number VALUES (pg_temp.queue_id('storage'), -1, 'd');
INSERT INTO fairq.group_setting VALUES (pg_temp.queue_id('storage'), -2147483648);
-- several equal rows of a group in fairq.group_number are valid
SELECT pg_temp.broken($$INSERT INTO fairq.group_number SELECT * FROM fairq.group_number$$);
SELECT * FROM pg_temp.check('storage');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 4);

--
-- Maintenance
--

TRUNCATE fairq.task;
SELECT pg_temp.add('storage', 'a', 1, 9), pg_temp.add('storage', 'b', 1, 9);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
REINDEX TABLE CONCURRENTLY fairq.task;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
SELECT pg_temp.add('storage', 'a', 10, 10), pg_temp.add('storage', 'b', 10, 10);
REINDEX TABLE fairq.task;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
CLUSTER fairq.task USING task_by_group;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
ALTER TABLE fairq.task SET WITHOUT CLUSTER;
VACUUM fairq.task;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
VACUUM (FULL, ANALYZE) fairq.task;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
REINDEX TABLE CONCURRENTLY fairq.group_number;
REINDEX TABLE CONCURRENTLY fairq.queue;
REINDEX TABLE CONCURRENTLY fairq.group_setting;
VACUUM FULL fairq.group_number;
VACUUM FULL fairq.queue;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('storage', 2);
SELECT count(fairq.complete(id, attempt)) FROM fairq.tasks WHERE queue = 'storage' AND status = 'running';
SELECT fairq.enqueue('storage', 'c') > 0 AS ok;
SELECT pg_temp.pop('storage') IS NOT NULL AS popped;
SELECT * FROM pg_temp.check('storage');

--
-- Indexes
--

-- fairq refuses to write an index that it cannot maintain, until the index is
-- dropped. Calls that add no entry to such an index continue: a running task
-- can complete and a task can be taken. A task can be popped if the claim
-- changes none of the index's columns.
SELECT pg_temp.add('storage', 'a', 1, 4);
CREATE INDEX storage_extra ON fairq.task (addr) WHERE lease_until IS NULL;
SELECT fairq.enqueue('storage', 'a');
SELECT fairq.pop('storage');
SELECT payload FROM fairq.take('storage');
SELECT fairq.purge('storage');
DROP INDEX fairq.storage_extra;
CREATE INDEX storage_extra ON fairq.task ((payload->>'x'));
SELECT fairq.enqueue('storage', 'a');
SELECT fairq.complete(id) FROM fairq.tasks WHERE queue = 'storage' AND status = 'running' LIMIT 1;
DROP INDEX fairq.storage_extra;
CREATE INDEX storage_extra ON fairq.task USING gin (payload);
SELECT fairq.enqueue('storage', 'a');
DROP INDEX fairq.storage_extra;
CREATE INDEX storage_extra ON fairq.task USING hash (worker);
SELECT fairq.enqueue('storage', 'a');
SELECT fairq.pop('storage', worker => 'storage');
SELECT payload FROM fairq.pop('storage');
DROP INDEX fairq.storage_extra;
CREATE INDEX storage_extra ON fairq.task USING brin (enqueued_at);
SELECT fairq.enqueue('storage', 'a');
SELECT payload FROM fairq.pop('storage');
DROP INDEX fairq.storage_extra;
CREATE INDEX storage_extra ON fairq.task USING brin (lease_until);
SELECT fairq.pop('storage');
DROP INDEX fairq.storage_extra;
CREATE INDEX storage_extra ON fairq.group_number (lower(group_key));
SELECT fairq.enqueue('storage', 'none yet');
DROP INDEX fairq.storage_extra;
SELECT pg_temp.pop('storage');

-- fairq maintains plain indexes, here on all columns that a claim changes.
CREATE INDEX storage_lease ON fairq.task (lease_until, attempt) INCLUDE (worker);
CREATE INDEX storage_worker ON fairq.task (worker DESC NULLS LAST);
CREATE UNIQUE INDEX storage_unique ON fairq.task (queue_id, id);
SELECT pg_temp.add('storage', 'a', 1, 3), pg_temp.add('storage', 'b', 1, 3);
SELECT count(*) FROM fairq.pop('storage', 2, worker => 'storage');
SELECT fairq.release(min(id)) FROM fairq.tasks WHERE queue = 'storage' AND worker = 'storage';
SELECT count(*) FROM fairq.pop('storage', 4, worker => 'storage');
SELECT fairq.complete(max(id)) FROM fairq.tasks WHERE queue = 'storage' AND worker = 'storage';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT worker FROM fairq.task WHERE worker = 'storage';
SELECT count(*) FROM fairq.task WHERE worker = 'storage';
SELECT count(*) FROM fairq.task WHERE lease_until > '2000-01-01' AND worker = 'storage';
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT count(*) FROM fairq.task WHERE worker || '' = 'storage';
SELECT * FROM pg_temp.check('storage');
DROP INDEX fairq.storage_lease, fairq.storage_worker, fairq.storage_unique;

-- fairq maintains an index that has the columns of one of its own indexes but
-- sorts them differently. fairq does not mistake it for its own index, even if
-- its own index was created later.
CREATE INDEX storage_down ON fairq.task (lane, addr DESC);
CREATE INDEX storage_nulls ON fairq.task (lane, addr NULLS FIRST);
CREATE INDEX storage_down_too ON fairq.task (lane, group_no DESC, addr);
CREATE INDEX storage_locale ON fairq.group_number (queue_id, group_key COLLATE "POSIX");
CREATE INDEX storage_pattern ON fairq.group_number (queue_id, group_key text_pattern_ops);
REINDEX TABLE CONCURRENTLY fairq.task;
REINDEX INDEX CONCURRENTLY fairq.task_by_time;
REINDEX INDEX CONCURRENTLY fairq.task_by_group;
REINDEX INDEX CONCURRENTLY fairq.group_number_by_key;
SELECT fairq.create_queue('storage_order');
SELECT count(fairq.enqueue('storage_order', g, to_jsonb(g || n)))
FROM generate_series(1, 3) n, unnest('{a,b,c}'::text[]) g;
SELECT pg_temp.pop('storage_order', 4);
SELECT pg_temp.add('storage_order', 'd', 1, 1);
SELECT pg_temp.pop('storage_order', 4);
DELETE FROM fairq.task WHERE payload = '"c3"';
SELECT pg_temp.pop('storage_order', 4);
SELECT * FROM pg_temp.check('storage_order');
DROP INDEX fairq.storage_down, fairq.storage_down_too, fairq.storage_locale;
-- A partial index of timed tasks, like fairq's own, is also maintained. A
-- partial index of other tasks is refused.
CREATE INDEX storage_timed ON fairq.task (addr, id) WHERE addr >= 4611686018427387904;
SELECT fairq.enqueue('storage_order', 'a', '"timed"', run_at => now() + interval '1 hour') > 0;
SELECT fairq.enqueue('storage_order', 'a', '"queued"') > 0;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT payload FROM fairq.task WHERE addr >= 4611686018427387904 ORDER BY addr;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT fairq.purge('storage_order', 'a') > 0;
DROP INDEX fairq.storage_timed;
CREATE INDEX storage_timed ON fairq.task (addr) WHERE addr >= 4611686018427387903;
SELECT fairq.enqueue('storage_order', 'a');
DROP INDEX fairq.storage_timed;
CREATE INDEX storage_timed ON fairq.task (addr) WHERE id >= 4611686018427387904;
SELECT fairq.enqueue('storage_order', 'a');
DROP INDEX fairq.storage_timed;
CREATE INDEX storage_timed ON fairq.task (addr)
WHERE addr >= 4611686018427387904 AND priority > 0;
SELECT fairq.enqueue('storage_order', 'a');
DROP INDEX fairq.storage_timed;
-- An invalid index of a cancelled REINDEX CONCURRENTLY is neither used nor
-- refused.
CREATE INDEX storage_leftover ON fairq.task (lane, addr);
UPDATE pg_index SET indisvalid = false, indisready = false
WHERE indexrelid = 'fairq.storage_leftover'::regclass;
REINDEX INDEX CONCURRENTLY fairq.task_by_time;
SELECT pg_temp.add('storage_order', 'a', 4, 6);
SELECT pg_temp.pop('storage_order', 2);
-- An index in another order, or an invalid one, does not replace a missing
-- index either.
BEGIN;
DROP INDEX fairq.task_by_group;
SELECT fairq.expire_leases('storage_order');
ROLLBACK;
BEGIN;
DROP INDEX fairq.group_number_by_key;
SELECT fairq.enqueue('storage_order', 'e');
ROLLBACK;
DROP INDEX fairq.storage_nulls, fairq.storage_pattern, fairq.storage_leftover;
SELECT pg_temp.pop('storage_order', 4);
SELECT fairq.drop_queue('storage_order', true);

-- A missing index is reported, and can be created again under another name.
BEGIN;
DROP INDEX fairq.task_by_group;
SELECT fairq.pop('storage');
ROLLBACK;
-- The index of timed tasks is reported as missing once one of these is due. An
-- index of all tasks can replace it.
BEGIN;
DROP INDEX fairq.task_by_time;
SELECT fairq.enqueue('storage', 'a', '"due"', run_at => clock_timestamp() + interval '1 millisecond') > 0;
SELECT pg_sleep(0.01);
SELECT fairq.pop('storage');
ROLLBACK;
BEGIN;
DROP INDEX fairq.task_by_time;
CREATE INDEX other_name ON fairq.task (lane, addr);
SELECT fairq.enqueue('storage', 'due', '"due"', run_at => clock_timestamp() + interval '1 millisecond') > 0;
SELECT pg_sleep(0.01);
SELECT payload FROM fairq.pop('storage', 1000) WHERE group_key = 'due';
ROLLBACK;
BEGIN;
DROP INDEX fairq.task_by_group;
CREATE INDEX other_name ON fairq.task (lane, group_no, addr, attempt);
SELECT pg_temp.add('storage', 'a', 4, 4);
SELECT count(*) FROM fairq.take('storage', 1000);
ROLLBACK;
SELECT count(*) > 0 AS found FROM fairq.pop('storage', 1000);
SELECT * FROM pg_temp.check('storage');

--
-- Triggers that are disabled, or fire in replicas only, as after
-- --disable-triggers
--

BEGIN;
ALTER TABLE fairq.task ENABLE TRIGGER ALL;
ALTER TABLE fairq.group_setting DISABLE TRIGGER ALL;
DROP TRIGGER group_number_changed ON fairq.group_number;
SELECT * FROM pg_temp.check('storage');
-- the statement in the hint works
DO $$
DECLARE
	fault text;
BEGIN
	FOR fault IN SELECT fairq.check_queue('storage') LOOP
		IF fault ~ ': ALTER' THEN
			EXECUTE substring(fault, ': (ALTER.*)');
		END IF;
	END LOOP;
END $$;
SELECT * FROM pg_temp.check('storage');
ROLLBACK;
-- each trigger of the extension is checked
BEGIN;
DO $$
DECLARE
	rel regclass;
BEGIN
	FOR rel IN SELECT oid FROM pg_class WHERE relnamespace = 'fairq'::regnamespace AND relkind = 'r' LOOP
		EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', rel);
	END LOOP;
END $$;
SELECT tgrelid::regclass, tgname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
WHERE relnamespace = 'fairq'::regnamespace AND NOT tgisinternal AND NOT EXISTS (
	SELECT FROM fairq.check_queue('storage') fault WHERE fault ~ format('TABLE %s ENABLE.* %I$', tgrelid::regclass, tgname));
ROLLBACK;

--
-- The extension is created again, in the same session
--

SELECT pg_temp.add('storage', 'a', 1, 3);
BEGIN;
DROP EXTENSION fairq;
ROLLBACK;
SELECT pg_temp.pop('storage');
DROP EXTENSION fairq;
SELECT pg_temp.pop('storage');
SELECT count(*) FROM pg_namespace WHERE nspname IN ('fairq', 'fairq_internal');
SELECT count(*) FROM pg_proc WHERE prosrc LIKE 'fairq\_%';
-- CREATE EXTENSION does not use an existing schema
CREATE SCHEMA fairq_internal;
CREATE EXTENSION fairq;
DROP SCHEMA fairq_internal;
CREATE EXTENSION fairq;
SELECT pg_temp.pop('storage');
SELECT fairq.create_queue('storage');
SELECT pg_temp.add('storage', 'x', 1, 2), pg_temp.add('storage', 'a', 1, 2);
SELECT group_key, payload, addr, id FROM fairq.pop('storage', 100);
SELECT * FROM pg_temp.check('storage');
BEGIN;
DROP EXTENSION fairq;
CREATE EXTENSION fairq;
SELECT fairq.create_queue('storage');
SELECT pg_temp.add('storage', 'y', 1, 2);
SELECT pg_temp.pop('storage');
COMMIT;
SELECT payload FROM fairq.tasks;
SELECT * FROM pg_temp.check('storage');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'storage%';
