/*
 * lane_take.c
 *		Taking turns of a lane: the next group, and its next tasks.
 *
 * A pop takes several turns at once, with tasks off the hands of their groups.
 * These turns and tasks are in flight.  Then it claims the rows, without a
 * lock.  It gives back tasks that it does not need or cannot claim, at the
 * latest when its transaction ends (turn.c, lane_end.c).
 *
 * A full queue can only serve tasks that already have a slot: those with
 * lapsed leases.  Their groups are served in the order of their seats, up to
 * their weights, but not at their turns.  The block does not advance, because
 * other groups, which cannot be served now, would lose their turns.
 *
 * Locking: as in lane.c.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "entry.h"
#include "lane.h"
#include "lane_internal.h"
#include "lane_order.h"

/* most groups without an entry that a call passes over before it gives up */
#define MAX_CROWDED 64

/*
 * groups of the order that are examined while the lane's lock is held: less
 * than a millisecond
 */
#define MOST_LOOKED 1000

/* Begin to search a group for due and lapsed tasks. */
static void
read_due(FairqLane *lane, FairqGroup *group, FairqTurn *turn)
{
	turn->sets.due = has(lane, FAIRQ_DUE, turn->group_no);
	turn->sets.lapsed = has(lane, FAIRQ_LAPSED, turn->group_no);
	if (!turn->sets.due && !turn->sets.lapsed)
		return;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		turn->due.from[r] = group->due.from[r];
		turn->run.low[r] = group->run.low[r];
	}
	turn->due.n = turn->due.next = 0;
	turn->run.high = group->run.high;
	turn->cycle.addr = group->cycle.addr;
	turn->cycle.id = group->cycle.id;
	if (group->pid.searcher != 0)
		return;
	turn->searcher = true;
	group->pid.searcher = MyProcPid;
	turn->due.n = group->due.n;
	turn->due.region = group->due.region;
	memcpy(turn->due.items, group->due.items, sizeof(group->due.items));
	group->due.n = 0;
	if (turn->sets.lapsed)
	{
		/* leases that lapse during the search are recorded again */
		fairq_seats_remove(lane, FAIRQ_LAPSED, turn->group_no);
		pg_atomic_write_u64(&lane->searches,
							pg_atomic_read_u64(&lane->searches) + 1);
	}
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		group->due.since[r] = group->run.since[r] = FAIRQ_ADDR_MAX;
}

/* The next turn: its group, its place, and how it was found. */
typedef struct NextTurn
{
	int32		group_no;
	int64		block;
	int64		addr;
	int32		left;			/* tasks left, if the turn was begun, or 1 if
								 * the lane is not task-fair; else 0 */
	int64		from;			/* no group below this seat has a turn to come
								 * in the block */
} NextTurn;

/*
 * Find the next turn that the hints know.  Returns false if the ring is empty.
 * In a lane that is not task-fair there are other reasons.  The call passes
 * over all groups of the ring, or lacks an account.  Or taking->steps is below
 * 0, and the search must continue.
 */
static bool
find_next(FairqLane *lane, FairqTaking *taking, NextTurn *next)
{
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
	next->addr = fairq_address(next->group_no, next->block,
							   lane->recovery.block_length);
	if (next->addr == FAIRQ_ADDR_NONE)
		next->addr = fairq_last_address(next->group_no,
										lane->recovery.block_length);
	return true;
}

/* Whether all seats are known whose turns could come before that one. */
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
		fairq_seats_begin_block(lane);
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
 * The last turn can be the lowest, because a group in front is in the same
 * block.
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

