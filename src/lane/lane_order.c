/*
 * lane_order.c
 *		The order of service in cost-fair and time-fair lanes.
 *
 * In these lanes, groups are not served in the order of their seats.  Their
 * order depends on the service they have received so far (account.c).  In
 * cost-fair lanes, the first group of an ordered set is next, for one task.
 * In time-fair lanes, the first groups of all levels are compared, and the
 * best one is next.  There are two levels on average; at most
 * FAIRQ_MOST_LEVELS are compared.
 *
 * The sets of the lane (lane.c) are used as in other lanes, with three
 * exceptions:
 *
 * served	The group is in the ordered set, at the rank in its account.
 *
 * todo		The group has just entered the ring; or it has lapsed, and the lane
 *			is time-fair or the group has a tenant.  The next call that takes
 *			turns adds it to the ordered set, or adds it again.  So a call that
 *			publishes a task, or takes groups back into the ring, only sets
 *			bits and needs no account.
 *
 * ring		A group that leaves the ring may stay in the ordered set, until a
 *			search visits the group there and removes it.
 *
 * The charge of a turn that yields no task is undone.  The group returns to
 * its previous place and keeps it for other calls.  The call passes over the
 * group from then on (FairqVisits), even if shares bring the call back to the
 * lane.  It also passes over a group that has had as many turns as per_group
 * allows.  For each level of the order, the call records the rank up to which
 * it passes over all groups.  Its next search continues there.  If a group is
 * added below that rank, the recorded rank is lowered.  So a call that passes
 * over n groups examines about n groups.  In a queue with tenants, each
 * tenant's order has its own ranks.
 *
 * A search that visits very many groups releases the lane's lock, and
 * continues after it has taken the lock again.  In time-fair lanes, a group
 * whose turn yields no task enters again, so it earns no credit meanwhile.
 *
 * In cost-fair lanes, a charge stays when the pop is rolled back, because the
 * turn is used (README, "Fairness").  In time-fair lanes, pending changes
 * record which tasks the transaction has begun and ended (FairqWork).  After
 * an abort the begun tasks do not count as running, and a commit charges the
 * ended ones.  If the data of the lane are lost, so are its accounts, and all
 * groups are equal.
 *
 * In a queue with tenants, a tenant has an account and an order of its groups.
 * The lane's order then has tenants.  A call asks the lane's order for a
 * tenant, and the tenant's order for a group, and charges both.  A tenant has
 * no entry and no tasks.  It is "served" while one of its groups may have a
 * ready task.  A group that enters its tenant's order brings the tenant into
 * the lane's order.  If a call finds a group whose tenant is not known, it
 * stops, reads the group's key, and tries again.
 *
 * A tenant that has no slot is "shut", and is not in the lane's order.  So its
 * groups, which stay in its order, cost a call nothing.  A tenant that is to
 * return (lane_turns.c) is in "todo", and enters like a group.  A lapsed task
 * has its slot already.  So groups that may have a lapsed task are at a lower
 * level of the tenant's order.  A tenant that is shut and has such groups is
 * in the lane's order for them.  If a tenant is not shut, the level makes no
 * difference, because the best of the first groups of both levels is next.  A
 * pause, a hold or a rate that shuts a tenant also applies to its lapsed
 * tasks.
 *
 * In a time-fair lane with tenants, both orders have the levels of running
 * tasks.  If a call has passed over all groups of a tenant, the tenant enters
 * again, so that it earns no credit.
 *
 * An enqueue allocates the accounts of the task's group and tenant in its
 * lane.  So if memory is full, enqueues fail but pops do not.  After a
 * restart, or a change of fair_by, a call may find a group that enters and has
 * no account.  The call then stops, allocates an account and tries again.
 *
 * Locking: the lane's lock, exclusively.  Records are made without the lock
 * (fairq_lane_have_records).  Visits belong to one call, which needs no lock
 * for them.  Memory for visits is allocated only if there are any, and not
 * while the lane is locked.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "lane.h"
#include "lane_internal.h"
#include "lane_order.h"
#include "shadow.h"
#include "tools.h"

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

/*
 * maximum number of groups to add to the ordered set before the next turn is
 * taken
 */
#define MOST_ADDED 64

/* most groups to remove from an order while the lane's lock is held */
#define MOST_STALE 1000

/*
 * groups of a level that a copy has, in addition to one per wanted task
 */
#define MOST_COPIED 1000

/* groups that are read under one hold of the lane's lock */
#define COPIED_AT_ONCE 64

/* Copy an account of the lane to a new account in a copy of the lane. */
static void
copy_account(FairqLane *lane, int32 group_no, FairqAccount *account)
{
	const FairqAccount *real;

	LWLockAcquire(&lane->lock, LW_SHARED);
	real = fairq_record(&lane->order.accounts, group_no);
	if (real != NULL)
	{
		*account = *real;
		account->level.copied = false;
		fairq_order_init(&account->level.groups.order);
	}
	LWLockRelease(&lane->lock);
}

/* Returns the account of a group; an invalid account is initialized again. */
static FairqAccount *
account_of(FairqLane *lane, int32 group_no)
{
	FairqAccount *account = fairq_record(&lane->order.accounts, group_no);

	if (account->lane_no == 0 && fairq_in_shadow(lane))
		copy_account(fairq_shadow_real(lane), group_no, account);
	if (account->lane_no != lane->recovery.lane_no)
		fairq_account_init(account, lane->recovery.lane_no);
	return account;
}

static bool
is_by_time(const FairqLane *lane)
{
	return lane->order.ledger.fair_by == FAIRQ_BY_TIME;
}

static FairqMoment
moment(FairqLane *lane, int32 flow, TimestampTz now)
{
	return (FairqMoment)
	{
		.now = now,
			.lapsed = has(lane, FAIRQ_LAPSED, flow),
			/* other lanes do not count running tasks */
			.tenant = is_by_time(lane) ?
			tenant_if_any(lane, account_of(lane, flow)) : NULL
	};
}

/* Returns the order in which the group or tenant is served. */
static FairqFlows *
flows_of(FairqLane *lane, const FairqAccount *account)
{
	return account->level.tenant == FAIRQ_NO_NODE ? &lane->order.flows :
		&account_of(lane, account->level.tenant)->level.groups;
}

/*
 * Remove a group from its order.  Returns false if it was not in the order.
 */
static bool
remove_from_order(FairqLane *lane, int32 group_no)
{
	if (!has(lane, FAIRQ_SERVED, group_no))
		return false;
	fairq_order_remove(&flows_of(lane, account_of(lane, group_no))->order,
					   &lane->order.accounts, group_no);
	fairq_seats_remove(lane, FAIRQ_SERVED, group_no);
	return true;
}

/*
 * If a group whose rank has changed was in its order, add the group again.
 */
