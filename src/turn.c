/*
 * turn.c
 *		Service: the turn of an irregular group.
 *
 * At its turn a group is served what became ready first, up to its weight.  It
 * is looked for in three places through the index by group: among its queued
 * tasks, wherever they stand, and the waiting ones behind them; among the
 * scheduled ones that are due; among those whose leases have expired.  Each
 * search begins where the group's hints say that nothing is left below, and tells
 * how far it has got.
 *
 * The look also tells whether the group is regular again (lane.c).
 *
 * Locking: none but what is taken for moments, see lane.c.
 */
#include "postgres.h"

#include "running.h"
#include "service.h"

/* rows of a group that are looked at to find its next ready task */
#define LOOK_AHEAD 16

/* Look for a group's tasks at or past an address, and before end. */
void
fairq_search_group(FairqService *s, FairqSearch *search, int32 group_no,
				   int64 from, int64 end)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(s->queue->id, s->priority))},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)},
		{3, FAIRQ_GE, Int64GetDatum(from)},
		{3, FAIRQ_LT, Int64GetDatum(end)}
	};

	search->have = false;
	search->from = from;
	search->locked = FAIRQ_ADDR_MAX;
	search->open = from < end;
	if (!search->open)
		return;
	if (search->scan == NULL)
		search->scan = fairq_scan_in_order(s->tasks, FAIRQ_TASK_BY_GROUP, keys,
										   lengthof(keys));
	else
		fairq_scan_again(search->scan, keys, lengthof(keys));
}

/*
 * Is the group's next ready task, behind that of its turn, at its next turn?
 * "No" is always safe, and said if there is too much in between.
 */
bool
fairq_next_is_regular(FairqService *s, int32 group_no, int64 turn)
{
	int64		next_turn = fairq_turn_from(group_no, turn + 1,
											s->queue->block_length);

	for (int i = 0; i < LOOK_AHEAD; i++)
	{
		FairqTask	task;
		FairqRowState state = fairq_task_next(s->queued.scan, &task, false);

		if (state == FAIRQ_ROW_END)
			return true;
		if (state == FAIRQ_ROW_LIVE && !task.running)
			return task.addr == next_turn;
	}
	return false;
}

/* Has the group no waiting tasks that are ready? */
static bool
nothing_waits(FairqService *s, const FairqTurn *turn)
{
	FairqTask	task;
	FairqRowState state;

	fairq_search_group(s, &s->queued, turn->group_no, turn->waiting_from,
					   FAIRQ_SCHEDULED);
	while (s->queued.open &&
		   (state = fairq_task_next(s->queued.scan, &task,
									false)) != FAIRQ_ROW_END)
		if (state == FAIRQ_ROW_LIVE)
			return false;
	return true;
}

/* The course of an irregular group's turn. */
typedef struct Course
{
	const FairqTurn *turn;
	bool		waiting;		/* queued tasks: these are next */
	bool		drained;		/* nothing queued is in anybody's hands */
} Course;

/*
 * Expired tasks of the group are left to other calls, if this one has ended
 * enough of them, or is not to.
 */
static void
leave_expired(FairqService *s)
{
	if (s->ended < FAIRQ_MAX_ENDED && !s->left)
		return;
	s->expired.locked = Min(s->expired.locked, s->expired.from);
	s->expired.open = s->expired.have = false;
}

static void
begin_turn(FairqService *s, Course *course, bool paused)
{
	const FairqTurn *turn = course->turn;

	course->waiting = fairq_is_waiting(turn->from);
	course->drained = true;
	s->by = Max(s->now, turn->told_at);
	s->left = false;
	fairq_search_group(s, &s->queued, turn->group_no,
					   course->waiting ? turn->waiting_from : turn->from,
					   course->waiting ? FAIRQ_SCHEDULED : FAIRQ_WAITING);
	fairq_search_group(s, &s->due, turn->group_no, turn->due_from,
					   fairq_due_end(s->by));
	fairq_search_group(s, &s->expired, turn->group_no, turn->expired_from,
					   paused || turn->expired_from == FAIRQ_ADDR_MAX ? 0 :
					   turn->expired_to + 1);
	leave_expired(s);
}

/* Have the first queued task at hand: of the waiting ones, behind all others. */
static void
look_for_queued(FairqService *s, Course *course)
{
	FairqSearch *search = &s->queued;

	while (search->open && !search->have)
	{
		FairqRowState state = fairq_task_next(search->scan, &search->task,
											  true);

		if (state == FAIRQ_ROW_END)
		{
			search->open = false;
			search->from = FAIRQ_ADDR_MAX;
			if (!course->waiting)
			{
				int64		locked = search->locked;

				course->waiting = true;
				fairq_search_group(s, search, course->turn->group_no,
								   course->turn->waiting_from, FAIRQ_SCHEDULED);
				search->locked = locked;
				search->from = Max(search->from, FAIRQ_WAITING);
			}
			continue;
		}
		search->from = search->task.addr;
		/* or, if it was put back since, then */
		search->since = Max(search->task.enqueued_at, search->task.run_at);
		search->have = state == FAIRQ_ROW_LIVE && !search->task.running;
		course->drained &= state == FAIRQ_ROW_LIVE;
	}
}

