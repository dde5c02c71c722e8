/*
 * ages.c
 *		Since when groups wait: of a lane the one that waits longest.
 *
 * What operators want to know first is for how long the oldest ready task has
 * waited.  Found exactly, that is a look at each group, or a heap that each claim
 * changes.  Here it is known with an error that does not matter to who waits
 * long, at the price of a comparison for each claim.
 *
 * Of a group its entry knows a time since when, at the earliest, its first
 * ready task has waited (FairqGroup.since): when the group has nothing and a task
 * is published, the time at which that one became ready; from then on that of the
 * task that was claimed last at a turn of it, queued or scheduled.  For a line is
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
 * Between taking turns and claiming a call has noted nothing.  If a round begins
 * meanwhile the groups in its hands are missing, for that moment.  What it notes
 * of a round that is over by then, and the next one, too, is left out.
 *
 * What is not known (an entry was evicted, and its turn came to nothing) is not
 * noted: the group is missing until its next turn.  After a restart it is not
 * known since when what is read off the table waits.  It is noted as of the
 * moment at which recovery began: so ages begin there, until two rounds have
 * passed.
 *
 * Locking: the lane's lock, but that times are lowered, by a compare-and-exchange,
 * without it.  A call that lowers the time of a round that has just been forgotten
 * makes the next one too early, for a round.
 */
#include "postgres.h"

#include "ages.h"

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
