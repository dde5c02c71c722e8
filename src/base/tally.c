/*
 * tally.c
 *		The numbers of tasks of a queue: commits maintain them, and one pass
 *		over the table initializes them.
 *
 * A queue's numbers are exact while no transaction has left the array of
 * running transactions (the ProcArray) but not yet ended here.  A transaction
 * ends here when its callbacks add its changes.  If the queue has limits, the
 * same holds for the counters of running tasks of the queue and of its groups
 * (counter.c).  A query that reads the numbers counts no rows.  The numbers
 * are known once a load, one pass over all rows of fairq.task, has ended
 * (load.c).  They become invalid when SQL changes rows ("resets" of the
 * domain), or shared memory is lost.
 *
 * The load runs concurrently with all other work.  It sees the rows as of one
 * snapshot S, and each transaction decides at its end whether S has its
 * changes.  There are two books, each for one load, and both keep all numbers.
 * The last finished load is the current one, whose numbers are used.  The next
 * load takes the other book.  So known numbers stay known while a load runs,
 * even if it fails.  The rules:
 *
 * 1.  Holding the tally's lock exclusively, the load takes S, copies the
 *	  transactions of S into its book, and gets a number.  When a queue or
 *	  counter next uses its numbers in that book, they begin again at 0 and
 *	  belong to that load.
 *
 * 2.  A transaction that commits adds its changes after it has left the
 *	  ProcArray, holding the tally's lock shared.  It adds all changes of a
 *	  queue at once, to each book whose S has not seen the transaction end.
 *	  The numbers of a counter begin again in both books, by rule 1, even if
 *	  nothing is added.
 *
 * 3.  S stays in the book after the load is over, until the next load begins
 *	  in that book.
 *
 * 4.  For each queue and counter, the load adds the rows that S sees.  It adds
 *	  them to numbers of its own load.  It becomes the current load only when
 *	  it has finished all queues.
 *
 * 5.  A queue's numbers are known if the load has counted it.  They are also
 *	  known if the queue was made after the load began, because S then has no
 *	  rows of the queue.
 *
 * 6. "resets" is read before S is taken.  Numbers are known as long as
 *	  "resets" has not changed.  A reader first reads the resets of the known
 *	  numbers, and then the number of the current load.  The end of a load
 *	  writes these two in the opposite order.  So the reader never uses the
 *	  resets of a later load.
 *
 * 7.  A load that reports nothing for a while is abandoned.  Another load
 *	  begins in the same book, by rule 1, and the first load adds nothing more.
 *
 * Why the numbers of a book are right.  Take a transaction T that has changed
 * rows and commits.  If S has seen T end, S sees the rows as T has left them.
 * If T ends here before S is taken, rule 1 discards its additions.  If T ends
 * here later, it adds nothing by rules 2 and 3.  If S has not seen T end, S
 * sees the rows as T has found them.  T leaves the ProcArray after S was
 * taken, since both use ProcArrayLock.  So T ends here after that, finds S,
 * and adds its changes, by rule 1 to numbers of this load.  So each row
 * version counts once: S sees it, or the transaction that made it adds it.
 * Rule 1 loses no other addition.  Under a queue's mutex one backend at a time
 * sees that the numbers are of an older load.  No load begins while that
 * backend has the tally's lock.
 *
 * Only T's top-level xid decides whether S has seen T end.  S contains all
 * top-level xids that were running, even if it does not contain all
 * subtransactions.  xids include their epochs, because a transaction can be
 * delayed for long between leaving the ProcArray and ending here.  The load's
 * own xid, if it has one, is kept as running in S.  The load reads rows as of
 * a command before its transaction's first one, so it sees none of the changes
 * of its own transaction.  These changes are added at the end, like those of
 * other transactions.
 *
 * A transaction that changes rows by SQL adds nothing, and increments "resets"
 * at its end.  If S has not seen it end, the increment comes after S was
 * taken.  So the value that was read before S was taken differs (rule 6).
 *
 * An abort adds nothing, because it leaves the rows as they were.  If a
 * subtransaction aborts, its pending changes are gone before the commit.
 *
 * Counting costs each claim a look-up of its group's counter.  So a queue
 * without limits has no counters except its own numbers.  Calls on such a
 * queue only record that they are in progress ("calls").  A transaction that
 * claims or ends a task in such a call records that until its end
 * ("uncounted").  The first call that sees a limit makes the queue a limited
 * one, for good.  All calls count after that, but some older transactions may
 * be uncounted.  When these are over, the next load is valid for the queue's
 * counters ("counts_since").  Until then limited groups wait.
 *
 * The rules have an exhaustive model: test/model/load.py.
 *
 * Locking: the tally's lock, an LWLock.  Backends that hold it take
 * ProcArrayLock, for S, and XidGenLock, for the epoch of its xids.  They also
 * take the mutex of a queue or counter, for a few instructions.  A backend
 * that holds the tally's lock shared adds numbers and allocates nothing, so
 * callbacks can take it at the end of a transaction.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"

#include "shadow.h"
#include "tally.h"
#include "tools.h"

/* The load that makes the counters of peek's copy known. */
static FairqKnown of_copy;

