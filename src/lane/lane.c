/*
 * lane.c
 *		The data of a lane in shared memory: the sets of its groups, their
 *		tails and leases, recovery, and publication.
 *
 * A lane is one priority of a queue.  The tables are authoritative.  The hints
 * here save reading the tables, and may be lost at any time.  Service is
 * round-robin: in a block each group that has a ready task gets one turn, in
 * the order of the seats.  The lane has the present block and the seat that
 * was passed last.  It has some bits for each group, one for each of these
 * sets of groups (seats.c):
 *
 * ring		The group may have a ready task.  let_in() sets the bit.
 *			Functions that unpark many groups, or put many lapsed ones into the
 *			ring, also set it (seats.c).  take_out() clears it.  Usually a
 *			transaction sets the bit when it publishes a task at its end
 *			(transaction.c).  A pop clears the bit if it has found nothing, by
 *			the protocol of entry.c, or if it puts the group aside.
 *
 * served	The group has had its turn in the present block.
 *
 * todo		The group is in the ring, and has not been served in the present
 *			block.  The lowest seat is next.  A group that enters after its
 *			seat was passed is in front: it is served before the other groups.
 *			The seat passed last does not change.  Even then, no group has two
 *			turns in a block.
 *
 * parked	The group has no slot for another running task (counter.c).  It is
 *			not in the ring, and no pop visits it until there is a slot.  In a
 *			full queue, a group with lapsed tasks is also parked if its tenant
 *			is paused or may not start a task yet (lane_turns.c).
 *
 * throttled No task of the group may start before a certain time
 *			(lane_turns.c).  It is not in the ring either.
 *
 * shut		A tenant that has no slot, is paused or may not start a task yet
 *			(lane_turns.c).  Its groups stay in the ring (lane_order.c).
 *
 * late		A ready task of the group may be below its next turn.  The task was
 *			committed late or put back, or the group was parked and has missed
 *			turns.  The bit matters only while the group has no entry in the
 *			cache.
 *
 * due		A scheduled or retried task of the group may be due.
 *
 * leased	Tasks of the group may be running under leases.
 *
 * lapsed	A lease of the group may have expired; the group's next turn checks
 *			this (turn.c).
 *
 * Bits suffice to find each group.  The group's hand, its tail, and the
 * addresses at which to search for tasks are in an entry of a cache (entry.c).
 * An entry can be evicted at any moment.  The group then gets a new one when
 * its turn is taken.  The new entry begins to read at that turn, above the
 * dead index entries of served tasks.  If the group is late, the entry begins
 * at the start of the line.  If the group is neither in the ring nor aside,
 * the new entry records that the group has no tasks.  If the group's seat is
 * not known, the new entry is empty and begins to read at the start.  The
 * evicted entry had the outcome of the group's last turn.  Without that
 * outcome the group can lose its turn in this block.
 *
 * A lane is recovered after a restart, or after SQL has changed rows.
 * Recovery begins with all sets empty except leased, lapsed and served.  From
 * that moment on, the lane records published tasks.  After a restart a new
 * block begins, in which no group has been served yet.  If the lane is empty,
 * it is the first block.  Otherwise the position is the same as before.  Then
 * each group that has any row gets its bits (line.c), in steps.  The steps
 * follow the order of the turns, beginning after the position and wrapping
 * around.  A seat is known once a step has passed it.  A turn is taken only if
 * all seats whose turns could come before it are known.  So the order is the
 * same as if all seats had been known from the beginning.  Only when all seats
 * are known is it certain that no group is ready.
 *
 * So a restart can give a group one turn too many.  If a group was in front
 * when rows were changed, recovery finds it after all seats behind the
 * position.  So the group can lose its turn in this block.
 *
 * Leases and the reach are different: recovery keeps those that were recorded,
 * and a load finds the others (load.c).  A group that is wrongly in "leased"
 * or "lapsed" only costs a search.
 *
 * A pop that leases tasks notes the leases when it takes the tasks.  It notes
 * them in the set "leased" and in the group's entry.  It lowers the deadline
 * of the 64 seats to which the group's seat belongs.  When a deadline has
 * passed, the leased groups of its seats become lapsed, and are no longer
 * leased.  The next pop that visits a lapsed group searches its running tasks,
 * and notes again the leases that it finds.
 *
 * That search can miss a task that was taken before the search but is claimed
 * after it.  So a transaction that commits a lease checks, without a lock,
 * that the group is still leased and that the deadline is not too late.  It
 * also checks that no such search has begun in the lane since the task was
 * taken ("searches").  Otherwise it notes the lease again.  A transaction that
 * rolls back the end of a lease also notes the lease again.
 *
 * Only a transaction's own pops see tasks that it has enqueued and not
 * committed.  So transaction.c publishes the tasks before these pops search.
 * Calls of other backends skip the rows of such tasks.  But these calls may
 * take the group out of the ring, or take tasks off the hand, and so undo the
 * publication.  So the lane counts narrowings: how often a backend other than
 * the previous one took a turn or recorded that no task is ready.  As long as
 * that number is the same, the publication is valid.
 *
 * lane_turns.c takes turns and ends them.
 *
 * Locking: a lane's lock protects all that is in struct FairqLane and, with
 * the group set's mutex, its groups' entries; see README.  Lock order: lane,
 * then the mutex of one group set or of one counter.  Nothing here fails, or
 * waits for anything except these locks.  Only entries of a copy of a lane are
 * allocated (entry.c).  So commit and abort callbacks can call all functions
 * here, for groups whose chunk of bits exists.
 */
