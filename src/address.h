/*
 * address.h
 *		Blocks, seats and turns: the arithmetic of the round-robin ID.
 */
#ifndef FAIRQ_ADDRESS_H
#define FAIRQ_ADDRESS_H

#include "postgres.h"

/* "no address": below every address, and above every address */
#define FAIRQ_ADDR_NONE		INT64CONST(-1)
#define FAIRQ_ADDR_MAX		PG_INT64_MAX

/*
 * From here on addresses are no turns.  A task of a limited group that has to
 * wait stands here, outside the order of service; see place.c.
 */
#define FAIRQ_WAITING		(INT64CONST(1) << 62)

/* a count that leaves no room at the tail, whatever the weight */
#define FAIRQ_TAIL_FULL		PG_INT32_MAX

/* The tail of a group: its last address, and how many tasks stand there. */
typedef struct FairqTail
{
	int64		addr;			/* FAIRQ_ADDR_NONE: no task */
	int32		count;
} FairqTail;

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
	return FAIRQ_WAITING + Min(order, FAIRQ_ADDR_MAX - 1 - FAIRQ_WAITING);
}

extern int64 fairq_last_block(int32 group_no, int64 block_length);
extern int64 fairq_address(int32 group_no, int64 block, int64 block_length);
extern int64 fairq_turn_from(int32 group_no, int64 from, int64 block_length);
extern bool fairq_next_tail(FairqTail *tail, int32 group_no, int32 weight,
							int64 pos, int64 block_length);

#endif							/* FAIRQ_ADDRESS_H */
