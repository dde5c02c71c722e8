/*
 * ages.h
 *		Since when groups wait: of a lane the one that waits longest.
 */
#ifndef FAIRQ_AGES_H
#define FAIRQ_AGES_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

/* In shared memory, part of a lane: since when the groups in its ring wait. */
typedef struct FairqRingAges
{
	pg_atomic_uint32 round;		/* number of blocks that were begun; written
								 * under the lane's lock */
	pg_atomic_uint64 since[2];	/* TimestampTz since which the first task waits
								 * of what was noted in rounds of even number,
								 * and of odd number, in the last of these;
								 * DT_NOEND: nothing was noted */
	TimestampTz known_at;		/* time at which the recovery of the lane
								 * began; under the lane's lock */
} FairqRingAges;

extern void fairq_ring_ages_init(FairqRingAges *ages);
extern void fairq_ring_begins(FairqRingAges *ages);
extern void fairq_ring_next_round(FairqRingAges *ages);
extern void fairq_ring_waits(FairqRingAges *ages, uint32 round,
							 TimestampTz since);
extern TimestampTz fairq_ring_since(FairqRingAges *ages);

#endif							/* FAIRQ_AGES_H */
