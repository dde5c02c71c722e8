-- For how long the oldest ready task of a queue has waited, as fairq.stats says: that
-- with a free slot, and that without.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS fairq;
RESET client_min_messages;
\set VERBOSITY sqlstate

-- Which task is as old as what is shown, within a twentieth of a second: tasks are
-- enqueued a tenth of a second after each other.
CREATE FUNCTION pg_temp.task_of(of text, age interval) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(
		(SELECT t.payload #>> '{}'
			FROM fairq.tasks t, LATERAL (SELECT CASE status WHEN 'running' THEN
				greatest(enqueued_at, run_at) ELSE greatest(enqueued_at, run_at) END) r(ready_at)
			WHERE queue = of AND ready_at BETWEEN clock_timestamp() - age - interval '50 ms'
				AND clock_timestamp() - age + interval '50 ms'
			ORDER BY abs(extract(epoch FROM clock_timestamp() - age - ready_at)) LIMIT 1),
		CASE WHEN age IS NOT NULL THEN 'none' END)
$$;
CREATE FUNCTION pg_temp.show(of text, OUT active int, OUT limited int, OUT paused int,
	OUT oldest_ready text, OUT oldest_limited text) LANGUAGE sql AS $$
	SELECT groups_active, groups_limited, groups_paused,
		pg_temp.task_of(of, s.oldest_ready), pg_temp.task_of(of, s.oldest_limited)
	FROM fairq.stats s WHERE queue = of
$$;
CREATE PROCEDURE pg_temp.add(queue text, group_key text, VARIADIC payloads text[])
LANGUAGE plpgsql AS $$
DECLARE
	payload text;
BEGIN
	FOREACH payload IN ARRAY payloads LOOP
		PERFORM fairq.enqueue(queue, group_key, to_jsonb(payload));
		COMMIT;
		PERFORM pg_sleep(0.11);
		COMMIT;
	END LOOP;
END;
$$;
CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 1) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop(queue, n)
$$;
CREATE FUNCTION pg_temp.id(payload text) RETURNS bigint
LANGUAGE sql AS $$
	SELECT id FROM fairq.live_tasks t WHERE t.payload #>> '{}' = id.payload
$$;

--
-- One group: the task that was claimed last, or one before that
--

SELECT fairq.create_queue('ages');
SELECT * FROM pg_temp.show('ages');
CALL pg_temp.add('ages', 'a', 'a1', 'a2', 'a3', 'a4', 'a5');
SELECT * FROM pg_temp.show('ages');
SELECT pg_temp.pop('ages');
SELECT * FROM pg_temp.show('ages');
SELECT pg_temp.pop('ages');
SELECT * FROM pg_temp.show('ages');
-- one that is given back, or put back
BEGIN;
SELECT pg_temp.pop('ages');
ROLLBACK;
SELECT * FROM pg_temp.show('ages');
BEGIN;
SELECT pg_temp.pop('ages', 2);
SAVEPOINT s;
SELECT pg_temp.pop('ages');
SELECT * FROM pg_temp.show('ages');
ROLLBACK TO s;
SELECT * FROM pg_temp.show('ages');
COMMIT;
SELECT pg_temp.pop('ages');
SELECT * FROM pg_temp.show('ages');
-- what comes to an empty queue is as old as it is
CALL pg_temp.add('ages', 'a', 'a6');
SELECT * FROM pg_temp.show('ages');
SELECT fairq.release(pg_temp.id('a1'));
SELECT * FROM pg_temp.show('ages');
SELECT pg_temp.pop('ages', 10);
SELECT fairq.release(pg_temp.id('a3'));
SELECT * FROM pg_temp.show('ages');
SELECT pg_temp.pop('ages', 10);

--
-- Several groups, more than stand at the first 64 seats
--

SELECT fairq.create_queue('ages_many');
CALL pg_temp.add('ages_many', 'old', 'o1', 'o2');
CALL pg_temp.add('ages_many', 'new', 'n1', 'n2');
SELECT count(*) FROM fairq.enqueue_batch('ages_many',
	(SELECT array_agg('g' || i) FROM generate_series(1, 100) i),
	array_fill('{}'::jsonb, ARRAY[100]));
SELECT * FROM pg_temp.show('ages_many');
SELECT count(*) FROM fairq.pop('ages_many', 102);
-- nothing but o2 and n2 is left
SELECT * FROM pg_temp.show('ages_many');
SELECT pg_temp.pop('ages_many');
SELECT * FROM pg_temp.show('ages_many');
SELECT pg_temp.pop('ages_many');
SELECT * FROM pg_temp.show('ages_many');

--
-- Pauses and limits of the queue: nothing has a free slot
--

SELECT fairq.create_queue('ages_full');
CALL pg_temp.add('ages_full', 'a', 'f1', 'f2', 'f3');
SELECT fairq.pause('ages_full');
SELECT * FROM pg_temp.show('ages_full');
SELECT fairq.resume('ages_full');
SELECT fairq.alter_queue('ages_full', max_running => 1);
SELECT * FROM pg_temp.show('ages_full');
SELECT pg_temp.pop('ages_full', 2);
SELECT * FROM pg_temp.show('ages_full');
SELECT fairq.complete(pg_temp.id('f1'));
SELECT * FROM pg_temp.show('ages_full');

--
-- What time makes ready
--

SELECT fairq.create_queue('ages_due');
SELECT fairq.enqueue('ages_due', 'a', '"d1"', run_at => clock_timestamp() + '100 ms') > 0 AS ok;
CALL pg_temp.add('ages_due', 'b', 'b1', 'b2');
SELECT pg_temp.pop('ages_due');
SELECT * FROM pg_temp.show('ages_due');
SELECT pg_temp.pop('ages_due');
SELECT * FROM pg_temp.show('ages_due');

SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue LIKE 'ages%';
