/*
 * store_task.c
 *		Rows of fairq.task: found by id, and locked.
 *
 * A dirty scan can miss a row.  It copies an index page and then visits the
 * heap.  In between, a transaction can move the row (to a new version with its
 * own index entries) and commit.  The scan can then miss it in both places.
 * Every such move is counted in shared memory, after its index entries are
 * inserted and before its commit.  fairq_task_find() must not miss a row: it
 * searches again if the counter has changed meanwhile.
 *
 * Locking: rows, or their tuple locks, as each function describes.  A claim
 * waits for no transaction (store.c).
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "shmem.h"
#include "stall.h"
#include "store_internal.h"

/*
 * TIDs of the tasks that this backend has leased.  A worker usually completes
 * tasks that it popped itself; this saves the index scan.
 */
#define LEASED_SLOTS 1024

static struct
{
	int64		id;
	ItemPointerData tid;
}			leased[LEASED_SLOTS];

/* Remember the TID of a leased task. */
void
fairq_remember_leased(const FairqTask *task)
{
	leased[(uint64) task->id % LEASED_SLOTS].id = task->id;
	leased[(uint64) task->id % LEASED_SLOTS].tid = task->tid;
}

static void
make_lock_slot(FairqTable *table)
{
	MemoryContext old;

	if (table->locked.slot != NULL)
		return;
	old = MemoryContextSwitchTo(table->context);
	table->locked.slot = table_slot_create(table->rel, NULL);
	MemoryContextSwitchTo(old);
}

/*
 * Fetch the current version of a row into table->locked.slot, even if it is
 * being changed; NULL if it does not exist.
 */
static HeapTupleHeader
fetch_row(FairqTable *table, ItemPointer tid, SnapshotData *snapshot)
{
	make_lock_slot(table);
	InitDirtySnapshot(*snapshot);
	if (!table_tuple_fetch_row_version(table->rel, tid, snapshot,
									   table->locked.slot))
		return NULL;
	return ExecFetchSlotHeapTuple(table->locked.slot, false, NULL)->t_data;
}

static TM_Result
lock_at_once(FairqTable *table, ItemPointer tid, LockTupleMode mode)
{
	TM_FailureData tmfd;

	return table_tuple_lock(table->rel, tid, InvalidSnapshot,
							table->locked.slot, GetCurrentCommandId(true),
							mode, LockWaitSkip, 0, &tmfd);
}

/*
 * Whether our own transaction may have locked the row.  If several
 * transactions hold a lock, the answer is true.
 */
static bool
may_be_ours(FairqTable *table, ItemPointer tid)
{
	SnapshotData snapshot;
	HeapTupleHeader header = fetch_row(table, tid, &snapshot);

	return header != NULL && !(header->t_infomask & HEAP_XMAX_INVALID) &&
		((header->t_infomask & HEAP_XMAX_IS_MULTI) ||
		 TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmax(header)));
}

static TM_Result
lock_row(FairqTable *table, ItemPointer tid, LockTupleMode mode)
{
	ItemPointerData at = *tid;
	TM_Result	result;

	make_lock_slot(table);
	if (fairq_conditional_lock_tuple(table->rel, &at))
	{
		result = lock_at_once(table, tid, mode);
		UnlockTuple(table->rel, &at, ExclusiveLock);
		return result;
	}

	/*
	 * Another transaction is about to lock or change the row.  Or it is
	 * waiting for the transaction that has locked the row, which may be our
	 * own.
	 */
	return may_be_ours(table, tid) ? lock_at_once(table, tid, mode) :
		TM_WouldBlock;
}

/*
 * Lock a row that a scan found live, without waiting.  Returns false if
 * another transaction has locked or changed it.
 */
bool
fairq_table_lock(FairqTable *table, ItemPointer tid)
{
	return lock_row(table, tid, LockTupleExclusive) == TM_Ok;
}

/*
 * Read the task again, from table->locked.slot.  Returns whether it is the
 * same task.
 */
