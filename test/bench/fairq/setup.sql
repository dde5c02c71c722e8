CREATE EXTENSION fairq;
SELECT fairq.create_queue('bench');
