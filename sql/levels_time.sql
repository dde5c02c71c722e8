-- Time-fair queues with tenants: tenants get the same worker time per weight,
-- and so do the users of a tenant. The argument took gives the time of each
-- attempt, so results do not depend on a clock. test/times/order compares
-- random histories with a model.
--
-- Fails if work is charged only to the user (fairq_work_end()). Fails if a
-- tenant or user enters with credit (enter(), find_least()). Fails if a tenant
-- keeps its level while a user has a lapsed task (set_lapsed()), or peek()
-- copies only two levels of a tenant (copy_order()). Fails if users are served
-- level by level (next_in_order()), or a start in a full queue counts only for
-- the user (fairq_work_begun()). Fails if a group enters before the next group
-- has an account, or if groups that enter together determine each other's place
-- (add_those_that_come()). Fails if a turn given back costs a group its place
-- (uncharge()).
\a \t
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/time.psql

CREATE FUNCTION pg_temp.add(queue text, n int, VARIADIC users text[])
	RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(*) FROM fairq.enqueue_batch(queue,
		ARRAY(SELECT u FROM generate_series(1, n), unnest(users) u),
		array_fill('1'::jsonb, ARRAY[n * cardinality(users)]))
$$;

CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(group_key, ' ') FROM fairq.pop(queue, n)
$$;

