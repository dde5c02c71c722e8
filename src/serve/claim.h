/*
 * claim.h
 *		Service: the state of one call, and claiming a task.
 */
#ifndef FAIRQ_CLAIM_H
#define FAIRQ_CLAIM_H

#include "line.h"
#include "queue.h"
#include "store.h"

/*
 * maximum number of lapsed tasks that a call ends for other calls, and of
 * expired tasks that it finishes
 */
#define FAIRQ_MAX_ENDED 100

/*
 * The action for a chosen task.  The task's row is in tasks->locked.slot, and
 * is locked.  With locked.tuple_only, at most its tuple lock is held, so
 * another transaction can still claim the task first.  Afterwards the task is
 * running, or removed.
 */
struct FairqCall;
typedef FairqClaimResult (*FairqServer) (FairqTable *tasks, FairqTask *task,
										 const struct FairqCall *call);

/* The arguments of a call. */
typedef struct FairqCall
{
	FairqServer server;			/* action for a chosen task */
	void	   *arg;			/* more data for the server */
	TimestampTz now;			/* time of the call */
	TimestampTz lease_until;	/* end of the leases; DT_NOEND: tasks are
								 * removed */
	bool		peek;			/* true: serve no task, only check whether a
								 * pop would find a task */
	bool		foresees;		/* true: work on a copy, and change or lock no
								 * row */
	bool		ends;			/* true, with peek: end tasks that are over and
								 * that no pop would return */
	int64		max_tasks;		/* most tasks to serve */
	int64		per_group;		/* most turns of a group; 0: no limit */
	bool		has_some;		/* true: the caller already has tasks of other
								 * queues, so no task is served alone */
	bool		only_alone;		/* true: serve only a task that is served
								 * alone */
} FairqCall;

/* One call, in one lane. */
typedef struct FairqService
{
	FairqQueue *queue;			/* queue of the call */
	FairqTable *tasks;			/* fairq.task */
	FairqCall	call;			/* its arguments */

	/* results of the call so far, in all lanes */
	struct
	{
		int64		served;		/* tasks that were served */
		int64		charge;		/* their charge to the shares of their lanes */
		int64		ended;		/* lapsed tasks that were ended */
		int64		expired;	/* expired tasks that were finished, or with
								 * peek would be finished */
		int64		left;		/* turns at which an expired task was left to
								 * other calls */
		bool		peeked;		/* true, with peek: a pop would find a task */
		bool		saw_locked; /* true: a row was only locked */
		bool		saw_over;	/* true, with peek: a call with "ends" would
								 * end some tasks */
		bool		freed;		/* true: the call has ended a task for which
								 * another task may have waited */
		bool		stopped;	/* true: the call ends with a task that is
								 * served alone, or before one */
		uint32		first;		/* lanes, as bits, with which the next call
								 * therefore begins */
	}			got;

	FairqLane  *lane;			/* present lane */
	int			priority;		/* priority of the lane */
	FairqFairBy by;				/* fair_by of the present lane, as this backend
								 * has read it */
	FairqVisits visits[FAIRQ_PRIORITIES];	/* groups that the call passes over
											 * in each cost-fair or time-fair
											 * lane */

	/* the lane as it was when the turns in flight were taken */
	struct
	{
		uint64		searches;	/* searches of the lane */
		TimestampTz by;			/* time by which tasks are due or lapsed; it
								 * may be ahead of our clock, since another
								 * backend may have read it */
	}			taken;

	/* where the call takes turns of this lane */
	struct
	{
		int64		first;		/* with per_group, address of the first turn in
								 * which a task was served; -1: none */
		int64		past;		/* rounds that were begun past the last
								 * block */
	}			window;

	/* service of this lane in a full queue */
	struct
	{
		int32		first;		/* seat served first; -1: none */
		int32		last;		/* seat served last */
		int64		rounds;		/* number of times that the first seat was
								 * visited again */
	}			full;

	bool		left_blocked;	/* true: in this turn, a blocked task was left
								 * to other calls */
	bool		left;			/* true: in this turn, the end of a lapsed or
								 * expired task was left to other calls */
	FairqRecovering recovering; /* recovery of this lane by this call */

	/* scans of groups' lines, kept for the call; NULL: none */
	struct
	{
		FairqScan  *queued;		/* scan of queued tasks */
		FairqScan  *due[FAIRQ_REGIONS]; /* scans of due tasks, for each
										 * region */
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

extern FairqClaimResult fairq_claim(FairqService *s, FairqTask *task,
									FairqTurn *turn);

#endif							/* FAIRQ_CLAIM_H */
