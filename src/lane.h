/*
 * lane.h
 *		What shared memory knows of a lane: position, mark, irregular groups.
 */
#ifndef FAIRQ_LANE_H
#define FAIRQ_LANE_H

#include "address.h"
#include "limit.h"
#include "shmem.h"
#include "times.h"
#include "wake.h"

#define FAIRQ_RING 32

typedef enum FairqCounter
{
	FAIRQ_ENQUEUED,
	FAIRQ_POPPED,
	FAIRQ_COMPLETED,
	FAIRQ_RELEASED,
	FAIRQ_RETRIED,				/* attempts that have failed */
	FAIRQ_FAILED,				/* for good */
	FAIRQ_CANCELLED,
	FAIRQ_EXPIRED,				/* leases */
	FAIRQ_COUNTERS
} FairqCounter;

/* In shared memory, part of FairqHints.  All is under lock, but the end. */
typedef struct FairqLane
{
	LWLock		lock;			/* first; outlives the queue */
	int32		domain;			/* these are constant as long as the lane is */
	int32		priority;		/* the queue's */
	uint32		lane_no;		/* new after each recovery; 0: never done */
	uint64		resets;			/* of the domain, when it was recovered */
	int64		pos;			/* the highest turn taken */
	int32		pos_left;		/* tasks that may still be served at it */
	int64		mark;			/* below: nothing ready but irregular groups' */
	int64		suspect;		/* up to here nobody knows of holes */
	uint64		epoch;			/* of the ring's youngest entry */
	int64		ring[FAIRQ_RING];	/* lowest address made ready per epoch */
	int64		ring_high[FAIRQ_RING];	/* and highest */
	int64		desert_from;	/* from here to below the other there are none */
	int64		desert_to;		/* but irregular groups' ready tasks */
	int64		stride;			/* addresses from one task to the next, lately */
	int64		strays;			/* below: no waiting task of a forgotten group */
	uint64		nstrays;		/* counts how often that was lowered */
	int32		irregular;		/* the set of these groups */
	int32		nirregular;
	int32		parked;			/* those of them that have no room */
	int32		ntold;			/* groups of which something has fallen due */
	int32		nexpired;		/* and those of which leases have expired */
	int32		full_seat;		/* the last one served in a full queue */
	int32		full_left;		/* tasks that may still be served at it */
	FairqTimes	times;
	int			narrower;		/* pid of whose call last found out where
								 * nothing is ready, or took a turn */
	pg_atomic_uint64 narrowings;	/* times that this became another one;
									 * written under lock */

	/* without a lock */
	pg_atomic_uint64 reach;		/* no task further on is running */
	pg_atomic_uint64 counters[FAIRQ_COUNTERS];	/* since the server started */
} FairqLane;

/*
 * What shared memory knows of a queue.  Never moved; given to another queue when
 * this one is dropped (registry.c).
 */
struct FairqHints
{
	FairqQueueKey key;			/* of the queue; under the registry's lock, and
								 * constant as long as the queue is there */
	bool		released;		/* it was given back; likewise */
	dsa_pointer self;			/* constant */
	dsa_pointer next;			/* in a list of the registry; under its lock */
	pg_atomic_uint64 version;	/* of its settings; never goes back, whatever
								 * queue it is */
	pg_atomic_uint64 uncounted; /* times that counters missed what ended */
	pg_atomic_uint32 limited;	/* all running tasks are counted, from now on */
	pg_atomic_uint32 calls;		/* in progress that don't count */
	pg_atomic_uint64 free_number;	/* where to look for one; see group.c */
	FairqLimit	running;		/* of the whole queue */
	FairqWakeup wakeup;
	FairqLane	lanes[FAIRQ_PRIORITIES];
};

static inline FairqHints *
fairq_hints_of(FairqLane *lane)
{
	return (FairqHints *) ((char *) (lane - lane->priority) -
						   offsetof(FairqHints, lanes));
}

/* What a pop notes before it looks. */
typedef struct FairqNote
{
	uint32		lane_no;
	uint64		epoch;
	int64		mark;
	int64		pos;
	int32		pos_left;
	int64		suspect;
	int64		desert_from;
	int64		desert_to;
	int64		stride;
	int64		strays;
	uint64		nstrays;
	int32		nirregular;
	bool		any_irregular;	/* or parked */
} FairqNote;

/* An address given to a task whose row is not written yet. */
typedef struct FairqReservation
{
	FairqTail	tail;			/* the address, and what stands there now */
	FairqTail	before;			/* what the tail was */
	FairqGroup *pinned;			/* or NULL */
	uint32		lane_no;
} FairqReservation;

typedef enum FairqReserved
{
	FAIRQ_RESERVED,
	FAIRQ_TAIL_UNKNOWN,			/* look in the table, and try again */
	FAIRQ_LANE_UNKNOWN,			/* recover the lane, and try again */
	FAIRQ_BLOCKS_USED_UP
} FairqReserved;

