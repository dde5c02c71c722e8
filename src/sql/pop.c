/*
 * pop.c
 *		fairq.pop, fairq.take; and fairq.peek, which shows the tasks that they
 *		would return.
 *
 * lane_take.c decides which group is next, and turn.c which of its tasks;
 * serve.c takes and serves the turns.  This file gives a chosen task its lease
 * (pop), or removes it (take), and makes it a row of the result.  A call
 * serves several queues one after the other, like separate calls, until it has
 * enough tasks.
 *
 * A peek is served like a pop, but on a copy of the queue's hints
 * (fairq_foresee()).  The group's key is the only producer's data in its rows.
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on fairq.task and
 * the rows that are returned, to the end of the transaction.  A peek takes
 * AccessShareLock on both: the first blocks drop_queue(), the second DROP
 * EXTENSION.
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "dedup.h"
#include "group.h"
#include "outcome.h"
#include "serve.h"
#include "shadow.h"
#include "taken.h"
#include "transaction.h"

#define CLAIM_NATTS 14
#define MAX_WORKER 1024

/* default number of tasks that peek shows */
#define PEEKED_TASKS 10

PG_FUNCTION_INFO_V1(fairq_pop);
PG_FUNCTION_INFO_V1(fairq_pop_queues);
PG_FUNCTION_INFO_V1(fairq_take);
PG_FUNCTION_INFO_V1(fairq_peek);

typedef struct Claims
{
	FairqQueue *queue;
	Datum		queue_name;
	ReturnSetInfo *rsinfo;
	MemoryContext each;
	bool		remove;
	bool		any;			/* was served */
	TimestampTz now;
	TimestampTz lease_until;
	Datum		worker;
	bool		worker_isnull;
} Claims;

/*
 * Returns a copy of a column, which may be stored out of line and whose row
 * may be gone later.  For a NULL column, the usual case, it only reads the
 * row's null bitmap.
 */
static Datum
copy_detoasted(FairqTable *tasks, AttrNumber attno, bool *isnull)
{
	TupleTableSlot *slot = tasks->locked.slot;

	*isnull = !fairq_task_has(slot, attno);
	return *isnull ? (Datum) 0 :
		PointerGetDatum(PG_DETOAST_DATUM(fairq_column(slot, attno)));
}

/* Add a row of type fairq.claim to the result. */
static void
put_claim(Claims *claims, FairqTable *tasks, const FairqTask *task)
{
	Datum		values[CLAIM_NATTS];
	bool		nulls[CLAIM_NATTS] = {0};

	values[0] = Int64GetDatum(task->id);
	values[1] = fairq_group_key(claims->queue, task->group_no);
	nulls[1] = DatumGetPointer(values[1]) == NULL;
	values[2] = copy_detoasted(tasks, TASK_PAYLOAD, &nulls[2]);
	values[3] = Int32GetDatum(task->attempt);
	values[4] = Int32GetDatum((int32) task->priority);
	values[5] = Int64GetDatum(task->turn);
	values[6] = TimestampTzGetDatum(task->enqueued_at);
	values[7] = TimestampTzGetDatum(task->lease_until);
	nulls[7] = !task->running;
	values[8] = claims->queue_name;
	values[9] = copy_detoasted(tasks, TASK_HEADERS, &nulls[9]);
	values[10] = Int32GetDatum(fairq_attempts_left(claims->queue, task));
	values[11] = Int32GetDatum(task->lapses);
	values[12] = copy_detoasted(tasks, TASK_PROGRESS, &nulls[12]);
	values[13] = Int64GetDatum(task->batch);
	nulls[13] = task->batch == 0;
	tuplestore_putvalues(claims->rsinfo->setResult, claims->rsinfo->setDesc,
						 values, nulls);
}

static FairqClaimResult
take_task(const Claims *claims, FairqTable *tasks, FairqTask *task)
{
	FairqClaimResult result;

	/* earlier changes by this transaction must be visible */
	fairq_written();
	result = fairq_task_delete(tasks, task, !tasks->locked.tuple_only);
	if (result != FAIRQ_CLAIMED)
		return result;
	if (task->keyed)
		fairq_dedup_free(tasks, task, true);
	task->attempt++;
	task->running = false;
	fairq_taken_note(tasks, task, claims->now);
	return FAIRQ_CLAIMED;
}

