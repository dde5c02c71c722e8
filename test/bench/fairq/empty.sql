TRUNCATE fairq.task;
