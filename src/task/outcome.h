/*
 * outcome.h
 *		Attempts and their outcomes: a task is finished, runs again, or is
 *		changed.
 */
#ifndef FAIRQ_OUTCOME_H
#define FAIRQ_OUTCOME_H

#include "queue.h"
#include "transaction.h"

/* The present task of a call. */
typedef struct FairqAttempt
{
	FairqTable *tasks;			/* fairq.task, open */
	FairqQueue *queue;			/* queue of the task, locked; before one is
								 * found, of the previous task.  NULL: none */
	FairqTask	task;
	bool		busy;			/* true: another transaction has the row
								 * locked, and the call did not wait */
} FairqAttempt;

/* A function that finds the task of an attempt. */
typedef bool (*FairqFinder) (FairqAttempt *a, int64 id, int32 attempt);

/* The pending change for a task's group. */
static inline FairqPending *
fairq_pending_of(FairqQueue *queue, const FairqTask *task)
{
	return fairq_pending(fairq_queue_lane(queue, task->priority),
						 task->group_no);
}

/*
 * The microseconds that the attempt has run by the given time.  An attempt in
 * a row written by SQL may have no beginning.
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
extern void fairq_look_soon(FairqQueue *queue, FairqTable *tasks,
							FairqTask *task);
extern bool fairq_replace_task(FairqQueue *queue, FairqTable *tasks,
							   FairqTask *task, TimestampTz run_at, bool timed,
							   const FairqContent *content);
extern bool fairq_complete_attempt(FairqAttempt *a, int64 id, int32 attempt,
								   Datum result, int64 took);
extern bool fairq_find_attempt(FairqAttempt *a, int64 id, int32 attempt);
extern bool fairq_find_attempt_nowait(FairqAttempt *a, int64 id,
									  int32 attempt);
extern bool fairq_find_attempt_to_end(FairqAttempt *a, int64 id,
									  int32 attempt);
extern bool fairq_reschedule_task(FairqAttempt *a, int64 id,
								  TimestampTz run_at);
extern bool fairq_find_task(FairqAttempt *a, int64 id, int any_privilege);
extern void fairq_fail_attempt(FairqAttempt *a, const text *error,
							   int64 retry_in, bool dead, int64 took);
extern void fairq_release_attempt(FairqAttempt *a, int64 delay);
extern void fairq_set_column(FairqAttempt *a, TimestampTz lease_until,
							 AttrNumber attno, Datum value);
extern void fairq_cancel_task(FairqAttempt *a);

#endif							/* FAIRQ_OUTCOME_H */
