-- The minimum of a queue: it has only the primary key, and the default
-- fillfactor of 100, since rows are never updated.
CREATE SCHEMA fifo;
CREATE TABLE fifo.task (
	id bigserial PRIMARY KEY,
	group_key text NOT NULL,
	payload jsonb NOT NULL
);
