/*
 * transaction.c
 *		What this transaction owes to shared memory when it ends.
 *
 * Hints must follow what others can see: a task is ready when its enqueue has
 * committed, and again when its pop has aborted, and not a moment before.  So
 * each call of fairq writes down what will have to be said at the end of its
 * transaction or subtransaction, and the callbacks here say it.  They run
 * after the end is visible to everybody: at XACT_EVENT_COMMIT and ABORT the
 * transaction has left the array of running ones, at ABORT_SUB the
 * subtransaction is marked as aborted.
 *
 * The debts are a stack.  Those of a subtransaction lie on top of its
 * parent's; if it commits they are relabelled as the parent's, if it aborts
 * they are settled in reverse order and popped.  The reverse order lets
 * reservations be put back one after the other.
 *
 * The stack is bounded by the number of groups that the cache has entries for.
 * Past that a transaction owes by lanes only: if tasks are ready at its end,
 * or leases are to be known of, then all that is known of the lane is
 * forgotten, and read off the table again.
 *
 * Of the tasks that become ready the debt of a group keeps the lowest, with
 * the TIDs of their rows, as many as a hand holds (hand.c), and the address
 * from which on there are more.
 *
 * A debt is found through a hash table of the topmost ones for each group of a
 * lane; each debt knows the one below it.  Debts come and go as on a stack, so a
 * slot is simply given back to the one below, or emptied: whatever was put in
 * behind it has gone before.
 *
 * Locking: the callbacks take lanes' locks, one at a time.  They must neither
 * fail (an ERROR there would be a PANIC) nor allocate: all memory is had when
 * the debt is made, and all shared memory they touch is mapped by then.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "utils/memutils.h"

#include "due.h"
#include "group.h"
#include "queue.h"
#include "registry.h"
#include "running.h"
#include "shmem.h"
#include "transaction.h"
#include "turns.h"

/* some 40 MB, for who has as many groups */
#define MAX_DEBTS (FAIRQ_SETS * FAIRQ_SET_WAYS)

/* queues of which a transaction remembers what its own pops were told */
#define MAX_SHOWN 16

/* what a debt, a slot or a list has none of */
#define NO_DEBT (-1)

static FairqDebt *debts = NULL; /* in TopTransactionContext */
static int	ndebts = 0;
static int	maxdebts = 0;
static int32 *topmost = NULL;	/* 2 * maxdebts slots, likewise */

/* debts that change what our own pops find, and of which that was not said */
static int32 unshown = NO_DEBT;

/* Of a queue's debts our own pops were told, but for those in unshown. */
typedef struct Shown
{
	FairqHints *hints;
	uint16		lanes;			/* in which lanes, as bits */
	uint64		at[FAIRQ_PRIORITIES];	/* their narrowings then */
} Shown;

static Shown shown[MAX_SHOWN];
static int	nshown = 0;
static int	next_shown = 0;		/* the one to give up when all are in use */

static bool own_tasks = false;	/* some debt makes tasks ready at commit */
static bool to_undo = false;	/* some debt has ready_at_abort */
static bool to_leave = false;	/* some debt has a counter to leave */

/* the reservations whose rows are being written */
static struct
{
	FairqReservation reservation;
	int32		debt;
}			in_flight[FAIRQ_MAX_ROWS];
static int	nin_flight = 0;

/*
 * Something was written, if only a setting: at what level of subtransactions,
 * that is, the lowest one; 0: at none.
 */
static int	written_at = 0;
static bool settings_pending = false;

/* likewise, rows were changed by others' means, in this domain */
static int	changed_at = 0;
static FairqDomain *changed = NULL;

/* likewise, groups in it were changed, and numbers of them freed */
static int	groups_changed_at = 0;
static FairqDomain *groups_changed = NULL;
static bool groups_freed = false;

/* settings in it were changed of queues that shared memory did not know */
static FairqDomain *settings_changed = NULL;

static void
note_level(int *at)
{
	int			level = GetCurrentTransactionNestLevel();

	*at = *at == 0 ? level : Min(*at, level);
}

/* What was done in the subtransaction that ends is its parent's, or undone. */
static void
end_level(bool committed)
{
	int		   *const all[] = {&written_at, &changed_at, &groups_changed_at};
	int			level = GetCurrentTransactionNestLevel();

	for (int i = 0; i < lengthof(all); i++)
	{
		if (*all[i] >= level)
			*all[i] = committed ? level - 1 : 0;
	}
}

