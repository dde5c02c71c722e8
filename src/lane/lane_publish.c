/*
 * lane_publish.c
 *		Publishing tasks of a lane that are ready, timed or due.
 *
 * Only a transaction's own pops see tasks that it has enqueued and not
 * committed.  So the tasks are published before these pops search (pending.c).
 * Calls of other backends skip the rows.  They may take the group out of the
 * ring, or take tasks off the hand, and so undo the publication.  So the lane
 * counts narrowings: how often another backend than the last one took a turn
 * or recorded that no task is ready.  As long as that number is the same, the
 * publication is valid.
 *
 * Locking: as in lane.c.
 */
#include "postgres.h"

#include "entry.h"
#include "lane.h"
#include "lane_internal.h"

/*
 * Begin to search for tasks that have become due.  Returns the lane's recovery
 * number; 0 if another backend is searching, or no recovery of the lane has
 * begun.
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

/* End the search.  "search" is its progress; NULL: it was interrupted. */
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

/* Put a group into the set "due": its task at that address is due. */
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
		/* a new entry searches for all due tasks */
		return;
	}
	if (group->due.n > 0 && group->due.region == region &&
		addr < group->due.from[region])
	{
		/* this task may come before those that the entry has */
		addr = Min(addr, group->due.items[0].addr);
		group->due.n = 0;
	}
	group->due.from[region] = Min(group->due.from[region], addr);
	group->due.since[region] = Min(group->due.since[region], addr);
	unlock_group(lane, group_no, group, set);
}

/*
 * Add a timed task of the group, at an address, which has become due.  Returns
 * false if another recovery of the lane has begun.  The chunk of the group's
 * bits exists.
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

/* For check_queue(): whether a pop would find the ready task at addr. */
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
 * For check_queue(): whether a pop will search for a running or timed task,
 * now or when it becomes due.
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
 * Commit and abort callbacks call the functions below, except
 * fairq_lane_narrowings(), after their changes are visible.  The chunks of the
 * groups' bits exist.
 */

/*
 * Add ready tasks of the group.  "since" is the time at which the first of
 * them became ready.  There may be others at or above the address "more".
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
 * Add timed tasks of the group that can be taken again; addr is the address of
 * the first one.  They may already be due.
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
			/* a search finds due tasks; others may become due later */
			fairq_times_scheduled(&lane->times, end);
		}
		else
			fairq_times_scheduled(&lane->times, addr);
	}
	LWLockRelease(&lane->lock);
}

/* Add a task that is scheduled at an address. */
void
fairq_lane_add_scheduled(FairqLane *lane, int64 addr)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	fairq_times_scheduled(&lane->times, addr);
	LWLockRelease(&lane->lock);
}

/*
 * Returns the lane's narrowings.  The caller then publishes tasks that only
 * its own pops see.  The publication is valid as long as the number does not
 * change.
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
