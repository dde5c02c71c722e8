/*
 * due.h
 *		Tasks that become due; the ends of leases and of expired tasks.
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
extern int64 fairq_end_all_lapsed(FairqQueue *queue, int64 most);
extern int64 fairq_finish_all_expired(FairqQueue *queue);
extern const struct FairqEnding fairq_due_ending;

#endif							/* FAIRQ_DUE_H */
