/*
 * inspect.c
 *		Functions that show addresses, blocks, counters and reasons, and
 *		functions behind the views of queues, groups and statistics.
 *
 * A view is planned in its caller's statement, with the caller's settings.
 * Queries that read and count tasks must take linear time, even if the
 * planner's statistics are wrong (store_spi.c).  So each of these queries runs
 * as a separate statement.  It finds the queues that the caller's statement
 * sees, and on which the caller has a privilege.
 *
 * fairq.stats has a row for each of these queues, at little cost.  It reads
 * shared memory and settings, and the tasks that have waited longest
 * (waiting.c).  Columns that depend on groups are NULL for a caller that may
 * not monitor the queue.  Otherwise such a caller could guess a group's name
 * and enqueue a task to learn whether the group exists.
 *
 * Locking: AccessShareLock on the queue, if the function has one, and on the
 * tables.  Numbers in shared memory may change while they are read.  The tally
 * is read under its lock, shared (tally.c).  The locks of waiting.c.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "entry.h"
#include "group.h"
#include "histogram.h"
#include "load.h"
#include "queue.h"
#include "registry.h"
#include "store.h"
#include "store_spi.h"
#include "survey.h"
#include "waiting.h"

PG_FUNCTION_INFO_V1(fairq_sql_address);
PG_FUNCTION_INFO_V1(fairq_block_of);
PG_FUNCTION_INFO_V1(fairq_counters);
PG_FUNCTION_INFO_V1(fairq_sql_next_at);
PG_FUNCTION_INFO_V1(fairq_kept_back);
PG_FUNCTION_INFO_V1(fairq_shared_memory);
PG_FUNCTION_INFO_V1(fairq_wait_reason);
PG_FUNCTION_INFO_V1(fairq_visible_groups);
PG_FUNCTION_INFO_V1(fairq_visible_queues);
PG_FUNCTION_INFO_V1(fairq_visible_names);
PG_FUNCTION_INFO_V1(fairq_queue_stats);

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

/* counters(queue_id): one row, counted since the server started */
Datum
fairq_counters(PG_FUNCTION_ARGS)
{
	FairqQueue *queue = fairq_queue_by_id(PG_GETARG_INT32(0));
	FairqRow	row = {0};

	if (queue == NULL || !fairq_may(queue, FAIRQ_PRIV_ANY))
		PG_RETURN_NULL();
	for (int i = 0; i < FAIRQ_STATS; i++)
		fairq_put_int8(&row, fairq_hints_stat(queue->hints, i), false);
	PG_RETURN_DATUM(fairq_row_result(fcinfo, &row));
}

/* next_at(queue_id, group_no): NULL: now, or the caller may not see it */
Datum
fairq_sql_next_at(PG_FUNCTION_ARGS)
{
	int32		group_no = PG_GETARG_INT32(1);
	FairqQueue *queue = fairq_queue_by_id(PG_GETARG_INT32(0));
	TimestampTz next;

	if (queue == NULL || group_no < 0 || !fairq_may(queue, FAIRQ_PRIV_MONITOR))
		PG_RETURN_NULL();
	next = fairq_next_at(queue, group_no, false);
	if (next == DT_NOBEGIN)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(next);
}

/*
 * kept_back(value): the value unchanged, toasted or not.  It exists only for
 * its volatility.
 */
Datum
fairq_kept_back(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}

/*
 * wait_reason(queue_id, group_no, run_at, expires_at): for the views of tasks.
 * NULL if the queue does not exist, the caller may not see its groups, or the
 * task is expired.  Also NULL on a standby if a limit, rate or hold applies.
 */
