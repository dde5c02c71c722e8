/*
 * turn.c
 *		Service: the turn of a group.
 *
 * At its turn a group is served up to as many tasks as its weight says.  What
 * it has begun comes first: a task whose lease has expired, then one that is
 * to be retried and is due.  Then comes its first queued task or its first
 * scheduled one that is due, the one of these that became ready first.
 *
 * Its queued tasks come from its hand, or are read in the index when that is
 * used up (hand.c).  For most turns that is all.  Only if the group is in the
 * set "due" or "lapsed" are there searches in three more places of its line:
 * among the tasks that are to be retried, among the scheduled ones, and
 * wherever it may have tasks running.  A search for due tasks begins where
 * nothing is left below but what the group's entry has.  What a search has
 * found out is noted at the end of the turn, and the next few due tasks of a
 * region, or expired ones, are kept in the entry, so that not each turn has to
 * search.
 *
 * Expired tasks are served where they stand, so one that expires again and
 * again would be the first each time.  So they are served in cycles: a search
 * begins behind the one that was served last, goes on to the end, and then goes
 * from the beginning up to that one.
 *
 * Locking: none but what is taken for moments, see lane.c.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "claim.h"
#include "line.h"
#include "running.h"
#include "stall.h"
#include "turn.h"
#include "turns.h"

/* rows that are looked at in one reading before it is said how far it came */
#define READ_AT_ONCE 1000

/* A search for a group's next task, of one kind. */
typedef struct Search
{
	bool		open;			/* there may be more to find */
	bool		begun;			/* a scan of the index was begun */
	bool		at_hand;		/* task came from the entry, not from a scan */
	bool		have;			/* task is the next one */
	FairqTask	task;
	TimestampTz since;			/* when it became ready */
	int64		from;			/* address below which nothing is left */
	int64		locked;			/* lowest address of a task that was merely
								 * locked */
} Search;

/* A stretch of a group's line. */
typedef struct Stretch
{
	int64		from;
	int64		end;
	bool		before;			/* it lies before the beginning of the cycle */
} Stretch;

/* The course of a group's turn. */
typedef struct Course
{
	FairqTurn  *turn;
	bool		search;			/* the group is in the set "due" or "lapsed" */
	bool		no_slot;		/* for another running task */
	bool		not_now;		/* the turn is kept for later: no slot in the
								 * queue, or its settings have changed */
	Search		queued;
	Search		due[FAIRQ_REGIONS];
	Search		expired;
	Stretch		stretches[2 * FAIRQ_REGIONS];	/* to be searched for expired
												 * tasks */
	int			nstretches;
	int			next_stretch;
	int64		cycle;			/* address and id behind which they begin */
	int64		cycle_id;
	FairqFindings findings;
} Course;

/* Look for a group's tasks at or past an address, and before end. */
static FairqScan *
search_group(FairqService *s, FairqScan *scan, int32 group_no, int64 from,
			 int64 end)
{
	return fairq_line_search(scan, s->tasks,
							 fairq_task_lane(s->queue->id, s->priority),
							 group_no, from, end);
}

/* --------------------------------------------------------------------- */

/* What a reading has found. */
typedef struct Reading
{
	FairqItem  *items;
	int			n;
	int			max;
	int64		end;			/* it has come up to there */
} Reading;

static void
add_item(Reading *reading, const FairqTask *task)
{
	if (reading->n == reading->max)
	{
		reading->max *= 2;
		reading->items = repalloc(reading->items,
								  sizeof(FairqItem) * reading->max);
	}
	reading->items[reading->n].addr = task->addr;
	reading->items[reading->n].order = (uint32) task->id;
	reading->items[reading->n++].tid = task->root;
}

/*
 * Does the task stand where the turn has found others locked, or before?  A
 * reading finds these again, if they stand at the address at which it begins,
 * or if it does not count; the turn would never end.
 */
