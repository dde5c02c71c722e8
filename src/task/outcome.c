/*
 * outcome.c
 *		Outcomes of attempts: a task is finished, runs again, or is changed.
 *
 * A task that is finished leaves fairq.task, and its dedup_key is free in the
 * same transaction.  It moves to the archive if it has failed, or if its queue
 * has retain.  A task whose attempt has failed is retried: it gets the time at
 * which it is due, possibly now.  It is served before its group's queued
 * tasks.  A released task is ready at once, at a fresh address after the
 * group's other tasks, or it is scheduled.
 *
 * A call can change the time and the content of a task that is not running.
 * A postponed task gets a time instead of a turn.  If it becomes ready again,
 * it gets a fresh address.  A task that waits for a retry stays among the
 * retried tasks.  The commit removes the row that pops can find, and publishes
 * the new one.  An abort publishes the old one, because pops may have passed
 * over it meanwhile.
 *
 * The transaction that ends a lease gives up the task's slot at its commit.
 * If that transaction is rolled back, its callbacks record the old lease again
 * (transaction.c).
 *
 * A blocked task waits for the end of its batch, or for other tasks
 * (blocked.c).  It is timed, and a pop that finds it due checks whether these
 * have ended.  The longer the task has waited, the later is the next check.
 * The end of what may be the last awaited task makes the blocked task due.  If
 * many tasks wait for one task, the end of that task visits the first
 * MAX_LOOKS of them.  A check that ends a wait visits the next waiting tasks,
 * up to the first one of its queue that is already due.
 *
 * Locking: the caller has fairq.task open with RowExclusiveLock.  It has
 * locked the queue with AccessShareLock, and then the row, both to the end of
 * the transaction.  The row is in tasks->locked.slot, and its fields are in
 * *task.  Only fairq_complete_unlocked() gets a row that is not locked.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "blocked.h"
#include "dedup.h"
#include "group.h"
#include "line.h"
#include "outcome.h"
#include "running.h"
#include "taken.h"

/* the most waiting tasks that one end or check visits */
#define MAX_LOOKS 100

#define KEPT(column) {TASK_##column, ARCHIVE_##column}

/* The columns that a task keeps in the archive. */
static const struct
{
	AttrNumber	of_task;
	AttrNumber	of_archive;
}			kept[] = {
	KEPT(ID), KEPT(ENQUEUED_AT), KEPT(QUEUE_ID), KEPT(PRIORITY), KEPT(RUN_AT),
	KEPT(MAX_ATTEMPTS), KEPT(COST), KEPT(PAYLOAD), KEPT(WORKER),
	KEPT(DEDUP_KEY), KEPT(ERROR), KEPT(HEADERS), KEPT(PROGRESS),
	KEPT(UNTIL_STARTED), KEPT(DEDUP_FOR), KEPT(EXPIRES_AT), KEPT(BATCH)
};

/*
 * Archive a finished task.  A NULL error means the error of the last attempt;
 * a completed task has none.  A blocked task had no attempt that could fail.
 */
