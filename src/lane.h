/*
 * lane.h
 *		What shared memory knows of a lane: its turns, and who may have one.
 */
#ifndef FAIRQ_LANE_H
#define FAIRQ_LANE_H

#include "address.h"
#include "census.h"
#include "counter.h"
#include "seats.h"
#include "shmem.h"
#include "times.h"
#include "wake.h"

typedef enum FairqStat
{
	FAIRQ_STAT_ENQUEUED,
	FAIRQ_STAT_POPPED,
	FAIRQ_STAT_COMPLETED,
	FAIRQ_STAT_RELEASED,
	FAIRQ_STAT_RETRIED,			/* attempts that have failed */
	FAIRQ_STAT_FAILED,			/* for good */
	FAIRQ_STAT_CANCELLED,
	FAIRQ_STAT_EXPIRED,			/* leases */
	FAIRQ_STATS
} FairqStat;

/* In shared memory, part of FairqHints.  All is under lock, but the end. */
typedef struct FairqLane
{
	LWLock		lock;			/* first; outlives the queue */
	int32		domain;			/* these are constant as long as the lane is */
	int32		priority;		/* the queue's */
	uint32		lane_no;		/* new after each recovery; 0: never begun */
	uint64		resets;			/* of the domain, when that began */
	int64		block_length;	/* the queue's, likewise */
	int64		first;			/* seat at which recovery has begun, */
	int64		first_block;	/* and the present block then */
	int64		known;			/* so many seats from there on, and round, are
								 * known; FAIRQ_ALL_SEATS: it is over */
	int64		block;			/* the present one */
	int32		seat;			/* the last one in it that was passed;
								 * FAIRQ_NO_SEAT: none */
	int64		turn;			/* address of the last turn taken */
	int32		turn_seat;		/* its group */
	int32		turn_left;		/* tasks that may still be served at it */
	uint64		unparks;		/* of FairqHints, those that were done here */
	int32		full_seat;		/* the last one served in a full queue;
								 * FAIRQ_NO_SEAT: none */
	int32		full_left;		/* tasks that may still be served there */
	TimestampTz clock;			/* latest time by which a look for what has
								 * fallen due was made */
	FairqSeats	seats;
	FairqTimes	times;
	int			narrower;		/* pid of the backend that was the last to take
								 * a turn, or to note where nothing is ready */
	pg_atomic_uint64 narrowings;	/* times that this became another one;
									 * written under lock */

	pg_atomic_uint64 searches;	/* 1, and the looks that were begun at lapsed
								 * groups; written under lock */

	/* without a lock */
	pg_atomic_uint64 reach[FAIRQ_REGIONS];	/* highest address at which a task
											 * may be running */
	pg_atomic_uint64 stats[FAIRQ_STATS];	/* since the server started */
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
	dsa_pointer census;			/* of its extension; constant while the queue is
								 * there */
	pg_atomic_uint64 void_census;	/* the last one that may have missed what
									 * was not counted; FAIRQ_EACH_CENSUS */
	pg_atomic_uint64 skipping_census;	/* the last one that has passed over
										 * rows of the queue */
	pg_atomic_uint64 free_number;	/* where to look for one; see group.c */
	pg_atomic_uint64 unparks;	/* times that there were slots for all
								 * groups */
	FairqChunks chunks;			/* bits of the lanes' groups */
	FairqCounter running;		/* of the whole queue */
	FairqWakeup wakeup;
	FairqLane	lanes[FAIRQ_PRIORITIES];
};

static inline FairqHints *
fairq_hints_of(FairqLane *lane)
{
	return (FairqHints *) ((char *) (lane - lane->priority) -
						   offsetof(FairqHints, lanes));
}

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
	FAIRQ_NO_TAIL,				/* look in the table, and try again */
	FAIRQ_LANE_UNKNOWN,			/* begin to recover the lane, and try again */
	FAIRQ_BLOCKS_USED_UP
} FairqReserved;

/* Leases of a group's tasks. */
typedef struct FairqLeases
{
	int64		low[FAIRQ_REGIONS]; /* lowest address; FAIRQ_ADDR_MAX: none */
	int64		high[FAIRQ_REGIONS];	/* highest address; FAIRQ_ADDR_NONE */
	TimestampTz until;			/* when the first of them ends; DT_NOEND: there
								 * are none */
	uint64		searches;		/* of the lane, when they were noted as the
								 * tasks were taken; 0: they were not noted */
} FairqLeases;

