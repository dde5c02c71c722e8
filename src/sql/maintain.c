/*
 * maintain.c
 *		fairq.expire_leases, fairq.maintain; fairq.redrive and
 *		fairq.purge_failed, for tasks that have failed permanently.
 *
 * fairq's guarantees do not depend on maintain, because pops themselves find
 * lapsed tasks.  maintain removes rows that would accumulate.  A queue needs
 * maintain if it gets more groups over time than its block length.  Otherwise
 * no number is left for a new group.
 *
 * A sweep ends the expired leases and the expired tasks of all groups of a
 * queue at once.  Pops end them only at the turns of their groups.  A sweep
 * searches for running tasks where shared memory shows that there may be some,
 * and for expired tasks with an index.
 *
 * Unused groups.  maintain forgets a group without tasks and settings, and its
 * number becomes free.  An exception is a group whose rate does not allow it a
 * full burst at the moment.  A concurrent enqueue may have read the number but
 * not written its task yet.  So:
 *
 * 1.  maintain deletes the rows of such groups.  The groups that backends have
 *	  cached become invalid at once.  From now on, a transaction that searches
 *	  for such a group's key finds that the key's row is being changed.  Such a
 *	  transaction inserts a row of its own with the same number (group.c).
 *
 * 2.  All transactions that work on the queue at this moment may have read the
 *	  number before the deletion.  maintain waits for their end, but not for
 *	  long, and delays no other transaction.  If these transactions take
 *	  longer, a later call removes the groups.
 *
 * 3.  If a group has got a task meanwhile, maintain writes its row again.
 *	 After that no backend has cached the numbers of the other groups.
 *
 * The transaction that removes groups must not add any, because it no longer
 * sees the rows that other transactions still find.  So maintain does not
 * remove groups in a transaction block.  In a transaction that has removed
 * groups, adding one is an error (group.c).
 *
 * Tasks that have failed permanently are in the archive until a call puts them
 * back, into their queue or another one, or deletes them.  A task that is put
 * back is a new task with the id of the old one.  It may have as many attempts
 * as a new one.  The numbers of its attempts continue from the last one, so a
 * worker that has lost an earlier attempt cannot end a new one.  The task no
 * longer expires.
 *
 * Large values are copied between the tables one column at a time, in stored
 * form: compressed and out of line.  Together they may exceed the size of a
 * row in memory.
 *
 * Locking: AccessShareLock on the queue; for a moment, if available,
 * ShareUpdateExclusiveLock for the groups.  That lock excludes changes of
 * settings, which may affect one of these groups.  maintain processes one
 * queue after the other, and unlocks each in which it has changed nothing.
 * There may be more queues than the server's lock table can hold.  maintain
 * skips tasks that other transactions are changing, or whose rows they have
 * locked.  To delete from the archive, maintain waits for an open redrive.
 *
 * redrive locks the queues (AccessShareLock), the tables (RowExclusiveLock)
 * and the archived row, to the end of the transaction.  redrive skips rows
 * that other transactions are changing; purge_failed is an SQL function, and
 * waits for such rows.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "args.h"
#include "blocked.h"
#include "dedup.h"
#include "enqueue.h"
#include "group.h"
#include "line.h"
#include "load.h"
#include "outcome.h"
#include "registry.h"
#include "serve.h"
#include "store_spi.h"
#include "taken.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_expire_leases);
PG_FUNCTION_INFO_V1(fairq_maintain);
PG_FUNCTION_INFO_V1(fairq_redrive);
PG_FUNCTION_INFO_V1(fairq_redrive_task);
PG_FUNCTION_INFO_V1(fairq_purge_failed);

/* how long to wait for the end of other transactions */
#define PATIENCE_MS 1000
#define POLL_EVERY_MS 10

/* --------------------------------------------------------------------- */

/* One sweep through a queue. */
typedef struct Sweep
{
	FairqQueue *queue;
	FairqTable *tasks;
	FairqScan  *scan;			/* scan of tasks that may have to end; NULL:
								 * none yet */
	TimestampTz now;			/* time at which the sweep began */
	int64		most;			/* most tasks to end */
	int64		ended;			/* tasks that were ended so far */
	MemoryContext each;			/* memory for one task */
	bool		(*is_over) (const FairqTask *task, TimestampTz now);
	void		(*end) (FairqQueue *queue, FairqTable *tasks, FairqTask *task);
} Sweep;

static bool
has_lapsed(const FairqTask *task, TimestampTz now)
{
	return task->running && task->lease_until <= now;
}

