/*
 * lane_view.c
 *		What is shown of a lane: copies, of the lane and of its groups.
 *
 * That is what fairq.lanes and lane_groups() show.  Copies only: nothing is
 * changed, and no entry is made.
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

/* For the view fairq.lanes: copy what is known of the lane. */
void
fairq_lane_view(FairqLane *lane, FairqLaneView *view)
{
	memset(view, 0, sizeof(*view));
	LWLockAcquire(&lane->lock, LW_SHARED);
	view->begun = is_begun(lane);
	view->first = lane->recovery.first;
	view->known = lane->recovery.known;
	view->block = lane->present.block;
	/* all count as passed in a lane that is not fair by tasks */
	view->seat = is_by_turns(lane) ? lane->present.seat : FAIRQ_NO_SEAT;
	view->turn = lane->turn.addr;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		view->timers[r] = (int64) pg_atomic_read_u64(&lane->times.timers[r]);
	view->deadline = (int64) pg_atomic_read_u64(&lane->times.deadline);
	for (int set = 0; set < FAIRQ_SEAT_SETS; set++)
		view->n[set] = is_shown(view->begun, set) ? lane->seats.n[set] : 0;
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
	group = fairq_entry_lock(lane, group_no, false, &is_new, &set);
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
