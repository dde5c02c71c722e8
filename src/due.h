/*
 * due.h
 *		Finding what has fallen due in a lane.
 */
#ifndef FAIRQ_DUE_H
#define FAIRQ_DUE_H

#include "queue.h"
#include "store.h"

/* Is told of a task that has fallen due.  False: none is to be read behind it. */
typedef bool (*FairqDueSeen) (void *arg, const FairqTask *task);

extern int64 fairq_due_read(FairqQueue *queue, int priority, FairqTable *tasks,
							FairqRegion region, int64 from, TimestampTz now,
							FairqDueSeen seen, void *arg);
extern bool fairq_find_timed(FairqQueue *queue, int priority,
							 FairqTable *tasks, TimestampTz now,
							 int64 *found);
extern bool fairq_find_due(FairqQueue *queue, int priority, FairqTable *tasks,
						   TimestampTz now, int64 *found);
extern void fairq_due_init(void);

#endif							/* FAIRQ_DUE_H */
