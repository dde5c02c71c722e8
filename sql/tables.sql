-- fairq refuses tables with objects, such as triggers, that its functions
-- would bypass. No task is lost, and work continues once the object is
-- dropped.
--
-- Fails if fairq_open() does not check tables (store.c), or if the result of
-- the check is kept although the table changed.
\a \t
\set VERBOSITY sqlstate

SELECT fairq.create_queue('tables'), fairq.create_queue('tables_all', retain => '1 day');
SELECT count(fairq.enqueue('tables', g, dedup_key => g)) FROM unnest('{a,b,c}'::text[]) g;
SELECT id AS task, attempt FROM fairq.pop('tables') \gset
CREATE TEMP TABLE before AS
	SELECT t.* FROM fairq.task t JOIN fairq.queue q USING (queue_id) WHERE name = 'tables';

-- Are the tasks as before?
CREATE FUNCTION pg_temp.kept() RETURNS boolean LANGUAGE sql AS $$
	SELECT count(*) = 3 AND count(t.id) = 3
	FROM before b LEFT JOIN ONLY fairq.task t
		ON (t.id, t.addr, t.attempt, t.lease_until) IS NOT DISTINCT FROM (b.id, b.addr, b.attempt, b.lease_until)
$$;

-- Makes each call that writes task, group_number, dedup and archive. Returns
-- how many tasks were served, and whether everything else is unchanged.
CREATE SEQUENCE pg_temp.groups;
CREATE FUNCTION pg_temp.goes_on() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n text := nextval('pg_temp.groups');
	done bigint;
BEGIN
	PERFORM fairq.enqueue('tables_all', n, dedup_key => n);
	SELECT count(*) INTO done FROM fairq.pop('tables_all') p WHERE fairq.complete(p.id, p.attempt);
	RETURN format('%s done%s', done, CASE WHEN NOT pg_temp.kept() THEN ', tasks were changed' END);
END $$;
SELECT pg_temp.goes_on();

-- Changes each table, and returns for each whether the calls refuse or accept the change.
CREATE FUNCTION pg_temp.refused(change text, undo text, tables text[] DEFAULT '{task,group_number,dedup,archive}')
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name text;
	result text := '';
BEGIN
	FOREACH name IN ARRAY tables LOOP
		EXECUTE format(change, name);
		BEGIN
			PERFORM pg_temp.goes_on();
			result := result || name || ' accepted ';
		EXCEPTION WHEN feature_not_supported THEN
			IF NOT pg_temp.kept() OR position('"fairq.' || name || '"' IN SQLERRM) = 0 THEN
				RAISE;
			END IF;
			result := result || name || ' ';
		END;
		EXECUTE format(undo, name);
		IF pg_temp.goes_on() <> '1 done' THEN
			RAISE 'work does not continue';
		END IF;
	END LOOP;
	RETURN result;
END $$;

--
-- Triggers
--

CREATE TABLE tables_log (op text);
CREATE FUNCTION tables_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.tables_log VALUES (TG_OP);
	RETURN NULL;
END $$;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON fairq.task
	FOR EACH ROW EXECUTE FUNCTION tables_log();
SELECT fairq.enqueue('tables', 'a');
SELECT fairq.enqueue_batch('tables', '{a}', '{1}');
SELECT fairq.pop('tables');
SELECT fairq.take('tables');
SELECT fairq.complete(:task, :attempt);
SELECT fairq.complete_batch(ARRAY[:task]);
SELECT fairq.fail(:task);
SELECT fairq.release(:task);
SELECT fairq.extend(:task);
SELECT fairq.cancel(:task);
SELECT fairq.expire_leases('tables');
SELECT fairq.purge('tables');
SELECT fairq.redrive('tables_all');
SELECT fairq.maintain('tables');
SELECT fairq.drop_queue('tables', true);
SELECT pg_temp.kept();
-- calls that only read continue
SELECT * FROM fairq.check_queue('tables');
SELECT ready, running FROM fairq.queues WHERE queue = 'tables';
-- a disabled trigger has no effect
ALTER TABLE fairq.task DISABLE TRIGGER audit;
SELECT pg_temp.goes_on();
ALTER TABLE fairq.task ENABLE REPLICA TRIGGER audit;
SELECT fairq.pop('tables');
DROP TRIGGER audit ON fairq.task;
SELECT pg_temp.goes_on();