#include "postgres.h"

#include "entry.h"
#include "lane.h"
#include "lane_internal.h"

static int64
reach_of(FairqLane *lane, FairqRegion region)
{
	return (int64) pg_atomic_read_u64(&lane->reach[region]);
}

/* Fill in a new entry, from the group's bits. */
void
fairq_lane_init_entry(FairqLane *lane, int32 group_no, FairqGroup *group)
{
	bool		out = is_out(lane, group_no);
	bool		due = has(lane, FAIRQ_DUE, group_no);
	bool		leased = has(lane, FAIRQ_LEASED, group_no) ||
		has(lane, FAIRQ_LAPSED, group_no);

	group->sets.late = has(lane, FAIRQ_LATE, group_no);
	group->upto = !is_known(lane, group_no) ? 0 : out ? FAIRQ_ADDR_MAX :
		group->sets.late ? 0 : next_turn(lane, group_no);
	group->turn.since = DT_NOBEGIN;
	group->lost = FAIRQ_ADDR_MAX;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		group->due.from[r] = due && r != FAIRQ_REGION_QUEUED ?
			fairq_region_from(r) : FAIRQ_ADDR_MAX;
		group->run.low[r] = leased ? fairq_region_from(r) : FAIRQ_ADDR_MAX;
		group->due.since[r] = group->run.since[r] = FAIRQ_ADDR_MAX;
	}
	group->run.high = leased ? reach_of(lane, FAIRQ_REGION_QUEUED) :
		FAIRQ_ADDR_NONE;
}

/*
 * Raise the reach of the lane, because a task runs or will soon run at the
 * given address.
 */
void
fairq_lane_reaches(FairqLane *lane, int64 addr)
{
	pg_atomic_uint64 *at;
	uint64		reach;

	if (addr < 0)
		return;
	at = &lane->reach[fairq_region(addr)];
	reach = pg_atomic_read_u64(at);
	while (addr > (int64) reach &&
		   !pg_atomic_compare_exchange_u64(at, &reach, addr))
		;
}

/*
 * Returns the highest address of a region at which a task may be running; the
 * region's last address, if the reach is not known.
 */
