-- Which role may do what with a queue.
--
-- Fails if a role with one privilege has all of them (fairq_may() in
-- queue.c). Fails if a role with enqueue can learn which groups exist
-- (fairq_sql_address() in inspect.c), or how many tasks they have
-- (fairq_turns_before() in inspect.c). Fails if such a role can learn whether
-- groups are held (fairq_group_state()), limited (fairq_visible_queues()) or
-- paused (put_groups() in inspect.c).
\a \pset footer off
SET client_min_messages = warning;
-- if an interrupted run left it
DROP ROLE IF EXISTS regress_fairq_nobody, regress_fairq_enqueue,
	regress_fairq_work, regress_fairq_monitor, regress_fairq_manage,
	regress_fairq_heir, regress_fairq_orphan, regress_fairq_pg_monitor,
	regress_fairq_stats, regress_fairq_owner;
RESET client_min_messages;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('privileges', max_attempts => 1);
SELECT fairq.create_queue('privileges_other');
SELECT fairq.enqueue('privileges_other', 'secret', '{"secret": true}') > 0 AS ok;
CREATE ROLE regress_fairq_nobody;
CREATE ROLE regress_fairq_enqueue;
CREATE ROLE regress_fairq_work;
CREATE ROLE regress_fairq_monitor;
CREATE ROLE regress_fairq_manage;
CREATE ROLE regress_fairq_heir IN ROLE regress_fairq_work;
CREATE ROLE regress_fairq_orphan NOINHERIT IN ROLE regress_fairq_work;
CREATE ROLE regress_fairq_pg_monitor IN ROLE pg_monitor;
SELECT fairq.grant_queue('privileges', 'regress_fairq_enqueue', 'enqueue');
SELECT fairq.grant_queue('privileges', 'regress_fairq_work', 'work');
SELECT fairq.grant_queue('privileges', 'regress_fairq_monitor', 'monitor');
SELECT fairq.grant_queue('privileges', 'regress_fairq_manage', 'manage');
SELECT fairq.grant_queue('privileges', 'regress_fairq_manage', 'manage');

--
-- The matrix: the result of each call for each role
--

-- Runs a statement as each role, in a transaction that is rolled back.
CREATE FUNCTION pg_temp.run_as(role text, statement text) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	BEGIN
		EXECUTE 'SELECT coalesce((' || statement || ')::text, ''NULL'')' INTO result;
		RAISE SQLSTATE 'XXROL';
	EXCEPTION
		WHEN SQLSTATE 'XXROL' THEN NULL;
		WHEN OTHERS THEN
			RESET ROLE;
			RETURN SQLSTATE;
	END;
	RESET ROLE;
	RETURN CASE WHEN result IN ('f', 'false', 'NULL', '0')
		THEN result ELSE 'yes' END;
END $$;

-- Enqueues a task for a group, and runs a query on the queue and the task as a
-- role. The enqueue and the query are in a subtransaction that is rolled back.
CREATE FUNCTION pg_temp.after_enqueue(role text, queue_id int, group_key text, query text) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
	result text;
BEGIN
	BEGIN
		id := fairq.enqueue('privileges_guess', group_key);
		EXECUTE format('SET LOCAL ROLE %I', role);
		EXECUTE format('SELECT coalesce((' || query || ')::text, ''NULL'')', queue_id, id) INTO result;
		RAISE SQLSTATE 'XXROL';
	EXCEPTION WHEN SQLSTATE 'XXROL' THEN
		RETURN result;
	END;
END $$;

SELECT fairq.enqueue('privileges', 'g', to_jsonb(n)) > 0 AS ok FROM generate_series(1, 3) n;
SELECT id AS running FROM fairq.pop('privileges') \gset
SELECT fairq.enqueue('privileges', 'dead') > 0 AS ok;
SELECT count(fairq.fail(id)) FROM fairq.pop('privileges', 1);
SELECT id AS dead FROM fairq.tasks WHERE queue = 'privileges' AND status = 'failed' \gset
SELECT id AS ready FROM fairq.tasks WHERE queue = 'privileges' AND status = 'queued' LIMIT 1 \gset

