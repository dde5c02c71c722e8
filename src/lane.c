/*
 * lane.c
 *		What shared memory knows of a lane: position, mark, irregular groups.
 *
 * A lane is (queue, priority).  The tables hold the truth; what is here makes
 * finding it cheap, and may be lost at any time.  Four things are kept:
 *
 * pos		The service position: the highest turn taken.  Never goes back
 *			while the lane is known.  New addresses lie past it.
 *
 * tail		Of a group: its last address.  Reserved like a sequence's next
 *			value; nothing is locked while the row is written.  The entry is
 *			pinned meanwhile, since a look at the table would not find the row.
 *
 * mark		Where a pop starts to look: below it nothing is ready, but for
 *			tasks of irregular groups.  Without it every pop would wade
 *			through the dead index entries of all tasks that were popped since
 *			the oldest open snapshot.
 *
 * irregular groups
 *			Normally the first ready task of a group stands at the group's next
 *			turn.  Not so if a task turned up at or below pos (a late commit,
 *			the rollback of a pop), or if tasks before it went away (the
 *			rollback of an enqueue, a purge).  Such a group is irregular: pop
 *			passes over its rows and, at its turn, looks for its first ready
 *			task, wherever that stands.  To call a group irregular is always
 *			safe.  It costs one look, at its next turn, to find out that it is
 *			regular again.
 *
 * The mark is kept exact without holding anybody up:
 *
 * 1. A pop notes the lane's epoch, then reads the mark, then looks.
 *
 * 2. Whoever makes something ready says so *after* it is visible (see
 *	  transaction.c): he enters the address into the ring at the present epoch,
 *	  also if it is not below the mark now, and lowers the mark to it.
 *
 * 3. A pop that is through raises the mark to where it stopped, but not past
 *	  any address in the ring since its note.  If the ring has come round
 *	  since, it doesn't raise at all.
 *
 * So a task that the pop could not see is either entered since the note, and
 * the mark stays at or below it, or will be entered later and lowers the mark
 * then.  A note starts a new epoch only if something was entered in the
 * present one: all entries between two notes share one, their minimum, and no
 * number of commits can overrun the ring.  Epochs are not used again as
 * long as the lane is the queue's.
 *
 * The mark is of no help where tasks of irregular groups stand among those to
 * be walked over: a million of a group that was limited only when they were
 * queued, and a new task of another group before them.  For that the widest
 * stretch that a walk has found without any other task is kept, the "desert".
 * It is known to the next walk by the same protocol, with the highest address
 * entered since the note; and what becomes ready inside cuts it off.  A group
 * that becomes regular voids it, for its rows may stand there.
 *
 * The same for irregular groups: each holds "from", below which none of its
 * tasks is ready, and a version.  What becomes ready lowers from and counts
 * the version up; a pop moves from up, or calls the group regular, only if the
 * version is still the one it took its turn with.  When a group becomes
 * regular the mark is lowered to its turn through the ring, since pops have
 * passed over its rows until now.  When it becomes irregular, from starts at
 * or below the mark, since its rows have stood in order until now.
 *
 * In a queue that is full nobody can be served but who has a place already:
 * tasks whose leases have expired.  Their groups are served in the order of
 * their seats, up to their weights, but beside the turns: pos stays, for the
 * others, who cannot be served now, would lose the turns that it passes.
 *
 * What a transaction has enqueued and not committed is seen by its own pops
 * alone.  It says so before they look (transaction.c), and whatever call of
 * another backend then finds out "nothing is ready there" has passed over it,
 * and makes that void.  So the lane counts how often another backend than
 * before has found such a thing out, or taken a turn ("narrowings"): as long
 * as nobody else has, what was said once still stands.
 *
 * Waiting tasks of limited groups stand outside the order of service, from
 * FAIRQ_WAITING on.  A group that has some is irregular: they are served at
 * its turns, behind its others.  "waiting_from" is for them what from is for
 * those.  An irregular group that has no room for another running task is
 * parked: kept in a set of its own, where no pop comes by, until there is room
 * (limit.c).  If the cache has no entry for a group with waiting tasks, they
 * are strays, which are looked for by address, from "strays" on.
 *
 * Locking: a lane's lock protects all that is in struct FairqLane and what
 * groups say of themselves; see shmem.h.  Lock order: lane, then the mutex of
 * one group set or of one counter.  Nothing here allocates, waits for anything
 * else or fails, so everything can be called from commit and abort callbacks.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "lane.h"
#include "seats.h"
#include "stall.h"

#define TAIL_UNKNOWN INT64CONST(-2)

/* irregular groups of a lane past which mere suspicion makes no more */
#define MAX_BY_SUSPICION 1024

/* groups of a lane that can have been told that something has fallen due */
#define MAX_TOLD 16384

/* parked groups that are taken back under one hold of the lane's lock */
#define UNPARK_AT_ONCE 256

static bool
is_known(FairqLane *lane)
{
	return lane->lane_no != 0 &&
		lane->resets == pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets);
}

/* Let go of a set.  From now on others may take what is not kept in it. */
static void
release_set(FairqGroupSet *set)
{
	SpinLockRelease(&set->mutex);
	fairq_stall();
}

/* The two sets that may have a group's entry. */
static void
sets_of(uint32 lane_no, int32 group_no, FairqGroupSet *sets[2])
{
	uint32		hash = hash_combine(murmurhash32(lane_no),
									murmurhash32((uint32) group_no));

	sets[0] = &fairq_group_sets()[hash % FAIRQ_SETS];
	sets[1] = &fairq_group_sets()[murmurhash32(hash) % FAIRQ_SETS];
}

/* The set that an entry lies in. */
static FairqGroupSet *
set_with(const FairqGroup *group)
{
	return &fairq_group_sets()[fairq_group_index(group) / FAIRQ_SET_WAYS];
}

