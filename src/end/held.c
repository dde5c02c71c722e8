/*
 * held.c
 *		The changes that the end of a transaction makes in counters of running
 *		tasks.
 *
 * A transaction holds a slot in a queue and a group for each task that it has
 * claimed.  It also holds one in the group's tenant, if there is one.  At its
 * end the slots are closed, and a commit adds its change in the number of
 * leased tasks (counter.c, rule 3).  There is one note per group and
 * subtransaction; a note of a subtransaction is on top of its parent's, and is
 * removed with it.  A note is merged only with the previous one, so no search
 * is necessary.
 *
 * In a queue without limits no task is counted.  A note then records that the
 * transaction has claimed or ended tasks there.  No load counts for the
 * queue's counters before that transaction is over (tally.c).
 *
 * Locking: the tally's lock, shared; under it counters' mutexes.  After these,
 * the locks of lanes that take a group back (fairq_take_back).  Functions for
 * the end of a transaction neither fail nor allocate.
 */
#include "postgres.h"

#include "access/xact.h"

#include "grow.h"
#include "held.h"
#include "lane.h"

/* Changes in a group by a subtransaction. */
typedef struct Held
{
	FairqHints *hints;			/* hints of the queue */
	int32		group_no;		/* number of the group */
	SubTransactionId sub;		/* subtransaction that made the changes */
	FairqCounter *counter;		/* counter of the group, pinned */
	FairqTenantSlots tenant;	/* the group's tenant; its counter is pinned */
	int32		slots;			/* number of slots that are held */
	int32		running;		/* change in the number of leased tasks if it
								 * commits */
	uint16		parked;			/* lanes that have parked the group, once the
								 * slots are closed */
	uint16		shut;			/* lanes that have shut the tenant */
	int32		freed;			/* number of slots that this makes free */
} Held;

/* A queue in which tasks were claimed or ended without being counted. */
typedef struct Uncounted
{
	FairqHints *hints;			/* hints of the queue */
	SubTransactionId sub;		/* first subtransaction that has claimed or
								 * ended tasks */
} Uncounted;

/* both in TopTransactionContext */
static Held *held = NULL;
static int	nheld = 0;
static int	max_held = 0;
static Uncounted *uncounted = NULL;
static int	nuncounted = 0;
static int	max_uncounted = 0;

/* Make room for one more note, counted or not. */
void
fairq_held_room(bool counted)
{
	if (counted && nheld == max_held)
		held = fairq_grow(TopTransactionContext, held, &max_held, 8,
						  sizeof(Held));
	if (!counted && nuncounted == max_uncounted)
		uncounted = fairq_grow(TopTransactionContext, uncounted,
							   &max_uncounted, 8, sizeof(Uncounted));
}

/*
 * Record slots that are held in the group and its tenant, and the change in
 * their leased tasks if we commit.  The caller has pinned the counters, and
 * the note pins them from now on.  There is room.
 */
void
fairq_held_note(FairqHints *hints, int32 group_no, FairqCounter *counter,
				FairqTenantSlots tenant, int32 slots, int32 running)
{
	SubTransactionId sub = GetCurrentSubTransactionId();
	Held	   *last = nheld == 0 ? NULL : &held[nheld - 1];

	if (last == NULL || last->counter != counter || last->sub != sub ||
		last->tenant.counter != tenant.counter)
	{
		Assert(nheld < max_held);
		fairq_counter_pin(counter);
		if (tenant.counter != NULL)
			fairq_counter_pin(tenant.counter);
		last = &held[nheld++];
		*last = (Held)
		{
			.hints = hints,
			.group_no = group_no,
			.sub = sub,
			.counter = counter,
			.tenant = tenant
		};
	}
	last->slots += slots;
	last->running += running;
}

/*
 * Whether the transaction has claimed or ended tasks of the queue without
 * counting them.
 */
static bool
is_uncounted(FairqHints *hints)
{
	for (int i = nuncounted - 1; i >= 0; i--)
		if (uncounted[i].hints == hints)
			return true;
	return false;
}

/*
 * Record that the transaction has done so, in a call in progress.  There is
 * room.
 */
