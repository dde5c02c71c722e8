/*
 * counter.c
 *		Counters of running tasks, and what limits them.
 *
 * A group limited to c never has more than c tasks running: from the claim of
 * a task to the moment at which its end is visible (the commit of whoever
 * finished it, or of whoever took it; the abort of whoever claimed it).  All
 * is decided at one point, before a claim, by the group's counter:
 *
 * 1. Enter: under the mutex, running goes up if it stays within the limit.
 *	  Then the row is claimed.
 *
 * 2. Leave: running goes down after the end is visible (transaction.c).
 *
 * 3. A counter that is not known is counted: by the census, if one is over that
 *	  has not begun too early (rule 7); or else by a look at the rows that are
 *	  leased, and those in the hands of an open transaction, whatever that may be
 *	  doing (running.c).  The count holds only if nobody touched such a row
 *	  meanwhile: whoever writes one holds the counter from before until the
 *	  row shows it.  What comes and goes in between counts changes up.
 *
 * 4. Each count has a number.  Whoever claims or finishes a task notes it, and
 *	  leaves with it.  If it is another one by then, nobody knows whether the
 *	  count has seen him: running stays, and the counter is doubtful.  So a
 *	  known counter may say too much, never too little.  Before a doubtful one
 *	  keeps anybody out for longer than a moment, the rows are counted again.
 *
 * 5. Park: a group that has no free slot, by a counter that is not doubtful,
 *	  is put aside by the pop that found it so.  The next one to leave takes it
 *	  back into service.  Both under the mutex: so nobody is stranded.
 *
 * 6. Settings change at a commit.  Who changed them counts their version up
 *	  after that is visible, and then takes everybody back who is parked.  A
 *	  pop parks only by the settings of the present version, which it looks at
 *	  under the mutex: an older pop could park a group that has just been
 *	  given a slot, and nobody would come for it.  And it gives its slot back
 *	  if they have changed when it has entered: so whoever enters after the
 *	  change is through obeys it.
 *
 * 7. The census (census.c) comes by all rows of the table once, a few pages at a
 *	  time, while work goes on.  It counts those that are running or in the hands
 *	  of an open transaction, but for what that has just enqueued ("found").  From
 *	  its beginning on each counter counts besides what it may have missed
 *	  ("adds"): each claim, and each running row that is written anew on another
 *	  page, while the counter is held; and as the counter hears of the census,
 *	  once for each hold there is:
 *	  such a row may be written behind the back of the census.  Nothing is taken
 *	  away for those that leave.  When the census is over the counter says
 *	  found + adds; it is doubtful if there are any adds, if anybody has left, or
 *	  if a row was in somebody's hands.
 *
 *	  That is never too little.  Take a task that has a slot now.  It had it
 *	  before the census began, or its claim was an add, or its claim was held as
 *	  the counter heard of the census, which is an add as well: whoever lets go
 *	  looks for a new census first, with the row written, so one that he does not
 *	  see yet will come by the row.  If it was there before, and was written on
 *	  another page since, that is an add.  If not, all its versions of since are
 *	  on one page, and the census has read that at one moment, at which one of
 *	  them was running, or in the hands of a transaction.
 *
 *	  A counter that is not there has found nothing and no adds.  So one that has
 *	  is not freed, nor is one that was known since the census began and is not
 *	  any more: that "spent" census is of no use to it.
 *
 * 8. A queue's counter is counted as the sum of its groups' counters, once a census
 *	  has counted: a group without one has nothing running then.  Whoever enters, a
 *	  claim or a call that gives its slot back, enters the queue first, and
 *	  whoever leaves leaves the queue last.  So who is missed by the sum had
 *	  entered the queue before it began, and held the queue's counter then; or
 *	  has entered since.  As many are added to it, and it is doubtful.  And one
 *	  who is about to leave the queue, and is in no group any more, does that
 *	  with another count's number, by rule 4: so it is doubtful then.  Were it
 *	  the other way round, the sum could have him in it for good.
 *
 * Not here but in running.c is how a queue gets its first limit while claims
 * go on that nobody counts.
 *
 * The protocol has an exhaustive model: test/model.
 *
 * Locking: the counter's mutex, a spinlock, for a few instructions.  It may be
 * taken under a lane's lock.  Nothing here allocates or fails.
 */
#include "postgres.h"

#include "counter.h"

void
fairq_counter_init(FairqCounter *counter)
{
	memset(counter, 0, sizeof(FairqCounter));
	SpinLockInit(&counter->mutex);
}

/* So many are running, or fewer.  The mutex is held. */
static void
make_known(FairqCounter *counter, int32 running, bool doubtful)
{
	counter->running = running;
	counter->known = true;
	counter->doubtful = doubtful;
	counter->count_no++;
	counter->changes++;
	counter->spent = true;
}

/* The census may have missed a running task.  The mutex is held. */
static void
add_missed(FairqCounter *counter)
{
	if (!counter->spent && counter->adds < PG_INT32_MAX / 2)
		counter->adds++;
}

