/*
 * finish.c
 *		fairq.complete, fairq.fail, fairq.release, fairq.extend, their batch
 *		versions, fairq.set_progress, fairq.cancel, fairq.reschedule,
 *		fairq.close_batch and fairq.cancel_batch.
 *
 * A call finds its task by the id, and outcome.c changes the task.  The call
 * may wait for a transaction that is changing the same row, and then searches
 * again.  A call that renews many leases waits for no row, because a locked
 * row must not make the other leases expire.  The attempt is the fencing
 * token.  It increases with every lease, even after a release.  A call that
 * names an attempt acts only for the lease of that attempt.  An expired lease
 * remains valid until another worker gets the task.  A task that is only
 * deleted, the usual case, is not locked first.
 *
 * A batch processes its ids in sorted order, so two batches do not deadlock.
 * Then the call returns the ids of the tasks that the worker has lost, in the
 * order of the input.
 *
 * Locking: RowExclusiveLock on fairq.task.  A call locks the queue with
 * AccessShareLock, and then the row, both to the end of the transaction.
 * If another transaction is changing a task of a batch, the call does not
 * cancel that task.
 */
#include "postgres.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "args.h"
#include "blocked.h"
#include "outcome.h"
#include "taken.h"

PG_FUNCTION_INFO_V1(fairq_complete);
PG_FUNCTION_INFO_V1(fairq_fail);
PG_FUNCTION_INFO_V1(fairq_release);
PG_FUNCTION_INFO_V1(fairq_extend);
PG_FUNCTION_INFO_V1(fairq_set_progress);
PG_FUNCTION_INFO_V1(fairq_cancel);
PG_FUNCTION_INFO_V1(fairq_reschedule);
PG_FUNCTION_INFO_V1(fairq_complete_batch);
PG_FUNCTION_INFO_V1(fairq_fail_batch);
PG_FUNCTION_INFO_V1(fairq_release_batch);
PG_FUNCTION_INFO_V1(fairq_extend_batch);
PG_FUNCTION_INFO_V1(fairq_close_batch);
PG_FUNCTION_INFO_V1(fairq_cancel_batch);

/* The present task of a call. */
typedef struct Attempt
{
	FairqTable *tasks;			/* fairq.task, open */
	FairqQueue *queue;			/* queue of the task, locked; before a task is
								 * found, that of the previous task.  NULL:
								 * none */
	FairqTask	task;
	bool		busy;			/* true: another transaction has locked the
								 * row, and the call did not wait */
} Attempt;

/* A function that finds the task of an attempt. */
typedef bool (*Finder) (Attempt *a, int64 id, int32 attempt);

/* Whether the given attempt, or any attempt, holds the task's lease. */
static bool
is_leased(const FairqTask *task, int32 attempt)
{
	return task->running &&
		(attempt == FAIRQ_ANY_ATTEMPT || task->attempt == attempt);
}

/*
 * Lock the queue, if the caller has one of these privileges on it.  With
 * nowait, the function does not wait for a transaction that drops the queue.
 * In that case a->busy is true, and the result is false.
 */
static bool
use_queue(Attempt *a, int32 queue_id, int any_privilege, bool nowait)
{
	const FairqQueue *queue;

	if (a->queue != NULL && a->queue->id == queue_id)
		return true;
	a->queue = fairq_queue_use_id(queue_id, any_privilege, !nowait);
	if (a->queue != NULL)
		return true;
	queue = nowait ? fairq_queue_by_id(queue_id, true) : NULL;
	a->busy = queue != NULL && fairq_may(queue, any_privilege);
	return false;
}

/*
 * Record the duration of an attempt that its worker ends.  If SQL has written
 * the row, the attempt may have no start time.
 */
static void
sample_run(FairqQueue *queue, const FairqTask *task)
{
	if (task->popped_at != 0 && !task->taken)
		fairq_sample(&queue->hints->histograms[FAIRQ_SPAN_RUN],
					 task->popped_at, GetCurrentTimestamp());
}