SELECT queue_id FROM fairq.queue WHERE name = 'privileges' \gset
SELECT fairq.register_worker('00000000-0000-0000-0000-000000000001', 'w', '{privileges}');
SELECT fairq.create_batch('privileges', 'g') AS batch \gset
SELECT fairq.create_batch('privileges_other', 'g') AS other_batch \gset

-- Internal functions are for the views, and no role may use their schema.
SELECT count(*) AS granted FROM pg_namespace, aclexplode(nspacl) a
	WHERE nspname = 'fairq_internal' AND a.grantee <> nspowner;
-- The internal functions still check privileges, as calls by roles with usage
-- of the schema show.
GRANT USAGE ON SCHEMA fairq_internal TO PUBLIC;

SELECT regexp_replace(call, '([[(])\d+', '\1...') AS call, r.*
FROM (VALUES
	-- this call is the first, since its result is unknown once other calls
	-- have been rolled back
	(0, format('SELECT 1 + fairq.turns_before(%s)', :ready)),
	(1, $$fairq.enqueue('privileges', 'g')$$),
	(2, $$SELECT count(*) FROM fairq.enqueue_batch('privileges', '{g}', '{1}')$$),
	(3, format('fairq.cancel(%s)', :ready)),
	(4, $$SELECT count(*) FROM fairq.pop('privileges')$$),
	(5, $$SELECT count(*) FROM fairq.take('privileges')$$),
	(6, format('fairq.complete(%s)', :running)),
	(7, format('1 - cardinality(fairq.complete_batch(ARRAY[%s]))', :running)),
	(8, format('fairq.fail(%s)', :running)),
	(9, format('fairq.release(%s)', :running)),
	(10, format('fairq.extend(%s)', :running)),
	(11, $$SELECT 1 + fairq.expire_leases('privileges')$$),
	(12, $$SELECT count(*) FROM fairq.tasks WHERE queue LIKE 'privileges%'$$),
	(13, $$SELECT count(*) FROM fairq.groups WHERE queue LIKE 'privileges%'$$),
	(14, $$SELECT count(*) FROM fairq.queues WHERE queue LIKE 'privileges%'$$),
	(15, $$fairq.address('privileges', 'g', 1)$$),
	(16, $$1 + fairq.block_of('privileges', 1)$$),
	(17, $$SELECT 1 + count(*) FROM fairq.check_queue('privileges')$$),
	(18, $$fairq.pause('privileges')::text = ''$$),
	(19, $$fairq.pause('privileges', 'g')::text = ''$$),
	(20, $$fairq.resume('privileges')::text = ''$$),
	(21, $$fairq.set_group('privileges', 'g', weight => 2)::text = ''$$),
	(22, $$fairq.alter_queue('privileges', lease => '1 hour')::text = ''$$),
	(23, $$fairq.alter_queue('privileges', block_length => 100)::text = ''$$),
	(24, $$fairq.redrive('privileges')$$),
	(25, $$fairq.purge('privileges')$$),
	(26, $$fairq.maintain('privileges')::text = ''$$),
	(27, $$fairq.maintain()::text = ''$$),
	(28, $$fairq.drop_queue('privileges', force => true)$$),
	(29, $$fairq.grant_queue('privileges', 'regress_fairq_nobody', 'work')::text = ''$$),
	(30, $$fairq.revoke_queue('privileges', 'regress_fairq_work', 'work')::text = ''$$),
	(31, $$fairq.create_queue('privileges_new')::text = ''$$),
	(32, $$fairq.reset_hints()::text = ''$$),
	(33, $$SELECT 1 + count(*) FROM fairq_internal.check_tables(1)$$),
	(34, $$SELECT count(*) FROM fairq.task$$),
	(35, $$SELECT count(*) FROM fairq.archive$$),
	(36, $$SELECT count(*) FROM fairq.queue_privilege$$),
	(37, $$SELECT count(*) FROM fairq_internal.all_groups$$),
	(38, $$nextval('fairq.task_id_seq')$$),
	(39, $$fairq.version()$$),
	(40, $$SELECT count(*) FROM fairq.live_tasks WHERE queue LIKE 'privileges%'$$),
	(41, $$SELECT count(*) FROM fairq.finished_tasks WHERE queue LIKE 'privileges%'$$),
	(42, $$SELECT count(*) FROM fairq.lanes WHERE queue LIKE 'privileges%'$$),
	(43, $$SELECT 1 + count(*) FROM fairq.lane_groups('privileges', 0)$$),
	(44, $$SELECT count(*) FROM fairq.stats WHERE queue LIKE 'privileges%'$$),
	(46, $$SELECT count(*) FROM fairq_internal.visible_queues() WHERE queue LIKE 'privileges%'$$),
	(47, $$SELECT count(*) FROM fairq_internal.visible_groups() WHERE queue LIKE 'privileges%'$$),
	(48, format('SELECT count(*) FROM fairq_internal.queue_lanes(%s)', :queue_id)),
	(49, format('SELECT enqueued FROM fairq_internal.counters(%s)', :queue_id)),
	(50, format('fairq_internal.wait_reason(%s, 0, NULL, NULL)', :queue_id)),
	(51, format('fairq_internal.has_queue_privilege(%s, %L)', :queue_id, 'enqueue')),
	(52, format('fairq_internal.has_queue_privilege(%s, %L)', :queue_id, 'work')),
	(53, format('fairq_internal.has_queue_privilege(%s, %L)', :queue_id, 'monitor')),
	(54, format('fairq_internal.has_queue_privilege(%s, %L)', :queue_id, 'manage')),
	(55, format('fairq_internal.has_queue_privilege(%s, %L)', :queue_id, 'any')),
	(56, $$SELECT count(*) FROM fairq_internal.all_queues$$),
	(57, $$SELECT count(*) FROM fairq.queue$$),
	(58, $$SELECT count(*) FROM fairq.group_number$$),
	(59, $$SELECT count(*) FROM fairq.group_setting$$),
	(60, $$SELECT 1 + count(*) FROM fairq.dedup$$),
	(61, $$SELECT last_value FROM fairq.queue_id_seq$$),
	(62, $$SELECT 1 + count(*) FROM fairq.peek('privileges')$$),
	(63, $$SELECT 1 + count(*) FROM fairq.group_stats('privileges')$$),
	-- a role that may not see groups gets the same answer for existing and
	-- unknown groups
	(64, $$fairq.address('privileges', 'guessed', 1)$$),
	(65, format('fairq_internal.wait_reason(%s, 1000, NULL, NULL)', :queue_id)),
	(66, $$fairq.pause('privileges', 'guessed')::text = ''$$),
	(67, $$fairq.resume('privileges', 'guessed')::text = ''$$),
	(68, $$fairq.redrive('privileges', 'guessed')$$),
	(69, $$fairq.purge('privileges', 'guessed')$$),
	(70, $$SELECT count(*) FROM fairq.all_group_stats() WHERE queue ~ 'privilege'$$),
	(71, $$SELECT 1 + count(*) FROM fairq.group_shares('privileges')$$),
	(72, $$fairq.set_shard(1)::text = ''$$),
	(73, $$1 + fairq.shard()$$),
	(74, $$SELECT (fairq.enqueue_or_find('privileges', 'g')).added$$),
	(75, $$SELECT 1 + coalesce(fairq.find('privileges', 'k'), 0)$$),
	(76, format('fairq.reschedule(%s)', :ready)),
	(77, format('fairq.redrive(%s)', :dead)),
	(78, $$fairq.purge_failed('privileges')$$),
	(79, $$fairq.purge_failed('privileges', 'guessed')$$),
	(80, $$fairq.create_queue('privileges', if_not_exists => true)::text = ''$$),
	(81, $$fairq.drop_queue('privileges', force => true, if_exists => true)$$),
	(82, $$fairq.drop_queue('privileges_none', if_exists => true)$$),
	(83, $$fairq.enqueue('privileges', 'g', delay => '1 hour')$$),
	(84, $$SELECT count(*) FROM fairq.shared_memory()$$),
	(85, $$fairq.create_batch('privileges', 'g')$$),
	(86, format('fairq.enqueue(''privileges'', ''g'', batch => (%s))', :batch)),
	(87, format('fairq.create_batch(''privileges'', ''g'', batch => (%s))', :other_batch)),
	(88, format('fairq.close_batch(%s)', :batch)),
	(89, format('1 + fairq.cancel_batch(%s)', :batch)),
	(90, $$SELECT count(*) FROM fairq.batches$$),
	(91, format('fairq.enqueue(''privileges'', ''g'', after => ARRAY[%s])', :ready)),
	(92, format('fairq.enqueue(''privileges'', ''g'', after => ARRAY[%s])', :other_batch)),
	(93, format('fairq.enqueue(''privileges'', ''g'', after => ARRAY[%s])', :dead)),
	(94, $$fairq.register_worker(gen_random_uuid(), 'w', '{privileges}')::text = ''$$),
	(95, $$fairq.unregister_worker('00000000-0000-0000-0000-000000000001')$$),
	(96, $$SELECT count(*) FROM fairq.workers$$),
	(97, $$SELECT count(*) FROM fairq.worker$$),
	(98, format('SELECT enqueued FROM fairq_internal.queue_stats(%s)', :queue_id))) c(n, call),
	LATERAL (SELECT pg_temp.run_as('regress_fairq_nobody', call) AS nobody,
		pg_temp.run_as('regress_fairq_enqueue', call) AS enqueue,
		pg_temp.run_as('regress_fairq_work', call) AS work,
		pg_temp.run_as('regress_fairq_monitor', call) AS monitor,
		pg_temp.run_as('regress_fairq_pg_monitor', call) AS pg_monitor,
		pg_temp.run_as('regress_fairq_manage', call) AS manage,
		pg_temp.run_as('regress_fairq_heir', call) AS heir,
		pg_temp.run_as('regress_fairq_orphan', call) AS orphan) r
