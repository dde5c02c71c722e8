/*
 * turn.c
 *		Service: the turn of a group, and the turns that a call has in flight.
 *
 * A call takes a number of turns of a lane at once, with tasks from the hands
 * of their groups (lane_turns.c).  Until a task is claimed or given back, no
 * other call finds it in shared memory.  So the turns are kept here, in static
 * memory.  Unused turns are given back when the call ends, even by an error or
 * the end of the session (transaction.c).  The charge of a lane for tasks that
 * are not served yet is given back too, in a queue with shares (shares.c).
 *
 * At its turn a group gets at most as many tasks as its weight.  Started tasks
 * come first: a task whose lease has expired, then a retried task that is due.
 * Then comes its first queued task, or its first scheduled task that is due,
 * whichever became ready first.
 *
 * A group's queued tasks come from its hand, or from the index when the hand
 * is used up (entry.c).  Most turns search no other place.  If the group is in
 * the set "due" or "lapsed", its turn searches three more places of its line.
 * These are the tasks that wait for a retry, the scheduled tasks, and the
 * addresses at which the group may have running tasks.  A search for due tasks
 * begins at an address below which the only due tasks are those in the group's
 * entry.  The end of the turn records the results of a search.  It keeps the
 * next few due tasks of a region, or the next few lapsed tasks, in the entry.
 * So most turns need no search.
 *
 * Lapsed tasks keep their addresses, so a task that lapses repeatedly would
 * always be first.  Turns therefore serve them in cycles: a search begins
 * after the task that was served last.  It continues to the end of the line,
 * and then from the beginning up to that task.
 *
 * Locking: only locks that are held briefly (lane.c).  fairq_turns_back() and
 * fairq_turns_leave() neither fail nor allocate.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "claim.h"
#include "entry.h"
#include "line.h"
#include "outcome.h"
#include "running.h"
#include "tools.h"
#include "transaction.h"
#include "turn.h"

/* initial room for turns without a task */
#define FIRST_VAIN 64

/* The turns that the call in progress has in flight. */
static struct
{
	int			n;
	FairqTurn	turns[FAIRQ_MAX_TURNS];
	FairqTurn  *stopped;		/* the turn in which the call has stopped, and
								 * whose rest becomes the next turn; NULL:
								 * none */
}			flight;

/* A turn without a task, to be given back when the call leaves the lane. */
typedef struct TurnInVain
{
	int32		group_no;
	int64		addr;
	int64		block;			/* as in FairqTurn */
} TurnInVain;

static struct
{
	FairqLane  *lane;
	uint32		lane_no;
	int			n;
	int			most;
	TurnInVain *turns;			/* in TopMemoryContext, kept for later calls */
}			vain;

/*
 * Take turns with fairq_lane_take(); if nlapsed is not NULL, take one turn in
 * a full queue, after tried_seat.
 */
FairqTaken
fairq_turns_take(FairqLane *lane, FairqTaking *taking, int32 tried_seat,
				 int32 *nlapsed)
{
	FairqTaken	taken;

	Assert(flight.n == 0);
	taking->turns = flight.turns;
	taken = nlapsed == NULL ? fairq_lane_take(lane, taking) :
		fairq_lane_take_in_full(lane, taking, tried_seat, nlapsed);
	flight.n = taking->n;
	return taken;
}

/*
 * Move a task from a later turn in flight of the same group to this turn,
 * which has no task so far.  So the group's tasks are served in order.
 * Returns false if there is none.
 */
static bool
bring_forward(FairqTurn *turn)
{
	for (FairqTurn *later = turn + 1; later < flight.turns + flight.n; later++)
	{
		if (later->group_no != turn->group_no ||
			later->queued.next == later->queued.n)
			continue;
		turn->queued.items[0] = later->queued.items[later->queued.next++];
		turn->queued.next = 0;
		turn->queued.n = 1;
		later->queued.more = true;
		return true;
	}
	return false;
}

/* Give back the rest of a turn. */
static void
give_rest_back(FairqTurn *turn)
{
	if (turn->state.done)
		return;
	/*
	 * A turn with an error is over, so a row that fails repeatedly is not
	 * always next.
	 */
	(void) fairq_lane_turn_end(turn, NULL, turn->state.begun);
	/* a call that searched meanwhile has not found the tasks of this turn */
	fairq_wake(&fairq_hints_of(turn->lane)->wakeup, 1);
}

