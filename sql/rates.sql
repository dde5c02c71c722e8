-- Rates: how often tasks of groups and queues start. No interval of an hour
-- passes during this test. Where a shorter interval has to pass, the test
-- sleeps longer than the interval.
--
-- Fails if the take-over of an expired lease needs no start (take_over()
-- in claim.c). Fails if a group is deleted while its starts count
-- (group_is_used() in maintain.c). Fails if a change of a group's rate or hold
-- does not take the group back (publish_rest() in transaction.c). Fails if
-- throttled groups have no age (fairq_seats_return_at() in seats.c).
\a \t

CREATE FUNCTION pg_temp.fill(queue text, groups int, tasks int) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM fairq.enqueue_batch(queue,
		(SELECT array_agg('g' || g ORDER BY t, g) FROM generate_series(1, groups) g, generate_series(1, tasks) t),
		array_fill('{}'::jsonb, ARRAY[groups * tasks]))
$$;
CREATE FUNCTION pg_temp.popped(queue text, most int) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(group_key || CASE WHEN attempt > 1 THEN '/' || attempt ELSE '' END, ' ')
	FROM fairq.pop(queue, most, lease => '1 day')
$$;
-- the time of the next start: NULL, now, or minutes from now
CREATE FUNCTION pg_temp.next(queue text) RETURNS TABLE (group_key text, rate int, minutes int) LANGUAGE sql AS $$
	SELECT group_key, rate, ceil(extract(epoch FROM next_at - clock_timestamp()) / 60)::int
	FROM fairq.groups g WHERE g.queue = $1 ORDER BY 1
$$;

-- the whole burst is served, in rounds, and no more
SELECT fairq.create_queue('rates', rate => 2, per => '1 hour', burst => 3);
SELECT pg_temp.fill('rates', 3, 10);
SELECT string_agg(group_key, ' ') FROM fairq.peek('rates', 100);
SELECT * FROM pg_temp.next('rates');
SELECT pg_temp.popped('rates', 4);
SELECT pg_temp.popped('rates', 100);
SELECT pg_temp.popped('rates', 100);
SELECT * FROM pg_temp.next('rates');
SELECT count(*) FROM fairq.peek('rates', 100);
SELECT groups_active, groups_limited, groups_throttled FROM fairq.stats WHERE queue = 'rates';
SELECT active, parked, throttled FROM fairq.lanes WHERE queue = 'rates';
SELECT group_key, reason FROM fairq.group_stats('rates') ORDER BY 1;
SELECT DISTINCT status, reason FROM fairq.tasks WHERE queue = 'rates' ORDER BY 1;
SELECT queue, rate, per, burst, max_rate FROM fairq.queues WHERE queue = 'rates';
SELECT * FROM fairq.check_queue('rates');

-- ends of tasks, new tasks and reset_hints() give back no start
SELECT count(*) FROM fairq.complete_batch((SELECT array_agg(id) FROM fairq.tasks WHERE queue = 'rates' AND status = 'running' AND group_key = 'g1'));
SELECT count(fairq.release(id)) FROM fairq.tasks WHERE queue = 'rates' AND status = 'running' AND group_key = 'g2';
SELECT count(fairq.fail(id, retry_in => '0')) FROM fairq.tasks WHERE queue = 'rates' AND status = 'running' AND group_key = 'g3';
SELECT pg_temp.fill('rates', 3, 1);
SELECT pg_temp.popped('rates', 100);
SELECT fairq.reset_hints();
SELECT pg_temp.popped('rates', 100);
SELECT count(*) FROM fairq.take('rates', 100);
SELECT * FROM fairq.check_queue('rates');
-- another group has its own burst
SELECT pg_temp.fill('rates', 4, 1);
SELECT pg_temp.popped('rates', 100);

