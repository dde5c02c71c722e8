/*
 * wait.c
 *		fairq.wait, which sleeps until a pop can return a task.
 *
 * A wait alternates between looks for tasks, which search like a pop
 * (serve.c), and sleep until it is woken (wake.c).  Each look is a separate
 * transaction, so the procedure holds no snapshot and no lock while it sleeps.
 * Therefore vacuum can proceed, and the queue can be dropped; the next look
 * detects the drop.
 *
 * Two events do not wake a sleeper.  One is that a backend that has not used
 * fairq drops the extension.  The other is that SQL changes rows, which
 * invalidates the hints of all queues at once.  So once a second a sleeper
 * reads a counter and PostgreSQL's invalidation messages.  These checks need
 * no snapshot and no lock.  If a backend that has worked with queues drops the
 * extension, sleepers detect this at once (fairq.c).
 *
 * A row that is only locked does not justify a pop, which would skip it.  An
 * unlock of a row publishes nothing.  A waiter that finds only such rows looks
 * again at increasing intervals.
 *
 * Tasks that a pop would end and not return (claim.c) do not wake a client.  A
 * wait that finds only such tasks ends them itself, and looks again.
 *
 * wake.c describes the protocol of waking.  fairq_wait_settle() neither
 * allocates nor fails.
 *
 * Locking: each look takes AccessShareLock on the queue and on fairq.task, to
 * its end.  A look that ends tasks takes RowExclusiveLock on fairq.task, and
 * locks the tasks' rows.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "load.h"
#include "serve.h"
#include "store.h"
#include "wait.h"

PG_FUNCTION_INFO_V1(fairq_wait);
PG_FUNCTION_INFO_V1(fairq_wait_queues);

/* the queues at which this backend waits */
static struct
{
	FairqWakeup *wakeup;
	TimestampTz keeps_until;	/* time until which this backend is the
								 * timekeeper; DT_NOEND: it is not */
}			waits[FAIRQ_MAX_WAITS];
static int	nwaits = 0;
static int	called_by = -1;		/* index of the queue whose call this backend
								 * has taken; -1: none */
static bool rechecking = false; /* true: this backend searches without a call,
								 * after a while */

/*
 * if this backend waits at several queues, the queue that had a task; NULL:
 * none, or the pop has visited that queue
 */
static FairqWakeup *unreported = NULL;

/* the queue that had a task, if the client has not been notified yet */
static FairqWakeup *to_tell = NULL;

/*
 * Call another waiter if the queue called this session, whose pop of several
 * queues has ended without visiting the queue.
 */
void
fairq_wake_unserved(FairqWakeup *wakeup)
{
	if (unreported != wakeup)
		return;
	unreported = NULL;
	fairq_wake(wakeup, 1);
}

/*
 * Stop being the timekeeper of a queue.  Returns whether this backend was its
 * timekeeper.
 */
static bool
leave_clock(int nth)
{
	uint64		mine = (uint64) waits[nth].keeps_until;

	if (waits[nth].keeps_until == DT_NOEND)
		return false;
	waits[nth].keeps_until = DT_NOEND;
	return pg_atomic_compare_exchange_u64(&waits[nth].wakeup->kept_until,
										  &mine, (uint64) DT_NOEND);
}

/* The condition variable on which this backend sleeps. */
static ConditionVariable *
own_sleepers(void)
{
	return nwaits > 1 ? fairq_sleepers_at_several(waits[0].wakeup) :
		&waits[0].wakeup->sleepers;
}

/*
 * End waiting.  pass_on: an error has ended the wait, so another waiter checks
 * the tasks for which this one may have been woken.  due, unless NULL, has the
 * time at which a task of each queue becomes due; possibly no other backend
 * was woken for that time.
 */
static void
end_waits(bool pass_on, const TimestampTz *due)
{
	int			n = nwaits;

	if (n == 0)
		return;
	fairq_cancel_sleep(own_sleepers());
	nwaits = 0;
	for (int i = 0; i < n; i++)
	{
		FairqWakeup *wakeup = waits[i].wakeup;
		bool		was_keeper = leave_clock(i);

		pg_atomic_fetch_sub_u32(&wakeup->waiters, 1);
		if (n > 1)
			pg_atomic_fetch_sub_u32(&wakeup->several, 1);
		if (was_keeper || pass_on)
			fairq_wake(wakeup, 1);
		else if (due != NULL)
			fairq_wake_in_time(wakeup, due[i]);
	}
}