ORDER BY n;

-- a queue on which the role has no privilege is not visible
SET ROLE regress_fairq_manage;
SELECT queue FROM fairq.queues ORDER BY 1;
SELECT DISTINCT queue FROM fairq.tasks ORDER BY 1;
SELECT DISTINCT queue FROM fairq.live_tasks ORDER BY 1;
SELECT DISTINCT queue FROM fairq.finished_tasks ORDER BY 1;
SELECT DISTINCT queue FROM fairq.groups ORDER BY 1;
SELECT DISTINCT queue FROM fairq.lanes ORDER BY 1;
CREATE FUNCTION pg_temp.peep(jsonb, text) RETURNS boolean LANGUAGE plpgsql COST 0.0001
	AS $$ BEGIN IF $2 = 'secret' THEN RAISE 'seen: %', $1; END IF; RETURN true; END $$;
SELECT count(*) FROM fairq.tasks WHERE pg_temp.peep(payload, group_key);
SELECT fairq_internal.counters(queue_id) FROM generate_series(1, 3) queue_id
	WHERE NOT fairq_internal.has_queue_privilege(queue_id, 'any') LIMIT 1;
SELECT fairq.pop('privileges_other');
SELECT fairq_internal.has_queue_privilege(1, 'nothing');
SET ROLE regress_fairq_nobody;
CREATE FUNCTION pg_temp.leak(jsonb, text) RETURNS boolean LANGUAGE plpgsql COST 0.0001
	AS $$ BEGIN RAISE 'leaked % %', $1, $2; END $$;