int64
fairq_lane_reach(FairqLane *lane, FairqRegion region)
{
	if (fairq_tally_has_passed(&fairq_hints_of(lane)->tally))
		return reach_of(lane, region);
	return region + 1 < FAIRQ_REGIONS ? fairq_region_from(region + 1) - 1 :
		FAIRQ_ADDR_MAX - 1;
}

/*
 * Whether a recovery of the lane has begun.  If so, turns can be taken in the
 * part that it has covered.  Unless recovered is NULL, *recovered is set to
 * how far the recovery has come.
 */
bool
fairq_lane_recovered(FairqLane *lane, FairqRecovered *recovered)
{
	bool		begun;

	LWLockAcquire(&lane->lock, LW_SHARED);
	begun = is_begun(lane);
	if (recovered != NULL)
		*recovered = (FairqRecovered) {
			.lane_no = lane->recovery.lane_no,
			.first = lane->recovery.first,
			.known = lane->recovery.known,
			.fair_by = lane->order.ledger.fair_by
		};
	LWLockRelease(&lane->lock);
	return begun;
}

/*
 * Whether service by turns has a position that recovery can keep.  There is no
 * position after a restart, or if blocks of the given length are used up.
 */
static bool
has_position(FairqLane *lane, int64 block_length)
{
	return lane->recovery.block_length != 0 && is_by_turns(lane) &&
		lane->present.block < fairq_last_block(0, block_length) - 1;
}

/*
 * Begin to recover the lane, unless another backend has already begun to.  The
 * caller has read the resets, then the table, then the time.  block is the
 * lowest block of some groups' first ready tasks; -1: the lane is empty.  In a
 * lane that is not task-fair all seats count as passed, and recovery begins at
 * the first one.
 */
void
fairq_lane_recover_begin(FairqLane *lane, uint64 resets, TimestampTz now,
						 int64 block_length, FairqFairBy by, int64 block)
{
	bool		by_tasks = by == FAIRQ_BY_TASKS;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (!is_begun(lane))
	{
		note_narrower(lane);
		if (by_tasks && block >= 0 && has_position(lane, block_length))
			/*
			 * if service has passed a group in a block, the group's first task
			 * is in the next block
			 */
			lane->present.block = Max(lane->present.block, block - 1);
		else
		{
			lane->present.block = Max(block, 0);
			lane->present.seat = by_tasks ? FAIRQ_NO_SEAT : PG_INT32_MAX;
			fairq_seats_clear_served(lane, false);
		}
		lane->recovery.resets = resets;
		lane->recovery.lane_no = fairq_new_lane_no();
		lane->present.renewals++;
		lane->recovery.block_length = block_length;
		lane->recovery.first = by_tasks ?
			lane->present.seat + INT64CONST(1) : 0;
		lane->recovery.block = lane->present.block;
		lane->recovery.known = lane->recovery.covered = 0;
		fairq_ledger_begin(&lane->order.ledger, &lane->order.flows, by, now);
		lane->turn.addr = FAIRQ_ADDR_NONE;
		lane->turn.left = 0;
		lane->full = (FairqFull) {.seat = FAIRQ_NO_SEAT};
		fairq_seats_init(lane);
		fairq_times_forget(&lane->times);
		/*
		 * commits note their leases again, because new entries have less data
		 * than the old ones
		 */
		pg_atomic_fetch_add_u64(&lane->searches, 1);
	}
	LWLockRelease(&lane->lock);
}

/*
 * Record a step of recovery, which began in the state "from".  The step found
 * rows of the given groups, and the given number of seats is now known.  Does
 * nothing if another backend has progressed further.  The chunks of the
 * groups' bits exist.
 */
