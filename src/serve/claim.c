/*
 * claim.c
 *		Service: claiming a task.
 *
 * A ready task needs a slot in its queue and in its group, which the caller
 * has taken.  A lapsed task already has its slots, and keeps them.  Then pop
 * or take handles the row (pop.c), and pending changes record what a rollback
 * must undo.  A ready task that has expired is finished instead.  For a
 * blocked task the call checks the batch or the tasks for which it waits.
 *
 * A predicting call only simulates the claims and ends of tasks.  Once it has
 * visited a task, it treats the task as running.  It locks no row.
 *
 * Locking: a ready task's row needs at most the tuple lock, for a moment.  If
 * the row was locked or changed before, the call may lock it with SKIP LOCKED.
 * The row of a lapsed, expired or blocked task is also locked with SKIP LOCKED
 * (store_task.c).  A call waits for none of these rows.
 */
#include "postgres.h"

#include "access/xact.h"

#include "claim.h"
#include "outcome.h"
#include "running.h"
#include "shadow.h"
#include "times.h"
#include "tools.h"
#include "transaction.h"

/* how long a transaction block leaves a lapsed task to other calls */
#define LEFT_TO_OTHERS USECS_PER_SEC

/* Lock the row of a task, or check whether it could be locked. */
static FairqClaimResult
lock_or_peek(FairqService *s, FairqTask *task)
{
	return s->call.foresees ? fairq_task_peek(s->tasks, task, true) :
		fairq_task_lock(s->tasks, task, LockTupleExclusive);
}

/* Record that a task was served, in a pending change if there is one. */
static void
note_served(FairqService *s, const FairqTask *task, const FairqTurn *turn,
			TimestampTz ready_at, FairqPending *pending)
{
	FairqWork  *foreseen = NULL;

	if (pending != NULL)
	{
		pending->stats[FAIRQ_STAT_POPPED]++;
		fairq_sample(&s->queue->hints->histograms[FAIRQ_SPAN_WAIT],
					 ready_at, s->call.now);
		if (task->running)
			fairq_pending_leased_at_commit(pending, task->addr,
										   task->lease_until,
										   s->taken.searches);
	}
	/*
	 * do this last, because a later error would give the turn's charge back
	 * twice
	 */
	fairq_work_begun(turn, pending != NULL ? &pending->work : &foreseen,
					 s->call.now, !task->running);
	if (foreseen != NULL)
		pfree(foreseen);
}

/*
 * Serve a task at its address, unless another transaction has claimed it.  A
 * call that only predicts a pop has no pending change.
 */
static FairqClaimResult
serve_task(FairqService *s, FairqTask *task, FairqTurn *turn,
		   FairqPending **pending)
{
	TimestampTz ready_at = task->running ? task->lease_until :
		Max(task->enqueued_at, task->run_at);
	FairqClaimResult result;

	/* in a cost-fair queue, the address is only a position within the group */
	task->turn = s->by == FAIRQ_BY_TASKS ? turn->addr : task->addr;
	result = s->call.server(s->tasks, task, &s->call);
	if (result != FAIRQ_CLAIMED)
		return result;
	/*
	 * the end of a taken task may have added changes, so this change may have
	 * moved
	 */
	if (*pending != NULL && !task->running)
		*pending = fairq_pending(s->lane, task->group_no);
	note_served(s, task, turn, ready_at, *pending);
	fairq_start_is_used();
	if (!turn->in_full)
		s->window.first = s->window.first < 0 ? turn->addr :
			Min(s->window.first, turn->addr);
	s->got.served++;
	s->got.charge += fairq_charge_of(s->queue, task);
	if (task->lapses >= FAIRQ_LAPSES_ALONE)
	{
		s->got.stopped = true;
		s->call.max_tasks = s->got.served;
	}
	return result;
}

/*
 * Check whether the row could be locked.  Record a row lock of another
 * transaction.
 */
static FairqClaimResult
peek_at_row(FairqService *s, FairqTask *task, bool to_delete)
{
	FairqClaimResult result = fairq_task_peek(s->tasks, task, to_delete);

	s->got.saw_locked |= result == FAIRQ_LOCKED;
	return result;
}

/*
 * Check whether a pop could claim the task.  If a pop could not claim it, the
 * call continues like a pop.  If a pop could claim it, the call stops there as
 * if the task were locked.
 */
static FairqClaimResult
peek_at_task(FairqService *s, FairqTask *task, bool to_delete)
{
	FairqClaimResult result = peek_at_row(s, task, to_delete);

	if (result != FAIRQ_CLAIMED)
		return result;
	s->got.peeked = true;
	s->call.max_tasks = s->got.served;
	return FAIRQ_LOCKED;
}

