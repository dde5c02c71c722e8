-- After a rollback, a release or a purge the order is fair, and no task is
-- lost.
--
-- Fails if each turn goes to the lowest seat of the ring (find_next() in
-- lane_turns.c). Fails if a task whose claim is undone is not ready again
-- (fairq_claim()).
\a \t
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

CREATE FUNCTION pg_temp.take(queue text, n int DEFAULT 100) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.take(queue, n)
$$;

--
-- Enqueue
--

-- The group's next tasks get the addresses of the rolled back ones.
SELECT fairq.create_queue('rollback_enqueue');
SELECT pg_temp.add('rollback_enqueue', 'b', 1, 5);
BEGIN;
SELECT pg_temp.add('rollback_enqueue', 'a', 1, 2), pg_temp.add('rollback_enqueue', 'b', 6, 6);
ROLLBACK;
SELECT pg_temp.add('rollback_enqueue', 'a', 3, 3);
BEGIN;
SELECT pg_temp.add('rollback_enqueue', 'a', 4, 4);
SAVEPOINT s;
SELECT pg_temp.add('rollback_enqueue', 'a', 5, 6);
SAVEPOINT t;
SELECT pg_temp.add('rollback_enqueue', 'a', 7, 7);
RELEASE t;
ROLLBACK TO s;
SELECT pg_temp.add('rollback_enqueue', 'a', 8, 8);
SAVEPOINT u;
SELECT pg_temp.add('rollback_enqueue', 'a', 9, 9);
RELEASE u;
COMMIT;
SELECT payload, fairq.block_of('rollback_enqueue', addr) AS block
FROM fairq.tasks WHERE queue = 'rollback_enqueue' ORDER BY id;
SELECT * FROM fairq.check_queue('rollback_enqueue');
SELECT pg_temp.pop('rollback_enqueue');

-- A group that a rolled back enqueue created does not exist, and its number is
-- free.
BEGIN;
SELECT pg_temp.add('rollback_enqueue', 'c', 1, 1);
ROLLBACK;
SELECT pg_temp.add('rollback_enqueue', 'd', 1, 1);
BEGIN;
SAVEPOINT s;
SELECT pg_temp.add('rollback_enqueue', 'c', 2, 2);
ROLLBACK TO s;
SELECT pg_temp.add('rollback_enqueue', 'e', 1, 1);
SELECT pg_temp.add('rollback_enqueue', 'c', 3, 3);
COMMIT;
SELECT group_key, group_no FROM fairq.groups WHERE queue = 'rollback_enqueue' ORDER BY 2;
SELECT * FROM fairq.check_queue('rollback_enqueue');
SELECT payload, group_key FROM fairq.pop('rollback_enqueue', 100) ORDER BY payload;

-- A batch is all or nothing: here the last payload is too large.
\set VERBOSITY sqlstate
SELECT fairq.create_queue('rollback_batch', block_length => 2);
SELECT fairq.enqueue_batch('rollback_batch', '{a,b,a,c}', '{1,2,3,4}');
SELECT count(*) FROM fairq.tasks WHERE queue = 'rollback_batch';
SELECT count(*) FROM fairq.enqueue_batch('rollback_batch', '{b,a,b}', '{1,2,3}');
SELECT string_agg(group_key || payload, ' ') FROM fairq.pop('rollback_batch', 10);
SELECT * FROM fairq.check_queue('rollback_batch');
\set VERBOSITY default

-- A transaction pops its own tasks, and then its enqueue is rolled back.
BEGIN;
SELECT pg_temp.add('rollback_enqueue', 'a', 10, 12);
SELECT pg_temp.pop('rollback_enqueue', 2);
ROLLBACK;
SELECT pg_temp.pop('rollback_enqueue');
SELECT pg_temp.add('rollback_enqueue', 'a', 13, 14);
BEGIN;
SELECT pg_temp.pop('rollback_enqueue', 1);
SAVEPOINT s;
SELECT pg_temp.add('rollback_enqueue', 'a', 15, 16);
SELECT pg_temp.pop('rollback_enqueue', 2);
ROLLBACK TO s;
SELECT pg_temp.pop('rollback_enqueue');
COMMIT;
SELECT * FROM fairq.check_queue('rollback_enqueue');

--
-- Pop and take
--

-- A full round that was rolled back is served again in the same order.
SELECT fairq.create_queue('rollback_pop');
SELECT pg_temp.add('rollback_pop', 'a', 1, 4), pg_temp.add('rollback_pop', 'b', 1, 2),
	pg_temp.add('rollback_pop', 'c', 1, 3);
