/*
 * tally.c
 *		How many tasks a queue has: numbers that commits keep, and one count that
 *		they begin with.
 *
 * A queue's numbers are exact at each moment at which no transaction has left
 * the array of running ones and not yet ended here.  Nothing is counted when
 * they are asked for.  They are known from the end of a count on, one pass over
 * all rows of fairq.task (tally_count.c), until rows are changed behind fairq's
 * back ("resets" of the domain), or shared memory is lost.
 *
 * The count goes on beside all work.  It sees the rows as of one snapshot S, and
 * each transaction decides at its end whether S has its changes.  The rules:
 *
 * 1. Under the tally's lock, exclusively, the count takes S, copies what S says
 *	  of transactions, and gives the count a number.  The numbers of a queue
 *	  are of that count, and begin at 0, once they are touched after that.
 *
 * 2. A transaction that commits adds what it has changed after it has left the
 *	  array of running ones, under the lock, shared: all of one queue at once,
 *	  and only if S has not seen it end.
 *
 * 3. What S holds stays there after the count is over, until the next one
 *	  begins.
 *
 * 4. The count adds, of each queue, the rows that S sees of it, to numbers that
 *	  are of its own count.  Numbers are known only when it has come by all
 *	  queues.
 *
 * 5. Those of a queue are known if the count has come by it, or if the queue was
 *	  made after the count began: then it has no rows in S.
 *
 * 6. "resets" is read before S is taken.  What is known is so as long as that
 *	  has not changed.
 *
 * Why the numbers are right: let T be a transaction that has changed rows and
 * commits.  If S has seen T end, S sees the rows as T has left them.  T may
 * end here before S is taken, and what it adds is gone by rule 1; or after, be
 * it long after, and it adds nothing by rules 2 and 3.  If S has not seen T end,
 * S sees the rows as T has found them.  T leaves the array of running ones after
 * S was taken, since both go by ProcArrayLock, so it ends here after that,
 * finds S, and adds what it has changed; by rule 1 to numbers that are of this
 * count.  So each row is counted by the number of versions that S sees, or by
 * those who have changed it since, and never by both.  What is taken away by
 * rule 1 is by no number: a queue's mutex lets one backend at a time see that
 * its numbers are of an older count, and the lock lets no count begin meanwhile.
 *
 * Whether S has seen T end is asked of T's xid alone, that of the whole
 * transaction: S has all of these that were running, also when it has not kept
 * all subtransactions.  xids have their epochs here, as a transaction can be
 * held up for long between the array and its end.  The transaction that counts has
 * changed no task when S is taken (tally_count.c).  Its own xid, if it has one, is
 * kept as that of one that S has seen running: so what it changes later is added.
 *
 * A transaction that changes rows by SQL adds nothing, and counts "resets" up at
 * its end.  If S has not seen it end that comes after S was taken, so what was
 * read before differs (rule 6).
 *
 * An abort adds nothing: it leaves the rows as they were.  Of a subtransaction
 * that is aborted the pending changes are gone before the commit.
 *
 * Locking: the tally's lock, an LWLock; under it ProcArrayLock, for S,
 * XidGenLock, for the epoch of its xids, and a queue's mutex, for a few
 * instructions.  Those who hold it shared add numbers and allocate nothing; so
 * it can be taken at the end of a transaction.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

#include "tally.h"

/* The count that this backend is at. */
static struct
{
	FairqTally *tally;			/* NULL: none */
	uint64		number;			/* number of the count */
}			hand;

/* What the transaction that commits has changed of one queue. */
static struct
{
	FairqQueueTally *queue;		/* NULL: nothing */
	int64		n[FAIRQ_TALLIES];
}			sum;

/* Bytes of a tally: there is room for all transactions that can be running. */
Size
fairq_tally_size(void)
{
	return offsetof(FairqTally, running) +
		sizeof(uint32) * GetMaxSnapshotXidCount();
}

