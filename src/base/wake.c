/*
 * wake.c
 *		How to wake sessions that wait for tasks of one queue or several
 *		queues.
 *
 * Workers sleep on a condition variable in the queue's shared memory.  A
 * transaction calls one waiter for each task that it made ready, after its end
 * is visible (transaction.c).  It adds the number of these tasks to the
 * queue's calls, and signals the condition variable.  A waiter that wakes up
 * searches for tasks only if it can take one of the calls.  So as many waiters
 * search as there are calls.  A waiter that finds nothing sleeps again in the
 * server (pop.c), and its client does not notice.
 *
 * This protocol loses no wake-up.  A waiter counts itself before it searches
 * for work.  It sleeps only if there is no call once it has joined the
 * sleepers.  A transaction that has made tasks ready adds its calls if there
 * is any waiter, and then signals.  If an error ends a waiter that may have
 * taken a call, that waiter calls another one.  A waiter searches once more at
 * its timeout.
 *
 * A waiter that has found a task returns, and its client pops.  The client may
 * be gone, or slow.  Until that pop the task is still ready, and other waiters
 * would find it too.  So no waiter searches without a call.  But one second
 * after the last waiter returned with a task, one waiter searches.  If none
 * has returned, one waiter searches one second after a call.  The first waiter
 * that then wakes up for its check, once a second, does this search (pop.c).
 * If it finds a task, pops wake the next waiter, because the number of
 * remaining tasks is unknown.  test/model/wake.py is a model of the protocol.
 *
 * One of the waiters, the timekeeper, waits for timed tasks; the others sleep
 * until they are woken.  If a task becomes due earlier than the timekeeper
 * expects, or if the timekeeper leaves, another waiter is woken to check the
 * clock.
 *
 * A session can sleep on only one condition variable.  So sessions that wait
 * at several queues share one condition variable of their domain, and a
 * broadcast wakes them all.  A session searches if it can take a call of one
 * of its queues; the others continue to sleep.  A waiter may take the call of
 * one queue but find a task in an earlier one.  It then passes the call on.
 * Its client's pop also passes the call on if it has enough tasks before it
 * reaches the queue with the call.
 *
 * Sometimes the number of ready tasks is not known, for example after a queue
 * is resumed or a limit is raised.  Then one waiter is called, and each pop
 * that finds all the tasks it wanted calls the next one.
 *
 * Locking: shared fields are atomic, and a wakeup's domain is set before the
 * queue has waiters.  Waking takes the condition variable's spinlock,
 * allocates nothing and cannot fail, so commit and abort callbacks can do it.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "compat.h"
#include "shmem.h"
#include "wake.h"

/* time after which one waiter searches without a call */
#define RECHECK_AFTER USECS_PER_SEC

/* the queues at which this backend waits */
static struct
{
	FairqWakeup *wakeup;
	TimestampTz keeps_until;	/* time until which this backend is the
								 * timekeeper; DT_NOEND: it is not */
}			waits[FAIRQ_MAX_WAITS];
static int	nwaits = 0;
static int	called_by = -1;		/* index of the queue whose call this backend
								 * has taken; -1: none */
static bool rechecking = false; /* true: this backend searches without a call,
								 * after a while */

/*
 * if this backend waits at several queues, the queue that had a task; NULL:
 * none, or the pop has visited that queue
 */
static FairqWakeup *unreported = NULL;

/* the queue that had a task, if the client has not been notified yet */
static FairqWakeup *to_tell = NULL;

static ConditionVariable *
sleepers_at_several(const FairqWakeup *wakeup)
{
	return &fairq_domain_at(wakeup->domain)->several;
}

/* Initialize a wakeup, once after its shared memory is allocated. */
void
fairq_wakeup_init(FairqWakeup *wakeup)
{
	ConditionVariableInit(&wakeup->sleepers);
	pg_atomic_init_u32(&wakeup->waiters, 0);
	pg_atomic_init_u32(&wakeup->several, 0);
	pg_atomic_init_u32(&wakeup->calls, 0);
	pg_atomic_init_u32(&wakeup->surplus, 0);
	pg_atomic_init_u64(&wakeup->recheck, (uint64) DT_NOEND);
	pg_atomic_init_u64(&wakeup->kept_until, (uint64) DT_NOEND);
}

/* Begin again for another queue, at which no session waits. */
void
fairq_wakeup_begin(FairqWakeup *wakeup, int32 domain)
{
	wakeup->domain = domain;
	pg_atomic_write_u32(&wakeup->calls, 0);
	pg_atomic_write_u32(&wakeup->surplus, 0);
	pg_atomic_write_u64(&wakeup->recheck, (uint64) DT_NOEND);
	pg_atomic_write_u64(&wakeup->kept_until, (uint64) DT_NOEND);
}