static Sweep
begin_sweep(FairqQueue *queue, int64 most)
{
	return (Sweep)
	{
		.queue = queue,
			.tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock),
			.now = GetCurrentTimestamp(),
			.most = most,
			.each = AllocSetContextCreate(CurrentMemoryContext, "fairq task",
										  ALLOCSET_DEFAULT_SIZES)
	};
}

/* End the tasks of the scan that have expired, or whose lease has expired. */
static void
end_found(Sweep *sweep, bool in_order)
{
	FairqTask	task;
	FairqRowState state;

	while (sweep->ended < sweep->most &&
		   (state = fairq_task_next(sweep->scan, &task,
									in_order)) != FAIRQ_ROW_END)
	{
		MemoryContext old;

		if (state != FAIRQ_ROW_LIVE || !sweep->is_over(&task, sweep->now) ||
			fairq_task_lock(sweep->tasks, &task, LockTupleExclusive) !=
			FAIRQ_CLAIMED ||
			!sweep->is_over(&task, sweep->now))
			continue;
		old = MemoryContextSwitchTo(sweep->each);
		sweep->end(sweep->queue, sweep->tasks, &task);
		MemoryContextSwitchTo(old);
		MemoryContextReset(sweep->each);
		sweep->ended++;
	}
}

/* Returns the number of tasks that it has ended. */
static int64
end_sweep(Sweep *sweep)
{
	fairq_scan_end(sweep->scan);
	fairq_table_close(sweep->tasks);
	MemoryContextDelete(sweep->each);
	if (sweep->ended > 0)
		fairq_written();
	return sweep->ended;
}

/* End the expired leases of a lane, in all groups that are leased. */
static void
end_lapsed_in_lane(Sweep *sweep, int priority)
{
	FairqLane  *lane = fairq_queue_lane(sweep->queue, priority);

	for (int32 group_no = 0; fairq_lane_next_leased(lane, &group_no); group_no++)
	{
		CHECK_FOR_INTERRUPTS();
		for (int r = 0; r < FAIRQ_REGIONS && sweep->ended < sweep->most; r++)
		{
			int32		lane_no = fairq_task_lane(sweep->queue->id, priority);
			FairqRange	range = fairq_range_line(lane_no, group_no,
												 fairq_region_from(r),
												 fairq_lane_reach(lane, r) + 1);

			sweep->scan = fairq_scan_in_order(sweep->scan, sweep->tasks,
											  range);
			end_found(sweep, true);
		}
		if (sweep->ended == sweep->most || group_no == PG_INT32_MAX)
			break;
	}
}

/*
 * End at most "most" of the queue's expired leases.  Returns the number of
 * ended leases.
 */
static int64
end_all_lapsed(FairqQueue *queue, int64 most)
{
	Sweep		sweep = begin_sweep(queue, most);

	sweep.is_over = has_lapsed;
	sweep.end = fairq_end_lapsed;
	/*
	 * after these two calls, leases are known, even those of our own
	 * transaction
	 */
	(void) fairq_load_finish(queue, sweep.tasks);
	(void) fairq_pending_show(queue->hints);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		end_lapsed_in_lane(&sweep, priority);
	if (sweep.ended > 0)
		fairq_notify(queue);
	return end_sweep(&sweep);
}

/*
 * Finish the queue's tasks that are expired.  Returns their number.
 */
static int64
finish_all_expired(FairqQueue *queue)
{
	Sweep		sweep = begin_sweep(queue, PG_INT64_MAX);
	FairqRange	range = fairq_range(Int32GetDatum(queue->id));

	sweep.is_over = fairq_is_expired;
	sweep.end = fairq_finish_expired;
	range = fairq_range_before(range, TimestampTzGetDatum(sweep.now));
	sweep.scan = fairq_scan_begin(sweep.tasks, FAIRQ_TASK_BY_EXPIRY,
								  range);
	end_found(&sweep, false);
	return end_sweep(&sweep);
}

Datum
fairq_expire_leases(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	int64		most = FAIRQ_ARG_INT(1, "max_tasks", 1000, 1, PG_INT32_MAX);
	FairqQueue *queue;

	fairq_writes("fairq.expire_leases()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_WORK, AccessShareLock);
	PG_RETURN_INT64(end_all_lapsed(queue, most));
}

/* --------------------------------------------------------------------- */

/*
 * Wait for the end of all transactions that work on the queue at this moment.
 * Returns false if some are still open at the time "end".
 */
static bool
wait_for_users(FairqQueue *queue, TimestampTz end)
{
	LOCKTAG		tag;
	VirtualTransactionId *users;
	int			nusers;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, fairq_relid(FAIRQ_QUEUE), queue->id, 0);
	users = GetLockConflicts(&tag, AccessExclusiveLock, &nusers);
	for (int i = 0; i < nusers; i++)
	{
		while (!VirtualXactLock(users[i], false))
		{
			if (GetCurrentTimestamp() >= end)
				return false;
			CHECK_FOR_INTERRUPTS();
			pg_usleep(POLL_EVERY_MS * 1000);
		}
	}
	return true;
}

