/*
 * inspect.c
 *		Functions that show the contents of shared memory, addresses, blocks,
 *		counters and reasons, and functions behind the views of queues, groups,
 *		lanes and statistics.
 *
 * A view is planned in its caller's statement, with the caller's settings.
 * Queries that read and count tasks must take linear time, even if the
 * planner's statistics are wrong (store_spi.c).  So each of these queries runs
 * as a separate statement.  Such a query finds the queues that the caller's
 * statement sees, and on which the caller has a privilege.
 *
 * fairq.stats has a row for each of these queues, at little cost.  The view
 * reads shared memory and settings, and the tasks that have waited longest
 * (survey.c).  Columns that depend on groups are NULL for a caller that may
 * not monitor the queue.  Otherwise such a caller could guess a group's name
 * and enqueue a task to learn whether the group exists.
 *
 * fairq.lanes has a row for each lane in shared memory, and
 * fairq.lane_groups() has one for each group of a lane that waits or runs
 * (lane_view.c).  Both show the data on which pops rely.  So check_queue()
 * reports a task that is in the tables but missing here.
 *
 * The functions for lanes and turns change nothing, and do not count as use of
 * a queue.  They make no hints for a queue and no entry for a group, and take
 * back no parked groups.  A queue without hints has no rows.
 *
 * fairq.turns_before() returns a bound on the number of tasks that are served
 * before a task.  Assume that k tasks of a group of weight w are before one of
 * its tasks.  Each turn of the group serves w of these, as long as there are
 * w.  So the task is served at turn k / w + 1 at the latest.  A group has one
 * turn in each block.  Its next turn is in this block, or in the next one if
 * it has had its turn in this one.  No other group has more than one turn in a
 * block.  So another group has at most one turn in each block from this one up
 * to that turn.  At each of these turns, at most as many of its tasks are
 * served as its weight.
 *
 * The tasks before a task are the group's queued tasks at lower addresses, the
 * due tasks, and the tasks whose leases have ended.  The call counts a bounded
 * number of them.  If more are queued, their number follows from the
 * addresses: from the first one's block on, each block has at most w.  The
 * bound counts the groups in the ring, and also parked and throttled groups,
 * because they may return to the ring.  A group that joins later has a turn in
 * each block from then on.  The cost depends only on the number of groups that
 * have their own weight.
 *
 * Locking: AccessShareLock on the queue, if the function is for one queue, and
 * on the tables.  turns_before() and lane_groups() keep both to the end of the
 * transaction.  The lock on the queue blocks drop_queue(), which frees the
 * queue's chunks.  The locks on the tables block DROP EXTENSION, which locks
 * no queue.  Numbers in shared memory may change while they are read.  The
 * tally is read under its lock, shared (tally.c).  The calls also take the
 * locks of survey.c.
 *
 * To copy one lane, or FAIRQ_WAITS groups, a call takes a lane's lock,
 * shared.  Rows are made from the copy.  So one row shows one moment, but the
 * rows of a call show several moments.  The function behind fairq.lanes reads
 * only the lanes, which are never freed (registry.c).  So it locks no queue,
 * and does not wait for one that is being dropped.  If the hints belong to
 * another queue by now, the function discards the copy.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "group.h"
#include "lane_view.h"
#include "load.h"
#include "queue.h"
#include "registry.h"
#include "store.h"
#include "store_spi.h"
#include "survey.h"
#include "times.h"

PG_FUNCTION_INFO_V1(fairq_sql_address);
PG_FUNCTION_INFO_V1(fairq_block_of);
PG_FUNCTION_INFO_V1(fairq_counters);
PG_FUNCTION_INFO_V1(fairq_kept_back);
PG_FUNCTION_INFO_V1(fairq_shared_memory);
PG_FUNCTION_INFO_V1(fairq_wait_reason);
PG_FUNCTION_INFO_V1(fairq_visible_groups);
PG_FUNCTION_INFO_V1(fairq_visible_queues);
PG_FUNCTION_INFO_V1(fairq_queue_stats);
PG_FUNCTION_INFO_V1(fairq_queue_lanes);
PG_FUNCTION_INFO_V1(fairq_lane_groups);
PG_FUNCTION_INFO_V1(fairq_turns_before);

static int64
arg_bigint(FunctionCallInfo fcinfo, int n, const char *name)
{
	fairq_arg_needed(fcinfo, n, name);
	return fairq_check_int(name, PG_GETARG_INT64(n), 0, PG_INT64_MAX);
}

Datum
fairq_sql_address(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = fairq_arg_text(fcinfo, 1, "group_key");
	int64		block = arg_bigint(fcinfo, 2, "block");
	/* only roles that may see groups may learn whether the group exists */
	FairqQueue *queue = fairq_queue_use(name, FAIRQ_PRIV_MONITOR,
										AccessShareLock);
	int32		group_no = fairq_existing_group(queue, group_key);
	int64		addr = fairq_address(group_no, block, queue->block_length);

	if (addr == FAIRQ_ADDR_NONE)
		(void) fairq_check_int("block", block, 0,
							   fairq_last_block(group_no, queue->block_length));
	PG_RETURN_INT64(addr);
}

