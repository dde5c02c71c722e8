/*
 * survey.c
 *		A group's tasks: the numbers of waiting and running tasks, and the
 *		reason for waiting.
 *
 * The numbers: shared memory has lower bounds of addresses in a group's line
 * (lane_view.c).  They are for the first ready, running and timed tasks.  From
 * there on the survey reads a few index entries and their rows.  So its cost
 * does not depend on the group's backlog.  It estimates the number of further
 * tasks: there is a turn in each block up to the tail.  It counts the tasks of
 * a few turns, evenly spread, because weights may have changed since the
 * enqueue and some tasks are gone.  The group's counter gives the number of
 * running tasks, if it is known.
 *
 * The reason is the first obstacle that a pop would meet at this moment:
 *
 * - The queue, the group or its tenant is paused.
 * - The queue or the group has no slot.
 * - No task may start yet.
 * - A pop has found that the group waits for a retry.
 *
 * Otherwise the tasks wait for a pop: there are too few workers, or the
 * group's turn has not come.  The reason follows from settings and counters,
 * without reading a task.  While a counter is not known, after a restart or on
 * a standby, a limit gives no reason.
 *
 * A survey changes nothing: it makes no counter.
 *
 * Locking: a lane's lock, shared, for a moment, and the mutex of one counter
 * at a time.  The group's counter is pinned meanwhile.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "entry.h"
#include "group.h"
#include "lane_view.h"
#include "line.h"
#include "registry.h"
#include "survey.h"

/* the most index entries that are read in one section of a line */
#define MOST_ENTRIES 1000

/* ready tasks of a lane that are counted one by one */
#define MOST_COUNTED 50

/* turns at which tasks are counted for an estimate, and tasks of each */
#define TURNS_COUNTED 8
#define MOST_AT_TURN (MOST_ENTRIES / TURNS_COUNTED)

/* A survey of one lane of a group. */
typedef struct Look
{
	FairqTable *tasks;
	FairqQueue *queue;
	int			priority;
	int32		group_no;
	TimestampTz now;
	bool		counts;			/* tasks are counted */
	bool		counts_running;
	FairqSurvey *survey;
} Look;

/* Begin to read a section of the line. */
static FairqScan *
begin_stretch(const Look *look, int64 from, int64 end)
{
	int32		lane = fairq_task_lane(look->queue->id, look->priority);

	return fairq_scan_some(look->tasks, FAIRQ_TASK_BY_GROUP,
						   fairq_range_line(lane, look->group_no, from, end),
						   MOST_ENTRIES);
}

/*
 * Read the next task of a section that is not expired and that no other
 * transaction is changing.  False if there is none. *more is true if the
 * budget ended before the section.
 */
static bool
next_task(FairqScan *scan, TimestampTz now, FairqTask *task, bool *more)
{
	FairqRowState state;

	*more = false;
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		if (state == FAIRQ_ROW_LATER)
		{
			*more = true;
			return false;
		}
		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(scan->slot, task);
		if (!fairq_is_expired(task, now))
			return true;
	}
	return false;
}

/*
 * Returns the number of ready tasks at the group's turn in a block; if there
 * are too many to count, at least its weight.
 */
static int64
count_turn(const Look *look, int64 block)
{
	int64		addr = fairq_address(look->group_no, block,
									 look->queue->block_length);
	FairqScan  *scan = begin_stretch(look, addr, addr + 1);
	FairqTask	task;
	bool		more = false;
	int64		n = 0;

	while (n < MOST_AT_TURN && next_task(scan, look->now, &task, &more))
		n += !task.running;
	fairq_scan_end(scan);
	return n < MOST_AT_TURN && !more ? n :
		Max(n, fairq_group_setting(look->queue, look->group_no)->weight);
}

/*
 * Estimate the number of ready tasks, from the address of the first one.
 */
static int64
estimate(const Look *look, const FairqWait *wait, int64 first)
{
	int64		tail = wait->tail != FAIRQ_TAIL_UNKNOWN ? wait->tail :
		fairq_line_tail(look->tasks,
						fairq_task_lane(look->queue->id, look->priority),
						look->group_no, 0).addr;
	int64		block = fairq_block(first, look->queue->block_length);
	int64		nblocks = fairq_block(tail, look->queue->block_length) -
		block + 1;
	int64		n = 0;

	if (tail < first)
		return 0;
	for (int i = 0; i < TURNS_COUNTED; i++)
		n += count_turn(look, block + nblocks * (2 * i + 1) /
						(2 * TURNS_COUNTED));
	return (int64) ((double) n * nblocks / TURNS_COUNTED);
}

