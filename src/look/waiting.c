/*
 * waiting.c
 *		How many groups of a queue wait, and since when: those that have a free
 *		slot, and those that have none.
 *
 * The groups of a queue that wait or run are walked through in the order of
 * their numbers, in all lanes side by side (lane_view.c), at a quarter of a
 * microsecond for each.  A call walks through MOST_LOOKED of them at most.  A
 * group's settings and counters tell what keeps it back (survey.c).
 * Its entry tells since when, at the earliest, its first task has waited.
 * That is, if the group had nothing and a task was published, the time at
 * which that one became ready; from then on the time of the task that was
 * claimed last at a turn of the group, queued or scheduled.  For a line is
 * served in the order in which its tasks became ready, except for late
 * commits.  A task that is published with an earlier time, because it was put
 * back, takes the time back.
 *
 * So the time is at most one task too early; or it is wrong altogether,
 * because the sets do not hear of tasks that are cancelled, purged or put off.
 * So the call reads the group with the earliest time (survey.c), which gives
 * the truth, then the next group, until the earliest time is a true one: that
 * is the oldest task.  Mostly these are one or two groups.  A group without an
 * entry, after a restart or because other groups needed the entry, has no
 * time, and is read first.  The call reads MOST_READ groups at most.  Then it
 * shows the oldest of these, or if there is none the earliest time of the
 * others.
 *
 * Lapsed tasks are found likewise, by the deadlines of leases.  Such a
 * deadline alone is never shown, as the lease may have been extended.  Due
 * tasks that no call has come by are in no set; they are read off the index by
 * time.
 *
 * If more groups wait than a call may look at, it begins with those whose
 * turns come next, which have not been served for longest.  It estimates the
 * numbers by the part that it has looked at.
 *
 * A queue of which shared memory knows no priority may have anything in the
 * table.  So nothing is known, unless commits say that it has no tasks at all.
 *
 * Looking changes nothing.
 *
 * Locking: an AccessShareLock on the queue for the time, because groups' bits
 * are freed with its hints.  If that is not available the queue is being
 * dropped, and nothing is known.  An AccessShareLock on fairq.task, to the end
 * of the transaction; if that is not available, the call reads nothing.  A walk
 * takes a lane's lock, shared, for GROUPS_AT_ONCE groups; its caller has the
 * queue locked.  What survey.c says.
 */
#include "postgres.h"

#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "lane_view.h"
#include "registry.h"
#include "seats.h"
#include "store.h"
#include "survey.h"
#include "waiting.h"

/* groups that are copied under one hold of a lane's lock */
#define GROUPS_AT_ONCE 32

/* groups that are looked at, at most: about 5 ms */
#define MOST_LOOKED 10000

/* groups that are read for the age of each kind, at most: about 2 ms */
#define MOST_READ 100

/* index entries that are read for due tasks in a timed region, at most */
#define MOST_DUE 1000

/* Where the walk through the groups of one lane is. */
typedef struct Path
{
	int64		from;			/* seat at which the next copy begins */
	int			n;
	int			at;				/* index of the next of those copied */
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
 * Begin to walk from one seat to another: to each group that waits; and to those
 * that run, in lanes in which a lease may have ended by that time.
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

/* The group that is next in a lane; FAIRQ_ALL_SEATS: none. */
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

/* Add what a lane knows of the group. */
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

/* Go to the next group.  False if there is none. */
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

/* A group that was looked at. */
typedef struct Looked
{
	int32		group_no;
	FairqReason own;			/* what keeps the group back, of its own */
	FairqReason reason;			/* the same, or what keeps all back */
	bool		waits;			/* it may have something ready */
	bool		read;			/* the times are true */
	TimestampTz since;			/* since when tasks wait for a slot, at the
								 * earliest; DT_NOEND: none does */
	TimestampTz ended;			/* when a lease has ended, at the earliest */
} Looked;

/* A look at a queue. */
typedef struct Look
{
	FairqQueue *queue;
	FairqTable *tasks;			/* NULL: somebody has it locked */
	TimestampTz now;
	FairqReason of_queue;		/* what keeps all groups back */
	bool		none_ready;		/* no task stands at a turn */
	bool		cut;			/* there are more groups than are looked at */
	int			nvisited;
	int64		nwaits;			/* number of lanes in which these wait, in all */
	int			n;
	Looked	   *groups;			/* MOST_LOOKED fit */
	FairqWaiting *waiting;
} Look;

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

/* Note a group that waits, or of which a lease may have ended. */
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

/* Look at the groups from one seat to another, if they are not too many. */
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
 * Look at the groups, beginning behind the seat that service has passed last in
 * the lane in which most wait.  Returns how many wait in each lane, in all.
 */
static int64
look_at_all(Look *look)
{
	int64		all = 0;
	int64		from = 0;
	int32		most = 0;

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		int64		next;
		int32		n = fairq_lane_nwaiting(fairq_queue_lane(look->queue, p),
											&next);

		all += n;
		if (n > most)
			from = next;
		most = Max(most, n);
	}
	look_at_groups(look, from, FAIRQ_ALL_SEATS);
	if (!look->cut)
		look_at_groups(look, 0, from);
	return all;
}

