-- All calls at all isolation levels, in functions, triggers and cursors, and
-- the places where they are refused.
--
-- Fails if a read-only transaction may write (fairq_writes() in args.c).
\a \t
\set VERBOSITY sqlstate

CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop(queue, n)
$$;

--
-- Each call, with a snapshot older than its tasks
--

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT fairq.create_queue('transactions_rr');
SELECT fairq.set_group('transactions_rr', 'b', weight => 2);
SELECT fairq.enqueue('transactions_rr', 'a', '"a1"') > 0 AS ok;
SELECT count(*) FROM fairq.enqueue_batch('transactions_rr', '{b,b,b,a,a}',
	'{"\"b1\"","\"b2\"","\"b3\"","\"a2\"","\"a3\""}');
SELECT fairq.pause('transactions_rr');
SELECT pg_temp.pop('transactions_rr', 1);
SELECT fairq.resume('transactions_rr');
SELECT pg_temp.pop('transactions_rr', 3);
SELECT fairq.alter_queue('transactions_rr', lease => '1 hour', block_length => 100);
SELECT payload, status, addr FROM fairq.tasks WHERE queue = 'transactions_rr' ORDER BY id;
SELECT payload FROM fairq.take('transactions_rr');
SELECT fairq.complete(id, attempt) FROM fairq.tasks WHERE queue = 'transactions_rr' AND payload = '"a1"';
SELECT fairq.release(id, attempt) FROM fairq.tasks WHERE queue = 'transactions_rr' AND payload = '"b1"';
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'transactions_rr';
SELECT fairq.purge('transactions_rr', 'a');
SELECT group_key, fairq.block_of('transactions_rr', addr) >= 0 AS ok,
	fairq.address('transactions_rr', 'b', 1)
FROM fairq.tasks WHERE queue = 'transactions_rr';
SELECT * FROM fairq.groups WHERE queue = 'transactions_rr' ORDER BY group_no;
SELECT ready, running, lease, block_length FROM fairq.queues WHERE queue = 'transactions_rr';
SELECT fairq.reset_hints();
SELECT * FROM fairq.check_queue('transactions_rr');
COMMIT;
SELECT pg_temp.pop('transactions_rr');
SELECT * FROM fairq.check_queue('transactions_rr');

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT fairq.purge('transactions_rr');
SELECT fairq.drop_queue('transactions_rr', true);
SELECT fairq.create_queue('transactions_rr');
SELECT fairq.enqueue('transactions_rr', 'a', '"new"') > 0 AS ok;
SELECT pg_temp.pop('transactions_rr');
COMMIT;
SELECT * FROM fairq.check_queue('transactions_rr');

BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM (SELECT FROM pg_class LIMIT 1) c;
SELECT fairq.create_queue('transactions_s');
SELECT fairq.set_group('transactions_s', 'b', weight => 2);
SELECT fairq.enqueue('transactions_s', 'a', '"a1"') > 0 AS ok;
SELECT count(*) FROM fairq.enqueue_batch('transactions_s', '{b,b,b,a,a}',
	'{"\"b1\"","\"b2\"","\"b3\"","\"a2\"","\"a3\""}');
SELECT fairq.pause('transactions_s');
SELECT pg_temp.pop('transactions_s', 1);
SELECT fairq.resume('transactions_s');
SELECT pg_temp.pop('transactions_s', 3);
SELECT fairq.alter_queue('transactions_s', lease => '1 hour', block_length => 100);
SELECT payload FROM fairq.take('transactions_s');
SELECT fairq.complete(id, attempt) FROM fairq.tasks WHERE queue = 'transactions_s' AND payload = '"a1"';
SELECT fairq.release(id, attempt) FROM fairq.tasks WHERE queue = 'transactions_s' AND payload = '"b1"';
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'transactions_s';
SELECT fairq.purge('transactions_s', 'a');
SELECT payload, status FROM fairq.tasks WHERE queue = 'transactions_s';
SELECT fairq.drop_queue('transactions_rr', true);
COMMIT;
SELECT * FROM fairq.check_queue('transactions_s');

-- Enqueue, pop and complete read no table with the transaction's snapshot. So a
-- serializable transaction has no predicate lock on fairq's tables.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT fairq.enqueue('transactions_s', 'a', '"a4"') > 0 AS ok;
SELECT count(fairq.complete(id, attempt)) FROM fairq.pop('transactions_s', 100);
SELECT fairq.enqueue('transactions_s', 'c', '"c1"') > 0 AS ok;
SELECT count(*) FROM fairq.take('transactions_s', 100);
SELECT relation::regclass, mode FROM pg_locks
WHERE pid = pg_backend_pid() AND mode = 'SIReadLock'
	AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'fairq'::regnamespace);
SELECT count(*) FROM fairq.task WHERE id = 0;	-- takes a predicate lock
SELECT count(*) > 0 AS locked FROM pg_locks
WHERE pid = pg_backend_pid() AND mode = 'SIReadLock'
	AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'fairq'::regnamespace);
