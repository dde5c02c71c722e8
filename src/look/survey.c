/*
 * survey.c
 *		Groups that wait or run: their number, their tasks, how long the tasks
 *		have waited, and why.
 *
 * Survey of one group.  Shared memory has lower bounds for the addresses of a
 * group's first ready, running and timed tasks (lane_view.c).  From these
 * addresses on, the survey reads a few index entries and their rows.  So its
 * cost does not depend on the group's backlog.  It estimates the number of
 * further tasks from the blocks up to the tail, since each block has a turn.
 * It counts the tasks of a few turns, evenly spread, because weights may have
 * changed since the enqueue and some tasks are gone.  The group's counter
 * gives the number of running tasks, if it is known.
 *
 * The reason is the first obstacle that a pop would meet at this moment:
 *
 * - The queue, the group or its tenant is paused.
 * - The queue or the group has no slot.
 * - A rate or a hold allows no start yet.
 * - A pop has found that the group waits for a retry.
 *
 * Otherwise the tasks wait for a pop: there are too few workers, or the
 * group's turn has not come.  The reason follows from settings and counters,
 * so no task is read.  While a counter is not known, after a restart or on a
 * standby, a limit gives no reason.
 *
 * For a whole queue, a call walks through the groups that wait or run, in the
 * order of their numbers.  It reads all lanes at the same time (lane_view.c).
 * Each group takes a quarter of a microsecond.  A call visits at most
 * MOST_VISITED groups.
 *
 * A group's entry has the earliest time since which its first task may have
 * waited.  If a task was published while the group had none, that is the time
 * at which the task became ready.  From then on it is the time of the queued
 * or scheduled task that was claimed last at a turn of the group.  That time
 * is a lower bound because a line is served in the order in which its tasks
 * became ready, except for late commits.  If a task is published with an
 * earlier time, because it was put back, the entry takes that time.
 *
 * So the time is at most one task too early.  It can also be entirely wrong,
 * because the sets do not change when tasks are cancelled, purged or
 * postponed.  So the call surveys the group with the earliest time, which
 * gives the exact time, and then the next group.  It stops when the earliest
 * time is an exact one: that is the time of the oldest task.  Usually it reads
 * one or two groups.  A group without an entry, after a restart or because
 * other groups needed the entry, has no time, and is read first.  The call
 * reads at most MOST_READ groups.  After that it shows the oldest task of
 * these, or, if there is none, the earliest time of the other groups.
 *
 * A blocked task that is due waits for a pop only if its own wait is over.
 * Otherwise the survey skips it and continues with the next due task.
 *
 * Lapsed tasks are found in the same way, by the deadlines of leases.  Such a
 * deadline is never shown by itself, as the lease may have been extended.  The
 * groups of due tasks that no call has found yet may be in no set.  The call
 * reads them from the index of times.
 *
 * If more groups wait than a call may visit, it begins with those whose turns
 * come next.  They have waited longest for service.  The call extrapolates the
 * numbers from the groups that it has visited.
 *
 * If shared memory has no lane of a queue, the table may contain any tasks.
 * So the numbers are not known, unless the counts of commits show that the
 * queue has no tasks.
 *
 * No code here changes anything or creates a counter.
 *
 * Locking: a lane's lock, shared, for a moment, and the mutex of one counter
 * at a time.  The group's counter is pinned meanwhile.  A walk takes a lane's
 * lock, shared, for FAIRQ_WAITS groups; its caller has the queue locked.
 *
 * fairq_waiting() takes an AccessShareLock on the queue for the duration of
 * the call, because groups' bits are freed with its hints.  If that lock is
 * not available, the queue is being dropped or gets another block length, and
 * the numbers are not known.  fairq_waiting() takes an AccessShareLock on
 * fairq.task, to the end of the transaction; if that lock is not available,
 * the call reads no task.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "blocked.h"
#include "entry.h"
#include "group.h"
#include "lane_view.h"
#include "line.h"
#include "registry.h"
#include "store.h"
#include "survey.h"

/* the most index entries that are read in one section of a line */
#define SECTION_ENTRIES 1000

/* budget that a check of a blocked task uses up, in index entries */
#define CHECK_ENTRIES 4

/* ready tasks of a lane that are counted one by one */
#define MOST_COUNTED 50

