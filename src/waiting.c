/*
 * waiting.c
 *		How many groups of a queue wait, and since when: those that have a free
 *		slot, and those that have none.
 *
 * The sets of a lane and its ages (ages.c) say it at once, but for one thing: a
 * group whose last slot is taken, or that is paused, stays in the ring until a pop
 * comes by, and until then its tasks seem to have a slot.  Beside workers that are
 * all busy no pop comes by.  So where there are limits and the ring has few groups,
 * each of these is asked for its slot.  Where it has many, either many tasks are
 * running, so that pops come by, or many groups do have a slot: then what the ring
 * says is near enough.
 *
 * What time makes ready is put into the ring by a call, and where all workers are
 * gone there is none.  So timed tasks count from the time at which the first fell
 * due, whosever it is: their groups are not known.
 *
 * Of leases that have ended a lane knows less, as one that is extended or whose task
 * has ended stays in the deadline until a call comes by.  But if all that were noted
 * are over by now, and commits have counted tasks that run, then these wait, at least
 * since the last of all was over.  As long as one may go on nothing is said: a worker
 * is there then, or was until a moment ago.  A task that has expired has its slots
 * already, so but for a pause it is as one that has a slot.
 *
 * The sets do not hear of a task that is cancelled, purged or put off.  So if commits
 * say that none is ready, and nothing in the sets is due or has lapsed, no group
 * waits.  Beside tasks that are ready a group whose own are gone counts until a pop
 * comes by.
 *
 * A queue of which shared memory knows no priority has who knows what in the table.
 * That is not known, unless commits say that it has no tasks at all.
 *
 * Locking: AccessShareLock on the queue for the time, as groups' bits are freed
 * with its hints; if that cannot be had at once, the ring has to do.  The lanes'
 * locks, shared, for some groups at a time.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "lane_view.h"
#include "lane_waits.h"
#include "reason.h"
#include "registry.h"
#include "seats.h"
#include "waiting.h"

/* groups that are asked for their slots, at most, and those at a time */
#define MOST_ASKED 1000
#define ASKED_AT_ONCE 32

/* Note a group that waits since then. */
static void
note_group(FairqQueue *queue, const FairqWait *wait, FairqWaiting *waiting)
{
	FairqReason reason = fairq_reason(queue, wait->group_no);

	/* an expired task has its slot already, but no start */
	if (reason == FAIRQ_REASON_WORKERS || reason == FAIRQ_REASON_NONE ||
		((reason == FAIRQ_REASON_LIMIT || reason == FAIRQ_REASON_QUEUE_LIMIT) &&
		 wait->deadline == DT_NOBEGIN))
	{
		waiting->nready++;
		waiting->ready = Min(waiting->ready, wait->since);
		return;
	}
	if (reason == FAIRQ_REASON_LIMIT)
		waiting->nlimited++;
	else if (reason == FAIRQ_REASON_RATE || reason == FAIRQ_REASON_RETRY)
		waiting->nthrottled++;
	else if (fairq_group_setting(queue, wait->group_no)->limit != 0)
		/* what keeps it back is the queue, as look_at_rings() counts it */
		waiting->nready++;
	waiting->limited = Min(waiting->limited, wait->since);
}

/*
 * Ask each group in the ring of a lane.  False if they are too many, or it is not
 * known since when one waits.
 */
static bool
ask_lane(FairqQueue *queue, FairqLane *lane, int *nasked,
		 FairqWaiting *waiting)
{
	FairqChunks *chunks = &queue->hints->chunks;
	uint32		mapped = fairq_chunks_map(chunks);
	int64		from = 0;

	while (*nasked <= MOST_ASKED)
	{
		FairqWait	waits[ASKED_AT_ONCE];
		int			n = fairq_lane_ring_waits(lane, mapped, from,
											  ASKED_AT_ONCE, waits);

		CHECK_FOR_INTERRUPTS();
		if (n < 0)
		{
			mapped = fairq_chunks_map(chunks);
			continue;
		}
		for (int i = 0; i < n; i++)
		{
			if (waits[i].since == DT_NOBEGIN)
				return false;
			note_group(queue, &waits[i], waiting);
		}
		*nasked += n;
		if (n < ASKED_AT_ONCE)
			return true;
		from = waits[n - 1].group_no + INT64CONST(1);
	}
	return false;
}

/* Ask each group in the ring.  False if that cannot be done. */
static bool
ask_groups(FairqQueue *queue, FairqWaiting *waiting)
{
	int32		id = queue->id;
	int			nasked = 0;
	bool		all;

	if (!queue->limited ||
		!fairq_queue_try_lock(queue, AccessShareLock))
		return false;
	/* it may have been dropped before we had the lock */
	all = fairq_shmem_find_queue(id) == queue->hints;
	for (int p = 0; p < FAIRQ_PRIORITIES && all; p++)
		all = ask_lane(queue, fairq_queue_lane(queue, p), &nasked, waiting);
	fairq_queue_id_unlock(id, AccessShareLock);
	return all;
}

