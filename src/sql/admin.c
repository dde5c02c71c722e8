/*
 * admin.c
 *		Functions that create, change, pause, purge and drop queues and groups,
 *		that grant and revoke privileges, and that register workers.
 *
 * Settings are written through SPI (store_spi.c), so triggers send
 * invalidation messages (fairq.c), as for rows changed by hand.  A list
 * describes for each setting how its argument is checked and which value
 * removes it.  A setting that a call does not name gets the table's default in
 * a new row, and is unchanged in an existing one.
 *
 * queue.c checks privileges against the rows of fairq.queue_privilege.  These
 * rows are cached with the queue's settings, and become stale together with
 * them.  A grant or a revocation takes effect from the next call.
 *
 * Workers register every ten seconds, and the view fairq.workers shows them.
 * Nothing else depends on the registry.  Only the leases of a worker's tasks
 * decide whether the worker still has the tasks.  A worker that ends removes
 * its row.  The view hides workers that have not registered for an hour.  The
 * first call of another worker deletes their rows; its later calls do not read
 * rows of other workers.
 *
 * The key of a worker's row is a random id, since two workers may have the
 * same name.  No view shows this key, so a role can change only the rows of
 * its own workers.
 *
 * Locking: see queue.c.  drop_queue, and alter_queue with a block_length, wait
 * for all transactions that have worked on the queue, and the queue's users
 * wait for these calls.  No other function here waits for other transactions
 * that use the queue.  A worker's own row is locked to the end of the
 * transaction; other workers' rows are deleted only if no transaction has
 * locked them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "args.h"
#include "blocked.h"
#include "compat.h"
#include "group.h"
#include "load.h"
#include "outcome.h"
#include "registry.h"
#include "store.h"
#include "store_spi.h"
#include "tools.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_create_queue);
PG_FUNCTION_INFO_V1(fairq_alter_queue);
PG_FUNCTION_INFO_V1(fairq_drop_queue);
PG_FUNCTION_INFO_V1(fairq_set_group);
PG_FUNCTION_INFO_V1(fairq_pause);
PG_FUNCTION_INFO_V1(fairq_resume);
PG_FUNCTION_INFO_V1(fairq_hold);
PG_FUNCTION_INFO_V1(fairq_purge);
PG_FUNCTION_INFO_V1(fairq_reset_hints);
PG_FUNCTION_INFO_V1(fairq_grant_queue);
PG_FUNCTION_INFO_V1(fairq_revoke_queue);
PG_FUNCTION_INFO_V1(fairq_has_queue_privilege);
PG_FUNCTION_INFO_V1(fairq_register_worker);
PG_FUNCTION_INFO_V1(fairq_unregister_worker);

/*
 * numbers of the queue's lanes, as in fairq_task_lane(), with which the
 * indexes begin
 */
#define OF_QUEUE "lane BETWEEN $1 * 10 AND $1 * 10 + 9"

/* the opposite of fairq_is_timed() */
#define HAS_TURN "addr < (1::bigint << 62)"

/* most settings of a queue, plus other columns that are written with them */
#define MOST_ARGS 20

/*
 * a time of 0 removes the setting. Without retain, tasks are not kept. Without
 * retain_failed, failed tasks are kept forever
 */
#define NO_TIME "interval '0'"

/* A setting of queues or groups: its column, and its argument in SQL. */
typedef struct Setting
{
	const char *name;
	Oid			type;
	int			least;
	int64		most;			/* the maximum; of an interval, in years */
	const char *none;			/* value that removes the setting; NULL: no
								 * value does */
	const char *instead;		/* SQL of the value that is written when the
								 * setting is removed; NULL: the value is
								 * NULL */
	void		(*check) (text *value); /* function that checks a text */
} Setting;

/*
 * Columns of a row that a call writes, and SQL for their values, each after a
 * comma.  The first arguments are those that identify the row.
 */
typedef struct Given
{
	FairqSqlArg args[MOST_ARGS];
	int			nargs;
	StringInfoData columns;
	StringInfoData values;
} Given;

static void
check_fair_by(text *arg)
{
	char	   *value = text_to_cstring(arg);

	if (strcmp(value, "tasks") != 0 && strcmp(value, "cost") != 0 &&
		strcmp(value, "time") != 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("fair_by must be tasks, cost or time"),
				errdetail("The value is \"%s\".", value));
}

