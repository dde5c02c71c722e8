/*
 * due.c
 *		Tasks that become due; the ends of leases and of expired tasks.
 *
 * A task is due if it was scheduled, or waits for a retry, and its time has
 * come.  Its row is not touched here.  A search puts its group into the set
 * "due" and into the ring.  The group's entry, if there is one, has the
 * addresses to search (lane.c).  The group's turn decides which tasks are
 * served (turn.c).  So any call can search in any transaction, for all
 * sessions.
 *
 * A search takes steps, each of which reads a number of index entries.  A pop
 * takes one step before its first turns, and one more each time after it has
 * taken turns, until the search is complete.  Otherwise the groups found first
 * would be served completely before others are found.  Shared memory keeps
 * where the next step begins (times.c).
 *
 * For expired leases, a search only checks the deadlines of the lane, which is
 * fast.  A load finds the leases from before a restart (load.c).
 *
 * Pops end expired leases, and tasks that are expired, at the turns of their
 * groups.  A sweep ends those of all groups of a queue at once.  It searches
 * for running tasks where they are possible according to shared memory, and
 * for expired tasks with an index.
 *
 * Locking: one backend at a time searches a lane; a flag in the lane ensures
 * this.  The flag is cleared at the end of the step, at the latest by the
 * callbacks at the end of the transaction or subtransaction.  The lane's lock
 * is held only briefly.  For a sweep the caller has the queue locked; it takes
 * RowExclusiveLock on fairq.task, and skips rows that other transactions have
 * locked.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "due.h"
#include "lane.h"
#include "line.h"
#include "load.h"
#include "outcome.h"
#include "transaction.h"

/*
 * Index entries that one step reads.  Each published task adds one more, up to
 * a limit.  A step takes about 1 ms, or 10 ms with all of these.
 */
#define STEP_ENTRIES 4096
#define MAX_PUBLISHED 32768

/* the lane that this backend searches, and its number */
static FairqLane *searched_lane = NULL;
static uint32 searched_lane_no = 0;

/* Clear the flag if an error has ended the search.  For callbacks. */
static void
end_call(void)
{
	if (searched_lane != NULL)
		fairq_lane_search_end(searched_lane, searched_lane_no, NULL);
	searched_lane = NULL;
}

/* A search for tasks that have become due. */
typedef struct Search
{
	FairqQueue *queue;			/* queue that is searched */
	int			priority;		/* priority of the lane that is searched */
	uint32		lane_no;		/* lane_no of the lane */
	TimestampTz now;			/* time by which tasks have become due */
	int64	   *found;			/* number of tasks that were published */
} Search;

/*
 * Publish that the task has become due.  Returns false if another recovery of
 * the lane has begun since.
 */
static bool
publish_due(const Search *search, const FairqTask *task)
{
	fairq_chunks_have(&search->queue->hints->chunks, task->group_no);
	if (!fairq_lane_add_due(fairq_queue_lane(search->queue, search->priority),
							search->lane_no, task->group_no, task->addr))
		return false;
	(*search->found)++;
	return true;
}

/*
 * Publish the due tasks of a timed region of the lane, from an address on, in
 * the order of addresses.  This is one step: returns where the rest begins.
 */
static int64
search_region(const Search *search, FairqTable *tasks, FairqRegion region,
			  int64 from)
{
	int64		end = fairq_due_end(region, search->now);
	int32		lane = fairq_task_lane(search->queue->id, search->priority);
	int64		last = fairq_region_from(region) + (FAIRQ_TIMED_SIZE - 1);
	FairqScan  *scan;
	int64		next = FAIRQ_ADDR_MAX;
	int64		npublished = 0;
	FairqRowState state;

	if (from >= end)
		return from;
	scan = fairq_scan_some(tasks, FAIRQ_TASK_BY_TIME,
						   fairq_range_times(lane, from, last), STEP_ENTRIES);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state == FAIRQ_ROW_LATER)
		{
			/* stop only if the next search begins at a later place */
			next = fairq_scan_reached(scan);
			if (next > from)
				break;
			next = FAIRQ_ADDR_MAX;
			continue;
		}
		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(scan->slot, &task);
		if (task.addr < end && task.running)
			continue;
		if (task.addr >= end || !publish_due(search, &task))
		{
			next = task.addr;
			break;
		}
		if (npublished++ < MAX_PUBLISHED)
			scan->budget++;
	}
	fairq_scan_end(scan);
	return next;
}

/*
 * Do one step of the search for timed tasks that have become due, and count
 * those found.  Returns false if no more can be found at the moment.
 */
bool
fairq_find_timed(FairqQueue *queue, int priority, FairqTable *tasks,
				 TimestampTz now, int64 *found)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	FairqTimerSearch timers;
	Search		search = {
		.queue = queue,
		.priority = priority,
		.lane_no = fairq_lane_search_begin(lane, now, &timers),
		.now = now,
		.found = found
	};
	bool		further = false;

	if (search.lane_no == 0)
		return false;
	searched_lane = lane;
	searched_lane_no = search.lane_no;
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
	{
		int64		from = timers.timers[r];

		timers.timers[r] = search_region(&search, tasks, r, from);
		further |= timers.timers[r] != from;
	}
	searched_lane = NULL;
	fairq_lane_search_end(lane, search.lane_no, &timers);
	return further;
}

