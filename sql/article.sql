-- This test compares fairq with the algorithm of "An unfair advantage:
-- multi-tenant queues in Postgres", written again in SQL. Both queues serve the
-- same tasks in the same order, at the same addresses. That holds if no task is
-- late, limited or retried, and no group has a weight.
--
-- Fails if each turn goes to the lowest seat of the ring (find_next() in
-- lane_turns.c).
\a \pset footer off
\set VERBOSITY sqlstate

-- The article's tables. A task's id is its place in the order of service. Each
-- group i has its last block p(i), and the queue has the present block.
CREATE TEMP TABLE article_group (name text PRIMARY KEY, i int, p bigint);
CREATE TEMP TABLE article_task (id bigint PRIMARY KEY, name text, payload text);
CREATE TEMP TABLE article_queue (block_length bigint, p_max bigint);
INSERT INTO article_queue VALUES (1000, 0);

-- CreateTask: the block max(p(i) + 1, p_max).
CREATE FUNCTION pg_temp.article_create(group_name text, what text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	q article_queue;
	g article_group;
	task_id bigint;
BEGIN
	SELECT * INTO q FROM article_queue;
	SELECT * INTO g FROM article_group WHERE name = group_name;
	IF NOT FOUND THEN
		INSERT INTO article_group
		SELECT group_name, count(*), -1 FROM article_group
		RETURNING * INTO g;
	END IF;
	UPDATE article_group SET p = greatest(g.p + 1, q.p_max)
	WHERE name = group_name RETURNING p INTO g.p;
	task_id := g.i + q.block_length * g.p;
	INSERT INTO article_task VALUES (task_id, group_name, what);
	RETURN task_id;
END $$;

-- PopTasks: the first n tasks of the window [min, min + concurrency * block
-- length), in the order of their ids.
CREATE FUNCTION pg_temp.article_pop(n int, concurrency int) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	q article_queue;
	served text;
BEGIN
	SELECT * INTO q FROM article_queue;
	WITH popped AS (
		DELETE FROM article_task WHERE id IN (
			SELECT id FROM article_task
			WHERE concurrency IS NULL
				OR id < (SELECT min(id) FROM article_task) + concurrency * q.block_length
			ORDER BY id LIMIT n)
		RETURNING id, payload)
	SELECT string_agg(payload || '@' || id, ' ' ORDER BY id), max(id) / q.block_length
	INTO served, q.p_max FROM popped;
	UPDATE article_queue SET p_max = greatest(p_max, q.p_max);
	RETURN served;
END $$;

CREATE FUNCTION pg_temp.fairq_pop(n int, concurrency int) RETURNS text
LANGUAGE sql AS $$
	SELECT string_agg((payload #>> '{}') || '@' || addr, ' ' ORDER BY ordinality)
	FROM fairq.take('article', n, per_group => concurrency) WITH ORDINALITY
$$;

SELECT fairq.create_queue('article', block_length => 1000);

-- The article's own example: Bob uploads many files, then Alice uploads one.
SELECT pg_temp.article_create('bob', 'b' || i), fairq.enqueue('article', 'bob', to_jsonb('b' || i)) IS NOT NULL
FROM generate_series(1, 4) i;
SELECT pg_temp.article_pop(2, NULL) AS article, pg_temp.fairq_pop(2, NULL) AS fairq;
SELECT pg_temp.article_create('alice', 'a1'), fairq.enqueue('article', 'alice', '"a1"') IS NOT NULL;
SELECT pg_temp.article_pop(2, NULL) AS article, pg_temp.fairq_pop(2, NULL) AS fairq;
SELECT pg_temp.article_pop(2, NULL) AS article, pg_temp.fairq_pop(2, NULL) AS fairq;

-- A random history: thirteen groups, a few of which have most tasks. Pops of
-- one task and of several, with a window and without.
CREATE TEMP TABLE step (n int, article text, fairq text, address_kept boolean);
DO $$
DECLARE
	random int := 4711;
	what text;
	who text;
	given bigint;
	task_id bigint;
	kept boolean;
	many int;
	at_most int;
BEGIN
	FOR i IN 1 .. 600 LOOP
		random := (random * 1103::bigint + 12345) % 65536;
		IF random % 5 < 3 THEN
			FOR k IN 1 .. 1 + random % 7 LOOP
				random := (random * 1103::bigint + 12345) % 65536;
				who := 'g' || least(random % 13, random % 29);
				what := who || '-' || i || '-' || k;
				given := pg_temp.article_create(who, what);
				task_id := fairq.enqueue('article', who, to_jsonb(what));
				SELECT addr = given INTO kept FROM fairq.tasks WHERE id = task_id;
				INSERT INTO step VALUES (i, NULL, NULL, kept);
			END LOOP;
		ELSE
			many := 1 + random % 9;
			random := (random * 1103::bigint + 12345) % 65536;
			at_most := CASE WHEN random % 3 = 0 THEN 1 + random % 2 END;
			INSERT INTO step
			SELECT i, pg_temp.article_pop(many, at_most), pg_temp.fairq_pop(many, at_most), true;
		END IF;
	END LOOP;
END $$;
SELECT count(*) FILTER (WHERE article IS NOT NULL) > 100 AS many_pops,
	count(*) FILTER (WHERE article IS DISTINCT FROM fairq) AS served_otherwise,
	count(*) FILTER (WHERE address_kept IS NOT TRUE) AS other_addresses
FROM step;
SELECT * FROM step WHERE article IS DISTINCT FROM fairq ORDER BY n LIMIT 3;

-- All remaining tasks, in one call.
SELECT pg_temp.article_pop(10000, NULL) IS NOT DISTINCT FROM pg_temp.fairq_pop(10000, NULL) AS same;
SELECT * FROM fairq.check_queue('article');

-- Intended differences. If a group may run only one task at a time, the article
-- moves other tasks to an OVERFLOW table. fairq puts the group aside, and its
-- tasks keep their addresses.
SELECT fairq.create_queue('article_limited', concurrency => 1, block_length => 1000);
SELECT count(fairq.enqueue('article_limited', g, to_jsonb(g || i)))
FROM unnest('{a,b}'::text[]) g, generate_series(1, 3) i;
SELECT payload, addr FROM fairq.pop('article_limited', 10);
SELECT payload, status, addr FROM fairq.tasks WHERE queue = 'article_limited' ORDER BY addr;

-- Retried and scheduled tasks have a turn in their group's next round, but no
-- address of their own.
SELECT fairq.fail(id, attempt, retry_in => '0') FROM fairq.tasks
WHERE queue = 'article_limited' AND payload = '"a1"';
SELECT payload, addr, attempt FROM fairq.pop('article_limited', 10);
SELECT payload, status, addr FROM fairq.tasks
WHERE queue = 'article_limited' AND status = 'running' ORDER BY payload;

-- A group with a weight has several tasks per turn, at one address.
SELECT fairq.create_queue('article_weight', block_length => 1000);
SELECT fairq.set_group('article_weight', 'a', weight => 2);
SELECT count(fairq.enqueue('article_weight', g, to_jsonb(g || i)))
FROM unnest('{a,b}'::text[]) g, generate_series(1, 3) i;
SELECT payload, addr FROM fairq.pop('article_weight', 10);

SELECT fairq.drop_queue(queue, true) FROM fairq.queues WHERE queue LIKE 'article%';
