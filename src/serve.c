/*
 * serve.c
 *		Service: which tasks are next.
 *
 * Lanes are served in the order of their priorities.  In a lane, a call walks
 * two things in step, by the address of the turn:
 *
 * - the ready rows in the order of their addresses, from the mark (or the
 *	 service position) upwards: a row is its group's turn;
 *
 * - the turns of irregular groups, at their seats.  Such a group is served its
 *	 first ready task, found through the index by group, wherever it stands,
 *	 and up to its weight; its rows are passed over by the first walk.
 *
 * The rows are read with a dirty snapshot.  What an open transaction inserts
 * or changes is passed over: its end says so, see transaction.c.  A row that
 * is merely locked keeps the mark below it, since nobody will say when it is
 * free.
 *
 * The walk is lazy: it does not look past the next irregular turn.  So the
 * cost of a call depends on the tasks that it returns, and on how many groups
 * are irregular and ready at those turns, not on backlogs.
 *
 * A group that has no room for another running task is parked: taken out of
 * both walks until it has (limit.c).  Its waiting tasks stand outside the
 * order of service; when their group is served one at its turn, that turn
 * becomes its address.
 *
 * If the mark is below the service position, there may be ready tasks of
 * groups that are not known to be irregular (a mark lowered for want of room,
 * or in a race with a pop).  They are looked for first, a number of rows at a
 * time, and their groups called irregular; further ones only if there is
 * nothing else to serve.
 *
 * After a lane was recovered, nobody remembers the holes among the tasks that
 * it had.  When one of these is served at its turn, the group's next one is
 * looked at.
 *
 * Nothing is done here for tasks that the call doesn't return, but moving
 * hints.  So a transaction that stays open after its pop keeps back its own
 * tasks, and nobody else's.
 *
 * Locking: row locks are taken with SKIP LOCKED, so a call waits for nobody.
 * Lanes' locks are held for moments, see lane.c.
 */
#include "postgres.h"

#include "access/xact.h"

#include "due.h"
#include "outcome.h"
#include "place.h"
#include "running.h"
#include "serve.h"
#include "transaction.h"

/* rows below the service position that are looked at in one go */
#define LOOK_BEHIND 1000

/* rows passed over in a row that are worth remembering */
#define DESERT 64

/* how much further a walk looks that has not found enough, before it looks at all */
#define WALK_LONGER 64

/* tasks that a walk is begun for */
#define WALK_FOR 1000

/* rows of a group that are looked at to find its next ready task */
#define LOOK_AHEAD 16

/* expired tasks that a call brings to their end, beside what it serves */
#define MAX_ENDED 100

/* how long a transaction block leaves that to others */
#define LEFT_TO_OTHERS USECS_PER_SEC

/* A search for a group's next task, of one kind. */
typedef struct Search
{
	FairqScan  *scan;			/* kept for the call, or NULL */
	bool		open;			/* there may be more */
	bool		have;			/* task is the next one */
	FairqTask	task;
	TimestampTz since;			/* when it became ready */
	int64		from;			/* nothing is left below */
	int64		locked;			/* lowest one that was merely locked */
} Search;

/* One call, in one lane. */
typedef struct Service
{
	FairqQueue *queue;
	FairqTable *tasks;
	FairqLane  *lane;
	int			priority;
	FairqServer server;
	void	   *arg;
	TimestampTz now;
	bool		peek;			/* don't serve, but say whether one could */
	bool		peeked;			/* yes */
	int64		max_tasks;
	int64		served;			/* in all lanes */
	int64		ended;			/* likewise, brought to their end */
	bool		left;			/* in this turn, there is some for others to
								 * end */
	FairqFound	found;			/* likewise, fallen due */
	int64		per_group;
	int64		first_block;	/* with per_group: that is looked at now */
	int64		last_block;		/* once something was served; before, -1 */
	FairqNote	note;
	bool		any_irregular;
	bool		any_regular;	/* a group became regular at the last turn */
	bool		homeless;		/* tasks are behind whose group has no entry */
	int64		locked;			/* lowest row that was merely locked */
	int64		walk_end;		/* the walk's scan goes up to there */
	int64		walk_length;	/* it is begun for so many addresses */
	bool		walk_longer;	/* it was not enough */
	int64		walked;			/* rows that it came by */
	int			passed;			/* rows that the walk has passed over in a row */
	int64		passed_from;	/* the first of them */
	int64		jumped_to;		/* the end of the desert, after it */
	int64		strays;			/* where to look on for those */
	int64		left_strays;	/* lowest one that could not be served */
	Search		queued;
	Search		due;
	Search		expired;
	TimestampTz by;				/* what has fallen due by then */
} Service;

