/*
 * turns.c
 *		The turns that a call has in flight.
 *
 * A call takes a number of turns of a lane at once, with tasks off the hands
 * of their groups (lane_take.c).  Until a task is claimed or given back, no
 * other call finds it in shared memory.  So the turns are kept here, in static
 * memory.  Unused turns are given back when the call ends, even by an error or
 * the end of the session (transaction.c).  The charge of a lane for tasks that
 * are not served yet is given back too, in a queue with shares (shares.c).
 *
 * Locking: the locks that lane.c takes.  No function here fails, and only the
 * list of wasted turns allocates, never in a callback.
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
	FairqTurn  *reading;		/* the one whose group is being read, or
								 * NULL */
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

/* Take turns with fairq_lane_take(). */
FairqTaken
fairq_turns_take(FairqLane *lane, FairqTaking *taking)
{
	Assert(hand.lane == NULL);
	taking->turns = hand.turns;
	return keep_taken(lane, taking, fairq_lane_take(lane, taking));
}

/* Take turns in a full queue. */
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
 * has no task so far.  So the group's tasks are served in order.  Returns
 * false if there is none.
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
 * Record the turn whose group is being read, to offer the result; NULL: none
 * any more.
 */
void
fairq_turns_reading(FairqTurn *turn)
{
	hand.reading = turn;
}

/* Record that the call stops in a turn, whose rest becomes the next turn. */
void
fairq_turns_stop(FairqTurn *turn)
{
	hand.stopped = turn;
}

/* Give back the rest of a turn. */
static void
give_back(FairqTurn *turn)
{
	if (turn->state.done)
		return;
	/*
	 * A turn with an error is over, so a row that fails repeatedly is not
	 * always next.
	 */
	(void) fairq_lane_turn_end(hand.lane, hand.lane_no, turn, NULL,
							   turn->state.begun);
	/* a call that searched meanwhile has not found it */
	fairq_wake(&fairq_hints_of(hand.lane)->wakeup, 1);
}

/*
 * Give back all turns after the given one, the last turn first.  The given
 * turn yields no task, and is given back next.  So the order is the same as if
 * no turn had been taken.
 */
void
fairq_turns_back_later(const FairqTurn *turn)
{
	while (&hand.turns[hand.n - 1] > turn)
		give_back(&hand.turns[--hand.n]);
}

/*
 * Give back the remaining turns, the last turn first, so that the first turn
 * is next.
 */
void
fairq_turns_back(void)
{
	if (hand.lane == NULL)
		return;
	while (hand.n > 0)
		give_back(&hand.turns[--hand.n]);
	if (hand.stopped != NULL)
		fairq_lane_stopped(hand.lane, hand.lane_no, hand.stopped);
	hand.lane = NULL;
}

/*
 * Make room for another wasted turn in a block.  Turns in blocks that have
 * ended are useless; in one block each group has at most one.  Returns false
 * if there is no memory: then the group loses the turn, which is better than
 * an error.
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
 * Keep a turn that has yielded no task, although the group may have one.  The
 * group gets the turn back when the call leaves the lane.
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
 * Give back all turns in flight of the call, which has ended, possibly by an
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
	 * One is charged, so a lane with a row that fails repeatedly is not always
	 * next.
	 */
	fairq_shares_settle(1, FAIRQ_CHARGE_ONE);
}

/* Give back turns at the end of a transaction. */
const FairqEnding fairq_turns_ending = {.end_call = end_call};
