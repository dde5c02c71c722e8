/*
 * wait.c
 *		fairq.wait: sleep until a pop is worth it.
 *
 * In turn the procedure looks for tasks as a pop would (serve.c), and sleeps
 * until it is woken (wake.c).  Each look is a transaction of its own: it holds
 * no snapshot and no lock while it sleeps.  So vacuum can proceed, and the
 * queue can be dropped, which the next look notices.
 *
 * Two events wake no sleeper.  The extension is dropped by a backend that has
 * not used fairq.  Or rows are changed by SQL, which makes the hints of all
 * queues void at once.  So each second a sleeper reads a counter, and the
 * messages by which PostgreSQL notifies backends of changed tables.  Neither
 * takes a snapshot or a lock.  If a backend that has worked with queues drops
 * the extension, sleepers notice at once (fairq.c).
 *
 * A row that is only locked is not worth a pop, which would pass it over, and
 * nothing publishes its unlocking.  A waiter that has seen only such rows
 * looks again by itself, at growing intervals.
 *
 * Tasks that a pop would end and not return (claim.c) are no reason to wake a
 * client.  A wait that finds no others ends them itself, and looks again.
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
#include "utils/builtins.h"
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
 * the same for rows that are only locked: twice as long each time, up to this
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
	uint64		resets;			/* of the domain, before the last one */
	FairqLook	look;			/* the last one */
} Looks;

/* Returns when something of the queue falls due; DT_NOEND: never. */
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
begin_look(text *const *names, int n, FairqQueue **queues, Looks *looks)
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
		/* an unknown number of others may have been unlocked, too */
		if (ready && *retry > 0)
			fairq_wake_chain(&queue->hints->wakeup);
		*retry = 0;
		due = due > now ? due : now + RETRY;
	}
	looks->due[nth] = due;
	return ready;
}

/*
 * Look at the queues in their order, in a transaction of its own, up to one
 * that has something.  With ends, it ends tasks that are over.  Returns which;
 * -1: none has.  *again: another look is worth it at once.
 */
static int
look_once(text *const *names, int n, Looks *looks, bool ends, bool *again)
{
	FairqQueue *queues[FAIRQ_MAX_WAITS];
	FairqTable *tasks;
	int			found = -1;

	*again = false;
	looks->look.ends = ends;
	begin_look(names, n, queues, looks);
	/* tasks that are ended may have values in a TOAST table */
	if (ends)
		PushActiveSnapshot(GetTransactionSnapshot());
	tasks = fairq_table_open(fairq_catalog()->task,
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
	/* and continue in a transaction that has no snapshot yet */
	SPI_commit();
	return found;
}

/*
 * Look at the queues.  If there are only tasks that a pop would end and not
 * return, end them.  The commit of that may free slots.
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

/* Sleep until then, or until there is reason to look again. */
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
		/* processing of messages may have taken it */
		InvalidateCatalogSnapshot();
		if (!fairq_catalog_is_valid() ||
			pg_atomic_read_u64(&looks->domain->resets) != looks->resets)
			return;
	}
}

/*
 * Sleep until one of the queues has something.  Returns which; -1: none until
 * end.
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
			until = Min(until, fairq_mind_time(i, looks->due[i], end));
		sleep_until(until, looks);
	}

	/* if the client is gone, it is news for another waiter */
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

/* Wait at these queues for the time of argument 1, for both procedures. */
static Datum
wait_at(FunctionCallInfo fcinfo, const Datum *names, int n)
{
	int64		timeout = PG_ARGISNULL(1) ? DEFAULT_TIMEOUT :
		fairq_check_delay("timeout", PG_GETARG_INTERVAL_P(1));
	TimestampTz end = GetCurrentTimestamp() + timeout;
	text	   *copies[FAIRQ_MAX_WAITS];
	bool		ready;

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
	/* data of the arguments need not live as long as this call */
	for (int i = 0; i < n; i++)
		copies[i] = DatumGetTextPCopy(names[i]);
	ready = wait_until(end, copies, n) >= 0;
	SPI_finish();
	return result_row(ready);
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
