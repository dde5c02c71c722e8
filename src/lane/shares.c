/*
 * shares.c
 *		Shares of a queue's lanes: whose task is next by them.
 *
 * It is start-time fair queueing of lanes.  A task is charged as one, or its cost in
 * a queue that is fair by cost.  What a lane has got is the sum of its charges
 * divided by its share; each service is of the lane that has got
 * least, of those that have something to serve, and of equal ones of that with
 * the lower priority number.  Virtual time is what the lane served last had got
 * before; a lane that has got less begins there.  So one that had nothing for a
 * while has saved nothing up.
 *
 * The bound: let lanes p and q have something to serve over a stretch of
 * services.  A lane is served only when no other has got less, and is charged
 * one task then: so what both have got differs by at most 1/s_p or 1/s_q, if it
 * did so at first, and it does: who comes has got what virtual time says at
 * least, and the other one at most one task more.  Over a stretch, by one and the
 * other: |n_p/s_p - n_q/s_q| <= 1/s_p + 1/s_q.  By cost, it is the highest cost of
 * each lane's tasks instead of one.  A task's cost is known once it is claimed; so
 * lanes are chosen for one task at a time there.
 *
 * And of as many services S as all shares together a lane p that has something
 * all the time has s_p - 1 at least: had it s_p - 2 or fewer, then between what p
 * had got at first, less 1/s_p, and at last there would be less than 1, as s_p - 1
 * charges are; so each other lane q would have been served s_q times at most, and
 * all together fewer than S.
 *
 * A lane is only known to have nothing when a call has looked.  It is charged
 * when it is chosen, so that calls beside each other choose different lanes, and
 * what came to nothing is given back.  By cost it is charged when the cost is known:
 * what goes back afterwards, others would have been served for, and virtual time would
 * have gone on.  Virtual time goes on for what was served alone; so a lane that has
 * nothing changes nothing, however often it is tried.  Of a window of turns, all of
 * one lane, it goes on for the first task only: so the other lanes keep what they
 * lack.
 *
 * The arithmetic is exact: sums of rounded 1/s_p would differ where three tasks of a
 * share of 3 equal two of a share of 2.  Only a lane that begins at virtual time is
 * charged up to one part in FAIRQ_CHARGE_ONE of a task more.  The products are below
 * 2^61, and a lane's whole rounds last longer than any server.
 *
 * In a queue that is fair by time a lane is served by the rule by which groups are
 * (account.c), its share being its weight, divided by the least of all shares.  What
 * it has got is the time that its tasks have worked, of running ones so far; the
 * lanes' ledgers have that.  A lane that was found to have nothing, and has some now,
 * has got as much as the least of the others that had some.
 *
 * Shares are those of the settings' latest version that a caller has come with.
 * When they are others, and after a restart, all lanes are even.
 *
 * What a call has chosen is kept here, in static memory, until the call says what
 * was served of it, or its end does (turns.c).
 *
 * Locking: a spinlock, for some comparisons.  All but the last four functions
 * are called under it.
 */
#include "postgres.h"

#include "account.h"
#include "shares.h"

/* by time, E until a task has ended: 30 years, so that levels alone count */
#define NONE_HAS_ENDED 1e15

/*
 * A lane is next that is before all others: what is compared, as it is when a
 * choice begins.
 */
typedef struct Choice
{
	const FairqShares *shares;
	FairqGot	start[FAIRQ_PRIORITIES];	/* what each lane has got, virtual
											 * time at least */

	/* by time */
	const FairqLaneWork *works; /* what the lanes have worked; NULL: the queue
								 * is not fair by time */
	int32		least_share;	/* the least of the shares */
	double		longest;		/* E: the longest task of late of all */
	double		got[FAIRQ_PRIORITIES];	/* what they have got per share, and
										 * been given */
} Choice;

/* What the call in progress was given last; charged is in flight. */
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

/* Less than 0, 0 or more, as the one has got less, the same or more. */
static int
compare(FairqGot a, int32 share_a, FairqGot b, int32 share_b)
{
	int64		left = a.part * share_b;
	int64		right = b.part * share_a;

	if (a.whole != b.whole)
		return a.whole < b.whole ? -1 : 1;
	return left < right ? -1 : left > right;
}