/*
 * What is known from before now is void.  What a census has counted since it
 * began is known when it is over.  The mutex is held.
 */
static void
refresh(FairqCounter *counter, FairqAsOf now)
{
	if (counter->as_of < now.as_of)
	{
		/* who has left was not counted, if it is not because it is new */
		counter->unsure |= counter->as_of != 0;
		counter->as_of = now.as_of;
		counter->known = false;
		counter->changes++;
	}
	if (counter->census < now.census)
	{
		counter->census = now.census;
		counter->found = 0;
		counter->adds = counter->holds;
		counter->unsure = counter->spent = false;
	}
	if (now.counted && !counter->known && !counter->spent &&
		counter->census == now.census && counter->as_of == now.as_of)
		make_known(counter, counter->found + counter->adds,
				   counter->unsure || counter->adds > 0 || now.repeated);
}

/*
 * Would nothing be lost if the counter went away?  One that is made anew has what
 * the census of that number, the last one, has counted: nothing.
 */
bool
fairq_counter_is_idle(FairqCounter *counter, uint64 census)
{
	bool		idle;

	SpinLockAcquire(&counter->mutex);
	idle = counter->pins == 0 && counter->holds == 0 && counter->parked == 0;
	if (counter->known)
		idle &= counter->running == 0;
	else if (counter->census >= census)
		idle &= !counter->spent && !counter->unsure && counter->found == 0 &&
			counter->adds == 0;
	SpinLockRelease(&counter->mutex);
	return idle;
}

/* Has anybody a pointer to it? */
bool
fairq_counter_is_pinned(FairqCounter *counter)
{
	bool		pinned;

	SpinLockAcquire(&counter->mutex);
	pinned = counter->pins > 0;
	SpinLockRelease(&counter->mutex);
	return pinned;
}

void
fairq_counter_pin(FairqCounter *counter)
{
	SpinLockAcquire(&counter->mutex);
	counter->pins++;
	SpinLockRelease(&counter->mutex);
}

void
fairq_counter_unpin(FairqCounter *counter)
{
	SpinLockAcquire(&counter->mutex);
	Assert(counter->pins > 0);
	counter->pins--;
	SpinLockRelease(&counter->mutex);
}

/*
 * Is there a slot for one more, if at most so many may run?  The mutex is
 * held.
 */
static FairqSlot
find_slot(const FairqCounter *counter, int32 limit)
{
	/* without a limit it need not be known */
	if (limit == FAIRQ_NO_LIMIT)
		return FAIRQ_SLOT_FREE;
	if (limit == 0)
		return FAIRQ_SLOT_NONE;
	if (!counter->known)
		return FAIRQ_SLOT_UNKNOWN;
	if (counter->running < limit)
		return FAIRQ_SLOT_FREE;
	return counter->doubtful ? FAIRQ_SLOT_UNKNOWN : FAIRQ_SLOT_NONE;
}

/*
 * Have one more running, if at most so many may be.  With FAIRQ_SLOT_FREE the
 * caller claims a row next, holding the counter.
 */
FairqSlot
fairq_counter_enter(FairqCounter *counter, FairqAsOf now, int32 limit,
					uint64 *count_no)
{
	FairqSlot	result;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	result = find_slot(counter, limit);
	if (result == FAIRQ_SLOT_FREE)
	{
		*count_no = counter->known ? counter->count_no : 0;
		counter->running += counter->known;
		add_missed(counter);
		counter->holds++;
		counter->changes++;
		counter->enters++;
	}
	SpinLockRelease(&counter->mutex);
	return result;
}

/* Could one enter? */
FairqSlot
fairq_counter_has_slot(FairqCounter *counter, FairqAsOf now, int32 limit)
{
	FairqSlot	result;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	result = find_slot(counter, limit);
	SpinLockRelease(&counter->mutex);
	return result;
}

/* Somebody is about to finish a task.  Returns the number of the count. */
uint64
fairq_counter_hold(FairqCounter *counter, FairqAsOf now)
{
	uint64		count_no;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	counter->holds++;
	counter->changes++;
	count_no = counter->known ? counter->count_no : 0;
	SpinLockRelease(&counter->mutex);
	return count_no;
}

/* A running task's row is on another page by now.  The counter is held. */
void
fairq_counter_moved(FairqCounter *counter, FairqAsOf now)
{
	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	add_missed(counter);
	SpinLockRelease(&counter->mutex);
}

/*
 * The row shows it, or nothing came of it.  now was looked at after that: a
 * census that it does not know of yet will come by the row.
 */
void
fairq_counter_let_go(FairqCounter *counter, FairqAsOf now)
{
	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	Assert(counter->holds > 0);
	counter->holds--;
	SpinLockRelease(&counter->mutex);
}

/*
 * n tasks (or none) are not running any more.  Returns the lanes, as bits, in
 * which the group was parked; the caller takes it back into service there.
 */
