/*
 * store.h
 *		fairq's tables and their indexes, without the executor.
 */
#ifndef FAIRQ_STORE_H
#define FAIRQ_STORE_H

#include "executor/tuptable.h"
#include "storage/block.h"
#include "storage/lockdefs.h"
#include "utils/rel.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "shmem.h"

/* tables that are read or written directly */
#define FAIRQ_TABLES 7

/* An open table, for one call of an SQL function. */
typedef struct FairqTable
{
	Relation	rel;			/* the table, open */
	MemoryContext context;		/* memory context in which it was opened */
	LOCKMODE	lockmode;		/* lock on it */

	/* indexes of the table */
	struct
	{
		int			n;			/* number of its indexes */
		Oid		   *oids;		/* OIDs of its indexes */
		Relation   *rels;		/* its indexes; NULL: not opened yet */
	}			indexes;

	TupleTableSlot *new_slot;	/* version of a row that is to be written */

	/* the row that is to be changed */
	struct
	{
		TupleTableSlot *slot;	/* row that was locked, or read to be
								 * changed */
		bool		tuple_only; /* true: the row is not locked, at most its
								 * tuple lock is held: a rival may change it
								 * first */
		bool		tuple;		/* true: the tuple lock of that row is held */
	}			locked;

	TupleTableSlot **at;		/* slot that has the task read last, which was
								 * live; NULL: none */
	bool		claims_delete;	/* true: a claim deletes the row */

	/* rows that are to be inserted together */
	struct
	{
		TupleTableSlot **rows;	/* these rows; NULL: none yet */
		int			n;			/* number of these */
	}			batch;

	struct FairqScan *by_id;	/* scan for fairq_task_find(); NULL: none
								 * yet */
	struct FairqScan *entries;	/* scan for fairq_task_entries(); NULL: none
								 * yet */

	/* reading a row by its TID */
	struct
	{
		struct IndexFetchTableData *data;	/* fetch for fairq_task_at(); NULL:
											 * none yet */
		TupleTableSlot *slot;	/* row that it has fetched */
	}			fetch;

	BlockNumber nblocks;		/* pages of the table; 0: not asked yet */

	/* whether pages are prefetched, and which one was */
	struct
	{
		int			worth;		/* 1: pages are prefetched; -1: they are not;
								 * 0: not asked yet */
		BlockNumber last;		/* page that was prefetched last */
	}			prefetch;

	/* tables that are opened beside fairq.task, and closed with it */
	struct
	{
		struct FairqTable *dedup;	/* fairq.dedup; NULL: not opened yet */
		struct FairqTable *archive; /* fairq.archive, likewise */
	}			beside;
} FairqTable;

extern FairqTable *fairq_table_open(Oid relid, LOCKMODE lockmode);
extern FairqTable *fairq_table_try_open(Oid relid);
extern void fairq_table_open_indexes(FairqTable *table);
extern void fairq_table_close(FairqTable *table);
extern void fairq_table_leave(FairqTable *table);
extern FairqTable *fairq_table_beside(FairqTable *table,
									  struct FairqTable **other, Oid relid);
extern ItemPointer fairq_table_insert(FairqTable *table, const Datum *values,
									  const bool *nulls, int natts);
extern bool fairq_table_put_off(FairqTable *table, const Datum *values,
								const bool *nulls, int natts);
extern void fairq_table_insert_rows(FairqTable *table);
extern bool fairq_table_lock(FairqTable *table, ItemPointer tid);
extern void fairq_table_delete(FairqTable *table, ItemPointer tid);
extern void fairq_table_wait(FairqTable *table, ItemPointer row);