/*
 * Give back the remaining turns, the last turn first, so that the first turn
 * is next.
 */
void
fairq_turns_back(void)
{
	while (flight.n > 0)
		give_rest_back(&flight.turns[--flight.n]);
	if (flight.stopped != NULL)
		fairq_lane_stopped(flight.stopped);
	flight.stopped = NULL;
}

/*
 * Make room for another wasted turn.  A turn in a full queue is not kept and
 * has no block.  Turns in blocks that have ended are useless; in one block
 * each group has at most one turn.
 */
static void
have_space(const FairqTurn *turn)
{
	int			n = 0;

	if (turn->in_full || vain.n < vain.most)
		return;
	for (int i = 0; i < vain.n; i++)
		if (vain.turns[i].block == turn->block)
			vain.turns[n++] = vain.turns[i];
	vain.n = n;
	if (n >= vain.most / 2)
		vain.turns = fairq_grow(TopMemoryContext, vain.turns, &vain.most,
								FIRST_VAIN, sizeof(TurnInVain));
}

/*
 * Keep a turn that has yielded no task, although the group may have one.  The
 * group gets the turn back when the call leaves the lane.  The caller has made
 * room for it.
 */
static void
keep_in_vain(const FairqTurn *turn)
{
	vain.lane = turn->lane;
	vain.lane_no = turn->lane_no;
	vain.turns[vain.n++] = (TurnInVain)
	{
		.group_no = turn->group_no,.addr = turn->addr,.block = turn->block
	};
}

/* Give back wasted turns, because the call leaves the lane. */
void
fairq_turns_leave(void)
{
	while (vain.n > 0)
	{
		const TurnInVain *turn = &vain.turns[--vain.n];

		fairq_lane_part_back(vain.lane, vain.lane_no, turn->group_no,
							 turn->addr);
	}
}

/* --------------------------------------------------------------------- */

/* A search for a group's next task of one kind. */
typedef struct Search
{
	bool		open;			/* true: more tasks may be found */
	bool		begun;			/* true: a scan of the index was begun */
	bool		from_entry;		/* true: "task" came from the entry, not from a
								 * scan */
	bool		have;			/* true: "task" is the next one */
	FairqTask	task;
	TimestampTz since;			/* time at which "task" became ready */
	int64		from;			/* address below which no task is left */
	int64		locked;			/* lowest address of a task that was only
								 * locked */
} Search;

/* A contiguous piece of a group's line. */
typedef struct Stretch
{
	int64		from;
	int64		end;
	bool		before;			/* true: the piece is before the beginning of
								 * the cycle */
} Stretch;

/* The course of a group's turn. */
typedef struct Course
{
	FairqTurn  *turn;
	bool		search;			/* true: the group is in the set "due" or
								 * "lapsed" */
	bool		no_slot;		/* true: there is no slot or no start for
								 * another running task, or the group waits for
								 * a task that this call cannot serve */
	bool		not_now;		/* true: keep the turn for later, because the
								 * queue has no slot, its settings changed, or
								 * a task that is served alone ends the call */
	Search		queued;
	Search		due[FAIRQ_REGIONS];
	Search		lapsed;
	Stretch		stretches[2 * FAIRQ_REGIONS];	/* pieces of the line to be
												 * searched for lapsed tasks */
	int			nstretches;
	int			next_stretch;
	FairqPlace	cycle;			/* where the cycle began */
	bool		claimed;		/* true: a queued or scheduled task was
								 * claimed */
	bool		no_scheduled;	/* true: the group's scheduled tasks are left
								 * to other calls */
	FairqFindings findings;
} Course;

/* Whether the task belongs to the group whose turn it is, in this lane. */
static bool
is_of_turn(const FairqService *s, const FairqTurn *turn, const FairqTask *task)
{
	return task->group_no == turn->group_no &&
		task->priority == s->priority && task->queue_id == s->queue->id;
}

static FairqItem
item_of(const FairqTask *task)
{
	return (FairqItem) {task->addr, (uint32) task->id, task->root};
}

/*
 * Search the tasks of the turn's group at or past an address, and before end.
 */
static void
search_group(FairqService *s, FairqScan **scan, const FairqTurn *turn,
			 int64 from, int64 end)
{
	int32		lane = fairq_task_lane(s->queue->id, s->priority);

	*scan = fairq_scan_in_order(*scan, s->tasks,
								fairq_range_line(lane, turn->group_no, from,
												 end));
}

