/*
 * counter.c
 *		Counters of running tasks and of starts, with their limits and paces.
 *
 * A group limited to c never has more than c tasks running.  A task runs from
 * its claim to the moment at which its end is visible.  That moment is the
 * commit of the transaction that finished or took it, or the abort of the
 * transaction that claimed it.  Before a claim, the group's counter decides
 * whether the task may start.  It has two numbers.  "committed" is the number
 * of leased tasks according to commits (tally.c).  "open" is the number of
 * slots of calls and transactions that have not ended here: a transaction ends
 * here when it closes its slots.
 *
 * 1.  Enter: under the mutex, open is incremented if committed + open stays
 *	  within the limit.  Then the row is claimed.
 *
 * 2.  A slot that was not used, or whose claim is rolled back, is closed: open
 *	  is decremented.
 *
 * 3.  A transaction that commits closes its slots once the commit is visible.
 *	  In the same critical section it adds the change in the number of its
 *	  leased tasks.  It adds this change to each of the two books whose load
 *	  has not seen the commit (tally.c).  The end of a task is such a change;
 *	  until that change is applied, committed includes the task.  A task that
 *	  was taken, or claimed and finished in one transaction, changes nothing.
 *
 * 4.  A counter's numbers in a book are invalid if they are from an older load
 *	  than the book's.  committed then begins at 0.  The counter is known when
 *	  the load is over, if the load is valid for the queue's counters
 *	  (tally.c).  A call relies on a counter only for the load whose number it
 *	  has read.  If the counter's numbers in that load's book are of another
 *	  load, the call treats the counter as unknown.
 *
 *	  The sum committed + open is never too low.  Take a moment at which the
 *	  counter is known, and a task that is running.  A transaction C has
 *	  claimed the task, and no end of the task is visible.  If C has not
 *	  ended here, the task is in open, which no load touches.  If C has
 *	  ended, and the load's snapshot had not seen this, C has added the task
 *	  to committed when it closed its slot.  If the snapshot had seen C end,
 *	  the row was leased in it, and the load found it.  A transaction E that
 *	  has since ended the task subtracts it at E's own end, which is not
 *	  visible yet.  If no transaction is between its visible end and its end
 *	  here, the counter is exact, as the same cases show.
 *
 * 5.  Park: if a known counter shows that a group has no free slot, the pop
 *	  that finds this puts the group aside.  The next backend to close a slot
 *	  takes the group back into service.  Both happen under the mutex, so no
 *	  group is stranded.
 *
 * 6.  Settings change at a commit.  The transaction that changed them
 *	  increments their version after its commit is visible.  Then it takes back
 *	  the group that they belong to, or all groups if they are the queue's.  A
 *	  pop parks a group only if the settings that the pop has read are of the
 *	  present version.  The pop reads that version under the mutex.  A pop with
 *	  older settings could park a group that has just got a slot, and no
 *	  backend would take it back.  A pop also gives its slot back if the
 *	  settings changed while it entered.  So each pop that enters after a
 *	  change respects the new settings.
 *
 * 7.  A counter is freed if it is 0 according to the last finished load and
 *	  any later one.  A new counter would have the same numbers.
 *
 * 8.  Start: once it has a slot, each claim also takes a start from the
 *	  counter, if the pace allows one.  The algorithm is GCRA (the generic
 *	  cell rate algorithm of ATM).  Each counter keeps one number: the time
 *	  that the last start would have if starts were evenly spaced.  The next
 *	  start is allowed one gap later.  After a long pause that time is as far
 *	  in the past as the burst allows.  So in any stretch of time t there are
 *	  at most burst + t / gap starts.  Time is that of the monotonic clock,
 *	  in nanoseconds, read under the mutex.  So a step of the wall clock does
 *	  not start more tasks.
 *
 *	  If a task was claimed, the start is not given back, since otherwise two
 *	  tasks could start within one gap.  If no task was claimed, the start
 *	  goes back unless other tasks have started since.  Neither a reset nor a
 *	  load invalidates starts, since only shared memory has them.  A restart
 *	  loses them, and a promoted standby has none.  So a new counter begins
 *	  as if a task had just started when its queue's hints were created, or
 *	  were first found after a promotion.  Right after that moment the whole
 *	  burst is used up.  A counter is freed only when its whole burst is
 *	  available, because a new counter is then equivalent.
 *
 * 9.  Throttle: if a group may not start a task yet, the pop that finds this
 *	  puts it aside until it may start one.  A call that gives a start back
 *	  takes the group back into service.  Both happen under the mutex.
 *
 * tally.c describes how a queue gets its first limit while uncounted claims
 * are in progress.  The protocol has exhaustive models: test/model/load.py and
 * test/model/limits.py.
 *
 * Locking: the counter's mutex, a spinlock, for a few instructions.  It may be
 * taken under a lane's lock.  Nothing here allocates or fails.
 */