static void
archive_task(FairqQueue *queue, FairqTable *tasks, const FairqTask *task,
			 FairqStatus status, const text *error, Datum result)
{
	FairqTable *archived = fairq_table_beside(tasks, FAIRQ_ARCHIVE);
	Datum		values[ARCHIVE_NATTS];
	bool		nulls[ARCHIVE_NATTS];
	Datum		group_key = fairq_group_key(queue, task->group_no);
	bool		failed = !task->blocked &&
		(status == FAIRQ_STATUS_FAILED || error != NULL ||
		 task->took == FAIRQ_TOOK_LEASE);

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
	fairq_set_if_any(values, nulls, ARCHIVE_ATTEMPT_LOG,
					 fairq_task_log(tasks, task, failed, error));
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
 * Record that the attempt of a running task has ended, if we commit, and that
 * its lease continues, if we abort.  The worker reports the attempt's length;
 * otherwise it is the time since the claim.  If the lease has expired, the
 * length is at most the time until the expiry.
 */
static void
attempt_ended(FairqQueue *queue, FairqPending *pending,
			  const FairqTask *task)
{
	bool		lapsed = task->took == FAIRQ_TOOK_LEASE;

	/*
	 * in another priority, the group may have been put aside to wait for this
	 * task
	 */
	if (queue->retries.in_order &&
		fairq_region(task->addr) == FAIRQ_REGION_RETRIED)
		pending->done |= FAIRQ_ENDS_RETRIED;
	fairq_pending_leased_at_abort(pending, task->addr, task->lease_until);
	pending->tally[FAIRQ_TALLY_RUNNING]--;
	fairq_work_ended(pending->lane, pending->group_no,
					 queue->shares.fair_by != FAIRQ_BY_TIME ? FAIRQ_NO_SEAT :
					 fairq_tenant_no(queue, pending->group_no),
					 &pending->work, task->popped_at,
					 task->took >= 0 ? task->took :
					 fairq_leased_for(task, lapsed ? task->lease_until :
									  GetCurrentTimestamp()),
					 lapsed);
}

/*
 * Returns the address of an existing task that is ready at *ready_at, or at
 * once if that is DT_NOBEGIN; *ready_at is then set to now.  A retried task
 * precedes its group's queued tasks; any other task follows them, or is
 * scheduled.
 *
 * A task that is served alone always gets a time.  A call may stop before it,
 * and then gives back the turns after it.  Calls take turns of several blocks
 * at once only if tasks come from hands.  If a group is searched for due
 * tasks, calls take turns of one block.  So none of these turns belongs to a
 * block that has ended.
 */
static int64
address_again(FairqQueue *queue, FairqTable *tasks, const FairqTask *task,
			  bool retried, TimestampTz *ready_at)
{
	bool		now = *ready_at == DT_NOBEGIN;
	bool		timed = retried || task->lapses >= FAIRQ_LAPSES_ALONE;

	if (now)
		*ready_at = timed ? fairq_as_due(GetCurrentTimestamp()) :
			GetCurrentTimestamp();
	if (now && !timed)
		return fairq_assign_address(queue, task->priority, task->group_no,
									tasks);
	return fairq_timed_addr(retried ? FAIRQ_REGION_RETRIED :
							FAIRQ_REGION_SCHEDULED, *ready_at, task->id);
}

/*
 * Record that the task was written at an address, so that the commit publishes
 * it. in_place: the task has a new row at its old address, which calls may
 * have passed meanwhile.
 */
static void
publish_again(FairqPending *pending, FairqTask *task, TimestampTz ready_at,
			  bool in_place)
{
	pending->tally[fairq_tallied_at(task->addr)]++;
	if (fairq_is_timed(task->addr))
	{
		fairq_pending_scheduled(pending, task->addr);
		return;
	}
	fairq_news_since(&pending->at_commit, ready_at);
	if (in_place)
		fairq_pending_stays(pending, task->addr);
	else
		fairq_pending_row_written(0, task->id, &task->tid);
}

/*
 * Change a locked task that is not running: its content, if that is not NULL,
 * and its time; DT_NOBEGIN: now.  With stays, the task keeps its place.
 */
void
fairq_change_task(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
				  TimestampTz run_at, bool stays, const FairqContent *content)
{
	FairqRegion region = fairq_region(task->addr);
	int64		addr = task->addr;
	FairqPending *pending;

	if (!stays)
		addr = address_again(queue, tasks, task,
							 region == FAIRQ_REGION_RETRIED, &run_at);
	pending = fairq_pending_of(queue, task);
	pending->tally[fairq_tallied_at(task->addr)]--;
	fairq_pending_ready_at_abort(pending, task, NULL);
	fairq_task_change(tasks, task, addr, stays ? task->run_at : run_at,
					  content);
	publish_again(pending, task,
				  stays ? Max(task->enqueued_at, task->run_at) : run_at,
				  stays);
	/* the group may have been put aside until the task would have been due */
	if (queue->retries.in_order && region == FAIRQ_REGION_RETRIED && !stays)
		fairq_pending_settings(queue->hints, task->group_no);
}

/*
 * Make a blocked task due, unless that would block on another transaction.
 * The queue may be any queue of the database.  The function does not reread
 * its settings.  Returns whether the task belongs to this queue and was
 * already due.
 */
static bool
look_if_free(FairqQueue *queue, FairqTable *tasks, int64 id)
{
	FairqTask	waiting;
	bool		changing;

	if (!fairq_task_find_nowait(tasks, id, &waiting, &changing) ||
		changing || !waiting.blocked)
		return false;
	if (waiting.run_at <= GetCurrentTimestamp())
		return waiting.queue_id == queue->id;
	if (!fairq_queue_id_try_lock(waiting.queue_id, AccessShareLock))
		return false;
	if (waiting.queue_id != queue->id)
		queue = fairq_queue_by_id(waiting.queue_id, false);
	if (queue == NULL || queue->hints == NULL ||
		fairq_task_lock(tasks, &waiting, LockTupleExclusive) !=
		FAIRQ_CLAIMED || !waiting.blocked)
		return false;
	fairq_look_soon(queue, tasks, &waiting);
	/* a pop that has ended the task can check the wait itself */
	fairq_written();
	return false;
}

/*
 * The id of the first task, from an id on, that waits for the given task; 0:
 * none.
 */
static int64
next_waiting(FairqTable *tasks, int64 id, int64 from)
{
	FairqRange	range = fairq_range_from(fairq_range(Int64GetDatum(id)),
										 Int64GetDatum(from));
	FairqScan  *scan = fairq_scan_begin(fairq_table_beside(tasks,
														   FAIRQ_DEPENDENCY),
										FAIRQ_DEPENDENCY_BY_TASK, range);
	int64		waiting = 0;

	if (fairq_scan_next_current(scan))
		waiting = DatumGetInt64(fairq_column(scan->slot, DEPENDENCY_WAITING));
	fairq_scan_end(scan);
	return waiting;
}

/*
 * After the end of a task, visit up to MAX_LOOKS tasks that wait for it,
 * beginning with the id "from".  Make those due whose wait may be over.  After
 * a check (from > 0), stop at such a task if it is in the same queue and
 * already due.  The check of that task visits the tasks behind it.
 */
static void
look_at_waiting(FairqQueue *queue, FairqTable *tasks, int64 id, int64 from)
{
	bool		checked = from > 0;
	int64		other;

	for (int n = 0; n < MAX_LOOKS; n++, from++)
	{
		from = next_waiting(tasks, id, from);
		if (from == 0 ||
			(fairq_after_look(tasks, from, false, &other) > FAIRQ_BATCH_OPEN &&
			 look_if_free(queue, tasks, from) && checked))
			return;
	}
}

/* After the end of a task, make the tasks due whose wait may end with it. */
void
fairq_task_ended(FairqQueue *queue, FairqTable *tasks, const FairqTask *task,
				 FairqStatus status)
{
	bool		success = status == FAIRQ_STATUS_COMPLETED;

	if (task->batch != 0 &&
		fairq_batch_may_be_over(tasks, task->batch, success))
		(void) look_if_free(queue, tasks, task->batch);
	if (success ? queue->hints->awaited :
		fairq_after_failed(tasks, task->id, status))
		look_at_waiting(queue, tasks, task->id, 0);
}

/* Delete a locked task that this transaction has not taken. */
static void
remove_task(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
			FairqPending *pending)
{
	if (task->running)
		attempt_ended(queue, pending, task);
	else
	{
		pending->tally[fairq_tallied_at(task->addr)]--;
		fairq_pending_ready_at_abort(pending, task, NULL);
		/* the group may have been put aside because of this task */
		if (queue->retries.in_order)
			fairq_pending_settings(queue->hints, task->group_no);
	}
	if (fairq_task_delete(tasks, task, true) != FAIRQ_CLAIMED)
		elog(ERROR, "could not delete a locked task");
	if (task->running)
		fairq_slot_is_left(queue, pending);
}

/*
 * Finish a task: delete it from fairq.task, and archive it if its queue has
 * retain.
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
	FairqPending *pending;

	if (status == FAIRQ_STATUS_FAILED ||
		(status != FAIRQ_STATUS_DROPPED && queue->retains))
		archive_task(queue, tasks, task, status, error, result);
	if (task->keyed && !task->taken)
		fairq_dedup_free(tasks, task, task->attempt > 0 &&
						 status != FAIRQ_STATUS_DROPPED &&
						 status != FAIRQ_STATUS_EXPIRED);

	if (task->blocked && !fairq_after_forget(tasks, task->id))
		fairq_batch_end(task->id, true);
	if (task->batch != 0 && status != FAIRQ_STATUS_COMPLETED)
		fairq_batch_count(tasks, task->batch, status, 1, task->id);

	pending = fairq_pending_of(queue, task);
	if (stat_of[status] >= 0)
		pending->stats[stat_of[status]]++;
	if (task->taken)
		fairq_taken_ended(task->id);
	else
		remove_task(queue, tasks, task, pending);
	fairq_task_ended(queue, tasks, task, status);
}

/*
 * Complete a running task that is not archived and has no key, and whose row
 * is not locked.  Returns false if another transaction has the row.
 */
bool
fairq_complete_unlocked(FairqQueue *queue, FairqTable *tasks, FairqTask *task)
{
	FairqPending *pending = fairq_pending_of(queue, task);

	if (fairq_task_delete(tasks, task, false) != FAIRQ_CLAIMED)
		return false;
	pending->stats[FAIRQ_STAT_COMPLETED]++;
	attempt_ended(queue, pending, task);
	fairq_slot_is_left(queue, pending);
	fairq_task_ended(queue, tasks, task, FAIRQ_STATUS_COMPLETED);
	return true;
}

/*
 * Make a running task run again: at run_at, or at once if that is DT_NOBEGIN.
 * With retried, its attempt has failed, with the given error unless that is
 * NULL.  It then precedes the group's other tasks once it is due.  Otherwise
 * it was released, and follows them or is scheduled.  A task that this
 * transaction has taken gets its key back, unless another task has got the key
 * since.
 */
void
fairq_run_again(FairqQueue *queue, FairqTable *tasks, FairqTask *task,
				TimestampTz run_at, const text *error, bool retried)
{
	bool		taken = task->taken;
	bool		keeps_key = !taken || !task->keyed || task->until_started ||
		fairq_dedup_take(queue, tasks,
						 fairq_column(tasks->locked.slot, TASK_DEDUP_KEY),
						 task->id, true) == task->id;
	int64		addr = address_again(queue, tasks, task, retried, &run_at);
	FairqPending *pending = fairq_pending_of(queue, task);

	if (!taken)
		attempt_ended(queue, pending, task);
	fairq_task_return(tasks, task, addr, run_at, error, retried, keeps_key);
	publish_again(pending, task, run_at, false);
	if (taken)
		fairq_taken_ended(task->id);
	else
		fairq_slot_is_left(queue, pending);
}

/* Finish a locked task that is expired. */
void
fairq_finish_expired(FairqQueue *queue, FairqTable *tasks, FairqTask *task)
{
	elog(DEBUG1, "task " INT64_FORMAT " of queue \"%s\" is expired: it has not begun in time",
		 task->id, queue->name);
	fairq_finish(queue, tasks, task, FAIRQ_STATUS_EXPIRED, NULL, (Datum) 0);
}

/* End the expired lease of a task that no pop takes over. */
void
fairq_end_lapsed(FairqQueue *queue, FairqTable *tasks, FairqTask *task)
{
	fairq_pending_of(queue, task)->stats[FAIRQ_STAT_LAPSED]++;
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
					 cstring_to_text(FAIRQ_LEASE_EXPIRED), (Datum) 0);
	else
		fairq_run_again(queue, tasks, task, DT_NOBEGIN, NULL, true);
}