/* Notify listeners that a slot is free, if there is any limit. */
static void
notify_slots(FairqQueue *queue)
{
	if (queue->limited)
		fairq_notify(queue);
}

/*
 * Finish the task whose lease an attempt holds.  Its queue is locked before
 * the row, once for consecutive tasks of one queue.  took is the microseconds
 * of work; -1: the time since its claim.  A cancelled task ends as cancelled,
 * and a->task.cancelled is true.  Returns false if the lease is lost.
 */
static bool
complete_attempt(Attempt *a, int64 id, int32 attempt, Datum result, int64 took)
{
	FairqTask  *task = &a->task;
	bool		lock = false;
	bool		ended = false;

	while (!ended)
	{
		bool		changing;

		CHECK_FOR_INTERRUPTS();
		if (!fairq_task_find_nowait(a->tasks, id, task, &changing) ||
			!use_queue(a, task->queue_id, FAIRQ_PRIV_WORK, false) ||
			!(changing || is_leased(task, attempt)))
			return false;
		lock |= changing || a->queue->retains || task->keyed ||
			task->cancelled;
		if (lock && (!fairq_task_find_locked(a->tasks, id, task) ||
					 !is_leased(task, attempt)))
			return false;
		task->took = took;
		if (lock)
			fairq_finish(a->queue, a->tasks, task, task->cancelled ?
						 FAIRQ_STATUS_CANCELLED : FAIRQ_STATUS_COMPLETED, NULL,
						 result);
		ended = lock || fairq_complete_unlocked(a->queue, a->tasks, task);
		/* another transaction has the row, so lock it and read it again */
		lock = true;
	}
	sample_run(a->queue, task);
	notify_slots(a->queue);
	return true;
}

/*
 * Lock a task by its id, if the caller has one of these privileges on its
 * queue.  Like all other code, this function locks the queue before the row.
 */
static bool
find_task(Attempt *a, int64 id, int any_privilege)
{
	bool		changing;

	return fairq_task_find_nowait(a->tasks, id, &a->task, &changing) &&
		use_queue(a, a->task.queue_id, any_privilege, false) &&
		fairq_task_find_locked(a->tasks, id, &a->task);
}

/* Lock a task if it passes a check.  Otherwise lock no row. */
static bool
find_if(Attempt *a, int64 id, int any_privilege,
		bool (*check) (const FairqTask *task, int32 attempt), int32 attempt)
{
	bool		changing;

	CHECK_FOR_INTERRUPTS();
	return fairq_task_find_nowait(a->tasks, id, &a->task, &changing) &&
		use_queue(a, a->task.queue_id, any_privilege, false) &&
		fairq_task_find(a->tasks, id, &a->task) &&
		check(&a->task, attempt) &&
		fairq_task_find_locked(a->tasks, id, &a->task) &&
		check(&a->task, attempt);
}

/* Lock the task whose lease an attempt holds. */
static bool
find_attempt(Attempt *a, int64 id, int32 attempt)
{
	return find_if(a, id, FAIRQ_PRIV_WORK, is_leased, attempt);
}

/* Whether the task may still begin. */
static bool
is_waiting(const FairqTask *task, int32 attempt)
{
	return !task->running && !fairq_is_expired(task, GetCurrentTimestamp());
}

/*
 * Change the time of a task that is neither running nor expired.  A running
 * task is not locked, because its worker would have to wait.  If the time is
 * past, the task is ready at once; if it was ready, it keeps its turn.  For a
 * blocked task it is the time of the next check.  Returns false if there is no
 * such task.
 */
