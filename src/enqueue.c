/*
 * enqueue.c
 *		fairq.enqueue, fairq.enqueue_or_find, fairq.enqueue_batch, fairq.find.
 *
 * Each task gets an id (ids.c) and is added (add.c); the rows of a batch are
 * written a hundred at a time.
 *
 * A batch is all or nothing, as every statement is.  It takes what it needs
 * group by group, and waits nowhere: batches in opposite orders don't
 * deadlock.  Only equal dedup keys wait for each other (dedup.c); a batch
 * takes its keys in their order, before its first task.
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on the tables, to
 * the end of the transaction.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "add.h"
#include "args.h"
#include "assign.h"
#include "dedup.h"
#include "ids.h"
#include "text.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_enqueue);
PG_FUNCTION_INFO_V1(fairq_enqueue_or_find);
PG_FUNCTION_INFO_V1(fairq_enqueue_batch);
PG_FUNCTION_INFO_V1(fairq_find);

/* bytes of payloads and headers that are kept until their rows are written together */
#define MAX_KEPT (1024 * 1024)

static void
write_rows(FairqEnqueue *e, MemoryContext rows)
{
	fairq_assign_insert(e->tasks);
	MemoryContextReset(rows);
}

/* Begin a call, by the arguments that both functions have. */
static void
begin_enqueue(FunctionCallInfo fcinfo, FairqEnqueue *e, FairqNewTask *new,
			  text *queue_name)
{
	e->queue = fairq_queue_use(queue_name, FAIRQ_PRIV_ENQUEUE,
							   AccessShareLock);
	e->tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	new->enqueued_at = GetCurrentTimestamp();
	new->put_back_at = DT_NOBEGIN;
	e->run_at = PG_ARGISNULL(4) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(4);
	if (e->run_at <= new->enqueued_at)
		e->run_at = DT_NOBEGIN;
}

static void
end_enqueue(FairqEnqueue *e)
{
	fairq_table_close(e->tasks);
	if (e->run_at == DT_NOBEGIN)
		fairq_notify(e->queue);
	fairq_written();
}

static text *
check_key(text *key)
{
	return fairq_check_text("dedup_key", key, 1, FAIRQ_MAX_DEDUP_KEY);
}

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
	FairqNewTask new = {.attempt = 0};
	int64		owner;

	new.group_key = fairq_arg_text(fcinfo, 1, "group_key");
	new.payload = PG_ARGISNULL(2) ? empty_payload() :
		PointerGetDatum(PG_GETARG_JSONB_P(2));
	new.priority = FAIRQ_ARG_INT(3, "priority", 0, 0, FAIRQ_PRIORITIES - 1);
	if (!PG_ARGISNULL(5))
		new.dedup_key = PointerGetDatum(check_key(PG_GETARG_TEXT_PP(5)));
	new.max_attempts = FAIRQ_ARG_INT(6, "max_attempts", 0,
									 PG_ARGISNULL(6) ? 0 : 1, PG_INT32_MAX);
	if (!PG_ARGISNULL(7))
		new.cost = fairq_check_cost(PG_GETARG_FLOAT4(7));
	if (!PG_ARGISNULL(8))
		new.headers = PointerGetDatum(PG_GETARG_JSONB_P(8));
	fairq_writes(function);
	begin_enqueue(fcinfo, &e, &new, queue_name);
	new.id = owner = fairq_new_id();
	if (DatumGetPointer(new.dedup_key) != NULL)
		owner = fairq_dedup_take(e.queue, e.tasks, new.dedup_key, new.id,
								 true);
	*added = owner == new.id;
	if (*added)
	{
		fairq_add_task(&e, &new);
		end_enqueue(&e);
	}
	else
		fairq_table_close(e.tasks);
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
	text	   *key = check_key(fairq_arg_text(fcinfo, 1, "dedup_key"));
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
 * Take the keys of a batch.  A task whose key is another's has that one's id
 * afterwards, and is not to be added.
 */
