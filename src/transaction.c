/*
 * transaction.c
 *		Pending changes: what the end of a transaction changes in hints.
 *
 * Hints must follow what other backends can see: a task is ready when its
 * enqueue has committed, and again when its pop has aborted, and not a moment
 * before.  So each call of fairq notes what the end of its transaction or
 * subtransaction will change, as PostgreSQL does with files that are to be
 * deleted, and the callbacks here apply it.  They run after the end is visible
 * to all backends: at XACT_EVENT_COMMIT and ABORT the transaction has left the
 * array of running ones, at ABORT_SUB the subtransaction is marked as aborted.
 *
 * Pending changes are a stack.  Those of a subtransaction lie on top of its
 * parent's; if it commits they are relabelled as the parent's, if it aborts
 * they are applied in reverse order and popped.  The reverse order lets
 * reservations be put back one after the other.
 *
 * The stack is bounded by the number of groups that the cache has entries for.
 * Past that a transaction notes changes by lanes only: if tasks are ready at
 * its end, or it has leased some, then all that is known of the lane is
 * forgotten, and read off the table again.
 *
 * Of the tasks that become ready the change of a group keeps the lowest, with
 * the TIDs of their rows, as many as a hand holds (hand.c), and the address
 * from which on there are more.
 *
 * A change is found through a hash table of the topmost ones for each group of
 * a lane; each knows the one below it.  They come and go as on a stack, so a
 * bucket is simply given back to the one below, or emptied: whatever was put
 * in behind it has gone before.
 *
 * Locking: the callbacks take lanes' locks, one at a time.  They must neither
 * fail (an ERROR there would be a PANIC) nor allocate: all memory is had when
 * the change is noted, and all shared memory they touch is mapped by then.  That
 * is also true of what other modules do at the end (FairqEnding), which fairq.c
 * has registered in the order in which it is called.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "utils/memutils.h"

#include "domain.h"
#include "registry.h"
#include "transaction.h"

/* some 40 MB, for a transaction with as many groups */
#define MAX_PENDING (FAIRQ_SETS * FAIRQ_SET_WAYS)

/* queues of which a transaction remembers what its own pops were shown */
#define MAX_SHOWN 16

/* modules that do something at the end of a transaction */
#define MAX_ENDINGS 8

/* no change, node or bucket */
#define NO_INDEX (-1)

static FairqPending *stack = NULL; /* in TopTransactionContext */
static int	nstack = 0;
static int	max_stack = 0;
static int32 *topmost = NULL;	/* 2 * max_stack slots, likewise */

/* the first change of which our own pops have not been shown all */
static int32 unshown = NO_INDEX;

/* A queue whose changes our own pops were shown, but for those in unshown. */
typedef struct Shown
{
	FairqHints *hints;
	uint16		lanes;			/* in which lanes, as bits */
	uint64		at[FAIRQ_PRIORITIES];	/* their narrowings then */
} Shown;

static Shown shown[MAX_SHOWN];
static int	nshown = 0;
static int	next_shown = 0;		/* the one to give up when all are in use */

static bool own_tasks = false;	/* some change makes tasks ready at commit */
static bool to_undo = false;	/* some change has ready_at_abort */
static bool to_leave = false;	/* some change has a counter to leave */

/* the reservations whose rows are being written */
static struct
{
	FairqReservation reservation;
	int32		pending;
}			in_flight[FAIRQ_MAX_ROWS];
static int	nin_flight = 0;

/*
 * Something was written, if only a setting: at what level of subtransactions,
 * that is, the lowest one; 0: at none.
 */
static int	written_at = 0;
static bool own_settings = false;

/* likewise, rows were changed by others' means, in this domain */
static int	changed_at = 0;
static FairqDomain *changed = NULL;

/* likewise, groups in it were changed, and numbers of them freed */
static int	groups_changed_at = 0;
static FairqDomain *groups_changed = NULL;
static bool groups_freed = false;

/* settings in it were changed of queues that shared memory did not know */
static FairqDomain *settings_changed = NULL;

