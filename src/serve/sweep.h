/*
 * sweep.h
 *		Ending what time has ended in a queue: leases, and tasks that are outdated.
 */
#ifndef FAIRQ_SWEEP_H
#define FAIRQ_SWEEP_H

#include "queue.h"

extern int64 fairq_expire_all(FairqQueue *queue, int64 most);
extern int64 fairq_finish_all_outdated(FairqQueue *queue);

#endif							/* FAIRQ_SWEEP_H */
