/*
 * lane_order.h
 *		The order of service in lanes that are not fair by tasks.
 */
#ifndef FAIRQ_LANE_ORDER_H
#define FAIRQ_LANE_ORDER_H

#include "lane.h"

/*
 * An account: what is kept of each group of such a lane; in shared memory, under
 * the lane's lock.
 */
typedef struct FairqAccount
{
	FairqNode	node;			/* rank, and place in the ordered set; a tie of
								 * 0: the account is new */
	uint32		lane_no;		/* lane_no of the lane when it was last used:
								 * it is void if there is another one since */

	/* by cost */
	float		last_cost;		/* cost of the last task that was claimed */

	/* by time */
	int32		weight;			/* the group's weight when it was served last */
	int32		running;		/* number of its tasks that are running, or are
								 * about to be claimed, if they count */
	int64		started;		/* sum of when these began, in microseconds
								 * from order.since of the lane on */
	FairqAmount done;			/* microseconds of work that has ended, per
								 * weight */
} FairqAccount;

/* lane_order.c */
extern void fairq_lane_order_init(FairqLane *lane);
extern void fairq_lane_order_begin(FairqLane *lane, TimestampTz now);
extern bool fairq_lane_order_next(FairqLane *lane, const FairqTaking *taking,
								  int32 *group_no);
extern bool fairq_lane_order_is_covered(FairqLane *lane, int32 group_no);
extern void fairq_lane_order_take(FairqLane *lane, const FairqTaking *taking,
								  FairqTurn *turn);
extern void fairq_lane_order_back(FairqLane *lane, const FairqTurn *turn,
								  bool over);
extern uint64 fairq_lane_order_new_tie(FairqLane *lane, int32 group_no);
extern int32 fairq_lane_order_after(FairqLane *lane,
									const FairqVisits *visits,
									const FairqRank *behind);
extern FairqAccount *fairq_lane_account(FairqLane *lane, int32 group_no);
extern bool fairq_lane_order_remove(FairqLane *lane, int32 group_no);
extern void fairq_lane_order_again(FairqLane *lane, int32 group_no,
								   bool was_in);

/* lane_time.c */
extern double fairq_time_got(FairqLane *lane, const FairqAccount *account,
							 TimestampTz now);
extern void fairq_time_comes(FairqLane *lane, int32 group_no,
							 FairqAccount *account, double least,
							 TimestampTz now);
extern double fairq_time_least(FairqLane *lane, TimestampTz now);
extern int32 fairq_time_next(FairqLane *lane, const FairqTaking *taking);
extern void fairq_time_begins(FairqLane *lane, FairqAccount *account,
							  FairqTurn *turn, TimestampTz now);
extern void fairq_time_begins_not(FairqLane *lane, FairqAccount *account,
								  const FairqTurn *turn);

#endif							/* FAIRQ_LANE_ORDER_H */
