/*
 * shadow.c
 *		This backend's own copy of a queue's state in shared memory.
 *
 * A call that foresees a pop, and changes nothing, does the same as a pop on a
 * copy.  The hints of the queue are copied at once, with the bits of its
 * groups and the order of its lanes (copy.c).  Parts that are found by a key
 * are copied when they are first needed.  They are the entry of a group in the
 * cache (entry.c), its counter (registry_counters.c), its account
 * (lane_order.c).
 * Such parts are kept here, under their whole and a number.
 *
 * A function that is given an address sees by it whether it is in the copy
 * (fairq_in_shadow()).  So all else, locks and spinlocks too, is used there as
 * in shared memory, and no other backend knows of it.
 *
 * Rows are not copied.  Claims in thought are kept by the ids of their rows,
 * which are read as running from then on (fairq_task_read()).
 *
 * If an error ends the call, the callbacks at the end of the transaction give
 * back its turns, in the copy as anywhere.  So the copy lives until they have
 * run, in a memory context of its own.  They touch only parts that the call
 * has touched, so all parts exist by then, and nothing is allocated.
 *
 * Locking: none.
 */
#include "postgres.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "shadow.h"

/* The key of a part. */
typedef struct PartKey
{
	uint64		of;				/* address of the whole to which it belongs; 0:
								 * it is a task that was claimed */
	int64		number;			/* the group's number, or the task's id */
} PartKey;

typedef struct Part
{
	PartKey		key;			/* hash key */
	void	   *at;				/* the part; NULL for a task */
} Part;

FairqShadow fairq_shadow;

static MemoryContext context = NULL;
static HTAB *parts;

/*
 * Begin a copy of the object at real, of that size.  The caller fills it in.
 * It exists until fairq_shadow_end().
 */
void *
fairq_shadow_begin(void *real, Size size)
{
	HASHCTL		ctl = {
		.keysize = sizeof(PartKey),
		.entrysize = sizeof(Part)
	};

	fairq_shadow_end();
	context = AllocSetContextCreate(TopMemoryContext, "fairq shadow",
									ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = context;
	parts = hash_create("fairq shadow", 256, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
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
 * Returns the part with that number of an object in the copy; NULL: it does
 * not exist yet.
 */
void *
fairq_shadow_find(const void *of, int32 number)
{
	PartKey		key = {.of = (uintptr_t) of, .number = number};
	Part	   *part = hash_search(parts, &key, HASH_FIND, NULL);

	return part == NULL ? NULL : part->at;
}

/* The same, but the part is made if it does not exist; then it is zero. */
void *
fairq_shadow_part(const void *of, int32 number, Size size, bool *is_new)
{
	PartKey		key = {.of = (uintptr_t) of, .number = number};
	void	   *at = fairq_shadow_find(of, number);

	*is_new = at == NULL;
	if (*is_new)
	{
		Part	   *part;

		at = fairq_shadow_alloc(size);
		part = hash_search(parts, &key, HASH_ENTER, NULL);
		part->at = at;
	}
	return at;
}

/* Note that the task is claimed or ended, in thought. */
void
fairq_shadow_claim(int64 id)
{
	PartKey		key = {.number = id};
	Part	   *part = hash_search(parts, &key, HASH_ENTER, NULL);

	part->at = NULL;
}

bool
fairq_shadow_has_claimed(int64 id)
{
	PartKey		key = {.number = id};

	return hash_search(parts, &key, HASH_FIND, NULL) != NULL;
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