/*
 * turns at which tasks are counted for an estimate, and the most tasks that
 * are counted at each turn
 */
#define TURNS_COUNTED 8
#define MOST_AT_TURN (SECTION_ENTRIES / TURNS_COUNTED)

/* Why ready tasks do not run.  The first reason that applies is shown. */
typedef enum FairqReason
{
	FAIRQ_REASON_PAUSED,		/* the queue, the group or its tenant is
								 * paused */
	FAIRQ_REASON_QUEUE_LIMIT,	/* the queue has no slot */
	FAIRQ_REASON_LIMIT,			/* the group or its tenant has no slot */
	FAIRQ_REASON_QUEUE_RATE,	/* no task of the queue may start yet */
	FAIRQ_REASON_RATE,			/* no task of the group may start yet */
	FAIRQ_REASON_RETRY,			/* the group waits for the retry of a task */
	FAIRQ_REASON_WORKERS		/* there is no known obstacle: the tasks wait
								 * for a pop */
} FairqReason;

/* A survey of one lane of a group. */
typedef struct LaneSurvey
{
	FairqTable *tasks;
	FairqQueue *queue;
	int			priority;
	int32		group_no;
	TimestampTz now;
	bool		counts;			/* true: tasks are counted */
	bool		counts_running;
	FairqSurvey *survey;
} LaneSurvey;

/* Begin to read a section of the line. */
static FairqScan *
begin_stretch(const LaneSurvey *look, int64 from, int64 end)
{
	int32		lane = fairq_task_lane(look->queue->id, look->priority);

	return fairq_scan_some(look->tasks, FAIRQ_TASK_BY_GROUP,
						   fairq_range_line(lane, look->group_no, from, end),
						   SECTION_ENTRIES);
}

/*
 * Read a section's next task that is not expired and that no other transaction
 * is changing.  Returns false if there is none. *more is true if the budget
 * was used up before the end of the section.
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
count_turn(const LaneSurvey *look, int64 block)
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
estimate(const LaneSurvey *look, const FairqWait *wait, int64 first)
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
look_at_queued(const LaneSurvey *look, const FairqWait *wait)
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

/*
 * Whether a due task is blocked, and a pop would not make it ready.  The check
 * uses up a part of the scan's budget.
 */
static bool
is_blocked(FairqTable *tasks, FairqScan *scan, const FairqTask *task)
{
	if (!task->blocked)
		return false;
	scan->budget -= CHECK_ENTRIES;
	return !fairq_blocked_may_be_over(tasks, task->id);
}

/*
 * Find a region's first task that is due and not blocked, or that waits for
 * its time.
 */
static void
look_at_timed(const LaneSurvey *look, const FairqWait *wait,
			  FairqRegion region)
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
		if (task.run_at > look->now)
		{
			look->survey->scheduled |= !task.blocked;
			if (task.blocked)
				look->survey->blocked = task.id;
			break;
		}
		if (!is_blocked(look->tasks, scan, &task))
		{
			look->survey->since = Min(look->survey->since, task.run_at);
			break;
		}
		look->survey->blocked = task.id;
	}
	look->survey->unsure |= more;
	fairq_scan_end(scan);
}

/* Read running tasks of a region: count them, and find lapsed ones. */
static void
look_at_running(const LaneSurvey *look, const FairqWait *wait,
				FairqRegion region)
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
 * Read the number of running tasks from the counter of the group, or of the
 * queue (-1).  Returns false if it is not known.
 */
