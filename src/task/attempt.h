/*
 * attempt.h
 *		Attempts: their ends, and the renewal of their leases.
 */
#ifndef FAIRQ_ATTEMPT_H
#define FAIRQ_ATTEMPT_H

#include "queue.h"
#include "store.h"

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

extern bool fairq_complete_attempt(FairqAttempt *a, int64 id, int32 attempt,
								   Datum result, int64 took);
extern bool fairq_find_attempt(FairqAttempt *a, int64 id, int32 attempt);
extern bool fairq_find_attempt_nowait(FairqAttempt *a, int64 id,
									  int32 attempt);
extern bool fairq_find_attempt_to_end(FairqAttempt *a, int64 id, int32 attempt);
extern bool fairq_find_waiting(FairqAttempt *a, int64 id);
extern bool fairq_find_task(FairqAttempt *a, int64 id, int any_privilege);
extern void fairq_fail_attempt(FairqAttempt *a, const text *error,
							   int64 retry_in, bool dead, int64 took);
extern void fairq_release_attempt(FairqAttempt *a, int64 delay);
extern void fairq_extend_attempt(FairqAttempt *a, TimestampTz until);
extern void fairq_note_progress(FairqAttempt *a, Datum progress);
extern void fairq_cancel_task(FairqAttempt *a);

#endif							/* FAIRQ_ATTEMPT_H */