/*
 * A search for groups that have tasks.  It uses one scan, and only lanes that
 * had any task when it began.
 */
typedef struct TasksLook
{
	FairqScan  *scan;
	int			nlanes;
	Datum		lanes[FAIRQ_PRIORITIES];
} TasksLook;

/* Whether the range of groups has a task, in any state. */
static bool
has_any(FairqScan *scan, FairqRange groups)
{
	fairq_scan_again(scan, groups);
	return fairq_scan_next(scan) != FAIRQ_ROW_END;
}

static TasksLook
begin_look(FairqTable *tasks, int32 queue_id)
{
	Datum		all = Int32GetDatum(0);
	TasksLook	look = {0};

	look.scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP,
								 fairq_range_2(all, all));
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		Datum		lane = Int32GetDatum(fairq_task_lane(queue_id, priority));

		if (has_any(look.scan, fairq_range_from(fairq_range(lane), all)))
			look.lanes[look.nlanes++] = lane;
	}
	return look;
}

static bool
group_has_tasks(const TasksLook *look, int32 group_no)
{
	for (int i = 0; i < look->nlanes; i++)
	{
		if (has_any(look->scan,
					fairq_range_2(look->lanes[i], Int32GetDatum(group_no))))
			return true;
	}
	return false;
}

/*
 * Whether the group has tasks, or has recently started tasks that its rate
 * still counts.  A group that got a new number would forget these starts, and
 * could exceed its rate.  A tenant is used as long as it has groups.
 */
static bool
group_is_used(const TasksLook *look, FairqQueue *queue, FairqTable *numbers,
			  int32 group_no, text *key)
{
	FairqCounter *counter;
	bool		used;

	if (group_has_tasks(look, group_no) ||
		fairq_tenant_has_groups(queue, numbers, key))
		return true;
	counter = fairq_shmem_counter(queue->hints, group_no, false);
	if (counter == NULL)
		return false;
	used = fairq_counter_starts_matter(counter);
	fairq_counter_unpin(counter);
	return used;
}

/* The state of a call that forgets the unused groups of a queue. */
typedef struct Forgetting
{
	FairqQueue *queue;
	TimestampTz end;			/* time at which the call gives up */
	bool		written;		/* true: some row was changed */
	List	   *numbers;		/* groups whose rows are deleted */
	List	   *keys;			/* their keys, texts, in the same order */
} Forgetting;

/* Delete the rows of unused groups, and duplicate rows of groups. */
static void
delete_unused(Forgetting *f, FairqTable *numbers, FairqTable *tasks)
{
	FairqQueue *queue = f->queue;
	FairqRange	of_queue = fairq_range(Int32GetDatum(queue->id));
	FairqScan  *scan = fairq_scan_begin(numbers, FAIRQ_NUMBER_BY_NO, of_queue);
	TasksLook	look = begin_look(tasks, queue->id);
	int32		last = -1;

	/* a group that is being created is not forgotten */
	while (fairq_scan_next_live(scan))
	{
		TupleTableSlot *slot = scan->slot;
		int32		group_no = fairq_int_of(slot, NUMBER_GROUP_NO, 0);
		text	   *key = DatumGetTextPP(fairq_column(slot, NUMBER_GROUP_KEY));
		bool		again = group_no == last;
		bool		used = group_is_used(&look, queue, numbers, group_no, key) ||
			fairq_group_setting(queue, group_no) !=
			&queue->groups.others.setting;

		last = group_no;
		/* one row of a group is enough */
		if (used && !again)
			continue;
		if (!used)
		{
			f->numbers = lappend_int(f->numbers, group_no);
			f->keys = lappend(f->keys,
							  DatumGetTextPCopy(PointerGetDatum(key)));
		}
		fairq_table_delete(numbers, &slot->tts_tid);
		f->written = true;
	}
	fairq_scan_end(look.scan);
	fairq_scan_end(scan);
}

/*
 * Delete the rows of unused groups.  Returns false if other transactions last
 * too long.
 */
