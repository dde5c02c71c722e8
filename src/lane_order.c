/*
 * lane_order.c
 *		The order of service in lanes that are not fair by tasks.
 *
 * There the groups that may have something ready are not served in the order of
 * their seats, but in that of what they have been served so far.  Each group has
 * an account of that.  The group with the least is next, for one task.
 *
 * By cost, this is start-time fair queueing.  In an account the costs of the
 * group's tasks, divided by its weight, are added up as the tasks are claimed: the
 * start tag of its next task.  The virtual time of the lane is the highest start
 * tag that was served.  A group that comes with less than that is given as much:
 * so it comes before all that have been served since, and has saved up nothing.
 * One that comes with more still owes that.  By time, lane_time.c says what an
 * account has.
 *
 * Of groups with equal accounts those come first that have been given something as
 * they came, in the order in which they did; then the others, in the order in
 * which they were served last.  As long as a recovery of the lane is not over, the
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
 * ring		One that leaves it may stay in the ordered set, until it is come by
 *			there: then it is removed.
 *
 * A cost is known once its row is read.  So a turn is charged what the group's
 * last task has cost; and when the task was claimed, the difference
 * (fairq_lane_charge).  A turn that comes to nothing is not charged at all: the
 * group stands where it stood.  The call passes over it until it leaves the lane
 * (visits.c), and other calls don't.
 *
 * A charge of costs stays when the pop is rolled back, as a turn is used (README,
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

/* ties from here on are those of groups that were given nothing as they came */
#define LATER_TIES (UINT64CONST(1) << 63)

/* Before the lane uses any accounts. */
void
fairq_lane_order_init(FairqLane *lane)
{
	fairq_order_init(&lane->order.set, sizeof(FairqAccount));
}

