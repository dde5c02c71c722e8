/*
 * lane_view.h
 *		What the views fairq.lanes and lane_groups() show of a lane.
 */
#ifndef FAIRQ_LANE_VIEW_H
#define FAIRQ_LANE_VIEW_H

#include "lane.h"

/* Of a lane, what the view fairq.lanes shows; a copy. */
typedef struct FairqLaneView
{
	bool		begun;			/* true: a recovery of the lane has begun */
	int64		first;			/* first of the lane */
	int64		known;			/* known of the lane */
	int64		block;			/* block of the lane */
	int32		seat;			/* seat of the lane */
	int64		turn;			/* turn of the lane */
	int32		n[FAIRQ_SEAT_SETS]; /* number of groups in each set */
	int64		timers[FAIRQ_REGIONS];	/* timers of the lane */
	TimestampTz deadline;		/* deadline of the lane */
} FairqLaneView;

/* Of a group in a lane, what lane_groups() shows; a copy. */
typedef struct FairqGroupView
{
	int32		group_no;		/* the group's number */
	uint32		sets;			/* sets that the group is in, a bit for each
								 * FairqSeatSet */
	bool		known;			/* true: recovery has come by the group's
								 * seat */
	bool		cached;			/* true: the group has an entry; false: the
								 * fields below but next_turn are 0 */
	int64		next_turn;		/* address of the group's next turn;
								 * FAIRQ_ADDR_NONE: not known, or there is no
								 * block left */
	int64		tail;			/* tail of the entry */
	int64		upto;			/* upto of the entry */
	int			nhand;			/* number of items in hand */
	FairqItem	hand[FAIRQ_HAND];	/* the hand */
	int			ndue;			/* number of items in due_hand */
	FairqItem	due_hand[FAIRQ_DUE_HAND];	/* due.items of the entry */
} FairqGroupView;

extern void fairq_lane_view(FairqLane *lane, FairqLaneView *view);
extern int	fairq_lane_view_groups(FairqLane *lane, uint32 mapped, int64 from,
								   int most, FairqGroupView *views);

#endif							/* FAIRQ_LANE_VIEW_H */