static bool
read_again(FairqTable *table, FairqTask *task)
{
	ItemPointerData root = task->root;
	int64		id = task->id;

	fairq_task_read(table->locked.slot, task);
	task->root = root;
	return task->id == id;
}

/*
 * Lock a row that a scan found live, without waiting, and read it again: the
 * locked version is in table->locked.slot and in *task.  The caller decides
 * whether it still wants the task.  After LockTupleExclusive it can delete the
 * row without waiting for another transaction.  LockTupleNoKeyExclusive, for a
 * row that is not deleted, does not conflict with FOR KEY SHARE, which SQL can
 * request.
 */
FairqClaimResult
fairq_task_lock(FairqTable *table, FairqTask *task, LockTupleMode mode)
{
	switch (lock_row(table, &task->tid, mode))
	{
		case TM_Ok:
			return read_again(table, task) ? FAIRQ_CLAIMED : FAIRQ_GONE;
		case TM_WouldBlock:
		case TM_BeingModified:
			return FAIRQ_LOCKED;
		default:
			return FAIRQ_GONE;
	}
}

static FairqClaimResult
lock_to_claim(FairqTable *table, FairqTask *task)
{
	return fairq_task_lock(table, task, table->claims_delete ?
						   LockTupleExclusive : LockTupleNoKeyExclusive);
}

/*
 * Take the tuple lock of the row in table->locked.slot.  The row has been
 * locked or changed before, possibly by a transaction that has rolled back.
 * So a transaction that queues for the row may hold its tuple lock, and the
 * caller must not overtake it.
 */
static FairqClaimResult
lock_tuple(FairqTable *table, FairqTask *task, HeapTupleHeader header)
{
	if (!fairq_conditional_lock_tuple(table->rel, &task->tid))
		return lock_to_claim(table, task);
	table->locked.tuple_only = table->locked.tuple = true;
	if (header->t_infomask & HEAP_XMAX_INVALID)
		return FAIRQ_CLAIMED;
	/* whether the row is free is not known */
	fairq_task_unlock_tuple(table, task);
	return lock_to_claim(table, task);
}

/*
 * If a scan has just read this row, move it to table->locked.slot.  It has
 * been pinned since, so it exists, although other transactions may have
 * changed it.
 */
static HeapTupleHeader
row_at_hand(FairqTable *table, ItemPointer tid)
{
	TupleTableSlot **at = table->at;
	TupleTableSlot *slot;

	if (at == NULL || TTS_EMPTY(*at) || !ItemPointerEquals(&(*at)->tts_tid, tid))
		return NULL;
	make_lock_slot(table);
	slot = *at;
	*at = ExecClearTuple(table->locked.slot);
	table->locked.slot = slot;
	table->at = NULL;
	return ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;
}

/*
 * Prepare to change a row that a scan found live, without waiting.  Like
 * fairq_task_lock(), but without a row lock in the table and in the log.  The
 * row is read again unless the scan has just read it.
 *
 * This does not exclude other transactions.  The first transaction to change
 * the row claims it.  The second one neither waits nor gets the row: its
 * update, which does not wait, detects the change under the buffer lock.
 */
FairqClaimResult
fairq_task_lock_tuple(FairqTable *table, FairqTask *task)
{
	SnapshotData snapshot;
	HeapTupleHeader header = row_at_hand(table, &task->tid);

	if (header == NULL)
	{
		header = fetch_row(table, &task->tid, &snapshot);
		/*
		 * another transaction may be changing it; proceed as if the scan had
		 * found that
		 */
		if (header == NULL || TransactionIdIsValid(snapshot.xmax))
			return FAIRQ_GONE;
		if (TransactionIdIsValid(snapshot.xmin))
			return lock_to_claim(table, task);
		if (!read_again(table, task))
			return FAIRQ_GONE;
	}
	/* no transaction queues for a row that was never locked or changed */
	if (TransactionIdIsValid(HeapTupleHeaderGetRawXmax(header)))
		return lock_tuple(table, task, header);
	table->locked.tuple_only = true;
	fairq_stall("claim");
	return FAIRQ_CLAIMED;
}