static bool
is_tried(FairqTurn *turn, const FairqTask *task)
{
	if (turn->nlocked == 0 || task->addr > turn->locked_addr ||
		(task->addr == turn->locked_addr && task->id > turn->locked_id))
		return false;
	/* it is put back with them, though it may be another one */
	turn->locked_more = Min(turn->locked_more, task->addr);
	return true;
}

/*
 * Read the group's ready tasks by their rows.  It stops between two addresses
 * when it has found as many as are wanted, or (in_steps) has looked at a number.
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
	s->rows = search_group(s, s->rows, turn->group_no, from, FAIRQ_RETRIES);
	for (int rows = 0;
		 (state = fairq_task_next(s->rows, &task, true)) != FAIRQ_ROW_END;
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
 * Have something at hand for the turn: from the group's hand, if there is
 * something by now, or read in the index.  False if there is nothing.
 */
static bool
read_group(FairqService *s, FairqTurn *turn)
{
	int32		weight = fairq_group_setting(s->queue, turn->group_no)->weight;
	int			most = turn->nlocked > 0 ? FAIRQ_HAND :
		Min(turn->want - turn->served, FAIRQ_HAND);
	int			wanted = Max(turn->read_want, most) + FAIRQ_HAND;
	Reading		reading = {.max = wanted};

	reading.items = palloc(sizeof(FairqItem) * reading.max);
	turn->next = turn->nitems = 0;
	while (turn->nitems == 0)
	{
		int64		from;
		bool		by_row;
		bool		offers;
		bool		abreast;

		CHECK_FOR_INTERRUPTS();
		turn->nitems = fairq_lane_read_begin(s->lane, s->lane_no,
											 turn->group_no, most,
											 s->lease_until, turn->items,
											 &from, &by_row, &offers);
		if (turn->nitems > 0)
			break;
		if (from == FAIRQ_ADDR_MAX)
		{
			turn->more = false;
			break;
		}
		if (offers)
			fairq_turns_reading(turn);
		/* what others have claimed since would be found again and again */
		by_row |= weight > 1 || turn->apart;
		turn->apart = !offers;
		if (!by_row)
		{
			reading.n = fairq_task_entries(s->tasks,
										   fairq_task_lane(s->queue->id,
														   s->priority),
										   turn->group_no, from, wanted,
										   reading.items, &reading.end,
										   &abreast);
			by_row = abreast;
			/* what is kept for later is wanted in a round or so */
			for (int i = 0; i < reading.n; i++)
				fairq_task_prefetch(s->tasks, &reading.items[i].tid);
		}
		if (by_row)
			read_rows(s, turn, from, wanted, offers, &reading);
		fairq_stall("reading");
		turn->nitems = fairq_lane_read_end(s->lane, s->lane_no,
										   turn->group_no, reading.items,
										   reading.n, reading.end, most,
										   s->lease_until, turn->items);
		fairq_turns_read();
		if (turn->nitems == 0 && !offers)
		{
			/* others are at it, and will say what there is */
			turn->more = false;
			break;
		}
	}
	pfree(reading.items);
	turn->reread = false;
	return turn->nitems > 0;
}

/*
 * Have the first queued task at hand.  If the row is not there any more, or is
 * another task's by now, the group is read anew; a task in the hands of
 * another transaction is published at its end.
 */
static void
look_for_queued(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	Search	   *search = &course->queued;

	while (!search->have)
	{
		FairqTask  *task = &search->task;
		FairqRowState state;
		int64		addr;

		if (turn->next == turn->nitems &&
			(turn->reread || !fairq_turns_bring_forward(turn)) &&
			(!turn->more || !read_group(s, turn)))
			return;
		addr = turn->items[turn->next].addr;
		state = fairq_task_at(s->tasks, &turn->items[turn->next].tid, task);
		if (state == FAIRQ_ROW_END || task->addr != addr ||
			task->group_no != turn->group_no ||
			task->priority != s->priority || task->queue_id != s->queue->id)
		{
			fairq_lane_vanished(s->lane, s->lane_no, turn->group_no, addr);
			turn->next = turn->nitems = 0;
			turn->more = turn->reread = true;
		}
		else if (state != FAIRQ_ROW_LIVE || task->running)
			turn->next++;
		else
		{
			/* or, if it was put back since, then */
			search->since = Max(task->enqueued_at, task->run_at);
			search->have = true;
		}
	}
}

