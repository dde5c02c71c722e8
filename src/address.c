/*
 * address.c
 *		Blocks, seats and turns: the arithmetic of the round-robin ID.
 *
 *		addr = group_no + block_length * block		(bigint, from 0 to 2^62 - 1)
 *
 * A group's number is its seat, the same in every block; group_no is below
 * block_length.  Service walks the addresses upwards: one block is one round,
 * and a group's turn in a block comes at its seat.  The service position pos
 * is the highest turn that was taken.
 *
 * The one rule: whatever becomes ready is given
 *
 *	- the group's last address, if that is past pos and fewer than weight
 *	  tasks of the group stand there;
 *	- else the group's seat in the block behind its last address, if that is
 *	  past pos;
 *	- else the first address of the group's seat that is past pos.
 *
 * Why this is fair.  Take two groups g and h of weight 1 that both have ready
 * tasks for a while.  Each has one turn in a block, at its seat, so turns of
 * g and h alternate; at every turn one task is served, since a group with
 * ready tasks is served its first one whatever address that has (see pop.c).
 * A group that comes anew gets its first turn at the next of its seats past
 * pos; every other seat comes by at most once before that.  A group whose
 * turn in the present block is over has its seat at or below pos, so the rule
 * cannot put it into this block again.  With weight w read "up to w tasks"
 * for "one task".
 *
 * Nothing here locks, allocates or fails: the callers hold a lane's lock.
 */
#include "postgres.h"

#include "address.h"

/* The last block in which the group has a seat. */
int64
fairq_last_block(int32 group_no, int64 block_length)
{
	return (FAIRQ_WAITING - 1 - group_no) / block_length;
}

/* FAIRQ_ADDR_NONE if there is no such address. */
int64
fairq_address(int32 group_no, int64 block, int64 block_length)
{
	if (block < 0 || block > fairq_last_block(group_no, block_length))
		return FAIRQ_ADDR_NONE;
	return group_no + block_length * block;
}

/* The highest address of the group. */
int64
fairq_last_address(int32 group_no, int64 block_length)
{
	return fairq_address(group_no, fairq_last_block(group_no, block_length),
						 block_length);
}

/*
 * The first address of the group's seat that is not below from;
 * FAIRQ_ADDR_MAX if there is none.
 */
int64
fairq_turn_from(int32 group_no, int64 from, int64 block_length)
{
	int64		block;
	int64		addr;

	if (from <= group_no)
		return group_no;
	block = fairq_block(from, block_length);
	addr = fairq_address(group_no, block, block_length);
	if (addr != FAIRQ_ADDR_NONE && addr < from)
		addr = fairq_address(group_no, block + 1, block_length);
	return addr == FAIRQ_ADDR_NONE ? FAIRQ_ADDR_MAX : addr;
}

/*
 * The one rule: move *tail on to the address of the group's next task.  False
 * if block numbers are used up; *tail is then as it was.
 */
bool
fairq_next_tail(FairqTail *tail, int32 group_no, int32 weight, int64 pos,
				int64 block_length)
{
	int64		addr;

	if (tail->addr > pos && tail->count < weight)
	{
		tail->count++;
		return true;
	}

	if (tail->addr > pos)
		addr = fairq_address(group_no,
							 fairq_block(tail->addr, block_length) + 1,
							 block_length);
	else
	{
		addr = pos == FAIRQ_ADDR_MAX ? FAIRQ_ADDR_NONE :
			fairq_turn_from(group_no, pos + 1, block_length);
		if (addr == FAIRQ_ADDR_MAX)
			addr = FAIRQ_ADDR_NONE;
	}
	if (addr == FAIRQ_ADDR_NONE)
		return false;
	tail->addr = addr;
	tail->count = 1;
	return true;
}
