-- A tenant has at most as many running tasks as its limit, whichever of its
-- users have them. Other tasks are served later, in order. No other tenant
-- waits for these tasks.
--
-- Fails if the end of a transaction frees the group's slot but not the
-- tenant's (close_slots() in transaction.c). Fails if the load does not count
-- for tenants (publish_group() in load.c). Fails if a tenant without a slot
-- does not return (fairq_take_back() in lane_turns.c), or does not return for
-- a lapsed task (is_active() in lane_internal.h). Fails if lapsed tasks of a
-- paused tenant are served (fairq_is_paused() in queue.h). Fails if the
-- take-over of a lapsed task needs no start in the tenant
-- (fairq_start_lapsed() in running.c). Fails if a tenant does not return when
-- its time comes (fairq_lane_come_back() in lane_turns.c).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

CREATE FUNCTION pg_temp.tenants(queue text) RETURNS TABLE (tenant text,
	concurrency int, users_active int, running int)
LANGUAGE sql AS $$
	SELECT tenant, concurrency, users_active, running FROM fairq.tenants t
	WHERE t.queue = $1 ORDER BY 1
$$;

-- The limit applies to all users together.
SELECT fairq.create_queue('tenants', separator => '/');
SELECT pg_temp.add('tenants', 'acme/a', 1, 4), pg_temp.add('tenants', 'acme/b', 1, 4),
	pg_temp.add('tenants', 'acme/c', 1, 1), pg_temp.add('tenants', 'beta/d', 1, 4);
SELECT * FROM pg_temp.tenants('tenants');
SELECT fairq.set_group('tenants', 'acme', concurrency => 2);
SELECT pg_temp.pop('tenants');
SELECT pg_temp.pop('tenants');
SELECT * FROM pg_temp.tenants('tenants');
SELECT group_key, reason, running FROM fairq.group_stats('tenants') ORDER BY 1;
SELECT * FROM fairq.check_queue('tenants');

-- The end of a task makes room for the next user.
SELECT pg_temp.done('tenants', 'acme/a1');
SELECT pg_temp.pop('tenants');
SELECT pg_temp.done('tenants', 'acme/b1', 'acme/c1');
SELECT pg_temp.pop('tenants', 1), pg_temp.pop('tenants', 1), pg_temp.pop('tenants', 1);
SELECT pg_temp.release('tenants', 'acme/a2');
SELECT pg_temp.pop('tenants');
SELECT count(fairq.fail(id, attempt, 'error', '1 hour')) FROM fairq.tasks
WHERE queue = 'tenants' AND payload = '"acme/b2"';
SELECT pg_temp.pop('tenants');
SELECT * FROM pg_temp.tenants('tenants');
SELECT * FROM fairq.check_queue('tenants');

-- A limit can be raised, lowered and removed. After it is lowered by two, the
-- end of one task frees no slot.
SELECT fairq.set_group('tenants', 'acme', concurrency => 3);
SELECT pg_temp.pop('tenants');
SELECT fairq.set_group('tenants', 'acme', concurrency => 1);
SELECT pg_temp.add('tenants', 'acme/e', 1, 3);
SELECT pg_temp.pop('tenants');
SELECT payload FROM fairq.tasks WHERE queue = 'tenants' AND group_key ~ 'acme' AND status = 'running' ORDER BY id;
SELECT count(fairq.complete(id, attempt)) FROM (SELECT * FROM fairq.tasks
	WHERE queue = 'tenants' AND group_key ~ 'acme' AND status = 'running' ORDER BY id LIMIT 2) t;
SELECT pg_temp.pop('tenants');
SELECT * FROM pg_temp.tenants('tenants');
SELECT fairq.set_group('tenants', 'acme', concurrency => 0);
SELECT pg_temp.pop('tenants');
SELECT * FROM pg_temp.tenants('tenants');
SELECT * FROM fairq.check_queue('tenants');

-- A user may have a limit, too. The queue's limit applies to each user, not to
-- the tenant.
SELECT fairq.create_queue('tenants_own', concurrency => 2, separator => '/');
SELECT fairq.set_group('tenants_own', 'acme', concurrency => 4), fairq.set_group('tenants_own', 'acme/a', concurrency => 1);
SELECT pg_temp.add('tenants_own', 'acme/a', 1, 3), pg_temp.add('tenants_own', 'acme/b', 1, 3),
	pg_temp.add('tenants_own', 'acme/c', 1, 3), pg_temp.add('tenants_own', 'beta/d', 1, 3), pg_temp.add('tenants_own', 'beta/e', 1, 3);
