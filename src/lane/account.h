/*
 * account.h
 *		The accounts of groups in cost-fair and time-fair lanes.
 */
#ifndef FAIRQ_ACCOUNT_H
#define FAIRQ_ACCOUNT_H

#include "datatype/timestamp.h"

#include "order.h"

/*
 * greatest debt in time-fair lanes, in units of E, without the 2 for each
 * running task
 */
#define FAIRQ_MOST_OWED 16

/* number of levels in a time-fair lane whose first group is compared */
#define FAIRQ_MOST_LEVELS 8

/* levels of the groups of a tenant */
#define FAIRQ_LEVEL_LAPSED 0	/* level of groups that may have lapsed
								 * tasks */
#define FAIRQ_LEVEL_READY 1		/* lowest level of all others; if time-fair,
								 * the group's own level is added */

/* The resource that a queue's groups get in proportion to their weights. */
typedef enum FairqFairBy
{
	FAIRQ_BY_TASKS,				/* tasks, one in each block */
	FAIRQ_BY_COST,				/* costs of tasks */
	FAIRQ_BY_TIME,				/* time of workers */
	FAIRQ_BY_UNITS				/* tasks, in queues with tenants: like costs,
								 * where each task costs 1 */
} FairqFairBy;

/*
 * The common data of a lane's accounts.  They are in shared memory, in the
 * lane, and under the lane's lock.
 */
typedef struct FairqLedger
{
	FairqFairBy fair_by;		/* resource that the lane shares out, set at
								 * its recovery */
	bool		recovering;		/* true: not all seats are known */
	bool		ranks_lapsed;	/* true: a group's rank changes when it lapses,
								 * and when its lapsed tasks are served */
	uint8		expired;		/* if time-fair, number of times that expired
								 * leases were charged, modulo 256 */
	TimestampTz since;			/* when the recovery began: time 0 */
	double		longest;		/* if time-fair, E: the longest recent task in
								 * microseconds; 0: none has ended */
	int32		running;		/* if time-fair, number of tasks that count as
								 * running */
	int32		lapsed;			/* if time-fair, number of these that may have
								 * lapsed */
	int64		work;			/* if time-fair, microseconds of work that has
								 * ended, minus "started" of all groups, plus
								 * their "lapsed_at" */
} FairqLedger;

/*
 * Flows that are served in one order: the groups of a lane, or its tenants, or
 * the groups of a tenant.  In shared memory, under the lane's lock.
 */
typedef struct FairqFlows
{
	FairqOrder	order;			/* flows that may have a ready task, in the
								 * order of their ranks */
	FairqAmount start;			/* if cost-fair, the virtual time: the highest
								 * start tag that was served; if time-fair, the
								 * amount of the group that was served last */
	uint64		ties;			/* number of ties assigned so far */
} FairqFlows;

/* Why a tenant is shut. */
typedef enum FairqShut
{
	FAIRQ_SHUT_FULL,			/* the tenant has no free slot; only its lapsed
								 * tasks are served */
	FAIRQ_SHUT_PAUSED,			/* no task is served, even if lapsed */
	FAIRQ_SHUT_UNTIL			/* no task is served before a time, even if
								 * lapsed (lane_turns.c) */
} FairqShut;

/*
 * The account of a group or tenant, in shared memory, under the lane's lock.
 */
typedef struct FairqAccount
{
	FairqNode	node;			/* rank, and place in the order of its flows; a
								 * tie of 0: the account is new */
	uint32		lane_no;		/* lane_no of the lane when the account was
								 * last used; the account is invalid if the
								 * lane's lane_no has changed since */
	int32		weight;			/* weight of the group at its last turn that
								 * yielded a task; 1 if there was no such turn
								 * since the account was initialized */

	/* in queues with tenants */
	struct
	{
		int32		tenant;		/* number of the group's tenant; FAIRQ_NO_NODE:
								 * none */
		bool		resolved;	/* true: the group's tenant is known */
		bool		is_tenant;	/* true: this is a tenant */
		bool		copied;		/* true, in a copy of the lane: the field
								 * groups has been copied */
		uint32		came;		/* number of times that a group of the tenant
								 * has entered the tenant's order */
		FairqShut	shut;		/* why the tenant is shut, if it is */
		FairqFlows	groups;		/* groups of the tenant */
	}			level;

	union
	{
		struct
		{
			FairqAmount lag;	/* the most that the group's rank may lag
								 * behind the virtual time, because others were
								 * served during its last claim */
			float		last_cost;	/* cost of the last task that was claimed;
									 * 0: none was */
		}			cost;		/* if cost-fair */
		struct
		{
			double		done;	/* microseconds of work that has ended, per
								 * weight */
			int64		started;	/* sum of the times at which the running
									 * tasks began, in microseconds after
									 * "since" of the ledger */
			int64		lapsed_at;	/* sum of the times at which the leases of
									 * the lapsed tasks among these expired, in
									 * microseconds after "since" */
			int32		running;	/* number of tasks that count as running,
									 * including those about to be claimed */
			int32		lapsed; /* number of these that may have lapsed */
		}			time;		/* if time-fair; a tenant's tasks are those of
								 * its groups */
	}			by;
} FairqAccount;