typedef enum Walk
{
	WALK_ON,					/* no row at hand */
	WALK_ROW,					/* one is */
	WALK_END					/* there is none any more */
} Walk;

/* A task is served. */
static bool
serve_task(Service *s, FairqTask *task, int64 turn, FairqDebt *debt)
{
	bool		removed;

	debt->counts[FAIRQ_POPPED]++;
	task->stood = task->addr;
	if (task->running || fairq_is_waiting(task->stood))
		task->addr = turn;
	removed = s->server(s->tasks, task, s->arg);
	if (!removed)
		fairq_debt_leased_at_commit(debt, task->addr, task->lease_until);
	if (s->per_group > 0 && s->last_block < 0)
		s->last_block = s->per_group > PG_INT64_MAX - s->first_block ?
			PG_INT64_MAX : s->first_block + s->per_group - 1;
	s->served++;
	return removed;
}

/* Who only wants to know stops here, as if the task could not be had. */
static FairqClaimResult
peek(Service *s)
{
	s->peeked = true;
	s->max_tasks = s->served;
	return FAIRQ_LOCKED;
}

/*
 * Serve a task, for which there is a place in the queue and in its group, at
 * that turn.
 */
static FairqClaimResult
claim(Service *s, FairqTask *task, int64 turn)
{
	FairqDebt  *debt;
	FairqClaimResult result = s->peek ? peek(s) :
		fairq_task_lock(s->tasks, task);

	if (result == FAIRQ_LOCKED && !fairq_is_waiting(task->addr))
		s->locked = Min(s->locked, task->addr);
	if (result != FAIRQ_CLAIMED)
		return result;
	if (task->running)
		return FAIRQ_GONE;

	debt = fairq_debt(s->lane, task->group_no);
	fairq_debt_ready_at_abort(debt, task->addr);
	fairq_place_is_used(debt, task, serve_task(s, task, turn, debt));
	return FAIRQ_CLAIMED;
}

/* May an expired task go on running, in other hands?  Its counters are held. */
static bool
runs_on(Service *s, const FairqTask *task)
{
	return !task->cancelled && !fairq_attempts_used_up(s->queue, task) &&
		fairq_hold_within_limits();
}

/*
 * Serve a task whose lease has expired.  It has a place already, which goes
 * over with it.  One that is not to be run again is brought to its end; and
 * one that may not be run just now, since a limit was lowered, is put back.
 * Both are done for others: in a transaction block only if nobody else has for
 * a while.
 */
static FairqClaimResult
take_over(Service *s, FairqTask *task, int64 turn)
{
	FairqClaimResult result;
	FairqDebt  *debt;

	if (s->peek)
		return peek(s);
	fairq_hold_begin(s->queue, s->lane, task->group_no);
	if (!runs_on(s, task) && IsTransactionBlock() &&
		task->lease_until > s->by - LEFT_TO_OTHERS)
	{
		fairq_hold_end(NULL);
		s->left = true;
		return FAIRQ_LOCKED;
	}
	result = fairq_task_lock(s->tasks, task);
	if (result == FAIRQ_CLAIMED &&
		(!task->running || task->lease_until > s->by))
		result = FAIRQ_GONE;
	if (result == FAIRQ_CLAIMED && fairq_settings_are_old(s->queue))
		result = FAIRQ_LOCKED;
	if (result != FAIRQ_CLAIMED)
	{
		fairq_hold_end(NULL);
		return result;
	}
	if (!runs_on(s, task))
	{
		fairq_hold_end(NULL);
		fairq_expire(s->queue, s->tasks, task);
		s->ended++;
		return FAIRQ_GONE;
	}
	debt = fairq_debt(s->lane, task->group_no);
	fairq_debt_leased_at_abort(debt, task->addr, task->lease_until);
	debt->counts[FAIRQ_EXPIRED]++;
	if (serve_task(s, task, turn, debt))
		fairq_hold_end(debt);
	else
	{
		fairq_lane_reaches(s->lane, task->addr);
		fairq_hold_end(NULL);
	}
	return FAIRQ_CLAIMED;
}

