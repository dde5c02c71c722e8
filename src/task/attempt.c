/*
 * attempt.c
 *		Attempts: their ends, and renewing their leases.
 *
 * A task is found by its id.  These calls may wait for a transaction that is
 * changing the same row, and then search again.  A call that renews many
 * leases waits for no row: a locked row must not make the other leases expire.
 *
 * The attempt is the fencing token.  It increases with every lease, even after
 * a release.  A call with an attempt acts only for the lease that has it.  An
 * expired lease remains valid until another worker gets the task.
 *
 * A task that is only deleted, the usual case, is not locked first.
 *
 * Locking: the caller has fairq.task open with RowExclusiveLock.
 * AccessShareLock on the queue, then the row, all to the end of the
 * transaction.  The caller handles many tasks one after the other by their
 * ids, so two such calls do not deadlock.
 */
#include "postgres.h"

#include <math.h>

#include "access/xact.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "attempt.h"
#include "histogram.h"
#include "outcome.h"
#include "running.h"
#include "taken.h"

/* Whether an attempt (or any) holds the task's lease. */
static bool
is_leased(const FairqTask *task, int32 attempt)
{
	return task->running &&
		(attempt == FAIRQ_ANY_ATTEMPT || task->attempt == attempt);
}

/*
 * Lock the queue, if the caller has one of these privileges on it.  With
 * nowait, this does not wait for a transaction that drops the queue: in that
 * case a->busy is true, and the result false.
 */
static bool
use_queue(FairqAttempt *a, int32 queue_id, int any_privilege, bool nowait)
{
	const FairqQueue *queue;

	if (a->queue != NULL && a->queue->id == queue_id)
		return true;
	a->queue = fairq_queue_use_id(queue_id, any_privilege, !nowait);
	if (a->queue != NULL)
		return true;
	queue = nowait ? fairq_queue_by_id(queue_id) : NULL;
	a->busy = queue != NULL && fairq_may(queue, any_privilege);
	return false;
}

/*
 * Record the duration of an attempt that its worker ends.  An attempt in a row
 * written by SQL may have no beginning.
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
bool
fairq_complete_attempt(FairqAttempt *a, int64 id, int32 attempt, Datum result,
					   int64 took)
{
	FairqTable *tasks = a->tasks;
	bool		locked = false;

	for (;;)
	{
		bool		changing;
		FairqTask	task;
		FairqPending *pending;

		CHECK_FOR_INTERRUPTS();
		if (!fairq_task_find_nowait(tasks, id, &task, &changing))
			return false;
		if (!use_queue(a, task.queue_id, FAIRQ_PRIV_WORK, false) ||
			((locked || changing) &&
			 !fairq_task_find_locked(tasks, id, &task)) ||
			!is_leased(&task, attempt))
			return false;
		locked |= changing;
		if (a->queue->retains || task.keyed || task.cancelled)
		{
			if (!fairq_task_find_locked(tasks, id, &task) ||
				!is_leased(&task, attempt))
				return false;
			task.took = took;
			a->task.cancelled = task.cancelled;
			fairq_finish(a->queue, tasks, &task, task.cancelled ?
						 FAIRQ_STATUS_CANCELLED : FAIRQ_STATUS_COMPLETED, NULL,
						 result);
			sample_run(a->queue, &task);
			notify_slots(a->queue);
			return true;
		}
		pending = fairq_pending_of(a->queue, &task);
		if (fairq_task_delete(tasks, &task, locked) == FAIRQ_CLAIMED)
		{
			pending->stats[FAIRQ_STAT_COMPLETED]++;
			a->task.cancelled = false;
			task.took = took;
			fairq_attempt_ended(a->queue, pending, &task);
			fairq_pending_leased_at_abort(pending, task.addr,
										  task.lease_until);
			fairq_slot_is_left(a->queue, pending);
			sample_run(a->queue, &task);
			notify_slots(a->queue);
			fairq_task_ended(a->queue, tasks, &task, FAIRQ_STATUS_COMPLETED);
			return true;
		}
		/* another transaction has the row: lock it and read it again */
		locked = true;
	}
}

/*
 * Lock a task by its id, if the caller has one of these privileges on its
 * queue.  Like all code, this locks the queue before the row.
 */
