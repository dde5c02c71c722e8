/*
 * slots.c
 *		How many slots are left, looked at and not taken.
 *
 * A pop takes its slots one by one (running.c), and counts rows where a counter
 * does not know, or may say too much; what it has counted the counter knows from
 * then on.  Here the same is read, and counted at need, and not noted anywhere.
 *
 * Locking: counters' mutexes, for moments.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "count.h"
#include "pending.h"
#include "registry.h"
#include "seats.h"
#include "slots.h"

/*
 * Count the rows of a group, or of the queue (-1), if so few entries of the index
 * are enough for that.  False if they are not.
 */
static bool
count_rows(FairqQueue *queue, int32 group_no, int budget, FairqTable *tasks,
		   int32 *running)
{
	FairqCounting counting = {.budget = budget};

	if (budget == 0 ||
		!fairq_pending_running(queue->hints, group_no, &counting.running,
							   &counting.doubtful))
		return false;
	fairq_count_running(queue, group_no, tasks, &counting);
	if (counting.too_long)
		return false;
	*running = counting.running;
	return true;
}

/* How many tasks of a group are running, or fewer.  False if not known. */
static bool
running_of_group(FairqQueue *queue, int32 group_no, FairqAsOf now,
				 FairqTable *tasks, int32 *running)
{
	FairqHints *hints = queue->hints;
	FairqCounter none;
	FairqCounter *counter = fairq_shmem_find_counter(hints, group_no);
	bool		made = counter != NULL;
	bool		known;
	bool		doubtful;
	int			budget;

	/* one that is not there knows what a new one would */
	if (!made)
		fairq_counter_init(counter = &none);
	known = fairq_counter_read(counter, now, running, &doubtful);
	budget = fairq_entries_to_count(hints, counter, group_no, now);
	if (made)
		fairq_counter_unpin(counter);
	if (known && !doubtful)
		return true;
	return count_rows(queue, group_no, budget, tasks, running) || known;
}

/* Likewise of all groups that have counters. */
static bool
running_of_groups(FairqQueue *queue, FairqAsOf now, FairqTable *tasks,
				  int32 *running)
{
	int64		sum = 0;

	(void) fairq_chunks_map(&queue->hints->chunks);
	for (int32 group_no = 0;
		 fairq_shmem_next_counter(queue->hints, &group_no); group_no++)
	{
		int32		some;

		CHECK_FOR_INTERRUPTS();
		if (!running_of_group(queue, group_no, now, tasks, &some))
			return false;
		sum += some;
		if (group_no == PG_INT32_MAX)
			break;
	}
	*running = (int32) Min(sum, PG_INT32_MAX);
	return true;
}

/* Likewise of the queue. */
static bool
running_of_queue(FairqQueue *queue, FairqAsOf now, FairqTable *tasks,
				 int32 *running)
{
	FairqCounter *counter = &queue->hints->running;
	bool		doubtful;
	bool		known = fairq_counter_read(counter, now, running, &doubtful);

	if (known && !doubtful)
		return true;
	if (now.counted)
		return running_of_groups(queue, now, tasks, running) || known;
	return count_rows(queue, -1,
					  fairq_entries_to_count(queue->hints, counter, -1, now),
					  tasks, running) || known;
}

/*
 * How many more tasks of a group, or of the queue (-1), may run under that limit;
 * below 0: more are running than may.  False if not known how many are running:
 * then no pop gets a slot before the census has found out.
 */
bool
fairq_slots_left(FairqQueue *queue, int32 group_no, int32 limit,
				 FairqTable *tasks, int64 *left)
{
	FairqAsOf	now = fairq_lane_as_of(fairq_queue_lane(queue, 0));
	int32		running;

	*left = limit == 0 ? 0 : PG_INT32_MAX;
	if (limit == FAIRQ_NO_LIMIT || limit == 0)
		return true;
	if (!(group_no < 0 ? running_of_queue(queue, now, tasks, &running) :
		  running_of_group(queue, group_no, now, tasks, &running)))
		return false;
	*left = limit - (int64) running;
	return true;
}