SELECT pg_temp.pop('tenants_own');
SELECT pg_temp.done('tenants_own', 'acme/a1');
SELECT pg_temp.pop('tenants_own');
SELECT * FROM pg_temp.tenants('tenants_own');
SELECT * FROM fairq.check_queue('tenants_own');

-- A rollback gives the slots back, and so does a rollback to a savepoint.
SELECT pg_temp.done('tenants_own', 'acme/b1', 'acme/c1');
BEGIN;
SELECT pg_temp.pop('tenants_own');
SAVEPOINT s;
SELECT pg_temp.done('tenants_own', 'acme/a2');
SELECT pg_temp.pop('tenants_own');
ROLLBACK TO s;
SELECT pg_temp.pop('tenants_own');
ROLLBACK;
SELECT * FROM fairq.check_queue('tenants_own');
SELECT pg_temp.pop('tenants_own');
SELECT * FROM pg_temp.tenants('tenants_own');

-- A transaction's own tasks count, and so do those that it takes.
BEGIN;
SELECT pg_temp.add('tenants_own', 'acme/f', 1, 2);
SELECT pg_temp.pop('tenants_own');
SELECT pg_temp.done('tenants_own', 'acme/b2');
SELECT pg_temp.pop('tenants_own');
COMMIT;
SELECT count(*) FROM fairq.take('tenants_own', 100);
SELECT * FROM fairq.check_queue('tenants_own');
SELECT fairq.cancel(id) FROM fairq.tasks WHERE queue = 'tenants_own' AND group_key ~ 'acme';
SELECT fairq.purge('tenants_own', 'acme');
SELECT * FROM pg_temp.tenants('tenants_own');
SELECT pg_temp.add('tenants_own', 'acme/f', 3, 9);
BEGIN;
SELECT payload FROM fairq.take('tenants_own', 100) WHERE group_key = 'acme/f';
SELECT pg_temp.add('tenants_own', 'acme/g', 1, 4), pg_temp.pop('tenants_own');
COMMIT;
SELECT pg_temp.pop('tenants_own');
SELECT * FROM fairq.check_queue('tenants_own');

-- The limit also applies in a full queue, across priorities, and in a call for
-- one task of each group.
SELECT fairq.create_queue('tenants_full', max_running => 4, separator => '/');
SELECT fairq.set_group('tenants_full', 'acme', concurrency => 2);
SELECT pg_temp.add('tenants_full', 'acme/a', 1, 3), pg_temp.add('tenants_full', 'acme/b', 1, 3, 5),
	pg_temp.add('tenants_full', 'beta/c', 1, 4, 5);
SELECT pg_temp.pop('tenants_full', 100, 1);
SELECT pg_temp.pop('tenants_full', 100, 1);
SELECT pg_temp.pop('tenants_full');
SELECT pg_temp.done('tenants_full', 'acme/a1');
SELECT pg_temp.pop('tenants_full');
SELECT * FROM fairq.check_queue('tenants_full');

-- A lapsed task keeps its slot. It is served again, but no other task of its
-- tenant is served.
SELECT fairq.create_queue('tenants_lapse', separator => '/', backoff => '0');
SELECT fairq.set_group('tenants_lapse', 'acme', concurrency => 3);
SELECT pg_temp.add('tenants_lapse', 'acme/a', 1, 3), pg_temp.add('tenants_lapse', 'acme/b', 1, 2),
	pg_temp.add('tenants_lapse', 'acme/c', 1, 2), pg_temp.add('tenants_lapse', 'beta/d', 1, 2);
SELECT payload FROM fairq.pop('tenants_lapse', 100, lease => '1 ms');
SELECT pg_temp.add('tenants_lapse', 'acme/e', 1, 1), pg_temp.add('tenants_lapse', 'beta/f', 1, 1);
SELECT pg_sleep(0.01);
SELECT payload, attempt FROM fairq.pop('tenants_lapse', 2, lease => '1 hour');
SELECT group_key FROM fairq.peek('tenants_lapse', 100);
SELECT payload, attempt FROM fairq.pop('tenants_lapse', 100, lease => '1 hour');
SELECT payload FROM fairq.pop('tenants_lapse');
SELECT * FROM pg_temp.tenants('tenants_lapse');
SELECT * FROM fairq.check_queue('tenants_lapse');
-- If the limit is lowered, the lapsed task is put back.
SELECT pg_temp.done('tenants_lapse', 'acme/b1');
SELECT payload FROM fairq.pop('tenants_lapse', 100, lease => '1 ms');
SELECT fairq.set_group('tenants_lapse', 'acme', concurrency => 2);
SELECT pg_sleep(0.01);
SELECT payload, attempt FROM fairq.pop('tenants_lapse');
SELECT * FROM pg_temp.tenants('tenants_lapse');
SELECT * FROM fairq.check_queue('tenants_lapse');