Datum
fairq_block_of(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	int64		addr = arg_bigint(fcinfo, 1, "addr");
	FairqQueue *queue = fairq_queue_use(name, FAIRQ_PRIV_ANY, AccessShareLock);

	PG_RETURN_INT64(fairq_block(addr, queue->block_length));
}

/* counters(queue_id): one row, with the events since the server started */
Datum
fairq_counters(PG_FUNCTION_ARGS)
{
	FairqQueue *queue = fairq_queue_if_hints(PG_GETARG_INT32(0),
											 FAIRQ_PRIV_ANY);
	FairqRow	row = {0};

	if (queue == NULL)
		PG_RETURN_NULL();
	for (int i = 0; i < FAIRQ_STATS; i++)
		fairq_put_int8(&row, fairq_hints_stat(queue->hints, i), false);
	PG_RETURN_DATUM(fairq_row_result(fcinfo, &row));
}

/*
 * kept_back(value): the value unchanged, toasted or not.  The function is
 * useful only because it is VOLATILE.
 */
Datum
fairq_kept_back(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}

/*
 * wait_reason(queue_id, group_no, run_at, expires_at): for the views of tasks.
 * NULL if the queue does not exist, the caller may not see its groups, or the
 * task is expired.  The result is also NULL on a standby if a limit, rate or
 * hold applies.
 */
Datum
fairq_wait_reason(PG_FUNCTION_ARGS)
{
	FairqQueue *queue;
	const char *reason = "scheduled";
	int32		group_no;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	queue = fairq_queue_if_hints(PG_GETARG_INT32(0), FAIRQ_PRIV_MONITOR);
	group_no = PG_GETARG_INT32(1);
	if (queue == NULL || group_no < 0)
		PG_RETURN_NULL();
	if (!PG_ARGISNULL(3) && PG_GETARG_TIMESTAMPTZ(3) <= GetCurrentTimestamp())
		PG_RETURN_NULL();
	if (PG_ARGISNULL(2) || PG_GETARG_TIMESTAMPTZ(2) <= GetCurrentTimestamp())
		reason = fairq_reason(queue, group_no);
	if (reason == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(reason));
}

/*
 * Returns an array of ids: of the queues that the caller's statement sees, and
 * on which the caller has one of these privileges.
 */
static Datum
visible_ids(int any_privilege)
{
	ArrayBuildState *ids = initArrayResult(INT4OID, CurrentMemoryContext,
										   false);
	ListCell   *lc;

	foreach(lc, fairq_sql_texts("SELECT queue_id FROM fairq.queue", NULL, 0,
								true))
	{
		int32		id = pg_strtoint32(strVal(lfirst(lc)));
		FairqQueue *queue = fairq_queue_by_id(id, false);

		if (queue != NULL && fairq_may(queue, any_privilege))
			(void) accumArrayResult(ids, Int32GetDatum(id), false, INT4OID,
									CurrentMemoryContext);
	}
	return makeArrayResult(ids, CurrentMemoryContext);
}

/*
 * Return the result of a query about the queues that the caller may see.  $1
 * has the ids of these queues, and $2 has the ids of those that the caller may
 * monitor.
 */
