/*
 * lane.h
 *		A lane: its data, its turns, and the order of its groups.
 */
#ifndef FAIRQ_LANE_H
#define FAIRQ_LANE_H

#include "hints.h"
#include "seats.h"

/* An address given to a task whose row is not written yet. */
typedef struct FairqReservation
{
	FairqTail	tail;			/* address given, and number of the group's
								 * tasks there, including the new task */
	FairqTail	before;			/* the group's previous tail */
	FairqGroup *pinned;			/* entry that is pinned until the row is
								 * written; NULL: none */
	uint32		lane_no;		/* lane_no of the lane when the address was
								 * reserved */
} FairqReservation;

/* The result of reserving an address. */
typedef enum FairqReserved
{
	FAIRQ_RESERVED,				/* an address was reserved */
	FAIRQ_NO_TAIL,				/* read the tail in the table, and try again */
	FAIRQ_LANE_UNKNOWN,			/* begin to recover the lane, and try again */
	FAIRQ_BLOCKS_USED_UP		/* all blocks are used up */
} FairqReserved;

/* Leases of some tasks of a group in a lane. */
typedef struct FairqLeases
{
	int64		low[FAIRQ_REGIONS]; /* lowest address of these tasks in each
									 * region; FAIRQ_ADDR_MAX: none */
	int64		high[FAIRQ_REGIONS];	/* highest address of these tasks in
										 * each region; FAIRQ_ADDR_NONE:
										 * none */
	TimestampTz until;			/* end of the lease that ends first; DT_NOEND:
								 * there are no leases */
	uint64		searches;		/* value of "searches" of the lane when the
								 * tasks were taken and their leases were
								 * noted; 0: the leases were not noted */
} FairqLeases;

/* A turn that a call has taken; only that call reads or writes it. */
typedef struct FairqTurn
{
	FairqLane  *lane;			/* the lane */
	uint32		lane_no;		/* lane_no of the lane when the turn was
								 * taken */
	int32		group_no;		/* the group's number */
	int64		addr;			/* address of the turn; in a full queue, that
								 * of a future turn */
	int64		block;			/* block in which the turn was taken; past the
								 * last block, each round counts as one more
								 * block */
	bool		in_full;		/* true: service in a full queue, which does
								 * not count as a turn of a block */

	/* numbers of tasks of the turn */
	struct
	{
		int32		left;		/* tasks that could be served at the turn */
		int32		want;		/* tasks that this call may serve at the
								 * turn */
		int32		read_want;	/* tasks to read if the hand is used up */
		int32		served;		/* tasks that were served */
	}			tasks;

	/* the group's next queued tasks, as far as the call has them */
	struct
	{
		int			n;			/* number of tasks in items */
		int			next;		/* index of the next item to be claimed */
		FairqItem	items[FAIRQ_HAND];	/* tasks that were taken off the hand,
										 * or read */
		bool		more;		/* true: the group may have other queued
								 * tasks */
		bool		reread;		/* true: read the group again before using
								 * items of later turns */
		bool		apart;		/* true: items were read for this turn alone,
								 * and not offered */
	}			queued;

	/* data of the group when the turn was taken */
	struct
	{
		bool		due;		/* true: the group was in the set "due" */
		bool		lapsed;		/* true: the group was in the set "lapsed" */
		FairqGroup *entry;		/* the group's entry, which may now belong to
								 * another group; NULL: none */
		TimestampTz since;		/* turn.since of the entry; after a claim, the
								 * time at which the claimed task became
								 * ready */
		bool		searcher;	/* true: due and lapsed tasks that this call
								 * finds are noted in the entry */
	}			sets;

	/* progress of the turn, and why it serves nothing */
	struct
	{
		bool		continued;	/* true: another call began the turn */
		bool		begun;		/* true: service has begun */
		bool		done;		/* true: service is over, and there is nothing
								 * to give back */
		bool		given_back; /* true: this turn was given back when its
								 * group was put aside */
		bool		throttled;	/* true: no task of the group may start yet */
		bool		left;		/* true: the call left a blocked task to other
								 * calls, so the turn counts */
	}			state;

	/* tasks to put back, because their rows were only locked */
	struct
	{
		int			n;			/* number of tasks in items */
		FairqItem	items[FAIRQ_HAND];	/* tasks whose rows were only
										 * locked */
		int64		more;		/* lowest address of locked tasks that are not
								 * in items; FAIRQ_ADDR_MAX: none */
		FairqPlace	upto;		/* place of the last locked task; undefined if
								 * n is 0 */
	}			locked;

	/* the entry's data about due tasks, and its due or lapsed tasks */
	struct
	{
		int64		from[FAIRQ_REGIONS];	/* due.from of the entry */
		FairqDueKept kept;		/* due or lapsed tasks that the entry had */
		int			next;		/* index in kept of the next task to be
								 * claimed */
	}			due;

	/* the entry's data about running tasks */
	struct
	{
		int64		low[FAIRQ_REGIONS]; /* run.low of the entry */
		int64		high;		/* run.high of the entry */
		FairqPlace	cycle;		/* cycle of the entry: where the search for
								 * lapsed tasks continues */
	}			run;

	/* in a lane that is not task-fair */
	struct
	{
		int32		tenant;		/* the group's tenant; FAIRQ_NO_SEAT: none */
		FairqCharge group;		/* charge of the group */
		FairqCharge of_tenant;	/* charge of the tenant */
	}			charged;

	FairqFull	full_before;	/* service of the lane in a full queue, before
								 * this turn */
} FairqTurn;

