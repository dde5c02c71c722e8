/*
 * grow.h
 *		Arrays and hash tables that grow with a backend's records.
 */
#ifndef FAIRQ_GROW_H
#define FAIRQ_GROW_H

#include "utils/hsearch.h"
#include "utils/memutils.h"

/*
 * A larger array of such entries, or the first one (NULL before).  Sets *most
 * to the new number of entries: twice the old one, or at first "first".
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
 * A hash table in that context, of entries of that size, which begin with a
 * key of plain bytes.
 */
static inline HTAB *
fairq_hash(MemoryContext context, const char *name, Size key, Size entry)
{
	HASHCTL		ctl = {.keysize = key,.entrysize = entry,.hcxt = context};

	return hash_create(name, 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

#endif							/* FAIRQ_GROW_H */
