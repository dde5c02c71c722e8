/*
 * admin.c
 *		Queues and groups are made, changed, paused, purged and dropped here.
 *
 * Settings are written through SPI (store_spi.c), so triggers tell others of
 * them (changed.c), as of those that are changed by hand.
 *
 * Locking: see queue.c.  drop_queue, and alter_queue with a block_length, wait
 * for all transactions that have worked on the queue, and the queue's users
 * wait for them; everything else here goes on beside all work.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "errors.h"
#include "group.h"
#include "outcome.h"
#include "registry.h"
#include "store.h"
#include "store_spi.h"
#include "tally_count.h"
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

/* as fairq_task_lane() numbers its lanes: the indexes begin with them */
#define OF_QUEUE "lane BETWEEN $1 * 10 AND $1 * 10 + 9"

/* as fairq_is_timed() says it */
#define HAS_TURN "addr < (1::bigint << 62)"

/* no time at all is as if there were none: not retained, or failed ones without end */
#define RETAIN(interval) "nullif(" interval ", interval '0')"

static int64
arg_block_length(FunctionCallInfo fcinfo, int n, int64 def)
{
	return fairq_check_int("block_length",
						   PG_ARGISNULL(n) ? def : PG_GETARG_INT64(n), 1,
						   PG_INT64_MAX);
}

/* A limit, if it is given; 0, where it is allowed, takes the limit away. */
static FairqSqlArg
arg_limit(FunctionCallInfo fcinfo, int n, const char *name, int32 low)
{
	FairqSqlArg arg = fairq_sql_int4((int32) FAIRQ_ARG_INT(n, name, low, low,
														   PG_INT32_MAX));

	arg.isnull = PG_ARGISNULL(n);
	return arg;
}

/* A time of 0 or more, if it is given. */
static FairqSqlArg
arg_delay(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		return fairq_sql_interval(NULL);
	(void) fairq_check_delay(name, PG_GETARG_INTERVAL_P(n));
	return fairq_sql_interval(PG_GETARG_INTERVAL_P(n));
}

/* Of what all groups are to get the same, if it is given. */
static FairqSqlArg
arg_fair_by(FunctionCallInfo fcinfo, int n)
{
	FairqSqlArg arg = fairq_sql_text(NULL);
	char	   *value;

	arg.isnull = PG_ARGISNULL(n);
	if (arg.isnull)
		return arg;
	value = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (strcmp(value, "tasks") != 0 && strcmp(value, "cost") != 0 &&
		strcmp(value, "time") != 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("fair_by must be tasks, cost or time"),
				errdetail("The value is \"%s\".", value));
	return fairq_sql_text(PG_GETARG_TEXT_PP(n));
}

/* Shares of priorities, if they are given; none, where it is allowed. */
static FairqSqlArg
arg_shares(FunctionCallInfo fcinfo, int n, int least)
{
	FairqSqlArg arg = {INT4ARRAYOID, (Datum) 0, true};
	Datum	   *values;
	int			nvalues;

	if (PG_ARGISNULL(n))
		return arg;
	nvalues = fairq_arg_array(fcinfo, n, "shares", INT4OID, &values, NULL);
	(void) fairq_check_int("the number of shares", nvalues, least,
						   FAIRQ_PRIORITIES);
	for (int i = 0; i < nvalues; i++)
		(void) fairq_check_int("each of shares", DatumGetInt32(values[i]), 1,
							   FAIRQ_MAX_SHARE);
	arg.value = PG_GETARG_DATUM(n);
	arg.isnull = false;
	return arg;
}

/* The span of time of rates, if it is given. */
static FairqSqlArg
arg_per(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		return fairq_sql_interval(NULL);
	fairq_check_per(PG_GETARG_INTERVAL_P(n));
	return fairq_sql_interval(PG_GETARG_INTERVAL_P(n));
}

/* The longest run of a task, of at least so many microseconds; 0: any. */
static FairqSqlArg
arg_max_run(FunctionCallInfo fcinfo, int n, int64 least)
{
	if (PG_ARGISNULL(n))
		return fairq_sql_interval(NULL);
	fairq_check_max_run(PG_GETARG_INTERVAL_P(n), least);
	return fairq_sql_interval(PG_GETARG_INTERVAL_P(n));
}

/* Can a queue with that concurrency, 0: any, be in order? */
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