/*
 * Have a place for the next task of a group, which is not irregular.  If there
 * is none it is irregular from now on, and parked unless that is doubtful.
 */
static bool
have_places(Service *s, int32 group_no, int64 addr)
{
	bool		parked;

	if (fairq_place_in_group(s->lane, &s->note, NULL, group_no, addr,
							 s->tasks, &parked))
		return true;
	if (parked || fairq_lane_irregular(s->lane, group_no, addr))
		s->any_irregular = true;
	else
		s->locked = Min(s->locked, addr);
	return false;
}

/* A task of a group that has no entry is served wherever it stands. */
static void
serve_homeless(Service *s, FairqTask *task)
{
	if (fairq_place_in_queue(s->tasks) &&
		have_places(s, task->group_no, task->addr))
	{
		(void) claim(s, task, fairq_turn_from(task->group_no,
											  Max(s->note.pos, 0),
											  s->queue->block_length));
		fairq_place_in_group_back();
	}
}

/*
 * Look for ready tasks from an address up to the service position, and call
 * their groups irregular.  Those that cannot be remembered as such are left
 * (s->homeless) or, with serve, served as they come.  Returns where it stopped
 * looking, FAIRQ_ADDR_MAX if it got there.
 */
static int64
look_behind(Service *s, int64 from, bool serve)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(s->queue->id)},
		{2, FAIRQ_EQ, Int16GetDatum(s->priority)},
		{3, FAIRQ_GE, Int64GetDatum(from)},
		{3, FAIRQ_LT, Int64GetDatum(s->note.pos)}
	};
	FairqScan  *scan = fairq_scan_begin(s->tasks, FAIRQ_TASK_BY_LANE, keys,
										lengthof(keys), false);
	int64		upto = FAIRQ_ADDR_MAX;
	FairqRowState state;

	for (int rows = 0; (state = fairq_scan_next(scan)) != FAIRQ_ROW_END; rows++)
	{
		FairqTask	task;

		fairq_task_read(fairq_scan_slot(scan), &task);
		if (serve ? s->served == s->max_tasks :
			rows >= LOOK_BEHIND && task.addr > from)
		{
			upto = task.addr;
			break;
		}
		if (state != FAIRQ_ROW_LIVE || task.running)
			continue;
		if (!fairq_lane_is_irregular(s->lane, task.group_no) &&
			!fairq_lane_irregular(s->lane, task.group_no, task.addr))
		{
			if (serve)
				serve_homeless(s, &task);
			s->homeless = true;
		}
		else
			s->any_irregular = true;
	}
	fairq_scan_end(scan);
	return upto;
}

/* Look for a group's tasks at or past an address, and before end. */
static void
search_group(Service *s, Search *search, int32 group_no, int64 from, int64 end)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(s->queue->id)},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)},
		{3, FAIRQ_EQ, Int16GetDatum(s->priority)},
		{4, FAIRQ_GE, Int64GetDatum(from)},
		{4, FAIRQ_LT, Int64GetDatum(end)}
	};

	search->have = false;
	search->from = from;
	search->locked = FAIRQ_ADDR_MAX;
	search->open = from < end;
	if (!search->open)
		return;
	if (search->scan == NULL)
		search->scan = fairq_scan_begin(s->tasks, FAIRQ_TASK_BY_GROUP, keys,
										lengthof(keys), false);
	else
		fairq_scan_again(search->scan, keys, lengthof(keys));
}

/*
 * Is the group's next ready task, behind that of its turn, at its next turn?
 * "No" is always safe, and said if there is too much in between.
 */
