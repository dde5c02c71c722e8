/*
 * unique.c
 *		Adding a task unless another one has its key.
 *
 * Who has the key is found out, and the key taken if none has, by dedup.c.  The one
 * that has it may be replaced: as long as it is not running, what was enqueued
 * last is what is run.  A running one is left alone.  One that is outdated has its
 * key to no end, so it is finished, and the key is taken.
 *
 * Locking: to be replaced or finished the other task's row is locked, to the end of the
 * transaction.  To replace it a transaction that is just changing it is waited for: it
 * is that of an equal key, or works on that very task.  To finish it none is: a pop that
 * has begun it in time may stay open for as long as its work takes.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "change.h"
#include "dedup.h"
#include "outcome.h"
#include "transaction.h"
#include "unique.h"

/*
 * Finish the task that has the key, if it is outdated: no worker will ever begin it.
 * Returns whether it was.
 */
static bool
finish_outdated(FairqEnqueue *e, int64 id)
{
	FairqTask	task;

	if (!fairq_dedup_is_outdated(e->tasks, id))
		return false;
	if (fairq_task_find_locked(e->tasks, id, &task) && task.keyed &&
		fairq_is_outdated(&task, GetCurrentTimestamp()))
	{
		fairq_finish_outdated(e->queue, e->tasks, &task);
		fairq_written();
	}
	return true;
}

/*
 * Take a key for a task, as fairq_dedup_take() does; from a task that is outdated,
 * too, which is finished by that.
 */
int64
fairq_take_key(FairqEnqueue *e, Datum key, int64 id, bool wait)
{
	int64		owner;

	do
	{
		CHECK_FOR_INTERRUPTS();
		owner = fairq_dedup_take(e->queue, e->tasks, key, id, wait);
	} while (owner != id && owner != 0 && finish_outdated(e, owner));
	return owner;
}

/*
 * Replace the task that has the key, unless it is running.  False: it has finished, and
 * the key is free, or held.
 */
static bool
replace_task(FairqEnqueue *e, int64 id, const FairqNewTask *new, bool timed)
{
	FairqContent content = {
		.payload = new->payload,
		.headers = new->headers,
		.expires_at = new->expires_at
	};
	FairqTask	task;

	if (!fairq_task_find(e->tasks, id, &task))
		return false;
	/* without a lock, for which its worker would have to wait */
	if (task.running)
		return true;
	if (!fairq_task_find_locked(e->tasks, id, &task))
		return false;
	/* or it has given up the key, which is held */
	if (task.running || !task.keyed)
		return true;
	e->ready |= fairq_replace_task(e->queue, e->tasks, &task, new->run_at, timed,
								   &content);
	return true;
}

/*
 * Add a task, unless another one has its key; with replace, that one is replaced.
 * timed: it was said when the task is to run, be it a time that is past.  Returns the
 * id of the task that there is then.
 */
int64
fairq_add_unique(FairqEnqueue *e, const FairqNewTask *new, bool replace,
				 bool timed)
{
	int64		gone = 0;		/* a task that had the key and was not there */

	for (;;)
	{
		int64		owner = DatumGetPointer(new->dedup.key) == NULL ? new->id :
			fairq_take_key(e, new->dedup.key, new->id, true);

		CHECK_FOR_INTERRUPTS();
		if (owner == new->id)
			fairq_add_task(e, new);
		/* one that is gone twice has its key held */
		if (owner == new->id || !replace || owner == gone ||
			replace_task(e, owner, new, timed))
			return owner;
		gone = owner;
	}
}