BEGIN;
SELECT pg_temp.pop('rollback_pop', 3);
ROLLBACK;
SELECT payload, attempt, worker, lease_until, status FROM fairq.tasks
WHERE queue = 'rollback_pop' AND attempt > 0;
SELECT * FROM fairq.check_queue('rollback_pop');
BEGIN;
SELECT pg_temp.take('rollback_pop', 3);
ROLLBACK;
SELECT * FROM fairq.check_queue('rollback_pop');
SELECT pg_temp.pop('rollback_pop', 3);

-- After half a round is rolled back, the groups whose turns are next continue.
-- Still no group has a second turn before each group has had its first.
BEGIN;
SELECT pg_temp.pop('rollback_pop', 2);
ROLLBACK;
SELECT * FROM fairq.check_queue('rollback_pop');
SELECT pg_temp.pop('rollback_pop', 3);
SELECT pg_temp.pop('rollback_pop');
SELECT * FROM fairq.check_queue('rollback_pop');

-- With savepoints.
SELECT fairq.create_queue('rollback_sub');
SELECT pg_temp.add('rollback_sub', 'a', 1, 5), pg_temp.add('rollback_sub', 'b', 1, 3);
BEGIN;
SELECT pg_temp.pop('rollback_sub', 2);
SAVEPOINT s;
SELECT pg_temp.pop('rollback_sub', 2);
SAVEPOINT t;
SELECT pg_temp.take('rollback_sub', 2);
RELEASE t;
ROLLBACK TO s;
SELECT pg_temp.pop('rollback_sub', 2);
ROLLBACK TO s;
SELECT pg_temp.take('rollback_sub', 2);
SAVEPOINT t;
SELECT pg_temp.pop('rollback_sub', 1);
ROLLBACK TO t;
COMMIT;
SELECT payload, status FROM fairq.tasks WHERE queue = 'rollback_sub' ORDER BY status, id;
SELECT * FROM fairq.check_queue('rollback_sub');
SELECT pg_temp.pop('rollback_sub');
SELECT * FROM fairq.check_queue('rollback_sub');

-- A pop of 1,000 tasks of bob is rolled back. Then bob takes turns with alice
-- and carol.
SELECT fairq.create_queue('rollback_1000');
SELECT pg_temp.add('rollback_1000', 'bob', 1, 1000);
BEGIN;
SELECT count(*) FROM fairq.pop('rollback_1000', 1000);
ROLLBACK;
SELECT * FROM fairq.check_queue('rollback_1000');
SELECT pg_temp.add('rollback_1000', 'alice', 1, 2), pg_temp.add('rollback_1000', 'carol', 1, 2);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload)
FROM fairq.pop('rollback_1000', 3);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload)
FROM fairq.pop('rollback_1000', 3);
SELECT count(*), bool_and(payload = to_jsonb('bob' || n + 2)) AS in_order
FROM (SELECT payload, row_number() OVER () AS n
	FROM fairq.pop('rollback_1000', 2000)) p;
SELECT * FROM fairq.check_queue('rollback_1000');

-- 1,000 groups, one task each.
SELECT fairq.create_queue('rollback_groups');
SELECT count(*) FROM generate_series(1, 1000) i, pg_temp.add('rollback_groups', 'g' || i, 1, 2);
BEGIN;
SELECT count(*) FROM fairq.pop('rollback_groups', 1500);
ROLLBACK;
SELECT * FROM fairq.check_queue('rollback_groups');
SELECT count(*), count(DISTINCT group_key) AS groups, count(DISTINCT id) AS tasks
FROM fairq.pop('rollback_groups', 1000);
SELECT count(*), count(DISTINCT group_key) AS groups, count(DISTINCT id) AS tasks
FROM fairq.pop('rollback_groups', 2000);
SELECT * FROM fairq.check_queue('rollback_groups');

-- Rollbacks also work with more groups than a transaction records separately.
SELECT fairq.create_queue('rollback_many');
BEGIN;
SELECT count(*) FROM fairq.enqueue_batch('rollback_many',
	(SELECT array_agg('g' || i) FROM generate_series(1, 20000) i), array_fill('1'::jsonb, '{20000}'));
SAVEPOINT s;
SELECT count(*) FROM fairq.enqueue_batch('rollback_many',
	(SELECT array_agg('g' || i) FROM generate_series(1, 20000) i), array_fill('2'::jsonb, '{20000}'));
