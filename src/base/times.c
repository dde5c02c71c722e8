/*
 * times.c
 *		The times at which leases end and scheduled tasks become due in a lane.
 *
 * Time makes tasks ready without any call.  To avoid a search for them in each
 * pop, a lane has a timer for each of the two timed regions, and a deadline:
 *
 * timers	The first address of scheduled tasks, and the first address of
 *			tasks that wait for a retry.  Addresses are in the order of times,
 *			so this is also the time of the first.  If it has passed, a pop
 *			reads the tasks that are due, and puts their groups into the set
 *			"due" (serve.c).  It raises the timer to the first task that is not
 *			due.
 *
 * deadline	No lease ends before it.  Each 64 groups have their own deadline
 *			(seats.c), and this is the lowest of these.  When the deadline of
 *			64 groups has passed, those of them that are leased have lapsed.
 *			Their leases are checked at their turns (turn.c).  After a
 *			restart it includes a lease once a load has read its task
 *			(load.c).
 *
 * Searches miss no task, because only one backend at a time searches.  The
 * lowest timer entered meanwhile is kept separately (timers_since), and timers
 * are not raised past it.
 *
 * Locking: the caller writes under the lane's lock; atomic fields are read
 * without it.  Nothing here allocates or fails.
 */
#include "postgres.h"

#include "times.h"

/* The regions of timed tasks. */
#define FOR_TIMED_REGIONS(r) \
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)

/* The timer of a region. */
static inline int64
timer_of(FairqTimes *times, FairqRegion region)
{
	return (int64) pg_atomic_read_u64(&times->timers[region]);
}

/* Enter a task that is scheduled at an address. */
void
fairq_times_scheduled(FairqTimes *times, int64 addr)
{
	FairqRegion region = fairq_region(addr);

	if (addr < timer_of(times, region))
		pg_atomic_write_u64(&times->timers[region], addr);
	times->timers_since[region] = Min(times->timers_since[region], addr);
}

/*
 * Whether searches have passed an address, so that no search will find it
 * again.
 */
bool
fairq_times_passed(FairqTimes *times, int64 addr)
{
	return addr < timer_of(times, fairq_region(addr));
}

/*
 * The address of a timed region below which no task waits for its time;
 * FAIRQ_ADDR_MAX: no task waits.  Needs no lock.
 */
int64
fairq_times_first(FairqTimes *times, FairqRegion region)
{
	int64		first = timer_of(times, region);

	return first >= fairq_region_from(region) + FAIRQ_TIMED_SIZE - 2 ?
		FAIRQ_ADDR_MAX : first;
}

/* Set the deadline: a lease ends at the given time, and none ends earlier. */
void
fairq_times_deadline(FairqTimes *times, TimestampTz deadline)
{
	pg_atomic_write_u64(&times->deadline, (uint64) deadline);
}

/*
 * Make searches start from the first timed task, because none is known.  Keep
 * the deadline, because the leases are still running.
 */
void
fairq_times_forget(FairqTimes *times)
{
	FOR_TIMED_REGIONS(r)
	{
		pg_atomic_write_u64(&times->timers[r], fairq_region_from(r));
		times->timers_since[r] = fairq_region_from(r);
	}
	times->searching = false;
}

void
fairq_times_init(FairqTimes *times)
{
	pg_atomic_init_u64(&times->deadline, (uint64) DT_NOEND);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		pg_atomic_init_u64(&times->timers[r], 0);
	fairq_times_forget(times);
}

/* Whether a search may find a due task or an ended lease.  Needs no lock. */
bool
fairq_times_due(FairqTimes *times, TimestampTz now)
{
	FOR_TIMED_REGIONS(r)
		if (timer_of(times, r) < fairq_due_end(r, now))
			return true;
	return (int64) pg_atomic_read_u64(&times->deadline) <= now;
}

/*
 * Returns the time at which a search will be necessary.  Needs no lock.
 */
TimestampTz
fairq_times_next(FairqTimes *times)
{
	TimestampTz next = pg_atomic_read_u64(&times->deadline);

	FOR_TIMED_REGIONS(r)
	{
		int64		timers = timer_of(times, r);

		if (timers != FAIRQ_ADDR_MAX)
			next = Min(next, fairq_due_time(timers));
	}
	return next;
}

/*
 * Begin to search.  False if another backend is searching.  After true the
 * caller calls fairq_times_end(), or sets searching to false.
 */
bool
fairq_times_begin(FairqTimes *times, FairqTimerSearch *search)
{
	if (times->searching)
		return false;
	times->searching = true;
	search->timers[FAIRQ_REGION_QUEUED] = FAIRQ_ADDR_MAX;
	FOR_TIMED_REGIONS(r)
	{
		search->timers[r] = timer_of(times, r);
		times->timers_since[r] = FAIRQ_ADDR_MAX;
	}
	return true;
}

/* End a search, which has reached these addresses. */
void
fairq_times_end(FairqTimes *times, const FairqTimerSearch *search)
{
	times->searching = false;
	FOR_TIMED_REGIONS(r)
		pg_atomic_write_u64(&times->timers[r],
							Min(search->timers[r], times->timers_since[r]));
}
