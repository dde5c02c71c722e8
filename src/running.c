/*
 * running.c
 *		Slots of running tasks in queues and groups.
 *
 * A claim needs a slot in its queue and one in its group.  counter.c keeps
 * the counters; here they are looked up, counted off the table (count.c) when
 * they have no count, and passed on to the pending changes of the transaction.
 *
 * A queue in which nothing was ever limited need not count.  Its calls only
 * say how many of them are in progress.  The first call that sees a limit in
 * the settings makes the queue a limited one, for good.  From then on each
 * call counts, and no counter gets a count before the calls that don't are
 * over.  So no claim goes uncounted.  A call that has to count sleeps until
 * then, but for no more than some 16 ms in all; then it passes over the
 * limited groups.
 *
 * After a restart all counters get their counts from the census (census.c).
 * As long as that goes on, a limited group without a count is passed over, and
 * a queue without one counts as full, unless there are so few index entries,
 * dead ones included, that the rows are counted by themselves.
 *
 * Otherwise a queue's counter gets its count as the sum of its groups'
 * counters, so rows are read only of groups that have no count, or a doubtful
 * one.  If calls did not count while the census went on, there has to be
 * another one, unless the queue has so few groups and rows that these are
 * counted.
 *
 * Locking: the counters' mutexes, and what lane.c takes.  A scan is done
 * without any.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "count.h"
#include "registry.h"
#include "running.h"
#include "shadow.h"

/* how often a call waits to count, for what is done in a moment */
#define COUNT_WAITS 16
#define COUNT_WAIT_US 1000

/* how often the groups are summed up for a count that is exact */
#define MOST_SUMS 3

/* groups that a call doesn't count again */
#define COUNTED_SLOTS 64

/* The call in progress. */
static struct
{
	FairqQueue *queue;			/* queue of the call; NULL: none in progress */
	bool		counted;		/* true: the call counts running tasks */
	bool		peeks;			/* true: it takes no slot */
	int			waits;			/* number of waits for a count, so far */
	bool		any_doubtful;	/* true: doubtful_groups is not all zero */
	bool		in_queue;		/* true: the call has a slot in the queue */
	uint64		queue_count_no; /* count_no of the queue's counter then */
	FairqStart	queue_start;	/* start of a task of the queue, taken for
								 * the next claim */
	bool		throttled;		/* true: no task of the queue may start yet */

	/* the group of which a task is claimed or finished */
	struct
	{
		FairqLane  *lane;		/* lane of the group */
		int32		no;			/* the group's number */
		FairqCounter *counter;	/* its counter, pinned; NULL: none */
		bool		slot;		/* true: a slot in the group is taken for
								 * the next claim */
		bool		holding;	/* true: its counter is held without a slot */
		uint64		count_no;	/* count_no of its counter */
		FairqStart	start;		/* start of a task of the group, taken for
								 * the next claim */
	}			group;

	FairqCounter *summed;		/* counter that is being added up, pinned;
								 * NULL: none */
	bool		holding_queue;	/* true: the queue's counter is held without a
								 * slot */
	bool		for_hold;		/* true: the call is there for that alone */
}			call;

/*
 * Groups that were counted, and are doubtful, by hash: 2 + the number; and at the
 * end the queue.  They stand apart, as that is seldom written to.
 */
static int64 doubtful_groups[COUNTED_SLOTS + 1];

/*
 * Begin a call that claims tasks, or finishes one; or that peeks, that is,
 * looks whether one could be claimed: such a call takes no slot, which another
 * call could use.
 */
void
fairq_running_begin(FairqQueue *queue, bool peeks)
{
	FairqHints *hints = queue->hints;

	Assert(call.queue == NULL);
	fairq_watch_transaction();
	call.peeks = peeks;
	if (queue->limited && pg_atomic_read_u32(&hints->limited) == 0)
		(void) pg_atomic_fetch_or_u32(&hints->limited, 1);
	if (pg_atomic_read_u32(&hints->limited) == 0)
	{
		/*
		 * count the call first, then look again; a backend that counts tasks
		 * does it the other way round
		 */
		pg_atomic_fetch_add_u32(&hints->calls, 1);
		fairq_census_not_counted(hints);
		if (pg_atomic_read_u32(&hints->limited) == 0)
		{
			call.queue = queue;
			return;
		}
		pg_atomic_fetch_sub_u32(&hints->calls, 1);
	}
	fairq_census_counted(hints);
	call.counted = true;
	call.queue = queue;
}

