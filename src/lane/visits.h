/*
 * visits.h
 *		The groups that a call does not visit again.
 */
#ifndef FAIRQ_VISITS_H
#define FAIRQ_VISITS_H

#include "order.h"

/* The ranks up to which a call passes over all groups of an order. */
typedef struct FairqPassed
{
	uint32		lane_no;		/* lane_no of the lane with that order */
	uint64		added;			/* number of groups added to the order so
								 * far */
	int			n;				/* number of levels in upto */
	int			max;			/* number of levels for which there is room */
	FairqRank  *upto;			/* rank of the last group passed over, of each
								 * level, in order; NULL: no room yet */
} FairqPassed;

/* A call's visits of a group or tenant. */
typedef struct FairqVisit
{
	int32		group_no;		/* the group's number; hash key */
	int32		left;			/* turns that the group may still have in the
								 * call; 0: the call passes over it */
	uint32		came;			/* of a tenant, the number of groups that had
								 * entered when left became 0 */
	char		status;			/* for the hash table */
	FairqPassed *groups;		/* of a tenant, the groups passed over */
} FairqVisit;

/* Groups that a call has visited in a lane, by hash. */
typedef struct FairqVisits
{
	struct visited_hash *table; /* the hash table; NULL: none yet */
	uint32		n;				/* number of groups and tenants */
	FairqPassed passed;			/* groups or tenants of the lane's order that
								 * were passed over */
	FairqPassed *full;			/* the one without room for another level;
								 * NULL: none */
	int64		looked;			/* number of groups of the order that the call
								 * has examined */
} FairqVisits;

extern void fairq_visits_init(FairqVisits *visits);
extern void fairq_visits_in_vain(FairqVisits *visits, int32 group_no,
								 int32 tenant);
extern void fairq_visits_count(FairqVisits *visits, int32 group_no,
							   int32 tenant, int64 most);
extern void fairq_visits_have_room(FairqVisits *visits);
extern const FairqRank *fairq_visits_passed(const FairqPassed *passed,
											const FairqRank *rank);
extern void fairq_visits_come_to(FairqVisits *visits, FairqPassed *passed,
								 const FairqRank *rank);
extern bool fairq_visits_pass(const FairqVisits *visits, int32 group_no,
							  uint32 came);
extern FairqPassed *fairq_visits_of_tenant(const FairqVisits *visits,
										   int32 tenant);
extern bool fairq_visits_use_up(FairqVisits *visits, int32 tenant,
								uint32 came);

#endif							/* FAIRQ_VISITS_H */
