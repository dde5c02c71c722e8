/*
 * pop.c
 *		fairq.pop, fairq.take, fairq.peek, which shows the tasks that they
 *		would return, and fairq.wait, which sleeps until a pop can return one.
 *
 * lane_turns.c chooses the next group, turn.c chooses one of its tasks, and
 * serve.c takes and serves the turns.  This file gives a chosen task its lease
 * (pop), or removes it (take), and makes it a row of the result.  A call
 * serves several queues one after the other, like separate calls, until it has
 * enough tasks.
 *
 * A peek is served like a pop, but on a copy of the queue's hints
 * (fairq_foresee()).  Its rows have no data of the producer except the group's
 * key.
 *
 * A wait alternates between looks for tasks, which search like a pop
 * (serve.c), and sleep until it is woken (wake.c).  Each look is a separate
 * transaction, so the procedure holds no snapshot and no lock while it sleeps.
 * Therefore vacuum can proceed, and the queue can be dropped; the next look
 * detects the drop.
 *
 * Two events do not wake a sleeper.  One is that a backend that has not used
 * fairq drops the extension.  The other is that SQL changes rows, which
 * invalidates the hints of all queues at once.  So once a second a sleeper
 * reads a counter and PostgreSQL's invalidation messages.  These checks need
 * no snapshot and no lock.  If a backend that has worked with queues drops the
 * extension, sleepers detect this at once (fairq.c).
 *
 * A row that is only locked does not justify a pop, which would skip it.  An
 * unlock of a row publishes nothing.  A waiter that finds only such rows looks
 * again at increasing intervals.
 *
 * Tasks that a pop would end and not return (claim.c) do not wake a client.  A
 * wait that finds only such tasks ends them itself, and looks again.
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on fairq.task and
 * the rows that are returned, to the end of the transaction.  A peek takes
 * AccessShareLock on the queue and on fairq.task.  The lock on the queue
 * blocks drop_queue(), and the lock on fairq.task blocks DROP EXTENSION.  Each
 * look of a wait also takes both locks; a look that ends tasks takes
 * RowExclusiveLock on fairq.task, and locks the tasks' rows.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "dedup.h"
#include "group.h"
#include "load.h"
#include "outcome.h"
#include "serve.h"
#include "shadow.h"
#include "shmem.h"
#include "store.h"
#include "taken.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_pop);
PG_FUNCTION_INFO_V1(fairq_pop_queues);
PG_FUNCTION_INFO_V1(fairq_take);
PG_FUNCTION_INFO_V1(fairq_peek);
PG_FUNCTION_INFO_V1(fairq_wait);
PG_FUNCTION_INFO_V1(fairq_wait_queues);

/* default number of tasks that peek shows */
#define PEEKED_TASKS 10


typedef struct Claims
{
	FairqQueue *queue;
	FairqTable *tasks;
	Datum		queue_name;
	ReturnSetInfo *rsinfo;
	MemoryContext each;
	bool		remove;
	bool		any;			/* true: a task was served */
	Datum		worker;			/* 0: NULL */
} Claims;

/*
 * Add a copy of a column, which may be stored out of line and whose row may be
 * gone later.  For a NULL column, the usual case, it only reads the row's null
 * bitmap.
 */
static void
put_detoasted(FairqRow *row, FairqTable *tasks, AttrNumber attno)
{
	TupleTableSlot *slot = tasks->locked.slot;
	bool		isnull = !fairq_task_has(slot, attno);

	fairq_put(row, isnull ? (Datum) 0 :
			  PointerGetDatum(PG_DETOAST_DATUM(fairq_column(slot, attno))),
			  isnull);
}

/* Add the key of a group; NULL: its number was freed. */
static void
put_group_key(FairqRow *row, FairqQueue *queue, int32 group_no)
{
	Datum		key = fairq_group_key(queue, group_no);

	fairq_put(row, key, DatumGetPointer(key) == NULL);
}