/* Let go of the group's counter: the row is written, or won't be. */
static void
let_go_of_group(void)
{
	fairq_counter_let_go(call.group.counter,
						 fairq_lane_as_of(call.group.lane));
	fairq_counter_unpin(call.group.counter);
	call.group.counter = NULL;
	call.group.slot = call.group.holding = false;
}

/* Give back the start of a task of the group, which was not needed. */
static void
group_start_back(void)
{
	if (call.group.start.taken)
		fairq_unthrottle(call.queue->hints, call.group.no,
						 fairq_counter_unstart(call.group.counter,
											   &call.group.start));
}

/* The same of the queue: others may have found none because of ours. */
static void
queue_start_back(void)
{
	FairqHints *hints = call.queue->hints;

	if (!call.queue_start.taken)
		return;
	(void) fairq_counter_unstart(&hints->running, &call.queue_start);
	fairq_wake(&hints->wakeup, 1);
}

static void
let_go_of_queue(void)
{
	FairqHints *hints = call.queue->hints;

	fairq_counter_let_go(&hints->running, fairq_lane_as_of(&hints->lanes[0]));
}

/*
 * Let go of counters that are held without a slot: the row is written, or
 * won't be.
 */
static void
let_go_of_row(void)
{
	if (call.group.holding)
	{
		group_start_back();
		let_go_of_group();
	}
	if (call.holding_queue)
		let_go_of_queue();
	call.holding_queue = false;
}

/* Give back the slot in the group, which was not needed. */
void
fairq_slot_in_group_back(void)
{
	uint16		parked;

	if (!call.group.slot)
		return;
	group_start_back();
	parked = fairq_counter_leave(call.group.counter,
								 fairq_lane_as_of(call.group.lane), 1,
								 call.group.count_no);
	let_go_of_group();
	/* another call may have found no slot because of ours */
	fairq_unpark(call.queue->hints, call.group.no, parked);
}

/*
 * End the call: it is over, or an error has ended it.  For abort callbacks,
 * too.
 */
void
fairq_running_end(void)
{
	FairqHints *hints;

	if (call.queue == NULL)
		return;
	hints = call.queue->hints;
	if (!call.counted)
		pg_atomic_fetch_sub_u32(&hints->calls, 1);
	let_go_of_row();
	if (call.group.slot)
		fairq_slot_in_group_back();
	else if (call.group.counter != NULL)
		fairq_counter_unpin(call.group.counter);
	if (call.summed != NULL)
		fairq_counter_unpin(call.summed);
	queue_start_back();
	if (call.in_queue)
	{
		(void) fairq_counter_leave(&hints->running,
								   fairq_lane_as_of(&hints->lanes[0]), 1,
								   call.queue_count_no);
		let_go_of_queue();
	}
	if (call.any_doubtful)
		memset(doubtful_groups, 0, sizeof(doubtful_groups));
	memset(&call, 0, sizeof(call));
}

/* Log a count. */
static void
say_counted(const FairqQueue *queue, int32 group_no, int32 running)
{
	if (group_no < 0)
		elog(DEBUG1, "counted the running tasks of queue \"%s\": %d",
			 queue->name, running);
	else
		elog(DEBUG2, "counted the running tasks of group number %d of queue \"%s\": %d",
			 group_no, queue->name, running);
}

static bool count_counter(FairqCounter *counter, int32 group_no,
						  FairqTable *tasks);

/*
 * Where it is noted that a group, or the queue (-1), was counted in this call
 * and is doubtful: counting again would not help.
 */
static int64 *
doubtful_slot(int32 group_no)
{
	return &doubtful_groups[group_no < 0 ? COUNTED_SLOTS :
							group_no % COUNTED_SLOTS];
}

static bool
was_doubtful(int32 group_no)
{
	return *doubtful_slot(group_no) == group_no + INT64CONST(2);
}

static void
note_doubtful(int32 group_no)
{
	*doubtful_slot(group_no) = group_no + INT64CONST(2);
	call.any_doubtful = true;
}

/* Add what a group's counter says, counting the group if need be. */
static bool
add_group(int32 group_no, FairqAsOf now, FairqTable *tasks,
		  FairqCounting *counting)
{
	int32		running;
	bool		doubtful;
	bool		known;

	known = fairq_counter_read(call.summed, now, &running, &doubtful);
	if ((!known || doubtful) && !was_doubtful(group_no) &&
		count_counter(call.summed, group_no, tasks))
	{
		known = fairq_counter_read(call.summed, now, &running, &doubtful);
		if (doubtful)
			note_doubtful(group_no);
	}
	counting->running = Min(counting->running + (int64) running, PG_INT32_MAX / 2);
	counting->doubtful |= doubtful;
	return known;
}

