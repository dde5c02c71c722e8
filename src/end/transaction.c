/*
 * transaction.c
 *		The end of a transaction: it applies the pending changes to the hints,
 *		and settles the modules' caches.
 *
 * Hints must follow what other backends can see: a task becomes ready exactly
 * when its enqueue has committed, and again when its pop has aborted.  So each
 * call of fairq records here the changes that the end of its transaction or
 * subtransaction will make.  PostgreSQL does the same with files to be
 * deleted.  The callbacks apply the changes.  They run after the end is
 * visible to all backends.  At XACT_EVENT_COMMIT and ABORT the transaction has
 * left the ProcArray.  At ABORT_SUB the subtransaction is marked as aborted.
 *
 * Pending changes form a stack.  Those of a subtransaction are on top of its
 * parent's.  If the subtransaction commits, each change is merged into the
 * parent's change of the same group, or becomes the parent's.  If the
 * subtransaction aborts, its changes are applied in reverse order and popped.
 * The reverse order makes it possible to put reservations back one after the
 * other.  All changes are applied before any module settles its caches.
 *
 * A hash table finds the topmost change for each group of a lane.  Each change
 * links to the one below it.  Changes are added and removed in the order of a
 * stack.  So removing one only sets its bucket to the change below, or empties
 * it.  Buckets that were filled later have been emptied by then.
 *
 * A transaction's own pops find tasks that it has enqueued and leased.  So a
 * pop first publishes the changes of its queue that are not published yet.  An
 * addition to a published change is published at once.  The commit publishes
 * the whole change again.  Pops of other sessions cannot see these tasks.  But
 * such pops may remove the tasks from hands, and their groups from the ring.
 * So each lane counts how often other transactions take turns
 * (fairq_lane_narrowings()).  If that count has changed, all changes of the
 * lane are published once more.
 *
 * A transaction holds a slot in a queue and a group for each task that it has
 * claimed.  If the group has a tenant, it also holds a slot in the tenant; a
 * tenant has changes of its own.  At the transaction's end the slots are
 * closed, and a commit adds its change in the number of leased tasks
 * (counter.c, rule 3).  In a queue without limits no task is counted.  A
 * change of the queue then records that the transaction has claimed or ended
 * tasks there.  No load is valid for the queue's counters before that
 * transaction is over (tally.c).
 *
 * The news of a change are the tasks that a commit or an abort publishes.
 * News keep the lowest ready tasks, with their TIDs, up to the size of a hand
 * (entry.c), and the address from which other tasks follow.
 *
 * Locking: lanes' locks, one at a time, to publish.  The callbacks also take
 * counters' mutexes under the tally's lock.  They must neither fail (an ERROR
 * there would be a PANIC) nor allocate, so memory is allocated when the change
 * is recorded.  The functions of other modules, which
 * fairq_transactions_init() gets, must not fail or allocate either.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "utils/memutils.h"

#include "entry.h"
#include "registry.h"
#include "shmem.h"
#include "times.h"
#include "tools.h"
#include "transaction.h"

/*
 * The most changes of groups' settings that are kept individually, since each
 * pins a counter in shared memory.  Beyond that number, all settings count as
 * changed.
 */
#define MOST_SETTINGS 65536

/* in place of an index: no change or bucket */
#define NO_INDEX (-1)

/*
 * A task in a list of news.  It is allocated when a change is recorded, and
 * freed when the change is applied.
 */
typedef struct ItemNode
{
	FairqItem	item;
	struct ItemNode *next;
} ItemNode;

static const FairqNews no_news = {.more = FAIRQ_ADDR_MAX, .since = DT_NOEND};

/* Add an unknown number of ready tasks from an address on. */
static void
add_more(FairqNews *news, int64 addr)
{
	news->more = Min(news->more, addr);
}

/*
 * Put a node into the list.  If the list is then too long, drop its last node.
 */
static void
put_node(FairqNews *news, ItemNode *node)
{
	ItemNode  **at = &news->items;
	int			n = 1;

	for (; *at != NULL && (*at)->item.addr <= node->item.addr; n++)
		at = &(*at)->next;
	node->next = *at;
	*at = node;
	for (; (*at)->next != NULL; n++)
		at = &(*at)->next;
	if (n <= FAIRQ_HAND)
		return;
	add_more(news, (*at)->item.addr);
	pfree(*at);
	*at = NULL;
}

/* Add a ready task.  Only the lowest tasks are kept individually. */
static void
add_item(FairqNews *news, const FairqItem *item)
{
	ItemNode   *node = MemoryContextAlloc(TopTransactionContext,
										  sizeof(ItemNode));

	node->item = *item;
	put_node(news, node);
}