SELECT * FROM fairq.tasks WHERE pg_temp.leak(payload, group_key);
SELECT * FROM fairq.tasks WHERE pg_temp.leak(payload, error);
SELECT * FROM fairq.live_tasks WHERE pg_temp.leak(payload, group_key);
SELECT * FROM fairq.finished_tasks WHERE pg_temp.leak(payload, error);
SELECT * FROM fairq.groups WHERE pg_temp.leak(NULL, group_key);
SELECT * FROM fairq.queues WHERE pg_temp.leak(NULL, queue);
SELECT * FROM fairq.tasks WHERE payload::text::int > 0;
SELECT * FROM fairq.tasks WHERE id = 1 AND payload::text::int > 0;
-- calls without the privilege take no lock
BEGIN;
SELECT fairq.cancel(:running), fairq.complete(:running), fairq.fail(:running),
	cardinality(fairq.complete_batch(ARRAY[:running])), fairq.extend(-1);
SAVEPOINT a;
SELECT fairq.pop('privileges');
ROLLBACK TO a;
SELECT locktype, relation::regclass, classid::regclass, mode FROM pg_locks
	WHERE pid = pg_backend_pid() AND (classid = 'fairq.queue'::regclass
		OR relation = 'fairq.task'::regclass);
COMMIT;
RESET ROLE;

