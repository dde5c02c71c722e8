/*
 * entry.c
 *		A cache of entries for groups in lanes.  An entry has the hand: the
 *		group's next few ready tasks.
 *
 * The cache.  Shared memory has a fixed number of entries for groups of lanes.
 * Sets of seats show which groups have tasks, even groups without an entry
 * (seats.c).  If an entry is evicted, the group's next turn costs one or a few
 * descents in the index.  The group also loses its turn in the present block
 * if a turn that yielded nothing is not given back yet.
 *
 * An entry is in one of the two group sets that its key leads to, so that the
 * sets fill up evenly.  A group set has eight ways.  A new entry takes a free
 * way.  If none is free, it takes the first of these that exists:
 *
 * - the way of a group that is idle (in no set that causes a turn);
 * - the way of a group that is not late (lane.c);
 * - any way that is not pinned.
 *
 * It is expensive to evict a late group, since the group then reads its line
 * from the start, including dead index entries.
 *
 * A new cache is initialized by marking its ways as free.  The entries, half
 * of fairq's shared memory, are written only when groups get them.
 *
 * The hand has the addresses of up to eight queued tasks and the TIDs of their
 * rows.  It is filled by
 *
 * - the transaction that makes a task ready, once its commit is visible (the
 *	 task is "published");
 * - a pop that aborts;
 * - a pop that finds the hand used up and continues to read the index.
 *
 * A hand is a hint: a pop reads the row of a task before it claims the task.
 *
 * If a group has an entry, each of its tasks that is ready and was published
 * is in one of these places:
 *
 * - in the hand;
 * - at or past the address upto, from which the next reading begins;
 * - in flight: a call has taken it and will claim it or give it back;
 * - being changed by an open transaction, which will publish it if it aborts.
 *
 * The following rules ensure this:
 *
 * - A task that falls out of a full hand lowers upto to its address.  A task
 *	 that is published at or past upto is not added, because a reading will
 *	 find it.  Only tasks below upto are served from the hand, so all are
 *	 served in the order of their addresses.
 *
 * - A reading begins at upto and takes no lock.  At its end the reader offers
 *	 its result: the tasks found go into the hand, and upto moves to where the
 *	 reading ended.  The reading may have missed tasks that were published
 *	 since it began.  So "lost" is the lowest address published since then that
 *	 is not in the hand.  An offer is accepted only up to that address.
 *
 * - Only one reader at a time may offer its result, the one whose pid is in
 *	 the entry, because "lost" belongs to its reading.  Other readers use what
 *	 they read only for themselves.  So no call waits for a reader, and no call
 *	 has to read again because a task was published.
 *
 * - A reading that did not reach the end of the line does not cover the
 *	 address at which it stopped.
 *
 * - If a task is not where a hand or a reading expects it, the row was moved
 *	 or the index entry is dead.  The rest of the hand may also be outdated.
 *	 The hand is then dropped, and upto is lowered to the lowest address in it.
 *	 The next reading reads rows, and not only index entries, because it would
 *	 otherwise find the same entries again.
 *
 * A task that is published, read or missed twice does no harm.  test/model
 * explores all interleavings of these steps, and shows for each rule what goes
 * wrong without it.
 *
 * Locking: a group set's mutex, a spinlock, protects the keys and the entries.
 * It is held for a few instructions, and taken under a lane's lock.  A backend
 * that changes a hand has both locks.  Except for copies of a lane, whose
 * entries find_own() allocates, nothing here allocates, waits or fails.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"

#include "entry.h"
#include "shadow.h"
#include "tools.h"

/*
 * Unlock a set.  From now on other backends may evict its entries.  The set is
 * NULL if the entry belongs to a copy.
 */
static void
unlock_set(FairqGroupSet *set)
{
	if (set != NULL)
		SpinLockRelease(&set->mutex);
	fairq_stall("entry");
}

/* Returns the set that an entry is in; NULL: the entry belongs to a copy. */
static FairqGroupSet *
set_with(const FairqGroup *group)
{
	Size		size = sizeof(FairqGroup) * FAIRQ_SET_WAYS * fairq_cache.nsets;

	if ((uintptr_t) group - (uintptr_t) fairq_cache.ways >= size)
		return NULL;
	return &fairq_cache.sets[(group - fairq_cache.ways) / FAIRQ_SET_WAYS];
}

