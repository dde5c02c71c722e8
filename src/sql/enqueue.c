/*
 * enqueue.c
 *		fairq.enqueue, fairq.enqueue_or_find, fairq.enqueue_batch, fairq.find.
 *
 * A task gets an id (ids.c) and is added, unless another one has its key
 * (add.c).
 *
 * Like every statement, a batch adds all of its tasks or none.  It writes its
 * rows a hundred at a time.  It holds one lane's lock at a time and waits for
 * no other transaction, so batches in opposite orders do not deadlock.
 * Only dedup keys make it wait: for an equal key (dedup.c), and for the row of
 * a task that it replaces (add.c).  A batch takes its keys in sorted order,
 * before its first task.
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on the tables, to
 * the end of the transaction.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "add.h"
#include "args.h"
#include "assign.h"
#include "dedup.h"
#include "errors.h"
#include "ids.h"

PG_FUNCTION_INFO_V1(fairq_enqueue);
PG_FUNCTION_INFO_V1(fairq_enqueue_or_find);
PG_FUNCTION_INFO_V1(fairq_find);
PG_FUNCTION_INFO_V1(fairq_enqueue_batch);

/* time from which a task may not begin; DT_NOEND: none */
#define EXPIRES_AT(n) \
	(PG_ARGISNULL(n) ? DT_NOEND : PG_GETARG_TIMESTAMPTZ(n))

/*
 * bytes of payloads and headers that are kept until their rows are written
 * together
 */
#define MAX_KEPT (1024 * 1024)

/* A dedup_key. */
static text *
check_key(text *key)
{
	return fairq_check_text("dedup_key", key, 1, FAIRQ_MAX_DEDUP_KEY);
}

/* Check a cost that a group is charged. */
static float
check_cost(float cost)
{
	/* this condition also refuses NaN */
	if (!(cost > 0 && cost <= FAIRQ_MAX_COST))
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("cost must be greater than 0 and at most %d", FAIRQ_MAX_COST),
				errdetail("The value is %g.", cost));
	return cost;
}

static void
refuse_both(const char *one, const char *other)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("%s and %s must not both be given", one, other));
}

/*
 * Returns the time at which a task becomes ready, from the arguments run_at
 * and delay; DT_NOBEGIN: at once.
 */
static TimestampTz
arg_run_at(FunctionCallInfo fcinfo, int run_at, int delay)
{
	if (!PG_ARGISNULL(run_at) && !PG_ARGISNULL(delay))
		refuse_both("run_at", "delay");
	if (!PG_ARGISNULL(delay))
		return GetCurrentTimestamp() +
			fairq_check_delay("delay", PG_GETARG_INTERVAL_P(delay));
	return PG_ARGISNULL(run_at) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(run_at);
}

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
	ARG_DELAY,
	ARG_BATCH,
	ARG_AFTER,
	ARG_AFTER_ANY
};

/* Whether the task gives up its key once it is claimed. */
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

/*
 * Read the arguments for the key.  Without a key the others have no meaning.
 */
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
		PointerGetDatum(check_key(PG_GETARG_TEXT_PP(ARG_DEDUP_KEY)));
	new->dedup.until_started = until_started;
	new->dedup.held_for = PointerGetDatum(held_for);
}

/* Read the arguments for the task. */
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
		new->cost = check_cost(PG_GETARG_FLOAT4(ARG_COST));
	if (!PG_ARGISNULL(ARG_HEADERS))
		new->headers = PointerGetDatum(PG_GETARG_JSONB_P(ARG_HEADERS));
	new->run_at = arg_run_at(fcinfo, ARG_RUN_AT, ARG_DELAY);
	new->expires_at = EXPIRES_AT(ARG_EXPIRES_AT);
}

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

/*
 * Read the predecessors of tasks, from the arguments after and after_any;
 * NULL: none.  "other" names an argument that excludes them; NULL: it has no
 * value.
 */
static const FairqAfter *
arg_after(FunctionCallInfo fcinfo, int n, const char *other, FairqAfter *after)
{
	Datum	   *ids;

	if (PG_ARGISNULL(n))
		return NULL;
	after->n = fairq_arg_array(fcinfo, n, "after", INT8OID, &ids, NULL);
	if (after->n > FAIRQ_MAX_AFTER)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("after must have at most %d elements", FAIRQ_MAX_AFTER),
				errdetail("The array has %d elements.", after->n),
				errhint("Use a batch."));
	if (after->n > 0 && other != NULL)
		refuse_both("after", other);
	after->ids = palloc(sizeof(int64) * Max(after->n, 1));
	for (int i = 0; i < after->n; i++)
		after->ids[i] = DatumGetInt64(ids[i]);
	qsort(after->ids, after->n, sizeof(int64), compare_ids);
	after->n = qunique(after->ids, after->n, sizeof(int64), compare_ids);
	after->any = FAIRQ_ARG_BOOL(n + 1);
	return after->n == 0 ? NULL : after;
}

/*
 * Add a task, unless another task has its key.  Returns the id of the new
 * task, or of the task that has the key.
 */
