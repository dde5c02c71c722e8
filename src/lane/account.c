/*
 * account.c
 *		What groups have been served in lanes that are not fair by tasks: pure
 *		arithmetic.
 *
 * An account says where its group stands: its rank.  lane_order.c has the set in
 * which the groups stand in that order, and says who is next.
 *
 * By cost, this is start-time fair queueing.  The costs of the group's tasks,
 * divided by its weight, are added up as the tasks are claimed: the start tag of
 * its next task.  The virtual time of the lane is the highest start tag that was
 * served.  A group that comes with less than that is given as much: so it comes
 * before all that have been served since, and has saved up nothing.  One that comes
 * with more still owes that.  A cost is known once the task's row is read.  So a
 * turn is charged what the group's last task has cost, and then what its task does.
 * If that is less, others were served meanwhile that the group comes before: it keeps
 * its lag behind them.  One that was passed over, as nothing could be had of it, or by
 * per_group, keeps no other: it is given the rest at its next turn.
 *
 * By time, how long a task will take is not known, and not estimated.  What a group
 * has got is the time that its finished tasks have taken, and the time for which
 * its running ones run so far, divided by its weight.  Its level is the number of
 * its running tasks, divided by its weight and rounded down.  The group is next for
 * which
 *
 *		got + 2 * E * level
 *
 * is least, where E is the longest task of late.  So as long as all groups have got
 * the same but for 2 * E, who has the fewest running is next, and of these who has
 * got least; and who lags by more than that may have one more running.
 *
 * A group that comes is given as much as that of the waiting groups has got that
 * has got least: it is next, and has saved up nothing.  What it has got above that
 * it owes, but no more than FAIRQ_MOST_OWED times E, and 2 E for each task that runs in
 * the lane, since debts are up to 2 E for each level: so the lease of a worker that
 * died, of which it is not known whether it was used, costs its group no more.
 * Such a lease does not count in E.
 *
 * E is the longest of the tasks that have ended, less a 128th of what has been
 * worked since; and at least the mean age of what the group that a task has ended
 * of still runs.  Before any has ended, levels alone count.
 *
 * All of that changes as the clock goes on.  But what groups of one level have got
 * grows at the same pace, so their order does not change; with weights, but for
 * less than a task.  So a rank is the level, and what the group would have got at
 * time 0 if it had gone at that pace since.
 *
 * A task counts as running if it was popped after the lane's recovery began, by the
 * clock that its row says; of others the time that they have taken is charged at
 * their end, and until then they hold no level.  A task counts from the moment at
 * which its turn is taken; its end, once that is visible.  A task whose lease has
 * ended counts as running until another call takes it over, or ends it: then it is
 * charged to the end of its lease.  While its group has lapsed, the group stands at
 * level 0, with what it has got as of then: otherwise it would be kept back by the
 * very task that waits to be taken over.
 *
 * Of groups with equal accounts those come first that have been given something as
 * they came, in the order in which they did; then the others, in the order in
 * which they were served last.  As long as a recovery of the lane is not over, the
 * former stand in the order of their seats, since those that are not known have
 * nothing in their accounts either.
 *
 * Times are in microseconds, those per weight as doubles.
 *
 * Locking: none here.  The caller has the lane's lock, or copies of its own.
 */
#include "postgres.h"

#include "account.h"

/* how much of what is worked E is lowered by */
#define LOWERED_BY 128

/* ties from here on are counted, those below are seats */
#define COUNTED_TIES (UINT64CONST(1) << 32)

/* ties from here on are those of groups that were given nothing as they came */
#define LATER_TIES (UINT64CONST(1) << 63)

/* A recovery of the lane begins: all groups are even. */
void
fairq_ledger_begin(FairqLedger *ledger, FairqFairBy by, TimestampTz now)
{
	memset(ledger, 0, sizeof(*ledger));
	ledger->fair_by = by;
	ledger->since = now;
	ledger->recovering = true;
}

/* By how much an amount is less than another one; 0, if it is not. */
static FairqAmount
shortage(FairqAmount amount, FairqAmount least)
{
	return fairq_amount_compare(amount, least) < 0 ?
		fairq_amount_subtract(least, amount) : (FairqAmount) {0};
}

/* A new account. */
void
fairq_account_init(FairqAccount *account, uint32 lane_no)
{
	memset(account, 0, sizeof(*account));
	account->lane_no = lane_no;
	account->last_cost = 1;
	account->weight = 1;
}

/* The tie of a group that is given something as it comes. */
static uint64
early_tie(FairqLedger *ledger, int32 group_no)
{
	return ledger->recovering ? group_no + UINT64CONST(1) :
		COUNTED_TIES + ++ledger->ties;
}

static uint64
late_tie(FairqLedger *ledger)
{
	return LATER_TIES + ++ledger->ties;
}

