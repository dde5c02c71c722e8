/*
 * due.c
 *		Finding what has fallen due in a lane.
 *
 * A task has fallen due if it was scheduled and its time has come, or if it is
 * leased and the lease has expired.  Nothing is done to it here: its group is
 * told, that is, it is irregular from now on and knows where to look, and at
 * its turn it is served what became ready first (serve.c).  So this can be
 * done by any call, in any transaction, for everybody.
 *
 * It is done in steps, each of which looks at a number of index entries.  Pops
 * take one step, and one more for each task that they serve, as long as there
 * is more to find: those found first are not to be served all before the
 * others.  What they are about and where they go on is kept in shared memory
 * (times.c).  Not more groups are told at a time than are to be served a turn
 * each anyway.  If the cache has no entry for a group, its task is served at
 * once.
 *
 * Locking: one backend at a time looks at a lane, which is a flag in it; it is
 * taken back by end of the call or of the transaction.  The lane's lock is
 * held for moments.
 */
#include "postgres.h"

#include "due.h"
#include "lane.h"

/*
 * Index entries that are looked at in one step; and as many more as have
 * something to tell, up to a limit.  That is about 1 ms, or 10.
 */
#define LOOK_ENTRIES 4096
#define LOOK_TOLD 32768

/* when what could not be served is looked for again */
#define TRY_AGAIN (INT64CONST(10) * 1000)

/* the lane that this backend looks at, and its number */
static FairqLane *looking_at = NULL;

/* An error has ended the look, or the end of it all.  For callbacks, too. */
void
fairq_look_end(void)
{
	if (looking_at != NULL)
		fairq_lane_look_end(looking_at, 0, NULL);
	looking_at = NULL;
}

/*
 * Tell the group of a task.  If there is no entry for it, have the task
 * served; if that cannot be, either, *left is the lowest one of these.  False
 * if no more can be told at this time.
 */
static bool
tell(FairqLane *lane, uint32 lane_no, FairqTask *task, TimestampTz now,
	 FairqFound *found, int64 *left)
{
	switch (fairq_lane_tell(lane, lane_no, task->group_no, task->addr, now))
	{
		case FAIRQ_TOLD:
			return true;
		case FAIRQ_TOO_MANY_TOLD:
			return false;
		case FAIRQ_HOMELESS:
			if (!found->serve(task, found->arg))
				*left = Min(*left, task->addr);
			return true;
	}
	return false;
}

/*
 * Tell the groups of scheduled tasks that have fallen due.  Returns where the
 * rest begins.
 */
static int64
find_scheduled(FairqQueue *queue, FairqLane *lane, uint32 lane_no,
			   FairqTable *tasks, int64 from, TimestampTz now,
			   FairqFound *found)
{
	int64		end = fairq_due_end(now);
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue->id, lane->priority))},
		{2, FAIRQ_GE, Int64GetDatum(from)}
	};
	FairqScan  *scan;
	int64		next = FAIRQ_ADDR_MAX;
	int64		left = FAIRQ_ADDR_MAX;
	int64		told = 0;
	FairqRowState state;

	if (from >= end)
		return from;
	scan = fairq_scan_some(tasks, FAIRQ_TASK_BY_LANE, keys, lengthof(keys),
						   LOOK_ENTRIES);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state == FAIRQ_ROW_LATER)
		{
			/* but so far that the next look gets further */
			next = fairq_scan_reached(scan);
			if (next > from)
				break;
			next = FAIRQ_ADDR_MAX;
			continue;
		}
		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(fairq_scan_slot(scan), &task);
		if (task.addr >= end ||
			!tell(lane, lane_no, &task, now, found, &left))
		{
			next = task.addr;
			break;
		}
		if (left == FAIRQ_ADDR_MAX && told++ < LOOK_TOLD)
			fairq_scan_more(scan);
	}
	next = Min(next, left);
	found->count += told;
	fairq_scan_end(scan);
	return next;
}

/*
 * Tell the groups of tasks whose leases have expired.
 */
static void
find_expired(FairqQueue *queue, FairqLane *lane, uint32 lane_no,
			 FairqTable *tasks, FairqLook *look, TimestampTz now,
			 FairqFound *found)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue->id, lane->priority))},
		{2, FAIRQ_GE, Int64GetDatum(look->sweep)},
		{2, FAIRQ_LT, Int64GetDatum(look->sweep_end + 1)}
	};
	int64		from = look->sweep;
	int64		left = FAIRQ_ADDR_MAX;
	int64		told = 0;
	FairqScan  *scan;
	FairqRowState state;

	if (from == FAIRQ_ADDR_MAX)
		return;
	look->sweep = FAIRQ_ADDR_MAX;
	if (from > look->sweep_end)
		return;
	scan = fairq_scan_some(tasks, FAIRQ_TASK_BY_LANE, keys, lengthof(keys),
						   LOOK_ENTRIES);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state == FAIRQ_ROW_LATER)
		{
			look->sweep = fairq_scan_reached(scan);
			if (look->sweep > from)
				break;
			look->sweep = FAIRQ_ADDR_MAX;
			continue;
		}
		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(fairq_scan_slot(scan), &task);
		if (!task.running)
			continue;
		if (task.lease_until > now)
		{
			look->deadline = Min(look->deadline, task.lease_until);
			look->floor = Min(look->floor, task.addr);
			look->ceiling = Max(look->ceiling, task.addr);
		}
		else if (tell(lane, lane_no, &task, now, found, &left))
		{
			if (left == FAIRQ_ADDR_MAX && told++ < LOOK_TOLD)
				fairq_scan_more(scan);
			if (left == task.addr)
			{
				/* it is to be found again, but not by this very call */
				look->deadline = Min(look->deadline, now + TRY_AGAIN);
				look->floor = Min(look->floor, task.addr);
				look->ceiling = Max(look->ceiling, task.addr);
				left = FAIRQ_ADDR_MAX;
			}
		}
		else
		{
			look->sweep = task.addr;
			break;
		}
	}
	found->count += told;
	fairq_scan_end(scan);
}

/*
 * Look for what has fallen due, one step.  False if there is nothing to look
 * for, or nothing more can be done about it at this moment.
 */
bool
fairq_find_due(FairqQueue *queue, int priority, FairqTable *tasks,
			   TimestampTz now, FairqFound *found)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	FairqLook	look;
	FairqLook	before;
	uint32		lane_no;

	if (!fairq_times_due(&lane->times, now) ||
		(lane_no = fairq_lane_look_begin(lane, now, &look)) == 0)
		return false;
	looking_at = lane;
	before = look;
	look.timers = find_scheduled(queue, lane, lane_no, tasks, look.timers, now,
								 found);
	find_expired(queue, lane, lane_no, tasks, &look, now, found);
	looking_at = NULL;
	fairq_lane_look_end(lane, lane_no, &look);
	return look.timers != before.timers || look.sweep != before.sweep;
}
