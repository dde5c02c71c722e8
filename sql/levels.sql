-- Tenants get equal parts of the service, and so do the users of a tenant. Each
-- pop is compared with a model of two levels: start-time fair queueing of the
-- tenants, and of the users in each tenant.
--
-- Fails if a turn is charged only to the user, or only to the tenant
-- (fairq_lane_order_take() in lane_order.c). Fails if users enter at the
-- lane's virtual time (flows_of()), or a turn is taken before all users have
-- entered (both in add_those_that_come()). Fails if the tenant is charged
-- according to the user's weight (charge()), or fairq_lane_charge() does not
-- correct the tenant's charge. Fails if a call ends at a tenant whose users it
-- has passed over (next_group()). Fails if calls with per_group take many turns
-- (takes_many() in serve.c). Fails if maintain() frees the number of a tenant
-- with users.
\a \t

-- The model. A flow is a tenant ('acme') or a user ('acme/ann'). tag is its
-- start tag, and tie orders equal tags. v is the virtual time of each order:
-- of the tenants (''), or of a tenant's users.
CREATE TEMP TABLE flow (key text PRIMARY KEY, parent text, weight int DEFAULT 1,
	tag numeric DEFAULT 0, tie int, costs numeric[] DEFAULT '{}');
CREATE TEMP TABLE virtual (parent text PRIMARY KEY, v numeric DEFAULT 0);
CREATE TEMP SEQUENCE tie;

