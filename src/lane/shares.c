/*
 * shares.c
 *		Shares of a queue's lanes: which lane is served next.
 *
 * The algorithm is start-time fair queueing of lanes.  The charge of a task is
 * 1, or its cost in a cost-fair queue.  The amount that a lane has got is the
 * sum of its charges, divided by its share.  Among the lanes that have a task
 * to serve, the lane that has got the least is next.  Among equal lanes, the
 * lane with the lower priority number is next.  Virtual time is the amount
 * that the lane served last had before that service.  A lane with a lower
 * amount begins at virtual time.  So a lane that had no task for a while has
 * earned no credit.
 *
 * For the bound, assume that lanes p and q have tasks to serve during a
 * stretch of services.  A lane is served only when no other lane has got less,
 * and is then charged one task.  So if at first neither lane is ahead of the
 * other by more than one of its own tasks, 1/s_p or 1/s_q, neither ever is.
 * The condition holds at first, because a lane that joins has at least virtual
 * time.  The other lane is at most one task ahead of it.  Over a stretch, the
 * two differences add up: |n_p/s_p - n_q/s_q| <= 1/s_p + 1/s_q.  In cost-fair
 * queues, the highest cost of each lane's tasks replaces the 1.  A task's cost
 * is known once it is claimed.  So in such queues a call chooses lanes for one
 * task at a time.
 *
 * Take S services, where S is the sum of all shares.  A lane p that always has
 * tasks gets at least s_p - 1 of these services.  Suppose that it gets s_p - 2
 * or fewer.  Take the interval from its amount at the beginning, minus 1/s_p,
 * to its amount at the end.  It is at most s_p - 1 charges long, so shorter
 * than 1.  Then each other lane q is served at most s_q times in that
 * interval, and all lanes together are served fewer than S times.
 *
 * Only a search shows that a lane has no task.  A lane is charged when it is
 * chosen, so concurrent calls choose different lanes.  Charges for tasks that
 * were not served are given back.  In cost-fair queues, a lane is charged when
 * the cost is known.  An estimate that is corrected later would already have
 * advanced virtual time and caused services of other lanes.  Virtual time
 * advances only for tasks that were served.  So a lane without tasks has no
 * effect, however often calls try it.  In a window of turns, all of one lane,
 * virtual time advances for the first task only.  So the other lanes keep
 * their lag.
 *
 * The arithmetic is exact.  With sums of rounded 1/s_p, three tasks of a lane
 * with share 3 would differ from two tasks of a lane with share 2.  Only a
 * lane that begins at the virtual time is charged slightly more: up to 1 /
 * FAIRQ_CHARGE_ONE of a task.  The products are below 2^61, and a lane's
 * number of whole rounds cannot overflow while a server runs.
 *
 * In a time-fair queue, lanes follow the rule for groups (account.c).  A
 * lane's weight is its share, divided by the least of all shares.  A lane's
 * amount is the run time of its tasks, including running tasks so far.  The
 * ledgers of the lanes record that time.  A lane that had no task and has
 * tasks now is credited with the least amount of the other lanes with tasks.
 * Tasks that may have lapsed do not count in the lane's level, and its amount
 * does not grow by them (account.c).
 *
 * Shares are those of the latest version of the settings that a caller has
 * passed.  When the shares change, and after a restart, all lanes have equal
 * amounts.
 *
 * The choice of a call is kept here, in static memory, until the call reports
 * the served tasks, or ends (serve.c).
 *
 * Locking: a spinlock, for some comparisons.  All functions except the last
 * three are called under it.
 */
#include "postgres.h"

#include "account.h"
#include "shares.h"

/*
 * E in time-fair queues until a task has ended: 30 years, so levels alone
 * decide
 */
#define NONE_HAS_ENDED 1e15

/*
 * The lane that precedes all others is next.  This is the data to compare, at
 * the beginning of a choice.
 */
typedef struct Choice
{
	const FairqShares *shares;
	FairqGot	start[FAIRQ_PRIORITIES];	/* amount that each lane has got;
											 * virtual time if that is more */

	/* if time-fair */
	const FairqLaneWork *works; /* work of the lanes; NULL: the queue is not
								 * time-fair */
	int32		least_share;	/* the least of the shares */
	double		longest;		/* E: the longest recent task of all lanes */
	double		got[FAIRQ_PRIORITIES];	/* amounts that the lanes have got per
										 * share, including credits */
} Choice;

/* The last choice of the call in progress; its charge is not final yet. */
static struct
{
	FairqShares *shares;		/* NULL: none */
	FairqShareRun run;
}			in_flight;

static FairqGot
add(FairqGot got, int32 share, int64 charge)
{
	int64		round = share * FAIRQ_CHARGE_ONE;
	int64		part = got.part + charge;
	int64		rounds = part / round - (part % round < 0 ? 1 : 0);

	return (FairqGot)
	{
		.whole = got.whole + rounds,.part = part - rounds * round
	};
}

/*
 * Returns -1 if a has got less than b, 1 if it has got more, 0 if both have
 * got the same.
 */
