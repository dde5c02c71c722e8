/*
 * load.c
 *		One pass over the table, which finds the running tasks and counts all
 *		tasks.
 *
 * After a restart, and when SQL has changed rows, the numbers of running tasks
 * of limited groups and queues are unknown (counter.c).  Each lane's reach
 * (the highest address of a running task), the ends of leases, and the number
 * of tasks are then also unknown.  The load finds all of these, for all queues
 * of the extension at once.  It reads fairq.task from its first page to its
 * last, as of one snapshot.  tally.c describes how the numbers of tasks stay
 * consistent with concurrent transactions.  The reach and the leases need no
 * protocol:
 *
 * - a backend that claims a task raises the lane's reach before it writes the
 *	 row;
 * - a transaction that has begun or ended a lease publishes the change when
 *	 the transaction ends, even if the lane is not recovered (lane.c).
 *
 * Until a load is over, calls serve groups without a limit, and skip limited
 * ones if the queue's counters are not known.  A pop waits for the end of the
 * load if it would return fewer tasks than requested; with per_group, only if
 * it would return none.  A check of fairq.wait() that finds no task also
 * waits.  Both then search again (serve.c).
 *
 * The first call loads a small table, which takes a few milliseconds, or a few
 * dozen in a queue with limits.  A background worker loads a large table;
 * calls request it at most once a second.  So the statement_timeout of a call
 * does not interrupt the load.  If no worker is available, or the worker does
 * not begin, the waiting call loads the table itself.  The worker waits for no
 * lock, because the call that waits for the worker may have a conflicting one.
 * The worker gives up if it does not get a lock at once.  It also gives up if
 * another session waits for a lock on the table or wants to drop the database.
 *
 * SQL that changes tasks invalidates a load.  After a call has waited for such
 * a load, further SQL waits until a load is valid, and a tenth of a second
 * more (fairq_load_precedes_sql()).  Otherwise frequent SQL would prevent
 * service of limited groups and lapsed tasks.
 *
 * The load locks a queue while it publishes the queue's numbers, so that the
 * hints still belong to that queue.  It skips a queue that is being dropped or
 * rewritten.  So the numbers of that queue stay unknown.  It also skips a
 * queue without hints, unless a task of the queue runs, because there may be
 * thousands of unused queues.
 *
 * Memory: some 100 bytes per group that has running tasks.
 *
 * Locking: the load takes AccessShareLock on fairq.task before its snapshot,
 * so that the table's pages hold all rows that the snapshot sees.  The load
 * also locks a queue, for a moment, if the lock is free.  Its reports take the
 * tally's lock (tally.c).
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
#include "utils/snapmgr.h"

#include "compat.h"
#include "group.h"
#include "load.h"
#include "registry.h"
#include "tools.h"
#include "transaction.h"

/*
 * the most pages that any call itself loads: 8 MB, in about ten milliseconds
 */
#define FEW_PAGES 1024

/*
 * maximum number of pages that a call loads if it would otherwise skip groups:
 * 64 MB
 */
#define SOME_PAGES 8192

/* pages after which the load checks whether it must stop */
#define PAGES_AT_ONCE 128

/* published groups after which the load reports that it continues */
#define GROUPS_AT_ONCE 64

/* nanoseconds after which others stop waiting for a silent backend */
#define PATIENCE (INT64CONST(5) * 1000 * 1000 * 1000)

/* how long a call waits for the worker that it has requested, in ns */
#define WORKER_PATIENCE (INT64CONST(1000) * 1000 * 1000)

/*
 * how soon a worker loads again, in ns, if only the number of tasks is unknown
 */
#define NUMBERS_EVERY (INT64CONST(10) * WORKER_PATIENCE)

/* how long a waiting call sleeps between checks, at first and at most */
#define POLL_US 1000
#define LONGEST_POLL_US 16000

/* how many times a call waits for uncounted calls and transactions */
#define MOST_WAITS 16

/* the most loads that a call waits for if they become invalid repeatedly */
#define MOST_IN_A_CALL 3