/* Make one waiter search a while later, with or without a call. */
static void
recheck_later(FairqWakeup *wakeup)
{
	pg_atomic_write_u64(&wakeup->recheck,
						(uint64) (GetCurrentTimestamp() + RECHECK_AFTER));
}

/* Call up to n more waiters.  Returns the number of waiters. */
static uint32
add_calls(FairqWakeup *wakeup, uint32 n)
{
	uint32		waiters;
	uint32		calls;

	/* a waiter that is not counted yet will see the ready tasks */
	pg_memory_barrier();
	waiters = pg_atomic_read_u32(&wakeup->waiters);
	calls = pg_atomic_read_u32(&wakeup->calls);
	while (calls < waiters &&
		   !pg_atomic_compare_exchange_u32(&wakeup->calls, &calls,
										   Min(n, waiters - calls) + calls))
		;
	if (waiters > 0 &&
		pg_atomic_read_u64(&wakeup->recheck) == (uint64) DT_NOEND)
		recheck_later(wakeup);
	return waiters;
}

/* Wake up to n more waiters; FAIRQ_ALL_WAITERS: all. */
void
fairq_wake(FairqWakeup *wakeup, int32 n)
{
	uint32		waiters;

	if (n <= 0)
		return;
	waiters = add_calls(wakeup, n);
	for (uint32 i = 0; i < Min((uint32) n, waiters); i++)
		ConditionVariableSignal(&wakeup->sleepers);
	/* waiters at several queues check for calls */
	if (pg_atomic_read_u32(&wakeup->several) > 0)
		ConditionVariableBroadcast(sleepers_at_several(wakeup));
}

/*
 * Wake one waiter, and make each pop that finds a task wake the next, because
 * the number of ready tasks is not known.
 */
void
fairq_wake_chain(FairqWakeup *wakeup)
{
	pg_atomic_fetch_add_u32(&wakeup->surplus, 1);
	fairq_wake(wakeup, 1);
}

/*
 * Wake the next waiter if a pop has found all the tasks that it wanted.
 * Otherwise there is no more work, if the pop began after the last change of
 * surplus.  The argument is the value of surplus when the pop began.
 */
void
fairq_wake_next(FairqWakeup *wakeup, uint32 surplus, bool found)
{
	if (pg_atomic_read_u32(&wakeup->surplus) == 0)
		return;
	if (found)
		fairq_wake(wakeup, 1);
	else
		pg_atomic_compare_exchange_u32(&wakeup->surplus, &surplus, 0);
}

/*
 * For a pop of several queues that has ended without visiting this queue: if
 * the queue called the session, call another waiter.
 */
void
fairq_wake_unserved(FairqWakeup *wakeup)
{
	if (unreported != wakeup)
		return;
	unreported = NULL;
	fairq_wake(wakeup, 1);
}

/*
 * Wake a waiter if a task becomes due at the given time, and no other waiter
 * waits for it.
 */
void
fairq_wake_in_time(FairqWakeup *wakeup, TimestampTz due)
{
	pg_memory_barrier();
	if (pg_atomic_read_u32(&wakeup->waiters) > 0 &&
		due < (int64) pg_atomic_read_u64(&wakeup->kept_until))
		fairq_wake(wakeup, 1);
}

static bool
waits_at(FairqWakeup *const *wakeups, int n)
{
	if (nwaits != n)
		return false;
	for (int i = 0; i < n; i++)
		if (waits[i].wakeup != wakeups[i])
			return false;
	return true;
}

/* Begin to wait at these queues, unless this backend waits there already. */
void
fairq_wait_begin(FairqWakeup *const *wakeups, int n)
{
	if (waits_at(wakeups, n))
		return;
	fairq_wait_end(false, NULL);
	unreported = NULL;
	called_by = -1;
	rechecking = false;
	for (int i = 0; i < n; i++)
	{
		if (n > 1)
			pg_atomic_fetch_add_u32(&wakeups[i]->several, 1);
		/* a full barrier: the search sees tasks that became ready before */
		pg_atomic_fetch_add_u32(&wakeups[i]->waiters, 1);
		waits[i].wakeup = wakeups[i];
		waits[i].keeps_until = DT_NOEND;
		nwaits = i + 1;
	}
}

/*
 * Stop being the timekeeper of a queue.  Returns whether this backend was its
 * timekeeper.
 */
static bool
leave_clock(int nth)
{
	uint64		mine = (uint64) waits[nth].keeps_until;

	if (waits[nth].keeps_until == DT_NOEND)
		return false;
	waits[nth].keeps_until = DT_NOEND;
	return pg_atomic_compare_exchange_u64(&waits[nth].wakeup->kept_until,
										  &mine, (uint64) DT_NOEND);
}

/* The condition variable on which this backend sleeps. */
static ConditionVariable *
own_sleepers(void)
{
	return nwaits > 1 ? sleepers_at_several(waits[0].wakeup) :
		&waits[0].wakeup->sleepers;
}

