/*
 * turn.c
 *		Service: the turn of a group.
 *
 * At its turn a group gets at most as many tasks as its weight.  Started tasks
 * come first: a task whose lease has expired, then a retried task that is due.
 * Then comes its first queued task, or its first scheduled task that is due,
 * whichever became ready first.
 *
 * Its queued tasks come from its hand, or from the index when that is used up
 * (entry.c).  That is enough for most turns; turn_due.c finds due and lapsed
 * tasks.
 *
 * Locking: only locks that are held briefly, see lane.c.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "claim.h"
#include "entry.h"
#include "grow.h"
#include "line.h"
#include "running.h"
#include "stall.h"
#include "turn.h"
#include "turn_due.h"
#include "turns.h"

/* rows that one reading visits before it reports its progress */
#define READ_AT_ONCE 1000

/* --------------------------------------------------------------------- */

/* The tasks that a reading has found. */
typedef struct Reading
{
	FairqItem  *items;
	int			n;
	int			max;
	int64		end;			/* position that it has reached */
} Reading;

static void
add_item(Reading *reading, const FairqTask *task)
{
	if (reading->n == reading->max)
		reading->items = fairq_grow(CurrentMemoryContext, reading->items,
									&reading->max, 0, sizeof(FairqItem));
	reading->items[reading->n].addr = task->addr;
	reading->items[reading->n].order = (uint32) task->id;
	reading->items[reading->n++].tid = task->root;
}

/*
 * Whether the task is at or before the tasks that the turn has found locked.
 * A reading finds such tasks again if they are at the address at which it
 * begins, or if its result was not accepted.  Without this check the turn
 * would never end.
 */
static bool
is_tried(FairqTurn *turn, const FairqTask *task)
{
	if (turn->locked.n == 0 || task->addr > turn->locked.addr ||
		(task->addr == turn->locked.addr && task->id > turn->locked.id))
		return false;
	/* it is given back with them, although it may be a different task */
	turn->locked.more = Min(turn->locked.more, task->addr);
	return true;
}

/*
 * Read the group's ready tasks by their rows.  It stops between two addresses
 * when it has found enough, or (in_steps) has read a certain number of rows.
 */
static void
read_rows(FairqService *s, FairqTurn *turn, int64 from, int wanted,
		  bool in_steps, Reading *reading)
{
	FairqTask	task;
	FairqRowState state;
	int64		at = from;

	reading->n = 0;
	reading->end = FAIRQ_ADDR_MAX;
	s->scans.queued = search_group(s, s->scans.queued, turn->group_no, from,
								   FAIRQ_RETRIES);
	for (int rows = 0;
		 (state = fairq_task_next(s->scans.queued, &task,
								  true)) != FAIRQ_ROW_END;
		 rows++)
	{
		if (task.addr > at &&
			(reading->n >= wanted || (in_steps && rows >= READ_AT_ONCE)))
		{
			reading->end = task.addr;
			break;
		}
		at = task.addr;
		if (state == FAIRQ_ROW_LIVE && !task.running && !is_tried(turn, &task))
			add_item(reading, &task);
	}
}

/*
 * Get tasks for the turn from the group's hand, if it now has some, or else
 * from the index.  Returns false if there are none.
 */
