-- Unusual callers: functions with settings of their own, procedures that
-- commit, triggers at commit, cursors, joins, statements that write to other
-- tables, and parallel workers.
--
-- Fails if a parallel worker may write (fairq_writes() in args.c), or call
-- check_queue (check.c).
\a \t
\set VERBOSITY sqlstate

-- Adds tasks with these payloads; the first letter of each is its group.
CREATE FUNCTION pg_temp.add(queue text, VARIADIC payloads text[]) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue(queue, left(p, 1), to_jsonb(p))) FROM unnest(payloads) p
$$;

CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop(queue, n)
$$;

-- The payloads of the running tasks, or of all other tasks.
CREATE FUNCTION pg_temp.tasks(queue text, running boolean) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload #>> '{}')
	FROM fairq.tasks t WHERE t.queue = tasks.queue AND (status = 'running') = running
$$;

--
-- Functions with settings of their own
--

SELECT fairq.create_queue('contexts_set');
SELECT pg_temp.add('contexts_set', 'a1', 'a2', 'b1', 'b2', 'c1', 'c2');
SELECT fairq.enqueue('contexts_set', 'z', '"z1"', priority => 9, dedup_key => 'z') > 0 AS ok;
-- a part of a function makes the transaction read-only; after that part the
-- transaction can write again
CREATE FUNCTION pg_temp.pop_read_only(queue text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
	SET LOCAL transaction_read_only = on;
	RETURN (SELECT payload #>> '{}' FROM fairq.pop(queue));
EXCEPTION WHEN read_only_sql_transaction THEN
	RETURN SQLSTATE;
END $$;
SELECT pg_temp.pop_read_only('contexts_set');
BEGIN;
SELECT pg_temp.pop_read_only('contexts_set');
SELECT pg_temp.pop('contexts_set', 1);
COMMIT;
-- default_transaction_read_only applies to later transactions, so the pop
-- succeeds
CREATE FUNCTION pg_temp.pop_then_read_only(queue text) RETURNS text
LANGUAGE sql SET default_transaction_read_only = on AS $$
	SELECT payload #>> '{}' FROM fairq.pop(queue)
$$;
SELECT pg_temp.pop_then_read_only('contexts_set');
-- calls with a search_path in which = and max have other meanings
CREATE SCHEMA contexts_evil;
CREATE AGGREGATE contexts_evil.max(int) (SFUNC = int4pl, STYPE = int, INITCOND = '1000000');
CREATE FUNCTION contexts_evil.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR contexts_evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = contexts_evil.never);
CREATE FUNCTION pg_temp.in_evil(call text) RETURNS text
LANGUAGE plpgsql SET search_path = contexts_evil, pg_catalog AS $$
DECLARE
	result text;
BEGIN
	EXECUTE 'SELECT ' || call INTO result;
	RETURN result;
END $$;
SELECT pg_temp.in_evil($$ fairq.alter_queue('contexts_set', lease => '1 hour', block_length => 50) $$);
SELECT pg_temp.in_evil($$ fairq.set_group('contexts_set', 'c', concurrency => 1) $$);
SELECT pg_temp.in_evil($$ (fairq.pop('contexts_set')).payload $$);
SELECT pg_temp.in_evil($$ fairq.maintain('contexts_set') $$);
SELECT pg_temp.in_evil($$ fairq.check_queue('contexts_set') $$);
SELECT * FROM fairq.check_queue('contexts_set');
SELECT pg_temp.in_evil($$ fairq.set_group('contexts_set', 'c', concurrency => 0) $$);
SELECT lease, block_length, ready, running FROM fairq.queues WHERE queue = 'contexts_set';
SELECT concurrency FROM fairq.groups WHERE queue = 'contexts_set' AND group_key = 'c';
SET client_min_messages = warning;
DROP SCHEMA contexts_evil CASCADE;
DROP ROLE IF EXISTS regress_fairq_contexts;	-- if an interrupted run left it
RESET client_min_messages;
-- a function that sets another role calls fairq
CREATE ROLE regress_fairq_contexts;
SELECT fairq.grant_queue('contexts_set', 'regress_fairq_contexts', 'enqueue');
CREATE FUNCTION pg_temp.as_producer(call text) RETURNS text
LANGUAGE plpgsql SET role = regress_fairq_contexts AS $$
DECLARE
	result text;
BEGIN
	EXECUTE 'SELECT ' || call INTO result;
	RETURN result;
END $$;
SELECT pg_temp.as_producer($$ fairq.enqueue('contexts_set', 'd', '"d1"') > 0 $$);
SELECT pg_temp.as_producer($$ fairq.pop('contexts_set') $$);
SELECT pg_temp.pop('contexts_set');
-- calls also write in a function that is declared to be stable
CREATE FUNCTION pg_temp.pop_stable(queue text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
	PERFORM pg_temp.add(queue, 'e1', 'e2');
	PERFORM fairq.set_group(queue, 'e', concurrency => 1);
	RETURN pg_temp.pop(queue);
END $$;
SELECT pg_temp.pop_stable('contexts_set');
SELECT pg_temp.tasks('contexts_set', false);
SELECT * FROM fairq.check_queue('contexts_set');

--
-- Procedures
--

-- A worker ends each task in a transaction of its own. The popped tasks outlive
-- these transactions.
SELECT fairq.create_queue('contexts_call');
SELECT pg_temp.add('contexts_call', 'a1', 'b1', 'a2', 'b2');
CREATE PROCEDURE pg_temp.work(queue text, INOUT done text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
	task fairq.claim;
BEGIN
	FOR task IN SELECT * FROM fairq.pop(queue, 4) LOOP
		COMMIT;
		IF fairq.complete(task.id, task.attempt) THEN
			done := concat_ws(' ', done, task.payload #>> '{}');
		END IF;
		IF task.payload = '"b1"' THEN
			ROLLBACK;
		END IF;
	END LOOP;
END $$;
CALL pg_temp.work('contexts_call');
SELECT pg_temp.tasks('contexts_call', true);
SELECT fairq.complete(id, attempt) FROM fairq.tasks WHERE queue = 'contexts_call';
-- a rollback in the middle undoes the pop
SELECT pg_temp.add('contexts_call', 'a1', 'b1', 'a2', 'b2');
CREATE PROCEDURE pg_temp.give_up(queue text, INOUT done text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
	task fairq.claim;
BEGIN
	FOR task IN SELECT * FROM fairq.pop(queue, 4) LOOP
		ROLLBACK;
		IF fairq.complete(task.id, task.attempt) THEN
			done := concat_ws(' ', done, task.payload #>> '{}');
		END IF;
	END LOOP;
END $$;
CALL pg_temp.give_up('contexts_call');
SELECT pg_temp.tasks('contexts_call', true), pg_temp.tasks('contexts_call', false);
-- a procedure that calls wait() fails in a transaction block, where it cannot
-- commit
CREATE PROCEDURE pg_temp.wait_and_work(queue text, INOUT done text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
	ready boolean;
BEGIN
	LOOP
		CALL fairq.wait(queue, '0', ready);
		EXIT WHEN NOT ready;
		done := concat_ws(' ', done, (SELECT t.payload #>> '{}' FROM fairq.take(queue) t));
	END LOOP;
END $$;
CALL pg_temp.wait_and_work('contexts_call');
BEGIN;
CALL pg_temp.wait_and_work('contexts_call');
ROLLBACK;
DO $$
DECLARE
	ready boolean;
BEGIN
	CALL fairq.wait('contexts_call', '0', ready);
	BEGIN
		CALL fairq.wait('contexts_call', '0', ready);
	EXCEPTION WHEN active_sql_transaction THEN
		PERFORM pg_temp.add('contexts_call', 'c1');
	END;
END $$;
SELECT pg_temp.tasks('contexts_call', false);
SELECT * FROM fairq.check_queue('contexts_call');

--
-- A worker runs at the commit
--

-- Deferred triggers run at the end of the transaction. The tasks that they
-- pop, finish and enqueue belong to the transaction.
SELECT fairq.create_queue('contexts_commit', concurrency => 1);
SELECT pg_temp.add('contexts_commit', 'a1', 'a2', 'b1', 'b2');
CREATE TABLE contexts_table (id int PRIMARY KEY, note text);
CREATE FUNCTION contexts_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.note := pg_temp.pop('contexts_commit', 1);
	PERFORM fairq.complete(id) FROM fairq.tasks
	WHERE queue = 'contexts_commit' AND status = 'running' AND payload = '"b1"';
	PERFORM pg_temp.add('contexts_commit', 'c' || NEW.id);
	IF NEW.note IS NULL THEN
		RAISE EXCEPTION no_data_found;
	END IF;
	UPDATE contexts_table SET note = NEW.note WHERE id = NEW.id;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER work AFTER INSERT ON contexts_table DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION contexts_at_commit();
BEGIN;
INSERT INTO contexts_table VALUES (1), (2);
SELECT pg_temp.tasks('contexts_commit', true), pg_temp.tasks('contexts_commit', false);
COMMIT;
TABLE contexts_table;
SELECT pg_temp.tasks('contexts_commit', true), pg_temp.tasks('contexts_commit', false);
-- the commit fails and undoes everything
BEGIN;
SELECT pg_temp.add('contexts_commit', 'd1');
INSERT INTO contexts_table SELECT n FROM generate_series(3, 9) n;
SELECT fairq.pause('contexts_commit');
COMMIT;
SELECT count(*) FROM contexts_table;
SELECT pg_temp.tasks('contexts_commit', true), pg_temp.tasks('contexts_commit', false);
SELECT * FROM fairq.check_queue('contexts_commit');
SELECT pg_temp.pop('contexts_commit');
DROP TABLE contexts_table;
DROP FUNCTION contexts_at_commit();

--
-- Cursors
--

SELECT fairq.create_queue('contexts_cursor');
SELECT pg_temp.add('contexts_cursor', 'a1', 'b1', 'a2', 'b2', 'a3', 'b3');
-- a cursor that is read in part and closed has popped all tasks
BEGIN;
DECLARE c CURSOR FOR SELECT payload FROM fairq.pop('contexts_cursor', 2);
FETCH c;
CLOSE c;
COMMIT;
SELECT pg_temp.tasks('contexts_cursor', true);
-- MOVE pops tasks, too, although it returns none
BEGIN;
DECLARE c CURSOR FOR SELECT payload FROM fairq.pop('contexts_cursor', 2);
MOVE c;
FETCH ALL c;
ROLLBACK;
SELECT pg_temp.tasks('contexts_cursor', true);
-- cursors WITH HOLD: one is not read before a rollback, and one is read in
-- part before its commit
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT payload FROM fairq.pop('contexts_cursor', 1);
ROLLBACK;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT payload, fairq.complete(id, attempt) FROM fairq.pop('contexts_cursor', 2);
FETCH c;
COMMIT;
SELECT pg_temp.tasks('contexts_cursor', true), pg_temp.tasks('contexts_cursor', false);
FETCH ALL c;
CLOSE c;
-- A cursor keeps its position after a rollback to a savepoint. So it returns
-- tasks whose pop has been undone.
BEGIN;
DECLARE c CURSOR FOR SELECT id, payload, attempt FROM fairq.pop('contexts_cursor', 2);
SAVEPOINT s;
FETCH c \gset
ROLLBACK TO s;
SELECT pg_temp.tasks('contexts_cursor', true);
SELECT fairq.complete(:id, :attempt);
FETCH c \gset
SELECT :'payload', fairq.complete(:id, :attempt);
COMMIT;
SELECT pg_temp.tasks('contexts_cursor', true), pg_temp.tasks('contexts_cursor', false);
SELECT * FROM fairq.check_queue('contexts_cursor');

--
-- Joins, and statements that write elsewhere
--

SELECT fairq.create_queue('contexts_join');
SELECT pg_temp.add('contexts_join', VARIADIC array(SELECT 'a' || n FROM generate_series(10, 40) n));
SELECT g, string_agg(payload #>> '{}', ' ') FROM generate_series(1, 3) g, LATERAL fairq.pop('contexts_join', g) p GROUP BY g ORDER BY g;
-- fairq.pop() is not called if no row needs its result
SELECT g, payload FROM (SELECT g FROM generate_series(1, 2) g WHERE g > 2) g, LATERAL fairq.pop('contexts_join', g) p;
CREATE TABLE contexts_note (id bigint, note text);
WITH p AS (
	SELECT * FROM fairq.pop('contexts_join', 2)
), n AS (
	INSERT INTO contexts_note SELECT id, payload #>> '{}' FROM p RETURNING id, note
)
SELECT note, fairq.complete(id) FROM n;
INSERT INTO contexts_note SELECT id, payload #>> '{}' FROM fairq.take('contexts_join', 2);
UPDATE contexts_note SET note = note || ' ' || (p.payload #>> '{}') FROM fairq.pop('contexts_join') p WHERE note = 'a20';
MERGE INTO contexts_note n USING (SELECT * FROM fairq.pop('contexts_join', 2)) p ON n.id = p.id
	WHEN NOT MATCHED THEN INSERT VALUES (p.id, p.payload #>> '{}');
DELETE FROM contexts_note n USING fairq.tasks t WHERE n.id = t.id AND t.status = 'running' AND fairq.release(n.id);
COPY (SELECT payload FROM fairq.pop('contexts_join')) TO STDOUT;
CREATE TABLE contexts_as AS SELECT payload FROM fairq.take('contexts_join');
ALTER TABLE contexts_note ADD COLUMN task bigint DEFAULT fairq.enqueue('contexts_join', 'd', '"default"');
INSERT INTO contexts_note (note) VALUES ('last');
SELECT note, t.payload FROM contexts_note n LEFT JOIN fairq.tasks t ON t.id = n.task ORDER BY n.id, t.id;
TABLE contexts_as;
PREPARE contexts_pop (int) AS SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('contexts_join', $1);
EXECUTE contexts_pop(1);
EXECUTE contexts_pop(2);
DEALLOCATE contexts_pop;
-- an error of one row is an error of the statement
SELECT fairq.complete(id), 1 / (5 - row_number() OVER ()) FROM fairq.pop('contexts_join', 10);
SELECT pg_temp.pop('contexts_join', 3);
SELECT * FROM fairq.check_queue('contexts_join');
DROP TABLE contexts_note, contexts_as;

--
-- Parallel query
--

-- Since PostgreSQL 16, force_parallel_mode is called debug_parallel_query.
SELECT count(*) FROM (
	SELECT set_config(name, 'on', false) FROM pg_settings
	WHERE name IN ('force_parallel_mode', 'debug_parallel_query')) s;
SELECT fairq.version();
SELECT queue, ready, running FROM fairq.queues WHERE queue LIKE 'contexts_c%' ORDER BY queue;
SELECT group_key, ready, running FROM fairq.groups WHERE queue = 'contexts_commit' ORDER BY group_no;
SELECT payload, status FROM fairq.tasks WHERE queue = 'contexts_commit' ORDER BY payload::text;
SELECT * FROM fairq.check_queue('contexts_commit');
SELECT pg_temp.add('contexts_commit', 'f1', 'f2');
SELECT pg_temp.pop('contexts_commit');
-- A function that is declared to be parallel safe makes the calls in a parallel worker,
-- which must not write.
CREATE FUNCTION contexts_in_worker(call text) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$
DECLARE
	result text;
BEGIN
	EXECUTE 'SELECT ' || call INTO result;
	RETURN result;
END $$;
SELECT contexts_in_worker($$ fairq.pop('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.take('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.enqueue('contexts_commit', 'a') $$);
SELECT contexts_in_worker($$ fairq.enqueue_batch('contexts_commit', '{a}', '{1}') $$);
SELECT contexts_in_worker($$ fairq.complete(1) $$);
SELECT contexts_in_worker($$ fairq.complete_batch('{1}') $$);
SELECT contexts_in_worker($$ fairq.fail(1) $$);
SELECT contexts_in_worker($$ fairq.release(1) $$);
SELECT contexts_in_worker($$ fairq.extend(1) $$);
SELECT contexts_in_worker($$ fairq.cancel(1) $$);
SELECT contexts_in_worker($$ fairq.purge('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.expire_leases('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.redrive('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.maintain() $$);
SELECT contexts_in_worker($$ fairq.create_queue('contexts_new') $$);
SELECT contexts_in_worker($$ fairq.alter_queue('contexts_commit', lease => '1 hour') $$);
SELECT contexts_in_worker($$ fairq.set_group('contexts_commit', 'a', weight => 2) $$);
SELECT contexts_in_worker($$ fairq.pause('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.resume('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.grant_queue('contexts_commit', current_user::regrole, 'work') $$);
SELECT contexts_in_worker($$ fairq.revoke_queue('contexts_commit', current_user::regrole, 'work') $$);
SELECT contexts_in_worker($$ fairq.drop_queue('contexts_commit', true) $$);
SELECT contexts_in_worker($$ fairq.enqueue_or_find('contexts_commit', 'a') $$);
SELECT contexts_in_worker($$ fairq.reschedule(1) $$);
SELECT contexts_in_worker($$ fairq.set_progress(1, 1, '1') $$);
SELECT contexts_in_worker($$ fairq.fail_batch('{1}') $$);
SELECT contexts_in_worker($$ fairq.release_batch('{1}') $$);
SELECT contexts_in_worker($$ fairq.extend_batch('{1}') $$);
SELECT contexts_in_worker($$ fairq.hold('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.redrive(1) $$);
SELECT contexts_in_worker($$ fairq.purge_failed('contexts_commit') $$);
SELECT contexts_in_worker($$ fairq.set_shard(1) $$);
-- check_queue() takes snapshots, which is also refused in a parallel worker
SELECT contexts_in_worker($$ fairq.check_queue('contexts_commit') $$);
-- functions that only read are allowed in a parallel worker
SELECT contexts_in_worker($$ fairq.block_of('contexts_commit', fairq.address('contexts_commit', 'a', 7)) $$);
SELECT contexts_in_worker($$ fairq.reset_hints() $$);
SELECT contexts_in_worker($$ (SELECT ready + running FROM fairq.queues WHERE queue = 'contexts_commit') $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.groups WHERE queue = 'contexts_commit') > 0 $$);
SELECT contexts_in_worker($$ (SELECT count(reason) FROM fairq.tasks WHERE queue = 'contexts_commit') > 0 $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.stats WHERE queue = 'contexts_commit') $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.fairness) >= 0 $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.lanes) >= 0 $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.lane_groups('contexts_commit', 0)) >= 0 $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.group_stats('contexts_commit')) >= 0 $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.all_group_stats()) >= 0 $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.group_shares('contexts_commit')) $$);
SELECT contexts_in_worker($$ (SELECT count(*) FROM fairq.peek('contexts_commit')) >= 0 $$);
SELECT contexts_in_worker($$ (SELECT count(fairq.turns_before(id)) FROM fairq.tasks) >= 0 $$);
SELECT contexts_in_worker($$ fairq.find('contexts_commit', 'none') IS NULL $$);
SELECT contexts_in_worker($$ fairq.shard() $$);
SELECT count(*) FROM (
	SELECT set_config(name, 'off', false) FROM pg_settings
	WHERE name IN ('force_parallel_mode', 'debug_parallel_query')) s;
DROP FUNCTION contexts_in_worker(text);
SELECT * FROM fairq.check_queue('contexts_commit');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'contexts%';
DROP ROLE regress_fairq_contexts;