-- A role with one privilege cannot learn from a result whether a group exists
-- whose name it guesses. Before each query, the role enqueues a task for a
-- group that is busy, paused, limited or unknown.
SELECT fairq.create_queue('privileges_guess', concurrency => 1);
SELECT fairq.grant_queue('privileges_guess', 'regress_fairq_enqueue', 'enqueue');
SELECT fairq.grant_queue('privileges_guess', 'regress_fairq_monitor', 'monitor');
SELECT count(fairq.enqueue('privileges_guess', group_key)) FROM unnest('{busy,busy,busy,other,paused,held}'::text[]) group_key;
SELECT count(*) FROM fairq.pop('privileges_guess', 2);
SELECT fairq.pause('privileges_guess', 'paused'), fairq.hold('privileges_guess', 'held', 'tomorrow');
SELECT count(*) FROM fairq.pop('privileges_guess');
-- maintain() is called for all queues, so that counts do not depend on other tests
SELECT fairq.maintain();
SELECT queue_id AS guess_id FROM fairq.queue WHERE name = 'privileges_guess' \gset
SELECT regexp_replace(what, '.*_', '') AS what, regexp_replace(role, '.*_', '') AS role,
	count(DISTINCT answer) > 1 AS differs,
	CASE WHEN role ~ 'enqueue' THEN min(answer) END AS answer
FROM (VALUES
	('a_turns_before', 'SELECT fairq.turns_before(%2$s)'),
	('b_queues', $$SELECT (ready, limited, scheduled, running) FROM fairq.queues WHERE queue = 'privileges_guess'$$),
	('c_stats', $$SELECT (queued, groups_active, groups_limited, groups_paused, groups_throttled, oldest_ready IS NULL,
		oldest_limited IS NULL) FROM fairq.stats WHERE queue = 'privileges_guess'$$),
	('d_groups', $$SELECT count(*) FROM fairq.groups WHERE queue = 'privileges_guess'$$),
	('e_next_at', 'SELECT count((fairq_internal.group_state(%1$s, n)).next_at) FROM generate_series(0, 5) n'),
	('f_wait_reason', 'SELECT array_agg(fairq_internal.wait_reason(%1$s, n, NULL, NULL)) FROM generate_series(0, 5) n'),
	('g_group_state', 'SELECT count(fairq_internal.group_state(%1$s, n)) FROM generate_series(0, 5) n')) c(what, call),
	unnest('{regress_fairq_enqueue, regress_fairq_monitor}'::text[]) role,
	LATERAL (SELECT pg_temp.after_enqueue(role, :guess_id, group_key, call) AS answer
		FROM unnest('{busy,other,paused,held,unknown}'::text[]) group_key) a
GROUP BY c.what, role ORDER BY c.what, role;
SELECT fairq.drop_queue('privileges_guess', true);

-- The views work for a role without usage of the internal schema.
REVOKE USAGE ON SCHEMA fairq_internal FROM PUBLIC;
SET ROLE regress_fairq_manage;
SELECT fairq_internal.counters(:queue_id);
TABLE fairq_internal.all_queues;
SELECT count(*), count(enqueued) FROM fairq.queues;
SELECT count(*), count(next_at) FROM fairq.groups;
SELECT count(*), count(reason) > 0 AS reasons FROM fairq.tasks;
SELECT count(*) FROM fairq.stats;
SELECT count(*) FROM fairq.fairness;
SELECT count(*) FROM fairq.tenants;
RESET ROLE;

