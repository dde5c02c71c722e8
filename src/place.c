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
 * finish makes the lane known.  With very many groups that takes longer than a
 * statement may last.  So what a backend has read is kept when its call is ended
 * by an error, and its next call goes on from there; what becomes ready meanwhile
 * is entered in the lane, as it is beside a single call.
 *
 * The tail of a group is one backward probe.  Committed rows and those of open
 * transactions count alike.
 *
 * Locking: none while the table is read; see lane.c for what is held for the
 * moment in which the result is written down.
 */
#include "postgres.h"

#include "utils/memutils.h"

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

/* What this backend has read of a lane to make it known. */
static struct
{
	FairqLane  *lane;			/* NULL: none */
	int32		queue_id;
	uint64		resets;			/* of the domain, when it began */
	uint64		epoch;			/* of the lane, likewise */
	int64		highest;		/* address in the lane, likewise */
	int64		next;			/* number of the group to go on with */
	FairqHead  *heads;
	int64		nheads;
	int64		max_heads;
	bool		own;			/* by a transaction that had written: what it saw
								 * of itself may have been rolled back */
}			recovery;

static void
end_recovery(void)
{
	if (recovery.heads != NULL)
		pfree(recovery.heads);
	memset(&recovery, 0, sizeof(recovery));
}

/* Begin, unless what was read before of the lane still is of use. */
static void
begin_recovery(FairqQueue *queue, FairqLane *lane, FairqTable *tasks)
{
	uint64		resets = pg_atomic_read_u64(&fairq_domain()->resets);

	if (recovery.lane == lane && recovery.queue_id == queue->id &&
		recovery.resets == resets && !recovery.own && !fairq_has_written())
		return;
	end_recovery();
	recovery.own = fairq_has_written();
	recovery.resets = resets;
	recovery.epoch = fairq_lane_epoch(lane);
	recovery.highest = read_highest(tasks, queue->id, lane->priority,
									FAIRQ_SCHEDULED);
	recovery.queue_id = queue->id;
	recovery.lane = lane;
}

static void
add_head(const FairqHead *head)
{
	if (recovery.nheads == recovery.max_heads)
	{
		int64		max = Max(64, 2 * recovery.max_heads);

		recovery.heads = recovery.heads == NULL ?
			MemoryContextAlloc(TopMemoryContext, sizeof(FairqHead) * max) :
			repalloc_huge(recovery.heads, sizeof(FairqHead) * max);
		recovery.max_heads = max;
	}
	recovery.heads[recovery.nheads++] = *head;
}

/* Read the first tasks of the groups that were not read yet. */
static void
read_heads(FairqTable *tasks, int priority)
{
	int32		queue_id = recovery.queue_id;
	bool		some_wait = fairq_is_waiting(recovery.highest);
	FairqKey	next[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue_id, priority))},
		{2, FAIRQ_GE, Int32GetDatum((int32) recovery.next)}
	};
	FairqKey	head[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(queue_id, priority))},
		{2, FAIRQ_EQ, Int32GetDatum(0)},
		{3, FAIRQ_GE, Int64GetDatum(0)},
		{3, FAIRQ_LT, Int64GetDatum(0)}
	};
	FairqScan  *groups;
	FairqScan  *heads_of;

	if (recovery.highest == FAIRQ_ADDR_NONE || recovery.next > PG_INT32_MAX)
		return;
	groups = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP, next,
							  lengthof(next), false);
	heads_of = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP, head,
								lengthof(head), false);
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
			add_head(&head);
		recovery.next = task.group_no + INT64CONST(1);
		if (recovery.next > PG_INT32_MAX)
			break;
		next[1].value = Int32GetDatum((int32) recovery.next);
		fairq_scan_again(groups, next, lengthof(next));
	}
	recovery.next = PG_INT32_MAX + INT64CONST(1);
	fairq_scan_end(groups);
	fairq_scan_end(heads_of);
	qsort(recovery.heads, recovery.nheads, sizeof(FairqHead), compare_heads);
}

/* Read off the table what is to be known of a lane, if it is not known. */
void
fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);

	for (int attempt = 0; !fairq_lane_known(lane); attempt++)
	{
		int64		highest;

		begin_recovery(queue, lane, tasks);
		read_heads(tasks, priority);
		highest = recovery.highest;
		if (fairq_is_waiting(highest))
			highest = read_highest(tasks, queue->id, priority, FAIRQ_WAITING);

		/*
		 * If somebody changes rows all the time, be content with what was
		 * read; the mark then starts from the bottom, so nothing is missed.
		 */
		if (attempt >= 2)
			recovery.resets = pg_atomic_read_u64(&fairq_domain()->resets);
		/* others count what we ourselves have finished as long as it is open */
		fairq_lane_reaches(lane, fairq_debts_reach(lane));
		fairq_lane_publish(lane, recovery.resets, recovery.epoch, attempt < 2,
						   recovery.heads, recovery.nheads, highest,
						   queue->block_length);
		elog(DEBUG1, "read priority %d of queue \"%s\" off its table: " INT64_FORMAT " groups have tasks",
			 priority, queue->name, recovery.nheads);
		end_recovery();
	}
}

/* Another backend may have made known what this one had begun to read. */
void
fairq_recover_end(void)
{
	if (recovery.lane != NULL && fairq_lane_known(recovery.lane))
		end_recovery();
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
