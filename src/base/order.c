/*
 * order.c
 *		An ordered set of groups of a lane.
 *
 * The set is a treap (Seidel, Aragon 1996): a binary search tree by rank, in
 * which no node has a higher priority than its parent.  Priorities are hashes
 * of the seats.  So the tree is that of a random order of insertion, and to
 * add, to remove and to find take O(log n) steps on average.  A node is part
 * of its group's record, and nodes are linked by seats.  So nothing is
 * allocated for a change, and a set can have as many groups as the queue.
 *
 * Additions are numbered, and each node has a number that none of its subtree
 * exceeds.  So groups that were added recently are found without a look at
 * others.  Removals do not change that number.
 *
 * Records are kept in chunks by seat (chunks.c).  They are zero at first, and
 * keep what they say while their group is not in the set.  Those of a copy
 * (shadow.c) are there as they are asked for: a set has more of them than a
 * copy has groups.
 *
 * Locking: the lane's lock, exclusive for changes and shared for reading.
 * fairq_order_have() makes a record in advance.  All other functions here do
 * not allocate, wait or fail.
 */
#include "postgres.h"

#include <math.h>

#include "common/hashfn.h"

#include "order.h"
#include "shadow.h"

/* units of FairqAmount.part in a whole */
#define PARTS 4294967296.0

/* Returns a number as an amount, rounded down; above 0 it is not 0. */
FairqAmount
fairq_amount(double value)
{
	double		whole = floor(value);
	FairqAmount amount = {
		.whole = (int64) whole,
		.part = (uint32) ((value - whole) * PARTS)
	};

	if (value > 0 && amount.whole == 0 && amount.part == 0)
		amount.part = 1;
	return amount;
}

double
fairq_amount_value(FairqAmount amount)
{
	return (double) amount.whole + amount.part / PARTS;
}

/* An empty set, with no records so far, each of which is to have that size. */
void
fairq_order_init(FairqOrder *order, Size size)
{
	order->root = FAIRQ_NO_NODE;
	order->n = 0;
	order->added = 0;
	order->size = MAXALIGN(size);
	fairq_chunks_init(&order->records);
}

/* Make sure that there is a record of a seat. */
void
fairq_order_have(FairqOrder *order, int32 seat)
{
	int			chunk = fairq_chunk_of(seat);

	while (!fairq_in_shadow(order) &&
		   fairq_chunk_at(&order->records, chunk) == NULL)
		fairq_chunk_make(&order->records, chunk,
						 fairq_chunk_seats(chunk) * order->size, NULL);
}

/* Returns the record of a seat; in a copy it is made at the first use. */
void *
fairq_order_own_record(FairqOrder *order, int32 seat)
{
	bool		is_new;

	return fairq_in_shadow(order) ?
		fairq_shadow_part(order, seat, order->size, &is_new) : NULL;
}

/* Whether the node of one seat is above that of the other in a tree. */
static inline bool
is_above(int32 seat, int32 other)
{
	uint32		a = murmurhash32((uint32) seat);
	uint32		b = murmurhash32((uint32) other);

	return a != b ? a > b : seat > other;
}

/* Add a group, whose record has its rank, and which is not in the set. */
void
fairq_order_add(FairqOrder *order, int32 seat)
{
	FairqNode  *node = fairq_order_record(order, seat);
	int32	   *link = &order->root;
	int32	   *low = &node->left;
	int32	   *high = &node->right;
	int32		at;

	node->added = node->latest = ++order->added;
	while (*link != FAIRQ_NO_NODE && is_above(*link, seat))
	{
		FairqNode  *above = fairq_order_record(order, *link);

		above->latest = order->added;
		link = fairq_rank_compare(&node->rank, &above->rank) < 0 ?
			&above->left : &above->right;
	}
	at = *link;
	*link = seat;

	/* the subtree at this place is split into lower and higher ranks */
	while (at != FAIRQ_NO_NODE)
	{
		FairqNode  *below = fairq_order_record(order, at);

		if (fairq_rank_compare(&below->rank, &node->rank) < 0)
		{
			*low = at;
			low = &below->right;
			at = below->right;
		}
		else
		{
			*high = at;
			high = &below->left;
			at = below->left;
		}
	}
	*low = *high = FAIRQ_NO_NODE;
	order->n++;
}

