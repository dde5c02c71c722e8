/*
 * lane_leases.c
 *		Leases in a lane: which groups may have running tasks, and when their
 *		leases end.
 *
 * A pop that leases tasks notes the leases when it takes the tasks.  It notes
 * them in the set "leased", in the group's entry, and in the deadline of its
 * 64 seats.  When a deadline has passed, its groups are lapsed, and no longer
 * leased.  The next pop that visits a lapsed group searches its running tasks,
 * and notes the leases that it finds again.
 *
 * That search can miss a task that was taken before the search but is claimed
 * after it.  So a transaction that commits a lease checks, without a lock,
 * that the group is still leased and that the deadline is not too late.  It
 * also checks that no such search has begun in the lane since the task was
 * taken ("searches").  Otherwise it notes the lease again.  A transaction that
 * rolls back the end of a lease also notes the lease again.
 *
 * Locking: as in lane.c.
 */
#include "postgres.h"

#include "lane.h"
#include "lane_internal.h"

/* Make leases empty. */
void
fairq_leases_init(FairqLeases *leases)
{
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		leases->low[r] = FAIRQ_ADDR_MAX;
		leases->high[r] = FAIRQ_ADDR_NONE;
	}
	leases->until = DT_NOEND;
	leases->searches = PG_UINT64_MAX;
}

/* Add the lease of a task at an address. */
void
fairq_leases_add(FairqLeases *leases, int64 addr, TimestampTz until)
{
	FairqRegion region = fairq_region(addr);

	leases->low[region] = Min(leases->low[region], addr);
	leases->high[region] = Max(leases->high[region], addr);
	leases->until = Min(leases->until, until);
}

/*
 * Record that tasks of the group are leased, or will be soon.  The entry may
 * be NULL.
 */
void
fairq_lane_note_leases(FairqLane *lane, int32 group_no, FairqGroup *group,
					   const FairqLeases *leases)
{
	if (leases->until == DT_NOEND)
		return;
	fairq_seats_add(lane, FAIRQ_LEASED, group_no);
	fairq_seats_lower_deadline(lane, group_no, leases->until);
	if (leases->until < (int64) pg_atomic_read_u64(&lane->times.deadline))
		fairq_times_deadline(&lane->times, leases->until);
	if (group == NULL)
		return;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		group->run.low[r] = Min(group->run.low[r], leases->low[r]);
		group->run.since[r] = Min(group->run.since[r], leases->low[r]);
	}
	group->run.high = Max(group->run.high,
						  leases->high[FAIRQ_REGION_QUEUED]);
}

/* Record that queued tasks of the group are leased, or will be soon. */
void
fairq_lane_note_leased(FairqLane *lane, int32 group_no, FairqGroup *group,
					   const FairqItem *items, int n, TimestampTz until)
{
	FairqLeases leases;

	if (n == 0)
		return;
	fairq_leases_init(&leases);
	fairq_leases_add(&leases, items[0].addr, until);
	fairq_leases_add(&leases, items[n - 1].addr, until);
	/* if the entry is evicted, a new one searches up to the reach */
	fairq_lane_reaches(lane, items[n - 1].addr);
	fairq_lane_note_leases(lane, group_no, group, &leases);
}

/*
 * Put a group whose leases may have ended into the set "lapsed" and into the
 * ring.  It is no longer parked, since a lapsed task already has its slot.
 */
void
fairq_lane_has_lapsed(FairqLane *lane, int32 group_no)
{
	fairq_seats_add(lane, FAIRQ_LAPSED, group_no);
	fairq_seats_remove(lane, FAIRQ_PARKED, group_no);
	let_in(lane, group_no);
	if (lane->order.ledger.ranks_lapsed)
		fairq_seats_add(lane, FAIRQ_TODO, group_no);
}

/*
 * Find the first group at or after that seat that may have running or lapsed
 * tasks.  A group is missed while a call searches it at its turn.
 */
bool
fairq_lane_next_leased(FairqLane *lane, int32 *group_no)
{
	int32		leased;
	int32		lapsed;

	LWLockAcquire(&lane->lock, LW_SHARED);
	leased = fairq_seats_next(lane, FAIRQ_LEASED, *group_no);
	lapsed = fairq_seats_next(lane, FAIRQ_LAPSED, *group_no);
	LWLockRelease(&lane->lock);
	/* as an unsigned number, FAIRQ_NO_SEAT comes last */
	*group_no = (int32) Min((uint32) leased, (uint32) lapsed);
	return *group_no != FAIRQ_NO_SEAT;
}

/* Lapse the groups whose leases may have ended.  Returns their number. */
int64
fairq_lane_lapse(FairqLane *lane, TimestampTz now)
{
	int64		ngroups = 0;

	if ((int64) pg_atomic_read_u64(&lane->times.deadline) > now)
		return 0;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane) &&
		(int64) pg_atomic_read_u64(&lane->times.deadline) <= now)
	{
		lane->clock = Max(lane->clock, now);
		fairq_times_deadline(&lane->times,
							 fairq_seats_lapse(lane, now, &ngroups));
	}
	LWLockRelease(&lane->lock);
	return ngroups;
}

/*
 * Add leases of the group's tasks.  Usually they were noted when the tasks
 * were taken, and still are.  They count even before a recovery of the lane
 * begins, because the load does not read these tasks again.
 */
void
fairq_lane_add_leases(FairqLane *lane, int32 group_no,
					  const FairqLeases *leases)
{
	FairqGroupSet *set;
	FairqGroup *group;

	/* read these hints only after our leases have become visible */
	pg_memory_barrier();
	if (leases->searches == pg_atomic_read_u64(&lane->searches) &&
		has(lane, FAIRQ_LEASED, group_no) &&
		fairq_seats_deadline(lane, group_no) <= leases->until)
		return;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	group = is_begun(lane) ? lock_group(lane, group_no, false, &set) : NULL;
	fairq_lane_note_leases(lane, group_no, group, leases);
	unlock_group(lane, group_no, group, set);
	LWLockRelease(&lane->lock);
}
