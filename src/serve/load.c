/*
 * load.c
 *		What is running, and how many tasks there are, found by one pass.
 *
 * After a restart, and when rows were changed by SQL, it is not known how many
 * tasks of each limited group and queue run (counter.c), how far in each lane
 * tasks may be running (its reach), when the leases of which groups end, and
 * how many tasks there are.  The load finds all of that, for all queues of the
 * extension at once, by reading fairq.task from its first page to its last, as
 * of one snapshot.  tally.c says how that agrees with what transactions change
 * meanwhile.  The other two need no agreement:
 *
 * - a lane's reach is raised by the backend that claims a task, before its row
 *	 is there;
 * - a lease is published by the transaction that has made or ended it, at its
 *	 end, also if nothing else is known of the lane (lane_leases.c).
 *
 * Until a load is over, groups without a limit are served as ever, and limited
 * ones of queues of which nothing is known are passed over.  There a pop that
 * would return less than it was asked for (with per_group: nothing), and a
 * look of fairq.wait() that sees nothing, waits for the end of the load, and
 * then looks again (serve.c).
 *
 * A small table is loaded by the call that comes by first: that takes some
 * milliseconds, or some dozens in a queue with limits.  A large one is loaded
 * by a background worker, which is asked for once a second at most.  So a
 * statement_timeout of calls does not matter.  If there is no room for another
 * worker, or it does not begin, the call that waits loads by itself.  The
 * worker waits for nothing, since the call that waits for it may be in its
 * way: it gives up if it does not get a lock at once, or if another session
 * waits for a lock on the table, or wants to drop the database.
 *
 * A queue is locked while what was found of it is published, so that its hints
 * are its own.  One that is being dropped or rewritten is passed over, and is
 * not known by this load.  Likewise one that shared memory does not know,
 * unless something of it runs: there may be thousands, of which none is used.
 *
 * Memory: of each group of which something runs, some 100 bytes.
 *
 * Locking:  AccessShareLock on fairq.task, from before the snapshot is taken,
 * so that all rows that it sees are in the pages that there are; on a queue,
 * only if it can be had at once, for a moment.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "load.h"
#include "registry.h"
#include "stall.h"
#include "transaction.h"

/* pages that any call loads by itself: 8 MB, some ten milliseconds */
#define FEW_PAGES 1024

/* the same of a call that would pass over groups otherwise: 64 MB */
#define SOME_PAGES 8192

/* pages after which it is looked whether the load is to go on */
#define PAGES_AT_ONCE 128

/* groups that are published after which it is said that the load goes on */
#define GROUPS_AT_ONCE 64

/* how long a worker is waited for that was asked to load, in ns */
#define WORKER_PATIENCE (INT64CONST(1000) * 1000 * 1000)

/* how soon a worker loads again, in ns, only for how many tasks there are */
#define NUMBERS_EVERY (INT64CONST(10) * WORKER_PATIENCE)

/* how long a call that waits sleeps between two looks, at first and at most */
#define POLL_US 1000
#define LONGEST_POLL_US 16000

/* so often a call waits for others that do not count */
#define MOST_WAITS 16

/* so many loads a call waits for, should they be void again and again */
#define MOST_IN_A_CALL 3

/* Running tasks of a group in a lane. */
typedef struct GroupLoad
{
	struct
	{
		int32		lane;		/* number of the lane */
		int32		group_no;	/* number of the group */
	}			key;
	struct GroupLoad *next;		/* next one of the queue; NULL: none */
	int32		running;		/* number of running tasks */
	FairqLeases leases;			/* their leases */
} GroupLoad;

typedef struct QueueLoad
{
	int32		queue_id;		/* id of the queue */
	int64		n[FAIRQ_TALLIES];	/* number of its tasks */
	GroupLoad  *groups;			/* groups of which something runs, or NULL */
} QueueLoad;

