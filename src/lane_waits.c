/*
 * lane_waits.c
 *		Which groups of a lane wait or run, and since when.
 *
 * Copies only: nothing is changed, and no entry is made.
 *
 * Locking: the lane's lock, shared, for so many groups as the caller asks for at
 * a time; under it the mutex of one group set.
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "lane_internal.h"
#include "lane_waits.h"

/* Sets of groups: in the ring; that wait; that wait or run. */
#define RING (1 << FAIRQ_RING)
#define WAITING (RING | 1 << FAIRQ_PARKED | 1 << FAIRQ_THROTTLED)
#define WAITING_OR_RUNNING (WAITING | 1 << FAIRQ_LEASED | 1 << FAIRQ_LAPSED)

/* Copy what the entry of a group says, or what a new one would say. */
static void
copy_entry(const FairqGroup *group, FairqWait *wait)
{
	wait->from = fairq_hand_low(group);
	wait->tail = group->tail;
	wait->run_high = group->run.high;
	memcpy(wait->run_low, group->run.low, sizeof(wait->run_low));
	memcpy(wait->due_from, group->due.from, sizeof(wait->due_from));
	if (group->due.n > 0 && group->due.region != FAIRQ_REGION_QUEUED)
		wait->due_from[group->due.region] =
			Min(wait->due_from[group->due.region], group->due.items[0].addr);
}

/* Copy what is known of a group of a lane of which a recovery has begun. */
static void
copy_wait(FairqLane *lane, int32 group_no, FairqWait *wait)
{
	FairqGroupSet *set;
	FairqGroup *group;
	bool		is_new;

	wait->group_no = group_no;
	wait->waits = !is_out(lane, group_no) || !is_known(lane, group_no);
	wait->leased = has(lane, FAIRQ_LEASED, group_no);
	wait->deadline = has(lane, FAIRQ_LAPSED, group_no) ? DT_NOBEGIN :
		wait->leased ? fairq_seats_deadline(lane, group_no) : DT_NOEND;
	wait->next_turn = next_turn(lane, group_no);
	group = fairq_entry_lock(lane, group_no, false, &is_new, &set);
	wait->since = DT_NOBEGIN;
	if (group != NULL)
	{
		wait->since = waits_since(lane, group_no, group);
		copy_entry(group, wait);
		fairq_entry_unlock(set);
	}
	else
	{
		FairqGroup	made = {.tail = FAIRQ_TAIL_UNKNOWN};

		fairq_lane_init_entry(lane, group_no, &made);
		copy_entry(&made, wait);
	}
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		wait->due_from[r] = Min(wait->due_from[r],
								fairq_times_first(&lane->times, r));
}

/*
 * Copy what is known of the first groups at or behind that seat that are in one
 * of these sets.  Returns how many there were; -1 if not all of the
 * lane's chunks are mapped.  The lane's lock is held.
 */
static int
copy_waits(FairqLane *lane, uint32 mapped, uint32 sets, int64 from, int most,
		   FairqWait *waits)
{
	int64		next[FAIRQ_SEAT_SETS];
	int			n = 0;

	if (pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) != mapped)
		return -1;
	for (int set = 0; set < FAIRQ_SEAT_SETS; set++)
		next[set] = -1;
	while (n < most && is_begun(lane))
	{
		int64		first = fairq_seats_next_of(lane, sets, next, from);

		if (first == FAIRQ_ALL_SEATS)
			break;
		copy_wait(lane, (int32) first, &waits[n++]);
		from = first + 1;
	}
	return n;
}

/*
 * Copy what is known of the first groups at or behind that seat that wait or
 * run.  Returns how many there were; -1 if not all of the lane's chunks are
 * mapped.  Of a lane that is void nothing is known.
 */
int
fairq_lane_waits(FairqLane *lane, uint32 mapped, int64 from, int most,
				 FairqWait *waits)
{
	int			n;

	LWLockAcquire(&lane->lock, LW_SHARED);
	n = copy_waits(lane, mapped, WAITING_OR_RUNNING, from, most, waits);
	LWLockRelease(&lane->lock);
	return n;
}

/* Are parked groups taken back by the next call that takes turns? */
static bool
is_to_unpark(FairqLane *lane)
{
	return is_begun(lane) &&
		lane->seats.n[FAIRQ_PARKED] + lane->seats.n[FAIRQ_THROTTLED] > 0 &&
		lane->present.unparks !=
		pg_atomic_read_u64(&fairq_hints_of(lane)->parked.unparks);
}

