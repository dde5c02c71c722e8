/*
 * account.c
 *		The accounts of groups in cost-fair and time-fair lanes: pure
 *		arithmetic.
 *
 * An account has its group's rank.  lane_order.c has the set of groups in the
 * order of their ranks and decides which group is next.
 *
 * In cost-fair lanes, the algorithm is start-time fair queueing.  The costs of
 * the group's tasks, divided by its weight, are added up as the tasks are
 * claimed.  The sum is the start tag of the group's next task.  The virtual
 * time is the highest start tag that was served.  A group that arrives with a
 * lower start tag gets the virtual time instead.  So the group precedes all
 * groups that have been served since, but has earned no credit.  A group that
 * arrives with a higher start tag still owes the difference.
 *
 * A cost is known once the task's row is read.  So a turn is first charged the
 * cost of the group's last task.  The charge is then corrected to the cost of
 * the turn's own task.  If the task costs less than expected, other groups may
 * have been served meanwhile, although this group precedes them.  The group
 * keeps its lag behind them.  A group also lags if calls have passed over it.
 * They do so if it yielded no task, or has had its turns under per_group.  The
 * group does not keep such a lag: its next turn adds the difference to its
 * account.
 *
 * In time-fair lanes, the duration of a task is not known in advance, and it
 * is not estimated.  A group's amount is the time of its finished tasks, and
 * of its running tasks so far, divided by its weight.  Its level is the number
 * of its running tasks, divided by its weight and rounded down.  The next
 * group is the one with the least
 *
 *		got + 2 * E * level
 *
 * where E is the longest recent task.  Suppose that the amounts of all groups
 * differ by at most 2 * E.  Then the next group is among those with the fewest
 * running tasks.  Among these it is the one that has got the least.  A group
 * that lags by more than 2 * E may have one more task running.
 *
 * A group that arrives is credited with the least that any waiting group has
 * got.  So it is next, but has no credit for the time before.  If the group
 * has got more than that, it owes the difference, up to a limit.  The limit is
 * FAIRQ_MOST_OWED * E, plus 2 * E for each task that runs in the lane.  The
 * reason is that each level can add a debt of 2 * E.  If a worker dies, fairq
 * does not know whether the worker used its lease.  The limit bounds the cost
 * of such a lease for its group.  E does not include the lease.
 *
 * E is the duration of the longest task that has ended, minus a 128th of the
 * work that has ended since.  When a task of a group has ended, E is at least
 * the mean age of the group's running tasks.  This does not hold if some of
 * them may have lapsed.  Before any task has ended, levels alone decide.
 *
 * All of these amounts change with time.  But the amounts of groups of one
 * level grow at the same pace, so their order does not change.  With weights,
 * the order can be wrong by less than one task.  So a rank has the level, and
 * the amount that the group would have had at time 0 at that pace.
 *
 * A task counts as running if its row has a pop time after the beginning of
 * the lane's recovery.  The level does not include other tasks.  When these
 * end, the group is charged the time that they have taken.  Such a task counts
 * from the moment at which its turn is taken until its end is visible.
 *
 * When leases of the group have expired, all of its running tasks may be those
 * of a dead worker, until a search shows which are.  So from their expiry on,
 * these tasks do not count in the level, and their time does not grow.
 * Otherwise lapsed tasks, which wait for a call, would themselves keep calls
 * from the group, its tenant and its lane.  Tasks that begin later count as
 * usual.  After the search, tasks that still run count again, with their whole
 * time.  A lapsed task is charged up to the end of its lease.
 *
 * Among groups with equal accounts, those that were credited on arrival are
 * first, in the order of arrival.  The others follow in the order of their
 * last service.  During a recovery of the lane, groups that were credited are
 * in the order of their seats.  A group that is not known yet would have an
 * empty account, and its seat as its tie.
 *
 * Times are in microseconds.  Times per weight are doubles.
 *
 * In a queue with tenants, a tenant has an account like a group, and an order
 * of its groups.  Each order has its own virtual time and ties.  In a
 * time-fair lane, a tenant's running tasks and time are those of its groups.
 * E is the same for all orders of a lane.  In a tenant's order, groups with
 * lapsed tasks have a level of their own, before all others.
 *
 * Locking: none here.  The caller has the lane's lock, or private copies.
 */
