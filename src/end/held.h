/*
 * held.h
 *		The changes that the end of a transaction makes in counters of running
 *		tasks.
 */
#ifndef FAIRQ_HELD_H
#define FAIRQ_HELD_H

#include "hints.h"

/* The tenant in which slots are held. */
typedef struct FairqTenantSlots
{
	int32		no;				/* number of the tenant */
	FairqCounter *counter;		/* its counter, pinned; NULL: there is no
								 * tenant */
} FairqTenantSlots;

extern void fairq_held_room(bool counted);
extern void fairq_held_note(FairqHints *hints, int32 group_no,
							FairqCounter *counter, FairqTenantSlots tenant,
							int32 slots, int32 running);
extern void fairq_held_uncounted(FairqHints *hints);
extern int32 fairq_held_running(FairqHints *hints, int32 group_no);
extern void fairq_held_sub_committed(SubTransactionId sub,
									 SubTransactionId parent);
extern void fairq_held_end(SubTransactionId sub, bool committed);

#endif							/* FAIRQ_HELD_H */
