/*
 * tally_count.c
 *		The count with which the numbers of tasks begin: one pass over all rows.
 *
 * It counts for all queues of the extension at once, as of one snapshot; tally.c
 * says how that agrees with what transactions change meanwhile.  It is done by
 * fairq.maintain(), and by a pop if the table is small.
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

#include "stall.h"
#include "tally_count.h"
#include "transaction.h"

/* pages that a pop counts at most: 8 MB, some ten milliseconds */
#define FEW_PAGES 1024

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
count_task(void *arg, const FairqTask *task, bool in_hands)
{
	Counting   *counting = arg;

	if (counting->last == NULL || counting->last->queue_id != task->queue_id)
		counting->last = count_of(counting, task->queue_id);
	counting->last->n[task->running ? FAIRQ_TALLY_RUNNING :
					  fairq_tallied_at(task->addr)]++;
}

/* Add what was found of a queue, if it can be locked at once. */
static void
publish_queue(Counting *counting, int32 queue_id)
{
	FairqQueue *queue = fairq_queue_by_id(queue_id);

	if (queue == NULL || !fairq_queue_try_lock(queue, AccessShareLock))
		return;
	/* it may have been dropped before we had the lock */
	queue = fairq_queue_by_id(queue_id);
	if (queue != NULL)
		fairq_tally_found(&queue->hints->tally,
						  count_of(counting, queue_id)->n);
	fairq_queue_id_unlock(queue_id, AccessShareLock);
}

/*
 * Count all tasks of all queues, if the numbers of this one, which is locked, are
 * not known.  A transaction that has an xid does not: what it has changed itself is neither
 * as the snapshot sees it nor added later.
 */
void
fairq_count_tasks(FairqQueue *queue, FairqTable *tasks)
{
	HASHCTL		info = {
		.keysize = sizeof(int32),
		.entrysize = sizeof(QueueCount),
		.hcxt = CurrentMemoryContext
	};
	Counting	counting = {.last = NULL};
	Snapshot	snapshot;
	ListCell   *lc;

	if (fairq_tally_is_known(&queue->hints->tally) ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	fairq_watch_transaction();
	snapshot = fairq_tally_begin(&queue->hints->tally);
	if (snapshot == NULL)
		return;
	counting.queues = hash_create("fairq counts", 64, &info,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	fairq_task_pages(tasks, 0, RelationGetNumberOfBlocks(tasks->rel), snapshot,
					 count_task, &counting);
	UnregisterSnapshot(snapshot);
	fairq_stall("tally");
	foreach(lc, fairq_queue_ids())
	{
		CHECK_FOR_INTERRUPTS();
		publish_queue(&counting, lfirst_int(lc));
	}
	fairq_tally_end(true);
	hash_destroy(counting.queues);
}

/*
 * The same for a pop: only if there are few rows, and nothing before it in its
 * transaction that others may wait for.
 */
void
fairq_count_few_tasks(FairqQueue *queue, FairqTable *tasks)
{
	if (!fairq_tally_is_known(&queue->hints->tally) && !IsTransactionBlock() &&
		RelationGetNumberOfBlocks(tasks->rel) <= FEW_PAGES)
		fairq_count_tasks(queue, tasks);
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