/* The ranks up to which a call passes over all groups of an order. */
typedef struct FairqPassed
{
	uint32		lane_no;		/* lane_no of the lane with that order */
	uint64		added;			/* "added" of the order at the call's last
								 * search */
	int			n;				/* number of levels in upto */
	int			max;			/* number of levels for which there is room */
	FairqRank  *upto;			/* for each level, rank of the last group
								 * passed over, in the order of levels; NULL:
								 * no room yet */
} FairqPassed;

/* A call's visits to a group or tenant. */
typedef struct FairqVisit
{
	int32		group_no;		/* the group's number; hash key */
	int32		left;			/* turns that the group may still have in the
								 * call; 0: the call passes over it */
	uint32		came;			/* for a tenant, value of "came" in its account
								 * when left became 0 */
	char		status;			/* state of this element, for the hash table's
								 * code */
	FairqPassed *groups;		/* for a tenant, its groups that the call
								 * passes over */
} FairqVisit;

/* Groups that a call has visited in a lane, in a hash table. */
typedef struct FairqVisits
{
	MemoryContext memory;		/* memory of these visits; NULL: none yet */
	struct visited_hash *table; /* the hash table; NULL: none yet */
	uint32		n;				/* number of groups and tenants */
	FairqPassed passed;			/* groups or tenants of the lane's order that
								 * were passed over */
	FairqPassed *full;			/* the FairqPassed without room for another
								 * level; NULL: none */
	int64		looked;			/* number of groups of the order that the call
								 * has examined */
} FairqVisits;

/* maximum number of turns that a call takes at once, and so has in flight */
#define FAIRQ_MAX_TURNS 64

/* Returns the weight, or the tenant, of a group. */
typedef int32 (*FairqOfGroup) (void *arg, int32 group_no);

/* An attempt to take turns: the demands of the call, then the results. */
typedef struct FairqTaking
{
	int			most;			/* most turns to take */
	int64		wanted;			/* tasks to serve; counts down */

	/* where turns are taken */
	struct
	{
		int64		per_group;	/* turns that a group may have in the call; 0:
								 * no limit */
		int64		first;		/* lowest address of the turns of the call; -1:
								 * none yet */
		int64		last_block; /* last block in which turns may be taken */
		int64		past;		/* rounds that the call has begun past the very
								 * last block; counts up */
	}			window;

	TimestampTz lease_until;	/* end of the new leases; DT_NOEND: nothing is
								 * leased */
	bool		peek;			/* true: nothing will be leased or removed */

	/* for lanes that are not task-fair */
	struct
	{
		FairqFairBy by;			/* fair_by of the lane, as the backend has read
								 * it */
		FairqVisits *visits;	/* groups that the call passes over */
		TimestampTz now;		/* time at which the call began */
		int			steps;		/* number of groups that may still be examined
								 * before the lane is unlocked */
		bool		tenants;	/* true: groups have tenants */
		bool		lacks;		/* true, a result: a group to be put into the
								 * order has no account yet */
	}			order;

	FairqOfGroup weight_of;		/* function that returns a group's weight */
	void	   *arg;			/* first argument of weight_of */

	/*
	 * results of the attempt; the first three are fields of the lane when the
	 * turns were taken
	 */
	uint32		renewals;		/* renewals of the lane */
	TimestampTz clock;			/* clock of the lane */
	uint64		searches;		/* searches of the lane */
	int			n;				/* number of turns */
	FairqTurn  *turns;			/* turns that were taken; has room for
								 * FAIRQ_MAX_TURNS */
} FairqTaking;

