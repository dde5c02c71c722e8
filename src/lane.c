/*
 * lane.c
 *		What shared memory knows of a lane: its turns, and whose turn is next.
 *
 * A lane is (queue, priority).  The tables hold the truth; what is here makes
 * finding it cheap, and may be lost at any time.  Service goes round: in a
 * block each group that has something ready gets one turn, in the order of the
 * seats.  The lane knows the present block and the seat that was passed last,
 * and of each group some bits, each of which is a set of groups (seats.c):
 *
 * ring		It may have something ready.  let_in() sets the bit, and so do
 *			unparking and lapsing of many groups at once (seats.c); take_out()
 *			clears it.  Mostly it is set as a transaction publishes a task of
 *			the group after its end (transaction.c), and cleared as a pop has
 *			found nothing, by the protocol of hand.c, or parks the group.
 *
 * served	It has had its turn in the present block.
 *
 * front	It is in the ring, has not been served in the present block, and
 *			its seat was passed: it has come, or come again, since.  The groups
 *			in front are served before the others go on, in the order of their
 *			seats, each at its turn in the present block; the seat passed last
 *			stays.  So a group that comes is next, and still none has two turns
 *			in a block.
 *
 * parked	It has no slot for another running task (counter.c).  Then it is
 *			not in the ring, and no pop comes by, until there is a slot.
 *
 * late		A task of it that is ready may stand below its next turn: one that
 *			was committed late, or put back, or a group that was parked has
 *			missed turns.  The bit matters to a group without an entry in the
 *			cache.
 *
 * due		A task of it that is scheduled, or retried, may have fallen due.
 *
 * leased	Tasks of it may be running, by leases.
 *
 * lapsed	A lease of it may have ended: looked at when its turn comes (turn.c).
 *
 * Bits are all that has to be known to find each group.  What else is known of
 * one, its hand, its tail and where to look for what, is in an entry of a cache
 * (entry.c), and can be evicted at any moment: the group gets a new entry when
 * its turn is taken.  The new one begins to read at that turn, above the dead
 * index entries of what was served before, unless the group is late: then from
 * the start.  If the group is neither in the ring nor parked, the new entry
 * says that it has nothing.  (Both hold if recovery has come by its seat.  If
 * not, the new entry says that nothing is known.)  What goes with the old one
 * is what became of the group's last turn, and whether it is a newcomer: either
 * can cost the group its turn in this block.
 *
 * A pop takes a number of turns at once, with what is in the hands of these
 * groups; then it claims the rows, without a lock.  What it does not need, and
 * what it cannot have, it gives back, at the latest when its transaction ends
 * (turns.c).  A turn that was given back is the group's again, if the block is
 * still the present one.  So is one that came to nothing: by whom that is given
 * back, when, and when it is lost is said in README, under "Fairness".  For that
 * the group's entry says what became of its last turn, and of the parts of it
 * that several calls have taken.
 *
 * Recovery of a lane, after a restart or when rows were changed behind fairq's
 * back, begins with all sets empty but leased and lapsed, and from that moment
 * on what is published counts.  Then each group that has any row gets its bits
 * (recover.c).  That is done in steps, in the order of the turns: from the
 * seat behind the present one on, and round.  A turn is taken only if all
 * seats before it are known; so the order is the same as if all had been known
 * from the beginning.  That no group is ready is certain only when all seats
 * are known.
 *
 * Of the groups that were passed in the block in which recovery began it is
 * not known which have had their turn.  Those that have rows count as served.
 * Not so a newcomer: a group that had no row in this block, or in later ones,
 * when it was given its first address since.  That one is in the block, and
 * the group is in front when its task is published.
 *
 * Leases and the reach are another matter: what is known of them is kept, and
 * the census comes by what is not (census.c).  A group that is leased or lapsed
 * for nothing costs a search.
 *
 * In a queue that is full only tasks that have a slot already can be served:
 * those whose leases have expired.  Their groups are served in the order of
 * their seats, up to their weights, but beside the turns: the block does not
 * go on, for the other groups, which cannot be served now, would lose their
 * turns.
 *
 * What a transaction has enqueued and not committed is seen by its own pops
 * alone.  It is published before they look (transaction.c).  A call of another
 * backend passes over the rows; so it may take the group out of the ring, or
 * take tasks off the hand, and make void what was published.  So the lane
 * counts how often another backend than before took a turn, or noted where
 * nothing is ready ("narrowings").  As long as that number is the same, what
 * was published stands.
 *
 * Leases.  A pop that takes tasks to lease them notes the leases as it takes
 * them, in the set "leased", in the group's entry and in the deadline of its
 * 64 seats.  When a deadline has passed, its groups are lapsed, and not leased
 * any more; and the next pop that comes by a lapsed group looks where it has
 * tasks running, and notes anew what it finds.  That search may miss a task
 * that was taken before and is claimed after.  So the transaction that commits
 * a lease looks, without a lock, whether the group is still leased, with a
 * deadline that is not later, and whether no such search was begun in the lane
 * since the task was taken ("searches").  If not, it notes the lease again;
 * and so does one that rolls back the end of a lease.
 *
 * Locking: a lane's lock protects all that is in struct FairqLane and, with the
 * set's mutex, its groups' entries; see shmem.h.  Lock order: lane, then the mutex
 * of one group set or of one counter.  Nothing here allocates, waits for anything
 * else or fails, so everything can be called from commit and abort callbacks, for
 * groups whose chunk of bits is mapped.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "entry.h"
#include "hand.h"
#include "lane.h"

/* groups that a call passes over for want of an entry before it gives up */
#define MAX_CROWDED 64

/* Has a recovery begun, since all was void?  Then what is published counts. */
static bool
is_begun(FairqLane *lane)
{
	return lane->lane_no != 0 &&
		lane->resets == pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets);
}

static bool
has(FairqLane *lane, FairqSeatSet set, int32 group_no)
{
	return fairq_seats_has(lane, set, group_no);
}

/* Has recovery come by the group's seat?  Else it may have any rows. */
static bool
is_known(FairqLane *lane, int32 group_no)
{
	int64		seats = group_no - lane->first;

	return (seats < 0 ? seats + FAIRQ_ALL_SEATS : seats) < lane->known;
}

/*
 * Was the group passed in the present block before recovery began, and has
 * recovery not come by it?
 */
static bool
is_unsure(FairqLane *lane, int32 group_no)
{
	return lane->block == lane->first_block && group_no < lane->first &&
		!is_known(lane, group_no);
}

/*
 * Count such a group as served, unless it is a newcomer.  The entry may be
 * NULL.
 */
static void
presume_served(FairqLane *lane, int32 group_no, const FairqGroup *group)
{
	if (is_unsure(lane, group_no) && !has(lane, FAIRQ_FRONT, group_no) &&
		(group == NULL || !group->newcomer))
		fairq_seats_add(lane, FAIRQ_SERVED, group_no);
}

