-- Queues are created, changed, paused and dropped. The views show these
-- changes, and each function has a comment.
--
-- Fails if a function has no comment (fairq--1.0.sql). Fails if create_queue
-- and drop_queue ignore if_not_exists and if_exists. Fails if
-- fairq_group_to_set() in group.c sends no notice.
\a \pset footer off
\set VERBOSITY sqlstate

SELECT fairq.version() =
	(SELECT extversion FROM pg_extension WHERE extname = 'fairq') AS same_version;

-- the functions for users: \df fairq.* is a table of contents
SELECT proname AS function, count(*) FROM pg_proc
WHERE pronamespace = 'fairq'::regnamespace GROUP BY 1 ORDER BY 1;
SELECT relname, relkind FROM pg_class
WHERE relnamespace = 'fairq'::regnamespace AND relkind <> 'i' ORDER BY 1;

-- functions that only fairq's views and triggers call are not among them
SELECT DISTINCT p.oid::regprocedure AS internal
FROM pg_proc p
JOIN pg_depend d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
WHERE p.pronamespace = 'fairq'::regnamespace AND d.classid <> 'pg_proc'::regclass;

-- each function, table, view, type and column of a table has its comment
SELECT p.oid::regprocedure AS without_comment
FROM pg_proc p
WHERE p.pronamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace)
	AND obj_description(p.oid, 'pg_proc') IS NULL;

SELECT c.oid::regclass AS without_comment, a.attname
FROM pg_class c
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND c.relkind = 'r'
	AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace) AND c.relkind IN ('r', 'v', 'c')
	AND (coalesce(obj_description(c.oid, 'pg_class'),
			obj_description(c.reltype, 'pg_type')) IS NULL
		OR (a.attnum IS NOT NULL AND col_description(c.oid, a.attnum) IS NULL));

-- only functions with constant results may be folded, or run in parallel
SELECT p.oid::regprocedure AS function, p.provolatile, p.proparallel
FROM pg_proc p
WHERE p.pronamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace)
	AND (p.provolatile <> 'v' OR p.proparallel <> 'u')
ORDER BY 1;

-- not all roles may call functions that check no privilege
SELECT p.oid::regprocedure AS function
FROM pg_proc p
WHERE p.pronamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace)
	AND NOT has_function_privilege('public', p.oid, 'EXECUTE')
ORDER BY p.proname;

SELECT p.oid::regprocedure AS security_definer
FROM pg_proc p
WHERE p.pronamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace) AND p.prosecdef;

-- a dump contains all tables and sequences, except the registry of workers
SELECT c.oid::regclass AS not_dumped
FROM pg_class c
WHERE c.relnamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace) AND c.relkind IN ('r', 'S')
	AND c.oid <> ALL (
		SELECT unnest(extconfig) FROM pg_extension WHERE extname = 'fairq');

-- the columns of the views
SELECT attrelid::regclass AS view, attname AS column,
	format_type(atttypid, atttypmod) AS type
FROM pg_attribute
WHERE attnum > 0
	AND attrelid IN ('fairq.queues'::regclass, 'fairq.groups'::regclass,
		'fairq.tasks'::regclass, 'fairq.lanes'::regclass)
ORDER BY attrelid::regclass::text, attnum;

SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', '
	ORDER BY attnum) AS claim
FROM pg_attribute WHERE attrelid = 'fairq.claim'::regclass;

-- arguments may have defaults, and are given by position or by name
SELECT fairq.create_queue('queues_a');
SELECT fairq.create_queue('queues_b', 3, 4, '90 seconds', 7, '3 seconds', '1 day', true, 1000);
SELECT fairq.create_queue(block_length => 7, queue => 'queues_c');
SELECT fairq.create_queue('queues_d', NULL, NULL, NULL, NULL);
SELECT queue, concurrency, max_running, lease, max_attempts, backoff, retain, notify
FROM fairq.queues WHERE queue LIKE 'queues\__' ORDER BY queue;
SELECT queue, concurrency, max_running, lease, block_length, paused, ready, limited, running,
	oldest_enqueued_at IS NULL AS none_queued, enqueued, popped, completed, released
