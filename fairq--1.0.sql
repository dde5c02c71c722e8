/* fairq--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION fairq" to load this file. \quit

CREATE SCHEMA fairq;
COMMENT ON SCHEMA fairq IS 'A task queue that is fair to many tenants.';

-- Functions and views that only fairq's own views, triggers and functions use.
-- No role has USAGE on the schema, because a view can call the functions that
-- it names without this privilege.
CREATE SCHEMA fairq_internal;
COMMENT ON SCHEMA fairq_internal IS 'Parts of fairq that no application calls.';

--
-- The tables are authoritative: fairq fills shared memory from them.  The C
-- code finds their columns by number (src/base/catalog.h).  It refuses tables
-- with objects that it would bypass (src/base/catalog.c).  So a new column, or
-- a new NOT NULL or check constraint, has to be added to these files, too.
--

-- The number of a lane, also an int, is ten times the number of its queue,
-- plus the priority.
CREATE SEQUENCE fairq.queue_id_seq AS int MAXVALUE 214748363;

CREATE TABLE fairq.queue (
	queue_id int PRIMARY KEY DEFAULT pg_catalog.nextval('fairq.queue_id_seq')
		CHECK (queue_id BETWEEN 1 AND 214748363),
	block_length bigint NOT NULL DEFAULT 1048576 CHECK (block_length > 0),
	paused boolean NOT NULL DEFAULT false,
	name text COLLATE "C" NOT NULL UNIQUE,
	lease interval NOT NULL DEFAULT '5 minutes',
	max_attempts int NOT NULL DEFAULT 20 CHECK (max_attempts > 0),
	notify boolean NOT NULL DEFAULT false,
	backoff interval NOT NULL DEFAULT '1 second',
	concurrency int CHECK (concurrency > 0),
	max_running int CHECK (max_running > 0),
	retain interval,
	fair_by text NOT NULL DEFAULT 'tasks' CHECK (fair_by IN ('tasks', 'cost', 'time')),
	rate int CHECK (rate > 0),
	per interval NOT NULL DEFAULT '1 minute',
	burst int NOT NULL DEFAULT 1 CHECK (burst > 0),
	max_rate int CHECK (max_rate > 0),
	shares int[] CHECK (pg_catalog.array_ndims(shares) = 1
		AND pg_catalog.cardinality(shares) <= 10
		AND pg_catalog.array_position(shares, NULL) IS NULL
		AND 1 <= ALL (shares) AND 1000000 >= ALL (shares)),
	in_order boolean NOT NULL DEFAULT false
		CHECK (NOT in_order OR concurrency IS NOT DISTINCT FROM 1),
	held_until timestamptz,
	retain_failed interval,
	max_run_time interval CHECK (max_run_time > '0' AND max_run_time < '1000 years'),
	backoff_max interval NOT NULL DEFAULT '1 hour',
	separator text CHECK (pg_catalog.octet_length(separator) = 1 AND pg_catalog.ascii(separator) < 128)
) USING heap WITH (fillfactor = 50);
ALTER SEQUENCE fairq.queue_id_seq OWNED BY fairq.queue.queue_id;

COMMENT ON TABLE fairq.queue IS 'Queues and their settings.';
COMMENT ON COLUMN fairq.queue.queue_id IS 'Number of the queue. It is never used again for another queue.';
COMMENT ON COLUMN fairq.queue.block_length IS 'Number of addresses per block, and so the maximum number of groups.';
COMMENT ON COLUMN fairq.queue.paused IS 'No task of the queue is popped while this is true.';
COMMENT ON COLUMN fairq.queue.name IS 'The queue''s name in calls.';
COMMENT ON COLUMN fairq.queue.lease IS 'How long a popped task belongs to its worker, unless pop gives another lease.';
COMMENT ON COLUMN fairq.queue.max_attempts IS 'Number of attempts after which a task fails for good, unless the task has its own number.';
COMMENT ON COLUMN fairq.queue.notify IS 'True: fairq sends NOTIFY "fairq.<name>" when tasks become ready.';
COMMENT ON COLUMN fairq.queue.backoff IS 'How long the first retry waits. Each further retry waits twice as long.';
COMMENT ON COLUMN fairq.queue.retain IS 'How long completed, cancelled and expired tasks stay in the archive; NULL: they are not '
	'archived.';
COMMENT ON COLUMN fairq.queue.concurrency IS 'Maximum number of running tasks of a group; NULL: no limit.';
COMMENT ON COLUMN fairq.queue.max_running IS 'Maximum number of running tasks of the queue; NULL: no limit.';
COMMENT ON COLUMN fairq.queue.fair_by IS 'The unit that all groups get in equal amounts: tasks, cost or time.';
COMMENT ON COLUMN fairq.queue.rate IS 'How many tasks of a group may start per interval "per"; NULL: no limit.';
COMMENT ON COLUMN fairq.queue.per IS 'Length of the interval to which rate, max_rate and the rates of groups apply.';
COMMENT ON COLUMN fairq.queue.burst IS 'How many tasks may start at once if none has started for a long time.';
COMMENT ON COLUMN fairq.queue.max_rate IS 'How many tasks of the queue may start per interval "per"; NULL: no limit.';
COMMENT ON COLUMN fairq.queue.shares IS 'Shares of the service for priority 0, 1 and so on. A priority without a share is served when no '
	'priority with a share has work. NULL: priorities are strict, and 0 is first.';
COMMENT ON COLUMN fairq.queue.in_order IS 'True: no task of a group runs while another one of the group waits for its retry.';
COMMENT ON COLUMN fairq.queue.held_until IS 'No task starts before this time; NULL, or a time in the past: no hold.';
COMMENT ON COLUMN fairq.queue.retain_failed IS 'How long failed tasks stay in the archive; NULL: until they are redriven or purged.';
COMMENT ON COLUMN fairq.queue.max_run_time IS 'How long a task may run: its lease cannot be extended past this time after the pop; NULL: no '
	'limit.';

COMMENT ON COLUMN fairq.queue.backoff_max IS 'Maximum time that a retry waits.';
COMMENT ON COLUMN fairq.queue.separator IS 'Character between tenant and user in the keys of groups; NULL: there are no tenants. It cannot be changed.';

-- The indexes are deliberately not unique: see src/task/group.c.
CREATE TABLE fairq.group_number (
	queue_id int NOT NULL,
	group_no int NOT NULL CHECK (group_no >= 0),
	group_key text COLLATE "C" NOT NULL
) USING heap;
CREATE INDEX group_number_by_key ON fairq.group_number (queue_id, group_key);
CREATE INDEX group_number_by_no ON fairq.group_number (queue_id, group_no);
-- The table has no primary key.  If equal rows exist, a subscriber deletes one row
-- for each row that is deleted here.
ALTER TABLE fairq.group_number REPLICA IDENTITY FULL;

COMMENT ON TABLE fairq.group_number IS 'Numbers of groups. A group may have several equal rows.';
COMMENT ON COLUMN fairq.group_number.queue_id IS 'The queue.';
COMMENT ON COLUMN fairq.group_number.group_no IS 'The group''s seat in every block.';
COMMENT ON COLUMN fairq.group_number.group_key IS 'The group''s key in calls.';

CREATE TABLE fairq.group_setting (
	queue_id int NOT NULL,
	group_no int NOT NULL CHECK (group_no >= 0),
	weight int NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),
	paused boolean NOT NULL DEFAULT false,
	concurrency int CHECK (concurrency > 0),
	rate int CHECK (rate > 0),
	held_until timestamptz,
	PRIMARY KEY (queue_id, group_no)
) USING heap WITH (fillfactor = 50);

COMMENT ON TABLE fairq.group_setting IS 'Groups that have their own settings.';
COMMENT ON COLUMN fairq.group_setting.queue_id IS 'The queue.';
COMMENT ON COLUMN fairq.group_setting.group_no IS 'The group.';
COMMENT ON COLUMN fairq.group_setting.weight IS 'Maximum number of tasks of the group that are served at its turn. A group has one turn per round.';
COMMENT ON COLUMN fairq.group_setting.paused IS 'No task of the group or tenant is popped while this is true.';
COMMENT ON COLUMN fairq.group_setting.concurrency IS 'Maximum number of running tasks of the group; NULL: the setting of the queue.';
COMMENT ON COLUMN fairq.group_setting.rate IS 'How many tasks of the group may start per interval "per" of the queue; NULL: the setting of the queue.';
COMMENT ON COLUMN fairq.group_setting.held_until IS 'No task of the group starts before this time; NULL, or a time in the past: no hold.';

-- The table stores the OID of a role, and a dump has its name.
CREATE TABLE fairq.queue_privilege (
	queue_id int NOT NULL,
	role regrole NOT NULL,
	privilege text COLLATE "C" NOT NULL
		CHECK (privilege IN ('enqueue', 'work', 'monitor', 'manage')),
	PRIMARY KEY (queue_id, role, privilege)
) USING heap;

COMMENT ON TABLE fairq.queue_privilege IS 'Privileges of roles on queues. The owner of fairq''s tables has all privileges.';
COMMENT ON COLUMN fairq.queue_privilege.queue_id IS 'The queue.';
COMMENT ON COLUMN fairq.queue_privilege.role IS 'The role. Members that inherit the role''s privileges have the privilege too.';
COMMENT ON COLUMN fairq.queue_privilege.privilege IS 'enqueue, work (includes monitor), monitor, or manage (includes all others).';

-- This function precedes the tables fairq.task and fairq.archive, because their
-- CHECK constraints call it.
CREATE FUNCTION fairq_internal.attempt_log(log text, error text) RETURNS jsonb
	LANGUAGE sql STABLE PARALLEL SAFE
RETURN (
	SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
			'at', timestamptz '2000-01-01 00:00:00 UTC' + (e->>0)::bigint * interval '1 microsecond',
			'attempt', e->1, 'worker', e->2,
			'error', CASE WHEN e->3 = 'true' THEN pg_catalog.to_jsonb(error) ELSE e->3 END)
		ORDER BY n)
	FROM pg_catalog.jsonb_array_elements(
			('[' || pg_catalog.replace(log, E'\n', ',') || ']')::jsonb)
		WITH ORDINALITY AS lines (e, n));
COMMENT ON FUNCTION fairq_internal.attempt_log(text, text)
	IS 'Returns the attempt log that users see, from the columns attempt_log and error of a task.';

-- The order of columns needs little padding.  The columns that a claim changes and
-- logs are together, and columns that may be NULL are last.  The fillfactor leaves
-- room for a second version of each row on its page.  So a claim is HOT even while
-- an old snapshot keeps all first versions.  At a fillfactor of 60, a quarter of
-- the claims of a backlog are not HOT.  A pop and its completion then log 1.5 times
-- as much.  At 75, half of the claims are not HOT, and the two log 2.2 times as
-- much.  A batch of enqueues is then at most a tenth faster.  These settings of
-- autovacuum keep the table 7 % and its indexes 6 to 11 % smaller than the
-- defaults do.  That was measured with 300,000 old tasks and many short ones.
-- Deduplication of index entries would gain nothing.  Equal keys occur only in
-- versions of a row, or if a group has a weight above 1.
CREATE TABLE fairq.task (
	id bigint NOT NULL,
	addr bigint NOT NULL,
	enqueued_at timestamptz NOT NULL,
	queue_id int NOT NULL,
	group_no int NOT NULL CHECK (group_no >= 0),
	lane int NOT NULL GENERATED ALWAYS AS (queue_id * 10 + priority) STORED,
	priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
	cancelled boolean NOT NULL DEFAULT false,
	attempt int NOT NULL,
	lease_until timestamptz,
	popped_at timestamptz,
	run_at timestamptz,
	max_attempts int CHECK (max_attempts > 0),
	released int,
	lapses int,
	cost real CHECK (cost > 0 AND cost <= 1000000),
	payload jsonb NOT NULL,
	worker text,
	dedup_key text COLLATE "C",
	error text,
	headers jsonb,
	progress jsonb,
	until_started boolean CHECK (until_started),
	dedup_for interval,
	expires_at timestamptz,
	batch bigint,
	blocked boolean CHECK (blocked),
	attempt_log text
		CHECK (attempt_log IS NULL
			OR fairq_internal.attempt_log(attempt_log, '') IS NOT NULL),
	PRIMARY KEY (id)
) USING heap WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02,
	autovacuum_vacuum_threshold = 2000);
-- This index has the timed tasks.  No other tasks are searched across groups.
CREATE INDEX task_by_time ON fairq.task (lane, addr)
	WITH (deduplicate_items = off) WHERE addr >= 4611686018427387904;
CREATE INDEX task_by_group ON fairq.task (lane, group_no, addr)
	WITH (deduplicate_items = off);
-- maintain() uses this index.  A claim does not change its columns.
CREATE INDEX task_by_expiry ON fairq.task (queue_id, expires_at)
	WHERE expires_at IS NOT NULL;
-- This index shows whether a batch has tasks that have not ended.
CREATE INDEX task_by_batch ON fairq.task (batch, id)
	WHERE batch IS NOT NULL;
-- Each value begins a chunk of ids, which ends before the next value.  After a
-- crash, PostgreSQL may skip 32 values, so fewer than 1,024 ids are skipped.
CREATE SEQUENCE fairq.task_id_seq INCREMENT 31 OWNED BY fairq.task.id;

COMMENT ON TABLE fairq.task IS 'Tasks that are not finished.';
COMMENT ON COLUMN fairq.task.id IS 'Identifies the task for its whole life.';
COMMENT ON COLUMN fairq.task.addr IS 'The task''s position among its group''s tasks. Below 2^62 it is a turn: group_no + block_length * block. An enqueue or a release sets it, and a claim does not change it. From 2^62 on it is the time of a retry, and from 2^62 + 2^61 on the time of a scheduled task. A time is in milliseconds since 2000, times 65536, plus the low bits of the id.';
COMMENT ON COLUMN fairq.task.enqueued_at IS 'When the task was enqueued (clock time).';
COMMENT ON COLUMN fairq.task.lease_until IS 'When the task''s lease expires; NULL: the task is not running.';
COMMENT ON COLUMN fairq.task.popped_at IS 'When the task was last popped (clock time); NULL: never. The time is kept when the task is put back.';
COMMENT ON COLUMN fairq.task.queue_id IS 'The queue.';
COMMENT ON COLUMN fairq.task.group_no IS 'The group.';
COMMENT ON COLUMN fairq.task.lane IS 'The queue and the priority in one column, with which the indexes begin.';
COMMENT ON COLUMN fairq.task.attempt IS 'How often the task was popped. This number is the fencing token of the worker.';
COMMENT ON COLUMN fairq.task.priority IS '0 (first) to 9.';
COMMENT ON COLUMN fairq.task.payload IS 'Payload from the producer.';
COMMENT ON COLUMN fairq.task.worker IS 'Name of the worker that has the lease, as given to pop.';
COMMENT ON COLUMN fairq.task.cancelled IS 'True: the task was cancelled while it ran. fairq.extend() reports that to the worker.';
COMMENT ON COLUMN fairq.task.run_at IS 'The task does not start before this time. If the task was put back without a delay, this is the time of the call that put it back.';
COMMENT ON COLUMN fairq.task.max_attempts IS 'Number of attempts after which the task fails for good; NULL: the setting of the queue.';
COMMENT ON COLUMN fairq.task.released IS 'Number of the task''s attempts that do not count because they were released; NULL: none.';
COMMENT ON COLUMN fairq.task.lapses IS 'Number of the task''s attempts that ended because the lease expired; NULL: none.';
COMMENT ON COLUMN fairq.task.cost IS 'The task''s cost in a cost-fair queue; NULL: 1.';
COMMENT ON COLUMN fairq.task.dedup_key IS 'Deduplication key. While the task has it, no other task of the queue gets the same key.';
COMMENT ON COLUMN fairq.task.error IS 'Why the last attempt failed.';
COMMENT ON COLUMN fairq.task.headers IS 'Headers from the producer; NULL: none.';
COMMENT ON COLUMN fairq.task.progress IS 'Progress that a worker set last; NULL: none.';
COMMENT ON COLUMN fairq.task.until_started IS 'True: the task''s dedup_key is free once the task was popped; NULL: the key is free when the task is finished.';
COMMENT ON COLUMN fairq.task.dedup_for IS 'Additional time for which the task''s dedup_key stays taken; NULL: none.';
COMMENT ON COLUMN fairq.task.expires_at IS 'The task does not start after this time, unless an attempt that counts began before it; NULL: '
	'no limit.';

COMMENT ON COLUMN fairq.task.batch IS 'The batch of the task; NULL: none.';
COMMENT ON COLUMN fairq.task.blocked IS 'True: the task waits for tasks in fairq.dependency, or for the end of the batch that has the task''s id; NULL: it does not wait.';
COMMENT ON COLUMN fairq.task.attempt_log IS 'The task''s last 10 failed attempts, one per line: a JSON array of the time (microseconds since 2000), the attempt, the worker and the error. A missing worker or error is null. The error true means the text in the column "error". NULL: none.';

-- Keys have a table of their own, so that tasks without a key cost nothing
-- extra.
CREATE TABLE fairq.dedup (
	queue_id int NOT NULL,
	dedup_key text COLLATE "C" NOT NULL,
	id bigint NOT NULL,
	free_at timestamptz,
	PRIMARY KEY (queue_id, dedup_key)
) USING heap;

COMMENT ON TABLE fairq.dedup IS 'Deduplication keys of unfinished tasks, and keys that are not free yet.';
COMMENT ON COLUMN fairq.dedup.queue_id IS 'The queue.';
COMMENT ON COLUMN fairq.dedup.dedup_key IS 'The key.';
COMMENT ON COLUMN fairq.dedup.id IS 'The task.';
COMMENT ON COLUMN fairq.dedup.free_at IS 'When the key becomes free; NULL: the task still has it.';

-- The table has a group's key, because its number may now belong to another
-- group.
CREATE TABLE fairq.archive (
	id bigint PRIMARY KEY,
	enqueued_at timestamptz NOT NULL,
	finished_at timestamptz NOT NULL,
	queue_id int NOT NULL,
	attempt int NOT NULL,
	priority smallint NOT NULL,
	status smallint NOT NULL CHECK (status BETWEEN 1 AND 4),
	popped_at timestamptz,
	run_at timestamptz,
	max_attempts int,
	lapses int,
	released int,
	cost real,
	payload jsonb NOT NULL,
	group_key text COLLATE "C" NOT NULL,
	worker text,
	dedup_key text COLLATE "C",
	error text,
	result jsonb,
	headers jsonb,
	progress jsonb,
	until_started boolean,
	dedup_for interval,
	expires_at timestamptz,
	batch bigint,
	attempt_log text
		CHECK (attempt_log IS NULL
			OR fairq_internal.attempt_log(attempt_log, '') IS NOT NULL)
) USING heap;
CREATE INDEX archive_by_status
	ON fairq.archive (queue_id, status, finished_at, id)
	WITH (deduplicate_items = off);

COMMENT ON TABLE fairq.archive IS 'Finished tasks: failed ones, and those that the queue retains. Rows may be deleted.';
COMMENT ON COLUMN fairq.archive.id IS 'The task.';
COMMENT ON COLUMN fairq.archive.enqueued_at IS 'When the task was enqueued (clock time).';
COMMENT ON COLUMN fairq.archive.finished_at IS 'When the task was finished (clock time).';
COMMENT ON COLUMN fairq.archive.queue_id IS 'The queue.';
COMMENT ON COLUMN fairq.archive.attempt IS 'How often the task was popped.';
COMMENT ON COLUMN fairq.archive.priority IS '0 (first) to 9.';
COMMENT ON COLUMN fairq.archive.status IS '1: completed, 2: failed, 3: cancelled, 4: expired.';
COMMENT ON COLUMN fairq.archive.popped_at IS 'When the task was last popped (clock time); NULL: never.';
COMMENT ON COLUMN fairq.archive.run_at IS 'The task did not start before this time.';
COMMENT ON COLUMN fairq.archive.max_attempts IS 'Number of attempts after which the task fails for good; NULL: the setting of the queue.';
COMMENT ON COLUMN fairq.archive.lapses IS 'Number of the task''s attempts that ended because the lease expired; NULL: none.';
COMMENT ON COLUMN fairq.archive.released IS 'Number of the task''s attempts that did not count because they were released; NULL: none.';
COMMENT ON COLUMN fairq.archive.cost IS 'The task''s cost in a cost-fair queue; NULL: 1.';
COMMENT ON COLUMN fairq.archive.payload IS 'Payload from the producer.';
COMMENT ON COLUMN fairq.archive.group_key IS 'The group.';
COMMENT ON COLUMN fairq.archive.worker IS 'Name of the worker that finished the task, as given to pop.';
COMMENT ON COLUMN fairq.archive.dedup_key IS 'Deduplication key of the task.';
COMMENT ON COLUMN fairq.archive.error IS 'Why the last attempt failed.';
COMMENT ON COLUMN fairq.archive.result IS 'Result from the worker, as given to fairq.complete().';
COMMENT ON COLUMN fairq.archive.headers IS 'Headers from the producer; NULL: none.';
COMMENT ON COLUMN fairq.archive.progress IS 'Progress that a worker set last; NULL: none.';
COMMENT ON COLUMN fairq.archive.until_started IS 'True: the task''s dedup_key was free once the task was popped.';
COMMENT ON COLUMN fairq.archive.dedup_for IS 'Additional time for which the task''s dedup_key stays taken; NULL: none.';
COMMENT ON COLUMN fairq.archive.expires_at IS 'The task was not to start after this time; NULL: no limit.';
COMMENT ON COLUMN fairq.archive.batch IS 'The batch of the task; NULL: none.';
COMMENT ON COLUMN fairq.archive.attempt_log IS 'As in fairq.task.';

CREATE TABLE fairq.batch (
	id bigint PRIMARY KEY,
	queue_id int NOT NULL,
	on_success boolean NOT NULL,
	created_at timestamptz NOT NULL,
	closed_at timestamptz,
	finished_at timestamptz,
	completed bigint,
	failed bigint,
	cancelled bigint,
	expired bigint,
	purged bigint
) USING heap WITH (fillfactor = 50);

COMMENT ON TABLE fairq.batch IS 'Batches of tasks. Another task waits for the end of each batch.';
COMMENT ON COLUMN fairq.batch.id IS 'The task that waits.';
COMMENT ON COLUMN fairq.batch.queue_id IS 'The queue of that task.';
COMMENT ON COLUMN fairq.batch.on_success IS 'True: that task fails unless all tasks of the batch succeed.';
COMMENT ON COLUMN fairq.batch.created_at IS 'When the batch was created (clock time).';
COMMENT ON COLUMN fairq.batch.closed_at IS 'When the batch was closed (clock time); NULL: tasks can still be added.';
COMMENT ON COLUMN fairq.batch.finished_at IS 'When the wait ended (clock time); NULL: it has not ended.';
COMMENT ON COLUMN fairq.batch.completed IS 'Number of the batch''s tasks that succeeded; NULL: not known.';
COMMENT ON COLUMN fairq.batch.failed IS 'Number of the batch''s tasks that failed; NULL: not known.';
COMMENT ON COLUMN fairq.batch.cancelled IS 'Number of the batch''s tasks that were cancelled; NULL: not known.';
COMMENT ON COLUMN fairq.batch.expired IS 'Number of the batch''s tasks that expired; NULL: not known.';
COMMENT ON COLUMN fairq.batch.purged IS 'Number of the batch''s tasks that were purged; NULL: not known.';

-- Until the batch is finished, rows are only inserted, so that no transaction
-- waits for another.  The transaction that finishes the batch adds them up and
-- deletes them.
CREATE TABLE fairq.batch_delta (
	batch bigint NOT NULL,
	status smallint NOT NULL,
	n bigint NOT NULL,
	task_id bigint
) USING heap;
CREATE INDEX batch_delta_by_batch ON fairq.batch_delta (batch, status);
-- Like fairq.group_number, the table has no primary key.
ALTER TABLE fairq.batch_delta REPLICA IDENTITY FULL;

COMMENT ON TABLE fairq.batch_delta IS 'Numbers of tasks that were added to batches, and tasks of batches that ended without success.';
COMMENT ON COLUMN fairq.batch_delta.batch IS 'The batch.';
COMMENT ON COLUMN fairq.batch_delta.status IS '1: added, 2: failed, 3: cancelled, 4: expired, 0: purged.';
COMMENT ON COLUMN fairq.batch_delta.n IS 'Number of tasks with this status; -1: a failed task was redriven.';
COMMENT ON COLUMN fairq.batch_delta.task_id IS 'The task that ended; NULL: tasks were added.';

-- Rows are only inserted, as in fairq.batch_delta, until the task's wait ends.
-- The transaction that ends the wait deletes them.
CREATE TABLE fairq.dependency (
	waiting bigint NOT NULL,
	task bigint NOT NULL,
	on_success boolean NOT NULL,
	status smallint
) USING heap;
CREATE INDEX dependency_by_waiting ON fairq.dependency (waiting, status, task);
CREATE INDEX dependency_by_task ON fairq.dependency (task, waiting);
ALTER TABLE fairq.dependency REPLICA IDENTITY FULL;

COMMENT ON TABLE fairq.dependency IS 'Tasks that wait for other tasks, and how those other tasks ended if they did not succeed.';
COMMENT ON COLUMN fairq.dependency.waiting IS 'The task that waits.';
COMMENT ON COLUMN fairq.dependency.task IS 'The task for which it waits.';
COMMENT ON COLUMN fairq.dependency.on_success IS 'True: the wait requires that the other task succeeds; false: the wait ends however that task ends.';
COMMENT ON COLUMN fairq.dependency.status IS 'How the other task ended. 2: failed, 3: cancelled, 4: expired, 0: purged; NULL: none of these.';

-- The table is not dumped, because workers register again where a dump is
-- restored.
CREATE TABLE fairq.worker (
	worker_id uuid PRIMARY KEY,
	started_at timestamptz NOT NULL,
	last_seen timestamptz NOT NULL,
	concurrency int,
	running int,
	worker text COLLATE "C" NOT NULL,
	queues text[] COLLATE "C" NOT NULL,
	host text COLLATE "C",
	client text COLLATE "C",
	version text COLLATE "C"
) USING heap WITH (fillfactor = 50);

COMMENT ON TABLE fairq.worker IS 'Workers that have registered in the last hour.';
COMMENT ON COLUMN fairq.worker.worker_id IS 'The id that the worker chose. Only the worker knows it.';
COMMENT ON COLUMN fairq.worker.started_at IS 'When the worker first registered (clock time).';
COMMENT ON COLUMN fairq.worker.last_seen IS 'When the worker last registered (clock time).';
COMMENT ON COLUMN fairq.worker.concurrency IS 'How many tasks the worker runs at a time; NULL: not known.';
COMMENT ON COLUMN fairq.worker.running IS 'How many tasks the worker was running when it last registered; NULL: not known.';
COMMENT ON COLUMN fairq.worker.worker IS 'The worker''s name, as in fairq.task.worker.';
COMMENT ON COLUMN fairq.worker.queues IS 'The names of the worker''s queues.';
COMMENT ON COLUMN fairq.worker.host IS 'The worker''s host; NULL: not known.';
COMMENT ON COLUMN fairq.worker.client IS 'The client library that the worker uses, such as python; NULL: not known.';
COMMENT ON COLUMN fairq.worker.version IS 'The version of that library; NULL: not known.';

SELECT pg_catalog.pg_extension_config_dump('fairq.queue_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.queue', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.group_number', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.group_setting', '');
-- The OID of a dropped role could belong to another role where a dump is
-- restored.
SELECT pg_catalog.pg_extension_config_dump('fairq.queue_privilege',
	'WHERE EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = role)');
SELECT pg_catalog.pg_extension_config_dump('fairq.task', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.dedup', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.archive', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.batch', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.batch_delta', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.dependency', '');
SELECT pg_catalog.pg_extension_config_dump('fairq.task_id_seq', '');

-- Changes of rows by SQL invalidate all hints in shared memory.  task_changed is a
-- BEFORE trigger, so it also fires for a statement that fails half-way.  The apply
-- worker of logical replication fires statement triggers only for TRUNCATE.
-- The row trigger task_applied fires only in that worker.  task_inserted and
-- task_updated refuse tasks of tenants.  check_tables() has a list of all
-- triggers.
CREATE FUNCTION fairq_internal.task_changed() RETURNS trigger
	AS 'MODULE_PATHNAME', 'fairq_task_changed' LANGUAGE C;
COMMENT ON FUNCTION fairq_internal.task_changed() IS 'Trigger: records that SQL changes tasks.';
CREATE TRIGGER task_changed
	BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON fairq.task
	FOR EACH STATEMENT EXECUTE FUNCTION fairq_internal.task_changed();
ALTER TABLE fairq.task ENABLE ALWAYS TRIGGER task_changed;
CREATE TRIGGER task_inserted
	AFTER INSERT ON fairq.task REFERENCING NEW TABLE AS changed
	FOR EACH STATEMENT EXECUTE FUNCTION fairq_internal.task_changed();
ALTER TABLE fairq.task ENABLE ALWAYS TRIGGER task_inserted;
CREATE TRIGGER task_updated
	AFTER UPDATE ON fairq.task REFERENCING NEW TABLE AS changed
	FOR EACH STATEMENT EXECUTE FUNCTION fairq_internal.task_changed();
ALTER TABLE fairq.task ENABLE ALWAYS TRIGGER task_updated;
CREATE TRIGGER task_applied
	AFTER INSERT OR UPDATE OR DELETE ON fairq.task
	FOR EACH ROW EXECUTE FUNCTION fairq_internal.task_changed();
ALTER TABLE fairq.task ENABLE REPLICA TRIGGER task_applied;

-- Backends cache groups, settings and privileges.  These triggers also fire
-- when fairq's functions write through SQL.  So the functions themselves do not
-- report changes of settings.
CREATE FUNCTION fairq_internal.group_number_changed() RETURNS trigger
	AS 'MODULE_PATHNAME', 'fairq_group_number_changed' LANGUAGE C;
COMMENT ON FUNCTION fairq_internal.group_number_changed() IS 'Trigger: records that SQL changes groups.';
CREATE TRIGGER group_number_changed
	AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON fairq.group_number
	FOR EACH STATEMENT EXECUTE FUNCTION fairq_internal.group_number_changed();
ALTER TABLE fairq.group_number ENABLE ALWAYS TRIGGER group_number_changed;
CREATE TRIGGER group_number_applied
	AFTER INSERT OR UPDATE OR DELETE ON fairq.group_number
	FOR EACH ROW EXECUTE FUNCTION fairq_internal.group_number_changed();
ALTER TABLE fairq.group_number ENABLE REPLICA TRIGGER group_number_applied;

CREATE FUNCTION fairq_internal.settings_changed() RETURNS trigger
	AS 'MODULE_PATHNAME', 'fairq_settings_changed' LANGUAGE C;
COMMENT ON FUNCTION fairq_internal.settings_changed() IS 'Trigger: records changes of queues, settings or privileges.';
CREATE TRIGGER settings_changed
	AFTER INSERT OR UPDATE OR DELETE ON fairq.queue
	FOR EACH ROW EXECUTE FUNCTION fairq_internal.settings_changed();
ALTER TABLE fairq.queue ENABLE ALWAYS TRIGGER settings_changed;
CREATE TRIGGER settings_truncated
	AFTER TRUNCATE ON fairq.queue
	FOR EACH STATEMENT EXECUTE FUNCTION fairq_internal.settings_changed();
ALTER TABLE fairq.queue ENABLE ALWAYS TRIGGER settings_truncated;
CREATE TRIGGER settings_changed
	AFTER INSERT OR UPDATE OR DELETE ON fairq.group_setting
	FOR EACH ROW EXECUTE FUNCTION fairq_internal.settings_changed();
ALTER TABLE fairq.group_setting ENABLE ALWAYS TRIGGER settings_changed;
CREATE TRIGGER settings_truncated
	AFTER TRUNCATE ON fairq.group_setting
	FOR EACH STATEMENT EXECUTE FUNCTION fairq_internal.settings_changed();
ALTER TABLE fairq.group_setting ENABLE ALWAYS TRIGGER settings_truncated;
CREATE TRIGGER settings_changed
	AFTER INSERT OR UPDATE OR DELETE ON fairq.queue_privilege
	FOR EACH ROW EXECUTE FUNCTION fairq_internal.settings_changed();
ALTER TABLE fairq.queue_privilege ENABLE ALWAYS TRIGGER settings_changed;
CREATE TRIGGER settings_truncated
	AFTER TRUNCATE ON fairq.queue_privilege
	FOR EACH STATEMENT EXECUTE FUNCTION fairq_internal.settings_changed();
ALTER TABLE fairq.queue_privilege ENABLE ALWAYS TRIGGER settings_truncated;

--
-- Queues and groups
--

CREATE FUNCTION fairq.create_queue(queue text,
	concurrency int DEFAULT NULL, max_running int DEFAULT NULL,
	lease interval DEFAULT '5 minutes', max_attempts int DEFAULT 20,
	backoff interval DEFAULT '1 second', retain interval DEFAULT NULL,
	notify boolean DEFAULT false, block_length bigint DEFAULT 1048576,
	fair_by text DEFAULT 'tasks', rate int DEFAULT NULL,
	per interval DEFAULT '1 minute', burst int DEFAULT 1,
	max_rate int DEFAULT NULL, shares int[] DEFAULT NULL,
	in_order boolean DEFAULT false, retain_failed interval DEFAULT NULL,
	max_run_time interval DEFAULT NULL, backoff_max interval DEFAULT '1 hour',
	separator text DEFAULT NULL, if_not_exists boolean DEFAULT false)
	RETURNS void AS 'MODULE_PATHNAME', 'fairq_create_queue'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.create_queue(text, int, int, interval, int, interval, interval,
	boolean, bigint, text, int, interval, int, int, int[], boolean, interval,
	interval, interval, text, boolean)
	IS 'Creates a queue. With if_not_exists, an existing queue stays as it is.';

CREATE FUNCTION fairq.alter_queue(queue text,
	concurrency int DEFAULT NULL, max_running int DEFAULT NULL,
	lease interval DEFAULT NULL, max_attempts int DEFAULT NULL,
	backoff interval DEFAULT NULL, retain interval DEFAULT NULL,
	notify boolean DEFAULT NULL, block_length bigint DEFAULT NULL,
	fair_by text DEFAULT NULL, rate int DEFAULT NULL,
	per interval DEFAULT NULL, burst int DEFAULT NULL,
	max_rate int DEFAULT NULL, shares int[] DEFAULT NULL,
	in_order boolean DEFAULT NULL, retain_failed interval DEFAULT NULL,
	max_run_time interval DEFAULT NULL, backoff_max interval DEFAULT NULL)
	RETURNS void AS 'MODULE_PATHNAME', 'fairq_alter_queue'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.alter_queue(text, int, int, interval, int, interval, interval,
	boolean, bigint, text, int, interval, int, int, int[], boolean, interval, interval,
	interval)
	IS 'Changes the settings of a queue. NULL keeps a setting, 0 removes a limit, rate, retention or max_run_time, and ''{}'' removes shares.';

CREATE FUNCTION fairq.drop_queue(queue text, force boolean DEFAULT false,
	if_exists boolean DEFAULT false)
	RETURNS boolean AS 'MODULE_PATHNAME', 'fairq_drop_queue'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.drop_queue(text, boolean, boolean)
	IS 'Drops a queue; with force, even if it has tasks. With if_exists, returns false if there is no '
		'such queue.';

CREATE FUNCTION fairq.set_group(queue text, group_key text,
	concurrency int DEFAULT NULL, weight int DEFAULT NULL,
	rate int DEFAULT NULL)
	RETURNS void AS 'MODULE_PATHNAME', 'fairq_set_group'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.set_group(text, text, int, int, int)
	IS 'Gives a group its own limit of running tasks, weight (1 to 1000) or rate. NULL keeps a setting, '
		'0 removes it.';

CREATE FUNCTION fairq.hold(queue text, group_key text DEFAULT NULL,
	until timestamptz DEFAULT NULL)
	RETURNS void AS 'MODULE_PATHNAME', 'fairq_hold'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.hold(text, text, timestamptz)
	IS 'Holds a queue or a group: no task starts before the time "until". NULL, or a time in the past, '
		'ends the hold.';

CREATE FUNCTION fairq.pause(queue text, group_key text DEFAULT NULL)
	RETURNS void AS 'MODULE_PATHNAME', 'fairq_pause'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.pause(text, text)
	IS 'Pauses a queue or a group: none of its tasks is popped.';

CREATE FUNCTION fairq.resume(queue text, group_key text DEFAULT NULL)
	RETURNS void AS 'MODULE_PATHNAME', 'fairq_resume'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.resume(text, text) IS 'Ends the pause of a queue or a group.';

CREATE FUNCTION fairq.purge(queue text, group_key text DEFAULT NULL)
	RETURNS bigint AS 'MODULE_PATHNAME', 'fairq_purge'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.purge(text, text)
	IS 'Deletes the tasks of a queue, group or tenant that are not running. Returns their number.';

CREATE FUNCTION fairq.grant_queue(queue text, role regrole, privilege text)
	RETURNS void AS 'MODULE_PATHNAME', 'fairq_grant_queue'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.grant_queue(text, regrole, text)
	IS 'Grants a role a privilege on a queue: enqueue, work (includes monitor), monitor, or manage '
		'(includes all others).';

CREATE FUNCTION fairq.revoke_queue(queue text, role regrole, privilege text)
	RETURNS void AS 'MODULE_PATHNAME', 'fairq_revoke_queue'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.revoke_queue(text, regrole, text)
	IS 'Revokes a privilege on a queue from a role.';

--
-- Producers
--

CREATE FUNCTION fairq.enqueue(queue text, group_key text,
	payload jsonb DEFAULT '{}', priority int DEFAULT 0,
	run_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL,
	max_attempts int DEFAULT NULL, cost real DEFAULT NULL,
	headers jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
	replace boolean DEFAULT false, dedup_until text DEFAULT 'finished',
	dedup_for interval DEFAULT NULL, delay interval DEFAULT NULL,
	batch bigint DEFAULT NULL, after bigint[] DEFAULT NULL,
	after_any boolean DEFAULT false)
	RETURNS bigint AS 'MODULE_PATHNAME', 'fairq_enqueue'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.enqueue(text, text, jsonb, int, timestamptz, text, int, real, jsonb,
	timestamptz, boolean, text, interval, interval, bigint, bigint[], boolean)
	IS 'Adds a task for a group, and returns its id. If an unfinished task of the queue has the dedup_key, adds nothing, and returns that task''s id. With replace, that task gets the new payload, unless it runs. With after, the task waits until these tasks have succeeded. It is cancelled if one of them does not succeed. With after_any, it waits until they have ended.';

CREATE FUNCTION fairq.enqueue_batch(queue text, group_keys text[],
	payloads jsonb[], priority int DEFAULT 0,
	run_at timestamptz DEFAULT NULL, dedup_keys text[] DEFAULT NULL,
	costs real[] DEFAULT NULL, priorities int[] DEFAULT NULL,
	run_ats timestamptz[] DEFAULT NULL, headers jsonb[] DEFAULT NULL,
	expires_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
	batch bigint DEFAULT NULL, after bigint[] DEFAULT NULL,
	after_any boolean DEFAULT false)
	RETURNS SETOF bigint AS 'MODULE_PATHNAME', 'fairq_enqueue_batch'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100;
COMMENT ON FUNCTION fairq.enqueue_batch(text, text[], jsonb[], int, timestamptz, text[], real[], int[],
	timestamptz[], jsonb[], timestamptz, interval, bigint, bigint[], boolean)
	IS 'Adds many tasks at once, all or none. Returns their ids in the order of the input.';

CREATE FUNCTION fairq.enqueue_or_find(queue text, group_key text,
	payload jsonb DEFAULT '{}', priority int DEFAULT 0,
	run_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL,
	max_attempts int DEFAULT NULL, cost real DEFAULT NULL,
	headers jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
	replace boolean DEFAULT false, dedup_until text DEFAULT 'finished',
	dedup_for interval DEFAULT NULL, delay interval DEFAULT NULL,
	batch bigint DEFAULT NULL, after bigint[] DEFAULT NULL,
	after_any boolean DEFAULT false, OUT id bigint, OUT added boolean)
	AS 'MODULE_PATHNAME', 'fairq_enqueue_or_find'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.enqueue_or_find(text, text, jsonb, int, timestamptz, text, int, real, jsonb,
	timestamptz, boolean, text, interval, interval, bigint, bigint[], boolean)
	IS 'Does the same as fairq.enqueue(), and also returns whether the task was added.';

CREATE FUNCTION fairq.find(queue text, dedup_key text) RETURNS bigint
	AS 'MODULE_PATHNAME', 'fairq_find'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq.find(text, text)
	IS 'Returns the unfinished task that has the dedup_key; NULL: there is none.';

CREATE FUNCTION fairq.reschedule(id bigint,
	run_at timestamptz DEFAULT pg_catalog.now())
	RETURNS boolean AS 'MODULE_PATHNAME', 'fairq_reschedule'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.reschedule(bigint, timestamptz)
	IS 'Changes the time of a task that is not running, even of one that waits for a retry. '
		'Returns false if the task is running, finished, expired or unknown.';

CREATE FUNCTION fairq.cancel(id bigint) RETURNS boolean
	AS 'MODULE_PATHNAME', 'fairq_cancel'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.cancel(bigint)
	IS 'Cancels a task. The worker of a running task learns about it from fairq.extend(). Returns false if '
		'the task is finished or unknown.';

CREATE FUNCTION fairq.create_batch(queue text, group_key text,
	payload jsonb DEFAULT '{}', priority int DEFAULT 0,
	on_success boolean DEFAULT false, max_attempts int DEFAULT NULL,
	headers jsonb DEFAULT NULL, batch bigint DEFAULT NULL)
	RETURNS bigint AS 'MODULE_PATHNAME', 'fairq_create_batch'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.create_batch(text, text, jsonb, int, boolean, int, jsonb, bigint)
	IS 'Creates a batch, and adds the task that waits for its end. Returns the id, which both have. With '
		'on_success, the task fails if a task of the batch does not succeed. With batch, the task is '
		'added to the batch with that id.';

CREATE FUNCTION fairq.close_batch(id bigint) RETURNS boolean
	AS 'MODULE_PATHNAME', 'fairq_close_batch'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.close_batch(bigint)
	IS 'Closes a batch to further tasks. The batch is finished when all of its tasks have ended. Returns '
		'false if the batch is closed, finished or unknown.';

CREATE FUNCTION fairq.cancel_batch(id bigint) RETURNS bigint
	AS 'MODULE_PATHNAME', 'fairq_cancel_batch'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.cancel_batch(bigint)
	IS 'Closes a batch, and cancels its tasks that are not running. Returns their number.';

--
-- Workers
--

CREATE TYPE fairq.claim AS (
	id bigint,
	group_key text,
	payload jsonb,
	attempt int,
	priority int,
	addr bigint,
	enqueued_at timestamptz,
	lease_until timestamptz,
	queue text,
	headers jsonb,
	attempts_left int,
	lapses int,
	progress jsonb,
	batch bigint
);
COMMENT ON TYPE fairq.claim IS 'A task as it is returned to a worker.';
COMMENT ON COLUMN fairq.claim.addr IS 'The turn at which the task was served. In fairq.tasks, addr is the task''s position.';
COMMENT ON COLUMN fairq.claim.batch IS 'The batch of the task; NULL: none.';
COMMENT ON COLUMN fairq.claim.attempts_left IS 'Number of attempts left if this one fails.';
COMMENT ON COLUMN fairq.claim.lapses IS 'Number of the task''s attempts that ended because the lease expired. The task may have killed those '
	'workers.';
COMMENT ON COLUMN fairq.claim.progress IS 'Progress that an earlier attempt has set; NULL: none.';

CREATE FUNCTION fairq.pop(queue text, max_tasks int DEFAULT 1,
	lease interval DEFAULT NULL, per_group int DEFAULT NULL,
	worker text DEFAULT NULL)
	RETURNS SETOF fairq.claim AS 'MODULE_PATHNAME', 'fairq_pop'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000 ROWS 10;
COMMENT ON FUNCTION fairq.pop(text, int, interval, int, text)
	IS 'Leases up to max_tasks tasks, in the order of service. With per_group, it uses at most that many '
		'turns of each group.';

CREATE FUNCTION fairq.pop(queues text[], max_tasks int DEFAULT 1,
	lease interval DEFAULT NULL, worker text DEFAULT NULL)
	RETURNS SETOF fairq.claim AS 'MODULE_PATHNAME', 'fairq_pop_queues'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000 ROWS 10;
COMMENT ON FUNCTION fairq.pop(text[], int, interval, text)
	IS 'Leases up to max_tasks tasks of several queues: first those of the first queue, then those of the next.';

CREATE FUNCTION fairq.take(queue text, max_tasks int DEFAULT 1,
	per_group int DEFAULT NULL)
	RETURNS SETOF fairq.claim AS 'MODULE_PATHNAME', 'fairq_take'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000 ROWS 10;
COMMENT ON FUNCTION fairq.take(text, int, int)
	IS 'Removes up to max_tasks tasks, in the order of service. With per_group, it uses at most that many '
		'turns of each group. A rollback puts the tasks back.';

CREATE FUNCTION fairq.complete(id bigint, attempt int DEFAULT NULL,
	result jsonb DEFAULT NULL, took interval DEFAULT NULL)
	RETURNS boolean AS 'MODULE_PATHNAME', 'fairq_complete'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.complete(bigint, int, jsonb, interval)
	IS 'Completes a running task. Returns false if the lease (of that attempt, if given) is lost, or if '
		'the task was cancelled. A cancelled task then ends as cancelled.';

CREATE FUNCTION fairq.complete_batch(ids bigint[], attempts int[] DEFAULT NULL,
	results jsonb[] DEFAULT NULL, took interval[] DEFAULT NULL)
	RETURNS bigint[] AS 'MODULE_PATHNAME', 'fairq_complete_batch'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.complete_batch(bigint[], int[], jsonb[], interval[])
	IS 'Completes many running tasks. Returns the ids of those whose lease was lost, or that were cancelled.';

CREATE FUNCTION fairq.fail(id bigint, attempt int DEFAULT NULL,
	error text DEFAULT NULL, retry_in interval DEFAULT NULL,
	dead boolean DEFAULT false, took interval DEFAULT NULL)
	RETURNS boolean AS 'MODULE_PATHNAME', 'fairq_fail'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.fail(bigint, int, text, interval, boolean, interval)
	IS 'Reports that an attempt has failed. The task is retried later, before the queued tasks of its '
		'group. If it has no attempts left, or if dead is true, it fails for good. Returns false if the lease '
		'is lost, or if the task was cancelled: then it ends as cancelled.';

CREATE FUNCTION fairq.release(id bigint, attempt int DEFAULT NULL,
	delay interval DEFAULT '0')
	RETURNS boolean AS 'MODULE_PATHNAME', 'fairq_release'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.release(bigint, int, interval)
	IS 'Releases a running task; the attempt does not count. The task is ready again, behind the other '
		'tasks of its group, or scheduled after the delay. Returns false if the lease is lost, or if the '
		'task was cancelled: then it ends as cancelled.';

CREATE FUNCTION fairq.extend(id bigint, attempt int DEFAULT NULL,
	lease interval DEFAULT NULL)
	RETURNS timestamptz AS 'MODULE_PATHNAME', 'fairq_extend'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.extend(bigint, int, interval)
	IS 'Renews a lease and returns when it expires. NULL: the lease is lost, or the task was cancelled; '
		'stop working.';

CREATE FUNCTION fairq.set_progress(id bigint, attempt int, progress jsonb)
	RETURNS boolean AS 'MODULE_PATHNAME', 'fairq_set_progress'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.set_progress(bigint, int, jsonb)
	IS 'Sets the progress of a running task. fairq.tasks shows it, and the next attempt''s claim has it. '
		'Returns false if the lease (of that attempt, if given) is lost, or if the task was cancelled: '
		'stop working.';

CREATE FUNCTION fairq.fail_batch(ids bigint[], attempts int[] DEFAULT NULL,
	errors text[] DEFAULT NULL, retry_in interval DEFAULT NULL)
	RETURNS bigint[] AS 'MODULE_PATHNAME', 'fairq_fail_batch'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.fail_batch(bigint[], int[], text[], interval)
	IS 'Does what fairq.fail() does, for many tasks. Returns the ids of those whose lease was lost, or that were '
		'cancelled.';

CREATE FUNCTION fairq.release_batch(ids bigint[], attempts int[] DEFAULT NULL,
	delay interval DEFAULT '0')
	RETURNS bigint[] AS 'MODULE_PATHNAME', 'fairq_release_batch'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.release_batch(bigint[], int[], interval)
	IS 'Does what fairq.release() does, for many tasks. Returns the ids of those whose lease was lost, or that were '
		'cancelled.';

CREATE FUNCTION fairq.extend_batch(ids bigint[], attempts int[] DEFAULT NULL,
	lease interval DEFAULT NULL)
	RETURNS bigint[] AS 'MODULE_PATHNAME', 'fairq_extend_batch'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.extend_batch(bigint[], int[], interval)
	IS 'Renews many leases. Returns the ids of tasks whose lease was lost, or that were cancelled: stop working '
		'on them.';

CREATE PROCEDURE fairq.wait(queue text, timeout interval DEFAULT '30 seconds',
	INOUT ready boolean DEFAULT NULL)
	AS 'MODULE_PATHNAME', 'fairq_wait' LANGUAGE C;
COMMENT ON PROCEDURE fairq.wait(text, interval, boolean)
	IS 'Sleeps until a pop can return a task. Sets ready to false if the timeout ended first.';

CREATE PROCEDURE fairq.wait(queues text[],
	timeout interval DEFAULT '30 seconds', INOUT ready boolean DEFAULT NULL)
	AS 'MODULE_PATHNAME', 'fairq_wait_queues' LANGUAGE C;
COMMENT ON PROCEDURE fairq.wait(text[], interval, boolean)
	IS 'Sleeps until a pop of one of these queues can return a task. Sets ready to false if the timeout '
		'ended first.';

CREATE FUNCTION fairq.expire_leases(queue text, max_tasks int DEFAULT 1000)
	RETURNS bigint AS 'MODULE_PATHNAME', 'fairq_expire_leases'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.expire_leases(text, int)
	IS 'Takes back tasks whose leases have expired. Returns their number. pop also finds such tasks.';

CREATE FUNCTION fairq.register_worker(worker_id uuid, worker text, queues text[],
	host text DEFAULT NULL, client text DEFAULT NULL, version text DEFAULT NULL,
	concurrency int DEFAULT NULL, running int DEFAULT NULL) RETURNS void
	AS 'MODULE_PATHNAME', 'fairq_register_worker'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.register_worker(uuid, text, text[], text, text, text, int, int)
	IS 'Shows a worker in fairq.workers. A worker calls it every ten seconds. The first call of a worker '
		'deletes the rows of workers that have not registered for an hour.';

CREATE FUNCTION fairq.unregister_worker(worker_id uuid) RETURNS boolean
	AS 'MODULE_PATHNAME', 'fairq_unregister_worker'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.unregister_worker(uuid)
	IS 'Removes a worker that ends from fairq.workers. Returns whether the worker was registered.';

--
-- Views and checks
--

CREATE FUNCTION fairq.address(queue text, group_key text, block bigint)
	RETURNS bigint AS 'MODULE_PATHNAME', 'fairq_sql_address'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq.address(text, text, bigint)
	IS 'Returns the address of a group''s turn in a block.';

CREATE FUNCTION fairq.block_of(queue text, addr bigint)
	RETURNS bigint AS 'MODULE_PATHNAME', 'fairq_block_of'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq.block_of(text, bigint)
	IS 'Returns the block of an address.';

CREATE FUNCTION fairq.version() RETURNS text
	AS 'MODULE_PATHNAME', 'fairq_version'
	LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION fairq.version() IS 'Returns the version of the library.';

CREATE FUNCTION fairq.set_shard(shard int) RETURNS void
	AS 'MODULE_PATHNAME', 'fairq_set_shard'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.set_shard(int)
	IS 'Makes this database a shard with a number from 1 to 1023, which is part of its task ids. There '
		'must be no tasks yet.';

CREATE FUNCTION fairq.shard(expected int DEFAULT NULL) RETURNS int
	AS 'MODULE_PATHNAME', 'fairq_shard'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq.shard(int)
	IS 'Returns the number of this shard, or 0. Raises an error if it is not the expected one.';

CREATE FUNCTION fairq.reset_hints() RETURNS void
	AS 'MODULE_PATHNAME', 'fairq_reset_hints'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.reset_hints()
	IS 'Discards the data of this database in shared memory. fairq reads the tables again.';

CREATE FUNCTION fairq_internal.counters(queue_id int, OUT enqueued bigint,
	OUT popped bigint, OUT completed bigint, OUT released bigint,
	OUT retried bigint, OUT failed bigint, OUT cancelled bigint,
	OUT lapsed bigint, OUT expired bigint)
	AS 'MODULE_PATHNAME', 'fairq_counters'
	LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq_internal.counters(int)
	IS 'Returns the counters of a queue since the server started.';

CREATE FUNCTION fairq_internal.has_queue_privilege(queue_id int, privilege text)
	RETURNS boolean AS 'MODULE_PATHNAME', 'fairq_has_queue_privilege'
	LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq_internal.has_queue_privilege(int, text)
	IS 'Returns whether the current user has a privilege on a queue, or any privilege ("any").';

CREATE FUNCTION fairq_internal.kept_back(value text) RETURNS text
	AS 'MODULE_PATHNAME', 'fairq_kept_back'
	LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq_internal.kept_back(text)
	IS 'Returns its argument. As the function is volatile, conditions on the result are evaluated only for rows that the caller may see.';

-- The function is STABLE, so that a query that does not use the reason does not
-- compute it.
CREATE FUNCTION fairq_internal.wait_reason(queue_id int, group_no int,
	run_at timestamptz, expires_at timestamptz) RETURNS text
	AS 'MODULE_PATHNAME', 'fairq_wait_reason'
	LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq_internal.wait_reason(int, int, timestamptz, timestamptz)
	IS 'Returns why a task of a group waits, if it is not running. Pass run_at for a timed task, and '
		'expires_at if the task has not started.';

-- The planner replaces a call of this function with its expression.  "expired" has
-- the same definition as fairq_is_expired() in src/table/store.h.
CREATE FUNCTION fairq_internal.status_of(lease_until timestamptz, blocked boolean,
	addr bigint, run_at timestamptz, expires_at timestamptz, attempt int,
	released int) RETURNS text
	LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN CASE WHEN lease_until IS NOT NULL THEN 'running'
	WHEN expires_at <= pg_catalog.clock_timestamp()
		AND attempt = coalesce(released, 0) THEN 'expired'
	WHEN blocked THEN 'blocked'
	WHEN addr < (1::bigint << 62) THEN 'queued'
	WHEN run_at > pg_catalog.clock_timestamp() THEN 'scheduled'
	ELSE 'queued' END;
COMMENT ON FUNCTION fairq_internal.status_of(timestamptz, boolean, bigint, timestamptz,
	timestamptz, int, int)
	IS 'Returns the status of an unfinished task.';

-- The views show only rows that the caller may see.  A caller's condition is not
-- evaluated for other rows.

-- Each of the two parts of fairq.tasks has its own security barrier.  A barrier
-- around a UNION ALL would not stop the planner from moving a caller's condition.
-- The condition on lanes makes an index scan of a queue possible.  Comparisons of
-- texts are leakproof, so they may be evaluated before the privilege is checked.
-- EXPLAIN would then reveal texts, by their statistics and the number of rows
-- removed.  A volatile function prevents that.
CREATE VIEW fairq.live_tasks WITH (security_barrier) AS
	SELECT t.id, q.name AS queue, fairq_internal.kept_back(s.group_key) AS group_key,
		fairq_internal.status_of(t.lease_until, t.blocked, t.addr, t.run_at, t.expires_at,
			t.attempt, t.released) AS status,
		CASE WHEN t.blocked AND EXISTS (
				SELECT FROM fairq.dependency d WHERE d.waiting = t.id AND d.status IS NULL
					AND EXISTS (SELECT FROM fairq.task p WHERE p.id = d.task))
			THEN 'after'
			WHEN t.blocked AND NOT EXISTS (
				SELECT FROM fairq.dependency d WHERE d.waiting = t.id)
			THEN 'batch'
			WHEN t.lease_until IS NULL
			THEN fairq_internal.wait_reason(t.queue_id, t.group_no,
				CASE WHEN t.addr >= (1::bigint << 62) THEN t.run_at END,
				CASE WHEN t.attempt = coalesce(t.released, 0) THEN t.expires_at END)
			END AS reason,
		t.priority::int AS priority,
		CASE WHEN t.addr < (1::bigint << 62) THEN t.addr END AS addr,
		t.attempt, coalesce(t.max_attempts, q.max_attempts) AS max_attempts,
		t.payload, NULL::jsonb AS result, fairq_internal.kept_back(t.error) AS error,
		fairq_internal.kept_back(t.worker) AS worker, t.enqueued_at,
		t.popped_at, t.run_at, t.lease_until, NULL::timestamptz AS finished_at,
		coalesce(t.cost, 1) AS cost, t.headers, t.progress, t.cancelled, t.expires_at,
		coalesce(t.lapses, 0) AS lapses, t.attempt - coalesce(t.released, 0) AS attempts_used,
		greatest(coalesce(t.max_attempts, q.max_attempts)
			- (t.attempt - coalesce(t.released, 0)), 0) AS attempts_left, t.batch,
		CASE WHEN t.attempt_log IS NOT NULL
			THEN fairq_internal.attempt_log(t.attempt_log, t.error) END AS attempt_log,
		CASE WHEN t.blocked THEN (
			SELECT array_agg(d.task ORDER BY d.task) FROM fairq.dependency d
			WHERE d.waiting = t.id AND d.status IS NULL
				AND EXISTS (SELECT FROM fairq.task p WHERE p.id = d.task))
			END AS waits_for
	FROM fairq.task t
	JOIN fairq.queue q ON q.queue_id = t.queue_id
		AND t.lane BETWEEN q.queue_id * 10 AND q.queue_id * 10 + 9
	CROSS JOIN LATERAL (
		SELECT s.group_key FROM fairq.group_number s
		WHERE s.queue_id = t.queue_id AND s.group_no = t.group_no
		LIMIT 1) s
	WHERE fairq_internal.has_queue_privilege(q.queue_id, 'work');
COMMENT ON VIEW fairq.live_tasks IS 'The unfinished tasks of fairq.tasks.';

CREATE VIEW fairq.finished_tasks WITH (security_barrier) AS
	SELECT a.id, q.name AS queue, fairq_internal.kept_back(a.group_key) AS group_key,
		CASE a.status WHEN 1 THEN 'completed' WHEN 2 THEN 'failed'
			WHEN 3 THEN 'cancelled' ELSE 'expired' END AS status, NULL::text AS reason,
		a.priority::int AS priority, NULL::bigint AS addr, a.attempt,
		coalesce(a.max_attempts, q.max_attempts) AS max_attempts,
		a.payload, a.result, fairq_internal.kept_back(a.error) AS error,
		fairq_internal.kept_back(a.worker) AS worker, a.enqueued_at,
		a.popped_at, a.run_at, NULL::timestamptz AS lease_until, a.finished_at,
		coalesce(a.cost, 1) AS cost, a.headers, a.progress, a.status = 3 AS cancelled,
		a.expires_at, coalesce(a.lapses, 0) AS lapses,
		a.attempt - coalesce(a.released, 0) AS attempts_used, NULL::int AS attempts_left,
		a.batch, CASE WHEN a.attempt_log IS NOT NULL
			THEN fairq_internal.attempt_log(a.attempt_log, a.error) END AS attempt_log,
		NULL::bigint[] AS waits_for
	FROM fairq.archive a
	JOIN fairq.queue q USING (queue_id)
	WHERE fairq_internal.has_queue_privilege(q.queue_id, 'work');
COMMENT ON VIEW fairq.finished_tasks IS 'The archived tasks of fairq.tasks.';

CREATE VIEW fairq.tasks AS
	SELECT * FROM fairq.live_tasks
	UNION ALL
	SELECT * FROM fairq.finished_tasks;
COMMENT ON VIEW fairq.tasks IS 'Tasks, including those in the archive. status is queued, scheduled (for later or for a retry), blocked, running, completed, failed, cancelled or expired. reason is why a task does not run. For a queued task, reason is paused, queue_limit, limit, rate, retry or workers. If the time of a task has not come, reason is scheduled. A blocked task has the reason after while tasks in waits_for have not ended, and batch while the batch with its id is not finished. addr is the turn of a task; NULL: the task has a time instead.';

CREATE VIEW fairq.batches WITH (security_barrier) AS
	SELECT b.id, q.name AS queue,
		CASE WHEN b.finished_at IS NULL AND b.closed_at IS NULL THEN 'open'
			WHEN b.finished_at IS NULL THEN 'closed'
			WHEN b.completed IS NOT NULL THEN 'finished'
			WHEN b.failed IS NOT NULL THEN 'failed'
			ELSE 'abandoned' END AS status, b.on_success, b.created_at, b.closed_at,
		b.finished_at, b.completed, b.failed, b.cancelled, b.expired, b.purged
	FROM fairq.batch b
	JOIN fairq.queue q USING (queue_id)
	WHERE fairq_internal.has_queue_privilege(b.queue_id, 'any');
COMMENT ON VIEW fairq.batches IS 'Batches, as long as the task that waits for one is in fairq.tasks. status is open, closed (no more tasks can be added), finished, failed or abandoned. With on_success, a batch is failed if one of its tasks did not succeed. A batch is abandoned if the task that waits was cancelled or purged.';
COMMENT ON COLUMN fairq.batches.completed IS 'Number of the batch''s tasks that succeeded, including those that SQL deleted. NULL: the batch is not finished.';

CREATE VIEW fairq.workers WITH (security_barrier) AS
	SELECT w.worker, w.host, w.client, w.version, q.queues, w.concurrency, w.running,
		w.started_at, w.last_seen
	FROM fairq.worker w
	CROSS JOIN LATERAL (
		SELECT array_agg(q.name ORDER BY n) AS queues
		FROM unnest(w.queues) WITH ORDINALITY u (name, n)
		JOIN fairq.queue q USING (name)
		WHERE fairq_internal.has_queue_privilege(q.queue_id, 'monitor')
	) q
	WHERE q.queues IS NOT NULL
		AND w.last_seen > pg_catalog.clock_timestamp() - interval '1 hour';
COMMENT ON VIEW fairq.workers IS 'Workers, as they last registered. A worker that ends is removed. A worker that was killed is shown for an hour. queues has the queues that the caller may monitor.';
COMMENT ON COLUMN fairq.workers.last_seen IS 'When the worker last registered. Workers register every ten seconds.';

CREATE VIEW fairq_internal.all_groups AS
	SELECT g.queue_id, g.queue, g.group_key, g.group_no, g.concurrency, g.weight, g.paused,
		least(g.queued, g.places) AS ready,
		g.queued - least(g.queued, g.places) AS limited, g.scheduled, g.running,
		g.oldest_enqueued_at, g.rate
	FROM (
		SELECT queue_id, q.name AS queue, s.group_key, s.group_no,
			coalesce(w.concurrency, q.concurrency) AS concurrency,
			coalesce(w.rate, q.rate) AS rate, coalesce(w.weight, 1) AS weight, coalesce(w.paused, false) AS paused,
			coalesce(t.queued, 0) AS queued, coalesce(t.running, 0) AS running,
			coalesce(t.scheduled, 0) AS scheduled, t.oldest_enqueued_at,
			CASE WHEN w.paused THEN 0
				WHEN coalesce(w.concurrency, q.concurrency) IS NOT NULL
				THEN greatest(coalesce(w.concurrency, q.concurrency)
					- coalesce(t.running, 0), 0) END AS places
		FROM (SELECT DISTINCT queue_id, group_no, group_key FROM fairq.group_number) s
		JOIN fairq.queue q USING (queue_id)
		LEFT JOIN fairq.group_setting w USING (queue_id, group_no)
		LEFT JOIN (
			SELECT queue_id, group_no,
				count(*) FILTER (WHERE status = 'queued') AS queued,
				count(*) FILTER (WHERE status IN ('scheduled', 'blocked')) AS scheduled,
				count(*) FILTER (WHERE status = 'running') AS running,
				min(enqueued_at) FILTER (WHERE status = 'queued') AS oldest_enqueued_at
			FROM (
				SELECT queue_id, group_no, enqueued_at,
					fairq_internal.status_of(lease_until, blocked, addr, run_at, expires_at,
						attempt, released) AS status
				FROM fairq.task) t
			GROUP BY queue_id, group_no
		) t USING (queue_id, group_no)
		WHERE strpos(s.group_key, q.separator) IS DISTINCT FROM 0) g;
COMMENT ON VIEW fairq_internal.all_groups IS 'The rows of fairq.groups for all queues.';

CREATE VIEW fairq_internal.all_queues AS
	SELECT q.queue_id, q.name AS queue, q.concurrency, q.max_running, q.lease,
		q.max_attempts, q.backoff, q.retain, q.notify,
		q.block_length, q.shares, q.paused, coalesce(g.ready, 0) AS ready,
		coalesce(g.limited, 0) AS limited,
		coalesce(g.scheduled, 0) AS scheduled, coalesce(g.running, 0) AS running,
		g.oldest_enqueued_at, q.fair_by, q.rate, q.per, q.burst, q.max_rate, q.in_order,
		q.retain_failed, q.max_run_time, q.backoff_max, q.separator
	FROM fairq.queue q
	LEFT JOIN (
		SELECT queue_id, sum(ready)::bigint AS ready,
			sum(limited)::bigint AS limited,
			sum(scheduled)::bigint AS scheduled,
			sum(running)::bigint AS running, min(oldest_enqueued_at) AS oldest_enqueued_at
		FROM fairq_internal.all_groups GROUP BY queue_id
	) g USING (queue_id);
COMMENT ON VIEW fairq_internal.all_queues IS 'The rows of fairq.queues for all queues, without the counters.';

-- These functions read the two views above as the views' owner, with planner
-- settings of their own.  They return data of the queues on which the caller has a
-- privilege.
CREATE FUNCTION fairq_internal.visible_groups() RETURNS SETOF fairq_internal.all_groups
	AS 'MODULE_PATHNAME', 'fairq_visible_groups'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq_internal.visible_groups()
	IS 'Returns the groups of the queues that the current user may monitor.';

CREATE FUNCTION fairq_internal.visible_queues() RETURNS SETOF fairq_internal.all_queues
	AS 'MODULE_PATHNAME', 'fairq_visible_queues'
	LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION fairq_internal.visible_queues()
	IS 'Returns the queues on which the current user has a privilege.';

CREATE FUNCTION fairq_internal.group_state(queue_id int, group_no int,
	OUT next_at timestamptz, OUT got double precision,
	OUT ahead double precision)
	AS 'MODULE_PATHNAME', 'fairq_group_state'
	LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq_internal.group_state(int, int)
	IS 'Returns the columns of fairq.groups that come from shared memory, if the caller may monitor the queue.';

CREATE VIEW fairq.groups WITH (security_barrier) AS
	SELECT queue, group_key, group_no, concurrency, weight, paused, ready,
		limited, scheduled, running, rate, s.next_at, s.got, s.ahead
	FROM fairq_internal.visible_groups() g
	LEFT JOIN LATERAL fairq_internal.group_state(g.queue_id, g.group_no) s ON true;
COMMENT ON VIEW fairq.groups IS 'Groups, their settings, and how many tasks they have: ready, limited (queued, without a slot under the group''s limit), scheduled for later, and running. next_at is when rate and hold allow the next task to start; NULL: now. got is the service of a group per weight in a cost-fair or time-fair queue. ahead is the group''s lead over the ready group that got the least. The view counts all tasks each time it is read.';

CREATE FUNCTION fairq_internal.tenants(queue_id int) RETURNS TABLE (tenant text,
	group_no int, users_active int, got double precision, ahead double precision,
	running int, next_at timestamptz)
	AS 'MODULE_PATHNAME', 'fairq_tenants'
	LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION fairq_internal.tenants(int)
	IS 'Returns the tenants of a queue that the current user may monitor.';

CREATE VIEW fairq.tenants WITH (security_barrier) AS
	SELECT q.name AS queue, t.tenant, coalesce(w.weight, 1) AS weight,
		t.users_active, t.got, t.ahead, w.concurrency, t.running,
		coalesce(w.paused, false) AS paused, w.rate, t.next_at
	FROM fairq.queue q
	CROSS JOIN LATERAL fairq_internal.tenants(q.queue_id) t
	LEFT JOIN fairq.group_setting w
		ON w.queue_id = q.queue_id AND w.group_no = t.group_no
	WHERE q.separator IS NOT NULL;
COMMENT ON VIEW fairq.tenants IS 'Tenants of queues with a separator, and their settings. The view reads shared memory and no task, so its cost depends only on the number of tenants.';
COMMENT ON COLUMN fairq.tenants.users_active IS 'Users with ready tasks, as far as pops have found them. A user counts once in each priority. NULL: shared memory does not have the queue.';
COMMENT ON COLUMN fairq.tenants.got IS 'Service since the restart, in tasks, costs or seconds, per weight. NULL: not known.';
COMMENT ON COLUMN fairq.tenants.ahead IS 'The tenant''s lead over the tenant with ready tasks that has got the least. NULL: not known.';
COMMENT ON COLUMN fairq.tenants.concurrency IS 'Maximum number of running tasks of all the tenant''s users together. NULL: no limit.';
COMMENT ON COLUMN fairq.tenants.paused IS 'No task of the tenant''s users is popped while this is true.';
COMMENT ON COLUMN fairq.tenants.rate IS 'How many tasks of all the tenant''s users together may start per interval "per" of the queue. NULL: no limit.';
COMMENT ON COLUMN fairq.tenants.next_at IS 'When rates and holds of the tenant and the queue allow the next task of the tenant''s users to start. NULL: now.';
COMMENT ON COLUMN fairq.tenants.running IS 'Running tasks of all the tenant''s users. NULL: not counted, because the queue has no limit, or not known yet.';

CREATE VIEW fairq.queues WITH (security_barrier) AS
	SELECT q.queue, q.concurrency, q.max_running, q.lease,
		q.max_attempts, q.backoff, q.retain, q.notify,
		q.block_length, q.shares, q.paused, q.ready, q.limited, q.scheduled, q.running,
		q.oldest_enqueued_at, c.enqueued, c.popped, c.completed, c.released,
		c.retried, c.failed, c.cancelled, c.lapsed, q.fair_by,
		q.rate, q.per, q.burst, q.max_rate, q.in_order, q.retain_failed, c.expired,
		q.max_run_time, q.backoff_max, q.separator
	FROM fairq_internal.visible_queues() q
	CROSS JOIN LATERAL fairq_internal.counters(q.queue_id) c;
COMMENT ON VIEW fairq.queues IS 'Queues, their settings, how many tasks they have, and counters since the server started. The view counts all tasks each time it is read; fairq.stats does not.';

-- This function reads shared memory and settings, and only the tasks whose ages it
-- shows.
CREATE FUNCTION fairq_internal.queue_stats(queue_id int) RETURNS TABLE (
	paused boolean, max_running int, queued bigint, scheduled bigint,
	running bigint, groups_active int, groups_limited int, groups_paused int,
	groups_throttled int,
	oldest_ready interval, oldest_limited interval, groups_sampled boolean,
	wait_p50 interval, wait_p95 interval, wait_p99 interval,
	run_p50 interval, run_p95 interval, run_p99 interval,
	wait_histogram bigint[], run_histogram bigint[],
	wait_sum interval, run_sum interval,
	enqueued bigint, popped bigint, completed bigint, released bigint,
	retried bigint, failed bigint, cancelled bigint, lapsed bigint,
	expired bigint)
	AS 'MODULE_PATHNAME', 'fairq_queue_stats'
	LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION fairq_internal.queue_stats(int)
	IS 'Returns the state of a queue in shared memory, if the current user has a privilege on it.';

-- A condition on the queue's name applies before the function is called.  The
-- function has no row for a queue on which the caller has no privilege.
CREATE VIEW fairq.stats WITH (security_barrier) AS
	SELECT q.name AS queue, s.* FROM fairq.queue q
	CROSS JOIN LATERAL fairq_internal.queue_stats(q.queue_id) s;
COMMENT ON VIEW fairq.stats IS 'Queues: how many tasks they have, how many groups wait and since when, and counters since the '
	'server started. The cost does not depend on the number of queued tasks. The view reads up to '
	'10,000 waiting groups.';
COMMENT ON COLUMN fairq.stats.groups_active IS 'Number of groups that may have a ready task. NULL if shared memory does not '
	'have the queue''s groups: after a restart until the next call or fairq.maintain(), and on a '
	'standby. Also NULL for a role that may not monitor the queue.';
COMMENT ON COLUMN fairq.stats.groups_limited IS 'Number of groups that have no free slot under their limit. NULL: as for groups_active.';
COMMENT ON COLUMN fairq.stats.groups_sampled IS 'True: only some of the waiting groups were examined, because of their number. Then groups_active, groups_limited and groups_throttled are estimates, and some tasks may be older than oldest_ready and oldest_limited. NULL: as for groups_active.';
COMMENT ON COLUMN fairq.stats.wait_sum IS 'Sum of the times that wait_histogram counts. run_sum is the sum for run_histogram.';
COMMENT ON COLUMN fairq.stats.queued IS 'Queued tasks, including those that a limit holds back. Commits maintain this number. NULL for a moment after a restart, until fairq has read the table once.';
COMMENT ON COLUMN fairq.stats.scheduled IS 'Tasks that wait for a time or for a retry, including due ones that no pop has taken yet. NULL: as for queued.';
COMMENT ON COLUMN fairq.stats.running IS 'Tasks with a lease, even if it has expired and no call has noticed yet. NULL: as for queued.';

CREATE FUNCTION fairq.group_stats(queue text, top int DEFAULT 20)
	RETURNS TABLE (group_key text, reason text, waiting_since timestamptz,
	queued bigint, running int, limit_in_effect int, weight int)
	AS 'MODULE_PATHNAME', 'fairq_group_stats'
	LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 20;
COMMENT ON FUNCTION fairq.group_stats(text, int)
	IS 'Returns the groups of a queue that wait longest, and then those with the most running tasks. reason is why the first task does not run, and waiting_since is when it became ready. queued is an estimate if there are many tasks. The cost does not depend on the number of queued tasks.';

CREATE FUNCTION fairq.all_group_stats(top int DEFAULT 5)
	RETURNS TABLE (queue text, group_key text, reason text,
	waiting_since timestamptz, queued bigint, running int, limit_in_effect int,
	weight int)
	AS 'MODULE_PATHNAME', 'fairq_all_group_stats'
	LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION fairq.all_group_stats(int)
	IS 'Returns the rows of group_stats() for each queue that the current user may monitor. A queue '
		'that is dropped meanwhile has no rows.';

-- This function shows the fairness of queues to roles that may monitor them.  It
-- reads no task.
CREATE FUNCTION fairq_internal.visible_fairness() RETURNS TABLE (queue text,
	priority int, fair_by text, groups_active int, spread double precision,
	longest interval)
	AS 'MODULE_PATHNAME', 'fairq_visible_fairness'
	LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION fairq_internal.visible_fairness()
	IS 'Returns the fairness of the lanes in shared memory, for the queues that the current user may '
		'monitor.';

CREATE VIEW fairq.fairness WITH (security_barrier) AS
	SELECT * FROM fairq_internal.visible_fairness();
COMMENT ON VIEW fairq.fairness IS 'The fairness of the priorities of queues, as far as shared memory has them. The cost does not depend on the number of queued tasks. In a task-fair queue, turns keep groups equal, and spread and longest are NULL.';
COMMENT ON COLUMN fairq.fairness.groups_active IS 'Groups that may have a ready task. NULL: fairq is still reading the table after a restart.';
COMMENT ON COLUMN fairq.fairness.spread IS 'The most that one of the groups in groups_active got, per weight, minus the least: seconds of work, or costs. NULL: there are no such groups, or it is not known. It is not known before the first pop after a restart. Nor is it known if a thousand groups without tasks got less, or more, than all of these groups.';
COMMENT ON COLUMN fairq.fairness.longest IS 'E: the duration of the longest recent task. NULL: none has ended, or the queue is not time-fair.';

CREATE FUNCTION fairq.group_shares(queue text, top int DEFAULT 20)
	RETURNS TABLE (group_key text, got double precision,
	ahead double precision, running int, level int, waiting_since timestamptz)
	AS 'MODULE_PATHNAME', 'fairq_group_shares'
	LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 20;
COMMENT ON FUNCTION fairq.group_shares(text, int)
	IS 'Returns the groups of a cost-fair or time-fair queue that have tasks and got the most since the restart. got is the service per weight, in costs or seconds, and ahead is the lead over the ready group that got the least. running counts tasks, and waiting_since is when the first ready task became ready. A task-fair queue has no rows. The function reads no task.';

-- These two functions show shared memory to roles that may monitor a queue.
-- Neither changes shared memory.
CREATE FUNCTION fairq_internal.queue_lanes(queue_id int) RETURNS TABLE (
	priority int, known boolean, known_from bigint, known_to bigint,
	block bigint, seat int, turn bigint, active int, front int, served int,
	parked int, throttled int, late int, due int, leased int, lapsed int,
	next_retry timestamptz, next_scheduled timestamptz,
	next_lease_end timestamptz)
	AS 'MODULE_PATHNAME', 'fairq_queue_lanes'
	LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION fairq_internal.queue_lanes(int)
	IS 'Returns the lanes of a queue in shared memory, if the current user may monitor the queue.';

CREATE VIEW fairq.lanes WITH (security_barrier) AS
	SELECT q.name AS queue, l.* FROM fairq.queue q
	CROSS JOIN LATERAL fairq_internal.queue_lanes(q.queue_id) l;
COMMENT ON VIEW fairq.lanes IS 'Priorities of queues in shared memory: the position of service, the number of groups in each set, and the next times of due tasks. The next call reads a missing priority from the tables.';

CREATE FUNCTION fairq.lane_groups(queue text, priority int)
	RETURNS TABLE (group_no int, state text, next_turn bigint,
	next_task bigint)
	AS 'MODULE_PATHNAME', 'fairq_lane_groups'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq.lane_groups(text, int)
	IS 'Returns the groups of a queue and priority in shared memory. The columns show whether a group waits for its turn, a slot or a start, and the addresses of its next turn and task. Other groups have no ready, due or running task in this priority.';

CREATE FUNCTION fairq.peek(queue text, max_tasks int DEFAULT 10)
	RETURNS TABLE (id bigint, group_key text, addr bigint,
	enqueued_at timestamptz)
	AS 'MODULE_PATHNAME', 'fairq_peek'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.peek(text, int)
	IS 'Returns the tasks that pop() would return now, in the same order, with their turns. It leases nothing and '
		'changes nothing. Its cost does not depend on the number of queued tasks.';

CREATE FUNCTION fairq.turns_before(id bigint) RETURNS bigint
	AS 'MODULE_PATHNAME', 'fairq_turns_before'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq.turns_before(bigint)
	IS 'Returns the maximum number of tasks of its priority that are served before a ready task. '
		'This number includes tasks of its group and of the groups that wait now. NULL: the task is scheduled, running or unknown, no bound '
		'is known, or the caller may not monitor the queue.';

CREATE FUNCTION fairq.redrive(queue text, group_key text DEFAULT NULL,
	max_tasks int DEFAULT NULL, to_queue text DEFAULT NULL,
	to_priority int DEFAULT NULL, to_group text DEFAULT NULL)
	RETURNS bigint AS 'MODULE_PATHNAME', 'fairq_redrive'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.redrive(text, text, int, text, int, text)
	IS 'Puts failed tasks back into their queue, or another one, in the order in which they failed. '
		'to_priority and to_group replace their priority and group. Returns the number of tasks.';

CREATE FUNCTION fairq.redrive(id bigint, to_queue text DEFAULT NULL,
	to_priority int DEFAULT NULL, to_group text DEFAULT NULL) RETURNS boolean
	AS 'MODULE_PATHNAME', 'fairq_redrive_task'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.redrive(bigint, text, int, text)
	IS 'Puts a failed task back into its queue, or into another one. Returns false if the task has not failed, '
		'or if another task of the queue has its dedup_key now.';

CREATE FUNCTION fairq.purge_failed(queue text, group_key text DEFAULT NULL,
	older_than interval DEFAULT '0')
	RETURNS bigint AS 'MODULE_PATHNAME', 'fairq_purge_failed'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.purge_failed(text, text, interval)
	IS 'Deletes the tasks of a queue, group or tenant that failed longer ago than older_than. Returns their number.';

CREATE FUNCTION fairq.maintain(queue text DEFAULT NULL) RETURNS void
	AS 'MODULE_PATHNAME', 'fairq_maintain'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION fairq.maintain(text)
	IS 'Cleans up one queue or all queues: deletes tasks whose retention has ended, takes back '
		'expired leases, ends expired tasks, and removes unused groups. Run it from cron.';

-- The function is STABLE, so that it uses its caller's snapshot, which is a fresh
-- one.  check_queue() calls it, with the settings of src/table/store_spi.c.  Before
-- PostgreSQL 16, a SET clause here would end the session when memory runs out.
CREATE FUNCTION fairq_internal.check_tables(queue_id int) RETURNS SETOF text
	LANGUAGE sql STABLE PARALLEL UNSAFE
AS $$
	WITH q AS (
		SELECT * FROM fairq.queue WHERE queue.queue_id = $1
	), t AS (
		SELECT t.*, q.block_length FROM fairq.task t JOIN q USING (queue_id)
	)
	SELECT format('task %s has address %s, which is not at seat %s',
		id, addr, group_no)
	FROM t WHERE addr < 0
		OR (addr < (1::bigint << 62) AND addr % block_length <> group_no)
	UNION ALL
	SELECT format('task %s is scheduled for %s, and its addr is %s', id,
		coalesce(run_at::text, 'no time'), addr)
	FROM t WHERE addr >= (1::bigint << 62) AND (run_at IS NULL
		OR run_at < '3000-01-01' AND (addr % (1::bigint << 61)) >> 16
			<> ceil((extract(epoch FROM run_at) - 946684800) * 1000))
	UNION ALL
	SELECT format('task %s has dedup_key "%s", which is not its', id, dedup_key)
	FROM t WHERE dedup_key IS NOT NULL
		AND (until_started IS NULL OR attempt = 0) AND NOT EXISTS (
		SELECT FROM fairq.dedup d WHERE d.queue_id = t.queue_id
			AND d.dedup_key = t.dedup_key AND d.id = t.id AND d.free_at IS NULL)
	UNION ALL
	SELECT format('dedup_key "%s" is that of task %s, which does not have it',
		d.dedup_key, d.id)
	FROM fairq.dedup d JOIN q USING (queue_id) WHERE d.free_at IS NULL
		AND NOT EXISTS (
		SELECT FROM fairq.task t WHERE t.queue_id = d.queue_id
			AND t.dedup_key = d.dedup_key AND t.id = d.id
			AND (t.until_started IS NULL OR t.attempt = 0))
	UNION ALL
	SELECT format('task %s is in the archive, and not finished', a.id)
	FROM fairq.archive a JOIN q USING (queue_id) JOIN fairq.task t USING (id)
	UNION ALL
	SELECT format('task %s is cancelled and not running', id)
	FROM t WHERE cancelled AND lease_until IS NULL
	UNION ALL
	SELECT format('task %s has %s attempts, and released %s', id, attempt,
		released)
	FROM t WHERE released NOT BETWEEN 0 AND attempt
	UNION ALL
	SELECT format('task %s has %s attempts, and %s lapses', id, attempt, lapses)
	FROM t WHERE lapses NOT BETWEEN 0 AND attempt
	UNION ALL
	SELECT format('task %s of priority %s is in lane %s', id, priority, lane)
	FROM t WHERE priority NOT BETWEEN 0 AND 9
		OR lane <> queue_id * 10 + priority
	UNION ALL
	SELECT format('task %s is of group number %s, which has no key',
		id, group_no)
	FROM t WHERE NOT EXISTS (
		SELECT FROM fairq.group_number s
		WHERE s.queue_id = t.queue_id AND s.group_no = t.group_no)
	UNION ALL
	SELECT format('task %s is blocked, and has a turn or a lease', id)
	FROM t WHERE blocked AND (addr < (1::bigint << 62) OR lease_until IS NOT NULL)
	UNION ALL
	SELECT format('task %s is blocked, and waits for nothing', id)
	FROM t WHERE blocked AND NOT EXISTS (
		SELECT FROM fairq.batch b WHERE b.id = t.id AND b.finished_at IS NULL)
		AND NOT EXISTS (SELECT FROM fairq.dependency d WHERE d.waiting = t.id)
	UNION ALL
	SELECT format('task %s is running and was never popped', id)
	FROM t WHERE lease_until IS NOT NULL AND attempt < 1
	UNION ALL
	SELECT format('task %s has a worker and is not running', id)
	FROM t WHERE lease_until IS NULL AND worker IS NOT NULL
	UNION ALL
	SELECT format('group number %s has %s keys', s.group_no,
		count(DISTINCT s.group_key))
	FROM fairq.group_number s JOIN q USING (queue_id)
	GROUP BY s.group_no HAVING count(DISTINCT s.group_key) > 1
	UNION ALL
	SELECT format('group "%s" has %s numbers', s.group_key,
		count(DISTINCT s.group_no))
	FROM fairq.group_number s JOIN q USING (queue_id)
	GROUP BY s.group_key HAVING count(DISTINCT s.group_no) > 1
	UNION ALL
	SELECT format('group number %s is not below the block length', s.group_no)
	FROM fairq.group_number s JOIN q USING (queue_id)
	WHERE s.group_no < 0 OR s.group_no >= q.block_length
	UNION ALL
	SELECT format('group "%s" has a tenant without a number', s.group_key)
	FROM fairq.group_number s JOIN q USING (queue_id)
	WHERE strpos(s.group_key, q.separator) > 0 AND NOT EXISTS (
		SELECT FROM fairq.group_number t WHERE t.queue_id = s.queue_id
			AND t.group_key = split_part(s.group_key, q.separator, 1))
	UNION ALL
	SELECT format('task %s is of tenant "%s" and of no user', t.id, s.group_key)
	FROM t JOIN fairq.group_number s USING (queue_id, group_no) JOIN q USING (queue_id)
	WHERE strpos(s.group_key, q.separator) = 0
	UNION ALL
	-- each trigger of this script, and when it fires
	SELECT CASE WHEN g.oid IS NULL THEN format('trigger "%s" of table %s is missing',
			e.name, e.rel)
		ELSE format('trigger "%s" of table %s does not fire when it should: ALTER TABLE %s ENABLE%s TRIGGER %I',
			e.name, e.rel, e.rel,
			CASE e.enabled WHEN 'A' THEN ' ALWAYS' WHEN 'R' THEN ' REPLICA' END,
			e.name) END
	FROM (VALUES
		('fairq.task', 'task_changed', 'A'),
		('fairq.task', 'task_inserted', 'A'),
		('fairq.task', 'task_updated', 'A'),
		('fairq.task', 'task_applied', 'R'),
		('fairq.group_number', 'group_number_changed', 'A'),
		('fairq.group_number', 'group_number_applied', 'R'),
		('fairq.queue', 'settings_changed', 'A'),
		('fairq.queue', 'settings_truncated', 'A'),
		('fairq.group_setting', 'settings_changed', 'A'),
		('fairq.group_setting', 'settings_truncated', 'A'),
		('fairq.queue_privilege', 'settings_changed', 'A'),
		('fairq.queue_privilege', 'settings_truncated', 'A')
	) e (rel, name, enabled)
	LEFT JOIN pg_trigger g ON g.tgrelid = e.rel::regclass AND g.tgname = e.name
	WHERE g.oid IS NULL OR g.tgenabled <> e.enabled::"char"
$$;
COMMENT ON FUNCTION fairq_internal.check_tables(int)
	IS 'Returns what is wrong with the rows of a queue or with the tables'' triggers. It is a part of '
		'check_queue().';

CREATE FUNCTION fairq.check_queue(queue text) RETURNS SETOF text
	AS 'MODULE_PATHNAME', 'fairq_check_queue'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION fairq.check_queue(text)
	IS 'Returns the faults of a queue. No row: there are none.';

CREATE FUNCTION fairq.shared_memory(OUT size bigint, OUT preloaded boolean,
	OUT entries bigint, OUT entries_used bigint, OUT area bigint,
	OUT area_used bigint, OUT queues bigint, OUT counters bigint)
	RETURNS SETOF record AS 'MODULE_PATHNAME', 'fairq_shared_memory'
	LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION fairq.shared_memory()
	IS 'Returns the size of fairq''s shared memory, and its use by all databases of the server.';

--
-- Privileges.  Every role may call most functions, because they check privileges
-- on the queue.  No role has a privilege until it is granted.  Only the owner may
-- call the functions that are revoked below, unless the owner grants them.
--

REVOKE ALL ON SCHEMA fairq_internal FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA fairq, fairq_internal FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA fairq FROM PUBLIC;
-- Views call functions of both schemas with their reader's privileges, and
-- default privileges may have revoked EXECUTE from PUBLIC.
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA fairq, fairq_internal TO PUBLIC;
REVOKE ALL ON FUNCTION fairq.create_queue, fairq.set_shard, fairq.reset_hints,
	fairq.shared_memory, fairq_internal.check_tables,
	fairq_internal.task_changed, fairq_internal.group_number_changed,
	fairq_internal.settings_changed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fairq.shared_memory TO pg_read_all_stats;
GRANT USAGE ON SCHEMA fairq TO PUBLIC;
GRANT SELECT ON fairq.queues, fairq.groups, fairq.tenants, fairq.tasks,
	fairq.live_tasks, fairq.finished_tasks, fairq.batches, fairq.workers, fairq.lanes,
	fairq.stats, fairq.fairness TO PUBLIC;
