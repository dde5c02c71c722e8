/*
 * lane_end.c
 *		The end of a turn: unused tasks and turns go back.
 *
 * If a turn is given back and its block is still the present one, the group
 * gets the turn again.  A turn that yielded no task is also given back.  The
 * section "Fairness" of README lists which function does that and when, and
 * when the turn is lost.  For this, the group's entry counts the parts of its
 * last turn that calls have taken.
 *
 * Locking: as in lane.c.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "entry.h"
#include "lane.h"
#include "lane_internal.h"
#include "lane_order.h"

/* Whether no other call has continued the turn. */
static bool
is_last_part(FairqLane *lane, const FairqTurn *turn)
{
	return lane->turn.addr == turn->addr &&
		lane->turn.left == turn->tasks.left - turn->tasks.want;
}

/*
 * End the group's turn, which yielded no task.  The rest of the turn would
 * yield no task either, up to a thousand times.  Returns false if another call
 * has continued the turn.
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

/* Give the group its last turn back, a turn of the present block. */
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
 * End a call's part of a turn, which is over, or which the call has not begun.
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
bool
fairq_lane_end_part(FairqLane *lane, FairqGroup *group, const FairqTurn *turn,
					bool over)
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
	FairqGroupSet *set;
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no && !is_past(lane, addr))
		group = lock_group(lane, group_no, false, &set);
	if (group != NULL)
	{
		if (group->turn.parts > 0 && --group->turn.parts == 0)
			give_back(lane, group_no);
		unlock_group(lane, group_no, group, set);
	}
	LWLockRelease(&lane->lock);
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

	if (!turn->searcher)
		return;
	if (group == NULL || group->pid.searcher != MyProcPid || findings == NULL)
	{
		if (group != NULL && group->pid.searcher == MyProcPid)
		{
			group->pid.searcher = 0;
			if (turn->due.n > 0 && turn->due.region != FAIRQ_REGION_QUEUED)
				group->due.from[turn->due.region] =
					Min(group->due.from[turn->due.region],
						turn->due.items[0].addr);
		}
		if (turn->sets.lapsed)
		{
			fairq_lane_has_lapsed(lane, group_no);
			/* an entry made since then does not have the leases */
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
		if (findings->due_done)
			group->due.from[r] = Min(findings->due_from[r],
									 group->due.since[r]);
		due |= group->due.from[r] != FAIRQ_ADDR_MAX;
	}
	if (findings->ndue > 0)
	{
		int			r = findings->due_region;

		/* no transaction publishes expired leases, so these items are valid */
		due |= r != FAIRQ_REGION_QUEUED;
		if (r == FAIRQ_REGION_QUEUED || group->due.since[r] == FAIRQ_ADDR_MAX)
		{
			group->due.n = findings->ndue;
			group->due.region = r;
			memcpy(group->due.items, findings->due_items,
				   sizeof(group->due.items));
		}
		else
			group->due.from[r] = Min(group->due.from[r],
									 findings->due_items[0].addr);
	}
	if (!due)
		fairq_seats_remove(lane, FAIRQ_DUE, group_no);
	group->cycle.addr = findings->cycle;
	group->cycle.id = findings->cycle_id;
	if (!turn->sets.lapsed)
		return;
	if (!findings->lapsed_done)
	{
		if (findings->paused)
			fairq_seats_add(lane, FAIRQ_LAPSED, group_no);
		else
			fairq_lane_has_lapsed(lane, group_no);
		return;
	}
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
fairq_lane_turn_end(FairqLane *lane, uint32 lane_no, const FairqTurn *turn,
					const FairqFindings *findings, bool over)
{
	FairqGroupSet *set;
	FairqGroup *group;
	int32		group_no = turn->group_no;
	bool		in_vain = false;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no != lane_no)
	{
		LWLockRelease(&lane->lock);
		return false;
	}
	group = lock_group(lane, group_no, false, &set);
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
		if (has_nothing(lane, group_no, group))
			take_out(lane, group_no);
		else
		{
			/* claims at the call's other turns may have raised it meanwhile */
			if (group->turn.published)
				group->turn.since = Min(group->turn.since, turn->sets.since);
			let_in(lane, group_no);
		}
	}
	if (!turn->state.parked)
		in_vain = fairq_lane_end_part(lane, group, turn, over);
	unlock_group(lane, group_no, group, set);
	if (turn->in_full && lane->full.seat == group_no)
	{
		if (turn->tasks.served > 0)
			lane->full.left = turn->tasks.left - turn->tasks.served;
		else
		{
			lane->full.seat = turn->full_before.seat;
			lane->full.left = turn->full_before.left;
		}
	}
	LWLockRelease(&lane->lock);
	return in_vain;
}

/*
 * Record that a call has stopped in a turn and has given back all later turns.
 * If the turn was begun, its rest is taken next, even if other calls have left
 * its block.  Otherwise these calls could stop at the group again and again.
 */
void
fairq_lane_stopped(FairqLane *lane, uint32 lane_no, const FairqTurn *turn)
{
	bool		is_last;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	is_last = is_last_part(lane, turn);
	if (lane->recovery.lane_no == lane_no && is_by_turns(lane) &&
		!turn->in_full && has(lane, FAIRQ_RING, turn->group_no) &&
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