/* Put the queued task at hand aside: its row is merely locked. */
static void
put_by_locked(FairqTurn *turn, const FairqTask *task)
{
	const FairqItem *item = &turn->items[turn->next];

	if (turn->nlocked == 0 || task->addr > turn->locked_addr ||
		(task->addr == turn->locked_addr && task->id > turn->locked_id))
	{
		turn->locked_addr = task->addr;
		turn->locked_id = task->id;
	}
	if (turn->nlocked < FAIRQ_HAND)
		turn->locked[turn->nlocked++] = *item;
	else
		turn->locked_more = Min(turn->locked_more, item->addr);
}

/* --------------------------------------------------------------------- */

/* Is it one of the group whose turn it is, in this lane? */
static bool
is_of_turn(FairqService *s, const Course *course, const FairqTask *task)
{
	return task->group_no == course->turn->group_no &&
		task->priority == s->priority && task->queue_id == s->queue->id;
}

/* Is the task one that stands at a time in that group, and is free? */
static bool
is_scheduled(FairqService *s, const Course *course, FairqRowState state,
			 const FairqTask *task)
{
	return state == FAIRQ_ROW_LIVE && !task->running &&
		is_of_turn(s, course, task) && fairq_is_timed(task->addr);
}

/*
 * Drop the due tasks that the entry had: one is not there, and the others may
 * be as old.  If rows were moved, all are searched for from there on.
 */
static void
forget_due(Search *search, FairqTurn *turn, int64 addr, int64 end)
{
	turn->next_due = turn->ndue;
	search->from = Min(search->from, addr);
	search->open = search->from < end;
	search->begun = false;
}

/* Have a due task of a region at hand, of those that the entry had. */
static void
look_at_due(FairqService *s, Course *course, FairqRegion region)
{
	FairqTurn  *turn = course->turn;
	Search	   *search = &course->due[region];

	while (turn->due_region == region && turn->next_due < turn->ndue &&
		   !search->have)
	{
		const FairqItem *item = &turn->due_items[turn->next_due];
		FairqRowState state = fairq_task_at(s->tasks, &item->tid,
											&search->task);

		if (state == FAIRQ_ROW_END || search->task.addr != item->addr ||
			!is_of_turn(s, course, &search->task))
		{
			forget_due(search, turn, item->addr,
					   fairq_due_end(region, s->by));
			return;
		}
		if (!is_scheduled(s, course, state, &search->task))
		{
			turn->next_due++;
			continue;
		}
		/* the backend that read it may have a clock that is ahead of ours */
		if (search->task.run_at > s->by)
			break;
		search->since = search->task.run_at;
		search->have = search->at_hand = true;
	}
}

/* Have the first task of a region at hand that has fallen due. */
static void
look_for_due(FairqService *s, Course *course, FairqRegion region)
{
	Search	   *search = &course->due[region];
	FairqTurn  *turn = course->turn;

	if (!search->have)
		look_at_due(s, course, region);
	while (search->open && !search->have &&
		   (turn->due_region != region || turn->next_due == turn->ndue))
	{
		FairqRowState state;

		if (!search->begun)
			s->due[region] = search_group(s, s->due[region],
										  course->turn->group_no,
										  search->from,
										  fairq_due_end(region, s->by));
		search->begun = true;
		state = fairq_task_next(s->due[region], &search->task, true);
		if (state == FAIRQ_ROW_END)
		{
			search->open = false;
			search->from = FAIRQ_ADDR_MAX;
			continue;
		}
		search->from = search->task.addr;
		search->since = search->task.run_at;
		search->have = is_scheduled(s, course, state, &search->task) &&
			search->since <= s->by;
		search->at_hand = false;
	}
}

