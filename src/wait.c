/*
 * wait.c
 *		fairq.wait: sleep until a pop is worth it.
 *
 * The procedure looks as a pop would (serve.c), and sleeps until it is woken
 * (wake.c), in turn.  Each look is a transaction of its own: nothing is held
 * while it sleeps, no snapshot and no lock.  So vacuum goes on, and the queue
 * can be dropped, of which the next look hears.
 *
 * Two things wake no sleeper: that the extension was dropped, by a backend
 * that has nothing to do with fairq; and that rows were changed by others'
 * means, which voids what shared memory knows, of all queues at once.  So once
 * a second each sleeper has a look at the messages by which PostgreSQL tells
 * backends of changed tables, and at a counter: neither takes a snapshot or a
 * lock.  Dropped by a backend that has worked with queues, the extension is
 * missed at once (changed.c).
 *
 * A row that is merely locked is not worth a pop, which would pass it over,
 * and it is not published when it is unlocked.  A waiter that has seen nothing
 * but such rows looks again by itself, at intervals that grow.
 *
 * Locking: each look takes AccessShareLock on the queue and on fairq.task.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "domain.h"
#include "serve.h"
#include "store_spi.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_wait);

#define DEFAULT_TIMEOUT (INT64CONST(30) * USECS_PER_SEC)

/* until it is worth to look again at what is due and cannot be had just now */
#define RETRY (INT64CONST(10) * 1000)

/* the same, beside rows that are merely locked: twice as long each time, up to */
#define LONGEST_RETRY USECS_PER_SEC

/* how often a sleeper listens */
#define LISTEN_EVERY USECS_PER_SEC

/* What a look has found, beside that there is nothing. */
typedef struct Look
{
	uint64		events;			/* of the queue, before it */
	FairqDomain *domain;
	uint64		resets;			/* of the domain, before it */
	TimestampTz due;			/* when to look again */
	int64		retry;			/* put off so long by locked rows; 0: not */
} Look;

/* Returns when something of the queue falls due; DT_NOEND: never. */
static TimestampTz
next_due(FairqQueue *queue)
{
	TimestampTz next = DT_NOEND;
	TimestampTz now = GetCurrentTimestamp();
	int64		start;

	if (fairq_queue_is_held(queue, now))
		return queue->paused ? DT_NOEND : queue->starts.held_until;
	if (!queue->paused && fairq_census_is_due(queue->hints))
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

/* One look, a transaction of its own.  *last is the one before. */
static bool
look_once(text *name, Look *last)
{
	FairqQueue *queue;
	FairqTable *tasks;
	TimestampTz now;
	bool		saw_locked;
	bool		ready;

	if (!fairq_extension_exists())
		fairq_no_such_queue(name);
	queue = fairq_queue_use(name, FAIRQ_PRIV_WORK, AccessShareLock);
	fairq_watch_transaction();
	fairq_wait_begin(&queue->hints->wakeup);
	last->events = fairq_wake_events();
	last->domain = fairq_domain();
	last->resets = pg_atomic_read_u64(&last->domain->resets);
	now = GetCurrentTimestamp();
	tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	ready = fairq_worth_a_pop(queue, tasks, now, &saw_locked);
	fairq_table_close(tasks);
	last->due = next_due(queue);
	if (saw_locked)
	{
		last->retry = Min(Max(last->retry * 2, RETRY), LONGEST_RETRY);
		elog(DEBUG2, "tasks of queue \"%s\" are locked: looking again after %d ms",
			 queue->name, (int) (last->retry / 1000));
		last->due = last->due > now ? Min(Max(last->due, now + RETRY), now + last->retry) :
			now + last->retry;
	}
	else
	{
		/* others may have been unlocked, too, an unknown number */
		if (ready && last->retry > 0)
			fairq_wake_chain(&queue->hints->wakeup);
		last->retry = 0;
		last->due = last->due > now ? last->due : now + RETRY;
	}
	fairq_procedure_commit();
	return ready;
}

/* Sleep until then, or until there is reason to look again. */
static void
sleep_until(TimestampTz until, const Look *last)
{
	for (;;)
	{
		fairq_sleep(last->events,
					Min(until, GetCurrentTimestamp() + LISTEN_EVERY));
		CHECK_FOR_INTERRUPTS();
		if (fairq_wake_events() != last->events ||
			GetCurrentTimestamp() >= until)
			return;
		AcceptInvalidationMessages();
		/* it may have been needed for that */
		InvalidateCatalogSnapshot();
		if (!fairq_catalog_is_valid() ||
			pg_atomic_read_u64(&last->domain->resets) != last->resets)
			return;
	}
}

static Datum
result_row(bool ready)
{
	TupleDesc	desc = CreateTemplateTupleDesc(1);
	Datum		value = BoolGetDatum(ready);
	bool		isnull = false;

	TupleDescInitEntry(desc, 1, "ready", BOOLOID, -1, 0);
	fairq_finalize_tupdesc(desc);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), &value,
											 &isnull));
}

Datum
fairq_wait(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	int64		timeout = PG_ARGISNULL(1) ? DEFAULT_TIMEOUT :
		fairq_check_delay("timeout", PG_GETARG_INTERVAL_P(1));
	TimestampTz end = GetCurrentTimestamp() + timeout;
	MemoryContext each;
	Look		last = {0};
	bool		ready;

	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				errmsg("%s cannot run inside a transaction block",
					   "fairq.wait()"),
				errhint("Call it in autocommit mode."));
	fairq_writes("fairq.wait()");

	fairq_procedure_begin();
	/* what the argument points to need not live as long as this */
	name = DatumGetTextPCopy(PointerGetDatum(name));
	each = AllocSetContextCreate(CurrentMemoryContext, "fairq look",
								 ALLOCSET_SMALL_SIZES);
	for (;;)
	{
		MemoryContext old;

		MemoryContextReset(each);
		old = MemoryContextSwitchTo(each);
		ready = look_once(name, &last);
		MemoryContextSwitchTo(old);
		if (ready || GetCurrentTimestamp() >= end)
			break;
		sleep_until(fairq_mind_time(last.due, end), &last);
	}

	/* if the client is gone, it is news for another waiter */
	if (ready && MyProcPort != NULL && !pq_check_connection())
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("connection to client lost"));
	fairq_wait_end(false, ready ? DT_NOEND : last.due);
	fairq_procedure_end();
	PG_RETURN_DATUM(result_row(ready));
}