static FairqGroup *
victim(FairqGroupSet *set)
{
	for (int i = 0; i < FAIRQ_SET_WAYS; i++)
		if (set->ways[i].lane_no == 0)
			return &set->ways[i];

	/* what may have a gap is worth more: the table does not tell of it */
	for (int i = 0; i < 2 * FAIRQ_SET_WAYS; i++)
	{
		FairqGroup *group = &set->ways[set->hand];

		set->hand = (set->hand + 1) % FAIRQ_SET_WAYS;
		if (group->pins == 0 && !group->irregular &&
			(!group->gap || i >= FAIRQ_SET_WAYS))
			return group;
	}
	return NULL;
}

/* How little room a set has: by entries that must stay, then by any. */
static int
crowdedness(FairqGroupSet *set)
{
	int			stay = 0;
	int			used = 0;

	SpinLockAcquire(&set->mutex);
	for (int i = 0; i < FAIRQ_SET_WAYS; i++)
	{
		const FairqGroup *group = &set->ways[i];

		used += group->lane_no != 0;
		stay += group->lane_no != 0 && (group->pins > 0 || group->irregular);
	}
	release_set(set);
	return stay * (FAIRQ_SET_WAYS + 1) + used;
}

/* Make an entry, in the set that has more room.  The lane's lock is exclusive. */
static FairqGroup *
lock_new_group(FairqLane *lane, int32 group_no, FairqGroupSet *sets[2],
			   FairqGroupSet **setp)
{
	int			first = crowdedness(sets[0]) > crowdedness(sets[1]) ? 1 : 0;

	for (int i = 0; i < 2; i++)
	{
		FairqGroupSet *set = sets[(first + i) % 2];
		FairqGroup *group;

		SpinLockAcquire(&set->mutex);
		group = victim(set);
		if (group != NULL)
		{
			uint32		version = group->version;

			memset(group, 0, sizeof(FairqGroup));
			group->lane_no = lane->lane_no;
			group->group_no = group_no;
			group->tail = TAIL_UNKNOWN;
			group->waiting_from = FAIRQ_WAITING;
			group->due_from = group->expired_from = FAIRQ_ADDR_MAX;
			group->version = version + 1;
			*setp = set;
			return group;
		}
		release_set(set);
	}
	fairq_say_crowded();
	return NULL;
}

/*
 * Find a group's entry, or make one.  If there is one, its set's mutex is
 * held on return: it may be another group's once that is released, unless it
 * is pinned or irregular by then.
 */
static FairqGroup *
lock_group(FairqLane *lane, int32 group_no, bool create, FairqGroupSet **setp)
{
	FairqGroupSet *sets[2];

	sets_of(lane->lane_no, group_no, sets);
	for (int i = 0; i < 2; i++)
	{
		FairqGroupSet *set = sets[i];

		SpinLockAcquire(&set->mutex);
		for (int way = 0; way < FAIRQ_SET_WAYS; way++)
		{
			if (set->ways[way].lane_no == lane->lane_no &&
				set->ways[way].group_no == group_no)
			{
				*setp = set;
				return &set->ways[way];
			}
		}
		release_set(set);
	}
	return create ? lock_new_group(lane, group_no, sets, setp) : NULL;
}

/*
 * The entry of an irregular group, which stays where it is as long as the lane
 * is locked; NULL if the group is not irregular.
 */
static FairqGroup *
find_irregular(FairqLane *lane, int32 group_no)
{
	FairqGroupSet *set;
	FairqGroup *group;
	bool		irregular;

	if (lane->nirregular == 0 && lane->parked == FAIRQ_NOBODY)
		return NULL;
	group = lock_group(lane, group_no, false, &set);
	if (group == NULL)
		return NULL;
	/* a regular one may be another group's as soon as the mutex is released */
	irregular = group->irregular;
	release_set(set);
	return irregular ? group : NULL;
}

static void
put_in_set(FairqLane *lane, FairqGroup *group, bool parked)
{
	group->parked = parked;
	if (parked)
		fairq_seats_insert(&lane->parked, group);
	else
	{
		fairq_seats_insert(&lane->irregular, group);
		lane->nirregular++;
	}
}

static void
take_out_of_set(FairqLane *lane, FairqGroup *group)
{
	if (group->parked)
		fairq_seats_remove(&lane->parked, group);
	else
	{
		fairq_seats_remove(&lane->irregular, group);
		lane->nirregular--;
	}
}

/* Something of it has fallen due, from there on; FAIRQ_ADDR_MAX: nothing. */
static void
set_told(FairqLane *lane, FairqGroup *group, int64 due_from,
		 int64 expired_from)
{
	bool		was_told = Min(group->due_from,
							   group->expired_from) != FAIRQ_ADDR_MAX;
	bool		is_told = Min(due_from, expired_from) != FAIRQ_ADDR_MAX;

	lane->ntold += is_told - was_told;
	lane->nexpired += (expired_from != FAIRQ_ADDR_MAX) -
		(group->expired_from != FAIRQ_ADDR_MAX);
	group->due_from = due_from;
	group->expired_from = expired_from;
	if (!is_told)
		group->told_at = DT_NOBEGIN;
}

/*
 * A group that is parked goes back into service.  What it was told meanwhile,
 * or before, is not known any more: that all may have fallen due.
 */
static void
take_back(FairqLane *lane, FairqGroup *group)
{
	take_out_of_set(lane, group);
	put_in_set(lane, group, false);
	if (group->forgot)
	{
		group->forgot = false;
		group->expired_to = (int64) pg_atomic_read_u64(&lane->reach);
		group->told_at = GetCurrentTimestamp();
		set_told(lane, group, FAIRQ_SCHEDULED, 0);
		group->expiries++;
		group->version++;
	}
}

/* The caller must not touch the entry afterwards: it may be another group's. */
static void
become_regular(FairqLane *lane, FairqGroup *group)
{
	FairqGroupSet *set = set_with(group);

	take_out_of_set(lane, group);
	set_told(lane, group, FAIRQ_ADDR_MAX, FAIRQ_ADDR_MAX);
	group->forgot = false;
	SpinLockAcquire(&set->mutex);
	group->irregular = false;
	release_set(set);
}

/* This backend has found out where nothing is ready, or takes a turn. */
static void
narrow(FairqLane *lane)
{
	if (lane->narrower == MyProcPid)
		return;
	lane->narrower = MyProcPid;
	pg_atomic_fetch_add_u64(&lane->narrowings, 1);
}

