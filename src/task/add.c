/*
 * add.c
 *		Adding a task: its key, its address, its row.
 *
 * A task gets its address by reservation in shared memory (assign.c); then its
 * row is written.  Between the two nothing is locked, so no backend waits
 * while a large payload is toasted.
 *
 * A task with a key is added unless another one has the key (dedup.c).  The
 * other one may be replaced, as long as it is not running: then the task that
 * was enqueued last is the one that runs.  An expired task will never run, so
 * it is finished, and its key is taken.
 *
 * Locking: the caller has the queue and fairq.task locked, to the end of the
 * transaction.  To replace or finish another task, its row is locked, as long.
 * A replacement waits for a transaction that is changing the row: that one has
 * an equal key, or works on that very task.  To finish an expired task waits
 * for none: a pop that began it in time may stay open for as long as its work
 * takes.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "add.h"
#include "assign.h"
#include "dedup.h"
#include "group.h"
#include "outcome.h"
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

/*
 * Give a task its address, whether it is ready or scheduled; make its row,
 * which is to be written soon (assign.c).
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
	fairq_set(values, nulls, TASK_ATTEMPT, Int32GetDatum(new->attempt));
	fairq_set_if_any(values, nulls, TASK_POPPED_AT,
					 TimestampTzGetDatum(new->popped_at));
	if (scheduled || new->put_back_at != DT_NOBEGIN)
		fairq_set(values, nulls, TASK_RUN_AT,
				  TimestampTzGetDatum(scheduled ? new->run_at :
									  new->put_back_at));
	fairq_set_if_any(values, nulls, TASK_MAX_ATTEMPTS,
					 Int32GetDatum(new->max_attempts));
	fairq_set_if_any(values, nulls, TASK_RELEASED, Int32GetDatum(new->attempt));
	fairq_set_if_any(values, nulls, TASK_COST, Float4GetDatum(new->cost));
	fairq_set(values, nulls, TASK_PAYLOAD, new->payload);
	fairq_set_if_any(values, nulls, TASK_DEDUP_KEY, new->dedup.key);
	fairq_set_if_any(values, nulls, TASK_ERROR, new->error);
	fairq_set_if_any(values, nulls, TASK_HEADERS, new->headers);
	fairq_set_if_any(values, nulls, TASK_UNTIL_STARTED,
					 BoolGetDatum(new->dedup.until_started));
	fairq_set_if_any(values, nulls, TASK_DEDUP_FOR, new->dedup.held_for);
	if (new->expires_at != DT_NOEND)
		fairq_set(values, nulls, TASK_EXPIRES_AT,
				  TimestampTzGetDatum(new->expires_at));
	pending = fairq_pending(lane, group_no);
	pending->stats[FAIRQ_STAT_ENQUEUED]++;
	fairq_pending_tally(pending, fairq_tallied_at(addr), 1);
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
	fairq_pending_written();
}

/*
 * Finish the task that has the key, if it is expired: no worker will ever
 * begin it.  Returns whether it was.
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
 * Take a key for a task, as fairq_dedup_take() does; from a task that is
 * expired, too, which is finished by that.
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

/*
 * Replace the task that has the key, unless it is running.  False: it has
 * finished, and the key is free, or held.
 */
static bool
replace_task(FairqEnqueue *e, int64 id, const FairqNewTask *new, bool timed)
{
	FairqContent content = {
		.payload = new->payload,
		.headers = new->headers,
		.expires_at = new->expires_at
	};
	FairqTask	task;

	if (!fairq_task_find(e->tasks, id, &task))
		return false;
	/* without a lock, for which its worker would have to wait */
	if (task.running)
		return true;
	if (!fairq_task_find_locked(e->tasks, id, &task))
		return false;
	/* or it has given up the key, which is held */
	if (task.running || !task.keyed)
		return true;
	e->ready |= fairq_replace_task(e->queue, e->tasks, &task, new->run_at, timed,
								   &content);
	return true;
}

/*
 * Add a task, unless another one has its key; with replace, that one is
 * replaced.  timed: a time was given for the task, even if it is past.
 * Returns the id of the task that exists then.
 */
int64
fairq_add_unique(FairqEnqueue *e, const FairqNewTask *new, bool replace,
				 bool timed)
{
	int64		gone = 0;		/* a task that had the key and was not there */

	for (;;)
	{
		int64		owner = DatumGetPointer(new->dedup.key) == NULL ? new->id :
			fairq_take_key(e, new->dedup.key, new->id, true);

		CHECK_FOR_INTERRUPTS();
		if (owner == new->id)
			fairq_add_task(e, new);
		/* one that is gone twice has its key held */
		if (owner == new->id || !replace || owner == gone ||
			replace_task(e, owner, new, timed))
			return owner;
		gone = owner;
	}
}