/* Which index: by its columns, in their order. */
typedef enum FairqIndex
{
	FAIRQ_TASK_BY_ID,			/* id */
	FAIRQ_TASK_BY_TIME,			/* lane, addr; of timed tasks, at least */
	FAIRQ_TASK_BY_GROUP,		/* lane, group_no, addr */
	FAIRQ_TASK_BY_EXPIRES_AT,		/* queue_id, expires_at; of tasks that have
								 * that, at least */
	FAIRQ_NUMBER_BY_KEY,		/* queue_id, group_key */
	FAIRQ_NUMBER_BY_NO,			/* queue_id, group_no */
	FAIRQ_QUEUE_BY_NAME,		/* name */
	FAIRQ_QUEUE_BY_ID,			/* queue_id */
	FAIRQ_SETTING_BY_GROUP,		/* queue_id, group_no */
	FAIRQ_PRIVILEGE_BY_QUEUE,	/* queue_id, role */
	FAIRQ_DEDUP_BY_KEY,			/* queue_id, dedup_key */
	FAIRQ_ARCHIVE_BY_ID,		/* id */
	FAIRQ_ARCHIVE_BY_STATUS,	/* queue_id, status */
	FAIRQ_INDEXES
} FairqIndex;

#define FAIRQ_MAX_KEYS 4

/* rows that are inserted together, at most */
#define FAIRQ_MAX_ROWS 100

/*
 * What a scan looks for: rows with these values in the first columns of the
 * index, and one of a range in the next column.
 */
typedef struct FairqRange
{
	int			nequal;			/* number of values in equal */
	Datum		equal[2];		/* values of the first columns */
	bool		has_low;		/* true: low counts */
	bool		has_high;		/* true: high counts */
	Datum		low;			/* the least value of the range */
	Datum		high;			/* the least value past it */
} FairqRange;

typedef enum FairqRowState
{
	FAIRQ_ROW_END,				/* no more rows */
	FAIRQ_ROW_LATER,			/* there may be, but not for this budget */
	FAIRQ_ROW_LIVE,				/* committed, or our own */
	FAIRQ_ROW_INSERTING,		/* another open transaction's new row */
	FAIRQ_ROW_CHANGING			/* an open transaction is changing it */
} FairqRowState;

typedef struct FairqScan FairqScan;

/* All rows with that value. */
static inline FairqRange
fairq_range(Datum value)
{
	return (FairqRange)
	{
		.nequal = 1,.equal = {value}
	};
}

/* All rows with these values. */
static inline FairqRange
fairq_range_2(Datum first, Datum second)
{
	return (FairqRange)
	{
		.nequal = 2,.equal = {first, second}
	};
}

/* Those at or past a value in the next column. */
static inline FairqRange
fairq_range_from(FairqRange range, Datum low)
{
	range.has_low = true;
	range.low = low;
	return range;
}

/* Those before a value in the next column. */
static inline FairqRange
fairq_range_before(FairqRange range, Datum high)
{
	range.has_high = true;
	range.high = high;
	return range;
}

/* By group: a stretch of a group's line. */
static inline FairqRange
fairq_range_line(int32 lane, int32 group_no, int64 from, int64 end)
{
	FairqRange	range = fairq_range_2(Int32GetDatum(lane),
									  Int32GetDatum(group_no));

	return fairq_range_before(fairq_range_from(range, Int64GetDatum(from)),
							  Int64GetDatum(end));
}

/* By time: a stretch of a lane's timed tasks. */
static inline FairqRange
fairq_range_times(int32 lane, int64 from, int64 end)
{
	FairqRange	range = fairq_range(Int32GetDatum(lane));

	return fairq_range_before(fairq_range_from(range, Int64GetDatum(from)),
							  Int64GetDatum(end));
}

extern FairqScan *fairq_scan_begin(FairqTable *table, FairqIndex index,
								   FairqRange range, bool backward);
extern FairqScan *fairq_scan_in_order(FairqScan *scan, FairqTable *table,
									  FairqIndex index, FairqRange range);
extern void fairq_scan_again(FairqScan *scan, FairqRange range);
extern FairqScan *fairq_scan_some(FairqTable *table, FairqIndex index,
								  FairqRange range, bool backward, int budget);
