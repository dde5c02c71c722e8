/*
 * place.c
 *		Giving tasks their addresses; making a lane known.
 *
 * Both are what lane.c keeps in shared memory, plus the look at the table
 * that is needed when it is not there: after a restart, when rows were changed
 * behind fairq's back, when a group's entry was evicted.
 *
 * Recovery of a lane reads the first ready task of each group, and the first
 * one that waits: two or three index descents per group that has tasks there,
 * not a walk over its tasks.  All backends may do it at once; the first one to
 * finish makes the lane known.
 *
 * The tail of a group is one backward probe.  Committed rows and those of open
 * transactions count alike.
 *
 * Locking: none while the table is read; see lane.c for what is held for the
 * moment in which the result is written down.
 */
#include "postgres.h"

#include "errors.h"
#include "place.h"
#include "shmem.h"

/*
 * The first task of a group in the lane that is ready and stands between from
 * and end; FAIRQ_ADDR_MAX if none is.
 */
static int64
read_head(FairqScan *scan, int32 queue_id, int32 group_no, int priority,
		  int64 from, int64 end)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue_id, priority))},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)},
		{3, FAIRQ_GE, Int64GetDatum(from)},
		{3, FAIRQ_LT, Int64GetDatum(end)}
	};
	FairqRowState state;

	fairq_scan_again(scan, keys, lengthof(keys));
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(fairq_scan_slot(scan), &task);
		if (!task.running)
			return task.addr;
	}
	return FAIRQ_ADDR_MAX;
}

/*
 * The highest address in the lane that is below end, of a ready task or not;
 * FAIRQ_ADDR_NONE if there is none.
 */
static int64
read_highest(FairqTable *tasks, int32 queue_id, int priority, int64 end)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue_id, priority))},
		{2, FAIRQ_LT, Int64GetDatum(end)}
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

static int
compare_heads(const void *a, const void *b)
{
	int64		x = ((const FairqHead *) a)->addr;
	int64		y = ((const FairqHead *) b)->addr;

	return x < y ? -1 : x > y;
}

static FairqHead *
read_heads(FairqTable *tasks, int32 queue_id, int priority, bool some_wait,
		   int64 *nheads)
{
	FairqKey	next[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue_id, priority))},
		{2, FAIRQ_GE, Int32GetDatum(0)}
	};
	FairqKey	head[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue_id, priority))},
		{2, FAIRQ_EQ, Int32GetDatum(0)},
		{3, FAIRQ_GE, Int64GetDatum(0)},
		{3, FAIRQ_LT, Int64GetDatum(0)}
	};
	FairqScan  *groups = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP, next,
										  lengthof(next), false);
	FairqScan  *heads_of = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP, head,
											lengthof(head), false);
	int64		max = 64;
	FairqHead  *heads = palloc(sizeof(FairqHead) * max);

	*nheads = 0;
	while (fairq_scan_next(groups) != FAIRQ_ROW_END)
	{
		FairqTask	task;
		FairqHead	head = {.waiting = FAIRQ_ADDR_MAX};

		fairq_task_read(fairq_scan_slot(groups), &task);
		head.group_no = task.group_no;
		head.addr = read_head(heads_of, queue_id, task.group_no, priority, 0,
							  FAIRQ_WAITING);
		if (some_wait)
			head.waiting = read_head(heads_of, queue_id, task.group_no,
									 priority, FAIRQ_WAITING, FAIRQ_SCHEDULED);
		if (Min(head.addr, head.waiting) != FAIRQ_ADDR_MAX)
		{
			if (*nheads == max)
			{
				max *= 2;
				heads = repalloc_huge(heads, sizeof(FairqHead) * max);
			}
			heads[(*nheads)++] = head;
		}
		if (task.group_no == PG_INT32_MAX)
			break;
		next[1].value = Int32GetDatum(task.group_no + 1);
		fairq_scan_again(groups, next, lengthof(next));
	}
	fairq_scan_end(groups);
	fairq_scan_end(heads_of);
	qsort(heads, *nheads, sizeof(FairqHead), compare_heads);
	return heads;
}

