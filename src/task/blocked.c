/*
 * blocked.c
 *		Blocked tasks: those that wait for a batch, or for named tasks.
 *
 * A blocked task has a row in fairq.task from the beginning, and is timed.
 * When it becomes due, a pop checks whether its wait is over (claim.c).  If
 * the wait is not over, the task gets a later time.  If it is over, the same
 * change of the row makes the task ready.  So a crash strands no task, and the
 * rollback of a pop undoes its check.  Checks become less frequent with time.
 * Therefore the end of what may be the last awaited task makes the next check
 * due, unless the waiting task's row is locked (outcome.c).
 *
 * A task that our own transaction has taken ends at the commit, because until
 * then the task can be put back (taken.c).  A check that finds such a task
 * leaves the waiting task due, for a check after the commit.
 *
 * Batches.  A batch has the id of the task that waits for it.  The rows of its
 * tasks decide when the batch is finished.  A closed batch is finished when no
 * row has its id, including rows that an open transaction inserts or deletes.
 * The end of a task changes only that task's row, so ends do not compete for
 * one row.
 *
 * Numbers.  fairq.batch_delta gets a row for each call that adds tasks, and
 * one for each end without success.  A redriven task reduces the failures by
 * one.  The transaction that finishes the batch adds up these rows and deletes
 * them.  Once the batch is over, the added tasks that have not ended without
 * success have succeeded.
 *
 * Adding while finishing.  A transaction that adds a task holds RowShareLock
 * on the batch as an object, to its end.  It checks under that lock that the
 * batch is open.  A transaction that finishes a batch takes ExclusiveLock, if
 * that is free, and then searches for rows.  So once a closed batch is locked,
 * no transaction adds tasks to it, now or later.  Closing a batch does not
 * take that lock.
 *
 * Predecessors are the named tasks for whose ends a task waits.
 * fairq.dependency has a row for each of them, which is deleted when the wait
 * ends.  A predecessor without a row in fairq.task has ended.  A task that
 * succeeds leaves no row in fairq.dependency.  A task that ends without
 * success adds a row with its status for each task that waits for it.  An
 * index finds these rows.
 *
 * An enqueue can be concurrent with an end.  Neither transaction blocks on the
 * other.  The enqueue inserts its rows, and then reads the predecessor.  The
 * end deletes the predecessor, and then searches for rows, including those of
 * open transactions.  So either the end finds the rows, or the enqueue finds
 * that the predecessor is deleted or being changed.  A row that is being
 * changed shows neither whether its task is ending nor with which status.  So
 * a transaction that ends a task without success locks its own id, as an
 * object, before it searches for rows.  The enqueue tests the lock on the id
 * of the transaction that changes the row.  If the lock is free, that
 * transaction has not searched yet, and will find the rows.  Otherwise the
 * enqueue fails.
 *
 * Only existing tasks can be predecessors, so these waits alone form no cycle.
 * With a batch a cycle is possible.  add_to_batch() refuses the shortest
 * cycle, in which a task of a batch waits for the task that waits for the
 * batch.
 *
 * Hints.  FairqHints.awaited is true if other tasks may wait for tasks of the
 * queue.  If it is false, an end with success does not search.  An enqueue
 * sets it to true; after a restart, so does a check of a blocked task.
 *
 * test/model/batch.py and after.py check these rules.
 *
 * Locking: the locks above, to the end of the transaction; an enqueue that
 * tests the lock of a transaction holds it for a moment.  Only a transaction
 * that has locked a waiting task changes the task's row of fairq.batch, or
 * deletes its rows of fairq.dependency.
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "utils/fmgrprotos.h"

#include "blocked.h"
#include "queue.h"
#include "store_spi.h"
#include "taken.h"
#include "tools.h"

/* a predecessor that has not ended */
#define NOT_ENDED (-1)

/* A row of fairq.batch. */
typedef struct Batch
{
	int32		queue_id;		/* queue of the task that waits for the
								 * batch */
	bool		on_success;		/* true: all tasks of the batch have to
								 * succeed */
	bool		closed;			/* true: no more tasks can be added */
	bool		finished;		/* true: the wait for the batch is over */
} Batch;

/*
 * The last tasks of batches that this backend has seen.  The last task of a
 * batch usually ends last, so most ends and checks read only its row.
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

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, fairq_relid(FAIRQ_BATCH),
					   (uint32) id, (uint16) (id >> 32));
	return LockAcquire(&tag, lockmode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * Read a batch as it is committed, or as our own transaction has changed it.
 */
