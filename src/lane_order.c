/*
 * lane_order.c
 *		The order of service in lanes that are fair by cost.
 *
 * There the groups that may have something ready are not served in the order of
 * their seats, but in that of what they have been served so far: start-time fair
 * queueing.  Each group has an account, in which the costs of its tasks, divided
 * by its weight, are added up as they are claimed: the start tag of its next task.
 * The group with the least one is next, for one task.  The virtual time of the
 * lane is the highest start tag that was served.  A group that comes with less
 * than that is given as much: so it comes before all that have been served since,
 * and has saved up nothing.  One that comes with more still owes that.
 *
 * Of groups with equal accounts those come first that have been given the virtual
 * time, in the order in which they came; then the others, in the order in which
 * they were served last.  As long as a recovery of the lane is not over, the
 * former stand in the order of their seats, since those that are not known have
 * nothing in their accounts either; that is what fairq_lane_order_is_covered()
 * relies on.
 *
 * The sets of the lane (lane.c) are used as everywhere, but for three:
 *
 * served	It is in the ordered set, at the rank that its account says.
 *
 * front	It is in the ring, and not in the ordered set so far: it has come, or
 *			come again.  The next call that takes turns adds it.  So who publishes
 *			a task, or takes many groups back into the ring, sets bits as
 *			everywhere, and needs no account.
 *
 * ring		One that leaves it may stay in the ordered set, until it is the first
 *			there: then it is removed.  If it comes again before that, nothing has
 *			changed for it: its account is not less than the virtual time.
 *
 * A cost is known once its row is read.  So a turn is charged what the group's
 * last task has cost; and when the task was claimed, the difference
 * (fairq_lane_charge).  A turn that comes to nothing is not charged at all: the
 * group stands where it stood.  The call passes over it until it leaves the lane
 * (visits.c), and other calls don't.
 *
 * A charge stays when the pop is rolled back, as a turn is used (README,
 * "Fairness").  Accounts are lost with the lane: then all groups are even.
 *
 * Locking: the lane's lock, exclusively.  All records are there and mapped
 * (fairq_lane_have_accounts).
 */
#include "postgres.h"

#include "lane.h"
#include "lane_internal.h"
#include "lane_order.h"

/* groups that are added to the ordered set before the next turn is taken */
#define MOST_ADDED 64

/* ties from here on are those of groups that were not given the virtual time */
#define LATER_TIES (UINT64CONST(1) << 63)

/* An account: what is kept of each group of the lane. */
typedef struct FairqAccount
{
	FairqNode	node;			/* rank, and place in the ordered set; a tie of
								 * 0: the account is new */
	uint32		lane_no;		/* lane_no of the lane when it was last used:
								 * it is void if there is another one since */
	float		last_cost;		/* cost of the last task that was claimed */
} FairqAccount;

/* For the account of a group before the lane uses any. */
void
fairq_lane_order_init(FairqLane *lane)
{
	fairq_order_init(&lane->order.set, sizeof(FairqAccount));
}

/*
 * Have accounts for all groups that have bits, if the lane is not fair by tasks.
 * Returns by what it is.  The lane is not locked; bits are mapped.
 */
FairqFairBy
fairq_lane_have_accounts(FairqLane *lane)
{
	FairqFairBy by = fairq_lane_fair_by(lane);

	if (by != FAIRQ_BY_TASKS)
		fairq_order_have(&lane->order.set, &fairq_hints_of(lane)->chunks);
	return by;
}

static FairqAccount *
account_of(FairqLane *lane, int32 group_no)
{
	FairqAccount *account = fairq_order_record(&lane->order.set, group_no);

	if (account->lane_no != lane->recovery.lane_no)
	{
		memset(account, 0, sizeof(*account));
		account->lane_no = lane->recovery.lane_no;
		account->last_cost = 1;
	}
	return account;
}

static bool
recovery_is_over(FairqLane *lane)
{
	return lane->recovery.known == FAIRQ_ALL_SEATS;
}

/* A tie of a group that is given the virtual time. */
static uint64
next_tie(FairqLane *lane, int32 group_no)
{
	return recovery_is_over(lane) ? FAIRQ_ALL_SEATS + ++lane->order.ties :
		group_no + UINT64CONST(1);
}

/* Add groups that have come since to the ordered set. */
static void
add_those_in_front(FairqLane *lane)
{
	int32		group_no = 0;

	for (int i = 0; i < MOST_ADDED; i++)
	{
		FairqAccount *account;
		FairqRank  *rank;

		group_no = fairq_seats_next(lane, FAIRQ_FRONT, group_no);
		if (group_no == FAIRQ_NO_SEAT)
			return;
		account = account_of(lane, group_no);
		rank = &account->node.rank;
		if (rank->tie == 0 ||
			fairq_amount_compare(rank->amount, lane->order.start) < 0)
		{
			rank->amount = lane->order.start;
			rank->tie = next_tie(lane, group_no);
		}
		fairq_seats_remove(lane, FAIRQ_FRONT, group_no);
		fairq_seats_add(lane, FAIRQ_SERVED, group_no);
		fairq_order_add(&lane->order.set, group_no);
	}
}