/* Read off the table what is to be known of a lane, if it is not known. */
void
fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	FairqDomain *domain = fairq_domain();

	for (int attempt = 0; !fairq_lane_known(lane); attempt++)
	{
		uint64		resets = pg_atomic_read_u64(&domain->resets);
		uint64		epoch = fairq_lane_epoch(lane);
		int64		highest = read_highest(tasks, queue->id, priority,
										   FAIRQ_SCHEDULED);
		bool		some_wait = fairq_is_waiting(highest);
		FairqHead  *heads = NULL;
		int64		nheads = 0;

		if (highest != FAIRQ_ADDR_NONE)
			heads = read_heads(tasks, queue->id, priority, some_wait, &nheads);
		if (some_wait)
			highest = read_highest(tasks, queue->id, priority, FAIRQ_WAITING);

		/*
		 * If somebody changes rows all the time, be content with what was
		 * read; the mark then starts from the bottom, so nothing is missed.
		 */
		if (attempt >= 2)
			resets = pg_atomic_read_u64(&domain->resets);
		/* others count what we ourselves have finished as long as it is open */
		fairq_lane_reaches(lane, fairq_debts_reach(lane));
		fairq_lane_publish(lane, resets, epoch, attempt < 2, heads, nheads,
						   highest, queue->block_length);
		elog(DEBUG1, "read priority %d of queue \"%s\" off its table: " INT64_FORMAT " groups have tasks",
			 priority, queue->name, nheads);
		if (heads)
			pfree(heads);
	}
}

/*
 * The tail of a group in a lane, as the table has it.  It is doubtful if the
 * task there is in somebody's hands: he may have been served it ahead of its
 * turn, or the task may never be there for others.
 */
static FairqTail
read_tail(FairqTable *tasks, int32 queue_id, int priority, int32 group_no,
		  bool *doubtful)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue_id, priority))},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)},
		{3, FAIRQ_LT, Int64GetDatum(FAIRQ_SCHEDULED)}
	};
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP, keys,
										lengthof(keys), true);
	FairqTail	tail = {FAIRQ_ADDR_NONE, 0};
	FairqRowState state;

	*doubtful = false;
	while (tail.count <= FAIRQ_MAX_WEIGHT &&
		   (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		fairq_task_read(fairq_scan_slot(scan), &task);
		if (tail.addr == FAIRQ_ADDR_NONE)
		{
			tail.addr = task.addr;
			*doubtful = task.running || state != FAIRQ_ROW_LIVE;
		}
		if (task.addr != tail.addr)
			break;
		tail.count++;
	}
	fairq_scan_end(scan);
	return tail;
}

/*
 * Insert the tasks that the call has put off.  They must be there for whoever
 * looks at the table for addresses.
 */
void
fairq_placed_insert(FairqTable *tasks)
{
	fairq_table_insert_rows(tasks);
	fairq_debt_written();
}

/*
 * Give a task of the group its address: that of a turn, or one at which it
 * waits, in the given order (0, if the queue is not limited: it then waits
 * only behind others).  The caller writes the row next, maybe together with
 * others, and then calls fairq_debt_written().
 */
int64
fairq_place(FairqQueue *queue, int priority, int32 group_no, int64 order,
			FairqTable *tasks)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	FairqDebt  *debt = fairq_debt(lane, group_no);
	FairqTail	tail;
	int64		highest;
	bool		looked = false;
	bool		doubtful = false;

	for (;;)
	{
		FairqReservation reservation;

		switch (fairq_lane_reserve(lane, group_no, setting->weight,
								   setting->most, queue->block_length, order,
								   looked ? &tail : NULL, doubtful,
								   &reservation))
		{
			case FAIRQ_RESERVED:
				fairq_debt_reserved(debt, &reservation);
				return reservation.tail.addr;
			case FAIRQ_LANE_UNKNOWN:
				fairq_placed_insert(tasks);
				fairq_recover(queue, priority, tasks);
				break;
			case FAIRQ_TAIL_UNKNOWN:
				fairq_placed_insert(tasks);
				tail = read_tail(tasks, queue->id, priority, group_no,
								 &doubtful);
				highest = fairq_debts_highest(lane, group_no);
				if (highest > tail.addr)
				{
					tail.addr = highest;
					tail.count = FAIRQ_TAIL_FULL;
					doubtful = true;
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
								  fairq_last_block(group_no, queue->block_length)),
						errhint("When the queue is empty, fairq.reset_hints() starts again from the first block."));
		}
	}
}