typedef struct Load
{
	HTAB	   *queues;			/* QueueLoad, by queue_id */
	HTAB	   *groups;			/* GroupLoad, by key */
	QueueLoad  *last;			/* queue of the last task; NULL: none yet */
} Load;

/* true: this is a worker, which is in nobody's way */
static bool is_worker = false;

/* --------------------------------------------------------------------- */

static QueueLoad *
queue_of(Load *load, int32 queue_id)
{
	bool		found;
	QueueLoad  *queue = hash_search(load->queues, &queue_id, HASH_ENTER,
									&found);

	if (!found)
	{
		memset(queue->n, 0, sizeof(queue->n));
		queue->groups = NULL;
	}
	return queue;
}

static GroupLoad *
group_of(Load *load, QueueLoad *queue, const FairqTask *task)
{
	GroupLoad	new = {
		.key.lane = fairq_task_lane(task->queue_id, task->priority),
		.key.group_no = task->group_no
	};
	bool		found;
	GroupLoad  *group = hash_search(load->groups, &new.key, HASH_ENTER,
									&found);

	if (found)
		return group;
	fairq_leases_init(&new.leases);
	new.next = queue->groups;
	*group = new;
	queue->groups = group;
	return group;
}

static void
note_running(Load *load, QueueLoad *queue, const FairqTask *task)
{
	GroupLoad  *group;

	/* a row by SQL may stand anywhere */
	if (task->priority < 0 || task->priority >= FAIRQ_PRIORITIES ||
		task->group_no < 0 || task->addr < 0)
		return;
	group = group_of(load, queue, task);
	group->running++;
	fairq_leases_add(&group->leases, task->addr, task->lease_until);
}

static void
note_task(void *arg, const FairqTask *task)
{
	Load	   *load = arg;

	if (load->last == NULL || load->last->queue_id != task->queue_id)
		load->last = queue_of(load, task->queue_id);
	load->last->n[task->running ? FAIRQ_TALLY_RUNNING :
				  fairq_tallied_at(task->addr)]++;
	if (task->running)
		note_running(load, load->last, task);
}

/*
 * Is another session waiting for a lock on the table, or about to drop the
 * database?  Then a worker is not to keep it waiting.
 */
static bool
is_in_the_way(Relation rel)
{
	LOCKTAG		database;

	if (!is_worker)
		return false;
	SET_LOCKTAG_OBJECT(database, InvalidOid, DatabaseRelationId, MyDatabaseId,
					   0);
	if (LockAcquire(&database, RowExclusiveLock, false, true) ==
		LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&database, RowExclusiveLock, false);
	/* it conflicts with a lock that waits for ours, and is not ours already */
	if (!ConditionalLockRelationOid(RelationGetRelid(rel), RowShareLock))
		return true;
	UnlockRelationOid(RelationGetRelid(rel), RowShareLock);
	return false;
}

/* Read all rows.  False if the load is not to go on. */
static bool
read_pages(FairqTable *tasks, Snapshot snapshot, Load *load)
{
	/* what the snapshot sees is in these */
	BlockNumber end = RelationGetNumberOfBlocks(tasks->rel);

	for (BlockNumber at = 0; at < end; at += Min(PAGES_AT_ONCE, end - at))
	{
		fairq_task_pages(tasks, at, at + Min(PAGES_AT_ONCE, end - at),
						 snapshot, note_task, load);
		if (is_in_the_way(tasks->rel) || !fairq_tally_goes_on())
			return false;
	}
	return true;
}

/* --------------------------------------------------------------------- */

/* Publish what runs of a group in a lane, and until when. */
static void
publish_group(FairqHints *hints, const GroupLoad *group, bool counted)
{
	FairqLane  *lane = &hints->lanes[group->key.lane % FAIRQ_PRIORITIES];

	/* the reach first: a backend that hears of the lease searches so far */
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		fairq_lane_reaches(lane, group->leases.high[r]);
	fairq_chunks_have(&hints->chunks, group->key.group_no);
	fairq_lane_add_leases(lane, group->key.group_no, &group->leases);
	if (counted)
	{
		FairqCounter *counter = fairq_shmem_counter(hints,
													group->key.group_no);

		fairq_tally_add(counter, group->running);
		fairq_counter_unpin(counter);
	}
	fairq_stall("load");
}

