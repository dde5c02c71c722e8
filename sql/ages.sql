-- fairq.stats shows the age of the oldest ready task that has a free slot, and
-- of the oldest ready task that has none. It also shows how many groups wait.
--
-- Fails if survey.c reads at most one group, counts groups without tasks, or
-- leaves out a cause that delays all groups. Fails if survey.c requires a slot
-- for a lapsed task, reads no due tasks, or takes an active lease for an ended
-- one. Fails if no age is shown when there are more groups without tasks than
-- survey.c reads, or when a thousand dead index entries come first. Fails if
-- survey.c always begins at the first seat, or does not estimate the number of
-- groups that wait. Fails if the view shows zeros for a queue that is not
-- known. Fails if the view shows ages although commits show that no task is
-- ready. Fails if claims record nothing (fairq_entry_claimed() in entry.c).
\a \pset footer off
\set VERBOSITY sqlstate

-- Finds the task that has exactly the age shown. Finished tasks are archived.
-- If a slow machine gives several tasks the same age, show() tries again.
CREATE FUNCTION pg_temp.task_of(of text, age interval, since timestamptz, upto timestamptz)
RETURNS text[] LANGUAGE sql AS $$
	SELECT CASE WHEN age IS NULL THEN '{NULL}' ELSE
		coalesce((SELECT array_agg(payload #>> '{}') FROM fairq.tasks t
			WHERE queue = of AND greatest(enqueued_at, run_at) BETWEEN since - age AND upto - age), '{none}') END
$$;
CREATE FUNCTION pg_temp.show(of text, OUT active int, OUT limited int, OUT paused int,
	OUT oldest_ready text, OUT oldest_limited text) LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz;
	stats record;
	ready text[];
	lacking text[];
BEGIN
	FOR i IN 1..100 LOOP
		began := clock_timestamp();
		SELECT * INTO stats FROM fairq.stats s WHERE queue = of;
		ready := pg_temp.task_of(of, stats.oldest_ready, began, clock_timestamp());
		lacking := pg_temp.task_of(of, stats.oldest_limited, began, clock_timestamp());
		EXIT WHEN array_length(ready || lacking, 1) = 2;
	END LOOP;
	active := stats.groups_active;
	limited := stats.groups_limited;
	paused := stats.groups_paused;
	oldest_ready := array_to_string(ready, ' ');
	oldest_limited := array_to_string(lacking, ' ');
END
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
-- With one group, the age is that of its first task
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
-- a task is released or retried
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
-- if an empty queue gets a task, the age shown is that of this task
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
-- Several groups
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
SELECT pg_temp.pop('ages_many', 2);
SELECT * FROM pg_temp.show('ages_many');
SELECT pg_temp.pop('ages_many', 2);
SELECT * FROM pg_temp.show('ages_many');
SELECT pg_temp.pop('ages_many', 2);
SELECT * FROM pg_temp.show('ages_many');
SELECT pg_temp.pop('ages_many', 2);
SELECT * FROM pg_temp.show('ages_many');
-- the ages of tasks that were served before the queue was empty do not count
CALL pg_temp.add('ages_many', 'g90', 'o5');
SELECT * FROM pg_temp.show('ages_many');

--
-- While the queue is paused or full, no task has a free slot
--

SELECT fairq.create_queue('ages_full', retain => '1 hour');
CALL pg_temp.add('ages_full', 'a', 'f1', 'f2', 'f3');
SELECT fairq.pause('ages_full');
SELECT * FROM pg_temp.show('ages_full');
SELECT fairq.resume('ages_full');
SELECT fairq.alter_queue('ages_full', max_running => 1);
SELECT * FROM pg_temp.show('ages_full');
-- the same, when the queue may be full
SELECT fairq.pause('ages_full');
SELECT * FROM pg_temp.show('ages_full');
SELECT fairq.resume('ages_full');
SELECT pg_temp.pop('ages_full', 2);
SELECT * FROM pg_temp.show('ages_full');
SELECT fairq.complete(pg_temp.id('f1'));
SELECT * FROM pg_temp.show('ages_full');

--
-- Groups without a slot, and paused groups
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
SELECT fairq.complete(pg_temp.id('y1'));
SELECT pg_temp.pop('ages_limited', 2);
SELECT * FROM pg_temp.show('ages_limited');
SELECT fairq.pause('ages_limited', 'b');
SELECT * FROM pg_temp.show('ages_limited');
SELECT pg_temp.pop('ages_limited', 2);
SELECT * FROM pg_temp.show('ages_limited');
-- the next call takes all of these groups back
SELECT fairq.alter_queue('ages_limited', concurrency => 2);
SELECT * FROM pg_temp.show('ages_limited');
SELECT pg_temp.pop('ages_limited', 2);
SELECT * FROM pg_temp.show('ages_limited');
SELECT fairq.resume('ages_limited', 'b');
SELECT pg_temp.pop('ages_limited', 9);
SELECT * FROM pg_temp.show('ages_limited');
-- if a group has a task in each of two priorities, the older task counts
SELECT fairq.enqueue('ages_limited', 'a', '"x5"', priority => 5) > 0 AS ok;
SELECT pg_sleep(0.25);
CALL pg_temp.add('ages_limited', 'a', 'x4');
SELECT pg_temp.pop('ages_limited', 9);
SELECT * FROM pg_temp.show('ages_limited');
SELECT count(fairq.complete(pg_temp.id(x))) FROM unnest('{x2,x3,y2,y3}'::text[]) x;
SELECT pg_temp.pop('ages_limited', 9);
SELECT groups_active, groups_limited, oldest_limited FROM fairq.stats WHERE queue = 'ages_limited';

--
-- Ages of any size, even after SQL has changed rows and hints are lost
--

SELECT fairq.create_queue('ages_old', concurrency => 1);
SELECT count(*) FROM generate_series(1, 2) j, generate_series(1, 40) i,
	fairq.enqueue('ages_old', 'g' || i, to_jsonb(j));
SELECT count(*) FROM fairq.pop('ages_old', 100);
UPDATE fairq.task t SET enqueued_at = now() - interval '0.5 s' * 1.6 ^ (40 - group_no)
FROM fairq.queue q WHERE q.queue_id = t.queue_id AND q.name = 'ages_old' AND lease_until IS NULL;
SELECT count(*) FROM fairq.pop('ages_old', 100);
-- Does the view show the age of the oldest queued task?
CREATE FUNCTION pg_temp.agrees(of text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	shown interval := (SELECT coalesce(oldest_limited, oldest_ready) FROM fairq.stats WHERE queue = of);
	ended timestamptz := clock_timestamp();
	oldest timestamptz := (SELECT min(enqueued_at) FROM fairq.tasks t WHERE t.queue = of AND status = 'queued');
BEGIN
	RETURN CASE WHEN oldest BETWEEN began - shown AND ended - shown OR coalesce(oldest::text, shown::text) IS NULL
		THEN 'agrees' ELSE format('%s instead of %s', shown, ended - oldest) END;
END
$$;
SELECT groups_limited, oldest_ready, groups_sampled FROM fairq.stats WHERE queue = 'ages_old';
SELECT pg_temp.agrees('ages_old');
-- the view stays right while the oldest tasks are served one after the other
DO $$
DECLARE
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
		verdict := pg_temp.agrees('ages_old');
		IF verdict <> 'agrees' THEN
			RAISE EXCEPTION USING errcode = 'ZZ001', message = format('group %s: %s', task.group_no, verdict);
		END IF;
	END LOOP;
END
$$;
SELECT groups_limited, oldest_limited FROM fairq.stats WHERE queue = 'ages_old';

--
-- Tasks become ready as time passes
--

SELECT fairq.create_queue('ages_due');
SELECT fairq.enqueue('ages_due', 'a', '"d1"', run_at => clock_timestamp() + '100 ms') > 0 AS ok;
CALL pg_temp.add('ages_due', 'b', 'b1', 'b2');
SELECT pg_temp.pop('ages_due');
SELECT * FROM pg_temp.show('ages_due');
SELECT pg_temp.pop('ages_due');
SELECT * FROM pg_temp.show('ages_due');

-- a task also becomes ready without a pop; a cancelled task does not count,
-- nor do tasks of a paused queue
SELECT fairq.create_queue('ages_gone');
SELECT pg_temp.pop('ages_gone');
SELECT fairq.maintain('ages_gone');
SELECT fairq.enqueue('ages_gone', 'a', '"g0"', delay => '1 hour') > 0 AS ok;
SELECT * FROM pg_temp.show('ages_gone');
SELECT fairq.enqueue('ages_gone', 'a', '"g1"', delay => '1 ms') > 0 AS ok;
SELECT pg_sleep(0.1);
SELECT * FROM pg_temp.show('ages_gone');
SELECT fairq.pause('ages_gone');
SELECT * FROM pg_temp.show('ages_gone');
SELECT fairq.resume('ages_gone');
SELECT fairq.cancel(pg_temp.id('g1'));
SELECT * FROM pg_temp.show('ages_gone');
-- a task that waits for a retry does not count either
SELECT fairq.enqueue('ages_gone', 'a', '"g2"') > 0 AS ok;
SELECT fairq.fail(id, attempt, retry_in => '1 ms') FROM fairq.pop('ages_gone');
SELECT pg_sleep(0.1);
SELECT * FROM pg_temp.show('ages_gone');
SELECT pg_temp.pop('ages_gone');
SELECT * FROM pg_temp.show('ages_gone');

--
-- Leases have ended, but no call has found them
--

-- Does the view show the time since the first of those leases ended?
CREATE FUNCTION pg_temp.ended(of text, OUT ready boolean, OUT limited boolean) LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	stats record;
	first timestamptz;
BEGIN
	SELECT * INTO stats FROM fairq.stats s WHERE queue = of;
	first := (SELECT min(lease_until) FROM fairq.tasks WHERE queue = of);
	ready := first BETWEEN began - stats.oldest_ready AND clock_timestamp() - stats.oldest_ready;
	limited := first BETWEEN began - stats.oldest_limited AND clock_timestamp() - stats.oldest_limited;
END
$$;
SELECT fairq.create_queue('ages_ended');
SELECT fairq.maintain('ages_ended');
SELECT fairq.enqueue('ages_ended', g, to_jsonb(g)) > 0 AS ok FROM unnest('{e1,e2,e3}'::text[]) g;
SELECT count(*) FROM fairq.pop('ages_ended', 3, lease => '100 ms');
-- a task whose lease was extended, or that was completed, does not count
SELECT fairq.extend(pg_temp.id(g), lease => '1 hour') IS NOT NULL AS ok FROM unnest('{e1,e3}'::text[]) g;
SELECT fairq.complete(pg_temp.id('e2'));
SELECT pg_sleep(0.2);
SELECT * FROM pg_temp.ended('ages_ended');
-- the view shows the time since e3's lease ended, although e1's has not ended
SELECT fairq.extend(pg_temp.id('e3'), lease => '1 ms') IS NOT NULL AS ok;
SELECT pg_sleep(0.1);
SELECT * FROM pg_temp.ended('ages_ended');
SELECT fairq.pause('ages_ended');
SELECT * FROM pg_temp.ended('ages_ended');
SELECT fairq.resume('ages_ended');
-- no task runs any more
SELECT fairq.complete(pg_temp.id(g)) FROM unnest('{e1,e3}'::text[]) g;
SELECT * FROM pg_temp.show('ages_ended');

-- a lapsed task already has its slot
SELECT fairq.create_queue('ages_slot', concurrency => 1);
CALL pg_temp.add('ages_slot', 'a', 's1', 's2');
SELECT count(*) FROM fairq.pop('ages_slot', 2, lease => '1 ms');
SELECT pg_sleep(0.1);
SELECT ready FROM pg_temp.ended('ages_slot');
SELECT limited, oldest_limited FROM pg_temp.show('ages_slot');

-- more leases are extended than one call reads
SELECT fairq.create_queue('ages_extended');
SELECT count(*) FROM fairq.enqueue_batch('ages_extended', (SELECT array_agg('g' || i) FROM generate_series(1, 150) i),
	array_fill('{}'::jsonb, ARRAY[150]));
SELECT count(fairq.extend(id, attempt, '1 hour')) FROM fairq.pop('ages_extended', 150, lease => '1 ms');
SELECT pg_sleep(0.1);
SELECT groups_sampled, oldest_ready FROM fairq.stats WHERE queue = 'ages_extended';

-- Nothing is known of the queue, so its ages are NULL. Group ages come from
-- the table, until maintain() has read it.
SELECT fairq.enqueue('ages_ended', 'a', '"n1"', run_at => clock_timestamp() + '1 ms') > 0 AS ok;
SELECT pg_sleep(0.25);
SELECT fairq.reset_hints();
SELECT * FROM pg_temp.show('ages_ended');
SELECT group_key, s.reason, waiting_since = run_at AS since FROM fairq.group_stats('ages_ended') s
	JOIN fairq.tasks USING (group_key) WHERE queue = 'ages_ended';
SELECT fairq.maintain('ages_ended');
SELECT * FROM pg_temp.show('ages_ended');
-- maintain() makes the ages known even if only an enqueue has used the queue
SELECT fairq.reset_hints();
SELECT fairq.enqueue('ages_ended', 'b', '"n2"') > 0 AS ok;
SELECT fairq.maintain('ages_ended');
SELECT * FROM pg_temp.show('ages_ended');

--
-- Parked groups of a priority that no call serves, while settings change twice
--

SELECT fairq.create_queue('ages_parked', concurrency => 1);
SELECT count(*) FROM fairq.enqueue_batch('ages_parked',
	(SELECT array_agg('g' || i % 200) FROM generate_series(1, 400) i),
	array_fill('"old"'::jsonb, ARRAY[400]), priority => 5);
SELECT count(*) FROM fairq.pop('ages_parked', 200);
SELECT pg_temp.pop('ages_parked');
SELECT groups_limited, pg_temp.agrees('ages_parked') FROM fairq.stats WHERE queue = 'ages_parked';
CALL pg_temp.add('ages_parked', 'p1', 'p1');
CALL pg_temp.add('ages_parked', 'c1', 'c1');
SELECT fairq.pause('ages_parked', 'p1'), fairq.alter_queue('ages_parked', concurrency => 1);
SELECT pg_temp.pop('ages_parked');
CALL pg_temp.add('ages_parked', 'p2', 'p2');
CALL pg_temp.add('ages_parked', 'c2', 'c2');
SELECT fairq.pause('ages_parked', 'p2'), fairq.alter_queue('ages_parked', concurrency => 1);
SELECT pg_temp.pop('ages_parked');
SELECT groups_active, groups_limited, groups_paused, oldest_ready, pg_temp.agrees('ages_parked')
FROM fairq.stats WHERE queue = 'ages_parked';

SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue LIKE 'ages%';

--
-- A group whose last slot is taken counts as limited before a pop visits it
--

SELECT fairq.create_queue('ages_taken', concurrency => 1);
CALL pg_temp.add('ages_taken', 'a', 't1', 't2');
SELECT pg_temp.pop('ages_taken');
SELECT * FROM pg_temp.show('ages_taken');
-- with another group that has a slot, and one that was paused after the last
-- pop
CALL pg_temp.add('ages_taken', 'b', 'u1');
CALL pg_temp.add('ages_taken', 'c', 'v1');
SELECT fairq.pause('ages_taken', 'c');
SELECT * FROM pg_temp.show('ages_taken');
SELECT fairq.drop_queue('ages_taken', true);

--
-- No task waits any more: the last tasks were cancelled, purged or postponed,
-- while their groups were active, limited, paused, throttled or on hold
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
	-- in queues where a running task or a used start delays the other tasks, one task runs
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
	SELECT queue, queued, running, groups_active AS active, groups_limited AS limited, groups_throttled AS throttled,
		oldest_ready, oldest_limited
	FROM fairq.stats WHERE queue LIKE 'ages\_gone%' ORDER BY queue;
CALL pg_temp.gone('stay');
SELECT queue, queued, running, active, limited, throttled, oldest_ready > '0' AS r, oldest_limited > '0' AS l FROM pg_temp.gone;
SELECT count(fairq.drop_queue(name, true)) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
CALL pg_temp.gone('cancel');
SELECT * FROM pg_temp.gone;
-- the cancelled tasks do not count either once another group becomes active
SELECT clock_timestamp() AS since \gset
SELECT count(fairq.enqueue(queue, 'b')) FROM pg_temp.gone;
SELECT queue, queued, running, active, limited, throttled, oldest_ready < clock_timestamp() - :'since' AS r,
	oldest_limited < clock_timestamp() - :'since' AS l FROM pg_temp.gone;
SELECT count(fairq.drop_queue(name, true)) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
CALL pg_temp.gone('purge');
SELECT * FROM pg_temp.gone;
SELECT count(fairq.drop_queue(name, true)) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
CALL pg_temp.gone('put off');
SELECT * FROM pg_temp.gone;
-- due tasks and expired leases still count
SELECT fairq.create_queue('ages_gone_due'), fairq.create_queue('ages_gone_lapsed');
SELECT count(fairq.enqueue(queue, 'a')) FROM unnest('{ages_gone_due,ages_gone_lapsed}'::text[]) queue;
SELECT count(fairq.complete(id)) FROM fairq.pop('ages_gone_due');
SELECT fairq.enqueue('ages_gone_due', 'a', delay => '10 ms') > 0 AS ok;
SELECT count(*) FROM fairq.pop('ages_gone_lapsed', lease => '10 ms');
SELECT pg_sleep(0.05);
SELECT queue, queued, running, oldest_ready > '0' AS r FROM pg_temp.gone WHERE queue ~ 'due|lapsed';
-- they also count after a pop that could not serve them
SELECT fairq.pause(queue, 'a') FROM unnest('{ages_gone_due,ages_gone_lapsed}'::text[]) queue;
SELECT count(*) FROM unnest('{ages_gone_due,ages_gone_lapsed}'::text[]) queue, fairq.pop(queue);
SELECT queue, queued, running, oldest_ready > '0' AS r, oldest_limited > '0' AS l FROM pg_temp.gone WHERE queue ~ 'due|lapsed';
SELECT count(fairq.drop_queue(name, true)) FROM fairq.queue WHERE name LIKE 'ages\_gone%';
-- a due task that is expired does not count
SELECT fairq.create_queue('ages_gone_expired');
SELECT count(*) FROM fairq.pop('ages_gone_expired');
SELECT fairq.enqueue('ages_gone_expired', 'a', run_at => clock_timestamp() + '1 ms', expires_at => clock_timestamp() + '2 ms') > 0 AS ok;
SELECT pg_sleep(0.01);
SELECT queue, queued, oldest_ready, oldest_limited FROM pg_temp.gone;
SELECT fairq.drop_queue('ages_gone_expired', true);

--
-- There are more groups without tasks than one call reads
--

SELECT fairq.create_queue('ages_hollow');
SELECT fairq.maintain('ages_hollow');
SELECT count(*) FROM fairq.enqueue_batch('ages_hollow', (SELECT array_agg('g' || i) FROM generate_series(1, 150) i),
	array_fill('{}'::jsonb, ARRAY[150]));
SELECT pg_sleep(0.1);
SELECT fairq.enqueue('ages_hollow', 'last', '"last"') > 0 AS ok;
SELECT count(fairq.purge('ages_hollow', 'g' || i)) FROM generate_series(1, 50) i;
SELECT groups_sampled, groups_active, pg_temp.agrees('ages_hollow') FROM fairq.stats WHERE queue = 'ages_hollow';
SELECT count(fairq.purge('ages_hollow', 'g' || i)) FROM generate_series(51, 150) i;
-- no task is known to be the oldest one, but the ages show that tasks wait
SELECT groups_sampled, groups_active >= 1 AS active, oldest_ready IS NOT NULL AS any FROM fairq.stats WHERE queue = 'ages_hollow';
-- no age is shown if all tasks are gone
SELECT fairq.purge('ages_hollow');
SELECT groups_sampled, groups_active, oldest_ready FROM fairq.stats WHERE queue = 'ages_hollow';

-- more than a thousand tasks of a group are gone, before the group's next task
SELECT fairq.create_queue('ages_deep');
SELECT count(*) FROM fairq.enqueue_batch('ages_deep', array_fill('deep'::text, ARRAY[1500]), array_fill('{}'::jsonb, ARRAY[1500]));
SELECT fairq.purge('ages_deep', 'deep');
SELECT fairq.enqueue('ages_deep', 'deep', '"deep"') > 0 AS ok;
SELECT groups_active, oldest_ready IS NOT NULL AS any FROM fairq.stats WHERE queue = 'ages_deep';

-- a call that cannot read all groups reads those that may have waited longest
SELECT fairq.create_queue('ages_busy');
CREATE PROCEDURE pg_temp.round() LANGUAGE sql AS $$
	SELECT count(*) FROM fairq.enqueue_batch('ages_busy', (SELECT array_agg('g' || i) FROM generate_series(1, 150) i),
		array_fill('{}'::jsonb, ARRAY[150]))
$$;
CALL pg_temp.round();
SELECT pg_sleep(0.1);
SELECT count(fairq.enqueue('ages_busy', 'slow')) FROM generate_series(1, 3);
SELECT pg_sleep(0.1);
CALL pg_temp.round();
CALL pg_temp.round();
SELECT count(fairq.complete(id)) FROM fairq.pop('ages_busy', 302);
SELECT groups_sampled, pg_temp.agrees('ages_busy') FROM fairq.stats WHERE queue = 'ages_busy';

--
-- If there are more groups than one call reads, the call reads those whose
-- turns are next
--

SELECT fairq.create_queue('ages_sampled');
SELECT count(*) FROM fairq.enqueue_batch('ages_sampled', (SELECT array_agg('g' || i) FROM generate_series(1, 10050) i),
	array_fill('{}'::jsonb, ARRAY[10050]));
SELECT count(fairq.complete(id)) FROM fairq.pop('ages_sampled', 10050);
SELECT group_key AS last FROM fairq.groups WHERE queue = 'ages_sampled' ORDER BY group_no DESC LIMIT 1 \gset
SELECT fairq.enqueue('ages_sampled', :'last', '"old"') > 0 AS ok;
SELECT pg_sleep(0.5);
SELECT clock_timestamp() AS between_them \gset
SELECT pg_sleep(0.5);
SELECT count(*) FROM fairq.enqueue_batch('ages_sampled',
	(SELECT array_agg('g' || i) FROM generate_series(1, 10050) i, generate_series(1, 2) WHERE 'g' || i <> :'last'),
	array_fill('{}'::jsonb, ARRAY[20098]));
CREATE FUNCTION pg_temp.sampled(between_them timestamptz, OUT active int, OUT sampled boolean, OUT old boolean)
LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz;
	oldest interval;
BEGIN
	FOR i IN 1..100 LOOP
		began := clock_timestamp();
		SELECT groups_active, groups_sampled, oldest_ready INTO active, sampled, oldest
		FROM fairq.stats WHERE queue = 'ages_sampled';
		EXIT WHEN clock_timestamp() < began + interval '0.5 s';
	END LOOP;
	old := began - oldest < between_them;
END
$$;
SELECT * FROM pg_temp.sampled(:'between_them');
SELECT count(fairq.complete(id)) FROM fairq.pop('ages_sampled', 40);
SELECT * FROM pg_temp.sampled(:'between_them');
SELECT count(fairq.complete(id)) FROM fairq.pop('ages_sampled', 20);
SELECT * FROM pg_temp.sampled(:'between_them');
SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue LIKE 'ages%';