/* Add a row of type fairq.claim to the result. */
static void
put_claim(Claims *claims, FairqTable *tasks, const FairqTask *task)
{
	FairqRow	row;

	row.n = 0;
	fairq_put_int8(&row, task->id, false);
	put_group_key(&row, claims->queue, task->group_no);
	put_detoasted(&row, tasks, TASK_PAYLOAD);
	fairq_put_int4(&row, task->attempt, false);
	fairq_put_int4(&row, task->priority, false);
	fairq_put_int8(&row, task->turn, false);
	fairq_put(&row, TimestampTzGetDatum(task->enqueued_at), false);
	fairq_put(&row, TimestampTzGetDatum(task->lease_until), !task->running);
	fairq_put(&row, claims->queue_name, false);
	put_detoasted(&row, tasks, TASK_HEADERS);
	fairq_put_int4(&row, fairq_attempts_left(claims->queue, task), false);
	fairq_put_int4(&row, task->lapses, false);
	put_detoasted(&row, tasks, TASK_PROGRESS);
	fairq_put_int8(&row, task->batch, task->batch == 0);
	fairq_put_row(claims->rsinfo, &row);
}

static FairqClaimResult
take_task(FairqTable *tasks, FairqTask *task, TimestampTz now)
{
	FairqClaimResult result;

	/* earlier changes by this transaction must be visible */
	fairq_written();
	result = fairq_task_delete(tasks, task, !tasks->locked.tuple_only);
	if (result == FAIRQ_CLAIMED)
	{
		task->attempt++;
		task->running = false;
		fairq_taken_note(tasks, task, now);
	}
	return result;
}

