/*
 * transaction.c
 *		The end of a transaction: it applies pending changes, and modules
 *		settle their caches.
 *
 * Hints must follow what other backends can see: a task becomes ready exactly
 * when its enqueue has committed, and again when its pop has aborted.  So each
 * call of fairq records the changes that the end of its transaction or
 * subtransaction will make (pending.c).  PostgreSQL does the same with files
 * to be deleted.  The callbacks here apply them.  They run after the end is
 * visible to all backends.  At XACT_EVENT_COMMIT and ABORT the transaction has
 * left the ProcArray.  At ABORT_SUB the subtransaction is marked as aborted.
 *
 * Changes are applied in reverse order, and all of them before any module
 * settles its caches.
 *
 * Locking: the callbacks take lanes' locks, one at a time, and counters'
 * mutexes under the tally's lock.  They must neither fail (an ERROR there
 * would be a PANIC) nor allocate: memory is allocated when the change is
 * recorded.  The same holds for the functions of other modules (FairqEnding),
 * which run in the order in which fairq.c lists them.
 */
#include "postgres.h"

#include "access/xact.h"

#include "pending_internal.h"
#include "registry.h"
#include "shmem.h"
#include "times.h"
#include "tools.h"
#include "transaction.h"

/*
 * The lowest level of subtransactions at which a row or a setting was written;
 * 0: none.
 */
static int	written_at = 0;

/* the same for changes of rows by SQL, in this domain */
static int	changed_at = 0;
static FairqDomain *changed = NULL;

/* the same for changes to groups, and for freed numbers */
static int	groups_changed_at = 0;
static FairqDomain *groups_changed = NULL;
static bool groups_freed = false;

/*
 * the transaction changed settings of queues that shared memory did not know
 */
static FairqDomain *settings_changed = NULL;

/* actions of modules at the end, in this order */
static const FairqEnding *const *endings;
static int	nendings = 0;

static void
note_level(int *at)
{
	int			level = GetCurrentTransactionNestLevel();

	*at = *at == 0 ? level : Min(*at, level);
}

/* A subtransaction's changes become its parent's, or are undone. */
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
 * Make backends reread the settings and privileges that are affected by the
 * changes from an index on.  This precedes the publication of the same
 * transaction's tasks.  If the transaction pauses a queue and adds a task, the
 * task must not start.
 */
static void
publish_versions(int first)
{
	if (settings_changed)
		pg_atomic_fetch_add_u64(&settings_changed->settings, 1);
	for (int i = first; i < fairq_pending_count(); i++)
	{
		FairqPending *pending = fairq_pending_at(i);
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
		fairq_wake_all(&hints->wakeup);
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
		fairq_news_publish(lane, pending->group_no, news, false);
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
		fairq_news_publish(lane, pending->group_no, news, true);
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
	fairq_pending_written();
	for (int i = 0; i < nendings; i++)
	{
		if (endings[i]->end_call != NULL)
			endings[i]->end_call();
	}
}

/* Each module settles its caches. */
static void
settle(bool committed, bool all)
{
	for (int i = 0; i < nendings; i++)
	{
		if (endings[i]->settle != NULL)
			endings[i]->settle(committed, all);
	}
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
		FairqPending *pending = fairq_pending_at(i);
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
 * changes of the subtransaction, or all.  The hints of queues that this
 * removes are given back after all their changes.
 */
static void
apply_from(int first, bool committed)
{
	int			end = fairq_pending_count();

	publish_versions(first);
	while (fairq_pending_count() > first)
	{
		FairqPending *pending = fairq_pending_pop();

		apply_pending(pending, committed);
		fairq_pending_release(pending);
	}
	fairq_tally_committed();
	/* changes that were taken off the stack stay in the array */
	close_all_slots(first, end, committed);
	for (int i = first; i < end; i++)
	{
		FairqPending *pending = fairq_pending_at(i);

		if (pending->held.counter != NULL)
			slots_are_closed(pending, committed);
	}
	for (int i = first; i < end; i++)
	{
		FairqPending *pending = fairq_pending_at(i);

		if (pending->done & (committed ? FAIRQ_REMOVED : FAIRQ_CREATED))
			fairq_shmem_release(fairq_hints_of(pending->lane));
	}
}

static void
apply_all(bool committed)
{
	end_calls();
	/* while the hints still belong to the queues */
	fairq_samples_end(committed);
	apply_from(0, committed);
	fairq_pending_forget();
	written_at = changed_at = groups_changed_at = 0;
	groups_freed = false;
	if (changed)
		pg_atomic_fetch_add_u64(&changed->resets, 1);
	if (groups_changed)
		pg_atomic_fetch_add_u64(&groups_changed->group_changes, 1);
	changed = groups_changed = settings_changed = NULL;
	fairq_wait_settle(committed);
	settle(committed, true);
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
			/* a transaction that has written no row makes no change */
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

static void
subxact_callback(SubXactEvent event, SubTransactionId sub,
				 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		fairq_pending_sub_committed(sub, parent);
		fairq_samples_sub_end(sub, parent, true);
		end_level(true);
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		int			first = fairq_pending_count();

		end_calls();
		while (first > 0 && fairq_pending_at(first - 1)->sub == sub)
			first--;
		fairq_samples_sub_end(sub, parent, false);
		apply_from(first, false);
		if (changed)
			pg_atomic_fetch_add_u64(&changed->resets, 1);
		settle(false, false);
		end_level(false);
		groups_freed &= groups_changed_at > 0;
	}
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
 * Record that settings have changed for queues without hints.  The queues may
 * have hints by the time of the commit.  Then all hints are invalid, including
 * the sets of parked groups.  Backends that have read the settings meanwhile
 * read them again.
 */
void
fairq_pending_unknown_settings(void)
{
	fairq_pending_reset();
	settings_changed = fairq_domain();
}

/* Whether this transaction has changed rows of tasks by SQL. */
bool
fairq_has_changed_rows(void)
{
	return changed != NULL;
}

/* Invalidate all hints of this extension at the end of the transaction. */
void
fairq_pending_reset(void)
{
	fairq_watch_transaction();
	note_level(&changed_at);
	changed = fairq_domain();
}

/*
 * Invalidate cached groups, now and at the end of the transaction.  With
 * freed, numbers of groups may have been freed.  Without it, this notifies
 * other backends only once, although it is called for each row.  Groups that
 * they read meanwhile become invalid at the end.  Returns false if no backend
 * was notified, so the caller has to invalidate its own cache.
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

/* Whether this transaction has freed numbers of groups. */
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

/* Once per backend: set the functions to call when transactions end. */
void
fairq_transactions_init(const FairqEnding *const *of_modules, int n)
{
	endings = of_modules;
	nendings = n;
	fairq_watch_with(xact_callback, subxact_callback);
}
