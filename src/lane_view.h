/*
 * lane_view.h
 *		What is shown of a lane: copies, of the lane and of its groups.
 */
#ifndef FAIRQ_LANE_VIEW_H
#define FAIRQ_LANE_VIEW_H

#include "lane.h"

/* Of a group in a lane, what lane_groups() shows; a copy. */
typedef struct FairqGroupView
{
	int32		group_no;		/* the group's number */
	FairqSeatSet state;			/* the ring, parked or throttled; leased: it
								 * waits for nothing */
	int64		next_turn;		/* address of the group's next turn;
								 * FAIRQ_ADDR_NONE: not known, or there is no
								 * block left */
	int64		next_task;		/* address of the first task that the entry
								 * has; FAIRQ_ADDR_NONE: none */
} FairqGroupView;

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
	int32		n[FAIRQ_SEAT_SETS]; /* number of groups in each set */
} FairqLaneView;

extern void fairq_lane_view(FairqLane *lane, FairqLaneView *view);
extern int	fairq_lane_view_groups(FairqLane *lane, uint32 mapped, int64 from,
								   int most, FairqGroupView *views);

#endif							/* FAIRQ_LANE_VIEW_H */
