/*
 * failed.c
 *		fairq.redrive, fairq.purge_failed: functions for tasks that have failed
 *		for good.
 *
 * These tasks are in the archive until a call puts them back, into their queue
 * or another one, or deletes them.  A task that is put back is a new task with
 * the id of the old one.  It may have as many attempts as a new one.  The
 * numbers of its attempts continue from the last one, so a worker that has
 * lost an earlier attempt cannot end a new one.  The task no longer expires.
 *
 * Large values are copied between the tables one column at a time, in stored
 * form: compressed and out of line.  Together they may exceed the size of a
 * row in memory.
 *
 * Locking: AccessShareLock on the queues, RowExclusiveLock on the tables; the
 * archived row, to the end of the transaction.  redrive skips rows that other
 * transactions are changing; purge_failed is SQL, and waits for these.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "add.h"
#include "args.h"
#include "batch.h"
#include "group.h"
#include "store_spi.h"

PG_FUNCTION_INFO_V1(fairq_redrive);
PG_FUNCTION_INFO_V1(fairq_redrive_task);
PG_FUNCTION_INFO_V1(fairq_purge_failed);

/* A copy of a value that is passed by reference, as it is stored; 0: NULL. */
static Datum
copy_of(TupleTableSlot *slot, AttrNumber attno)
{
	Datum		value = fairq_column(slot, attno);
	int16		typlen = TupleDescAttr(slot->tts_tupleDescriptor,
									   attno - 1)->attlen;

	return DatumGetPointer(value) == NULL ? value :
		datumCopy(value, false, typlen);
}

/* A copy of a text, detoasted. */
static Datum
copy_text(TupleTableSlot *slot, AttrNumber attno)
{
	Datum		value = copy_of(slot, attno);

	return DatumGetPointer(value) == NULL ? value :
		PointerGetDatum(DatumGetTextPP(value));
}

/* If the batch of a failed task is not finished, it has one failure less. */
static void
rejoin(FairqEnqueue *e, FairqNewTask *new, int64 batch)
{
	if (batch == 0 || !fairq_batch_join(e->tasks, batch, true))
		return;
	new->batch = batch;
	fairq_batch_count(e->tasks, batch, FAIRQ_STATUS_FAILED, -1, new->id);
}

/* The place to which tasks are put back, if it is a new one. */
typedef struct Target
{
	FairqQueue *queue;			/* NULL: their queue */
	text	   *group_key;		/* NULL: their group */
	int			priority;		/* -1: their priority */
} Target;

/* The arguments from an index on: a queue, a priority and a group. */
static Target
arg_target(FunctionCallInfo fcinfo, int n)
{
	Target		to = {.priority = -1};

	if (!PG_ARGISNULL(n))
		to.queue = fairq_queue_use(PG_GETARG_TEXT_PP(n), FAIRQ_PRIV_ENQUEUE,
								   AccessShareLock);
	to.priority = FAIRQ_ARG_INT(n + 1, "to_priority", -1,
								PG_ARGISNULL(n + 1) ? -1 : 0,
								FAIRQ_PRIORITIES - 1);
	if (!PG_ARGISNULL(n + 2))
		to.group_key = PG_GETARG_TEXT_PP(n + 2);
	return to;
}

/*
 * Put an archived task back.  Returns false if it is being changed, or another
 * task of the queue has its dedup_key or is about to take it.
 */
