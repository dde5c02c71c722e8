/*
 * lane_time.c
 *		What groups have got of lanes that are fair by time.
 *
 * There all groups get the same time of workers, times their weights.  How long a
 * task will take is not known, and not estimated.  What a group has got is the
 * time that its finished tasks have taken, and the time for which its running ones
 * run so far, divided by its weight.  Its level is the number of its running tasks,
 * divided by its weight and rounded down.  Of the groups that may have something
 * ready that one is next for which
 *
 *		got + 2 * E * level
 *
 * is least, where E is the longest task of late.  So as long as all groups have got
 * the same but for 2 * E, who has the fewest running is next, and of these who has
 * got least; and who lags by more than that may have one more running.
 *
 * A group that comes is given as much as the group has got, of those that wait,
 * that has got least: it is next, and has saved up nothing.  What it has got above
 * that it owes, but no more than MOST_OWED times E: so the lease of a worker that
 * died, of which nobody knows whether it was used, costs its group that much at
 * most.
 *
 * E is the longest of the tasks that have ended, less a 128th of what has been
 * worked since; and at least the mean age of what the group that a task has ended
 * of still runs.  Before any has ended, levels alone count.
 *
 * All of that changes as the clock goes on.  But what groups of one level have got
 * grows at the same pace, so their order does not change; with weights, but for
 * less than a task.  So the groups stand in one ordered set, by their level and by
 * x, what they would have got at the lane's beginning if they had gone at that pace
 * since; and the next one is the best of the first ones of each level, of which
 * there are two in the mean.
 *
 * Times are counted from the lane's recovery on (order.since).  A task counts as
 * running if it was popped after that, by the clock that its row says; of others
 * the time that they have taken is charged at their end, and until then they hold
 * no level.  A task counts from the moment at which its turn is taken; its end, once
 * that is visible; so the pending changes of a transaction (FairqWork) say what has
 * begun, which an abort undoes, and what has ended, which a commit charges.
 *
 * A task whose lease has ended counts as running until another call takes it over,
 * or ends it: then it is charged to the end of its lease.  While its group has
 * lapsed, the group stands at level 0, with what it has got as of then: otherwise
 * it would be kept back by the very task that waits to be taken over.
 *
 * Times are in microseconds, those per weight as doubles.
 *
 * Locking: the lane's lock, exclusively.
 */
#include "postgres.h"

#include "lane.h"
#include "lane_internal.h"
#include "lane_order.h"

/* levels of which the first group is looked at */
#define MOST_LEVELS 8

/* how much of what is worked E is lowered by */
#define LOWERED_BY 128

/* what a group can owe, in units of E */
#define MOST_OWED 16

/* Returns what the group has got, per weight. */
double
fairq_time_got(FairqLane *lane, const FairqAccount *account, TimestampTz now)
{
	double		since_start = (double) account->running *
		(now - lane->order.since) - (double) account->started;

	return fairq_amount_value(account->done) + since_start / account->weight;
}

/* Rank the group by what it has got and runs. */
static void
rank_by_time(FairqLane *lane, int32 group_no, FairqAccount *account,
			 TimestampTz now)
{
	FairqRank  *rank = &account->node.rank;

	rank->level = has(lane, FAIRQ_LAPSED, group_no) ? 0 :
		account->running / account->weight;
	rank->amount = fairq_amount(fairq_time_got(lane, account, now) -
								(double) rank->level *
								(now - lane->order.since));
}

/*
 * Calls a function for the first group of each level, of those that the call does
 * not pass over, until it returns false.
 */
typedef bool (*FirstOfLevel) (FairqLane *lane, int32 group_no,
							  const FairqAccount *account, void *arg);

static void
for_each_level(FairqLane *lane, const FairqVisits *visits, FirstOfLevel call,
			   void *arg)
{
	FairqRank	behind = {
		.level = PG_INT32_MIN
	};

	for (int i = 0; i < MOST_LEVELS; i++)
	{
		int32		group_no = fairq_lane_order_after(lane, visits, &behind);
		const FairqAccount *account;

		if (group_no == FAIRQ_NO_NODE)
			break;
		account = fairq_lane_account(lane, group_no);
		if (!call(lane, group_no, account, arg))
			break;
		behind.level = account->node.rank.level;
		behind.amount.whole = PG_INT64_MAX;
	}
}

/* The least that a group has got. */
typedef struct Least
{
	TimestampTz now;
	bool		any;
	double		got;
} Least;