/*
 * The tasks that news are of, in lists of these.  Nodes are had when something is
 * owed, and given back when that is settled.
 */
typedef struct ItemNode
{
	FairqItem	item;
	int32		next;			/* NO_DEBT: none */
} ItemNode;

static ItemNode *nodes = NULL;	/* in TopTransactionContext */
static int32 nnodes = 0;
static int32 maxnodes = 0;
static int32 free_node = NO_DEBT;

static int32
new_node(void)
{
	int32		node = free_node;

	if (node != NO_DEBT)
	{
		free_node = nodes[node].next;
		return node;
	}
	if (nnodes == maxnodes)
	{
		int32		n = maxnodes == 0 ? 64 : maxnodes * 2;

		nodes = nodes == NULL ?
			MemoryContextAllocHuge(TopTransactionContext, sizeof(ItemNode) * n) :
			repalloc_huge(nodes, sizeof(ItemNode) * n);
		maxnodes = n;
	}
	return nnodes++;
}

static void
release_node(int32 node)
{
	nodes[node].next = free_node;
	free_node = node;
}

/* Tasks are ready from there on, wherever. */
static void
owe_more(FairqNews *news, int64 addr)
{
	news->more = Min(news->more, addr);
}

/* Of the ready tasks of which there are news, the lowest are known. */
static void
owe_item(FairqNews *news, const FairqItem *item)
{
	int32	   *at = &news->items;
	int32		node = new_node();

	while (*at != NO_DEBT && nodes[*at].item.addr <= item->addr)
		at = &nodes[*at].next;
	nodes[node].item = *item;
	nodes[node].next = *at;
	*at = node;
	if (news->nitems < FAIRQ_HAND)
	{
		news->nitems++;
		return;
	}
	at = &news->items;
	while (nodes[*at].next != NO_DEBT)
		at = &nodes[*at].next;
	owe_more(news, nodes[*at].item.addr);
	release_node(*at);
	*at = NO_DEBT;
}

static void
init_leases(FairqLeases *leases)
{
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		leases->low[r] = FAIRQ_ADDR_MAX;
		leases->high[r] = FAIRQ_ADDR_NONE;
	}
	leases->until = DT_NOEND;
	leases->looks = PG_UINT64_MAX;
}

static void
init_news(FairqNews *news)
{
	news->items = NO_DEBT;
	news->nitems = 0;
	news->more = FAIRQ_ADDR_MAX;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		news->scheduled[r] = FAIRQ_ADDR_MAX;
	init_leases(&news->leased);
}

/* There is nothing to tell any more. */
static void
release_news(FairqNews *news)
{
	while (news->items != NO_DEBT)
	{
		int32		node = news->items;

		news->items = nodes[node].next;
		release_node(node);
	}
	init_news(news);
}

static bool
are_ready(const FairqNews *news)
{
	return news->nitems > 0 || news->more != FAIRQ_ADDR_MAX;
}

static bool
has_tasks(const FairqNews *news)
{
	bool		any = are_ready(news);

	for (int r = 0; r < FAIRQ_REGIONS; r++)
		any |= news->scheduled[r] != FAIRQ_ADDR_MAX;
	return any;
}

static bool
is_nothing(const FairqNews *news)
{
	return !has_tasks(news) && news->leased.until == DT_NOEND;
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
	leases->looks = Min(leases->looks, more->looks);
}

/* News of a whole lane: which tasks does not matter. */
static void
add_lane_news(FairqNews *news, const FairqNews *more)
{
	owe_more(news, more->more);
	if (more->nitems > 0)
		owe_more(news, 0);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		news->scheduled[r] = Min(news->scheduled[r], more->scheduled[r]);
	add_leases(&news->leased, &more->leased);
}

/* Tasks are scheduled; or, again, they may have fallen due by now. */
static void
say_scheduled(FairqDebt *debt, int64 addr, bool again)
{
	if (addr == FAIRQ_ADDR_MAX)
		return;
	if (again)
		fairq_lane_tell_timed(debt->lane, debt->group_no, addr);
	else
		fairq_lane_scheduled(debt->lane, addr);
	fairq_wake_in_time(&fairq_hints_of(debt->lane)->wakeup,
					   fairq_due_time(addr));
}

/* All is to be read off the table again, and its leases by another census. */
static void
forget(FairqLane *lane)
{
	fairq_lane_forget(lane);
	pg_atomic_fetch_add_u64(&fairq_domain_at(lane->domain)->forgets, 1);
}