static bool
forget_unused(void *arg)
{
	Forgetting *f = arg;
	FairqQueue *queue = f->queue;
	FairqTable *tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	FairqTable *numbers = fairq_open(FAIRQ_GROUP_NUMBER, RowExclusiveLock);
	int			n;
	bool		done = true;

	delete_unused(f, numbers, tasks);
	n = list_length(f->numbers);
	if (n > 0)
		fairq_groups_changed(true);
	fairq_written();
	if (n > 0 && (done = wait_for_users(queue, f->end)))
	{
		/*
		 * begin a new search, because the groups may have tasks in other lanes
		 * now
		 */
		TasksLook	look = begin_look(tasks, queue->id);
		ListCell   *number;
		ListCell   *key;

		forboth(number, f->numbers, key, f->keys)
			if (group_is_used(&look, queue, numbers, lfirst_int(number),
							  lfirst(key)))
				fairq_put_group_number(numbers, queue, lfirst_int(number),
									   lfirst(key));
		fairq_scan_end(look.scan);
		fairq_written();
	}
	fairq_table_close(numbers);
	fairq_table_close(tasks);
	elog(DEBUG1, "%d groups of queue \"%s\" are not used: %s", n, queue->name,
		 done ? "forgotten" : "left, as others are at work");
	return done;
}

/*
 * A part of maintain() that runs in a subtransaction.  If it returns false,
 * the subtransaction is rolled back.
 */
typedef bool (*Part) (void *arg);

/*
 * Do a part in a subtransaction, which must end even after an error.
 * Otherwise the client would remain in a subtransaction that it did not begin.
 * if_room: an error because shared memory is full makes the result false.
 */
static bool
in_subtransaction(Part part, void *arg, bool if_room)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		/*
		 * data in the subtransaction's own context would stay until the end of
		 * the whole call
		 */
		MemoryContextSwitchTo(context);
		done = part(arg);
		/* an error may also occur here */
		if (done)
			ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		bool		full = if_room && fairq_catch(ERRCODE_DISK_FULL, context);

		MemoryContextSwitchTo(context);
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (full)
			return false;
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!done)
		RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return done;
}

/*
 * Forget the unused groups of a queue, if that is possible in time.  Returns
 * whether any row was changed.
 */
static bool
maintain_groups(FairqQueue *queue, TimestampTz end)
{
	Forgetting	forgetting = {.queue = queue,.end = end};
	bool		done;

	/* another call that changes settings or maintains the queue goes first */
	if (!fairq_queue_id_try_lock(queue->id, ShareUpdateExclusiveLock))
		return false;
	/* the queue's settings may have changed meanwhile */
	done = fairq_queue_by_id(queue->id, true) != NULL &&
		in_subtransaction(forget_unused, &forgetting, false);
	fairq_queue_id_unlock(queue->id, ShareUpdateExclusiveLock);
	return done && forgetting.written;
}

/*
 * Do the parts of maintain() for one queue's tasks.  Returns whether any row
 * was changed.
 */
static bool
maintain_tasks(FairqQueue *queue)
{
	static const char *const old_rows[] = {
		/* with the setting in a subquery, any plan reads it only once */
		"archive r WHERE queue_id = $1 AND status IN (1, 3, 4)"
		" AND coalesce(finished_at < clock_timestamp() - (SELECT retain"
		" FROM fairq.queue WHERE queue_id = $1), true)",
		"archive r WHERE queue_id = $1 AND status = 2"
		" AND finished_at < clock_timestamp() - (SELECT retain_failed"
		" FROM fairq.queue WHERE queue_id = $1)",
		/* a deleted row makes backends read the queue again: see fairq.c */
		"queue_privilege r WHERE queue_id = $1"
		" AND NOT EXISTS (SELECT FROM pg_roles WHERE oid = r.role)",
		"batch r WHERE queue_id = $1"
		" AND NOT EXISTS (SELECT FROM fairq.task t WHERE t.id = r.id)"
		" AND NOT EXISTS (SELECT FROM fairq.archive a WHERE a.id = r.id)"
	};
	FairqSqlArg arg = fairq_sql_int4(queue->id);
	uint64		changed = 0;

	for (int i = 0; i < (int) lengthof(old_rows); i++)
		changed += fairq_sql(psprintf("DELETE FROM fairq.%s", old_rows[i]),
							 &arg, 1, NULL);
	/* keys without a task exist only after SQL has deleted tasks */
	changed += fairq_dedup_forget(queue);
	changed += end_all_lapsed(queue, PG_INT64_MAX);
	changed += finish_all_expired(queue);
	return changed > 0;
}

/* Whether calls have ever searched for all timed tasks of the lane. */
static bool
is_searched(FairqLane *lane)
{
	bool		searched = true;

	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		searched &= fairq_times_first(&lane->times, r) > fairq_region_from(r);
	return searched;
}

