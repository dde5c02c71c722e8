/*
 * line.c
 *		The lines of groups: the tasks of a group in a lane, in the order of
 *		addr.
 *
 * A line is a contiguous piece of the index by group, and a lane consists of
 * its lines, one after the other.  So reading a section of a line costs one
 * descent, plus the entries of the section.  Moving from one group to the next
 * costs one descent, however long the line is.  One scan is reused for several
 * sections.  That saves the cost of another scan, and a search begins in the
 * page that the scan holds.
 *
 * Addresses.  A new task follows the last address of its line, the tail.
 * Shared memory has the tails of the groups that it has entries for (lane.c);
 * other tails are read from the table, with one backward probe.  The probe
 * finds committed rows and rows of open transactions.  The table does not show
 * a row that is not written yet.  So a group's entry is pinned from the
 * reservation of an address until the row is there.  If there is no entry to
 * pin, a call writes its postponed rows before it looks up a tail.
 *
 * Queues in order.  A task waits while its group has a task that waits for a
 * retry, or a ready task before it.  A claim takes the group's only slot
 * first.  Then it reads the table.  Only the table has this information, so a
 * restart loses nothing.  The transaction that had the slot before has
 * released it after its commit, so the row of a task whose attempt has failed
 * is visible.  A call that visited the group before the slot was free may have
 * an earlier task in flight, and may still give that task back.  So the claim
 * checks MOST_ENTRIES_BEFORE index entries before its task, because tasks in
 * flight are right before it.  A row that an open transaction is changing also
 * makes the task wait, because the row may exist afterwards.  If the row is
 * gone afterwards, the end of that transaction takes the group back
 * (remove_task() in outcome.c).  An expired task blocks no other task.
 *
 * Recovery.  After a restart, and after SQL has changed rows, shared memory
 * has no data of a lane.  Its recovery has two parts:
 *
 * - Which block is served?  After a restart, service begins in a new block:
 *	 the lowest block of the first ready tasks of some groups.  If rows were
 *	 changed, service continues where it was, but not before the block that
 *	 precedes that one (lane.c).  The block does not decide which tasks are
 *	 served.  At a group's turn its first ready task is served, whatever its
 *	 address is.  Then the recovery has begun, and the lane records tasks that
 *	 are published from then on.
 *
 * - Which groups have any rows?  A scan of the index by group skips from group
 *	 to group, without reading rows; dead entries are enough.  Each such group
 *	 is then late and in the ring, so at its turn its tasks are read from the
 *	 start of its line.
 *
 * Calls that take turns do the second part in steps, when they reach a seat
 * that is not known.  Steps begin at the next seat and wrap around (lane.c).
 * Shared memory has the position of the steps.  So cancelled and concurrent
 * calls lose no progress, and the first call does not pay for all groups.
 * Only a call that finds no ready group has to find all groups.  A load finds
 * which tasks run and when their leases end (load.c).
 *
 * Locking: none while the table is read, with a dirty snapshot.  lane.c names
 * the locks that the reservation of an address takes for a moment.  A step of
 * a recovery has an effect only if it continues where the last step ended.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "line.h"
#include "tools.h"

/* index entries before a task that are checked in an in_order queue */
#define MOST_ENTRIES_BEFORE 100

/* groups that are found in one step; tests build with few */
#ifndef FAIRQ_GROUPS_AT_ONCE
#define FAIRQ_GROUPS_AT_ONCE 64
#endif

/* index entries within which a step may find up to twice as many groups */
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
 * The first group that has an index entry, at or after a seat, whatever the
 * state of its row; FAIRQ_NO_SEAT: none.  *scan is reused, as the head of this
 * file explains.
 */