/* The first block in which the group can have its next turn. */
static int64
next_block(FairqLane *lane, int32 group_no)
{
	return lane->block + (has(lane, FAIRQ_SERVED, group_no) ? 1 : 0);
}

static int64
next_turn(FairqLane *lane, int32 group_no)
{
	return group_no + lane->block_length * next_block(lane, group_no);
}

/* Is the group neither in the ring nor parked? */
static bool
is_out(FairqLane *lane, int32 group_no)
{
	return !has(lane, FAIRQ_RING, group_no) &&
		!has(lane, FAIRQ_PARKED, group_no);
}

/*
 * Put a group that may have something ready into the ring, and maybe in front.
 */
static void
let_in(FairqLane *lane, int32 group_no)
{
	if (has(lane, FAIRQ_PARKED, group_no))
		return;
	fairq_seats_add(lane, FAIRQ_RING, group_no);
	if (group_no <= lane->seat && !has(lane, FAIRQ_SERVED, group_no))
		fairq_seats_add(lane, FAIRQ_FRONT, group_no);
}

static void
take_out(FairqLane *lane, int32 group_no)
{
	fairq_seats_remove(lane, FAIRQ_RING, group_no);
	fairq_seats_remove(lane, FAIRQ_FRONT, group_no);
}

static int64
reach_of(FairqLane *lane, FairqRegion region)
{
	return (int64) pg_atomic_read_u64(&lane->reach[region]);
}

/* Fill in a new entry, by what the sets say of the group. */
static void
init_entry(FairqLane *lane, int32 group_no, FairqGroup *group)
{
	bool		out = is_out(lane, group_no);
	bool		due = has(lane, FAIRQ_DUE, group_no);
	bool		leased = has(lane, FAIRQ_LEASED, group_no) ||
		has(lane, FAIRQ_LAPSED, group_no);

	group->late = has(lane, FAIRQ_LATE, group_no);
	group->upto = !is_known(lane, group_no) ? 0 : out ? FAIRQ_ADDR_MAX :
		group->late ? 0 : next_turn(lane, group_no);
	group->lost = FAIRQ_ADDR_MAX;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		group->due_from[r] = due && r != FAIRQ_REGION_QUEUED ?
			fairq_region_from(r) : FAIRQ_ADDR_MAX;
		group->run_low[r] = leased ? fairq_region_from(r) : FAIRQ_ADDR_MAX;
		group->due_since[r] = group->run_since[r] = FAIRQ_ADDR_MAX;
	}
	group->run_high = leased ? reach_of(lane, FAIRQ_REGION_QUEUED) :
		FAIRQ_ADDR_NONE;
}

/* Is there nothing to serve of the group, as far as is known? */
static bool
has_nothing(FairqLane *lane, int32 group_no, const FairqGroup *group)
{
	return fairq_hand_is_empty(group) && !has(lane, FAIRQ_DUE, group_no) &&
		!has(lane, FAIRQ_LAPSED, group_no);
}

/*
 * A group's entry, with its set locked; or, with create, a new one.  NULL if
 * there is none.
 */
static FairqGroup *
lock_group(FairqLane *lane, int32 group_no, bool create, FairqGroupSet **set)
{
	bool		is_new;
	FairqGroup *group = fairq_entry_lock(lane->lane_no, group_no, create,
										 &is_new, set);

	if (group != NULL && is_new)
		init_entry(lane, group_no, group);
	return group;
}

/* Note what the entry has to be known by when it is gone; then let go of it. */
static void
unlock_group(FairqLane *lane, int32 group_no, FairqGroup *group,
			 FairqGroupSet *set)
{
	bool		parked = has(lane, FAIRQ_PARKED, group_no);

	group->idle = !parked && !has(lane, FAIRQ_RING, group_no);
	group->late = parked ||
		(!group->idle &&
		 fairq_hand_low(group) < next_turn(lane, group_no));
	if (group->late)
		fairq_seats_add(lane, FAIRQ_LATE, group_no);
	else
		fairq_seats_remove(lane, FAIRQ_LATE, group_no);
	fairq_entry_unlock(set);
}

/*
 * Note that this backend has found out where nothing is ready, or takes a
 * turn.
 */
static void
note_narrower(FairqLane *lane)
{
	if (lane->narrower == MyProcPid)
		return;
	lane->narrower = MyProcPid;
	pg_atomic_fetch_add_u64(&lane->narrowings, 1);
}

/* --------------------------------------------------------------------- */

/*
 * Returns as of when counters are known now, or void.  It is read in this
 * order since a census begins by being given its number (census.c).
 */
FairqAsOf
fairq_lane_as_of(FairqLane *lane)
{
	FairqHints *hints = fairq_hints_of(lane);
	uint64		resets = pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets);
	FairqAsOf	now;

	now.as_of = resets + pg_atomic_read_u64(&hints->uncounted);
	fairq_census_look(hints, resets, &now);
	return now;
}

/* Raise the reach of the lane: a task is running there, or about to. */
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

/* Has a census come by all that was running before the lane knew of anything? */
bool
fairq_lane_reach_is_known(FairqLane *lane)
{
	return fairq_census_has_passed(fairq_hints_of(lane),
								   pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets));
}

/*
 * The highest address of a region at which a task may be running.  If that is not
 * known, it is the last one.
 */
int64
fairq_lane_reach(FairqLane *lane, FairqRegion region)
{
	if (fairq_lane_reach_is_known(lane))
		return reach_of(lane, region);
	return region + 1 < FAIRQ_REGIONS ? fairq_region_from(region + 1) - 1 :
		FAIRQ_ADDR_MAX - 1;
}

/* Has a recovery of the lane begun?  Then *recovered is how far it has come. */
bool
fairq_lane_recovered(FairqLane *lane, FairqRecovered *recovered)
{
	bool		begun;

	LWLockAcquire(&lane->lock, LW_SHARED);
	begun = is_begun(lane);
	recovered->lane_no = lane->lane_no;
	recovered->first = lane->first;
	recovered->known = lane->known;
	LWLockRelease(&lane->lock);
	return begun;
}

/*
 * Has a recovery of the lane begun?  Then turns can be taken, as far as it has
 * come.
 */
bool
fairq_lane_is_begun(FairqLane *lane)
{
	FairqRecovered recovered;

	return fairq_lane_recovered(lane, &recovered);
}

/*
 * Begin to recover the lane, unless that has been begun; all chunks are mapped.
 * What is said of it was read after so many resets: that block is served, up to
 * that seat.
 */
void
fairq_lane_recover_begin(FairqLane *lane, uint64 resets, int64 block_length,
						 int64 block, int32 seat)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (!is_begun(lane))
	{
		note_narrower(lane);
		lane->resets = resets;
		lane->lane_no = fairq_new_lane_no();
		lane->block_length = block_length;
		lane->first = seat + INT64CONST(1);
		lane->first_block = block;
		lane->known = 0;
		lane->block = block;
		lane->seat = seat;
		lane->turn = FAIRQ_ADDR_NONE;
		lane->turn_left = 0;
		lane->full_seat = FAIRQ_NO_SEAT;
		lane->full_left = 0;
		fairq_seats_init(lane);
		fairq_times_forget(&lane->times);
		/* entries are made anew, and know less than what was noted before */
		pg_atomic_write_u64(&lane->searches,
							pg_atomic_read_u64(&lane->searches) + 1);
	}
	LWLockRelease(&lane->lock);
}