static bool
next_is_regular(Service *s, int32 group_no, int64 turn)
{
	int64		next_turn = fairq_turn_from(group_no, turn + 1,
											s->queue->block_length);

	for (int i = 0; i < LOOK_AHEAD; i++)
	{
		FairqRowState state = fairq_scan_next(s->queued.scan);
		FairqTask	task;

		if (state == FAIRQ_ROW_END)
			return true;
		fairq_task_read(fairq_scan_slot(s->queued.scan), &task);
		if (state == FAIRQ_ROW_LIVE && !task.running)
			return task.addr == next_turn;
	}
	return false;
}

/* Has the group no waiting tasks that are ready? */
static bool
nothing_waits(Service *s, const FairqTurn *turn)
{
	FairqRowState state;

	search_group(s, &s->queued, turn->group_no, turn->waiting_from,
				 FAIRQ_SCHEDULED);
	while (s->queued.open &&
		   (state = fairq_scan_next(s->queued.scan)) != FAIRQ_ROW_END)
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
leave_expired(Service *s)
{
	if (s->ended < MAX_ENDED && !s->left)
		return;
	s->expired.locked = Min(s->expired.locked, s->expired.from);
	s->expired.open = s->expired.have = false;
}

static void
begin_turn(Service *s, Course *course, bool paused)
{
	const FairqTurn *turn = course->turn;

	course->waiting = fairq_is_waiting(turn->from);
	course->drained = true;
	s->by = Max(s->now, turn->told_at);
	s->left = false;
	search_group(s, &s->queued, turn->group_no,
				 course->waiting ? turn->waiting_from : turn->from,
				 course->waiting ? FAIRQ_SCHEDULED : FAIRQ_WAITING);
	search_group(s, &s->due, turn->group_no, turn->due_from,
				 fairq_due_end(s->by));
	search_group(s, &s->expired, turn->group_no, turn->expired_from,
				 paused || turn->expired_from == FAIRQ_ADDR_MAX ? 0 :
				 turn->expired_to + 1);
	leave_expired(s);
}

/* Have the first queued task at hand: of the waiting ones, behind all others. */
static void
look_for_queued(Service *s, Course *course)
{
	Search	   *search = &s->queued;

	while (search->open && !search->have)
	{
		FairqRowState state = fairq_scan_next(search->scan);

		if (state == FAIRQ_ROW_END)
		{
			search->open = false;
			search->from = FAIRQ_ADDR_MAX;
			if (!course->waiting)
			{
				int64		locked = search->locked;

				course->waiting = true;
				search_group(s, search, course->turn->group_no,
							 course->turn->waiting_from, FAIRQ_SCHEDULED);
				search->locked = locked;
				search->from = Max(search->from, FAIRQ_WAITING);
			}
			continue;
		}
		fairq_task_read(fairq_scan_slot(search->scan), &search->task);
		search->from = search->task.addr;
		/* or, if it was put back since, then */
		search->since = Max(search->task.enqueued_at, search->task.run_at);
		search->have = state == FAIRQ_ROW_LIVE && !search->task.running;
		course->drained &= state == FAIRQ_ROW_LIVE;
	}
}

/* Have the first task at hand that has fallen due, in one of two ways. */
static void
look_for_due(Service *s, Search *search, bool expired)
{
	while (search->open && !search->have)
	{
		FairqRowState state = fairq_scan_next(search->scan);

		if (state == FAIRQ_ROW_END)
		{
			search->open = false;
			search->from = FAIRQ_ADDR_MAX;
			continue;
		}
		fairq_task_read(fairq_scan_slot(search->scan), &search->task);
		search->from = search->task.addr;
		search->since = expired ? search->task.lease_until : search->task.run_at;
		search->have = state == FAIRQ_ROW_LIVE &&
			search->task.running == expired && search->since <= s->by;
	}
}

/* Of two, the one whose task became ready first. */
static Search *
first_of(Search *a, Search *b)
{
	if (!b->have)
		return a;
	return a == NULL || !a->have || b->since < a->since ? b : a;
}

/*
 * Serve an irregular group at its turn: its first ready tasks.  False if
 * nothing came of it, and the group is as irregular as before, or parked.
 */
static bool
serve_turn(Service *s, const FairqTurn *turn)
{
	const FairqSetting *setting = fairq_group_setting(s->queue,
													  turn->group_no);
	int32		weight = turn->left > 0 ?
		Min(turn->left, setting->weight) : setting->weight;
	Course		course = {.turn = turn};

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
		Search	   *next = NULL;

		/* an expired lease needs no place, as it has one */
		look_for_due(s, &s->expired, true);
		if (!have_place && !full)
		{
			bool		may_park = !s->expired.have &&
				s->expired.locked == FAIRQ_ADDR_MAX;

			/*
			 * There is no need to look if it has no room.  The group first:
			 * it is to be parked also if the queue is full.
			 */
			have_place = fairq_place_in_group(s->lane, &s->note,
											  may_park ? turn : NULL,
											  turn->group_no, turn->from,
											  s->tasks, &parked) &&
				fairq_place_in_queue(s->tasks);
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
		switch (next == &s->expired ? take_over(s, &next->task, turn->addr) :
				claim(s, &next->task, turn->addr))
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
			 next_is_regular(s, turn->group_no, turn->addr) &&
			 nothing_waits(s, turn))
	{
		fairq_lane_settle(s->lane, &s->note, turn, true, false);
		s->any_regular = true;
	}
	return true;
}

/*
 * A regular group was served a task that it has had since before the lane was
 * recovered.  If its next one is not at its next turn, it has a hole of which
 * nobody told.
 */
static void
look_for_hole(Service *s, const FairqTask *task)
{
	search_group(s, &s->queued, task->group_no, task->addr + 1,
				 FAIRQ_SCHEDULED);
	if (!next_is_regular(s, task->group_no, task->addr))
	{
		(void) fairq_lane_irregular(s->lane, task->group_no, task->addr + 1);
		s->any_irregular = true;
	}
}

/*
 * Look for ready tasks that wait and whose groups have no entries, a number of
 * rows at a time.
 */
static void
look_for_strays(Service *s)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(s->queue->id)},
		{2, FAIRQ_EQ, Int16GetDatum(s->priority)},
		{3, FAIRQ_GE, Int64GetDatum(s->strays)},
		{3, FAIRQ_LT, Int64GetDatum(FAIRQ_SCHEDULED)}
	};
	FairqScan  *scan = fairq_scan_begin(s->tasks, FAIRQ_TASK_BY_LANE, keys,
										lengthof(keys), false);
	int64		from = s->strays;
	FairqRowState state;

	s->strays = FAIRQ_ADDR_MAX;
	for (int rows = 0; (state = fairq_scan_next(scan)) != FAIRQ_ROW_END; rows++)
	{
		FairqTask	task;
		int64		served = s->served;

		fairq_task_read(fairq_scan_slot(scan), &task);
		if (s->served == s->max_tasks ||
			(rows >= LOOK_BEHIND && task.addr > from))
		{
			s->strays = task.addr;
			break;
		}
		if (state != FAIRQ_ROW_LIVE || task.running)
			continue;
		if (fairq_lane_is_irregular(s->lane, task.group_no) ||
			fairq_lane_irregular(s->lane, task.group_no, task.addr))
		{
			s->any_irregular = true;
			continue;
		}
		serve_homeless(s, &task);
		if (s->served == served)
			s->left_strays = Min(s->left_strays, task.addr);
	}
	fairq_scan_end(scan);
	fairq_lane_no_strays(s->lane, &s->note, Min(s->strays, s->left_strays));
}

