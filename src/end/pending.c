/*
 * pending.c
 *		Pending changes: what the end of a transaction changes in hints.
 *
 * Each call of fairq notes here what the end of its transaction or
 * subtransaction will change; transaction.c applies it.
 *
 * Pending changes are a stack.  Those of a subtransaction lie on top of its
 * parent's; if it commits they are relabelled as the parent's, if it aborts
 * they are applied in reverse order and popped.  The reverse order lets
 * reservations be put back one after the other.
 *
 * The stack is bounded.  Past that a transaction notes changes by lanes only: if tasks are ready at
 * its end, or it has leased some, then all that is known of the lane is
 * forgotten, and read off the table again.
 *
 * A change is found through a hash table of the topmost ones for each group of
 * a lane; each knows the one below it.  They come and go as on a stack, so a
 * bucket is simply given back to the one below, or emptied: whatever was put
 * in behind it has gone before.
 *
 * Locking: none.  All memory is had when a change is noted: what transaction.c
 * calls here neither fails nor allocates.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "utils/memutils.h"

#include "held.h"
#include "pending_internal.h"
#include "registry.h"

/* some 40 MB, for a transaction with as many groups */
#ifndef FAIRQ_MAX_PENDING
#define FAIRQ_MAX_PENDING 65536 /* tests build with few */
#endif

/* no change or bucket */
#define NO_INDEX (-1)

static FairqPending *stack = NULL; /* in TopTransactionContext */
static int	nstack = 0;
static int	max_stack = 0;
static int32 *topmost = NULL;	/* 2 * max_stack slots, likewise */

/* the first change of which our own pops have not been shown all */
static int32 unshown = NO_INDEX;

static bool own_tasks = false;	/* some change makes tasks ready at commit */
static bool to_undo = false;	/* some change has ready_at_abort */
static bool own_settings = false;	/* settings were changed */

/* the reservations whose rows are being written */
static struct
{
	FairqReservation reservation;
	int32		pending;
}			in_flight[FAIRQ_MAX_ROWS];
static int	nin_flight = 0;

/* what is called at the end of the transaction */
static XactCallback xact_callback;
static SubXactCallback subxact_callback;

/* List the change for our own pops, which are shown it before they search. */
static void
add_unshown(FairqPending *pending)
{
	own_tasks |= fairq_news_has_tasks(&pending->at_commit.not_shown);
	if (pending->unshown.listed)
		return;
	pending->unshown.listed = true;
	pending->unshown.prev = NO_INDEX;
	pending->unshown.next = unshown;
	unshown = pending - stack;
	if (pending->unshown.next != NO_INDEX)
		stack[pending->unshown.next].unshown.prev = unshown;
}

/* Take the change off that list, as our own pops were shown all of it. */
void
fairq_pending_is_shown(FairqPending *pending)
{
	if (!pending->unshown.listed)
		return;
	fairq_news_release(&pending->at_commit.not_shown);
	pending->unshown.listed = false;
	if (pending->unshown.next != NO_INDEX)
		stack[pending->unshown.next].unshown.prev = pending->unshown.prev;
	if (pending->unshown.prev != NO_INDEX)
		stack[pending->unshown.prev].unshown.next = pending->unshown.next;
	else
		unshown = pending->unshown.next;
}