/*
 * Note a step of recovery: from that state on, to where so many seats are
 * known, these groups have rows.  Nothing is noted if another backend has come
 * further.  The bits of the groups are mapped.
 */
void
fairq_lane_recover_step(FairqLane *lane, const FairqRecovered *from,
						const int32 *group_nos, int n, int64 known)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == from->lane_no && lane->known == from->known)
	{
		for (int i = 0; i < n; i++)
		{
			FairqGroupSet *set;
			FairqGroup *group = lock_group(lane, group_nos[i], false, &set);

			/* an entry that was made since knew that it knew nothing */
			fairq_seats_add(lane, FAIRQ_LATE, group_nos[i]);
			presume_served(lane, group_nos[i], group);
			let_in(lane, group_nos[i]);
			if (group != NULL)
				unlock_group(lane, group_nos[i], group, set);
		}
		lane->known = known;
	}
	LWLockRelease(&lane->lock);
}

/*
 * Accept what was read as enough, since rows are changed all the time.  False
 * if another recovery has begun.
 */
bool
fairq_lane_accept(FairqLane *lane, uint32 lane_no)
{
	bool		content;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	content = lane->lane_no == lane_no;
	if (content)
		lane->resets =
			pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets);
	LWLockRelease(&lane->lock);
	return content;
}

/* Forget all of the lane but its leases. */
void
fairq_lane_forget(FairqLane *lane)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	note_narrower(lane);
	lane->lane_no = 0;
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/*
 * Give a group its next address.  looked_up is its tail as the table has it,
 * or NULL if that was not looked at (yet).
 */
FairqReserved
fairq_lane_reserve(FairqLane *lane, int32 group_no, int32 weight,
				   const FairqTail *looked_up, FairqReservation *reservation)
{
	FairqGroupSet *set;
	FairqGroup *group;
	FairqReserved result = FAIRQ_RESERVED;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (!is_begun(lane))
	{
		LWLockRelease(&lane->lock);
		return FAIRQ_LANE_UNKNOWN;
	}
	group = lock_group(lane, group_no, looked_up != NULL, &set);
	if ((group == NULL || group->tail == FAIRQ_TAIL_UNKNOWN) &&
		looked_up == NULL)
		result = FAIRQ_NO_TAIL;
	else
	{
		FairqTail	tail;

		if (group != NULL && group->tail != FAIRQ_TAIL_UNKNOWN)
		{
			tail.addr = group->tail;
			tail.count = group->tail_count;
		}
		else
			tail = *looked_up;
		reservation->before = tail;
		if (!fairq_next_tail(&tail, group_no, weight,
							 next_block(lane, group_no), lane->block_length))
			result = FAIRQ_BLOCKS_USED_UP;
		else
		{
			reservation->tail = tail;
			reservation->pinned = group;
			reservation->lane_no = lane->lane_no;
			if (group != NULL)
			{
				group->tail = tail.addr;
				group->tail_count = tail.count;
				group->newcomer |= is_unsure(lane, group_no) &&
					fairq_block(tail.addr, lane->block_length) == lane->block;
				group->pins++;
			}
		}
	}
	if (group != NULL)
		unlock_group(lane, group_no, group, set);
	LWLockRelease(&lane->lock);
	return result;
}

/* Unpin the entry of a reservation: the row is written, or never will be. */
void
fairq_unpin(FairqReservation *reservation)
{
	if (reservation->pinned != NULL)
		fairq_entry_unpin(reservation->pinned);
	reservation->pinned = NULL;
}

/*
 * Put a group's tail back, if no other address was reserved since: the tasks
 * that were given addresses up to last are not there after all.
 */
void
fairq_lane_unreserve(FairqLane *lane, uint32 lane_no, int32 group_no,
					 FairqTail last, FairqTail before)
{
	FairqGroupSet *set;
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	group = is_begun(lane) && lane->lane_no == lane_no ?
		lock_group(lane, group_no, false, &set) : NULL;
	if (group != NULL)
	{
		if (group->tail == last.addr && group->tail_count == last.count)
		{
			group->tail = before.addr;
			group->tail_count = before.count;
		}
		fairq_entry_unlock(set);
	}
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/*
 * Note that tasks of the group are leased, or about to be.  The entry may be
 * NULL.
 */
static void
note_leases(FairqLane *lane, int32 group_no, FairqGroup *group,
			const FairqLeases *leases)
{
	if (leases->until == DT_NOEND)
		return;
	presume_served(lane, group_no, group);
	fairq_seats_add(lane, FAIRQ_LEASED, group_no);
	fairq_seats_lower_deadline(lane, group_no, leases->until);
	if (leases->until < (int64) pg_atomic_read_u64(&lane->times.deadline))
		fairq_times_deadline(&lane->times, leases->until);
	if (group == NULL)
		return;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		group->run_low[r] = Min(group->run_low[r], leases->low[r]);
		group->run_since[r] = Min(group->run_since[r], leases->low[r]);
	}
	group->run_high = Max(group->run_high,
						  leases->high[FAIRQ_REGION_QUEUED]);
}

/* Note that queued tasks of the group are leased, or about to be. */
static void
note_leased_items(FairqLane *lane, int32 group_no, FairqGroup *group,
				  const FairqItem *items, int n, TimestampTz until)
{
	FairqLeases leases = {.until = until};

	if (n == 0)
		return;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		leases.low[r] = FAIRQ_ADDR_MAX;
		leases.high[r] = FAIRQ_ADDR_NONE;
	}
	leases.low[FAIRQ_REGION_QUEUED] = items[0].addr;
	leases.high[FAIRQ_REGION_QUEUED] = items[n - 1].addr;
	/* should the entry be evicted, a new one looks so far */
	fairq_lane_reaches(lane, items[n - 1].addr);
	note_leases(lane, group_no, group, &leases);
}

/* Begin to search a group for what has fallen due. */
static void
read_due(FairqLane *lane, FairqGroup *group, FairqTurn *turn)
{
	turn->due = has(lane, FAIRQ_DUE, turn->group_no);
	turn->lapsed = has(lane, FAIRQ_LAPSED, turn->group_no);
	if (!turn->due && !turn->lapsed)
		return;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		turn->due_from[r] = group->due_from[r];
		turn->run_low[r] = group->run_low[r];
	}
	turn->ndue = turn->next_due = 0;
	turn->run_high = group->run_high;
	turn->cycle = group->cycle;
	turn->cycle_id = group->cycle_id;
	if (group->searcher != 0)
		return;
	turn->searcher = true;
	group->searcher = MyProcPid;
	turn->ndue = group->ndue;
	turn->due_region = group->due_region;
	memcpy(turn->due_items, group->due_hand, sizeof(group->due_hand));
	group->ndue = 0;
	if (turn->lapsed)
	{
		/* if leases lapse during the search, that is noted anew */
		fairq_seats_remove(lane, FAIRQ_LAPSED, turn->group_no);
		pg_atomic_write_u64(&lane->searches,
							pg_atomic_read_u64(&lane->searches) + 1);
	}
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		group->due_since[r] = group->run_since[r] = FAIRQ_ADDR_MAX;
}

