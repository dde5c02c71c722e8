/*
 * lane_publish.c
 *		What is published of a lane: tasks that are ready, timed or due.
 *
 * What a transaction has enqueued and not committed is seen by its own pops
 * alone.  It is published before they look (pending.c).  A call of another
 * backend passes over the rows; so it may take the group out of the ring, or
 * take tasks off the hand, and make void what was published.  So the lane
 * counts how often another backend than before took a turn, or noted where
 * nothing is ready ("narrowings").  As long as that number is the same, what
 * was published stands.
 *
 * Locking: as in lane.c.
 */
#include "postgres.h"

#include "entry.h"
#include "lane.h"
#include "lane_internal.h"

/*
 * Begin to search for what has fallen due.  Returns the lane's recovery
 * number; 0 if another backend is at it, or no recovery of the lane has begun.
 */
uint32
fairq_lane_search_begin(FairqLane *lane, TimestampTz now,
						FairqTimerSearch *search)
{
	uint32		lane_no = 0;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane))
	{
		lane->clock = Max(lane->clock, now);
		if (fairq_times_begin(&lane->times, search))
			lane_no = lane->recovery.lane_no;
	}
	LWLockRelease(&lane->lock);
	return lane_no;
}

/* End the search, which has come so far; or, with NULL, was broken off. */
void
fairq_lane_search_end(FairqLane *lane, uint32 lane_no,
					  const FairqTimerSearch *search)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
	{
		note_narrower(lane);
		if (search != NULL)
			fairq_times_end(&lane->times, search);
		else
			lane->times.searching = false;
	}
	LWLockRelease(&lane->lock);
}

/* Put a group, of which a task has fallen due, into the set "due". */
static void
has_fallen_due(FairqLane *lane, int32 group_no, int64 addr)
{
	FairqRegion region = fairq_region(addr);
	FairqGroupSet *set;
	FairqGroup *group = lock_group(lane, group_no, false, &set);

	if (group != NULL)
		note_since(lane, group_no, group, fairq_due_time(addr));
	fairq_seats_add(lane, FAIRQ_DUE, group_no);
	let_in(lane, group_no);
	if (group == NULL)
	{
		/* a new entry looks for all that has fallen due */
		return;
	}
	if (group->due.n > 0 && group->due.region == region &&
		addr < group->due.from[region])
	{
		/* what the entry has may come behind it */
		addr = Min(addr, group->due.items[0].addr);
		group->due.n = 0;
	}
	group->due.from[region] = Min(group->due.from[region], addr);
	group->due.since[region] = Min(group->due.since[region], addr);
	unlock_group(lane, group_no, group, set);
}

/*
 * Add a timed task of the group that stands there, and has fallen due.  False
 * if the lane was recovered anew since.  The group's bits are there.
 */
bool
fairq_lane_add_due(FairqLane *lane, uint32 lane_no, int32 group_no,
				   int64 addr)
{
	bool		same;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	same = lane->recovery.lane_no == lane_no;
	if (same)
		has_fallen_due(lane, group_no, addr);
	LWLockRelease(&lane->lock);
	return same;
}

/* For check_queue(): would a pop find the task, which is ready there? */
bool
fairq_lane_finds(FairqLane *lane, int32 group_no, int64 addr)
{
	FairqGroupSet *set;
	FairqGroup *group;
	bool		finds;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (!is_begun(lane) || !is_known(lane, group_no))
		finds = true;
	else if (is_out(lane, group_no))
		finds = false;
	else if ((group = lock_group(lane, group_no, false, &set)) == NULL)
		finds = has(lane, FAIRQ_LATE, group_no) ||
			addr >= next_turn(lane, group_no);
	else
	{
		finds = addr >= group->upto;
		for (int i = 0; i < group->in_hand.n; i++)
			finds |= group->hand[group->in_hand.first + i].addr == addr;
		fairq_entry_unlock(set);
	}
	LWLockRelease(&lane->lock);
	return finds;
}