static bool
read_group(FairqService *s, FairqTurn *turn)
{
	int32		weight = fairq_group_setting(s->queue, turn->group_no)->weight;
	int			most = turn->locked.n > 0 ? FAIRQ_HAND :
		Min(turn->tasks.want - turn->tasks.served, FAIRQ_HAND);
	int			wanted = Max(turn->tasks.read_want, most) + FAIRQ_HAND;
	Reading		reading = {.max = wanted};

	reading.items = palloc(sizeof(FairqItem) * reading.max);
	turn->queued.next = turn->queued.n = 0;
	while (turn->queued.n == 0)
	{
		int64		from;
		bool		by_row;
		bool		offers;
		bool		abreast;

		CHECK_FOR_INTERRUPTS();
		turn->queued.n = fairq_lane_read_begin(s->lane, s->taken.lane_no,
											   turn->group_no, most,
											   s->call.lease_until,
											   turn->queued.items, &from,
											   &by_row, &offers);
		if (turn->queued.n > 0)
			break;
		if (from == FAIRQ_ADDR_MAX)
		{
			turn->queued.more = false;
			break;
		}
		if (offers)
			fairq_turns_reading(turn);
		/* it would find again the tasks that other calls have claimed since */
		by_row |= weight > 1 || turn->queued.apart;
		turn->queued.apart = !offers;
		if (!by_row)
		{
			reading.n = fairq_task_entries(s->tasks,
										   fairq_task_lane(s->queue->id,
														   s->priority),
										   turn->group_no, from, wanted,
										   reading.items, &reading.end,
										   &abreast);
			by_row = abreast;
			/* the tasks that are kept are needed in about one round */
			for (int i = 0; i < reading.n; i++)
				fairq_task_prefetch(s->tasks, &reading.items[i].tid);
		}
		if (by_row)
			read_rows(s, turn, from, wanted, offers, &reading);
		fairq_stall("reading");
		turn->queued.n = fairq_lane_read_end(s->lane, s->taken.lane_no,
											 turn->group_no, reading.items,
											 reading.n, reading.end, most,
											 s->call.lease_until,
											 turn->queued.items);
		fairq_turns_reading(NULL);
		if (turn->queued.n == 0 && !offers)
		{
			/*
			 * another call is reading, and will publish the tasks that it
			 * finds
			 */
			turn->queued.more = false;
			break;
		}
	}
	pfree(reading.items);
	turn->queued.reread = false;
	return turn->queued.n > 0;
}

/*
 * Find the first queued task.  If the row has vanished or now belongs to
 * another task, the call reads the group again.  If a transaction is changing
 * the task, it publishes the task at its end.
 */
static void
look_for_queued(FairqService *s, FairqCourse *course)
{
	FairqTurn  *turn = course->turn;
	FairqSearch *search = &course->queued;

	while (!search->have)
	{
		FairqTask  *task = &search->task;
		FairqItem  *item;
		FairqRowState state;
		int64		addr;

		if (turn->queued.next == turn->queued.n &&
			(turn->queued.reread || !fairq_turns_bring_forward(turn)) &&
			(!turn->queued.more || !read_group(s, turn)))
			return;
		item = &turn->queued.items[turn->queued.next];
		addr = item->addr;
		state = fairq_task_at(s->tasks, &item->tid, task);
		if (state == FAIRQ_ROW_END || task->addr != addr ||
			!is_of_turn(s, turn, task))
		{
			fairq_lane_vanished(s->lane, s->taken.lane_no, turn->group_no,
								addr);
			turn->queued.next = turn->queued.n = 0;
			turn->queued.more = turn->queued.reread = true;
		}
		else if (state != FAIRQ_ROW_LIVE || task->running)
			turn->queued.next++;
		else
		{
			/* or the time of its return, if it was put back since */
			search->since = Max(task->enqueued_at, task->run_at);
			search->have = true;
		}
	}
}

/* Put aside the queued task that was found: its row is only locked. */
static void
put_by_locked(FairqTurn *turn, const FairqTask *task)
{
	const FairqItem *item = &turn->queued.items[turn->queued.next];

	if (turn->locked.n == 0 || task->addr > turn->locked.addr ||
		(task->addr == turn->locked.addr && task->id > turn->locked.id))
	{
		turn->locked.addr = task->addr;
		turn->locked.id = task->id;
	}
	if (turn->locked.n < FAIRQ_HAND)
		turn->locked.items[turn->locked.n++] = *item;
	else
		turn->locked.more = Min(turn->locked.more, item->addr);
}

/* --------------------------------------------------------------------- */

/*
 * Returns the search whose task is served next; NULL: none.  All tasks except
 * lapsed ones need a slot.
 */
