-- NULL, numbers out of range and arrays of the wrong shape each have their own
-- error. Unusual but valid values are stored unchanged.
--
-- Fails if no number counts as too large (fairq_check_int() in args.c), or no
-- array as too long (fairq_arg_array()).
\a \t
SET client_encoding = 'UTF8';
\set VERBOSITY sqlstate

SELECT fairq.create_queue('arguments');

--
-- NULL for a required argument
--

SELECT fairq.create_queue(NULL);
SELECT fairq.alter_queue(NULL);
SELECT fairq.drop_queue(NULL);
SELECT fairq.set_group(NULL, 'a');
SELECT fairq.set_group('arguments', NULL);
SELECT fairq.pause(NULL);
SELECT fairq.pause(NULL, 'a');
SELECT fairq.resume(NULL);
SELECT fairq.resume(NULL, 'a');
SELECT fairq.purge(NULL);
SELECT fairq.enqueue(NULL, 'a');
SELECT fairq.enqueue('arguments', NULL);
SELECT fairq.enqueue_batch(NULL, '{a}', '{1}');
SELECT fairq.enqueue_batch('arguments', NULL, '{1}');
SELECT fairq.enqueue_batch('arguments', '{a}', NULL);
SELECT fairq.pop(NULL);
SELECT fairq.take(NULL);
SELECT fairq.complete_batch(NULL);
SELECT fairq.address(NULL, 'a', 0);
SELECT fairq.address('arguments', NULL, 0);
SELECT fairq.address('arguments', 'a', NULL);
SELECT fairq.block_of(NULL, 0);
SELECT fairq.block_of('arguments', NULL);
SELECT fairq.check_queue(NULL);
SELECT fairq.check_queue(NULL);

-- NULL for an optional argument means its default, or that no worker is named
SELECT fairq.enqueue('arguments', 'a', NULL, NULL) > 0 AS ok;
SELECT payload, priority FROM fairq.tasks WHERE queue = 'arguments';
SELECT payload, lease_until - now() BETWEEN '4 minutes' AND '6 minutes' AS five_minutes
FROM fairq.pop('arguments', NULL, NULL, NULL, NULL);
SELECT count(*) FROM fairq.take('arguments', NULL, NULL);
SELECT fairq.complete(NULL), fairq.complete(NULL, 1), fairq.release(NULL), fairq.release(NULL, 1);
SELECT fairq.purge('arguments', NULL);
SELECT fairq.complete(id, NULL) FROM fairq.tasks WHERE queue = 'arguments';
SELECT fairq_internal.counters(NULL);

--
-- The queue, group or task does not exist
--

SELECT fairq.alter_queue('arguments_none');
SELECT fairq.alter_queue('arguments_none', block_length => 5);
SELECT fairq.drop_queue('arguments_none');
SELECT fairq.drop_queue('arguments_none', true);
SELECT fairq.set_group('arguments_none', 'a', 1);
SELECT fairq.pause('arguments_none');
SELECT fairq.resume('arguments_none');
SELECT fairq.pause('arguments_none', 'a');
SELECT fairq.resume('arguments_none', 'a');
SELECT fairq.purge('arguments_none');
SELECT fairq.enqueue('arguments_none', 'a');
SELECT fairq.enqueue_batch('arguments_none', '{a}', '{1}');
SELECT fairq.enqueue_batch('arguments_none', '{}', '{}');
SELECT fairq.pop('arguments_none');
SELECT fairq.take('arguments_none');
SELECT fairq.address('arguments_none', 'a', 0);
SELECT fairq.block_of('arguments_none', 0);
SELECT fairq.check_queue('arguments_none');
SELECT fairq.pop('');
SELECT fairq.pop(repeat('x', 58));
SELECT fairq.pop(repeat('x', 10000));
SELECT fairq.pop('ARGUMENTS');
SELECT fairq.pop('arguments ');
SELECT fairq.purge('arguments', 'none');
SELECT fairq.resume('arguments', 'none');
SELECT fairq.address('arguments', 'none', 0);
SELECT fairq.complete(0), fairq.complete(-1), fairq.complete(9223372036854775807),
	fairq.release(0), fairq.release(-9223372036854775808), fairq.release(9223372036854775807);
