/*
 * store_scan.c
 *		Scans of fairq's tables by an index, and of fairq.task page by page.
 *
 * Scans by an index use a dirty snapshot: store.c describes its advantages,
 * and store_task.c describes which rows such a scan can miss.  The load
 * (load.c) reads all rows once, as of its snapshot; through an index it would
 * read a random page for each row.  Scans take no predicate lock.
 *
 * Locking: only buffer locks, briefly, and the locks of store.c.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/spccache.h"

#include "compat.h"
#include "shadow.h"
#include "store_internal.h"
#include "tools.h"

/*
 * The most rows at one address that are sorted at a time.  There can be as
 * many as the highest weight, plus a second version of each row that is being
 * changed.
 */
#define MAX_ABREAST 4096

/* A task that a scan has found. */
typedef struct FairqScannedTask
{
	FairqRowState state;
	FairqTask	task;
} ScannedTask;

/* The function that compares a column of a type with a bound. */
static RegProcedure
bound_function(Oid type, StrategyNumber bound)
{
	static const Oid functions[][4] = {
		{INT2OID, F_INT2EQ, F_INT2LT, F_INT2GE},
		{INT4OID, F_INT4EQ, F_INT4LT, F_INT4GE},
		{INT8OID, F_INT8EQ, F_INT8LT, F_INT8GE},
		{TEXTOID, F_TEXTEQ, F_TEXT_LT, F_TEXT_GE},
		{TIMESTAMPTZOID, F_TIMESTAMPTZ_EQ, F_TIMESTAMPTZ_LT, F_TIMESTAMPTZ_GE}
	};
	int			n = bound == BTEqualStrategyNumber ? 1 :
		bound == BTLessStrategyNumber ? 2 : 3;

	for (int i = 0; i < lengthof(functions); i++)
		if (functions[i][0] == type)
			return functions[i][n];
	elog(ERROR, "no comparison for type %u", type);
}

/*
 * Fill in a key that bounds a column of the index; columns are numbered from
 * 0.
 */
static void
fill_key(Relation index, int column, StrategyNumber bound, Datum value,
		 ScanKey key)
{
	TupleDesc	desc = RelationGetDescr(index);
	Oid			type = TupleDescAttr(desc, column)->atttypid;

	ScanKeyEntryInitialize(key, 0, column + 1, bound, InvalidOid,
						   index->rd_indcollation[column],
						   bound_function(type, bound), value);
}

/* Fill in the keys of a range.  Returns their number. */
static int
fill_keys(Relation index, const FairqRange *range, ScanKey keys)
{
	int			n = 0;

	for (; n < range->nequal; n++)
		fill_key(index, n, BTEqualStrategyNumber, range->equal[n], &keys[n]);
	if (range->has_low)
		fill_key(index, range->nequal, BTGreaterEqualStrategyNumber,
				 range->low, &keys[n++]);
	if (range->has_high)
		fill_key(index, range->nequal, BTLessStrategyNumber, range->high,
				 &keys[n++]);
	return n;
}

/*
 * Returns a scan that visits at most budget entries of the index, dead ones
 * included.  The caller can raise the budget.  PG_INT32_MAX: all entries.
 */
FairqScan *
fairq_scan_some(FairqTable *table, FairqIndex which, FairqRange range,
				int budget)
{
	static const int addr_columns[FAIRQ_INDEXES] = {
		[FAIRQ_TASK_BY_TIME] = 2,
		[FAIRQ_TASK_BY_GROUP] = 3
	};
	FairqScan  *scan = palloc0(sizeof(FairqScan));
	Relation	index = fairq_find_index(table, which);
	ScanKeyData keys[FAIRQ_MAX_KEYS];
	int			nkeys = fill_keys(index, &range, keys);
	MemoryContext old = MemoryContextSwitchTo(table->context);

	scan->table = table;
	/*
	 * the table may keep a reference to the slot: see fairq_task_lock_tuple()
	 */
	scan->slot = table_slot_create(table->rel, NULL);
	MemoryContextSwitchTo(old);
	InitDirtySnapshot(scan->snapshot);
	scan->direction = range.backward ? BackwardScanDirection :
		ForwardScanDirection;
	scan->desc = fairq_index_beginscan(table->rel, index, &scan->snapshot,
									   nkeys);
	scan->budget = budget;
	scan->addr_column = addr_columns[which];
	/* ask for index tuples, to read the address of an entry without its row */
	scan->desc->xs_want_itup = scan->addr_column > 0;
	index_rescan(scan->desc, keys, nkeys, NULL, 0);
	return scan;
}

