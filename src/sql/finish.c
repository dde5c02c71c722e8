/*
 * finish.c
 *		fairq.complete, fairq.fail, fairq.release, fairq.extend, their batch
 *		versions, fairq.set_progress, fairq.cancel, and fairq.reschedule.
 *
 * outcome.c changes the tasks.  A batch processes its ids in sorted order, so
 * two batches do not deadlock.  Then it returns the ids that the worker has
 * lost, in the order of its input.
 *
 * Locking: RowExclusiveLock on fairq.task; see outcome.c.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "args.h"
#include "outcome.h"
#include "transaction.h"

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

/* Begin a call that writes: fairq.task is open, no queue is known. */
static FairqAttempt
begin_call(const char *function)
{
	FairqAttempt a = {0};

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
 * error.  It never equals the present one.
 */
static int32
arg_attempt(FunctionCallInfo fcinfo)
{
	return PG_ARGISNULL(1) ? FAIRQ_ANY_ATTEMPT : Max(PG_GETARG_INT32(1), 0);
}

/*
 * Begin a call for one task: its id and attempt are the first arguments.
 * Returns false if the worker does not have the task; otherwise the task is
 * locked.
 */
static bool
begin_one(FunctionCallInfo fcinfo, const char *function, FairqFinder find,
		  FairqAttempt *a)
{
	*a = begin_call(function);
	return !PG_ARGISNULL(0) &&
		find(a, PG_GETARG_INT64(0), arg_attempt(fcinfo));
}

Datum
fairq_complete(PG_FUNCTION_ARGS)
{
	FairqAttempt a;
	int32		attempt = arg_attempt(fcinfo);
	Datum		result = PG_ARGISNULL(2) ? (Datum) 0 :
		PointerGetDatum(PG_GETARG_JSONB_P(2));
	int64		took = arg_delay(fcinfo, 3, "took", -1);
	bool		done;

	a = begin_call("fairq.complete()");
	done = !PG_ARGISNULL(0) &&
		fairq_complete_attempt(&a, PG_GETARG_INT64(0), attempt, result, took);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done && !a.task.cancelled);
}

Datum
fairq_fail(PG_FUNCTION_ARGS)
{
	FairqAttempt a;
	const text *error = PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2);
	int64		retry_in = arg_delay(fcinfo, 3, "retry_in", -1);
	int64		took = arg_delay(fcinfo, 5, "took", -1);
	bool		done = begin_one(fcinfo, "fairq.fail()",
								 fairq_find_attempt_to_end, &a);

	if (done)
		fairq_fail_attempt(&a, error, retry_in, FAIRQ_ARG_BOOL(4), took);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done && !a.task.cancelled);
}

Datum
fairq_release(PG_FUNCTION_ARGS)
{
	FairqAttempt a;
	int64		delay = arg_delay(fcinfo, 2, "delay", 0);
	bool		done = begin_one(fcinfo, "fairq.release()",
								 fairq_find_attempt_to_end, &a);

	if (done)
		fairq_release_attempt(&a, delay);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done && !a.task.cancelled);
}

/*
 * Begin a new lease of the task that was found, with the length of the third
 * argument.  Returns false if the task's max_run_time is over; otherwise
 * *until is the end of the lease.
 */
static bool
extend(FunctionCallInfo fcinfo, FairqAttempt *a, TimestampTz *until)
{
	TimestampTz now = GetCurrentTimestamp();

	if (fairq_last_lease_end(a->queue, a->task.popped_at) <= now)
		return false;
	*until = fairq_arg_lease(fcinfo, 2, a->queue, a->task.popped_at, now);
	fairq_set_column(a, *until, TASK_LEASE_UNTIL, TimestampTzGetDatum(*until));
	return true;
}

Datum
fairq_extend(PG_FUNCTION_ARGS)
{
	FairqAttempt a;
	bool		done;
	TimestampTz until = 0;

	fairq_check_lease(fcinfo, 2);
	done = begin_one(fcinfo, "fairq.extend()", fairq_find_attempt, &a) &&
		!a.task.cancelled && extend(fcinfo, &a, &until);
	close_tasks(a.tasks, done);
	if (!done)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(until);
}

Datum
fairq_set_progress(PG_FUNCTION_ARGS)
{
	FairqAttempt a;
	Datum		progress = PG_ARGISNULL(2) ? (Datum) 0 :
		PointerGetDatum(PG_GETARG_JSONB_P(2));
	bool		done = begin_one(fcinfo, "fairq.set_progress()",
								 fairq_find_attempt, &a) && !a.task.cancelled;

	if (done)
		fairq_set_column(&a, a.task.lease_until, TASK_PROGRESS, progress);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done);
}

Datum
fairq_cancel(PG_FUNCTION_ARGS)
{
	FairqAttempt a = begin_call("fairq.cancel()");
	bool		done = !PG_ARGISNULL(0) &&
		fairq_find_task(&a, PG_GETARG_INT64(0),
						FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK);

	if (done)
		fairq_cancel_task(&a);
	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done);
}

/* fairq.reschedule(id, run_at) */
Datum
fairq_reschedule(PG_FUNCTION_ARGS)
{
	TimestampTz run_at = PG_ARGISNULL(1) ? DT_NOBEGIN :
		PG_GETARG_TIMESTAMPTZ(1);
	FairqAttempt a = begin_call("fairq.reschedule()");
	bool		done = !PG_ARGISNULL(0) &&
		fairq_reschedule_task(&a, PG_GETARG_INT64(0), run_at);

	close_tasks(a.tasks, done);
	PG_RETURN_BOOL(done);
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
	FairqAttempt a;
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

/* Begin a batch: the first argument is the ids, the second their attempts. */
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

/* End a batch.  Returns the ids that are lost. */
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
find_item(Batch *batch, Held *item, FairqFinder find)
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

	/* check all of these first: if one is invalid, no task is changed */
	for (int i = 0; i < batch.n && took != NULL; i++)
		(void) fairq_check_delay("took", DatumGetIntervalP(took[i]));
	for (int i = 0; i < batch.n; i++)
	{
		Held	   *item = &batch.items[i];
		int64		work = took == NULL ? -1 :
			fairq_check_delay("took", DatumGetIntervalP(took[item->nth]));

		if (fairq_complete_attempt(&batch.a, item->id, item->attempt,
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

		if (find_item(&batch, &batch.items[i], fairq_find_attempt_to_end))
			fairq_fail_attempt(&batch.a, DatumGetPointer(error) == NULL ?
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
		if (find_item(&batch, &batch.items[i], fairq_find_attempt_to_end))
			fairq_release_attempt(&batch.a, delay);
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

		if (!find_item(&batch, item, fairq_find_attempt_nowait))
			batch.lost[item->nth] = !batch.a.busy;
		else if (!batch.a.task.cancelled)
			batch.lost[item->nth] = !extend(fcinfo, &batch.a, &until);
	}
	PG_RETURN_DATUM(end_batch(&batch));
}
