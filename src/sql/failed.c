/*
 * failed.c
 *		fairq.redrive, fairq.purge_failed: for tasks that have failed for good.
 *
 * They are in the archive until they are put back into their queue, or
 * deleted.  One that is put back is a new task with the id of the old one.  It
 * may have as many attempts as a new one.  Their numbers continue from the
 * last one, so a worker that has lost an earlier attempt ends none of them.
 * The task does not expire any more.
 *
 * Large values are copied from one table to the other one column after the
 * other, as they are stored, compressed and out of line.  Together they may be
 * larger than any row in memory can be.
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on the tables; the
 * archived row, to the end of the transaction.  redrive skips rows that others
 * are changing; purge_failed is SQL, and waits for them.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "add.h"
#include "args.h"
#include "group.h"
#include "outcome.h"
#include "store_spi.h"
#include "transaction.h"

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

/*
 * Put an archived task back.  False if it is being changed, or another task
 * has its dedup_key by now, or is just taking it.
 */
static bool
redrive_task(FairqEnqueue *e, FairqTable *archived, TupleTableSlot *slot)
{
	ItemPointerData tid = slot->tts_tid;
	FairqNewTask new = {
		.id = DatumGetInt64(fairq_column(slot, ARCHIVE_ID)),
		.enqueued_at = fairq_time_of(slot, ARCHIVE_ENQUEUED_AT, 0),
		.popped_at = fairq_time_of(slot, ARCHIVE_POPPED_AT, 0),
		.attempt = fairq_int_of(slot, ARCHIVE_ATTEMPT, 0),
		.max_attempts = fairq_int_of(slot, ARCHIVE_MAX_ATTEMPTS, 0),
		.cost = DatumGetFloat4(fairq_column(slot, ARCHIVE_COST)),
		.priority = DatumGetInt16(fairq_column(slot, ARCHIVE_PRIORITY)),
		.group_key = DatumGetTextPP(copy_text(slot, ARCHIVE_GROUP_KEY)),
		.payload = copy_of(slot, ARCHIVE_PAYLOAD),
		.headers = copy_of(slot, ARCHIVE_HEADERS),
		.dedup.key = copy_text(slot, ARCHIVE_DEDUP_KEY),
		.dedup.held_for = copy_of(slot, ARCHIVE_DEDUP_FOR),
		.dedup.until_started = !slot_attisnull(slot, ARCHIVE_UNTIL_STARTED),
		.error = copy_of(slot, ARCHIVE_ERROR),
		.run_at = DT_NOBEGIN,
		.expires_at = DT_NOEND,
		.put_back_at = GetCurrentTimestamp()
	};

	/* so that no other call redrives it, even if the key is taken */
	if (!fairq_table_lock(archived, &tid))
		return false;
	/* a key that the task has given up is not given back to it */
	if (DatumGetPointer(new.dedup.key) != NULL &&
		!(new.dedup.until_started && new.attempt > 0) &&
		fairq_take_key(e, new.dedup.key, new.id, false) != new.id)
		return false;
	/* first, as it deletes what is stored out of line */
	fairq_add_task(e, &new);
	fairq_table_delete(archived, &tid);
	return true;
}

static bool
is_of_group(TupleTableSlot *slot, text *group_key)
{
	Datum		key = fairq_column(slot, ARCHIVE_GROUP_KEY);

	return fairq_text_equal(DatumGetTextPP(key), group_key);
}