/* Returns the timed tasks of the news; empty, if there are none. */
static FairqLater *
later_of(FairqNews *news)
{
	FairqLater *later;

	if (news->later != NULL)
		return news->later;
	later = MemoryContextAlloc(TopTransactionContext, sizeof(FairqLater));
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		later->scheduled[r] = FAIRQ_ADDR_MAX;
	fairq_leases_init(&later->leased);
	news->later = later;
	return later;
}

/* Add a timed task. */
static void
add_timed(FairqNews *news, int64 addr)
{
	int64	   *first = &later_of(news)->scheduled[fairq_region(addr)];

	*first = Min(*first, addr);
}

static void
add_leases(FairqLeases *leases, const FairqLeases *more)
{
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		leases->low[r] = Min(leases->low[r], more->low[r]);
		leases->high[r] = Max(leases->high[r], more->high[r]);
	}
	leases->until = Min(leases->until, more->until);
	leases->searches = Min(leases->searches, more->searches);
}

/* Give back the memory of the news. */
static void
release_news(FairqNews *news)
{
	while (news->items != NULL)
	{
		ItemNode   *node = news->items;

		news->items = node->next;
		pfree(node);
	}
	if (news->later != NULL)
		pfree(news->later);
	news->later = NULL;
}

/*
 * Add other news of the same group, which this function frees.  Allocates
 * nothing.
 */
static void
merge_news(FairqNews *news, FairqNews *more)
{
	while (more->items != NULL)
	{
		ItemNode   *node = more->items;

		more->items = node->next;
		put_node(news, node);
	}
	add_more(news, more->more);
	fairq_news_since(news, more->since);
	news->nready += more->nready;
	if (news->later == NULL)
	{
		news->later = more->later;
		more->later = NULL;
	}
	else if (more->later != NULL)
	{
		for (int r = 0; r < FAIRQ_REGIONS; r++)
			news->later->scheduled[r] = Min(news->later->scheduled[r],
											more->later->scheduled[r]);
		add_leases(&news->later->leased, &more->later->leased);
	}
	release_news(more);
}

/*
 * Publish timed tasks and leases, which make tasks ready as time passes.
 * again: timed tasks may be due by now.
 */
static void
publish_later(FairqLane *lane, int32 group_no, const FairqLater *later,
			  bool again)
{
	FairqWakeup *wakeup = &fairq_hints_of(lane)->wakeup;

	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
	{
		int64		addr = later->scheduled[r];

		if (addr == FAIRQ_ADDR_MAX)
			continue;
		fairq_lane_add_timed(lane, group_no, addr, again);
		fairq_wake_in_time(wakeup, fairq_due_time(addr));
	}
	if (later->leased.until == DT_NOEND)
		return;
	fairq_lane_add_leases(lane, group_no, &later->leased);
	fairq_wake_in_time(wakeup, later->leased.until);
}

/* Publish the news of a group.  again: the group's tasks were ready before. */
static void
publish_news(FairqLane *lane, int32 group_no, const FairqNews *news,
			 bool again)
{
	FairqItem	items[FAIRQ_HAND];
	int			n = 0;

	if (news->later != NULL)
		publish_later(lane, group_no, news->later, again);
	for (const ItemNode *node = news->items; node != NULL; node = node->next)
		items[n++] = node->item;
	if (n > 0 || news->more != FAIRQ_ADDR_MAX)
		fairq_lane_add_ready(lane, group_no, items, n, news->more,
							 news->since);
}

static FairqPending *stack = NULL; /* in TopTransactionContext */
static int	nstack = 0;
static int	max_stack = 0;
static int32 *topmost = NULL;	/* 2 * max_stack buckets, allocated together
								 * with the stack */

/* index of the first change that was not shown to our own pops */
static int	first_unshown = 0;

/*
 * the last queue whose changes were shown to our own pops, and the narrowings
 * of its lanes at that time
 */
static struct
{
	FairqHints *hints;
	uint32		at[FAIRQ_PRIORITIES];
}			shown;

FairqOwn	fairq_own;

static int	nsettings = 0;		/* number of changes of settings */

/* the reservations whose rows are being written */
static struct
{
	FairqReservation reservation;
	int32		pending;
}			in_flight[FAIRQ_MAX_ROWS];
static int	nin_flight = 0;

/*
 * Returns the bucket of the topmost change for a group, or an empty one for
 * it.
 */
static int32 *
slot_of(FairqLane *lane, int32 group_no)
{
	uint32		mask = 2 * max_stack - 1;
	uint32		of_lane = murmurhash32((uint32) ((uintptr_t) lane >> 6));
	uint32		at = hash_combine(of_lane,
								  murmurhash32((uint32) group_no)) & mask;

	while (topmost[at] != NO_INDEX &&
		   (stack[topmost[at]].lane != lane ||
			stack[topmost[at]].group_no != group_no))
		at = (at + 1) & mask;
	return &topmost[at];
}

