/*
 * lane_waits.h
 *		Which groups of a lane wait or run, and since when.
 */
#ifndef FAIRQ_LANE_WAITS_H
#define FAIRQ_LANE_WAITS_H

#include "lane.h"

/* Of a group in a lane, what says whether it waits or runs; a copy. */
typedef struct FairqWait
{
	int32		group_no;		/* the group's number */
	bool		waits;			/* true: it may have something ready */
	bool		due;			/* true: it is in the set "due" */
	FairqSeatSet set;			/* the ring, parked or throttled; leased: it is
								 * in none of these */
	TimestampTz since;			/* time before which nothing ready of it waits;
								 * DT_NOBEGIN: not known */
	bool		leased;			/* true: tasks of it may be running */
	TimestampTz deadline;		/* time before which no lease of it ends;
								 * DT_NOBEGIN: some may have ended */
	int64		from;			/* address below which no queued task is ready;
								 * FAIRQ_ADDR_MAX: none is at all */
	int64		due_from[FAIRQ_REGIONS];	/* address of each timed region
											 * below which no task is due, or
											 * waits for its time;
											 * FAIRQ_ADDR_MAX: none does */
	int64		tail;			/* last address given; FAIRQ_ADDR_NONE: none;
								 * FAIRQ_TAIL_UNKNOWN */
	int64		next_turn;		/* address of the group's next turn */
	int64		run_low[FAIRQ_REGIONS]; /* address of each region below which
										 * no task is running; FAIRQ_ADDR_MAX:
										 * none is at all */
	int64		run_high;		/* highest address of the queued region at
								 * which a task may be running;
								 * FAIRQ_ADDR_NONE: none */
} FairqWait;

extern int	fairq_lane_waits(FairqLane *lane, TimestampTz ended_by,
							 int64 from, int most, FairqWait *waits);
extern int32 fairq_lane_nwaiting(FairqLane *lane, int64 *next);
extern bool fairq_lane_is_throttled(FairqLane *lane, int32 group_no);
extern bool fairq_lane_is_searched(FairqLane *lane);
extern bool fairq_lane_wait_of(FairqLane *lane, int32 group_no,
							   FairqWait *wait);

#endif							/* FAIRQ_LANE_WAITS_H */
