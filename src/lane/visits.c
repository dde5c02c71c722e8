/*
 * visits.c
 *		The groups that a call does not visit again.
 *
 * In a cost-fair lane a group whose turn has yielded no task keeps the first
 * place in the order.  So the call passes over the group from then on, even if
 * shares bring the call back to the lane.  It also passes over a group that
 * has had as many turns as per_group allows.
 *
 * Those groups keep their places for other calls.  In a time-fair lane they
 * enter again (lane_order.c).  For each level of the order, the call records
 * the rank up to which it passes over all groups.  Its next search continues
 * there.  If a group is added below that rank, lane_order.c lowers the
 * recorded rank.  So a call that passes over n groups examines about n.  In a
 * queue with tenants, each tenant's order has its own ranks.
 *
 * Locking: none, because the data belongs to one call.  Memory is allocated
 * only if there is such a group.  fairq_visits_pass() is called with the lane
 * locked, and allocates nothing.
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "tools.h"
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

/* Make room for more levels. */
static void
have_room(FairqPassed *passed)
{
	passed->upto = fairq_grow(CurrentMemoryContext, passed->upto,
							  &passed->max, FIRST_LEVELS, sizeof(FairqRank));
}

/* Free the records of the groups of all tenants. */
static void
free_groups(FairqVisits *visits)
{
	visited_iterator at;
	FairqVisit *visit;

	visited_start_iterate(visits->table, &at);
	while ((visit = visited_iterate(visits->table, &at)) != NULL)
	{
		if (visit->groups == NULL)
			continue;
		pfree(visit->groups->upto);
		pfree(visit->groups);
	}
}

void
fairq_visits_init(FairqVisits *visits)
{
	if (visits->table != NULL)
	{
		free_groups(visits);
		visited_destroy(visits->table);
	}
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
	if (!*found)
	{
		visits->n++;
		visit->came = 0;
		visit->groups = NULL;
	}
	return visit;
}

/* Prepare to pass over groups of the tenant, if there is one. */
static void
have_tenant(FairqVisits *visits, int32 tenant)
{
	bool		found;
	FairqVisit *visit;

	if (tenant == FAIRQ_NO_NODE)
		return;
	visit = have_visit(visits, tenant, &found);
	if (found)
		return;
	visit->left = 1;
	visit->groups = palloc0(sizeof(FairqPassed));
	have_room(visit->groups);
}

/* Record that a turn of the group has yielded no task. */
void
fairq_visits_in_vain(FairqVisits *visits, int32 group_no, int32 tenant)
{
	bool		found;
	FairqVisit *visit = have_visit(visits, group_no, &found);

	visit->left = 0;
	/* the number may have been that of a tenant */
	visit->came = 0;
	have_tenant(visits, tenant);
	fairq_visits_have_room(visits);
}

/* Record that the group had a turn; it may have "most" turns in the call. */
void
fairq_visits_count(FairqVisits *visits, int32 group_no, int32 tenant,
				   int64 most)
{
	bool		found;
	FairqVisit *visit = have_visit(visits, group_no, &found);

	visit->left = found ? visit->left - 1 :
		(int32) Min(most - 1, PG_INT32_MAX);
	have_tenant(visits, tenant);
}

/*
 * Make room for more levels, if there was no room.  Without room, a search
 * that must continue makes no progress.
 */
void
fairq_visits_have_room(FairqVisits *visits)
{
	if (visits->passed.max == 0)
		have_room(&visits->passed);
	if (visits->full != NULL)
		have_room(visits->full);
	visits->full = NULL;
}

/*
 * Returns the index of the first recorded level that is not below the given
 * one.
 */
static int
level_at(const FairqPassed *passed, int32 level)
{
	int			low = 0;
	int			high = passed->n;

	while (low < high)
	{
		int			mid = (low + high) / 2;

		if (passed->upto[mid].level < level)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/*
 * Returns the rank up to which the call passes over all groups of the level.
 * NULL: that rank is below the given one.
 */
const FairqRank *
fairq_visits_passed(const FairqPassed *passed, const FairqRank *rank)
{
	int			i = level_at(passed, rank->level);
	const FairqRank *upto = &passed->upto[i];

	return i < passed->n && upto->level == rank->level &&
		fairq_rank_compare(rank, upto) <= 0 ? upto : NULL;
}

/* Record that the call passes over all groups of the level up to the rank. */
void
fairq_visits_come_to(FairqVisits *visits, FairqPassed *passed,
					 const FairqRank *rank)
{
	int			i = level_at(passed, rank->level);
	FairqRank  *upto = &passed->upto[i];

	if (i == passed->n || upto->level != rank->level)
	{
		/* cannot allocate while the lane is locked */
		if (passed->n == passed->max)
		{
			visits->full = passed;
			return;
		}
		memmove(upto + 1, upto, sizeof(FairqRank) * (passed->n++ - i));
	}
	*upto = *rank;
}

static FairqVisit *
look_up(const FairqVisits *visits, int32 group_no)
{
	return visits->table == NULL ? NULL :
		visited_lookup(visits->table, group_no);
}

/*
 * Whether the call passes over the group.  It passes over a tenant until
 * another group of the tenant enters.
 */
bool
fairq_visits_pass(const FairqVisits *visits, int32 group_no, uint32 came)
{
	const FairqVisit *visit = look_up(visits, group_no);

	return visit != NULL && visit->left <= 0 && visit->came == came;
}

/* The groups of a tenant that the call passes over; NULL: none. */
FairqPassed *
fairq_visits_of_tenant(const FairqVisits *visits, int32 tenant)
{
	const FairqVisit *visit = look_up(visits, tenant);

	return visit == NULL ? NULL : visit->groups;
}

/*
 * Record that the call passes over all groups of the tenant so far.  Returns
 * false if it has not visited any.
 */
bool
fairq_visits_use_up(FairqVisits *visits, int32 tenant, uint32 came)
{
	FairqVisit *visit = look_up(visits, tenant);

	if (visit == NULL)
		return false;
	visit->left = 0;
	visit->came = came;
	return true;
}
