/*
 * after.h
 *		Tasks that wait for the ends of named tasks.
 */
#ifndef FAIRQ_AFTER_H
#define FAIRQ_AFTER_H

#include "batch.h"

/* the most predecessors of a task */
#define FAIRQ_MAX_AFTER 1000

/* The predecessors of the tasks of a call. */
typedef struct FairqAfter
{
	int			n;				/* number of predecessors */
	int64	   *ids;			/* their ids, without duplicates */
	bool		any;			/* true: they need not succeed */
} FairqAfter;

/* The result of a look at the predecessors of a task. */
typedef struct FairqAfterLook
{
	FairqBatchState state;		/* whether all have ended, or one failed */
	int64		task;			/* a predecessor that failed, or the one with
								 * the highest id */
} FairqAfterLook;

extern TimestampTz fairq_after_add(FairqTable *tasks, const FairqAfter *after,
								   int64 id, TimestampTz now);
extern bool fairq_after_look(FairqTable *tasks, int64 id, bool changing,
							 FairqAfterLook *look);
extern bool fairq_after_forget(FairqTable *tasks, int64 id);
extern bool fairq_after_failed(FairqTable *tasks, int64 id,
							   FairqStatus status);
extern int64 fairq_after_next(FairqTable *tasks, int64 id, int64 from);

#endif							/* FAIRQ_AFTER_H */
