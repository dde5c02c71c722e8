/*
 * waiting.c
 *		The number of a queue's waiting groups, and how long they have waited,
 *		with a free slot or without one.
 *
 * A call walks through the groups that wait or run, in the order of their
 * numbers, in all lanes at the same time (lane_view.c).  Each group takes a
 * quarter of a microsecond.  A call visits at most MOST_LOOKED groups.  A
 * group's settings and counters show its obstacle (survey.c).
 *
 * A group's entry has the earliest time since which its first task may have
 * waited.  If a task was published while the group had none, that is the time
 * at which the task became ready.  From then on it is the time of the queued
 * or scheduled task that was claimed last at a turn of the group.  This works
 * because a line is served in the order in which its tasks became ready,
 * except for late commits.  If a task is published with an earlier time,
 * because it was put back, the entry takes that time.
 *
 * So the time is at most one task too early.  It can also be entirely wrong,
 * because the sets do not notice that tasks are cancelled, purged or
 * postponed.  So the call reads the group with the earliest time (survey.c),
 * which gives the exact time, and then the next group.  It stops when the
 * earliest time is an exact one: that is the oldest task.  Usually it reads
 * one or two groups.  A group without an entry, after a restart or because
 * other groups needed the entry, has no time, and is read first.  The call
 * reads at most MOST_READ groups.  After that it shows the oldest task of
 * these, or, if there is none, the earliest time of the others.
 *
 * Lapsed tasks are found in the same way, by the deadlines of leases.  Such a
 * deadline alone is never shown, as the lease may have been extended.  Due
 * tasks that no call has found yet are in no set.  The call reads them from
 * the index of times.
 *
 * If more groups wait than a call may visit, it begins with those whose turns
 * come next.  They have waited longest for service.  It extrapolates the
 * numbers from the groups that it has visited.
 *
 * If shared memory knows no lane of a queue, the table may contain any tasks.
 * So the numbers are not known, unless the counts of commits show that the
 * queue has no tasks.
 *
 * The call changes nothing.
 *
 * Locking: an AccessShareLock on the queue for the duration of the call,
 * because groups' bits are freed with its hints.  If that is not available,
 * the queue is being dropped, and the numbers are not known.  An
 * AccessShareLock on fairq.task, to the end of the transaction; if that is not
 * available, the call reads no task.  A walk takes a lane's lock, shared, for
 * GROUPS_AT_ONCE groups; its caller has the queue locked.  The locks of
 * survey.c.
 */
#include "postgres.h"

#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "lane_view.h"
#include "registry.h"
#include "store.h"
#include "survey.h"
#include "waiting.h"

/* groups that are copied under one hold of a lane's lock */
#define GROUPS_AT_ONCE 32

/* the most groups that a call visits: about 5 ms */
#define MOST_LOOKED 10000

/* the most groups that are read for the age of each kind: about 2 ms */
#define MOST_READ 100

/* the most index entries that are read for due tasks in a timed region */
#define MOST_DUE 1000

/* Position of the walk in the groups of one lane. */
typedef struct Path
{
	int64		from;			/* seat at which the next copy begins */
	int			n;
	int			at;				/* index of the next of the copied groups */
	FairqWait	waits[GROUPS_AT_ONCE];
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
 * waits.  It visits running groups in lanes in which a lease may have ended by
 * the given time.
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
		int			n = fairq_lane_waits(fairq_queue_lane(walk->queue, priority),
										 walk->ended_by, path->from,
										 GROUPS_AT_ONCE, path->waits);

		CHECK_FOR_INTERRUPTS();
		path->at = 0;
		path->n = n;
		path->from = n < GROUPS_AT_ONCE ? FAIRQ_ALL_SEATS :
			path->waits[n - 1].group_no + INT64CONST(1);
	}
	return path->at < path->n ? path->waits[path->at].group_no :
		FAIRQ_ALL_SEATS;
}