/* Can that queue, with that concurrency, if it is given? */
static void
check_in_order_of(FairqQueue *queue, const FairqSqlArg *concurrency)
{
	int32		limit = queue->groups.others.setting.limit;
	FairqSqlArg id = fairq_sql_int4(queue->id);
	int64		most = 0;

	if (!concurrency->isnull)
		limit = DatumGetInt32(concurrency->value);
	check_in_order(limit == FAIRQ_NO_LIMIT ? 0 : limit);
	fairq_sql("SELECT max(concurrency)::bigint FROM fairq.group_setting"
			  " WHERE queue_id = $1",
			  &id, 1, &most);
	if (most > 1)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("in_order needs a concurrency of 1"),
				errdetail("That of some group is " INT64_FORMAT ".", most),
				errhint("Take it away with fairq.set_group(concurrency => 0)."));
}

/* Make the hints of a new queue, which are given back if we abort. */
static void
make_queue_hints(int32 queue_id)
{
	FairqHints *hints = fairq_shmem_queue(queue_id);

	PG_TRY();
	{
		/* no task of it has started so far */
		hints->entry.born = FAIRQ_LONG_AGO;
		fairq_starts_init(&hints->running.starts, FAIRQ_LONG_AGO);
		fairq_pending_created(hints);
		fairq_queue_tally_empty(&hints->tally);
		fairq_count_no_tasks(&hints->tally);
	}
	PG_CATCH();
	{
		fairq_shmem_release(hints);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* Insert the row of a new queue.  Returns its id; 0: there is one of that name. */
static int64
insert_queue(const char *name, const FairqSqlArg *args, int nargs)
{
	int64		id = 0;

	if (!fairq_queue_create_begin(name))
		return 0;
	fairq_sql("INSERT INTO fairq.queue"
			  " (name, block_length, lease, concurrency, max_running,"
			  " max_attempts, backoff, retain, notify, fair_by, rate, per,"
			  " burst, max_rate, shares, in_order, retain_failed, max_run)"
			  " VALUES ($1, $2, $3, $4, $5, $6, $7, " RETAIN("$8") ", $9,"
			  " coalesce($10, 'tasks'), $11, coalesce($12, '1 minute'),"
			  " coalesce($13, 1), $14, $15, $16, " RETAIN("$17") ", $18)"
			  " ON CONFLICT DO NOTHING RETURNING queue_id::bigint",
			  args, nargs, &id);
	fairq_queue_create_end(name);
	return id;
}

Datum
fairq_create_queue(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	Interval	lease = {.time = 5 * SECS_PER_MINUTE * USECS_PER_SEC};
	Interval	backoff = {.time = USECS_PER_SEC};
	FairqSqlArg args[] = {
		fairq_sql_text(name),
		fairq_sql_int8(arg_block_length(fcinfo, 8, 1024 * 1024)),
		fairq_sql_interval(&lease),
		arg_limit(fcinfo, 1, "concurrency", 1),
		arg_limit(fcinfo, 2, "max_running", 1),
		fairq_sql_int4(FAIRQ_ARG_INT(4, "max_attempts", 20, 1, PG_INT32_MAX)),
		arg_delay(fcinfo, 5, "backoff"),
		arg_delay(fcinfo, 6, "retain"),
		fairq_sql_bool(FAIRQ_ARG_BOOL(7)),
		arg_fair_by(fcinfo, 9),
		arg_limit(fcinfo, 10, "rate", 1),
		arg_per(fcinfo, 11),
		arg_limit(fcinfo, 12, "burst", 1),
		arg_limit(fcinfo, 13, "max_rate", 1),
		arg_shares(fcinfo, 14, 1),
		fairq_sql_bool(FAIRQ_ARG_BOOL(15)),
		arg_delay(fcinfo, 16, "retain_failed"),
		arg_max_run(fcinfo, 17, 1)
	};
	int64		id;

	(void) fairq_check_text("queue", name, 1, FAIRQ_MAX_QUEUE_NAME);
	if (!PG_ARGISNULL(3))
		lease = *PG_GETARG_INTERVAL_P(3);
	fairq_check_lease(&lease);
	if (args[6].isnull)
		args[6] = fairq_sql_interval(&backoff);
	if (DatumGetBool(args[15].value))
		check_in_order(args[3].isnull ? 0 : DatumGetInt32(args[3].value));
	fairq_writes("fairq.create_queue()");
	id = insert_queue(text_to_cstring(name), args, lengthof(args));
	if (id != 0)
	{
		make_queue_hints((int32) id);
		fairq_grant_creator((int32) id);
	}
	else if (FAIRQ_ARG_BOOL(PG_NARGS() - 1))
		ereport(NOTICE,
				errcode(ERRCODE_FAIRQ_QUEUE_EXISTS),
				errmsg("queue \"%s\" already exists, skipping", text_to_cstring(name)));
	else
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_QUEUE_EXISTS),
				errmsg("queue \"%s\" already exists", text_to_cstring(name)));
	PG_RETURN_VOID();
}