static FairqClaimResult
serve_claim(FairqTable *tasks, FairqTask *task, const FairqCall *call)
{
	Claims	   *claims = call->arg;
	MemoryContext old = MemoryContextSwitchTo(claims->each);
	FairqClaimResult result = FAIRQ_CLAIMED;

	if (claims->remove)
		result = take_task(tasks, task, call->now);
	else
		result = fairq_task_lease(tasks, task, call->now, call->lease_until,
								  claims->worker);
	if (result == FAIRQ_CLAIMED)
	{
		/* from now on another task may have its key */
		if (task->keyed && (claims->remove || task->until_started))
			fairq_dedup_free(tasks, task, true);
		put_claim(claims, tasks, task);
		/*
		 * the commit completes the task, unless its worker fails or releases
		 * it
		 */
		if (claims->remove)
			fairq_task_ended(claims->queue, tasks, task,
							 FAIRQ_STATUS_COMPLETED);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(claims->each);
	return result;
}

/* Begin the result of a call, and open fairq.task for it. */
static void
begin_claims(FunctionCallInfo fcinfo, Claims *claims, uint32 flags,
			 LOCKMODE lockmode)
{
	InitMaterializedSRF(fcinfo, flags);
	claims->rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	claims->each = AllocSetContextCreate(CurrentMemoryContext, "fairq claim",
										 ALLOCSET_DEFAULT_SIZES);
	claims->tasks = fairq_open(FAIRQ_TASK, lockmode);
	claims->tasks->claims_delete = claims->remove;
}

/*
 * Serve tasks of claims->queue; with only_alone, only a task that is served
 * alone.  Returns the number of tasks that the caller may get from other
 * queues.
 */
static int64
serve_claims(FunctionCallInfo fcinfo, Claims *claims, int64 max_tasks,
			 int64 per_group, bool only_alone)
{
	FairqCall	call = {
		.server = serve_claim,
		.arg = claims,
		/* begin_claims() may have waited for a lock */
		.now = GetCurrentTimestamp(),
		.lease_until = DT_NOEND,
		.max_tasks = max_tasks,
		.per_group = per_group,
		.has_some = claims->any,
		.only_alone = only_alone
	};
	int64		served;
	bool		stopped;

	if (!claims->remove)
		call.lease_until = fairq_arg_lease(fcinfo, 2, claims->queue, call.now,
										   call.now);
	claims->queue_name = CStringGetTextDatum(claims->queue->name);
	served = fairq_serve(claims->queue, claims->tasks, &call, &stopped);
	claims->any |= served > 0;
	return stopped ? 0 : max_tasks - served;
}

static void
end_claims(Claims *claims)
{
	fairq_table_close(claims->tasks);
	MemoryContextDelete(claims->each);
}

static int64
arg_max_tasks(FunctionCallInfo fcinfo)
{
	return FAIRQ_ARG_INT(1, "max_tasks", 1, 1, PG_INT32_MAX);
}

/* Serve one queue, for fairq.pop(), or with remove for fairq.take(). */
static Datum
pop_queue(FunctionCallInfo fcinfo, bool remove)
{
	Claims		claims = {.remove = remove};
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	int64		max_tasks = arg_max_tasks(fcinfo);
	int64		per_group = FAIRQ_ARG_INT(remove ? 2 : 3, "per_group", 0, 1,
										  PG_INT32_MAX);

	if (!remove)
		claims.worker = fairq_arg_name(fcinfo, 4, "worker");
	fairq_writes(remove ? "fairq.take()" : "fairq.pop()");
	claims.queue = fairq_queue_use(queue_name, FAIRQ_PRIV_WORK,
								   AccessShareLock);
	begin_claims(fcinfo, &claims, 0, RowExclusiveLock);
	(void) serve_claims(fcinfo, &claims, max_tasks, per_group, false);
	end_claims(&claims);
	return (Datum) 0;
}

Datum
fairq_pop(PG_FUNCTION_ARGS)
{
	return pop_queue(fcinfo, false);
}

Datum
fairq_take(PG_FUNCTION_ARGS)
{
	return pop_queue(fcinfo, true);
}

/*
 * Serve one of several queues.  Returns the number of tasks that the caller
 * may still get.
 */
static int64
serve_one_of(FunctionCallInfo fcinfo, Claims *claims, Datum name, int64 left,
			 bool only_alone)
{
	claims->queue = fairq_queue_use(DatumGetTextPP(name), FAIRQ_PRIV_WORK,
									AccessShareLock);
	if (left == 0)
	{
		fairq_wake_unserved(&claims->queue->hints->wakeup);
		return 0;
	}
	return serve_claims(fcinfo, claims, left, 0, only_alone);
}

Datum
fairq_pop_queues(PG_FUNCTION_ARGS)
{
	Claims		claims = {.remove = false};
	Datum	   *names;
	int			n = fairq_arg_queues(fcinfo, 0, &names);
	int64		left = arg_max_tasks(fcinfo);

	claims.worker = fairq_arg_name(fcinfo, 3, "worker");
	fairq_check_lease(fcinfo, 2);
	fairq_writes("fairq.pop()");
	/*
	 * check all queues first, so that an error does not depend on the tasks of
	 * earlier queues
	 */
	for (int i = 0; i < n; i++)
		(void) fairq_queue_use(DatumGetTextPP(names[i]), FAIRQ_PRIV_WORK,
							   AccessShareLock);
	begin_claims(fcinfo, &claims, 0, RowExclusiveLock);
	/*
	 * first serve a task that an earlier call has left because it is served
	 * alone
	 */
	for (int i = 1; i < n && left > 0; i++)
		if (fairq_begins_alone(fairq_queue_use(DatumGetTextPP(names[i]),
											   FAIRQ_PRIV_WORK, AccessShareLock)))
			left = serve_one_of(fcinfo, &claims, names[i], left, true);
	for (int i = 0; i < n; i++)
		left = serve_one_of(fcinfo, &claims, names[i], left, false);
	end_claims(&claims);
	return (Datum) 0;
}

/* Add the row of a task that a pop would return, and simulate its claim. */
static FairqClaimResult
put_foreseen(FairqTable *tasks, FairqTask *task, const FairqCall *call)
{
	Claims	   *claims = call->arg;
	MemoryContext old = MemoryContextSwitchTo(claims->each);
	FairqRow	row = {0};

	fairq_put_int8(&row, task->id, false);
	put_group_key(&row, claims->queue, task->group_no);
	fairq_put_int8(&row, task->turn, false);
	fairq_put(&row, TimestampTzGetDatum(task->enqueued_at), false);
	fairq_put_row(claims->rsinfo, &row);
	MemoryContextSwitchTo(old);
	MemoryContextReset(claims->each);
	fairq_shadow_claim(task->id);
	task->running = true;
	return FAIRQ_CLAIMED;
}

/* fairq.peek(queue, max_tasks) */
Datum
fairq_peek(PG_FUNCTION_ARGS)
{
	Claims		claims = {0};
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	FairqCall	call = {
		.server = put_foreseen,
		.arg = &claims,
		.lease_until = DT_NOEND,
		.max_tasks = FAIRQ_ARG_INT(1, "max_tasks", PEEKED_TASKS, 1,
								   PG_INT32_MAX)
	};

	claims.queue = fairq_queue_use(name, FAIRQ_PRIV_MONITOR, AccessShareLock);
	begin_claims(fcinfo, &claims, MAT_SRF_USE_EXPECTED_DESC, AccessShareLock);
	call.now = GetCurrentTimestamp();
	fairq_foresee(claims.queue, claims.tasks, &call);
	end_claims(&claims);
	return (Datum) 0;
}

/* --------------------------------------------------------------------- */

#define DEFAULT_TIMEOUT (INT64CONST(30) * USECS_PER_SEC)

/*
 * how long to wait before another look at due tasks that are not available now
 */
#define RETRY (INT64CONST(10) * 1000)

/*
 * the longest time until another look at rows that are only locked; the time
 * doubles with each look
 */
#define LONGEST_RETRY USECS_PER_SEC

/* how often a sleeper checks messages and the counter */
#define LISTEN_EVERY USECS_PER_SEC

/* Results of looks at queues, none of which has found a task. */
typedef struct Looks
{
	TimestampTz due[FAIRQ_MAX_WAITS];	/* time of the next look */
	int64		retry[FAIRQ_MAX_WAITS]; /* delay because of locked rows; 0:
										 * none */
	FairqDomain *domain;
	uint64		resets;			/* resets of the domain, before the last
								 * look */
	FairqLook	look;			/* the last look */
} Looks;

/*
 * Returns the next time at which a task of the queue becomes due or may start;
 * DT_NOEND: never.
 */
static TimestampTz
next_due(FairqQueue *queue)
{
	TimestampTz next = DT_NOEND;
	TimestampTz now = GetCurrentTimestamp();
	int64		start;

	if (queue->paused)
		return DT_NOEND;
	if (fairq_queue_is_held(queue, now))
		return queue->starts.held_until;
	if (fairq_load_is_due(queue))
		return DT_NOBEGIN;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		FairqLane  *lane = fairq_queue_lane(queue, p);

		next = Min(next, fairq_times_next(&lane->times));
		start = fairq_lane_next_back(lane);
		if (start != PG_INT64_MAX)
			next = Min(next, fairq_wall_time(start, now));
	}
	if (queue->starts.pace.gap != 0)
	{
		start = fairq_counter_next_start(&queue->hints->running,
										 &queue->starts.pace, 0);
		if (start != 0)
			next = Min(next, fairq_wall_time(start, now));
	}
	return next;
}

