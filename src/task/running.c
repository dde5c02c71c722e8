/*
 * running.c
 *		The slots of running tasks in queues and groups.
 *
 * A claim needs a slot in its queue and one in its group.  If the group has a
 * tenant, the claim also needs one in the tenant.  Each rate requires a start,
 * too.  A call first takes the slot and the start in the queue.  Then it takes
 * the slots in the group and the tenant, and last the starts in the tenant and
 * the group.  If one of these is not free, the call gives back those of the
 * group and the tenant.  It keeps those of the queue for the next group.
 *
 * counter.c keeps the counters.  This file finds and checks slots and starts,
 * and records changes for the end of the transaction (transaction.c).
 *
 * A queue that never had a limit does not count tasks; tally.c describes how
 * counting begins.  While counters are not known, calls skip a limited group,
 * and a limited queue counts as full.  Then serve.c begins a load, or waits
 * for one.
 *
 * Locking: the counters' mutexes, and the locks of lane.c.
 */
#include "postgres.h"

#include "group.h"
#include "registry.h"
#include "running.h"

/* A group or tenant in which the next claim takes a slot and a start. */
typedef struct Place
{
	int32		no;				/* number of the group or tenant */
	FairqCounter *counter;		/* counter of the group or tenant, pinned;
								 * NULL: none */
	bool		slot;			/* true: a slot is taken */
	FairqStart	start;			/* the start, if one is taken */
} Place;

/* The call in progress. */
static struct
{
	FairqQueue *queue;			/* queue of the call; NULL: none in progress */
	bool		counted;		/* true: the call counts running tasks */
	bool		changed;		/* true: the call does not count, and has
								 * recorded a claim or an end */
	bool		peeks;			/* true: the call is a peek, which takes no
								 * slot */
	bool		in_queue;		/* true: the call has a slot in the queue */
	FairqStart	queue_start;	/* start in the queue, taken for the next
								 * claim */
	bool		throttled;		/* true: no task of the queue may start yet */

	Place		group;			/* the group whose task is claimed */
	Place		tenant;			/* the tenant of that group */
}			call;

/*
 * Begin a call that claims tasks, or ends one.  Or begin a peek, which only
 * checks whether a task could be claimed.  A peek takes no slot, because
 * another call could use it.
 */
void
fairq_running_begin(FairqQueue *queue, bool peeks)
{
	Assert(call.queue == NULL);
	fairq_watch_transaction();
	call.peeks = peeks;
	call.counted = fairq_tally_call_begin(&queue->hints->tally,
										  queue->limited);
	call.queue = queue;
}

/* Pin the counter of a group or tenant for the call. */
static void
pin(Place *place, int32 no)
{
	if (place->counter != NULL)
		return;
	place->no = no;
	place->counter = fairq_shmem_counter(call.queue->hints, no, true);
}

/* Release the counter, if it is pinned. */
static void
unpin(Place *place)
{
	if (place->counter != NULL)
		fairq_counter_unpin(place->counter);
	place->counter = NULL;
}

/*
 * Give back the unused slot and start in a group or tenant.  Returns the lanes
 * in which another call may have put the group or tenant aside because these
 * were taken.
 */
static uint16
place_back(Place *place)
{
	uint16		lanes = 0;

	if (place->start.taken)
		lanes = fairq_counter_unstart(place->counter, &place->start);
	if (place->slot)
		lanes |= fairq_counter_ended(place->counter, NULL, 1, 0);
	place->slot = false;
	unpin(place);
	fairq_take_back(call.queue->hints, place->no, lanes);
	return lanes;
}

/* Give back the unused slots and starts in the group and its tenant. */
static void
places_back(void)
{
	/* a call in any group may have found no slot or start in the tenant */
	if (place_back(&call.tenant) != 0)
		fairq_wake(&call.queue->hints->wakeup, 1);
	(void) place_back(&call.group);
}

/*
 * Give back the start in the queue, because other calls may have found none.
 */
static void
queue_start_back(void)
{
	FairqHints *hints = call.queue->hints;

	if (!call.queue_start.taken)
		return;
	(void) fairq_counter_unstart(&hints->running, &call.queue_start);
	fairq_wake(&hints->wakeup, 1);
}

/* Give back the unused slot in the group, and that in its tenant. */
void
fairq_slot_in_group_back(void)
{
	if (call.group.slot)
		places_back();
}

/*
 * End the call, which is over, or which an error has ended.  Abort callbacks
 * also call this.
 */
