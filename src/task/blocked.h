/*
 * blocked.h
 *		Blocked tasks: those that wait for a batch, or for named tasks.
 */
#ifndef FAIRQ_BLOCKED_H
#define FAIRQ_BLOCKED_H

#include "store.h"

/* A row of fairq.batch. */
typedef struct FairqBatch
{
	int32		queue_id;		/* queue of the task that waits for it */
	bool		on_success;		/* true: all of its tasks have to succeed */
	bool		closed;			/* true: no more tasks can be added */
	bool		finished;		/* true: its task does not wait any more */
} FairqBatch;

typedef enum FairqBatchState
{
	FAIRQ_BATCH_OPEN,			/* one of its tasks has not ended, or more
								 * tasks may be added */
	FAIRQ_BATCH_DONE,			/* all have ended */
	FAIRQ_BATCH_FAILED			/* one did not succeed, and all have to */
} FairqBatchState;

/* fairq.batch_delta.status: of tasks that were added; others: FairqStatus */
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

/* The result of a look at the predecessors of a task. */
typedef struct FairqAfterLook
{
	FairqBatchState state;		/* whether all have ended, or one failed */
	int64		task;			/* a predecessor that failed, or the one with
								 * the highest id */
} FairqAfterLook;

extern bool fairq_batch_read(FairqTable *tasks, int64 id, FairqBatch *batch);
extern bool fairq_batch_join(FairqTable *tasks, int64 id, bool again);
extern void fairq_batch_count(FairqTable *tasks, int64 id, int status,
							  int64 n, int64 task_id);
extern FairqBatchState fairq_batch_look(FairqTable *tasks,
										const FairqTask *task,
										Datum *headers, int64 *failed);
extern bool fairq_batch_may_be_over(FairqTable *tasks, int64 id, bool success);
extern void fairq_batch_end(int64 id, bool finished);
extern TimestampTz fairq_after_add(FairqTable *tasks, const FairqAfter *after,
								   int64 id, TimestampTz now);
extern bool fairq_after_look(FairqTable *tasks, int64 id, bool changing,
							 FairqAfterLook *look);
extern bool fairq_after_forget(FairqTable *tasks, int64 id);
extern bool fairq_after_failed(FairqTable *tasks, int64 id,
							   FairqStatus status);

#endif							/* FAIRQ_BLOCKED_H */
