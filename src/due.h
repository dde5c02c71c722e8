/*
 * due.h
 *		Finding what has fallen due in a lane.
 */
#ifndef FAIRQ_DUE_H
#define FAIRQ_DUE_H

#include "queue.h"
#include "store.h"

/* What was found, and what is done with a task whose group cannot be told. */
typedef struct FairqFound
{
	int64		count;			/* counts up */
	bool		(*serve) (FairqTask *task, void *arg);
	void	   *arg;
} FairqFound;

extern bool fairq_find_due(FairqQueue *queue, int priority, FairqTable *tasks,
						   TimestampTz now, FairqFound *found);
extern void fairq_look_end(void);

#endif							/* FAIRQ_DUE_H */