/* Take all parked groups back, if that was asked for since the last time. */
static void
unpark_if_asked(FairqLane *lane)
{
	uint64		unparks = pg_atomic_read_u64(&fairq_hints_of(lane)->unparks);

	if (lane->unparks == unparks)
		return;
	lane->unparks = unparks;
	fairq_seats_unpark(lane, lane->seat);
}

/* The turn that is next, whose group, and how it comes to be. */
typedef struct NextTurn
{
	int32		group_no;
	int64		block;
	int64		addr;
	int32		left;			/* of a turn that was begun, or 0 */
	bool		in_front;
} NextTurn;

/* Find the next turn, as far as is known.  False if the ring is empty. */
static bool
find_next(FairqLane *lane, NextTurn *next)
{
	next->left = 0;
	next->in_front = false;
	next->block = lane->block;
	if (lane->turn_left > 0 && has(lane, FAIRQ_RING, lane->turn_seat))
	{
		next->group_no = lane->turn_seat;
		next->addr = lane->turn;
		next->left = lane->turn_left;
		return true;
	}
	next->group_no = fairq_seats_next(lane, FAIRQ_FRONT, 0);
	next->in_front = next->group_no != FAIRQ_NO_SEAT;
	if (!next->in_front)
		next->group_no = fairq_seats_next(lane, FAIRQ_RING,
										  lane->seat + INT64CONST(1));
	if (next->group_no == FAIRQ_NO_SEAT)
	{
		next->group_no = fairq_seats_next(lane, FAIRQ_RING, 0);
		if (next->group_no == FAIRQ_NO_SEAT)
			return false;
		next->block++;
	}
	/* past the last block the last one is served again */
	next->addr = fairq_address(next->group_no, next->block,
							   lane->block_length);
	if (next->addr == FAIRQ_ADDR_NONE)
		next->addr = fairq_last_address(next->group_no, lane->block_length);
	return true;
}

/* Are all seats known from which another turn could come before that one? */
static bool
is_covered(FairqLane *lane, const NextTurn *next)
{
	int64		seats = next->group_no - lane->first;

	if (lane->known == FAIRQ_ALL_SEATS || next->in_front || next->left > 0)
		return true;
	if (next->block > lane->first_block)
		seats += FAIRQ_ALL_SEATS;
	return next->block <= lane->first_block + 1 && seats < lane->known;
}

/*
 * Move on to that turn, which may be in the next block; or in another round
 * past the last block, which is counted.
 */
static void
pass_to(FairqLane *lane, FairqTaking *taking, const NextTurn *next)
{
	if (next->block != lane->block)
	{
		fairq_seats_clear(lane, FAIRQ_SERVED);
		fairq_seats_clear(lane, FAIRQ_FRONT);
		if (fairq_address(next->group_no, next->block,
						  lane->block_length) != FAIRQ_ADDR_NONE)
			lane->block = next->block;
		else
			taking->past++;
		lane->seat = FAIRQ_NO_SEAT;
	}
	if (next->left == 0 && !next->in_front)
		lane->seat = next->group_no;
	fairq_seats_remove(lane, FAIRQ_FRONT, next->group_no);
}

/* Is that turn one of those that the call may take? */
static bool
may_take(const FairqTaking *taking, const NextTurn *next, int64 block_length)
{
	int64		first = taking->first >= 0 ? taking->first :
		taking->n > 0 ? taking->turns[0].addr : next->addr;

	if (next->block + taking->past > taking->last_block)
		return false;
	/* one in front is in the same block as all so far */
	first = Min(first, next->addr);
	return taking->per_group == 0 ||
		taking->per_group > (FAIRQ_ADDR_MAX - first) / block_length ||
		next->addr < first + taking->per_group * block_length;
}

/* Fill in a turn.  False if it has come to nothing: the group has nothing. */
static bool
take_turn(FairqLane *lane, FairqTaking *taking, const NextTurn *next,
		  FairqGroup *group, FairqTurn *turn)
{
	int32		group_no = next->group_no;
	int32		left = next->left > 0 ? next->left :
		taking->weight_of(taking->arg, group_no);

	turn->in_full = false;
	turn->group_no = group_no;
	turn->addr = next->addr;
	turn->block = lane->block + taking->past;
	turn->continued = next->left > 0;
	turn->left = left;
	turn->want = (int32) Min(left, taking->wanted);
	turn->read_want = (int32) Min(Max(turn->want,
									  taking->wanted / lane->seats.n[FAIRQ_RING]),
								  FAIRQ_MAX_TURNS);
	turn->kept_out = turn->in_doubt = turn->begun = turn->done =
		turn->searcher = false;
	turn->parked = turn->stopped = false;
	turn->reread = turn->apart = false;
	turn->next = turn->served = turn->nlocked = 0;
	turn->locked_more = FAIRQ_ADDR_MAX;
	read_due(lane, group, turn);
	turn->nitems = fairq_hand_take(group, Min(turn->want, FAIRQ_HAND),
								   turn->items);
	turn->more = !fairq_hand_is_empty(group);
	if (!turn->more && !turn->due && !turn->lapsed)
	{
		take_out(lane, group_no);
		if (turn->nitems == 0)
			return false;
	}
	if (!taking->peek)
		note_leased_items(lane, group_no, group, turn->items, turn->nitems,
						  taking->lease_until);
	return true;
}

/* Note that a call has that turn in hand, or a part of it. */
static void
note_taken(FairqLane *lane, FairqGroup *group, const FairqTurn *turn)
{
	fairq_seats_add(lane, FAIRQ_SERVED, turn->group_no);
	lane->turn = turn->addr;
	lane->turn_seat = turn->group_no;
	lane->turn_left = turn->left - turn->want;
	if (turn->continued)
	{
		/* an entry that was made since the first part does not know of that */
		group->parts++;
		return;
	}
	group->parts = 1;
	group->unused = true;
	group->published = false;
}

/*
 * Lock the lane to take turns of it.  False, and the lane is not locked, if turns
 * cannot be taken yet; *result says why.
 */
static bool
begin_taking(FairqLane *lane, FairqTaking *taking, FairqTaken *result)
{
	taking->n = 0;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane) &&
		pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) == taking->mapped)
	{
		taking->lane_no = lane->lane_no;
		taking->clock = lane->clock;
		return true;
	}
	*result = is_begun(lane) ? FAIRQ_NOT_MAPPED : FAIRQ_NOT_KNOWN;
	LWLockRelease(&lane->lock);
	return false;
}

