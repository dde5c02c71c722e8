/*
 * foresee_order.c
 *		The order of service in lanes that are not fair by tasks, foreseen.
 *
 * What lane_order.c does in shared memory is done here on copies of accounts
 * (account.c).  Groups are copied off the ordered set as they are come by, in the
 * order of their ranks, some at a time: for each level there is a heap of the
 * copies, by rank, and a mark up to where the set was copied.  So the first group of
 * a level is the first one in the heap, if that is not behind the mark.
 *
 * A group is taken out of its heap as it is next, and put back once it was served.
 *
 * Locking: the lane's lock, shared, for some copies.
 */
#include "postgres.h"

#include "foresee_order.h"

/* accounts that are copied at a time */
#define COPIES 32

/* A group that was copied. */
typedef struct Copied
{
	int32		group_no;		/* the group's number; hash key */
	pairingheap_node node;		/* place in the heap of its level, if it is
								 * there */
	FairqMoment at;				/* present time, and whether it has lapsed */
	FairqAccount account;		/* its account, as it goes on */
} Copied;

/* A level. */
typedef struct Level
{
	int32		level;			/* the level */
	pairingheap *heap;			/* groups of that level, the least rank first */
	FairqRank	mark;			/* rank up to which the ordered set was
								 * copied */
	bool		all;			/* true: all of the level was copied */
} Level;

static int
compare_ranks(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const Copied *x = pairingheap_const_container(Copied, node, a);
	const Copied *y = pairingheap_const_container(Copied, node, b);

	/* the greatest by this comparison comes first */
	return fairq_rank_compare(&y->account.node.rank, &x->account.node.rank);
}

/* Returns a level, which is made if it is not there. */
static Level *
level_of(FairqForeseenOrder *order, int32 number)
{
	ListCell   *cell;
	Level	   *level;

	foreach(cell, order->levels)
	{
		level = lfirst(cell);
		if (level->level == number)
			return level;
	}
	level = palloc0(sizeof(Level));
	level->level = number;
	level->heap = pairingheap_allocate(compare_ranks, NULL);
	level->mark.level = number;
	level->mark.amount.whole = PG_INT64_MIN;
	order->levels = lappend(order->levels, level);
	return level;
}

static void
put_into_heap(FairqForeseenOrder *order, Copied *group)
{
	pairingheap_add(level_of(order, group->account.node.rank.level)->heap,
					&group->node);
}

/* Map chunks of accounts that were made since. */
static void
map_again(FairqForeseenOrder *order)
{
	order->mapped = fairq_order_map(&order->lane->order.set);
}

/* Copy accounts of the ordered set behind a rank.  Returns how many. */
static int
copy_behind(FairqForeseenOrder *order, const FairqRank *behind, int most,
			FairqAccountCopy *copies)
{
	int			n;

	while ((n = fairq_lane_copy_order(order->lane, order->mapped, behind, most,
									  copies)) < 0)
		map_again(order);
	return n;
}

/* Keep a copy; one that was made before is left as it is. */
static void
keep_copy(FairqForeseenOrder *order, const FairqAccountCopy *copy)
{
	bool		found;
	Copied	   *group = hash_search(order->groups, &copy->group_no, HASH_ENTER,
									&found);

	if (found)
		return;
	group->at.now = order->now;
	group->at.lapsed = copy->lapsed;
	group->account = copy->account;
	put_into_heap(order, group);
}

/* Returns the first group of a level; NULL: there is none. */
static Copied *
first_of(FairqForeseenOrder *order, Level *level)
{
	for (;;)
	{
		Copied	   *first = pairingheap_is_empty(level->heap) ? NULL :
			pairingheap_container(Copied, node,
								  pairingheap_first(level->heap));
		FairqAccountCopy copies[COPIES];
		int			n;

		if (level->all ||
			(first != NULL &&
			 fairq_rank_compare(&first->account.node.rank, &level->mark) <= 0))
			return first;
		n = copy_behind(order, &level->mark, COPIES, copies);
		level->all = n < COPIES;
		for (int i = 0; i < n; i++)
		{
			if (copies[i].account.node.rank.level > level->level)
			{
				level->all = true;
				break;
			}
			level->mark = copies[i].account.node.rank;
			keep_copy(order, &copies[i]);
		}
	}
}

