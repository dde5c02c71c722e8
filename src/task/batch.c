/*
 * batch.c
 *		Batches: sets of tasks whose ends another task waits for.
 *
 * A batch has the id of the task that waits for it.  That task is a row of
 * fairq.task from the beginning, blocked and timed.  When it becomes due, a
 * pop checks the batch (claim.c).  If the batch is not finished, the task gets
 * a later time.  If it is, the same change of its row makes the task ready.
 * So a crash strands no task, and the rollback of a pop undoes its check.
 *
 * Checks become less frequent with time.  So the end of a possibly last task
 * makes the next check due, if the row of the waiting task is free.
 *
 * The rows of the batch's tasks decide when it is finished.  A closed batch is
 * finished when no row has its id, including rows that an open transaction
 * inserts or deletes.  An end touches only its own task, so no row is hot.
 *
 * Numbers.  fairq.batch_delta gets a row for each call that adds tasks, and
 * one for each end without success.  A redriven task reduces the failures by
 * one.  The transaction that finishes the batch adds them up and deletes them.
 * Tasks that were added and have no other end have succeeded.
 *
 * Adding against finishing.  A transaction that adds a task holds RowShareLock
 * on the batch as an object, to its end.  It checks under that lock that the
 * batch is open.  A transaction that finishes a batch takes ExclusiveLock, if
 * that is free, and then searches for rows.  So once a closed batch is locked,
 * no transaction adds tasks to it, now or later.  Closing a batch does not
 * take that lock.
 *
 * Locking: the lock above; the row of fairq.batch is changed only by a
 * transaction that has locked its task's row.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/fmgrprotos.h"

#include "batch.h"
#include "queue.h"
#include "store_spi.h"

/*
 * The last tasks of batches that this backend has seen.  The last task usually
 * ends last, so most ends and checks read only its row.
 */
#define SEEN_SLOTS 64

static struct
{
	int64		batch;
	int64		id;				/* id of the task */
	ItemPointerData tid;		/* TID to which its index entry points */
}			seen[SEEN_SLOTS];

/*
 * Lock the batch as an object.  Returns false if the lock is not free and wait
 * is false.
 */
