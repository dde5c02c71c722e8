/*
 * changed.c
 *		Triggers: hints change when fairq's tables are changed by SQL.
 *
 * fairq's direct writes (store.c) fire none of these, and note their changes
 * themselves.  All other changes fire them: SQL by hand, COPY, the worker of
 * logical replication, and fairq's writes through SPI.  The latter are those
 * of settings and privileges.  The triggers are all ENABLE ALWAYS or ENABLE
 * REPLICA, since that worker fires no others.
 *
 * Tasks and groups: a statement makes all hints void.  The worker fires
 * statement triggers only for TRUNCATE.  It has row triggers of its own,
 * ENABLE REPLICA, so that no other statement pays for them.
 *
 * Settings and privileges: the row names its queue and group, so only these
 * become stale.  If shared memory has nothing of the queue, nothing is made
 * there.  A backend that reads the queue meanwhile reads it again afterwards.
 *
 * Locking: none here; changes are pending until the end (transaction.c).
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "args.h"
#include "group.h"
#include "queue.h"
#include "registry.h"
#include "store.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_task_changed);
PG_FUNCTION_INFO_V1(fairq_group_number_changed);
PG_FUNCTION_INFO_V1(fairq_settings_changed);

static TriggerData *
trigger_data(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("function was not called by trigger manager"));
	return (TriggerData *) fcinfo->context;
}

/* Trigger on fairq.task: rows are changed by others than fairq's functions. */
Datum
fairq_task_changed(PG_FUNCTION_ARGS)
{
	(void) trigger_data(fcinfo);
	fairq_pending_reset();
	PG_RETURN_POINTER(NULL);
}

/* The same on fairq.group_number: backends have groups cached. */
Datum
fairq_group_number_changed(PG_FUNCTION_ARGS)
{
	(void) trigger_data(fcinfo);
	fairq_groups_changed(false);
	PG_RETURN_POINTER(NULL);
}

static text *
name_of(TupleTableSlot *slot)
{
	return DatumGetTextPP(fairq_column(slot, QUEUE_NAME));
}

static bool
is_same_queue(TupleTableSlot *old, TupleTableSlot *new)
{
	return fairq_int_of(old, QUEUE_ID, 0) == fairq_int_of(new, QUEUE_ID, 0) &&
		fairq_text_equal(name_of(old), name_of(new));
}

/*
 * Note that a row of fairq.queue was changed; gone: the queue does not exist
 * any more.
 */
static void
queue_changed(TupleTableSlot *slot, bool gone)
{
	FairqHints *hints = fairq_shmem_find_queue(fairq_int_of(slot, QUEUE_ID, 0));

	if (hints == NULL)
		fairq_pending_unknown_settings();
	else if (gone)
		fairq_pending_queue(hints, FAIRQ_DROPPED);
	else
		fairq_pending_settings(hints, -1);
}

/*
 * Note a new row of fairq.queue: no backend knows the queue, unless its id was
 * another row's.
 */
static void
queue_added(TupleTableSlot *slot)
{
	int32		queue_id = fairq_int_of(slot, QUEUE_ID, 0);
	FairqHints *hints = fairq_shmem_find_queue(queue_id);

	if (hints != NULL)
		fairq_pending_settings(hints, -1);
}

/* Whether this very transaction makes the queue. */
static bool
is_own_queue(int32 id)
{
	FairqTable *table = fairq_table_open(fairq_catalog()->queue,
										 AccessShareLock);
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_QUEUE_BY_ID,
										fairq_range(Int32GetDatum(id)), false);
	bool		own = fairq_scan_next_current(scan) && fairq_scan_is_own(scan);

	fairq_scan_end(scan);
	fairq_table_close(table);
	return own;
}

/* Note that a row of the other tables was changed. */
static void
setting_changed(TupleTableSlot *slot, bool of_group)
{
	int32		queue_id = fairq_int_of(slot, SETTING_QUEUE_ID, 0);
	FairqHints *hints = fairq_shmem_find_queue(queue_id);

	StaticAssertDecl((int) SETTING_QUEUE_ID == (int) PRIVILEGE_QUEUE_ID,
					 "rows that begin alike");
	if (hints == NULL)
	{
		/* no other transaction sees a queue that we are just making */
		if (!is_own_queue(queue_id))
			fairq_pending_unknown_settings();
		fairq_queue_all_changed();
	}
	else if (of_group)
	{
		int32		group_no = fairq_int_of(slot, SETTING_GROUP_NO, 0);

		fairq_pending_settings(hints, group_no);
		fairq_queue_group_changed(queue_id, group_no);
	}
	else
	{
		fairq_pending_queue(hints, FAIRQ_GRANTED);
		fairq_queue_changed();
	}
}

/* Note that all rows of a table are gone. */
static void
all_changed(Oid relid)
{
	ListCell   *lc;

	fairq_pending_unknown_settings();
	foreach(lc, fairq_shmem_queues(fairq_catalog()->task))
	{
		FairqHints *hints = lfirst(lc);

		if (relid == fairq_catalog()->queue)
			fairq_pending_queue(hints, FAIRQ_DROPPED);
		else if (relid == fairq_catalog()->setting)
			fairq_pending_all_settings(hints);
		else
			fairq_pending_queue(hints, FAIRQ_GRANTED);
	}
	fairq_queue_all_changed();
}

/*
 * Trigger on the tables of which backends cache queues, fairq's own changes
 * included.
 */
Datum
fairq_settings_changed(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo);
	Oid			relid = RelationGetRelid(data->tg_relation);
	bool		update = TRIGGER_FIRED_BY_UPDATE(data->tg_event);

	if (!TRIGGER_FIRED_FOR_ROW(data->tg_event))
		all_changed(relid);
	else if (relid != fairq_catalog()->queue)
	{
		bool		of_group = relid == fairq_catalog()->setting;

		setting_changed(data->tg_trigslot, of_group);
		if (update)
			setting_changed(data->tg_newslot, of_group);
	}
	else
	{
		if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
			queue_added(data->tg_trigslot);
		else
			queue_changed(data->tg_trigslot,
						  !update || !is_same_queue(data->tg_trigslot,
													data->tg_newslot));
		if (update)
			queue_changed(data->tg_newslot, false);
		fairq_queue_changed();
	}
	PG_RETURN_POINTER(NULL);
}
