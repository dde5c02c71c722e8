/*
 * counter.h
 *		Counters of running tasks, and their limits.
 */
#ifndef FAIRQ_COUNTER_H
#define FAIRQ_COUNTER_H

#include "port/atomics.h"
#include "storage/spin.h"

#include "pace.h"

#define FAIRQ_NO_LIMIT (-1)

/*
 * Numbers are kept twice: since the last load that is over, and since the one
 * in progress.  The number of a load decides which of the two books is its
 * own.
 */
#define FAIRQ_BOOKS 2

static inline int
fairq_book_of(uint64 number)
{
	return number % FAIRQ_BOOKS;
}

/*
 * The load that makes counters known: numbers of an older load are invalid.
 * Made by fairq_tally_now().
 */
typedef struct FairqKnown
{
	uint64		number;			/* number of the last load that is over */
	bool		known;			/* true: that load has counted for the queue,
								 * and is valid */
} FairqKnown;

/* The books to which a commit adds.  Made by fairq_tally_enter(). */
typedef struct FairqAdds
{
	uint64		number[FAIRQ_BOOKS];	/* number of the book's load */
	bool		adds[FAIRQ_BOOKS];	/* false: that load has seen the
									 * transaction's changes */
} FairqAdds;

/*
 * The counter of the running tasks of a group, or of a queue; in shared
 * memory.  It is never moved, and not freed while it is pinned.  All fields
 * are under mutex, except tenure, which is constant.
 */
typedef struct FairqCounter
{
	slock_t		mutex;			/* spinlock of all fields */
	uint16		parked;			/* lanes that have parked the group, a bit for
								 * each priority */
	int32		committed[FAIRQ_BOOKS]; /* number of running tasks according to
										 * commits; until the load is over,
										 * only the changes since it began */
	int32		open;			/* number of slots of calls and transactions
								 * that have not ended */
	int32		pins;			/* number of pointers to the counter that
								 * backends keep */
	uint64		number[FAIRQ_BOOKS];	/* number of the load from which on
										 * committed counts */
	uint64		tenure;			/* the queue's tenure of its hints, by its
								 * number */
	FairqStarts starts;			/* times at which tasks started */
} FairqCounter;


/* Whether there is a slot under a limit. */
typedef enum FairqSlot
{
	FAIRQ_SLOT_FREE,			/* there is a slot */
	FAIRQ_SLOT_NONE,			/* there is none */
	FAIRQ_SLOT_UNKNOWN			/* not known, until a load is over */
} FairqSlot;

extern void fairq_counter_init(FairqCounter *counter, uint64 tenure,
							   int64 born);
extern void fairq_counter_copy(FairqCounter *copy, FairqCounter *counter);
extern void fairq_counter_begin_starts(FairqCounter *counter, int64 since);
extern bool fairq_counter_is_idle(FairqCounter *counter, uint64 current);
extern bool fairq_counter_is_pinned(FairqCounter *counter);
extern void fairq_counter_pin(FairqCounter *counter);
extern void fairq_counter_unpin(FairqCounter *counter);
extern FairqSlot fairq_counter_enter(FairqCounter *counter, FairqKnown now,
									 int32 limit, bool look);
extern uint16 fairq_counter_ended(FairqCounter *counter, const FairqAdds *adds,
								  int32 slots, int32 running);
extern void fairq_counter_add(FairqCounter *counter, uint64 number, int32 n);
extern bool fairq_counter_park(FairqCounter *counter, FairqKnown now,
							   int32 limit, int lane,
							   pg_atomic_uint64 *version,
							   uint64 version_read);
extern bool fairq_counter_read(FairqCounter *counter, FairqKnown now,
							   bool open, int32 *n);
extern int64 fairq_counter_start(FairqCounter *counter,
								 const FairqPace *pace, FairqStart *start);
extern bool fairq_counter_starts_matter(FairqCounter *counter);
extern int64 fairq_counter_next_start(FairqCounter *counter,
									  const FairqPace *pace);
extern bool fairq_counter_throttle(FairqCounter *counter,
								   const FairqPace *pace, int lane,
								   int64 *until);
extern uint16 fairq_counter_unstart(FairqCounter *counter, FairqStart *start);

#endif							/* FAIRQ_COUNTER_H */