/*
 * The time until the next check, in microseconds.  The time is short if open
 * transactions are ending all tasks for which the task waits.
 */
static int64
look_delay(FairqTable *tasks, const FairqTask *task)
{
	int64		delay = (GetCurrentTimestamp() - task->enqueued_at) / 4;

	if (fairq_blocked_may_be_over(tasks, task->id))
		return USECS_PER_SEC;
	return Min(Max(delay, USECS_PER_SEC), USECS_PER_MINUTE);
}

/*
 * Check the tasks that a locked task waits for.  The task becomes ready, or
 * ends, or gets a later check.  Returns false if the task stays due, for a
 * check after our commit.
 */
bool
fairq_look_at_blocked(FairqQueue *queue, FairqTable *tasks, FairqTask *task)
{
	FairqContent content = {
		.payload = fairq_column(tasks->locked.slot, TASK_PAYLOAD),
		.headers = fairq_column(tasks->locked.slot, TASK_HEADERS),
		.expires_at = task->expires_at
	};
	int64		other;
	FairqBatchState state = fairq_after_look(tasks, task->id, true, &other);
	bool		after = state != FAIRQ_BATCH_NONE;

	if (!after)
		state = fairq_batch_look(tasks, task, &content.headers, &other);
	switch (state)
	{
		case FAIRQ_BATCH_NONE:
		case FAIRQ_BATCH_OPEN:
			fairq_change_task(queue, tasks, task, GetCurrentTimestamp() +
							  look_delay(tasks, task), false, NULL);
			break;
		case FAIRQ_BATCH_TAKEN:
			return false;
		case FAIRQ_BATCH_DONE:
			if (after)
				(void) fairq_after_forget(tasks, task->id);
			fairq_change_task(queue, tasks, task, DT_NOBEGIN, false, &content);
			fairq_notify(queue);
			break;
		case FAIRQ_BATCH_FAILED:
			fairq_finish(queue, tasks, task, after ? FAIRQ_STATUS_CANCELLED :
						 FAIRQ_STATUS_FAILED,
						 cstring_to_text(psprintf("task " INT64_FORMAT
												  " did not succeed",
												  other)), (Datum) 0);
			break;
	}
	if (after && state != FAIRQ_BATCH_OPEN)
		look_at_waiting(queue, tasks, other, task->id + 1);
	return true;
}
