/*
 * heads.c
 *		The heads of a group: its first tasks, in the order in which its turns
 *		would serve them.
 *
 * A turn serves what turn.c says: expired tasks, retried ones that are due,
 * then queued ones and scheduled ones that are due, by when they became
 * ready.  Here the same is read and nothing is served: neither the hand nor
 * anything else in shared memory changes, no row is locked.  Due and expired
 * tasks are found by the searches of turn_due.c; queued ones in the index,
 * from the address on below which none is ready (hand.c).  So a head costs a
 * descent or two, whatever is queued.
 *
 * Since nothing is claimed, a search would come by the same tasks again at the
 * group's next turn.  So the caller keeps the ids of those that it has come by.
 *
 * Rows in the hands of another transaction, rows that are locked at this
 * moment, and tasks that are outdated, are passed over, as a pop passes them over.
 *
 * Locking: none.
 */
#include "postgres.h"

#include "utils/hsearch.h"

#include "hand.h"
#include "heads.h"

/*
 * Begin to read heads of groups of the queue, as of that time.  The service is
 * the caller's; only what searches need of it is filled in.
 */
void
fairq_heads_begin(FairqService *s, FairqQueue *queue, FairqTable *tasks,
				  TimestampTz now)
{
	memset(s, 0, sizeof(*s));
	s->queue = queue;
	s->tasks = tasks;
	s->call.now = now;
	s->taken.by = now;
	s->call.peek = true;
}

/* Go on to that lane, whose clock is that; DT_NOBEGIN: the lane has none. */
void
fairq_heads_in_lane(FairqService *s, int priority, TimestampTz clock)
{
	s->priority = priority;
	s->lane = fairq_queue_lane(s->queue, priority);
	s->taken.by = Max(s->call.now, clock);
}

/* End all scans. */
void
fairq_heads_end(FairqService *s)
{
	if (s->scans.queued != NULL)
		fairq_scan_end(s->scans.queued);
	if (s->scans.expired != NULL)
		fairq_scan_end(s->scans.expired);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		if (s->scans.due[r] != NULL)
			fairq_scan_end(s->scans.due[r]);
}