uint16
fairq_counter_leave(FairqCounter *counter, FairqAsOf now, int32 n,
					uint64 count_no)
{
	uint16		parked;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	if (counter->known && counter->count_no == count_no)
	{
		Assert(counter->running >= n);
		counter->running -= n;
	}
	else if (n > 0)
		counter->doubtful = true;
	counter->unsure |= n > 0;
	counter->changes++;
	parked = counter->parked;
	counter->parked = 0;
	SpinLockRelease(&counter->mutex);
	return parked;
}

/* Before the rows are counted.  False if somebody is just writing one. */
bool
fairq_counter_note(FairqCounter *counter, FairqAsOf now, uint64 *changes)
{
	bool		quiet;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	quiet = counter->holds == 0;
	*changes = counter->changes;
	SpinLockRelease(&counter->mutex);
	return quiet;
}

/*
 * So many were found.  False if that may be wrong by now.
 */
bool
fairq_counter_counted(FairqCounter *counter, FairqAsOf now, uint64 changes,
					  int32 running, bool doubtful)
{
	bool		valid;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	valid = counter->holds == 0 && counter->changes == changes;
	if (valid)
		make_known(counter, running, doubtful);
	SpinLockRelease(&counter->mutex);
	return valid;
}

/* Before a queue's groups are summed up. */
void
fairq_counter_sum_begin(FairqCounter *counter, FairqAsOf now, FairqSum *sum)
{
	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	sum->as_of = counter->as_of;
	sum->changes = counter->changes;
	sum->enters = counter->enters;
	sum->holds = counter->holds;
	SpinLockRelease(&counter->mutex);
}

/*
 * That is what they come to.  A claim that had entered the queue before, and still
 * held its counter, or has entered it since, may have been missed.  False if that may be
 * wrong by now; or if it is not exact, and that is wanted.
 */
bool
fairq_counter_summed(FairqCounter *counter, FairqAsOf now, const FairqSum *sum,
					 int32 running, bool doubtful, bool exactly)
{
	int64		missed;
	bool		valid;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	missed = sum->holds + (int64) (counter->enters - sum->enters);
	valid = counter->as_of == sum->as_of &&
		(!exactly || (missed == 0 && counter->changes == sum->changes));
	if (valid)
		make_known(counter, (int32) Min(running + missed, PG_INT32_MAX / 2),
				   doubtful || missed > 0 || counter->changes != sum->changes);
	SpinLockRelease(&counter->mutex);
	return valid;
}

/*
 * Put the group aside in a lane.  False if there is a slot for it after all,
 * or may be; also if the settings that limit it are not in effect any more.
 */
bool
fairq_counter_park(FairqCounter *counter, FairqAsOf now, int32 limit, int lane,
				   pg_atomic_uint64 *version, uint64 version_read)
{
	bool		full;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	full = (limit == 0 ||
			(counter->known && !counter->doubtful &&
			 counter->running >= limit)) &&
		pg_atomic_read_u64(version) == version_read;
	if (full)
		counter->parked |= 1 << lane;
	SpinLockRelease(&counter->mutex);
	return full;
}

/* Are no more running than may be?  FAIRQ_SLOT_UNKNOWN: who knows. */
FairqSlot
fairq_counter_within(FairqCounter *counter, FairqAsOf now, int32 limit)
{
	FairqSlot	result = FAIRQ_SLOT_FREE;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	if (limit != FAIRQ_NO_LIMIT && !counter->known)
		result = FAIRQ_SLOT_UNKNOWN;
	else if (limit != FAIRQ_NO_LIMIT && counter->running > limit)
		result = FAIRQ_SLOT_NONE;
	SpinLockRelease(&counter->mutex);
	return result;
}

/*
 * How many are running; if that is doubtful, there may be fewer than it says.
 * False if nobody knows.
 */
bool
fairq_counter_read(FairqCounter *counter, FairqAsOf now, int32 *running,
				   bool *doubtful)
{
	bool		known;

	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	known = counter->known;
	*doubtful = counter->doubtful;
	*running = counter->running;
	SpinLockRelease(&counter->mutex);
	return known;
}

/*
 * The census, whose number is in now, has come by n more tasks that are running;
 * if it is unsure, some may not be.  now was looked at before that.
 */
void
fairq_counter_found(FairqCounter *counter, FairqAsOf now, int32 n, bool unsure)
{
	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	if (counter->census == now.census && !counter->spent)
	{
		counter->found = Min(counter->found + (int64) n, PG_INT32_MAX / 2);
		counter->unsure |= unsure || counter->as_of != now.as_of;
	}
	SpinLockRelease(&counter->mutex);
}

/* There are too many rows to be counted while that census goes on. */
void
fairq_counter_is_long(FairqCounter *counter, FairqAsOf now)
{
	SpinLockAcquire(&counter->mutex);
	counter->long_line = now.census + 1;
	SpinLockRelease(&counter->mutex);
}

bool
fairq_counter_was_long(FairqCounter *counter, FairqAsOf now)
{
	bool		was_long;

	SpinLockAcquire(&counter->mutex);
	was_long = counter->long_line == now.census + 1;
	SpinLockRelease(&counter->mutex);
	return was_long;
}