-- The flow enters its parent's order, with a tag of at least the virtual time.
CREATE FUNCTION pg_temp.enter(flow_key text, of text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO virtual VALUES (of) ON CONFLICT DO NOTHING;
	INSERT INTO flow (key, parent, tie) VALUES (flow_key, of, -1) ON CONFLICT DO NOTHING;
	UPDATE flow SET tag = v, tie = nextval('tie') - 1000000
	FROM virtual WHERE key = flow_key AND virtual.parent = of
		AND (tag < v OR tie = -1);
$$;

-- Enqueues tasks of these costs, in the queue and in the model.
CREATE FUNCTION pg_temp.add(queue text, user_key text, VARIADIC of_costs numeric[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	tenant text := split_part(user_key, '/', 1);
	was_empty boolean := NOT EXISTS (SELECT FROM flow
		WHERE parent = tenant AND costs <> '{}');
BEGIN
	PERFORM fairq.enqueue_batch(queue, array_fill(user_key, ARRAY[cardinality(of_costs)]),
		array_fill('1'::jsonb, ARRAY[cardinality(of_costs)]), costs => of_costs::real[]);
	IF NOT EXISTS (SELECT FROM flow WHERE key = user_key AND costs <> '{}') THEN
		PERFORM pg_temp.enter(user_key, tenant);
	END IF;
	IF was_empty THEN
		PERFORM pg_temp.enter(tenant, '');
	END IF;
	UPDATE flow SET costs = costs || of_costs WHERE key = user_key;
END $$;

CREATE FUNCTION pg_temp.set_weight(queue text, flow_key text, to_weight int)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fairq.set_group(queue, flow_key, weight => to_weight);
	INSERT INTO flow (key, parent, weight, tie)
	VALUES (flow_key, CASE WHEN flow_key ~ '/' THEN split_part(flow_key, '/', 1) ELSE '' END,
		to_weight, -1)
	ON CONFLICT (key) DO UPDATE SET weight = to_weight;
END $$;

CREATE FUNCTION pg_temp.charge(flow_key text, cost numeric) RETURNS void LANGUAGE sql AS $$
	UPDATE virtual SET v = greatest(v, tag) FROM flow
	WHERE key = flow_key AND virtual.parent = flow.parent;
	UPDATE flow SET tag = tag + cost / weight, tie = nextval('tie')
	WHERE key = flow_key;
$$;

-- The user that the model serves next.
CREATE FUNCTION pg_temp.next(by_cost boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	tenant text;
	found_key text;
	cost numeric;
BEGIN
	SELECT key INTO tenant FROM flow f WHERE parent = '' AND EXISTS (SELECT FROM flow u
		WHERE u.parent = f.key AND u.costs <> '{}')
	ORDER BY tag, tie LIMIT 1;
	SELECT key, CASE WHEN by_cost THEN costs[1] ELSE 1 END INTO found_key, cost
	FROM flow WHERE parent = tenant AND costs <> '{}' ORDER BY tag, tie LIMIT 1;
	PERFORM pg_temp.charge(found_key, cost), pg_temp.charge(tenant, cost);
	UPDATE flow SET costs = costs[2:] WHERE key = found_key;
	RETURN found_key;
END $$;

-- Pops n tasks and compares them with the model. Returns the users, or the
-- difference.
CREATE FUNCTION pg_temp.pop(queue text, n int, by_cost boolean DEFAULT false)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	got text[] := ARRAY(SELECT group_key FROM fairq.pop(queue, n));
	model text[] := ARRAY(SELECT pg_temp.next(by_cost) FROM generate_series(1, cardinality(got)));
BEGIN
	RETURN CASE WHEN got = model THEN array_to_string(got, ' ')
		ELSE format('got %s, not %s', got, model) END;
END $$;

CREATE FUNCTION pg_temp.clear() RETURNS void LANGUAGE sql AS 'TRUNCATE flow, virtual';

-- A tenant with three users gets as much as one with a single user.
SELECT fairq.create_queue('levels', separator => '/');
SELECT separator FROM fairq.queues WHERE queue = 'levels';
SELECT pg_temp.add('levels', 'acme/ann', 1, 1, 1, 1), pg_temp.add('levels', 'acme/bob', 1, 1, 1),
	pg_temp.add('levels', 'acme/cid', 1, 1, 1), pg_temp.add('levels', 'beta/dan', 1, 1, 1, 1, 1, 1);
SELECT pg_temp.pop('levels', 5);
SELECT string_agg(group_key, ' ') AS peek FROM fairq.peek('levels', 4);
SELECT pg_temp.pop('levels', 4);

-- A user that becomes active is next among its tenant's users, and a tenant that becomes
-- active is next among tenants.
SELECT pg_temp.add('levels', 'acme/eve', 1, 1), pg_temp.add('levels', 'coco/fay', 1, 1, 1);
SELECT pg_temp.pop('levels', 1), pg_temp.pop('levels', 1), pg_temp.pop('levels', 3);
SELECT pg_temp.pop('levels', 100);
SELECT * FROM fairq.check_queue('levels');

-- Neither earns credit while it is inactive.
SELECT pg_temp.add('levels', 'beta/dan', 1, 1, 1, 1), pg_temp.add('levels', 'acme/bob', 1, 1, 1, 1, 1, 1);
SELECT pg_temp.pop('levels', 6);
SELECT pg_temp.add('levels', 'coco/fay', 1, 1, 1), pg_temp.add('levels', 'acme/ann', 1, 1, 1);
SELECT pg_temp.pop('levels', 100);

-- Weights apply to tenants and to users.
SELECT pg_temp.clear(), fairq.create_queue('levels_weights', separator => '/');
SELECT pg_temp.add('levels_weights', 'acme/ann', 1, 1, 1, 1, 1, 1), pg_temp.add('levels_weights', 'acme/bob', 1, 1, 1, 1, 1, 1),
	pg_temp.add('levels_weights', 'beta/cid', 1, 1, 1, 1), pg_temp.add('levels_weights', 'beta/dan', 1, 1, 1, 1, 1, 1);
SELECT pg_temp.set_weight('levels_weights', 'acme', 4), pg_temp.set_weight('levels_weights', 'beta/dan', 2);
SELECT pg_temp.pop('levels_weights', 12);
SELECT group_key, weight, got FROM fairq.groups WHERE queue = 'levels_weights' ORDER BY 1;
SELECT tenant, weight, users_active, got, ahead FROM fairq.tenants
WHERE queue = 'levels_weights' ORDER BY 1;
SELECT pg_temp.pop('levels_weights', 100);

-- In a cost-fair queue, tenants get the same cost, and so do users.
SELECT pg_temp.clear(), fairq.create_queue('levels_cost', separator => '/', fair_by => 'cost');
SELECT pg_temp.add('levels_cost', 'acme/ann', 8, 1, 2, 8, 1), pg_temp.add('levels_cost', 'acme/bob', 1, 1, 4, 1, 1, 1),
	pg_temp.add('levels_cost', 'beta/cid', 2, 2, 2, 9, 2, 2), pg_temp.add('levels_cost', 'beta/dan', 1, 16, 1, 1);
SELECT pg_temp.set_weight('levels_cost', 'beta', 2);
SELECT pg_temp.pop('levels_cost', 7, true);
SELECT pg_temp.add('levels_cost', 'coco/eve', 5, 5), pg_temp.add('levels_cost', 'acme/fay', 3, 3, 3);
SELECT pg_temp.pop('levels_cost', 1, true), pg_temp.pop('levels_cost', 1, true), pg_temp.pop('levels_cost', 100, true);

-- A tenant with a thousand users gains nothing, and each user is served.
SELECT fairq.create_queue('levels_many', separator => '/');
SELECT count(*) FROM fairq.enqueue_batch('levels_many',
	(SELECT array_agg('many/' || i) FROM generate_series(1, 1000) i, generate_series(1, 2)),
	array_fill('1'::jsonb, ARRAY[2000]));
SELECT count(*) FROM fairq.enqueue_batch('levels_many', array_fill('one/a'::text, ARRAY[1500]),
	array_fill('1'::jsonb, ARRAY[1500]));
CREATE TEMP TABLE served AS SELECT n, group_key, split_part(group_key, '/', 1) AS tenant
FROM fairq.pop('levels_many', 2000) WITH ORDINALITY p (id, group_key, payload, attempt, c, d, e, f, g, h, n);
SELECT tenant, count(*), count(DISTINCT group_key) AS users FROM served GROUP BY 1 ORDER BY 1;
SELECT max(abs(lead)) FROM (SELECT sum(CASE tenant WHEN 'one' THEN 1 ELSE -1 END) OVER (ORDER BY n) AS lead
	FROM served) s;
SELECT count(*) FROM fairq.pop('levels_many', 2000);

-- per_group applies to each user. A call that has passed over all users of a
-- tenant serves the next tenant.
SELECT fairq.create_queue('levels_per_group', separator => '/');
SELECT count(fairq.enqueue('levels_per_group', key, '1'))
FROM unnest('{acme/ann,acme/bob,beta/cid,acme/eve}'::text[]) key, generate_series(1, 3);
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_per_group', 100, per_group => 1);
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_per_group', 100, per_group => 2);

-- Concurrency limits and pauses apply to users.
SELECT fairq.create_queue('levels_limit', separator => '/', concurrency => 1);
SELECT count(fairq.enqueue('levels_limit', key, '1'))
FROM unnest('{acme/ann,acme/bob,beta/cid}'::text[]) key, generate_series(1, 2);
SELECT fairq.pause('levels_limit', 'acme/bob');
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_limit', 100);
SELECT fairq.resume('levels_limit', 'acme/bob');
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_limit', 100);
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'levels_limit' AND status = 'running';
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_limit', 100);

-- SQL on fairq.task invalidates hints. Later calls find the tenants again.
SELECT pg_temp.clear(), fairq.create_queue('levels_lost', separator => '/');
SELECT pg_temp.add('levels_lost', 'acme/ann', 1, 1), pg_temp.add('levels_lost', 'acme/bob', 1, 1),
	pg_temp.add('levels_lost', 'beta/cid', 1, 1, 1, 1);
SELECT fairq.reset_hints();
SELECT pg_temp.pop('levels_lost', 5), pg_temp.pop('levels_lost', 100);

-- A user that is renamed belongs to another tenant afterwards.
SELECT count(fairq.enqueue('levels_lost', key, '1'))
FROM unnest('{acme/ann,acme/bob,beta/cid}'::text[]) key, generate_series(1, 4);
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_lost', 4);
UPDATE fairq.group_number SET group_key = 'beta/bob' WHERE group_key = 'acme/bob'
	AND queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'levels_lost');
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_lost', 5);

-- maintain() frees the number of a tenant after those of its users.
SELECT fairq.purge('levels_lost');
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'levels_lost';
SELECT fairq.enqueue('levels_lost', 'beta/cid', '1') > 0 AS enqueued;
SELECT fairq.maintain('levels_lost');
SELECT group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id) WHERE name = 'levels_lost' ORDER BY 1;
SELECT fairq.maintain('levels_lost');
SELECT group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id) WHERE name = 'levels_lost' ORDER BY 1;
SELECT fairq.purge('levels_lost');
SELECT fairq.maintain('levels_lost');
SELECT fairq.maintain('levels_lost');
SELECT group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id) WHERE name = 'levels_lost' ORDER BY 1;
-- New groups with these numbers are served like any other.
SELECT count(fairq.enqueue('levels_lost', key, '1'))
FROM unnest('{x/a,beta/b,y/a,beta/c}'::text[]) key, generate_series(1, 2);
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_lost', 100);

