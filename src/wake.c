/*
 * wake.c
 *		Waking sessions that wait for a queue's tasks.
 *
 * Workers sleep on a condition variable in the queue's shared memory.  A
 * transaction that makes tasks ready wakes as many of them as there is work
 * for, after that is visible (transaction.c).  What wakes and is not needed
 * goes back to sleep in the server (wait.c): no client hears of it.
 *
 * No wake-up is lost: a waiter counts itself before it looks for work, notes
 * the number of events before it looks, and sleeps only if it is still the
 * same after it has joined the sleepers.  A transaction that has made tasks
 * ready counts an event if there is any waiter, and then signals.  A waiter
 * that is ended by an error may have been woken before, and wakes another one;
 * one whose time is over looks once more.
 *
 * What only time makes ready is waited for by one of the waiters, the
 * timekeeper; the others sleep until they are woken.  If something falls due
 * earlier than what is minded, or the timekeeper leaves, one is woken to look
 * at the clock.
 *
 * Sometimes it is not known how much there is to do (a queue is resumed, a
 * limit is raised).  Then one is woken, and each pop that finds as much as it
 * wanted wakes the next.
 *
 * Locking: what is shared is atomic.  Waking takes the condition variable's
 * spinlock, allocates nothing and cannot fail, so it can be done from commit
 * and abort callbacks.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "compat.h"
#include "wake.h"

/* what this backend waits at */
static FairqWakeup *waiting_at = NULL;
static TimestampTz minding = DT_NOEND;

/* Once, when shared memory is had for it. */
void
fairq_wakeup_init(FairqWakeup *wakeup)
{
	ConditionVariableInit(&wakeup->sleepers);
	pg_atomic_init_u32(&wakeup->waiters, 0);
	pg_atomic_init_u32(&wakeup->surplus, 0);
	pg_atomic_init_u64(&wakeup->events, 0);
	pg_atomic_init_u64(&wakeup->minded, (uint64) DT_NOEND);
}

/* Begin anew for another queue, at which no session waits. */
void
fairq_wakeup_begin(FairqWakeup *wakeup)
{
	pg_atomic_write_u32(&wakeup->surplus, 0);
	pg_atomic_write_u64(&wakeup->minded, (uint64) DT_NOEND);
}

/*
 * Does no session wait there?  One that has just left may still wake another
 * one, which is one look for nothing.
 */
bool
fairq_wakeup_is_left(FairqWakeup *wakeup)
{
	return pg_atomic_read_u32(&wakeup->waiters) == 0;
}

/* Returns how many wait, and counts an event if there are any. */
static uint32
count_event(FairqWakeup *wakeup)
{
	uint32		waiters;

	/* a waiter that is not counted by now will see what was done before */
	pg_memory_barrier();
	waiters = pg_atomic_read_u32(&wakeup->waiters);
	if (waiters > 0)
		pg_atomic_fetch_add_u64(&wakeup->events, 1);
	return waiters;
}

/* Wake waiters: there is work for n more. */
void
fairq_wake(FairqWakeup *wakeup, int32 n)
{
	int32		waiters = (int32) count_event(wakeup);

	for (int i = 0; i < Min(n, waiters); i++)
		ConditionVariableSignal(&wakeup->sleepers);
}

/* Wake all waiters. */
void
fairq_wake_all(FairqWakeup *wakeup)
{
	if (count_event(wakeup) > 0)
		ConditionVariableBroadcast(&wakeup->sleepers);
}

/*
 * Wake one waiter, and let each pop that finds something wake the next: there
 * may be work, of an unknown amount.
 */
void
fairq_wake_chain(FairqWakeup *wakeup)
{
	pg_atomic_fetch_add_u32(&wakeup->surplus, 1);
	fairq_wake(wakeup, 1);
}

/* Returns surplus, for fairq_wake_next(), before a pop looks. */
uint32
fairq_wake_surplus(FairqWakeup *wakeup)
{
	return pg_atomic_read_u32(&wakeup->surplus);
}

/*
 * Wake the next waiter if a pop has found as much as it wanted; if not, and if
 * it has looked since the last change, there is no more.
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

/* Wake a waiter if something falls due then that no other one minds. */
void
fairq_wake_in_time(FairqWakeup *wakeup, TimestampTz due)
{
	pg_memory_barrier();
	if (pg_atomic_read_u32(&wakeup->waiters) > 0 &&
		due < (int64) pg_atomic_read_u64(&wakeup->minded))
		fairq_wake(wakeup, 1);
}

/* Begin to wait, unless this backend waits there already. */
void
fairq_wait_begin(FairqWakeup *wakeup)
{
	if (waiting_at == wakeup)
		return;
	fairq_wait_end(false, DT_NOEND);
	/* a full barrier: what was made ready before is seen by the look */
	pg_atomic_fetch_add_u32(&wakeup->waiters, 1);
	waiting_at = wakeup;
}

/* Stop being the timekeeper.  Returns whether this backend was. */
static bool
mind_no_more(FairqWakeup *wakeup)
{
	uint64		mine = (uint64) minding;

	if (minding == DT_NOEND)
		return false;
	minding = DT_NOEND;
	return pg_atomic_compare_exchange_u64(&wakeup->minded, &mine,
										  (uint64) DT_NOEND);
}

/*
 * End waiting.  pass_on: it was ended, and another waiter is to look at what
 * it may have been woken for.  due: something falls due then, of which it may
 * have heard alone.
 */
void
fairq_wait_end(bool pass_on, TimestampTz due)
{
	FairqWakeup *wakeup = waiting_at;
	bool		minded;

	if (wakeup == NULL)
		return;
	waiting_at = NULL;
	fairq_cancel_sleep(&wakeup->sleepers);
	minded = mind_no_more(wakeup);
	pg_atomic_fetch_sub_u32(&wakeup->waiters, 1);
	if (minded || pass_on)
		fairq_wake(wakeup, 1);
	else
		fairq_wake_in_time(wakeup, due);
}

/*
 * Until when is this backend to sleep, if something falls due then?  Until
 * that time, if no other waiter minds it.
 */
TimestampTz
fairq_mind_time(TimestampTz due, TimestampTz otherwise)
{
	uint64		minded;

	(void) mind_no_more(waiting_at);
	minded = pg_atomic_read_u64(&waiting_at->minded);
	while (due < otherwise && due < (int64) minded)
	{
		if (pg_atomic_compare_exchange_u64(&waiting_at->minded, &minded,
										   (uint64) due))
		{
			minding = due;
			return due;
		}
	}
	return otherwise;
}

uint64
fairq_wake_events(void)
{
	return pg_atomic_read_u64(&waiting_at->events);
}

/*
 * Sleep until something has happened since that number of events, or until
 * then.  It may end earlier.
 */
void
fairq_sleep(uint64 events, TimestampTz until)
{
	long		ms;

	ConditionVariablePrepareToSleep(&waiting_at->sleepers);
	if (fairq_wake_events() == events)
	{
		ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
		/* there may be news of it: so not for weeks */
		(void) ConditionVariableTimedSleep(&waiting_at->sleepers,
										   Min(ms, INT_MAX / 2),
										   fairq_wait_event());
	}
	fairq_cancel_sleep(&waiting_at->sleepers);
}