/* Whether this is a timed task of the turn's group that can be claimed. */
static bool
is_scheduled(FairqService *s, const Course *course, FairqRowState state,
			 const FairqTask *task)
{
	return state == FAIRQ_ROW_LIVE && !task->running &&
		is_of_turn(s, course->turn, task) && fairq_is_timed(task->addr);
}

/*
 * Drop the due tasks from the entry, because one no longer exists, and the
 * others may also be outdated.  Rows may have been moved, so the search begins
 * again at that task's address.
 */
static void
forget_due(Search *search, FairqTurn *turn, int64 addr, int64 end)
{
	turn->due.next = turn->due.kept.n;
	search->from = Min(search->from, addr);
	search->open = search->from < end;
	search->begun = false;
}

/* Find a due task of a region among those from the entry. */
static void
look_at_due(FairqService *s, Course *course, FairqRegion region)
{
	FairqTurn  *turn = course->turn;
	const FairqDueKept *kept = &turn->due.kept;
	Search	   *search = &course->due[region];

	while (kept->region == region && turn->due.next < kept->n &&
		   !search->have)
	{
		const FairqItem *item = &kept->items[turn->due.next];
		FairqRowState state = fairq_task_at(s->tasks, &item->tid,
											&search->task);

		if (state == FAIRQ_ROW_END || search->task.addr != item->addr ||
			!is_of_turn(s, turn, &search->task))
		{
			forget_due(search, turn, item->addr,
					   fairq_due_end(region, s->taken.by));
			return;
		}
		if (!is_scheduled(s, course, state, &search->task))
		{
			turn->due.next++;
			continue;
		}
		/* the clock of the backend that read the task may be ahead of ours */
		if (search->task.run_at > s->taken.by)
			break;
		search->since = search->task.run_at;
		search->have = search->from_entry = true;
	}
}

/* Find the first task of a region that is due. */
static void
look_for_due(FairqService *s, Course *course, FairqRegion region)
{
	Search	   *search = &course->due[region];
	FairqTurn  *turn = course->turn;
	const FairqDueKept *kept = &turn->due.kept;

	if (!search->have)
		look_at_due(s, course, region);
	while (search->open && !search->have &&
		   (kept->region != region || turn->due.next == kept->n))
	{
		FairqRowState state;

		if (!search->begun)
			search_group(s, &s->scans.due[region], turn, search->from,
						 fairq_due_end(region, s->taken.by));
		search->begun = true;
		state = fairq_task_next(s->scans.due[region], &search->task, true);
		if (state == FAIRQ_ROW_END)
		{
			search->open = false;
			search->from = FAIRQ_ADDR_MAX;
			continue;
		}
		search->from = search->task.addr;
		search->since = search->task.run_at;
		search->have = is_scheduled(s, course, state, &search->task) &&
			search->since <= s->taken.by;
		search->from_entry = false;
	}
}

/*
 * Keep the next few due or lapsed tasks for the group's next turns.  They are
 * the tasks from the entry that were not needed.  If there are none, they are
 * the next tasks of a scan.  That scan is the one for lapsed tasks, or else
 * the one for due tasks of the first region in which one was begun.
 */
static void
keep_due(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	FairqDueKept *kept = &course->findings.due_kept;

	kept->n = turn->due.kept.n - turn->due.next;
	kept->region = turn->due.kept.region;
	memcpy(kept->items, &turn->due.kept.items[turn->due.next],
		   sizeof(FairqItem) * kept->n);
	if (kept->n == 0 && turn->sets.searcher && course->next_stretch > 0 &&
		course->lapsed.open && !course->lapsed.have)
	{
		int64		next;

		kept->region = FAIRQ_REGION_QUEUED;
		kept->n = fairq_task_ahead(s->scans.lapsed, FAIRQ_DUE_KEPT,
								   kept->items, &next);
	}
	for (int r = FAIRQ_REGION_RETRIED;
		 r < FAIRQ_REGIONS && kept->n == 0 && turn->sets.searcher; r++)
	{
		Search	   *search = &course->due[r];

		if (!search->begun || !search->open ||
			search->locked != FAIRQ_ADDR_MAX)
			continue;
		kept->region = r;
		if (search->have && !search->from_entry)
			kept->items[kept->n++] = item_of(&search->task);
		kept->n += fairq_task_ahead(s->scans.due[r], FAIRQ_DUE_KEPT - kept->n,
									kept->items + kept->n, &search->from);
	}
}

