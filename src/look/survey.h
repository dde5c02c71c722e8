/*
 * survey.h
 *		Groups that wait or run: their number, their tasks, how long the tasks
 *		have waited, and why.
 */
#ifndef FAIRQ_SURVEY_H
#define FAIRQ_SURVEY_H

#include "queue.h"
#include "store.h"

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
	int64		blocked;		/* id of a task that waits for other tasks; 0:
								 * none, or it follows a scheduled one */
	int64		ready;			/* number of queued tasks that are not running;
								 * an estimate, if there are many */
	int32		running;		/* number of running tasks; a lower bound, if
								 * the counter is not known and there are
								 * many */
} FairqSurvey;

/*
 * A group with waiting or running tasks, with the data of all of its lanes
 * combined.
 */
typedef struct FairqWaiter
{
	int32		group_no;		/* the group's number */
	int			nlanes;			/* number of lanes in which the group waits */
	bool		due;			/* true: the group may have a due task */
	bool		throttled;		/* true: the group is throttled in some lane */
	TimestampTz since;			/* lower bound of the time since which the
								 * group waits; DT_NOBEGIN if not known,
								 * DT_NOEND if it does not wait */
	TimestampTz deadline;		/* time before which none of the group's leases
								 * ends; DT_NOBEGIN if some may have ended,
								 * DT_NOEND if it has none */
} FairqWaiter;

typedef struct FairqWalk FairqWalk;

/* The waiting groups of a queue. */
typedef struct FairqWaiting
{
	bool		known;			/* false: shared memory does not have the
								 * queue's groups, and the queue may have some;
								 * all other fields are undefined */
	bool		sampled;		/* true: the call has not visited all groups;
								 * the numbers are estimates, and other tasks
								 * may be older */
	int32		nready;			/* number of groups that may have ready tasks,
								 * are neither paused nor throttled, and are
								 * not known to lack a slot under their own
								 * limits */
	int32		nlimited;		/* number of groups without a slot that are not
								 * paused */
	int32		nthrottled;		/* number of groups whose tasks may not start
								 * yet */
	TimestampTz ready;			/* time since which the oldest task with a slot
								 * waits; DT_NOEND: there is none */
	TimestampTz limited;		/* time since which the oldest task without a
								 * slot waits; DT_NOEND: there is none */
} FairqWaiting;

extern void fairq_survey(FairqQueue *queue, FairqTable *tasks,
						 int32 group_no, TimestampTz now, bool counts,
						 FairqSurvey *survey);
extern bool fairq_survey_counter(FairqQueue *queue, int32 group_no,
								 int32 *running);
extern TimestampTz fairq_next_at(FairqQueue *queue, int32 group_no,
								 bool is_tenant);
extern const char *fairq_reason(FairqQueue *queue, int32 group_no);
extern FairqWalk *fairq_walk_begin(FairqQueue *queue, TimestampTz ended_by,
								   int64 from, int64 end);
extern bool fairq_walk_next(FairqWalk *walk, FairqWaiter *waiter);
extern void fairq_waiting(FairqQueue *queue, FairqWaiting *waiting);

#endif							/* FAIRQ_SURVEY_H */
