/*
 * tally_count.h
 *		The count with which the numbers of tasks begin.
 */
#ifndef FAIRQ_TALLY_COUNT_H
#define FAIRQ_TALLY_COUNT_H

#include "queue.h"
#include "store.h"

extern void fairq_count_tasks(FairqQueue *queue, FairqTable *tasks,
							  bool make);
extern void fairq_count_few_tasks(FairqQueue *queue, FairqTable *tasks);
extern void fairq_count_no_tasks(FairqQueueTally *tally);
extern void fairq_tally_count_init(void);

#endif							/* FAIRQ_TALLY_COUNT_H */
