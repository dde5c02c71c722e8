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
 * The arithmetic is exact, but that a lane which begins at virtual time is
 * charged up to one part in FAIRQ_CHARGE_ONE of a task.  The products are below
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
 * Locking: a spinlock, for some comparisons.  The functions of a state
 * are called under the lock.
 */
#include "postgres.h"

#include "account.h"
#include "shares.h"

/* A lane's charges that make a whole. */
static inline int64
round_of(int32 share)
{
	return share * FAIRQ_CHARGE_ONE;
}

static FairqGot
add(FairqGot got, int32 share, int64 charge)
{
	int64		part;

	got.whole += charge / round_of(share);
	part = got.part + charge % round_of(share);
	if (part < 0)
	{
		got.whole--;
		part += round_of(share);
	}
	else if (part >= round_of(share))
	{
		got.whole++;
		part -= round_of(share);
	}
	got.part = part;
	return got;
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

/* What the lane has got, virtual time at least. */
static FairqGot
start_of(const FairqShareState *state, int priority)
{
	int32		share = state->share[priority];
	FairqGot	start = state->got[priority];
	int32		other = state->reached.share;

	if (other > 0 &&
		compare(start, share, state->reached.got, other) < 0)
	{
		start.whole = state->reached.got.whole;
		start.part = 0;
		/* rounded up, which may be a whole round */
		start = add(start, share,
					(state->reached.got.part * share + other - 1) / other);
	}
	return start;
}

/*
 * Have the shares of that version of the settings.  If they are new, all lanes
 * are even.
 */
static void
share_begin(FairqShareState *state, const int32 *share, uint64 version)
{
	if (version < state->version)
		return;
	if (memcmp(state->share, share, sizeof(state->share)) != 0)
	{
		uint32		epoch = state->epoch + 1;

		memset(state, 0, sizeof(FairqShareState));
		memcpy(state->share, share, sizeof(state->share));
		state->epoch = epoch;
	}
	state->version = version;
}

/*
 * Choose the lane that has got least, by what they were charged; and how often in a
 * row, at most so often, if each claim charges one task.  It is charged for all of
 * these.
 */
static bool
choose_by_charge(FairqShareState *state, uint32 without, int64 most,
				 FairqShareRun *run)
{
	FairqGot	start[FAIRQ_PRIORITIES];
	FairqGot	got;
	int64		each = most > 0 ? FAIRQ_CHARGE_ONE : 0;
	int			first = -1;
	int			second = -1;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		if (state->share[p] == 0 || (without & ((uint32) 1 << p)) != 0)
			continue;
		start[p] = start_of(state, p);
		if (first < 0 || compare(start[p], state->share[p],
								 start[first], state->share[first]) < 0)
		{
			second = first;
			first = p;
		}
		else if (second < 0 || compare(start[p], state->share[p],
									   start[second], state->share[second]) < 0)
			second = p;
	}
	if (first < 0)
		return false;
	run->priority = first;
	run->from = got = start[first];
	run->most = 0;
	do
	{
		int			order;

		got = add(got, state->share[first], each);
		run->most++;
		if (second < 0)
			continue;
		order = compare(got, state->share[first],
						start[second], state->share[second]);
		if (order > 0 || (order == 0 && second < first))
			break;
	} while (run->most < most);
	run->charged = run->most * each;
	state->got[first] = got;
	return true;
}

/* --------------------------------------------------------------------- */

/* By time: the lanes that are chosen from. */
typedef struct Lanes
{
	const FairqLaneWork *works; /* what they have worked */
	int32		least_share;	/* the least of the shares */
	int64		running;		/* number of running tasks of all */
	double		longest;		/* E: the longest task of late of all; 0: none
								 * has ended */
	double		got[FAIRQ_PRIORITIES];	/* what they have got per share, and
										 * been given */
} Lanes;

/* By time: had the lane nothing when it was chosen last? */
static bool
is_idle(const FairqShareState *state, int priority)
{
	return (state->time.idle & ((uint32) 1 << priority)) != 0;
}

/* A lane's running tasks per share, and so many more, rounded down. */
static int64
level_of(const FairqShareState *state, const Lanes *lanes, int priority,
		 int64 more)
{
	const FairqLaneWork *work = &lanes->works[priority];

	if (!work->counts)
		more = 0;
	return (work->running + more) * lanes->least_share /
		state->share[priority];
}

/* What a lane's tasks have worked, per share. */
static double
per_share(const FairqShareState *state, const Lanes *lanes, int priority)
{
	return lanes->works[priority].got * lanes->least_share /
		state->share[priority];
}

/*
 * Is a lane before another, with so many more tasks running?  Before any task has
 * ended, levels alone count.  Of equal ones that is which had nothing, and may come.
 */
static bool
is_before(const FairqShareState *state, const Lanes *lanes, int priority,
		  int64 more, int other)
{
	int64		level = level_of(state, lanes, priority, more);
	int64		other_level = level_of(state, lanes, other, 0);
	double		got = lanes->got[priority] + 2 * lanes->longest * level;
	double		other_got = lanes->got[other] + 2 * lanes->longest * other_level;
	bool		idle = more == 0 && is_idle(state, priority);

	if (lanes->longest == 0 && level != other_level)
		return level < other_level;
	if (got != other_got)
		return got < other_got;
	return idle != is_idle(state, other) ? idle : priority < other;
}

/*
 * Find what the lanes have got.  One that had nothing, or is recovered anew, has
 * been given as much as the least of the others, and owes some of the longest tasks
 * at most.
 */
