/*
 * waiting.h
 *		The groups of a queue that wait or run: how many, and since when.
 */
#ifndef FAIRQ_WAITING_H
#define FAIRQ_WAITING_H

#include "queue.h"

/* A group that waits or runs: what all of its lanes know. */
typedef struct FairqWaiter
{
	int32		group_no;		/* the group's number */
	int			nlanes;			/* number of lanes in which it waits */
	bool		due;			/* true: it may have a timed task whose time
								 * has come */
	bool		throttled;		/* true: it is throttled in some lane */
	TimestampTz since;			/* time before which nothing ready of it waits;
								 * DT_NOBEGIN: not known; DT_NOEND: it does not
								 * wait */
	TimestampTz deadline;		/* time before which no lease of it ends;
								 * DT_NOBEGIN: some may have ended; DT_NOEND:
								 * there is none */
} FairqWaiter;

typedef struct FairqWalk FairqWalk;

/* Of the groups of a queue, those that wait. */
typedef struct FairqWaiting
{
	bool		known;			/* false: shared memory knows nothing of the
								 * queue's groups, and there may be some; all
								 * else is undefined */
	bool		sampled;		/* true: not all of them were looked at; the
								 * numbers are estimates, and other tasks may
								 * be older */
	int32		nready;			/* number of groups that may have something
								 * ready, and are neither paused nor known to
								 * lack a slot under a limit of theirs, nor
								 * throttled */
	int32		nlimited;		/* number of groups without a slot that are not
								 * paused */
	int32		nthrottled;		/* number of groups of which no task may start
								 * yet */
	TimestampTz ready;			/* time since which the oldest task waits that
								 * has a slot; DT_NOEND: there is none */
	TimestampTz limited;		/* the same of tasks that have none */
} FairqWaiting;

extern FairqWalk *fairq_walk_begin(FairqQueue *queue, TimestampTz ended_by,
								   int64 from, int64 end);
extern bool fairq_walk_next(FairqWalk *walk, FairqWaiter *waiter);
extern void fairq_waiting(FairqQueue *queue, FairqWaiting *waiting);

#endif							/* FAIRQ_WAITING_H */