/* Something has become ready, at one of these addresses. */
static void
enter(FairqLane *lane, int64 low, int64 high)
{
	int			at = lane->epoch % FAIRQ_RING;

	lane->ring[at] = Min(lane->ring[at], low);
	lane->ring_high[at] = Max(lane->ring_high[at], high);
}

/*
 * Something is ready there, and maybe up to highest, that pops have to come
 * by on their walk.
 */
static void
lower_to(FairqLane *lane, int64 addr, int64 highest)
{
	if (fairq_is_scheduled(addr))
	{
		fairq_times_scheduled(&lane->times, addr);
		return;
	}
	if (fairq_is_waiting(addr))
	{
		lane->strays = Min(lane->strays, addr);
		lane->nstrays++;
		return;
	}
	enter(lane, addr, highest);
	lane->mark = Min(lane->mark, addr);
	if (highest >= lane->desert_from && addr < lane->desert_to)
		lane->desert_from = Min(highest, lane->desert_to - 1) + 1;
}

static void
lower(FairqLane *lane, int64 addr)
{
	lower_to(lane, addr, addr);
}

static void
void_desert(FairqLane *lane)
{
	lane->desert_from = lane->desert_to = 0;
	enter(lane, FAIRQ_ADDR_MAX, FAIRQ_ADDR_MAX);
}

static void
all_become_regular(FairqLane *lane)
{
	void_desert(lane);
	while (lane->irregular != FAIRQ_NOBODY)
		become_regular(lane, fairq_group_at(lane->irregular));
	while (lane->parked != FAIRQ_NOBODY)
		become_regular(lane, fairq_group_at(lane->parked));
}

/* Something is ready there, of an irregular group. */
static void
lower_group(FairqGroup *group, int64 addr)
{
	if (fairq_is_waiting(addr))
		group->waiting_from = Min(group->waiting_from, addr);
	else
		group->from = Min(group->from, addr);
	group->version++;
}

/* A group that is irregular from now on; NULL if its sets have no room. */
static FairqGroup *
make_irregular(FairqLane *lane, int32 group_no)
{
	FairqGroupSet *set;
	FairqGroup *group = lock_group(lane, group_no, true, &set);
	bool		was_irregular;

	if (group == NULL)
		return NULL;
	was_irregular = group->irregular;
	group->irregular = true;
	release_set(set);

	if (!was_irregular)
	{
		/*
		 * From now on its rows are passed over by all pops.  Those that stood
		 * in order until now are not below the mark.
		 */
		group->from = lane->mark;
		group->taken = FAIRQ_ADDR_NONE;
		group->tasks_left = 0;
		put_in_set(lane, group, false);
	}
	return group;
}

/*
 * Call a group irregular, at least while its turns are not past until.  If its
 * sets have no room for that, the mark is lowered instead, for a pop to try
 * again.
 */
static bool
become_irregular(FairqLane *lane, int32 group_no, int64 from, int64 until,
				 bool gap)
{
	FairqGroup *group = make_irregular(lane, group_no);

	if (group == NULL)
	{
		lower(lane, from);
		/* nobody knows how far its tasks stand */
		void_desert(lane);
		return false;
	}
	group->gap |= gap;
	group->until = Max(group->until, until);
	lower_group(group, from);
	return true;
}

/* --------------------------------------------------------------------- */

/* What is known now is not older than this. */
uint64
fairq_lane_as_of(FairqLane *lane)
{
	return pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets) +
		pg_atomic_read_u64(&fairq_hints_of(lane)->uncounted);
}

/* A task is running there, or about to. */
void
fairq_lane_reaches(FairqLane *lane, int64 addr)
{
	uint64		reach = pg_atomic_read_u64(&lane->reach);

	while (addr > (int64) reach &&
		   !pg_atomic_compare_exchange_u64(&lane->reach, &reach, addr))
		;
}

/* The highest address at which a task of the lane may be running. */
int64
fairq_lane_reach(FairqLane *lane)
{
	int64		reach = FAIRQ_WAITING - 1;

	LWLockAcquire(&lane->lock, LW_SHARED);
	if (is_known(lane))
		reach = Max((int64) pg_atomic_read_u64(&lane->reach), lane->pos);
	LWLockRelease(&lane->lock);
	return reach;
}

bool
fairq_lane_known(FairqLane *lane)
{
	bool		known;

	LWLockAcquire(&lane->lock, LW_SHARED);
	known = is_known(lane);
	LWLockRelease(&lane->lock);
	return known;
}

static uint64
note_epoch(FairqLane *lane)
{
	int			at = lane->epoch % FAIRQ_RING;

	if (lane->ring[at] != FAIRQ_ADDR_MAX ||
		lane->ring_high[at] != FAIRQ_ADDR_NONE)
	{
		at = ++lane->epoch % FAIRQ_RING;
		lane->ring[at] = FAIRQ_ADDR_MAX;
		lane->ring_high[at] = FAIRQ_ADDR_NONE;
	}
	return lane->epoch;
}

/* The lowest address entered since an epoch was noted. */
static int64
lowest_since(FairqLane *lane, uint64 epoch)
{
	int64		lowest = FAIRQ_ADDR_MAX;

	if (lane->epoch - epoch >= FAIRQ_RING)
		return FAIRQ_ADDR_NONE;
	for (uint64 e = epoch; e <= lane->epoch; e++)
		lowest = Min(lowest, lane->ring[e % FAIRQ_RING]);
	return lowest;
}

/* The highest one. */
static int64
highest_since(FairqLane *lane, uint64 epoch)
{
	int64		highest = FAIRQ_ADDR_NONE;

	if (lane->epoch - epoch >= FAIRQ_RING)
		return FAIRQ_ADDR_MAX;
	for (uint64 e = epoch; e <= lane->epoch; e++)
		highest = Max(highest, lane->ring_high[e % FAIRQ_RING]);
	return highest;
}

