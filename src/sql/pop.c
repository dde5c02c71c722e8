/*
 * pop.c
 *		fairq.pop, fairq.take, and fairq.peek, which shows the tasks that they
 *		would return.
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
 * Locking: AccessShareLock on the queue, RowExclusiveLock on fairq.task and
 * the rows that are returned, to the end of the transaction.  A peek takes
 * AccessShareLock on the queue and on fairq.task.  The lock on the queue
 * blocks drop_queue(), and the lock on fairq.task blocks DROP EXTENSION.
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "args.h"
#include "dedup.h"
#include "group.h"
#include "outcome.h"
#include "serve.h"
#include "shadow.h"
#include "store.h"
#include "taken.h"
#include "transaction.h"
#include "wait.h"

PG_FUNCTION_INFO_V1(fairq_pop);
PG_FUNCTION_INFO_V1(fairq_pop_queues);
PG_FUNCTION_INFO_V1(fairq_take);
PG_FUNCTION_INFO_V1(fairq_peek);

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
		 * the commit completes the task, unless its worker calls fail or
		 * release for it
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
 * Serve tasks of claims->queue; if only_alone is true, serve only a task that
 * is served alone.  Returns the number of tasks that the caller may get from
 * other queues.
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

/*
 * Serve one queue, for fairq.take() if remove is true, otherwise for
 * fairq.pop().
 */
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
	 * first serve a task that an earlier call has left because the task is
	 * served alone
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