void
fairq_lane_recover_step(FairqLane *lane, const FairqRecovered *from,
						const int32 *group_nos, int n, int64 known)
{
	if (!lock_as_of(lane, from->lane_no))
		return;
	if (lane->recovery.known == from->known)
	{
		for (int i = 0; i < n; i++)
		{
			FairqGroup *group = lock_group(lane, group_nos[i], false);

			/*
			 * an entry that is made later reads the line from the start
			 */
			fairq_seats_add(lane, FAIRQ_LATE, group_nos[i]);
			let_in(lane, group_nos[i]);
			unlock_group(lane, group_nos[i], group);
		}
		lane->recovery.known = known;
	}
	LWLockRelease(&lane->lock);
}

/*
 * Accept the recovery as valid despite later resets, because SQL changes rows
 * again and again.  Returns false if another recovery has begun.
 */
bool
fairq_lane_accept(FairqLane *lane, uint32 lane_no)
{
	if (!lock_as_of(lane, lane_no))
		return false;
	lane->recovery.resets =
		pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets);
	LWLockRelease(&lane->lock);
	return true;
}

/* Forget all data of the lane except its leases. */
void
fairq_lane_forget(FairqLane *lane)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	note_narrower(lane);
	lane->recovery.lane_no = 0;
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/*
 * Give a group its next address.  looked_up is the group's tail in the table,
 * or NULL if the caller has not read it.
 */
FairqReserved
fairq_lane_reserve(FairqLane *lane, int32 group_no, int32 weight,
				   const FairqTail *looked_up, FairqReservation *reservation)
{
	FairqGroup *group;
	FairqReserved result = FAIRQ_RESERVED;

	if (!lock_begun(lane))
		return FAIRQ_LANE_UNKNOWN;
	group = lock_group(lane, group_no, looked_up != NULL);
	if (group != NULL && group->tail.addr != FAIRQ_TAIL_UNKNOWN)
		looked_up = &group->tail;
	if (looked_up == NULL)
		result = FAIRQ_NO_TAIL;
	else
	{
		reservation->before = reservation->tail = *looked_up;
		if (!fairq_next_tail(&reservation->tail, group_no, weight,
							 next_block(lane, group_no),
							 lane->recovery.block_length))
			result = FAIRQ_BLOCKS_USED_UP;
	}
	if (result == FAIRQ_RESERVED)
	{
		reservation->pinned = group;
		reservation->lane_no = lane->recovery.lane_no;
		if (group != NULL)
		{
			group->tail = reservation->tail;
			group->pins++;
		}
	}
	unlock_group(lane, group_no, group);
	LWLockRelease(&lane->lock);
	return result;
}

/*
 * Restore a group's tail, if no other address has been reserved since.
 * Addresses up to "last" were reserved for tasks that will not be added.
 */
void
fairq_lane_unreserve(FairqLane *lane, uint32 lane_no, int32 group_no,
					 FairqTail last, FairqTail before)
{
	FairqGroup *group;

	if (!lock_as_of(lane, lane_no))
		return;
	group = is_begun(lane) ? lock_group(lane, group_no, false) : NULL;
	if (group != NULL)
	{
		if (group->tail.addr == last.addr && group->tail.count == last.count)
			group->tail = before;
		fairq_entry_unlock(group);
	}
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/* Initialize leases, of which there are none yet. */
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
	volatile int64 *deadline;

	if (leases->until == DT_NOEND)
		return;
	fairq_seats_add(lane, FAIRQ_LEASED, group_no);
	deadline = fairq_seats_deadline(lane, group_no);
	*deadline = Min(*deadline, leases->until);
	if (leases->until < (int64) pg_atomic_read_u64(&lane->times.deadline))
		pg_atomic_write_u64(&lane->times.deadline, leases->until);
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

/*
 * Find the first group at or after the seat *group_no that may have running or
 * lapsed tasks.  Does not find a group while a call searches that group at its
 * turn.
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

/*
 * Put the groups whose leases may have expired into the set "lapsed".  Returns
 * their number.
 */
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
		pg_atomic_write_u64(&lane->times.deadline,
							fairq_seats_lapse(lane, now, &ngroups));
	}
	LWLockRelease(&lane->lock);
	return ngroups;
}

