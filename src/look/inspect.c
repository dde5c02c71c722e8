/*
 * inspect.c
 *		Looking in: addresses, blocks, counters, reasons, and what stands
 *		behind the views of queues and groups.
 *
 * A view is planned in its caller's statement, with the caller's settings.
 * What reads and counts tasks has to take linear time whatever the planner
 * believes (store_spi.c), so it is a query of its own.
 *
 * Locking: AccessShareLock on the queue, where one is given, and on the
 * tables.  Of shared memory numbers are read while they change.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "entry.h"
#include "group.h"
#include "registry.h"
#include "store.h"
#include "store_spi.h"
#include "survey.h"
#include "visible.h"

PG_FUNCTION_INFO_V1(fairq_sql_address);
PG_FUNCTION_INFO_V1(fairq_block_of);
PG_FUNCTION_INFO_V1(fairq_counters);
PG_FUNCTION_INFO_V1(fairq_sql_next_at);
PG_FUNCTION_INFO_V1(fairq_kept_back);
PG_FUNCTION_INFO_V1(fairq_shared_memory);
PG_FUNCTION_INFO_V1(fairq_wait_reason);
PG_FUNCTION_INFO_V1(fairq_visible_groups);
PG_FUNCTION_INFO_V1(fairq_visible_queues);

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
	/* whether there is such a group is for those who may see groups */
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

/* fairq.counters(queue_id): one row, since the server started */
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

/* fairq.next_at(queue_id, group_no): NULL: now, or not for the caller to see */
Datum
fairq_sql_next_at(PG_FUNCTION_ARGS)
{
	int32		group_no = PG_GETARG_INT32(1);
	FairqQueue *queue = fairq_queue_by_id(PG_GETARG_INT32(0));
	TimestampTz next;

	if (queue == NULL || group_no < 0 || !fairq_may(queue, FAIRQ_PRIV_MONITOR))
		PG_RETURN_NULL();
	next = fairq_next_at(queue, group_no);
	if (next == DT_NOBEGIN)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(next);
}

/*
 * fairq.kept_back(value): the value as it is, toasted or not.  The function is
 * declared volatile, and for that alone it is there.
 */
Datum
fairq_kept_back(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}

/*
 * fairq.wait_reason(queue_id, group_no, run_at, expires_at): for the views of tasks.
 * NULL for a caller that may not see the queue's groups, and of a task that is outdated.
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

/* Return what a query finds of the queues that the caller may see, and monitor. */
static Datum
visible(FunctionCallInfo fcinfo, const char *sql)
{
	FairqSqlArg args[] = {
		{INT4ARRAYOID, fairq_visible_ids(FAIRQ_PRIV_ANY), false},
		{INT4ARRAYOID, fairq_visible_ids(FAIRQ_PRIV_MONITOR), false}
	};

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	fairq_sql_view(sql, args, lengthof(args),
				   ((ReturnSetInfo *) fcinfo->resultinfo)->setResult);
	return (Datum) 0;
}

/* fairq.visible_groups() */
Datum
fairq_visible_groups(PG_FUNCTION_ARGS)
{
	return visible(fcinfo, "SELECT * FROM fairq.all_groups"
				   " WHERE queue_id IN (SELECT unnest($2))");
}

/*
 * fairq.visible_queues(): how many tasks have a free slot depends on their groups, so
 * it is NULL for a caller that may not monitor the queue.
 */
Datum
fairq_visible_queues(PG_FUNCTION_ARGS)
{
	return visible(fcinfo, "SELECT r.* FROM fairq.all_queues q"
				   " CROSS JOIN LATERAL jsonb_populate_record(q,"
				   " CASE WHEN queue_id = ANY ($2) THEN '{}'"
				   " ELSE '{\"ready\": null, \"waiting\": null}'::jsonb END) r"
				   " WHERE q.queue_id IN (SELECT unnest($1))");
}

/* fairq.shared_memory(): how large it is, and what all databases use of it. */
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