/* Fill in a turn.  Returns false if the group has no task to serve. */
static bool
take_turn(FairqLane *lane, FairqTaking *taking, const NextTurn *next,
		  FairqGroup *group, FairqTurn *turn)
{
	int32		group_no = next->group_no;
	int32		left = next->left > 0 ? next->left :
		taking->weight_of(taking->arg, group_no);
	int64		of_each = taking->wanted / lane->seats.n[FAIRQ_RING];

	turn->in_full = false;
	turn->group_no = group_no;
	turn->addr = next->addr;
	turn->block = lane->present.block + taking->window.past;
	turn->state.continued = is_by_turns(lane) && next->left > 0;
	turn->tasks.left = left;
	turn->tasks.want = (int32) Min(left, taking->wanted);
	turn->tasks.read_want = (int32) Min(Max(turn->tasks.want, of_each),
										FAIRQ_MAX_TURNS);
	turn->sets.entry = group;
	turn->sets.since = group->turn.since;
	turn->searcher = false;
	turn->charged.group.tie = 0;
	turn->charged.tenant = FAIRQ_NO_SEAT;
	turn->charged.group.now = taking->order.now;
	turn->state.begun = turn->state.done = false;
	turn->state.parked = turn->state.throttled = false;
	turn->state.left = false;
	turn->queued.reread = turn->queued.apart = false;
	turn->queued.next = turn->tasks.served = turn->locked.n = 0;
	turn->locked.more = FAIRQ_ADDR_MAX;
	read_due(lane, group, turn);
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
		fairq_lane_note_leased(lane, group_no, group, turn->queued.items,
							   turn->queued.n, taking->lease_until);
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

/* Whether the lane's fair_by is the one that the backend expects. */
static bool
is_ready_for(FairqLane *lane, const FairqTaking *taking)
{
	return is_begun(lane) && lane->order.ledger.fair_by == taking->order.by;
}

/*
 * Lock the lane to take its turns.  If turns cannot be taken yet, returns
 * false, and the lane is not locked; *result says why.
 */
static bool
begin_taking(FairqLane *lane, FairqTaking *taking, FairqTaken *result)
{
	taking->n = 0;
	taking->order.steps = MOST_LOOKED;
	taking->order.lacks = false;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_ready_for(lane, taking))
	{
		taking->lane_no = lane->recovery.lane_no;
		taking->renewals = lane->present.renewals;
		taking->clock = lane->clock;
		return true;
	}
	*result = is_begun(lane) ? FAIRQ_NOT_READY : FAIRQ_NOT_KNOWN;
	LWLockRelease(&lane->lock);
	return false;
}

/*
 * Take the next turns, with tasks off the hands of their groups.  Stops after
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
	fairq_lane_unpark_if_asked(lane);
	begun_in = lane->present.block;
	while (taking->n < taking->most && taking->wanted > 0)
	{
		FairqTurn  *turn = &taking->turns[taking->n];
		FairqGroupSet *set;
		FairqGroup *group;
		bool		taken;

		if (!find_next(lane, taking, &next))
		{
			result = taking->order.lacks ? FAIRQ_NOT_READY :
				taking->order.steps < 0 ? FAIRQ_NOT_FOUND :
				lane->recovery.known < FAIRQ_ALL_SEATS ? FAIRQ_NOT_KNOWN :
				FAIRQ_NONE_READY;
			break;
		}
		if (!is_covered(lane, &next))
		{
			result = FAIRQ_NOT_KNOWN;
			break;
		}
		if (!may_take(taking, &next, lane->recovery.block_length))
		{
			result = FAIRQ_NOT_NOW;
			break;
		}
		group = lock_group(lane, next.group_no, true, &set);
		if (group == NULL)
		{
			/* all entries that the group could get are pinned at the moment */
			result = FAIRQ_NOT_NOW;
			if (++crowded > MAX_CROWDED || !is_by_turns(lane))
				break;
			lane->turn.left = 0;
			pass_to(lane, taking, &next);
			fairq_seats_add(lane, FAIRQ_SERVED, next.group_no);
			fairq_seats_add(lane, FAIRQ_LATE, next.group_no);
			continue;
		}
		/*
		 * Serve the turns so far before one that needs a search or a reading.
		 * Those turns may still fill the group's hand, or put back tasks that
		 * they do not need.  Where the order depends on served tasks, a turn
		 * that may yield no task must be the call's first.
		 */
		if (taking->n > 0 && (next.block > begun_in || !is_by_turns(lane)) &&
			(any_search ||
			 (!fairq_hand_has_any(group) && group->upto != FAIRQ_ADDR_MAX)))
		{
			fairq_entry_unlock(set);
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
		unlock_group(lane, next.group_no, group, set);
	}
	taking->searches = pg_atomic_read_u64(&lane->searches);
	LWLockRelease(&lane->lock);
	return taking->n > 0 ? FAIRQ_TAKEN : result;
}

/*
 * Copy the hand of the group whose turn is next, without taking its tasks.
 * Returns false if it has none.
 */
bool
fairq_lane_glance(FairqLane *lane, FairqTaking *taking, FairqTurn *turn)
{
	NextTurn	next = {0};
	FairqGroupSet *set;
	FairqGroup *group = NULL;

	turn->queued.n = 0;
	taking->order.steps = MOST_LOOKED;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_ready_for(lane, taking))
	{
		fairq_lane_unpark_if_asked(lane);
		if (find_next(lane, taking, &next) && is_covered(lane, &next))
			group = lock_group(lane, next.group_no, false, &set);
	}
	if (group != NULL)
	{
		FairqGroup	copy = *group;

		taking->lane_no = lane->recovery.lane_no;
		turn->group_no = next.group_no;
		turn->addr = next.addr;
		turn->charged.tenant = fairq_lane_order_tenant_of(lane, next.group_no);
		turn->tasks.served = 0;
		turn->state.begun = false;
		turn->queued.n = fairq_hand_take(&copy, FAIRQ_HAND,
										 turn->queued.items);
		fairq_entry_unlock(set);
	}
	LWLockRelease(&lane->lock);
	return turn->queued.n > 0;
}

