-- An upper bound on the number of tasks that are served before a task.
-- test/suite/turns_before compares it with the number of tasks that are served.
--
-- Fails if the weights of other groups do not count (others_per_block() in
-- inspect.c).
\a \pset footer off
\set VERBOSITY sqlstate

CREATE FUNCTION pg_temp.add(VARIADIC payloads text[]) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue('turns_before', left(p, 1), to_jsonb(p))) FROM unnest(payloads) p
$$;
CREATE VIEW pg_temp.before AS
	SELECT payload #>> '{}' AS task, status, fairq.turns_before(id) AS before
	FROM fairq.tasks WHERE queue = 'turns_before' ORDER BY id;
CREATE FUNCTION pg_temp.pop(n int) RETURNS text
LANGUAGE sql AS $$ SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop('turns_before', n) $$;

SELECT fairq.create_queue('turns_before');
SELECT fairq.turns_before(NULL), fairq.turns_before(-1);
-- the bound counts the group's own tasks, then also those of other groups, and
-- falls as turns pass
SELECT pg_temp.add('a1', 'a2', 'a3');
SELECT * FROM pg_temp.before;
SELECT pg_temp.add('b1', 'b2', 'c1');
SELECT * FROM pg_temp.before;
SELECT pg_temp.pop(1);
SELECT * FROM pg_temp.before;
SELECT pg_temp.pop(2);
SELECT * FROM pg_temp.before;
-- running, scheduled and finished tasks have no bound
SELECT fairq.fail(id, retry_in => '1 hour') FROM fairq.tasks WHERE queue = 'turns_before' AND status = 'running' AND payload = '"a1"';
SELECT fairq.reschedule(id, 'infinity') FROM fairq.tasks WHERE queue = 'turns_before' AND payload = '"a3"';
SELECT * FROM pg_temp.before;
-- due tasks of a group come before its other tasks
SELECT fairq.reschedule(id) FROM fairq.tasks WHERE queue = 'turns_before' AND payload IN ('"a1"', '"a3"');
SELECT * FROM pg_temp.before;
SELECT pg_temp.pop(100);
SELECT count(fairq.complete(id)) FROM fairq.tasks WHERE queue = 'turns_before';
-- weights
SELECT fairq.set_group('turns_before', 'a', weight => 2), fairq.set_group('turns_before', 'b', weight => 10), fairq.set_group('turns_before', 'z', weight => 100);
SELECT pg_temp.add('a4', 'a5', 'a6', 'a7', 'a8', 'b3', 'c2');
SELECT * FROM pg_temp.before;
-- groups that are paused, or at their limit, count, since they may return
SELECT fairq.pause('turns_before', 'b');
SELECT pg_temp.pop(2);
SELECT * FROM pg_temp.before;
SELECT fairq.resume('turns_before', 'b');
-- if there are more tasks than the function counts one by one, it estimates their number
-- from blocks
SELECT count(*) FROM fairq.enqueue_batch('turns_before', array_fill('d'::text, ARRAY[3000]), array_fill('"d"'::jsonb, ARRAY[3000]));
SELECT fairq.turns_before(max(id)) >= 2999, fairq.turns_before(max(id)) < 3001 * 16 FROM fairq.tasks WHERE queue = 'turns_before';
-- a task of another priority, which the calling transaction has enqueued
BEGIN;
SELECT fairq.turns_before(fairq.enqueue('turns_before', 'e', '"e"', 7));
ROLLBACK;
-- no bound is known after reset_hints()
SELECT fairq.reset_hints();
SELECT count(before) FROM pg_temp.before;
SELECT fairq.maintain('turns_before');
SELECT count(before) > 0 AS known FROM pg_temp.before;
BEGIN READ ONLY;
SELECT count(before) > 0 AS known FROM pg_temp.before;
COMMIT;
-- cost-fair and time-fair queues have no rounds
SELECT fairq.create_queue('turns_before_' || f, fair_by => f) FROM unnest('{cost,time}'::text[]) f;
SELECT fairq.turns_before(fairq.enqueue('turns_before_' || f, 'a')) FROM unnest('{cost,time}'::text[]) f;
SELECT fairq.drop_queue('turns_before_' || f, true) FROM unnest('{cost,time}'::text[]) f;
SELECT * FROM fairq.check_queue('turns_before');
SELECT fairq.drop_queue('turns_before', true);