static Datum
visible(FunctionCallInfo fcinfo, const char *sql)
{
	FairqSqlArg args[] = {
		{INT4ARRAYOID, visible_ids(FAIRQ_PRIV_ANY), false},
		{INT4ARRAYOID, visible_ids(FAIRQ_PRIV_MONITOR), false}
	};

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	fairq_sql_view(sql, args, lengthof(args),
				   ((ReturnSetInfo *) fcinfo->resultinfo)->setResult);
	return (Datum) 0;
}

/* visible_groups() */
Datum
fairq_visible_groups(PG_FUNCTION_ARGS)
{
	return visible(fcinfo, "SELECT * FROM fairq_internal.all_groups"
				   " WHERE queue_id IN (SELECT unnest($2))");
}

/*
 * visible_queues(): the columns "ready" and "limited" depend on groups.  So
 * they are NULL for a caller that may not monitor the queue.
 */
Datum
fairq_visible_queues(PG_FUNCTION_ARGS)
{
	return visible(fcinfo, "SELECT r.* FROM fairq_internal.all_queues q"
				   " CROSS JOIN LATERAL jsonb_populate_record(q,"
				   " CASE WHEN queue_id = ANY ($2) THEN '{}'"
				   " ELSE '{\"ready\": null, \"limited\": null}'::jsonb END) r"
				   " WHERE q.queue_id IN (SELECT unnest($1))");
}

/*
 * fairq.shared_memory(): the size of shared memory, and its use by all
 * databases.
 */
Datum
fairq_shared_memory(PG_FUNCTION_ARGS)
{
	FairqRow	row = {0};
	FairqShmemUse use;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	fairq_registry_use(&use);
	fairq_put_int8(&row, use.size, false);
	fairq_put(&row, BoolGetDatum(use.reserved), false);
	fairq_put_int8(&row, (int64) fairq_cache.nsets * FAIRQ_SET_WAYS, false);
	fairq_put_int8(&row, use.nentries, false);
	fairq_put_int8(&row, use.area_size, false);
	fairq_put_int8(&row, use.allocated, false);
	fairq_put_int8(&row, use.nqueues, false);
	fairq_put_int8(&row, use.ncounters, false);
	fairq_put_row((ReturnSetInfo *) fcinfo->resultinfo, &row);
	return (Datum) 0;
}

/*
 * Add the numbers of queued, scheduled and running tasks.  If they are not
 * known, begin a load.
 */
static void
put_tallies(FairqRow *row, FairqQueue *queue)
{
	FairqQueueTally *tally = &queue->hints->tally;
	FairqTable *tasks = fairq_tally_is_known(tally) || RecoveryInProgress() ?
		NULL : fairq_try_open_tasks();
	int64		n[FAIRQ_TALLIES];
	bool		known;

	if (tasks != NULL)
	{
		fairq_load_begin(queue, tasks);
		fairq_table_close(tasks);
	}
	known = fairq_tally_read(tally, n);
	for (int i = 0; i < FAIRQ_TALLIES; i++)
		fairq_put_int8(row, n[i], !known);
}

/*
 * Add the age of a task that became ready at the given time; DT_NOEND: there
 * is none.
 */
static void
put_age(FairqRow *row, TimestampTz since)
{
	fairq_put_interval(row, Max(GetCurrentTimestamp() - since, 0),
					   since == DT_NOEND);
}

/*
 * Add the numbers of groups of each kind, and how long their tasks have
 * waited.
 */
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
 * Add a histogram, as an array.  Like other counts, it is NULL on a standby,
 * because a standby changes no task and does not have the primary's counts.
 */
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
			  RecoveryInProgress());
}

/* Returns the lower end of a bucket, in microseconds. */
static double
bucket_from(int bucket)
{
	return bucket == 0 ? 0 : (double) (INT64CONST(1000) << (bucket - 1));
}

/*
 * Returns the span, in microseconds, that the given percentage of spans does
 * not exceed; -1: there are no spans.  Spans within a bucket are assumed to be
 * evenly spread.
 */
static int64
percentile(const uint64 *counts, int percent)
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