/* Give every task the address that it has with another block length. */
static void
readdress(FairqQueue *queue, int64 block_length)
{
	FairqSqlArg args[] = {
		fairq_sql_int4(queue->id),
		fairq_sql_int8(queue->block_length),
		fairq_sql_int8(block_length)
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
	/* for what this transaction does from here on; see fairq_task_changed */
	fairq_reset_hints_now();
}

Datum
fairq_alter_queue(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	bool		readdressing = !PG_ARGISNULL(8);
	FairqQueue *queue;
	int64		block_length;
	FairqSqlArg args[18];

	args[3] = arg_limit(fcinfo, 1, "concurrency", 0);
	args[4] = arg_limit(fcinfo, 2, "max_running", 0);
	args[5] = arg_limit(fcinfo, 4, "max_attempts", 1);
	args[6] = arg_delay(fcinfo, 5, "backoff");
	args[7] = arg_delay(fcinfo, 6, "retain");
	args[8] = fairq_sql_bool(PG_ARGISNULL(7) ? false : PG_GETARG_BOOL(7));
	args[8].isnull = PG_ARGISNULL(7);
	args[9] = arg_fair_by(fcinfo, 9);
	args[10] = arg_limit(fcinfo, 10, "rate", 0);
	args[11] = arg_per(fcinfo, 11);
	args[12] = arg_limit(fcinfo, 12, "burst", 1);
	args[13] = arg_limit(fcinfo, 13, "max_rate", 0);
	args[14] = arg_shares(fcinfo, 14, 0);
	args[15] = fairq_sql_bool(PG_ARGISNULL(15) ? false : PG_GETARG_BOOL(15));
	args[15].isnull = PG_ARGISNULL(15);
	args[16] = arg_delay(fcinfo, 16, "retain_failed");
	args[17] = arg_max_run(fcinfo, 17, 0);
	if (!PG_ARGISNULL(3))
		fairq_check_lease(PG_GETARG_INTERVAL_P(3));
	(void) arg_block_length(fcinfo, 8, 1);
	fairq_writes("fairq.alter_queue()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE,
							readdressing ? AccessExclusiveLock :
							ShareUpdateExclusiveLock);
	if (args[15].isnull ? queue->retries.in_order : DatumGetBool(args[15].value))
		check_in_order_of(queue, &args[3]);
	block_length = arg_block_length(fcinfo, 8, queue->block_length);
	if (block_length != queue->block_length)
		readdress(queue, block_length);
	args[0] = fairq_sql_int4(queue->id);
	args[1] = fairq_sql_int8(block_length);
	args[2] = fairq_sql_interval(PG_ARGISNULL(3) ? NULL : PG_GETARG_INTERVAL_P(3));
	fairq_sql("UPDATE fairq.queue SET block_length = $2,"
			  " lease = coalesce($3, lease),"
			  " concurrency = nullif(coalesce($4, concurrency), 0),"
			  " max_running = nullif(coalesce($5, max_running), 0),"
			  " max_attempts = coalesce($6, max_attempts),"
			  " backoff = coalesce($7, backoff),"
			  " retain = " RETAIN("coalesce($8, retain)") ","
			  " notify = coalesce($9, notify),"
			  " fair_by = coalesce($10, fair_by),"
			  " rate = nullif(coalesce($11, rate), 0),"
			  " per = coalesce($12, per), burst = coalesce($13, burst),"
			  " max_rate = nullif(coalesce($14, max_rate), 0),"
			  " shares = nullif(coalesce($15, shares), '{}'),"
			  " in_order = coalesce($16, in_order),"
			  " retain_failed = " RETAIN("coalesce($17, retain_failed)") ","
			  " max_run = " RETAIN("coalesce($18, max_run)")
			  " WHERE queue_id = $1",
			  args, lengthof(args), NULL);
	fairq_notify(queue);
	PG_RETURN_VOID();
}

/* What is to differ for a group from the queue's settings; NULL: keep. */
typedef struct Difference
{
	FairqSqlArg concurrency;	/* 0: none */
	FairqSqlArg weight;			/* 0: none */
	FairqSqlArg paused;
	FairqSqlArg rate;			/* 0: none */
	FairqSqlArg held_until;		/* -infinity: none */
} Difference;

static const Difference keep = {
	{INT4OID, 0, true}, {INT4OID, 0, true}, {BOOLOID, 0, true},
	{INT4OID, 0, true}, {TIMESTAMPTZOID, 0, true}
};

/*
 * Write what differs for a group from the queue's settings.  A row that says
 * nothing goes away.
 */
static void
set_group(FairqQueue *queue, int32 group_no, const Difference *change)
{
	FairqSqlArg args[] = {
		fairq_sql_int4(queue->id),
		fairq_sql_int4(group_no),
		change->concurrency,
		change->weight,
		change->paused,
		change->rate,
		change->held_until
	};

	fairq_sql("INSERT INTO fairq.group_setting AS s"
			  " (queue_id, group_no, concurrency, weight, paused, rate, held_until)"
			  " VALUES ($1, $2, nullif($3, 0), coalesce(nullif($4, 0), 1),"
			  " coalesce($5, false), nullif($6, 0), nullif($7, '-infinity'))"
			  " ON CONFLICT (queue_id, group_no) DO UPDATE SET"
			  " concurrency = nullif(coalesce($3, s.concurrency), 0),"
			  " weight = coalesce(nullif(coalesce($4, s.weight), 0), 1),"
			  " paused = coalesce($5, s.paused),"
			  " rate = nullif(coalesce($6, s.rate), 0),"
			  " held_until = nullif(coalesce($7, s.held_until), '-infinity')",
			  args, lengthof(args), NULL);
	fairq_sql("DELETE FROM fairq.group_setting"
			  " WHERE queue_id = $1 AND group_no = $2"
			  " AND concurrency IS NULL AND weight = 1 AND NOT paused"
			  " AND rate IS NULL AND held_until IS NULL",
			  args, 2, NULL);
	fairq_notify(queue);
}

/*
 * The number of a group that is to get settings.  One may get them before it has a
 * task; that its key was meant is for the caller to judge.
 */
static int32
group_to_set(FairqQueue *queue, text *group_key)
{
	if (fairq_group_no(queue, group_key, false) < 0)
		ereport(NOTICE,
				errcode(ERRCODE_FAIRQ_NO_GROUP),
				errmsg("group \"%s\" of queue \"%s\" does not exist, creating it",
					   text_to_cstring(group_key), queue->name));
	return fairq_group_no(queue, group_key, true);
}

/* Pause or resume a whole queue, or one group. */
static void
set_paused(FunctionCallInfo fcinfo, const char *function, bool paused)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	FairqQueue *queue;

	fairq_writes(function);
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, ShareUpdateExclusiveLock);
	if (PG_ARGISNULL(1))
	{
		FairqSqlArg args[] = {
			fairq_sql_int4(queue->id),
			fairq_sql_bool(paused)
		};

		fairq_sql("UPDATE fairq.queue SET paused = $2 WHERE queue_id = $1",
				  args, lengthof(args), NULL);
		fairq_notify(queue);
	}
	else
	{
		text	   *group_key = PG_GETARG_TEXT_PP(1);
		Difference	change = keep;

		change.paused = fairq_sql_bool(paused);
		set_group(queue, paused ? group_to_set(queue, group_key) :
				  fairq_existing_group(queue, group_key), &change);
	}
}