Datum
fairq_wait_reason(PG_FUNCTION_ARGS)
{
	FairqQueue *queue;
	FairqReason reason;
	int32		group_no;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	queue = fairq_queue_by_id(PG_GETARG_INT32(0));
	group_no = PG_GETARG_INT32(1);
	if (queue == NULL || group_no < 0 || !fairq_may(queue, FAIRQ_PRIV_MONITOR))
		PG_RETURN_NULL();
	if (!PG_ARGISNULL(3) && PG_GETARG_TIMESTAMPTZ(3) <= GetCurrentTimestamp())
		PG_RETURN_NULL();
	if (!PG_ARGISNULL(2) && PG_GETARG_TIMESTAMPTZ(2) > GetCurrentTimestamp())
		reason = FAIRQ_REASON_SCHEDULED;
	else
		reason = fairq_reason(queue, group_no);
	if (reason == FAIRQ_REASON_NONE)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(fairq_reason_name(reason)));
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
		FairqQueue *queue = fairq_queue_by_id(id);

		if (queue != NULL && fairq_may(queue, any_privilege))
			(void) accumArrayResult(ids, Int32GetDatum(id), false, INT4OID,
									CurrentMemoryContext);
	}
	return makeArrayResult(ids, CurrentMemoryContext);
}

/*
 * Return the result of a query about the queues that the caller may see.  $1
 * is the ids of these queues, $2 the ids of those that the caller may monitor.
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

/* visible_names(): ids and names of queues */
Datum
fairq_visible_names(PG_FUNCTION_ARGS)
{
	return visible(fcinfo, "SELECT queue_id, name FROM fairq.queue"
				   " WHERE queue_id IN (SELECT unnest($1))");
}

/* visible_groups() */
Datum
fairq_visible_groups(PG_FUNCTION_ARGS)
{
	return visible(fcinfo, "SELECT * FROM fairq_internal.all_groups"
				   " WHERE queue_id IN (SELECT unnest($2))");
}

/*
 * visible_queues(): the number of tasks with a free slot depends on their
 * groups.  So it is NULL for a caller that may not monitor the queue.
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
	FairqRegistryUse registry;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	fairq_registry_use(&registry);
	fairq_shmem_use(&use);
	fairq_put_int8(&row, use.size, false);
	fairq_put(&row, BoolGetDatum(use.reserved), false);
	fairq_put_int8(&row, (int64) fairq_cache.nsets * FAIRQ_SET_WAYS, false);
	fairq_put_int8(&row, fairq_entries_used(), false);
	fairq_put_int8(&row, use.area_size, false);
	fairq_put_int8(&row, use.allocated + registry.bytes, false);
	fairq_put_int8(&row, registry.nqueues, false);
	fairq_put_int8(&row, registry.ncounters, false);
	fairq_put_row((ReturnSetInfo *) fcinfo->resultinfo, &row);
	return (Datum) 0;
}

/* Begin a load of the numbers of tasks, if they are not known. */
static void
load(FairqQueue *queue)
{
	FairqTable *tasks;

	if (fairq_tally_is_known(&queue->hints->tally) || RecoveryInProgress())
		return;
	tasks = fairq_table_try_open(fairq_relid(FAIRQ_TASK));
	if (tasks == NULL)
		return;
	fairq_load_begin(queue, tasks);
	fairq_table_close(tasks);
}

/* Add the numbers of queued, scheduled and running tasks. */
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
 * which changes no task: the primary's counts are not in the log.
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
			int64		usecs = fairq_percentile(counts[s], percents[i]);

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

/* Add the counters of events since the server started. */
static void
put_counters(FairqRow *row, FairqQueue *queue)
{
	for (int i = 0; i < FAIRQ_STATS; i++)
		fairq_put_int8(row, fairq_hints_stat(queue->hints, i),
					   RecoveryInProgress());
}

/*
 * queue_stats(queue_id): one row; none if the caller may not see the queue, or
 * if it was dropped.
 */
Datum
fairq_queue_stats(PG_FUNCTION_ARGS)
{
	FairqQueue *queue = fairq_queue_by_id(PG_GETARG_INT32(0));
	FairqRow	row = {0};

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (queue == NULL || !fairq_may(queue, FAIRQ_PRIV_ANY))
		return (Datum) 0;
	fairq_put(&row, BoolGetDatum(queue->paused), false);
	fairq_put_int4(&row, queue->max_running,
				   queue->max_running == FAIRQ_NO_LIMIT);
	put_tallies(&row, queue);
	put_groups(&row, queue);
	put_times(&row, queue);
	put_counters(&row, queue);
	/* if the queue was dropped meanwhile, the data may be another queue's */
	if (fairq_shmem_find_queue(queue->id) == queue->hints)
		fairq_put_row((ReturnSetInfo *) fcinfo->resultinfo, &row);
	return (Datum) 0;
}
