/*
 * visits.c
 *		The groups that a call does not visit again.
 *
 * In a cost-fair lane a group whose turn has yielded nothing keeps its place,
 * the first one.  So the call passes over the group from then on, also when
 * shares bring it back to the lane.  It also passes over a group that has had
 * as many turns as per_group allows.
 *
 * Those groups keep their places for other calls.  The call notes up to which
 * rank it passes over all groups, for each level of the order, and its next
 * search continues there.  If a group is added below that rank, the note is
 * taken back (lane_order.c).  So a call that passes over n groups examines
 * about n.
 *
 * Locking: none, it is the call's own.  Nothing is allocated before there is a
 * first such group.  fairq_visits_pass() is called with the lane locked, and
 * allocates nothing.
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "visits.h"

/* initial room for groups, and for levels */
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

/* Returns the call's visit of a group, a new one if *found is set to false. */
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

/* Note that a turn of the group has yielded nothing. */
void
fairq_visits_in_vain(FairqVisits *visits, int32 group_no)
{
	bool		found;

	have_visit(visits, group_no, &found)->left = 0;
	fairq_visits_have_room(visits);
}

/* Note that the group had a turn; it may have "most" turns in the call. */
void
fairq_visits_count(FairqVisits *visits, int32 group_no, int64 most)
{
	bool		found;
	FairqVisit *visit = have_visit(visits, group_no, &found);

	visit->left = found ? visit->left - 1 :
		(int32) Min(most - 1, PG_INT32_MAX);
}

/*
 * Make room for more levels, if there was none.  Without it a search that must
 * continue makes no progress.
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

/* Returns the index of the first noted level that is not below that one. */
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
 * Returns the rank up to which the call passes over all groups of the level.
 * NULL: that is below this rank.
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
		/* we cannot allocate, since the lane is locked */
		visits->passed.full |= visits->passed.n == visits->passed.max;
		if (visits->passed.full)
			return;
		memmove(upto + 1, upto, sizeof(FairqRank) * (visits->passed.n++ - i));
	}
	*upto = *rank;
}

/* Whether the call passes over the group. */
bool
fairq_visits_pass(const FairqVisits *visits, int32 group_no)
{
	const FairqVisit *visit = visits->table == NULL ? NULL :
		visited_lookup(visits->table, group_no);

	return visit != NULL && visit->left <= 0;
}
