/*
 * census.c
 *		What is running, found by one pass over all rows.
 *
 * After a restart, and when rows were changed behind fairq's back, it is not
 * known what is running.  Three things are to be known of it: how many tasks
 * of each limited group and queue (counter.c), how far in each lane tasks may
 * be running (its reach), and when the leases of which groups end.  The census
 * finds all of that, for all queues of the extension at once, by reading the
 * table from its first page to its last, in 0.2 s for a million tasks.
 * Through the index by group that would be a random page for each task.
 *
 * It is done in steps of some pages, by pops: each does a small one.
 * Meanwhile a group whose running tasks have to be counted is passed over,
 * unless it has so few rows that they are counted at once (running.c).  A pop
 * that would return less than it was asked for (with per_group: nothing), and
 * a look of fairq.wait() that sees nothing, goes on to the end, and then looks
 * again.  So a group that was passed over is served without being published:
 * the pop that has passed over the group has either got all that it was asked
 * for (with per_group: something), and its worker comes again, or goes on
 * itself.
 *
 * The pass sees each page at one moment, with a dirty snapshot.  It counts
 * each task that is running or being changed, also by our own transaction,
 * whose changes we don't see otherwise; but not one that another transaction
 * has just enqueued and not changed since.  What is written while the pass
 * goes on is counted by others:
 *
 * - counters count it themselves (counter.c says how, and why it is enough);
 * - a lane's reach is raised by the backend that writes a running row, before
 *	 it lets go of the counters;
 * - a lease is published by the transaction that has made or ended it, at its
 *	 end, also if nothing else is known of the lane (lane_leases.c).
 *
 * What makes a census void, so that another one begins: "resets" of the domain;
 * "forgets", of a transaction that was too large to know whose leases it has
 * published, or of a queue whose counters the last census has not counted for;
 * another file of the table (VACUUM FULL and the like, after which rows are on
 * other pages).  If it is void again and again, it is brought to its end once
 * in a while: leases that it finds are leases, and counters do without.
 *
 * And it can be void for one queue: for its counters, if claims went uncounted
 * since it began, since no backend had seen a limit (last_void); for all of
 * it, if the queue could not be locked, or its row not be seen, when a step
 * came by its tasks (last_skipping).  It is being dropped or made then, or
 * will be read again for another reason.  The call that uses the queue after
 * that begins another one.
 *
 * One backend at a time does a step.  If it is not seen to be at it for 50 ms
 * another one does the step anew: so a backend that is stopped holds none up.
 * The first one that has read all pages of the step publishes what it has
 * found.  If that backend does not get through with it, and another one does
 * it again, all counters of the census are doubtful, since some may have been
 * published twice.
 *
 * Memory: a step keeps what runs on its pages.  Beside that there are
 * counters of groups of which something runs, and bits.
 *
 * Locking: the census' mutex, a spinlock, for a few instructions.  The queue whose
 * tasks were found is locked while that is published, and only if that can be
 * had at once.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/timestamp.h"

#include "census.h"
#include "queue.h"
#include "registry.h"
#include "stall.h"
#include "store.h"
#include "transaction.h"

/* pages of a step; and of one of a backend that has nothing else to do */
#define STEP_PAGES 128
#define LARGE_STEP_PAGES 2048

/* pages after which it is said that the step goes on */
#define PAGES_AT_ONCE 32

/* a backend that is not seen for so long is not waited for */
#define STEP_PATIENCE (INT64CONST(50) * 1000)
#define POLL_EVERY_US 1000

/* so many a call goes on with, should they be void again and again */
#define MOST_IN_A_CALL 3

/* A task that is running, or being changed. */
typedef struct Found
{
	int32		queue_id;
	int32		group_no;
	int64		id;
	int64		addr;
	TimestampTz lease_until;
	int16		priority;
	bool		running;
	bool		changing;
} Found;