/*
 * Keep the next few due or expired tasks for the group's next turns: those
 * that the entry had and that were not needed; or else the next ones of a scan,
 * of that for expired ones, or of the first region in which one was begun.
 */
static void
keep_due(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	FairqFindings *findings = &course->findings;

	findings->ndue = turn->ndue - turn->next_due;
	findings->due_region = turn->due_region;
	memcpy(findings->due_items, &turn->due_items[turn->next_due],
		   sizeof(FairqItem) * findings->ndue);
	if (findings->ndue == 0 && turn->searcher && course->next_stretch > 0 &&
		course->expired.open && !course->expired.have)
	{
		int64		next;

		findings->due_region = FAIRQ_REGION_QUEUED;
		findings->ndue = fairq_task_ahead(s->expired, FAIRQ_DUE_HAND,
										  findings->due_items, &next);
	}
	for (int r = FAIRQ_REGION_RETRIED;
		 r < FAIRQ_REGIONS && findings->ndue == 0 && turn->searcher; r++)
	{
		Search	   *search = &course->due[r];

		if (!search->begun || !search->open ||
			search->locked != FAIRQ_ADDR_MAX)
			continue;
		findings->due_region = r;
		if (search->have && !search->at_hand)
		{
			findings->due_items[0].addr = search->task.addr;
			findings->due_items[0].order = (uint32) search->task.id;
			findings->due_items[0].tid = search->task.root;
			findings->ndue = 1;
		}
		findings->ndue +=
			fairq_task_ahead(s->due[r], FAIRQ_DUE_HAND - findings->ndue,
							 findings->due_items + findings->ndue,
							 &search->from);
	}
}

/* Add a part of a group's line that is to be searched for expired tasks. */
static void
add_stretch(Course *course, int64 from, int64 end, bool before)
{
	Stretch    *stretch = &course->stretches[course->nstretches];

	if (from >= end)
		return;
	stretch->from = from;
	stretch->end = end;
	stretch->before = before;
	course->nstretches++;
}

static void
begin_expired(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	int64		cycle = course->findings.cycle;
	int64		ends[FAIRQ_REGIONS];

	ends[FAIRQ_REGION_QUEUED] = turn->run_high + 1;
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		ends[r] = fairq_due_end(r, s->by);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		add_stretch(course, Max(turn->run_low[r], cycle), ends[r], false);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		add_stretch(course, turn->run_low[r], Min(ends[r], cycle + 1), true);
	course->cycle = cycle;
	course->cycle_id = course->findings.cycle_id;
}

/* Go on with the next stretch.  False if there is none. */
static bool
next_stretch(FairqService *s, Course *course)
{
	const Stretch *stretch = &course->stretches[course->next_stretch];

	if (course->next_stretch == course->nstretches)
		return false;
	course->next_stretch++;
	s->expired = search_group(s, s->expired, course->turn->group_no,
							  stretch->from, stretch->end);
	return true;
}

/*
 * Note that a task is running there, or may be.  If it is in the hands of a
 * transaction, that publishes at its end until when.
 */
static void
still_runs(FairqFindings *findings, const FairqTask *task, bool in_hands)
{
	FairqRegion region = fairq_region(task->addr);

	findings->run_low[region] = Min(findings->run_low[region], task->addr);
	if (task->running && !in_hands)
		findings->deadline = Min(findings->deadline, task->lease_until);
}

/*
 * Is the task in the part of the cycle that is looked at?  Where the cycle begins,
 * several tasks may stand at one address.
 */
static bool
is_in_stretch(const Course *course, const FairqTask *task)
{
	return task->addr != course->cycle ||
		(task->id <= course->cycle_id) ==
		course->stretches[course->next_stretch - 1].before;
}

