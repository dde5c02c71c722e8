/*
 * wake.c
 *		Waking sessions that wait for tasks of one queue, or of several.
 *
 * Workers sleep on a condition variable in the queue's shared memory.  A
 * transaction calls as many waiters as it made tasks ready, after its end is
 * visible (transaction.c).  It adds to the queue's calls, and signals.  A
 * waiter that wakes looks only if it can take one of the calls.  So as many
 * waiters look as were called, whichever they are.  If it finds nothing, it
 * sleeps again in the server (wait.c), and its client does not notice.
 *
 * No wake-up is lost.  A waiter counts itself before it looks for work, and
 * sleeps only if there is no call after it has joined the sleepers.  A
 * transaction that has made tasks ready adds its calls if there is any waiter,
 * and then signals.  If an error ends a waiter that may have taken a call, it
 * calls another one.  A waiter whose time is over looks once more.
 *
 * A waiter that has found something leaves, and its client pops.  The client
 * may be gone, or slow.  Until its pop the task is still there, and others
 * would find it, too.  So no waiter looks without a call.  But a second after
 * the last waiter has left with something, or after a call if none has, one
 * waiter looks.  It is the first of those that wake up each second to listen
 * (wait.c).  If it finds something, pops wake the next, since it is not known
 * how much was left.  test/model/wake.py has the protocol.
 *
 * One of the waiters, the timekeeper, waits for timed tasks; the others sleep
 * until they are woken.  If something falls due earlier than the timekeeper
 * expects, or if it leaves, another waiter is woken to look at the clock.
 *
 * A session can sleep on only one condition variable.  So those that wait at
 * several queues sleep on one of their domain, which wakes them all.  Each
 * looks if it can take a call of one of its queues: the others sleep on.  A
 * waiter may take the call of one queue, and find something in an earlier one.
 * It then passes the call on.  So does its pop, if it was filled before it
 * reached the queue with the call.
 *
 * Sometimes it is not known how much there is to do (a queue is resumed, a
 * limit is raised).  Then one is called, and each pop that finds as much as it
 * wanted calls the next.
 *
 * Locking: shared fields are atomic, and a wakeup's domain is set before the
 * queue has waiters.  Waking takes the condition variable's spinlock, allocates
 * nothing and cannot fail, so commit and abort callbacks can do it.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "compat.h"
#include "shmem.h"
#include "wake.h"

/* time after which one waiter looks without a call */
#define RECHECK_AFTER USECS_PER_SEC

/* the queues at which this backend waits */
static struct
{
	FairqWakeup *wakeup;
	TimestampTz minding;		/* time for which it waits as timekeeper;
								 * DT_NOEND: none */
}			waits[FAIRQ_MAX_WAITS];
static int	nwaits = 0;
static int	called_by = -1;		/* index of the queue whose call it has taken;
								 * -1: none */
static bool rechecking = false; /* it looks without a call, after a while */

/*
 * with several queues: the one that had a task; NULL: the pop has visited it
 */
static FairqWakeup *told_of = NULL;

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
	pg_atomic_init_u64(&wakeup->minded, (uint64) DT_NOEND);
}

/* Begin again for another queue, at which no session waits. */
void
fairq_wakeup_begin(FairqWakeup *wakeup, int32 domain)
{
	wakeup->domain = domain;
	pg_atomic_write_u32(&wakeup->calls, 0);
	pg_atomic_write_u32(&wakeup->surplus, 0);
	pg_atomic_write_u64(&wakeup->recheck, (uint64) DT_NOEND);
	pg_atomic_write_u64(&wakeup->minded, (uint64) DT_NOEND);
}

/*
 * Whether no session waits at the queue.  One that has just left may still
 * wake another one, which looks once without a result.
 */
bool
fairq_wakeup_is_left(FairqWakeup *wakeup)
{
	return pg_atomic_read_u32(&wakeup->waiters) == 0;
}

/* Make one waiter look a while later, with or without a call. */
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

	/* a waiter that is not counted by now will see the tasks that are ready */
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

/* Wake the waiters at several queues, to look for calls. */
static void
wake_several(FairqWakeup *wakeup)
{
	if (pg_atomic_read_u32(&wakeup->several) > 0)
		ConditionVariableBroadcast(sleepers_at_several(wakeup));
}

/* Wake waiters: there is work for n more of them. */
void
fairq_wake(FairqWakeup *wakeup, int32 n)
{
	uint32		waiters;

	if (n <= 0)
		return;
	waiters = add_calls(wakeup, n);
	for (uint32 i = 0; i < Min((uint32) n, waiters); i++)
		ConditionVariableSignal(&wakeup->sleepers);
	wake_several(wakeup);
}

/* Wake all waiters. */
void
fairq_wake_all(FairqWakeup *wakeup)
{
	(void) add_calls(wakeup, PG_UINT32_MAX);
	ConditionVariableBroadcast(&wakeup->sleepers);
	wake_several(wakeup);
}

