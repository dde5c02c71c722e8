/*
 * enqueue.c
 *		fairq.enqueue, fairq.enqueue_batch.
 *
 * A task gets its id from a sequence and its address by reservation in shared
 * memory (place.c); then its row is written.  Between the two nothing is
 * locked, so nobody waits while a large payload is toasted.
 *
 * A batch is all or nothing, as every statement is.  It takes what it needs
 * group by group, and waits nowhere: batches in opposite orders don't
 * deadlock.
 *
 * Locking: AccessShareLock on the queue, RowExclusiveLock on the tables, to the
 * end of the transaction.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "group.h"
#include "place.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_enqueue);
PG_FUNCTION_INFO_V1(fairq_enqueue_batch);

static int64
add_task(FairqQueue *queue, FairqTable *tasks, text *group_key, Datum payload,
		 int priority, TimestampTz now)
{
	int32		group_no = fairq_group_no(queue, group_key, true);
	Datum		values[TASK_NATTS];
	bool		nulls[TASK_NATTS] = {0};
	int64		id = fairq_task_new_id();
	int64		addr = fairq_place(queue, priority, group_no, id, tasks);

	values[TASK_ID - 1] = Int64GetDatum(id);
	values[TASK_ADDR - 1] = Int64GetDatum(addr);
	values[TASK_ENQUEUED_AT - 1] = TimestampTzGetDatum(now);
	values[TASK_LEASE_UNTIL - 1] = (Datum) 0;
	nulls[TASK_LEASE_UNTIL - 1] = true;
	values[TASK_QUEUE_ID - 1] = Int32GetDatum(queue->id);
	values[TASK_GROUP_NO - 1] = Int32GetDatum(group_no);
	values[TASK_ATTEMPT - 1] = Int32GetDatum(0);
	values[TASK_PRIORITY - 1] = Int16GetDatum(priority);
	values[TASK_PAYLOAD - 1] = payload;
	values[TASK_WORKER - 1] = (Datum) 0;
	nulls[TASK_WORKER - 1] = true;
	fairq_table_insert(tasks, values, nulls);
	fairq_debt_written();
	fairq_debt(fairq_queue_lane(queue, priority),
			   group_no)->counts[FAIRQ_ENQUEUED]++;
	return id;
}

static Datum
empty_payload(void)
{
	return DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
}

Datum
fairq_enqueue(PG_FUNCTION_ARGS)
{
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = fairq_arg_text(fcinfo, 1, "group_key");
	Datum		payload = PG_ARGISNULL(2) ? empty_payload() :
		PointerGetDatum(PG_GETARG_JSONB_P(2));
	int			priority = FAIRQ_ARG_INT(3, "priority", 0, 0,
										 FAIRQ_PRIORITIES - 1);
	FairqQueue *queue;
	FairqTable *tasks;
	int64		id;

	fairq_writes("fairq.enqueue()");
	queue = fairq_queue_use(queue_name, AccessShareLock);
	tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	id = add_task(queue, tasks, group_key, payload, priority,
				  GetCurrentTimestamp());
	fairq_table_close(tasks);
	fairq_written();
	PG_RETURN_INT64(id);
}

Datum
fairq_enqueue_batch(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	Datum	   *group_keys;
	Datum	   *payloads;
	int			n = fairq_arg_array(fcinfo, 1, "group_keys", TEXTOID,
									&group_keys);
	int			npayloads = fairq_arg_array(fcinfo, 2, "payloads", JSONBOID,
											&payloads);
	int			priority = FAIRQ_ARG_INT(3, "priority", 0, 0,
										 FAIRQ_PRIORITIES - 1);
	TimestampTz now = GetCurrentTimestamp();
	FairqQueue *queue;
	FairqTable *tasks;
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq task",
											   ALLOCSET_DEFAULT_SIZES);

	fairq_check_lengths("group_keys", n, "payloads", npayloads);
	fairq_writes("fairq.enqueue_batch()");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	queue = fairq_queue_use(queue_name, AccessShareLock);
	tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	for (int i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(each);
		Datum		id;
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		id = Int64GetDatum(add_task(queue, tasks,
									DatumGetTextPP(group_keys[i]),
									payloads[i], priority, now));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &id, &isnull);
		MemoryContextSwitchTo(old);
		MemoryContextReset(each);
	}
	fairq_table_close(tasks);
	if (n > 0)
		fairq_written();
	MemoryContextDelete(each);
	return (Datum) 0;
}
