/*
 * store.c
 *		fairq's tables and their indexes, without the executor.
 *
 * The hot paths read and write the tables through the table and index access
 * methods.  Advantages:
 *
 * - Scans use a dirty snapshot.  At any isolation level they see the rows that
 *	 are committed now, and detect rows that an open transaction inserts or
 *	 changes.  fairq takes no predicate lock, so it causes no serialization
 *	 failure.
 * - A claim waits for no transaction.  Claiming a ready task takes no row
 *	 lock, unless the row was locked or changed before.  The claim is one
 *	 update whose outcome (HOT or not) is known.  A lapsed task is locked
 *	 first.
 *
 * Disadvantages: rules, triggers, defaults, generated columns, constraints
 * other than unique btree indexes, privileges and row security have no effect.
 * fairq's script creates no such objects that matter here, except the
 * generated column task.lane, which enqueue.c writes.  fairq refuses to open a
 * table to which such an object was added (catalog.c), or which has an index
 * that fairq cannot maintain.  Like the executor, this file checks that
 * publications can identify the row that is updated or deleted.
 *
 * This file opens and closes a table, finds and maintains its indexes, and
 * inserts rows.  Scans are in store_scan.c.  Rows of fairq.task are found,
 * locked and changed in store_task.c.
 *
 * Locking: relation locks of the requested mode, kept to the end of the
 * transaction.  An index is opened, and locked in the same mode, when it is
 * first needed.  Most claims and deletions need at most one index, and locking
 * all of them would take a third of the time of complete().  Buffers are
 * pinned only while a slot holds a row.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "store_internal.h"

/*
 * indexes that the last searches found; InvalidOid: not searched yet, or
 * possibly outdated
 */
static Oid	known_indexes[FAIRQ_INDEXES];

/*
 * The subset of the tasks that an index contains, according to its predicate.
 */
typedef enum Part
{
	PART_WHOLE,					/* all tasks: no predicate */
	PART_TIMED,					/* addr >= 2^62 */
	PART_WITH_EXPIRES_AT,		/* expires_at IS NOT NULL */
	PART_WITH_BATCH,			/* batch IS NOT NULL */
	PARTS,
	PART_UNKNOWN				/* another predicate */
} Part;

/* the index last found for each part, except PART_WHOLE */
static Oid	part_indexes[PARTS];

/* uses for which each table was checked */
static int	checked_uses[FAIRQ_RELATIONS];

/* Forget the results of checks of a table, or of all tables (InvalidOid). */
static void
forget_table(Datum arg, Oid relid)
{
	FairqRelation which = fairq_relation_of(relid);

	/*
	 * keep the results for other tables, because the tables of settings change
	 * often
	 */
	if (relid == InvalidOid)
		memset(checked_uses, 0, sizeof(checked_uses));
	else if (which == FAIRQ_RELATIONS)
		return;
	else
		checked_uses[which] = 0;
	memset(known_indexes, 0, sizeof(known_indexes));
	memset(part_indexes, 0, sizeof(part_indexes));
}

/* Check that a locked table allows a use, or raise an error. */
void
fairq_check_use(FairqTable *table, FairqUse use)
{
	uint64		as_of = fairq_catalog_changes();

	if (checked_uses[table->which] & use)
		return;
	switch (use)
	{
		case FAIRQ_TO_READ:
		case FAIRQ_TO_WRITE:
			fairq_catalog_check(table->rel, table->which,
								use == FAIRQ_TO_WRITE);
			break;
		case FAIRQ_TO_UPDATE:
		case FAIRQ_TO_DELETE:
			/* check whether publications can identify the row */
			CheckCmdReplicaIdentity(table->rel, use == FAIRQ_TO_UPDATE ?
									CMD_UPDATE : CMD_DELETE);
			break;
	}
	/* keep the result unless the table may have changed during the check */
	if (fairq_catalog_changes() == as_of)
		checked_uses[table->which] |= use;
}

static bool
is_column(Node *node, AttrNumber attno)
{
	return IsA(node, Var) && ((Var *) node)->varattno == attno;
}