-- new settings apply at once: a higher rate, no rate, and a rate again
SELECT fairq.alter_queue('rates', rate => 100, per => '10 ms');
SELECT pg_sleep(0.02);
SELECT pg_temp.popped('rates', 4);
SELECT fairq.alter_queue('rates', rate => 0);
SELECT rate, per, burst FROM fairq.queues WHERE queue = 'rates';
SELECT count(*) FROM fairq.pop('rates', 10);
SELECT fairq.alter_queue('rates', rate => 1, per => '1 hour', burst => 1);
SELECT pg_temp.popped('rates', 1);
SELECT pg_temp.popped('rates', 100);
SELECT fairq.drop_queue('rates', true);

-- a group's own rate; 0 restores the queue's rate
SELECT fairq.create_queue('rates_own', per => '1 hour');
SELECT fairq.set_group('rates_own', 'g2', rate => 6);
SELECT pg_temp.fill('rates_own', 2, 3);
SELECT * FROM pg_temp.next('rates_own');
SELECT pg_temp.popped('rates_own', 100);
SELECT * FROM pg_temp.next('rates_own');
SELECT fairq.set_group('rates_own', 'g2', weight => 2);
SELECT pg_temp.popped('rates_own', 100);
SELECT fairq.set_group('rates_own', 'g2', rate => 0);
SELECT pg_temp.popped('rates_own', 100);
SELECT fairq.drop_queue('rates_own', true);

-- max_rate is the rate of the whole queue
SELECT fairq.create_queue('rates_all', max_rate => 2, per => '1 hour', burst => 4);
SELECT pg_temp.fill('rates_all', 3, 2);
SELECT pg_temp.popped('rates_all', 2);
-- a start that no pop has used stays available
SELECT count(*) FROM fairq.pop('rates_all', 0 + 1);
SELECT string_agg(group_key, ' ') FROM fairq.peek('rates_all', 100);
SELECT pg_temp.popped('rates_all', 100);
SELECT pg_temp.popped('rates_all', 100);
SELECT groups_active, groups_throttled FROM fairq.stats WHERE queue = 'rates_all';
SELECT group_key, reason FROM fairq.group_stats('rates_all') ORDER BY 1;
SELECT * FROM pg_temp.next('rates_all');
SELECT fairq.alter_queue('rates_all', max_rate => 0);
-- groups take turns, as without a rate
SELECT pg_temp.popped('rates_all', 100);
SELECT fairq.drop_queue('rates_all', true);
SELECT fairq.create_queue('rates_spare', max_rate => 1, per => '1 hour', burst => 2);
SELECT pg_temp.fill('rates_spare', 1, 1);
SELECT pg_temp.popped('rates_spare', 100);
SELECT pg_temp.fill('rates_spare', 1, 2);
SELECT pg_temp.popped('rates_spare', 100);
SELECT fairq.drop_queue('rates_spare', true);

-- all priorities of a group share one rate
SELECT fairq.create_queue('rates_p', rate => 1, per => '1 hour', burst => 2);
SELECT count(fairq.enqueue('rates_p', 'a', priority => p)) FROM generate_series(0, 9) p;
SELECT priority FROM fairq.pop('rates_p', 100);
SELECT priority FROM fairq.pop('rates_p', 100);
SELECT priority, throttled FROM fairq.lanes WHERE queue = 'rates_p' AND throttled > 0 LIMIT 1;
SELECT fairq.drop_queue('rates_p', true);

