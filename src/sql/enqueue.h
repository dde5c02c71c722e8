/*
 * enqueue.h
 *		Adding a task: its key, its address, its row.
 */
#ifndef FAIRQ_ENQUEUE_H
#define FAIRQ_ENQUEUE_H

#include "blocked.h"
#include "queue.h"

/* Fields that all tasks of a call share. */
typedef struct FairqEnqueue
{
	FairqQueue *queue;			/* queue of the tasks */
	FairqTable *tasks;			/* fairq.task */
	bool		ready;			/* true: at least one of the tasks is ready at
								 * once */
	int64		batch;			/* batch to which all of the tasks belong; 0:
								 * none */
	int64		added;			/* number of tasks that were added to the
								 * batch */
	const FairqAfter *after;	/* predecessors of each of the tasks; NULL:
								 * none */
} FairqEnqueue;

typedef struct FairqNewTask
{
	int64		id;				/* id of the task */
	TimestampTz enqueued_at;	/* time at which the task was first enqueued */
	TimestampTz run_at;			/* future time at which the task becomes due;
								 * DT_NOBEGIN: it is ready at once */
	TimestampTz put_back_at;	/* time at which the task was put back from the
								 * archive; DT_NOBEGIN: it is new */
	TimestampTz expires_at;		/* time from which the task may not begin;
								 * DT_NOEND: none */
	text	   *group_key;		/* key of the task's group */
	Datum		payload;		/* the task's payload */
	Datum		headers;		/* the task's headers; 0: none */

	/* the task's dedup_key */
	struct
	{
		Datum		key;		/* key, taken before the row is written; 0:
								 * none */
		Datum		held_for;	/* interval for which the key is held after the
								 * task gives it up; 0: none */
		bool		until_started;	/* true: the key is given up at the first
									 * claim */
	}			dedup;

	/* data of earlier attempts, which do not count towards max_attempts */
	struct
	{
		TimestampTz popped_at;	/* time of the last claim; 0: there was none */
		Datum		error;		/* error of the last attempt; 0: none */
		Datum		log;		/* log of failed attempts; 0: none */
		Datum		progress;	/* progress that these attempts have set; 0:
								 * none */
		int32		attempt;	/* number of attempts */
	}			past;

	int32		max_attempts;	/* limit of the attempts that count; 0: the
								 * queue's setting */
	float		cost;			/* charge to the task's group; 0: the
								 * default */
	int			priority;		/* from 0 to FAIRQ_PRIORITIES - 1 */
	int64		batch;			/* batch to which the task belonged before; 0:
								 * none */
	bool		blocked;		/* true: the task waits for the batch with its
								 * id; a task with FairqEnqueue.after is
								 * blocked too */
} FairqNewTask;

extern void fairq_add_end(FairqEnqueue *e, bool any);
extern void fairq_add_task(FairqEnqueue *e, const FairqNewTask *new);
extern int64 fairq_take_key(FairqEnqueue *e, Datum key, int64 id, bool wait);

#endif							/* FAIRQ_ENQUEUE_H */
