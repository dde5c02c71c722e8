/*
 * dedup.c
 *		One unfinished task per queue and key.
 *
 * fairq.dedup has a row for each key of an unfinished task.  An enqueue
 * inserts the row, and the transaction that finishes the task deletes it.  If
 * the task has its key only until it starts, its first claim deletes the row.
 * A retried task does not get the key back, since another task may own it by
 * then.  An enqueue that finds the row returns its task's id.  If another
 * transaction is inserting or changing the row, the enqueue waits for its end.
 * Its outcome decides whether a task has the key.  Tasks without a key do not
 * use this table.
 *
 * A key can be held for some time after it was given up (dedup_for), if its
 * task was started.  Then a row with the end of that time replaces the key's
 * row.  That row is invalid after the time.  The next task to take the key, or
 * maintain(), removes it.
 *
 * The row of a key may be stale, if fairq.task was truncated or restored
 * without its rows.  So an enqueue that finds a key checks whether its task
 * exists, and deletes the row if the task does not exist.  A task that an open
 * transaction is changing counts as existing.
 *
 * Locking: between the search and the new row, ExclusiveLock on the object
 * (fairq.dedup, queue_id, hash of the key), released at once.  After the
 * release, an enqueue waits for the end of the transaction that inserts or
 * changes the row.  A stale or invalid row is locked before it is deleted, if
 * that is possible at once.  The row of a held key is inserted under the same
 * lock, even by a claim, which has locked its task's row.  That is safe,
 * because no backend waits while it holds this lock.  A call that takes
 * several keys takes them in the order of the keys.  Transactions that take
 * keys in several calls may deadlock, as with any unique key.  PostgreSQL then
 * ends one of them.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"

#include "compat.h"
#include "dedup.h"
#include "transaction.h"

/* The row of a key in fairq.dedup. */
typedef struct KeyRow
{
	int64		id;				/* task of the row; 0: there is none */
	ItemPointerData tid;		/* where the row is */
	TimestampTz free_at;		/* when the key is free; DT_NOEND: the task has
								 * it */
	TransactionId other;		/* if there is no row, the transaction that
								 * inserts or changes one; invalid: there is
								 * none */
} KeyRow;

/* Read the row that the scan is at. */
static void
read_key(TupleTableSlot *slot, KeyRow *row)
{
	row->id = DatumGetInt64(fairq_column(slot, DEDUP_TASK_ID));
	row->free_at = fairq_time_of(slot, DEDUP_FREE_AT, DT_NOEND);
	row->tid = slot->tts_tid;
}

/*
 * Find the row of a key.  If changing is true, also find a row that a
 * transaction is deleting.
 */
static KeyRow
look_up_key(FairqTable *keys, int32 queue_id, Datum key, bool changing)
{
	FairqRange	range = fairq_range_2(Int32GetDatum(queue_id), key);
	FairqScan  *scan = fairq_scan_begin(keys, FAIRQ_DEDUP_BY_KEY, range);
	FairqRowState state = FAIRQ_ROW_INSERTING;
	KeyRow		row = {0};

	while (state != FAIRQ_ROW_LIVE &&
		   (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		if (state == FAIRQ_ROW_LIVE ||
			(changing && state == FAIRQ_ROW_CHANGING))
			read_key(scan->slot, &row);
		else
			row.other = fairq_scan_changer(scan);
	}
	fairq_scan_end(scan);
	return row;
}

/*
 * Whether the task of the scan's row has the key in the queue and has not
 * given it up.
 */
static bool
has_key(TupleTableSlot *slot, int32 queue_id, Datum key)
{
	Datum		value = fairq_column(slot, TASK_DEDUP_KEY);
	FairqTask	task;

	fairq_task_read(slot, &task);
	return task.keyed && task.queue_id == queue_id &&
		DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID, value,
											 key));
}

/*
 * Whether a task with the id and the key exists, even one that a transaction
 * is inserting or deleting.  A row that is moved meanwhile is not missed: see
 * store_task.c.
 */
