/*
 * retry.h
 *		Whether a group has a task that is to be retried, or is before another.
 */
#ifndef FAIRQ_RETRY_H
#define FAIRQ_RETRY_H

#include "queue.h"
#include "store.h"

extern bool fairq_group_retries(FairqQueue *queue, FairqTable *tasks,
								int32 group_no, TimestampTz *due_at);
extern bool fairq_group_has_earlier(FairqQueue *queue, FairqTable *tasks,
									const FairqTask *task, TimestampTz now,
									bool *changing);

#endif							/* FAIRQ_RETRY_H */