/* Running tasks of a group in a lane. */
typedef struct GroupLoad
{
	struct
	{
		int32		lane;		/* number of the lane */
		int32		group_no;	/* number of the group */
	}			key;
	struct GroupLoad *next;		/* next GroupLoad of the queue; NULL: none */
	int32		running;		/* number of running tasks */
	FairqLeases leases;			/* their leases */
} GroupLoad;

typedef struct QueueLoad
{
	int32		queue_id;		/* id of the queue */
	int64		n[FAIRQ_TALLIES];	/* numbers of the queue's tasks of each
									 * kind */
	GroupLoad  *groups;			/* groups that have running tasks, or NULL */
} QueueLoad;

typedef struct Load
{
	HTAB	   *queues;			/* QueueLoad, by queue_id */
	HTAB	   *groups;			/* GroupLoad, by key */
	QueueLoad  *last;			/* queue of the last task; NULL: none yet */
} Load;

/* The load that this backend runs. */
static struct
{
	FairqTally *tally;			/* NULL: none */
	uint64		number;			/* number of the load */
	uint64		resets;			/* resets of the domain before the snapshot
								 * was taken */
}			loading;

/* true: this is a worker, which must not block other sessions */
static bool is_worker = false;

/* --------------------------------------------------------------------- */

/* Copy the snapshot's view of transactions.  The lock is held exclusively. */
static void
keep_snapshot(FairqTally *tally, int book, Snapshot snapshot)
{
	FairqBook  *seen = &tally->books[book];
	uint32	   *running = fairq_tally_running(tally, book);
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		behind = XidFromFullTransactionId(next) - snapshot->xmax;
	TransactionId own = GetTopTransactionIdIfAny();

	/* xmin and xmax are less than two billion behind the next xid */
	seen->xmax = U64FromFullTransactionId(next) - behind;
	seen->xmin = seen->xmax - (uint32) (snapshot->xmax - snapshot->xmin);
	seen->nrunning = snapshot->xcnt;
	for (int i = 0; i < seen->nrunning; i++)
		running[i] = snapshot->xip[i] - snapshot->xmin;
	/* a snapshot has room for the xids of all transactions, and omits ours */
	if (TransactionIdIsValid(own) &&
		TransactionIdPrecedes(own, snapshot->xmax))
		running[seen->nrunning++] = own - snapshot->xmin;
	qsort(running, seen->nrunning, sizeof(uint32), fairq_compare_uint32);
}

/* Whether a backend runs a load. */
static bool
is_busy(FairqTally *tally)
{
	int64		seen_at = (int64) pg_atomic_read_u64(&tally->seen_at);

	return seen_at != 0 && fairq_monotonic() < seen_at + PATIENCE;
}

/*
 * Begin a load in the book that the current load does not use, and return the
 * book.  The lock is held exclusively.
 */
static int
begin_book(FairqTally *tally)
{
	uint64		current = pg_atomic_read_u64(&tally->current);
	uint64		last = pg_atomic_read_u64(&tally->number);
	int			book = 1 - fairq_book_of(current);

	loading.number = (last / FAIRQ_BOOKS + 1) * FAIRQ_BOOKS + book;
	pg_atomic_write_u64(&tally->number, loading.number);
	tally->books[book].number = loading.number;
	tally->books[book].skips = false;
	return book;
}

/*
 * Begin a load.  Returns a registered snapshot for reading the rows; NULL if
 * another backend runs a load.  The caller holds a lock on fairq.task.
 */
static Snapshot
begin_load(FairqTally *tally)
{
	Snapshot	snapshot;
	int			book;

	Assert(loading.tally == NULL);
	/* the first call allocates memory and can fail; later ones cannot */
	(void) GetLatestSnapshot();
	LWLockAcquire(&tally->lock, LW_EXCLUSIVE);
	if (is_busy(tally))
	{
		LWLockRelease(&tally->lock);
		return NULL;
	}
	loading.tally = tally;
	pg_atomic_write_u64(&tally->begun_at, fairq_monotonic());
	pg_atomic_write_u64(&tally->seen_at, fairq_monotonic());
	book = begin_book(tally);
	loading.resets = fairq_tally_resets(tally);
	pg_read_barrier();
	snapshot = GetLatestSnapshot();
	/* the snapshot does not see changes of our own transaction */
	snapshot->curcid = FirstCommandId;
	keep_snapshot(tally, book, snapshot);
	LWLockRelease(&tally->lock);
	return RegisterSnapshot(snapshot);
}

