/*
 * counter.h
 *		Counters of running tasks, and what limits them.
 */
#ifndef FAIRQ_COUNTER_H
#define FAIRQ_COUNTER_H

#include "port/atomics.h"
#include "storage/spin.h"

#define FAIRQ_NO_LIMIT (-1)

/* By what a counter is known or void: fairq_lane_as_of(). */
typedef struct FairqAsOf
{
	uint64		as_of;			/* what is known from before that is void */
	uint64		census;			/* number of the census that was begun last */
	bool		counted;		/* it is over, and has counted what runs here */
	bool		repeated;		/* some of it perhaps twice */
} FairqAsOf;

/*
 * The counter of a group, or of a queue.  Never moved, and not freed while it
 * is pinned.  All is protected by mutex.
 */
typedef struct FairqCounter
{
	slock_t		mutex;
	bool		known;			/* running is not less than the truth */
	bool		doubtful;		/* but it may be more */
	uint16		parked;			/* lanes, as bits, that have parked the group */
	int32		running;
	int32		holds;			/* rows that are just being written */
	int32		pins;			/* who keeps a pointer to this */
	uint64		as_of;			/* void if what the caller says is newer */
	uint64		count_no;		/* counts how often running became known */
	uint64		changes;		/* counts all that a count may have missed */
	uint64		enters;			/* counts those who have entered */
	uint64		census;			/* number of the census that the rest is of */
	int32		found;			/* running tasks that it has come by */
	int32		adds;			/* and those that it may have missed */
	bool		unsure;			/* some of them may not be running */
	bool		spent;			/* the counter has been known since it began */
	uint64		long_line;		/* 1 + number of a census: there are too many
								 * rows to count them while it goes on */
} FairqCounter;

/* What was to be seen of a queue's counter before its groups were summed up. */
typedef struct FairqSum
{
	uint64		as_of;
	uint64		changes;
	uint64		enters;
	int32		holds;
} FairqSum;

typedef enum FairqSlot
{
	FAIRQ_SLOT_FREE,
	FAIRQ_SLOT_NONE,
	FAIRQ_SLOT_UNKNOWN			/* count the rows, and try again */
} FairqSlot;

extern void fairq_counter_init(FairqCounter *counter);
extern bool fairq_counter_is_idle(FairqCounter *counter, uint64 census);
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
							   int32 limit,
							   int lane, pg_atomic_uint64 *version,
							   uint64 version_read);
extern FairqSlot fairq_counter_within(FairqCounter *counter, FairqAsOf now,
									  int32 limit);
extern bool fairq_counter_read(FairqCounter *counter, FairqAsOf now,
							   int32 *running, bool *doubtful);

extern void fairq_counter_found(FairqCounter *counter, FairqAsOf now, int32 n,
								bool unsure);
extern void fairq_counter_is_long(FairqCounter *counter, FairqAsOf now);
extern bool fairq_counter_was_long(FairqCounter *counter, FairqAsOf now);

#endif							/* FAIRQ_COUNTER_H */