/* With per_group, is the turn at addr outside the blocks to be looked at? */
static bool
past_blocks(Service *s, int64 addr)
{
	int64		block = fairq_block(addr, s->queue->block_length);

	if (s->per_group == 0)
		return false;
	if (s->last_block < 0)
	{
		s->first_block = block;
		return false;
	}
	return block > s->last_block;
}

/*
 * Look at the lane's rows from an address on, as far as it will probably take
 * to find as many as are wanted: an index scan compares all entries of a page
 * that are in its range, also if only the first one is asked for.
 */
static FairqScan *
walk_from(Service *s, FairqScan *scan, int64 from)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(s->queue->id)},
		{2, FAIRQ_EQ, Int16GetDatum(s->priority)},
		{3, FAIRQ_GE, Int64GetDatum(from)},
		{3, FAIRQ_LT, (Datum) 0}
	};

	s->walk_end = s->walk_length < FAIRQ_WAITING - from ?
		Max(from, 0) + s->walk_length : FAIRQ_WAITING;
	keys[3].value = Int64GetDatum(s->walk_end);
	if (scan == NULL)
		return fairq_scan_begin(s->tasks, FAIRQ_TASK_BY_LANE, keys,
								lengthof(keys), false);
	fairq_scan_again(scan, keys, lengthof(keys));
	return scan;
}

