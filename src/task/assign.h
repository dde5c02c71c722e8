/*
 * assign.h
 *		The addresses of tasks.
 */
#ifndef FAIRQ_ASSIGN_H
#define FAIRQ_ASSIGN_H

#include "queue.h"
#include "store.h"
#include "transaction.h"

extern int64 fairq_assign_address(FairqQueue *queue, int priority,
								  int32 group_no, FairqTable *tasks);
extern void fairq_assign_insert(FairqTable *tasks);

#endif							/* FAIRQ_ASSIGN_H */
