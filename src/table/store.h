/*
 * store.h
 *		fairq's tables and their indexes, without the executor.
 */
#ifndef FAIRQ_STORE_H
#define FAIRQ_STORE_H

#include "access/genam.h"
#include "access/sdir.h"
#include "access/transam.h"
#include "executor/tuptable.h"
#include "storage/block.h"
#include "utils/rel.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "shmem.h"

/* An open table, for one call of an SQL function. */
typedef struct FairqTable
{
	Relation	rel;			/* the table, open */
	FairqRelation which;		/* which table it is */
	MemoryContext context;		/* memory context in which the table was
								 * opened */
	LOCKMODE	lockmode;		/* mode of the lock on the table */

	/* indexes of the table */
	struct
	{
		int			n;			/* number of the table's indexes */
		List	   *oids;		/* OIDs of the table's indexes */
		Relation   *rels;		/* the indexes; NULL: not opened yet */
	}			indexes;

	TupleTableSlot *new_slot;	/* new version of a row */

	/* the row that is to be changed */
	struct
	{
		TupleTableSlot *slot;	/* row that was locked, or read to be
								 * changed */
		bool		tuple_only; /* true: the row is not locked (at most its
								 * tuple lock is), so another transaction may
								 * change it first */
		bool		tuple;		/* true: the tuple lock of that row is held */
	}			locked;

	TupleTableSlot **at;		/* slot that holds the live task read last;
								 * NULL: none */
	bool		claims_delete;	/* true: a claim deletes the row */

	/* rows to insert together */
	struct
	{
		TupleTableSlot **rows;	/* the rows; NULL: none yet */
		int			n;			/* number of postponed rows */
	}			batch;

	struct FairqScan *by_id;	/* scan that is kept for fairq_task_find();
								 * NULL: not begun yet */

	/* reading a row by its TID */
	struct
	{
		struct IndexFetchTableData *data;	/* fetch for fairq_task_at(); NULL:
											 * none yet */
		TupleTableSlot *slot;	/* row that the fetch has read */
	}			fetch;

	BlockNumber nblocks;		/* pages of the table; 0: not known yet */

	/* prefetching of pages */
	struct
	{
		int			worth;		/* 1: pages are prefetched, -1: they are not,
								 * 0: not decided yet */
		BlockNumber last;		/* page that was prefetched last */
	}			prefetch;

	struct FairqTable *beside[FAIRQ_TABLES];	/* tables that are used with
												 * fairq.task, and closed with
												 * it; NULL: not opened yet */
} FairqTable;

extern FairqTable *fairq_open(FairqRelation which, LOCKMODE lockmode);
extern FairqTable *fairq_try_open_tasks(void);
extern void fairq_table_open_indexes(FairqTable *table);
extern void fairq_table_close(FairqTable *table);
extern void fairq_table_leave(FairqTable *table);
extern FairqTable *fairq_table_beside(FairqTable *table, FairqRelation which);
extern ItemPointer fairq_table_insert(FairqTable *table, const Datum *values,
									  const bool *nulls, int natts);
extern bool fairq_table_put_off(FairqTable *table, const Datum *values,
								const bool *nulls, int natts);
extern void fairq_table_insert_rows(FairqTable *table);
extern bool fairq_table_lock(FairqTable *table, ItemPointer tid);
extern void fairq_table_delete(FairqTable *table, ItemPointer tid);
extern void fairq_table_wait(FairqTable *table, ItemPointer row);

