/*
 * enqueue.c
 *		fairq.enqueue, fairq.enqueue_or_find, fairq.find.
 *
 * A task gets an id (ids.c) and is added (add.c), unless another one has its key
 * (unique.c).
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on the tables, to
 * the end of the transaction.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "add.h"
#include "args.h"
#include "dedup.h"
#include "ids.h"
#include "unique.h"

PG_FUNCTION_INFO_V1(fairq_enqueue);
PG_FUNCTION_INFO_V1(fairq_enqueue_or_find);
PG_FUNCTION_INFO_V1(fairq_find);

static Datum
empty_payload(void)
{
	return DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
}

/* Add a task, unless another has its key.  Returns whose id is the result's. */
static int64
enqueue(FunctionCallInfo fcinfo, const char *function, bool *added)
{
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	FairqEnqueue e;
	FairqNewTask new = {.put_back_at = DT_NOBEGIN};
	bool		replace = PG_ARGISNULL(9) ? false : PG_GETARG_BOOL(9);
	int64		owner;

	new.group_key = fairq_arg_text(fcinfo, 1, "group_key");
	new.payload = PG_ARGISNULL(2) ? empty_payload() :
		PointerGetDatum(PG_GETARG_JSONB_P(2));
	new.priority = FAIRQ_ARG_INT(3, "priority", 0, 0, FAIRQ_PRIORITIES - 1);
	if (!PG_ARGISNULL(5))
		new.dedup_key = PointerGetDatum(fairq_check_key(PG_GETARG_TEXT_PP(5)));
	new.max_attempts = FAIRQ_ARG_INT(6, "max_attempts", 0,
									 PG_ARGISNULL(6) ? 0 : 1, PG_INT32_MAX);
	if (!PG_ARGISNULL(7))
		new.cost = fairq_check_cost(PG_GETARG_FLOAT4(7));
	if (!PG_ARGISNULL(8))
		new.headers = PointerGetDatum(PG_GETARG_JSONB_P(8));
	fairq_writes(function);
	fairq_add_begin(&e, queue_name);
	new.enqueued_at = GetCurrentTimestamp();
	new.run_at = PG_ARGISNULL(4) ? DT_NOBEGIN :
		fairq_time_ahead(PG_GETARG_TIMESTAMPTZ(4), new.enqueued_at);
	new.id = fairq_new_id();
	owner = fairq_add_unique(&e, &new, replace, !PG_ARGISNULL(4));
	*added = owner == new.id;
	fairq_add_end(&e, *added || replace);
	return owner;
}

Datum
fairq_enqueue(PG_FUNCTION_ARGS)
{
	bool		added;

	PG_RETURN_INT64(enqueue(fcinfo, "fairq.enqueue()", &added));
}

Datum
fairq_enqueue_or_find(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	bool		added;
	Datum		values[2];
	bool		nulls[2] = {false, false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = Int64GetDatum(enqueue(fcinfo, "fairq.enqueue_or_find()",
									  &added));
	values[1] = BoolGetDatum(added);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

/* fairq.find(queue, dedup_key) */
Datum
fairq_find(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *key = fairq_check_key(fairq_arg_text(fcinfo, 1, "dedup_key"));
	FairqQueue *queue = fairq_queue_use(name,
										FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK,
										AccessShareLock);
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task,
										 AccessShareLock);
	FairqTable *keys = fairq_table_open(fairq_catalog()->dedup,
										AccessShareLock);
	int64		id = fairq_dedup_find(queue, tasks, keys, PointerGetDatum(key));

	fairq_table_close(keys);
	fairq_table_close(tasks);
	if (id == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}
