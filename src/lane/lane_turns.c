/*
 * lane_turns.c
 *		The turns of a lane: how calls take, end and give back turns, and how
 *		they put groups aside.
 *
 * A pop takes several turns at once, with tasks from the hands of their
 * groups.  These turns and tasks are in flight.  Then the pop claims the rows,
 * without a lock.  It gives back tasks that it does not need or cannot claim,
 * at the latest when its transaction ends (turn.c).
 *
 * If a turn is given back and its block is still the present one, the group
 * gets the turn again.  A turn that yielded no task is also given back.  The
 * section "Fairness" of README lists which function does that and when, and
 * when the turn is lost.  The group's entry counts the parts of its last turn
 * that calls have taken, to find out when all are given back.
 *
 * A full queue can only serve tasks that already have a slot: those with
 * lapsed leases.  Their groups are served in the order of their seats, up to
 * their weights, but not at their turns.  The block does not advance, because
 * other groups, which cannot be served now, would lose their turns.
 *
 * If a pop finds that no task of a group may start, it puts the group aside.
 * Then the group is not in the ring, and no pop visits it.  A group without a
 * slot is "parked".  The group returns when a backend gives up a slot
 * (counter.c), or when the lease of one of its tasks expires.  A group without
 * a start is "throttled" until a certain time.  It is also in a set ordered by
 * that time (order.c).  Each call takes back some groups whose time has come.
 * A group returns earlier if a call gives back an unused start.  If the group
 * waits for a retry, it returns at the latest when the retried task ends or is
 * changed (transaction.c).  Changes of settings take back groups of both
 * kinds.  The lane records only the last cause that a pop found.  If the group
 * returns while another cause still holds, the next pop puts it aside again.
 *
 * A tenant without a slot or a start is "shut" as a whole: its groups stay
 * where they are (lane_order.c).  The tenant returns like a group.  In a full
 * queue, a call visits groups with lapsed tasks without checking their tenants
 * first.  So it parks such a group if the tenant is paused or may not start a
 * task yet.  The group returns with its tenant.
 *
 * Locking: as in lane.c.  A backend that puts a group aside holds the lane's
 * lock exclusively, and under it the counter's mutex.  Records of the order in
 * which groups return are made before the lane is locked.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "entry.h"
#include "lane.h"
#include "lane_internal.h"
#include "lane_order.h"

/*
 * maximum number of groups without an entry that a call passes over before it
 * gives up
 */
#define MAX_CROWDED 64

/*
 * groups of the order that are examined while the lane's lock is held, in less
 * than a millisecond
 */
#define EXAMINED_AT_ONCE 1000

/* Take back all groups, if that has been requested since the last time. */
static void
unpark_if_asked(FairqLane *lane)
{
	uint64		unparks = pg_atomic_read_u64(&fairq_hints_of(lane)->unparks);

	if (lane->present.unparks == unparks)
		return;
	lane->present.unparks = unparks;
	fairq_seats_unpark(lane);
}

/*
 * Record that the group is not aside any more, if it was.
 */
static void
remove_group(FairqLane *lane, int32 group_no)
{
	fairq_seats_remove(lane, FAIRQ_PARKED, group_no);
	if (!has(lane, FAIRQ_THROTTLED, group_no))
		return;
	fairq_seats_remove(lane, FAIRQ_THROTTLED, group_no);
	fairq_seats_return(lane, group_no);
}

/* Move a group from the ring to a set. */
static void
leave_ring(FairqLane *lane, int32 group_no, FairqSeatSet set)
{
	take_out(lane, group_no);
	remove_group(lane, group_no);
	fairq_seats_add(lane, set, group_no);
	fairq_seats_add(lane, FAIRQ_LATE, group_no);
}

/*
 * In a full queue, find the next group, at or after a seat, that has lapsed
 * tasks and may be served.  Parks groups that may not be served because of
 * their tenants.  FAIRQ_NO_SEAT: there is none, or *steps is below 0, and the
 * search must continue.
 */
static int32
next_lapsed(FairqLane *lane, int64 from, int *steps)
{
	for (;;)
	{
		int32		group_no = fairq_seats_next_but(lane, FAIRQ_LAPSED,
													FAIRQ_PARKED, from);
		FairqGroup *group;

		if (group_no == FAIRQ_NO_SEAT ||
			!fairq_lane_order_is_closed(lane, group_no))
			return group_no;
		if (--*steps < 0)
			return FAIRQ_NO_SEAT;
		group = lock_group(lane, group_no, false);
		leave_ring(lane, group_no, FAIRQ_PARKED);
		unlock_group(lane, group_no, group);
	}
}

/* Begin to search a group for due and lapsed tasks. */
static void
read_due(FairqLane *lane, FairqGroup *group, FairqTurn *turn)
{
	turn->sets.due = has(lane, FAIRQ_DUE, turn->group_no);
	turn->sets.lapsed = has(lane, FAIRQ_LAPSED, turn->group_no);
	if (!turn->sets.due && !turn->sets.lapsed)
		return;
	memcpy(turn->due.from, group->due.from, sizeof(turn->due.from));
	memcpy(turn->run.low, group->run.low, sizeof(turn->run.low));
	turn->run.high = group->run.high;
	turn->run.cycle = group->cycle;
	if (group->pid.searcher != 0)
		return;
	turn->sets.searcher = true;
	group->pid.searcher = MyProcPid;
	turn->due.kept = group->due.kept;
	group->due.kept.n = 0;
	if (turn->sets.lapsed)
	{
		/* leases that lapse during the search are recorded again */
		fairq_seats_remove(lane, FAIRQ_LAPSED, turn->group_no);
		pg_atomic_fetch_add_u64(&lane->searches, 1);
	}
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		group->due.since[r] = group->run.since[r] = FAIRQ_ADDR_MAX;
}