/* Add a piece of a group's line that is to be searched for lapsed tasks. */
static void
add_stretch(Course *course, int64 from, int64 end, bool before)
{
	Stretch	   *stretch = &course->stretches[course->nstretches];

	if (from >= end)
		return;
	stretch->from = from;
	stretch->end = end;
	stretch->before = before;
	course->nstretches++;
}

static void
begin_lapsed(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	int64		cycle = course->findings.cycle.addr;
	int64		ends[FAIRQ_REGIONS];

	ends[FAIRQ_REGION_QUEUED] = turn->run.high + 1;
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		ends[r] = fairq_due_end(r, s->taken.by);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		add_stretch(course, Max(turn->run.low[r], cycle), ends[r], false);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		add_stretch(course, turn->run.low[r], Min(ends[r], cycle + 1), true);
	course->cycle = course->findings.cycle;
}

/*
 * Continue with the next piece of the line.  If there is none, the search is
 * over.
 */
static void
next_stretch(FairqService *s, Course *course)
{
	const Stretch *stretch = &course->stretches[course->next_stretch];

	if (course->next_stretch == course->nstretches)
	{
		course->lapsed.open = false;
		course->findings.lapsed_done = true;
		return;
	}
	course->next_stretch++;
	search_group(s, &s->scans.lapsed, course->turn, stretch->from,
				 stretch->end);
}

/*
 * Record that a task is running, or may be, at an address.  If a transaction
 * is changing it, the end of that transaction publishes the lease.
 */
static void
still_runs(FairqFindings *findings, const FairqTask *task, bool changing)
{
	FairqRegion region = fairq_region(task->addr);

	findings->run_low[region] = Min(findings->run_low[region], task->addr);
	if (task->running && !changing)
		findings->deadline = Min(findings->deadline, task->lease_until);
}

/* Find a lapsed task among those from the entry. */
static bool
look_at_lapsed(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	Search	   *search = &course->lapsed;
	FairqTask  *task = &search->task;

	if (turn->due.kept.region != FAIRQ_REGION_QUEUED ||
		course->next_stretch > 0)
		return false;
	for (; turn->due.next < turn->due.kept.n; turn->due.next++)
	{
		const FairqItem *item = &turn->due.kept.items[turn->due.next];
		FairqRowState state = fairq_task_at(s->tasks, &item->tid, task);

		/*
		 * a search of the whole line finds again the tasks that have not
		 * lapsed
		 */
		if (state != FAIRQ_ROW_LIVE || task->addr != item->addr ||
			!is_of_turn(s, turn, task) || !task->running ||
			task->lease_until > s->taken.by)
			continue;
		search->since = task->lease_until;
		search->have = search->from_entry = true;
		return true;
	}
	return false;
}

/* Find the next lapsed task. */
static void
look_for_lapsed(FairqService *s, Course *course)
{
	Search	   *search = &course->lapsed;

	if (search->open && !search->have && look_at_lapsed(s, course))
		return;
	if (search->open && !search->have && course->next_stretch == 0)
	{
		begin_lapsed(s, course);
		next_stretch(s, course);
	}
	while (search->open && !search->have)
	{
		FairqTask  *task = &search->task;
		FairqRowState state = fairq_task_next(s->scans.lapsed, task, true);

		if (state == FAIRQ_ROW_END)
		{
			next_stretch(s, course);
			continue;
		}
		search->since = task->lease_until;
		search->from_entry = false;
		/* where the cycle begins, several tasks may have one address */
		if (task->addr == course->cycle.addr &&
			(task->id <= course->cycle.id) !=
			course->stretches[course->next_stretch - 1].before)
			continue;
		if (state == FAIRQ_ROW_LIVE && task->running &&
			search->since <= s->taken.by)
			search->have = true;
		else if (state != FAIRQ_ROW_LIVE || task->running)
			still_runs(&course->findings, task, state != FAIRQ_ROW_LIVE);
	}
}

/*
 * Leave lapsed tasks of the group to other calls, if this call has ended
 * enough of them, or must not end any.
 */
static void
leave_lapsed(FairqService *s, Course *course)
{
	if ((s->got.ended < FAIRQ_MAX_ENDED && !s->left) || !course->lapsed.open)
		return;
	course->lapsed.locked = Min(course->lapsed.locked, 0);
	course->lapsed.open = course->lapsed.have = false;
}

