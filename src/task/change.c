/*
 * change.c
 *		Changing a task that is not running: when it is to run, and what it is.
 *
 * A task that is put off stands at a time from then on, one that is ready again
 * at a fresh address behind its group's others.  One that waits for a retry stays
 * among the retried, which come before these.  The row that pops know is gone
 * with the transaction's commit, which publishes the new one; an abort publishes
 * the old one, since pops have passed over it meanwhile.
 *
 * Locking: AccessShareLock on the queue, then the row, to the end of the
 * transaction.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "assign.h"
#include "change.h"
#include "running.h"
#include "transaction.h"

/* Is the task one that still may begin? */
static bool
is_waiting(const FairqTask *task)
{
	return !task->running && !fairq_is_outdated(task, GetCurrentTimestamp());
}

/*
 * Lock the task with that id, if it is neither running nor outdated, and the caller
 * has one of these privileges on its queue, which is returned; NULL: there is none.  A
 * running one is not locked: its worker would have to wait.
 */
FairqQueue *
fairq_find_waiting(FairqTable *tasks, int64 id, int any_privilege,
				   FairqTask *task)
{
	FairqQueue *queue;
	bool		changing;

	CHECK_FOR_INTERRUPTS();
	if (!fairq_task_find_nowait(tasks, id, task, &changing))
		return NULL;
	queue = fairq_queue_use_id(task->queue_id, any_privilege);
	if (queue != NULL && fairq_task_find(tasks, id, task) && is_waiting(task) &&
		fairq_task_find_locked(tasks, id, task) && is_waiting(task))
		return queue;
	return NULL;
}

/*
 * Change a locked task that is not running: what it is, if that is not NULL, and
 * when it is run; DT_NOBEGIN: now.  With stays, it keeps its place.
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
		addr = fairq_assign_again(queue, tasks, task,
								  region == FAIRQ_REGION_RETRIED, &run_at);
	pending = fairq_pending(lane, task->group_no);
	fairq_pending_tally(pending, fairq_tallied_at(task->addr), -1);
	fairq_pending_ready_at_abort(pending, task, NULL);
	fairq_task_change(tasks, task, addr, stays ? task->run_at : run_at, content);
	fairq_publish_again(pending, task,
						stays ? Max(task->enqueued_at, task->run_at) : run_at,
						stays);
	/* the group may have been put aside until the task would have been due */
	if (queue->retries.in_order && region == FAIRQ_REGION_RETRIED && !stays)
		fairq_pending_settings(queue->hints, task->group_no);
}

/*
 * Have a locked task that is not running run at another time, or at once if
 * that is past.  One that is ready keeps its turn then.  Returns whether something
 * is ready by that.
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
 * Have a locked task that is not running be another one, in its place: what
 * content says, at run_at, or at once if that is DT_NOBEGIN.  One that is ready
 * then, and was, keeps its turn; one that waits for a retry is tried no earlier by
 * that, but by a time that is given (timed).  Returns whether something is ready.
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