/*
 * For check_queue(): will a pop look for that task, which is running or timed,
 * now or when it falls due?
 */
bool
fairq_lane_will_look(FairqLane *lane, int32 group_no, int64 addr, bool running,
					 TimestampTz lease_until)
{
	FairqRegion region = fairq_region(addr);
	FairqGroupSet *set;
	FairqGroup *group;
	bool		will_look;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	group = lock_group(lane, group_no, false, &set);
	if (running)
		will_look = (has(lane, FAIRQ_LAPSED, group_no) ||
					 (has(lane, FAIRQ_LEASED, group_no) &&
					  fairq_seats_deadline(lane, group_no) <= lease_until)) &&
			(group == NULL ||
			 (group->run.low[region] <= addr &&
			  (region != FAIRQ_REGION_QUEUED || addr <= group->run.high)));
	else
		will_look = !fairq_times_passed(&lane->times, addr) ||
			(has(lane, FAIRQ_DUE, group_no) &&
			 (group == NULL || group->pid.searcher != 0 ||
			  group->due.from[region] <= addr ||
			  (group->due.n > 0 && group->due.region == region &&
			   group->due.items[0].addr <= addr)));
	will_look |= !is_begun(lane) ||
		(running && !fairq_tally_has_passed(&fairq_hints_of(lane)->tally));
	if (group != NULL)
		fairq_entry_unlock(set);
	LWLockRelease(&lane->lock);
	return will_look;
}

/*
 * What follows is said after it is visible, from commit and abort callbacks, of
 * groups whose bits are there.
 */

/*
 * Add tasks of the group that are ready, the first of them since then; there may be
 * others from more on.
 */
void
fairq_lane_add_ready(FairqLane *lane, int32 group_no, const FairqItem *items,
					 int n, int64 more, TimestampTz since)
{
	FairqGroupSet *set;
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane))
	{
		bool		had_nothing = is_out(lane, group_no) &&
			is_known(lane, group_no);
		int64		lowest = n > 0 ? Min(items[0].addr, more) : more;

		group = lock_group(lane, group_no, had_nothing, &set);
		if (group != NULL)
		{
			note_since(lane, group_no, group, since);
			fairq_hand_add(group, items, n, more);
		}
		else if (lowest < next_turn(lane, group_no))
			fairq_seats_add(lane, FAIRQ_LATE, group_no);
		else if (had_nothing)
			fairq_seats_remove(lane, FAIRQ_LATE, group_no);
		let_in(lane, group_no);
		unlock_group(lane, group_no, group, set);
	}
	LWLockRelease(&lane->lock);
}

/*
 * Add timed tasks of the group, of which that is the first one, that are ready
 * again; their times may have come by now.
 */
void
fairq_lane_add_timed(FairqLane *lane, int32 group_no, int64 addr)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane))
	{
		int64		end = fairq_due_end(fairq_region(addr), lane->clock);

		if (addr < end && fairq_times_passed(&lane->times, addr))
		{
			has_fallen_due(lane, group_no, addr);
			/* the group is searched for what is due; others may be to come */
			fairq_times_scheduled(&lane->times, end);
		}
		else
			fairq_times_scheduled(&lane->times, addr);
	}
	LWLockRelease(&lane->lock);
}

/* Add a task that is scheduled there. */
void
fairq_lane_add_scheduled(FairqLane *lane, int64 addr)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	fairq_times_scheduled(&lane->times, addr);
	LWLockRelease(&lane->lock);
}

/*
 * Returns the lane's narrowings, before the caller publishes what its own pops
 * see: that stands as long as the number does not change.
 */
uint32
fairq_lane_narrowings(FairqLane *lane)
{
	uint32		narrowings;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	note_narrower(lane);
	narrowings = pg_atomic_read_u32(&lane->narrowing.n);
	LWLockRelease(&lane->lock);
	return narrowings;
}
