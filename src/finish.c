/*
 * finish.c
 *		fairq.complete, fairq.complete_batch, fairq.fail, fairq.release,
 *		fairq.extend, fairq.cancel.
 *
 * A task is found by its id.  These are the calls that may wait: for a
 * transaction that is changing the very row.  Then they look again.
 *
 * The attempt is the fencing token.  It counts up with every lease and never
 * back, also when a task is released: a call that gives an attempt acts only
 * for the lease that has it.  A lease that has expired is held until another
 * worker gets the task.
 *
 * A task that is only to be deleted, which is the usual case, is not locked
 * before.
 *
 * Locking: RowExclusiveLock on fairq.task, AccessShareLock on the queue, then
 * the row, all to the end of the transaction.  A batch goes through its ids in
 * order, so two batches don't deadlock.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "args.h"
#include "outcome.h"
#include "running.h"
#include "samples.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_complete);
PG_FUNCTION_INFO_V1(fairq_complete_batch);
PG_FUNCTION_INFO_V1(fairq_fail);
PG_FUNCTION_INFO_V1(fairq_release);
PG_FUNCTION_INFO_V1(fairq_extend);
PG_FUNCTION_INFO_V1(fairq_cancel);

#define ANY_ATTEMPT (-1)

/* Does that attempt (or any) hold the task's lease? */
static bool
is_leased(const FairqTask *task, int32 attempt)
{
	return task->running &&
		(attempt == ANY_ATTEMPT || task->attempt == attempt);
}

/*
 * Note how long the attempt took that its worker ends.  One of a row by SQL may
 * have no beginning.
 */
static void
sample_run(FairqQueue *queue, const FairqTask *task)
{
	if (task->popped_at != 0)
		fairq_sample(queue->hints, FAIRQ_SPAN_RUN, task->popped_at,
					 GetCurrentTimestamp());
}

/*
 * Complete one task.  *queue is that of the task before, or NULL: its queue is
 * locked before anything is done to the row, once for a run of tasks.  took is how
 * many microseconds of work it was; -1: since its claim.
 */
static bool
complete_task(FairqTable *tasks, int64 id, int32 attempt, Datum result,
			  int64 took, FairqQueue **queue)
{
	bool		locked = false;

	for (;;)
	{
		bool		changing;
		FairqTask	task;
		FairqLane  *lane;
		FairqPending *pending;

		CHECK_FOR_INTERRUPTS();
		if (!fairq_task_find_nowait(tasks, id, &task, &changing))
			return false;
		if (*queue == NULL || (*queue)->id != task.queue_id)
			*queue = fairq_queue_use_id(task.queue_id, FAIRQ_PRIV_WORK);
		if (*queue == NULL ||
			((locked || changing) &&
			 !fairq_task_find_locked(tasks, id, &task)) ||
			!is_leased(&task, attempt))
			return false;
		locked |= changing;
		if ((*queue)->retains || task.keyed)
		{
			if (!fairq_task_find_locked(tasks, id, &task) ||
				!is_leased(&task, attempt))
				return false;
			task.took = took;
			fairq_finish(*queue, tasks, &task, FAIRQ_STATUS_SUCCEEDED, NULL,
						 result);
			sample_run(*queue, &task);
			return true;
		}
		lane = fairq_queue_lane(*queue, task.priority);
		pending = fairq_pending(lane, task.group_no);
		fairq_hold_begin(*queue, lane, task.group_no);
		/* don't wait while the counter is held */
		if (fairq_task_delete(tasks, &task, locked) == FAIRQ_CLAIMED)
		{
			pending->stats[FAIRQ_STAT_COMPLETED]++;
			task.took = took;
			fairq_attempt_ended(*queue, pending, &task);
			fairq_pending_leased_at_abort(pending, task.addr,
										  task.lease_until);
			fairq_hold_end(pending);
			sample_run(*queue, &task);
			return true;
		}
		fairq_hold_end(NULL);
		/* a transaction has the row: have it locked, and look again */
		locked = true;
	}
}

/* Close the table.  A call that has done nothing keeps no lock. */
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

/* Notify listeners that a slot is free, if there is any limit. */
static void
notify_slots(FairqQueue *queue)
{
	if (queue != NULL && queue->limited)
		fairq_notify(queue);
}

/*
 * Returns the attempt, if it is given.  One that no lease can have is no
 * error: it is not the present one.
 */
static int32
arg_attempt(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		return ANY_ATTEMPT;
	return Max(PG_GETARG_INT32(n), 0);
}

