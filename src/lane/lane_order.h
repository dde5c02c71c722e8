/*
 * lane_order.h
 *		The order of service in cost-fair and time-fair lanes.
 */
#ifndef FAIRQ_LANE_ORDER_H
#define FAIRQ_LANE_ORDER_H

#include "lane.h"

extern void fairq_lane_order_copy(FairqLane *copy, int64 wanted);
extern bool fairq_lane_order_next(FairqLane *lane, FairqTaking *taking,
								  int32 *group_no);
extern bool fairq_lane_order_shut(FairqLane *lane, int32 tenant,
								  FairqShut shut, int64 until);
extern bool fairq_lane_order_is_closed(FairqLane *lane, int32 group_no);
extern void fairq_lane_order_open(FairqLane *lane, int32 tenant);
extern void fairq_lane_order_searched(FairqLane *lane, int32 group_no);
extern bool fairq_lane_order_is_covered(FairqLane *lane, int32 group_no);
extern void fairq_lane_order_take(FairqLane *lane, const FairqTaking *taking,
								  FairqTurn *turn);
extern void fairq_lane_order_back(FairqLane *lane, const FairqTurn *turn,
								  bool over);

#endif							/* FAIRQ_LANE_ORDER_H */
