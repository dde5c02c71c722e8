/*
 * shadow.h
 *		This backend's private copy of a queue's state in shared memory.
 */
#ifndef FAIRQ_SHADOW_H
#define FAIRQ_SHADOW_H

/* The current copy; size is 0 if there is none. */
typedef struct FairqShadow
{
	char	   *copy;			/* address of the copy */
	char	   *real;			/* address of the original */
	Size		size;			/* size of both */
} FairqShadow;

extern FairqShadow fairq_shadow;

extern void *fairq_shadow_begin(void *real, Size size);
extern void *fairq_shadow_alloc(Size size);
extern void *fairq_shadow_find(const void *of, int64 number);
extern void *fairq_shadow_part(const void *of, int64 number, Size size);
extern void fairq_shadow_end(void);

/* Whether an address is in the copy. */
static inline bool
fairq_in_shadow(const volatile void *at)
{
	return unlikely((uintptr_t) at - (uintptr_t) fairq_shadow.copy <
					fairq_shadow.size);
}

/*
 * Returns the original of an address in the copy; otherwise the address
 * itself.
 */
static inline void *
fairq_shadow_real(void *at)
{
	return fairq_in_shadow(at) ?
		fairq_shadow.real + ((char *) at - fairq_shadow.copy) : at;
}

/* Record a simulated claim or end of a task. */
static inline void
fairq_shadow_claim(int64 id)
{
	(void) fairq_shadow_part(NULL, id, sizeof(bool));
}

/* Whether there is a simulated claim of a task. */
static inline bool
fairq_shadow_claimed(int64 id)
{
	return unlikely(fairq_shadow.size > 0) &&
		fairq_shadow_find(NULL, id) != NULL;
}

#endif							/* FAIRQ_SHADOW_H */
