/*
 * catalog.c
 *		fairq's tables: their identity, and whether they are still as its
 *		script made them.
 *
 * A backend looks up the OIDs of the objects that CREATE EXTENSION has made
 * once.  It keeps them until an invalidation message reports a change of one
 * of the tables, or of the sequence.
 *
 * store.c reads and writes the tables without the executor.  So triggers do
 * not fire, foreign keys are neither checked nor cascade, and rules, row-level
 * security, check constraints, NOT NULL and defaults have no effect.  store.c
 * knows columns by their numbers and types, and rows by heap's headers.  A
 * database administrator can add any of that to a table of fairq.  Such a
 * table is refused, before anything is written, with an error that names the
 * object.  An administrator can correct an error in a minute, but may not find
 * a row that a trigger has missed for a year.
 *
 * Two kinds of objects are accepted.  Some have no effect on direct writes: a
 * disabled trigger, a trigger on TRUNCATE, a nullable column without a
 * default.  The same is true of a dropped NOT NULL.  Others are fairq's own:
 * triggers whose function is a member of the extension, check constraints by
 * their names, columns by their numbers.  store.c checks indexes.
 *
 * A table that is only read has to be a heap outside of any inheritance tree,
 * with columns of the right types.  Through a parent, rows could be changed
 * without fairq's statement triggers, and SQL would see a child's rows, which
 * fairq does not.
 *
 * Locking: none for a look-up.  A table can be dropped between the look-up and
 * fairq_open_relation(), which reports that.  To check a table, the caller
 * holds a lock on it, and keeps the result until the relcache entry is
 * invalidated.  Each command that adds one of these objects invalidates it,
 * and takes a lock that conflicts with a writer's RowExclusiveLock.  So a
 * writer can rely on the result until its transaction ends.  The exception is
 * inheritance: making the table a child of a table without columns changes
 * only pg_inherits, which the next check for another reason notices.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "nodes/makefuncs.h"
#include "rewrite/rewriteDefine.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "catalog.h"
#include "compat.h"

typedef struct Column
{
	Oid			type;
	bool		not_null;
} Column;

#define COLUMN(number, type, not_null) {type, not_null},

/*
 * The columns that fairq's script gives to tables; the index is their number
 * less 1.
 */
static const Column task_columns[] = {FAIRQ_TASK_COLUMNS(COLUMN)};
static const Column number_columns[] = {FAIRQ_NUMBER_COLUMNS(COLUMN)};
static const Column dedup_columns[] = {FAIRQ_DEDUP_COLUMNS(COLUMN)};
static const Column archive_columns[] = {FAIRQ_ARCHIVE_COLUMNS(COLUMN)};
static const Column queue_columns[] = {FAIRQ_QUEUE_COLUMNS(COLUMN)};
static const Column setting_columns[] = {FAIRQ_SETTING_COLUMNS(COLUMN)};
static const Column privilege_columns[] = {FAIRQ_PRIVILEGE_COLUMNS(COLUMN)};

static FairqCatalog catalog;
static bool catalog_valid = false;

/* A table as fairq's script makes it, or the sequence. */
typedef struct Shape
{
	const char *name;
	Oid		   *oid;			/* result of the last look-up */
	int			natts;
	const Column *columns;		/* by attribute number, less 1 */
} Shape;

static const Shape shapes[] = {
	{"group_number", &catalog.group_number, NUMBER_NATTS, number_columns},
	{"queue", &catalog.queue, QUEUE_NATTS, queue_columns},
	{"group_setting", &catalog.setting, SETTING_NATTS, setting_columns},
	{"queue_privilege", &catalog.privilege, PRIVILEGE_NATTS, privilege_columns},
	{"dedup", &catalog.dedup, DEDUP_NATTS, dedup_columns},
	{"archive", &catalog.archive, ARCHIVE_NATTS, archive_columns},
	{"task_id_seq", &catalog.task_id_seq},
	{"task", &catalog.task, TASK_NATTS, task_columns}
};

/* The check constraints that the script gives to tables which fairq writes. */
static const char *const own_checks[] = {
	"task_priority_check", "task_max_attempts_check", "task_cost_check",
	"task_until_started_check", "archive_status_check"
};

/* increases whenever one of the tables, or the sequence, may have changed */
static uint64 invalidations = 0;

/*
 * Whether the last look-up found this OID of a table or the sequence.  True
 * for InvalidOid, which means all tables.
 */
bool
fairq_catalog_has(Oid relid)
{
	for (int i = 0; i < (int) lengthof(shapes); i++)
		if (relid == *shapes[i].oid)
			return true;
	return relid == InvalidOid;
}

/* Whether the last look-up found this OID of fairq.task. */
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
 * Open a table that existed at the last look-up, and may have been dropped
 * since.
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

/* Whether the last look-up is still valid, as far as this backend knows. */
bool
fairq_catalog_is_valid(void)
{
	return catalog_valid;
}

/*
 * A number that increases when results about the tables may have become
 * invalid.
 */
uint64
fairq_catalog_changes(void)
{
	return invalidations;
}

/*
 * Whether the extension exists, and will exist until the end of the
 * transaction.
 */
bool
fairq_extension_exists(void)
{
	RangeVar   *queue = makeRangeVar("fairq", "queue", -1);

	return OidIsValid(RangeVarGetRelid(queue, AccessShareLock, true));
}

/*
 * Returns the OIDs of the extension's objects.  Valid until invalidation
 * messages are accepted: don't keep the pointer.
 */
