-- pop and wait for several queues: strictly in the given order, each queue as
-- in a call of its own.
--
-- Fails if the queues are served in the order of their names.
\a \pset footer off
SET client_min_messages = warning;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('urgent', lease => '1 minute'), fairq.create_queue('usual', lease => '1 hour', max_attempts => 7),
	fairq.create_queue('spare', concurrency => 1);
SELECT count(*) FROM fairq.enqueue_batch('usual', '{a,a,b}', '{1,2,3}');
SELECT count(*) FROM fairq.enqueue_batch('urgent', '{x,x,y}', '{4,5,6}');
SELECT count(*) FROM fairq.enqueue_batch('spare', '{s,s}', '{7,8}');

-- tasks come in the order of the queues, and in each queue in the order of
-- service; each queue has its own lease
SELECT queue, group_key, payload, attempts_left, round(extract(epoch FROM lease_until - clock_timestamp()) / 60) AS minutes
FROM fairq.pop('{urgent,usual,spare}'::text[], 5, worker => 'w');
SELECT DISTINCT worker FROM fairq.tasks WHERE status = 'running' AND queue IN ('urgent', 'usual', 'spare');
-- tasks that a limit holds back are skipped
SELECT queue, payload FROM fairq.pop(ARRAY['spare', 'usual'], 9, '1 day', 'w');
SELECT queue, payload FROM fairq.pop(queues => '{spare,usual,urgent}', max_tasks => 9);
CALL fairq.wait('{spare,usual,urgent}'::text[], '0');
SELECT count(fairq.release(id)) FROM fairq.tasks WHERE queue = 'usual';
CALL fairq.wait('{spare,usual,urgent}'::text[], '0');
CALL fairq.wait(ARRAY['urgent', 'spare'], '10 ms');
-- a queue that is given twice is served twice
SELECT queue, payload FROM fairq.pop('{urgent,usual,usual}'::text[], 2) ORDER BY payload;
CALL fairq.wait('{usual,usual}'::text[], '1 second');
SELECT queue, payload FROM fairq.pop('{usual,usual}'::text[], 2);

-- a single name is allowed
SELECT fairq.release(id) FROM fairq.tasks WHERE queue = 'urgent' AND payload = '4';
SELECT queue, payload FROM fairq.pop('urgent');
PREPARE p AS SELECT queue, payload FROM fairq.pop($1, $2);
EXECUTE p('urgent', 1);
SELECT fairq.pop(NULL);
SELECT fairq.pop('{urgent,usual}');
CALL fairq.wait('{urgent,usual}');

-- all queues are checked before the first one is served
SELECT fairq.release(id) FROM fairq.tasks WHERE queue = 'urgent' AND payload = '4';
SELECT fairq.pop('{urgent,none}'::text[]);
CALL fairq.wait('{urgent,none}'::text[]);
CREATE ROLE fairq_several;
SELECT fairq.grant_queue('urgent', 'fairq_several', 'work');
SET ROLE fairq_several;
SELECT fairq.pop('{urgent,usual}'::text[]);
CALL fairq.wait('{urgent,usual}'::text[]);
SELECT queue, payload FROM fairq.pop('{urgent}'::text[]);
RESET ROLE;
SELECT fairq.revoke_queue('urgent', 'fairq_several', 'work');
DROP ROLE fairq_several;

-- invalid arrays and other arguments
SELECT fairq.pop(NULL::text[]);
SELECT fairq.pop('{}'::text[]);
SELECT fairq.pop('{urgent,NULL}'::text[]);
SELECT fairq.pop('{{urgent,usual}}'::text[]);
SELECT fairq.pop(array_fill('urgent'::text, ARRAY[101]));
SELECT count(*) FROM fairq.pop(array_fill('urgent'::text, ARRAY[100]));
SELECT fairq.pop('{urgent}'::text[], 0);
SELECT fairq.pop('{urgent}'::text[], lease => '0');
SELECT fairq.pop('{urgent}'::text[], worker => repeat('x', 1025));
CALL fairq.wait(NULL::text[]);
CALL fairq.wait('{}'::text[]);
CALL fairq.wait('{urgent,NULL}'::text[]);
CALL fairq.wait(array_fill('urgent'::text, ARRAY[101]));
CALL fairq.wait(array_fill('urgent'::text, ARRAY[100]), '1 ms');
CALL fairq.wait('{urgent}'::text[], '-1 ms');
BEGIN;
CALL fairq.wait('{urgent}'::text[]);
ROLLBACK;
BEGIN READ ONLY;
SELECT fairq.pop('{urgent}'::text[]);
ROLLBACK;

-- after a rollback all tasks are there again, in order
SELECT count(*) FROM fairq.enqueue_batch('urgent', '{z,z}', '{10,11}');
SELECT count(fairq.release(id)) FROM fairq.tasks WHERE queue = 'usual';
BEGIN;
SELECT queue, count(*) FROM fairq.pop('{urgent,usual}'::text[], 100) GROUP BY queue ORDER BY queue;
ROLLBACK;
SELECT queue, count(*) FROM fairq.pop('{usual,urgent}'::text[], 100) GROUP BY queue ORDER BY queue;

SELECT q, fairq.check_queue(q) FROM unnest('{urgent,usual,spare}'::text[]) q;
SELECT fairq.drop_queue(q, true) FROM unnest('{urgent,usual,spare}'::text[]) q;
