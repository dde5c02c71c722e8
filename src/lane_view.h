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

/* Where service is in a lane, and what is next in it; a copy. */
typedef struct FairqLaneCopy
{
	bool		begun;			/* true: a recovery of the lane has begun;
								 * false: the fields below but deadline are
								 * undefined */
	int64		first;			/* recovery.first of the lane */
	int64		known;			/* recovery.known of the lane */
	int64		block;			/* present.block of the lane */
	int32		seat;			/* present.seat of the lane */
	int64		turn;			/* turn.addr of the lane */
	int32		turn_seat;		/* turn.seat of the lane */
	int32		turn_left;		/* turn.left of the lane */
	int32		full_seat;		/* full.seat of the lane */
	int32		full_left;		/* full.left of the lane */
	bool		unparks;		/* true: the next call that takes turns takes
								 * parked groups back */
	TimestampTz clock;			/* clock of the lane */
	int64		timers[FAIRQ_REGIONS];	/* timers of the lane */
	TimestampTz deadline;		/* deadline of the lane */
	FairqLedger ledger;			/* order.ledger of the lane */
} FairqLaneCopy;

/* Of a lane, what the view fairq.lanes shows; a copy. */
typedef struct FairqLaneView
{
	FairqLaneCopy lane;			/* where service is */
	int32		n[FAIRQ_SEAT_SETS]; /* number of groups in each set */
} FairqLaneView;

/* The account of a group, in a lane that is not fair by tasks; a copy. */
typedef struct FairqAccountCopy
{
	int32		group_no;		/* the group's number */
	bool		lapsed;			/* true: the group is in the set "lapsed" */
	FairqAccount account;		/* its account */
} FairqAccountCopy;

/* A member of a set of a lane's groups. */
typedef struct FairqSeatCopy
{
	int32		group_no;		/* the group's number */
	bool		served;			/* true: the group is in the set "served" */
} FairqSeatCopy;

/*
 * What is known of a group in a lane, as its turn would find it; a copy.  The
 * group may have no entry: then it is what a new one would say.
 */
typedef struct FairqGroupCopy
{
	int32		group_no;		/* the group's number */
	uint32		sets;			/* sets that the group is in, a bit for each
								 * FairqSeatSet */
	bool		lapsing;		/* true: the group is leased, and a lease may
								 * have ended since leases were last looked
								 * at */
	bool		unsure;			/* true: passed in the present block before
								 * recovery began, and not known since */
	FairqGroup	group;			/* entry of the group */
} FairqGroupCopy;

static inline bool
fairq_copy_has(const FairqGroupCopy *copy, FairqSeatSet set)
{
	return (copy->sets >> set) & 1;
}

extern void fairq_lane_view(FairqLane *lane, FairqLaneView *view);
extern int	fairq_lane_view_groups(FairqLane *lane, uint32 mapped, int64 from,
								   int most, FairqGroupView *views);
extern void fairq_lane_copy(FairqLane *lane, FairqLaneCopy *copy);
extern int	fairq_lane_copy_seats(FairqLane *lane, uint32 mapped,
								  FairqSeatSet set, TimestampTz lapsed_by,
								  int64 from, int most, FairqSeatCopy *copies);
extern int	fairq_lane_copy_order(FairqLane *lane, uint32 mapped,
								  const FairqRank *behind, int most,
								  FairqAccountCopy *copies);
extern bool fairq_lane_copy_account(FairqLane *lane, uint32 mapped,
									int32 group_no, FairqAccountCopy *copy);
extern bool fairq_lane_copy_group(FairqLane *lane, uint32 mapped,
								  int32 group_no, TimestampTz now,
								  FairqGroupCopy *copy);

#endif							/* FAIRQ_LANE_VIEW_H */