/* Add the lane's information about the group. */
static void
add_wait(FairqWaiter *waiter, const FairqWait *wait)
{
	waiter->due |= wait->due;
	waiter->throttled |= wait->set == FAIRQ_THROTTLED;
	waiter->deadline = Min(waiter->deadline, wait->deadline);
	if (!wait->waits)
		return;
	waiter->nlanes++;
	waiter->since = Min(waiter->since, wait->since);
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

		if (path->at < path->n && path->waits[path->at].group_no == next)
			add_wait(waiter, &path->waits[path->at++]);
	}
	return true;
}

/* A group that was visited. */
typedef struct Looked
{
	int32		group_no;
	FairqReason own;			/* obstacle for this group only */
	FairqReason reason;			/* the same, or an earlier obstacle for all
								 * groups */
	bool		waits;			/* it may have ready tasks */
	bool		read;			/* the times are exact */
	TimestampTz since;			/* earliest time since which tasks wait for a
								 * slot; DT_NOEND: no task waits */
	TimestampTz ended;			/* earliest time at which a lease has ended */
} Looked;

/* One examination of a queue. */
typedef struct Look
{
	FairqQueue *queue;
	FairqTable *tasks;			/* NULL: another session has a lock on it */
	TimestampTz now;
	FairqReason of_queue;		/* obstacle for all groups */
	bool		none_ready;		/* no task can start */
	bool		cut;			/* there are more groups than the call
								 * visits */
	int			nvisited;
	int64		nwaits;			/* number of lanes in which these wait, summed
								 * up */
	int			n;
	Looked	   *groups;			/* room for MOST_LOOKED */
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
		if (fairq_lane_is_begun(fairq_queue_lane(queue, p)))
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
		(!look->none_ready || waiter->due || waiter->deadline == DT_NOBEGIN);
	if (looked.waits && (!look->none_ready || waiter->due))
		looked.since = waiter->since;
	looked.ended = waiter->deadline <= look->now ? waiter->deadline : DT_NOEND;
	if (looked.since == DT_NOEND && looked.ended == DT_NOEND)
		return;
	looked.own = fairq_group_reason(look->queue, looked.group_no);
	if (looked.own == FAIRQ_REASON_WORKERS && waiter->throttled &&
		look->queue->retries.in_order)
		looked.own = FAIRQ_REASON_RETRY;
	looked.reason = Min(looked.own, look->of_queue);
	look->groups[look->n++] = looked;
}

/* Visit the groups from one seat to another, up to MOST_LOOKED. */
static void
look_at_groups(Look *look, int64 from, int64 end)
{
	FairqWalk  *walk = fairq_walk_begin(look->queue, look->now, from, end);
	FairqWaiter waiter;

	while (fairq_walk_next(walk, &waiter))
	{
		if (look->nvisited == MOST_LOOKED)
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
			from = view.seat + INT64CONST(1);
		most = Max(most, n);
	}
	look_at_groups(look, from, FAIRQ_ALL_SEATS);
	if (!look->cut)
		look_at_groups(look, 0, from);
	return all;
}

/* --------------------------------------------------------------------- */

/* Selects the tasks to compare. */
typedef struct Part
{
	bool		lapsed;			/* true: only lapsed tasks; false: only
								 * others */
	bool		ready;			/* true: tasks that may be claimed; false: the
								 * others */
} Part;

/* Whether a task may be claimed despite the obstacle. */
static bool
may_claim(FairqReason reason, bool lapsed)
{
	/* a lapsed task already has its slots */
	return reason == FAIRQ_REASON_WORKERS || reason == FAIRQ_REASON_NONE ||
		(lapsed && (reason == FAIRQ_REASON_LIMIT ||
					reason == FAIRQ_REASON_QUEUE_LIMIT));
}

/*
 * Time at which the first of a group's selected tasks began to wait; DT_NOEND:
 * it has none.
 */
static TimestampTz
time_of(const Looked *group, const Part *part)
{
	if (may_claim(group->reason, part->lapsed) != part->ready)
		return DT_NOEND;
	return part->lapsed ? group->ended : group->since;
}

