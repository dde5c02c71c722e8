/*
 * visits.c
 *		The groups that a call does not come by again.
 *
 * In a lane that is fair by cost a group whose turn has come to nothing stands
 * where it stood, that is, first.  So the call that has come by it passes over it
 * from then on, also when it comes back to the lane by shares; likewise over a group
 * that has had as many turns as per_group lets it have.
 *
 * Those groups stay where they stand, for other calls.  So that no search of the
 * call comes by them again, it notes up to which rank it passes over all groups, of
 * each level of the order.  The next search goes on from there.  Groups that were
 * added before that since take it back (lane_order.c).  So a
 * call that passes over n groups looks at about n.
 *
 * Locking: none, it is the call's own.  Nothing is allocated before there is a
 * first such group; and fairq_visits_pass(), which is asked with the lane locked,
 * only looks.
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "visits.h"

/* groups, and levels, that there is room for at first */
#define FIRST_VISITS 32
#define FIRST_LEVELS 8

#define SH_PREFIX visited
#define SH_ELEMENT_TYPE FairqVisit
#define SH_KEY_TYPE int32
#define SH_KEY group_no
#define SH_HASH_KEY(table, group_no) murmurhash32((uint32) (group_no))
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

void
fairq_visits_init(FairqVisits *visits)
{
	if (visits->table != NULL)
		visited_destroy(visits->table);
	if (visits->passed.upto != NULL)
		pfree(visits->passed.upto);
	memset(visits, 0, sizeof(*visits));
}

/* What is noted of a group, which is new if *found is false afterwards. */
static FairqVisit *
have_visit(FairqVisits *visits, int32 group_no, bool *found)
{
	FairqVisit *visit;

	if (visits->table == NULL)
		visits->table = visited_create(CurrentMemoryContext, FIRST_VISITS,
									   NULL);
	visit = visited_insert(visits->table, group_no, found);
	visits->n += !*found;
	return visit;
}

/* Note that a turn of the group has come to nothing. */
void
fairq_visits_in_vain(FairqVisits *visits, int32 group_no)
{
	bool		found;

	have_visit(visits, group_no, &found)->left = 0;
	fairq_visits_have_room(visits);
}

/* Note that the group had a turn; it may have so many in the call. */
void
fairq_visits_count(FairqVisits *visits, int32 group_no, int64 most)
{
	bool		found;
	FairqVisit *visit = have_visit(visits, group_no, &found);

	visit->left = found ? visit->left - 1 :
		(int32) Min(most - 1, PG_INT32_MAX);
}

/*
 * Have room for more levels, if there was none.  A search that has to go on needs
 * that, to get any further.
 */
void
fairq_visits_have_room(FairqVisits *visits)
{
	int			max = Max(2 * visits->passed.max, FIRST_LEVELS);

	if (visits->passed.max > 0 && !visits->passed.full)
		return;
	visits->passed.upto = visits->passed.upto == NULL ?
		palloc(sizeof(FairqRank) * max) :
		repalloc(visits->passed.upto, sizeof(FairqRank) * max);
	visits->passed.max = max;
	visits->passed.full = false;
}

/* The index of the first level that is known and not below that one. */
static int
level_at(const FairqVisits *visits, int32 level)
{
	int			low = 0;
	int			high = visits->passed.n;

	while (low < high)
	{
		int			mid = (low + high) / 2;

		if (visits->passed.upto[mid].level < level)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/*
 * The rank up to which the call passes over all groups of the level that have at
 * least this one; NULL: it has not come so far.
 */
const FairqRank *
fairq_visits_passed(const FairqVisits *visits, const FairqRank *rank)
{
	int			i = level_at(visits, rank->level);
	const FairqRank *upto = &visits->passed.upto[i];

	return i < visits->passed.n && upto->level == rank->level &&
		fairq_rank_compare(rank, upto) <= 0 ? upto : NULL;
}

/* Note that the call passes over all groups of the level up to that rank. */
void
fairq_visits_come_to(FairqVisits *visits, const FairqRank *rank)
{
	int			i = level_at(visits, rank->level);
	FairqRank  *upto = &visits->passed.upto[i];

	if (i == visits->passed.n || upto->level != rank->level)
	{
		/* the lane is locked */
		visits->passed.full |= visits->passed.n == visits->passed.max;
		if (visits->passed.full)
			return;
		memmove(upto + 1, upto, sizeof(FairqRank) * (visits->passed.n++ - i));
	}
	*upto = *rank;
}

/* Does the call pass over the group? */
bool
fairq_visits_pass(const FairqVisits *visits, int32 group_no)
{
	const FairqVisit *visit = visits->table == NULL ? NULL :
		visited_lookup(visits->table, group_no);

	return visit != NULL && visit->left <= 0;
}