COMMIT;

--
-- Read-only transactions
--

SELECT fairq.enqueue('transactions_s', 'a', '"a5"') AS id \gset
BEGIN READ ONLY;
SELECT status FROM fairq.tasks WHERE queue = 'transactions_s';
SELECT ready FROM fairq.groups WHERE queue = 'transactions_s' AND ready > 0;
SELECT ready FROM fairq.queues WHERE queue = 'transactions_s';
SELECT * FROM fairq.check_queue('transactions_s');
SELECT fairq.address('transactions_s', 'a', 0) >= 0 AS ok, fairq.block_of('transactions_s', 0);
SAVEPOINT s;
SELECT fairq.create_queue('transactions_ro');
ROLLBACK TO s;
SELECT fairq.alter_queue('transactions_s', lease => '1 hour');
ROLLBACK TO s;
SELECT fairq.drop_queue('transactions_s', true);
ROLLBACK TO s;
SELECT fairq.set_group('transactions_s', 'a', weight => 1);
ROLLBACK TO s;
SELECT fairq.pause('transactions_s');
ROLLBACK TO s;
SELECT fairq.resume('transactions_s');
ROLLBACK TO s;
SELECT fairq.pause('transactions_s', 'a');
ROLLBACK TO s;
SELECT fairq.resume('transactions_s', 'a');
ROLLBACK TO s;
SELECT fairq.purge('transactions_s');
ROLLBACK TO s;
SELECT fairq.enqueue('transactions_s', 'a');
ROLLBACK TO s;
SELECT fairq.enqueue_batch('transactions_s', '{a}', '{1}');
ROLLBACK TO s;
SELECT fairq.pop('transactions_s');
ROLLBACK TO s;
SELECT fairq.take('transactions_s');
ROLLBACK TO s;
SELECT fairq.complete(:id);
ROLLBACK TO s;
SELECT fairq.complete_batch(ARRAY[:id]);
ROLLBACK TO s;
SELECT fairq.release(:id);
ROLLBACK TO s;
COMMIT;
SELECT * FROM fairq.check_queue('transactions_s');

--
-- Two-phase commit is refused after a call that wrote
--

SELECT pg_temp.pop('transactions_s');
BEGIN;
SELECT fairq.enqueue('transactions_s', 'a', '"a6"') > 0 AS ok;
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT count(*) FROM fairq.enqueue_batch('transactions_s', '{a}', '{1}');
PREPARE TRANSACTION 'fairq';
SELECT fairq.enqueue('transactions_s', 'a', '"a7"') > 0 AS ok;
BEGIN;
SELECT pg_temp.pop('transactions_s');
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT payload FROM fairq.take('transactions_s');
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.purge('transactions_s');
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.complete(:id);
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.complete_batch(ARRAY[:id]);
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.release(:id);
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.create_queue('transactions_2pc');
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.alter_queue('transactions_s', lease => '2 hours');
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.set_group('transactions_s', '2pc', weight => 2);
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.pause('transactions_s');
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.pause('transactions_s', 'a');
PREPARE TRANSACTION 'fairq';
BEGIN;
SELECT fairq.drop_queue('transactions_s', true);
PREPARE TRANSACTION 'fairq';
BEGIN;
UPDATE fairq.task SET addr = addr WHERE id = :id;
PREPARE TRANSACTION 'fairq';
BEGIN;
SAVEPOINT s;
SELECT fairq.enqueue('transactions_s', 'a', '"a8"') > 0 AS ok;
RELEASE s;
PREPARE TRANSACTION 'fairq';
SELECT gid FROM pg_prepared_xacts;
-- each of these transactions was rolled back
SELECT payload, status FROM fairq.tasks WHERE queue = 'transactions_s' ORDER BY id;
SELECT lease, paused FROM fairq.queues WHERE queue LIKE 'transactions%';
SELECT fairq.enqueue('transactions_s', '2pc', '"2pc"') > 0 AS ok;
SELECT * FROM fairq.check_queue('transactions_s');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY id) FROM fairq.pop('transactions_s', 100);

--
-- Functions, triggers, cursors
--

-- A trigger enqueues a task for each order, in the order's transaction.
SELECT fairq.create_queue('transactions_trigger');
CREATE TABLE transactions_order (id int PRIMARY KEY, customer text);
CREATE FUNCTION transactions_enqueue() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fairq.enqueue('transactions_trigger', NEW.customer, to_jsonb(NEW));
	RETURN NEW;
END $$;
CREATE TRIGGER enqueue AFTER INSERT ON transactions_order
	FOR EACH ROW EXECUTE FUNCTION transactions_enqueue();
