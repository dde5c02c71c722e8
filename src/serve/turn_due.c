/*
 * turn_due.c
 *		Service: due and lapsed tasks of the group whose turn it is.
 *
 * If the group is in the set "due" or "lapsed", its turn searches three more
 * places of its line.  They are its tasks that wait for a retry, its scheduled
 * tasks, and the addresses at which it may have running tasks.  A search for
 * due tasks begins at an address below which only the group's entry has any.
 * The end of the turn records the results of a search.  It keeps the next few
 * due tasks of a region, or lapsed ones, in the entry.  So most turns need no
 * search.
 *
 * Lapsed tasks keep their addresses, so a task that expires repeatedly would
 * always be first.  So they are served in cycles: a search begins after the
 * last one served.  It continues to the end, and then from the beginning up to
 * that one.
 *
 * Locking: only locks that are held briefly, see lane.c.
 */
#include "postgres.h"

#include "turn_due.h"

/* Whether this is a timed task of that group, and is free. */
static bool
is_scheduled(FairqService *s, const FairqCourse *course, FairqRowState state,
			 const FairqTask *task)
{
	return state == FAIRQ_ROW_LIVE && !task->running &&
		is_of_turn(s, course->turn, task) && fairq_is_timed(task->addr);
}

/*
 * Drop the due tasks from the entry: one no longer exists, and the others may
 * be as old.  If rows were moved, the search begins again from there.
 */
static void
forget_due(FairqSearch *search, FairqTurn *turn, int64 addr, int64 end)
{
	turn->due.next = turn->due.n;
	search->from = Min(search->from, addr);
	search->open = search->from < end;
	search->begun = false;
}

/* Find a due task of a region among those from the entry. */
static void
look_at_due(FairqService *s, FairqCourse *course, FairqRegion region)
{
	FairqTurn  *turn = course->turn;
	FairqSearch *search = &course->due[region];

	while (turn->due.region == region && turn->due.next < turn->due.n &&
		   !search->have)
	{
		const FairqItem *item = &turn->due.items[turn->due.next];
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
		/* the clock of the backend that read it may be ahead of ours */
		if (search->task.run_at > s->taken.by)
			break;
		search->since = search->task.run_at;
		search->have = search->at_hand = true;
	}
}

/* Find the first task of a region that is due. */
void
fairq_look_for_due(FairqService *s, FairqCourse *course, FairqRegion region)
{
	FairqSearch *search = &course->due[region];
	FairqTurn  *turn = course->turn;

	if (!search->have)
		look_at_due(s, course, region);
	while (search->open && !search->have &&
		   (turn->due.region != region || turn->due.next == turn->due.n))
	{
		FairqRowState state;

		if (!search->begun)
			s->scans.due[region] = search_group(s, s->scans.due[region],
												course->turn->group_no,
												search->from,
												fairq_due_end(region,
															  s->taken.by));
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
		search->at_hand = false;
	}
}

/*
 * Keep the next few due or lapsed tasks for the group's next turns.  These are
 * the tasks from the entry that were not needed.  If there are none, these are
 * the next tasks of a scan.  That is the scan for lapsed tasks, or that of the
 * first region in which one was begun.
 */
void
fairq_keep_due(FairqService *s, FairqCourse *course)
{
	FairqTurn  *turn = course->turn;
	FairqFindings *findings = &course->findings;

	findings->ndue = turn->due.n - turn->due.next;
	findings->due_region = turn->due.region;
	memcpy(findings->due_items, &turn->due.items[turn->due.next],
		   sizeof(FairqItem) * findings->ndue);
	if (findings->ndue == 0 && turn->searcher && course->next_stretch > 0 &&
		course->lapsed.open && !course->lapsed.have)
	{
		int64		next;

		findings->due_region = FAIRQ_REGION_QUEUED;
		findings->ndue = fairq_task_ahead(s->scans.lapsed, FAIRQ_DUE_HAND,
										  findings->due_items, &next);
	}
	for (int r = FAIRQ_REGION_RETRIED;
		 r < FAIRQ_REGIONS && findings->ndue == 0 && turn->searcher; r++)
	{
		FairqSearch *search = &course->due[r];

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
			fairq_task_ahead(s->scans.due[r], FAIRQ_DUE_HAND - findings->ndue,
							 findings->due_items + findings->ndue,
							 &search->from);
	}
}

/* Add a part of a group's line that is to be searched for lapsed tasks. */
static void
add_stretch(FairqCourse *course, int64 from, int64 end, bool before)
{
	FairqStretch *stretch = &course->stretches[course->nstretches];

	if (from >= end)
		return;
	stretch->from = from;
	stretch->end = end;
	stretch->before = before;
	course->nstretches++;
}

static void
begin_lapsed(FairqService *s, FairqCourse *course)
{
	FairqTurn  *turn = course->turn;
	int64		cycle = course->findings.cycle;
	int64		ends[FAIRQ_REGIONS];

	ends[FAIRQ_REGION_QUEUED] = turn->run.high + 1;
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		ends[r] = fairq_due_end(r, s->taken.by);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		add_stretch(course, Max(turn->run.low[r], cycle), ends[r], false);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		add_stretch(course, turn->run.low[r], Min(ends[r], cycle + 1), true);
	course->cycle = cycle;
	course->cycle_id = course->findings.cycle_id;
}

