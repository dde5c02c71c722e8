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
 * for each wanted task, plus some that may yield no task.  Accounts of other
 * groups, and the groups of a tenant, are copied on demand (lane_order.c).
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
		fairq_lane_order_copy(copy, max_tasks);
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
