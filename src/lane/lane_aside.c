/*
 * lane_aside.c
 *		Groups of a lane that are put aside: the cause, the end, and the
 *		return.
 *
 * If a pop finds that no task of a group may start, it puts the group aside.
 * Then the group is not in the ring, and no pop visits it.  A group without a
 * slot is "parked".  It returns when a backend gives up a slot (counter.c), or
 * when a lease of its tasks lapses (lane_leases.c).  A group without a start
 * is "throttled" until a certain time.  It is also in a set ordered by that
 * time (order.c).  Each call takes back some groups whose time has come.  A
 * group returns earlier if a call gives back an unused start.  If it waits for
 * a retry, it returns at the latest when that task ends or is changed
 * (transaction.c).  Changes of settings take back both kinds.  The lane
 * records only the last cause that a pop found.  If the group returns while
 * another cause still holds, the next pop puts it aside again.
 *
 * A tenant without a slot or a start is "shut", as one: its groups stay where
 * they are (lane_order.c).  It returns like a group.  In a full queue, a call
 * visits groups with lapsed tasks, and does not ask for their tenants.  So it
 * parks those of a tenant that is paused or may not start a task yet.  They
 * return with the tenant.
 *
 * Locking: the lane's lock, exclusively, and under it the counter's mutex.
 * Records of the order are made before the lane is locked.
 */
#include "postgres.h"

#include "lane.h"
#include "lane_internal.h"
#include "lane_order.h"

void
fairq_lane_aside_init(FairqLane *lane)
{
	fairq_records_init(&lane->seats.back.nodes, sizeof(FairqNode));
	fairq_order_init(&lane->seats.back.order);
	pg_atomic_init_u64(&lane->seats.back.first, PG_INT64_MAX);
}

/* The throttled group or tenant that comes back first; FAIRQ_NO_NODE: none. */
static int32
first_back(FairqLane *lane)
{
	return fairq_order_first(&lane->seats.back.order, &lane->seats.back.nodes);
}

/*
 * Record that the group is not aside any more, if it was.
 */
static void
remove_group(FairqLane *lane, int32 group_no)
{
	fairq_seats_remove(lane, FAIRQ_PARKED, group_no);
	if (!has(lane, FAIRQ_THROTTLED, group_no))
		return;
	fairq_seats_remove(lane, FAIRQ_THROTTLED, group_no);
	fairq_lane_aside_remove(lane, group_no);
}

/*
 * Record that a group or tenant returns at a time of the monotonic clock.
 * Returns whether no other one returns earlier.
 */
static bool
return_at(FairqLane *lane, int32 group_no, int64 until)
{
	FairqNode  *node = fairq_record(&lane->seats.back.nodes, group_no);

	memset(node, 0, sizeof(FairqNode));
	node->rank.amount.whole = until;
	node->rank.tie = (uint64) group_no + 1;
	fairq_order_add(&lane->seats.back.order, &lane->seats.back.nodes,
					group_no);
	fairq_lane_aside_first(lane);
	return first_back(lane) == group_no;
}

/*
 * Whether settings in effect require that the group is put aside.  If so, the
 * group's counter records that.  A backend that makes a slot or a start
 * available there takes the group back. *until is raised to the time at which
 * the counter allows a task to start.
 */
