-- Round-robin ids, after "An unfair advantage: multi-tenant queues in
-- Postgres": a task's id is its group's number in a block of ids, and a group
-- has one id per block.  Pointers say which block is being served, and what
-- each group's last one is.
--
-- A pointer is updated by every call, hence their fillfactors: with room on
-- the page an update touches no index.  The tasks have the default, 100.
CREATE SCHEMA article;
CREATE TABLE article.queue (
	block bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO article.queue VALUES (0);
CREATE TABLE article.group_pointer (
	group_key text PRIMARY KEY,
	group_no int NOT NULL GENERATED ALWAYS AS IDENTITY,
	last_block bigint NOT NULL DEFAULT -1
) WITH (fillfactor = 50);
CREATE TABLE article.task (
	id bigint PRIMARY KEY,
	group_key text NOT NULL,
	payload jsonb NOT NULL
);