static bool
reschedule_task(Attempt *a, int64 id, TimestampTz run_at)
{
	bool		now;

	if (!find_if(a, id, FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK, is_waiting, 0))
		return false;
	now = run_at <= GetCurrentTimestamp();
	if (now && a->task.blocked)
		fairq_look_soon(a->queue, a->tasks, &a->task);
	else if (now && !fairq_is_timed(a->task.addr))
		return true;
	else
		fairq_change_task(a->queue, a->tasks, &a->task,
						  now ? DT_NOBEGIN : run_at, false, NULL);
	if (now)
		fairq_notify(a->queue);
	return true;
}

/*
 * Lock the task whose lease an attempt holds, without waiting.  If another
 * transaction has locked the queue, or the row with that attempt, a->busy is
 * true and the result is false.
 */
static bool
find_attempt_nowait(Attempt *a, int64 id, int32 attempt)
{
	bool		changing;

	a->busy = false;
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!fairq_task_find_nowait(a->tasks, id, &a->task, &changing) ||
			!is_leased(&a->task, attempt) ||
			!use_queue(a, a->task.queue_id, FAIRQ_PRIV_WORK, true))
			return false;
		a->busy = changing;
		if (changing)
			return false;
		switch (fairq_task_lock(a->tasks, &a->task,
								LockTupleNoKeyExclusive))
		{
			case FAIRQ_CLAIMED:
				return true;
			case FAIRQ_GONE:
				/* as in fairq_task_find_locked() */
				CommandCounterIncrement();
				break;
			case FAIRQ_LOCKED:
				a->busy = true;
				return false;
		}
	}
}

/*
 * Lock the task whose lease an attempt holds, or find it if this transaction
 * has taken it in that attempt.
 */
static bool
find_attempt_to_end(Attempt *a, int64 id, int32 attempt)
{
	return (fairq_taken_find(a->tasks, id, attempt, &a->task) &&
			use_queue(a, a->task.queue_id, FAIRQ_PRIV_WORK, false)) ||
		find_attempt(a, id, attempt);
}

/*
 * Make the task, whose attempt is over, run again after a delay in
 * microseconds, unless it was cancelled.
 */
static void
run_again_after(Attempt *a, int64 delay, const text *error, bool counts)
{
	if (a->task.cancelled)
		fairq_finish(a->queue, a->tasks, &a->task, FAIRQ_STATUS_CANCELLED,
					 error, (Datum) 0);
	else
		fairq_run_again(a->queue, a->tasks, &a->task,
						delay == 0 ? DT_NOBEGIN :
						GetCurrentTimestamp() + delay, error, counts);
	if (delay == 0)
		fairq_notify(a->queue);
	else
		notify_slots(a->queue);
}

/*
 * Returns the delay of the next attempt, in microseconds.  Jitter spreads the
 * retries of tasks that failed together: up to a quarter more or less, but at
 * most the queue's backoff_max.
 */
static int64
backoff_delay(const FairqQueue *queue, const FairqTask *task)
{
	int32		retries = Max(task->attempt - task->released - 1, 0);
	double		jitter = pg_prng_double(&pg_global_prng_state);
	double		most = (double) queue->retries.backoff_max;
	double		delay = (double) queue->retries.backoff *
		pow(2, Min(retries, 60));

	return (int64) Min(delay * (0.75 + 0.5 * jitter),
					   most * (0.75 + 0.25 * jitter));
}

/*
 * Fail the attempt, with the given error unless that is NULL.  The task is
 * retried after retry_in microseconds; -1: after the queue's backoff.  If no
 * attempts are left, or dead is true, the task fails permanently.
 */
static void
fail_attempt(Attempt *a, const text *error, int64 retry_in, bool dead,
			 int64 took)
{
	a->task.took = took;
	if (!a->task.cancelled &&
		(dead || fairq_attempts_left(a->queue, &a->task) == 0))
	{
		fairq_finish(a->queue, a->tasks, &a->task, FAIRQ_STATUS_FAILED, error,
					 (Datum) 0);
		notify_slots(a->queue);
	}
	else
	{
		if (!a->task.cancelled)
			fairq_pending_of(a->queue, &a->task)->stats[FAIRQ_STAT_RETRIED]++;
		run_again_after(a, retry_in >= 0 ? retry_in :
						backoff_delay(a->queue, &a->task), error, true);
	}
	sample_run(a->queue, &a->task);
}