static bool
read_batch(FairqTable *tasks, int64 id, Batch *batch)
{
	FairqRange	range = fairq_range(Int64GetDatum(id));
	FairqScan  *scan = fairq_scan_begin(fairq_table_beside(tasks, FAIRQ_BATCH),
										FAIRQ_BATCH_BY_ID, range);
	bool		found = fairq_scan_find_current(scan, range);

	if (found)
	{
		TupleTableSlot *slot = scan->slot;

		batch->queue_id = fairq_int_of(slot, BATCH_QUEUE_ID, 0);
		batch->on_success = DatumGetBool(fairq_column(slot, BATCH_ON_SUCCESS));
		batch->closed = !slot_attisnull(slot, BATCH_CLOSED_AT);
		batch->finished = !slot_attisnull(slot, BATCH_FINISHED_AT);
	}
	fairq_scan_end(scan);
	return found;
}

/*
 * Whether the caller may add a task to the batch.  The caller needs the
 * privilege to enqueue, and the batch has to be open.  To redrive a task of
 * the batch (again), it is enough that the batch is not finished.
 */
static bool
takes_tasks(FairqTable *tasks, int64 id, bool again)
{
	Batch		batch;
	const FairqQueue *queue;

	return read_batch(tasks, id, &batch) && !batch.finished &&
		(again || (!batch.closed &&
				   (queue = fairq_queue_by_id(batch.queue_id, true)) != NULL &&
				   fairq_may(queue, FAIRQ_PRIV_ENQUEUE)));
}

/*
 * Whether the caller may add a task until the end of the transaction.  The
 * first check takes no lock, so a caller waits for a closed batch only if the
 * batch is closed and finished after that check.
 */
bool
fairq_batch_join(FairqTable *tasks, int64 id, bool again)
{
	return takes_tasks(tasks, id, again) &&
		lock_batch(id, RowShareLock, true) && takes_tasks(tasks, id, again);
}

/*
 * Record that n tasks were added to the batch, or how one of its tasks has
 * ended.
 */
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
	fairq_set_if_any(values, nulls, DELTA_TASK_ID, Int64GetDatum(task_id));
	fairq_table_insert(deltas, values, nulls, DELTA_NATTS);
}

/*
 * Whether a task of the batch has a row.  With changing, also find rows that
 * an open transaction is changing or deleting.
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
	 * First search backwards from the last task seen.  A search from the end
	 * of the batch would visit the index entries of all later tasks, which
	 * have ended.
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
 * Whether the batch may be over, if we commit.  One of its tasks has just
 * ended, with or without success.  Uncommitted ends of other transactions are
 * included, because otherwise neither of the last two ends would detect that
 * the batch is over.
 */
bool
fairq_batch_may_be_over(FairqTable *tasks, int64 id, bool success)
{
	Batch		batch;

	return (!success || !has_tasks(tasks, id, false)) &&
		read_batch(tasks, id, &batch) && !batch.finished &&
		((batch.on_success && !success) ||
		 (batch.closed && !has_tasks(tasks, id, false)));
}

/* Whether fairq.batch_delta has rows in the range. */
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
	Datum		added = Int16GetDatum(FAIRQ_BATCH_ADDED);
	Datum		others = Int16GetDatum(FAIRQ_BATCH_ADDED + 1);
	FairqSqlArg arg = {INT8OID, Int64GetDatum(id)};
	int64		failed = 0;

	/*
	 * skip the rows of added tasks, which may be many; usually no other rows
	 * exist
	 */
	if (!has_deltas(tasks, fairq_range_before(all, added)) &&
		!has_deltas(tasks, fairq_range_from(all, others)))
		return 0;
	fairq_sql("SELECT task_id FROM fairq.batch_delta"
			  " WHERE batch = $1 AND status <> 1"
			  " GROUP BY task_id HAVING sum(n) > 0 ORDER BY 1 LIMIT 1",
			  &arg, 1, &failed);
	return failed;
}

/*
 * Record that the batch is finished, with its numbers.  Returns the headers of
 * its task, to which the numbers are added.  failed: the batch is over before
 * all of its tasks have ended, so the number of successes is not known.
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
 * tasks have ended.  A batch is also over if SQL has deleted its row.
 * *headers are the headers of the waiting task, with the batch's numbers if
 * the batch is done.  *failed is a task of the batch that had to succeed and
 * did not; 0: none.
 */