/* Have an expired task at hand, of those that the entry had. */
static bool
look_at_lapsed(FairqService *s, Course *course)
{
	FairqTurn  *turn = course->turn;
	Search	   *search = &course->expired;
	FairqTask  *task = &search->task;

	if (turn->due_region != FAIRQ_REGION_QUEUED || course->next_stretch > 0)
		return false;
	for (; turn->next_due < turn->ndue; turn->next_due++)
	{
		const FairqItem *item = &turn->due_items[turn->next_due];
		FairqRowState state = fairq_task_at(s->tasks, &item->tid, task);

		/* what is not expired is come by again, if all is looked through */
		if (state != FAIRQ_ROW_LIVE || task->addr != item->addr ||
			!is_of_turn(s, course, task) || !task->running ||
			task->lease_until > s->by)
			continue;
		search->since = task->lease_until;
		search->have = search->at_hand = true;
		return true;
	}
	return false;
}

/* Have the next expired task at hand. */
static void
look_for_expired(FairqService *s, Course *course)
{
	Search	   *search = &course->expired;

	if (search->open && !search->have && look_at_lapsed(s, course))
		return;
	if (search->open && !search->have && course->next_stretch == 0)
	{
		begin_expired(s, course);
		if (!next_stretch(s, course))
		{
			search->open = false;
			course->findings.lapsed_done = true;
		}
	}
	while (search->open && !search->have)
	{
		FairqTask  *task = &search->task;
		FairqRowState state = fairq_task_next(s->expired, task, true);

		if (state == FAIRQ_ROW_END)
		{
			if (!next_stretch(s, course))
			{
				search->open = false;
				course->findings.lapsed_done = true;
			}
			continue;
		}
		search->since = task->lease_until;
		search->at_hand = false;
		if (!is_in_stretch(course, task))
			continue;
		if (state == FAIRQ_ROW_LIVE && task->running && search->since <= s->by)
			search->have = true;
		else if (state != FAIRQ_ROW_LIVE || task->running)
			still_runs(&course->findings, task, state != FAIRQ_ROW_LIVE);
	}
}

/*
 * Leave expired tasks of the group to other calls, if this one has ended
 * enough of them, or is not to.
 */
static void
leave_expired(FairqService *s, Course *course)
{
	if ((s->ended < FAIRQ_MAX_ENDED && !s->left) || !course->expired.open)
		return;
	course->expired.locked = Min(course->expired.locked, 0);
	course->expired.open = course->expired.have = false;
}

static void
begin_turn(FairqService *s, Course *course, bool paused)
{
	FairqTurn  *turn = course->turn;
	FairqFindings *findings = &course->findings;

	course->search = turn->due || turn->lapsed;
	course->not_now = course->no_slot = false;
	course->queued.have = false;
	course->expired.open = course->expired.have = false;
	course->queued.at_hand = course->expired.at_hand = false;
	course->expired.locked = FAIRQ_ADDR_MAX;
	if (!course->search)
		return;
	s->left = false;
	course->nstretches = 0;
	memset(findings, 0, sizeof(FairqFindings));
	findings->due_done = turn->due;
	findings->paused = paused;
	findings->cycle = turn->cycle;
	findings->cycle_id = turn->cycle_id;
	findings->deadline = findings->leased.until = DT_NOEND;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		findings->run_low[r] = findings->leased.low[r] = FAIRQ_ADDR_MAX;
		findings->leased.high[r] = FAIRQ_ADDR_NONE;
		findings->due_from[r] = FAIRQ_ADDR_MAX;
		course->due[r].open = course->due[r].have = false;
		course->due[r].begun = course->due[r].at_hand = false;
		course->due[r].locked = course->due[r].from = FAIRQ_ADDR_MAX;
		if (!turn->due || turn->due_from[r] == FAIRQ_ADDR_MAX)
			continue;
		course->due[r].from = turn->due_from[r];
		course->due[r].open = turn->due_from[r] < fairq_due_end(r, s->by);
	}
	course->next_stretch = 0;
	course->expired.open = turn->lapsed && !paused;
	leave_expired(s, course);
}

/*
 * Returns the search whose task is served next; NULL: none.  A slot is needed
 * but for expired tasks.
 */
