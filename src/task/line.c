/*
 * line.c
 *		The line of a group: its tasks in a lane, in the order of addr.
 *
 * A line is a contiguous piece of the index by group, and a lane consists of
 * its lines, one after the other.  So reading a section of a line costs one
 * descent and its entries.  Moving from one group to the next costs one
 * descent, however long the line is.
 *
 * One scan serves several places.  That saves the cost of another scan, and
 * the first search is in the page that the scan holds.
 *
 * In a queue in order, a task waits while its group has a task that waits for
 * a retry, or a ready task before it.  A claim takes the group's only slot
 * first.  Then it reads the table, the only place with these tasks, so a
 * restart loses nothing.  The transaction that had the slot before has
 * released it after its commit, so the row of a task whose attempt has failed
 * is visible.  A call that visited the group before the slot was free may have
 * an earlier task in flight, and then give it back.  So the claim checks
 * MOST_BACK index entries before its task: tasks in flight are right before
 * it.
 *
 * Rows are read with a dirty snapshot.  A row that an open transaction is
 * changing counts, because it may exist afterwards.  If it does not, the end
 * of that transaction takes the group back (fairq_finish() in outcome.c).  An
 * expired task blocks no other task.
 *
 * Locking: none.
 */
#include "postgres.h"

#include "line.h"

/* entries that are checked before a task */
#define MOST_BACK 100

/*
 * Search a group's tasks at or past an address, and before end.  The scan was
 * used in this way before, or is NULL. It is for fairq_task_next().
 */
FairqScan *
fairq_line_search(FairqScan *scan, FairqTable *tasks, int32 lane,
				  int32 group_no, int64 from, int64 end)
{
	return fairq_scan_in_order(scan, tasks, FAIRQ_TASK_BY_GROUP,
							   fairq_range_line(lane, group_no, from, end));
}

/*
 * The first group at or after a seat that has an entry, in any state of its
 * row; FAIRQ_NO_SEAT: none. *scan is used again, as above.
 */
int32
fairq_line_next(FairqScan **scan, FairqTable *tasks, int32 lane, int64 seat)
{
	FairqRange	of_lane = fairq_range(Int32GetDatum(lane));

	if (seat > PG_INT32_MAX)
		return FAIRQ_NO_SEAT;
	*scan = fairq_scan_in_order(*scan, tasks, FAIRQ_TASK_BY_GROUP,
								fairq_range_from(of_lane,
												 Int32GetDatum((int32) seat)));
	return fairq_scan_next_group(*scan);
}

/*
 * Read the last address given in the group's line, and how many tasks have it.
 * The count stops at "most" + 1.
 */
FairqTail
fairq_line_tail(FairqTable *tasks, int32 lane, int32 group_no, int most)
{
	FairqRange	queued = fairq_range_line(lane, group_no, 0, FAIRQ_RETRIES);
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP,
										fairq_range_backward(queued));
	FairqTail	tail = {FAIRQ_ADDR_NONE, 0};

	while (tail.count <= most && fairq_scan_next(scan) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		fairq_task_read(scan->slot, &task);
		if (tail.addr == FAIRQ_ADDR_NONE)
			tail.addr = task.addr;
		if (task.addr != tail.addr)
			break;
		tail.count++;
	}
	fairq_scan_end(scan);
	return tail;
}

/*
 * Whether the scan has a task that waits for a retry.  *due_at: when the first
 * is due; DT_NOEND: not known.
 */
static bool
lane_retries(FairqTable *tasks, FairqScan *scan, TimestampTz *due_at)
{
	FairqTask	task;
	FairqRowState state;

	while ((state = fairq_task_next(scan, &task, false)) != FAIRQ_ROW_END)
	{
		/* a running one has the slot, or SQL has made it run without one */
		if (state == FAIRQ_ROW_LIVE && task.running)
			continue;
		*due_at = state == FAIRQ_ROW_LIVE ? task.run_at : DT_NOEND;
		return true;
	}
	return false;
}

/*
 * Whether the group has a task that waits for a retry, in any priority.
 * *due_at: when the first of these is due; DT_NOEND: unknown, because another
 * transaction is changing it.
 */
bool
fairq_line_retries(FairqQueue *queue, FairqTable *tasks, int32 group_no,
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
 * Whether another task of the group is ready in the lane, before a queued
 * task.  *changing: another transaction is changing that task, and will
 * publish it.
 */
bool
fairq_line_has_earlier(FairqQueue *queue, FairqTable *tasks,
						const FairqTask *task, TimestampTz now, bool *changing)
{
	int32		lane = fairq_task_lane(queue->id, task->priority);
	FairqRange	before = fairq_range_line(lane, task->group_no, 0,
										  task->addr + 1);
	FairqScan  *scan = fairq_scan_some(tasks, FAIRQ_TASK_BY_GROUP,
									   fairq_range_backward(before),
									   MOST_BACK);
	FairqRowState state;
	bool		any = false;

	*changing = false;
	while (!any && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END &&
		   state != FAIRQ_ROW_LATER)
	{
		FairqTask	other;

		if (state == FAIRQ_ROW_INSERTING)
			continue;
		fairq_task_read(scan->slot, &other);
		any = !(state == FAIRQ_ROW_LIVE && other.running) &&
			(other.addr < task->addr || other.id < task->id) &&
			!fairq_is_expired(&other, now);
		*changing = any && state != FAIRQ_ROW_LIVE;
	}
	fairq_scan_end(scan);
	return any;
}