/*
 * Wake one waiter, and make each pop that finds a task wake the next: there
 * may be an unknown amount of work.
 */
void
fairq_wake_chain(FairqWakeup *wakeup)
{
	pg_atomic_fetch_add_u32(&wakeup->surplus, 1);
	fairq_wake(wakeup, 1);
}

/*
 * Returns surplus before a pop looks; it is an argument of fairq_wake_next().
 */
uint32
fairq_wake_surplus(FairqWakeup *wakeup)
{
	return pg_atomic_read_u32(&wakeup->surplus);
}

/*
 * Wake the next waiter if a pop has found all the tasks that it wanted.  If
 * not, and if it has looked since the last change of surplus, there is no more
 * work.
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
 * A pop of several queues has not visited this one.  If this queue called the
 * session, call another waiter.
 */
void
fairq_wake_unserved(FairqWakeup *wakeup)
{
	if (told_of != wakeup)
		return;
	told_of = NULL;
	fairq_wake(wakeup, 1);
}

/*
 * Wake a waiter if a task falls due at that time, and no other waiter waits
 * for it.
 */
void
fairq_wake_in_time(FairqWakeup *wakeup, TimestampTz due)
{
	pg_memory_barrier();
	if (pg_atomic_read_u32(&wakeup->waiters) > 0 &&
		due < (int64) pg_atomic_read_u64(&wakeup->minded))
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
	told_of = NULL;
	called_by = -1;
	rechecking = false;
	for (int i = 0; i < n; i++)
	{
		if (n > 1)
			pg_atomic_fetch_add_u32(&wakeups[i]->several, 1);
		/* a full barrier: the look sees tasks that became ready before */
		pg_atomic_fetch_add_u32(&wakeups[i]->waiters, 1);
		waits[i].wakeup = wakeups[i];
		waits[i].minding = DT_NOEND;
		nwaits = i + 1;
	}
}

/*
 * Stop being the timekeeper of that queue.  Returns whether this backend was
 * its timekeeper.
 */
static bool
mind_no_more(int nth)
{
	uint64		mine = (uint64) waits[nth].minding;

	if (waits[nth].minding == DT_NOEND)
		return false;
	waits[nth].minding = DT_NOEND;
	return pg_atomic_compare_exchange_u64(&waits[nth].wakeup->minded, &mine,
										  (uint64) DT_NOEND);
}

/* The condition variable on which this backend sleeps. */
static ConditionVariable *
own_sleepers(void)
{
	return nwaits > 1 ? sleepers_at_several(waits[0].wakeup) :
		&waits[0].wakeup->sleepers;
}

/*
 * End waiting.  pass_on: an error has ended it, so another waiter looks at the
 * tasks for which this one may have been woken.  due, unless NULL: a task of
 * each queue falls due at that time, and possibly only this backend was woken
 * for it.
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
		bool		minded = mind_no_more(i);

		pg_atomic_fetch_sub_u32(&wakeup->waiters, 1);
		if (n > 1)
			pg_atomic_fetch_sub_u32(&wakeup->several, 1);
		if (minded || pass_on)
			fairq_wake(wakeup, 1);
		else if (due != NULL)
			fairq_wake_in_time(wakeup, due[i]);
	}
}

/* End waiting, because that queue has a task. */
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
	told_of = several ? found : NULL;
	if (caller != NULL && caller != found)
		fairq_wake(caller, 1);
}

/*
 * Note the end of the transaction.  After an error the client is not notified.
 * So others look at the tasks that this backend has found, or for which it was
 * woken.
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
 * Returns the time until which this backend sleeps, if a task of that queue
 * falls due at a given time.  It is that time, unless another waiter waits for
 * it.
 */
TimestampTz
fairq_mind_time(int nth, TimestampTz due, TimestampTz otherwise)
{
	FairqWakeup *wakeup = waits[nth].wakeup;
	uint64		minded;

	(void) mind_no_more(nth);
	minded = pg_atomic_read_u64(&wakeup->minded);
	while (due < otherwise && due < (int64) minded)
	{
		if (pg_atomic_compare_exchange_u64(&wakeup->minded, &minded,
										   (uint64) due))
		{
			waits[nth].minding = due;
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

/* Whether one waiter has to look without a call now.  True for one of them. */
static bool
is_to_recheck(FairqWakeup *wakeup)
{
	uint64		at = pg_atomic_read_u64(&wakeup->recheck);
	TimestampTz now;

	if (at == (uint64) DT_NOEND)
		return false;
	now = GetCurrentTimestamp();
	/* the time is further away if the clock was set back */
	return ((TimestampTz) at <= now || (TimestampTz) at > now + RECHECK_AFTER) &&
		pg_atomic_compare_exchange_u64(&wakeup->recheck, &at,
									   (uint64) DT_NOEND);
}

/*
 * Whether this backend has to look again, and at which of its queues
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
 * Sleep until there is a reason to look again, or until that time.  It may end
 * earlier.  Returns whether there is such a reason.
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