/* Returns the next level above one (-1: the first) that has any group, or NULL. */
static Level *
next_level(FairqForeseenOrder *order, int32 above, Copied **first)
{
	for (;;)
	{
		FairqRank	behind = {.level = above,.amount.whole = PG_INT64_MAX};
		FairqAccountCopy copy;
		Level	   *next = NULL;
		ListCell   *cell;

		if (copy_behind(order, &behind, 1, &copy) > 0)
			next = level_of(order, copy.account.node.rank.level);
		foreach(cell, order->levels)
		{
			Level	   *level = lfirst(cell);

			if (level->level > above && (next == NULL || level->level < next->level))
				next = level;
		}
		if (next == NULL)
			return NULL;
		*first = first_of(order, next);
		if (*first != NULL)
			return next;
		above = next->level;
	}
}

/* By time: the least that one of the groups has got that wait. */
static double
find_least(FairqForeseenOrder *order)
{
	double		least = 0;
	int32		above = -1;
	Copied	   *first;
	int			n = 0;

	for (Level *level; n < FAIRQ_MOST_LEVELS &&
		 (level = next_level(order, above, &first)) != NULL; n++)
	{
		double		got = fairq_account_got(&order->ledger, &first->account,
											order->now);

		least = n == 0 ? got : Min(least, got);
		above = level->level;
	}
	return n == 0 ? fairq_amount_value(order->ledger.start) : least;
}

/* Begin: the ledger is that of the lane, or of one whose recovery is to begin. */
void
fairq_foresee_order_begin(FairqForeseenOrder *order, FairqLane *lane,
						  const FairqLedger *ledger, TimestampTz now)
{
	HASHCTL		ctl = {
		.keysize = sizeof(int32),
		.entrysize = sizeof(Copied),
		.hcxt = CurrentMemoryContext
	};

	order->lane = lane;
	order->ledger = *ledger;
	order->now = now;
	order->levels = NIL;
	order->groups = hash_create("fairq foreseen accounts", 64, &ctl,
								HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	map_again(order);
}

/* A group comes: it is in front, or will be once a pop comes by. */
void
fairq_foresee_order_comes(FairqForeseenOrder *order, int32 group_no)
{
	double		least = order->ledger.fair_by == FAIRQ_BY_TIME ?
		find_least(order) : 0;
	FairqAccountCopy copy;
	bool		found;
	Copied	   *group;

	while (!fairq_lane_copy_account(order->lane, order->mapped, group_no, &copy))
		map_again(order);
	group = hash_search(order->groups, &group_no, HASH_ENTER, &found);
	/* what it was before, if it is in the ordered set, does not count any more */
	if (found)
		pairingheap_remove(level_of(order, group->account.node.rank.level)->heap,
						   &group->node);
	group->at.now = order->now;
	group->at.lapsed = copy.lapsed;
	group->account = copy.account;
	fairq_account_comes(&order->ledger, &group->account, group_no, least,
						group->at);
	put_into_heap(order, group);
}

/* A group that has left the ring, and may be in the ordered set, comes back. */
void
fairq_foresee_order_stays(FairqForeseenOrder *order, int32 group_no)
{
	FairqAccountCopy copy;

	while (!fairq_lane_copy_account(order->lane, order->mapped, group_no, &copy))
		map_again(order);
	keep_copy(order, &copy);
}

/* Find the group that is next, and take it out.  False if there is none. */
bool
fairq_foresee_order_next(FairqForeseenOrder *order, int32 *group_no)
{
	Copied	   *best = NULL;
	Copied	   *first;
	double		best_key = 0;
	int32		above = -1;

	for (int n = 0; n < FAIRQ_MOST_LEVELS; n++)
	{
		Level	   *level = next_level(order, above, &first);
		double		key;

		if (level == NULL)
			break;
		key = fairq_account_key(&order->ledger, &first->account, order->now);
		if (best == NULL || key < best_key ||
			(key == best_key &&
			 first->account.node.rank.tie < best->account.node.rank.tie))
		{
			best = first;
			best_key = key;
		}
		/* before any task has ended, and by cost, levels alone count */
		if (order->ledger.longest == 0)
			break;
		above = level->level;
	}
	if (best == NULL)
		return false;
	pairingheap_remove(level_of(order, best->account.node.rank.level)->heap,
					   &best->node);
	*group_no = best->group_no;
	return true;
}

/* That group was served a task. */
void
fairq_foresee_order_served(FairqForeseenOrder *order, int32 group_no,
						   int32 weight, float cost)
{
	Copied	   *group = hash_search(order->groups, &group_no, HASH_FIND, NULL);
	FairqCharge charge;

	group->account.weight = weight;
	fairq_account_charge(&order->ledger, &group->account, &charge, group->at);
	if (order->ledger.fair_by == FAIRQ_BY_COST)
	{
		fairq_account_correct(&order->ledger, &group->account, &charge,
							  fairq_amount(cost / weight));
		group->account.last_cost = cost;
	}
	put_into_heap(order, group);
}
