-- Headers of tasks, and the columns of a claim.
--
-- Fails if a retry loses the headers.
\a \pset footer off
SET client_min_messages = warning;
\set VERBOSITY sqlstate

SELECT fairq.create_queue('headers', max_attempts => 3, retain => '1 hour');
SELECT fairq.enqueue('headers', 'a', '{"n": 1}',
	headers => '{"task": "mail", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}') AS first \gset
SELECT fairq.enqueue('headers', 'a', '{"n": 2}') AS second \gset
-- NULL elements mean no headers; each type of JSON is kept
SELECT count(*) FROM fairq.enqueue_batch('headers', '{a,a,a}', '{3,4,5}',
	headers => ARRAY['{"x": "y"}', NULL, 'null']::jsonb[]);

SELECT queue, payload, headers, attempt, attempts_left FROM fairq.pop('headers', 2);
SELECT payload, status, headers FROM fairq.tasks WHERE queue = 'headers' ORDER BY id;

-- headers are the same after a retry, a failure and a redrive, and in the
-- archive
SELECT fairq.fail(:first, retry_in => '0');
SELECT attempt, attempts_left, headers->>'task' AS task FROM fairq.pop('headers');
SELECT fairq.release(:first);
SELECT count(*) FROM fairq.pop('headers', 3);
SELECT attempt, attempts_left, headers->>'task' AS task FROM fairq.pop('headers');
SELECT fairq.fail(:first, retry_in => '0');
SELECT attempt, attempts_left, headers->>'task' AS task FROM fairq.pop('headers');
SELECT fairq.fail(:first, error => 'no');
SELECT status, headers->>'task' AS task, error FROM fairq.tasks WHERE id = :first;
SELECT fairq.redrive('headers');
SELECT attempt, attempts_left, headers->>'task' AS task FROM fairq.pop('headers');
SELECT fairq.complete(:first), fairq.complete(:second);
SELECT payload, status, headers->>'task' AS task FROM fairq.tasks WHERE queue = 'headers'
	AND finished_at IS NOT NULL ORDER BY id;

-- take returns headers, too; attempts_left follows the task's own
-- max_attempts, and is 0 once the queue's max_attempts is lowered to 1
SELECT fairq.enqueue('headers', 'b', headers => '[1]', max_attempts => 1) AS one \gset
SELECT queue, headers, attempts_left FROM fairq.take('headers');
SELECT fairq.enqueue('headers', 'b', headers => '"text"') AS one \gset
SELECT headers, attempts_left FROM fairq.pop('headers');
SELECT fairq.alter_queue('headers', max_attempts => 1);
SELECT fairq.release(:one);
SELECT headers, attempts_left FROM fairq.pop('headers');

-- large headers, which are stored out of line and can be read after their row
-- is gone
SELECT fairq.enqueue('headers', 'c', headers => jsonb_build_object('h',
	(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 4000) i))) > 0 AS ok;
SELECT length(headers->>'h') FROM fairq.take('headers');
-- large headers of a batch, which are together more than fairq writes at once
SELECT count(*) FROM fairq.enqueue_batch('headers', array_fill('d'::text, ARRAY[50]),
	array_fill('{}'::jsonb, ARRAY[50]), headers => array_fill(jsonb_build_object('h',
	(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 4000) i)), ARRAY[50]));
SELECT count(*), sum(length(headers->>'h')) FROM fairq.take('headers', 100);

-- invalid headers
SELECT fairq.enqueue_batch('headers', '{a,b}', '{1,2}', headers => ARRAY['{}']::jsonb[]);
SELECT fairq.enqueue_batch('headers', '{a,b}', '{1,2}', headers => '{{1,2}}');
SELECT fairq.enqueue('headers', 'a', headers => '{no JSON}');

SELECT * FROM fairq.check_queue('headers');
SELECT fairq.drop_queue('headers', true);
