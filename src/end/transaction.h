/*
 * transaction.h
 *		The end of a transaction: applies its pending changes to hints, and
 *		settles the modules' caches.
 */
#ifndef FAIRQ_TRANSACTION_H
#define FAIRQ_TRANSACTION_H

#include "lane.h"
#include "store.h"

/* Tasks of a group that become ready as time passes. */
typedef struct FairqLater
{
	int64		scheduled[FAIRQ_REGIONS];	/* lowest address of timed tasks,
											 * per region; FAIRQ_ADDR_MAX:
											 * none */
	FairqLeases leased;			/* leases of tasks */
} FairqLater;

/* The tasks of a group that a commit or an abort publishes. */
typedef struct FairqNews
{
	struct ItemNode *items;		/* list of the lowest ready tasks; NULL:
								 * none */
	int32		nready;			/* number of tasks for which waiters are
								 * woken */
	int64		more;			/* lowest address of other ready tasks;
								 * FAIRQ_ADDR_MAX: none */
	TimestampTz since;			/* time at which the first of all these became
								 * ready; DT_NOEND: there are none */
	FairqLater *later;			/* timed and leased tasks; NULL: none */
} FairqNews;

/* Other changes to a group's tasks, or to a queue, as bits. */
typedef enum FairqDone
{
	FAIRQ_ENDS_RETRIED = 1 << 0,	/* in an in_order queue, a commit ends a
									 * task for which the group was put
									 * aside */
	FAIRQ_SETTINGS = 1 << 1,	/* settings of the group, or the queue, were
								 * changed */
	FAIRQ_ALL_SETTINGS = 1 << 2,	/* settings of any groups were changed */
	FAIRQ_GRANTED = 1 << 3,		/* privileges of the queue were changed */
	FAIRQ_DROPPED = 1 << 4,		/* the queue is dropped or renamed, which a
								 * commit reports to waiting sessions */
	FAIRQ_CREATED = 1 << 5,		/* the queue is new, and an abort gives its
								 * hints back */
	FAIRQ_REMOVED = 1 << 6,		/* the queue was dropped by a transaction that
								 * had locked it, so no other transaction can
								 * use it; a commit gives its hints back */
	FAIRQ_UNCOUNTED = 1 << 7	/* tasks of the queue were claimed or ended
								 * without being counted */
} FairqDone;

/* The slots that a transaction holds in a counter. */
typedef struct FairqHeld
{
	int32		slots;			/* number of slots that are held */
	int32		running;		/* change in the number of leased tasks if the
								 * transaction commits */
} FairqHeld;

/*
 * The pending changes of one group or tenant in one lane, or of a queue, in
 * one subtransaction.  There can be a million of them, so each has only 248
 * bytes.
 */
typedef struct FairqPending
{
	FairqLane  *lane;			/* lane of the group; for a change of the
								 * queue, the queue's first lane */
	int32		group_no;		/* the group's number; -1: change of the
								 * queue */
	SubTransactionId sub;		/* subtransaction that recorded the change */
	int32		below;			/* index of the next older change of the same
								 * group; -1: none */
	uint32		shown;			/* narrowings of the lane when at_commit was
								 * shown to own pops (later additions are shown
								 * at once); 0: not shown */
	uint32		done;			/* other changes: bits of FairqDone */
	int32		tally[FAIRQ_TALLIES];	/* changes in the numbers of tasks,
										 * applied at a commit */
	uint32		stats[FAIRQ_STATS]; /* number of each event, counted at a
									 * commit */

	/* slots that are held, for claimed tasks */
	struct
	{
		FairqCounter *counter;	/* counter of the group or tenant, pinned;
								 * NULL: no slots are held */
		FairqHeld	own;		/* slots in that counter */
		FairqHeld	in_queue;	/* slots in the queue; none for a tenant */
		uint16		parked;		/* lanes that have parked the group or shut
								 * the tenant, once the slots are closed */
	}			held;

	/* addresses that were reserved, and the group's tail for them */
	struct
	{
		FairqTail	before;		/* the group's tail before the first of them */
		FairqTail	last;		/* the last address that was reserved */
		uint32		lane_no;	/* lane_no of the lane when the addresses were
								 * reserved */
		bool		any;		/* true: addresses were reserved */
		bool		torn;		/* true: other transactions have reserved
								 * addresses in between, so an abort leaves the
								 * tail */
	}			reserved;

	FairqNews	at_commit;		/* tasks and leases that a commit publishes */
	FairqNews	at_abort;		/* tasks and leases that an abort publishes */
	int64		highest;		/* highest address of queued tasks in at_abort;
								 * FAIRQ_ADDR_NONE: none */
	FairqWork  *work;			/* work that has ended, in a time-fair lane;
								 * NULL: none */
} FairqPending;

/* Facts about this transaction so far.  Only transaction.c changes them. */
typedef struct FairqOwn
{
	bool		tasks;			/* true: own pops find tasks that other
								 * sessions do not see */
	bool		settings;		/* true: settings were changed, so this
								 * transaction must not park groups: other
								 * backends do not see its settings */
	uint64		rows;			/* domains in which rows of tasks were changed
								 * by SQL, a bit for each index */
	int			groups_freed_at;	/* level at which numbers of groups were
									 * freed; 0: none */
} FairqOwn;

extern FairqOwn fairq_own;

/* Record the time at which a task of the news became ready. */
static inline void
fairq_news_since(FairqNews *news, TimestampTz since)
{
	news->since = Min(news->since, since);
}

extern void fairq_watch_transaction(void);
extern FairqPending *fairq_pending(FairqLane *lane, int32 group_no);
extern void fairq_pending_reserved(FairqPending *pending,
								   const FairqReservation *reservation);
extern void fairq_pending_row_written(int n, int64 id, ItemPointer tid);
extern void fairq_pending_stays(FairqPending *pending, int64 addr);
extern bool fairq_pending_any_unpinned(void);
extern void fairq_pending_scheduled(FairqPending *pending, int64 addr);
extern void fairq_pending_leased_at_commit(FairqPending *pending, int64 addr,
										   TimestampTz until, uint64 searches);
extern void fairq_pending_leased_at_abort(FairqPending *pending, int64 addr,
										  TimestampTz until);
extern bool fairq_pending_show(FairqHints *hints);
extern int64 fairq_pending_highest(FairqLane *lane, int32 group_no);
extern void fairq_pending_ready_at_abort(FairqPending *pending,
										 const FairqTask *task,
										 const ItemPointerData *root);
extern void fairq_pending_pin(FairqPending *pending, FairqCounter *counter);
extern void fairq_pending_hold(FairqPending *pending, int32 tenant,
							   FairqHeld held);
extern int32 fairq_pending_running(FairqHints *hints, int32 group_no);
extern void fairq_pending_settings(FairqHints *hints, int32 group_no);
extern void fairq_pending_queue(FairqHints *hints, FairqDone done);
extern void fairq_pending_tallies(FairqHints *hints, int64 *n);
extern void fairq_written(void);
extern void fairq_pending_reset(bool settings);
extern bool fairq_pending_groups(bool freed);
extern void fairq_transactions_init(void (*end) (void),
									void (*settle) (bool committed,
													bool all));

#endif							/* FAIRQ_TRANSACTION_H */