/* --------------------------------------------------------------------- */

/* Which tasks are compared. */
typedef struct Part
{
	bool		lapsed;			/* those that have lapsed, and no others */
	bool		ready;			/* those that may be claimed, or else the others */
} Part;

/* May a task be claimed, for all that keeps it back? */
static bool
may_claim(FairqReason reason, bool lapsed)
{
	/* a lapsed one has its slots already */
	return reason == FAIRQ_REASON_WORKERS || reason == FAIRQ_REASON_NONE ||
		(lapsed && (reason == FAIRQ_REASON_LIMIT ||
					reason == FAIRQ_REASON_QUEUE_LIMIT));
}

/* Since when a group has such tasks; DT_NOEND: it has none. */
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
read_group(Look *look, Looked *group)
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

/* Since when the oldest of such tasks waits; DT_NOEND: there is none. */
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
			/* it may have gone on running, and what is not known may be any time */
			if (group->read || (oldest == DT_NOEND && !part.lapsed &&
								time != DT_NOBEGIN))
				oldest = time;
			break;
		}
		read_group(look, group);
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

/* The same of all tasks that may be claimed; with !ready, of the others. */
static TimestampTz
find_oldest_of_all(Look *look, bool ready)
{
	TimestampTz lacks_slot = find_oldest(look, (Part) {false, ready});
	TimestampTz has_slot = find_oldest(look, (Part) {true, ready});

	return Min(lacks_slot, has_slot);
}

/* Note a task that is due, and no call has come by. */
static void
note_due(Look *look, const FairqTask *task)
{
	FairqReason own = fairq_group_reason(look->queue, task->group_no);
	TimestampTz *oldest = may_claim(Min(own, look->of_queue), false) ?
		&look->waiting->ready : &look->waiting->limited;

	if (!task->running && !fairq_is_expired(task, look->now))
		*oldest = Min(*oldest, task->run_at);
}

/* Look for such tasks in a timed region of a lane. */
static void
look_at_due(Look *look, int priority, FairqRegion region)
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
											 from, end), false, MOST_DUE);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END &&
		   state != FAIRQ_ROW_LATER)
	{
		FairqTask	task;

		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(fairq_scan_slot(scan), &task);
		note_due(look, &task);
	}
	fairq_scan_end(scan);
}

/* Count a group that waits, by what keeps it back. */
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

/* Of so many, if only a part was looked at. */
static int32
estimate(int32 n, int64 part, int64 all)
{
	return (int32) Min((double) n * Max(all, part) / Max(part, 1),
					   PG_INT32_MAX);
}

/* Look at a queue that is locked. */
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
	look.tasks = fairq_table_try_open(fairq_catalog()->task);
	waiting->sampled = look.cut;
	waiting->ready = find_oldest_of_all(&look, true);
	waiting->limited = find_oldest_of_all(&look, false);
	for (int p = 0; p < FAIRQ_PRIORITIES && look.tasks != NULL; p++)
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			look_at_due(&look, p, r);
	if (look.tasks != NULL)
		fairq_table_close(look.tasks);
	for (int i = 0; i < look.n; i++)
		count_group(&look.groups[i], waiting);
	if (look.cut)
	{
		waiting->nready = estimate(waiting->nready, look.nwaits, all);
		waiting->nlimited = estimate(waiting->nlimited, look.nwaits, all);
		waiting->nthrottled = estimate(waiting->nthrottled, look.nwaits, all);
	}
	pfree(look.groups);
}

/* Find who waits in a queue, and since when. */
void
fairq_waiting(FairqQueue *queue, FairqWaiting *waiting)
{
	int32		id = queue->id;

	*waiting = (FairqWaiting) {.ready = DT_NOEND, .limited = DT_NOEND};
	if (!is_known(queue) || !fairq_queue_id_try_lock(queue->id, AccessShareLock))
		return;
	/* it may have been dropped before we had the lock */
	waiting->known = fairq_shmem_find_queue(id) == queue->hints;
	if (waiting->known)
		look_at_queue(queue, waiting);
	fairq_queue_id_unlock(id, AccessShareLock);
}
