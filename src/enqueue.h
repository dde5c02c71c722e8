/*
 * enqueue.h
 *		Adding tasks.
 */
#ifndef FAIRQ_ENQUEUE_H
#define FAIRQ_ENQUEUE_H

#include "queue.h"
#include "store.h"

/* What all tasks of a call have in common. */
typedef struct FairqEnqueue
{
	FairqQueue *queue;
	FairqTable *tasks;
	TimestampTz run_at;			/* in the future, or DT_NOBEGIN: at once */
} FairqEnqueue;

typedef struct FairqNewTask
{
	int64		id;
	TimestampTz enqueued_at;
	TimestampTz put_back_at;	/* DT_NOBEGIN: it is new */
	text	   *group_key;
	Datum		payload;
	Datum		dedup_key;		/* it has been taken; 0: none */
	Datum		error;			/* of the last attempt; 0: none */
	int32		attempt;		/* so many have been, which don't count */
	int32		max_attempts;	/* 0: as the queue says */
	int			priority;
} FairqNewTask;

extern void fairq_add_task(FairqEnqueue *e, const FairqNewTask *new);

#endif							/* FAIRQ_ENQUEUE_H */
