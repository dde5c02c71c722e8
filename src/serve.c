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
 *	 first ready task, found through the index by group, wherever it stands, and
 *	 up to its weight; its rows are passed over by the first walk.
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

#include "place.h"
#include "running.h"
#include "serve.h"
#include "transaction.h"

/* rows below the service position that are looked at in one go */
#define LOOK_BEHIND 1000

/* rows passed over in a row that are worth remembering */
#define DESERT 64

/* rows of a group that are looked at to find its next ready task */
#define LOOK_AHEAD 16

/* One call, in one lane. */
typedef struct Service
{
	FairqQueue *queue;
	FairqTable *tasks;
	FairqLane  *lane;
	int			priority;
	FairqServer server;
	void	   *arg;
	int64		max_tasks;
	int64		served;			/* in all lanes */
	int64		per_group;
	int64		first_block;	/* with per_group: that is looked at now */
	int64		last_block;		/* once something was served; before, -1 */
	FairqNote	note;
	bool		any_irregular;
	bool		any_regular;	/* a group became regular at the last turn */
	bool		homeless;		/* tasks are behind whose group has no entry */
	int64		locked;			/* lowest row that was merely locked */
	int			passed;			/* rows that the walk has passed over in a row */
	int64		passed_from;	/* the first of them */
	int64		jumped_to;		/* the end of the desert, after it */
	int64		strays;			/* where to look on for those */
	int64		left_strays;	/* lowest one that could not be served */
	FairqScan  *by_group;		/* or NULL */
} Service;

typedef enum Walk
{
	WALK_ON,					/* no row at hand */
	WALK_ROW,					/* one is */
	WALK_END					/* there is none any more */
} Walk;

/*
 * Serve a task, for which there is a place in the queue and in its group, at
 * that turn.
 */
static FairqClaimResult
claim(Service *s, FairqTask *task, int64 turn)
{
	FairqDebt  *debt;
	FairqClaimResult result = fairq_task_lock(s->tasks, task);
	bool		removed;

	if (result == FAIRQ_LOCKED && !fairq_is_waiting(task->addr))
		s->locked = Min(s->locked, task->addr);
	if (result != FAIRQ_CLAIMED)
		return result;
	if (task->running)
		return FAIRQ_GONE;

	debt = fairq_debt(s->lane, task->group_no);
	fairq_debt_ready_at_abort(debt, task->addr);
	debt->counts[FAIRQ_POPPED]++;
	task->stood = task->addr;
	if (fairq_is_waiting(task->stood))
		task->addr = turn;
	removed = s->server(s->tasks, task, s->arg);
	fairq_place_is_used(debt, task->addr, removed);
	if (s->per_group > 0 && s->last_block < 0)
		s->last_block = s->per_group > PG_INT64_MAX - s->first_block ?
			PG_INT64_MAX : s->first_block + s->per_group - 1;
	s->served++;
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

	if (fairq_place_in_group(s->lane, &s->note, group_no, addr, s->tasks,
							 &parked))
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
search_group(Service *s, int32 group_no, int64 from, int64 end)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(s->queue->id)},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)},
		{3, FAIRQ_EQ, Int16GetDatum(s->priority)},
		{4, FAIRQ_GE, Int64GetDatum(from)},
		{4, FAIRQ_LT, Int64GetDatum(end)}
	};

	if (s->by_group == NULL)
		s->by_group = fairq_scan_begin(s->tasks, FAIRQ_TASK_BY_GROUP, keys,
									   lengthof(keys), false);
	else
		fairq_scan_again(s->by_group, keys, lengthof(keys));
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
		FairqRowState state = fairq_scan_next(s->by_group);
		FairqTask	task;

		if (state == FAIRQ_ROW_END)
			return true;
		fairq_task_read(fairq_scan_slot(s->by_group), &task);
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

	if (turn->waiting_from == FAIRQ_ADDR_MAX)
		return true;
	search_group(s, turn->group_no, turn->waiting_from, FAIRQ_ADDR_MAX);
	while ((state = fairq_scan_next(s->by_group)) != FAIRQ_ROW_END)
		if (state == FAIRQ_ROW_LIVE)
			return false;
	return true;
}

