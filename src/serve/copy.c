/*
 * copy.c
 *		Copying a queue's hints in shared memory, for a call that changes
 *		nothing.
 *
 * The copy is a shadow (shadow.c): it serves a call as shared memory does, and
 * no other backend uses it.  It has no sleepers, so no session is woken.
 *
 * A task-fair lane is copied entirely, which is some bits for each group.  The
 * accounts of other lanes are a hundred times larger.  So the copy's ordered
 * set has only the first groups of each level.  Their number is that of the
 * tasks wanted, which can each be of another group, plus MOST_IN_VAIN groups
 * that may yield nothing.  Accounts of other groups are copied on demand
 * (lane_order.c).
 *
 * Throttled groups whose time has come are taken back in the copy, as the next
 * call would do it.  Later the clock takes back no others there.
 *
 * Locking: each lane's lock, shared, for a copy of its bits, and for some
 * accounts at a time.  So the copy is exact if nothing else happens meanwhile.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "copy.h"
#include "lane_internal.h"
#include "lane_order.h"
#include "shadow.h"
#include "stall.h"

/*
 * groups of a level that are copied in order, in addition to one per task
 * wanted
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
 * set.  Returns how many there were.  If another recovery of the lane has
 * begun since its bits were copied there are none: accounts are those of a
 * recovery.
 */
static int
copy_behind(FairqLane *lane, uint32 lane_no, const FairqRank *behind,
			AccountCopy *copies)
{
	FairqOrder *set = &lane->order.set;
	FairqRank	rank = *behind;
	int			n = 0;

	LWLockAcquire(&lane->lock, LW_SHARED);
	while (n < AT_ONCE && lane->recovery.lane_no == lane_no)
	{
		int32		next = fairq_order_after(set, &rank);

		if (next == FAIRQ_NO_NODE)
			break;
		copies[n].group_no = next;
		copies[n].account = *(FairqAccount *) fairq_order_record(set, next);
		rank = copies[n++].account.node.rank;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * Add a group to the ordered set of the copy.  False if it has left the ring,
 * or has moved on in the set and was added before.
 */
static bool
add_group(FairqLane *copy, const AccountCopy *group)
{
	if (!has(copy, FAIRQ_RING, group->group_no) ||
		has(copy, FAIRQ_SERVED, group->group_no))
		return false;
	*(FairqAccount *) fairq_order_record(&copy->order.set, group->group_no) =
		group->account;
	fairq_seats_add(copy, FAIRQ_SERVED, group->group_no);
	fairq_order_add(&copy->order.set, group->group_no);
	return true;
}

/*
 * Copy the ordered set: at most that many groups of each level that a search
 * sees.
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
 * how many there were.
 */
static int
find_back(FairqLane *lane, FairqRank *behind, int64 now, int32 *group_nos)
{
	FairqOrder *order = &lane->seats.back.order;
	int			n = 0;

	LWLockAcquire(&lane->lock, LW_SHARED);
	while (n < AT_ONCE && is_begun(lane))
	{
		int32		next = fairq_order_after(order, behind);
		const FairqNode *node;

		if (next == FAIRQ_NO_NODE)
			break;
		node = fairq_order_record(order, next);
		if (node->rank.amount.whole > now)
			break;
		*behind = node->rank;
		group_nos[n++] = next;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/* Take those back in the copy. */
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
	/* a search of another backend is none in the copy */
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
 * Copy the queue and its hints, for a call for that many tasks.  The settings
 * of the copy are as the caller has read them.
 */
FairqQueue *
fairq_copy_queue(const FairqQueue *queue, int64 max_tasks)
{
	FairqHints *hints = queue->hints;
	FairqHints *copy = fairq_shadow_begin(hints, sizeof(FairqHints));
	FairqQueue *of_copy = fairq_shadow_alloc(sizeof(FairqQueue));

	/* first: a later load may not be over in what is copied */
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