Datum
fairq_pause(PG_FUNCTION_ARGS)
{
	set_paused(fcinfo, "fairq.pause()", true);
	PG_RETURN_VOID();
}

Datum
fairq_resume(PG_FUNCTION_ARGS)
{
	set_paused(fcinfo, "fairq.resume()", false);
	PG_RETURN_VOID();
}

/*
 * Let nothing of a queue, or of one group, start before a time.  One that is past is
 * as none.
 */
Datum
fairq_hold(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	TimestampTz until = PG_ARGISNULL(2) ? DT_NOBEGIN :
		PG_GETARG_TIMESTAMPTZ(2);
	FairqQueue *queue;
	bool		holds = until > GetCurrentTimestamp();

	if (until == DT_NOEND)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("until must not be infinity"),
				errhint("Use fairq.pause()."));
	fairq_writes("fairq.hold()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, ShareUpdateExclusiveLock);
	if (PG_ARGISNULL(1))
	{
		FairqSqlArg args[] = {
			fairq_sql_int4(queue->id),
			{TIMESTAMPTZOID, TimestampTzGetDatum(until), !holds}
		};

		fairq_sql("UPDATE fairq.queue SET held_until = $2 WHERE queue_id = $1",
				  args, lengthof(args), NULL);
		fairq_notify(queue);
	}
	else
	{
		text	   *group_key = PG_GETARG_TEXT_PP(1);
		Difference	change = keep;

		change.held_until.value = TimestampTzGetDatum(holds ? until : DT_NOBEGIN);
		change.held_until.isnull = false;
		set_group(queue, holds ? group_to_set(queue, group_key) :
				  fairq_existing_group(queue, group_key), &change);
	}
	PG_RETURN_VOID();
}

