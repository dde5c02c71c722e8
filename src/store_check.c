/*
 * store_check.c
 *		Is a table still one that fairq can read and write directly?
 *
 * store.c writes without the executor.  Whatever the executor would do besides
 * is left undone: triggers don't fire, foreign keys are neither checked nor
 * cascade, rules, row-level security, check constraints, NOT NULL and defaults
 * have no effect.  And store.c knows columns by their numbers and types, rows
 * by heap's headers.  A database administrator can add any of that to a table
 * of fairq.  Such a table is refused with an error that names the object,
 * before anything is written: an error is mended in a minute, an audit trail
 * with gaps or an orphaned row may be found a year later.
 *
 * Of what a table may have, two kinds are accepted: what harms nothing (a
 * trigger that is disabled, a nullable column without a default, a NOT NULL
 * that was dropped), and what fairq's own script gives it.  Own triggers are
 * those whose function is a member of the extension; own check constraints are
 * known by their names, own columns by their numbers.  Triggers on TRUNCATE
 * are accepted, too: fairq's functions never truncate.  Indexes are store.c's
 * affair.
 *
 * A table that is only read has to be a heap outside of any inheritance tree,
 * with columns of the right types.  In an inheritance tree rows can be changed
 * by way of the parent, past fairq's statement triggers, and the child's rows
 * are seen by SQL and not by fairq.
 *
 * Locking: the caller has the table locked, and keeps what was found until its
 * relcache entry is invalidated.  Each command that adds one of these objects
 * invalidates that, and takes a lock that conflicts with the RowExclusiveLock
 * of those who write, but for the commands that make another table a child of
 * this one.  So a transaction that has begun to write can rely on what was found
 * to its end.  A table that becomes the child of one without columns is the same
 * in the catalogs as before, but for pg_inherits: that is noticed when the table
 * is checked for another reason.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_rewrite.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "rewrite/rewriteDefine.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "catalog.h"
#include "compat.h"
#include "store_check.h"

#define MAX_CHECKS 4

typedef struct Column
{
	Oid			type;
	bool		not_null;
} Column;

/* What fairq's script makes of a table. */
typedef struct Shape
{
	const char *name;
	int			natts;
	const Column *columns;		/* by attribute number, less 1 */
	const char *checks[MAX_CHECKS]; /* names of check constraints */
} Shape;

static const Column task_columns[TASK_NATTS] = {
	[TASK_ID - 1] = {INT8OID, true},
	[TASK_ADDR - 1] = {INT8OID, true},
	[TASK_ENQUEUED_AT - 1] = {TIMESTAMPTZOID, true},
	[TASK_QUEUE_ID - 1] = {INT4OID, true},
	[TASK_GROUP_NO - 1] = {INT4OID, true},
	[TASK_LANE - 1] = {INT4OID, true},
	[TASK_PRIORITY - 1] = {INT2OID, true},
	[TASK_CANCELLED - 1] = {BOOLOID, true},
	[TASK_ATTEMPT - 1] = {INT4OID, true},
	[TASK_LEASE_UNTIL - 1] = {TIMESTAMPTZOID, false},
	[TASK_POPPED_AT - 1] = {TIMESTAMPTZOID, false},
	[TASK_RUN_AT - 1] = {TIMESTAMPTZOID, false},
	[TASK_MAX_ATTEMPTS - 1] = {INT4OID, false},
	[TASK_RELEASED - 1] = {INT4OID, false},
	[TASK_LAPSES - 1] = {INT4OID, false},
	[TASK_COST - 1] = {FLOAT4OID, false},
	[TASK_PAYLOAD - 1] = {JSONBOID, true},
	[TASK_WORKER - 1] = {TEXTOID, false},
	[TASK_DEDUP_KEY - 1] = {TEXTOID, false},
	[TASK_ERROR - 1] = {TEXTOID, false},
	[TASK_HEADERS - 1] = {JSONBOID, false},
	[TASK_PROGRESS - 1] = {JSONBOID, false},
	[TASK_UNTIL_STARTED - 1] = {BOOLOID, false},
	[TASK_DEDUP_FOR - 1] = {INTERVALOID, false},
	[TASK_EXPIRES_AT - 1] = {TIMESTAMPTZOID, false}
};

static const Column number_columns[NUMBER_NATTS] = {
	[NUMBER_QUEUE_ID - 1] = {INT4OID, true},
	[NUMBER_GROUP_NO - 1] = {INT4OID, true},
	[NUMBER_GROUP_KEY - 1] = {TEXTOID, true}
};

