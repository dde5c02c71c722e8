/*
 * enqueue.c
 *		fairq.enqueue, fairq.enqueue_or_find, fairq.find.
 *
 * A task gets an id (ids.c) and is added, unless another one has its key
 * (add.c).
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on the tables, to
 * the end of the transaction.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "add.h"
#include "args.h"
#include "dedup.h"
#include "errors.h"
#include "ids.h"

PG_FUNCTION_INFO_V1(fairq_enqueue);
PG_FUNCTION_INFO_V1(fairq_enqueue_or_find);
PG_FUNCTION_INFO_V1(fairq_find);

static Datum
empty_payload(void)
{
	return DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
}

/* Arguments of enqueue() and enqueue_or_find(), in their order. */
enum
{
	ARG_QUEUE,
	ARG_GROUP_KEY,
	ARG_PAYLOAD,
	ARG_PRIORITY,
	ARG_RUN_AT,
	ARG_DEDUP_KEY,
	ARG_MAX_ATTEMPTS,
	ARG_COST,
	ARG_HEADERS,
	ARG_EXPIRES_AT,
	ARG_REPLACE,
	ARG_DEDUP_UNTIL,
	ARG_DEDUP_FOR,
	ARG_DELAY
};

/* Is the key to be given up once its task is claimed? */
static bool
arg_until_started(FunctionCallInfo fcinfo)
{
	const char *until = PG_ARGISNULL(ARG_DEDUP_UNTIL) ? "finished" :
		text_to_cstring(PG_GETARG_TEXT_PP(ARG_DEDUP_UNTIL));

	if (strcmp(until, "finished") == 0)
		return false;
	if (strcmp(until, "started") != 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("dedup_until must be finished or started"),
				errdetail("The value is \"%s\".", until));
	return true;
}

/* Read what is said of the key.  Without one it has no meaning. */
static void
read_dedup(FunctionCallInfo fcinfo, FairqNewTask *new)
{
	bool		until_started = arg_until_started(fcinfo);
	Interval   *held_for = PG_ARGISNULL(ARG_DEDUP_FOR) ? NULL :
		PG_GETARG_INTERVAL_P(ARG_DEDUP_FOR);

	if (held_for != NULL && fairq_check_delay("dedup_for", held_for) == 0)
		held_for = NULL;
	if (PG_ARGISNULL(ARG_DEDUP_KEY))
		return;
	new->dedup.key =
		PointerGetDatum(fairq_check_key(PG_GETARG_TEXT_PP(ARG_DEDUP_KEY)));
	new->dedup.until_started = until_started;
	new->dedup.held_for = PointerGetDatum(held_for);
}

/* Read what is said of the task. */
static void
read_task(FunctionCallInfo fcinfo, FairqNewTask *new)
{
	new->group_key = fairq_arg_text(fcinfo, ARG_GROUP_KEY, "group_key");
	new->payload = PG_ARGISNULL(ARG_PAYLOAD) ? empty_payload() :
		PointerGetDatum(PG_GETARG_JSONB_P(ARG_PAYLOAD));
	new->priority = FAIRQ_ARG_INT(ARG_PRIORITY, "priority", 0, 0,
								  FAIRQ_PRIORITIES - 1);
	read_dedup(fcinfo, new);
	new->max_attempts = FAIRQ_ARG_INT(ARG_MAX_ATTEMPTS, "max_attempts", 0,
									  PG_ARGISNULL(ARG_MAX_ATTEMPTS) ? 0 : 1,
									  PG_INT32_MAX);
	if (!PG_ARGISNULL(ARG_COST))
		new->cost = fairq_check_cost(PG_GETARG_FLOAT4(ARG_COST));
	if (!PG_ARGISNULL(ARG_HEADERS))
		new->headers = PointerGetDatum(PG_GETARG_JSONB_P(ARG_HEADERS));
	new->run_at = fairq_arg_run_at(fcinfo, ARG_RUN_AT, ARG_DELAY);
	new->expires_at = FAIRQ_ARG_EXPIRES_AT(ARG_EXPIRES_AT);
}

/* Add a task, unless another has its key.  Returns whose id is the result's. */
static int64
enqueue(FunctionCallInfo fcinfo, const char *function, bool *added)
{
	text	   *queue_name = fairq_arg_text(fcinfo, ARG_QUEUE, "queue");
	bool		timed = !PG_ARGISNULL(ARG_RUN_AT) || !PG_ARGISNULL(ARG_DELAY);
	bool		replace = FAIRQ_ARG_BOOL(ARG_REPLACE);
	FairqNewTask new = {.put_back_at = DT_NOBEGIN};
	FairqEnqueue e;
	int64		owner;

	read_task(fcinfo, &new);
	fairq_writes(function);
	fairq_add_begin(&e, queue_name);
	new.enqueued_at = GetCurrentTimestamp();
	new.run_at = fairq_time_ahead(new.run_at, new.enqueued_at);
	fairq_new_ids(&new.id, 1);
	owner = fairq_add_unique(&e, &new, replace, timed);
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
	FairqRow	row = {0};
	bool		added;

	fairq_put_int8(&row, enqueue(fcinfo, "fairq.enqueue_or_find()", &added),
				   false);
	fairq_put(&row, BoolGetDatum(added), false);
	PG_RETURN_DATUM(fairq_row_result(fcinfo, &row));
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