/* what modules do at the end, in the order in which they were registered */
static const FairqEnding *endings[MAX_ENDINGS];
static int	nendings = 0;

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
 * A task that news are of, in a list.  Nodes are allocated when a change is
 * noted, and given back when it is applied.
 */
typedef struct ItemNode
{
	FairqItem	item;
	int32		next;			/* NO_INDEX: none */
} ItemNode;

static ItemNode *nodes = NULL;	/* in TopTransactionContext */
static int32 nnodes = 0;
static int32 maxnodes = 0;
static int32 free_node = NO_INDEX;

static int32
new_node(void)
{
	int32		node = free_node;

	if (node != NO_INDEX)
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

/* Add ready tasks, an unknown number, from that address on. */
static void
add_more(FairqNews *news, int64 addr)
{
	news->more = Min(news->more, addr);
}

/* Add a ready task.  Only the lowest ones are kept one by one. */
static void
add_item(FairqNews *news, const FairqItem *item)
{
	int32	   *at = &news->items;
	int32		node = new_node();

	while (*at != NO_INDEX && nodes[*at].item.addr <= item->addr)
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
	while (nodes[*at].next != NO_INDEX)
		at = &nodes[*at].next;
	add_more(news, nodes[*at].item.addr);
	release_node(*at);
	*at = NO_INDEX;
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
	leases->searches = PG_UINT64_MAX;
}

static void
init_news(FairqNews *news)
{
	news->items = NO_INDEX;
	news->nitems = 0;
	news->more = FAIRQ_ADDR_MAX;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		news->scheduled[r] = FAIRQ_ADDR_MAX;
	init_leases(&news->leased);
}

/* Empty the news. */
static void
release_news(FairqNews *news)
{
	while (news->items != NO_INDEX)
	{
		int32		node = news->items;

		news->items = nodes[node].next;
		release_node(node);
	}
	init_news(news);
}

static bool
has_ready_news(const FairqNews *news)
{
	return news->nitems > 0 || news->more != FAIRQ_ADDR_MAX;
}

static bool
has_task_news(const FairqNews *news)
{
	bool		any = has_ready_news(news);

	for (int r = 0; r < FAIRQ_REGIONS; r++)
		any |= news->scheduled[r] != FAIRQ_ADDR_MAX;
	return any;
}

static bool
is_no_news(const FairqNews *news)
{
	return !has_task_news(news) && news->leased.until == DT_NOEND;
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

/* Add to the news of a whole lane, in which single tasks do not matter. */
static void
add_lane_news(FairqNews *news, const FairqNews *more)
{
	add_more(news, more->more);
	if (more->nitems > 0)
		add_more(news, 0);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		news->scheduled[r] = Min(news->scheduled[r], more->scheduled[r]);
	add_leases(&news->leased, &more->leased);
}

/* Publish timed tasks; with again, they may have fallen due by now. */
static void
publish_scheduled(FairqPending *pending, int64 addr, bool again)
{
	if (addr == FAIRQ_ADDR_MAX)
		return;
	if (again)
		fairq_lane_add_timed(pending->lane, pending->group_no, addr);
	else
		fairq_lane_add_scheduled(pending->lane, addr);
	fairq_wake_in_time(&fairq_hints_of(pending->lane)->wakeup,
					   fairq_due_time(addr));
}

/*
 * Forget a lane: all of it is to be read off the table again, and its leases
 * by another census.
 */
static void
forget_lane(FairqLane *lane)
{
	fairq_lane_forget(lane);
	pg_atomic_fetch_add_u64(&fairq_domain_at(lane->domain)->forgets, 1);
}

static void
publish(FairqPending *pending, const FairqNews *news, bool again)
{
	FairqLane  *lane = pending->lane;

	if (is_no_news(news))
		return;
	if (pending->group_no < 0 && (again || has_ready_news(news)))
	{
		/* whose these are is not known: all is read again */
		forget_lane(lane);
		fairq_wake_all(&fairq_hints_of(lane)->wakeup);
		return;
	}
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		publish_scheduled(pending, news->scheduled[r], again);
	if (has_ready_news(news))
	{
		FairqItem	items[FAIRQ_HAND];
		int			n = 0;

		for (int32 at = news->items; at != NO_INDEX; at = nodes[at].next)
			items[n++] = nodes[at].item;
		fairq_lane_add_ready(lane, pending->group_no, items, n, news->more);
	}
	if (news->leased.until != DT_NOEND)
	{
		if (pending->group_no < 0)
			forget_lane(lane);
		else
			fairq_lane_add_leases(lane, pending->group_no, &news->leased);
		fairq_wake_in_time(&fairq_hints_of(lane)->wakeup,
						   news->leased.until);
	}
}

/*
 * Publish what else a change says: n tasks are not running any more; settings,
 * privileges or the queue itself have changed.
 */
static void
leave_counters(FairqPending *pending, int32 n)
{
	FairqHints *hints = fairq_hints_of(pending->lane);

	if (pending->settings || pending->granted || pending->dropped)
		pg_atomic_fetch_add_u64(&hints->version, 1);
	if (pending->group_no < 0)
	{
		if (pending->uncounted)
		{
			FairqDomain *domain = fairq_domain_at(pending->lane->domain);

			/* in this order: census.c */
			pg_atomic_fetch_add_u64(&domain->uncounted, 1);
			pg_atomic_fetch_add_u64(&hints->uncounted, 1);
		}
		if (pending->uncounted || pending->settings)
			fairq_unpark_all(hints);
	}
	else if (pending->counter != NULL && (n > 0 || pending->settings))
	{
		FairqAsOf	now = fairq_lane_as_of(pending->lane);
		uint16		parked;

		/* in this order: counter.c, rule 8 */
		parked = fairq_counter_leave(pending->counter, now, n,
									 pending->count_no);
		(void) fairq_counter_leave(&hints->running, now, n,
								   pending->queue_count_no);
		fairq_unpark(hints, pending->group_no, parked);
		/* others, too, may have waited for a slot in the queue */
		fairq_wake(&hints->wakeup, n);
	}
	if (pending->dropped)
		fairq_wake_all(&hints->wakeup);
	else if (pending->settings)
		fairq_wake_chain(&hints->wakeup);
	if (pending->counter != NULL)
		fairq_counter_unpin(pending->counter);
}

static void
apply_pending(FairqPending *pending, bool committed)
{
	FairqLane  *lane = pending->lane;
	int32		nready;

	if (committed)
	{
		publish(pending, &pending->at_commit, false);
		for (int i = 0; i < FAIRQ_STATS; i++)
			if (pending->stats[i] > 0)
				pg_atomic_fetch_add_u64(&lane->stats[i], pending->stats[i]);
	}
	else
	{
		if (pending->reserved && !pending->torn)
			fairq_lane_unreserve(lane, pending->lane_no, pending->group_no,
								 pending->last, pending->before);
		publish(pending, &pending->at_abort, true);
	}
	leave_counters(pending,
				   committed ? pending->leave_at_commit :
				   pending->leave_at_abort);
	nready = committed ? pending->nready_at_commit : pending->nready_at_abort;
	if (nready > 0)
		fairq_wake(&fairq_hints_of(lane)->wakeup, nready);
}

/* List the change for our own pops, which are shown it before they search. */
static void
add_unshown(FairqPending *pending)
{
	own_tasks |= has_task_news(&pending->not_shown);
	if (pending->in_unshown)
		return;
	pending->in_unshown = true;
	pending->prev_unshown = NO_INDEX;
	pending->next_unshown = unshown;
	unshown = pending - stack;
	if (pending->next_unshown != NO_INDEX)
		stack[pending->next_unshown].prev_unshown = unshown;
}

static void
remove_unshown(FairqPending *pending)
{
	if (!pending->in_unshown)
		return;
	release_news(&pending->not_shown);
	pending->in_unshown = false;
	if (pending->next_unshown != NO_INDEX)
		stack[pending->next_unshown].prev_unshown = pending->prev_unshown;
	if (pending->prev_unshown != NO_INDEX)
		stack[pending->prev_unshown].next_unshown = pending->next_unshown;
	else
		unshown = pending->next_unshown;
}

/* The bucket of the topmost change for a group, or the empty one for it. */
static int32 *
slot_of(FairqLane *lane, int32 group_no)
{
	uint32		mask = 2 * max_stack - 1;
	uint32		at = hash_combine(murmurhash32((uint32) ((uintptr_t) lane >> 6)),
								  murmurhash32((uint32) group_no)) & mask;

	while (topmost[at] != NO_INDEX &&
		   (stack[topmost[at]].lane != lane ||
			stack[topmost[at]].group_no != group_no))
		at = (at + 1) & mask;
	return &topmost[at];
}

/* The topmost change for a group of a lane, or the lane (-1); NULL: none. */
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

/* Take the last change off the stack. */
static FairqPending *
pop_pending(void)
{
	FairqPending *pending = &stack[nstack - 1];

	*slot_of(pending->lane, pending->group_no) = pending->below;
	remove_unshown(pending);
	nstack--;
	return pending;
}

/* Make sure that one more change fits. */
static void
grow_stack(void)
{
	int			n = max_stack == 0 ? 16 : max_stack * 2;
	FairqPending *more;
	int32	   *slots;

	if (nstack < max_stack)
		return;
	slots = MemoryContextAllocHuge(TopTransactionContext,
								   sizeof(int32) * 2 * n);
	more = MemoryContextAllocHuge(TopTransactionContext,
								  sizeof(FairqPending) * n);
	if (stack != NULL)
	{
		memcpy(more, stack, sizeof(FairqPending) * nstack);
		pfree(stack);
		pfree(topmost);
	}
	stack = more;
	topmost = slots;
	max_stack = n;
	memset(topmost, 0xFF, sizeof(int32) * 2 * n);
	for (int i = 0; i < nstack; i++)
		*slot_of(stack[i].lane, stack[i].group_no) = i;
}

/*
 * End the call in progress, if an error or the transaction's end has broken it
 * off.
 */
static void
end_call(void)
{
	fairq_pending_written();
	for (int i = 0; i < nendings; i++)
	{
		if (endings[i]->end_call != NULL)
			endings[i]->end_call();
	}
}

/* Let each module settle what it has cached. */
static void
settle(bool committed, bool all)
{
	for (int i = 0; i < nendings; i++)
	{
		if (endings[i]->settle != NULL)
			endings[i]->settle(committed, all);
	}
}

/* Forget what was shown of a queue: its hints may be another's from now on. */
static void
forget_shown(FairqHints *hints)
{
	for (int i = 0; i < nshown; i++)
		if (shown[i].hints == hints)
			shown[i].hints = NULL;
}

/*
 * Apply the changes from an index on, the last one first.  The hints of queues
 * that are gone by that are given back after all changes of them.
 */
static void
apply_from(int first, bool committed)
{
	int			end = nstack;

	while (nstack > first)
	{
		FairqPending *pending = pop_pending();

		apply_pending(pending, committed);
		release_news(&pending->at_commit);
		release_news(&pending->at_abort);
	}
	for (int i = first; i < end; i++)
	{
		FairqHints *hints = fairq_hints_of(stack[i].lane);

		if (committed ? stack[i].removed : stack[i].created)
		{
			forget_shown(hints);
			fairq_shmem_release(hints);
		}
	}
}

static void
apply_all(bool committed)
{
	end_call();
	apply_from(0, committed);
	stack = NULL;
	topmost = NULL;
	max_stack = 0;
	nodes = NULL;
	nnodes = maxnodes = 0;
	free_node = NO_INDEX;
	unshown = NO_INDEX;
	nshown = next_shown = 0;
	own_tasks = to_undo = to_leave = false;
	written_at = changed_at = groups_changed_at = 0;
	own_settings = groups_freed = false;
	if (changed)
		pg_atomic_fetch_add_u64(&changed->resets, 1);
	if (groups_changed)
		pg_atomic_fetch_add_u64(&groups_changed->group_changes, 1);
	if (settings_changed)
		pg_atomic_fetch_add_u64(&settings_changed->settings, 1);
	changed = groups_changed = settings_changed = NULL;
	if (!committed)
		fairq_wait_end(true, DT_NOEND);
	settle(committed, true);
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			apply_all(true);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			/* what has written nothing changes nothing either way */
			apply_all(false);
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

/* A lane's change that a subtransaction has left goes into one below it. */
static bool
merge_into_lane_pending_below(int index)
{
	FairqPending *pending = &stack[index];

	for (int i = index - 1; i >= 0 && i >= index - FAIRQ_PRIORITIES; i--)
	{
		FairqPending *below = &stack[i];

		if (below->group_no >= 0 || below->sub != pending->sub)
			return false;
		if (below->lane != pending->lane)
			continue;
		add_lane_news(&below->at_commit, &pending->at_commit);
		add_lane_news(&below->not_shown, &pending->at_commit);
		add_unshown(below);
		add_lane_news(&below->at_abort, &pending->at_abort);
		below->nready_at_commit += pending->nready_at_commit;
		below->nready_at_abort += pending->nready_at_abort;
		below->highest_at_abort = Max(below->highest_at_abort,
									  pending->highest_at_abort);
		below->settings |= pending->settings;
		below->granted |= pending->granted;
		below->dropped |= pending->dropped;
		below->created |= pending->created;
		below->removed |= pending->removed;
		below->uncounted |= pending->uncounted;
		for (int c = 0; c < FAIRQ_STATS; c++)
			below->stats[c] += pending->stats[c];
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
		for (int i = nstack - 1; i >= 0 && stack[i].sub == sub; i--)
			stack[i].sub = parent;
		while (nstack > 1 && stack[nstack - 1].group_no < 0 &&
			   merge_into_lane_pending_below(nstack - 1))
		{
			FairqPending *pending = pop_pending();

			release_news(&pending->at_commit);
			release_news(&pending->at_abort);
		}
		end_level(true);
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		int			first = nstack;

		end_call();
		while (first > 0 && stack[first - 1].sub == sub)
			first--;
		apply_from(first, false);
		if (changed)
			pg_atomic_fetch_add_u64(&changed->resets, 1);
		if (settings_changed)
			pg_atomic_fetch_add_u64(&settings_changed->settings, 1);
		settle(false, false);
		end_level(false);
		groups_freed &= groups_changed_at > 0;
	}
}

/*
 * Have a module's functions called at the end of each transaction of this
 * backend, after those of modules that were registered before.
 */
void
fairq_at_end(const FairqEnding *ending)
{
	if (nendings == MAX_ENDINGS)
		elog(ERROR, "more than %d modules end transactions", MAX_ENDINGS);
	endings[nendings++] = ending;
}

/* Have the functions here called at the end of the transaction. */
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

/* The change of this subtransaction for a group of a lane; NULL: none. */
static FairqPending *
find_pending(FairqLane *lane, int32 group_no)
{
	FairqPending *pending = topmost_pending(lane, group_no);

	return pending != NULL && pending->sub == GetCurrentSubTransactionId() ?
		pending : NULL;
}

/*
 * The pending change of this subtransaction for a group of a lane, empty if it
 * is new.  Valid until the next call.
 */
FairqPending *
fairq_pending(FairqLane *lane, int32 group_no)
{
	FairqPending *pending;
	int32	   *slot;

	fairq_watch_transaction();

	if (nstack >= MAX_PENDING)
		group_no = -1;
	pending = find_pending(lane, group_no);
	if (pending != NULL)
		return pending;

	grow_stack();
	if (group_no >= 0)
		fairq_chunks_have(&fairq_hints_of(lane)->chunks, group_no);
	slot = slot_of(lane, group_no);
	pending = &stack[nstack];
	memset(pending, 0, sizeof(FairqPending));
	pending->sub = GetCurrentSubTransactionId();
	pending->lane = lane;
	pending->group_no = group_no;
	pending->below = *slot;
	*slot = nstack++;
	init_news(&pending->at_commit);
	init_news(&pending->not_shown);
	init_news(&pending->at_abort);
	pending->highest_at_abort = FAIRQ_ADDR_NONE;
	return pending;
}

/*
 * Note that a task that was ready there is ours, unless we abort.  root is
 * where an index leads to its row, if that is known.
 */
void
fairq_pending_ready_at_abort(FairqPending *pending, int64 addr, int64 id,
							 const ItemPointerData *root)
{
	FairqItem	item = {.addr = addr, .order = (uint32) id};

	pending->nready_at_abort++;
	to_undo = true;
	if (fairq_is_timed(addr))
	{
		FairqRegion region = fairq_region(addr);

		pending->at_abort.scheduled[region] =
			Min(pending->at_abort.scheduled[region], addr);
		return;
	}
	pending->highest_at_abort = Max(pending->highest_at_abort, addr);
	if (pending->group_no < 0 || root == NULL || !ItemPointerIsValid(root))
	{
		add_more(&pending->at_abort, addr);
		return;
	}
	item.tid = *root;
	add_item(&pending->at_abort, &item);
}

/* Note that a task is scheduled there, if we commit. */
void
fairq_pending_scheduled(FairqPending *pending, int64 addr)
{
	FairqRegion region = fairq_region(addr);

	pending->at_commit.scheduled[region] =
		Min(pending->at_commit.scheduled[region], addr);
	pending->not_shown.scheduled[region] =
		Min(pending->not_shown.scheduled[region], addr);
	add_unshown(pending);
}

static void
add_lease(FairqLeases *leases, int64 addr, TimestampTz until, uint64 searches)
{
	FairqRegion region = fairq_region(addr);

	leases->low[region] = Min(leases->low[region], addr);
	leases->high[region] = Max(leases->high[region], addr);
	leases->until = Min(leases->until, until);
	leases->searches = Min(leases->searches, searches);
}

/*
 * Note that a task there is leased until then, if we commit.  The lane has
 * noted that when the task was taken, after so many searches of the lane; or
 * not (0).
 */
void
fairq_pending_leased_at_commit(FairqPending *pending, int64 addr,
							   TimestampTz until, uint64 searches)
{
	add_lease(&pending->at_commit.leased, addr, until, searches);
	if (searches > 0)
		return;
	add_lease(&pending->not_shown.leased, addr, until, searches);
	add_unshown(pending);
}

/*
 * Note that a task there has its old lease again, if we abort.  The lane may
 * have forgotten that lease while the row was in our hands.
 */
void
fairq_pending_leased_at_abort(FairqPending *pending, int64 addr,
							  TimestampTz until)
{
	add_lease(&pending->at_abort.leased, addr, until, 0);
}

/*
 * Note an address that was reserved; its row comes soon, with no more than the
 * others of a batch before it.  Nothing may fail between the reservation and
 * this.
 */
void
fairq_pending_reserved(FairqPending *pending,
					   const FairqReservation *reservation)
{
	Assert(nin_flight < FAIRQ_MAX_ROWS);
	in_flight[nin_flight].reservation = *reservation;
	in_flight[nin_flight++].pending = pending - stack;
	if (!pending->reserved)
	{
		pending->reserved = true;
		pending->before = reservation->before;
		pending->lane_no = reservation->lane_no;
	}
	else if (pending->lane_no != reservation->lane_no ||
			 pending->last.addr != reservation->before.addr ||
			 pending->last.count != reservation->before.count)
	{
		/* there is no tail any more that could be put back */
		pending->torn = true;
		pending->lane_no = reservation->lane_no;
	}
	pending->last = reservation->tail;
	pending->nready_at_commit++;
}

/* Note that the row of the n-th of the last reservations is there. */
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
	if (pending->group_no < 0)
	{
		add_more(&pending->at_commit, item.addr);
		add_more(&pending->not_shown, item.addr);
	}
	else
	{
		add_item(&pending->at_commit, &item);
		add_item(&pending->not_shown, &item);
	}
	add_unshown(pending);
}

/* Is there a reservation among the last whose entry could not be pinned? */
bool
fairq_pending_any_unpinned(void)
{
	for (int i = 0; i < nin_flight; i++)
		if (in_flight[i].reservation.pinned == NULL)
			return true;
	return false;
}

/*
 * Unpin the last reservations: their rows are there, with their index entries.
 */
void
fairq_pending_written(void)
{
	while (nin_flight > 0)
		fairq_unpin(&in_flight[--nin_flight].reservation);
}

/* What our own pops were shown of a queue; nothing, if it is new. */
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

/* Publish for our own pops what other backends find after the commit. */
static void
show_news(Shown *to, FairqPending *pending, const FairqNews *news)
{
	FairqLane  *lane = pending->lane;
	uint16		bit = 1 << lane->priority;

	if ((to->lanes & bit) == 0)
	{
		to->at[lane->priority] = fairq_lane_narrowings(lane);
		to->lanes |= bit;
	}
	publish(pending, news, false);
	remove_unshown(pending);
}

/*
 * Show our own pops what this transaction has enqueued, purged and leased,
 * before they search.  Other backends find nothing of it, and a commit
 * publishes it again.  It is shown once in each lane, unless another backend
 * has made it void since.  Returns whether there were tasks to speak of.
 */
bool
fairq_pending_show(FairqHints *hints)
{
	Shown	   *to;
	bool		again;
	bool		any = false;

	if (nstack == 0)
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

		for (int i = 0; i < nstack; i++)
		{
			FairqPending *pending = &stack[i];

			if (fairq_hints_of(pending->lane) == hints &&
				(still & (1 << pending->lane->priority)) == 0 &&
				!is_no_news(&pending->at_commit))
			{
				any |= has_task_news(&pending->at_commit);
				show_news(to, pending, &pending->at_commit);
			}
		}
	}
	for (int32 i = unshown; i != NO_INDEX;)
	{
		FairqPending *pending = &stack[i];

		i = pending->next_unshown;
		if (fairq_hints_of(pending->lane) == hints)
		{
			any |= has_task_news(&pending->not_shown);
			show_news(to, pending, &pending->not_shown);
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
fairq_pending_highest(FairqLane *lane, int32 group_no)
{
	int64		highest = FAIRQ_ADDR_NONE;

	if (!to_undo)
		return highest;
	for (FairqPending *p = topmost_pending(lane, group_no); p != NULL;
		 p = pending_below(p))
		highest = Max(highest, p->highest_at_abort);
	return highest;
}

/*
 * Note that settings of a group, or of the queue (-1), are changed.  Other
 * backends must not park a group by the old settings once the new ones are
 * visible, nor by the new ones if they are rolled back; so this is applied in
 * both cases.
 */
void
fairq_pending_settings(FairqHints *hints, int32 group_no)
{
	FairqLane  *lane = &hints->lanes[0];
	FairqPending *pending = find_pending(lane, -1);

	own_settings = true;
	/* a change of the whole queue takes all of its groups back */
	if (pending != NULL && (pending->settings || pending->removed))
		return;
	pending = fairq_pending(lane, group_no);
	pending->settings = true;
	if (pending->group_no >= 0 && pending->counter == NULL)
		pending->counter = fairq_shmem_counter(hints, group_no);
}

/* Note that the queue is new: if we abort, it has never been there. */
void
fairq_pending_created(FairqHints *hints)
{
	fairq_pending(&hints->lanes[0], -1)->created = true;
}

/*
 * Note that the queue is dropped, and that the caller has it locked so that no
 * other transaction can use it: a commit gives its hints back.
 */
void
fairq_pending_removed(FairqHints *hints)
{
	fairq_pending(&hints->lanes[0], -1)->removed = true;
}

/*
 * Note that privileges of the queue are changed: backends read them anew, and
 * no more.
 */
void
fairq_pending_granted(FairqHints *hints)
{
	fairq_pending(&hints->lanes[0], -1)->granted = true;
}

/*
 * Note that settings are changed of queues that shared memory does not know.
 * By the time we commit it may: then all that is known is void, also which
 * groups are parked, and backends that have read the settings meanwhile are to
 * read them again.
 */
void
fairq_pending_unknown_settings(void)
{
	fairq_pending_reset();
	settings_changed = fairq_domain();
}

/*
 * Note that the queue is gone, or has another name.  Sessions that wait for
 * its tasks are woken at a commit.
 */
void
fairq_pending_dropped(FairqHints *hints)
{
	fairq_pending(&hints->lanes[0], -1)->dropped = true;
}

/*
 * Has this transaction changed settings?  Then it must not park groups, by
 * settings that other backends do not see.
 */
bool
fairq_has_changed_settings(void)
{
	return own_settings;
}

/*
 * Note that tasks of the group stop running if we commit, or if we abort.  The
 * counter is pinned by the caller, and by the change as well from now on.  It
 * is NULL if the queue has no limits as yet.
 */
void
fairq_pending_leaves(FairqPending *pending, FairqCounter *counter,
					 uint64 count_no,
					 uint64 queue_count_no, int32 at_commit, int32 at_abort)
{
	to_leave = true;
	if (pending->group_no < 0)
	{
		pending->uncounted = true;
		return;
	}
	if (pending->counter == NULL && counter != NULL)
	{
		fairq_counter_pin(counter);
		pending->counter = counter;
	}
	if (pending->leave_at_commit == 0 && pending->leave_at_abort == 0)
	{
		pending->count_no = count_no;
		pending->queue_count_no = queue_count_no;
	}
	if (pending->count_no != count_no)
		pending->count_no = FAIRQ_MIXED_COUNTS;
	if (pending->queue_count_no != queue_count_no)
		pending->queue_count_no = FAIRQ_MIXED_COUNTS;
	pending->leave_at_commit += at_commit;
	pending->leave_at_abort += at_abort;
}

static bool
add_running(const FairqPending *pending, int32 *running, bool *doubtful)
{
	*running += pending->leave_at_commit;
	*doubtful |= pending->leave_at_commit > 0 || pending->leave_at_abort > 0;
	return !pending->uncounted;
}

/*
 * Count the tasks of the group, or of the queue (-1), that count as running
 * though we don't see them any more.  It is doubtful if some of that may be
 * counted twice.  False if that is not known.
 */
bool
fairq_pending_running(FairqHints *hints, int32 group_no, int32 *running,
					  bool *doubtful)
{
	*running = 0;
	if (!to_leave)
		return true;
	if (group_no < 0)
	{
		for (int i = 0; i < nstack; i++)
		{
			if (fairq_hints_of(stack[i].lane) == hints &&
				!add_running(&stack[i], running, doubtful))
				return false;
		}
		return true;
	}
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		FairqLane  *lane = &hints->lanes[priority];

		for (FairqPending *p = topmost_pending(lane, -1); p != NULL;
			 p = pending_below(p))
			if (p->uncounted)
				return false;
		for (FairqPending *p = topmost_pending(lane, group_no); p != NULL;
			 p = pending_below(p))
			(void) add_running(p, running, doubtful);
	}
	return true;
}

/* Make all hints of this extension void at the end of the transaction. */
void
fairq_pending_reset(void)
{
	fairq_watch_transaction();
	note_level(&changed_at);
	changed = fairq_domain();
}

/*
 * Make what is cached of groups void, now and once more at the end.  Numbers
 * of some may have been freed.  Otherwise other backends hear of it once,
 * though this is called for each row: what they read meanwhile is void at the
 * end.  False if no backend heard of it, so that the caller has to make its own
 * cache void.
 */
bool
fairq_pending_groups(bool freed)
{
	bool		first = groups_changed == NULL;

	fairq_watch_transaction();
	note_level(&groups_changed_at);
	groups_changed = fairq_domain();
	groups_freed |= freed;
	if (!first && !freed)
		return false;
	pg_atomic_fetch_add_u64(&groups_changed->group_changes, 1);
	return true;
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
