/*
 * lane_served.h
 *		How much the groups of a lane were served, and how far they are apart.
 */
#ifndef FAIRQ_LANE_SERVED_H
#define FAIRQ_LANE_SERVED_H

#include "lane.h"

/*
 * How fair a lane is; a copy.  Amounts are costs, or seconds of work, per weight.
 */
typedef struct FairqFairness
{
	bool		begun;			/* true: a recovery of the lane has begun;
								 * false: all else is undefined */
	FairqFairBy fair_by;		/* by what the lane is fair */
	bool		known;			/* true: that recovery is over; false: not all
								 * groups that are ready are known */
	int32		nready;			/* number of groups that may have something
								 * ready */
	bool		ranked;			/* true: least and most are known */
	double		least;			/* the least that one of these has got */
	double		most;			/* the most */
	double		longest;		/* by time, E in microseconds; 0: not known */
} FairqFairness;

/* What a group was served in a lane that is not fair by tasks; a copy. */
typedef struct FairqGroupServed
{
	bool		any;			/* true: it has an account; false: all else is
								 * undefined */
	double		got;			/* what it has got, per weight */
	int32		running;		/* by time, number of its running tasks */
	int32		level;			/* by time, its level */
} FairqGroupServed;

extern void fairq_lane_fairness(FairqLane *lane, TimestampTz now,
								FairqFairness *fairness);
extern void fairq_lane_served(FairqLane *lane, TimestampTz now,
							  int32 group_no, FairqGroupServed *served);

#endif							/* FAIRQ_LANE_SERVED_H */