/* By time: what the group has got, per weight. */
double
fairq_account_got(const FairqLedger *ledger, const FairqAccount *account,
				  TimestampTz now)
{
	double		running = (double) account->running * (now - ledger->since) -
		(double) account->started;

	return fairq_amount_value(account->done) + running / account->weight;
}

/* By time: what is least of the group that is next. */
double
fairq_account_key(const FairqLedger *ledger, const FairqAccount *account,
				  TimestampTz now)
{
	return fairq_account_got(ledger, account, now) +
		2 * ledger->longest * account->node.rank.level;
}

/* By time: have the rank say what the account does. */
static void
rank_by_time(const FairqLedger *ledger, FairqAccount *account, FairqMoment at)
{
	FairqRank  *rank = &account->node.rank;

	rank->level = at.lapsed ? 0 : account->running / account->weight;
	rank->amount = fairq_amount(fairq_account_got(ledger, account, at.now) -
								(double) rank->level *
								(at.now - ledger->since));
}

/* By time: add to what the group has got; or, if it is less than 0, remove. */
static void
add_done(FairqAccount *account, double amount)
{
	account->done = fairq_amount_add(account->done, fairq_amount(amount));
}

/* By time: note that so many tasks more count as running, which began then. */
static void
count_running(FairqLedger *ledger, FairqAccount *account, int32 n,
			  int64 started)
{
	/* rows that were written by SQL may say that they were popped since */
	if (account->running + n <= 0)
	{
		n = -account->running;
		started = -account->started;
	}
	account->running += n;
	account->started += started;
	ledger->running += n;
	ledger->started += started;
}

/* By time: forgive what the group owes above the most that it can. */
static void
forgive(const FairqLedger *ledger, FairqAccount *account, double least,
		TimestampTz now)
{
	double		too_much = fairq_account_got(ledger, account, now) - least -
		(FAIRQ_MOST_OWED + 2.0 * ledger->running) * ledger->longest;

	if (ledger->longest > 0 && too_much > 0)
		add_done(account, -too_much);
}

/*
 * The group comes, or, by time, has lapsed.  least is, by time, the least that one
 * of the groups has got that wait.
 */
void
fairq_account_comes(FairqLedger *ledger, FairqAccount *account,
					int32 group_no, double least, FairqMoment at)
{
	FairqRank  *rank = &account->node.rank;
	bool		is_new = rank->tie == 0;

	if (ledger->fair_by == FAIRQ_BY_TIME)
	{
		double		given = least - fairq_account_got(ledger, account, at.now);

		if (given > 0)
			add_done(account, given);
		if (is_new || given > 0)
			rank->tie = early_tie(ledger, group_no);
		forgive(ledger, account, least, at.now);
		rank_by_time(ledger, account, at);
	}
	else if (is_new || fairq_amount_compare(rank->amount, ledger->start) < 0)
	{
		rank->amount = ledger->start;
		rank->tie = early_tie(ledger, group_no);
		account->lag = (FairqAmount) {0};
	}
}

/* By time: a task of the group counts as running from that time on. */
void
fairq_account_begins(FairqLedger *ledger, FairqAccount *account,
					 FairqMoment at)
{
	count_running(ledger, account, 1, at.now - ledger->since);
	rank_by_time(ledger, account, at);
}

/* Charge the group, which has its weight, for a turn that is taken. */
void
fairq_account_charge(FairqLedger *ledger, FairqAccount *account,
					 FairqCharge *charge, FairqMoment at)
{
	FairqRank  *rank = &account->node.rank;
	FairqAmount lag;

	charge->before = rank->tie;
	charge->start = ledger->start;
	charge->now = at.now;
	charge->tie = rank->tie = late_tie(ledger);
	charge->counted = ledger->fair_by == FAIRQ_BY_TIME &&
		at.now > ledger->since;
	if (ledger->fair_by == FAIRQ_BY_TIME)
	{
		ledger->start = fairq_amount(fairq_account_got(ledger, account, at.now));
		if (charge->counted)
			fairq_account_begins(ledger, account, at);
		return;
	}
	charge->amount = fairq_amount(account->last_cost / account->weight);
	lag = shortage(rank->amount, ledger->start);
	if (fairq_amount_compare(lag, account->lag) < 0)
		account->lag = lag;
	charge->given = fairq_amount_subtract(lag, account->lag);
	rank->amount = fairq_amount_add(rank->amount, charge->given);
	if (fairq_amount_compare(ledger->start, rank->amount) < 0)
		ledger->start = rank->amount;
	rank->amount = fairq_amount_add(rank->amount, charge->amount);
}

/*
 * Give back what a turn was charged that has come to nothing.  Others may have
 * changed the account meanwhile: what they have stays.
 */