/* Returns the work done in microseconds, if it is given; -1: it is not. */
static int64
arg_took(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? -1 :
		fairq_check_delay("took", PG_GETARG_INTERVAL_P(n));
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
	done = complete_task(tasks, PG_GETARG_INT64(0), arg_attempt(fcinfo, 1),
						 PG_ARGISNULL(2) ? (Datum) 0 :
						 PointerGetDatum(PG_GETARG_JSONB_P(2)),
						 arg_took(fcinfo, 3), &queue);
	close_tasks(tasks, done);
	if (done)
		notify_slots(queue);
	PG_RETURN_BOOL(done);
}

typedef struct IdAttempt
{
	int64		id;
	int32		attempt;
	int64		took;
} IdAttempt;

static int
compare_attempts(const void *a, const void *b)
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
	Datum	   *took = NULL;
	int			n = fairq_arg_array(fcinfo, 0, "ids", INT8OID, &ids, NULL);
	IdAttempt  *todo = palloc(sizeof(IdAttempt) * Max(n, 1));
	FairqTable *tasks;
	FairqQueue *queue = NULL;
	int64		done = 0;

	if (!PG_ARGISNULL(1))
		fairq_check_lengths("ids", n, "attempts",
							fairq_arg_array(fcinfo, 1, "attempts", INT4OID,
											&attempts, NULL));
	if (!PG_ARGISNULL(2))
		fairq_check_lengths("ids", n, "took",
							fairq_arg_array(fcinfo, 2, "took", INTERVALOID,
											&took, NULL));
	fairq_writes("fairq.complete_batch()");
	for (int i = 0; i < n; i++)
	{
		todo[i].id = DatumGetInt64(ids[i]);
		todo[i].attempt = attempts == NULL ? ANY_ATTEMPT :
			Max(DatumGetInt32(attempts[i]), 0);
		todo[i].took = took == NULL ? -1 :
			fairq_check_delay("took", DatumGetIntervalP(took[i]));
	}
	qsort(todo, n, sizeof(IdAttempt), compare_attempts);

	tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (complete_task(tasks, todo[i].id, todo[i].attempt, (Datum) 0,
						  todo[i].took, &queue))
		{
			done++;
			notify_slots(queue);
		}
	}
	close_tasks(tasks, done > 0);
	PG_RETURN_INT64(done);
}

/* A call to do with one task, whose row and queue are locked. */
typedef struct Call
{
	FairqTable *tasks;
	FairqQueue *queue;
	FairqTask	task;
} Call;

/*
 * Lock the task whose id is the first argument, if the caller may work on its
 * queue; with leased, if the attempt that is the second one holds its lease.
 * The queue is locked before the row, as everywhere.  A worker that comes too
 * late locks nothing.
 */
static bool
begin_call(FunctionCallInfo fcinfo, const char *function, bool leased,
		   Call *g)
{
	bool		changing;

	fairq_writes(function);
	g->tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	if (PG_ARGISNULL(0))
		return false;
	return fairq_task_find_nowait(g->tasks, PG_GETARG_INT64(0), &g->task,
								  &changing) &&
		(g->queue = fairq_queue_use_id(g->task.queue_id,
									   leased ? FAIRQ_PRIV_WORK :
									   FAIRQ_PRIV_ENQUEUE |
									   FAIRQ_PRIV_WORK)) != NULL &&
		(!leased || (fairq_task_find(g->tasks, PG_GETARG_INT64(0), &g->task) &&
					 is_leased(&g->task, arg_attempt(fcinfo, 1)))) &&
		fairq_task_find_locked(g->tasks, PG_GETARG_INT64(0), &g->task) &&
		(!leased || is_leased(&g->task, arg_attempt(fcinfo, 1)));
}

/*
 * Have the task, whose attempt is over, run again after a delay in
 * microseconds, unless it was cancelled.
 */
static void
run_again(Call *g, int64 delay, const text *error, bool counts)
{
	if (g->task.cancelled)
		fairq_finish(g->queue, g->tasks, &g->task, FAIRQ_STATUS_CANCELLED,
					 error, (Datum) 0);
	else
		fairq_run_again(g->queue, g->tasks, &g->task,
						delay == 0 ? DT_NOBEGIN : GetCurrentTimestamp() + delay,
						error, counts);
	if (delay == 0)
		fairq_notify(g->queue);
	else
		notify_slots(g->queue);
}

/*
 * Returns the delay of the next attempt, in microseconds.  Jitter keeps those
 * apart that have failed together: up to a quarter more or less, and an hour
 * at most.
 */