const FairqCatalog *
fairq_catalog(void)
{
	static bool registered = false;
	Oid			nspid;
	Relation	rel;

	if (catalog_valid)
		return &catalog;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(catalog_invalidate, (Datum) 0);
		registered = true;
	}

	nspid = get_namespace_oid("fairq", true);
	for (int i = 0; i < (int) lengthof(shapes); i++)
		*shapes[i].oid = relation_named(nspid, shapes[i].name);
	rel = fairq_open_relation(catalog.task, AccessShareLock);
	catalog.owner = rel->rd_rel->relowner;
	table_close(rel, AccessShareLock);
	catalog_valid = true;
	return &catalog;
}

static const Shape *
shape_of(Relation rel)
{
	for (int i = 0; i < (int) lengthof(shapes); i++)
	{
		if (strcmp(shapes[i].name, RelationGetRelationName(rel)) == 0)
			return &shapes[i];
	}
	elog(ERROR, "\"%s\" is no table of fairq", RelationGetRelationName(rel));
}

/*
 * Report that the table has an object that fairq would bypass, or cannot read.
 */
static void
refuse(Relation rel, const char *kind)
{
	ereport(ERROR,
			errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			errmsg("%s is not supported on table \"fairq.%s\"", kind,
				   RelationGetRelationName(rel)),
			errdetail("fairq's functions read and write the table's rows without the executor."),
			errhint("Drop it, disable it, or undo the change of the table."));
}

static void
refuse_named(Relation rel, const char *kind, const char *name)
{
	refuse(rel, psprintf("%s \"%s\"", kind, name));
}

/* relhassubclass may be true after the last child was dropped. */
static void
check_inheritance(Relation rel)
{
	if (has_superclass(RelationGetRelid(rel)) ||
		(rel->rd_rel->relhassubclass &&
		 find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL))
		refuse(rel, "inheritance");
}

/*
 * Check a column that fairq's script made.  If the last ones are missing,
 * store_columns() reports an error.
 */
static void
check_own_column(Relation rel, Form_pg_attribute att, const Column *own,
				 bool writes)
{
	if (att->attisdropped || att->atttypid != own->type ||
		att->atttypmod != -1)
		refuse_named(rel, "the changed type of column", NameStr(att->attname));
	if (writes && att->attnotnull && !own->not_null)
		refuse_named(rel, "NOT NULL of column", NameStr(att->attname));
}

/*
 * Check a column that was added, into which fairq's functions write NULL.  A
 * domain can get a constraint, or a default, at any time, without notice.
 */
static void
check_added_column(Relation rel, Form_pg_attribute att)
{
	if (!att->attisdropped &&
		(att->attnotnull || att->atthasdef || att->attidentity != '\0' ||
		 get_typtype(att->atttypid) == TYPTYPE_DOMAIN))
		refuse_named(rel, "NOT NULL, a default or a domain of column",
					 NameStr(att->attname));
}

static void
check_columns(Relation rel, const Shape *shape, bool writes)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (i < shape->natts)
			check_own_column(rel, att, &shape->columns[i], writes);
		else if (writes)
			check_added_column(rel, att);
	}
}

static bool
is_own_check(const char *name)
{
	for (int i = 0; i < (int) lengthof(own_checks); i++)
	{
		if (strcmp(own_checks[i], name) == 0)
			return true;
	}
	return false;
}

static void
check_constraints(Relation rel)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	int			nchecks = constr == NULL ? 0 : constr->num_check;

	for (int i = 0; i < nchecks; i++)
	{
		if (fairq_check_is_enforced(&constr->check[i]) &&
			!is_own_check(constr->check[i].ccname))
			refuse_named(rel, "check constraint", constr->check[i].ccname);
	}
}

/* An internal trigger belongs to a foreign key or a deferrable constraint. */
static void
refuse_trigger(Relation rel, const Trigger *trigger)
{
	const char *constraint = !trigger->tgisinternal ? NULL :
		get_constraint_name(trigger->tgconstraint);

	if (constraint == NULL)
		refuse_named(rel, "trigger", trigger->tgname);
	refuse_named(rel, RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_NONE ?
				 "deferrable constraint" : "foreign key", constraint);
}

/*
 * The lock prevents changes of triggers, but the relcache may still read them
 * again.
 */
static void
check_triggers(Relation rel)
{
	TriggerDesc *desc = CopyTriggerDesc(rel->trigdesc);
	Oid			extension = get_extension_oid("fairq", true);
	int			ntriggers = desc == NULL ? 0 : desc->numtriggers;

	for (int i = 0; i < ntriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (trigger->tgenabled != TRIGGER_DISABLED &&
			(TRIGGER_FOR_INSERT(trigger->tgtype) ||
			 TRIGGER_FOR_UPDATE(trigger->tgtype) ||
			 TRIGGER_FOR_DELETE(trigger->tgtype)) &&
			(trigger->tgisinternal || !OidIsValid(extension) ||
			 getExtensionOfObject(ProcedureRelationId,
								  trigger->tgfoid) != extension))
			refuse_trigger(rel, trigger);
	}
	FreeTriggerDesc(desc);
}

static void
check_rules(Relation rel)
{
	int			nrules = rel->rd_rules == NULL ? 0 : rel->rd_rules->numLocks;

	for (int i = 0; i < nrules; i++)
	{
		if (rel->rd_rules->rules[i]->enabled != RULE_DISABLED)
			refuse(rel, "rule");
	}
}

/*
 * Check that fairq can read the table, which the caller has locked, or raise
 * an error.  With writes, also check that fairq can write it as PostgreSQL
 * would.
 */
void
fairq_catalog_check(Relation rel, bool writes)
{
	if (rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		refuse_named(rel, "access method", get_am_name(rel->rd_rel->relam));
	check_inheritance(rel);
	check_columns(rel, shape_of(rel), writes);
	if (!writes)
		return;
	check_constraints(rel);
	check_triggers(rel);
	check_rules(rel);
	if (rel->rd_rel->relrowsecurity)
		refuse(rel, "row-level security");
}