int32
fairq_line_next(FairqScan **scan, FairqTable *tasks, int32 lane, int64 seat)
{
	FairqRange	of_lane = fairq_range(Int32GetDatum(lane));

	if (seat > PG_INT32_MAX)
		return FAIRQ_NO_SEAT;
	*scan = fairq_scan_in_order(*scan, tasks,
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
 * such task is due; DT_NOEND: not known.
 */
static bool
lane_retries(FairqScan *scan, TimestampTz *due_at)
{
	FairqTask	task;
	FairqRowState state;

	while ((state = fairq_task_next(scan, &task, false)) != FAIRQ_ROW_END)
	{
		/*
		 * a running task has the slot, or SQL has made it run without one
		 */
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
		int32		lane = fairq_task_lane(queue->id, p);
		TimestampTz at;

		scan = fairq_scan_in_order(scan, tasks,
								   fairq_range_line(lane, group_no,
													FAIRQ_RETRIES,
													FAIRQ_SCHEDULED));
		if (!lane_retries(scan, &at))
			continue;
		any = true;
		*due_at = Min(*due_at, at);
	}
	fairq_scan_end(scan);
	return any;
}

/*
 * Whether another task of the group is ready in the lane, before a queued
 * task.  *changing: another transaction is changing that task and will publish
 * it.
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
									   MOST_ENTRIES_BEFORE);
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

/*
 * The block of the group's first ready queued task; PG_INT64_MAX if there is
 * none, or none within the budget.
 */
static int64
head_block(FairqScan **scan, FairqTable *tasks, int32 lane, int32 group_no,
		   int64 block_length)
{
	FairqTask	task;
	FairqRowState state;

	*scan = fairq_scan_in_order(*scan, tasks,
								fairq_range_line(lane, group_no, 0,
												 FAIRQ_RETRIES));
	for (int i = 0; i < HEAD_ROWS &&
		 (state = fairq_task_next(*scan, &task, false)) != FAIRQ_ROW_END; i++)
	{
		if (state == FAIRQ_ROW_LIVE && !task.running)
			return fairq_block(task.addr, block_length);
	}
	return PG_INT64_MAX;
}

/* The last group of the lane that has an entry in the index. */
static int32
last_group(FairqTable *tasks, int32 lane)
{
	FairqRange	of_lane = fairq_range(Int32GetDatum(lane));
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP,
										fairq_range_backward(of_lane));
	int32		group_no = FAIRQ_NO_SEAT;

	if (fairq_scan_next(scan) != FAIRQ_ROW_END)
		group_no = fairq_int_of(scan->slot, TASK_GROUP_NO, 0);
	fairq_scan_end(scan);
	return group_no;
}

/*
 * The least block of the first ready tasks of some groups.  These are the last
 * group, and samples from the first group on, increasingly far apart.  0: none
 * of them has a ready task; -1: there is no group.
 */
static int64
least_block(FairqQueue *queue, int priority, FairqTable *tasks)
{
	FairqScan  *scans[2] = {NULL, NULL};
	int32		lane = fairq_task_lane(queue->id, priority);
	int32		group_no = last_group(tasks, lane);
	int64		least = group_no == FAIRQ_NO_SEAT ? -1 : PG_INT64_MAX;
	int64		seat = 0;

	for (int i = 0; i < SOME_GROUPS && group_no != FAIRQ_NO_SEAT; i++)
	{
		int64		block = head_block(&scans[1], tasks, lane, group_no,
									   queue->block_length);

		CHECK_FOR_INTERRUPTS();
		least = Min(least, block);
		group_no = fairq_line_next(&scans[0], tasks, lane, seat);
		seat = block == PG_INT64_MAX ? group_no + INT64CONST(1) :
			Max(2 * seat, group_no + INT64CONST(1));
	}
	for (int i = 0; i < lengthof(scans); i++)
		fairq_scan_end(scans[i]);
	return least == PG_INT64_MAX ? 0 : least;
}

/*
 * Begin a lane's recovery.  From now on the lane records tasks that are
 * published in it.
 */
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
next_group(FairqScan **scan, FairqTable *tasks, int32 lane, int64 seat,
		   int *nentries)
{
	for (int i = 0; *scan != NULL && i < NEIGHBOURS; i++)
	{
		int32		group_no = fairq_scan_next_group(*scan);

		(*nentries)++;
		if (group_no == FAIRQ_NO_SEAT || group_no >= seat)
			return group_no;
	}
	return fairq_line_next(scan, tasks, lane, seat);
}

/*
 * One step: find the next groups that have rows.  Returns the number of
 * groups.
 */
static int
find_groups(FairqQueue *queue, int priority, FairqTable *tasks,
			const FairqRecovered *from)
{
	int32		lane = fairq_task_lane(queue->id, priority);
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
		int32		group_no = next_group(&scan, tasks, lane, seat, &nentries);

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

/*
 * Insert the tasks that the call has postponed.  They must exist when a
 * backend reads addresses from the table.
 */
void
fairq_assign_insert(FairqTable *tasks)
{
	int			n = tasks->batch.n;
	int			nreserved = 0;

	fairq_table_insert_rows(tasks);
	for (int i = 0; i < n; i++)
	{
		TupleTableSlot *row = tasks->batch.rows[i];

		/* the address of a scheduled task is not reserved */
		if (fairq_is_timed(DatumGetInt64(row->tts_values[TASK_ADDR - 1])))
			continue;
		fairq_pending_row_written(nreserved++,
								  DatumGetInt64(row->tts_values[TASK_ID - 1]),
								  &row->tts_tid);
	}
}

/*
 * Returns the address of a new task of the group.  The caller then writes the
 * row, perhaps together with other rows, and calls
 * fairq_pending_row_written().
 */
int64
fairq_assign_address(FairqQueue *queue, int priority, int32 group_no,
					 FairqTable *tasks)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	FairqPending *pending = fairq_pending(lane, group_no);
	FairqTail	tail;
	int64		highest;
	bool		looked = false;
	FairqRecovering recovering = {0};

	for (;;)
	{
		FairqReservation reservation;

		switch (fairq_lane_reserve(lane, group_no, setting->weight,
								   looked ? &tail : NULL, &reservation))
		{
			case FAIRQ_RESERVED:
				fairq_pending_reserved(pending, &reservation);
				return reservation.tail.addr;
			case FAIRQ_LANE_UNKNOWN:
				fairq_assign_insert(tasks);
				fairq_recover(queue, priority, tasks, &recovering);
				break;
			case FAIRQ_NO_TAIL:
				if (fairq_pending_any_unpinned())
					fairq_assign_insert(tasks);
				tail = fairq_line_tail(tasks,
									   fairq_task_lane(queue->id, priority),
									   group_no, FAIRQ_MAX_WEIGHT);
				highest = fairq_pending_highest(lane, group_no);
				if (highest > tail.addr)
				{
					tail.addr = highest;
					tail.count = FAIRQ_TAIL_FULL;
				}
				looked = true;
				break;
			case FAIRQ_BLOCKS_USED_UP:
				ereport(ERROR,
						errcode(ERRCODE_FAIRQ_BLOCKS_USED_UP),
						errmsg("block numbers of queue \"%s\" are used up",
							   queue->name),
						errdetail("At the queue's block length of " INT64_FORMAT " blocks are numbered up to " INT64_FORMAT ".",
								  queue->block_length,
								  fairq_last_block(group_no,
												   queue->block_length)),
						errhint("When the queue is empty, fairq.reset_hints() starts again from the first block."));
		}
	}
}