-- fairq.wait() also needs the privilege work
SET ROLE regress_fairq_enqueue;
CALL fairq.wait('privileges', '0');
SET ROLE regress_fairq_work;
CALL fairq.wait('privileges', '0');
RESET ROLE;

--
-- Granting and revoking
--

SELECT fairq.grant_queue('privileges', 'regress_fairq_nobody', 'all');
SELECT fairq.grant_queue('privileges', 'regress_fairq_nobody', NULL);
SELECT fairq.grant_queue('privileges', NULL, 'work');
SELECT fairq.grant_queue(NULL, 'regress_fairq_nobody', 'work');
SELECT fairq.grant_queue('privileges', '-', 'work');
SELECT fairq.grant_queue('privileges', '4294967295', 'work');
SELECT fairq.grant_queue('privileges', 'regress_fairq_none', 'work');
SELECT fairq.grant_queue('privileges_none', 'regress_fairq_nobody', 'work');
SELECT fairq.revoke_queue('privileges', 'regress_fairq_nobody', 'work');

-- a grant and a revoke apply from the next call on; a rollback undoes them
BEGIN;
SELECT fairq.grant_queue('privileges', 'regress_fairq_nobody', 'work');
SET LOCAL ROLE regress_fairq_nobody;
SELECT payload FROM fairq.pop('privileges');
ROLLBACK;
SET ROLE regress_fairq_nobody;
SELECT payload FROM fairq.pop('privileges');
RESET ROLE;
SELECT fairq.revoke_queue('privileges', 'regress_fairq_work', 'work');
SET ROLE regress_fairq_heir;
SELECT payload FROM fairq.pop('privileges');
SELECT fairq.complete(:running);
RESET ROLE;
-- a role with manage may also grant and revoke privileges, even its own
SET ROLE regress_fairq_manage;
SELECT fairq.grant_queue('privileges', 'regress_fairq_work', 'work');
SELECT fairq.revoke_queue('privileges', 'regress_fairq_manage', 'manage');
SELECT fairq.grant_queue('privileges', 'regress_fairq_manage', 'manage');
RESET ROLE;
SELECT role, privilege FROM fairq.queue_privilege JOIN fairq.queue USING (queue_id)
	WHERE name = 'privileges' ORDER BY 1, 2;

-- privileges of a dropped role do not go to another one
DROP ROLE regress_fairq_enqueue;
CREATE ROLE regress_fairq_enqueue;
SET ROLE regress_fairq_enqueue;
SELECT fairq.enqueue('privileges', 'g');
RESET ROLE;
SELECT fairq.maintain('privileges');
SELECT role, privilege FROM fairq.queue_privilege JOIN fairq.queue USING (queue_id)
	WHERE name = 'privileges' ORDER BY 1, 2;

--
-- A role that may create queues manages the queues that it has created
--

GRANT EXECUTE ON FUNCTION fairq.create_queue TO regress_fairq_nobody;
SET ROLE regress_fairq_nobody;
SELECT fairq.create_queue('privileges_mine');
SELECT fairq.set_group('privileges_mine', 'a', weight => 2);
SELECT count(*) FROM fairq.enqueue_batch('privileges_mine', '{b,b,a,a}', '{1,2,3,4}');
SELECT string_agg(payload::text, ' ') FROM fairq.pop('privileges_mine', 2);
SELECT fairq.alter_queue('privileges_mine', lease => '1 hour', block_length => 50);
SELECT fairq.pause('privileges_mine', 'b');
SELECT fairq.resume('privileges_mine', 'b');
SELECT fairq.address('privileges_mine', 'b', 1);
SELECT string_agg(payload::text, ' ') FROM fairq.pop('privileges_mine', 1);
SELECT * FROM fairq.check_queue('privileges_mine');
SELECT queue, ready, running FROM fairq.queues;
SELECT fairq.purge('privileges_mine', 'b');
SELECT fairq.drop_queue('privileges_mine');
SELECT fairq.drop_queue('privileges_mine', force => true);
SELECT current_user;
RESET ROLE;
SELECT count(*) FROM fairq.queue_privilege p
	WHERE NOT EXISTS (SELECT FROM fairq.queue q WHERE q.queue_id = p.queue_id);