/* Begin a search at an address; open: the search may find tasks. */
static void
begin_search(Search *search, bool open, int64 from)
{
	search->open = open;
	search->begun = search->from_entry = search->have = false;
	search->from = from;
	search->locked = FAIRQ_ADDR_MAX;
}

/* Begin the course of a turn, before any search. */
static void
begin_course(FairqService *s, Course *course, bool paused)
{
	FairqTurn  *turn = course->turn;
	FairqFindings *findings = &course->findings;

	course->search = turn->sets.due || turn->sets.lapsed;
	course->not_now = course->no_slot = false;
	course->claimed = course->no_scheduled = false;
	s->left = s->left_blocked = false;
	begin_search(&course->queued, false, 0);
	begin_search(&course->lapsed, turn->sets.lapsed && !paused, 0);
	if (!course->search)
		return;
	course->nstretches = course->next_stretch = 0;
	memset(findings, 0, sizeof(FairqFindings));
	findings->paused = paused;
	findings->cycle = turn->run.cycle;
	findings->deadline = DT_NOEND;
	fairq_leases_init(&findings->leased);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		int64		from = turn->sets.due ? turn->due.from[r] : FAIRQ_ADDR_MAX;

		findings->run_low[r] = findings->due_from[r] = FAIRQ_ADDR_MAX;
		begin_search(&course->due[r], from != FAIRQ_ADDR_MAX &&
					 from < fairq_due_end(r, s->taken.by), from);
	}
	leave_lapsed(s, course);
}

/* rows that one reading visits before it reports its progress */
#define READ_AT_ONCE 1000

/* --------------------------------------------------------------------- */

/* The tasks that a reading has found. */
typedef struct Reading
{
	FairqItem  *items;
	int			n;
	int			max;
	int64		end;			/* position that the reading has reached */
} Reading;

static void
add_item(Reading *reading, const FairqTask *task)
{
	if (reading->n == reading->max)
		reading->items = fairq_grow(CurrentMemoryContext, reading->items,
									&reading->max, 0, sizeof(FairqItem));
	reading->items[reading->n++] = item_of(task);
}

/* Whether the task is after all tasks that the turn has found locked. */
static bool
is_past_locked(const FairqTurn *turn, const FairqTask *task)
{
	const FairqPlace *upto = &turn->locked.upto;

	return turn->locked.n == 0 || task->addr > upto->addr ||
		(task->addr == upto->addr && task->id > upto->id);
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
	if (is_past_locked(turn, task))
		return false;
	/*
	 * the task is given back with the locked tasks, whether or not it is one
	 * of them
	 */
	turn->locked.more = Min(turn->locked.more, task->addr);
	return true;
}

/*
 * Read the group's ready tasks from their rows.  The reading stops between two
 * addresses when it has found enough or, with in_steps, has read a certain
 * number of rows.
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
	search_group(s, &s->scans.queued, turn, from, FAIRQ_RETRIES);
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

		CHECK_FOR_INTERRUPTS();
		if (fairq_lane_read_begin(turn, most, s->call.lease_until, &from,
								  &by_row, &offers))
			break;
		if (from == FAIRQ_ADDR_MAX)
		{
			turn->queued.more = false;
			break;
		}
		/*
		 * index entries would also show the tasks that other calls have
		 * claimed since
		 */
		by_row |= weight > 1 || turn->queued.apart;
		turn->queued.apart = !offers;
		if (!by_row)
		{
			search_group(s, &s->scans.queued, turn, from, FAIRQ_RETRIES);
			reading.n = fairq_task_ahead(s->scans.queued, wanted,
										 reading.items, &reading.end);
			/*
			 * the reading stops before several entries at one address, which
			 * need their rows
			 */
			by_row = reading.n < wanted && reading.end != FAIRQ_ADDR_MAX;
			/* the tasks that are kept are needed in about one round */
			for (int i = 0; i < reading.n; i++)
				fairq_task_prefetch(s->tasks, &reading.items[i].tid);
		}
		if (by_row)
			read_rows(s, turn, from, wanted, offers, &reading);
		fairq_stall("reading");
		if (!fairq_lane_read_end(turn, reading.items, reading.n, reading.end,
								 most, s->call.lease_until) && !offers)
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
 * the task, that transaction publishes the task at its end.
 */
