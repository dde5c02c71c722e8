/*
 * visits.c
 *		The groups that a call does not come by again.
 *
 * In a lane that is fair by cost a group whose turn has come to nothing stands
 * where it stood, that is, first.  So the call that has come by it passes over it
 * from then on, also when it comes back to the lane by shares; likewise over a group
 * that has had as many turns as per_group lets it have.
 *
 * Those groups stay where they stand, for other calls, and each search of the call
 * comes by them again.  So a call that passes over n groups looks n * n / 2 times: 100
 * are nothing, and 3,000 groups with locked rows take a call of 100 tasks a second.
 * To go on from the last of them would miss groups that were put before it since.
 *
 * Locking: none, it is the call's own.  Nothing is allocated before there is a
 * first such group; and fairq_visits_pass(), which is asked with the lane locked,
 * only looks.
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "visits.h"

/* slots that there are at first */
#define FIRST_SLOTS 64

void
fairq_visits_init(FairqVisits *visits)
{
	if (visits->slots != NULL)
		pfree(visits->slots);
	memset(visits, 0, sizeof(*visits));
}

/* The slot of a group, or the one where it would be put; NULL: no slots. */
static FairqVisit *
find_slot(const FairqVisits *visits, int32 group_no)
{
	uint32		at;

	if (visits->slots == NULL)
		return NULL;
	at = murmurhash32((uint32) group_no);
	for (;; at++)
	{
		FairqVisit *visit = &visits->slots[at & (visits->nslots - 1)];

		if (visit->group_no == group_no || visit->group_no < 0)
			return visit;
	}
}

/* Have twice as many slots. */
static void
grow(FairqVisits *visits)
{
	FairqVisits old = *visits;

	visits->nslots = Max(2 * old.nslots, FIRST_SLOTS);
	visits->slots = palloc_extended(sizeof(FairqVisit) * visits->nslots,
									MCXT_ALLOC_HUGE);
	for (uint32 i = 0; i < visits->nslots; i++)
		visits->slots[i].group_no = -1;
	for (uint32 i = 0; i < old.nslots; i++)
		if (old.slots[i].group_no >= 0)
			*find_slot(visits, old.slots[i].group_no) = old.slots[i];
	if (old.slots != NULL)
		pfree(old.slots);
}

/* The slot of a group, which is new if *found is false afterwards. */
static FairqVisit *
have_slot(FairqVisits *visits, int32 group_no, bool *found)
{
	FairqVisit *visit;

	if (visits->n * 2 >= visits->nslots)
		grow(visits);
	visit = find_slot(visits, group_no);
	*found = visit->group_no >= 0;
	if (!*found)
		visits->n++;
	visit->group_no = group_no;
	return visit;
}

/* Note that a turn of the group has come to nothing. */
void
fairq_visits_in_vain(FairqVisits *visits, int32 group_no)
{
	bool		found;

	have_slot(visits, group_no, &found)->left = 0;
}

/* Note that the group had a turn; it may have so many in the call. */
void
fairq_visits_count(FairqVisits *visits, int32 group_no, int64 most)
{
	bool		found;
	FairqVisit *visit = have_slot(visits, group_no, &found);

	visit->left = found ? visit->left - 1 :
		(int32) Min(most - 1, PG_INT32_MAX);
}

/* Does the call pass over the group? */
bool
fairq_visits_pass(const FairqVisits *visits, int32 group_no)
{
	const FairqVisit *visit = find_slot(visits, group_no);

	return visit != NULL && visit->group_no == group_no && visit->left <= 0;
}