bool
fairq_survey_counter(FairqQueue *queue, int32 group_no, int32 *running)
{
	FairqCounter *counter = group_no < 0 ? &queue->hints->running :
		fairq_shmem_counter(queue->hints, group_no, false);
	bool		known;

	if (counter == NULL)
		return false;
	known = fairq_counter_read(counter,
							   fairq_tally_now(&queue->hints->tally), true,
							   running);
	if (group_no >= 0)
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
survey_lane(const LaneSurvey *look)
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
	LaneSurvey	look = {
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

/* Whether a group, or the queue (-1), is known to have no slot. */
static bool
is_full(FairqQueue *queue, int32 group_no, int32 limit)
{
	int32		running;

	return limit != FAIRQ_NO_LIMIT &&
		fairq_survey_counter(queue, group_no, &running) && running >= limit;
}

/* The tenant of a group, if that tenant may have settings; -1: none. */
static int32
tenant_with_settings(FairqQueue *queue, int32 group_no)
{
	return !queue->limited ? -1 : fairq_tenant_no(queue, group_no);
}

/* Returns the time at which a rate and a hold allow the next task to start. */
static TimestampTz
next_start(FairqCounter *counter, const FairqPace *pace,
		   TimestampTz held_until, TimestampTz now)
{
	int64		start = pace->gap == 0 ? 0 :
		fairq_counter_next_start(counter, pace, 0);

	return start == 0 ? held_until :
		Max(held_until, fairq_wall_time(start, now));
}

/* Returns the time at which the next task of the queue may start. */
static TimestampTz
queue_next_at(FairqQueue *queue, TimestampTz now)
{
	return next_start(&queue->hints->running, &queue->starts.pace,
					  queue->starts.held_until, now);
}

/*
 * Returns the time at which the next task may start under the settings of a
 * group or tenant, which may have no counter.
 */
static TimestampTz
next_at_under(FairqQueue *queue, int32 group_no, const FairqSetting *setting,
			  TimestampTz now)
{
	FairqCounter *counter;
	FairqCounter none;
	TimestampTz next;

	if (setting->pace.gap == 0)
		return setting->held_until;
	counter = fairq_shmem_counter(queue->hints, group_no, false);
	fairq_counter_init(&none, queue->hints->entry.tenure,
					   queue->hints->entry.born);
	next = next_start(counter != NULL ? counter : &none, &setting->pace,
					  setting->held_until, now);
	if (counter != NULL)
		fairq_counter_unpin(counter);
	return next;
}

/* Returns the time at which the next task of a group may start. */
static TimestampTz
group_next_at(FairqQueue *queue, int32 group_no, TimestampTz now)
{
	TimestampTz of_group =
		next_at_under(queue, group_no, fairq_group_setting(queue, group_no),
					  now);
	int32		tenant = tenant_with_settings(queue, group_no);
	TimestampTz of_tenant =
		next_at_under(queue, tenant, fairq_tenant_setting(queue, tenant), now);

	return Max(of_group, of_tenant);
}

/*
 * Returns when the next task of a group or tenant may start, given its rates
 * and holds and those of the queue; DT_NOBEGIN: now.
 */
TimestampTz
fairq_next_at(FairqQueue *queue, int32 group_no, bool is_tenant)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz of_queue = queue_next_at(queue, now);
	TimestampTz of_group = !is_tenant ? group_next_at(queue, group_no, now) :
		next_at_under(queue, group_no, fairq_tenant_setting(queue, group_no),
					  now);
	TimestampTz next = Max(of_queue, of_group);

	return next > now ? next : DT_NOBEGIN;
}

/*
 * Whether no limit, rate or hold is in effect for the group, and it has no
 * tenant that may have one of these.
 */
static bool
is_free(const FairqQueue *queue, const FairqSetting *setting)
{
	return (queue->shares.separator == 0 || !queue->limited) &&
		setting->limit == FAIRQ_NO_LIMIT && setting->pace.gap == 0 &&
		setting->held_until == DT_NOBEGIN;
}

/*
 * Returns the obstacle for all groups of the queue; FAIRQ_REASON_WORKERS:
 * there is none.
 */
static FairqReason
queue_reason(FairqQueue *queue)
{
	TimestampTz now = GetCurrentTimestamp();

	return queue->paused ? FAIRQ_REASON_PAUSED :
		is_full(queue, -1, queue->max_running) ? FAIRQ_REASON_QUEUE_LIMIT :
		queue_next_at(queue, now) > now ? FAIRQ_REASON_QUEUE_RATE :
		FAIRQ_REASON_WORKERS;
}

/*
 * Returns the obstacle for this group only.  FAIRQ_REASON_RETRY is not among
 * the results, because only the sets of the group's lanes show that it waits
 * for a retry.
 */
static FairqReason
group_reason(FairqQueue *queue, int32 group_no)
{
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	TimestampTz now;
	int32		tenant;

	if (is_free(queue, setting))
		return FAIRQ_REASON_WORKERS;
	tenant = tenant_with_settings(queue, group_no);
	if (fairq_is_paused(queue, group_no, tenant))
		return FAIRQ_REASON_PAUSED;
	if (is_full(queue, group_no, setting->limit) ||
		is_full(queue, tenant, fairq_tenant_setting(queue, tenant)->limit))
		return FAIRQ_REASON_LIMIT;
	now = GetCurrentTimestamp();
	return group_next_at(queue, group_no, now) > now ? FAIRQ_REASON_RATE :
		FAIRQ_REASON_WORKERS;
}

/*
 * Returns the reason, as SQL functions name it, why ready tasks of the group
 * do not run; NULL: not known.
 */
const char *
fairq_reason(FairqQueue *queue, int32 group_no)
{
	static const char *const names[] = {
		[FAIRQ_REASON_PAUSED] = "paused",
		[FAIRQ_REASON_QUEUE_LIMIT] = "queue_limit",
		[FAIRQ_REASON_LIMIT] = "limit",
		[FAIRQ_REASON_QUEUE_RATE] = "rate",
		[FAIRQ_REASON_RATE] = "rate",
		[FAIRQ_REASON_RETRY] = "retry",
		[FAIRQ_REASON_WORKERS] = "workers"
	};
	FairqReason of_queue = queue_reason(queue);
	FairqReason reason = group_reason(queue, group_no);
	FairqWait	wait;

	reason = Min(reason, of_queue);
	/* a standby has neither the counters nor the starts of the primary */
	if (RecoveryInProgress() && reason != FAIRQ_REASON_PAUSED &&
		!(queue->max_running == FAIRQ_NO_LIMIT &&
		  queue->starts.pace.gap == 0 &&
		  queue->starts.held_until == DT_NOBEGIN &&
		  is_free(queue, fairq_group_setting(queue, group_no))))
		return NULL;
	/* a call may have put the group aside, in some lane */
	for (int p = 0; p < FAIRQ_PRIORITIES && queue->retries.in_order; p++)
		if (reason == FAIRQ_REASON_WORKERS &&
			fairq_lane_wait_of(fairq_queue_lane(queue, p), group_no, &wait) &&
			wait.throttled)
			reason = FAIRQ_REASON_RETRY;
	return names[reason];
}

/* --------------------------------------------------------------------- */

/* the most groups that a call visits, in about 5 ms */
#define MOST_VISITED 10000

/*
 * the most groups that are read to find the oldest task of each kind: about 2
 * ms
 */
#define MOST_READ 100

/* the most index entries that are read for due tasks in a timed region */
#define MOST_DUE 1000

/* The position of the walk among the groups of one lane. */
typedef struct Path
{
	int64		from;			/* seat at which the next copy begins */
	int			n;
	int			at;				/* index of the next copied group */
	FairqWait	waits[FAIRQ_WAITS];
} Path;

struct FairqWalk
{
	FairqQueue *queue;
	TimestampTz ended_by;
	int64		end;			/* seat at which the walk ends */
	Path		paths[FAIRQ_PRIORITIES];
};

/*
 * Begin to walk from one seat to another.  The walk visits each group that
 * waits.  It also visits groups with running tasks, in lanes in which a lease
 * may have ended by the given time.
 */
FairqWalk *
fairq_walk_begin(FairqQueue *queue, TimestampTz ended_by, int64 from,
				 int64 end)
{
	FairqWalk  *walk = palloc(sizeof(FairqWalk));

	walk->queue = queue;
	walk->ended_by = ended_by;
	walk->end = end;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		walk->paths[p].from = from;
		walk->paths[p].n = walk->paths[p].at = 0;
	}
	return walk;
}