static void
check_separator(text *arg)
{
	/*
	 * in one-byte encodings, a character that is not ASCII also has one byte
	 */
	if (VARSIZE_ANY_EXHDR(arg) != 1 || IS_HIGHBIT_SET(*VARDATA_ANY(arg)))
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("separator must be one ASCII character"),
				errdetail("The value is \"%s\".", text_to_cstring(arg)));
}

/*
 * arguments of create_queue() after the queue's name; those of alter_queue()
 * are the same except the last one
 */
static const Setting queue_settings[] = {
	{"concurrency", INT4OID, 1, PG_INT32_MAX, "0"},
	{"max_running", INT4OID, 1, PG_INT32_MAX, "0"},
	{"lease", INTERVALOID, 1, 100},
	{"max_attempts", INT4OID, 1, PG_INT32_MAX},
	{"backoff", INTERVALOID, 0, 100},
	{"retain", INTERVALOID, 0, 100, NO_TIME},
	{"notify", BOOLOID},
	{"block_length", INT8OID, 1, PG_INT64_MAX},
	{"fair_by", TEXTOID,.check = check_fair_by},
	{"rate", INT4OID, 1, PG_INT32_MAX, "0"},
	{"per", INTERVALOID, 1, 1},
	{"burst", INT4OID, 1, PG_INT32_MAX},
	{"max_rate", INT4OID, 1, PG_INT32_MAX, "0"},
	{"shares", INT4ARRAYOID, 1, FAIRQ_PRIORITIES, "'{}'"},
	{"in_order", BOOLOID},
	{"retain_failed", INTERVALOID, 0, 100, NO_TIME},
	{"max_run_time", INTERVALOID, 1, 100, NO_TIME},
	{"backoff_max", INTERVALOID, 0, 100},
	{"separator", TEXTOID,.check = check_separator}
};

/* arguments of set_group(), after the group's key */
static const Setting group_settings[] = {
	{"concurrency", INT4OID, 1, PG_INT32_MAX, "0"},
	{"weight", INT4OID, 1, FAIRQ_MAX_WEIGHT, "0", "1"},
	{"rate", INT4OID, 1, PG_INT32_MAX, "0"}
};

static void
check_shares(FunctionCallInfo fcinfo, int n, int least, int64 most)
{
	Datum	   *values;
	int			nvalues = fairq_arg_array(fcinfo, n, "shares", INT4OID,
										  &values, NULL);

	(void) fairq_check_int("the number of shares", nvalues, least, most);
	for (int i = 0; i < nvalues; i++)
		(void) fairq_check_int("each of shares", DatumGetInt32(values[i]), 1,
							   FAIRQ_MAX_SHARE);
}

/*
 * Check an argument that has a value.  A new queue has no setting to remove.
 */
static void
check_setting(FunctionCallInfo fcinfo, int n, const Setting *setting,
			  bool is_new)
{
	int			least = setting->none == NULL || is_new ? setting->least : 0;

	switch (setting->type)
	{
		case INT4OID:
		case INT8OID:
			(void) fairq_check_int(setting->name, setting->type == INT4OID ?
								   PG_GETARG_INT32(n) : PG_GETARG_INT64(n),
								   least, setting->most);
			break;
		case INTERVALOID:
			(void) fairq_check_span(setting->name, PG_GETARG_INTERVAL_P(n),
									least, (int) setting->most);
			break;
		case TEXTOID:
			setting->check(PG_GETARG_TEXT_PP(n));
			break;
		case INT4ARRAYOID:
			check_shares(fcinfo, n, least, setting->most);
			break;
	}
}

/* Begin a list of columns, after nargs arguments that identify the row. */
static void
begin_given(Given *given, int nargs)
{
	given->nargs = nargs;
	initStringInfo(&given->columns);
	initStringInfo(&given->values);
}

/*
 * Add a column and its value.  If the argument removes the setting, the value
 * is the SQL of "instead".
 */
static void
give(Given *given, const char *column, FairqSqlArg arg, const char *none,
	 const char *instead)
{
	Assert(given->nargs < MOST_ARGS);
	given->args[given->nargs++] = arg;
	appendStringInfo(&given->columns, ", %s", column);
	if (none == NULL)
		appendStringInfo(&given->values, ", $%d", given->nargs);
	else
		appendStringInfo(&given->values, ", coalesce(nullif($%d, %s), %s)",
						 given->nargs, none,
						 instead == NULL ? "NULL" : instead);
}

