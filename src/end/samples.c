/*
 * samples.c
 *		Spans of time that this transaction has measured.
 *
 * A claim, or the end of an attempt, counts when it has committed and not
 * before.  So what it measures is noted here, and added to the queue's histograms
 * at the transaction's end; what an aborted subtransaction has noted is dropped.
 *
 * Samples are a stack, as pending changes are (pending.c): those of a
 * subtransaction lie on top of its parent's, and are relabelled as the parent's
 * when it commits.  Equal ones become one with a number.  As there are few
 * queues and buckets to a transaction, there are few of them, however many tasks
 * it pops.
 *
 * Locking: none.  All memory is had when a sample is noted: what transaction.c
 * calls here neither fails nor allocates.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "samples.h"

/* how many samples are looked at for an equal one, at most */
#define LOOK_BACK (FAIRQ_SPANS * FAIRQ_BUCKETS)

/* Equal samples of one subtransaction. */
typedef struct Sample
{
	FairqHints *hints;			/* hints of the queue */
	uint64		n;				/* number of these samples */
	SubTransactionId sub;		/* subtransaction that measured them */
	uint8		span;			/* what was measured: a FairqSpan */
	uint8		bucket;			/* bucket of its histogram */
} Sample;

static Sample *samples = NULL;	/* in TopTransactionContext */
static int	nsamples = 0;
static int	max_samples = 0;

/* Make sure that one more fits. */
static void
grow(void)
{
	int			n = max_samples == 0 ? 16 : max_samples * 2;

	if (nsamples < max_samples)
		return;
	if (samples == NULL)
		samples = MemoryContextAlloc(TopTransactionContext,
									 sizeof(Sample) * n);
	else
		samples = repalloc_huge(samples, sizeof(Sample) * n);
	max_samples = n;
}

/* Add to the samples, for which there is room. */
static void
add_sample(const Sample *new)
{
	for (int i = nsamples - 1; i >= Max(nsamples - LOOK_BACK, 0) &&
		 samples[i].sub == new->sub; i--)
	{
		if (samples[i].bucket == new->bucket &&
			samples[i].span == new->span && samples[i].hints == new->hints)
		{
			samples[i].n += new->n;
			return;
		}
	}
	samples[nsamples++] = *new;
}

/*
 * Note how long a task of the queue has waited or run, to be counted if that
 * commits.  The caller has noted a pending change: so the transaction's end is
 * heard of.
 */
void
fairq_sample(FairqHints *hints, FairqSpan span, TimestampTz from,
			 TimestampTz until)
{
	Sample		new = {
		.hints = hints,
		.n = 1,
		.sub = GetCurrentSubTransactionId(),
		.span = span,
		.bucket = fairq_bucket_of(from, until)
	};

	grow();
	add_sample(&new);
}

/* What a subtransaction has measured is its parent's, or was in vain. */
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
		/* its room is at most where it was */
		add_sample(&moved);
	}
}

/*
 * Count what the transaction has measured, if it has committed.  Its memory goes
 * with the transaction.
 */
void
fairq_samples_end(bool committed)
{
	for (int i = 0; i < nsamples && committed; i++)
		fairq_histogram_add(&samples[i].hints->histograms[samples[i].span],
							samples[i].bucket, samples[i].n);
	samples = NULL;
	nsamples = max_samples = 0;
}
