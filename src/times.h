/*
 * times.h
 *		When something falls due in a lane: leases and scheduled tasks.
 */
#ifndef FAIRQ_TIMES_H
#define FAIRQ_TIMES_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "address.h"

/* In shared memory, part of a lane.  Its lock protects what is not atomic. */
typedef struct FairqTimes
{
	pg_atomic_uint64 deadline;	/* no lease ends earlier, a TimestampTz */
	pg_atomic_uint64 floor;		/* no task with such a lease stands below */
	pg_atomic_uint64 ceiling;	/* nor above */
	pg_atomic_uint64 timers;	/* below, no task is scheduled but of groups
								 * that were told; written under the lock */
	pg_atomic_uint64 sweep;		/* where the search for expired leases goes
								 * on; FAIRQ_ADDR_MAX: there is none; likewise */
	int64		timers_since;	/* lowest one entered since the last look
								 * began */
	int64		sweep_end;		/* up to there, that included */
	TimestampTz sweep_deadline; /* of the leases that it came by, the earliest */
	int64		sweep_floor;	/* the lowest of their tasks */
	int64		sweep_ceiling;	/* and the highest */
	bool		looking;		/* somebody looks for what has fallen due */
} FairqTimes;

/* What one look is about. */
typedef struct FairqLook
{
	int64		timers;			/* scheduled tasks from there on */
	int64		sweep;			/* and leases from there on */
	int64		sweep_end;
	TimestampTz deadline;		/* found on the way, as above */
	int64		floor;
	int64		ceiling;
} FairqLook;

extern void fairq_times_init(FairqTimes *times);
extern void fairq_times_forget(FairqTimes *times, int64 highest);
extern void fairq_times_scheduled(FairqTimes *times, int64 addr);
extern void fairq_times_leased(FairqTimes *times, int64 lowest,
							   int64 highest, TimestampTz until);
extern bool fairq_times_due(FairqTimes *times, TimestampTz now);
extern TimestampTz fairq_times_next(FairqTimes *times);
extern bool fairq_times_begin(FairqTimes *times, TimestampTz now,
							  FairqLook *look);
extern void fairq_times_end(FairqTimes *times, const FairqLook *look);

#endif							/* FAIRQ_TIMES_H */