-- The same holds after a tenant with many users, whose order is complete.
SELECT fairq.create_queue('levels_gone', separator => '/');
SELECT count(*) FROM fairq.enqueue_batch('levels_gone',
	(SELECT array_agg('many/' || i) FROM generate_series(1, 2500) i), array_fill('1'::jsonb, ARRAY[2500]));
SELECT count(fairq.complete(id)) FROM fairq.pop('levels_gone');
SELECT fairq.purge('levels_gone'), fairq.maintain('levels_gone'), fairq.maintain('levels_gone');
SELECT count(fairq.enqueue('levels_gone', key, '1')) FROM unnest('{x/a,x/b,y/a}'::text[]) key;
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_gone', 100);

-- A tenant is purged with all its users, except for running tasks.
SELECT fairq.create_queue('levels_purge', separator => '/');
SELECT count(fairq.enqueue('levels_purge', key, '1', priority => p))
FROM unnest('{acme/ann,acme/bob,acme-/x,acme0/x,beta/dan}'::text[]) key, generate_series(0, 1) p;
SELECT group_key FROM fairq.pop('levels_purge');
SELECT fairq.purge('levels_purge', 'acme'), fairq.purge('levels_purge', 'acme');
SELECT group_key, status, count(*) FROM fairq.tasks WHERE queue = 'levels_purge' GROUP BY 1, 2 ORDER BY 1;
SELECT fairq.purge('levels_purge', 'beta/dan');
SELECT * FROM fairq.check_queue('levels_purge');