/* Returns the next group in a lane; FAIRQ_ALL_SEATS: none. */
static int64
next_in_lane(FairqWalk *walk, int priority)
{
	Path	   *path = &walk->paths[priority];

	while (path->at == path->n && path->from < walk->end)
	{
		FairqLane  *lane = fairq_queue_lane(walk->queue, priority);
		int			n = fairq_lane_waits(lane, walk->ended_by, path->from,
										 path->waits);

		CHECK_FOR_INTERRUPTS();
		path->at = 0;
		path->n = n;
		path->from = n < FAIRQ_WAITS ? FAIRQ_ALL_SEATS :
			path->waits[n - 1].group_no + INT64CONST(1);
	}
	return path->at < path->n ? path->waits[path->at].group_no :
		FAIRQ_ALL_SEATS;
}

/* Walk to the next group.  Returns false if there is none. */
bool
fairq_walk_next(FairqWalk *walk, FairqWaiter *waiter)
{
	int64		next = FAIRQ_ALL_SEATS;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		int64		in_lane = next_in_lane(walk, p);

		next = Min(next, in_lane);
	}
	if (next >= walk->end)
		return false;
	*waiter = (FairqWaiter) {
		.group_no = (int32) next,
		.since = DT_NOEND,
		.deadline = DT_NOEND
	};
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		Path	   *path = &walk->paths[p];
		const FairqWait *wait = &path->waits[path->at];

		if (path->at == path->n || wait->group_no != next)
			continue;
		path->at++;
		waiter->due |= wait->due;
		waiter->throttled |= wait->throttled;
		waiter->deadline = Min(waiter->deadline, wait->deadline);
		if (!wait->waits)
			continue;
		waiter->nlanes++;
		waiter->since = Min(waiter->since, wait->since);
	}
	return true;
}

