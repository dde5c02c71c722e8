/*
 * recover.c
 *		The recovery of a lane: its block, and its groups.
 *
 * After a restart, and after SQL has changed rows, shared memory has no data
 * of a lane.  Its recovery has two parts:
 *
 * - Which block is served?  A restart begins a block, that of the first ready
 *	 tasks of some groups.  If rows were changed, service continues where it
 *	 was, but not before the block that precedes that one (lane.c).  The block
 *	 is only a number: at a group's turn its first ready task is served,
 *	 whatever its address is.  Then the recovery has begun, and tasks that are
 *	 published from then on count.
 *
 * - Which groups have any rows?  A scan of the index by group skips from group
 *	 to group, without reading rows; dead entries are enough.  Each such group
 *	 is late and in the ring from then on: at its turn its tasks are read from
 *	 the start of its line.
 *
 * Calls that take turns do the second part in steps, when they reach a seat
 * that is not known.  Steps begin at the next seat, and wrap around (lane.c).
 * Shared memory has the position of the steps.  So cancelled and concurrent
 * calls lose no progress, and the first call does not pay for all groups.
 * Only a call that finds no ready group needs all groups.
 *
 * A load finds which tasks run and when their leases end (load.c).
 *
 * Locking: none while the table is read.  A step counts only if it continues
 * where the last one ended.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "line.h"
#include "recover.h"
#include "shmem.h"

/* groups that are found in one step; tests build with few */
#ifndef FAIRQ_GROUPS_AT_ONCE
#define FAIRQ_GROUPS_AT_ONCE 64
#endif

/* and up to twice that number, without reading more entries */
#define ENTRIES_AT_ONCE 1024

/* entries of a group that are skipped before a search for the next group */
#define NEIGHBOURS 100

/*
 * number of times that a call begins again because rows were changed meanwhile
 */
#define MOST_BEGUN 3

/* groups that are checked for the block of their first tasks */
#define SOME_GROUPS 200

/* rows of a group that are checked for its first ready task */
#define HEAD_ROWS 100

/*
 * The block of the group's first ready queued task; PG_INT64_MAX if there is
 * none, or none within the budget.
 */
static int64
head_block(FairqScan **scan, FairqQueue *queue, int priority,
		   FairqTable *tasks, int32 group_no)
{
	FairqTask	task;
	FairqRowState state;

	*scan = fairq_line_search(*scan, tasks, fairq_task_lane(queue->id, priority),
							  group_no, 0, FAIRQ_RETRIES);
	for (int i = 0; i < HEAD_ROWS; i++)
	{
		state = fairq_task_next(*scan, &task, false);
		if (state == FAIRQ_ROW_END)
			break;
		if (state == FAIRQ_ROW_LIVE && !task.running)
			return fairq_block(task.addr, queue->block_length);
	}
	return PG_INT64_MAX;
}

/* The last group of the lane that has an entry in the index. */
static int32
last_group(FairqQueue *queue, int priority, FairqTable *tasks)
{
	int32		lane = fairq_task_lane(queue->id, priority);
	FairqRange	of_lane = fairq_range(Int32GetDatum(lane));
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP,
										fairq_range_backward(of_lane));
	FairqTask	task;
	int32		group_no = FAIRQ_NO_SEAT;

	if (fairq_scan_next(scan) != FAIRQ_ROW_END)
	{
		fairq_task_read(scan->slot, &task);
		group_no = task.group_no;
	}
	fairq_scan_end(scan);
	return group_no;
}

/*
 * The least block of a first ready task, among the last group and samples from
 * the first group on, increasingly far apart.  0: none of them has a ready
 * task; -1: there is no group.
 */
static int64
least_block(FairqQueue *queue, int priority, FairqTable *tasks)
{
	FairqScan  *scans[2] = {NULL, NULL};
	int32		group_no = last_group(queue, priority, tasks);
	int64		least = group_no == FAIRQ_NO_SEAT ? -1 : PG_INT64_MAX;
	int64		seat = 0;

	for (int i = 0; i < SOME_GROUPS && group_no != FAIRQ_NO_SEAT; i++)
	{
		int64		block = head_block(&scans[1], queue, priority, tasks,
									   group_no);

		CHECK_FOR_INTERRUPTS();
		least = Min(least, block);
		group_no = fairq_line_next(&scans[0], tasks,
								   fairq_task_lane(queue->id, priority), seat);
		seat = block == PG_INT64_MAX ? group_no + INT64CONST(1) :
			Max(2 * seat, group_no + INT64CONST(1));
	}
	for (int i = 0; i < lengthof(scans); i++)
		fairq_scan_end(scans[i]);
	return least == PG_INT64_MAX ? 0 : least;
}

