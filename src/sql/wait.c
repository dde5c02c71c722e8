/*
 * wait.c
 *		fairq.wait: sleep until a pop can return a task.
 *
 * The procedure alternates between looks for tasks, which search like a pop
 * (serve.c), and sleep until it is woken (wake.c).  Each look is a separate
 * transaction, so the procedure holds no snapshot and no lock while it sleeps.
 * So vacuum can proceed, and the queue can be dropped, which the next look
 * detects.
 *
 * Two events do not wake a sleeper.  One is that a backend that has not used
 * fairq drops the extension.  The other is that SQL changes rows, which
 * invalidates the hints of all queues at once.  So once a second a sleeper
 * reads a counter and PostgreSQL's invalidation messages.  This needs no
 * snapshot and no lock.  If a backend that has worked with queues drops the
 * extension, sleepers detect this at once (fairq.c).
 *
 * A row that is only locked does not justify a pop, which would skip it.
 * Nothing publishes its unlocking.  A waiter that finds only such rows looks
 * again at increasing intervals.
 *
 * Tasks that a pop would end and not return (claim.c) do not wake a client.  A
 * wait that finds only such tasks ends them itself, and looks again.
 *
 * Locking: each look takes AccessShareLock on the queue and on fairq.task; one
 * that ends tasks takes RowExclusiveLock on the latter, and locks their rows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
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
#include "shmem.h"
#include "store.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_wait);
PG_FUNCTION_INFO_V1(fairq_wait_queues);

#define DEFAULT_TIMEOUT (INT64CONST(30) * USECS_PER_SEC)

/*
 * how long to wait before another look at due tasks that are not available now
 */
#define RETRY (INT64CONST(10) * 1000)

/*
 * the longest wait for rows that are only locked: it doubles each time
 */
#define LONGEST_RETRY USECS_PER_SEC

/* how often a sleeper checks messages and the counter */
#define LISTEN_EVERY USECS_PER_SEC

/* Results of the looks at queues that have found no task. */
typedef struct Looks
{
	TimestampTz due[FAIRQ_MAX_WAITS];	/* when to look again */
	int64		retry[FAIRQ_MAX_WAITS]; /* delay because of locked rows; 0:
										 * none */
	FairqDomain *domain;
	uint64		resets;			/* resets of the domain, before the last
								 * look */
	FairqLook	look;			/* the last one */
} Looks;

/*
 * Returns the time at which a task of the queue becomes due; DT_NOEND: never.
 */
static TimestampTz
next_due(FairqQueue *queue)
{
	TimestampTz next = DT_NOEND;
	TimestampTz now = GetCurrentTimestamp();
	int64		start;

	if (fairq_queue_is_held(queue, now))
		return queue->paused ? DT_NOEND : queue->starts.held_until;
	if (!queue->paused && fairq_load_is_due(queue))
		return DT_NOBEGIN;
	for (int priority = 0; priority < FAIRQ_PRIORITIES && !queue->paused;
		 priority++)
	{
		FairqLane  *lane = fairq_queue_lane(queue, priority);

		next = Min(next, fairq_times_next(&lane->times));
		start = fairq_lane_next_back(lane);
		if (start != PG_INT64_MAX)
			next = Min(next, fairq_wall_time(start, now));
	}
	if (!queue->paused && queue->starts.pace.gap != 0)
	{
		start = fairq_counter_next_start(&queue->hints->running,
										 &queue->starts.pace);
		if (start != 0)
			next = Min(next, fairq_wall_time(start, now));
	}
	return next;
}

/* Lock the queues, and count this backend as waiting at them. */
static void
begin_wait(text *const *names, int n, FairqQueue **queues, Looks *looks)
{
	FairqWakeup *wakeups[FAIRQ_MAX_WAITS];

	if (!fairq_extension_exists())
		fairq_no_such_queue(names[0], false);
	for (int i = 0; i < n; i++)
	{
		queues[i] = fairq_queue_use(names[i], FAIRQ_PRIV_WORK, AccessShareLock);
		wakeups[i] = &queues[i]->hints->wakeup;
	}
	fairq_watch_transaction();
	fairq_wait_begin(wakeups, n);
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
		due = due > now ? Min(Max(due, now + RETRY), now + *retry) : now + *retry;
	}
	else
	{
		/* an unknown number of other tasks may also have been unlocked */
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
 * task.  With ends, end tasks that a pop would end and not return.  Returns
 * the index of the queue; -1: none has a task.  *again: look again at once.
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
	/* tasks that are ended may have values in a TOAST table */
	if (ends)
		PushActiveSnapshot(GetTransactionSnapshot());
	tasks = fairq_table_open(fairq_relid(FAIRQ_TASK),
							 ends ? RowExclusiveLock : AccessShareLock);
	for (int i = 0; i < n && found < 0; i++)
	{
		if (look_at(queues[i], tasks, i, looks))
			found = i;
		*again |= ends ? looks->look.ended : looks->look.saw_over;
	}
	fairq_table_close(tasks);
	if (ends)
		PopActiveSnapshot();
	/* and continue in a transaction without a snapshot */
	SPI_commit();
	return found;
}

/*
 * Look at the queues.  If there are only tasks that a pop would end and not
 * return, end them.  That commit may free slots.
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
		bool		news = fairq_sleep(Min(until,
										   GetCurrentTimestamp() + LISTEN_EVERY));

		CHECK_FOR_INTERRUPTS();
		if (news || GetCurrentTimestamp() >= until)
			return;
		AcceptInvalidationMessages();
		/* the processing of messages may have taken it */
		InvalidateCatalogSnapshot();
		if (!fairq_catalog_is_valid() ||
			pg_atomic_read_u64(&looks->domain->resets) != looks->resets)
			return;
	}
}

/*
 * Sleep until one of the queues has a task.  Returns its index; -1: none has
 * one until "end".
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
			until = Min(until, fairq_keep_time(i, looks->due[i], end));
		sleep_until(until, looks);
	}

	/* if the client is gone, another waiter must learn of the task */
	if (found >= 0 && MyProcPort != NULL && !pq_check_connection())
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("connection to client lost"));
	if (found >= 0)
		fairq_wait_found(found);
	else
		fairq_wait_end(false, looks->due);
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
