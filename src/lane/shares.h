/*
 * shares.h
 *		Shares of a queue's lanes: whose task is next by them.
 */
#ifndef FAIRQ_SHARES_H
#define FAIRQ_SHARES_H

#include "port/atomics.h"
#include "storage/spin.h"

#include "address.h"

/* greatest share of a lane */
#define FAIRQ_MAX_SHARE 1000000

/* what a claim charges that counts as one task */
#define FAIRQ_CHARGE_ONE (INT64CONST(1) << 20)

/*
 * What a lane has got: charges / share, as a whole number and a fraction, so
 * that it is exact.
 */
typedef struct FairqGot
{
	int64		whole;			/* whole rounds of share * FAIRQ_CHARGE_ONE */
	int64		part;			/* charges beyond these; from 0 to less than
								 * one round */
} FairqGot;

/* In queues that are fair by time: what a lane's tasks have worked. */
typedef struct FairqLaneWork
{
	uint32		lane_no;		/* lane_no of the lane; 0: nothing is known */
	bool		counts;			/* true: a task that is claimed counts as
								 * running */
	int64		running;		/* number of tasks that count as running */
	double		got;			/* microseconds of work, of running tasks so
								 * far */
	double		longest;		/* the longest task of late in microseconds; 0:
								 * none has ended */
} FairqLaneWork;

/* What the lanes of a queue have got: each has an account. */
typedef struct FairqShareAccounts
{
	FairqGot	got[FAIRQ_PRIORITIES];	/* what each lane has got */

	/* virtual time: what the lane served last had got before */
	struct
	{
		FairqGot	got;		/* that lane's */
		int32		share;		/* its share; 0: none was served */
	}			reached;

	/* in queues that are fair by time */
	uint32		lane_no[FAIRQ_PRIORITIES];	/* lane_no of the lanes, as they
											 * were chosen last */
	double		given[FAIRQ_PRIORITIES];	/* microseconds per share that were
											 * given to them as they came */
	bool		idle[FAIRQ_PRIORITIES]; /* true: they had nothing when they
										 * were chosen last */
} FairqShareAccounts;

/* In shared memory, part of FairqHints. */
typedef struct FairqShares
{
	pg_atomic_uint32 first;		/* lanes without a share with which the next
								 * call begins, as one has stopped there
								 * before a task that is served alone; bits */
	slock_t		mutex;			/* protects all below */
	uint32		epoch;			/* number of times that all lanes were made
								 * even */
	uint64		version;		/* version of the settings that the shares are
								 * of */
	int32		share[FAIRQ_PRIORITIES];	/* shares of the lanes; 0: none */
	FairqShareAccounts accounts;	/* who has got what */
} FairqShares;

/* Some services of one lane in a row. */
typedef struct FairqShareRun
{
	int			priority;		/* priority of the lane */
	int64		most;			/* tasks that are served in a row, at most */
	bool		by_time;		/* true: the queue is fair by time */
	double		given;			/* by time, microseconds per share that the
								 * lane has been given if it is served */
	int64		charged;		/* not by time, what it was charged for them */
	FairqGot	from;			/* likewise, what it had got before */
	uint32		epoch;			/* epoch of the shares then */
} FairqShareRun;

extern void fairq_shares_init(FairqShares *shares);
extern void fairq_shares_copy(FairqShares *copy, FairqShares *shares);
extern const FairqShareRun *fairq_shares_choose(FairqShares *shares,
												const int32 *share,
												uint64 version,
												const FairqLaneWork *works,
												uint32 without, int64 most);
extern void fairq_shares_settle(int64 served, int64 charge);

#endif							/* FAIRQ_SHARES_H */