/*
 * Find the groups and due tasks of each lane that has tasks, unless shared
 * memory has them.  So views can show a queue without workers (survey.c).
 */
static void
make_known(FairqQueue *queue, FairqTable *tasks)
{
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		FairqLane  *lane = fairq_queue_lane(queue, p);
		FairqRecovering recovering = {0};
		FairqRecovered at;
		FairqScan  *scan = NULL;
		bool		empty;
		int64		found = 0;

		if (fairq_lane_recovered(lane, &at) && at.known >= FAIRQ_ALL_SEATS &&
			is_searched(lane))
			continue;
		empty = fairq_line_next(&scan, tasks, fairq_task_lane(queue->id, p),
								0) == FAIRQ_NO_SEAT;
		fairq_scan_end(scan);
		if (empty)
			continue;
		do
		{
			CHECK_FOR_INTERRUPTS();
			fairq_recover(queue, p, tasks, &recovering);
		} while (fairq_lane_recovered(lane, &at) &&
				 at.known < FAIRQ_ALL_SEATS);
		/*
		 * leave out leases, because a group might lapse without reason and
		 * then appear to wait
		 */
		while (fairq_find_timed(queue, p, tasks, GetCurrentTimestamp(),
								&found))
			CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Read a queue's tasks.  The queue is locked for this, so the hints belong to
 * it.
 */
static bool
read_queue(void *arg)
{
	FairqTable *tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	FairqQueue *queue = fairq_queue_use_id(*(const int32 *) arg,
										   FAIRQ_PRIV_MANAGE, false);

	if (queue != NULL)
	{
		fairq_load_here(queue, tasks);
		make_known(queue, tasks);
		fairq_queue_id_unlock(queue->id, AccessShareLock);
	}
	fairq_table_close(tasks);
	return true;
}

/*
 * Recover the lanes of the queues that the caller may manage.  Count all
 * tasks, if the tasks of any of these queues are not counted.  This precedes
 * all writes.  Returns these queues.  With skip, queues for which shared
 * memory has no room are left out, and a warning reports how many.
 */
static List *
read_tasks(const List *ids, bool skip)
{
	List	   *known = NIL;
	int			nskipped = 0;
	const ListCell *lc;

	foreach(lc, ids)
	{
		int32		id = lfirst_int(lc);
		const FairqQueue *queue = fairq_queue_by_id(id, false);

		if (queue == NULL || !fairq_may(queue, FAIRQ_PRIV_MANAGE))
			continue;
		if (queue->hints != NULL && in_subtransaction(read_queue, &id, skip))
			known = lappend_int(known, id);
		else
			nskipped++;
	}
	if (nskipped > 0)
		ereport(WARNING, fairq_errfull(),
				errdetail_plural("fairq.maintain() has skipped %d queue.",
								 "fairq.maintain() has skipped %d queues.",
								 nskipped, nskipped));
	return known;
}

/*
 * Do one part of maintain() for each of these queues that still exists and
 * that the caller may manage.  A queue that was changed stays locked until the
 * end of the transaction.  Other queues are unlocked at once, so they may be
 * dropped or altered.
 */
static void
maintain_each(const List *ids, bool groups, MemoryContext each)
{
	TimestampTz end = GetCurrentTimestamp() + PATIENCE_MS * INT64CONST(1000);
	MemoryContext old = MemoryContextSwitchTo(each);
	const ListCell *lc;

	foreach(lc, ids)
	{
		FairqQueue *queue = fairq_queue_use_id(lfirst_int(lc),
											   FAIRQ_PRIV_MANAGE, true);

		CHECK_FOR_INTERRUPTS();
		if (queue != NULL &&
			!(groups ? maintain_groups(queue, end) : maintain_tasks(queue)))
			fairq_queue_id_unlock(queue->id, AccessShareLock);
		MemoryContextReset(each);
	}
	MemoryContextSwitchTo(old);
}

/* The ids of all existing queues. */
static List *
queue_ids(void)
{
	FairqScan  *scan = fairq_scan_table(FAIRQ_QUEUE, FAIRQ_QUEUE_BY_NAME,
										(FairqRange) {0});
	List	   *ids = NIL;

	while (fairq_scan_next_current(scan))
		ids = lappend_int(ids, fairq_int_of(scan->slot, QUEUE_ID, 0));
	fairq_scan_end(scan);
	return ids;
}

/*
 * Give back the shared memory of queues whose rows are gone, and which no
 * transaction uses.  They were deleted by SQL, or dropped on the primary while
 * this server was its standby.
 */
static void
give_back_deleted(void)
{
	Oid			table = fairq_relid(FAIRQ_QUEUE);
	List	   *ids;
	ListCell   *lc;

	/*
	 * Our own changes may be rolled back.  Also, a queue that is being created
	 * has hints before other transactions see the queue.
	 */
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		!ConditionalLockRelationOid(table, ShareLock))
		return;
	ids = queue_ids();
	foreach(lc, fairq_shmem_queues(fairq_relid(FAIRQ_TASK)))
	{
		FairqHints *hints = lfirst(lc);
		int32		id = hints->entry.key.queue_id;

		if (!list_member_int(ids, id) &&
			fairq_queue_id_try_lock(id, AccessExclusiveLock))
			fairq_shmem_release(hints);
	}
	UnlockRelationOid(table, ShareLock);
}