static Search *
choose_task(FairqService *s, Course *course, bool have_slot)
{
	Search	   *scheduled = &course->due[FAIRQ_REGION_SCHEDULED];
	Search	   *retried = &course->due[FAIRQ_REGION_RETRIED];

	if (course->expired.have)
		return &course->expired;
	if (!have_slot)
		return NULL;
	if (!course->search)
	{
		look_for_queued(s, course);
		return course->queued.have ? &course->queued : NULL;
	}
	look_for_due(s, course, FAIRQ_REGION_RETRIED);
	if (retried->have)
		return retried;
	look_for_due(s, course, FAIRQ_REGION_SCHEDULED);
	look_for_queued(s, course);
	if (scheduled->have &&
		(!course->queued.have || scheduled->since < course->queued.since))
		return scheduled;
	return course->queued.have ? &course->queued : NULL;
}

/* Note the lease of a task that was not queued, and is running now. */
static void
now_runs(FairqService *s, Course *course, const FairqTask *task)
{
	FairqLeases *leased = &course->findings.leased;
	FairqRegion region = fairq_region(task->addr);

	if (s->lease_until == DT_NOEND)
		return;
	leased->low[region] = Min(leased->low[region], task->addr);
	leased->high[region] = Max(leased->high[region], task->addr);
	leased->until = s->lease_until;
}

/* Note what became of the task that was chosen. */
static void
note_result(FairqService *s, Course *course, Search *chosen,
			FairqClaimResult result)
{
	FairqTurn  *turn = course->turn;

	chosen->have = false;
	if (result == FAIRQ_CLAIMED)
		turn->served++;
	else if (result == FAIRQ_LOCKED && chosen == &course->queued)
		put_by_locked(turn, &chosen->task);
	else if (result == FAIRQ_LOCKED)
		chosen->locked = Min(chosen->locked, chosen->task.addr);
	if (chosen == &course->queued)
		turn->next++;
	else if (chosen->at_hand && chosen == &course->expired &&
			 result == FAIRQ_LOCKED)
		/* it is the next one all the same, where the cycle goes on */
		turn->next_due = turn->ndue;
	else if (chosen->at_hand)
		turn->next_due++;
	if (chosen != &course->queued && result == FAIRQ_CLAIMED)
		now_runs(s, course, &chosen->task);
	if (chosen == &course->expired)
	{
		if (result == FAIRQ_CLAIMED)
		{
			course->findings.cycle = chosen->task.addr;
			course->findings.cycle_id = chosen->task.id;
		}
		else if (result == FAIRQ_GONE)
			still_runs(&course->findings, &chosen->task,
					   chosen->task.lease_until <= s->by);
	}
}

/*
 * Does the turn leave something that other calls have not found meanwhile, as
 * it was in our hands?  Then a waiter is woken, which would sleep on
 * otherwise; for a locked row it has to look again by itself, as its unlocking
 * is not published.
 */
