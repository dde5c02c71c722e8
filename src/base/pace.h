/*
 * pace.h
 *		How often tasks may start: the arithmetic of rates.
 *
 * The algorithm is GCRA (the generic cell rate algorithm of ATM).  Each
 * counter keeps one number: the time that the last start would have if starts
 * were evenly spaced.  The next start is allowed one gap later.  After a long
 * pause that number is as old as the burst allows.  So in any stretch of time
 * t there are at most burst + t / gap starts.
 *
 * Time is that of the monotonic clock, in nanoseconds: a step of the wall
 * clock does not start more tasks.
 */
#ifndef FAIRQ_PACE_H
#define FAIRQ_PACE_H

#include "datatype/timestamp.h"
#include "portability/instr_time.h"

/* before all times, and far enough from the ends of an int64 for a sum */
#define FAIRQ_LONG_AGO (PG_INT64_MIN / 4)

/* the longest span of time that a pace uses: about 36 years */
#define FAIRQ_LONGEST_PACE (PG_INT64_MAX / 8)

/* The rate at which tasks of a group or queue may start. */
typedef struct FairqPace
{
	int64		gap;			/* nanoseconds from one start to the next; 0:
								 * any number may start */
	int64		spare;			/* nanoseconds by which a start may be earlier:
								 * burst - 1 gaps */
} FairqPace;

/* The starts of a counter. */
typedef struct FairqStarts
{
	int64		last;			/* time of the last start, if starts were
								 * evenly paced: not after its real time */
	int64		full_at;		/* time from which on no start matters any
								 * more */
	uint16		lanes;			/* lanes in which the group was throttled; bits
								 * by priority */
} FairqStarts;

/* A start that a call has taken, and may give back. */
typedef struct FairqStart
{
	bool		taken;			/* true: the call has one */
	int64		last;			/* last of FairqStarts after it */
	int64		before;			/* last of FairqStarts before it */
} FairqStart;

/* The time by the monotonic clock, in nanoseconds. */
static inline int64
fairq_monotonic(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
#ifdef INSTR_TIME_GET_NANOSEC
	return (int64) INSTR_TIME_GET_NANOSEC(now);
#else
	return (int64) INSTR_TIME_GET_MICROSEC(now) * 1000;
#endif
}

/* The pace for n starts in a number of microseconds, with a burst. */
static inline FairqPace
fairq_pace(int32 rate, double usecs, int32 burst)
{
	FairqPace	pace = {0};

	if (rate > 0)
	{
		/* rounded up, so that it is never too fast */
		double		gap = usecs * 1000 / rate;

		pace.gap = (int64) Min(gap + 1, (double) FAIRQ_LONGEST_PACE);
		if (pace.gap > 1 && (double) (pace.gap - 1) >= gap)
			pace.gap--;
		pace.spare = (int64) Min((double) pace.gap * (burst - 1),
								 (double) FAIRQ_LONGEST_PACE);
	}
	return pace;
}

/* Record that no start after the given time is known. */
static inline void
fairq_starts_init(FairqStarts *starts, int64 since)
{
	starts->last = since;
	starts->full_at = FAIRQ_LONG_AGO;
	starts->lanes = 0;
}

/* Time at which the next task may start; it may be in the past. */
static inline int64
fairq_starts_next(const FairqStarts *starts, const FairqPace *pace)
{
	return pace->gap == 0 ? FAIRQ_LONG_AGO : starts->last + pace->gap;
}

/*
 * Start a task now, if the pace allows it.  Returns 0, or the time at which it
 * does.
 */
static inline int64
fairq_starts_take(FairqStarts *starts, const FairqPace *pace, int64 now,
				  FairqStart *start)
{
	int64		next = fairq_starts_next(starts, pace);

	if (now < next)
		return next;
	start->taken = true;
	start->before = starts->last;
	starts->last = Max(next, now - pace->spare);
	start->last = starts->last;
	starts->full_at = starts->last + pace->gap + pace->spare;
	return 0;
}

/* Convert a time of the monotonic clock to the wall clock. */
static inline TimestampTz
fairq_wall_time(int64 monotonic, TimestampTz now)
{
	return now + (monotonic - fairq_monotonic() + 999) / 1000;
}

/*
 * Convert the end of a hold to the monotonic clock.  The hold ends in the
 * future, by the wall clock.
 */
static inline int64
fairq_hold_end_at(TimestampTz until, TimestampTz now)
{
	return fairq_monotonic() +
		Min(until - now, FAIRQ_LONGEST_PACE / 1000) * 1000;
}

#endif							/* FAIRQ_PACE_H */
