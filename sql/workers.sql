-- The registry of workers: register_worker(), unregister_worker() and the view
-- workers.
--
-- Fails if each call adds a row. Fails if the row of a worker that has not
-- registered for an hour stays. Fails if the view shows queues that the role
-- may not monitor (fairq--1.0.sql).
\a \pset footer off
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_fairq_w_both, regress_fairq_w_one, regress_fairq_w_enqueue;
RESET client_min_messages;
\set VERBOSITY sqlstate
\set a '''00000000-0000-0000-0000-00000000000a'''
\set b '''00000000-0000-0000-0000-00000000000b'''

SELECT fairq.create_queue('workers_a'), fairq.create_queue('workers_b');

-- if a worker registers repeatedly, its row shows the last call
SELECT fairq.register_worker(:a, 'one', '{workers_b, workers_a}', 'host', 'python', '1.0.0', 4);
SELECT started_at AS since, last_seen AS seen FROM fairq.workers \gset
SELECT fairq.register_worker(:a, 'one', '{workers_b, workers_a}', 'host', 'python', '1.0.1', 8, 3);
SELECT worker, host, client, version, queues, concurrency, running,
	started_at = :'since' AS same, last_seen > :'seen' AS later FROM fairq.workers;

-- two workers may have the same name; only name and queues are required
SELECT fairq.register_worker(:b, 'one', '{workers_a}');
SELECT worker, host, client, version, queues, concurrency, running, last_seen >= started_at AS ok
FROM fairq.workers ORDER BY last_seen;

-- unregister_worker removes the row of a worker that ends
SELECT fairq.unregister_worker(:b), fairq.unregister_worker(:b);
SELECT count(*) FROM fairq.workers;

-- a killed worker is shown for an hour; the next worker deletes its row
UPDATE fairq.worker SET last_seen = last_seen - interval '59 minutes';
SELECT fairq.register_worker(:b, 'two', '{workers_b}');
SELECT worker FROM fairq.workers ORDER BY 1;
UPDATE fairq.worker SET last_seen = last_seen - interval '61 minutes', started_at = :'since';
SELECT fairq.register_worker(:b, 'two', '{workers_b}');
SELECT worker, started_at = :'since' AS same FROM fairq.workers ORDER BY 1;
SELECT count(*) FROM fairq.worker;
SELECT fairq.register_worker('00000000-0000-0000-0000-00000000000c', 'three', '{workers_b}');
SELECT count(*) FROM fairq.worker;
SELECT fairq.unregister_worker('00000000-0000-0000-0000-00000000000c');

-- invalid values
SELECT fairq.register_worker(NULL, 'one', '{workers_a}');
SELECT fairq.register_worker(:a, NULL, '{workers_a}');
SELECT fairq.register_worker(:a, 'one', NULL);
SELECT fairq.register_worker(:a, 'one', '{}');
SELECT fairq.register_worker(:a, 'one', '{workers_a, NULL}');
SELECT fairq.register_worker(:a, 'one', '{workers_a, workers_none}');
SELECT fairq.register_worker(:a, repeat('x', 1025), '{workers_a}');
SELECT fairq.register_worker(:a, 'one', '{workers_a}', host => repeat('x', 1025));
SELECT fairq.register_worker(:a, 'one', '{workers_a}', concurrency => -1);
SELECT fairq.register_worker(:a, 'one', '{workers_a}', running => -1);
SELECT fairq.unregister_worker(NULL);
BEGIN READ ONLY;
SELECT fairq.register_worker(:a, 'one', '{workers_a}');
ROLLBACK;
BEGIN READ ONLY;
SELECT fairq.unregister_worker(:a);
ROLLBACK;
SELECT worker FROM fairq.workers;

-- a role sees the workers of the queues that it may monitor, and in each row
-- only these queues
CREATE ROLE regress_fairq_w_both;
CREATE ROLE regress_fairq_w_one;
CREATE ROLE regress_fairq_w_enqueue;
SELECT fairq.grant_queue('workers_a', 'regress_fairq_w_both', 'work'),
	fairq.grant_queue('workers_b', 'regress_fairq_w_both', 'work'),
	fairq.grant_queue('workers_b', 'regress_fairq_w_one', 'work'),
	fairq.grant_queue('workers_a', 'regress_fairq_w_enqueue', 'enqueue'),
	fairq.grant_queue('workers_b', 'regress_fairq_w_enqueue', 'enqueue');
SET ROLE regress_fairq_w_both;
SELECT fairq.register_worker(:a, 'one', '{workers_a, workers_b}');
SET ROLE regress_fairq_w_one;
SELECT fairq.register_worker(gen_random_uuid(), 'three', '{workers_a, workers_b}');
SELECT worker, queues FROM fairq.workers ORDER BY worker;
SET ROLE regress_fairq_w_enqueue;
SELECT fairq.register_worker(gen_random_uuid(), 'three', '{workers_a}');
SELECT worker, queues FROM fairq.workers ORDER BY worker;
SELECT worker FROM fairq.worker;
RESET ROLE;
SELECT worker, queues FROM fairq.workers ORDER BY worker;

-- a queue that is dropped is not shown
SELECT fairq.drop_queue('workers_b');
SELECT worker, queues FROM fairq.workers ORDER BY worker;
SELECT fairq.drop_queue('workers_a');
SELECT worker, queues FROM fairq.workers ORDER BY worker;
SELECT count(fairq.unregister_worker(worker_id)) FROM fairq.worker;
DROP ROLE regress_fairq_w_both, regress_fairq_w_one, regress_fairq_w_enqueue;
