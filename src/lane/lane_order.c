/*
 * lane_order.c
 *		The order of service in cost-fair and time-fair lanes.
 *
 * There the groups that may have something ready are not served in the order
 * of their seats.  Their order depends on what they have been served so far
 * (account.c).  In cost-fair lanes, the first group of an ordered set is next,
 * for one task.  In time-fair lanes, the best of the first groups of each
 * level is next.  There are two levels on average.
 *
 * The sets of the lane (lane.c) are used as in other lanes, with three
 * exceptions:
 *
 * served	The group is in the ordered set, at its account's rank.
 *
 * todo		The group is in the ring, and has come, or come again; or, in a
 *			time-fair lane, has lapsed.  The next call that takes turns adds it
 *			to the ordered set, or adds it again.  So a call that publishes a
 *			task, or takes many groups back into the ring, sets bits as in
 *			other lanes, and needs no account.
 *
 * ring		A group that leaves it may stay in the ordered set, until a search
 *			visits it there and removes it.
 *
 * A turn that yields nothing is not charged: the group is again where it was.
 * The call passes over it from then on (visits.c), and other calls do not.
 * The call's next search continues behind it.  A search that visits very many
 * groups ends, and continues after it has taken the lock again.  In time-fair
 * lanes, a group whose turn yields nothing comes again: meanwhile it saves up
 * nothing.
 *
 * In cost-fair lanes, a charge stays when the pop is rolled back, as a turn is
 * used (README, "Fairness").  In time-fair lanes, pending changes record which
 * tasks the transaction has begun and ended (FairqWork).  An abort undoes the
 * former, and a commit charges the latter.  Accounts are lost with the lane:
 * then all groups are even.
 *
 * Accounts are allocated only when a group comes, since in most lanes most
 * groups have none.  If a call meets a group that comes without one, it stops,
 * allocates it, and tries again.
 *
 * Locking: the lane's lock, exclusively.  Records are made without it
 * (fairq_lane_have_accounts, prepare).
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "lane.h"
#include "lane_internal.h"
#include "lane_order.h"
#include "shadow.h"

/* most groups to add to the ordered set before the next turn is taken */
#define MOST_ADDED 64

/* most groups that have left the ring to remove before these are added */
#define MOST_STALE 1000

/* Initialize the ordered set, before the lane uses any accounts. */
void
fairq_lane_order_init(FairqLane *lane)
{
	fairq_order_init(&lane->order.set, sizeof(FairqAccount));
}

/* Allocate accounts for the groups that come.  The lane is not locked. */
void
fairq_lane_have_accounts(FairqLane *lane)
{
	int64		from = 0;

	for (;;)
	{
		int32		group_no;
		int			chunk;

		LWLockAcquire(&lane->lock, LW_SHARED);
		group_no = fairq_seats_next(lane, FAIRQ_TODO, from);
		LWLockRelease(&lane->lock);
		if (group_no == FAIRQ_NO_SEAT)
			return;
		chunk = fairq_chunk_of(group_no);
		fairq_order_have(&lane->order.set, group_no);
		from = fairq_chunk_first(chunk) + fairq_chunk_seats(chunk);
	}
}

/* Copy the lane's account to one that is new in a copy of the lane. */
static void
copy_account(FairqLane *lane, int32 group_no, FairqAccount *account)
{
	const FairqAccount *real;

	LWLockAcquire(&lane->lock, LW_SHARED);
	real = fairq_order_record(&lane->order.set, group_no);
	if (real != NULL)
		*account = *real;
	LWLockRelease(&lane->lock);
}

/* The account of a group; one that is void is initialized again. */
static FairqAccount *
account_of(FairqLane *lane, int32 group_no)
{
	FairqAccount *account = fairq_order_record(&lane->order.set, group_no);

	if (account->lane_no == 0 && fairq_in_shadow(lane))
		copy_account(fairq_shadow_real(lane), group_no, account);
	if (account->lane_no != lane->recovery.lane_no)
		fairq_account_init(account, lane->recovery.lane_no);
	return account;
}

