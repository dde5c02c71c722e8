/*
 * survey.h
 *		A group's tasks: the numbers of waiting and running tasks, and the
 *		reason for waiting.
 */
#ifndef FAIRQ_SURVEY_H
#define FAIRQ_SURVEY_H

#include "queue.h"
#include "store.h"

/* Why ready tasks do not run.  The first one that applies counts. */
typedef enum FairqReason
{
	FAIRQ_REASON_NONE,			/* not known, or no task waits */
	FAIRQ_REASON_PAUSED,		/* the queue, the group or its tenant is
								 * paused */
	FAIRQ_REASON_QUEUE_LIMIT,	/* the queue has no slot */
	FAIRQ_REASON_LIMIT,			/* the group or its tenant has no slot */
	FAIRQ_REASON_QUEUE_RATE,	/* no task of the queue may start yet */
	FAIRQ_REASON_RATE,			/* no task of the group may start yet */
	FAIRQ_REASON_RETRY,			/* the group waits for the retry of a task */
	FAIRQ_REASON_WORKERS,		/* there is no known obstacle: the tasks wait
								 * for a pop */
	FAIRQ_REASON_SCHEDULED		/* the task's time has not come */
} FairqReason;

/* Waiting and running tasks of a group. */
typedef struct FairqSurvey
{
	TimestampTz since;			/* time since which the first ready or due task
								 * waits; DT_NOEND: there is none */
	bool		unsure;			/* true: there may be another such task, after
								 * many deleted ones */
	TimestampTz ended;			/* time at which the first lease ended;
								 * DT_NOEND: no task has lapsed */
	bool		scheduled;		/* true: some task waits for its time */
	int64		ready;			/* number of queued tasks that are not running;
								 * an estimate, if there are many */
	int32		running;		/* number of running tasks; a lower bound, if
								 * the counter is not known and there are
								 * many */
} FairqSurvey;

extern void fairq_survey(FairqQueue *queue, FairqTable *tasks,
						 int32 group_no, TimestampTz now, bool counts,
						 FairqSurvey *survey);
extern bool fairq_survey_counter(FairqQueue *queue, int32 group_no,
								 int32 *running);
extern TimestampTz fairq_next_at(FairqQueue *queue, int32 group_no,
								 bool is_tenant);
extern FairqReason fairq_queue_reason(FairqQueue *queue);
extern FairqReason fairq_group_reason(FairqQueue *queue, int32 group_no);
extern FairqReason fairq_reason(FairqQueue *queue, int32 group_no);
extern const char *fairq_reason_name(FairqReason reason);

#endif							/* FAIRQ_SURVEY_H */
