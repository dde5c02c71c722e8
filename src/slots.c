/*
 * slots.c
 *		How many slots are left, looked at and not taken.
 *
 * A pop takes its slots one by one (running.c), and counts rows where a
 * counter does not know, or may say too much; what it has counted the counter
 * knows from then on.  Here the same is read, and counted at need, and not
 * noted anywhere.
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
 * Count the rows of a group, or of the queue, if no more entries of the index
 * have to be read for that.  False if they have.
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

/*
 * What the counter of a group, or of the queue, says, and how many entries of
 * the index may be read to count its rows.  False if it is not known.
 */
static bool
read_counter(FairqQueue *queue, int32 group_no, FairqAsOf now, int32 *running,
			 bool *doubtful, int *budget)
{
	FairqHints *hints = queue->hints;
	FairqCounter none;
	FairqCounter *found = group_no < 0 ? NULL :
		fairq_shmem_find_counter(hints, group_no);
	FairqCounter *counter = group_no < 0 ? &hints->running : found;
	bool		known;

	/* one that is not there knows what a new one would */
	if (counter == NULL)
		fairq_counter_init(counter = &none, hints->entry.born);
	known = fairq_counter_read(counter, now, running, doubtful);
	*budget = fairq_entries_to_count(hints, counter, group_no, now);
	if (found != NULL)
		fairq_counter_unpin(found);
	return known;
}

/* How many tasks run of all groups that have counters.  False if not known. */
static bool
sum_groups(FairqQueue *queue, FairqAsOf now, FairqTable *tasks, int32 *running)
{
	int64		sum = 0;

	(void) fairq_chunks_map(&queue->hints->chunks);
	for (int32 group_no = 0;
		 fairq_shmem_next_counter(queue->hints, &group_no); group_no++)
	{
		int32		some;
		bool		doubtful;
		int			budget;
		bool		known = read_counter(queue, group_no, now, &some,
										 &doubtful, &budget);

		CHECK_FOR_INTERRUPTS();
		if (!known || doubtful)
			known |= count_rows(queue, group_no, budget, tasks, &some);
		if (!known)
			return false;
		sum += some;
		if (group_no == PG_INT32_MAX)
			break;
	}
	*running = (int32) Min(sum, PG_INT32_MAX);
	return true;
}

/* Count what the counter does not know, or may have counted too often. */
static void
count(FairqQueue *queue, FairqTable *tasks, FairqAsOf now, int budget,
	  FairqSlots *slots)
{
	int32		running;

	slots->doubtful = false;
	if (slots->group_no < 0 && now.counted ?
		!sum_groups(queue, now, tasks, &running) :
		!count_rows(queue, slots->group_no, budget, tasks, &running))
		return;
	slots->known = true;
	slots->left = slots->limit - (int64) running - slots->taken;
}

/* How many tasks of the group, or queue, may start by its pace. */
static int64
count_starts(FairqQueue *queue, const FairqSlots *slots)
{
	FairqHints *hints = queue->hints;
	FairqCounter none;
	FairqCounter *found;
	int64		left;

	if (slots->held)
		return 0;
	if (slots->pace.gap == 0)
		return PG_INT32_MAX;
	if (slots->group_no < 0)
		return fairq_counter_starts_left(&hints->running, &slots->pace);
	found = fairq_shmem_find_counter(hints, slots->group_no);
	fairq_counter_init(&none, hints->entry.born);
	left = fairq_counter_starts_left(found != NULL ? found : &none,
									 &slots->pace);
	if (found != NULL)
		fairq_counter_unpin(found);
	return left;
}

/*
 * Look how many slots are left to the group, or queue, under that limit, and how
 * many starts.
 */
void
fairq_slots_look(FairqQueue *queue, FairqTable *tasks, FairqSlots *slots)
{
	FairqAsOf	now = fairq_lane_as_of(fairq_queue_lane(queue, 0));
	int32		running;
	int			budget;

	slots->known = true;
	slots->doubtful = false;
	slots->taken = 0;
	slots->starts = count_starts(queue, slots);
	slots->left = slots->limit == 0 ? 0 : PG_INT32_MAX;
	if (slots->limit == FAIRQ_NO_LIMIT || slots->limit == 0)
		return;
	slots->known = read_counter(queue, slots->group_no, now, &running,
								&slots->doubtful, &budget);
	slots->left = slots->limit - (int64) running;
	if (!slots->known)
		count(queue, tasks, now, budget, slots);
}

/*
 * Is any slot left?  As a pop does it counts rows before it says that there is
 * none, if there may be.
 */
bool
fairq_slots_any(FairqQueue *queue, FairqTable *tasks, FairqSlots *slots)
{
	if (slots->known && slots->left <= 0 && slots->doubtful)
	{
		FairqAsOf	now = fairq_lane_as_of(fairq_queue_lane(queue, 0));
		int32		running;
		bool		doubtful;
		int			budget;

		(void) read_counter(queue, slots->group_no, now, &running, &doubtful,
							&budget);
		count(queue, tasks, now, budget, slots);
	}
	return slots->known && slots->left > 0 && slots->starts > 0;
}
