/*
 * sweep.c
 *		Ending what time has ended in a queue: leases, and tasks that are outdated.
 *
 * Pops do so by themselves, at the turns of the groups.  Here it is done for all
 * groups at once.  Running tasks are looked for where shared memory says that there
 * may be some, outdated ones by an index.
 *
 * Locking: the caller has the queue locked.  RowExclusiveLock on fairq.task; rows
 * that other transactions have locked are left alone.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "load.h"
#include "line.h"
#include "outcome.h"
#include "shown.h"
#include "sweep.h"
#include "transaction.h"

/* One sweep through a queue. */
typedef struct Sweep
{
	FairqQueue *queue;
	FairqTable *tasks;
	FairqScan  *scan;			/* scan of what may be over; NULL: none yet */
	TimestampTz now;			/* time as of which it is */
	int64		most;			/* tasks to be ended, at most */
	int64		ended;			/* tasks that were ended so far */
	MemoryContext each;			/* memory for one task */
	bool		(*is_over) (const FairqTask *task, TimestampTz now);
	void		(*end) (FairqQueue *queue, FairqTable *tasks, FairqTask *task);
} Sweep;

static bool
has_expired(const FairqTask *task, TimestampTz now)
{
	return task->running && task->lease_until <= now;
}

static void
begin_sweep(Sweep *sweep)
{
	sweep->now = GetCurrentTimestamp();
	sweep->tasks = fairq_table_open(fairq_catalog()->task, RowExclusiveLock);
	sweep->each = AllocSetContextCreate(CurrentMemoryContext, "fairq task",
										ALLOCSET_DEFAULT_SIZES);
}

/* End the tasks that the scan comes by and that are over. */
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
			fairq_task_lock(sweep->tasks, &task) != FAIRQ_CLAIMED ||
			!sweep->is_over(&task, sweep->now))
			continue;
		old = MemoryContextSwitchTo(sweep->each);
		sweep->end(sweep->queue, sweep->tasks, &task);
		MemoryContextSwitchTo(old);
		MemoryContextReset(sweep->each);
		sweep->ended++;
	}
}

/* Returns how many tasks were ended. */
static int64
end_sweep(Sweep *sweep)
{
	if (sweep->scan != NULL)
		fairq_scan_end(sweep->scan);
	fairq_table_close(sweep->tasks);
	MemoryContextDelete(sweep->each);
	if (sweep->ended > 0)
		fairq_written();
	return sweep->ended;
}

/* End expired leases in all lines of a lane of which something is leased. */
static void
expire_in_lane(Sweep *sweep, int priority)
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

/* End the queue's expired leases, so many at most.  Returns how many were ended. */
int64
fairq_expire_all(FairqQueue *queue, int64 most)
{
	Sweep		sweep = {
		.queue = queue,
		.most = most,
		.is_over = has_expired,
		.end = fairq_expire
	};

	begin_sweep(&sweep);
	/* what is leased is known after these two, also in our own transaction */
	(void) fairq_load_finish(queue, sweep.tasks);
	(void) fairq_pending_show(queue->hints);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		expire_in_lane(&sweep, priority);
	if (sweep.ended > 0)
		fairq_notify(queue);
	return end_sweep(&sweep);
}

/* Finish the queue's tasks that are outdated.  Returns how many were finished. */
int64
fairq_finish_all_outdated(FairqQueue *queue)
{
	Sweep		sweep = {
		.queue = queue,
		.most = PG_INT64_MAX,
		.is_over = fairq_is_outdated,
		.end = fairq_finish_outdated
	};
	FairqRange	range = fairq_range(Int32GetDatum(queue->id));

	begin_sweep(&sweep);
	range = fairq_range_before(range, TimestampTzGetDatum(sweep.now));
	sweep.scan = fairq_scan_begin(sweep.tasks, FAIRQ_TASK_BY_EXPIRES_AT, range,
								  false);
	end_found(&sweep, false);
	return end_sweep(&sweep);
}