static bool
redrive_task(FairqEnqueue *e, const Target *to, FairqTable *archived,
			 TupleTableSlot *slot)
{
	ItemPointerData tid = slot->tts_tid;
	FairqNewTask new = {
		.id = DatumGetInt64(fairq_column(slot, ARCHIVE_ID)),
		.enqueued_at = fairq_time_of(slot, ARCHIVE_ENQUEUED_AT, 0),
		.max_attempts = fairq_int_of(slot, ARCHIVE_MAX_ATTEMPTS, 0),
		.cost = DatumGetFloat4(fairq_column(slot, ARCHIVE_COST)),
		.priority = to->priority >= 0 ? to->priority :
		DatumGetInt16(fairq_column(slot, ARCHIVE_PRIORITY)),
		.group_key = to->group_key != NULL ? to->group_key :
		DatumGetTextPP(copy_text(slot, ARCHIVE_GROUP_KEY)),
		.payload = copy_of(slot, ARCHIVE_PAYLOAD),
		.headers = copy_of(slot, ARCHIVE_HEADERS),
		.dedup.key = copy_text(slot, ARCHIVE_DEDUP_KEY),
		.dedup.held_for = copy_of(slot, ARCHIVE_DEDUP_FOR),
		.dedup.until_started = !slot_attisnull(slot, ARCHIVE_UNTIL_STARTED),
		.past.popped_at = fairq_time_of(slot, ARCHIVE_POPPED_AT, 0),
		.past.error = copy_of(slot, ARCHIVE_ERROR),
		.past.log = copy_of(slot, ARCHIVE_ATTEMPT_LOG),
		.past.progress = copy_of(slot, ARCHIVE_PROGRESS),
		.past.attempt = fairq_int_of(slot, ARCHIVE_ATTEMPT, 0),
		.run_at = DT_NOBEGIN,
		.expires_at = DT_NOEND,
		.put_back_at = GetCurrentTimestamp()
	};

	/* so that no other call redrives the task, even if the key is taken */
	if (!fairq_table_lock(archived, &tid))
		return false;
	/* a key that the task has given up is not returned to it */
	if (DatumGetPointer(new.dedup.key) != NULL &&
		!(new.dedup.until_started && new.past.attempt > 0) &&
		fairq_take_key(e, new.dedup.key, new.id, false) != new.id)
		return false;
	rejoin(e, &new, DatumGetInt64(fairq_column(slot, ARCHIVE_BATCH)));
	/* first, because it deletes values that are stored out of line */
	fairq_add_task(e, &new);
	fairq_table_delete(archived, &tid);
	return true;
}

/* Whether the task is one of that group, or of a group of that tenant. */
static bool
is_of_group(const FairqQueue *queue, TupleTableSlot *slot, text *group_key)
{
	Datum		key = fairq_column(slot, ARCHIVE_GROUP_KEY);

	return fairq_key_is_of(queue, DatumGetTextPP(key), group_key);
}

/*
 * fairq.redrive(queue, group_key, max_tasks, to_queue, to_priority, to_group)
 */