/*
 * The task runs again after a delay in microseconds, unless it was cancelled.
 */
static void
release_attempt(Attempt *a, int64 delay)
{
	if (!a->task.cancelled)
		fairq_pending_of(a->queue, &a->task)->stats[FAIRQ_STAT_RELEASED]++;
	run_again_after(a, delay, NULL, false);
}

/*
 * Write a column of a running task (0: NULL), whose lease then ends at the
 * given time.
 */
static void
set_column(Attempt *a, TimestampTz lease_until, AttrNumber attno,
		   Datum value)
{
	FairqPending *pending = fairq_pending_of(a->queue, &a->task);

	fairq_pending_leased_at_abort(pending, a->task.addr, a->task.lease_until);
	fairq_pending_leased_at_commit(pending, a->task.addr, lease_until, 0);
	fairq_task_set(a->tasks, &a->task, attno, value);
}

/* Cancel the task, or ask the worker of a running task to stop. */
static void
cancel_task(Attempt *a)
{
	if (!a->task.running)
	{
		fairq_finish(a->queue, a->tasks, &a->task, FAIRQ_STATUS_CANCELLED,
					 NULL, (Datum) 0);
		return;
	}
	if (!a->task.cancelled)
		set_column(a, a->task.lease_until, TASK_CANCELLED,
				   BoolGetDatum(true));
}

/* --------------------------------------------------------------------- */

/* Begin a call that writes: fairq.task is open, and no queue is known yet. */
static Attempt
begin_call(const char *function)
{
	Attempt		a = {0};

	fairq_writes(function);
	a.tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	return a;
}

/* Close the table.  After a call that has found no task, keep no lock. */
static void
close_tasks(FairqTable *tasks, bool done)
{
	if (done)
	{
		fairq_table_close(tasks);
		fairq_written();
	}
	else
		fairq_table_leave(tasks);
}

/* A time to wait in microseconds; the default, if the argument is NULL. */
static int64
arg_delay(FunctionCallInfo fcinfo, int n, const char *name, int64 none)
{
	return PG_ARGISNULL(n) ? none :
		fairq_check_delay(name, PG_GETARG_INTERVAL_P(n));
}

/*
 * The second argument is an attempt, or NULL.  An impossible attempt is not an
 * error.  Such an attempt never equals the present one.
 */
static int32
arg_attempt(FunctionCallInfo fcinfo)
{
	return PG_ARGISNULL(1) ? FAIRQ_ANY_ATTEMPT : Max(PG_GETARG_INT32(1), 0);
}

/*
 * Begin a call for one task, whose id and attempt are the first arguments.
 * Returns false if the worker does not have the task; otherwise the task is
 * locked.
 */
static bool
begin_one(FunctionCallInfo fcinfo, const char *function, Finder find,
		  Attempt *a)
{
	*a = begin_call(function);
	return !PG_ARGISNULL(0) &&
		find(a, PG_GETARG_INT64(0), arg_attempt(fcinfo));
}

Datum
fairq_complete(PG_FUNCTION_ARGS)
{
	Attempt		a;
	int32		attempt = arg_attempt(fcinfo);
	Datum		result = PG_ARGISNULL(2) ? (Datum) 0 :
		PointerGetDatum(PG_GETARG_JSONB_P(2));
	int64		took = arg_delay(fcinfo, 3, "took", -1);
	bool		done;

	a = begin_call("fairq.complete()");
	done = !PG_ARGISNULL(0) &&
		complete_attempt(&a, PG_GETARG_INT64(0), attempt, result, took);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done && !a.task.cancelled);
}

