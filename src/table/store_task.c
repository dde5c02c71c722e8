/*
 * store_task.c
 *		Rows of fairq.task: found by id, locked, claimed, changed, deleted.
 *
 * A dirty scan can miss a row.  It copies an index page and then visits the
 * heap.  A row can be moved (to a new version with its own index entries) and
 * committed in between.  Then the scan can miss it in both places.  Every such
 * move is counted in shared memory, after its index entries are inserted and
 * before its commit.  fairq_task_find() must not miss a row: it searches again
 * if the counter has changed meanwhile.
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
#include "utils/timestamp.h"

#include "address.h"
#include "compat.h"
#include "shmem.h"
#include "stall.h"
#include "store_internal.h"

/*
 * TIDs of the tasks that this backend has leased.  A worker mostly completes
 * tasks that it has popped itself; this saves the index scan.
 */
#define LEASED_SLOTS 1024

static struct
{
	int64		id;
	ItemPointerData tid;
}			leased[LEASED_SLOTS];

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
	 * Another transaction is about to lock or change it.  Or it waits for the
	 * transaction that has locked the row, and that may be our own.
	 */
	return may_be_ours(table, tid) ? lock_at_once(table, tid, mode) :
		TM_WouldBlock;
}

/*
 * Lock a row that a scan found live, without waiting.  False if another
 * transaction has locked or changed it.
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

static FairqClaimResult
lock_task(FairqTable *table, FairqTask *task, LockTupleMode mode)
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

/*
 * Lock a row that a scan found live, without waiting, and read it again: the
 * locked version is in table->locked.slot and in *task.  The caller decides
 * whether it still wants the task.  Afterwards it can delete the row without
 * waiting for another transaction.
 */
FairqClaimResult
fairq_task_lock(FairqTable *table, FairqTask *task)
{
	return lock_task(table, task, LockTupleExclusive);
}

/*
 * The same for a row that stays.  It does not conflict with FOR KEY SHARE,
 * which SQL can request.
 */
FairqClaimResult
fairq_task_lock_to_keep(FairqTable *table, FairqTask *task)
{
	return lock_task(table, task, LockTupleNoKeyExclusive);
}

static FairqClaimResult
lock_to_claim(FairqTable *table, FairqTask *task)
{
	return table->claims_delete ? fairq_task_lock(table, task) :
		fairq_task_lock_to_keep(table, task);
}

/*
 * Take the tuple lock of the row in table->locked.slot.  The row has been
 * locked or changed before, if only by a transaction that has rolled back.  So
 * a transaction that queues for the row may hold its tuple lock, and must not
 * be overtaken.
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
 * been pinned since, so it exists, though others may have changed it.
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
 * This does not exclude rivals.  The first transaction to change the row
 * claims it.  The second one neither waits nor gets the row: its update, which
 * does not wait, detects the change under the buffer lock.
 */
