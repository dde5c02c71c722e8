/*
 * serve.c
 *		Service: the course of a call, its search for due tasks, and the copy
 *		of a queue's hints for a call that changes nothing.
 *
 * Lanes are served in the order of their priorities, or according to their
 * shares (shares.c).  With shares, each task comes from the lane that has got
 * the least.  A lane without a share is served when the lanes with shares have
 * no task.  In a lane, a call takes turns, dozens at once, and serves each
 * group at its turn.  lane_turns.c chooses the next group, and turn.c chooses
 * one of its tasks.  This file decides when the call continues and when it
 * stops.  The cost of a call depends on the tasks that it returns, and not on
 * the backlog.
 *
 * After a restart the seats of a lane become known step by step, a little
 * ahead of the turns that are taken (line.c).
 *
 * A turn can yield no task, because the group's tasks are in flight, being
 * changed or locked.  The call continues until it has visited all groups for a
 * whole block without success.
 *
 * With per_group = c the call takes turns only in a window of c blocks from
 * its first turn on.  So it takes at most c turns of a group.
 *
 * A group without a slot for another running task is parked, and no pop visits
 * the group until it has a slot (counter.c).
 *
 * After a restart a load finds the running tasks (load.c).  A call that finds
 * fewer tasks than requested waits for the load and searches again.  With
 * per_group it does so only if it finds none.
 *
 * A queue that is full (max_running) has no turns.  Only tasks whose leases
 * have lapsed are served, in rounds of their groups (lane_turns.c).
 *
 * A call returns fewer tasks than requested, although more are ready, if
 *
 * - the queue is paused (serve_lanes() here), or their groups are paused
 *   (counter.c);
 * - the queue is full, since max_running tasks run (running.c), or their
 *	 groups are full (counter.c);
 * - a rate allows no start yet (running.c), or the queue is on hold
 *	 (serve_lanes() here), or their groups are (running.c);
 * - the queue is in_order, and an earlier task of their group comes first
 *	 (waits_for_other() in turn.c);
 * - settings have changed since the call read them (running.c).  The call
 *	 begins again (here) only if it has no task yet;
 * - per_group limits the turns of a group.  Such a call takes turns only in a
 *	 window (may_take() in lane_turns.c).  It uses only the first lane that has
 *	 tasks, and either only turns or only rounds in a full queue (here);
 * - one of them is served alone, because its lease has lapsed twice.  The call
 *	 ends with that task, or it stops before that task, where the next call
 *	 begins
 *	 (stops_before() in turn.c, serve_alone() here);
 * - they are in flight, or their rows are locked or being changed (turn.c,
 *	 claim.c, store_task.c);
 * - another call is reading the line of their group (read_group() in turn.c),
 *	 or its due tasks (read_due() in lane_turns.c);
 * - expired tasks of their group come first, and the call has finished
 *	 FAIRQ_MAX_ENDED of them.  Or, after that, it has left expired tasks at
 *	 FAIRQ_MAX_ENDED other turns (leaves_expired() in turn.c);
 * - they have lapsed, and the call has ended FAIRQ_MAX_ENDED other lapsed
 *	 tasks, such as ones without attempts left (turn.c).  Or a transaction
 *	 block leaves such a task to other calls (take_over() in
 *	 claim.c), with the group's other lapsed tasks for this turn;
 * - they are due, but another call is searching for them (times.c), or
 *	 they became due after the call began;
 * - counters or leases are not known.  With per_group the call does not wait
 *	 for a load once it has served a task (is_to_load() here).  Loads can
 *	 become invalid repeatedly (load.c).  No load is valid for counters while
 *	 transactions from before the queue's first limit are open (tally.c);
 * - a whole block of turns yielded no task (IDLE_BLOCKS here, may_take());
 * - no cache entry is available for their groups, because all are pinned
 *	 (MAX_CROWDED in lane_turns.c);
 * - they are the transaction's own, and other calls invalidate their
 *	 publication again and again (MAX_OWN_TRIES here).
 *
 * Rows are read with a dirty snapshot.  Rows that an open transaction inserts
 * or changes are skipped, because its end publishes them (transaction.c).  A
 * task whose row is only locked goes back into its group's hand, because
 * unlocking publishes nothing.
 *
 * A task is due if it was scheduled, or waits for a retry, and its time has
 * come.  The search does not touch its row.  It puts the task's group into the
 * set "due" and into the ring.  The group's entry, if there is one, has the
 * addresses to search (lane.c).  The group's turn decides which tasks are
 * served (turn.c).  So any call can search in any transaction, for all
 * sessions.
 *
 * A search has steps, each of which reads a limited number of index entries.
 * A pop takes one step before its first turns, and one more each time after it
 * has taken turns, until the search is complete.  Otherwise the groups found
 * first would be served completely before other groups are found.  Shared
 * memory records where the next step begins (times.c).  For expired leases, a
 * step only checks the deadlines of the lane, which is fast.  A load finds the
 * leases from before a restart (load.c).
 *
 * fairq_foresee() serves from a copy of the hints.  The copy is a shadow
 * (shadow.c): it serves a call like shared memory, and no other backend uses
 * it.  It has no sleepers, so no session is woken.  A task-fair lane is copied
 * entirely, which takes a few bits for each group.  The accounts of other
 * lanes are a hundred times larger.  So the copy's ordered set has only the
 * first groups of each level.  These are one group for each wanted task, plus
 * some that may yield no task.  Accounts of other groups, and the groups of a
 * tenant, are copied on demand (lane_order.c).  Throttled groups whose time
 * has come are taken back in the copy, as by the next call.  After that, no
 * other groups are taken back in the copy as time passes.
 *
 * For tasks that it does not return, a call changes only hints.  The
 * exceptions are a bounded number of expired, lapsed and blocked tasks, which
 * it ends or checks (claim.c).  So a transaction that stays open after its pop
 * delays only its own tasks and these.
 *
 * Locking: tuple locks of rows, or rows with SKIP LOCKED (store_task.c), so a
 * call never waits for a row.  Lanes' locks are held briefly (lane.c).  One
 * backend at a time searches a lane; a flag in the lane ensures this.  The
 * flag is cleared at the end of the step, at the latest by the callbacks at
 * the end of the transaction or subtransaction.  A copy takes each lane's lock
 * in shared mode: once for the lane's bits, and once for every few accounts.
 * So the copy is exact if there are no other calls meanwhile.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "group.h"
#include "lane_internal.h"
#include "lane_order.h"
#include "load.h"
#include "registry.h"
#include "running.h"
#include "serve.h"
#include "shadow.h"
#include "tools.h"
#include "transaction.h"
#include "turn.h"

/*
 * number of times that a call searches again for its own transaction's tasks
 */