/* The indexes.  Each comment lists the columns of an index, in their order. */
typedef enum FairqIndex
{
	FAIRQ_TASK_BY_ID,			/* id */
	FAIRQ_TASK_BY_TIME,			/* lane, addr; has at least the timed tasks */
	FAIRQ_TASK_BY_GROUP,		/* lane, group_no, addr */
	FAIRQ_TASK_BY_EXPIRY,		/* queue_id, expires_at; has at least the
								 * tasks with expires_at */
	FAIRQ_TASK_BY_BATCH,		/* batch, id; has at least the tasks of
								 * batches */
	FAIRQ_NUMBER_BY_KEY,		/* queue_id, group_key */
	FAIRQ_NUMBER_BY_NO,			/* queue_id, group_no */
	FAIRQ_QUEUE_BY_NAME,		/* name */
	FAIRQ_QUEUE_BY_ID,			/* queue_id */
	FAIRQ_SETTING_BY_GROUP,		/* queue_id, group_no */
	FAIRQ_PRIVILEGE_BY_QUEUE,	/* queue_id, role */
	FAIRQ_DEDUP_BY_KEY,			/* queue_id, dedup_key */
	FAIRQ_ARCHIVE_BY_ID,		/* id */
	FAIRQ_ARCHIVE_BY_STATUS,	/* queue_id, status */
	FAIRQ_BATCH_BY_ID,			/* id */
	FAIRQ_DELTA_BY_BATCH,		/* batch, status */
	FAIRQ_DEPENDENCY_BY_WAITING,	/* waiting, status, task */
	FAIRQ_DEPENDENCY_BY_TASK,	/* task, waiting */
	FAIRQ_INDEXES
} FairqIndex;

#define FAIRQ_MAX_KEYS 4

/* the most rows that are inserted together */
#define FAIRQ_MAX_ROWS 100

/*
 * The range of a scan.  Rows have the values in "equal" in the first columns
 * of the index.  In the next column their value is at least low, and less than
 * high.
 */
typedef struct FairqRange
{
	int			nequal;			/* number of values in equal */
	Datum		equal[2];		/* values of the first columns */
	bool		has_low;		/* true: low is used */
	bool		has_high;		/* true: high is used */
	bool		backward;		/* true: rows are visited from the end */
	Datum		low;			/* lower bound, inclusive */
	Datum		high;			/* upper bound, exclusive */
} FairqRange;

typedef enum FairqRowState
{
	FAIRQ_ROW_END,				/* no more rows */
	FAIRQ_ROW_LATER,			/* the budget is used up, and there may be
								 * more */
	FAIRQ_ROW_LIVE,				/* committed, or our own */
	FAIRQ_ROW_INSERTING,		/* another open transaction's new row */
	FAIRQ_ROW_CHANGING			/* an open transaction is changing the row */
} FairqRowState;

typedef struct FairqScan
{
	FairqTable *table;
	bool		closes;			/* true: the end of the scan closes the
								 * table */
	IndexScanDesc desc;
	SnapshotData snapshot;
	TupleTableSlot *slot;		/* row that was read last */
	ScanDirection direction;
	int			budget;			/* index entries that the scan may still
								 * visit */
	bool		at_entry;		/* true: the scan is at an entry whose row it
								 * has not visited */
	bool		at_end;			/* true: there are no more entries */
	ItemPointerData root;		/* TID to which the entry points */
	int			addr_column;	/* column of addr in the index; 0: none */

	/* tasks at one address that were read ahead */
	struct FairqScannedTask *abreast;
	int			nabreast;
	int			max_abreast;
	int			next_abreast;
} FairqScan;

/* All rows with the given value. */
static inline FairqRange
fairq_range(Datum value)
{
	return (FairqRange)
	{
		.nequal = 1,.equal = {value}
	};
}

/* Returns the range of all rows with these values in the first two columns. */
static inline FairqRange
fairq_range_2(Datum first, Datum second)
{
	return (FairqRange)
	{
		.nequal = 2,.equal = {first, second}
	};
}

/* Returns the part of a range in which the next column is at least low. */
static inline FairqRange
fairq_range_from(FairqRange range, Datum low)
{
	range.has_low = true;
	range.low = low;
	return range;
}

/* Returns the part of a range in which the next column is below high. */
static inline FairqRange
fairq_range_before(FairqRange range, Datum high)
{
	range.has_high = true;
	range.high = high;
	return range;
}

/* Returns the range with the same rows, from the last one to the first. */
static inline FairqRange
fairq_range_backward(FairqRange range)
{
	range.backward = true;
	return range;
}