/* fairq.redrive(queue, group_key, max_tasks) */
Datum
fairq_redrive(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	int64		most = PG_ARGISNULL(2) ? PG_INT64_MAX :
		fairq_check_int("max_tasks", PG_GETARG_INT32(2), 1,
						PG_INT32_MAX);
	FairqEnqueue e = {.ready = false};
	FairqTable *archived;
	FairqScan  *scan;
	FairqRowState state;
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq task",
											   ALLOCSET_DEFAULT_SIZES);
	bool		any_of_group = false;
	int64		redriven = 0;

	fairq_writes("fairq.redrive()");
	e.queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	e.tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	archived = fairq_table_beside(e.tasks, &e.tasks->beside.archive,
								  fairq_catalog()->archive);
	scan = fairq_scan_begin(archived, FAIRQ_ARCHIVE_BY_STATUS,
							fairq_range_2(Int32GetDatum(e.queue->id),
										  Int16GetDatum(FAIRQ_STATUS_FAILED)),
							false);
	while (redriven < most &&
		   (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		TupleTableSlot *slot = fairq_scan_slot(scan);
		MemoryContext old;

		if (group_key != NULL && !is_of_group(slot, group_key))
			continue;
		/* also by those that are not committed: SQL does not see them */
		any_of_group = true;
		if (state != FAIRQ_ROW_LIVE)
			continue;
		old = MemoryContextSwitchTo(each);
		if (redrive_task(&e, archived, slot))
			redriven++;
		MemoryContextSwitchTo(old);
		MemoryContextReset(each);
	}
	fairq_scan_end(scan);
	fairq_add_end(&e, redriven > 0);
	MemoryContextDelete(each);

	if (group_key != NULL && !any_of_group)
		(void) fairq_existing_group(e.queue, group_key);
	PG_RETURN_INT64(redriven);
}

/*
 * Find the failed task with that id.  The scan is at its row then; NULL: there
 * is none, or the caller may not manage its queue, or it is being changed.
 */
static FairqScan *
find_failed(FairqEnqueue *e, FairqTable *archived, int64 id)
{
	FairqScan  *scan = fairq_scan_begin(archived, FAIRQ_ARCHIVE_BY_ID,
										fairq_range(Int64GetDatum(id)), false);
	FairqRowState state;

	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		TupleTableSlot *slot = fairq_scan_slot(scan);

		if (state != FAIRQ_ROW_LIVE ||
			DatumGetInt16(fairq_column(slot, ARCHIVE_STATUS)) !=
			FAIRQ_STATUS_FAILED)
			continue;
		e->queue = fairq_queue_use_id(fairq_int_of(slot, ARCHIVE_QUEUE_ID, 0),
									  FAIRQ_PRIV_MANAGE);
		if (e->queue != NULL)
			return scan;
	}
	fairq_scan_end(scan);
	return NULL;
}

/* fairq.redrive(id) */
Datum
fairq_redrive_task(PG_FUNCTION_ARGS)
{
	FairqEnqueue e = {.ready = false};
	FairqTable *archived;
	FairqScan  *scan = NULL;
	bool		redriven = false;

	fairq_writes("fairq.redrive()");
	e.tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	archived = fairq_table_beside(e.tasks, &e.tasks->beside.archive,
								  fairq_catalog()->archive);
	if (!PG_ARGISNULL(0))
		scan = find_failed(&e, archived, PG_GETARG_INT64(0));
	if (scan != NULL)
	{
		redriven = redrive_task(&e, archived, fairq_scan_slot(scan));
		fairq_scan_end(scan);
	}
	fairq_add_end(&e, redriven);
	PG_RETURN_BOOL(redriven);
}

/*
 * A group may be known only by its failed tasks.  An error if it has none of
 * these, either.
 */
static void
check_group(FairqQueue *queue, text *group_key)
{
	FairqSqlArg args[] = {
		fairq_sql_int4(queue->id),
		fairq_sql_text(group_key)
	};

	if (fairq_sql("SELECT 1::bigint FROM fairq.archive"
				  " WHERE queue_id = $1 AND status = 2 AND group_key = $2 LIMIT 1",
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
	FairqSqlArg args[3];
	uint64		deleted;

	(void) fairq_check_delay("older_than", older_than);
	fairq_writes("fairq.purge_failed()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	args[0] = fairq_sql_int4(queue->id);
	args[1] = fairq_sql_text(group_key);
	args[1].isnull = group_key == NULL;
	args[2] = fairq_sql_interval(older_than);
	deleted = fairq_sql("DELETE FROM fairq.archive"
						" WHERE queue_id = $1 AND status = 2"
						" AND finished_at <= clock_timestamp() - $3"
						" AND ($2 IS NULL OR group_key = $2)",
						args, lengthof(args), NULL);
	if (deleted == 0 && group_key != NULL)
		check_group(queue, group_key);
	PG_RETURN_INT64((int64) deleted);
}