/* Before the table is read to recover the lane. */
uint64
fairq_lane_epoch(FairqLane *lane)
{
	uint64		epoch;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	epoch = note_epoch(lane);
	LWLockRelease(&lane->lock);
	return epoch;
}

/*
 * Make the lane known by what was read off the table: the first ready task of
 * each group, sorted by address, and the lane's highest address.
 *
 * In an undisturbed lane all heads lie within one block length past pos.  So
 * the window of that length that ends at the median takes in most of them, and
 * pos goes just below it.  Whoever is outside is irregular.  Whether there are
 * holes behind a group's first task is found out when that is served, up to
 * the highest address (see serve.c).  If it is not sure that nothing changed
 * since it was read, the mark goes to the very start.
 *
 * A head whose group has only waiting tasks has no address; those come last.
 */
void
fairq_lane_publish(FairqLane *lane, uint64 resets, uint64 epoch,
				   bool sure, const FairqHead *heads, int64 nheads,
				   int64 highest, int64 block_length)
{
	int64		low = FAIRQ_ADDR_MAX;
	int64		nplaced = nheads;

	while (nplaced > 0 && heads[nplaced - 1].addr == FAIRQ_ADDR_MAX)
		nplaced--;
	for (int64 i = 0; i < nplaced; i++)
	{
		int64		median = heads[nplaced / 2].addr;

		if (median - heads[i].addr < block_length)
		{
			low = heads[i].addr;
			break;
		}
	}

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_known(lane))
	{
		/* somebody else was faster */
		LWLockRelease(&lane->lock);
		return;
	}
	narrow(lane);
	all_become_regular(lane);
	lane->lane_no = fairq_new_lane_no();
	lane->resets = resets;
	lane->pos = nplaced > 0 ? low - 1 : highest;
	lane->pos_left = 0;
	lane->suspect = highest;
	fairq_lane_reaches(lane, highest);
	/* also of what was leased since that was read */
	fairq_times_forget(&lane->times,
					   (int64) pg_atomic_read_u64(&lane->reach));
	if (!sure)
	{
		lane->strays = FAIRQ_WAITING;
		lane->nstrays++;
	}
	lane->mark = sure ? Min(low, lowest_since(lane, epoch)) : FAIRQ_ADDR_NONE;
	for (int64 i = 0; i < nheads; i++)
	{
		bool		ahead = i < nplaced && heads[i].addr > low &&
			heads[i].addr - low >= block_length;

		if (i < nplaced && (heads[i].addr < low || ahead))
			(void) become_irregular(lane, heads[i].group_no, heads[i].addr, highest,
									ahead);
		if (heads[i].waiting != FAIRQ_ADDR_MAX)
			(void) become_irregular(lane, heads[i].group_no, heads[i].waiting,
									FAIRQ_ADDR_NONE, true);
	}
	LWLockRelease(&lane->lock);
}

/* How many of a group's turns lie ahead, up to its tail. */
static int64
turns_ahead(const FairqTail *tail, int32 group_no, int64 pos,
			int64 block_length)
{
	if (tail->addr <= pos)
		return 0;
	return (tail->addr - fairq_turn_from(group_no, pos + 1, block_length)) /
		block_length + 1;
}

/*
 * Give a group its next address.  looked_up is its tail as the table has it,
 * or NULL if that was not looked at (yet); doubtful if it may be ahead of the
 * group's turn.
 *
 * If the group is limited to so many running tasks (most), no more of them get
 * a turn in advance than may be running.  Whatever comes then has to wait, and
 * what comes behind a waiting task waits, too: in that order.
 */
FairqReserved
fairq_lane_reserve(FairqLane *lane, int32 group_no, int32 weight, int32 most,
				   int64 block_length, int64 order,
				   const FairqTail *looked_up, bool doubtful,
				   FairqReservation *reservation)
{
	FairqGroupSet *set;
	FairqGroup *group;
	FairqReserved result = FAIRQ_RESERVED;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (!is_known(lane))
	{
		LWLockRelease(&lane->lock);
		return FAIRQ_LANE_UNKNOWN;
	}
	group = lock_group(lane, group_no, looked_up != NULL, &set);
	if ((group == NULL || group->tail == TAIL_UNKNOWN) && looked_up == NULL)
		result = FAIRQ_TAIL_UNKNOWN;
	else
	{
		FairqTail	tail;

		if (group != NULL && group->tail == TAIL_UNKNOWN)
		{
			group->tail = looked_up->addr;
			group->tail_count = looked_up->count;
			if (looked_up->addr > lane->pos &&
				!fairq_is_waiting(looked_up->addr) &&
				(doubtful || looked_up->addr <= lane->suspect))
			{
				/* whether there is a gap before its tail is not known */
				group->gap = true;
				group->until = Max(group->until, looked_up->addr);
			}
		}
		if (group != NULL)
		{
			tail.addr = group->tail;
			tail.count = group->tail_count;
			if (tail.addr <= lane->pos && !group->irregular)
				group->gap = false;
		}
		else
			tail = *looked_up;

		reservation->before = tail;
		if (fairq_is_waiting(tail.addr) ||
			(most != FAIRQ_NO_LIMIT &&
			 ((group != NULL && group->irregular) ||
			  turns_ahead(&tail, group_no, lane->pos, block_length) >=
			  (most + weight - 1) / weight)))
		{
			tail.addr = Max(fairq_waiting_addr(order),
							fairq_is_waiting(tail.addr) ? tail.addr + 1 : 0);
			tail.count = 1;
		}
		else if (!fairq_next_tail(&tail, group_no, weight, lane->pos, block_length))
			result = FAIRQ_BLOCKS_USED_UP;
		if (result == FAIRQ_RESERVED)
		{
			reservation->tail = tail;
			reservation->pinned = group;
			reservation->lane_no = lane->lane_no;
			if (group != NULL)
			{
				group->tail = tail.addr;
				group->tail_count = tail.count;
				group->pins++;
				if (group->irregular)
					group->version++;	/* it may have more than a look saw */
			}
		}
	}
	if (group != NULL)
		release_set(set);
	LWLockRelease(&lane->lock);
	return result;
}

