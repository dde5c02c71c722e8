/*
 * counter.c
 *		Counters of running tasks, and what limits them.
 *
 * A group limited to c never has more than c tasks running: from the claim of
 * a task to the moment at which its end is visible (the commit of the
 * transaction that finished or took it; the abort of the transaction that
 * claimed it).  All is decided at one point, before a claim, by the group's
 * counter:
 *
 * 1. Enter: under the mutex, running goes up if it stays within the limit.
 *	  Then the row is claimed.
 *
 * 2. Leave: running goes down after the end is visible (transaction.c).
 *
 * 3. A counter that has no count (known is false) gets one: by the census, if
 *	  one is over that has not begun too early (rule 7); or else by a look at
 *	  the rows that are leased, and those that are being changed, in whatever
 *	  way (running.c).  That count holds only if no backend wrote such a row
 *	  meanwhile: one that writes such a row holds the counter from before until
 *	  the row shows it.  What comes and goes in between counts changes up.
 *
 * 4. Each count has a number.  A backend that claims or finishes a task notes
 *	  the number, and leaves with it.  If the counter has another one by then,
 *	  that count may have seen the task or not: running stays, and the count is
 *	  doubtful.  So a count may say too much, never too little.  Before a
 *	  doubtful one refuses slots for longer than a moment, the rows are counted
 *	  again.
 *
 * 5. Park: a group that has no free slot, by a counter that is not doubtful,
 *	  is put aside by the pop that found it so.  The next backend to leave
 *	  takes the group back into service.  Both happen under the mutex, so no
 *	  group is stranded.
 *
 * 6. Settings change at a commit.  The transaction that changed them counts
 *	  their version up after that is visible, and then takes all parked groups
 *	  back.  A pop parks only by the settings of the present version, which it
 *	  looks at under the mutex: an older pop could park a group that has just
 *	  been given a slot, and no backend would take it back.  And a pop gives
 *	  its slot back if the settings have changed when it has entered: so each
 *	  pop that enters after the change is through obeys it.
 *
 * 7. The census (census.c) comes by all rows of the table once, a few pages at
 *	  a time, while work goes on.  It counts those that are running or in the
 *	  hands of an open transaction, but for what that has just enqueued
 *	  ("found").  From its beginning on each counter counts besides what it may
 *	  have missed ("adds"): each claim, and each running row that is written
 *	  anew on another page, while the counter is held; and as the counter hears
 *	  of the census, once for each hold there is: such a row may be written
 *	  behind the back of the census.  Nothing is taken away for tasks that
 *	  leave.  When the census is over the counter says found + adds; it is
 *	  doubtful if there are any adds, if any task has left, or if a row was in
 *	  the hands of a transaction.
 *
 *	  That is never too little.  Take a task that has a slot now.  It had it
 *	  before the census began, or its claim was an add, or its claim was held
 *	  as the counter heard of the census, which is an add as well: a backend
 *	  that lets go looks for a new census first, with the row written, so a
 *	  census that it does not see yet will come by the row.  If it was there
 *	  before, and was written on another page since, that is an add.  If not,
 *	  all its versions of since are on one page, and the census has read that
 *	  at one moment, at which one of them was running, or being changed.
 *
 *	  A counter that is not there has found nothing and no adds.  So one that
 *	  has is not freed, nor is one that had a count since the census began and
 *	  has none any more: that "spent" census is of no use to it.
 *
 * 8. A queue's counter is counted as the sum of its groups' counters, once a
 *	  census has counted: a group without one has nothing running then.  A
 *	  claim, or a call that gives its slot back, enters the queue first; a task
 *	  that leaves leaves the queue last.  So a task that the sum misses had
 *	  entered the queue before the sum began, and its backend held the queue's
 *	  counter then; or it has entered since.  As many are added to it, and it
 *	  is doubtful.  And a task that is about to leave the queue, and is in no
 *	  group any more, leaves with another count's number, by rule 4: so the
 *	  counter is doubtful then.  Were the order the other way round, the sum
 *	  could have the task in it for good.
 *
 * 9. A start.  Each claim takes a start from the counter, at the moment at which
 *	  that is read on the monotonic clock, under the mutex: if the pace allows it
 *	  (pace.h), and after the slot.  It is not given back once a task was claimed,
 *	  whatever becomes of the claim: given back late it would let two tasks start
 *	  in less than a gap.  If no task was, it is given back unless others have
 *	  started since.  Neither a reset nor a census makes starts void: they are what
 *	  shared memory alone knows.  What was before is lost in a restart, and never
 *	  was on a standby that is promoted; so a counter begins as if a task had
 *	  started when its queue's hints were born, or first found after the promotion,
 *	  with the whole burst used up if that is just now.  A counter is freed only
 *	  when its bucket is full: a new one knows as much.
 *
 * 10. Throttle: a group that may not start yet is put aside until it may, by the
 *	  pop that found it so.  Who gives a start back takes it back into
 *	  service.  Both happen under the mutex.
 *
 * Not here but in running.c is how a queue gets its first limit while claims
 * go on that are not counted.
 *
 * The protocol has an exhaustive model: test/model.
 *
 * Locking: the counter's mutex, a spinlock, for a few instructions.  It may be
 * taken under a lane's lock.  Nothing here allocates or fails.
 */