static void
look_for_queued(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	Search	   *search = &course->queued;

	while (!search->have)
	{
		FairqTask  *task = &search->task;
		FairqItem  *item;
		FairqRowState state;
		int64		addr;

		if (turn->queued.next == turn->queued.n &&
			(turn->queued.reread || !bring_forward(turn)) &&
			(!turn->queued.more || !read_group(s, turn)))
			return;
		item = &turn->queued.items[turn->queued.next];
		addr = item->addr;
		state = fairq_task_at(s->tasks, &item->tid, task);
		if (state == FAIRQ_ROW_END || task->addr != addr ||
			!is_of_turn(s, turn, task))
		{
			fairq_lane_vanished(turn, addr);
			turn->queued.next = turn->queued.n = 0;
			turn->queued.more = turn->queued.reread = true;
		}
		else if (state != FAIRQ_ROW_LIVE || task->running)
			turn->queued.next++;
		else
		{
			/* the task has been ready since it was enqueued, or put back */
			search->since = Max(task->enqueued_at, task->run_at);
			search->have = true;
		}
	}
}

/* Until the end of the turn, keep a queued task whose row is only locked. */
static void
put_by_locked(FairqTurn *turn, const FairqTask *task)
{
	const FairqItem *item = &turn->queued.items[turn->queued.next];

	if (is_past_locked(turn, task))
		turn->locked.upto = (FairqPlace) {task->addr, task->id};
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
static Search *
choose_task(FairqService *s, Course *course, bool have_slot)
{
	Search	   *retried = &course->due[FAIRQ_REGION_RETRIED];
	Search	   *scheduled = &course->due[FAIRQ_REGION_SCHEDULED];

	if (course->lapsed.have)
		return &course->lapsed;
	if (!have_slot)
		return NULL;
	if (course->search)
	{
		look_for_due(s, course, FAIRQ_REGION_RETRIED);
		if (retried->have)
			return retried;
		look_for_due(s, course, FAIRQ_REGION_SCHEDULED);
	}
	look_for_queued(s, course);
	/* the scheduled task or the queued one, whichever became ready first */
	if (course->search && scheduled->have && !course->no_scheduled &&
		(!course->queued.have || scheduled->since < course->queued.since))
		return scheduled;
	return course->queued.have ? &course->queued : NULL;
}

/* Record the outcome for the chosen task. */
static void
note_result(FairqService *s, Course *course, Search *chosen,
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
	else if (chosen->from_entry && chosen == &course->lapsed &&
			 result == FAIRQ_LOCKED)
		/* the locked task is still next when the cycle continues */
		turn->due.next = turn->due.kept.n;
	else if (chosen->from_entry)
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
			course->findings.cycle =
				(FairqPlace) {chosen->task.addr, chosen->task.id};
		else if (result == FAIRQ_GONE)
			still_runs(&course->findings, &chosen->task,
					   chosen->task.lease_until <= s->taken.by);
	}
}

/*
 * Whether the turn leaves tasks that other calls could not find because they
 * were in flight.  If so, the caller wakes a waiter, which would otherwise
 * sleep.  For a locked row the waiter has to check again, because an unlock
 * publishes nothing.
 */
static bool
leaves_something(const Course *course)
{
	const FairqTurn *turn = course->turn;
	const FairqFindings *findings = &course->findings;
	bool		ready = turn->queued.next < turn->queued.n;

	if (turn->locked.n > 0)
		return true;
	if (course->search && turn->sets.searcher)
	{
		/* a lapsed task already has its slot */
		if (turn->sets.lapsed && !findings->lapsed_done && !findings->paused)
			return true;
		ready |= findings->due_kept.n > 0;
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			ready |= course->due[r].locked != FAIRQ_ADDR_MAX;
	}
	return ready && !course->no_slot;
}

