-- The groups that wait longest, or have the most running tasks, and the
-- reasons. The test causes each reason.
--
-- Fails if groups are ranked by their numbers (compare_candidates() in
-- group_stats.c), or if lapsed tasks are not counted (look_at_running() in
-- survey.c). Fails if only the first stretch counts as ready (estimate()
-- there). Fails if the present weight is used for all turns (count_turn()
-- there). Fails if a group that was empty keeps the time of an earlier task
-- (fairq_lane_add_ready()). Fails if a blocked task counts as ready, or hides a
-- ready task (is_blocked() in survey.c).
\a \t
\set VERBOSITY sqlstate

-- The columns, with each time replaced by its event: the enqueue of a task, the
-- moment it became due, or the end of its lease.
CREATE FUNCTION pg_temp.show(of text, top int DEFAULT 20) RETURNS TABLE (group_key text,
	reason text, since text, ready bigint, running int, "limit" int, weight int)
LANGUAGE sql AS $$
	SELECT s.group_key, s.reason,
		(SELECT string_agg(DISTINCT CASE s.waiting_since WHEN t.lease_until THEN 'end of '
				WHEN t.run_at THEN 'time of ' ELSE '' END || (t.payload #>> '{}'), ' ')
			FROM fairq.tasks t
			WHERE queue = of AND t.group_key = s.group_key AND
				s.waiting_since IN (t.enqueued_at, t.run_at, t.lease_until)),
		s.ready, s.running, s.limit_in_effect, s.weight
	FROM fairq.group_stats(of, top) WITH ORDINALITY s(group_key, reason, waiting_since,
		ready, running, limit_in_effect, weight, at) ORDER BY at
$$;
CREATE FUNCTION pg_temp.add(queue text, group_key text, payload text) RETURNS boolean
LANGUAGE sql AS $$ SELECT fairq.enqueue(queue, group_key, to_jsonb(payload)) > 0 $$;
CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop(queue, n)
$$;
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT id FROM fairq.live_tasks t WHERE t.payload #>> '{}' = id.payload
$$;

--
-- Too few workers: groups that wait longest come first, then groups that only
-- run
--

SELECT fairq.create_queue('group_stats');
SELECT * FROM pg_temp.show('group_stats');
SELECT pg_temp.add('group_stats', 'c', 'c1');
SELECT pg_temp.add('group_stats', 'a', 'a1');
SELECT pg_temp.add('group_stats', 'b', 'b1');
SELECT pg_temp.add('group_stats', 'a', 'a2');
SELECT fairq.set_group('group_stats', 'b', weight => 3);
SELECT * FROM pg_temp.show('group_stats');
SELECT * FROM pg_temp.show('group_stats', 1);
-- a task that an open transaction has popped does not wait, not even in the
-- view of that transaction
BEGIN;
SELECT pg_temp.pop('group_stats', 2);
SELECT * FROM pg_temp.show('group_stats');
ROLLBACK;
SELECT * FROM pg_temp.show('group_stats');
SELECT pg_temp.pop('group_stats', 3);
SELECT * FROM pg_temp.show('group_stats');
SELECT pg_temp.pop('group_stats', 3);
SELECT * FROM pg_temp.show('group_stats');
SELECT fairq.release(pg_temp.id('a1'));
SELECT fairq.complete(pg_temp.id('c1'));
SELECT * FROM pg_temp.show('group_stats');

-- the time for which a group was empty does not count
SELECT pg_temp.pop('group_stats');
SELECT pg_temp.add('group_stats', 'a', 'a3');
SELECT pg_temp.add('group_stats', 'b', 'b2');
SELECT * FROM pg_temp.show('group_stats', 1);
SELECT pg_temp.pop('group_stats', 2);
SELECT fairq.complete(pg_temp.id(x)) FROM unnest('{b1,b2,a2,a3}'::text[]) x;
SELECT fairq.release(pg_temp.id('a1'));

--
-- Each reason
--

SELECT fairq.create_queue('reasons', concurrency => 1);
SELECT pg_temp.add('reasons', 'workers', 'w1');
SELECT pg_temp.add('reasons', 'limit', 'l1');
SELECT pg_temp.add('reasons', 'limit', 'l2');
SELECT pg_temp.pop('reasons', 2);
SELECT fairq.complete(pg_temp.id('w1'));
SELECT pg_temp.add('reasons', 'workers', 'w2');
SELECT pg_temp.add('reasons', 'paused', 'p1');
SELECT fairq.pause('reasons', 'paused');
SELECT fairq.enqueue('reasons', 'scheduled', '"s1"', run_at => now() + '1 hour') > 0 AS ok;
SELECT * FROM pg_temp.show('reasons');
-- the result is the same if the groups are parked
SELECT pg_temp.pop('reasons', 2);
SELECT fairq.release(pg_temp.id('w2'));
SELECT * FROM pg_temp.show('reasons');
SELECT fairq.alter_queue('reasons', max_running => 1);
SELECT * FROM pg_temp.show('reasons');
SELECT fairq.pause('reasons');
SELECT * FROM pg_temp.show('reasons');
SELECT fairq.resume('reasons');
SELECT fairq.alter_queue('reasons', max_running => 0);
SELECT fairq.resume('reasons', 'paused');
SELECT fairq.complete(pg_temp.id('l1'));
SELECT * FROM pg_temp.show('reasons');

--
-- Tasks that became ready as time passed
--

SELECT fairq.create_queue('group_stats_due', lease => '1 hour');
SELECT pg_temp.add('group_stats_due', 'retried', 'r1');
SELECT pg_temp.add('group_stats_due', 'expired', 'e1');
SELECT pg_temp.pop('group_stats_due', 2);
SELECT fairq.extend(pg_temp.id('e1'), lease => '10 ms') IS NOT NULL AS ok;
SELECT fairq.fail(pg_temp.id('r1'), retry_in => '20 ms');
SELECT fairq.enqueue('group_stats_due', 'due', '"d1"', run_at => now() + '30 ms') > 0 AS ok;
SELECT pg_sleep(0.1);
-- the group's row shows tasks that no pop has found yet
SELECT fairq.enqueue('group_stats_due', 'retried', '"x"', priority => 5) > 0 AS ok;
SELECT * FROM pg_temp.show('group_stats_due', 10);
-- a pop finds all of these tasks, but is rolled back
BEGIN;
SELECT pg_temp.pop('group_stats_due', 10);
ROLLBACK;
SELECT * FROM pg_temp.show('group_stats_due', 10);

--
-- Groups with only expired tasks, which no pop has found, do not displace
-- other groups from the result
--

SELECT fairq.create_queue('group_stats_expired');
SELECT count(fairq.enqueue('group_stats_expired', 'gone ' || i, expires_at => '-infinity'))
	FROM generate_series(1, 100) i;
SELECT count(fairq.enqueue('group_stats_expired', 'here ' || i)) FROM generate_series(1, 3) i;
SELECT fairq.enqueue('group_stats_expired', 'later', run_at => now() + '1 hour') > 0 AS ok;
SELECT group_key, reason, queued FROM fairq.group_stats('group_stats_expired', 2);
SELECT group_key, reason, queued FROM fairq.group_stats('group_stats_expired', 5);

--
-- If there are many tasks, their number is an estimate. Tasks that were taken
-- out of turn make the estimate wrong. Tasks of all priorities count.
--

SELECT fairq.create_queue('group_stats_many');
SELECT fairq.set_group('group_stats_many', 'two', weight => 2);
SELECT count(*) FROM unnest('{one,two}'::text[]) g,
	fairq.enqueue_batch('group_stats_many', array_fill(g, ARRAY[1000]),
		array_fill('{}'::jsonb, ARRAY[1000]));
SELECT count(*) FROM fairq.enqueue_batch('group_stats_many', array_fill('one'::text, ARRAY[20]),
	array_fill('{}'::jsonb, ARRAY[20]), priority => 9);
SELECT group_key, queued, running FROM fairq.group_stats('group_stats_many');
SELECT count(*) FROM fairq.pop('group_stats_many', 300);
SELECT group_key, queued, running FROM fairq.group_stats('group_stats_many');
-- tasks that were enqueued at another weight count correctly
SELECT fairq.set_group('group_stats_many', 'one', weight => 10);
SELECT group_key, queued, running FROM fairq.group_stats('group_stats_many') WHERE group_key = 'one';
SELECT fairq.set_group('group_stats_many', 'one', weight => 1);
-- the number is exact, because no other index entries are read
SELECT count(*) FROM fairq.pop('group_stats_many', 3000);
SELECT group_key, reason, queued, running FROM fairq.group_stats('group_stats_many');

--
-- Invalid arguments, and unknown names
--

SELECT * FROM fairq.group_stats('group_stats', 0);
SELECT * FROM fairq.group_stats('group_stats', 1001);
SELECT count(*) FROM fairq.group_stats('group_stats', NULL);
SELECT * FROM fairq.group_stats(NULL);
SELECT * FROM fairq.group_stats('nobody');
-- all_group_stats() returns the same as one call for each queue; fails if the
-- number of groups is not passed on
SELECT queue, g.group_key, reason, queued, running FROM fairq.all_group_stats(1) g
WHERE queue LIKE 'group_stats%' ORDER BY queue COLLATE "C";
SELECT count(*) AS missing FROM fairq.stats s, fairq.group_stats(s.queue, 5) g
WHERE (s.queue, g.group_key) NOT IN (SELECT v.queue, v.group_key FROM fairq.all_group_stats() v);
-- queues that the role may not monitor are left out; fails if any privilege is
-- enough
CREATE ROLE regress_group_stats;
SELECT fairq.grant_queue('group_stats', 'regress_group_stats', 'enqueue');
SELECT fairq.grant_queue('group_stats_due', 'regress_group_stats', 'monitor');
SET ROLE regress_group_stats;
SELECT DISTINCT queue FROM fairq.all_group_stats();
RESET ROLE;
SELECT fairq.revoke_queue('group_stats', 'regress_group_stats', 'enqueue'),
	fairq.revoke_queue('group_stats_due', 'regress_group_stats', 'monitor');
DROP ROLE regress_group_stats;
SELECT * FROM fairq.all_group_stats(0);
SELECT * FROM fairq.all_group_stats(1001);
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.group_stats('group_stats');
SELECT count(*) FROM fairq.all_group_stats() WHERE queue LIKE 'group_stats%';
BEGIN;
SELECT count(*) FROM fairq.pop('group_stats', 10);
ROLLBACK;
SELECT * FROM pg_temp.show('group_stats');

SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue LIKE 'group_stats%' OR queue = 'reasons';

--
-- Blocked tasks that are due for a check do not count, and hide no task behind
-- them, unless their wait is over
--

SELECT fairq.create_queue('group_stats_first'), fairq.create_queue('group_stats_blocked', concurrency => 1);
SELECT fairq.enqueue('group_stats_first', 'f') AS first \gset
SELECT pg_temp.add('group_stats_blocked', 'limit', 'l1');
SELECT pg_temp.pop('group_stats_blocked');
SELECT fairq.enqueue('group_stats_blocked', g, to_jsonb(g || '2'), after => ARRAY[:first]) > 0 AS ok FROM unnest('{after,limit}'::text[]) g;
SELECT fairq.create_batch('group_stats_blocked', 'batch', '"b2"') AS batch \gset
SELECT fairq.enqueue('group_stats_first', 'f', batch => :batch) > 0 AS ok, fairq.close_batch(:batch);
SELECT count(fairq.reschedule(id)) FROM fairq.live_tasks WHERE queue = 'group_stats_blocked' AND status = 'blocked';
CREATE VIEW pg_temp.ages AS
	SELECT oldest_ready IS NOT NULL AS ready, oldest_limited IS NOT NULL AS limited
	FROM fairq.stats WHERE queue = 'group_stats_blocked';
SELECT * FROM pg_temp.ages;
SELECT * FROM pg_temp.show('group_stats_blocked');
SELECT fairq.enqueue('group_stats_blocked', 'limit', '"l3"', delay => '1 ms') > 0 AS ok;
SELECT pg_sleep(0.1);
SELECT * FROM pg_temp.ages;
SELECT * FROM pg_temp.show('group_stats_blocked');
SELECT fairq.complete(id) FROM fairq.pop('group_stats_first');
SELECT * FROM pg_temp.ages;
-- both waits have ended at the same moment, or a millisecond apart
SELECT * FROM pg_temp.show('group_stats_blocked') ORDER BY group_key;
SELECT fairq.complete(id) FROM fairq.pop('group_stats_first');
SELECT * FROM pg_temp.show('group_stats_blocked') ORDER BY group_key;
SELECT fairq.drop_queue('group_stats_first', true), fairq.drop_queue('group_stats_blocked', true);
SELECT fairq.maintain();