#include "postgres.h"

#include "account.h"

/* E decreases by the work that has ended, divided by this number */
#define LOWERED_BY 128

/*
 * ties from this number on come from a counter; a lower tie is a seat plus 1
 */
#define COUNTED_TIES (UINT64CONST(1) << 32)

/* ties from this number on are of groups that were not credited on arrival */
#define LATER_TIES (UINT64CONST(1) << 63)

/* Initialize the flows of an order, of which none has been served so far. */
static void
begin_flows(FairqFlows *flows)
{
	memset(flows, 0, sizeof(*flows));
	fairq_order_init(&flows->order);
}

/*
 * Initialize the ledger when a recovery of the lane begins.  All accounts are
 * equal then.
 */
void
fairq_ledger_begin(FairqLedger *ledger, FairqFlows *flows, FairqFairBy by,
				   TimestampTz now)
{
	begin_flows(flows);
	memset(ledger, 0, sizeof(*ledger));
	ledger->fair_by = by;
	ledger->since = now;
	ledger->recovering = true;
	ledger->ranks_lapsed = by == FAIRQ_BY_TIME;
}

/* Returns by how much an amount is below another; 0 if it is not below. */
static FairqAmount
shortage(FairqAmount amount, FairqAmount least)
{
	return fairq_amount_compare(amount, least) < 0 ?
		fairq_amount_subtract(least, amount) : (FairqAmount) {0};
}

/* Initialize an account. */
void
fairq_account_init(FairqAccount *account, uint32 lane_no)
{
	/*
	 * this also clears level.came, which visits_pass() requires to be 0 for a
	 * group
	 */
	memset(account, 0, sizeof(*account));
	account->lane_no = lane_no;
	account->level.tenant = FAIRQ_NO_NODE;
	begin_flows(&account->level.groups);
	account->weight = 1;
}

/* Returns the tie of a group that is credited on arrival. */
static uint64
early_tie(const FairqLedger *ledger, FairqFlows *flows, int32 group_no)
{
	return ledger->recovering ? group_no + UINT64CONST(1) :
		COUNTED_TIES + ++flows->ties;
}

static uint64
late_tie(FairqFlows *flows)
{
	return LATER_TIES + ++flows->ties;
}

/*
 * Returns the number of tasks of a group or tenant of a time-fair lane that
 * count in its level.
 */
static int32
counted(const FairqAccount *account)
{
	return account->by.time.running - account->by.time.lapsed;
}

/* The amount that a group of a time-fair lane has got, per weight. */
double
fairq_account_got(const FairqLedger *ledger, const FairqAccount *account,
				  TimestampTz now)
{
	double		running = (double) counted(account) * (now - ledger->since) +
		(double) account->by.time.lapsed_at -
		(double) account->by.time.started;

	return account->by.time.done + running / account->weight;
}

/* Compute the rank from the account, in a time-fair lane. */
void
fairq_account_rank(const FairqLedger *ledger, FairqAccount *account,
				   FairqMoment at)
{
	FairqRank  *rank = &account->node.rank;

	rank->level = Max(counted(account), 0) / account->weight;
	rank->amount = fairq_amount(fairq_account_got(ledger, account, at.now) -
								(double) rank->level *
								(at.now - ledger->since));
	if (account->level.tenant != FAIRQ_NO_NODE)
		rank->level = at.lapsed ? FAIRQ_LEVEL_LAPSED :
			FAIRQ_LEVEL_READY + rank->level;
}

/*
 * Set the number of lapsed tasks of a group, and the sum of their times.  They
 * are lapsed tasks of its tenant and of the lane, too.
 */
static void
set_lapsed(FairqLedger *ledger, FairqAccount *account, FairqAccount *tenant,
		   int32 n, int64 lapsed_at)
{
	int32		more = n - account->by.time.lapsed;
	int64		more_at = lapsed_at - account->by.time.lapsed_at;

	account->by.time.lapsed = n;
	account->by.time.lapsed_at = lapsed_at;
	ledger->lapsed += more;
	ledger->work += more_at;
	if (tenant == NULL)
		return;
	tenant->by.time.lapsed += more;
	tenant->by.time.lapsed_at += more_at;
	/* they may have lapsed before the tenant was known */
	if (tenant->by.time.lapsed <= 0)
		tenant->by.time.lapsed = tenant->by.time.lapsed_at = 0;
}

