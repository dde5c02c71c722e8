/*
 * lanes.c
 *		fairq.lanes and fairq.lane_groups(): the contents of shared memory.
 *
 * The view fairq.lanes has a row for each lane in shared memory.
 * fairq.lane_groups() has a row for each group of a lane that waits or runs
 * (lane_view.c).  Both show the data on which pops rely: check_queue() reports
 * a task that is in the tables but missing here.
 *
 * These functions change nothing, and do not count as use of a queue.  They
 * make no hints for a queue and no entry for a group, and take back no parked
 * groups.  A queue without hints has no rows.
 *
 * Locking: a lane's lock, shared, to copy one lane, or GROUPS_AT_ONCE groups.
 * Rows are made from the copy.  So one row shows one moment, but the rows of a
 * call show several moments.
 *
 * lane_groups() reads chunks, which are freed with the queue's hints.  So it
 * locks the queue and fairq.task with AccessShareLock until the end of the
 * transaction.  The first blocks drop_queue(), the second DROP EXTENSION,
 * which locks no queue.
 *
 * The function behind the view reads only the lanes, which are never freed
 * (registry.c).  So it locks no queue, and does not wait for one that is being
 * dropped.  If the hints belong to another queue by now, it discards the copy.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "lane_view.h"
#include "queue.h"
#include "registry.h"
#include "store.h"

PG_FUNCTION_INFO_V1(fairq_visible_lanes);
PG_FUNCTION_INFO_V1(fairq_lane_groups);

/* groups that are copied under one hold of a lane's lock */
#define GROUPS_AT_ONCE 32

/* The sets that the view shows, in the order of their columns. */
static const FairqSeatSet shown_sets[] = {
	FAIRQ_RING, FAIRQ_TODO, FAIRQ_SERVED, FAIRQ_PARKED,
	FAIRQ_THROTTLED, FAIRQ_LATE, FAIRQ_DUE, FAIRQ_LEASED, FAIRQ_LAPSED
};

/*
 * Add the time of a timer.  The year 2000 means that no search for timed tasks
 * has begun.  NULL means that no task will become due.
 */
static void
put_timer(FairqRow *row, const FairqLaneView *lane, FairqRegion region)
{
	int64		addr = lane->timers[region];
	bool		never = addr >=
		fairq_region_from(region) + FAIRQ_TIMED_SIZE - 2;

	fairq_put(row, TimestampTzGetDatum(never ? 0 : fairq_due_time(addr)),
			  !lane->begun || never);
}

/* Add the row of a lane, if shared memory has its data. */
static void
put_lane(ReturnSetInfo *rsinfo, const char *queue, int priority,
		 const FairqLaneView *lane)
{
	FairqRow	row = {0};
	bool		known = lane->begun && lane->known >= FAIRQ_ALL_SEATS;
	bool		partly = lane->begun && !known;

	if (!lane->begun && lane->n[FAIRQ_LEASED] == 0 &&
		lane->n[FAIRQ_LAPSED] == 0)
		return;
	fairq_put(&row, CStringGetTextDatum(queue), false);
	fairq_put(&row, Int32GetDatum(priority), false);
	fairq_put(&row, BoolGetDatum(known), false);
	fairq_put_int8(&row, lane->first % FAIRQ_ALL_SEATS, !partly);
	fairq_put_int8(&row, (lane->first + lane->known) % FAIRQ_ALL_SEATS, !partly);
	fairq_put_int8(&row, lane->block, !lane->begun);
	fairq_put(&row, Int32GetDatum(lane->seat),
			  !lane->begun || lane->seat == FAIRQ_NO_SEAT);
	fairq_put_int8(&row, lane->turn,
				   !lane->begun || lane->turn == FAIRQ_ADDR_NONE);
	for (int i = 0; i < lengthof(shown_sets); i++)
		fairq_put(&row, Int32GetDatum(lane->n[shown_sets[i]]), false);
	put_timer(&row, lane, FAIRQ_REGION_RETRIED);
	put_timer(&row, lane, FAIRQ_REGION_SCHEDULED);
	fairq_put(&row, TimestampTzGetDatum(lane->deadline),
			  lane->deadline == DT_NOEND);
	fairq_put_row(rsinfo, &row);
}

/* visible_lanes(): the lanes of the queues that the caller may monitor */
Datum
fairq_visible_lanes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	foreach(lc, fairq_shmem_queues(fairq_relid(FAIRQ_TASK)))
	{
		FairqHints *hints = lfirst(lc);
		int32		id = hints->entry.key.queue_id;
		FairqQueue *queue;
		FairqLaneView views[FAIRQ_PRIORITIES];

		CHECK_FOR_INTERRUPTS();
		/* the queue may have been dropped since */
		if (fairq_shmem_find_queue(id) != hints)
			continue;
		queue = fairq_queue_by_id(id);
		if (queue == NULL || !fairq_may(queue, FAIRQ_PRIV_MONITOR))
			continue;
		for (int p = 0; p < FAIRQ_PRIORITIES; p++)
			fairq_lane_view(&hints->lanes[p], &views[p]);
		if (fairq_shmem_find_queue(id) != hints)
			continue;
		for (int p = 0; p < FAIRQ_PRIORITIES; p++)
			put_lane(rsinfo, queue->name, p, &views[p]);
	}
	return (Datum) 0;
}

static void
put_row(ReturnSetInfo *rsinfo, const FairqWait *wait, const Datum *states)
{
	FairqRow	row = {0};

	fairq_put_int4(&row, wait->group_no, false);
	fairq_put(&row, states[wait->set], false);
	fairq_put_int8(&row, wait->next_turn, false);
	fairq_put_int8(&row, wait->from, wait->from == FAIRQ_ADDR_MAX);
	fairq_put_row(rsinfo, &row);
}

/* Add all groups of a lane that wait or run. */
static void
put_lane_groups(ReturnSetInfo *rsinfo, FairqLane *lane)
{
	Datum		states[FAIRQ_SEAT_SETS] = {
		[FAIRQ_RING] = CStringGetTextDatum("active"),
		[FAIRQ_PARKED] = CStringGetTextDatum("parked"),
		[FAIRQ_THROTTLED] = CStringGetTextDatum("throttled"),
		[FAIRQ_LEASED] = CStringGetTextDatum("leased")
	};
	int64		from = 0;
	int			n;

	do
	{
		FairqWait	waits[GROUPS_AT_ONCE];

		CHECK_FOR_INTERRUPTS();
		n = fairq_lane_waits(lane, DT_NOEND, from, GROUPS_AT_ONCE, waits);
		for (int i = 0; i < n; i++)
			put_row(rsinfo, &waits[i], states);
		if (n > 0)
			from = waits[n - 1].group_no + INT64CONST(1);
	} while (n == GROUPS_AT_ONCE);
}

/* fairq.lane_groups(queue, priority) */
Datum
fairq_lane_groups(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	FairqQueue *queue;
	int32		priority;

	fairq_arg_needed(fcinfo, 1, "priority");
	priority = FAIRQ_ARG_INT(1, "priority", 0, 0, FAIRQ_PRIORITIES - 1);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	queue = fairq_queue_use_if_known(name, FAIRQ_PRIV_MONITOR, AccessShareLock);
	if (queue == NULL)
		return (Datum) 0;
	fairq_table_close(fairq_open(FAIRQ_TASK, AccessShareLock));
	put_lane_groups((ReturnSetInfo *) fcinfo->resultinfo,
			   fairq_queue_lane(queue, priority));
	return (Datum) 0;
}
