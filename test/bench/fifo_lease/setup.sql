CREATE SCHEMA fifo_lease;
CREATE TABLE fifo_lease.task (
	id bigserial PRIMARY KEY,
	group_key text NOT NULL,
	payload jsonb NOT NULL,
	leased_until timestamptz NOT NULL DEFAULT '-infinity'
);