/*
 * Returns the topmost change for a group of a lane, or the queue (-1); NULL:
 * none.
 */
static FairqPending *
topmost_pending(FairqLane *lane, int32 group_no)
{
	int32		index = nstack == 0 ? NO_INDEX : *slot_of(lane, group_no);

	return index == NO_INDEX ? NULL : &stack[index];
}

static FairqPending *
pending_below(const FairqPending *pending)
{
	return pending->below == NO_INDEX ? NULL : &stack[pending->below];
}

/* Make sure that one more change fits. */
static void
grow_stack(void)
{
	int			n = max_stack;
	int32	   *slots;

	if (nstack < max_stack)
		return;
	stack = fairq_grow(TopTransactionContext, stack, &n, 16,
					   sizeof(FairqPending));
	slots = MemoryContextAllocHuge(TopTransactionContext,
								   sizeof(int32) * 2 * n);
	if (topmost != NULL)
		pfree(topmost);
	topmost = slots;
	max_stack = n;
	memset(topmost, 0xFF, sizeof(int32) * 2 * n);
	for (int i = 0; i < nstack; i++)
		*slot_of(stack[i].lane, stack[i].group_no) = i;
}

/* Add later reservations of a group to those of the change. */
static void
add_reserved(FairqPending *pending, const FairqTail *before,
			 const FairqTail *last, uint32 lane_no)
{
	if (!pending->reserved.any)
	{
		pending->reserved.any = true;
		pending->reserved.before = *before;
	}
	else if (pending->reserved.lane_no != lane_no ||
			 pending->reserved.last.addr != before->addr ||
			 pending->reserved.last.count != before->count)
	{
		/* no tail can be restored */
		pending->reserved.torn = true;
	}
	pending->reserved.lane_no = lane_no;
	pending->reserved.last = *last;
}

/* Add to the slots that are held. */
static void
add_held(FairqHeld *held, FairqHeld more)
{
	held->slots += more.slots;
	held->running += more.running;
}

/*
 * Add the later work "from" to *work, and free "from".  If *work is NULL, it
 * becomes "from", which may be NULL, too.
 */
static void
merge_work(FairqWork **work, FairqWork *from)
{
	FairqWork  *to = *work;

	if (to == NULL || from == NULL)
	{
		*work = to == NULL ? from : to;
		return;
	}
	fairq_work_as_of(to, from->lane_no);
	if (to->tenant == FAIRQ_NO_NODE)
		to->tenant = from->tenant;
	to->begun += from->begun;
	to->begun_since += from->begun_since;
	to->ended += from->ended;
	to->ended_since += from->ended_since;
	to->over += from->over;
	to->over_since += from->over_since;
	to->taken += from->taken;
	to->taken_since += from->taken_since;
	to->took += from->took;
	to->longest = Max(to->longest, from->longest);
	to->lapsed += from->lapsed;
	pfree(from);
}

/* Merge a change of a subtransaction that has committed into its parent's. */
static void
merge(FairqPending *pending, FairqPending *more)
{
	/* changes that our own pops have seen are not shown again */
	if (pending->shown != 0 && more->shown == 0)
		publish_news(more->lane, more->group_no, &more->at_commit, false);
	nsettings -= (pending->done & more->done & FAIRQ_SETTINGS) != 0;
	if ((pending->done & more->done & FAIRQ_UNCOUNTED) != 0)
		fairq_tally_counted(&fairq_hints_of(more->lane)->tally);
	pending->done |= more->done;
	if (pending->held.counter == NULL)
		pending->held.counter = more->held.counter;
	else if (more->held.counter != NULL)
		fairq_counter_unpin(more->held.counter);
	add_held(&pending->held.own, more->held.own);
	add_held(&pending->held.in_queue, more->held.in_queue);
	for (int i = 0; i < FAIRQ_TALLIES; i++)
		pending->tally[i] += more->tally[i];
	for (int i = 0; i < FAIRQ_STATS; i++)
		pending->stats[i] += more->stats[i];
	if (more->reserved.any)
	{
		add_reserved(pending, &more->reserved.before, &more->reserved.last,
					 more->reserved.lane_no);
		pending->reserved.torn |= more->reserved.torn;
	}
	merge_news(&pending->at_commit, &more->at_commit);
	merge_news(&pending->at_abort, &more->at_abort);
	pending->highest = Max(pending->highest, more->highest);
	merge_work(&pending->work, more->work);
}

/* The changes of a subtransaction that has committed become its parent's. */
static void
sub_committed(SubTransactionId sub, SubTransactionId parent)
{
	int			end = nstack;

	while (nstack > 0 && stack[nstack - 1].sub == sub)
		nstack--;
	first_unshown = Min(first_unshown, nstack);
	for (int i = nstack; i < end; i++)
	{
		FairqPending *pending = &stack[i];
		FairqPending *below = pending_below(pending);
		int32	   *slot = slot_of(pending->lane, pending->group_no);

		if (below != NULL && below->sub == parent)
		{
			*slot = pending->below;
			merge(below, pending);
			continue;
		}
		pending->sub = parent;
		*slot = nstack;
		stack[nstack++] = *pending;
	}
}