/* Publish what was found of a queue, which is locked. */
static void
publish_to(FairqHints *hints, const QueueLoad *load, bool limited)
{
	/* of one that has nothing running all counters begin at 0 */
	bool		counted = load->groups != NULL &&
		fairq_tally_takes_load(&hints->tally, limited);
	int64		n = 0;

	for (const GroupLoad *group = load->groups; group != NULL;
		 group = group->next)
	{
		CHECK_FOR_INTERRUPTS();
		if (n++ % GROUPS_AT_ONCE == 0)
			(void) fairq_tally_goes_on();
		publish_group(hints, group, counted);
	}
	if (counted)
		fairq_tally_add(&hints->running,
						(int32) Min(load->n[FAIRQ_TALLY_RUNNING],
									PG_INT32_MAX));
	fairq_tally_found(&hints->tally, load->n);
}

/*
 * The same, but false if shared memory is full and the call is for another
 * queue: then this queue is not known, and all others are.
 */
static bool
publish_if_room(FairqHints *hints, const QueueLoad *load, bool limited,
				bool own)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = true;

	PG_TRY();
	{
		publish_to(hints, load, limited);
	}
	PG_CATCH();
	{
		if (own || geterrcode() != ERRCODE_DISK_FULL)
			PG_RE_THROW();
		/* a hash table that cannot grow leaves its locks, and no others are held */
		LWLockReleaseAll();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		done = false;
	}
	PG_END_TRY();
	return done;
}

/*
 * Publish what was found of a queue, if it can be locked at once.  With make,
 * also if shared memory does not know the queue yet.
 */
static void
publish_queue(const QueueLoad *load, const FairqQueueTally *of_call, bool make)
{
	int32		id = load->queue_id;
	FairqHints *hints = NULL;
	FairqQueue *queue = NULL;
	bool		done = false;

	if (fairq_queue_id_try_lock(id, AccessShareLock))
	{
		hints = fairq_shmem_find_queue(id);
		/* its settings are read only if they matter */
		if ((hints == NULL && make) || load->groups != NULL)
			queue = fairq_queue_by_id(id);
		if (queue != NULL)
			hints = queue->hints;
		if (hints != NULL && (queue != NULL || load->groups == NULL))
			done = publish_if_room(hints, load, queue != NULL && queue->limited,
								   &hints->tally == of_call);
		fairq_queue_id_unlock(id, AccessShareLock);
	}
	if (hints == NULL || !done)
		fairq_tally_skip();
}