/*
 * Sum up the queue (counter.c, rule 8).  False if there is no count of each
 * group how many of its tasks are running.
 */
static bool
sum_groups(FairqAsOf now, FairqTable *tasks, FairqCounting *counting)
{
	FairqHints *hints = call.queue->hints;
	bool		known = true;

	for (int32 group_no = 0; fairq_shmem_next_counter(hints, &group_no); group_no++)
	{
		CHECK_FOR_INTERRUPTS();
		call.summed = fairq_shmem_find_counter(hints, group_no);
		/* it was just freed: then nothing of the group is running */
		if (call.summed == NULL)
			continue;
		known = add_group(group_no, now, tasks, counting);
		fairq_counter_unpin(call.summed);
		call.summed = NULL;
		if (!known || group_no == PG_INT32_MAX)
			break;
	}
	return known;
}

/*
 * Give the queue's counter a count that way: exactly, if the queue has a quiet
 * moment, but each claim and each end would make it wait for another one.
 */
static bool
count_groups(FairqCounter *counter, FairqAsOf now, FairqTable *tasks)
{
	for (int sums = 1;; sums++)
	{
		FairqCounting counting = {0};
		FairqSum	sum;

		fairq_counter_sum_begin(counter, now, &sum);
		if (!sum_groups(now, tasks, &counting))
			return false;
		if (fairq_counter_summed(counter, now, &sum, counting.running,
								 counting.doubtful, sums < MOST_SUMS))
		{
			say_counted(call.queue, -1, counting.running);
			return true;
		}
		if (sums == MOST_SUMS)
			return false;
	}
}

/*
 * Count the rows of a group, or of the queue (-1).  False if they are too
 * many, or if that is prevented by what our own transaction has pending.
 */
static bool
sum_rows(FairqCounter *counter, int32 group_no, FairqAsOf now,
		 FairqTable *tasks, FairqCounting *counting)
{
	FairqHints *hints = call.queue->hints;

	counting->budget = fairq_entries_to_count(hints, counter, group_no, now);
	counting->too_long = counting->budget == 0;
	if (!counting->too_long)
	{
		if (!fairq_pending_running(fairq_shadow_real(hints), group_no,
								   &counting->running, &counting->doubtful))
			return false;
		fairq_count_running(call.queue, group_no, tasks, counting);
		if (counting->too_long)
			fairq_counter_is_long(counter, now);
	}
	if (counting->too_long && group_no < 0 && !fairq_in_shadow(hints))
		fairq_census_want(hints);
	return !counting->too_long;
}

/*
 * Give the counter a count.  False if that could not be had in a moment.
 */
static bool
count_counter(FairqCounter *counter, int32 group_no, FairqTable *tasks)
{
	FairqQueue *queue = call.queue;
	FairqLane  *any_lane = fairq_queue_lane(queue, 0);

	for (;;)
	{
		FairqAsOf	now = fairq_lane_as_of(any_lane);
		FairqCounting counting = {0};
		uint64		changes;

		if (group_no < 0 && now.counted)
			return count_groups(counter, now, tasks);
		if (pg_atomic_read_u32(&queue->hints->calls) == 0 &&
			fairq_counter_note(counter, now, &changes))
		{
			if (!sum_rows(counter, group_no, now, tasks, &counting))
				return false;
			if (fairq_counter_counted(counter, now, changes, counting.running,
									  counting.doubtful))
			{
				say_counted(queue, group_no, counting.running);
				return true;
			}
		}
		if (call.waits++ >= COUNT_WAITS)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(COUNT_WAIT_US);
	}
}

/* Take a slot; or with count_no NULL, only see whether there is one. */
static FairqSlot
try_counter(FairqCounter *counter, int32 limit, uint64 *count_no)
{
	FairqAsOf	now = fairq_lane_as_of(fairq_queue_lane(call.queue, 0));

	return count_no == NULL ? fairq_counter_has_slot(counter, now, limit) :
		fairq_counter_enter(counter, now, limit, count_no);
}

/*
 * Take a slot, or see whether there is one, counting first if need be.  If
 * there is no slot after that but for doubt, counting again would not help:
 * what is doubtful is being changed by transactions that go on.
 */
