/*
 * fairq.c
 *		The module: magic, version, its setup when the library is loaded, and
 *		the hook and triggers by which changes of fairq's tables change hints.
 *
 * By design, the library does almost nothing when it is loaded, because any
 * backend can load it at any time.  Shared memory, caches and callbacks are
 * created on first use.  If a server loads it at its start, the library only
 * reserves room in shared memory (shmem.c).  This file lists the modules'
 * actions at the end of a transaction, because their order matters.
 *
 * Waiting sessions must detect that the extension is dropped.  No trigger
 * fires then, but a hook reports the drop of fairq.task in a backend that has
 * worked with queues.  A waiter checks by itself for drops by other backends
 * (wait.c).
 *
 * fairq's direct writes (store.c) fire no triggers, and record their own
 * changes.  All other changes fire them: SQL by hand, COPY, the apply worker
 * of logical replication, and fairq's writes through SPI.  Writes through SPI
 * change settings and privileges.  All triggers are ENABLE ALWAYS or ENABLE
 * REPLICA, because the apply worker fires no others.
 *
 * Tasks and groups: a statement on fairq.task invalidates all hints, and one
 * on fairq.group_number invalidates all cached groups.  If there are tenants,
 * a statement on fairq.group_number also invalidates hints.  The apply worker
 * fires statement triggers only for TRUNCATE.  Row triggers exist only for
 * that worker (ENABLE REPLICA), so other statements do not pay for them.
 *
 * Settings and privileges: the row names its queue and group, so only these
 * become stale.  If the queue has no hints, the triggers make none.  A backend
 * that reads the queue meanwhile reads it again afterwards.
 *
 * Locking: none here; changes are pending until the end of the transaction
 * (transaction.c).
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "group.h"
#include "load.h"
#include "queue.h"
#include "registry.h"
#include "serve.h"
#include "shmem.h"
#include "store.h"
#include "store_spi.h"
#include "taken.h"
#include "tools.h"
#include "transaction.h"
#include "wait.h"

FAIRQ_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(fairq_version);
PG_FUNCTION_INFO_V1(fairq_task_changed);
PG_FUNCTION_INFO_V1(fairq_group_number_changed);
PG_FUNCTION_INFO_V1(fairq_settings_changed);

/*
 * Settle the caches of modules.  all: the transaction has ended, not only a
 * subtransaction.
 */
static void
settle(bool committed, bool all)
{
	if (all)
	{
		fairq_wait_settle(committed);
		fairq_taken_settle();
	}
	fairq_groups_settle(committed, all);
	fairq_queues_settle(committed, all);
}

static object_access_hook_type next_hook = NULL;

/* Hook: record that fairq.task is dropped. */
static void
object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id,
			  void *arg)
{
	ListCell   *lc;

	if (next_hook)
		next_hook(access, class_id, object_id, sub_id, arg);
	/* the extension can be dropped in any state of shared memory */
	if (access != OAT_DROP || class_id != RelationRelationId || sub_id != 0 ||
		!fairq_shmem_can_be_had())
		return;
	/*
	 * look for the table by its name, because this backend may not have cached
	 * the tables' OIDs
	 */
	if (object_id != get_relname_relid("task",
									   get_namespace_oid("fairq", true)))
		return;
	/*
	 * the table is locked exclusively, so no other transaction uses its queues
	 */
	foreach(lc, fairq_shmem_queues(object_id))
		fairq_pending_queue(lfirst(lc), FAIRQ_DROPPED | FAIRQ_REMOVED);
}

void
_PG_init(void)
{
	fairq_shmem_init();
	MarkGUCPrefixReserved("fairq");
	next_hook = object_access_hook;
	object_access_hook = object_access;
	fairq_transactions_init(fairq_serve_end, settle);
}

Datum
fairq_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(FAIRQ_VERSION));
}

/* --------------------------------------------------------------------- */

static TriggerData *
trigger_data(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("function was not called by trigger manager"));
	return (TriggerData *) fcinfo->context;
}

/* Refuse a key, with a message. */
static void
refuse_key(const char *key, const char *reason)
{
	ereport(ERROR,
			errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
			errmsg_internal("%s", reason),
			errdetail("The value is \"%s\".", key));
}