static void
add_to_order(FairqLane *lane, int32 group_no, bool was_in)
{
	FairqAccount *account = account_of(lane, group_no);

	if (!was_in)
		return;
	/* in a time-fair lane, account.c has set the level */
	if (account->level.tenant != FAIRQ_NO_NODE && !is_by_time(lane))
		account->node.rank.level = has(lane, FAIRQ_LAPSED, group_no) ?
			FAIRQ_LEVEL_LAPSED : FAIRQ_LEVEL_READY;
	fairq_seats_add(lane, FAIRQ_SERVED, group_no);
	fairq_order_add(&flows_of(lane, account)->order, &lane->order.accounts,
					group_no);
}

/* --------------------------------------------------------------------- */

/*
 * Whether the group's tenant is known.  It is unknown if a new group has the
 * tenant's number, because the transaction that added the tenant was rolled
 * back.
 */
static bool
is_resolved(FairqLane *lane, const FairqAccount *account)
{
	if (!account->level.resolved || account->level.tenant == FAIRQ_NO_NODE)
		return account->level.resolved;
	/* a lane may be locked in shared mode, in which no account is made */
	if (fairq_in_shadow(lane))
		(void) account_of(lane, account->level.tenant);
	return tenant_if_any(lane, account) != NULL;
}

/*
 * Whether a group that enters has an account and, in a queue with tenants, its
 * tenant is known.
 */
static bool
has_account(FairqLane *lane, int32 group_no, bool tenants)
{
	const FairqAccount *account = account_if_any(lane, group_no);

	return tenants ? account != NULL && is_resolved(lane, account) :
		fairq_record(&lane->order.accounts, group_no) != NULL;
}

/*
 * Returns the first group, at or after the seat "from", that enters and has no
 * account, or whose tenant is not known.  FAIRQ_NO_SEAT: there is none among
 * the first "most" groups.
 */
static int32
next_without(FairqLane *lane, int64 from, bool tenants, int most)
{
	int32		group_no = fairq_seats_next(lane, FAIRQ_TODO, from);

	while (group_no != FAIRQ_NO_SEAT && has_account(lane, group_no, tenants))
		group_no = --most == 0 ? FAIRQ_NO_SEAT :
			fairq_seats_next(lane, FAIRQ_TODO, group_no + INT64CONST(1));
	return group_no;
}

/*
 * Record the tenant of a group; FAIRQ_NO_SEAT: it has none.  Both have
 * records.
 */
static void
note_tenant(FairqLane *lane, int32 group_no, int32 tenant)
{
	FairqAccount *account = account_of(lane, group_no);

	if (is_resolved(lane, account))
		return;
	(void) remove_from_order(lane, group_no);
	account->level.tenant = tenant;
	account->level.resolved = true;
	if (tenant == FAIRQ_NO_SEAT)
		return;
	account = account_of(lane, tenant);
	fairq_account_be_tenant(&lane->order.ledger, account,
							tenant_if_any(lane, account));
	lane->order.ledger.ranks_lapsed = true;
}

/* Make records of a group and of its tenant.  The lane is not locked. */
void
fairq_lane_have_records(FairqLane *lane, int32 group_no, int32 tenant)
{
	fairq_record_have(&lane->order.accounts, group_no);
	if (tenant == FAIRQ_NO_SEAT)
		return;
	fairq_chunks_have(&fairq_hints_of(lane)->chunks, tenant);
	fairq_record_have(&lane->order.accounts, tenant);
}

/*
 * Record a group's tenant, which was read without the lock.  Both have
 * records.
 */
static void
note_tenant_read(FairqLane *lane, int32 group_no, int32 tenant,
				 uint32 renewals)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	/* otherwise these numbers may belong to other groups by now */
	if (lane->present.renewals == renewals)
		note_tenant(lane, group_no, tenant);
	LWLockRelease(&lane->lock);
}

/*
 * Find the tenant of a group with a turn in a full queue.  The group has
 * possibly not entered yet.  The caller does not hold the lane's lock.
 */
void
fairq_lane_find_tenant(const FairqTaking *taking, FairqTurn *turn,
					   FairqOfGroup tenant_of)
{
	FairqLane  *lane = turn->lane;
	int32		group_no = turn->group_no;
	int32		tenant = tenant_of(taking->arg, group_no);
	bool		known;

	turn->charged.tenant = tenant;
	if (tenant == FAIRQ_NO_SEAT)
		return;
	LWLockAcquire(&lane->lock, LW_SHARED);
	known = has_account(lane, group_no, true);
	LWLockRelease(&lane->lock);
	if (known)
		return;
	fairq_lane_have_records(lane, group_no, tenant);
	note_tenant_read(lane, group_no, tenant, taking->renewals);
}

/*
 * Allocate accounts for the groups that enter.  If groups have tenants
 * (tenant_of), find the tenants of the first of these groups.  The caller does
 * not hold the lane's lock.
 */
void
fairq_lane_have_accounts(FairqLane *lane, FairqOfGroup tenant_of, void *arg)
{
	int32		group_no;
	uint32		renewals;
	int64		from = 0;

	for (int n = 0; n < MOST_ADDED; n += tenant_of != NULL)
	{
		int32		tenant = FAIRQ_NO_SEAT;

		LWLockAcquire(&lane->lock, LW_SHARED);
		renewals = lane->present.renewals;
		group_no = next_without(lane, from, tenant_of != NULL, PG_INT32_MAX);
		LWLockRelease(&lane->lock);
		if (group_no == FAIRQ_NO_SEAT)
			return;
		if (tenant_of != NULL)
			tenant = tenant_of(arg, group_no);
		fairq_stall("tenant");
		fairq_lane_have_records(lane, group_no, tenant);
		from = group_no + INT64CONST(1);
		if (tenant_of != NULL)
			note_tenant_read(lane, group_no, tenant, renewals);
	}
}

/* --------------------------------------------------------------------- */

/* The memory for the visits of a call. */
static MemoryContext
memory_of(FairqVisits *visits)
{
	if (visits->memory == NULL)
		visits->memory = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq visits",
											   ALLOCSET_SMALL_SIZES);
	return visits->memory;
}

/* Make room for more levels. */
static void
have_room(FairqVisits *visits, FairqPassed *passed)
{
	passed->upto = fairq_grow(memory_of(visits), passed->upto, &passed->max,
							  FIRST_LEVELS, sizeof(FairqRank));
}

void
fairq_visits_init(FairqVisits *visits)
{
	if (visits->memory != NULL)
		MemoryContextDelete(visits->memory);
	memset(visits, 0, sizeof(*visits));
}