typedef struct Step
{
	FairqCensus *census;		/* NULL: this backend does none */
	uint64		number;			/* of the census */
	uint64		step;			/* which one of it */
	bool		publishing;
	BlockNumber from;
	BlockNumber to;
	BlockNumber nblocks;
	uint64		uncounted;		/* of the domain, before any page was read */
	Found	   *found;
	int			n;
	int			max;
} Step;

typedef enum Taken
{
	STEP_TAKEN,
	STEP_BUSY,					/* another backend is at it */
	CENSUS_OVER
} Taken;

/* The step that this backend does. */
static Step hand;

/*
 * Begin another census.  The mutex is held.  Counters hear of its number, and
 * from then on count what it may miss; only after that a page is read, or how
 * many there are.
 */
static void
begin_census(FairqCensus *census, Relation rel, uint64 resets, uint64 is_void)
{
	pg_atomic_fetch_add_u64(&census->number, 1);
	pg_atomic_write_u64(&census->resets, resets);
	census->voids = is_void;
	census->file = fairq_file(rel);
	census->nblocks = InvalidBlockNumber;
	census->next = 0;
	census->steps.reading = census->steps.publishing = false;
	census->found = 0;
}

static bool
is_of_file(const FairqCensus *census, Relation rel)
{
	FairqFile	file = fairq_file(rel);

	return memcmp(&census->file, &file, sizeof(FairqFile)) == 0;
}

/* Is the one that was begun last to be gone on with?  The mutex is held. */
static bool
goes_on(FairqCensus *census, Relation rel, uint64 is_void)
{
	uint64		nvoid = pg_atomic_read_u64(&census->number) -
		pg_atomic_read_u64(&census->over.number);

	return nvoid > 0 && is_of_file(census, rel) &&
		(census->voids == is_void || nvoid > FAIRQ_MAX_VOID);
}

/*
 * Was the backend that is at it seen just now?  The clock may have been set
 * back since.
 */
static bool
is_at_it(bool at_it, TimestampTz seen, TimestampTz now)
{
	return at_it && now < seen + STEP_PATIENCE && now > seen - STEP_PATIENCE;
}

/* Begin the next step. */
static Taken
take_step(FairqHints *hints, FairqTable *tasks)
{
	FairqCensus *census = fairq_shmem_census(hints);
	FairqDomain *domain = fairq_domain_at(hints->lanes[0].domain);
	TimestampTz now = GetCurrentTimestamp();
	uint64		resets;
	uint64		is_void = fairq_census_voids(hints, &resets);
	Taken		taken = STEP_TAKEN;

	SpinLockAcquire(&census->mutex);
	if (fairq_census_is_over(census, hints, is_void))
		taken = CENSUS_OVER;
	else if (!goes_on(census, tasks->rel, is_void))
		begin_census(census, tasks->rel, resets, is_void);
	else if (is_at_it(census->steps.reading, census->steps.read_at, now) ||
			 is_at_it(census->steps.publishing, census->steps.published_at,
					  now))
		taken = STEP_BUSY;
	if (taken == STEP_TAKEN)
	{
		census->steps.reading = true;
		census->steps.read_at = now;
		hand.number = pg_atomic_read_u64(&census->number);
		hand.step = ++census->steps.begun;
		hand.publishing = false;
		hand.from = census->next;
		hand.nblocks = census->nblocks;
		hand.census = census;
	}
	SpinLockRelease(&census->mutex);
	hand.uncounted = pg_atomic_read_u64(&domain->uncounted);
	pg_read_barrier();
	return taken;
}

/* Note that this backend is still at it. */
static void
be_seen(void)
{
	FairqCensus *census = hand.census;
	TimestampTz now = GetCurrentTimestamp();

	SpinLockAcquire(&census->mutex);
	if (census->steps.begun == hand.step)
		census->steps.read_at = now;
	if (hand.publishing && census->steps.publisher == hand.step)
		census->steps.published_at = now;
	SpinLockRelease(&census->mutex);
}

