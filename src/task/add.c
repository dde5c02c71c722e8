/*
 * add.c
 *		Adding a task: its key, its address, its row.
 *
 * An enqueue reserves the task's address in shared memory (line.c), and then
 * writes its row.  It holds no lock between these steps, so no backend waits
 * while a large payload is toasted.
 *
 * A task with a key is added unless another one has the key (dedup.c).  The
 * other task may be replaced while it is not running.  Then the last enqueue
 * determines what runs.  An expired task will never run, so it is finished and
 * its key is taken over.
 *
 * Locking: the caller has the queue and fairq.task locked, to the end of the
 * transaction.  A call that finishes another task locks that task's row for
 * the same time.  It does not finish an expired task whose row is being
 * changed.  A pop that began the task in time may stay open during its work.
 * So the call first checks whether the row is being changed.  Then it waits
 * only if the row is locked, or if another transaction changes the row after
 * the check.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "add.h"
#include "dedup.h"
#include "group.h"
#include "line.h"
#include "outcome.h"

/* End a call that adds tasks; any: the call has added some tasks. */
void
fairq_add_end(FairqEnqueue *e, bool any)
{
	if (e->added > 0)
		fairq_batch_count(e->tasks, e->batch, FAIRQ_BATCH_ADDED, e->added, 0);
	fairq_table_close(e->tasks);
	if (e->ready)
		fairq_notify(e->queue);
	if (any)
		fairq_written();
}

/*
 * Give a ready or scheduled task its address, and make its row, which the
 * caller writes soon (line.c).
 */
void
fairq_make_task_row(FairqEnqueue *e, const FairqNewTask *new, Datum *values,
					bool *nulls)
{
	FairqLane  *lane = fairq_queue_lane(e->queue, new->priority);
	int32		group_no = fairq_group_of_task(e->queue, new->group_key);
	TimestampTz run_at = e->after == NULL ? new->run_at :
		fairq_after_add(e->tasks, e->after, new->id, new->enqueued_at);
	bool		scheduled = run_at != DT_NOBEGIN;
	FairqPending *pending;
	int64		addr;

	/*
	 * make records before the row is written, because a pop could have no
	 * memory for them
	 */
	if (e->queue->shares.fair_by != FAIRQ_BY_TASKS)
		fairq_lane_have_records(lane, group_no,
								fairq_tenant_in_key(e->queue, new->group_key));
	addr = scheduled ?
		fairq_timed_addr(FAIRQ_REGION_SCHEDULED, run_at, new->id) :
		fairq_assign_address(e->queue, new->priority, group_no, e->tasks);

	memset(nulls, true, sizeof(bool) * TASK_NATTS);
	fairq_set(values, nulls, TASK_ID, Int64GetDatum(new->id));
	fairq_set(values, nulls, TASK_ADDR, Int64GetDatum(addr));
	fairq_set(values, nulls, TASK_ENQUEUED_AT,
			  TimestampTzGetDatum(new->enqueued_at));
	fairq_set(values, nulls, TASK_QUEUE_ID, Int32GetDatum(e->queue->id));
	fairq_set(values, nulls, TASK_GROUP_NO, Int32GetDatum(group_no));
	fairq_set(values, nulls, TASK_LANE,
			  Int32GetDatum(fairq_task_lane(e->queue->id, new->priority)));
	fairq_set(values, nulls, TASK_PRIORITY, Int16GetDatum(new->priority));
	fairq_set(values, nulls, TASK_CANCELLED, BoolGetDatum(false));
	fairq_set(values, nulls, TASK_ATTEMPT, Int32GetDatum(new->past.attempt));
	fairq_set_if_any(values, nulls, TASK_POPPED_AT,
					 TimestampTzGetDatum(new->past.popped_at));
	if (scheduled || new->put_back_at != DT_NOBEGIN)
		fairq_set(values, nulls, TASK_RUN_AT,
				  TimestampTzGetDatum(scheduled ? run_at : new->put_back_at));
	fairq_set_if_any(values, nulls, TASK_MAX_ATTEMPTS,
					 Int32GetDatum(new->max_attempts));
	fairq_set_if_any(values, nulls, TASK_RELEASED,
					 Int32GetDatum(new->past.attempt));
	fairq_set_if_any(values, nulls, TASK_COST, Float4GetDatum(new->cost));
	fairq_set(values, nulls, TASK_PAYLOAD, new->payload);
	fairq_set_if_any(values, nulls, TASK_DEDUP_KEY, new->dedup.key);
	fairq_set_if_any(values, nulls, TASK_ERROR, new->past.error);
	fairq_set_if_any(values, nulls, TASK_HEADERS, new->headers);
	fairq_set_if_any(values, nulls, TASK_PROGRESS, new->past.progress);
	fairq_set_if_any(values, nulls, TASK_ATTEMPT_LOG, new->past.log);
	fairq_set_if_any(values, nulls, TASK_UNTIL_STARTED,
					 BoolGetDatum(new->dedup.until_started));
	fairq_set_if_any(values, nulls, TASK_DEDUP_FOR, new->dedup.held_for);
	if (new->expires_at != DT_NOEND)
		fairq_set(values, nulls, TASK_EXPIRES_AT,
				  TimestampTzGetDatum(new->expires_at));
	fairq_set_if_any(values, nulls, TASK_BATCH,
					 Int64GetDatum(e->batch != 0 ? e->batch : new->batch));
	fairq_set_if_any(values, nulls, TASK_BLOCKED,
					 BoolGetDatum(new->blocked || e->after != NULL));
	e->added += e->batch != 0;
	pending = fairq_pending(lane, group_no);
	pending->stats[FAIRQ_STAT_ENQUEUED]++;
	pending->tally[fairq_tallied_at(addr)]++;
	if (scheduled)
		fairq_pending_scheduled(pending, addr);
	else
	{
		fairq_news_since(&pending->at_commit,
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
}

/*
 * Finish the task that has the key, if it is expired, since no worker will
 * ever begin it.  Returns false if it is not expired.  Otherwise the caller
 * tries again to take the key.
 */
static bool
finish_expired(FairqEnqueue *e, int64 id)
{
	FairqTask	task;

	if (!fairq_dedup_is_expired(e->tasks, id))
		return false;
	if (fairq_task_find_locked(e->tasks, id, &task) && task.keyed &&
		fairq_is_expired(&task, GetCurrentTimestamp()))
	{
		fairq_finish_expired(e->queue, e->tasks, &task);
		fairq_written();
	}
	return true;
}

/*
 * Take a key for a task, as fairq_dedup_take() does, but also from an expired
 * task, which this function finishes.
 */
int64
fairq_take_key(FairqEnqueue *e, Datum key, int64 id, bool wait)
{
	int64		owner;

	do
	{
		CHECK_FOR_INTERRUPTS();
		owner = fairq_dedup_take(e->queue, e->tasks, key, id, wait);
	} while (owner != id && owner != 0 && finish_expired(e, owner));
	return owner;
}
