/*
 * visits.h
 *		The groups that a call does not visit again.
 */
#ifndef FAIRQ_VISITS_H
#define FAIRQ_VISITS_H

#include "order.h"

/* A call's visits of a group. */
typedef struct FairqVisit
{
	int32		group_no;		/* the group's number; hash key */
	int32		left;			/* turns that the group may still have in the
								 * call */
	char		status;			/* for the hash table */
} FairqVisit;

/* Groups that a call has visited in a lane, by hash. */
typedef struct FairqVisits
{
	struct visited_hash *table; /* the hash table; NULL: none yet */
	uint32		n;				/* number of groups */

	/* up to where the call passes over all groups of the lane's order */
	struct
	{
		uint32		lane_no;	/* lane_no of the lane with that order */
		uint64		added;		/* number of times that a group had been added
								 * to the order */
		int			n;			/* number of levels in upto */
		int			max;		/* number of levels that there is room for */
		bool		full;		/* true: there was no room for another level */
		FairqRank  *upto;		/* rank of the last group passed over, of each
								 * level, in order; NULL: no room yet */
	}			passed;

	int64		looked;			/* number of groups of the order that the call
								 * has examined */
} FairqVisits;

extern void fairq_visits_init(FairqVisits *visits);
extern void fairq_visits_in_vain(FairqVisits *visits, int32 group_no);
extern void fairq_visits_count(FairqVisits *visits, int32 group_no,
							   int64 most);
extern void fairq_visits_have_room(FairqVisits *visits);
extern const FairqRank *fairq_visits_passed(const FairqVisits *visits,
											const FairqRank *rank);
extern void fairq_visits_come_to(FairqVisits *visits, const FairqRank *rank);
extern bool fairq_visits_pass(const FairqVisits *visits, int32 group_no);

#endif							/* FAIRQ_VISITS_H */
