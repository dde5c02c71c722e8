/*
 * census.h
 *		What is running, found by one pass over all rows.
 */
#ifndef FAIRQ_CENSUS_H
#define FAIRQ_CENSUS_H

#include "queue.h"
#include "store.h"

extern void fairq_census_step(FairqQueue *queue,
							  FairqTable *tasks);
extern bool fairq_census_finish(FairqQueue *queue, FairqTable *tasks);
extern void fairq_census_init(void);

#endif							/* FAIRQ_CENSUS_H */
