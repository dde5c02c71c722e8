/*
 * dedup.c
 *		One unfinished task per queue and key.
 *
 * fairq.dedup has a row for each key of an unfinished task.  Enqueue puts it
 * there, and the transaction that finishes the task deletes it.  An enqueue
 * that finds the row returns its task's id.  One that finds the row being
 * inserted or changed has to wait for the end of that transaction, since only
 * then it is known whether there is such a task.  Tasks without a key don't
 * come here.
 *
 * The row may be stale: fairq.task was truncated, or comes from a dump without
 * its rows.  So an enqueue that finds a key looks whether its task is there,
 * and deletes the row if not.  A task that is being changed is there.
 *
 * Locking: between the look and the new row, ExclusiveLock on the object
 * (fairq.dedup, queue_id, hash of the key), released at once: no backend waits
 * for a transaction under it.  Waiting is for the end of the transaction that
 * inserts or changes the row.  A stale row is locked before it is deleted, if
 * that can be had at once.  A call that takes several keys takes them in
 * order; transactions that do so in several calls may deadlock, as with every
 * unique key, and PostgreSQL ends one of them.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/fmgrprotos.h"

#include "compat.h"
#include "dedup.h"

static FairqTable *
open_keys(FairqTable *tasks)
{
	return fairq_table_beside(tasks, &tasks->beside.dedup,
							  fairq_catalog()->dedup);
}

static FairqScan *
scan_key(FairqTable *keys, int32 queue_id, Datum key)
{
	FairqKey	scankeys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(queue_id)},
		{2, FAIRQ_EQ, key}
	};

	return fairq_scan_begin(keys, FAIRQ_DEDUP_BY_KEY, scankeys,
							lengthof(scankeys), false);
}

/*
 * Returns the id of the task that has the key, and *tid is the row; 0 if none
 * has, and then *other is the transaction that inserts or changes the row, if
 * any.
 */
static int64
look_up_key(FairqTable *keys, int32 queue_id, Datum key, ItemPointer tid,
			TransactionId *other)
{
	FairqScan  *scan = scan_key(keys, queue_id, key);
	FairqRowState state;
	int64		id = 0;

	*other = InvalidTransactionId;
	while (id == 0 && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		bool		isnull;

		if (state == FAIRQ_ROW_LIVE)
		{
			id = DatumGetInt64(slot_getattr(fairq_scan_slot(scan),
											DEDUP_TASK_ID, &isnull));
			*tid = fairq_scan_slot(scan)->tts_tid;
		}
		else
			*other = fairq_scan_changer(scan);
	}
	fairq_scan_end(scan);
	return id;
}

/* Has the task of the scan's row that key of the queue? */
static bool
has_key(TupleTableSlot *slot, int32 queue_id, Datum key)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, TASK_DEDUP_KEY, &isnull);

	return !isnull &&
		DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID, value,
											 key)) &&
		DatumGetInt32(slot_getattr(slot, TASK_QUEUE_ID, &isnull)) == queue_id;
}

/*
 * Is there a task of that id and key, also if a transaction is about to insert
 * or to delete it?  A row that is moved meanwhile is not missed: see store_task.c.
 */
static bool
has_task(FairqTable *tasks, int32 queue_id, Datum key, int64 id)
{
	uint64		moves = FAIRQ_NOT_SEARCHED;
	FairqScan  *scan;
	bool		found = false;
	/* for what the scan needs later on, in another call */
	MemoryContext old = MemoryContextSwitchTo(tasks->context);

	while (!found &&
		   (scan = fairq_task_scan_by_id(tasks, id, &moves)) != NULL)
	{
		while (!found && fairq_scan_next(scan) != FAIRQ_ROW_END)
			found = has_key(fairq_scan_slot(scan), queue_id, key);
		/* don't keep a buffer pinned that is not looked at */
		ExecClearTuple(fairq_scan_slot(scan));
	}
	MemoryContextSwitchTo(old);
	return found;
}

static void
put_key(FairqTable *keys, int32 queue_id, Datum key, int64 id)
{
	Datum		values[DEDUP_NATTS];
	bool		nulls[DEDUP_NATTS] = {0};

	values[DEDUP_QUEUE_ID - 1] = Int32GetDatum(queue_id);
	values[DEDUP_KEY - 1] = key;
	values[DEDUP_TASK_ID - 1] = Int64GetDatum(id);
	fairq_table_insert(keys, values, nulls, DEDUP_NATTS);
}

/* What stands for a key in the lock under which it is taken. */
static uint16
hash_of(Datum key)
{
	text	   *text_key = DatumGetTextPP(key);

	return hash_bytes((unsigned char *) VARDATA_ANY(text_key),
					  VARSIZE_ANY_EXHDR(text_key)) & 0xFFFF;
}