/* Whether the predicate is "addr >= 2^62", which is true for timed tasks. */
static bool
is_of_timed(Node *predicate)
{
	OpExpr	   *op = (OpExpr *) predicate;
	Const	   *from;

	if (!IsA(predicate, OpExpr) || op->opfuncid != F_INT8GE)
		return false;
	from = lsecond(op->args);
	return is_column(linitial(op->args), TASK_ADDR) &&
		IsA(from, Const) && !from->constisnull &&
		DatumGetInt64(from->constvalue) == FAIRQ_RETRIES;
}

/* Whether the predicate is that the column IS NOT NULL. */
static bool
is_of_not_null(Node *predicate, AttrNumber attno)
{
	NullTest   *test = (NullTest *) predicate;

	return IsA(predicate, NullTest) && test->nulltesttype == IS_NOT_NULL &&
		is_column((Node *) test->arg, attno);
}

/* Returns the part of the table's rows that an opened index contains. */
static Part
part_of(FairqTable *table, Relation index)
{
	uint64		as_of = fairq_catalog_changes();
	List	   *predicate;
	Part		part = PART_UNKNOWN;

	if (heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return PART_WHOLE;
	/*
	 * compare OIDs first: the relation cache copies a predicate at each call
	 */
	for (int p = PART_WHOLE + 1; p < PARTS; p++)
		if (RelationGetRelid(index) == part_indexes[p])
			return p;
	predicate = RelationGetIndexPredicate(index);
	if (table->which != FAIRQ_TASK || list_length(predicate) != 1)
		return PART_UNKNOWN;
	if (is_of_timed(linitial(predicate)))
		part = PART_TIMED;
	else if (is_of_not_null(linitial(predicate), TASK_EXPIRES_AT))
		part = PART_WITH_EXPIRES_AT;
	else if (is_of_not_null(linitial(predicate), TASK_BATCH))
		part = PART_WITH_BATCH;
	if (part != PART_UNKNOWN && fairq_catalog_changes() == as_of)
		part_indexes[part] = RelationGetRelid(index);
	return part;
}

static Relation
open_index(FairqTable *table, int i)
{
	Relation	index = table->indexes.rels[i];

	if (index != NULL)
		return index;
	index = index_open(list_nth_oid(table->indexes.oids, i), table->lockmode);
	table->indexes.rels[i] = index;
	if (index->rd_rel->relam != BTREE_AM_OID ||
		RelationGetIndexExpressions(index) != NIL ||
		part_of(table, index) == PART_UNKNOWN ||
		index->rd_index->indisexclusion)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("index \"%s\" is not supported on table \"fairq.%s\"",
					   RelationGetRelationName(index),
					   get_rel_name(index->rd_index->indrelid)),
				errdetail("fairq maintains only plain btree indexes."),
				errhint("Drop the index."));
	return index;
}

FairqTable *
fairq_open(FairqRelation which, LOCKMODE lockmode)
{
	static bool watching = false;
	FairqTable *table = palloc0(sizeof(FairqTable));

	if (!watching)
		CacheRegisterRelcacheCallback(forget_table, (Datum) 0);
	watching = true;
	table->context = CurrentMemoryContext;
	table->lockmode = lockmode;
	table->rel = fairq_open_relation(fairq_relid(which), lockmode);
	table->which = which;
	fairq_check_use(table, lockmode == AccessShareLock ? FAIRQ_TO_READ :
					FAIRQ_TO_WRITE);
	table->indexes.oids = RelationGetIndexList(table->rel);
	table->indexes.n = list_length(table->indexes.oids);
	table->indexes.rels = palloc0(sizeof(Relation) * Max(table->indexes.n, 1));
	return table;
}

/*
 * Open fairq.task for reading; NULL if the call would have to wait for another
 * transaction.
 */
FairqTable *
fairq_try_open_tasks(void)
{
	return !ConditionalLockRelationOid(fairq_relid(FAIRQ_TASK),
									   AccessShareLock) ? NULL :
		fairq_open(FAIRQ_TASK, AccessShareLock);
}

/*
 * Open all indexes, before the caller holds a lock for which other
 * transactions wait.  If a transaction is changing an index, the caller waits
 * here, and not later.
 */
void
fairq_table_open_indexes(FairqTable *table)
{
	for (int i = 0; i < table->indexes.n; i++)
		open_index(table, i);
}

