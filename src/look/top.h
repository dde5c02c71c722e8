/*
 * top.h
 *		The first of many, in an order: each is put, and so many are kept.
 *
 * Twice as many fit.  When there are as many they are sorted, and the second half
 * goes.  So what is put costs a comparison, and as a rule no more.
 */
#ifndef FAIRQ_TOP_H
#define FAIRQ_TOP_H

typedef int (*FairqCompare) (const void *a, const void *b);

typedef struct FairqTop
{
	char	   *items;
	size_t		size;			/* size of an item */
	int			most;			/* number of items that are kept */
	int			n;				/* number of items that there are */
	bool		full;			/* true: what comes behind the last one that is
								 * kept does not come in */
	FairqCompare compare;
} FairqTop;

static inline FairqTop
fairq_top(size_t size, int most, FairqCompare compare)
{
	return (FairqTop)
	{
		.items = palloc(2 * most * size),.size = size,.most = most,
		.compare = compare
	};
}

/* Keep no more than the first ones, in their order. */
static inline void
fairq_top_cut(FairqTop *top)
{
	qsort(top->items, top->n, top->size, top->compare);
	top->full |= top->n >= top->most;
	top->n = Min(top->n, top->most);
}

static inline void
fairq_top_put(FairqTop *top, const void *item)
{
	if (top->full &&
		top->compare(item, top->items + (top->most - 1) * top->size) >= 0)
		return;
	memcpy(top->items + top->n++ * top->size, item, top->size);
	if (top->n == 2 * top->most)
		fairq_top_cut(top);
}

#endif							/* FAIRQ_TOP_H */