/*
 * Returns a scan that opens its table for reading, and closes the table at its
 * end.
 */
FairqScan *
fairq_scan_table(FairqRelation which, FairqIndex index, FairqRange range)
{
	FairqScan  *scan = fairq_scan_begin(fairq_open(which, AccessShareLock),
										index, range);

	scan->closes = true;
	return scan;
}

/*
 * A scan of the index by group, for fairq_task_next().  The result is the
 * given scan, restarted with the same number of bounds, or a new scan if that
 * is NULL.
 */
FairqScan *
fairq_scan_in_order(FairqScan *scan, FairqTable *table, FairqRange range)
{
	if (scan == NULL)
		return fairq_scan_begin(table, FAIRQ_TASK_BY_GROUP, range);
	fairq_scan_again(scan, range);
	return scan;
}

/* Returns the address at an entry whose row was not visited. */
int64
fairq_scan_reached(FairqScan *scan)
{
	bool		isnull;

	return DatumGetInt64(index_getattr(scan->desc->xs_itup, scan->addr_column,
									   scan->desc->xs_itupdesc, &isnull));
}

/* Restart the scan, with the same number of bounds and other values. */
void
fairq_scan_again(FairqScan *scan, FairqRange range)
{
	ScanKeyData keys[FAIRQ_MAX_KEYS];
	int			nkeys = fill_keys(scan->desc->indexRelation, &range, keys);

	ExecClearTuple(scan->slot);
	scan->at_entry = scan->at_end = false;
	scan->nabreast = scan->next_abreast = 0;
	index_rescan(scan->desc, keys, nkeys, NULL, 0);
}

/*
 * Move to the next entry.  An index scan that has ended would start again, so
 * at_end remembers the end.
 */
static bool
next_entry(FairqScan *scan)
{
	CHECK_FOR_INTERRUPTS();
	scan->at_end = scan->at_end ||
		index_getnext_tid(scan->desc, scan->direction) == NULL;
	if (!scan->at_end)
		scan->root = scan->desc->xs_heaptid;
	return !scan->at_end;
}

/*
 * Returns the group of the next entry, in any state of its row; -1 if there is
 * no entry.  The scan is in order and uses the index by group.
 */
int32
fairq_scan_next_group(FairqScan *scan)
{
	bool		isnull;

	if (!next_entry(scan))
		return -1;
	return DatumGetInt32(index_getattr(scan->desc->xs_itup, 2,
									   scan->desc->xs_itupdesc, &isnull));
}

/*
 * Read the next version of the entry's row that the snapshot sees;
 * FAIRQ_ROW_END if there is none.
 */
static FairqRowState
look_at_entry(FairqScan *scan)
{
	if (!index_fetch_heap(scan->desc, scan->slot))
		return FAIRQ_ROW_END;
	if (TransactionIdIsValid(scan->snapshot.xmin))
		return FAIRQ_ROW_INSERTING;
	if (TransactionIdIsValid(scan->snapshot.xmax))
		return FAIRQ_ROW_CHANGING;
	/* no later version in its HOT chain can be visible */
	scan->desc->xs_heap_continue = false;
	return FAIRQ_ROW_LIVE;
}

/*
 * Returns the next row.  A row that is being changed is returned in its old
 * version (FAIRQ_ROW_CHANGING) and, if the scan reaches it, in its new one
 * (FAIRQ_ROW_INSERTING).
 */