static FairqSearch *
choose_task(FairqService *s, FairqCourse *course, bool have_slot)
{
	FairqSearch *retried = &course->due[FAIRQ_REGION_RETRIED];

	if (course->lapsed.have)
		return &course->lapsed;
	if (!have_slot)
		return NULL;
	if (!course->search)
	{
		look_for_queued(s, course);
		return course->queued.have ? &course->queued : NULL;
	}
	fairq_look_for_due(s, course, FAIRQ_REGION_RETRIED);
	if (retried->have)
		return retried;
	fairq_look_for_due(s, course, FAIRQ_REGION_SCHEDULED);
	look_for_queued(s, course);
	return fairq_search_first(course);
}

/* Record the outcome for the chosen task. */
static void
note_result(FairqService *s, FairqCourse *course, FairqSearch *chosen,
			FairqClaimResult result)
{
	FairqTurn  *turn = course->turn;

	chosen->have = false;
	if (result == FAIRQ_CLAIMED)
		turn->tasks.served++;
	else if (result == FAIRQ_LOCKED && chosen == &course->queued)
		put_by_locked(turn, &chosen->task);
	else if (result == FAIRQ_LOCKED)
		chosen->locked = Min(chosen->locked, chosen->task.addr);
	if (chosen == &course->queued)
		turn->queued.next++;
	else if (chosen->at_hand && chosen == &course->lapsed &&
			 result == FAIRQ_LOCKED)
		/* it is still next when the cycle continues */
		turn->due.next = turn->due.n;
	else if (chosen->at_hand)
		turn->due.next++;
	if (result == FAIRQ_CLAIMED &&
		(chosen == &course->queued ||
		 chosen == &course->due[FAIRQ_REGION_SCHEDULED]))
	{
		course->claimed = true;
		turn->sets.since = chosen->since;
	}
	if (chosen != &course->queued && result == FAIRQ_CLAIMED &&
		s->call.lease_until != DT_NOEND)
		fairq_leases_add(&course->findings.leased, chosen->task.addr,
						 s->call.lease_until);
	if (chosen == &course->lapsed)
	{
		if (result == FAIRQ_CLAIMED)
		{
			course->findings.cycle = chosen->task.addr;
			course->findings.cycle_id = chosen->task.id;
		}
		else if (result == FAIRQ_GONE)
			fairq_still_runs(&course->findings, &chosen->task,
							 chosen->task.lease_until <= s->taken.by);
	}
}

/*
 * Whether the turn leaves tasks that other calls could not find because they
 * were in flight.  Then this wakes a waiter, which would otherwise sleep.  For
 * a locked row the waiter has to check again, because an unlock publishes
 * nothing.
 */
static bool
leaves_something(const FairqCourse *course)
{
	const FairqTurn *turn = course->turn;
	const FairqFindings *findings = &course->findings;
	bool		ready = turn->queued.next < turn->queued.n;

	if (turn->locked.n > 0)
		return true;
	if (course->search && turn->searcher)
	{
		/* a lapsed task already has its slot */
		if (turn->sets.lapsed && !findings->lapsed_done && !findings->paused)
			return true;
		ready |= findings->ndue > 0;
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			ready |= course->due[r].locked != FAIRQ_ADDR_MAX;
	}
	return ready && !course->no_slot;
}