/*
 * In a time-fair lane, leases of the group have expired at the given time.
 * All of its running tasks may have lapsed, until a search shows which.
 */
void
fairq_account_lapses(FairqLedger *ledger, FairqAccount *account,
					 FairqAccount *tenant, TimestampTz at)
{
	int32		n = account->by.time.running - account->by.time.lapsed;
	int64		lapsed_at = account->by.time.lapsed_at +
		n * Max(at - ledger->since, 0);

	if (n > 0 && !account->level.is_tenant)
		set_lapsed(ledger, account, tenant, account->by.time.running,
				   Max(lapsed_at, account->by.time.started));
}

/*
 * In a time-fair lane, record that a search has found all lapsed tasks of the
 * group.
 */
void
fairq_account_searched(FairqLedger *ledger, FairqAccount *account,
					   FairqAccount *tenant)
{
	/* the group's number may have become that of a tenant */
	if (!account->level.is_tenant)
		set_lapsed(ledger, account, tenant, 0, 0);
}

/*
 * Reset the account for a new group.  Tasks of another group, of the given
 * tenant, that had its seat may still count as running for a moment.
 */
void
fairq_account_renew(FairqLedger *ledger, FairqAccount *account,
					FairqAccount *tenant)
{
	FairqAccount old;
	bool		by_time = ledger->fair_by == FAIRQ_BY_TIME;

	if (by_time)
		fairq_account_searched(ledger, account, tenant);
	old = *account;
	fairq_account_init(account, old.lane_no);
	/* the ledger does not count a tenant's tasks */
	if (old.level.is_tenant)
		return;
	account->weight = old.weight;
	if (by_time)
	{
		account->by.time.running = old.by.time.running;
		account->by.time.started = old.by.time.started;
	}
}

/*
 * n running tasks of an account end.  started is the sum of the times at which
 * they began.  They are lapsed tasks if their leases have expired (over), or
 * if they began before the mean time at which the lapsed tasks lapsed.
 */
static void
end_lapsed(FairqLedger *ledger, FairqAccount *account, FairqAccount *tenant,
		   int32 n, int64 started, bool over)
{
	int32		left = account->by.time.lapsed;
	int64		mean;

	if (left <= 0 || n <= 0)
		return;
	mean = account->by.time.lapsed_at / left;
	if (!account->level.is_tenant && (over || started / n <= mean))
		left = Max(left - n, 0);
	left = Min(left, account->by.time.running - n);
	if (account->level.is_tenant)
	{
		account->by.time.lapsed_at -= (account->by.time.lapsed - left) * mean;
		account->by.time.lapsed = left;
	}
	else
		set_lapsed(ledger, account, tenant, left, mean * left);
}

/*
 * Count n more tasks as running, in a time-fair lane.  started is the sum of
 * the times at which they began.  The ledger counts a tenant's tasks once, as
 * those of groups.  over: n is negative, and these tasks' leases have expired.
 */
static void
change_running(FairqLedger *ledger, FairqAccount *account,
			   FairqAccount *tenant, int32 n, int64 started, bool over)
{
	/*
	 * SQL may have written pop times after "since" into rows of tasks that the
	 * account does not count
	 */
	if (account->by.time.running + n <= 0)
	{
		n = -account->by.time.running;
		started = -account->by.time.started;
	}
	end_lapsed(ledger, account, tenant, -n, -started, over);
	account->by.time.running += n;
	account->by.time.started += started;
	if (account->level.is_tenant)
		return;
	ledger->running += n;
	ledger->work -= started;
}

/*
 * Turn the account into the account of a tenant.  The account is new, or was
 * that of a group with the given tenant.
 */
void
fairq_account_be_tenant(FairqLedger *ledger, FairqAccount *account,
						FairqAccount *tenant)
{
	if (!account->level.is_tenant && ledger->fair_by == FAIRQ_BY_TIME)
		change_running(ledger, account, tenant, -account->by.time.running,
					   -account->by.time.started, false);
	account->level.is_tenant = account->level.resolved = true;
}

/*
 * Forgive a group of a time-fair lane the part of its debt above the limit,
 * and compute its rank.  For least, see fairq_account_comes().
 */