/* Add how long tasks have waited and run since the server started. */
static void
put_times(FairqRow *row, FairqQueue *queue)
{
	static const int percents[] = {50, 95, 99};
	uint64		counts[FAIRQ_SPANS][FAIRQ_BUCKETS];

	for (int s = 0; s < FAIRQ_SPANS; s++)
	{
		for (int b = 0; b < FAIRQ_BUCKETS; b++)
			counts[s][b] =
				pg_atomic_read_u64(&queue->hints->histograms[s].n[b]);
		for (int i = 0; i < lengthof(percents); i++)
		{
			int64		usecs = percentile(counts[s], percents[i]);

			fairq_put_interval(row, usecs, usecs < 0);
		}
	}
	for (int s = 0; s < FAIRQ_SPANS; s++)
		put_histogram(row, counts[s]);
	for (int s = 0; s < FAIRQ_SPANS; s++)
		fairq_put_interval(row, (int64) pg_atomic_read_u64(
								&queue->hints->histograms[s].sum),
						   RecoveryInProgress());
}

/*
 * queue_stats(queue_id): one row; none if the caller may not see the queue, or
 * if it was dropped.
 */
Datum
fairq_queue_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	FairqQueue *queue = fairq_queue_by_id(PG_GETARG_INT32(0), false);
	FairqRow	row = {0};

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (queue == NULL || !fairq_may(queue, FAIRQ_PRIV_ANY))
		return (Datum) 0;
	fairq_put(&row, BoolGetDatum(queue->paused), false);
	fairq_put_int4(&row, queue->max_running,
				   queue->max_running == FAIRQ_NO_LIMIT);
	if (queue->hints != NULL)
	{
		put_tallies(&row, queue);
		put_groups(&row, queue);
		put_times(&row, queue);
		for (int i = 0; i < FAIRQ_STATS; i++)
			fairq_put_int8(&row, fairq_hints_stat(queue->hints, i),
						   RecoveryInProgress());
	}
	/* without room for the queue's hints, all other columns are unknown */
	while (row.n < rsinfo->setDesc->natts)
		fairq_put(&row, (Datum) 0, true);
	/* if the queue was dropped meanwhile, the data may be another queue's */
	if (fairq_shmem_queue(queue->id, false) == queue->hints)
		fairq_put_row(rsinfo, &row);
	return (Datum) 0;
}

/* --------------------------------------------------------------------- */

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
put_timer(FairqRow *row, FairqLaneView *view, FairqRegion region)
{
	int64		addr = fairq_times_first(&view->lane.times, region);
	bool		none = !view->begun || addr == FAIRQ_ADDR_MAX;

	fairq_put(row, TimestampTzGetDatum(none ? 0 : fairq_due_time(addr)), none);
}

/* Add the row of a lane, if shared memory has its data. */
static void
put_lane(ReturnSetInfo *rsinfo, int priority, FairqLaneView *view)
{
	FairqRow	row = {0};
	const FairqLane *lane = &view->lane;
	const int32 *n = lane->seats.n;
	int64		first = lane->recovery.first;
	TimestampTz deadline =
		(int64) pg_atomic_read_u64(&view->lane.times.deadline);
	bool		known = view->begun &&
		lane->recovery.known >= FAIRQ_ALL_SEATS;
	bool		partly = view->begun && !known;

	if (!view->begun && n[FAIRQ_LEASED] == 0 && n[FAIRQ_LAPSED] == 0)
		return;
	fairq_put(&row, Int32GetDatum(priority), false);
	fairq_put(&row, BoolGetDatum(known), false);
	fairq_put_int8(&row, first % FAIRQ_ALL_SEATS, !partly);
	fairq_put_int8(&row, (first + lane->recovery.known) % FAIRQ_ALL_SEATS,
				   !partly);
	fairq_put_int8(&row, lane->present.block, !view->begun);
	fairq_put(&row, Int32GetDatum(lane->present.seat),
			  !view->begun || lane->present.seat == FAIRQ_NO_SEAT);
	fairq_put_int8(&row, lane->turn.addr,
				   !view->begun || lane->turn.addr == FAIRQ_ADDR_NONE);
	for (int i = 0; i < lengthof(shown_sets); i++)
		fairq_put(&row, Int32GetDatum(n[shown_sets[i]]), false);
	put_timer(&row, view, FAIRQ_REGION_RETRIED);
	put_timer(&row, view, FAIRQ_REGION_SCHEDULED);
	fairq_put(&row, TimestampTzGetDatum(deadline), deadline == DT_NOEND);
	fairq_put_row(rsinfo, &row);
}

