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
 * number of commits can overrun the ring.  Epochs are never used again.
 *
 * The same for irregular groups: each holds "from", below which none of its
 * tasks is ready, and a version.  What becomes ready lowers from and counts
 * the version up; a pop moves from up, or calls the group regular, only if the
 * version is still the one it took its turn with.  When a group becomes
 * regular the mark is lowered to its turn through the ring, since pops have
 * passed over its rows until now.  When it becomes irregular, from starts at
 * or below the mark, since its rows have stood in order until now.
 *
 * Locking: a lane's lock protects all that is in struct FairqLane and what
 * groups say of themselves; see shmem.h.  Lock order: lane, then the mutex of
 * one group set.  Nothing here allocates, waits for anything else or fails, so
 * everything can be called from commit and abort callbacks.
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "lane.h"

#define TAIL_UNKNOWN INT64CONST(-2)

/* irregular groups of a lane past which mere suspicion makes no more */
#define MAX_BY_SUSPICION 1024

static bool
is_known(FairqLane *lane)
{
	return lane->lane_no != 0 &&
		lane->resets == pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets);
}

static FairqGroup *
group_at(int32 index)
{
	return &fairq_group_sets()[index / FAIRQ_SET_WAYS].ways[index % FAIRQ_SET_WAYS];
}

static int32
index_of(FairqGroup *group)
{
	char	   *base = (char *) fairq_group_sets();
	int32		set = ((char *) group - base) / sizeof(FairqGroupSet);

	return set * FAIRQ_SET_WAYS + (group - fairq_group_sets()[set].ways);
}