#include "postgres.h"

#include "counter.h"

/* Record that no start after the given time is known. */
static void
starts_init(FairqStarts *starts, int64 since)
{
	starts->last = since;
	starts->full_at = FAIRQ_LONG_AGO;
	starts->lanes = 0;
}

/* The time at which the next task may start; it may be in the past. */
static int64
starts_next(const FairqStarts *starts, const FairqPace *pace)
{
	return pace->gap == 0 ? FAIRQ_LONG_AGO : starts->last + pace->gap;
}

/*
 * Initialize a counter of a queue in the given tenure.  The only known fact is
 * that no task has started since the queue's hints were created.
 */
void
fairq_counter_init(FairqCounter *counter, uint64 tenure, int64 born)
{
	memset(counter, 0, sizeof(FairqCounter));
	SpinLockInit(&counter->mutex);
	counter->tenure = tenure;
	starts_init(&counter->starts, born);
}

/* Copy a counter.  No backend uses the copy yet. */
void
fairq_counter_copy(FairqCounter *copy, FairqCounter *counter)
{
	SpinLockAcquire(&counter->mutex);
	*copy = *counter;
	SpinLockRelease(&counter->mutex);
	SpinLockInit(&copy->mutex);
	copy->pins = 0;
}

/* Forget all starts before the given time; no task has started since. */
void
fairq_counter_begin_starts(FairqCounter *counter, int64 since)
{
	SpinLockAcquire(&counter->mutex);
	starts_init(&counter->starts, since);
	SpinLockRelease(&counter->mutex);
}

/*
 * Returns the book of a load.  Resets the book's numbers to 0, unless they are
 * of that load or a later one.  The mutex is held.
 */
static int
go_on_to(FairqCounter *counter, uint64 number)
{
	int			book = fairq_book_of(number);

	if (counter->number[book] < number)
	{
		counter->number[book] = number;
		counter->committed[book] = 0;
	}
	return book;
}

/*
 * Compute an upper bound of the running tasks.  Returns false if the bound is
 * not known.  The mutex is held.
 */
static bool
count_running(FairqCounter *counter, FairqKnown now, int64 *running)
{
	int			book = fairq_book_of(now.number);

	if (now.known)
		(void) go_on_to(counter, now.number);
	*running = (int64) counter->committed[book] + counter->open;
	return now.known && counter->number[book] == now.number;
}

/* Whether the start times of tasks still matter.  The mutex is held. */
static bool
starts_matter(const FairqCounter *counter)
{
	return counter->starts.full_at != FAIRQ_LONG_AGO &&
		counter->starts.full_at > fairq_monotonic();
}

/*
 * Whether the counter can be freed without losing data.  current is the number
 * of the last load that is over.
 */
bool
fairq_counter_is_idle(FairqCounter *counter, uint64 current)
{
	bool		idle;

	SpinLockAcquire(&counter->mutex);
	idle = counter->pins == 0 && counter->open == 0 &&
		counter->parked == 0 && !starts_matter(counter);
	for (int book = 0; book < FAIRQ_BOOKS; book++)
		idle &= counter->committed[book] == 0 ||
			counter->number[book] < current;
	SpinLockRelease(&counter->mutex);
	return idle;
}

/*
 * Whether there is a slot for one more task under the limit.  The mutex is
 * held.
 */
static FairqSlot
find_slot(FairqCounter *counter, FairqKnown now, int32 limit)
{
	int64		running;
	bool		known = count_running(counter, now, &running);

	/* without a limit no count is needed */
	if (limit == FAIRQ_NO_LIMIT)
		return FAIRQ_SLOT_FREE;
	if (limit == 0)
		return FAIRQ_SLOT_NONE;
	if (!known)
		return FAIRQ_SLOT_UNKNOWN;
	return running < limit ? FAIRQ_SLOT_FREE : FAIRQ_SLOT_NONE;
}

/*
 * Take a slot, if the limit allows one; with look, only check whether it does.
 * If the result is FAIRQ_SLOT_FREE, the caller claims a row next.
 */
FairqSlot
fairq_counter_enter(FairqCounter *counter, FairqKnown now, int32 limit,
					bool look)
{
	FairqSlot	result;

	SpinLockAcquire(&counter->mutex);
	result = find_slot(counter, now, limit);
	if (result == FAIRQ_SLOT_FREE && !look)
		counter->open++;
	SpinLockRelease(&counter->mutex);
	return result;
}

