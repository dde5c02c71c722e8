/*
 * walk.h
 *		The groups of a queue that wait or run, one after the other.
 */
#ifndef FAIRQ_WALK_H
#define FAIRQ_WALK_H

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

extern FairqWalk *fairq_walk_begin(FairqQueue *queue, TimestampTz ended_by,
								   int64 from, int64 end);
extern bool fairq_walk_next(FairqWalk *walk, FairqWaiter *waiter);

#endif							/* FAIRQ_WALK_H */