void
fairq_account_uncharge(FairqLedger *ledger, FairqAccount *account,
					   const FairqCharge *charge, FairqMoment at)
{
	FairqRank  *rank = &account->node.rank;
	bool		same = rank->tie == charge->tie;

	if (ledger->fair_by == FAIRQ_BY_TIME)
	{
		if (charge->counted)
			count_running(ledger, account, -1, ledger->since - charge->now);
		rank_by_time(ledger, account, at);
	}
	else
	{
		rank->amount = fairq_amount_subtract(rank->amount, charge->amount);
		if (same)
			rank->amount = fairq_amount_subtract(rank->amount, charge->given);
		/* nothing was served at that start tag, if no one has come since */
		if (same && charge->tie == LATER_TIES + ledger->ties)
			ledger->start = charge->start;
	}
	/* the group stands where it stood */
	if (same)
		rank->tie = charge->before;
}

/*
 * By cost: charge the group that amount instead of what was supposed; in a full
 * queue nothing was.
 */
void
fairq_account_correct(FairqLedger *ledger, FairqAccount *account,
					  FairqCharge *charge, FairqAmount amount)
{
	FairqRank  *rank = &account->node.rank;

	if (charge->tie == 0)
		rank->tie = late_tie(ledger);
	else
		rank->amount = fairq_amount_subtract(rank->amount, charge->amount);
	rank->amount = fairq_amount_add(rank->amount, amount);
	account->lag = shortage(rank->amount, ledger->start);
}

/* By time: what has ended lowers E, which is not lower than the longest task. */
static void
note_longest(FairqLedger *ledger, const FairqAccount *account, double took,
			 double longest, TimestampTz now)
{
	double		e = Max(ledger->longest - took / LOWERED_BY, longest);

	if (account->running > 0)
		e = Max(e, ((double) account->running * (now - ledger->since) -
					(double) account->started) / account->running);
	/* 0 would be: none has ended */
	ledger->longest = Max(e, 1);
}

/* By time: charge the group for what a transaction has ended. */
static void
apply_commit(FairqLedger *ledger, FairqAccount *account,
			 const FairqWork *work, TimestampTz now)
{
	double		took = work->took;
	double		longest = work->longest;

	if (work->lane_no == account->lane_no)
	{
		count_running(ledger, account, -work->ended - work->taken,
					  -work->ended_since - work->taken_since);
		if (work->taken > 0)
		{
			double		mean = (now - ledger->since) -
				(double) work->taken_since / work->taken;

			took += work->taken * Max(mean, 0);
			longest = Max(longest, mean);
		}
	}
	add_done(account, (took + work->lapsed) / account->weight);
	ledger->worked += took + work->lapsed;
	if (took > 0 || longest > 0)
		note_longest(ledger, account, took, longest, now);
}

/* Drop what was counted before another recovery of the lane. */
void
fairq_work_as_of(FairqWork *work, uint32 lane_no)
{
	if (work->lane_no == lane_no)
		return;
	work->lane_no = lane_no;
	work->begun = work->ended = work->taken = 0;
	work->begun_since = work->ended_since = work->taken_since = 0;
}

/* Add what was noted later, and is used up, to the work.  Both may be NULL. */
void
fairq_work_merge(FairqWork **work, FairqWork **more)
{
	FairqWork  *to = *work;
	FairqWork  *from = *more;

	if (to == NULL || from == NULL)
	{
		*work = to == NULL ? from : to;
		return;
	}
	fairq_work_as_of(to, from->lane_no);
	to->begun += from->begun;
	to->begun_since += from->begun_since;
	to->ended += from->ended;
	to->ended_since += from->ended_since;
	to->taken += from->taken;
	to->taken_since += from->taken_since;
	to->took += from->took;
	to->longest = Max(to->longest, from->longest);
	to->lapsed += from->lapsed;
	pfree(from);
}

/* By time: does the end of a transaction that has begun and ended that say nothing? */
bool
fairq_account_is_even(const FairqWork *work, bool committed)
{
	if (!committed)
		return work->begun == 0;
	return work->ended == 0 && work->taken == 0 && work->took == 0 &&
		work->longest == 0 && work->lapsed == 0;
}

/*
 * By time: a transaction has ended that has begun and ended that.  True if the group
 * has got more than it had by then: it is to be forgiven what it owes too much.  The
 * time of an attempt has run already, and that of a lease that was given up, or what
 * a worker says, has not.
 */
bool
fairq_account_apply(FairqLedger *ledger, FairqAccount *account,
					const FairqWork *work, bool committed, FairqMoment at)
{
	double		before = fairq_account_got(ledger, account, at.now);

	if (committed)
		apply_commit(ledger, account, work, at.now);
	else if (work->lane_no == account->lane_no)
		count_running(ledger, account, -work->begun, -work->begun_since);
	rank_by_time(ledger, account, at);
	return fairq_account_got(ledger, account, at.now) > before;
}

/*
 * By time: forgive a group that has ended something what it owes too much.  least is
 * as above.
 */
void
fairq_account_forgive(FairqLedger *ledger, FairqAccount *account, double least,
					  FairqMoment at)
{
	forgive(ledger, account, least, at.now);
	rank_by_time(ledger, account, at);
}