#define MAX_OWN_TRIES 100

/*
 * number of times that a call waits for a load: once for leases, and once for
 * a load that it needs after that
 */
#define MOST_LOADS 2

/*
 * number of blocks in which a call continues after the last block with a
 * served task
 */
#define IDLE_BLOCKS 1

/* the most throttled groups and tenants that a step takes back */
#define MOST_TAKEN_BACK 16

/*
 * Index entries that one step of a search for due tasks reads.  Each published
 * task adds one more entry, up to a limit.  A step takes about 1 ms, or 10 ms
 * at the limit.
 */
#define STEP_ENTRIES 4096
#define MAX_PUBLISHED 32768

/* Allocate bits for all groups for which another queue has bits. */
static void
have_chunks_like(FairqChunks *chunks, FairqChunks *like)
{
	for (int chunk = 1; chunk < FAIRQ_CHUNKS; chunk++)
		if (fairq_chunk_at(like, chunk) != NULL)
			fairq_chunks_have(chunks, (int32) fairq_chunk_first(chunk));
}

/*
 * Copy the lane and its bits.  Returns false if the copy has no room for all
 * of them.
 */
static bool
copy_bits(FairqLane *lane, FairqLane *copy)
{
	bool		all;

	LWLockAcquire(&lane->lock, LW_SHARED);
	memcpy(copy, lane, sizeof(FairqLane));
	all = fairq_seats_copy(copy, lane);
	LWLockRelease(&lane->lock);
	LWLockInitialize(&copy->lock, fairq_tranche(FAIRQ_LANE_TRANCHE));
	return all;
}

/* In the copy, take back the throttled groups whose time has come. */
static void
come_back(FairqLane *lane, FairqLane *copy)
{
	FairqRecords *nodes = &lane->seats.back.nodes;
	FairqRank	behind = {.amount.whole = PG_INT64_MIN};
	int64		now = fairq_monotonic();

	for (;;)
	{
		int32		group_no;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(&lane->lock, LW_SHARED);
		group_no = !is_begun(lane) ? FAIRQ_NO_NODE :
			fairq_order_next_to(&lane->seats.back.order, nodes, &behind,
								true);
		if (group_no != FAIRQ_NO_NODE)
			behind = ((FairqNode *) fairq_record(nodes, group_no))->rank;
		LWLockRelease(&lane->lock);
		if (group_no == FAIRQ_NO_NODE || behind.amount.whole > now)
			break;
		fairq_take_back(fairq_hints_of(copy), group_no, 1 << copy->priority);
	}
}

