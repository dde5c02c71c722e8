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
 * Locking: none.
 */
#include "postgres.h"

#include "line.h"
#include "seats.h"

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
