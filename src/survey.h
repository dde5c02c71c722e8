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
	bool		waits;			/* true: some task of the group is ready, has
								 * fallen due or has expired */
	TimestampTz since;			/* time since which the first of these waits;
								 * meaningful if waits */
	bool		scheduled;		/* true: some task waits for its time */
	int64		ready;			/* number of tasks that are queued and not
								 * running; an estimate, if there are many */
	int32		running;		/* number of running tasks; at least so many,
								 * if it is not counted and there are many */
} FairqSurvey;

extern void fairq_survey(FairqQueue *queue, FairqTable *tasks,
						 int32 group_no, TimestampTz now,
						 FairqSurvey *survey);
extern bool fairq_survey_since(FairqQueue *queue, FairqTable *tasks,
							   int priority, const FairqTurn *turn,
							   TimestampTz *since);
extern bool fairq_survey_counter(FairqQueue *queue, int32 group_no,
								 int32 *running);

#endif							/* FAIRQ_SURVEY_H */
