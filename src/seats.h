/*
 * seats.h
 *		Sets of groups of a lane, by their seats.
 */
#ifndef FAIRQ_SEATS_H
#define FAIRQ_SEATS_H

#include "shmem.h"

/* The sets that a lane has; lane.c says what they mean. */
typedef enum FairqSeatSet
{
	FAIRQ_RING,
	FAIRQ_FRONT,
	FAIRQ_SERVED,
	FAIRQ_PARKED,
	FAIRQ_LATE,
	FAIRQ_DUE,
	FAIRQ_COUNTED,
	FAIRQ_LAPSED,
	FAIRQ_LEASED,
	FAIRQ_SEAT_SETS
} FairqSeatSet;

/* no seat */
#define FAIRQ_NO_SEAT (-1)

/* past all seats */
#define FAIRQ_ALL_SEATS (INT64CONST(1) << 31)

/* seats whose bits are part of the lane; each chunk has as many as all before */
#define FAIRQ_FIRST_SEATS 64
#define FAIRQ_CHUNKS 26

/* In shared memory, part of a lane and under its lock. */
typedef struct FairqSeats
{
	int32		n[FAIRQ_SEAT_SETS]; /* number of groups in each set */
	uint64		first[FAIRQ_SEAT_SETS]; /* bits of the first seats, per set */
	int64		first_deadline; /* deadline of the first seats; see
								 * fairq_seats_deadline() */
} FairqSeats;

/* In shared memory, part of a queue: the chunks of all its lanes. */
typedef struct FairqChunks
{
	pg_atomic_uint64 chunk[FAIRQ_CHUNKS];	/* dsa_pointers of the chunks; that
											 * of 0 is unused */
	pg_atomic_uint32 made;		/* number of chunks */
} FairqChunks;

struct FairqLane;

extern void fairq_chunks_init(FairqChunks *chunks);
extern void fairq_chunks_free(FairqChunks *chunks);
extern void fairq_chunks_have(FairqChunks *chunks, int32 seat);
extern uint32 fairq_chunks_map(FairqChunks *chunks);

extern void fairq_seats_init(struct FairqLane *lane);
extern bool fairq_seats_has(struct FairqLane *lane, FairqSeatSet set,
							int32 seat);
extern void fairq_seats_add(struct FairqLane *lane, FairqSeatSet set,
							int32 seat);
extern void fairq_seats_remove(struct FairqLane *lane, FairqSeatSet set,
							   int32 seat);
extern int32 fairq_seats_next(struct FairqLane *lane, FairqSeatSet set,
							  int64 from);
extern void fairq_seats_clear(struct FairqLane *lane, FairqSeatSet set);
extern void fairq_seats_unpark(struct FairqLane *lane, int32 passed);
extern int64 fairq_seats_deadline(struct FairqLane *lane, int32 seat);
extern void fairq_seats_lower_deadline(struct FairqLane *lane, int32 seat,
									   int64 deadline);
extern int64 fairq_seats_lapse(struct FairqLane *lane, int64 now, int32 passed,
							   int64 *ngroups);

#endif							/* FAIRQ_SEATS_H */