static void
take_keys(FairqEnqueue *e, Datum *keys, const bool *nulls, int n, int64 *ids,
		  bool *add)
{
	KeyOfTask  *sorted = palloc(sizeof(KeyOfTask) * Max(n, 1));
	int			nkeys = 0;

	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			continue;
		sorted[nkeys].key = check_key(DatumGetTextPP(keys[i]));
		sorted[nkeys++].task = i;
	}
	sort_keys(sorted, nkeys);
	for (int i = 0; i < nkeys; i++)
	{
		int			task = sorted[i].task;
		int64		owner;

		CHECK_FOR_INTERRUPTS();
		/* whose the last key is, is only known here: no task is written yet */
		if (i > 0 && fairq_text_equal(sorted[i - 1].key, sorted[i].key))
			owner = ids[sorted[i - 1].task];
		else
			owner = fairq_dedup_take(e->queue, e->tasks,
									 PointerGetDatum(sorted[i].key), ids[task],
									 true);
		add[task] = owner == ids[task];
		ids[task] = owner;
	}
	pfree(sorted);
}

Datum
fairq_enqueue_batch(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	Datum	   *group_keys;
	Datum	   *payloads;
	Datum	   *keys = NULL;
	bool	   *key_nulls = NULL;
	Datum	   *costs = NULL;
	Datum	   *headers = NULL;
	bool	   *header_nulls = NULL;
	int			n = fairq_arg_array(fcinfo, 1, "group_keys", TEXTOID,
									&group_keys, NULL);
	int			npayloads = fairq_arg_array(fcinfo, 2, "payloads", JSONBOID,
											&payloads, NULL);
	int64	   *ids = palloc(sizeof(int64) * Max(n, 1));
	bool	   *add = palloc(sizeof(bool) * Max(n, 1));
	bool		any = false;
	int64		kept = 0;
	FairqEnqueue e;
	FairqNewTask new = {.attempt = 0};
	MemoryContext rows = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq tasks",
											   ALLOCSET_DEFAULT_SIZES);

	new.priority = FAIRQ_ARG_INT(3, "priority", 0, 0, FAIRQ_PRIORITIES - 1);
	fairq_check_lengths("group_keys", n, "payloads", npayloads);
	if (!PG_ARGISNULL(5))
		fairq_check_lengths("group_keys", n, "dedup_keys",
							fairq_arg_array(fcinfo, 5, "dedup_keys", TEXTOID,
											&keys, &key_nulls));
	if (!PG_ARGISNULL(6))
		fairq_check_lengths("group_keys", n, "costs",
							fairq_arg_array(fcinfo, 6, "costs", FLOAT4OID,
											&costs, NULL));
	if (!PG_ARGISNULL(7))
		fairq_check_lengths("group_keys", n, "headers",
							fairq_arg_array(fcinfo, 7, "headers", JSONBOID,
											&headers, &header_nulls));
	fairq_writes("fairq.enqueue_batch()");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	begin_enqueue(fcinfo, &e, &new, queue_name);
	fairq_new_ids(ids, n);
	memset(add, true, sizeof(bool) * n);
	if (keys != NULL)
		take_keys(&e, keys, key_nulls, n, ids, add);
	for (int i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(rows);
		Datum		id = Int64GetDatum(ids[i]);
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		if (add[i])
		{
			Datum		values[TASK_NATTS];
			bool		nulls[TASK_NATTS];

			new.id = ids[i];
			new.group_key = DatumGetTextPP(group_keys[i]);
			new.payload = payloads[i];
			new.dedup_key = keys == NULL || key_nulls[i] ? (Datum) 0 : keys[i];
			new.headers = headers == NULL || header_nulls[i] ? (Datum) 0 :
				headers[i];
			if (costs != NULL)
				new.cost = fairq_check_cost(DatumGetFloat4(costs[i]));
			fairq_make_task_row(&e, &new, values, nulls);
			kept += VARSIZE_ANY(DatumGetPointer(new.payload));
			if (DatumGetPointer(new.headers) != NULL)
				kept += VARSIZE_ANY(DatumGetPointer(new.headers));
			if (fairq_table_put_off(e.tasks, values, nulls, TASK_NATTS) ||
				kept >= MAX_KEPT)
			{
				write_rows(&e, rows);
				kept = 0;
			}
		}
		any |= add[i];
		MemoryContextSwitchTo(old);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &id, &isnull);
	}
	write_rows(&e, rows);
	if (any)
		end_enqueue(&e);
	else
		fairq_table_close(e.tasks);
	MemoryContextDelete(rows);
	return (Datum) 0;
}
