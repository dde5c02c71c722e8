/*
 * counter.h
 *		Counters of running tasks and of starts, with their limits and paces.
 */
#ifndef FAIRQ_COUNTER_H
#define FAIRQ_COUNTER_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "storage/spin.h"

#define FAIRQ_NO_LIMIT (-1)

/*
 * before all times, and far enough from the end of int64 that sums do not
 * overflow
 */
#define FAIRQ_LONG_AGO (PG_INT64_MIN / 4)

/* the longest span of time that a pace uses: about 36 years */
#define FAIRQ_LONGEST_PACE (PG_INT64_MAX / 8)

/* The rate at which tasks of a group or queue may start. */
typedef struct FairqPace
{
	int64		gap;			/* nanoseconds from one start to the next; 0:
								 * any number may start */
	int64		spare;			/* nanoseconds by which a start may be early:
								 * burst - 1 gaps */
} FairqPace;

/* The starts of a counter. */
typedef struct FairqStarts
{
	int64		last;			/* time that the last start would have if
								 * starts were evenly spaced; not after its
								 * real time */
	int64		full_at;		/* starts before this time have no effect */
	uint16		lanes;			/* lanes in which the group was throttled; bits
								 * by priority */
} FairqStarts;

/* A start that a call has taken, and may give back. */
typedef struct FairqStart
{
	bool		taken;			/* true: the call has a start */
	int64		last;			/* FairqStarts.last after this start */
	int64		before;			/* FairqStarts.last before this start */
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

/* The pace for rate starts per usecs microseconds, with a burst. */
static inline FairqPace
fairq_pace(int32 rate, double usecs, int32 burst)
{
	FairqPace	pace = {0};

	if (rate > 0)
	{
		/* round the gap up, so that the pace is never too fast */
		double		gap = usecs * 1000 / rate;

		pace.gap = (int64) Min(gap + 1, (double) FAIRQ_LONGEST_PACE);
		if (pace.gap > 1 && (double) (pace.gap - 1) >= gap)
			pace.gap--;
		pace.spare = (int64) Min((double) pace.gap * (burst - 1),
								 (double) FAIRQ_LONGEST_PACE);
	}
	return pace;
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

/*
 * Numbers of tasks are kept twice: since the last load that is over, and since
 * the load in progress.  The number of a load decides which of the two books
 * is its own.
 */
#define FAIRQ_BOOKS 2

static inline int
fairq_book_of(uint64 number)
{
	return number % FAIRQ_BOOKS;
}

/*
 * The load that makes counters known.  Numbers of an older load are invalid.
 * Made by fairq_tally_now().
 */
typedef struct FairqKnown
{
	uint64		number;			/* number of the last load that is over */
	bool		known;			/* true: that load is valid for the queue's
								 * counters */
} FairqKnown;

/* The books to which a commit adds.  Made by fairq_tally_enter(). */
typedef struct FairqAdds
{
	uint64		number[FAIRQ_BOOKS];	/* number of the book's load */
	bool		adds[FAIRQ_BOOKS];	/* false: that load has seen the
									 * transaction's changes */
} FairqAdds;

/*
 * The counter of the running tasks of a group, or of a queue; in shared
 * memory.  It is never moved, and not freed while it is pinned.  All fields
 * are under the mutex, except tenure, which is constant.
 */
typedef struct FairqCounter
{
	slock_t		mutex;			/* spinlock of all fields */
	uint16		parked;			/* lanes that have parked the group, a bit for
								 * each priority */
	int32		committed[FAIRQ_BOOKS]; /* number of running tasks according to
										 * commits; until the load is over,
										 * only the changes since it began */
	int32		open;			/* number of slots of calls and transactions
								 * that have not ended */
	int32		pins;			/* number of pointers to the counter that
								 * backends keep */
	uint64		number[FAIRQ_BOOKS];	/* number of the load to which
										 * committed belongs */
	uint64		tenure;			/* number of the queue's tenure of the hints */
	FairqStarts starts;			/* times at which tasks started */
} FairqCounter;

/*
 * Whether there is a slot under a limit.  With several limits, the greatest of
 * their results applies.
 */
typedef enum FairqSlot
{
	FAIRQ_SLOT_FREE,			/* there is a slot */
	FAIRQ_SLOT_UNKNOWN,			/* not known, until a load is over */
	FAIRQ_SLOT_NONE				/* there is none */
} FairqSlot;

/* Whether any backend keeps a pointer to the counter. */
static inline bool
fairq_counter_is_pinned(FairqCounter *counter)
{
	bool		pinned;

	SpinLockAcquire(&counter->mutex);
	pinned = counter->pins > 0;
	SpinLockRelease(&counter->mutex);
	return pinned;
}

static inline void
fairq_counter_pin(FairqCounter *counter)
{
	SpinLockAcquire(&counter->mutex);
	counter->pins++;
	SpinLockRelease(&counter->mutex);
}

static inline void
fairq_counter_unpin(FairqCounter *counter)
{
	SpinLockAcquire(&counter->mutex);
	Assert(counter->pins > 0);
	counter->pins--;
	SpinLockRelease(&counter->mutex);
}

extern void fairq_counter_init(FairqCounter *counter, uint64 tenure,
							   int64 born);
extern void fairq_counter_copy(FairqCounter *copy, FairqCounter *counter);
extern void fairq_counter_begin_starts(FairqCounter *counter, int64 since);
extern bool fairq_counter_is_idle(FairqCounter *counter, uint64 current);
extern FairqSlot fairq_counter_enter(FairqCounter *counter, FairqKnown now,
									 int32 limit, bool look);
extern uint16 fairq_counter_ended(FairqCounter *counter, const FairqAdds *adds,
								  int32 slots, int32 running);
extern void fairq_counter_add(FairqCounter *counter, uint64 number, int32 n);
extern bool fairq_counter_park(FairqCounter *counter, FairqKnown now,
							   int32 limit, int lane,
							   pg_atomic_uint64 *version,
							   uint64 version_read);
extern bool fairq_counter_read(FairqCounter *counter, FairqKnown now,
							   bool open, int32 *n);
extern int64 fairq_counter_start(FairqCounter *counter,
								 const FairqPace *pace, FairqStart *start);
extern bool fairq_counter_starts_matter(FairqCounter *counter);
extern int64 fairq_counter_next_start(FairqCounter *counter,
									  const FairqPace *pace, uint16 lanes);
extern uint16 fairq_counter_unstart(FairqCounter *counter, FairqStart *start);

#endif							/* FAIRQ_COUNTER_H */