/* Check the arguments from an index on, and add those that have values. */
static void
give_args(Given *given, FunctionCallInfo fcinfo, int first,
		  const Setting *settings, int nsettings, bool is_new)
{
	for (int i = 0; i < nsettings; i++)
	{
		const Setting *setting = &settings[i];
		FairqSqlArg arg = {setting->type, PG_GETARG_DATUM(first + i), false};

		if (PG_ARGISNULL(first + i))
			continue;
		check_setting(fcinfo, first + i, setting, is_new);
		give(given, setting->name, arg, setting->none, setting->instead);
	}
}

/* Write the given columns of a queue. */
static void
change_queue(FairqQueue *queue, Given *given)
{
	given->args[0] = fairq_sql_int4(queue->id);
	fairq_sql(psprintf("UPDATE fairq.queue SET (queue_id%s) = ROW($1%s)"
					   " WHERE queue_id = $1",
					   given->columns.data, given->values.data),
			  given->args, given->nargs, NULL);
	fairq_notify(queue);
}

/*
 * Write the given columns of a group.  A group's row without any setting is
 * deleted.
 */
static void
change_group(FairqQueue *queue, int32 group_no, Given *given)
{
	given->args[0] = fairq_sql_int4(queue->id);
	given->args[1] = fairq_sql_int4(group_no);
	fairq_sql(psprintf("INSERT INTO fairq.group_setting (queue_id, group_no%s)"
					   " VALUES ($1, $2%s) ON CONFLICT (queue_id, group_no)"
					   " DO UPDATE SET (queue_id%s) = ROW($1%s)",
					   given->columns.data, given->values.data,
					   given->columns.data, given->values.data),
			  given->args, given->nargs, NULL);
	fairq_sql("DELETE FROM fairq.group_setting"
			  " WHERE queue_id = $1 AND group_no = $2"
			  " AND concurrency IS NULL AND weight = 1 AND NOT paused"
			  " AND rate IS NULL AND held_until IS NULL",
			  given->args, 2, NULL);
	fairq_notify(queue);
}

/* Refuse in_order with a concurrency limit other than 1; 0: no limit. */
static void
check_in_order(int32 concurrency)
{
	if (concurrency != 1)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("in_order needs a concurrency of 1"),
				concurrency == 0 ?
				errdetail("There is no limit.") :
				errdetail("The value is %d.", concurrency),
				errhint("Set concurrency to 1, too."));
}

/* Check that a queue with this new limit, and its groups, allow in_order. */
static void
check_in_order_of(FairqQueue *queue, int32 limit)
{
	FairqSqlArg id = fairq_sql_int4(queue->id);
	int64		most = 0;

	check_in_order(limit == FAIRQ_NO_LIMIT ? 0 : limit);
	fairq_sql("SELECT max(s.concurrency)::bigint FROM fairq.group_setting s"
			  " JOIN fairq.queue q USING (queue_id) WHERE queue_id = $1"
			  " AND NOT EXISTS (SELECT FROM fairq.group_number n"
			  " WHERE n.queue_id = $1 AND n.group_no = s.group_no"
			  " AND strpos(n.group_key, q.separator) = 0)",
			  &id, 1, &most);
	if (most > 1)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("in_order needs a concurrency of 1"),
				errdetail("A group has a concurrency of " INT64_FORMAT ".", most),
				errhint("Remove it with fairq.set_group(concurrency => 0)."));
}

/* Create the hints of a new queue.  An abort gives them back. */
static void
make_queue_hints(int32 queue_id)
{
	FairqHints *hints = fairq_shmem_queue(queue_id, true);

	PG_TRY();
	{
		/* no task of the queue has started yet */
		hints->entry.born = FAIRQ_LONG_AGO;
		fairq_counter_begin_starts(&hints->running, FAIRQ_LONG_AGO);
		fairq_pending_queue(hints, FAIRQ_CREATED);
		fairq_queue_tally_empty(&hints->tally);
	}
	PG_CATCH();
	{
		fairq_shmem_release(hints);
		PG_RE_THROW();
	}
	PG_END_TRY();
	/*
	 * not in PG_TRY, because if this fails, the abort gives the hints back
	 */
	fairq_load_first(&hints->tally);
}

