/*
 * catalog.c
 *		fairq's tables: their OIDs, and whether they still match fairq's
 *		script.
 *
 * A backend looks up the OIDs of the extension's objects once.  It keeps them
 * until an invalidation message reports a change of one of the tables, or of
 * the sequence.
 *
 * store.c reads and writes the tables without the executor.  So triggers do
 * not fire, and foreign keys are not checked and do not cascade.  Rules,
 * row-level security, check constraints, NOT NULL and defaults have no effect.
 * store.c finds columns by their numbers and types, and reads the headers of
 * heap rows.  A database administrator can add any of these objects to a table
 * of fairq, or change its columns or its access method.  fairq refuses such a
 * table before it writes anything, with an error that names the object.  An
 * administrator can fix an error in a minute, but may need a year to notice
 * that a trigger has missed a row.
 *
 * Two kinds of objects are allowed.  Some have no effect on direct writes: a
 * disabled trigger, a trigger on TRUNCATE, a nullable column without a
 * default.  A dropped NOT NULL has no effect either.  Others are fairq's own:
 * triggers whose function is a member of the extension, and check constraints
 * and columns that fairq knows by name or number.  store.c checks indexes.
 *
 * A table that is only read has to be a heap outside of any inheritance tree,
 * with columns of the right types.  Changes through a parent would not fire
 * fairq's statement triggers.  SQL would see the rows of a child, but fairq
 * would not.
 *
 * Locking: none for a look-up.  A table can be dropped between the look-up and
 * fairq_open_relation(), which then raises an error.  To check a table, the
 * caller holds a lock on it, and keeps the result until the relcache entry is
 * invalidated.  Each command that adds one of these objects invalidates that
 * entry, and takes a lock that conflicts with a writer's RowExclusiveLock.  So
 * a writer can rely on the result until its transaction ends.  The exception
 * is inheritance.  Making the table a child of a table without columns changes
 * only pg_inherits, so fairq notices at the next check.
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

static FairqCatalog catalog;
static bool catalog_valid = false;

/* A table as fairq's script makes it, or the sequence. */
typedef struct Shape
{
	const char *name;
	int			natts;
	const Column *columns;		/* the column with attribute number n is at n -
								 * 1 */
} Shape;

#define SHAPE(name, TABLE) \
	{name, TABLE##_NATTS, (const Column[]) {FAIRQ_##TABLE##_COLUMNS(COLUMN)}}

static const Shape shapes[FAIRQ_RELATIONS] = {
	[FAIRQ_GROUP_NUMBER] = SHAPE("group_number", NUMBER),
	[FAIRQ_QUEUE] = SHAPE("queue", QUEUE),
	[FAIRQ_GROUP_SETTING] = SHAPE("group_setting", SETTING),
	[FAIRQ_QUEUE_PRIVILEGE] = SHAPE("queue_privilege", PRIVILEGE),
	[FAIRQ_DEDUP] = SHAPE("dedup", DEDUP),
	[FAIRQ_ARCHIVE] = SHAPE("archive", ARCHIVE),
	[FAIRQ_BATCH] = SHAPE("batch", BATCH),
	[FAIRQ_BATCH_DELTA] = SHAPE("batch_delta", DELTA),
	[FAIRQ_DEPENDENCY] = SHAPE("dependency", DEPENDENCY),
	[FAIRQ_TASK] = SHAPE("task", TASK),
	[FAIRQ_TASK_ID_SEQ] = {"task_id_seq"}
};

/* The check constraints that the script gives to tables which fairq writes. */
static const char *const own_checks[] = {
	"task_group_no_check", "task_priority_check", "task_max_attempts_check",
	"task_cost_check", "task_until_started_check", "task_blocked_check",
	"task_attempt_log_check", "group_number_group_no_check",
	"archive_status_check", "archive_attempt_log_check"
};

/* increases whenever one of the tables, or the sequence, may have changed */
static uint64 invalidations = 0;

/*
 * The relation that had this OID at the last look-up; FAIRQ_RELATIONS: none.
 */
FairqRelation
fairq_relation_of(Oid relid)
{
	FairqRelation which = 0;

	while (which < FAIRQ_RELATIONS && relid != catalog.relids[which])
		which++;
	return which;
}

/* InvalidOid means all tables. */
static void
catalog_invalidate(Datum arg, Oid relid)
{
	if (relid == InvalidOid || fairq_relation_of(relid) != FAIRQ_RELATIONS)
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
 * Open a table that existed at the last look-up but may have been dropped
 * since.
 */
Relation
fairq_open_relation(Oid relid, LOCKMODE lockmode)
{
	Relation	rel = try_table_open(relid, lockmode);

	if (rel == NULL || fairq_relation_of(relid) == FAIRQ_RELATIONS)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_TABLE),
				errmsg("a table of fairq does not exist any more"),
				errhint("The extension has to be created in this database."));
	return rel;
}

/*
 * Whether the last look-up is still valid, according to the messages that this
 * backend has received.
 */
bool
fairq_catalog_is_valid(void)
{
	return catalog_valid;
}

/*
 * A number that increases when results of checks of the tables may have become
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
 * Returns the OIDs of the extension's objects.  They are valid until
 * invalidation messages are accepted, so callers must not keep the pointer.
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
	for (int i = 0; i < FAIRQ_RELATIONS; i++)
		catalog.relids[i] = relation_named(nspid, shapes[i].name);
	rel = fairq_open_relation(catalog.relids[FAIRQ_TASK], AccessShareLock);
	catalog.owner = rel->rd_rel->relowner;
	table_close(rel, AccessShareLock);
	catalog_valid = true;
	return &catalog;
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

/*
 * Refuse a table with a parent or a child.  relhassubclass may be true even
 * after the last child was dropped.
 */
static void
check_inheritance(Relation rel)
{
	if (has_superclass(RelationGetRelid(rel)) ||
		(rel->rd_rel->relhassubclass &&
		 find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL))
		refuse(rel, "inheritance");
}

/*
 * Check a column that fairq's script made.  If the last columns are missing,
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
 * Check a column that was added later.  fairq's functions write NULL into it.
 * A domain can get a constraint, or a default, at any time without an
 * invalidation message.
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

/*
 * Report a trigger.  An internal trigger belongs to a foreign key or a
 * deferrable constraint.
 */
static void
refuse_trigger(Relation rel, const Trigger *trigger)
{
	const char *constraint = !trigger->tgisinternal ? NULL :
		get_constraint_name(trigger->tgconstraint);

	if (constraint == NULL)
		refuse_named(rel, "trigger", trigger->tgname);
	refuse_named(rel,
				 RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_NONE ?
				 "deferrable constraint" : "foreign key", constraint);
}

/*
 * Refuse a table with a trigger that fairq would bypass.  The lock prevents
 * changes to triggers, but the relcache can still reload them.
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
fairq_catalog_check(Relation rel, FairqRelation which, bool writes)
{
	if (rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		refuse_named(rel, "access method", get_am_name(rel->rd_rel->relam));
	check_inheritance(rel);
	check_columns(rel, &shapes[which], writes);
	if (!writes)
		return;
	check_constraints(rel);
	check_triggers(rel);
	check_rules(rel);
	if (rel->rd_rel->relrowsecurity)
		refuse(rel, "row-level security");
}
