-- The table has only the primary key, because every pop would have to change
-- an index on leased_until.  The fillfactor is the default, 100.
CREATE SCHEMA fifo_lease;
CREATE TABLE fifo_lease.task (
	id bigserial PRIMARY KEY,
	group_key text NOT NULL,
	payload jsonb NOT NULL,
	leased_until timestamptz
);
