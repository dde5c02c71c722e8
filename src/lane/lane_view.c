/*
 * lane_view.c
 *		Copies of a lane's state, for views, statistics and peek.
 *
 * These functions answer three questions.  What is the state of the lane?
 * Which of its groups wait or run, and how long have they waited?  In a lane
 * that is not task-fair, which amounts have groups got, and how large is the
 * difference?
 *
 * The group that has got the least is the first group of some level of the
 * ordered set.  The group that has got the most is the last group of some
 * level.  A group that has left the ring can still be in the set; calls skip
 * it.  At most MOST_EXAMINED groups are examined.  If these do not suffice,
 * the answer is not known.
 *
 * The functions change no lane and make no entry.
 *
 * Locking: the lane's lock, shared, while one lane or FAIRQ_WAITS groups are
 * copied; under it the mutex of one group set.
 */
#include "postgres.h"

#include "lane_internal.h"
#include "lane_view.h"

/* Sets of waiting groups, and of running ones. */
#define WAITING (1 << FAIRQ_RING | 1 << FAIRQ_PARKED | 1 << FAIRQ_THROTTLED)
#define RUNNING (1 << FAIRQ_LEASED | 1 << FAIRQ_LAPSED)

/* groups that are examined at each end of the ordered set */
#define MOST_EXAMINED 1000

/* For the view fairq.lanes: copy the data of the lane. */
void
fairq_lane_view(FairqLane *lane, FairqLaneView *view)
{
	int32	   *n = view->lane.seats.n;

	LWLockAcquire(&lane->lock, LW_SHARED);
	view->begun = is_begun(lane);
	memcpy(&view->lane, lane, sizeof(FairqLane));
	/*
	 * count only groups in front, whose seats have been passed in this block
	 */
	n[FAIRQ_TODO] = fairq_seats_count(lane, FAIRQ_TODO, lane->present.seat);
	LWLockRelease(&lane->lock);
	/* in a lane that is not task-fair, all seats count as passed */
	if (!is_by_turns(&view->lane))
		view->lane.present.seat = FAIRQ_NO_SEAT;
	/* only the sets of leases are valid in an invalid lane */
	for (int set = 0; set < FAIRQ_SEAT_SETS && !view->begun; set++)
		if (set != FAIRQ_LAPSED && set != FAIRQ_LEASED)
			n[set] = 0;
}

/* Copy the entry of a group, or one that is filled in for this purpose. */
static void
copy_entry(const FairqGroup *group, FairqWait *wait)
{
	wait->from = fairq_hand_low(group);
	wait->tail = group->tail.addr;
	wait->run_high = group->run.high;
	memcpy(wait->run_low, group->run.low, sizeof(wait->run_low));
	memcpy(wait->due_from, group->due.from, sizeof(wait->due_from));
	lower_to_kept(wait->due_from, &group->due.kept);
}

/*
 * Whether the group is throttled, and a call at this moment would not take the
 * group back.
 */
static bool
is_throttled(FairqLane *lane, int32 group_no)
{
	const FairqNode *node = has(lane, FAIRQ_THROTTLED, group_no) ?
		fairq_record(&lane->seats.back.nodes, group_no) : NULL;

	return node != NULL && node->rank.amount.whole > fairq_monotonic() &&
		lane->present.unparks ==
		pg_atomic_read_u64(&fairq_hints_of(lane)->unparks);
}

/* Copy the data of a group of a lane whose recovery has begun. */
static void
copy_wait(FairqLane *lane, int32 group_no, FairqWait *wait)
{
	FairqGroup *group;

	wait->group_no = group_no;
	wait->waits = !is_out(lane, group_no) || !is_known(lane, group_no);
	wait->due = has(lane, FAIRQ_DUE, group_no);
	wait->set = has(lane, FAIRQ_RING, group_no) ? FAIRQ_RING :
		has(lane, FAIRQ_PARKED, group_no) ? FAIRQ_PARKED :
		has(lane, FAIRQ_THROTTLED, group_no) ? FAIRQ_THROTTLED : FAIRQ_LEASED;
	wait->throttled = is_throttled(lane, group_no);
	wait->leased = has(lane, FAIRQ_LEASED, group_no);
	wait->deadline = has(lane, FAIRQ_LAPSED, group_no) ? DT_NOBEGIN :
		wait->leased ? *fairq_seats_deadline(lane, group_no) : DT_NOEND;
	wait->next_turn = next_turn(lane, group_no);
	group = lock_group(lane, group_no, false);
	wait->since = DT_NOBEGIN;
	if (group != NULL)
	{
		wait->since = waits_since(lane, group_no, group);
		copy_entry(group, wait);
		fairq_entry_unlock(group);
	}
	else
	{
		FairqGroup	made = {.tail.addr = FAIRQ_TAIL_UNKNOWN};

		fairq_lane_init_entry(lane, group_no, &made);
		copy_entry(&made, wait);
	}
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		wait->due_from[r] = Min(wait->due_from[r],
								fairq_times_first(&lane->times, r));
}