-- A tenant's failed tasks are those of its users.
SELECT fairq.create_queue('levels_failed', separator => '/', max_attempts => 1);
SELECT count(fairq.enqueue('levels_failed', key, '1'))
FROM unnest('{acme/ann,acme/bob,acme-x/a,beta/cid,beta/dan}'::text[]) key;
SELECT count(fairq.fail(id)) FROM fairq.pop('levels_failed', 5);
SELECT fairq.redrive('levels_failed', 'acme'), fairq.redrive('levels_failed', 'acme');
SELECT string_agg(group_key, ' ' ORDER BY group_key) FROM fairq.pop('levels_failed', 9);
SELECT fairq.redrive('levels_failed', 'acme-x/a'), fairq.purge_failed('levels_failed', 'beta');
\set VERBOSITY sqlstate
SELECT fairq.redrive('levels_failed', 'nobody');
SELECT fairq.purge_failed('levels_failed', 'nobody');
\set VERBOSITY default

-- The view has each tenant once, even if other keys sort between its users.
SELECT count(fairq.enqueue('levels_failed', key, '1'))
FROM unnest('{acme/zoe,acme0/a,acme-/a,a/a,a//,acme/,é/é}'::text[]) key;
SELECT group_key FROM fairq.pop('levels_failed');
SELECT tenant, users_active FROM fairq.tenants WHERE queue = 'levels_failed' ORDER BY tenant COLLATE "C";
SELECT count(*) FROM fairq.tenants WHERE queue = 'fairness';
CREATE ROLE regress_fairq_levels;
SELECT fairq.grant_queue('levels_failed', 'regress_fairq_levels', 'enqueue');
SET ROLE regress_fairq_levels;
SELECT count(*) FROM fairq.tenants;
RESET ROLE;
SELECT fairq.grant_queue('levels_failed', 'regress_fairq_levels', 'monitor');
SET ROLE regress_fairq_levels;
SELECT count(*) FROM fairq.tenants;
RESET ROLE;