/* How far will it probably be to the tasks that are wanted? */
static int64
walk_length(Service *s)
{
	int64		wanted = Min(s->max_tasks - s->served, WALK_FOR) + 1;

	return s->note.stride < FAIRQ_WAITING / (WALK_FOR + 1) - 1 ?
		(s->note.stride + 1) * wanted : FAIRQ_WAITING;
}

/* The walk comes by a row that it can do nothing with. */
static void
pass_over(Service *s, FairqScan *scan, int64 addr)
{
	if (s->passed++ == 0)
		s->passed_from = addr;
	if (addr >= s->note.desert_from && addr < s->note.desert_to)
	{
		(void) walk_from(s, scan, s->note.desert_to);
		s->jumped_to = s->note.desert_to;
		s->note.desert_to = 0;
		s->passed += DESERT;
	}
}

/* From the first one that was passed over to here there were no others. */
static void
passed_to(Service *s, int64 addr)
{
	if (s->passed >= DESERT)
		fairq_lane_desert(s->lane, &s->note, s->passed_from, addr);
	s->passed = 0;
}

/*
 * Walk on to the next ready row of a regular group, but not past limit.
 */
static Walk
walk(Service *s, FairqScan *scan, int64 limit, FairqTask *task, int64 *reached)
{
	for (;;)
	{
		FairqRowState state = fairq_scan_next(scan);

		if (state == FAIRQ_ROW_END)
		{
			if (s->walk_end >= FAIRQ_WAITING)
				break;
			/* it is further than it was lately, or there is nothing at all */
			s->walk_length = s->walk_longer ||
				s->walk_length > FAIRQ_WAITING / WALK_LONGER ?
				FAIRQ_WAITING : s->walk_length * WALK_LONGER;
			s->walk_longer = true;
			(void) walk_from(s, scan, s->walk_end);
			continue;
		}
		fairq_task_read(fairq_scan_slot(scan), task);
		*reached = task->addr;
		s->walked++;
		if (state == FAIRQ_ROW_LIVE && !task->running &&
			!(task->addr <= limit && s->any_irregular &&
			  fairq_lane_is_irregular(s->lane, task->group_no)))
			return WALK_ROW;
		pass_over(s, scan, task->addr);
	}
	*reached = FAIRQ_ADDR_MAX;
	return WALK_END;
}

/*
 * How many looks in a row may be in vain: one at each group that was or has
 * become irregular, and some that others have a hand in.  In a queue that is
 * full, at those only that have an expired lease, or had one that was ended.
 */
static int
most_in_vain(Service *s, const FairqTurn *turn, bool full)
{
	return full ? turn->nexpired + s->ended : s->note.nirregular + turn->nirregular + 8;
}

/*
 * A task that has fallen due and whose group has no entry.  False if it cannot
 * be served now.
 */
static bool
serve_due_homeless(FairqTask *task, void *arg)
{
	Service    *s = arg;
	int64		served = s->served;

	if (s->served == s->max_tasks || s->ended >= MAX_ENDED || s->per_group > 0)
		return false;
	s->by = s->now;
	if (!task->running)
		serve_homeless(s, task);
	else if (fairq_group_setting(s->queue, task->group_no)->most != 0)
		(void) take_over(s, task, fairq_turn_from(task->group_no,
												  Max(s->note.pos, 0),
												  s->queue->block_length));
	return s->served > served;
}

/* One more step of the search for what has fallen due. */
static bool
find_due(Service *s)
{
	s->found.serve = serve_due_homeless;
	s->found.arg = s;
	return fairq_find_due(s->queue, s->priority, s->tasks, s->now, &s->found);
}

