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
 * A queue that is full (max_running) has no turns: only tasks whose leases have
 * expired are served, in rounds of their groups (lane.c).
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
 * Locking: rows are gripped, or locked with SKIP LOCKED (store.c), so a call
 * waits for nobody.
 * Lanes' locks are held for moments, see lane.c.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "place.h"
#include "registry.h"
#include "running.h"
#include "service.h"

/* rows below the service position that are looked at in one go */
#define LOOK_BEHIND 1000

/* rows passed over in a row that are worth remembering */
#define DESERT 64

/* how much further a walk looks that has not found enough, before all of it */
#define WALK_LONGER 64

/* how often a call looks again for its own transaction's tasks */
#define LOOK_FOR_OWN 100

/* tasks that a walk is begun for */
#define WALK_FOR 1000

typedef enum Walk
{
	WALK_ON,					/* no row at hand */
	WALK_ROW,					/* one is */
	WALK_END					/* there is none any more */
} Walk;

/*
 * Have a place for the next task of a group, which is not irregular.  If there
 * is none it is irregular from now on, and parked unless that is doubtful.
 */
static bool
have_places(FairqService *s, int32 group_no, int64 addr)
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
serve_homeless(FairqService *s, FairqTask *task)
{
	if (fairq_place_in_queue(s->tasks) &&
		have_places(s, task->group_no, task->addr))
	{
		(void) fairq_claim(s, task, fairq_turn_from(task->group_no,
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
look_behind(FairqService *s, int64 from, bool serve)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(s->queue->id, s->priority))},
		{2, FAIRQ_GE, Int64GetDatum(from)},
		{2, FAIRQ_LT, Int64GetDatum(s->note.pos)}
	};
	FairqScan  *scan = fairq_scan_in_order(s->tasks, FAIRQ_TASK_BY_LANE, keys,
										   lengthof(keys));
	int64		upto = FAIRQ_ADDR_MAX;
	FairqTask	task;
	FairqRowState state;

	for (int rows = 0;
		 (state = fairq_task_next(scan, &task, serve)) != FAIRQ_ROW_END;
		 rows++)
	{
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

/*
 * A regular group was served a task that it has had since before the lane was
 * recovered.  If its next one is not at its next turn, it has a hole of which
 * nobody told.
 */
static void
look_for_hole(FairqService *s, const FairqTask *task)
{
	fairq_search_group(s, &s->queued, task->group_no, task->addr + 1,
					   FAIRQ_SCHEDULED);
	if (!fairq_next_is_regular(s, task->group_no, task->addr))
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
look_for_strays(FairqService *s)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(s->queue->id, s->priority))},
		{2, FAIRQ_GE, Int64GetDatum(s->strays)},
		{2, FAIRQ_LT, Int64GetDatum(FAIRQ_SCHEDULED)}
	};
	FairqScan  *scan = fairq_scan_in_order(s->tasks, FAIRQ_TASK_BY_LANE, keys,
										   lengthof(keys));
	int64		from = s->strays;
	FairqTask	task;
	FairqRowState state;

	s->strays = FAIRQ_ADDR_MAX;
	for (int rows = 0;
		 (state = fairq_task_next(scan, &task, true)) != FAIRQ_ROW_END;
		 rows++)
	{
		int64		served = s->served;

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
past_blocks(FairqService *s, int64 addr)
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
walk_from(FairqService *s, FairqScan *scan, int64 from)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(fairq_task_lane(s->queue->id, s->priority))},
		{2, FAIRQ_GE, Int64GetDatum(from)},
		{2, FAIRQ_LT, (Datum) 0}
	};

	s->walk_end = s->walk_length < FAIRQ_WAITING - from ?
		Max(from, 0) + s->walk_length : FAIRQ_WAITING;
	keys[2].value = Int64GetDatum(s->walk_end);
	if (scan == NULL)
		return fairq_scan_in_order(s->tasks, FAIRQ_TASK_BY_LANE, keys,
								   lengthof(keys));
	fairq_scan_again(scan, keys, lengthof(keys));
	return scan;
}

/* How far will it probably be to the tasks that are wanted? */
static int64
walk_length(FairqService *s)
{
	int64		wanted = Min(s->max_tasks - s->served, WALK_FOR) + 1;

	return s->note.stride < FAIRQ_WAITING / (WALK_FOR + 1) - 1 ?
		(s->note.stride + 1) * wanted : FAIRQ_WAITING;
}

