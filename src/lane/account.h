/*
 * account.h
 *		What groups have been served in lanes that are not fair by tasks.
 */
#ifndef FAIRQ_ACCOUNT_H
#define FAIRQ_ACCOUNT_H

#include "datatype/timestamp.h"

#include "order.h"

/* by time, what is owed at most, in units of E; and 2 for each task that runs */
#define FAIRQ_MOST_OWED 16

/* by time, levels of which the first group is looked at */
#define FAIRQ_MOST_LEVELS 8

/* By what a queue is fair: of what its groups get the same, times their weights. */
typedef enum FairqFairBy
{
	FAIRQ_BY_TASKS,				/* tasks, one in each block */
	FAIRQ_BY_COST,				/* costs of tasks */
	FAIRQ_BY_TIME				/* time of workers */
} FairqFairBy;

/*
 * What a lane's accounts have in common.  In shared memory, part of the lane and
 * under its lock.
 */
typedef struct FairqLedger
{
	FairqFairBy fair_by;		/* by what the lane is fair, as of its
								 * recovery */
	FairqAmount start;			/* by cost, the highest start tag that was
								 * served [virtual time v]; by time, what the
								 * group had got that was served last */
	uint64		ties;			/* number of ties given */
	TimestampTz since;			/* when the recovery began: time 0 */
	double		longest;		/* by time, E: the longest task of late in
								 * microseconds; 0: none has ended */
	int64		running;		/* by time, number of tasks that count as
								 * running */
	int64		started;		/* by time, sum of when these began, in
								 * microseconds from since on */
	double		worked;			/* by time, microseconds of work that has ended */
	bool		recovering;		/* true: not all seats are known */
} FairqLedger;

/* An account: what is kept of each group; in shared memory, under the lane's lock. */
typedef struct FairqAccount
{
	FairqNode	node;			/* rank, and place in the ordered set; a tie of
								 * 0: the account is new */
	uint32		lane_no;		/* lane_no of the lane when it was last used:
								 * it is void if there is another one since */
	int32		weight;			/* the group's weight when it was served last */

	/* by cost */
	float		last_cost;		/* cost of the last task that was claimed */
	FairqAmount lag;			/* how much less than the start of the ledger
								 * its rank may say, as others were served
								 * beside its last claim */

	/* by time */
	int32		running;		/* number of its tasks that are running, or are
								 * about to be claimed, if they count */
	int64		started;		/* sum of when these began, in microseconds
								 * from since of the ledger on */
	FairqAmount done;			/* microseconds of work that has ended, per
								 * weight */
} FairqAccount;

/* What a group was charged for a turn. */
typedef struct FairqCharge
{
	uint64		before;			/* tie of the group before */
	FairqAmount start;			/* start of the ledger before */
	FairqAmount given;			/* by cost, what it was given first, as it had
								 * less than the start of the ledger */
	FairqAmount amount;			/* by cost, what it was charged, per weight */
	uint64		tie;			/* tie of the group since; 0: it was charged
								 * nothing */
	bool		counted;		/* true, by time: a task counts as running */
	TimestampTz now;			/* when the turn was taken; by time, when the
								 * task began to */
} FairqCharge;

/* What a transaction has begun and ended of a group, by time. */
typedef struct FairqWork
{
	uint32		lane_no;		/* lane_no of the lane when it was noted */
	int32		begun;			/* number of tasks that have begun to count */
	int64		begun_since;	/* sum of when, in microseconds from since of
								 * the ledger on */
	int32		ended;			/* number of tasks that count no more after a
								 * commit */
	int64		ended_since;	/* likewise, of when they began */
	int32		taken;			/* number of those begun that end with the
								 * transaction */
	int64		taken_since;	/* likewise, of when they began */
	int64		took;			/* microseconds that ended tasks have taken */
	int64		longest;		/* the most that one of these has */
	int64		lapsed;			/* microseconds of leases that have ended, of
								 * which it is not known whether they were
								 * used */
} FairqWork;

/* For functions below: when it is, and whether leases of the group have ended. */
typedef struct FairqMoment
{
	TimestampTz now;			/* present time */
	bool		lapsed;			/* true: the group is in the set "lapsed" */
} FairqMoment;

extern void fairq_ledger_begin(FairqLedger *ledger, FairqFairBy by,
							   TimestampTz now);
extern void fairq_account_init(FairqAccount *account, uint32 lane_no);
extern double fairq_account_got(const FairqLedger *ledger,
								const FairqAccount *account, TimestampTz now);
extern double fairq_account_key(const FairqLedger *ledger,
								const FairqAccount *account, TimestampTz now);
extern void fairq_account_comes(FairqLedger *ledger, FairqAccount *account,
								int32 group_no, double least,
								FairqMoment at);
extern void fairq_account_charge(FairqLedger *ledger, FairqAccount *account,
								 FairqCharge *charge, FairqMoment at);
extern void fairq_account_uncharge(FairqLedger *ledger, FairqAccount *account,
								   const FairqCharge *charge, FairqMoment at);
extern void fairq_account_correct(FairqLedger *ledger, FairqAccount *account,
								  FairqCharge *charge, FairqAmount amount);
extern void fairq_account_begins(FairqLedger *ledger, FairqAccount *account,
								 FairqMoment at);
extern void fairq_work_as_of(FairqWork *work, uint32 lane_no);
extern void fairq_work_merge(FairqWork **work, FairqWork **more);
extern bool fairq_account_is_even(const FairqWork *work, bool committed);
extern bool fairq_account_apply(FairqLedger *ledger, FairqAccount *account,
								const FairqWork *work, bool committed,
								FairqMoment at);
extern void fairq_account_forgive(FairqLedger *ledger, FairqAccount *account,
								  double least, FairqMoment at);

#endif							/* FAIRQ_ACCOUNT_H */
