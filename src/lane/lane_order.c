/*
 * lane_order.c
 *		The order of service in lanes that are not fair by tasks.
 *
 * There the groups that may have something ready are not served in the order of
 * their seats, but in that of what they have been served so far (account.c).  By
 * cost, the first group of an ordered set is next, for one task.  By time, the one
 * is that is best of the first ones of each level, of which there are two in the
 * mean.
 *
 * The sets of the lane (lane.c) are used as everywhere, but for three:
 *
 * served	It is in the ordered set, at the rank that its account says.
 *
 * todo		It is in the ring, and has come, or come again; or, by time, has lapsed.
 *			The next call that takes turns adds it to the ordered set, or does so
 *			anew.  So who publishes a task, or takes many groups back into the
 *			ring, sets bits as everywhere, and needs no account.
 *
 * ring		One that leaves it may stay in the ordered set, until it is come by
 *			there: then it is removed.
 *
 * A turn that comes to nothing is not charged: the group stands where it stood.
 * The call passes over it from then on (visits.c), and other calls don't; its next
 * search goes on behind it.  A search that looks at very many groups is ended, and
 * goes on under another hold of the lock.  By time such a group comes again: while
 * nothing can be had of it, it saves up nothing.
 *
 * By cost, a charge stays when the pop is rolled back, as a turn is used (README,
 * "Fairness").  By time, pending changes say what the transaction has begun, which
 * an abort undoes, and ended, which a commit charges (FairqWork).  Accounts are lost
 * with the lane: then all groups are even.
 *
 * Accounts are had when a group comes, and not before: of most lanes most groups
 * have none.  A call that meets a group that comes without one stops, has it, and
 * tries again.
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

/* groups that are added to the ordered set before the next turn is taken */
#define MOST_ADDED 64

/* groups that have left the ring, and are removed before these are added */
#define MOST_STALE 1000

/* Before the lane uses any accounts. */
void
fairq_lane_order_init(FairqLane *lane)
{
	fairq_order_init(&lane->order.set, sizeof(FairqAccount));
}

/* Have accounts for the groups that come.  The lane is not locked. */
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

/*
 * In a copy of a lane: an account that is new there, which is what the lane
 * has.
 */
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

/* The account of a group; one that is void is made anew. */
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

/* Take a group out of the ordered set.  False if it was not there. */
static bool
remove_from_order(FairqLane *lane, int32 group_no)
{
	if (!has(lane, FAIRQ_SERVED, group_no))
		return false;
	fairq_order_remove(&lane->order.set, group_no);
	fairq_seats_remove(lane, FAIRQ_SERVED, group_no);
	return true;
}

/* Let a group, whose rank was changed, be in the ordered set again, if it was. */
static void
add_to_order(FairqLane *lane, int32 group_no, bool was_in)
{
	if (!was_in)
		return;
	fairq_seats_add(lane, FAIRQ_SERVED, group_no);
	fairq_order_add(&lane->order.set, group_no);
}

/*
 * Take back how far the call has come in a level, if a group was added before that
 * since which it does not pass over.
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
		/* up to the highest rank before it; the lowest tie is 1 */
		*upto = at;
		upto->tie--;
		break;
	}
}

/* The same in all levels. */
static void
heed_all_added(FairqLane *lane, FairqVisits *visits)
{
	/* what the lane had before its last recovery is void */
	if (visits->passed.lane_no != lane->recovery.lane_no)
		visits->passed.n = 0;
	for (int i = 0; i < visits->passed.n; i++)
		heed_added(lane, visits, &visits->passed.upto[i]);
	visits->passed.lane_no = lane->recovery.lane_no;
	visits->passed.added = lane->order.set.added;
}

/*
 * Returns the first group behind a rank, or of all (NULL), that may have something
 * ready and that the call does not pass over; FAIRQ_NO_NODE: none, or no more
 * steps are left.  The rank is at the end of a level.
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
			/* only what is noted counts, so that each search gets further */
			if (--*steps < 0)
				return FAIRQ_NO_NODE;
		}
		next = fairq_order_after(&lane->order.set, &rank);
	}
	return next;
}

/* The next one of the first groups of each level; FAIRQ_NO_NODE: none. */
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
 * By time: the least that one of the groups has got that wait; if there are none,
 * what the one had got that was served last.  Of very many groups in a row that have
 * left the ring some are removed, and that is all.
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
 * Add groups that have come since to the ordered set.  False if one has no account
 * so far.
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

/* By time: the group that is next; FAIRQ_NO_NODE: none. */
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
 * Find the group that is next.  False if there is none; or, with steps of taking below
 * 0, if the search has to go on under another hold of the lock; or if taking lacks an
 * account.
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
 * Is no group that recovery has not come by before that one, which is next?  What
 * is not known would have nothing in its account, and its seat as its tie.
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

/* By time: what the lane's tasks have worked so far.  The lane is not locked. */
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
 * Give back what a turn was charged that has come to nothing; it is over, or was not
 * begun.
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
 * By cost: charge a group what the task that was claimed at that turn costs,
 * instead of what was supposed.  The lane is not locked.
 */
void
fairq_lane_charge(FairqLane *lane, uint32 lane_no, FairqTurn *turn, float cost,
				  int32 weight)
{
	FairqAmount amount = fairq_amount(cost / weight);

	if (turn->charge.tie != 0 &&
		fairq_amount_compare(amount, turn->charge.amount) == 0)
		return;
	/* in a full queue the group need not have come */
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
 * Prepare to add something to what a transaction has begun and ended of a group in
 * a lane fair by time.  False if that is of no interest.
 */
static bool
prepare(FairqLane *lane, int32 group_no, FairqWork **work, TimestampTz *since)
{
	bool		by_time;
	uint32		lane_no;

	/* other lanes need not be locked for that */
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
	/* not before: an error on the way leaves an account that is not there */
	if (*work == NULL)
		*work = MemoryContextAllocZero(TopTransactionContext,
									   sizeof(FairqWork));
	fairq_work_as_of(*work, lane_no);
	return true;
}

/*
 * A task of the group was claimed at that time, at a turn that was taken when the
 * lane had that lane_no.  With removed it runs as long as the transaction does.  In
 * a full queue it begins to count only now.
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
 * The attempt of a task of the group, which was popped at that time, has ended, and
 * has taken so long; or its lease has expired, which was so long.
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

/* Apply what a transaction has begun and ended to a group's account. */
static void
apply_work(FairqLane *lane, int32 group_no, const FairqWork *work,
		   bool committed)
{
	FairqLedger *ledger = &lane->order.ledger;
	FairqAccount *account = account_of(lane, group_no);
	FairqMoment at = moment(lane, group_no, GetCurrentTimestamp());
	bool		was_in = remove_from_order(lane, group_no);

	/* what others have got takes a search, which most ends do without */
	if (fairq_account_apply(ledger, account, work, committed, at))
		fairq_account_forgive(ledger, account, find_least(lane, at.now), at);
	add_to_order(lane, group_no, was_in);
}

/*
 * The transaction has ended; work is NULL if there was none.  For callbacks:
 * nothing fails or allocates.
 */
void
fairq_work_end(FairqLane *lane, int32 group_no, const FairqWork *work,
			   bool committed)
{
	/* a pop that is committed has begun tasks, which count already */
	if (work == NULL || fairq_account_is_even(work, committed))
		return;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane) && lane->order.ledger.fair_by == FAIRQ_BY_TIME)
		apply_work(lane, group_no, work, committed);
	LWLockRelease(&lane->lock);
}
