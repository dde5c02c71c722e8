/*
 * turns_before.c
 *		fairq.turns_before: a bound on the tasks that are served before one.
 *
 * Assume that k tasks of a group of weight w are before one of its tasks.
 * Each turn of the group serves w of these, as long as there are w.  So the
 * task is served at turn k / w + 1 at the latest.  A group has one turn in
 * each block.  Its next turn is in this block, or in the next one if it has
 * had this one.  No other group has more than one turn in a block.  So the
 * turns of another group are at most the blocks from this one up to that turn.
 * At each turn it is served at most its weight in tasks.
 *
 * The tasks before it are the group's queued tasks at lower addresses, its due
 * tasks, and those whose leases have ended.  The call counts a bounded number
 * of them.  If more are queued, their number follows from the addresses: from
 * the first one's block on, each block has at most w.
 *
 * Groups in the ring are served, and so are parked or throttled groups, which
 * may return to it.  A group that joins later has a turn in each block from
 * then on.
 *
 * The cost does not depend on the backlog, only on the number of groups that
 * have their own weight.
 *
 * Locking: AccessShareLock on fairq.task and the queue, to the end of the
 * transaction; a lane's lock, shared, briefly.
 */
#include "postgres.h"

#include "common/int.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "args.h"
#include "lane_view.h"
#include "store.h"

PG_FUNCTION_INFO_V1(fairq_turns_before);

/* most index entries that are read */
#define MOST_ENTRIES 1000

/* no bound is known */
#define UNKNOWN (-1)

/* A count of the tasks before one in its group's line. */
typedef struct Look
{
	FairqQueue *queue;
	FairqTable *tasks;
	const FairqTask *task;
	TimestampTz now;
	int			budget;			/* index entries that may still be read */
	bool		more;			/* true: there were not enough */
	int64		n;				/* tasks that were found */
	int64		first;			/* address of the first task in the last
								 * section; FAIRQ_ADDR_NONE: none */
} Look;

/* Whether the row is that of a task before ours. */
static bool
comes_before(const Look *look, const FairqTask *task, FairqRowState state,
			 bool lapsed)
{
	if (lapsed)
		return state == FAIRQ_ROW_LIVE && task->running &&
			task->lease_until <= look->now;
	/* a task that another transaction is changing may return, or be new */
	return !task->running &&
		(task->addr != look->task->addr || task->id < look->task->id);
}

/* Count the tasks before ours in a section of its group's line. */
static void
count_stretch(Look *look, int64 from, int64 end, bool lapsed)
{
	const FairqTask *own = look->task;
	int32		lane = fairq_task_lane(look->queue->id, own->priority);
	FairqScan  *scan;
	FairqRowState state;

	look->first = FAIRQ_ADDR_NONE;
	if (from >= end || look->more)
		return;
	scan = fairq_scan_some(look->tasks, FAIRQ_TASK_BY_GROUP,
						   fairq_range_line(lane, own->group_no, from, end),
						   look->budget);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		look->more = state == FAIRQ_ROW_LATER;
		if (look->more)
			break;
		fairq_task_read(scan->slot, &task);
		if (!comes_before(look, &task, state, lapsed))
			continue;
		if (look->n++ == 0 || look->first == FAIRQ_ADDR_NONE)
			look->first = task.addr;
	}
	look->budget = Max(scan->budget, 0);
	fairq_scan_end(scan);
}

/* Count lapsed and due tasks. */
static void
count_begun(Look *look, const FairqWait *wait)
{
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		count_stretch(look, wait->due_from[r], fairq_due_end(r, look->now),
					  false);
	if (wait->deadline > look->now)
		return;
	count_stretch(look, wait->run_low[FAIRQ_REGION_QUEUED],
				  Min(wait->run_high, FAIRQ_RETRIES - 1) + 1, true);
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		count_stretch(look, wait->run_low[r], fairq_due_end(r, look->now),
					  true);
}

