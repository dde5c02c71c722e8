-- For how long the oldest ready task of a queue has waited, as fairq.stats says: that
-- with a free slot, and that without.  Seen to fail when claims note nothing
-- (fairq_lane_note_claimed() in lane_end.c), when rounds are not forgotten
-- (fairq_ring_next_round() in ages.c), or what was noted before the ring was empty
-- (let_in() in lane_internal.h), when what falls out of a wheel is lost (move_on() in
-- ages.c), when the second priority of a parked group does not count (note_parked() in
-- counter.c), when what is not known of a parked group is not read (park() in running.c),
-- when what has fallen due counts from the next pop on (note_fallen_due() in
-- waiting.c), when leases that have ended do not count (note_leases_ended() there),
-- when the zeros of a
-- queue that is not known are shown (is_known() in waiting.c), or maintain() does not
-- make it known, when one epoch is kept (left_since() in ages.c), when groups count
-- whose tasks are gone, or do not count whose tasks are due or whose leases have ended
-- (nothing_waits() in waiting.c).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS fairq;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- Which task is as old as what is shown, or younger by an eighth of a second: tasks
-- are enqueued a quarter of a second after each other.  Finished ones are archived.
CREATE FUNCTION pg_temp.task_of(of text, age interval) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(
		(SELECT t.payload #>> '{}'
			FROM fairq.tasks t, LATERAL greatest(enqueued_at, run_at) ready_at
			WHERE queue = of AND ready_at BETWEEN clock_timestamp() - age - interval '60 ms'
				AND clock_timestamp() - age + interval '140 ms'
			ORDER BY ready_at LIMIT 1),
		CASE WHEN age IS NOT NULL THEN 'none' END)
$$;
CREATE FUNCTION pg_temp.show(of text, OUT active int, OUT limited int, OUT paused int,
	OUT oldest_ready text, OUT oldest_limited text) LANGUAGE sql AS $$
	SELECT groups_active, groups_limited, groups_paused,
		pg_temp.task_of(of, s.oldest_ready), pg_temp.task_of(of, s.oldest_limited)
	FROM fairq.stats s WHERE queue = of
$$;
CREATE PROCEDURE pg_temp.add(queue text, group_key text, VARIADIC payloads text[])
LANGUAGE plpgsql AS $$
DECLARE
	payload text;
BEGIN
	FOREACH payload IN ARRAY payloads LOOP
		PERFORM fairq.enqueue(queue, group_key, to_jsonb(payload));
		COMMIT;
		PERFORM pg_sleep(0.25);
		COMMIT;
	END LOOP;
END;
$$;
CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop(queue, n)
$$;
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT id FROM fairq.live_tasks t WHERE t.payload #>> '{}' = id.payload
$$;

--
-- One group: the task that was claimed last, or one before that
--

SELECT fairq.create_queue('ages');
SELECT fairq.maintain('ages');
SELECT * FROM pg_temp.show('ages');
CALL pg_temp.add('ages', 'a', 'a1', 'a2', 'a3', 'a4', 'a5');
SELECT * FROM pg_temp.show('ages');
SELECT pg_temp.pop('ages');
SELECT * FROM pg_temp.show('ages');
SELECT pg_temp.pop('ages');
SELECT * FROM pg_temp.show('ages');
-- one that is given back, or put back
BEGIN;
SELECT pg_temp.pop('ages');
ROLLBACK;
SELECT * FROM pg_temp.show('ages');
BEGIN;
SELECT pg_temp.pop('ages', 2);
SAVEPOINT s;
SELECT pg_temp.pop('ages');
SELECT * FROM pg_temp.show('ages');
ROLLBACK TO s;
SELECT * FROM pg_temp.show('ages');
COMMIT;
SELECT pg_temp.pop('ages');
SELECT * FROM pg_temp.show('ages');
-- what comes to an empty queue is as old as it is
CALL pg_temp.add('ages', 'a', 'a6');
SELECT * FROM pg_temp.show('ages');
SELECT fairq.release(pg_temp.id('a1'));
SELECT * FROM pg_temp.show('ages');
SELECT pg_temp.pop('ages', 10);
SELECT pg_sleep(0.25);
SELECT fairq.release(pg_temp.id('a3'));
SELECT * FROM pg_temp.show('ages');
SELECT pg_temp.pop('ages', 10);

--
-- Several groups, more than stand at the first 64 seats
--

SELECT fairq.create_queue('ages_many');
SELECT count(*) FROM fairq.enqueue_batch('ages_many',
	(SELECT array_agg('g' || i) FROM generate_series(1, 100) i),
	array_fill('{}'::jsonb, ARRAY[100]));
