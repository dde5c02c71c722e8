/*
 * recover.c
 *		Making a lane known.
 *
 * After a restart, and when rows were changed behind fairq's back, nothing is
 * known of a lane.  Its recovery has two parts:
 *
 * - Which block is served, and up to which seat?  As long as service is
 *	 undisturbed, a group's first ready task stands in the next block if
 *	 service has come by its seat in the present one, and in the present one if
 *	 not.  So that is found by bisection over the seats, with some 20 groups
 *	 being looked at.  If service was disturbed (late commits, limits,
 *	 rollbacks) this is not exact, and costs at most one extra turn per group.
 *
 * - Which groups have any rows?  The index by group is asked for the next
 *	 group, and the next, one descent each, without a look at rows; dead
 *	 entries will do.  Each such group is late and in the ring from then on:
 *	 what it has is read, from the start of its line, when its turn comes.
 *
 * That is done in steps, and how far they have come is kept in shared memory.
 * So a call that is cancelled, or several at once, lose nothing.  What is told
 * from the beginning on counts.
 *
 * Locking: none while the table is read.  Only the step that goes on where the
 * last one has ended is noted.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "recover.h"
#include "shmem.h"
#include "transaction.h"

/* groups that are found in one step */
#define GROUPS_AT_ONCE 64

/* the clock may have been set back by so much since a task was popped */
#define CLOCK_SET_BACK USECS_PER_HOUR

/* rows of a group that are looked at for its first ready task */
#define LOOK_AHEAD 1000

/* The first group at or behind that seat that has an entry; FAIRQ_NOBODY: none. */
static int32
group_from(FairqScan **scan, FairqQueue *queue, int priority,
		   FairqTable *tasks, int64 seat)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue->id, priority))},
		{2, FAIRQ_GE, Int32GetDatum((int32) seat)}
	};

	if (seat > PG_INT32_MAX)
		return FAIRQ_NOBODY;
	if (*scan == NULL)
		*scan = fairq_scan_in_order(tasks, FAIRQ_TASK_BY_GROUP, keys,
									lengthof(keys));
	else
		fairq_scan_again(*scan, keys, lengthof(keys));
	return fairq_scan_next_group(*scan);
}

/*
 * The block of the group's first queued task that is ready; -1 if it has none, or
 * that is not to be seen at once.
 */
static int64
head_block(FairqScan **scan, FairqQueue *queue, int priority,
		   FairqTable *tasks, int32 group_no)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue->id, priority))},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)},
		{3, FAIRQ_GE, Int64GetDatum(0)},
		{3, FAIRQ_LT, Int64GetDatum(FAIRQ_RETRIES)}
	};
	FairqTask	task;
	FairqRowState state;

	if (*scan == NULL)
		*scan = fairq_scan_in_order(tasks, FAIRQ_TASK_BY_GROUP, keys,
									lengthof(keys));
	else
		fairq_scan_again(*scan, keys, lengthof(keys));
	for (int i = 0; i < LOOK_AHEAD; i++)
	{
		state = fairq_task_next(*scan, &task, false);
		if (state == FAIRQ_ROW_END)
			break;
		if (state == FAIRQ_ROW_LIVE && !task.running)
			return fairq_block(task.addr, queue->block_length);
	}
	return -1;
}

/* Of the groups from a seat on, the first one that tells, and its block. */
static int64
block_from(FairqScan *scans[2], FairqQueue *queue, int priority,
		   FairqTable *tasks, int64 seat, int32 end, int32 *group_no)
{
	for (int i = 0; i < GROUPS_AT_ONCE; i++)
	{
		int64		block;

		CHECK_FOR_INTERRUPTS();
		*group_no = group_from(&scans[0], queue, priority, tasks, seat);
		if (*group_no == FAIRQ_NOBODY || *group_no > end)
			return -1;
		block = head_block(&scans[1], queue, priority, tasks, *group_no);
		if (block >= 0)
			return block;
		seat = *group_no + INT64CONST(1);
	}
	return -1;
}

/* The last group of the lane that has an entry in the index. */
static int32
last_group(FairqQueue *queue, int priority, FairqTable *tasks)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue->id, priority))}
	};
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP, keys,
										lengthof(keys), true);
	FairqTask	task;
	int32		group_no = FAIRQ_NOBODY;

	if (fairq_scan_next(scan) != FAIRQ_ROW_END)
	{
		fairq_task_read(fairq_scan_slot(scan), &task);
		group_no = task.group_no;
	}
	fairq_scan_end(scan);
	return group_no;
}