-- The cost of the check of SQL on tasks is proportional to the number of rows
-- that the SQL changes.
SELECT max(id) AS id FROM fairq.tasks WHERE queue = 'levels_many' \gset
BEGIN;
SET LOCAL enable_seqscan = off;
SELECT seq_tup_read + idx_tup_fetch AS before FROM pg_stat_xact_all_tables
WHERE relid = 'fairq.task'::regclass \gset
UPDATE fairq.task SET headers = '{}' WHERE id = :id;
SELECT seq_tup_read + idx_tup_fetch - :before < 100 AS flat FROM pg_stat_xact_all_tables
WHERE relid = 'fairq.task'::regclass;
ROLLBACK;

-- Keys name a tenant and a user, also if SQL writes them.
SELECT fairq.create_queue('levels_keys', separator => '/');
SELECT fairq.enqueue('levels_keys', 'acme', '1');
SELECT fairq.set_group('levels_keys', 'acme/', weight => 2);
-- A key that is too long is not printed.
SELECT fairq.enqueue('levels_keys', repeat('x', 2000), '1');
SELECT fairq.pause('levels_keys', repeat('x', 2000));
\set VERBOSITY sqlstate
SELECT fairq.enqueue('levels_keys', 'acme/', '1');
SELECT fairq.enqueue('levels_keys', '/ann', '1');
SELECT fairq.enqueue('levels_keys', '/', '1');
SELECT fairq.enqueue_batch('levels_keys', '{acme/ann,acme}', '{1,2}');
SELECT fairq.create_batch('levels_keys', 'acme', '1');
SELECT fairq.set_group('levels_keys', 'acme/', weight => 2);
SELECT group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id) WHERE name = 'levels_keys';
SELECT fairq.enqueue('levels_keys', 'acme/a/b', '1') > 0 AS enqueued;
SELECT group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id) WHERE name = 'levels_keys' ORDER BY 1;
UPDATE fairq.task SET group_no = group_no - 1
	WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'levels_keys');
INSERT INTO fairq.task (id, addr, enqueued_at, queue_id, group_no, attempt, priority, payload)
SELECT -1, addr - 1, enqueued_at, queue_id, group_no - 1, attempt, priority, payload
	FROM fairq.task WHERE queue_id = (SELECT queue_id FROM fairq.queue WHERE name = 'levels_keys');
UPDATE fairq.group_number SET group_key = 'acme/' WHERE group_key = 'acme/a/b';
UPDATE fairq.group_number SET group_key = 'acme' WHERE group_key = 'acme/a/b';
UPDATE fairq.group_number SET group_key = 'new/a/b' WHERE group_key = 'acme/a/b';
BEGIN;
DELETE FROM fairq.group_number WHERE group_key = 'acme';
SELECT * FROM fairq.check_queue('levels_keys');
ROLLBACK;
UPDATE fairq.queue SET separator = ':' WHERE name = 'levels_keys';
UPDATE fairq.queue SET separator = '/' WHERE name = 'fairness';
-- Separators are checked. A queue with tenants can get another fair_by.
SELECT fairq.create_queue('levels_bad', separator => '//');
SELECT fairq.create_queue('levels_bad', separator => '');
SELECT fairq.create_queue('levels_bad', separator => 'é');
SELECT fairq.alter_queue('levels_keys', fair_by => 'time');
SELECT fairq.alter_queue('levels_keys', fair_by => 'cost');
-- A tenant has all settings of a group.
SELECT fairq.set_group('levels_keys', 'acme', concurrency => 2);
SELECT fairq.set_group('levels_keys', 'acme', concurrency => 0);
SELECT fairq.set_group('levels_keys', 'acme', rate => 2);
SELECT fairq.pause('levels_keys', 'acme');
SELECT fairq.resume('levels_keys', 'acme');
SELECT fairq.set_group('levels_keys', 'acme', rate => 0);
SELECT fairq.hold('levels_keys', 'acme', 'tomorrow'), fairq.hold('levels_keys', 'acme');
SELECT fairq.set_group('levels_keys', 'acme', weight => 2);
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_keys', 100);
SELECT * FROM fairq.check_queue('levels_keys');
\set VERBOSITY default