/* queue_lanes(queue_id): none if the caller may not monitor the queue */
Datum
fairq_queue_lanes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int32		id = PG_GETARG_INT32(0);
	FairqHints *hints = fairq_shmem_queue(id, false);
	FairqQueue *queue = hints == NULL ? NULL : fairq_queue_by_id(id, true);
	FairqLaneView views[FAIRQ_PRIORITIES];

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (queue == NULL || !fairq_may(queue, FAIRQ_PRIV_MONITOR))
		return (Datum) 0;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		fairq_lane_view(&hints->lanes[p], &views[p]);
	/* the queue may have been dropped meanwhile */
	for (int p = 0; p < FAIRQ_PRIORITIES &&
		 fairq_shmem_queue(id, false) == hints; p++)
		put_lane(rsinfo, p, &views[p]);
	return (Datum) 0;
}

/* Add all groups of a lane that have waiting or running tasks. */
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
		FairqWait	waits[FAIRQ_WAITS];

		CHECK_FOR_INTERRUPTS();
		n = fairq_lane_waits(lane, DT_NOEND, from, waits);
		for (int i = 0; i < n; i++)
		{
			FairqRow	row = {0};

			fairq_put_int4(&row, waits[i].group_no, false);
			fairq_put(&row, states[waits[i].set], false);
			fairq_put_int8(&row, waits[i].next_turn, false);
			fairq_put_int8(&row, waits[i].from,
						   waits[i].from == FAIRQ_ADDR_MAX);
			fairq_put_row(rsinfo, &row);
		}
		if (n > 0)
			from = waits[n - 1].group_no + INT64CONST(1);
	} while (n == FAIRQ_WAITS);
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
	queue = fairq_queue_to_view(name);
	if (queue == NULL)
		return (Datum) 0;
	fairq_table_close(fairq_open(FAIRQ_TASK, AccessShareLock));
	put_lane_groups((ReturnSetInfo *) fcinfo->resultinfo,
					fairq_queue_lane(queue, priority));
	return (Datum) 0;
}

/* --------------------------------------------------------------------- */

/* maximum number of index entries that are read */
#define MOST_ENTRIES 1000

/* no bound is known */
#define UNKNOWN (-1)

/* A count of the tasks before a given task in its group's line. */
typedef struct LineCount
{
	FairqQueue *queue;
	FairqTable *tasks;
	const FairqTask *task;
	TimestampTz now;
	int			budget;			/* index entries that may still be read */
	bool		more;			/* true: the budget was too small */
	int64		n;				/* tasks that were found */
	int64		first;			/* address of the first task in the last
								 * section; FAIRQ_ADDR_NONE: none */
} LineCount;

/* Count the tasks before the given one in a section of its group's line. */
static void
count_stretch(LineCount *count, int64 from, int64 end, bool lapsed)
{
	const FairqTask *own = count->task;
	int32		lane = fairq_task_lane(count->queue->id, own->priority);
	FairqScan  *scan;
	FairqRowState state;

	count->first = FAIRQ_ADDR_NONE;
	if (from >= end || count->more)
		return;
	scan = fairq_scan_some(count->tasks, FAIRQ_TASK_BY_GROUP,
						   fairq_range_line(lane, own->group_no, from, end),
						   count->budget);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		count->more = state == FAIRQ_ROW_LATER;
		if (count->more)
			break;
		fairq_task_read(scan->slot, &task);
		/*
		 * count a task that another transaction is changing, because it may
		 * come back, or be new
		 */
		if (lapsed ? state != FAIRQ_ROW_LIVE || !task.running ||
			task.lease_until > count->now :
			task.running || (task.addr == own->addr && task.id >= own->id))
			continue;
		if (count->n++ == 0 || count->first == FAIRQ_ADDR_NONE)
			count->first = task.addr;
	}
	count->budget = Max(scan->budget, 0);
	fairq_scan_end(scan);
}

/* Count lapsed and due tasks. */
static void
count_begun(LineCount *count, const FairqWait *wait)
{
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		count_stretch(count, wait->due_from[r], fairq_due_end(r, count->now),
					  false);
	if (wait->deadline > count->now)
		return;
	count_stretch(count, wait->run_low[FAIRQ_REGION_QUEUED],
				  Min(wait->run_high, FAIRQ_RETRIES - 1) + 1, true);
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		count_stretch(count, wait->run_low[r], fairq_due_end(r, count->now),
					  true);
}