/* Find out which block is served, and up to which seat. */
static void
find_position(FairqScan *scans[2], FairqQueue *queue, int priority,
			  FairqTable *tasks, int64 *block, int32 *seat)
{
	int32		last = last_group(queue, priority, tasks);
	int32		low;
	int64		high;
	int64		first_block;
	int32		group_no;

	*block = 0;
	*seat = FAIRQ_NOBODY;
	if (last == FAIRQ_NOBODY)
		return;
	first_block = block_from(scans, queue, priority, tasks, 0, last, &low);
	if (first_block < 0)
		return;
	/* low has been passed in the present block, unless nobody has */
	high = last + INT64CONST(1);
	while (high - low > 1)
	{
		int64		middle = low + (high - low) / 2;
		int64		there = block_from(scans, queue, priority, tasks, middle,
									   last, &group_no);

		if (there < 0 || group_no >= high)
			high = middle;
		else if (there >= first_block)
			low = group_no;
		else
			high = middle;
	}
	if (block_from(scans, queue, priority, tasks, low + INT64CONST(1), last,
				   &group_no) < 0)
		*block = first_block;
	else
	{
		*block = Max(first_block - 1, 0);
		*seat = low;
	}
}

/*
 * The highest address of a queued task in the lane; FAIRQ_ADDR_NONE if there is
 * none.
 */
static int64
read_highest(FairqTable *tasks, int32 queue_id, int priority)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue_id, priority))},
		{2, FAIRQ_LT, Int64GetDatum(FAIRQ_RETRIES)}
	};
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_LANE, keys,
										lengthof(keys), true);
	int64		highest = FAIRQ_ADDR_NONE;

	if (fairq_scan_next(scan) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		fairq_task_read(fairq_scan_slot(scan), &task);
		highest = task.addr;
	}
	fairq_scan_end(scan);
	return highest;
}

/* Find the groups that have rows, a number at a time. */
static int64
find_groups(FairqScan **scan, FairqQueue *queue, int priority,
			FairqTable *tasks, uint32 lane_no, int64 known)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	int64		ngroups = 0;

	while (known < FAIRQ_ALL_SEATS)
	{
		int32		group_nos[GROUPS_AT_ONCE];
		int			n = 0;
		int64		from = known;

		CHECK_FOR_INTERRUPTS();
		while (n < GROUPS_AT_ONCE && known < FAIRQ_ALL_SEATS)
		{
			int32		group_no = group_from(scan, queue, priority, tasks,
											  known);

			if (group_no == FAIRQ_NOBODY)
				known = FAIRQ_ALL_SEATS;
			else
			{
				fairq_chunks_have(&queue->hints->chunks, group_no);
				group_nos[n++] = group_no;
				known = group_no + INT64CONST(1);
			}
		}
		fairq_lane_recover_step(lane, lane_no, from, group_nos, n, known);
		ngroups += n;
	}
	return ngroups;
}

/* Read off the table what is to be known of a lane, if it is not known. */
void
fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	FairqScan  *scans[2] = {NULL, NULL};

	for (int attempt = 0; !fairq_lane_known(lane); attempt++)
	{
		uint32		lane_no;
		int64		known;
		int64		ngroups;

		(void) fairq_chunks_map(&queue->hints->chunks);
		if (!fairq_lane_is_begun(lane, &lane_no, &known))
		{
			uint64		resets = pg_atomic_read_u64(&fairq_domain()->resets);
			int64		highest = read_highest(tasks, queue->id, priority);
			int64		block;
			int32		seat;

			find_position(scans, queue, priority, tasks, &block, &seat);
			/* tasks that were due are running anywhere below */
			for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
				fairq_lane_reaches(lane, fairq_due_end(r, GetCurrentTimestamp() +
													   CLOCK_SET_BACK) - 1);
			/* others count what we have finished as long as that is open */
			fairq_lane_reaches(lane, Max(highest, fairq_debts_reach(lane)));
			fairq_lane_recover_begin(lane, resets, queue->block_length, block,
									 seat);
			continue;
		}
		ngroups = find_groups(&scans[0], queue, priority, tasks, lane_no, known);

		/* if somebody changes rows all the time, be content with what was read */
		if (attempt >= 2)
			fairq_lane_be_content(lane, lane_no);
		elog(DEBUG1, "read priority %d of queue \"%s\" off its table: " INT64_FORMAT " groups have tasks",
			 priority, queue->name, ngroups);
	}
	for (int i = 0; i < lengthof(scans); i++)
		if (scans[i] != NULL)
			fairq_scan_end(scans[i]);
}
