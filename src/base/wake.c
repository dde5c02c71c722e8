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
 * server (wait.c), and its client does not notice.
 *
 * This protocol loses no wake-up.  A waiter counts itself before it searches
 * for work.  It sleeps only if there is no call once it has joined the
 * sleepers.  A transaction that has made tasks ready adds its calls if there
 * is any waiter, and then signals.  If an error ends a waiter that may have
 * taken a call, that waiter calls another waiter.  A waiter searches once more
 * at its timeout.
 *
 * A waiter that has found a task returns, and its client pops.  The client may
 * be gone, or slow.  Until that pop the task is still ready, and other waiters
 * would find it too.  So usually no waiter searches without a call.  But one
 * second after the last waiter returned with a task, one waiter searches.  If
 * none has returned, one waiter searches one second after a call.  The first
 * waiter that then wakes up for its check, once a second, does this search
 * (wait.c).  If it finds a task, pops wake the next waiter, because the number
 * of remaining tasks is unknown.  test/model/wake.py is a model of the
 * protocol.
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
 * allocates nothing and cannot fail, so commit and abort callbacks can wake
 * waiters.
 */
#include "postgres.h"

#include "wake.h"

/* Call at most n more waiters.  Returns the number of waiters. */
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
		fairq_recheck_later(wakeup);
	return waiters;
}

/* Wake at most n more waiters; FAIRQ_ALL_WAITERS: all. */
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
		ConditionVariableBroadcast(fairq_sleepers_at_several(wakeup));
}

/*
 * Wake a waiter if a task becomes due at the given time, and no other waiter
 * waits for that time.
 */
void
fairq_wake_in_time(FairqWakeup *wakeup, TimestampTz due)
{
	pg_memory_barrier();
	if (pg_atomic_read_u32(&wakeup->waiters) > 0 &&
		due < (int64) pg_atomic_read_u64(&wakeup->kept_until))
		fairq_wake(wakeup, 1);
}
