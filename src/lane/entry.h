/*
 * entry.h
 *		Cached entries for groups in lanes, with their hands.
 */
#ifndef FAIRQ_ENTRY_H
#define FAIRQ_ENTRY_H

#include "hints.h"

#define FAIRQ_TAIL_UNKNOWN INT64CONST(-2)

extern FairqGroup *fairq_entry_lock(FairqLane *lane, int32 group_no,
									bool create, bool *is_new);
extern void fairq_entry_unlock(const FairqGroup *group);
extern void fairq_entry_claimed(FairqGroup *group, uint32 lane_no,
								int32 group_no, TimestampTz since);
extern void fairq_entry_unpin(FairqGroup *group);
extern void fairq_hand_add(FairqGroup *group, const FairqItem *items, int n,
						   int64 more);
extern int	fairq_hand_take(FairqGroup *group, int most, FairqItem *out);
extern void fairq_hand_vanished(FairqGroup *group, int64 addr);
extern int	fairq_hand_offer(FairqGroup *group, const FairqItem *found,
							 int nfound, int64 end, int most, FairqItem *out);

/*
 * Whether no queued task of the group is ready, according to published tasks.
 */
static inline bool
fairq_hand_is_empty(const FairqGroup *group)
{
	return group->in_hand.n == 0 && group->upto == FAIRQ_ADDR_MAX;
}

/* Whether a task can be taken off the hand. */
static inline bool
fairq_hand_has_any(const FairqGroup *group)
{
	return group->in_hand.n > 0 &&
		group->hand[group->in_hand.first].addr < group->upto;
}

/* Returns the address below which no queued task of the group is ready. */
static inline int64
fairq_hand_low(const FairqGroup *group)
{
	return group->in_hand.n == 0 ? group->upto :
		Min(group->hand[group->in_hand.first].addr, group->upto);
}

#endif							/* FAIRQ_ENTRY_H */