FairqRowState
fairq_scan_next(FairqScan *scan)
{
	if (scan->table->at == &scan->slot)
		scan->table->at = NULL;
	for (;;)
	{
		FairqRowState state;

		if (scan->at_entry)
			scan->at_entry = false;
		else if (!scan->desc->xs_heap_continue)
		{
			if (!next_entry(scan))
				return FAIRQ_ROW_END;
			if (scan->budget != PG_INT32_MAX && scan->budget-- <= 0)
			{
				scan->at_entry = true;
				return FAIRQ_ROW_LATER;
			}
		}
		state = look_at_entry(scan);
		if (state != FAIRQ_ROW_END)
			return state;
	}
}

/*
 * Move the scan to the current row of a range.  A concurrent update can hide a
 * row from one dirty scan, but is very unlikely to hide it from several.
 */
bool
fairq_scan_find_current(FairqScan *scan, FairqRange range)
{
	for (int tries = 0; tries < 3; tries++)
	{
		fairq_scan_again(scan, range);
		if (fairq_scan_next_current(scan))
			return true;
	}
	return false;
}

/* Whether this transaction itself inserted the row. */
bool
fairq_scan_is_own(FairqScan *scan)
{
	bool		isnull;
	Datum		xmin = slot_getsysattr(scan->slot,
									   MinTransactionIdAttributeNumber,
									   &isnull);

	return TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin));
}

/*
 * Whether there are more rows at an address.  If not, the scan is at the next
 * entry after the address.
 */
static bool
is_more_at(FairqScan *scan, int64 addr)
{
	/* versions of a row with the same entry have the same address */
	if (scan->desc->xs_heap_continue)
		return true;
	scan->at_entry = next_entry(scan);
	return scan->at_entry && fairq_scan_reached(scan) == addr;
}

static int
compare_task_ids(const void *a, const void *b)
{
	int64		x = ((const ScannedTask *) a)->task.id;
	int64		y = ((const ScannedTask *) b)->task.id;

	return x < y ? -1 : x > y;
}

/* Make room for the n-th of the tasks at an address. */
static void
have_abreast(FairqScan *scan, int n)
{
	if (n == scan->max_abreast)
		scan->abreast = fairq_grow(GetMemoryChunkContext(scan), scan->abreast,
								   &scan->max_abreast, 16,
								   sizeof(ScannedTask));
}

/*
 * Read all tasks at the address of the last read task, at most MAX_ABREAST,
 * and sort them by id.
 */
static void
read_abreast(FairqScan *scan, FairqRowState state, const FairqTask *task)
{
	int			n = 0;

	have_abreast(scan, n);
	scan->abreast[n].state = state;
	scan->abreast[n++].task = *task;
	do
	{
		scan->at_entry = false;
		state = look_at_entry(scan);
		if (state == FAIRQ_ROW_END)
			continue;
		have_abreast(scan, n);
		scan->abreast[n].state = state;
		fairq_task_read(scan->slot, &scan->abreast[n].task);
		scan->abreast[n++].task.root = scan->root;
	} while (n < MAX_ABREAST && is_more_at(scan, task->addr));
	scan->nabreast = n;
	scan->next_abreast = 0;
	qsort(scan->abreast, n, sizeof(ScannedTask), compare_task_ids);
}

/*
 * Returns the task of the next row, like fairq_scan_next().  If in_order is
 * true, tasks at the same address are ordered by their ids.  Such tasks exist
 * if the group has a weight above 1.  The indexes do not contain ids, because
 * that would make all entries of all tasks a third longer.
 */
FairqRowState
fairq_task_next(FairqScan *scan, FairqTask *task, bool in_order)
{
	ScannedTask *next;

	if (scan->next_abreast == scan->nabreast)
	{
		FairqRowState state = fairq_scan_next(scan);

		if (state == FAIRQ_ROW_END)
			return state;
		fairq_task_read(scan->slot, task);
		task->root = scan->root;
		if (!in_order || !is_more_at(scan, task->addr))
		{
			if (state == FAIRQ_ROW_LIVE)
				scan->table->at = &scan->slot;
			return state;
		}
		read_abreast(scan, state, task);
	}
	next = &scan->abreast[scan->next_abreast++];
	*task = next->task;
	return next->state;
}