void
fairq_account_forgive(const FairqLedger *ledger, FairqAccount *account,
					  double least, FairqMoment at)
{
	double		too_much = fairq_account_got(ledger, account, at.now) - least -
		(FAIRQ_MOST_OWED + 2.0 * ledger->running) * ledger->longest;

	if (ledger->longest > 0 && too_much > 0)
		account->by.time.done -= too_much;
	fairq_account_rank(ledger, account, at);
}

/*
 * Credit a group that arrives or, in a time-fair lane, has lapsed, and compute
 * its rank.  In a time-fair lane, least is the least that any waiting group
 * has got.
 */
void
fairq_account_comes(FairqLedger *ledger, FairqFlows *flows,
					FairqAccount *account, int32 group_no, double least,
					FairqMoment at)
{
	FairqRank  *rank = &account->node.rank;
	bool		is_new = rank->tie == 0;

	if (ledger->fair_by == FAIRQ_BY_TIME)
	{
		double		given = least - fairq_account_got(ledger, account, at.now);

		if (given > 0)
			account->by.time.done += given;
		if (is_new || given > 0)
			rank->tie = early_tie(ledger, flows, group_no);
		fairq_account_forgive(ledger, account, least, at);
	}
	else if (is_new || fairq_amount_compare(rank->amount, flows->start) < 0)
	{
		rank->amount = flows->start;
		rank->tie = early_tie(ledger, flows, group_no);
		account->by.cost.lag = (FairqAmount) {0};
	}
}

/*
 * Count a task of the group as running from the given time on, in a time-fair
 * lane.
 */
void
fairq_account_begins(FairqLedger *ledger, FairqAccount *account,
					 FairqMoment at)
{
	change_running(ledger, account, at.tenant, 1, at.now - ledger->since,
				   false);
	fairq_account_rank(ledger, account, at);
}

/*
 * Charge the group or tenant for a turn that is taken, at the given weight.
 * In a cost-fair lane, cost is an estimate.
 */
void
fairq_account_charge(FairqLedger *ledger, FairqFlows *flows,
					 FairqAccount *account, int32 weight, float cost,
					 FairqCharge *charge, FairqMoment at)
{
	FairqRank  *rank = &account->node.rank;
	FairqAmount lag;

	charge->weight = account->weight;
	account->weight = weight;
	charge->before = rank->tie;
	charge->start = flows->start;
	charge->now = at.now;
	charge->tie = rank->tie = late_tie(flows);
	charge->counted = ledger->fair_by == FAIRQ_BY_TIME &&
		at.now > ledger->since;
	if (ledger->fair_by == FAIRQ_BY_TIME)
	{
		flows->start = fairq_amount(fairq_account_got(ledger, account,
													  at.now));
		if (charge->counted)
			fairq_account_begins(ledger, account, at);
		return;
	}
	charge->amount = fairq_amount(cost / account->weight);
	lag = shortage(rank->amount, flows->start);
	if (fairq_amount_compare(lag, account->by.cost.lag) < 0)
		account->by.cost.lag = lag;
	charge->given = fairq_amount_subtract(lag, account->by.cost.lag);
	rank->amount = fairq_amount_add(rank->amount, charge->given);
	if (fairq_amount_compare(flows->start, rank->amount) < 0)
		flows->start = rank->amount;
	rank->amount = fairq_amount_add(rank->amount, charge->amount);
}

/*
 * Give back the charge of a turn that yielded no task.  Keep the changes that
 * other turns have made meanwhile.
 */
void
fairq_account_uncharge(FairqLedger *ledger, FairqFlows *flows,
					   FairqAccount *account, const FairqCharge *charge,
					   FairqMoment at)
{
	FairqRank  *rank = &account->node.rank;
	bool		same = rank->tie == charge->tie;

	/* restore the weight before the rank is computed from it */
	if (same)
		account->weight = charge->weight;
	if (ledger->fair_by == FAIRQ_BY_TIME)
	{
		if (charge->counted)
			change_running(ledger, account, at.tenant, -1,
						   ledger->since - charge->now, false);
		fairq_account_rank(ledger, account, at);
	}
	else
	{
		rank->amount = fairq_amount_subtract(rank->amount, charge->amount);
		if (same)
			rank->amount = fairq_amount_subtract(rank->amount, charge->given);
		/*
		 * if no other turn was charged since, no task was served at this start
		 * tag
		 */
		if (same && charge->tie == LATER_TIES + flows->ties)
		{
			flows->start = charge->start;
			/* the previous turn may be given back next */
			flows->ties--;
		}
	}
	/* the group has its previous place again */
	if (same)
		rank->tie = charge->before;
}

