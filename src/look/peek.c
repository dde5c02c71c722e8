/*
 * peek.c
 *		fairq.peek: what a pop would return.
 *
 * A call is served as that of a pop, but on a copy of what shared memory knows
 * (fairq_foresee()).  Here each of its tasks becomes a row, in which there is
 * nothing that its producer gave but the group's key.
 *
 * Locking: AccessShareLock on the queue and on fairq.task, to the end of the
 * transaction: the first holds drop_queue() off, the second DROP EXTENSION.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "group.h"
#include "row.h"
#include "serve.h"
#include "shadow.h"

PG_FUNCTION_INFO_V1(fairq_peek);

/* tasks that are foreseen if the caller does not say how many */
#define SOME_TASKS 10

/* The result of a call. */
typedef struct Peeking
{
	FairqQueue *queue;			/* queue of the call */
	ReturnSetInfo *rsinfo;		/* rows so far */
	MemoryContext each;			/* memory context of a row */
} Peeking;

/* Put the row of a task that a pop would return, and claim it in thought. */
static FairqClaimResult
put_task(FairqTable *tasks, FairqTask *task, void *arg)
{
	Peeking    *peeking = arg;
	MemoryContext old = MemoryContextSwitchTo(peeking->each);
	FairqRow	row = {0};
	Datum		group_key = fairq_group_key(peeking->queue, task->group_no);

	fairq_put_int8(&row, task->id, false);
	fairq_put(&row, group_key, DatumGetPointer(group_key) == NULL);
	fairq_put_int8(&row, task->turn, false);
	fairq_put(&row, TimestampTzGetDatum(task->enqueued_at), false);
	fairq_put_row(peeking->rsinfo, &row);
	MemoryContextSwitchTo(old);
	MemoryContextReset(peeking->each);
	fairq_shadow_claim(task->id);
	task->running = true;
	return FAIRQ_CLAIMED;
}

/* fairq.peek(queue, max_tasks) */
Datum
fairq_peek(PG_FUNCTION_ARGS)
{
	Peeking		peeking;
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	FairqCall	call = {
		.server = put_task,
		.arg = &peeking,
		.lease_until = DT_NOEND,
		.max_tasks = FAIRQ_ARG_INT(1, "max_tasks", SOME_TASKS, 1, PG_INT32_MAX)
	};
	FairqTable *tasks;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	peeking.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	peeking.queue = fairq_queue_use(name, FAIRQ_PRIV_MONITOR,
									AccessShareLock);
	peeking.each = AllocSetContextCreate(CurrentMemoryContext, "fairq peek",
										 ALLOCSET_DEFAULT_SIZES);
	tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	call.now = GetCurrentTimestamp();
	fairq_foresee(peeking.queue, tasks, &call);
	fairq_table_close(tasks);
	MemoryContextDelete(peeking.each);
	return (Datum) 0;
}
