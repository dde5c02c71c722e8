/*
 * lane_view.h
 *		Copies of a lane's state, for views.
 */
#ifndef FAIRQ_LANE_VIEW_H
#define FAIRQ_LANE_VIEW_H

#include "lane.h"

/* A copy of a lane, for the view fairq.lanes. */
typedef struct FairqLaneView
{
	bool		begun;			/* true: a recovery of the lane has begun;
								 * false: only leases and their deadline are
								 * valid */
	FairqLane	lane;			/* the lane; present.seat is FAIRQ_NO_SEAT if
								 * it is not task-fair, and the number in
								 * FAIRQ_TODO is that of groups in front */
} FairqLaneView;

/* groups that are copied under one hold of a lane's lock */
#define FAIRQ_WAITS 32

/* A copy of a group in a lane: whether it waits or runs. */
typedef struct FairqWait
{
	int32		group_no;		/* the group's number */
	bool		waits;			/* true: the group may have a ready task */
	bool		due;			/* true: the group is in the set "due" */
	FairqSeatSet set;			/* the ring, parked or throttled; leased: the
								 * group is in none of these */
	bool		throttled;		/* true: none of the group's tasks may start
								 * yet */
	TimestampTz since;			/* earliest time at which a waiting task may
								 * have become ready; DT_NOBEGIN: not known */
	bool		leased;			/* true: some of the group's tasks may be
								 * running */
	TimestampTz deadline;		/* time before which none of the group's leases
								 * expires; DT_NOBEGIN: some may have expired
								 */
	int64		from;			/* address below which no queued task is ready;
								 * FAIRQ_ADDR_MAX: none is ready */
	int64		due_from[FAIRQ_REGIONS];	/* address of each timed region
											 * below which no task is due, or
											 * waits for its time;
											 * FAIRQ_ADDR_MAX: none does */
	int64		tail;			/* last address given, or FAIRQ_TAIL_UNKNOWN;
								 * FAIRQ_ADDR_NONE: none */
	int64		next_turn;		/* address of the group's next turn */
	int64		run_low[FAIRQ_REGIONS]; /* in each region, the address below
										 * which no task is running;
										 * FAIRQ_ADDR_MAX: none is running */
	int64		run_high;		/* highest address of the queued region at
								 * which a task may be running;
								 * FAIRQ_ADDR_NONE: none */
} FairqWait;

/*
 * A copy of the numbers that measure a lane's fairness.  Amounts are costs, or
 * seconds of work, per weight.
 */
typedef struct FairqFairness
{
	bool		begun;			/* true: a recovery of the lane has begun;
								 * false: all other fields are undefined */
	FairqFairBy fair_by;		/* fair_by of the lane */
	bool		known;			/* true: that recovery is over; false: not all
								 * ready groups are known */
	int32		nready;			/* number of groups that may have a ready task
								 */
	bool		ranked;			/* true: the next two amounts are known */
	double		least;			/* the least amount that one of these groups
								 * has got */
	double		most;			/* the greatest amount that one of them has
								 * got */
	double		longest;		/* if time-fair, E in microseconds; 0: not
								 * known */
} FairqFairness;

extern void fairq_lane_view(FairqLane *lane, FairqLaneView *view);

/* Returns the number of waiting groups. */
static inline int64
fairq_lane_view_waiting(const FairqLaneView *view)
{
	const int32 *n = view->lane.seats.n;

	return (int64) n[FAIRQ_RING] + n[FAIRQ_PARKED] + n[FAIRQ_THROTTLED];
}

extern int	fairq_lane_waits(FairqLane *lane, TimestampTz ended_by,
							 int64 from, FairqWait *waits);
extern bool fairq_lane_wait_of(FairqLane *lane, int32 group_no,
							   FairqWait *wait);
extern void fairq_lane_fairness(FairqLane *lane, TimestampTz now,
								FairqFairness *fairness);
extern bool fairq_lane_served(FairqLane *lane, TimestampTz now,
							  int32 group_no, FairqAccount *account,
							  double *got);

#endif							/* FAIRQ_LANE_VIEW_H */