Datum
fairq_fail(PG_FUNCTION_ARGS)
{
	Attempt		a;
	const text *error = PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2);
	int64		retry_in = arg_delay(fcinfo, 3, "retry_in", -1);
	int64		took = arg_delay(fcinfo, 5, "took", -1);
	bool		done = begin_one(fcinfo, "fairq.fail()",
								 find_attempt_to_end, &a);

	if (done)
		fail_attempt(&a, error, retry_in, FAIRQ_ARG_BOOL(4), took);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done && !a.task.cancelled);
}

Datum
fairq_release(PG_FUNCTION_ARGS)
{
	Attempt		a;
	int64		delay = arg_delay(fcinfo, 2, "delay", 0);
	bool		done = begin_one(fcinfo, "fairq.release()",
								 find_attempt_to_end, &a);

	if (done)
		release_attempt(&a, delay);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done && !a.task.cancelled);
}

/*
 * Begin a new lease of the task that was found, with the length in the third
 * argument.  Returns false if the task's max_run_time is over; otherwise
 * *until is the end of the lease.
 */
static bool
extend(FunctionCallInfo fcinfo, Attempt *a, TimestampTz *until)
{
	TimestampTz now = GetCurrentTimestamp();

	if (fairq_last_lease_end(a->queue, a->task.popped_at) <= now)
		return false;
	*until = fairq_arg_lease(fcinfo, 2, a->queue, a->task.popped_at, now);
	set_column(a, *until, TASK_LEASE_UNTIL, TimestampTzGetDatum(*until));
	return true;
}

Datum
fairq_extend(PG_FUNCTION_ARGS)
{
	Attempt		a;
	bool		done;
	TimestampTz until = 0;

	fairq_check_lease(fcinfo, 2);
	done = begin_one(fcinfo, "fairq.extend()", find_attempt, &a) &&
		!a.task.cancelled && extend(fcinfo, &a, &until);
	close_tasks(a.tasks, done);
	if (!done)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(until);
}

Datum
fairq_set_progress(PG_FUNCTION_ARGS)
{
	Attempt		a;
	Datum		progress = PG_ARGISNULL(2) ? (Datum) 0 :
		PointerGetDatum(PG_GETARG_JSONB_P(2));
	bool		done = begin_one(fcinfo, "fairq.set_progress()",
								 find_attempt, &a) && !a.task.cancelled;

	if (done)
		set_column(&a, a.task.lease_until, TASK_PROGRESS, progress);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done);
}

Datum
fairq_cancel(PG_FUNCTION_ARGS)
{
	Attempt		a = begin_call("fairq.cancel()");
	bool		done = !PG_ARGISNULL(0) &&
		find_task(&a, PG_GETARG_INT64(0),
				  FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK);

	if (done)
		cancel_task(&a);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done);
}

/* fairq.reschedule(id, run_at) */
Datum
fairq_reschedule(PG_FUNCTION_ARGS)
{
	TimestampTz run_at = PG_ARGISNULL(1) ? DT_NOBEGIN :
		PG_GETARG_TIMESTAMPTZ(1);
	Attempt		a = begin_call("fairq.reschedule()");
	bool		done = !PG_ARGISNULL(0) &&
		reschedule_task(&a, PG_GETARG_INT64(0), run_at);

	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done);
}

/*
 * Close a batch, if the caller has one of these privileges on the queue of its
 * task.  Returns false if the batch is closed, is finished or does not exist.
 */
static bool
close_batch(Attempt *a, int64 id, int any_privilege)
{
	if (!find_task(a, id, any_privilege) || !a->task.blocked ||
		!fairq_batch_end(id, false))
		return false;
	fairq_look_soon(a->queue, a->tasks, &a->task);
	fairq_notify(a->queue);
	fairq_written();
	return true;
}

/* fairq.close_batch(id) */
Datum
fairq_close_batch(PG_FUNCTION_ARGS)
{
	Attempt		a;
	bool		closed;

	fairq_arg_needed(fcinfo, 0, "id");
	a = begin_call("fairq.close_batch()");
	closed = close_batch(&a, PG_GETARG_INT64(0), FAIRQ_PRIV_ENQUEUE);
	fairq_table_close(a.tasks);
	PG_RETURN_BOOL(closed);
}

