/*
 * store_pages.c
 *		fairq.task, read page by page.
 *
 * The load (load.c) reads all rows once, which through an index would be a random
 * page for each, as of its snapshot.  No predicate lock is taken, as everywhere.
 *
 * Locking: none but buffers', for moments, and what store.c says.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "store_internal.h"

/* See the tasks of a page that are there, at one moment. */
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

		if (!ItemIdIsNormal(item))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(table->rel);
		ItemPointerSet(&tuple.t_self, block, at);
		if (!HeapTupleSatisfiesVisibility(&tuple, as_of, buffer))
			continue;
		ExecStoreBufferHeapTuple(&tuple, slot, buffer);
		fairq_task_read(slot, &task);
		ExecClearTuple(slot);
		seen(arg, &task);
	}
}

/*
 * The tasks on some pages that an MVCC snapshot sees.  What is done with a task is
 * done with the page locked: it may do no more than to keep it in mind.
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