/*
 * Fill in the data of a turn that does not depend on how the turn was found.
 * A turn is large, and most of its items stay unused, so they are not cleared.
 */
static void
begin_turn(FairqLane *lane, int32 group_no, FairqGroup *group, FairqTurn *turn)
{
	turn->lane = lane;
	turn->lane_no = lane->recovery.lane_no;
	turn->group_no = group_no;
	turn->in_full = turn->sets.searcher = false;
	turn->tasks.served = 0;
	turn->queued.n = turn->queued.next = 0;
	turn->queued.reread = turn->queued.apart = false;
	turn->sets.since = group->turn.since;
	memset(&turn->state, 0, sizeof(turn->state));
	turn->locked.n = 0;
	turn->locked.more = FAIRQ_ADDR_MAX;
	turn->due.kept.n = turn->due.next = 0;
	turn->charged.group.tie = 0;
	turn->charged.tenant = FAIRQ_NO_SEAT;
	read_due(lane, group, turn);
}

/* The next turn: its group, its place, and how it was found. */
typedef struct NextTurn
{
	int32		group_no;
	int64		block;
	int64		addr;
	int32		left;			/* tasks left, if the turn was begun, or 1 if
								 * the lane is not task-fair; else 0 */
	int64		from;			/* no group below this seat still has a turn in
								 * the block */
} NextTurn;

/*
 * Find the next turn according to the hints.  Returns false if the ring is
 * empty.  In a lane that is not task-fair there are other reasons: the call
 * passes over all groups of the ring, or lacks an account.  The third reason
 * is that the search must continue; then taking->order.steps is below 0.
 */
static bool
find_next(FairqLane *lane, FairqTaking *taking, NextTurn *next)
{
	int64		last;

	next->left = 0;
	next->block = lane->present.block;
	if (!is_by_turns(lane))
	{
		next->left = 1;
		if (!fairq_lane_order_next(lane, taking, &next->group_no))
			return false;
		next->addr = next_turn(lane, next->group_no);
		return true;
	}
	if (lane->turn.left > 0 && has(lane, FAIRQ_RING, lane->turn.seat))
	{
		next->group_no = lane->turn.seat;
		next->addr = lane->turn.addr;
		next->left = lane->turn.left;
		return true;
	}
	next->group_no = fairq_seats_next(lane, FAIRQ_TODO, next->from);
	if (next->group_no == FAIRQ_NO_SEAT)
	{
		next->group_no = fairq_seats_next(lane, FAIRQ_RING, 0);
		if (next->group_no == FAIRQ_NO_SEAT)
			return false;
		next->block++;
	}
	next->from = next->group_no;
	/* after the last block, that block is served again */
	last = fairq_last_block(next->group_no, lane->recovery.block_length);
	next->addr = fairq_address(next->group_no, Min(next->block, last),
							   lane->recovery.block_length);
	return true;
}

/* Whether all seats whose turns could come before the given turn are known. */
static bool
is_covered(FairqLane *lane, const NextTurn *next)
{
	int64		seats = next->group_no - lane->recovery.first;

	if (!is_by_turns(lane))
		return fairq_lane_order_is_covered(lane, next->group_no);
	if (lane->recovery.known == FAIRQ_ALL_SEATS || next->left > 0 ||
		(next->block == lane->present.block &&
		 next->group_no <= lane->present.seat))
		return true;
	if (next->block > lane->recovery.block)
		seats += FAIRQ_ALL_SEATS;
	return next->block <= lane->recovery.block + 1 &&
		seats < lane->recovery.known;
}

/*
 * Move to a turn, which may be in the next block.  Past the last block, count
 * another round instead.
 */
static void
pass_to(FairqLane *lane, FairqTaking *taking, const NextTurn *next)
{
	/* the rest of a turn of a past block is not a turn of the present one */
	if (!is_by_turns(lane) ||
		(next->left > 0 && is_past(lane, next->addr)))
		return;
	if (next->block != lane->present.block)
	{
		fairq_seats_clear_served(lane, true);
		if (fairq_address(next->group_no, next->block,
						  lane->recovery.block_length) != FAIRQ_ADDR_NONE)
			lane->present.block = next->block;
		else
			taking->window.past++;
		lane->present.seat = FAIRQ_NO_SEAT;
	}
	lane->present.seat = Max(lane->present.seat, next->group_no);
	fairq_seats_remove(lane, FAIRQ_TODO, next->group_no);
}

/*
 * Returns the lowest address of the call's turns, including the given one.
 * The given turn can be the lowest one, if its group is in front: it is in the
 * same block, at a lower seat.
 */