/* Whether a lock conflicts with a claim. */
static bool
in_the_way(TransactionId xid, bool key_share, bool to_delete)
{
	return !(key_share && !to_delete) &&
		!TransactionIdIsCurrentTransactionId(xid) &&
		TransactionIdIsInProgress(xid);
}

/* Whether a lock on the row prevents others from claiming it. */
static bool
is_locked(HeapTupleHeader header, bool to_delete)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(header);
	MultiXactMember *members;
	int			nmembers;
	bool		locked = false;

	if (header->t_infomask & HEAP_XMAX_INVALID)
		return false;
	if (!(header->t_infomask & HEAP_XMAX_IS_MULTI))
		return in_the_way(xmax, HEAP_XMAX_IS_KEYSHR_LOCKED(header->t_infomask),
						  to_delete);
	nmembers = GetMultiXactIdMembers(xmax, &members, false,
									 HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask));
	for (int i = 0; i < nmembers && !locked; i++)
		locked = in_the_way(members[i].xid,
							members[i].status == MultiXactStatusForKeyShare,
							to_delete);
	if (nmembers > 0)
		pfree(members);
	return locked;
}

/*
 * Whether the caller could claim a row that a scan found live.  The result is
 * that of fairq_task_lock_tuple(), but nothing is locked or written, and it
 * does not wait.  So it is valid only at this moment.  With to_delete, the
 * claim would conflict like LockTupleExclusive.
 */
FairqClaimResult
fairq_task_peek(FairqTable *table, FairqTask *task, bool to_delete)
{
	SnapshotData snapshot;
	HeapTupleHeader header = fetch_row(table, &task->tid, &snapshot);

	if (header == NULL || TransactionIdIsValid(snapshot.xmin) ||
		TransactionIdIsValid(snapshot.xmax))
		return FAIRQ_GONE;
	if (!read_again(table, task))
		return FAIRQ_GONE;
	return is_locked(header, to_delete) ? FAIRQ_LOCKED : FAIRQ_CLAIMED;
}

/* Release the tuple lock: the row was changed, or will not be changed. */
void
fairq_task_unlock_tuple(FairqTable *table, const FairqTask *task)
{
	ItemPointerData tid = task->tid;

	if (table->locked.tuple)
		UnlockTuple(table->rel, &tid, ExclusiveLock);
	table->locked.tuple_only = table->locked.tuple = false;
}

/* Lock a row, if it is still free.  At most its tuple lock is held yet. */
FairqClaimResult
fairq_lock_after_all(FairqTable *table, const FairqTask *task)
{
	FairqTask	again = *task;

	fairq_task_unlock_tuple(table, task);
	return lock_to_claim(table, &again);
}

/*
 * Read the row at a TID, if the transaction or subtransaction "by" has deleted
 * it.  That one is our own, and was not rolled back.  The row is then in
 * table->locked.slot.
 */
bool
fairq_task_find_deleted(FairqTable *table, const ItemPointerData *tid,
						TransactionId by, FairqTask *task)
{
	ItemPointerData at = *tid;
	HeapTupleHeader header;

	make_lock_slot(table);
	/* after a TRUNCATE, the table may be shorter than that */
	if (ItemPointerGetBlockNumber(&at) >= RelationGetNumberOfBlocks(table->rel) ||
		!table_tuple_fetch_row_version(table->rel, &at, SnapshotAny,
									   table->locked.slot))
		return false;
	header = ExecFetchSlotHeapTuple(table->locked.slot, false, NULL)->t_data;
	if ((header->t_infomask & HEAP_XMAX_INVALID) ||
		HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) ||
		HeapTupleHeaderGetUpdateXid(header) != by ||
		!ItemPointerEquals(&header->t_ctid, &at))
		return false;
	fairq_task_read(table->locked.slot, task);
	return true;
}