/* Index of the first change of which our own pops were not shown all; -1: none. */
int32
fairq_pending_first_unshown(void)
{
	return unshown;
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

/* How many changes there are. */
int
fairq_pending_count(void)
{
	return nstack;
}

/* The change of that index, from 0; or one that was just taken off. */
FairqPending *
fairq_pending_at(int index)
{
	return &stack[index];
}

/* Take the last change off the stack. */
FairqPending *
fairq_pending_pop(void)
{
	FairqPending *pending = &stack[nstack - 1];

	*slot_of(pending->lane, pending->group_no) = pending->below;
	fairq_pending_is_shown(pending);
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

/* Forget all changes, whose memory goes with the transaction. */
void
fairq_pending_forget(void)
{
	stack = NULL;
	topmost = NULL;
	max_stack = 0;
	fairq_news_forget();
	unshown = NO_INDEX;
	own_tasks = to_undo = false;
	own_settings = false;
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
		fairq_news_add_lane(&below->at_commit.news, &pending->at_commit.news);
		fairq_news_add_lane(&below->at_commit.not_shown,
							&pending->at_commit.news);
		add_unshown(below);
		fairq_news_add_lane(&below->at_abort.news, &pending->at_abort.news);
		below->at_commit.nready += pending->at_commit.nready;
		below->at_abort.nready += pending->at_abort.nready;
		below->at_abort.highest = Max(below->at_abort.highest,
									  pending->at_abort.highest);
		below->settings |= pending->settings;
		below->queue.granted |= pending->queue.granted;
		below->queue.all_settings |= pending->queue.all_settings;
		below->queue.dropped |= pending->queue.dropped;
		below->queue.created |= pending->queue.created;
		below->queue.removed |= pending->queue.removed;
		below->ends_retried |= pending->ends_retried;
		below->work.any |= pending->work.any;
		for (int c = 0; c < FAIRQ_STATS; c++)
			below->stats[c] += pending->stats[c];
		for (int t = 0; t < FAIRQ_TALLIES; t++)
			below->tally[t] += pending->tally[t];
		return true;
	}
	return false;
}

/* A subtransaction has committed: its changes are its parent's. */
void
fairq_pending_sub_committed(SubTransactionId sub, SubTransactionId parent)
{
	for (int i = nstack - 1; i >= 0 && stack[i].sub == sub; i--)
		stack[i].sub = parent;
	while (nstack > 1 && stack[nstack - 1].group_no < 0 &&
		   merge_into_lane_pending_below(nstack - 1))
	{
		FairqPending *pending = fairq_pending_pop();

		fairq_news_release(&pending->at_commit.news);
		fairq_news_release(&pending->at_abort.news);
	}
}

/* Tell which functions are to be called at the end; once per backend. */
void
fairq_watch_with(XactCallback at_end, SubXactCallback at_sub_end)
{
	xact_callback = at_end;
	subxact_callback = at_sub_end;
}

/* Have these functions called at the end of the transaction. */
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

	if (nstack >= FAIRQ_MAX_PENDING)
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
	fairq_news_init(&pending->at_commit.news);
	fairq_news_init(&pending->at_commit.not_shown);
	fairq_news_init(&pending->at_abort.news);
	pending->at_abort.highest = FAIRQ_ADDR_NONE;
	return pending;
}

/*
 * Note that a task that was ready is ours, unless we abort.  root is where an
 * index leads to its row, if that is known.
 */
void
fairq_pending_ready_at_abort(FairqPending *pending, const FairqTask *task,
							 const ItemPointerData *root)
{
	int64		addr = task->addr;
	FairqItem	item = {.addr = addr, .order = (uint32) task->id};

	pending->at_abort.nready++;
	to_undo = true;
	if (fairq_is_timed(addr))
	{
		FairqRegion region = fairq_region(addr);

		pending->at_abort.news.scheduled[region] =
			Min(pending->at_abort.news.scheduled[region], addr);
		return;
	}
	pending->at_abort.highest = Max(pending->at_abort.highest, addr);
	fairq_news_since(&pending->at_abort.news,
					 Max(task->enqueued_at, task->run_at));
	if (pending->group_no < 0 || root == NULL || !ItemPointerIsValid(root))
	{
		fairq_news_add_more(&pending->at_abort.news, addr);
		return;
	}
	item.tid = *root;
	fairq_news_add_item(&pending->at_abort.news, &item);
}

/* Note that a task is scheduled there, if we commit. */
void
fairq_pending_scheduled(FairqPending *pending, int64 addr)
{
	FairqRegion region = fairq_region(addr);

	pending->at_commit.news.scheduled[region] =
		Min(pending->at_commit.news.scheduled[region], addr);
	pending->at_commit.not_shown.scheduled[region] =
		Min(pending->at_commit.not_shown.scheduled[region], addr);
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
	add_lease(&pending->at_commit.news.leased, addr, until, searches);
	if (searches > 0)
		return;
	add_lease(&pending->at_commit.not_shown.leased, addr, until, searches);
	add_unshown(pending);
}

/*
 * Note that a task there has its old lease again, if we abort.  The lane may
 * have forgotten that lease while we were changing the row.
 */