void
fairq_tally_init(FairqTally *tally, int32 domain)
{
	memset(tally, 0, sizeof(FairqTally));
	LWLockInitialize(&tally->lock, fairq_tranche(FAIRQ_TALLY_TRANCHE));
	tally->domain = domain;
	pg_atomic_init_u64(&tally->number, 0);
	pg_atomic_init_u64(&tally->known, PG_UINT64_MAX);
}

/* Begin the numbers of a queue that gets its hints: nothing is known of it. */
void
fairq_queue_tally_init(FairqQueueTally *queue, dsa_pointer tally)
{
	SpinLockInit(&queue->mutex);
	queue->tally = tally;
	queue->number = 0;
	pg_atomic_init_u64(&queue->counted, 0);
	memset(queue->n, 0, sizeof(queue->n));
}

/* The tally that the queue is part of.  */
static FairqTally *
tally_of(FairqQueueTally *queue)
{
	return fairq_at(queue->tally);
}

/* Add to the numbers of a queue.  The tally's lock is held. */
static void
add(FairqTally *tally, FairqQueueTally *queue, const int64 *n)
{
	uint64		number = pg_atomic_read_u64(&tally->number);

	SpinLockAcquire(&queue->mutex);
	if (queue->number != number)
	{
		queue->number = number;
		memset(queue->n, 0, sizeof(queue->n));
	}
	for (int i = 0; i < FAIRQ_TALLIES; i++)
		queue->n[i] += n[i];
	SpinLockRelease(&queue->mutex);
}

/*
 * Note that the queue was just made: whenever the last count was begun, it has
 * seen no task of the queue.
 */
void
fairq_queue_tally_empty(FairqQueueTally *queue)
{
	FairqTally *tally = tally_of(queue);

	LWLockAcquire(&tally->lock, LW_SHARED);
	pg_atomic_write_u64(&queue->counted, pg_atomic_read_u64(&tally->number));
	LWLockRelease(&tally->lock);
}

/* Are the numbers of the queue known?  They may not be the next moment. */
bool
fairq_tally_is_known(FairqQueueTally *queue)
{
	FairqTally *tally = tally_of(queue);

	return pg_atomic_read_u64(&tally->known) ==
		pg_atomic_read_u64(&fairq_domain_at(tally->domain)->resets) &&
		pg_atomic_read_u64(&queue->counted) ==
		pg_atomic_read_u64(&tally->number);
}

/* Read the numbers of the queue.  False if they are not known; then *n is any. */
bool
fairq_tally_read(FairqQueueTally *queue, int64 *n)
{
	FairqTally *tally = tally_of(queue);
	bool		known;

	LWLockAcquire(&tally->lock, LW_SHARED);
	known = fairq_tally_is_known(queue);
	SpinLockAcquire(&queue->mutex);
	if (queue->number == pg_atomic_read_u64(&tally->number))
		memcpy(n, queue->n, sizeof(queue->n));
	else
		memset(n, 0, sizeof(queue->n));
	SpinLockRelease(&queue->mutex);
	LWLockRelease(&tally->lock);
	return known;
}

/* --------------------------------------------------------------------- */

/* Has the snapshot of the count seen that transaction end? */
static bool
is_seen(const FairqTally *tally, uint64 xid)
{
	int			low = 0;
	int			high = tally->nrunning;

	if (xid >= tally->xmax)
		return false;
	if (xid < tally->xmin)
		return true;
	while (low < high)
	{
		int			mid = (low + high) / 2;

		if (tally->running[mid] < xid - tally->xmin)
			low = mid + 1;
		else
			high = mid;
	}
	return low == tally->nrunning || tally->running[low] != xid - tally->xmin;
}

/* For callbacks: add what our transaction, which has committed, has changed. */
void
fairq_tally_committed(void)
{
	FairqTally *tally;

	if (sum.queue == NULL)
		return;
	tally = tally_of(sum.queue);
	LWLockAcquire(&tally->lock, LW_SHARED);
	if (!is_seen(tally,
				 U64FromFullTransactionId(GetTopFullTransactionIdIfAny())))
		add(tally, sum.queue, sum.n);
	LWLockRelease(&tally->lock);
	sum.queue = NULL;
}

