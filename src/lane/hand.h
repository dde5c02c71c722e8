/*
 * hand.h
 *		The hand of a group: its next few ready tasks.
 */
#ifndef FAIRQ_HAND_H
#define FAIRQ_HAND_H

#include "shmem.h"

extern void fairq_hand_add(FairqGroup *group, const FairqItem *items, int n,
						   int64 more);
extern int	fairq_hand_take(FairqGroup *group, int most, FairqItem *out);
extern void fairq_hand_vanished(FairqGroup *group, int64 addr);
extern bool fairq_hand_read_begin(FairqGroup *group, int pid);
extern int	fairq_hand_offer(FairqGroup *group, const FairqItem *found,
							 int nfound, int64 end, int most, FairqItem *out);

/* Is no queued task of the group ready, as far as was published? */
static inline bool
fairq_hand_is_empty(const FairqGroup *group)
{
	return group->in_hand.n == 0 && group->upto == FAIRQ_ADDR_MAX;
}

/* Is there something to be taken off the hand? */
static inline bool
fairq_hand_has_any(const FairqGroup *group)
{
	return group->in_hand.n > 0 &&
		group->hand[group->in_hand.first].addr < group->upto;
}

/* The address below which no queued task of the group is ready. */
static inline int64
fairq_hand_low(const FairqGroup *group)
{
	return group->in_hand.n == 0 ? group->upto :
		Min(group->hand[group->in_hand.first].addr, group->upto);
}

#endif							/* FAIRQ_HAND_H */
