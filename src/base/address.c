/*
 * address.c
 *		Blocks, seats and turns: the arithmetic of the round-robin ID.
 *
 *		addr = group_no + block_length * block		(bigint, 0 to 2^62 - 1)
 *
 * A group's number is its seat, the same in every block; group_no is below
 * block_length.  One block is one round: a group has at most one turn in it.
 * Calls serve one block at a time, B, and visit its seats in ascending order.
 *
 * The one rule: a new task of a group gets
 *
 *	- the group's last address, if fewer than weight tasks of the group are
 *	  there and that turn is still to come;
 *	- else the group's seat in the block max(p + 1, B).  p is the last block in
 *	  which the group got an address or had a turn.
 *
 * So a group that has had no turn in the present block joins it.  If its seat
 * was passed, it is in front of all others (let_in() in lane_internal.h).
 * This is the rule of the article "An unfair advantage: multi-tenant queues in
 * Postgres".
 *
 * Why this is fair.  Take two groups g and h of weight 1 that both have ready
 * tasks for a while.  Each group has at most one turn in a block.  The block
 * does not end before each group with ready tasks has had its turn.  At every
 * turn one task is served, since a group is served its first ready task,
 * whatever its address (turn.c).  In a block that lies wholly within a stretch
 * of services, both are served once.  In the first and last block, each is
 * served at most once.  So the counts of g and h differ by at most two over
 * any stretch.  They differ by at most one over a stretch that begins when
 * both have been served since they became active.  From then on their turns
 * alternate, in the order of their seats.  That is the bound of start-time
 * fair queueing, whose virtual time is B.  With weights, read "up to w tasks"
 * for "one task".
 *
 * No function here locks, allocates or fails.  A caller that moves a tail
 * holds the lane's lock.
 */
#include "postgres.h"

#include "address.h"

/* The last block in which the group has a seat. */
int64
fairq_last_block(int32 group_no, int64 block_length)
{
	return (FAIRQ_RETRIES - 1 - group_no) / block_length;
}

/*
 * The address of the group's turn in a block; FAIRQ_ADDR_NONE if there is
 * none.
 */
int64
fairq_address(int32 group_no, int64 block, int64 block_length)
{
	if (block < 0 || block > fairq_last_block(group_no, block_length))
		return FAIRQ_ADDR_NONE;
	return group_no + block_length * block;
}

/*
 * The one rule: move *tail to the address of the group's next task.  The
 * group's next turn is in next_block at the earliest.  False if block numbers
 * are used up; *tail is then unchanged.
 */
bool
fairq_next_tail(FairqTail *tail, int32 group_no, int32 weight,
				int64 next_block, int64 block_length)
{
	int64		last = tail->addr == FAIRQ_ADDR_NONE ? -1 :
		fairq_block(tail->addr, block_length);
	int64		addr;

	if (last >= next_block && tail->count < weight)
	{
		tail->count++;
		return true;
	}
	addr = fairq_address(group_no, Max(last + 1, next_block), block_length);
	if (addr == FAIRQ_ADDR_NONE)
		return false;
	tail->addr = addr;
	tail->count = 1;
	return true;
}
