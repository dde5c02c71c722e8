/*
 * turns.c
 *		The turns that a call has in flight.
 *
 * A call takes a number of turns of a lane at once, with tasks off the hands
 * of their groups (lane_take.c).  Until a task is claimed, shared memory does
 * not have it.  So the turns are kept here, in static memory.  The rest of
 * them is given back when the call ends, also by an error or the end of the
 * session (transaction.c).  So is the charge of a lane for tasks that are not
 * served yet, in a queue with shares (shares.c).
 *
 * Locking: the locks that lane.c takes.  Nothing here fails, and only the list
 * of wasted turns allocates, never in a callback.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "transaction.h"
#include "turns.h"

/* room for wasted turns at first */
#define FIRST_VAIN 64

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

/* A turn without a task, to be given back when the call leaves the lane. */
typedef struct TurnInVain
{
	int32		group_no;
	int64		addr;
	int64		block;			/* as in FairqTurn */
} TurnInVain;

static struct
{
	FairqLane  *lane;
	uint32		lane_no;
	int			n;
	int			most;
	TurnInVain *turns;			/* in TopMemoryContext, kept for later calls */
}			vain;

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
 * Take a task from a later turn of the same group in flight, since this turn
 * has no task so far.  The group's tasks are served in order.  False if there
 * is none.
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

/*
 * Note that the group of that turn is being read, to be offered; NULL: no
 * more.
 */
void
fairq_turns_reading(FairqTurn *turn)
{
	hand.reading = turn;
}

/* Note that the call stops in that turn, whose rest becomes the next one. */
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
			(void) fairq_lane_turn_end(hand.lane, hand.lane_no, turn, NULL);
		else if (!turn->state.done)
			fairq_lane_turn_back(hand.lane, hand.lane_no, turn);
		/* a call that looked meanwhile has not found it */
		if (!turn->state.done)
			fairq_wake(&fairq_hints_of(hand.lane)->wakeup, 1);
	}
	if (hand.stopped != NULL)
		fairq_lane_stopped(hand.lane, hand.lane_no, hand.stopped);
	hand.lane = NULL;
}

/*
 * Make room for another wasted turn in that block.  Those in blocks that have
 * ended are of no use any more; in one block each group has at most one.
 * False if there is no memory: then the group loses the turn, which is better
 * than an error.
 */
static bool
have_space(int64 block)
{
	TurnInVain *turns;
	int			most = Max(2 * vain.most, FIRST_VAIN);
	int			n = 0;

	if (vain.n < vain.most)
		return true;
	for (int i = 0; i < vain.n; i++)
		if (vain.turns[i].block == block)
			vain.turns[n++] = vain.turns[i];
	vain.n = n;
	if (n < vain.most / 2)
		return true;
	turns = MemoryContextAllocExtended(TopMemoryContext,
									   sizeof(TurnInVain) * most,
									   MCXT_ALLOC_NO_OOM);
	if (turns == NULL)
		return n < vain.most;
	if (vain.turns != NULL)
	{
		memcpy(turns, vain.turns, sizeof(TurnInVain) * n);
		pfree(vain.turns);
	}
	vain.turns = turns;
	vain.most = most;
	return true;
}

/*
 * Keep a turn that has yielded no task, though the group may have one: the
 * group gets it back when the call leaves the lane.
 */
void
fairq_turns_in_vain(FairqLane *lane, uint32 lane_no, const FairqTurn *turn)
{
	if (!have_space(turn->block))
		return;
	vain.lane = lane;
	vain.lane_no = lane_no;
	vain.turns[vain.n++] = (TurnInVain)
	{
		.group_no = turn->group_no,.addr = turn->addr,.block = turn->block
	};
}

/* Give back wasted turns: the call leaves the lane. */
void
fairq_turns_leave(void)
{
	while (vain.n > 0)
	{
		const TurnInVain *turn = &vain.turns[--vain.n];

		fairq_lane_part_back(vain.lane, vain.lane_no, turn->group_no,
							 turn->addr);
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