/*
 * Returns the change of this subtransaction for a group of a lane; NULL: none.
 */
static FairqPending *
find_pending(FairqLane *lane, int32 group_no)
{
	FairqPending *pending = topmost_pending(lane, group_no);

	return pending != NULL && pending->sub == GetCurrentSubTransactionId() ?
		pending : NULL;
}

/*
 * The pending change of this subtransaction for a group of a lane, empty if it
 * is new.  The result is valid until the next call.
 */
FairqPending *
fairq_pending(FairqLane *lane, int32 group_no)
{
	FairqPending *pending;
	int32	   *slot;

	fairq_watch_transaction();

	pending = find_pending(lane, group_no);
	if (pending != NULL)
		return pending;

	grow_stack();
	if (group_no >= 0)
		fairq_chunks_have(&fairq_hints_of(lane)->chunks, group_no);
	slot = slot_of(lane, group_no);
	pending = &stack[nstack];
	*pending = (FairqPending) {
		.lane = lane,
		.group_no = group_no,
		.sub = GetCurrentSubTransactionId(),
		.below = *slot,
		.at_commit = no_news,
		.at_abort = no_news,
		.highest = FAIRQ_ADDR_NONE
	};
	*slot = nstack++;
	return pending;
}

/*
 * Record that this transaction claims a ready task, which is ready again if we
 * abort.  root is the TID to which index entries of its row point, if that is
 * known.
 */
void
fairq_pending_ready_at_abort(FairqPending *pending, const FairqTask *task,
							 const ItemPointerData *root)
{
	int64		addr = task->addr;
	FairqItem	item = {.addr = addr, .order = (uint32) task->id};

	pending->at_abort.nready++;
	if (fairq_is_timed(addr))
	{
		add_timed(&pending->at_abort, addr);
		return;
	}
	pending->highest = Max(pending->highest, addr);
	fairq_news_since(&pending->at_abort, Max(task->enqueued_at, task->run_at));
	if (root == NULL || !ItemPointerIsValid(root))
	{
		add_more(&pending->at_abort, addr);
		return;
	}
	item.tid = *root;
	add_item(&pending->at_abort, &item);
}

/* Record that a task is scheduled at an address, if we commit. */
void
fairq_pending_scheduled(FairqPending *pending, int64 addr)
{
	add_timed(&pending->at_commit, addr);
	fairq_own.tasks = true;
	if (pending->shown != 0)
		fairq_lane_add_timed(pending->lane, pending->group_no, addr, false);
}

/*
 * Record that the task at an address is leased until a time, if we commit.
 * searches: the lane's number of searches when it recorded the lease; 0: the
 * lease was not recorded.
 */
void
fairq_pending_leased_at_commit(FairqPending *pending, int64 addr,
							   TimestampTz until, uint64 searches)
{
	FairqLeases lease;

	fairq_leases_init(&lease);
	fairq_leases_add(&lease, addr, until);
	lease.searches = searches;
	add_leases(&later_of(&pending->at_commit)->leased, &lease);
	if (searches == 0 && pending->shown != 0)
		fairq_lane_add_leases(pending->lane, pending->group_no, &lease);
}

/*
 * Record that the task at an address has its old lease again, if we abort.
 * While we were changing the row, the lane may have dropped that lease.
 */
void
fairq_pending_leased_at_abort(FairqPending *pending, int64 addr,
							  TimestampTz until)
{
	FairqLeases *leased = &later_of(&pending->at_abort)->leased;

	fairq_leases_add(leased, addr, until);
	leased->searches = 0;
}

/*
 * Record a reserved address.  The row with this address is inserted next, or
 * after the earlier rows of the batch.  No code may fail between the
 * reservation and this call.
 */
void
fairq_pending_reserved(FairqPending *pending,
					   const FairqReservation *reservation)
{
	Assert(nin_flight < FAIRQ_MAX_ROWS);
	in_flight[nin_flight].reservation = *reservation;
	in_flight[nin_flight++].pending = pending - stack;
	add_reserved(pending, &reservation->before, &reservation->tail,
				 reservation->lane_no);
	pending->at_commit.nready++;
}

/* Unpin the last reservations, because their rows and index entries exist. */
static void
unpin_reservations(void)
{
	while (nin_flight > 0)
	{
		FairqGroup *pinned = in_flight[--nin_flight].reservation.pinned;

		if (pinned != NULL)
			fairq_entry_unpin(pinned);
	}
}