/* A turn, taken by a pop. */
typedef struct FairqTurn
{
	int32		group_no;
	int64		addr;			/* the turn; in a full queue, one to come */
	int64		block;			/* where it was taken, counted on past the last */
	bool		in_full;		/* service in a full queue, beside the turns */
	bool		continued;		/* another call has begun it */
	int32		left;			/* tasks that could be served in it */
	int32		want;			/* tasks to be served */
	int32		read_want;		/* tasks to be read, if the hand is used up */
	int32		served;			/* tasks that were */
	int			nitems;			/* tasks that were taken off the hand */
	int			next;			/* of these, the next one to be claimed */
	FairqItem	items[FAIRQ_HAND];
	bool		more;			/* the group may have other queued tasks */
	bool		reread;			/* they come before those of later turns */
	bool		apart;			/* they were read for this turn alone */
	bool		due;			/* it is in the set of that name */
	bool		lapsed;			/* likewise */
	bool		searcher;		/* what is found out about these two counts */
	bool		kept_out;		/* the group has no slot by own settings, which
								 * are not committed; so it is not parked */
	bool		in_doubt;		/* whether the group has a slot could not be
								 * told */
	bool		begun;			/* it is being served */
	bool		done;			/* it is over, and nothing is left to be given back */
	bool		parked;			/* its group was, and has it again */
	bool		stopped;		/* the call may not serve the rest of it */
	int			nlocked;		/* tasks whose rows were merely locked */
	FairqItem	locked[FAIRQ_HAND];
	int64		locked_more;	/* lowest address of others */
	int64		locked_addr;	/* address and id of the last one of all, if */
	int64		locked_id;		/* there are any */
	int64		due_from[FAIRQ_REGIONS];	/* as in FairqGroup */
	int			ndue;			/* due or expired tasks at hand */
	int			next_due;		/* of these, the next one to be claimed */
	FairqRegion due_region;
	FairqItem	due_items[FAIRQ_DUE_HAND];
	int64		run_low[FAIRQ_REGIONS];
	int64		run_high;
	int64		cycle;
	int64		cycle_id;
	int32		full_seat_before;	/* of the lane, before this turn */
	int32		full_left_before;	/* likewise */
} FairqTurn;

/* turns that a call takes at once, and so has in hand at most */
#define FAIRQ_MAX_TURNS 64

typedef int32 (*FairqWeightOf) (void *arg, int32 group_no);

/* Turns to be taken. */
typedef struct FairqTaking
{
	int			most;			/* turns */
	int64		wanted;			/* tasks */
	int64		per_group;		/* turns of a group in the call; 0: no limit */
	int64		first;			/* with that: the first turn of the call, or -1 */
	int64		last_block;		/* none past this */
	int64		past;			/* rounds that the call has begun past the
								 * last block that there is; goes on */
	TimestampTz lease_until;	/* DT_NOEND: nothing will be leased */
	bool		peek;			/* nothing will be leased or removed */
	uint32		mapped;			/* chunks that the backend has mapped */
	FairqWeightOf weight_of;
	void	   *arg;

	/* these are results */
	uint32		lane_no;
	TimestampTz clock;
	uint64		searches;
	int			n;
	FairqTurn  *turns;
} FairqTaking;

typedef enum FairqTaken
{
	FAIRQ_TAKEN,				/* some */
	FAIRQ_NONE_READY,
	FAIRQ_NOT_NOW,				/* all are past what may be taken */
	FAIRQ_NOT_KNOWN,			/* recover more of the lane, and try again */
	FAIRQ_NOT_MAPPED			/* map the chunks, and try again */
} FairqTaken;

/* What a search for what has fallen due of a group has found. */
typedef struct FairqFindings
{
	bool		due_done;		/* due tasks were looked for */
	int64		due_from[FAIRQ_REGIONS];	/* where those that are left begin, */
	int			ndue;			/* but for these, of a region */
	FairqRegion due_region;
	FairqItem	due_items[FAIRQ_DUE_HAND];
	bool		lapsed_done;	/* expired ones, too, and none is left */
	bool		paused;			/* nothing of the group may run */
	int64		run_low[FAIRQ_REGIONS];	/* lowest task that runs, or is in the
										 * hands of a transaction */
	TimestampTz deadline;		/* when the first lease of these ends */
	int64		cycle;			/* the next look begins at that address, */
	int64		cycle_id;		/* behind that task */
	FairqLeases leased;			/* of timed and expired tasks served */
} FairqFindings;

/* How far the recovery of a lane has come; see FairqLane. */
typedef struct FairqRecovered
{
	uint32		lane_no;
	int64		first;
	int64		known;
} FairqRecovered;