/* Is this backend's step still to be done?  The mutex is held. */
static bool
is_to_be_done(FairqCensus *census)
{
	return pg_atomic_read_u64(&census->number) == hand.number &&
		census->next == hand.from &&
		pg_atomic_read_u64(&census->over.number) != hand.number;
}

/*
 * Begin to publish what was found in the pages of the step.  False if another
 * backend does.
 */
static bool
begin_publishing(void)
{
	FairqCensus *census = hand.census;
	TimestampTz now = GetCurrentTimestamp();

	SpinLockAcquire(&census->mutex);
	hand.publishing = is_to_be_done(census) &&
		!is_at_it(census->steps.publishing, census->steps.published_at, now);
	if (hand.publishing)
	{
		if (census->steps.publishing)
			pg_atomic_write_u64(&census->repeated, hand.number);
		census->steps.publishing = true;
		census->steps.publisher = hand.step;
		census->steps.published_at = now;
	}
	SpinLockRelease(&census->mutex);
	return hand.publishing;
}

/* End the step, which was published.  Returns whether it was the last one. */
static bool
end_step(int64 *found)
{
	FairqCensus *census = hand.census;
	bool		over = false;

	SpinLockAcquire(&census->mutex);
	/*
	 * the backend that is through first, if another one has begun to publish
	 * it again
	 */
	if (is_to_be_done(census))
	{
		census->steps.publishing = census->steps.reading = false;
		census->next = hand.to;
		census->nblocks = hand.nblocks;
		census->found += hand.n;
		over = hand.to >= hand.nblocks;
		if (over)
		{
			pg_atomic_write_u64(&census->over.resets,
								pg_atomic_read_u64(&census->resets));
			pg_atomic_write_u64(&census->over.voids, census->voids);
			pg_write_barrier();
			pg_atomic_write_u64(&census->over.number, hand.number);
		}
	}
	*found = census->found;
	SpinLockRelease(&census->mutex);
	hand.census = NULL;
	return over;
}

/*
 * End a step that an error has broken off, or of which there is nothing to
 * publish.  For callbacks, too.
 */
static void
end_call(void)
{
	FairqCensus *census = hand.census;

	if (census == NULL)
		return;
	SpinLockAcquire(&census->mutex);
	if (census->steps.begun == hand.step)
		census->steps.reading = false;
	/* what was published stays, and will be published again */
	if (hand.publishing && census->steps.publisher == hand.step &&
		is_to_be_done(census))
	{
		census->steps.publishing = false;
		pg_atomic_write_u64(&census->repeated, hand.number);
	}
	SpinLockRelease(&census->mutex);
	hand.census = NULL;
}

/* --------------------------------------------------------------------- */

static void
note_found(void *arg, const FairqTask *task, bool changing)
{
	Found	   *found;

	if (task->priority < 0 || task->priority >= FAIRQ_PRIORITIES ||
		task->group_no < 0 || task->addr < 0)
		return;
	if (hand.n == hand.max)
	{
		hand.max *= 2;
		hand.found = repalloc_huge(hand.found, sizeof(Found) * hand.max);
	}
	found = &hand.found[hand.n++];
	found->queue_id = task->queue_id;
	found->group_no = task->group_no;
	found->id = task->id;
	found->addr = task->addr;
	found->lease_until = task->lease_until;
	found->priority = task->priority;
	found->running = task->running;
	found->changing = changing;
}

/* Read the pages of the step. */
static void
read_pages(FairqTable *tasks, int npages)
{
	/* the table cannot shrink while we have it locked, but has perhaps before */
	BlockNumber nblocks = RelationGetNumberOfBlocks(tasks->rel);

	if (hand.nblocks == InvalidBlockNumber || hand.nblocks > nblocks)
		hand.nblocks = nblocks;
	hand.to = hand.nblocks - Min(hand.from, hand.nblocks) <= npages ?
		hand.nblocks : hand.from + npages;
	for (BlockNumber at = hand.from; at < hand.to; at += PAGES_AT_ONCE)
	{
		fairq_task_pages(tasks, at, Min(at + PAGES_AT_ONCE, hand.to), NULL,
						 note_found, NULL);
		be_seen();
	}
}