INSERT INTO transactions_order VALUES (1, 'bob'), (2, 'bob'), (3, 'alice');
INSERT INTO transactions_order VALUES (4, 'bob'), (1, 'bob');		-- fails
INSERT INTO transactions_order VALUES (5, 'carol') ON CONFLICT DO NOTHING;
INSERT INTO transactions_order VALUES (5, 'carol') ON CONFLICT DO NOTHING;
BEGIN;
INSERT INTO transactions_order VALUES (6, 'dave');
SAVEPOINT s;
INSERT INTO transactions_order VALUES (7, 'dave');
ROLLBACK TO s;
COMMIT;
SELECT payload->'id' AS id, group_key FROM fairq.pop('transactions_trigger', 100);
SELECT * FROM fairq.check_queue('transactions_trigger');

-- A deferred trigger can enqueue at the commit.
DROP TRIGGER enqueue ON transactions_order;
CREATE CONSTRAINT TRIGGER enqueue AFTER INSERT ON transactions_order
	DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION transactions_enqueue();
BEGIN;
INSERT INTO transactions_order VALUES (8, 'bob');
SELECT count(*) FROM fairq.pop('transactions_trigger');
COMMIT;
SELECT payload->'id' AS id, group_key FROM fairq.pop('transactions_trigger', 100);
DROP TABLE transactions_order;
DROP FUNCTION transactions_enqueue();

-- A worker in PL/pgSQL.
CREATE FUNCTION pg_temp.work(queue text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	task fairq.claim;
	tasks fairq.claim[];
BEGIN
	FOR task IN SELECT * FROM fairq.pop(work.queue, 2) LOOP
		BEGIN
			IF task.payload = '"bad"' THEN
				RAISE EXCEPTION 'bad task';
			END IF;
			RETURN NEXT task.payload;
			PERFORM fairq.complete(task.id, task.attempt);
		EXCEPTION WHEN raise_exception THEN
			PERFORM fairq.release(task.id, task.attempt);
			RETURN NEXT 'released';
		END;
	END LOOP;
	SELECT array_agg(t) INTO tasks FROM fairq.take(work.queue, 2) t;
	RETURN NEXT cardinality(tasks);
END $$;
SELECT fairq.create_queue('transactions_work');
SELECT count(*) FROM fairq.enqueue_batch('transactions_work', '{a,a,b,c}', '{1,2,"\"bad\"",4}');
SELECT * FROM pg_temp.work('transactions_work');
SELECT payload, attempt, status FROM fairq.tasks WHERE queue = 'transactions_work';
SELECT * FROM fairq.check_queue('transactions_work');

-- A cursor pops when it is first read. Then it pops all tasks that its query requests.
SELECT fairq.create_queue('transactions_cursor');
SELECT count(*) FROM fairq.enqueue_batch('transactions_cursor', '{a,a,a,b,b,b}', '{1,2,3,1,2,3}');
BEGIN;
DECLARE c CURSOR FOR SELECT group_key, payload FROM fairq.pop('transactions_cursor', 3);
DECLARE unread CURSOR FOR SELECT group_key, payload FROM fairq.pop('transactions_cursor', 3);
SELECT count(*) FROM fairq.tasks WHERE queue = 'transactions_cursor' AND status = 'running';
FETCH c;
SELECT count(*) FROM fairq.tasks WHERE queue = 'transactions_cursor' AND status = 'running';
SELECT pg_temp.pop('transactions_cursor', 1);
FETCH ALL c;
CLOSE c;
COMMIT;
BEGIN;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT group_key, payload FROM fairq.pop('transactions_cursor', 2);
COMMIT;
FETCH ALL c;
FETCH BACKWARD 1 c;
CLOSE c;
SELECT count(*) FROM fairq.pop('transactions_cursor');
SELECT count(*) FROM fairq.tasks WHERE queue = 'transactions_cursor' AND status = 'running';

-- If a cursor over a pop is rolled back, its tasks are ready again.
SELECT count(fairq.release(id)) FROM fairq.tasks WHERE queue = 'transactions_cursor';
BEGIN;
SAVEPOINT s;
DECLARE c CURSOR FOR SELECT group_key FROM fairq.pop('transactions_cursor', 6);
FETCH c;
ROLLBACK TO s;
SELECT count(*), count(DISTINCT group_key) FROM fairq.pop('transactions_cursor', 2);
COMMIT;
SELECT * FROM fairq.check_queue('transactions_cursor');

-- LIMIT does not give popped tasks back to the queue.  Calls also work in the
-- select list and in WITH.
SELECT count(*) FROM (SELECT FROM fairq.pop('transactions_cursor', 2) LIMIT 1) p;
SELECT count(*) FROM fairq.tasks WHERE queue = 'transactions_cursor' AND status = 'running';
SELECT (fairq.pop('transactions_cursor', 1)).group_key IS NOT NULL AS popped;
WITH p AS MATERIALIZED (SELECT * FROM fairq.pop('transactions_cursor', 100))
SELECT count(fairq.complete(id, attempt)) FROM p;
SELECT * FROM fairq.check_queue('transactions_cursor');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'transactions%';