static const Column dedup_columns[DEDUP_NATTS] = {
	[DEDUP_QUEUE_ID - 1] = {INT4OID, true},
	[DEDUP_KEY - 1] = {TEXTOID, true},
	[DEDUP_TASK_ID - 1] = {INT8OID, true},
	[DEDUP_FREE_AT - 1] = {TIMESTAMPTZOID, false}
};

static const Column archive_columns[ARCHIVE_NATTS] = {
	[ARCHIVE_ID - 1] = {INT8OID, true},
	[ARCHIVE_ENQUEUED_AT - 1] = {TIMESTAMPTZOID, true},
	[ARCHIVE_FINISHED_AT - 1] = {TIMESTAMPTZOID, true},
	[ARCHIVE_QUEUE_ID - 1] = {INT4OID, true},
	[ARCHIVE_ATTEMPT - 1] = {INT4OID, true},
	[ARCHIVE_PRIORITY - 1] = {INT2OID, true},
	[ARCHIVE_STATUS - 1] = {INT2OID, true},
	[ARCHIVE_POPPED_AT - 1] = {TIMESTAMPTZOID, false},
	[ARCHIVE_RUN_AT - 1] = {TIMESTAMPTZOID, false},
	[ARCHIVE_MAX_ATTEMPTS - 1] = {INT4OID, false},
	[ARCHIVE_LAPSES - 1] = {INT4OID, false},
	[ARCHIVE_RELEASED - 1] = {INT4OID, false},
	[ARCHIVE_COST - 1] = {FLOAT4OID, false},
	[ARCHIVE_PAYLOAD - 1] = {JSONBOID, true},
	[ARCHIVE_GROUP_KEY - 1] = {TEXTOID, true},
	[ARCHIVE_WORKER - 1] = {TEXTOID, false},
	[ARCHIVE_DEDUP_KEY - 1] = {TEXTOID, false},
	[ARCHIVE_ERROR - 1] = {TEXTOID, false},
	[ARCHIVE_RESULT - 1] = {JSONBOID, false},
	[ARCHIVE_HEADERS - 1] = {JSONBOID, false},
	[ARCHIVE_PROGRESS - 1] = {JSONBOID, false},
	[ARCHIVE_UNTIL_STARTED - 1] = {BOOLOID, false},
	[ARCHIVE_DEDUP_FOR - 1] = {INTERVALOID, false},
	[ARCHIVE_EXPIRES_AT - 1] = {TIMESTAMPTZOID, false}
};

/* These are read here, and written by way of SQL. */
static const Column queue_columns[QUEUE_NATTS] = {
	[QUEUE_ID - 1] = {INT4OID},
	[QUEUE_BLOCK_LENGTH - 1] = {INT8OID},
	[QUEUE_PAUSED - 1] = {BOOLOID},
	[QUEUE_NAME - 1] = {TEXTOID},
	[QUEUE_LEASE - 1] = {INTERVALOID},
	[QUEUE_MAX_ATTEMPTS - 1] = {INT4OID},
	[QUEUE_NOTIFY - 1] = {BOOLOID},
	[QUEUE_BACKOFF - 1] = {INTERVALOID},
	[QUEUE_CONCURRENCY - 1] = {INT4OID},
	[QUEUE_MAX_RUNNING - 1] = {INT4OID},
	[QUEUE_RETAIN - 1] = {INTERVALOID},
	[QUEUE_FAIR_BY - 1] = {TEXTOID},
	[QUEUE_RATE - 1] = {INT4OID},
	[QUEUE_PER - 1] = {INTERVALOID},
	[QUEUE_BURST - 1] = {INT4OID},
	[QUEUE_MAX_RATE - 1] = {INT4OID},
	[QUEUE_SHARES - 1] = {INT4ARRAYOID},
	[QUEUE_IN_ORDER - 1] = {BOOLOID},
	[QUEUE_HELD_UNTIL - 1] = {TIMESTAMPTZOID},
	[QUEUE_RETAIN_FAILED - 1] = {INTERVALOID},
	[QUEUE_MAX_RUN - 1] = {INTERVALOID}
};

static const Column setting_columns[SETTING_NATTS] = {
	[SETTING_QUEUE_ID - 1] = {INT4OID},
	[SETTING_GROUP_NO - 1] = {INT4OID},
	[SETTING_WEIGHT - 1] = {INT4OID},
	[SETTING_PAUSED - 1] = {BOOLOID},
	[SETTING_CONCURRENCY - 1] = {INT4OID},
	[SETTING_RATE - 1] = {INT4OID},
	[SETTING_HELD_UNTIL - 1] = {TIMESTAMPTZOID}
};

static const Column privilege_columns[PRIVILEGE_NATTS] = {
	[PRIVILEGE_QUEUE_ID - 1] = {INT4OID},
	[PRIVILEGE_ROLE - 1] = {REGROLEOID},
	[PRIVILEGE_PRIVILEGE - 1] = {TEXTOID}
};