/*
 * Add leases of the group's tasks.  Usually they were noted when the tasks
 * were taken, and are still recorded.  They are recorded even before a
 * recovery of the lane begins, because the load does not read these tasks
 * again.
 */
void
fairq_lane_add_leases(FairqLane *lane, int32 group_no,
					  const FairqLeases *leases)
{
	FairqGroup *group;

	/* read these hints only after our leases have become visible */
	pg_memory_barrier();
	if (leases->searches == pg_atomic_read_u64(&lane->searches) &&
		has(lane, FAIRQ_LEASED, group_no) &&
		*fairq_seats_deadline(lane, group_no) <= leases->until)
		return;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	group = is_begun(lane) ? lock_group(lane, group_no, false) : NULL;
	fairq_lane_note_leases(lane, group_no, group, leases);
	unlock_group(lane, group_no, group);
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/*
 * Begin to search for tasks that have become due.  Returns the lane's recovery
 * number; 0 if another backend is searching, or no recovery of the lane has
 * begun.
 */
uint32
fairq_lane_search_begin(FairqLane *lane, TimestampTz now, int64 *timers)
{
	uint32		lane_no = 0;

	if (!lock_begun(lane))
		return 0;
	lane->clock = Max(lane->clock, now);
	if (fairq_times_begin(&lane->times, timers))
		lane_no = lane->recovery.lane_no;
	LWLockRelease(&lane->lock);
	return lane_no;
}

/*
 * End the search.  "timers" is its progress; NULL: the search was interrupted.
 */
void
fairq_lane_search_end(FairqLane *lane, uint32 lane_no, const int64 *timers)
{
	if (!lock_as_of(lane, lane_no))
		return;
	note_narrower(lane);
	if (timers != NULL)
		fairq_times_end(&lane->times, timers);
	else
		lane->times.searching = false;
	LWLockRelease(&lane->lock);
}

/*
 * Put a group into the set "due", because its task at the given address is
 * due.
 */
static void
has_fallen_due(FairqLane *lane, int32 group_no, int64 addr)
{
	FairqRegion region = fairq_region(addr);
	FairqGroup *group = lock_group(lane, group_no, false);

	if (group != NULL)
		note_since(lane, group_no, group, fairq_due_time(addr));
	fairq_seats_add(lane, FAIRQ_DUE, group_no);
	let_in(lane, group_no);
	if (group == NULL)
	{
		/* a new entry searches for all due tasks */
		return;
	}
	if (group->due.kept.n > 0 && group->due.kept.region == region &&
		addr < group->due.from[region])
	{
		/* this task may come before the tasks that the entry has */
		addr = Min(addr, group->due.kept.items[0].addr);
		group->due.kept.n = 0;
	}
	group->due.from[region] = Min(group->due.from[region], addr);
	group->due.since[region] = Min(group->due.since[region], addr);
	unlock_group(lane, group_no, group);
}

/*
 * Add a timed task of the group, at the given address, that has become due.
 * Returns false if another recovery of the lane has begun.  The chunk of the
 * group's bits exists.
 */
bool
fairq_lane_add_due(FairqLane *lane, uint32 lane_no, int32 group_no,
				   int64 addr)
{
	if (!lock_as_of(lane, lane_no))
		return false;
	has_fallen_due(lane, group_no, addr);
	LWLockRelease(&lane->lock);
	return true;
}

/* Whether a pop would find the ready task at addr. */
static bool
finds_ready(FairqLane *lane, int32 group_no, const FairqGroup *group,
			int64 addr)
{
	if (!is_known(lane, group_no))
		return true;
	if (is_out(lane, group_no))
		return false;
	if (group == NULL)
		return has(lane, FAIRQ_LATE, group_no) ||
			addr >= next_turn(lane, group_no);
	for (int i = 0; i < group->in_hand.n; i++)
		if (group->hand[group->in_hand.first + i].addr == addr)
			return true;
	return addr >= group->upto;
}

/* Whether a pop will search for the running task at addr, once it lapses. */
static bool
finds_running(FairqLane *lane, int32 group_no, const FairqGroup *group,
			  int64 addr, TimestampTz lease_until)
{
	FairqRegion region = fairq_region(addr);

	if (!fairq_tally_has_passed(&fairq_hints_of(lane)->tally))
		return true;
	if (!has(lane, FAIRQ_LAPSED, group_no) &&
		(!has(lane, FAIRQ_LEASED, group_no) ||
		 *fairq_seats_deadline(lane, group_no) > lease_until))
		return false;
	return group == NULL ||
		(group->run.low[region] <= addr &&
		 (region != FAIRQ_REGION_QUEUED || addr <= group->run.high));
}

/* Whether a pop will search for the timed task at addr, once it is due. */
static bool
finds_timed(FairqLane *lane, int32 group_no, const FairqGroup *group,
			int64 addr)
{
	FairqRegion region = fairq_region(addr);

	if (!fairq_times_passed(&lane->times, addr))
		return true;
	return has(lane, FAIRQ_DUE, group_no) &&
		(group == NULL || group->pid.searcher != 0 ||
		 group->due.from[region] <= addr ||
		 (group->due.kept.n > 0 && group->due.kept.region == region &&
		  group->due.kept.items[0].addr <= addr));
}

/*
 * For check_queue(): whether a pop will find the task at addr, now or when the
 * task becomes due or its lease ends.
 */
bool
fairq_lane_finds(FairqLane *lane, int32 group_no, int64 addr, bool running,
				 TimestampTz lease_until)
{
	FairqGroup *group;
	bool		finds;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	group = lock_group(lane, group_no, false);
	finds = !is_begun(lane) ||
		(running ?
		 finds_running(lane, group_no, group, addr, lease_until) :
		 fairq_is_timed(addr) ? finds_timed(lane, group_no, group, addr) :
		 finds_ready(lane, group_no, group, addr));
	if (group != NULL)
		fairq_entry_unlock(group);
	LWLockRelease(&lane->lock);
	return finds;
}

/*
 * Commit and abort callbacks call the functions below, except
 * fairq_lane_narrowings(), after the transaction's end is visible.  A pop also
 * calls them before its search, for tasks that only its own transaction sees.
 * The chunks of the groups' bits exist.
 */

/*
 * Add ready tasks of the group.  "since" is the time at which the first of
 * them became ready.  There may be other tasks at or above the address "more".
 */
void
fairq_lane_add_ready(FairqLane *lane, int32 group_no, const FairqItem *items,
					 int n, int64 more, TimestampTz since)
{
	FairqGroup *group;
	int64		lowest = n > 0 ? Min(items[0].addr, more) : more;
	bool		had_nothing;

	if (!lock_begun(lane))
		return;
	had_nothing = is_out(lane, group_no) && is_known(lane, group_no);
	group = lock_group(lane, group_no, had_nothing);
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
	unlock_group(lane, group_no, group);
	LWLockRelease(&lane->lock);
}

/*
 * Add timed tasks of the group; addr is the address of the first one.  If an
 * abort has restored them, they may already be due.
 */
void
fairq_lane_add_timed(FairqLane *lane, int32 group_no, int64 addr,
					 bool restored)
{
	int64		end;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	end = fairq_due_end(fairq_region(addr), lane->clock);
	if (restored && is_begun(lane) && addr < end &&
		fairq_times_passed(&lane->times, addr))
	{
		has_fallen_due(lane, group_no, addr);
		/* a later search finds the other tasks, once they become due */
		addr = end;
	}
	fairq_times_scheduled(&lane->times, addr);
	LWLockRelease(&lane->lock);
}

/*
 * Returns the number of the lane's narrowings.  The caller then publishes
 * tasks that only its own pops see.  The publication is valid as long as the
 * number does not change.
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
