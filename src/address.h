/*
 * address.h
 *		Lanes, and in a lane blocks, seats and turns: the arithmetic of the
 *		round-robin ID.
 */
#ifndef FAIRQ_ADDRESS_H
#define FAIRQ_ADDRESS_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* never another number: it is in fairq.task.lane */
#define FAIRQ_PRIORITIES	10

/* "no address": below every address, and above every address */
#define FAIRQ_ADDR_NONE		INT64CONST(-1)
#define FAIRQ_ADDR_MAX		PG_INT64_MAX

/*
 * From here on addresses are no turns.  A task of a limited group that has to
 * wait stands here, outside the order of service; see place.c.
 */
#define FAIRQ_WAITING		(INT64CONST(1) << 62)

/*
 * From here on a task is scheduled: it stands at the millisecond at which it
 * falls due, counted from the year 2000.  The low bits are those of its id, so
 * that many that fall due together can be told apart.  That is outside the
 * order of service, too.
 */
#define FAIRQ_SCHEDULED		(INT64CONST(3) << 61)
#define FAIRQ_SCHEDULED_BITS	16

/* a count that leaves no room at the tail, whatever the weight */
#define FAIRQ_TAIL_FULL		PG_INT32_MAX

/* The tail of a group: its last address, and how many tasks stand there. */
typedef struct FairqTail
{
	int64		addr;			/* FAIRQ_ADDR_NONE: no task */
	int32		count;
} FairqTail;

/*
 * The number of a lane: one column of the indexes instead of two.  Their
 * sequence keeps the ids of queues so low that it fits.
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

static inline bool
fairq_is_waiting(int64 addr)
{
	return addr >= FAIRQ_WAITING;
}

/* Waiting tasks stand in the order of a number from the ids' sequence. */
static inline int64
fairq_waiting_addr(int64 order)
{
	return FAIRQ_WAITING + Min(order, FAIRQ_SCHEDULED - 1 - FAIRQ_WAITING);
}

static inline bool
fairq_is_scheduled(int64 addr)
{
	return addr >= FAIRQ_SCHEDULED;
}

/* Infinity, and what is some 1,100 years ahead, is never due. */
static inline int64
fairq_scheduled_addr(TimestampTz run_at, int64 id)
{
	int64		last = (FAIRQ_ADDR_MAX - FAIRQ_SCHEDULED) >> FAIRQ_SCHEDULED_BITS;
	int64		ms = run_at <= 0 ? 0 : (run_at - 1) / 1000 + 1;

	if (ms >= last)
		return FAIRQ_ADDR_MAX - 1;
	return FAIRQ_SCHEDULED + (ms << FAIRQ_SCHEDULED_BITS) +
		(id & ((1 << FAIRQ_SCHEDULED_BITS) - 1));
}

/* What is due at that moment stands below this. */
static inline int64
fairq_due_end(TimestampTz now)
{
	return now < 0 ? FAIRQ_SCHEDULED : FAIRQ_SCHEDULED +
		((now / 1000 + 1) << FAIRQ_SCHEDULED_BITS);
}

static inline TimestampTz
fairq_due_time(int64 addr)
{
	return ((addr - FAIRQ_SCHEDULED) >> FAIRQ_SCHEDULED_BITS) * 1000;
}

extern int64 fairq_last_block(int32 group_no, int64 block_length);
extern int64 fairq_address(int32 group_no, int64 block, int64 block_length);
extern int64 fairq_last_address(int32 group_no, int64 block_length);
extern int64 fairq_turn_from(int32 group_no, int64 from, int64 block_length);
extern bool fairq_next_tail(FairqTail *tail, int32 group_no, int32 weight,
							int64 pos, int64 block_length);

#endif							/* FAIRQ_ADDRESS_H */