/* Find what the lanes have got, virtual time at least. */
static void
find_starts(const FairqShareAccounts *accounts, Choice *c)
{
	FairqGot	reached = accounts->reached.got;
	int32		other = accounts->reached.share;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		int32		share = c->shares->share[p];

		c->start[p] = accounts->got[p];
		/* rounded up, which may be a whole round */
		if (share > 0 && other > 0 &&
			compare(accounts->got[p], share, reached, other) < 0)
			c->start[p] = add((FairqGot) {.whole = reached.whole}, share,
							  (reached.part * share + other - 1) / other);
	}
}

/* By time: an amount per share, where the least of the shares is one. */
static double
per_share(const Choice *c, int priority, double amount)
{
	return amount * c->least_share / c->shares->share[priority];
}

/*
 * By time: what is least of the lane that is next, with so many more of its tasks
 * running.
 */
static double
key_of(const Choice *c, int priority, int64 more)
{
	const FairqLaneWork *work = &c->works[priority];
	int64		running = work->running + (work->counts ? more : 0);
	int64		level = running * c->least_share / c->shares->share[priority];

	return c->got[priority] + 2 * c->longest * level;
}

/* By time: of equal lanes one is next that had nothing, and may come. */
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

/* Is a lane before another, after so many tasks more? */
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
 * By time: find what the lanes have got.  One that had nothing, or is recovered anew,
 * has been given as much as the least of the others, and owes some of the longest
 * tasks at most.
 */
static void
find_got(FairqShareAccounts *accounts, Choice *c)
{
	const int32 *share = c->shares->share;
	int64		running = 0;
	double		least = -1;

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
		/* it was recovered anew, or shares are new: it begins even */
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
	for (int p = 0; p < FAIRQ_PRIORITIES && least >= 0; p++)
		if (accounts->idle[p])
			c->got[p] = Min(Max(c->got[p], least),
							least + (FAIRQ_MOST_OWED + 2.0 * running) * c->longest);
}

/*
 * Choose the lane that is next, without those in that set; and how often in a row, at
 * most so often.  False if no lane with a share is left.
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

/* Charge the lane of a run for so many tasks; by time what it is given is noted. */
static void
charge_lane(FairqShareAccounts *accounts, const Choice *c, int64 n,
	   FairqShareRun *run)
{
	int			p = run->priority;

	run->epoch = c->shares->epoch;
	run->by_time = c->works != NULL;
	if (run->by_time)
	{
		run->given = c->got[p] - per_share(c, p, c->works[p].got);
		return;
	}
	run->charged = n * FAIRQ_CHARGE_ONE;
	run->from = c->start[p];
	accounts->got[p] = add(run->from, c->shares->share[p], run->charged);
}

/* By time: note whether the lane of a run had something. */
static void
settle_by_time(FairqShareAccounts *accounts, const FairqShareRun *run,
			   int64 served)
{
	bool	   *idle = &accounts->idle[run->priority];

	if (served > 0 && *idle)
		accounts->given[run->priority] = run->given;
	*idle = served == 0;
}

/* What was charged for tasks that were not served goes back. */
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
	/* of a window of turns all but the first are not served in this order */
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
 * Have the shares of that version of the settings.  If they are new, all lanes
 * are even.
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

/* All lanes are even. */
void
fairq_shares_init(FairqShares *shares)
{
	memset(shares, 0, sizeof(FairqShares));
	pg_atomic_init_u32(&shares->first, 0);
	SpinLockInit(&shares->mutex);
}

void
fairq_shares_copy(FairqShares *copy, FairqShares *shares)
{
	SpinLockAcquire(&shares->mutex);
	*copy = *shares;
	SpinLockRelease(&shares->mutex);
	SpinLockInit(&copy->mutex);
}

/*
 * Choose the lane that is served next, without those in that set of priorities;
 * and how often in a row, at most so often; with 0, once, and what is charged is
 * known when it is settled.  It is charged for all of these.  works: of a queue that
 * is fair by time; else NULL.  NULL: no lane with a share is left.
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
 * Of what the call was given last, if any, so many tasks were served, which charge
 * so much.  What was charged for others goes back.
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
