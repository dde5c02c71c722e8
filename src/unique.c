/*
 * unique.c
 *		Adding a task unless another one has its key.
 *
 * Who has the key is found out, and the key taken if none has, by dedup.c.  The one
 * that has it may be replaced: as long as it is not running, what was enqueued
 * last is what is run.  A running one is left alone.
 *
 * Locking: to be replaced the other task's row is locked, to the end of the
 * transaction.  A transaction that is just changing it is waited for: it is that
 * of an equal key, or works on that very task.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "change.h"
#include "dedup.h"
#include "unique.h"

/*
 * Replace the task that has the key, unless it is running.  False: it has finished, and
 * the key is free, or held.
 */
static bool
replace_task(FairqEnqueue *e, int64 id, const FairqNewTask *new, bool timed)
{
	FairqContent content = {
		.payload = new->payload,
		.headers = new->headers
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
			fairq_dedup_take(e->queue, e->tasks, new->dedup.key, new->id, true);

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