/* Make an empty set of ids, in the current memory context. */
HTAB *
fairq_heads_seen(void)
{
	HASHCTL		ctl = {
		.keysize = sizeof(int64),
		.entrysize = sizeof(int64),
		.hcxt = CurrentMemoryContext
	};

	return hash_create("fairq heads", 64, &ctl,
					   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* --------------------------------------------------------------------- */

/* Begin to read the heads of the group of which that is known. */
void
fairq_heads_of(FairqHeads *heads, const FairqGroupCopy *copy, HTAB *seen)
{
	const FairqGroup *group = &copy->group;
	FairqTurn  *turn = &heads->turn;

	memset(heads, 0, sizeof(*heads));
	heads->from = fairq_hand_low(group);
	heads->more = !fairq_hand_is_empty(group);
	heads->seen = seen;
	turn->group_no = copy->group_no;
	turn->sets.due = fairq_copy_has(copy, FAIRQ_DUE);
	turn->sets.lapsed = fairq_copy_has(copy, FAIRQ_LAPSED) || copy->lapsing;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		turn->due.from[r] = group->due.from[r];
		turn->run.low[r] = group->run.low[r];
	}
	turn->run.high = group->run.high;
	turn->cycle.addr = group->cycle.addr;
	turn->cycle.id = group->cycle.id;
	turn->due.n = group->due.n;
	turn->due.region = group->due.region;
	memcpy(turn->due.items, group->due.items, sizeof(turn->due.items));
}

/*
 * A timed task of the group that stands there has fallen due, and no pop has
 * found that yet.
 */
void
fairq_heads_fell_due(FairqHeads *heads, int64 addr)
{
	FairqTurn  *turn = &heads->turn;
	FairqRegion region = fairq_region(addr);

	if (!turn->sets.due)
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			turn->due.from[r] = FAIRQ_ADDR_MAX;
	turn->sets.due = true;
	if (turn->due.next < turn->due.n && turn->due.region == region &&
		addr < turn->due.from[region])
	{
		/* what was read ahead may come behind it */
		addr = Min(addr, turn->due.items[turn->due.next].addr);
		turn->due.next = turn->due.n;
	}
	turn->due.from[region] = Min(turn->due.from[region], addr);
}

/* Begin the group's next turn. */
void
fairq_heads_turn(FairqService *s, FairqHeads *heads, FairqCourse *course,
				 bool paused)
{
	course->turn = &heads->turn;
	fairq_course_begin(s, course, paused);
	course->queued.begun = false;
}

static bool
was_seen(const FairqHeads *heads, const FairqTask *task)
{
	return hash_search(heads->seen, &task->id, HASH_FIND, NULL) != NULL;
}

/* Have the first queued task at hand that was not seen yet. */
static void
look_for_queued(FairqService *s, FairqHeads *heads, FairqSearch *search)
{
	while (!search->have && heads->more)
	{
		FairqTask  *task = &search->task;
		FairqRowState state;

		if (!search->begun)
			s->scans.queued = search_group(s, s->scans.queued,
										   heads->turn.group_no, heads->from,
										   FAIRQ_RETRIES);
		search->begun = true;
		state = fairq_task_next(s->scans.queued, task, true);
		if (state == FAIRQ_ROW_END)
		{
			heads->more = false;
			break;
		}
		heads->from = task->addr;
		search->since = Max(task->enqueued_at, task->run_at);
		search->have = state == FAIRQ_ROW_LIVE && !task->running &&
			!was_seen(heads, task);
	}
}

/* Go on behind the task that the search has at hand. */
static void
pass(FairqHeads *heads, FairqSearch *search)
{
	search->have = false;
	if (search->at_hand)
		heads->turn.due.next++;
}

/* Have the next due task of a region at hand that was not seen yet. */
static void
look_for_due(FairqService *s, FairqHeads *heads, FairqCourse *course,
			 FairqRegion region)
{
	FairqSearch *search = &course->due[region];

	fairq_look_for_due(s, course, region);
	while (search->have && was_seen(heads, &search->task))
	{
		pass(heads, search);
		fairq_look_for_due(s, course, region);
	}
}

/* Likewise the next expired one. */
static void
look_for_expired(FairqService *s, FairqHeads *heads, FairqCourse *course)
{
	fairq_look_for_expired(s, course);
	while (course->expired.have && was_seen(heads, &course->expired.task))
	{
		pass(heads, &course->expired);
		fairq_look_for_expired(s, course);
	}
}

/*
 * Returns the search whose task would be served next; NULL: none.  As in
 * turn.c a slot is needed but for expired tasks.
 */
static FairqSearch *
choose(FairqService *s, FairqHeads *heads, FairqCourse *course, bool have_slot)
{
	if (course->search)
		look_for_expired(s, heads, course);
	if (course->expired.have)
		return &course->expired;
	if (!have_slot)
		return NULL;
	if (course->search)
	{
		look_for_due(s, heads, course, FAIRQ_REGION_RETRIED);
		if (course->due[FAIRQ_REGION_RETRIED].have)
			return &course->due[FAIRQ_REGION_RETRIED];
		look_for_due(s, heads, course, FAIRQ_REGION_SCHEDULED);
	}
	look_for_queued(s, heads, &course->queued);
	if (!course->search)
		return course->queued.have ? &course->queued : NULL;
	return fairq_search_first(course);
}

/*
 * Read the task that would be served next at the turn, and go on behind it.
 * False if there is none.  The caller who would have it served says so at
 * once.
 */
bool
fairq_heads_next(FairqService *s, FairqHeads *heads, FairqCourse *course,
				 bool have_slot, FairqHead *head)
{
	FairqSearch *chosen;

	while ((chosen = choose(s, heads, course, have_slot)) != NULL)
	{
		ItemPointerData root = chosen->task.root;
		bool		outdated = fairq_is_outdated(&chosen->task, s->call.now);

		if (outdated && s->got.outdated == FAIRQ_MAX_ENDED)
			return false;
		head->task = chosen->task;
		head->expired = chosen == &course->expired;
		pass(heads, chosen);
		(void) hash_search(heads->seen, &head->task.id, HASH_ENTER, NULL);
		s->got.outdated += outdated;
		if (outdated || fairq_task_peek(s->tasks, &head->task,
										head->expired) != FAIRQ_CLAIMED)
			continue;
		head->task.root = root;
		return true;
	}
	return false;
}

/*
 * The task that was read would have been served: the cycle goes on behind it.
 */
void
fairq_heads_served(FairqHeads *heads, FairqCourse *course,
				   const FairqHead *head)
{
	heads->turn.tasks.served++;
	if (!head->expired)
		return;
	heads->turn.cycle.addr = course->findings.cycle = head->task.addr;
	heads->turn.cycle.id = course->findings.cycle_id = head->task.id;
}

/* End the turn: note from where the next one is to go on. */
void
fairq_heads_turn_over(FairqHeads *heads, FairqCourse *course)
{
	FairqTurn  *turn = &heads->turn;

	turn->tasks.served = 0;
	if (!course->search)
		return;
	if (turn->sets.due)
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			turn->due.from[r] = course->due[r].from;
	/* each expired one was seen, or is to be left */
	if (!course->expired.open && !course->expired.have)
		turn->sets.lapsed = false;
}
