CREATE TABLE fifo_lease.blocked (group_key text PRIMARY KEY);
INSERT INTO fifo_lease.blocked VALUES ('blocked');
