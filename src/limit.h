/*
 * limit.h
 *		Counters of running tasks, and what limits them.
 */
#ifndef FAIRQ_LIMIT_H
#define FAIRQ_LIMIT_H

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
typedef struct FairqLimit
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
} FairqLimit;

/* What was to be seen of a queue's counter before its groups were summed up. */
typedef struct FairqSum
{
	uint64		as_of;
	uint64		changes;
	uint64		enters;
	int32		holds;
} FairqSum;

typedef enum FairqRoom
{
	FAIRQ_ROOM,
	FAIRQ_NO_ROOM,
	FAIRQ_NOT_COUNTED			/* count the rows, and try again */
} FairqRoom;

extern void fairq_limit_init(FairqLimit *limit);
extern bool fairq_limit_is_idle(FairqLimit *limit, uint64 census);
extern bool fairq_limit_is_pinned(FairqLimit *limit);
extern void fairq_limit_pin(FairqLimit *limit);
extern void fairq_limit_unpin(FairqLimit *limit);
extern FairqRoom fairq_limit_enter(FairqLimit *limit, FairqAsOf now, int32 most,
								   uint64 *count_no);
extern FairqRoom fairq_limit_room(FairqLimit *limit, FairqAsOf now, int32 most);
extern uint64 fairq_limit_hold(FairqLimit *limit, FairqAsOf now);
extern void fairq_limit_moved(FairqLimit *limit, FairqAsOf now);
extern void fairq_limit_let_go(FairqLimit *limit, FairqAsOf now);
extern uint16 fairq_limit_leave(FairqLimit *limit, FairqAsOf now, int32 n,
								uint64 count_no);
extern bool fairq_limit_note(FairqLimit *limit, FairqAsOf now, uint64 *changes);
extern bool fairq_limit_counted(FairqLimit *limit, FairqAsOf now,
								uint64 changes, int32 running, bool doubtful);
extern void fairq_limit_sum_begin(FairqLimit *limit, FairqAsOf now,
								  FairqSum *sum);
extern bool fairq_limit_summed(FairqLimit *limit, FairqAsOf now,
							   const FairqSum *sum, int32 running,
							   bool doubtful, bool exactly);
extern bool fairq_limit_park(FairqLimit *limit, FairqAsOf now, int32 most,
							 int lane, pg_atomic_uint64 *version,
							 uint64 version_read);
extern FairqRoom fairq_limit_within(FairqLimit *limit, FairqAsOf now,
									int32 most);
extern bool fairq_limit_read(FairqLimit *limit, FairqAsOf now, int32 *running,
							 bool *doubtful);

extern void fairq_limit_found(FairqLimit *limit, FairqAsOf now, int32 n,
							  bool unsure);
extern void fairq_limit_is_long(FairqLimit *limit, FairqAsOf now);
extern bool fairq_limit_was_long(FairqLimit *limit, FairqAsOf now);

#endif							/* FAIRQ_LIMIT_H */
