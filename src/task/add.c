/*
 * add.c
 *		Adding a task: its address, and its row.
 *
 * A task gets its address by reservation in shared memory (assign.c); then its
 * row is written.  Between the two nothing is locked, so no backend waits while
 * a large payload is toasted.
 *
 * Locking: the caller has the queue and fairq.task locked, to the end of the
 * transaction.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "add.h"
#include "assign.h"
#include "group.h"
#include "transaction.h"

/* Begin a call that adds tasks to that queue. */
void
fairq_add_begin(FairqEnqueue *e, text *queue_name)
{
	e->queue = fairq_queue_use(queue_name, FAIRQ_PRIV_ENQUEUE,
							   AccessShareLock);
	e->tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	e->ready = false;
}

/* End it; any: it has added some. */
void
fairq_add_end(FairqEnqueue *e, bool any)
{
	fairq_table_close(e->tasks);
	if (e->ready)
		fairq_notify(e->queue);
	if (any)
		fairq_written();
}

/* Put what is passed by reference; 0: NULL. */
static void
put_if_any(Datum *values, bool *nulls, AttrNumber attno, Datum value)
{
	fairq_set_column(values, nulls, attno, value, DatumGetPointer(value) == NULL);
}

/*
 * Give a task its address, whether it is ready or scheduled; make its row, which
 * is to be written soon (assign.c).
 */
void
fairq_make_task_row(FairqEnqueue *e, const FairqNewTask *new, Datum *values,
					bool *nulls)
{
	FairqLane  *lane = fairq_queue_lane(e->queue, new->priority);
	int32		group_no = fairq_group_no(e->queue, new->group_key, true);
	bool		scheduled = new->run_at != DT_NOBEGIN;
	FairqPending *pending;
	int64		addr = scheduled ?
		fairq_timed_addr(FAIRQ_REGION_SCHEDULED, new->run_at, new->id) :
		fairq_assign_address(e->queue, new->priority, group_no, e->tasks);

	fairq_set_column(values, nulls, TASK_ID, Int64GetDatum(new->id), false);
	fairq_set_column(values, nulls, TASK_ADDR, Int64GetDatum(addr), false);
	fairq_set_column(values, nulls, TASK_ENQUEUED_AT,
			   TimestampTzGetDatum(new->enqueued_at), false);
	fairq_set_column(values, nulls, TASK_QUEUE_ID, Int32GetDatum(e->queue->id),
			   false);
	fairq_set_column(values, nulls, TASK_GROUP_NO, Int32GetDatum(group_no), false);
	fairq_set_column(values, nulls, TASK_LANE,
			   Int32GetDatum(fairq_task_lane(e->queue->id, new->priority)),
			   false);
	fairq_set_column(values, nulls, TASK_PRIORITY, Int16GetDatum(new->priority),
			   false);
	fairq_set_column(values, nulls, TASK_CANCELLED, BoolGetDatum(false), false);
	fairq_set_column(values, nulls, TASK_ATTEMPT, Int32GetDatum(new->attempt),
			   false);
	fairq_set_column(values, nulls, TASK_LEASE_UNTIL, (Datum) 0, true);
	fairq_set_column(values, nulls, TASK_POPPED_AT,
			   TimestampTzGetDatum(new->popped_at), new->popped_at == 0);
	fairq_set_column(values, nulls, TASK_RUN_AT,
			   TimestampTzGetDatum(scheduled ? new->run_at : new->put_back_at),
			   !scheduled && new->put_back_at == DT_NOBEGIN);
	fairq_set_column(values, nulls, TASK_MAX_ATTEMPTS,
			   Int32GetDatum(new->max_attempts), new->max_attempts == 0);
	fairq_set_column(values, nulls, TASK_RELEASED, Int32GetDatum(new->attempt),
			   new->attempt == 0);
	fairq_set_column(values, nulls, TASK_LAPSES, (Datum) 0, true);
	fairq_set_column(values, nulls, TASK_COST, Float4GetDatum(new->cost),
			   new->cost == 0);
	fairq_set_column(values, nulls, TASK_PAYLOAD, new->payload, false);
	fairq_set_column(values, nulls, TASK_WORKER, (Datum) 0, true);
	put_if_any(values, nulls, TASK_DEDUP_KEY, new->dedup.key);
	put_if_any(values, nulls, TASK_ERROR, new->error);
	put_if_any(values, nulls, TASK_HEADERS, new->headers);
	fairq_set_column(values, nulls, TASK_PROGRESS, (Datum) 0, true);
	fairq_set_column(values, nulls, TASK_UNTIL_STARTED, BoolGetDatum(true),
			   !new->dedup.until_started);
	put_if_any(values, nulls, TASK_DEDUP_FOR, new->dedup.held_for);
	fairq_set_column(values, nulls, TASK_EXPIRES_AT,
			   TimestampTzGetDatum(new->expires_at),
			   new->expires_at == DT_NOEND);
	pending = fairq_pending(lane, group_no);
	pending->stats[FAIRQ_STAT_ENQUEUED]++;
	fairq_pending_tally(pending, fairq_tallied_at(addr), 1);
	if (scheduled)
		fairq_pending_scheduled(pending, addr);
	else
	{
		fairq_pending_ready_since(pending,
								  Max(new->enqueued_at, new->put_back_at));
		e->ready = true;
	}
}

/* Write a task that is ready, or scheduled. */
void
fairq_add_task(FairqEnqueue *e, const FairqNewTask *new)
{
	Datum		values[TASK_NATTS];
	bool		nulls[TASK_NATTS];

	fairq_make_task_row(e, new, values, nulls);
	fairq_pending_row_written(0, new->id,
							  fairq_table_insert(e->tasks, values, nulls,
												 TASK_NATTS));
	fairq_pending_written();
}