SELECT fairq_internal.counters(0) IS NULL, fairq_internal.counters(-1) IS NULL, fairq_internal.counters(2147483647) IS NULL;

--
-- Numbers
--

SELECT fairq.create_queue('arguments_x', block_length => 0);
SELECT fairq.create_queue('arguments_x', block_length => -1);
SELECT fairq.create_queue('arguments_x', block_length => -9223372036854775808);
SELECT fairq.alter_queue('arguments', block_length => 0);
SELECT fairq.alter_queue('arguments', block_length => -9223372036854775808);
SELECT fairq.create_queue('arguments_x', 0);
SELECT fairq.create_queue('arguments_x', -1);
SELECT fairq.create_queue('arguments_x', max_running => 0);
SELECT fairq.create_queue('arguments_x', max_running => -2147483648);
SELECT fairq.alter_queue('arguments', -1);
SELECT fairq.alter_queue('arguments', max_running => -1);
SELECT fairq.enqueue('arguments', 'a', '1', -1);
SELECT fairq.enqueue('arguments', 'a', '1', 10);
SELECT fairq.enqueue('arguments', 'a', '1', 65536);
SELECT fairq.enqueue('arguments', 'a', '1', -2147483648);
SELECT fairq.enqueue_batch('arguments', '{a}', '{1}', -1);
SELECT fairq.enqueue_batch('arguments', '{a}', '{1}', 10);
SELECT fairq.enqueue_batch('arguments', '{}', '{}', 10);
SELECT fairq.pop('arguments', 0);
SELECT fairq.pop('arguments', -1);
SELECT fairq.pop('arguments', 1, per_group => 0);
SELECT fairq.pop('arguments', 1, per_group => -1);
SELECT fairq.take('arguments', 0);
SELECT fairq.take('arguments', -2147483648);
SELECT fairq.take('arguments', 1, per_group => 0);
SELECT fairq.set_group('arguments', 'a', -1);
SELECT fairq.set_group('arguments', 'a', -2147483648);
SELECT fairq.set_group('arguments', 'a', weight => -1);
SELECT fairq.set_group('arguments', 'a', weight => 1001);
SELECT fairq.set_group('arguments', 'a', weight => 2147483647);
SELECT fairq.pop('arguments', 1, worker => repeat('x', 1025));
SELECT count(*) FROM fairq.tasks WHERE queue = 'arguments';

SELECT fairq.enqueue('arguments', 'a', '9', 9) > 0 AS ok;
SELECT count(*) FROM fairq.pop('arguments', 2147483647, per_group => 2147483647,
	worker => repeat('x', 1024));
SELECT length(worker), fairq.release(id) FROM fairq.tasks WHERE queue = 'arguments';
SELECT count(*) FROM fairq.pop('arguments', worker => '');
SELECT worker = '' AS empty, fairq.complete(id) FROM fairq.tasks WHERE queue = 'arguments';

--
-- Names of queues, keys of groups
--

SELECT fairq.create_queue('');
SELECT fairq.create_queue(repeat('n', 58));
SELECT fairq.create_queue(repeat('ä', 29));
SELECT fairq.create_queue(repeat('n', 10000));
CREATE TEMP TABLE name AS
SELECT unnest(ARRAY['1', repeat('n', 57), repeat('ä', 28) || 'n', 'arguments "quoted" ''name''',
	' ', E'arguments\nnewline', 'arguments; SELECT 1', 'arguments_%s_\n']) AS name;
SELECT count(fairq.create_queue(name)) FROM name;
SELECT count(fairq.enqueue(name, 'a', to_jsonb(name))) FROM name;
SELECT count(*) FROM name, fairq.pop(name) p WHERE p.payload = to_jsonb(name);
SELECT count(*) FROM name JOIN fairq.queues q ON q.queue = name WHERE q.running = 1;
SELECT count(*) FROM name, fairq.check_queue(name);
SELECT fairq.create_queue(repeat('n', 57));
-- a name that is too long does not match a queue whose name is the first part
-- of it
SELECT fairq.pop(repeat('ä', 28) || 'nä');
CALL fairq.wait(repeat('ä', 28) || 'nä', '0');
SELECT count(*) FROM name, fairq.drop_queue(name, true) AS dropped WHERE dropped;
-- triggers cannot be called as functions
SELECT fairq_internal.task_changed();
SELECT fairq_internal.group_number_changed();
SELECT fairq_internal.settings_changed();
-- messages cut names between characters, since clients could not read a
-- partial character
SET client_encoding = 'LATIN1';
SELECT fairq.pop(repeat('x', 99) || repeat(chr(228), 10));
CALL fairq.wait(repeat('x', 99) || repeat(chr(228), 10));
SELECT fairq.grant_queue('arguments', current_user::regrole, repeat('x', 99) || repeat(chr(228), 10));
SET client_encoding = 'UTF8';

