/*
 * pop.c
 *		fairq.pop, fairq.take.
 *
 * Which group is next is decided in lane_take.c, which of its tasks in turn.c;
 * serve.c is the call that takes and serves the turns.  Here a chosen task gets
 * its lease (pop), or is removed (take), and becomes a row of the result.
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on fairq.task and
 * the rows that are returned, to the end of the transaction.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "compat.h"
#include "dedup.h"
#include "group.h"
#include "outcome.h"
#include "serve.h"
#include "tally_count.h"
#include "transaction.h"

#define CLAIM_NATTS 11
#define MAX_WORKER 1024

PG_FUNCTION_INFO_V1(fairq_pop);
PG_FUNCTION_INFO_V1(fairq_take);

typedef struct Claims
{
	FairqQueue *queue;
	ReturnSetInfo *rsinfo;
	MemoryContext each;
	bool		remove;
	TimestampTz now;
	TimestampTz lease_until;
	Datum		worker;
	bool		worker_isnull;
} Claims;

/* Returns a column that may be stored elsewhere, to be read when its row is long gone. */
static Datum
copy_detoasted(FairqTable *tasks, AttrNumber attno, bool *isnull)
{
	Datum		value = slot_getattr(tasks->locked.slot, attno, isnull);

	return *isnull ? value : PointerGetDatum(PG_DETOAST_DATUM(value));
}

/* Put a row of type fairq.claim into the result. */
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
	values[8] = CStringGetTextDatum(claims->queue->name);
	nulls[9] = !fairq_task_has(tasks->locked.slot, TASK_HEADERS);
	if (!nulls[9])
		values[9] = copy_detoasted(tasks, TASK_HEADERS, &nulls[9]);
	values[10] = Int32GetDatum(fairq_attempts_left(claims->queue, task));
	tuplestore_putvalues(claims->rsinfo->setResult, claims->rsinfo->setDesc,
						 values, nulls);
}

static FairqClaimResult
remove_task(FairqTable *tasks, FairqTask *task)
{
	FairqClaimResult result;

	/* what this transaction has written before is to be seen */
	fairq_written();
	result = fairq_task_delete(tasks, task, !tasks->locked.tuple_only);
	if (result != FAIRQ_CLAIMED)
		return result;
	if (task->keyed)
		fairq_dedup_free(tasks, task);
	task->attempt++;
	task->running = false;
	return FAIRQ_CLAIMED;
}

static FairqClaimResult
serve_claim(FairqTable *tasks, FairqTask *task, void *arg)
{
	Claims	   *claims = arg;
	MemoryContext old = MemoryContextSwitchTo(claims->each);
	FairqClaimResult result = FAIRQ_CLAIMED;

	if (claims->remove)
		result = remove_task(tasks, task);
	else
		result = fairq_task_lease(tasks, task, claims->now, claims->lease_until,
								  claims->worker, claims->worker_isnull);
	if (result == FAIRQ_CLAIMED)
		put_claim(claims, tasks, task);
	MemoryContextSwitchTo(old);
	MemoryContextReset(claims->each);
	return result;
}

static void
serve_call(FunctionCallInfo fcinfo, Claims *claims, int64 max_tasks,
		   int64 per_group)
{
	FairqTable *tasks;

	InitMaterializedSRF(fcinfo, 0);
	claims->rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	claims->each = AllocSetContextCreate(CurrentMemoryContext, "fairq claim",
										 ALLOCSET_DEFAULT_SIZES);
	tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	tasks->claims_delete = claims->remove;
	fairq_count_few_tasks(claims->queue, tasks);
	fairq_serve(claims->queue, tasks, claims->now, max_tasks, per_group,
				claims->remove ? DT_NOEND : claims->lease_until, serve_claim,
				claims);
	fairq_table_close(tasks);
	MemoryContextDelete(claims->each);
}

Datum
fairq_pop(PG_FUNCTION_ARGS)
{
	Claims		claims = {.remove = false};
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	int64		max_tasks = FAIRQ_ARG_INT(1, "max_tasks", 1, 1, PG_INT32_MAX);
	int64		per_group = FAIRQ_ARG_INT(3, "per_group", 0,
										  PG_ARGISNULL(3) ? 0 : 1,
										  PG_INT32_MAX);

	claims.worker_isnull = PG_ARGISNULL(4);
	if (!claims.worker_isnull)
		claims.worker = PointerGetDatum(fairq_check_text("worker",
														 PG_GETARG_TEXT_PP(4),
														 0, MAX_WORKER));
	fairq_writes("fairq.pop()");
	claims.queue = fairq_queue_use(queue_name, FAIRQ_PRIV_WORK,
								   AccessShareLock);
	claims.now = GetCurrentTimestamp();
	claims.lease_until = fairq_arg_lease(fcinfo, 2, claims.queue, claims.now);
	serve_call(fcinfo, &claims, max_tasks, per_group);
	return (Datum) 0;
}

Datum
fairq_take(PG_FUNCTION_ARGS)
{
	Claims		claims = {.remove = true, .worker_isnull = true};
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	int64		max_tasks = FAIRQ_ARG_INT(1, "max_tasks", 1, 1, PG_INT32_MAX);
	int64		per_group = FAIRQ_ARG_INT(2, "per_group", 0,
										  PG_ARGISNULL(2) ? 0 : 1,
										  PG_INT32_MAX);

	fairq_writes("fairq.take()");
	claims.queue = fairq_queue_use(queue_name, FAIRQ_PRIV_WORK,
								   AccessShareLock);
	claims.now = GetCurrentTimestamp();
	serve_call(fcinfo, &claims, max_tasks, per_group);
	return (Datum) 0;
}