static void
serve_lane(Service *s)
{
	FairqScan  *scan;
	FairqTask	task;
	Walk		at = WALK_ON;
	int64		looked_to = FAIRQ_ADDR_MAX;
	int64		start;
	int64		reached;
	int64		cur;
	int64		last = FAIRQ_ADDR_NONE;
	int32		left = 0;		/* that may be served at last */
	int			in_vain = 0;

	while (!fairq_lane_note(s->lane, &s->note))
		fairq_recover(s->queue, s->priority, s->tasks);
	if (find_due(s) && !fairq_lane_note(s->lane, &s->note))
		return;
	if (s->note.mark == FAIRQ_ADDR_MAX && s->note.nirregular == 0 &&
		s->note.strays == FAIRQ_ADDR_MAX)
		return;

	s->any_irregular = s->note.any_irregular;
	s->strays = s->note.strays;
	s->left_strays = FAIRQ_ADDR_MAX;
	s->homeless = false;
	s->locked = FAIRQ_ADDR_MAX;
	s->passed = 0;
	s->jumped_to = FAIRQ_ADDR_NONE;
	s->last_block = -1;
	cur = Max(s->note.pos, 0);

	if (s->note.mark < s->note.pos)
		looked_to = look_behind(s, s->note.mark, false);
	start = reached = Max(s->note.mark, s->note.pos);
	s->walked = 0;
	s->walk_length = walk_length(s);
	s->walk_longer = false;

	scan = walk_from(s, NULL, start);

	while (s->served < s->max_tasks)
	{
		FairqTurn	turn = {.addr = FAIRQ_ADDR_MAX};
		bool		full = !fairq_place_in_queue(s->tasks);
		bool		have_turn;

		if (full && fairq_settings_are_old(s->queue))
			break;
		/* in a queue that is full there is only what has a place already */
		have_turn = s->any_irregular &&
			fairq_lane_next_turn(s->lane, &s->note, cur,
								 s->queue->block_length, full, false,
								 FAIRQ_ADDR_MAX, &turn);
		if (full && !have_turn)
		{
			if (!find_due(s))
				break;
			s->any_irregular = true;
			continue;
		}

		if (!full && at == WALK_ON)
			at = walk(s, scan, turn.addr, &task, &reached);

		if (have_turn && (full || at != WALK_ROW || turn.addr <= task.addr))
		{
			if (past_blocks(s, turn.addr) || in_vain > most_in_vain(s, &turn, full))
				break;
			if (!fairq_lane_next_turn(s->lane, &s->note, cur,
									  s->queue->block_length, full, true,
									  turn.addr, &turn))
				continue;
			s->any_regular = false;
			if (serve_turn(s, &turn))
			{
				in_vain = 0;
				cur = turn.addr;
				(void) find_due(s);
			}
			else
			{
				/* the turn is left to others; here it is over */
				in_vain++;
				cur = turn.addr + 1;
			}
			if (s->any_regular)
			{
				/* there is no desert any more */
				s->note.desert_to = 0;
				if (cur < start || cur < s->jumped_to)
				{
					/* its other tasks stand where the walk has not been */
					start = reached = cur;
					(void) walk_from(s, scan, start);
					s->passed = 0;
					s->jumped_to = FAIRQ_ADDR_NONE;
					at = WALK_ON;
				}
			}
		}
		else if (at == WALK_ROW)
		{
			at = WALK_ON;
			/* it was only looked at if it was not past the next turn */
			if (s->any_irregular &&
				fairq_lane_is_irregular(s->lane, task.group_no))
			{
				pass_over(s, scan, task.addr);
				continue;
			}
			if (past_blocks(s, task.addr))
				break;
			if (!have_places(s, task.group_no, task.addr))
			{
				if (s->locked > task.addr)
					pass_over(s, scan, task.addr);
				else
					passed_to(s, task.addr);
				continue;
			}
			passed_to(s, task.addr);
			if (claim(s, &task, task.addr) != FAIRQ_CLAIMED)
				fairq_place_in_group_back();
			else
			{
				in_vain = 0;
				if (task.addr == last)
					left--;
				else if (task.addr == s->note.pos)
					left = s->note.pos_left - 1;
				else
					left = fairq_group_setting(s->queue, task.group_no)->weight - 1;
				last = task.addr;
				if (left > 0)
				{
					/* in case it becomes irregular in the middle of its turn */
					fairq_lane_advance(s->lane, &s->note, last, left);
					cur = last;
				}
				else
					cur = last + 1;
				if (last <= s->note.suspect)
					look_for_hole(s, &task);
			}
		}
		else if (looked_to != FAIRQ_ADDR_MAX)
			looked_to = look_behind(s, looked_to, false);
		else if (find_due(s))
			s->any_irregular = true;
		else if (s->homeless)
		{
			/* out of turn, but better than not at all; once */
			(void) look_behind(s, s->note.mark, true);
			s->homeless = false;
		}
		else if (s->strays != FAIRQ_ADDR_MAX)
			look_for_strays(s);
		else
			break;
	}
	fairq_scan_end(scan);

	passed_to(s, at == WALK_END ? FAIRQ_WAITING : reached);
	fairq_lane_advance(s->lane, &s->note, last, Max(left, 0));
	fairq_lane_raise(s->lane, &s->note,
					 Min(Min(reached, looked_to), s->locked),
					 s->walked == 0 || reached == FAIRQ_ADDR_MAX ? 0 :
					 (reached - Max(start, 0)) / s->walked + 1);
}