/*
 * Take the next turns, with what is in the hands of their groups: so many
 * turns, or as many as tasks are wanted, or up to where a hand has to be read
 * first.
 */
FairqTaken
fairq_lane_take(FairqLane *lane, FairqTaking *taking)
{
	FairqTaken	result = FAIRQ_TAKEN;
	int64		begun_in;
	bool		any_search = false;
	int			crowded = 0;

	if (!begin_taking(lane, taking, &result))
		return result;
	note_narrower(lane);
	unpark_if_asked(lane);
	begun_in = lane->block;
	while (taking->n < taking->most && taking->wanted > 0)
	{
		FairqTurn  *turn = &taking->turns[taking->n];
		NextTurn	next;
		FairqGroupSet *set;
		FairqGroup *group;
		bool		taken;

		if (!find_next(lane, &next))
		{
			result = lane->known < FAIRQ_ALL_SEATS ? FAIRQ_NOT_KNOWN :
				FAIRQ_NONE_READY;
			break;
		}
		if (!is_covered(lane, &next))
		{
			result = FAIRQ_NOT_KNOWN;
			break;
		}
		if (!may_take(taking, &next, lane->block_length))
		{
			result = FAIRQ_NOT_NOW;
			break;
		}
		group = lock_group(lane, next.group_no, true, &set);
		if (group == NULL)
		{
			/* all entries that it could have are pinned, for a moment */
			result = FAIRQ_NOT_NOW;
			if (++crowded > MAX_CROWDED)
				break;
			lane->turn_left = 0;
			pass_to(lane, taking, &next);
			fairq_seats_add(lane, FAIRQ_SERVED, next.group_no);
			fairq_seats_add(lane, FAIRQ_LATE, next.group_no);
			continue;
		}
		/*
		 * What a reading brings is better waited for than read twice; and what
		 * a turn does not need is put back first.
		 */
		if (taking->n > 0 && next.block > begun_in &&
			(any_search ||
			 (!fairq_hand_has_any(group) && group->upto != FAIRQ_ADDR_MAX)))
		{
			fairq_entry_unlock(set);
			break;
		}
		lane->turn_left = 0;
		pass_to(lane, taking, &next);
		taken = take_turn(lane, taking, &next, group, turn);
		if (taken)
		{
			note_taken(lane, group, turn);
			any_search |= turn->due || turn->lapsed;
			taking->wanted -= turn->want;
			taking->n++;
		}
		unlock_group(lane, next.group_no, group, set);
	}
	taking->searches = pg_atomic_read_u64(&lane->searches);
	LWLockRelease(&lane->lock);
	return taking->n > 0 ? FAIRQ_TAKEN : result;
}

/*
 * Read what is in the hand of the group whose turn is next, without taking it.
 * False if there is nothing.
 */
bool
fairq_lane_glance(FairqLane *lane, uint32 mapped, FairqTurn *turn,
				  uint32 *lane_no)
{
	NextTurn	next;
	FairqGroupSet *set;
	FairqGroup *group = NULL;

	turn->nitems = 0;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane) &&
		pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) == mapped)
	{
		unpark_if_asked(lane);
		if (find_next(lane, &next) && is_covered(lane, &next))
			group = lock_group(lane, next.group_no, false, &set);
	}
	if (group != NULL)
	{
		*lane_no = lane->lane_no;
		turn->group_no = next.group_no;
		turn->addr = next.addr;
		turn->served = 0;
		while (turn->nitems < group->nhand &&
			   group->hand[group->first + turn->nitems].addr < group->upto)
		{
			turn->items[turn->nitems] =
				group->hand[group->first + turn->nitems];
			turn->nitems++;
		}
		fairq_entry_unlock(set);
	}
	LWLockRelease(&lane->lock);
	return turn->nitems > 0;
}

/*
 * Take, in a full queue, a turn, as it were, of the group with lapsed leases
 * whose seat is next; with tried_seat, which is -1 otherwise, past that one.
 * The address is one to come.
 */
FairqTaken
fairq_lane_take_in_full(FairqLane *lane, FairqTaking *taking, int32 tried_seat,
						int32 *nlapsed)
{
	FairqTurn  *turn = &taking->turns[0];
	FairqGroup *group = NULL;
	FairqGroupSet *set;
	FairqTaken	result;
	int64		seat;
	int32		group_no;

	if (!begin_taking(lane, taking, &result))
		return result;
	*nlapsed = lane->seats.n[FAIRQ_LAPSED];
	seat = tried_seat != FAIRQ_NO_SEAT ? tried_seat : lane->full_seat;
	if (tried_seat != FAIRQ_NO_SEAT || lane->full_left == 0)
		seat++;
	group_no = fairq_seats_next(lane, FAIRQ_LAPSED, Max(seat, 0));
	if (group_no == FAIRQ_NO_SEAT)
		group_no = fairq_seats_next(lane, FAIRQ_LAPSED, 0);
	if (group_no != FAIRQ_NO_SEAT)
		group = lock_group(lane, group_no, true, &set);
	if (group != NULL)
	{
		note_narrower(lane);
		memset(turn, 0, sizeof(FairqTurn));
		turn->group_no = group_no;
		turn->addr = next_turn(lane, group_no);
		turn->in_full = true;
		turn->locked_more = FAIRQ_ADDR_MAX;
		turn->more = !fairq_hand_is_empty(group);
		turn->full_seat_before = lane->full_seat;
		turn->full_left_before = lane->full_left;
		turn->continued = group_no == lane->full_seat && lane->full_left > 0;
		turn->left = turn->continued ? lane->full_left :
			taking->weight_of(taking->arg, group_no);
		turn->want = (int32) Min(turn->left, taking->wanted);
		read_due(lane, group, turn);
		lane->full_seat = group_no;
		lane->full_left = 0;
		unlock_group(lane, group_no, group, set);
		taking->n = 1;
	}
	taking->searches = pg_atomic_read_u64(&lane->searches);
	LWLockRelease(&lane->lock);
	return group != NULL ? FAIRQ_TAKEN : FAIRQ_NONE_READY;
}

/*
 * Returns how many tasks of the group's hand the caller gets, at most so many;
 * its turn has nothing at hand.  If that is none, the caller has to read from
 * *from on (FAIRQ_ADDR_MAX: there is nothing to read), looking at rows or not
 * (*by_row), and may offer what it finds or not (*offers).
 */
int
fairq_lane_read_begin(FairqLane *lane, uint32 lane_no, int32 group_no,
					  int most, TimestampTz lease_until, FairqItem *out,
					  int64 *from, bool *by_row, bool *offers)
{
	FairqGroupSet *set;
	FairqGroup *group = NULL;
	int			n = 0;

	*from = FAIRQ_ADDR_MAX;
	*by_row = *offers = false;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == lane_no)
		group = lock_group(lane, group_no, true, &set);
	if (group != NULL)
	{
		n = fairq_hand_take(group, most, out);
		if (n > 0)
			note_narrower(lane);
		note_leased_items(lane, group_no, group, out, n, lease_until);
		if (n == 0 && group->upto != FAIRQ_ADDR_MAX)
		{
			*from = group->upto;
			*by_row = group->by_row;
			*offers = fairq_hand_read_begin(group, MyProcPid);
		}
		unlock_group(lane, group_no, group, set);
	}
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * End a reading, which has found these tasks up to end, in order.  Returns how
 * many of them, or of those that are ready before, the caller gets, at most so
 * many; the others are kept for later, if the reading counts.
 */
