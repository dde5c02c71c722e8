-- Every call that writes is undone by a caught exception, by an error of its
-- own, and by a rollback to a savepoint. The tables are as before. The next
-- pops serve the same tasks, which shows that the hints are as before, too.
--
-- Fails if a task whose claim is undone is not ready again (fairq_claim()).
\a \pset footer off
\set VERBOSITY sqlstate
-- this setting makes the many small transactions below faster
SET synchronous_commit = off;

-- A queue with tasks in each state. a1 is running, and a2 and a3 wait for it,
-- since a is limited. The lease of b1 has expired, c1 is running, and b2 and c2
-- are ready. d1 is scheduled, e1 has failed, and f1 is running and cancelled.
CREATE FUNCTION pg_temp.make(queue text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fairq.create_queue(queue, retain => '1 day', block_length => 100);
	PERFORM fairq.enqueue(queue, left(p, 1), to_jsonb(p), dedup_key => p)
	FROM unnest('{e1,a1,b1,c1,f1}'::text[]) p;
	PERFORM fairq.set_group(queue, 'a', concurrency => 1);
	PERFORM fairq.fail(id, dead => true) FROM fairq.pop(queue);
	PERFORM fairq.pop(queue, 4);
	PERFORM fairq.cancel(pg_temp.id(queue, 'f1'));
	PERFORM fairq.enqueue(queue, left(p, 1), to_jsonb(p)) FROM unnest('{a2,a3,b2,c2}'::text[]) p;
	PERFORM fairq.enqueue(queue, 'd', '"d1"', run_at => 'infinity', dedup_key => 'd1');
	PERFORM fairq.extend(pg_temp.id(queue, 'b1'), lease => '1 microsecond');
END $$;

-- The id of the queue's task with that payload.
CREATE FUNCTION pg_temp.id(queue text, payload text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT t.id FROM fairq.queue q JOIN fairq.task t USING (queue_id)
	WHERE q.name = id.queue AND t.payload = to_jsonb(id.payload)
$$;

-- A hash of all rows of a queue, and of queues whose names begin with its
-- name.
CREATE FUNCTION pg_temp.rows(name text) RETURNS text
LANGUAGE sql AS $$
	WITH q AS (SELECT q.*, queue_id AS id FROM fairq.queue q WHERE starts_with(q.name, $1))
	SELECT md5(string_agg(r, chr(10) ORDER BY r COLLATE "C")) FROM (
		SELECT 'task ' || t FROM fairq.task t, q WHERE t.queue_id = q.id
		UNION ALL SELECT 'archive ' || t FROM fairq.archive t, q WHERE t.queue_id = q.id
		UNION ALL SELECT 'dedup ' || t FROM fairq.dedup t, q WHERE t.queue_id = q.id
		UNION ALL SELECT 'queue ' || q FROM q
		UNION ALL SELECT 'group ' || t FROM fairq.group_number t, q WHERE t.queue_id = q.id
		UNION ALL SELECT 'setting ' || t FROM fairq.group_setting t, q WHERE t.queue_id = q.id
		UNION ALL SELECT 'privilege ' || t FROM fairq.queue_privilege t, q WHERE t.queue_id = q.id) r (r)
$$;

CREATE FUNCTION pg_temp.fails() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	RAISE division_by_zero;
END $$;

-- Makes a call and undoes it. Returns NULL if the call changed something and
-- the tables are as before.
CREATE FUNCTION pg_temp.undone(queue text, call text, how text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	before text := pg_temp.rows(queue);
	during text;
BEGIN
	BEGIN
		IF how = 'error in the statement' THEN
			EXECUTE format('SELECT pg_temp.fails() FROM (SELECT %s OFFSET 0) c', call);
		ELSE
			-- the call's own subtransaction commits before the error
			BEGIN
				EXECUTE 'SELECT ' || call;
			EXCEPTION WHEN division_by_zero THEN
				NULL;
			END;
		END IF;
		during := pg_temp.rows(queue);
		PERFORM pg_temp.fails();
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	RETURN CASE WHEN pg_temp.rows(queue) <> before THEN 'the tables are not as before'
		WHEN during = before THEN 'the call did nothing' END;
END $$;

CREATE TEMP TABLE call (n int GENERATED ALWAYS AS IDENTITY, call text, how text, queue text, before text, problem text, served text);
-- The tasks that a queue serves from now on, pop by pop. If no task is ready,
-- a slot is freed. Each call runs in a transaction of its own.
CREATE PROCEDURE pg_temp.serve_rest(n int)
LANGUAGE plpgsql AS $$
DECLARE
	name text := (SELECT queue FROM call WHERE call.n = serve_rest.n);
	rest text;
	task text;
BEGIN
	FOR i IN 1..6 LOOP
		SELECT payload #>> '{}' INTO task FROM fairq.pop(name);
		COMMIT;
		rest := concat_ws(' ', rest, coalesce(task, '-'));
		IF task IS NULL THEN
			PERFORM fairq.complete(pg_temp.id(name, 'a1'));
			COMMIT;
		END IF;
	END LOOP;
	UPDATE call SET served = rest WHERE call.n = serve_rest.n;
END $$;

INSERT INTO call (call, how)
SELECT call, how FROM unnest(ARRAY[
	$$ fairq.enqueue('@', 'b', '"b3"') $$,
	$$ fairq.enqueue('@', 'a', '"a4"') $$,
	$$ fairq.enqueue('@', 'new', '"n1"', priority => 1) $$,
	$$ fairq.enqueue('@', 'd', '"d2"', run_at => now() + '1 hour', dedup_key => 'd2') $$,
	$$ fairq.enqueue('@', 'e', '"e2"', dedup_key => 'e1') $$,
	$$ fairq.enqueue_batch('@', '{new,b,a,b}', '{1,2,3,4}', dedup_keys => '{k,NULL,l,b1}') $$,
	$$ fairq.pop('@') $$,
	$$ fairq.pop('@', 100) $$,
	$$ fairq.pop('@', 100, '1 microsecond', per_group => 1) $$,
	$$ fairq.take('@') $$,
	$$ fairq.take('@', 100) $$,
	$$ fairq.complete(pg_temp.id('@', 'a1')) $$,
	$$ fairq.complete(pg_temp.id('@', 'b1'), 1, '"late"') $$,
	$$ fairq.complete_batch((SELECT array_agg(id) FROM fairq.tasks WHERE queue = '@' AND status = 'running')) $$,
	$$ fairq.fail(pg_temp.id('@', 'a1'), 1, 'no') $$,
	$$ fairq.fail(pg_temp.id('@', 'a1'), retry_in => '0') $$,
	$$ fairq.fail(pg_temp.id('@', 'a1'), dead => true) $$,
	$$ fairq.fail(pg_temp.id('@', 'f1')) $$,
	$$ fairq.release(pg_temp.id('@', 'a1')) $$,
	$$ fairq.release(pg_temp.id('@', 'b1')) $$,
	$$ fairq.release(pg_temp.id('@', 'c1'), delay => '1 hour') $$,
	$$ fairq.release(pg_temp.id('@', 'f1')) $$,
	$$ fairq.extend(pg_temp.id('@', 'b1'), lease => '1 hour') $$,
	$$ fairq.extend(pg_temp.id('@', 'c1'), lease => '1 microsecond') $$,
	$$ fairq.cancel(pg_temp.id('@', 'a1')) $$,
	$$ fairq.cancel(pg_temp.id('@', 'b1')) $$,
	$$ fairq.cancel(pg_temp.id('@', 'a2')) $$,
	$$ fairq.cancel(pg_temp.id('@', 'b2')) $$,
	$$ fairq.cancel(pg_temp.id('@', 'd1')) $$,
	$$ fairq.purge('@') $$,
	$$ fairq.purge('@', 'a') $$,
	$$ fairq.purge('@', 'b') $$,
	$$ fairq.expire_leases('@') $$,
	$$ fairq.redrive('@') $$,
	$$ fairq.maintain('@') $$,
	$$ fairq.set_group('@', 'a', concurrency => 0) $$,
	$$ fairq.set_group('@', 'a', concurrency => 2) $$,
	$$ fairq.set_group('@', 'b', concurrency => 1, weight => 2) $$,
	$$ fairq.set_group('@', 'new', weight => 2) $$,
	$$ fairq.pause('@') $$,
	$$ fairq.pause('@', 'b') $$,
	$$ fairq.pause('@', 'new') $$,
	$$ fairq.alter_queue('@', concurrency => 1, max_running => 1, lease => '1 hour', notify => true) $$,
	$$ fairq.alter_queue('@', block_length => 10) $$,
	$$ fairq.grant_queue('@', current_user::regrole, 'work') $$,
	$$ fairq.drop_queue('@', true) $$,
	$$ fairq.create_queue('@ too', concurrency => 1) $$
	]) call, unnest('{error in the statement,error outside,savepoint}'::text[]) how;
UPDATE call SET queue = format('exceptions_%s.', n), call = replace(trim(call), '@', format('exceptions_%s.', n));

-- The test makes and undoes a call, and serves tasks, before it makes the next
-- call. Otherwise a call after which all hints are read again would hide
-- errors of earlier calls.
SELECT count(pg_temp.make(queue)) FROM call;
UPDATE call SET before = pg_temp.rows(queue);
\set ECHO none
\o /dev/null
SELECT CASE WHEN how = 'savepoint' THEN format('BEGIN; SAVEPOINT s; SELECT %s; ROLLBACK TO s; COMMIT', call)
		ELSE format('UPDATE call SET problem = pg_temp.undone(queue, call, how) WHERE n = %s', n) END,
	format('UPDATE call SET problem = ''the tables are not as before'' WHERE n = %s AND pg_temp.rows(queue) <> before', n),
	format('UPDATE call SET problem = concat_ws('', '', problem, (SELECT string_agg(c, '', '') FROM fairq.check_queue(queue) c)) WHERE n = %s', n),
	format('CALL pg_temp.serve_rest(%s)', n)
FROM call ORDER BY n \gexec
\o
\set ECHO all
SELECT call, how, problem FROM call WHERE problem <> '' ORDER BY n;
-- b1 comes first, unless an undone pop has used b's turn in this round: then c2
-- comes first
SELECT DISTINCT served FROM call WHERE served NOT IN ('b1 c2 b2 - a2 -', 'c2 b1 b2 - a2 -');
SELECT DISTINCT call FROM call WHERE served = 'c2 b1 b2 - a2 -' AND call !~ 'fairq\.(pop|take)\(';
SELECT DISTINCT c FROM call, fairq.check_queue(queue) c;

SELECT bool_and(fairq.drop_queue(queue, true)) FROM call;