bool
fairq_find_task(FairqAttempt *a, int64 id, int any_privilege)
{
	bool		changing;

	return fairq_task_find_nowait(a->tasks, id, &a->task, &changing) &&
		use_queue(a, a->task.queue_id, any_privilege, false) &&
		fairq_task_find_locked(a->tasks, id, &a->task);
}

/* Lock a task that passes a check; otherwise no row is locked. */
static bool
find_if(FairqAttempt *a, int64 id, int any_privilege,
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
bool
fairq_find_attempt(FairqAttempt *a, int64 id, int32 attempt)
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
 * Lock a task that is neither running nor expired.  The worker of a running
 * one would have to wait.
 */
bool
fairq_find_waiting(FairqAttempt *a, int64 id)
{
	return find_if(a, id, FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK, is_waiting, 0);
}

/*
 * Do the same without waiting.  If another transaction has locked the queue,
 * or the row with that attempt, a->busy is true and the result is false.
 */
bool
fairq_find_attempt_nowait(FairqAttempt *a, int64 id, int32 attempt)
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
bool
fairq_find_attempt_to_end(FairqAttempt *a, int64 id, int32 attempt)
{
	return (fairq_taken_find(a->tasks, id, attempt, &a->task) &&
			use_queue(a, a->task.queue_id, FAIRQ_PRIV_WORK, false)) ||
		fairq_find_attempt(a, id, attempt);
}

/*
 * Make the task, whose attempt is over, run again after a delay in
 * microseconds, unless it was cancelled.
 */
static void
run_again(FairqAttempt *a, int64 delay, const text *error, bool counts)
{
	if (a->task.cancelled)
		fairq_finish(a->queue, a->tasks, &a->task, FAIRQ_STATUS_CANCELLED,
					 error, (Datum) 0);
	else
		fairq_run_again(a->queue, a->tasks, &a->task,
						delay == 0 ? DT_NOBEGIN : GetCurrentTimestamp() + delay,
						error, counts);
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
	double		delay = (double) queue->retries.backoff * pow(2, Min(retries, 60));

	return (int64) Min(delay * (0.75 + 0.5 * jitter),
					   most * (0.75 + 0.25 * jitter));
}

/*
 * Fail the attempt, with an error unless it is NULL.  The task is retried
 * after retry_in microseconds; -1: after the queue's backoff.  If no attempts
 * are left, or with dead, the task fails for good.
 */
void
fairq_fail_attempt(FairqAttempt *a, const text *error, int64 retry_in, bool dead,
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
		run_again(a, retry_in >= 0 ? retry_in : backoff_delay(a->queue, &a->task),
				  error, true);
	}
	sample_run(a->queue, &a->task);
}

/*
 * The task runs again after a delay in microseconds, unless it was cancelled.
 */
void
fairq_release_attempt(FairqAttempt *a, int64 delay)
{
	if (!a->task.cancelled)
		fairq_pending_of(a->queue, &a->task)->stats[FAIRQ_STAT_RELEASED]++;
	run_again(a, delay, NULL, false);
}

/* Record the end of a running task's lease, which is about to change. */
static void
note_lease(FairqAttempt *a, TimestampTz lease_until)
{
	FairqPending *pending = fairq_pending_of(a->queue, &a->task);

	fairq_pending_leased_at_abort(pending, a->task.addr, a->task.lease_until);
	fairq_pending_leased_at_commit(pending, a->task.addr, lease_until, 0);
}

/* Write that the lease ends at the given time. */
void
fairq_extend_attempt(FairqAttempt *a, TimestampTz until)
{
	note_lease(a, until);
	fairq_task_extend(a->tasks, &a->task, until);
}

/* Write the progress that the worker reports. */
void
fairq_note_progress(FairqAttempt *a, Datum progress)
{
	note_lease(a, a->task.lease_until);
	fairq_task_progress(a->tasks, &a->task, progress);
}

/* Cancel the task, or ask the worker of a running task to stop. */
void
fairq_cancel_task(FairqAttempt *a)
{
	if (!a->task.running)
	{
		fairq_finish(a->queue, a->tasks, &a->task, FAIRQ_STATUS_CANCELLED, NULL,
					 (Datum) 0);
		return;
	}
	if (a->task.cancelled)
		return;
	note_lease(a, a->task.lease_until);
	fairq_task_cancel(a->tasks, &a->task);
}