/* Record that the call has ended a task, or the wait of a blocked task. */
static void
note_ended(FairqService *s, const FairqTask *task)
{
	s->got.freed |= task->batch != 0 || s->queue->hints->awaited;
}

/*
 * A ready task that is expired or blocked is not served.  Finish it, or check
 * whether its wait is over.  A look only records that there is such a task.
 * If the look has met a blocked task, or FAIRQ_MAX_ENDED expired ones, it asks
 * for a look that ends them (saw_over).
 */
static FairqClaimResult
end_ready(FairqService *s, FairqTask *task, bool expired)
{
	FairqClaimResult result;

	if (s->call.peek && !s->call.ends)
	{
		result = peek_at_row(s, task, true);
		if (result != FAIRQ_CLAIMED)
			return result;
		s->got.expired += expired;
		s->got.saw_over |= !expired || s->got.expired == FAIRQ_MAX_ENDED;
		return FAIRQ_LOCKED;
	}
	result = lock_or_peek(s, task);
	if (result == FAIRQ_CLAIMED &&
		!(expired ? fairq_is_expired(task, s->call.now) : task->blocked))
		result = FAIRQ_GONE;
	if (result != FAIRQ_CLAIMED)
		return result;
	s->got.expired++;
	if (s->call.foresees)
	{
		fairq_shadow_claim(task->id);
		return FAIRQ_GONE;
	}
	if (expired)
		fairq_finish_expired(s->queue, s->tasks, task);
	else if (fairq_look_at_blocked(s->queue, s->tasks, task))
		/* if the task is now ready, this call can claim it */
		fairq_written();
	else
		return FAIRQ_LOCKED;
	note_ended(s, task);
	return FAIRQ_GONE;
}

/* Serve a ready task that can be claimed. */
static FairqClaimResult
serve_ready(FairqService *s, FairqTask *task, FairqTurn *turn)
{
	FairqPending *pending = NULL;
	FairqClaimResult result;

	if (!s->call.foresees)
	{
		fairq_slot_prepare(s->lane);
		pending = fairq_pending(s->lane, task->group_no);
		fairq_pending_ready_at_abort(pending, task, &task->root);
	}
	result = serve_task(s, task, turn, &pending);
	if (result != FAIRQ_CLAIMED)
		return result;
	if (pending != NULL)
	{
		pending->tally[fairq_tallied_at(task->addr)]--;
		pending->tally[FAIRQ_TALLY_RUNNING] += task->running;
	}
	fairq_slot_is_used(pending, task, !task->running);
	return FAIRQ_CLAIMED;
}

/*
 * Serve a task at a turn; the queue and its group have a slot for it.  If the
 * task is expired, finish it instead.
 */
static FairqClaimResult
claim_ready(FairqService *s, FairqTask *task, FairqTurn *turn)
{
	bool		expired = fairq_is_expired(task, s->call.now);
	FairqClaimResult result;

	if (expired || task->blocked)
		return end_ready(s, task, expired);
	result = s->call.peek ?
		peek_at_task(s, task, s->tasks->claims_delete) :
		s->call.foresees ? fairq_task_peek(s->tasks, task, false) :
		fairq_task_lock_tuple(s->tasks, task);
	if (result == FAIRQ_CLAIMED && task->running)
	{
		fairq_task_unlock_tuple(s->tasks, task);
		return FAIRQ_GONE;
	}
	return result == FAIRQ_CLAIMED ? serve_ready(s, task, turn) : result;
}

/*
 * Whether a lapsed task may run again, with another worker.  If the settings
 * are outdated, the answer is not known.
 */
static FairqSlot
runs_on(FairqService *s, const FairqTask *task)
{
	if (fairq_settings_are_old(s->queue))
		return FAIRQ_SLOT_UNKNOWN;
	if (task->cancelled || fairq_attempts_left(s->queue, task) == 0)
		return FAIRQ_SLOT_NONE;
	return fairq_within_limits(task->group_no);
}

/* Lock a lapsed task; *slot says whether it may run again. */
static FairqClaimResult
lock_lapsed(FairqService *s, FairqTask *task, FairqSlot *slot)
{
	FairqClaimResult result = lock_or_peek(s, task);

	if (result == FAIRQ_CLAIMED &&
		(!task->running || task->lease_until > s->taken.by))
		result = FAIRQ_GONE;
	*slot = runs_on(s, task);
	if (result == FAIRQ_CLAIMED && *slot == FAIRQ_SLOT_UNKNOWN)
		result = FAIRQ_LOCKED;
	return result;
}

/* End a locked lapsed task that must not continue to run. */
static FairqClaimResult
end_lapsed(FairqService *s, FairqTask *task)
{
	if (s->call.foresees)
		fairq_shadow_claim(task->id);
	else
	{
		fairq_end_lapsed(s->queue, s->tasks, task);
		note_ended(s, task);
	}
	task->running = false;
	s->got.ended++;
	return FAIRQ_GONE;
}

