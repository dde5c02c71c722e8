/*
 * add.h
 *		Adding a task: its key, its address, its row.
 */
#ifndef FAIRQ_ADD_H
#define FAIRQ_ADD_H

#include "queue.h"
#include "store.h"

/* Fields that all tasks of a call share. */
typedef struct FairqEnqueue
{
	FairqQueue *queue;			/* queue of the tasks */
	FairqTable *tasks;			/* fairq.task */
	bool		ready;			/* true: one of them is ready at once */
} FairqEnqueue;

typedef struct FairqNewTask
{
	int64		id;				/* id of the task */
	TimestampTz enqueued_at;	/* time at which it was first enqueued */
	TimestampTz run_at;			/* time in the future at which it falls due;
								 * DT_NOBEGIN: at once */
	TimestampTz put_back_at;	/* time at which it was put back from the
								 * archive; DT_NOBEGIN: it is new */
	TimestampTz popped_at;		/* time of its last claim; 0: it had none */
	TimestampTz expires_at;		/* time from which on it does not begin;
								 * DT_NOEND: none */
	text	   *group_key;		/* its group's key */
	Datum		payload;		/* its payload */
	Datum		headers;		/* its headers; 0: none */

	/* its key */
	struct
	{
		Datum		key;		/* key, which has been taken; 0: none */
		Datum		held_for;	/* interval for which nothing is added with the
								 * key when it is given up; 0: none */
		bool		until_started;	/* true: it is given up at the first claim */
	}			dedup;

	Datum		error;			/* error of its last attempt; 0: none */
	int32		attempt;		/* number of attempts so far, which don't
								 * count */
	int32		max_attempts;	/* most attempts that count; 0: as the queue
								 * says */
	float		cost;			/* what its group is charged for it; 0: as
								 * usual */
	int			priority;		/* from 0 to FAIRQ_PRIORITIES - 1 */
} FairqNewTask;

/* A time that is to come, or DT_NOBEGIN if it is past. */
static inline TimestampTz
fairq_time_ahead(TimestampTz run_at, TimestampTz now)
{
	return run_at > now ? run_at : DT_NOBEGIN;
}

extern void fairq_add_begin(FairqEnqueue *e, text *queue_name);
extern void fairq_add_end(FairqEnqueue *e, bool any);
extern void fairq_make_task_row(FairqEnqueue *e, const FairqNewTask *new,
								Datum *values, bool *nulls);
extern void fairq_add_task(FairqEnqueue *e, const FairqNewTask *new);
extern int64 fairq_take_key(FairqEnqueue *e, Datum key, int64 id, bool wait);
extern int64 fairq_add_unique(FairqEnqueue *e, const FairqNewTask *new,
							  bool replace, bool timed);

#endif							/* FAIRQ_ADD_H */
