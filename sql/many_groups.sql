-- One transaction changes tasks of very many groups and priorities, more than
-- the former maximum of 65,536. Each round still serves each group once.
--
-- Fails if a transaction loses some of its changes (fairq_pending() in
-- transaction.c). Fails if the changes of a released savepoint stay separate
-- from those of the transaction (sub_committed() there). Fails if a
-- call that notices the end of a lease forgets the next end (lapse_word() in
-- seats.c).
\a \t
SET synchronous_commit = off;

SELECT fairq.create_queue('many_groups', concurrency => 1);
BEGIN;
SELECT count(*) FROM fairq.enqueue_batch('many_groups',
	ARRAY(SELECT 'g' || i FROM generate_series(0, 19999) i),
	array_fill('1'::jsonb, '{20000}'), priority => 0);
DO $$
BEGIN
	FOR p IN 1 .. 3 LOOP
		BEGIN
			PERFORM fairq.enqueue_batch('many_groups',
				ARRAY(SELECT 'g' || i FROM generate_series(0, 19999) i),
				array_fill('1'::jsonb, '{20000}'), priority => p);
		EXCEPTION WHEN division_by_zero THEN
		END;
	END LOOP;
END
$$;
COMMIT;

CREATE TEMPORARY TABLE served (round int, group_key text);
-- a thousand tasks at a time, as one worker does
DO $$
BEGIN
	FOR round IN 1 .. 4 LOOP
		FOR part IN 1 .. 20 LOOP
			INSERT INTO served SELECT round, group_key
			FROM fairq.pop('many_groups', 1000) WHERE fairq.complete(id, attempt);
			COMMIT;
		END LOOP;
	END LOOP;
END
$$;
SELECT round, count(*), count(DISTINCT group_key) FROM served GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM fairq.pop('many_groups');

-- Memory use grows with the number of groups, not with the number of
-- savepoints.
BEGIN;
DO $$
BEGIN
	FOR n IN 1 .. 100 LOOP
		BEGIN
			PERFORM fairq.enqueue_batch('many_groups',
				ARRAY(SELECT 'g' || i FROM generate_series(1, 500) i),
				array_fill('1'::jsonb, '{500}'));
		EXCEPTION WHEN division_by_zero THEN
		END;
	END LOOP;
END
$$;
SELECT sum(total_bytes) < 2 * 1024 * 1024 AS few
FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext';
ROLLBACK;

-- A rollback restores all tasks: none is lost, and each has its turn.
TRUNCATE served;
SELECT count(*) FROM fairq.enqueue_batch('many_groups',
	ARRAY(SELECT 'g' || i % 20000 FROM generate_series(1, 40000) i),
	array_fill('1'::jsonb, '{40000}'));
BEGIN;
SELECT count(*) FROM fairq.enqueue_batch('many_groups',
	ARRAY(SELECT 'g' || i FROM generate_series(0, 19999) i),
	array_fill('2'::jsonb, '{20000}'));
SELECT count(*), count(DISTINCT group_key) FROM fairq.pop('many_groups', 20000);
ROLLBACK;
DO $$
BEGIN
	FOR round IN 1 .. 2 LOOP
		FOR part IN 1 .. 20 LOOP
			INSERT INTO served SELECT round, group_key
			FROM fairq.pop('many_groups', 1000) WHERE fairq.complete(id, attempt);
			COMMIT;
		END LOOP;
	END LOOP;
END
$$;
SELECT round, count(*), count(DISTINCT group_key) FROM served GROUP BY 1 ORDER BY 1;
SELECT * FROM fairq.check_queue('many_groups');
SELECT fairq.drop_queue('many_groups');

-- If leases belong to groups with distant numbers, pops notice the end of each
-- lease, although a pop between these ends finds only the first.
SELECT fairq.create_queue('many_groups');
SELECT count(*) FROM fairq.enqueue_batch('many_groups',
	ARRAY(SELECT 'g' || i FROM generate_series(0, 199) i),
	array_fill('1'::jsonb, '{200}'));
SELECT group_key FROM fairq.pop('many_groups', 1, '0.1 s');
SELECT count(*) FROM fairq.pop('many_groups', 99, '1 hour');
SELECT group_key FROM fairq.pop('many_groups', 1, '2 s');
SELECT count(*) FROM fairq.pop('many_groups', 99, '1 hour');
SELECT pg_sleep(0.2);
SELECT count(*) FROM fairq.pop('many_groups', 1, '1 hour');
SELECT pg_sleep(2);
SELECT count(*) FROM fairq.pop('many_groups', 1, '1 hour');
SELECT group_key, attempt FROM fairq.tasks WHERE queue = 'many_groups' AND attempt > 1 ORDER BY 1;
SELECT fairq.drop_queue('many_groups', true);