Datum
fairq_redrive(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	int64		most = PG_ARGISNULL(2) ? PG_INT64_MAX :
		fairq_check_int("max_tasks", PG_GETARG_INT32(2), 1,
						PG_INT32_MAX);
	FairqEnqueue e = {.ready = false};
	FairqQueue *queue;
	Target		to;
	FairqTable *archived;
	FairqScan  *scan;
	FairqRowState state;
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq task",
											   ALLOCSET_DEFAULT_SIZES);
	bool		any_of_group = false;
	int64		redriven = 0;

	fairq_writes("fairq.redrive()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	to = arg_target(fcinfo, 3);
	e.queue = to.queue != NULL ? to.queue : queue;
	e.tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	archived = fairq_table_beside(e.tasks, FAIRQ_ARCHIVE);
	scan = fairq_scan_begin(archived, FAIRQ_ARCHIVE_BY_STATUS,
							fairq_range_2(Int32GetDatum(queue->id),
										  Int16GetDatum(FAIRQ_STATUS_FAILED)));
	while (redriven < most &&
		   (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		TupleTableSlot *slot = scan->slot;
		MemoryContext old;

		if (group_key != NULL && !is_of_group(queue, slot, group_key))
			continue;
		/* even uncommitted ones, which SQL does not see */
		any_of_group = true;
		if (state != FAIRQ_ROW_LIVE)
			continue;
		old = MemoryContextSwitchTo(each);
		if (redrive_task(&e, &to, archived, slot))
			redriven++;
		MemoryContextSwitchTo(old);
		MemoryContextReset(each);
	}
	fairq_scan_end(scan);
	fairq_add_end(&e, redriven > 0);
	MemoryContextDelete(each);

	if (group_key != NULL && !any_of_group)
		(void) fairq_existing_group(queue, group_key);
	PG_RETURN_INT64(redriven);
}

/*
 * Find a failed task by its id.  The scan is then at its row.  NULL: there is
 * none, or the caller may not manage its queue, or the row is being changed.
 */
static FairqScan *
find_failed(FairqEnqueue *e, FairqTable *archived, int64 id)
{
	FairqScan  *scan = fairq_scan_begin(archived, FAIRQ_ARCHIVE_BY_ID,
										fairq_range(Int64GetDatum(id)));

	while (fairq_scan_next_live(scan))
	{
		TupleTableSlot *slot = scan->slot;

		if (DatumGetInt16(fairq_column(slot, ARCHIVE_STATUS)) !=
			FAIRQ_STATUS_FAILED)
			continue;
		e->queue = fairq_queue_use_id(fairq_int_of(slot, ARCHIVE_QUEUE_ID, 0),
									  FAIRQ_PRIV_MANAGE, true);
		if (e->queue != NULL)
			return scan;
	}
	fairq_scan_end(scan);
	return NULL;
}

/* fairq.redrive(id, to_queue, to_priority, to_group) */
Datum
fairq_redrive_task(PG_FUNCTION_ARGS)
{
	FairqEnqueue e = {.ready = false};
	FairqTable *archived;
	FairqScan  *scan = NULL;
	bool		redriven = false;
	Target		to;

	fairq_writes("fairq.redrive()");
	to = arg_target(fcinfo, 1);
	e.tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	archived = fairq_table_beside(e.tasks, FAIRQ_ARCHIVE);
	if (!PG_ARGISNULL(0))
		scan = find_failed(&e, archived, PG_GETARG_INT64(0));
	if (scan != NULL)
	{
		if (to.queue != NULL)
			e.queue = to.queue;
		redriven = redrive_task(&e, &to, archived, scan->slot);
		fairq_scan_end(scan);
	}
	fairq_add_end(&e, redriven);
	PG_RETURN_BOOL(redriven);
}

/* The prefix of the keys of a tenant's groups; NULL: it is not a tenant. */
static FairqSqlArg
of_tenant(const FairqQueue *queue, const text *group_key)
{
	bool		is_tenant = group_key != NULL &&
		fairq_is_tenant_key(queue, group_key);
	FairqSqlArg arg = fairq_sql_text(NULL);
	char	   *prefix;

	arg.isnull = !is_tenant;
	if (!is_tenant)
		return arg;
	prefix = psprintf("%s%c", text_to_cstring(group_key),
					  queue->shares.separator);
	return fairq_sql_text(cstring_to_text(prefix));
}

/* A group may be known only by its failed tasks.  Otherwise raise an error. */
static void
check_group(FairqQueue *queue, text *group_key)
{
	FairqSqlArg args[] = {
		fairq_sql_int4(queue->id),
		fairq_sql_text(group_key),
		of_tenant(queue, group_key)
	};

	if (fairq_sql("SELECT 1::bigint FROM fairq.archive"
				  " WHERE queue_id = $1 AND status = 2"
				  " AND (group_key = $2 OR starts_with(group_key, $3)) LIMIT 1",
				  args, lengthof(args), NULL) == 0)
		(void) fairq_existing_group(queue, group_key);
}

/* fairq.purge_failed(queue, group_key, older_than) */
Datum
fairq_purge_failed(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	Interval	none = {0};
	Interval   *older_than = PG_ARGISNULL(2) ? &none : PG_GETARG_INTERVAL_P(2);
	FairqQueue *queue;
	FairqSqlArg args[4];
	uint64		deleted;

	(void) fairq_check_delay("older_than", older_than);
	fairq_writes("fairq.purge_failed()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	args[0] = fairq_sql_int4(queue->id);
	args[1] = fairq_sql_text(group_key);
	args[1].isnull = group_key == NULL;
	args[2] = (FairqSqlArg) {INTERVALOID, IntervalPGetDatum(older_than)};
	args[3] = of_tenant(queue, group_key);
	deleted = fairq_sql("DELETE FROM fairq.archive"
						" WHERE queue_id = $1 AND status = 2"
						" AND finished_at <= clock_timestamp() - $3"
						" AND ($2 IS NULL OR group_key = $2"
						" OR starts_with(group_key, $4))",
						args, lengthof(args), NULL);
	if (deleted == 0 && group_key != NULL)
		check_group(queue, group_key);
	PG_RETURN_INT64((int64) deleted);
}
