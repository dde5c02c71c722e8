-- No index but the primary key: one on leased_until would have to be changed
-- by every pop.  The fillfactor is the default, 100.
CREATE SCHEMA fifo_lease;
CREATE TABLE fifo_lease.task (
	id bigserial PRIMARY KEY,
	group_key text NOT NULL,
	payload jsonb NOT NULL,
	leased_until timestamptz
);