/* The same of groups that are in the ring, or will be by the next call. */
int
fairq_lane_ring_waits(FairqLane *lane, uint32 mapped, int64 from, int most,
					  FairqWait *waits)
{
	int			n;

	LWLockAcquire(&lane->lock, LW_SHARED);
	n = copy_waits(lane, mapped, is_to_unpark(lane) ? WAITING : RING, from,
				   most, waits);
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * Copy what is known of one group.  False if nothing is: the lane is void, or not
 * all of its chunks are mapped.
 */
bool
fairq_lane_wait_of(FairqLane *lane, uint32 mapped, int32 group_no,
				   FairqWait *wait)
{
	bool		known;

	LWLockAcquire(&lane->lock, LW_SHARED);
	known = is_begun(lane) &&
		pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) == mapped;
	if (known)
		copy_wait(lane, group_no, wait);
	LWLockRelease(&lane->lock);
	return known;
}

/* Is the group throttled, as far as is known?  So many chunks are mapped. */
bool
fairq_lane_is_throttled(FairqLane *lane, uint32 mapped, int32 group_no)
{
	bool		throttled;

	LWLockAcquire(&lane->lock, LW_SHARED);
	throttled = is_begun(lane) && !is_to_unpark(lane) &&
		pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) == mapped &&
		has(lane, FAIRQ_THROTTLED, group_no);
	LWLockRelease(&lane->lock);
	return throttled;
}

/* How many groups are throttled, and will be after the next call. */
int32
fairq_lane_throttled(FairqLane *lane)
{
	int32		n = 0;

	LWLockAcquire(&lane->lock, LW_SHARED);
	if (is_begun(lane) && !is_to_unpark(lane))
		n = lane->seats.n[FAIRQ_THROTTLED];
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * Since when the groups of the ring wait by their entries, if they are few:
 * DT_NOBEGIN: they are not, or it is not known of all.
 */
static TimestampTz
oldest_entry(FairqLane *lane)
{
	TimestampTz oldest = DT_NOEND;

	/* all are among those whose bits are part of the lane */
	if (pg_popcount64(lane->seats.first[FAIRQ_RING]) !=
		lane->seats.n[FAIRQ_RING])
		return DT_NOBEGIN;
	for (int32 group_no = 0; group_no < FAIRQ_FIRST_SEATS; group_no++)
	{
		FairqGroupSet *set;
		FairqGroup *group;
		bool		is_new;

		if (!has(lane, FAIRQ_RING, group_no))
			continue;
		group = fairq_entry_lock(lane, group_no, false, &is_new, &set);
		if (group == NULL)
			return DT_NOBEGIN;
		oldest = Min(oldest, waits_since(lane, group_no, group));
		fairq_entry_unlock(set);
	}
	return oldest;
}

/*
 * Returns a time before which no group waits that is in the ring, or will be by the
 * next call, as far as is known; DT_NOEND: there is none.  *nring is how many groups
 * the ring has.
 */
TimestampTz
fairq_lane_oldest(FairqLane *lane, int32 *nring)
{
	FairqHints *hints = fairq_hints_of(lane);
	TimestampTz oldest = DT_NOEND;

	LWLockAcquire(&lane->lock, LW_SHARED);
	*nring = is_begun(lane) ? lane->seats.n[FAIRQ_RING] : 0;
	if (*nring > 0)
	{
		oldest = fairq_ring_since(&lane->present.ages);
		if (oldest != DT_NOEND)
			oldest = Max(oldest, oldest_entry(lane));
	}
	/* the next call takes these back */
	if (is_to_unpark(lane))
		oldest = Min(oldest, fairq_parked_since(&hints->parked.ages,
												epoch_of(lane)));
	LWLockRelease(&lane->lock);
	return oldest;
}

/* Have all timed tasks of the lane been searched for at some time? */
bool
fairq_lane_is_searched(FairqLane *lane)
{
	bool		searched = true;

	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		searched &= fairq_times_first(&lane->times, r) > fairq_region_from(r);
	return searched;
}

/*
 * May leases have ended that no call has come by since?  *last is raised to the time
 * from which on none of the leases goes on that were noted in the lane.
 */
bool
fairq_lane_leases_ended(FairqLane *lane, TimestampTz now, TimestampTz *last)
{
	bool		ended;

	LWLockAcquire(&lane->lock, LW_SHARED);
	ended = lane->seats.n[FAIRQ_LEASED] > 0 &&
		(int64) pg_atomic_read_u64(&lane->times.deadline) <= now;
	*last = Max(*last, (int64) pg_atomic_read_u64(&lane->times.last_end));
	LWLockRelease(&lane->lock);
	return ended;
}

/*
 * Returns the time at which the first task fell due by now that no call has come by
 * since; DT_NOEND: there is none, or it is not known, as no call has searched for
 * such tasks yet.  It is too early if that task was cancelled.
 */
TimestampTz
fairq_lane_fell_due(FairqLane *lane, TimestampTz now)
{
	TimestampTz since = DT_NOEND;

	LWLockAcquire(&lane->lock, LW_SHARED);
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS && is_begun(lane); r++)
	{
		int64		first = fairq_times_first(&lane->times, r);

		if (first > fairq_region_from(r) && first < fairq_due_end(r, now))
			since = Min(since, fairq_due_time(first));
	}
	LWLockRelease(&lane->lock);
	return since;
}
