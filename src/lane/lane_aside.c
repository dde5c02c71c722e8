/*
 * lane_aside.c
 *		Groups of a lane that are put aside: why, until when, and who comes back.
 *
 * A group of which no task may start is put aside by the pop that finds it so: it
 * leaves the ring, and no pop comes by.  It is "parked" if it has no slot, until
 * somebody takes it back who gives one up (counter.c).  It is "throttled" until a
 * time, and then in an order by that, too (order.c); each call takes back those
 * whose time has come, some at a time.  Settings that have changed take back both.
 * A group is aside for one cause, the last one that was found.  Who comes back
 * before the other one is over is put aside anew.
 *
 * Locking: the lane's lock, exclusively, and under it the counter's mutex.  A
 * record is made before.
 */
#include "postgres.h"

#include "lane.h"
#include "lane_internal.h"

void
fairq_lane_aside_init(FairqLane *lane)
{
	fairq_order_init(&lane->seats.back.order, sizeof(FairqNode));
	pg_atomic_init_u64(&lane->seats.back.first, PG_INT64_MAX);
}

static FairqNode *
node_of(FairqLane *lane, int32 group_no)
{
	return fairq_order_record(&lane->seats.back.order, group_no);
}

/* Note when the first group comes back. */
static void
note_first(FairqLane *lane)
{
	int32		first = fairq_order_first(&lane->seats.back.order);

	pg_atomic_write_u64(&lane->seats.back.first,
						first == FAIRQ_NO_NODE ? PG_INT64_MAX :
						node_of(lane, first)->rank.amount.whole);
}

/* The group is aside no more, if it was. */
static void
remove_group(FairqLane *lane, int32 group_no)
{
	FairqNode  *node;

	fairq_seats_remove(lane, FAIRQ_PARKED, group_no);
	if (!has(lane, FAIRQ_THROTTLED, group_no))
		return;
	fairq_seats_remove(lane, FAIRQ_THROTTLED, group_no);
	node = node_of(lane, group_no);
	/* a copy of the lane has the set, and not the order */
	if (node->rank.tie != 0)
		fairq_order_remove(&lane->seats.back.order, group_no);
	node->rank.tie = 0;
	note_first(lane);
}

/* Throttle a group until that time of the monotonic clock. */
static void
throttle(FairqLane *lane, int32 group_no, int64 until)
{
	FairqNode  *node = node_of(lane, group_no);

	fairq_seats_add(lane, FAIRQ_THROTTLED, group_no);
	memset(node, 0, sizeof(FairqNode));
	node->rank.amount.whole = until;
	node->rank.tie = (uint64) group_no + 1;
	fairq_order_add(&lane->seats.back.order, group_no);
	note_first(lane);
}

/*
 * Is there a cause to put the group aside, by settings that are in effect?  Its
 * counter has a note of it then: who changes that takes the group back.  *until is
 * raised to the time at which by the counter a task may start.
 */
static bool
has_cause(FairqLane *lane, int32 group_no, const FairqCause *cause,
		  int64 *until)
{
	FairqHints *hints = fairq_hints_of(lane);
	int64		next;
	bool		early;

	/* a lapsed task needs no other slot, unless nothing of the group may run */
	if (cause->pace == NULL)
		return (cause->limit == 0 || !has(lane, FAIRQ_LAPSED, group_no)) &&
			fairq_counter_park(cause->counter, fairq_tally_now(&hints->tally),
							   cause->limit, lane->priority,
							   &hints->versions.now, cause->version);
	if (pg_atomic_read_u64(&hints->versions.now) != cause->version)
		return false;
	early = fairq_counter_throttle(cause->counter, cause->pace,
								   lane->priority, &next);
	early |= *until > fairq_monotonic();
	*until = Max(*until, next);
	return early;
}

/*
 * Put the group whose turn that is aside, if the cause still holds: with a pace until
 * that time of the monotonic clock, or later.  Returns true if no throttled group
 * comes back earlier.
 */
