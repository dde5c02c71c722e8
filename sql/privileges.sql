-- Nobody but the owner may do anything, until he grants it; and who may call
-- the functions needs no right on the tables.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS fairq;
RESET client_min_messages;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('privileges');
SELECT count(*) FROM fairq.enqueue_batch('privileges', '{a,b}', '{1,2}');
SELECT payload, id FROM fairq.pop('privileges') \gset
CREATE ROLE regress_fairq_user;

-- no right at all: not even the schema is seen
SET ROLE regress_fairq_user;
SELECT fairq.version();
SELECT fairq.enqueue('privileges', 'a');
SELECT * FROM fairq.task;
RESET ROLE;

-- the schema alone shows the version and nothing else
GRANT USAGE ON SCHEMA fairq TO regress_fairq_user;
SET ROLE regress_fairq_user;
SELECT fairq.version() <> '' AS version;
SELECT fairq.create_queue('privileges_x');
SELECT fairq.alter_queue('privileges', lease => '1 hour');
SELECT fairq.drop_queue('privileges', true);
SELECT fairq.set_group('privileges', 'a', weight => 5);
SELECT fairq.pause('privileges');
SELECT fairq.pause('privileges', 'a');
SELECT fairq.resume('privileges');
SELECT fairq.resume('privileges', 'a');
SELECT fairq.purge('privileges');
SELECT fairq.enqueue('privileges', 'a');
SELECT fairq.enqueue_batch('privileges', '{a}', '{1}');
SELECT fairq.pop('privileges');
SELECT fairq.take('privileges');
SELECT fairq.complete(:id);
SELECT fairq.complete_batch(ARRAY[:id]);
SELECT fairq.release(:id);
SELECT fairq.address('privileges', 'a', 0);
SELECT fairq.block_of('privileges', 0);
SELECT fairq.reset_hints();
SELECT fairq.counters(1);
SELECT fairq.check_hints('privileges');
SELECT fairq.check_queue('privileges');
SELECT * FROM fairq.queues;
SELECT * FROM fairq.groups;
SELECT * FROM fairq.tasks;
SELECT * FROM fairq.queue;
SELECT * FROM fairq.seat;
SELECT * FROM fairq.group_setting;
SELECT * FROM fairq.task;
INSERT INTO fairq.task DEFAULT VALUES;
UPDATE fairq.task SET addr = 0;
DELETE FROM fairq.task;
TRUNCATE fairq.task;
SELECT nextval('fairq.task_id_seq');
SELECT nextval('fairq.queue_id_seq');
CREATE TABLE fairq.mine ();
RESET ROLE;
SELECT payload, status FROM fairq.tasks WHERE queue = 'privileges' ORDER BY id;

-- the producer's part
GRANT EXECUTE ON FUNCTION fairq.enqueue, fairq.enqueue_batch TO regress_fairq_user;
SET ROLE regress_fairq_user;
SELECT fairq.enqueue('privileges', 'c', '3') > 0 AS ok;
SELECT count(*) FROM fairq.enqueue_batch('privileges', '{c,d}', '{4,5}');
SELECT fairq.pop('privileges');
SELECT fairq.purge('privileges');
SELECT * FROM fairq.task;
RESET ROLE;

-- the worker's part
REVOKE EXECUTE ON FUNCTION fairq.enqueue, fairq.enqueue_batch FROM regress_fairq_user;
GRANT EXECUTE ON FUNCTION fairq.pop, fairq.take, fairq.complete,
	fairq.complete_batch, fairq.release TO regress_fairq_user;
SET ROLE regress_fairq_user;
SELECT fairq.enqueue('privileges', 'c', '3');
SELECT group_key, payload FROM fairq.pop('privileges', 2);
SELECT group_key, payload FROM fairq.take('privileges');
SELECT fairq.release(:id);
SELECT group_key, payload FROM fairq.pop('privileges', 100) ORDER BY payload;
RESET ROLE;
SELECT min(id) AS one, max(id) AS other FROM fairq.tasks WHERE queue = 'privileges' \gset
SET ROLE regress_fairq_user;
SELECT fairq.complete(:one), fairq.complete_batch(ARRAY[:other]);
SELECT * FROM fairq.tasks;
RESET ROLE;