/*
 * Cancel the tasks of a batch that a scan finds.  The end of one task can move
 * other tasks, which wait for it, to places that the scan has passed.
 */
static int64
cancel_found(Attempt *a, int64 batch, MemoryContext each)
{
	FairqScan  *scan = fairq_scan_begin(a->tasks, FAIRQ_TASK_BY_BATCH,
										fairq_range(Int64GetDatum(batch)));
	int64		cancelled = 0;
	FairqTask	task;
	FairqRowState state;

	while ((state = fairq_task_next(scan, &task, false)) != FAIRQ_ROW_END)
	{
		MemoryContext old = MemoryContextSwitchTo(each);

		if (state == FAIRQ_ROW_LIVE && !task.running &&
			find_task(a, task.id, FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK) &&
			!a->task.running)
		{
			cancel_task(a);
			cancelled++;
		}
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
	Attempt		a;
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq task",
											   ALLOCSET_DEFAULT_SIZES);
	int64		cancelled = 0;
	int64		found;
	int64		batch;

	fairq_arg_needed(fcinfo, 0, "id");
	batch = PG_GETARG_INT64(0);
	a = begin_call("fairq.cancel_batch()");
	(void) close_batch(&a, batch, FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK);
	while ((found = cancel_found(&a, batch, each)) > 0)
		cancelled += found;
	fairq_table_close(a.tasks);
	MemoryContextDelete(each);
	fairq_written();
	PG_RETURN_INT64(cancelled);
}

/* An item of a batch: a task and the attempt that the worker has. */
typedef struct Held
{
	int64		id;
	int32		attempt;
	int			nth;			/* index in the input, from 0 on */
} Held;

typedef struct Batch
{
	Attempt		a;
	int			n;
	Held	   *items;			/* items in the order of their ids */
	Datum	   *ids;			/* ids in the order of the input */
	bool	   *lost;			/* true: the task is lost to another worker,
								 * cancelled or unknown; in the order of the
								 * input */
	bool		done;			/* true: a task was found */
} Batch;

static int
compare_ids(const void *a, const void *b)
{
	const Held *x = a;
	const Held *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->nth - y->nth;
}

/*
 * Begin a batch.  The first argument has the ids, and the second has their
 * attempts.
 */
static Batch
begin_batch(FunctionCallInfo fcinfo, const char *function)
{
	Batch		batch = {.done = false};
	FairqOfEach attempts;

	batch.n = fairq_arg_array(fcinfo, 0, "ids", INT8OID, &batch.ids, NULL);
	attempts = fairq_arg_of_each(fcinfo, 1, "attempts", INT4OID, "ids",
								 batch.n, false);
	StaticAssertStmt(sizeof(Held) * FAIRQ_MAX_ELEMENTS <= MaxAllocSize,
					 "a batch does not fit");
	batch.items = palloc(sizeof(Held) * Max(batch.n, 1));
	batch.lost = palloc(Max(batch.n, 1));
	memset(batch.lost, true, batch.n);
	for (int i = 0; i < batch.n; i++)
		batch.items[i] = (Held) {
			.id = DatumGetInt64(batch.ids[i]),
			.attempt = attempts.values == NULL ? FAIRQ_ANY_ATTEMPT :
			Max(DatumGetInt32(attempts.values[i]), 0),
			.nth = i
		};
	qsort(batch.items, batch.n, sizeof(Held), compare_ids);
	batch.a = begin_call(function);
	return batch;
}