FairqBatchState
fairq_batch_look(FairqTable *tasks, const FairqTask *task, Datum *headers,
				 int64 *failed)
{
	Batch		batch;

	*failed = 0;
	*headers = fairq_column(tasks->locked.slot, TASK_HEADERS);
	if (!read_batch(tasks, task->id, &batch))
		return FAIRQ_BATCH_DONE;
	if (batch.on_success)
		*failed = first_failed(tasks, task->id);
	if (*failed != 0)
	{
		(void) finish(task->id, *headers, true);
		return FAIRQ_BATCH_FAILED;
	}
	if (fairq_is_taken(FAIRQ_TAKEN_OF(task->id)))
		return FAIRQ_BATCH_TAKEN;
	if (!batch.closed || has_tasks(tasks, task->id, true) ||
		!lock_batch(task->id, ExclusiveLock, false) ||
		has_tasks(tasks, task->id, true))
		return FAIRQ_BATCH_OPEN;
	/* a task may have ended without success since the first check */
	if (batch.on_success && first_failed(tasks, task->id) != 0)
		return FAIRQ_BATCH_OPEN;
	*headers = finish(task->id, *headers, false);
	return FAIRQ_BATCH_DONE;
}

/*
 * Close the batch, or record that no task waits for it.  Returns false if it
 * was closed before, or does not exist.
 */
bool
fairq_batch_end(int64 id, bool finished)
{
	FairqSqlArg args[] = {
		{INT8OID, Int64GetDatum(id)},
		{BOOLOID, BoolGetDatum(finished)}
	};

	return fairq_sql("UPDATE fairq.batch b SET"
					 " closed_at = coalesce(closed_at, now), finished_at"
					 " = coalesce(finished_at, CASE WHEN $2 THEN now END)"
					 " FROM clock_timestamp() now"
					 " WHERE b.id = $1 AND ($2 OR closed_at IS NULL)",
					 args, lengthof(args), NULL) > 0;
}

static FairqTable *
open_dependencies(FairqTable *tasks)
{
	return fairq_table_beside(tasks, FAIRQ_DEPENDENCY);
}

/*
 * Add a row: a task waits for a predecessor, or the predecessor has ended with
 * a status.
 */
static void
add_row(FairqTable *tasks, int64 id, int64 predecessor, bool on_success,
		int status)
{
	Datum		values[DEPENDENCY_NATTS];
	bool		nulls[DEPENDENCY_NATTS] = {0};

	fairq_set(values, nulls, DEPENDENCY_WAITING, Int64GetDatum(id));
	fairq_set(values, nulls, DEPENDENCY_TASK, Int64GetDatum(predecessor));
	fairq_set(values, nulls, DEPENDENCY_ON_SUCCESS,
			  BoolGetDatum(on_success));
	values[DEPENDENCY_STATUS - 1] = Int16GetDatum(status);
	nulls[DEPENDENCY_STATUS - 1] = status == NOT_ENDED;
	fairq_table_insert(open_dependencies(tasks), values, nulls,
					   DEPENDENCY_NATTS);
}

/*
 * Lock the id of a transaction; with release, only for a moment.  Returns
 * false if another transaction holds the lock.
 */
static bool
lock_transaction(TransactionId xid, LOCKMODE lockmode, bool release)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, fairq_relid(FAIRQ_DEPENDENCY), xid,
					   0);
	if (LockAcquire(&tag, lockmode, false, release) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	if (release)
		LockRelease(&tag, lockmode, false);
	return true;
}

/* Whether the caller may name tasks of a queue as predecessors. */
static bool
may_name(int32 queue_id)
{
	const FairqQueue *queue = fairq_queue_by_id(queue_id, true);

	return queue != NULL &&
		fairq_may(queue, FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK);
}

static void
refuse_task(int64 id)
{
	ereport(ERROR,
			errcode(ERRCODE_FAIRQ_NO_TASK),
			errmsg("no task can wait for task " INT64_FORMAT, id),
			errdetail("It does not exist, or has ended and is not in the archive, or another transaction is ending it without success."));
}