/* Changes of one queue by the transaction that commits. */
static struct
{
	FairqQueueTally *queue;		/* NULL: there are none */
	int64		n[FAIRQ_TALLIES];
}			sum;

/*
 * Allocate a tally, with room for all transactions that can run at once.  No
 * load is in either book.
 */
dsa_pointer
fairq_tally_make(int32 domain)
{
	Size		nrunning = FAIRQ_BOOKS * GetMaxSnapshotXidCount();
	dsa_pointer ptr = fairq_allocate(offsetof(FairqTally, running) +
									 sizeof(uint32) * nrunning);
	FairqTally *tally = fairq_at(ptr);

	LWLockInitialize(&tally->lock, fairq_tranche(FAIRQ_TALLY_TRANCHE));
	tally->domain = domain;
	pg_atomic_init_u64(&tally->begun_at, 0);
	pg_atomic_init_u64(&tally->seen_at, 0);
	pg_atomic_init_u64(&tally->asked_at, 0);
	pg_atomic_init_u64(&tally->sql_waits_until, 0);
	pg_atomic_init_u64(&tally->number, 0);
	pg_atomic_init_u64(&tally->current, 0);
	pg_atomic_init_u64(&tally->known, PG_UINT64_MAX);
	pg_atomic_init_u64(&tally->passed, PG_UINT64_MAX);
	return ptr;
}

/*
 * Initialize the numbers of tasks of a queue that gets its hints.  They are
 * not known yet.
 */
void
fairq_queue_tally_init(FairqQueueTally *queue, dsa_pointer tally)
{
	SpinLockInit(&queue->mutex);
	queue->tally = tally;
	for (int book = 0; book < FAIRQ_BOOKS; book++)
	{
		queue->number[book] = 0;
		pg_atomic_init_u64(&queue->loaded[book], 0);
	}
	pg_atomic_init_u64(&queue->passed, PG_UINT64_MAX);
	/* no uncounted call has used the queue yet */
	pg_atomic_init_u64(&queue->counts_since, 0);
	pg_atomic_init_u32(&queue->limited, 0);
	pg_atomic_init_u32(&queue->calls, 0);
	pg_atomic_init_u32(&queue->uncounted, 0);
	memset(queue->n, 0, sizeof(queue->n));
}

/* Add to the numbers of a queue in a book.  The tally's lock is held. */
void
fairq_tally_add(FairqTally *tally, FairqQueueTally *queue, int book,
				const int64 *n)
{
	uint64		number = tally->books[book].number;

	SpinLockAcquire(&queue->mutex);
	if (queue->number[book] != number)
	{
		queue->number[book] = number;
		memset(queue->n[book], 0, sizeof(queue->n[book]));
	}
	for (int i = 0; i < FAIRQ_TALLIES; i++)
		queue->n[book][i] += n[i];
	SpinLockRelease(&queue->mutex);
}