/*
 * Record that the row of the n-th of the last reservations exists, with its
 * index entries.  At the first call the rows of all these reservations already
 * exist; the last call ends the reservations.
 */
void
fairq_pending_row_written(int n, int64 id, ItemPointer tid)
{
	FairqPending *pending;
	FairqItem	item;

	if (n >= nin_flight)
		return;
	pending = &stack[in_flight[n].pending];
	item.addr = in_flight[n].reservation.tail.addr;
	item.order = (uint32) id;
	item.tid = *tid;
	add_item(&pending->at_commit, &item);
	fairq_own.tasks = true;
	if (pending->shown != 0)
		fairq_lane_add_ready(pending->lane, pending->group_no, &item, 1,
							 FAIRQ_ADDR_MAX, pending->at_commit.since);
	if (n == nin_flight - 1)
		unpin_reservations();
}

/*
 * Record that a queued task has a new row at its old address, if we commit.
 * Calls may have passed over the task meanwhile.
 */
void
fairq_pending_stays(FairqPending *pending, int64 addr)
{
	pending->at_commit.nready++;
	add_more(&pending->at_commit, addr);
	fairq_own.tasks = true;
	if (pending->shown != 0)
		fairq_lane_add_ready(pending->lane, pending->group_no, NULL, 0, addr,
							 pending->at_commit.since);
}

/*
 * Whether no other backend has taken turns in the queue since changes were
 * last shown to our own pops.  If other backends have taken turns, record the
 * lanes' narrowings so far.
 */
static bool
is_as_shown(FairqHints *hints)
{
	bool		same = shown.hints == hints;

	for (int p = 0; p < FAIRQ_PRIORITIES && same; p++)
		same = shown.at[p] ==
			pg_atomic_read_u32(&hints->lanes[p].narrowing.n);
	for (int p = 0; p < FAIRQ_PRIORITIES && !same; p++)
		shown.at[p] = fairq_lane_narrowings(&hints->lanes[p]);
	shown.hints = hints;
	return same;
}

/*
 * Show our own pops the tasks that this transaction has enqueued, changed and
 * leased in the queue, before they search.  Show them again if other calls
 * have taken turns since.  Returns whether there were ready tasks to show.
 */
bool
fairq_pending_show(FairqHints *hints)
{
	bool		any = false;
	int			first = nstack;

	if (nstack == 0)
		return false;
	for (int i = is_as_shown(hints) ? first_unshown : 0; i < nstack; i++)
	{
		FairqPending *pending = &stack[i];
		uint32		at = shown.at[pending->lane->priority];

		if (fairq_hints_of(pending->lane) != hints)
			first = pending->shown != 0 ? first : Min(first, i);
		else if (pending->shown != at)
		{
			publish_news(pending->lane, pending->group_no,
						 &pending->at_commit, false);
			pending->shown = at;
			any |= pending->at_commit.nready > 0;
		}
	}
	first_unshown = first;
	return any;
}

/* Whether the entry of one of the last reservations could not be pinned. */
bool
fairq_pending_any_unpinned(void)
{
	for (int i = 0; i < nin_flight; i++)
		if (in_flight[i].reservation.pinned == NULL)
			return true;
	return false;
}

/*
 * Returns the highest address at which an abort of this transaction, or of a
 * subtransaction, would put a task of the group back.  FAIRQ_ADDR_NONE: none.
 * If we have deleted the row of such a task, our own scans no longer see it.
 */
int64
fairq_pending_highest(FairqLane *lane, int32 group_no)
{
	int64		highest = FAIRQ_ADDR_NONE;

	for (FairqPending *p = topmost_pending(lane, group_no); p != NULL;
		 p = pending_below(p))
		highest = Max(highest, p->highest);
	return highest;
}

/*
 * Pin the counter of a change's group or tenant until the change is applied,
 * to hold slots in it.  counter is NULL if the caller has not pinned it.
 */
void
fairq_pending_pin(FairqPending *pending, FairqCounter *counter)
{
	if (pending->held.counter != NULL)
		return;
	if (counter != NULL)
		fairq_counter_pin(counter);
	else
		counter = fairq_shmem_counter(fairq_hints_of(pending->lane),
									  pending->group_no, true);
	pending->held.counter = counter;
}

/*
 * Record the slots that are held in the group of a change, and in its tenant
 * (FAIRQ_NO_SEAT: none).  Their counters are pinned, so this cannot fail.
 */
void
fairq_pending_hold(FairqPending *pending, int32 tenant, FairqHeld held)
{
	add_held(&pending->held.own, held);
	add_held(&pending->held.in_queue, held);
	if (tenant != FAIRQ_NO_SEAT)
		add_held(&find_pending(pending->lane, tenant)->held.own, held);
}

/*
 * Returns the change in leased tasks of the group or tenant, or of the queue
 * (-1), by this transaction.
 */