Datum
fairq_set_group(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = fairq_arg_text(fcinfo, 1, "group_key");
	Difference	change = keep;
	FairqQueue *queue;
	int32		group_no;

	change.concurrency = arg_limit(fcinfo, 2, "concurrency", 0);
	change.weight = fairq_sql_int4((int32) FAIRQ_ARG_INT(3, "weight", 0, 0,
														 FAIRQ_MAX_WEIGHT));
	change.weight.isnull = PG_ARGISNULL(3);
	change.rate = arg_limit(fcinfo, 4, "rate", 0);
	fairq_writes("fairq.set_group()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, ShareUpdateExclusiveLock);
	if (queue->retries.in_order && !change.concurrency.isnull &&
		DatumGetInt32(change.concurrency.value) > 1)
		check_in_order(DatumGetInt32(change.concurrency.value));
	group_no = group_to_set(queue, group_key);
	if (!change.concurrency.isnull || !change.weight.isnull ||
		!change.rate.isnull)
		set_group(queue, group_no, &change);
	PG_RETURN_VOID();
}

static int64
delete_in_lane(FairqQueue *queue, int priority, int32 group_no, bool force,
			   FairqTable *tasks)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue->id, priority))},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)}
	};
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP, keys,
										group_no < 0 ? 1 : 2, false);
	FairqRowState state;
	int64		deleted = 0;

	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(fairq_scan_slot(scan), &task);
		if (task.running && !force)
			continue;
		if (force)
			deleted += fairq_task_delete(tasks, &task, true) == FAIRQ_CLAIMED;
		else if (fairq_task_lock(tasks, &task) == FAIRQ_CLAIMED &&
				 !task.running)
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
 * Delete the tasks of a queue, or of one group (-1: all).  Running ones only
 * with force, which is for a caller that has the queue locked for itself.
 */
static int64
delete_tasks(FairqQueue *queue, int32 group_no, bool force)
{
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task,
										 RowExclusiveLock);
	int64		deleted = 0;

	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		deleted += delete_in_lane(queue, priority, group_no, force, tasks);
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
	int32		group_no = -1;

	fairq_writes("fairq.purge()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	if (!PG_ARGISNULL(1))
		group_no = fairq_existing_group(queue, PG_GETARG_TEXT_PP(1));
	PG_RETURN_INT64(delete_tasks(queue, group_no, false));
}

Datum
fairq_drop_queue(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	bool		force = FAIRQ_ARG_BOOL(1);
	FairqQueue *queue;
	FairqSqlArg args[1];

	fairq_writes("fairq.drop_queue()");
	queue = fairq_queue_use_if_exists(name, FAIRQ_PRIV_MANAGE,
									  AccessExclusiveLock);
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
	/* first, so that settings of its groups need not be published any more */
	fairq_pending_dropped(queue->hints);
	fairq_pending_removed(queue->hints);
	delete_tasks(queue, -1, true);
	fairq_sql("DELETE FROM fairq.dedup WHERE queue_id = $1", args, 1, NULL);
	fairq_sql("DELETE FROM fairq.archive WHERE queue_id = $1", args, 1, NULL);
	fairq_sql("DELETE FROM fairq.group_setting WHERE queue_id = $1", args, 1,
			  NULL);
	fairq_sql("DELETE FROM fairq.group_number WHERE queue_id = $1", args, 1,
			  NULL);
	fairq_sql("DELETE FROM fairq.queue_privilege WHERE queue_id = $1", args, 1,
			  NULL);
	fairq_sql("DELETE FROM fairq.queue WHERE queue_id = $1", args, 1, NULL);
	PG_RETURN_BOOL(true);
}

Datum
fairq_reset_hints(PG_FUNCTION_ARGS)
{
	fairq_reset_hints_now();
	PG_RETURN_VOID();
}
