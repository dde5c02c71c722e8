/*
 * reason.h
 *		Why a group's ready tasks do not run.
 */
#ifndef FAIRQ_REASON_H
#define FAIRQ_REASON_H

#include "queue.h"

/* In their order: the first one that is so counts. */
typedef enum FairqReason
{
	FAIRQ_REASON_NONE,			/* not known, or nothing waits */
	FAIRQ_REASON_PAUSED,		/* the queue is paused, or the group */
	FAIRQ_REASON_QUEUE_LIMIT,	/* the queue has no slot */
	FAIRQ_REASON_LIMIT,			/* the group has no slot */
	FAIRQ_REASON_QUEUE_RATE,	/* no task of the queue may start yet */
	FAIRQ_REASON_RATE,			/* no task of the group may start yet */
	FAIRQ_REASON_RETRY,			/* the group waits for a task that is to be
								 * retried */
	FAIRQ_REASON_WORKERS,		/* nothing keeps the tasks back, as far as is
								 * known: they wait for a pop */
	FAIRQ_REASON_SCHEDULED		/* the time has not come */
} FairqReason;

extern TimestampTz fairq_next_at(FairqQueue *queue, int32 group_no);
extern FairqReason fairq_queue_reason(FairqQueue *queue);
extern FairqReason fairq_group_reason(FairqQueue *queue, int32 group_no);
extern FairqReason fairq_reason(FairqQueue *queue, int32 group_no);
extern const char *fairq_reason_name(FairqReason reason);

#endif							/* FAIRQ_REASON_H */