static void
copy_lane(FairqLane *lane, FairqLane *copy, int64 max_tasks)
{
	FairqChunks *chunks = &fairq_hints_of(lane)->chunks;

	do
		have_chunks_like(&fairq_hints_of(copy)->chunks, chunks);
	while (!copy_bits(lane, copy));
	/* in the copy, ignore another backend's search */
	copy->times.searching = false;
	fairq_lane_records_init(copy);
	come_back(lane, copy);
	fairq_stall("copy");
	if (is_begun(copy) && !is_by_turns(copy))
		fairq_lane_order_copy(copy, max_tasks);
}

/*
 * Copy the queue and its hints, for a call that requests max_tasks tasks.  The
 * copy has the settings that the caller has read.
 */
static FairqQueue *
copy_queue(const FairqQueue *queue, int64 max_tasks)
{
	FairqHints *hints = queue->hints;
	FairqHints *copy = fairq_shadow_begin(hints, sizeof(FairqHints));
	FairqQueue *of_copy = fairq_shadow_alloc(sizeof(FairqQueue));

	/*
	 * find out first which counters are known, because a later load may not be
	 * over in the copied data
	 */
	fairq_tally_keep(&hints->tally);
	memcpy(copy, hints, sizeof(FairqHints));
	fairq_chunks_init(&copy->chunks);
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		copy_lane(&hints->lanes[p], &copy->lanes[p], max_tasks);
	pg_atomic_write_u64(&copy->versions.now, queue->as_of.version);
	pg_atomic_write_u32(&copy->tally.calls, 0);
	SpinLockInit(&copy->versions.mutex);
	fairq_counter_copy(&copy->running, &hints->running);
	SpinLockAcquire(&hints->shares.mutex);
	copy->shares = hints->shares;
	SpinLockRelease(&hints->shares.mutex);
	SpinLockInit(&copy->shares.mutex);
	fairq_wakeup_init(&copy->wakeup);
	*of_copy = *queue;
	of_copy->hints = copy;
	return of_copy;
}

/* --------------------------------------------------------------------- */

/* The search in progress for tasks that have become due. */
static struct
{
	FairqLane  *lane;			/* lane that is searched; NULL: none */
	uint32		lane_no;		/* lane_no of the lane */
	TimestampTz now;			/* time by which tasks have become due */
	int64	   *found;			/* number of tasks that were published */
}			search;

/*
 * Publish that the task has become due.  Returns false if another recovery of
 * the lane has begun since.
 */
static bool
publish_due(const FairqTask *task)
{
	fairq_chunks_have(&fairq_hints_of(search.lane)->chunks, task->group_no);
	if (!fairq_lane_add_due(search.lane, search.lane_no, task->group_no,
							task->addr))
		return false;
	(*search.found)++;
	return true;
}

/*
 * Publish the due tasks of a timed region of the lane, from an address on, in
 * the order of addresses.  This is one step.  Returns the address at which the
 * next step begins.
 */
static int64
search_region(FairqTable *tasks, int32 lane, FairqRegion region, int64 from)
{
	int64		end = fairq_due_end(region, search.now);
	int64		last = fairq_region_from(region) + (FAIRQ_TIMED_SIZE - 1);
	FairqScan  *scan;
	int64		next = FAIRQ_ADDR_MAX;
	int64		npublished = 0;
	FairqRowState state;

	if (from >= end)
		return from;
	scan = fairq_scan_some(tasks, FAIRQ_TASK_BY_TIME,
						   fairq_range_times(lane, from, last), STEP_ENTRIES);
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		FairqTask	task;

		if (state == FAIRQ_ROW_LATER)
		{
			/* stop only if the next search begins at a later place */
			next = fairq_scan_reached(scan);
			if (next > from)
				break;
			next = FAIRQ_ADDR_MAX;
			continue;
		}
		if (state != FAIRQ_ROW_LIVE)
			continue;
		fairq_task_read(scan->slot, &task);
		if (task.addr < end && task.running)
			continue;
		if (task.addr >= end || !publish_due(&task))
		{
			next = task.addr;
			break;
		}
		if (npublished++ < MAX_PUBLISHED)
			scan->budget++;
	}
	fairq_scan_end(scan);
	return next;
}

/*
 * Do one step of the search for timed tasks that have become due, and count
 * those found.  Returns false if no more can be found at the moment.
 */
bool
fairq_find_timed(FairqQueue *queue, int priority, FairqTable *tasks,
				 TimestampTz now, int64 *found)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	int64		timers[FAIRQ_REGIONS];
	bool		further = false;

	search.lane_no = fairq_lane_search_begin(lane, now, timers);
	if (search.lane_no == 0)
		return false;
	search.lane = lane;
	search.now = now;
	search.found = found;
	fairq_stall("search");
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
	{
		int64		from = timers[r];

		timers[r] = search_region(tasks, fairq_task_lane(queue->id, priority),
								  r, from);
		further |= timers[r] != from;
	}
	fairq_stall("search");
	search.lane = NULL;
	fairq_lane_search_end(lane, search.lane_no, timers);
	return further;
}