static void
end_turn(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	FairqFindings *findings = &course->findings;

	/*
	 * Where the order depends on served tasks, other groups could be next now.
	 * This turn is given back below.  So the order is the same as if no turn
	 * had been taken.
	 */
	while (turn->tasks.served == 0 && s->by != FAIRQ_BY_TASKS &&
		   &flight.turns[flight.n - 1] > turn)
		give_rest_back(&flight.turns[--flight.n]);
	/* a call that only peeks uses up no turn */
	if ((course->not_now || s->got.peeked) && turn->tasks.served == 0)
	{
		turn->state.done = true;
		(void) fairq_lane_turn_end(turn, NULL, false);
		return;
	}
	if (course->search)
	{
		keep_due(s, course);
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			findings->due_from[r] = Min(course->due[r].from,
										course->due[r].locked);
		findings->lapsed_done &= !course->lapsed.have &&
			course->lapsed.locked == FAIRQ_ADDR_MAX;
	}
	/* after an error above, the turn is given back; nothing below can fail */
	turn->state.done = true;
	turn->state.left = s->left_blocked;
	if (course->claimed && turn->sets.entry != NULL)
		fairq_entry_claimed(turn->sets.entry, turn->lane_no, turn->group_no,
							turn->sets.since);
	if (course->search || turn->queued.next < turn->queued.n ||
		turn->locked.n > 0 || turn->tasks.served == 0 || turn->in_full)
	{
		bool		in_vain = fairq_lane_turn_end(turn, course->search ?
												  findings : NULL, true);

		/*
		 * a row can stay locked for long, so a turn that found only such rows
		 * counts
		 */
		if (in_vain && (turn->locked.n == 0 || s->left))
			keep_in_vain(turn);
	}
	if (!s->call.peek && leaves_something(course))
		fairq_wake(&s->queue->hints->wakeup, 1);
}

/*
 * Whether a group of an in_order queue waits for a task other than the chosen
 * one.  It may wait for a task that is to be retried.  If that task is due, a
 * call finds it soon, or at the group's turn in another lane.  Or it waits for
 * an earlier task, which another call gives back in a moment; a waiter is then
 * woken for that task.
 */
static bool
waits_for_other(FairqService *s, FairqTurn *turn, Course *course,
				const Search *chosen)
{
	TimestampTz due_at;

	if (!s->queue->retries.in_order || chosen == &course->lapsed ||
		chosen == &course->due[FAIRQ_REGION_RETRIED])
		return false;
	if (!fairq_line_retries(s->queue, s->tasks, turn->group_no, &due_at))
		return chosen == &course->queued &&
			fairq_line_has_earlier(s->queue, s->tasks, &chosen->task,
								   s->call.now, &course->no_slot);
	course->no_slot = true;
	fairq_wait_for_retry(turn, due_at);
	return true;
}

/*
 * Find out whether another task of the group may run.  If not, the turn need
 * not search for one.  A group without a slot is parked even if the queue is
 * full.  Lapsed tasks also need a known counter.
 */
static bool
take_slot(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	bool		may_park = !course->lapsed.have &&
		course->lapsed.locked == FAIRQ_ADDR_MAX;
	bool		in_queue = !turn->in_full && fairq_slot_in_queue();
	bool		in_group = fairq_slot_in_group(turn, may_park);

	course->not_now = in_group && !turn->in_full ? !in_queue :
		fairq_settings_are_old(s->queue);
	return in_group && in_queue;
}

/*
 * In a cost-fair lane, or a task-fair one with tenants, charge the turn for a
 * task.
 */
static void
charge_turn(FairqService *s, FairqTurn *turn, float cost)
{
	int32		tenant = turn->charged.tenant;

	if (s->by != FAIRQ_BY_COST && s->by != FAIRQ_BY_UNITS)
		return;
	fairq_lane_charge(turn, s->by == FAIRQ_BY_UNITS ? 1 : cost,
					  fairq_group_setting(s->queue, turn->group_no)->weight,
					  tenant == FAIRQ_NO_SEAT ? 1 :
					  fairq_group_setting(s->queue, tenant)->weight);
}

/*
 * If the task is expired or blocked and the call has finished enough tasks,
 * leave the task and its turn to other calls (s->left).  Returns whether the
 * task is left.  After such a group the call visits the next group.  The call
 * ends after FAIRQ_MAX_ENDED such groups; otherwise it would visit all groups.
 */
static bool
leaves_expired(FairqService *s, const FairqTask *task)
{
	if (s->got.expired < FAIRQ_MAX_ENDED ||
		(!task->blocked && !fairq_is_expired(task, s->call.now)))
		return false;
	s->left = true;
	s->left_blocked |= task->blocked && !s->call.peek;
	if (++s->got.left >= FAIRQ_MAX_ENDED)
		s->call.max_tasks = s->got.served;
	return true;
}

