-- The least that a queue needs: no index but the primary key, and the default
-- fillfactor of 100, since nothing is ever updated.
CREATE SCHEMA fifo;
CREATE TABLE fifo.task (
	id bigserial PRIMARY KEY,
	group_key text NOT NULL,
	payload jsonb NOT NULL
);