FairqClaimResult
fairq_task_lock_tuple(FairqTable *table, FairqTask *task)
{
	SnapshotData snapshot;
	HeapTupleHeader header = row_at_hand(table, &task->tid);

	if (header == NULL)
	{
		header = fetch_row(table, &task->tid, &snapshot);
		/* a rival may be changing it by now: as if the scan had found that */
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
		!TransactionIdIsCurrentTransactionId(xid) && TransactionIdIsInProgress(xid);
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

/* Lock a row, if it is still free.  At most its tuple lock is held so far. */
static FairqClaimResult
lock_after_all(FairqTable *table, const FairqTask *task)
{
	FairqTask	again = *task;

	fairq_task_unlock_tuple(table, task);
	return lock_to_claim(table, &again);
}

/* A column's value in the new version of a row. */
typedef struct Change
{
	AttrNumber	attno;
	Datum		value;
	bool		isnull;
} Change;

/*
 * Write a new version of the row, with these columns changed.  The row is
 * locked, or at most its tuple lock is held.  In the latter case it can be
 * lost to a rival that has changed it, has only locked it, or is about to
 * change it.
 */
static FairqClaimResult
update_locked(FairqTable *table, FairqTask *task, const Change *changes,
			  int nchanges)
{
	TupleTableSlot *old = table->locked.slot;
	TupleTableSlot *slot = fairq_new_slot(table);
	int			natts = slot->tts_tupleDescriptor->natts;
	TM_FailureData tmfd;
	TM_Result	result;
	bool		update_indexes;

	fairq_check_use(table->rel, FAIRQ_TO_UPDATE);
	if (FAIRQ_UPDATE_HAS_TO_WAIT && table->locked.tuple_only)
	{
		FairqClaimResult locked = lock_after_all(table, task);

		if (locked != FAIRQ_CLAIMED)
			return locked;
	}
	slot_getallattrs(old);
	memcpy(slot->tts_values, old->tts_values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, old->tts_isnull, sizeof(bool) * natts);
	for (int i = 0; i < nchanges; i++)
	{
		slot->tts_values[changes[i].attno - 1] = changes[i].value;
		slot->tts_isnull[changes[i].attno - 1] = changes[i].isnull;
	}
	ExecStoreVirtualTuple(slot);

	result = fairq_tuple_update(table->rel, &task->tid, slot,
								GetCurrentCommandId(true),
								!table->locked.tuple_only, &tmfd,
								&update_indexes);
	if (result != TM_Ok && !table->locked.tuple_only)
		elog(ERROR, "could not update a locked task: %d", (int) result);
	fairq_task_unlock_tuple(table, task);
	if (result != TM_Ok)
		return result == TM_BeingModified ? FAIRQ_LOCKED : FAIRQ_GONE;
	if (update_indexes)
	{
		fairq_insert_index_entries(table, slot, true);
		pg_atomic_fetch_add_u64(&fairq_domain()->moves, 1);
	}
	task->tid = slot->tts_tid;
	return FAIRQ_CLAIMED;
}

static void
remember_leased(const FairqTask *task)
{
	leased[(uint64) task->id % LEASED_SLOTS].id = task->id;
	leased[(uint64) task->id % LEASED_SLOTS].tid = task->tid;
}

/*
 * Write that the task runs from popped_at until lease_until, at the same
 * address.  Its attempt is the next one.  Its row is locked, or was read by
 * fairq_task_lock_tuple().
 */
FairqClaimResult
fairq_task_lease(FairqTable *table, FairqTask *task, TimestampTz popped_at,
				 TimestampTz lease_until, Datum worker, bool worker_isnull)
{
	const Change changes[] = {
		{TASK_LEASE_UNTIL, TimestampTzGetDatum(lease_until)},
		{TASK_POPPED_AT, TimestampTzGetDatum(popped_at)},
		{TASK_ATTEMPT, Int32GetDatum(task->attempt + 1)},
		{TASK_LAPSES, Int32GetDatum(task->lapses), task->lapses == 0},
		{TASK_WORKER, worker, worker_isnull}
	};
	FairqClaimResult result = update_locked(table, task, changes,
											lengthof(changes));

	if (result != FAIRQ_CLAIMED)
		return result;
	task->attempt++;
	task->lease_until = lease_until;
	task->popped_at = popped_at;
	task->running = true;
	remember_leased(task);
	return FAIRQ_CLAIMED;
}

/*
 * Write that the locked task is not running any more, and has a new address.
 * It is ready at run_at: now, or when it is scheduled.  If error is not NULL,
 * it is the reason why the attempt has failed.  If !counts, the attempt does
 * not count.
 */
void
fairq_task_return(FairqTable *table, FairqTask *task, int64 new_addr,
				  TimestampTz run_at, const text *error, bool counts)
{
	int32		released = task->released + (counts ? 0 : 1);
	const Change changes[] = {
		{TASK_ADDR, Int64GetDatum(new_addr)},
		{TASK_LEASE_UNTIL, .isnull = true},
		{TASK_WORKER, .isnull = true},
		{TASK_RELEASED, Int32GetDatum(released), released == 0},
		{TASK_LAPSES, Int32GetDatum(task->lapses), task->lapses == 0},
		{TASK_RUN_AT, TimestampTzGetDatum(run_at)},
		{TASK_ERROR, PointerGetDatum(error)}
	};

	(void) update_locked(table, task, changes,
						 lengthof(changes) - (error == NULL ? 1 : 0));
	task->addr = new_addr;
	task->released = released;
	task->running = false;
}

/*
 * Write to the locked task, which is not running, its address and the time
 * run_at at which it is ready (0: since it was enqueued).  Unless content is
 * NULL, write its content, too.
 */
void
fairq_task_change(FairqTable *table, FairqTask *task, int64 addr,
				  TimestampTz run_at, const FairqContent *content)
{
	const FairqContent none = {0};
	const FairqContent *c = content == NULL ? &none : content;
	const Change changes[] = {
		{TASK_ADDR, Int64GetDatum(addr)},
		{TASK_RUN_AT, TimestampTzGetDatum(run_at), run_at == 0},
		{TASK_PAYLOAD, c->payload},
		{TASK_HEADERS, c->headers, DatumGetPointer(c->headers) == NULL},
		{TASK_EXPIRES_AT, TimestampTzGetDatum(c->expires_at),
		c->expires_at == DT_NOEND}
	};

	(void) update_locked(table, task, changes,
						 content == NULL ? 2 : lengthof(changes));
	task->addr = addr;
	task->run_at = run_at;
}

/* Write a column of a locked task. */
static void
update_column(FairqTable *table, FairqTask *task, AttrNumber attno, Datum value,
			  bool isnull)
{
	const Change change = {attno, value, isnull};

	(void) update_locked(table, task, &change, 1);
}

/* Write that the lease of the locked task lasts until then. */
void
fairq_task_extend(FairqTable *table, FairqTask *task, TimestampTz lease_until)
{
	update_column(table, task, TASK_LEASE_UNTIL,
				  TimestampTzGetDatum(lease_until), false);
	task->lease_until = lease_until;
	remember_leased(task);
}

/* Write the progress of the locked task; 0: it is not known. */
void
fairq_task_progress(FairqTable *table, FairqTask *task, Datum progress)
{
	update_column(table, task, TASK_PROGRESS, progress,
				  DatumGetPointer(progress) == NULL);
	remember_leased(task);
}

/* Write that the worker of the locked task should stop. */
void
fairq_task_cancel(FairqTable *table, FairqTask *task)
{
	update_column(table, task, TASK_CANCELLED, BoolGetDatum(true), false);
	task->cancelled = true;
}

/*
 * Read a row that was deleted at that TID by that transaction or
 * subtransaction, which is our own and was not rolled back.  The row is then
 * in table->locked.slot.
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
 * Insert a task again that this transaction has taken, from the row in
 * table->locked.slot.  It is not running any more, has a new address, and else
 * changes as in fairq_task_return().  It keeps its dedup_key only if
 * keeps_key.
 */
void
fairq_task_put_back(FairqTable *table, FairqTask *task, int64 new_addr,
					TimestampTz run_at, const text *error, bool counts,
					bool keeps_key)
{
	TupleTableSlot *old = table->locked.slot;
	Datum		values[TASK_NATTS];
	bool		nulls[TASK_NATTS];
	int32		released = task->released + (counts ? 0 : 1);

	slot_getallattrs(old);
	memcpy(values, old->tts_values, sizeof(values));
	memcpy(nulls, old->tts_isnull, sizeof(nulls));
	fairq_set(values, nulls, TASK_ADDR, Int64GetDatum(new_addr));
	fairq_set(values, nulls, TASK_ATTEMPT, Int32GetDatum(task->attempt));
	nulls[TASK_LEASE_UNTIL - 1] = true;
	fairq_set(values, nulls, TASK_POPPED_AT,
			  TimestampTzGetDatum(task->popped_at));
	fairq_set(values, nulls, TASK_RUN_AT, TimestampTzGetDatum(run_at));
	fairq_set_if_any(values, nulls, TASK_RELEASED, Int32GetDatum(released));
	fairq_set_if_any(values, nulls, TASK_LAPSES, Int32GetDatum(task->lapses));
	nulls[TASK_WORKER - 1] = true;
	nulls[TASK_DEDUP_KEY - 1] |= !keeps_key;
	if (error != NULL)
		fairq_set(values, nulls, TASK_ERROR, PointerGetDatum(error));
	task->tid = *fairq_table_insert(table, values, nulls, TASK_NATTS);
	pg_atomic_fetch_add_u64(&fairq_domain()->moves, 1);
	task->addr = new_addr;
	task->released = released;
	task->taken = false;
}

/*
 * Delete a row.  FAIRQ_GONE: it is not the current version any more.
 * FAIRQ_LOCKED, only if !wait: it is locked, possibly by our own transaction.
 * If it may be ready, it must be locked, or read by fairq_task_lock_tuple().
 */
FairqClaimResult
fairq_task_delete(FairqTable *table, const FairqTask *task, bool wait)
{
	ItemPointerData tid = task->tid;
	TM_FailureData tmfd;
	TM_Result	result;

	fairq_check_use(table->rel, FAIRQ_TO_DELETE);
	result = fairq_tuple_delete(table->rel, &tid, GetCurrentCommandId(true),
								wait, &tmfd);
	fairq_task_unlock_tuple(table, task);
	return result == TM_Ok ? FAIRQ_CLAIMED :
		result == TM_BeingModified ? FAIRQ_LOCKED : FAIRQ_GONE;
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
 * Whether the task is still at the TID that this backend remembers.
 * Everything is checked: the row may have been moved or vacuumed away, and
 * another one may be there.
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
 * Returns a scan of the rows of that id.  NULL if no row was moved since the
 * previous scan began: then that has missed none.  *moves is
 * FAIRQ_NOT_SEARCHED before the first scan.  The scan is the same one until
 * the table is closed.  So a caller that continues it does so in the table's
 * memory context.
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
	if (table->by_id == NULL)
		table->by_id = fairq_scan_begin(table, FAIRQ_TASK_BY_ID, range, false);
	else
		fairq_scan_again(table->by_id, range);
	return table->by_id;
}

/*
 * Search for a task by its id.  If it is not found, *changer is the
 * transaction that is changing it, or invalid.
 */
static bool
look_for(FairqTable *table, int64 id, FairqTask *task, TransactionId *changer)
{
	uint64		moves = FAIRQ_NOT_SEARCHED;
	FairqScan  *scan;
	bool		found = false;
	MemoryContext old;

	*changer = InvalidTransactionId;
	if (look_where_leased(table, id, task))
		return true;
	old = MemoryContextSwitchTo(table->context);
	while (!found && !TransactionIdIsValid(*changer) &&
		   (scan = fairq_task_scan_by_id(table, id, &moves)) != NULL)
	{
		FairqRowState state;

		while (!found && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
		{
			if (state == FAIRQ_ROW_INSERTING)
				continue;
			fairq_task_read(fairq_scan_slot(scan), task);
			if (state == FAIRQ_ROW_LIVE)
				found = true;
			else
				*changer = fairq_scan_changer(scan);
		}
	}
	MemoryContextSwitchTo(old);
	return found;
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
		ExecClearTuple(table->by_id->slot);
		XactLockTableWait(changer, NULL, NULL, XLTW_None);
	}
	return true;
}

/*
 * The same; it also locks the row, whose locked version is in
 * table->locked.slot and in *task.
 */
bool
fairq_task_find_locked(FairqTable *table, int64 id, FairqTask *task)
{
	while (fairq_task_find(table, id, task))
	{
		CHECK_FOR_INTERRUPTS();
		switch (fairq_task_lock(table, task))
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
