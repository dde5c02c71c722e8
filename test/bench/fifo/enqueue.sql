INSERT INTO fifo.task (group_key, payload) VALUES ('g' || :group, '$payload')
