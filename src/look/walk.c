/*
 * walk.c
 *		The groups of a queue that wait or run, one after the other.
 *
 * They are found by their bits (lane_waits.c), in all lanes side by side, in
 * the order of their numbers, at a quarter of a microsecond for each.
 *
 * Locking: a lane's lock, shared, for GROUPS_AT_ONCE groups.  The caller has a
 * lock on the queue, as bits are freed with its hints.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "lane_waits.h"
#include "registry.h"
#include "seats.h"
#include "walk.h"

/* groups that are copied under one hold of a lane's lock */
#define GROUPS_AT_ONCE 32

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
