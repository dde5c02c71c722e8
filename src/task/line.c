/*
 * line.c
 *		The line of a group: its tasks in a lane, in the order of addr.
 *
 * A line is a stretch of the index by group, and a lane is all its lines, one
 * after the other.  So a part of a line costs one descent and what is read of it;
 * and from one group to the next one costs a descent, however long its line is.
 *
 * A scan is begun once and goes on to other places: that saves the cost of
 * beginning one, and a look at the page that the scan holds.
 *
 * In a queue that is in order, no task of a group starts while the group has a
 * task that is to be retried, or one that is ready before it.  A claim has the
 * group's only slot first, and then looks into the table, which alone says that:
 * so a restart loses nothing of it.  The transaction that had the slot before
 * has left it after its commit, so the row of a task whose attempt has failed is
 * seen.  A call that came to the group before the slot was free may have an
 * earlier task in flight, and put it back.  So the claim looks back in the line,
 * for MOST_BACK index entries: what is in flight stands right before.
 *
 * Rows are read with a dirty snapshot.  A row that an open transaction is
 * changing counts as there, because it may be there afterwards.  If it is not,
 * that is published (fairq_finish() in outcome.c).  An expired task is in
 * nobody's way.
 *
 * Locking: none.
 */
#include "postgres.h"

#include "line.h"
#include "seats.h"

/* entries that are looked at before a task */
#define MOST_BACK 100

/*
 * Look for a group's tasks at or past an address, and before end, with a scan that
 * was used like this before, or NULL.  It is for fairq_task_next().
 */
FairqScan *
fairq_line_search(FairqScan *scan, FairqTable *tasks, int32 lane,
				  int32 group_no, int64 from, int64 end)
{
	return fairq_scan_in_order(scan, tasks, FAIRQ_TASK_BY_GROUP,
							   fairq_range_line(lane, group_no, from, end));
}

/*
 * The first group at or behind that seat that has an entry, whatever its row is;
 * FAIRQ_NO_SEAT: none.  *scan is used again, as above.
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
 * Read the last address of the group's line that was given, and how many tasks stand
 * there; of more than most of them, so many and one.
 */
FairqTail
fairq_line_tail(FairqTable *tasks, int32 lane, int32 group_no, int most)
{
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP,
										fairq_range_line(lane, group_no, 0,
														 FAIRQ_RETRIES), true);
	FairqTail	tail = {FAIRQ_ADDR_NONE, 0};

	while (tail.count <= most && fairq_scan_next(scan) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		fairq_task_read(fairq_scan_slot(scan), &task);
		if (tail.addr == FAIRQ_ADDR_NONE)
			tail.addr = task.addr;
		if (task.addr != tail.addr)
			break;
		tail.count++;
	}
	fairq_scan_end(scan);
	return tail;
}

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
 * Is another task of the group ready in that lane, before this queued one?  *changing:
 * another transaction is changing the one that is, and will publish it.
 */
bool
fairq_line_has_earlier(FairqQueue *queue, FairqTable *tasks,
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
			!fairq_is_expired(&other, now);
		*changing = any && state != FAIRQ_ROW_LIVE;
	}
	fairq_scan_end(scan);
	return any;
}