/* Refuse the first key that a query finds, if any. */
static void
refuse_found(const char *sql, const char *reason)
{
	List	   *keys = fairq_sql_texts(sql, NULL, 0, false);

	if (keys != NIL)
		refuse_key(strVal(linitial(keys)), reason);
}

#define TASK_OF_TENANT \
	"group_key of a task must be a tenant, the queue's separator and a user"

/*
 * In queues with tenants, check that no key has an empty part, and that the
 * tenant of each key has a number.  Check that no task's key is that of a
 * tenant.
 */
static void
check_keys(void)
{
	refuse_found("SELECT s.group_key FROM fairq.group_number s"
				 " JOIN fairq.queue q USING (queue_id)"
				 " WHERE strpos(s.group_key, q.separator)"
				 " IN (1, length(s.group_key)) LIMIT 1",
				 "group_key must be a tenant, or a tenant, the queue's separator and a user");
	refuse_found("SELECT s.group_key FROM fairq.group_number s"
				 " JOIN fairq.queue q USING (queue_id)"
				 " LEFT JOIN fairq.group_number t ON t.queue_id = s.queue_id"
				 " AND t.group_key = split_part(s.group_key, q.separator, 1)"
				 " WHERE q.separator IS NOT NULL"
				 " AND t.queue_id IS NULL LIMIT 1",
				 "tenant of group_key needs a row in fairq.group_number");
	refuse_found("SELECT s.group_key FROM fairq.queue q"
				 " JOIN fairq.group_number s USING (queue_id)"
				 " JOIN fairq.task t USING (queue_id, group_no)"
				 " WHERE strpos(s.group_key, q.separator) = 0 LIMIT 1",
				 TASK_OF_TENANT);
}

/* Check that no new row of a statement is a task with the key of a tenant. */
static void
check_new_tasks(Tuplestorestate *rows, TupleDesc desc)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	int			reader = tuplestore_alloc_read_pointer(rows, EXEC_FLAG_REWIND);

	tuplestore_select_read_pointer(rows, reader);
	tuplestore_rescan(rows);
	while (tuplestore_gettupleslot(rows, true, false, slot))
	{
		int32		queue_id = fairq_int_of(slot, TASK_QUEUE_ID, 0);
		FairqQueue *queue = fairq_queue_by_id(queue_id, true);
		Datum		key = queue == NULL || queue->shares.separator == 0 ?
			(Datum) 0 :
			fairq_group_key(queue, fairq_int_of(slot, TASK_GROUP_NO, 0));

		CHECK_FOR_INTERRUPTS();
		if (key != (Datum) 0 &&
			fairq_is_tenant_key(queue, DatumGetTextPP(key)))
			refuse_key(TextDatumGetCString(key), TASK_OF_TENANT);
	}
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * Trigger on fairq.task: SQL or logical replication changes rows, or has
 * changed them.
 */
Datum
fairq_task_changed(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo);

	if (data->tg_newtable != NULL)
		check_new_tasks(data->tg_newtable,
						RelationGetDescr(data->tg_relation));
	else
	{
		fairq_load_precedes_sql(RelationGetRelid(data->tg_relation));
		fairq_pending_reset(false);
	}
	PG_RETURN_POINTER(NULL);
}

/*
 * Trigger on fairq.group_number, because backends cache groups, and lanes have
 * the tenants of groups.  A DELETE keeps the hints, because drop_queue() also
 * deletes rows by SQL. If SQL has deleted the row of a group in use,
 * check_queue() finds that.
 */
Datum
fairq_group_number_changed(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo);

	fairq_groups_changed(false);
	if (TRIGGER_FIRED_FOR_ROW(data->tg_event))
		fairq_pending_reset(false);
	else if (!TRIGGER_FIRED_BY_DELETE(data->tg_event) &&
			 !TRIGGER_FIRED_BY_TRUNCATE(data->tg_event) &&
			 fairq_sql("SELECT FROM fairq.queue WHERE separator IS NOT NULL"
					   " LIMIT 1", NULL, 0, NULL) > 0)
	{
		fairq_pending_reset(false);
		check_keys();
	}
	PG_RETURN_POINTER(NULL);
}

/* Whether two rows have the same text, or both NULL, in the given column. */
static bool
is_same_text(TupleTableSlot *old, TupleTableSlot *new, AttrNumber attno)
{
	Datum		of_old = fairq_column(old, attno);
	Datum		of_new = fairq_column(new, attno);

	if (DatumGetPointer(of_old) == NULL || DatumGetPointer(of_new) == NULL)
		return of_old == of_new;
	return datum_image_eq(of_old, of_new, false, -1);
}