-- One worker: serves n tasks, one after the other. The tasks of a user take
-- the given time, and the tasks of other users take an hour.
CREATE PROCEDURE pg_temp.work(queue text, n int, took jsonb DEFAULT '{}',
	INOUT served text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
	task record;
BEGIN
	FOR i IN 1..n LOOP
		SELECT * INTO STRICT task FROM fairq.pop(work.queue);
		COMMIT;
		PERFORM fairq.complete(task.id, took => coalesce(work.took->>task.group_key, '1 h')::interval);
		COMMIT;
		served := concat_ws(' ', served, task.group_key);
	END LOOP;
END
$$;

-- The worker time that tenants and users have received, in hours per weight.
CREATE FUNCTION pg_temp.got(queue text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s %s', name, round(got::numeric / 3600, 1)), ', ' ORDER BY name)
	FROM (SELECT tenant, got FROM fairq.tenants t WHERE t.queue = got.queue
		UNION ALL SELECT group_key, got FROM fairq.groups g WHERE g.queue = got.queue) f (name, got)
$$;

-- Before a task has ended, only levels count: first those of tenants, then
-- those of users.
SELECT fairq.create_queue('timed', separator => '/', fair_by => 'time');
SELECT pg_temp.add('timed', 30, 'acme/ann', 'acme/bob', 'acme/cid', 'beta/dan');
SELECT pg_temp.pop('timed', 8);
SELECT pg_temp.done('timed', '%', '1 h');
SELECT pg_temp.got('timed');
-- With one worker, tenants get the same time, and so do the users of acme.
CALL pg_temp.work('timed', 18, '{"acme/ann": "2 h", "beta/dan": "30 min"}');
SELECT pg_temp.got('timed');
-- A user that becomes active is next among its tenant's users, and a tenant
-- that becomes active is next among tenants. Neither earns credit while it is
-- inactive.
SELECT pg_temp.add('timed', 9, 'acme/eve', 'coco/fay');
CALL pg_temp.work('timed', 12, '{"acme/ann": "2 h", "beta/dan": "30 min"}');
SELECT pg_temp.got('timed');
SELECT * FROM fairq.check_queue('timed');

-- A user that is behind by more than two of the longest tasks may have more
-- tasks running than other users of its tenant.
SELECT fairq.create_queue('timed_behind', separator => '/', fair_by => 'time');
SELECT pg_temp.add('timed_behind', 20, 'acme/ann', 'acme/bob');
SELECT pg_temp.pop('timed_behind', 12);
SELECT pg_temp.done('timed_behind', 'acme/ann', '1 h'), pg_temp.done('timed_behind', 'acme/bob', '1 min');
SELECT pg_temp.pop('timed_behind', 5);

-- Weights of tenants and of users apply to time and to running tasks.
SELECT fairq.create_queue('timed_weights', separator => '/', fair_by => 'time');
SELECT fairq.set_group('timed_weights', 'acme', weight => 3), fairq.set_group('timed_weights', 'acme/bob', weight => 2);
SELECT pg_temp.add('timed_weights', 30, 'acme/ann', 'acme/bob', 'beta/cid');
SELECT pg_temp.pop('timed_weights', 12);
SELECT pg_temp.done('timed_weights', '%', '1 h');
CALL pg_temp.work('timed_weights', 12);
SELECT pg_temp.got('timed_weights');
SELECT tenant, weight, users_active, round(ahead) AS ahead FROM fairq.tenants WHERE queue = 'timed_weights' ORDER BY 1;

-- The end of a task counts when its transaction commits. A start counts at
-- once, and no longer counts after a rollback.
SELECT fairq.create_queue('timed_ends', separator => '/', fair_by => 'time', backoff => '0');
SELECT pg_temp.add('timed_ends', 20, 'acme/ann', 'acme/bob', 'beta/cid');
CALL pg_temp.work('timed_ends', 2);
SELECT pg_temp.pop('timed_ends', 2);
BEGIN;
SELECT pg_temp.done('timed_ends', 'acme%', '5 h');
SELECT pg_temp.pop('timed_ends', 2);
ROLLBACK;
BEGIN;
SELECT pg_temp.pop('timed_ends', 1);
SAVEPOINT s;
SELECT pg_temp.pop('timed_ends', 3);
ROLLBACK TO s;
RELEASE s;
COMMIT;
SELECT pg_temp.pop('timed_ends', 3);
SELECT pg_temp.done('timed_ends', '%', '1 h');
BEGIN;
SELECT group_key FROM fairq.take('timed_ends', 3);
ROLLBACK;
SELECT group_key, fairq.fail(id, took => '4 h') FROM fairq.pop('timed_ends');
SELECT group_key, fairq.release(id) FROM fairq.pop('timed_ends');
SELECT pg_temp.got('timed_ends');
CALL pg_temp.work('timed_ends', 8);
SELECT * FROM fairq.check_queue('timed_ends');

-- A tenant is at its limit. All of its users wait, but have no credit
-- afterwards.
SELECT fairq.create_queue('timed_limit', separator => '/', fair_by => 'time');
SELECT fairq.set_group('timed_limit', 'acme', concurrency => 2);
SELECT pg_temp.add('timed_limit', 30, 'acme/ann', 'acme/bob', 'beta/cid', 'beta/dan');
SELECT pg_temp.pop('timed_limit', 9);
SELECT pg_temp.done('timed_limit', 'beta%', '1 h');
SELECT pg_temp.pop('timed_limit', 2);
SELECT pg_temp.done('timed_limit', 'acme%', '1 h', 1), pg_temp.done('timed_limit', 'beta%', '1 h');
SELECT pg_temp.pop('timed_limit', 6);
SELECT tenant, concurrency, running, users_active FROM fairq.tenants WHERE queue = 'timed_limit' ORDER BY 1;
SELECT fairq.set_group('timed_limit', 'acme', concurrency => 0);
SELECT pg_temp.pop('timed_limit', 6);
SELECT * FROM fairq.check_queue('timed_limit');

-- A lapsed task keeps its slot, and does not delay its tenant or its user.
SELECT fairq.create_queue('timed_leases', separator => '/', fair_by => 'time');
SELECT fairq.set_group('timed_leases', 'acme', concurrency => 1);
SELECT pg_temp.add('timed_leases', 9, 'acme/ann', 'acme/bob', 'beta/cid');
SELECT group_key FROM fairq.pop('timed_leases', lease => '1 us');
SELECT group_key, attempt FROM fairq.pop('timed_leases', 3);
SELECT pg_temp.done('timed_leases', '%', '1 h');
SELECT group_key, attempt FROM fairq.pop('timed_leases', 2, lease => '1 us') ORDER BY 1;
SELECT fairq.alter_queue('timed_leases', max_running => 2);
SELECT group_key, attempt FROM fairq.pop('timed_leases', 9) ORDER BY 1;
SELECT pg_temp.done('timed_leases', 'acme%', '90 min');
SELECT fairq.alter_queue('timed_leases', max_running => 0), fairq.set_group('timed_leases', 'acme', concurrency => 0);
SELECT pg_temp.pop('timed_leases', 3);
SELECT * FROM fairq.check_queue('timed_leases');

-- After SQL has changed tasks, all tenants and users are equal. Tasks that run
-- are charged to their tenant and their user when they end.
SELECT fairq.create_queue('timed_sql', separator => '/', fair_by => 'time');
SELECT pg_temp.add('timed_sql', 20, 'acme/ann', 'acme/bob', 'beta/cid');
CALL pg_temp.work('timed_sql', 3, '{"beta/cid": "9 h"}');
SELECT pg_temp.pop('timed_sql', 4);
UPDATE fairq.task SET cost = cost WHERE group_no < 0;
SELECT pg_temp.pop('timed_sql', 4);
SELECT pg_temp.done('timed_sql', 'acme/ann', '3 h'), pg_temp.done('timed_sql', '%', '1 h');
SELECT pg_temp.got('timed_sql');
CALL pg_temp.work('timed_sql', 8);
SELECT * FROM fairq.check_queue('timed_sql');

-- A queue can get another fair_by while it is in use.
SELECT fairq.alter_queue('timed_sql', fair_by => 'cost');
SELECT pg_temp.pop('timed_sql', 4);
SELECT fairq.alter_queue('timed_sql', fair_by => 'time');
SELECT pg_temp.pop('timed_sql', 4);
SELECT * FROM fairq.check_queue('timed_sql');

-- peek() returns the tasks of the next pop, also with many levels.
SELECT fairq.create_queue('timed_peek', separator => '/', fair_by => 'time');
SELECT pg_temp.add('timed_peek', 40, VARIADIC ARRAY(SELECT 't' || i % 3 || '/' || i FROM generate_series(1, 9) i));
SELECT pg_temp.add('timed_peek', 40, 't9/a');
SELECT count(*) FROM fairq.pop('timed_peek', 60);
CREATE TEMP TABLE peeked AS SELECT ARRAY(SELECT id FROM fairq.peek('timed_peek', 30)) AS ids;
SELECT ARRAY(SELECT id FROM fairq.pop('timed_peek', 30)) = ids AS same FROM peeked;
SELECT count(fairq.complete(id, took => n % 7 * '1 h'::interval)) FROM (
	SELECT id, row_number() OVER (ORDER BY id) AS n FROM fairq.live_tasks
	WHERE queue = 'timed_peek' AND status = 'running') t WHERE n % 2 = 0;
UPDATE peeked SET ids = ARRAY(SELECT id FROM fairq.peek('timed_peek', 30));
SELECT ARRAY(SELECT id FROM fairq.pop('timed_peek', 30)) = ids AS same FROM peeked;
-- The same holds if a new tenant enters together with another one.
SELECT fairq.create_queue('timed_enter', separator => '/', fair_by => 'time', max_running => 2);
SELECT pg_temp.add('timed_enter', 2, 't2/a');
SELECT count(*) FROM fairq.pop('timed_enter', 2, lease => '1 ms');
SELECT pg_sleep(0.1);
SELECT pg_temp.add('timed_enter', 1, 't1/a', 't2/a');
SELECT pg_temp.pop('timed_enter', 2);
SELECT pg_temp.add('timed_enter', 1, 't1/a');
SELECT pg_temp.done('timed_enter', '%', '1 s');
SELECT string_agg(group_key, ' ') FROM fairq.peek('timed_enter', 2);
SELECT pg_temp.pop('timed_enter', 2);


-- A new user starts with the worker time of the users that were already active.
-- The worker time of a user that returns at the same pop does not matter.
SELECT fairq.create_queue('timed_meet', separator => '/', fair_by => 'time');
SELECT pg_temp.add('timed_meet', 1, 'acme/ann');
CALL pg_temp.work('timed_meet', 1, '{"acme/ann": "3 h"}');
SELECT pg_temp.add('timed_meet', 4, 'acme/ann', 'acme/bob');
CALL pg_temp.work('timed_meet', 6);

-- A turn that yields no task charges no time to the groups whose turns were to
-- follow.
SELECT fairq.create_queue('timed_back', separator => '/', fair_by => 'time');
SELECT pg_temp.add('timed_back', 1, 'acme/old', 'acme/old', 'acme/ann', 'acme/bob');
CALL pg_temp.work('timed_back', 1, '{"acme/old": "5 h"}');
BEGIN;
SELECT pg_temp.add('timed_back', 2, 'acme/none');
SELECT pg_temp.pop('timed_back');
ROLLBACK;
SELECT pg_temp.pop('timed_back', 3);
SELECT pg_temp.got('timed_back');

-- A dead worker had 10 tasks of acme/ann. The time of these tasks does not
-- grow for acme, although no pop finds them while ann is paused.
SELECT fairq.create_queue('timed_dead', separator => '/', fair_by => 'time');
SELECT pg_temp.add('timed_dead', 1, 'old/old');
CALL pg_temp.work('timed_dead', 1, '{"old/old": "10 ms"}');
SELECT pg_temp.add('timed_dead', 10, 'acme/ann');
SELECT count(*) FROM fairq.pop('timed_dead', 10, lease => '1 microsecond');
SELECT fairq.pause('timed_dead', 'acme/ann');
SELECT pg_temp.add('timed_dead', 9, 'acme/bob', 'beta/cyd');
CALL pg_temp.work('timed_dead', 12, '{"acme/bob": "0.1 ms", "beta/cyd": "0.1 ms"}');

SELECT count(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'timed%';
