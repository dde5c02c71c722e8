/*
 * store_change.c
 *		Rows of fairq.task: claimed, changed, deleted.
 *
 * Each change of a row writes a new version of it, with some columns changed.
 * The row was locked or read before (store_task.c).
 *
 * The log of a task's failed attempts is a JSON array, the latest one last.
 * The change of the row that ends an attempt also adds its entry, so the log
 * costs no row version.  A pop that takes over a task adds none (see
 * fairq_task_lease()).  The log has at most 10 entries, and keeps 1,000 bytes
 * of each error and 200 of each worker's name.  So it has at most about 12 kB.
 *
 * Locking: the caller has locked the row, or at most its tuple lock is held.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shmem.h"
#include "store_internal.h"

/* bounds of the log of failed attempts */
#define MOST_ENTRIES 10
#define MOST_OF_ERROR 1000
#define MOST_OF_WORKER 200

/* The value of a column in the new version of a row. */
typedef struct Change
{
	AttrNumber	attno;
	Datum		value;
	bool		isnull;
} Change;

/* The row in table->locked.slot with these changes, in a slot of its own. */
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
 * locked, or at most its tuple lock is held.  In the latter case another
 * transaction can win the row: it has changed or locked the row, or is about
 * to change it.
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
		FairqClaimResult locked = fairq_lock_after_all(table, task);

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

/* Insert a row again after this transaction has deleted it. */
static void
insert_again(FairqTable *table, FairqTask *task, const Change *changes,
			 int nchanges)
{
	TupleTableSlot *slot = change_row(table, changes, nchanges);

	table_tuple_insert(table->rel, slot, GetCurrentCommandId(true), 0, NULL);
	fairq_insert_index_entries(table, slot, false);
	pg_atomic_fetch_add_u64(&fairq_domain()->moves, 1);
	task->tid = slot->tts_tid;
	task->taken = false;
}

/* Add the first bytes of a text; NULL: null. */
static void
put_text(StringInfo json, const char *name, const text *value, int most)
{
	appendStringInfo(json, ", \"%s\": ", name);
	if (value == NULL)
		appendStringInfoString(json, "null");
	else
	{
		int			length = pg_mbcliplen(VARDATA_ANY(value),
										  VARSIZE_ANY_EXHDR(value), most);

		escape_json(json, pnstrdup(VARDATA_ANY(value), length));
	}
}

/*
 * Returns the log with one more entry, without those that are too old.  The
 * log, the worker and the error can be missing (0 or NULL).
 */
static Datum
add_entry(Datum log, int32 attempt, Datum worker, const text *error)
{
	StringInfoData json;
	char		at[MAXDATELEN + 1];
	Datum		entry;

	JsonEncodeDateTime(at, TimestampTzGetDatum(GetCurrentTimestamp()),
					   TIMESTAMPTZOID, NULL);
	initStringInfo(&json);
	appendStringInfo(&json, "[{\"at\": \"%s\", \"attempt\": %d", at, attempt);
	put_text(&json, "worker", DatumGetPointer(worker) == NULL ? NULL :
			 DatumGetTextPP(worker), MOST_OF_WORKER);
	put_text(&json, "error", error, MOST_OF_ERROR);
	appendStringInfoString(&json, "}]");
	entry = DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
	if (DatumGetPointer(log) == NULL)
		return entry;
	log = DirectFunctionCall2(jsonb_concat, log, entry);
	while (JB_ROOT_COUNT(DatumGetJsonbP(log)) > MOST_ENTRIES)
		log = DirectFunctionCall2(jsonb_delete_idx, log, Int32GetDatum(0));
	return log;
}

/*
 * Returns the log of a task's failed attempts, with the present one.  Its row
 * is in table->locked.slot.  A taken task has no name of a worker.
 */
Datum
fairq_task_log(FairqTable *table, const FairqTask *task, const text *error)
{
	TupleTableSlot *slot = table->locked.slot;

	if (error == NULL && task->took == FAIRQ_TOOK_LEASE)
		error = cstring_to_text(FAIRQ_LEASE_EXPIRED);
	return add_entry(fairq_column(slot, TASK_ATTEMPT_LOG),
							 task->attempt,
							 task->running ? fairq_column(slot, TASK_WORKER) :
							 (Datum) 0, error);
}

/*
 * Write that the task runs from popped_at until lease_until, at the same
 * address.  Its attempt is the next one.  Its row is locked, or was read by
 * fairq_task_lock_tuple().  If it was running, its lease has expired.  The log
 * of failed attempts does not get this: a wider row would not be HOT, and the
 * pop would read twice as much.  "lapses" counts it.
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
	fairq_remember_leased(task);
	return FAIRQ_CLAIMED;
}

/*
 * Write that the locked task is not running any more, and has a new address.
 * It is ready at run_at: now, or when it is scheduled.  If error is not NULL,
 * it is the reason why the attempt has failed.  If !counts, the attempt has
 * not failed, and does not count.  The row of a task that this transaction has
 * taken is written anew; it keeps its dedup_key only if keeps_key.
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
		{TASK_ATTEMPT_LOG, counts ? fairq_task_log(table, task, error) :
			(Datum) 0},
		{TASK_ERROR, PointerGetDatum(error)}
	};
	int			nchanges = lengthof(changes) -
		(!counts ? 2 : error == NULL ? 1 : 0);

	if (task->taken)
		insert_again(table, task, changes, nchanges);
	else
		(void) update_locked(table, task, changes, nchanges);
	task->addr = new_addr;
	task->released = released;
	task->running = false;
}

/*
 * Write to the locked task, which is not running, its address and the time
 * run_at at which it is ready (0: since it was enqueued).  Unless content is
 * NULL, write its content, too, and whether it is still blocked; its progress
 * was that of the old content.
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

/* Write a column of a locked task. */
static void
update_column(FairqTable *table, FairqTask *task, AttrNumber attno, Datum value,
			  bool isnull)
{
	const Change change = {attno, value, isnull};

	(void) update_locked(table, task, &change, 1);
}

/* Write that the lease of the locked task lasts until lease_until. */
void
fairq_task_extend(FairqTable *table, FairqTask *task, TimestampTz lease_until)
{
	update_column(table, task, TASK_LEASE_UNTIL,
				  TimestampTzGetDatum(lease_until), false);
	task->lease_until = lease_until;
	fairq_remember_leased(task);
}

/* Write the progress of the locked task; 0: none. */
void
fairq_task_progress(FairqTable *table, FairqTask *task, Datum progress)
{
	update_column(table, task, TASK_PROGRESS, progress,
				  DatumGetPointer(progress) == NULL);
	fairq_remember_leased(task);
}

/* Write that the worker of the locked task should stop. */
void
fairq_task_cancel(FairqTable *table, FairqTask *task)
{
	update_column(table, task, TASK_CANCELLED, BoolGetDatum(true), false);
	task->cancelled = true;
}

/*
 * Delete a row.  FAIRQ_GONE: it is no longer the current version.
 * FAIRQ_LOCKED, only if !wait: it is locked, possibly by our own transaction.
 * If it may be ready, it must be locked, or read by fairq_task_lock_tuple().
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
