/*
 * outcome.c
 *		Outcomes: a task is finished, runs again, or is changed.
 *
 * A task that is finished leaves fairq.task, and its dedup_key is free in the
 * same transaction.  It goes to the archive if it has failed, or if its queue
 * has retain.  A task whose attempt has failed is retried: it gets the time at
 * which it is due, maybe now.  It is served before its group's queued tasks.
 * A task that was released is ready at once, at a fresh address behind its
 * group's others, or it is scheduled.
 *
 * A task that is not running can be changed: its time, and its content.  If it
 * is put off, it gets a time instead of a turn.  If it is ready again, it gets
 * a fresh address; a task that waits for a retry stays among the retried.  The
 * commit removes the row that pops know, and publishes the new one.  An abort
 * publishes the old one, since pops have passed over it meanwhile.
 *
 * The transaction that ends a lease gives up the task's slot at its commit.
 * If it is rolled back, it notes the old lease again (transaction.c).  A task
 * that this transaction has taken has no lease and no row any more (taken.c),
 * and its slot is free already.  If it has failed or is released, its row is
 * written again.
 *
 * Locking: the caller has locked the row.  It is in tasks->locked.slot, and
 * its fields are in *task.  The queue is locked, too.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "assign.h"
#include "dedup.h"
#include "group.h"
#include "outcome.h"
#include "running.h"
#include "taken.h"
#include "transaction.h"

/* The columns that a task keeps in the archive. */
static const struct
{
	AttrNumber	of_task;
	AttrNumber	of_archive;
}			kept[] = {
	{TASK_ID, ARCHIVE_ID},
	{TASK_ENQUEUED_AT, ARCHIVE_ENQUEUED_AT},
	{TASK_QUEUE_ID, ARCHIVE_QUEUE_ID},
	{TASK_PRIORITY, ARCHIVE_PRIORITY},
	{TASK_RUN_AT, ARCHIVE_RUN_AT},
	{TASK_MAX_ATTEMPTS, ARCHIVE_MAX_ATTEMPTS},
	{TASK_COST, ARCHIVE_COST},
	{TASK_PAYLOAD, ARCHIVE_PAYLOAD},
	{TASK_WORKER, ARCHIVE_WORKER},
	{TASK_DEDUP_KEY, ARCHIVE_DEDUP_KEY},
	{TASK_ERROR, ARCHIVE_ERROR},
	{TASK_HEADERS, ARCHIVE_HEADERS},
	{TASK_PROGRESS, ARCHIVE_PROGRESS},
	{TASK_UNTIL_STARTED, ARCHIVE_UNTIL_STARTED},
	{TASK_DEDUP_FOR, ARCHIVE_DEDUP_FOR},
	{TASK_EXPIRES_AT, ARCHIVE_EXPIRES_AT}
};

/*
 * Archive a finished task.  A NULL error means the error of the last attempt;
 * a completed task has none.
 */
static void
archive_task(FairqQueue *queue, FairqTable *tasks, const FairqTask *task,
			 FairqStatus status, const text *error, Datum result)
{
	FairqTable *archived = fairq_table_beside(tasks, &tasks->beside.archive,
											  fairq_catalog()->archive);
	Datum		values[ARCHIVE_NATTS];
	bool		nulls[ARCHIVE_NATTS];
	Datum		group_key = fairq_group_key(queue, task->group_no);

	if (DatumGetPointer(group_key) == NULL)
		group_key = PointerGetDatum(cstring_to_text(""));
	for (int i = 0; i < (int) lengthof(kept); i++)
	{
		AttrNumber	to = kept[i].of_archive;

		values[to - 1] = slot_getattr(tasks->locked.slot, kept[i].of_task,
									  &nulls[to - 1]);
	}
	nulls[ARCHIVE_WORKER - 1] |= !task->running;
	if (error != NULL || status == FAIRQ_STATUS_COMPLETED)
		fairq_set_if_any(values, nulls, ARCHIVE_ERROR, PointerGetDatum(error));
	fairq_set(values, nulls, ARCHIVE_FINISHED_AT,
			  TimestampTzGetDatum(GetCurrentTimestamp()));
	fairq_set(values, nulls, ARCHIVE_ATTEMPT, Int32GetDatum(task->attempt));
	fairq_set(values, nulls, ARCHIVE_STATUS, Int16GetDatum(status));
	fairq_set_if_any(values, nulls, ARCHIVE_POPPED_AT,
					 TimestampTzGetDatum(task->popped_at));
	fairq_set_if_any(values, nulls, ARCHIVE_LAPSES,
					 Int32GetDatum(task->lapses));
	fairq_set_if_any(values, nulls, ARCHIVE_RELEASED,
					 Int32GetDatum(task->released));
	fairq_set(values, nulls, ARCHIVE_GROUP_KEY, group_key);
	fairq_set_if_any(values, nulls, ARCHIVE_RESULT, result);
	fairq_table_insert(archived, values, nulls, ARCHIVE_NATTS);
}