int
fairq_lane_read_end(FairqLane *lane, uint32 lane_no, int32 group_no,
					const FairqItem *found, int nfound, int64 end, int most,
					TimestampTz lease_until, FairqItem *out)
{
	FairqGroupSet *set;
	FairqGroup *group = NULL;
	int			n;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == lane_no)
		group = lock_group(lane, group_no, false, &set);
	if (group != NULL && group->reader == MyProcPid)
	{
		note_narrower(lane);
		n = fairq_hand_offer(group, found, nfound, end, most, out);
		if (has_nothing(lane, group_no, group))
			take_out(lane, group_no);
	}
	else
	{
		n = Min(most, nfound);
		memcpy(out, found, sizeof(FairqItem) * n);
	}
	if (lane->lane_no == lane_no)
		note_leased_items(lane, group_no, group, out, n, lease_until);
	if (group != NULL)
		unlock_group(lane, group_no, group, set);
	LWLockRelease(&lane->lock);
	return n;
}

/* End the caller's reading, which an error has broken off. */
void
fairq_lane_read_failed(FairqLane *lane, uint32 lane_no, int32 group_no)
{
	FairqGroupSet *set;
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == lane_no)
		group = lock_group(lane, group_no, false, &set);
	if (group != NULL)
	{
		if (group->reader == MyProcPid)
			group->reader = 0;
		fairq_entry_unlock(set);
	}
	LWLockRelease(&lane->lock);
}

/*
 * Drop the group's hand, which had a task at that address that is not there.
 */
void
fairq_lane_vanished(FairqLane *lane, uint32 lane_no, int32 group_no,
					int64 addr)
{
	FairqGroupSet *set;
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == lane_no)
	{
		let_in(lane, group_no);
		group = lock_group(lane, group_no, false, &set);
		if (group != NULL)
		{
			fairq_hand_vanished(group, addr);
			unlock_group(lane, group_no, group, set);
		}
		else
			fairq_seats_add(lane, FAIRQ_LATE, group_no);
	}
	LWLockRelease(&lane->lock);
}

/* Has no other call gone on with the turn? */
static bool
is_last_part(FairqLane *lane, const FairqTurn *turn)
{
	return lane->turn == turn->addr &&
		lane->turn_left == turn->left - turn->want;
}

/*
 * End the group's turn, at which nothing could be had: what is left of it
 * would come to nothing as well, a thousand times maybe.  False if another
 * call has gone on with it.
 */
static bool
cut_short(FairqLane *lane, const FairqTurn *turn)
{
	if (turn->left == turn->want)
		return true;
	if (!is_last_part(lane, turn))
		return false;
	lane->turn_left = 0;
	return true;
}

/*
 * Give the group its last turn back, which was in the present block.  The
 * entry may be NULL.
 */
static void
give_back(FairqLane *lane, int32 group_no, FairqGroup *group)
{
	/* of a turn that was begun the rest is not served before all of it */
	if (lane->turn_seat == group_no)
		lane->turn_left = 0;
	if (group != NULL)
		group->unused = false;
	fairq_seats_remove(lane, FAIRQ_SERVED, group_no);
	if (has(lane, FAIRQ_RING, group_no))
		let_in(lane, group_no);
}

/* Has the group's last turn come to nothing, and is no call at it any more? */
static bool
came_to_nothing(const FairqGroup *group)
{
	return group->parts == 0 && group->unused;
}

/* Give such a turn back, if it was in the present block. */
static void
give_back_if_nothing(FairqLane *lane, int32 group_no, FairqGroup *group)
{
	if (came_to_nothing(group) && has(lane, FAIRQ_SERVED, group_no))
		give_back(lane, group_no, group);
}

/* Note that something of the group was published. */
static void
note_published(FairqLane *lane, int32 group_no, FairqGroup *group)
{
	group->published = true;
	give_back_if_nothing(lane, group_no, group);
}

/* Has something become ready since the turn was taken, as far as is known? */
static bool
was_published_since(FairqLane *lane, const FairqGroup *group,
					const FairqTurn *turn)
{
	return group->published ||
		(has(lane, FAIRQ_DUE, turn->group_no) && !turn->due) ||
		(has(lane, FAIRQ_LAPSED, turn->group_no) && !turn->lapsed);
}

/*
 * Let the call that takes the next turn go on with this one, in the middle of
 * which the call had to stop, unless another one has already.
 */
static void
go_on_later(FairqLane *lane, const FairqTurn *turn)
{
	if (turn->stopped && is_last_part(lane, turn))
		lane->turn_left = turn->left - turn->served;
}

/*
 * End a call's part of a turn, which is over; or which the call has not begun.
 * If no call has used any of the turn, nor has a part in hand, the group has
 * it again: at once if it has nothing, or something was published since; or
 * else when that is published.  Not earlier, or a call that finds nothing
 * beside the reading of another one would come by for ever.  The entry may be
 * NULL, or another one than it was: then there is nothing to be had but what
 * the bits say.
 */
static void
end_part(FairqLane *lane, FairqGroup *group, const FairqTurn *turn, bool over)
{
	bool		known = group != NULL && group->parts > 0;
	bool		published = !over || !has(lane, FAIRQ_RING, turn->group_no);

	if (turn->in_full ||
		fairq_block(turn->addr, lane->block_length) != lane->block)
		return;
	if (known)
	{
		group->parts--;
		/* one in which an error has occurred counts as used, if it has tasks */
		if (turn->served > 0 || (!published && !turn->done))
			group->unused = false;
		published |= was_published_since(lane, group, turn);
	}
	if (turn->served > 0)
	{
		go_on_later(lane, turn);
		return;
	}
	if (known ? came_to_nothing(group) && published :
		published && !turn->continued && cut_short(lane, turn))
		give_back(lane, turn->group_no, group);
	else if (!over && turn->continued && is_last_part(lane, turn))
		lane->turn_left = turn->left;
	else if (over && turn->nlocked > 0)
		(void) cut_short(lane, turn);
}

/*
 * Give the group its turn at that address back, which has come to nothing, if
 * the block is the present one, and the group was not given it back since.
 */
void
fairq_lane_unserve(FairqLane *lane, uint32 lane_no, int32 group_no,
				   int64 addr)
{
	FairqGroupSet *set;
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == lane_no &&
		fairq_block(addr, lane->block_length) == lane->block)
		group = lock_group(lane, group_no, false, &set);
	if (group != NULL)
	{
		give_back_if_nothing(lane, group_no, group);
		unlock_group(lane, group_no, group, set);
	}
	LWLockRelease(&lane->lock);
}

