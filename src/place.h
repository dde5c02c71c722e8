/*
 * place.h
 *		Giving tasks their addresses.
 */
#ifndef FAIRQ_PLACE_H
#define FAIRQ_PLACE_H

#include "queue.h"
#include "store.h"
#include "transaction.h"

extern int64 fairq_place(FairqQueue *queue, int priority, int32 group_no,
						 FairqTable *tasks);
extern void fairq_placed_insert(FairqTable *tasks);

#endif							/* FAIRQ_PLACE_H */
