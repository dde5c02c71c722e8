-- Addresses are group_no + block_length * block. The block length and the
-- number of blocks are bounded, and the block length can be changed.
--
-- Fails if a block past a group's last one has an address (fairq_address() in
-- address.h).
\a \t
\set VERBOSITY sqlstate
\getenv dir PG_ABS_SRCDIR
\i :dir/sql/include/groups.psql

-- Does the error of a statement have a hint?
CREATE FUNCTION pg_temp.hint(statement text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	state text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, hint = PG_EXCEPTION_HINT;
	RETURN state || CASE WHEN hint <> '' THEN ' with a hint' ELSE '' END;
END $$;

--
-- address() and block_of()
--

SELECT fairq.create_queue('addresses', block_length => 10);
SELECT pg_temp.add('addresses', 'a', 1, 2), pg_temp.add('addresses', 'b', 1, 3);
SELECT group_key, payload, addr, fairq.block_of('addresses', addr) AS block,
	fairq.address('addresses', group_key, fairq.block_of('addresses', addr)) = addr AS at_seat
FROM fairq.tasks WHERE queue = 'addresses' ORDER BY id;
SELECT fairq.address('addresses', 'b', 0), fairq.address('addresses', 'b', 7);
SELECT fairq.block_of('addresses', 0), fairq.block_of('addresses', 9),
	fairq.block_of('addresses', 10), fairq.block_of('addresses', 9223372036854775807);
SELECT fairq.address('addresses', 'b', 461168601842738790);	-- the last block
SELECT fairq.address('addresses', 'b', 461168601842738791);
SELECT fairq.address('addresses', 'b', 9223372036854775807);
SELECT fairq.address('addresses', 'b', -1);
SELECT fairq.block_of('addresses', -1);
SELECT fairq.address('addresses', 'none', 0);	-- address() does not create the group
SELECT group_key FROM fairq.groups WHERE queue = 'addresses' ORDER BY 1;

--
-- Group numbers
--

-- With block length 1, a queue has room for one group.
SELECT fairq.create_queue('addresses_1', block_length => 1);
SELECT pg_temp.add('addresses_1', 'a', 1, 3);
SELECT fairq.enqueue('addresses_1', 'b');
SELECT pg_temp.hint($$SELECT fairq.enqueue('addresses_1', 'b')$$);
SELECT fairq.set_group('addresses_1', 'b', weight => 2);
SELECT addr FROM fairq.tasks WHERE queue = 'addresses_1' ORDER BY id;
BEGIN;
SELECT pg_temp.pop('addresses_1', 2);
ROLLBACK;
SELECT pg_temp.pop('addresses_1', 2);
SELECT count(fairq.release(id)) FROM fairq.tasks
WHERE queue = 'addresses_1' AND status = 'running';
SELECT * FROM fairq.check_queue('addresses_1');

-- After the length is raised to 2, one more group can be added, but the next
-- one cannot.
SELECT fairq.alter_queue('addresses_1', block_length => 2);
SELECT fairq.enqueue('addresses_1', 'b', '"b1"') > 0 AS ok;
SELECT fairq.enqueue('addresses_1', 'c');
SELECT fairq.enqueue_batch('addresses_1', '{a,c}', '{1,2}');
SELECT group_key, group_no, ready FROM fairq.groups WHERE queue = 'addresses_1' ORDER BY 2;
SELECT * FROM fairq.check_queue('addresses_1');
SELECT count(*), count(DISTINCT id), min(payload::text) FILTER (WHERE n <= 2 AND group_key = 'b') AS b
FROM (SELECT *, row_number() OVER () AS n FROM fairq.pop('addresses_1', 10)) p;

-- If the transaction that made a group is rolled back, its number is free
-- again.
SELECT fairq.create_queue('addresses_2', block_length => 2);
BEGIN;
SELECT pg_temp.add('addresses_2', 'x', 1, 1), pg_temp.add('addresses_2', 'y', 1, 1);
ROLLBACK;
SELECT pg_temp.add('addresses_2', 'a', 1, 2), pg_temp.add('addresses_2', 'b', 1, 2);
SELECT pg_temp.pop('addresses_2');
SELECT * FROM fairq.check_queue('addresses_2');

--
-- Block numbers
--

-- The block length is so large that addresses have only two blocks.
SELECT fairq.create_queue('addresses_huge', block_length => 2305843009213693952);
SELECT pg_temp.add('addresses_huge', 'a', 1, 2), pg_temp.add('addresses_huge', 'b', 1, 1);
SELECT payload, addr, fairq.block_of('addresses_huge', addr) AS block
FROM fairq.tasks WHERE queue = 'addresses_huge' ORDER BY id;
SELECT fairq.enqueue('addresses_huge', 'a');
SELECT pg_temp.hint($$SELECT fairq.enqueue('addresses_huge', 'a')$$);
SELECT count(*) FROM fairq.enqueue_batch('addresses_huge', '{b,b}', '{2,3}');
SELECT fairq.enqueue('addresses_huge', 'b', '"b2"') > 0 AS ok;
SELECT fairq.enqueue('addresses_huge', 'a', '"other"', 1) > 0 AS ok;	-- another lane
BEGIN;
SELECT pg_temp.pop('addresses_huge');
ROLLBACK;
SELECT string_agg(payload #>> '{}', ' ' ORDER BY priority, payload)
FROM fairq.pop('addresses_huge', 4);
SELECT fairq.release(id) FROM fairq.tasks
WHERE queue = 'addresses_huge' AND payload = '"a1"';		-- no address is left
SELECT pg_temp.pop('addresses_huge');
SELECT * FROM fairq.check_queue('addresses_huge');

-- Once the queue is empty and the hints are reset, addresses start from the
-- first block again.
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks WHERE queue = 'addresses_huge';
SELECT pg_temp.hint($$SELECT fairq.enqueue('addresses_huge', 'b')$$);
SELECT fairq.reset_hints();
SELECT pg_temp.add('addresses_huge', 'a', 3, 4), pg_temp.add('addresses_huge', 'b', 3, 4);
SELECT pg_temp.pop('addresses_huge');
SELECT * FROM fairq.check_queue('addresses_huge');

-- A smaller block length makes addresses available in a queue that is not
-- empty.
SELECT fairq.alter_queue('addresses_huge', block_length => 1000);
SELECT fairq.enqueue('addresses_huge', 'a', '"a5"') > 0 AS ok;
SELECT fairq.release(id) FROM fairq.tasks
WHERE queue = 'addresses_huge' AND payload = '"b3"';
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('addresses_huge', 10);
SELECT * FROM fairq.check_queue('addresses_huge');

-- The last address is 4611686018427387903, that is, 2^62 - 1.
SELECT fairq.create_queue('addresses_max', block_length => 9223372036854775807);
SELECT count(*) FROM fairq.enqueue_batch('addresses_max', '{a,b}', '{1,2}');
SELECT fairq.address('addresses_max', 'a', 0), fairq.address('addresses_max', 'b', 0);
SELECT fairq.address('addresses_max', 'a', 1);
SELECT fairq.enqueue('addresses_max', 'a');
SELECT string_agg(group_key, ' ') FROM fairq.take('addresses_max', 100);
SELECT fairq.alter_queue('addresses_max', block_length => 4611686018427387904);
SELECT fairq.address('addresses_max', 'a', 1);
SELECT fairq.alter_queue('addresses_max', block_length => 4611686018427387903);
SELECT fairq.reset_hints();
SELECT fairq.address('addresses_max', 'a', 1);
SELECT fairq.address('addresses_max', 'b', 1);
SELECT pg_temp.add('addresses_max', 'a', 1, 2), pg_temp.add('addresses_max', 'b', 1, 1);
SELECT payload, addr FROM fairq.tasks WHERE queue = 'addresses_max' ORDER BY id;
SELECT pg_temp.hint($$SELECT fairq.enqueue('addresses_max', 'a')$$),
	pg_temp.hint($$SELECT fairq.enqueue('addresses_max', 'b')$$);
SELECT pg_temp.pop('addresses_max', 1);
BEGIN;
SELECT pg_temp.pop('addresses_max', 2);
ROLLBACK;
SELECT * FROM fairq.check_queue('addresses_max');
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload)
FROM generate_series(1, 3), fairq.pop('addresses_max');

-- A task without a turn is still served, at the last address.
SELECT fairq.create_queue('addresses_end', 1, block_length => 9223372036854775807);
SELECT pg_temp.add('addresses_end', 'a', 1, 1), pg_temp.add('addresses_end', 'b', 1, 1);
SELECT pg_temp.hint($$SELECT fairq.enqueue('addresses_end', 'a')$$);
SELECT count(fairq.enqueue('addresses_end', left(p, 1), to_jsonb(p), run_at => clock_timestamp() + '1 ms'))
FROM unnest('{a2,b2,c1}'::text[]) p;
SELECT pg_sleep(0.01);
SELECT payload, addr, lease_until > enqueued_at AS leased FROM fairq.pop('addresses_end', lease => '1 ms');
SELECT pg_sleep(0.01);
SELECT payload, attempt, addr FROM fairq.pop('addresses_end', 10);
SELECT payload, addr, status FROM fairq.tasks WHERE queue = 'addresses_end' ORDER BY 1;
SELECT count(*) - cardinality(fairq.complete_batch(array_agg(id))) FROM fairq.tasks
WHERE queue = 'addresses_end' AND status = 'running';
SELECT payload, addr FROM fairq.pop('addresses_end', 10);
SELECT payload, addr FROM fairq.tasks WHERE queue = 'addresses_end' ORDER BY 1;
SELECT * FROM fairq.check_queue('addresses_end');

--
-- alter_queue with a block length
--

-- All tasks, also running ones, keep their order; new tasks get the next
-- addresses.
SELECT fairq.create_queue('addresses_alter', block_length => 100);
SELECT fairq.set_group('addresses_alter', 'c', weight => 2);
SELECT pg_temp.add('addresses_alter', 'a', 1, 6), pg_temp.add('addresses_alter', 'b', 1, 4),
	pg_temp.add('addresses_alter', 'c', 1, 4), pg_temp.add('addresses_alter', 'a', 7, 8, 5);
SELECT pg_temp.pop('addresses_alter', 3);
SELECT fairq.alter_queue('addresses_alter', block_length => 1000000);
SELECT string_agg(payload #>> '{}' || '@' || addr, ' ' ORDER BY priority, addr, id) AS ready
FROM fairq.tasks WHERE queue = 'addresses_alter' AND status = 'queued';
SELECT string_agg(payload #>> '{}' || '@' || addr, ' ' ORDER BY priority, addr, id) AS running
FROM fairq.tasks WHERE queue = 'addresses_alter' AND status = 'running';
SELECT * FROM fairq.check_queue('addresses_alter');
SELECT pg_temp.pop('addresses_alter', 2);
SELECT pg_temp.add('addresses_alter', 'd', 1, 2);
SELECT fairq.alter_queue('addresses_alter', block_length => 4);
SELECT string_agg(payload #>> '{}' || '@' || addr, ' ' ORDER BY priority, addr, id) AS ready
FROM fairq.tasks WHERE queue = 'addresses_alter' AND status = 'queued';
SELECT * FROM fairq.check_queue('addresses_alter');
SELECT pg_temp.pop('addresses_alter', 5);
SELECT fairq.release(id) FROM fairq.tasks
WHERE queue = 'addresses_alter' AND payload = '"a1"';
SELECT pg_temp.pop('addresses_alter');
SELECT * FROM fairq.check_queue('addresses_alter');

-- The block length changes in the middle of a transaction, which is rolled
-- back to a savepoint or as a whole.
SELECT fairq.create_queue('addresses_middle', block_length => 100);
BEGIN;
SELECT pg_temp.add('addresses_middle', 'a', 1, 3), pg_temp.add('addresses_middle', 'b', 1, 3);
SELECT pg_temp.pop('addresses_middle', 1);
SELECT fairq.alter_queue('addresses_middle', block_length => 200);
SELECT pg_temp.pop('addresses_middle', 1);
SELECT pg_temp.add('addresses_middle', 'a', 4, 4);
SAVEPOINT s;
SELECT fairq.alter_queue('addresses_middle', block_length => 50);
SELECT pg_temp.add('addresses_middle', 'b', 4, 5);
SELECT pg_temp.pop('addresses_middle', 1);
ROLLBACK TO s;
SELECT pg_temp.add('addresses_middle', 'b', 6, 6);
COMMIT;
SELECT block_length FROM fairq.queues WHERE queue = 'addresses_middle';
SELECT payload, status, addr FROM fairq.tasks WHERE queue = 'addresses_middle' ORDER BY addr;
SELECT * FROM fairq.check_queue('addresses_middle');
BEGIN;
SELECT fairq.alter_queue('addresses_middle', block_length => 7);
SELECT pg_temp.pop('addresses_middle', 2);
ROLLBACK;
SELECT block_length FROM fairq.queues WHERE queue = 'addresses_middle';
SELECT * FROM fairq.check_queue('addresses_middle');
SELECT pg_temp.pop('addresses_middle');
SELECT * FROM fairq.check_queue('addresses_middle');

-- Block lengths that are too small for the queue's groups, or too large for
-- its blocks; then a valid one.
SELECT fairq.alter_queue('addresses_middle', block_length => 1);
SELECT fairq.alter_queue('addresses_middle', block_length => 0);
SELECT fairq.alter_queue('addresses_middle', block_length => -5);
SELECT fairq.alter_queue('addresses_middle', block_length => 2);
SELECT fairq.alter_queue('addresses_middle', block_length => 9223372036854775807);
SELECT max(addr) / 2 AS last_block FROM fairq.tasks WHERE queue = 'addresses_middle';
SELECT fairq.alter_queue('addresses_middle', block_length => 1537228672809129300);
SELECT fairq.alter_queue('addresses_middle', block_length => 1537228672809129301);
SELECT block_length FROM fairq.queues WHERE queue = 'addresses_middle';
SELECT payload, addr FROM fairq.tasks WHERE queue = 'addresses_middle' ORDER BY addr;
SELECT pg_temp.hint($$SELECT fairq.enqueue('addresses_middle', 'a')$$);
SELECT * FROM fairq.check_queue('addresses_middle');

-- In a queue without tasks, a block length is valid if each group has a seat in
-- the block.
SELECT fairq.purge('addresses_middle'), count(*) - cardinality(fairq.complete_batch(array_agg(id)))
FROM fairq.tasks WHERE queue = 'addresses_middle';
SELECT fairq.alter_queue('addresses_middle', block_length => 1);
SELECT fairq.alter_queue('addresses_middle', block_length => 9223372036854775807);
SELECT fairq.alter_queue('addresses_middle', block_length => 2);
SELECT pg_temp.add('addresses_middle', 'a', 1, 2), pg_temp.add('addresses_middle', 'b', 1, 2);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('addresses_middle', 2);
SELECT string_agg(payload #>> '{}', ' ' ORDER BY payload) FROM fairq.pop('addresses_middle', 9);
SELECT * FROM fairq.check_queue('addresses_middle');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'addresses%';