static bool
lock_batch(int64 id, LOCKMODE lockmode, bool wait)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, fairq_relid(FAIRQ_BATCH), (uint32) id,
					   (uint16) (id >> 32));
	return LockAcquire(&tag, lockmode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

/* Write the row of a new batch. */
void
fairq_batch_create(FairqTable *tasks, const FairqBatch *batch, TimestampTz now)
{
	Datum		values[BATCH_NATTS];
	bool		nulls[BATCH_NATTS];

	memset(nulls, true, sizeof(nulls));
	fairq_set(values, nulls, BATCH_ID, Int64GetDatum(batch->id));
	fairq_set(values, nulls, BATCH_QUEUE_ID, Int32GetDatum(batch->queue_id));
	fairq_set(values, nulls, BATCH_ON_SUCCESS,
			  BoolGetDatum(batch->on_success));
	fairq_set(values, nulls, BATCH_CREATED_AT, TimestampTzGetDatum(now));
	fairq_table_insert(fairq_table_beside(tasks, FAIRQ_BATCH), values, nulls,
					   BATCH_NATTS);
}

/* Read a batch in its committed state, or in the state of our own changes. */
bool
fairq_batch_read(FairqTable *tasks, int64 id, FairqBatch *batch)
{
	FairqRange	range = fairq_range(Int64GetDatum(id));
	FairqScan  *scan = fairq_scan_begin(fairq_table_beside(tasks, FAIRQ_BATCH),
										FAIRQ_BATCH_BY_ID, range);
	bool		found = fairq_scan_find_current(scan, range);

	if (found)
	{
		TupleTableSlot *slot = scan->slot;

		batch->id = id;
		batch->queue_id = fairq_int_of(slot, BATCH_QUEUE_ID, 0);
		batch->on_success = DatumGetBool(fairq_column(slot, BATCH_ON_SUCCESS));
		batch->closed = !slot_attisnull(slot, BATCH_CLOSED_AT);
		batch->finished = !slot_attisnull(slot, BATCH_FINISHED_AT);
	}
	fairq_scan_end(scan);
	return found;
}

/*
 * Whether the caller may add a task to the batch: it may enqueue, or it
 * redrives a task of the batch.
 */
static bool
takes_tasks(FairqTable *tasks, int64 id, bool again)
{
	FairqBatch	batch;
	const FairqQueue *queue;

	return fairq_batch_read(tasks, id, &batch) && !batch.finished &&
		(again || (!batch.closed &&
				   (queue = fairq_queue_by_id(batch.queue_id)) != NULL &&
				   fairq_may(queue, FAIRQ_PRIV_ENQUEUE)));
}

/*
 * Whether the caller may do so until the end of the transaction.  The first
 * check is without the lock, so a caller waits for a closed batch only if it
 * is closed and finished after that check.
 */
bool
fairq_batch_join(FairqTable *tasks, int64 id, bool again)
{
	return takes_tasks(tasks, id, again) &&
		lock_batch(id, RowShareLock, true) && takes_tasks(tasks, id, again);
}

/* Count n tasks of the batch as added, or one task with its kind of end. */
void
fairq_batch_count(FairqTable *tasks, int64 id, int status, int64 n,
				  int64 task_id)
{
	FairqTable *deltas = fairq_table_beside(tasks, FAIRQ_BATCH_DELTA);
	Datum		values[DELTA_NATTS];
	bool		nulls[DELTA_NATTS] = {0};

	fairq_set(values, nulls, DELTA_BATCH, Int64GetDatum(id));
	fairq_set(values, nulls, DELTA_STATUS, Int16GetDatum(status));
	fairq_set(values, nulls, DELTA_N, Int64GetDatum(n));
	values[DELTA_TASK_ID - 1] = Int64GetDatum(task_id);
	nulls[DELTA_TASK_ID - 1] = task_id == 0;
	fairq_table_insert(deltas, values, nulls, DELTA_NATTS);
}

/*
 * Whether a task of the batch has a row.  With changing, rows that an open
 * transaction is changing or deleting count.
 */
static bool
has_tasks(FairqTable *tasks, int64 id, bool changing)
{
	int			slot = (uint64) id % SEEN_SLOTS;
	FairqTask	task;
	FairqRowState state = FAIRQ_ROW_END;

	if (seen[slot].batch == id)
		state = fairq_task_at(tasks, &seen[slot].tid, &task);
	if (state != FAIRQ_ROW_END && (changing || state != FAIRQ_ROW_CHANGING) &&
		task.id == seen[slot].id && task.batch == id)
		return true;

	/*
	 * First those before it.  Otherwise each search would visit the index
	 * entries of all tasks after it that have ended.
	 */
	if (!(seen[slot].batch == id &&
		  fairq_task_of_batch(tasks, id, seen[slot].id, changing, &task)) &&
		!fairq_task_of_batch(tasks, id, 0, changing, &task))
		return false;
	seen[slot].batch = id;
	seen[slot].id = task.id;
	seen[slot].tid = task.root;
	return true;
}

/*
 * Whether the batch may be over, if we commit: one of its tasks has just
 * ended, with or without success.  Uncommitted ends of other transactions
 * count: otherwise neither of the last two ends would detect it.
 */
bool
fairq_batch_may_be_over(FairqTable *tasks, int64 id, bool success)
{
	FairqBatch	batch;

	return (!success || !has_tasks(tasks, id, false)) &&
		fairq_batch_read(tasks, id, &batch) && !batch.finished &&
		((batch.on_success && !success) ||
		 (batch.closed && !has_tasks(tasks, id, false)));
}

/* Whether such rows of fairq.batch_delta exist. */
static bool
has_deltas(FairqTable *tasks, FairqRange range)
{
	FairqTable *deltas = fairq_table_beside(tasks, FAIRQ_BATCH_DELTA);
	FairqScan  *scan = fairq_scan_begin(deltas, FAIRQ_DELTA_BY_BATCH, range);
	bool		any = fairq_scan_next_current(scan);

	fairq_scan_end(scan);
	return any;
}

/* Returns the id of a task of the batch that did not succeed; 0: none. */
static int64
first_failed(FairqTable *tasks, int64 id)
{
	FairqRange	all = fairq_range(Int64GetDatum(id));
	FairqSqlArg arg = {INT8OID, Int64GetDatum(id)};
	int64		failed = 0;

	/* usually there is none, and many tasks were added */
	if (!has_deltas(tasks,
					fairq_range_before(all, Int16GetDatum(FAIRQ_BATCH_ADDED))) &&
		!has_deltas(tasks,
					fairq_range_from(all, Int16GetDatum(FAIRQ_BATCH_ADDED + 1))))
		return 0;
	fairq_sql("SELECT task_id FROM fairq.batch_delta"
			  " WHERE batch = $1 AND status <> 1"
			  " GROUP BY task_id HAVING sum(n) > 0 ORDER BY 1 LIMIT 1",
			  &arg, 1, &failed);
	return failed;
}

/*
 * Write that the batch is finished, with its numbers.  They are added to its
 * task's headers, which are returned.  If one of its tasks did not succeed,
 * the number of successes is not known.
 */
static Datum
finish(int64 id, Datum headers, bool failed)
{
	static const char *const sql =
		"WITH d AS (DELETE FROM fairq.batch_delta WHERE batch = $1"
		" RETURNING status, n), c AS (SELECT"
		" CASE WHEN NOT $3 THEN coalesce(sum(n) FILTER (WHERE status = 1), 0)"
		" - coalesce(sum(n) FILTER (WHERE status <> 1), 0) END AS completed,"
		" coalesce(sum(n) FILTER (WHERE status = 2), 0) AS failed,"
		" coalesce(sum(n) FILTER (WHERE status = 3), 0) AS cancelled,"
		" coalesce(sum(n) FILTER (WHERE status = 4), 0) AS expired,"
		" coalesce(sum(n) FILTER (WHERE status = 0), 0) AS purged FROM d)"
		" UPDATE fairq.batch b SET finished_at = clock_timestamp(),"
		" completed = c.completed, failed = c.failed,"
		" cancelled = c.cancelled, expired = c.expired, purged = c.purged"
		" FROM c WHERE b.id = $1"
		" RETURNING coalesce($2, '{}') || jsonb_build_object('batch',"
		" to_jsonb(c))";
	FairqSqlArg args[] = {
		{INT8OID, Int64GetDatum(id)},
		{JSONBOID, headers, DatumGetPointer(headers) == NULL},
		{BOOLOID, BoolGetDatum(failed)}
	};
	List	   *texts = fairq_sql_texts(sql, args, lengthof(args), false);
	char	   *text = texts == NIL ? NULL : strVal(linitial(texts));

	return text == NULL ? headers :
		DirectFunctionCall1(jsonb_in, CStringGetDatum(text));
}

/*
 * Check the batch that a locked task waits for, and finish it if all of its
 * tasks have ended.  A batch is also over if SQL has deleted its row.  Then
 * *headers are the headers of the task that waits.  *failed is a task of the
 * batch that had to succeed and did not; 0: none.
 */
FairqBatchState
fairq_batch_look(FairqTable *tasks, const FairqTask *task, Datum *headers,
				 int64 *failed)
{
	FairqBatch	batch;

	*failed = 0;
	*headers = fairq_column(tasks->locked.slot, TASK_HEADERS);
	if (!fairq_batch_read(tasks, task->id, &batch))
		return FAIRQ_BATCH_DONE;
	if (batch.on_success)
		*failed = first_failed(tasks, task->id);
	if (*failed != 0)
	{
		(void) finish(task->id, *headers, true);
		return FAIRQ_BATCH_FAILED;
	}
	if (!batch.closed || has_tasks(tasks, task->id, true) ||
		!lock_batch(task->id, ExclusiveLock, false) ||
		has_tasks(tasks, task->id, true))
		return FAIRQ_BATCH_OPEN;
	/* a task may have ended without success since */
	if (batch.on_success && first_failed(tasks, task->id) != 0)
		return FAIRQ_BATCH_OPEN;
	*headers = finish(task->id, *headers, false);
	return FAIRQ_BATCH_DONE;
}

/* Close the batch, or record that no task waits for it. */
void
fairq_batch_end(int64 id, bool finished)
{
	FairqSqlArg args[] = {
		{INT8OID, Int64GetDatum(id)},
		{BOOLOID, BoolGetDatum(finished)}
	};

	fairq_sql("UPDATE fairq.batch b SET closed_at = coalesce(closed_at, now),"
			  " finished_at = coalesce(finished_at, CASE WHEN $2 THEN now END)"
			  " FROM clock_timestamp() now WHERE b.id = $1",
			  args, lengthof(args), NULL);
}