/*
 * Do one step of the search for due and lapsed tasks, and count those found.
 * Returns false if there are none, or no more can be found at the moment.
 */
bool
fairq_find_due(FairqQueue *queue, int priority, FairqTable *tasks,
			   TimestampTz now, int64 *found)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	int64		lapsed;

	if (!fairq_times_due(&lane->times, now))
		return false;
	lapsed = fairq_lane_lapse(lane, now);
	*found += lapsed;
	return fairq_find_timed(queue, priority, tasks, now, found) || lapsed > 0;
}

/* One sweep through a queue. */
typedef struct Sweep
{
	FairqQueue *queue;
	FairqTable *tasks;
	FairqScan  *scan;			/* scan of tasks that may have to end; NULL:
								 * none yet */
	TimestampTz now;			/* time at which it began */
	int64		most;			/* most tasks to end */
	int64		ended;			/* tasks that were ended so far */
	MemoryContext each;			/* memory for one task */
	bool		(*is_over) (const FairqTask *task, TimestampTz now);
	void		(*end) (FairqQueue *queue, FairqTable *tasks, FairqTask *task);
} Sweep;

static bool
has_lapsed(const FairqTask *task, TimestampTz now)
{
	return task->running && task->lease_until <= now;
}

static void
begin_sweep(Sweep *sweep)
{
	sweep->now = GetCurrentTimestamp();
	sweep->tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	sweep->each = AllocSetContextCreate(CurrentMemoryContext, "fairq task",
										ALLOCSET_DEFAULT_SIZES);
}

/* End the tasks of the scan whose lease or time is over. */
static void
end_found(Sweep *sweep, bool in_order)
{
	FairqTask	task;
	FairqRowState state;

	while (sweep->ended < sweep->most &&
		   (state = fairq_task_next(sweep->scan, &task,
									in_order)) != FAIRQ_ROW_END)
	{
		MemoryContext old;

		if (state != FAIRQ_ROW_LIVE || !sweep->is_over(&task, sweep->now) ||
			fairq_task_lock(sweep->tasks, &task, LockTupleExclusive) !=
			FAIRQ_CLAIMED ||
			!sweep->is_over(&task, sweep->now))
			continue;
		old = MemoryContextSwitchTo(sweep->each);
		sweep->end(sweep->queue, sweep->tasks, &task);
		MemoryContextSwitchTo(old);
		MemoryContextReset(sweep->each);
		sweep->ended++;
	}
}

/* Returns the number of tasks that it has ended. */
static int64
end_sweep(Sweep *sweep)
{
	fairq_scan_end(sweep->scan);
	fairq_table_close(sweep->tasks);
	MemoryContextDelete(sweep->each);
	if (sweep->ended > 0)
		fairq_written();
	return sweep->ended;
}

/* End expired leases of all groups of a lane that are leased. */
static void
end_lapsed_in_lane(Sweep *sweep, int priority)
{
	FairqLane  *lane = fairq_queue_lane(sweep->queue, priority);

	for (int32 group_no = 0; fairq_lane_next_leased(lane, &group_no); group_no++)
	{
		CHECK_FOR_INTERRUPTS();
		for (int r = 0; r < FAIRQ_REGIONS && sweep->ended < sweep->most; r++)
		{
			sweep->scan = fairq_line_search(sweep->scan, sweep->tasks,
											fairq_task_lane(sweep->queue->id,
															priority),
											group_no, fairq_region_from(r),
											fairq_lane_reach(lane, r) + 1);
			end_found(sweep, true);
		}
		if (sweep->ended == sweep->most || group_no == PG_INT32_MAX)
			break;
	}
}

/* End at most max_tasks of the queue's expired leases.  Returns how many. */
int64
fairq_end_all_lapsed(FairqQueue *queue, int64 most)
{
	Sweep		sweep = {
		.queue = queue,
		.most = most,
		.is_over = has_lapsed,
		.end = fairq_end_lapsed
	};

	begin_sweep(&sweep);
	/* after these two, leases are known, even those of our own transaction */
	(void) fairq_load_finish(queue, sweep.tasks);
	(void) fairq_pending_show(queue->hints);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		end_lapsed_in_lane(&sweep, priority);
	if (sweep.ended > 0)
		fairq_notify(queue);
	return end_sweep(&sweep);
}

/*
 * Finish the queue's tasks that are expired.  Returns their number.
 */
int64
fairq_finish_all_expired(FairqQueue *queue)
{
	Sweep		sweep = {
		.queue = queue,
		.most = PG_INT64_MAX,
		.is_over = fairq_is_expired,
		.end = fairq_finish_expired
	};
	FairqRange	range = fairq_range(Int32GetDatum(queue->id));

	begin_sweep(&sweep);
	range = fairq_range_before(range, TimestampTzGetDatum(sweep.now));
	sweep.scan = fairq_scan_begin(sweep.tasks, FAIRQ_TASK_BY_EXPIRES_AT,
								  range);
	end_found(&sweep, false);
	return end_sweep(&sweep);
}

/* End the transaction's searches. */
const FairqEnding fairq_due_ending = {.end_call = end_call};