int32
fairq_pending_running(FairqHints *hints, int32 group_no)
{
	int32		running = 0;

	for (int i = 0; i < nstack; i++)
	{
		const FairqPending *pending = &stack[i];

		if (fairq_hints_of(pending->lane) != hints)
			continue;
		if (group_no < 0)
			running += pending->held.in_queue.running;
		else if (pending->group_no == group_no)
			running += pending->held.own.running;
	}
	return running;
}

/*
 * Record that settings of a group, or of the queue (-1), are changed.  Once
 * the new settings are visible, other backends must not park a group because
 * of the old ones.  If the change is rolled back, the same holds for the new
 * settings.  So the change is applied at commit and at abort.
 */
void
fairq_pending_settings(FairqHints *hints, int32 group_no)
{
	FairqLane  *lane = &hints->lanes[0];
	FairqPending *pending = find_pending(lane, -1);

	fairq_own.settings = true;
	/* a change of the settings of all groups takes all groups back */
	if (pending != NULL &&
		(pending->done & (FAIRQ_ALL_SETTINGS | FAIRQ_REMOVED)) != 0)
		return;
	if (group_no >= 0 && nsettings >= MOST_SETTINGS)
	{
		group_no = -1;
		fairq_pending_queue(hints, FAIRQ_ALL_SETTINGS);
	}
	pending = fairq_pending(lane, group_no);
	if ((pending->done & FAIRQ_SETTINGS) != 0)
		return;
	pending->done |= FAIRQ_SETTINGS;
	nsettings++;
	/* the group is taken back into service, if it is parked */
	if (group_no >= 0)
		fairq_pending_pin(pending, NULL);
}

/* Record a change of the queue. */
void
fairq_pending_queue(FairqHints *hints, FairqDone done)
{
	FairqPending *pending = fairq_pending(&hints->lanes[0], -1);

	if (done & ~pending->done & FAIRQ_UNCOUNTED)
		pg_atomic_fetch_add_u32(&hints->tally.uncounted, 1);
	pending->done |= done;
}

/* Add this transaction's changes so far to the numbers of tasks. */
void
fairq_pending_tallies(FairqHints *hints, int64 *n)
{
	for (int i = 0; i < nstack; i++)
		for (int t = 0; t < FAIRQ_TALLIES; t++)
			n[t] += fairq_hints_of(stack[i].lane) == hints ?
				stack[i].tally[t] : 0;
}

/* --------------------------------------------------------------------- */

/*
 * The lowest level of subtransactions at which a row or a setting was written;
 * 0: none.
 */
static int	written_at = 0;

/*
 * Sets of domains, with a bit for each index.  In these domains the
 * transaction changed groups, or settings of queues that had no hints.  There
 * are several if the transaction drops the extension and creates it again.
 */
StaticAssertDecl(FAIRQ_DOMAINS == 64, "a set of domains is a uint64");
static uint64 groups_changed = 0;
static uint64 settings_changed = 0;

/* functions of other modules, see fairq_transactions_init() */
static void (*end_call) (void);
static void (*settle_caches) (bool committed, bool all);

static void
note_level(int *at)
{
	int			level = GetCurrentTransactionNestLevel();

	*at = *at == 0 ? level : Min(*at, level);
}

/* Returns the present domain, as a set. */
static uint64
own_domain(void)
{
	fairq_shmem_attach();
	return UINT64CONST(1) << fairq_domain_index();
}

/* Increment the field at the given offset, in all domains of a set. */
static void
increment(uint64 domains, Size field)
{
	for (; domains != 0; domains &= domains - 1)
	{
		char	   *domain =
			(char *) fairq_domain_at(pg_rightmost_one_pos64(domains));

		pg_atomic_fetch_add_u64((pg_atomic_uint64 *) (domain + field), 1);
	}
}

/* Give the changes of a subtransaction to its parent, or undo them. */
static void
end_level(bool committed)
{
	int		   *const all[] = {&written_at, &fairq_own.groups_freed_at};
	int			level = GetCurrentTransactionNestLevel();

	for (int i = 0; i < lengthof(all); i++)
	{
		if (*all[i] >= level)
			*all[i] = committed ? level - 1 : 0;
	}
}

/*
 * Make backends reread the settings and privileges that are affected by the
 * changes from an index on.  The call precedes the publication of the same
 * transaction's tasks.  If the transaction pauses a queue and adds a task, the
 * task must not start.
 */
static void
publish_versions(int first)
{
	increment(settings_changed, offsetof(FairqDomain, settings));
	for (int i = first; i < nstack; i++)
	{
		FairqPending *pending = &stack[i];
		FairqVersions *versions = &fairq_hints_of(pending->lane)->versions;

		if (pending->done & (FAIRQ_ALL_SETTINGS | FAIRQ_DROPPED))
			fairq_version_up(versions, FAIRQ_ALL_CHANGED);
		else if (pending->done & (FAIRQ_SETTINGS | FAIRQ_GRANTED))
			fairq_version_up(versions, pending->group_no < 0 ?
							 FAIRQ_QUEUE_CHANGED : pending->group_no);
	}
}