void
fairq_held_uncounted(FairqHints *hints)
{
	if (is_uncounted(hints))
		return;
	Assert(nuncounted < max_uncounted);
	pg_atomic_fetch_add_u32(&hints->tally.uncounted, 1);
	uncounted[nuncounted++] = (Uncounted)
	{
		.hints = hints,
		.sub = GetCurrentSubTransactionId()
	};
}

/*
 * The change in leased tasks of the group or tenant, or of the queue (-1), by
 * this transaction.
 */
int32
fairq_held_running(FairqHints *hints, int32 group_no)
{
	int32		running = 0;

	for (int i = 0; i < nheld; i++)
		if (held[i].hints == hints &&
			(group_no < 0 || held[i].group_no == group_no ||
			 (held[i].tenant.counter != NULL && held[i].tenant.no == group_no)))
			running += held[i].running;
	return running;
}

/* A subtransaction has committed, so its notes become its parent's. */
void
fairq_held_sub_committed(SubTransactionId sub, SubTransactionId parent)
{
	for (int i = nheld - 1; i >= 0 && held[i].sub == sub; i--)
		held[i].sub = parent;
	for (int i = nuncounted - 1; i >= 0 && uncounted[i].sub == sub; i--)
		uncounted[i].sub = parent;
}

/* Close the slots of a note; with adds, also add its changes. */
static void
close_slots(Held *h, const FairqAdds *adds)
{
	int32		running = adds == NULL ? 0 : h->running;

	h->parked = fairq_counter_ended(h->counter, adds, h->slots, running);
	if (h->tenant.counter != NULL)
		h->shut = fairq_counter_ended(h->tenant.counter, adds, h->slots,
									  running);
	(void) fairq_counter_ended(&h->hints->running, adds, h->slots, running);
	/* even if the load has seen it: waiters may have searched before */
	h->freed = h->slots - running;
}

/* Close slots, and add the changes. */
static void
commit_from(int first)
{
	FairqQueueTally *entered = NULL;
	FairqAdds	adds;

	for (int i = first; i < nheld; i++)
	{
		FairqHints *hints = held[i].hints;

		/* there may be two extensions, one after the other */
		if (entered == NULL || entered->tally != hints->tally.tally)
		{
			if (entered != NULL)
				fairq_tally_leave(entered);
			entered = &hints->tally;
			fairq_tally_enter(entered, &adds);
		}
		close_slots(&held[i], &adds);
	}
	if (entered != NULL)
		fairq_tally_leave(entered);
}

/* Allow loads to count the queues in which tasks were not counted. */
static void
end_uncounted(SubTransactionId sub)
{
	while (nuncounted > 0 && (sub == InvalidSubTransactionId ||
							  uncounted[nuncounted - 1].sub == sub))
	{
		FairqHints *hints = uncounted[--nuncounted].hints;

		pg_atomic_fetch_sub_u32(&hints->tally.uncounted, 1);
		/* sessions may be waiting for this */
		if (pg_atomic_read_u32(&hints->tally.limited) != 0)
			fairq_wake_chain(&hints->wakeup);
	}
}

/*
 * For callbacks: the subtransaction, or the whole transaction
 * (InvalidSubTransactionId), has visibly ended.  Groups that were parked are
 * taken back, and waiters are woken.
 */
void
fairq_held_end(SubTransactionId sub, bool committed)
{
	int			first = nheld;

	while (first > 0 && (sub == InvalidSubTransactionId ||
						 held[first - 1].sub == sub))
		first--;
	if (committed)
		commit_from(first);
	else
	{
		/* the claims yield no task */
		for (int i = first; i < nheld; i++)
			close_slots(&held[i], NULL);
	}
	for (int i = first; i < nheld; i++)
	{
		fairq_take_back(held[i].hints, held[i].group_no, held[i].parked);
		fairq_take_back(held[i].hints, held[i].tenant.no, held[i].shut);
		/* other groups may also be waiting for a slot in the queue */
		if (held[i].freed > 0)
			fairq_wake(&held[i].hints->wakeup, held[i].freed);
		fairq_counter_unpin(held[i].counter);
		if (held[i].tenant.counter != NULL)
			fairq_counter_unpin(held[i].tenant.counter);
	}
	nheld = first;
	end_uncounted(sub);
	if (sub != InvalidSubTransactionId)
		return;
	/* their memory is freed with the transaction */
	held = NULL;
	uncounted = NULL;
	max_held = max_uncounted = 0;
}