/* Publish what was found of each queue. */
static void
publish(Load *load, const FairqQueueTally *of_call, bool make)
{
	HASH_SEQ_STATUS status;
	QueueLoad  *queue;
	ListCell   *lc;
	int64		running = 0;

	/* those that have no task */
	foreach(lc, fairq_shmem_queues(fairq_catalog()->task))
		(void) queue_of(load, ((FairqHints *) lfirst(lc))->entry.key.queue_id);
	hash_seq_init(&status, load->queues);
	while ((queue = hash_seq_search(&status)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		(void) fairq_tally_goes_on();
		publish_queue(queue, of_call, make);
		running += queue->n[FAIRQ_TALLY_RUNNING];
	}
	elog(DEBUG1, "the load has found " INT64_FORMAT " running tasks", running);
}

static HTAB *
make_table(const char *name, Size keysize, Size entrysize)
{
	HASHCTL		info = {
		.keysize = keysize,
		.entrysize = entrysize,
		.hcxt = CurrentMemoryContext
	};

	return hash_create(name, 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * Load, for the sake of a queue, or in a worker of none.  False if another
 * backend is at it.  The tally is found by the table: the hints of a queue that
 * is not locked may belong to another database by now.
 */
static bool
load_pages(const FairqQueueTally *of_call, FairqTable *tasks, bool make)
{
	FairqTally *tally = fairq_shmem_tally(RelationGetRelid(tasks->rel));
	Load		load = {.last = NULL};
	Snapshot	snapshot;
	bool		over;

	fairq_watch_transaction();
	snapshot = tally == NULL ? NULL : fairq_tally_begin(tally);
	if (snapshot == NULL)
		return false;
	load.queues = make_table("fairq queues", sizeof(int32), sizeof(QueueLoad));
	load.groups = make_table("fairq groups", sizeof(((GroupLoad *) NULL)->key),
							 sizeof(GroupLoad));
	over = read_pages(tasks, snapshot, &load);
	UnregisterSnapshot(snapshot);
	fairq_stall("load");
	if (over)
		publish(&load, of_call, make);
	fairq_tally_end(over);
	hash_destroy(load.groups);
	hash_destroy(load.queues);
	return true;
}

/* --------------------------------------------------------------------- */

/* In the worker: load, unless something is in the way. */
static void
load_in_worker(Oid task)
{
	FairqTable *tasks;

	tasks = fairq_extension_exists() && fairq_catalog()->task == task ?
		fairq_table_try_open(task) : NULL;
	if (tasks == NULL)
		return;
	(void) load_pages(NULL, tasks, false);
	fairq_table_close(tasks);
}

/* The worker, which a call has asked for that needs a load. */
void
fairq_load_main(Datum arg)
{
	Oid			database;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(Oid));
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	fairq_no_transaction_timeout();
	is_worker = true;
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	load_in_worker(DatumGetObjectId(arg));
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* Start a worker.  False if there is no room for another one. */
static bool
start_worker(void)
{
	BackgroundWorker worker = {
		.bgw_name = "fairq load",
		.bgw_type = "fairq load",
		.bgw_flags = BGWORKER_SHMEM_ACCESS |
			BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "fairq",
		.bgw_function_name = "fairq_load_main",
		.bgw_main_arg = ObjectIdGetDatum(fairq_catalog()->task)
	};

	memcpy(worker.bgw_extra, &MyDatabaseId, sizeof(Oid));
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

/* Was a worker asked to load, which has not begun, but will in a moment? */
static bool
was_asked(FairqTally *tally)
{
	int64		asked_at = (int64) pg_atomic_read_u64(&tally->asked_at);

	return asked_at > (int64) pg_atomic_read_u64(&tally->begun_at) &&
		fairq_monotonic() < asked_at + WORKER_PATIENCE;
}

/* Ask a worker to load, unless one was.  False if there is none. */
static bool
ask_worker(FairqTally *tally)
{
	uint64		asked_at = pg_atomic_read_u64(&tally->asked_at);

	if (was_asked(tally) ||
		!pg_atomic_compare_exchange_u64(&tally->asked_at, &asked_at,
										fairq_monotonic()))
		return true;
	if (start_worker())
		return true;
	pg_atomic_write_u64(&tally->asked_at, 0);
	return false;
}

/* Are there no more pages than a call loads by itself? */
static bool
is_small(FairqTable *tasks, bool needed)
{
	return RelationGetNumberOfBlocks(tasks->rel) <=
		(needed ? SOME_PAGES : FEW_PAGES);
}

/*
 * Is there something of the queue left for a load to find, that calls need?
 * Also as long as that is up to calls in progress that do not count.
 */
bool
fairq_load_is_due(FairqQueue *queue)
{
	FairqQueueTally *tally = &queue->hints->tally;
	bool		counts = fairq_tally_counts(tally);

	if (!fairq_tally_has_passed(tally))
		return true;
	if (pg_atomic_read_u32(&tally->limited) == 0)
		return false;
	if (!counts)
		return pg_atomic_read_u32(&tally->calls) != 0;
	return !fairq_tally_now(tally).known;
}

/* Was the last load begun just now? */
static bool
has_just_begun(FairqTally *tally)
{
	int64		begun_at = (int64) pg_atomic_read_u64(&tally->begun_at);

	return begun_at != 0 && fairq_monotonic() < begun_at + NUMBERS_EVERY;
}

/*
 * Have a load begun, if something is not known of the queue, or how many tasks
 * it has: at once, if the table is small.  Nothing is waited for.
 */
void
fairq_load_begin(FairqQueue *queue, FairqTable *tasks)
{
	FairqQueueTally *of_queue = &queue->hints->tally;
	FairqTally *tally = fairq_tally_of(of_queue);
	bool		due;

	if (queue->limited)
		fairq_tally_limit(of_queue);
	due = fairq_load_is_due(queue);
	if ((!due && fairq_tally_is_known(of_queue)) || RecoveryInProgress() ||
		IsInParallelMode() || fairq_tally_is_busy(tally))
		return;
	if (is_small(tasks, due && pg_atomic_read_u32(&of_queue->limited) != 0))
		(void) load_pages(of_queue, tasks, false);
	else if (due || !has_just_begun(tally))
		(void) ask_worker(tally);
}

/*
 * Have all loaded that calls need of the queue: by others, if that can be.
 * False if it is void all the time, or other calls or transactions do not
 * count.
 */
bool
fairq_load_finish(FairqQueue *queue, FairqTable *tasks)
{
	FairqQueueTally *of_queue = &queue->hints->tally;
	FairqTally *tally = fairq_tally_of(of_queue);
	uint64		first = pg_atomic_read_u64(&tally->number);
	bool		asked = false;
	int			waits = 0;
	int			sleep_us = POLL_US;

	while (fairq_load_is_due(queue))
	{
		bool		counts = fairq_tally_has_passed(of_queue) ?
			fairq_tally_counts(of_queue) : true;
		bool		waited = !counts || fairq_tally_is_busy(tally);

		CHECK_FOR_INTERRUPTS();
		if ((!counts && waits++ == MOST_WAITS) || RecoveryInProgress() ||
			IsInParallelMode() ||
			pg_atomic_read_u64(&tally->number) - first >
			FAIRQ_BOOKS * MOST_IN_A_CALL)
			return false;
		if (!waited && !is_small(tasks, true) && (!asked || was_asked(tally)))
		{
			waited = ask_worker(tally);
			asked = true;
		}
		if (!waited)
		{
			(void) load_pages(of_queue, tasks, false);
			continue;
		}
		pg_usleep(sleep_us);
		sleep_us = counts ? Min(sleep_us * 2, LONGEST_POLL_US) : POLL_US;
	}
	return true;
}

/*
 * Load here and now, if something of the queue is not known, and no other
 * backend is at it; also what shared memory does not know yet.
 */
void
fairq_load_here(FairqQueue *queue, FairqTable *tasks)
{
	if (fairq_load_is_due(queue) ||
		!fairq_tally_is_known(&queue->hints->tally))
		(void) load_pages(&queue->hints->tally, tasks, true);
}

/*
 * The same for a queue that was just made, if the table is small: so the
 * numbers of an extension's first queue are known.
 */
void
fairq_load_first(FairqQueueTally *tally)
{
	FairqTable *tasks;

	if (fairq_tally_is_known(tally))
		return;
	tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	if (is_small(tasks, false))
		(void) load_pages(tally, tasks, false);
	fairq_table_close(tasks);
}

/* End a load that an error has broken off. */
static void
end_call(void)
{
	fairq_tally_end(false);
}

/* At the end of a transaction a load is left. */
const FairqEnding fairq_load_ending = {.end_call = end_call};
