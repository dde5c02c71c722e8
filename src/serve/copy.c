/*
 * copy.c
 *		Copying a queue's hints in shared memory, for a call that changes
 *		nothing.
 *
 * The copy is a shadow (shadow.c): it serves a call like shared memory, and no
 * other backend uses it.  It has no sleepers, so no session is woken.
 *
 * A task-fair lane is copied entirely, which takes a few bits for each group.
 * The accounts of other lanes are a hundred times larger.  So the copy's
 * ordered set has only the first groups of each level.  These are one group
 * for each wanted task, plus MOST_IN_VAIN groups that may yield no task.
 * Accounts of other groups, and the groups of a tenant, are copied on demand
 * (lane_order.c).
 *
 * Throttled groups whose time has come are taken back in the copy, as by the
 * next call.  After that, no other groups are taken back in the copy as time
 * passes.
 *
 * Locking: each lane's lock, shared, for a copy of its bits, and for some
 * accounts at a time.  So the copy is exact if there are no other calls
 * meanwhile.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "copy.h"
#include "lane_internal.h"
#include "lane_order.h"
#include "shadow.h"
#include "stall.h"

/*
 * groups of a level that are copied in order, in addition to one per wanted
 * task
 */
#define MOST_IN_VAIN 1000

/* groups of an order that are read under one hold of the lane's lock */
#define AT_ONCE 64

/*
 * Copy the lane and its bits.  False if the copy has no room for all of them.
 */
static bool
copy_bits(FairqLane *lane, FairqLane *copy)
{
	bool		all;

	LWLockAcquire(&lane->lock, LW_SHARED);
	memcpy(copy, lane, sizeof(FairqLane));
	all = fairq_seats_copy(copy, lane);
	LWLockRelease(&lane->lock);
	LWLockInitialize(&copy->lock, fairq_tranche(FAIRQ_LANE_TRANCHE));
	return all;
}

/* An account that was copied. */
typedef struct AccountCopy
{
	int32		group_no;
	FairqAccount account;
} AccountCopy;

/*
 * Copy the accounts of the first groups behind a rank that are in the ordered
 * set.  Returns their number.  It is 0 if another recovery of the lane has
 * begun since its bits were copied, because that makes accounts void.
 */