/*
 * Read queued tasks: count the ready ones, and find when the first became
 * ready.
 */
static void
look_at_queued(const Look *look, const FairqWait *wait)
{
	FairqScan  *scan;
	FairqTask	task;
	bool		more = false;
	int64		first = FAIRQ_ADDR_NONE;
	int64		ready = 0;

	if (wait->from >= FAIRQ_RETRIES)
		return;
	scan = begin_stretch(look, wait->from, FAIRQ_RETRIES);
	while (ready <= (look->counts ? MOST_COUNTED : 0) &&
		   next_task(scan, look->now, &task, &more))
	{
		if (task.running)
			continue;
		if (ready++ == 0)
		{
			first = task.addr;
			look->survey->since = Min(look->survey->since,
									  Max(task.enqueued_at, task.run_at));
		}
	}
	fairq_scan_end(scan);
	look->survey->unsure |= more && ready == 0;
	if (first != FAIRQ_ADDR_NONE && look->counts &&
		(more || ready > MOST_COUNTED))
		ready = Max(ready, estimate(look, wait, first));
	look->survey->ready += ready;
}

/* Find the first task of a region that is due, or that waits for its time. */
static void
look_at_timed(const Look *look, const FairqWait *wait, FairqRegion region)
{
	FairqScan  *scan;
	FairqTask	task;
	bool		more = false;

	if (wait->due_from[region] == FAIRQ_ADDR_MAX)
		return;
	scan = begin_stretch(look, wait->due_from[region],
						 fairq_region_from(region) + (FAIRQ_TIMED_SIZE - 1));
	while (next_task(scan, look->now, &task, &more))
	{
		if (task.running)
			continue;
		if (task.run_at > look->now || task.blocked)
			look->survey->scheduled = true;
		else
			look->survey->since = Min(look->survey->since, task.run_at);
		break;
	}
	look->survey->unsure |= more;
	fairq_scan_end(scan);
}

/* Read running tasks of a region: count them, and find lapsed ones. */
static void
look_at_running(const Look *look, const FairqWait *wait, FairqRegion region)
{
	int64		end = region == FAIRQ_REGION_QUEUED ?
		Min(wait->run_high, FAIRQ_RETRIES - 1) + 1 :
		fairq_region_from(region) + (FAIRQ_TIMED_SIZE - 1);
	FairqScan  *scan;
	FairqTask	task;
	bool		more;

	if (wait->run_low[region] >= end)
		return;
	scan = begin_stretch(look, wait->run_low[region], end);
	while (next_task(scan, look->now, &task, &more))
	{
		if (!task.running)
			continue;
		look->survey->running += look->counts_running;
		if (task.lease_until <= look->now)
			look->survey->ended = Min(look->survey->ended, task.lease_until);
	}
	fairq_scan_end(scan);
}

/*
 * Read the number of running tasks from the group's counter.  Returns false if
 * it is not known.
 */
bool
fairq_survey_counter(FairqQueue *queue, int32 group_no, int32 *running)
{
	FairqCounter *counter = fairq_shmem_find_counter(queue->hints, group_no);
	bool		known;

	if (counter == NULL)
		return false;
	known = fairq_counter_read(counter,
							   fairq_tally_now(&queue->hints->tally), true,
							   running);
	fairq_counter_unpin(counter);
	return known;
}

/* Read the whole line, because the group's lane is invalid. */
static void
read_all(FairqWait *wait)
{
	memset(wait, 0, sizeof(*wait));
	wait->waits = wait->leased = true;
	wait->deadline = DT_NOBEGIN;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		wait->due_from[r] = wait->run_low[r] = fairq_region_from(r);
	wait->from = fairq_region_from(FAIRQ_REGION_QUEUED);
	wait->tail = FAIRQ_TAIL_UNKNOWN;
	wait->run_high = FAIRQ_RETRIES - 1;
}

/* Survey one lane of the group. */
static void
survey_lane(const Look *look)
{
	FairqWait	wait;

	if (!fairq_lane_wait_of(fairq_queue_lane(look->queue, look->priority),
							look->group_no, &wait))
		read_all(&wait);
	if (wait.waits)
		look_at_queued(look, &wait);
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		look_at_timed(look, &wait, r);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		if (wait.deadline <= look->now || (look->counts_running && wait.leased))
			look_at_running(look, &wait, r);
}