FROM fairq.queues WHERE queue LIKE 'queues\__' ORDER BY queue;

SELECT fairq.create_queue('queues_a');		-- the queue exists already
SELECT fairq.create_queue('Queues_A');		-- another name
SELECT fairq.drop_queue('Queues_A');

-- with if_not_exists or if_exists, a call for an existing or a missing queue
-- only sends a NOTICE
SELECT fairq.create_queue('queues_a', lease => '1 hour', if_not_exists => true);
SELECT fairq.create_queue('queues_a', if_not_exists => false);
SELECT fairq.create_queue('queues_a', if_not_exists => NULL);
-- a lease of 0 is still an error
SELECT fairq.create_queue('queues_a', lease => '0', if_not_exists => true);
SELECT lease FROM fairq.queues WHERE queue = 'queues_a';
SELECT fairq.create_queue('queues_if', lease => '1 hour', if_not_exists => true);
SELECT lease FROM fairq.queues WHERE queue = 'queues_if';
SELECT fairq.drop_queue('queues_if', if_exists => true);
SELECT fairq.drop_queue('queues_if', if_exists => true);
SELECT fairq.drop_queue(repeat('x', 1000), true, true);
SELECT fairq.drop_queue('queues_if', if_exists => false);
SELECT fairq.drop_queue('queues_if', if_exists => NULL);
BEGIN;
SELECT fairq.create_queue('queues_if', if_not_exists => true) FROM generate_series(1, 2);
SELECT fairq.drop_queue('queues_if', if_exists => true) FROM generate_series(1, 2);
SELECT fairq.create_queue('queues_if', if_not_exists => true);
ROLLBACK;
SELECT count(*) FROM fairq.queues WHERE queue = 'queues_if';

-- settings for an unknown group create the group, and a NOTICE reports that
SELECT fairq.pause('queues_a', 'new 1');
SELECT fairq.pause('queues_a', 'new 1');
SELECT fairq.hold('queues_a', 'new 2', 'tomorrow');
SELECT fairq.hold('queues_a', 'new 2', 'tomorrow');
SELECT fairq.set_group('queues_a', 'new 3', weight => 2);
SELECT fairq.set_group('queues_a', 'new 3');
SELECT fairq.set_group('queues_a', 'new 4');
SELECT fairq.set_group('queues_a', repeat('x', 1025));
SELECT fairq.resume('queues_a', 'new 5');
SELECT fairq.hold('queues_a', 'new 5');
BEGIN;
SELECT fairq.pause('queues_a', 'new 5') FROM generate_series(1, 2);
ROLLBACK;
SELECT fairq.pause('queues_a', 'new 5');
SELECT fairq.resume('queues_a', 'new 1'), fairq.resume('queues_a', 'new 5'), fairq.hold('queues_a', 'new 2'),
	fairq.set_group('queues_a', 'new 3', weight => 0), fairq.maintain('queues_a');
SELECT count(*) FROM fairq.groups WHERE queue = 'queues_a';

-- alter_queue changes the given settings and keeps the others
SELECT fairq.alter_queue('queues_a', lease => '1 hour');
SELECT fairq.alter_queue('queues_b', block_length => 2000);
SELECT fairq.alter_queue('queues_c', 5, 6, '2 hours', 5, '2 seconds', '2 days', true, 8);
SELECT fairq.alter_queue('queues_d');
SELECT fairq.alter_queue('queues_d', NULL, NULL, NULL, NULL);
SELECT queue, concurrency, max_running, lease, max_attempts, backoff, retain, notify, block_length
FROM fairq.queues WHERE queue LIKE 'queues\__' ORDER BY queue;
SELECT fairq.alter_queue('queues_none', lease => '1 hour');

-- the queue's own lease, and a lease that the call gives
SELECT fairq.enqueue_batch('queues_a', '{x,x}', '{1,2}') > 0 AS ok;
SELECT lease_until - now() BETWEEN '59 minutes' AND '61 minutes' AS hour
FROM fairq.pop('queues_a');
SELECT lease_until - now() BETWEEN '9 minutes' AND '11 minutes' AS ten_minutes
FROM fairq.pop('queues_a', lease => '10 minutes');
SELECT fairq.purge('queues_a');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'queues_a';

