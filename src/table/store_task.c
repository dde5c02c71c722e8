/*
 * store_task.c
 *		Rows of fairq.task: found by id, locked, claimed, changed, deleted.
 *
 * A dirty scan can miss a row.  It copies an index page and then visits the
 * heap.  In between, a transaction can move the row (to a new version with its
 * own index entries) and commit.  The scan can then miss it in both places.  A
 * transaction counts each such move in shared memory, after it has inserted
 * the index entries and before it commits.  fairq_task_find() must not miss a
 * row, so it searches again if the counter has changed meanwhile.
 *
 * Each change of a row writes a new version of it, with some columns changed.
 * The caller has locked or read the row before.
 *
 * The log of a task's failed attempts has one line per attempt, the latest one
 * last.  A line is a JSON array: the time in microseconds since 2000, the
 * attempt, its worker and its error.  fairq_internal.attempt_log() translates
 * the log for users.  The change of the row that ends an attempt also adds the
 * attempt's line, so the log costs no row version.  A pop that takes over a
 * task adds no line (see fairq_task_lease()).
 *
 * Lines are short.  Otherwise rows get so long that later claims of them are
 * not HOT.  With 105 bytes per attempt, pops of failed tasks took 1.7 times
 * the processor time.  So a line omits values that are missing at its end.
 * If the last error is in the column "error", its line has true in place of
 * the error.  The log has at most 10 lines, and keeps 1,000 bytes of each
 * error and 200 of each worker's name.  So it has at most about 12 kB, without
 * escapes.
 *
 * Locking: rows, or their tuple locks, as each function describes.  A claim
 * waits for no transaction (store.c).  To change a row, the caller has locked
 * it, or holds at most its tuple lock.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "store_internal.h"
#include "tools.h"

/* bounds of the log of failed attempts */
#define MOST_LINES 10
#define MOST_OF_ERROR 1000
#define MOST_OF_WORKER 200

/* the end of a line whose error is in the column "error" */
#define IN_COLUMN ",true]"

/* The value of a column in the new version of a row. */
typedef struct Change
{
	AttrNumber	attno;
	Datum		value;
	bool		isnull;
} Change;

/*
 * TIDs of the tasks that this backend has leased.  A worker usually completes
 * tasks that it popped itself, and the TID then saves an index scan.
 */
#define LEASED_SLOTS 1024

static struct
{
	int64		id;
	ItemPointerData tid;
}			leased[LEASED_SLOTS];

/* Remember the TID of a leased task. */
static void
remember_leased(const FairqTask *task)
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
lock_by(FairqTable *table, ItemPointer tid, LockTupleMode mode,
		LockWaitPolicy policy)
{
	TM_FailureData tmfd;

	return table_tuple_lock(table->rel, tid, InvalidSnapshot,
							table->locked.slot, GetCurrentCommandId(true),
							mode, policy, 0, &tmfd);
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
		result = lock_by(table, tid, mode, LockWaitSkip);
		UnlockTuple(table->rel, &at, ExclusiveLock);
		return result;
	}

	/*
	 * Another transaction is about to lock or change the row.  Or it is
	 * waiting for the transaction that has locked the row, which may be our
	 * own.
	 */
	return may_be_ours(table, tid) ?
		lock_by(table, tid, mode, LockWaitSkip) : TM_WouldBlock;
}

/*
 * Lock, without waiting, a row that a scan found live.  Returns false if
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
	/* it is not known whether the row is free */
	fairq_task_unlock_tuple(table, task);
	return lock_to_claim(table, task);
}

/*
 * If a scan has just read this row, move it to table->locked.slot.  Its page
 * has been pinned since, so the row exists, although other transactions may
 * have changed it.
 */