-- a role with the rights of fairq's owner may do everything
CREATE ROLE regress_fairq_owner;
BEGIN;
ALTER TABLE fairq.task OWNER TO regress_fairq_owner;
SET LOCAL ROLE regress_fairq_owner;
SELECT count(*) FROM fairq.enqueue_batch('privileges', '{g}', '{1}');
ROLLBACK;

-- a role with only some privileges of pg_monitor has none in fairq; nor has a
-- role that must first SET ROLE pg_monitor
CREATE ROLE regress_fairq_stats IN ROLE pg_read_all_stats;
GRANT pg_monitor TO regress_fairq_orphan;
SET ROLE regress_fairq_stats;
SELECT count(*) FROM fairq.queues;
SET ROLE regress_fairq_orphan;
SELECT count(*) FROM fairq.queues;
SET ROLE pg_monitor;
SELECT count(*) > 1 AS ok FROM fairq.queues;
RESET ROLE;
DROP ROLE regress_fairq_stats;

-- a SECURITY DEFINER function has the privileges of its owner
CREATE FUNCTION privileges_enqueue(group_key text) RETURNS boolean
	LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
	AS $$ SELECT fairq.enqueue('privileges', group_key) > 0 $$;
SET ROLE regress_fairq_nobody;
SELECT fairq.enqueue('privileges', 'x');
SELECT privileges_enqueue('x');
RESET ROLE;
DROP FUNCTION privileges_enqueue(text);

--
-- Names are quoted, and objects in the caller's search path are not used
--

SELECT fairq.create_queue('x''; DROP TABLE fairq.task; --');
SELECT fairq.enqueue('x''; DROP TABLE fairq.task; --', '"; SELECT 1; --') > 0 AS ok;
SELECT fairq.set_group('x''; DROP TABLE fairq.task; --', '$1 '' " \', weight => 2);
SELECT fairq.grant_queue('x''; DROP TABLE fairq.task; --', 'regress_fairq_manage', 'manage');
SELECT * FROM fairq.check_queue('x''; DROP TABLE fairq.task; --');
SELECT fairq.drop_queue('x''; DROP TABLE fairq.task; --', true);

SELECT fairq.grant_queue('privileges', 'regress_fairq_nobody', 'manage');
GRANT CREATE ON SCHEMA public TO regress_fairq_nobody;
SET ROLE regress_fairq_nobody;
CREATE FUNCTION public.not_equal(int, int) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE OPERATOR public.= (LEFTARG = int, RIGHTARG = int, FUNCTION = public.not_equal);
CREATE TEMP TABLE queue (name text);
SET search_path = public, pg_catalog;
SELECT 1 = 1;
SELECT fairq.create_queue('privileges_path');
SELECT fairq.enqueue('privileges_path', 'a') > 0 AS ok;
SELECT fairq.alter_queue('privileges_path', lease => '1 hour', block_length => 50);
SELECT fairq.set_group('privileges_path', 'a', weight => 2);
SELECT fairq.pause('privileges_path');
SELECT fairq.pause('privileges_path', 'a');
SELECT fairq.resume('privileges_path', 'a');
SELECT fairq.grant_queue('privileges_path', 'regress_fairq_work', 'work');
SELECT queue, ready FROM fairq.queues WHERE queue LIKE '%path';
SELECT * FROM fairq.check_queue('privileges_path');
SELECT fairq.maintain('privileges_path');
SELECT fairq.drop_queue('privileges_path', true);
SHOW search_path;
RESET search_path;
DROP OPERATOR public.= (int, int);
DROP FUNCTION public.not_equal;
RESET ROLE;

SELECT * FROM fairq.check_queue('privileges');
SELECT fairq.drop_queue('privileges', true);
SELECT fairq.drop_queue('privileges_other', true);
DROP OWNED BY regress_fairq_nobody, regress_fairq_manage;
DROP ROLE regress_fairq_nobody, regress_fairq_enqueue, regress_fairq_work,
	regress_fairq_monitor, regress_fairq_manage, regress_fairq_heir,
	regress_fairq_orphan, regress_fairq_pg_monitor, regress_fairq_owner;
