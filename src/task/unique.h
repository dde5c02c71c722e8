/*
 * unique.h
 *		Adding a task unless another one has its key.
 */
#ifndef FAIRQ_UNIQUE_H
#define FAIRQ_UNIQUE_H

#include "add.h"

extern int64 fairq_take_key(FairqEnqueue *e, Datum key, int64 id, bool wait);
extern int64 fairq_add_unique(FairqEnqueue *e, const FairqNewTask *new,
							  bool replace, bool timed);

#endif							/* FAIRQ_UNIQUE_H */