static FairqMoment
moment(FairqLane *lane, int32 group_no, TimestampTz now)
{
	return (FairqMoment)
	{
		.now = now,.lapsed = has(lane, FAIRQ_LAPSED, group_no)
	};
}

/* Remove a group from the ordered set.  False if it was not there. */
static bool
remove_from_order(FairqLane *lane, int32 group_no)
{
	if (!has(lane, FAIRQ_SERVED, group_no))
		return false;
	fairq_order_remove(&lane->order.set, group_no);
	fairq_seats_remove(lane, FAIRQ_SERVED, group_no);
	return true;
}

/*
 * Add a group, whose rank was changed, to the ordered set again, if it was in
 * it.
 */
static void
add_to_order(FairqLane *lane, int32 group_no, bool was_in)
{
	if (!was_in)
		return;
	fairq_seats_add(lane, FAIRQ_SERVED, group_no);
	fairq_order_add(&lane->order.set, group_no);
}

/*
 * If a group was added since before the rank up to which the call passes over
 * a level, lower that rank.  A group that the call passes over anyway does not
 * count.
 */
static void
heed_added(FairqLane *lane, FairqVisits *visits, FairqRank *upto)
{
	FairqRank	at = {.level = upto->level - 1,.amount.whole = PG_INT64_MAX};
	int32		next;

	while ((next = fairq_order_added_after(&lane->order.set, &at,
										   visits->passed.added)) != FAIRQ_NO_NODE)
	{
		at = account_of(lane, next)->node.rank;
		visits->looked++;
		if (fairq_rank_compare(&at, upto) > 0)
			break;
		if (fairq_visits_pass(visits, next))
			continue;
		/* to the highest rank before that group; the lowest tie is 1 */
		*upto = at;
		upto->tie--;
		break;
	}
}

/* Do the same in all levels. */
static void
heed_all_added(FairqLane *lane, FairqVisits *visits)
{
	/* ranks from before the lane's last recovery are void */
	if (visits->passed.lane_no != lane->recovery.lane_no)
		visits->passed.n = 0;
	for (int i = 0; i < visits->passed.n; i++)
		heed_added(lane, visits, &visits->passed.upto[i]);
	visits->passed.lane_no = lane->recovery.lane_no;
	visits->passed.added = lane->order.set.added;
}

/*
 * Returns the first group behind a rank, or of all (NULL), that may have
 * something ready.  Groups that the call passes over do not count.  The rank
 * is at the end of a level.  FAIRQ_NO_NODE: there is none, or no steps are
 * left.
 */
static int32
next_behind(FairqLane *lane, FairqVisits *visits, const FairqRank *behind,
			int *steps)
{
	int32		next = behind == NULL ? fairq_order_first(&lane->order.set) :
		fairq_order_after(&lane->order.set, behind);

	while (next != FAIRQ_NO_NODE)
	{
		FairqRank	rank = account_of(lane, next)->node.rank;
		const FairqRank *passed = visits == NULL ? NULL :
			fairq_visits_passed(visits, &rank);

		if (passed != NULL)
			rank = *passed;
		else if (has(lane, FAIRQ_RING, next) &&
				 (visits == NULL || !fairq_visits_pass(visits, next)))
			break;
		else
		{
			if (!has(lane, FAIRQ_RING, next))
				(void) remove_from_order(lane, next);
			if (visits != NULL)
				fairq_visits_come_to(visits, &rank);
			/* only groups that are noted count, so each search gets further */
			if (--*steps < 0)
				return FAIRQ_NO_NODE;
		}
		next = fairq_order_after(&lane->order.set, &rank);
	}
	return next;
}

/* The next of the first groups of levels; FAIRQ_NO_NODE: none. */
static int32
next_level(FairqLane *lane, FairqVisits *visits, FairqRank *behind,
		   int *steps)
{
	int32		next = next_behind(lane, visits, behind, steps);

	if (next != FAIRQ_NO_NODE)
		behind->level = account_of(lane, next)->node.rank.level;
	behind->amount.whole = PG_INT64_MAX;
	return next;
}

