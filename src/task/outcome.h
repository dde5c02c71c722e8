/*
 * outcome.h
 *		Outcomes of attempts: a task is finished, runs again, or is changed.
 */
#ifndef FAIRQ_OUTCOME_H
#define FAIRQ_OUTCOME_H

#include "utils/timestamp.h"

#include "queue.h"
#include "transaction.h"

/* The pending change for a task's group. */
static inline FairqPending *
fairq_pending_of(FairqQueue *queue, const FairqTask *task)
{
	return fairq_pending(fairq_queue_lane(queue, task->priority),
						 task->group_no);
}

/*
 * The microseconds that the attempt has run by the given time.  If SQL has
 * written the row, the attempt may have no start time.
 */
static inline int64
fairq_leased_for(const FairqTask *task, TimestampTz now)
{
	if (task->popped_at == 0 || TIMESTAMP_NOT_FINITE(task->popped_at) ||
		TIMESTAMP_NOT_FINITE(now))
		return 0;
	return Max(now - task->popped_at, 0);
}

/* The number of attempts that a task may still have. */
static inline int32
fairq_attempts_left(const FairqQueue *queue, const FairqTask *task)
{
	int32		most = task->max_attempts > 0 ? task->max_attempts :
		queue->retries.max_attempts;

	return Max(most - (task->attempt - task->released), 0);
}

extern void fairq_finish(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
						 FairqStatus status, const text *error, Datum result);
extern void fairq_finish_expired(FairqQueue *queue, FairqTable *tasks,
								 FairqTask *task);
extern void fairq_end_lapsed(FairqQueue *queue, FairqTable *tasks,
							 FairqTask *task);
extern void fairq_task_ended(FairqQueue *queue, FairqTable *tasks,
							 const FairqTask *task, FairqStatus status);
extern bool fairq_look_at_blocked(FairqQueue *queue, FairqTable *tasks,
								  FairqTask *task);
extern void fairq_change_task(FairqQueue *queue, FairqTable *tasks,
							  FairqTask *task, TimestampTz run_at, bool stays,
							  const FairqContent *content);
extern bool fairq_complete_unlocked(FairqQueue *queue, FairqTable *tasks,
									FairqTask *task);
extern void fairq_run_again(FairqQueue *queue, FairqTable *tasks,
							FairqTask *task, TimestampTz run_at,
							const text *error, bool retried);

/* Make the next check of a blocked task, whose row is locked, due at once. */
static inline void
fairq_look_soon(FairqQueue *queue, FairqTable *tasks, FairqTask *task)
{
	fairq_change_task(queue, tasks, task, fairq_as_due(GetCurrentTimestamp()),
					  false, NULL);
}

#endif							/* FAIRQ_OUTCOME_H */