/*
 * How many microseconds it has been running by that time.  One of a row by SQL
 * may have no beginning.
 */
int64
fairq_leased_for(const FairqTask *task, TimestampTz now)
{
	if (task->popped_at == 0 || TIMESTAMP_NOT_FINITE(task->popped_at) ||
		TIMESTAMP_NOT_FINITE(now))
		return 0;
	return Max(now - task->popped_at, 0);
}

/*
 * Note that the attempt of a running task has ended, if we commit.  The worker
 * reports how long it took, or it is the time since the claim.  If the lease
 * has expired, it is at most the time until then.
 */
void
fairq_attempt_ended(FairqQueue *queue, FairqPending *pending,
					const FairqTask *task)
{
	bool		lapsed = task->took == FAIRQ_TOOK_LEASE;

	/*
	 * the group may have been put aside in another priority until it would run
	 */
	if (queue->retries.in_order &&
		fairq_region(task->addr) == FAIRQ_REGION_RETRIED)
		pending->done |= FAIRQ_ENDS_RETRIED;
	fairq_pending_tally(pending, FAIRQ_TALLY_RUNNING, -1);
	fairq_work_ended(pending->lane, pending->group_no, &pending->work,
					 task->popped_at,
					 task->took >= 0 ? task->took :
					 fairq_leased_for(task, lapsed ? task->lease_until :
									  GetCurrentTimestamp()),
					 lapsed);
}

/*
 * Finish a task: it leaves fairq.task, and is archived if its queue says so.
 */
void
fairq_finish(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
			 FairqStatus status, const text *error, Datum result)
{
	static const int stat_of[] = {
		[FAIRQ_STATUS_DROPPED] = -1,
		[FAIRQ_STATUS_COMPLETED] = FAIRQ_STAT_COMPLETED,
		[FAIRQ_STATUS_FAILED] = FAIRQ_STAT_FAILED,
		[FAIRQ_STATUS_CANCELLED] = FAIRQ_STAT_CANCELLED,
		[FAIRQ_STATUS_EXPIRED] = FAIRQ_STAT_EXPIRED
	};
	FairqLane  *lane = fairq_queue_lane(queue, task->priority);
	FairqPending *pending;

	if (status == FAIRQ_STATUS_FAILED ||
		(status != FAIRQ_STATUS_DROPPED && queue->retains))
		archive_task(queue, tasks, task, status, error, result);
	if (task->keyed && !task->taken)
		fairq_dedup_free(tasks, task, task->attempt > 0 &&
						 status != FAIRQ_STATUS_DROPPED &&
						 status != FAIRQ_STATUS_EXPIRED);

	pending = fairq_pending(lane, task->group_no);
	if (stat_of[status] >= 0)
		pending->stats[stat_of[status]]++;
	if (task->taken)
	{
		fairq_taken_ended(task);
		return;
	}
	if (task->running)
	{
		fairq_attempt_ended(queue, pending, task);
		fairq_pending_leased_at_abort(pending, task->addr, task->lease_until);
	}
	else
	{
		fairq_pending_tally(pending, fairq_tallied_at(task->addr), -1);
		fairq_pending_ready_at_abort(pending, task, NULL);
		/* the group may have been put aside because of it */
		if (queue->retries.in_order)
			fairq_pending_settings(queue->hints, task->group_no);
	}
	if (fairq_task_delete(tasks, task, true) != FAIRQ_CLAIMED)
		elog(ERROR, "could not delete a locked task");
	if (task->running)
		fairq_slot_is_left(queue, task->group_no);
}

