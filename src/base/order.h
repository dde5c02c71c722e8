/*
 * order.h
 *		Ordered sets of groups of a lane, and the records of groups.
 */
#ifndef FAIRQ_ORDER_H
#define FAIRQ_ORDER_H

#include "shmem.h"

/*
 * An amount, exact to 2^-32, so that a sum does not depend on the order of its
 * terms: whole + part / 2^32.
 */
typedef struct FairqAmount
{
	int64		whole;			/* the amount, rounded down */
	uint32		part;			/* the rest, in units of 2^-32 */
} FairqAmount;

/* number of units of "part" in one whole */
#define FAIRQ_PARTS 4294967296.0

/* The rank of a group.  The group with the least rank is first. */
typedef struct FairqRank
{
	int32		level;			/* compared first */
	FairqAmount amount;			/* compared if the levels are equal */
	uint64		tie;			/* compared if level and amount are equal; no
								 * two groups have the same tie */
} FairqRank;

/* Node of a tree; the first field of each record. */
typedef struct FairqNode
{
	FairqRank	rank;			/* constant while the group is in a set */
	int32		left;			/* seat of the root of the subtree of lower
								 * ranks; FAIRQ_NO_NODE: none */
	int32		right;			/* seat of the root of the subtree of higher
								 * ranks */
	uint64		added;			/* "added" of the FairqOrder when the group was
								 * added */
	uint64		latest;			/* upper bound of "added" in the nodes of the
								 * subtree, including this one */
} FairqNode;

/* no seat */
#define FAIRQ_NO_NODE (-1)

/*
 * The records of a lane's groups, in shared memory.  Finding a record needs no
 * lock.
 */
typedef struct FairqRecords
{
	int32		size;			/* bytes of a record; constant */
	FairqChunks chunks;			/* a record for each seat */
} FairqRecords;

/* An ordered set, in shared memory, under the lane's lock. */
typedef struct FairqOrder
{
	int32		root;			/* seat of the tree's root; FAIRQ_NO_NODE: the
								 * set is empty */
	int32		n;				/* number of groups in the set */
	uint64		added;			/* number of times that a group was added */
} FairqOrder;

/* Initialize records of the given size, of which none exists yet. */
static inline void
fairq_records_init(FairqRecords *records, Size size)
{
	records->size = MAXALIGN(size);
	fairq_chunks_init(&records->chunks);
}

/* Make the set empty; records stay as they are. */
static inline void
fairq_order_init(FairqOrder *order)
{
	order->root = FAIRQ_NO_NODE;
	order->n = 0;
	order->added = 0;
}

static inline double
fairq_amount_value(FairqAmount amount)
{
	return (double) amount.whole + amount.part / FAIRQ_PARTS;
}

/* The sum of two amounts. */
static inline FairqAmount
fairq_amount_add(FairqAmount a, FairqAmount b)
{
	uint64		part = (uint64) a.part + b.part;

	return (FairqAmount)
	{
		.whole = a.whole + b.whole + (int64) (part >> 32),
			.part = (uint32) part
	};
}

/* The difference of two amounts. */
static inline FairqAmount
fairq_amount_subtract(FairqAmount a, FairqAmount b)
{
	return (FairqAmount)
	{
		.whole = a.whole - b.whole - (a.part < b.part ? 1 : 0),
			.part = a.part - b.part
	};
}

/* Returns a number below 0 if a is less than b, and 0 if they are equal. */
static inline int
fairq_amount_compare(FairqAmount a, FairqAmount b)
{
	if (a.whole != b.whole)
		return a.whole < b.whole ? -1 : 1;
	return a.part < b.part ? -1 : a.part > b.part;
}

/* Returns a number below 0 if a comes before b. */
static inline int
fairq_rank_compare(const FairqRank *a, const FairqRank *b)
{
	int			order;

	if (a->level != b->level)
		return a->level < b->level ? -1 : 1;
	order = fairq_amount_compare(a->amount, b->amount);
	if (order != 0)
		return order;
	return a->tie < b->tie ? -1 : a->tie > b->tie;
}

extern void *fairq_own_record(FairqRecords *records, int32 seat);

/* The record of a seat; NULL: there is none. */
static inline void *
fairq_record(FairqRecords *records, int32 seat)
{
	int			chunk = fairq_chunk_of(seat);
	char	   *first = fairq_chunk_at(&records->chunks, chunk);

	return first == NULL ? fairq_own_record(records, seat) :
		first + (seat - fairq_chunk_first(chunk)) * records->size;
}

extern FairqAmount fairq_amount(double value);
extern void fairq_record_have(FairqRecords *records, int32 seat);
extern void fairq_order_add(FairqOrder *order, FairqRecords *records,
							int32 seat);
extern void fairq_order_remove(FairqOrder *order, FairqRecords *records,
							   int32 seat);
extern int32 fairq_order_first(const FairqOrder *order, FairqRecords *records);
extern int32 fairq_order_next_to(const FairqOrder *order,
								 FairqRecords *records, const FairqRank *rank,
								 bool behind);
extern int32 fairq_order_added_after(FairqRecords *records, int32 at,
									 const FairqRank *rank, uint64 since);

#endif							/* FAIRQ_ORDER_H */
