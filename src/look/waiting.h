/*
 * waiting.h
 *		How many groups of a queue wait, and since when.
 */
#ifndef FAIRQ_WAITING_H
#define FAIRQ_WAITING_H

#include "queue.h"

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

extern void fairq_waiting(FairqQueue *queue, FairqWaiting *waiting);

#endif							/* FAIRQ_WAITING_H */