static int
compare_found(const void *a, const void *b)
{
	const Found *x = a;
	const Found *y = b;

	if (x->queue_id != y->queue_id)
		return x->queue_id < y->queue_id ? -1 : 1;
	if (x->group_no != y->group_no)
		return x->group_no < y->group_no ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Let the lane know where that task is running, and until when. */
static void
publish_to_lane(FairqHints *hints, const Found *found)
{
	FairqLane  *lane = &hints->lanes[found->priority];
	FairqLeases leases = {.until = found->lease_until};
	FairqRegion region = fairq_region(found->addr);

	/* the reach first: a backend that hears of the lease searches so far */
	fairq_lane_reaches(lane, found->addr);
	if (!found->running || found->changing)
		return;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		leases.low[r] = FAIRQ_ADDR_MAX;
		leases.high[r] = FAIRQ_ADDR_NONE;
	}
	leases.low[region] = leases.high[region] = found->addr;
	fairq_chunks_have(&hints->chunks, found->group_no);
	fairq_lane_add_leases(lane, found->group_no, &leases);
}

/* Is it worth to count for that queue?  If not, the census is void for that. */
static bool
is_counted(FairqQueue *queue)
{
	FairqHints *hints = queue->hints;

	if (queue->limited && pg_atomic_read_u32(&hints->limited) == 0)
		(void) pg_atomic_fetch_or_u32(&hints->limited, 1);
	if (pg_atomic_read_u32(&hints->limited) == 0)
		fairq_census_not_counted(hints);
	return pg_atomic_read_u64(&hints->census.last_void) < hand.number;
}

/*
 * Count the tasks of a group that were found, one of which may be there in two
 * versions.
 */
static int32
count_group(const Found *found, int n, bool *unsure)
{
	int32		running = 0;

	*unsure = false;
	for (int i = 0; i < n; i++)
	{
		running += i == 0 || found[i].id != found[i - 1].id;
		*unsure |= found[i].changing;
	}
	return running;
}

/* Publish what was found of a queue, which is locked. */
static void
publish_queue(FairqQueue *queue, const Found *found, int n)
{
	FairqHints *hints = queue->hints;
	FairqDomain *domain = fairq_domain_at(hints->lanes[0].domain);
	FairqAsOf	now = fairq_lane_as_of(&hints->lanes[0]);
	bool		counted = is_counted(queue);
	bool		missed;
	bool		any_unsure;
	int32		running = 0;
	int			n_of_group;

	/*
	 * transactions that ended more tasks than they note group by group, since
	 * the pages were read, have left no counter
	 */
	pg_read_barrier();
	missed = pg_atomic_read_u64(&domain->uncounted) != hand.uncounted;
	any_unsure = missed;
	now.census = hand.number;
	now.counted = false;
	for (int i = 0; i < n; i += n_of_group)
	{
		int32		group_no = found[i].group_no;

		CHECK_FOR_INTERRUPTS();
		for (n_of_group = 0;
			 i + n_of_group < n && found[i + n_of_group].group_no == group_no;
			 n_of_group++)
			publish_to_lane(hints, &found[i + n_of_group]);
		if (counted)
		{
			FairqCounter *counter = fairq_shmem_counter(hints, group_no);
			bool		unsure;
			int32		of_group = count_group(found + i, n_of_group, &unsure);

			any_unsure |= unsure;
			running += of_group;
			fairq_counter_found(counter, now, of_group, unsure || missed);
			fairq_counter_unpin(counter);
			fairq_stall("census");
		}
		be_seen();
	}
	if (counted)
		fairq_counter_found(&hints->running, now, running, any_unsure);
}

