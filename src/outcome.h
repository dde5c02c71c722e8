/*
 * outcome.h
 *		What becomes of a task: finished, or to be run again.
 */
#ifndef FAIRQ_OUTCOME_H
#define FAIRQ_OUTCOME_H

#include "queue.h"
#include "store.h"

/* fairq.archive.status; but what is dropped does not come there */
typedef enum FairqEnd
{
	FAIRQ_DROP = 0,
	FAIRQ_SUCCEED = 1,
	FAIRQ_FAIL = 2,
	FAIRQ_CANCEL = 3
} FairqEnd;

extern void fairq_finish(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
						 FairqEnd end, const text *error, Datum result);
extern void fairq_run_again(FairqQueue *queue, FairqTable *tasks,
							FairqTask *task, TimestampTz run_at,
							const text *error, bool counts);
extern bool fairq_attempts_used_up(const FairqQueue *queue,
								   const FairqTask *task);
extern void fairq_expire(FairqQueue *queue, FairqTable *tasks,
						 FairqTask *task);

#endif							/* FAIRQ_OUTCOME_H */