static int64
first_with(const FairqTaking *taking, const NextTurn *next)
{
	return taking->window.first >= 0 ? Min(taking->window.first, next->addr) :
		next->addr;
}

/* Whether the call may take the turn. */
static bool
may_take(const FairqTaking *taking, const NextTurn *next, int64 block_length)
{
	int64		first = first_with(taking, next);

	if (taking->order.by != FAIRQ_BY_TASKS)
		return true;
	if (next->block + taking->window.past > taking->window.last_block)
		return false;
	return taking->window.per_group == 0 ||
		taking->window.per_group > (FAIRQ_ADDR_MAX - first) / block_length ||
		next->addr < first + taking->window.per_group * block_length;
}

/* Find the next turn; FAIRQ_TAKEN: the call may take it. */
static FairqTaken
choose_turn(FairqLane *lane, FairqTaking *taking, NextTurn *next)
{
	if (!find_next(lane, taking, next))
		return taking->order.lacks ? FAIRQ_NOT_READY :
			taking->order.steps < 0 ? FAIRQ_NOT_FOUND :
			lane->recovery.known < FAIRQ_ALL_SEATS ? FAIRQ_NOT_KNOWN :
			FAIRQ_NO_TURN;
	if (!is_covered(lane, next))
		return FAIRQ_NOT_KNOWN;
	return may_take(taking, next, lane->recovery.block_length) ?
		FAIRQ_TAKEN : FAIRQ_NO_TURN;
}

/* Record that the turn's queued tasks are leased, or will be soon. */
static void
note_leased(const FairqTurn *turn, FairqGroup *group, TimestampTz until)
{
	const FairqItem *items = turn->queued.items;
	int			n = turn->queued.n;
	FairqLeases leases;

	if (n == 0)
		return;
	fairq_leases_init(&leases);
	fairq_leases_add(&leases, items[0].addr, until);
	fairq_leases_add(&leases, items[n - 1].addr, until);
	/* if the entry is evicted, a search with a new one ends at the reach */
	fairq_lane_reaches(turn->lane, items[n - 1].addr);
	fairq_lane_note_leases(turn->lane, turn->group_no, group, &leases);
}

/* Fill in a turn.  Returns false if the group has no task to serve. */
static bool
take_turn(FairqLane *lane, FairqTaking *taking, const NextTurn *next,
		  FairqGroup *group, FairqTurn *turn)
{
	int32		group_no = next->group_no;
	int32		left = next->left > 0 ? next->left :
		taking->weight_of(taking->arg, group_no);
	int64		of_each = taking->wanted / lane->seats.n[FAIRQ_RING];

	begin_turn(lane, group_no, group, turn);
	turn->addr = next->addr;
	turn->block = lane->present.block + taking->window.past;
	turn->state.continued = is_by_turns(lane) && next->left > 0;
	turn->tasks.left = left;
	turn->tasks.want = (int32) Min(left, taking->wanted);
	turn->tasks.read_want = (int32) Min(Max(turn->tasks.want, of_each),
										FAIRQ_MAX_TURNS);
	turn->sets.entry = group;
	turn->queued.n = fairq_hand_take(group, Min(turn->tasks.want, FAIRQ_HAND),
									 turn->queued.items);
	turn->queued.more = !fairq_hand_is_empty(group);
	if (!turn->queued.more && !turn->sets.due && !turn->sets.lapsed)
	{
		take_out(lane, group_no);
		if (turn->queued.n == 0)
			return false;
	}
	if (!taking->peek)
		note_leased(turn, group, taking->lease_until);
	return true;
}

/* Record that the turn, or one call's part of it, is in flight. */
static void
note_in_flight(FairqLane *lane, FairqTaking *taking, FairqGroup *group,
			   FairqTurn *turn)
{
	if (!is_by_turns(lane))
	{
		fairq_lane_order_take(lane, taking, turn);
		return;
	}
	lane->turn.addr = turn->addr;
	lane->turn.seat = turn->group_no;
	lane->turn.left = turn->tasks.left - turn->tasks.want;
	if (turn->state.continued && is_past(lane, turn->addr))
		return;
	fairq_seats_add(lane, FAIRQ_SERVED, turn->group_no);
	if (turn->state.continued)
	{
		/* an entry made after the first part has no count of the parts */
		group->turn.parts += group->turn.parts > 0 ? 1 : 0;
		return;
	}
	group->turn.parts = 1;
	group->turn.published = false;
}

/*
 * Lock the lane to take its turns.  If turns cannot be taken yet, returns
 * false, and the lane is not locked; *result says why.
 */
static bool
begin_taking(FairqLane *lane, FairqTaking *taking, FairqTaken *result)
{
	taking->n = 0;
	taking->order.steps = EXAMINED_AT_ONCE;
	taking->order.lacks = false;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	/* the backend may have read another fair_by of the lane */
	if (is_begun(lane) && lane->order.ledger.fair_by == taking->order.by)
	{
		unpark_if_asked(lane);
		taking->renewals = lane->present.renewals;
		taking->clock = lane->clock;
		return true;
	}
	*result = is_begun(lane) ? FAIRQ_NOT_READY : FAIRQ_NOT_KNOWN;
	LWLockRelease(&lane->lock);
	return false;
}