static FairqClaimResult
serve_claim(FairqTable *tasks, FairqTask *task, void *arg)
{
	Claims	   *claims = arg;
	MemoryContext old = MemoryContextSwitchTo(claims->each);
	FairqClaimResult result = FAIRQ_CLAIMED;

	if (claims->remove)
		result = take_task(claims, tasks, task);
	else
		result = fairq_task_lease(tasks, task, claims->now, claims->lease_until,
								  claims->worker, claims->worker_isnull);
	/* from now on another task may have its key */
	if (result == FAIRQ_CLAIMED && !claims->remove && task->keyed &&
		task->until_started)
		fairq_dedup_free(tasks, task, true);
	if (result == FAIRQ_CLAIMED)
		put_claim(claims, tasks, task);
	/* the commit is its end, unless its worker fails or releases it */
	if (result == FAIRQ_CLAIMED && claims->remove)
		fairq_task_ended(claims->queue, tasks, task, FAIRQ_STATUS_COMPLETED);
	MemoryContextSwitchTo(old);
	MemoryContextReset(claims->each);
	return result;
}

/* Begin the result of a call, and open fairq.task for it. */
static FairqTable *
begin_claims(FunctionCallInfo fcinfo, Claims *claims)
{
	FairqTable *tasks;

	InitMaterializedSRF(fcinfo, 0);
	claims->rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	claims->each = AllocSetContextCreate(CurrentMemoryContext, "fairq claim",
										 ALLOCSET_DEFAULT_SIZES);
	claims->now = GetCurrentTimestamp();
	tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	tasks->claims_delete = claims->remove;
	return tasks;
}

/*
 * Serve tasks of claims->queue; with only_alone, only a task that is served
 * alone.  Returns the number of tasks that the caller gets from other queues.
 */
static int64
serve_claims(Claims *claims, FairqTable *tasks, int64 max_tasks, int64 per_group,
			 bool only_alone)
{
	FairqCall	call = {
		.server = serve_claim,
		.arg = claims,
		.now = claims->now,
		.lease_until = claims->remove ? DT_NOEND : claims->lease_until,
		.max_tasks = max_tasks,
		.per_group = per_group,
		.has_some = claims->any,
		.only_alone = only_alone
	};
	int64		served;
	bool		stopped;

	claims->queue_name = CStringGetTextDatum(claims->queue->name);
	served = fairq_serve(claims->queue, tasks, &call, &stopped);
	claims->any |= served > 0;
	return stopped ? 0 : max_tasks - served;
}

static void
end_claims(Claims *claims, FairqTable *tasks)
{
	fairq_table_close(tasks);
	MemoryContextDelete(claims->each);
}

static int64
arg_max_tasks(FunctionCallInfo fcinfo)
{
	return FAIRQ_ARG_INT(1, "max_tasks", 1, 1, PG_INT32_MAX);
}

static void
arg_worker(FunctionCallInfo fcinfo, int n, Claims *claims)
{
	claims->worker_isnull = PG_ARGISNULL(n);
	if (!claims->worker_isnull)
		claims->worker = PointerGetDatum(fairq_check_text("worker",
														 PG_GETARG_TEXT_PP(n),
														 0, MAX_WORKER));
}

/*
 * Serve one queue, for fairq.pop() and fairq.take().  per_group_arg is the
 * number of the argument for the most tasks of a group.
 */
static Datum
pop_queue(FunctionCallInfo fcinfo, const char *function, int per_group_arg,
			Claims *claims)
{
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	int64		max_tasks = arg_max_tasks(fcinfo);
	int64		per_group = FAIRQ_ARG_INT(per_group_arg, "per_group", 0,
										  PG_ARGISNULL(per_group_arg) ? 0 : 1,
										  PG_INT32_MAX);
	FairqTable *tasks;

	if (!claims->remove)
		arg_worker(fcinfo, 4, claims);
	fairq_writes(function);
	claims->queue = fairq_queue_use(queue_name, FAIRQ_PRIV_WORK,
									AccessShareLock);
	tasks = begin_claims(fcinfo, claims);
	if (!claims->remove)
		claims->lease_until = fairq_arg_lease(fcinfo, 2, claims->queue,
											  claims->now, claims->now);
	(void) serve_claims(claims, tasks, max_tasks, per_group, false);
	end_claims(claims, tasks);
	return (Datum) 0;
}

