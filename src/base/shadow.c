/*
 * shadow.c
 *		This backend's private copy of a queue's state in shared memory.
 *
 * A call that predicts a pop without changing anything runs the pop's code on
 * a copy.  The hints of the queue are copied at once, with the bits of its
 * groups and the order of its lanes (serve.c).  Parts that are found by a key
 * are copied when they are first needed.  They are the entry of a group in the
 * cache (entry.c), its counter (registry.c) and its account (lane_order.c).
 * Such parts are kept here, and are found by their object and a number.
 *
 * A function can determine from an address whether it is in the copy
 * (fairq_in_shadow()).  All other code, including locks and spinlocks, works
 * in the copy as in shared memory.  No other backend sees the copy.
 *
 * Rows are not copied.  Simulated claims are kept by task id.  After a
 * simulated claim, fairq_task_read() reads the task's row as that of a running
 * task.
 *
 * If an error ends the call, the callbacks at the end of the transaction give
 * back its turns in the copy.  So the copy lives until they have run, in a
 * memory context of its own.  The callbacks touch only parts that the call has
 * touched.  So these parts exist by then, and nothing is allocated.
 *
 * Locking: none.
 */
#include "postgres.h"

#include "shadow.h"
#include "tools.h"

/* The key of a part. */
typedef struct PartKey
{
	uint64		of;				/* address of the object to which it belongs;
								 * 0: the part is a claimed task */
	int64		number;			/* the group's number, or the task's id */
} PartKey;

typedef struct Part
{
	PartKey		key;			/* hash key */
	void	   *at;				/* the part */
} Part;

FairqShadow fairq_shadow;

static MemoryContext context = NULL;
static HTAB *parts;

/*
 * Begin a copy of the object at the address real.  The caller fills in the
 * copy.  It exists until fairq_shadow_end().
 */
void *
fairq_shadow_begin(void *real, Size size)
{
	fairq_shadow_end();
	context = AllocSetContextCreate(TopMemoryContext, "fairq shadow",
									ALLOCSET_DEFAULT_SIZES);
	parts = fairq_hash(context, "fairq shadow", sizeof(PartKey), sizeof(Part));
	fairq_shadow.copy = MemoryContextAllocZero(context, size);
	fairq_shadow.real = real;
	fairq_shadow.size = size;
	return fairq_shadow.copy;
}

/* Allocate memory for the copy, all of it zero. */
void *
fairq_shadow_alloc(Size size)
{
	return MemoryContextAllocExtended(context, size,
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/*
 * Returns a part of an object in the copy, by its number; NULL: it does not
 * exist yet.
 */
void *
fairq_shadow_find(const void *of, int64 number)
{
	PartKey		key = {.of = (uintptr_t) of, .number = number};
	Part	   *part = hash_search(parts, &key, HASH_FIND, NULL);

	return part == NULL ? NULL : part->at;
}

/*
 * Returns a part of an object in the copy.  A part that does not exist is
 * made, all zero.
 */
void *
fairq_shadow_part(const void *of, int64 number, Size size)
{
	PartKey		key = {.of = (uintptr_t) of, .number = number};
	void	   *at = fairq_shadow_find(of, number);

	/* callbacks may find a part, but must not make one */
	if (at == NULL)
	{
		at = fairq_shadow_alloc(size);
		((Part *) hash_search(parts, &key, HASH_ENTER, NULL))->at = at;
	}
	return at;
}

/* End the copy. */
void
fairq_shadow_end(void)
{
	memset(&fairq_shadow, 0, sizeof(fairq_shadow));
	if (context != NULL)
		MemoryContextDelete(context);
	context = NULL;
}