/* Begin.  From now on tasks that are published in the lane count. */
static void
begin_recovery(FairqQueue *queue, int priority, FairqTable *tasks,
			   FairqRecovered *at)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	uint64		resets = pg_atomic_read_u64(&fairq_domain()->resets);
	int64		block = least_block(queue, priority, tasks);

	fairq_lane_recover_begin(lane, resets, GetCurrentTimestamp(),
							 queue->block_length, queue->shares.fair_by, block);
	(void) fairq_lane_recovered(lane, at);
	elog(DEBUG1, "reading priority %d of queue \"%s\" from its table: first tasks are in block " INT64_FORMAT ", service continues at seat " INT64_FORMAT,
		 priority, queue->name, block, at->first);
}

/*
 * The first group at or after a seat, with a scan that is at the previous
 * group.  The index entries of a group are neighbours, mostly on one page.  So
 * skipping some of them is cheaper than searching for the next group at once.
 */
static int32
next_group(FairqScan **scan, FairqQueue *queue, int priority,
		   FairqTable *tasks, int64 seat, int *nentries)
{
	for (int i = 0; *scan != NULL && i < NEIGHBOURS; i++)
	{
		int32		group_no = fairq_scan_next_group(*scan);

		(*nentries)++;
		if (group_no == FAIRQ_NO_SEAT || group_no >= seat)
			return group_no;
	}
	return fairq_line_next(scan, tasks, fairq_task_lane(queue->id, priority),
						   seat);
}

/* One step: find the next groups that have rows.  Returns how many. */
static int
find_groups(FairqQueue *queue, int priority, FairqTable *tasks,
			const FairqRecovered *from)
{
	bool		round = from->first + from->known >= FAIRQ_ALL_SEATS;
	int64		begin_at = from->first + from->known -
		(round ? FAIRQ_ALL_SEATS : 0);
	int64		end = round ? from->first : FAIRQ_ALL_SEATS;
	int64		seat = begin_at;
	int32		group_nos[2 * FAIRQ_GROUPS_AT_ONCE];
	int			n = 0;
	int			nentries = 0;
	FairqScan  *scan = NULL;

	while (seat < end && n < lengthof(group_nos) &&
		   (n < FAIRQ_GROUPS_AT_ONCE || nentries < ENTRIES_AT_ONCE))
	{
		int32		group_no = next_group(&scan, queue, priority, tasks, seat,
										  &nentries);

		if (group_no == FAIRQ_NO_SEAT || group_no >= end)
			seat = end;
		else
		{
			fairq_chunks_have(&queue->hints->chunks, group_no);
			group_nos[n++] = group_no;
			seat = group_no + INT64CONST(1);
		}
	}
	fairq_scan_end(scan);
	fairq_lane_recover_step(fairq_queue_lane(queue, priority), from, group_nos,
							n, from->known + seat - begin_at);
	return n;
}

/*
 * Read more data of a lane from the table: the block, if it is not known, and
 * the next groups.
 */
void
fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks,
			  FairqRecovering *recovering)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	FairqRecovered at;
	int			n = 0;

	/* if rows are changed continuously, accept the last reading */
	if (!fairq_lane_recovered(lane, &at) &&
		(recovering->begun < MOST_BEGUN ||
		 !fairq_lane_accept(lane, recovering->lane_no)))
	{
		begin_recovery(queue, priority, tasks, &at);
		recovering->lane_no = at.lane_no;
		recovering->begun++;
	}
	while (n < FAIRQ_GROUPS_AT_ONCE && at.known < FAIRQ_ALL_SEATS)
	{
		n += find_groups(queue, priority, tasks, &at);
		if (!fairq_lane_recovered(lane, &at))
			break;
	}
}
