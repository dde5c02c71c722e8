/*
 * counter.h
 *		Counters of running tasks, and what limits them.
 */
#ifndef FAIRQ_COUNTER_H
#define FAIRQ_COUNTER_H

#include "port/atomics.h"
#include "storage/spin.h"

#include "pace.h"

#define FAIRQ_NO_LIMIT (-1)

/*
 * The state of resets and census against which a counter's knowledge is
 * compared: what is older is void.  Made by fairq_lane_as_of().
 */
typedef struct FairqAsOf
{
	uint64		as_of;			/* resets and uncounted, added up: what
								 * counters know from before is void */
	uint64		census;			/* number of the census that was begun last */
	bool		counted;		/* true: that census is over, and has counted
								 * for the queue */
	bool		repeated;		/* true: that census may have counted some
								 * tasks twice */
} FairqAsOf;

/*
 * The counter of the running tasks of a group, or of a queue; in shared
 * memory.  It is never moved, and not freed while it is pinned.  All is under
 * mutex.
 */
typedef struct FairqCounter
{
	slock_t		mutex;			/* spinlock of all fields */
	bool		known;			/* true: running is not less than the truth */
	bool		doubtful;		/* true: running may be more than the truth */
	uint16		parked;			/* lanes that have parked the group, a bit for
								 * each priority */
	int32		running;		/* number of running tasks; meaningful if
								 * known */
	int32		holds;			/* number of rows that are being written */
	int32		pins;			/* number of pointers to the counter that
								 * backends keep */
	uint64		as_of;			/* as_of of FairqAsOf at the last use; 0: not
								 * used yet */
	uint64		count_no;		/* number of the count by which running is
								 * known */
	uint64		changes;		/* number of events that a count in progress
								 * may have missed */
	uint64		enters;			/* number of slots taken */

	/* what a census has found */
	struct
	{
		uint64		number;		/* number of that census */
		int32		found;		/* number of running tasks that the census has
								 * found */
		int32		adds;		/* number of running tasks that the census may
								 * have missed */
		bool		unsure;		/* true: some of these tasks may not be
								 * running */
		bool		spent;		/* true: the counter was known since the census
								 * began */
	}			census;

	FairqStarts starts;			/* when tasks started */
	uint64		long_line;		/* 1 + number of the census during which there
								 * are too many rows to be counted; 0: none */
} FairqCounter;

/* A queue's counter before the counters of its groups were added up. */
typedef struct FairqSum
{
	uint64		as_of;			/* as_of of the counter */
	uint64		changes;		/* changes of the counter */
	uint64		enters;			/* enters of the counter */
	int32		holds;			/* holds of the counter */
} FairqSum;

/* Is there a slot under a limit? */
typedef enum FairqSlot
{
	FAIRQ_SLOT_FREE,			/* there is a slot */
	FAIRQ_SLOT_NONE,			/* there is none */
	FAIRQ_SLOT_UNKNOWN			/* not known: count the rows, and try again */
} FairqSlot;

extern void fairq_counter_init(FairqCounter *counter, int64 born);
extern void fairq_counter_copy(FairqCounter *copy, FairqCounter *counter);
extern void fairq_counter_begin_starts(FairqCounter *counter, int64 since);
extern bool fairq_counter_is_idle(FairqCounter *counter, const FairqAsOf *now);
extern bool fairq_counter_is_pinned(FairqCounter *counter);
extern void fairq_counter_pin(FairqCounter *counter);
extern void fairq_counter_unpin(FairqCounter *counter);
extern FairqSlot fairq_counter_enter(FairqCounter *counter, FairqAsOf now,
									 int32 limit, uint64 *count_no);
extern FairqSlot fairq_counter_has_slot(FairqCounter *counter, FairqAsOf now,
										int32 limit);
extern uint64 fairq_counter_hold(FairqCounter *counter, FairqAsOf now);
extern void fairq_counter_moved(FairqCounter *counter, FairqAsOf now);
extern void fairq_counter_let_go(FairqCounter *counter, FairqAsOf now);
extern uint16 fairq_counter_leave(FairqCounter *counter, FairqAsOf now,
								  int32 n, uint64 count_no);
extern bool fairq_counter_note(FairqCounter *counter, FairqAsOf now,
							   uint64 *changes);
extern bool fairq_counter_counted(FairqCounter *counter, FairqAsOf now,
								  uint64 changes, int32 running,
								  bool doubtful);
extern void fairq_counter_sum_begin(FairqCounter *counter, FairqAsOf now,
									FairqSum *sum);
extern bool fairq_counter_summed(FairqCounter *counter, FairqAsOf now,
								 const FairqSum *sum, int32 running,
								 bool doubtful, bool exactly);
extern bool fairq_counter_park(FairqCounter *counter, FairqAsOf now,
							   int32 limit, int lane,
							   pg_atomic_uint64 *version,
							   uint64 version_read);
extern FairqSlot fairq_counter_within(FairqCounter *counter, FairqAsOf now,
									  int32 limit);
extern bool fairq_counter_read(FairqCounter *counter, FairqAsOf now,
							   int32 *running, bool *doubtful);
extern int64 fairq_counter_start(FairqCounter *counter,
								 const FairqPace *pace, FairqStart *start);
extern bool fairq_counter_starts_matter(FairqCounter *counter);
extern int64 fairq_counter_next_start(FairqCounter *counter,
									  const FairqPace *pace);
extern bool fairq_counter_throttle(FairqCounter *counter,
								   const FairqPace *pace, int lane,
								   int64 *until);
extern uint16 fairq_counter_unstart(FairqCounter *counter, FairqStart *start);

extern void fairq_counter_found(FairqCounter *counter, FairqAsOf now, int32 n,
								bool unsure);
extern void fairq_counter_is_long(FairqCounter *counter, FairqAsOf now);
extern bool fairq_counter_was_long(FairqCounter *counter, FairqAsOf now);

#endif							/* FAIRQ_COUNTER_H */
