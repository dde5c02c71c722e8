/*
 * service.h
 *		What the parts of service share: one call's state.
 */
#ifndef FAIRQ_SERVICE_H
#define FAIRQ_SERVICE_H

#include "queue.h"
#include "recover.h"
#include "store.h"

/* expired tasks that a call brings to their end, beside what it serves */
#define FAIRQ_MAX_ENDED 100

/*
 * What is done with a task that was chosen: its row is in tasks->lock_slot,
 * and is locked, or at most its tuple lock is held (tasks->tuple_only): then
 * it can still be lost to a rival.  Afterwards the task is running, or
 * removed.
 */
typedef FairqClaimResult (*FairqServer) (FairqTable *tasks, FairqTask *task,
										 void *arg);

/* One call, in one lane. */
typedef struct FairqService
{
	FairqQueue *queue;			/* queue of the call */
	FairqTable *tasks;			/* fairq.task */
	FairqLane  *lane;			/* present lane */
	int			priority;		/* priority of the lane */
	uint32		lane_no;		/* lane_no of the lane when the turns in hand
								 * were taken */
	uint64		searches;		/* searches of the lane when they were taken */
	uint32		mapped;			/* number of chunks that this backend has
								 * mapped */
	FairqServer server;			/* what is done with a task that was chosen */
	void	   *arg;			/* last argument of server */
	TimestampTz now;			/* time at which the call began */
	TimestampTz by;				/* time as of which tasks are due or expired;
								 * may be later than now, by the clock of the
								 * backend that found it */
	TimestampTz lease_until;	/* end of the leases; DT_NOEND: tasks are
								 * removed */
	bool		peek;			/* true: nothing is served, but whether a pop
								 * would be worth it is found out */
	bool		peeked;			/* true: it would be */
	bool		saw_locked;		/* true: a row was merely locked */
	int64		max_tasks;		/* tasks to be served, at most */
	int64		served;			/* tasks that were served, in all lanes */
	int64		ended;			/* expired tasks that were brought to their
								 * end, in all lanes */
	bool		left;			/* true: in this turn, an expired task was left
								 * to others to end */
	int64		found;			/* tasks and groups of which something was
								 * found due, in all lanes */
	int64		per_group;		/* turns of a group, at most; 0: no limit */
	int64		first;			/* address of the first turn in which something
								 * was served, with per_group; -1: none */
	int32		full_first;		/* seat served first in a full queue; -1:
								 * none */
	int32		full_last;		/* seat served last in a full queue */
	int64		full_rounds;	/* number of times that full_first was come by
								 * again */
	int64		past;			/* rounds begun past the last block, in this
								 * lane */
	FairqRecovering recovering; /* recovery of this lane by this call */
	FairqScan  *rows;			/* scan of queued tasks, kept for the call;
								 * NULL: none */
	FairqScan  *due[FAIRQ_REGIONS]; /* scans of due tasks, per region,
									 * likewise */
	FairqScan  *expired;		/* scan of expired tasks, likewise */
} FairqService;

#endif							/* FAIRQ_SERVICE_H */
