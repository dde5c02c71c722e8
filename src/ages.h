/*
 * ages.h
 *		Since when groups wait: those of a lane, and those that are parked.
 */
#ifndef FAIRQ_AGES_H
#define FAIRQ_AGES_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/spin.h"

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

/* wheels of the ages of parked groups, and buckets of each */
#define FAIRQ_WHEELS 11
#define FAIRQ_WHEEL_SIZE 64

/* epochs that are over of which it is kept since when groups waited */
#define FAIRQ_EPOCHS_LEFT 8

/* Since when groups waited at the end of an epoch. */
typedef struct FairqEpochLeft
{
	uint64		epoch;			/* number of the epoch; of the last one: and of
								 * all before */
	TimestampTz since;			/* time before which no group waited that was
								 * parked in it; DT_NOEND: none was */
} FairqEpochLeft;

/*
 * In shared memory, part of a queue: since when its parked groups wait.  All is
 * under mutex.
 */
typedef struct FairqParkedAges
{
	slock_t		mutex;			/* spinlock of all fields */
	uint64		epoch;			/* number of the epoch whose groups these
								 * are */
	int32		ngroups;		/* number of groups */
	int32		npaused;		/* number of those that are paused */
	FairqEpochLeft left[FAIRQ_EPOCHS_LEFT]; /* epochs before, the latest
											 * first */
	int64		head;			/* last bucket of the first wheel, as a number
								 * of such buckets since the year 2000 */
	uint64		used[FAIRQ_WHEELS]; /* buckets whose count is not 0, a bit for
									 * each */
	int32		counts[FAIRQ_WHEELS][FAIRQ_WHEEL_SIZE];	/* number of groups; may
														 * be below 0 for a
														 * moment */
} FairqParkedAges;

/*
 * What is noted of a group that is parked; part of its counter.  The same of one that
 * is throttled; part of its record in the lane.
 */
typedef struct FairqParked
{
	uint16		lanes;			/* lanes that have parked the group, a bit for
								 * each priority */
	bool		paused;			/* true: nothing of it may run, or it is
								 * throttled: it does not count as one without
								 * a slot; meaningful if noted */
	bool		noted;			/* true: it is counted in the ages of its
								 * queue, if the epoch is still the same */
	TimestampTz since;			/* time since which it is counted; meaningful
								 * if noted */
	uint64		epoch;			/* epoch in which it was parked; likewise */
} FairqParked;

extern void fairq_ring_ages_init(FairqRingAges *ages);
extern void fairq_ring_begins(FairqRingAges *ages);
extern void fairq_ring_next_round(FairqRingAges *ages);
extern void fairq_ring_waits(FairqRingAges *ages, uint32 round,
							 TimestampTz since);
extern TimestampTz fairq_ring_since(FairqRingAges *ages);

extern void fairq_parked_ages_init(FairqParkedAges *ages);
extern void fairq_parked_add(FairqParkedAges *ages, const FairqParked *parked);
extern void fairq_parked_remove(FairqParkedAges *ages,
								const FairqParked *parked);
extern TimestampTz fairq_parked_since(FairqParkedAges *ages, uint64 epoch);
extern int32 fairq_parked_count(FairqParkedAges *ages, uint64 epoch);

#endif							/* FAIRQ_AGES_H */
