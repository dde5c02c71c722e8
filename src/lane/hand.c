/*
 * hand.c
 *		The hand of a group: its next few ready tasks.
 *
 * A hand has the addresses of up to eight queued tasks and where their rows
 * are.  It is filled by the transaction that makes a task ready, once that is
 * visible (the task is "published"); by a pop that aborts; and by a pop that
 * finds it used up and reads on in the index.  A hand is a hint: a pop that
 * claims what it has taken looks at the row.
 *
 * What holds of a group that has an entry: a task of it that is ready, and was
 * published, is in one of these places:
 *
 * - in the hand;
 * - at or past the address upto, from which the next reading begins;
 * - in flight: a call has taken it, and will claim it or give it back;
 * - being changed by an open transaction, which will publish it if it aborts.
 *
 * The rules that see to that:
 *
 * - A task that falls out of a full hand lowers upto to its address.  A task
 *	 that is published at or past upto is not taken in: it will be read.  And
 *	 only tasks below upto are served from the hand: so all are in the order of
 *	 their addresses.
 *
 * - A reading begins at upto and takes no lock.  At its end it is offered:
 *	 what was found goes into the hand, and upto to where the reading has
 *	 ended.  Tasks that were published since it began it may have missed.  So
 *	 "lost" is the lowest address that was published since then and is not in
 *	 the hand, and an offer counts only up to there.
 *
 * - One reader at a time may offer, the one whose pid is in the entry: lost is
 *	 about its reading.  Other readers use what they read for themselves, and
 *	 offer nothing.  So no call waits for a reader, and none has to read again
 *	 because something was published.
 *
 * - A reading that was not to the end of the line says nothing of the address at
 *	 which it stopped.
 *
 * - If there is no such task where a hand or a reading says, the row was
 *	 moved, or the index entry is dead.  Then all of the hand may be as old: it
 *	 is dropped, and upto goes down to the lowest address in it.  The next
 *	 reading looks at rows, not at index entries only: else it would find the
 *	 same again.
 *
 * A task that is published, read or missed twice does no harm.  test/model
 * explores all interleavings of this exhaustively, and shows for each rule
 * what goes wrong without it.
 *
 * Locking: the caller has the lane's lock and the mutex of the entry's group
 * set.  Nothing here allocates, waits or fails.
 */
#include "postgres.h"

#include "hand.h"

/*
 * Is one before the other in the order of service, which is that of addresses,
 * and of ids at one address?
 */
static bool
is_before(const FairqItem *a, const FairqItem *b)
{
	return a->addr != b->addr ? a->addr < b->addr :
		(int32) (a->order - b->order) < 0;
}

static bool
is_same_item(const FairqItem *a, const FairqItem *b)
{
	return a->addr == b->addr &&
		ItemPointerEquals((ItemPointer) &a->tid, (ItemPointer) &b->tid);
}

/* Note that a task that was published stands there, and is not in the hand. */
static void
note_lost(FairqGroup *group, int64 addr)
{
	group->lost = Min(group->lost, addr);
}

/* Move the items to the beginning of the hand, off which some were taken. */
static void
close_up(FairqGroup *group)
{
	if (group->in_hand.first > 0)
		memmove(group->hand, &group->hand[group->in_hand.first],
				sizeof(FairqItem) * group->in_hand.n);
	group->in_hand.first = 0;
}

/* Put a task that was published into the hand, if it belongs there. */
static void
put_item(FairqGroup *group, const FairqItem *item)
{
	int			at = group->in_hand.n;

	if (item->addr >= group->upto)
	{
		note_lost(group, item->addr);
		return;
	}
	close_up(group);
	for (int i = 0; i < group->in_hand.n; i++)
		if (is_same_item(&group->hand[i], item))
			return;
	while (at > 0 && is_before(item, &group->hand[at - 1]))
		at--;
	if (group->in_hand.n == FAIRQ_HAND)
	{
		int64		out = at == FAIRQ_HAND ? item->addr :
			group->hand[FAIRQ_HAND - 1].addr;

		group->upto = Min(group->upto, out);
		note_lost(group, out);
		if (at == FAIRQ_HAND)
			return;
		group->in_hand.n--;
	}
	memmove(&group->hand[at + 1], &group->hand[at],
			sizeof(FairqItem) * (group->in_hand.n - at));
	group->hand[at] = *item;
	group->in_hand.n++;
}

/*
 * Add ready tasks to the hand, as far as they belong there; there may be
 * others from more on.
 */
void
fairq_hand_add(FairqGroup *group, const FairqItem *items, int n, int64 more)
{
	for (int i = 0; i < n; i++)
		put_item(group, &items[i]);
	if (more == FAIRQ_ADDR_MAX)
		return;
	while (group->in_hand.n > 0 &&
		   group->hand[group->in_hand.first +
					   group->in_hand.n - 1].addr >= more)
		group->in_hand.n--;
	group->upto = Min(group->upto, more);
	note_lost(group, more);
}

/* Take the first ones off the hand.  Returns how many there were. */
int
fairq_hand_take(FairqGroup *group, int most, FairqItem *out)
{
	const FairqItem *from = &group->hand[group->in_hand.first];
	int			n = 0;

	while (n < most && n < group->in_hand.n && from[n].addr < group->upto)
	{
		out[n] = from[n];
		n++;
	}
	group->in_hand.n -= n;
	group->in_hand.first = group->in_hand.n == 0 ? 0 :
		group->in_hand.first + n;
	return n;
}

/* Drop the hand: a task that it had at that address is not there. */
void
fairq_hand_vanished(FairqGroup *group, int64 addr)
{
	int64		low = Min(addr, fairq_hand_low(group));

	group->in_hand.n = group->in_hand.first = 0;
	group->upto = low;
	note_lost(group, low);
	group->by_row = true;
}

/* Begin a reading from upto on.  Returns whether it may be offered. */
bool
fairq_hand_read_begin(FairqGroup *group, int pid)
{
	if (group->pid.reader != 0 && group->pid.reader != pid)
		return false;
	group->pid.reader = pid;
	group->lost = FAIRQ_ADDR_MAX;
	return true;
}

/*
 * Offer a reading, whose reader is the caller, which has found these tasks, in
 * order, and nothing else up to end.  The first ones go to the caller at once,
 * the next ones into the hand.  Returns how many the caller got.
 */
int
fairq_hand_offer(FairqGroup *group, const FairqItem *found, int nfound,
				 int64 end, int most, FairqItem *out)
{
	FairqItem	old[FAIRQ_HAND];
	int			nold = group->in_hand.n;
	int			o = 0;
	int			f = 0;
	int			n = 0;

	memcpy(old, &group->hand[group->in_hand.first], sizeof(FairqItem) * nold);
	group->in_hand.n = group->in_hand.first = 0;
	group->pid.reader = 0;
	group->by_row = false;
	group->upto = Min(end, group->lost);
	group->lost = FAIRQ_ADDR_MAX;
	while (o < nold || f < nfound)
	{
		const FairqItem *next;

		if (o < nold && f < nfound && is_same_item(&old[o], &found[f]))
		{
			next = &old[o++];
			f++;
		}
		else if (f == nfound || (o < nold && is_before(&old[o], &found[f])))
			next = &old[o++];
		else
			next = &found[f++];
		if (next->addr >= group->upto)
			break;
		if (n < most)
			out[n++] = *next;
		else if (group->in_hand.n < FAIRQ_HAND)
			group->hand[group->in_hand.n++] = *next;
		else
		{
			group->upto = next->addr;
			break;
		}
	}
	return n;
}
