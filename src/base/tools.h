/*
 * tools.h
 *		SQLSTATEs, arrays and hash tables that grow, and stalls for tests.
 */
#ifndef FAIRQ_TOOLS_H
#define FAIRQ_TOOLS_H

#include "fmgr.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* SQLSTATEs of class QF */
#define FAIRQ_SQLSTATE(n) MAKE_SQLSTATE('Q', 'F', '0', '0', (n))

#define ERRCODE_FAIRQ_NO_QUEUE			FAIRQ_SQLSTATE('1')
#define ERRCODE_FAIRQ_QUEUE_EXISTS		FAIRQ_SQLSTATE('2')
#define ERRCODE_FAIRQ_OUT_OF_RANGE		FAIRQ_SQLSTATE('3')
#define ERRCODE_FAIRQ_QUEUE_NOT_EMPTY	FAIRQ_SQLSTATE('4')
#define ERRCODE_FAIRQ_GROUPS_USED_UP	FAIRQ_SQLSTATE('5')
#define ERRCODE_FAIRQ_BLOCKS_USED_UP	FAIRQ_SQLSTATE('6')
#define ERRCODE_FAIRQ_NO_GROUP			FAIRQ_SQLSTATE('7')
#define ERRCODE_FAIRQ_OTHER_SHARD		FAIRQ_SQLSTATE('8')
#define ERRCODE_FAIRQ_NO_BATCH			FAIRQ_SQLSTATE('9')
#define ERRCODE_FAIRQ_NO_TASK			FAIRQ_SQLSTATE('A')

/*
 * Returns a larger array of entries of the given size, or the first one if
 * array is NULL.  Sets *most to the new number of entries: twice the old
 * number, or "first" for the first array.
 */
static inline void *
fairq_grow(MemoryContext context, void *array, int *most, int first,
		   Size entry)
{
	int			n = *most == 0 ? first : *most * 2;

	array = array == NULL ? MemoryContextAllocHuge(context, entry * n) :
		repalloc_huge(array, entry * n);
	*most = n;
	return array;
}

/*
 * Returns a new hash table in the given context.  Its entries begin with a key
 * of plain bytes.
 */
static inline HTAB *
fairq_hash(MemoryContext context, const char *name, Size key, Size entry)
{
	HASHCTL		ctl = {.keysize = key,.entrysize = entry,.hcxt = context};

	return hash_create(name, 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* For qsort(). */
static inline int
fairq_compare_uint32(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* --------------------------------------------------------------------- */

/*
 * For tests: a point at which a backend can be stopped.
 *
 * In a build with -DFAIRQ_STALL, a test gives a kind and a number n
 * (test/stall.h).  The backend waits at the n-th point of that kind until the
 * test releases it.  There are these kinds:
 *
 * - clock: once a call has read the clock, and before its search
 *	 (test/held_up).
 * - entry: after a search of the cache, under the lane's lock.  Between any
 *	 two of these points, other backends work in other lanes (test/evict).
 * - claim: between the choice of a row and its change, without a lock
 *	 (test/held_up, test/evict).
 * - reading: in the middle of reading a group (test/held_up, test/evict).
 * - commit: between the moment at which a commit is visible and its pending
 *	 changes (test/held_up).
 * - publish: in the middle of a commit's changes, once a group's changes are
 *	 visible (test/held_up).
 * - tenant: once a call has read a group's tenant, and before it records the
 *	 tenant (test/held_up).
 * - search: before a search for due tasks reads the index, and once it has,
 *	 before it raises the timers (test/held_up).
 * - load: once its pages are read, and after each group and queue that it has
 *	 published (test/held_up, test/evict).
 *
 * Tests use these points through test/stall.py.  The points of one kind are in
 * one file, which counts them.  In other builds these points do nothing.
 */
#ifdef FAIRQ_STALL
#include "../../test/stall.h"
#else

static inline void
fairq_stall(const char *kind)
{
}

#endif

#endif							/* FAIRQ_TOOLS_H */