/* Note our census there, unless a later one, which others are at, is by now. */
static void
note_number(pg_atomic_uint64 *at)
{
	uint64		noted = pg_atomic_read_u64(at);

	while (noted < hand.number &&
		   !pg_atomic_compare_exchange_u64(at, &noted, hand.number))
		;
}

/*
 * Pass over a queue that is being made, dropped or rewritten: the census is
 * void for it.  A backend that enters the queue into shared memory at this
 * moment looks first at what is written here.
 */
static void
skip_queue(int32 queue_id)
{
	FairqHints *hints;

	note_number(&hand.census->skipping);
	hints = fairq_shmem_find_queue(queue_id);
	if (hints != NULL)
		note_number(&hints->census.last_skipping);
	elog(DEBUG1, "the census passes over queue %d", queue_id);
}

static void
publish_step(void)
{
	int			n_of_queue;

	qsort(hand.found, hand.n, sizeof(Found), compare_found);
	for (int i = 0; i < hand.n; i += n_of_queue)
	{
		int32		id = hand.found[i].queue_id;
		FairqQueue *queue = fairq_queue_by_id(id);
		bool		locked;

		for (n_of_queue = 1;
			 i + n_of_queue < hand.n && hand.found[i + n_of_queue].queue_id == id;
			 n_of_queue++)
			;
		locked = queue != NULL && fairq_queue_try_lock(queue, AccessShareLock);
		/* it may have been dropped before we had the lock */
		queue = locked ? fairq_queue_by_id(id) : NULL;
		if (queue != NULL)
			publish_queue(queue, hand.found + i, n_of_queue);
		else
			skip_queue(id);
		if (locked)
			fairq_queue_id_unlock(id, AccessShareLock);
	}
}

/* Do a step of so many pages, if there is one to be done. */
static Taken
do_step(FairqQueue *queue, FairqTable *tasks, int npages)
{
	Taken		taken;
	int64		found;

	fairq_watch_transaction();
	taken = take_step(queue->hints, tasks);

	if (taken != STEP_TAKEN)
		return taken;
	hand.n = 0;
	hand.max = 64;
	hand.found = palloc(sizeof(Found) * hand.max);
	read_pages(tasks, npages);
	fairq_stall("census");
	if (begin_publishing())
	{
		BlockNumber nblocks = hand.nblocks;

		publish_step();
		if (end_step(&found))
			elog(DEBUG1, "the census has found " INT64_FORMAT " running tasks in %u page(s)",
				 found, nblocks);
	}
	else
		end_call();
	pfree(hand.found);
	return taken;
}

/* Do a small step, if one is to be done and no other backend is at it. */
void
fairq_census_step(FairqQueue *queue, FairqTable *tasks)
{
	if (fairq_census_is_due(queue->hints))
		(void) do_step(queue, tasks, STEP_PAGES);
}

/*
 * Do all steps to the end of the census.  False if it becomes void all the
 * time.
 */
bool
fairq_census_finish(FairqQueue *queue, FairqTable *tasks)
{
	FairqCensus *census = fairq_shmem_census(queue->hints);
	uint64		first = pg_atomic_read_u64(&census->number);
	Taken		taken;

	while ((taken = do_step(queue, tasks, LARGE_STEP_PAGES)) != CENSUS_OVER)
	{
		CHECK_FOR_INTERRUPTS();
		if (pg_atomic_read_u64(&census->number) - first > MOST_IN_A_CALL)
			return false;
		if (taken == STEP_BUSY)
			pg_usleep(POLL_EVERY_US);
	}
	return true;
}

static const FairqEnding ending = {.end_call = end_call};

/* Once per backend: leave steps of a census when transactions end. */
void
fairq_census_init(void)
{
	fairq_at_end(&ending);
}
