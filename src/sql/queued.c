/*
 * queued.c
 *		fairq.reschedule, fairq.turns_before: of tasks that are not running.
 *
 * What is done to a task is in change.c, what comes before it in ahead.c.
 *
 * Locking: RowExclusiveLock on fairq.task, see change.c; to look, AccessShareLock
 * on it and on the queue.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "ahead.h"
#include "args.h"
#include "change.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_reschedule);
PG_FUNCTION_INFO_V1(fairq_turns_before);

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

/* fairq.turns_before(id) */
Datum
fairq_turns_before(PG_FUNCTION_ARGS)
{
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	int64		ahead = FAIRQ_AHEAD_UNKNOWN;
	FairqQueue *queue;
	FairqTask	task;
	bool		changing;

	if (!PG_ARGISNULL(0) &&
		fairq_task_find_nowait(tasks, PG_GETARG_INT64(0), &task, &changing) &&
		!task.running && !fairq_is_timed(task.addr) &&
		!fairq_is_outdated(&task, GetCurrentTimestamp()) &&
	/* of the group, which may be another tenant's, it tells how much it has */
		(queue = fairq_queue_use_id(task.queue_id, FAIRQ_PRIV_MONITOR)) != NULL)
		ahead = fairq_tasks_ahead(queue, tasks, &task);
	fairq_table_close(tasks);
	if (ahead == FAIRQ_AHEAD_UNKNOWN)
		PG_RETURN_NULL();
	PG_RETURN_INT64(ahead);
}