-- arguments can be named, in any order
SELECT fairq.enqueue(priority => 3, payload => '{"n": 1}', group_key => 'x',
	queue => 'queues_a') > 0 AS ok;
SELECT fairq.enqueue_batch(payloads => '{2,3}', priority => 4,
	group_keys => '{x,y}', queue => 'queues_a') > 0 AS ok;
SELECT group_key, payload, attempt, priority, addr, lease_until IS NOT NULL AS leased
FROM fairq.pop(worker => 'me', per_group => 1, lease => '1 minute',
	max_tasks => 1, queue => 'queues_a');
SELECT group_key, payload, attempt, priority, addr, lease_until
FROM fairq.take(per_group => 2, max_tasks => 1, queue => 'queues_a');

-- the views show queues with tasks
SELECT group_key, status, priority, addr, attempt, payload, worker,
	enqueued_at BETWEEN now() - interval '1 hour' AND clock_timestamp() AS enqueued_now,
	lease_until > now() AS leased
FROM fairq.tasks WHERE queue = 'queues_a' ORDER BY id;
SELECT * FROM fairq.groups WHERE queue = 'queues_a' ORDER BY group_no;
SELECT queue, ready, limited, running,
	oldest_enqueued_at = (SELECT min(enqueued_at) FROM fairq.tasks
		WHERE queue = 'queues_a' AND status = 'queued') AS is_oldest,
	enqueued, popped, completed, released
FROM fairq.queues WHERE queue = 'queues_a';

-- counters count committed calls
BEGIN;
SELECT fairq.enqueue('queues_a', 'x') > 0 AS ok;
SAVEPOINT s;
SELECT count(*) FROM fairq.pop('queues_a', 10);
ROLLBACK TO s;
COMMIT;
BEGIN;
SELECT fairq.enqueue('queues_a', 'x') > 0 AS ok;
ROLLBACK;
SELECT fairq.release(id, attempt) FROM fairq.tasks
WHERE queue = 'queues_a' AND status = 'running';
SELECT ready, running, enqueued, popped, completed, released
FROM fairq.queues WHERE queue = 'queues_a';

-- pop and take return nothing from a paused queue, and all other calls work
SELECT fairq.pause('queues_a');
SELECT fairq.pause('queues_a');
SELECT paused FROM fairq.queues WHERE queue = 'queues_a';
SELECT count(*) FROM fairq.pop('queues_a', 10);
SELECT count(*) FROM fairq.take('queues_a', 10);
SELECT fairq.enqueue('queues_a', 'z') > 0 AS ok;
SELECT fairq.resume('queues_a');
SELECT fairq.resume('queues_a');
SELECT paused FROM fairq.queues WHERE queue = 'queues_a';
SELECT string_agg(group_key, ' ' ORDER BY group_key) FROM fairq.pop('queues_a', 10);

-- tasks that run when the queue is paused may finish
SELECT fairq.pause('queues_a');
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'queues_a' AND group_key <> 'z';
SELECT fairq.release(id) FROM fairq.tasks WHERE queue = 'queues_a';
BEGIN;
SELECT fairq.resume('queues_a');
SELECT count(*) FROM fairq.take('queues_a', 10);	-- resumed in this transaction
ROLLBACK;
SELECT count(*) FROM fairq.pop('queues_a', 10);	-- the resume was rolled back
SELECT fairq.resume('queues_a');

-- drop_queue refuses while there are tasks, ready or running, unless forced
SELECT fairq.drop_queue('queues_a');
SELECT count(*) FROM fairq.pop('queues_a', 10);
SELECT fairq.drop_queue('queues_a', false);
SELECT fairq.drop_queue('queues_a', NULL);
BEGIN;
SELECT fairq.drop_queue('queues_a', force => true);
SELECT fairq.enqueue('queues_a', 'x');
ROLLBACK;
SELECT * FROM fairq.check_queue('queues_a');
SELECT fairq.drop_queue('queues_a', force => true);
SELECT fairq.pop('queues_a');
SELECT fairq.drop_queue('queues_a');
SELECT count(*) FROM fairq.tasks WHERE queue = 'queues_a';