-- A group gets the number of a tenant that was rolled back.  A call visits it only
-- once, like any other group that yields no task.
SELECT fairq.create_queue('levels_reused', separator => '/');
BEGIN;
SELECT count(fairq.enqueue('levels_reused', key)) FROM unnest('{acme/ann, bill/bob}'::text[]) key;
SELECT count(*) FROM fairq.pop('levels_reused', 10);
ROLLBACK;
SELECT count(fairq.enqueue('levels_reused', key)) FROM unnest('{cleo/ann, cleo/bob}'::text[]) key;
SELECT group_no, group_key FROM fairq.group_number JOIN fairq.queue USING (queue_id)
WHERE name = 'levels_reused' ORDER BY group_no;
BEGIN;
SET LOCAL statement_timeout = '30s';
SELECT fairq.pause('levels_reused', 'cleo/bob');
SELECT group_key FROM fairq.pop('levels_reused', 10);
COMMIT;

-- Tasks of a pop that is rolled back do not count as running. That also holds if the
-- transaction has ended these tasks and made the queue cost-fair. So both tenants
-- get the same time.
SELECT fairq.create_queue('levels_work', separator => '/', fair_by => 'time');
SELECT count(fairq.enqueue('levels_work', 'acme/ann')) FROM generate_series(1, 4);
BEGIN;
CREATE TEMP TABLE popped ON COMMIT DROP AS SELECT id, attempt FROM fairq.pop('levels_work', 4);
SELECT fairq.alter_queue('levels_work', fair_by => 'cost');
SELECT count(fairq.complete(id, attempt)) FROM popped;
ROLLBACK;
SELECT count(fairq.enqueue('levels_work', 'bill/bob')) FROM generate_series(1, 4);
SELECT string_agg(group_key, ' ') FROM fairq.pop('levels_work', 8);

-- A user's task ends after the user's tenant has got another number, and before
-- the tenant has a ready task.
SELECT fairq.create_queue('levels_number', separator => '/', fair_by => 'time');
SELECT count(fairq.enqueue('levels_number', 'acme/ann'));
SELECT count(fairq.enqueue('levels_number', 'bill/' || i, delay => '1 h')) FROM generate_series(1, 100) i;
DELETE FROM fairq.group_number USING fairq.queue q
WHERE q.queue_id = group_number.queue_id AND name = 'levels_number' AND group_key = 'acme';
CREATE TEMP TABLE popped AS SELECT id, attempt, group_key FROM fairq.pop('levels_number');
SELECT count(fairq.enqueue('levels_number', 'acme/bob', delay => '1 h'));
SELECT group_key, fairq.complete(id, attempt) FROM popped;
SELECT * FROM fairq.check_queue('levels_number');
DROP TABLE popped;

-- A user with a lapsed task is paused, and a pop visits the user. After that
-- the task runs again, although its tenant has no other slot. Fails if the user
-- keeps its rank without such a task (let_in_word() in seats.c).
SELECT fairq.create_queue('levels_lapsed', separator => '/');
SELECT fairq.set_group('levels_lapsed', 'acme', concurrency => 1);
SELECT count(fairq.enqueue('levels_lapsed', group_key))
FROM unnest('{acme/ann,acme/bob,acme/ann}'::text[]) group_key;
SELECT group_key FROM fairq.pop('levels_lapsed', lease => '1 us');
SELECT fairq.pause('levels_lapsed', 'acme/ann');
SELECT count(*) FROM fairq.pop('levels_lapsed', 9);
SELECT fairq.resume('levels_lapsed', 'acme/ann');
SELECT group_key, attempt FROM fairq.pop('levels_lapsed', 9);

-- A queue with tenants is dropped like any other queue, without an effect on other queues.
SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue ~ '^levels' ORDER BY queue;
DROP ROLE regress_fairq_levels;
SELECT count(*) FROM fairq.group_number WHERE group_key ~ '/';

-- A separator is an ASCII character, also in a single-byte encoding.
SELECT current_database() AS db \gset
CREATE DATABASE levels_latin1 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
\c levels_latin1
SET client_encoding = 'UTF8';
CREATE EXTENSION fairq;
SELECT fairq.create_queue('levels_bad', separator => 'ÿ');
\set VERBOSITY terse
INSERT INTO fairq.queue (name, separator) VALUES ('levels_bad', 'ÿ');
\set VERBOSITY default
\c :"db"
DROP DATABASE levels_latin1;
