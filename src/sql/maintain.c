/*
 * maintain.c
 *		fairq.expire_leases, fairq.maintain.
 *
 * The promises need neither: pops find lapsed tasks by themselves.  maintain
 * removes rows that would accumulate.  A queue that gets more groups over time
 * than its block length needs it, or has no number for a new one.
 *
 * Unused groups.  A group without tasks and settings is forgotten, and its
 * number is free.  An exception is a group whose rate just keeps it from
 * starting its whole burst at once.  The danger is an enqueue that has read
 * the number, and has not written its task yet.  So:
 *
 * 1.  The rows of such groups are deleted.  The groups that backends have
 *	  cached become void at once.  A transaction that searches a key from now
 *	  on finds that its row is being changed.  It writes one of its own with
 *	  the same number (group.c).
 *
 * 2.  All transactions that work on the queue at this moment may have read the
 *	  number before.  maintain waits for their end, but not for long, and
 *	  delays no other transaction.  If they take longer, a later call removes
 *	  the groups.
 *
 * 3.  A group that has got a task meanwhile gets its row back.  No backend
 *	 knows the numbers of the others any more.
 *
 * The same transaction must not add groups: it does not see the rows any more
 * that others still find.  So a transaction block does not do this, and adding
 * a group is an error otherwise (group.c).
 *
 * Locking: AccessShareLock on the queue; for a moment ShareUpdateExclusiveLock
 * for the groups, if it is free at once.  A change of settings in progress may
 * be for one of them.  maintain processes one queue after the other, and
 * unlocks each in which it has changed nothing.  There may be more queues than
 * the server has room for locks.  It skips tasks that others are changing.  To
 * delete from the archive it waits for an open redrive.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "dedup.h"
#include "due.h"
#include "group.h"
#include "lane_view.h"
#include "line.h"
#include "load.h"
#include "recover.h"
#include "registry.h"
#include "store_spi.h"
#include "taken.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_expire_leases);
PG_FUNCTION_INFO_V1(fairq_maintain);

/* how long to wait for the end of others' transactions */
#define PATIENCE_MS 1000
#define POLL_EVERY_MS 10

/* --------------------------------------------------------------------- */

Datum
fairq_expire_leases(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	int64		most = FAIRQ_ARG_INT(1, "max_tasks", 1000, 1, PG_INT32_MAX);

	fairq_writes("fairq.expire_leases()");
	PG_RETURN_INT64(fairq_end_all_lapsed(fairq_queue_use(name, FAIRQ_PRIV_WORK,
														 AccessShareLock), most));
}

/* --------------------------------------------------------------------- */

/*
 * Wait until all transactions have ended that work on the queue at this
 * moment.  False if some last longer than until "end".
 */
static bool
wait_for_users(FairqQueue *queue, TimestampTz end)
{
	LOCKTAG		tag;
	VirtualTransactionId *users;
	int			nusers;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, fairq_catalog()->queue, queue->id, 0);
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

/*
 * Whether there is a task of such groups in the lane, whatever a transaction
 * does with it.
 */
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
								 fairq_range_2(all, all), false);
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
 * Whether the group has tasks, or started some recently enough to matter for a
 * rate.  With another number it could start others at once.
 */
static bool
group_is_used(const TasksLook *look, FairqQueue *queue, int32 group_no)
{
	FairqCounter *counter;
	bool		used;

	if (group_has_tasks(look, group_no))
		return true;
	counter = fairq_shmem_find_counter(queue->hints, group_no);
	if (counter == NULL)
		return false;
	used = fairq_counter_starts_matter(counter);
	fairq_counter_unpin(counter);
	return used;
}

/* Groups whose rows of fairq.group_number are deleted. */
typedef struct Unused
{
	List	   *numbers;
	List	   *keys;			/* texts, in the same order */
} Unused;

/*
 * Delete the rows of unused groups, which are returned, and duplicate rows of
 * groups.
 */