/*
 * Put a group of which leases may have ended into the set "lapsed" and into
 * the ring.  It is not parked any more, as an expired task has its slot
 * already.
 */
static void
has_lapsed(FairqLane *lane, int32 group_no)
{
	fairq_seats_add(lane, FAIRQ_LAPSED, group_no);
	fairq_seats_remove(lane, FAIRQ_PARKED, group_no);
	let_in(lane, group_no);
}

/*
 * Note in the group's entry what a search has found of what has fallen due.
 * The entry may have been evicted (NULL), and the search broken off
 * (likewise).
 */
static void
note_findings(FairqLane *lane, FairqGroup *group, const FairqTurn *turn,
			  const FairqFindings *findings)
{
	int32		group_no = turn->group_no;
	bool		due = false;

	if (!turn->searcher)
		return;
	if (group == NULL || group->searcher != MyProcPid || findings == NULL)
	{
		if (group != NULL && group->searcher == MyProcPid)
		{
			group->searcher = 0;
			if (turn->ndue > 0 && turn->due_region != FAIRQ_REGION_QUEUED)
				group->due_from[turn->due_region] =
					Min(group->due_from[turn->due_region],
						turn->due_items[0].addr);
		}
		if (turn->lapsed)
		{
			has_lapsed(lane, group_no);
			/* an entry that was made since knew nothing of leases */
			for (int r = 0; group != NULL && r < FAIRQ_REGIONS; r++)
				group->run_low[r] = Min(group->run_low[r], turn->run_low[r]);
			if (group != NULL)
				group->run_high = Max(group->run_high, turn->run_high);
		}
		return;
	}
	group->searcher = 0;
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
	{
		if (findings->due_done)
			group->due_from[r] = Min(findings->due_from[r],
									 group->due_since[r]);
		due |= group->due_from[r] != FAIRQ_ADDR_MAX;
	}
	if (findings->ndue > 0)
	{
		int			r = findings->due_region;

		/* tasks are not published as they expire in their order */
		due |= r != FAIRQ_REGION_QUEUED;
		if (r == FAIRQ_REGION_QUEUED || group->due_since[r] == FAIRQ_ADDR_MAX)
		{
			group->ndue = findings->ndue;
			group->due_region = r;
			memcpy(group->due_hand, findings->due_items,
				   sizeof(group->due_hand));
		}
		else
			group->due_from[r] = Min(group->due_from[r],
									 findings->due_items[0].addr);
	}
	if (!due)
		fairq_seats_remove(lane, FAIRQ_DUE, group_no);
	group->cycle = findings->cycle;
	group->cycle_id = findings->cycle_id;
	if (!turn->lapsed)
		return;
	if (!findings->lapsed_done)
	{
		if (findings->paused)
			fairq_seats_add(lane, FAIRQ_LAPSED, group_no);
		else
			has_lapsed(lane, group_no);
		return;
	}
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		group->run_low[r] = Min(findings->run_low[r], group->run_since[r]);
	if (findings->deadline == DT_NOEND)
		return;
	fairq_seats_add(lane, FAIRQ_LEASED, group_no);
	fairq_seats_lower_deadline(lane, group_no, findings->deadline);
	if (findings->deadline < (int64) pg_atomic_read_u64(&lane->times.deadline))
		fairq_times_deadline(&lane->times, findings->deadline);
}

/*
 * End the turn, at which nothing of the group can be had.  False if another
 * call may have gone on with it.
 */
bool
fairq_lane_cut_short(FairqLane *lane, uint32 lane_no, const FairqTurn *turn)
{
	bool		cut;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	cut = lane->lane_no == lane_no && cut_short(lane, turn);
	LWLockRelease(&lane->lock);
	return cut;
}

/* Put back what is left of what was taken for a turn, which is over or not. */
static void
put_back(FairqLane *lane, uint32 lane_no, const FairqTurn *turn,
		 const FairqFindings *findings, bool over)
{
	FairqGroupSet *set;
	FairqGroup *group;
	int32		group_no = turn->group_no;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no != lane_no)
	{
		LWLockRelease(&lane->lock);
		return;
	}
	group = lock_group(lane, group_no, false, &set);
	if (turn->next < turn->nitems || turn->nlocked > 0)
	{
		if (group != NULL)
		{
			fairq_hand_add(group, turn->items + turn->next,
						   turn->nitems - turn->next, FAIRQ_ADDR_MAX);
			fairq_hand_add(group, turn->locked, turn->nlocked,
						   turn->locked_more);
		}
		else
			fairq_seats_add(lane, FAIRQ_LATE, group_no);
		let_in(lane, group_no);
	}
	if (findings != NULL)
	{
		if (findings->leased.until != DT_NOEND)
			note_leases(lane, group_no, group, &findings->leased);
	}
	note_findings(lane, group, turn, findings);
	if (group != NULL)
	{
		if (has_nothing(lane, group_no, group))
			take_out(lane, group_no);
		else
			let_in(lane, group_no);
	}
	if (!turn->parked)
		end_part(lane, group, turn, over);
	if (group != NULL)
		unlock_group(lane, group_no, group, set);
	if (turn->in_full)
	{
		if (lane->full_seat == group_no)
		{
			if (turn->served > 0)
				lane->full_left = turn->left - turn->served;
			else
			{
				lane->full_seat = turn->full_seat_before;
				lane->full_left = turn->full_left_before;
			}
		}
	}
	LWLockRelease(&lane->lock);
}

/*
 * End a turn, and put back what is left of what was taken for it.  If nothing
 * was served, since the group has nothing, the group has had no turn in this
 * block.
 */
void
fairq_lane_turn_end(FairqLane *lane, uint32 lane_no, const FairqTurn *turn,
					const FairqFindings *findings)
{
	put_back(lane, lane_no, turn, findings, true);
}

/* Give back a turn that was not used, with all that was taken for it. */
void
fairq_lane_turn_back(FairqLane *lane, uint32 lane_no, const FairqTurn *turn)
{
	put_back(lane, lane_no, turn, NULL, false);
}

/*
 * Park the group, as there is no slot for another running task of it.  version
 * is that of the settings that say so.  False if they are not in effect any
 * more, or there may be a slot.  An expired task needs no other slot, so then
 * it is not, unless nothing of the group may run.
 */
bool
fairq_lane_park(FairqLane *lane, uint32 lane_no, FairqTurn *turn,
				uint64 version, FairqCounter *counter, int32 limit)
{
	FairqHints *hints = fairq_hints_of(lane);
	int32		group_no = turn->group_no;
	bool		parked = false;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == lane_no)
		unpark_if_asked(lane);
	if (lane->lane_no == lane_no &&
		(limit == 0 || !has(lane, FAIRQ_LAPSED, group_no)) &&
		fairq_counter_park(counter, fairq_lane_as_of(lane), limit,
						   lane->priority, &hints->version, version))
	{
		FairqGroupSet *set;
		FairqGroup *group = lock_group(lane, group_no, false, &set);

		parked = true;
		take_out(lane, group_no);
		fairq_seats_add(lane, FAIRQ_PARKED, group_no);
		fairq_seats_add(lane, FAIRQ_LATE, group_no);
		if (turn->served == 0)
		{
			/* at once: when the turn ends it may be in the ring again */
			end_part(lane, group, turn, false);
			turn->parked = true;
		}
		if (group != NULL)
			unlock_group(lane, group_no, group, set);
	}
	LWLockRelease(&lane->lock);
	return parked;
}

