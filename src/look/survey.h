/*
 * survey.h
 *		What a group has that waits and runs, by a bounded look at its lines.
 */
#ifndef FAIRQ_SURVEY_H
#define FAIRQ_SURVEY_H

#include "queue.h"
#include "store.h"

typedef struct FairqSurvey
{
	TimestampTz since;			/* time since which the first task waits that
								 * is ready or has fallen due; DT_NOEND: there
								 * is none */
	bool		unsure;			/* true: there may be such a task all the same,
								 * behind many that are gone */
	TimestampTz ended;			/* time at which the first lease ended;
								 * DT_NOEND: no task has expired */
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

#endif							/* FAIRQ_SURVEY_H */