static int
compare(FairqGot a, int32 share_a, FairqGot b, int32 share_b)
{
	int64		left = a.part * share_b;
	int64		right = b.part * share_a;

	if (a.whole != b.whole)
		return a.whole < b.whole ? -1 : 1;
	return left < right ? -1 : left > right;
}

/*
 * Compute each lane's start: the amount that it has got, or virtual time if
 * that is more.
 */
static void
find_starts(const FairqShareAccounts *accounts, Choice *c)
{
	FairqGot	reached = accounts->reached.got;
	int32		other = accounts->reached.share;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		int32		share = c->shares->share[p];

		c->start[p] = accounts->got[p];
		/* round up, possibly to a whole round */
		if (share > 0 && other > 0 &&
			compare(accounts->got[p], share, reached, other) < 0)
			c->start[p] = add((FairqGot) {.whole = reached.whole}, share,
							  (reached.part * share + other - 1) / other);
	}
}

/*
 * In a time-fair queue, returns an amount per share, where the least of the
 * shares is 1.
 */
static double
per_share(const Choice *c, int priority, double amount)
{
	return amount * c->least_share / c->shares->share[priority];
}

/*
 * Returns the key of a lane in a time-fair queue, if n more of its tasks run.
 * The lane with the least key is next.
 */
static double
key_of(const Choice *c, int priority, int64 more)
{
	const FairqLaneWork *work = &c->works[priority];
	int64		running = work->running + (work->counts ? more : 0);
	int64		level = running * c->least_share / c->shares->share[priority];

	return c->got[priority] + 2 * c->longest * level;
}

/*
 * In a time-fair queue, an idle lane that may join precedes lanes with the
 * same key.
 */
static bool
is_before_by_time(const Choice *c, int priority, int64 more, int other)
{
	const bool *idle = c->shares->accounts.idle;
	double		key = key_of(c, priority, more);
	double		other_key = key_of(c, other, 0);
	bool		comes = more == 0 && idle[priority];

	if (key != other_key)
		return key < other_key;
	return comes != idle[other] ? comes : priority < other;
}

/*
 * Whether a lane still precedes another one, after n more tasks of the first
 * lane.
 */
static bool
is_before(const Choice *c, int priority, int64 more, int other)
{
	const int32 *share = c->shares->share;
	FairqGot	got = c->start[priority];
	int			order;

	if (c->works != NULL)
		return is_before_by_time(c, priority, more, other);
	if (more > 0)
		got = add(got, share[priority], more * FAIRQ_CHARGE_ONE);
	order = compare(got, share[priority], c->start[other], share[other]);
	return order != 0 ? order < 0 : priority < other;
}

/*
 * Whether a lane was charged for expired leases since the last choice, or has
 * leases that may have expired.  The tasks of such leases possibly did not run
 * until their leases expired.
 */
static bool
owes_for_leases(const FairqShareAccounts *accounts, const Choice *c, int p)
{
	return c->works[p].lapsed > 0 ||
		c->works[p].expired != accounts->expired[p];
}

/*
 * In a time-fair queue, compute the amounts that the lanes have got.  A lane
 * that had no task, or was recovered again, is credited with the least amount
 * of the other lanes.  Its debt is limited, in units of the longest task.  So
 * is the debt of a lane for expired leases.
 */
static void
find_got(FairqShareAccounts *accounts, Choice *c)
{
	const int32 *share = c->shares->share;
	int64		running = 0;
	double		least = -1;
	double		most;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		if (share[p] == 0)
			continue;
		if (c->least_share == 0 || share[p] < c->least_share)
			c->least_share = share[p];
		running += c->works[p].running;
		c->longest = Max(c->longest, c->works[p].longest);
	}
	if (c->longest == 0)
		c->longest = NONE_HAS_ENDED;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		double		worked;

		if (share[p] == 0)
			continue;
		worked = per_share(c, p, c->works[p].got);
		/*
		 * if the lane was recovered, or shares are new, the lane begins as
		 * idle
		 */
		if (accounts->lane_no[p] != c->works[p].lane_no)
		{
			accounts->lane_no[p] = c->works[p].lane_no;
			accounts->given[p] = -worked;
			accounts->idle[p] = true;
		}
		c->got[p] = accounts->given[p] + worked;
		if (!accounts->idle[p] && (least < 0 || c->got[p] < least))
			least = Max(c->got[p], 0);
	}
	most = least + (FAIRQ_MOST_OWED + 2.0 * running) * c->longest;
	for (int p = 0; p < FAIRQ_PRIORITIES && least >= 0; p++)
	{
		if (accounts->idle[p])
			c->got[p] = Min(Max(c->got[p], least), most);
		else if (owes_for_leases(accounts, c, p) && c->got[p] > most)
		{
			accounts->given[p] -= c->got[p] - most;
			c->got[p] = most;
		}
		accounts->expired[p] = c->works[p].expired;
	}
}

/*
 * Choose the next lane that is not in the set "without". Also choose how many
 * times in a row it is served, at most "most".  Returns false if no lane with
 * a share is left.
 */
