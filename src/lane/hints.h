/*
 * hints.h
 *		The data of a queue and its lanes in shared memory: only the structs.
 *
 * The functions of each part are in a separate file.  seats.c is for sets of
 * groups, counter.c for counters, times.c for timers, and wake.c for sleepers.
 * lane.c and the files next to it have the functions of a lane.
 */
#ifndef FAIRQ_HINTS_H
#define FAIRQ_HINTS_H

#include "account.h"
#include "address.h"
#include "counter.h"
#include "order.h"
#include "shares.h"
#include "shmem.h"
#include "tally.h"
#include "times.h"
#include "wake.h"

/* The sets that a lane has; lane.c explains them. */
typedef enum FairqSeatSet
{
	FAIRQ_RING,
	FAIRQ_TODO,
	FAIRQ_PARKED,
	FAIRQ_THROTTLED,
	FAIRQ_LATE,
	FAIRQ_DUE,
	FAIRQ_SHUT,
	FAIRQ_SERVED,
	FAIRQ_LAPSED,
	FAIRQ_LEASED,
	FAIRQ_SEAT_SETS
} FairqSeatSet;

/* no seat */
#define FAIRQ_NO_SEAT (-1)

/* past all seats */
#define FAIRQ_ALL_SEATS (INT64CONST(1) << 31)

/*
 * Sets of a lane's groups, in the lane in shared memory, under the lane's
 * lock.
 */
typedef struct FairqSeats
{
	int32		n[FAIRQ_SEAT_SETS]; /* number of groups in each set */
	uint64		first[FAIRQ_SEAT_SETS + 1]; /* bits of the first seats, per
											 * set; then their deadline, see
											 * fairq_seats_deadline() */

	/* when throttled groups return, by the monotonic clock */
	struct
	{
		FairqOrder	order;		/* throttled groups, in the order of their
								 * times; a group outside the order has the tie
								 * 0 */
		FairqRecords nodes;		/* node of each group */
		pg_atomic_uint64 first; /* time of the first group; PG_INT64_MAX: there
								 * is none.  Written under the lock */
	}			back;
} FairqSeats;

/* The events counted in each lane, in the order of columns of counters(). */
typedef enum FairqStat
{
	FAIRQ_STAT_ENQUEUED,		/* tasks added */
	FAIRQ_STAT_POPPED,			/* tasks that pop or take returned */
	FAIRQ_STAT_COMPLETED,		/* tasks that completed */
	FAIRQ_STAT_RELEASED,		/* attempts handed back */
	FAIRQ_STAT_RETRIED,			/* failed attempts that were not the last */
	FAIRQ_STAT_FAILED,			/* tasks that failed for good */
	FAIRQ_STAT_CANCELLED,		/* tasks that were cancelled */
	FAIRQ_STAT_LAPSED,			/* leases that lapsed */
	FAIRQ_STAT_EXPIRED,			/* tasks that did not begin in time */
	FAIRQ_STATS					/* number of kinds of events */
} FairqStat;

/* Service of a lane in a full queue. */
typedef struct FairqFull
{
	int32		seat;			/* seat served last; FAIRQ_NO_SEAT: none */
	int32		left;			/* number of tasks that may still be served at
								 * that seat */
} FairqFull;

/*
 * A lane.  In shared memory, part of FairqHints.  Its lock protects all fields
 * except constant and atomic ones.
 */
typedef struct FairqLane
{
	LWLock		lock;			/* lock of the lane; it is the first field, and
								 * outlives the queue */
	int32		domain;			/* index of the extension's FairqDomain;
								 * constant */
	int32		priority;		/* from 0 to FAIRQ_PRIORITIES - 1; constant */

	/* the last recovery of the lane */
	struct
	{
		uint32		lane_no;	/* number of that recovery; 0: none has
								 * begun */
		uint32		covered;	/* in a queue with tenants, value of "known"
								 * when the last turn was taken */
		uint64		resets;		/* number of resets of the domain when the
								 * recovery began; if the domain has a larger
								 * number, the lane is invalid */
		int64		block_length;	/* the queue's block length when the
									 * recovery began */
		int64		first;		/* seat at which the recovery began */
		int64		block;		/* present block when the recovery began */
		int64		known;		/* number of known seats from first on,
								 * wrapping around; FAIRQ_ALL_SEATS: recovery
								 * is over */
	}			recovery;

	/* position of service */
	struct
	{
		int64		block;		/* present block */
		int32		seat;		/* seat passed last in the present block;
								 * FAIRQ_NO_SEAT: none */
		uint32		renewals;	/* number of new groups that got a seat, and of
								 * recoveries; wraps around */
		uint64		unparks;	/* value of unparks in FairqHints when this
								 * lane last took back all groups */
	}			present;

	/* the turn taken last */
	struct
	{
		int64		addr;		/* address of that turn; FAIRQ_ADDR_NONE:
								 * none */
		int32		seat;		/* seat of that turn */
		int32		left;		/* number of tasks that may still be served at
								 * that turn */
	}			turn;

	/* the order of service; accounts are for lanes that are not task-fair */
	struct
	{
		FairqRecords accounts;	/* account of each group */
		FairqFlows	flows;		/* groups or tenants in the order of their
								 * ranks */
		FairqLedger ledger;		/* common data of the accounts */
	}			order;

	FairqFull	full;			/* service in a full queue */

	TimestampTz clock;			/* latest time up to which a call has searched
								 * for due tasks or lapsed leases; DT_NOBEGIN:
								 * none */
	FairqSeats	seats;			/* sets of the lane's groups */
	FairqTimes	times;			/* timers and the deadline of leases */

	/* the backend that takes turns */
	struct
	{
		int			pid;		/* pid of the last backend that took a turn, or
								 * recorded that no task is ready */
		pg_atomic_uint32 n;		/* 1 + number of times that pid changed;
								 * written under the lock */
	}			narrowing;

	pg_atomic_uint64 searches;	/* 1 + number of searches begun for lapsed
								 * tasks of lapsed groups; written under the
								 * lock */

	/* read and written without the lock */
	pg_atomic_uint64 reach[FAIRQ_REGIONS];	/* highest address of each region
											 * at which a task may be
											 * running */
	pg_atomic_uint64 stats[FAIRQ_STATS];	/* number of each event since the
											 * server started */
} FairqLane;