SELECT count(*) FROM fairq.pop('ages_many', 100);
SELECT pg_sleep(0.25);
CALL pg_temp.add('ages_many', 'g90', 'o1', 'o2', 'o3', 'o4');
CALL pg_temp.add('ages_many', 'g91', 'n1', 'n2', 'n3', 'n4');
SELECT * FROM pg_temp.show('ages_many');
-- what was served in the last round counts, and in the one before
SELECT pg_temp.pop('ages_many', 2);
SELECT * FROM pg_temp.show('ages_many');
SELECT pg_temp.pop('ages_many', 2);
SELECT * FROM pg_temp.show('ages_many');
SELECT pg_temp.pop('ages_many', 2);
SELECT * FROM pg_temp.show('ages_many');
SELECT pg_temp.pop('ages_many', 2);
SELECT * FROM pg_temp.show('ages_many');
-- but nothing of before the queue was empty
CALL pg_temp.add('ages_many', 'g90', 'o5');
SELECT * FROM pg_temp.show('ages_many');

--
-- Pauses and limits of the queue: nothing has a free slot
--

SELECT fairq.create_queue('ages_full', retain => '1 hour');
CALL pg_temp.add('ages_full', 'a', 'f1', 'f2', 'f3');
SELECT fairq.pause('ages_full');
SELECT * FROM pg_temp.show('ages_full');
SELECT fairq.resume('ages_full');
SELECT fairq.alter_queue('ages_full', max_running => 1);
SELECT * FROM pg_temp.show('ages_full');
-- with limits each group is asked, and says the same of a paused queue
SELECT fairq.pause('ages_full');
SELECT * FROM pg_temp.show('ages_full');
SELECT fairq.resume('ages_full');
SELECT pg_temp.pop('ages_full', 2);
SELECT * FROM pg_temp.show('ages_full');
SELECT fairq.complete(pg_temp.id('f1'));
SELECT * FROM pg_temp.show('ages_full');

--
-- Groups without a slot, and paused ones
--

SELECT fairq.create_queue('ages_limited', concurrency => 1, retain => '1 hour');
CALL pg_temp.add('ages_limited', 'a', 'x1', 'x2', 'x3');
CALL pg_temp.add('ages_limited', 'b', 'y1', 'y2', 'y3');
SELECT pg_temp.pop('ages_limited', 2);
SELECT * FROM pg_temp.show('ages_limited');
SELECT pg_temp.pop('ages_limited');
SELECT * FROM pg_temp.show('ages_limited');
SELECT fairq.complete(pg_temp.id('x1'));
SELECT * FROM pg_temp.show('ages_limited');
SELECT pg_temp.pop('ages_limited', 2);
SELECT * FROM pg_temp.show('ages_limited');
-- the time that is shown is that of the task that was served last
SELECT fairq.complete(pg_temp.id('y1'));
SELECT pg_temp.pop('ages_limited', 2);
SELECT * FROM pg_temp.show('ages_limited');
SELECT fairq.pause('ages_limited', 'b');
SELECT * FROM pg_temp.show('ages_limited');
SELECT pg_temp.pop('ages_limited', 2);
SELECT * FROM pg_temp.show('ages_limited');
-- all are taken back by the next call
SELECT fairq.alter_queue('ages_limited', concurrency => 2);
SELECT * FROM pg_temp.show('ages_limited');
SELECT pg_temp.pop('ages_limited', 2);
SELECT * FROM pg_temp.show('ages_limited');
SELECT fairq.resume('ages_limited', 'b');
SELECT pg_temp.pop('ages_limited', 9);
SELECT * FROM pg_temp.show('ages_limited');
-- in two priorities: the older of both
SELECT fairq.enqueue('ages_limited', 'a', '"x5"', priority => 5) > 0 AS ok;
SELECT pg_sleep(0.25);
CALL pg_temp.add('ages_limited', 'a', 'x4');
SELECT pg_temp.pop('ages_limited', 9);
SELECT * FROM pg_temp.show('ages_limited');
SELECT count(fairq.complete(pg_temp.id(x))) FROM unnest('{x2,x3,y2,y3}'::text[]) x;
SELECT pg_temp.pop('ages_limited', 9);
SELECT groups_active, groups_limited, oldest_limited FROM fairq.stats WHERE queue = 'ages_limited';

--
-- Ages of any size, within an eighth; as nothing is known of them before, by their rows
--

SELECT fairq.create_queue('ages_old', concurrency => 1);
SELECT count(*) FROM generate_series(1, 2) j, generate_series(1, 40) i,
	fairq.enqueue('ages_old', 'g' || i, to_jsonb(j));
