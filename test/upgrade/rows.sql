-- All rows that must be the same after the upgrade.
\pset format unaligned
\set QUIET
SELECT format('SELECT t::text FROM fairq.%I t ORDER BY t::text COLLATE "C"',
	relname)
FROM pg_class
WHERE relnamespace = 'fairq'::regnamespace AND relkind = 'r' ORDER BY relname
\gexec
SELECT last_value, is_called FROM fairq.task_id_seq;
SELECT last_value, is_called FROM fairq.queue_id_seq;
SELECT proname, proacl::text FROM pg_proc
WHERE pronamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace) ORDER BY oid::regprocedure::text;
SELECT extversion FROM pg_extension WHERE extname = 'fairq';