static void
serve_lanes(Service *s)
{
	if (s->queue->paused)
		return;
	fairq_running_begin(s->queue);
	for (s->priority = 0;
		 s->priority < FAIRQ_PRIORITIES && s->served < s->max_tasks;
		 s->priority++)
	{
		s->lane = fairq_queue_lane(s->queue, s->priority);
		serve_lane(s);

		/* the blocks to look at are those of the first lane that has some */
		if (s->per_group > 0 && s->served > 0)
			break;
	}
	fairq_running_end();
}

static void
serve(Service *s)
{
	/* by our own settings there may be room for those who are parked */
	if (fairq_settings_pending())
		fairq_unpark_all(s->queue->hints);
	for (;;)
	{
		serve_lanes(s);

		/* changed limits act at once, also in the middle of a call */
		if (s->served > 0 || s->peeked || !fairq_settings_are_old(s->queue))
			break;
		s->queue = fairq_queue_use_id(s->queue->id, NoLock);
	}
	if (s->queued.scan)
		fairq_scan_end(s->queued.scan);
	if (s->due.scan)
		fairq_scan_end(s->due.scan);
	if (s->expired.scan)
		fairq_scan_end(s->expired.scan);

	/* what this call has not taken, or its caller will not, is for others */
	if (s->found.count > s->served)
		fairq_wake(&s->queue->hints->wakeup,
				   s->found.count - s->served - (s->peeked ? 1 : 0));
}

/*
 * Choose up to max_tasks tasks, in the order of service, and have each of them
 * served.  Returns how many there were.
 */
int64
fairq_serve(FairqQueue *queue, FairqTable *tasks, TimestampTz now,
			int64 max_tasks, int64 per_group, FairqServer server, void *arg)
{
	Service		s = {
		.queue = queue,
		.tasks = tasks,
		.now = now,
		.server = server,
		.arg = arg,
		.max_tasks = max_tasks,
		.per_group = per_group
	};

	uint32		surplus = fairq_wake_surplus(&queue->hints->wakeup);

	fairq_debts_show();
	serve(&s);
	if (s.served > 0 || s.ended > 0)
		fairq_written();
	fairq_wake_next(&queue->hints->wakeup, surplus,
					s.served == max_tasks || (per_group > 0 && s.served > 0));
	return s.served;
}

/*
 * Would a pop find something?  It looks as one does, and raises marks and
 * parks groups, but touches no row.
 */
bool
fairq_worth_a_pop(FairqQueue *queue, FairqTable *tasks, TimestampTz now)
{
	Service		s = {
		.queue = queue,
		.tasks = tasks,
		.now = now,
		.peek = true,
		.max_tasks = 1
	};

	serve(&s);
	return s.peeked;
}