/* --------------------------------------------------------------------- */

/*
 * Tasks and lanes that the call in progress has hidden from other calls.  The
 * call has moved the timers past tasks that it has found, and has cleared the
 * marks of lanes with which to begin.  If an error ends the call, other calls
 * must find these tasks and lanes again.
 */
static struct
{
	FairqHints *hints;			/* hints of the call's queue; NULL: no call is
								 * in progress */
	int64		found;			/* number of due tasks and groups that the call
								 * has found */
	uint32		lanes;			/* lanes with which the call begins */
}			owed;

static int32
weight_of(void *queue, int32 group_no)
{
	return fairq_group_setting(queue, group_no)->weight;
}

static int32
tenant_of(void *queue, int32 group_no)
{
	return fairq_tenant_no(queue, group_no);
}

/*
 * Take one more step of the search for due and lapsed tasks, and for groups
 * whose tasks may now start.  Returns false if no more can be found at the
 * moment.
 */
static bool
find_due(FairqService *s)
{
	int64		found = fairq_lane_come_back(s->lane, MOST_TAKEN_BACK);
	int64		lapsed;

	owed.found += found;
	if (!fairq_times_due(&s->lane->times, s->call.now))
		return found > 0;
	lapsed = fairq_lane_lapse(s->lane, s->call.now);
	owed.found += lapsed;
	return fairq_find_timed(s->queue, s->priority, s->tasks, s->call.now,
							&owed.found) || found + lapsed > 0;
}

static void
init_taking(FairqService *s, FairqTaking *taking)
{
	memset(taking, 0, sizeof(FairqTaking));
	taking->wanted = s->call.max_tasks - s->got.served;
	taking->lease_until = s->call.lease_until;
	taking->peek = s->call.peek;
	taking->order.by = s->by;
	taking->order.visits = &s->visits[s->priority];
	taking->order.tenants = s->queue->shares.separator != 0;
	taking->order.now = s->call.now;
	taking->window.per_group = s->call.per_group;
	taking->window.first = s->window.first;
	taking->window.last_block = PG_INT64_MAX;
	taking->window.past = s->window.past;
	taking->weight_of = weight_of;
	taking->arg = s->queue;
}

/* Record the state of the lane in which turns were taken. */
static void
note_taken(FairqService *s, const FairqTaking *taking)
{
	s->taken.searches = taking->searches;
	s->taken.by = Max(s->call.now, taking->clock);
}

/*
 * Read the lane's fair_by.  Returns false if no recovery of the lane has
 * begun.
 */
static bool
look_at_lane(FairqService *s)
{
	FairqRecovered recovered;
	bool		begun = fairq_lane_recovered(s->lane, &recovered);

	s->by = recovered.fair_by;
	return begun;
}

/*
 * Make sure that turns can be taken, after an attempt that has failed.
 * Returns false if there are no turns to take.
 */
static bool
make_ready(FairqService *s, FairqTaken taken)
{
	switch (taken)
	{
		case FAIRQ_NOT_KNOWN:
			fairq_recover(s->queue, s->priority, s->tasks, &s->recovering);
			break;
		case FAIRQ_NOT_FOUND:
			fairq_visits_have_room(&s->visits[s->priority]);
			return true;
		case FAIRQ_NOT_READY:
			fairq_lane_have_accounts(s->lane,
									 s->queue->shares.separator == 0 ?
									 NULL : tenant_of, s->queue);
			break;
		default:
			return false;
	}
	(void) look_at_lane(s);
	return true;
}

/*
 * In a full queue, whether this turn begins another round, because it reaches
 * or passes the seat that was served first.
 */
static bool
begins_round(FairqService *s, const FairqTurn *turn)
{
	int32		seat = turn->group_no;
	int32		first = s->full.first;
	int32		last = s->full.last;

	if (first < 0 || (seat == last && turn->state.continued))
		return false;
	return last < seat ? last < first && first <= seat :
		last < first || first <= seat;
}

/*
 * In a full queue, serve lapsed tasks of one group, since only these have a
 * slot, or find another reason to continue.  Returns false if the call must
 * not continue.
 */
