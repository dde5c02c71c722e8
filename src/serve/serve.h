/*
 * serve.h
 *		Service: the course of a call.
 */
#ifndef FAIRQ_SERVE_H
#define FAIRQ_SERVE_H

#include "claim.h"

/*
 * The input and further results of a look: a check whether a pop would find a
 * task.
 */
typedef struct FairqLook
{
	bool		ends;			/* true: the look ends tasks that a pop would
								 * end and not return */
	bool		ended;			/* true: the look has ended some tasks */
	bool		saw_over;		/* true: a look that ends such tasks would be
								 * useful */
	bool		saw_locked;		/* true: a pop would find a task if other
								 * transactions had not locked rows; an unlock
								 * publishes nothing */
} FairqLook;

/* Whether a call in the queue begins with a task that is served alone. */
static inline bool
fairq_begins_alone(FairqQueue *queue)
{
	return pg_atomic_read_u32(&queue->hints->shares.first) != 0;
}

extern int64 fairq_serve(FairqQueue *queue, FairqTable *tasks,
						 const FairqCall *call, bool *stopped);
extern void fairq_foresee(FairqQueue *queue, FairqTable *tasks,
						  const FairqCall *call);
extern bool fairq_find_timed(FairqQueue *queue, int priority,
							 FairqTable *tasks, TimestampTz now,
							 int64 *found);
extern bool fairq_worth_a_pop(FairqQueue *queue, FairqTable *tasks,
							  TimestampTz now, FairqLook *look);
extern void fairq_serve_end(void);

#endif							/* FAIRQ_SERVE_H */
