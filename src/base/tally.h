/*
 * tally.h
 *		The numbers of tasks of a queue: queued, scheduled and running.
 */
#ifndef FAIRQ_TALLY_H
#define FAIRQ_TALLY_H

#include "storage/procarray.h"

#include "counter.h"
#include "shmem.h"

/* The kinds of tasks that are counted. */
typedef enum FairqTallied
{
	FAIRQ_TALLY_QUEUED,			/* waits for a turn, without a lease */
	FAIRQ_TALLY_SCHEDULED,		/* waits for a time, without a lease */
	FAIRQ_TALLY_RUNNING,		/* has a lease, which may have expired */
	FAIRQ_TALLIES				/* number of kinds */
} FairqTallied;

/* No load is valid for the queue's counters, not even the next one. */
#define FAIRQ_NO_LOAD PG_UINT64_MAX

/* A book: the state of its load, in shared memory, under the tally's lock. */
typedef struct FairqBook
{
	uint64		number;			/* number of the load; 0: none */
	bool		skips;			/* true: the load has skipped tasks of a queue
								 * without hints */
	uint64		xmin;			/* xid, with its epoch, below which the load's
								 * snapshot has seen all transactions end */
	uint64		xmax;			/* xid, with its epoch, from which the snapshot
								 * has seen no transaction end */
	int32		nrunning;		/* number of transactions from xmin to xmax
								 * that the snapshot has seen running */
} FairqBook;

/*
 * The state of an extension's last loads, in shared memory.  Its lock protects
 * all fields except atomic ones.  Atomic fields are written under the lock,
 * except asked_at and sql_waits_until.
 */
typedef struct FairqTally
{
	LWLock		lock;			/* lock of the tally; together with a queue's
								 * mutex, also of that queue's numbers */
	int32		domain;			/* index of the extension's FairqDomain;
								 * constant */
	pg_atomic_uint64 begun_at;	/* time at which the last load was begun, by
								 * the monotonic clock; 0: there was none */
	pg_atomic_uint64 seen_at;	/* time at which the loading backend last
								 * reported, by the same clock; 0: no backend
								 * loads */
	pg_atomic_uint64 asked_at;	/* time at which a worker was last asked to
								 * load, by the same clock; 0: never */
	pg_atomic_uint64 sql_waits_until;	/* time until which SQL that changes
										 * tasks waits, by the same clock */
	pg_atomic_uint64 number;	/* number of the load that began last; 0:
								 * none */
	pg_atomic_uint64 current;	/* number of the last load that is over; 0:
								 * none */
	pg_atomic_uint64 known;		/* resets of the domain with which the current
								 * load's numbers are known; PG_UINT64_MAX:
								 * they are not */
	pg_atomic_uint64 passed;	/* resets of the domain before the last load
								 * that is over; PG_UINT64_MAX: none is */
	FairqBook	books[FAIRQ_BOOKS]; /* a load in progress uses the book that
									 * the current load does not use */
	uint32		running[FLEXIBLE_ARRAY_MEMBER]; /* xids, minus xmin, that each
												 * book's load has seen
												 * running, ascending */
} FairqTally;

/* Numbers of a queue's tasks, in FairqHints in shared memory. */
typedef struct FairqQueueTally
{
	slock_t		mutex;			/* spinlock of number and n, taken with the
								 * tally's lock held */
	dsa_pointer tally;			/* the extension's FairqTally; constant while
								 * the queue exists */
	uint64		number[FAIRQ_BOOKS];	/* number of the load since whose
										 * snapshot n is counted */
	pg_atomic_uint64 loaded[FAIRQ_BOOKS];	/* number of the book's last load
											 * that has counted the queue, or
											 * began before the queue had
											 * tasks, or 0; written under the
											 * tally's lock */
	pg_atomic_uint64 passed;	/* resets of the domain before the last of
								 * these loads; PG_UINT64_MAX: none */
	pg_atomic_uint64 counts_since;	/* number of the last load that is not
									 * valid for the queue's counters;
									 * FAIRQ_NO_LOAD: the next load is not
									 * valid either */
	pg_atomic_uint32 limited;	/* 1: each call counts running tasks, and this
								 * is final; 0: no call has to count them */
	pg_atomic_uint32 calls;		/* number of calls in progress that do not
								 * count running tasks */
	pg_atomic_uint32 uncounted; /* number of transactions and subtransactions
								 * in progress in which uncounted calls have
								 * claimed or ended tasks */
	int64		n[FAIRQ_BOOKS][FAIRQ_TALLIES];	/* numbers of tasks; until the
												 * load is over, only the
												 * changes since it began */
} FairqQueueTally;