static void
say(FairqDebt *debt, const FairqNews *news, bool again)
{
	FairqLane  *lane = debt->lane;

	if (is_nothing(news))
		return;
	if (debt->group_no < 0 && (again || are_ready(news)))
	{
		/* whose these are is not known: all is read again */
		forget(lane);
		fairq_wake_all(&fairq_hints_of(lane)->wakeup);
		return;
	}
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		say_scheduled(debt, news->scheduled[r], again);
	if (are_ready(news))
	{
		FairqItem	items[FAIRQ_HAND];
		int			n = 0;

		for (int32 at = news->items; at != NO_DEBT; at = nodes[at].next)
			items[n++] = nodes[at].item;
		fairq_lane_tell(lane, debt->group_no, items, n, news->more);
	}
	if (news->leased.until != DT_NOEND)
	{
		if (debt->group_no < 0)
			forget(lane);
		else
			fairq_lane_leased(lane, debt->group_no, &news->leased);
		fairq_wake_in_time(&fairq_hints_of(lane)->wakeup,
						   news->leased.until);
	}
}

/* n tasks are not running any more. */
static void
leave(FairqDebt *debt, int32 n)
{
	FairqHints *hints = fairq_hints_of(debt->lane);

	if (debt->settings || debt->granted || debt->dropped)
		pg_atomic_fetch_add_u64(&hints->version, 1);
	if (debt->group_no < 0)
	{
		if (debt->uncounted)
		{
			/* in this order: census.c */
			pg_atomic_fetch_add_u64(&fairq_domain_at(debt->lane->domain)->uncounted, 1);
			pg_atomic_fetch_add_u64(&hints->uncounted, 1);
		}
		if (debt->uncounted || debt->settings)
			fairq_unpark_all(hints);
	}
	else if (debt->counter != NULL && (n > 0 || debt->settings))
	{
		FairqAsOf	now = fairq_lane_as_of(debt->lane);
		uint16		parked;

		/* in this order: counter.c, rule 8 */
		parked = fairq_counter_leave(debt->counter, now, n, debt->count_no);
		(void) fairq_counter_leave(&hints->running, now, n,
								   debt->queue_count_no);
		fairq_unpark(hints, debt->group_no, parked);
		/* others, too, may have waited for a slot in the queue */
		fairq_wake(&hints->wakeup, n);
	}
	if (debt->dropped)
		fairq_wake_all(&hints->wakeup);
	else if (debt->settings)
		fairq_wake_chain(&hints->wakeup);
	if (debt->counter != NULL)
		fairq_counter_unpin(debt->counter);
}

static void
settle(FairqDebt *debt, bool committed)
{
	FairqLane  *lane = debt->lane;
	int32		nready;

	if (committed)
	{
		say(debt, &debt->at_commit, false);
		for (int i = 0; i < FAIRQ_STATS; i++)
			if (debt->stats[i] > 0)
				pg_atomic_fetch_add_u64(&lane->stats[i], debt->stats[i]);
	}
	else
	{
		if (debt->reserved && !debt->torn)
			fairq_lane_unreserve(lane, debt->lane_no, debt->group_no,
								 debt->last, debt->before);
		say(debt, &debt->at_abort, true);
	}
	leave(debt, committed ? debt->leave_at_commit : debt->leave_at_abort);
	nready = committed ? debt->nready_at_commit : debt->nready_at_abort;
	if (nready > 0)
		fairq_wake(&fairq_hints_of(lane)->wakeup, nready);
}

/* Others hear of it at commit, our own pops before they look. */
static void
owe_unshown(FairqDebt *debt)
{
	own_tasks |= has_tasks(&debt->unsaid);
	if (debt->unshown)
		return;
	debt->unshown = true;
	debt->prev_unshown = NO_DEBT;
	debt->next_unshown = unshown;
	unshown = debt - debts;
	if (debt->next_unshown != NO_DEBT)
		debts[debt->next_unshown].prev_unshown = unshown;
}

static void
remove_unshown(FairqDebt *debt)
{
	if (!debt->unshown)
		return;
	release_news(&debt->unsaid);
	debt->unshown = false;
	if (debt->next_unshown != NO_DEBT)
		debts[debt->next_unshown].prev_unshown = debt->prev_unshown;
	if (debt->prev_unshown != NO_DEBT)
		debts[debt->prev_unshown].next_unshown = debt->next_unshown;
	else
		unshown = debt->next_unshown;
}