/* Write the row (queue_id, role, privilege), unless it exists. */
static void
write_grant(const FairqSqlArg *args)
{
	fairq_sql("INSERT INTO fairq.queue_privilege (queue_id, role, privilege)"
			  " VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", args, 3, NULL);
}

/*
 * Whether there is a queue with the name, committed or our own.  If not,
 * *creator is the transaction that is creating one, if any.
 */
static bool
name_exists(text *name, TransactionId *creator)
{
	FairqScan  *scan = fairq_scan_table(FAIRQ_QUEUE, FAIRQ_QUEUE_BY_NAME,
										fairq_range(PointerGetDatum(name)));
	FairqRowState state;
	bool		exists = false;

	*creator = InvalidTransactionId;
	while (!exists && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		exists = state != FAIRQ_ROW_INSERTING;
		if (!exists)
			*creator = fairq_scan_changer(scan);
	}
	fairq_scan_end(scan);
	return exists;
}

/*
 * Insert the row of a new queue.  Returns its id; 0: the name is taken.  Waits
 * for a transaction that is creating a queue with the name.  The INSERT itself
 * would also wait, but would then fail at REPEATABLE READ.
 */
static int64
insert_queue(text *name, const Given *given)
{
	Oid			relid = fairq_relid(FAIRQ_QUEUE);
	Oid			hash = hash_bytes((const unsigned char *) VARDATA_ANY(name),
								  VARSIZE_ANY_EXHDR(name));
	int64		id = 0;
	bool		exists;
	TransactionId creator;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		LockDatabaseObject(relid, hash, 1, ExclusiveLock);
		exists = name_exists(name, &creator);
		if (!exists && !TransactionIdIsValid(creator))
			break;
		UnlockDatabaseObject(relid, hash, 1, ExclusiveLock);
		if (exists)
			return 0;
		XactLockTableWait(creator, NULL, NULL, XLTW_None);
	}
	fairq_sql(psprintf("INSERT INTO fairq.queue (name%s) VALUES ($1%s)"
					   " ON CONFLICT DO NOTHING RETURNING queue_id::bigint",
					   given->columns.data, given->values.data),
			  given->args, given->nargs, &id);
	UnlockDatabaseObject(relid, hash, 1, ExclusiveLock);
	return id;
}

Datum
fairq_create_queue(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	char	   *cname = text_to_cstring(name);
	bool		skip = FAIRQ_ARG_BOOL(PG_NARGS() - 1);
	Given		given;
	int64		id;

	begin_given(&given, 1);
	given.args[0] = fairq_sql_text(name);
	(void) fairq_check_text("queue", name, 1, FAIRQ_MAX_QUEUE_NAME);
	give_args(&given, fcinfo, 1, queue_settings, lengthof(queue_settings),
			  true);
	if (FAIRQ_ARG_BOOL(15))
		check_in_order(PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1));
	fairq_writes("fairq.create_queue()");
	id = insert_queue(name, &given);
	if (id != 0)
	{
		FairqSqlArg args[] = {
			fairq_sql_int4((int32) id),
			{REGROLEOID, ObjectIdGetDatum(GetUserId())},
			fairq_sql_text(cstring_to_text("manage"))
		};

		make_queue_hints((int32) id);
		/* the role that creates a queue may manage it */
		if (!fairq_may(NULL, FAIRQ_PRIV_MANAGE))
			write_grant(args);
	}
	else
		ereport(skip ? NOTICE : ERROR,
				errcode(ERRCODE_FAIRQ_QUEUE_EXISTS),
				skip ? errmsg("queue \"%s\" already exists, skipping", cname) :
				errmsg("queue \"%s\" already exists", cname));
	PG_RETURN_VOID();
}