/*
 * Take the next turns, with tasks from the hands of their groups.  Stops after
 * "most" turns, or with as many tasks as wanted, or before a group whose hand
 * must be read first.
 */
FairqTaken
fairq_lane_take(FairqLane *lane, FairqTaking *taking)
{
	FairqTaken	result = FAIRQ_TAKEN;
	NextTurn	next = {0};
	int64		begun_in;
	bool		any_search = false;
	int			crowded = 0;

	if (!begin_taking(lane, taking, &result))
		return result;
	note_narrower(lane);
	begun_in = lane->present.block;
	while (taking->n < taking->most && taking->wanted > 0)
	{
		FairqTurn  *turn = &taking->turns[taking->n];
		FairqGroup *group;
		bool		taken;

		result = choose_turn(lane, taking, &next);
		if (result != FAIRQ_TAKEN)
			break;
		group = lock_group(lane, next.group_no, true);
		if (group == NULL)
		{
			/* all entries that the group could get are pinned at the moment */
			result = FAIRQ_NO_TURN;
			if (++crowded > MAX_CROWDED || !is_by_turns(lane))
				break;
			lane->turn.left = 0;
			pass_to(lane, taking, &next);
			fairq_seats_add(lane, FAIRQ_SERVED, next.group_no);
			fairq_seats_add(lane, FAIRQ_LATE, next.group_no);
			continue;
		}
		/*
		 * Serve the turns taken so far before a turn that needs a search or a
		 * reading.  Those turns may still fill the group's hand, or put back
		 * tasks that they do not need.  Where the order depends on served
		 * tasks, a turn that may yield no task must be the call's first.
		 */
		if (taking->n > 0 && (next.block > begun_in || !is_by_turns(lane)) &&
			(any_search ||
			 (!fairq_hand_has_any(group) && group->upto != FAIRQ_ADDR_MAX)))
		{
			fairq_entry_unlock(group);
			break;
		}
		lane->turn.left = 0;
		pass_to(lane, taking, &next);
		taken = take_turn(lane, taking, &next, group, turn);
		if (taken)
		{
			note_in_flight(lane, taking, group, turn);
			any_search |= turn->sets.due || turn->sets.lapsed;
			taking->window.first = first_with(taking, &next);
			taking->wanted -= turn->tasks.want;
			taking->n++;
		}
		unlock_group(lane, next.group_no, group);
	}
	taking->searches = pg_atomic_read_u64(&lane->searches);
	LWLockRelease(&lane->lock);
	return taking->n > 0 ? FAIRQ_TAKEN : result;
}

/*
 * Copy the hand of the group whose turn is next, without taking its tasks.
 * Returns false if the hand has none.
 */
bool
fairq_lane_glance(FairqLane *lane, FairqTaking *taking, FairqTurn *turn)
{
	NextTurn	next = {0};
	FairqGroup *group = NULL;
	FairqTaken	result;

	memset(turn, 0, sizeof(FairqTurn));
	if (!begin_taking(lane, taking, &result))
		return false;
	if (find_next(lane, taking, &next) && is_covered(lane, &next))
		group = lock_group(lane, next.group_no, false);
	if (group != NULL)
	{
		FairqGroup	copy = *group;

		turn->lane = lane;
		turn->lane_no = lane->recovery.lane_no;
		turn->group_no = next.group_no;
		turn->addr = next.addr;
		/* find_next() has found the group's account */
		turn->charged.tenant = is_by_turns(lane) ? FAIRQ_NO_SEAT :
			account_if_any(lane, next.group_no)->level.tenant;
		turn->queued.n = fairq_hand_take(&copy, FAIRQ_HAND,
										 turn->queued.items);
		fairq_entry_unlock(group);
	}
	LWLockRelease(&lane->lock);
	return turn->queued.n > 0;
}

/*
 * In a full queue, take the next group with lapsed leases after tried_seat, in
 * the order of seats; FAIRQ_NO_SEAT: after the seat served last.  Such a turn
 * does not count as a turn of the block.  Its address is that of the group's
 * next turn.
 */
FairqTaken
fairq_lane_take_in_full(FairqLane *lane, FairqTaking *taking, int32 tried_seat,
						int32 *nlapsed)
{
	FairqTurn  *turn = &taking->turns[0];
	FairqGroup *group = NULL;
	FairqTaken	result;
	int64		seat;
	int32		group_no;

	if (!begin_taking(lane, taking, &result))
		return result;
	*nlapsed = lane->seats.n[FAIRQ_LAPSED];
	seat = tried_seat != FAIRQ_NO_SEAT ? tried_seat : lane->full.seat;
	if (tried_seat != FAIRQ_NO_SEAT || lane->full.left == 0)
		seat++;
	group_no = next_lapsed(lane, Max(seat, 0), &taking->order.steps);
	if (group_no == FAIRQ_NO_SEAT && taking->order.steps >= 0)
		group_no = next_lapsed(lane, 0, &taking->order.steps);
	if (group_no != FAIRQ_NO_SEAT)
		group = lock_group(lane, group_no, true);
	if (group != NULL)
	{
		note_narrower(lane);
		/* begin_turn() would leave the tenant's charge of an earlier turn */
		memset(turn, 0, sizeof(FairqTurn));
		begin_turn(lane, group_no, group, turn);
		turn->addr = next_turn(lane, group_no);
		turn->in_full = true;
		turn->queued.more = !fairq_hand_is_empty(group);
		turn->full_before = lane->full;
		turn->state.continued = group_no == lane->full.seat &&
			lane->full.left > 0;
		turn->tasks.left = turn->state.continued ? lane->full.left :
			taking->weight_of(taking->arg, group_no);
		turn->tasks.want = (int32) Min(turn->tasks.left, taking->wanted);
		lane->full = (FairqFull) {.seat = group_no};
		unlock_group(lane, group_no, group);
		taking->n = 1;
	}
	taking->searches = pg_atomic_read_u64(&lane->searches);
	LWLockRelease(&lane->lock);
	return group != NULL ? FAIRQ_TAKEN :
		taking->order.steps < 0 ? FAIRQ_NOT_FOUND : FAIRQ_NO_TURN;
}