static bool
serve_in_full(FairqService *s)
{
	int32		tried_seat = FAIRQ_NO_SEAT;
	int32		most_lapsed = 0;

	/*
	 * each attempt that finds nothing reduces the number of lapsed groups,
	 * unless other calls change them
	 */
	for (int tries = 0; s->got.ended < FAIRQ_MAX_ENDED; tries++)
	{
		FairqTaking taking;
		FairqTaken	taken;
		FairqTurn  *turn;
		int64		round;
		int32		nlapsed;
		bool		served;

		init_taking(s, &taking);
		taken = fairq_turns_take(s->lane, &taking, tried_seat, &nlapsed);
		if (taken != FAIRQ_TAKEN)
		{
			if (make_ready(s, taken))
				continue;
			return false;
		}
		turn = &taking.turns[0];
		note_taken(s, &taking);
		round = s->full.rounds + (begins_round(s, turn) ? 1 : 0);
		most_lapsed = Max(most_lapsed, nlapsed);
		if (tries > most_lapsed ||
			(s->call.per_group > 0 && round >= s->call.per_group))
		{
			fairq_turns_back();
			return false;
		}
		fairq_lane_find_tenant(&taking, turn, tenant_of);
		served = fairq_serve_turn(s, turn);
		fairq_turns_back();
		if (served)
		{
			if (s->full.first < 0)
				s->full.first = turn->group_no;
			s->full.last = turn->group_no;
			s->full.rounds = round;
		}
		/* other transactions may have freed a slot meanwhile */
		if (fairq_queue_is_throttled())
			return false;
		if (served || s->got.served >= s->call.max_tasks ||
			fairq_slot_in_queue())
			return true;
		tried_seat = turn->group_no;
	}
	return false;
}

/* Prefetch the rows of all turns in flight for which TIDs are known. */
static void
prefetch(FairqService *s, const FairqTaking *taking)
{
	for (int i = 0; i < taking->n; i++)
	{
		const FairqTurn *turn = &taking->turns[i];

		for (int k = 0; k < turn->queued.n; k++)
			fairq_task_prefetch(s->tasks, &turn->queued.items[k].tid);
	}
}

/*
 * In a cost-fair or time-fair lane, record whether the call may visit the
 * group again.
 */
static void
note_visit(FairqService *s, const FairqTurn *turn, bool served)
{
	int64		most = served ? s->call.per_group : 0;

	if (most > 0)
		most *= weight_of(s->queue, turn->group_no);
	if (!served || most > 0)
		fairq_visits_count(&s->visits[s->priority], turn->group_no,
						   turn->charged.tenant, most);
}

/*
 * Whether the call can take turns before earlier turns are served.  Each slot
 * in the queue is taken separately, and so is each start.  In a cost-fair lane
 * the next group is known only once the cost of the last task is known.  In
 * other lanes that are not task-fair the next group depends on slots, and on
 * per_group.
 */
static bool
takes_many(FairqService *s)
{
	return s->queue->max_running == FAIRQ_NO_LIMIT &&
		s->queue->starts.pace.gap == 0 && !s->call.peek &&
		(s->by == FAIRQ_BY_TASKS ||
		 (s->by != FAIRQ_BY_COST && !s->queue->limited &&
		  s->call.per_group == 0));
}

/*
 * Take turns and serve them.  *last_block is the last block in which a task
 * was served, or the first block that was tried; -1: none yet.  Returns the
 * result of taking turns.
 */
static FairqTaken
serve_turns(FairqService *s, int64 *last_block)
{
	FairqTaking taking;
	FairqTaken	taken;

	init_taking(s, &taking);
	if (s->call.peek && !s->queue->retries.in_order &&
		fairq_glance(s, &taking))
		return FAIRQ_TAKEN;
	taking.most = takes_many(s) ? FAIRQ_MAX_TURNS : 1;
	if (*last_block >= 0)
		taking.window.last_block = *last_block + IDLE_BLOCKS;
	taken = fairq_turns_take(s->lane, &taking, FAIRQ_NO_SEAT, NULL);
	s->window.past = taking.window.past;
	if (taken != FAIRQ_TAKEN)
		return taken;
	note_taken(s, &taking);
	if (taking.n > 1)
		prefetch(s, &taking);
	for (int i = 0; i < taking.n && s->got.served < s->call.max_tasks; i++)
	{
		FairqTurn  *turn = &taking.turns[i];
		bool		served;

		CHECK_FOR_INTERRUPTS();
		served = fairq_serve_turn(s, turn);
		if (served || *last_block < 0)
			*last_block = turn->block;
		if (s->by != FAIRQ_BY_TASKS)
			note_visit(s, turn, served);
		/* later turns were given back if the order depends on served tasks */
		if (fairq_settings_are_old(s->queue) ||
			(!served && s->by != FAIRQ_BY_TASKS))
			break;
	}
	fairq_turns_back();
	return FAIRQ_TAKEN;
}