static FairqSlot
enter_counter(FairqCounter *counter, int32 limit, int32 group_no,
			  FairqTable *tasks, uint64 *count_no)
{
	FairqSlot	slot = try_counter(counter, limit, count_no);

	if (slot == FAIRQ_SLOT_UNKNOWN && !was_doubtful(group_no) &&
		count_counter(counter, group_no, tasks))
	{
		slot = try_counter(counter, limit, count_no);
		if (slot == FAIRQ_SLOT_UNKNOWN)
			note_doubtful(group_no);
	}
	return slot;
}

/* Are there other settings than those that the call has read? */
bool
fairq_settings_are_old(const FairqQueue *queue)
{
	return pg_atomic_read_u64(&queue->hints->versions.now) != queue->as_of.version;
}

/*
 * Make sure of a start in the queue for the next task.  False if none may start
 * yet.
 */
static bool
start_in_queue(void)
{
	FairqCounter *counter = &call.queue->hints->running;
	const FairqPace *pace = &call.queue->starts.pace;

	call.throttled = call.counted && pace->gap != 0 && !call.queue_start.taken &&
		(call.peeks ? fairq_counter_next_start(counter, pace) :
		 fairq_counter_start(counter, pace, &call.queue_start)) != 0;
	return !call.throttled;
}

/* Was it found that no task of the queue may start yet? */
bool
fairq_queue_is_throttled(void)
{
	return call.throttled;
}

/* Do starts of the group's tasks have to be counted? */
bool
fairq_is_paced(int32 group_no)
{
	return call.counted &&
		(call.queue->starts.pace.gap != 0 ||
		 fairq_group_setting(call.queue, group_no)->pace.gap != 0);
}

/*
 * Make sure of a slot in the queue for the next task, and of its start.  False if
 * the queue is full, or no task may start yet, and if the limits are not in
 * effect any more.
 */
bool
fairq_slot_in_queue(FairqTable *tasks)
{
	bool		have_slot = !call.counted || call.in_queue ||
		enter_counter(&call.queue->hints->running, call.queue->max_running, -1,
					  tasks,
					  call.peeks ? NULL :
					  &call.queue_count_no) == FAIRQ_SLOT_FREE;

	call.in_queue = have_slot && call.counted && !call.peeks;
	have_slot = have_slot && start_in_queue();
	return have_slot && !fairq_settings_are_old(call.queue);
}

/*
 * Put the group whose turn that is aside until then, since none of its tasks may
 * start; not by settings that only we know.
 */
static void
throttle(FairqLane *lane, uint32 lane_no, FairqTurn *turn,
		 const FairqSetting *setting, int64 until)
{
	turn->state.throttled = true;
	turn->state.kept_out = fairq_has_changed_settings();
	/* one that is only looked at is none that could be ended */
	if (turn->state.begun && !turn->state.kept_out &&
		fairq_lane_throttle(lane, lane_no, turn, call.queue->as_of.version,
							call.group.counter, &setting->pace, until) &&
		!call.peeks)
		fairq_wake_in_time(&call.queue->hints->wakeup,
						   fairq_wall_time(until, GetCurrentTimestamp()));
}

/*
 * Put the group whose turn that is aside until its task that is to be retried is
 * due.  One that is due has its turn in another lane; until then each call would come
 * by here in vain.  So the group is put aside for as long as that task has been due
 * already, and a second at most: its end takes the group back (transaction.c), but
 * that it begins is up to other priorities.
 */
void
fairq_wait_for_retry(FairqLane *lane, uint32 lane_no, FairqTurn *turn,
					 TimestampTz due_at)
{
	bool		pinned = call.group.counter != NULL;
	TimestampTz now = GetCurrentTimestamp();

	if (!call.counted || due_at == DT_NOEND)
		return;
	if (due_at <= now)
		due_at = now + Min(Max(now - due_at, USECS_PER_SEC / 1000),
						   USECS_PER_SEC);
	if (!pinned)
		call.group.counter = fairq_shmem_counter(call.queue->hints,
												 turn->group_no);
	throttle(lane, lane_no, turn,
			 fairq_group_setting(call.queue, turn->group_no),
			 fairq_hold_end_at(due_at, now));
	if (!pinned)
	{
		fairq_counter_unpin(call.group.counter);
		call.group.counter = NULL;
	}
}

/*
 * Make sure of a start in the group whose turn that is; or with look, see whether
 * there is one.  If there is none, the group is throttled.
 */