-- all functions: queues can be managed, still without a right on the tables
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fairq TO regress_fairq_user;
SET ROLE regress_fairq_user;
SELECT fairq.create_queue('privileges_mine');
SELECT fairq.set_group('privileges_mine', 'a', weight => 2);
SELECT count(*) FROM fairq.enqueue_batch('privileges_mine', '{b,b,a,a}', '{1,2,3,4}');
SELECT string_agg(payload::text, ' ') FROM fairq.pop('privileges_mine', 2);
SELECT fairq.alter_queue('privileges_mine', lease => '1 hour', block_length => 50);
SELECT fairq.pause('privileges_mine');
SELECT fairq.resume('privileges_mine');
SELECT fairq.pause('privileges_mine', 'b');
SELECT fairq.resume('privileges_mine', 'b');
SELECT fairq.address('privileges_mine', 'b', 1);
SELECT string_agg(payload::text, ' ') FROM fairq.pop('privileges_mine', 1);
SELECT fairq.purge('privileges_mine', 'b');
SELECT fairq.drop_queue('privileges_mine');
SELECT fairq.drop_queue('privileges_mine', force => true);
SELECT current_user;
SELECT * FROM fairq.queue;
UPDATE fairq.task SET addr = 0;
SELECT nextval('fairq.task_id_seq');
SELECT * FROM fairq.queues;
RESET ROLE;

-- the views are granted on their own
GRANT SELECT ON fairq.queues, fairq.groups, fairq.tasks TO regress_fairq_user;
SET ROLE regress_fairq_user;
SELECT queue, running FROM fairq.queues WHERE queue = 'privileges';
SELECT group_key, running FROM fairq.groups WHERE queue = 'privileges' ORDER BY 1;
SELECT count(*) FROM fairq.tasks WHERE queue = 'privileges';
SELECT * FROM fairq.task;
RESET ROLE;

-- what the caller has in his search path is not used
GRANT CREATE ON SCHEMA public TO regress_fairq_user;
SET ROLE regress_fairq_user;
CREATE FUNCTION public.not_equal(int, int) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE OPERATOR public.= (LEFTARG = int, RIGHTARG = int, FUNCTION = public.not_equal);
SET search_path = public, pg_catalog;
SELECT 1 = 1;
SELECT fairq.create_queue('privileges_path');
SELECT fairq.enqueue('privileges_path', 'a') > 0 AS ok;
SELECT fairq.alter_queue('privileges_path', lease => '1 hour', block_length => 50);
SELECT fairq.set_group('privileges_path', 'a', weight => 2);
SELECT fairq.pause('privileges_path');
SELECT fairq.pause('privileges_path', 'a');
SELECT fairq.resume('privileges_path', 'a');
SELECT fairq.drop_queue('privileges_path', true);
SHOW search_path;
RESET search_path;
DROP OPERATOR public.= (int, int);
DROP FUNCTION public.not_equal;
RESET ROLE;

-- a function of the owner's that others may call
CREATE FUNCTION privileges_enqueue(group_key text) RETURNS boolean
	LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
	AS $$ SELECT fairq.enqueue('privileges', group_key) > 0 $$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fairq FROM regress_fairq_user;
SET ROLE regress_fairq_user;
SELECT fairq.enqueue('privileges', 'x');
SELECT privileges_enqueue('x');
RESET ROLE;
DROP FUNCTION privileges_enqueue(text);
SELECT group_key FROM fairq.pop('privileges', 100);

SELECT * FROM fairq.check_queue('privileges');
SELECT fairq.drop_queue('privileges', true);
DROP OWNED BY regress_fairq_user;
DROP ROLE regress_fairq_user;