/* The result of taking turns. */
typedef enum FairqTaken
{
	FAIRQ_TAKEN,				/* some turns were taken */
	FAIRQ_NO_TURN,				/* no group has a ready task, or the next turns
								 * are past those that may be taken, or
								 * their groups get no entry */
	FAIRQ_NOT_KNOWN,			/* recover more of the lane, and try again */
	FAIRQ_NOT_READY,			/* read the lane's fair_by, make accounts, and
								 * try again */
	FAIRQ_NOT_FOUND				/* the search must continue: try again */
} FairqTaken;

/* Results of a search for a group's due and lapsed tasks. */
typedef struct FairqFindings
{
	int64		due_from[FAIRQ_REGIONS];	/* lowest address of each region at
											 * which due tasks may be left,
											 * except those in due_kept;
											 * FAIRQ_ADDR_MAX: none */
	FairqDueKept due_kept;		/* due or lapsed tasks to serve next */
	bool		lapsed_done;	/* true: lapsed tasks were searched for, and
								 * none is left */
	bool		paused;			/* true: no task of the group is allowed to run
								 */
	int64		run_low[FAIRQ_REGIONS]; /* lowest address of each region with a
										 * task that is running, or that a
										 * transaction is changing;
										 * FAIRQ_ADDR_MAX: none */
	TimestampTz deadline;		/* earliest end of the leases of these tasks;
								 * DT_NOEND: none */
	FairqPlace	cycle;			/* where the next search for lapsed tasks
								 * begins */
	FairqLeases leased;			/* new leases of served tasks that were timed
								 * or lapsed */
} FairqFindings;

/* Why no task of a group may start. */
typedef struct FairqCause
{
	uint64		version;		/* version of the settings with the limit */
	FairqCounter *counter;		/* counter of the group or tenant */
	int32		limit;			/* the limit that allows no slot; undefined if
								 * pace is set */
	const FairqPace *pace;		/* the pace that allows no start; NULL: there
								 * is no slot */
} FairqCause;

/* How far the recovery of a lane has come: copies of fields of FairqLane. */
typedef struct FairqRecovered
{
	uint32		lane_no;		/* lane_no of the lane */
	int64		first;			/* recovery.first of the lane */
	int64		known;			/* recovery.known of the lane */
	FairqFairBy fair_by;		/* fair_by of the lane */
} FairqRecovered;

/* lane.c */
extern bool fairq_lane_recovered(FairqLane *lane, FairqRecovered *recovered);
extern void fairq_lane_reaches(FairqLane *lane, int64 addr);
extern int64 fairq_lane_reach(FairqLane *lane, FairqRegion region);
extern void fairq_lane_recover_begin(FairqLane *lane, uint64 resets,
									 TimestampTz now, int64 block_length,
									 FairqFairBy by, int64 block);
extern void fairq_lane_recover_step(FairqLane *lane,
									const FairqRecovered *from,
									const int32 *group_nos, int n,
									int64 known);
extern bool fairq_lane_accept(FairqLane *lane, uint32 lane_no);
extern void fairq_lane_forget(FairqLane *lane);
extern FairqReserved fairq_lane_reserve(FairqLane *lane, int32 group_no,
										int32 weight,
										const FairqTail *looked_up,
										FairqReservation *reservation);
extern void fairq_lane_unreserve(FairqLane *lane, uint32 lane_no,
								 int32 group_no, FairqTail last,
								 FairqTail before);
extern void fairq_leases_init(FairqLeases *leases);
extern void fairq_leases_add(FairqLeases *leases, int64 addr,
							 TimestampTz until);
