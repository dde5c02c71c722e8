/*
 * slots.h
 *		How many slots are left, looked at and not taken.
 */
#ifndef FAIRQ_SLOTS_H
#define FAIRQ_SLOTS_H

#include "queue.h"
#include "store.h"

extern bool fairq_slots_left(FairqQueue *queue, int32 group_no, int32 limit,
							 FairqTable *tasks, int64 *left);

#endif							/* FAIRQ_SLOTS_H */
