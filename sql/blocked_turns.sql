-- Groups whose blocked tasks are due for a check, again and again, do not keep other
-- groups from their turns.
--
-- Fails if calls give the turn of such a group back (end_part() in
-- lane_turns.c). Then these groups are next in each call.
\a \t

SELECT fairq.create_queue('first'), fairq.create_queue('blocked_turns');
SELECT fairq.enqueue('first', 'a') AS first \gset
SELECT id = :first AS runs FROM fairq.pop('first', lease => '1 hour');
SELECT count(*) FROM fairq.enqueue_batch('blocked_turns', ARRAY(SELECT 'w' || n FROM generate_series(1, 400) n), array_fill('1'::jsonb, '{400}'), after => ARRAY[:first]);
SELECT count(*) FROM fairq.enqueue_batch('blocked_turns', array_fill('alice'::text, '{40}'), array_fill('"ready"'::jsonb, '{40}'));
-- each pop finds that all blocked tasks are due, but checks at most a hundred of them
CREATE PROCEDURE pg_temp.pops(n int, INOUT served int) LANGUAGE plpgsql AS $$
BEGIN
	served := 0;
	FOR i IN 1 .. n LOOP
		PERFORM fairq.reschedule(id) FROM fairq.task WHERE blocked;
		COMMIT;
		served := served + (SELECT count(*) FROM fairq.pop('blocked_turns'));
		COMMIT;
	END LOOP;
END $$;
CALL pg_temp.pops(10, NULL) \gset
SELECT :served > 0 AS served;
-- a task that becomes ready in such a group is served in its turn
SELECT fairq.enqueue('blocked_turns', 'w7', '"w7"') AS w7 \gset
CALL pg_temp.pops(10, NULL) \gset
SELECT count(*) FROM fairq.live_tasks WHERE id = :w7 AND status = 'running';
-- no task is lost when the wait ends
SELECT fairq.complete(:first);
SELECT count(*) > 400 AS "all" FROM generate_series(1, 60) n, LATERAL fairq.take('blocked_turns', 20 + 0 * n);
SELECT count(*) FROM fairq.live_tasks WHERE queue = 'blocked_turns' AND status <> 'running';
SELECT * FROM fairq.check_queue('blocked_turns');
SELECT fairq.drop_queue('first', true), fairq.drop_queue('blocked_turns', true);