/* Returns the call's visit of a group, a new one if *found is set to false. */
static FairqVisit *
have_visit(FairqVisits *visits, int32 group_no, bool *found)
{
	FairqVisit *visit;

	if (visits->table == NULL)
		visits->table = visited_create(memory_of(visits), FIRST_VISITS,
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
	visit->groups = MemoryContextAllocZero(memory_of(visits),
										   sizeof(FairqPassed));
	have_room(visits, visit->groups);
}

/*
 * Record that the group had a turn; it may have "most" turns in the call.  If
 * most is 0, the turn has yielded no task.
 */
void
fairq_visits_count(FairqVisits *visits, int32 group_no, int32 tenant,
				   int64 most)
{
	bool		found;
	FairqVisit *visit = have_visit(visits, group_no, &found);

	visit->left = most == 0 ? 0 : found ? visit->left - 1 :
		(int32) Min(most - 1, PG_INT32_MAX);
	/* the visit may have been that of a tenant with this number */
	visit->came = 0;
	have_tenant(visits, tenant);
	fairq_visits_have_room(visits);
}

/*
 * Make room for more levels, if a search had no room.  Without room, a search
 * that must continue makes no progress.
 */
void
fairq_visits_have_room(FairqVisits *visits)
{
	if (visits->passed.max == 0)
		have_room(visits, &visits->passed);
	if (visits->full != NULL)
		have_room(visits, visits->full);
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
static const FairqRank *
visits_passed(const FairqPassed *passed, const FairqRank *rank)
{
	int			i = level_at(passed, rank->level);
	const FairqRank *upto = &passed->upto[i];

	return i < passed->n && upto->level == rank->level &&
		fairq_rank_compare(rank, upto) <= 0 ? upto : NULL;
}

/* Record that the call passes over all groups of the level up to the rank. */
static void
visits_come_to(FairqVisits *visits, FairqPassed *passed,
					 const FairqRank *rank)
{
	int			i = level_at(passed, rank->level);
	FairqRank  *upto = &passed->upto[i];

	if (i == passed->n || upto->level != rank->level)
	{
		/* no memory can be allocated while the lane is locked */
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
static bool
visits_pass(const FairqVisits *visits, int32 group_no, uint32 came)
{
	const FairqVisit *visit = look_up(visits, group_no);

	return visit != NULL && visit->left <= 0 && visit->came == came;
}

/* Returns those groups of a tenant that the call passes over; NULL: none. */
static FairqPassed *
visits_of_tenant(const FairqVisits *visits, int32 tenant)
{
	const FairqVisit *visit = look_up(visits, tenant);

	return visit == NULL ? NULL : visit->groups;
}

/*
 * Record that the call passes over all groups that the tenant has so far.
 * Returns false if the call has visited none of them.
 */
static bool
visits_use_up(FairqVisits *visits, int32 tenant, uint32 came)
{
	FairqVisit *visit = look_up(visits, tenant);

	if (visit == NULL)
		return false;
	visit->left = 0;
	visit->came = came;
	return true;
}

/* --------------------------------------------------------------------- */

/* A search of an order for the group that is next. */
typedef struct OrderSearch
{
	FairqLane  *lane;
	const FairqOrder *order;
	FairqVisits *visits;		/* groups that the call passes over; NULL:
								 * none */
	FairqPassed *passed;		/* groups of this order that the call passes
								 * over; NULL: none */
	int		   *steps;			/* maximum number of groups still to be
								 * examined */
} OrderSearch;

/*
 * The call passes over all groups of a level up to the rank *upto.  Lower that
 * rank if a group has been added before it.  Ignore a group that the call
 * passes over anyway.
 */
static void
lower_for_added(const OrderSearch *search, FairqRank *upto)
{
	FairqRank	at = {.level = upto->level - 1,.amount.whole = PG_INT64_MAX};
	FairqRecords *accounts = &search->lane->order.accounts;

	for (;;)
	{
		int32		next = fairq_order_added_after(accounts,
												   search->order->root, &at,
												   search->passed->added);
		const FairqAccount *account;

		if (next == FAIRQ_NO_NODE)
			break;
		account = account_of(search->lane, next);
		at = account->node.rank;
		search->visits->looked++;
		if (fairq_rank_compare(&at, upto) > 0)
			break;
		if (visits_pass(search->visits, next, account->level.came))
			continue;
		/*
		 * lower *upto to the highest rank before that group; the lowest tie is
		 * 1
		 */
		*upto = at;
		upto->tie--;
		break;
	}
}

/* Lower the ranks of all levels for groups that were added. */
static void
lower_all_for_added(const OrderSearch *search)
{
	FairqPassed *passed = search->passed;

	/* ranks from before the lane's last recovery are invalid */
	if (passed->lane_no != search->lane->recovery.lane_no)
		passed->n = 0;
	for (int i = 0; i < passed->n; i++)
		lower_for_added(search, &passed->upto[i]);
	passed->lane_no = search->lane->recovery.lane_no;
	passed->added = search->order->added;
}

/*
 * Returns the first group after a rank that may have a ready task;
 * FAIRQ_NO_NODE: there is none, or no steps are left.  The search skips groups
 * that the call passes over.  The rank is at the end of a level.  If it is
 * NULL, the search begins with the first group.
 */
static int32
next_behind(const OrderSearch *search, const FairqRank *behind)
{
	FairqLane  *lane = search->lane;
	FairqRecords *accounts = &lane->order.accounts;
	FairqVisits *visits = search->visits;
	int32		next = behind == NULL ?
		fairq_order_first(search->order, accounts) :
		fairq_order_next_to(search->order, accounts, behind, true);

	while (next != FAIRQ_NO_NODE)
	{
		const FairqAccount *account = account_of(lane, next);
		FairqRank	rank = account->node.rank;
		const FairqRank *passed = search->passed == NULL ? NULL :
			visits_passed(search->passed, &rank);

		if (passed != NULL)
			rank = *passed;
		else if (is_active(lane, next, account) &&
				 (visits == NULL ||
				  !visits_pass(visits, next, account->level.came)))
			break;
		else
		{
			if (!is_active(lane, next, account))
				(void) remove_from_order(lane, next);
			if (search->passed != NULL)
				visits_come_to(visits, search->passed, &rank);
			/*
			 * count steps only after the group is recorded, so each search
			 * makes progress
			 */
			if (--*search->steps < 0)
				return FAIRQ_NO_NODE;
		}
		next = fairq_order_next_to(search->order, accounts, &rank, true);
	}
	return next;
}

/* Returns which of the levels' first groups is next; FAIRQ_NO_NODE: none. */
static int32
next_level(const OrderSearch *search, FairqRank *behind)
{
	int32		next = next_behind(search, behind);

	if (next != FAIRQ_NO_NODE)
		behind->level = account_of(search->lane, next)->node.rank.level;
	behind->amount.whole = PG_INT64_MAX;
	return next;
}

/*
 * In a time-fair lane, the least amount that any waiting flow of an order has
 * got.  If no flow waits, it is the amount of the flow that was served last.
 * If very many groups in a row have left the ring, the search only removes
 * some of them.
 */
static double
find_least(FairqLane *lane, const FairqFlows *flows, TimestampTz now)
{
	const FairqLedger *ledger = &lane->order.ledger;
	FairqRank	behind = {.level = -1};
	double		least = 0;
	int			steps = MOST_STALE;
	int			n = 0;
	OrderSearch search = {
		.lane = lane,
		.order = &flows->order,
		.steps = &steps
	};

	for (int32 next; n < FAIRQ_MOST_LEVELS &&
		 (next = next_level(&search, &behind)) != FAIRQ_NO_NODE; n++)
	{
		double		got = fairq_account_got(ledger, account_of(lane, next),
											now);

		least = n == 0 ? got : Min(least, got);
	}
	return n == 0 ? fairq_amount_value(flows->start) : least;
}

/* An account that was copied. */
typedef struct AccountCopy
{
	int32		group_no;
	FairqAccount account;
} AccountCopy;

/*
 * Copy the accounts of the first groups behind a rank in the order of a
 * tenant, or in the lane's order (FAIRQ_NO_NODE).  Returns their number.  It
 * is 0 if another recovery of the lane has begun since its bits were copied,
 * because that invalidates accounts.
 */
static int
copy_behind(FairqLane *copy, int32 tenant, const FairqRank *behind,
			AccountCopy *copies)
{
	FairqLane  *lane = fairq_shadow_real(copy);
	FairqRecords *accounts = &lane->order.accounts;
	FairqRank	rank = *behind;
	const FairqOrder *order = &lane->order.flows.order;
	const FairqAccount *of;
	int			n = 0;

	LWLockAcquire(&lane->lock, LW_SHARED);
	if (lane->recovery.lane_no != copy->recovery.lane_no)
		order = NULL;
	else if (tenant != FAIRQ_NO_NODE)
	{
		of = account_if_any(lane, tenant);
		order = of == NULL ? NULL : &of->level.groups.order;
	}
	while (n < COPIED_AT_ONCE && order != NULL)
	{
		int32		next = fairq_order_next_to(order, accounts, &rank, true);

		if (next == FAIRQ_NO_NODE)
			break;
		copies[n].group_no = next;
		copies[n].account = *(FairqAccount *) fairq_record(accounts, next);
		rank = copies[n++].account.node.rank;
	}
	LWLockRelease(&lane->lock);
	return n;
}

/*
 * Add a group to its order in the copy.  Returns false if it has left the
 * ring, or was already added and has moved further back in the set.
 */
static bool
add_copied(FairqLane *copy, const AccountCopy *group)
{
	int32		group_no = group->group_no;
	bool		active = group->account.level.is_tenant ||
		has(copy, FAIRQ_RING, group_no);
	FairqAccount *account;

	if (!active || has(copy, FAIRQ_SERVED, group_no))
		return false;
	account = fairq_record(&copy->order.accounts, group_no);
	*account = group->account;
	account->level.copied = false;
	fairq_order_init(&account->level.groups.order);
	add_to_order(copy, group_no, true);
	return true;
}

/*
 * Copy the order of a tenant, or of the lane, to a copy of the lane.  The copy
 * has the first groups of each level that a search examines: one for each
 * wanted task, plus some that may yield no task.
 */
static void
copy_order(FairqLane *copy, int32 tenant, int64 wanted)
{
	AccountCopy copies[COPIED_AT_ONCE];
	FairqRank	behind = {.level = -1,.amount.whole = PG_INT64_MAX};
	int			levels = 0;
	int64		in_level = 0;
	int			n;

	while ((n = copy_behind(copy, tenant, &behind, copies)) > 0)
	{
		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < n; i++)
		{
			if (copies[i].account.node.rank.level != behind.level)
			{
				if (++levels > FAIRQ_MOST_LEVELS)
					return;
				in_level = 0;
			}
			behind = copies[i].account.node.rank;
			in_level += add_copied(copy, &copies[i]);
			if (in_level == wanted + MOST_COPIED)
			{
				behind.amount.whole = PG_INT64_MAX;
				break;
			}
		}
	}
}

/* Copy the lane's order, to a copy that has the lane's bits. */
void
fairq_lane_order_copy(FairqLane *copy, int64 wanted)
{
	fairq_seats_clear_served(copy, false);
	copy_order(copy, FAIRQ_NO_NODE, wanted);
}

/*
 * In a copy of the lane, copy the groups of a tenant, unless they have been
 * copied already.
 */
static void
have_groups(FairqLane *lane, const FairqTaking *taking, int32 tenant)
{
	FairqAccount *account = account_of(lane, tenant);

	if (!fairq_in_shadow(lane) || account->level.copied)
		return;
	copy_order(lane, tenant, taking->wanted);
	account->level.copied = true;
}

/*
 * Add a flow that enters its order, or enters it again.  In a time-fair lane,
 * least is the least that any waiting flow of the order has got.
 */
static void
enter(FairqLane *lane, int32 flow, double least, TimestampTz now)
{
	FairqAccount *account = account_of(lane, flow);

	fairq_account_comes(&lane->order.ledger, flows_of(lane, account), account,
						flow, least, moment(lane, flow, now));
}

/*
 * A group has entered the tenant's order, or the tenant is not shut any more.
 * Add the tenant to the lane's order, if it may have a task to serve.  If the
 * tenant was already in that order, it is added again, so that calls that have
 * passed over it visit it again.
 */
static void
bring_tenant(FairqLane *lane, int32 tenant, double least, TimestampTz now)
{
	FairqAccount *account = account_of(lane, tenant);
	bool		was_in = remove_from_order(lane, tenant);

	account->level.came++;
	if (!is_active(lane, tenant, account))
		return;
	if (was_in && is_by_time(lane))
		least = Min(least, fairq_account_got(&lane->order.ledger, account,
											 now));
	if (!was_in || is_by_time(lane))
		enter(lane, tenant, least, now);
	add_to_order(lane, tenant, true);
}

/*
 * Returns the least amount that any waiting flow has got in the order that a
 * group or tenant enters.  least: that amount in the lane's order.
 */
static double
least_of_order(FairqLane *lane, const FairqTaking *taking, int32 flow,
			   double least)
{
	const FairqAccount *account = account_of(lane, flow);
	int32		tenant = account->level.tenant;

	if (tenant == FAIRQ_NO_NODE)
		return least;
	have_groups(lane, taking, tenant);
	return is_by_time(lane) ?
		find_least(lane, flows_of(lane, account), taking->order.now) : least;
}

/*
 * Add a group that enters to its order, and its tenant to the lane's order.
 * The group may have lapsed, and be in its order at another rank.
 */
static void
bring_group(FairqLane *lane, const FairqTaking *taking, int32 group_no,
			double of_order, double least)
{
	TimestampTz now = taking->order.now;
	int32		tenant = account_of(lane, group_no)->level.tenant;
	bool		was_in = remove_from_order(lane, group_no);

	if (!was_in || tenant == FAIRQ_NO_NODE || is_by_time(lane))
		enter(lane, group_no, of_order, now);
	add_to_order(lane, group_no, true);
	if (tenant != FAIRQ_NO_NODE)
		bring_tenant(lane, tenant, least, now);
}

/*
 * Whether the group's tenant is shut, and not even its lapsed tasks are
 * served.
 */
bool
fairq_lane_order_is_closed(FairqLane *lane, int32 group_no)
{
	const FairqAccount *account = lane->seats.n[FAIRQ_SHUT] == 0 ? NULL :
		fairq_in_shadow(lane) ? account_of(lane, group_no) :
		account_if_any(lane, group_no);
	int32		tenant = account == NULL ? FAIRQ_NO_NODE :
		account->level.tenant;

	return tenant != FAIRQ_NO_NODE && is_resolved(lane, account) &&
		has(lane, FAIRQ_SHUT, tenant) &&
		account_of(lane, tenant)->level.shut != FAIRQ_SHUT_FULL;
}

/* End the time in which a tenant is shut, if it is shut. */
void
fairq_lane_order_open(FairqLane *lane, int32 tenant)
{
	if (!has(lane, FAIRQ_SHUT, tenant))
		return;
	if (account_of(lane, tenant)->level.shut == FAIRQ_SHUT_UNTIL)
		fairq_seats_return(lane, tenant);
	if (account_of(lane, tenant)->level.shut != FAIRQ_SHUT_FULL)
		fairq_seats_unpark_lapsed(lane);
	fairq_seats_remove(lane, FAIRQ_SHUT, tenant);
}

/*
 * Shut a tenant, possibly until a time.  At most its lapsed tasks are served
 * meanwhile.  Returns true if no other group or tenant that is throttled
 * returns earlier.
 */
bool
fairq_lane_order_shut(FairqLane *lane, int32 tenant, FairqShut shut,
					  int64 until)
{
	FairqAccount *account = account_of(lane, tenant);
	bool		first;

	/*
	 * the tenant's parked groups return only if they may have a task to serve
	 */
	if (shut == FAIRQ_SHUT_FULL)
		fairq_lane_order_open(lane, tenant);
	else if (has(lane, FAIRQ_SHUT, tenant) &&
			 account->level.shut == FAIRQ_SHUT_UNTIL)
		fairq_seats_return(lane, tenant);
	first = shut == FAIRQ_SHUT_UNTIL &&
		fairq_seats_return_at(lane, tenant, until);
	fairq_seats_add(lane, FAIRQ_SHUT, tenant);
	account->level.shut = shut;
	if (!is_active(lane, tenant, account))
		(void) remove_from_order(lane, tenant);
	return first;
}

/*
 * Add the groups that have entered the ring to their orders.  Returns false if
 * one of them has no account yet.  Then none is added, since in a time-fair
 * lane the groups that are present decide where others enter.  Also returns
 * false if the search has to continue, because no turn is taken before all
 * groups that have tenants are added.  Otherwise the groups of one tenant
 * could prevent another tenant from entering.
 */
static bool
add_those_that_come(FairqLane *lane, FairqTaking *taking)
{
	TimestampTz now = taking->order.now;
	int32		group_no = fairq_seats_next(lane, FAIRQ_TODO, 0);
	int32		flow = group_no;
	double		least;
	double		of_order[MOST_ADDED];

	if (group_no == FAIRQ_NO_SEAT)
		return true;
	taking->order.lacks = next_without(lane, group_no, taking->order.tenants,
									   MOST_ADDED) != FAIRQ_NO_SEAT;
	if (taking->order.lacks)
		return false;
	least = is_by_time(lane) ? find_least(lane, &lane->order.flows, now) : 0;
	/*
	 * in a tenant's order, too, the groups that are present decide where
	 * others enter
	 */
	for (int i = 0; i < MOST_ADDED && flow != FAIRQ_NO_SEAT; i++)
	{
		of_order[i] = least_of_order(lane, taking, flow, least);
		flow = fairq_seats_next(lane, FAIRQ_TODO, flow + INT64CONST(1));
	}
	for (int i = 0; i < MOST_ADDED && group_no != FAIRQ_NO_SEAT; i++)
	{
		fairq_seats_remove(lane, FAIRQ_TODO, group_no);
		if (account_of(lane, group_no)->level.is_tenant)
		{
			have_groups(lane, taking, group_no);
			bring_tenant(lane, group_no, least, now);
		}
		else
			bring_group(lane, taking, group_no, of_order[i], least);
		group_no = fairq_seats_next(lane, FAIRQ_TODO, group_no);
	}
	if (group_no == FAIRQ_NO_SEAT || !taking->order.tenants)
		return true;
	taking->order.steps = -1;
	return false;
}

/* Returns the level of a group of a time-fair lane; 0 if it has lapsed. */
static int32
level_of(const FairqAccount *account)
{
	int32		level = account->node.rank.level;

	return account->level.tenant == FAIRQ_NO_NODE ? level :
		Max(level - FAIRQ_LEVEL_READY, 0);
}

/*
 * Returns the group of an order that is next in a time-fair lane;
 * FAIRQ_NO_NODE: none.
 */
static int32
next_by_time(const OrderSearch *search, TimestampTz now)
{
	FairqLane  *lane = search->lane;
	const FairqLedger *ledger = &lane->order.ledger;
	FairqRank	behind = {.level = -1};
	int32		best = FAIRQ_NO_NODE;
	double		best_key = 0;
	uint64		best_tie = 0;

	for (int n = 0; n < FAIRQ_MOST_LEVELS; n++)
	{
		int32		next = next_level(search, &behind);
		const FairqAccount *account;
		double		key;

		if (next == FAIRQ_NO_NODE)
			break;
		account = account_of(lane, next);
		/* before any task has ended, levels alone decide */
		if (ledger->longest == 0 && best != FAIRQ_NO_NODE &&
			level_of(account) > 0)
			break;
		key = fairq_account_got(ledger, account, now) +
			2 * ledger->longest * level_of(account);
		if (best == FAIRQ_NO_NODE || key < best_key ||
			(key == best_key && account->node.rank.tie < best_tie))
		{
			best = next;
			best_key = key;
			best_tie = account->node.rank.tie;
		}
	}
	return best;
}

/*
 * Returns the next group of a tenant; FAIRQ_NO_NODE: none, or no steps are
 * left.  shut: choose only a group that may have lapsed tasks.
 */
static int32
next_of_tenant(const OrderSearch *search, bool shut)
{
	FairqRank	behind = {.level = -1};
	int32		first = next_level(search, &behind);
	int32		other;
	FairqRank	of_other;

	if (first == FAIRQ_NO_NODE || behind.level != FAIRQ_LEVEL_LAPSED)
		return shut ? FAIRQ_NO_NODE : first;
	other = shut ? FAIRQ_NO_NODE : next_level(search, &behind);
	if (other == FAIRQ_NO_NODE)
		return *search->steps < 0 ? FAIRQ_NO_NODE : first;
	of_other = account_of(search->lane, other)->node.rank;
	of_other.level = FAIRQ_LEVEL_LAPSED;
	return fairq_rank_compare(&account_of(search->lane, first)->node.rank,
							  &of_other) < 0 ? first : other;
}

/*
 * Returns the flow of an order that is next for the call; FAIRQ_NO_NODE: none,
 * or no steps are left.  tenant: the tenant of the order; FAIRQ_NO_NODE: the
 * order is the lane's.  passed: flows that the call passes over; NULL: none.
 */
static int32
next_in_order(FairqLane *lane, FairqTaking *taking, const FairqOrder *order,
			  int32 tenant, FairqPassed *passed)
{
	OrderSearch search = {
		.lane = lane,
		.order = order,
		.visits = taking->order.visits,
		.passed = passed,
		.steps = &taking->order.steps
	};
	bool		shut;

	if (passed != NULL)
		lower_all_for_added(&search);
	shut = tenant != FAIRQ_NO_NODE && has(lane, FAIRQ_SHUT, tenant);
	if (is_by_time(lane) && !shut)
		return next_by_time(&search, taking->order.now);
	return tenant != FAIRQ_NO_NODE ? next_of_tenant(&search, shut) :
		next_behind(&search, NULL);
}

/*
 * In a time-fair lane, make a tenant enter again, so that it earns no credit.
 */
static void
enter_again(FairqLane *lane, int32 tenant, TimestampTz now)
{
	(void) remove_from_order(lane, tenant);
	enter(lane, tenant, find_least(lane, &lane->order.flows, now), now);
	add_to_order(lane, tenant, true);
}

/*
 * Returns the group that is next; FAIRQ_NO_NODE: none, or no steps are left.
 * If a tenant is next, the group is the next one of the tenant.  A tenant
 * whose groups have all left the ring leaves the lane's order.
 */
static int32
choose_group(FairqLane *lane, FairqTaking *taking)
{
	FairqVisits *visits = taking->order.visits;

	for (;;)
	{
		int32		flow = next_in_order(lane, taking,
										 &lane->order.flows.order,
										 FAIRQ_NO_NODE, &visits->passed);
		FairqAccount *account;
		int32		next;

		if (flow == FAIRQ_NO_NODE || taking->order.steps < 0)
			return flow;
		account = account_of(lane, flow);
		if (!account->level.is_tenant)
			return flow;
		have_groups(lane, taking, flow);
		next = next_in_order(lane, taking, &account->level.groups.order, flow,
							 visits_of_tenant(visits, flow));
		if (next != FAIRQ_NO_NODE || --taking->order.steps < 0)
			return next;
		if (!is_active(lane, flow, account))
			(void) remove_from_order(lane, flow);
		else if (!visits_use_up(visits, flow, account->level.came))
			return FAIRQ_NO_NODE;
		else if (is_by_time(lane))
			enter_again(lane, flow, taking->order.now);
	}
}

/*
 * A new group gets the number of a tenant.  So the tenant's groups, which have
 * no tasks, leave its order.  Returns false if some of them are still in the
 * order.
 */
static bool
dissolve(FairqLane *lane, FairqAccount *account)
{
	int			n = 0;
	int32		group_no;

	while ((group_no = account->level.groups.order.root) != FAIRQ_NO_NODE)
	{
		if (n++ == MOST_STALE)
			return false;
		(void) remove_from_order(lane, group_no);
		account_of(lane, group_no)->level.resolved = false;
		if (has(lane, FAIRQ_RING, group_no))
			fairq_seats_add(lane, FAIRQ_TODO, group_no);
	}
	return true;
}

/*
 * Prepare the seat for a new group.  The group's account is empty, however
 * often another group was served at that seat.
 */
void
fairq_lane_order_renew(FairqLane *lane, int32 group_no)
{
	volatile FairqFairBy *fair_by = &lane->order.ledger.fair_by;
	bool		done;

	/* reading fair_by needs no lock, because a new group has no tasks yet */
	if (*fair_by == FAIRQ_BY_TASKS)
		return;
	do
	{
		FairqAccount *account;

		done = true;
		LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
		lane->present.renewals++;
		account = is_begun(lane) && !is_by_turns(lane) ?
			account_if_any(lane, group_no) : NULL;
		if (account != NULL)
		{
			(void) remove_from_order(lane, group_no);
			done = dissolve(lane, account);
			fairq_lane_order_open(lane, group_no);
			/*
			 * another group that had the seat may have been parked because of
			 * its tenant
			 */
			fairq_seats_remove(lane, FAIRQ_PARKED, group_no);
			if (done)
				fairq_account_renew(&lane->order.ledger, account,
									tenant_if_any(lane, account));
			if (has(lane, FAIRQ_RING, group_no))
				fairq_seats_add(lane, FAIRQ_TODO, group_no);
		}
		LWLockRelease(&lane->lock);
	} while (!done);
}

/*
 * Find the group that is next.  Returns false if there is none, or if an
 * account is missing.  Also returns false, with taking->order.steps below 0,
 * if the search has to continue after the lock was released.
 */
bool
fairq_lane_order_next(FairqLane *lane, FairqTaking *taking, int32 *group_no)
{
	FairqLedger *ledger = &lane->order.ledger;
	FairqVisits *visits = taking->order.visits;
	int			steps = taking->order.steps;

	ledger->recovering = lane->recovery.known != FAIRQ_ALL_SEATS;
	taking->order.lacks = false;
	if (!add_those_that_come(lane, taking))
		return false;
	*group_no = choose_group(lane, taking);
	visits->looked += steps - taking->order.steps;
	return *group_no != FAIRQ_NO_NODE && taking->order.steps >= 0;
}

/*
 * Whether the group, which is next, precedes all groups that recovery has not
 * reached yet.  An unknown group would have an empty account, and its seat as
 * its tie.  Where groups have tenants, unknown groups could precede almost all
 * turns.  So one step of recovery for each turn suffices in such lanes; an
 * unknown group then waits until it is found.
 */
bool
fairq_lane_order_is_covered(FairqLane *lane, int32 group_no)
{
	const FairqAccount *account = account_of(lane, group_no);
	const FairqRank *rank = &account->node.rank;

	if (account->level.tenant != FAIRQ_NO_NODE &&
		lane->recovery.known > lane->recovery.covered)
		return true;
	return lane->recovery.known == FAIRQ_ALL_SEATS ||
		(account->level.tenant == FAIRQ_NO_NODE && rank->level == 0 &&
		 rank->amount.whole == 0 &&
		 rank->amount.part == 0 &&
		 rank->tie <= (uint64) lane->recovery.known);
}

/*
 * Find the work of a time-fair lane's tasks so far.  The lane is not locked.
 */
void
fairq_lane_work(FairqLane *lane, TimestampTz now, FairqLaneWork *work)
{
	const FairqLedger *ledger = &lane->order.ledger;

	memset(work, 0, sizeof(*work));
	LWLockAcquire(&lane->lock, LW_SHARED);
	if (is_begun(lane) && is_by_time(lane))
	{
		work->lane_no = lane->recovery.lane_no;
		work->counts = now > ledger->since;
		work->longest = ledger->longest;
		/* in a copy, accounts may have been copied later than the ledger */
		Assert(fairq_in_shadow(lane) ||
			   (ledger->lapsed >= 0 && ledger->lapsed <= ledger->running));
		/*
		 * lapsed tasks are excluded, since possibly no call visits the lane
		 * for a long time
		 */
		work->running = ledger->running - ledger->lapsed;
		work->lapsed = ledger->lapsed;
		work->expired = ledger->expired;
		work->got = (double) ledger->work +
			(double) work->running * (now - ledger->since);
	}
	LWLockRelease(&lane->lock);
}

/* In a time-fair lane, compute the rank of a group or tenant again. */
static void
rank_again(FairqLane *lane, int32 flow, TimestampTz now)
{
	bool		was_in = remove_from_order(lane, flow);

	fairq_account_rank(&lane->order.ledger, account_of(lane, flow),
					   moment(lane, flow, now));
	add_to_order(lane, flow, was_in);
}

/*
 * A search has found all lapsed tasks of the group.  More tasks may have
 * lapsed since.
 */
void
fairq_lane_order_searched(FairqLane *lane, int32 group_no)
{
	FairqAccount *account = is_by_time(lane) &&
		!has(lane, FAIRQ_LAPSED, group_no) ?
		account_if_any(lane, group_no) : NULL;
	FairqAccount *tenant;
	TimestampTz now;

	if (account == NULL || account->by.time.lapsed == 0)
		return;
	now = GetCurrentTimestamp();
	tenant = tenant_if_any(lane, account);
	fairq_account_searched(&lane->order.ledger, account, tenant);
	rank_again(lane, group_no, now);
	if (tenant != NULL)
		rank_again(lane, account->level.tenant, now);
}

/* Charge a group or a tenant for the turn that is taken. */
static void
charge_flow(FairqLane *lane, const FairqTaking *taking, int32 flow, float cost,
			FairqCharge *charge)
{
	FairqAccount *account = account_of(lane, flow);

	(void) remove_from_order(lane, flow);
	fairq_account_charge(&lane->order.ledger, flows_of(lane, account), account,
						 taking->weight_of(taking->arg, flow), cost, charge,
						 moment(lane, flow, taking->order.now));
	add_to_order(lane, flow, is_active(lane, flow, account));
}

/* Charge a group and its tenant for the turn that is taken. */
void
fairq_lane_order_take(FairqLane *lane, const FairqTaking *taking,
					  FairqTurn *turn)
{
	const FairqAccount *account = account_of(lane, turn->group_no);
	float		cost = is_by_time(lane) || account->by.cost.last_cost == 0 ?
		1 : account->by.cost.last_cost;

	turn->charged.tenant = account->level.tenant;
	charge_flow(lane, taking, turn->group_no, cost, &turn->charged.group);
	if (turn->charged.tenant != FAIRQ_NO_SEAT)
		charge_flow(lane, taking, turn->charged.tenant, cost,
					&turn->charged.of_tenant);
	lane->recovery.covered = lane->recovery.known;
}

/*
 * Give back a charge of a group or of a tenant.  comes: in a time-fair lane,
 * the flow enters again.  Otherwise the flow keeps its amount in such a lane,
 * even if the turn took its last task, which removed the flow from its order.
 */
static void
uncharge(FairqLane *lane, int32 flow, const FairqCharge *charge, bool comes)
{
	FairqAccount *account = account_of(lane, flow);
	bool		was_in = remove_from_order(lane, flow);

	if (is_by_time(lane) && account->node.rank.tie == charge->tie)
		was_in |= is_active(lane, flow, account);
	fairq_account_uncharge(&lane->order.ledger, flows_of(lane, account),
						   account, charge, moment(lane, flow, charge->now));
	if (!comes)
		add_to_order(lane, flow, was_in);
	else if (was_in && has(lane, FAIRQ_RING, flow))
		fairq_seats_add(lane, FAIRQ_TODO, flow);
}

/*
 * Give back the charge of a turn that yielded no task.  over: the turn is
 * over; if false, it was not begun.
 */
void
fairq_lane_order_back(FairqLane *lane, const FairqTurn *turn, bool over)
{
	uncharge(lane, turn->group_no, &turn->charged.group,
			 over && is_by_time(lane));
	if (turn->charged.tenant != FAIRQ_NO_SEAT)
		uncharge(lane, turn->charged.tenant, &turn->charged.of_tenant, false);
}

/* Correct a charge of a group or of a tenant. */
static void
correct(FairqLane *lane, int32 flow, FairqCharge *charge, FairqAmount amount)
{
	FairqAccount *account = account_of(lane, flow);
	bool		was_in = remove_from_order(lane, flow);

	fairq_account_correct(flows_of(lane, account), account, charge, amount);
	add_to_order(lane, flow, was_in);
}

/* Whether a turn was charged exactly this amount. */
static bool
is_charged(const FairqCharge *charge, FairqAmount amount)
{
	return charge->tie != 0 &&
		fairq_amount_compare(amount, charge->amount) == 0;
}

/*
 * In a cost-fair lane, charge a group and its tenant the cost of the task
 * claimed at that turn, instead of the expected one.  In a full queue the
 * group and the tenant have possibly not entered yet.  The lane is not locked.
 */
void
fairq_lane_charge(FairqTurn *turn, float cost, int32 weight,
				  int32 weight_of_tenant)
{
	FairqLane  *lane = turn->lane;
	FairqAmount amount = fairq_amount(cost / weight);
	FairqAmount of_tenant = fairq_amount(cost / weight_of_tenant);
	bool		has_tenant = turn->charged.tenant != FAIRQ_NO_SEAT;

	if (is_charged(&turn->charged.group, amount) &&
		(!has_tenant || is_charged(&turn->charged.of_tenant, of_tenant)))
		return;
	fairq_lane_have_records(lane, turn->group_no, turn->charged.tenant);
	if (!lock_as_of(lane, turn->lane_no))
		return;
	if (has_tenant)
		note_tenant(lane, turn->group_no, turn->charged.tenant);
	correct(lane, turn->group_no, &turn->charged.group, amount);
	account_of(lane, turn->group_no)->by.cost.last_cost = cost;
	if (has_tenant)
		correct(lane, turn->charged.tenant, &turn->charged.of_tenant,
				of_tenant);
	LWLockRelease(&lane->lock);
}

/* --------------------------------------------------------------------- */

/*
 * Make records of a group and of its tenant, and record the tenant.  The lane
 * is not locked.
 */
static void
know_tenant(FairqLane *lane, uint32 lane_no, int32 group_no, int32 tenant)
{
	fairq_lane_have_records(lane, group_no, tenant);
	if (tenant == FAIRQ_NO_SEAT || !lock_as_of(lane, lane_no))
		return;
	note_tenant(lane, group_no, tenant);
	LWLockRelease(&lane->lock);
}

/*
 * Prepare to add to the work of a transaction for a group and its tenant.
 * Returns false if the lane is not time-fair, because such a lane records no
 * work.
 */
static bool
prepare(FairqLane *lane, int32 group_no, int32 tenant, FairqWork **work,
		TimestampTz *since)
{
	bool		by_time;
	bool		known;
	uint32		lane_no;
	const FairqAccount *account;

	/* check first without the lock, so that other lanes are not locked */
	if (*(volatile FairqFairBy *) &lane->order.ledger.fair_by != FAIRQ_BY_TIME)
		return false;
	LWLockAcquire(&lane->lock, LW_SHARED);
	by_time = is_begun(lane) && is_by_time(lane);
	account = by_time ? account_if_any(lane, group_no) : NULL;
	known = account != NULL && (tenant == FAIRQ_NO_NODE ||
								(account->level.tenant == tenant &&
								 is_resolved(lane, account)));
	lane_no = lane->recovery.lane_no;
	*since = lane->order.ledger.since;
	LWLockRelease(&lane->lock);
	if (!by_time)
		return false;
	if (!known)
		know_tenant(lane, lane_no, group_no, tenant);
	/*
	 * allocate the work only now, because the account may be missing after an
	 * error in the code above
	 */
	if (*work == NULL)
	{
		*work = MemoryContextAllocZero(TopTransactionContext,
									   sizeof(FairqWork));
		(*work)->tenant = FAIRQ_NO_NODE;
	}
	/* if the queue is not time-fair any more, the caller passes no tenant */
	if (tenant != FAIRQ_NO_NODE)
		(*work)->tenant = tenant;
	fairq_work_as_of(*work, lane_no);
	return true;
}

/*
 * When a call claims a task of the group or tenant in a full queue, count the
 * task as running.
 */
static void
begin_in_full(FairqLane *lane, int32 flow, TimestampTz now)
{
	bool		was_in = remove_from_order(lane, flow);

	fairq_account_begins(&lane->order.ledger, account_of(lane, flow),
						 moment(lane, flow, now));
	add_to_order(lane, flow, was_in);
}

/*
 * Record that a task was claimed at its group's turn at the given time.
 * removed: the task runs as long as the transaction.  In a full queue, the
 * task begins to count only now.
 */
void
fairq_work_begun(const FairqTurn *turn, FairqWork **at, TimestampTz now,
				 bool removed)
{
	FairqLane  *lane = turn->lane;
	int32		tenant = turn->charged.tenant;
	TimestampTz since;
	FairqWork  *work;

	if (!prepare(lane, turn->group_no, tenant, at, &since))
		return;
	work = *at;
	if (work->lane_no != turn->lane_no || now <= since)
		return;
	if (turn->in_full && lock_as_of(lane, turn->lane_no))
	{
		begin_in_full(lane, turn->group_no, now);
		if (tenant != FAIRQ_NO_SEAT && is_tenant(lane, tenant))
			begin_in_full(lane, tenant, now);
		LWLockRelease(&lane->lock);
	}
	work->begun++;
	work->begun_since += now - since;
	work->taken += removed;
	work->taken_since += removed ? now - since : 0;
}

/*
 * Record that an attempt of the group has ended, with its pop time and its
 * duration.  lapsed: the attempt's lease, which had that length, has expired
 * instead.
 */
void
fairq_work_ended(FairqLane *lane, int32 group_no, int32 tenant, FairqWork **at,
				 TimestampTz popped_at, int64 took, bool lapsed)
{
	TimestampTz since;
	FairqWork  *work;

	if (!prepare(lane, group_no, tenant, at, &since))
		return;
	work = *at;
	if (lapsed)
		work->lapsed += took;
	else
	{
		work->took += took;
		work->longest = Max(work->longest, took);
	}
	if (popped_at <= since || TIMESTAMP_IS_NOEND(popped_at))
		return;
	if (lapsed)
	{
		work->over++;
		work->over_since += popped_at - since;
		return;
	}
	work->ended++;
	work->ended_since += popped_at - since;
}

/* Apply the work of a transaction to the account of a group or a tenant. */
static void
apply_work(FairqLane *lane, int32 flow, const FairqWork *work, bool committed)
{
	FairqLedger *ledger = &lane->order.ledger;
	FairqAccount *account = account_of(lane, flow);
	FairqMoment at = moment(lane, flow, GetCurrentTimestamp());
	bool		was_in = remove_from_order(lane, flow);

	/*
	 * forgiving requires a search for the other groups' amounts, which most
	 * transactions avoid
	 */
	if (fairq_account_apply(ledger, account, work, committed, at))
		fairq_account_forgive(ledger, account,
							  find_least(lane, flows_of(lane, account),
										 at.now), at);
	add_to_order(lane, flow, was_in);
}

/*
 * Whether the work has no effect in a time-fair lane when its transaction
 * ends.
 */
static bool
is_even(const FairqWork *work, bool committed)
{
	if (!committed)
		return work->begun == 0;
	return work->ended == 0 && work->over == 0 && work->taken == 0 &&
		work->took == 0 && work->longest == 0 && work->lapsed == 0;
}

/*
 * Apply the work of a transaction that has ended. work is NULL if the
 * transaction has none.  Callbacks call this, so it neither fails nor
 * allocates.
 */
void
fairq_work_end(FairqLane *lane, int32 group_no, const FairqWork *work,
			   bool committed)
{
	/* the tasks that a committed pop has begun already count as running */
	if (work == NULL || is_even(work, committed) ||
		!lock_begun(lane))
		return;
	if (is_by_time(lane))
	{
		/* these numbers may belong to other groups by now */
		if (!is_tenant(lane, group_no))
			apply_work(lane, group_no, work, committed);
		if (work->tenant != FAIRQ_NO_NODE &&
			is_tenant(lane, work->tenant))
			apply_work(lane, work->tenant, work, committed);
	}
	LWLockRelease(&lane->lock);
}