static bool
waits_at(FairqQueue *const *queues, int n)
{
	if (nwaits != n)
		return false;
	for (int i = 0; i < n; i++)
		if (waits[i].wakeup != &queues[i]->hints->wakeup)
			return false;
	return true;
}

/* Begin to wait at these queues, unless this backend waits there already. */
static void
begin_waits(FairqQueue *const *queues, int n)
{
	if (waits_at(queues, n))
		return;
	end_waits(false, NULL);
	unreported = NULL;
	called_by = -1;
	rechecking = false;
	for (int i = 0; i < n; i++)
	{
		FairqWakeup *wakeup = &queues[i]->hints->wakeup;

		if (n > 1)
			pg_atomic_fetch_add_u32(&wakeup->several, 1);
		/* a full barrier: the search sees tasks that became ready before */
		pg_atomic_fetch_add_u32(&wakeup->waiters, 1);
		waits[i].wakeup = wakeup;
		waits[i].keeps_until = DT_NOEND;
		nwaits = i + 1;
	}
}

/* End waiting, because a queue has a task. */
static void
end_found(int nth)
{
	FairqWakeup *found = waits[nth].wakeup;
	FairqWakeup *caller = called_by < 0 ? NULL : waits[called_by].wakeup;
	bool		several = nwaits > 1;

	to_tell = found;
	/* the amount of remaining work is unknown */
	if (rechecking)
		pg_atomic_fetch_add_u32(&found->surplus, 1);
	fairq_recheck_later(found);
	end_waits(false, NULL);
	unreported = several ? found : NULL;
	if (caller != NULL && caller != found)
		fairq_wake(caller, 1);
}

/*
 * Handle the end of the transaction.  After an error the client is not
 * notified.  So other waiters search for the tasks that this backend has found
 * or was woken for.
 */
void
fairq_wait_settle(bool committed)
{
	FairqWakeup *found = to_tell;

	to_tell = NULL;
	if (committed)
		return;
	end_waits(true, NULL);
	if (found != NULL)
		fairq_wake(found, 1);
}

/*
 * Returns the time until which this backend sleeps, if a task of a queue
 * becomes due at a given time.  The result is "due", unless another waiter is
 * the timekeeper until then, or "otherwise" is earlier.
 */
static TimestampTz
keep_time(int nth, TimestampTz due, TimestampTz otherwise)
{
	FairqWakeup *wakeup = waits[nth].wakeup;
	uint64		kept_until;

	(void) leave_clock(nth);
	kept_until = pg_atomic_read_u64(&wakeup->kept_until);
	while (due < otherwise && due < (int64) kept_until)
	{
		if (pg_atomic_compare_exchange_u64(&wakeup->kept_until, &kept_until,
										   (uint64) due))
		{
			waits[nth].keeps_until = due;
			return due;
		}
	}
	return otherwise;
}

/* Take one of the queue's calls, if there is one. */
static bool
take_call(FairqWakeup *wakeup)
{
	uint32		calls = pg_atomic_read_u32(&wakeup->calls);

	while (calls > 0)
		if (pg_atomic_compare_exchange_u32(&wakeup->calls, &calls, calls - 1))
			return true;
	return false;
}

/*
 * Whether this waiter has to search without a call now; true for only one
 * waiter.
 */
static bool
is_to_recheck(FairqWakeup *wakeup)
{
	uint64		at = pg_atomic_read_u64(&wakeup->recheck);
	TimestampTz now;

	if (at == (uint64) DT_NOEND)
		return false;
	now = GetCurrentTimestamp();
	/* if the clock was set back, that time may be too far away */
	return ((TimestampTz) at <= now ||
			(TimestampTz) at > now + FAIRQ_RECHECK) &&
		pg_atomic_compare_exchange_u64(&wakeup->recheck, &at,
									   (uint64) DT_NOEND);
}

/*
 * Whether this backend has to search again, and at which of its queues
 * (called_by).
 */
static bool
has_news(void)
{
	called_by = -1;
	for (int i = 0; i < nwaits; i++)
	{
		bool		called = take_call(waits[i].wakeup);

		rechecking = !called && is_to_recheck(waits[i].wakeup);
		if (called || rechecking)
		{
			called_by = i;
			return true;
		}
	}
	return false;
}

/*
 * Sleep until there is a reason to search again, or until the given time.  The
 * sleep may end earlier.  Returns whether there is such a reason.
 */