StaticAssertDecl(sizeof(FairqAccount) <= 152,
				 "docs/performance.md has the memory of a group");

/* The charge of a group for a turn. */
typedef struct FairqCharge
{
	uint64		before;			/* tie of the group before the turn */
	FairqAmount start;			/* "start" of the group's order before the
								 * turn */
	FairqAmount given;			/* if cost-fair, amount added before the
								 * charge, because the group's start tag was
								 * below the virtual time */
	FairqAmount amount;			/* if cost-fair, the group's charge per
								 * weight */
	uint64		tie;			/* tie of the group after the turn; 0: there
								 * was no charge */
	int32		weight;			/* weight of the account before the turn */
	bool		counted;		/* true: a task counts as running; only if
								 * time-fair */
	TimestampTz now;			/* when the turn was taken; if time-fair, the
								 * task counts as running from then on */
} FairqCharge;

/*
 * The tasks of a group that a transaction has begun and ended, in a time-fair
 * lane.
 */
typedef struct FairqWork
{
	uint32		lane_no;		/* lane_no of the lane when the work was
								 * noted */
	int32		tenant;			/* number of the group's tenant; FAIRQ_NO_NODE:
								 * none */
	int32		begun;			/* number of tasks that have begun to count as
								 * running */
	int64		begun_since;	/* sum of the times at which they began, in
								 * microseconds after "since" of the ledger */
	int32		ended;			/* number of tasks that no longer count as
								 * running after a commit */
	int64		ended_since;	/* sum of the times at which these began, as in
								 * begun_since */
	int32		over;			/* number of further such tasks whose leases
								 * have expired */
	int64		over_since;		/* sum of the times at which these began, as in
								 * begun_since */
	int32		taken;			/* number of the begun tasks that the
								 * transaction has also ended */
	int64		taken_since;	/* sum of the times at which these began, as in
								 * begun_since */
	int64		took;			/* microseconds that ended tasks have taken */
	int64		longest;		/* microseconds that the longest of these tasks
								 * has taken */
	int64		lapsed;			/* microseconds of expired leases, which may
								 * not have been used */
} FairqWork;

/*
 * The arguments of functions below: the time, and data about the group that is
 * not in its account.
 */
typedef struct FairqMoment
{
	TimestampTz now;			/* present time */
	bool		lapsed;			/* true: the group is in the set "lapsed" */
	FairqAccount *tenant;		/* account of the group's tenant; NULL: none,
								 * or not known */
} FairqMoment;

extern void fairq_ledger_begin(FairqLedger *ledger, FairqFlows *flows,
							   FairqFairBy by, TimestampTz now);
extern void fairq_account_init(FairqAccount *account, uint32 lane_no);
extern void fairq_account_renew(FairqLedger *ledger, FairqAccount *account,
								FairqAccount *tenant);
extern void fairq_account_lapses(FairqLedger *ledger, FairqAccount *account,
								 FairqAccount *tenant, TimestampTz at);
extern void fairq_account_searched(FairqLedger *ledger, FairqAccount *account,
								   FairqAccount *tenant);
extern void fairq_account_be_tenant(FairqLedger *ledger,
									FairqAccount *account,
									FairqAccount *tenant);
extern double fairq_account_got(const FairqLedger *ledger,
								const FairqAccount *account, TimestampTz now);
extern void fairq_account_rank(const FairqLedger *ledger,
							   FairqAccount *account, FairqMoment at);
extern void fairq_account_comes(FairqLedger *ledger, FairqFlows *flows,
								FairqAccount *account, int32 group_no,
								double least, FairqMoment at);
extern void fairq_account_charge(FairqLedger *ledger, FairqFlows *flows,
								 FairqAccount *account, int32 weight,
								 float cost, FairqCharge *charge,
								 FairqMoment at);
extern void fairq_account_uncharge(FairqLedger *ledger, FairqFlows *flows,
								   FairqAccount *account,
								   const FairqCharge *charge, FairqMoment at);
extern void fairq_account_correct(FairqFlows *flows, FairqAccount *account,
								  FairqCharge *charge, FairqAmount amount);
extern void fairq_account_begins(FairqLedger *ledger, FairqAccount *account,
								 FairqMoment at);
extern void fairq_work_as_of(FairqWork *work, uint32 lane_no);
extern bool fairq_account_apply(FairqLedger *ledger, FairqAccount *account,
								const FairqWork *work, bool committed,
								FairqMoment at);
extern void fairq_account_forgive(const FairqLedger *ledger,
								  FairqAccount *account, double least,
								  FairqMoment at);

#endif							/* FAIRQ_ACCOUNT_H */
