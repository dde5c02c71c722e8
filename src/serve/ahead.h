/*
 * ahead.h
 *		How many tasks may be served before one.
 */
#ifndef FAIRQ_AHEAD_H
#define FAIRQ_AHEAD_H

#include "queue.h"
#include "store.h"

/* no bound is known */
#define FAIRQ_AHEAD_UNKNOWN (-1)

extern int64 fairq_tasks_ahead(FairqQueue *queue, FairqTable *tasks,
							   const FairqTask *task);

#endif							/* FAIRQ_AHEAD_H */
