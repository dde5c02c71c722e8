/*
 * census_state.h
 *		How far the census is, and for which queues it has counted.
 */
#ifndef FAIRQ_CENSUS_STATE_H
#define FAIRQ_CENSUS_STATE_H

#include "port/atomics.h"
#include "storage/block.h"
#include "storage/spin.h"

#include "compat.h"
#include "hints.h"

/* after so many void censuses in a row, the next one is brought to its end */
#define FAIRQ_MAX_VOID 3

/* Each census is void for a queue, also the next one. */
#define FAIRQ_EACH_CENSUS PG_UINT64_MAX

/*
 * In shared memory, one for each extension.  What is atomic is read without the
 * mutex, and written under it.
 */
struct FairqCensus
{
	slock_t		mutex;			/* spinlock of all fields */
	pg_atomic_uint64 number;	/* number of the census that was begun last; 0:
								 * none */
	pg_atomic_uint64 resets;	/* resets of the domain when it began */
	pg_atomic_uint64 repeated;	/* number of the last census that may have
								 * counted some tasks twice; 0: none */

	/* the last census that is over */
	struct
	{
		pg_atomic_uint64 number;	/* number of that census; 0: none */
		pg_atomic_uint64 resets;	/* resets of the domain when it began */
		pg_atomic_uint64 voids; /* resets and forgets of the domain, added up,
								 * when it began */
	}			over;

	pg_atomic_uint64 skipping;	/* number of the last census that passed over
								 * rows of a queue that shared memory did not
								 * know; written without the mutex */
	uint64		voids;			/* resets and forgets of the domain, added up,
								 * when the present census began */
	FairqFile	file;			/* file of the table when the present census
								 * began */
	BlockNumber nblocks;		/* pages of the table after that;
								 * InvalidBlockNumber: not asked yet */
	BlockNumber next;			/* page with which the next step begins */

	/* steps of the present census, and which backends are at them */
	struct
	{
		uint64		begun;		/* number of steps that were begun */
		bool		reading;	/* true: a backend reads the pages of a step */
		bool		publishing; /* true: a backend publishes what it has found
								 * in a step */
		uint64		publisher;	/* begun when the publishing backend began its
								 * step */
		TimestampTz read_at;	/* time at which the reading backend was last
								 * seen at it */
		TimestampTz published_at;	/* time at which the publishing backend was
									 * last seen at it */
	}			steps;

	int64		found;			/* running tasks found so far, for the log */
};

extern FairqCensus *fairq_shmem_census(FairqHints *hints);
extern void fairq_census_state_init(FairqCensus *census);
extern void fairq_census_look(FairqHints *hints, uint64 resets, FairqAsOf *now);
extern bool fairq_census_has_passed(FairqHints *hints, uint64 resets);
extern bool fairq_census_is_due(FairqHints *hints);
extern bool fairq_census_is_stuck(FairqHints *hints);
extern void fairq_census_want(FairqHints *hints);
extern void fairq_census_not_counted(FairqHints *hints);
extern void fairq_census_counted(FairqHints *hints);
extern uint64 fairq_census_voids(FairqHints *hints, uint64 *resets);
extern bool fairq_census_is_over(FairqCensus *census, FairqHints *hints,
								 uint64 is_void);

#endif							/* FAIRQ_CENSUS_STATE_H */