SELECT pg_temp.refused('CREATE TRIGGER audit BEFORE DELETE ON fairq.%s FOR EACH ROW EXECUTE FUNCTION tables_log()',
	'DROP TRIGGER audit ON fairq.%s');
SELECT pg_temp.refused('CREATE TRIGGER audit AFTER INSERT ON fairq.%s EXECUTE FUNCTION tables_log()',
	'DROP TRIGGER audit ON fairq.%s');
SELECT pg_temp.refused('CREATE CONSTRAINT TRIGGER audit AFTER INSERT ON fairq.%s
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tables_log()',
	'DROP TRIGGER audit ON fairq.%s');
-- accepted: fairq's own trigger function, and a trigger that fairq's functions would not
-- fire anyway
SELECT pg_temp.refused('CREATE TRIGGER own AFTER INSERT ON fairq.%s FOR EACH ROW EXECUTE FUNCTION fairq_internal.task_changed()',
	'DROP TRIGGER own ON fairq.%s');
SELECT pg_temp.refused('CREATE TRIGGER audit AFTER TRUNCATE ON fairq.%s EXECUTE FUNCTION tables_log()',
	'DROP TRIGGER audit ON fairq.%s');
SELECT count(*) FROM tables_log;

-- Where fairq's functions write by SQL, triggers fire.
CREATE TRIGGER audit AFTER INSERT ON fairq.group_setting FOR EACH ROW EXECUTE FUNCTION tables_log();
SELECT fairq.set_group('tables', 'a', weight => 2);
SELECT count(*) FROM tables_log;
DROP TRIGGER audit ON fairq.group_setting;

--
-- Constraints
--

-- foreign keys that refer to a table, with and without an action
CREATE TABLE tables_file (task_id bigint REFERENCES fairq.task ON DELETE CASCADE);
INSERT INTO tables_file VALUES (:task);
SELECT fairq.complete(:task, :attempt);
SELECT pg_temp.kept();
DROP TABLE tables_file;
SELECT pg_temp.goes_on();
CREATE TABLE tables_file (task_id bigint REFERENCES fairq.task DEFERRABLE);
SELECT fairq.pop('tables');
ALTER TABLE tables_file DROP CONSTRAINT tables_file_task_id_fkey;
SELECT pg_temp.goes_on();
SELECT pg_temp.refused('ALTER TABLE tables_file ADD CONSTRAINT file FOREIGN KEY (task_id) REFERENCES fairq.%s NOT VALID',
	'ALTER TABLE tables_file DROP CONSTRAINT file', '{task,archive}');
DROP TABLE tables_file;
-- foreign keys that a table itself has
CREATE TABLE tables_known (id int PRIMARY KEY);
INSERT INTO tables_known SELECT queue_id FROM fairq.queue;
ALTER TABLE fairq.task ADD CONSTRAINT known FOREIGN KEY (queue_id) REFERENCES tables_known;
SELECT fairq.enqueue('tables', 'a');
ALTER TABLE fairq.task DROP CONSTRAINT known;
SELECT pg_temp.refused('ALTER TABLE fairq.%s ADD CONSTRAINT known FOREIGN KEY (queue_id) REFERENCES tables_known NOT VALID',
	'ALTER TABLE fairq.%s DROP CONSTRAINT known');

ALTER TABLE fairq.task ADD CONSTRAINT small CHECK (pg_column_size(payload) < 100);
SELECT fairq.enqueue('tables', 'a', to_jsonb(repeat('x', 1000)));
ALTER TABLE fairq.task DROP CONSTRAINT small;
SELECT pg_temp.refused('ALTER TABLE fairq.%s ADD CONSTRAINT known CHECK (queue_id > 0) NOT VALID',
	'ALTER TABLE fairq.%s DROP CONSTRAINT known');