-- Running tasks are counted again if shared memory has lost them.
SELECT fairq.reset_hints();
SELECT pg_temp.pop('tenants_lapse'), pg_temp.pop('tenants');
SELECT * FROM pg_temp.tenants('tenants_lapse');
SELECT pg_temp.done('tenants_lapse', 'acme/c1');
SELECT pg_temp.pop('tenants_lapse');
SELECT * FROM fairq.check_queue('tenants_lapse');

-- The first limit of a queue with running tasks.
SELECT fairq.create_queue('tenants_first', separator => '/');
SELECT pg_temp.add('tenants_first', 'acme/a', 1, 3), pg_temp.add('tenants_first', 'acme/b', 1, 3);
SELECT pg_temp.pop('tenants_first', 3);
SELECT fairq.set_group('tenants_first', 'acme', concurrency => 3);
SELECT pg_temp.pop('tenants_first');
SELECT pg_temp.done('tenants_first', 'acme/b1');
SELECT pg_temp.pop('tenants_first');
SELECT * FROM fairq.check_queue('tenants_first');

-- A tenant without a slot has many users.
SELECT fairq.create_queue('tenants_many', separator => '/');
SELECT fairq.set_group('tenants_many', 'acme', concurrency => 1);
SELECT count(fairq.enqueue('tenants_many', 'acme/' || i)) FROM generate_series(1, 1000) i;
SELECT count(fairq.enqueue('tenants_many', 'beta/' || i)) FROM generate_series(1, 10) i;
SELECT count(*) FROM fairq.pop('tenants_many', 5);
SELECT count(*) FROM fairq.pop('tenants_many', 100);
SELECT group_key FROM fairq.tasks WHERE queue = 'tenants_many' AND status = 'running' ORDER BY id;
SELECT count(*) FROM fairq.pop('tenants_many', 100);
SELECT * FROM pg_temp.tenants('tenants_many');
SELECT * FROM fairq.check_queue('tenants_many');

-- In an in_order queue each user has one running task.
SELECT fairq.create_queue('tenants_order', concurrency => 1, separator => '/', in_order => true);
SELECT fairq.set_group('tenants_order', 'acme', concurrency => 2);
SELECT pg_temp.add('tenants_order', 'acme/' || u, 1, 2) FROM unnest('{a,b,c}'::text[]) u;
SELECT pg_temp.pop('tenants_order');
SELECT fairq.alter_queue('tenants_order', in_order => true);
SELECT * FROM fairq.check_queue('tenants_order');

-- While a tenant is paused, no task of its users starts, whatever limits the users have.
SELECT fairq.create_queue('tenants_pause', separator => '/', backoff => '0');
SELECT pg_temp.add('tenants_pause', 'acme/a', 1, 3), pg_temp.add('tenants_pause', 'acme/b', 1, 2, 5),
	pg_temp.add('tenants_pause', 'beta/c', 1, 3);
