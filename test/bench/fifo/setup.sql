CREATE SCHEMA fifo;
CREATE TABLE fifo.task (
	id bigserial PRIMARY KEY,
	group_key text NOT NULL,
	payload jsonb NOT NULL
);