/* A group that was visited. */
typedef struct Looked
{
	int32		group_no;
	FairqReason own;			/* obstacle for this group only */
	FairqReason reason;			/* that obstacle, or an earlier obstacle for
								 * all groups */
	bool		waits;			/* true: the group may have ready tasks */
	bool		read;			/* true: the times are exact */
	TimestampTz since;			/* earliest time since which tasks wait for a
								 * slot; DT_NOEND: no task waits */
	TimestampTz ended;			/* earliest time at which a lease has ended */
} Looked;

/* One examination of a queue. */
typedef struct Look
{
	FairqQueue *queue;
	FairqTable *tasks;			/* fairq.task; NULL: another session has locked
								 * it */
	TimestampTz now;
	FairqReason of_queue;		/* obstacle for all groups */
	bool		none_queued;	/* true: no task waits for a turn */
	bool		cut;			/* true: there are more groups than the call
								 * visits */
	int			nvisited;
	int64		nwaits;			/* sum, over the visited groups, of the number
								 * of lanes in which each waits */
	int			n;
	Looked	   *groups;			/* groups that were visited; there is room for
								 * MOST_VISITED */
	FairqWaiting *waiting;
} Look;

/*
 * Whether shared memory has groups of the queue, or shows that the queue has
 * no tasks.
 */
static bool
has_groups(FairqQueue *queue)
{
	int64		n[FAIRQ_TALLIES];
	int64		all = 0;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		if (fairq_lane_recovered(fairq_queue_lane(queue, p), NULL))
			return true;
	if (!fairq_tally_read(&queue->hints->tally, n))
		return false;
	for (int i = 0; i < FAIRQ_TALLIES; i++)
		all += n[i];
	return all == 0;
}

/* Record a group that waits, or that may have a lease that has ended. */
static void
note_group(Look *look, const FairqWaiter *waiter)
{
	Looked		looked = {.group_no = waiter->group_no, .since = DT_NOEND};

	looked.waits = waiter->nlanes > 0 &&
		(!look->none_queued || waiter->due || waiter->deadline == DT_NOBEGIN);
	if (looked.waits && (!look->none_queued || waiter->due))
		looked.since = waiter->since;
	looked.ended = waiter->deadline <= look->now ? waiter->deadline : DT_NOEND;
	if (looked.since == DT_NOEND && looked.ended == DT_NOEND)
		return;
	looked.own = group_reason(look->queue, looked.group_no);
	if (looked.own == FAIRQ_REASON_WORKERS && waiter->throttled &&
		look->queue->retries.in_order)
		looked.own = FAIRQ_REASON_RETRY;
	looked.reason = Min(looked.own, look->of_queue);
	look->groups[look->n++] = looked;
}

/* Visit the groups from one seat to another, up to MOST_VISITED. */
static void
look_at_groups(Look *look, int64 from, int64 end)
{
	FairqWalk  *walk = fairq_walk_begin(look->queue, look->now, from, end);
	FairqWaiter waiter;

	while (fairq_walk_next(walk, &waiter))
	{
		if (look->nvisited == MOST_VISITED)
		{
			look->cut = true;
			break;
		}
		look->nvisited++;
		look->nwaits += waiter.nlanes;
		note_group(look, &waiter);
	}
	pfree(walk);
}

/*
 * Visit the groups.  Begin after the seat that service passed last, in the
 * lane in which most groups wait.  Returns the sum of the numbers of waiting
 * groups in each lane.
 */