/*
 * In a time-fair lane, the least that any waiting group has got.  If there is
 * none, the amount of the group that was served last.  If very many groups in
 * a row have left the ring, this only removes some of them.
 */
static double
find_least(FairqLane *lane, TimestampTz now)
{
	const FairqLedger *ledger = &lane->order.ledger;
	FairqRank	behind = {.level = -1};
	double		least = 0;
	int			steps = MOST_STALE;
	int			n = 0;

	for (int32 next; n < FAIRQ_MOST_LEVELS &&
		 (next = next_level(lane, NULL, &behind, &steps)) != FAIRQ_NO_NODE; n++)
	{
		double		got = fairq_account_got(ledger, account_of(lane, next), now);

		least = n == 0 ? got : Min(least, got);
	}
	return n == 0 ? fairq_amount_value(ledger->start) : least;
}

/*
 * Add groups that have come since to the ordered set.  False if one has no
 * account so far.
 */
static bool
add_those_that_come(FairqLane *lane, TimestampTz now)
{
	FairqLedger *ledger = &lane->order.ledger;
	int32		group_no = fairq_seats_next(lane, FAIRQ_TODO, 0);
	double		least;

	if (group_no == FAIRQ_NO_SEAT)
		return true;
	least = ledger->fair_by == FAIRQ_BY_TIME ? find_least(lane, now) : 0;
	for (int i = 0; i < MOST_ADDED && group_no != FAIRQ_NO_SEAT; i++)
	{
		FairqAccount *account;

		if (fairq_order_record(&lane->order.set, group_no) == NULL)
			return false;
		account = account_of(lane, group_no);
		/* it may have lapsed, and be in the set at another rank */
		(void) remove_from_order(lane, group_no);
		fairq_seats_remove(lane, FAIRQ_TODO, group_no);
		fairq_account_comes(ledger, account, group_no, least,
							moment(lane, group_no, now));
		add_to_order(lane, group_no, true);
		group_no = fairq_seats_next(lane, FAIRQ_TODO, group_no);
	}
	return true;
}

/* The group that is next in a time-fair lane; FAIRQ_NO_NODE: none. */
static int32
next_by_time(FairqLane *lane, FairqTaking *taking)
{
	const FairqLedger *ledger = &lane->order.ledger;
	FairqRank	behind = {.level = -1};
	int32		best = FAIRQ_NO_NODE;
	double		best_key = 0;
	uint64		best_tie = 0;

	for (int n = 0; n < FAIRQ_MOST_LEVELS; n++)
	{
		int32		next = next_level(lane, taking->order.visits, &behind,
									   &taking->order.steps);
		const FairqAccount *account;
		double		key;

		if (next == FAIRQ_NO_NODE)
			break;
		account = account_of(lane, next);
		key = fairq_account_key(ledger, account, taking->order.now);
		if (best == FAIRQ_NO_NODE || key < best_key ||
			(key == best_key && account->node.rank.tie < best_tie))
		{
			best = next;
			best_key = key;
			best_tie = account->node.rank.tie;
		}
		/* before any task has ended, levels alone count */
		if (ledger->longest == 0)
			break;
	}
	return best;
}

/*
 * Find the group that is next.  False if there is none, or if taking lacks an
 * account.  Also false, with steps of taking below 0, if the search has to
 * continue after the lock was released.
 */
bool
fairq_lane_order_next(FairqLane *lane, FairqTaking *taking, int32 *group_no)
{
	FairqLedger *ledger = &lane->order.ledger;
	FairqVisits *visits = taking->order.visits;
	int			steps = taking->order.steps;

	ledger->recovering = lane->recovery.known != FAIRQ_ALL_SEATS;
	taking->order.lacks = !add_those_that_come(lane, taking->order.now);
	if (taking->order.lacks)
		return false;
	heed_all_added(lane, visits);
	*group_no = ledger->fair_by == FAIRQ_BY_TIME ?
		next_by_time(lane, taking) :
		next_behind(lane, visits, NULL, &taking->order.steps);
	visits->looked += steps - taking->order.steps;
	return *group_no != FAIRQ_NO_NODE && taking->order.steps >= 0;
}