static bool
sleep_once(TimestampTz until)
{
	ConditionVariable *sleepers = own_sleepers();
	bool		news;
	long		ms;

	ConditionVariablePrepareToSleep(sleepers);
	news = has_news();
	if (!news)
	{
		ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
		/*
		 * the timeout must be at most INT_MAX, and the sleep may end early
		 */
		(void) ConditionVariableTimedSleep(sleepers, Min(ms, INT_MAX / 2),
										   fairq_wait_event());
	}
	fairq_cancel_sleep(sleepers);
	return news || has_news();
}

/* --------------------------------------------------------------------- */

#define DEFAULT_TIMEOUT (INT64CONST(30) * USECS_PER_SEC)

/*
 * how long to wait before another look at due tasks that are not available now
 */
#define RETRY (INT64CONST(10) * 1000)

/*
 * the longest time until another look at rows that are only locked; the time
 * doubles with each look
 */
#define LONGEST_RETRY USECS_PER_SEC

/* how often a sleeper checks messages and the counter */
#define LISTEN_EVERY USECS_PER_SEC

/* Results of looks at queues, none of which has found a task. */
typedef struct Looks
{
	TimestampTz due[FAIRQ_MAX_WAITS];	/* time of the next look */
	int64		retry[FAIRQ_MAX_WAITS]; /* delay because of locked rows; 0:
										 * none */
	FairqDomain *domain;
	uint64		resets;			/* resets of the domain, before the last
								 * look */
	FairqLook	look;			/* the last look */
} Looks;

/*
 * Returns the next time at which a task of the queue becomes due or may start;
 * DT_NOEND: never.
 */
static TimestampTz
next_due(FairqQueue *queue)
{
	TimestampTz next = DT_NOEND;
	TimestampTz now = GetCurrentTimestamp();
	int64		start;

	if (queue->paused)
		return DT_NOEND;
	if (fairq_queue_is_held(queue, now))
		return queue->starts.held_until;
	if (fairq_load_is_due(queue))
		return DT_NOBEGIN;
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		FairqLane  *lane = fairq_queue_lane(queue, p);

		next = Min(next, fairq_times_next(&lane->times));
		start = fairq_lane_next_back(lane);
		if (start != PG_INT64_MAX)
			next = Min(next, fairq_wall_time(start, now));
	}
	if (queue->starts.pace.gap != 0)
	{
		start = fairq_counter_next_start(&queue->hints->running,
										 &queue->starts.pace, 0);
		if (start != 0)
			next = Min(next, fairq_wall_time(start, now));
	}
	return next;
}

/* Lock the queues, and count this backend as waiting at them. */
static void
begin_wait(text *const *names, int n, FairqQueue **queues, Looks *looks)
{
	if (!fairq_extension_exists())
		fairq_no_such_queue(names[0], false);
	for (int i = 0; i < n; i++)
		queues[i] = fairq_queue_use(names[i], FAIRQ_PRIV_WORK,
									AccessShareLock);
	fairq_watch_transaction();
	begin_waits(queues, n);
	looks->domain = fairq_domain();
	looks->resets = pg_atomic_read_u64(&looks->domain->resets);
}

/* Look at one of the queues. */
static bool
look_at(FairqQueue *queue, FairqTable *tasks, int nth, Looks *looks)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz due;
	int64	   *retry = &looks->retry[nth];
	bool		ready = fairq_worth_a_pop(queue, tasks, now, &looks->look);

	due = next_due(queue);
	if (looks->look.saw_locked)
	{
		*retry = Min(Max(*retry * 2, RETRY), LONGEST_RETRY);
		elog(DEBUG2, "tasks of queue \"%s\" are locked: looking again after %d ms",
			 queue->name, (int) (*retry / 1000));
		due = due > now ? Min(Max(due, now + RETRY), now + *retry) :
			now + *retry;
	}
	else
	{
		/* an unknown number of other rows may also have been unlocked */
		if (ready && *retry > 0)
			fairq_wake_chain(&queue->hints->wakeup);
		*retry = 0;
		due = due > now ? due : now + RETRY;
	}
	looks->due[nth] = due;
	return ready;
}

/*
 * Look at the queues in order, in a separate transaction, until one has a
 * task.  If ends is true, end tasks that a pop would end instead of returning
 * them.  Returns the index of the queue; -1: none has a task.  *again: look
 * again at once.
 */