static bool
has_task(FairqTable *tasks, int32 queue_id, Datum key, int64 id)
{
	uint64		moves = FAIRQ_NOT_SEARCHED;
	FairqScan  *scan;
	bool		found = false;
	/* use the table's context, because a later call uses the scan again */
	MemoryContext old = MemoryContextSwitchTo(tasks->context);

	while (!found &&
		   (scan = fairq_task_scan_by_id(tasks, id, &moves)) != NULL)
	{
		while (!found && fairq_scan_next(scan) != FAIRQ_ROW_END)
			found = has_key(scan->slot, queue_id, key);
		/* keep a buffer pinned only while it is read */
		ExecClearTuple(scan->slot);
	}
	MemoryContextSwitchTo(old);
	return found;
}

/* Whether the task that has the key keeps it, although it will never begin. */
bool
fairq_dedup_is_expired(FairqTable *tasks, int64 id)
{
	FairqTask	task;
	bool		changing;

	return fairq_task_find_nowait(tasks, id, &task, &changing) && !changing &&
		task.keyed && fairq_is_expired(&task, GetCurrentTimestamp());
}

static void
put_key(FairqTable *keys, int32 queue_id, Datum key, int64 id,
		TimestampTz free_at)
{
	Datum		values[DEDUP_NATTS];
	bool		nulls[DEDUP_NATTS] = {0};

	values[DEDUP_QUEUE_ID - 1] = Int32GetDatum(queue_id);
	values[DEDUP_KEY - 1] = key;
	values[DEDUP_TASK_ID - 1] = Int64GetDatum(id);
	values[DEDUP_FREE_AT - 1] = TimestampTzGetDatum(free_at);
	nulls[DEDUP_FREE_AT - 1] = free_at == DT_NOEND;
	fairq_table_insert(keys, values, nulls, DEDUP_NATTS);
}

/* The object that is locked to take a key. */
static uint16
hash_of(Datum key)
{
	text	   *text_key = DatumGetTextPP(key);

	return hash_bytes((unsigned char *) VARDATA_ANY(text_key),
					  VARSIZE_ANY_EXHDR(text_key)) & 0xFFFF;
}

/*
 * Whether the key has no owner, although there is a row.  gone is a task that
 * had the key but was not found.  A redriven task gets its own key back.
 */
static bool
is_void(FairqTable *tasks, int32 queue_id, Datum key, const KeyRow *row,
		int64 id, int64 gone)
{
	if (row->id == 0)
		return false;
	if (row->free_at != DT_NOEND)
		return row->id == id || row->free_at <= GetCurrentTimestamp();
	return row->id == gone && !has_task(tasks, queue_id, key, gone);
}

/*
 * Take a key for a task.  The caller must write the task before an equal key
 * is taken.  Returns the id of the key's owner: the new task, or the task that
 * has the key, or had it and still holds it.  Without wait, returns 0 if the
 * owner is not known yet.
 */
int64
fairq_dedup_take(FairqQueue *queue, FairqTable *tasks, Datum key, int64 id,
				 bool wait)
{
	FairqTable *keys = fairq_table_beside(tasks, FAIRQ_DEDUP);
	uint16		hash = hash_of(key);
	Oid			relid = fairq_relid(FAIRQ_DEDUP);
	int64		gone = 0;		/* a task that had the key but was not found */

	fairq_table_open_indexes(keys);
	for (;;)
	{
		KeyRow		row;
		bool		stale;
		bool		taken = false;

		CHECK_FOR_INTERRUPTS();
		LockDatabaseObject(relid, queue->id, hash, ExclusiveLock);
		row = look_up_key(keys, queue->id, key, false);
		stale = is_void(tasks, queue->id, key, &row, id, gone);
		if (stale ? fairq_table_lock(keys, &row.tid) :
			row.id == 0 && !TransactionIdIsValid(row.other))
		{
			if (stale)
				fairq_table_delete(keys, &row.tid);
			put_key(keys, queue->id, key, id, DT_NOEND);
			taken = true;
		}
		UnlockDatabaseObject(relid, queue->id, hash, ExclusiveLock);
		if (taken)
			return id;
		if (row.id != 0 && !stale)
		{
			if (row.free_at != DT_NOEND ||
				has_task(tasks, queue->id, key, row.id))
				return row.id;
			/*
			 * the next search is under the lock, where waiting for another
			 * lock is not allowed
			 */
			fairq_table_open_indexes(tasks);
			gone = row.id;
		}
		else if (!wait)
			return 0;
		else if (stale)
			fairq_table_wait(keys, &row.tid);
		else
			XactLockTableWait(row.other, NULL, NULL, XLTW_None);
	}
}