/*
 * Delete dependencies of tasks that do not wait any more, unless a transaction
 * may have added a task that is not visible.
 */
static void
delete_dependencies(void)
{
	Oid			table = fairq_relid(FAIRQ_DEPENDENCY);

	if (!ConditionalLockRelationOid(table, ShareLock))
		return;
	fairq_sql("DELETE FROM fairq.dependency d WHERE NOT EXISTS"
			  " (SELECT FROM fairq.task t WHERE t.id = d.waiting"
			  " AND t.blocked)", NULL, 0, NULL);
	UnlockRelationOid(table, ShareLock);
}

Datum
fairq_maintain(PG_FUNCTION_ARGS)
{
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq queue",
											   ALLOCSET_DEFAULT_SIZES);
	List	   *ids;

	fairq_writes("fairq.maintain()");
	/* free memory first, as there may be no room for the existing queues */
	if (PG_ARGISNULL(0))
	{
		give_back_deleted();
		fairq_shmem_sweep(false);
	}
	ids = PG_ARGISNULL(0) ? queue_ids() :
		list_make1_int(fairq_queue_use(PG_GETARG_TEXT_PP(0), FAIRQ_PRIV_MANAGE,
									   AccessShareLock)->id);
	ids = read_tasks(ids, PG_ARGISNULL(0));
	maintain_each(ids, false, each);
	/* delete ends of tasks for which no task waits any more */
	if (PG_ARGISNULL(0))
	{
		fairq_sql("DELETE FROM fairq.batch_delta d WHERE NOT EXISTS"
				  " (SELECT FROM fairq.batch b WHERE b.id = d.batch"
				  " AND b.finished_at IS NULL)", NULL, 0, NULL);
		delete_dependencies();
	}
	/*
	 * In a transaction block, do not forget groups, because some may be added
	 * afterwards: see the head of this file.  Taken tasks may also be the only
	 * trace of a group.
	 */
	if (!IsTransactionBlock() && !fairq_taken_any())
		maintain_each(ids, true, each);
	MemoryContextDelete(each);
	PG_RETURN_VOID();
}

/* --------------------------------------------------------------------- */

/* A copy of a value that is passed by reference, as it is stored; 0: NULL. */
static Datum
copy_of(TupleTableSlot *slot, AttrNumber attno)
{
	Datum		value = fairq_column(slot, attno);
	int16		typlen = TupleDescAttr(slot->tts_tupleDescriptor,
									   attno - 1)->attlen;

	return DatumGetPointer(value) == NULL ? value :
		datumCopy(value, false, typlen);
}

/* A copy of a text, detoasted. */
static Datum
copy_text(TupleTableSlot *slot, AttrNumber attno)
{
	Datum		value = copy_of(slot, attno);

	return DatumGetPointer(value) == NULL ? value :
		PointerGetDatum(DatumGetTextPP(value));
}

/*
 * If the batch of a failed task is not finished, subtract the failure from the
 * batch.
 */
static void
rejoin(FairqEnqueue *e, FairqNewTask *new, int64 batch)
{
	if (batch == 0 || !fairq_batch_join(e->tasks, batch, true))
		return;
	new->batch = batch;
	fairq_batch_count(e->tasks, batch, FAIRQ_STATUS_FAILED, -1, new->id);
}

/* The place to which tasks are put back, if it is not their old place. */
typedef struct Target
{
	FairqQueue *queue;			/* NULL: their queue */
	text	   *group_key;		/* NULL: their group */
	int			priority;		/* -1: their priority */
} Target;