/*
 * Returns the part of a range in which the next column, an address, is in a
 * section.
 */
static inline FairqRange
fairq_range_section(FairqRange range, int64 from, int64 end)
{
	return fairq_range_before(fairq_range_from(range, Int64GetDatum(from)),
							  Int64GetDatum(end));
}

/* For FAIRQ_TASK_BY_GROUP: a section of a group's line. */
static inline FairqRange
fairq_range_line(int32 lane, int32 group_no, int64 from, int64 end)
{
	return fairq_range_section(fairq_range_2(Int32GetDatum(lane),
											 Int32GetDatum(group_no)),
							   from, end);
}

/* For FAIRQ_TASK_BY_TIME: a section of a lane's timed tasks. */
static inline FairqRange
fairq_range_times(int32 lane, int64 from, int64 end)
{
	return fairq_range_section(fairq_range(Int32GetDatum(lane)), from, end);
}

extern FairqScan *fairq_scan_some(FairqTable *table, FairqIndex index,
								  FairqRange range, int budget);

/* A scan that visits all entries of the range. */
static inline FairqScan *
fairq_scan_begin(FairqTable *table, FairqIndex index, FairqRange range)
{
	return fairq_scan_some(table, index, range, PG_INT32_MAX);
}

extern FairqScan *fairq_scan_table(FairqRelation which, FairqIndex index,
								   FairqRange range);
extern FairqScan *fairq_scan_in_order(FairqScan *scan, FairqTable *table,
									  FairqRange range);
extern void fairq_scan_again(FairqScan *scan, FairqRange range);
extern int64 fairq_scan_reached(FairqScan *scan);
extern int32 fairq_scan_next_group(FairqScan *scan);
extern FairqRowState fairq_scan_next(FairqScan *scan);

/*
 * Returns the transaction whose row was returned as FAIRQ_ROW_INSERTING or
 * _CHANGING.
 */
static inline TransactionId
fairq_scan_changer(const FairqScan *scan)
{
	return TransactionIdIsValid(scan->snapshot.xmin) ? scan->snapshot.xmin :
		scan->snapshot.xmax;
}

/* Move to the next row that no other transaction is changing. */
static inline bool
fairq_scan_next_live(FairqScan *scan)
{
	FairqRowState state;

	do
		state = fairq_scan_next(scan);
	while (state != FAIRQ_ROW_LIVE && state != FAIRQ_ROW_END);
	return state == FAIRQ_ROW_LIVE;
}

/*
 * Move to the next row in its committed version, or in our own transaction's
 * version.
 */
static inline bool
fairq_scan_next_current(FairqScan *scan)
{
	FairqRowState state;

	do
		state = fairq_scan_next(scan);
	while (state != FAIRQ_ROW_LIVE && state != FAIRQ_ROW_CHANGING &&
		   state != FAIRQ_ROW_END);
	return state != FAIRQ_ROW_END;
}

extern bool fairq_scan_find_current(FairqScan *scan, FairqRange range);
extern bool fairq_scan_is_own(FairqScan *scan);
extern void fairq_scan_end(FairqScan *scan);

/* the cost of a task without its own cost */
#define FAIRQ_USUAL_COST 1

/* the highest cost that a task can have */
#define FAIRQ_MAX_COST 1000000

/* in place of the number of an attempt: any attempt of the task */
#define FAIRQ_ANY_ATTEMPT (-1)

/* in FairqTask.took: the lease has expired, so the working time is unknown */
#define FAIRQ_TOOK_LEASE (-2)

/* the error of an attempt whose lease has expired */
#define FAIRQ_LEASE_EXPIRED "lease expired"

/* fairq.archive.status; dropped tasks have no row there */
typedef enum FairqStatus
{
	FAIRQ_STATUS_DROPPED = 0,
	FAIRQ_STATUS_COMPLETED = 1,
	FAIRQ_STATUS_FAILED = 2,
	FAIRQ_STATUS_CANCELLED = 3,
	FAIRQ_STATUS_EXPIRED = 4
} FairqStatus;