/* A recovery of the lane begins: all groups are even. */
void
fairq_lane_order_begin(FairqLane *lane, TimestampTz now)
{
	fairq_order_clear(&lane->order.set);
	memset(&lane->order.start, 0, sizeof(FairqAmount));
	lane->order.ties = 0;
	lane->order.since = now;
	lane->order.longest = 0;
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

/* The account of a group; one that is void is emptied. */
FairqAccount *
fairq_lane_account(FairqLane *lane, int32 group_no)
{
	FairqAccount *account = fairq_order_record(&lane->order.set, group_no);

	if (account->lane_no != lane->recovery.lane_no)
	{
		memset(account, 0, sizeof(*account));
		account->lane_no = lane->recovery.lane_no;
		account->last_cost = 1;
		account->weight = 1;
	}
	return account;
}

/* Take a group out of the ordered set.  False if it was not there. */
bool
fairq_lane_order_remove(FairqLane *lane, int32 group_no)
{
	if (!has(lane, FAIRQ_SERVED, group_no))
		return false;
	fairq_order_remove(&lane->order.set, group_no);
	fairq_seats_remove(lane, FAIRQ_SERVED, group_no);
	return true;
}

/* Let a group, whose rank was changed, be in the ordered set again, if it was. */
void
fairq_lane_order_again(FairqLane *lane, int32 group_no, bool was_in)
{
	if (!was_in)
		return;
	fairq_seats_add(lane, FAIRQ_SERVED, group_no);
	fairq_order_add(&lane->order.set, group_no);
}

static bool
recovery_is_over(FairqLane *lane)
{
	return lane->recovery.known == FAIRQ_ALL_SEATS;
}

/* Give a group that comes what it needs to be the first of those that wait. */
static void
comes(FairqLane *lane, int32 group_no, FairqAccount *account)
{
	FairqRank  *rank = &account->node.rank;

	if (rank->tie != 0 &&
		fairq_amount_compare(rank->amount, lane->order.start) >= 0)
		return;
	rank->amount = lane->order.start;
	rank->tie = fairq_lane_order_new_tie(lane, group_no);
}

/* The tie of a group that is given something as it comes. */
uint64
fairq_lane_order_new_tie(FairqLane *lane, int32 group_no)
{
	return recovery_is_over(lane) ? FAIRQ_ALL_SEATS + ++lane->order.ties :
		group_no + UINT64CONST(1);
}

/* Add groups that have come since to the ordered set. */
static void
add_those_in_front(FairqLane *lane, TimestampTz now)
{
	bool		by_time = lane->recovery.fair_by == FAIRQ_BY_TIME;
	int32		group_no = fairq_seats_next(lane, FAIRQ_FRONT, 0);
	double		least = by_time && group_no != FAIRQ_NO_SEAT ?
		fairq_time_least(lane, now) : 0;

	for (int i = 0; i < MOST_ADDED && group_no != FAIRQ_NO_SEAT; i++)
	{
		FairqAccount *account = fairq_lane_account(lane, group_no);

		/* it may have lapsed, and be in the set at another rank */
		(void) fairq_lane_order_remove(lane, group_no);
		if (by_time)
			fairq_time_comes(lane, group_no, account, least, now);
		else
			comes(lane, group_no, account);
		fairq_seats_remove(lane, FAIRQ_FRONT, group_no);
		fairq_lane_order_again(lane, group_no, true);
		group_no = fairq_seats_next(lane, FAIRQ_FRONT, group_no);
	}
}

/*
 * Returns the first group behind a rank, or of all (NULL), that may have something
 * ready and that the call does not pass over; FAIRQ_NO_NODE: none.
 */
int32
fairq_lane_order_after(FairqLane *lane, const FairqVisits *visits,
					   const FairqRank *behind)
{
	int32		next = behind == NULL ? fairq_order_first(&lane->order.set) :
		fairq_order_after(&lane->order.set, behind);

	while (next != FAIRQ_NO_NODE)
	{
		FairqRank	rank = fairq_lane_account(lane, next)->node.rank;

		if (!has(lane, FAIRQ_RING, next))
			(void) fairq_lane_order_remove(lane, next);
		else if (visits == NULL || !fairq_visits_pass(visits, next))
			break;
		next = fairq_order_after(&lane->order.set, &rank);
	}
	return next;
}

/* Find the group that is next.  False if there is none. */
bool
fairq_lane_order_next(FairqLane *lane, const FairqTaking *taking,
					  int32 *group_no)
{
	add_those_in_front(lane, taking->order.now);
	*group_no = lane->recovery.fair_by == FAIRQ_BY_TIME ?
		fairq_time_next(lane, taking) :
		fairq_lane_order_after(lane, taking->order.visits, NULL);
	return *group_no != FAIRQ_NO_NODE;
}

/*
 * Is no group that recovery has not come by before that one, which is next?  What
 * is not known would have nothing in its account, and its seat as its tie.
 */
bool
fairq_lane_order_is_covered(FairqLane *lane, int32 group_no)
{
	const FairqRank *rank = &fairq_lane_account(lane, group_no)->node.rank;

	return recovery_is_over(lane) ||
		(rank->level == 0 && rank->amount.whole == 0 &&
		 rank->amount.part == 0 &&
		 rank->tie <= (uint64) lane->recovery.known);
}

/* Charge a group for the turn that is taken. */
void
fairq_lane_order_take(FairqLane *lane, const FairqTaking *taking,
					  FairqTurn *turn)
{
	FairqAccount *account = fairq_lane_account(lane, turn->group_no);
	FairqRank  *rank = &account->node.rank;

	turn->charge.before = *rank;
	(void) fairq_lane_order_remove(lane, turn->group_no);
	account->weight = taking->weight_of(taking->arg, turn->group_no);
	turn->charge.tie = rank->tie = LATER_TIES + ++lane->order.ties;
	if (lane->recovery.fair_by == FAIRQ_BY_TIME)
		fairq_time_begins(lane, account, turn, taking->order.now);
	else
	{
		turn->charge.amount = fairq_amount(account->last_cost / account->weight);
		if (fairq_amount_compare(rank->amount, lane->order.start) < 0)
			rank->amount = lane->order.start;
		lane->order.start = rank->amount;
		rank->amount = fairq_amount_add(rank->amount, turn->charge.amount);
	}
	fairq_lane_order_again(lane, turn->group_no,
						   has(lane, FAIRQ_RING, turn->group_no));
}

/*
 * Give back what a turn was charged that has come to nothing: the group stands
 * where it stood.  By time, if the turn is over, it comes again: while nothing can
 * be had of it, it saves up nothing.
 */
void
fairq_lane_order_back(FairqLane *lane, const FairqTurn *turn, bool over)
{
	FairqAccount *account = fairq_lane_account(lane, turn->group_no);
	FairqRank  *rank = &account->node.rank;
	bool		by_time = lane->recovery.fair_by == FAIRQ_BY_TIME;
	bool		was_in = fairq_lane_order_remove(lane, turn->group_no);

	if (by_time)
		fairq_time_begins_not(lane, account, turn);
	if (rank->tie == turn->charge.tie)
		*rank = turn->charge.before;
	else if (!by_time)
		rank->amount = fairq_amount_subtract(rank->amount,
											 turn->charge.amount);
	if (by_time && over && was_in)
	{
		if (has(lane, FAIRQ_RING, turn->group_no))
			fairq_seats_add(lane, FAIRQ_FRONT, turn->group_no);
	}
	else
		fairq_lane_order_again(lane, turn->group_no, was_in);
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

	if (turn->in_full)
		memset(&turn->charge.amount, 0, sizeof(FairqAmount));
	if (fairq_amount_compare(amount, turn->charge.amount) == 0)
		return;
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
	{
		FairqAccount *account = fairq_lane_account(lane, turn->group_no);
		FairqRank  *rank = &account->node.rank;
		bool		was_in = fairq_lane_order_remove(lane, turn->group_no);

		rank->amount = fairq_amount_subtract(rank->amount, turn->charge.amount);
		rank->amount = fairq_amount_add(rank->amount, amount);
		account->last_cost = cost;
		if (turn->in_full)
			rank->tie = LATER_TIES + ++lane->order.ties;
		fairq_lane_order_again(lane, turn->group_no, was_in);
	}
	LWLockRelease(&lane->lock);
	turn->charge.amount = amount;
}
