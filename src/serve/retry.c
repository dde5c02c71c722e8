/*
 * retry.c
 *		Whether a group has a task that is to be retried, or is before another.
 *
 * In a queue that is in order no other task of such a group starts.  A claim there
 * has the group's only slot first, and then looks here.  The transaction that had the
 * slot before has left it after its commit; so the row of a task whose attempt
 * has failed is seen, and what is seen is all that there is.
 *
 * The table alone says that, and not the counters: so nothing of it is lost in a
 * restart.  It costs a descent of the index for each priority.
 *
 * Nor does a task start while another one of its line is ready before it.  A call that
 * has come by the group before the slot was free may have that one in flight, and put it
 * back.  So the claim looks back in the line, for MOST_BACK entries of the index: what is
 * in flight stands right before what is taken next.
 *
 * Rows are looked at with a dirty snapshot.  One that an open transaction is changing,
 * to cancel its task, say, may be there afterwards: so it is there, and if it is not in
 * the end that is published (fairq_finish() in outcome.c).  An outdated one is in
 * nobody's way.
 *
 * Locking: none.
 */
#include "postgres.h"

#include "line.h"
#include "retry.h"

/* entries that are looked at before a task */
#define MOST_BACK 100

/* When the first of them is due; DT_NOEND: that is not known, or there is none. */
static bool
lane_retries(FairqTable *tasks, FairqScan *scan, TimestampTz *due_at)
{
	FairqTask	task;
	FairqRowState state;

	while ((state = fairq_task_next(scan, &task, false)) != FAIRQ_ROW_END)
	{
		/* one that is running has the slot, or by SQL is beside it */
		if (state == FAIRQ_ROW_LIVE && task.running)
			continue;
		*due_at = state == FAIRQ_ROW_LIVE ? task.run_at : DT_NOEND;
		return true;
	}
	return false;
}

/*
 * Has the group a task that is to be retried, in any priority?  *due_at: when the
 * first of these is due; DT_NOEND: not known, another transaction is changing it.
 */
bool
fairq_group_retries(FairqQueue *queue, FairqTable *tasks, int32 group_no,
					TimestampTz *due_at)
{
	FairqScan  *scan = NULL;
	bool		any = false;

	*due_at = DT_NOEND;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		TimestampTz at;

		scan = fairq_line_search(scan, tasks, fairq_task_lane(queue->id, p),
								 group_no, FAIRQ_RETRIES, FAIRQ_SCHEDULED);
		if (!lane_retries(tasks, scan, &at))
			continue;
		any = true;
		*due_at = Min(*due_at, at);
	}
	fairq_scan_end(scan);
	return any;
}

/*
 * Is another task of the group ready in that lane, before this queued one?  *changing:
 * another transaction is changing the one that is, and will publish it.
 */
bool
fairq_group_has_earlier(FairqQueue *queue, FairqTable *tasks,
						const FairqTask *task, TimestampTz now, bool *changing)
{
	int32		lane = fairq_task_lane(queue->id, task->priority);
	FairqScan  *scan = fairq_scan_some(tasks, FAIRQ_TASK_BY_GROUP,
									   fairq_range_line(lane, task->group_no, 0,
														task->addr + 1),
									   true, MOST_BACK);
	FairqRowState state;
	bool		any = false;

	*changing = false;
	while (!any && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END &&
		   state != FAIRQ_ROW_LATER)
	{
		FairqTask	other;

		if (state == FAIRQ_ROW_INSERTING)
			continue;
		fairq_task_read(fairq_scan_slot(scan), &other);
		any = !(state == FAIRQ_ROW_LIVE && other.running) &&
			(other.addr < task->addr || other.id < task->id) &&
			!fairq_is_outdated(&other, now);
		*changing = any && state != FAIRQ_ROW_LIVE;
	}
	fairq_scan_end(scan);
	return any;
}