static void
table_end(FairqTable *table, LOCKMODE lockmode)
{
	for (int i = 0; i < FAIRQ_TABLES; i++)
		if (table->beside[i] != NULL)
			table_end(table->beside[i], NoLock);
	fairq_scan_end(table->by_id);
	if (table->fetch.data)
	{
		table_index_fetch_end(table->fetch.data);
		ExecDropSingleTupleTableSlot(table->fetch.slot);
	}
	if (table->new_slot)
		ExecDropSingleTupleTableSlot(table->new_slot);
	for (int i = 0; table->batch.rows && i < FAIRQ_MAX_ROWS; i++)
		ExecDropSingleTupleTableSlot(table->batch.rows[i]);
	if (table->locked.slot)
		ExecDropSingleTupleTableSlot(table->locked.slot);
	for (int i = 0; i < table->indexes.n; i++)
	{
		if (table->indexes.rels[i] != NULL)
			index_close(table->indexes.rels[i], lockmode);
	}
	table_close(table->rel, lockmode);
	list_free(table->indexes.oids);
	pfree(table->indexes.rels);
	pfree(table);
}

void
fairq_table_close(FairqTable *table)
{
	table_end(table, NoLock);
}

/* Close a table and release its locks, after a call that has done nothing. */
void
fairq_table_leave(FairqTable *table)
{
	table_end(table, table->lockmode);
}

/*
 * Open another table, with the same lock.  It is used together with this
 * table, and is closed with it.  The other table is opened at its first use,
 * because most calls do not need it.
 */
FairqTable *
fairq_table_beside(FairqTable *table, FairqRelation which)
{
	if (table->beside[which] == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(table->context);

		table->beside[which] = fairq_open(which, table->lockmode);
		MemoryContextSwitchTo(old);
	}
	return table->beside[which];
}

TupleTableSlot *
fairq_new_slot(FairqTable *table)
{
	if (table->new_slot == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(table->context);

		table->new_slot =
			MakeSingleTupleTableSlot(RelationGetDescr(table->rel),
									 &TTSOpsVirtual);
		MemoryContextSwitchTo(old);
	}
	return ExecClearTuple(table->new_slot);
}

/*
 * Whether the index begins with these columns, in the order on which scans
 * rely.  An index on the same columns may be descending, compare differently,
 * or have another collation.  All text that fairq searches for has collation
 * "C".
 */
static bool
is_in_order(Relation index, TupleDesc desc, const AttrNumber *columns)
{
	Form_pg_index form = index->rd_index;

	for (int k = 0; k < FAIRQ_MAX_KEYS && columns[k] != 0; k++)
	{
		Oid			type = TupleDescAttr(desc, columns[k] - 1)->atttypid;
		Oid			opclass = GetDefaultOpClass(type, BTREE_AM_OID);

		if (k >= form->indnkeyatts ||
			form->indkey.values[k] != columns[k] ||
			index->rd_opfamily[k] != get_opclass_family(opclass) ||
			index->rd_opcintype[k] != get_opclass_input_type(opclass) ||
			index->rd_indcollation[k] !=
			(type == TEXTOID ? C_COLLATION_OID : InvalidOid) ||
			index->rd_indoption[k] != 0)
			return false;
	}
	return true;
}

/*
 * Find an index that begins with the wanted columns.  The index's name does
 * not matter, because the index may have been rebuilt under another one.
 */
