-- Round-robin ids, as in "An unfair advantage: multi-tenant queues in
-- Postgres".  A task's id is its group's number in a block of ids, and a group
-- has one id per block.  The pointers are the block that is being served, and
-- the last block of each group.
--
-- Every call updates a pointer. These tables have a low fillfactor, because
-- with free space on the page an update changes no index.  The table of tasks
-- has the default fillfactor.
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