/*
 * Survey all lanes of a group; without counts, find only how long tasks have
 * waited.
 */
void
fairq_survey(FairqQueue *queue, FairqTable *tasks, int32 group_no,
			 TimestampTz now, bool counts, FairqSurvey *survey)
{
	Look		look = {
		.tasks = tasks,
		.queue = queue,
		.group_no = group_no,
		.now = now,
		.counts = counts,
		.survey = survey
	};

	memset(survey, 0, sizeof(*survey));
	survey->since = survey->ended = DT_NOEND;
	look.counts_running = counts &&
		!fairq_survey_counter(queue, group_no, &survey->running);
	if (look.counts_running)
		survey->running = 0;
	for (look.priority = 0; look.priority < FAIRQ_PRIORITIES; look.priority++)
		survey_lane(&look);
}

/* Whether the queue is known to run as many tasks as its limit allows. */
static bool
is_queue_full(FairqQueue *queue)
{
	int32		running;

	return queue->max_running != FAIRQ_NO_LIMIT &&
		fairq_counter_read(&queue->hints->running,
						   fairq_tally_now(&queue->hints->tally), true,
						   &running) &&
		running >= queue->max_running;
}

/* Whether a group is known to run as many tasks as its limit allows. */
static bool
is_group_full(FairqQueue *queue, int32 group_no, int32 limit)
{
	int32		running;

	return limit != FAIRQ_NO_LIMIT &&
		fairq_survey_counter(queue, group_no, &running) && running >= limit;
}

/* The tenant of a group, if it may have settings; -1: none. */
static int32
tenant_with_settings(FairqQueue *queue, int32 group_no)
{
	return !queue->limited ? -1 : fairq_tenant_no(queue, group_no);
}

/* Whether a group or its tenant is paused. */
static bool
is_paused(FairqQueue *queue, int32 group_no)
{
	return fairq_is_paused(queue, group_no,
						   tenant_with_settings(queue, group_no));
}

/* Whether the group's tenant, if it has one, is known to be full. */
static bool
is_tenant_full(FairqQueue *queue, int32 group_no)
{
	int32		tenant = tenant_with_settings(queue, group_no);

	return is_group_full(queue, tenant,
						 fairq_tenant_setting(queue, tenant)->limit);
}

/* Convert a start on the monotonic clock to a time; 0: now. */
static TimestampTz
start_at(int64 start, TimestampTz now)
{
	return start == 0 ? DT_NOBEGIN : fairq_wall_time(start, now);
}

/*
 * Time at which the next task of the queue may start, by its rate and its
 * hold.
 */
static TimestampTz
queue_next_at(FairqQueue *queue, TimestampTz now)
{
	TimestampTz start = DT_NOBEGIN;

	if (queue->starts.pace.gap != 0)
		start = start_at(fairq_counter_next_start(&queue->hints->running,
												  &queue->starts.pace), now);
	return Max(queue->starts.held_until, start);
}

/*
 * Time at which the next task may start under settings of a group or tenant;
 * it may have no counter.
 */
static TimestampTz
next_at_under(FairqQueue *queue, int32 group_no, const FairqSetting *setting,
			  TimestampTz now)
{
	FairqCounter *counter;
	FairqCounter none;
	TimestampTz start;

	if (setting->pace.gap == 0)
		return setting->held_until;
	counter = fairq_shmem_find_counter(queue->hints, group_no);
	fairq_counter_init(&none, queue->hints->entry.tenure,
					   queue->hints->entry.born);
	start = start_at(fairq_counter_next_start(counter != NULL ? counter : &none,
											  &setting->pace), now);
	if (counter != NULL)
		fairq_counter_unpin(counter);
	return Max(setting->held_until, start);
}

/* Time at which the next task of a tenant may start; -1: there is none. */
static TimestampTz
tenant_next_at(FairqQueue *queue, int32 tenant, TimestampTz now)
{
	return next_at_under(queue, tenant,
						 fairq_tenant_setting(queue, tenant), now);
}

/* Time at which the next task of a group may start. */
static TimestampTz
group_next_at(FairqQueue *queue, int32 group_no, TimestampTz now)
{
	TimestampTz of_group =
		next_at_under(queue, group_no, fairq_group_setting(queue, group_no),
					  now);
	TimestampTz of_tenant =
		tenant_next_at(queue, tenant_with_settings(queue, group_no), now);

	return Max(of_group, of_tenant);
}