static int64
enqueue(FunctionCallInfo fcinfo, const char *function, bool *added)
{
	text	   *queue_name = fairq_arg_text(fcinfo, ARG_QUEUE, "queue");
	bool		timed = !PG_ARGISNULL(ARG_RUN_AT) || !PG_ARGISNULL(ARG_DELAY);
	bool		replace = FAIRQ_ARG_BOOL(ARG_REPLACE);
	FairqNewTask new = {.put_back_at = DT_NOBEGIN};
	FairqEnqueue e;
	FairqAfter	after;
	const FairqAfter *given;
	int64		owner;

	read_task(fcinfo, &new);
	given = arg_after(fcinfo, ARG_AFTER,
					  !PG_ARGISNULL(ARG_RUN_AT) ? "run_at" :
					  !PG_ARGISNULL(ARG_DELAY) ? "delay" :
					  replace ? "replace" : NULL, &after);
	fairq_writes(function);
	fairq_add_begin(&e, queue_name);
	e.after = given;
	if (!PG_ARGISNULL(ARG_BATCH))
		fairq_add_to_batch(&e, PG_GETARG_INT64(ARG_BATCH));
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
	text	   *key = check_key(fairq_arg_text(fcinfo, 1, "dedup_key"));
	FairqQueue *queue = fairq_queue_use(name,
										FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK,
										AccessShareLock);
	FairqTable *tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	FairqTable *keys = fairq_open(FAIRQ_DEDUP, AccessShareLock);
	int64		id = fairq_dedup_find(queue, tasks, keys, PointerGetDatum(key));

	fairq_table_close(keys);
	fairq_table_close(tasks);
	if (id == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}

typedef struct Batch
{
	int			n;				/* number of tasks */
	FairqOfEach group_keys;
	FairqOfEach payloads;
	FairqOfEach keys;
	FairqOfEach costs;
	FairqOfEach priorities;
	FairqOfEach run_ats;
	FairqOfEach headers;
	int64	   *ids;			/* ids of the tasks, or of those with their
								 * keys */
	bool	   *add;			/* true: the task is to be added */
	int64		kept;			/* bytes of payloads and headers of the
								 * postponed tasks */
} Batch;

typedef struct KeyOfTask
{
	text	   *key;
	int			task;			/* of the batch */
} KeyOfTask;

static inline int
compare_keys(const KeyOfTask *x, const KeyOfTask *y)
{
	int			x_length = VARSIZE_ANY_EXHDR(x->key);
	int			y_length = VARSIZE_ANY_EXHDR(y->key);
	int			order = memcmp(VARDATA_ANY(x->key), VARDATA_ANY(y->key),
							   Min(x_length, y_length));

	if (order == 0)
		order = x_length - y_length;
	return order != 0 ? order : x->task - y->task;
}

#define ST_SORT sort_keys
#define ST_ELEMENT_TYPE KeyOfTask
#define ST_COMPARE(a, b) compare_keys(a, b)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/*
 * Take the keys of a batch.  A task whose key belongs to another task gets
 * that task's id, and is not added.
 */
static void
take_keys(FairqEnqueue *e, Batch *batch)
{
	KeyOfTask  *sorted;
	int64	   *ids = batch->ids;
	int			nkeys = 0;

	StaticAssertStmt(sizeof(KeyOfTask) * FAIRQ_MAX_ELEMENTS <= MaxAllocSize,
					 "a batch does not fit");
	sorted = palloc(sizeof(KeyOfTask) * Max(batch->n, 1));
	for (int i = 0; i < batch->n; i++)
	{
		if (fairq_is_null_of(&batch->keys, i))
			continue;
		sorted[nkeys].key = check_key(DatumGetTextPP(batch->keys.values[i]));
		sorted[nkeys++].task = i;
	}
	sort_keys(sorted, nkeys);
	for (int i = 0; i < nkeys; i++)
	{
		int			task = sorted[i].task;
		int64		owner;

		CHECK_FOR_INTERRUPTS();
		/* only this code knows the last key's task: no task is written yet */
		if (i > 0 && fairq_text_equal(sorted[i - 1].key, sorted[i].key))
			owner = ids[sorted[i - 1].task];
		else
			owner = fairq_take_key(e, PointerGetDatum(sorted[i].key), ids[task],
								   true);
		batch->add[task] = owner == ids[task];
		ids[task] = owner;
	}
	pfree(sorted);
}

static void
read_args(FunctionCallInfo fcinfo, Batch *batch)
{
	batch->n = fairq_arg_array(fcinfo, 1, "group_keys", TEXTOID,
							   &batch->group_keys.values, NULL);
	fairq_arg_needed(fcinfo, 2, "payloads");
	batch->payloads = fairq_arg_of_each(fcinfo, 2, "payloads", JSONBOID,
										"group_keys", batch->n, false);
	batch->keys = fairq_arg_of_each(fcinfo, 5, "dedup_keys", TEXTOID,
									"group_keys", batch->n, true);
	batch->costs = fairq_arg_of_each(fcinfo, 6, "costs", FLOAT4OID,
									 "group_keys", batch->n, false);
	batch->priorities = fairq_arg_of_each(fcinfo, 7, "priorities", INT4OID,
										  "group_keys", batch->n, false);
	batch->run_ats = fairq_arg_of_each(fcinfo, 8, "run_ats", TIMESTAMPTZOID,
									   "group_keys", batch->n, true);
	batch->headers = fairq_arg_of_each(fcinfo, 9, "headers", JSONBOID,
									   "group_keys", batch->n, true);
	/* 0 is the default of priority */
	if (batch->priorities.values != NULL && !PG_ARGISNULL(3) &&
		PG_GETARG_INT32(3) != 0)
		refuse_both("priority", "priorities");
	if (batch->run_ats.values != NULL && !PG_ARGISNULL(4))
		refuse_both("run_at", "run_ats");
	if (batch->run_ats.values != NULL && !PG_ARGISNULL(11))
		refuse_both("run_ats", "delay");
	batch->ids = palloc(sizeof(int64) * Max(batch->n, 1));
	batch->add = palloc(sizeof(bool) * Max(batch->n, 1));
}

static void
write_rows(FairqEnqueue *e, Batch *batch, MemoryContext rows)
{
	fairq_assign_insert(e->tasks);
	MemoryContextReset(rows);
	batch->kept = 0;
}

/*
 * Postpone the i-th task.  Returns whether it is time to write the postponed
 * tasks.
 */
static bool
put_off(FairqEnqueue *e, Batch *batch, int i, FairqNewTask *new)
{
	Datum		values[TASK_NATTS];
	bool		nulls[TASK_NATTS];

	new->id = batch->ids[i];
	new->group_key = DatumGetTextPP(batch->group_keys.values[i]);
	new->payload = batch->payloads.values[i];
	new->dedup.key = fairq_value_of(&batch->keys, i);
	new->headers = fairq_value_of(&batch->headers, i);
	if (batch->costs.values != NULL)
		new->cost = check_cost(DatumGetFloat4(batch->costs.values[i]));
	if (batch->priorities.values != NULL)
		new->priority = fairq_check_int("priorities",
										DatumGetInt32(batch->priorities.values[i]),
										0, FAIRQ_PRIORITIES - 1);
	if (batch->run_ats.values != NULL)
		new->run_at = fairq_is_null_of(&batch->run_ats, i) ? DT_NOBEGIN :
			fairq_time_ahead(DatumGetTimestampTz(batch->run_ats.values[i]),
							 new->enqueued_at);
	fairq_make_task_row(e, new, values, nulls);
	batch->kept += VARSIZE_ANY(DatumGetPointer(new->payload));
	if (DatumGetPointer(new->headers) != NULL)
		batch->kept += VARSIZE_ANY(DatumGetPointer(new->headers));
	return fairq_table_put_off(e->tasks, values, nulls, TASK_NATTS) ||
		batch->kept >= MAX_KEPT;
}

Datum
fairq_enqueue_batch(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	Batch		batch = {.n = 0};
	bool		any = false;
	FairqEnqueue e;
	FairqAfter	after;
	const FairqAfter *given;
	FairqNewTask new = {.put_back_at = DT_NOBEGIN};
	MemoryContext rows = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq tasks",
											   ALLOCSET_DEFAULT_SIZES);

	new.priority = FAIRQ_ARG_INT(3, "priority", 0, 0, FAIRQ_PRIORITIES - 1);
	new.run_at = arg_run_at(fcinfo, 4, 11);
	new.expires_at = EXPIRES_AT(10);
	read_args(fcinfo, &batch);
	given = arg_after(fcinfo, 13, !PG_ARGISNULL(4) ? "run_at" :
					  !PG_ARGISNULL(8) ? "run_ats" :
					  !PG_ARGISNULL(11) ? "delay" : NULL, &after);
	fairq_writes("fairq.enqueue_batch()");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	fairq_add_begin(&e, queue_name);
	e.after = given;
	if (!PG_ARGISNULL(12))
		fairq_add_to_batch(&e, PG_GETARG_INT64(12));
	new.enqueued_at = GetCurrentTimestamp();
	new.run_at = fairq_time_ahead(new.run_at, new.enqueued_at);
	fairq_new_ids(batch.ids, batch.n);
	memset(batch.add, true, sizeof(bool) * batch.n);
	if (batch.keys.values != NULL)
		take_keys(&e, &batch);
	for (int i = 0; i < batch.n; i++)
	{
		Datum		id = Int64GetDatum(batch.ids[i]);
		bool		isnull = false;
		MemoryContext old = MemoryContextSwitchTo(rows);

		CHECK_FOR_INTERRUPTS();
		if (batch.add[i] && put_off(&e, &batch, i, &new))
			write_rows(&e, &batch, rows);
		any |= batch.add[i];
		MemoryContextSwitchTo(old);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &id, &isnull);
	}
	write_rows(&e, &batch, rows);
	fairq_add_end(&e, any);
	MemoryContextDelete(rows);
	return (Datum) 0;
}