static int
look_once(text *const *names, int n, Looks *looks, bool ends, bool *again)
{
	FairqQueue *queues[FAIRQ_MAX_WAITS];
	FairqTable *tasks;
	int			found = -1;

	*again = false;
	looks->look.ends = ends;
	begin_wait(names, n, queues, looks);
	/*
	 * reading TOAST values of the tasks that this look ends needs a snapshot
	 */
	if (ends)
		PushActiveSnapshot(GetTransactionSnapshot());
	tasks = fairq_open(FAIRQ_TASK, ends ? RowExclusiveLock : AccessShareLock);
	for (int i = 0; i < n && found < 0; i++)
	{
		if (look_at(queues[i], tasks, i, looks))
			found = i;
		*again |= ends ? looks->look.ended : looks->look.saw_over;
	}
	fairq_table_close(tasks);
	if (ends)
		PopActiveSnapshot();
	/* commit, and continue in a transaction without a snapshot */
	SPI_commit();
	return found;
}

/*
 * Look at the queues.  If there are only tasks that a pop would end and not
 * return, end them.  The commit of that look may free slots.
 */
static int
look(text *const *names, int n, Looks *looks)
{
	bool		ends = false;
	bool		again;
	int			found;

	while ((found = look_once(names, n, looks, ends, &again)) < 0 && again)
		ends = !ends;
	return found;
}

/* Sleep until a time, or until there is a reason to look again. */
static void
sleep_until(TimestampTz until, const Looks *looks)
{
	for (;;)
	{
		bool		news = sleep_once(Min(until,
										  GetCurrentTimestamp() + LISTEN_EVERY));

		CHECK_FOR_INTERRUPTS();
		if (news || GetCurrentTimestamp() >= until)
			return;
		AcceptInvalidationMessages();
		/* the processing of messages may have taken a catalog snapshot */
		InvalidateCatalogSnapshot();
		if (!fairq_catalog_is_valid() ||
			pg_atomic_read_u64(&looks->domain->resets) != looks->resets)
			return;
	}
}

/*
 * Sleep until one of the queues has a task.  Returns its index; -1: none has
 * one by "end".
 */
static int
wait_until(TimestampTz end, text *const *names, int n)
{
	Looks	   *looks = palloc0(sizeof(Looks));
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq look",
											   ALLOCSET_SMALL_SIZES);
	int			found;

	for (;;)
	{
		MemoryContext old;
		TimestampTz until = end;

		MemoryContextReset(each);
		old = MemoryContextSwitchTo(each);
		found = look(names, n, looks);
		MemoryContextSwitchTo(old);
		if (found >= 0 || GetCurrentTimestamp() >= end)
			break;
		for (int i = 0; i < n; i++)
			until = Min(until, keep_time(i, looks->due[i], end));
		sleep_until(until, looks);
	}

	/* if the client is gone, another waiter must learn of the task */
	if (found >= 0 && MyProcPort != NULL && !pq_check_connection())
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("connection to client lost"));
	if (found >= 0)
		end_found(found);
	else
		end_waits(false, looks->due);
	return found;
}

/* For both procedures: wait at these queues for the time in argument 1. */
static Datum
wait_at(FunctionCallInfo fcinfo, const Datum *names, int n)
{
	int64		timeout = PG_ARGISNULL(1) ? DEFAULT_TIMEOUT :
		fairq_check_delay("timeout", PG_GETARG_INTERVAL_P(1));
	TimestampTz end = GetCurrentTimestamp() + timeout;
	text	   *copies[FAIRQ_MAX_WAITS];
	FairqRow	row = {0};

	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				errmsg("%s cannot run inside a transaction block",
					   "fairq.wait()"),
				errhint("Call it in autocommit mode."));
	fairq_writes("fairq.wait()");

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	/* the arguments' data might be freed before the end of this call */
	for (int i = 0; i < n; i++)
		copies[i] = DatumGetTextPCopy(names[i]);
	fairq_put(&row, BoolGetDatum(wait_until(end, copies, n) >= 0), false);
	SPI_finish();
	return fairq_row_result(fcinfo, &row);
}

Datum
fairq_wait(PG_FUNCTION_ARGS)
{
	Datum		name = PointerGetDatum(fairq_arg_text(fcinfo, 0, "queue"));

	PG_RETURN_DATUM(wait_at(fcinfo, &name, 1));
}

Datum
fairq_wait_queues(PG_FUNCTION_ARGS)
{
	Datum	   *names;
	int			n = fairq_arg_queues(fcinfo, 0, &names);

	PG_RETURN_DATUM(wait_at(fcinfo, names, n));
}
