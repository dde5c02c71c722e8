TRUNCATE fifo.task;