/*
 * Wait for the transaction that has locked the row or is changing it.
 * Afterwards the row is usually not locked.  So a caller that locks it has to
 * avoid conflicts with transactions that queue for it.
 */
void
fairq_table_wait(FairqTable *table, ItemPointer row)
{
	ItemPointerData tid = *row;
	SnapshotData snapshot;
	HeapTupleHeader header = fetch_row(table, &tid, &snapshot);
	TransactionId xmax;
	TM_FailureData tmfd;

	if (header == NULL)
		return;
	xmax = HeapTupleHeaderGetRawXmax(header);
	if (header->t_infomask & HEAP_XMAX_INVALID)
	{
		/* another transaction is about to change it */
		ExecClearTuple(table->locked.slot);
		LockTuple(table->rel, &tid, ExclusiveLock);
		UnlockTuple(table->rel, &tid, ExclusiveLock);
	}
	else if (header->t_infomask & HEAP_XMAX_IS_MULTI)
		(void) table_tuple_lock(table->rel, &tid, InvalidSnapshot,
								table->locked.slot, GetCurrentCommandId(true),
								LockTupleExclusive, LockWaitBlock, 0, &tmfd);
	else
	{
		/* don't keep a buffer pinned while waiting */
		ExecClearTuple(table->locked.slot);
		if (!TransactionIdIsCurrentTransactionId(xmax))
			XactLockTableWait(xmax, NULL, NULL, XLTW_None);
	}
}

/*
 * Whether the task is still at the TID that this backend remembers.  The check
 * is complete: the row may have been moved or vacuumed away, and another row
 * may be there.
 */
static bool
look_where_leased(FairqTable *table, int64 id, FairqTask *task)
{
	ItemPointerData *tid = &leased[(uint64) id % LEASED_SLOTS].tid;
	SnapshotData snapshot;

	if (leased[(uint64) id % LEASED_SLOTS].id != id || !ItemPointerIsValid(tid))
		return false;
	/* the table cannot shrink while we hold a lock on it */
	if (table->nblocks == 0)
		table->nblocks = RelationGetNumberOfBlocks(table->rel);
	if (ItemPointerGetBlockNumber(tid) >= table->nblocks)
		return false;

	if (fetch_row(table, tid, &snapshot) == NULL ||
		TransactionIdIsValid(snapshot.xmin) ||
		TransactionIdIsValid(snapshot.xmax))
		return false;
	fairq_task_read(table->locked.slot, task);
	return task->id == id;
}

/*
 * Returns a scan of the rows with an id.  NULL: no row was moved since the
 * previous scan began, so that scan cannot have missed the row. *moves is
 * FAIRQ_NOT_SEARCHED before the first scan.  The scan is the same one until
 * the table is closed.  So a caller must continue it in the table's memory
 * context.
 */
FairqScan *
fairq_task_scan_by_id(FairqTable *table, int64 id, uint64 *moves)
{
	FairqRange	range = fairq_range(Int64GetDatum(id));
	uint64		before = *moves;

	*moves = pg_atomic_read_u64(&fairq_domain()->moves);
	if (*moves == before)
		return NULL;
	pg_read_barrier();
	if (table->scans.by_id == NULL)
		table->scans.by_id = fairq_scan_begin(table, FAIRQ_TASK_BY_ID, range);
	else
		fairq_scan_again(table->scans.by_id, range);
	return table->scans.by_id;
}

/*
 * Find the last task of a batch, even if a transaction is inserting its row.
 * Unless "before" is 0, find the last one before that id.  With changing, also
 * find a task whose row a transaction is changing or deleting.  A row that is
 * moved meanwhile is not missed, as in fairq_task_scan_by_id().
 */