/* The row is written, or never will be. */
void
fairq_unpin(FairqReservation *reservation)
{
	FairqGroup *group = reservation->pinned;
	FairqGroupSet *set;

	if (group == NULL)
		return;
	set = set_with(group);
	SpinLockAcquire(&set->mutex);
	group->pins--;
	release_set(set);
	reservation->pinned = NULL;
}

/*
 * The tasks that were given addresses from first to last are not there after
 * all.  Put the tail back if nobody has reserved since, nor (torn) in between;
 * else the group has a hole.
 */
void
fairq_lane_unreserve(FairqLane *lane, uint32 lane_no, int32 group_no,
					 FairqTail last, FairqTail before, int64 first,
					 bool torn)
{
	FairqGroupSet *set;
	FairqGroup *group;
	bool		put_back = false;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_known(lane))
	{
		/* what was reserved before a recovery is not in its tail */
		group = lane->lane_no != lane_no ? NULL :
			lock_group(lane, group_no, false, &set);
		if (group != NULL)
		{
			if (!torn && group->tail == last.addr &&
				group->tail_count == last.count)
			{
				group->tail = before.addr;
				group->tail_count = before.count;
				put_back = true;
			}
			release_set(set);
		}
		/* among waiting tasks there are no holes, but only an order */
		if (!put_back && !fairq_is_waiting(first))
			(void) become_irregular(lane, group_no, first, last.addr, true);
	}
	LWLockRelease(&lane->lock);
}

/* False if the lane has to be recovered first. */
bool
fairq_lane_note(FairqLane *lane, FairqNote *note)
{
	bool		known;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	known = is_known(lane);
	if (known)
	{
		note->lane_no = lane->lane_no;
		note->epoch = note_epoch(lane);
		note->mark = lane->mark;
		note->pos = lane->pos;
		note->pos_left = lane->pos_left;
		note->suspect = lane->suspect;
		note->desert_from = lane->desert_from;
		note->desert_to = lane->desert_to;
		note->stride = lane->stride;
		note->strays = lane->strays;
		note->nstrays = lane->nstrays;
		note->nirregular = lane->nirregular;
		note->any_irregular = lane->nirregular > 0 ||
			lane->parked != FAIRQ_NOBODY;
	}
	LWLockRelease(&lane->lock);
	return known;
}

/*
 * From the note's mark to below upto nothing was left that is ready.  The walk
 * came by a task every so many addresses (0: by none).
 */
void
fairq_lane_raise(FairqLane *lane, const FairqNote *note, int64 upto,
				 int64 stride)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
	{
		narrow(lane);
		upto = Min(upto, lowest_since(lane, note->epoch));
		lane->mark = Max(lane->mark, upto);
		if (stride > 0)
			lane->stride = stride;
	}
	LWLockRelease(&lane->lock);
}

/*
 * The walk has found no task of a regular group that is ready, from there to
 * below to.
 */
void
fairq_lane_desert(FairqLane *lane, const FairqNote *note, int64 from,
				  int64 to)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
	{
		int64		highest = highest_since(lane, note->epoch);

		narrow(lane);
		if (highest >= from)
			from = Min(highest, to - 1) + 1;
		if (to - from > lane->desert_to - lane->desert_from)
		{
			lane->desert_from = from;
			lane->desert_to = to;
		}
	}
	LWLockRelease(&lane->lock);
}

static void
advance(FairqLane *lane, int64 addr, int32 left)
{
	if (addr == FAIRQ_ADDR_MAX)
		return;
	fairq_lane_reaches(lane, addr);
	if (addr < lane->pos)
		return;
	narrow(lane);
	lane->pos_left = addr > lane->pos ? left : Min(lane->pos_left, left);
	lane->pos = addr;
}

/*
 * A regular group was served at addr, and may be served left more of the tasks
 * there.
 */
void
fairq_lane_advance(FairqLane *lane, const FairqNote *note, int64 addr,
				   int32 left)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
		advance(lane, addr, left);
	LWLockRelease(&lane->lock);
}

/* Are the rows of that group to be passed over? */
bool
fairq_lane_is_irregular(FairqLane *lane, int32 group_no)
{
	bool		irregular;

	LWLockAcquire(&lane->lock, LW_SHARED);
	irregular = is_known(lane) && find_irregular(lane, group_no) != NULL;
	LWLockRelease(&lane->lock);
	return irregular;
}

/* What is left of a turn that was begun: by itself, or while it was regular. */
static int32
left_of_turn(FairqLane *lane, FairqGroup *group, int64 turn)
{
	if (turn == group->taken)
		return group->tasks_left;
	if (turn == lane->pos && turn > group->taken)
		return lane->pos_left;
	return 0;
}

static int64
next_turn_of(FairqLane *lane, FairqGroup *group, int64 cur, int64 block_length)
{
	int64		over = Max(lane->pos, group->taken);
	int64		turn = fairq_turn_from(group->group_no, cur, block_length);

	if (turn <= over && left_of_turn(lane, group, turn) == 0)
		turn = over == FAIRQ_ADDR_MAX ? FAIRQ_ADDR_MAX :
			fairq_turn_from(group->group_no, over + 1, block_length);
	return turn;
}

/*
 * The irregular group whose turn is next at or past cur: walk the seats from
 * that of cur on, and once around.
 */
static FairqGroup *
next_irregular(FairqLane *lane, int64 cur, int64 block_length, int64 *turnp)
{
	int64		block = fairq_block(cur, block_length);
	int32		seat = (int32) Min(cur - block * block_length, PG_INT32_MAX);
	FairqGroup *best = NULL;
	int64		best_turn = FAIRQ_ADDR_MAX;

	for (int part = 0; part < 2; part++)
	{
		FairqGroup *group = fairq_seats_from(lane->irregular,
											 part == 0 ? seat : 0);

		while (group != NULL && (part == 0 || group->group_no < seat))
		{
			int64		turn = next_turn_of(lane, group, cur, block_length);

			if (best == NULL || turn < best_turn)
			{
				best = group;
				best_turn = turn;
			}
			/* nobody further along this way can be earlier */
			if (fairq_block(turn, block_length) == block + part ||
				group->group_no == PG_INT32_MAX)
			{
				*turnp = best_turn;
				return best;
			}
			group = fairq_seats_from(lane->irregular, group->group_no + 1);
		}
	}
	*turnp = best_turn;
	return best;
}