static FairqGroupSet *
set_of(uint32 lane_no, int32 group_no)
{
	uint32		hash = hash_combine(murmurhash32(lane_no),
									murmurhash32((uint32) group_no));

	return &fairq_group_sets()[hash % FAIRQ_SETS];
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

/*
 * Find a group's entry, or make one.  If there is one, its set's mutex is
 * held on return: it may go away once that is released, unless it is pinned
 * or irregular by then.
 */
static FairqGroup *
lock_group(FairqLane *lane, int32 group_no, bool create, FairqGroupSet **setp)
{
	FairqGroupSet *set = set_of(lane->lane_no, group_no);
	FairqGroup *group = NULL;

	SpinLockAcquire(&set->mutex);
	for (int i = 0; i < FAIRQ_SET_WAYS; i++)
	{
		if (set->ways[i].lane_no == lane->lane_no &&
			set->ways[i].group_no == group_no)
		{
			group = &set->ways[i];
			break;
		}
	}
	if (group == NULL && create && (group = victim(set)) != NULL)
	{
		uint32		version = group->version;

		memset(group, 0, sizeof(FairqGroup));
		group->lane_no = lane->lane_no;
		group->group_no = group_no;
		group->tail = TAIL_UNKNOWN;
		group->version = version + 1;
	}
	if (group == NULL)
		SpinLockRelease(&set->mutex);
	*setp = set;
	return group;
}

/* An irregular group stays where it is as long as the lane is locked. */
static FairqGroup *
find_irregular(FairqLane *lane, int32 group_no)
{
	FairqGroupSet *set;
	FairqGroup *group;

	if (lane->nirregular == 0)
		return NULL;
	group = lock_group(lane, group_no, false, &set);
	if (group == NULL)
		return NULL;
	SpinLockRelease(&set->mutex);
	return group->irregular ? group : NULL;
}

/*
 * The list of irregular groups, in the order of their seats.
 */

/*
 * The last one whose seat is before group_no, or -1.  Service goes round, so
 * it is seldom far from the cursor.
 */
static int32
list_before(FairqLane *lane, int32 group_no)
{
	int32		at = lane->cursor >= 0 ? lane->cursor : lane->first;
	int32		next;

	while (at >= 0 && group_at(at)->group_no >= group_no)
		at = group_at(at)->prev;
	if (at < 0)
		return -1;
	while ((next = group_at(at)->next) >= 0 &&
		   group_at(next)->group_no < group_no)
		at = next;
	return at;
}

static void
list_insert(FairqLane *lane, FairqGroup *group)
{
	int32		self = index_of(group);

	group->prev = list_before(lane, group->group_no);
	if (group->prev >= 0)
	{
		group->next = group_at(group->prev)->next;
		group_at(group->prev)->next = self;
	}
	else
	{
		group->next = lane->first;
		lane->first = self;
	}
	if (group->next >= 0)
		group_at(group->next)->prev = self;
	lane->cursor = self;
	lane->nirregular++;
}

static void
list_remove(FairqLane *lane, FairqGroup *group)
{
	if (lane->cursor == index_of(group))
		lane->cursor = group->prev;
	if (group->prev >= 0)
		group_at(group->prev)->next = group->next;
	else
		lane->first = group->next;
	if (group->next >= 0)
		group_at(group->next)->prev = group->prev;
	lane->nirregular--;
}

static void
become_regular(FairqLane *lane, FairqGroup *group)
{
	FairqGroupSet *set = set_of(group->lane_no, group->group_no);

	list_remove(lane, group);
	SpinLockAcquire(&set->mutex);
	group->irregular = false;
	SpinLockRelease(&set->mutex);
}

static void
lower(FairqLane *lane, int64 addr)
{
	int64	   *entry = &lane->ring[lane->epoch % FAIRQ_RING];

	*entry = Min(*entry, addr);
	lane->mark = Min(lane->mark, addr);
}

/*
 * Call a group irregular, at least while its turns are not past until.  If its
 * set has no room for that, the mark is lowered instead, for a pop to try
 * again.
 */
static bool
become_irregular(FairqLane *lane, int32 group_no, int64 from, int64 until,
				 bool gap)
{
	FairqGroupSet *set;
	FairqGroup *group = lock_group(lane, group_no, true, &set);
	bool		was_irregular;

	if (group == NULL)
	{
		lower(lane, from);
		return false;
	}
	was_irregular = group->irregular;
	group->irregular = true;
	SpinLockRelease(&set->mutex);

	group->gap |= gap;
	group->until = Max(group->until, until);
	group->version++;
	if (was_irregular)
	{
		group->from = Min(group->from, from);
		return true;
	}

	/*
	 * From now on its rows are passed over by all pops.  Those that stood in
	 * order until now are not below the mark.
	 */
	group->from = Min(from, lane->mark);
	group->taken = FAIRQ_ADDR_NONE;
	group->left = 0;
	list_insert(lane, group);
	return true;
}

/* --------------------------------------------------------------------- */

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
	if (lane->ring[lane->epoch % FAIRQ_RING] != FAIRQ_ADDR_MAX)
	{
		lane->epoch++;
		lane->ring[lane->epoch % FAIRQ_RING] = FAIRQ_ADDR_MAX;
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
 * the window of that length that ends at the median takes in most of them,
 * and pos goes just below it.  Whoever is outside is irregular.  Whether there
 * are holes behind a group's first task is found out when that is served, up
 * to the highest address (see serve.c).  If it is not
 * sure that nothing changed since it was read, the mark goes to the very start.
 */
void
fairq_lane_publish(FairqLane *lane, uint64 resets, uint64 epoch,
				   bool sure, const FairqHead *heads, int64 nheads,
				   int64 highest, int64 block_length)
{
	int64		low = FAIRQ_ADDR_MAX;

	for (int64 i = 0; i < nheads; i++)
	{
		int64		median = heads[nheads / 2].addr;

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
	while (lane->first >= 0)
		become_regular(lane, group_at(lane->first));
	lane->cursor = -1;
	lane->lane_no = fairq_new_lane_no();
	lane->resets = resets;
	lane->pos = nheads > 0 ? low - 1 : highest;
	lane->pos_left = 0;
	lane->suspect = highest;
	lane->mark = sure ? Min(low, lowest_since(lane, epoch)) : FAIRQ_ADDR_NONE;
	for (int64 i = 0; i < nheads; i++)
	{
		bool		ahead = heads[i].addr > low &&
			heads[i].addr - low >= block_length;

		if (heads[i].addr < low || ahead)
			(void) become_irregular(lane, heads[i].group_no, heads[i].addr, highest,
									ahead);
	}
	LWLockRelease(&lane->lock);
}

/*
 * Give a group its next address.  looked_up is its tail as the table has it,
 * or NULL if that was not looked at (yet); doubtful if it may be ahead of the
 * group's turn.
 */
FairqReserved
fairq_lane_reserve(FairqLane *lane, int32 group_no, int32 weight,
				   int64 block_length, const FairqTail *looked_up,
				   bool doubtful, FairqReservation *reservation)
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
		if (!fairq_next_tail(&tail, group_no, weight, lane->pos, block_length))
			result = FAIRQ_BLOCKS_USED_UP;
		else
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
		SpinLockRelease(&set->mutex);
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
	set = set_of(group->lane_no, group->group_no);
	SpinLockAcquire(&set->mutex);
	group->pins--;
	SpinLockRelease(&set->mutex);
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
			SpinLockRelease(&set->mutex);
		}
		if (!put_back)
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
		note->nirregular = lane->nirregular;
	}
	LWLockRelease(&lane->lock);
	return known;
}

/* From the note's mark to below upto nothing was left that is ready. */
void
fairq_lane_raise(FairqLane *lane, const FairqNote *note, int64 upto)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
	{
		upto = Min(upto, lowest_since(lane, note->epoch));
		lane->mark = Max(lane->mark, upto);
	}
	LWLockRelease(&lane->lock);
}

