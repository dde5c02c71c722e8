/*
 * lane_view.c
 *		What is shown of a lane: copies, of the lane and of its groups.
 *
 * fairq.lanes and lane_groups() show what is known, peek() what a pop would
 * make of it.  Copies only: nothing is changed, and no entry is made.
 *
 * Locking: the lane's lock, shared, for one lane or for so many groups as the
 * caller asks for at a time; under it the mutex of one group set.
 */
#include "postgres.h"

#include "lane_internal.h"
#include "lane_view.h"

/* Is the set to be shown?  Of a lane that is void (!begun) only leases count. */
static bool
is_shown(bool begun, FairqSeatSet set)
{
	return set == FAIRQ_LAPSED || set == FAIRQ_LEASED ||
		(set != FAIRQ_COUNTED && begun);
}

/* Copy where service is in the lane, whose lock is held. */
static void
copy_lane(FairqLane *lane, FairqLaneCopy *copy)
{
	memset(copy, 0, sizeof(*copy));
	copy->begun = is_begun(lane);
	copy->first = lane->recovery.first;
	copy->known = lane->recovery.known;
	copy->block = lane->present.block;
	copy->seat = lane->present.seat;
	copy->turn = lane->turn.addr;
	copy->turn_seat = lane->turn.seat;
	copy->turn_left = lane->turn.left;
	copy->full_seat = lane->full.seat;
	copy->full_left = lane->full.left;
	copy->unparks = lane->present.unparks !=
		pg_atomic_read_u64(&fairq_hints_of(lane)->parked.unparks);
	copy->clock = lane->clock;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		copy->timers[r] = (int64) pg_atomic_read_u64(&lane->times.timers[r]);
	copy->deadline = (int64) pg_atomic_read_u64(&lane->times.deadline);
	copy->ledger = lane->order.ledger;
	copy->ledger.recovering = lane->recovery.known != FAIRQ_ALL_SEATS;
}

/* Copy where service is in the lane. */
void
fairq_lane_copy(FairqLane *lane, FairqLaneCopy *copy)
{
	LWLockAcquire(&lane->lock, LW_SHARED);
	copy_lane(lane, copy);
	LWLockRelease(&lane->lock);
}

/* For the view fairq.lanes: copy what is known of the lane. */
void
fairq_lane_view(FairqLane *lane, FairqLaneView *view)
{
	LWLockAcquire(&lane->lock, LW_SHARED);
	copy_lane(lane, &view->lane);
	/* all count as passed */
	if (!is_by_turns(lane))
		view->lane.seat = FAIRQ_NO_SEAT;
	for (int set = 0; set < FAIRQ_SEAT_SETS; set++)
		view->n[set] = is_shown(view->lane.begun, set) ?
			lane->seats.n[set] : 0;
	LWLockRelease(&lane->lock);
}

/* The first task that a group's entry has; what was begun comes first. */
static int64
first_task(const FairqGroup *group)
{
	if (group->due.n > 0)
		return group->due.items[0].addr;
	return group->in_hand.n > 0 ?
		group->hand[group->in_hand.first].addr : FAIRQ_ADDR_NONE;
}

/* Copy what is known of a group, whose bits are mapped. */
static void
view_group(FairqLane *lane, bool begun, int32 group_no, FairqGroupView *view)
{
	static const FairqSeatSet waits[] = {
		FAIRQ_RING, FAIRQ_PARKED, FAIRQ_THROTTLED
	};
	FairqGroupSet *set;
	FairqGroup *group;
	bool		is_new;

	view->group_no = group_no;
	view->state = FAIRQ_LEASED;
	view->next_turn = view->next_task = FAIRQ_ADDR_NONE;
	if (!begun)
		return;
	for (int i = 0; i < lengthof(waits); i++)
		if (has(lane, waits[i], group_no))
			view->state = waits[i];
	view->next_turn = fairq_address(group_no, next_block(lane, group_no),
									lane->recovery.block_length);
	group = fairq_entry_lock(lane->recovery.lane_no, group_no, false, &is_new,
							 &set);
	if (group == NULL)
		return;
	view->next_task = first_task(group);
	fairq_entry_unlock(set);
}

/*
 * For lane_groups(): copy what is known of the first groups at or behind that
 * seat that are in any set.  Returns how many there were; -1 if not all of the
 * lane's chunks are mapped.
 */
