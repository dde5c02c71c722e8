/*
 * dedup.h
 *		One unfinished task per queue and key.
 */
#ifndef FAIRQ_DEDUP_H
#define FAIRQ_DEDUP_H

#include "queue.h"
#include "store.h"

#define FAIRQ_MAX_DEDUP_KEY 1024

extern int64 fairq_dedup_take(FairqQueue *queue, FairqTable *tasks, Datum key,
							  int64 id, bool wait);
extern int64 fairq_dedup_find(FairqQueue *queue, FairqTable *tasks, Datum key);
extern bool fairq_dedup_is_expired(FairqTable *tasks, int64 id);
extern int64 fairq_dedup_forget(FairqQueue *queue);
extern void fairq_dedup_free(FairqTable *tasks, const FairqTask *task,
							 bool started);

#endif							/* FAIRQ_DEDUP_H */
