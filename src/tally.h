/*
 * tally.h
 *		How many tasks a queue has: ready, scheduled and running.
 */
#ifndef FAIRQ_TALLY_H
#define FAIRQ_TALLY_H

#include "utils/snapshot.h"

#include "shmem.h"

/* As what a task counts. */
typedef enum FairqTallied
{
	FAIRQ_TALLY_READY,			/* stands at a turn, without a lease */
	FAIRQ_TALLY_SCHEDULED,		/* stands at a time, without a lease */
	FAIRQ_TALLY_RUNNING,		/* has a lease, which may have ended */
	FAIRQ_TALLIES				/* number of these */
} FairqTallied;

/*
 * In shared memory, one for each extension: what the last count of all tasks
 * goes by.  All but the atomics is under lock, and what is atomic is written
 * under it.
 */
typedef struct FairqTally
{
	LWLock		lock;			/* lock of the tally, and of what holds of
								 * numbers of queues while it is held */
	int32		domain;			/* index of the extension's FairqDomain;
								 * constant */
	bool		counting;		/* true: a backend is at it */
	pg_atomic_uint64 number;	/* number of the count that was begun last; 0:
								 * none */
	pg_atomic_uint64 known;		/* resets of the domain with which the numbers
								 * are known; PG_UINT64_MAX: they are not */
	uint64		resets;			/* resets of the domain before the snapshot
								 * was taken */
	uint64		xmin;			/* xid, with its epoch, below which the
								 * snapshot has seen all transactions end */
	uint64		xmax;			/* xid, with its epoch, from which on it has
								 * seen none end */
	int32		nrunning;		/* number of transactions in running */
	uint32		running[FLEXIBLE_ARRAY_MEMBER]; /* xids less xmin of those
												 * between that it has seen
												 * running, ascending */
} FairqTally;

/* In shared memory, part of FairqHints. */
typedef struct FairqQueueTally
{
	slock_t		mutex;			/* spinlock of number and n, taken with the
								 * tally's lock held */
	dsa_pointer tally;			/* the extension's FairqTally; constant while
								 * the queue is there */
	uint64		number;			/* number of the count since which n counts */
	pg_atomic_uint64 counted;	/* number of the last count that has counted
								 * the queue, or began before there was a task
								 * of it; 0: none; written under the tally's
								 * lock */
	int64		n[FAIRQ_TALLIES];	/* number of tasks; without counted, what
									 * transactions have changed since */
} FairqQueueTally;

/* As what a task counts that stands there and has no lease. */
static inline FairqTallied
fairq_tallied_at(int64 addr)
{
	return fairq_is_timed(addr) ? FAIRQ_TALLY_SCHEDULED : FAIRQ_TALLY_READY;
}

extern Size fairq_tally_size(void);
extern void fairq_tally_init(FairqTally *tally, int32 domain);
extern void fairq_queue_tally_init(FairqQueueTally *queue, dsa_pointer tally);
extern void fairq_queue_tally_empty(FairqQueueTally *queue);
extern bool fairq_tally_is_known(FairqQueueTally *queue);
extern bool fairq_tally_read(FairqQueueTally *queue, int64 *n);
extern void fairq_tally_commit(FairqQueueTally *queue, const int64 *n);
extern void fairq_tally_committed(void);
extern Snapshot fairq_tally_begin(FairqQueueTally *queue);
extern void fairq_tally_found(FairqQueueTally *queue, const int64 *n);
extern void fairq_tally_end(bool counted);

#endif							/* FAIRQ_TALLY_H */