-- a lapsed task needs a start, also in a full group and a full queue, at its
-- group's turn
SELECT fairq.create_queue('rates_expired', rate => 1, per => '1 hour', burst => 2);
SELECT fairq.create_queue('rates_expired_1', rate => 1, per => '1 hour', burst => 2, concurrency => 1);
SELECT fairq.create_queue('rates_expired_2', rate => 1, per => '1 hour', burst => 2, max_running => 1);
SELECT fairq.create_queue('rates_expired_3', max_rate => 1, per => '1 hour', burst => 2);
SELECT fairq.create_queue('rates_expired_4', max_rate => 1, per => '1 hour', burst => 2, max_running => 1);
CREATE FUNCTION pg_temp.expire(queue text) RETURNS TABLE (task text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fairq.enqueue(queue, 'a', '1');
	FOR i IN 1..4 LOOP
		RETURN QUERY SELECT payload::text || '/' || attempt FROM fairq.pop(queue, 100, lease => '1 ms');
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN QUERY SELECT 'takes ' || count(*) FROM fairq.take(queue, 100);
	RETURN QUERY SELECT 'peeks ' || count(*) FROM fairq.peek(queue, 100);
	RETURN QUERY SELECT fairq.check_queue(queue);
END$$;
SELECT q, e.task FROM unnest(ARRAY['rates_expired', 'rates_expired_1', 'rates_expired_2', 'rates_expired_3', 'rates_expired_4']) q, pg_temp.expire(q) e;
SELECT fairq.alter_queue('rates_expired_2', rate => 0);
SELECT payload, attempt FROM fairq.pop('rates_expired_2');
SELECT fairq.alter_queue('rates_expired_4', max_rate => 0);
SELECT payload, attempt FROM fairq.pop('rates_expired_4');
SELECT count(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'rates_expired%';

-- a hold of a group, and of the queue; a time in the past, or no time, ends a hold
SELECT fairq.create_queue('rates_hold');
SELECT fairq.hold('rates_hold', 'g1', until => now() + interval '1 hour');
SELECT pg_temp.fill('rates_hold', 2, 2);
SELECT string_agg(group_key, ' ') FROM fairq.peek('rates_hold', 100);
SELECT pg_temp.popped('rates_hold', 1);
SELECT * FROM pg_temp.next('rates_hold');
SELECT group_key, reason FROM fairq.group_stats('rates_hold') ORDER BY 1;
SELECT fairq.hold('rates_hold', until => now() + interval '2 hours');
SELECT * FROM pg_temp.next('rates_hold');
SELECT pg_temp.popped('rates_hold', 100);
SELECT count(*) FROM fairq.peek('rates_hold', 100);
SELECT fairq.reset_hints();
SELECT pg_temp.popped('rates_hold', 100);
SELECT fairq.hold('rates_hold');
SELECT pg_temp.popped('rates_hold', 100);
SELECT groups_active, groups_throttled FROM fairq.stats WHERE queue = 'rates_hold';
SELECT fairq.hold('rates_hold', 'g1', until => now() - interval '1 hour');
SELECT pg_temp.popped('rates_hold', 1);
SELECT fairq.hold('rates_hold', 'g1', until => clock_timestamp() + interval '0.5 s');
SELECT pg_temp.popped('rates_hold', 1);
SELECT pg_sleep(0.6);
SELECT pg_temp.popped('rates_hold', 1);
SELECT fairq.hold('rates_hold', until => clock_timestamp() + interval '0.5 s');
SELECT pg_temp.fill('rates_hold', 1, 1);
SELECT pg_temp.popped('rates_hold', 1);
SELECT pg_sleep(0.6);
SELECT pg_temp.popped('rates_hold', 1);
SELECT count(*) FROM fairq.group_setting WHERE held_until < now() - interval '1 minute';
SELECT fairq.drop_queue('rates_hold', true);

-- a group that waits for a rate or a hold counts as limited from the time at which its
-- first task became ready
CREATE FUNCTION pg_temp.ages(queue text) RETURNS TABLE (ready boolean, limited boolean, waiting text) LANGUAGE sql AS $$
	SELECT oldest_ready BETWEEN '0.3 s' AND '5 s', oldest_limited BETWEEN '0.3 s' AND '6 s',
		(SELECT string_agg(group_key || ' ' || (clock_timestamp() - waiting_since BETWEEN '0.3 s' AND '5 s'), ', ' ORDER BY group_key)
		FROM fairq.group_stats($1))
	FROM fairq.stats s WHERE s.queue = $1
$$;
SELECT fairq.create_queue('rates_ages', rate => 1, per => '1 hour');
SELECT pg_temp.fill('rates_ages', 2, 4);
SELECT pg_sleep(0.3);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT pg_temp.popped('rates_ages', 1);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT pg_temp.popped('rates_ages', 100);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT fairq.alter_queue('rates_ages', rate => 0);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT pg_temp.popped('rates_ages', 1);
SELECT fairq.hold('rates_ages', 'g2', until => clock_timestamp() + interval '1 hour');
SELECT count(*) FROM fairq.peek('rates_ages', 100);
SELECT pg_temp.popped('rates_ages', 1);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT pg_temp.popped('rates_ages', 100);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT fairq.hold('rates_ages', 'g2');
SELECT fairq.alter_queue('rates_ages', max_rate => 1);
SELECT pg_temp.popped('rates_ages', 1);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT fairq.alter_queue('rates_ages', max_rate => 0);
SELECT fairq.hold('rates_ages', until => clock_timestamp() + interval '1 hour');
SELECT * FROM pg_temp.ages('rates_ages');
SELECT fairq.hold('rates_ages');
SELECT pg_temp.popped('rates_ages', 100);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT fairq.drop_queue('rates_ages', true);
-- once a group returns, it does not count as limited, even after a restart
SELECT fairq.create_queue('rates_ages', rate => 1, per => '0.5 s');
SELECT pg_temp.fill('rates_ages', 1, 3);
SELECT pg_sleep(0.3);
SELECT pg_temp.popped('rates_ages', 100);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT pg_sleep(0.6);
SELECT pg_temp.popped('rates_ages', 1);
SELECT pg_sleep(0.6);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT fairq.alter_queue('rates_ages', per => '1 hour');
SELECT fairq.reset_hints();
SELECT count(*) FROM fairq.pop('rates_ages', 100);
SELECT * FROM pg_temp.ages('rates_ages');
SELECT fairq.drop_queue('rates_ages', true);

-- a transaction's own uncommitted settings apply until they are rolled back
SELECT fairq.create_queue('rates_mine', rate => 1, per => '1 hour');
SELECT pg_temp.fill('rates_mine', 2, 2);
BEGIN;
SELECT fairq.alter_queue('rates_mine', rate => 0);
SELECT pg_temp.popped('rates_mine', 1);
ROLLBACK;
BEGIN;
SELECT pg_temp.popped('rates_mine', 100);
ROLLBACK;
-- after the rollback the tasks are back, but their starts stay used
SELECT fairq.maintain();
SELECT queued FROM fairq.stats WHERE queue = 'rates_mine';
SELECT pg_temp.popped('rates_mine', 100);
BEGIN;
SELECT fairq.set_group('rates_mine', 'g1', rate => 1000000000);
SELECT pg_temp.popped('rates_mine', 1);
SELECT fairq.hold('rates_mine', 'g1', until => now() + interval '1 hour');
SELECT pg_temp.popped('rates_mine', 1);
COMMIT;
SELECT pg_temp.popped('rates_mine', 1);
SELECT fairq.hold('rates_mine', 'g1');
SELECT pg_temp.popped('rates_mine', 1);
SELECT * FROM fairq.check_queue('rates_mine');
SELECT fairq.drop_queue('rates_mine', true);

-- all throttled groups return when their time comes, without a call, however
-- many there are
SELECT fairq.create_queue('rates_many', rate => 1, per => '2 s');
SELECT pg_temp.fill('rates_many', 1000, 2);
SELECT count(*) FROM fairq.pop('rates_many', 5000);
SELECT groups_active, groups_throttled FROM fairq.stats WHERE queue = 'rates_many';
SELECT pg_sleep(2.1);
SELECT count(*), count(DISTINCT group_key) FROM fairq.pop('rates_many', 5000);
SELECT * FROM fairq.check_queue('rates_many');
SELECT fairq.drop_queue('rates_many', true);

-- maintain keeps a group without tasks while its starts count
SELECT fairq.create_queue('rates_empty', rate => 1, per => '1 hour');
SELECT pg_temp.fill('rates_empty', 1, 1);
SELECT count(*) FROM fairq.take('rates_empty', 100);
SELECT fairq.maintain('rates_empty');
SELECT group_key FROM fairq.groups WHERE queue = 'rates_empty';
SELECT pg_temp.fill('rates_empty', 2, 1);
SELECT pg_temp.popped('rates_empty', 100);
SELECT fairq.drop_queue('rates_empty', true);
