-- Subtransactions with many pending changes. Nested subtransactions enqueue in
-- hundreds of groups, pop and finish tasks, and are released or rolled back at
-- random. A table, which is rolled back with them, records what the transaction
-- did. So this table and the queues must always agree, and in the end all
-- remaining tasks are served.
--
-- The stack of pending changes (transaction.c) grows past 16 and past 64
-- entries, and shrinks again. Fails if the changes of a released subtransaction do not
-- become its parent's (subxact_callback()). Fails if an abort leaves out one
-- of many pending changes (apply_from()).
\a \pset footer off
\set VERBOSITY sqlstate

CREATE TEMPORARY TABLE mine (id bigint PRIMARY KEY, queue text, running boolean);

CREATE FUNCTION pg_temp.chance(n int) RETURNS int
LANGUAGE sql AS $$ SELECT floor(random() * n)::int $$;

CREATE FUNCTION pg_temp.enqueue(queue text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	-- some enqueues use many groups, and others use few
	groups int := (ARRAY[3, 20, 80, 400])[1 + pg_temp.chance(4)];
	keys text[] := ARRAY(SELECT 'g' || pg_temp.chance(groups) FROM generate_series(0, pg_temp.chance(groups)));
BEGIN
	INSERT INTO mine SELECT id, queue, false FROM fairq.enqueue_batch(queue, keys,
		array_fill('1'::jsonb, ARRAY[cardinality(keys)]), priority => pg_temp.chance(3)) id;
END
$$;

-- According to the table, each popped task must have been ready.
CREATE FUNCTION pg_temp.pop(queue text, n int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	ids bigint[] := ARRAY(SELECT id FROM fairq.pop(queue, n));
BEGIN
	UPDATE mine SET running = true WHERE id = ANY (ids) AND NOT running;
	ASSERT (SELECT count(*) = cardinality(ids) FROM mine WHERE id = ANY (ids) AND running),
		'a pop served what it should not';
END
$$;

CREATE FUNCTION pg_temp.finish(queue text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	ids bigint[] := ARRAY(SELECT id FROM mine m WHERE m.queue = finish.queue AND running
		ORDER BY id LIMIT 1 + pg_temp.chance(100));
BEGIN
	IF pg_temp.chance(3) = 0 THEN
		ASSERT (SELECT coalesce(bool_and(fairq.release(id)), true) FROM unnest(ids) id);
		UPDATE mine SET running = false WHERE id = ANY (ids);
	ELSE
		ASSERT fairq.complete_batch(ids) = '{}';
		DELETE FROM mine WHERE id = ANY (ids);
	END IF;
END
$$;

CREATE FUNCTION pg_temp.play(depth int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	queue text;
BEGIN
	FOR i IN 0 .. 1 + pg_temp.chance(4) LOOP
		queue := (ARRAY['sub_free', 'sub_limited'])[1 + pg_temp.chance(2)];
		CASE pg_temp.chance(6)
			WHEN 0, 1 THEN PERFORM pg_temp.enqueue(queue);
			WHEN 2 THEN PERFORM pg_temp.pop(queue, 1 + pg_temp.chance(300));
			WHEN 3 THEN PERFORM pg_temp.finish(queue);
			ELSE
				CONTINUE WHEN depth = 0;
				BEGIN
					PERFORM pg_temp.play(depth - 1);
					IF pg_temp.chance(5) < 2 THEN
						RAISE division_by_zero;
					END IF;
				EXCEPTION WHEN division_by_zero THEN
				END;
		END CASE;
	END LOOP;
END
$$;

-- Exactly the remaining tasks are served, each one once.
CREATE PROCEDURE pg_temp.drain(queue text)
LANGUAGE plpgsql AS $$
DECLARE
	ids bigint[];
BEGIN
	LOOP
		ids := ARRAY(SELECT id FROM fairq.pop(queue, 1000));
		EXIT WHEN ids = '{}';
		ASSERT (SELECT count(*) = cardinality(ids) FROM mine m
			WHERE id = ANY (ids) AND NOT running AND m.queue = drain.queue);
		DELETE FROM mine WHERE id = ANY (ids);
		PERFORM fairq.complete_batch(ids);
		COMMIT;
	END LOOP;
	ASSERT NOT EXISTS (SELECT FROM mine m WHERE m.queue = drain.queue), 'tasks are left that no pop finds';
	ASSERT NOT EXISTS (SELECT FROM fairq.live_tasks t WHERE t.queue = drain.queue);
END
$$;

SELECT fairq.create_queue('sub_free'), fairq.create_queue('sub_limited', concurrency => 2);
SELECT setseed(0.25);
DO $$
BEGIN
	FOR i IN 1 .. 40 LOOP
		PERFORM pg_temp.play(5);
		IF pg_temp.chance(4) = 0 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
		ASSERT NOT EXISTS (SELECT FROM fairq.check_queue('sub_free')), i;
		ASSERT NOT EXISTS (SELECT FROM fairq.check_queue('sub_limited')), i;
		ASSERT NOT EXISTS ((SELECT id, queue, running FROM mine)
			EXCEPT (SELECT id, queue, status = 'running' FROM fairq.live_tasks)), i;
		IF i % 20 = 0 THEN
			PERFORM fairq.release(id) FROM mine WHERE running;
			UPDATE mine SET running = false WHERE running;
			COMMIT;
			CALL pg_temp.drain('sub_free');
			CALL pg_temp.drain('sub_limited');
		END IF;
	END LOOP;
END
$$;
SELECT count(*) FROM mine;
SELECT * FROM fairq.check_queue('sub_free');
SELECT * FROM fairq.check_queue('sub_limited');
SELECT fairq.drop_queue('sub_free'), fairq.drop_queue('sub_limited');
