/*
 * wake.h
 *		How to wake sessions that wait for tasks of one queue or several
 *		queues.
 */
#ifndef FAIRQ_WAKE_H
#define FAIRQ_WAKE_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "utils/timestamp.h"

#include "shmem.h"

/* maximum number of queues at which a session may wait */
#define FAIRQ_MAX_WAITS 100

/* wakes all waiters: a number that no queue reaches */
#define FAIRQ_ALL_WAITERS PG_INT32_MAX

/*
 * The waiters of a queue, in its hints in shared memory, without a lock.
 * domain is set before the queue has waiters, and all other fields except
 * sleepers are atomic.
 */
typedef struct FairqWakeup
{
	ConditionVariable sleepers; /* condition variable of waiters at only this
								 * queue */
	int32		domain;			/* index of the queue's domain */
	pg_atomic_uint32 waiters;	/* number of sessions asleep, or about to
								 * search or to sleep */
	pg_atomic_uint32 several;	/* number of these that wait at several
								 * queues */
	pg_atomic_uint32 calls;		/* number of waiters that have to search; any
								 * waiter may be one of them */
	pg_atomic_uint32 surplus;	/* not 0: each pop that finds a task wakes the
								 * next waiter */
	pg_atomic_uint64 recheck;	/* time at which one waiter has to search
								 * without a call, a TimestampTz; DT_NOEND: no
								 * waiter has to */
	pg_atomic_uint64 kept_until;	/* time at which a waiter wakes without a
								 * signal, a TimestampTz; DT_NOEND: none */
} FairqWakeup;

/* time after which one waiter searches without a call */
#define FAIRQ_RECHECK USECS_PER_SEC

static inline ConditionVariable *
fairq_sleepers_at_several(const FairqWakeup *wakeup)
{
	return &fairq_domain_at(wakeup->domain)->several;
}

/* Make one waiter search a while later, with or without a call. */
static inline void
fairq_recheck_later(FairqWakeup *wakeup)
{
	pg_atomic_write_u64(&wakeup->recheck,
						(uint64) (GetCurrentTimestamp() + FAIRQ_RECHECK));
}

/* Initialize a wakeup, only once, after its shared memory is allocated. */
static inline void
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

/* Reset a wakeup at which no session waits, for use by another queue. */
static inline void
fairq_wakeup_begin(FairqWakeup *wakeup, int32 domain)
{
	wakeup->domain = domain;
	pg_atomic_write_u32(&wakeup->calls, 0);
	pg_atomic_write_u32(&wakeup->surplus, 0);
	pg_atomic_write_u64(&wakeup->recheck, (uint64) DT_NOEND);
	pg_atomic_write_u64(&wakeup->kept_until, (uint64) DT_NOEND);
}

extern void fairq_wake(FairqWakeup *wakeup, int32 n);
extern void fairq_wake_in_time(FairqWakeup *wakeup, TimestampTz due);

/*
 * Wake one waiter, and make each pop that finds a task wake the next waiter,
 * because the number of ready tasks is not known.
 */
static inline void
fairq_wake_chain(FairqWakeup *wakeup)
{
	pg_atomic_fetch_add_u32(&wakeup->surplus, 1);
	fairq_wake(wakeup, 1);
}

/*
 * Wake the next waiter if a pop has found all the tasks that it wanted.
 * Otherwise no more tasks are ready, and surplus is reset unless it has
 * changed since the pop began.  The argument is the value of surplus when the
 * pop began.
 */
static inline void
fairq_wake_next(FairqWakeup *wakeup, uint32 surplus, bool found)
{
	if (pg_atomic_read_u32(&wakeup->surplus) == 0)
		return;
	if (found)
		fairq_wake(wakeup, 1);
	else
		pg_atomic_compare_exchange_u32(&wakeup->surplus, &surplus, 0);
}

#endif							/* FAIRQ_WAKE_H */