/* Give every task its address under the new block length. */
static void
readdress(FairqQueue *queue, int64 block_length)
{
	FairqSqlArg args[] = {
		fairq_sql_int4(queue->id),
		{INT8OID, Int64GetDatum(queue->block_length)},
		{INT8OID, Int64GetDatum(block_length)}
	};
	int64		max_group_no = -1;
	int64		max_block = -1;

	fairq_sql("SELECT max(group_no)::bigint FROM fairq.group_number"
			  " WHERE queue_id = $1",
			  args, 1, &max_group_no);
	fairq_sql("SELECT max(addr) / $2 FROM fairq.task"
			  " WHERE " OF_QUEUE " AND " HAS_TURN,
			  args, 2, &max_block);
	if (max_group_no >= block_length)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("block_length must be greater than " INT64_FORMAT,
					   max_group_no),
				errdetail("The value is " INT64_FORMAT ", and queue \"%s\" has groups numbered up to " INT64_FORMAT ".",
						  block_length, queue->name, max_group_no));
	if (max_block >= 0 && max_group_no >= 0 &&
		fairq_address((int32) max_group_no, max_block,
					  block_length) == FAIRQ_ADDR_NONE)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("block_length must be at most " INT64_FORMAT,
					   max_block == 0 ? PG_INT64_MAX :
					   (FAIRQ_RETRIES - 1 - max_group_no) / max_block),
				errdetail("The value is " INT64_FORMAT ", and queue \"%s\" has tasks in block " INT64_FORMAT ".",
						  block_length, queue->name, max_block));
	fairq_sql("UPDATE fairq.task SET addr = addr % $2 + addr / $2 * $3"
			  " WHERE " OF_QUEUE " AND " HAS_TURN, args, 3, NULL);
	/*
	 * later changes by this transaction need correct hints; see
	 * fairq_task_changed
	 */
	pg_atomic_fetch_add_u64(&fairq_domain()->resets, 1);
}

Datum
fairq_alter_queue(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	bool		readdressing = !PG_ARGISNULL(8);
	FairqQueue *queue;
	Given		given;

	begin_given(&given, 1);
	give_args(&given, fcinfo, 1, queue_settings, lengthof(queue_settings) - 1,
			  false);
	fairq_writes("fairq.alter_queue()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE,
							readdressing ? AccessExclusiveLock :
							ShareUpdateExclusiveLock);
	if (PG_ARGISNULL(15) ? queue->retries.in_order : PG_GETARG_BOOL(15))
		check_in_order_of(queue, PG_ARGISNULL(1) ?
						  queue->groups.others.setting.limit :
						  PG_GETARG_INT32(1));
	if (readdressing && PG_GETARG_INT64(8) != queue->block_length)
		readdress(queue, PG_GETARG_INT64(8));
	change_queue(queue, &given);
	PG_RETURN_VOID();
}

/*
 * Change a setting of a whole queue, or of one group.  If the group does not
 * exist, the function creates it (with makes), or raises an error.
 */
static void
change_one(FunctionCallInfo fcinfo, const char *function, bool makes,
		   const char *column, FairqSqlArg arg)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	bool		of_group = !PG_ARGISNULL(1);
	FairqQueue *queue;
	Given		given;

	fairq_writes(function);
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, ShareUpdateExclusiveLock);
	begin_given(&given, of_group ? 2 : 1);
	give(&given, column, arg, NULL, NULL);
	if (of_group)
		change_group(queue, makes ?
					 fairq_group_to_set(queue, PG_GETARG_TEXT_PP(1)) :
					 fairq_existing_group(queue, PG_GETARG_TEXT_PP(1)), &given);
	else
		change_queue(queue, &given);
}

Datum
fairq_pause(PG_FUNCTION_ARGS)
{
	change_one(fcinfo, "fairq.pause()", true, "paused",
			   (FairqSqlArg) {BOOLOID, BoolGetDatum(true)});
	PG_RETURN_VOID();
}

Datum
fairq_resume(PG_FUNCTION_ARGS)
{
	change_one(fcinfo, "fairq.resume()", false, "paused",
			   (FairqSqlArg) {BOOLOID, BoolGetDatum(false)});
	PG_RETURN_VOID();
}

/*
 * Hold all tasks of a queue, or of one group, until a time.  A time in the
 * past ends the hold.
 */