/*
 * Read the next entries of a scan in order, after the last task that it
 * returned, whatever the state of their rows.  The call stops after "most"
 * entries, and before entries at the same address, whose order depends on
 * their rows.  Returns the number of entries, and in *next the address of the
 * entry after them.  The scan cannot be used after that.
 */
int
fairq_task_ahead(FairqScan *scan, int most, FairqItem *items, int64 *next)
{
	int			n = 0;

	if (scan->next_abreast < scan->nabreast)
	{
		*next = scan->abreast[scan->next_abreast].task.addr;
		return 0;
	}
	scan->desc->xs_heap_continue = false;
	*next = FAIRQ_ADDR_MAX;
	while (scan->at_entry || next_entry(scan))
	{
		int64		addr = fairq_scan_reached(scan);
		bool		abreast = n > 0 && items[n - 1].addr == addr;

		scan->at_entry = false;
		if (abreast || n == most)
		{
			*next = addr;
			n -= abreast;
			break;
		}
		items[n].addr = addr;
		items[n].order = 0;
		items[n++].tid = scan->root;
	}
	return n;
}

/*
 * Whether a row of fairq.task has a value in a column.  For the last columns,
 * which are rarely set, this check is cheaper than deforming the columns
 * before them.  The check is correct because no column of the table was added
 * with a default.
 */
static inline bool
has_value(HeapTupleHeader row, AttrNumber attno)
{
	return attno <= HeapTupleHeaderGetNatts(row) &&
		!((row->t_infomask & HEAP_HASNULL) != 0 &&
		  att_isnull(attno - 1, row->t_bits));
}

static inline HeapTupleHeader
row_of(TupleTableSlot *slot)
{
	return ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;
}

bool
fairq_task_has(TupleTableSlot *slot, AttrNumber attno)
{
	return has_value(row_of(slot), attno);
}

/*
 * Read a row.  A task also counts as running if peek() has claimed it on a
 * copy (shadow.c).
 */
void
fairq_task_read(TupleTableSlot *slot, FairqTask *task)
{
	HeapTupleHeader row = row_of(slot);
	/* true: the task gives up its dedup_key at its first claim */
	bool		gives_up = has_value(row, TASK_UNTIL_STARTED);
	bool		isnull;

	slot_getsomeattrs(slot, TASK_COST);
	task->tid = slot->tts_tid;
	ItemPointerSetInvalid(&task->root);
	task->id = DatumGetInt64(fairq_column(slot, TASK_ID));
	task->addr = DatumGetInt64(fairq_column(slot, TASK_ADDR));
	task->enqueued_at = fairq_time_of(slot, TASK_ENQUEUED_AT, 0);
	task->queue_id = fairq_int_of(slot, TASK_QUEUE_ID, 0);
	task->group_no = fairq_int_of(slot, TASK_GROUP_NO, 0);
	task->attempt = fairq_int_of(slot, TASK_ATTEMPT, 0);
	task->priority = DatumGetInt16(fairq_column(slot, TASK_PRIORITY));
	task->lease_until =
		DatumGetTimestampTz(slot_getattr(slot, TASK_LEASE_UNTIL, &isnull));
	task->running = !isnull;
	task->popped_at = fairq_time_of(slot, TASK_POPPED_AT, 0);
	task->run_at = fairq_time_of(slot, TASK_RUN_AT, 0);
	task->cancelled = DatumGetBool(fairq_column(slot, TASK_CANCELLED));
	task->released = fairq_int_of(slot, TASK_RELEASED, 0);
	task->lapses = fairq_int_of(slot, TASK_LAPSES, 0);
	task->max_attempts = fairq_int_of(slot, TASK_MAX_ATTEMPTS, 0);
	task->took = -1;
	task->taken = false;
	task->cost = DatumGetFloat4(slot_getattr(slot, TASK_COST, &isnull));
	/* this condition also rejects NaN */
	if (isnull || !(task->cost > 0 && task->cost <= FAIRQ_MAX_COST))
		task->cost = FAIRQ_USUAL_COST;

	task->expires_at = !has_value(row, TASK_EXPIRES_AT) ? DT_NOEND :
		fairq_time_of(slot, TASK_EXPIRES_AT, 0);
	task->batch = !has_value(row, TASK_BATCH) ? 0 :
		DatumGetInt64(fairq_column(slot, TASK_BATCH));
	task->blocked = has_value(row, TASK_BLOCKED);
	task->keyed = has_value(row, TASK_DEDUP_KEY) &&
		(!gives_up || task->attempt == 0);
	task->until_started = task->keyed && gives_up;
	if (fairq_shadow_claimed(task->id))
	{
		task->running = true;
		task->lease_until = DT_NOEND;
	}
}