void
fairq_running_end(void)
{
	FairqHints *hints;

	if (call.queue == NULL)
		return;
	hints = call.queue->hints;
	if (!call.counted)
		fairq_tally_call_end(&hints->tally);
	places_back();
	queue_start_back();
	if (call.in_queue)
		(void) fairq_counter_ended(&hints->running, NULL, 1, 0);
	memset(&call, 0, sizeof(call));
}

/*
 * Ensure that the next task has a start in the queue.  Returns false if no
 * task may start yet.
 */
static bool
start_in_queue(void)
{
	FairqCounter *counter = &call.queue->hints->running;
	const FairqPace *pace = &call.queue->starts.pace;

	call.throttled = call.counted && pace->gap != 0 &&
		!call.queue_start.taken &&
		(call.peeks ? fairq_counter_next_start(counter, pace, 0) :
		 fairq_counter_start(counter, pace, &call.queue_start)) != 0;
	return !call.throttled;
}

/* Whether the call has found that no task of the queue may start yet. */
bool
fairq_queue_is_throttled(void)
{
	return call.throttled;
}

/* Whether starts of the tasks of the turn's group have to be counted. */
bool
fairq_is_paced(const FairqTurn *turn)
{
	return call.counted &&
		(call.queue->starts.pace.gap != 0 ||
		 fairq_group_setting(call.queue, turn->group_no)->pace.gap != 0 ||
		 fairq_tenant_setting(call.queue,
							  turn->charged.tenant)->pace.gap != 0);
}

/*
 * Ensure that the next task has a slot and a start in the queue.  Returns
 * false if the queue is full, no task may start yet, or the limits are no
 * longer in effect.
 */
bool
fairq_slot_in_queue(void)
{
	bool		have_slot = !call.counted || call.in_queue ||
		fairq_counter_enter(&call.queue->hints->running,
							fairq_tally_now(&call.queue->hints->tally),
							call.queue->max_running,
							call.peeks) == FAIRQ_SLOT_FREE;

	call.in_queue = have_slot && call.counted && !call.peeks;
	have_slot = have_slot && start_in_queue();
	return have_slot && !fairq_settings_are_old(call.queue);
}

/*
 * Put the turn's group aside for the given cause, or shut its tenant if the
 * place is the tenant.  Ignore settings that only our transaction sees.
 */
static bool
put_aside(FairqTurn *turn, const Place *place, FairqCause cause, int64 until)
{
	if (fairq_own.settings)
		return false;
	cause.version = call.queue->as_of.version;
	cause.counter = place->counter;
	return fairq_lane_put_aside(turn, place == &call.tenant ? place->no :
								FAIRQ_NO_SEAT, &cause, until);
}

/*
 * Put the group aside, or shut its tenant, until the given time, because none
 * of its tasks may start.
 */
static void
throttle(FairqTurn *turn, const FairqSetting *setting, const Place *place,
		 int64 until)
{
	turn->state.throttled = true;
	/* a peek has no turn to end */
	if (turn->state.begun &&
		put_aside(turn, place, (FairqCause) {.pace = &setting->pace},
				  until) &&
		!call.peeks)
		fairq_wake_in_time(&call.queue->hints->wakeup,
						   fairq_wall_time(until, GetCurrentTimestamp()));
}

/*
 * Put the turn's group aside until its task that waits for a retry is due.  A
 * due task has its turn in another lane, and each call would visit this lane
 * without success until then.  If that task is already due, the group is put
 * aside for as long as the task has been due, but at most a second.  The
 * task's end takes the group back (transaction.c), but its start depends on
 * other priorities.
 */
void
fairq_wait_for_retry(FairqTurn *turn, TimestampTz due_at)
{
	bool		pinned = call.group.counter != NULL;
	TimestampTz now = GetCurrentTimestamp();

	if (!call.counted || due_at == DT_NOEND)
		return;
	if (due_at <= now)
		due_at = now + Min(Max(now - due_at, USECS_PER_SEC / 1000),
						   USECS_PER_SEC);
	if (!pinned)
		pin(&call.group, turn->group_no);
	throttle(turn, fairq_group_setting(call.queue, turn->group_no),
			 &call.group, fairq_hold_end_at(due_at, now));
	if (!pinned)
		unpin(&call.group);
}

/*
 * The number of a turn's group or tenant; FAIRQ_NO_SEAT: the group has no
 * tenant.
 */
static int32
number_at(const Place *place, const FairqTurn *turn)
{
	return place == &call.tenant ? turn->charged.tenant : turn->group_no;
}

/* The settings of a group or tenant. */
static const FairqSetting *
setting_at(const Place *place, int32 no)
{
	return place == &call.tenant ? fairq_tenant_setting(call.queue, no) :
		fairq_group_setting(call.queue, no);
}

