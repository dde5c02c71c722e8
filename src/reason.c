/*
 * reason.c
 *		Why a group's ready tasks do not run.
 *
 * The reason is what a pop at this moment would meet first: that the queue or
 * the group is paused, that the queue has no slot, that the group has none, that
 * none of its tasks may start yet, that it waits for one that is to be retried, as a
 * pop has found out.  If nothing of that is so the tasks wait for a pop: there are too few workers, or
 * the group's turn has not come.
 *
 * It is found in settings and counters, and no task is read.  A counter that is
 * not known says nothing: so after a restart, or when rows were changed behind
 * fairq's back, the tasks wait for a pop, which counts them.  A counter that is
 * doubtful keeps pops away as one that is not, until it is counted anew.  On a
 * standby no pop will ever count, so there limits give no reason.
 *
 * Looking changes nothing: no counter is made.
 *
 * Locking: the mutexes of the queue's and the group's counter, one after the
 * other; the second is pinned meanwhile.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "lane_waits.h"
#include "reason.h"
#include "registry.h"

/* Is it known that as many are running as may be? */
static bool
is_full(FairqQueue *queue, FairqCounter *counter, int32 limit)
{
	FairqAsOf	now = fairq_lane_as_of(fairq_queue_lane(queue, 0));
	int32		running;
	bool		doubtful;

	return fairq_counter_read(counter, now, &running, &doubtful) &&
		running >= limit;
}

/* The same of a group, which may have no counter. */
static bool
is_group_full(FairqQueue *queue, int32 group_no, int32 limit)
{
	FairqCounter *counter = fairq_shmem_find_counter(queue->hints, group_no);
	bool		full;

	if (counter == NULL)
		return false;
	full = is_full(queue, counter, limit);
	fairq_counter_unpin(counter);
	return full;
}

/* Is it known that as many tasks of the queue are running as may be? */
bool
fairq_queue_is_full(FairqQueue *queue)
{
	return queue->max_running != FAIRQ_NO_LIMIT &&
		is_full(queue, &queue->hints->running, queue->max_running);
}

/*
 * When the next task of the group may start, by its rate, the queue's, and what is
 * held; DT_NOBEGIN: now.  *of_queue: the queue keeps it back longest.
 */
TimestampTz
fairq_next_at(FairqQueue *queue, int32 group_no, bool *of_queue)
{
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	FairqCounter *counter = setting->pace.gap == 0 ? NULL :
		fairq_shmem_find_counter(queue->hints, group_no);
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz in_group = setting->held_until;
	TimestampTz in_queue = queue->starts.held_until;
	FairqCounter none;
	int64		start;

	if (setting->pace.gap != 0)
	{
		fairq_counter_init(&none, queue->hints->entry.born);
		start = fairq_counter_next_start(counter != NULL ? counter : &none,
										 &setting->pace);
		if (start != 0)
			in_group = Max(in_group, fairq_wall_time(start, now));
	}
	if (counter != NULL)
		fairq_counter_unpin(counter);
	if (queue->starts.pace.gap != 0)
	{
		start = fairq_counter_next_start(&queue->hints->running,
										 &queue->starts.pace);
		if (start != 0)
			in_queue = Max(in_queue, fairq_wall_time(start, now));
	}
	*of_queue = in_queue > in_group;
	in_group = Max(in_group, in_queue);
	return in_group > now ? in_group : DT_NOBEGIN;
}

/* Do no limit, rate and hold matter to the group? */
static bool
is_free(const FairqQueue *queue, const FairqSetting *setting)
{
	return queue->max_running == FAIRQ_NO_LIMIT &&
		queue->starts.pace.gap == 0 &&
		queue->starts.held_until == DT_NOBEGIN &&
		setting->limit == FAIRQ_NO_LIMIT && setting->pace.gap == 0 &&
		setting->held_until == DT_NOBEGIN;
}

/* Has a call put the group aside, in some lane? */
static bool
is_put_aside(FairqQueue *queue, int32 group_no)
{
	uint32		mapped = fairq_chunks_map(&queue->hints->chunks);

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		if (fairq_lane_is_throttled(fairq_queue_lane(queue, p), mapped,
									group_no))
			return true;
	return false;
}

/* Why the group's tasks that are ready, if there are any, do not run. */
FairqReason
fairq_reason(FairqQueue *queue, int32 group_no)
{
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	int32		limit = setting->limit;
	bool		of_queue;

	if (queue->paused || limit == 0)
		return FAIRQ_REASON_PAUSED;
	if (is_free(queue, setting))
		return FAIRQ_REASON_WORKERS;
	if (RecoveryInProgress())
		return FAIRQ_REASON_NONE;
	if (fairq_queue_is_full(queue))
		return FAIRQ_REASON_QUEUE_LIMIT;
	if (limit != FAIRQ_NO_LIMIT && is_group_full(queue, group_no, limit))
		return FAIRQ_REASON_LIMIT;
	if (fairq_next_at(queue, group_no, &of_queue) != DT_NOBEGIN)
		return of_queue ? FAIRQ_REASON_QUEUE_RATE : FAIRQ_REASON_RATE;
	if (queue->retries.in_order && is_put_aside(queue, group_no))
		return FAIRQ_REASON_RETRY;
	return FAIRQ_REASON_WORKERS;
}

/* The reason as SQL functions return it; NULL: FAIRQ_REASON_NONE. */
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