/* What a call is to know that looks at the group's tasks. */
static void
read_group(const FairqLane *lane, const FairqGroup *group, FairqTurn *turn)
{
	turn->group_no = group->group_no;
	turn->from = group->from;
	turn->waiting_from = group->waiting_from;
	turn->full_seat_before = lane->full_seat;
	turn->full_left_before = lane->full_left;
	turn->nirregular = lane->nirregular;
	turn->nexpired = lane->nexpired;
	turn->taken_before = group->taken;
	turn->version = group->version;
	turn->expiries = group->expiries;
	turn->due_from = group->due_from;
	turn->expired_from = group->expired_from;
	turn->expired_to = group->expired_to;
	turn->told_at = group->told_at;
}

/*
 * The next turn of an irregular group at or past cur, if it comes no later
 * than bound.  With take, it is the caller's: nobody else gets the same one.
 */
bool
fairq_lane_next_turn(FairqLane *lane, const FairqNote *note, int64 cur,
					 int64 block_length, bool take, int64 bound,
					 FairqTurn *turn)
{
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no && lane->nirregular > 0)
	{
		group = next_irregular(lane, Max(Max(cur, lane->pos), 0),
							   block_length, &turn->addr);
		if (turn->addr > bound)
			group = NULL;
	}
	if (group != NULL)
	{
		read_group(lane, group, turn);
		turn->in_full = false;
		turn->left = left_of_turn(lane, group, turn->addr);
		if (take)
		{
			group->taken = turn->addr;
			group->tasks_left = 0;
			if (turn->addr == lane->pos)
				lane->pos_left = 0;
		}
	}
	LWLockRelease(&lane->lock);
	return group != NULL;
}

/* The first group from a seat on that was told of an expired lease. */
static FairqGroup *
expired_from_seat(FairqLane *lane, int32 seat)
{
	FairqGroup *group = fairq_seats_from(lane->irregular, seat);

	while (group != NULL && group->expired_from == FAIRQ_ADDR_MAX)
		group = group->group_no == PG_INT32_MAX ? NULL :
			fairq_seats_from(lane->irregular, group->group_no + 1);
	return group;
}

/*
 * In a full queue: the group with an expired lease whose seat is next; with
 * vain_seat, which is -1 otherwise, past that one.  It is the caller's, as a
 * turn would be.  The address is one to come.
 */
bool
fairq_lane_next_in_full(FairqLane *lane, const FairqNote *note,
						int32 vain_seat, int64 block_length, FairqTurn *turn)
{
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no && lane->nexpired > 0)
	{
		int32		seat = vain_seat < 0 ? lane->full_seat : vain_seat;

		if (vain_seat >= 0 || lane->full_left == 0)
			seat = seat == PG_INT32_MAX ? 0 : seat + 1;
		group = expired_from_seat(lane, seat);
		if (group == NULL)
			group = expired_from_seat(lane, 0);
	}
	if (group != NULL)
	{
		read_group(lane, group, turn);
		turn->addr = fairq_turn_from(group->group_no, lane->pos + 1,
									 block_length);
		turn->in_full = true;
		turn->left = group->group_no == lane->full_seat ? lane->full_left : 0;
		lane->full_seat = group->group_no;
		lane->full_left = 0;
	}
	LWLockRelease(&lane->lock);
	return group != NULL;
}

/*
 * Nothing could be served in the turn that was taken: as long as service has
 * not gone past it, it is the group's again.
 */
void
fairq_lane_turn_back(FairqLane *lane, const FairqNote *note,
					 const FairqTurn *turn)
{
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
		group = find_irregular(lane, turn->group_no);
	if (turn->in_full)
	{
		if (lane->full_seat == turn->group_no)
		{
			lane->full_seat = turn->full_seat_before;
			lane->full_left = turn->full_left_before;
		}
	}
	else if (group != NULL && group->taken == turn->addr)
	{
		group->taken = turn->taken_before;
		if (turn->addr == turn->taken_before)
			group->tasks_left = turn->left;
		else if (turn->addr == lane->pos && turn->left > 0)
			lane->pos_left = turn->left;
	}
	LWLockRelease(&lane->lock);
}

/*
 * In the turn that was taken tasks were served, and left more may be.  If one
 * of them stood ahead of its turn, there is a hole now where it stood.
 */
void
fairq_lane_turn_served(FairqLane *lane, const FairqNote *note,
					   const FairqTurn *turn, int32 left, int64 ahead)
{
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (turn->in_full)
	{
		if (lane->full_seat == turn->group_no)
			lane->full_left = left;
	}
	else if (lane->lane_no == note->lane_no)
	{
		advance(lane, turn->addr, 0);
		group = find_irregular(lane, turn->group_no);
		if (group != NULL)
		{
			if (group->taken == turn->addr)
				group->tasks_left = left;
			if (ahead != FAIRQ_ADDR_NONE)
			{
				fairq_lane_reaches(lane, ahead);
				group->until = Max(group->until, ahead);
				group->gap = true;
			}
		}
	}
	LWLockRelease(&lane->lock);
}

/* It has no tasks left that are not running: the next one has a turn again. */
static void
start_afresh(FairqGroup *group)
{
	FairqGroupSet *set = set_with(group);

	SpinLockAcquire(&set->mutex);
	if (group->pins == 0 && fairq_is_waiting(group->tail))
	{
		/* unless there is one that only others see: look */
		group->tail = TAIL_UNKNOWN;
		group->until = FAIRQ_ADDR_NONE;
	}
	release_set(set);
}

/*
 * The look at a group's turn found it regular again, or found nothing of it
 * that is ready; or, drained, no task at all that is not running.  In any case
 * none of its waiting tasks is ready.
 */