/* A row of fairq.task, without its payload. */
typedef struct FairqTask
{
	ItemPointerData tid;		/* TID of the row */
	ItemPointerData root;		/* TID to which the row's index entries point;
								 * invalid: not known */
	int64		id;				/* id of the task */
	int64		addr;			/* address of the task */
	int64		turn;			/* address of the turn at which it was
								 * served */
	TimestampTz enqueued_at;	/* time at which the task was enqueued */
	TimestampTz lease_until;	/* end of the task's lease; valid if running */
	TimestampTz popped_at;		/* time of the last claim; 0: there was none */
	TimestampTz run_at;			/* time for which the task is scheduled, or at
								 * which it was put back; 0: neither */
	TimestampTz expires_at;		/* time from which the task may not begin;
								 * DT_NOEND: none */
	int64		batch;			/* id of the batch to which the task belongs;
								 * 0: none */
	int32		queue_id;		/* id of the task's queue */
	int32		group_no;		/* number of the task's group */
	int32		attempt;		/* number of attempts so far */
	int32		released;		/* attempts that do not count towards
								 * max_attempts */
	int32		lapses;			/* attempts whose leases have lapsed */
	int32		max_attempts;	/* limit of the attempts that count; 0: the
								 * queue's setting */
	int64		took;			/* microseconds of work in the last attempt, as
								 * its worker has reported; -1 if not reported,
								 * or FAIRQ_TOOK_LEASE */
	float		cost;			/* charge to the task's group; above 0 */
	int16		priority;		/* from 0 to FAIRQ_PRIORITIES - 1 */
	bool		running;		/* true: the task is leased */
	bool		cancelled;		/* true: the task's worker should stop */
	bool		blocked;		/* true: the task waits for the batch with its
								 * id, or for other tasks */
	bool		keyed;			/* true: the task has a dedup_key that it has
								 * not given up */
	bool		until_started;	/* true: the task gives up its dedup_key at its
								 * first claim */
	bool		taken;			/* true: the row is gone, because this
								 * transaction has taken the task */
} FairqTask;

/*
 * Whether the task has expired: its time to begin has passed, and no attempt
 * that counts has begun.
 */
static inline bool
fairq_is_expired(const FairqTask *task, TimestampTz now)
{
	return task->expires_at <= now && !task->running &&
		task->attempt == task->released;
}

/* number of lapsed leases from which a task is served alone */
#define FAIRQ_LAPSES_ALONE 2

/*
 * Whether a task that can be claimed is served alone, since it may have killed
 * its workers.  If the task still has a lease, that lease has expired, and is
 * counted as lapsed.
 */
static inline bool
fairq_is_alone(const FairqTask *task)
{
	return task->lapses + (task->running ? 1 : 0) >= FAIRQ_LAPSES_ALONE;
}

extern bool fairq_task_has(TupleTableSlot *slot, AttrNumber attno);
extern void fairq_task_read(TupleTableSlot *slot, FairqTask *task);
extern FairqRowState fairq_task_next(FairqScan *scan, FairqTask *task,
									 bool in_order);
extern int	fairq_task_ahead(FairqScan *scan, int most, FairqItem *items,
							 int64 *next);
extern void fairq_task_prefetch(FairqTable *table,
								const ItemPointerData *tid);
extern FairqRowState fairq_task_at(FairqTable *table,
								   const ItemPointerData *root,
								   FairqTask *task);

/* called for each task on a page */
typedef void (*FairqTaskSeen) (void *arg, const FairqTask *task);

extern void fairq_task_pages(FairqTable *table, BlockNumber from,
							 BlockNumber end, Snapshot as_of,
							 FairqTaskSeen seen, void *arg);

typedef enum FairqClaimResult
{
	FAIRQ_CLAIMED,				/* the caller has claimed the task */
	FAIRQ_GONE,					/* another transaction has or had the task, or
								 * the caller has ended it */
	FAIRQ_LOCKED				/* the row is only locked, so the task may soon
								 * be free */
} FairqClaimResult;

