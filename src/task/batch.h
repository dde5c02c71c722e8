/*
 * batch.h
 *		Batches: sets of tasks whose ends another task waits for.
 */
#ifndef FAIRQ_BATCH_H
#define FAIRQ_BATCH_H

#include "store.h"

/* A row of fairq.batch. */
typedef struct FairqBatch
{
	int64		id;				/* id of the task that waits for it */
	int32		queue_id;		/* queue of that task */
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

extern void fairq_batch_create(FairqTable *tasks, const FairqBatch *batch,
							   TimestampTz now);
extern bool fairq_batch_read(FairqTable *tasks, int64 id, FairqBatch *batch);
extern bool fairq_batch_join(FairqTable *tasks, int64 id, bool again);
extern void fairq_batch_count(FairqTable *tasks, int64 id, int status,
							  int64 n, int64 task_id);
extern FairqBatchState fairq_batch_look(FairqTable *tasks,
										const FairqTask *task,
										Datum *headers, int64 *failed);
extern bool fairq_batch_may_be_over(FairqTable *tasks, int64 id, bool success);
extern void fairq_batch_end(int64 id, bool finished);

#endif							/* FAIRQ_BATCH_H */
