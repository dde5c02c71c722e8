/*
 * address.h
 *		Lanes, and in a lane blocks, seats and turns: the arithmetic of the
 *		round-robin ID.
 *
 *		addr = group_no + block_length * block		(bigint, 0 to 2^62 - 1)
 *
 * A group's number is its seat, the same in every block; group_no is below
 * block_length.  One block is one round: a group has at most one turn in it.
 * Calls serve one block at a time, B, and visit its seats in ascending order.
 *
 * The one rule: a new task of a group gets
 *
 *	- the group's last address, if fewer than weight tasks of the group have
 *	  this address and its turn is still to come;
 *	- else the group's seat in the block max(p + 1, B).  p is the last block in
 *	  which the group got an address or had a turn.
 *
 * So a group that has had no turn in the present block joins it.  If its seat
 * was passed, it is in front of all others (let_in() in lane_internal.h).
 * This is the rule of the article "An unfair advantage: multi-tenant queues in
 * Postgres".  README has the proof that this rule is fair.
 *
 * No function here locks, allocates or fails.  A caller that moves a tail
 * holds the lane's lock.
 */
#ifndef FAIRQ_ADDRESS_H
#define FAIRQ_ADDRESS_H

#include "datatype/timestamp.h"

/* must stay the same, because the values of fairq.task.lane depend on it */
#define FAIRQ_PRIORITIES	10

/* "no address": a value below every address, and one above every address */
#define FAIRQ_ADDR_NONE		INT64CONST(-1)
#define FAIRQ_ADDR_MAX		PG_INT64_MAX

/*
 * Addresses of tasks in their group's line.  Queued tasks have the address of
 * a turn.  From FAIRQ_RETRIES and from FAIRQ_SCHEDULED on, an address is the
 * millisecond at which the task becomes due, counted from the year 2000.  The
 * low bits are those of the task's id, so tasks of the same millisecond
 * usually have different addresses.  A task whose attempt has failed is
 * retried, and is served before other tasks of its group.
 */
#define FAIRQ_RETRIES		(INT64CONST(1) << 62)
#define FAIRQ_SCHEDULED		(INT64CONST(3) << 61)
#define FAIRQ_TIMED_SIZE	(INT64CONST(1) << 61)
#define FAIRQ_SCHEDULED_BITS	16

/* The regions of a group's line. */
typedef enum FairqRegion
{
	FAIRQ_REGION_QUEUED,		/* addresses of turns */
	FAIRQ_REGION_RETRIED,		/* times at which retried tasks become due */
	FAIRQ_REGION_SCHEDULED,		/* times at which scheduled tasks become due */
	FAIRQ_REGIONS				/* number of regions */
} FairqRegion;

/* a count that leaves no room at the tail, whatever the weight */
#define FAIRQ_TAIL_FULL		PG_INT32_MAX

/* The tail of a group: its last address, and the number of tasks there. */
typedef struct FairqTail
{
	int64		addr;			/* last address; FAIRQ_ADDR_NONE: none */
	int32		count;			/* number of tasks there */
} FairqTail;

/*
 * The number of a lane combines queue and priority, so indexes have one column
 * instead of two.  The maximum of the sequence of queue ids keeps this number
 * within an int.
 */
static inline int32
fairq_task_lane(int32 queue_id, int priority)
{
	return queue_id * FAIRQ_PRIORITIES + priority;
}

static inline int64
fairq_block(int64 addr, int64 block_length)
{
	return addr / block_length;
}

static inline FairqRegion
fairq_region(int64 addr)
{
	return addr < FAIRQ_RETRIES ? FAIRQ_REGION_QUEUED :
		addr < FAIRQ_SCHEDULED ? FAIRQ_REGION_RETRIED : FAIRQ_REGION_SCHEDULED;
}

/* The lowest address of a region. */
static inline int64
fairq_region_from(FairqRegion region)
{
	return region == FAIRQ_REGION_QUEUED ? 0 :
		region == FAIRQ_REGION_RETRIED ? FAIRQ_RETRIES : FAIRQ_SCHEDULED;
}

/* Whether the task has a time instead of a turn. */
static inline bool
fairq_is_timed(int64 addr)
{
	return addr >= FAIRQ_RETRIES;
}

/*
 * The address of a task that becomes due at run_at.  Infinity, and times more
 * than about 1,100 years after 2000, are never due.
 */
static inline int64
fairq_timed_addr(FairqRegion region, TimestampTz run_at, int64 id)
{
	int64		last = (FAIRQ_TIMED_SIZE - 1) >> FAIRQ_SCHEDULED_BITS;
	int64		ms = run_at <= 0 ? 0 : (run_at - 1) / 1000 + 1;
	int64		from = fairq_region_from(region);

	if (ms >= last)
		return from + (FAIRQ_TIMED_SIZE - 2);
	return from + (ms << FAIRQ_SCHEDULED_BITS) +
		(id & ((1 << FAIRQ_SCHEDULED_BITS) - 1));
}

/* Returns a time rounded down, so that an address of that time is due. */
static inline TimestampTz
fairq_as_due(TimestampTz time)
{
	return time - time % 1000;
}

/* Returns the end of the addresses of tasks that are due at the given time. */
static inline int64
fairq_due_end(FairqRegion region, TimestampTz now)
{
	int64		from = fairq_region_from(region);

	return now < 0 ? from :
		from + ((now / 1000 + 1) << FAIRQ_SCHEDULED_BITS);
}

static inline TimestampTz
fairq_due_time(int64 addr)
{
	return ((addr - fairq_region_from(fairq_region(addr))) >>
			FAIRQ_SCHEDULED_BITS) * 1000;
}

/* The last block in which the group has a seat. */
static inline int64
fairq_last_block(int32 group_no, int64 block_length)
{
	return (FAIRQ_RETRIES - 1 - group_no) / block_length;
}

/*
 * The address of the group's turn in a block; FAIRQ_ADDR_NONE if there is
 * none.
 */
static inline int64
fairq_address(int32 group_no, int64 block, int64 block_length)
{
	if (block < 0 || block > fairq_last_block(group_no, block_length))
		return FAIRQ_ADDR_NONE;
	return group_no + block_length * block;
}

/*
 * The one rule: move *tail to the address of the group's next task.  The
 * group's next turn is in next_block at the earliest.  Returns false if block
 * numbers are used up; *tail is then unchanged.
 */
static inline bool
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

#endif							/* FAIRQ_ADDRESS_H */