/*
 * Publish the rest of a change: changed settings, a changed queue, or the end
 * of the task for which the group was put aside.
 */
static void
publish_rest(FairqPending *pending, bool committed)
{
	FairqHints *hints = fairq_hints_of(pending->lane);
	bool		back = (pending->done & FAIRQ_SETTINGS) ||
		(committed && (pending->done & FAIRQ_ENDS_RETRIED));

	if (back && pending->group_no < 0)
		fairq_take_all_back(hints);
	else if (back)
		fairq_take_back(hints, pending->group_no, FAIRQ_ALL_LANES);
	if (pending->done & FAIRQ_UNCOUNTED)
		fairq_tally_counted(&hints->tally);
	if (pending->done & FAIRQ_DROPPED)
		fairq_wake(&hints->wakeup, FAIRQ_ALL_WAITERS);
	/* sessions may be waiting for the end of uncounted transactions */
	else if ((pending->done & FAIRQ_SETTINGS) ||
			 ((pending->done & FAIRQ_UNCOUNTED) &&
			  pg_atomic_read_u32(&hints->tally.limited) != 0))
		fairq_wake_chain(&hints->wakeup);
}

static void
apply_pending(FairqPending *pending, bool committed)
{
	FairqLane  *lane = pending->lane;
	const FairqNews *news = committed ? &pending->at_commit :
		&pending->at_abort;

	if (committed)
	{
		publish_news(lane, pending->group_no, news, false);
		fairq_stall("publish");
		for (int i = 0; i < FAIRQ_STATS; i++)
			if (pending->stats[i] > 0)
				pg_atomic_fetch_add_u64(&lane->stats[i], pending->stats[i]);
		fairq_tally_commit(&fairq_hints_of(lane)->tally, pending->tally);
	}
	else
	{
		if (pending->reserved.any && !pending->reserved.torn)
			fairq_lane_unreserve(lane, pending->reserved.lane_no,
								 pending->group_no, pending->reserved.last,
								 pending->reserved.before);
		publish_news(lane, pending->group_no, news, true);
	}
	fairq_work_end(lane, pending->group_no, pending->work, committed);
	publish_rest(pending, committed);
	if (news->nready > 0)
		fairq_wake(&fairq_hints_of(lane)->wakeup, news->nready);
}

/*
 * End the call in progress, if an error or the end of the transaction has
 * interrupted it.
 */
static void
end_calls(void)
{
	unpin_reservations();
	end_call();
}

/* Close the slots of a change; with adds, also add its leased tasks. */
static void
close_slots(FairqPending *pending, const FairqAdds *adds)
{
	FairqHeld	own = pending->held.own;
	FairqHeld	in_queue = pending->held.in_queue;

	pending->held.parked = fairq_counter_ended(pending->held.counter, adds,
											   own.slots, own.running);
	(void) fairq_counter_ended(&fairq_hints_of(pending->lane)->running, adds,
							   in_queue.slots, in_queue.running);
}

/*
 * Close the slots of changes, and if committed add their leased tasks.
 */
static void
close_all_slots(int first, int end, bool committed)
{
	FairqQueueTally *entered = NULL;
	FairqAdds	adds;

	for (int i = first; i < end; i++)
	{
		FairqPending *pending = &stack[i];
		FairqQueueTally *tally = &fairq_hints_of(pending->lane)->tally;

		if (pending->held.counter == NULL)
			continue;
		/* the extension may have been dropped and created again */
		if (committed && (entered == NULL || entered->tally != tally->tally))
		{
			if (entered != NULL)
				fairq_tally_leave(entered);
			entered = tally;
			fairq_tally_enter(entered, &adds);
		}
		close_slots(pending, committed ? &adds : NULL);
	}
	if (entered != NULL)
		fairq_tally_leave(entered);
}

/* Take back the group that was parked, and wake waiters for free slots. */
static void
slots_are_closed(FairqPending *pending, bool committed)
{
	FairqHints *hints = fairq_hints_of(pending->lane);
	FairqHeld	in_queue = pending->held.in_queue;
	int32		freed = in_queue.slots - (committed ? in_queue.running : 0);

	fairq_take_back(hints, pending->group_no, pending->held.parked);
	/*
	 * Other groups may also be waiting for a slot in the queue.  Wake waiters
	 * even if the load has counted the freed slots, because they may have
	 * searched before that.
	 */
	if (freed > 0)
		fairq_wake(&hints->wakeup, freed);
	fairq_counter_unpin(pending->held.counter);
}

