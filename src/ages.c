/*
 * ages.c
 *		Since when groups wait: those of a lane, and those that are parked.
 *
 * What operators want to know first is for how long the oldest ready task has
 * waited.  Found exactly, that is a look at each group, or a heap that each claim
 * changes.  Here it is known with an error that does not matter to who waits
 * long, at the price of a comparison for each claim.
 *
 * Of a group its entry knows a time since when, at the earliest, its first
 * ready task has waited (FairqGroup.turn.since): when the group has nothing and a
 * task is published, the time at which that one became ready; from then on that of
 * the task that was claimed last at a turn of it, queued or scheduled.  For a line is
 * served in the order in which its tasks became ready, but for what was committed
 * late, so that the next one has not waited longer.  What was begun and comes
 * again, retried or expired, is served before its time, and says nothing.  A task
 * that is published with an earlier time, as one that is put back, takes the time
 * back.  So the time is at most one task too early.
 *
 * Of a lane there are two such times, one for the blocks ("rounds") of even
 * number and one for those of odd number.  Each is the lowest of what was noted
 * in its round: the time of each task that is claimed at a turn of the round, if
 * the group may have more; that of each group that comes into the ring, and of
 * each that stays there after a turn at which nothing of that kind was claimed.
 * The time of a round is forgotten when the next round but one begins, and both
 * when a group comes into a ring that is empty.
 *
 * No group in the ring has waited since before the lower of the two.  It has
 * come in this round or in the one before, and that was noted; or it was in the
 * ring during all of the round before, and so had a turn in it, as each group has
 * one in each block; what was claimed at that turn, or the group's own time, was
 * noted.  The group's first task now has not waited longer than that.  As to
 * how much too early it can be: a group's note is of a claim in this round or the
 * one before, so it is of one of its last two turns.
 *
 * Of turns in flight nothing is noted before they have claimed.  If a round begins
 * meanwhile their groups are missing, for that moment.  What it notes
 * of a round that is over by then, and the next one, too, is left out.
 *
 * What is not known (an entry was evicted, and its turn came to nothing) is not
 * noted: the group is missing until its next turn.  A turn that goes back after a
 * publication has come in between two turns of the same call may leave the group's
 * time too late, until its next claim.  After a restart it is not
 * known since when what is read off the table waits.  It is noted as of the
 * moment at which recovery began: so ages begin there, until two rounds have
 * passed.
 *
 * A group that is parked has no turns, for hours maybe, so its own time counts, as
 * it was when the group was parked: it has been served nothing since.  The time is
 * kept in its counter, and the queue counts such times in buckets.  There are
 * wheels of 64 buckets: the first has buckets of 1/8 s, and goes 8 s back from its
 * head, which is the latest time that was counted; each other one has buckets of
 * eight times the width.  A time is counted by the first wheel that goes back so
 * far.  When the head moves on, buckets that fall out of a wheel are added to those
 * of the next one, into which they fit eight by eight.  So where a time is counted
 * follows from the time and the head, however often the head has moved, and a time
 * that is taken out again is found without having been kept.  A time that is not
 * in the first wheel is older than the head by eight of its buckets at least.  So
 * the age of the oldest is found at once, with an error of 1/8 s, or 1/8 of
 * itself.
 *
 * Adding a time and taking it out are said by different backends, and the second
 * may come first: then a count is below 0 for a moment.  All parked groups are taken
 * back at once when settings change, and forgotten when hints become void.  Both
 * begin another epoch; the first time of an epoch throws those of older ones away.
 * Each lane takes its groups back when a call next comes by it, which may be epochs
 * later: so of some epochs the oldest time is kept, and of all before these one.
 *
 * Under the mutex a time costs a step for each bucket that falls out of a wheel, which
 * each time does ten times at most, and the oldest one a step for each wheel.
 *
 * Locking: of a lane, the lane's lock, but that times are lowered, by a
 * compare-and-exchange, without it; a call that lowers the time of a round that has
 * just been forgotten makes the next one too early, for a round.  Of parked groups
 * the mutex, a spinlock, under which nothing else is taken; it may be taken under
 * a lane's lock.  Nothing here allocates, waits or fails.
 */
#include "postgres.h"

#include "access/xact.h"
#include "port/pg_bitutils.h"

#include "ages.h"

/* Buckets of the first wheel are 2^17 microseconds wide, those of the next 2^20. */
#define FIRST_BITS 17
#define WHEEL_BITS 3