/*
 * Returns the id of the unfinished task that has the key, if that is committed
 * or our own; 0: none.  No key can be inserted meanwhile, so a key that moves
 * from one task to another is not missed.
 */
int64
fairq_dedup_find(FairqQueue *queue, FairqTable *tasks, Datum key)
{
	FairqTable *keys = fairq_table_beside(tasks, FAIRQ_DEDUP);
	Oid			relid = RelationGetRelid(keys->rel);
	uint16		hash = hash_of(key);
	KeyRow		row;

	LockDatabaseObject(relid, queue->id, hash, RowExclusiveLock);
	row = look_up_key(keys, queue->id, key, true);
	UnlockDatabaseObject(relid, queue->id, hash, RowExclusiveLock);
	return row.id != 0 && row.free_at == DT_NOEND &&
		has_task(tasks, queue->id, key, row.id) &&
		!fairq_dedup_is_expired(tasks, row.id) ? row.id : 0;
}

/*
 * The time until which the key of a locked task is held after the task gives
 * it up; DT_NOBEGIN: it is not held.
 */
static TimestampTz
held_until(FairqTable *tasks)
{
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());
	Datum		held_for;

	if (!fairq_task_has(tasks->locked.slot, TASK_DEDUP_FOR))
		return DT_NOBEGIN;
	held_for = fairq_column(tasks->locked.slot, TASK_DEDUP_FOR);
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   now, held_for));
}

/*
 * Give up the key of a locked or just claimed task.  If the task was started,
 * the key may stay taken for some time.
 */
void
fairq_dedup_free(FairqTable *tasks, const FairqTask *task, bool started)
{
	FairqTable *keys = fairq_table_beside(tasks, FAIRQ_DEDUP);
	TimestampTz until = started ? held_until(tasks) : DT_NOBEGIN;
	Datum		key = fairq_column(tasks->locked.slot, TASK_DEDUP_KEY);
	KeyRow		row = look_up_key(keys, task->queue_id, key, false);

	if (row.id != task->id || row.free_at != DT_NOEND)
		return;
	fairq_table_delete(keys, &row.tid);
	if (until != DT_NOBEGIN)
	{
		uint16		hash = hash_of(key);
		Oid			relid = RelationGetRelid(keys->rel);

		fairq_table_open_indexes(keys);
		LockDatabaseObject(relid, task->queue_id, hash, ExclusiveLock);
		put_key(keys, task->queue_id, key, task->id, until);
		UnlockDatabaseObject(relid, task->queue_id, hash, ExclusiveLock);
	}
}

/*
 * Delete those of a queue's keys whose tasks are gone, or that are no longer
 * held.  Skip keys whose rows are being changed.  Returns the number of
 * deleted keys.
 */
int64
fairq_dedup_forget(FairqQueue *queue)
{
	FairqTable *tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	FairqTable *keys = fairq_table_beside(tasks, FAIRQ_DEDUP);
	FairqScan  *scan = fairq_scan_begin(keys, FAIRQ_DEDUP_BY_KEY,
										fairq_range(Int32GetDatum(queue->id)));
	int64		forgotten = 0;

	while (fairq_scan_next_live(scan))
	{
		TupleTableSlot *slot = scan->slot;
		KeyRow		row;

		read_key(slot, &row);
		if (is_void(tasks, queue->id, fairq_column(slot, DEDUP_KEY), &row, 0,
					row.id) &&
			fairq_table_lock(keys, &row.tid))
		{
			fairq_table_delete(keys, &row.tid);
			forgotten++;
		}
	}
	fairq_scan_end(scan);
	fairq_table_close(tasks);
	if (forgotten > 0)
		fairq_written();
	return forgotten;
}