SELECT pg_temp.pop('tenants_pause', 2);
SELECT fairq.pause('tenants_pause', 'acme');
SELECT pg_temp.pop('tenants_pause', 1), pg_temp.pop('tenants_pause');
SELECT tenant, paused, users_active, running FROM fairq.tenants WHERE queue = 'tenants_pause' ORDER BY 1;
SELECT group_key, reason, running FROM fairq.group_stats('tenants_pause') ORDER BY 1;
SELECT groups_active, groups_limited, groups_paused FROM fairq.stats WHERE queue = 'tenants_pause';
SELECT * FROM fairq.check_queue('tenants_pause');
SELECT pg_temp.done('tenants_pause', 'acme/a1');
SELECT pg_temp.add('tenants_pause', 'acme/d', 1, 1), pg_temp.add('tenants_pause', 'beta/c', 4, 4);
SELECT pg_temp.pop('tenants_pause');
SELECT fairq.set_group('tenants_pause', 'acme', concurrency => 2), fairq.resume('tenants_pause', 'acme/a');
SELECT pg_temp.pop('tenants_pause');
SELECT fairq.resume('tenants_pause', 'acme');
SELECT pg_temp.pop('tenants_pause');
SELECT * FROM pg_temp.tenants('tenants_pause');
SELECT * FROM fairq.check_queue('tenants_pause');
-- A paused user stays paused after its tenant is resumed, and a paused tenant stays
-- paused after its user is resumed.
SELECT fairq.pause('tenants_pause', 'acme/b'), fairq.pause('tenants_pause', 'acme');
SELECT pg_temp.done('tenants_pause', 'acme/a2', 'acme/d1');
SELECT fairq.resume('tenants_pause', 'acme/b');
SELECT pg_temp.pop('tenants_pause');
SELECT fairq.pause('tenants_pause', 'acme/b'), fairq.resume('tenants_pause', 'acme');
SELECT pg_temp.pop('tenants_pause');
SELECT fairq.resume('tenants_pause', 'acme/b');
SELECT pg_temp.pop('tenants_pause');
-- An uncommitted pause applies only in its own transaction, and a rollback ends
-- it.
SELECT fairq.set_group('tenants_pause', 'acme', concurrency => 0);
SELECT pg_temp.add('tenants_pause', 'acme/e', 1, 2);
BEGIN;
SELECT fairq.pause('tenants_pause', 'acme');
SELECT pg_temp.pop('tenants_pause');
ROLLBACK;
SELECT pg_temp.pop('tenants_pause', 1);
SELECT fairq.pause('tenants_pause', 'acme');
SELECT pg_temp.pop('tenants_pause');
SELECT fairq.reset_hints();
SELECT pg_temp.pop('tenants_pause');
SELECT fairq.resume('tenants_pause', 'acme');
SELECT pg_temp.pop('tenants_pause');
-- A lapsed task waits for the end of the pause, even in a full queue.
SELECT pg_temp.add('tenants_pause', 'acme/e', 3, 4), pg_temp.add('tenants_pause', 'acme/f', 1, 1);
SELECT payload FROM fairq.pop('tenants_pause', 2, lease => '1 ms');
SELECT fairq.pause('tenants_pause', 'acme');
SELECT pg_temp.add('tenants_pause', 'beta/g', 1, 1);
SELECT pg_sleep(0.01);
SELECT group_key FROM fairq.peek('tenants_pause', 100);
SELECT pg_temp.pop('tenants_pause'), pg_temp.pop('tenants_pause');
SELECT group_key, reason FROM fairq.group_stats('tenants_pause') WHERE group_key ~ 'acme' ORDER BY 1;
SELECT payload FROM fairq.tasks WHERE queue = 'tenants_pause' AND status = 'running'
	AND lease_until < clock_timestamp() AND attempt = 1 ORDER BY 1;
SELECT * FROM fairq.check_queue('tenants_pause');
SELECT fairq.alter_queue('tenants_pause', max_running => 1);
SELECT pg_temp.pop('tenants_pause'), pg_temp.pop('tenants_pause');
SELECT fairq.alter_queue('tenants_pause', max_running => 0), fairq.resume('tenants_pause', 'acme');
SELECT group_key FROM fairq.peek('tenants_pause', 100);
SELECT payload, attempt FROM fairq.pop('tenants_pause', 100);
SELECT * FROM fairq.check_queue('tenants_pause');

-- A rate limits the starts of all users of the tenant together.
-- No interval of an hour passes during this test.
CREATE FUNCTION pg_temp.next(queue text) RETURNS TABLE (tenant text, rate int, minutes int)
LANGUAGE sql AS $$
	SELECT tenant, rate, ceil(extract(epoch FROM next_at - clock_timestamp()) / 60)::int
	FROM fairq.tenants t WHERE t.queue = $1 ORDER BY 1
$$;
SELECT fairq.create_queue('tenants_rate', separator => '/', rate => 60, per => '1 hour', burst => 3, backoff => '0');
SELECT pg_temp.add('tenants_rate', 'acme/a', 1, 3), pg_temp.add('tenants_rate', 'acme/b', 1, 3),
	pg_temp.add('tenants_rate', 'acme/c', 1, 1, 5), pg_temp.add('tenants_rate', 'beta/d', 1, 2);