/* The slot of the topmost debt for that, or the empty one where it belongs. */
static int32 *
slot_of(FairqLane *lane, int32 group_no)
{
	uint32		mask = 2 * maxdebts - 1;
	uint32		at = hash_combine(murmurhash32((uint32) ((uintptr_t) lane >> 6)),
								  murmurhash32((uint32) group_no)) & mask;

	while (topmost[at] != NO_DEBT &&
		   (debts[topmost[at]].lane != lane ||
			debts[topmost[at]].group_no != group_no))
		at = (at + 1) & mask;
	return &topmost[at];
}

/* The topmost debt for a group of a lane, or the lane (-1); NULL: none. */
static FairqDebt *
topmost_debt(FairqLane *lane, int32 group_no)
{
	int32		index = ndebts == 0 ? NO_DEBT : *slot_of(lane, group_no);

	return index == NO_DEBT ? NULL : &debts[index];
}

static FairqDebt *
debt_below(const FairqDebt *debt)
{
	return debt->below == NO_DEBT ? NULL : &debts[debt->below];
}

/* Take the last debt off the stack. */
static FairqDebt *
pop_debt(void)
{
	FairqDebt  *debt = &debts[ndebts - 1];

	*slot_of(debt->lane, debt->group_no) = debt->below;
	remove_unshown(debt);
	ndebts--;
	return debt;
}

/* Make room for one more debt. */
static void
grow(void)
{
	int			n = maxdebts == 0 ? 16 : maxdebts * 2;
	FairqDebt  *more;
	int32	   *slots;

	if (ndebts < maxdebts)
		return;
	slots = MemoryContextAllocHuge(TopTransactionContext,
								   sizeof(int32) * 2 * n);
	more = MemoryContextAllocHuge(TopTransactionContext,
								  sizeof(FairqDebt) * n);
	if (debts != NULL)
	{
		memcpy(more, debts, sizeof(FairqDebt) * ndebts);
		pfree(debts);
		pfree(topmost);
	}
	debts = more;
	topmost = slots;
	maxdebts = n;
	memset(topmost, 0xFF, sizeof(int32) * 2 * n);
	for (int i = 0; i < ndebts; i++)
		*slot_of(debts[i].lane, debts[i].group_no) = i;
}

/* What was being done, an error or the end has ended it. */
static void
end_call(void)
{
	fairq_debt_written();
	fairq_turns_end();
	fairq_running_end();
	fairq_census_end();
	fairq_look_end();
}

/* The queue's hints may be another's from now on. */
static void
forget_shown(FairqHints *hints)
{
	for (int i = 0; i < nshown; i++)
		if (shown[i].hints == hints)
			shown[i].hints = NULL;
}

/*
 * Settle the debts from an index on, the last one first.  The hints of queues
 * that are gone by that are given back after all that was owed to them.
 */
static void
settle_from(int first, bool committed)
{
	int			end = ndebts;

	while (ndebts > first)
	{
		FairqDebt  *debt = pop_debt();

		settle(debt, committed);
		release_news(&debt->at_commit);
		release_news(&debt->at_abort);
	}
	for (int i = first; i < end; i++)
	{
		FairqHints *hints = fairq_hints_of(debts[i].lane);

		if (committed ? debts[i].removed : debts[i].created)
		{
			forget_shown(hints);
			fairq_shmem_release(hints);
		}
	}
}

static void
settle_all(bool committed)
{
	end_call();
	settle_from(0, committed);
	debts = NULL;
	topmost = NULL;
	maxdebts = 0;
	nodes = NULL;
	nnodes = maxnodes = 0;
	free_node = NO_DEBT;
	unshown = NO_DEBT;
	nshown = next_shown = 0;
	own_tasks = to_undo = to_leave = false;
	written_at = changed_at = groups_changed_at = 0;
	settings_pending = groups_freed = false;
	if (changed)
		pg_atomic_fetch_add_u64(&changed->resets, 1);
	if (groups_changed)
		pg_atomic_fetch_add_u64(&groups_changed->group_changes, 1);
	if (settings_changed)
		pg_atomic_fetch_add_u64(&settings_changed->settings, 1);
	changed = groups_changed = settings_changed = NULL;
	if (!committed)
	{
		fairq_wait_end(true, DT_NOEND);
		fairq_groups_forget_uncommitted();
	}
	fairq_groups_committed();
	fairq_queue_changes_end(committed, true);
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			settle_all(true);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			/* of who has written nothing, debts owe nothing either way */
			settle_all(false);
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (Max(Max(written_at, changed_at), groups_changed_at) > 0)
				ereport(ERROR,
						errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot PREPARE a transaction that has written to tables of fairq"));
			break;
		default:
			break;
	}
}

