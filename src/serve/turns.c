/*
 * turns.c
 *		The turns that a call has in flight.
 *
 * A call takes a number of turns of a lane at once, with tasks off the hands
 * of their groups (lane_take.c).  Until a task is claimed shared memory has
 * forgotten it.  So the turns are kept here, in static memory, and what is
 * left of them is given back when the call is through with them, or an error
 * or the end of the session has ended it (transaction.c).  So is what a lane
 * was charged for tasks that are not served yet, in a queue with shares (shares.c).
 *
 * Locking: what lane.c takes.  Nothing here fails, and only the list of doubtful
 * turns allocates, never in a callback.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "transaction.h"
#include "turns.h"

/* doubtful turns that there is room for at first */
#define FIRST_DOUBTFUL 64

/* The call in progress. */
static struct
{
	FairqLane  *lane;			/* NULL: nothing is in flight */
	uint32		lane_no;
	int			n;
	FairqTurn	turns[FAIRQ_MAX_TURNS];
	FairqTurn  *reading;		/* the one whose group is just read, or NULL */
	FairqTurn  *stopped;		/* the one in which the call has stopped, or
								 * NULL */
}			hand;

/*
 * A turn that came to nothing, since it was not known whether there is a slot.
 */
typedef struct DoubtfulTurn
{
	int32		group_no;
	int64		addr;
	int64		block;			/* as in FairqTurn */
} DoubtfulTurn;

static struct
{
	FairqLane  *lane;
	uint32		lane_no;
	int			n;
	int			most;
	DoubtfulTurn *turns;		/* in TopMemoryContext, kept for later calls */
}			doubtful;

static FairqTaken
keep_taken(FairqLane *lane, const FairqTaking *taking, FairqTaken result)
{
	if (result == FAIRQ_TAKEN)
	{
		hand.lane = lane;
		hand.lane_no = taking->lane_no;
		hand.n = taking->n;
		hand.stopped = NULL;
	}
	return result;
}

/* Take turns, as fairq_lane_take() does. */
FairqTaken
fairq_turns_take(FairqLane *lane, FairqTaking *taking)
{
	Assert(hand.lane == NULL);
	taking->turns = hand.turns;
	return keep_taken(lane, taking, fairq_lane_take(lane, taking));
}

/* The same in a full queue. */
FairqTaken
fairq_turns_take_in_full(FairqLane *lane, FairqTaking *taking,
						 int32 tried_seat, int32 *nlapsed)
{
	Assert(hand.lane == NULL);
	taking->turns = hand.turns;
	return keep_taken(lane, taking,
					  fairq_lane_take_in_full(lane, taking, tried_seat,
											  nlapsed));
}

/*
 * Take a task from a later turn of the same group in flight, as this one has
 * come to nothing so far: the group's tasks are served in order.  False if
 * there is none.
 */
bool
fairq_turns_bring_forward(FairqTurn *turn)
{
	for (FairqTurn *later = turn + 1; later < hand.turns + hand.n; later++)
	{
		if (later->group_no != turn->group_no ||
			later->queued.next == later->queued.n)
			continue;
		turn->queued.items[0] = later->queued.items[later->queued.next++];
		turn->queued.next = 0;
		turn->queued.n = 1;
		later->queued.more = true;
		return true;
	}
	return false;
}

/* Note that the group of that turn is being read, to be offered. */
void
fairq_turns_reading(FairqTurn *turn)
{
	hand.reading = turn;
}

/* Note that the reading is over. */
void
fairq_turns_read(void)
{
	hand.reading = NULL;
}

/* Note that the call stops in that turn, of which the rest is to be the next one. */
void
fairq_turns_stop(FairqTurn *turn)
{
	hand.stopped = turn;
}

