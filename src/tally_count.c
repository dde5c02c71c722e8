/*
 * tally_count.c
 *		The count with which the numbers of tasks begin: one pass over all rows.
 *
 * It counts for all queues of the extension at once, as of one snapshot; tally.c
 * says how that agrees with what transactions change meanwhile.  It is done by
 * fairq.maintain(), by a pop if the table is small, and by create_queue() if it has no
 * page.
 *
 * A queue is locked while its numbers are added, so that its hints are its own.
 * One that is being dropped or rewritten is passed over, and its numbers are not
 * known by this count; likewise those of a queue of which there are rows of
 * tasks alone, should its own row come back.
 *
 * Locking: AccessShareLock on fairq.task, from before the snapshot is taken, so
 * that all rows that it sees are in the pages that there are; on a queue, only if
 * it can be had at once, for a moment.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/hsearch.h"
#include "utils/snapmgr.h"

#include "registry.h"
#include "stall.h"
#include "tally_count.h"
#include "transaction.h"

/* pages that a pop counts at most: 8 MB, some ten milliseconds */
#define FEW_PAGES 1024

/* for so long a pop does not ask again for the size of a table that had more */
#define MANY_FOR_US (10 * USECS_PER_SEC)

typedef struct QueueCount
{
	int32		queue_id;		/* id of the queue */
	int64		n[FAIRQ_TALLIES];	/* number of its tasks */
} QueueCount;

typedef struct Counting
{
	HTAB	   *queues;			/* QueueCount, by queue_id */
	QueueCount *last;			/* that of the last task; NULL: none yet */
} Counting;

static QueueCount *
count_of(Counting *counting, int32 queue_id)
{
	bool		found;
	QueueCount *count = hash_search(counting->queues, &queue_id, HASH_ENTER,
									&found);

	if (!found)
		memset(count->n, 0, sizeof(count->n));
	return count;
}

static void
count_task(void *arg, const FairqTask *task, bool changing)
{
	Counting   *counting = arg;

	if (counting->last == NULL || counting->last->queue_id != task->queue_id)
		counting->last = count_of(counting, task->queue_id);
	counting->last->n[task->running ? FAIRQ_TALLY_RUNNING :
					  fairq_tallied_at(task->addr)]++;
}

/*
 * Add what was found of a queue, if it can be locked at once.  With make, also
 * if shared memory does not know the queue yet.
 */
static void
publish_queue(const QueueCount *count, bool make)
{
	int32		id = count->queue_id;
	FairqQueue *queue;
	FairqHints *hints;

	if (!fairq_queue_id_try_lock(id, AccessShareLock))
		return;
	hints = fairq_shmem_find_queue(id);
	if (hints == NULL && make && (queue = fairq_queue_by_id(id)) != NULL)
		hints = queue->hints;
	if (hints != NULL)
		fairq_tally_found(&hints->tally, count->n);
	fairq_queue_id_unlock(id, AccessShareLock);
}

/*
 * Add what was found of each queue.  Its settings are read only if shared memory
 * is to know it: there may be thousands, of which none is used.
 */
static void
publish(Counting *counting, bool make)
{
	HASH_SEQ_STATUS status;
	QueueCount *count;
	ListCell   *lc;

	/* those that have no task */
	foreach(lc, fairq_shmem_queues(fairq_catalog()->task))
		(void) count_of(counting,
						((FairqHints *) lfirst(lc))->entry.key.queue_id);
	hash_seq_init(&status, counting->queues);
	while ((count = hash_seq_search(&status)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		publish_queue(count, make);
	}
}

/*
 * Count the tasks of all queues.  With if_none only if the table has no page: then
 * our transaction has changed none, though it may have an xid.
 */
static void
count_pages(FairqQueueTally *tally, FairqTable *tasks, bool make, bool if_none)
{
	HASHCTL		info = {
		.keysize = sizeof(int32),
		.entrysize = sizeof(QueueCount),
		.hcxt = CurrentMemoryContext
	};
	Counting	counting = {.last = NULL};
	Snapshot	snapshot;
	BlockNumber npages;
	bool		counts;

	fairq_watch_transaction();
	snapshot = fairq_tally_begin(tally);
	if (snapshot == NULL)
		return;
	counting.queues = hash_create("fairq counts", 64, &info,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	/* what the snapshot sees is in these */
	npages = RelationGetNumberOfBlocks(tasks->rel);
	counts = npages == 0 || !if_none;
	if (counts)
		fairq_task_pages(tasks, 0, npages, snapshot, count_task, &counting);
	UnregisterSnapshot(snapshot);
	fairq_stall("tally");
	if (counts)
		publish(&counting, make);
	fairq_tally_end(counts);
	hash_destroy(counting.queues);
}

/*
 * Count all tasks of all queues, if the numbers of this one, which is locked, are
 * not known.  A transaction that has an xid does not: what it has changed itself
 * is neither as the snapshot sees it nor added later.  Numbers become known of the
 * queues that shared memory knows; with make, of all that have tasks.
 */
void
fairq_count_tasks(FairqQueue *queue, FairqTable *tasks, bool make)
{
	if (!fairq_tally_is_known(&queue->hints->tally) &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		count_pages(&queue->hints->tally, tasks, make, false);
}

/*
 * The same for a queue that was just made, if there has been no task at all: so the
 * numbers of an extension's first queue are known.
 */
void
fairq_count_no_tasks(FairqQueueTally *tally)
{
	FairqTable *tasks;

	if (fairq_tally_is_known(tally))
		return;
	tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
	if (RelationGetNumberOfBlocks(tasks->rel) == 0)
		count_pages(tally, tasks, false, true);
	fairq_table_close(tasks);
}

/*
 * Has the table few pages?  A table that had many is not asked for its size by each
 * pop, which costs a system call, but after a while.
 */
static bool
has_few_pages(FairqTable *tasks)
{
	static Oid	many = InvalidOid;
	static TimestampTz asked_at;
	TimestampTz now = GetCurrentStatementStartTimestamp();

	if (many == RelationGetRelid(tasks->rel) && now >= asked_at &&
		now - asked_at < MANY_FOR_US)
		return false;
	many = InvalidOid;
	if (RelationGetNumberOfBlocks(tasks->rel) <= FEW_PAGES)
		return true;
	many = RelationGetRelid(tasks->rel);
	asked_at = now;
	return false;
}

/*
 * The same for a pop: only if there are few rows, and nothing before it in its
 * transaction that others may wait for.
 */
void
fairq_count_few_tasks(FairqQueue *queue, FairqTable *tasks)
{
	if (!fairq_tally_is_known(&queue->hints->tally) && !IsTransactionBlock() &&
		has_few_pages(tasks))
		fairq_count_tasks(queue, tasks, false);
}

/* End a count that an error has broken off. */
static void
end_call(void)
{
	fairq_tally_end(false);
}

static const FairqEnding ending = {.end_call = end_call};

/* Once per backend: leave counts when transactions end. */
void
fairq_tally_count_init(void)
{
	fairq_at_end(&ending);
}