/* Read the arguments from an index on: a queue, a priority and a group. */
static Target
arg_target(FunctionCallInfo fcinfo, int n)
{
	Target		to = {.priority = -1};

	if (!PG_ARGISNULL(n))
		to.queue = fairq_queue_use(PG_GETARG_TEXT_PP(n), FAIRQ_PRIV_ENQUEUE,
								   AccessShareLock);
	to.priority = FAIRQ_ARG_INT(n + 1, "to_priority", -1, 0,
								FAIRQ_PRIORITIES - 1);
	if (!PG_ARGISNULL(n + 2))
		to.group_key = PG_GETARG_TEXT_PP(n + 2);
	return to;
}

/*
 * Put an archived task back.  Returns false if the task is being changed, or
 * another task of the queue has its dedup_key or is about to take it.
 */
static bool
redrive_task(FairqEnqueue *e, const Target *to, FairqTable *archived,
			 TupleTableSlot *slot)
{
	ItemPointerData tid = slot->tts_tid;
	FairqNewTask new = {
		.id = DatumGetInt64(fairq_column(slot, ARCHIVE_ID)),
		.enqueued_at = fairq_time_of(slot, ARCHIVE_ENQUEUED_AT, 0),
		.max_attempts = fairq_int_of(slot, ARCHIVE_MAX_ATTEMPTS, 0),
		.cost = DatumGetFloat4(fairq_column(slot, ARCHIVE_COST)),
		.priority = to->priority >= 0 ? to->priority :
		DatumGetInt16(fairq_column(slot, ARCHIVE_PRIORITY)),
		.group_key = to->group_key != NULL ? to->group_key :
		DatumGetTextPP(copy_text(slot, ARCHIVE_GROUP_KEY)),
		.payload = copy_of(slot, ARCHIVE_PAYLOAD),
		.headers = copy_of(slot, ARCHIVE_HEADERS),
		.dedup.key = copy_text(slot, ARCHIVE_DEDUP_KEY),
		.dedup.held_for = copy_of(slot, ARCHIVE_DEDUP_FOR),
		.dedup.until_started = !slot_attisnull(slot, ARCHIVE_UNTIL_STARTED),
		.past.popped_at = fairq_time_of(slot, ARCHIVE_POPPED_AT, 0),
		.past.error = copy_of(slot, ARCHIVE_ERROR),
		.past.log = copy_of(slot, ARCHIVE_ATTEMPT_LOG),
		.past.progress = copy_of(slot, ARCHIVE_PROGRESS),
		.past.attempt = fairq_int_of(slot, ARCHIVE_ATTEMPT, 0),
		.run_at = DT_NOBEGIN,
		.expires_at = DT_NOEND,
		.put_back_at = GetCurrentTimestamp()
	};

	/*
	 * lock the row, so that no other call redrives the task, even if the key
	 * is taken
	 */
	if (!fairq_table_lock(archived, &tid))
		return false;
	/* a key that the task has given up is not returned to it */
	if (DatumGetPointer(new.dedup.key) != NULL &&
		!(new.dedup.until_started && new.past.attempt > 0) &&
		fairq_take_key(e, new.dedup.key, new.id, false) != new.id)
		return false;
	rejoin(e, &new, DatumGetInt64(fairq_column(slot, ARCHIVE_BATCH)));
	/*
	 * add the task before the deletion, which also deletes values that are
	 * stored out of line
	 */
	fairq_add_task(e, &new);
	fairq_table_delete(archived, &tid);
	return true;
}

/*
 * fairq.redrive(queue, group_key, max_tasks, to_queue, to_priority, to_group)
 */