/*
 * Record that the queue was just made, so no load can have seen one of its
 * tasks.
 */
void
fairq_queue_tally_empty(FairqQueueTally *queue)
{
	FairqTally *tally = fairq_tally_of(queue);

	LWLockAcquire(&tally->lock, LW_SHARED);
	for (int book = 0; book < FAIRQ_BOOKS; book++)
		pg_atomic_write_u64(&queue->loaded[book], tally->books[book].number);
	pg_atomic_write_u64(&queue->passed, fairq_tally_resets(tally));
	LWLockRelease(&tally->lock);
}

/*
 * Record that shared memory has data of the queue from now on.  If the current
 * load has skipped no queue with tasks, this queue had no tasks.
 */
void
fairq_queue_tally_entered(FairqQueueTally *queue)
{
	FairqTally *tally = fairq_tally_of(queue);
	uint64		current;
	int			book;

	LWLockAcquire(&tally->lock, LW_SHARED);
	current = pg_atomic_read_u64(&tally->current);
	book = fairq_book_of(current);
	if (current != 0 && !tally->books[book].skips)
	{
		pg_atomic_write_u64(&queue->loaded[book], current);
		pg_atomic_write_u64(&queue->passed,
							pg_atomic_read_u64(&tally->passed));
	}
	LWLockRelease(&tally->lock);
}

/* Whether the numbers of the queue are known, and by which load (*current). */
static bool
is_known(FairqTally *tally, FairqQueueTally *queue, uint64 *current)
{
	uint64		known = pg_atomic_read_u64(&tally->known);
	pg_atomic_uint64 *loaded;

	/* fairq_load_end() writes these two in the opposite order */
	pg_read_barrier();
	*current = pg_atomic_read_u64(&tally->current);
	loaded = &queue->loaded[fairq_book_of(*current)];
	return known == fairq_tally_resets(tally) &&
		pg_atomic_read_u64(loaded) == *current;
}

/*
 * Whether the numbers of the queue are known.  The numbers may become invalid
 * at any moment.
 */
bool
fairq_tally_is_known(FairqQueueTally *queue)
{
	uint64		current;

	return is_known(fairq_tally_of(queue), queue, &current);
}

/* Returns the load that makes counters of the queue known, if any. */
FairqKnown
fairq_tally_now(FairqQueueTally *queue)
{
	FairqKnown	now;

	if (fairq_in_shadow(queue))
		return of_copy;
	now.known = is_known(fairq_tally_of(queue), queue, &now.number) &&
		pg_atomic_read_u64(&queue->counts_since) < now.number;
	return now;
}

/*
 * Prepare to copy the queue.  The copy's counters are known if the queue's
 * counters are known now.
 */
void
fairq_tally_keep(FairqQueueTally *queue)
{
	of_copy = fairq_tally_now(queue);
}

/*
 * Read the numbers of the queue.  Returns false if they are not known; then *n
 * is undefined.
 */
bool
fairq_tally_read(FairqQueueTally *queue, int64 *n)
{
	FairqTally *tally = fairq_tally_of(queue);
	uint64		current;
	bool		known;
	int			book;

	LWLockAcquire(&tally->lock, LW_SHARED);
	known = is_known(tally, queue, &current);
	book = fairq_book_of(current);
	SpinLockAcquire(&queue->mutex);
	if (queue->number[book] == current)
		memcpy(n, queue->n[book], sizeof(queue->n[book]));
	else
		memset(n, 0, sizeof(queue->n[book]));
	SpinLockRelease(&queue->mutex);
	LWLockRelease(&tally->lock);
	return known;
}

/* --------------------------------------------------------------------- */

/* Whether the snapshot of a book has seen our transaction end. */
static bool
is_seen(FairqTally *tally, int book)
{
	FullTransactionId own = GetTopFullTransactionIdIfAny();
	uint64		xid = U64FromFullTransactionId(own);
	const FairqBook *seen = &tally->books[book];
	uint32		behind = (uint32) (xid - seen->xmin);

	if (xid >= seen->xmax)
		return false;
	return xid < seen->xmin ||
		bsearch(&behind, fairq_tally_running(tally, book), seen->nrunning,
				sizeof(uint32), fairq_compare_uint32) == NULL;
}