/* Continue with the next section.  False if there is none. */
static bool
next_stretch(FairqService *s, FairqCourse *course)
{
	const FairqStretch *stretch = &course->stretches[course->next_stretch];

	if (course->next_stretch == course->nstretches)
		return false;
	course->next_stretch++;
	s->scans.lapsed = search_group(s, s->scans.lapsed,
								   course->turn->group_no, stretch->from,
								   stretch->end);
	return true;
}

/*
 * Record that a task is running, or may be, at an address.  If a transaction
 * is changing it, the end of that transaction publishes the lease.
 */
void
fairq_still_runs(FairqFindings *findings, const FairqTask *task, bool changing)
{
	FairqRegion region = fairq_region(task->addr);

	findings->run_low[region] = Min(findings->run_low[region], task->addr);
	if (task->running && !changing)
		findings->deadline = Min(findings->deadline, task->lease_until);
}

/*
 * Whether the task is in this section of the cycle.  Where the cycle begins,
 * several tasks may have one address.
 */
static bool
is_in_stretch(const FairqCourse *course, const FairqTask *task)
{
	return task->addr != course->cycle ||
		(task->id <= course->cycle_id) ==
		course->stretches[course->next_stretch - 1].before;
}

/* Find a lapsed task among those from the entry. */
static bool
look_at_lapsed(FairqService *s, FairqCourse *course)
{
	FairqTurn  *turn = course->turn;
	FairqSearch *search = &course->lapsed;
	FairqTask  *task = &search->task;

	if (turn->due.region != FAIRQ_REGION_QUEUED || course->next_stretch > 0)
		return false;
	for (; turn->due.next < turn->due.n; turn->due.next++)
	{
		const FairqItem *item = &turn->due.items[turn->due.next];
		FairqRowState state = fairq_task_at(s->tasks, &item->tid, task);

		/* a search of the whole line finds again those that have not lapsed */
		if (state != FAIRQ_ROW_LIVE || task->addr != item->addr ||
			!is_of_turn(s, turn, task) || !task->running ||
			task->lease_until > s->taken.by)
			continue;
		search->since = task->lease_until;
		search->have = search->at_hand = true;
		return true;
	}
	return false;
}

/* Find the next lapsed task. */
void
fairq_look_for_lapsed(FairqService *s, FairqCourse *course)
{
	FairqSearch *search = &course->lapsed;

	if (search->open && !search->have && look_at_lapsed(s, course))
		return;
	if (search->open && !search->have && course->next_stretch == 0)
	{
		begin_lapsed(s, course);
		if (!next_stretch(s, course))
		{
			search->open = false;
			course->findings.lapsed_done = true;
		}
	}
	while (search->open && !search->have)
	{
		FairqTask  *task = &search->task;
		FairqRowState state = fairq_task_next(s->scans.lapsed, task, true);

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
		if (state == FAIRQ_ROW_LIVE && task->running &&
			search->since <= s->taken.by)
			search->have = true;
		else if (state != FAIRQ_ROW_LIVE || task->running)
			fairq_still_runs(&course->findings, task, state != FAIRQ_ROW_LIVE);
	}
}

/*
 * Leave lapsed tasks of the group to other calls, if this call has ended
 * enough of them, or must not end any.
 */
void
fairq_leave_lapsed(FairqService *s, FairqCourse *course)
{
	if ((s->got.ended < FAIRQ_MAX_ENDED && !s->left) || !course->lapsed.open)
		return;
	course->lapsed.locked = Min(course->lapsed.locked, 0);
	course->lapsed.open = course->lapsed.have = false;
}

/* Begin the course of a turn, before any search. */
void
fairq_course_begin(FairqService *s, FairqCourse *course, bool paused)
{
	FairqTurn  *turn = course->turn;
	FairqFindings *findings = &course->findings;

	course->search = turn->sets.due || turn->sets.lapsed;
	course->not_now = course->no_slot = false;
	course->queued.have = false;
	course->lapsed.open = course->lapsed.have = false;
	course->queued.at_hand = course->lapsed.at_hand = false;
	course->lapsed.locked = FAIRQ_ADDR_MAX;
	course->claimed = course->no_scheduled = false;
	s->left = s->left_blocked = false;
	if (!course->search)
		return;
	course->nstretches = 0;
	memset(findings, 0, sizeof(FairqFindings));
	findings->due_done = turn->sets.due;
	findings->paused = paused;
	findings->cycle = turn->cycle.addr;
	findings->cycle_id = turn->cycle.id;
	findings->deadline = DT_NOEND;
	fairq_leases_init(&findings->leased);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		findings->run_low[r] = findings->due_from[r] = FAIRQ_ADDR_MAX;
		course->due[r].open = course->due[r].have = false;
		course->due[r].begun = course->due[r].at_hand = false;
		course->due[r].locked = course->due[r].from = FAIRQ_ADDR_MAX;
		if (!turn->sets.due || turn->due.from[r] == FAIRQ_ADDR_MAX)
			continue;
		course->due[r].from = turn->due.from[r];
		course->due[r].open =
			turn->due.from[r] < fairq_due_end(r, s->taken.by);
	}
	course->next_stretch = 0;
	course->lapsed.open = turn->sets.lapsed && !paused;
	fairq_leave_lapsed(s, course);
}