/*
 * For callbacks: our transaction has committed, and has changed that of the
 * queue.  It is added with what it has changed of the same queue besides; at
 * the latest by fairq_tally_committed().
 */
void
fairq_tally_commit(FairqQueueTally *queue, const int64 *n)
{
	int64		any = 0;

	for (int i = 0; i < FAIRQ_TALLIES; i++)
		any |= n[i];
	if (any == 0)
		return;
	if (sum.queue != queue)
	{
		fairq_tally_committed();
		sum.queue = queue;
		memset(sum.n, 0, sizeof(sum.n));
	}
	for (int i = 0; i < FAIRQ_TALLIES; i++)
		sum.n[i] += n[i];
}

/* --------------------------------------------------------------------- */

static int
compare_xids(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* Keep what the snapshot says of transactions.  The lock is held exclusively. */
static void
keep_snapshot(FairqTally *tally, Snapshot snapshot)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		behind = XidFromFullTransactionId(next) - snapshot->xmax;
	TransactionId own = GetTopTransactionIdIfAny();

	/* both are less than two billion behind the next one */
	tally->xmax = U64FromFullTransactionId(next) - behind;
	tally->xmin = tally->xmax - (uint32) (snapshot->xmax - snapshot->xmin);
	tally->nrunning = snapshot->xcnt;
	for (int i = 0; i < tally->nrunning; i++)
		tally->running[i] = snapshot->xip[i] - snapshot->xmin;
	/* a snapshot has room for all others */
	if (TransactionIdIsValid(own) && TransactionIdPrecedes(own, snapshot->xmax))
		tally->running[tally->nrunning++] = own - snapshot->xmin;
	qsort(tally->running, tally->nrunning, sizeof(uint32), compare_xids);
}

/*
 * Begin a count.  Returns the snapshot as of which rows are to be counted, which
 * is registered; NULL if another backend is at it.  The table of tasks is
 * locked, and our transaction has changed none.
 */
Snapshot
fairq_tally_begin(FairqQueueTally *queue)
{
	FairqTally *tally = tally_of(queue);
	Snapshot	snapshot;

	Assert(hand.tally == NULL);
	/* whatever can fail has been done once */
	(void) GetLatestSnapshot();
	LWLockAcquire(&tally->lock, LW_EXCLUSIVE);
	if (tally->counting)
	{
		LWLockRelease(&tally->lock);
		return NULL;
	}
	hand.tally = tally;
	tally->counting = true;
	hand.number = pg_atomic_add_fetch_u64(&tally->number, 1);
	pg_atomic_write_u64(&tally->known, PG_UINT64_MAX);
	tally->resets =
		pg_atomic_read_u64(&fairq_domain_at(tally->domain)->resets);
	pg_read_barrier();
	snapshot = GetLatestSnapshot();
	keep_snapshot(tally, snapshot);
	LWLockRelease(&tally->lock);
	return RegisterSnapshot(snapshot);
}

/* Add what the count has found of a queue, which the caller has locked. */
void
fairq_tally_found(FairqQueueTally *queue, const int64 *n)
{
	FairqTally *tally = hand.tally;

	LWLockAcquire(&tally->lock, LW_SHARED);
	add(tally, queue, n);
	pg_atomic_write_u64(&queue->counted, hand.number);
	LWLockRelease(&tally->lock);
}

/*
 * End the count.  Without counted it has come to nothing.  For callbacks, too:
 * there may be none.
 */
void
fairq_tally_end(bool counted)
{
	FairqTally *tally = hand.tally;

	if (tally == NULL)
		return;
	LWLockAcquire(&tally->lock, LW_EXCLUSIVE);
	tally->counting = false;
	if (counted)
		pg_atomic_write_u64(&tally->known, tally->resets);
	LWLockRelease(&tally->lock);
	hand.tally = NULL;
}