/* Begin anew: nothing is noted. */
void
fairq_ring_ages_init(FairqRingAges *ages)
{
	pg_atomic_init_u32(&ages->round, 0);
	pg_atomic_init_u64(&ages->since[0], (uint64) DT_NOEND);
	pg_atomic_init_u64(&ages->since[1], (uint64) DT_NOEND);
	ages->known_at = DT_NOBEGIN;
}

/* Forget what was noted: the ring was empty. */
void
fairq_ring_begins(FairqRingAges *ages)
{
	pg_atomic_write_u64(&ages->since[0], (uint64) DT_NOEND);
	pg_atomic_write_u64(&ages->since[1], (uint64) DT_NOEND);
}

/* Begin the next round. */
void
fairq_ring_next_round(FairqRingAges *ages)
{
	uint32		round = pg_atomic_read_u32(&ages->round) + 1;

	pg_atomic_write_u32(&ages->round, round);
	pg_atomic_write_u64(&ages->since[round & 1], (uint64) DT_NOEND);
}

/*
 * Note that a group waits since then, or later; DT_NOBEGIN: that is not known.  It
 * has come in that round, or had a turn in it.  Needs no lock.
 */
void
fairq_ring_waits(FairqRingAges *ages, uint32 round, TimestampTz since)
{
	pg_atomic_uint64 *at = &ages->since[round & 1];
	uint64		present = pg_atomic_read_u64(at);

	if (since >= (TimestampTz) present || since == DT_NOBEGIN ||
		pg_atomic_read_u32(&ages->round) - round > 1)
		return;
	while (since < (TimestampTz) present &&
		   !pg_atomic_compare_exchange_u64(at, &present, (uint64) since))
		;
}

/* No group in the ring waits since before that; DT_NOEND: nothing is noted. */
TimestampTz
fairq_ring_since(FairqRingAges *ages)
{
	return Min((TimestampTz) pg_atomic_read_u64(&ages->since[0]),
			   (TimestampTz) pg_atomic_read_u64(&ages->since[1]));
}

/* --------------------------------------------------------------------- */

void
fairq_parked_ages_init(FairqParkedAges *ages)
{
	memset(ages, 0, sizeof(FairqParkedAges));
	SpinLockInit(&ages->mutex);
	for (int i = 0; i < FAIRQ_EPOCHS_LEFT; i++)
		ages->left[i].since = DT_NOEND;
}

/* The bucket of the first wheel in which a time is, as a number. */
static int64
bucket_of(TimestampTz since)
{
	return Max(since, 0) >> FIRST_BITS;
}

/*
 * The buckets of a wheel that are used, the first bit for the oldest one that it can
 * have if that is its last: the bucket of bit i is last - (FAIRQ_WHEEL_SIZE - 1) + i.
 */
static uint64
from_oldest(const FairqParkedAges *ages, int wheel, int64 last)
{
	int			first = (last + 1) % FAIRQ_WHEEL_SIZE;
	uint64		used = ages->used[wheel];

	return first == 0 ? used :
		(used >> first) | (used << (FAIRQ_WHEEL_SIZE - first));
}

/*
 * Add to the count of the bucket that is, in that wheel, the one of that number; or,
 * if the wheel does not go back so far, in the first that does.
 */
static void
count(FairqParkedAges *ages, int wheel, int64 bucket, int32 n)
{
	int32	   *at;
	int			slot;

	while (wheel < FAIRQ_WHEELS - 1 &&
		   (ages->head >> (WHEEL_BITS * wheel)) - bucket >= FAIRQ_WHEEL_SIZE)
	{
		bucket >>= WHEEL_BITS;
		wheel++;
	}
	slot = bucket % FAIRQ_WHEEL_SIZE;
	at = &ages->counts[wheel][slot];
	*at += n;
	if (*at != 0)
		ages->used[wheel] |= UINT64CONST(1) << slot;
	else
		ages->used[wheel] &= ~(UINT64CONST(1) << slot);
}

/*
 * Move the head on.  The last wheel comes first: what falls out of one finds the next
 * one in order.
 */
static void
move_on(FairqParkedAges *ages, int64 head)
{
	int64		before = ages->head;

	ages->head = head;
	for (int wheel = FAIRQ_WHEELS - 2; wheel >= 0; wheel--)
	{
		int64		last = before >> (WHEEL_BITS * wheel);
		uint64		left = from_oldest(ages, wheel, last);

		for (; left != 0; left &= left - 1)
		{
			int64		bucket = last - (FAIRQ_WHEEL_SIZE - 1) +
				pg_rightmost_one_pos64(left);
			int			slot = bucket % FAIRQ_WHEEL_SIZE;
			int32		n = ages->counts[wheel][slot];

			if ((head >> (WHEEL_BITS * wheel)) - bucket < FAIRQ_WHEEL_SIZE)
				break;
			ages->counts[wheel][slot] = 0;
			ages->used[wheel] &= ~(UINT64CONST(1) << slot);
			count(ages, wheel, bucket, n);
		}
	}
}

