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
 * what came to nothing is given back.  Virtual time goes on for what was served
 * alone; so a lane that has nothing changes nothing, however often it is tried.  Of
 * a window of turns, all of one lane, it goes on for the first task only: so the
 * other lanes keep what they lack.
 *
 * The arithmetic is exact, but that a lane which begins at virtual time is
 * charged up to one part in FAIRQ_CHARGE_ONE of a task.  The products are below
 * 2^61, and a lane's whole rounds last longer than any server.
 *
 * Shares are those of the settings' latest version that a caller has come with.
 * When they are others, and after a restart, all lanes are even.
 *
 * Locking: a spinlock, for some comparisons.  The functions of a state take a
 * caller's own copy, or are called under the lock.
 */
#include "postgres.h"

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
void
fairq_share_begin(FairqShareState *state, const int32 *share, uint64 version)
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
 * Choose the lane that is served next, without those in that set of priorities;
 * and how often in a row, at most so often, if each claim charges one task.  It
 * is charged for all of these.  False if no lane with a share is left.
 */
bool
fairq_share_choose(FairqShareState *state, uint32 without, int64 most,
				   FairqShareRun *run)
{
	FairqGot	start[FAIRQ_PRIORITIES];
	FairqGot	got;
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
	run->epoch = state->epoch;
	run->from = got = start[first];
	run->most = 0;
	do
	{
		int			order;

		got = add(got, state->share[first], FAIRQ_CHARGE_ONE);
		run->most++;
		if (second < 0)
			continue;
		order = compare(got, state->share[first],
						start[second], state->share[second]);
		if (order > 0 || (order == 0 && second < first))
			break;
	} while (run->most < most);
	run->charged = run->most * FAIRQ_CHARGE_ONE;
	state->got[first] = got;
	return true;
}

/*
 * Of the run so many tasks were served, which charge so much.  What was charged
 * for others goes back.
 */
void
fairq_share_settle(FairqShareState *state, const FairqShareRun *run,
				   int64 served, int64 charge)
{
	int32		share = state->share[run->priority];
	FairqGot	last;

	if (run->epoch != state->epoch)
		return;
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
	SpinLockInit(&shares->mutex);
	memset(&shares->state, 0, sizeof(FairqShareState));
}

/* Copy the state, with these shares. */
void
fairq_shares_copy(FairqShares *shares, const int32 *share, uint64 version,
				  FairqShareState *copy)
{
	SpinLockAcquire(&shares->mutex);
	*copy = shares->state;
	SpinLockRelease(&shares->mutex);
	fairq_share_begin(copy, share, version);
}

/* As fairq_share_choose(), with these shares. */
bool
fairq_shares_choose(FairqShares *shares, const int32 *share, uint64 version,
					uint32 without, int64 most, FairqShareRun *run)
{
	bool		chosen;

	SpinLockAcquire(&shares->mutex);
	fairq_share_begin(&shares->state, share, version);
	chosen = fairq_share_choose(&shares->state, without, most, run);
	SpinLockRelease(&shares->mutex);
	return chosen;
}

/* As fairq_share_settle(). */
void
fairq_shares_settle(FairqShares *shares, const FairqShareRun *run,
					int64 served, int64 charge)
{
	SpinLockAcquire(&shares->mutex);
	fairq_share_settle(&shares->state, run, served, charge);
	SpinLockRelease(&shares->mutex);
}
