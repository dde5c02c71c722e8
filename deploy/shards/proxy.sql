-- One address for the queues of several databases: PL/Proxy's functions for a
-- proxy database, which holds no task.  Not part of the extension.
--
--   psql -d proxy -v ON_ERROR_STOP=1 -1 -f proxy.sql
--
-- First, in the proxy database, create the extension plproxy and a server "fairq".
-- The server has a connection for each shard. p0 is the connection to shard 1
-- (README.md).  The file can be run again.  Run it again when a new version of
-- fairq has other functions.
--
-- A group lives on one shard, which the hash of its key determines forever.  A task's id
-- contains the number of its shard (fairq.set_shard).  Each call also compares the
-- shard's number, so a wrong list of shards sends no task to a wrong shard.
--
-- Schema fairq has the functions for applications, with the names and arguments of the
-- extension.  Schema fairq_proxy has the functions for one shard: shard p + 1 is on
-- connection p.  A shard's own errors arrive with their SQLSTATEs.  If a shard cannot be
-- reached, the error is 08006.  Calls run on the shards in transactions of their own,
-- which a rollback here does not undo.
--
-- PL/Proxy sends times and numbers as text.  So both sides must write a format that
-- any server reads, whatever the settings of the caller and the shard.  Functions that
-- send arguments have SET clauses, and set_config() on the shard sets the format of
-- times in results.  Intervals in results are never negative, so the proxy can
-- read any style.

SET LOCAL client_min_messages = warning;

CREATE SCHEMA IF NOT EXISTS fairq;
CREATE SCHEMA IF NOT EXISTS fairq_proxy;
GRANT USAGE ON SCHEMA fairq, fairq_proxy TO PUBLIC;

-- The number of shards.  It is fixed here, because another number would move groups to
-- other shards.
DO $$
DECLARE
	shards int;
