/*
 * reason.c
 *		Why a group's ready tasks do not run.
 *
 * The reason is what a pop at this moment would meet first: that the queue or
 * the group is paused, that the queue has no slot, that the group has none,
 * that none of its tasks may start yet, that it waits for one that is to be
 * retried, as a pop has found out.  If nothing of that is so the tasks wait
 * for a pop: there are too few workers, or the group's turn has not come.
 *
 * It is found in settings and counters, and no task is read.  A counter that is
 * not known says nothing: so for a moment after a restart, and on a standby, limits
 * give no reason.
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
	int32		running;

	return fairq_counter_read(counter, fairq_tally_now(&queue->hints->tally),
							  &running) &&
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

/* When that time of the monotonic clock is; 0: now. */
static TimestampTz
start_at(int64 start, TimestampTz now)
{
	return start == 0 ? DT_NOBEGIN : fairq_wall_time(start, now);
}

/* When the next task of the queue may start, by its rate and what is held. */
static TimestampTz
queue_next_at(FairqQueue *queue, TimestampTz now)
{
	TimestampTz start = DT_NOBEGIN;

	if (queue->starts.pace.gap != 0)
		start = start_at(fairq_counter_next_start(&queue->hints->running,
												  &queue->starts.pace), now);
	return Max(queue->starts.held_until, start);
}

/* The same of a group, which may have no counter. */
static TimestampTz
group_next_at(FairqQueue *queue, int32 group_no, TimestampTz now)
{
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
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

/* When the next task of the group may start, by both; DT_NOBEGIN: now. */
TimestampTz
fairq_next_at(FairqQueue *queue, int32 group_no)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz of_queue = queue_next_at(queue, now);
	TimestampTz of_group = group_next_at(queue, group_no, now);
	TimestampTz next = Max(of_queue, of_group);

	return next > now ? next : DT_NOBEGIN;
}

/* Do no limit, rate and hold of its own matter to the group? */
static bool
is_free(const FairqSetting *setting)
{
	return setting->limit == FAIRQ_NO_LIMIT && setting->pace.gap == 0 &&
		setting->held_until == DT_NOBEGIN;
}

/* The same of the queue, but for a pause. */
static bool
is_queue_free(const FairqQueue *queue)
{
	return queue->max_running == FAIRQ_NO_LIMIT &&
		queue->starts.pace.gap == 0 &&
		queue->starts.held_until == DT_NOBEGIN;
}

/* What keeps all groups of the queue back; FAIRQ_REASON_WORKERS: nothing. */
FairqReason
fairq_queue_reason(FairqQueue *queue)
{
	TimestampTz now = GetCurrentTimestamp();

	return queue->paused ? FAIRQ_REASON_PAUSED :
		queue->max_running != FAIRQ_NO_LIMIT &&
		is_full(queue, &queue->hints->running, queue->max_running) ?
		FAIRQ_REASON_QUEUE_LIMIT :
		queue_next_at(queue, now) > now ? FAIRQ_REASON_QUEUE_RATE :
		FAIRQ_REASON_WORKERS;
}

/*
 * What keeps the group back of its own, whatever keeps all back.  Only the sets of
 * its lanes tell that it waits for a retry.
 */
FairqReason
fairq_group_reason(FairqQueue *queue, int32 group_no)
{
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	TimestampTz now;

	if (is_free(setting))
		return FAIRQ_REASON_WORKERS;
	if (setting->limit == 0)
		return FAIRQ_REASON_PAUSED;
	if (setting->limit != FAIRQ_NO_LIMIT &&
		is_group_full(queue, group_no, setting->limit))
		return FAIRQ_REASON_LIMIT;
	now = GetCurrentTimestamp();
	return group_next_at(queue, group_no, now) > now ? FAIRQ_REASON_RATE :
		FAIRQ_REASON_WORKERS;
}

/* Has a call put the group aside, in some lane? */
static bool
is_put_aside(FairqQueue *queue, int32 group_no)
{
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		if (fairq_lane_is_throttled(fairq_queue_lane(queue, p), group_no))
			return true;
	return false;
}

/* Why the group's tasks that are ready, if there are any, do not run. */
FairqReason
fairq_reason(FairqQueue *queue, int32 group_no)
{
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	FairqReason of_queue;
	FairqReason reason;

	if (queue->paused || setting->limit == 0)
		return FAIRQ_REASON_PAUSED;
	if (is_queue_free(queue) && is_free(setting))
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