Datum
fairq_hold(PG_FUNCTION_ARGS)
{
	TimestampTz until = PG_ARGISNULL(2) ? DT_NOBEGIN :
		PG_GETARG_TIMESTAMPTZ(2);
	bool		holds = until > GetCurrentTimestamp();

	fairq_arg_needed(fcinfo, 0, "queue");
	if (until == DT_NOEND)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("until must not be infinity"),
				errhint("Use fairq.pause()."));
	change_one(fcinfo, "fairq.hold()", holds, "held_until",
			   (FairqSqlArg) {TIMESTAMPTZOID, TimestampTzGetDatum(until),
			   !holds});
	PG_RETURN_VOID();
}

Datum
fairq_set_group(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = fairq_arg_text(fcinfo, 1, "group_key");
	FairqQueue *queue;
	Given		given;
	int32		group_no;

	begin_given(&given, 2);
	give_args(&given, fcinfo, 2, group_settings, lengthof(group_settings),
			  false);
	fairq_writes("fairq.set_group()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, ShareUpdateExclusiveLock);
	/*
	 * a tenant's limit may exceed 1, since only the tasks of a user are in
	 * order
	 */
	if (queue->retries.in_order && !PG_ARGISNULL(2) &&
		PG_GETARG_INT32(2) > 1 && !fairq_is_tenant_key(queue, group_key))
		check_in_order(PG_GETARG_INT32(2));
	group_no = fairq_group_to_set(queue, group_key);
	if (given.nargs > 2)
		change_group(queue, group_no, &given);
	PG_RETURN_VOID();
}

/* Delete tasks, but running tasks only with force.  Returns their number. */
static int64
delete_range(FairqQueue *queue, FairqTable *tasks, FairqIndex index,
			 FairqRange range, bool force)
{
	FairqScan  *scan = fairq_scan_begin(tasks, index, range);
	int64		deleted = 0;

	while (fairq_scan_next_live(scan))
	{
		FairqTask	task;

		fairq_task_read(scan->slot, &task);
		if (task.running && !force)
			continue;
		if (force && task.batch != 0)
			fairq_batch_count(tasks, task.batch, FAIRQ_STATUS_DROPPED, 1,
							  task.id);
		if (force)
		{
			deleted += fairq_task_delete(tasks, &task, true) == FAIRQ_CLAIMED;
			(void) fairq_after_failed(tasks, task.id, FAIRQ_STATUS_DROPPED);
		}
		else if (fairq_task_lock(tasks, &task, LockTupleExclusive) ==
				 FAIRQ_CLAIMED && !task.running)
		{
			fairq_finish(queue, tasks, &task, FAIRQ_STATUS_DROPPED, NULL,
						 (Datum) 0);
			deleted++;
		}
	}
	fairq_scan_end(scan);
	return deleted;
}

/*
 * Delete the queue's tasks of these groups, or of all groups (NIL).  due:
 * delete only scheduled tasks that are due.
 */
static int64
delete_of_groups(FairqQueue *queue, const List *groups, bool force, bool due,
				 FairqTable *tasks)
{
	FairqIndex	index = due && groups == NIL ? FAIRQ_TASK_BY_TIME :
		FAIRQ_TASK_BY_GROUP;
	int64		end = fairq_due_end(FAIRQ_REGION_SCHEDULED,
									GetCurrentTimestamp());
	int64		deleted = 0;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		for (int i = 0; i < Max(list_length(groups), 1); i++)
		{
			Datum		lane = Int32GetDatum(fairq_task_lane(queue->id, p));
			FairqRange	range = groups == NIL ? fairq_range(lane) :
				fairq_range_2(lane, Int32GetDatum(list_nth_int(groups, i)));

			if (due)
				range = fairq_range_section(range, FAIRQ_SCHEDULED, end);
			deleted += delete_range(queue, tasks, index, range, force);
		}
	return deleted;
}

/*
 * Delete the tasks of these groups, or of all (NIL).  Delete running tasks
 * only with force.  With force, the caller has locked the queue exclusively.
 */
static int64
delete_tasks(FairqQueue *queue, const List *groups, bool force)
{
	FairqTable *tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	int64		deleted = delete_of_groups(queue, groups, force, false, tasks);

	/*
	 * The end of a task made due the blocked tasks that waited for it.  So
	 * their rows may have moved to places that the scan had passed.  Tasks
	 * that are due are not moved again.
	 */
	if (!force && deleted > 0)
		deleted += delete_of_groups(queue, groups, false, true, tasks);
	fairq_table_close(tasks);
	if (deleted > 0)
		fairq_written();
	return deleted;
}

Datum
fairq_purge(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	FairqQueue *queue;
	List	   *groups = NIL;

	fairq_writes("fairq.purge()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	if (!PG_ARGISNULL(1))
	{
		groups = fairq_groups_of(queue, PG_GETARG_TEXT_PP(1));
		/* the key is that of a tenant without groups */
		if (groups == NIL)
			PG_RETURN_INT64(0);
	}
	PG_RETURN_INT64(delete_tasks(queue, groups, false));
}

Datum
fairq_drop_queue(PG_FUNCTION_ARGS)
{
	static const char *const tables[] = {
		"dedup", "archive", "batch", "group_setting", "group_number",
		"queue_privilege", "queue"
	};
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	bool		force = FAIRQ_ARG_BOOL(1);
	FairqQueue *queue;
	FairqSqlArg args[1];

	fairq_writes("fairq.drop_queue()");
	queue = fairq_queue_use_if_exists(name, FAIRQ_PRIV_MANAGE,
									  AccessExclusiveLock, false);
	if (queue == NULL)
	{
		fairq_no_such_queue(name, FAIRQ_ARG_BOOL(2));
		PG_RETURN_BOOL(false);
	}
	args[0] = fairq_sql_int4(queue->id);
	if (!force &&
		fairq_sql("SELECT 1::bigint FROM fairq.task WHERE " OF_QUEUE " LIMIT 1",
				  args, 1, NULL) > 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_QUEUE_NOT_EMPTY),
				errmsg("cannot drop queue \"%s\" because it is not empty",
					   queue->name),
				errhint("Use force => true to drop it with all its tasks."));
	/*
	 * record the drop first, so that settings of its groups need not be
	 * published
	 */
	if (queue->hints != NULL)
		fairq_pending_queue(queue->hints, FAIRQ_DROPPED | FAIRQ_REMOVED);
	delete_tasks(queue, NIL, true);
	for (int i = 0; i < (int) lengthof(tables); i++)
		fairq_sql(psprintf("DELETE FROM fairq.%s WHERE queue_id = $1", tables[i]),
				  args, 1, NULL);
	PG_RETURN_BOOL(true);
}

Datum
fairq_reset_hints(PG_FUNCTION_ARGS)
{
	pg_atomic_fetch_add_u64(&fairq_domain()->resets, 1);
	PG_RETURN_VOID();
}

/* --------------------------------------------------------------------- */

/* Returns the bit of the privilege with this name. */
static int
privilege_named(const char *name)
{
	int			privilege = fairq_privilege_named(name);

	if (privilege == 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("privilege must be \"enqueue\", \"work\", \"monitor\" or \"manage\""),
				errdetail("The value is \"%.*s\".",
						  pg_mbcliplen(name, strlen(name), 100), name));
	return privilege;
}

/*
 * Read the arguments that grant_queue() and revoke_queue() share: the
 * privilege, the role and the queue.
 */
static void
arg_row(FunctionCallInfo fcinfo, const char *function, FairqSqlArg *args)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *privilege;
	FairqQueue *queue;

	fairq_arg_needed(fcinfo, 1, "role");
	privilege = fairq_arg_text(fcinfo, 2, "privilege");
	(void) privilege_named(text_to_cstring(privilege));
	fairq_writes(function);
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, ShareUpdateExclusiveLock);
	args[0] = fairq_sql_int4(queue->id);
	args[1] = (FairqSqlArg) {REGROLEOID, PG_GETARG_DATUM(1)};
	args[2] = fairq_sql_text(privilege);
}

