/*
 * minute.c
 *		What the groups of a lane were served in the last full minute: pure
 *		arithmetic.
 *
 * A minute has a number, counted from the recovery of the lane on.  Of each group
 * it is kept what it was served in the present minute and in the one before, per
 * weight; of the lane, the sums and the sums of squares over the groups that count,
 * from which Jain's index follows (Jain, Chiu, Hawe 1984):
 *
 *		(sum of x)^2 / (n * sum of x^2)
 *
 * It is 1 if all were served the same, and 1 / n if one was served all.  A group
 * counts in a minute if it stood in the ordered set at any moment of it, that is,
 * could be served.
 *
 * By time, a running task works all the time, and no call comes by.  What a group was
 * served grows at a pace then, which is the number of its running tasks per weight.
 * At t after the minute's beginning it is
 *
 *		x = work + pace * t
 *
 * and work and pace stay the same until something of the group changes.  So the sums
 * at any t follow from sums of work, pace, their squares and their product; what a
 * minute begins with, from those of pace alone, over the groups that stand in the
 * set.  By cost the pace is 0.
 *
 * Each change of a group is between fairq_minute_open(), which takes the group out of
 * the sums, and fairq_minute_close(), which adds what it has become.  A group of which
 * nothing has changed for minutes rolls over only then: how the sums began says all
 * of it.  A change costs some twenty additions; the next minute, as many, whatever
 * number of groups there are.
 *
 * now is in microseconds since the recovery; a time before the present minute is that
 * at which it began.  Costs are as they were declared, and work is in seconds.
 *
 * Locking: none here.  The caller has the lane's lock, or copies of its own.
 */
#include "postgres.h"

#include <math.h>

#include "minute.h"

/* seconds of a minute */
#define SECONDS (FAIRQ_MINUTE / 1000000.0)

/* Seconds from the beginning of the present minute on. */
static double
since_begin(const FairqMinute *minute, int64 now)
{
	return Max(now - minute->number * FAIRQ_MINUTE, 0) / 1000000.0;
}

/* What groups were served that long after a minute's beginning. */
static FairqServedSums
sums_at(const FairqServedSums *sums, double t)
{
	return (FairqServedSums)
	{
		.n = sums->n,
			.work = sums->work + sums->pace * t,
			.work_work = sums->work_work + 2 * t * sums->work_pace +
			t * t * sums->pace_pace
	};
}

/* Begin the minute in which that time is, if it is a later one. */
void
fairq_minute_advance(FairqMinute *minute, int64 now)
{
	int64		number = now / FAIRQ_MINUTE;

	if (number <= minute->number)
		return;
	/* if nothing has changed for a minute, all that stand were standing then */
	minute->last = sums_at(number == minute->number + 1 ? &minute->present :
						   &minute->standing, SECONDS);
	/* what is left of rounding goes when nothing is left of the groups */
	if (minute->standing.n == 0)
		memset(&minute->standing, 0, sizeof(minute->standing));
	minute->present = minute->standing;
	minute->number = number;
}

static void
add_to_sums(FairqServedSums *sums, int sign, double work, double pace)
{
	sums->n += sign;
	sums->work += sign * work;
	sums->work_work += sign * work * work;
	sums->pace += sign * pace;
	sums->pace_pace += sign * pace * pace;
	sums->work_pace += sign * work * pace;
}

/*
 * Something of a group is about to change, which stands in the ordered set or does
 * not, and has that pace.  Then served->work is what it was served in the present
 * minute so far.  Returns whether nothing had changed in this minute before.
 */
bool
fairq_minute_open(FairqMinute *minute, FairqServed *served, double pace,
				  bool stands, int64 now)
{
	bool		first;

	fairq_minute_advance(minute, now);
	first = served->minute != minute->number;
	if (first)
	{
		served->last = fairq_minute_served(minute, served, pace);
		served->work = 0;
		served->minute = minute->number;
		served->counts = stands;
	}
	if (served->counts)
		add_to_sums(&minute->present, -1, served->work, pace);
	if (stands)
		add_to_sums(&minute->standing, -1, 0, pace);
	served->work += pace * since_begin(minute, now);
	return first;
}

/* It has changed, and served->work has what it was served. */
void
fairq_minute_close(FairqMinute *minute, FairqServed *served, double pace,
				   bool stands, int64 now)
{
	/* a task may have taken less than for what it was running */
	served->work = Max(served->work, 0) - pace * since_begin(minute, now);
	if (stands)
	{
		served->counts = 1;
		add_to_sums(&minute->standing, 1, 0, pace);
	}
	if (served->counts)
		add_to_sums(&minute->present, 1, served->work, pace);
}

/*
 * What the group was served in the last full minute, per weight.  The minute is the
 * present one, and number is not 0.
 */
double
fairq_minute_served(const FairqMinute *minute, const FairqServed *served,
					double pace)
{
	if (served->minute == minute->number)
		return served->last;
	return pace * SECONDS +
		(served->minute + INT64CONST(1) == minute->number ? served->work : 0);
}

/* The same of the present minute. */
double
fairq_minute_served_so_far(const FairqMinute *minute,
						   const FairqServed *served, double pace, int64 now)
{
	return pace * since_begin(minute, now) +
		(served->minute == minute->number ? served->work : 0);
}

/* Jain's index of the last full minute; -1: nothing was served, or there is none. */
double
fairq_minute_jain(const FairqMinute *minute)
{
	const FairqServedSums *last = &minute->last;

	if (minute->number == 0 || last->n < 1 || last->work <= 0 ||
		last->work_work <= 0)
		return -1;
	return Min(last->work * last->work / (last->n * last->work_work), 1);
}