/* Whether prefetching pages is useful. */
static bool
is_prefetching(FairqTable *table)
{
	if (table->prefetch.worth == 0)
	{
		Oid			tablespace = table->rel->rd_rel->reltablespace;

		if (table->nblocks == 0)
			table->nblocks = RelationGetNumberOfBlocks(table->rel);
		table->prefetch.last = InvalidBlockNumber;
		/* a table of at most half the shared buffers is mostly cached */
		table->prefetch.worth = table->nblocks > NBuffers / 2 &&
			get_tablespace_io_concurrency(tablespace) > 0 ? 1 : -1;
	}
	return table->prefetch.worth > 0;
}

/*
 * Start reading the row's page, if it is not cached, because the row will be
 * read soon.
 */
void
fairq_task_prefetch(FairqTable *table, const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);

	if (!is_prefetching(table) || block == table->prefetch.last ||
		block >= table->nblocks)
		return;
	table->prefetch.last = block;
	(void) PrefetchBuffer(table->rel, MAIN_FORKNUM, block);
}

/*
 * Read the task whose row has an index entry with the TID, like
 * fairq_scan_next(); FAIRQ_ROW_END if there is none.
 */
FairqRowState
fairq_task_at(FairqTable *table, const ItemPointerData *root, FairqTask *task)
{
	ItemPointerData tid = *root;
	SnapshotData snapshot;
	bool		more = false;
	bool		all_dead = false;

	/* the table cannot shrink while we hold a lock on it */
	if (table->nblocks == 0 ||
		ItemPointerGetBlockNumber(root) >= table->nblocks)
		table->nblocks = RelationGetNumberOfBlocks(table->rel);
	if (ItemPointerGetBlockNumber(root) >= table->nblocks)
		return FAIRQ_ROW_END;
	if (table->fetch.data == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(table->context);

		table->fetch.slot = table_slot_create(table->rel, NULL);
		table->fetch.data = fairq_index_fetch_begin(table->rel);
		MemoryContextSwitchTo(old);
	}
	table->at = NULL;
	InitDirtySnapshot(snapshot);
	if (!table_index_fetch_tuple(table->fetch.data, &tid, &snapshot,
								 table->fetch.slot, &more, &all_dead))
		return FAIRQ_ROW_END;
	fairq_task_read(table->fetch.slot, task);
	task->root = *root;
	if (TransactionIdIsValid(snapshot.xmin))
		return FAIRQ_ROW_INSERTING;
	if (TransactionIdIsValid(snapshot.xmax))
		return FAIRQ_ROW_CHANGING;
	table->at = &table->fetch.slot;
	return FAIRQ_ROW_LIVE;
}

/* --------------------------------------------------------------------- */

/* Report the tasks of a page that a snapshot sees. */
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
 * Report the tasks that an MVCC snapshot sees on some pages.  The callback
 * runs while the page is locked, so it may only remember the task.
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
