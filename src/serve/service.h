/*
 * service.h
 *		The state of one call, which all files of the service share.
 */
#ifndef FAIRQ_SERVICE_H
#define FAIRQ_SERVICE_H

#include "queue.h"
#include "recover.h"
#include "store.h"

/*
 * tasks that a call ends for others: most lapsed ones, and most expired ones
 */
#define FAIRQ_MAX_ENDED 100

/* how long a transaction block leaves a lapsed one to other calls */
#define FAIRQ_LEFT_TO_OTHERS USECS_PER_SEC

/*
 * The action for a task that was chosen.  Its row is in tasks->locked.slot,
 * and is locked.  Or at most its tuple lock is held (locked.tuple_only): then
 * it can still be lost to a rival.  Afterwards the task is running, or
 * removed.
 */
typedef FairqClaimResult (*FairqServer) (FairqTable *tasks, FairqTask *task,
										 void *arg);

/* The arguments of a call. */
typedef struct FairqCall
{
	FairqServer server;			/* action for a task that was chosen */
	void	   *arg;			/* last argument of server */
	TimestampTz now;			/* time at which the call began */
	TimestampTz lease_until;	/* end of the leases; DT_NOEND: tasks are
								 * removed */
	bool		peek;			/* true: nothing is served, but whether a pop
								 * would be worth it is found out */
	bool		foresees;		/* true: all is done on a copy, and no row is
								 * changed or locked */
	bool		ends;			/* true, with peek: tasks that are over, and that
								 * no pop would return, are brought to their
								 * end */
	int64		max_tasks;		/* tasks to be served, at most */
	int64		per_group;		/* turns of a group, at most; 0: no limit */
	bool		has_some;		/* true: the caller has tasks of other queues,
								 * so none is served alone */
	bool		only_alone;		/* true: one that is served alone, or none */
} FairqCall;

/* One call, in one lane. */
typedef struct FairqService
{
	FairqQueue *queue;			/* queue of the call */
	FairqTable *tasks;			/* fairq.task */
	FairqCall	call;			/* what it was asked for */

	/* results of the call so far, in all lanes */
	struct
	{
		int64		served;		/* tasks that were served */
		int64		charge;		/* their charge to the shares of their lanes */
		int64		ended;		/* lapsed tasks that were brought to their end */
		int64		expired;	/* expired tasks that were finished; with
								 * peek, that would be */
		int64		left;		/* turns at which an expired task was left to
								 * others */
		bool		peeked;		/* true, with peek: a pop would be worth it */
		bool		saw_locked; /* true: a row was only locked */
		bool		saw_over;	/* true, with peek: "ends" would end some */
		bool		stopped;	/* true: the call ends with a task that is
								 * served alone, or before one */
		uint32		first;		/* lanes with which the next call begins for
								 * that; bits */
	}			got;

	FairqLane  *lane;			/* present lane */
	int			priority;		/* priority of the lane */
	FairqFairBy by;				/* by what the present lane is fair, as far as
								 * this backend knows */
	FairqVisits visits[FAIRQ_PRIORITIES];	/* groups that the call passes
											 * over, of each cost-fair or
											 * time-fair lane */

	/* the lane as it was when the turns in flight were taken */
	struct
	{
		uint32		lane_no;	/* lane_no of the lane */
		uint64		searches;	/* searches of the lane */
		TimestampTz by;			/* time as of which tasks are due or lapsed;
								 * may be later than now, by the clock of the
								 * backend that found it */
	}			taken;

	/* where the call takes turns of this lane */
	struct
	{
		int64		first;		/* address of the first turn in which something
								 * was served, with per_group; -1: none */
		int64		past;		/* rounds begun past the last block */
	}			window;

	/* service of this lane in a full queue */
	struct
	{
		int32		first;		/* seat served first; -1: none */
		int32		last;		/* seat served last */
		int64		rounds;		/* number of times that first was visited again
								 * */
	}			full;

	bool		left;			/* true: in this turn, a lapsed or expired
								 * task was left to others to end */
	FairqRecovering recovering; /* recovery of this lane by this call */

	/* scans of groups' lines, kept for the call; NULL: none */
	struct
	{
		FairqScan  *queued;		/* scan of queued tasks */
		FairqScan  *due[FAIRQ_REGIONS]; /* scans of due tasks, per region */
		FairqScan  *lapsed;		/* scan of lapsed tasks */
	}			scans;
} FairqService;

/*
 * The charge of a claim to the share of its lane: the task's cost, in a
 * cost-fair queue; otherwise one.
 */
static inline int64
fairq_charge_of(const FairqQueue *queue, const FairqTask *task)
{
	if (queue->shares.fair_by != FAIRQ_BY_COST)
		return FAIRQ_CHARGE_ONE;
	return Max(1, (int64) ((double) task->cost * FAIRQ_CHARGE_ONE));
}

#endif							/* FAIRQ_SERVICE_H */