extern bool fairq_lane_is_begun(FairqLane *lane);
extern bool fairq_lane_recovered(FairqLane *lane, FairqRecovered *recovered);
extern FairqAsOf fairq_lane_as_of(FairqLane *lane);
extern void fairq_lane_reaches(FairqLane *lane, int64 addr);
extern bool fairq_lane_reach_is_known(FairqLane *lane);
extern int64 fairq_lane_reach(FairqLane *lane, FairqRegion region);
extern void fairq_lane_recover_begin(FairqLane *lane, uint64 resets,
									 int64 block_length, int64 block,
									 int32 seat);
extern void fairq_lane_recover_step(FairqLane *lane,
									const FairqRecovered *from,
									const int32 *group_nos, int n,
									int64 known);
extern bool fairq_lane_accept(FairqLane *lane, uint32 lane_no);
extern void fairq_lane_forget(FairqLane *lane);

extern FairqReserved fairq_lane_reserve(FairqLane *lane, int32 group_no,
										int32 weight, const FairqTail *looked_up,
										FairqReservation *reservation);
extern void fairq_unpin(FairqReservation *reservation);
extern void fairq_lane_unreserve(FairqLane *lane, uint32 lane_no,
								 int32 group_no, FairqTail last,
								 FairqTail before);

extern FairqTaken fairq_lane_take(FairqLane *lane, FairqTaking *taking);
extern bool fairq_lane_glance(FairqLane *lane, uint32 mapped, FairqTurn *turn,
							  uint32 *lane_no);
extern FairqTaken fairq_lane_take_in_full(FairqLane *lane, FairqTaking *taking,
										  int32 tried_seat, int32 *nlapsed);
extern int	fairq_lane_read_begin(FairqLane *lane, uint32 lane_no,
								  int32 group_no, int most,
								  TimestampTz lease_until, FairqItem *out,
								  int64 *from, bool *by_row, bool *offers);
extern int	fairq_lane_read_end(FairqLane *lane, uint32 lane_no,
								int32 group_no, const FairqItem *found,
								int nfound, int64 end, int most,
								TimestampTz lease_until, FairqItem *out);
extern void fairq_lane_read_failed(FairqLane *lane, uint32 lane_no,
								   int32 group_no);
extern void fairq_lane_vanished(FairqLane *lane, uint32 lane_no,
								int32 group_no, int64 addr);
extern void fairq_lane_turn_end(FairqLane *lane, uint32 lane_no,
								const FairqTurn *turn,
								const FairqFindings *findings);
extern bool fairq_lane_cut_short(FairqLane *lane, uint32 lane_no,
								 const FairqTurn *turn);
extern void fairq_lane_unserve(FairqLane *lane, uint32 lane_no,
							   int32 group_no, int64 addr);
extern void fairq_lane_turn_back(FairqLane *lane, uint32 lane_no,
								 const FairqTurn *turn);
extern bool fairq_lane_park(FairqLane *lane, uint32 lane_no,
							FairqTurn *turn, uint64 version,
							FairqCounter *counter, int32 limit);
extern bool fairq_lane_next_parked(FairqLane *lane, int32 *group_no);
extern bool fairq_lane_next_leased(FairqLane *lane, int32 *group_no);
extern void fairq_unpark(FairqHints *hints, int32 group_no, uint16 parked);
extern void fairq_unpark_all(FairqHints *hints);

extern int64 fairq_lane_lapse(FairqLane *lane, TimestampTz now, uint32 mapped);
extern uint32 fairq_lane_search_begin(FairqLane *lane, TimestampTz now,
									  FairqTimerSearch *search);
extern void fairq_lane_search_end(FairqLane *lane, uint32 lane_no,
								  const FairqTimerSearch *search);
extern bool fairq_lane_add_due(FairqLane *lane, uint32 lane_no,
							   int32 group_no, int64 addr);
extern bool fairq_lane_finds(FairqLane *lane, int32 group_no, int64 addr);
extern bool fairq_lane_will_look(FairqLane *lane, int32 group_no, int64 addr,
								 bool running, TimestampTz lease_until);

extern void fairq_lane_add_ready(FairqLane *lane, int32 group_no,
								 const FairqItem *items, int n, int64 more);
extern void fairq_lane_add_timed(FairqLane *lane, int32 group_no, int64 addr);
extern void fairq_lane_add_scheduled(FairqLane *lane, int64 addr);
extern void fairq_lane_add_leases(FairqLane *lane, int32 group_no,
								  const FairqLeases *leases);
extern uint64 fairq_lane_narrowings(FairqLane *lane);

#endif							/* FAIRQ_LANE_H */