/*
 * Lock the tally while our load reports something.  Returns false if another
 * load has begun since; our load then reports nothing more.
 */
static bool
lock_tally(LWLockMode mode)
{
	FairqTally *tally = loading.tally;

	LWLockAcquire(&tally->lock, mode);
	if (pg_atomic_read_u64(&tally->number) == loading.number)
		return true;
	LWLockRelease(&tally->lock);
	return false;
}

static void
unlock_tally(void)
{
	LWLockRelease(&loading.tally->lock);
}

/* Report that our load continues.  Returns false if another load has begun. */
static bool
goes_on(void)
{
	FairqTally *tally = loading.tally;

	if (!lock_tally(LW_SHARED))
		return false;
	pg_atomic_write_u64(&tally->seen_at, fairq_monotonic());
	if (fairq_tally_delays_sql(tally))
		fairq_tally_delay_sql(tally);
	unlock_tally();
	return true;
}

/*
 * Whether our load is valid for the counters of a queue with running tasks.
 * limited: the queue's settings have a limit.  If the queue has no limit, its
 * counters do not use the load's result.
 */
static bool
is_valid_for(FairqQueueTally *queue, bool limited)
{
	fairq_tally_limit(queue, limited);
	if (pg_atomic_read_u32(&queue->limited) == 0)
		fairq_tally_count_nothing(queue);
	return pg_atomic_read_u64(&queue->counts_since) < loading.number;
}

/* Add running tasks that the load has found to a counter, which is pinned. */
static void
add_to(FairqCounter *counter, int32 n)
{
	if (!lock_tally(LW_SHARED))
		return;
	fairq_counter_add(counter, loading.number, n);
	unlock_tally();
}

/*
 * Add the load's result for a queue, which the caller has locked.  Its other
 * results for the queue are published already.
 */
static void
add_found(FairqQueueTally *queue, const int64 *n)
{
	int			book = fairq_book_of(loading.number);

	if (!lock_tally(LW_SHARED))
		return;
	fairq_tally_add(loading.tally, queue, book, n);
	pg_atomic_write_u64(&queue->loaded[book], loading.number);
	pg_atomic_write_u64(&queue->passed, loading.resets);
	unlock_tally();
}

/*
 * Record that the load skips tasks of a queue without hints.  A backend that
 * makes hints for the queue reads this record.
 */
static void
note_skip(void)
{
	if (!lock_tally(LW_SHARED))
		return;
	loading.tally->books[fairq_book_of(loading.number)].skips = true;
	unlock_tally();
}

/*
 * End the load.  If over is false, the load has failed.  Callbacks also call
 * this, possibly without a load.
 */
void
fairq_load_end(bool over)
{
	FairqTally *tally = loading.tally;

	if (tally == NULL)
		return;
	if (lock_tally(LW_EXCLUSIVE))
	{
		pg_atomic_write_u64(&tally->seen_at, 0);
		if (over)
		{
			pg_atomic_write_u64(&tally->current, loading.number);
			/* is_known() in tally.c reads these two in the opposite order */
			pg_write_barrier();
			pg_atomic_write_u64(&tally->known, loading.resets);
			pg_atomic_write_u64(&tally->passed, loading.resets);
		}
		unlock_tally();
	}
	loading.tally = NULL;
}

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
note_task(void *arg, const FairqTask *task)
{
	Load	   *load = arg;
	GroupLoad  *group;

	if (load->last == NULL || load->last->queue_id != task->queue_id)
		load->last = queue_of(load, task->queue_id);
	load->last->n[task->running ? FAIRQ_TALLY_RUNNING :
				  fairq_tallied_at(task->addr)]++;
	/* SQL may have written a row with any address */
	if (!task->running ||
		task->priority < 0 || task->priority >= FAIRQ_PRIORITIES ||
		task->group_no < 0 || task->addr < 0)
		return;
	group = group_of(load, load->last, task);
	group->running++;
	fairq_leases_add(&group->leases, task->addr, task->lease_until);
}