/*
 * Ensure that there is a start in the place, which is the turn's group or its
 * tenant.  Returns true if the group has no tenant.  With look, only check
 * whether there is a start.  If there is none, throttle the group or tenant.
 */
static bool
start_in(Place *place, FairqTurn *turn, bool look)
{
	int32		no = number_at(place, turn);
	const FairqSetting *setting;
	int64		until = 0;

	if (no == FAIRQ_NO_SEAT)
		return true;
	setting = setting_at(place, no);
	if (setting->pace.gap == 0 && setting->held_until == DT_NOBEGIN)
		return true;
	pin(place, no);
	if (setting->held_until != DT_NOBEGIN)
	{
		TimestampTz now = GetCurrentTimestamp();

		if (setting->held_until > now)
			until = fairq_hold_end_at(setting->held_until, now);
	}
	if (until == 0 && setting->pace.gap != 0 && !place->start.taken)
		until = look ?
			fairq_counter_next_start(place->counter, &setting->pace, 0) :
			fairq_counter_start(place->counter, &setting->pace, &place->start);
	if (until != 0)
		throttle(turn, setting, place, until);
	return until == 0;
}

/*
 * Give back unused starts, after the lapsed task was served or could not
 * start.
 */
void
fairq_start_lapsed_done(void)
{
	if (!call.group.slot)
		places_back();
}

/*
 * Ensure that a lapsed task, which keeps its slot, has a start.  Returns false
 * if it may not start yet.  If it may, the caller then calls
 * fairq_start_lapsed_done().
 */
bool
fairq_start_lapsed(FairqTurn *turn)
{
	bool		starts;

	if (!call.counted)
		return true;
	if (!start_in_queue())
		return false;
	/* the call may have a slot for another task of the group */
	if (!call.group.slot)
		pin(&call.group, turn->group_no);
	starts = start_in(&call.tenant, turn, call.peeks) &&
		start_in(&call.group, turn, call.peeks);
	if (!starts || call.peeks)
		fairq_start_lapsed_done();
	return starts;
}

/* The call's starts now belong to a claimed task. */
void
fairq_start_is_used(void)
{
	call.group.start.taken = call.tenant.start.taken =
		call.queue_start.taken = false;
}

/*
 * Whether there is a slot in the place, which is the turn's group or its
 * tenant.  Returns true if the place is the tenant and the group has none.
 * Takes the slot if the call has a slot in the queue.  If there is no slot,
 * the group is parked, or the tenant is shut (with may_park).  If counts are
 * known, the counter is pinned afterwards.
 */
static bool
slot_in(Place *place, FairqTurn *turn, bool may_park)
{
	int32		no = number_at(place, turn);
	FairqKnown	now = fairq_tally_now(&call.queue->hints->tally);
	int32		limit;
	FairqSlot	slot;

	if (no == FAIRQ_NO_SEAT)
		return true;
	limit = setting_at(place, no)->limit;
	/* while counts are not known, the visited groups need no counter */
	if (limit > 0 && !now.known)
		return false;
	pin(place, no);
	slot = fairq_counter_enter(place->counter, now, limit, !call.in_queue);
	if (slot == FAIRQ_SLOT_NONE && may_park)
		(void) put_aside(turn, place, (FairqCause) {.limit = limit}, 0);
	place->slot |= slot == FAIRQ_SLOT_FREE && call.in_queue;
	return slot == FAIRQ_SLOT_FREE;
}

/*
 * Whether there are a slot and a start in the turn's group and its tenant.
 * Takes both if the call has a slot in the queue.  If there is no slot, the
 * group is parked (with may_park), or the tenant shut, or the call has to skip
 * the group this time.
 */
bool
fairq_slot_in_group(FairqTurn *turn, bool may_park)
{
	bool		fits;

	if (!call.counted)
		return true;
	fits = slot_in(&call.group, turn, may_park) &&
		slot_in(&call.tenant, turn, may_park) &&
		start_in(&call.tenant, turn, !call.in_queue) &&
		start_in(&call.group, turn, !call.in_queue) &&
		!fairq_settings_are_old(call.queue);
	if (!call.tenant.slot)
		unpin(&call.tenant);
	if (!call.group.slot)
		unpin(&call.group);
	else if (!fits)
		fairq_slot_in_group_back();
	return fits;
}

/*
 * Record that the call claims or ends a task, if it does not count running
 * tasks.
 */
static void
note_change(void)
{
	if (call.counted || call.changed)
		return;
	fairq_pending_queue(call.queue->hints, FAIRQ_UNCOUNTED);
	call.changed = true;
}

