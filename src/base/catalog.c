/*
 * catalog.c
 *		fairq's tables: which they are.
 *
 * The OIDs of what CREATE EXTENSION has made are looked up once, and kept until
 * an invalidation message says that one of the tables, or the sequence, may be
 * another one.
 *
 * Locking: none that is kept.  A table whose OID was looked up can have been
 * dropped by the time it is opened: fairq_open_relation() says so.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "nodes/makefuncs.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "catalog.h"

static FairqCatalog catalog;
static bool catalog_valid = false;

/* counts up whenever one of the tables, or the sequence, may have changed */
static uint64 invalidations = 0;

/*
 * Is that one of the tables, or the sequence, as they were looked up last; or
 * all tables (InvalidOid)?
 */
bool
fairq_catalog_has(Oid relid)
{
	return relid == InvalidOid ||
		relid == catalog.task || relid == catalog.group_number ||
		relid == catalog.queue || relid == catalog.setting ||
		relid == catalog.privilege ||
		relid == catalog.dedup || relid == catalog.archive ||
		relid == catalog.task_id_seq;
}

/* Is that fairq.task, as it was looked up last? */
bool
fairq_catalog_is_task(Oid relid)
{
	return relid == catalog.task;
}

static void
catalog_invalidate(Datum arg, Oid relid)
{
	if (fairq_catalog_has(relid))
	{
		catalog_valid = false;
		invalidations++;
	}
}

static Oid
relation_named(Oid nspid, const char *name)
{
	Oid			relid = OidIsValid(nspid) ? get_relname_relid(name, nspid) :
		InvalidOid;

	if (!OidIsValid(relid))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_TABLE),
				errmsg("relation \"fairq.%s\" does not exist", name),
				errhint("The extension has to be created in this database."));
	return relid;
}

/*
 * Open a table that was there when its OID was looked up, and may have been
 * dropped since.
 */
Relation
fairq_open_relation(Oid relid, LOCKMODE lockmode)
{
	Relation	rel = try_table_open(relid, lockmode);

	if (rel == NULL)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_TABLE),
				errmsg("a table of fairq does not exist any more"),
				errhint("The extension has to be created in this database."));
	return rel;
}

/* As far as this backend has heard, are the tables still what they were? */
bool
fairq_catalog_is_valid(void)
{
	return catalog_valid;
}

/* Counts up when what a backend has seen of them may not be true any more. */
uint64
fairq_catalog_changes(void)
{
	return invalidations;
}

/* Is it there, and will be until the end of the transaction? */
bool
fairq_extension_exists(void)
{
	RangeVar   *queue = makeRangeVar("fairq", "queue", -1);

	return OidIsValid(RangeVarGetRelid(queue, AccessShareLock, true));
}

/* Is that fairq.task?  For callers that may not have looked up any table. */
bool
fairq_is_task_table(Oid relid)
{
	char	   *name = get_rel_name(relid);
	char	   *schema;

	if (name == NULL || strcmp(name, "task") != 0)
		return false;
	schema = get_namespace_name(get_rel_namespace(relid));
	return schema != NULL && strcmp(schema, "fairq") == 0;
}

/*
 * Returns the OIDs of what the extension has made.  Valid until invalidation
 * messages are accepted: don't keep the pointer.
 */
const FairqCatalog *
fairq_catalog(void)
{
	static bool registered = false;
	Oid			nspid;

	if (catalog_valid)
		return &catalog;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(catalog_invalidate, (Datum) 0);
		registered = true;
	}

	nspid = get_namespace_oid("fairq", true);
	catalog.group_number = relation_named(nspid, "group_number");
	catalog.queue = relation_named(nspid, "queue");
	catalog.setting = relation_named(nspid, "group_setting");
	catalog.privilege = relation_named(nspid, "queue_privilege");
	catalog.dedup = relation_named(nspid, "dedup");
	catalog.archive = relation_named(nspid, "archive");
	catalog.task_id_seq = relation_named(nspid, "task_id_seq");
	catalog.task = relation_named(nspid, "task");
	{
		Relation	rel = fairq_open_relation(catalog.task, AccessShareLock);

		catalog.owner = rel->rd_rel->relowner;
		table_close(rel, AccessShareLock);
	}
	catalog_valid = true;
	return &catalog;
}