-- a new queue inherits nothing from a dropped queue that had its name
SELECT fairq.set_group('queues_b', 'x', 2, 5);
SELECT fairq.enqueue('queues_b', 'x', 'true') > 0 AS ok;
BEGIN;
SELECT fairq.drop_queue('queues_b', true);
SELECT fairq.create_queue('queues_b');
SELECT fairq.enqueue('queues_b', 'y', 'false') > 0 AS ok;
COMMIT;
SELECT * FROM fairq.groups WHERE queue = 'queues_b';
SELECT group_key, payload, addr FROM fairq.pop('queues_b', 10);
SELECT * FROM fairq.check_queue('queues_b');

-- a rolled back create_queue leaves no queue
BEGIN;
SELECT fairq.create_queue('queues_e');
SELECT fairq.enqueue('queues_e', 'x') > 0 AS ok;
SELECT group_key FROM fairq.pop('queues_e');
ROLLBACK;
SELECT fairq.enqueue('queues_e', 'x');
SELECT fairq.create_queue('queues_e');
SELECT count(*) FROM fairq.pop('queues_e');
SELECT * FROM fairq.groups WHERE queue = 'queues_e';

-- a call on a queue affects all its priorities, and no other queue
SELECT fairq.create_queue('queues_f'), fairq.create_queue('queues_g'), fairq.create_queue('queues_h');
SELECT count(fairq.enqueue(queue, 'x', to_jsonb(queue), priority))
FROM unnest('{queues_f, queues_g, queues_h}'::text[]) queue, unnest('{0, 9, 9}'::int[]) priority;
SELECT count(fairq.enqueue('queues_g', group_key, priority => 9))
FROM unnest('{y, z}'::text[]) group_key;
SELECT fairq.alter_queue('queues_g', block_length => 1000);
SELECT queue, group_key, priority, addr FROM fairq.tasks
WHERE queue IN ('queues_f', 'queues_g', 'queues_h') ORDER BY 1, 2, 3, 4;
SELECT fairq.purge('queues_g', 'x');
SELECT fairq.maintain('queues_g');
SELECT group_key, ready FROM fairq.groups WHERE queue = 'queues_g' ORDER BY 1;
SELECT fairq.drop_queue('queues_g');
SELECT fairq.purge('queues_g');
SELECT fairq.drop_queue('queues_g');
SELECT string_agg(payload #>> '{}', ' ') FROM (
	SELECT * FROM fairq.pop('queues_f', 10) UNION ALL SELECT * FROM fairq.pop('queues_h', 10)) t;

-- a backend has a table of groups' settings only if groups have settings
CREATE FUNCTION pg_temp.tables() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'fairq settings of groups'
$$;
SELECT pg_temp.tables() AS before, fairq.create_queue('queues_i') \gset
SELECT fairq.enqueue('queues_i', 'a') > 0 AS ok, (SELECT count(*) FROM fairq.pop('queues_i')) AS popped;
SELECT pg_temp.tables() - :before AS tables;
SELECT fairq.set_group('queues_i', 'a', weight => 2);
SELECT count(*) FROM fairq.pop('queues_i');
SELECT pg_temp.tables() - :before AS tables;

-- dropped queues leave nothing behind
SELECT fairq.drop_queue(queue, true)
FROM fairq.queues WHERE queue LIKE 'queues\__' ORDER BY queue;
SELECT count(*) FROM fairq.group_number LEFT JOIN fairq.queue q USING (queue_id)
WHERE q IS NULL;
SELECT count(*) FROM fairq.group_setting LEFT JOIN fairq.queue q USING (queue_id)
WHERE q IS NULL;
SELECT count(*) FROM fairq.task LEFT JOIN fairq.queue q USING (queue_id)
WHERE q IS NULL;