/*
 * Prepare to claim a task, before its group's pending change is made.
 * fairq_slot_is_used() cannot fail after that.
 */
void
fairq_slot_prepare(FairqLane *lane)
{
	note_change();
	if (call.tenant.slot)
		fairq_pending_pin(fairq_pending(lane, call.tenant.no),
						  call.tenant.counter);
}

/*
 * Use the call's slots for a task whose row shows that it is running, or
 * (removed) is gone.  pending is NULL if the claim is only simulated.
 */
void
fairq_slot_is_used(FairqPending *pending, const FairqTask *task, bool removed)
{
	/* a sweep (maintain.c) that sees the lease must reach the task */
	fairq_lane_reaches(fairq_queue_lane(call.queue, task->priority),
					   task->addr);
	/* a simulated claim changes nothing */
	if (pending != NULL)
	{
		/* the task is taken, so no other code records that it has ended */
		if (removed && call.queue->retries.in_order &&
			fairq_region(task->addr) == FAIRQ_REGION_RETRIED)
			pending->done |= FAIRQ_ENDS_RETRIED;
		if (call.counted)
		{
			fairq_pending_pin(pending, call.group.counter);
			fairq_pending_hold(pending, call.tenant.slot ? call.tenant.no :
							   FAIRQ_NO_SEAT,
							   (FairqHeld) {.slots = 1,.running = !removed});
		}
	}
	if (!call.counted)
		return;
	call.group.slot = call.tenant.slot = call.in_queue = false;
	unpin(&call.group);
	unpin(&call.tenant);
}

/*
 * Record that a running task has ended, and that its row shows this; pending
 * is the change of its group.  The task counts as running until we commit.
 * The end is part of the call in progress, or a call of its own.
 */
void
fairq_slot_is_left(FairqQueue *queue, FairqPending *pending)
{
	FairqLane  *lane = pending->lane;
	int32		group_no = pending->group_no;
	bool		begins = call.queue == NULL;

	if (begins)
		fairq_running_begin(queue, false);
	if (call.counted)
	{
		int32		tenant = fairq_tenant_no(queue, group_no);

		if (tenant != FAIRQ_NO_SEAT)
		{
			fairq_pending_pin(fairq_pending(lane, tenant), NULL);
			/* fairq_pending() may have moved the group's change */
			pending = fairq_pending(lane, group_no);
		}
		fairq_pending_pin(pending, NULL);
		fairq_pending_hold(pending, tenant, (FairqHeld) {.running = -1});
	}
	note_change();
	if (begins)
		fairq_running_end();
}

/*
 * Whether the number of running tasks is within the limit.
 * FAIRQ_SLOT_UNKNOWN: not known.
 */
static FairqSlot
is_within(FairqCounter *counter, FairqKnown now, int32 limit)
{
	int32		running;

	if (limit == FAIRQ_NO_LIMIT)
		return FAIRQ_SLOT_FREE;
	if (!fairq_counter_read(counter, now, true, &running))
		return FAIRQ_SLOT_UNKNOWN;
	return running > limit ? FAIRQ_SLOT_NONE : FAIRQ_SLOT_FREE;
}

/*
 * Whether the running tasks of a group or tenant are within its limit.
 * FAIRQ_NO_SEAT: the group has no tenant.
 */
static FairqSlot
is_place_within(const Place *place, int32 no, FairqKnown now)
{
	FairqCounter *counter;
	FairqSlot	slot;

	if (no == FAIRQ_NO_SEAT)
		return FAIRQ_SLOT_FREE;
	counter = fairq_shmem_counter(call.queue->hints, no, true);
	slot = is_within(counter, now, setting_at(place, no)->limit);
	fairq_counter_unpin(counter);
	return slot;
}

/*
 * Whether a task of the group may continue to run with another worker.  It may
 * not if more tasks run than the limit now allows.  FAIRQ_SLOT_UNKNOWN: the
 * number of tasks is not known.
 */
FairqSlot
fairq_within_limits(int32 group_no)
{
	FairqKnown	now;
	FairqSlot	in_group;
	FairqSlot	in_tenant;
	FairqSlot	in_queue;

	if (!call.counted)
		return FAIRQ_SLOT_FREE;
	now = fairq_tally_now(&call.queue->hints->tally);
	in_group = is_place_within(&call.group, group_no, now);
	in_tenant = is_place_within(&call.tenant,
								fairq_tenant_no(call.queue, group_no), now);
	in_queue = is_within(&call.queue->hints->running, now,
						 call.queue->max_running);
	in_group = Max(in_group, in_tenant);
	return Max(in_group, in_queue);
}
