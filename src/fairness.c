/*
 * fairness.c
 *		fairq.fairness and fairq.group_shares(): how fair queues are that are not
 *		fair by tasks, and who is served how much.
 *
 * Both read shared memory only, and no task.  The view costs the same whatever is
 * queued, and whatever groups there are.  group_shares() goes through the accounts
 * of all groups of the queue, in all lanes side by side; it keeps those that have
 * got most, and looks at more of these alone.  What a queue by tasks would have to say of it is kept nowhere, so that its
 * turns cost nothing more; there the view says how many groups are ready.
 *
 * Looking changes nothing, and is no use of a queue (lanes.c).
 *
 * Locking: an AccessShareLock on the queue and on fairq.task, as lanes.c says why;
 * but what is behind the view fairq.groups has the former only if it can be had at
 * once, since that view waits for no queue that is being dropped.  A lane's lock,
 * shared, for GROUPS_AT_ONCE groups.
 */
#include "postgres.h"

#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "group.h"
#include "lane_served.h"
#include "lane_waits.h"
#include "queue.h"
#include "registry.h"
#include "row.h"
#include "store.h"
#include "survey.h"

PG_FUNCTION_INFO_V1(fairq_visible_fairness);
PG_FUNCTION_INFO_V1(fairq_group_shares);
PG_FUNCTION_INFO_V1(fairq_group_got);

/* groups that are copied under one hold of a lane's lock; chunks are multiples */
#define GROUPS_AT_ONCE 64

/* groups that can be asked for */
#define MOST_GROUPS 1000

/* A lane that is looked at. */
typedef struct Lane
{
	FairqLane  *lane;
	FairqFairness fairness;		/* how fair it is */
} Lane;

/* What a group was served, in all priorities. */
typedef struct Share
{
	int32		group_no;		/* the group's number */
	bool		any;			/* true: it has an account in some lane */
	bool		present;		/* true: it may have tasks that are ready or
								 * running */
	double		got;			/* what it has got, per weight */
	double		ahead;			/* by how much it is ahead of who has got
								 * least; -1: not known, or there is no other */
	int32		running;		/* by time, number of its running tasks */
	int32		level;			/* by time, its level where that is highest */
} Share;

/* A call of group_shares(). */
typedef struct Shares
{
	FairqQueue *queue;
	TimestampTz now;
	Lane		lanes[FAIRQ_PRIORITIES];
	int			top;			/* groups that are asked for */
	Share	   *shares;			/* top of them fit */
	binaryheap *heap;			/* pointers to these, the last one first */
} Shares;

/* Have a lane to look at, and see how fair it is. */
static void
look_at_lane(Lane *lane, FairqLane *at, TimestampTz now)
{
	lane->lane = at;
	fairq_lane_fairness(at, now, &lane->fairness);
}

static void
put_float8(FairqRow *row, double value, bool isnull)
{
	fairq_put(row, Float8GetDatum(value), isnull);
}

/* --------------------------------------------------------------------- */

/* Put the row of a lane, if anything is known of it. */
static void
put_lane(ReturnSetInfo *rsinfo, const char *queue, int priority,
		 const FairqFairness *f)
{
	static const char *const names[] = {
		[FAIRQ_BY_TASKS] = "tasks",
		[FAIRQ_BY_COST] = "cost",
		[FAIRQ_BY_TIME] = "time"
	};
	FairqRow	row = {0};

	if (!f->begun)
		return;
	fairq_put(&row, CStringGetTextDatum(queue), false);
	fairq_put_int4(&row, priority, false);
	fairq_put(&row, CStringGetTextDatum(names[f->fair_by]), false);
	fairq_put_int4(&row, f->nready, !f->known);
	put_float8(&row, Max(f->most - f->least, 0), !f->known || !f->ranked);
	fairq_put_interval(&row, (int64) f->longest,
					   f->fair_by != FAIRQ_BY_TIME || f->longest == 0);
	fairq_put_row(rsinfo, &row);
}

/*
 * fairq.visible_fairness(): of the queues that the caller may monitor.  A queue that
 * is dropped meanwhile has no rows, and is no error.
 */
