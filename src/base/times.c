/*
 * times.c
 *		The times at which leases end and scheduled tasks become due in a lane;
 *		histograms of how long tasks have waited and run.
 *
 * Time makes tasks ready without any call.  To avoid a search for such tasks
 * in each pop, a lane has a timer for each of the two timed regions, and a
 * deadline:
 *
 * timers	The first address of scheduled tasks, and the first address of
 *			tasks that wait for a retry.  Addresses are in the order of times,
 *			so this is also the time of the first task.  If it has passed, a
 *			pop reads the tasks that are due, and puts their groups into the
 *			set "due" (serve.c).  The pop raises the timer to the first task
 *			that is not due.
 *
 * deadline	No lease ends before it.  Each set of 64 groups has its own
 *			deadline (seats.c), and the lane's deadline is the lowest of these.
 *			When the deadline of 64 groups has passed, the leased groups among
 *			them have lapsed.  Their leases are checked at their turns
 *			(turn.c).  After a restart the deadline includes a lease once a
 *			load has read its task (load.c).
 *
 * Searches miss no task, because only one backend at a time searches.  The
 * lowest timer entered during a search is kept separately (timers_since), and
 * timers are not raised past it.
 *
 * A queue has histograms of the spans of time that its tasks waited and ran.
 * Each bucket is twice as wide as the one before, so 32 of them reach from a
 * millisecond to twelve days.  A percentile that is read from them is between
 * half and twice its true value.  That is precise enough to detect that a
 * queue is late.  The sum of the spans is exact.  The histograms cost two
 * additions per bucket and transaction.
 *
 * The measurement of a claim, or of the end of an attempt, is added to a
 * histogram only at the commit.  Until then, it is only a sample.  The end of
 * the transaction adds the samples, but drops those of aborted
 * subtransactions.  Samples are a stack, like pending changes (transaction.c).
 * Those of a subtransaction are above its parent's, and become the parent's
 * when it commits.  Equal samples are merged into one with a count.  A
 * transaction has few queues and buckets, so it has few samples, however many
 * tasks it pops.
 *
 * Locking: the caller writes timers and the deadline under the lane's lock;
 * atomic fields are read without it.  Histograms have no lock, so a reader may
 * see one bucket before a transaction's end and another after it.  Memory is
 * allocated when a sample is recorded.  All other functions, including those
 * that transaction.c calls, neither fail nor allocate.
 */
#include "postgres.h"

#include "access/xact.h"
#include "port/pg_bitutils.h"

#include "times.h"
#include "tools.h"

/* The regions of timed tasks. */
#define FOR_TIMED_REGIONS(r) \
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)

/* Enter a task that is scheduled at an address. */
void
fairq_times_scheduled(FairqTimes *times, int64 addr)
{
	FairqRegion region = fairq_region(addr);

	if (addr < fairq_timer_of(times, region))
		pg_atomic_write_u64(&times->timers[region], addr);
	times->timers_since[region] = Min(times->timers_since[region], addr);
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

/* Whether a search may find a due task or an expired lease.  Needs no lock. */
bool
fairq_times_due(FairqTimes *times, TimestampTz now)
{
	FOR_TIMED_REGIONS(r)
		if (fairq_timer_of(times, r) < fairq_due_end(r, now))
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
		int64		timers = fairq_timer_of(times, r);

		if (timers != FAIRQ_ADDR_MAX)
			next = Min(next, fairq_due_time(timers));
	}
	return next;
}

/*
 * Begin to search.  Returns false if another backend is searching.  Otherwise
 * *timers is the address, in each timed region, at which the search begins.
 * The caller then calls fairq_times_end(), or sets searching to false.
 */
bool
fairq_times_begin(FairqTimes *times, int64 *timers)
{
	if (times->searching)
		return false;
	times->searching = true;
	FOR_TIMED_REGIONS(r)
	{
		timers[r] = fairq_timer_of(times, r);
		times->timers_since[r] = FAIRQ_ADDR_MAX;
	}
	return true;
}

/* End a search, which has reached these addresses. */
void
fairq_times_end(FairqTimes *times, const int64 *timers)
{
	times->searching = false;
	FOR_TIMED_REGIONS(r)
		pg_atomic_write_u64(&times->timers[r],
							Min(timers[r], times->timers_since[r]));
}

/* --------------------------------------------------------------------- */

/* the longest span that is measured: a century, so that sums do not wrap */
#define LONGEST_SPAN (36525 * (uint64) USECS_PER_DAY)

/* the most samples that are compared with a new one */
#define LOOK_BACK (FAIRQ_SPANS * FAIRQ_BUCKETS)

/* Equal samples of one subtransaction. */
typedef struct Sample
{
	FairqHistogram *histogram;	/* the histogram to which the samples are
								 * added */
	int			bucket;			/* bucket of the histogram */
	uint64		n;				/* number of these samples */
	uint64		usecs;			/* sum of the samples' lengths */
	SubTransactionId sub;		/* subtransaction that has measured the
								 * samples */
} Sample;

static Sample *samples = NULL;	/* in TopTransactionContext */
static int	nsamples = 0;
static int	max_samples = 0;

/* Add a sample; the array has room for it. */
static void
add_sample(const Sample *new)
{
	for (int i = nsamples - 1; i >= Max(nsamples - LOOK_BACK, 0) &&
		 samples[i].sub == new->sub; i--)
	{
		if (samples[i].bucket == new->bucket &&
			samples[i].histogram == new->histogram)
		{
			samples[i].n += new->n;
			samples[i].usecs += new->usecs;
			return;
		}
	}
	samples[nsamples++] = *new;
}

/*
 * Record how long a task has waited or run, for the histogram if we commit.
 * The caller has recorded a pending change, so transaction.c runs at the
 * transaction's end.
 */
void
fairq_sample(FairqHistogram *histogram, TimestampTz from, TimestampTz until)
{
	/* SQL may have set both times to infinity */
	uint64		usecs = from >= until ? 0 :
		Min((uint64) until - (uint64) from, LONGEST_SPAN);
	uint64		ms = usecs / 1000;
	Sample		new = {
		.histogram = histogram,
		.bucket = ms == 0 ? 0 :
		Min(pg_leftmost_one_pos64(ms) + 1, FAIRQ_BUCKETS - 1),
		.n = 1,
		.usecs = usecs,
		.sub = GetCurrentSubTransactionId()
	};

	if (nsamples == max_samples)
		samples = fairq_grow(TopTransactionContext, samples, &max_samples, 16,
							 sizeof(Sample));
	add_sample(&new);
}

/* A subtransaction's samples become its parent's, or are dropped. */
void
fairq_samples_sub_end(SubTransactionId sub, SubTransactionId parent,
					  bool committed)
{
	int			end = nsamples;

	while (nsamples > 0 && samples[nsamples - 1].sub == sub)
		nsamples--;
	for (int i = nsamples; i < end && committed; i++)
	{
		Sample		moved = samples[i];

		moved.sub = parent;
		/* a sample never moves to a higher position */
		add_sample(&moved);
	}
}

/*
 * Add the transaction's samples to the histograms, if it has committed.  Their
 * memory is freed with the transaction's.
 */
void
fairq_samples_end(bool committed)
{
	for (int i = 0; i < nsamples && committed; i++)
	{
		FairqHistogram *histogram = samples[i].histogram;

		pg_atomic_fetch_add_u64(&histogram->n[samples[i].bucket],
								samples[i].n);
		pg_atomic_fetch_add_u64(&histogram->sum, samples[i].usecs);
	}
	samples = NULL;
	nsamples = max_samples = 0;
}
