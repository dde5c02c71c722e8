/*
 * visits.h
 *		The groups that a call does not come by again.
 */
#ifndef FAIRQ_VISITS_H
#define FAIRQ_VISITS_H

/* What a call has come by of a group. */
typedef struct FairqVisit
{
	int32		group_no;		/* the group's number; -1: the slot is free */
	int32		left;			/* turns that the group may still have in the
								 * call */
} FairqVisit;

/* Groups that a call has come by in a lane, by hash. */
typedef struct FairqVisits
{
	FairqVisit *slots;			/* slots of the hash table; NULL: none so far */
	uint32		nslots;			/* number of slots, a power of 2 */
	uint32		n;				/* number of groups */
} FairqVisits;

extern void fairq_visits_init(FairqVisits *visits);
extern void fairq_visits_in_vain(FairqVisits *visits, int32 group_no);
extern void fairq_visits_count(FairqVisits *visits, int32 group_no,
							   int64 most);
extern bool fairq_visits_pass(const FairqVisits *visits, int32 group_no);

#endif							/* FAIRQ_VISITS_H */