static bool
look_for_least(FairqLane *lane, int32 group_no, const FairqAccount *account,
			   void *arg)
{
	Least	   *least = arg;
	double		got = fairq_time_got(lane, account, least->now);

	least->got = least->any ? Min(least->got, got) : got;
	least->any = true;
	return true;
}

/*
 * Returns the least that one of the groups has got that wait; if there are none,
 * what the one had got that was served last.
 */
double
fairq_time_least(FairqLane *lane, TimestampTz now)
{
	Least		least = {.now = now};

	for_each_level(lane, NULL, look_for_least, &least);
	return least.any ? least.got : fairq_amount_value(lane->order.start);
}

/* Add to what a group has got; or, if it is less than 0, remove. */
static void
add_done(FairqAccount *account, double amount)
{
	account->done = fairq_amount_add(account->done, fairq_amount(amount));
}

/* The group comes, or has lapsed, when the least that one has got is that. */
void
fairq_time_comes(FairqLane *lane, int32 group_no, FairqAccount *account,
				 double least, TimestampTz now)
{
	double		got = fairq_time_got(lane, account, now);
	double		most = least + MOST_OWED * lane->order.longest;

	if (got < least || account->node.rank.tie == 0)
		account->node.rank.tie = fairq_lane_order_new_tie(lane, group_no);
	if (got < least)
		add_done(account, least - got);
	else if (lane->order.longest > 0 && got > most)
		add_done(account, most - got);
	rank_by_time(lane, group_no, account, now);
}

/* The best of the first groups of each level. */
typedef struct Best
{
	TimestampTz now;
	int32		group_no;		/* FAIRQ_NO_NODE: none so far */
	double		key;			/* what is least */
	uint64		tie;
} Best;

static bool
look_for_best(FairqLane *lane, int32 group_no, const FairqAccount *account,
			  void *arg)
{
	Best	   *best = arg;
	const FairqRank *rank = &account->node.rank;
	double		key = fairq_time_got(lane, account, best->now) +
		2 * lane->order.longest * rank->level;

	if (best->group_no == FAIRQ_NO_NODE || key < best->key ||
		(key == best->key && rank->tie < best->tie))
	{
		best->group_no = group_no;
		best->key = key;
		best->tie = rank->tie;
	}
	/* before any task has ended, levels alone count */
	return lane->order.longest > 0;
}

/* Returns the group that is next; FAIRQ_NO_NODE: none. */
int32
fairq_time_next(FairqLane *lane, const FairqTaking *taking)
{
	Best		best = {
		.now = taking->order.now,
		.group_no = FAIRQ_NO_NODE
	};

	for_each_level(lane, taking->order.visits, look_for_best, &best);
	return best.group_no;
}

/* A task of the group is about to be claimed at that turn. */
void
fairq_time_begins(FairqLane *lane, FairqAccount *account, FairqTurn *turn,
				  TimestampTz now)
{
	lane->order.start = fairq_amount(fairq_time_got(lane, account, now));
	turn->charge.counted = now > lane->order.since;
	turn->charge.now = now;
	if (turn->charge.counted)
	{
		account->running++;
		account->started += now - lane->order.since;
	}
	rank_by_time(lane, turn->group_no, account, now);
}

/* It was not: nothing could be had at the turn. */
void
fairq_time_begins_not(FairqLane *lane, FairqAccount *account,
					  const FairqTurn *turn)
{
	if (turn->charge.counted)
	{
		account->running--;
		account->started -= turn->charge.now - lane->order.since;
	}
	rank_by_time(lane, turn->group_no, account, turn->charge.now);
}

/* --------------------------------------------------------------------- */

/*
 * Is the lane fair by time since a recovery that goes on?  Then *lane_no and
 * *since are of that.
 */
static bool
is_by_time(FairqLane *lane, uint32 *lane_no, TimestampTz *since)
{
	bool		by_time;

	/* others need not be locked for that */
	if (*(volatile FairqFairBy *) &lane->recovery.fair_by != FAIRQ_BY_TIME)
		return false;
	LWLockAcquire(&lane->lock, LW_SHARED);
	by_time = is_begun(lane) && lane->recovery.fair_by == FAIRQ_BY_TIME;
	*lane_no = lane->recovery.lane_no;
	*since = lane->order.since;
	LWLockRelease(&lane->lock);
	return by_time;
}

/*
 * Prepare to add something to what a transaction has begun and ended of a group;
 * -1: of more groups than are kept apart.  False if that is of no interest.
 */