void
fairq_pending_leased_at_abort(FairqPending *pending, int64 addr,
							  TimestampTz until)
{
	add_lease(&pending->at_abort.news.leased, addr, until, 0);
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
	if (!pending->reserved.any)
	{
		pending->reserved.any = true;
		pending->reserved.before = reservation->before;
		pending->reserved.lane_no = reservation->lane_no;
	}
	else if (pending->reserved.lane_no != reservation->lane_no ||
			 pending->reserved.last.addr != reservation->before.addr ||
			 pending->reserved.last.count != reservation->before.count)
	{
		/* there is no tail any more that could be put back */
		pending->reserved.torn = true;
		pending->reserved.lane_no = reservation->lane_no;
	}
	pending->reserved.last = reservation->tail;
	pending->at_commit.nready++;
}

/* Note that a task is ready since then, if we commit. */
void
fairq_pending_ready_since(FairqPending *pending, TimestampTz since)
{
	fairq_news_since(&pending->at_commit.news, since);
	fairq_news_since(&pending->at_commit.not_shown, since);
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
		fairq_news_add_more(&pending->at_commit.news, item.addr);
		fairq_news_add_more(&pending->at_commit.not_shown, item.addr);
	}
	else
	{
		fairq_news_add_item(&pending->at_commit.news, &item);
		fairq_news_add_item(&pending->at_commit.not_shown, &item);
	}
	add_unshown(pending);
}

/*
 * Note that a queued task stands there as before, in a new row, if we commit: calls
 * that came by meanwhile have passed over it.
 */
void
fairq_pending_stays(FairqPending *pending, int64 addr)
{
	pending->at_commit.nready++;
	fairq_news_add_more(&pending->at_commit.news, addr);
	fairq_news_add_more(&pending->at_commit.not_shown, addr);
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
		highest = Max(highest, p->at_abort.highest);
	return highest;
}

/* Have the group taken back into service at the end, if it is parked. */
static void
take_back_at_end(FairqHints *hints, int32 group_no)
{
	FairqCounter *counter;

	fairq_held_room(true);
	counter = fairq_shmem_counter(hints, group_no);
	fairq_held_note(hints, group_no, counter, 0, 0);
	fairq_counter_unpin(counter);
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
	/* a change of all groups takes all of them back */
	if (pending != NULL &&
		(pending->queue.all_settings || pending->queue.removed))
		return;
	pending = fairq_pending(lane, group_no);
	pending->settings = true;
	/* of so many groups that they are not kept apart */
	pending->queue.all_settings |= pending->group_no != group_no;
	if (pending->group_no >= 0)
		take_back_at_end(hints, group_no);
}

/* Note that settings of any groups of the queue are changed. */
void
fairq_pending_all_settings(FairqHints *hints)
{
	fairq_pending_settings(hints, -1);
	fairq_pending(&hints->lanes[0], -1)->queue.all_settings = true;
}

/* Note that the queue is new: if we abort, it has never been there. */
void
fairq_pending_created(FairqHints *hints)
{
	fairq_pending(&hints->lanes[0], -1)->queue.created = true;
}

/*
 * Note that the queue is dropped, and that the caller has it locked so that no
 * other transaction can use it: a commit gives its hints back.
 */
void
fairq_pending_removed(FairqHints *hints)
{
	fairq_pending(&hints->lanes[0], -1)->queue.removed = true;
}

/*
 * Note that privileges of the queue are changed: backends read them anew, and
 * no more.
 */
void
fairq_pending_granted(FairqHints *hints)
{
	fairq_pending(&hints->lanes[0], -1)->queue.granted = true;
}

/*
 * Note that the queue is gone, or has another name.  Sessions that wait for
 * its tasks are woken at a commit.
 */
void
fairq_pending_dropped(FairqHints *hints)
{
	fairq_pending(&hints->lanes[0], -1)->queue.dropped = true;
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

/* Add what this transaction has changed so far of how many tasks there are. */
void
fairq_pending_tallies(FairqHints *hints, int64 *n)
{
	for (int i = 0; i < nstack; i++)
	{
		for (int t = 0; t < FAIRQ_TALLIES; t++)
			n[t] += fairq_hints_of(stack[i].lane) == hints ?
				stack[i].tally[t] : 0;
	}
}