extern FairqClaimResult fairq_task_lock(FairqTable *table, FairqTask *task,
										LockTupleMode mode);
extern FairqClaimResult fairq_task_lock_tuple(FairqTable *table,
											  FairqTask *task);
extern FairqClaimResult fairq_task_peek(FairqTable *table, FairqTask *task,
										bool to_delete);
extern void fairq_task_unlock_tuple(FairqTable *table, const FairqTask *task);
extern Datum fairq_task_log(FairqTable *table, const FairqTask *task,
							bool failed, const text *error);
extern FairqClaimResult fairq_task_lease(FairqTable *table, FairqTask *task,
										 TimestampTz popped_at,
										 TimestampTz lease_until,
										 Datum worker);
extern void fairq_task_return(FairqTable *table, FairqTask *task,
							  int64 new_addr, TimestampTz run_at,
							  const text *error, bool counts, bool keeps_key);

/* The content of a task for its worker. */
typedef struct FairqContent
{
	Datum		payload;		/* the task's payload */
	Datum		headers;		/* the task's headers; 0: none */
	TimestampTz expires_at;		/* time from which the task may not begin;
								 * DT_NOEND: none */
	bool		blocked;		/* true: the task waits for the batch with its
								 * id, or for other tasks */
} FairqContent;

extern void fairq_task_change(FairqTable *table, FairqTask *task, int64 addr,
							  TimestampTz run_at, const FairqContent *content);
extern void fairq_task_set(FairqTable *table, FairqTask *task,
						   AttrNumber attno, Datum value);
extern bool fairq_task_find_deleted(FairqTable *table,
									const ItemPointerData *tid,
									TransactionId by, FairqTask *task);
extern FairqClaimResult fairq_task_delete(FairqTable *table,
										  const FairqTask *task, bool wait);

#define FAIRQ_NOT_SEARCHED PG_UINT64_MAX

extern bool fairq_task_of_batch(FairqTable *table, int64 batch, int64 before,
								bool changing,
								FairqTask *task);
extern bool fairq_task_find_in_index(FairqTable *table, int64 id,
									 FairqTask *task, TransactionId *changer);
extern FairqScan *fairq_task_scan_by_id(FairqTable *table, int64 id,
										uint64 *moves);
extern bool fairq_task_find_nowait(FairqTable *table, int64 id,
								   FairqTask *task, bool *changing);
extern bool fairq_task_find(FairqTable *table, int64 id, FairqTask *task);
extern bool fairq_task_find_locked(FairqTable *table, int64 id,
								   FairqTask *task);

/* Fill in a column of a new row. */
static inline void
fairq_set(Datum *values, bool *nulls, AttrNumber attno, Datum value)
{
	values[attno - 1] = value;
	nulls[attno - 1] = false;
}

/* Fill in a column of a new row, where 0 means NULL. */
static inline void
fairq_set_if_any(Datum *values, bool *nulls, AttrNumber attno, Datum value)
{
	values[attno - 1] = value;
	nulls[attno - 1] = value == (Datum) 0;
}

/* Returns a column of a row; 0: it is NULL. */
static inline Datum
fairq_column(TupleTableSlot *slot, AttrNumber attno)
{
	bool		isnull;

	return slot_getattr(slot, attno, &isnull);
}

/* Returns an int column, or the given value if it is NULL. */
static inline int32
fairq_int_of(TupleTableSlot *slot, AttrNumber attno, int32 none)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attno, &isnull);

	return isnull ? none : DatumGetInt32(value);
}

/* Returns a time column, or the given value if it is NULL. */
static inline TimestampTz
fairq_time_of(TupleTableSlot *slot, AttrNumber attno, TimestampTz none)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attno, &isnull);

	return isnull ? none : DatumGetTimestampTz(value);
}

#endif							/* FAIRQ_STORE_H */