static bool
has_cause(FairqLane *lane, int32 group_no, const FairqCause *cause,
		  int64 *until)
{
	FairqHints *hints = fairq_hints_of(lane);
	int64		next;
	bool		early;

	/* a lapsed task needs no other slot, unless the limit is 0 */
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

/* Move a group, whose entry may be NULL, from the ring to a set. */
static void
leave_ring(FairqLane *lane, int32 group_no, FairqSeatSet set)
{
	take_out(lane, group_no);
	remove_group(lane, group_no);
	fairq_seats_add(lane, set, group_no);
	fairq_seats_add(lane, FAIRQ_LATE, group_no);
}

/*
 * In a full queue, find the next group at or after a seat that has lapsed
 * tasks, and may serve them.  Parks groups that may not because of their
 * tenants.  FAIRQ_NO_SEAT: there is none, or *steps is below 0, and the search
 * must continue.
 */
int32
fairq_lane_next_lapsed(FairqLane *lane, int64 from, int *steps)
{
	for (;;)
	{
		int32		group_no = fairq_seats_next_but(lane, FAIRQ_LAPSED,
													FAIRQ_PARKED, from);
		FairqGroupSet *set;
		FairqGroup *group;

		if (group_no == FAIRQ_NO_SEAT ||
			!fairq_lane_order_is_closed(lane, group_no))
			return group_no;
		if (--*steps < 0)
			return FAIRQ_NO_SEAT;
		group = lock_group(lane, group_no, false, &set);
		leave_ring(lane, group_no, FAIRQ_PARKED);
		unlock_group(lane, group_no, group, set);
	}
}

/*
 * Put the turn's group aside, if the cause still holds.  With a pace, it stays
 * aside at least until the given time of the monotonic clock.  Returns true if
 * it is throttled and no other throttled group returns earlier.
 */
bool
fairq_lane_put_aside(FairqLane *lane, uint32 lane_no, FairqTurn *turn,
					 const FairqCause *cause, int64 until)
{
	int32		group_no = turn->group_no;
	bool		first = false;

	if (cause->pace != NULL)
		fairq_record_have(&lane->seats.back.nodes, group_no);
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
		fairq_lane_unpark_if_asked(lane);
	if (lane->recovery.lane_no == lane_no &&
		has_cause(lane, group_no, cause, &until))
	{
		FairqGroupSet *set;
		FairqGroup *group = lock_group(lane, group_no, false, &set);

		leave_ring(lane, group_no, cause->pace == NULL ? FAIRQ_PARKED :
				   FAIRQ_THROTTLED);
		if (cause->pace != NULL)
			first = return_at(lane, group_no, until);
		if (turn->tasks.served == 0 && !turn->state.parked)
		{
			/* end it now, because the group may be in the ring again later */
			(void) fairq_lane_end_part(lane, group, turn, false);
			turn->state.parked = true;
		}
		unlock_group(lane, group_no, group, set);
	}
	LWLockRelease(&lane->lock);
	return first;
}

/* Take a group, or a tenant that is shut, back into service. */
static void
take_back(FairqLane *lane, int32 group_no)
{
	FairqGroupSet *set;
	FairqGroup *group;

	if (has(lane, FAIRQ_SHUT, group_no))
	{
		fairq_lane_order_open(lane, group_no);
		fairq_seats_add(lane, FAIRQ_TODO, group_no);
		return;
	}
	group = lock_group(lane, group_no, false, &set);
	remove_group(lane, group_no);
	let_in(lane, group_no);
	unlock_group(lane, group_no, group, set);
}

/*
 * Shut the tenant of a turn's group, if the cause still holds.  With a pace,
 * it stays shut at least until the given time of the monotonic clock.  Returns
 * true if no other group or tenant that is throttled returns earlier.
 */
bool
fairq_lane_shut(FairqLane *lane, uint32 lane_no, int32 tenant,
				const FairqCause *cause, int64 until)
{
	bool		first = false;

	if (cause->pace != NULL)
		fairq_record_have(&lane->seats.back.nodes, tenant);
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
		fairq_lane_unpark_if_asked(lane);
	if (lane->recovery.lane_no == lane_no &&
		fairq_lane_order_is_tenant(lane, tenant) &&
		has_cause(lane, tenant, cause, &until))
	{
		FairqShut	shut = cause->pace != NULL ? FAIRQ_SHUT_UNTIL :
			cause->limit == 0 ? FAIRQ_SHUT_PAUSED : FAIRQ_SHUT_FULL;

		/* its parked groups return only if they may have a task to serve */
		if (shut == FAIRQ_SHUT_FULL)
			fairq_lane_order_open(lane, tenant);
		else if (fairq_lane_order_is_shut(lane, tenant, FAIRQ_SHUT_UNTIL))
			fairq_lane_aside_remove(lane, tenant);
		if (cause->pace != NULL)
			first = return_at(lane, tenant, until);
		fairq_lane_order_shut(lane, tenant, shut);
	}
	LWLockRelease(&lane->lock);
	return first;
}

/*
 * Take the group or tenant back into service in these lanes if it is aside.
 * It has a slot again, or may start a task.
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
		if (is_begun(lane) && (is_aside(lane, group_no) ||
							   has(lane, FAIRQ_SHUT, group_no)))
			take_back(lane, group_no);
		LWLockRelease(&lane->lock);
	}
}

/* Make the next call that takes turns take back all groups that are aside. */
void
fairq_take_all_back(FairqHints *hints)
{
	pg_atomic_fetch_add_u64(&hints->unparks, 1);
}

/* Take back all groups, if that was requested since the last time. */
void
fairq_lane_unpark_if_asked(FairqLane *lane)
{
	uint64		unparks = pg_atomic_read_u64(&fairq_hints_of(lane)->unparks);

	if (lane->present.unparks == unparks)
		return;
	lane->present.unparks = unparks;
	fairq_seats_unpark(lane);
	fairq_lane_aside_clear(lane);
}

/*
 * Take back up to "most" groups and tenants whose time has come.  Returns
 * their number; there may be more.
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
		take_back(lane, first_back(lane));
		n++;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * Returns the time at which the first throttled group returns; PG_INT64_MAX:
 * there is none.
 */
int64
fairq_lane_next_back(FairqLane *lane)
{
	return (int64) pg_atomic_read_u64(&lane->seats.back.first);
}

/*
 * Find the first parked group, or tenant without a slot, at or after a seat.
 * Returns false if there is none.  Groups that return with their tenants do
 * not count.
 */
bool
fairq_lane_next_parked(FairqLane *lane, bool tenants, int32 *group_no)
{
	int32		next;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	fairq_lane_unpark_if_asked(lane);
	next = fairq_seats_next(lane, tenants ? FAIRQ_SHUT : FAIRQ_PARKED,
							*group_no);
	while (next != FAIRQ_NO_SEAT &&
		   (tenants ? fairq_lane_order_is_shut(lane, next, FAIRQ_SHUT_UNTIL) :
			fairq_lane_order_is_closed(lane, next)))
		next = fairq_seats_next(lane, tenants ? FAIRQ_SHUT : FAIRQ_PARKED,
								next + INT64CONST(1));
	LWLockRelease(&lane->lock);
	*group_no = next;
	return next != FAIRQ_NO_SEAT;
}