/* The earliest time comes first. */
static int
compare_times(Datum a, Datum b, void *arg)
{
	TimestampTz of_a = time_of((Looked *) DatumGetPointer(a), arg);
	TimestampTz of_b = time_of((Looked *) DatumGetPointer(b), arg);

	return of_a < of_b ? 1 : of_a > of_b ? -1 : 0;
}

/* All groups with such tasks, in a heap. */
static binaryheap *
make_heap(Look *look, Part *part)
{
	binaryheap *heap = binaryheap_allocate(Max(look->n, 1), compare_times,
										   part);

	for (int i = 0; i < look->n; i++)
		if (time_of(&look->groups[i], part) != DT_NOEND)
			binaryheap_add_unordered(heap, PointerGetDatum(&look->groups[i]));
	binaryheap_build(heap);
	return heap;
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
 * Time at which the oldest selected task began to wait; DT_NOEND: there is
 * none.
 */
static TimestampTz
find_oldest(Look *look, Part part)
{
	binaryheap *heap = make_heap(look, &part);
	TimestampTz oldest = DT_NOEND;

	for (int nread = 0; heap->bh_size > 0; nread++)
	{
		Datum		first = binaryheap_first(heap);
		Looked	   *group = (Looked *) DatumGetPointer(first);
		TimestampTz time = time_of(group, &part);

		if (group->read || nread == MOST_READ || look->tasks == NULL)
		{
			look->waiting->sampled |= !group->read;
			/*
			 * a lease may have been extended, and an unknown time may be
			 * arbitrary
			 */
			if (group->read || (oldest == DT_NOEND && !part.lapsed &&
								time != DT_NOBEGIN))
				oldest = time;
			break;
		}
		read_lines(look, group);
		time = time_of(group, &part);
		oldest = Min(oldest, time);
		if (time == DT_NOEND)
			(void) binaryheap_remove_first(heap);
		else
			binaryheap_replace_first(heap, first);
	}
	binaryheap_free(heap);
	return oldest;
}

/*
 * Time at which the oldest task that may be claimed began to wait; with
 * !ready, of the other tasks.
 */
static TimestampTz
find_oldest_of_all(Look *look, bool ready)
{
	TimestampTz lacks_slot = find_oldest(look, (Part) {false, ready});
	TimestampTz has_slot = find_oldest(look, (Part) {true, ready});

	return Min(lacks_slot, has_slot);
}

/* Record a due task that no call has found yet. */
static void
note_due(Look *look, const FairqTask *task)
{
	FairqReason own = fairq_group_reason(look->queue, task->group_no);
	TimestampTz *oldest = may_claim(Min(own, look->of_queue), false) ?
		&look->waiting->ready : &look->waiting->limited;

	if (!task->running && !fairq_is_expired(task, look->now))
		*oldest = Min(*oldest, task->run_at);
}

/* Find such tasks in a timed region of a lane. */
static void
find_timed(Look *look, int priority, FairqRegion region)
{
	FairqLane  *lane = fairq_queue_lane(look->queue, priority);
	int64		from = fairq_times_first(&lane->times, region);
	int64		end = fairq_due_end(region, look->now);
	FairqScan  *scan;
	FairqRowState state;

	if (from >= end || !fairq_lane_is_begun(lane))
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

		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(scan->slot, &task);
		note_due(look, &task);
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

/* Extrapolate n to all groups, if only a part was visited. */
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
		.of_queue = fairq_queue_reason(queue),
		.waiting = waiting
	};
	int64		n[FAIRQ_TALLIES];
	int64		all;

	look.none_ready = fairq_tally_read(&queue->hints->tally, n) &&
		n[FAIRQ_TALLY_READY] <= 0;
	look.groups = palloc(MOST_LOOKED * sizeof(Looked));
	all = look_at_all(&look);
	look.tasks = fairq_table_try_open(fairq_relid(FAIRQ_TASK));
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
	waiting->known = fairq_shmem_find_queue(id) == queue->hints;
	if (waiting->known)
		look_at_queue(queue, waiting);
	fairq_queue_id_unlock(id, AccessShareLock);
}