Datum
fairq_visible_fairness(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	FairqTable *tasks;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	foreach(lc, fairq_shmem_queues(fairq_catalog()->task))
	{
		FairqHints *hints = lfirst(lc);
		int32		id = hints->entry.key.queue_id;
		FairqQueue *queue;

		CHECK_FOR_INTERRUPTS();
		/* the queue may have been dropped since */
		if (fairq_shmem_find_queue(id) != hints)
			continue;
		queue = fairq_queue_use_id(id, FAIRQ_PRIV_MONITOR);
		for (int p = 0; queue != NULL && p < FAIRQ_PRIORITIES; p++)
		{
			Lane		lane;

			look_at_lane(&lane, fairq_queue_lane(queue, p),
						 GetCurrentTimestamp());
			put_lane(rsinfo, queue->name, p, &lane.fairness);
		}
	}
	fairq_table_close(tasks);
	return (Datum) 0;
}

/* --------------------------------------------------------------------- */

/* Does one come before the other?  Then below 0. */
static int
compare_shares(const Share *a, const Share *b)
{
	if (a->got != b->got)
		return a->got > b->got ? -1 : 1;
	return a->group_no < b->group_no ? -1 : a->group_no > b->group_no;
}

static int
compare_in_heap(Datum a, Datum b, void *arg)
{
	return compare_shares((Share *) DatumGetPointer(a),
						  (Share *) DatumGetPointer(b));
}

static int
compare_sorted(const void *a, const void *b)
{
	return compare_shares(a, b);
}

/* Add what a group was served in a lane. */
static void
add_share(Share *share, const Lane *lane, const FairqGroupServed *served)
{
	const FairqFairness *f = &lane->fairness;

	if (!served->any)
		return;
	share->any = true;
	share->present |= served->present;
	share->got += served->got;
	share->running += served->running;
	share->level = Max(share->level, served->level);
	if (f->known && f->ranked)
		share->ahead = Max(share->ahead, Max(served->got - f->least, 0));
}

/* Find what some groups were served in all lanes, from that seat on. */
static void
find_shares(const FairqQueue *queue, Lane *lanes, TimestampTz now,
			int64 from, int n, Share *shares)
{
	FairqGroupServed served[GROUPS_AT_ONCE];

	for (int i = 0; i < n; i++)
		shares[i] = (Share) {.group_no = (int32) from + i,.ahead = -1};
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		Lane	   *lane = &lanes[p];

		if (!lane->fairness.begun ||
			lane->fairness.fair_by != queue->shares.fair_by)
			continue;
		fairq_lane_served(lane->lane, now, from, n, served);
		for (int i = 0; i < n; i++)
			add_share(&shares[i], lane, &served[i]);
	}
}

/* Keep the group, if it is one of the first so far. */
static void
keep_share(Shares *shares, const Share *share)
{
	Share	   *last;

	if (shares->heap->bh_size < shares->top)
	{
		last = &shares->shares[shares->heap->bh_size];
		*last = *share;
		binaryheap_add(shares->heap, PointerGetDatum(last));
		return;
	}
	last = (Share *) DatumGetPointer(binaryheap_first(shares->heap));
	if (compare_shares(share, last) >= 0)
		return;
	*last = *share;
	binaryheap_replace_first(shares->heap, PointerGetDatum(last));
}

/* Go through the groups that have accounts. */
static void
walk_accounts(Shares *shares)
{
	for (int chunk = 0; chunk < FAIRQ_CHUNKS; chunk++)
	{
		int64		from = fairq_chunk_first(chunk);
		int64		end = from + fairq_chunk_seats(chunk);
		bool		any = false;

		for (int p = 0; p < FAIRQ_PRIORITIES; p++)
			any |= fairq_chunk_at(&shares->lanes[p].lane->order.set.records,
								  chunk) != NULL;
		for (; any && from < end; from += GROUPS_AT_ONCE)
		{
			Share		found[GROUPS_AT_ONCE];

			CHECK_FOR_INTERRUPTS();
			find_shares(shares->queue, shares->lanes, shares->now, from,
						GROUPS_AT_ONCE, found);
			for (int i = 0; i < GROUPS_AT_ONCE; i++)
				if (found[i].present)
					keep_share(shares, &found[i]);
		}
	}
}

/*
 * Since when the group's first ready task waits.  False: it has none, or it is not
 * known.
 */