/* Unlock the set of an entry. */
void
fairq_entry_unlock(const FairqGroup *group)
{
	unlock_set(set_with(group));
}

/*
 * Returns the set for a hash.  Its position among the sets is proportional to
 * the hash.
 */
static inline FairqGroupSet *
set_of(uint32 hash)
{
	return &fairq_cache.sets[((uint64) hash * fairq_cache.nsets) >> 32];
}

/* Returns the two sets that may have a group's entry. */
static void
sets_of(uint32 lane_no, int32 group_no, FairqGroupSet *sets[2])
{
	uint32		hash = hash_combine(murmurhash32(lane_no),
									murmurhash32((uint32) group_no));

	sets[0] = set_of(hash);
	sets[1] = set_of(murmurhash32(hash));
}

/* Returns the entries of a set. */
static inline FairqGroup *
ways_of(const FairqGroupSet *set)
{
	return &fairq_cache.ways[(set - fairq_cache.sets) * FAIRQ_SET_WAYS];
}

/*
 * Returns the value of an entry, for eviction: 0 if the way is free, -1 if the
 * entry must not be evicted.
 */
static int
worth_of(const FairqGroupKey *key, const FairqGroup *group)
{
	if (key->lane_no == 0)
		return 0;
	if (group->pins > 0)
		return -1;
	return group->sets.idle ? 1 : !group->sets.late ? 2 : 3;
}

/* Returns the way that a new entry gets; -1 if no entry may be evicted. */
static int
choose_victim(FairqGroupSet *set, int *worth_of_it)
{
	const FairqGroup *ways = ways_of(set);
	int			best = -1;
	int			at = set->next_victim;

	*worth_of_it = PG_INT32_MAX;
	for (int i = 0; i < FAIRQ_SET_WAYS; i++)
	{
		int			way = (at + i) % FAIRQ_SET_WAYS;
		int			it = worth_of(&set->keys[way], &ways[way]);

		if (it >= 0 && it < *worth_of_it)
		{
			best = way;
			*worth_of_it = it;
		}
	}
	return best;
}

static FairqGroup *
give_way(FairqGroupSet *set, int way, uint32 lane_no, int32 group_no)
{
	FairqGroup *group = &ways_of(set)[way];

	set->next_victim = (way + 1) % FAIRQ_SET_WAYS;
	set->keys[way].lane_no = lane_no;
	set->keys[way].group_no = group_no;
	memset(group, 0, sizeof(FairqGroup));
	group->tail.addr = FAIRQ_TAIL_UNKNOWN;
	return group;
}

/* Make an entry in the set whose victim has the lower value. */
static FairqGroup *
make_entry(uint32 lane_no, int32 group_no, FairqGroupSet *sets[2])
{
	int			worths[2];
	int			first;

	for (int i = 0; i < 2; i++)
	{
		SpinLockAcquire(&sets[i]->mutex);
		(void) choose_victim(sets[i], &worths[i]);
		unlock_set(sets[i]);
	}
	first = worths[1] < worths[0] ? 1 : 0;
	for (int i = 0; i < 2; i++)
	{
		FairqGroupSet *set = sets[(first + i) % 2];
		int			it;
		int			way;

		SpinLockAcquire(&set->mutex);
		way = choose_victim(set, &it);
		if (way >= 0)
		{
			if (it > 1)
				fairq_say_crowded();
			return give_way(set, way, lane_no, group_no);
		}
		unlock_set(set);
	}
	return NULL;
}

/* Returns the entry of a group, with its set locked; NULL: there is none. */
static FairqGroup *
find_entry(uint32 lane_no, int32 group_no, FairqGroupSet *sets[2])
{
	sets_of(lane_no, group_no, sets);
	for (int i = 0; i < 2; i++)
	{
		FairqGroupSet *set = sets[i];

		SpinLockAcquire(&set->mutex);
		for (int way = 0; way < FAIRQ_SET_WAYS; way++)
		{
			if (set->keys[way].lane_no == lane_no &&
				set->keys[way].group_no == group_no)
				return &ways_of(set)[way];
		}
		unlock_set(set);
	}
	return NULL;
}