bool
fairq_lane_put_aside(FairqLane *lane, uint32 lane_no, FairqTurn *turn,
					 const FairqCause *cause, int64 until)
{
	int32		group_no = turn->group_no;
	bool		first = false;

	if (cause->pace != NULL)
		fairq_order_have(&lane->seats.back.order, group_no);
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
		fairq_lane_unpark_if_asked(lane);
	if (lane->recovery.lane_no == lane_no &&
		has_cause(lane, group_no, cause, &until))
	{
		FairqGroupSet *set;
		FairqGroup *group = lock_group(lane, group_no, false, &set);

		take_out(lane, group_no);
		remove_group(lane, group_no);
		if (cause->pace == NULL)
			fairq_seats_add(lane, FAIRQ_PARKED, group_no);
		else
			throttle(lane, group_no, until);
		first = cause->pace != NULL &&
			fairq_order_first(&lane->seats.back.order) == group_no;
		fairq_seats_add(lane, FAIRQ_LATE, group_no);
		if (turn->tasks.served == 0 && !turn->state.parked)
		{
			/* at once: when the turn ends it may be in the ring again */
			(void) fairq_lane_end_part(lane, group, turn, false);
			turn->state.parked = true;
		}
		unlock_group(lane, group_no, group, set);
	}
	LWLockRelease(&lane->lock);
	return first;
}

/* Take a group back into service. */
static void
take_back(FairqLane *lane, int32 group_no)
{
	FairqGroupSet *set;
	FairqGroup *group = lock_group(lane, group_no, false, &set);

	remove_group(lane, group_no);
	let_in(lane, group_no);
	unlock_group(lane, group_no, group, set);
}

/*
 * Take the group back into service in these lanes, if it is aside: it has a slot
 * again, or may start a task.
 */
void
fairq_take_back(FairqHints *hints, int32 group_no, uint16 lanes)
{
	for (int priority = 0; lanes != 0; priority++, lanes >>= 1)
	{
		FairqLane  *lane = &hints->lanes[priority];

		if ((lanes & 1) == 0)
			continue;
		LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
		if (is_begun(lane) && is_aside(lane, group_no))
			take_back(lane, group_no);
		LWLockRelease(&lane->lock);
	}
}

/* Have the next call that takes turns take all groups back that are aside. */
void
fairq_take_all_back(FairqHints *hints)
{
	pg_atomic_fetch_add_u64(&hints->unparks, 1);
}

/* Take all groups back, if that was asked for since the last time. */
void
fairq_lane_unpark_if_asked(FairqLane *lane)
{
	uint64		unparks = pg_atomic_read_u64(&fairq_hints_of(lane)->unparks);

	if (lane->present.unparks == unparks)
		return;
	lane->present.unparks = unparks;
	fairq_seats_unpark(lane, FAIRQ_PARKED);
	fairq_seats_unpark(lane, FAIRQ_THROTTLED);
	fairq_lane_aside_clear(lane);
}

/*
 * Take groups back whose time has come, so many at most.  Returns how many; more
 * may have to be looked for.
 */
int
fairq_lane_come_back(FairqLane *lane, int most)
{
	int64		first = fairq_lane_next_back(lane);
	int64		now;
	int			n = 0;

	if (first == PG_INT64_MAX || first > (now = fairq_monotonic()))
		return 0;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	while (n < most && is_begun(lane) && fairq_lane_next_back(lane) <= now)
	{
		take_back(lane, fairq_order_first(&lane->seats.back.order));
		n++;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/* When the first throttled group comes back; PG_INT64_MAX: there is none. */
int64
fairq_lane_next_back(FairqLane *lane)
{
	return (int64) pg_atomic_read_u64(&lane->seats.back.first);
}

/* The first parked group at or behind that seat. */
bool
fairq_lane_next_parked(FairqLane *lane, int32 *group_no)
{
	int32		next;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	fairq_lane_unpark_if_asked(lane);
	next = fairq_seats_next(lane, FAIRQ_PARKED, *group_no);
	LWLockRelease(&lane->lock);
	*group_no = next;
	return next != FAIRQ_NO_SEAT;
}