/* Lock the queues, and count this backend as waiting at them. */
static void
begin_wait(text *const *names, int n, FairqQueue **queues, Looks *looks)
{
	FairqWakeup *wakeups[FAIRQ_MAX_WAITS];

	if (!fairq_extension_exists())
		fairq_no_such_queue(names[0], false);
	for (int i = 0; i < n; i++)
	{
		queues[i] = fairq_queue_use(names[i], FAIRQ_PRIV_WORK, AccessShareLock);
		wakeups[i] = &queues[i]->hints->wakeup;
	}
	fairq_watch_transaction();
	fairq_wait_begin(wakeups, n);
	looks->domain = fairq_domain();
	looks->resets = pg_atomic_read_u64(&looks->domain->resets);
}

/* Look at one of the queues. */
static bool
look_at(FairqQueue *queue, FairqTable *tasks, int nth, Looks *looks)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz due;
	int64	   *retry = &looks->retry[nth];
	bool		ready = fairq_worth_a_pop(queue, tasks, now, &looks->look);

	due = next_due(queue);
	if (looks->look.saw_locked)
	{
		*retry = Min(Max(*retry * 2, RETRY), LONGEST_RETRY);
		elog(DEBUG2, "tasks of queue \"%s\" are locked: looking again after %d ms",
			 queue->name, (int) (*retry / 1000));
		due = due > now ? Min(Max(due, now + RETRY), now + *retry) : now + *retry;
	}
	else
	{
		/* an unknown number of other rows may also have been unlocked */
		if (ready && *retry > 0)
			fairq_wake_chain(&queue->hints->wakeup);
		*retry = 0;
		due = due > now ? due : now + RETRY;
	}
	looks->due[nth] = due;
	return ready;
}

/*
 * Look at the queues in order, in a separate transaction, until one has a
 * task.  With ends, end tasks that a pop would end and not return.  Returns
 * the index of the queue; -1: none has a task.  *again: look again at once.
 */
