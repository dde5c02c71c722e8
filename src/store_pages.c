/*
 * store_pages.c
 *		fairq.task, read page by page.
 *
 * The census (census.c) and the count of all tasks (tally_count.c) read all
 * rows once, which through an index would be a random page for each.  The census
 * sees what is running, or being changed; the count what is there as of its
 * snapshot.  No predicate lock is taken, as everywhere.
 *
 * Locking: none but buffers', for moments, and what store.c says.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "store_internal.h"

/* Has our own transaction deleted the row, or written another version of it? */
static bool
is_changed_by_us(HeapTupleHeader header)
{
	return !(header->t_infomask & HEAP_XMAX_INVALID) &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(header));
}

/* Another transaction's new row: has it deleted or changed it again? */
static bool
is_changed_again(HeapTupleHeader header)
{
	return !(header->t_infomask & HEAP_XMAX_INVALID) &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask);
}

/*
 * Is the row's task running, by a version of it that is not dead, or being
 * changed, by our own transaction, too?  What a transaction has just
 * enqueued is not, unless it has taken that again.
 */
static bool
is_seen(HeapTuple tuple, Buffer buffer, bool *changing)
{
	HeapTupleHeader header = tuple->t_data;
	bool		running = !heap_attisnull(tuple, TASK_LEASE_UNTIL, NULL);
	SnapshotData snapshot;

	if (!running && (header->t_infomask & HEAP_XMAX_INVALID))
		return false;
	InitDirtySnapshot(snapshot);
	*changing = true;
	if (!HeapTupleSatisfiesVisibility(tuple, &snapshot, buffer))
		return is_changed_by_us(header);
	if (TransactionIdIsValid(snapshot.xmin))
		return running || is_changed_again(header);
	if (TransactionIdIsValid(snapshot.xmax))
		return true;
	*changing = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(header));
	return running;
}

/* See the tasks of a page that count, at one moment. */
static void
see_page(FairqTable *table, Buffer buffer, TupleTableSlot *slot,
		 Snapshot as_of, FairqTaskSeen seen, void *arg)
{
	Page		page = BufferGetPage(buffer);
	BlockNumber block = BufferGetBlockNumber(buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber at = FirstOffsetNumber; at <= last; at++)
	{
		ItemId		item = PageGetItemId(page, at);
		HeapTupleData tuple;
		FairqTask	task;
		bool		changing = false;

		if (!ItemIdIsNormal(item))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(table->rel);
		ItemPointerSet(&tuple.t_self, block, at);
		if (as_of == NULL ? !is_seen(&tuple, buffer, &changing) :
			!HeapTupleSatisfiesVisibility(&tuple, as_of, buffer))
			continue;
		ExecStoreBufferHeapTuple(&tuple, slot, buffer);
		fairq_task_read(slot, &task);
		ExecClearTuple(slot);
		seen(arg, &task, changing);
	}
}

/*
 * The tasks on some pages that an MVCC snapshot sees; or, if as_of is NULL,
 * those that are running, or being changed: of these maybe in two versions.
 * Each page is seen at one moment.  What is done with a task is done with the
 * page locked: it may do no more than to keep it in mind.
 */
void
fairq_task_pages(FairqTable *table, BlockNumber from, BlockNumber end,
				 Snapshot as_of, FairqTaskSeen seen, void *arg)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	TupleTableSlot *slot =
		MakeSingleTupleTableSlot(RelationGetDescr(table->rel),
								 &TTSOpsBufferHeapTuple);

	for (BlockNumber block = from; block < end; block++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBufferExtended(table->rel, MAIN_FORKNUM, block,
									RBM_NORMAL, strategy);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		fairq_test_old_snapshot(as_of, table->rel, BufferGetPage(buffer));
		see_page(table, buffer, slot, as_of, seen, arg);
		UnlockReleaseBuffer(buffer);
	}
	ExecDropSingleTupleTableSlot(slot);
	FreeAccessStrategy(strategy);
}