static bool
prepare(FairqLane *lane, int32 group_no, FairqWork *work, TimestampTz *since)
{
	uint32		lane_no;

	if (!is_by_time(lane, &lane_no, since))
		return false;
	work->any = true;
	if (group_no < 0)
		return false;
	/* what was counted before another recovery is not counted any more */
	if (work->lane_no != lane_no)
	{
		work->lane_no = lane_no;
		work->begun = work->ended = work->taken = 0;
		work->begun_since = work->ended_since = work->taken_since = 0;
	}
	fairq_order_have_one(&lane->order.set, group_no);
	return true;
}

/*
 * A task of the group was claimed at that time, at a turn that was taken when the
 * lane had that lane_no.  With removed it runs as long as
 * the transaction does.  In a full queue it begins to count only now.
 */
void
fairq_work_begun(FairqLane *lane, uint32 lane_no, int32 group_no,
				 FairqWork *work, TimestampTz now, bool in_full,
				 bool removed)
{
	TimestampTz since;

	if (!prepare(lane, group_no, work, &since) || work->lane_no != lane_no ||
		now <= since)
		return;
	if (in_full)
	{
		LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
		if (lane->recovery.lane_no == work->lane_no)
		{
			FairqAccount *account = fairq_lane_account(lane, group_no);
			bool		was_in = fairq_lane_order_remove(lane, group_no);

			account->running++;
			account->started += now - since;
			rank_by_time(lane, group_no, account, now);
			fairq_lane_order_again(lane, group_no, was_in);
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
 * has taken so long.
 */
void
fairq_work_ended(FairqLane *lane, int32 group_no, FairqWork *work,
				 TimestampTz popped_at, int64 took)
{
	TimestampTz since;

	if (!prepare(lane, group_no, work, &since))
		return;
	work->took += took;
	work->longest = Max(work->longest, took);
	if (popped_at <= since || TIMESTAMP_IS_NOEND(popped_at))
		return;
	work->ended++;
	work->ended_since += popped_at - since;
}

/* Lower E by what was worked; it is not lower than the longest task. */
static void
note_longest(FairqLane *lane, const FairqAccount *account, double took,
			 double longest, TimestampTz now)
{
	double		e = lane->order.longest - took / LOWERED_BY;

	e = Max(e, longest);
	if (account->running > 0)
		e = Max(e, ((double) account->running * (now - lane->order.since) -
					(double) account->started) / account->running);
	/* 0 would be: none has ended */
	lane->order.longest = Max(e, 1);
}

/* Charge the group for what has ended, or undo what it has begun. */
static void
apply_work(FairqLane *lane, int32 group_no, const FairqWork *work,
		   bool committed)
{
	FairqAccount *account = fairq_lane_account(lane, group_no);
	bool		counts = lane->recovery.lane_no == work->lane_no;
	TimestampTz now = GetCurrentTimestamp();
	bool		was_in = fairq_lane_order_remove(lane, group_no);

	if (counts && !committed)
	{
		account->running -= work->begun;
		account->started -= work->begun_since;
	}
	else if (committed)
	{
		double		took = work->took;
		double		longest = work->longest;
		double		most;

		if (counts)
		{
			double		mean = (now - lane->order.since) -
				(double) work->taken_since / Max(work->taken, 1);

			account->running -= work->ended + work->taken;
			account->started -= work->ended_since + work->taken_since;
			took += work->taken * Max(mean, 0);
			longest = work->taken > 0 ? Max(longest, mean) : longest;
		}
		add_done(account, took / account->weight);
		note_longest(lane, account, took, longest, now);
		most = fairq_time_least(lane, now) +
			MOST_OWED * lane->order.longest -
			fairq_time_got(lane, account, now);
		if (most < 0)
			add_done(account, most);
	}
	/* rows that were written by SQL may say that they were popped since */
	if (account->running <= 0)
		account->running = account->started = 0;
	rank_by_time(lane, group_no, account, now);
	fairq_lane_order_again(lane, group_no, was_in);
}

/*
 * The transaction has ended.  For commit and abort callbacks: nothing fails or
 * allocates.
 */
void
fairq_work_end(FairqLane *lane, int32 group_no, const FairqWork *work,
			   bool committed)
{
	if (!work->any)
		return;
	/* more groups than are kept apart: all are even again */
	if (group_no < 0)
	{
		fairq_lane_forget(lane);
		return;
	}
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane) && lane->recovery.fair_by == FAIRQ_BY_TIME)
		apply_work(lane, group_no, work, committed);
	LWLockRelease(&lane->lock);
}