/* A lane's debt that was left by a subtransaction goes into one below it. */
static bool
merge_into_lane_debt_below(int index)
{
	FairqDebt  *debt = &debts[index];

	for (int i = index - 1; i >= 0 && i >= index - FAIRQ_PRIORITIES; i--)
	{
		FairqDebt  *below = &debts[i];

		if (below->group_no >= 0 || below->sub != debt->sub)
			return false;
		if (below->lane != debt->lane)
			continue;
		add_lane_news(&below->at_commit, &debt->at_commit);
		add_lane_news(&below->unsaid, &debt->at_commit);
		owe_unshown(below);
		add_lane_news(&below->at_abort, &debt->at_abort);
		below->nready_at_commit += debt->nready_at_commit;
		below->nready_at_abort += debt->nready_at_abort;
		below->highest_at_abort = Max(below->highest_at_abort,
									  debt->highest_at_abort);
		below->settings |= debt->settings;
		below->granted |= debt->granted;
		below->dropped |= debt->dropped;
		below->created |= debt->created;
		below->removed |= debt->removed;
		below->uncounted |= debt->uncounted;
		for (int c = 0; c < FAIRQ_STATS; c++)
			below->stats[c] += debt->stats[c];
		return true;
	}
	return false;
}

static void
subxact_callback(SubXactEvent event, SubTransactionId sub,
				 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (int i = ndebts - 1; i >= 0 && debts[i].sub == sub; i--)
			debts[i].sub = parent;
		while (ndebts > 1 && debts[ndebts - 1].group_no < 0 &&
			   merge_into_lane_debt_below(ndebts - 1))
		{
			FairqDebt  *debt = pop_debt();

			release_news(&debt->at_commit);
			release_news(&debt->at_abort);
		}
		end_level(true);
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		int			first = ndebts;

		end_call();
		while (first > 0 && debts[first - 1].sub == sub)
			first--;
		settle_from(first, false);
		if (changed)
			pg_atomic_fetch_add_u64(&changed->resets, 1);
		if (settings_changed)
			pg_atomic_fetch_add_u64(&settings_changed->settings, 1);
		fairq_groups_forget_uncommitted();
		fairq_queue_changes_end(false, false);
		end_level(false);
		groups_freed &= groups_changed_at > 0;
	}
}

/* Have the end of the transaction told to the functions here. */
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

/* Let later commands of this transaction see what was written. */
void
fairq_written(void)
{
	fairq_watch_transaction();
	note_level(&written_at);
	CommandCounterIncrement();
}

/* The debt of this subtransaction for a group of a lane; NULL: none. */
static FairqDebt *
find_debt(FairqLane *lane, int32 group_no)
{
	FairqDebt  *debt = topmost_debt(lane, group_no);

	return debt != NULL && debt->sub == GetCurrentSubTransactionId() ?
		debt : NULL;
}

/*
 * The debt of this subtransaction for a group of a lane, owing nothing yet if
 * it is new.  Valid until the next call.
 */
FairqDebt *
fairq_debt(FairqLane *lane, int32 group_no)
{
	FairqDebt  *debt;
	int32	   *slot;

	fairq_watch_transaction();

	if (ndebts >= MAX_DEBTS)
		group_no = -1;
	debt = find_debt(lane, group_no);
	if (debt != NULL)
		return debt;

	grow();
	if (group_no >= 0)
		fairq_chunks_have(&fairq_hints_of(lane)->chunks, group_no);
	slot = slot_of(lane, group_no);
	debt = &debts[ndebts];
	memset(debt, 0, sizeof(FairqDebt));
	debt->sub = GetCurrentSubTransactionId();
	debt->lane = lane;
	debt->group_no = group_no;
	debt->below = *slot;
	*slot = ndebts++;
	init_news(&debt->at_commit);
	init_news(&debt->unsaid);
	init_news(&debt->at_abort);
	debt->highest_at_abort = FAIRQ_ADDR_NONE;
	return debt;
}

/*
 * A task that was ready there is ours, unless we abort.  root is where an index
 * leads to its row, if that is known.
 */