/* Returns the tally to which the queue belongs. */
static inline FairqTally *
fairq_tally_of(FairqQueueTally *queue)
{
	return fairq_at(queue->tally);
}

/* The present number of resets of the tally's domain. */
static inline uint64
fairq_tally_resets(const FairqTally *tally)
{
	return pg_atomic_read_u64(&fairq_domain_at(tally->domain)->resets);
}

/* Returns the transactions that a book's load has seen running. */
static inline uint32 *
fairq_tally_running(FairqTally *tally, int book)
{
	return tally->running + book * GetMaxSnapshotXidCount();
}

/* Allow loads to begin again, after fairq_tally_enter(). */
static inline void
fairq_tally_leave(FairqQueueTally *queue)
{
	LWLockRelease(&fairq_tally_of(queue)->lock);
}

/*
 * If the queue has a limit, make all calls count running tasks from now on.
 */
static inline void
fairq_tally_limit(FairqQueueTally *queue, bool limited)
{
	if (limited && pg_atomic_read_u32(&queue->limited) == 0)
		(void) pg_atomic_fetch_or_u32(&queue->limited, 1);
}

/* how long SQL waits after a waiting call or a load has delayed it, in ns */
#define FAIRQ_SQL_DELAY (INT64CONST(100) * 1000 * 1000)

/*
 * Make SQL that changes tasks wait for a moment, because SQL has invalidated
 * the last load, and a call waits for another load.
 */
static inline void
fairq_tally_delay_sql(FairqTally *tally)
{
	pg_atomic_write_u64(&tally->sql_waits_until,
						fairq_monotonic() + FAIRQ_SQL_DELAY);
}

/* Whether SQL that changes tasks has to wait. */
static inline bool
fairq_tally_delays_sql(FairqTally *tally)
{
	return fairq_monotonic() <
		(int64) pg_atomic_read_u64(&tally->sql_waits_until);
}

/* The kind of a task without a lease, according to its address. */
static inline FairqTallied
fairq_tallied_at(int64 addr)
{
	return fairq_is_timed(addr) ? FAIRQ_TALLY_SCHEDULED : FAIRQ_TALLY_QUEUED;
}

/* End a call that does not count running tasks. */
static inline void
fairq_tally_call_end(FairqQueueTally *queue)
{
	pg_atomic_fetch_sub_u32(&queue->calls, 1);
}

/*
 * Record the end of a transaction in which an uncounted call has claimed or
 * ended a task.
 */
static inline void
fairq_tally_counted(FairqQueueTally *queue)
{
	pg_atomic_fetch_sub_u32(&queue->uncounted, 1);
}

/*
 * Whether a load has read all tasks of the queue since its leases and reaches
 * were last invalid.
 */
static inline bool
fairq_tally_has_passed(FairqQueueTally *queue)
{
	FairqTally *tally = fairq_tally_of(queue);

	return pg_atomic_read_u64(&queue->passed) == fairq_tally_resets(tally);
}

extern dsa_pointer fairq_tally_make(int32 domain);
extern void fairq_queue_tally_init(FairqQueueTally *queue, dsa_pointer tally);
extern void fairq_queue_tally_empty(FairqQueueTally *queue);
extern void fairq_queue_tally_entered(FairqQueueTally *queue);
extern FairqKnown fairq_tally_now(FairqQueueTally *queue);
extern void fairq_tally_keep(FairqQueueTally *queue);
extern bool fairq_tally_is_known(FairqQueueTally *queue);
extern bool fairq_tally_read(FairqQueueTally *queue, int64 *n);
extern void fairq_tally_add(FairqTally *tally, FairqQueueTally *queue,
							int book, const int64 *n);
extern void fairq_tally_commit(FairqQueueTally *queue, const int32 *n);
extern void fairq_tally_committed(void);

extern bool fairq_tally_call_begin(FairqQueueTally *queue, bool limited);
extern void fairq_tally_count_nothing(FairqQueueTally *queue);
extern bool fairq_tally_counts(FairqQueueTally *queue);
extern void fairq_tally_enter(FairqQueueTally *queue, FairqAdds *adds);

#endif							/* FAIRQ_TALLY_H */