/*
 * Whether no group that recovery has not reached yet precedes that one, which
 * is next.  A group that is not known would have nothing in its account, and
 * its seat as its tie.
 */
bool
fairq_lane_order_is_covered(FairqLane *lane, int32 group_no)
{
	const FairqRank *rank = &account_of(lane, group_no)->node.rank;

	return lane->recovery.known == FAIRQ_ALL_SEATS ||
		(rank->level == 0 && rank->amount.whole == 0 &&
		 rank->amount.part == 0 &&
		 rank->tie <= (uint64) lane->recovery.known);
}

/* The work of a time-fair lane's tasks so far.  The lane is not locked. */
void
fairq_lane_work(FairqLane *lane, TimestampTz now, FairqLaneWork *work)
{
	const FairqLedger *ledger = &lane->order.ledger;

	memset(work, 0, sizeof(*work));
	LWLockAcquire(&lane->lock, LW_SHARED);
	if (is_begun(lane) && ledger->fair_by == FAIRQ_BY_TIME)
	{
		work->lane_no = lane->recovery.lane_no;
		work->counts = now > ledger->since;
		work->running = ledger->running;
		work->longest = ledger->longest;
		work->got = ledger->worked - (double) ledger->started +
			(double) ledger->running * (now - ledger->since);
	}
	LWLockRelease(&lane->lock);
}

/* Charge a group for the turn that is taken. */
void
fairq_lane_order_take(FairqLane *lane, const FairqTaking *taking,
					  FairqTurn *turn)
{
	FairqAccount *account = account_of(lane, turn->group_no);

	(void) remove_from_order(lane, turn->group_no);
	account->weight = taking->weight_of(taking->arg, turn->group_no);
	fairq_account_charge(&lane->order.ledger, account, &turn->charge,
						 moment(lane, turn->group_no, taking->order.now));
	add_to_order(lane, turn->group_no, has(lane, FAIRQ_RING, turn->group_no));
}

/*
 * Give back the charge of a turn that yielded nothing.  over: the turn is
 * over; else it was not begun.
 */
void
fairq_lane_order_back(FairqLane *lane, const FairqTurn *turn, bool over)
{
	int32		group_no = turn->group_no;
	bool		by_time = lane->order.ledger.fair_by == FAIRQ_BY_TIME;
	bool		was_in = remove_from_order(lane, group_no);
	bool		comes = over && was_in && by_time;

	fairq_account_uncharge(&lane->order.ledger, account_of(lane, group_no),
						   &turn->charge,
						   moment(lane, group_no, turn->charge.now));
	if (comes && has(lane, FAIRQ_RING, group_no))
		fairq_seats_add(lane, FAIRQ_TODO, group_no);
	else
		add_to_order(lane, group_no, was_in && !comes);
}

/*
 * In a cost-fair lane, charge a group the cost of the task that was claimed at
 * that turn, instead of the expected one.  The lane is not locked.
 */