/* Find the next task of a group: of its waiting ones, behind all others. */
static FairqRowState
next_of_group(Service *s, const FairqTurn *turn, bool *waiting)
{
	FairqRowState state = fairq_scan_next(s->by_group);

	if (state == FAIRQ_ROW_END && !*waiting)
	{
		*waiting = true;
		search_group(s, turn->group_no, turn->waiting_from, FAIRQ_ADDR_MAX);
		state = fairq_scan_next(s->by_group);
	}
	return state;
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
	int32		weight = turn->left > 0 ? turn->left : setting->weight;

	/* a limited one would soon be parked, and its rows be in the way again */
	bool		limited = setting->most != FAIRQ_NO_LIMIT;
	bool		waiting = fairq_is_waiting(turn->from);
	bool		parked = false;
	int32		served = 0;
	int64		last = turn->from;
	int64		ahead = FAIRQ_ADDR_NONE;
	int64		locked = FAIRQ_ADDR_MAX;
	bool		at_turn = true;
	bool		at_end = false;
	bool		drained = true;
	bool		have_place = false;

	/* there is no need to look if it has no room */
	if (!fairq_place_in_group(s->lane, &s->note, turn->group_no, turn->from,
							  s->tasks, &parked))
	{
		fairq_lane_turn_back(s->lane, &s->note, turn);
		return false;
	}
	have_place = true;

	if (waiting)
		search_group(s, turn->group_no, turn->waiting_from, FAIRQ_ADDR_MAX);
	else
		search_group(s, turn->group_no, turn->from, FAIRQ_WAITING);
	while (served < weight && s->served < s->max_tasks)
	{
		FairqRowState state = next_of_group(s, turn, &waiting);
		FairqTask	task;

		if (state == FAIRQ_ROW_END)
		{
			at_end = true;
			break;
		}
		fairq_task_read(fairq_scan_slot(s->by_group), &task);
		if (state != FAIRQ_ROW_LIVE)
		{
			drained = false;
			continue;
		}
		if (task.running)
			continue;
		if (!fairq_place_in_queue(s->tasks))
			break;
		if (!have_place &&
			!fairq_place_in_group(s->lane, &s->note, turn->group_no,
								  task.addr, s->tasks, &parked))
			break;
		have_place = true;
		switch (claim(s, &task, turn->addr))
		{
			case FAIRQ_CLAIMED:
				served++;
				have_place = false;
				last = task.stood;
				at_turn &= last == turn->addr;
				if (!waiting && last > turn->addr)
					ahead = last;
				break;
			case FAIRQ_LOCKED:
				locked = Min(locked, task.addr);
				drained = false;
				break;
			case FAIRQ_GONE:
				drained = false;
				break;
		}
	}
	fairq_place_in_group_back();

	if (served > 0)
		fairq_lane_turn_served(s->lane, &s->note, turn, Min(last, locked),
							   at_end ? 0 : weight - served, ahead);
	if (locked != FAIRQ_ADDR_MAX || parked)
	{
		if (served == 0)
			fairq_lane_turn_back(s->lane, &s->note, turn);
		return served > 0;
	}
	if (at_end)
		fairq_lane_settle(s->lane, &s->note, turn, served > 0 && at_turn,
						  drained);
	else if (at_turn && served == weight && !waiting && !limited &&
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
	search_group(s, task->group_no, task->addr + 1, FAIRQ_ADDR_MAX);
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
		{3, FAIRQ_GE, Int64GetDatum(s->strays)}
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

/* Look at the lane's rows from an address on. */
static FairqScan *
walk_from(Service *s, FairqScan *scan, int64 from)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(s->queue->id)},
		{2, FAIRQ_EQ, Int16GetDatum(s->priority)},
		{3, FAIRQ_GE, Int64GetDatum(from)},
		{3, FAIRQ_LT, Int64GetDatum(FAIRQ_WAITING)}
	};

	if (scan == NULL)
		return fairq_scan_begin(s->tasks, FAIRQ_TASK_BY_LANE, keys,
								lengthof(keys), false);
	fairq_scan_again(scan, keys, lengthof(keys));
	return scan;
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
	FairqRowState state;

	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		fairq_task_read(fairq_scan_slot(scan), task);
		*reached = task->addr;
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
 * become irregular, and some that others have a hand in.
 */
static int
most_in_vain(Service *s, const FairqTurn *turn)
{
	return s->note.nirregular + turn->nirregular + 8;
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

	scan = walk_from(s, NULL, start);

	while (s->served < s->max_tasks && fairq_place_in_queue(s->tasks))
	{
		FairqTurn	turn = {.addr = FAIRQ_ADDR_MAX};
		bool		have_turn = s->any_irregular &&
			fairq_lane_next_turn(s->lane, &s->note, cur,
								 s->queue->block_length, false,
								 FAIRQ_ADDR_MAX, &turn);

		if (at == WALK_ON)
			at = walk(s, scan, turn.addr, &task, &reached);

		if (have_turn && (at != WALK_ROW || turn.addr <= task.addr))
		{
			if (past_blocks(s, turn.addr) || in_vain > most_in_vain(s, &turn))
				break;
			if (!fairq_lane_next_turn(s->lane, &s->note, cur,
									  s->queue->block_length, true,
									  turn.addr, &turn))
				continue;
			s->any_regular = false;
			if (serve_turn(s, &turn))
			{
				in_vain = 0;
				cur = turn.addr;
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
					 Min(Min(reached, looked_to), s->locked));
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

/*
 * Choose up to max_tasks tasks, in the order of service, and have each of them
 * served.  Returns how many there were.
 */
int64
fairq_serve(FairqQueue *queue, FairqTable *tasks, int64 max_tasks,
			int64 per_group, FairqServer server, void *arg)
{
	Service		s = {
		.queue = queue,
		.tasks = tasks,
		.server = server,
		.arg = arg,
		.max_tasks = max_tasks,
		.per_group = per_group
	};

	fairq_debts_show();

	/* by our own settings there may be room for those who are parked */
	if (fairq_settings_pending())
		fairq_unpark_all(queue->hints);
	for (;;)
	{
		serve_lanes(&s);

		/* changed limits act at once, also in the middle of a call */
		if (s.served > 0 || !fairq_settings_are_old(s.queue))
			break;
		s.queue = fairq_queue_use_id(s.queue->id, NoLock);
	}
	if (s.by_group)
		fairq_scan_end(s.by_group);
	if (s.served > 0)
		fairq_written();
	return s.served;
}