/*
 * The first group at or after a seat that is in any of the sets, which have
 * one bit each.  FAIRQ_ALL_SEATS: none.  next has the next group of each set
 * that the search has found; -1 at the beginning.
 */
static int64
next_of(FairqLane *lane, uint32 sets, int64 *next, int64 from)
{
	int64		first = FAIRQ_ALL_SEATS;

	for (int set = 0; set < FAIRQ_SEAT_SETS; set++)
	{
		if (((sets >> set) & 1) == 0)
			continue;
		if (next[set] < from)
			next[set] = fairq_seats_next(lane, set, from);
		if (next[set] == FAIRQ_NO_SEAT)
			next[set] = FAIRQ_ALL_SEATS;
		first = Min(first, next[set]);
	}
	return first;
}

/*
 * Copy the data of the first FAIRQ_WAITS waiting groups at or after a seat.
 * If a lease in the lane may have expired by the given time, includes running
 * groups.  Returns the number of groups; 0 if the lane is invalid.
 */
int
fairq_lane_waits(FairqLane *lane, TimestampTz ended_by, int64 from,
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
	while (n < FAIRQ_WAITS && is_begun(lane))
	{
		int64		first = next_of(lane, sets, next, from);

		if (first == FAIRQ_ALL_SEATS)
			break;
		copy_wait(lane, (int32) first, &waits[n++]);
		from = first + 1;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/* Copy the data of one group.  Returns false if the lane is invalid. */
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

/* Returns the amount that a group has got, per weight. */
static double
got_of(FairqLane *lane, const FairqAccount *account, TimestampTz now)
{
	const FairqLedger *ledger = &lane->order.ledger;

	return ledger->fair_by == FAIRQ_BY_TIME ?
		fairq_account_got(ledger, account, now) / USECS_PER_SEC :
		fairq_amount_value(account->node.rank.amount);
}

/*
 * Find the least amount that a waiting group has got; with most, the greatest.
 * Returns false if no group waits, or the amount is not known.
 */
static bool
find_end(FairqLane *lane, bool most, TimestampTz now, double *end)
{
	FairqRecords *accounts = &lane->order.accounts;
	const FairqOrder *order = &lane->order.flows.order;
	FairqRank	at = {.level = most ? PG_INT32_MAX : -1};
	bool		found = false;
	int			nlevels = 0;

	for (int n = 0; n < MOST_EXAMINED && nlevels < FAIRQ_MOST_LEVELS; n++)
	{
		int32		group_no = fairq_order_next_to(order, accounts, &at,
												   !most);
		const FairqAccount *account;
		double		got;

		if (group_no == FAIRQ_NO_NODE)
			return found;
		account = account_if_any(lane, group_no);
		if (account == NULL)
			return false;
		at = account->node.rank;
		if (!is_active(lane, group_no, account))
			continue;
		got = got_of(lane, account, now);
		if (!found || (most ? got > *end : got < *end))
			*end = got;
		found = true;
		nlevels++;
		/* continue with the next level */
		at.amount.whole = most ? PG_INT64_MIN : PG_INT64_MAX;
	}
	return found && nlevels == FAIRQ_MOST_LEVELS;
}

/* Copy the numbers that measure the lane's fairness. */
void
fairq_lane_fairness(FairqLane *lane, TimestampTz now, FairqFairness *fairness)
{
	const FairqLedger *ledger = &lane->order.ledger;

	memset(fairness, 0, sizeof(*fairness));
	LWLockAcquire(&lane->lock, LW_SHARED);
	fairness->begun = is_begun(lane);
	if (fairness->begun)
	{
		fairness->fair_by = ledger->fair_by;
		fairness->known = lane->recovery.known == FAIRQ_ALL_SEATS;
		fairness->nready = lane->seats.n[FAIRQ_RING];
	}
	if (fairness->begun && !is_by_turns(lane))
	{
		fairness->ranked = fairness->nready > 0 &&
			find_end(lane, false, now, &fairness->least) &&
			find_end(lane, true, now, &fairness->most);
		fairness->longest = ledger->longest;
	}
	LWLockRelease(&lane->lock);
}

/*
 * Copy a group's account, and the amount that the group has got, per weight.
 * Returns false if the group has no account.
 */
bool
fairq_lane_served(FairqLane *lane, TimestampTz now, int32 group_no,
				  FairqAccount *account, double *got)
{
	const FairqAccount *found = NULL;

	LWLockAcquire(&lane->lock, LW_SHARED);
	if (is_begun(lane) && !is_by_turns(lane))
		found = account_if_any(lane, group_no);
	if (found != NULL)
	{
		*got = got_of(lane, found, now);
		*account = *found;
	}
	LWLockRelease(&lane->lock);
	return found != NULL;
}
