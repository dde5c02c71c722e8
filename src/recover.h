/*
 * recover.h
 *		Making a lane known.
 */
#ifndef FAIRQ_RECOVER_H
#define FAIRQ_RECOVER_H

#include "queue.h"
#include "store.h"

/* What a call has done to make a lane known; all zero at first. */
typedef struct FairqRecovering
{
	int			begun;			/* so often it has begun */
	uint32		lane_no;		/* what the lane was then, the last time */
} FairqRecovering;

extern void fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks,
						  FairqRecovering *recovering);

#endif							/* FAIRQ_RECOVER_H */