static void
end_turn(FairqService *s, FairqCourse *course)
{
	FairqTurn  *turn = course->turn;
	FairqFindings *findings = &course->findings;

	/*
	 * where the order depends on served tasks, other groups could be next now
	 */
	if (turn->tasks.served == 0 && s->by != FAIRQ_BY_TASKS)
		fairq_turns_back_later(turn);
	/* a call that only peeks has no turn */
	if ((course->not_now || s->got.peeked) && turn->tasks.served == 0)
	{
		turn->state.done = true;
		(void) fairq_lane_turn_end(s->lane, s->taken.lane_no, turn, NULL,
								   false);
		return;
	}
	if (course->search)
	{
		fairq_keep_due(s, course);
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			findings->due_from[r] = Min(course->due[r].from,
										course->due[r].locked);
		findings->lapsed_done &= !course->lapsed.have &&
			course->lapsed.locked == FAIRQ_ADDR_MAX;
	}
	/* nothing below can fail: after an error above, the turn is given back */
	turn->state.done = true;
	turn->state.left = s->left_blocked;
	if (course->claimed && turn->sets.entry != NULL)
		fairq_entry_claimed(turn->sets.entry, s->taken.lane_no,
							turn->group_no, turn->sets.since);
	if (course->search || turn->queued.next < turn->queued.n ||
		turn->locked.n > 0 || turn->tasks.served == 0 || turn->in_full)
	{
		bool		in_vain = fairq_lane_turn_end(s->lane, s->taken.lane_no,
												  turn, course->search ?
												  findings : NULL, true);

		/* a row can stay locked for long, so this counts as a turn */
		if (in_vain && (turn->locked.n == 0 || s->left))
			fairq_turns_in_vain(s->lane, s->taken.lane_no, turn);
	}
	if (!s->call.peek && leaves_something(course))
		fairq_wake(&s->queue->hints->wakeup, 1);
}

/*
 * Whether a group of a queue in order waits for a task other than the chosen
 * one.  It may wait for a task that is to be retried.  If that task is due, a
 * call finds it soon, or at the group's turn in another lane.  Or it waits for
 * an earlier task, which another call gives back in a moment; then a waiter is
 * woken for it.
 */
static bool
waits_for_other(FairqService *s, FairqTurn *turn, FairqCourse *course,
				const FairqSearch *chosen)
{
	TimestampTz due_at;

	if (!s->queue->retries.in_order || chosen == &course->lapsed ||
		chosen == &course->due[FAIRQ_REGION_RETRIED])
		return false;
	if (!fairq_line_retries(s->queue, s->tasks, turn->group_no, &due_at))
		return chosen == &course->queued &&
			fairq_line_has_earlier(s->queue, s->tasks, &chosen->task, s->call.now,
									&course->no_slot);
	course->no_slot = true;
	fairq_wait_for_retry(s->lane, s->taken.lane_no, turn, due_at);
	return true;
}

/*
 * Find out whether another task of the group may run.  If not, the turn need
 * not search for a task.  The group is parked even if the queue is full.
 * Lapsed tasks also need a known counter.
 */
static bool
take_slot(FairqService *s, FairqCourse *course)
{
	FairqTurn  *turn = course->turn;
	bool		may_park = !course->lapsed.have &&
		course->lapsed.locked == FAIRQ_ADDR_MAX;
	bool		in_queue = !turn->in_full && fairq_slot_in_queue();
	bool		in_group = fairq_slot_in_group(s->lane, s->taken.lane_no, turn,
											   may_park, s->tasks);

	course->not_now = in_group && !turn->in_full ? !in_queue :
		fairq_settings_are_old(s->queue);
	return in_group && in_queue;
}

/* In a cost-fair lane, or one with tenants, charge the turn for a task. */
static void
charge_turn(FairqService *s, FairqTurn *turn, float cost)
{
	int32		tenant = turn->charged.tenant;

	if (s->by != FAIRQ_BY_COST && s->by != FAIRQ_BY_UNITS)
		return;
	fairq_lane_charge(s->lane, s->taken.lane_no, turn,
					  s->by == FAIRQ_BY_UNITS ? 1 : cost,
					  fairq_group_setting(s->queue, turn->group_no)->weight,
					  tenant == FAIRQ_NO_SEAT ? 1 :
					  fairq_group_setting(s->queue, tenant)->weight);
}

/*
 * Leave the chosen task to other calls.  If it is scheduled, this also leaves
 * later scheduled tasks, so that they do not delay ready ones.  Otherwise,
 * false.
 */
static bool
leave_scheduled(FairqCourse *course, const FairqSearch *chosen)
{
	course->no_scheduled = chosen == &course->due[FAIRQ_REGION_SCHEDULED];
	return course->no_scheduled;
}

/*
 * Serve a group at its turn, or its lapsed tasks in a full queue.  Returns
 * false if it yields no task.
 */
