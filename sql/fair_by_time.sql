-- Time-fair queues: all groups get the same worker time per weight. The
-- argument took gives the time of each attempt, so results do not depend on a
-- clock.
--
-- Fails if levels do not count (next_by_time() with E of 0). Fails if the end of
-- a task is charged before its transaction commits. Fails if a newly active group
-- is not charged, or an abort does not undo starts. Fails if nothing is forgiven
-- (fairq_account_apply(), fairq_account_forgive(), find_got()). Fails if tasks
-- that may have lapsed count as running, for the group or its priority, or if
-- their time grows (fairq_account_lapses()).
\a \t
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/time.psql

-- Adds tasks <group><from> to <group><upto>.
CREATE FUNCTION pg_temp.add(queue text, group_key text, "from" int, upto int,
	priority int DEFAULT 0) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(*) FROM fairq.enqueue_batch(queue,
		array_fill(group_key, ARRAY[upto - "from" + 1]),
		(SELECT array_agg(to_jsonb(group_key || i)) FROM generate_series("from", upto) i),
		priority)
$$;

CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1, per_group int DEFAULT NULL)
	RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ')
	FROM fairq.pop(queue, n, per_group => per_group)
$$;

-- One worker runs n tasks, one after the other. The tasks of a group take the
-- given time.
CREATE PROCEDURE pg_temp.work(queue text, n int, took jsonb,
	INOUT served text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
	task record;
BEGIN
	FOR i IN 1..n LOOP
		SELECT * INTO STRICT task FROM fairq.pop(work.queue);
		COMMIT;
		PERFORM fairq.complete(task.id, took => (work.took->>task.group_key)::interval);
		COMMIT;
		served := concat_ws(' ', served, task.group_key);
	END LOOP;
END
$$;

-- Before a task has ended, only levels count: the group with the fewest
-- running tasks is next.
SELECT fairq.create_queue('time', fair_by => 'time');
SELECT pg_temp.add('time', 'a', 1, 90), pg_temp.add('time', 'b', 1, 90);
SELECT pg_temp.pop('time', 5);
SELECT pg_temp.add('time', 'c', 1, 90);
SELECT pg_temp.pop('time', 4);
-- The tasks of a took an hour, and those of b and c took a minute. While each
-- group has one running task, b and c are served as long as they are behind by
-- two of the longest tasks.
SELECT pg_temp.done('time', 'a', '1 h'), pg_temp.done('time', 'b', '1 min'), pg_temp.done('time', 'c', '1 min');
SELECT pg_temp.pop('time', 8);
SELECT * FROM fairq.check_queue('time');

-- With one worker, each group gets the same time.
SELECT fairq.create_queue('time_one', fair_by => 'time');
SELECT pg_temp.add('time_one', 'long', 1, 30), pg_temp.add('time_one', 'short', 1, 60);
CALL pg_temp.work('time_one', 2, '{"long": "1 h", "short": "20 min"}');
CALL pg_temp.work('time_one', 12, '{"long": "1 h", "short": "20 min"}');
-- a newly active group is next, but has no credit
SELECT pg_temp.add('time_one', 'new', 1, 20);
CALL pg_temp.work('time_one', 12, '{"long": "1 h", "short": "20 min", "new": "20 min"}');
-- a group that was inactive owes only what it got before
SELECT pg_temp.add('time_one', 'away', 1, 1);
CALL pg_temp.work('time_one', 1, '{"away": "2 h"}');
SELECT pg_temp.add('time_one', 'away', 2, 9);
CALL pg_temp.work('time_one', 12, '{"long": "1 h", "short": "20 min", "new": "20 min", "away": "1 h"}');
SELECT * FROM fairq.check_queue('time_one');

-- A crashed worker's lease costs at most as much as 16 of the longest tasks.
SELECT fairq.create_queue('time_crash', fair_by => 'time', lease => '1 h');
SELECT pg_temp.add('time_crash', 'a', 1, 30), pg_temp.add('time_crash', 'b', 1, 30);
CALL pg_temp.work('time_crash', 4, '{"a": "1 ms", "b": "1 ms"}');
SELECT payload FROM fairq.pop('time_crash', lease => '300 ms');
SELECT pg_sleep(0.31);
CALL pg_temp.work('time_crash', 30, '{"a": "1 ms", "b": "1 ms"}') \gset
SELECT strpos(replace(:'served', ' ', ''), 'a') BETWEEN 15 AND 20 AS owed_16;

-- A group of weight 2 gets twice the time, and may have twice as many running
-- tasks at the same level.
SELECT fairq.create_queue('time_weights', fair_by => 'time');
SELECT fairq.set_group('time_weights', 'a', weight => 2);
SELECT pg_temp.add('time_weights', 'a', 1, 40), pg_temp.add('time_weights', 'b', 1, 40);
SELECT pg_temp.pop('time_weights', 9);
SELECT pg_temp.done('time_weights', 'a', '1 h'), pg_temp.done('time_weights', 'b', '1 h');
CALL pg_temp.work('time_weights', 12, '{"a": "1 h", "b": "1 h"}');
SELECT * FROM fairq.check_queue('time_weights');

-- A new group is next among 1,000 groups with work.
SELECT fairq.create_queue('time_many', fair_by => 'time');
SELECT count(fairq.enqueue('time_many', 'g' || i % 1000)) FROM generate_series(1, 5000) i;
SELECT count(fairq.complete(id, took => (i % 77) * '1 s'::interval))
FROM (SELECT id, row_number() OVER () AS i FROM fairq.pop('time_many', 2345)) t;
SELECT fairq.enqueue('time_many', 'new', '"new"') > 0 AS ok;
SELECT pg_temp.pop('time_many');
SELECT * FROM fairq.check_queue('time_many');

-- The end of a task counts when its transaction commits. A start counts at once. A
-- rollback removes it.
SELECT fairq.create_queue('time_levels', fair_by => 'time');
SELECT pg_temp.add('time_levels', 'a', 1, 20), pg_temp.add('time_levels', 'b', 1, 20);
SELECT pg_temp.pop('time_levels', 2);
BEGIN;
SELECT pg_temp.done('time_levels', 'a', '1 h');
SELECT pg_temp.pop('time_levels', 2);
ROLLBACK;
SELECT pg_temp.pop('time_levels', 2);
BEGIN;
SELECT pg_temp.pop('time_levels', 1);
SAVEPOINT s;
SELECT pg_temp.pop('time_levels', 1);
ROLLBACK TO s;
SELECT pg_temp.pop('time_levels', 1);
RELEASE s;
COMMIT;
SELECT pg_temp.done('time_levels', 'a', '1 h', 1);
SELECT pg_temp.pop('time_levels', 3);
SELECT * FROM fairq.check_queue('time_levels');

-- fail, release, cancel and take also end attempts
SELECT fairq.create_queue('time_ends', fair_by => 'time', backoff => '0');
SELECT pg_temp.add('time_ends', 'a', 1, 9), pg_temp.add('time_ends', 'b', 1, 9), pg_temp.add('time_ends', 'c', 1, 9);
CALL pg_temp.work('time_ends', 3, '{"a": "1 h", "b": "1 h", "c": "1 h"}');
SELECT payload, fairq.fail(id, took => '30 min') FROM fairq.pop('time_ends');
SELECT payload, fairq.fail(id, took => '0') FROM fairq.pop('time_ends');
SELECT payload, fairq.release(id) FROM fairq.pop('time_ends');
SELECT payload, fairq.cancel(id), fairq.extend(id), fairq.complete(id, took => '2 h') FROM fairq.pop('time_ends');
BEGIN;
SELECT payload FROM fairq.take('time_ends');
ROLLBACK;
SELECT payload FROM fairq.take('time_ends', 2);
SELECT pg_temp.pop('time_ends', 100);
SELECT * FROM fairq.check_queue('time_ends');

-- Expired leases do not delay their group, but the group is charged for them.
SELECT fairq.create_queue('time_leases', fair_by => 'time', max_attempts => 2);
SELECT pg_temp.add('time_leases', 'a', 1, 9), pg_temp.add('time_leases', 'b', 1, 9);
SELECT payload FROM fairq.pop('time_leases', 1, lease => '1 us');
SELECT payload, attempt FROM fairq.pop('time_leases', 2) ORDER BY 1;
SELECT payload, attempt FROM fairq.pop('time_leases', 3) ORDER BY 1;
SELECT payload, attempt FROM fairq.pop('time_leases', 2, lease => '1 us') ORDER BY 1;
SELECT fairq.expire_leases('time_leases');
SELECT count(*), sum(attempt) FROM fairq.pop('time_leases', 100);
SELECT * FROM fairq.check_queue('time_leases');

-- Time-fair queues respect limits, pauses, priorities, max_running and
-- per_group.
SELECT fairq.create_queue('time_limits', concurrency => 2, fair_by => 'time');
SELECT pg_temp.add('time_limits', 'a', 1, 6), pg_temp.add('time_limits', 'b', 1, 6),
	pg_temp.add('time_limits', 'b', 7, 9, priority => 1);
SELECT pg_temp.pop('time_limits', 100);
SELECT pg_temp.done('time_limits', 'b', '1 min', 1);
SELECT pg_temp.pop('time_limits', 100);
SELECT fairq.pause('time_limits', 'a');
SELECT pg_temp.done('time_limits', 'a', '1 h'), pg_temp.done('time_limits', 'b', '1 s');
SELECT pg_temp.pop('time_limits', 100);
SELECT fairq.resume('time_limits', 'a'), fairq.alter_queue('time_limits', concurrency => 0, max_running => 5);
SELECT pg_temp.pop('time_limits', 100);
SELECT pg_temp.done('time_limits', 'a', '1 h'), pg_temp.done('time_limits', 'b', '1 s');
SELECT pg_temp.pop('time_limits', 100, 1);
SELECT * FROM fairq.check_queue('time_limits');

-- The fair_by of a queue in use can change.
SELECT fairq.create_queue('time_changed');
SELECT pg_temp.add('time_changed', 'a', 1, 12), pg_temp.add('time_changed', 'b', 1, 12);
SELECT pg_temp.pop('time_changed', 3);
SELECT fairq.alter_queue('time_changed', fair_by => 'time');
SELECT pg_temp.pop('time_changed', 3);
-- tasks that ran before the change have no level, but their time is charged
SELECT pg_temp.done('time_changed', 'a', '1 h'), pg_temp.done('time_changed', 'b', '1 s');
SELECT pg_temp.pop('time_changed', 3);
SELECT fairq.alter_queue('time_changed', fair_by => 'cost');
SELECT pg_temp.pop('time_changed', 3);
SELECT pg_temp.done('time_changed', 'a', '1 h'), pg_temp.done('time_changed', 'b', '1 s');
SELECT fairq.alter_queue('time_changed', fair_by => 'tasks');
SELECT pg_temp.pop('time_changed', 100);
SELECT * FROM fairq.check_queue('time_changed');

-- If a transaction uses more groups than it records separately, all groups are
-- equal again.
SELECT fairq.create_queue('time_wide', fair_by => 'time');
SELECT count(fairq.enqueue('time_wide', 'g' || i)) FROM generate_series(1, 17000) i;
BEGIN;
SELECT count(fairq.complete(id, took => '1 s')) FROM fairq.pop('time_wide', 16900);
COMMIT;
SELECT count(*) FROM fairq.pop('time_wide', 200);
SELECT * FROM fairq.check_queue('time_wide');

-- How long the oldest task has waited
SELECT fairq.create_queue('time_ages', fair_by => 'time');
SELECT count(fairq.enqueue('time_ages', 'g' || g)) FROM generate_series(1, 100) g;
-- (the view may have read the clock shortly after the statement began)
SELECT pg_sleep(0.5);
SELECT clock_timestamp() AS between_them \gset
SELECT pg_sleep(0.5);
SELECT count(fairq.enqueue('time_ages', 'g' || g)) FROM generate_series(1, 100) g, generate_series(1, 9);
SELECT count(*) FROM fairq.pop('time_ages', 90);
SELECT statement_timestamp() - oldest_ready < :'between_them' AS old FROM fairq.stats WHERE queue = 'time_ages';
SELECT count(*) FROM fairq.pop('time_ages', 500);
SELECT statement_timestamp() - oldest_ready >= :'between_them' AS young FROM fairq.stats WHERE queue = 'time_ages';

-- A dead worker had 30 tasks of a. Their leases have lapsed, so the worker
-- time of group a does not grow. The group is before b at level 0, but b is
-- still chosen in its turn.
SELECT fairq.create_queue('time_lapsed', fair_by => 'time', max_attempts => 100);
SELECT pg_temp.add('time_lapsed', 'x', 1, 1);
SELECT fairq.complete(id, took => '10 ms') FROM fairq.pop('time_lapsed');
SELECT pg_temp.add('time_lapsed', 'a', 1, 31);
SELECT count(*) FROM fairq.pop('time_lapsed', 30, lease => '1 microsecond');
SELECT pg_temp.add('time_lapsed', g, 1, 9) FROM unnest('{b,c}'::text[]) g;
SELECT pg_temp.pop('time_lapsed'), pg_temp.pop('time_lapsed');
SELECT pg_temp.done('time_lapsed', 'b', '10 ms');
DO $$BEGIN PERFORM pg_sleep(0.1); END$$;
SELECT left(pg_temp.pop('time_lapsed'), 1), pg_temp.pop('time_lapsed');

-- A dead worker had 6 tasks of a, at priority 0. These tasks do not count as
-- running, so each priority gets every second task, even while a is paused.
-- Once they run again, they count.
SELECT fairq.create_queue('time_dead', fair_by => 'time', shares => '{1,1}');
SELECT pg_temp.add('time_dead', 'a', 1, 8);
SELECT count(*) FROM fairq.pop('time_dead', 6, lease => '1 microsecond');
SELECT fairq.pause('time_dead', 'a');
SELECT pg_temp.add('time_dead', 'b', 1, 9, 1), pg_temp.add('time_dead', 'c', 1, 9);
SELECT pg_temp.pop('time_dead'), pg_temp.pop('time_dead'), pg_temp.pop('time_dead'), pg_temp.pop('time_dead');
SELECT count(*) FROM fairq.peek('time_dead', 9);
SELECT fairq.resume('time_dead', 'a');
SELECT left(pg_temp.pop('time_dead'), 1), left(pg_temp.pop('time_dead'), 1), left(pg_temp.pop('time_dead'), 1),
	left(pg_temp.pop('time_dead'), 1), left(pg_temp.pop('time_dead'), 1), left(pg_temp.pop('time_dead'), 1);

-- A transaction takes over a dead worker's task and completes it. The other
-- five still do not count for their priority, so this priority is next, and b1
-- runs.
SELECT fairq.create_queue('time_mixed', fair_by => 'time', shares => '{1,1}');
SELECT pg_temp.add('time_mixed', 'a', 1, 6);
SELECT count(*) FROM fairq.pop('time_mixed', 6, lease => '0.4 s');
DO $$BEGIN PERFORM pg_sleep(0.5); END$$;
SELECT pg_temp.add('time_mixed', 'b', 1, 9, 1);
SELECT pg_temp.pop('time_mixed');
BEGIN;
SELECT fairq.complete(id, took => '0') FROM fairq.pop('time_mixed');
COMMIT;
SELECT left(pg_temp.pop('time_mixed'), 1);

-- A worker with four tasks of priority 0 dies. Its leases are 400 times as
-- long as E, but the priority owes only 16 times E for these leases.
SELECT fairq.create_queue('time_debt', fair_by => 'time', shares => '{1,1}');
SELECT pg_temp.add('time_debt', 'a', 1, 50), pg_temp.add('time_debt', 'b', 1, 50, 1);
CALL pg_temp.work('time_debt', 2, '{"a": "10 ms", "b": "10 ms"}');
SELECT count(*) FROM fairq.pop('time_debt', 8, lease => '1 s');
SELECT pg_temp.done('time_debt', 'b', '10 ms');
DO $$BEGIN PERFORM pg_sleep(1.1); END$$;
CALL pg_temp.work('time_debt', 40, '{"a": "10 ms", "b": "10 ms"}');

-- peek() returns the tasks of the next pop
SELECT fairq.create_queue('time_peek', fair_by => 'time');
SELECT sum(pg_temp.add('time_peek', 'g' || g, 1, 5, g % 2)) FROM generate_series(1, 9) g;
SELECT count(fairq.complete(id, took => id % 7 * '1 h'::interval)) FROM fairq.pop('time_peek', 9);
CREATE TEMP TABLE peeked AS
SELECT (SELECT array_agg(id) FROM fairq.peek('time_peek', 20)) AS ids;
SELECT (SELECT array_agg(id) FROM fairq.pop('time_peek', 20)) = ids AS same FROM peeked;

\set VERBOSITY sqlstate
SELECT fairq.complete(1, took => '-1 s');
SELECT fairq.complete(1, took => '101 years');
SELECT fairq.fail(1, took => '-1 us');
SELECT fairq.complete_batch('{1,2}', took => '{1 s}');
SELECT fairq.complete_batch('{1,2}', took => '{1 s,NULL}');
SELECT fairq.complete_batch('{1,2}', took => '{{1 s},{2 s}}');
SELECT fairq.complete_batch('{1,2}', took => '{1 s,-1 s}');
\set VERBOSITY default

SELECT count(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'time%';