/*
 * Whether another session waits for a lock on the table, or is about to drop
 * the database.  A worker must not make such a session wait.
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
	/*
	 * we do not hold this lock yet, so it is refused if a session waits for a
	 * lock that conflicts with ours
	 */
	if (!ConditionalLockRelationOid(RelationGetRelid(rel), RowShareLock))
		return true;
	UnlockRelationOid(RelationGetRelid(rel), RowShareLock);
	return false;
}

/* Read all rows.  Returns false if the load must not continue. */
static bool
read_pages(FairqTable *tasks, Snapshot snapshot, Load *load)
{
	/* these pages hold all rows that the snapshot sees */
	BlockNumber end = RelationGetNumberOfBlocks(tasks->rel);

	for (BlockNumber at = 0; at < end; at += Min(PAGES_AT_ONCE, end - at))
	{
		fairq_task_pages(tasks, at, at + Min(PAGES_AT_ONCE, end - at),
						 snapshot, note_task, load);
		if (is_in_the_way(tasks->rel) || !goes_on())
			return false;
	}
	return true;
}

/* --------------------------------------------------------------------- */

/* Add n running tasks to the counter of a group, or of a tenant. */
static void
add_running(FairqHints *hints, int32 group_no, int32 n)
{
	FairqCounter *counter = fairq_shmem_counter(hints, group_no, true);

	add_to(counter, n);
	fairq_counter_unpin(counter);
}

/*
 * Publish the running tasks of a group in a lane, and their leases.  tenant is
 * the number of the group's tenant; FAIRQ_NO_SEAT: it has none.
 */
static void
publish_group(FairqHints *hints, const GroupLoad *group, int32 tenant,
			  bool counted)
{
	FairqLane  *lane = &hints->lanes[group->key.lane % FAIRQ_PRIORITIES];

	/*
	 * raise the reach first, because a backend that sees the lease searches up
	 * to the reach
	 */
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		fairq_lane_reaches(lane, group->leases.high[r]);
	fairq_chunks_have(&hints->chunks, group->key.group_no);
	fairq_lane_add_leases(lane, group->key.group_no, &group->leases);
	if (counted)
		add_running(hints, group->key.group_no, group->running);
	if (counted && tenant != FAIRQ_NO_SEAT)
		add_running(hints, tenant, group->running);
	fairq_stall("load");
}

/*
 * Publish the numbers of a locked queue.  queue is NULL if its settings are
 * not needed.
 */
static void
publish_to(FairqHints *hints, FairqQueue *queue, const QueueLoad *load)
{
	/* if no task of the queue runs, all its counters begin at 0 */
	bool		counted = load->groups != NULL &&
		is_valid_for(&hints->tally, queue != NULL && queue->limited);
	int64		n = 0;

	for (const GroupLoad *group = load->groups; group != NULL;
		 group = group->next)
	{
		CHECK_FOR_INTERRUPTS();
		if (n++ % GROUPS_AT_ONCE == 0)
			(void) goes_on();
		publish_group(hints, group, counted ?
					  fairq_tenant_no(queue, group->key.group_no) :
					  FAIRQ_NO_SEAT, counted);
	}
	if (counted)
		add_to(&hints->running,
			   (int32) Min(load->n[FAIRQ_TALLY_RUNNING], PG_INT32_MAX));
	add_found(&hints->tally, load->n);
}

/*
 * Publish the numbers of a locked queue.  Returns false if shared memory is
 * full and the call is for another queue.  Then only this queue's numbers stay
 * unknown.
 */
static bool
publish_if_room(FairqHints *hints, FairqQueue *queue, const QueueLoad *load,
				bool own)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = true;

	PG_TRY();
	{
		publish_to(hints, queue, load);
	}
	PG_CATCH();
	{
		if (own || !fairq_catch(ERRCODE_DISK_FULL, context))
			PG_RE_THROW();
		done = false;
	}
	PG_END_TRY();
	return done;
}