SELECT fairq.set_group('tenants_rate', 'acme', rate => 2);
SELECT * FROM pg_temp.next('tenants_rate');
SELECT group_key FROM fairq.peek('tenants_rate', 100);
SELECT pg_temp.pop('tenants_rate', 2), pg_temp.pop('tenants_rate');
SELECT pg_temp.pop('tenants_rate'), pg_temp.pop('tenants_rate');
SELECT * FROM pg_temp.next('tenants_rate');
SELECT group_key, reason FROM fairq.group_stats('tenants_rate') ORDER BY 1;
SELECT groups_active, groups_limited, groups_throttled FROM fairq.stats WHERE queue = 'tenants_rate';
SELECT DISTINCT status, reason FROM fairq.tasks WHERE queue = 'tenants_rate' ORDER BY 1;
SELECT count(*) FROM fairq.peek('tenants_rate', 100);
SELECT * FROM fairq.check_queue('tenants_rate');
-- Neither the end of a task nor reset_hints() returns a start.
SELECT pg_temp.done('tenants_rate', 'acme/a1'), pg_temp.release('tenants_rate', 'acme/b1');
SELECT pg_temp.add('tenants_rate', 'acme/e', 1, 1), pg_temp.add('tenants_rate', 'beta/f', 1, 1);
SELECT pg_temp.pop('tenants_rate');
SELECT fairq.reset_hints();
SELECT pg_temp.pop('tenants_rate'), pg_temp.pop('tenants_rate');
SELECT * FROM fairq.check_queue('tenants_rate');
-- Another rate applies at once; a user's own rate counts, too.
SELECT fairq.set_group('tenants_rate', 'acme', rate => 0), fairq.set_group('tenants_rate', 'acme/b', rate => 1);
SELECT pg_temp.pop('tenants_rate');
SELECT * FROM pg_temp.next('tenants_rate');
SELECT * FROM fairq.check_queue('tenants_rate');
-- Tasks are served as time passes and starts become available. Each task is
-- served once.
SELECT fairq.create_queue('tenants_pace', separator => '/', per => '10 ms');
SELECT fairq.set_group('tenants_pace', 'acme', rate => 1);
SELECT count(fairq.enqueue('tenants_pace', 'acme/' || i % 7, priority => i % 3)) FROM generate_series(1, 30) i;
CREATE FUNCTION pg_temp.pop_all(queue text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	popped int := 0;
BEGIN
	FOR i IN 1 .. 3000 LOOP
		popped := popped + (SELECT count(*) FROM fairq.pop(queue, 100));
		EXIT WHEN popped = n;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN popped;
END $$;
SELECT pg_temp.pop_all('tenants_pace', 30);
SELECT * FROM fairq.check_queue('tenants_pace');
-- A lapsed task also needs a start, even in a full queue.
SELECT fairq.create_queue('tenants_again', separator => '/', per => '1 hour', burst => 2, backoff => '0');
SELECT fairq.set_group('tenants_again', 'acme', rate => 1), fairq.set_group('tenants_again', 'acme/a', concurrency => 1);
SELECT pg_temp.add('tenants_again', 'acme/a', 1, 1), pg_temp.add('tenants_again', 'acme/b', 1, 1);
SELECT payload FROM fairq.pop('tenants_again', 100, lease => '1 ms');
SELECT pg_sleep(0.01);
SELECT pg_temp.pop('tenants_again'), pg_temp.pop('tenants_again');
SELECT fairq.alter_queue('tenants_again', max_running => 2);
SELECT pg_temp.pop('tenants_again'), pg_temp.pop('tenants_again');
SELECT * FROM fairq.check_queue('tenants_again');
SELECT fairq.set_group('tenants_again', 'acme', rate => 0);
SELECT payload, attempt FROM fairq.pop('tenants_again', 100);

-- A hold is a pause that ends by itself.
SELECT fairq.create_queue('tenants_hold', separator => '/', backoff => '0');
SELECT pg_temp.add('tenants_hold', 'acme/a', 1, 3), pg_temp.add('tenants_hold', 'acme/b', 1, 2, 5),
	pg_temp.add('tenants_hold', 'beta/c', 1, 2);
SELECT payload FROM fairq.pop('tenants_hold', lease => '1 ms');
SELECT fairq.hold('tenants_hold', 'acme', clock_timestamp() + '1 hour');
SELECT pg_sleep(0.01);
SELECT pg_temp.pop('tenants_hold'), pg_temp.pop('tenants_hold');
SELECT * FROM pg_temp.next('tenants_hold');
SELECT group_key, reason FROM fairq.group_stats('tenants_hold') ORDER BY 1;
SELECT count(*) FROM fairq.peek('tenants_hold', 100);
SELECT fairq.reset_hints();
SELECT pg_temp.pop('tenants_hold');
SELECT * FROM fairq.check_queue('tenants_hold');
SELECT fairq.hold('tenants_hold', 'acme');
SELECT pg_temp.pop('tenants_hold', 2);
SELECT * FROM pg_temp.next('tenants_hold');
-- A hold of one second ends by itself.
SELECT fairq.hold('tenants_hold', 'acme', clock_timestamp() + '1 second');
SELECT pg_temp.pop_all('tenants_hold', 3);
SELECT * FROM fairq.check_queue('tenants_hold');

SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue ~ '^tenants' ORDER BY queue;
