/*
 * transaction.h
 *		Pending changes: what a transaction changes in shared memory when it ends.
 */
#ifndef FAIRQ_TRANSACTION_H
#define FAIRQ_TRANSACTION_H

#include "lane.h"
#include "store.h"

/* What others are to hear of a group. */
typedef struct FairqNews
{
	int32		items;			/* list of ready tasks, the lowest; -1: none */
	int32		nitems;			/* how many these are */
	int64		more;			/* lowest address of others; FAIRQ_ADDR_MAX: none */
	int64		scheduled[FAIRQ_REGIONS];	/* lowest in each timed region */
	FairqLeases leased;
} FairqNews;

/*
 * Of one group in one lane, in one subtransaction; or, once there are too
 * many of them, of a lane.
 */
typedef struct FairqPending
{
	SubTransactionId sub;
	FairqLane  *lane;
	int32		group_no;		/* -1: the lane */
	int32		below;			/* the change before it, for the same; -1: none */
	int32		next_unshown;	/* in the list of fairq_pending_show(); -1:
								 * none */
	int32		prev_unshown;	/* likewise */
	bool		in_unshown;		/* it is in that list */
	uint32		lane_no;		/* when it reserved */
	FairqNews	at_commit;
	FairqNews	not_shown;		/* of that, what our own pops were not shown */
	FairqNews	at_abort;
	int64		highest_at_abort;	/* of the queued tasks in that */
	int32		nready_at_commit;	/* so many tasks are to be popped then */
	int32		nready_at_abort;
	bool		reserved;		/* addresses */
	FairqTail	before;			/* the tail before that */
	FairqTail	last;			/* the last reserved */
	bool		torn;			/* others have reserved in between */
	bool		settings;		/* settings were changed */
	bool		granted;		/* of a lane: the queue's privileges were */
	bool		dropped;		/* of a lane: the queue is gone, or has another
								 * name: waiting sessions are to hear of it */
	bool		created;		/* of a lane: the queue was made; its hints are
								 * given back at abort */
	bool		removed;		/* of a lane: the queue was dropped by who had it
								 * locked; its hints are given back at commit */
	bool		uncounted;		/* of a lane: counters will have missed
								 * something */
	FairqCounter *counter;		/* the group's counter, pinned; or NULL */
	uint64		count_no;		/* of that, when it was entered or held */
	uint64		queue_count_no; /* of the queue's counter, likewise */
	int32		leave_at_commit;	/* so many tasks are not running then */
	int32		leave_at_abort;
	uint32		stats[FAIRQ_STATS];
} FairqPending;

/* differs from every other one */
#define FAIRQ_MIXED_COUNTS PG_UINT64_MAX

extern void fairq_watch_transaction(void);
extern void fairq_written(void);
extern FairqPending *fairq_pending(FairqLane *lane, int32 group_no);
extern void fairq_pending_reserved(FairqPending *pending,
								   const FairqReservation *reservation);
extern void fairq_pending_row_written(int n, int64 id, ItemPointer tid);
extern bool fairq_pending_any_unpinned(void);
extern void fairq_pending_written(void);
extern void fairq_pending_scheduled(FairqPending *pending, int64 addr);
extern void fairq_pending_leased_at_commit(FairqPending *pending, int64 addr,
										   TimestampTz until, uint64 searches);
extern void fairq_pending_leased_at_abort(FairqPending *pending, int64 addr,
										  TimestampTz until);
extern bool fairq_pending_show(FairqHints *hints);
extern bool fairq_has_own_tasks(void);
extern int64 fairq_pending_highest(FairqLane *lane, int32 group_no);
extern void fairq_pending_ready_at_abort(FairqPending *pending, int64 addr,
										 int64 id,
										 const ItemPointerData *root);
extern void fairq_pending_settings(FairqHints *hints, int32 group_no);
extern void fairq_pending_created(FairqHints *hints);
extern void fairq_pending_removed(FairqHints *hints);
extern void fairq_pending_granted(FairqHints *hints);
extern void fairq_pending_unknown_settings(void);
extern void fairq_pending_dropped(FairqHints *hints);
extern bool fairq_has_changed_settings(void);
extern void fairq_pending_leaves(FairqPending *pending, FairqCounter *counter,
								 uint64 count_no, uint64 queue_count_no,
								 int32 at_commit, int32 at_abort);
extern bool fairq_pending_running(FairqHints *hints, int32 group_no,
								  int32 *running, bool *doubtful);
extern void fairq_pending_groups(bool freed);
extern bool fairq_groups_freed(void);
extern void fairq_pending_reset(void);
extern void fairq_reset_hints_now(void);

#endif							/* FAIRQ_TRANSACTION_H */
