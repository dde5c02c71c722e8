/*
 * shown.c
 *		What a transaction's own pops are shown of its pending changes.
 *
 * A pop sees what its own transaction has enqueued, purged and leased: that is
 * published before the pop searches, and again at the commit.  As long as no
 * other backend has made it void (fairq_lane_narrowings()), each change is shown
 * once.
 *
 * Locking: lanes' locks, one at a time.
 */
#include "postgres.h"

#include "pending_internal.h"
#include "shown.h"

/* queues of which a transaction remembers what its own pops were shown */
#define MAX_SHOWN 16

/* A queue whose changes our own pops were shown, but for those in unshown. */
typedef struct Shown
{
	FairqHints *hints;
	uint16		lanes;			/* in which lanes, as bits */
	uint64		at[FAIRQ_PRIORITIES];	/* their narrowings then */
} Shown;

static Shown shown[MAX_SHOWN];
static int	nshown = 0;
static int	next_shown = 0;		/* the one to give up when all are in use */

/* What our own pops were shown of a queue; nothing, if it is new. */
static Shown *
shown_of(FairqHints *hints, bool *is_new)
{
	Shown	   *found;

	*is_new = false;
	for (int i = 0; i < nshown; i++)
		if (shown[i].hints == hints)
			return &shown[i];
	*is_new = true;
	if (nshown < MAX_SHOWN)
		found = &shown[nshown++];
	else
	{
		found = &shown[next_shown];
		next_shown = (next_shown + 1) % MAX_SHOWN;
	}
	found->hints = hints;
	found->lanes = 0;
	return found;
}

/* Publish for our own pops what other backends find after the commit. */
static void
show_news(Shown *to, FairqPending *pending, const FairqNews *news)
{
	FairqLane  *lane = pending->lane;
	uint16		bit = 1 << lane->priority;

	if ((to->lanes & bit) == 0)
	{
		to->at[lane->priority] = fairq_lane_narrowings(lane);
		to->lanes |= bit;
	}
	fairq_news_publish(pending->lane, pending->group_no, news, false);
	fairq_pending_is_shown(pending);
}

/*
 * Show our own pops what this transaction has enqueued, purged and leased,
 * before they search.  Other backends find nothing of it, and a commit
 * publishes it again.  It is shown once in each lane, unless another backend
 * has made it void since.  Returns whether there were tasks to speak of.
 */
bool
fairq_pending_show(FairqHints *hints)
{
	Shown	   *to;
	bool		again;
	bool		any = false;

	if (fairq_pending_count() == 0)
		return false;
	to = shown_of(hints, &again);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		if ((to->lanes & (1 << priority)) != 0 &&
			pg_atomic_read_u64(&hints->lanes[priority].narrowing.n) !=
			to->at[priority])
		{
			to->lanes &= ~(1 << priority);
			again = true;
		}
	}
	if (again)
	{
		uint16		still = to->lanes;

		for (int i = 0; i < fairq_pending_count(); i++)
		{
			FairqPending *pending = fairq_pending_at(i);

			if (fairq_hints_of(pending->lane) == hints &&
				(still & (1 << pending->lane->priority)) == 0 &&
				!fairq_news_is_none(&pending->at_commit.news))
			{
				any |= fairq_news_has_tasks(&pending->at_commit.news);
				show_news(to, pending, &pending->at_commit.news);
			}
		}
	}
	for (int32 i = fairq_pending_first_unshown(); i >= 0;)
	{
		FairqPending *pending = fairq_pending_at(i);

		i = pending->unshown.next;
		if (fairq_hints_of(pending->lane) == hints)
		{
			any |= fairq_news_has_tasks(&pending->at_commit.not_shown);
			show_news(to, pending, &pending->at_commit.not_shown);
		}
	}
	return any;
}

/* Forget what was shown of a queue: its hints may be another's from now on. */
void
fairq_pending_forget_shown(FairqHints *hints)
{
	for (int i = 0; i < nshown; i++)
		if (shown[i].hints == hints)
			shown[i].hints = NULL;
}

/* Forget all that was shown: the transaction is over. */
void
fairq_shown_forget(void)
{
	nshown = next_shown = 0;
}
