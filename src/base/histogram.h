/*
 * histogram.h
 *		Histograms of how long tasks have waited and run.
 */
#ifndef FAIRQ_HISTOGRAM_H
#define FAIRQ_HISTOGRAM_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

/* The kinds of measurements of a queue's tasks. */
typedef enum FairqSpan
{
	FAIRQ_SPAN_WAIT,			/* from readiness to the claim */
	FAIRQ_SPAN_RUN,				/* from its claim to complete or fail */
	FAIRQ_SPANS					/* number of these */
} FairqSpan;

/* buckets: below 1 ms, [1, 2) ms, [2, 4) ms, ...; 2^30 ms and more */
#define FAIRQ_BUCKETS 32

/* In shared memory, part of a queue: read and written without a lock. */
typedef struct FairqHistogram
{
	pg_atomic_uint64 n[FAIRQ_BUCKETS];	/* number of spans in each bucket */
	pg_atomic_uint64 sum;		/* of all spans, in microseconds */
} FairqHistogram;

extern void fairq_histogram_init(FairqHistogram *histogram);
extern int64 fairq_percentile(const uint64 *counts, int percent);
extern void fairq_sample(FairqHistogram *histogram, TimestampTz from,
						 TimestampTz until);
extern void fairq_samples_sub_end(SubTransactionId sub,
								  SubTransactionId parent, bool committed);
extern void fairq_samples_end(bool committed);

#endif							/* FAIRQ_HISTOGRAM_H */