static bool
leaves_something(const Course *course)
{
	const FairqTurn *turn = course->turn;
	const FairqFindings *findings = &course->findings;
	bool		ready = turn->next < turn->nitems;

	if (turn->nlocked > 0)
		return true;
	if (course->search && turn->searcher)
	{
		/* an expired task has its slot */
		if (turn->lapsed && !findings->lapsed_done && !findings->paused)
			return true;
		ready |= findings->ndue > 0;
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

	turn->done = true;
	/* a call that only looks has no turn */
	if ((course->not_now || s->peeked) && turn->served == 0)
	{
		fairq_lane_turn_back(s->lane, s->lane_no, turn);
		return;
	}
	if (course->search)
	{
		keep_due(s, course);
		for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
			findings->due_from[r] = Min(course->due[r].from,
										course->due[r].locked);
		findings->lapsed_done &= !course->expired.have &&
			course->expired.locked == FAIRQ_ADDR_MAX;
	}
	turn->stopped = course->not_now && turn->served < turn->want;
	if (course->search || turn->next < turn->nitems || turn->nlocked > 0 ||
		turn->served == 0 || turn->in_full || turn->stopped)
		fairq_lane_turn_end(s->lane, s->lane_no, turn,
							course->search ? findings : NULL);
	/* what is in doubt, kept out by us alone, or left to others, was no turn */
	if (turn->served == 0 &&
		((course->no_slot && (turn->in_doubt || turn->kept_out)) ||
		 (course->search && s->left)))
		fairq_turns_doubtful(s->lane, s->lane_no, turn);

	if (!s->peek && leaves_something(course))
		fairq_wake(&s->queue->hints->wakeup, 1);
}

/*
 * Serve a group at its turn; or in a full queue its expired tasks.  False if
 * nothing came of it.
 */
bool
fairq_serve_turn(FairqService *s, FairqTurn *turn)
{
	const FairqSetting *setting = fairq_group_setting(s->queue,
													  turn->group_no);
	Course		course;
	bool		have_slot = false;
	bool		full = false;

	turn->begun = true;
	course.turn = turn;
	begin_turn(s, &course, setting->limit == 0);
	while (turn->served < turn->want && s->served < s->max_tasks)
	{
		Search	   *chosen;
		FairqClaimResult result;

		CHECK_FOR_INTERRUPTS();
		if (course.search)
			look_for_expired(s, &course);
		if (!have_slot && !full)
		{
			bool		may_park = !course.expired.have &&
				course.expired.locked == FAIRQ_ADDR_MAX;
			bool		in_queue = !turn->in_full &&
				fairq_slot_in_queue(s->tasks);

			/*
			 * There is no need to look if it has no slot.  A group is to be
			 * parked also if the queue is full, and its counter is to be
			 * known, for expired tasks, too.
			 */
			have_slot = fairq_slot_in_group(s->lane, s->lane_no, turn,
											may_park, s->tasks);
			if (have_slot && !turn->in_full)
				course.not_now = !in_queue;
			else
				course.not_now = fairq_settings_are_old(s->queue);
			have_slot &= in_queue;
			full = course.no_slot = !have_slot;
		}
		chosen = choose_task(s, &course, have_slot);
		if (chosen == NULL)
			break;
		result = chosen == &course.expired ?
			fairq_take_over(s, &chosen->task, turn) :
			fairq_claim(s, &chosen->task, turn);
		if (result == FAIRQ_CLAIMED && chosen != &course.expired)
			have_slot = false;
		note_result(s, &course, chosen, result);
		leave_expired(s, &course);

		/*
		 * a group whose only slot is that of an ended task is parked until the
		 * end is visible
		 */
		if (result == FAIRQ_GONE && chosen == &course.expired && !have_slot)
		{
			fairq_slot_in_group_back();
			full = false;
		}
	}
	fairq_slot_in_group_back();
	end_turn(s, &course);
	return turn->served > 0;
}

/*
 * Would the group whose turn is next be served a task out of its hand?  Nothing is
 * taken for that: so a pop that comes by meanwhile finds all that there is.  "No"
 * says nothing of what else may be ready.
 */
bool
fairq_glance(FairqService *s)
{
	FairqTurn	turn;

	if (!fairq_lane_glance(s->lane, s->mapped, &turn, &s->lane_no))
		return false;
	if (fairq_slot_in_group(s->lane, s->lane_no, &turn, false, s->tasks))
	{
		for (int i = 0; i < turn.nitems && !s->peeked; i++)
		{
			FairqTask	task;

			s->peeked = fairq_task_at(s->tasks, &turn.items[i].tid,
									  &task) == FAIRQ_ROW_LIVE &&
				task.addr == turn.items[i].addr && !task.running &&
				task.group_no == turn.group_no &&
				task.priority == s->priority &&
				task.queue_id == s->queue->id &&
				fairq_task_peek(s->tasks, &task,
								s->tasks->claims_delete) == FAIRQ_CLAIMED;
		}
		fairq_slot_in_group_back();
	}
	if (s->peeked)
		s->max_tasks = s->served;
	return s->peeked;
}
