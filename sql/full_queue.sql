-- A queue in which max_running tasks run serves only tasks with expired
-- leases, since these already have a slot. These tasks are served in rounds of
-- their own, according to weights. Within each group, these tasks keep their
-- order. The turns of other groups do not change.
--
-- Fails if the seat does not advance after a turn (fairq_lane_take_in_full()),
-- or a turn lasts for one task, whatever the weight (take_turn(); both in
-- lane_turns.c).
\a \t
\set VERBOSITY sqlstate

-- Adds tasks with these payloads; the first letter of each is its group.
CREATE FUNCTION pg_temp.add(queue text, VARIADIC payloads text[]) RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(fairq.enqueue(queue, left(p, 1), to_jsonb(p))) FROM unnest(payloads) p
$$;

-- The tasks that a pop returns, in its order.
CREATE FUNCTION pg_temp.pop(queue text, n int DEFAULT 100, per_group int DEFAULT NULL,
	lease interval DEFAULT '1 microsecond') RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg(payload #>> '{}', ' ') FROM fairq.pop(queue, n, lease, per_group)
$$;

-- A queue that is full of lapsed tasks: five of a, and two each of b, c and d.
CREATE FUNCTION pg_temp.full_queue(queue text) RETURNS text
LANGUAGE sql AS $$
	SELECT fairq.create_queue(queue, max_running => 11, max_attempts => 100);
	SELECT fairq.set_group(queue, 'a', weight => 3);
	SELECT pg_temp.add(queue, 'a1', 'a2', 'a3', 'a4', 'a5', 'b1', 'b2', 'c1', 'c2', 'd1', 'd2');
	SELECT pg_temp.pop(queue);
$$;

-- The groups are served according to weight, in one call and in several.
SELECT pg_temp.full_queue('full_1');
SELECT pg_temp.pop('full_1', 12, lease => '1 hour');
SELECT pg_temp.full_queue('full_2');
SELECT string_agg(pg_temp.pop('full_2', 1, lease => '1 hour'), ' ') FROM generate_series(1, 11);
SELECT pg_temp.pop('full_2', 1) IS NULL AS nothing;
SELECT * FROM fairq.check_queue('full_2');

-- per_group counts rounds; the rest of a turn belongs to its round.
SELECT pg_temp.full_queue('full_3');
SELECT pg_temp.pop('full_3', per_group => 1, lease => '1 hour');
SELECT pg_temp.pop('full_3', per_group => 1, lease => '1 hour');
SELECT pg_temp.pop('full_3', per_group => 1, lease => '1 hour');
SELECT pg_temp.full_queue('full_4');
SELECT pg_temp.pop('full_4', 1, lease => '1 hour');
SELECT pg_temp.pop('full_4', per_group => 1, lease => '1 hour');
SELECT pg_temp.pop('full_4', per_group => 2, lease => '1 hour');
SELECT pg_temp.full_queue('full_5');
SELECT pg_temp.pop('full_5', per_group => 2, lease => '1 hour');
-- turns and rounds of lapsed tasks alternate: the first ready task is next,
-- until the queue is full
SELECT pg_temp.full_queue('full_6');
SELECT fairq.alter_queue('full_6', max_running => 12);
SELECT pg_temp.add('full_6', 'e1', 'e2');
SELECT pg_temp.pop('full_6', per_group => 1, lease => '1 hour');
SELECT pg_temp.pop('full_6', per_group => 1, lease => '1 hour');
SELECT * FROM fairq.check_queue('full_6');

-- A task whose lease expires repeatedly does not exclude the others of its
-- group.
SELECT fairq.create_queue('full_again', max_running => 3, max_attempts => 100);
SELECT pg_temp.add('full_again', 'a1', 'a2', 'b1');
SELECT pg_temp.pop('full_again');
SELECT $$SELECT pg_temp.pop('full_again', 1)$$ FROM generate_series(1, 8) \gexec
-- even if the queue is full only at times, such a task does not exclude the
-- others
SELECT fairq.alter_queue('full_again', max_running => 4);
SELECT $$SELECT pg_temp.pop('full_again', 1)$$ FROM generate_series(1, 5) \gexec
SELECT fairq.alter_queue('full_again', max_running => 3);
SELECT $$SELECT pg_temp.pop('full_again', 1)$$ FROM generate_series(1, 8) \gexec
SELECT * FROM fairq.check_queue('full_again');

-- No group loses its turn because lapsed tasks are served. When a's lease
-- expires, two of the three tasks in b's turn have been served, but no task of
-- c.
SELECT fairq.create_queue('full_turns', max_running => 3);
SELECT pg_temp.add('full_turns', 'a1');
SELECT fairq.set_group('full_turns', 'b', weight => 3);
SELECT pg_temp.add('full_turns', 'b1', 'b2', 'b3', 'b4', 'c1', 'c2');
SELECT pg_temp.pop('full_turns', 1);
SELECT pg_temp.pop('full_turns', 2, lease => '1 hour');
SELECT $$SELECT pg_temp.pop('full_turns', 1)$$ FROM generate_series(1, 3) \gexec
SELECT fairq.alter_queue('full_turns', max_running => 0);
-- (by now a1's lease has expired twice, so a1 is served alone)
SELECT $$SELECT pg_temp.pop('full_turns', lease => '1 hour')$$ FROM generate_series(1, 3) \gexec
SELECT * FROM fairq.check_queue('full_turns');

-- A search that finds nothing does not count as a round. A pop in a transaction
-- block does not end a task that has no attempts left; other calls do. b's
-- lease is found after many other leases that have not expired.
SELECT fairq.create_queue('full_vain', max_running => 20002, max_attempts => 1);
SELECT pg_temp.add('full_vain', 'a1');
SELECT pg_temp.pop('full_vain', lease => '400 ms');
SELECT count(*) FROM fairq.enqueue_batch('full_vain',
	array_fill('c'::text, ARRAY[20000]), array_fill('1'::jsonb, ARRAY[20000]));
SELECT count(*) FROM fairq.pop('full_vain', 20000);
SELECT fairq.enqueue('full_vain', 'b', '"b1"', max_attempts => 5) > 0 AS ok;
SELECT pg_temp.pop('full_vain', 1, lease => '1 microsecond');
SELECT pg_sleep(greatest(extract(epoch FROM lease_until - clock_timestamp()) + 0.01, 0))
FROM fairq.tasks WHERE queue = 'full_vain' AND payload = '"a1"';
BEGIN;
SELECT pg_temp.pop('full_vain', 10, per_group => 1, lease => '1 hour');
COMMIT;
SELECT * FROM fairq.check_queue('full_vain');

-- The queue gets a limit and becomes full. At first the number of running tasks
-- is not known, so the pop counts them in the table.
SELECT fairq.create_queue('full_first');
SELECT count(*) FROM fairq.enqueue_batch('full_first',
	ARRAY(SELECT 'g' || i FROM generate_series(1, 2000) i), array_fill('1'::jsonb, ARRAY[2000]));
SELECT count(*) FROM fairq.pop('full_first', 3);
SELECT fairq.alter_queue('full_first', max_running => 5);
SELECT count(*) FROM fairq.pop('full_first', 10);
SELECT count(*) FROM fairq.pop('full_first', 10);
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'full_first' AND status = 'running';
SELECT count(*) FROM fairq.pop('full_first', 10);
SELECT * FROM fairq.check_queue('full_first');

-- If the queue becomes full within a turn, the rest of the turn comes next. So
-- weights also apply if a call requests more tasks than there are slots.
SELECT fairq.create_queue('full_weight', max_running => 1);
SELECT fairq.set_group('full_weight', 'a', weight => 3);
SELECT pg_temp.add('full_weight', 'a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'b1', 'b2', 'b3');
SELECT $$SELECT payload FROM fairq.pop('full_weight', 5) WHERE fairq.complete(id)$$
FROM generate_series(1, 8) \gexec
SELECT * FROM fairq.check_queue('full_weight');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues WHERE queue LIKE 'full_%';
