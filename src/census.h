/*
 * census.h
 *		What is running, found by one pass over all rows.
 */
#ifndef FAIRQ_CENSUS_H
#define FAIRQ_CENSUS_H

#include "port/atomics.h"
#include "storage/block.h"
#include "storage/spin.h"

#include "compat.h"
#include "counter.h"
#include "shmem.h"

/* Each census is void for a queue, also the next one. */
#define FAIRQ_EACH_CENSUS PG_UINT64_MAX

/*
 * In shared memory, one for each extension.  What is atomic is read without the
 * mutex, and written under it.
 */
struct FairqCensus
{
	slock_t		mutex;
	pg_atomic_uint64 number;	/* of the one that was begun last */
	pg_atomic_uint64 resets;	/* of the domain, when it began */
	pg_atomic_uint64 repeated;	/* the last one that may have counted twice */
	pg_atomic_uint64 done;		/* number of the last one that is over */
	pg_atomic_uint64 done_resets;	/* resets, when that began */
	pg_atomic_uint64 done_voids;	/* resets and forgets, likewise */
	pg_atomic_uint64 skipping;	/* the last one that has passed over rows of a
								 * queue of which nothing was known; written
								 * without the mutex */
	uint64		voids;			/* resets and forgets, when it began */
	FairqFile	file;			/* of the table, then */
	BlockNumber nblocks;		/* pages it had after that; InvalidBlockNumber:
								 * not looked at yet */
	BlockNumber next;			/* page with which the next step begins */
	uint64		steps;			/* that somebody has begun */
	bool		reading;		/* somebody has the step in hand */
	bool		publishing;		/* a backend publishes what it has found */
	uint64		publisher;		/* which step of his that is */
	TimestampTz read_at;		/* when they were last seen to be at it */
	TimestampTz published_at;
	int64		found;			/* tasks so far, for the log */
};

struct FairqQueue;
struct FairqTable;

extern void fairq_census_init(FairqCensus *census);
extern void fairq_census_look(FairqHints *hints, uint64 resets, FairqAsOf *now);
extern bool fairq_census_has_passed(FairqHints *hints, uint64 resets);
extern bool fairq_census_is_due(FairqHints *hints);
extern bool fairq_census_is_stuck(FairqHints *hints);
extern void fairq_census_want(FairqHints *hints);
extern void fairq_census_not_counted(FairqHints *hints);
extern void fairq_census_counted(FairqHints *hints);
extern void fairq_census_step(struct FairqQueue *queue,
							  struct FairqTable *tasks);
extern bool fairq_census_finish(struct FairqQueue *queue,
								struct FairqTable *tasks);
extern void fairq_census_end(void);

#endif							/* FAIRQ_CENSUS_H */