#include "postgres.h"

#include "counter.h"

/*
 * Make a counter, of which nothing is known but that no task has started since its
 * queue's hints were born.
 */
void
fairq_counter_init(FairqCounter *counter, int64 born)
{
	memset(counter, 0, sizeof(FairqCounter));
	SpinLockInit(&counter->mutex);
	fairq_starts_init(&counter->starts, born);
}

/* Make a copy of a counter, at which no backend is. */
void
fairq_counter_copy(FairqCounter *copy, FairqCounter *counter)
{
	SpinLockAcquire(&counter->mutex);
	*copy = *counter;
	SpinLockRelease(&counter->mutex);
	SpinLockInit(&copy->mutex);
	copy->pins = copy->holds = 0;
}

/* Nothing is known of starts before that time; no task has started since. */
void
fairq_counter_begin_starts(FairqCounter *counter, int64 since)
{
	SpinLockAcquire(&counter->mutex);
	fairq_starts_init(&counter->starts, since);
	SpinLockRelease(&counter->mutex);
}

/*
 * Give the counter a count: so many are running, or fewer.  The mutex is held.
 */
static void
make_known(FairqCounter *counter, int32 running, bool doubtful)
{
	counter->running = running;
	counter->known = true;
	counter->doubtful = doubtful;
	counter->count_no++;
	counter->changes++;
	counter->census.spent = true;
}

/* Count a running task that the census may have missed.  The mutex is held. */
static void
add_missed(FairqCounter *counter)
{
	if (!counter->census.spent && counter->census.adds < PG_INT32_MAX / 2)
		counter->census.adds++;
}

/*
 * Take the counter's count away if it is void by now; or give it one, if a
 * census is over that has counted for it.  The mutex is held.
 */
static void
refresh(FairqCounter *counter, FairqAsOf now)
{
	if (counter->as_of < now.as_of)
	{
		/* tasks that have left were not counted, unless the counter is new */
		counter->census.unsure |= counter->as_of != 0;
		counter->as_of = now.as_of;
		counter->known = false;
		counter->changes++;
	}
	if (counter->census.number < now.census)
	{
		counter->census.number = now.census;
		counter->census.found = 0;
		counter->census.adds = counter->holds;
		counter->census.unsure = counter->census.spent = false;
	}
	if (now.counted && !counter->known && !counter->census.spent &&
		counter->census.number == now.census && counter->as_of == now.as_of)
		make_known(counter, counter->census.found + counter->census.adds,
				   counter->census.unsure || counter->census.adds > 0 ||
				   now.repeated);
}

/* Does it still matter when tasks started?  The mutex is held. */
static bool
starts_matter(const FairqCounter *counter)
{
	return counter->starts.full_at != FAIRQ_LONG_AGO &&
		counter->starts.full_at > fairq_monotonic();
}

/*
 * Would nothing be lost if the counter went away?  One that is made anew has what
 * the last census has counted: nothing.  NULL: see by the counter alone.
 */
bool
fairq_counter_is_idle(FairqCounter *counter, const FairqAsOf *now)
{
	bool		known;
	bool		idle;

	SpinLockAcquire(&counter->mutex);
	known = counter->known && (now == NULL || counter->as_of >= now->as_of);
	idle = counter->pins == 0 && counter->holds == 0 &&
		counter->parked == 0 && !starts_matter(counter);
	if (known)
		idle &= counter->running == 0;
	else if (now == NULL || counter->census.number >= now->census)
		idle &= !counter->census.spent && !counter->census.unsure &&
			counter->census.found == 0 && counter->census.adds == 0;
	SpinLockRelease(&counter->mutex);
	return idle;
}