/* The first parked group at or behind that seat; all chunks are mapped. */
bool
fairq_lane_next_parked(FairqLane *lane, int32 *group_no)
{
	int32		next;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	unpark_if_asked(lane);
	next = fairq_seats_next(lane, FAIRQ_PARKED, *group_no);
	LWLockRelease(&lane->lock);
	*group_no = next;
	return next != FAIRQ_NO_SEAT;
}

/*
 * The first group at or behind that seat of which tasks may be running or expired,
 * but for those at whose turns a call is just looking; all chunks are mapped.
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

/* Take the group back into service in these lanes: it has a slot again. */
void
fairq_unpark(FairqHints *hints, int32 group_no, uint16 parked)
{
	for (int priority = 0; parked != 0; priority++, parked >>= 1)
	{
		FairqLane  *lane = &hints->lanes[priority];

		if ((parked & 1) == 0)
			continue;
		LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
		if (is_begun(lane) && has(lane, FAIRQ_PARKED, group_no))
		{
			fairq_seats_remove(lane, FAIRQ_PARKED, group_no);
			let_in(lane, group_no);
		}
		LWLockRelease(&lane->lock);
	}
}

/*
 * Have the next call that takes turns take all parked groups back: there may
 * be a slot for each.
 */
void
fairq_unpark_all(FairqHints *hints)
{
	pg_atomic_fetch_add_u64(&hints->unparks, 1);
}

/* --------------------------------------------------------------------- */

/*
 * Lapse the groups of which leases may have ended.  Returns how many there were;
 * none, if not all of the lane's chunks are mapped.
 */
int64
fairq_lane_lapse(FairqLane *lane, TimestampTz now, uint32 mapped)
{
	int64		ngroups = 0;

	if ((int64) pg_atomic_read_u64(&lane->times.deadline) > now)
		return 0;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane) &&
		pg_atomic_read_u32(&fairq_hints_of(lane)->chunks.made) == mapped &&
		(int64) pg_atomic_read_u64(&lane->times.deadline) <= now)
	{
		lane->clock = Max(lane->clock, now);
		fairq_times_deadline(&lane->times,
							 fairq_seats_lapse(lane, now, lane->seat, &ngroups));
	}
	LWLockRelease(&lane->lock);
	return ngroups;
}

/*
 * Begin to search for what has fallen due.  0 if another backend is at it, or
 * the lane is not known; else the lane's number.
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
			lane_no = lane->lane_no;
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
	if (lane->lane_no == lane_no)
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

	presume_served(lane, group_no, group);
	fairq_seats_add(lane, FAIRQ_DUE, group_no);
	if (group != NULL)
		note_published(lane, group_no, group);
	let_in(lane, group_no);
	if (group == NULL)
	{
		/* a new entry looks for all that has fallen due */
		return;
	}
	if (group->ndue > 0 && group->due_region == region &&
		addr < group->due_from[region])
	{
		/* what is in hand may come behind it */
		addr = Min(addr, group->due_hand[0].addr);
		group->ndue = 0;
	}
	group->due_from[region] = Min(group->due_from[region], addr);
	group->due_since[region] = Min(group->due_since[region], addr);
	unlock_group(lane, group_no, group, set);
}

/*
 * Add a timed task of the group that stands there, and has fallen due.  False
 * if the lane was recovered anew since.  The group's bits are mapped.
 */
bool
fairq_lane_add_due(FairqLane *lane, uint32 lane_no, int32 group_no,
				   int64 addr)
{
	bool		same;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	same = lane->lane_no == lane_no;
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
		for (int i = 0; i < group->nhand; i++)
			finds |= group->hand[group->first + i].addr == addr;
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
			 (group->run_low[region] <= addr &&
			  (region != FAIRQ_REGION_QUEUED || addr <= group->run_high)));
	else
		will_look = !fairq_times_passed(&lane->times, addr) ||
			(has(lane, FAIRQ_DUE, group_no) &&
			 (group == NULL || group->searcher != 0 ||
			  group->due_from[region] <= addr ||
			  (group->ndue > 0 && group->due_region == region &&
			   group->due_hand[0].addr <= addr)));
	will_look |= !is_begun(lane) ||
		(running && fairq_census_is_due(fairq_hints_of(lane)));
	if (group != NULL)
		fairq_entry_unlock(set);
	LWLockRelease(&lane->lock);
	return will_look;
}

/*
 * What follows is said after it is visible, from commit and abort callbacks, of
 * groups whose bits are mapped.
 */

/* Add tasks of the group that are ready; there may be others from more on. */
void
fairq_lane_add_ready(FairqLane *lane, int32 group_no, const FairqItem *items,
					 int n, int64 more)
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
		presume_served(lane, group_no, group);
		if (group != NULL)
		{
			fairq_hand_add(group, items, n, more);
			note_published(lane, group_no, group);
		}
		else if (lowest < next_turn(lane, group_no))
			fairq_seats_add(lane, FAIRQ_LATE, group_no);
		else if (had_nothing)
			fairq_seats_remove(lane, FAIRQ_LATE, group_no);
		let_in(lane, group_no);
		if (group != NULL)
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
 * Add leases of the group's tasks.  Mostly they were noted when the tasks were
 * taken, and still are.  They count also before a recovery of the lane has
 * begun: the census does not come by again.
 */
void
fairq_lane_add_leases(FairqLane *lane, int32 group_no,
					  const FairqLeases *leases)
{
	FairqGroupSet *set;
	FairqGroup *group;

	/* what is read here is not older than what we have made visible */
	pg_memory_barrier();
	if (leases->searches == pg_atomic_read_u64(&lane->searches) &&
		has(lane, FAIRQ_LEASED, group_no) &&
		fairq_seats_deadline(lane, group_no) <= leases->until)
		return;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	group = is_begun(lane) ? lock_group(lane, group_no, false, &set) : NULL;
	note_leases(lane, group_no, group, leases);
	if (group != NULL)
		unlock_group(lane, group_no, group, set);
	LWLockRelease(&lane->lock);
}

/*
 * Returns the lane's narrowings, before the caller publishes what its own pops
 * see: that stands as long as the number does not change.
 */
uint64
fairq_lane_narrowings(FairqLane *lane)
{
	uint64		narrowings;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	note_narrower(lane);
	narrowings = pg_atomic_read_u64(&lane->narrowings);
	LWLockRelease(&lane->lock);
	return narrowings;
}