static void
find_got(FairqShareState *state, const FairqLaneWork *works, Lanes *lanes)
{
	double		least = -1;
	double		most;

	memset(lanes, 0, sizeof(*lanes));
	lanes->works = works;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		if (state->share[p] == 0)
			continue;
		if (lanes->least_share == 0 || state->share[p] < lanes->least_share)
			lanes->least_share = state->share[p];
		lanes->running += works[p].running;
		lanes->longest = Max(lanes->longest, works[p].longest);
	}
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		if (state->share[p] == 0)
			continue;
		/* it was recovered anew, or shares are new: it begins even */
		if (state->time.lane_no[p] != works[p].lane_no)
		{
			state->time.lane_no[p] = works[p].lane_no;
			state->time.given[p] = -per_share(state, lanes, p);
			state->time.idle |= (uint32) 1 << p;
		}
		lanes->got[p] = state->time.given[p] + per_share(state, lanes, p);
		if (!is_idle(state, p) && (least < 0 || lanes->got[p] < least))
			least = Max(lanes->got[p], 0);
	}
	most = least + (FAIRQ_MOST_OWED + 2.0 * lanes->running) * lanes->longest;
	for (int p = 0; p < FAIRQ_PRIORITIES && least >= 0; p++)
	{
		if (!is_idle(state, p))
			continue;
		lanes->got[p] = Max(lanes->got[p], least);
		if (lanes->longest > 0)
			lanes->got[p] = Min(lanes->got[p], most);
	}
}

/*
 * Choose the lane that is next by the time of its tasks; and how often in a row, at
 * most so often: each task that is claimed runs.
 */
static bool
choose_by_time(FairqShareState *state, const FairqLaneWork *works,
			   uint32 without, int64 most, FairqShareRun *run)
{
	Lanes		lanes;
	int			first = -1;
	int			second = -1;

	find_got(state, works, &lanes);
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		if (state->share[p] == 0 || (without & ((uint32) 1 << p)) != 0)
			continue;
		if (first < 0 || is_before(state, &lanes, p, 0, first))
		{
			second = first;
			first = p;
		}
		else if (second < 0 || is_before(state, &lanes, p, 0, second))
			second = p;
	}
	if (first < 0)
		return false;
	run->priority = first;
	run->charged = 0;
	run->given = lanes.got[first] - per_share(state, &lanes, first);
	run->most = 1;
	while (run->most < most &&
		   (second < 0 ||
			is_before(state, &lanes, first, run->most, second)))
		run->most++;
	return true;
}

/* --------------------------------------------------------------------- */

/*
 * Choose the lane that is served next, without those in that set of priorities;
 * and how often in a row, at most so often; with 0, once, and what is charged is
 * known when it is settled.  works: of a queue that is fair by
 * time; else NULL.  False if no lane with a share is left.
 */
static bool
share_choose(FairqShareState *state, const FairqLaneWork *works,
			 uint32 without, int64 most, FairqShareRun *run)
{
	run->epoch = state->epoch;
	run->by_time = works != NULL;
	return works == NULL ? choose_by_charge(state, without, most, run) :
		choose_by_time(state, works, without, most, run);
}

/* By time: note whether the lane of a run had something. */
static void
settle_by_time(FairqShareState *state, const FairqShareRun *run,
			   int64 served)
{
	uint32		lane = (uint32) 1 << run->priority;

	if (served == 0)
		state->time.idle |= lane;
	else if ((state->time.idle & lane) != 0)
	{
		state->time.idle &= ~lane;
		state->time.given[run->priority] = run->given;
	}
}

/*
 * Of the run so many tasks were served, which charge so much.  What was charged
 * for others goes back.
 */
static void
share_settle(FairqShareState *state, const FairqShareRun *run,
			 int64 served, int64 charge)
{
	int32		share = state->share[run->priority];
	FairqGot	last;

	if (run->epoch != state->epoch)
		return;
	if (run->by_time)
	{
		settle_by_time(state, run, served);
		return;
	}
	state->got[run->priority] = add(state->got[run->priority], share,
									charge - run->charged);
	if (served == 0)
		return;
	/* of a window of turns all but the first are not served in this order */
	last = served > run->most ? run->from :
		add(run->from, share, charge - charge / served);
	if (state->reached.share == 0 ||
		compare(last, share, state->reached.got, state->reached.share) > 0)
	{
		state->reached.got = last;
		state->reached.share = share;
	}
}

/* --------------------------------------------------------------------- */

/* All lanes are even. */
void
fairq_shares_init(FairqShares *shares)
{
	pg_atomic_init_u32(&shares->first, 0);
	SpinLockInit(&shares->mutex);
	memset(&shares->state, 0, sizeof(FairqShareState));
}

void
fairq_shares_copy(FairqShares *copy, FairqShares *shares)
{
	SpinLockAcquire(&shares->mutex);
	copy->state = shares->state;
	SpinLockRelease(&shares->mutex);
	SpinLockInit(&copy->mutex);
}

/* As share_choose(), with these shares. */
bool
fairq_shares_choose(FairqShares *shares, const int32 *share, uint64 version,
					const FairqLaneWork *works, uint32 without, int64 most,
					FairqShareRun *run)
{
	bool		chosen;

	SpinLockAcquire(&shares->mutex);
	share_begin(&shares->state, share, version);
	chosen = share_choose(&shares->state, works, without, most, run);
	SpinLockRelease(&shares->mutex);
	return chosen;
}

/* As share_settle(). */
void
fairq_shares_settle(FairqShares *shares, const FairqShareRun *run,
					int64 served, int64 charge)
{
	SpinLockAcquire(&shares->mutex);
	share_settle(&shares->state, run, served, charge);
	SpinLockRelease(&shares->mutex);
}