static void
serve_lane(FairqService *s)
{
	const FairqVisits *visits = &s->visits[s->priority];
	int64		last_block = -1;

	s->lane = fairq_queue_lane(s->queue, s->priority);
	/*
	 * the queue's fair_by may have changed since the lane was recovered;
	 * ignore settings that might not take effect
	 */
	if (look_at_lane(s) && s->by != s->queue->shares.fair_by &&
		!fairq_own.settings && !fairq_settings_are_old(s->queue))
		fairq_lane_forget(s->lane);
	s->window.past = 0;
	s->window.first = -1;
	s->full.first = -1;
	s->full.rounds = 0;
	memset(&s->recovering, 0, sizeof(s->recovering));
	while (!look_at_lane(s))
		fairq_recover(s->queue, s->priority, s->tasks, &s->recovering);
	(void) find_due(s);
	while (s->got.served < s->call.max_tasks)
	{
		FairqTaken	taken;

		CHECK_FOR_INTERRUPTS();
		if (!fairq_slot_in_queue())
		{
			/*
			 * with per_group, a call has either turns or rounds in a full
			 * queue
			 */
			if (fairq_settings_are_old(s->queue) ||
				fairq_queue_is_throttled() ||
				(s->call.per_group > 0 && s->window.first >= 0))
				break;
			if (serve_in_full(s))
				(void) find_due(s);
			else if (!find_due(s))
				break;
			last_block = -1;
			continue;
		}
		if (s->call.per_group > 0 && s->full.first >= 0 && s->got.served > 0)
			break;
		taken = serve_turns(s, &last_block);
		if (taken == FAIRQ_TAKEN)
			(void) find_due(s);
		else if (!make_ready(s, taken) && !find_due(s))
			break;
	}
	fairq_turns_leave();
	if (visits->n > 0 && fairq_may(s->queue, FAIRQ_PRIV_MONITOR))
		elog(DEBUG2, "passed over %u groups in priority %d of queue \"%s\", looked at " INT64_FORMAT,
			 visits->n, s->priority, s->queue->name, visits->looked);
}

/*
 * Whether the call is over.  With per_group, the call is over after the first
 * lane with tasks.
 */
static bool
is_over(const FairqService *s)
{
	return s->got.served >= s->call.max_tasks ||
		s->got.left >= FAIRQ_MAX_ENDED ||
		(s->call.per_group > 0 && s->got.served > 0);
}

/*
 * Choose a lane according to the shares, and the number of its tasks to serve
 * in a row, up to "most".  In a cost-fair queue the number is one, because the
 * task's charge is not known yet.  Returns NULL if there is no lane.
 */
static const FairqShareRun *
choose_lane(FairqService *s, uint32 without, int64 most)
{
	FairqQueue *queue = s->queue;
	FairqLaneWork works[FAIRQ_PRIORITIES] = {0};
	bool		by_time = queue->shares.fair_by == FAIRQ_BY_TIME;

	for (int p = 0; by_time && p < FAIRQ_PRIORITIES; p++)
	{
		FairqLane  *lane = fairq_queue_lane(queue, p);

		if (queue->shares.of[p] == 0)
			continue;
		/*
		 * find lapsed tasks first, because their lane might never be chosen
		 * while they count as running
		 */
		owed.found += fairq_lane_lapse(lane, s->call.now);
		fairq_lane_work(lane, s->call.now, &works[p]);
	}
	if (queue->shares.fair_by == FAIRQ_BY_COST)
		most = 0;
	else if (s->call.per_group > 0)
		most = 1;
	return fairq_shares_choose(&queue->hints->shares, queue->shares.of,
							   queue->as_of.version, by_time ? works : NULL,
							   without, most);
}

/*
 * Serve lanes according to their shares, a run of tasks at a time.  A run has
 * the same tasks as if a lane were chosen for each task.  A lane that yields
 * fewer tasks than its run has no more tasks for this call.
 */
static void
serve_by_shares(FairqService *s)
{
	int64		max_tasks = s->call.max_tasks;
	uint32		without = 0;
	const FairqShareRun *run;

	while (!is_over(s) &&
		   (run = choose_lane(s, without, Min(max_tasks - s->got.served,
											  FAIRQ_MAX_TURNS))) != NULL)
	{
		int64		served = s->got.served;
		int64		charge = s->got.charge;

		/* all turns of a window are in one lane */
		if (s->call.per_group == 0)
			s->call.max_tasks = served + run->most;
		s->priority = run->priority;
		serve_lane(s);
		served = s->got.served - served;
		fairq_shares_settle(served, s->got.charge - charge);
		if (served < run->most)
			without |= (uint32) 1 << run->priority;
		s->call.max_tasks = s->got.stopped ? s->got.served : max_tasks;
	}
}

/*
 * Begin with lanes at which another call has stopped because the next task is
 * served alone.  Serve only that task, if it is still the lane's next one.  If
 * calls did not begin with that lane, the task and its lane would wait while
 * calls find other tasks first.
 */