void
fairq_lane_settle(FairqLane *lane, const FairqNote *note,
				  const FairqTurn *turn, bool regular, bool drained)
{
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
		group = find_irregular(lane, turn->group_no);
	if (group != NULL && group->version == turn->version &&
		!(regular && group->until > turn->addr))
	{
		narrow(lane);
		group->waiting_from = FAIRQ_ADDR_MAX;
		if (drained)
			start_afresh(group);
		if (regular)
		{
			group->gap = false;
			lower(lane, turn->addr);
			void_desert(lane);
		}
		become_regular(lane, group);
	}
	LWLockRelease(&lane->lock);
}

/*
 * In the turn that was taken nothing was left that is ready below these
 * addresses: of the queued tasks, of those that are due, of those that have
 * expired.
 */
void
fairq_lane_looked_upto(FairqLane *lane, const FairqNote *note,
					   const FairqTurn *turn, int64 from, int64 due_from,
					   int64 expired_from)
{
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
		group = find_irregular(lane, turn->group_no);
	if (group != NULL && group->version == turn->version)
	{
		narrow(lane);
		group->from = Max(group->from, Min(from, FAIRQ_WAITING));
		group->waiting_from = Max(group->waiting_from, from);
		set_told(lane, group, due_from, expired_from);
	}
	LWLockRelease(&lane->lock);
}

/*
 * There is no room for another running task of the group, which has one that
 * is ready at addr: put it aside.  version is that of the settings that say
 * so.  False if they are not in effect any more, or there may be room.
 *
 * An expired lease needs no room.  So the group is put aside only if it has
 * none, but for those that were looked at in the turn that was taken; a
 * regular group (turn is NULL) has none.
 */
bool
fairq_lane_park(FairqLane *lane, const FairqNote *note, const FairqTurn *turn,
				uint64 version, int32 group_no, int64 addr, FairqLimit *limit,
				int32 most)
{
	FairqHints *hints = fairq_hints_of(lane);
	FairqGroup *group;
	bool		parked = false;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
	{
		group = find_irregular(lane, group_no);
		if (group == NULL &&
			become_irregular(lane, group_no, addr, FAIRQ_ADDR_NONE, false))
			group = find_irregular(lane, group_no);
		if (group != NULL &&
			(most == 0 || (turn != NULL ? group->expiries == turn->expiries :
						   group->expired_from == FAIRQ_ADDR_MAX)) &&
			fairq_limit_park(limit, fairq_lane_as_of(lane), most,
							 lane->priority, &hints->version, version))
		{
			parked = true;
			group->forgot |= Min(group->due_from,
								 group->expired_from) != FAIRQ_ADDR_MAX;
			set_told(lane, group, FAIRQ_ADDR_MAX, FAIRQ_ADDR_MAX);
			if (!group->parked)
			{
				take_out_of_set(lane, group);
				put_in_set(lane, group, true);
			}
		}
	}
	LWLockRelease(&lane->lock);
	return parked;
}

/* The first parked group at or behind that seat. */
bool
fairq_lane_next_parked(FairqLane *lane, int32 *group_no)
{
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_SHARED);
	group = fairq_seats_from(lane->parked, *group_no);
	if (group != NULL)
		*group_no = group->group_no;
	LWLockRelease(&lane->lock);
	return group != NULL;
}

/* There is room for the group again in these lanes. */
void
fairq_unpark(FairqHints *hints, int32 group_no, uint16 parked)
{
	for (int priority = 0; parked != 0; priority++, parked >>= 1)
	{
		FairqLane  *lane = &hints->lanes[priority];
		FairqGroup *group;

		if ((parked & 1) == 0)
			continue;
		LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
		group = find_irregular(lane, group_no);
		if (group != NULL && group->parked)
			take_back(lane, group);
		LWLockRelease(&lane->lock);
	}
}

/*
 * Take parked groups back, at most so many, from a seat on; *seat is then that
 * of the next one.  False if there are no more.
 */
static bool
unpark_some(FairqLane *lane, int32 *seat, int most)
{
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	while ((group = fairq_seats_from(lane->parked, *seat)) != NULL &&
		   most-- > 0)
	{
		*seat = group->group_no;
		take_back(lane, group);
	}
	LWLockRelease(&lane->lock);
	return group != NULL;
}

/*
 * There may be room for every group again.  A lane is not kept locked for as
 * long as a hundred thousand groups take; a group that is parked behind the
 * one that is taken back just now is parked by the present settings.
 */
void
fairq_unpark_all(FairqHints *hints)
{
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		int32		seat = 0;

		while (unpark_some(&hints->lanes[priority], &seat, UNPARK_AT_ONCE))
			;
	}
}

/*
 * Begin to look for what has fallen due.  0 if somebody else is at it, or the
 * lane is not known; else its number.
 */
uint32
fairq_lane_look_begin(FairqLane *lane, TimestampTz now, FairqLook *look)
{
	uint32		lane_no = 0;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_known(lane) &&
		fairq_times_begin(&lane->times, now, look))
		lane_no = lane->lane_no;
	LWLockRelease(&lane->lock);
	return lane_no;
}

/* So far it has come; or, with NULL, it was broken off. */
void
fairq_lane_look_end(FairqLane *lane, uint32 lane_no, const FairqLook *look)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	narrow(lane);
	if (look != NULL && lane->lane_no == lane_no)
		fairq_times_end(&lane->times, look);
	else
	{
		/* what it has taken note of away it may not have told anybody */
		lane->times.looking = false;
	}
	LWLockRelease(&lane->lock);
}

/*
 * A task of the group has fallen due: one that is scheduled there, or one
 * whose lease has expired.
 */
