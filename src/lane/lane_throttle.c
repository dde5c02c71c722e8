/*
 * lane_throttle.c
 *		Throttled groups of a lane: until when, and who comes back.
 *
 * A group that may not start a task yet is out of the ring, in the set
 * "throttled", and in an order by the time at which it may (order.c).  So no
 * pop comes by it before.  Each call takes back those whose time has come, some
 * at a time.
 *
 * Locking: the lane's lock, exclusively.  A record is made before.
 */
#include "postgres.h"

#include "lane.h"
#include "lane_internal.h"

void
fairq_lane_throttled_init(FairqLane *lane)
{
	fairq_order_init(&lane->seats.throttled.order, sizeof(FairqThrottledGroup));
	pg_atomic_init_u64(&lane->seats.throttled.first, PG_INT64_MAX);
}

static FairqThrottledGroup *
record_of(FairqLane *lane, int32 group_no)
{
	return fairq_order_record(&lane->seats.throttled.order, group_no);
}

/* Note when the first group comes back. */
static void
note_first(FairqLane *lane)
{
	int32		first = fairq_order_first(&lane->seats.throttled.order);

	pg_atomic_write_u64(&lane->seats.throttled.first,
						first == FAIRQ_NO_NODE ? PG_INT64_MAX :
						record_of(lane, first)->node.rank.amount.whole);
}

/* The group is throttled no more, if it was. */
static void
remove_group(FairqLane *lane, int32 group_no)
{
	FairqThrottledGroup *record;

	if (!has(lane, FAIRQ_THROTTLED, group_no))
		return;
	fairq_seats_remove(lane, FAIRQ_THROTTLED, group_no);
	record = record_of(lane, group_no);
	/* a copy of the lane has the set, and not the order */
	if (record->listed)
		fairq_order_remove(&lane->seats.throttled.order, group_no);
	record->listed = false;
	note_first(lane);
}

/*
 * Throttle a group until that time of the monotonic clock.  Its record is there.
 * Returns whether it is the first that comes back.
 */
bool
fairq_lane_throttled_add(FairqLane *lane, int32 group_no, int64 until)
{
	FairqThrottledGroup *record = record_of(lane, group_no);

	remove_group(lane, group_no);
	fairq_seats_add(lane, FAIRQ_THROTTLED, group_no);
	memset(&record->node, 0, sizeof(FairqNode));
	record->node.rank.amount.whole = until;
	record->node.rank.tie = (uint64) group_no;
	record->listed = true;
	fairq_order_add(&lane->seats.throttled.order, group_no);
	note_first(lane);
	return fairq_order_first(&lane->seats.throttled.order) == group_no;
}

/* Take all throttled groups back: it may be otherwise by new settings. */
void
fairq_lane_unthrottle_all(FairqLane *lane)
{
	fairq_seats_unpark(lane, FAIRQ_THROTTLED, lane->present.seat);
	fairq_lane_throttled_clear(lane);
}

/* Take a group back into service. */
static void
take_back(FairqLane *lane, int32 group_no)
{
	FairqGroupSet *set;
	FairqGroup *group;

	remove_group(lane, group_no);
	group = lock_group(lane, group_no, false, &set);
	let_in(lane, group_no);
	if (group != NULL)
		unlock_group(lane, group_no, group, set);
}

/*
 * Take groups back whose time has come, so many at most.  Returns how many; more
 * may have to be looked for.
 */
int
fairq_lane_come_back(FairqLane *lane, int most)
{
	FairqThrottled *throttled = &lane->seats.throttled;
	int64		first = (int64) pg_atomic_read_u64(&throttled->first);
	int64		now;
	int			n = 0;

	if (first == PG_INT64_MAX || first > (now = fairq_monotonic()))
		return 0;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	while (n < most && is_begun(lane) &&
		   (int64) pg_atomic_read_u64(&throttled->first) <= now)
	{
		take_back(lane, fairq_order_first(&throttled->order));
		n++;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/* When the first throttled group comes back; PG_INT64_MAX: there is none. */
int64
fairq_lane_next_back(FairqLane *lane)
{
	return (int64) pg_atomic_read_u64(&lane->seats.throttled.first);
}

/* Take the group back into service in these lanes: it may start a task after all. */
void
fairq_unthrottle(FairqHints *hints, int32 group_no, uint16 lanes)
{
	for (int priority = 0; lanes != 0; priority++, lanes >>= 1)
	{
		FairqLane  *lane = &hints->lanes[priority];

		if ((lanes & 1) == 0)
			continue;
		LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
		if (is_begun(lane) && has(lane, FAIRQ_THROTTLED, group_no))
			take_back(lane, group_no);
		LWLockRelease(&lane->lock);
	}
}