static void
serve_alone(FairqService *s)
{
	int64		max_tasks = s->call.max_tasks;
	bool		only_alone = s->call.only_alone;
	uint32		lanes;

	if (s->call.peek || s->call.has_some || s->got.served > 0 ||
		!fairq_begins_alone(s->queue))
		return;
	lanes = pg_atomic_exchange_u32(&s->queue->hints->shares.first, 0);
	owed.lanes = lanes;
	s->call.only_alone = true;
	for (s->priority = 0; s->priority < FAIRQ_PRIORITIES; s->priority++)
	{
		if (s->got.served > 0)
			s->got.first |= lanes & ((uint32) 1 << s->priority);
		else if (lanes & ((uint32) 1 << s->priority))
		{
			s->call.max_tasks = 1;
			serve_lane(s);
		}
	}
	owed.lanes = 0;
	/* from now on, groups that the call has passed over may be served */
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		fairq_visits_init(&s->visits[p]);
	s->call.only_alone = only_alone;
	s->call.max_tasks = s->got.stopped || only_alone ? s->got.served :
		max_tasks;
}

static void
serve_lanes(FairqService *s)
{
	/* the lanes' order does not decide whether there is any task */
	bool		by_shares = s->queue->shares.any && !s->call.peek;

	if (s->queue->paused || fairq_queue_is_held(s->queue, s->call.now))
		return;
	fairq_running_begin(s->queue, s->call.peek);
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		fairq_visits_init(&s->visits[p]);
	serve_alone(s);
	if (by_shares)
		serve_by_shares(s);
	for (s->priority = 0;
		 s->priority < FAIRQ_PRIORITIES && !is_over(s);
		 s->priority++)
	{
		if (by_shares && s->queue->shares.of[s->priority] > 0)
			continue;
		serve_lane(s);
	}
	fairq_running_end();
}

/*
 * Move the time of a call that may have waited, so that its leases begin now.
 */
static void
renew_time(FairqService *s)
{
	TimestampTz now = GetCurrentTimestamp();

	if (s->call.lease_until != DT_NOEND)
		s->call.lease_until += now - s->call.now;
	s->call.now = now;
}

/*
 * Whether the call continues because it has ended a task for which another
 * task may have waited.  That other task may have become due.
 */
static bool
is_to_go_on(FairqService *s)
{
	if (!s->got.freed || is_over(s))
		return false;
	s->got.freed = false;
	renew_time(s);
	(void) fairq_pending_show(s->queue->hints);
	return true;
}

/*
 * Whether the call must search again, after a load, because it has served
 * fewer tasks than it wants.  If the load was due when the call began to
 * search, the search may have missed tasks, even if the load is over now.
 */
static bool
is_to_load(FairqService *s, bool was_due)
{
	return s->got.served < s->call.max_tasks && !s->got.peeked &&
		!s->queue->paused && !s->call.foresees &&
		(s->call.per_group == 0 || s->got.served == 0) &&
		(was_due || fairq_load_is_due(s->queue));
}

static void
serve_queue(FairqService *s)
{
	int32		id;
	int			loads = 0;
	bool		old;
	bool		due;

	owed.hints = s->queue->hints;
	owed.found = 0;
	owed.lanes = 0;

	if (!s->queue->paused && !s->call.foresees)
		fairq_load_begin(s->queue, s->tasks);

	/* with our transaction's settings there may be slots for parked groups */
	if (fairq_own.settings)
		fairq_take_all_back(s->queue->hints);
	for (int tries = 0;; tries++)
	{
		due = fairq_load_is_due(s->queue);
		serve_lanes(s);
		if (is_to_go_on(s))
			continue;
		/* check this before a load, which may read the settings again */
		old = fairq_settings_are_old(s->queue);

		/*
		 * Other calls may have invalidated our transaction's publication
		 * during the search.  The repetition ends, because each of those calls
		 * ends.
		 */
		if (fairq_own.tasks && !s->call.peek && !s->call.foresees &&
			s->got.served < s->call.max_tasks &&
			s->call.per_group == 0 && tries < MAX_OWN_TRIES &&
			fairq_pending_show(s->queue->hints))
			continue;

		/*
		 * groups that were passed over may be served once everything is known
		 */
		if (is_to_load(s, due) && loads++ < MOST_LOADS &&
			fairq_load_finish(s->queue, s->tasks))
		{
			renew_time(s);
			continue;
		}

		/* changed limits act at once, even in the middle of a call */
		if (s->got.served > 0 || s->got.peeked ||
			(!old && !fairq_settings_are_old(s->queue)))
			break;
		id = s->queue->id;
		s->queue = fairq_queue_by_id(id, true);
		if (s->queue == NULL)
			elog(ERROR, "could not read the settings of queue %d", id);
	}
	fairq_scan_end(s->scans.queued);
	fairq_scan_end(s->scans.lapsed);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		fairq_scan_end(s->scans.due[r]);

	/* other calls get the tasks that this call or its caller does not take */
	if (owed.found > s->got.served)
		fairq_wake(&owed.hints->wakeup,
				   owed.found - s->got.served - (s->got.peeked ? 1 : 0));
	owed.hints = NULL;
}

