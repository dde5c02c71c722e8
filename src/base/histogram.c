/*
 * histogram.c
 *		How long tasks have waited and run: spans of time, in buckets.
 *
 * Each bucket is twice as wide as the one before, so 32 of them reach from a
 * millisecond to twelve days.  A percentile that is read from them is between
 * half and twice its true value.  That is enough to see that a queue is late,
 * and costs one addition per bucket and transaction.
 *
 * A claim, or the end of an attempt, counts only when it has committed.  Its
 * measurement is a sample until then.  The end of the transaction adds it, and
 * drops the samples of aborted subtransactions.  Samples are a stack, like
 * pending changes (pending.c).  Those of a subtransaction are on top of its
 * parent's, and become the parent's when it commits.  Equal ones become one
 * with a number.  A transaction has few queues and buckets, so it has few
 * samples, however many tasks it pops.
 *
 * Locking: none.  A reader may see one bucket before a transaction's end and
 * another after it.  Memory is allocated when a sample is noted: functions
 * that transaction.c calls neither fail nor allocate.
 */
#include "postgres.h"

#include "access/xact.h"
#include "port/pg_bitutils.h"
#include "utils/timestamp.h"

#include "grow.h"
#include "histogram.h"

/* The bucket of a span of time; the first one, if the span is negative. */
static int
bucket_of(TimestampTz from, TimestampTz until)
{
	uint64		ms;

	if (from >= until)
		return 0;
	/* both may be infinite, by SQL */
	ms = ((uint64) until - (uint64) from) / 1000;
	return ms == 0 ? 0 :
		Min(pg_leftmost_one_pos64(ms) + 1, FAIRQ_BUCKETS - 1);
}

void
fairq_histogram_init(FairqHistogram *histogram)
{
	for (int i = 0; i < FAIRQ_BUCKETS; i++)
		pg_atomic_init_u64(&histogram->n[i], 0);
}

/* Copy a histogram into FAIRQ_BUCKETS counts. */
void
fairq_histogram_read(FairqHistogram *histogram, uint64 *counts)
{
	for (int i = 0; i < FAIRQ_BUCKETS; i++)
		counts[i] = pg_atomic_read_u64(&histogram->n[i]);
}

/* The lower end of a bucket, in microseconds. */
static double
bucket_from(int bucket)
{
	return bucket == 0 ? 0 : (double) (INT64CONST(1000) << (bucket - 1));
}

/*
 * Returns the span, in microseconds, that this percentage does not exceed, if
 * the spans within a bucket are evenly spread; -1, if there are none.
 */
int64
fairq_percentile(const uint64 *counts, int percent)
{
	double		total = 0;
	double		rank;
	int			bucket = 0;

	for (int i = 0; i < FAIRQ_BUCKETS; i++)
		total += counts[i];
	if (total == 0)
		return -1;
	rank = total * percent / 100;
	while (rank > counts[bucket] && bucket < FAIRQ_BUCKETS - 1)
		rank -= counts[bucket++];
	return (int64) (bucket_from(bucket) +
					(bucket_from(bucket + 1) - bucket_from(bucket)) *
					(counts[bucket] == 0 ? 0 : rank / counts[bucket]));
}

/* how many samples are searched for an equal one, at most */
#define LOOK_BACK (FAIRQ_SPANS * FAIRQ_BUCKETS)

/* Equal samples of one subtransaction. */
typedef struct Sample
{
	FairqHistogram *histogram;	/* the histogram to which they are added */
	int			bucket;			/* bucket of it */
	uint64		n;				/* number of these samples */
	SubTransactionId sub;		/* subtransaction that measured them */
} Sample;

static Sample *samples = NULL;	/* in TopTransactionContext */
static int	nsamples = 0;
static int	max_samples = 0;

/* Add to the samples, for which there is room. */
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
			return;
		}
	}
	samples[nsamples++] = *new;
}

/*
 * Note how long a task has waited or run; it counts if we commit.  The caller
 * has noted a pending change, so this is called at the transaction's end.
 */
void
fairq_sample(FairqHistogram *histogram, TimestampTz from, TimestampTz until)
{
	Sample		new = {
		.histogram = histogram,
		.bucket = bucket_of(from, until),
		.n = 1,
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
		/* its new position is at or before the old one */
		add_sample(&moved);
	}
}

/*
 * Count the transaction's measurements, if it has committed.  Their memory is
 * freed with the transaction's.
 */
void
fairq_samples_end(bool committed)
{
	for (int i = 0; i < nsamples && committed; i++)
		pg_atomic_fetch_add_u64(&samples[i].histogram->n[samples[i].bucket],
								samples[i].n);
	samples = NULL;
	nsamples = max_samples = 0;
}