/*
 * Take a key for a task, which is written before another key is taken that
 * equals it.  Returns whose it is then: that task's, or that of the one that
 * has it.  Without wait, 0 if that is not known as yet.
 */
int64
fairq_dedup_take(FairqQueue *queue, FairqTable *tasks, Datum key, int64 id,
				 bool wait)
{
	FairqTable *keys = open_keys(tasks);
	uint16		hash = hash_of(key);
	Oid			relid = fairq_catalog()->dedup;
	int64		gone = 0;		/* a task that had the key and was not there */

	fairq_table_open_indexes(keys);
	for (;;)
	{
		ItemPointerData tid;
		TransactionId other;
		int64		owner;
		bool		stale;
		bool		taken = false;

		CHECK_FOR_INTERRUPTS();
		LockDatabaseObject(relid, queue->id, hash, ExclusiveLock);
		owner = look_up_key(keys, queue->id, key, &tid, &other);
		stale = owner != 0 && owner == gone &&
			!has_task(tasks, queue->id, key, owner);
		if (stale ? fairq_table_lock(keys, &tid) :
			owner == 0 && !TransactionIdIsValid(other))
		{
			if (stale)
				fairq_table_delete(keys, &tid);
			put_key(keys, queue->id, key, id);
			taken = true;
		}
		UnlockDatabaseObject(relid, queue->id, hash, ExclusiveLock);
		if (taken)
			return id;
		if (owner != 0 && !stale)
		{
			if (has_task(tasks, queue->id, key, owner))
				return owner;
			/* look again under the lock, where nothing may be waited for */
			fairq_table_open_indexes(tasks);
			gone = owner;
		}
		else if (!wait)
			return 0;
		else if (stale)
			fairq_table_wait(keys, &tid);
		else
			XactLockTableWait(other, NULL, NULL, XLTW_None);
	}
}

/*
 * Returns the id of the unfinished task that has the key, as it is committed or
 * our own; 0: none.  Whoever puts a key there is kept off meanwhile, so that one
 * which goes from a task to another is not missed.
 */
int64
fairq_dedup_find(FairqQueue *queue, FairqTable *tasks, FairqTable *keys,
				 Datum key)
{
	Oid			relid = RelationGetRelid(keys->rel);
	uint16		hash = hash_of(key);
	FairqScan  *scan;
	FairqRowState state;
	int64		id = 0;
	bool		live = false;

	LockDatabaseObject(relid, queue->id, hash, RowExclusiveLock);
	scan = scan_key(keys, queue->id, key);
	while (!live && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		bool		isnull;

		live = state == FAIRQ_ROW_LIVE;
		if (state != FAIRQ_ROW_INSERTING)
			id = DatumGetInt64(slot_getattr(fairq_scan_slot(scan),
											DEDUP_TASK_ID, &isnull));
	}
	fairq_scan_end(scan);
	UnlockDatabaseObject(relid, queue->id, hash, RowExclusiveLock);
	return id != 0 && has_task(tasks, queue->id, key, id) ? id : 0;
}

/* Free the key of a locked task that is finished. */
void
fairq_dedup_free(FairqTable *tasks, const FairqTask *task)
{
	FairqTable *keys = open_keys(tasks);
	bool		isnull;
	FairqScan  *scan = scan_key(keys, task->queue_id,
								slot_getattr(tasks->locked.slot,
											 TASK_DEDUP_KEY, &isnull));
	FairqRowState state;

	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		TupleTableSlot *slot = fairq_scan_slot(scan);

		if (state == FAIRQ_ROW_LIVE &&
			DatumGetInt64(slot_getattr(slot, DEDUP_TASK_ID, &isnull)) == task->id)
			fairq_table_delete(keys, &slot->tts_tid);
	}
	fairq_scan_end(scan);
}

/*
 * Delete the keys of a queue whose tasks are gone, but those that are being
 * changed.  Returns how many there were.
 */
int64
fairq_dedup_forget(FairqQueue *queue, FairqTable *tasks)
{
	FairqTable *keys = open_keys(tasks);
	FairqKey	scankey = {1, FAIRQ_EQ, Int32GetDatum(queue->id)};
	FairqScan  *scan = fairq_scan_begin(keys, FAIRQ_DEDUP_BY_KEY, &scankey, 1,
										false);
	FairqRowState state;
	int64		forgotten = 0;

	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		TupleTableSlot *slot = fairq_scan_slot(scan);
		ItemPointerData tid = slot->tts_tid;
		bool		isnull;

		if (state == FAIRQ_ROW_LIVE &&
			!has_task(tasks, queue->id, slot_getattr(slot, DEDUP_KEY, &isnull),
					  DatumGetInt64(slot_getattr(slot, DEDUP_TASK_ID, &isnull))) &&
			fairq_table_lock(keys, &tid))
		{
			fairq_table_delete(keys, &tid);
			forgotten++;
		}
	}
	fairq_scan_end(scan);
	return forgotten;
}