/* How a task without a row has ended, according to the archive. */
static int
archived_status(FairqTable *tasks, int64 id)
{
	FairqRange	range = fairq_range(Int64GetDatum(id));
	FairqTable *archived = fairq_table_beside(tasks, FAIRQ_ARCHIVE);
	FairqScan  *scan = fairq_scan_begin(archived, FAIRQ_ARCHIVE_BY_ID, range);
	int			status;

	if (!fairq_scan_find_current(scan, range) ||
		!may_name(fairq_int_of(scan->slot, ARCHIVE_QUEUE_ID, 0)))
		refuse_task(id);
	status = DatumGetInt16(fairq_column(scan->slot, ARCHIVE_STATUS));
	fairq_scan_end(scan);
	return status;
}

/* Record that tasks may wait for a task of the queue. */
static void
note_awaited(int32 queue_id)
{
	FairqQueue *queue = fairq_queue_by_id(queue_id, true);

	if (queue != NULL)
		queue->hints->awaited = true;
}

/*
 * How a predecessor has ended, or NOT_ENDED.  The caller has inserted the rows
 * that name it.
 */
static int
status_of(FairqTable *tasks, int64 id)
{
	TransactionId tested = InvalidTransactionId;
	TransactionId changer;
	FairqTask	task;

	while (fairq_task_find_in_index(tasks, id, &task, &changer) ||
		   TransactionIdIsValid(changer))
	{
		CHECK_FOR_INTERRUPTS();
		if (!may_name(task.queue_id))
			refuse_task(id);
		note_awaited(task.queue_id);
		if (TransactionIdIsValid(changer))
			changer = SubTransGetTopmostTransaction(changer);
		/* the changer was open during the test, so it has not searched yet */
		if (!TransactionIdIsValid(changer) || changer == tested)
			return NOT_ENDED;
		if (!lock_transaction(changer, ShareLock, true))
			refuse_task(id);
		tested = changer;
	}
	return archived_status(tasks, id);
}

/*
 * Add the rows of a new task for its predecessors.  Returns the time of the
 * first check.
 */
TimestampTz
fairq_after_add(FairqTable *tasks, const FairqAfter *after, int64 id,
				TimestampTz now)
{
	bool		waits = false;
	bool		failed = false;

	for (int i = 0; i < after->n; i++)
		add_row(tasks, id, after->ids[i], !after->any, NOT_ENDED);
	for (int i = 0; i < after->n; i++)
	{
		int			status = status_of(tasks, after->ids[i]);

		waits |= status == NOT_ENDED;
		if (after->any || status == NOT_ENDED ||
			status == FAIRQ_STATUS_COMPLETED)
			continue;
		add_row(tasks, id, after->ids[i], true, status);
		failed = true;
	}
	return fairq_as_due(now) + (waits && !failed ? USECS_PER_SEC : 0);
}

/*
 * Whether the predecessor with this id has ended (FAIRQ_BATCH_DONE).  If
 * changing is true, it counts as not ended if another transaction is changing
 * or ending it, or if our own transaction has taken it.
 */
static FairqBatchState
look_at_predecessor(FairqTable *tasks, int64 id, bool changing)
{
	TransactionId changer;
	FairqTask	task;

	if (changing && fairq_is_taken(id))
		return FAIRQ_BATCH_TAKEN;
	if (!fairq_task_find_in_index(tasks, id, &task, &changer) &&
		!(changing && TransactionIdIsValid(changer)))
		return FAIRQ_BATCH_DONE;
	note_awaited(task.queue_id);
	return FAIRQ_BATCH_OPEN;
}

/*
 * Move to the next row that names a predecessor.  Returns the predecessor's
 * id, or 0 at the end of the scan.
 */
static int64
next_predecessor(FairqScan *scan)
{
	while (fairq_scan_next_current(scan))
	{
		TupleTableSlot *slot = scan->slot;

		CHECK_FOR_INTERRUPTS();
		if (slot_attisnull(slot, DEPENDENCY_STATUS))
			return DatumGetInt64(fairq_column(slot, DEPENDENCY_TASK));
	}
	return 0;
}

/*
 * Search for a predecessor that has not ended.  If many have ended, these
 * usually have the lowest ids, or the highest ones.  So two scans, one from
 * each end, take turns until they meet.  *last is the highest id.
 */
