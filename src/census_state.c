/*
 * census_state.c
 *		How far the census is, and for which queues it has counted.
 *
 * The census (census.c) is one pass over all rows of fairq.task.  Its state lies
 * in shared memory, one for each extension.  Here is what can be asked of it
 * without a look at a table: by lanes, which make counters void or not by it
 * (fairq_lane_as_of()), and by backends that need another census.
 *
 * Locking: none.  What is read here is atomic; what has to be consistent is read
 * in the order in which census.c writes it, with barriers.
 */
#include "postgres.h"

#include "census_state.h"

/* The census that counts for a queue. */
FairqCensus *
fairq_shmem_census(FairqHints *hints)
{
	return fairq_at(hints->census.at);
}

void
fairq_census_state_init(FairqCensus *census)
{
	memset(census, 0, sizeof(FairqCensus));
	SpinLockInit(&census->mutex);
	pg_atomic_init_u64(&census->number, 0);
	pg_atomic_init_u64(&census->resets, PG_UINT64_MAX);
	pg_atomic_init_u64(&census->repeated, 0);
	pg_atomic_init_u64(&census->over.number, 0);
	pg_atomic_init_u64(&census->over.resets, PG_UINT64_MAX);
	pg_atomic_init_u64(&census->over.voids, PG_UINT64_MAX);
	pg_atomic_init_u64(&census->skipping, 0);
}

/* Returns what has to be the same for a census not to be void. */
uint64
fairq_census_voids(FairqHints *hints, uint64 *resets)
{
	FairqDomain *domain = fairq_domain_at(hints->lanes[0].domain);

	*resets = pg_atomic_read_u64(&domain->resets);
	return *resets + pg_atomic_read_u64(&domain->forgets);
}

/*
 * Fill in what the last census says of the counters of a queue, after so many
 * resets.  It begins by being given a number, so what was read of it before is
 * not newer.
 */
void
fairq_census_look(FairqHints *hints, uint64 resets, FairqAsOf *now)
{
	FairqCensus *census = fairq_shmem_census(hints);
	uint64		began = pg_atomic_read_u64(&census->resets);
	bool		limited = pg_atomic_read_u32(&hints->limited) != 0;

	pg_read_barrier();
	now->census = pg_atomic_read_u64(&census->number);
	now->counted = began == resets && limited &&
		pg_atomic_read_u64(&census->over.number) == now->census &&
		pg_atomic_read_u64(&hints->census.last_void) < now->census &&
		pg_atomic_read_u64(&hints->census.last_skipping) < now->census;
	now->repeated = pg_atomic_read_u64(&census->repeated) >= now->census;
}

/* Has a census come by all tasks of the queue since so many resets? */
bool
fairq_census_has_passed(FairqHints *hints, uint64 resets)
{
	FairqCensus *census = fairq_shmem_census(hints);
	uint64		done = pg_atomic_read_u64(&census->over.number);

	pg_read_barrier();
	return pg_atomic_read_u64(&census->over.resets) == resets &&
		pg_atomic_read_u64(&hints->census.last_skipping) < done;
}

bool
fairq_census_is_over(FairqCensus *census, FairqHints *hints, uint64 is_void)
{
	return pg_atomic_read_u64(&census->over.voids) == is_void &&
		(pg_atomic_read_u64(&hints->census.last_skipping) == 0 ||
		 pg_atomic_read_u64(&hints->census.last_skipping) <
		 pg_atomic_read_u64(&census->over.number));
}

/* Is there something left for a census to find, of this queue? */
bool
fairq_census_is_due(FairqHints *hints)
{
	uint64		resets;

	return !fairq_census_is_over(fairq_shmem_census(hints), hints,
					fairq_census_voids(hints, &resets));
}

/* Is the census void again and again? */
bool
fairq_census_is_stuck(FairqHints *hints)
{
	FairqCensus *census = fairq_shmem_census(hints);

	return pg_atomic_read_u64(&census->number) -
		pg_atomic_read_u64(&census->over.number) > FAIRQ_MAX_VOID;
}

/*
 * Make each census void for the queue's counters until no call is in progress
 * that does not count: such a call is about to begin, unless the queue is
 * limited.  The caller looks after this whether the queue is limited, and a
 * backend that relies on a census looks before: so one of them sees the other.
 */
void
fairq_census_not_counted(FairqHints *hints)
{
	if (pg_atomic_read_u64(&hints->census.last_void) != FAIRQ_EACH_CENSUS)
		pg_atomic_write_u64(&hints->census.last_void, FAIRQ_EACH_CENSUS);
	pg_memory_barrier();
}

/*
 * Make the next census valid for the queue's counters, as all calls count from
 * now on; the one that has begun stays void.
 */
void
fairq_census_counted(FairqHints *hints)
{
	uint64		each = FAIRQ_EACH_CENSUS;

	if (pg_atomic_read_u64(&hints->census.last_void) != FAIRQ_EACH_CENSUS ||
		pg_atomic_read_u32(&hints->calls) != 0)
		return;
	pg_memory_barrier();
	(void) pg_atomic_compare_exchange_u64(&hints->census.last_void, &each,
										  pg_atomic_read_u64(&fairq_shmem_census(hints)->number));
}

/*
 * Ask for another census if the last one has not counted for the queue's
 * counters, which are wanted; unless one is under way, or would be void, too.
 */
void
fairq_census_want(FairqHints *hints)
{
	uint64		is_void = pg_atomic_read_u64(&hints->census.last_void);

	if (fairq_census_is_due(hints) || is_void == FAIRQ_EACH_CENSUS ||
		is_void < pg_atomic_read_u64(&fairq_shmem_census(hints)->over.number))
		return;
	pg_atomic_fetch_add_u64(&fairq_domain_at(hints->lanes[0].domain)->forgets, 1);
}
