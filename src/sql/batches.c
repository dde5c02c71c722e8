/*
 * batches.c
 *		fairq.create_batch, fairq.close_batch, fairq.cancel_batch.
 *
 * create_batch adds the task that waits for the batch, blocked (task/batch.c).
 * The first check of the batch is due when it is closed.  If all of its tasks
 * have to succeed, checks begin at once, since one of them may fail earlier.
 *
 * Locking: AccessShareLock on the queues, RowExclusiveLock on the tables, and
 * the rows of tasks that are changed, to the end of the transaction.  Tasks
 * that other transactions are changing are not cancelled.
 */
#include "postgres.h"

#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "add.h"
#include "args.h"
#include "attempt.h"
#include "batch.h"
#include "errors.h"
#include "ids.h"
#include "outcome.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_create_batch);
PG_FUNCTION_INFO_V1(fairq_close_batch);
PG_FUNCTION_INFO_V1(fairq_cancel_batch);

/* A JSON object, to which the numbers of the batch can be added; 0: none. */
static Datum
arg_headers(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		return (Datum) 0;
	if (!JB_ROOT_IS_OBJECT(PG_GETARG_JSONB_P(n)))
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("headers of a batch's task must be a JSON object"));
	return PointerGetDatum(PG_GETARG_JSONB_P(n));
}

/*
 * fairq.create_batch(queue, group_key, payload, priority, on_success,
 * max_attempts, headers, batch)
 */
Datum
fairq_create_batch(PG_FUNCTION_ARGS)
{
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	FairqNewTask new = {
		.put_back_at = DT_NOBEGIN,
		.expires_at = DT_NOEND,
		.blocked = true,
		.group_key = fairq_arg_text(fcinfo, 1, "group_key"),
		.payload = PG_ARGISNULL(2) ?
		DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")) :
		PointerGetDatum(PG_GETARG_JSONB_P(2)),
		.priority = FAIRQ_ARG_INT(3, "priority", 0, 0, FAIRQ_PRIORITIES - 1),
		.max_attempts = FAIRQ_ARG_INT(5, "max_attempts", 0,
									  PG_ARGISNULL(5) ? 0 : 1, PG_INT32_MAX),
		.headers = arg_headers(fcinfo, 6)
	};
	FairqBatch	batch = {.on_success = FAIRQ_ARG_BOOL(4)};
	FairqEnqueue e;

	fairq_writes("fairq.create_batch()");
	fairq_add_begin(&e, queue_name);
	if (!PG_ARGISNULL(7))
		fairq_add_to_batch(&e, PG_GETARG_INT64(7));
	new.enqueued_at = GetCurrentTimestamp();
	new.run_at = batch.on_success ? new.enqueued_at + USECS_PER_SEC : DT_NOEND;
	fairq_new_ids(&new.id, 1);
	fairq_add_task(&e, &new);
	batch.id = new.id;
	batch.queue_id = e.queue->id;
	fairq_batch_create(e.tasks, &batch, new.enqueued_at);
	fairq_add_end(&e, true);
	PG_RETURN_INT64(new.id);
}

/*
 * Close a batch, if the caller has one of these privileges on the queue of its
 * task.  Returns false if it is closed, is finished or does not exist.
 */
static bool
close_batch(FairqAttempt *a, int64 id, int any_privilege)
{
	FairqBatch	batch;

	if (!fairq_find_task(a, id, any_privilege) || !a->task.blocked ||
		!fairq_batch_read(a->tasks, id, &batch) || batch.closed)
		return false;
	fairq_batch_end(id, false);
	fairq_look_soon(a->queue, a->tasks, &a->task);
	fairq_notify(a->queue);
	fairq_written();
	return true;
}

/* fairq.close_batch(id) */
Datum
fairq_close_batch(PG_FUNCTION_ARGS)
{
	FairqAttempt a = {0};
	bool		closed;

	fairq_arg_needed(fcinfo, 0, "id");
	fairq_writes("fairq.close_batch()");
	a.tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	closed = close_batch(&a, PG_GETARG_INT64(0), FAIRQ_PRIV_ENQUEUE);
	fairq_table_close(a.tasks);
	PG_RETURN_BOOL(closed);
}

/* Cancel a task that was found, unless it is running now. */
static bool
cancel_waiting(FairqAttempt *a, int64 id)
{
	if (!fairq_find_task(a, id, FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK) ||
		a->task.running)
		return false;
	fairq_cancel_task(a);
	return true;
}

/*
 * Cancel the tasks of a batch that a scan finds.  The end of one task can move
 * other tasks, which wait for it, to places that the scan has passed.
 */
static int64
cancel_found(FairqAttempt *a, int64 batch, MemoryContext each)
{
	FairqScan  *scan = fairq_scan_begin(a->tasks, FAIRQ_TASK_BY_BATCH,
										fairq_range(Int64GetDatum(batch)));
	int64		cancelled = 0;
	FairqTask	task;
	FairqRowState state;

	while ((state = fairq_task_next(scan, &task, false)) != FAIRQ_ROW_END)
	{
		MemoryContext old = MemoryContextSwitchTo(each);

		if (state == FAIRQ_ROW_LIVE && !task.running)
			cancelled += cancel_waiting(a, task.id);
		MemoryContextSwitchTo(old);
		MemoryContextReset(each);
	}
	fairq_scan_end(scan);
	return cancelled;
}

/* fairq.cancel_batch(id) */
Datum
fairq_cancel_batch(PG_FUNCTION_ARGS)
{
	FairqAttempt a = {0};
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq task",
											   ALLOCSET_DEFAULT_SIZES);
	int64		cancelled = 0;
	int64		found;
	int64		batch;

	fairq_arg_needed(fcinfo, 0, "id");
	batch = PG_GETARG_INT64(0);
	fairq_writes("fairq.cancel_batch()");
	a.tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	(void) close_batch(&a, batch, FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK);
	while ((found = cancel_found(&a, batch, each)) > 0)
		cancelled += found;
	fairq_table_close(a.tasks);
	MemoryContextDelete(each);
	fairq_written();
	PG_RETURN_INT64(cancelled);
}