static bool
choose(const Choice *c, uint32 without, int64 most, FairqShareRun *run)
{
	int			first = -1;
	int			second = -1;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		if (c->shares->share[p] == 0 || (without & ((uint32) 1 << p)) != 0)
			continue;
		if (first < 0 || is_before(c, p, 0, first))
		{
			second = first;
			first = p;
		}
		else if (second < 0 || is_before(c, p, 0, second))
			second = p;
	}
	run->priority = first;
	run->most = 1;
	while (first >= 0 && run->most < most &&
		   (second < 0 || is_before(c, first, run->most, second)))
		run->most++;
	return first >= 0;
}

/*
 * Charge the lane of a run for n tasks.  In a time-fair queue, only record its
 * credit.
 */
static void
charge_lane(FairqShareAccounts *accounts, const Choice *c, int64 n,
			FairqShareRun *run)
{
	int			p = run->priority;

	run->epoch = c->shares->epoch;
	run->by_time = c->works != NULL;
	if (run->by_time)
	{
		run->lane_no = accounts->lane_no[p];
		run->given = c->got[p] - per_share(c, p, c->works[p].got);
		return;
	}
	run->charged = n * FAIRQ_CHARGE_ONE;
	run->from = c->start[p];
	accounts->got[p] = add(run->from, c->shares->share[p], run->charged);
}

/* In a time-fair queue, record whether the lane of a run had a task. */
static void
settle_by_time(FairqShareAccounts *accounts, const FairqShareRun *run,
			   int64 served)
{
	bool	   *idle = &accounts->idle[run->priority];

	/* if the lane was recovered again, the credit is invalid */
	if (accounts->lane_no[run->priority] != run->lane_no)
		return;
	if (served > 0 && *idle)
		accounts->given[run->priority] = run->given;
	*idle = served == 0;
}

/* Give back the charge for tasks that were not served. */
static void
settle_charge(FairqShares *shares, const FairqShareRun *run, int64 served,
			  int64 charge)
{
	FairqShareAccounts *accounts = &shares->accounts;
	FairqGot   *got = &accounts->got[run->priority];
	int32		share = shares->share[run->priority];
	FairqGot	last;

	*got = add(*got, share, charge - run->charged);
	if (served == 0)
		return;
	/* in a window of turns, only the first task is served in this order */
	last = served > run->most ? run->from :
		add(run->from, share, charge - charge / served);
	if (accounts->reached.share == 0 ||
		compare(last, share, accounts->reached.got,
				accounts->reached.share) > 0)
	{
		accounts->reached.got = last;
		accounts->reached.share = share;
	}
}

/*
 * Use the shares of a version of the settings.  If they are new, all lanes
 * begin with equal amounts.
 */
static void
have_shares(FairqShares *shares, const int32 *share, uint64 version)
{
	if (version < shares->version)
		return;
	shares->version = version;
	if (memcmp(shares->share, share, sizeof(shares->share)) == 0)
		return;
	memcpy(shares->share, share, sizeof(shares->share));
	memset(&shares->accounts, 0, sizeof(FairqShareAccounts));
	shares->epoch++;
}

/* --------------------------------------------------------------------- */

/*
 * Choose the next lane that is not in the set "without", and how many times in
 * a row it is served, at most "most".  The lane is charged for all these
 * tasks.  If most is 0, the lane is served once, and its charge is known when
 * it is settled. works is NULL unless the queue is time-fair.  Returns NULL if
 * no lane with a share is left.
 */
const FairqShareRun *
fairq_shares_choose(FairqShares *shares, const int32 *share, uint64 version,
					const FairqLaneWork *works, uint32 without, int64 most)
{
	Choice		c = {.shares = shares,.works = works};
	FairqShareRun *run = &in_flight.run;
	bool		chosen;

	Assert(in_flight.shares == NULL);
	SpinLockAcquire(&shares->mutex);
	have_shares(shares, share, version);
	if (works != NULL)
		find_got(&shares->accounts, &c);
	else
		find_starts(&shares->accounts, &c);
	chosen = choose(&c, without, most, run);
	if (chosen)
		charge_lane(&shares->accounts, &c, most > 0 ? run->most : 0, run);
	SpinLockRelease(&shares->mutex);
	if (!chosen)
		return NULL;
	in_flight.shares = shares;
	return run;
}

/*
 * Settle the last choice of the call, if any, with the number of served tasks
 * and their charge.  Charges for other tasks are given back.
 */
void
fairq_shares_settle(int64 served, int64 charge)
{
	FairqShares *shares = in_flight.shares;
	const FairqShareRun *run = &in_flight.run;

	if (shares == NULL)
		return;
	in_flight.shares = NULL;
	SpinLockAcquire(&shares->mutex);
	if (run->epoch == shares->epoch && run->by_time)
		settle_by_time(&shares->accounts, run, served);
	else if (run->epoch == shares->epoch)
		settle_charge(shares, run, served, charge);
	SpinLockRelease(&shares->mutex);
}