static Unused
delete_unused(FairqQueue *queue, FairqTable *numbers, FairqTable *tasks,
			  bool *written)
{
	FairqRange	of_queue = fairq_range(Int32GetDatum(queue->id));
	FairqScan  *scan = fairq_scan_begin(numbers, FAIRQ_NUMBER_BY_NO, of_queue,
										false);
	TasksLook	look = begin_look(tasks, queue->id);
	Unused		unused = {NIL, NIL};
	int32		last = -1;
	FairqRowState state;

	*written = false;
	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		TupleTableSlot *slot = fairq_scan_slot(scan);
		int32		group_no = fairq_int_of(slot, NUMBER_GROUP_NO, 0);
		bool		again = group_no == last;

		/* a group that is just being made is not forgotten */
		if (state != FAIRQ_ROW_LIVE)
			continue;
		last = group_no;
		if (group_is_used(&look, queue, group_no) ||
			fairq_group_setting(queue, group_no) != &queue->groups.others.setting)
		{
			/* one row of a group is enough */
			if (again)
				fairq_table_delete(numbers, &slot->tts_tid);
			*written |= again;
			continue;
		}
		unused.numbers = lappend_int(unused.numbers, group_no);
		unused.keys = lappend(unused.keys,
							  DatumGetTextPCopy(fairq_column(slot,
															 NUMBER_GROUP_KEY)));
		fairq_table_delete(numbers, &slot->tts_tid);
		*written = true;
	}
	fairq_scan_end(look.scan);
	fairq_scan_end(scan);
	return unused;
}

/*
 * Delete the rows of unused groups.  False if other transactions last too
 * long.  *written: whether anything has changed.
 */
static bool
forget_unused(FairqQueue *queue, TimestampTz end, bool *written)
{
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task,
										 AccessShareLock);
	FairqTable *numbers = fairq_table_open(fairq_catalog()->group_number,
										   RowExclusiveLock);
	Unused		unused = delete_unused(queue, numbers, tasks, written);
	int			n = list_length(unused.numbers);
	bool		done = true;

	if (n > 0)
		fairq_groups_changed(true);
	fairq_written();
	if (n > 0 && (done = wait_for_users(queue, end)))
	{
		/* a new search: they may have tasks in other lanes now */
		TasksLook	look = begin_look(tasks, queue->id);
		ListCell   *number;
		ListCell   *key;

		forboth(number, unused.numbers, key, unused.keys)
			if (group_is_used(&look, queue, lfirst_int(number)))
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
 * Forget the unused groups of a queue, if that is possible in time.  Returns
 * whether anything was changed.
 */
static bool
maintain_groups(FairqQueue *queue, TimestampTz end)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = false;
	bool		written = false;

	/* another call that changes settings or maintains the queue goes first */
	if (!fairq_queue_id_try_lock(queue->id, ShareUpdateExclusiveLock))
		return false;
	/* its settings may have changed in between */
	if (fairq_queue_by_id(queue->id) == NULL)
	{
		fairq_queue_id_unlock(queue->id, ShareUpdateExclusiveLock);
		return false;
	}
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		/* data in its own context would stay to the end of the whole call */
		MemoryContextSwitchTo(context);
		done = forget_unused(queue, end, &written);
	}
	PG_CATCH();
	{
		/*
		 * otherwise the client would remain in a subtransaction that it has
		 * not begun
		 */
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (done)
		ReleaseCurrentSubTransaction();
	else
		RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	fairq_queue_id_unlock(queue->id, ShareUpdateExclusiveLock);
	return done && written;
}

/*
 * Delete keys without a task.  There are some only after tasks were deleted by
 * SQL.
 */
static int64
forget_keys(FairqQueue *queue)
{
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task,
										 RowExclusiveLock);
	int64		n = fairq_dedup_forget(queue, tasks);

	fairq_table_close(tasks);
	if (n > 0)
		fairq_written();
	return n;
}

/* Returns whether anything was changed. */
static bool
maintain_tasks(FairqQueue *queue)
{
	FairqSqlArg arg = fairq_sql_int4(queue->id);
	uint64		changed;

	/* the setting is read once, whatever the planner thinks */
	changed = fairq_sql("DELETE FROM fairq.archive a"
						" WHERE a.queue_id = $1 AND a.status IN (1, 3, 4)"
						" AND coalesce(a.finished_at < clock_timestamp()"
						" - (SELECT q.retain FROM fairq.queue q"
						" WHERE q.queue_id = $1), true)",
						&arg, 1, NULL);
	changed += fairq_sql("DELETE FROM fairq.archive a"
						 " WHERE a.queue_id = $1 AND a.status = 2"
						 " AND a.finished_at < clock_timestamp()"
						 " - (SELECT q.retain_failed FROM fairq.queue q"
						 " WHERE q.queue_id = $1)",
						 &arg, 1, NULL);
	/* a deleted row makes all backends read the queue again: see changed.c */
	changed += fairq_sql("DELETE FROM fairq.queue_privilege p WHERE p.queue_id = $1"
						 " AND NOT EXISTS (SELECT FROM pg_roles WHERE oid = p.role)",
						 &arg, 1, NULL);
	changed += forget_keys(queue);
	changed += fairq_end_all_lapsed(queue, PG_INT64_MAX);
	changed += fairq_finish_all_expired(queue);
	return changed > 0;
}