UPDATE fairq.task SET worker = 'me';
ALTER TABLE fairq.task ALTER COLUMN worker SET NOT NULL;
SELECT fairq.release(:task);
ALTER TABLE fairq.task ALTER COLUMN worker DROP NOT NULL;
UPDATE fairq.task SET worker = NULL;
SELECT pg_temp.goes_on();

ALTER TABLE fairq.task ADD CONSTRAINT alone UNIQUE (id) DEFERRABLE;
SELECT fairq.pop('tables');
ALTER TABLE fairq.task DROP CONSTRAINT alone;
SELECT pg_temp.goes_on();
ALTER TABLE fairq.task ADD CONSTRAINT alone EXCLUDE USING btree (id WITH =);
SELECT fairq.pop('tables');
ALTER TABLE fairq.task DROP CONSTRAINT alone;
SELECT pg_temp.goes_on();

--
-- Columns
--

ALTER TABLE fairq.task ADD COLUMN tenant int NOT NULL DEFAULT 7;
SELECT fairq.enqueue('tables', 'a');
ALTER TABLE fairq.task DROP COLUMN tenant;
SELECT pg_temp.goes_on();
SELECT pg_temp.refused('ALTER TABLE fairq.%s ADD COLUMN added int DEFAULT 7', 'ALTER TABLE fairq.%s DROP COLUMN added');
SELECT pg_temp.refused('ALTER TABLE fairq.%s ADD COLUMN added serial', 'ALTER TABLE fairq.%s DROP COLUMN added');
SELECT pg_temp.refused('ALTER TABLE fairq.%s ADD COLUMN added int GENERATED BY DEFAULT AS IDENTITY',
	'ALTER TABLE fairq.%s DROP COLUMN added');
SELECT pg_temp.refused('ALTER TABLE fairq.%s ADD COLUMN added int GENERATED ALWAYS AS (queue_id + 1) STORED',
	'ALTER TABLE fairq.%s DROP COLUMN added');
CREATE DOMAIN tables_domain AS int;
SELECT pg_temp.refused('ALTER TABLE fairq.%s ADD COLUMN added tables_domain', 'ALTER TABLE fairq.%s DROP COLUMN added');
-- An additional column without a default is NULL in new rows. Existing rows keep the value
-- of a default that was dropped.
ALTER TABLE fairq.task ADD COLUMN added int DEFAULT 7;
ALTER TABLE fairq.task ALTER COLUMN added DROP DEFAULT;
SELECT fairq.enqueue('tables_all', 'a') > 0 AS ok;
SELECT fairq.extend(:task) IS NOT NULL AS extended;
SELECT added, count(*) FROM fairq.task t JOIN fairq.queue q USING (queue_id)
WHERE name LIKE 'tables%' GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM fairq.take('tables_all', 10);
ALTER TABLE fairq.task DROP COLUMN added;
UPDATE before b SET lease_until = t.lease_until FROM fairq.task t WHERE t.id = b.id;
SELECT pg_temp.goes_on();

-- fairq refuses a table if one of its columns has another type or was dropped.
BEGIN;
ALTER TABLE fairq.dedup ALTER COLUMN id TYPE numeric;
SELECT fairq.enqueue('tables', 'a', dedup_key => 'a');
ROLLBACK;
BEGIN;
ALTER TABLE fairq.task ALTER COLUMN dedup_for TYPE text;
SELECT fairq.check_queue('tables');
ROLLBACK;
BEGIN;
ALTER TABLE fairq.dedup DROP COLUMN id;
SELECT fairq.enqueue('tables', 'a', dedup_key => 'a');
ROLLBACK;
SELECT pg_temp.goes_on();

--
-- Rules, row-level security
--

CREATE RULE keep AS ON DELETE TO fairq.task DO INSTEAD NOTHING;
SELECT fairq.complete(:task, :attempt);
ALTER TABLE fairq.task DISABLE RULE keep;
SELECT pg_temp.goes_on();
DROP RULE keep ON fairq.task;
SELECT pg_temp.refused('CREATE RULE log AS ON INSERT TO fairq.%s DO ALSO INSERT INTO tables_log VALUES (''rule'')',
	'DROP RULE log ON fairq.%s');