/*
 * Returns an upper bound on the number of tasks of its group that precede the
 * task.
 */
static int64
own_ahead(LineCount *count, const FairqWait *wait, int32 weight)
{
	int64		begun;
	int64		blocks;

	count_begun(count, wait);
	if (count->more)
		return UNKNOWN;
	begun = count->n;
	count_stretch(count, Min(wait->from, count->task->addr),
				  count->task->addr + 1, false);
	if (!count->more)
		return count->n;
	if (count->first == FAIRQ_ADDR_NONE)
		return UNKNOWN;
	blocks = fairq_block(count->task->addr, count->queue->block_length) -
		fairq_block(count->first, count->queue->block_length) + 1;
	return begun + Max(count->n - begun, blocks * weight - 1);
}

/*
 * Returns an upper bound on the number of tasks of all other groups that are
 * served in a block.
 */
static int64
others_per_block(FairqQueue *queue, FairqLane *lane, const FairqLaneView *view,
				 const FairqWait *own)
{
	HASH_SEQ_STATUS walk;
	const int32 *group_no;
	int64		n = fairq_lane_view_waiting(view) - own->waits;

	if (queue->groups.own == NULL)
		return Max(n, 0);
	hash_seq_init(&walk, queue->groups.own);
	while ((group_no = hash_seq_search(&walk)) != NULL)
	{
		int32		weight = fairq_group_setting(queue, *group_no)->weight;
		FairqWait	wait;

		CHECK_FOR_INTERRUPTS();
		if (weight == 1 || *group_no == own->group_no)
			continue;
		if (fairq_lane_wait_of(lane, *group_no, &wait) && wait.waits)
			n += weight - 1;
	}
	return Max(n, 0);
}

/*
 * Returns an upper bound on the number of tasks of the same priority that are
 * served before a queued task, or UNKNOWN.  The reference lists the bound's
 * assumptions.
 */
static int64
tasks_ahead(FairqQueue *queue, FairqTable *tasks, const FairqTask *task)
{
	FairqLane  *lane = fairq_queue_lane(queue, task->priority);
	int32		weight = fairq_group_setting(queue, task->group_no)->weight;
	LineCount	count = {
		.queue = queue,
		.tasks = tasks,
		.task = task,
		.now = GetCurrentTimestamp(),
		.budget = MOST_ENTRIES
	};
	FairqLaneView view;
	FairqWait	own;
	int64		n;
	int64		blocks;
	int64		others;

	if (queue->shares.fair_by != FAIRQ_BY_TASKS)
		return UNKNOWN;
	fairq_lane_view(lane, &view);
	if (!view.begun || view.lane.recovery.known < FAIRQ_ALL_SEATS ||
		!fairq_lane_wait_of(lane, task->group_no, &own))
		return UNKNOWN;
	n = own_ahead(&count, &own, weight);
	if (n == UNKNOWN)
		return UNKNOWN;
	/* the group's next turn is in the present block, or in the next one */
	blocks = n / weight + 1 +
		fairq_block(own.next_turn, queue->block_length) -
		view.lane.present.block;
	if (pg_mul_s64_overflow(blocks, others_per_block(queue, lane, &view, &own),
							&others) ||
		pg_add_s64_overflow(n, others, &others))
		return PG_INT64_MAX;
	return others;
}

/* fairq.turns_before(id) */
Datum
fairq_turns_before(PG_FUNCTION_ARGS)
{
	FairqTable *tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	int64		ahead = UNKNOWN;
	FairqQueue *queue;
	FairqTask	task;
	bool		changing;

	if (!PG_ARGISNULL(0) &&
		fairq_task_find_nowait(tasks, PG_GETARG_INT64(0), &task, &changing) &&
		!task.running && !fairq_is_timed(task.addr) &&
		!fairq_is_expired(&task, GetCurrentTimestamp()) &&
	/*
	 * the result reveals the backlog of the group, possibly another tenant's
	 */
		(queue = fairq_queue_use_id(task.queue_id, FAIRQ_PRIV_MONITOR,
									true)) != NULL)
		ahead = tasks_ahead(queue, tasks, &task);
	fairq_table_close(tasks);
	if (ahead == UNKNOWN)
		PG_RETURN_NULL();
	PG_RETURN_INT64(ahead);
}
