/*
 * fairness.c
 *		fairq.fairness and fairq.group_shares(): how fair queues are that are not
 *		fair by tasks, and who is served how much.
 *
 * Both read shared memory only, and no task.  The view costs the same whatever is
 * queued, and whatever groups there are.  group_shares() goes through the groups
 * that wait or run (waiting.c), and keeps those that have got most.  What a queue by tasks would have to say of it is kept nowhere, so that its
 * turns cost nothing more; there the view says how many groups are ready.
 *
 * Looking changes nothing, and is no use of a queue (lanes.c).
 *
 * Locking: an AccessShareLock on the queue and on fairq.task, as lanes.c says why;
 * but what is behind the view fairq.groups has the former only if it can be had at
 * once, since that view waits for no queue that is being dropped.  A lane's lock,
 * shared, for each group.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "group.h"
#include "lane_view.h"
#include "queue.h"
#include "registry.h"
#include "store.h"
#include "survey.h"
#include "top.h"
#include "waiting.h"

PG_FUNCTION_INFO_V1(fairq_visible_fairness);
PG_FUNCTION_INFO_V1(fairq_group_shares);
PG_FUNCTION_INFO_V1(fairq_group_got);

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
	double		got;			/* what it has got, per weight */
	double		ahead;			/* by how much it is ahead of who has got
								 * least; -1: not known, or there is no other */
	int32		running;		/* by time, number of its running tasks */
	int32		level;			/* by time, its level where that is highest */
	TimestampTz since;			/* since when it waits; not finite: it does
								 * not, or it is not known */
} Share;

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
 * visible_fairness(): of the queues that the caller may monitor.  A queue that
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

/* Those come first that have got most. */
static int
compare_shares(const void *a, const void *b)
{
	const Share *x = a;
	const Share *y = b;

	if (x->got != y->got)
		return x->got > y->got ? -1 : 1;
	return x->group_no < y->group_no ? -1 : x->group_no > y->group_no;
}

/* Add what a group was served in a lane. */
static void
add_share(Share *share, const FairqFairness *f, const FairqGroupServed *served)
{
	if (!served->any)
		return;
	share->any = true;
	share->got += served->got;
	share->running += served->running;
	share->level = Max(share->level, served->level);
	if (f->known && f->ranked)
		share->ahead = Max(share->ahead, Max(served->got - f->least, 0));
}

/* Find what a group was served in all lanes. */
static Share
find_share(const FairqQueue *queue, Lane *lanes, TimestampTz now,
		   int32 group_no)
{
	Share		share = {.group_no = group_no,.ahead = -1};

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		Lane	   *lane = &lanes[p];
		FairqGroupServed served;

		if (!lane->fairness.begun ||
			lane->fairness.fair_by != queue->shares.fair_by)
			continue;
		fairq_lane_served(lane->lane, now, group_no, &served);
		add_share(&share, &lane->fairness, &served);
	}
	return share;
}

/* See how fair all lanes of a queue are. */
static void
look_at_lanes(FairqQueue *queue, TimestampTz now, Lane *lanes)
{
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		look_at_lane(&lanes[p], fairq_queue_lane(queue, p), now);
}

static void
put_share(ReturnSetInfo *rsinfo, FairqQueue *queue, const Share *share)
{
	FairqRow	row = {0};
	bool		by_time = queue->shares.fair_by == FAIRQ_BY_TIME;
	Datum		key = fairq_group_key(queue, share->group_no);
	int32		running = share->running;
	bool		counted = by_time ||
		fairq_survey_counter(queue, share->group_no, &running);

	/* its number was freed meanwhile */
	if (DatumGetPointer(key) == NULL)
		return;
	fairq_put(&row, key, false);
	put_float8(&row, share->got, false);
	put_float8(&row, share->ahead, share->ahead < 0);
	fairq_put_int4(&row, running, !counted);
	fairq_put_int4(&row, share->level, !by_time);
	fairq_put(&row, TimestampTzGetDatum(share->since),
			  TIMESTAMP_NOT_FINITE(share->since));
	fairq_put_row(rsinfo, &row);
}

/* Put the groups of a queue that is locked and not fair by tasks. */
static void
put_queue(ReturnSetInfo *rsinfo, FairqQueue *queue, int32 top)
{
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	FairqTop	first = fairq_top(sizeof(Share), top, compare_shares);
	FairqWalk  *walk = fairq_walk_begin(queue, DT_NOEND, 0, FAIRQ_ALL_SEATS);
	TimestampTz now = GetCurrentTimestamp();
	Lane		lanes[FAIRQ_PRIORITIES];
	FairqWaiter waiter;

	look_at_lanes(queue, now, lanes);
	while (fairq_walk_next(walk, &waiter))
	{
		Share		share = find_share(queue, lanes, now, waiter.group_no);

		share.since = waiter.since;
		if (share.any)
			fairq_top_put(&first, &share);
	}
	fairq_top_cut(&first);
	for (int i = 0; i < first.n; i++)
		put_share(rsinfo, queue, &((Share *) first.items)[i]);
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

/* group_got(queue_id, group_no): one row, for the view fairq.groups */
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
		!fairq_queue_id_try_lock(queue->id, AccessShareLock))
		PG_RETURN_NULL();
	/* it may have been dropped before we had the lock */
	if (fairq_shmem_find_queue(id) == queue->hints)
	{
		look_at_lanes(queue, now, lanes);
		share = find_share(queue, lanes, now, group_no);
	}
	fairq_queue_id_unlock(id, AccessShareLock);
	put_float8(&row, share.got, !share.any);
	put_float8(&row, share.ahead, share.ahead < 0);
	PG_RETURN_DATUM(fairq_row_result(fcinfo, &row));
}
