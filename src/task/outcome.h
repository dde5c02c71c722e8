/*
 * outcome.h
 *		Outcomes: a task is finished, runs again, or is changed.
 */
#ifndef FAIRQ_OUTCOME_H
#define FAIRQ_OUTCOME_H

#include "pending.h"
#include "queue.h"
#include "store.h"

/* fairq.archive.status; tasks that are dropped have no row there */
typedef enum FairqStatus
{
	FAIRQ_STATUS_DROPPED = 0,
	FAIRQ_STATUS_COMPLETED = 1,
	FAIRQ_STATUS_FAILED = 2,
	FAIRQ_STATUS_CANCELLED = 3,
	FAIRQ_STATUS_EXPIRED = 4
} FairqStatus;

extern void fairq_finish(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
						 FairqStatus status, const text *error, Datum result);
extern void fairq_run_again(FairqQueue *queue, FairqTable *tasks,
							FairqTask *task, TimestampTz run_at,
							const text *error, bool counts);
extern int64 fairq_leased_for(const FairqTask *task, TimestampTz now);
extern void fairq_attempt_ended(FairqQueue *queue, FairqPending *pending,
								const FairqTask *task);
extern int32 fairq_attempts_left(const FairqQueue *queue,
								 const FairqTask *task);
extern void fairq_finish_expired(FairqQueue *queue, FairqTable *tasks,
								 FairqTask *task);
extern void fairq_end_lapsed(FairqQueue *queue, FairqTable *tasks,
							 FairqTask *task);
extern bool fairq_reschedule_task(FairqQueue *queue, FairqTable *tasks,
								  FairqTask *task, TimestampTz run_at);
extern bool fairq_replace_task(FairqQueue *queue, FairqTable *tasks,
							   FairqTask *task, TimestampTz run_at, bool timed,
							   const FairqContent *content);

#endif							/* FAIRQ_OUTCOME_H */
