/*
 * lane_view.c
 *		What the view fairq.lanes shows of a lane: a copy.
 *
 * Locking: the lane's lock, shared.
 */
#include "postgres.h"

#include "lane_internal.h"
#include "lane_view.h"

/* Is the set to be shown?  Of a lane that is void (!begun) only leases count. */
static bool
is_shown(bool begun, FairqSeatSet set)
{
	return set == FAIRQ_LAPSED || set == FAIRQ_LEASED || begun;
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
	/* in front of those that service has not come to in this block */
	if (view->begun)
		view->n[FAIRQ_TODO] = fairq_seats_count(lane, FAIRQ_TODO,
												lane->present.seat);
	LWLockRelease(&lane->lock);
}