/* Does any backend keep a pointer to the counter? */
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
	/* without a limit no count is needed */
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
 * Take a slot, if there is one under the limit.  With FAIRQ_SLOT_FREE the
 * caller claims a row next, and holds the counter.
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

/* Is there a slot under the limit?  It is not taken. */
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

/*
 * Hold the counter, to finish a task.  Returns the number of the count; 0: the
 * counter has none.
 */
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

/*
 * Count a running task whose row is on another page by now.  The counter is
 * held.
 */
void
fairq_counter_moved(FairqCounter *counter, FairqAsOf now)
{
	SpinLockAcquire(&counter->mutex);
	refresh(counter, now);
	add_missed(counter);
	SpinLockRelease(&counter->mutex);
}

/*
 * Let go of the counter: the row shows what was done, or nothing was.  now was
 * read after that: a census that it does not know of yet will come by the row.
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
 * Count n tasks, or none, that are not running any more.  Returns in which lanes
 * the group was parked; the caller takes the group back into service there.
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
	counter->census.unsure |= n > 0;
	counter->changes++;
	parked = counter->parked;
	counter->parked = 0;
	SpinLockRelease(&counter->mutex);
	return parked;
}

/*
 * Begin to count rows: *changes is for fairq_counter_counted().  False if a
 * backend is just writing one.
 */
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
 * The rows were counted: so many are running.  False if that may be wrong by
 * now.
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

/* Begin to add up the counters of a queue's groups. */
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
 * The groups' counters come to that.  A claim that had entered the queue
 * before, and still held its counter, or has entered it since, may have been
 * missed.  False if that may be wrong by now; or if it is not exact, and that
 * is wanted.
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
 * Note that the group is parked in a lane.  False if there is a slot for it
 * after all, or may be; also if the settings that limit it, of the version that
 * was read, are not in effect any more.
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

/* Are no more running than may be?  FAIRQ_SLOT_UNKNOWN: there is no count. */
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
 * False if the counter has no count.
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
	if (counter->census.number == now.census && !counter->census.spent)
	{
		counter->census.found = Min(counter->census.found + (int64) n,
									PG_INT32_MAX / 2);
		counter->census.unsure |= unsure || counter->as_of != now.as_of;
	}
	SpinLockRelease(&counter->mutex);
}

/*
 * Note that there are too many rows to be counted while that census goes on.
 */
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

/* --------------------------------------------------------------------- */

/*
 * Start a task now, if that may be by the pace.  Returns 0, or the time from which on
 * it may.
 */
int64
fairq_counter_start(FairqCounter *counter, const FairqPace *pace,
					FairqStart *start)
{
	int64		next;

	SpinLockAcquire(&counter->mutex);
	/* read here: a time that is past would let others start too early */
	next = fairq_starts_take(&counter->starts, pace, fairq_monotonic(), start);
	SpinLockRelease(&counter->mutex);
	return next;
}

/* Does it still matter when tasks of the group started? */
bool
fairq_counter_starts_matter(FairqCounter *counter)
{
	bool		matter;

	SpinLockAcquire(&counter->mutex);
	matter = starts_matter(counter);
	SpinLockRelease(&counter->mutex);
	return matter;
}

/* May a task start now?  Returns 0, or the time from which on it may. */
int64
fairq_counter_next_start(FairqCounter *counter, const FairqPace *pace)
{
	int64		next;

	SpinLockAcquire(&counter->mutex);
	next = fairq_starts_next(&counter->starts, pace);
	SpinLockRelease(&counter->mutex);
	return next > fairq_monotonic() ? next : 0;
}

/*
 * Note that the group is throttled in a lane, and until when.  False if a task of it may
 * start after all.
 */
bool
fairq_counter_throttle(FairqCounter *counter, const FairqPace *pace, int lane,
					   int64 *until)
{
	bool		early;

	SpinLockAcquire(&counter->mutex);
	*until = fairq_starts_next(&counter->starts, pace);
	early = *until > fairq_monotonic();
	if (early)
		counter->starts.lanes |= 1 << lane;
	SpinLockRelease(&counter->mutex);
	return early;
}

/*
 * Give a start back, which was not needed, if there was no other since.  Returns in
 * which lanes the group may have been throttled for it; the caller takes the group
 * back into service there.
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
