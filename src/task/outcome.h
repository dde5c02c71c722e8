/*
 * outcome.h
 *		Outcomes: a task is finished, runs again, or is changed.
 */
#ifndef FAIRQ_OUTCOME_H
#define FAIRQ_OUTCOME_H

#include "pending.h"
#include "queue.h"
#include "store.h"

/* The pending change for a task's group. */
static inline FairqPending *
fairq_pending_of(FairqQueue *queue, const FairqTask *task)
{
	return fairq_pending(fairq_queue_lane(queue, task->priority),
						 task->group_no);
}

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
extern void fairq_task_ended(FairqQueue *queue, FairqTable *tasks,
							 const FairqTask *task, FairqStatus status);
extern void fairq_look_at_blocked(FairqQueue *queue, FairqTable *tasks,
								  FairqTask *task);
extern void fairq_look_soon(FairqQueue *queue, FairqTable *tasks,
							FairqTask *task);
extern bool fairq_reschedule_task(FairqQueue *queue, FairqTable *tasks,
								  FairqTask *task, TimestampTz run_at);
extern bool fairq_replace_task(FairqQueue *queue, FairqTable *tasks,
							   FairqTask *task, TimestampTz run_at, bool timed,
							   const FairqContent *content);

#endif							/* FAIRQ_OUTCOME_H */