static int64
look_at_all(Look *look)
{
	int64		all = 0;
	int64		from = 0;
	int64		most = 0;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		FairqLaneView view;
		int64		n;

		fairq_lane_view(fairq_queue_lane(look->queue, p), &view);
		n = fairq_lane_view_waiting(&view);
		all += n;
		if (n > most)
			from = view.lane.present.seat + INT64CONST(1);
		most = Max(most, n);
	}
	look_at_groups(look, from, FAIRQ_ALL_SEATS);
	if (!look->cut)
		look_at_groups(look, 0, from);
	return all;
}

/* --------------------------------------------------------------------- */

/* Whether a task may be claimed despite the obstacle. */
static bool
may_claim(FairqReason reason, bool lapsed)
{
	/* a lapsed task already has its slots */
	return reason == FAIRQ_REASON_WORKERS ||
		(lapsed && (reason == FAIRQ_REASON_LIMIT ||
					reason == FAIRQ_REASON_QUEUE_LIMIT));
}

/*
 * Time at which the first of a group's lapsed or other tasks began to wait;
 * DT_NOEND: it has none.  Also DT_NOEND if ready is true and these tasks may
 * not be claimed, or if ready is false and they may be claimed.
 */
static TimestampTz
time_of(const Looked *group, bool lapsed, bool ready)
{
	if (may_claim(group->reason, lapsed) != ready)
		return DT_NOEND;
	return lapsed ? group->ended : group->since;
}

/*
 * Returns the group with the earliest time_of(), among the first n groups;
 * NULL: none of them has such a time.
 */
static Looked *
find_first(Look *look, int n, bool lapsed, bool ready)
{
	TimestampTz earliest = DT_NOEND;
	Looked	   *first = NULL;

	for (int i = 0; i < n && earliest != DT_NOBEGIN; i++)
	{
		TimestampTz time = time_of(&look->groups[i], lapsed, ready);

		if (time < earliest)
			first = &look->groups[i];
		earliest = Min(earliest, time);
	}
	return first;
}

/* Read the lines of a group. */
static void
read_lines(Look *look, Looked *group)
{
	FairqSurvey survey;

	CHECK_FOR_INTERRUPTS();
	fairq_survey(look->queue, look->tasks, group->group_no, look->now, false,
				 &survey);
	group->read = true;
	group->ended = survey.ended;
	if (survey.since != DT_NOEND || !survey.unsure)
		group->since = survey.since;
	else if (group->since == DT_NOBEGIN)
		group->since = look->now;
}

/*
 * Returns when the oldest task began to wait, among the tasks that "lapsed"
 * and "ready" select in time_of(); DT_NOEND: there is none.
 */
static TimestampTz
find_oldest(Look *look, bool lapsed, bool ready)
{
	TimestampTz oldest = DT_NOEND;
	int			n = look->n;
	Looked	   *group;

	for (int nread = 0;
		 (group = find_first(look, n, lapsed, ready)) != NULL; nread++)
	{
		TimestampTz time = time_of(group, lapsed, ready);

		if (group->read || nread == MOST_READ || look->tasks == NULL)
		{
			look->waiting->sampled |= !group->read;
			/*
			 * if the group was not read, its lease may have been extended, and
			 * a time that is not known does not count
			 */
			if (group->read || (oldest == DT_NOEND && !lapsed &&
								time != DT_NOBEGIN))
				oldest = time;
			break;
		}
		read_lines(look, group);
		time = time_of(group, lapsed, ready);
		oldest = Min(oldest, time);
		if (time == DT_NOEND)
		{
			/*
			 * the groups next to this one may lack such tasks, too, so the
			 * last group takes its place
			 */
			Looked		empty = *group;

			*group = look->groups[--n];
			look->groups[n] = empty;
		}
	}
	return oldest;
}

/*
 * Returns the time at which the oldest task that may be claimed began to wait;
 * with !ready, the time for the oldest other task.
 */
static TimestampTz
find_oldest_of_all(Look *look, bool ready)
{
	TimestampTz lacks_slot = find_oldest(look, false, ready);
	TimestampTz has_slot = find_oldest(look, true, ready);

	return Min(lacks_slot, has_slot);
}