void
fairq_debt_ready_at_abort(FairqDebt *debt, int64 addr, int64 id,
						  const ItemPointerData *root)
{
	FairqItem	item = {.addr = addr, .order = (uint32) id};

	debt->nready_at_abort++;
	to_undo = true;
	if (fairq_is_timed(addr))
	{
		FairqRegion region = fairq_region(addr);

		debt->at_abort.scheduled[region] =
			Min(debt->at_abort.scheduled[region], addr);
		return;
	}
	debt->highest_at_abort = Max(debt->highest_at_abort, addr);
	if (debt->group_no < 0 || root == NULL || !ItemPointerIsValid(root))
	{
		owe_more(&debt->at_abort, addr);
		return;
	}
	item.tid = *root;
	owe_item(&debt->at_abort, &item);
}

/* A task is scheduled there, if we commit. */
void
fairq_debt_scheduled(FairqDebt *debt, int64 addr)
{
	FairqRegion region = fairq_region(addr);

	debt->at_commit.scheduled[region] =
		Min(debt->at_commit.scheduled[region], addr);
	debt->unsaid.scheduled[region] =
		Min(debt->unsaid.scheduled[region], addr);
	owe_unshown(debt);
}

static void
add_lease(FairqLeases *leases, int64 addr, TimestampTz until, uint64 looks)
{
	FairqRegion region = fairq_region(addr);

	leases->low[region] = Min(leases->low[region], addr);
	leases->high[region] = Max(leases->high[region], addr);
	leases->until = Min(leases->until, until);
	leases->looks = Min(leases->looks, looks);
}

/*
 * A task there is leased until then, if we commit.  That was noted when it was
 * taken, by so many looks; or not (0).
 */
void
fairq_debt_leased_at_commit(FairqDebt *debt, int64 addr, TimestampTz until,
							uint64 looks)
{
	add_lease(&debt->at_commit.leased, addr, until, looks);
	if (looks > 0)
		return;
	add_lease(&debt->unsaid.leased, addr, until, looks);
	owe_unshown(debt);
}

/*
 * The task there has its old lease again, if we abort.  The lane may have let
 * go of that while the row was in our hands.
 */
void
fairq_debt_leased_at_abort(FairqDebt *debt, int64 addr, TimestampTz until)
{
	add_lease(&debt->at_abort.leased, addr, until, 0);
}

/*
 * An address was reserved; its row comes soon, with no more than the others of
 * a batch before it.  Nothing may fail between the reservation and this.
 */
void
fairq_debt_reserved(FairqDebt *debt, const FairqReservation *reservation)
{
	Assert(nin_flight < FAIRQ_MAX_ROWS);
	in_flight[nin_flight].reservation = *reservation;
	in_flight[nin_flight++].debt = debt - debts;
	if (!debt->reserved)
	{
		debt->reserved = true;
		debt->before = reservation->before;
		debt->lane_no = reservation->lane_no;
	}
	else if (debt->lane_no != reservation->lane_no ||
			 debt->last.addr != reservation->before.addr ||
			 debt->last.count != reservation->before.count)
	{
		/* there is no tail any more that could be put back */
		debt->torn = true;
		debt->lane_no = reservation->lane_no;
	}
	debt->last = reservation->tail;
	debt->nready_at_commit++;
}

/* The row of the n-th of the last reservations is there. */
void
fairq_debt_row_written(int n, int64 id, ItemPointer tid)
{
	FairqDebt  *debt;
	FairqItem	item;

	if (n >= nin_flight)
		return;
	debt = &debts[in_flight[n].debt];
	item.addr = in_flight[n].reservation.tail.addr;
	item.order = (uint32) id;
	item.tid = *tid;
	if (debt->group_no < 0)
	{
		owe_more(&debt->at_commit, item.addr);
		owe_more(&debt->unsaid, item.addr);
	}
	else
	{
		owe_item(&debt->at_commit, &item);
		owe_item(&debt->unsaid, &item);
	}
	owe_unshown(debt);
}

/* Is there a reservation among the last that nobody knows of without its row? */
bool
fairq_debt_any_unpinned(void)
{
	for (int i = 0; i < nin_flight; i++)
		if (in_flight[i].reservation.pinned == NULL)
			return true;
	return false;
}

/* The rows of the last reservations are there, with their index entries. */
void
fairq_debt_written(void)
{
	while (nin_flight > 0)
		fairq_unpin(&in_flight[--nin_flight].reservation);
}

