/*
 * slots.h
 *		How many slots are left, looked at and not taken.
 */
#ifndef FAIRQ_SLOTS_H
#define FAIRQ_SLOTS_H

#include "queue.h"
#include "store.h"

/* The slots of a group, or of a queue. */
typedef struct FairqSlots
{
	int32		group_no;		/* the group's number; -1: the queue's */
	int32		limit;			/* most tasks that may run; FAIRQ_NO_LIMIT */
	FairqPace	pace;			/* how often tasks may start */
	bool		held;			/* true: none may start yet */
	bool		known;			/* true: it is known how many are running; no
								 * pop gets a slot before */
	bool		doubtful;		/* true: more may be left, if rows are
								 * counted */
	int64		taken;			/* slots taken so far, in thought */
	int64		left;			/* slots that are left; below 0: more are
								 * running than may */
	int64		starts;			/* tasks that may still start */
} FairqSlots;

extern void fairq_slots_look(FairqQueue *queue, FairqTable *tasks,
							 FairqSlots *slots);
extern bool fairq_slots_any(FairqQueue *queue, FairqTable *tasks,
							FairqSlots *slots);

static inline void
fairq_slots_take(FairqSlots *slots)
{
	slots->taken++;
	slots->left--;
	slots->starts--;
}

#endif							/* FAIRQ_SLOTS_H */