/*
 * In a cost-fair lane, charge the group the given amount instead of the
 * expected one.  In a full queue, nothing has been charged yet.
 */
void
fairq_account_correct(FairqFlows *flows, FairqAccount *account,
					  FairqCharge *charge, FairqAmount amount)
{
	FairqRank  *rank = &account->node.rank;

	if (charge->tie == 0)
		rank->tie = late_tie(flows);
	else
		rank->amount = fairq_amount_subtract(rank->amount, charge->amount);
	rank->amount = fairq_amount_add(rank->amount, amount);
	account->by.cost.lag = shortage(rank->amount, flows->start);
}

/*
 * Update E of a time-fair lane after tasks have ended.  Their time lowers E,
 * but not below the longest of them.  Nor does it lower E below the mean time
 * so far of the account's running tasks, unless some of these may have lapsed.
 */
static void
note_longest(FairqLedger *ledger, const FairqAccount *account, double took,
			 double longest, TimestampTz now)
{
	int32		running = account->by.time.running;
	double		e = Max(ledger->longest - took / LOWERED_BY, longest);

	if (running > 0 && account->by.time.lapsed == 0)
		e = Max(e, ((double) running * (now - ledger->since) -
					(double) account->by.time.started) / running);
	/* 0 would mean that no task has ended */
	ledger->longest = Max(e, 1);
}

/*
 * Charge a group of a time-fair lane for the tasks that a transaction has
 * ended.
 */
static void
apply_commit(FairqLedger *ledger, FairqAccount *account,
			 const FairqWork *work, FairqMoment at)
{
	double		took = work->took;
	double		longest = work->longest;

	if (work->lane_no == account->lane_no)
	{
		/*
		 * one call for each kind of task, because end_lapsed() uses the mean
		 * of the times at which these tasks began
		 */
		change_running(ledger, account, at.tenant, -work->over,
					   -work->over_since, true);
		change_running(ledger, account, at.tenant, -work->ended,
					   -work->ended_since, false);
		change_running(ledger, account, at.tenant, -work->taken,
					   -work->taken_since, false);
		if (work->taken > 0)
		{
			double		mean = (at.now - ledger->since) -
				(double) work->taken_since / work->taken;

			took += work->taken * Max(mean, 0);
			longest = Max(longest, mean);
		}
	}
	account->by.time.done += (took + work->lapsed) / account->weight;
	if (account->level.is_tenant)
		return;
	ledger->work += (int64) took + work->lapsed;
	ledger->expired += work->lapsed > 0;
	if (took > 0 || longest > 0)
		note_longest(ledger, account, took, longest, at.now);
}

/* Drop work that was recorded before a later recovery of the lane. */
void
fairq_work_as_of(FairqWork *work, uint32 lane_no)
{
	if (work->lane_no == lane_no)
		return;
	work->lane_no = lane_no;
	work->begun = work->ended = work->over = work->taken = 0;
	work->begun_since = work->ended_since = 0;
	work->over_since = work->taken_since = 0;
}

/*
 * Apply the work of a transaction that has ended, in a time-fair lane.
 * Returns true if the work has raised the group's amount.  The caller then
 * forgives the part of the group's debt above the limit.  The time of an
 * attempt was already included while the attempt ran.  The time of a lease
 * that was given up, and the time that a worker reports, were not yet
 * included.
 */
bool
fairq_account_apply(FairqLedger *ledger, FairqAccount *account,
					const FairqWork *work, bool committed, FairqMoment at)
{
	double		before = fairq_account_got(ledger, account, at.now);

	if (committed)
		apply_commit(ledger, account, work, at);
	else if (work->lane_no == account->lane_no)
		change_running(ledger, account, at.tenant, -work->begun,
					   -work->begun_since, false);
	fairq_account_rank(ledger, account, at);
	return fairq_account_got(ledger, account, at.now) > before;
}