Datum
fairq_pop(PG_FUNCTION_ARGS)
{
	Claims		claims = {.remove = false};

	return pop_queue(fcinfo, "fairq.pop()", 3, &claims);
}

Datum
fairq_take(PG_FUNCTION_ARGS)
{
	Claims		claims = {.remove = true, .worker_isnull = true};

	return pop_queue(fcinfo, "fairq.take()", 2, &claims);
}

/*
 * Serve one of several queues.  Returns the number of tasks that the caller
 * still gets.
 */
static int64
serve_one_of(FunctionCallInfo fcinfo, Claims *claims, FairqTable *tasks,
			 Datum name, int64 left, bool only_alone)
{
	claims->queue = fairq_queue_use(DatumGetTextPP(name), FAIRQ_PRIV_WORK,
									AccessShareLock);
	if (left == 0)
	{
		fairq_wake_unserved(&claims->queue->hints->wakeup);
		return 0;
	}
	claims->lease_until = fairq_arg_lease(fcinfo, 2, claims->queue, claims->now,
										  claims->now);
	return serve_claims(claims, tasks, left, 0, only_alone);
}

Datum
fairq_pop_queues(PG_FUNCTION_ARGS)
{
	Claims		claims = {.remove = false};
	Datum	   *names;
	int			n = fairq_arg_queues(fcinfo, 0, &names);
	int64		left = arg_max_tasks(fcinfo);
	FairqTable *tasks;

	arg_worker(fcinfo, 3, &claims);
	if (!PG_ARGISNULL(2))
		(void) fairq_check_span("lease", PG_GETARG_INTERVAL_P(2), 1,
								FAIRQ_LIFETIME);
	fairq_writes("fairq.pop()");
	/* so that an error does not depend on the tasks of earlier queues */
	for (int i = 0; i < n; i++)
		(void) fairq_queue_use(DatumGetTextPP(names[i]), FAIRQ_PRIV_WORK,
							   AccessShareLock);
	tasks = begin_claims(fcinfo, &claims);
	/* first a task that an earlier call has left because it is served alone */
	for (int i = 1; i < n && left > 0; i++)
		if (fairq_begins_alone(fairq_queue_use(DatumGetTextPP(names[i]),
											   FAIRQ_PRIV_WORK, AccessShareLock)))
			left = serve_one_of(fcinfo, &claims, tasks, names[i], left, true);
	for (int i = 0; i < n; i++)
		left = serve_one_of(fcinfo, &claims, tasks, names[i], left, false);
	end_claims(&claims, tasks);
	return (Datum) 0;
}

/* Add the row of a task that a pop would return, and simulate its claim. */
static FairqClaimResult
put_foreseen(FairqTable *tasks, FairqTask *task, void *arg)
{
	Claims	   *claims = arg;
	MemoryContext old = MemoryContextSwitchTo(claims->each);
	FairqRow	row = {0};
	Datum		group_key = fairq_group_key(claims->queue, task->group_no);

	fairq_put_int8(&row, task->id, false);
	fairq_put(&row, group_key, DatumGetPointer(group_key) == NULL);
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
	FairqTable *tasks;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	claims.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	claims.queue = fairq_queue_use(name, FAIRQ_PRIV_MONITOR, AccessShareLock);
	claims.each = AllocSetContextCreate(CurrentMemoryContext, "fairq peek",
										ALLOCSET_DEFAULT_SIZES);
	tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	call.now = GetCurrentTimestamp();
	fairq_foresee(claims.queue, tasks, &call);
	fairq_table_close(tasks);
	MemoryContextDelete(claims.each);
	return (Datum) 0;
}
