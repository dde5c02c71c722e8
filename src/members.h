/*
 * members.h
 *		Members of a set of a lane's groups, copied some at a time.
 */
#ifndef FAIRQ_MEMBERS_H
#define FAIRQ_MEMBERS_H

#include "lane_view.h"

/* members that are copied at a time */
#define FAIRQ_MEMBERS 32

/* Members of a set, in the order of their seats. */
typedef struct FairqMembers
{
	FairqLane  *lane;			/* lane of the groups */
	FairqSeatSet set;			/* set that is copied */
	TimestampTz lapsed_by;		/* time by which a lease may have ended, of the
								 * leased ones */
	bool		used;			/* true: the members count; false: the set is
								 * taken for empty */
	uint32		mapped;			/* number of chunks that the backend has
								 * mapped */
	int64		next;			/* seat at which the next copy begins;
								 * FAIRQ_ALL_SEATS: there are no others */
	int			n;				/* number of copies */
	int			at;				/* index of the present one */
	FairqSeatCopy copies[FAIRQ_MEMBERS];	/* copies of some members */
} FairqMembers;

extern void fairq_members_init(FairqMembers *members, FairqLane *lane,
							   FairqSeatSet set, TimestampTz lapsed_by,
							   bool used);
extern void fairq_members_rewind(FairqMembers *members);
extern const FairqSeatCopy *fairq_members_next(FairqMembers *members,
											   int64 from);

#endif							/* FAIRQ_MEMBERS_H */