/* An entry of a copy of a lane. */
typedef struct OwnEntry
{
	FairqGroup	group;			/* first field */
	uint32		lane_no;		/* lane_no of the lane when the entry was
								 * made */
} OwnEntry;

/*
 * Returns the entry of a group in a copy of a lane.  At first it is a copy of
 * the cache's entry.  Readers that are recorded in the real entry do not read
 * for the copy.  No other backend can see the copy's entry, so it is in no
 * set, and needs no lock.
 */
static FairqGroup *
find_own(FairqLane *copy, int32 group_no, bool create, bool *is_new)
{
	uint32		lane_no = copy->recovery.lane_no;
	OwnEntry   *own = fairq_shadow_find(copy, group_no);

	*is_new = false;
	/* nothing may be allocated at the end of a transaction */
	if (own == NULL && !create && !IsTransactionState())
		return NULL;
	if (own == NULL || own->lane_no != lane_no)
	{
		FairqGroupSet *sets[2];
		FairqGroup *group = find_entry(lane_no, group_no, sets);
		FairqGroup	made = {.tail.addr = FAIRQ_TAIL_UNKNOWN};

		if (group == NULL && !create)
			return NULL;
		*is_new = group == NULL;
		if (group != NULL)
		{
			made = *group;
			fairq_entry_unlock(group);
			made.pins = made.pid.reader = made.pid.searcher = 0;
		}
		own = fairq_shadow_part(copy, group_no, sizeof(OwnEntry));
		own->group = made;
		own->lane_no = lane_no;
	}
	return &own->group;
}

/*
 * Returns the entry of a group; NULL if there is none.  With create, the entry
 * may be new, and is then all zero except for an unknown tail.  On return its
 * set is locked, and the caller must unlock the set before any slow operation.
 * No other backend makes an entry for the same group meanwhile, because the
 * caller has the lane's lock.
 */
FairqGroup *
fairq_entry_lock(FairqLane *lane, int32 group_no, bool create, bool *is_new)
{
	FairqGroupSet *sets[2];
	FairqGroup *group;

	if (fairq_in_shadow(lane))
		return find_own(lane, group_no, create, is_new);
	*is_new = false;
	group = find_entry(lane->recovery.lane_no, group_no, sets);
	if (group != NULL || !create)
		return group;
	*is_new = true;
	return make_entry(lane->recovery.lane_no, group_no, sets);
}

/*
 * If the entry is still the group's, record in it when the claimed task had
 * become ready.  The lane need not be locked.
 */
void
fairq_entry_claimed(FairqGroup *group, uint32 lane_no, int32 group_no,
					TimestampTz since)
{
	FairqGroupSet *set = set_with(group);
	const FairqGroupKey *key = set == NULL ? NULL :
		&set->keys[(group - fairq_cache.ways) % FAIRQ_SET_WAYS];

	if (set != NULL)
		SpinLockAcquire(&set->mutex);
	if (key == NULL || (key->lane_no == lane_no && key->group_no == group_no))
		group->turn.since = since;
	unlock_set(set);
}

/* Remove one pin from an entry, which has not moved while it was pinned. */
void
fairq_entry_unpin(FairqGroup *group)
{
	SpinLockAcquire(&set_with(group)->mutex);
	group->pins--;
	fairq_entry_unlock(group);
}

/*
 * Whether a is served before b: in the order of addresses, and of ids at one
 * address.
 */
static bool
is_before(const FairqItem *a, const FairqItem *b)
{
	return a->addr != b->addr ? a->addr < b->addr :
		(int32) (a->order - b->order) < 0;
}

static bool
is_same_item(const FairqItem *a, const FairqItem *b)
{
	return a->addr == b->addr &&
		ItemPointerEquals((ItemPointer) &a->tid, (ItemPointer) &b->tid);
}

/* Record that a task was published at an address and is not in the hand. */
static void
note_lost(FairqGroup *group, int64 addr)
{
	group->lost = Min(group->lost, addr);
}

