/*
 * stats.c
 *		fairq.stats: who waits, and since when, at little cost.
 *
 * A row for each queue with which the caller may do anything.  It reads shared
 * memory and settings, and the tasks that have waited longest (waiting.c).  What
 * depends on groups is NULL for a caller that may not monitor the queue: by a task of
 * its own it would find out whether there is a group of a name that it guesses.
 *
 * Locking: the tally's lock, shared (tally.c); what waiting.c says.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "histogram.h"
#include "load.h"
#include "queue.h"
#include "registry.h"
#include "visible.h"
#include "waiting.h"

PG_FUNCTION_INFO_V1(fairq_visible_stats);

/* Have the numbers of tasks loaded, if they are not known. */
static void
load(FairqQueue *queue)
{
	FairqTable *tasks;

	if (fairq_tally_is_known(&queue->hints->tally) || RecoveryInProgress())
		return;
	tasks = fairq_table_try_open(fairq_catalog()->task);
	if (tasks == NULL)
		return;
	fairq_load_begin(queue, tasks);
	fairq_table_close(tasks);
}

/* Put how many tasks are ready, scheduled and running. */
static void
put_tallies(FairqRow *row, FairqQueue *queue)
{
	int64		n[FAIRQ_TALLIES];
	bool		known;

	load(queue);
	known = fairq_tally_read(&queue->hints->tally, n);

	for (int i = 0; i < FAIRQ_TALLIES; i++)
		fairq_put_int8(row, n[i], !known);
}

/* Put for how long something waits that is ready since then; DT_NOEND: nothing. */
static void
put_age(FairqRow *row, TimestampTz since)
{
	fairq_put_interval(row, Max(GetCurrentTimestamp() - since, 0),
					   since == DT_NOEND);
}

/* Put how many groups there are of which kind, and for how long they wait. */
static void
put_groups(FairqRow *row, FairqQueue *queue)
{
	bool		hidden = !fairq_may(queue, FAIRQ_PRIV_MONITOR);
	FairqWaiting waiting = {.ready = DT_NOEND, .limited = DT_NOEND};

	if (!hidden)
		fairq_waiting(queue, &waiting);
	fairq_put_int4(row, waiting.nready, !waiting.known);
	fairq_put_int4(row, waiting.nlimited, !waiting.known);
	fairq_put_int4(row, queue->groups.npaused, hidden);
	fairq_put_int4(row, waiting.nthrottled, !waiting.known);
	put_age(row, waiting.ready);
	put_age(row, waiting.limited);
	fairq_put(row, BoolGetDatum(waiting.sampled), !waiting.known);
}

/*
 * Is what was done not counted here?  On a standby nothing is done, and what the
 * primary counts is not in the write-ahead log.
 */
static bool
is_not_counted(void)
{
	return RecoveryInProgress();
}

/* Put a histogram, as an array. */
static void
put_histogram(FairqRow *row, const uint64 *counts)
{
	Datum		numbers[FAIRQ_BUCKETS];

	for (int i = 0; i < FAIRQ_BUCKETS; i++)
		numbers[i] = Int64GetDatum((int64) counts[i]);
	fairq_put(row, PointerGetDatum(construct_array(numbers, FAIRQ_BUCKETS,
												   INT8OID, sizeof(int64),
												   FLOAT8PASSBYVAL,
												   TYPALIGN_DOUBLE)),
			  is_not_counted());
}

/* Put how long tasks waited and ran since the server started. */
static void
put_times(FairqRow *row, FairqQueue *queue)
{
	static const int percents[] = {50, 95, 99};
	uint64		counts[FAIRQ_SPANS][FAIRQ_BUCKETS];

	for (int s = 0; s < FAIRQ_SPANS; s++)
	{
		fairq_histogram_read(&queue->hints->histograms[s], counts[s]);
		for (int i = 0; i < lengthof(percents); i++)
		{
			int64		usecs = fairq_percentile(counts[s], percents[i]);

			fairq_put_interval(row, usecs, usecs < 0);
		}
	}
	for (int s = 0; s < FAIRQ_SPANS; s++)
		put_histogram(row, counts[s]);
}

/* Put what was done since the server started. */
static void
put_counters(FairqRow *row, FairqQueue *queue)
{
	for (int i = 0; i < FAIRQ_STATS; i++)
		fairq_put_int8(row, fairq_hints_stat(queue->hints, i),
					   is_not_counted());
}

static void
put_queue(ReturnSetInfo *rsinfo, FairqQueue *queue)
{
	FairqRow	row = {0};

	fairq_put(&row, CStringGetTextDatum(queue->name), false);
	fairq_put(&row, BoolGetDatum(queue->paused), false);
	fairq_put_int4(&row, queue->max_running,
				   queue->max_running == FAIRQ_NO_LIMIT);
	put_tallies(&row, queue);
	put_groups(&row, queue);
	put_times(&row, queue);
	put_counters(&row, queue);
	/* if it was dropped meanwhile, what was read may be another queue's */
	if (fairq_shmem_find_queue(queue->id) == queue->hints)
		fairq_put_row(rsinfo, &row);
}

/* fairq.visible_stats() */
Datum
fairq_visible_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ArrayType  *ids = DatumGetArrayTypeP(fairq_visible_ids(FAIRQ_PRIV_ANY));
	Datum	   *id;
	int			n;
	MemoryContext context;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	deconstruct_array(ids, INT4OID, sizeof(int32), true, TYPALIGN_INT, &id,
					  NULL, &n);
	context = AllocSetContextCreate(CurrentMemoryContext, "fairq stats",
									ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < n; i++)
	{
		FairqQueue *queue = fairq_queue_by_id(DatumGetInt32(id[i]));
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		if (queue == NULL)
			continue;
		old = MemoryContextSwitchTo(context);
		put_queue(rsinfo, queue);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	return (Datum) 0;
}
