/*
 * due.h
 *		Finding what has fallen due in a lane.
 */
#ifndef FAIRQ_DUE_H
#define FAIRQ_DUE_H

#include "queue.h"
#include "store.h"

extern bool fairq_find_timed(FairqQueue *queue, int priority,
							 FairqTable *tasks, TimestampTz now,
							 int64 *found);
extern bool fairq_find_due(FairqQueue *queue, int priority, FairqTable *tasks,
						   TimestampTz now, int64 *found);
extern void fairq_due_init(void);

#endif							/* FAIRQ_DUE_H */