void
fairq_lane_charge(FairqLane *lane, uint32 lane_no, FairqTurn *turn, float cost,
				  int32 weight)
{
	FairqAmount amount = fairq_amount(cost / weight);

	if (turn->charge.tie != 0 &&
		fairq_amount_compare(amount, turn->charge.amount) == 0)
		return;
	/* in a full queue the group may not have come */
	fairq_order_have(&lane->order.set, turn->group_no);
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
	{
		FairqAccount *account = account_of(lane, turn->group_no);
		bool		was_in = remove_from_order(lane, turn->group_no);

		fairq_account_correct(&lane->order.ledger, account, &turn->charge,
							  amount);
		account->last_cost = cost;
		add_to_order(lane, turn->group_no, was_in);
	}
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/*
 * Prepare to add to the work of a transaction for a group.  False if the lane
 * is not time-fair: then work is of no interest.
 */
static bool
prepare(FairqLane *lane, int32 group_no, FairqWork **work, TimestampTz *since)
{
	bool		by_time;
	uint32		lane_no;

	/* checked first without the lock: other lanes need not be locked */
	if (*(volatile FairqFairBy *) &lane->order.ledger.fair_by != FAIRQ_BY_TIME)
		return false;
	LWLockAcquire(&lane->lock, LW_SHARED);
	by_time = is_begun(lane) && lane->order.ledger.fair_by == FAIRQ_BY_TIME;
	lane_no = lane->recovery.lane_no;
	*since = lane->order.ledger.since;
	LWLockRelease(&lane->lock);
	if (!by_time)
		return false;
	fairq_order_have(&lane->order.set, group_no);
	/* not before: after an error up to here, the account may be missing */
	if (*work == NULL)
		*work = MemoryContextAllocZero(TopTransactionContext,
									   sizeof(FairqWork));
	fairq_work_as_of(*work, lane_no);
	return true;
}

/*
 * A task of the group was claimed at that time.  Its turn was taken when the
 * lane had that lane_no.  With removed, the task runs as long as the
 * transaction.  In a full queue, it begins to count only now.
 */
void
fairq_work_begun(FairqLane *lane, uint32 lane_no, int32 group_no,
				 FairqWork **at, TimestampTz now, bool in_full, bool removed)
{
	TimestampTz since;
	FairqWork  *work;

	if (!prepare(lane, group_no, at, &since))
		return;
	work = *at;
	if (work->lane_no != lane_no || now <= since)
		return;
	if (in_full)
	{
		LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
		if (lane->recovery.lane_no == work->lane_no)
		{
			bool		was_in = remove_from_order(lane, group_no);

			fairq_account_begins(&lane->order.ledger,
								 account_of(lane, group_no),
								 moment(lane, group_no, now));
			add_to_order(lane, group_no, was_in);
		}
		LWLockRelease(&lane->lock);
	}
	work->begun++;
	work->begun_since += now - since;
	work->taken += removed;
	work->taken_since += removed ? now - since : 0;
}

/*
 * The attempt of a task of the group, which was popped at that time, has
 * ended.  It has taken that long; or, if lapsed, its lease, which was that
 * long, has expired.
 */
void
fairq_work_ended(FairqLane *lane, int32 group_no, FairqWork **at,
				 TimestampTz popped_at, int64 took, bool lapsed)
{
	TimestampTz since;
	FairqWork  *work;

	if (!prepare(lane, group_no, at, &since))
		return;
	work = *at;
	if (lapsed)
		work->lapsed += took;
	else
	{
		work->took += took;
		work->longest = Max(work->longest, took);
	}
	if (popped_at <= since || TIMESTAMP_IS_NOEND(popped_at))
		return;
	work->ended++;
	work->ended_since += popped_at - since;
}

/* Apply the work of a transaction to a group's account. */
static void
apply_work(FairqLane *lane, int32 group_no, const FairqWork *work,
		   bool committed)
{
	FairqLedger *ledger = &lane->order.ledger;
	FairqAccount *account = account_of(lane, group_no);
	FairqMoment at = moment(lane, group_no, GetCurrentTimestamp());
	bool		was_in = remove_from_order(lane, group_no);

	/* a search finds what others have got; most ends do without it */
	if (fairq_account_apply(ledger, account, work, committed, at))
		fairq_account_forgive(ledger, account, find_least(lane, at.now), at);
	add_to_order(lane, group_no, was_in);
}

/*
 * The transaction has ended.  work is NULL if it has none.  For callbacks:
 * nothing fails or allocates.
 */
void
fairq_work_end(FairqLane *lane, int32 group_no, const FairqWork *work,
			   bool committed)
{
	/* the tasks that a committed pop has begun count already */
	if (work == NULL || fairq_account_is_even(work, committed))
		return;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane) && lane->order.ledger.fair_by == FAIRQ_BY_TIME)
		apply_work(lane, group_no, work, committed);
	LWLockRelease(&lane->lock);
}
