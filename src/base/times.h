/*
 * times.h
 *		The times at which leases end and scheduled tasks become due in a lane;
 *		histograms of how long tasks have waited and run.
 */
#ifndef FAIRQ_TIMES_H
#define FAIRQ_TIMES_H

#include "port/atomics.h"

#include "address.h"

/*
 * The timers and the deadline of a lane, in shared memory.  Written under the
 * lane's lock.
 */
typedef struct FairqTimes
{
	pg_atomic_uint64 deadline;	/* TimestampTz before which no lease ends;
								 * DT_NOEND: there is none */
	pg_atomic_uint64 timers[FAIRQ_REGIONS]; /* address in each timed region
											 * below which no task waits for
											 * its time, except tasks of groups
											 * in the set "due" */
	int64		timers_since[FAIRQ_REGIONS];	/* lowest timer entered since
												 * the last search began, for
												 * each region; FAIRQ_ADDR_MAX:
												 * none */
	bool		searching;		/* true: a backend searches for due tasks */
} FairqTimes;

/* The timer of a region.  Needs no lock. */
static inline int64
fairq_timer_of(FairqTimes *times, FairqRegion region)
{
	return (int64) pg_atomic_read_u64(&times->timers[region]);
}

/*
 * Whether searches have passed an address, so that no search will find it
 * again.
 */
static inline bool
fairq_times_passed(FairqTimes *times, int64 addr)
{
	return addr < fairq_timer_of(times, fairq_region(addr));
}

/*
 * The address of a timed region below which no task waits for its time;
 * FAIRQ_ADDR_MAX: no task waits.
 */
static inline int64
fairq_times_first(FairqTimes *times, FairqRegion region)
{
	int64		first = fairq_timer_of(times, region);

	return first >= fairq_region_from(region) + FAIRQ_TIMED_SIZE - 2 ?
		FAIRQ_ADDR_MAX : first;
}

extern void fairq_times_init(FairqTimes *times);
extern void fairq_times_forget(FairqTimes *times);
extern void fairq_times_scheduled(FairqTimes *times, int64 addr);
extern bool fairq_times_due(FairqTimes *times, TimestampTz now);
extern TimestampTz fairq_times_next(FairqTimes *times);
extern bool fairq_times_begin(FairqTimes *times, int64 *timers);
extern void fairq_times_end(FairqTimes *times, const int64 *timers);

/* The kinds of measurements of a queue's tasks. */
typedef enum FairqSpan
{
	FAIRQ_SPAN_WAIT,			/* from readiness to the claim */
	FAIRQ_SPAN_RUN,				/* from the claim to complete or fail */
	FAIRQ_SPANS					/* number of kinds */
} FairqSpan;

/* buckets: below 1 ms, [1, 2) ms, [2, 4) ms, ...; 2^30 ms and more */
#define FAIRQ_BUCKETS 32

/*
 * A histogram of a queue, in shared memory; read and written without a lock.
 */
typedef struct FairqHistogram
{
	pg_atomic_uint64 n[FAIRQ_BUCKETS];	/* number of spans in each bucket */
	pg_atomic_uint64 sum;		/* sum of all spans, in microseconds */
} FairqHistogram;

static inline void
fairq_histogram_init(FairqHistogram *histogram)
{
	for (int i = 0; i < FAIRQ_BUCKETS; i++)
		pg_atomic_init_u64(&histogram->n[i], 0);
	pg_atomic_init_u64(&histogram->sum, 0);
}

extern void fairq_sample(FairqHistogram *histogram, TimestampTz from,
						 TimestampTz until);
extern void fairq_samples_sub_end(SubTransactionId sub,
								  SubTransactionId parent, bool committed);
extern void fairq_samples_end(bool committed);

#endif							/* FAIRQ_TIMES_H */
