/*
 * seats.h
 *		Sets of groups of a lane, by their seats.
 */
#ifndef FAIRQ_SEATS_H
#define FAIRQ_SEATS_H

#include "hints.h"

/* Returns a group's account; NULL: it has none, or an invalid one. */
static inline FairqAccount *
account_if_any(FairqLane *lane, int32 group_no)
{
	FairqAccount *account = fairq_record(&lane->order.accounts, group_no);

	return account != NULL && account->lane_no == lane->recovery.lane_no ?
		account : NULL;
}

/* Returns the account of the group's tenant; NULL: none, or not known. */
static inline FairqAccount *
tenant_if_any(FairqLane *lane, const FairqAccount *account)
{
	FairqAccount *tenant = !account->level.resolved ||
		account->level.tenant == FAIRQ_NO_NODE ? NULL :
		account_if_any(lane, account->level.tenant);

	return tenant != NULL && tenant->level.is_tenant ? tenant : NULL;
}

/*
 * Returns the time at which the first throttled group returns; PG_INT64_MAX:
 * there is none.  Needs no lock.
 */
static inline int64
fairq_lane_next_back(FairqLane *lane)
{
	return (int64) pg_atomic_read_u64(&lane->seats.back.first);
}

extern void fairq_chunks_have(FairqChunks *chunks, int32 seat);
extern void fairq_lane_records_init(FairqLane *lane);
extern bool fairq_seats_return_at(FairqLane *lane, int32 group_no,
								  int64 until);
extern void fairq_seats_return(FairqLane *lane, int32 group_no);
extern void fairq_seats_init(FairqLane *lane);
extern bool fairq_seats_copy(FairqLane *copy, FairqLane *lane);
extern bool fairq_seats_has(FairqLane *lane, FairqSeatSet set, int32 seat);
extern void fairq_seats_add(FairqLane *lane, FairqSeatSet set, int32 seat);
extern void fairq_seats_remove(FairqLane *lane, FairqSeatSet set,
							   int32 seat);
extern int32 fairq_seats_next(FairqLane *lane, FairqSeatSet set,
							  int64 from);
extern int32 fairq_seats_next_but(FairqLane *lane, FairqSeatSet set,
								  FairqSeatSet but, int64 from);
extern int32 fairq_seats_count(FairqLane *lane, FairqSeatSet set, int32 last);
extern void fairq_seats_clear_served(FairqLane *lane, bool begins);
extern void fairq_seats_unpark(FairqLane *lane);
extern void fairq_seats_unpark_lapsed(FairqLane *lane);
extern volatile int64 *fairq_seats_deadline(FairqLane *lane, int32 seat);
extern int64 fairq_seats_lapse(FairqLane *lane, int64 now, int64 *ngroups);

#endif							/* FAIRQ_SEATS_H */
