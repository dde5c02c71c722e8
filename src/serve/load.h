/*
 * load.h
 *		One pass over the table, which finds the running tasks and counts all
 *		tasks.
 */
#ifndef FAIRQ_LOAD_H
#define FAIRQ_LOAD_H

#include "queue.h"
#include "store.h"

extern bool fairq_load_is_due(FairqQueue *queue);
extern void fairq_load_begin(FairqQueue *queue, FairqTable *tasks);
extern bool fairq_load_finish(FairqQueue *queue, FairqTable *tasks);
extern void fairq_load_precedes_sql(Oid task);
extern void fairq_load_here(FairqQueue *queue, FairqTable *tasks);
extern void fairq_load_end(bool over);
extern void fairq_load_first(FairqQueueTally *tally);
extern PGDLLEXPORT void fairq_load_main(Datum arg);

#endif							/* FAIRQ_LOAD_H */