bool
fairq_serve_turn(FairqService *s, FairqTurn *turn)
{
	FairqCourse course;
	bool		have_slot = false;
	bool		full = false;
	bool		stops = false;

	turn->state.begun = true;
	course.turn = turn;
	fairq_course_begin(s, &course,
					   fairq_is_paused(s->queue, turn->group_no,
									   turn->charged.tenant));
	while (turn->tasks.served < turn->tasks.want &&
		   s->got.served < s->call.max_tasks)
	{
		FairqSearch *chosen;
		FairqClaimResult result;

		CHECK_FOR_INTERRUPTS();
		if (course.search)
			fairq_look_for_lapsed(s, &course);
		if (!have_slot && !full)
		{
			have_slot = take_slot(s, &course);
			full = course.no_slot = !have_slot;
		}
		/* a lapsed task does not start either */
		if (turn->state.throttled || fairq_queue_is_throttled())
			break;
		chosen = choose_task(s, &course, have_slot);
		if (chosen == NULL || waits_for_other(s, turn, &course, chosen))
			break;
		if (chosen != &course.lapsed && fairq_leaves_expired(s, &chosen->task))
		{
			if (!leave_scheduled(&course, chosen))
				break;
			continue;
		}
		stops = fairq_stops_before(s, &chosen->task, &result);
		if (stops)
			break;
		if (result == FAIRQ_CLAIMED)
			result = chosen == &course.lapsed ?
				fairq_take_over(s, &chosen->task, turn) :
				fairq_claim(s, &chosen->task, turn);
		if (result == FAIRQ_CLAIMED && chosen != &course.lapsed)
			have_slot = false;
		if (result == FAIRQ_CLAIMED)
			charge_turn(s, turn, chosen->task.cost);
		note_result(s, &course, chosen, result);
		fairq_leave_lapsed(s, &course);

		/* it has used the start that came with the slot */
		if (result == FAIRQ_CLAIMED && chosen == &course.lapsed &&
			fairq_is_paced(turn))
		{
			fairq_slot_in_group_back();
			have_slot = false;
		}

		/* if an ended task has its only slot, park it until that is visible */
		if (result == FAIRQ_GONE && chosen == &course.lapsed && !have_slot)
		{
			fairq_slot_in_group_back();
			full = false;
		}
	}
	fairq_slot_in_group_back();
	stops |= s->got.stopped;
	course.not_now |= stops;
	end_turn(s, &course);
	if (stops || (course.not_now && turn->tasks.served > 0))
		fairq_turns_stop(turn);
	return turn->tasks.served > 0;
}

/*
 * Whether the group whose turn is next would be served a task from its hand.
 * This takes no task, so a concurrent pop finds all tasks.  If false, other
 * tasks may still be ready.
 */
bool
fairq_glance(FairqService *s)
{
	FairqTurn	turn;
	FairqTaking taking = {
		.order.by = s->by,
		.order.visits = &s->visits[s->priority],
		.order.tenants = s->queue->shares.separator != 0,
		.order.now = s->call.now
	};

	if (!fairq_lane_glance(s->lane, &taking, &turn))
		return false;
	s->taken.lane_no = taking.lane_no;
	if (fairq_slot_in_group(s->lane, s->taken.lane_no, &turn, false, s->tasks))
	{
		for (int i = 0; i < turn.queued.n && !s->got.peeked; i++)
		{
			FairqTask	task;

			s->got.peeked = fairq_task_at(s->tasks, &turn.queued.items[i].tid,
										  &task) == FAIRQ_ROW_LIVE &&
				task.addr == turn.queued.items[i].addr && !task.running &&
				!task.blocked && is_of_turn(s, &turn, &task) &&
				!fairq_is_expired(&task, s->call.now) &&
				fairq_task_peek(s->tasks, &task,
								s->tasks->claims_delete) == FAIRQ_CLAIMED;
		}
		fairq_slot_in_group_back();
	}
	if (s->got.peeked)
		s->call.max_tasks = s->got.served;
	return s->got.peeked;
}