static int
copy_behind(FairqLane *lane, uint32 lane_no, const FairqRank *behind,
			AccountCopy *copies)
{
	FairqRecords *accounts = &lane->order.accounts;
	FairqRank	rank = *behind;
	int			n = 0;

	LWLockAcquire(&lane->lock, LW_SHARED);
	while (n < AT_ONCE && lane->recovery.lane_no == lane_no)
	{
		int32		next = fairq_order_after(&lane->order.flows.order, accounts,
											 &rank);

		if (next == FAIRQ_NO_NODE)
			break;
		copies[n].group_no = next;
		copies[n].account = *(FairqAccount *) fairq_record(accounts, next);
		rank = copies[n++].account.node.rank;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * Add a group to the ordered set of the copy.  Returns false if it has left
 * the ring, or was already added and has moved further back in the set.
 */
static bool
add_group(FairqLane *copy, const AccountCopy *group)
{
	FairqAccount *account;

	if ((!group->account.level.is_tenant &&
		 !has(copy, FAIRQ_RING, group->group_no)) ||
		has(copy, FAIRQ_SERVED, group->group_no))
		return false;
	account = fairq_record(&copy->order.accounts, group->group_no);
	*account = group->account;
	account->level.copied = false;
	fairq_order_init(&account->level.groups.order);
	fairq_seats_add(copy, FAIRQ_SERVED, group->group_no);
	fairq_order_add(&copy->order.flows.order, &copy->order.accounts,
					group->group_no);
	return true;
}

/*
 * Copy the ordered set: at most n groups for each level that a search
 * examines.
 */
static void
copy_order(FairqLane *lane, FairqLane *copy, int64 most)
{
	AccountCopy copies[AT_ONCE];
	FairqRank	behind = {.level = -1,.amount.whole = PG_INT64_MAX};
	int			levels = 0;
	int64		in_level = 0;
	int			n;

	fairq_seats_clear(copy, FAIRQ_SERVED);
	while ((n = copy_behind(lane, copy->recovery.lane_no, &behind,
							copies)) > 0)
	{
		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < n; i++)
		{
			if (copies[i].account.node.rank.level != behind.level)
			{
				if (++levels > FAIRQ_MOST_LEVELS)
					return;
				in_level = 0;
			}
			behind = copies[i].account.node.rank;
			in_level += add_group(copy, &copies[i]);
			if (in_level == most)
			{
				behind.amount.whole = PG_INT64_MAX;
				break;
			}
		}
	}
}

/*
 * Find the first throttled groups behind a rank whose time has come.  Returns
 * their number.
 */
static int
find_back(FairqLane *lane, FairqRank *behind, int64 now, int32 *group_nos)
{
	const FairqOrder *order = &lane->seats.back.order;
	int			n = 0;

	LWLockAcquire(&lane->lock, LW_SHARED);
	while (n < AT_ONCE && is_begun(lane))
	{
		int32		next = fairq_order_after(order, &lane->seats.back.nodes,
											 behind);
		const FairqNode *node;

		if (next == FAIRQ_NO_NODE)
			break;
		node = fairq_record(&lane->seats.back.nodes, next);
		if (node->rank.amount.whole > now)
			break;
		*behind = node->rank;
		group_nos[n++] = next;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/* Take these groups back in the copy. */
static void
come_back(FairqLane *lane, FairqLane *copy)
{
	FairqRank	behind = {.amount.whole = PG_INT64_MIN};
	int64		now = fairq_monotonic();
	int32		group_nos[AT_ONCE];
	int			n;

	while ((n = find_back(lane, &behind, now, group_nos)) > 0)
	{
		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < n; i++)
			fairq_take_back(fairq_hints_of(copy), group_nos[i],
							1 << copy->priority);
	}
}

static void
copy_lane(FairqLane *lane, FairqLane *copy, int64 max_tasks)
{
	FairqChunks *chunks = &fairq_hints_of(lane)->chunks;

	do
		fairq_chunks_have_like(&fairq_hints_of(copy)->chunks, chunks);
	while (!copy_bits(lane, copy));
	/* another backend's search does not count in the copy */
	copy->times.searching = false;
	fairq_lane_aside_init(copy);
	fairq_lane_order_init(copy);
	if (fairq_lane_next_back(lane) != PG_INT64_MAX)
		come_back(lane, copy);
	fairq_stall("copy");
	if (is_begun(copy) && !is_by_turns(copy))
		copy_order(lane, copy, max_tasks + MOST_IN_VAIN);
}

/*
 * Copy the queue and its hints, for a call for max_tasks tasks.  The copy has
 * the settings that the caller has read.
 */
FairqQueue *
fairq_copy_queue(const FairqQueue *queue, int64 max_tasks)
{
	FairqHints *hints = queue->hints;
	FairqHints *copy = fairq_shadow_begin(hints, sizeof(FairqHints));
	FairqQueue *of_copy = fairq_shadow_alloc(sizeof(FairqQueue));

	/* first, because a later load may not be over in the copied data */
	fairq_tally_keep(&hints->tally);
	memcpy(copy, hints, sizeof(FairqHints));
	fairq_chunks_init(&copy->chunks);
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		copy_lane(&hints->lanes[p], &copy->lanes[p], max_tasks);
	pg_atomic_write_u64(&copy->versions.now, queue->as_of.version);
	pg_atomic_write_u32(&copy->tally.calls, 0);
	SpinLockInit(&copy->versions.mutex);
	fairq_counter_copy(&copy->running, &hints->running);
	fairq_shares_copy(&copy->shares, &hints->shares);
	fairq_wakeup_init(&copy->wakeup);
	*of_copy = *queue;
	of_copy->hints = copy;
	return of_copy;
}