/*
 * In a full queue, take the next group with lapsed leases after tried_seat, in
 * the order of seats; -1: after the last one.  This does not count as a turn
 * of the block: its address is that of the group's next turn.
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
	fairq_lane_unpark_if_asked(lane);
	*nlapsed = lane->seats.n[FAIRQ_LAPSED];
	seat = tried_seat != FAIRQ_NO_SEAT ? tried_seat : lane->full.seat;
	if (tried_seat != FAIRQ_NO_SEAT || lane->full.left == 0)
		seat++;
	group_no = fairq_lane_next_lapsed(lane, Max(seat, 0),
									  &taking->order.steps);
	if (group_no == FAIRQ_NO_SEAT && taking->order.steps >= 0)
		group_no = fairq_lane_next_lapsed(lane, 0, &taking->order.steps);
	if (group_no != FAIRQ_NO_SEAT)
		group = lock_group(lane, group_no, true, &set);
	if (group != NULL)
	{
		note_narrower(lane);
		memset(turn, 0, sizeof(FairqTurn));
		turn->group_no = group_no;
		turn->charged.tenant = FAIRQ_NO_SEAT;
		turn->addr = next_turn(lane, group_no);
		turn->in_full = true;
		turn->locked.more = FAIRQ_ADDR_MAX;
		turn->queued.more = !fairq_hand_is_empty(group);
		turn->sets.since = group->turn.since;
		turn->full_before.seat = lane->full.seat;
		turn->full_before.left = lane->full.left;
		turn->state.continued = group_no == lane->full.seat &&
			lane->full.left > 0;
		turn->tasks.left = turn->state.continued ? lane->full.left :
			taking->weight_of(taking->arg, group_no);
		turn->tasks.want = (int32) Min(turn->tasks.left, taking->wanted);
		read_due(lane, group, turn);
		lane->full.seat = group_no;
		lane->full.left = 0;
		unlock_group(lane, group_no, group, set);
		taking->n = 1;
	}
	taking->searches = pg_atomic_read_u64(&lane->searches);
	LWLockRelease(&lane->lock);
	return group != NULL ? FAIRQ_TAKEN :
		taking->order.steps < 0 ? FAIRQ_NOT_FOUND : FAIRQ_NONE_READY;
}

/* --------------------------------------------------------------------- */

/*
 * Give the caller, whose turn has no task left, up to "most" tasks of the
 * group's hand.  Returns their number.  If that is 0, the caller must read
 * from *from on; FAIRQ_ADDR_MAX: there is nothing to read.  *by_row says
 * whether it examines rows, *offers whether it may offer what it finds.
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
	if (lane->recovery.lane_no == lane_no)
		group = lock_group(lane, group_no, true, &set);
	if (group != NULL)
	{
		n = fairq_hand_take(group, most, out);
		if (n > 0)
			note_narrower(lane);
		fairq_lane_note_leased(lane, group_no, group, out, n, lease_until);
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
 * End a reading, which has found these tasks up to "end", in order.  The
 * caller gets up to "most" of them, or of ready tasks before them.  Returns
 * their number.  The others are kept for later if the caller may offer them.
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
	if (lane->recovery.lane_no == lane_no)
		group = lock_group(lane, group_no, false, &set);
	if (group != NULL && group->pid.reader == MyProcPid)
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
	if (lane->recovery.lane_no == lane_no)
		fairq_lane_note_leased(lane, group_no, group, out, n, lease_until);
	unlock_group(lane, group_no, group, set);
	LWLockRelease(&lane->lock);
	return n;
}

/* End the caller's reading after an error. */
void
fairq_lane_read_failed(FairqLane *lane, uint32 lane_no, int32 group_no)
{
	FairqGroupSet *set;
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
		group = lock_group(lane, group_no, false, &set);
	if (group != NULL)
	{
		if (group->pid.reader == MyProcPid)
			group->pid.reader = 0;
		fairq_entry_unlock(set);
	}
	LWLockRelease(&lane->lock);
}

/*
 * Drop the group's hand: its task at an address no longer exists.
 */
void
fairq_lane_vanished(FairqLane *lane, uint32 lane_no, int32 group_no,
					int64 addr)
{
	FairqGroupSet *set;
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
	{
		group = lock_group(lane, group_no, false, &set);
		let_in(lane, group_no);
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