ROLLBACK TO s;
SELECT count(*) FROM fairq.enqueue_batch('rollback_many',
	(SELECT array_agg('g' || i) FROM generate_series(1, 20000) i), array_fill('3'::jsonb, '{20000}'));
COMMIT;
SELECT * FROM fairq.check_queue('rollback_many');
BEGIN;
SELECT count(*) FROM fairq.pop('rollback_many', 15000);
SAVEPOINT s;
SELECT count(*) FROM fairq.pop('rollback_many', 10000);
ROLLBACK TO s;
ROLLBACK;
SELECT * FROM fairq.check_queue('rollback_many');
SELECT count(*), count(DISTINCT group_key) AS groups, min(payload::int), max(payload::int)
FROM fairq.pop('rollback_many', 20000);
BEGIN;
SELECT fairq.purge('rollback_many');
ROLLBACK;
SELECT count(*), count(DISTINCT group_key) AS groups, min(payload::int), max(payload::int)
FROM fairq.take('rollback_many', 100000);
SELECT * FROM fairq.check_queue('rollback_many');

-- Caught exceptions.
SELECT fairq.create_queue('rollback_do');
DO $$
BEGIN
	PERFORM pg_temp.add('rollback_do', 'a', 1, 2);
	BEGIN
		PERFORM pg_temp.add('rollback_do', 'a', 3, 4);
		PERFORM pg_temp.add('rollback_do', 'b', 1, 4);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	PERFORM pg_temp.add('rollback_do', 'b', 5, 6);
	BEGIN
		PERFORM fairq.enqueue_batch('rollback_do', ARRAY['a', repeat('x', 1025)], '{1,2}');
	EXCEPTION WHEN SQLSTATE 'QF003' THEN
		NULL;
	END;
	BEGIN
		PERFORM fairq.enqueue('rollback_none', 'a');
	EXCEPTION WHEN SQLSTATE 'QF001' THEN
		PERFORM pg_temp.add('rollback_do', 'c', 1, 1);
	END;
	BEGIN
		PERFORM fairq.pop('rollback_do', 3);
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM pg_temp.add('rollback_do', 'a', 5, 5);
	END;
END $$;
SELECT payload, status FROM fairq.tasks WHERE queue = 'rollback_do' ORDER BY group_key, id;
SELECT * FROM fairq.check_queue('rollback_do');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('rollback_do', 3);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('rollback_do', 2);
SELECT pg_temp.pop('rollback_do');
SELECT * FROM fairq.check_queue('rollback_do');

--
-- Complete and release
--

-- A released task is its group's last task, and its attempt number increases.
SELECT fairq.create_queue('rollback_release');
SELECT pg_temp.add('rollback_release', 'a', 1, 3), pg_temp.add('rollback_release', 'b', 1, 4);
SELECT pg_temp.pop('rollback_release', 2);
SELECT fairq.release(id, attempt) FROM fairq.tasks
WHERE queue = 'rollback_release' AND payload = '"a1"';
SELECT payload, status, attempt, worker, lease_until FROM fairq.tasks
WHERE queue = 'rollback_release' AND payload = '"a1"';
SELECT pg_temp.pop('rollback_release');
SELECT payload, attempt FROM fairq.tasks
WHERE queue = 'rollback_release' AND attempt <> 1;
SELECT * FROM fairq.check_queue('rollback_release');

-- After all tasks are released at once, the rounds are full again.
SELECT count(*) FROM (SELECT fairq.release(id) FROM fairq.tasks
	WHERE queue = 'rollback_release' ORDER BY id) r;
SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('rollback_release', 10, per_group => 10);
SELECT * FROM fairq.check_queue('rollback_release');

-- After a rollback of calls, also to a savepoint, their tasks are as before.
BEGIN;
SELECT fairq.release(id), fairq.complete(id) FROM fairq.tasks
WHERE queue = 'rollback_release' AND payload = '"a1"';
SELECT pg_temp.pop('rollback_release', 1);
ROLLBACK;
SELECT * FROM fairq.check_queue('rollback_release');
BEGIN;
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'rollback_release' AND group_key = 'a';
SAVEPOINT s;
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'rollback_release' AND group_key = 'b';
ROLLBACK TO s;
SELECT fairq.release(id) FROM fairq.tasks WHERE queue = 'rollback_release' AND payload = '"b1"';
SAVEPOINT t;
SELECT fairq.release(id) FROM fairq.tasks WHERE queue = 'rollback_release' AND payload = '"b2"';
ROLLBACK TO t;
COMMIT;
SELECT payload, status FROM fairq.tasks WHERE queue = 'rollback_release' ORDER BY payload;
SELECT * FROM fairq.check_queue('rollback_release');
SELECT pg_temp.pop('rollback_release');