static bool
start_in_group(FairqLane *lane, uint32 lane_no, FairqTurn *turn, bool look)
{
	const FairqSetting *setting = fairq_group_setting(call.queue,
													  turn->group_no);
	int64		until = 0;

	if (setting->held_until != DT_NOBEGIN)
	{
		TimestampTz now = GetCurrentTimestamp();

		if (setting->held_until > now)
			until = fairq_hold_end_at(setting->held_until, now);
	}
	if (until == 0 && setting->pace.gap != 0 && !call.group.start.taken)
		until = look ?
			fairq_counter_next_start(call.group.counter, &setting->pace) :
			fairq_counter_start(call.group.counter, &setting->pace,
								&call.group.start);
	if (until != 0)
		throttle(lane, lane_no, turn, setting, until);
	return until == 0;
}

/*
 * Make sure of the start of an expired task, whose slot goes over.  False if it may
 * not start yet.
 */
bool
fairq_start_expired(FairqLane *lane, uint32 lane_no, FairqTurn *turn)
{
	bool		pinned = call.group.counter != NULL;
	bool		starts;

	if (!call.counted)
		return true;
	if (!start_in_queue())
		return false;
	if (!pinned)
	{
		call.group.lane = lane;
		call.group.no = turn->group_no;
		call.group.counter = fairq_shmem_counter(call.queue->hints,
												 turn->group_no);
	}
	starts = start_in_group(lane, lane_no, turn, !pinned);
	if (!pinned)
	{
		fairq_counter_unpin(call.group.counter);
		call.group.counter = NULL;
	}
	return starts;
}

/* The call's starts are those of a task that was claimed. */
void
fairq_start_is_used(void)
{
	call.group.start.taken = call.queue_start.taken = false;
}

/*
 * Is there a slot in the group whose turn that is?  It is taken if one in the
 * queue is, and not before (counter.c, rule 8).  If there is none, the group
 * is parked (with may_park), or has to be passed over for this time.
 */
bool
fairq_slot_in_group(FairqLane *lane, uint32 lane_no, FairqTurn *turn,
					bool may_park, FairqTable *tasks)
{
	int32		group_no = turn->group_no;
	int32		limit;
	FairqSlot	slot;

	if (!call.counted)
		return true;
	limit = fairq_group_setting(call.queue, group_no)->limit;
	call.group.lane = lane;
	call.group.no = group_no;
	call.group.counter = fairq_shmem_counter(call.queue->hints, group_no);
	slot = enter_counter(call.group.counter, limit, group_no, tasks,
						 call.in_queue ? &call.group.count_no : NULL);
	if (slot == FAIRQ_SLOT_FREE && call.in_queue)
	{
		call.group.slot = true;
		if (start_in_group(lane, lane_no, turn, false) &&
			!fairq_settings_are_old(call.queue))
			return true;
		fairq_slot_in_group_back();
		return false;
	}
	turn->state.in_doubt = slot == FAIRQ_SLOT_UNKNOWN;
	turn->state.kept_out = slot == FAIRQ_SLOT_NONE &&
		fairq_has_changed_settings();
	if (slot == FAIRQ_SLOT_NONE && may_park && !turn->state.kept_out)
		fairq_lane_park(lane, lane_no, turn, call.queue->as_of.version,
						call.group.counter, limit);
	if (slot == FAIRQ_SLOT_FREE && !start_in_group(lane, lane_no, turn, true))
		slot = FAIRQ_SLOT_NONE;
	fairq_counter_unpin(call.group.counter);
	call.group.counter = NULL;
	return slot == FAIRQ_SLOT_FREE && !fairq_settings_are_old(call.queue);
}

/*
 * Use the call's slots for a task, whose row shows that it is running; or,
 * with removed, that it is gone.  pending is NULL if that is only foreseen.
 */
void
fairq_slot_is_used(FairqPending *pending, const FairqTask *task, bool removed)
{
	/* before the counter is let go: a count after that must reach so far */
	fairq_lane_reaches(fairq_queue_lane(call.queue, task->priority), task->addr);
	if (pending != NULL)
	{
		/* taken: nothing else says that it has ended */
		pending->leaves.of_retried |= removed &&
			call.queue->retries.in_order &&
			fairq_region(task->addr) == FAIRQ_REGION_RETRIED;
		fairq_pending_leaves(pending, call.group.counter, call.group.count_no,
							 call.queue_count_no, removed ? 1 : 0, 1);
	}
	if (!call.counted)
		return;
	let_go_of_group();
	let_go_of_queue();
	call.in_queue = false;
}