FairqTold
fairq_lane_tell(FairqLane *lane, uint32 lane_no, int32 group_no, int64 addr,
				TimestampTz now)
{
	FairqGroup *group = NULL;
	FairqTold	result = FAIRQ_TOO_MANY_TOLD;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == lane_no)
	{
		group = find_irregular(lane, group_no);
		if (group != NULL && group->parked && fairq_is_scheduled(addr))
		{
			/* it is told when it is taken back */
			group->forgot = true;
			group = NULL;
			result = FAIRQ_TOLD;
		}
		else if (group != NULL &&
				 Min(group->due_from, group->expired_from) != FAIRQ_ADDR_MAX)
			result = FAIRQ_TOLD;
		else if (lane->ntold >= MAX_TOLD)
			group = NULL;
		else
		{
			group = make_irregular(lane, group_no);
			result = group != NULL ? FAIRQ_TOLD : FAIRQ_HOMELESS;
		}
	}
	if (group != NULL)
	{
		/* whoever serves it must not look with an older clock, and miss it */
		group->told_at = Max(group->told_at, now);
		if (fairq_is_scheduled(addr))
			set_told(lane, group, Min(group->due_from, addr),
					 group->expired_from);
		else
		{
			if (group->expired_from == FAIRQ_ADDR_MAX)
				group->expired_to = FAIRQ_ADDR_NONE;
			group->expired_to = Max(group->expired_to, addr);
			set_told(lane, group, group->due_from,
					 Min(group->expired_from, addr));
			group->expiries++;

			/* it has a place, whatever the limits say */
			if (group->parked)
				take_back(lane, group);
		}
		group->version++;
	}
	LWLockRelease(&lane->lock);
	return result;
}

/*
 * For whoever checks: will somebody look for that task, now or when it falls
 * due?
 */
bool
fairq_lane_is_told(FairqLane *lane, int32 group_no, int64 addr,
				   TimestampTz lease_until)
{
	FairqGroup *group;
	FairqTimes *times = &lane->times;
	bool		told;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	group = find_irregular(lane, group_no);
	if (fairq_is_scheduled(addr))
		told = (int64) pg_atomic_read_u64(&times->timers) <= addr ||
			(group != NULL && group->due_from <= addr);
	else
		told = (int64) pg_atomic_read_u64(&times->deadline) <= lease_until ||
			pg_atomic_read_u64(&times->sweep) != FAIRQ_ADDR_MAX ||
			(group != NULL && group->expired_from <= addr &&
			 addr <= group->expired_to);
	told |= !is_known(lane) || (group != NULL && group->forgot);
	LWLockRelease(&lane->lock);
	return told;
}

/* Up to there the groups of all waiting tasks have entries now. */
void
fairq_lane_no_strays(FairqLane *lane, const FairqNote *note, int64 upto)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no && lane->nstrays == note->nstrays)
	{
		narrow(lane);
		lane->strays = Max(lane->strays, upto);
	}
	LWLockRelease(&lane->lock);
}

/*
 * What follows is said after it is visible, from commit and abort callbacks.
 */

/* Tasks were given addresses from there up to highest. */
void
fairq_lane_ready(FairqLane *lane, int32 group_no, int64 addr, int64 highest)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (!is_known(lane) || fairq_is_scheduled(addr))
		lower(lane, addr);
	else if (addr <= lane->pos || fairq_is_waiting(addr))
		(void) become_irregular(lane, group_no, addr, FAIRQ_ADDR_NONE,
								fairq_is_waiting(addr));
	else
	{
		FairqGroupSet *set;
		FairqGroup *group = lock_group(lane, group_no, false, &set);
		bool		irregular = group != NULL && group->irregular;

		/* if its entry was evicted, nobody knows */
		bool		gap = group == NULL || group->gap ||
			group->tail == TAIL_UNKNOWN;

		if (group != NULL)
			release_set(set);
		if (irregular)
			lower_group(group, addr);
		else if (gap && lane->nirregular < MAX_BY_SUSPICION)
			(void) become_irregular(lane, group_no, addr, FAIRQ_ADDR_NONE, true);
		else
			lower_to(lane, addr, highest);
	}
	LWLockRelease(&lane->lock);
}

/*
 * A task of the group is ready at an address that may not be its turn.  False
 * if there was no room to remember that; the mark is lowered then.
 */
bool
fairq_lane_irregular(FairqLane *lane, int32 group_no, int64 addr)
{
	bool		remembered = false;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_known(lane))
		remembered = become_irregular(lane, group_no, addr, FAIRQ_ADDR_NONE,
									  addr > lane->pos);
	else
		lower(lane, addr);
	LWLockRelease(&lane->lock);
	return remembered;
}

/*
 * Tasks of the group are ready again where they stood, from lowest to highest.
 * Its tail may have been looked up while they were away.
 */
void
fairq_lane_undone(FairqLane *lane, int32 group_no, int64 lowest, int64 highest)
{
	FairqGroupSet *set;
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_known(lane))
	{
		(void) become_irregular(lane, group_no, lowest, FAIRQ_ADDR_NONE,
								lowest > lane->pos);
		group = lock_group(lane, group_no, false, &set);
		if (group != NULL)
		{
			if (group->tail != TAIL_UNKNOWN && group->tail < highest)
			{
				group->tail = highest;
				group->tail_count = FAIRQ_TAIL_FULL;
				group->until = Max(group->until, highest);
				group->gap = true;
			}
			release_set(set);
		}
	}
	else
		lower(lane, lowest);
	LWLockRelease(&lane->lock);
}

/* Tasks of the group went away unserved, from lowest to highest. */
void
fairq_lane_hole(FairqLane *lane, int32 group_no, int64 lowest, int64 highest)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_known(lane))
		(void) become_irregular(lane, group_no, lowest, highest, true);
	LWLockRelease(&lane->lock);
}

/* Something is ready there, and maybe further on. */
void
fairq_lane_lower(FairqLane *lane, int64 addr)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	lower(lane, addr);
	void_desert(lane);
	LWLockRelease(&lane->lock);
}

/* Nothing is known of the lane any more. */
void
fairq_lane_forget(FairqLane *lane)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	narrow(lane);
	lower(lane, FAIRQ_ADDR_NONE);
	all_become_regular(lane);
	lane->lane_no = 0;
	LWLockRelease(&lane->lock);
}

/*
 * The caller is about to say what its own pops see.  What it says stands until
 * the number that is returned is another one.
 */
uint64
fairq_lane_narrowings(FairqLane *lane)
{
	uint64		narrowings;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	narrow(lane);
	narrowings = pg_atomic_read_u64(&lane->narrowings);
	LWLockRelease(&lane->lock);
	return narrowings;
}