-- A transaction that releases and pops tasks is rolled back.
BEGIN;
SELECT fairq.release(id) FROM fairq.tasks WHERE queue = 'rollback_release' AND payload = '"b1"';
SELECT pg_temp.pop('rollback_release');
ROLLBACK;
SELECT pg_temp.pop('rollback_release');
SELECT * FROM fairq.check_queue('rollback_release');

--
-- Purge
--

-- Tasks that a group enqueues after a purge come at its next turns, and not
-- all at once.
SELECT fairq.create_queue('rollback_purge');
SELECT pg_temp.add('rollback_purge', 'a', 1, 5), pg_temp.add('rollback_purge', 'b', 1, 6);
SELECT pg_temp.pop('rollback_purge', 2);
SELECT fairq.purge('rollback_purge', 'a');
SELECT * FROM fairq.check_queue('rollback_purge');
SELECT pg_temp.add('rollback_purge', 'a', 6, 8);
SELECT pg_temp.pop('rollback_purge', 6);
SELECT pg_temp.pop('rollback_purge');
SELECT payload FROM fairq.tasks WHERE queue = 'rollback_purge' AND group_key = 'a' ORDER BY id;
SELECT * FROM fairq.check_queue('rollback_purge');

-- The same holds in one transaction, with tasks before and behind the purged ones.
SELECT pg_temp.add('rollback_purge', 'a', 11, 14), pg_temp.add('rollback_purge', 'b', 11, 16);
BEGIN;
SELECT fairq.purge('rollback_purge', 'a');
SELECT pg_temp.add('rollback_purge', 'a', 15, 17);
COMMIT;
SELECT pg_temp.add('rollback_purge', 'a', 18, 18);
SELECT * FROM fairq.check_queue('rollback_purge');
SELECT string_agg(pg_temp.pop('rollback_purge', 2), ', ') FROM generate_series(1, 5);
SELECT * FROM fairq.check_queue('rollback_purge');

-- After purges are rolled back, all tasks are there, in order.
SELECT fairq.create_queue('rollback_purged');
SELECT pg_temp.add('rollback_purged', 'a', 1, 3), pg_temp.add('rollback_purged', 'b', 1, 3);
BEGIN;
SELECT fairq.purge('rollback_purged', 'a');
SAVEPOINT s;
SELECT fairq.purge('rollback_purged');
SELECT pg_temp.pop('rollback_purged');
ROLLBACK TO s;
SELECT pg_temp.pop('rollback_purged', 1);
ROLLBACK;
SELECT * FROM fairq.check_queue('rollback_purged');
BEGIN;
SAVEPOINT s;
SELECT fairq.purge('rollback_purged', 'b');
SELECT pg_temp.add('rollback_purged', 'b', 4, 4);
ROLLBACK TO s;
COMMIT;
SELECT * FROM fairq.check_queue('rollback_purged');
SELECT pg_temp.pop('rollback_purged', 2);

-- Running tasks are not purged, but can be released.
SELECT fairq.purge('rollback_purged');
SELECT fairq.purge('rollback_purged', 'a');
SELECT payload, status FROM fairq.tasks WHERE queue = 'rollback_purged' ORDER BY payload;
SELECT count(fairq.release(id)) FROM fairq.tasks WHERE queue = 'rollback_purged';
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('rollback_purged', 10);
SELECT * FROM fairq.check_queue('rollback_purged');

-- A transaction adds tasks behind those that it has taken, even if shared
-- memory does not know the group.
SELECT fairq.create_queue('rollback_unknown');
SELECT pg_temp.add('rollback_unknown', 'a', 1, 3);
BEGIN;
SELECT pg_temp.take('rollback_unknown');
SELECT fairq.reset_hints();
SELECT pg_temp.add('rollback_unknown', 'a', 4, 4);
ROLLBACK;
SELECT pg_temp.add('rollback_unknown', 'a', 5, 5);
SELECT pg_temp.pop('rollback_unknown');
SELECT * FROM fairq.check_queue('rollback_unknown');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'rollback%';