static int
look_once(text *const *names, int n, Looks *looks, bool ends, bool *again)
{
	FairqQueue *queues[FAIRQ_MAX_WAITS];
	FairqTable *tasks;
	int			found = -1;

	*again = false;
	looks->look.ends = ends;
	begin_wait(names, n, queues, looks);
	/* reading TOAST values of the tasks that it ends needs a snapshot */
	if (ends)
		PushActiveSnapshot(GetTransactionSnapshot());
	tasks = fairq_open(FAIRQ_TASK, ends ? RowExclusiveLock : AccessShareLock);
	for (int i = 0; i < n && found < 0; i++)
	{
		if (look_at(queues[i], tasks, i, looks))
			found = i;
		*again |= ends ? looks->look.ended : looks->look.saw_over;
	}
	fairq_table_close(tasks);
	if (ends)
		PopActiveSnapshot();
	/* commit, and continue in a transaction without a snapshot */
	SPI_commit();
	return found;
}

/*
 * Look at the queues.  If there are only tasks that a pop would end and not
 * return, end them.  The commit of that look may free slots.
 */
static int
look(text *const *names, int n, Looks *looks)
{
	bool		ends = false;
	bool		again;
	int			found;

	while ((found = look_once(names, n, looks, ends, &again)) < 0 && again)
		ends = !ends;
	return found;
}

/* Sleep until a time, or until there is a reason to look again. */
static void
sleep_until(TimestampTz until, const Looks *looks)
{
	for (;;)
	{
		bool		news = fairq_sleep(Min(until,
										   GetCurrentTimestamp() + LISTEN_EVERY));

		CHECK_FOR_INTERRUPTS();
		if (news || GetCurrentTimestamp() >= until)
			return;
		AcceptInvalidationMessages();
		/* the processing of messages may have taken a catalog snapshot */
		InvalidateCatalogSnapshot();
		if (!fairq_catalog_is_valid() ||
			pg_atomic_read_u64(&looks->domain->resets) != looks->resets)
			return;
	}
}

/*
 * Sleep until one of the queues has a task.  Returns its index; -1: none has
 * one by "end".
 */
static int
wait_until(TimestampTz end, text *const *names, int n)
{
	Looks	   *looks = palloc0(sizeof(Looks));
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq look",
											   ALLOCSET_SMALL_SIZES);
	int			found;

	for (;;)
	{
		MemoryContext old;
		TimestampTz until = end;

		MemoryContextReset(each);
		old = MemoryContextSwitchTo(each);
		found = look(names, n, looks);
		MemoryContextSwitchTo(old);
		if (found >= 0 || GetCurrentTimestamp() >= end)
			break;
		for (int i = 0; i < n; i++)
			until = Min(until, fairq_keep_time(i, looks->due[i], end));
		sleep_until(until, looks);
	}

	/* if the client is gone, another waiter must learn of the task */
	if (found >= 0 && MyProcPort != NULL && !pq_check_connection())
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("connection to client lost"));
	if (found >= 0)
		fairq_wait_found(found);
	else
		fairq_wait_end(false, looks->due);
	return found;
}

/* For both procedures: wait at these queues for the time in argument 1. */
static Datum
wait_at(FunctionCallInfo fcinfo, const Datum *names, int n)
{
	int64		timeout = PG_ARGISNULL(1) ? DEFAULT_TIMEOUT :
		fairq_check_delay("timeout", PG_GETARG_INTERVAL_P(1));
	TimestampTz end = GetCurrentTimestamp() + timeout;
	text	   *copies[FAIRQ_MAX_WAITS];
	FairqRow	row = {0};

	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				errmsg("%s cannot run inside a transaction block",
					   "fairq.wait()"),
				errhint("Call it in autocommit mode."));
	fairq_writes("fairq.wait()");

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	/* the arguments' data might be freed before the end of this call */
	for (int i = 0; i < n; i++)
		copies[i] = DatumGetTextPCopy(names[i]);
	fairq_put(&row, BoolGetDatum(wait_until(end, copies, n) >= 0), false);
	SPI_finish();
	return fairq_row_result(fcinfo, &row);
}

Datum
fairq_wait(PG_FUNCTION_ARGS)
{
	Datum		name = PointerGetDatum(fairq_arg_text(fcinfo, 0, "queue"));

	PG_RETURN_DATUM(wait_at(fcinfo, &name, 1));
}

Datum
fairq_wait_queues(PG_FUNCTION_ARGS)
{
	Datum	   *names;
	int			n = fairq_arg_queues(fcinfo, 0, &names);

	PG_RETURN_DATUM(wait_at(fcinfo, names, n));
}
