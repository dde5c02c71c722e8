/*
 * foresee.h
 *		What a pop would serve, foreseen.
 */
#ifndef FAIRQ_FORESEE_H
#define FAIRQ_FORESEE_H

#include "queue.h"
#include "store.h"

/* Is told of a task that would be served, at the turn that it has. */
typedef void (*FairqForeseen) (void *arg, const FairqTask *task);

extern void fairq_foresee(FairqQueue *queue, FairqTable *tasks,
						  TimestampTz now, int64 max_tasks,
						  FairqForeseen foreseen, void *arg);

#endif							/* FAIRQ_FORESEE_H */
