-- The preconditions of docs/coming-from.md: the parts of other queue systems
-- that the page uses.

CREATE TABLE job (id serial, customer text, payload jsonb);
INSERT INTO job (customer, payload) VALUES
	('bob', '1'), ('bob', '2'), ('alice', '3');

-- pgmq's table of the queue "letters"
CREATE SCHEMA pgmq;
CREATE TABLE pgmq.q_letters (
	msg_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	read_ct int DEFAULT 0 NOT NULL,
	enqueued_at timestamptz DEFAULT now() NOT NULL,
	last_read_at timestamptz,
	vt timestamptz NOT NULL,
	message jsonb,
	headers jsonb);
INSERT INTO pgmq.q_letters (vt, message, headers) VALUES
	(now(), '1', '{"x-pgmq-group": "bob"}'), (now(), '2', NULL),
	(now() + '1 hour', '3', NULL);

-- the columns of pg-boss that the page reads
CREATE SCHEMA pgboss;
CREATE TYPE pgboss.job_state AS ENUM
	('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
CREATE TABLE pgboss.job (
	id uuid DEFAULT gen_random_uuid() NOT NULL,
	name text NOT NULL,
	data jsonb,
	state pgboss.job_state DEFAULT 'created' NOT NULL,
	start_after timestamptz DEFAULT now() NOT NULL,
	group_id text);
INSERT INTO pgboss.job (name, data, state, group_id) VALUES
	('emails', '1', 'created', 'bob'), ('emails', '2', 'retry', NULL),
	('emails', '3', 'active', 'bob');