/* What our own pops were told of a queue's debts; nothing, if it is new. */
static Shown *
shown_of(FairqHints *hints, bool *is_new)
{
	Shown	   *found;

	*is_new = false;
	for (int i = 0; i < nshown; i++)
		if (shown[i].hints == hints)
			return &shown[i];
	*is_new = true;
	if (nshown < MAX_SHOWN)
		found = &shown[nshown++];
	else
	{
		found = &shown[next_shown];
		next_shown = (next_shown + 1) % MAX_SHOWN;
	}
	found->hints = hints;
	found->lanes = 0;
	return found;
}

/* Our own pops find by it what others find once it is committed. */
static void
show(Shown *to, FairqDebt *debt, const FairqNews *news)
{
	FairqLane  *lane = debt->lane;
	uint16		bit = 1 << lane->priority;

	if ((to->lanes & bit) == 0)
	{
		to->at[lane->priority] = fairq_lane_narrowings(lane);
		to->lanes |= bit;
	}
	say(debt, news, false);
	remove_unshown(debt);
}

/*
 * A pop sees what its own transaction has enqueued, purged and leased: say so
 * before it looks.  The others find nothing of it, and hear it again at commit.
 * It is said once in each lane, unless another backend has made it void since.
 * Returns whether there were tasks to speak of.
 */
bool
fairq_debts_show(FairqHints *hints)
{
	Shown	   *to;
	bool		again;
	bool		any = false;

	if (ndebts == 0)
		return false;
	to = shown_of(hints, &again);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		if ((to->lanes & (1 << priority)) != 0 &&
			pg_atomic_read_u64(&hints->lanes[priority].narrowings) !=
			to->at[priority])
		{
			to->lanes &= ~(1 << priority);
			again = true;
		}
	}
	if (again)
	{
		uint16		still = to->lanes;

		for (int i = 0; i < ndebts; i++)
		{
			FairqDebt  *debt = &debts[i];

			if (fairq_hints_of(debt->lane) == hints &&
				(still & (1 << debt->lane->priority)) == 0 &&
				!is_nothing(&debt->at_commit))
			{
				any |= has_tasks(&debt->at_commit);
				show(to, debt, &debt->at_commit);
			}
		}
	}
	for (int32 i = unshown; i != NO_DEBT;)
	{
		FairqDebt  *debt = &debts[i];

		i = debt->next_unshown;
		if (fairq_hints_of(debt->lane) == hints)
		{
			any |= has_tasks(&debt->unsaid);
			show(to, debt, &debt->unsaid);
		}
	}
	return any;
}

/* Has this transaction made tasks that only its own pops see? */
bool
fairq_has_own_tasks(void)
{
	return own_tasks;
}

/*
 * The highest address at which an abort of this transaction, or of a part of
 * it, would put a task of the group back; FAIRQ_ADDR_NONE if there is none.
 * We ourselves don't see such a row any more if we have deleted it.
 */
int64
fairq_debts_highest(FairqLane *lane, int32 group_no)
{
	int64		highest = FAIRQ_ADDR_NONE;

	if (!to_undo)
		return highest;
	for (FairqDebt *debt = topmost_debt(lane, group_no); debt != NULL;
		 debt = debt_below(debt))
		highest = Max(highest, debt->highest_at_abort);
	return highest;
}

/*
 * The settings of a group, or of the queue (-1), are changed.  Others must not
 * park anybody by the old settings once the new ones are visible, nor by the
 * new ones if they are rolled back; so this is settled in both cases.
 */
void
fairq_debt_settings(FairqHints *hints, int32 group_no)
{
	FairqLane  *lane = &hints->lanes[0];
	FairqDebt  *debt = find_debt(lane, -1);

	settings_pending = true;
	/* with the whole queue all of its groups are told */
	if (debt != NULL && (debt->settings || debt->removed))
		return;
	debt = fairq_debt(lane, group_no);
	debt->settings = true;
	if (debt->group_no >= 0 && debt->counter == NULL)
		debt->counter = fairq_shmem_counter(hints, group_no);
}

/* The queue is new: if we abort, it has never been there. */
void
fairq_debt_created(FairqHints *hints)
{
	fairq_debt(&hints->lanes[0], -1)->created = true;
}

/*
 * The queue is dropped, and the caller has it locked so that nobody else can use
 * it: if we commit, its hints are given back.
 */
void
fairq_debt_removed(FairqHints *hints)
{
	fairq_debt(&hints->lanes[0], -1)->removed = true;
}

