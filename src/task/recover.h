/*
 * recover.h
 *		The recovery of a lane: its position, and its groups.
 */
#ifndef FAIRQ_RECOVER_H
#define FAIRQ_RECOVER_H

#include "queue.h"
#include "store.h"

/* The progress of a call that recovers a lane; all zero at first. */
typedef struct FairqRecovering
{
	int			begun;			/* number of times that the call has begun a
								 * recovery of the lane */
	uint32		lane_no;		/* lane_no of the lane when it began last */
} FairqRecovering;

extern void fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks,
						  FairqRecovering *recovering);

#endif							/* FAIRQ_RECOVER_H */
