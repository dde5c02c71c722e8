/*
 * lane_view.h
 *		What the view fairq.lanes shows of a lane: a copy.
 */
#ifndef FAIRQ_LANE_VIEW_H
#define FAIRQ_LANE_VIEW_H

#include "lane.h"

/* Of a lane, what the view fairq.lanes shows; a copy. */
typedef struct FairqLaneView
{
	bool		begun;			/* true: a recovery of the lane has begun;
								 * false: the fields below but deadline are
								 * undefined */
	int64		first;			/* recovery.first of the lane */
	int64		known;			/* recovery.known of the lane */
	int64		block;			/* present.block of the lane */
	int32		seat;			/* present.seat of the lane, if it is fair by
								 * tasks */
	int64		turn;			/* turn.addr of the lane */
	int64		timers[FAIRQ_REGIONS];	/* timers of the lane */
	TimestampTz deadline;		/* deadline of the lane */
	int32		n[FAIRQ_SEAT_SETS]; /* number of groups in each set; of
									 * FAIRQ_TODO, of those in front */
} FairqLaneView;

extern void fairq_lane_view(FairqLane *lane, FairqLaneView *view);

#endif							/* FAIRQ_LANE_VIEW_H */
