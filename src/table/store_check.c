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

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "rewrite/rewriteDefine.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "catalog.h"
#include "compat.h"
#include "store_check.h"

typedef struct Column
{
	Oid			type;
	bool		not_null;
} Column;

#define COLUMN(number, type, not_null) {type, not_null},

/* The columns that fairq's script gives to tables, less 1. */
static const Column task_columns[] = {FAIRQ_TASK_COLUMNS(COLUMN)};
static const Column number_columns[] = {FAIRQ_NUMBER_COLUMNS(COLUMN)};
static const Column dedup_columns[] = {FAIRQ_DEDUP_COLUMNS(COLUMN)};
static const Column archive_columns[] = {FAIRQ_ARCHIVE_COLUMNS(COLUMN)};
static const Column queue_columns[] = {FAIRQ_QUEUE_COLUMNS(COLUMN)};
static const Column setting_columns[] = {FAIRQ_SETTING_COLUMNS(COLUMN)};
static const Column privilege_columns[] = {FAIRQ_PRIVILEGE_COLUMNS(COLUMN)};

/* What fairq's script makes of a table. */
typedef struct Shape
{
	const char *name;
	int			natts;
	const Column *columns;		/* by attribute number, less 1 */
} Shape;

static const Shape shapes[] = {
	{"task", TASK_NATTS, task_columns},
	{"group_number", NUMBER_NATTS, number_columns},
	{"dedup", DEDUP_NATTS, dedup_columns},
	{"archive", ARCHIVE_NATTS, archive_columns},
	{"queue", QUEUE_NATTS, queue_columns},
	{"group_setting", SETTING_NATTS, setting_columns},
	{"queue_privilege", PRIVILEGE_NATTS, privilege_columns}
};

/* The check constraints that it gives to tables which are written. */
static const char *const own_checks[] = {
	"task_priority_check", "task_max_attempts_check", "task_cost_check",
	"task_until_started_check", "archive_status_check"
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

/* The table has something that fairq would bypass, or cannot read. */
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

/* relhassubclass may be true when the last child is gone. */
static void
check_inheritance(Relation rel)
{
	if (has_superclass(RelationGetRelid(rel)) ||
		(rel->rd_rel->relhassubclass &&
		 find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL))
		refuse(rel, "inheritance");
}

/*
 * Check a column that fairq's script made.  One that is missing at the end has an
 * error of its own in store_columns().
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
 * Check a column that was added, into which fairq's functions write NULL.  A domain
 * can be given a constraint, or a default, at any time, unnoticed.
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

/* An internal trigger is a foreign key's, or a constraint's that can wait. */
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
 * Returns if the table, which the caller has locked, is one that fairq can
 * read and, if it is to be written, write as PostgreSQL would.
 */
void
fairq_store_check(Relation rel, bool writes)
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