static bool
waits_since(FairqQueue *queue, int32 group_no, TimestampTz *since)
{
	bool		waits = false;

	*since = DT_NOEND;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		FairqWait	wait;

		if (!fairq_lane_wait_of(fairq_queue_lane(queue, p), group_no, &wait) ||
			!wait.waits)
			continue;
		waits = true;
		*since = Min(*since, wait.since);
	}
	return waits && *since != DT_NOBEGIN;
}

static void
put_share(ReturnSetInfo *rsinfo, const Shares *shares, const Share *share)
{
	FairqRow	row = {0};
	FairqQueue *queue = shares->queue;
	bool		by_time = queue->shares.fair_by == FAIRQ_BY_TIME;
	Datum		key = fairq_group_key(queue, share->group_no);
	int32		running = share->running;
	bool		counted = by_time ||
		fairq_survey_counter(queue, share->group_no, &running);
	TimestampTz since;
	bool		waits = waits_since(queue, share->group_no, &since);

	/* its number was freed meanwhile */
	if (DatumGetPointer(key) == NULL)
		return;
	fairq_put(&row, key, false);
	put_float8(&row, share->got, false);
	put_float8(&row, share->ahead, share->ahead < 0);
	fairq_put_int4(&row, running, !counted);
	fairq_put_int4(&row, share->level, !by_time);
	fairq_put(&row, TimestampTzGetDatum(since), !waits);
	fairq_put_row(rsinfo, &row);
}

/* Put the groups of a queue that is locked and not fair by tasks. */
static void
put_queue(ReturnSetInfo *rsinfo, FairqQueue *queue, int32 top)
{
	Shares		shares = {.queue = queue,.now = GetCurrentTimestamp(),.top = top};
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	int			n;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		look_at_lane(&shares.lanes[p], fairq_queue_lane(queue, p), shares.now);
	shares.shares = palloc(sizeof(Share) * top);
	shares.heap = binaryheap_allocate(top, compare_in_heap, NULL);
	walk_accounts(&shares);
	n = shares.heap->bh_size;
	qsort(shares.shares, n, sizeof(Share), compare_sorted);
	for (int i = 0; i < n; i++)
		put_share(rsinfo, &shares, &shares.shares[i]);
	fairq_table_close(tasks);
}

/* fairq.group_shares(queue, top) */
Datum
fairq_group_shares(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	int32		top = FAIRQ_ARG_INT(1, "top", 20, 1, MOST_GROUPS);
	FairqQueue *queue;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	queue = fairq_queue_use_if_known(name, FAIRQ_PRIV_MONITOR,
									 AccessShareLock);
	if (queue != NULL && queue->shares.fair_by != FAIRQ_BY_TASKS)
		put_queue((ReturnSetInfo *) fcinfo->resultinfo, queue, top);
	return (Datum) 0;
}

/* --------------------------------------------------------------------- */

/* fairq.group_got(queue_id, group_no): one row, for the view fairq.groups */
Datum
fairq_group_got(PG_FUNCTION_ARGS)
{
	int32		id = PG_GETARG_INT32(0);
	int32		group_no = PG_GETARG_INT32(1);
	FairqQueue *queue = fairq_queue_by_id(id);
	TimestampTz now = GetCurrentTimestamp();
	Lane		lanes[FAIRQ_PRIORITIES];
	Share		share = {.ahead = -1};
	FairqRow	row = {0};

	/* the accounts' chunks are found by the number: below 0 there are none */
	if (queue == NULL || group_no < 0 ||
		!fairq_may(queue, FAIRQ_PRIV_MONITOR) ||
		queue->shares.fair_by == FAIRQ_BY_TASKS ||
		!fairq_queue_try_lock(queue, AccessShareLock))
		PG_RETURN_NULL();
	/* it may have been dropped before we had the lock */
	if (fairq_shmem_find_queue(id) == queue->hints)
	{
		for (int p = 0; p < FAIRQ_PRIORITIES; p++)
			look_at_lane(&lanes[p], fairq_queue_lane(queue, p), now);
		find_shares(queue, lanes, now, group_no, 1, &share);
	}
	fairq_queue_id_unlock(id, AccessShareLock);
	put_float8(&row, share.got, !share.any);
	put_float8(&row, share.ahead, share.ahead < 0);
	PG_RETURN_DATUM(fairq_row_result(fcinfo, &row));
}