Relation
fairq_find_index(FairqTable *table, FairqIndex which)
{
	static const AttrNumber columns[][FAIRQ_MAX_KEYS] = {
		[FAIRQ_TASK_BY_ID] = {TASK_ID},
		[FAIRQ_TASK_BY_TIME] = {TASK_LANE, TASK_ADDR},
		[FAIRQ_TASK_BY_GROUP] = {TASK_LANE, TASK_GROUP_NO, TASK_ADDR},
		[FAIRQ_TASK_BY_EXPIRY] = {TASK_QUEUE_ID, TASK_EXPIRES_AT},
		[FAIRQ_TASK_BY_BATCH] = {TASK_BATCH, TASK_ID},
		[FAIRQ_NUMBER_BY_KEY] = {NUMBER_QUEUE_ID, NUMBER_GROUP_KEY},
		[FAIRQ_NUMBER_BY_NO] = {NUMBER_QUEUE_ID, NUMBER_GROUP_NO},
		[FAIRQ_QUEUE_BY_NAME] = {QUEUE_NAME},
		[FAIRQ_QUEUE_BY_ID] = {QUEUE_ID},
		[FAIRQ_SETTING_BY_GROUP] = {SETTING_QUEUE_ID, SETTING_GROUP_NO},
		[FAIRQ_PRIVILEGE_BY_QUEUE] = {PRIVILEGE_QUEUE_ID, PRIVILEGE_ROLE},
		[FAIRQ_DEDUP_BY_KEY] = {DEDUP_QUEUE_ID, DEDUP_KEY},
		[FAIRQ_ARCHIVE_BY_ID] = {ARCHIVE_ID},
		[FAIRQ_ARCHIVE_BY_STATUS] = {ARCHIVE_QUEUE_ID, ARCHIVE_STATUS},
		[FAIRQ_BATCH_BY_ID] = {BATCH_ID},
		[FAIRQ_DELTA_BY_BATCH] = {DELTA_BATCH, DELTA_STATUS},
		[FAIRQ_DEPENDENCY_BY_WAITING] = {DEPENDENCY_WAITING, DEPENDENCY_STATUS,
		DEPENDENCY_TASK},
		[FAIRQ_DEPENDENCY_BY_TASK] = {DEPENDENCY_TASK, DEPENDENCY_WAITING},
	};
	/*
	 * the part of the tasks that each of these indexes must contain; the
	 * others contain all tasks
	 */
	static const Part parts[FAIRQ_INDEXES] = {
		[FAIRQ_TASK_BY_TIME] = PART_TIMED,
		[FAIRQ_TASK_BY_EXPIRY] = PART_WITH_EXPIRES_AT,
		[FAIRQ_TASK_BY_BATCH] = PART_WITH_BATCH
	};
	uint64		as_of;

	for (int i = 0; i < table->indexes.n; i++)
	{
		if (list_nth_oid(table->indexes.oids, i) == known_indexes[which])
			return open_index(table, i);
	}

	/* indexes have changed, so refuse those that fairq cannot maintain */
	as_of = fairq_catalog_changes();
	fairq_table_open_indexes(table);
	for (int i = 0; i < table->indexes.n; i++)
	{
		Relation	index = table->indexes.rels[i];
		Part		part = part_of(table, index);

		if (index->rd_index->indisvalid &&
			(part == PART_WHOLE || part == parts[which]) &&
			is_in_order(index, RelationGetDescr(table->rel), columns[which]))
		{
			if (fairq_catalog_changes() == as_of)
				known_indexes[which] = list_nth_oid(table->indexes.oids, i);
			return index;
		}
	}
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("an index of table \"fairq.%s\" is missing",
				   RelationGetRelationName(table->rel)),
			errhint("Reinstall the extension, or rebuild the index as its script defines it."));
}

/* Find the parts of the table to which the row belongs. */
static void
find_parts(FairqTable *table, TupleTableSlot *slot, bool in_part[PARTS])
{
	bool		is_task = table->which == FAIRQ_TASK;

	in_part[PART_WHOLE] = true;
	in_part[PART_TIMED] = is_task &&
		fairq_is_timed(DatumGetInt64(fairq_column(slot, TASK_ADDR)));
	in_part[PART_WITH_EXPIRES_AT] = is_task &&
		!slot_attisnull(slot, TASK_EXPIRES_AT);
	in_part[PART_WITH_BATCH] = is_task && !slot_attisnull(slot, TASK_BATCH);
}

/*
 * Whether we know, without opening the index, that the index does not contain
 * the row with these parts.
 */
static bool
is_of_others(const bool in_part[PARTS], Oid index)
{
	for (int p = PART_WHOLE + 1; p < PARTS; p++)
		if (!in_part[p] && index == part_indexes[p])
			return true;
	return false;
}

/*
 * Insert an entry into every index for the row that was just written from
 * slot.
 */
