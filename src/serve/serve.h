/*
 * serve.h
 *		Service: the course of a call.
 */
#ifndef FAIRQ_SERVE_H
#define FAIRQ_SERVE_H

#include "service.h"

/*
 * The task and result of a look, in addition to whether a pop would find a
 * task.
 */
typedef struct FairqLook
{
	bool		ends;			/* true: it ends what is over */
	bool		ended;			/* true: it has ended some */
	bool		saw_over;		/* true: a look that ends tasks that are over
								 * is worth it */
	bool		saw_locked;		/* true: a pop would find a task except for
								 * rows that others have locked: an unlock
								 * publishes nothing */
} FairqLook;

extern int64 fairq_serve(FairqQueue *queue, FairqTable *tasks,
						 const FairqCall *call, bool *stopped);
extern void fairq_foresee(FairqQueue *queue, FairqTable *tasks,
						  const FairqCall *call);
extern bool fairq_begins_alone(FairqQueue *queue);
extern bool fairq_worth_a_pop(FairqQueue *queue, FairqTable *tasks,
							  TimestampTz now, FairqLook *look);
extern const struct FairqEnding fairq_serve_ending;

#endif							/* FAIRQ_SERVE_H */
