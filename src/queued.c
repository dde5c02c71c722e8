/*
 * queued.c
 *		fairq.reschedule.
 *
 * What is done to the task is in change.c.
 *
 * Locking: RowExclusiveLock on fairq.task; see change.c.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "args.h"
#include "change.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_reschedule);

/* fairq.reschedule(id, run_at) */
Datum
fairq_reschedule(PG_FUNCTION_ARGS)
{
	TimestampTz run_at = PG_ARGISNULL(1) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(1);
	FairqTable *tasks;
	FairqTask	task;
	FairqQueue *queue = NULL;

	fairq_writes("fairq.reschedule()");
	tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	if (!PG_ARGISNULL(0))
		queue = fairq_find_waiting(tasks, PG_GETARG_INT64(0),
								   FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK, &task);
	if (queue == NULL)
	{
		fairq_table_leave(tasks);
		PG_RETURN_BOOL(false);
	}
	if (fairq_reschedule_task(queue, tasks, &task, run_at))
		fairq_notify(queue);
	fairq_table_close(tasks);
	fairq_written();
	PG_RETURN_BOOL(true);
}