/* Have the first task at hand that has fallen due, in one of two ways. */
static void
look_for_due(FairqService *s, FairqSearch *search, bool expired)
{
	while (search->open && !search->have)
	{
		FairqRowState state = fairq_task_next(search->scan, &search->task,
											  true);

		if (state == FAIRQ_ROW_END)
		{
			search->open = false;
			search->from = FAIRQ_ADDR_MAX;
			continue;
		}
		search->from = search->task.addr;
		search->since = expired ? search->task.lease_until : search->task.run_at;
		search->have = state == FAIRQ_ROW_LIVE &&
			search->task.running == expired && search->since <= s->by;
	}
}

/* Of two, the one whose task became ready first. */
static FairqSearch *
first_of(FairqSearch *a, FairqSearch *b)
{
	if (!b->have)
		return a;
	return a == NULL || !a->have || b->since < a->since ? b : a;
}

/*
 * Serve an irregular group at its turn: its first ready tasks; or in a full
 * queue its first expired ones.  False if nothing came of it, and the group is
 * as irregular as before, or parked.
 */
bool
fairq_serve_turn(FairqService *s, const FairqTurn *turn)
{
	const FairqSetting *setting = fairq_group_setting(s->queue,
													  turn->group_no);
	int32		weight = turn->left > 0 ?
		Min(turn->left, setting->weight) : setting->weight;
	Course		course = {.turn = turn};

	/*
	 * One that is taken over goes behind all others that have expired: they
	 * are served by their addresses, and it may expire again before them.
	 */
	int64		behind = fairq_turn_from(turn->group_no,
										 Max(turn->addr, turn->expired_to + 1),
										 s->queue->block_length);

	/* a limited one would soon be parked, and its rows be in the way again */
	bool		limited = setting->most != FAIRQ_NO_LIMIT;
	bool		parked = false;
	int32		served = 0;
	int64		ahead = FAIRQ_ADDR_NONE;
	int64		locked;
	bool		nothing_due;
	bool		at_turn = true;
	bool		at_end = false;
	bool		have_place = false;
	bool		full = false;

	begin_turn(s, &course, setting->most == 0);
	while (served < weight && s->served < s->max_tasks)
	{
		FairqSearch *next = NULL;

		/* an expired lease needs no place, as it has one */
		look_for_due(s, &s->expired, true);
		if (!have_place && !full)
		{
			bool		may_park = !s->expired.have &&
				s->expired.locked == FAIRQ_ADDR_MAX;

			/*
			 * There is no need to look if it has no room.  The group first:
			 * it is to be parked also if the queue is full, and its counter
			 * is to be known.
			 */
			have_place = fairq_place_in_group(s->lane, &s->note,
											  may_park ? turn : NULL,
											  turn->group_no, turn->from,
											  s->tasks, &parked) &&
				!turn->in_full && fairq_place_in_queue(s->tasks);
			full = !have_place;
		}
		if (have_place)
		{
			look_for_queued(s, &course);
			look_for_due(s, &s->due, false);
			next = first_of(&s->queued, &s->due);
		}
		next = first_of(next, &s->expired);
		if (next == NULL || !next->have)
		{
			at_end = have_place;
			break;
		}
		next->have = false;
		switch (next == &s->expired ? fairq_take_over(s, &next->task, behind) :
				fairq_claim(s, &next->task, turn->addr))
		{
			case FAIRQ_CLAIMED:
				served++;
				at_turn &= next->task.stood == turn->addr;
				if (next != &s->expired)
					have_place = false;
				if (next == &s->queued && !course.waiting &&
					next->task.stood > turn->addr)
					ahead = next->task.stood;
				break;
			case FAIRQ_LOCKED:
				next->locked = Min(next->locked, next->task.addr);
				course.drained = false;
				break;
			case FAIRQ_GONE:
				course.drained = false;
				break;
		}
		leave_expired(s);
	}
	fairq_place_in_group_back();

	if (served > 0)
		fairq_lane_turn_served(s->lane, &s->note, turn,
							   at_end ? 0 : weight - served, ahead);
	s->queued.from = Min(s->queued.from, s->queued.locked);
	s->due.from = Min(s->due.from, s->due.locked);
	s->expired.from = Min(s->expired.from, s->expired.locked);
	fairq_lane_looked_upto(s->lane, &s->note, turn, s->queued.from,
						   s->due.from, s->expired.from);
	nothing_due = Min(s->due.from, s->expired.from) == FAIRQ_ADDR_MAX;
	locked = Min(s->queued.locked, Min(s->due.locked, s->expired.locked));
	if (locked != FAIRQ_ADDR_MAX || parked || (served == 0 && !at_end))
	{
		if (served == 0)
			fairq_lane_turn_back(s->lane, &s->note, turn);
		return served > 0;
	}
	if (!nothing_due)
		return true;
	if (at_end)
		fairq_lane_settle(s->lane, &s->note, turn, served > 0 && at_turn,
						  course.drained);
	else if (at_turn && served == weight && !course.waiting && !limited &&
			 fairq_next_is_regular(s, turn->group_no, turn->addr) &&
			 nothing_waits(s, turn))
	{
		fairq_lane_settle(s->lane, &s->note, turn, true, false);
		s->any_regular = true;
	}
	return true;
}