static const Shape shapes[] = {
	{"task", TASK_NATTS, task_columns,
	{"task_priority_check", "task_max_attempts_check", "task_cost_check",
	"task_until_started_check"}},
	{"group_number", NUMBER_NATTS, number_columns},
	{"dedup", DEDUP_NATTS, dedup_columns},
	{"archive", ARCHIVE_NATTS, archive_columns, {"archive_status_check"}},
	{"queue", QUEUE_NATTS, queue_columns},
	{"group_setting", SETTING_NATTS, setting_columns},
	{"queue_privilege", PRIVILEGE_NATTS, privilege_columns}
};

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

static char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

static void
check_access_method(Relation rel)
{
	const char *table = RelationGetRelationName(rel);

	if (rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("access method \"%s\" is not supported on table \"fairq.%s\"",
					   get_am_name(rel->rd_rel->relam), table),
				errdetail("fairq's functions read and write the rows of heap tables only."),
				errhint("Use ALTER TABLE fairq.%s SET ACCESS METHOD heap.",
						table));
}

/* The first table that the given one inherits from; InvalidOid if none. */
static Oid
parent_of(Oid relid)
{
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			parent = InvalidOid;

	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(inherits, InheritsRelidSeqnoIndexId, true, NULL,
							  1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		parent = ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent;
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
	return parent;
}

static void
check_inheritance(Relation rel)
{
	const char *table = RelationGetRelationName(rel);
	Oid			parent = parent_of(RelationGetRelid(rel));
	List	   *children = !rel->rd_rel->relhassubclass ? NIL :
		find_inheritance_children(RelationGetRelid(rel), NoLock);

	if (OidIsValid(parent))
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("table \"fairq.%s\" must not inherit from table \"%s\"",
					   table, get_rel_name(parent)),
				errdetail("fairq is not told of rows that are changed by way of another table."),
				errhint("Use ALTER TABLE fairq.%s NO INHERIT %s.", table,
						qualified_name(parent)));
	if (children != NIL)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("table \"%s\" must not inherit from table \"fairq.%s\"",
					   get_rel_name(linitial_oid(children)), table),
				errdetail("fairq's functions neither read nor write rows of another table."),
				errhint("Use ALTER TABLE %s NO INHERIT fairq.%s.",
						qualified_name(linitial_oid(children)), table));
}

/* A column missing at the end has an error of its own in store_columns(). */
static void
check_own_columns(Relation rel, const Shape *shape)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < Min(desc->natts, shape->natts); i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || att->atttypid != shape->columns[i].type ||
			att->atttypmod != -1)
			ereport(ERROR,
					errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("column \"%s\" of table \"fairq.%s\" must be of type %s",
						   NameStr(att->attname), RelationGetRelationName(rel),
						   format_type_be(shape->columns[i].type)),
					errdetail("fairq's functions know columns by their numbers and types."),
					errhint("Undo its change, or reinstall the extension."));
	}
}

/* Of own columns that are written, a NOT NULL that the script does not have. */
static void
check_not_null(Relation rel, const Shape *shape)
{
	TupleDesc	desc = RelationGetDescr(rel);
	const char *table = RelationGetRelationName(rel);

	for (int i = 0; i < Min(desc->natts, shape->natts); i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attnotnull && !shape->columns[i].not_null)
			ereport(ERROR,
					errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("NOT NULL of column \"%s\" is not supported on table \"fairq.%s\"",
						   NameStr(att->attname), table),
					errdetail("fairq's functions write NULL into this column."),
					errhint("Use ALTER TABLE fairq.%s ALTER COLUMN %s DROP NOT NULL.",
							table, quote_identifier(NameStr(att->attname))));
	}
}

/* A domain can be given a constraint, or a default, at any time, unnoticed. */
static void
check_added_columns(Relation rel, const Shape *shape)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = shape->natts; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped &&
			(att->attnotnull || att->atthasdef || att->attidentity != '\0' ||
			 get_typtype(att->atttypid) == TYPTYPE_DOMAIN))
			ereport(ERROR,
					errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("column \"%s\" is not supported on table \"fairq.%s\"",
						   NameStr(att->attname), RelationGetRelationName(rel)),
					errdetail("fairq's functions write NULL into columns that were added, and this one is NOT NULL, has a default, is generated or is of a domain."),
					errhint("Drop the column, or what it has of these."));
	}
}

static bool
is_own_check(const Shape *shape, const char *name)
{
	for (int i = 0; i < MAX_CHECKS; i++)
	{
		if (shape->checks[i] != NULL && strcmp(shape->checks[i], name) == 0)
			return true;
	}
	return false;
}