/* --------------------------------------------------------------------- */

/*
 * Begin a reading from upto on.  Returns whether the caller may offer its
 * result.
 */
static bool
begin_reading(FairqGroup *group)
{
	if (group->pid.reader != 0 && group->pid.reader != MyProcPid)
		return false;
	group->pid.reader = MyProcPid;
	group->lost = FAIRQ_ADDR_MAX;
	return true;
}

/*
 * Give the turn, which has no task left, up to "most" tasks of the group's
 * hand.  Returns whether the turn got any.  If not, the caller must read at or
 * past *from; if *from is FAIRQ_ADDR_MAX, there is nothing to read.  *by_row
 * becomes true if the caller must examine rows, and *offers if it may offer
 * what it finds.
 */
bool
fairq_lane_read_begin(FairqTurn *turn, int most, TimestampTz lease_until,
					  int64 *from, bool *by_row, bool *offers)
{
	FairqLane  *lane = turn->lane;
	FairqGroup *group;

	turn->queued.n = 0;
	*from = FAIRQ_ADDR_MAX;
	*by_row = *offers = false;
	if (!lock_as_of(lane, turn->lane_no))
		return false;
	group = lock_group(lane, turn->group_no, true);
	if (group != NULL)
	{
		turn->queued.n = fairq_hand_take(group, most, turn->queued.items);
		if (turn->queued.n > 0)
			note_narrower(lane);
		note_leased(turn, group, lease_until);
		if (turn->queued.n == 0 && group->upto != FAIRQ_ADDR_MAX)
		{
			*from = group->upto;
			*by_row = group->by_row;
			*offers = begin_reading(group);
		}
		unlock_group(lane, turn->group_no, group);
	}
	LWLockRelease(&lane->lock);
	return turn->queued.n > 0;
}

/*
 * End a reading, which has found these tasks up to "end", in order.  The turn
 * gets up to "most" of them, or of ready tasks before them.  Returns whether
 * it got any.  The others are kept for later if the caller may offer them.
 */
bool
fairq_lane_read_end(FairqTurn *turn, const FairqItem *found, int nfound,
					int64 end, int most, TimestampTz lease_until)
{
	FairqLane  *lane = turn->lane;
	FairqItem  *out = turn->queued.items;
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == turn->lane_no)
		group = lock_group(lane, turn->group_no, false);
	if (group != NULL && group->pid.reader == MyProcPid)
	{
		note_narrower(lane);
		turn->queued.n = fairq_hand_offer(group, found, nfound, end, most,
										  out);
		if (has_nothing(lane, turn->group_no, group))
			take_out(lane, turn->group_no);
	}
	else
	{
		turn->queued.n = Min(most, nfound);
		memcpy(out, found, sizeof(FairqItem) * turn->queued.n);
	}
	if (lane->recovery.lane_no == turn->lane_no)
		note_leased(turn, group, lease_until);
	unlock_group(lane, turn->group_no, group);
	LWLockRelease(&lane->lock);
	return turn->queued.n > 0;
}

/*
 * Drop the group's hand, because its task at the given address no longer
 * exists.
 */