/*
 * Time at which the next task of a group or tenant may start, by rates and
 * holds, also the queue's; DT_NOBEGIN: now.
 */
TimestampTz
fairq_next_at(FairqQueue *queue, int32 group_no, bool is_tenant)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz of_queue = queue_next_at(queue, now);
	TimestampTz of_group = is_tenant ? tenant_next_at(queue, group_no, now) :
		group_next_at(queue, group_no, now);
	TimestampTz next = Max(of_queue, of_group);

	return next > now ? next : DT_NOBEGIN;
}

/*
 * Whether the group does not have its own limit, rate or hold, nor a tenant
 * that may have one.
 */
static bool
is_free(const FairqQueue *queue, const FairqSetting *setting)
{
	return (queue->shares.separator == 0 || !queue->limited) &&
		setting->limit == FAIRQ_NO_LIMIT && setting->pace.gap == 0 &&
		setting->held_until == DT_NOBEGIN;
}

/* Whether the queue has no limit, rate or hold, apart from a pause. */
static bool
is_queue_free(const FairqQueue *queue)
{
	return queue->max_running == FAIRQ_NO_LIMIT &&
		queue->starts.pace.gap == 0 &&
		queue->starts.held_until == DT_NOBEGIN;
}

/*
 * Obstacle for all groups of the queue; FAIRQ_REASON_WORKERS: there is none.
 */
FairqReason
fairq_queue_reason(FairqQueue *queue)
{
	TimestampTz now = GetCurrentTimestamp();

	return queue->paused ? FAIRQ_REASON_PAUSED :
		is_queue_full(queue) ? FAIRQ_REASON_QUEUE_LIMIT :
		queue_next_at(queue, now) > now ? FAIRQ_REASON_QUEUE_RATE :
		FAIRQ_REASON_WORKERS;
}

/*
 * Obstacle for this group only.  FAIRQ_REASON_RETRY is not among the results,
 * because only the sets of the group's lanes show that it waits for a retry.
 */
FairqReason
fairq_group_reason(FairqQueue *queue, int32 group_no)
{
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	TimestampTz now;

	if (is_free(queue, setting))
		return FAIRQ_REASON_WORKERS;
	if (is_paused(queue, group_no))
		return FAIRQ_REASON_PAUSED;
	if (is_group_full(queue, group_no, setting->limit) ||
		is_tenant_full(queue, group_no))
		return FAIRQ_REASON_LIMIT;
	now = GetCurrentTimestamp();
	return group_next_at(queue, group_no, now) > now ? FAIRQ_REASON_RATE :
		FAIRQ_REASON_WORKERS;
}

/* Whether a call has put the group aside, in some lane. */
static bool
is_put_aside(FairqQueue *queue, int32 group_no)
{
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		if (fairq_lane_is_throttled(fairq_queue_lane(queue, p), group_no))
			return true;
	return false;
}

/* Reason why the group's ready tasks, if there are any, do not run. */
FairqReason
fairq_reason(FairqQueue *queue, int32 group_no)
{
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	FairqReason of_queue;
	FairqReason reason;

	if (queue->paused || is_paused(queue, group_no))
		return FAIRQ_REASON_PAUSED;
	if (is_queue_free(queue) && is_free(queue, setting))
		return FAIRQ_REASON_WORKERS;
	if (RecoveryInProgress())
		return FAIRQ_REASON_NONE;
	of_queue = fairq_queue_reason(queue);
	reason = fairq_group_reason(queue, group_no);
	reason = Min(reason, of_queue);
	if (reason == FAIRQ_REASON_WORKERS && queue->retries.in_order &&
		is_put_aside(queue, group_no))
		return FAIRQ_REASON_RETRY;
	return reason;
}

/* Name of the reason in results of SQL functions; NULL: FAIRQ_REASON_NONE. */
const char *
fairq_reason_name(FairqReason reason)
{
	static const char *const names[] = {
		[FAIRQ_REASON_PAUSED] = "paused",
		[FAIRQ_REASON_QUEUE_LIMIT] = "queue_limit",
		[FAIRQ_REASON_LIMIT] = "limit",
		[FAIRQ_REASON_QUEUE_RATE] = "rate",
		[FAIRQ_REASON_RATE] = "rate",
		[FAIRQ_REASON_RETRY] = "retry",
		[FAIRQ_REASON_WORKERS] = "workers",
		[FAIRQ_REASON_SCHEDULED] = "scheduled"
	};

	return names[reason];
}