/*
 * Whether to leave the task, which is next, to another call.  The call does so
 * if the task is served alone and the call has other tasks.  It also does so
 * if it serves only tasks that are served alone, and this task is not.  In
 * both cases the call ends before it reaches the task.  *result is
 * FAIRQ_CLAIMED if the call may claim the task.  If the row of a task that is
 * served alone is locked, the call passes the task over.  The call does not
 * try to claim it, because the row may be unlocked by then.
 */
static bool
stops_before(FairqService *s, const FairqTask *task, FairqClaimResult *result)
{
	FairqTask	again;
	bool		alone = fairq_is_alone(task);

	*result = FAIRQ_CLAIMED;
	if (alone ? s->got.served == 0 && !s->call.has_some : !s->call.only_alone)
		return false;
	/* a task that this call ends is not served */
	if (fairq_is_expired(task, s->call.now) ||
		(task->running &&
		 (task->cancelled || fairq_attempts_left(s->queue, task) == 0)))
		return false;
	again = *task;
	if (alone)
		*result = fairq_task_peek(s->tasks, &again, s->tasks->claims_delete ||
								  task->running);
	if (*result != FAIRQ_CLAIMED)
	{
		s->got.saw_locked |= s->call.peek && *result == FAIRQ_LOCKED;
		return false;
	}
	/*
	 * a lane with a share needs no bit, because it is still next according to
	 * the shares
	 */
	if (alone && s->queue->shares.of[s->priority] == 0)
		s->got.first |= (uint32) 1 << s->priority;
	s->got.stopped |= alone;
	s->call.max_tasks = s->got.served;
	return true;
}

/*
 * Serve a group at its turn, or its lapsed tasks in a full queue.  Returns
 * false if the turn yields no task.
 */
bool
fairq_serve_turn(FairqService *s, FairqTurn *turn)
{
	Course		course;
	bool		have_slot = false;
	bool		full = false;
	bool		stops = false;

	/* make room now, since keeping a turn that yields no task must not fail */
	have_space(turn);
	turn->state.begun = true;
	course.turn = turn;
	begin_course(s, &course,
				 fairq_is_paused(s->queue, turn->group_no,
								 turn->charged.tenant));
	while (turn->tasks.served < turn->tasks.want &&
		   s->got.served < s->call.max_tasks)
	{
		Search	   *chosen;
		FairqClaimResult result;

		CHECK_FOR_INTERRUPTS();
		if (course.search)
			look_for_lapsed(s, &course);
		if (!have_slot && !full)
		{
			have_slot = take_slot(s, &course);
			full = course.no_slot = !have_slot;
		}
		/* even a lapsed task does not run again while no task may start */
		if (turn->state.throttled || fairq_queue_is_throttled())
			break;
		chosen = choose_task(s, &course, have_slot);
		if (chosen == NULL || waits_for_other(s, turn, &course, chosen))
			break;
		if (chosen != &course.lapsed && leaves_expired(s, &chosen->task))
		{
			/*
			 * later scheduled tasks are left, too, since they delay no ready
			 * task
			 */
			if (chosen != &course.due[FAIRQ_REGION_SCHEDULED])
				break;
			course.no_scheduled = true;
			continue;
		}
		stops = stops_before(s, &chosen->task, &result);
		if (stops)
			break;
		if (result == FAIRQ_CLAIMED)
			result = fairq_claim(s, &chosen->task, turn);
		if (result == FAIRQ_CLAIMED && chosen != &course.lapsed)
			have_slot = false;
		if (result == FAIRQ_CLAIMED)
			charge_turn(s, turn, chosen->task.cost);
		note_result(s, &course, chosen, result);
		leave_lapsed(s, &course);

		/* the lapsed task has used the start that was taken with the slot */
		if (result == FAIRQ_CLAIMED && chosen == &course.lapsed &&
			fairq_is_paced(turn))
		{
			fairq_slot_in_group_back();
			have_slot = false;
		}

		/*
		 * if an ended task has the group's only slot, the group is parked
		 * until the end is visible
		 */
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
		flight.stopped = turn;
	return turn->tasks.served > 0;
}

/*
 * Whether the group whose turn is next would get a task from its hand.  The
 * function takes no task, so a concurrent pop finds all tasks.  If false,
 * other tasks may still be ready.
 */
bool
fairq_glance(FairqService *s, FairqTaking *taking)
{
	FairqTurn	turn;

	if (!fairq_lane_glance(s->lane, taking, &turn))
		return false;
	if (fairq_slot_in_group(&turn, false))
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