SELECT count(*) FROM fairq.pop('ages_old', 100);
UPDATE fairq.task t SET enqueued_at = now() - interval '0.5 s' * 1.6 ^ (40 - group_no)
FROM fairq.queue q WHERE q.queue_id = t.queue_id AND q.name = 'ages_old' AND lease_until IS NULL;
SELECT count(*) FROM fairq.pop('ages_old', 100);
CREATE FUNCTION pg_temp.agrees(of text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN coalesce(oldest_limited, age) IS NULL OR oldest_limited BETWEEN age - interval '0.3 s' AND age * 1.13 + interval '0.3 s'
		THEN 'agrees' ELSE format('%s instead of %s', oldest_limited, age) END
	FROM fairq.stats,
		LATERAL (SELECT clock_timestamp() - min(enqueued_at) FROM fairq.tasks t
			WHERE t.queue = of AND status = 'queued') t(age)
	WHERE stats.queue = of
$$;
SELECT groups_limited, oldest_ready FROM fairq.stats WHERE queue = 'ages_old';
SELECT pg_temp.agrees('ages_old');
-- the oldest are served one by one, then any, while the wheels go on
DO $$
DECLARE
	n int := 0;
	task record;
	verdict text;
BEGIN
	LOOP
		SELECT group_no INTO task FROM fairq.group_stats('ages_old', 1) s JOIN fairq.groups g USING (group_key)
		WHERE g.queue = 'ages_old' AND s.reason = 'limit';
		EXIT WHEN NOT FOUND;
		PERFORM fairq.complete(id) FROM fairq.task t JOIN fairq.queue q USING (queue_id)
		WHERE q.name = 'ages_old' AND t.group_no = task.group_no AND lease_until IS NOT NULL;
		COMMIT;
		PERFORM fairq.pop('ages_old', 2);
		COMMIT;
		IF n % 5 = 0 THEN
			PERFORM fairq.enqueue('ages_old', 'new' || n), fairq.enqueue('ages_old', 'new' || n);
			COMMIT;
			PERFORM fairq.pop('ages_old', 2);
			COMMIT;
			PERFORM pg_sleep(0.15);
		END IF;
		COMMIT;
		n := n + 1;
		EXIT WHEN n > 60;
		verdict := pg_temp.agrees('ages_old');
		IF verdict <> 'agrees' THEN
			RAISE EXCEPTION USING errcode = 'ZZ001', message = format('after %s: %s', n, verdict);
		END IF;
	END LOOP;
END
$$;
SELECT groups_limited FROM fairq.stats WHERE queue = 'ages_old';

--
-- What time makes ready
--

SELECT fairq.create_queue('ages_due');
SELECT fairq.enqueue('ages_due', 'a', '"d1"', run_at => clock_timestamp() + '100 ms') > 0 AS ok;
CALL pg_temp.add('ages_due', 'b', 'b1', 'b2');
SELECT pg_temp.pop('ages_due');
SELECT * FROM pg_temp.show('ages_due');
SELECT pg_temp.pop('ages_due');
SELECT * FROM pg_temp.show('ages_due');

-- also if no pop comes by: but for one that was cancelled, in a queue that is paused
-- with those that may not run
SELECT fairq.create_queue('ages_gone');
SELECT pg_temp.pop('ages_gone');
SELECT fairq.maintain('ages_gone');
SELECT fairq.enqueue('ages_gone', 'a', '"g1"', run_at => clock_timestamp() + '100 ms') > 0 AS ok;
SELECT * FROM pg_temp.show('ages_gone');
SELECT pg_sleep(0.3);
SELECT * FROM pg_temp.show('ages_gone');
SELECT fairq.pause('ages_gone');
SELECT * FROM pg_temp.show('ages_gone');
SELECT fairq.resume('ages_gone');
SELECT fairq.cancel(pg_temp.id('g1'));
SELECT * FROM pg_temp.show('ages_gone');
-- nor for one that is to be tried again
SELECT fairq.enqueue('ages_gone', 'a', '"g2"') > 0 AS ok;
SELECT fairq.fail(id, attempt, retry_in => '100 ms') FROM fairq.pop('ages_gone');
SELECT * FROM pg_temp.show('ages_gone');
SELECT pg_sleep(0.3);
SELECT * FROM pg_temp.show('ages_gone');
SELECT pg_temp.pop('ages_gone');
SELECT * FROM pg_temp.show('ages_gone');

--
-- Leases that have ended, and no call has come by
--

-- Is what is shown the time since the last of the leases ended?
CREATE FUNCTION pg_temp.ended(of text, OUT ready boolean, OUT limited boolean) LANGUAGE sql AS $$
	SELECT abs(extract(epoch FROM oldest_ready - age)) < 0.06, abs(extract(epoch FROM oldest_limited - age)) < 0.06
	FROM fairq.stats s, LATERAL (SELECT clock_timestamp() - max(lease_until) AS age FROM fairq.tasks WHERE queue = of) t
	WHERE s.queue = of
$$;
SELECT fairq.create_queue('ages_ended');
SELECT fairq.maintain('ages_ended');
SELECT fairq.enqueue('ages_ended', g, to_jsonb(g)) > 0 AS ok FROM unnest('{e1,e2,e3}'::text[]) g;
SELECT count(*) FROM fairq.pop('ages_ended', 3, lease => '100 ms');
-- while one goes on, a worker is there
SELECT fairq.extend(pg_temp.id('e1'), lease => '400 ms') IS NOT NULL AS ok;
SELECT fairq.complete(pg_temp.id('e2'));
SELECT pg_sleep(0.2);
SELECT * FROM pg_temp.ended('ages_ended');
SELECT pg_sleep(0.4);
SELECT * FROM pg_temp.ended('ages_ended');
SELECT fairq.pause('ages_ended');
SELECT * FROM pg_temp.ended('ages_ended');
SELECT fairq.resume('ages_ended');
-- nothing runs any more
SELECT fairq.complete(pg_temp.id(g)) FROM unnest('{e1,e3}'::text[]) g;
SELECT * FROM pg_temp.show('ages_ended');

-- Nothing is known of a queue: NULL, but of each group what is in the table, until
-- maintain() has read it
SELECT fairq.enqueue('ages_ended', 'a', '"n1"', run_at => clock_timestamp() + '1 ms') > 0 AS ok;
SELECT pg_sleep(0.25);
SELECT fairq.reset_hints();
SELECT * FROM pg_temp.show('ages_ended');
SELECT group_key, s.reason, waiting_since = run_at AS since FROM fairq.group_stats('ages_ended') s
	JOIN fairq.tasks USING (group_key) WHERE queue = 'ages_ended';
SELECT fairq.maintain('ages_ended');
SELECT * FROM pg_temp.show('ages_ended');
-- also if only an enqueue has come by
SELECT fairq.reset_hints();
SELECT fairq.enqueue('ages_ended', 'b', '"n2"') > 0 AS ok;
SELECT fairq.maintain('ages_ended');
SELECT * FROM pg_temp.show('ages_ended');

--
-- Parked groups of a priority that no call comes by, while settings change twice
--

SELECT fairq.create_queue('ages_epochs', concurrency => 1);
SELECT count(*) FROM fairq.enqueue_batch('ages_epochs',
	(SELECT array_agg('g' || i % 1100) FROM generate_series(1, 2200) i),
	array_fill('"old"'::jsonb, ARRAY[2200]), priority => 5);
SELECT count(*) FROM fairq.pop('ages_epochs', 1100);
SELECT pg_temp.pop('ages_epochs');
SELECT * FROM pg_temp.show('ages_epochs');
SELECT pg_sleep(0.25);
CALL pg_temp.add('ages_epochs', 'p1', 'p1');
CALL pg_temp.add('ages_epochs', 'c1', 'c1');
SELECT fairq.pause('ages_epochs', 'p1'), fairq.alter_queue('ages_epochs', concurrency => 1);
SELECT pg_temp.pop('ages_epochs');
CALL pg_temp.add('ages_epochs', 'p2', 'p2');
CALL pg_temp.add('ages_epochs', 'c2', 'c2');
SELECT fairq.pause('ages_epochs', 'p2'), fairq.alter_queue('ages_epochs', concurrency => 1);
SELECT pg_temp.pop('ages_epochs');
SELECT * FROM pg_temp.show('ages_epochs');

SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue LIKE 'ages%';

--
-- A group whose last slot is taken waits for that, also before a pop comes by
--

SELECT fairq.create_queue('ages_taken', concurrency => 1);
CALL pg_temp.add('ages_taken', 'a', 't1', 't2');
SELECT pg_temp.pop('ages_taken');
SELECT * FROM pg_temp.show('ages_taken');
-- beside one that has a slot, and one that is paused with no pop since
CALL pg_temp.add('ages_taken', 'b', 'u1');
CALL pg_temp.add('ages_taken', 'c', 'v1');
SELECT fairq.pause('ages_taken', 'c');
SELECT * FROM pg_temp.show('ages_taken');
SELECT fairq.drop_queue('ages_taken', true);

--
-- Nobody waits any more: the last tasks were cancelled, purged or put off,
-- while their groups were active, limited, paused, throttled or held
--

CREATE PROCEDURE pg_temp.leave(way text) LANGUAGE plpgsql AS $$
BEGIN
	IF way = 'cancel' THEN
		PERFORM fairq.cancel(id) FROM fairq.live_tasks WHERE queue LIKE 'ages\_gone%' AND status = 'queued';
	ELSIF way = 'purge' THEN
		PERFORM fairq.purge(name) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
	ELSIF way = 'put off' THEN
		PERFORM fairq.reschedule(id, 'tomorrow') FROM fairq.live_tasks WHERE queue LIKE 'ages\_gone%' AND status = 'queued';
	END IF;
END $$;
CREATE PROCEDURE pg_temp.gone(way text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fairq.create_queue('ages_gone_active'), fairq.create_queue('ages_gone_limited', concurrency => 1),
		fairq.create_queue('ages_gone_paused'), fairq.create_queue('ages_gone_rate', rate => 1, per => '1 hour'),
		fairq.create_queue('ages_gone_held'), fairq.create_queue('ages_gone_full', max_running => 1);
	COMMIT;
	PERFORM fairq.maintain(name) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
	PERFORM fairq.enqueue(name, 'a') FROM fairq.queue, generate_series(1, 2) WHERE name LIKE 'ages\_gone%';
	COMMIT;
	-- a first one runs where that is what keeps the others back
	PERFORM fairq.pop(name) FROM unnest('{ages_gone_limited,ages_gone_rate,ages_gone_full}'::text[]) name;
	COMMIT;
	PERFORM fairq.complete(id) FROM fairq.live_tasks WHERE queue = 'ages_gone_rate' AND status = 'running';
	SET LOCAL client_min_messages = warning;
	PERFORM fairq.pause('ages_gone_paused', 'a'), fairq.hold('ages_gone_held', 'a', 'tomorrow');
	COMMIT;
	PERFORM fairq.pop(name, 10) FROM fairq.queue WHERE name LIKE 'ages\_gone%' AND name <> 'ages_gone_active';
	COMMIT;
	CALL pg_temp.leave(way);
	COMMIT;
END $$;
CREATE VIEW pg_temp.gone AS
	SELECT queue, ready, running, groups_active AS active, groups_limited AS limited, groups_throttled AS throttled,
		oldest_ready, oldest_limited
	FROM fairq.stats WHERE queue LIKE 'ages\_gone%' ORDER BY queue;
CALL pg_temp.gone('stay');
SELECT queue, ready, running, active, limited, throttled, oldest_ready > '0' AS r, oldest_limited > '0' AS l FROM pg_temp.gone;
SELECT count(fairq.drop_queue(name, true)) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
CALL pg_temp.gone('cancel');
SELECT * FROM pg_temp.gone;
-- who comes then is new
SELECT count(fairq.enqueue(queue, 'b')) FROM pg_temp.gone;
SELECT queue, ready, oldest_ready > '0' AS r, oldest_limited > '0' AS l FROM pg_temp.gone;
SELECT count(fairq.drop_queue(name, true)) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
CALL pg_temp.gone('purge');
SELECT * FROM pg_temp.gone;
SELECT count(fairq.drop_queue(name, true)) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
CALL pg_temp.gone('put off');
SELECT * FROM pg_temp.gone;
-- what has fallen due, and a lease that has ended, wait all the same
SELECT fairq.create_queue('ages_gone_due'), fairq.create_queue('ages_gone_lapsed');
SELECT count(fairq.enqueue(queue, 'a')) FROM unnest('{ages_gone_due,ages_gone_lapsed}'::text[]) queue;
SELECT count(fairq.complete(id)) FROM fairq.pop('ages_gone_due');
SELECT fairq.enqueue('ages_gone_due', 'a', delay => '10 ms') > 0 AS ok;
SELECT count(*) FROM fairq.pop('ages_gone_lapsed', lease => '10 ms');
SELECT pg_sleep(0.05);
SELECT queue, ready, running, oldest_ready > '0' AS r FROM pg_temp.gone WHERE queue ~ 'due|lapsed';
-- also once a pop has come by, which could not have them
SELECT fairq.pause(queue, 'a') FROM unnest('{ages_gone_due,ages_gone_lapsed}'::text[]) queue;
SELECT count(*) FROM unnest('{ages_gone_due,ages_gone_lapsed}'::text[]) queue, fairq.pop(queue);
SELECT queue, ready, running, oldest_ready > '0' AS r, oldest_limited > '0' AS l FROM pg_temp.gone WHERE queue ~ 'due|lapsed';
SELECT count(fairq.drop_queue(name, true)) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