BEGIN
	SELECT count(*) INTO shards FROM pg_foreign_server s, unnest(s.srvoptions) o
	WHERE s.srvname = 'fairq' AND o ~ '^p\d+=';
	IF shards = 0 THEN
		RAISE 'there is no server "fairq" with connections p0, p1 and so on';
	ELSIF shards & (shards - 1) <> 0 OR shards > 512 THEN
		RAISE 'the number of shards must be a power of two, and at most 512'
			USING DETAIL = format('Server "fairq" has %s.', shards);
	ELSIF to_regprocedure('fairq_proxy.shards()') IS NOT NULL THEN
		IF fairq_proxy.shards() <> shards THEN
			RAISE 'the number of shards cannot change from % to %',
				fairq_proxy.shards(), shards
				USING HINT = 'Groups would move to other shards than their tasks.';
		END IF;
		RETURN;
	END IF;
	EXECUTE format('CREATE FUNCTION fairq_proxy.shards() RETURNS int
		LANGUAGE sql IMMUTABLE PARALLEL SAFE AS ''SELECT %s''', shards);
END
$$;

-- The shard of a group, which is some bits of an md5.  Unlike hashtext(), md5
-- is the same in all versions and on all machines.
CREATE OR REPLACE FUNCTION fairq_proxy.shard_of_group(group_key text)
	RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF group_key IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'group_key must not be NULL';
	END IF;
	RETURN (('x' || left(md5(convert_to(group_key, 'UTF8')), 8))::bit(32)::int
		& (fairq_proxy.shards() - 1)) + 1;
END
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.shard_of_task(id bigint)
	RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF id IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'id must not be NULL';
	ELSIF id < 1::bigint << 43 OR id >> 43 > fairq_proxy.shards() THEN
		RAISE 'the id is of no shard' USING ERRCODE = 'QF003',
			DETAIL = format('The value is %s; there are shards 1 to %s.', id,
				fairq_proxy.shards());
	END IF;
	RETURN id >> 43;
END
$$;

-- Reports the shard of an error of PL/Proxy.  If shard is NULL, finds the
-- shard.
CREATE OR REPLACE FUNCTION fairq_proxy.failed(shard int, error text)
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	shards text := coalesce(shard::text, (SELECT string_agg(s.shard::text, ', ')
		FROM fairq_proxy.state() s WHERE s.error IS NOT NULL), 'of the call');
BEGIN
	IF error ~ 'REMOTE ERROR' THEN
		RAISE internal_error USING MESSAGE = format('shard %s: %s', shards, error);
	END IF;
	RAISE connection_failure USING
		MESSAGE = format('shard %s cannot be reached', shards),
		DETAIL = trim(E' \n' FROM error),
		HINT = 'If the connection was lost during the call, the call may have taken effect.';
END
$$;

--
-- The shards to which a call goes, as the numbers of their connections
--

CREATE OR REPLACE FUNCTION fairq_proxy.number(p int) RETURNS int
	LANGUAGE plproxy AS $$
	CLUSTER 'fairq';
	RUN ON p;
	SELECT fairq.shard(p + 1);
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.has_queue(p int, name text) RETURNS boolean
	LANGUAGE plproxy AS $$
	CLUSTER 'fairq';
	RUN ON p;
	SELECT EXISTS (SELECT FROM fairq.queues q WHERE q.queue = name)
		FROM fairq.shard(p + 1);
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.of_task(id bigint) RETURNS int[]
	LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN id IS NULL THEN '{}'
		ELSE ARRAY[fairq_proxy.shard_of_task(id) - 1] END
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.of_group(group_key text) RETURNS int[]
	LANGUAGE sql IMMUTABLE
	AS 'SELECT ARRAY[fairq_proxy.shard_of_group(group_key) - 1]';

-- Returns the given shards.  Fails if one of them is not the shard of the group
-- that gets their tasks.
CREATE OR REPLACE FUNCTION fairq_proxy.to_group(ps int[], group_key text)
	RETURNS int[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF group_key IS NOT NULL AND NOT ps <@ fairq_proxy.of_group(group_key) THEN
		RAISE feature_not_supported USING
			MESSAGE = format('tasks cannot move to shard %s of group "%s"',
				fairq_proxy.shard_of_group(group_key), group_key),
			DETAIL = 'A redriven task stays on its shard.';
	END IF;
	RETURN ps;
END
$$;

-- All shards, if all can be reached, so that a call rarely takes effect on only some of
-- them.
CREATE OR REPLACE FUNCTION fairq_proxy.of_all() RETURNS int[]
	LANGUAGE plpgsql AS $$
DECLARE
	ps int[];
BEGIN
	FOR p IN 0 .. fairq_proxy.shards() - 1 LOOP
		FOR try IN 1 .. 2 LOOP	-- the connection may have been lost long ago
			BEGIN
				PERFORM fairq_proxy.number(p);
				EXIT;
			EXCEPTION WHEN internal_error THEN
				IF try = 2 THEN
					PERFORM fairq_proxy.failed(p + 1, SQLERRM);
				END IF;
			END;
		END LOOP;
		ps := ps || p;
	END LOOP;
	RETURN ps;
END
$$;

-- The shards that have a queue, or those that lack it, so that an interrupted
-- call can be repeated.  If there are none, that is an error unless skip is
-- true.
CREATE OR REPLACE FUNCTION fairq_proxy.of_queue(queue text, has boolean, skip boolean)
	RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	ps int[];
BEGIN
	IF queue IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'queue must not be NULL';
	END IF;
	SELECT array_agg(p) INTO ps FROM unnest(fairq_proxy.of_all()) p
	WHERE fairq_proxy.has_queue(p, queue) = has;
	IF ps IS NULL AND skip THEN
		RAISE NOTICE 'queue "%" %, skipping', queue,
			CASE WHEN has THEN 'does not exist' ELSE 'already exists' END
			USING ERRCODE = CASE WHEN has THEN 'QF001' ELSE 'QF002' END;
	ELSIF ps IS NULL AND has THEN
		RAISE 'queue "%" does not exist', queue USING ERRCODE = 'QF001';
	ELSIF ps IS NULL THEN
		RAISE 'queue "%" already exists', queue USING ERRCODE = 'QF002';
	END IF;
	RETURN coalesce(ps, '{}');
END
$$;

-- The shards of a new queue.  No separator is allowed: the hash of a group's whole key
-- determines its shard, so a tenant would be on several shards.
CREATE OR REPLACE FUNCTION fairq_proxy.of_new_queue(queue text, separator text, skip boolean)
	RETURNS int[] LANGUAGE plpgsql AS $$
BEGIN
	IF separator IS NOT NULL THEN
		RAISE feature_not_supported USING
			MESSAGE = 'a queue on several servers cannot have a separator';
	END IF;
	RETURN fairq_proxy.of_queue(queue, false, skip);
END
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.has_tasks(p int, name text) RETURNS boolean
	LANGUAGE plproxy AS $$
	CLUSTER 'fairq';
	RUN ON p;
	SELECT EXISTS (SELECT FROM fairq.live_tasks t WHERE t.queue = name)
		FROM fairq.shard(p + 1);
$$;

-- The shards that drop a queue.  Fails if one of them would refuse the drop.  A shard
-- that drops the queue loses the queue's settings and archive.
CREATE OR REPLACE FUNCTION fairq_proxy.of_drop(queue text, force boolean, skip boolean)
	RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	ps int[] := fairq_proxy.of_queue(queue, true, skip);
	p int;
BEGIN
	IF NOT coalesce(force, false) THEN
		FOREACH p IN ARRAY ps LOOP
			IF fairq_proxy.has_tasks(p, queue) THEN
				RAISE 'cannot drop queue "%" because it is not empty', queue
					USING ERRCODE = 'QF004',
					DETAIL = format('Shard %s has tasks of the queue.', p + 1),
					HINT = 'Use force => true to drop it with all its tasks.';
			END IF;
		END LOOP;
	END IF;
	RETURN ps;
END
$$;

--
-- Calls.  make() creates each function from its name, arguments, result and
-- shards
--

CREATE FUNCTION pg_temp.make(name text, arguments text, result text, shards text)
	RETURNS void LANGUAGE plpgsql AS $make$
DECLARE
	typed text := regexp_replace(arguments, ' DEFAULT [^,]+', '', 'g');
	names text := regexp_replace(typed, '(\w+) [^,]+', '\1', 'g');
BEGIN
	EXECUTE format($f$
		CREATE OR REPLACE FUNCTION fairq_proxy.%1$I(p int, %2$s) RETURNS %3$s
			LANGUAGE plproxy SET datestyle = 'ISO, YMD'
			SET intervalstyle = 'postgres' SET extra_float_digits = 1 AS $$
			CLUSTER 'fairq';
			RUN ON p;
			SELECT fairq.%1$I(%4$s) FROM fairq.shard(p + 1)%5$s;
		$$ $f$, name, typed, result, names,
		CASE result WHEN 'timestamptz'
			THEN ', set_config(''datestyle'', ''ISO, YMD'', true)' ELSE '' END);
	EXECUTE format($f$
		CREATE OR REPLACE FUNCTION fairq.%1$I(%2$s) RETURNS %3$s
			LANGUAGE plpgsql AS $$
		DECLARE
			p int;
			%4$s
		BEGIN
			FOREACH p IN ARRAY %5$s LOOP
				BEGIN
					%6$s fairq_proxy.%1$I(p, %7$s)%9$s;
				EXCEPTION WHEN internal_error THEN
					PERFORM fairq_proxy.failed(p + 1, SQLERRM);
				END;
			END LOOP;
			%8$s
		END
		$$ $f$, name, arguments, result,
		CASE result WHEN 'void' THEN ''
			WHEN 'bigint' THEN 'total bigint := 0;'
			WHEN 'boolean' THEN 'total boolean := false;'
			ELSE format('total %s;', result) END,
		shards,
		CASE result WHEN 'void' THEN 'PERFORM'
			WHEN 'bigint' THEN 'total := total +'
			ELSE 'total :=' END,
		names, CASE result WHEN 'void' THEN '' ELSE 'RETURN total;' END,
		CASE result WHEN 'boolean' THEN ' OR total' ELSE '' END);
END
$make$;

DO $$
DECLARE
	settings text := 'concurrency int DEFAULT NULL, max_running int DEFAULT NULL,
		lease interval DEFAULT %L, max_attempts int DEFAULT %L,
		backoff interval DEFAULT %L, retain interval DEFAULT NULL,
		notify boolean DEFAULT %L, block_length bigint DEFAULT %s,
		fair_by text DEFAULT %L, rate int DEFAULT NULL, per interval DEFAULT %L,
		burst int DEFAULT %L, max_rate int DEFAULT NULL, shares int[] DEFAULT NULL,
		in_order boolean DEFAULT %L, retain_failed interval DEFAULT NULL,
		max_run_time interval DEFAULT NULL, backoff_max interval DEFAULT %L';
	by_group text := 'fairq_proxy.of_group(group_key)';
	by_task text := 'fairq_proxy.of_task(id)';
	of_all text := 'fairq_proxy.of_all()';
	by_group_or_all text :=
		format('CASE WHEN group_key IS NULL THEN %s ELSE %s END', of_all, by_group);
BEGIN
	PERFORM pg_temp.make('enqueue', 'queue text, group_key text,
		payload jsonb DEFAULT ''{}'', priority int DEFAULT 0,
		run_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL,
		max_attempts int DEFAULT NULL, cost real DEFAULT NULL,
		headers jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
		replace boolean DEFAULT false, dedup_until text DEFAULT ''finished'',
		dedup_for interval DEFAULT NULL, delay interval DEFAULT NULL,
		batch bigint DEFAULT NULL, after bigint[] DEFAULT NULL,
		after_any boolean DEFAULT false', 'bigint', by_group);
	-- the batch's tasks must be of groups of its shard: other shards refuse the
	-- batch's id, and tasks that wait for another shard's tasks
	PERFORM pg_temp.make('create_batch', 'queue text, group_key text,
		payload jsonb DEFAULT ''{}'', priority int DEFAULT 0,
		on_success boolean DEFAULT false, max_attempts int DEFAULT NULL,
		headers jsonb DEFAULT NULL, batch bigint DEFAULT NULL', 'bigint', by_group);
	PERFORM pg_temp.make('set_group', 'queue text, group_key text,
		concurrency int DEFAULT NULL, weight int DEFAULT NULL,
		rate int DEFAULT NULL', 'void', by_group);

	PERFORM pg_temp.make('complete', 'id bigint, attempt int DEFAULT NULL,
		result jsonb DEFAULT NULL, took interval DEFAULT NULL', 'boolean', by_task);
	PERFORM pg_temp.make('fail', 'id bigint, attempt int DEFAULT NULL,
		error text DEFAULT NULL, retry_in interval DEFAULT NULL,
		dead boolean DEFAULT false, took interval DEFAULT NULL', 'boolean', by_task);
	PERFORM pg_temp.make('release', 'id bigint, attempt int DEFAULT NULL,
		delay interval DEFAULT ''0''', 'boolean', by_task);
	PERFORM pg_temp.make('extend', 'id bigint, attempt int DEFAULT NULL,
		lease interval DEFAULT NULL', 'timestamptz', by_task);
	PERFORM pg_temp.make('set_progress', 'id bigint, attempt int, progress jsonb',
		'boolean', by_task);
	PERFORM pg_temp.make('reschedule', 'id bigint,
		run_at timestamptz DEFAULT now()', 'boolean', by_task);
	PERFORM pg_temp.make('cancel', 'id bigint', 'boolean', by_task);
	PERFORM pg_temp.make('close_batch', 'id bigint', 'boolean', by_task);
	PERFORM pg_temp.make('cancel_batch', 'id bigint', 'bigint', by_task);
	PERFORM pg_temp.make('redrive', 'id bigint, to_queue text DEFAULT NULL,
		to_priority int DEFAULT NULL, to_group text DEFAULT NULL', 'boolean',
		format('fairq_proxy.to_group(%s, to_group)', by_task));

	PERFORM pg_temp.make('create_queue', 'queue text, ' || format(settings,
		'5 minutes', 20, '1 second', false, 1048576, 'tasks', '1 minute', 1, false, '1 hour') ||
		', separator text DEFAULT NULL, if_not_exists boolean DEFAULT false',
		'void', 'fairq_proxy.of_new_queue(queue, separator, if_not_exists)');
	PERFORM pg_temp.make('alter_queue', 'queue text, ' || format(settings,
		NULL, NULL, NULL, NULL, 'NULL', NULL, NULL, NULL, NULL, NULL), 'void', of_all);
	PERFORM pg_temp.make('drop_queue', 'queue text, force boolean DEFAULT false,
		if_exists boolean DEFAULT false',
		'boolean', 'fairq_proxy.of_drop(queue, force, if_exists)');
	PERFORM pg_temp.make('maintain', 'queue text DEFAULT NULL', 'void', of_all);

	PERFORM pg_temp.make('pause', 'queue text, group_key text DEFAULT NULL',
		'void', by_group_or_all);
	PERFORM pg_temp.make('resume', 'queue text, group_key text DEFAULT NULL',
		'void', by_group_or_all);
	PERFORM pg_temp.make('hold', 'queue text, group_key text DEFAULT NULL,
		until timestamptz DEFAULT NULL', 'void', by_group_or_all);
	PERFORM pg_temp.make('purge', 'queue text, group_key text DEFAULT NULL',
		'bigint', by_group_or_all);
	-- without a group, each shard redrives at most max_tasks
	PERFORM pg_temp.make('redrive', 'queue text, group_key text DEFAULT NULL,
		max_tasks int DEFAULT NULL, to_queue text DEFAULT NULL,
		to_priority int DEFAULT NULL, to_group text DEFAULT NULL', 'bigint',
		format('fairq_proxy.to_group(%s, to_group)', by_group_or_all));
	PERFORM pg_temp.make('purge_failed', 'queue text, group_key text DEFAULT NULL,
		older_than interval DEFAULT ''0''', 'bigint', by_group_or_all);
END
$$;

--
-- Batches: the parts of a batch go to their shards at the same time.  Each part
-- succeeds or fails separately.
--

CREATE OR REPLACE FUNCTION fairq_proxy.enqueue_batch(ps int[], queue text,
	group_keys text[], payloads jsonb[], priority int, run_at timestamptz,
	dedup_keys text[], costs real[], priorities int[], run_ats timestamptz[],
	headers jsonb[], expires_at timestamptz, delay interval, batch bigint,
	after bigint[], after_any boolean,
	has_dedup_keys boolean, has_costs boolean, has_priorities boolean, has_run_ats boolean)
	RETURNS SETOF bigint LANGUAGE plproxy SET datestyle = 'ISO, YMD'
	SET intervalstyle = 'postgres' SET extra_float_digits = 1 AS $$
	CLUSTER 'fairq';
	SPLIT ps, group_keys, payloads, dedup_keys, costs, priorities, run_ats, headers;
	RUN ON ps;
	SELECT b.id FROM fairq.shard((ps)[1] + 1),
		fairq.enqueue_batch(queue, group_keys, payloads, priority, run_at,
			CASE WHEN has_dedup_keys THEN dedup_keys END,
			CASE WHEN has_costs THEN costs END,
			CASE WHEN has_priorities THEN priorities END,
			CASE WHEN has_run_ats THEN run_ats END, headers, expires_at, delay,
			batch, after, after_any) b(id);
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.turns_before(p int, id bigint)
	RETURNS bigint LANGUAGE plproxy AS $$
	CLUSTER 'fairq';
	RUN ON p;
	SELECT fairq.turns_before(id) FROM fairq.shard(p + 1);
$$;

-- Asks the task's own shard, since only tasks of that shard take turns with it.
CREATE OR REPLACE FUNCTION fairq.turns_before(id bigint) RETURNS bigint
	LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN id IS NOT NULL
		THEN fairq_proxy.turns_before(fairq_proxy.shard_of_task(id) - 1, id) END;
EXCEPTION WHEN internal_error THEN
	PERFORM fairq_proxy.failed(fairq_proxy.shard_of_task(id), SQLERRM);
END
$$;

-- A key is unique only within a shard, so all shards are searched.
CREATE OR REPLACE FUNCTION fairq_proxy.find(p int, queue text, dedup_key text)
	RETURNS bigint LANGUAGE plproxy AS $$
	CLUSTER 'fairq';
	RUN ON p;
	SELECT fairq.find(queue, dedup_key) FROM fairq.shard(p + 1);
$$;

CREATE OR REPLACE FUNCTION fairq.find(queue text, dedup_key text) RETURNS bigint
	LANGUAGE plpgsql AS $$
DECLARE
	p int;
	id bigint;
BEGIN
	FOREACH p IN ARRAY fairq_proxy.of_all() LOOP
		BEGIN
			id := fairq_proxy.find(p, queue, dedup_key);
		EXCEPTION WHEN internal_error THEN
			PERFORM fairq_proxy.failed(p + 1, SQLERRM);
		END;
		IF id IS NOT NULL THEN
			RETURN id;
		END IF;
	END LOOP;
	RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.enqueue_or_find(p int, queue text,
	group_key text, payload jsonb, priority int, run_at timestamptz, dedup_key text,
	max_attempts int, cost real, headers jsonb, expires_at timestamptz,
	replace boolean, dedup_until text, dedup_for interval, delay interval,
	batch bigint, after bigint[], after_any boolean, OUT id bigint,
	OUT added boolean)
	LANGUAGE plproxy SET datestyle = 'ISO, YMD'
	SET intervalstyle = 'postgres' SET extra_float_digits = 1 AS $$
	CLUSTER 'fairq';
	RUN ON p;
	SELECT e.id, e.added FROM fairq.shard(p + 1), fairq.enqueue_or_find(queue,
		group_key, payload, priority, run_at, dedup_key, max_attempts, cost,
		headers, expires_at, replace, dedup_until, dedup_for, delay, batch,
		after, after_any) e;
$$;

CREATE OR REPLACE FUNCTION fairq.enqueue_or_find(queue text, group_key text,
	payload jsonb DEFAULT '{}', priority int DEFAULT 0,
	run_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL,
	max_attempts int DEFAULT NULL, cost real DEFAULT NULL,
	headers jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
	replace boolean DEFAULT false, dedup_until text DEFAULT 'finished',
	dedup_for interval DEFAULT NULL, delay interval DEFAULT NULL,
	batch bigint DEFAULT NULL, after bigint[] DEFAULT NULL,
	after_any boolean DEFAULT false, OUT id bigint, OUT added boolean)
	LANGUAGE plpgsql AS $$
DECLARE
	p int := fairq_proxy.shard_of_group(group_key) - 1;
BEGIN
	SELECT e.id, e.added INTO id, added
	FROM fairq_proxy.enqueue_or_find(p, queue, group_key, payload, priority,
		run_at, dedup_key, max_attempts, cost, headers, expires_at, replace,
		dedup_until, dedup_for, delay, batch, after, after_any) e;
EXCEPTION WHEN internal_error THEN
	PERFORM fairq_proxy.failed(p + 1, SQLERRM);
END
$$;

-- Refuses an array that is NULL although it is required, or whose length
-- differs from n, the length of the array partner.
CREATE OR REPLACE FUNCTION fairq_proxy.check_array(name text, "values" anyarray,
	needed boolean, partner text, n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF needed AND "values" IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = format('%s must not be NULL', name);
	ELSIF array_ndims("values") > 1 OR cardinality("values") <> n THEN
		RAISE invalid_parameter_value
			USING MESSAGE = format('%s and %s must have the same length', partner, name);
	ELSIF needed AND array_position("values", NULL) IS NOT NULL THEN
		RAISE invalid_parameter_value
			USING MESSAGE = format('%s must not contain NULL', name);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION fairq.enqueue_batch(queue text, group_keys text[],
	payloads jsonb[], priority int DEFAULT 0, run_at timestamptz DEFAULT NULL,
	dedup_keys text[] DEFAULT NULL, costs real[] DEFAULT NULL,
	priorities int[] DEFAULT NULL, run_ats timestamptz[] DEFAULT NULL,
	headers jsonb[] DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
	delay interval DEFAULT NULL, batch bigint DEFAULT NULL,
	after bigint[] DEFAULT NULL, after_any boolean DEFAULT false)
	RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
	n int := cardinality(group_keys);
	ps int[];
	ids bigint[];
BEGIN
	PERFORM fairq_proxy.check_array('group_keys', group_keys, true, 'group_keys', n),
		fairq_proxy.check_array('payloads', payloads, true, 'group_keys', n),
		fairq_proxy.check_array('dedup_keys', dedup_keys, false, 'group_keys', n),
		fairq_proxy.check_array('costs', costs, false, 'group_keys', n),
		fairq_proxy.check_array('priorities', priorities, false, 'group_keys', n),
		fairq_proxy.check_array('run_ats', run_ats, false, 'group_keys', n),
		fairq_proxy.check_array('headers', headers, false, 'group_keys', n);
	SELECT array_agg(fairq_proxy.shard_of_group(k) - 1 ORDER BY i) INTO ps
	FROM unnest(group_keys) WITH ORDINALITY t(k, i);
	BEGIN
		SELECT array_agg(id ORDER BY i) INTO ids
		FROM fairq_proxy.enqueue_batch(coalesce(ps, '{}'), queue,
			group_keys, payloads, priority, run_at,
			coalesce(dedup_keys, array_fill(NULL::text, ARRAY[n])),
			coalesce(costs, array_fill(NULL::real, ARRAY[n])),
			coalesce(priorities, array_fill(NULL::int, ARRAY[n])),
			coalesce(run_ats, array_fill(NULL::timestamptz, ARRAY[n])),
			coalesce(headers, array_fill(NULL::jsonb, ARRAY[n])), expires_at,
			delay, batch, after, after_any, dedup_keys IS NOT NULL, costs IS NOT NULL, priorities IS NOT NULL,
			run_ats IS NOT NULL) WITH ORDINALITY t(id, i);
	EXCEPTION WHEN internal_error THEN
		PERFORM fairq_proxy.failed(NULL, SQLERRM);
	END;
	-- the ids of a shard are in the order of its part of the input
	RETURN QUERY
	SELECT b.id FROM
		(SELECT p, i, row_number() OVER (PARTITION BY p ORDER BY i) AS nth
		FROM unnest(ps) WITH ORDINALITY t(p, i)) a
	JOIN (SELECT t.id, row_number() OVER (PARTITION BY t.id >> 43 ORDER BY i) AS nth
		FROM unnest(ids) WITH ORDINALITY t(id, i)) b
		ON (b.id >> 43) - 1 = a.p AND b.nth = a.nth
	ORDER BY a.i;
END
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.complete_batch(ps int[], ids bigint[],
	attempts int[], results jsonb[], took interval[], has_attempts boolean,
	has_took boolean)
	RETURNS SETOF bigint LANGUAGE plproxy SET intervalstyle = 'postgres' AS $$
	CLUSTER 'fairq';
	SPLIT ps, ids, attempts, results, took;
	RUN ON ps;
	SELECT unnest(fairq.complete_batch(ids, CASE WHEN has_attempts THEN attempts END,
		results, CASE WHEN has_took THEN took END)) FROM fairq.shard((ps)[1] + 1);
$$;

CREATE OR REPLACE FUNCTION fairq.complete_batch(ids bigint[],
	attempts int[] DEFAULT NULL, results jsonb[] DEFAULT NULL,
	took interval[] DEFAULT NULL)
	RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	n int := cardinality(ids);
	ps int[];
	lost bigint[];
BEGIN
	PERFORM fairq_proxy.check_array('ids', ids, true, 'ids', n),
		fairq_proxy.check_array('attempts', attempts, false, 'ids', n),
		fairq_proxy.check_array('results', results, false, 'ids', n),
		fairq_proxy.check_array('took', took, false, 'ids', n);
	SELECT array_agg(fairq_proxy.shard_of_task(id) - 1 ORDER BY i) INTO ps
	FROM unnest(ids) WITH ORDINALITY t(id, i);
	lost := array(SELECT fairq_proxy.complete_batch(coalesce(ps, '{}'), ids,
		coalesce(attempts, array_fill(NULL::int, ARRAY[n])),
		coalesce(results, array_fill(NULL::jsonb, ARRAY[n])),
		coalesce(took, array_fill(NULL::interval, ARRAY[n])),
		attempts IS NOT NULL, took IS NOT NULL));
	-- lost ids are in the order of the input; if an id occurs twice and is lost
	-- once, its second occurrence is lost
	RETURN array(SELECT id FROM (
			SELECT id, i, row_number() OVER (PARTITION BY id ORDER BY i DESC) AS back
			FROM unnest(ids) WITH ORDINALITY t(id, i)) t
		WHERE back <= (SELECT count(*) FROM unnest(lost) l(id) WHERE l.id = t.id)
		ORDER BY i);
EXCEPTION WHEN internal_error THEN
	PERFORM fairq_proxy.failed(NULL, SQLERRM);
END
$$;

--
-- Views and checks
--

-- Returns each shard, its connection, and its error.
CREATE OR REPLACE FUNCTION fairq_proxy.state()
	RETURNS TABLE (shard int, connection text, error text) LANGUAGE plpgsql AS $$
BEGIN
	FOR shard, connection IN
		SELECT p + 1, regexp_replace(option_value, 'password\s*=\s*(''[^'']*''|\S+)',
			'password=********')
		FROM generate_series(0, fairq_proxy.shards() - 1) p
		LEFT JOIN (SELECT o.* FROM pg_foreign_server s,
			pg_options_to_table(s.srvoptions) o WHERE s.srvname = 'fairq') o
			ON option_name = 'p' || p
		ORDER BY p
	LOOP
		error := NULL;
		BEGIN
			PERFORM fairq_proxy.number(shard - 1);
		EXCEPTION WHEN OTHERS THEN
			error := trim(E' \n' FROM SQLERRM);
		END;
		RETURN NEXT;
	END LOOP;
END
$$;

CREATE OR REPLACE VIEW fairq.shards AS SELECT * FROM fairq_proxy.state();

DO $$
BEGIN
	IF to_regtype('fairq_proxy.queue_stats') IS NULL THEN
		CREATE TYPE fairq_proxy.queue_stats AS (queue text,
			paused boolean, max_running int, queued bigint, scheduled bigint,
			running bigint, groups_active int, groups_limited int,
			groups_paused int, groups_throttled int,
			oldest_ready interval, oldest_limited interval,
			groups_sampled boolean,
			wait_p50 interval, wait_p95 interval, wait_p99 interval,
			run_p50 interval, run_p95 interval, run_p99 interval,
			wait_histogram bigint[], run_histogram bigint[],
			wait_sum interval, run_sum interval,
			enqueued bigint, popped bigint, completed bigint, released bigint,
			retried bigint, failed bigint, cancelled bigint, lapsed bigint,
			expired bigint);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION fairq_proxy.stats(p int)
	RETURNS SETOF fairq_proxy.queue_stats LANGUAGE plproxy AS $$
	CLUSTER 'fairq';
	RUN ON p;
	SELECT q.* FROM fairq.shard(p + 1), fairq.stats q;
$$;

-- The rows of a shard.  A shard that cannot be reached has no rows, and causes a
-- warning.
CREATE OR REPLACE FUNCTION fairq_proxy.stats_if_up(p int)
	RETURNS SETOF fairq_proxy.queue_stats LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT * FROM fairq_proxy.stats(p);
EXCEPTION WHEN internal_error THEN
	RAISE WARNING 'shard % cannot be reached', p + 1
		USING DETAIL = trim(E' \n' FROM SQLERRM);
END
$$;

CREATE OR REPLACE VIEW fairq.stats AS
	SELECT p + 1 AS shard, q.*
	FROM generate_series(0, fairq_proxy.shards() - 1) p,
		LATERAL fairq_proxy.stats_if_up(p) q;

CREATE OR REPLACE FUNCTION fairq_proxy.check_queue(p int, queue text)
	RETURNS SETOF text LANGUAGE plproxy AS $$
	CLUSTER 'fairq';
	RUN ON p;
	SELECT c FROM fairq.shard(p + 1), fairq.check_queue(queue) c;
$$;

CREATE OR REPLACE FUNCTION fairq.check_queue(queue text) RETURNS SETOF text
	LANGUAGE sql AS $$
	SELECT format('shard %s: %s', p + 1, c)
	FROM unnest(fairq_proxy.of_all()) p, fairq_proxy.check_queue(p, queue) c;
$$;