/* For callbacks: add the changes of our transaction, which has committed. */
void
fairq_tally_committed(void)
{
	FairqTally *tally;

	if (sum.queue == NULL)
		return;
	tally = fairq_tally_of(sum.queue);
	LWLockAcquire(&tally->lock, LW_SHARED);
	for (int book = 0; book < FAIRQ_BOOKS; book++)
		if (!is_seen(tally, book))
			fairq_tally_add(tally, sum.queue, book, sum.n);
	LWLockRelease(&tally->lock);
	sum.queue = NULL;
}

/*
 * For callbacks: add a change of the queue by our transaction, which has
 * committed.  All changes of a queue are added together, by
 * fairq_tally_committed() at the latest.
 */
void
fairq_tally_commit(FairqQueueTally *queue, const int32 *n)
{
	int32		any = 0;

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

/*
 * Make each load invalid for the queue's counters while an uncounted call or
 * transaction is in progress.  The caller may begin such a call, and then
 * checks whether the queue is limited.  A backend that relies on counters
 * makes the queue limited first, and then checks for such calls.  So at least
 * one of the two detects the other.
 */
void
fairq_tally_count_nothing(FairqQueueTally *queue)
{
	if (pg_atomic_read_u64(&queue->counts_since) != FAIRQ_NO_LOAD)
		pg_atomic_write_u64(&queue->counts_since, FAIRQ_NO_LOAD);
	pg_memory_barrier();
}

/*
 * Whether the next load, or the last one, is valid for the queue's counters.
 * It is valid once all uncounted calls and transactions are over.  A
 * transaction is recorded as uncounted before its call is over.
 */
bool
fairq_tally_counts(FairqQueueTally *queue)
{
	uint64		none = FAIRQ_NO_LOAD;
	uint64		number;

	if (pg_atomic_read_u64(&queue->counts_since) != FAIRQ_NO_LOAD)
		return true;
	if (pg_atomic_read_u32(&queue->limited) == 0 ||
		pg_atomic_read_u32(&queue->calls) != 0)
		return false;
	pg_memory_barrier();
	if (pg_atomic_read_u32(&queue->uncounted) != 0)
		return false;
	pg_memory_barrier();
	number = pg_atomic_read_u64(&fairq_tally_of(queue)->number);
	(void) pg_atomic_compare_exchange_u64(&queue->counts_since, &none, number);
	return true;
}

/*
 * Begin a call.  limited: the call's settings have a limit.  Returns whether
 * the call counts running tasks.
 */
bool
fairq_tally_call_begin(FairqQueueTally *queue, bool limited)
{
	fairq_tally_limit(queue, limited);
	if (pg_atomic_read_u32(&queue->limited) == 0)
	{
		/*
		 * count the call first, then check again; a backend that relies on
		 * counters takes these steps in the opposite order
		 */
		pg_atomic_fetch_add_u32(&queue->calls, 1);
		fairq_tally_count_nothing(queue);
		if (pg_atomic_read_u32(&queue->limited) == 0)
			return false;
		pg_atomic_fetch_sub_u32(&queue->calls, 1);
	}
	(void) fairq_tally_counts(queue);
	return true;
}

/*
 * For callbacks: prevent loads from beginning until fairq_tally_leave(), while
 * our transaction, which has committed, adds to counters of the queue.
 */
void
fairq_tally_enter(FairqQueueTally *queue, FairqAdds *adds)
{
	FairqTally *tally = fairq_tally_of(queue);

	LWLockAcquire(&tally->lock, LW_SHARED);
	for (int book = 0; book < FAIRQ_BOOKS; book++)
	{
		adds->number[book] = tally->books[book].number;
		adds->adds[book] = !is_seen(tally, book);
	}
}