/* Remove a group, which is in the set. */
void
fairq_order_remove(FairqOrder *order, int32 seat)
{
	FairqNode  *node = fairq_order_record(order, seat);
	int32	   *link = &order->root;
	int32		low = node->left;
	int32		high = node->right;

	while (*link != seat)
	{
		FairqNode  *above = fairq_order_record(order, *link);

		link = fairq_rank_compare(&node->rank, &above->rank) < 0 ?
			&above->left : &above->right;
		Assert(*link != FAIRQ_NO_NODE);
	}

	/* its subtrees are merged, and take its place */
	while (low != FAIRQ_NO_NODE && high != FAIRQ_NO_NODE)
	{
		FairqNode  *lower = fairq_order_record(order, low);
		FairqNode  *higher = fairq_order_record(order, high);
		uint64		latest = Max(lower->latest, higher->latest);

		if (is_above(low, high))
		{
			lower->latest = latest;
			*link = low;
			link = &lower->right;
			low = *link;
		}
		else
		{
			higher->latest = latest;
			*link = high;
			link = &higher->left;
			high = *link;
		}
	}
	*link = low != FAIRQ_NO_NODE ? low : high;
	order->n--;
}

/* Empty the set; records stay as they are. */
void
fairq_order_clear(FairqOrder *order)
{
	order->root = FAIRQ_NO_NODE;
	order->n = 0;
}

/* The first group in order; FAIRQ_NO_NODE: none. */
int32
fairq_order_first(FairqOrder *order)
{
	int32		first = FAIRQ_NO_NODE;

	for (int32 at = order->root; at != FAIRQ_NO_NODE;)
	{
		FairqNode  *node = fairq_order_record(order, at);

		first = at;
		at = node->left;
	}
	return first;
}

/* The group next to that rank, behind it or before it; FAIRQ_NO_NODE: none. */
static inline int32
next_to(FairqOrder *order, const FairqRank *rank, bool behind)
{
	int32		at = order->root;
	int32		found = FAIRQ_NO_NODE;

	while (at != FAIRQ_NO_NODE)
	{
		FairqNode  *node = fairq_order_record(order, at);
		int			compared = fairq_rank_compare(&node->rank, rank);
		bool		beyond = behind ? compared > 0 : compared < 0;

		if (beyond)
			found = at;
		/* nodes nearer to the rank are on its side of the node */
		at = beyond == behind ? node->left : node->right;
	}
	return found;
}

/* The first group behind that rank; FAIRQ_NO_NODE: none. */
int32
fairq_order_after(FairqOrder *order, const FairqRank *rank)
{
	return next_to(order, rank, true);
}

/* The first group of a subtree behind that rank that was added since. */
static int32
added_after(FairqOrder *order, int32 at, const FairqRank *rank, uint64 since)
{
	while (at != FAIRQ_NO_NODE)
	{
		FairqNode  *node = fairq_order_record(order, at);

		if (node->latest <= since)
			return FAIRQ_NO_NODE;
		if (fairq_rank_compare(&node->rank, rank) > 0)
		{
			/* the stack is at most as deep as the tree */
			int32		lower = added_after(order, node->left, rank, since);

			if (lower != FAIRQ_NO_NODE)
				return lower;
			if (node->added > since)
				return at;
		}
		at = node->right;
	}
	return FAIRQ_NO_NODE;
}

/*
 * The first group behind that rank of those that were added after that number;
 * FAIRQ_NO_NODE: none.
 */
int32
fairq_order_added_after(FairqOrder *order, const FairqRank *rank, uint64 since)
{

	return added_after(order, order->root, rank, since);
}

/* The last group before that rank; FAIRQ_NO_NODE: none. */
int32
fairq_order_before(FairqOrder *order, const FairqRank *rank)
{
	return next_to(order, rank, false);
}