extern void fairq_scan_more(FairqScan *scan);
extern int	fairq_scan_left(FairqScan *scan);
extern int64 fairq_scan_reached(FairqScan *scan);
extern int32 fairq_scan_next_group(FairqScan *scan);
extern FairqRowState fairq_scan_next(FairqScan *scan);
extern bool fairq_scan_next_current(FairqScan *scan);
extern bool fairq_scan_find_current(FairqScan *scan, FairqRange range);
extern TupleTableSlot *fairq_scan_slot(FairqScan *scan);
extern TransactionId fairq_scan_changer(FairqScan *scan);
extern bool fairq_scan_is_own(FairqScan *scan);
extern void fairq_scan_end(FairqScan *scan);

/* the cost of a task that has none of its own */
#define FAIRQ_USUAL_COST 1

/* the highest cost that a task can have */
#define FAIRQ_MAX_COST 1000000

/* whichever attempt a task is at */
#define FAIRQ_ANY_ATTEMPT (-1)

/* in FairqTask.took: the lease has expired, and what was worked is not known */
#define FAIRQ_TOOK_LEASE (-2)

/* A row of fairq.task, without its payload. */
typedef struct FairqTask
{
	ItemPointerData tid;		/* TID of the row */
	ItemPointerData root;		/* TID to which an index leads; invalid: not
								 * known */
	int64		id;				/* id of the task */
	int64		addr;			/* address at which it stands */
	int64		turn;			/* address of the turn at which it was
								 * served */
	TimestampTz enqueued_at;	/* time at which it was enqueued */
	TimestampTz lease_until;	/* end of its lease; meaningful if running */
	TimestampTz popped_at;		/* time of its last claim; 0: it had none */
	TimestampTz run_at;			/* time for which it is scheduled, or at which
								 * it was put back; 0: neither */
	TimestampTz expires_at;		/* time from which on it does not begin;
								 * DT_NOEND: none */
	int32		queue_id;		/* id of its queue */
	int32		group_no;		/* number of its group */
	int32		attempt;		/* number of attempts so far */
	int32		released;		/* attempts that don't count */
	int32		lapses;			/* attempts that have ended with their leases */
	int32		max_attempts;	/* most attempts that count; 0: as the queue
								 * says */
	int64		took;			/* microseconds of work that its worker says
								 * the attempt has taken; -1: it does not;
								 * FAIRQ_TOOK_LEASE */
	float		cost;			/* what a group is charged for it; above 0 */
	int16		priority;		/* from 0 to FAIRQ_PRIORITIES - 1 */
	bool		running;		/* true: it is leased */
	bool		cancelled;		/* true: its worker is to stop */
	bool		keyed;			/* true: it has a dedup_key that it has not
								 * given up */
	bool		until_started;	/* true: it gives that up at its first claim */
	bool		taken;			/* true: its row is gone, as this transaction has
								 * taken it */
} FairqTask;

/*
 * Has the time passed by which the task was to begin, and none of its attempts that
 * count has begun?
 */
static inline bool
fairq_is_expired(const FairqTask *task, TimestampTz now)
{
	return task->expires_at <= now && !task->running &&
		task->attempt == task->released;
}

/* with so many lapsed leases a task is served alone */
#define FAIRQ_LAPSES_ALONE 2

/*
 * Is a task that can be claimed served alone, as it may have killed its workers?  A
 * lease that it still has counts, as that has expired.
 */
static inline bool
fairq_is_alone(const FairqTask *task)
{
	return task->lapses + (task->running ? 1 : 0) >= FAIRQ_LAPSES_ALONE;
}

extern bool fairq_task_has(TupleTableSlot *slot, AttrNumber attno);
extern bool fairq_task_keyed(TupleTableSlot *slot);
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
extern int	fairq_task_entries(FairqTable *table, int32 lane, int32 group_no,
							   int64 from, int most, FairqItem *items,
							   int64 *end, bool *abreast);

/* what is done with a task on a page */
typedef void (*FairqTaskSeen) (void *arg, const FairqTask *task);

extern void fairq_task_pages(FairqTable *table, BlockNumber from,
							 BlockNumber end, Snapshot as_of,
							 FairqTaskSeen seen, void *arg);