/* A turn of an irregular group, taken by a pop. */
typedef struct FairqTurn
{
	int32		group_no;
	int64		addr;			/* the turn */
	bool		in_full;		/* it is none, but service in a full queue */
	int64		from;			/* where its first ready task may be */
	int64		waiting_from;	/* or, of the waiting ones, this */
	int64		taken_before;	/* the turn that was taken last */
	uint32		version;
	uint32		expiries;
	int64		due_from;		/* where tasks of it may have fallen due */
	int64		expired_from;	/* where leases of it may have expired */
	int64		expired_to;		/* up to there */
	TimestampTz told_at;		/* by a clock that may be ahead of one's own */
	int32		left;			/* tasks left of a turn begun before, or 0 */
	int32		full_seat_before;	/* of the lane */
	int32		full_left_before;
	int32		nirregular;		/* of the lane */
	int32		nexpired;		/* of these, groups with an expired lease */
} FairqTurn;

typedef enum FairqTold
{
	FAIRQ_TOLD,
	FAIRQ_TOO_MANY_TOLD,		/* not as long as there are so many */
	FAIRQ_HOMELESS				/* there is no entry for the group */
} FairqTold;

/* The first ready task of a group, when a lane is recovered. */
typedef struct FairqHead
{
	int32		group_no;
	int64		addr;
	int64		waiting;		/* the first of those; FAIRQ_ADDR_MAX: none */
} FairqHead;

extern bool fairq_lane_known(FairqLane *lane);
extern uint64 fairq_lane_as_of(FairqLane *lane);
extern void fairq_lane_reaches(FairqLane *lane, int64 addr);
extern int64 fairq_lane_reach(FairqLane *lane);
extern uint64 fairq_lane_epoch(FairqLane *lane);
extern void fairq_lane_publish(FairqLane *lane, uint64 resets, uint64 epoch,
							   bool sure, const FairqHead *heads,
							   int64 nheads, int64 highest,
							   int64 block_length);

extern FairqReserved fairq_lane_reserve(FairqLane *lane, int32 group_no,
										int32 weight, int32 most,
										int64 block_length, int64 order,
										const FairqTail *looked_up,
										bool doubtful,
										FairqReservation *reservation);
extern void fairq_unpin(FairqReservation *reservation);
extern void fairq_lane_unreserve(FairqLane *lane, uint32 lane_no,
								 int32 group_no, FairqTail last,
								 FairqTail before, int64 first, bool torn);

extern bool fairq_lane_note(FairqLane *lane, FairqNote *note);
extern void fairq_lane_raise(FairqLane *lane, const FairqNote *note,
							 int64 upto, int64 stride);
extern void fairq_lane_desert(FairqLane *lane, const FairqNote *note,
							  int64 from, int64 to);
extern void fairq_lane_advance(FairqLane *lane, const FairqNote *note,
							   int64 addr, int32 left);
extern bool fairq_lane_is_irregular(FairqLane *lane, int32 group_no);
extern bool fairq_lane_next_turn(FairqLane *lane, const FairqNote *note,
								 int64 cur, int64 block_length, bool take,
								 int64 bound, FairqTurn *turn);
extern bool fairq_lane_next_in_full(FairqLane *lane, const FairqNote *note,
									int32 vain_seat, int64 block_length,
									FairqTurn *turn);
extern void fairq_lane_turn_back(FairqLane *lane, const FairqNote *note,
								 const FairqTurn *turn);
extern void fairq_lane_turn_served(FairqLane *lane, const FairqNote *note,
								   const FairqTurn *turn, int32 left,
								   int64 ahead);
extern void fairq_lane_settle(FairqLane *lane, const FairqNote *note,
							  const FairqTurn *turn, bool regular,
							  bool drained);
extern void fairq_lane_looked_upto(FairqLane *lane, const FairqNote *note,
								   const FairqTurn *turn, int64 from,
								   int64 due_from, int64 expired_from);
extern bool fairq_lane_park(FairqLane *lane, const FairqNote *note,
							const FairqTurn *turn, uint64 version,
							int32 group_no, int64 addr, FairqLimit *limit,
							int32 most);
extern bool fairq_lane_next_parked(FairqLane *lane, int32 *group_no);
extern void fairq_unpark(FairqHints *hints, int32 group_no, uint16 parked);
extern void fairq_unpark_all(FairqHints *hints);
extern uint32 fairq_lane_look_begin(FairqLane *lane, TimestampTz now,
									FairqLook *look);
extern void fairq_lane_look_end(FairqLane *lane, uint32 lane_no,
								const FairqLook *look);
extern FairqTold fairq_lane_tell(FairqLane *lane, uint32 lane_no,
								 int32 group_no, int64 addr, TimestampTz now);
extern bool fairq_lane_is_told(FairqLane *lane, int32 group_no, int64 addr,
							   TimestampTz lease_until);
extern void fairq_lane_no_strays(FairqLane *lane, const FairqNote *note,
								 int64 upto);

extern void fairq_lane_ready(FairqLane *lane, int32 group_no, int64 addr,
							 int64 highest);
extern bool fairq_lane_irregular(FairqLane *lane, int32 group_no, int64 addr);
extern void fairq_lane_undone(FairqLane *lane, int32 group_no, int64 lowest,
							  int64 highest);
extern void fairq_lane_hole(FairqLane *lane, int32 group_no, int64 lowest,
							int64 highest);
extern void fairq_lane_lower(FairqLane *lane, int64 addr);
extern void fairq_lane_forget(FairqLane *lane);
extern uint64 fairq_lane_narrowings(FairqLane *lane);

#endif							/* FAIRQ_LANE_H */