static void
check_constraints(Relation rel, const Shape *shape)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	int			nchecks = constr == NULL ? 0 : constr->num_check;

	for (int i = 0; i < nchecks; i++)
	{
		if (fairq_check_is_enforced(&constr->check[i]) &&
			!is_own_check(shape, constr->check[i].ccname))
			ereport(ERROR,
					errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("check constraint \"%s\" is not supported on table \"fairq.%s\"",
						   constr->check[i].ccname,
						   RelationGetRelationName(rel)),
					errdetail("fairq's functions write rows without looking at it."),
					errhint("Drop the constraint."));
	}
}

/* An internal trigger of a constraint: a foreign key, or one that can wait. */
static void
refuse_constraint(Relation rel, const Trigger *trigger)
{
	const char *table = RelationGetRelationName(rel);
	const char *name = get_constraint_name(trigger->tgconstraint);
	int			side = RI_FKey_trigger_type(trigger->tgfoid);

	if (name == NULL)
		name = trigger->tgname;
	if (side == RI_TRIGGER_NONE)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("deferrable constraint \"%s\" is not supported on table \"fairq.%s\"",
					   name, table),
				errdetail("fairq's functions check unique constraints at once."),
				errhint("Drop the constraint."));
	ereport(ERROR,
			errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			errmsg("foreign key \"%s\" is not supported on table \"fairq.%s\"",
				   name, table),
			errdetail("fairq's functions write rows without its checks and actions."),
			errhint("Drop the constraint from table %s.",
					qualified_name(side == RI_TRIGGER_PK ?
								   trigger->tgconstrrelid :
								   RelationGetRelid(rel))));
}

/* The lock keeps triggers from being changed, but not from being read anew. */
static void
check_triggers(Relation rel)
{
	TriggerDesc *desc = CopyTriggerDesc(rel->trigdesc);
	Oid			extension = get_extension_oid("fairq", true);
	int			ntriggers = desc == NULL ? 0 : desc->numtriggers;

	for (int i = 0; i < ntriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (trigger->tgenabled == TRIGGER_DISABLED ||
			!(TRIGGER_FOR_INSERT(trigger->tgtype) ||
			  TRIGGER_FOR_UPDATE(trigger->tgtype) ||
			  TRIGGER_FOR_DELETE(trigger->tgtype)))
			continue;
		if (trigger->tgisinternal)
			refuse_constraint(rel, trigger);
		if (OidIsValid(extension) &&
			getExtensionOfObject(ProcedureRelationId,
								 trigger->tgfoid) == extension)
			continue;
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("trigger \"%s\" is not supported on table \"fairq.%s\"",
					   trigger->tgname, RelationGetRelationName(rel)),
				errdetail("fairq's functions write rows without firing it."),
				errhint("Drop or disable the trigger."));
	}
	FreeTriggerDesc(desc);
}

static void
check_rules(Relation rel)
{
	Relation	rules;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	/* may be true when the last one is gone */
	if (!rel->rd_rel->relhasrules)
		return;
	rules = table_open(RewriteRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_rewrite_ev_class, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationGetRelid(rel)));
	scan = systable_beginscan(rules, RewriteRelRulenameIndexId, true, NULL, 1,
							  &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_rewrite rule = (Form_pg_rewrite) GETSTRUCT(tuple);

		if (rule->ev_enabled != RULE_DISABLED)
			ereport(ERROR,
					errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("rule \"%s\" is not supported on table \"fairq.%s\"",
						   NameStr(rule->rulename),
						   RelationGetRelationName(rel)),
					errdetail("fairq's functions write rows without following it."),
					errhint("Drop or disable the rule."));
	}
	systable_endscan(scan);
	table_close(rules, AccessShareLock);
}

static void
check_row_security(Relation rel)
{
	const char *table = RelationGetRelationName(rel);

	if (rel->rd_rel->relrowsecurity)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("row-level security is not supported on table \"fairq.%s\"",
					   table),
				errdetail("fairq's functions read and write rows whatever its policies are."),
				errhint("Use ALTER TABLE fairq.%s DISABLE ROW LEVEL SECURITY; privileges on queues are granted by fairq.grant_queue().",
						table));
}

/*
 * Returns if the table, which the caller has locked, is one that fairq can
 * read and, if it is to be written, write as PostgreSQL would.
 */
void
fairq_store_check(Relation rel, bool writes)
{
	const Shape *shape = shape_of(rel);

	check_access_method(rel);
	check_inheritance(rel);
	check_own_columns(rel, shape);
	if (!writes)
		return;
	check_not_null(rel, shape);
	check_added_columns(rel, shape);
	check_constraints(rel, shape);
	check_triggers(rel);
	check_rules(rel);
	check_row_security(rel);
}