void
fairq_lane_vanished(const FairqTurn *turn, int64 addr)
{
	FairqLane  *lane = turn->lane;
	int32		group_no = turn->group_no;
	FairqGroup *group;

	if (!lock_as_of(lane, turn->lane_no))
		return;
	group = lock_group(lane, group_no, false);
	let_in(lane, group_no);
	if (group != NULL)
		fairq_hand_vanished(group, addr);
	else
		fairq_seats_add(lane, FAIRQ_LATE, group_no);
	unlock_group(lane, group_no, group);
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/* Whether no other call has continued the turn. */
static bool
is_last_part(FairqLane *lane, const FairqTurn *turn)
{
	return lane->turn.addr == turn->addr &&
		lane->turn.left == turn->tasks.left - turn->tasks.want;
}

/*
 * End the group's turn, which yielded no task.  The rest of the turn, possibly
 * for a thousand tasks, would yield no task either.  Returns false if another
 * call has continued the turn.
 */
static bool
cut_short(FairqLane *lane, const FairqTurn *turn)
{
	if (turn->tasks.left == turn->tasks.want)
		return true;
	if (!is_last_part(lane, turn))
		return false;
	lane->turn.left = 0;
	return true;
}

/* Give the group back its last turn, which is in the present block. */
static void
give_back(FairqLane *lane, int32 group_no)
{
	/* the group gets the whole turn again, so drop its rest */
	if (lane->turn.seat == group_no)
		lane->turn.left = 0;
	fairq_seats_remove(lane, FAIRQ_SERVED, group_no);
	if (has(lane, FAIRQ_RING, group_no))
		let_in(lane, group_no);
}

/*
 * Whether the entry shows that a task became ready since the turn was taken.
 */
static bool
was_published_since(FairqLane *lane, const FairqGroup *group,
					const FairqTurn *turn)
{
	return (group != NULL && group->turn.published) ||
		(has(lane, FAIRQ_DUE, turn->group_no) && !turn->sets.due) ||
		(has(lane, FAIRQ_LAPSED, turn->group_no) && !turn->sets.lapsed);
}

/*
 * End a call's part of a turn. The part is over, or the call has not begun it.
 * A part that served nothing is given back; the group has the turn again if no
 * call has another part of it.  The entry may be NULL, or a different one than
 * before.  If so, the turn is given back only if no other call can have a part
 * of it.  A part in which an error has occurred stays used, unless a task of
 * the group was published meanwhile.
 *
 * Returns true if the part must be given back when the call leaves the lane,
 * since the group may have a ready task after all.  If the part were given
 * back at once, the call would visit the group again and again.  If it were
 * never given back, it would count as a turn.
 */
static bool
end_part(FairqLane *lane, FairqGroup *group, const FairqTurn *turn, bool over)
{
	bool		known = group != NULL && group->turn.parts > 0;

	if (!is_by_turns(lane))
	{
		if (turn->tasks.served == 0 && turn->charged.group.tie != 0)
			fairq_lane_order_back(lane, turn, over);
		return false;
	}
	if (turn->in_full || turn->tasks.served > 0)
		return false;
	/* otherwise groups with many blocked tasks would be next in each call */
	if (over && turn->state.left && !was_published_since(lane, group, turn))
	{
		(void) cut_short(lane, turn);
		return false;
	}
	if (!is_past(lane, turn->addr))
	{
		if (over && has(lane, FAIRQ_RING, turn->group_no) &&
			!was_published_since(lane, group, turn))
		{
			(void) cut_short(lane, turn);
			return known;
		}
		if (known ? --group->turn.parts == 0 :
			!turn->state.continued && cut_short(lane, turn))
		{
			give_back(lane, turn->group_no);
			return false;
		}
	}
	/* the rest of the turn that another call has left is next again */
	if (!over && turn->state.continued && is_last_part(lane, turn))
		lane->turn.left = turn->tasks.left;
	return false;
}

/*
 * Give back a part of a group's turn at an address; the part yielded no task.
 * Does nothing if the block has ended, or the entry was evicted.
 */
void
fairq_lane_part_back(FairqLane *lane, uint32 lane_no, int32 group_no,
					 int64 addr)
{
	FairqGroup *group = NULL;

	if (!lock_as_of(lane, lane_no))
		return;
	if (!is_past(lane, addr))
		group = lock_group(lane, group_no, false);
	if (group != NULL)
	{
		if (group->turn.parts > 0 && --group->turn.parts == 0)
			give_back(lane, group_no);
		unlock_group(lane, group_no, group);
	}
	LWLockRelease(&lane->lock);
}

/*
 * Put a group whose leases may have expired into the set "lapsed" and into the
 * ring.  Such a group is no longer parked, since a lapsed task already has its
 * slot.
 */
static void
add_lapsed(FairqLane *lane, int32 group_no)
{
	fairq_seats_add(lane, FAIRQ_LAPSED, group_no);
	fairq_seats_remove(lane, FAIRQ_PARKED, group_no);
	let_in_lapsed(lane, group_no);
}

/*
 * Record in the group's entry the findings of a search for due and lapsed
 * tasks.  The entry is NULL if it was evicted, and findings are NULL if the
 * search was interrupted.
 */
static void
note_findings(FairqLane *lane, FairqGroup *group, const FairqTurn *turn,
			  const FairqFindings *findings)
{
	int32		group_no = turn->group_no;
	bool		due = false;

	if (!turn->sets.searcher)
		return;
	if (group == NULL || group->pid.searcher != MyProcPid || findings == NULL)
	{
		if (group != NULL && group->pid.searcher == MyProcPid)
		{
			group->pid.searcher = 0;
			lower_to_kept(group->due.from, &turn->due.kept);
		}
		if (turn->sets.lapsed)
		{
			add_lapsed(lane, group_no);
			/*
			 * an entry that was made after the turn was taken does not have
			 * the leases
			 */
			for (int r = 0; group != NULL && r < FAIRQ_REGIONS; r++)
				group->run.low[r] = Min(group->run.low[r], turn->run.low[r]);
			if (group != NULL)
				group->run.high = Max(group->run.high, turn->run.high);
		}
		return;
	}
	group->pid.searcher = 0;
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
	{
		if (turn->sets.due)
			group->due.from[r] = Min(findings->due_from[r],
									 group->due.since[r]);
		due |= group->due.from[r] != FAIRQ_ADDR_MAX;
	}
	if (findings->due_kept.n > 0)
	{
		int			r = findings->due_kept.region;

		/* no transaction publishes expired leases, so these items are valid */
		due |= r != FAIRQ_REGION_QUEUED;
		if (r == FAIRQ_REGION_QUEUED || group->due.since[r] == FAIRQ_ADDR_MAX)
			group->due.kept = findings->due_kept;
		else
			lower_to_kept(group->due.from, &findings->due_kept);
	}
	if (!due)
		fairq_seats_remove(lane, FAIRQ_DUE, group_no);
	group->cycle = findings->cycle;
	if (!turn->sets.lapsed)
		return;
	if (!findings->lapsed_done)
	{
		if (findings->paused)
			fairq_seats_add(lane, FAIRQ_LAPSED, group_no);
		else
			add_lapsed(lane, group_no);
		return;
	}
	fairq_lane_order_searched(lane, group_no);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		group->run.low[r] = Min(findings->run_low[r], group->run.since[r]);
	/* the addresses are in the entry already */
	fairq_lane_note_leases(lane, group_no, NULL,
						   &(FairqLeases) {.until = findings->deadline});
}

/*
 * End a turn that is over, or was not begun, and put back the tasks that were
 * taken for it and not used.  If the group had no task to serve, it has had no
 * turn in this block.  Returns true if a turn must be given back when the call
 * leaves the lane.
 */
bool
fairq_lane_turn_end(const FairqTurn *turn, const FairqFindings *findings,
					bool over)
{
	FairqLane  *lane = turn->lane;
	FairqGroup *group;
	int32		group_no = turn->group_no;
	bool		in_vain = false;

	if (!lock_as_of(lane, turn->lane_no))
		return false;
	group = lock_group(lane, group_no, false);
	if (turn->queued.next < turn->queued.n || turn->locked.n > 0)
	{
		if (group != NULL)
		{
			fairq_hand_add(group, turn->queued.items + turn->queued.next,
						   turn->queued.n - turn->queued.next, FAIRQ_ADDR_MAX);
			fairq_hand_add(group, turn->locked.items, turn->locked.n,
						   turn->locked.more);
		}
		else
			fairq_seats_add(lane, FAIRQ_LATE, group_no);
		let_in(lane, group_no);
	}
	if (findings != NULL && findings->leased.until != DT_NOEND)
		fairq_lane_note_leases(lane, group_no, group, &findings->leased);
	note_findings(lane, group, turn, findings);
	if (group != NULL)
	{
		/* an error has interrupted our reading */
		if (group->pid.reader == MyProcPid)
			group->pid.reader = 0;
		if (has_nothing(lane, group_no, group))
			take_out(lane, group_no);
		else
		{
			/*
			 * claims at the call's other turns may have raised "since"
			 * meanwhile
			 */
			if (group->turn.published)
				group->turn.since = Min(group->turn.since, turn->sets.since);
			let_in(lane, group_no);
		}
	}
	if (!turn->state.given_back)
		in_vain = end_part(lane, group, turn, over);
	unlock_group(lane, group_no, group);
	if (turn->in_full && lane->full.seat == group_no)
	{
		if (turn->tasks.served > 0)
			lane->full.left = turn->tasks.left - turn->tasks.served;
		else
			lane->full = turn->full_before;
	}
	LWLockRelease(&lane->lock);
	return in_vain;
}

/*
 * Record that a call has stopped in a turn and has given back all later turns.
 * If the turn was begun, its rest is taken next, even if other calls have left
 * its block.  Otherwise calls could stop at the group again and again.
 */
void
fairq_lane_stopped(const FairqTurn *turn)
{
	FairqLane  *lane = turn->lane;
	bool		is_last;

	if (!lock_as_of(lane, turn->lane_no))
		return;
	is_last = is_last_part(lane, turn);
	if (is_by_turns(lane) && !turn->in_full &&
		has(lane, FAIRQ_RING, turn->group_no) &&
		(turn->tasks.served > 0 || is_past(lane, turn->addr)) &&
		(lane->turn.left == 0 || is_last ||
		 !has(lane, FAIRQ_RING, lane->turn.seat)))
	{
		lane->turn.addr = turn->addr;
		lane->turn.seat = turn->group_no;
		/* other calls may have served the tasks that this call did not use */
		lane->turn.left = (is_last ? turn->tasks.left : turn->tasks.want) -
			turn->tasks.served;
	}
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/*
 * Whether settings in effect require that the group is put aside.  If so, the
 * group's counter records that.  A backend that makes a slot or a start
 * available in the counter takes the group back.  *until is raised to the time
 * at which the counter allows a task to start.
 */
static bool
has_cause(FairqLane *lane, int32 group_no, const FairqCause *cause,
		  int64 *until)
{
	FairqHints *hints = fairq_hints_of(lane);
	int64		next;
	bool		early;

	/* a lapsed task already has its slot, but may not run if the limit is 0 */
	if (cause->pace == NULL)
		return (cause->limit == 0 || !has(lane, FAIRQ_LAPSED, group_no)) &&
			fairq_counter_park(cause->counter, fairq_tally_now(&hints->tally),
							   cause->limit, lane->priority,
							   &hints->versions.now, cause->version);
	if (pg_atomic_read_u64(&hints->versions.now) != cause->version)
		return false;
	next = fairq_counter_next_start(cause->counter, cause->pace,
									1 << lane->priority);
	early = next != 0 || *until > fairq_monotonic();
	*until = Max(*until, next);
	return early;
}

/*
 * Park the turn's group, or throttle it until a time.  Returns true if it is
 * throttled and no other throttled group returns earlier.
 */
static bool
put_group_aside(FairqLane *lane, FairqTurn *turn, bool throttled, int64 until)
{
	int32		group_no = turn->group_no;
	FairqGroup *group = lock_group(lane, group_no, false);
	bool		first;

	leave_ring(lane, group_no, throttled ? FAIRQ_THROTTLED : FAIRQ_PARKED);
	first = throttled && fairq_seats_return_at(lane, group_no, until);
	if (turn->tasks.served == 0 && !turn->state.given_back)
	{
		/*
		 * give the turn back now, because the group may be in the ring again
		 * later
		 */
		(void) end_part(lane, group, turn, false);
		turn->state.given_back = true;
	}
	unlock_group(lane, group_no, group);
	return first;
}

/*
 * If the cause still holds, shut the given tenant of the turn's group;
 * FAIRQ_NO_SEAT: put the group aside.  If the cause is a pace, the tenant or
 * group stays aside at least until the given time of the monotonic clock.
 * Returns true if this tenant or group is throttled and no other throttled one
 * returns earlier.
 */
bool
fairq_lane_put_aside(FairqTurn *turn, int32 tenant, const FairqCause *cause,
					 int64 until)
{
	FairqLane  *lane = turn->lane;
	bool		shuts = tenant != FAIRQ_NO_SEAT;
	int32		flow = shuts ? tenant : turn->group_no;
	bool		throttled = cause->pace != NULL;
	bool		first = false;

	if (throttled)
		fairq_record_have(&lane->seats.back.nodes, flow);
	if (!lock_as_of(lane, turn->lane_no))
		return false;
	unpark_if_asked(lane);
	if ((!shuts || is_tenant(lane, flow)) &&
		has_cause(lane, flow, cause, &until))
		first = !shuts ? put_group_aside(lane, turn, throttled, until) :
			fairq_lane_order_shut(lane, flow, throttled ? FAIRQ_SHUT_UNTIL :
								  cause->limit == 0 ? FAIRQ_SHUT_PAUSED :
								  FAIRQ_SHUT_FULL, until);
	LWLockRelease(&lane->lock);
	return first;
}

/* Take a group, or a tenant that is shut, back into service. */
static void
take_back(FairqLane *lane, int32 group_no)
{
	FairqGroup *group;

	if (has(lane, FAIRQ_SHUT, group_no))
	{
		fairq_lane_order_open(lane, group_no);
		fairq_seats_add(lane, FAIRQ_TODO, group_no);
		return;
	}
	group = lock_group(lane, group_no, false);
	remove_group(lane, group_no);
	let_in_lapsed(lane, group_no);
	unlock_group(lane, group_no, group);
}

/*
 * Take the group or tenant back into service in the given lanes if it is
 * aside.  The group or tenant has a slot again, or may start a task.
 */
void
fairq_take_back(FairqHints *hints, int32 group_no, uint16 lanes)
{
	for (int priority = 0; lanes != 0; priority++, lanes >>= 1)
	{
		FairqLane  *lane = &hints->lanes[priority];

		if ((lanes & 1) == 0)
			continue;
		LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
		if (is_begun(lane) && (is_aside(lane, group_no) ||
							   has(lane, FAIRQ_SHUT, group_no)))
			take_back(lane, group_no);
		LWLockRelease(&lane->lock);
	}
}

/*
 * Take back up to "most" groups and tenants whose time has come.  Returns
 * their number; there may be more.
 */
int
fairq_lane_come_back(FairqLane *lane, int most)
{
	int64		first = fairq_lane_next_back(lane);
	int64		now;
	int			n = 0;

	if (first == PG_INT64_MAX || first > (now = fairq_monotonic()))
		return 0;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	while (n < most && is_begun(lane) && fairq_lane_next_back(lane) <= now)
	{
		take_back(lane, fairq_order_first(&lane->seats.back.order,
										  &lane->seats.back.nodes));
		n++;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * Find the first parked group, or tenant without a slot, at or after a seat.
 * Returns false if there is none, or the lane is invalid.  Skips groups that
 * return with their tenants.
 */
bool
fairq_lane_next_parked(FairqLane *lane, bool tenants, int32 *group_no)
{
	FairqSeatSet set = tenants ? FAIRQ_SHUT : FAIRQ_PARKED;
	int32		next;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	unpark_if_asked(lane);
	next = is_begun(lane) ? fairq_seats_next(lane, set, *group_no) :
		FAIRQ_NO_SEAT;
	while (next != FAIRQ_NO_SEAT &&
		   (tenants ?
			account_if_any(lane, next)->level.shut == FAIRQ_SHUT_UNTIL :
			fairq_lane_order_is_closed(lane, next)))
		next = fairq_seats_next(lane, set, next + INT64CONST(1));
	LWLockRelease(&lane->lock);
	*group_no = next;
	return next != FAIRQ_NO_SEAT;
}