SELECT fairq.enqueue('arguments', repeat('k', 1025));
SELECT fairq.enqueue('arguments', repeat('ä', 513));
SELECT fairq.enqueue_batch('arguments', ARRAY['a', repeat('k', 1025)], '{1,2}');
SELECT fairq.set_group('arguments', repeat('k', 1025), 1);
SELECT fairq.purge('arguments', repeat('k', 1025));
SELECT fairq.pause('arguments', repeat('k', 1025));
SELECT fairq.resume('arguments', repeat('k', 1025));
CREATE TEMP TABLE key AS
SELECT unnest(ARRAY['', ' ', repeat('k', 1024), repeat('ä', 512), 'NULL', '"', '''', '\',
	'a,b', '{}', 'Ä', 'ä', E'a\u0308', 'A', 'a', 'a ', '☃ 🐘', E'\t\n',
	(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 32) i)]) AS key;
SELECT count(*) FROM fairq.enqueue_batch('arguments',
	(SELECT array_agg(key) FROM key), (SELECT array_agg(to_jsonb(key)) FROM key));
SELECT count(fairq.enqueue('arguments', key, to_jsonb(key))) FROM key;
SELECT count(*) FROM fairq.groups JOIN key ON key = group_key WHERE queue = 'arguments' AND ready = 2;
-- each of these keys names a group of its own, which has a turn in each round
SELECT count(*), count(DISTINCT group_key), bool_and(payload = to_jsonb(group_key)) AS equal
FROM fairq.pop('arguments', (SELECT count(*) FROM key)::int);
SELECT bool_and(fairq.purge('arguments', key) = 1), bool_and(fairq.address('arguments', key, 0) >= 0)
FROM key;
SELECT * FROM fairq.check_queue('arguments');

--
-- Arrays
--

SELECT fairq.enqueue_batch('arguments', '{}', '{}');
SELECT fairq.enqueue_batch('arguments', '{a,NULL}', '{1,2}');
SELECT fairq.enqueue_batch('arguments', '{a,b}', '{1,NULL}');
SELECT fairq.enqueue_batch('arguments', '{a,b}', '{1}');
SELECT fairq.enqueue_batch('arguments', '{}', '{1}');
SELECT fairq.enqueue_batch('arguments', '{a}', '{}');
SELECT fairq.enqueue_batch('arguments', '{{a,b},{c,d}}', '{1,2,3,4}');
SELECT fairq.enqueue_batch('arguments', '{a,b}', '{{1,2}}');
SELECT fairq.enqueue_batch('arguments', '{{a,b},{c,d}}', '{{1,2},{3,4}}');
SELECT fairq.complete_batch('{}');
SELECT fairq.complete_batch('{}', '{}');
SELECT fairq.complete_batch('{1,NULL}');
SELECT fairq.complete_batch('{1,2}', '{1,NULL}');
SELECT fairq.complete_batch('{1,2}', '{1}');
SELECT fairq.complete_batch('{1,2}', '{}');
SELECT fairq.complete_batch('{{1,2}}');
SELECT fairq.complete_batch('{1,2}', '{{1,2}}');
SELECT fairq.complete_batch('{0,-1,9223372036854775807}', '{0,-1,2147483647}');
SELECT count(*) FROM fairq.tasks WHERE queue = 'arguments' AND status = 'queued';

-- the lower bound of an array has no effect; ids are in the order of the input
SELECT count(*), bool_and(id > previous) AS in_order
FROM (SELECT id, lag(id, 1, 0::bigint) OVER () AS previous
	FROM fairq.enqueue_batch('arguments', '[5:7]={a,b,a}', '[-1:1]={1,2,3}') AS id) s;
SELECT string_agg(group_key || payload, ' ' ORDER BY id) FROM fairq.tasks
WHERE queue = 'arguments' AND status = 'queued';
SELECT fairq.purge('arguments');

-- arrays with more elements than the limit: NULLs, since they take little
-- space
SELECT array_fill(NULL::bigint, ARRAY[40000001]) AS ids, array_fill(NULL::text, ARRAY[40000001]) AS texts,
	array_fill(NULL::jsonb, ARRAY[40000001]) AS documents, array_fill(NULL::int, ARRAY[40000001]) AS ints INTO TEMP TABLE huge;
SELECT fairq.complete_batch(ids) FROM huge;
SELECT fairq.fail_batch(ids) FROM huge;
SELECT fairq.release_batch(ids) FROM huge;
SELECT fairq.extend_batch(ids) FROM huge;
SELECT fairq.complete_batch('{}', attempts => ints) FROM huge;
SELECT fairq.complete_batch('{}', results => documents) FROM huge;
SELECT fairq.complete_batch('{}', took => texts::interval[]) FROM huge;
SELECT fairq.fail_batch('{}', errors => texts) FROM huge;
SELECT fairq.enqueue_batch('arguments', texts, documents) FROM huge;
SELECT fairq.enqueue_batch('arguments', '{}', documents) FROM huge;
SELECT fairq.enqueue_batch('arguments', '{}', '{}', dedup_keys => texts) FROM huge;
SELECT fairq.enqueue_batch('arguments', '{}', '{}', headers => documents) FROM huge;
SELECT fairq.pop(texts) FROM huge;
DROP TABLE huge;

--
-- Leases
--

SELECT fairq.create_queue('arguments_x', lease => '0');
SELECT fairq.create_queue('arguments_x', lease => '-1 second');
SELECT fairq.create_queue('arguments_x', lease => '1000000 years');
SELECT fairq.create_queue('arguments_x', lease => '1 month -31 days');
SELECT fairq.create_queue('arguments_x', lease => '1 day -24 hours');
SELECT fairq.alter_queue('arguments', lease => '0');
SELECT fairq.alter_queue('arguments', lease => '-1 microsecond');
SELECT fairq.alter_queue('arguments', lease => '1000000 years');
SELECT fairq.alter_queue('arguments', lease => '1 month -31 days');
SELECT fairq.pop('arguments', lease => '0');
SELECT fairq.pop('arguments', lease => '-5 minutes');
SELECT fairq.pop('arguments', lease => '1000000 years');
SELECT fairq.pop('arguments', lease => '1 month -31 days');
SELECT fairq.pop('arguments', lease => '-1 month 29 days');
SELECT fairq.pop('arguments', lease => '178000000 years');
SELECT fairq.pop('arguments', lease => '200 years');
SELECT fairq.enqueue('arguments', 'a') > 0 AS ok;
SELECT lease_until - now() > '99 years' AS long, fairq.release(id)
FROM fairq.pop('arguments', lease => '100 years');
SELECT lease_until > now() AS short, fairq.complete(id, attempt)
FROM fairq.pop('arguments', lease => '1 microsecond');

--
-- Payloads
--

-- a payload of 2 MB cannot be compressed into one page
CREATE TEMP TABLE big AS
SELECT jsonb_build_object('text', string_agg(md5(i::text), '')) AS payload
FROM generate_series(1, 65536) i;
SELECT length(payload::text) FROM big;
SELECT fairq.enqueue('arguments', 'big', payload) > 0 AS ok FROM big;
SELECT count(*) FROM fairq.enqueue_batch('arguments', '{big,small}',
	(SELECT ARRAY[payload, '"small"'] FROM big));
SELECT count(*) FROM fairq.task, big
WHERE task.payload = big.payload AND pg_column_size(task.payload) > 1000000;
SELECT p.group_key, p.payload = big.payload AS equal, md5(p.payload::text) = md5(big.payload::text) AS same
FROM big, fairq.pop('arguments', 3) p ORDER BY p.id;
-- a task with a large payload is released, given another address, and taken
SELECT count(fairq.release(id)) FROM fairq.tasks WHERE queue = 'arguments' AND status = 'running' AND group_key = 'big';
SELECT fairq.alter_queue('arguments', block_length => 5000);
SELECT p.group_key, p.attempt, md5(p.payload::text) = md5(big.payload::text) AS same
FROM big, fairq.pop('arguments', 1) p;
BEGIN;
SELECT p.group_key, md5(p.payload::text) = md5(big.payload::text) AS same
FROM big, fairq.take('arguments', 1) p;
ROLLBACK;
SELECT p.group_key, md5(p.payload::text) = md5(big.payload::text) AS same
FROM big, fairq.take('arguments', 1) p;
-- the row of a taken task is gone, but its values can still be read
SELECT fairq.enqueue('arguments', 'big', payload) > 0 AS ok FROM big;
CREATE TEMP TABLE taken AS SELECT * FROM fairq.take('arguments');
SELECT md5(taken.payload::text) = md5(big.payload::text) AS same FROM big, taken;
SELECT fairq.complete_batch(array_agg(id)) FROM fairq.tasks
WHERE queue = 'arguments' AND group_key IN ('big', 'small');

-- JSON null differs from SQL NULL
SELECT count(*) FROM fairq.enqueue_batch('arguments', '{p,p,p,p,p,p,p}',
	ARRAY['null', '{}', '[]', 'false', '0', '""', '"\u0041 \\ \" ☃"']::jsonb[]);
SELECT fairq.enqueue('arguments', 'p', 'null') > 0 AS ok;
SELECT fairq.enqueue('arguments', 'p', NULL) > 0 AS ok;
SELECT fairq.enqueue('arguments', 'p') > 0 AS ok;
SELECT payload, jsonb_typeof(payload) FROM fairq.take('arguments', 10);
SELECT * FROM fairq.check_queue('arguments');

--
-- Attempts are fencing tokens
--

SELECT fairq.create_queue('arguments_attempt');
SELECT min(id) AS a, max(id) AS b
FROM fairq.enqueue_batch('arguments_attempt', '{a,b}', '{1,2}') AS id \gset
SELECT fairq.complete(:a), fairq.release(:a);			-- not running
SELECT fairq.complete_batch(ARRAY[:a, :b]) = ARRAY[:a, :b]::bigint[] AS both_lost;
SELECT payload, attempt FROM fairq.pop('arguments_attempt');
SELECT fairq.complete(:a, 0), fairq.complete(:a, 2), fairq.complete(:a, -1),
	fairq.complete(:a, -2147483648), fairq.complete(:a, 2147483647);
SELECT fairq.release(:a, 0), fairq.release(:a, 2), fairq.release(:a, -1),
	fairq.release(:a, -2147483648), fairq.release(:a, 2147483647);
SELECT fairq.complete_batch(ARRAY[:a, :a, :b], '{0,2,1}') = ARRAY[:a, :a, :b]::bigint[] AS all_lost, cardinality(fairq.complete_batch(ARRAY[:a], '{-1}'));
SELECT fairq.release(:a, 1);
SELECT fairq.release(:a, 1);
SELECT payload, attempt FROM fairq.pop('arguments_attempt', 2) ORDER BY payload;
SELECT fairq.complete(:a, 1), fairq.release(:a, 1), cardinality(fairq.complete_batch(ARRAY[:a], '{1}'));
-- each attempt can end only once
SELECT fairq.complete_batch(ARRAY[:b, :a, :b, 0, :a], '{1,1,2,1,2}') = ARRAY[:a, :b, 0]::bigint[] AS lost;
SELECT fairq.complete(:a), fairq.complete(:a, 2), fairq.complete(:b, 1);
SELECT min(id) AS a, max(id) AS b
FROM fairq.enqueue_batch('arguments_attempt', '{a,b}', '{1,2}') AS id \gset
SELECT count(*) FROM fairq.pop('arguments_attempt', 1);
SELECT fairq.complete_batch(ARRAY[:b, :a, :a, :b, -1, 0]) = ARRAY[:a, :a, :b, -1, 0]::bigint[] AS all_but_one;
SELECT payload, status FROM fairq.tasks WHERE queue = 'arguments_attempt';
SELECT count(*) FROM fairq.pop('arguments_attempt', 1);
SELECT fairq.complete(:b, 1);
SELECT count(*) FROM fairq.tasks WHERE queue = 'arguments_attempt';
SELECT * FROM fairq.check_queue('arguments_attempt');

SELECT bool_and(fairq.drop_queue(queue, true)) FROM fairq.queues
WHERE queue LIKE 'arguments%';