/*
 * number of changes that are kept; a backend that has missed more changes
 * reads all settings again
 */
#define FAIRQ_CHANGES_KEPT 256

/* Values of a change that are not a group's number. */
#define FAIRQ_QUEUE_CHANGED (-1)	/* the queue's own settings, privileges */
#define FAIRQ_ALL_CHANGED (-2)	/* the queue's settings, privileges, and
								 * settings of any groups */

/* Versions of a queue's settings, in FairqHints in shared memory. */
typedef struct FairqVersions
{
	slock_t		mutex;			/* spinlock of changes */
	pg_atomic_uint64 now;		/* present version, written under the mutex;
								 * only increases, even if another queue gets
								 * these hints */
	int32		changes[FAIRQ_CHANGES_KEPT];	/* the last changes: the change
												 * to version v is at (v - 1) %
												 * FAIRQ_CHANGES_KEPT */
} FairqVersions;

/*
 * Hints: all data of a queue in shared memory.  They are never moved; another
 * queue gets them after their queue is dropped (registry.c).  The comment of
 * each part names its lock; atomic fields need none.
 */
struct FairqHints
{
	/* how the registry finds these hints */
	struct
	{
		FairqQueueKey key;		/* key of the queue; under the registry's lock,
								 * and constant while the queue exists */
		bool		released;	/* true once the hints are given back; under
								 * the registry's lock */
		dsa_pointer self;		/* address of these hints; constant */
		int64		born;		/* when the queue got these hints, by the
								 * monotonic clock; FAIRQ_LONG_AGO: at the
								 * queue's creation.  Constant once a task can
								 * start */
		uint64		tenure;		/* number of the queue's tenure; constant while
								 * the queue exists */
		bool		replayed;	/* true: the hints were made on a standby,
								 * where no task can start; under the
								 * registry's lock */
		dsa_pointer next;		/* next hints in a list of the registry; under
								 * the registry's lock */
	}			entry;

	FairqVersions versions;		/* versions of the settings */
	pg_atomic_uint64 free_number;	/* group number at which the search for a
									 * free one continues; in the upper half,
									 * group_changes at that time (group.c) */

	pg_atomic_uint64 unparks;	/* number of requests to take back all groups
								 * that are aside */

	bool		awaited;		/* true: tasks may wait for tasks of the queue
								 * (blocked.c).  Set without a lock, and never
								 * cleared */

	FairqChunks chunks;			/* bits of groups for the sets of all lanes;
								 * those of the first 64 seats are in the
								 * lanes */
	FairqQueueTally tally;		/* numbers of tasks, and the loads that are
								 * valid for them and for the queue's
								 * counters */
	FairqCounter running;		/* counter of the whole queue */
	FairqShares shares;			/* shares of the lanes, and the service that
								 * the lanes have got */
	FairqHistogram histograms[FAIRQ_SPANS]; /* how long tasks waited and
											 * ran, since the server
											 * started */
	FairqWakeup wakeup;			/* sessions asleep in fairq.wait() */
	FairqLane	lanes[FAIRQ_PRIORITIES];	/* lanes, by priority */
};

/* Returns the hints that contain a lane. */
static inline FairqHints *
fairq_hints_of(FairqLane *lane)
{
	return (FairqHints *) ((char *) (lane - lane->priority) -
						   offsetof(FairqHints, lanes));
}

/* How often an event occurred in a queue's lanes since the server started. */
static inline int64
fairq_hints_stat(FairqHints *hints, FairqStat stat)
{
	uint64		sum = 0;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		sum += pg_atomic_read_u64(&hints->lanes[p].stats[stat]);
	return (int64) sum;
}

#endif							/* FAIRQ_HINTS_H */