Datum
fairq_grant_queue(PG_FUNCTION_ARGS)
{
	FairqSqlArg args[3];

	arg_row(fcinfo, "fairq.grant_queue()", args);
	if (!SearchSysCacheExists1(AUTHOID, args[1].value))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("role with OID %u does not exist",
					   DatumGetObjectId(args[1].value)));
	write_grant(args);
	PG_RETURN_VOID();
}

/* The function also works for a dropped role, named by its OID. */
Datum
fairq_revoke_queue(PG_FUNCTION_ARGS)
{
	FairqSqlArg args[3];

	arg_row(fcinfo, "fairq.revoke_queue()", args);
	fairq_sql("DELETE FROM fairq.queue_privilege"
			  " WHERE queue_id = $1 AND role = $2 AND privilege = $3",
			  args, lengthof(args), NULL);
	PG_RETURN_VOID();
}

/* has_queue_privilege(queue_id, privilege): for the views */
Datum
fairq_has_queue_privilege(PG_FUNCTION_ARGS)
{
	FairqQueue *queue = fairq_queue_by_id(PG_GETARG_INT32(0), false);
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(1));
	int			privilege = strcmp(name, "any") == 0 ? FAIRQ_PRIV_ANY :
		privilege_named(name);

	PG_RETURN_BOOL(queue != NULL && fairq_may(queue, privilege));
}

