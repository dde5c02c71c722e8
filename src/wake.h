/*
 * wake.h
 *		Waking sessions that wait for a queue's tasks.
 */
#ifndef FAIRQ_WAKE_H
#define FAIRQ_WAKE_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"

/* In shared memory, part of a queue's hints. */
typedef struct FairqWakeup
{
	ConditionVariable sleepers; /* what waiters sleep on */
	pg_atomic_uint32 waiters;	/* number of sessions asleep, or about to look
								 * or to sleep */
	pg_atomic_uint32 surplus;	/* not 0: each pop that finds something wakes
								 * the next waiter */
	pg_atomic_uint64 events;	/* number of changes that may have made a pop
								 * worth it */
	pg_atomic_uint64 minded;	/* time at which a waiter wakes by itself, a
								 * TimestampTz; DT_NOEND: none does */
} FairqWakeup;

extern void fairq_wakeup_init(FairqWakeup *wakeup);
extern void fairq_wakeup_begin(FairqWakeup *wakeup);
extern bool fairq_wakeup_is_left(FairqWakeup *wakeup);
extern void fairq_wake(FairqWakeup *wakeup, int32 n);
extern void fairq_wake_all(FairqWakeup *wakeup);
extern void fairq_wake_chain(FairqWakeup *wakeup);
extern uint32 fairq_wake_surplus(FairqWakeup *wakeup);
extern void fairq_wake_next(FairqWakeup *wakeup, uint32 surplus, bool found);
extern void fairq_wait_begin(FairqWakeup *wakeup);
extern void fairq_wait_end(bool pass_on, TimestampTz due);
extern void fairq_wake_in_time(FairqWakeup *wakeup, TimestampTz due);
extern TimestampTz fairq_mind_time(TimestampTz due, TimestampTz otherwise);
extern void fairq_sleep(uint64 events, TimestampTz until);
extern uint64 fairq_wake_events(void);

#endif							/* FAIRQ_WAKE_H */
