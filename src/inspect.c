/*
 * inspect.c
 *		Looking in: addresses, blocks, counters, and whether hints are sound.
 *
 * Locking: AccessShareLock on the queue, where one is given, and on the
 * tables.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "compat.h"
#include "errors.h"
#include "group.h"
#include "store.h"

PG_FUNCTION_INFO_V1(fairq_sql_address);
PG_FUNCTION_INFO_V1(fairq_block_of);
PG_FUNCTION_INFO_V1(fairq_counters);
PG_FUNCTION_INFO_V1(fairq_check_hints);

/* how long the end of a transaction may take to reach the hints */
#define SETTLE_MS 50
#define SETTLE_TRIES 40

static int64
arg_bigint(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("%s must not be NULL", name));
	return fairq_arg_int(fcinfo, n, name, PG_GETARG_INT64(n), 0, PG_INT64_MAX);
}

Datum
fairq_sql_address(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = fairq_arg_text(fcinfo, 1, "group_key");
	int64		block = arg_bigint(fcinfo, 2, "block");
	FairqQueue *queue = fairq_queue_use(name, AccessShareLock);
	int32		group_no = fairq_group_no(queue, group_key, false);
	int64		addr;

	if (group_no < 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_NO_GROUP),
				errmsg("group \"%s\" of queue \"%s\" does not exist",
					   text_to_cstring(group_key), queue->name));
	addr = fairq_address(group_no, block, queue->block_length);
	if (addr == FAIRQ_ADDR_NONE)
		(void) fairq_arg_int(fcinfo, 2, "block", block, 0,
							 (FAIRQ_ADDR_MAX - 1 - group_no) / queue->block_length);
	PG_RETURN_INT64(addr);
}

Datum
fairq_block_of(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	int64		addr = arg_bigint(fcinfo, 1, "addr");
	FairqQueue *queue = fairq_queue_use(name, AccessShareLock);

	PG_RETURN_INT64(fairq_block(addr, queue->block_length));
}

/* fairq.counters(queue_id): one row, since the server started */
Datum
fairq_counters(PG_FUNCTION_ARGS)
{
	FairqQueue *queue = fairq_queue_use_id(PG_GETARG_INT32(0), NoLock);
	TupleDesc	desc;
	Datum		values[FAIRQ_COUNTERS];
	bool		nulls[FAIRQ_COUNTERS] = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (queue == NULL)
		PG_RETURN_NULL();
	for (int i = 0; i < FAIRQ_COUNTERS; i++)
	{
		uint64		sum = 0;

		for (int p = 0; p < FAIRQ_PRIORITIES; p++)
			sum += pg_atomic_read_u64(&fairq_queue_lane(queue, p)->counters[i]);
		values[i] = Int64GetDatum((int64) sum);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

/* Would a pop pass over this task, which is ready? */
static bool
is_hidden(FairqLane *lane, const FairqTask *task)
{
	FairqNote	note;

	return fairq_lane_note(lane, &note) && task->addr < note.mark &&
		!fairq_lane_is_irregular(lane, task->group_no);
}

/* Is it still ready, and still hidden? */
static bool
still_hidden(FairqTable *tasks, FairqLane *lane, const FairqTask *task)
{
	FairqKey	key = {1, FAIRQ_EQ, Int64GetDatum(task->id)};
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_ID, &key, 1,
										false);
	bool		same = false;

	if (fairq_scan_next(scan) == FAIRQ_ROW_LIVE)
	{
		FairqTask	now;

		fairq_task_read(fairq_scan_slot(scan), &now);
		same = !now.running && now.addr == task->addr;
	}
	fairq_scan_end(scan);
	return same && is_hidden(lane, task);
}

/* The tasks of a lane that are ready and hidden. */
static List *
hidden_tasks(FairqQueue *queue, int priority, FairqTable *tasks)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(queue->id)},
		{2, FAIRQ_EQ, Int16GetDatum(priority)}
	};
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_LANE, keys,
										lengthof(keys), false);
	FairqRowState state;
	List	   *hidden = NIL;

	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(fairq_scan_slot(scan), &task);
		if (!task.running && is_hidden(lane, &task))
		{
			FairqTask  *copy = palloc(sizeof(FairqTask));

			*copy = task;
			hidden = lappend(hidden, copy);
		}
	}
	fairq_scan_end(scan);
	return hidden;
}

/*
 * fairq.check_hints(queue): a line for each task that no pop would find.  A
 * transaction that has just ended may not have said so yet: give it time.
 */
Datum
fairq_check_hints(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	FairqQueue *queue;
	FairqTable *tasks;
	List	   *hidden = NIL;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	queue = fairq_queue_use(name, AccessShareLock);
	tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		if (fairq_lane_known(fairq_queue_lane(queue, priority)))
			hidden = list_concat(hidden, hidden_tasks(queue, priority, tasks));

	for (int i = 0; i < SETTLE_TRIES && hidden != NIL; i++)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(SETTLE_MS * 1000);
		foreach(lc, hidden)
		{
			FairqTask  *task = lfirst(lc);

			if (!still_hidden(tasks, fairq_queue_lane(queue, task->priority),
							  task))
				hidden = foreach_delete_current(hidden, lc);
		}
	}

	foreach(lc, hidden)
	{
		FairqTask  *task = lfirst(lc);
		char	   *line = psprintf("task " INT64_FORMAT " is ready at address "
									INT64_FORMAT ", and hidden below the mark of priority %d",
									task->id, task->addr, task->priority);
		Datum		value = CStringGetTextDatum(line);
		bool		isnull = false;

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value,
							 &isnull);
	}
	fairq_table_close(tasks);
	return (Datum) 0;
}