typedef enum FairqClaimResult
{
	FAIRQ_CLAIMED,				/* the caller has it */
	FAIRQ_GONE,					/* another transaction has or had it, or the
								 * caller has ended it */
	FAIRQ_LOCKED				/* merely locked: it may be free in a moment */
} FairqClaimResult;

extern FairqClaimResult fairq_task_lock(FairqTable *table, FairqTask *task);
extern FairqClaimResult fairq_task_lock_to_keep(FairqTable *table,
												FairqTask *task);
extern FairqClaimResult fairq_task_lock_tuple(FairqTable *table,
											  FairqTask *task);
extern FairqClaimResult fairq_task_peek(FairqTable *table, FairqTask *task,
										bool to_delete);
extern void fairq_task_unlock_tuple(FairqTable *table, const FairqTask *task);
extern FairqClaimResult fairq_task_lease(FairqTable *table, FairqTask *task,
										 TimestampTz popped_at,
										 TimestampTz lease_until, Datum worker,
										 bool worker_isnull);
extern void fairq_task_return(FairqTable *table, FairqTask *task,
							  int64 new_addr, TimestampTz run_at,
							  const text *error, bool counts);
/* What a task is, to its worker. */
typedef struct FairqContent
{
	Datum		payload;		/* its payload */
	Datum		headers;		/* its headers; 0: none */
	TimestampTz expires_at;		/* time from which on it does not begin;
								 * DT_NOEND: none */
} FairqContent;

extern void fairq_task_change(FairqTable *table, FairqTask *task, int64 addr,
							  TimestampTz run_at, const FairqContent *content);
extern void fairq_task_extend(FairqTable *table, FairqTask *task,
							  TimestampTz lease_until);
extern void fairq_task_progress(FairqTable *table, FairqTask *task,
								Datum progress);
extern void fairq_task_cancel(FairqTable *table, FairqTask *task);
extern bool fairq_task_find_deleted(FairqTable *table,
									const ItemPointerData *tid,
									TransactionId by, FairqTask *task);
extern void fairq_task_put_back(FairqTable *table, FairqTask *task,
								int64 new_addr, TimestampTz run_at,
								const text *error, bool counts,
								bool keeps_key);
extern FairqClaimResult fairq_task_delete(FairqTable *table,
										  const FairqTask *task, bool wait);

#define FAIRQ_NOT_SEARCHED PG_UINT64_MAX

extern FairqScan *fairq_task_scan_by_id(FairqTable *table, int64 id,
										uint64 *moves);
extern bool fairq_task_find_nowait(FairqTable *table, int64 id,
								   FairqTask *task, bool *changing);
extern bool fairq_task_find(FairqTable *table, int64 id, FairqTask *task);
extern bool fairq_task_find_locked(FairqTable *table, int64 id,
								   FairqTask *task);

/* Fill in a column of a row to be. */
static inline void
fairq_set(Datum *values, bool *nulls, AttrNumber attno, Datum value)
{
	values[attno - 1] = value;
	nulls[attno - 1] = false;
}

/* The same, where 0 stands for NULL. */
static inline void
fairq_set_if_any(Datum *values, bool *nulls, AttrNumber attno, Datum value)
{
	values[attno - 1] = value;
	nulls[attno - 1] = value == (Datum) 0;
}

/* A column of a row; 0: it is NULL. */
static inline Datum
fairq_column(TupleTableSlot *slot, AttrNumber attno)
{
	bool		isnull;

	return slot_getattr(slot, attno, &isnull);
}

/* A column that is an int, or what it stands for if it is NULL. */
static inline int32
fairq_int_of(TupleTableSlot *slot, AttrNumber attno, int32 none)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attno, &isnull);

	return isnull ? none : DatumGetInt32(value);
}

/* The same of a time. */
static inline TimestampTz
fairq_time_of(TupleTableSlot *slot, AttrNumber attno, TimestampTz none)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attno, &isnull);

	return isnull ? none : DatumGetTimestampTz(value);
}

#endif							/* FAIRQ_STORE_H */
