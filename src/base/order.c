/*
 * order.c
 *		Ordered sets of groups of a lane, and the records of groups.
 *
 * A set is a treap (Seidel, Aragon 1996): a binary search tree by rank, in
 * which no node has a higher priority than its parent.  Priorities are hashes
 * of the seats.  So the tree looks as if groups had been inserted in random
 * order.  Insertion, removal and search take O(log n) steps on average.  A
 * node is part of its group's record, and nodes are linked by seats.  So
 * nothing is allocated for a change, and a set can have as many groups as the
 * queue.  A group is in at most one of the sets that share its record.
 *
 * Additions are numbered, and each node has an upper bound of the numbers in
 * its subtree.  So recently added groups are found without visiting other
 * groups.  Removals do not lower these bounds.
 *
 * Records are kept in chunks by seat (shmem.c).  They are zero at first, and
 * keep their values while their group is in no set.  A copy (shadow.c) makes
 * its records on demand, because most of the lane's groups are not in the
 * copy.
 *
 * Locking: the lane's lock, exclusive for changes and shared for reading.
 * fairq_record_have() makes a record in advance.  No other function here
 * allocates, waits or fails.
 */
#include "postgres.h"

#include <math.h>

#include "common/hashfn.h"

#include "order.h"
#include "shadow.h"

/*
 * Returns a number as an amount, rounded down; a positive number does not
 * become 0.
 */
FairqAmount
fairq_amount(double value)
{
	double		whole = floor(value);
	FairqAmount amount = {
		.whole = (int64) whole,
		.part = (uint32) ((value - whole) * FAIRQ_PARTS)
	};

	if (value > 0 && amount.whole == 0 && amount.part == 0)
		amount.part = 1;
	return amount;
}

/* Make sure that there is a record of a seat. */
void
fairq_record_have(FairqRecords *records, int32 seat)
{
	int			chunk = fairq_chunk_of(seat);

	while (!fairq_in_shadow(records) &&
		   fairq_chunk_at(&records->chunks, chunk) == NULL)
		fairq_chunk_make(&records->chunks, chunk,
						 fairq_chunk_seats(chunk) * records->size, NULL);
}

/* Returns the record of a seat; in a copy it is made at the first use. */
void *
fairq_own_record(FairqRecords *records, int32 seat)
{
	return fairq_in_shadow(records) ?
		fairq_shadow_part(records, seat, records->size) : NULL;
}

/* Whether the node of one seat is above that of the other in a tree. */
static inline bool
is_above(int32 seat, int32 other)
{
	uint32		a = murmurhash32((uint32) seat);
	uint32		b = murmurhash32((uint32) other);

	return a != b ? a > b : seat > other;
}

/* Add a group that is not in the set; its record has its rank. */
void
fairq_order_add(FairqOrder *order, FairqRecords *records, int32 seat)
{
	FairqNode  *node = fairq_record(records, seat);
	int32	   *link = &order->root;
	int32	   *low = &node->left;
	int32	   *high = &node->right;
	int32		at;

	order->n++;
	node->added = node->latest = ++order->added;
	while (*link != FAIRQ_NO_NODE && is_above(*link, seat))
	{
		FairqNode  *above = fairq_record(records, *link);

		above->latest = order->added;
		link = fairq_rank_compare(&node->rank, &above->rank) < 0 ?
			&above->left : &above->right;
	}
	at = *link;
	*link = seat;

	/* split the subtree at this place into lower and higher ranks */
	while (at != FAIRQ_NO_NODE)
	{
		FairqNode  *below = fairq_record(records, at);

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
}

/* Remove a group, which is in the set. */
void
fairq_order_remove(FairqOrder *order, FairqRecords *records, int32 seat)
{
	FairqNode  *node = fairq_record(records, seat);
	int32	   *link = &order->root;
	int32		low = node->left;
	int32		high = node->right;

	while (*link != seat)
	{
		FairqNode  *above = fairq_record(records, *link);

		link = fairq_rank_compare(&node->rank, &above->rank) < 0 ?
			&above->left : &above->right;
		Assert(*link != FAIRQ_NO_NODE);
	}

	/* the node's merged subtrees take its place */
	while (low != FAIRQ_NO_NODE && high != FAIRQ_NO_NODE)
	{
		FairqNode  *lower = fairq_record(records, low);
		FairqNode  *higher = fairq_record(records, high);
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

/* The first group in order; FAIRQ_NO_NODE: none. */
int32
fairq_order_first(const FairqOrder *order, FairqRecords *records)
{
	int32		first = FAIRQ_NO_NODE;

	for (int32 at = order->root; at != FAIRQ_NO_NODE;)
	{
		FairqNode  *node = fairq_record(records, at);

		first = at;
		at = node->left;
	}
	return first;
}

/*
 * The group next to a rank: the first one behind it, or the last one before
 * it; FAIRQ_NO_NODE: none.
 */
int32
fairq_order_next_to(const FairqOrder *order, FairqRecords *records,
					const FairqRank *rank, bool behind)
{
	int32		at = order->root;
	int32		found = FAIRQ_NO_NODE;

	while (at != FAIRQ_NO_NODE)
	{
		FairqNode  *node = fairq_record(records, at);
		int			compared = fairq_rank_compare(&node->rank, rank);
		bool		beyond = behind ? compared > 0 : compared < 0;

		if (beyond)
			found = at;
		/* any node that is nearer to the rank is in this subtree */
		at = beyond == behind ? node->left : node->right;
	}
	return found;
}

/*
 * The first group of a subtree that is behind a rank and whose "added" is
 * above the given number; FAIRQ_NO_NODE: none.
 */
int32
fairq_order_added_after(FairqRecords *records, int32 at, const FairqRank *rank,
						uint64 since)
{
	while (at != FAIRQ_NO_NODE)
	{
		FairqNode  *node = fairq_record(records, at);

		if (node->latest <= since)
			return FAIRQ_NO_NODE;
		if (fairq_rank_compare(&node->rank, rank) > 0)
		{
			/* the stack is at most as deep as the tree */
			int32		lower = fairq_order_added_after(records, node->left,
														rank, since);

			if (lower != FAIRQ_NO_NODE)
				return lower;
			if (node->added > since)
				return at;
		}
		at = node->right;
	}
	return FAIRQ_NO_NODE;
}