Datum
fairq_redrive(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	int64		most = FAIRQ_ARG_INT(2, "max_tasks", PG_INT64_MAX, 1,
									 PG_INT32_MAX);
	FairqEnqueue e = {0};
	FairqQueue *queue;
	Target		to;
	FairqTable *archived;
	FairqScan  *scan;
	FairqRowState state;
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq task",
											   ALLOCSET_DEFAULT_SIZES);
	bool		any_of_group = false;
	int64		redriven = 0;

	fairq_writes("fairq.redrive()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	to = arg_target(fcinfo, 3);
	e.queue = to.queue != NULL ? to.queue : queue;
	e.tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	archived = fairq_table_beside(e.tasks, FAIRQ_ARCHIVE);
	scan = fairq_scan_begin(archived, FAIRQ_ARCHIVE_BY_STATUS,
							fairq_range_2(Int32GetDatum(queue->id),
										  Int16GetDatum(FAIRQ_STATUS_FAILED)));
	while (redriven < most &&
		   (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		TupleTableSlot *slot = scan->slot;
		Datum		key = fairq_column(slot, ARCHIVE_GROUP_KEY);
		MemoryContext old;

		if (group_key != NULL &&
			!fairq_key_is_of(queue, DatumGetTextPP(key), group_key))
			continue;
		/* this includes uncommitted rows, which SQL does not see */
		any_of_group = true;
		if (state != FAIRQ_ROW_LIVE)
			continue;
		old = MemoryContextSwitchTo(each);
		if (redrive_task(&e, &to, archived, slot))
			redriven++;
		MemoryContextSwitchTo(old);
		MemoryContextReset(each);
	}
	fairq_scan_end(scan);
	fairq_add_end(&e, redriven > 0);
	MemoryContextDelete(each);

	if (group_key != NULL && !any_of_group)
		(void) fairq_existing_group(queue, group_key);
	PG_RETURN_INT64(redriven);
}

/*
 * Find a failed task by its id.  The scan is then at its row.  NULL: there is
 * none, or the caller may not manage its queue, or the row is being changed.
 */
static FairqScan *
find_failed(FairqEnqueue *e, FairqTable *archived, int64 id)
{
	FairqScan  *scan = fairq_scan_begin(archived, FAIRQ_ARCHIVE_BY_ID,
										fairq_range(Int64GetDatum(id)));

	if (fairq_scan_next_live(scan) &&
		DatumGetInt16(fairq_column(scan->slot, ARCHIVE_STATUS)) ==
		FAIRQ_STATUS_FAILED)
	{
		e->queue = fairq_queue_use_id(fairq_int_of(scan->slot,
												   ARCHIVE_QUEUE_ID, 0),
									  FAIRQ_PRIV_MANAGE, true);
		if (e->queue != NULL)
			return scan;
	}
	fairq_scan_end(scan);
	return NULL;
}

/* fairq.redrive(id, to_queue, to_priority, to_group) */
Datum
fairq_redrive_task(PG_FUNCTION_ARGS)
{
	FairqEnqueue e = {0};
	FairqTable *archived;
	FairqScan  *scan = NULL;
	bool		redriven = false;
	Target		to;

	fairq_writes("fairq.redrive()");
	to = arg_target(fcinfo, 1);
	e.tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	archived = fairq_table_beside(e.tasks, FAIRQ_ARCHIVE);
	if (!PG_ARGISNULL(0))
		scan = find_failed(&e, archived, PG_GETARG_INT64(0));
	if (scan != NULL)
	{
		if (to.queue != NULL)
			e.queue = to.queue;
		redriven = redrive_task(&e, &to, archived, scan->slot);
		fairq_scan_end(scan);
	}
	fairq_add_end(&e, redriven);
	PG_RETURN_BOOL(redriven);
}

/* whether a row is of the group $2, or of a group of the tenant $2 */
#define OF_GROUP \
	"(group_key = $2 OR starts_with(group_key, $2 || (SELECT separator" \
	" FROM fairq.queue WHERE queue_id = $1 AND $2 <> ''" \
	" AND strpos($2, separator) = 0)))"

/* Raise an error, unless the group exists or has failed tasks. */
static void
check_group(FairqQueue *queue, text *group_key)
{
	FairqSqlArg args[] = {
		fairq_sql_int4(queue->id),
		fairq_sql_text(group_key)
	};

	if (fairq_sql("SELECT FROM fairq.archive WHERE queue_id = $1"
				  " AND status = 2 AND " OF_GROUP " LIMIT 1",
				  args, lengthof(args), NULL) == 0)
		(void) fairq_existing_group(queue, group_key);
}

/* fairq.purge_failed(queue, group_key, older_than) */
Datum
fairq_purge_failed(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *group_key = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	Interval	none = {0};
	Interval   *older_than = PG_ARGISNULL(2) ? &none : PG_GETARG_INTERVAL_P(2);
	FairqQueue *queue;
	FairqSqlArg args[3];
	uint64		deleted;

	(void) fairq_check_delay("older_than", older_than);
	fairq_writes("fairq.purge_failed()");
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	args[0] = fairq_sql_int4(queue->id);
	args[1] = fairq_sql_text(group_key);
	args[1].isnull = group_key == NULL;
	args[2] = (FairqSqlArg) {INTERVALOID, IntervalPGetDatum(older_than)};
	deleted = fairq_sql("DELETE FROM fairq.archive"
						" WHERE queue_id = $1 AND status = 2"
						" AND finished_at <= clock_timestamp() - $3"
						" AND ($2 IS NULL OR " OF_GROUP ")",
						args, lengthof(args), NULL);
	if (deleted == 0 && group_key != NULL)
		check_group(queue, group_key);
	PG_RETURN_INT64((int64) deleted);
}