bool
fairq_task_of_batch(FairqTable *table, int64 batch, int64 before,
					bool changing, FairqTask *task)
{
	FairqRange	of_batch = fairq_range(Int64GetDatum(batch));
	FairqRange	range = fairq_range_backward(of_batch);
	FairqScan  *scan;
	pg_atomic_uint64 *moves = &fairq_domain()->moves;
	uint64		last_moves;
	FairqRowState state;

	if (before != 0)
		range = fairq_range_before(range, Int64GetDatum(before));
	scan = fairq_scan_begin(table, FAIRQ_TASK_BY_BATCH, range);
	do
	{
		last_moves = pg_atomic_read_u64(moves);
		pg_read_barrier();
		fairq_scan_again(scan, range);
		do
			state = fairq_task_next(scan, task, false);
		while (state == FAIRQ_ROW_CHANGING && !changing);
		pg_read_barrier();
	} while (state == FAIRQ_ROW_END && pg_atomic_read_u64(moves) != last_moves);
	fairq_scan_end(scan);
	return state != FAIRQ_ROW_END;
}

/*
 * Search for a task by its id, in the index.  If it is not found, *changer is
 * the transaction that is changing it, or invalid.  A locked row stays in its
 * slot.
 */
bool
fairq_task_find_in_index(FairqTable *table, int64 id, FairqTask *task,
						 TransactionId *changer)
{
	uint64		moves = FAIRQ_NOT_SEARCHED;
	FairqScan  *scan;
	bool		found = false;
	MemoryContext old = MemoryContextSwitchTo(table->context);

	*changer = InvalidTransactionId;
	while (!found && !TransactionIdIsValid(*changer) &&
		   (scan = fairq_task_scan_by_id(table, id, &moves)) != NULL)
	{
		FairqRowState state;

		while (!found && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
		{
			if (state == FAIRQ_ROW_INSERTING)
				continue;
			fairq_task_read(scan->slot, task);
			if (state == FAIRQ_ROW_LIVE)
				found = true;
			else
				*changer = fairq_scan_changer(scan);
		}
	}
	MemoryContextSwitchTo(old);
	return found;
}

/* Search for a task by its id, if the row's TID is not known. */
static bool
look_for(FairqTable *table, int64 id, FairqTask *task, TransactionId *changer)
{
	*changer = InvalidTransactionId;
	return look_where_leased(table, id, task) ||
		fairq_task_find_in_index(table, id, task, changer);
}

/*
 * Search for a task by its id, without waiting.  If a transaction is changing
 * the task, *changing is true, and *task is its old version.
 */
bool
fairq_task_find_nowait(FairqTable *table, int64 id, FairqTask *task,
					   bool *changing)
{
	TransactionId changer;

	*changing = !look_for(table, id, task, &changer);
	return !*changing || TransactionIdIsValid(changer);
}

/*
 * Find a task by its id, waiting for a transaction that is changing it.  It
 * may be changed again before the caller uses it.
 */
bool
fairq_task_find(FairqTable *table, int64 id, FairqTask *task)
{
	TransactionId changer;

	while (!look_for(table, id, task, &changer))
	{
		if (!TransactionIdIsValid(changer))
			return false;
		/* don't keep a buffer pinned while waiting */
		ExecClearTuple(table->scans.by_id->slot);
		XactLockTableWait(changer, NULL, NULL, XLTW_None);
	}
	return true;
}

/*
 * Find a task by its id and lock its row.  The locked version is in
 * table->locked.slot and in *task.
 */
bool
fairq_task_find_locked(FairqTable *table, int64 id, FairqTask *task)
{
	while (fairq_task_find(table, id, task))
	{
		CHECK_FOR_INTERRUPTS();
		switch (fairq_task_lock(table, task, LockTupleExclusive))
		{
			case FAIRQ_CLAIMED:
				return true;
			case FAIRQ_GONE:
				/*
				 * or the current command has changed it: UPDATE ... RETURNING
				 */
				CommandCounterIncrement();
				break;
			case FAIRQ_LOCKED:
				fairq_table_wait(table, &task->tid);
				break;
		}
	}
	return false;
}