/*
 * End a call that an error, or the end of the transaction, has interrupted.
 * Turns are given back to their lane before their slots are given back.  Then
 * other calls may search the lane that this call searched, and get all tasks
 * that it has found.  Another session then checks the tasks for which this one
 * was woken.  By then all turns and slots have been given back, in the copy if
 * the call had one.
 */
void
fairq_serve_end(void)
{
	fairq_turns_back();
	fairq_turns_leave();
	/*
	 * one task is charged, so a lane with a row that fails repeatedly is not
	 * always next
	 */
	fairq_shares_settle(1, FAIRQ_CHARGE_ONE);
	fairq_running_end();
	fairq_load_end(false);
	if (search.lane != NULL)
		fairq_lane_search_end(search.lane, search.lane_no, NULL);
	search.lane = NULL;
	if (owed.hints != NULL)
	{
		pg_atomic_fetch_or_u32(&owed.hints->shares.first, owed.lanes);
		fairq_wake(&owed.hints->wakeup,
				   Min(owed.found, PG_INT32_MAX - 1) + 1);
	}
	owed.hints = NULL;
	fairq_shadow_end();
}

/*
 * Whether this backend's worker uses take instead of pop.  A wait is for
 * either pop or take, because a worker uses one of them.  The difference
 * matters for a row that is locked FOR KEY SHARE, because that lock blocks
 * take, but not pop.
 */
static bool takes = false;

/*
 * Choose up to max_tasks tasks in the order of service, and serve each of
 * them.  Returns the number of tasks that were served.  If *stopped, the
 * caller gets no more tasks, not even from other queues.  In this case a task
 * is served alone, or the call has stopped before such a task.
 */
int64
fairq_serve(FairqQueue *queue, FairqTable *tasks, const FairqCall *call,
			bool *stopped)
{
	FairqService s = {.queue = queue, .tasks = tasks, .call = *call};
	uint32		surplus = pg_atomic_read_u32(&queue->hints->wakeup.surplus);

	takes = tasks->claims_delete;
	fairq_shmem_sweep(true);
	(void) fairq_pending_show(queue->hints);
	fairq_stall("clock");
	serve_queue(&s);
	if (s.got.served > 0 || s.got.ended > 0 || s.got.expired > 0)
		fairq_written();
	if (s.got.first != 0)
		pg_atomic_fetch_or_u32(&queue->hints->shares.first, s.got.first);
	/*
	 * a call for a task that is served alone has not searched for other tasks
	 */
	if (!call->only_alone || s.got.served > 0)
		fairq_wake_next(&queue->hints->wakeup, surplus, is_over(&s));
	*stopped = s.got.stopped;
	return s.got.served;
}

/*
 * Predict the tasks that a call would serve.  The call runs on a copy of the
 * hints and changes no row.
 */
void
fairq_foresee(FairqQueue *queue, FairqTable *tasks, const FairqCall *call)
{
	FairqService s = {.tasks = tasks, .call = *call};

	fairq_watch_transaction();
	/* our own pops also see the changes of our own transaction */
	(void) fairq_pending_show(queue->hints);
	fairq_load_begin(queue, tasks);
	(void) fairq_load_finish(queue, tasks);
	s.queue = copy_queue(queue, call->max_tasks);
	s.call.foresees = true;
	serve_queue(&s);
	fairq_shadow_end();
}

/*
 * Whether a pop would find a task.  This check is a look: it searches like a
 * pop, and parks groups, but touches no row.  It gives back the turn at which
 * it finds a task.  With look->ends, it ends the tasks that a pop would end
 * and not return.
 */
bool
fairq_worth_a_pop(FairqQueue *queue, FairqTable *tasks, TimestampTz now,
				  FairqLook *look)
{
	FairqService s = {
		.queue = queue,
		.tasks = tasks,
		.call.now = now,
		.call.lease_until = DT_NOEND,
		.call.peek = true,
		.call.ends = look->ends,
		.call.max_tasks = 1
	};

	tasks->claims_delete = takes;
	serve_queue(&s);
	look->ended = look->ends && (s.got.ended > 0 || s.got.expired > 0);
	if (look->ended)
		fairq_written();
	look->saw_locked = s.got.saw_locked && !s.got.peeked;
	look->saw_over = s.got.saw_over && !s.got.peeked;
	return s.got.peeked;
}