/* Does the queue keep all of its groups back, whatever theirs is? */
static bool
is_shut(FairqQueue *queue)
{
	return queue->paused || fairq_queue_is_full(queue) ||
		fairq_queue_is_held(queue, GetCurrentTimestamp()) ||
		(queue->starts.pace.gap != 0 &&
		 fairq_counter_next_start(&queue->hints->running,
								  &queue->starts.pace) != 0);
}

/* Note what has fallen due since a call came by, if any timed task is there. */
static void
note_fallen_due(FairqQueue *queue, FairqWaiting *waiting)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz *since = is_shut(queue) ?
		&waiting->limited : &waiting->ready;
	int64		n[FAIRQ_TALLIES];

	if (fairq_tally_read(&queue->hints->tally, n) &&
		n[FAIRQ_TALLY_SCHEDULED] <= 0)
		return;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		*since = Min(*since,
					 fairq_lane_fell_due(fairq_queue_lane(queue, p), now));
}

/* Note running tasks whose leases have all ended since a call came by. */
static void
note_leases_ended(FairqQueue *queue, FairqWaiting *waiting)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz *since = queue->paused ? &waiting->limited : &waiting->ready;
	TimestampTz last = DT_NOBEGIN;
	bool		ended = false;
	int64		n[FAIRQ_TALLIES];

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		ended |= fairq_lane_leases_ended(fairq_queue_lane(queue, p), now,
										 &last);
	if (ended && last <= now && fairq_tally_read(&queue->hints->tally, n) &&
		n[FAIRQ_TALLY_RUNNING] > 0)
		*since = Min(*since, last);
}

/* Is anything known of the queue's groups, or of its having no tasks? */
static bool
is_known(FairqQueue *queue)
{
	int64		n[FAIRQ_TALLIES];
	int64		all = 0;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		if (fairq_lane_is_begun(fairq_queue_lane(queue, p)))
			return true;
	if (!fairq_tally_read(&queue->hints->tally, n))
		return false;
	for (int i = 0; i < FAIRQ_TALLIES; i++)
		all += n[i];
	return all == 0;
}

/* Take what the lanes say of their rings. */
static void
look_at_rings(FairqQueue *queue, FairqWaiting *waiting)
{
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		int32		nring;
		TimestampTz oldest = fairq_lane_oldest(fairq_queue_lane(queue, p),
											   &nring);

		waiting->nready += nring;
		waiting->ready = Min(waiting->ready, oldest);
	}
	if (is_shut(queue))
	{
		waiting->limited = waiting->ready;
		waiting->ready = DT_NOEND;
	}
}

/* How many groups are throttled, in each priority, and not to be taken back. */
static int32
count_throttled(FairqQueue *queue)
{
	int32		n = 0;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		n += fairq_lane_throttled(fairq_queue_lane(queue, p));
	return n;
}

/*
 * Is it known that no group has anything that waits, but what time makes ready without
 * a call?  Lanes do not hear of it if the last one is cancelled, purged or put off.
 */
static bool
nothing_waits(FairqQueue *queue)
{
	int64		n[FAIRQ_TALLIES];

	if (!fairq_tally_read(&queue->hints->tally, n) || n[FAIRQ_TALLY_READY] > 0)
		return false;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		FairqLaneView view;

		fairq_lane_view(fairq_queue_lane(queue, p), &view);
		if (view.n[FAIRQ_DUE] > 0 || view.n[FAIRQ_LAPSED] > 0)
			return false;
	}
	return true;
}

/* Note the groups that calls have come by. */
static void
note_groups(FairqQueue *queue, FairqWaiting *waiting)
{
	const FairqWaiting none = *waiting;
	FairqParkedAges *parked = &queue->hints->parked.ages;
	uint64		epoch = fairq_parked_epoch(queue->hints);

	if (!ask_groups(queue, waiting))
	{
		*waiting = none;
		look_at_rings(queue, waiting);
	}
	waiting->nthrottled += count_throttled(queue);
	waiting->nlimited += fairq_parked_count(parked, epoch);
	waiting->limited = Min(waiting->limited,
						   fairq_parked_since(parked, epoch));
}

/* Find who waits in a queue, and since when.  It reads shared memory alone. */
void
fairq_waiting(FairqQueue *queue, FairqWaiting *waiting)
{
	*waiting = (FairqWaiting) {.ready = DT_NOEND, .limited = DT_NOEND};
	if (!nothing_waits(queue))
		note_groups(queue, waiting);
	note_fallen_due(queue, waiting);
	note_leases_ended(queue, waiting);
	waiting->known = is_known(queue);
}