void
fairq_insert_index_entries(FairqTable *table, TupleTableSlot *slot,
						   bool is_update)
{
	bool		in_part[PARTS];

	find_parts(table, slot, in_part);
	for (int i = 0; i < table->indexes.n; i++)
	{
		Relation	index;
		Form_pg_index form;
		Datum		values[INDEX_MAX_KEYS];
		bool		nulls[INDEX_MAX_KEYS];
		IndexInfo	info = {.type = T_IndexInfo};

		if (is_of_others(in_part, list_nth_oid(table->indexes.oids, i)))
			continue;
		index = open_index(table, i);
		form = index->rd_index;
		if (!form->indisready || !in_part[part_of(table, index)])
			continue;
		for (int k = 0; k < form->indnatts; k++)
			values[k] = slot_getattr(slot, form->indkey.values[k], &nulls[k]);

		/* btree does not use the IndexInfo */
		index_insert(index, values, nulls, &slot->tts_tid, table->rel,
					 form->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
					 is_update && !form->indisunique, &info);
	}
}

/* Store a row in a slot.  Columns that a later version has added are NULL. */
static void
store_columns(TupleTableSlot *slot, const Datum *values, const bool *nulls,
			  int natts)
{
	if (natts > slot->tts_tupleDescriptor->natts)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("a table of fairq must have at least %d columns, not %d",
					   natts, slot->tts_tupleDescriptor->natts),
				errhint("Run ALTER EXTENSION fairq UPDATE."));
	ExecClearTuple(slot);
	memset(slot->tts_isnull, true,
		   sizeof(bool) * slot->tts_tupleDescriptor->natts);
	memcpy(slot->tts_values, values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, nulls, sizeof(bool) * natts);
	ExecStoreVirtualTuple(slot);
}

/* Insert a row.  Returns its TID, valid until the next insert. */
ItemPointer
fairq_table_insert(FairqTable *table, const Datum *values, const bool *nulls,
				   int natts)
{
	TupleTableSlot *slot = fairq_new_slot(table);

	store_columns(slot, values, nulls, natts);
	simple_table_tuple_insert(table->rel, slot);
	fairq_insert_index_entries(table, slot, false);
	return &slot->tts_tid;
}

/*
 * Postpone a row, to insert it together with other rows.  The data to which
 * its values point must stay until then.  Returns true when it is time to
 * insert the rows.
 */
bool
fairq_table_put_off(FairqTable *table, const Datum *values, const bool *nulls,
					int natts)
{
	if (table->batch.rows == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(table->context);

		/* use a copy, because a hundred references to the original are slow */
		TupleDesc	desc = CreateTupleDescCopy(RelationGetDescr(table->rel));

		table->batch.rows = palloc(sizeof(TupleTableSlot *) * FAIRQ_MAX_ROWS);
		for (int i = 0; i < FAIRQ_MAX_ROWS; i++)
			table->batch.rows[i] = MakeSingleTupleTableSlot(desc,
															&TTSOpsVirtual);
		MemoryContextSwitchTo(old);
	}
	store_columns(table->batch.rows[table->batch.n++], values, nulls, natts);
	return table->batch.n == FAIRQ_MAX_ROWS;
}

/* Insert the postponed rows, with a WAL record per page instead of per row. */
void
fairq_table_insert_rows(FairqTable *table)
{
	int			n = table->batch.n;

	if (n == 0)
		return;
	table->batch.n = 0;
	table_multi_insert(table->rel, table->batch.rows, n,
					   GetCurrentCommandId(true), 0, NULL);
	for (int i = 0; i < n; i++)
		fairq_insert_index_entries(table, table->batch.rows[i], false);
}

/* Delete a row that no other transaction can be changing. */
void
fairq_table_delete(FairqTable *table, ItemPointer tid)
{
	fairq_check_use(table, FAIRQ_TO_DELETE);
	simple_table_tuple_delete(table->rel, tid, InvalidSnapshot);
}

/* End a scan, if there is one. */
void
fairq_scan_end(FairqScan *scan)
{
	if (scan == NULL)
		return;
	if (scan->table->at == &scan->slot)
		scan->table->at = NULL;
	index_endscan(scan->desc);
	if (scan->abreast)
		pfree(scan->abreast);
	ExecDropSingleTupleTableSlot(scan->slot);
	if (scan->closes)
		fairq_table_close(scan->table);
	pfree(scan);
}