/* Give back what is left; the last turn first, so that the first is next. */
void
fairq_turns_back(void)
{
	if (hand.lane == NULL)
		return;
	for (int i = hand.n - 1; i >= 0; i--)
	{
		FairqTurn  *turn = &hand.turns[i];

		/*
		 * One in which an error has occurred is over: a row that fails again
		 * and again must not be the next one each time.
		 */
		if (turn->state.begun && !turn->state.done)
			fairq_lane_turn_end(hand.lane, hand.lane_no, turn, NULL);
		else if (!turn->state.done)
			fairq_lane_turn_back(hand.lane, hand.lane_no, turn);
		/* a call that came by meanwhile has not found it */
		if (!turn->state.done)
			fairq_wake(&fairq_hints_of(hand.lane)->wakeup, 1);
	}
	if (hand.stopped != NULL)
		fairq_lane_stopped(hand.lane, hand.lane_no, hand.stopped);
	hand.lane = NULL;
}

/*
 * Have room for another doubtful turn, in that block.  Those in blocks that were
 * left since are of no use any more; of one block there is one for each group at
 * most.  False if there is no memory: the turn is lost to the group, which is
 * better than an error.
 */
static bool
have_space(int64 block)
{
	DoubtfulTurn *turns;
	int			most = Max(2 * doubtful.most, FIRST_DOUBTFUL);
	int			n = 0;

	if (doubtful.n < doubtful.most)
		return true;
	for (int i = 0; i < doubtful.n; i++)
		if (doubtful.turns[i].block == block)
			doubtful.turns[n++] = doubtful.turns[i];
	doubtful.n = n;
	if (n < doubtful.most / 2)
		return true;
	turns = MemoryContextAllocExtended(TopMemoryContext,
									   sizeof(DoubtfulTurn) * most,
									   MCXT_ALLOC_NO_OOM);
	if (turns == NULL)
		return n < doubtful.most;
	if (doubtful.turns != NULL)
	{
		memcpy(turns, doubtful.turns, sizeof(DoubtfulTurn) * n);
		pfree(doubtful.turns);
	}
	doubtful.turns = turns;
	doubtful.most = most;
	return true;
}

/*
 * Keep a turn to be given back: the counter of its group was in doubt
 * (counter.c), or an expired or outdated task was left to others (claim.c).  Such a group
 * has had no turn in the block, so the turn is the group's again when the call
 * is through with the lane.  Not earlier, or the call would come by for ever.
 */
void
fairq_turns_doubtful(FairqLane *lane, uint32 lane_no, const FairqTurn *turn)
{
	if (turn->in_full || turn->charge.tie != 0 ||
		!fairq_lane_cut_short(lane, lane_no, turn) ||
		turn->state.continued || !have_space(turn->block))
		return;
	doubtful.lane = lane;
	doubtful.lane_no = lane_no;
	doubtful.turns[doubtful.n++] = (DoubtfulTurn)
	{
		.group_no = turn->group_no, .addr = turn->addr, .block = turn->block
	};
}

/* Give back doubtful turns: the call is through with the lane. */
void
fairq_turns_leave(void)
{
	while (doubtful.n > 0)
	{
		doubtful.n--;
		fairq_lane_unserve(doubtful.lane, doubtful.lane_no,
						   doubtful.turns[doubtful.n].group_no,
						   doubtful.turns[doubtful.n].addr);
	}
}

/*
 * Give back all that the call has in flight, which has ended, maybe by an
 * error.
 */
static void
end_call(void)
{
	if (hand.lane != NULL && hand.reading != NULL)
		fairq_lane_read_failed(hand.lane, hand.lane_no,
							   hand.reading->group_no);
	hand.reading = NULL;
	fairq_turns_back();
	fairq_turns_leave();

	/*
	 * One is charged: a lane with a row that fails again and again must not be
	 * the next one each time.
	 */
	fairq_shares_settle(1, FAIRQ_CHARGE_ONE);
}

/* At the end of a transaction turns are given back. */
const FairqEnding fairq_turns_ending = {.end_call = end_call};