/*
 * Read from the table the groups and due tasks of the queue's lanes, if they
 * have tasks and that is not known.  So views can show a queue without workers
 * (waiting.c).
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
			fairq_lane_is_searched(lane))
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
		/* no leases: a group that lapses for nothing seems to wait */
		while (fairq_find_timed(queue, p, tasks, GetCurrentTimestamp(),
								&found))
			CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Make the lanes of those queues known that may be managed, and count all
 * tasks if those of one of them are not counted.  This is before anything is
 * written.  The queue is locked for that, so that its hints are its own.
 */
static void
read_tasks(const List *ids)
{
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task,
										 AccessShareLock);
	const ListCell *lc;

	foreach(lc, ids)
	{
		int32		id = lfirst_int(lc);
		FairqQueue *queue = fairq_queue_by_id(id);

		if (queue == NULL || !fairq_may(queue, FAIRQ_PRIV_MANAGE) ||
			!fairq_queue_id_try_lock(queue->id, AccessShareLock))
			continue;
		/* it may have been dropped before we had the lock */
		queue = fairq_queue_by_id(id);
		if (queue != NULL)
		{
			fairq_load_here(queue, tasks);
			make_known(queue, tasks);
		}
		fairq_queue_id_unlock(id, AccessShareLock);
	}
	fairq_table_close(tasks);
}

/*
 * Do one part of maintain() for each of these queues that still exists and may
 * be managed.  A queue that was changed stays locked until we end; others may
 * be dropped or altered at once.
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
											   FAIRQ_PRIV_MANAGE);

		CHECK_FOR_INTERRUPTS();
		if (queue != NULL &&
			!(groups ? maintain_groups(queue, end) : maintain_tasks(queue)))
			fairq_queue_id_unlock(queue->id, AccessShareLock);
		MemoryContextReset(each);
	}
	MemoryContextSwitchTo(old);
}

/*
 * Give back the shared memory of queues whose rows are gone, and which no
 * transaction uses.  They were deleted by SQL, or dropped on the primary while
 * this server was its standby.
 */
static void
give_back_deleted(void)
{
	Oid			table = fairq_catalog()->queue;
	List	   *ids;
	ListCell   *lc;

	/*
	 * Our own changes may be rolled back.  And a queue that is just being made
	 * has hints before others see it.
	 */
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		!ConditionalLockRelationOid(table, ShareLock))
		return;
	ids = fairq_queue_ids();
	foreach(lc, fairq_shmem_queues(fairq_catalog()->task))
	{
		FairqHints *hints = lfirst(lc);
		int32		id = hints->entry.key.queue_id;

		if (!list_member_int(ids, id) &&
			fairq_queue_id_try_lock(id, AccessExclusiveLock))
			fairq_shmem_release(hints);
	}
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
	/* first, as there may be no room for the existing queues */
	if (PG_ARGISNULL(0))
	{
		give_back_deleted();
		fairq_shmem_sweep();
	}
	ids = PG_ARGISNULL(0) ? fairq_queue_ids() :
		list_make1_int(fairq_queue_use(PG_GETARG_TEXT_PP(0), FAIRQ_PRIV_MANAGE,
									   AccessShareLock)->id);
	read_tasks(ids);
	maintain_each(ids, false, each);
	/*
	 * in a transaction block groups may be added afterwards: see above.  And
	 * taken tasks may be the only trace of a group
	 */
	if (!IsTransactionBlock() && !fairq_taken_any())
		maintain_each(ids, true, each);
	MemoryContextDelete(each);
	PG_RETURN_VOID();
}
