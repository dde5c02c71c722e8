-- How the planner uses fairq's functions in queries of users.
--
-- Fails if release() has the cost of a function that only reads, or a function
-- in fairq.stats reads all queues (fairq--1.0.sql).
\a \pset footer off
\set VERBOSITY sqlstate

--
-- Conditions that write are evaluated after all cheaper ones
--

-- The query lists the functions with a low cost, which only read. A new
-- function that writes needs a high cost.
SELECT proname FROM pg_proc
WHERE pronamespace IN ('fairq'::regnamespace, 'fairq_internal'::regnamespace) AND prokind = 'f' AND provolatile = 'v'
	AND prorettype <> 'trigger'::regtype AND procost < 1000
ORDER BY proname;

SELECT fairq.create_queue('planner');
SELECT count(*) FROM fairq.enqueue_batch('planner', '{a,a,a,a,a,bb,bb,bb,bb,bb}', array_fill('1'::jsonb, '{10}'));
CREATE TEMP TABLE popped AS SELECT * FROM fairq.pop('planner', 10);
SELECT count(*) FROM popped WHERE length(group_key) = 2 AND fairq.release(id, attempt);
SELECT group_key, status, count(*) FROM fairq.tasks WHERE queue = 'planner' GROUP BY 1, 2 ORDER BY 1;
SELECT count(*) FROM popped WHERE fairq.complete(id, attempt) AND length(group_key) = 1;
SELECT group_key, status, count(*) FROM fairq.tasks WHERE queue = 'planner' GROUP BY 1, 2 ORDER BY 1;
SELECT * FROM fairq.check_queue('planner');
SELECT fairq.drop_queue('planner', true);
DROP TABLE popped;

--
-- A query of one queue reads no other queue
--
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT queued FROM fairq.stats WHERE queue = 'planner';
