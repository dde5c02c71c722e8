/*
 * shares.h
 *		Shares of a queue's lanes: which lane is served next.
 */
#ifndef FAIRQ_SHARES_H
#define FAIRQ_SHARES_H

#include "port/atomics.h"
#include "storage/spin.h"

#include "address.h"

/* greatest share of a lane */
#define FAIRQ_MAX_SHARE 1000000

/*
 * charge of a task with a cost of 1, and of each task in queues that are not
 * cost-fair
 */
#define FAIRQ_CHARGE_ONE (INT64CONST(1) << 20)

/*
 * The amount that a lane has got: charges / share, as a whole number and a
 * fraction, so that it is exact.
 */
typedef struct FairqGot
{
	int64		whole;			/* whole rounds of share * FAIRQ_CHARGE_ONE */
	int64		part;			/* charges beyond these; from 0 to less than
								 * one round */
} FairqGot;

/* The work of a lane's tasks, in time-fair queues. */
typedef struct FairqLaneWork
{
	uint32		lane_no;		/* lane_no of the lane; 0: not known */
	bool		counts;			/* true: a task that is claimed counts as
								 * running */
	int64		running;		/* number of tasks that count as running */
	int64		lapsed;			/* number of tasks that may have lapsed */
	uint8		expired;		/* number of times that expired leases were
								 * charged, modulo 256 */
	double		got;			/* microseconds of work, including running
								 * tasks so far */
	double		longest;		/* the longest recent task in microseconds; 0:
								 * none has ended */
} FairqLaneWork;

/* The accounts of a queue's lanes: the amounts that the lanes have got. */
typedef struct FairqShareAccounts
{
	FairqGot	got[FAIRQ_PRIORITIES];	/* amount that each lane has got */

	/* virtual time: the amount of the lane served last, before its service */
	struct
	{
		FairqGot	got;		/* amount of that lane */
		int32		share;		/* share of that lane; 0: no lane was served */
	}			reached;

	/* if time-fair */
	uint32		lane_no[FAIRQ_PRIORITIES];	/* lane_no of the lanes, when they
											 * were chosen last */
	double		given[FAIRQ_PRIORITIES];	/* credits in microseconds per
											 * share that the lanes got when
											 * they joined, and debts that
											 * they were forgiven */
	uint8		expired[FAIRQ_PRIORITIES];	/* FairqLaneWork.expired of the
											 * lanes, at the last choice */
	bool		idle[FAIRQ_PRIORITIES]; /* true: the lane had no task when it
										 * was chosen last */
} FairqShareAccounts;

/* Shares of a queue's lanes, in FairqHints in shared memory. */
typedef struct FairqShares
{
	pg_atomic_uint32 first;		/* bits of lanes without a share in which a
								 * call has stopped before a task that is
								 * served alone; the next call begins here */
	slock_t		mutex;			/* spinlock of all fields below */
	uint32		epoch;			/* number of times that the amounts were
								 * reset */
	uint64		version;		/* version of the settings with these shares */
	int32		share[FAIRQ_PRIORITIES];	/* shares of the lanes; 0: none */
	FairqShareAccounts accounts;	/* amounts that the lanes have got */
} FairqShares;

/* A number of tasks of one lane that a call serves in a row. */
typedef struct FairqShareRun
{
	int			priority;		/* priority of the lane */
	int64		most;			/* most tasks that are served in a row */
	bool		by_time;		/* true: the queue is time-fair */
	uint32		lane_no;		/* if time-fair, lane_no of the lane when it
								 * was chosen */
	double		given;			/* if time-fair, credit in microseconds per
								 * share that the lane gets if it is served */
	int64		charged;		/* if not time-fair, the lane's charge for
								 * "most" tasks */
	FairqGot	from;			/* if not time-fair, the amount that the lane
								 * had got before */
	uint32		epoch;			/* epoch of the shares when the lane was
								 * chosen */
} FairqShareRun;

/* Initialize shares.  All lanes begin with equal amounts. */
static inline void
fairq_shares_init(FairqShares *shares)
{
	memset(shares, 0, sizeof(FairqShares));
	pg_atomic_init_u32(&shares->first, 0);
	SpinLockInit(&shares->mutex);
}

extern const FairqShareRun *fairq_shares_choose(FairqShares *shares,
												const int32 *share,
												uint64 version,
												const FairqLaneWork *works,
												uint32 without, int64 most);
extern void fairq_shares_settle(int64 served, int64 charge);

#endif							/* FAIRQ_SHARES_H */
