/*
 * count.h
 *		Counting running tasks off the table.
 */
#ifndef FAIRQ_COUNT_H
#define FAIRQ_COUNT_H

#include "queue.h"
#include "store.h"

/* What counting rows comes to. */
typedef struct FairqCounting
{
	int32		running;
	bool		doubtful;		/* or less */
	int			budget;			/* entries of the index that may be read */
	bool		too_long;		/* there are more */
} FairqCounting;

extern void fairq_count_running(FairqQueue *queue, int32 group_no,
								FairqTable *tasks, FairqCounting *counting);
extern int	fairq_entries_to_count(FairqHints *hints, FairqCounter *counter,
								   int32 group_no, FairqAsOf now);

#endif							/* FAIRQ_COUNT_H */