/* Returns the beginning of the oldest bucket that counts any; DT_NOEND: none. */
static TimestampTz
oldest(const FairqParkedAges *ages)
{
	for (int wheel = FAIRQ_WHEELS - 1; wheel >= 0; wheel--)
	{
		int64		last = ages->head >> (WHEEL_BITS * wheel);
		uint64		left = from_oldest(ages, wheel, last);

		for (; left != 0; left &= left - 1)
		{
			int64		bucket = last - (FAIRQ_WHEEL_SIZE - 1) +
				pg_rightmost_one_pos64(left);

			/* one that is below 0 for a moment is passed over */
			if (ages->counts[wheel][bucket % FAIRQ_WHEEL_SIZE] > 0)
				return bucket << (FIRST_BITS + WHEEL_BITS * wheel);
		}
	}
	return DT_NOEND;
}

/*
 * Go on to that epoch, if it is a later one.  False if the present one is later.  The
 * mutex is held.
 */
static bool
enter_epoch(FairqParkedAges *ages, uint64 epoch)
{
	if (epoch > ages->epoch)
	{
		FairqEpochLeft *left = ages->left;
		FairqEpochLeft *last = &left[FAIRQ_EPOCHS_LEFT - 1];
		TimestampTz before = last->since;

		memmove(left + 1, left, sizeof(*left) * (FAIRQ_EPOCHS_LEFT - 1));
		last->since = Min(last->since, before);
		left->epoch = ages->epoch;
		left->since = oldest(ages);
		ages->epoch = epoch;
		ages->head = 0;
		ages->ngroups = ages->npaused = 0;
		memset(ages->used, 0, sizeof(ages->used));
		memset(ages->counts, 0, sizeof(ages->counts));
	}
	return epoch == ages->epoch;
}

/* Since when groups waited at the end of an epoch that is over. */
static TimestampTz
left_since(const FairqParkedAges *ages, uint64 epoch)
{
	for (int i = 0; i < FAIRQ_EPOCHS_LEFT - 1; i++)
		if (ages->left[i].epoch <= epoch)
			return ages->left[i].epoch == epoch ? ages->left[i].since :
				DT_NOEND;
	return ages->left[FAIRQ_EPOCHS_LEFT - 1].since;
}

/* Count a group that was parked. */
void
fairq_parked_add(FairqParkedAges *ages, const FairqParked *parked)
{
	int64		bucket = bucket_of(parked->since);

	SpinLockAcquire(&ages->mutex);
	if (enter_epoch(ages, parked->epoch))
	{
		if (bucket > ages->head)
			move_on(ages, bucket);
		count(ages, 0, bucket, 1);
		ages->ngroups++;
		ages->npaused += parked->paused;
	}
	SpinLockRelease(&ages->mutex);
}

/* Count it no more. */
void
fairq_parked_remove(FairqParkedAges *ages, const FairqParked *parked)
{
	int64		bucket = bucket_of(parked->since);

	SpinLockAcquire(&ages->mutex);
	if (enter_epoch(ages, parked->epoch))
	{
		if (bucket > ages->head)
			move_on(ages, bucket);
		count(ages, 0, bucket, -1);
		ages->ngroups--;
		ages->npaused -= parked->paused;
	}
	SpinLockRelease(&ages->mutex);
}

/*
 * No group that was parked in that epoch, and is still, waits since before that;
 * DT_NOEND: none is.  Of an epoch that is over: none of those that were parked at its
 * end.
 */
TimestampTz
fairq_parked_since(FairqParkedAges *ages, uint64 epoch)
{
	TimestampTz since;

	SpinLockAcquire(&ages->mutex);
	since = epoch == ages->epoch ? oldest(ages) :
		epoch < ages->epoch ? left_since(ages, epoch) : DT_NOEND;
	SpinLockRelease(&ages->mutex);
	return since;
}

/* How many groups are parked in that epoch that are not paused. */
int32
fairq_parked_count(FairqParkedAges *ages, uint64 epoch)
{
	int32		n;

	SpinLockAcquire(&ages->mutex);
	n = epoch == ages->epoch ? ages->ngroups - ages->npaused : 0;
	SpinLockRelease(&ages->mutex);
	return Max(n, 0);
}
