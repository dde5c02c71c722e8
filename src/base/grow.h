/*
 * grow.h
 *		Arrays that grow with what a backend notes in them.
 */
#ifndef FAIRQ_GROW_H
#define FAIRQ_GROW_H

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

#endif							/* FAIRQ_GROW_H */
