/*
 * limit.h
 *		Counters of running tasks, and what limits them.
 */
#ifndef FAIRQ_LIMIT_H
#define FAIRQ_LIMIT_H

#include "port/atomics.h"
#include "storage/spin.h"

#define FAIRQ_NO_LIMIT (-1)

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
} FairqLimit;

typedef enum FairqRoom
{
	FAIRQ_ROOM,
	FAIRQ_NO_ROOM,
	FAIRQ_NOT_COUNTED			/* count the rows, and try again */
} FairqRoom;

extern void fairq_limit_init(FairqLimit *limit);
extern bool fairq_limit_is_idle(FairqLimit *limit);
extern bool fairq_limit_is_pinned(FairqLimit *limit);
extern void fairq_limit_pin(FairqLimit *limit);
extern void fairq_limit_unpin(FairqLimit *limit);
extern FairqRoom fairq_limit_enter(FairqLimit *limit, uint64 as_of, int32 most,
								   uint64 *count_no);
extern uint64 fairq_limit_hold(FairqLimit *limit, uint64 as_of);
extern void fairq_limit_let_go(FairqLimit *limit);
extern uint16 fairq_limit_leave(FairqLimit *limit, uint64 as_of, int32 n,
								uint64 count_no);
extern bool fairq_limit_note(FairqLimit *limit, uint64 as_of, uint64 *changes);
extern bool fairq_limit_counted(FairqLimit *limit, uint64 as_of,
								uint64 changes, int32 running, bool doubtful);
extern bool fairq_limit_park(FairqLimit *limit, uint64 as_of, int32 most,
							 int lane, pg_atomic_uint64 *version,
							 uint64 version_read);
extern bool fairq_limit_within(FairqLimit *limit, uint64 as_of, int32 most);
extern bool fairq_limit_read(FairqLimit *limit, uint64 as_of, int32 *running);

#endif							/* FAIRQ_LIMIT_H */