/* Returns the greatest number of its group's tasks that precede it. */
static int64
own_ahead(Look *look, const FairqWait *wait, int32 weight)
{
	int64		begun;
	int64		blocks;

	count_begun(look, wait);
	if (look->more)
		return UNKNOWN;
	begun = look->n;
	count_stretch(look, Min(wait->from, look->task->addr),
				  look->task->addr + 1, false);
	if (!look->more)
		return look->n;
	if (look->first == FAIRQ_ADDR_NONE)
		return UNKNOWN;
	blocks = fairq_block(look->task->addr, look->queue->block_length) -
		fairq_block(look->first, look->queue->block_length) + 1;
	return begun + Max(look->n - begun, blocks * weight - 1);
}

/*
 * Returns the greatest number of tasks of all other groups that are served in
 * a block.
 */
static int64
others_per_block(FairqQueue *queue, FairqLane *lane, const FairqLaneView *view,
				 const FairqWait *own)
{
	FairqSettingsWalk walk;
	const FairqSetting *setting;
	int64		n;

	n = fairq_lane_view_waiting(view) - own->waits;
	fairq_settings_walk(&queue->groups, &walk);
	while ((setting = fairq_settings_next(&walk)) != NULL)
	{
		FairqWait	wait;

		CHECK_FOR_INTERRUPTS();
		if (setting->weight == 1 || setting->group_no == own->group_no)
			continue;
		if (fairq_lane_wait_of(lane, setting->group_no, &wait) && wait.waits)
			n += setting->weight - 1;
	}
	return Max(n, 0);
}

/*
 * Returns the greatest number of tasks of its priority that are served before
 * a queued task, or UNKNOWN.  The reference lists its assumptions.
 */
static int64
tasks_ahead(FairqQueue *queue, FairqTable *tasks, const FairqTask *task)
{
	FairqLane  *lane = fairq_queue_lane(queue, task->priority);
	int32		weight = fairq_group_setting(queue, task->group_no)->weight;
	Look		look = {
		.queue = queue,
		.tasks = tasks,
		.task = task,
		.now = GetCurrentTimestamp(),
		.budget = MOST_ENTRIES
	};
	FairqLaneView view;
	FairqWait	own;
	int64		n;
	int64		blocks;
	int64		others;

	if (queue->shares.fair_by != FAIRQ_BY_TASKS)
		return UNKNOWN;
	fairq_lane_view(lane, &view);
	if (!view.begun || view.known < FAIRQ_ALL_SEATS ||
		!fairq_lane_wait_of(lane, task->group_no, &own))
		return UNKNOWN;
	n = own_ahead(&look, &own, weight);
	if (n == UNKNOWN)
		return UNKNOWN;
	/* its next turn is in the present block, or in the next one */
	blocks = n / weight + 1 +
		fairq_block(own.next_turn, queue->block_length) - view.block;
	if (pg_mul_s64_overflow(blocks, others_per_block(queue, lane, &view, &own),
							&others) ||
		pg_add_s64_overflow(n, others, &others))
		return PG_INT64_MAX;
	return others;
}

/* fairq.turns_before(id) */
Datum
fairq_turns_before(PG_FUNCTION_ARGS)
{
	FairqTable *tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	int64		ahead = UNKNOWN;
	FairqQueue *queue;
	FairqTask	task;
	bool		changing;

	if (!PG_ARGISNULL(0) &&
		fairq_task_find_nowait(tasks, PG_GETARG_INT64(0), &task, &changing) &&
		!task.running && !fairq_is_timed(task.addr) &&
		!fairq_is_expired(&task, GetCurrentTimestamp()) &&
	/*
	 * the result reveals the backlog of the group, possibly another tenant's
	 */
		(queue = fairq_queue_use_id(task.queue_id, FAIRQ_PRIV_MONITOR,
									true)) != NULL)
		ahead = tasks_ahead(queue, tasks, &task);
	fairq_table_close(tasks);
	if (ahead == UNKNOWN)
		PG_RETURN_NULL();
	PG_RETURN_INT64(ahead);
}