extern bool fairq_lane_next_leased(FairqLane *lane, int32 *group_no);
extern int64 fairq_lane_lapse(FairqLane *lane, TimestampTz now);
extern void fairq_lane_add_leases(FairqLane *lane, int32 group_no,
								  const FairqLeases *leases);
extern uint32 fairq_lane_search_begin(FairqLane *lane, TimestampTz now,
									  int64 *timers);
extern void fairq_lane_search_end(FairqLane *lane, uint32 lane_no,
								  const int64 *timers);
extern bool fairq_lane_add_due(FairqLane *lane, uint32 lane_no,
							   int32 group_no, int64 addr);
extern bool fairq_lane_finds(FairqLane *lane, int32 group_no, int64 addr,
							 bool running, TimestampTz lease_until);
extern void fairq_lane_add_ready(FairqLane *lane, int32 group_no,
								 const FairqItem *items, int n, int64 more,
								 TimestampTz since);
extern void fairq_lane_add_timed(FairqLane *lane, int32 group_no, int64 addr,
								 bool restored);
extern uint32 fairq_lane_narrowings(FairqLane *lane);

/* lane_turns.c */
extern FairqTaken fairq_lane_take(FairqLane *lane, FairqTaking *taking);
extern bool fairq_lane_glance(FairqLane *lane, FairqTaking *taking,
							  FairqTurn *turn);
extern FairqTaken fairq_lane_take_in_full(FairqLane *lane, FairqTaking *taking,
										  int32 tried_seat, int32 *nlapsed);
extern bool fairq_lane_read_begin(FairqTurn *turn, int most,
								  TimestampTz lease_until, int64 *from,
								  bool *by_row, bool *offers);
extern bool fairq_lane_read_end(FairqTurn *turn, const FairqItem *found,
								int nfound, int64 end, int most,
								TimestampTz lease_until);
extern void fairq_lane_vanished(const FairqTurn *turn, int64 addr);
extern bool fairq_lane_turn_end(const FairqTurn *turn,
								const FairqFindings *findings, bool over);
extern void fairq_lane_part_back(FairqLane *lane, uint32 lane_no,
								 int32 group_no, int64 addr);
extern void fairq_lane_stopped(const FairqTurn *turn);

/* bits of all lanes of a queue */
#define FAIRQ_ALL_LANES ((1 << FAIRQ_PRIORITIES) - 1)

extern bool fairq_lane_put_aside(FairqTurn *turn, int32 tenant,
								 const FairqCause *cause, int64 until);
extern void fairq_take_back(FairqHints *hints, int32 group_no, uint16 lanes);
extern int	fairq_lane_come_back(FairqLane *lane, int most);
extern bool fairq_lane_next_parked(FairqLane *lane, bool tenants,
								   int32 *group_no);

/*
 * Request that the next call that takes turns puts all groups that are aside
 * back into their lanes.
 */
static inline void
fairq_take_all_back(FairqHints *hints)
{
	pg_atomic_fetch_add_u64(&hints->unparks, 1);
}

/* lane_order.c */
extern void fairq_visits_init(FairqVisits *visits);
extern void fairq_visits_count(FairqVisits *visits, int32 group_no,
							   int32 tenant, int64 most);
extern void fairq_visits_have_room(FairqVisits *visits);
extern void fairq_lane_have_records(FairqLane *lane, int32 group_no,
									int32 tenant);
extern void fairq_lane_have_accounts(FairqLane *lane, FairqOfGroup tenant_of,
									 void *arg);
extern void fairq_lane_find_tenant(const FairqTaking *taking, FairqTurn *turn,
								   FairqOfGroup tenant_of);
extern void fairq_lane_order_renew(FairqLane *lane, int32 group_no);
extern void fairq_lane_charge(FairqTurn *turn, float cost, int32 weight,
							  int32 weight_of_tenant);
extern void fairq_lane_work(FairqLane *lane, TimestampTz now,
							FairqLaneWork *work);
extern void fairq_work_begun(const FairqTurn *turn, FairqWork **at,
							 TimestampTz now, bool removed);
extern void fairq_work_ended(FairqLane *lane, int32 group_no, int32 tenant,
							 FairqWork **at, TimestampTz popped_at,
							 int64 took, bool lapsed);
extern void fairq_work_end(FairqLane *lane, int32 group_no,
						   const FairqWork *work, bool committed);

#endif							/* FAIRQ_LANE_H */
