/*
 * count.c
 *		Counting running tasks off the table.
 *
 * Counting a group reads its line up to the highest address at which a task
 * may be running, in each of the three regions (fairq_lane_reach()).  So it
 * costs what service has come by, and not what is queued further on.  While
 * that address is not known the whole line is read, if it is short or one
 * census after the other is void.  Counting is done for counters of which the
 * census knows nothing, since calls did not count while it went on, and for
 * those that are doubtful, before they refuse a slot.
 *
 * A row that is being changed counts as running, whatever becomes of it, and
 * the count is doubtful.  Not so a task that another transaction has just
 * enqueued.  A task that our own transaction has finished or removed is not
 * visible to it, and is added by the caller (running.c).
 *
 * Locking: none.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "count.h"
#include "line.h"

/* index entries that are read to count a group or queue beside the census */
#define SHORT_LINE 1000

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

/*
 * Count the tasks of a scan that are running, or being changed.  Of the latter
 * there may be two rows, at two addresses.
 */
static void
count_rows(FairqScan *scan, FairqCounting *counting)
{
	int			max = 16;
	int			n = 0;
	int64	   *changing = palloc(sizeof(int64) * max);
	FairqRowState state;

	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state == FAIRQ_ROW_LATER)
		{
			counting->too_long = true;
			break;
		}
		fairq_task_read(fairq_scan_slot(scan), &task);
		if (state == FAIRQ_ROW_LIVE)
			counting->running += task.running;
		else if (state == FAIRQ_ROW_CHANGING || task.running ||
				 fairq_scan_is_deleted(scan))
		{
			if (n == max)
			{
				max *= 2;
				changing = repalloc_huge(changing, sizeof(int64) * max);
			}
			changing[n++] = task.id;
		}
	}
	counting->doubtful |= n > 0;
	qsort(changing, n, sizeof(int64), compare_ids);
	for (int i = 0; i < n; i++)
		counting->running += i == 0 || changing[i] != changing[i - 1];
	pfree(changing);
	counting->budget = fairq_scan_left(scan);
}

/*
 * Count the running tasks of a group that stand in a lane at or past an
 * address, and before end, as the table has them.
 */
static void
count_in_region(FairqQueue *queue, int priority, int32 group_no, int64 from,
				int64 end, FairqTable *tasks, FairqCounting *counting)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue->id, priority))},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)},
		{3, FAIRQ_GE, Int64GetDatum(from)},
		{3, FAIRQ_LT, Int64GetDatum(end)}
	};
	FairqScan  *scan;
	int			n = 1;

	if (from >= end || counting->too_long)
		return;
	scan = fairq_scan_some(tasks, FAIRQ_TASK_BY_GROUP, keys, lengthof(keys),
						   counting->budget);
	if (counting->budget != PG_INT32_MAX)
	{
		/* rows are read only if there are few enough entries */
		n = fairq_scan_count(scan, counting->budget + 1);
		counting->too_long = n > counting->budget;
		fairq_scan_again(scan, keys, lengthof(keys));
	}
	if (n > 0 && !counting->too_long)
		count_rows(scan, counting);
	fairq_scan_end(scan);
}

/*
 * Count the running tasks of a group in a lane: up to where tasks may be
 * running in each region, or all if that is not known.
 */
static void
count_in_lane(FairqQueue *queue, int priority, int32 group_no,
			  FairqTable *tasks, FairqCounting *counting)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);

	if (!fairq_lane_reach_is_known(lane))
		count_in_region(queue, priority, group_no, 0, FAIRQ_ADDR_MAX, tasks,
						counting);
	else
		for (int r = 0; r < FAIRQ_REGIONS; r++)
			count_in_region(queue, priority, group_no, fairq_region_from(r),
							fairq_lane_reach(lane, r) + 1, tasks, counting);
}

/* Count the running tasks of all groups of a lane. */
static void
count_lane(FairqQueue *queue, int priority, FairqTable *tasks,
		   FairqCounting *counting)
{
	int32		number = fairq_task_lane(queue->id, priority);
	FairqScan  *scan = NULL;
	int32		group_no = fairq_line_next(&scan, tasks, number, 0);

	while (group_no != FAIRQ_NO_SEAT && !counting->too_long)
	{
		CHECK_FOR_INTERRUPTS();
		count_in_lane(queue, priority, group_no, tasks, counting);
		/* the way to the next one costs as much as some entries */
		if (counting->budget != PG_INT32_MAX)
			counting->too_long |= counting->budget-- <= 0;
		group_no = fairq_line_next(&scan, tasks, number,
								   group_no + INT64CONST(1));
	}
	fairq_scan_end(scan);
}

/*
 * Count the running tasks of a group, or of the whole queue (-1), in all
 * lanes.
 */
void
fairq_count_running(FairqQueue *queue, int32 group_no, FairqTable *tasks,
					FairqCounting *counting)
{
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		if (group_no < 0)
			count_lane(queue, priority, tasks, counting);
		else
			count_in_lane(queue, priority, group_no, tasks, counting);
	}
}

/*
 * Returns how many index entries may be read to count the rows of a counter.
 * Few, for a group as long as the census goes on, and for a queue at any time;
 * all, if the census is void again and again.
 */
int
fairq_entries_to_count(FairqHints *hints, FairqCounter *counter,
					   int32 group_no, FairqAsOf now)
{
	if ((group_no >= 0 && fairq_lane_reach_is_known(&hints->lanes[0])) ||
		fairq_census_is_stuck(hints))
		return PG_INT32_MAX;
	return fairq_counter_was_long(counter, now) ? 0 : SHORT_LINE;
}
