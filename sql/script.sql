-- CREATE EXTENSION in a database that is not empty. The script depends neither
-- on the caller's schemas nor on default privileges.
--
-- Fails if the extension belongs to the schema public (fairq.control). Fails if
-- the script does not grant EXECUTE to PUBLIC (fairq--1.0.sql).
\a \pset footer off
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_fairq_script;	-- if an interrupted run left it
\set VERBOSITY sqlstate

-- A user's schema is first in the search path. Its functions fit the views'
-- calls better than the server's polymorphic ones.
BEGIN;
CREATE SCHEMA script_evil;
CREATE FUNCTION script_evil.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql
	AS $$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE FUNCTION script_evil.add(text[], text) RETURNS text[] LANGUAGE plpgsql
	AS $$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE AGGREGATE script_evil.array_agg(text) (SFUNC = script_evil.add, STYPE = text[]);
CREATE FUNCTION script_evil.add(bigint[], bigint) RETURNS bigint[] LANGUAGE plpgsql
	AS $$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE AGGREGATE script_evil.array_agg(bigint) (SFUNC = script_evil.add, STYPE = bigint[]);
DROP EXTENSION fairq CASCADE;
SET LOCAL search_path = script_evil, public;
CREATE EXTENSION fairq;
-- nothing of the extension uses the schema or belongs to it
SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
WHERE refclassid = 'pg_namespace'::regclass
	AND refobjid IN ('script_evil'::regnamespace, 'public'::regnamespace)
	AND (objid = (SELECT oid FROM pg_extension WHERE extname = 'fairq')
		OR pg_describe_object(classid, objid, objsubid) LIKE '%fairq%');
SELECT fairq.create_queue('script');
SELECT fairq.enqueue('script', 'a', after => ARRAY[fairq.enqueue('script', 'a')]) > 0 AS ok;
SELECT fairq.register_worker('00000000-0000-0000-0000-000000000001', 'w', '{script}');
SELECT worker, queues FROM fairq.workers;
SELECT status, cardinality(waits_for) AS waits_for FROM fairq.tasks ORDER BY id;
-- so the extension survives when the schema is dropped
DROP SCHEMA script_evil CASCADE;
SELECT worker, queues FROM fairq.workers;
ROLLBACK;

-- By default, new functions may be called by their owner only. Still, the
-- privileges on a queue are enough.
CREATE ROLE regress_fairq_script;
BEGIN;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON ROUTINES FROM PUBLIC;
DROP EXTENSION fairq CASCADE;
CREATE EXTENSION fairq;
SELECT fairq.create_queue('script');
SELECT fairq.grant_queue('script', 'regress_fairq_script', 'manage');
SET LOCAL ROLE regress_fairq_script;
SELECT fairq.enqueue('script', 'a') > 0 AS ok;
SELECT count(*) FROM fairq.pop('script');
SELECT queue, status FROM fairq.tasks;
SELECT queue, running FROM fairq.stats;
SELECT queue, running FROM fairq.groups;
SELECT queue, running FROM fairq.queues;
SELECT count(*) FROM fairq.lanes, fairq.fairness, fairq.workers, fairq.tenants;
SELECT fairq.maintain();
-- only the owner may call these functions
SELECT oid::regprocedure FROM pg_proc
WHERE pronamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace)
	AND NOT has_function_privilege(oid, 'EXECUTE')
ORDER BY oid::regprocedure::text COLLATE "C";
ROLLBACK;
DROP ROLE regress_fairq_script;
