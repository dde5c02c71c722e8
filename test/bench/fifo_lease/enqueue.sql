INSERT INTO fifo_lease.task (group_key, payload) VALUES ('g' || :group, '$payload')
