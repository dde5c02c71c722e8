/*
 * place.h
 *		Giving tasks their addresses; making a lane known.
 */
#ifndef FAIRQ_PLACE_H
#define FAIRQ_PLACE_H

#include "queue.h"
#include "store.h"
#include "transaction.h"

extern int64 fairq_place(FairqQueue *queue, int priority, int32 group_no,
						 int64 order, FairqTable *tasks);
extern void fairq_placed_insert(FairqTable *tasks);
extern void fairq_recover_end(void);
extern void fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks);

#endif							/* FAIRQ_PLACE_H */