/*
 * Returns the address of an existing task that is ready at *ready_at, or at
 * once if that is DT_NOBEGIN: then *ready_at is set to now.  A retried task
 * comes before its group's queued tasks; any other comes behind them, or is
 * scheduled.
 *
 * A task that is served alone gets a time in any case.  A call may stop before
 * it, and then gives back the turns behind it.  Calls take turns of several
 * blocks at once only if tasks come out of hands.  If a group is searched for
 * due tasks, they take turns of one block.  So none of these turns is of a
 * block that has ended.
 */
static int64
address_again(FairqQueue *queue, FairqTable *tasks, const FairqTask *task,
			  bool retried, TimestampTz *ready_at)
{
	bool		now = *ready_at == DT_NOBEGIN;
	bool		timed = retried || task->lapses >= FAIRQ_LAPSES_ALONE;

	if (now)
	{
		*ready_at = GetCurrentTimestamp();
		/* so that it is due by the millisecond, too */
		if (timed)
			*ready_at -= *ready_at % 1000;
	}
	if (now && !timed)
		return fairq_assign_address(queue, task->priority, task->group_no,
									tasks);
	return fairq_timed_addr(retried ? FAIRQ_REGION_RETRIED :
							FAIRQ_REGION_SCHEDULED, *ready_at, task->id);
}

/*
 * Note that the task was written there, for the commit to publish it.
 * in_place: it is a new row at its old address, and calls may have passed over
 * it meanwhile.
 */
static void
publish_again(FairqPending *pending, FairqTask *task,
			  TimestampTz ready_at, bool in_place)
{
	fairq_pending_tally(pending, fairq_tallied_at(task->addr), 1);
	if (fairq_is_timed(task->addr))
	{
		fairq_pending_scheduled(pending, task->addr);
		return;
	}
	fairq_news_since(&pending->at_commit, ready_at);
	if (in_place)
		fairq_pending_stays(pending, task->addr);
	else
	{
		fairq_pending_row_written(0, task->id, &task->tid);
		fairq_pending_written();
	}
}

/*
 * Write a task anew that this transaction has taken.  A key that the task had
 * is taken again, unless the transaction has given that to another task since.
 */
static void
put_back(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
		 TimestampTz run_at, const text *error, bool retried)
{
	bool		keeps_key = !task->keyed || task->until_started ||
		fairq_dedup_take(queue, tasks,
						 fairq_column(tasks->locked.slot, TASK_DEDUP_KEY),
						 task->id, true) == task->id;
	int64		addr = address_again(queue, tasks, task, retried, &run_at);

	fairq_task_put_back(tasks, task, addr, run_at, error, retried, keeps_key);
	publish_again(fairq_pending(fairq_queue_lane(queue, task->priority),
									  task->group_no), task, run_at, false);
	fairq_taken_ended(task);
}

/*
 * Make a running task run again: at run_at, or at once if that is DT_NOBEGIN.
 * With retried, its attempt has failed with that error, if it is not NULL.  It
 * then comes before the group's other tasks, once it is due.  Otherwise it was
 * released, and goes behind them, or is scheduled.
 */
void
fairq_run_again(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
				TimestampTz run_at, const text *error, bool retried)
{
	FairqLane  *lane = fairq_queue_lane(queue, task->priority);
	FairqPending *pending;
	int64		addr;

	if (task->taken)
	{
		put_back(queue, tasks, task, run_at, error, retried);
		return;
	}
	addr = address_again(queue, tasks, task, retried, &run_at);
	pending = fairq_pending(lane, task->group_no);
	fairq_pending_leased_at_abort(pending, task->addr, task->lease_until);
	fairq_attempt_ended(queue, pending, task);
	fairq_task_return(tasks, task, addr, run_at, error, retried);
	publish_again(pending, task, run_at, false);
	fairq_slot_is_left(queue, task->group_no);
}

/*
 * Returns how many more attempts a task may have, in addition to those so far.
 */
int32
fairq_attempts_left(const FairqQueue *queue, const FairqTask *task)
{
	int32		most = task->max_attempts > 0 ? task->max_attempts :
		queue->retries.max_attempts;

	return Max(most - (task->attempt - task->released), 0);
}

