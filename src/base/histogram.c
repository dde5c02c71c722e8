/*
 * histogram.c
 *		How long tasks have waited and run: spans of time, in buckets.
 *
 * Each bucket is twice as wide as the one before, so 32 of them reach from a
 * millisecond to twelve days, and a percentile that is read off them is at most
 * twice, and at least half, of what it is.  That is enough to see that a queue
 * is late, and costs one addition per bucket and transaction.
 *
 * Locking: none.  A reader may have one bucket of before a transaction's end and
 * another of after it.
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "utils/timestamp.h"

#include "histogram.h"

/* The bucket of a span of time; the first one, if the span is negative. */
int
fairq_bucket_of(TimestampTz from, TimestampTz until)
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

void
fairq_histogram_add(FairqHistogram *histogram, int bucket, uint64 n)
{
	pg_atomic_fetch_add_u64(&histogram->n[bucket], n);
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
 * Returns the span, in microseconds, that so many percent do not exceed, if
 * those within a bucket are evenly spread; -1, if there are none.
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
