-- Publications: fairq's functions may update and delete exactly the rows that
-- SQL may update and delete.
--
-- Fails if store.c does not check the replica identity, or if
-- fairq.group_number has none.
\a \t
SET client_min_messages = warning;
-- suppresses a warning that wal_level is insufficient, because nothing is
-- replicated here
SET client_min_messages = error;
CREATE PUBLICATION publications FOR ALL TABLES;
RESET client_min_messages;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('publications', concurrency => 2, retain => '1 day');
SELECT queue_id FROM fairq.queue WHERE name = 'publications' \gset
SELECT count(fairq.enqueue('publications', g, dedup_key => g)) FROM unnest('{a,b,c,d,e}'::text[]) g;
SELECT id AS task, attempt FROM fairq.pop('publications') \gset
-- Are the tasks as before?
CREATE TEMP TABLE before AS
	SELECT t.id, addr, attempt, lease_until FROM fairq.task t JOIN fairq.queue q USING (queue_id) WHERE name = 'publications';
CREATE FUNCTION pg_temp.kept() RETURNS boolean LANGUAGE sql AS $$
	SELECT NOT EXISTS (TABLE before EXCEPT SELECT id, addr, attempt, lease_until FROM fairq.task)
$$;

--
-- Each table has an identity, so all calls work.
--

SELECT relname FROM pg_class
WHERE relnamespace = 'fairq'::regnamespace AND relkind = 'r' AND relreplident <> 'f'
	AND NOT (relreplident = 'd'
		AND EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary));
SELECT fairq.create_queue('publications_all', concurrency => 1), fairq.set_group('publications_all', 'a', weight => 2);
SELECT fairq.grant_queue('publications_all', session_user::text::regrole, 'work');
SELECT count(fairq.enqueue('publications_all', g)) FROM unnest('{a,b,c,d}'::text[]) g;
SELECT count(fairq.complete(id, attempt)) FROM fairq.pop('publications_all', 2);
SELECT count(*) FROM fairq.take('publications_all', 1);
SELECT fairq.maintain('publications_all');
SELECT count(*) FROM fairq.groups WHERE queue = 'publications_all';
DELETE FROM fairq.group_number s USING fairq.queue q WHERE s.queue_id = q.queue_id AND name = 'publications_all';
SELECT fairq.drop_queue('publications_all', force => true);

--
-- With a row filter on a column outside the identity, updates and deletes
-- cannot be replicated.
--

DROP PUBLICATION publications;
SET client_min_messages = error;
CREATE PUBLICATION publications FOR TABLE fairq.task WHERE (queue_id = :queue_id);
RESET client_min_messages;
DELETE FROM fairq.task WHERE id = :task;
SELECT fairq.complete(:task, :attempt);
UPDATE fairq.task SET worker = 'me' WHERE id = :task;
SELECT fairq.pop('publications');
SELECT fairq.take('publications');
SELECT cardinality(fairq.complete_batch(ARRAY[:task]));
SELECT fairq.fail(:task);
SELECT fairq.release(:task);
SELECT fairq.extend(:task);
SELECT fairq.cancel(:task);
SELECT fairq.purge('publications');
-- a new task can be replicated
BEGIN;
SELECT fairq.enqueue('publications', 'f') > 0 AS ok;
SELECT fairq.pop('publications');
ROLLBACK;
SELECT pg_temp.kept();
SELECT * FROM fairq.check_queue('publications');

-- A table that is not published is not checked.
ALTER PUBLICATION publications SET (publish = 'insert, delete');
BEGIN;
SELECT count(*) FROM fairq.pop('publications');
SELECT fairq.complete(:task, :attempt);
ROLLBACK;
ALTER PUBLICATION publications SET (publish = 'insert, update');
BEGIN;
SELECT fairq.purge('publications');
SELECT fairq.extend(:task);
ROLLBACK;
-- if the identity has the column of the row filter, the calls work, too
ALTER PUBLICATION publications SET (publish = 'insert, update, delete');
CREATE UNIQUE INDEX publications_identity ON fairq.task (queue_id, id);
ALTER TABLE fairq.task REPLICA IDENTITY USING INDEX publications_identity;
BEGIN;
SELECT count(*) FROM fairq.pop('publications', 2);
SELECT fairq.complete(:task, :attempt);
ROLLBACK;

--
-- Without an identity
--

DROP PUBLICATION publications;
ALTER TABLE fairq.task REPLICA IDENTITY NOTHING;
DROP INDEX fairq.publications_identity;
ALTER TABLE fairq.group_number REPLICA IDENTITY NOTHING;
ALTER TABLE fairq.dedup REPLICA IDENTITY NOTHING;
ALTER TABLE fairq.archive REPLICA IDENTITY NOTHING;
BEGIN;
SELECT count(*) FROM fairq.pop('publications');
ROLLBACK;
SET client_min_messages = error;
CREATE PUBLICATION publications FOR ALL TABLES;
RESET client_min_messages;
DELETE FROM fairq.task WHERE id = :task;
SELECT fairq.purge('publications');
UPDATE fairq.task SET worker = 'me' WHERE id = :task;
SELECT fairq.pop('publications');
ALTER TABLE fairq.task REPLICA IDENTITY DEFAULT;
SELECT fairq.complete(:task, :attempt);
ALTER TABLE fairq.dedup REPLICA IDENTITY DEFAULT;
SELECT fairq.complete(:task, :attempt);
SELECT fairq.fail(id, dead => true) FROM fairq.pop('publications');
SELECT fairq.redrive('publications');
ALTER TABLE fairq.archive REPLICA IDENTITY DEFAULT;
SELECT fairq.redrive('publications');
SELECT fairq.maintain('publications');
ALTER TABLE fairq.group_number REPLICA IDENTITY FULL;
SELECT fairq.maintain('publications');
SELECT count(*) FROM fairq.pop('publications', 100);
SELECT * FROM fairq.check_queue('publications');

SELECT fairq.drop_queue('publications', force => true);
DROP PUBLICATION publications;