static HeapTupleHeader
row_just_read(FairqTable *table, ItemPointer tid)
{
	TupleTableSlot **at = table->at;
	TupleTableSlot *slot;

	if (at == NULL || TTS_EMPTY(*at) ||
		!ItemPointerEquals(&(*at)->tts_tid, tid))
		return NULL;
	make_lock_slot(table);
	slot = *at;
	*at = ExecClearTuple(table->locked.slot);
	table->locked.slot = slot;
	table->at = NULL;
	return ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;
}

/*
 * Prepare, without waiting, to change a row that a scan found live.  The
 * function is like fairq_task_lock(), but writes no row lock to the table or
 * the WAL.  The row is read again unless the scan has just read it.
 *
 * The preparation does not exclude other transactions.  The first transaction
 * to change the row claims it.  The second one neither waits nor gets the row.
 * Its update, which does not wait, detects the change under the buffer lock.
 */
FairqClaimResult
fairq_task_lock_tuple(FairqTable *table, FairqTask *task)
{
	SnapshotData snapshot;
	HeapTupleHeader header = row_just_read(table, &task->tid);

	if (header == NULL)
	{
		header = fetch_row(table, &task->tid, &snapshot);
		/*
		 * another transaction may be changing the row; proceed as if the scan
		 * had found that
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

/* Whether a lock on the row prevents other transactions from claiming it. */
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
 * that of fairq_task_lock_tuple(), but this function neither locks nor writes
 * anything, and does not wait.  So the result is valid only at this moment.
 * With to_delete, the claim would conflict like LockTupleExclusive.
 */
FairqClaimResult
fairq_task_peek(FairqTable *table, FairqTask *task, bool to_delete)
{
	SnapshotData snapshot;
	HeapTupleHeader header = fetch_row(table, &task->tid, &snapshot);

	if (header == NULL || TransactionIdIsValid(snapshot.xmin) ||
		TransactionIdIsValid(snapshot.xmax) || !read_again(table, task))
		return FAIRQ_GONE;
	return is_locked(header, to_delete) ? FAIRQ_LOCKED : FAIRQ_CLAIMED;
}

/*
 * Release the tuple lock, because the row was changed, or will not be changed.
 */
void
fairq_task_unlock_tuple(FairqTable *table, const FairqTask *task)
{
	ItemPointerData tid = task->tid;

	if (table->locked.tuple)
		UnlockTuple(table->rel, &tid, ExclusiveLock);
	table->locked.tuple_only = table->locked.tuple = false;
}

/*
 * Read the row at a TID, if the transaction or subtransaction "by" has deleted
 * it.  That transaction is our own, and was not rolled back.  The row is then
 * in table->locked.slot.
 */
bool
fairq_task_find_deleted(FairqTable *table, const ItemPointerData *tid,
						TransactionId by, FairqTask *task)
{
	ItemPointerData at = *tid;
	HeapTupleHeader header;

	make_lock_slot(table);
	/* after a TRUNCATE, the table may end before the row's page */
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
 * Afterwards our transaction usually does not have a lock on the row.  A
 * caller that then locks the row has to avoid conflicts with other
 * transactions that queue for it.
 */
void
fairq_table_wait(FairqTable *table, ItemPointer row)
{
	ItemPointerData tid = *row;
	SnapshotData snapshot;
	HeapTupleHeader header = fetch_row(table, &tid, &snapshot);
	TransactionId xmax;

	if (header == NULL)
		return;
	xmax = HeapTupleHeaderGetRawXmax(header);
	if (header->t_infomask & HEAP_XMAX_INVALID)
	{
		/* another transaction is about to change the row */
		ExecClearTuple(table->locked.slot);
		LockTuple(table->rel, &tid, ExclusiveLock);
		UnlockTuple(table->rel, &tid, ExclusiveLock);
	}
	else if (header->t_infomask & HEAP_XMAX_IS_MULTI)
		(void) lock_by(table, &tid, LockTupleExclusive, LockWaitBlock);
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
 * compares the id, because the row may have been moved or vacuumed away, and
 * another row may be there.
 */
static bool
look_where_leased(FairqTable *table, int64 id, FairqTask *task)
{
	ItemPointerData *tid = &leased[(uint64) id % LEASED_SLOTS].tid;
	SnapshotData snapshot;

	if (leased[(uint64) id % LEASED_SLOTS].id != id ||
		!ItemPointerIsValid(tid))
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
 * Returns a scan of the rows with an id.  NULL: no row has been moved since
 * the previous scan began, so the previous scan cannot have missed the row.
 * *moves is FAIRQ_NOT_SEARCHED before the first scan.  Until the table is
 * closed, calls restart the same scan.  So a caller must continue the scan in
 * the table's memory context.
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
		table->by_id = fairq_scan_begin(table, FAIRQ_TASK_BY_ID, range);
	else
		fairq_scan_again(table->by_id, range);
	return table->by_id;
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
	} while (state == FAIRQ_ROW_END &&
			 pg_atomic_read_u64(moves) != last_moves);
	fairq_scan_end(scan);
	return state != FAIRQ_ROW_END;
}

/*
 * Search for a task by its id, in the index.  If it is not found, *changer is
 * the transaction that is changing it, or invalid.  If table->locked.slot has
 * a row, the row stays there.
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

/* Search for a task by its id, at the remembered TID and then in the index. */
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
 * Find a task by its id, waiting for a transaction that is changing it.  The
 * task may be changed again before the caller uses it.
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
				 * The task is gone, or the current command, such as an
				 * UPDATE with RETURNING, has changed its row.
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

/*
 * Make a new version of the row in table->locked.slot, with these changes.
 * Returns its slot.
 */
static TupleTableSlot *
change_row(FairqTable *table, const Change *changes, int nchanges)
{
	TupleTableSlot *old = table->locked.slot;
	TupleTableSlot *slot = fairq_new_slot(table);
	int			natts = slot->tts_tupleDescriptor->natts;

	slot_getallattrs(old);
	memcpy(slot->tts_values, old->tts_values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, old->tts_isnull, sizeof(bool) * natts);
	for (int i = 0; i < nchanges; i++)
	{
		slot->tts_values[changes[i].attno - 1] = changes[i].value;
		slot->tts_isnull[changes[i].attno - 1] = changes[i].isnull;
	}
	return ExecStoreVirtualTuple(slot);
}

/*
 * Write a new version of the row, with these columns changed.  The row is
 * locked, or at most its tuple lock is held.  If the row is not locked,
 * another transaction can be faster: it has changed or locked the row, or is
 * about to change it.
 */
static FairqClaimResult
update_locked(FairqTable *table, FairqTask *task, const Change *changes,
			  int nchanges)
{
	TupleTableSlot *slot;
	TM_FailureData tmfd;
	TM_Result	result;
	bool		update_indexes;

	fairq_check_use(table, FAIRQ_TO_UPDATE);
	if (FAIRQ_UPDATE_HAS_TO_WAIT && table->locked.tuple_only)
	{
		FairqTask	again = *task;
		FairqClaimResult locked;

		/* lock the row, if it is still free */
		fairq_task_unlock_tuple(table, task);
		locked = lock_to_claim(table, &again);
		if (locked != FAIRQ_CLAIMED)
			return locked;
	}
	slot = change_row(table, changes, nchanges);
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

/* Add the first bytes of a text to the JSON; null if it is NULL. */
static void
put_text(StringInfo json, Datum value, int most)
{
	char	   *string;

	if (DatumGetPointer(value) == NULL)
	{
		appendStringInfoString(json, ",null");
		return;
	}
	string = TextDatumGetCString(value);
	string[pg_mbcliplen(string, strlen(string), most)] = '\0';
	appendStringInfoChar(json, ',');
	escape_json(json, string);
}

/*
 * Returns the log of a task's past failed attempts, with all errors; 0: there
 * is none.
 */
static Datum
past_log(FairqTable *table)
{
	TupleTableSlot *slot = table->locked.slot;
	Datum		value = fairq_column(slot, TASK_ATTEMPT_LOG);
	StringInfoData log;
	int			end;

	if (DatumGetPointer(value) == NULL)
		return value;
	initStringInfo(&log);
	appendStringInfoString(&log, TextDatumGetCString(value));
	end = log.len - (int) strlen(IN_COLUMN);
	if (end < 0 || strcmp(log.data + end, IN_COLUMN) != 0)
		return value;
	log.len = end;
	put_text(&log, fairq_column(slot, TASK_ERROR), MOST_OF_ERROR);
	appendStringInfoChar(&log, ']');
	return CStringGetTextDatum(log.data);
}

/*
 * Returns the log of a task's failed attempts; 0: there is none.  The row is
 * in table->locked.slot.  With failed, the log includes the present attempt.
 * Unless the error is NULL, the caller stores it in the column "error".  A
 * taken task has no worker's name.
 */
Datum
fairq_task_log(FairqTable *table, const FairqTask *task, bool failed,
			   const text *error)
{
	Datum		past = past_log(table);
	Datum		worker = task->running ?
		fairq_column(table->locked.slot, TASK_WORKER) : (Datum) 0;
	bool		in_column = error != NULL &&
		VARSIZE_ANY_EXHDR(error) <= MOST_OF_ERROR;
	StringInfoData log;
	int			begin;
	int			ends = 0;

	if (!failed)
		return past;
	initStringInfo(&log);
	if (DatumGetPointer(past) != NULL)
		appendStringInfo(&log, "%s\n", TextDatumGetCString(past));
	appendStringInfo(&log, "[" INT64_FORMAT ",%d", GetCurrentTimestamp(),
					 task->attempt);
	if (error == NULL && task->took == FAIRQ_TOOK_LEASE)
		error = cstring_to_text(FAIRQ_LEASE_EXPIRED);
	if (error != NULL || DatumGetPointer(worker) != NULL)
		put_text(&log, worker, MOST_OF_WORKER);
	if (error != NULL && !in_column)
		put_text(&log, PointerGetDatum(error), MOST_OF_ERROR);
	appendStringInfoString(&log, in_column ? IN_COLUMN : "]");
	for (begin = log.len; begin > 0; begin--)
		if (log.data[begin - 1] == '\n' && ++ends == MOST_LINES)
			break;
	return CStringGetTextDatum(log.data + begin);
}

/*
 * Write that the task runs from popped_at until lease_until, at the same
 * address, for a worker (0: without a name).  The number of its attempt
 * increases by 1.  Its row is locked, or was read by fairq_task_lock_tuple().
 * If it was running, its lease has expired.  The log of failed attempts does
 * not record the expired lease; "lapses" counts it.  A wider row would make
 * the update non-HOT, and the pop would read twice as much.
 */
FairqClaimResult
fairq_task_lease(FairqTable *table, FairqTask *task, TimestampTz popped_at,
				 TimestampTz lease_until, Datum worker)
{
	const Change changes[] = {
		{TASK_LEASE_UNTIL, TimestampTzGetDatum(lease_until)},
		{TASK_POPPED_AT, TimestampTzGetDatum(popped_at)},
		{TASK_ATTEMPT, Int32GetDatum(task->attempt + 1)},
		{TASK_LAPSES, Int32GetDatum(task->lapses), task->lapses == 0},
		{TASK_WORKER, worker, DatumGetPointer(worker) == NULL}
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
 * Write that the locked task is no longer running and has a new address.  The
 * task is ready at run_at, which is now, or the time for which it is
 * scheduled.  If error is not NULL, it is the reason why the attempt has
 * failed.  If !counts, the attempt has not failed, and does not count towards
 * max_attempts.  The row of a task that this transaction has taken is written
 * anew; it keeps its dedup_key only if keeps_key.
 */
void
fairq_task_return(FairqTable *table, FairqTask *task, int64 new_addr,
				  TimestampTz run_at, const text *error, bool counts,
				  bool keeps_key)
{
	int32		released = task->released + (counts ? 0 : 1);
	Datum		key = keeps_key ? fairq_column(table->locked.slot,
											   TASK_DEDUP_KEY) : (Datum) 0;
	const Change changes[] = {
		{TASK_ADDR, Int64GetDatum(new_addr)},
		{TASK_ATTEMPT, Int32GetDatum(task->attempt)},
		{TASK_LEASE_UNTIL, .isnull = true},
		{TASK_POPPED_AT, TimestampTzGetDatum(task->popped_at),
		task->popped_at == 0},
		{TASK_WORKER, .isnull = true},
		{TASK_RELEASED, Int32GetDatum(released), released == 0},
		{TASK_LAPSES, Int32GetDatum(task->lapses), task->lapses == 0},
		{TASK_RUN_AT, TimestampTzGetDatum(run_at)},
		{TASK_DEDUP_KEY, key, DatumGetPointer(key) == NULL},
		{TASK_ATTEMPT_LOG, counts ?
			fairq_task_log(table, task, true, error) : (Datum) 0},
		{TASK_ERROR, PointerGetDatum(error)}
	};
	int			nchanges = lengthof(changes) -
		(!counts ? 2 : error == NULL ? 1 : 0);

	if (task->taken)
	{
		TupleTableSlot *slot = change_row(table, changes, nchanges);

		simple_table_tuple_insert(table->rel, slot);
		fairq_insert_index_entries(table, slot, false);
		pg_atomic_fetch_add_u64(&fairq_domain()->moves, 1);
		task->tid = slot->tts_tid;
		task->taken = false;
	}
	else
		(void) update_locked(table, task, changes, nchanges);
	task->addr = new_addr;
	task->released = released;
	task->running = false;
}

/*
 * Write the address of the locked task, which is not running, and the time
 * run_at at which it is ready (0: since it was enqueued).  Unless content is
 * NULL, also write its content, and whether it is still blocked.  New content
 * removes the progress, which belonged to the old content.
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
		{TASK_PROGRESS, .isnull = true},
		{TASK_BLOCKED, BoolGetDatum(true), !c->blocked},
		{TASK_EXPIRES_AT, TimestampTzGetDatum(c->expires_at),
		c->expires_at == DT_NOEND}
	};

	(void) update_locked(table, task, changes,
						 content == NULL ? 2 : lengthof(changes));
	task->addr = addr;
	task->run_at = run_at;
	task->blocked &= content == NULL || content->blocked;
}

/*
 * Write a column of the locked task, which is running; 0: NULL.  *task does
 * not show the change.
 */
void
fairq_task_set(FairqTable *table, FairqTask *task, AttrNumber attno,
			   Datum value)
{
	const Change change = {attno, value, value == (Datum) 0};

	(void) update_locked(table, task, &change, 1);
	remember_leased(task);
}

/*
 * Delete a row.  FAIRQ_GONE: it is no longer the current version.
 * FAIRQ_LOCKED, only if !wait: it is locked, possibly by our own transaction.
 * If the task may be ready, the row must be locked, or read by
 * fairq_task_lock_tuple().
 */
FairqClaimResult
fairq_task_delete(FairqTable *table, const FairqTask *task, bool wait)
{
	ItemPointerData tid = task->tid;
	TM_FailureData tmfd;
	TM_Result	result;

	fairq_check_use(table, FAIRQ_TO_DELETE);
	result = fairq_tuple_delete(table->rel, &tid, GetCurrentCommandId(true),
								wait, &tmfd);
	fairq_task_unlock_tuple(table, task);
	return result == TM_Ok ? FAIRQ_CLAIMED :
		result == TM_BeingModified ? FAIRQ_LOCKED : FAIRQ_GONE;
}
