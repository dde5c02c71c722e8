/*
 * blocked.h
 *		Blocked tasks: those that wait for a batch, or for named tasks.
 */
#ifndef FAIRQ_BLOCKED_H
#define FAIRQ_BLOCKED_H

#include "store.h"

/* The state of the tasks for which a blocked task waits. */
typedef enum FairqBatchState
{
	FAIRQ_BATCH_NONE,			/* the task does not wait for named tasks */
	FAIRQ_BATCH_TAKEN,			/* our transaction has taken one of the tasks;
								 * that task does not end before the commit */
	FAIRQ_BATCH_OPEN,			/* one of the tasks has not ended, or more
								 * tasks may be added */
	FAIRQ_BATCH_DONE,			/* all have ended */
	FAIRQ_BATCH_FAILED			/* a task did not succeed, and all have to
								 * succeed */
} FairqBatchState;

/*
 * fairq.batch_delta.status of added tasks; other values are those of
 * FairqStatus
 */
#define FAIRQ_BATCH_ADDED 1

/* the most predecessors of a task */
#define FAIRQ_MAX_AFTER 1000

/* The predecessors of the tasks of a call. */
typedef struct FairqAfter
{
	int			n;				/* number of predecessors */
	int64	   *ids;			/* their ids, without duplicates */
	bool		any;			/* true: they need not succeed */
} FairqAfter;

extern bool fairq_batch_join(FairqTable *tasks, int64 id, bool again);
extern void fairq_batch_count(FairqTable *tasks, int64 id, int status,
							  int64 n, int64 task_id);
extern FairqBatchState fairq_batch_look(FairqTable *tasks,
										const FairqTask *task,
										Datum *headers, int64 *failed);
extern bool fairq_batch_may_be_over(FairqTable *tasks, int64 id, bool success);
extern bool fairq_batch_end(int64 id, bool finished);
extern TimestampTz fairq_after_add(FairqTable *tasks, const FairqAfter *after,
								   int64 id, TimestampTz now);
extern FairqBatchState fairq_after_look(FairqTable *tasks, int64 id,
										bool changing, int64 *task);
extern bool fairq_blocked_may_be_over(FairqTable *tasks, int64 id);
extern bool fairq_after_forget(FairqTable *tasks, int64 id);
extern bool fairq_after_failed(FairqTable *tasks, int64 id,
							   FairqStatus status);

#endif							/* FAIRQ_BLOCKED_H */