/*
 * Publish the numbers of a queue, if it can be locked at once. make: make
 * hints if the queue has none yet.
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
		hints = fairq_shmem_queue(id, false);
		/* read its settings only if they matter */
		if ((hints == NULL && make) || load->groups != NULL)
			queue = fairq_queue_by_id(id, false);
		if (queue != NULL)
			hints = queue->hints;
		if (hints != NULL && (queue != NULL || load->groups == NULL))
			done = publish_if_room(hints, queue, load,
								   &hints->tally == of_call);
		fairq_queue_id_unlock(id, AccessShareLock);
	}
	if (hints == NULL || !done)
		note_skip();
}

/* Publish the numbers of each queue. */
static void
publish(Load *load, const FairqQueueTally *of_call, bool make)
{
	HASH_SEQ_STATUS status;
	QueueLoad  *queue;
	ListCell   *lc;
	int64		running = 0;

	/* include queues without tasks */
	foreach(lc, fairq_shmem_queues(fairq_relid(FAIRQ_TASK)))
		(void) queue_of(load, ((FairqHints *) lfirst(lc))->entry.key.queue_id);
	hash_seq_init(&status, load->queues);
	while ((queue = hash_seq_search(&status)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		(void) goes_on();
		publish_queue(queue, of_call, make);
		running += queue->n[FAIRQ_TALLY_RUNNING];
	}
	elog(DEBUG1, "the load has found " INT64_FORMAT " running tasks", running);
}

/*
 * Load for a queue, or for none in a worker, unless another backend loads.
 * The tally is found through the table, because the hints of a queue that is
 * not locked may belong to another database by now.
 */
static void
load_pages(const FairqQueueTally *of_call, FairqTable *tasks, bool make)
{
	FairqTally *tally = fairq_shmem_tally(RelationGetRelid(tasks->rel));
	Load		load = {.last = NULL};
	Snapshot	snapshot;
	bool		over;

	fairq_watch_transaction();
	snapshot = tally == NULL ? NULL : begin_load(tally);
	if (snapshot == NULL)
		return;
	load.queues = fairq_hash(CurrentMemoryContext, "fairq queues",
							 sizeof(int32), sizeof(QueueLoad));
	load.groups = fairq_hash(CurrentMemoryContext, "fairq groups",
							 sizeof(((GroupLoad *) NULL)->key),
							 sizeof(GroupLoad));
	over = read_pages(tasks, snapshot, &load);
	UnregisterSnapshot(snapshot);
	fairq_stall("load");
	if (over)
		publish(&load, of_call, make);
	fairq_load_end(over);
	hash_destroy(load.groups);
	hash_destroy(load.queues);
}

/* --------------------------------------------------------------------- */

/*
 * The worker, started by a call that needs a load.  It loads, unless a lock or
 * another load prevents it.
 */
void
fairq_load_main(Datum arg)
{
	Oid			database;
	Oid			task = DatumGetObjectId(arg);
	FairqTable *tasks;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(Oid));
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	fairq_no_transaction_timeout();
	is_worker = true;
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	tasks = fairq_extension_exists() && fairq_relid(FAIRQ_TASK) == task ?
		fairq_try_open_tasks() : NULL;
	if (tasks != NULL)
	{
		load_pages(NULL, tasks, false);
		fairq_table_close(tasks);
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* Start a worker.  Returns false if no worker slot is free. */
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
		.bgw_main_arg = ObjectIdGetDatum(fairq_relid(FAIRQ_TASK))
	};

	memcpy(worker.bgw_extra, &MyDatabaseId, sizeof(Oid));
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

/* Whether a worker was requested a short time ago. */
static bool
was_asked(FairqTally *tally)
{
	int64		asked_at = (int64) pg_atomic_read_u64(&tally->asked_at);

	return asked_at > (int64) pg_atomic_read_u64(&tally->begun_at) &&
		fairq_monotonic() < asked_at + WORKER_PATIENCE;
}

/*
 * Request a worker that loads, unless one was requested.  Returns false if no
 * worker is available.
 */
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

/* Whether the table is small enough for a call to load it by itself. */
static bool
is_small(FairqTable *tasks, bool needed)
{
	return RelationGetNumberOfBlocks(tasks->rel) <=
		(needed ? SOME_PAGES : FEW_PAGES);
}

/*
 * Whether calls need data of the queue that a load has yet to find.  The
 * answer is also true while uncounted calls are in progress.
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

/*
 * Begin a load if data of the queue, or its number of tasks, is not known.  If
 * the table is small, load at once.  The call does not wait for another
 * backend's load.
 */
void
fairq_load_begin(FairqQueue *queue, FairqTable *tasks)
{
	FairqQueueTally *of_queue = &queue->hints->tally;
	FairqTally *tally = fairq_tally_of(of_queue);
	int64		begun_at;
	bool		due;

	fairq_tally_limit(of_queue, queue->limited);
	due = fairq_load_is_due(queue);
	if ((!due && fairq_tally_is_known(of_queue)) || RecoveryInProgress() ||
		IsInParallelMode() || is_busy(tally))
		return;
	begun_at = (int64) pg_atomic_read_u64(&tally->begun_at);
	if (is_small(tasks, due && pg_atomic_read_u32(&of_queue->limited) != 0))
		load_pages(of_queue, tasks, false);
	else if (due || begun_at == 0 ||
			 fairq_monotonic() >= begun_at + NUMBERS_EVERY)
		(void) ask_worker(tally);
}

/*
 * Finish loading the data that calls need of the queue; other backends load it
 * if possible.  Returns false if loads become invalid again and again, or if
 * uncounted calls or transactions do not end.
 */
bool
fairq_load_finish(FairqQueue *queue, FairqTable *tasks)
{
	FairqQueueTally *of_queue = &queue->hints->tally;
	FairqTally *tally = fairq_tally_of(of_queue);
	uint64		first = pg_atomic_read_u64(&tally->number);
	bool		asked = false;
	bool		voided = false;
	int			waits = 0;
	int			sleep_us = POLL_US;

	while (fairq_load_is_due(queue))
	{
		bool		counts = fairq_tally_has_passed(of_queue) ?
			fairq_tally_counts(of_queue) : true;
		bool		waited = !counts || is_busy(tally);

		CHECK_FOR_INTERRUPTS();
		voided |= !waited && pg_atomic_read_u64(&tally->number) != first;
		if (voided)
			fairq_tally_delay_sql(tally);
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
			load_pages(of_queue, tasks, false);
			continue;
		}
		pg_usleep(sleep_us);
		sleep_us = counts ? Min(sleep_us * 2, LONGEST_POLL_US) : POLL_US;
	}
	return true;
}

/*
 * For SQL that is about to change tasks: wait while calls wait for a load, if
 * SQL has invalidated earlier loads.  A transaction that has already changed
 * tasks does not wait, because its end invalidates the next load in any case.
 */
void
fairq_load_precedes_sql(Oid task)
{
	FairqTally *tally = fairq_shmem_tally(task);

	while (tally != NULL && fairq_own.rows == 0 &&
		   fairq_tally_delays_sql(tally))
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(POLL_US);
	}
}

/*
 * Load in this call if data of the queue is not known, and no other backend
 * loads.  This load also includes queues without hints.
 */
void
fairq_load_here(FairqQueue *queue, FairqTable *tasks)
{
	if (fairq_load_is_due(queue) ||
		!fairq_tally_is_known(&queue->hints->tally))
		load_pages(&queue->hints->tally, tasks, true);
}

/*
 * Load for a new queue, if the table is small.  So the numbers of an
 * extension's first queue are known.
 */
void
fairq_load_first(FairqQueueTally *tally)
{
	FairqTable *tasks;

	if (fairq_tally_is_known(tally))
		return;
	tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	if (is_small(tasks, false))
		load_pages(tally, tasks, false);
	fairq_table_close(tasks);
}
