TRUNCATE fifo_lease.task;