/* The walk comes by a row that it can do nothing with. */
static void
pass_over(FairqService *s, FairqScan *scan, int64 addr)
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
passed_to(FairqService *s, int64 addr)
{
	if (s->passed >= DESERT)
		fairq_lane_desert(s->lane, &s->note, s->passed_from, addr);
	s->passed = 0;
}

/*
 * Walk on to the next ready row of a regular group, but not past limit.
 */
static Walk
walk(FairqService *s, FairqScan *scan, int64 limit, FairqTask *task,
	 int64 *reached)
{
	for (;;)
	{
		FairqRowState state = fairq_task_next(scan, task, true);

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
 * become irregular, and some that others have a hand in.
 */
static int
most_in_vain(FairqService *s, const FairqTurn *turn)
{
	return s->note.nirregular + turn->nirregular + 8;
}

/*
 * A task that has fallen due and whose group has no entry.  False if it cannot
 * be served now.
 */
static bool
serve_due_homeless(FairqTask *task, void *arg)
{
	FairqService *s = arg;
	int64		served = s->served;

	if (s->served == s->max_tasks || s->ended >= FAIRQ_MAX_ENDED || s->per_group > 0)
		return false;
	s->by = s->now;
	if (!task->running)
		serve_homeless(s, task);
	else if (fairq_group_setting(s->queue, task->group_no)->most != 0)
		(void) fairq_take_over(s, task, fairq_turn_from(task->group_no,
														Max(s->note.pos, 0),
														s->queue->block_length));
	return s->served > served;
}

/* One more step of the search for what has fallen due. */
static bool
find_due(FairqService *s)
{
	s->found.serve = serve_due_homeless;
	s->found.arg = s;
	return fairq_find_due(s->queue, s->priority, s->tasks, s->now, &s->found);
}

/* In a full queue: has each group had its round, if this one has another? */
static bool
begins_round(FairqService *s, const FairqTurn *turn)
{
	int32		seat = turn->group_no;
	int32		first = s->full_first;
	int32		last = s->full_last;

	if (first < 0 || (seat == last && turn->left > 0))
		return false;
	return last < seat ? last < first && first <= seat :
		last < first || first <= seat;
}

/*
 * In a queue that is full only expired tasks have a place.  Serve those of one
 * group, or find out otherwise that there is more to do.  False if not.
 */
static bool
serve_in_full(FairqService *s)
{
	int32		vain_seat = -1;
	int32		most_expired = 0;
	FairqTurn	turn;

	/* each look in vain makes these fewer, or else others have a hand in it */
	for (int looks = 0;
		 s->ended < FAIRQ_MAX_ENDED &&
		 fairq_lane_next_in_full(s->lane, &s->note, vain_seat,
								 s->queue->block_length, &turn);
		 looks++)
	{
		int64		round = s->full_rounds + (begins_round(s, &turn) ? 1 : 0);
		bool		served;

		most_expired = Max(most_expired, turn.nexpired);
		if (looks > most_expired || (s->per_group > 0 && round >= s->per_group))
		{
			fairq_lane_turn_back(s->lane, &s->note, &turn);
			return false;
		}
		s->in_full = true;
		served = fairq_serve_turn(s, &turn);
		s->in_full = false;
		if (served)
		{
			if (s->full_first < 0)
				s->full_first = turn.group_no;
			s->full_last = turn.group_no;
			s->full_rounds = round;
		}
		/* others may have left a place meanwhile */
		if (served || s->served >= s->max_tasks ||
			fairq_place_in_queue(s->tasks))
			return true;
		vain_seat = turn.group_no;
	}
	return false;
}

static void
serve_lane(FairqService *s)
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
	bool		tired = false;	/* too often: only the others are served */

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
	s->full_first = -1;
	s->full_rounds = 0;
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
		bool		have_turn;

		CHECK_FOR_INTERRUPTS();
		if (!fairq_place_in_queue(s->tasks))
		{
			/* with per_group it is either turns or rounds in a full queue */
			if (fairq_settings_are_old(s->queue) || s->last_block >= 0)
				break;
			if (serve_in_full(s))
				(void) find_due(s);
			else if (!find_due(s))
				break;
			s->any_irregular = true;
			tired = false;
			continue;
		}
		if (s->per_group > 0 && s->full_first >= 0 && s->served > 0)
			break;
		have_turn = s->any_irregular && !tired &&
			fairq_lane_next_turn(s->lane, &s->note, cur,
								 s->queue->block_length, false,
								 FAIRQ_ADDR_MAX, &turn);

		if (at == WALK_ON)
			at = walk(s, scan, turn.addr, &task, &reached);

		if (have_turn && (at != WALK_ROW || turn.addr <= task.addr))
		{
			if (past_blocks(s, turn.addr))
				break;
			if (in_vain > most_in_vain(s, &turn))
			{
				tired = true;
				in_vain = 0;
				continue;
			}
			if (!fairq_lane_next_turn(s->lane, &s->note, cur,
									  s->queue->block_length, true, turn.addr,
									  &turn))
				continue;
			s->any_regular = false;
			if (fairq_serve_turn(s, &turn))
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
			if (fairq_claim(s, &task, task.addr) != FAIRQ_CLAIMED)
				fairq_place_in_group_back();
			else
			{
				in_vain = 0;
				tired = false;
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
		{
			looked_to = look_behind(s, looked_to, false);
			tired = false;
		}
		else if (find_due(s))
		{
			s->any_irregular = true;
			tired = false;
		}
		else if (s->homeless)
		{
			/* out of turn, but better than not at all; once */
			(void) look_behind(s, s->note.mark, true);
			s->homeless = false;
			tired = false;
		}
		else if (s->strays != FAIRQ_ADDR_MAX)
		{
			look_for_strays(s);
			tired = false;
		}
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
serve_lanes(FairqService *s)
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
serve(FairqService *s)
{
	int32		id;

	/* by our own settings there may be room for those who are parked */
	if (fairq_settings_pending())
		fairq_unpark_all(s->queue->hints);
	for (int looks = 0;; looks++)
	{
		serve_lanes(s);

		/*
		 * What our transaction has enqueued may have been made void while we
		 * looked, by others who come by.  That ends: each of them is done.
		 */
		if (fairq_has_own_tasks() && !s->peek && s->served < s->max_tasks &&
			s->per_group == 0 && looks < LOOK_FOR_OWN &&
			fairq_debts_show(s->queue->hints))
			continue;

		/* changed limits act at once, also in the middle of a call */
		if (s->served > 0 || s->peeked || !fairq_settings_are_old(s->queue))
			break;
		id = s->queue->id;
		s->queue = fairq_queue_by_id(id);
		if (s->queue == NULL)
			elog(ERROR, "could not read the settings of queue %d", id);
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
 * Does this backend's worker take tasks away?  Who waits does not say for which
 * of pop and take; a worker uses one of them.  It matters beside a row that is
 * locked FOR KEY SHARE, which is in the way of take only.
 */
static bool takes = false;

/*
 * Choose up to max_tasks tasks, in the order of service, and have each of them
 * served.  Returns how many there were.
 */
int64
fairq_serve(FairqQueue *queue, FairqTable *tasks, TimestampTz now,
			int64 max_tasks, int64 per_group, FairqServer server, void *arg)
{
	FairqService s = {
		.queue = queue,
		.tasks = tasks,
		.now = now,
		.server = server,
		.arg = arg,
		.max_tasks = max_tasks,
		.per_group = per_group
	};

	uint32		surplus = fairq_wake_surplus(&queue->hints->wakeup);

	takes = tasks->claims_delete;
	fairq_recover_end();
	fairq_shmem_make_room();
	(void) fairq_debts_show(queue->hints);
	serve(&s);
	if (s.served > 0 || s.ended > 0)
		fairq_written();
	fairq_wake_next(&queue->hints->wakeup, surplus,
					s.served == max_tasks || (per_group > 0 && s.served > 0));
	return s.served;
}

/*
 * Would a pop find something?  It looks as one does, and raises marks and
 * parks groups, but touches no row.  If not, *saw_locked tells whether it would
 * but for rows that others have locked: nobody says when they are unlocked.
 */
bool
fairq_worth_a_pop(FairqQueue *queue, FairqTable *tasks, TimestampTz now,
				  bool *saw_locked)
{
	FairqService s = {
		.queue = queue,
		.tasks = tasks,
		.now = now,
		.peek = true,
		.max_tasks = 1
	};

	tasks->claims_delete = takes;
	serve(&s);
	*saw_locked = s.saw_locked && !s.peeked;
	return s.peeked;
}