/*
 * Hold the counters: the row of a running task of the group is about to be
 * written.  That is part of the call in progress, or a call of its own.
 */
void
fairq_hold_begin(FairqQueue *queue, FairqLane *lane, int32 group_no)
{
	FairqAsOf	now;

	if (call.queue == NULL)
	{
		fairq_running_begin(queue, false);
		call.for_hold = true;
	}
	/* a call that has a slot holds the counter by that */
	Assert(!call.group.slot ||
		   (call.group.lane == lane && call.group.no == group_no));
	if (!call.counted)
		return;
	now = fairq_lane_as_of(lane);
	if (!call.group.slot)
	{
		call.group.lane = lane;
		call.group.no = group_no;
		call.group.counter = fairq_shmem_counter(call.queue->hints, group_no);
		call.group.count_no = fairq_counter_hold(call.group.counter, now);
		call.group.holding = true;
	}
	if (!call.in_queue)
	{
		call.queue_count_no = fairq_counter_hold(&call.queue->hints->running,
												 now);
		call.holding_queue = true;
	}
}

/*
 * May a task go on running with another worker?  Surely not if there are more
 * than may be by now.  FAIRQ_SLOT_UNKNOWN, as long as it is not known how many
 * there are.
 */
FairqSlot
fairq_hold_within_limits(void)
{
	FairqAsOf	now;
	FairqSlot	in_group;
	FairqSlot	in_queue;

	if (!call.counted)
		return FAIRQ_SLOT_FREE;
	now = fairq_lane_as_of(call.group.lane);
	in_group = fairq_counter_within(call.group.counter, now,
									fairq_group_setting(call.queue,
														call.group.no)->limit);
	in_queue = fairq_counter_within(&call.queue->hints->running, now,
									call.queue->max_running);
	if (in_group == FAIRQ_SLOT_NONE || in_queue == FAIRQ_SLOT_NONE)
		return FAIRQ_SLOT_NONE;
	return in_group == FAIRQ_SLOT_FREE ? in_queue : in_group;
}

/*
 * Note that the task, whose row stood at before, goes on running, and that the
 * row shows it.  If it stands on another page now, the census may come by
 * neither of them.
 */
void
fairq_hold_written(const FairqTask *task, const ItemPointerData *before)
{
	FairqAsOf	now;

	/* before the counter is let go: a count after that must reach so far */
	fairq_lane_reaches(fairq_queue_lane(call.queue, task->priority), task->addr);
	if (!call.counted || ItemPointerGetBlockNumber(&task->tid) ==
		ItemPointerGetBlockNumber(before))
		return;
	now = fairq_lane_as_of(call.group.lane);
	fairq_counter_moved(call.group.counter, now);
	fairq_counter_moved(&call.queue->hints->running, now);
}

/*
 * Let go of the counters.  With a pending change the task is not running any
 * more, and its row shows that; without, it is running still, or nothing was
 * done.
 */
void
fairq_hold_end(FairqPending *pending)
{
	/*
	 * without counting, too: our own transaction will not see the task any
	 * more
	 */
	if (pending != NULL)
		fairq_pending_leaves(pending, call.group.counter, call.group.count_no,
							 call.queue_count_no, 1, 0);
	let_go_of_row();
	if (call.for_hold)
		fairq_running_end();
}

/*
 * For check_queue(): does a counter's count that is not doubtful differ
 * from what the rows say?
 */
bool
fairq_running_is_off(FairqQueue *queue, int32 group_no, FairqCounter *counter,
					 FairqTable *tasks, int32 *counted, int32 *rows)
{
	FairqAsOf	now = fairq_lane_as_of(fairq_queue_lane(queue, 0));
	FairqCounting counting = {.budget = PG_INT32_MAX};
	bool		doubtful;
	uint64		before;
	uint64		after;

	if (!fairq_counter_note(counter, now, &before) ||
		!fairq_counter_read(counter, now, counted, &doubtful) || doubtful ||
		!fairq_pending_running(queue->hints, group_no, &counting.running,
							   &counting.doubtful))
		return false;
	fairq_count_running(queue, group_no, tasks, &counting);
	*rows = counting.running;
	return !counting.doubtful && *rows != *counted &&
		fairq_counter_note(counter, now, &after) && after == before;
}

static const FairqEnding ending = {.end_call = fairq_running_end};

/* Once per backend: give slots back when transactions end. */
void
fairq_running_init(void)
{
	fairq_at_end(&ending);
}
