/*
 * lane_served.c
 *		How much the groups of a lane were served, and how far they are apart.
 *
 * What the view fairq.fairness and the functions behind group_shares() show of lanes
 * that are not fair by tasks.  Who has got least is among the first groups of each
 * level of the ordered set, and who has got most among the last ones.  Groups that
 * have left the ring and are still in the set are passed over, MOST_LOOKED_AT of them
 * at most: if that is not enough it is not known.
 *
 * Copies only: nothing is changed.
 *
 * Locking: the lane's lock, shared, for one lane or one group at a time.
 */
#include "postgres.h"

#include "lane_internal.h"
#include "lane_served.h"

/* groups that are looked at for each end of the set */
#define MOST_LOOKED_AT 1000

/* A group's account; NULL: it has none, or one that is void. */
static const FairqAccount *
account_if_any(FairqLane *lane, int32 group_no)
{
	const FairqAccount *account =
		fairq_order_record(&lane->order.set, group_no);

	return account != NULL && account->lane_no == lane->recovery.lane_no ?
		account : NULL;
}

/* What a group has got, per weight. */
static double
got_of(FairqLane *lane, const FairqAccount *account, TimestampTz now)
{
	const FairqLedger *ledger = &lane->order.ledger;

	return ledger->fair_by == FAIRQ_BY_TIME ?
		fairq_account_got(ledger, account, now) / USECS_PER_SEC :
		fairq_amount_value(account->node.rank.amount);
}

/*
 * Find what one of the groups that wait has got that has got least; or, with most,
 * most.  False: there is none, or it is not known.
 */
static bool
find_end(FairqLane *lane, bool most, TimestampTz now, double *end)
{
	FairqOrder *set = &lane->order.set;
	FairqRank	at = {.level = most ? PG_INT32_MAX : -1};
	bool		found = false;
	int			nlevels = 0;

	for (int n = 0; n < MOST_LOOKED_AT && nlevels < FAIRQ_MOST_LEVELS; n++)
	{
		int32		group_no = most ? fairq_order_before(set, &at) :
			fairq_order_after(set, &at);
		const FairqAccount *account;
		double		got;

		if (group_no == FAIRQ_NO_NODE)
			return found;
		account = account_if_any(lane, group_no);
		if (account == NULL)
			return false;
		at = account->node.rank;
		if (!has(lane, FAIRQ_RING, group_no))
			continue;
		got = got_of(lane, account, now);
		if (!found || (most ? got > *end : got < *end))
			*end = got;
		found = true;
		nlevels++;
		/* on to the next level */
		at.amount.whole = most ? PG_INT64_MIN : PG_INT64_MAX;
	}
	return found && nlevels == FAIRQ_MOST_LEVELS;
}

/* Copy how fair the lane is. */
void
fairq_lane_fairness(FairqLane *lane, TimestampTz now, FairqFairness *fairness)
{
	const FairqLedger *ledger = &lane->order.ledger;

	memset(fairness, 0, sizeof(*fairness));
	LWLockAcquire(&lane->lock, LW_SHARED);
	fairness->begun = is_begun(lane);
	if (fairness->begun)
	{
		fairness->fair_by = ledger->fair_by;
		fairness->known = lane->recovery.known == FAIRQ_ALL_SEATS;
		fairness->nready = lane->seats.n[FAIRQ_RING];
	}
	if (fairness->begun && !is_by_turns(lane))
	{
		fairness->ranked = fairness->nready > 0 &&
			find_end(lane, false, now, &fairness->least) &&
			find_end(lane, true, now, &fairness->most);
		fairness->longest = ledger->longest;
	}
	LWLockRelease(&lane->lock);
}

/* Copy what a group was served. */
void
fairq_lane_served(FairqLane *lane, TimestampTz now, int32 group_no,
				  FairqGroupServed *served)
{
	const FairqAccount *account = NULL;

	memset(served, 0, sizeof(*served));
	LWLockAcquire(&lane->lock, LW_SHARED);
	if (is_begun(lane) && !is_by_turns(lane))
		account = account_if_any(lane, group_no);
	if (account != NULL)
	{
		served->any = true;
		served->got = got_of(lane, account, now);
		served->running = account->running;
		served->level = account->running / account->weight;
	}
	LWLockRelease(&lane->lock);
}
