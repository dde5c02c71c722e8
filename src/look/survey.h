/*
 * survey.h
 *		A group's tasks: how many wait and run, and why those that wait do.
 */
#ifndef FAIRQ_SURVEY_H
#define FAIRQ_SURVEY_H

#include "queue.h"
#include "store.h"

/* Why ready tasks do not run, in the order in which that counts. */
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

/* What a group has that waits and runs. */
typedef struct FairqSurvey
{
	TimestampTz since;			/* time since which the first task waits that
								 * is ready or has fallen due; DT_NOEND: there
								 * is none */
	bool		unsure;			/* true: there may be such a task all the same,
								 * behind many that are gone */
	TimestampTz ended;			/* time at which the first lease ended;
								 * DT_NOEND: no task has lapsed */
	bool		scheduled;		/* true: some task waits for its time */
	int64		ready;			/* number of tasks that are queued and not
								 * running; an estimate, if there are many */
	int32		running;		/* number of running tasks; at least so many,
								 * if it is not counted and there are many */
} FairqSurvey;

extern void fairq_survey(FairqQueue *queue, FairqTable *tasks,
						 int32 group_no, TimestampTz now, bool counts,
						 FairqSurvey *survey);
extern bool fairq_survey_counter(FairqQueue *queue, int32 group_no,
								 int32 *running);
extern TimestampTz fairq_next_at(FairqQueue *queue, int32 group_no);
extern FairqReason fairq_queue_reason(FairqQueue *queue);
extern FairqReason fairq_group_reason(FairqQueue *queue, int32 group_no);
extern FairqReason fairq_reason(FairqQueue *queue, int32 group_no);
extern const char *fairq_reason_name(FairqReason reason);

#endif							/* FAIRQ_SURVEY_H */
