/*
 * finish.c
 *		fairq.complete, fairq.complete_batch, fairq.release.
 *
 * A running task is found by its id.  These are the calls that may wait: for
 * somebody who is changing the very row.  Then they look again.
 *
 * The attempt is the fencing token.  It counts up with every lease and never
 * back, also when a task is released: a call that gives an attempt acts only
 * for the lease that has it.
 *
 * Locking: RowExclusiveLock on fairq.task, AccessShareLock on the queue, then
 * the row, all to the end of the transaction.  A batch goes through its ids in
 * order, so two batches don't deadlock.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"

#include "args.h"
#include "group.h"
#include "place.h"
#include "running.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_complete);
PG_FUNCTION_INFO_V1(fairq_complete_batch);
PG_FUNCTION_INFO_V1(fairq_release);

#define ANY_ATTEMPT (-1)

/* Does that attempt (or any) hold the task's lease? */
static bool
is_leased(const FairqTask *task, int32 attempt)
{
	return task->running &&
		(attempt == ANY_ATTEMPT || task->attempt == attempt);
}

/*
 * Complete one task.  *queue is that of the task before, or NULL: its queue is
 * locked before anything is done to the row, once for a run of tasks.
 */
static bool
complete(FairqTable *tasks, int64 id, int32 attempt, FairqQueue **queue)
{
	bool		locked = false;

	for (;;)
	{
		FairqTask	task;
		FairqLane  *lane;
		FairqDebt  *debt;

		if (!fairq_task_find(tasks, id, &task) || !is_leased(&task, attempt))
			return false;
		if (*queue == NULL || (*queue)->id != task.queue_id)
			*queue = fairq_queue_use_id(task.queue_id, AccessShareLock);
		if (*queue == NULL)
			return false;
		lane = fairq_queue_lane(*queue, task.priority);
		debt = fairq_debt(lane, task.group_no);
		fairq_finish_begin(*queue, lane, task.group_no);
		/* wait for nobody with a counter in hand */
		if (fairq_task_delete(tasks, &task, locked))
		{
			debt->counts[FAIRQ_COMPLETED]++;
			fairq_finish_end(debt);
			return true;
		}
		fairq_finish_end(NULL);
		/* somebody has the row: wait for him, have it locked, and look again */
		fairq_task_wait(tasks, &task);
		locked = true;
	}
}

/* An attempt that no lease can have is no error: it is not the present one. */
static int32
arg_attempt(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		return ANY_ATTEMPT;
	return Max(PG_GETARG_INT32(n), 0);
}

Datum
fairq_complete(PG_FUNCTION_ARGS)
{
	FairqTable *tasks;
	FairqQueue *queue = NULL;
	bool		done;

	fairq_writes("fairq.complete()");
	if (PG_ARGISNULL(0))
		PG_RETURN_BOOL(false);
	tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	done = complete(tasks, PG_GETARG_INT64(0), arg_attempt(fcinfo, 1),
					&queue);
	fairq_table_close(tasks);
	if (done)
		fairq_written();
	PG_RETURN_BOOL(done);
}

typedef struct IdAttempt
{
	int64		id;
	int32		attempt;
} IdAttempt;

static int
compare_ids(const void *a, const void *b)
{
	const IdAttempt *x = a;
	const IdAttempt *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

Datum
fairq_complete_batch(PG_FUNCTION_ARGS)
{
	Datum	   *ids;
	Datum	   *attempts = NULL;
	int			n = fairq_arg_array(fcinfo, 0, "ids", INT8OID, &ids);
	IdAttempt  *todo = palloc(sizeof(IdAttempt) * Max(n, 1));
	FairqTable *tasks;
	FairqQueue *queue = NULL;
	int64		done = 0;

	if (!PG_ARGISNULL(1))
		fairq_check_lengths("ids", n, "attempts",
							fairq_arg_array(fcinfo, 1, "attempts", INT4OID,
											&attempts));
	fairq_writes("fairq.complete_batch()");
	for (int i = 0; i < n; i++)
	{
		todo[i].id = DatumGetInt64(ids[i]);
		todo[i].attempt = attempts == NULL ? ANY_ATTEMPT :
			Max(DatumGetInt32(attempts[i]), 0);
	}
	qsort(todo, n, sizeof(IdAttempt), compare_ids);

	tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (complete(tasks, todo[i].id, todo[i].attempt, &queue))
			done++;
	}
	fairq_table_close(tasks);
	if (done > 0)
		fairq_written();
	PG_RETURN_INT64(done);
}

Datum
fairq_release(PG_FUNCTION_ARGS)
{
	FairqTable *tasks;
	FairqTask	task;
	FairqQueue *queue;
	int32		queue_id;
	bool		done = false;

	fairq_writes("fairq.release()");
	if (PG_ARGISNULL(0))
		PG_RETURN_BOOL(false);
	tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);

	/* the queue is locked before the row, as everywhere */
	queue_id = fairq_task_queue_of(tasks, PG_GETARG_INT64(0));
	if (queue_id != 0 &&
		(queue = fairq_queue_use_id(queue_id, AccessShareLock)) != NULL &&
		fairq_task_find_locked(tasks, PG_GETARG_INT64(0), &task) &&
		is_leased(&task, arg_attempt(fcinfo, 1)))
	{
		FairqLane  *lane = fairq_queue_lane(queue, task.priority);
		FairqDebt  *debt;
		int64		addr;

		/* if it has to wait, then behind all that were enqueued before */
		addr = fairq_place(queue, task.priority, task.group_no,
						   queue->limited ? fairq_task_new_id() : 0, tasks);
		debt = fairq_debt(lane, task.group_no);
		fairq_finish_begin(queue, lane, task.group_no);
		fairq_task_return(tasks, &task, addr);
		fairq_debt_written();
		fairq_finish_end(debt);
		debt->counts[FAIRQ_RELEASED]++;
		done = true;
	}
	fairq_table_close(tasks);
	if (done)
		fairq_written();
	PG_RETURN_BOOL(done);
}