/*
 * End waiting.  pass_on: an error has ended the wait, so another waiter checks
 * the tasks for which this one may have been woken.  due, unless NULL, has the
 * time at which a task of each queue becomes due; possibly no other backend
 * was woken for that time.
 */
void
fairq_wait_end(bool pass_on, const TimestampTz *due)
{
	int			n = nwaits;

	if (n == 0)
		return;
	fairq_cancel_sleep(own_sleepers());
	nwaits = 0;
	for (int i = 0; i < n; i++)
	{
		FairqWakeup *wakeup = waits[i].wakeup;
		bool		was_keeper = leave_clock(i);

		pg_atomic_fetch_sub_u32(&wakeup->waiters, 1);
		if (n > 1)
			pg_atomic_fetch_sub_u32(&wakeup->several, 1);
		if (was_keeper || pass_on)
			fairq_wake(wakeup, 1);
		else if (due != NULL)
			fairq_wake_in_time(wakeup, due[i]);
	}
}

/* End waiting, because a queue has a task. */
void
fairq_wait_found(int nth)
{
	FairqWakeup *found = waits[nth].wakeup;
	FairqWakeup *caller = called_by < 0 ? NULL : waits[called_by].wakeup;
	bool		several = nwaits > 1;

	to_tell = found;
	/* the amount of remaining work is unknown */
	if (rechecking)
		pg_atomic_fetch_add_u32(&found->surplus, 1);
	recheck_later(found);
	fairq_wait_end(false, NULL);
	unreported = several ? found : NULL;
	if (caller != NULL && caller != found)
		fairq_wake(caller, 1);
}

/*
 * Handle the end of the transaction.  After an error the client is not
 * notified.  So other waiters search for the tasks that this backend has found
 * or was woken for.
 */
void
fairq_wait_settle(bool committed)
{
	FairqWakeup *found = to_tell;

	to_tell = NULL;
	if (committed)
		return;
	fairq_wait_end(true, NULL);
	if (found != NULL)
		fairq_wake(found, 1);
}

/*
 * Returns the time until which this backend sleeps, if a task of a queue
 * becomes due at a given time.  It is that time unless another waiter is the
 * timekeeper for it.
 */
TimestampTz
fairq_keep_time(int nth, TimestampTz due, TimestampTz otherwise)
{
	FairqWakeup *wakeup = waits[nth].wakeup;
	uint64		kept_until;

	(void) leave_clock(nth);
	kept_until = pg_atomic_read_u64(&wakeup->kept_until);
	while (due < otherwise && due < (int64) kept_until)
	{
		if (pg_atomic_compare_exchange_u64(&wakeup->kept_until, &kept_until,
										   (uint64) due))
		{
			waits[nth].keeps_until = due;
			return due;
		}
	}
	return otherwise;
}

/* Take one of the queue's calls, if there is one. */
static bool
take_call(FairqWakeup *wakeup)
{
	uint32		calls = pg_atomic_read_u32(&wakeup->calls);

	while (calls > 0)
		if (pg_atomic_compare_exchange_u32(&wakeup->calls, &calls, calls - 1))
			return true;
	return false;
}

/*
 * Whether this waiter has to search without a call now; true for only one
 * waiter.
 */
static bool
is_to_recheck(FairqWakeup *wakeup)
{
	uint64		at = pg_atomic_read_u64(&wakeup->recheck);
	TimestampTz now;

	if (at == (uint64) DT_NOEND)
		return false;
	now = GetCurrentTimestamp();
	/* if the clock was set back, that time may be too far away */
	return ((TimestampTz) at <= now ||
			(TimestampTz) at > now + RECHECK_AFTER) &&
		pg_atomic_compare_exchange_u64(&wakeup->recheck, &at,
									   (uint64) DT_NOEND);
}

/*
 * Whether this backend has to search again, and at which of its queues
 * (called_by).
 */
static bool
has_news(void)
{
	called_by = -1;
	for (int i = 0; i < nwaits; i++)
	{
		bool		called = take_call(waits[i].wakeup);

		rechecking = !called && is_to_recheck(waits[i].wakeup);
		if (called || rechecking)
		{
			called_by = i;
			return true;
		}
	}
	return false;
}

/*
 * Sleep until there is a reason to search again, or until the given time.  The
 * sleep may end earlier.  Returns whether there is such a reason.
 */
bool
fairq_sleep(TimestampTz until)
{
	ConditionVariable *sleepers = own_sleepers();
	bool		news;
	long		ms;

	ConditionVariablePrepareToSleep(sleepers);
	news = has_news();
	if (!news)
	{
		ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
		/*
		 * a waiter may be called at any time, so it does not sleep for weeks
		 */
		(void) ConditionVariableTimedSleep(sleepers, Min(ms, INT_MAX / 2),
										   fairq_wait_event());
	}
	fairq_cancel_sleep(sleepers);
	return news || has_news();
}