/*
 * Close slots, and add running tasks, for a transaction that has committed;
 * without adds, the slots are only closed.  Returns the lanes in which the
 * group was parked.  The caller takes the group back into service in these
 * lanes.
 */
uint16
fairq_counter_ended(FairqCounter *counter, const FairqAdds *adds, int32 slots,
					int32 running)
{
	uint16		parked;

	SpinLockAcquire(&counter->mutex);
	Assert(counter->open >= slots);
	counter->open -= slots;
	for (int i = 0; i < FAIRQ_BOOKS && adds != NULL; i++)
	{
		int			book = go_on_to(counter, adds->number[i]);

		counter->committed[book] += adds->adds[i] ? running : 0;
	}
	parked = counter->parked;
	counter->parked = 0;
	SpinLockRelease(&counter->mutex);
	return parked;
}

/* Add n running tasks that a load has found. */
void
fairq_counter_add(FairqCounter *counter, uint64 number, int32 n)
{
	SpinLockAcquire(&counter->mutex);
	counter->committed[go_on_to(counter, number)] += n;
	SpinLockRelease(&counter->mutex);
}

/*
 * Record that the group is parked in a lane.  Returns false if there may be a
 * slot for it, or if the settings have changed since they were read.
 */
bool
fairq_counter_park(FairqCounter *counter, FairqKnown now, int32 limit,
				   int lane, pg_atomic_uint64 *version, uint64 version_read)
{
	bool		full;

	SpinLockAcquire(&counter->mutex);
	full = limit != FAIRQ_NO_LIMIT &&
		find_slot(counter, now, limit) == FAIRQ_SLOT_NONE &&
		pg_atomic_read_u64(version) == version_read;
	if (full)
		counter->parked |= 1 << lane;
	SpinLockRelease(&counter->mutex);
	return full;
}

/*
 * Read the number of running tasks; without open, the number of leased tasks
 * according to commits.  Returns false if that number is not known.
 */
bool
fairq_counter_read(FairqCounter *counter, FairqKnown now, bool open, int32 *n)
{
	int64		running;
	bool		known;

	SpinLockAcquire(&counter->mutex);
	known = count_running(counter, now, &running);
	*n = (int32) running - (open ? 0 : counter->open);
	SpinLockRelease(&counter->mutex);
	return known;
}

/* --------------------------------------------------------------------- */

/*
 * Start a task now, if the pace allows it.  Returns 0, or the time from which
 * a task may start.
 */
int64
fairq_counter_start(FairqCounter *counter, const FairqPace *pace,
					FairqStart *start)
{
	FairqStarts *starts = &counter->starts;
	int64		next;
	int64		now;

	SpinLockAcquire(&counter->mutex);
	next = starts_next(starts, pace);
	/*
	 * read the clock here, because with an earlier time other tasks would
	 * start too early
	 */
	now = fairq_monotonic();
	if (now >= next)
	{
		start->taken = true;
		start->before = starts->last;
		starts->last = Max(next, now - pace->spare);
		start->last = starts->last;
		starts->full_at = starts->last + pace->gap + pace->spare;
		next = 0;
	}
	SpinLockRelease(&counter->mutex);
	return next;
}

/* Whether the start times of the group's tasks still matter. */
bool
fairq_counter_starts_matter(FairqCounter *counter)
{
	bool		matter;

	SpinLockAcquire(&counter->mutex);
	matter = starts_matter(counter);
	SpinLockRelease(&counter->mutex);
	return matter;
}

/*
 * Returns 0 if a task may start now, else the time from which one may.  In the
 * latter case, it also records that the group is throttled in the given lanes.
 */
int64
fairq_counter_next_start(FairqCounter *counter, const FairqPace *pace,
						 uint16 lanes)
{
	int64		next;

	SpinLockAcquire(&counter->mutex);
	next = starts_next(&counter->starts, pace);
	if (next <= fairq_monotonic())
		next = 0;
	else
		counter->starts.lanes |= lanes;
	SpinLockRelease(&counter->mutex);
	return next;
}

/*
 * Give back an unused start, unless another task has started since.  Returns
 * the lanes in which that start may have throttled the group.  The caller
 * takes the group back into service in these lanes.
 */
uint16
fairq_counter_unstart(FairqCounter *counter, FairqStart *start)
{
	uint16		lanes = 0;

	SpinLockAcquire(&counter->mutex);
	if (counter->starts.last == start->last)
	{
		counter->starts.last = start->before;
		lanes = counter->starts.lanes;
		counter->starts.lanes = 0;
	}
	SpinLockRelease(&counter->mutex);
	start->taken = false;
	return lanes;
}