static void
remove_from_order(FairqLane *lane, int32 group_no)
{
	if (!has(lane, FAIRQ_SERVED, group_no))
		return;
	fairq_order_remove(&lane->order.set, group_no);
	fairq_seats_remove(lane, FAIRQ_SERVED, group_no);
}

/* Let a group, whose rank is changed, be in the ordered set again, if it was. */
static void
back_into_order(FairqLane *lane, int32 group_no, bool was_in)
{
	if (!was_in)
		return;
	fairq_seats_add(lane, FAIRQ_SERVED, group_no);
	fairq_order_add(&lane->order.set, group_no);
}

/*
 * Find the group that is next, and that the call does not pass over; visits may be
 * NULL.  False if there is none.
 */
bool
fairq_lane_order_next(FairqLane *lane, const FairqVisits *visits,
					  int32 *group_no)
{
	int32		next;

	add_those_in_front(lane);
	next = fairq_order_first(&lane->order.set);
	while (next != FAIRQ_NO_NODE)
	{
		FairqRank	rank = account_of(lane, next)->node.rank;

		if (!has(lane, FAIRQ_RING, next))
			remove_from_order(lane, next);
		else if (visits == NULL || !fairq_visits_pass(visits, next))
			break;
		next = fairq_order_after(&lane->order.set, &rank);
	}
	*group_no = next;
	return next != FAIRQ_NO_NODE;
}

/*
 * Is no group that recovery has not come by before that one, which is next?  What
 * is not known would have the virtual time of the beginning, and its seat.
 */
bool
fairq_lane_order_is_covered(FairqLane *lane, int32 group_no)
{
	const FairqRank *rank = &account_of(lane, group_no)->node.rank;

	return recovery_is_over(lane) ||
		(rank->amount.whole == 0 && rank->amount.part == 0 &&
		 rank->tie <= (uint64) lane->recovery.known);
}

/* Charge a group for the turn that is taken. */
void
fairq_lane_order_take(FairqLane *lane, FairqTurn *turn, int32 weight)
{
	FairqAccount *account = account_of(lane, turn->group_no);
	FairqRank  *rank = &account->node.rank;

	turn->charge.before = *rank;
	turn->charge.amount = fairq_amount(account->last_cost / weight);
	remove_from_order(lane, turn->group_no);
	if (fairq_amount_compare(rank->amount, lane->order.start) < 0)
		rank->amount = lane->order.start;
	lane->order.start = rank->amount;
	rank->amount = fairq_amount_add(rank->amount, turn->charge.amount);
	turn->charge.tie = rank->tie = LATER_TIES + ++lane->order.ties;
	back_into_order(lane, turn->group_no,
					has(lane, FAIRQ_RING, turn->group_no));
}

/* Give back what a turn was charged that has come to nothing. */
void
fairq_lane_order_back(FairqLane *lane, const FairqTurn *turn)
{
	FairqAccount *account = account_of(lane, turn->group_no);
	FairqRank  *rank = &account->node.rank;
	bool		was_in = has(lane, FAIRQ_SERVED, turn->group_no);

	remove_from_order(lane, turn->group_no);
	if (rank->tie == turn->charge.tie)
		*rank = turn->charge.before;
	else
		rank->amount = fairq_amount_subtract(rank->amount,
											 turn->charge.amount);
	back_into_order(lane, turn->group_no, was_in);
}

/*
 * Charge a group what the task that was claimed at that turn costs, instead of
 * what was supposed.  The lane is not locked.
 */
void
fairq_lane_charge(FairqLane *lane, uint32 lane_no, FairqTurn *turn, float cost,
				  int32 weight)
{
	FairqAmount amount = fairq_amount(cost / weight);

	if (turn->in_full)
		memset(&turn->charge.amount, 0, sizeof(FairqAmount));
	if (fairq_amount_compare(amount, turn->charge.amount) == 0)
		return;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
	{
		FairqAccount *account = account_of(lane, turn->group_no);
		FairqRank  *rank = &account->node.rank;
		bool		was_in = has(lane, FAIRQ_SERVED, turn->group_no);

		remove_from_order(lane, turn->group_no);
		rank->amount = fairq_amount_subtract(rank->amount, turn->charge.amount);
		rank->amount = fairq_amount_add(rank->amount, amount);
		account->last_cost = cost;
		if (turn->in_full)
			rank->tie = LATER_TIES + ++lane->order.ties;
		back_into_order(lane, turn->group_no, was_in);
	}
	LWLockRelease(&lane->lock);
	turn->charge.amount = amount;
}
