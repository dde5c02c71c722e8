/*
 * due.c
 *		Finding what has fallen due in a lane.
 *
 * A task has fallen due if it was scheduled, or is to be retried, and its time
 * has come.  Its row is not touched here.  Its group is put into the set "due"
 * and into the ring, and its entry, if it has one, knows where to look
 * (lane.c); what it is served at its turn is decided there (turn.c).  So this
 * can be done by any call, in any transaction, for all.
 *
 * It is done in steps, each of which looks at a number of index entries.  A
 * pop takes one step before its first turns, and one more each time it has
 * taken turns, as long as there is more to find: groups found first must not
 * be served all they have before the others are found.  Where the next step
 * goes on is kept in shared memory (times.c).
 *
 * Of leases that have ended only the deadlines are looked at, in the lane,
 * which takes a moment.  Those of before a restart a load finds (load.c).
 *
 * Locking: one backend at a time searches a lane, which is a flag in it.  The
 * flag is taken back at the end of the step, at the latest by the callbacks at
 * the end of the transaction or subtransaction.  The lane's lock is held for
 * moments.
 */
#include "postgres.h"

#include "due.h"
#include "lane.h"
#include "transaction.h"

/*
 * Index entries that are looked at in one step; and as many more as have
 * something to publish, up to a limit.  That is about 1 ms, or 10.
 */
#define STEP_ENTRIES 4096
#define MAX_PUBLISHED 32768

/* the lane that this backend searches, and its number */
static FairqLane *searched_lane = NULL;
static uint32 searched_lane_no = 0;

/* Take the flag back, if an error has ended the search.  For callbacks. */
static void
end_call(void)
{
	if (searched_lane != NULL)
		fairq_lane_search_end(searched_lane, searched_lane_no, NULL);
	searched_lane = NULL;
}

/* A search for what has fallen due. */
typedef struct Search
{
	FairqQueue *queue;			/* queue that is searched */
	int			priority;		/* priority of the lane that is searched */
	uint32		lane_no;		/* lane_no of the lane */
	TimestampTz now;			/* time by which tasks have fallen due */
	int64	   *found;			/* number of tasks that were published */
} Search;

/*
 * Publish that the task has fallen due.  False if the lane is another by now.
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
 * Publish the tasks of a timed region of the lane that have fallen due, from
 * an address on, in the order in which they stand.  It is one step: returns
 * where the rest begins.
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
						   fairq_range_times(lane, from, last), false,
						   STEP_ENTRIES);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state == FAIRQ_ROW_LATER)
		{
			/* but so far that the next search gets further */
			next = fairq_scan_reached(scan);
			if (next > from)
				break;
			next = FAIRQ_ADDR_MAX;
			continue;
		}
		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(fairq_scan_slot(scan), &task);
		if (task.addr < end && task.running)
			continue;
		if (task.addr >= end || !publish_due(search, &task))
		{
			next = task.addr;
			break;
		}
		if (npublished++ < MAX_PUBLISHED)
			fairq_scan_more(scan);
	}
	fairq_scan_end(scan);
	return next;
}

/*
 * Do one step of the search for timed tasks that have fallen due, and count what was
 * found.  False if nothing more can be done about it at this moment.
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
 * Do one step of the search for what has fallen due or lapsed, and count what was
 * found.  False if there is nothing to look for, or nothing more can be done about
 * it at this moment.
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

static const FairqEnding ending = {.end_call = end_call};

/* Once per backend: end searches when transactions end. */
void
fairq_due_init(void)
{
	fairq_at_end(&ending);
}