/* Finish a locked task that is expired. */
void
fairq_finish_expired(FairqQueue *queue, FairqTable *tasks, FairqTask *task)
{
	elog(DEBUG1, "task " INT64_FORMAT " of queue \"%s\" is expired: it has not begun in time",
		 task->id, queue->name);
	fairq_finish(queue, tasks, task, FAIRQ_STATUS_EXPIRED, NULL, (Datum) 0);
}

/* End the expired lease of a task that no pop is to take over. */
void
fairq_end_lapsed(FairqQueue *queue, FairqTable *tasks, FairqTask *task)
{
	fairq_pending(fairq_queue_lane(queue, task->priority),
				  task->group_no)->stats[FAIRQ_STAT_LAPSED]++;
	elog(DEBUG1, "lease of task " INT64_FORMAT " of queue \"%s\" has expired: it is %s",
		 task->id, queue->name, task->cancelled ? "cancelled" :
		 fairq_attempts_left(queue, task) == 0 ? "failed" : "queued again");
	task->took = FAIRQ_TOOK_LEASE;
	task->lapses++;
	if (task->cancelled)
		fairq_finish(queue, tasks, task, FAIRQ_STATUS_CANCELLED, NULL,
					 (Datum) 0);
	else if (fairq_attempts_left(queue, task) == 0)
		fairq_finish(queue, tasks, task, FAIRQ_STATUS_FAILED,
					 cstring_to_text("lease expired"), (Datum) 0);
	else
		fairq_run_again(queue, tasks, task, DT_NOBEGIN, NULL, true);
}

/*
 * Change a locked task that is not running: its content, if that is not NULL,
 * and its time; DT_NOBEGIN: now.  With stays, it keeps its place.
 */
static void
change(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
	   TimestampTz run_at, bool stays, const FairqContent *content)
{
	FairqLane  *lane = fairq_queue_lane(queue, task->priority);
	FairqRegion region = fairq_region(task->addr);
	int64		addr = task->addr;
	FairqPending *pending;

	if (!stays)
		addr = address_again(queue, tasks, task,
								  region == FAIRQ_REGION_RETRIED, &run_at);
	pending = fairq_pending(lane, task->group_no);
	fairq_pending_tally(pending, fairq_tallied_at(task->addr), -1);
	fairq_pending_ready_at_abort(pending, task, NULL);
	fairq_task_change(tasks, task, addr, stays ? task->run_at : run_at, content);
	publish_again(pending, task,
						stays ? Max(task->enqueued_at, task->run_at) : run_at,
						stays);
	/* the group may have been put aside until the task would have been due */
	if (queue->retries.in_order && region == FAIRQ_REGION_RETRIED && !stays)
		fairq_pending_settings(queue->hints, task->group_no);
}

/*
 * Change the time of a locked task that is not running.  If the time is past,
 * the task is ready at once; if it was ready, it keeps its turn.  Returns
 * whether something became ready.
 */
bool
fairq_reschedule_task(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
					  TimestampTz run_at)
{
	if (run_at <= GetCurrentTimestamp())
		run_at = DT_NOBEGIN;
	if (run_at == DT_NOBEGIN && !fairq_is_timed(task->addr))
		return false;
	change(queue, tasks, task, run_at, false, NULL);
	return run_at == DT_NOBEGIN;
}

/*
 * Replace a locked task that is not running: with that content, at run_at, or
 * at once if that is DT_NOBEGIN.  If it is ready then, and was before, it
 * keeps its turn.  A task that waits for a retry runs no earlier, unless a
 * time is given (timed).  Returns whether something became ready.
 */
bool
fairq_replace_task(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
				   TimestampTz run_at, bool timed, const FairqContent *content)
{
	FairqRegion region = fairq_region(task->addr);
	bool		stays = run_at == DT_NOBEGIN &&
		(region == FAIRQ_REGION_QUEUED ||
		 (region == FAIRQ_REGION_RETRIED && !timed));

	change(queue, tasks, task, run_at, stays, content);
	return !fairq_is_timed(task->addr) || (run_at == DT_NOBEGIN && !stays);
}
