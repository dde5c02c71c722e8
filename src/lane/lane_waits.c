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

/* Sets of groups: those that wait; those that run. */
#define WAITING (1 << FAIRQ_RING | 1 << FAIRQ_PARKED | 1 << FAIRQ_THROTTLED)
#define RUNNING (1 << FAIRQ_LEASED | 1 << FAIRQ_LAPSED)

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
	wait->due = has(lane, FAIRQ_DUE, group_no);
	wait->set = has(lane, FAIRQ_RING, group_no) ? FAIRQ_RING :
		has(lane, FAIRQ_PARKED, group_no) ? FAIRQ_PARKED :
		has(lane, FAIRQ_THROTTLED, group_no) ? FAIRQ_THROTTLED : FAIRQ_LEASED;
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
 * Copy what is known of the first groups at or behind that seat that wait; or run,
 * if a lease in the lane may have ended by that time.  Returns how many there were.
 * Of a lane that is void nothing is known.
 */
int
fairq_lane_waits(FairqLane *lane, TimestampTz ended_by, int64 from, int most,
				 FairqWait *waits)
{
	int64		next[FAIRQ_SEAT_SETS];
	uint32		sets = WAITING;
	int			n = 0;

	if ((TimestampTz) pg_atomic_read_u64(&lane->times.deadline) <= ended_by)
		sets |= RUNNING;
	for (int set = 0; set < FAIRQ_SEAT_SETS; set++)
		next[set] = -1;
	LWLockAcquire(&lane->lock, LW_SHARED);
	while (n < most && is_begun(lane))
	{
		int64		first = fairq_seats_next_of(lane, sets, next, from);

		if (first == FAIRQ_ALL_SEATS)
			break;
		copy_wait(lane, (int32) first, &waits[n++]);
		from = first + 1;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * How many groups of the lane wait.  *next is the seat behind that which service has
 * passed last.
 */
int32
fairq_lane_nwaiting(FairqLane *lane, int64 *next)
{
	int32		n = 0;

	LWLockAcquire(&lane->lock, LW_SHARED);
	if (is_begun(lane))
		n = lane->seats.n[FAIRQ_RING] + lane->seats.n[FAIRQ_PARKED] +
			lane->seats.n[FAIRQ_THROTTLED];
	*next = lane->present.seat + INT64CONST(1);
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
		pg_atomic_read_u64(&fairq_hints_of(lane)->unparks);
}

/* Copy what is known of one group.  False if the lane is void. */
bool
fairq_lane_wait_of(FairqLane *lane, int32 group_no, FairqWait *wait)
{
	bool		known;

	LWLockAcquire(&lane->lock, LW_SHARED);
	known = is_begun(lane);
	if (known)
		copy_wait(lane, group_no, wait);
	LWLockRelease(&lane->lock);
	return known;
}

/* Is the group throttled, as far as is known? */
bool
fairq_lane_is_throttled(FairqLane *lane, int32 group_no)
{
	bool		throttled;

	LWLockAcquire(&lane->lock, LW_SHARED);
	throttled = is_begun(lane) && !is_to_unpark(lane) &&
		has(lane, FAIRQ_THROTTLED, group_no);
	LWLockRelease(&lane->lock);
	return throttled;
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