/*
 * Apply the changes from an index on, the last one first.  These are the
 * changes of the subtransaction, or all.  If these changes remove a queue, its
 * hints are given back after all changes of the queue.
 */
static void
apply_from(int first, bool committed)
{
	int			end = nstack;

	publish_versions(first);
	while (nstack > first)
	{
		FairqPending *pending = &stack[--nstack];

		*slot_of(pending->lane, pending->group_no) = pending->below;
		nsettings -= (pending->done & FAIRQ_SETTINGS) != 0;
		apply_pending(pending, committed);
		release_news(&pending->at_commit);
		release_news(&pending->at_abort);
		if (pending->work != NULL)
			pfree(pending->work);
	}
	first_unshown = Min(first_unshown, nstack);
	fairq_tally_committed();
	/* changes that were taken off the stack stay in the array */
	close_all_slots(first, end, committed);
	for (int i = first; i < end; i++)
	{
		FairqPending *pending = &stack[i];

		if (pending->held.counter != NULL)
			slots_are_closed(pending, committed);
	}
	for (int i = first; i < end; i++)
	{
		FairqPending *pending = &stack[i];

		if (pending->done & (committed ? FAIRQ_REMOVED : FAIRQ_CREATED))
			fairq_shmem_release(fairq_hints_of(pending->lane));
	}
}

static void
apply_all(bool committed)
{
	end_calls();
	/* do this while the hints still belong to the queues */
	fairq_samples_end(committed);
	apply_from(0, committed);
	/* the memory of changes is freed with the transaction */
	stack = NULL;
	topmost = NULL;
	max_stack = 0;
	first_unshown = 0;
	shown.hints = NULL;
	increment(fairq_own.rows, offsetof(FairqDomain, resets));
	increment(groups_changed, offsetof(FairqDomain, group_changes));
	groups_changed = settings_changed = 0;
	written_at = 0;
	fairq_own = (FairqOwn) {0};
	settle_caches(committed, true);
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			fairq_stall("commit");
			apply_all(true);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			/* a transaction that can be prepared has written no row */
			apply_all(false);
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (written_at > 0)
				ereport(ERROR,
						errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot PREPARE a transaction that has written to tables of fairq"));
			break;
		default:
			break;
	}
}

static void
subxact_callback(SubXactEvent event, SubTransactionId sub,
				 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		sub_committed(sub, parent);
		fairq_samples_sub_end(sub, parent, true);
		end_level(true);
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		int			first = nstack;

		end_calls();
		while (first > 0 && stack[first - 1].sub == sub)
			first--;
		fairq_samples_sub_end(sub, parent, false);
		apply_from(first, false);
		increment(fairq_own.rows, offsetof(FairqDomain, resets));
		settle_caches(false, false);
		end_level(false);
	}
}

/* Make the transaction's end call these functions. */
void
fairq_watch_transaction(void)
{
	static bool registered = false;

	if (registered)
		return;
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
	registered = true;
}

/* Make our changes visible to later commands of this transaction. */
void
fairq_written(void)
{
	fairq_watch_transaction();
	note_level(&written_at);
	CommandCounterIncrement();
}

/*
 * Invalidate all hints of this extension at the end of the transaction.
 *
 * If "settings" is true, settings of queues without hints have changed.  The
 * queues may have hints by the time of the commit.  The sets of parked groups
 * are then invalid, too, and backends that have read the settings meanwhile
 * read them again.
 */
void
fairq_pending_reset(bool settings)
{
	fairq_watch_transaction();
	note_level(&written_at);
	fairq_own.rows |= own_domain();
	if (settings)
		settings_changed |= own_domain();
}

/*
 * Invalidate cached groups, now and at the end of the transaction.  With
 * freed, numbers of groups may have been freed.  Without freed, the function
 * notifies other backends only once, although it is called for each row.
 * Groups that they read meanwhile become invalid at the end.  Returns false if
 * no backend was notified, so the caller has to invalidate its own cache.
 */
bool
fairq_pending_groups(bool freed)
{
	uint64		own = own_domain();
	bool		first = (groups_changed & own) == 0;

	fairq_watch_transaction();
	note_level(&written_at);
	groups_changed |= own;
	if (freed)
		note_level(&fairq_own.groups_freed_at);
	if (!first && !freed)
		return false;
	pg_atomic_fetch_add_u64(&fairq_domain()->group_changes, 1);
	return true;
}

/*
 * Once per backend: set the functions to call at the end of a transaction or
 * the abort of a subtransaction.  They must neither fail nor allocate.  "end"
 * ends a call that an error or the transaction's end has interrupted, before
 * pending changes are applied.  "settle" settles caches after they are
 * applied; all: the transaction has ended, not only a subtransaction.
 */
void
fairq_transactions_init(void (*end) (void),
						void (*settle) (bool committed, bool all))
{
	end_call = end;
	settle_caches = settle;
}
