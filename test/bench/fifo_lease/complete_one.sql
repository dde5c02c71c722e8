DELETE FROM fifo_lease.task WHERE id = :id