/* The privileges of the queue are changed: that is read anew, and no more. */
void
fairq_debt_granted(FairqHints *hints)
{
	fairq_debt(&hints->lanes[0], -1)->granted = true;
}

/*
 * Settings are changed of queues that shared memory does not know.  By the time
 * we commit it may: then all that is known is void, also which groups are parked,
 * and whoever has read the settings meanwhile is to do it again.
 */
void
fairq_debt_unknown_settings(void)
{
	fairq_debt_reset();
	settings_changed = fairq_domain();
}

/*
 * The queue is gone, or has another name.  Whoever waits for its tasks is to
 * hear of it.
 */
void
fairq_debt_dropped(FairqHints *hints)
{
	fairq_debt(&hints->lanes[0], -1)->dropped = true;
}

/* Are our settings such that nobody else may be parked by them? */
bool
fairq_settings_pending(void)
{
	return settings_pending;
}

/*
 * Tasks of the group stop running if we commit, or if we abort.  The counter
 * is pinned by the caller, and by the debt as well from now on.  It is NULL if
 * the queue has no limits as yet.
 */
void
fairq_debt_leaves(FairqDebt *debt, FairqCounter *counter, uint64 count_no,
				  uint64 queue_count_no, int32 at_commit, int32 at_abort)
{
	to_leave = true;
	if (debt->group_no < 0)
	{
		debt->uncounted = true;
		return;
	}
	if (debt->counter == NULL && counter != NULL)
	{
		fairq_counter_pin(counter);
		debt->counter = counter;
	}
	if (debt->leave_at_commit == 0 && debt->leave_at_abort == 0)
	{
		debt->count_no = count_no;
		debt->queue_count_no = queue_count_no;
	}
	if (debt->count_no != count_no)
		debt->count_no = FAIRQ_MIXED_COUNTS;
	if (debt->queue_count_no != queue_count_no)
		debt->queue_count_no = FAIRQ_MIXED_COUNTS;
	debt->leave_at_commit += at_commit;
	debt->leave_at_abort += at_abort;
}

static bool
add_running(const FairqDebt *debt, int32 *running, bool *doubtful)
{
	*running += debt->leave_at_commit;
	*doubtful |= debt->leave_at_commit > 0 || debt->leave_at_abort > 0;
	return !debt->uncounted;
}

/*
 * How many tasks of the group, or of the queue (-1), count as running though
 * we don't see them any more.  It is doubtful if some of what we owe may be
 * counted twice.  False if nobody can tell.
 */
bool
fairq_debts_running(FairqHints *hints, int32 group_no, int32 *running,
					bool *doubtful)
{
	*running = 0;
	if (!to_leave)
		return true;
	if (group_no < 0)
	{
		for (int i = 0; i < ndebts; i++)
		{
			if (fairq_hints_of(debts[i].lane) == hints &&
				!add_running(&debts[i], running, doubtful))
				return false;
		}
		return true;
	}
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		FairqLane  *lane = &hints->lanes[priority];

		for (FairqDebt *debt = topmost_debt(lane, -1); debt != NULL;
			 debt = debt_below(debt))
			if (debt->uncounted)
				return false;
		for (FairqDebt *debt = topmost_debt(lane, group_no); debt != NULL;
			 debt = debt_below(debt))
			(void) add_running(debt, running, doubtful);
	}
	return true;
}

/* At its end, what is known of this domain is void. */
void
fairq_debt_reset(void)
{
	fairq_watch_transaction();
	note_level(&changed_at);
	changed = fairq_domain();
}

/*
 * From now on, and once more at the end, what is cached of groups is void.
 * Numbers of some may have been freed.  Otherwise others are told once, though
 * it is called for each row: what they read meanwhile is void at the end.
 */
void
fairq_debt_groups(bool freed)
{
	bool		first = groups_changed == NULL;

	fairq_watch_transaction();
	note_level(&groups_changed_at);
	groups_changed = fairq_domain();
	groups_freed |= freed;
	if (first || freed)
		pg_atomic_fetch_add_u64(&groups_changed->group_changes, 1);
	else
		fairq_groups_forget();
}

/* Has this transaction freed numbers of groups? */
bool
fairq_groups_freed(void)
{
	return groups_freed;
}

void
fairq_reset_hints_now(void)
{
	pg_atomic_fetch_add_u64(&fairq_domain()->resets, 1);
}