ALTER TABLE fairq.task ENABLE ROW LEVEL SECURITY;
SELECT fairq.pop('tables');
ALTER TABLE fairq.task DISABLE ROW LEVEL SECURITY;
SELECT pg_temp.refused('ALTER TABLE fairq.%s ENABLE ROW LEVEL SECURITY', 'ALTER TABLE fairq.%s DISABLE ROW LEVEL SECURITY');

--
-- Inheritance, access methods
--

CREATE TABLE tables_parent (LIKE fairq.task INCLUDING GENERATED);
ALTER TABLE fairq.task INHERIT tables_parent;
SELECT fairq.pop('tables');
SELECT fairq.check_queue('tables');
ALTER TABLE fairq.task NO INHERIT tables_parent;
DROP TABLE tables_parent;
SELECT pg_temp.goes_on();
CREATE TABLE tables_child () INHERITS (fairq.task);
SELECT fairq.pop('tables');
DROP TABLE tables_child;
SELECT pg_temp.goes_on();
SELECT pg_temp.refused('CREATE TABLE tables_child () INHERITS (fairq.%s)', 'DROP TABLE tables_child');
-- a child of a table that fairq only reads is refused, too
CREATE TABLE tables_child () INHERITS (fairq.queue);
SELECT fairq.pop('tables');
DROP TABLE tables_child;

CREATE ACCESS METHOD tables_am TYPE TABLE HANDLER heap_tableam_handler;
ALTER TABLE fairq.dedup SET ACCESS METHOD tables_am;
SELECT fairq.enqueue('tables', 'a', dedup_key => 'x');
ALTER TABLE fairq.dedup SET ACCESS METHOD heap;
SELECT pg_temp.refused('ALTER TABLE fairq.%s SET ACCESS METHOD tables_am', 'ALTER TABLE fairq.%s SET ACCESS METHOD heap');
-- fairq's tables are heaps whatever the default is
BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL default_table_access_method = tables_am;
DROP EXTENSION fairq CASCADE;
CREATE EXTENSION fairq;
SELECT amname, count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam
WHERE relnamespace = 'fairq'::regnamespace AND relkind = 'r' GROUP BY 1;
ROLLBACK;
DROP ACCESS METHOD tables_am;

--
-- A table gets a constraint or a trigger in a transaction that has already
-- called fairq
--

BEGIN;
SELECT fairq.enqueue('tables_all', 'x', '1') > 0 AS ok;
SELECT payload FROM fairq.pop('tables_all');
CREATE TABLE tables_file (task_id bigint REFERENCES fairq.task);
SAVEPOINT s;
SELECT fairq.enqueue('tables_all', 'x', '2');
ROLLBACK TO s;
SELECT fairq.pop('tables');
ROLLBACK TO s;
DROP TABLE tables_file;
SELECT fairq.enqueue('tables_all', 'x', '3') > 0 AS ok;
COMMIT;
SELECT payload FROM fairq.pop('tables_all');
BEGIN;
SELECT fairq.enqueue('tables_all', 'x', '4') > 0 AS ok;
CREATE TRIGGER audit AFTER INSERT ON fairq.task FOR EACH ROW EXECUTE FUNCTION tables_log();
SELECT fairq.enqueue('tables_all', 'x', '5');
COMMIT;
SELECT payload FROM fairq.pop('tables_all');
SELECT count(fairq.complete(id, attempt)) FROM fairq.tasks WHERE queue = 'tables_all' AND status = 'running';
SELECT * FROM fairq.check_queue('tables') UNION ALL SELECT * FROM fairq.check_queue('tables_all');
SELECT pg_temp.goes_on();

SELECT count(*) FROM fairq.take('tables', 10);
SELECT count(*) FROM tables_log;
DROP TABLE tables_log, tables_known;
DROP FUNCTION tables_log();
DROP DOMAIN tables_domain;
SELECT fairq.drop_queue('tables', true), fairq.drop_queue('tables_all');
