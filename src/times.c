/*
 * times.c
 *		When something falls due in a lane: leases and scheduled tasks.
 *
 * Time makes tasks ready without anybody's doing.  So that a pop need not look
 * for them, two things are known of a lane:
 *
 * timers	Where scheduled tasks begin.  They stand in the order of the times
 *			at which they fall due, so this is also the time of the first.  A
 *			pop that finds it passed reads the tasks that have fallen due,
 *			tells their groups (due.c) and raises it to the first that has not.
 *
 * deadline, floor, ceiling
 *			No lease ends before the first, and the tasks that it stands for
 *			are between the others.  Leases stand in no order of time.  So a
 *			pop that finds the deadline passed sweeps: reads what stands
 *			there, tells the groups of what has expired, and notes the
 *			deadline of the rest.  That takes as many calls as it takes; each
 *			goes on where the last one has stopped.
 *
 * A sweep goes over what was finished since the last one, however old the
 * oldest snapshot is: it begins at the floor that the last one has found, the
 * oldest task that was still running.
 *
 * Nothing is missed:
 *
 * - Whoever leases a task says so after that is visible; whoever had a lease
 *	 in his hands and rolls back says it again (transaction.c).
 *
 * - A sweep takes all three away as it begins.  What is leased by then it
 * sees;
 *	 what is said later counts from anew.  Whoever is interrupted by that says
 *	 all again.
 *
 * - Timers: only one backend looks at a time.  What is entered while it does
 * is
 *	 kept besides, and the mark is not raised past that.
 *
 * Locking: deadline, floor and ceiling are atomic, and only the sweep narrows
 * them; for all else the caller holds the lane's lock.  Nothing here allocates
 * or fails.
 */
#include "postgres.h"

#include "times.h"

static void
lower(pg_atomic_uint64 *what, int64 value)
{
	uint64		present = pg_atomic_read_u64(what);

	while (value < (int64) present &&
		   !pg_atomic_compare_exchange_u64(what, &present, (uint64) value))
		;
}

static void
raise(pg_atomic_uint64 *what, int64 value)
{
	uint64		present = pg_atomic_read_u64(what);

	while (value > (int64) present &&
		   !pg_atomic_compare_exchange_u64(what, &present, (uint64) value))
		;
}

/* A task is scheduled there. */
void
fairq_times_scheduled(FairqTimes *times, int64 addr)
{
	lower(&times->timers, addr);
	times->timers_since = Min(times->timers_since, addr);
}

/*
 * Tasks are leased, between these addresses, the first until then.  Needs no
 * lock.
 */
void
fairq_times_leased(FairqTimes *times, int64 lowest, int64 highest,
				   TimestampTz until)
{
	do
	{
		lower(&times->floor, lowest);
		raise(&times->ceiling, highest);
		lower(&times->deadline, until);
		/* if a sweep has begun in between, it took only a part of this away */
	} while ((int64) pg_atomic_read_u64(&times->floor) > lowest ||
			 (int64) pg_atomic_read_u64(&times->ceiling) < highest);
}

/* Nothing is known, but where there are no more leases: look for all. */
void
fairq_times_forget(FairqTimes *times, int64 highest)
{
	/* who leases something has no lock: so don't overwrite what he says */
	fairq_times_leased(times, 0, highest, DT_NOBEGIN);
	pg_atomic_write_u64(&times->timers, FAIRQ_SCHEDULED);
	pg_atomic_write_u64(&times->sweep, FAIRQ_ADDR_MAX);
	times->timers_since = FAIRQ_SCHEDULED;
}

void
fairq_times_init(FairqTimes *times)
{
	pg_atomic_init_u64(&times->deadline, 0);
	pg_atomic_init_u64(&times->floor, 0);
	pg_atomic_init_u64(&times->ceiling, 0);
	pg_atomic_init_u64(&times->timers, FAIRQ_SCHEDULED);
	pg_atomic_init_u64(&times->sweep, FAIRQ_ADDR_MAX);
	times->looking = false;
	fairq_times_forget(times, 0);
}

/* Is there something to look for?  Needs no lock. */
bool
fairq_times_due(FairqTimes *times, TimestampTz now)
{
	return (int64) pg_atomic_read_u64(&times->deadline) <= now ||
		(int64) pg_atomic_read_u64(&times->timers) < fairq_due_end(now) ||
		pg_atomic_read_u64(&times->sweep) != FAIRQ_ADDR_MAX;
}

/* When there will be.  Needs no lock. */
TimestampTz
fairq_times_next(FairqTimes *times)
{
	int64		timers = pg_atomic_read_u64(&times->timers);
	TimestampTz deadline = pg_atomic_read_u64(&times->deadline);

	if (pg_atomic_read_u64(&times->sweep) != FAIRQ_ADDR_MAX)
		return DT_NOBEGIN;
	return timers == FAIRQ_ADDR_MAX ? deadline :
		Min(deadline, fairq_due_time(timers));
}

/*
 * Begin to look.  False if somebody else is at it.  Whoever got true calls
 * fairq_times_end(), or sets looking to false.
 */
bool
fairq_times_begin(FairqTimes *times, TimestampTz now, FairqLook *look)
{
	if (times->looking)
		return false;
	times->looking = true;
	if (pg_atomic_read_u64(&times->sweep) == FAIRQ_ADDR_MAX &&
		(int64) pg_atomic_read_u64(&times->deadline) <= now)
	{
		(void) pg_atomic_exchange_u64(&times->deadline, (uint64) DT_NOEND);
		pg_atomic_write_u64(&times->sweep,
							pg_atomic_exchange_u64(&times->floor,
												   FAIRQ_ADDR_MAX));
		times->sweep_end = pg_atomic_exchange_u64(&times->ceiling, 0);
		times->sweep_deadline = DT_NOEND;
		times->sweep_floor = FAIRQ_ADDR_MAX;
		times->sweep_ceiling = FAIRQ_ADDR_NONE;
	}
	look->timers = pg_atomic_read_u64(&times->timers);
	look->sweep = pg_atomic_read_u64(&times->sweep);
	look->sweep_end = times->sweep_end;
	look->deadline = DT_NOEND;
	look->floor = FAIRQ_ADDR_MAX;
	look->ceiling = FAIRQ_ADDR_NONE;
	times->timers_since = FAIRQ_ADDR_MAX;
	return true;
}

/* So far it has come. */
void
fairq_times_end(FairqTimes *times, const FairqLook *look)
{
	times->looking = false;
	pg_atomic_write_u64(&times->timers, Min(look->timers, times->timers_since));
	if (pg_atomic_read_u64(&times->sweep) == FAIRQ_ADDR_MAX)
		return;
	times->sweep_deadline = Min(times->sweep_deadline, look->deadline);
	times->sweep_floor = Min(times->sweep_floor, look->floor);
	times->sweep_ceiling = Max(times->sweep_ceiling, look->ceiling);
	pg_atomic_write_u64(&times->sweep, look->sweep);
	if (look->sweep == FAIRQ_ADDR_MAX)
		fairq_times_leased(times, times->sweep_floor, times->sweep_ceiling,
						   times->sweep_deadline);
}