static int64
backoff_delay(const FairqQueue *queue, const FairqTask *task)
{
	int32		retries = Max(task->attempt - task->released - 1, 0);
	double		jitter = pg_prng_double(&pg_global_prng_state);
	double		most = (double) SECS_PER_HOUR * USECS_PER_SEC;
	double		delay = (double) queue->retries.backoff * pow(2, Min(retries, 60));

	return (int64) Min(delay * (0.75 + 0.5 * jitter),
					   most * (0.75 + 0.25 * jitter));
}

Datum
fairq_fail(PG_FUNCTION_ARGS)
{
	const text *error = PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2);
	int64		retry_in = PG_ARGISNULL(3) ? -1 :
		fairq_check_delay("retry_in", PG_GETARG_INTERVAL_P(3));
	bool		dead = PG_ARGISNULL(4) ? false : PG_GETARG_BOOL(4);
	int64		took = arg_took(fcinfo, 5);
	Call		g;
	bool		done = begin_call(fcinfo, "fairq.fail()", true, &g);

	g.task.took = took;
	if (done && !g.task.cancelled &&
		(dead || fairq_attempts_used_up(g.queue, &g.task)))
	{
		fairq_finish(g.queue, g.tasks, &g.task, FAIRQ_STATUS_FAILED, error,
					 (Datum) 0);
		notify_slots(g.queue);
	}
	else if (done)
	{
		if (!g.task.cancelled)
			fairq_pending(fairq_queue_lane(g.queue, g.task.priority),
						  g.task.group_no)->stats[FAIRQ_STAT_RETRIED]++;
		run_again(&g,
				  retry_in >= 0 ? retry_in : backoff_delay(g.queue, &g.task),
				  error, true);
	}
	if (done)
		sample_run(g.queue, &g.task);
	close_tasks(g.tasks, done);
	PG_RETURN_BOOL(done);
}

Datum
fairq_release(PG_FUNCTION_ARGS)
{
	int64		delay = PG_ARGISNULL(2) ? 0 :
		fairq_check_delay("delay", PG_GETARG_INTERVAL_P(2));
	Call		g;
	bool		done = begin_call(fcinfo, "fairq.release()", true, &g);

	if (done)
	{
		fairq_pending(fairq_queue_lane(g.queue, g.task.priority),
					  g.task.group_no)->stats[FAIRQ_STAT_RELEASED]++;
		run_again(&g, delay, NULL, false);
	}
	close_tasks(g.tasks, done);
	PG_RETURN_BOOL(done);
}

Datum
fairq_extend(PG_FUNCTION_ARGS)
{
	Call		g;
	bool		done;
	TimestampTz until = 0;

	if (!PG_ARGISNULL(2))
		fairq_check_lease(PG_GETARG_INTERVAL_P(2));
	done = begin_call(fcinfo, "fairq.extend()", true, &g) && !g.task.cancelled;
	if (done)
	{
		FairqLane  *lane = fairq_queue_lane(g.queue, g.task.priority);
		FairqPending *pending = fairq_pending(lane, g.task.group_no);
		ItemPointerData before = g.task.tid;

		until = fairq_arg_lease(fcinfo, 2, g.queue, GetCurrentTimestamp());
		fairq_pending_leased_at_abort(pending, g.task.addr,
									  g.task.lease_until);
		fairq_pending_leased_at_commit(pending, g.task.addr, until, 0);

		/* it may be moved, and a count must not miss it */
		fairq_hold_begin(g.queue, lane, g.task.group_no);
		fairq_task_extend(g.tasks, &g.task, until);
		fairq_hold_written(&g.task, &before);
		fairq_hold_end(NULL);
	}
	close_tasks(g.tasks, done);
	if (!done)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(until);
}

Datum
fairq_cancel(PG_FUNCTION_ARGS)
{
	Call		g;
	bool		done = begin_call(fcinfo, "fairq.cancel()", false, &g);

	if (done && !g.task.running)
		fairq_finish(g.queue, g.tasks, &g.task, FAIRQ_STATUS_CANCELLED, NULL,
					 (Datum) 0);
	else if (done && !g.task.cancelled)
	{
		FairqLane  *lane = fairq_queue_lane(g.queue, g.task.priority);
		FairqPending *pending = fairq_pending(lane, g.task.group_no);
		ItemPointerData before = g.task.tid;

		fairq_pending_leased_at_abort(pending, g.task.addr,
									  g.task.lease_until);
		fairq_pending_leased_at_commit(pending, g.task.addr,
									   g.task.lease_until, 0);
		fairq_hold_begin(g.queue, lane, g.task.group_no);
		fairq_task_cancel(g.tasks, &g.task);
		fairq_hold_written(&g.task, &before);
		fairq_hold_end(NULL);
	}
	close_tasks(g.tasks, done);
	PG_RETURN_BOOL(done);
}
