/*
 * fairq.c
 *		The module: magic and version.
 *
 * By design, the library does almost nothing when it is loaded: any backend
 * can load it at any time.  Shared memory, caches and callbacks are made on
 * first use.  A server that loads it at its start only reserves room in shared
 * memory (shmem.c).  This file lists the modules' actions at the end of a
 * transaction, because their order matters.
 *
 * Waiting sessions must detect that the extension is dropped.  No trigger
 * fires then, but a backend that has worked with queues sees that fairq.task
 * is dropped.  A waiter checks by itself for drops by other backends (wait.c).
 *
 * Locking: none here.
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "group.h"
#include "load.h"
#include "queue.h"
#include "registry.h"
#include "running.h"
#include "serve.h"
#include "shmem.h"
#include "taken.h"
#include "transaction.h"
#include "turn.h"

FAIRQ_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(fairq_version);

/*
 * Actions at the end of a transaction, in their order.  Turns are given back
 * to their lane before their slots.  The caches follow when all changes are
 * applied.  serve.c is the last of those with end_call, so sessions that it
 * wakes find all turns and slots that were given back.
 */
static const FairqEnding *const endings[] = {
	&fairq_turns_ending,
	&fairq_running_ending,
	&fairq_load_ending,
	&fairq_taken_ending,
	&fairq_serve_ending,
	&fairq_groups_ending,
	&fairq_queues_ending
};

/*
 * Whether a relation is fairq.task.  Possibly there has been no look-up of the
 * tables yet.
 */
static bool
is_task_table(Oid relid)
{
	char	   *name = get_rel_name(relid);
	char	   *schema;

	if (name == NULL || strcmp(name, "task") != 0)
		return false;
	schema = get_namespace_name(get_rel_namespace(relid));
	return schema != NULL && strcmp(schema, "fairq") == 0;
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
		!fairq_shmem_can_be_had() || !is_task_table(object_id))
		return;
	/* it is locked exclusively: no other transaction uses any of its queues */
	foreach(lc, fairq_shmem_queues(object_id))
		fairq_pending_queue(lfirst(lc), FAIRQ_DROPPED | FAIRQ_REMOVED);
}

void
_PG_init(void)
{
	fairq_shmem_init();
	fairq_counters_init();
	MarkGUCPrefixReserved("fairq");
	next_hook = object_access_hook;
	object_access_hook = object_access;
	fairq_transactions_init(endings, lengthof(endings));
}

Datum
fairq_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(FAIRQ_VERSION));
}
