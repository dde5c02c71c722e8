/*
 * recover.h
 *		Making a lane known.
 */
#ifndef FAIRQ_RECOVER_H
#define FAIRQ_RECOVER_H

#include "queue.h"
#include "store.h"

extern void fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks);

#endif							/* FAIRQ_RECOVER_H */