/*
 * Record that a row of fairq.queue was changed; gone: the queue no longer
 * exists.  No backend has cached the queue of a new row, unless another row
 * had its id before.
 */
static void
queue_changed(TupleTableSlot *slot, bool is_new, bool gone)
{
	FairqHints *hints = fairq_shmem_queue(fairq_int_of(slot, QUEUE_ID, 0),
										  false);

	if (hints != NULL && gone)
		fairq_pending_queue(hints, FAIRQ_DROPPED);
	else if (hints != NULL)
		fairq_pending_settings(hints, -1);
	else if (!is_new)
		fairq_pending_reset(true);
}

/* Whether this transaction itself creates the queue. */
static bool
is_own_queue(int32 id)
{
	FairqScan  *scan = fairq_scan_table(FAIRQ_QUEUE, FAIRQ_QUEUE_BY_ID,
										fairq_range(Int32GetDatum(id)));
	bool		own = fairq_scan_next_current(scan) && fairq_scan_is_own(scan);

	fairq_scan_end(scan);
	return own;
}

/*
 * Record that a row of fairq.group_setting or fairq.queue_privilege was
 * changed.
 */
static void
setting_changed(TupleTableSlot *slot, bool of_group)
{
	int32		queue_id = fairq_int_of(slot, SETTING_QUEUE_ID, 0);
	FairqHints *hints = fairq_shmem_queue(queue_id, false);

	StaticAssertDecl((int) SETTING_QUEUE_ID == (int) PRIVILEGE_QUEUE_ID,
					 "rows that begin alike");
	if (hints == NULL)
	{
		/* no other transaction sees a queue that we are creating */
		if (!is_own_queue(queue_id))
			fairq_pending_reset(true);
		fairq_queue_changed(true);
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
		fairq_queue_changed(false);
	}
}

/* Record that all rows of a table are gone. */
static void
all_changed(Oid relid)
{
	ListCell   *lc;

	fairq_pending_reset(true);
	foreach(lc, fairq_shmem_queues(fairq_relid(FAIRQ_TASK)))
	{
		FairqHints *hints = lfirst(lc);

		if (relid == fairq_relid(FAIRQ_QUEUE))
			fairq_pending_queue(hints, FAIRQ_DROPPED);
		else if (relid == fairq_relid(FAIRQ_GROUP_SETTING))
		{
			fairq_pending_settings(hints, -1);
			fairq_pending_queue(hints, FAIRQ_ALL_SETTINGS);
		}
		else
			fairq_pending_queue(hints, FAIRQ_GRANTED);
	}
	fairq_queue_changed(true);
}

/*
 * Trigger on the tables from which backends cache queues.  It also fires for
 * fairq's own changes.
 */
Datum
fairq_settings_changed(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo);
	Oid			relid = RelationGetRelid(data->tg_relation);
	bool		update = TRIGGER_FIRED_BY_UPDATE(data->tg_event);

	if (!TRIGGER_FIRED_FOR_ROW(data->tg_event))
		all_changed(relid);
	else if (relid != fairq_relid(FAIRQ_QUEUE))
	{
		bool		of_group = relid == fairq_relid(FAIRQ_GROUP_SETTING);

		setting_changed(data->tg_trigslot, of_group);
		if (update)
			setting_changed(data->tg_newslot, of_group);
	}
	else
	{
		TupleTableSlot *old = data->tg_trigslot;
		TupleTableSlot *new = data->tg_newslot;
		bool		is_new = TRIGGER_FIRED_BY_INSERT(data->tg_event);
		bool		stays = update && is_same_text(old, new, QUEUE_NAME) &&
			fairq_int_of(old, QUEUE_ID, 0) == fairq_int_of(new, QUEUE_ID, 0);

		queue_changed(old, is_new, !is_new && !stays);
		if (update)
			queue_changed(new, false, false);
		if (update && !is_same_text(old, new, QUEUE_SEPARATOR))
			ereport(ERROR,
					errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("separator of a queue cannot be changed"));
		fairq_queue_changed(false);
	}
	PG_RETURN_POINTER(NULL);
}