static void
advance(FairqLane *lane, int64 addr, int32 left)
{
	if (addr == FAIRQ_ADDR_MAX || addr < lane->pos)
		return;
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
		return group->left;
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
	int32		before = list_before(lane, seat);
	int32		start = before >= 0 ? group_at(before)->next : lane->first;
	FairqGroup *best = NULL;
	int64		best_turn = FAIRQ_ADDR_MAX;

	for (int part = 0; part < 2; part++)
	{
		int32		at = part == 0 ? start : lane->first;
		int32		end = part == 0 ? -1 : start;

		for (; at != end; at = group_at(at)->next)
		{
			FairqGroup *group = group_at(at);
			int64		turn = next_turn_of(lane, group, cur, block_length);

			if (best == NULL || turn < best_turn)
			{
				best = group;
				best_turn = turn;
			}
			/* nobody further along this way can be earlier */
			if (fairq_block(turn, block_length) == block + part)
			{
				*turnp = best_turn;
				return best;
			}
		}
	}
	*turnp = best_turn;
	return best;
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
		turn->group_no = group->group_no;
		turn->from = group->from;
		turn->version = group->version;
		turn->left = left_of_turn(lane, group, turn->addr);
		if (take)
		{
			group->taken = turn->addr;
			group->left = 0;
			if (turn->addr == lane->pos)
				lane->pos_left = 0;
			lane->cursor = index_of(group);
		}
	}
	LWLockRelease(&lane->lock);
	return group != NULL;
}

/*
 * In the turn that was taken the group's tasks up to from were served, and
 * left more may be.  If one of them stood ahead of its turn, there is a hole
 * now where it stood.
 */
void
fairq_lane_turn_served(FairqLane *lane, const FairqNote *note,
					   const FairqTurn *turn, int64 from, int32 left,
					   int64 ahead)
{
	FairqGroup *group;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
	{
		advance(lane, turn->addr, 0);
		group = find_irregular(lane, turn->group_no);
		if (group != NULL)
		{
			if (group->version == turn->version)
				group->from = Max(group->from, from);
			if (group->taken == turn->addr)
				group->left = left;
			if (ahead != FAIRQ_ADDR_NONE)
			{
				group->until = Max(group->until, ahead);
				group->gap = true;
			}
		}
	}
	LWLockRelease(&lane->lock);
}

/*
 * The look at a group's turn found it regular again, or found nothing of it
 * that is ready.
 */
void
fairq_lane_settle(FairqLane *lane, const FairqNote *note,
				  const FairqTurn *turn, bool regular)
{
	FairqGroup *group = NULL;

	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->lane_no == note->lane_no)
		group = find_irregular(lane, turn->group_no);
	if (group != NULL && group->version == turn->version &&
		!(regular && group->until > turn->addr))
	{
		become_regular(lane, group);
		if (regular)
		{
			group->gap = false;
			lower(lane, turn->addr);
		}
	}
	LWLockRelease(&lane->lock);
}

/*
 * What follows is said after it is visible, from commit and abort callbacks.
 */

/* A task was given that address for its turn. */
void
fairq_lane_ready(FairqLane *lane, int32 group_no, int64 addr)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (!is_known(lane))
		lower(lane, addr);
	else if (addr <= lane->pos)
		(void) become_irregular(lane, group_no, addr, FAIRQ_ADDR_NONE, false);
	else
	{
		FairqGroupSet *set;
		FairqGroup *group = lock_group(lane, group_no, false, &set);
		bool		irregular = group != NULL && group->irregular;

		/* if its entry was evicted, nobody knows */
		bool		gap = group == NULL || group->gap ||
			group->tail == TAIL_UNKNOWN;

		if (group != NULL)
			SpinLockRelease(&set->mutex);
		if (irregular)
		{
			group->from = Min(group->from, addr);
			group->version++;
		}
		else if (gap && lane->nirregular < MAX_BY_SUSPICION)
			(void) become_irregular(lane, group_no, addr, FAIRQ_ADDR_NONE, true);
		lower(lane, addr);
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
			SpinLockRelease(&set->mutex);
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

/* Something is ready there. */
void
fairq_lane_lower(FairqLane *lane, int64 addr)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	lower(lane, addr);
	LWLockRelease(&lane->lock);
}

/* Nothing is known of the lane any more. */
void
fairq_lane_forget(FairqLane *lane)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	lower(lane, FAIRQ_ADDR_NONE);
	while (lane->first >= 0)
		become_regular(lane, group_at(lane->first));
	lane->cursor = -1;
	lane->lane_no = 0;
	LWLockRelease(&lane->lock);
}