int
fairq_lane_view_groups(FairqLane *lane, uint32 mapped, int64 from, int most,
					   FairqGroupView *views)
{
	int64		next[FAIRQ_SEAT_SETS];
	uint32		sets = 0;
	int			n = 0;
	bool		begun;

	LWLockAcquire(&lane->lock, LW_SHARED);
	begun = is_begun(lane);
	for (int set = 0; set < FAIRQ_SEAT_SETS; set++)
	{
		next[set] = -1;
		sets |= (uint32) is_shown(begun, set) << set;
	}
	if (pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) != mapped)
		n = -1;
	while (n >= 0 && n < most)
	{
		int64		first = fairq_seats_next_of(lane, sets, next, from);

		if (first == FAIRQ_ALL_SEATS)
			break;
		view_group(lane, begun, (int32) first, &views[n++]);
		from = first + 1;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/* Copy a group's account; one that is void, or not there, is as a new one. */
static void
copy_account(FairqLane *lane, int32 group_no, FairqAccountCopy *copy)
{
	const FairqAccount *account =
		fairq_order_record_if_any(&lane->order.set, group_no);

	copy->group_no = group_no;
	copy->lapsed = has(lane, FAIRQ_LAPSED, group_no);
	if (account != NULL && is_begun(lane) &&
		account->lane_no == lane->recovery.lane_no)
		copy->account = *account;
	else
		fairq_account_init(&copy->account, lane->recovery.lane_no);
}

/* Has the backend mapped all accounts of the lane? */
static bool
accounts_are_mapped(FairqLane *lane, uint32 mapped)
{
	return pg_atomic_read_u32(&lane->order.set.records.made) == mapped;
}

/*
 * Copy the accounts of the first groups behind a rank that are in the ordered set,
 * and in the ring.  Returns how many there were; -1 if not all accounts are
 * mapped.
 */
int
fairq_lane_copy_order(FairqLane *lane, uint32 mapped, const FairqRank *behind,
					  int most, FairqAccountCopy *copies)
{
	FairqRank	rank = *behind;
	int			n = 0;

	LWLockAcquire(&lane->lock, LW_SHARED);
	if (!accounts_are_mapped(lane, mapped))
		n = -1;
	else if (!is_begun(lane) || is_by_turns(lane))
		most = 0;
	while (n >= 0 && n < most)
	{
		int32		next = fairq_order_after(&lane->order.set, &rank);

		if (next == FAIRQ_NO_NODE)
			break;
		copy_account(lane, next, &copies[n]);
		rank = copies[n].account.node.rank;
		n += has(lane, FAIRQ_RING, next);
	}
	LWLockRelease(&lane->lock);
	return n;
}

/* Copy the account of a group.  False if not all accounts are mapped. */
bool
fairq_lane_copy_account(FairqLane *lane, uint32 mapped, int32 group_no,
						FairqAccountCopy *copy)
{
	bool		is_mapped;

	LWLockAcquire(&lane->lock, LW_SHARED);
	is_mapped = accounts_are_mapped(lane, mapped);
	if (is_mapped)
		copy_account(lane, group_no, copy);
	LWLockRelease(&lane->lock);
	return is_mapped;
}

/*
 * Copy the first groups at or behind that seat that are in the set; of the
 * leased ones those alone of which a lease may have ended by then.  Returns
 * how many there were; -1 if not all of the lane's chunks are mapped.
 */
int
fairq_lane_copy_seats(FairqLane *lane, uint32 mapped, FairqSeatSet set,
					  TimestampTz lapsed_by, int64 from, int most,
					  FairqSeatCopy *copies)
{
	int			n = 0;
	int64		seat;

	LWLockAcquire(&lane->lock, LW_SHARED);
	if (pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) != mapped)
		n = -1;
	else if (!is_shown(is_begun(lane), set))
		most = 0;
	while (n >= 0 && n < most &&
		   (seat = fairq_seats_next(lane, set, from)) != FAIRQ_NO_SEAT)
	{
		if (set == FAIRQ_LEASED &&
			fairq_seats_deadline(lane, (int32) seat) > lapsed_by)
		{
			/* nor is it any of the other groups that have this deadline */
			from = (seat / 64 + 1) * 64;
			continue;
		}
		copies[n].group_no = (int32) seat;
		copies[n++].served = is_begun(lane) &&
			has(lane, FAIRQ_SERVED, (int32) seat);
		from = seat + 1;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * Copy what is known of a group.  False if not all of the lane's chunks are
 * mapped.
 */
bool
fairq_lane_copy_group(FairqLane *lane, uint32 mapped, int32 group_no,
					  TimestampTz now, FairqGroupCopy *copy)
{
	FairqGroupSet *set;
	FairqGroup *group = NULL;
	bool		is_new;
	bool		begun;

	memset(copy, 0, sizeof(*copy));
	copy->group_no = group_no;
	LWLockAcquire(&lane->lock, LW_SHARED);
	if (pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) != mapped)
	{
		LWLockRelease(&lane->lock);
		return false;
	}
	begun = is_begun(lane);
	for (int s = 0; s < FAIRQ_SEAT_SETS; s++)
		if (is_shown(begun, s) && has(lane, s, group_no))
			copy->sets |= 1 << s;
	copy->lapsing = has(lane, FAIRQ_LEASED, group_no) &&
		(int64) pg_atomic_read_u64(&lane->times.deadline) <= now &&
		fairq_seats_deadline(lane, group_no) <= now;
	copy->unsure = begun && is_unsure(lane, group_no);
	if (begun)
		group = fairq_entry_lock(lane->recovery.lane_no, group_no, false,
								 &is_new, &set);
	if (group != NULL)
	{
		copy->group = *group;
		fairq_entry_unlock(set);
	}
	else
		fairq_lane_init_entry(lane, group_no, &copy->group);
	/* of a lane that is void no more is known than before its recovery */
	if (!begun)
		copy->group.upto = 0;
	LWLockRelease(&lane->lock);
	return true;
}