/* Find due tasks that no call has found yet, in a timed region of a lane. */
static void
find_timed(Look *look, int priority, FairqRegion region)
{
	FairqLane  *lane = fairq_queue_lane(look->queue, priority);
	int64		from = fairq_times_first(&lane->times, region);
	int64		end = fairq_due_end(region, look->now);
	FairqScan  *scan;
	FairqRowState state;

	if (from >= end || !fairq_lane_recovered(lane, NULL))
		return;
	scan = fairq_scan_some(look->tasks, FAIRQ_TASK_BY_TIME,
						   fairq_range_times(fairq_task_lane(look->queue->id,
															 priority),
											 from, end),
						   MOST_DUE);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END &&
		   state != FAIRQ_ROW_LATER)
	{
		FairqTask	task;
		FairqReason reason;
		TimestampTz *oldest;

		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(scan->slot, &task);
		if (task.running || fairq_is_expired(&task, look->now))
			continue;
		reason = group_reason(look->queue, task.group_no);
		oldest = may_claim(Min(reason, look->of_queue), false) ?
			&look->waiting->ready : &look->waiting->limited;
		if (task.run_at < *oldest && !is_blocked(look->tasks, scan, &task))
			*oldest = task.run_at;
	}
	fairq_scan_end(scan);
}

/* Count a waiting group under its obstacle. */
static void
count_group(const Looked *group, FairqWaiting *waiting)
{
	bool		lapsed = group->ended == DT_NOBEGIN ||
		(group->read && group->ended != DT_NOEND);

	if (!group->waits || (group->read && group->since == DT_NOEND && !lapsed))
		return;
	if (group->own == FAIRQ_REASON_LIMIT && !lapsed)
		waiting->nlimited++;
	else if (group->own == FAIRQ_REASON_RATE ||
			 group->own == FAIRQ_REASON_RETRY)
		waiting->nthrottled++;
	else if (group->own != FAIRQ_REASON_PAUSED)
		waiting->nready++;
}

/* Extrapolate n to all groups, if the call has visited only a part of them. */
static int32
extrapolate(int32 n, int64 part, int64 all)
{
	return (int32) Min((double) n * Max(all, part) / Max(part, 1),
					   PG_INT32_MAX);
}

/* Examine a queue that is locked. */
static void
look_at_queue(FairqQueue *queue, FairqWaiting *waiting)
{
	Look		look = {
		.queue = queue,
		.now = GetCurrentTimestamp(),
		.of_queue = queue_reason(queue),
		.waiting = waiting
	};
	int64		n[FAIRQ_TALLIES];
	int64		all;

	look.none_queued = fairq_tally_read(&queue->hints->tally, n) &&
		n[FAIRQ_TALLY_QUEUED] <= 0;
	look.groups = palloc(MOST_VISITED * sizeof(Looked));
	all = look_at_all(&look);
	look.tasks = fairq_try_open_tasks();
	waiting->sampled = look.cut;
	waiting->ready = find_oldest_of_all(&look, true);
	waiting->limited = find_oldest_of_all(&look, false);
	for (int p = 0; p < FAIRQ_PRIORITIES && look.tasks != NULL; p++)
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			find_timed(&look, p, r);
	if (look.tasks != NULL)
		fairq_table_close(look.tasks);
	for (int i = 0; i < look.n; i++)
		count_group(&look.groups[i], waiting);
	if (look.cut)
	{
		waiting->nready = extrapolate(waiting->nready, look.nwaits, all);
		waiting->nlimited = extrapolate(waiting->nlimited, look.nwaits, all);
		waiting->nthrottled = extrapolate(waiting->nthrottled, look.nwaits, all);
	}
	pfree(look.groups);
}

/* Find the waiting groups of a queue, and how long they have waited. */
void
fairq_waiting(FairqQueue *queue, FairqWaiting *waiting)
{
	int32		id = queue->id;

	*waiting = (FairqWaiting) {.ready = DT_NOEND, .limited = DT_NOEND};
	if (!has_groups(queue) ||
		!fairq_queue_id_try_lock(queue->id, AccessShareLock))
		return;
	/* the queue may have been dropped before we had the lock */
	waiting->known = fairq_shmem_queue(id, false) == queue->hints;
	if (waiting->known)
		look_at_queue(queue, waiting);
	fairq_queue_id_unlock(id, AccessShareLock);
}
