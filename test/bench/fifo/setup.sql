-- A minimal queue. Its table has no index except the primary key. Its
-- fillfactor is the default, 100, since rows are never updated.
CREATE SCHEMA fifo;
CREATE TABLE fifo.task (
	id bigserial PRIMARY KEY,
	group_key text NOT NULL,
	payload jsonb NOT NULL
);