static FairqBatchState
look_at_predecessors(FairqTable *tasks, int64 id, bool changing, int64 *last)
{
	FairqRange	range = fairq_range(Int64GetDatum(id));
	FairqScan  *down = fairq_scan_begin(open_dependencies(tasks),
										FAIRQ_DEPENDENCY_BY_WAITING,
										fairq_range_backward(range));
	FairqScan  *up = NULL;
	int64		high = next_predecessor(down);
	int64		low = 0;
	FairqBatchState state = FAIRQ_BATCH_DONE;

	*last = high;
	for (; high > low; high = next_predecessor(down))
	{
		state = look_at_predecessor(tasks, high, changing);
		if (state != FAIRQ_BATCH_DONE)
			break;
		if (up == NULL)
			up = fairq_scan_begin(open_dependencies(tasks),
								  FAIRQ_DEPENDENCY_BY_WAITING, range);
		low = next_predecessor(up);
		if (low < high)
			state = look_at_predecessor(tasks, low, changing);
		if (state != FAIRQ_BATCH_DONE)
			break;
	}
	fairq_scan_end(up);
	fairq_scan_end(down);
	return state;
}

/*
 * Check the predecessors of a task.  *task is a predecessor that failed, or
 * the one with the highest id.  changing: as for look_at_predecessor().
 */
FairqBatchState
fairq_after_look(FairqTable *tasks, int64 id, bool changing, int64 *task)
{
	FairqBatchState state = look_at_predecessors(tasks, id, changing, task);
	FairqScan  *scan;

	/*
	 * In the index, rows of ends without success precede the others.  This
	 * search follows the one for predecessors, since one of these may have
	 * ended meanwhile.
	 */
	scan = fairq_scan_begin(open_dependencies(tasks),
							FAIRQ_DEPENDENCY_BY_WAITING,
							fairq_range(Int64GetDatum(id)));
	if (!fairq_scan_next_current(scan))
		state = FAIRQ_BATCH_NONE;
	else if (!slot_attisnull(scan->slot, DEPENDENCY_STATUS))
	{
		state = FAIRQ_BATCH_FAILED;
		*task = DatumGetInt64(fairq_column(scan->slot, DEPENDENCY_TASK));
	}
	fairq_scan_end(scan);
	return state;
}

/*
 * Whether the wait of a blocked task may be over.  Uncommitted ends of other
 * transactions are included.
 */
bool
fairq_blocked_may_be_over(FairqTable *tasks, int64 id)
{
	int64		other;
	FairqBatchState state = fairq_after_look(tasks, id, false, &other);

	return state == FAIRQ_BATCH_NONE ?
		fairq_batch_may_be_over(tasks, id, true) : state > FAIRQ_BATCH_OPEN;
}

/*
 * Delete the rows of a locked task whose wait ends.  Returns false if there
 * are none.
 */
bool
fairq_after_forget(FairqTable *tasks, int64 id)
{
	FairqTable *dependencies = open_dependencies(tasks);
	FairqScan  *scan = fairq_scan_begin(dependencies,
										FAIRQ_DEPENDENCY_BY_WAITING,
										fairq_range(Int64GetDatum(id)));
	bool		any = false;

	while (fairq_scan_next_live(scan))
	{
		ItemPointerData tid = scan->slot->tts_tid;

		if (!fairq_table_lock(dependencies, &tid))
			continue;
		fairq_table_delete(dependencies, &tid);
		any = true;
	}
	fairq_scan_end(scan);
	return any;
}

/*
 * Record an end without success for the tasks that wait for its success.  The
 * caller has deleted the row of the task that has ended.  Returns whether any
 * task may wait for the ended task.
 */
bool
fairq_after_failed(FairqTable *tasks, int64 id, FairqStatus status)
{
	FairqTable *dependencies = open_dependencies(tasks);
	FairqScan  *scan;
	bool		any = false;

	(void) lock_transaction(GetTopTransactionId(), RowExclusiveLock, false);
	/* this is cheaper than a search if nobody uses "after" */
	if (RelationGetNumberOfBlocks(dependencies->rel) == 0)
		return false;
	scan = fairq_scan_begin(dependencies, FAIRQ_DEPENDENCY_BY_TASK,
							fairq_range(Int64GetDatum(id)));
	while (fairq_scan_next(scan) != FAIRQ_ROW_END)
	{
		TupleTableSlot *slot = scan->slot;

		if (!slot_attisnull(slot, DEPENDENCY_STATUS))
			continue;
		any = true;
		if (DatumGetBool(fairq_column(slot, DEPENDENCY_ON_SUCCESS)))
			add_row(tasks, DatumGetInt64(fairq_column(slot,
													  DEPENDENCY_WAITING)),
					id, true, status);
	}
	fairq_scan_end(scan);
	return any;
}
