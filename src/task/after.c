/*
 * after.c
 *		After: tasks that wait for others, their predecessors, to end.
 *
 * Such a task is blocked and timed, like one that waits for a batch (batch.c).
 * A pop that finds it due checks its predecessors.  fairq.dependency has a row
 * for each of them, which is deleted when the wait ends.  A predecessor
 * without a row in fairq.task has ended.
 *
 * A task that succeeds leaves no row.  A task that ends without success adds a
 * row with its status for each task that waits for it.  An index finds them.
 *
 * An enqueue and a concurrent end.  Neither transaction blocks on the other.
 * The enqueue inserts its rows, and then reads the predecessor.  The end
 * deletes the predecessor, and then searches for rows, including those of open
 * transactions.  So either the end finds the rows, or the enqueue finds that
 * the predecessor is deleted or being changed.  A changed row does not show
 * whether its task is ending, and how.  So a transaction that ends a task
 * without success locks its own id, as an object, before it searches for rows.
 * The enqueue tests that lock of the transaction that changes the row.  If it
 * is free, that transaction has not searched yet, and will find the rows.
 * Otherwise the enqueue fails.
 *
 * Only existing tasks can be predecessors, so these waits alone form no cycle.
 * With a batch a cycle is possible.  fairq_add_to_batch() refuses the shortest
 * one: a task of a batch waits for the task that waits for the batch.
 *
 * Hints.  FairqHints.awaited is true if other tasks may wait for tasks of that
 * queue.  Without it, an end with success does not search.  An enqueue sets
 * it; after a restart, a look at a blocked task sets it.
 *
 * test/model/after.py checks these rules.
 *
 * Locking: the lock above, to the end of the transaction; an enqueue that
 * tests it holds it for a moment.  Only a transaction that has locked a task
 * that waits deletes its rows.
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "after.h"
#include "errors.h"
#include "queue.h"

/* a predecessor that has not ended */
#define NOT_ENDED (-1)

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
 * Lock the id of a transaction.  Returns false if another transaction holds
 * the lock.
 */
static bool
lock_transaction(TransactionId xid, LOCKMODE lockmode, bool release)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, fairq_relid(FAIRQ_DEPENDENCY), xid, 0);
	if (LockAcquire(&tag, lockmode, false, release) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	if (release)
		LockRelease(&tag, lockmode, false);
	return true;
}

/* Whether the caller may name tasks of a queue. */
static bool
may_name(int32 queue_id)
{
	const FairqQueue *queue = fairq_queue_by_id(queue_id);

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

/* The end of a task without a row, according to the archive. */
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
	FairqQueue *queue = fairq_queue_by_id(queue_id);

	if (queue != NULL)
		queue->hints->awaited = true;
}

/*
 * The end of a predecessor, or NOT_ENDED.  The caller has inserted the rows
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
		/* the changer was open during the test: it has not searched yet */
		if (!TransactionIdIsValid(changer) || changer == tested)
			return NOT_ENDED;
		if (!lock_transaction(changer, ShareLock, true))
			refuse_task(id);
		tested = changer;
	}
	return archived_status(tasks, id);
}

/*
 * Add the rows of a new task for its predecessors.  Returns when the first
 * look is due.
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
 * Whether the predecessor in this row has not ended.  With changing, a
 * predecessor that a transaction is changing or ending has not ended.
 */
static bool
has_not_ended(FairqTable *tasks, int64 id, bool changing)
{
	TransactionId changer;
	FairqTask	task;
	bool		found = fairq_task_find_in_index(tasks, id, &task, &changer) ||
		(changing && TransactionIdIsValid(changer));

	if (found)
		note_awaited(task.queue_id);
	return found;
}

/*
 * Move to the next row that names a predecessor.  Returns this one, or 0 at
 * the end of the scan.
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
 * usually have the lowest ids, or the highest ones.  So two scans search
 * alternately from both ends, until they meet.  *last is the highest id.
 */
static bool
waits_for_any(FairqTable *tasks, int64 id, bool changing, int64 *last)
{
	FairqRange	range = fairq_range(Int64GetDatum(id));
	FairqScan  *down = fairq_scan_begin(open_dependencies(tasks),
										FAIRQ_DEPENDENCY_BY_WAITING,
										fairq_range_backward(range));
	FairqScan  *up = NULL;
	int64		high = next_predecessor(down);
	int64		low = 0;
	bool		found = false;

	*last = high;
	for (; high > low; high = next_predecessor(down))
	{
		found = has_not_ended(tasks, high, changing);
		if (found)
			break;
		if (up == NULL)
			up = fairq_scan_begin(open_dependencies(tasks),
								  FAIRQ_DEPENDENCY_BY_WAITING, range);
		low = next_predecessor(up);
		found = low < high && has_not_ended(tasks, low, changing);
		if (found)
			break;
	}
	if (up != NULL)
		fairq_scan_end(up);
	fairq_scan_end(down);
	return found;
}

/*
 * Check the predecessors of a task.  Returns false if it has none.  With
 * changing, a predecessor that a transaction is changing or ending counts as
 * not ended.
 */
bool
fairq_after_look(FairqTable *tasks, int64 id, bool changing,
				 FairqAfterLook *look)
{
	bool		waits = waits_for_any(tasks, id, changing, &look->task);
	FairqScan  *scan;
	bool		any;

	/*
	 * In the index, rows of ends without success precede the others.  This
	 * search follows the one for predecessors, since one of these may have
	 * ended meanwhile.
	 */
	scan = fairq_scan_begin(open_dependencies(tasks),
							FAIRQ_DEPENDENCY_BY_WAITING,
							fairq_range(Int64GetDatum(id)));
	any = fairq_scan_next_current(scan);
	look->state = waits ? FAIRQ_BATCH_OPEN : FAIRQ_BATCH_DONE;
	if (any && !slot_attisnull(scan->slot, DEPENDENCY_STATUS))
	{
		look->state = FAIRQ_BATCH_FAILED;
		look->task = DatumGetInt64(fairq_column(scan->slot, DEPENDENCY_TASK));
	}
	fairq_scan_end(scan);
	return any;
}

/*
 * Delete the rows of a locked task whose wait ends.  Returns false if there is
 * none.
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
 * row of the task that has ended is deleted.  Returns whether any task may
 * wait for the ended one.
 */
bool
fairq_after_failed(FairqTable *tasks, int64 id, FairqStatus status)
{
	FairqScan  *scan;
	bool		any = false;

	(void) lock_transaction(GetTopTransactionId(), RowExclusiveLock, false);
	scan = fairq_scan_begin(open_dependencies(tasks), FAIRQ_DEPENDENCY_BY_TASK,
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

/* The first task that waits for a task, from an id on; 0: none. */
int64
fairq_after_next(FairqTable *tasks, int64 id, int64 from)
{
	FairqRange	range = fairq_range_from(fairq_range(Int64GetDatum(id)),
										 Int64GetDatum(from));
	FairqScan  *scan = fairq_scan_begin(open_dependencies(tasks),
										FAIRQ_DEPENDENCY_BY_TASK, range);
	int64		waiting = 0;

	if (fairq_scan_next_current(scan))
		waiting = DatumGetInt64(fairq_column(scan->slot, DEPENDENCY_WAITING));
	fairq_scan_end(scan);
	return waiting;
}