/* End a batch.  Returns the ids of the tasks that are lost. */
static Datum
end_batch(Batch *batch)
{
	int			nlost = 0;

	close_tasks(batch->a.tasks, batch->done);
	for (int i = 0; i < batch->n; i++)
		if (batch->lost[i])
			batch->ids[nlost++] = batch->ids[i];
	return PointerGetDatum(construct_array(batch->ids, nlost, INT8OID,
										   sizeof(int64), FLOAT8PASSBYVAL,
										   TYPALIGN_DOUBLE));
}

/* Lock an item's task, if the worker has its lease. */
static bool
find_item(Batch *batch, Held *item, Finder find)
{
	/*
	 * if the batch names a task twice, the task has a new row, which only
	 * later commands see
	 */
	if (item > batch->items && item[-1].id == item->id)
		fairq_written();
	if (!find(&batch->a, item->id, item->attempt))
		return false;
	batch->lost[item->nth] = batch->a.task.cancelled;
	batch->done = true;
	return true;
}

Datum
fairq_complete_batch(PG_FUNCTION_ARGS)
{
	Batch		batch = begin_batch(fcinfo, "fairq.complete_batch()");
	FairqOfEach results = fairq_arg_of_each(fcinfo, 2, "results", JSONBOID,
											"ids", batch.n, true);
	Datum	   *took = fairq_arg_of_each(fcinfo, 3, "took", INTERVALOID, "ids",
										 batch.n, false).values;

	/*
	 * check all of these first, so that no task is changed if one is invalid
	 */
	for (int i = 0; i < batch.n && took != NULL; i++)
		(void) fairq_check_delay("took", DatumGetIntervalP(took[i]));
	for (int i = 0; i < batch.n; i++)
	{
		Held	   *item = &batch.items[i];
		int64		work = took == NULL ? -1 :
			fairq_check_delay("took", DatumGetIntervalP(took[item->nth]));

		if (complete_attempt(&batch.a, item->id, item->attempt,
							 fairq_value_of(&results, item->nth), work))
		{
			batch.lost[item->nth] = batch.a.task.cancelled;
			batch.done = true;
		}
	}
	PG_RETURN_DATUM(end_batch(&batch));
}

Datum
fairq_fail_batch(PG_FUNCTION_ARGS)
{
	Batch		batch = begin_batch(fcinfo, "fairq.fail_batch()");
	FairqOfEach errors = fairq_arg_of_each(fcinfo, 2, "errors", TEXTOID, "ids",
										   batch.n, true);
	int64		retry_in = arg_delay(fcinfo, 3, "retry_in", -1);

	for (int i = 0; i < batch.n; i++)
	{
		Datum		error = fairq_value_of(&errors, batch.items[i].nth);

		if (find_item(&batch, &batch.items[i], find_attempt_to_end))
			fail_attempt(&batch.a, DatumGetPointer(error) == NULL ?
						 NULL : DatumGetTextPP(error),
						 retry_in, false, -1);
	}
	PG_RETURN_DATUM(end_batch(&batch));
}

Datum
fairq_release_batch(PG_FUNCTION_ARGS)
{
	Batch		batch = begin_batch(fcinfo, "fairq.release_batch()");
	int64		delay = arg_delay(fcinfo, 2, "delay", 0);

	for (int i = 0; i < batch.n; i++)
		if (find_item(&batch, &batch.items[i], find_attempt_to_end))
			release_attempt(&batch.a, delay);
	PG_RETURN_DATUM(end_batch(&batch));
}

Datum
fairq_extend_batch(PG_FUNCTION_ARGS)
{
	Batch		batch;

	fairq_check_lease(fcinfo, 2);
	batch = begin_batch(fcinfo, "fairq.extend_batch()");
	for (int i = 0; i < batch.n; i++)
	{
		Held	   *item = &batch.items[i];
		TimestampTz until;

		if (!find_item(&batch, item, find_attempt_nowait))
			batch.lost[item->nth] = !batch.a.busy;
		else if (!batch.a.task.cancelled)
			batch.lost[item->nth] = !extend(fcinfo, &batch.a, &until);
	}
	PG_RETURN_DATUM(end_batch(&batch));
}