/* Move the items to the beginning of the hand, after some were taken. */
static void
close_up(FairqGroup *group)
{
	if (group->in_hand.first > 0)
		memmove(group->hand, &group->hand[group->in_hand.first],
				sizeof(FairqItem) * group->in_hand.n);
	group->in_hand.first = 0;
}

/* Put a task that was published into the hand, if it belongs there. */
static void
put_item(FairqGroup *group, const FairqItem *item)
{
	int			at = group->in_hand.n;

	if (item->addr >= group->upto)
	{
		note_lost(group, item->addr);
		return;
	}
	close_up(group);
	for (int i = 0; i < group->in_hand.n; i++)
		if (is_same_item(&group->hand[i], item))
			return;
	while (at > 0 && is_before(item, &group->hand[at - 1]))
		at--;
	if (group->in_hand.n == FAIRQ_HAND)
	{
		int64		out = at == FAIRQ_HAND ? item->addr :
			group->hand[FAIRQ_HAND - 1].addr;

		group->upto = Min(group->upto, out);
		note_lost(group, out);
		if (at == FAIRQ_HAND)
			return;
		group->in_hand.n--;
	}
	memmove(&group->hand[at + 1], &group->hand[at],
			sizeof(FairqItem) * (group->in_hand.n - at));
	group->hand[at] = *item;
	group->in_hand.n++;
}

/*
 * Add those ready tasks that belong in the hand.  There may be other tasks at
 * or past the address "more".
 */
void
fairq_hand_add(FairqGroup *group, const FairqItem *items, int n, int64 more)
{
	for (int i = 0; i < n; i++)
		put_item(group, &items[i]);
	if (more == FAIRQ_ADDR_MAX)
		return;
	while (group->in_hand.n > 0 &&
		   group->hand[group->in_hand.first +
					   group->in_hand.n - 1].addr >= more)
		group->in_hand.n--;
	group->upto = Min(group->upto, more);
	note_lost(group, more);
}

/* Take the first tasks off the hand.  Returns their number. */
int
fairq_hand_take(FairqGroup *group, int most, FairqItem *out)
{
	const FairqItem *from = &group->hand[group->in_hand.first];
	int			n = 0;

	while (n < most && n < group->in_hand.n && from[n].addr < group->upto)
	{
		out[n] = from[n];
		n++;
	}
	group->in_hand.n -= n;
	group->in_hand.first = group->in_hand.n == 0 ? 0 :
		group->in_hand.first + n;
	return n;
}

/* Drop the hand, because its task at the given address no longer exists. */
void
fairq_hand_vanished(FairqGroup *group, int64 addr)
{
	int64		low = Min(addr, fairq_hand_low(group));

	group->in_hand.n = group->in_hand.first = 0;
	group->upto = low;
	note_lost(group, low);
	group->by_row = true;
}

/*
 * Offer a reading of the caller, which has found these tasks, in order, and
 * no other task up to end.  The first ones go to the caller at once, and the
 * next ones go into the hand.  Returns the number of tasks that the caller
 * got.
 */
int
fairq_hand_offer(FairqGroup *group, const FairqItem *found, int nfound,
				 int64 end, int most, FairqItem *out)
{
	FairqItem	old[FAIRQ_HAND];
	int			nold = group->in_hand.n;
	int			o = 0;
	int			f = 0;
	int			n = 0;

	memcpy(old, &group->hand[group->in_hand.first], sizeof(FairqItem) * nold);
	group->in_hand.n = group->in_hand.first = 0;
	group->pid.reader = 0;
	group->by_row = false;
	group->upto = Min(end, group->lost);
	group->lost = FAIRQ_ADDR_MAX;
	while (o < nold || f < nfound)
	{
		const FairqItem *next;

		if (o < nold && f < nfound && is_same_item(&old[o], &found[f]))
		{
			next = &old[o++];
			f++;
		}
		else if (f == nfound || (o < nold && is_before(&old[o], &found[f])))
			next = &old[o++];
		else
			next = &found[f++];
		if (next->addr >= group->upto)
			break;
		if (n < most)
			out[n++] = *next;
		else if (group->in_hand.n < FAIRQ_HAND)
			group->hand[group->in_hand.n++] = *next;
		else
		{
			group->upto = next->addr;
			break;
		}
	}
	return n;
}
