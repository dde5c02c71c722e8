/*
 * pending.h
 *		Pending changes: what the end of a transaction changes in hints.
 */
#ifndef FAIRQ_PENDING_H
#define FAIRQ_PENDING_H

#include "news.h"
#include "store.h"

/*
 * The pending changes of one group in one lane, in one subtransaction; or,
 * once there are too many of them, of a lane.
 */
typedef struct FairqPending
{
	SubTransactionId sub;		/* subtransaction that noted the change */
	FairqLane  *lane;			/* lane of the group; of a change of the queue,
								 * the first one */
	int32		group_no;		/* the group's number; -1: change of the lane,
								 * or of the queue */
	int32		below;			/* index of the change of the same group or
								 * lane before this one; -1: none */

	/* place in the list of changes that own pops are still to be shown */
	struct
	{
		int32		next;		/* index of the next change; -1: none */
		int32		prev;		/* index of the one before; -1: none */
		bool		listed;		/* true: in that list */
	}			unshown;

	/* addresses that were reserved, and the group's tail for them */
	struct
	{
		uint32		lane_no;	/* lane_no of the lane when they were
								 * reserved */
		bool		any;		/* true: addresses were reserved */
		FairqTail	before;		/* the group's tail before the first of them */
		FairqTail	last;		/* the last address that was reserved */
		bool		torn;		/* true: other transactions reserved in
								 * between, so an abort leaves the tail */
	}			reserved;

	/* what a commit makes ready, and what else it publishes */
	struct
	{
		FairqNews	news;		/* all of that */
		FairqNews	not_shown;	/* part of news that own pops were not shown */
		int32		nready;		/* number of tasks that it makes ready */
	}			at_commit;

	/* what an abort makes ready, and what else it publishes */
	struct
	{
		FairqNews	news;		/* all of that */
		int64		highest;	/* highest address of queued tasks in news;
								 * FAIRQ_ADDR_NONE: none */
		int32		nready;		/* number of tasks that it makes ready */
	}			at_abort;

	FairqWork	work;			/* what was begun and has ended, in a lane fair
								 * by time */
	bool		settings;		/* true: settings were changed */

	/* what was done to the queue, in the change of a queue */
	struct
	{
		bool		granted;	/* true: its privileges were changed */
		bool		all_settings;	/* true: settings of any of its groups were
									 * changed */
		bool		dropped;	/* true: it is gone, or has another name, which
								 * waiting sessions are to hear of */
		bool		created;	/* true: it was made; an abort gives its hints
								 * back */
		bool		removed;	/* true: it was dropped by a transaction that
								 * had it locked; a commit gives its hints
								 * back */
	}			queue;

	bool		ends_retried;	/* true: a commit ends a task for which the
								 * group was put aside, in a queue that is in
								 * order */
	uint32		stats[FAIRQ_STATS]; /* number of each event, counted at a
									 * commit */
	int64		tally[FAIRQ_TALLIES];	/* number of tasks more, or less, that
										 * there are after a commit */
} FairqPending;

/* Note that so many tasks more count as that, if we commit. */
static inline void
fairq_pending_tally(FairqPending *pending, FairqTallied as, int n)
{
	pending->tally[as] += n;
}

extern void fairq_watch_transaction(void);
extern FairqPending *fairq_pending(FairqLane *lane, int32 group_no);
extern void fairq_pending_reserved(FairqPending *pending,
								   const FairqReservation *reservation);
extern void fairq_pending_row_written(int n, int64 id, ItemPointer tid);
extern void fairq_pending_ready_since(FairqPending *pending,
									  TimestampTz since);
extern void fairq_pending_stays(FairqPending *pending, int64 addr);
extern bool fairq_pending_any_unpinned(void);
extern void fairq_pending_written(void);
extern void fairq_pending_scheduled(FairqPending *pending, int64 addr);
extern void fairq_pending_leased_at_commit(FairqPending *pending, int64 addr,
										   TimestampTz until, uint64 searches);
extern void fairq_pending_leased_at_abort(FairqPending *pending, int64 addr,
										  TimestampTz until);
extern bool fairq_has_own_tasks(void);
extern int64 fairq_pending_highest(FairqLane *lane, int32 group_no);
extern void fairq_pending_ready_at_abort(FairqPending *pending,
										 const FairqTask *task,
										 const ItemPointerData *root);
extern void fairq_pending_settings(FairqHints *hints, int32 group_no);
extern void fairq_pending_all_settings(FairqHints *hints);
extern void fairq_pending_created(FairqHints *hints);
extern void fairq_pending_removed(FairqHints *hints);
extern void fairq_pending_granted(FairqHints *hints);
extern void fairq_pending_dropped(FairqHints *hints);
extern bool fairq_has_changed_settings(void);
extern void fairq_pending_tallies(FairqHints *hints, int64 *n);

#endif							/* FAIRQ_PENDING_H */
