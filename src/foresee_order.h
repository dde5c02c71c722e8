/*
 * foresee_order.h
 *		The order of service in lanes that are not fair by tasks, foreseen.
 */
#ifndef FAIRQ_FORESEE_ORDER_H
#define FAIRQ_FORESEE_ORDER_H

#include "lib/pairingheap.h"
#include "nodes/pg_list.h"
#include "utils/hsearch.h"

#include "lane_view.h"

/* One call, in one lane. */
typedef struct FairqForeseenOrder
{
	FairqLane  *lane;			/* lane of the groups */
	FairqLedger ledger;			/* what accounts have in common, as it goes on */
	TimestampTz now;			/* time at which the call began */
	float		cost;			/* cost of the task that was foreseen last; for
								 * the caller */
	HTAB	   *groups;			/* groups of which there are copies */
	List	   *levels;			/* levels that were come by, in no order */
	uint32		mapped;			/* number of chunks of accounts that the
								 * backend has mapped */
} FairqForeseenOrder;

extern void fairq_foresee_order_begin(FairqForeseenOrder *order,
									  FairqLane *lane,
									  const FairqLedger *ledger,
									  TimestampTz now);
extern void fairq_foresee_order_comes(FairqForeseenOrder *order,
									  int32 group_no);
extern void fairq_foresee_order_stays(FairqForeseenOrder *order,
									  int32 group_no);
extern bool fairq_foresee_order_next(FairqForeseenOrder *order,
									 int32 *group_no);
extern void fairq_foresee_order_served(FairqForeseenOrder *order,
									   int32 group_no, int32 weight,
									   float cost);

#endif							/* FAIRQ_FORESEE_ORDER_H */