/*
 * Check whether a pop could take over a lapsed task.  A pop may end the task
 * and not return it.  If so, the look ends the task, or only records that
 * there is such a task, as the look's caller demands.
 */
static FairqClaimResult
peek_at_lapsed(FairqService *s, FairqTask *task, FairqTurn *turn)
{
	FairqClaimResult result = FAIRQ_LOCKED;
	FairqSlot	slot = runs_on(s, task);

	if (slot == FAIRQ_SLOT_NONE && s->call.ends)
	{
		result = lock_lapsed(s, task, &slot);
		if (result == FAIRQ_CLAIMED && slot == FAIRQ_SLOT_NONE)
			return end_lapsed(s, task);
		return result == FAIRQ_GONE ? FAIRQ_GONE : FAIRQ_LOCKED;
	}
	if (slot == FAIRQ_SLOT_UNKNOWN)
	{
		/*
		 * a pop leaves the task, too, until the number of running tasks is
		 * known
		 */
		s->got.saw_locked = true;
		return FAIRQ_LOCKED;
	}
	if (slot == FAIRQ_SLOT_FREE)
		return fairq_start_lapsed(turn) ? peek_at_task(s, task, true) :
			FAIRQ_LOCKED;
	result = peek_at_row(s, task, true);
	if (result != FAIRQ_CLAIMED)
		return result;
	s->got.saw_over = true;
	s->got.ended++;
	return FAIRQ_LOCKED;
}

/* Serve a lapsed task that runs again and whose row is locked. */
static void
serve_lapsed(FairqService *s, FairqTask *task, FairqTurn *turn)
{
	TimestampTz popped_at = task->popped_at;
	int64		took = fairq_leased_for(task, task->lease_until);
	FairqPending *pending = NULL;

	if (!s->call.foresees)
	{
		fairq_slot_prepare(s->lane);
		pending = fairq_pending(s->lane, task->group_no);
		elog(DEBUG1, "lease of task " INT64_FORMAT " of queue \"%s\" has expired: it is served again",
			 task->id, s->queue->name);
		fairq_pending_leased_at_abort(pending, task->addr, task->lease_until);
		pending->stats[FAIRQ_STAT_LAPSED]++;
	}
	task->lapses++;
	if (serve_task(s, task, turn, &pending) != FAIRQ_CLAIMED)
		elog(ERROR, "could not serve a locked task");
	if (pending == NULL)
		return;
	fairq_work_ended(s->lane, task->group_no, turn->charged.tenant,
					 &pending->work, popped_at, took, true);
	if (!task->running)
	{
		pending->tally[FAIRQ_TALLY_RUNNING]--;
		fairq_slot_is_left(s->queue, pending);
	}
}

/*
 * Serve a task whose lease has expired, at a turn.  The task already has a
 * slot, and keeps it.  The call ends a task that may not run again.  If a
 * lowered limit does not allow the task now, the call puts the task back for a
 * retry.  Both actions help other calls.  In a transaction block, the call
 * takes them only if no other call has taken them for a while.
 */
static FairqClaimResult
take_over(FairqService *s, FairqTask *task, FairqTurn *turn)
{
	FairqClaimResult result;
	FairqSlot	slot;

	if (s->call.peek)
		return peek_at_lapsed(s, task, turn);
	slot = runs_on(s, task);
	/*
	 * leave the task while it is not known whether the task may run; it keeps
	 * its slot
	 */
	if (slot == FAIRQ_SLOT_UNKNOWN ||
		(slot == FAIRQ_SLOT_NONE && IsTransactionBlock() &&
		 task->lease_until > s->taken.by - LEFT_TO_OTHERS) ||
		(slot == FAIRQ_SLOT_FREE && !fairq_start_lapsed(turn)))
	{
		s->left = true;
		return FAIRQ_LOCKED;
	}
	fairq_stall("claim");
	result = lock_lapsed(s, task, &slot);
	if (result != FAIRQ_CLAIMED || slot == FAIRQ_SLOT_NONE)
	{
		fairq_start_lapsed_done();
		return result == FAIRQ_CLAIMED ? end_lapsed(s, task) : result;
	}
	/* nothing can fail after the task is served */
	serve_lapsed(s, task, turn);
	fairq_start_lapsed_done();
	return FAIRQ_CLAIMED;
}

/* Serve a ready or lapsed task at a turn. */
FairqClaimResult
fairq_claim(FairqService *s, FairqTask *task, FairqTurn *turn)
{
	return task->running ? take_over(s, task, turn) :
		claim_ready(s, task, turn);
}