/* --------------------------------------------------------------------- */

/*
 * fairq.register_worker(worker_id, worker, queues, host, client, version,
 * concurrency, running)
 */
Datum
fairq_register_worker(PG_FUNCTION_ARGS)
{
	Datum	   *queues;
	int			nqueues = fairq_arg_queues(fcinfo, 2, &queues);
	int64		slots = FAIRQ_ARG_INT(6, "concurrency", 0, 0, PG_INT32_MAX);
	int64		running = FAIRQ_ARG_INT(7, "running", 0, 0, PG_INT32_MAX);
	int64		added = 0;
	FairqSqlArg args[] = {
		{UUIDOID, PG_GETARG_DATUM(0)},
		{TEXTOID, fairq_arg_name(fcinfo, 1, "worker")},
		{TEXTARRAYOID, PG_GETARG_DATUM(2)},
		{TEXTOID, fairq_arg_name(fcinfo, 3, "host"), PG_ARGISNULL(3)},
		{TEXTOID, fairq_arg_name(fcinfo, 4, "client"), PG_ARGISNULL(4)},
		{TEXTOID, fairq_arg_name(fcinfo, 5, "version"), PG_ARGISNULL(5)},
		{INT4OID, Int32GetDatum(slots), PG_ARGISNULL(6)},
		{INT4OID, Int32GetDatum(running), PG_ARGISNULL(7)}
	};

	fairq_arg_needed(fcinfo, 0, "worker_id");
	fairq_arg_needed(fcinfo, 1, "worker");
	fairq_writes("fairq.register_worker()");
	for (int i = 0; i < nqueues; i++)
		(void) fairq_queue_use(DatumGetTextPP(queues[i]), FAIRQ_PRIV_WORK,
							   AccessShareLock);
	fairq_sql("INSERT INTO fairq.worker (worker_id, worker, queues, host,"
			  " client, version, concurrency, running, started_at, last_seen)"
			  " SELECT $1, $2, $3, $4, $5, $6, $7, $8, now, now"
			  " FROM clock_timestamp() now"
			  " ON CONFLICT (worker_id) DO UPDATE SET (worker, queues, host,"
			  " client, version, concurrency, running, last_seen) = ($2, $3, $4,"
			  " $5, $6, $7, $8, excluded.last_seen)"
			  " RETURNING (started_at = last_seen)::int::bigint",
			  args, lengthof(args), &added);
	if (added != 0)
		fairq_sql("DELETE FROM fairq.worker WHERE worker_id IN"
				  " (SELECT worker_id FROM fairq.worker"
				  " WHERE last_seen < clock_timestamp() - interval '1 hour'"
				  " FOR UPDATE SKIP LOCKED)", NULL, 0, NULL);
	PG_RETURN_VOID();
}

/* fairq.unregister_worker(worker_id) */
Datum
fairq_unregister_worker(PG_FUNCTION_ARGS)
{
	FairqSqlArg id = {UUIDOID, PG_GETARG_DATUM(0)};
	ListCell   *lc;

	fairq_arg_needed(fcinfo, 0, "worker_id");
	fairq_writes("fairq.unregister_worker()");
	foreach(lc, fairq_sql_texts("SELECT unnest(queues) FROM fairq.worker"
								" WHERE worker_id = $1", &id, 1, false))
		(void) fairq_queue_use_if_exists(cstring_to_text(strVal(lfirst(lc))),
										 FAIRQ_PRIV_WORK, AccessShareLock,
										 false);
	PG_RETURN_BOOL(fairq_sql("DELETE FROM fairq.worker WHERE worker_id = $1",
							 &id, 1, NULL) > 0);
}
