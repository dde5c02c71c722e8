/*
 * store.c
 *		fairq's tables and their indexes, without the executor.
 *
 * The hot paths read and write the tables through the table and index access
 * methods.  What this buys:
 *
 * - Scans use a dirty snapshot.  They see what is committed now, whatever the
 *   isolation level, and are told of rows that an open transaction inserts or
 *   changes.  No predicate lock is taken, so that no serialization failure is
 *   of fairq's making.
 * - A claim waits for no transaction.  That of a ready task takes no lock in
 *   the row, nor leaves one there, unless the row was locked or changed
 *   before; it is one update whose outcome (HOT or not) is known.  An expired
 *   task is locked first.
 *
 * What it costs: rules, triggers, defaults, generated columns, constraints
 * other than unique btree indexes, privileges and row security don't take
 * part.  fairq's own script makes none of these that matters here, but for
 * task.lane, which add.c writes.  A table to which one was added is
 * refused when it is opened (store_check.c); an index that fairq cannot keep
 * up, when it is.  What the executor asks about publications is asked here,
 * too: whether they can tell which row was updated or deleted.
 *
 * A dirty scan can miss a row.  It copies an index page and then visits the
 * heap; a row that is moved (a new version with index entries of its own) and
 * committed in between can be missed in both places.  Every such move is
 * counted in shared memory after its index entries are there and before its
 * commit.  fairq_task_find(), which must not miss, looks again when the
 * counter moved meanwhile.
 *
 * Locking: relation locks as asked for, kept to the end of the transaction.  An
 * index is opened, and locked likewise, once it is needed: most claims and
 * deletions need one or none, and locking them all is a third of a complete().
 * Buffers are pinned only while a slot holds a row.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/spccache.h"
#include "utils/timestamp.h"

#include "address.h"
#include "compat.h"
#include "domain.h"
#include "errors.h"
#include "stall.h"
#include "store.h"
#include "store_check.h"

/*
 * Rows at one address that are put in order at a time: there can be as many as
 * the highest weight, and of those that are being changed another version.
 */
#define MAX_ABREAST 4096

/* A task that a scan has come by. */
typedef struct ScannedTask
{
	FairqRowState state;
	FairqTask	task;
} ScannedTask;

struct FairqScan
{
	FairqTable *table;
	IndexScanDesc desc;
	SnapshotData snapshot;
	TupleTableSlot *slot;
	ScanDirection direction;
	int			budget;			/* index entries that may still be looked at */
	bool		at_entry;		/* at one of which the row was not looked at */
	bool		at_end;			/* there are no more entries */
	ItemPointerData root;		/* what the entry points to */
	int			addr_column;	/* of the index, if it has addr */
	ScannedTask *abreast;		/* tasks at one address that were read ahead */
	int			nabreast;
	int			max_abreast;
	int			next_abreast;
};

/*
 * Where this backend has put the tasks that it leased.  A worker mostly
 * completes what it has popped itself: that saves the way through the index.
 */
#define LEASED_SLOTS 1024

static struct
{
	int64		id;
	ItemPointerData tid;
}			leased[LEASED_SLOTS];

/* as they were found last; InvalidOid: not looked for, or they may be others */
static Oid	known_indexes[FAIRQ_INDEXES];

/* an index of timed tasks only: its predicate is the one that fairq knows */
static Oid	timed_index;

/* What a table must be good for, to be checked once until it is changed. */
typedef enum Use
{
	TO_READ = 1 << 0,
	TO_WRITE = 1 << 1,
	TO_UPDATE = 1 << 2,
	TO_DELETE = 1 << 3
} Use;

static struct
{
	Oid			relid;
	int			uses;			/* those that were checked */
}			known_tables[FAIRQ_TABLES];

/* Forget what was found of a table, or of all of them (InvalidOid). */
static void
forget_table(Datum arg, Oid relid)
{
	if (!fairq_catalog_has(relid))
		return;
	memset(known_indexes, 0, sizeof(known_indexes));
	timed_index = InvalidOid;
	/* the others are what they were: settings change often */
	for (int i = 0; i < FAIRQ_TABLES; i++)
	{
		if (relid == InvalidOid || relid == known_tables[i].relid)
			memset(&known_tables[i], 0, sizeof(known_tables[i]));
	}
}

/* Have them forgotten when they are changed. */
static void
watch_tables(void)
{
	static bool registered = false;

	if (registered)
		return;
	CacheRegisterRelcacheCallback(forget_table, (Datum) 0);
	registered = true;
}

static int *
checked_uses(Oid relid)
{
	for (int i = 0; i < FAIRQ_TABLES; i++)
	{
		if (known_tables[i].relid == relid)
			return &known_tables[i].uses;
	}
	for (int i = 0; i < FAIRQ_TABLES; i++)
	{
		if (!OidIsValid(known_tables[i].relid))
		{
			known_tables[i].relid = relid;
			return &known_tables[i].uses;
		}
	}
	elog(ERROR, "there are more tables of fairq than %d", FAIRQ_TABLES);
}

/* Returns if the table, which is locked, is good for that. */
static void
check_use(Relation rel, Use use)
{
	uint64		as_of = fairq_catalog_changes();

	if (*checked_uses(RelationGetRelid(rel)) & use)
		return;
	switch (use)
	{
		case TO_READ:
		case TO_WRITE:
			fairq_store_check(rel, use == TO_WRITE);
			break;
		case TO_UPDATE:
		case TO_DELETE:
			/* whether publications could say which row it was */
			CheckCmdReplicaIdentity(rel, use == TO_UPDATE ? CMD_UPDATE :
									CMD_DELETE);
			break;
	}
	/* what was looked at may be changed again, and we have just heard of it */
	if (fairq_catalog_changes() == as_of)
		*checked_uses(RelationGetRelid(rel)) |= use;
}

/* Is it "addr >= 2^62", which is true of timed tasks? */
static bool
is_of_timed(FairqTable *table, List *predicate)
{
	OpExpr	   *op = linitial(predicate);
	Var		   *addr;
	Const	   *from;

	if (!fairq_catalog_is_task(RelationGetRelid(table->rel)) ||
		list_length(predicate) != 1 || !IsA(op, OpExpr) ||
		op->opfuncid != F_INT8GE)
		return false;
	addr = linitial(op->args);
	from = lsecond(op->args);
	return IsA(addr, Var) && addr->varattno == TASK_ADDR &&
		IsA(from, Const) && !from->constisnull &&
		DatumGetInt64(from->constvalue) == FAIRQ_RETRIES;
}

/* Has the index no predicate but the one that fairq knows? */
static bool
is_whole_or_timed(FairqTable *table, Relation index)
{
	uint64		as_of = fairq_catalog_changes();
	List	   *predicate;

	/* the relation cache would copy the predicate for each look at it */
	if (RelationGetRelid(index) == timed_index)
		return true;
	predicate = RelationGetIndexPredicate(index);
	if (predicate != NIL && !is_of_timed(table, predicate))
		return false;
	if (predicate != NIL && fairq_catalog_changes() == as_of)
		timed_index = RelationGetRelid(index);
	return true;
}

/* Has an index that was opened a predicate? */
static bool
is_partial(Relation index)
{
	return !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

static Relation
open_index(FairqTable *table, int i)
{
	Relation	index = table->indexes[i];

	if (index != NULL)
		return index;
	table->indexes[i] = index = index_open(table->indexoids[i],
										   table->lockmode);
	if (index->rd_rel->relam != BTREE_AM_OID ||
		RelationGetIndexExpressions(index) != NIL ||
		!is_whole_or_timed(table, index) ||
		index->rd_index->indisexclusion)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("index \"%s\" is not supported on table \"fairq.%s\"",
					   RelationGetRelationName(index),
					   get_rel_name(index->rd_index->indrelid)),
				errdetail("fairq keeps up only plain btree indexes."),
				errhint("Drop the index."));
	return index;
}

FairqTable *
fairq_table_open(Oid relid, LOCKMODE lockmode)
{
	FairqTable *table = palloc0(sizeof(FairqTable));
	List	   *indexoids;
	ListCell   *lc;

	watch_tables();
	table->context = CurrentMemoryContext;
	table->lockmode = lockmode;
	table->rel = fairq_open_relation(relid, lockmode);
	check_use(table->rel, lockmode == AccessShareLock ? TO_READ : TO_WRITE);
	indexoids = RelationGetIndexList(table->rel);
	table->indexoids = palloc(sizeof(Oid) * Max(list_length(indexoids), 1));
	table->indexes = palloc0(sizeof(Relation) * Max(list_length(indexoids), 1));
	foreach(lc, indexoids)
		table->indexoids[table->nindexes++] = lfirst_oid(lc);
	list_free(indexoids);
	return table;
}

/*
 * Open all indexes, before the caller holds something for which others wait: a
 * transaction that is changing an index keeps us here, and not then.
 */
void
fairq_table_open_indexes(FairqTable *table)
{
	for (int i = 0; i < table->nindexes; i++)
		open_index(table, i);
}

static void
table_end(FairqTable *table, LOCKMODE lockmode)
{
	if (table->dedup)
		table_end(table->dedup, NoLock);
	if (table->archive)
		table_end(table->archive, NoLock);
	if (table->by_id)
		fairq_scan_end(table->by_id);
	if (table->entries)
		fairq_scan_end(table->entries);
	if (table->fetch)
	{
		table_index_fetch_end(table->fetch);
		ExecDropSingleTupleTableSlot(table->fetch_slot);
	}
	if (table->new_slot)
		ExecDropSingleTupleTableSlot(table->new_slot);
	for (int i = 0; table->rows && i < FAIRQ_MAX_ROWS; i++)
		ExecDropSingleTupleTableSlot(table->rows[i]);
	if (table->lock_slot)
		ExecDropSingleTupleTableSlot(table->lock_slot);
	for (int i = 0; i < table->nindexes; i++)
	{
		if (table->indexes[i] != NULL)
			index_close(table->indexes[i], lockmode);
	}
	table_close(table->rel, lockmode);
	pfree(table->indexoids);
	pfree(table->indexes);
	pfree(table);
}

void
fairq_table_close(FairqTable *table)
{
	table_end(table, NoLock);
}

/* The same, by a call that has done nothing: its locks are not kept. */
void
fairq_table_leave(FairqTable *table)
{
	table_end(table, table->lockmode);
}

/*
 * A table that is written beside another one, as long as that is open.  Most
 * calls don't need it.
 */
FairqTable *
fairq_table_beside(FairqTable *table, FairqTable **other, Oid relid)
{
	if (*other == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(table->context);

		*other = fairq_table_open(relid, RowExclusiveLock);
		MemoryContextSwitchTo(old);
	}
	return *other;
}

static TupleTableSlot *
new_slot(FairqTable *table)
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
 * Are the first columns of the index the wanted ones, in the order in which
 * scans rely on them?  There may be an index of the same columns that goes
 * down, compares them otherwise, or has another collation; all text that fairq
 * looks for is in "C".
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
 * An index whose first columns are the wanted ones, whatever its name: it may
 * have been rebuilt.
 */
static Relation
find_index(FairqTable *table, FairqIndex which)
{
	static const AttrNumber columns[][FAIRQ_MAX_KEYS] = {
		[FAIRQ_TASK_BY_ID] = {TASK_ID},
		[FAIRQ_TASK_BY_TIME] = {TASK_LANE, TASK_ADDR},
		[FAIRQ_TASK_BY_GROUP] = {TASK_LANE, TASK_GROUP_NO, TASK_ADDR},
		[FAIRQ_NUMBER_BY_KEY] = {NUMBER_QUEUE_ID, NUMBER_GROUP_KEY},
		[FAIRQ_NUMBER_BY_NO] = {NUMBER_QUEUE_ID, NUMBER_GROUP_NO},
		[FAIRQ_QUEUE_BY_NAME] = {QUEUE_NAME},
		[FAIRQ_QUEUE_BY_ID] = {QUEUE_ID},
		[FAIRQ_SETTING_BY_GROUP] = {SETTING_QUEUE_ID, SETTING_GROUP_NO},
		[FAIRQ_PRIVILEGE_BY_QUEUE] = {PRIVILEGE_QUEUE_ID, PRIVILEGE_ROLE},
		[FAIRQ_DEDUP_BY_KEY] = {DEDUP_QUEUE_ID, DEDUP_KEY},
		[FAIRQ_ARCHIVE_BY_STATUS] = {ARCHIVE_QUEUE_ID, ARCHIVE_STATUS},
	};
	uint64		as_of;

	for (int i = 0; i < table->nindexes; i++)
	{
		if (table->indexoids[i] == known_indexes[which])
			return open_index(table, i);
	}

	/* there are others than before: refuse what cannot be kept up, too */
	as_of = fairq_catalog_changes();
	fairq_table_open_indexes(table);
	for (int i = 0; i < table->nindexes; i++)
	{
		if (table->indexes[i]->rd_index->indisvalid &&
			(which == FAIRQ_TASK_BY_TIME || !is_partial(table->indexes[i])) &&
			is_in_order(table->indexes[i], RelationGetDescr(table->rel),
						columns[which]))
		{
			if (fairq_catalog_changes() == as_of)
				known_indexes[which] = table->indexoids[i];
			return table->indexes[i];
		}
	}
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("an index of table \"fairq.%s\" is missing",
				   RelationGetRelationName(table->rel)),
			errhint("Reinstall the extension, or rebuild the index as its script defines it."));
}

/* Is the row that of a timed task? */
static bool
is_timed_row(FairqTable *table, TupleTableSlot *slot)
{
	bool		isnull;

	return fairq_catalog_is_task(RelationGetRelid(table->rel)) &&
		fairq_is_timed(DatumGetInt64(slot_getattr(slot, TASK_ADDR, &isnull)));
}

/*
 * Give every index an entry for the row that was just written from slot.
 */
static void
insert_index_entries(FairqTable *table, TupleTableSlot *slot, bool is_update)
{
	bool		timed = is_timed_row(table, slot);

	for (int i = 0; i < table->nindexes; i++)
	{
		Relation	index;
		Form_pg_index form;
		Datum		values[INDEX_MAX_KEYS];
		bool		nulls[INDEX_MAX_KEYS];
		IndexInfo	info = {.type = T_IndexInfo};

		/* not even opened, if it is the known one */
		if (!timed && table->indexoids[i] == timed_index)
			continue;
		index = open_index(table, i);
		form = index->rd_index;
		if (!form->indisready || (!timed && is_partial(index)))
			continue;
		for (int k = 0; k < form->indnatts; k++)
			values[k] = slot_getattr(slot, form->indkey.values[k], &nulls[k]);

		/* btree looks at nothing in the IndexInfo */
		index_insert(index, values, nulls, &slot->tts_tid, table->rel,
					 form->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
					 is_update && !form->indisunique, &info);
	}
}

/* Store a row.  Columns that were added since are NULL. */
static void
store_columns(TupleTableSlot *slot, const Datum *values, const bool *nulls,
			  int natts)
{
	if (natts > slot->tts_tupleDescriptor->natts)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("a table of fairq has %d columns instead of %d",
					   slot->tts_tupleDescriptor->natts, natts),
				errhint("Run ALTER EXTENSION fairq UPDATE."));
	ExecClearTuple(slot);
	memset(slot->tts_isnull, true,
		   sizeof(bool) * slot->tts_tupleDescriptor->natts);
	memcpy(slot->tts_values, values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, nulls, sizeof(bool) * natts);
	ExecStoreVirtualTuple(slot);
}

/* Insert a row.  Returns where it is, valid until the next one. */
ItemPointer
fairq_table_insert(FairqTable *table, const Datum *values, const bool *nulls,
				   int natts)
{
	TupleTableSlot *slot = new_slot(table);

	store_columns(slot, values, nulls, natts);
	table_tuple_insert(table->rel, slot, GetCurrentCommandId(true), 0, NULL);
	insert_index_entries(table, slot, false);
	return &slot->tts_tid;
}

static void
make_rows(FairqTable *table)
{
	MemoryContext old = MemoryContextSwitchTo(table->context);

	/* a copy, since a hundred references to the original take their time */
	TupleDesc	desc = CreateTupleDescCopy(RelationGetDescr(table->rel));

	table->rows = palloc(sizeof(TupleTableSlot *) * FAIRQ_MAX_ROWS);
	for (int i = 0; i < FAIRQ_MAX_ROWS; i++)
		table->rows[i] = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	MemoryContextSwitchTo(old);
}

/*
 * Put off a row, to be inserted together with others; what its values point to
 * must stay until then.  Returns whether it is time for that.
 */
bool
fairq_table_put_off(FairqTable *table, const Datum *values, const bool *nulls,
					int natts)
{
	if (table->rows == NULL)
		make_rows(table);
	store_columns(table->rows[table->nrows++], values, nulls, natts);
	return table->nrows == FAIRQ_MAX_ROWS;
}

/*
 * Insert the rows that were put off: with a log record for each page instead
 * of each row.
 */
void
fairq_table_insert_rows(FairqTable *table)
{
	int			n = table->nrows;

	if (n == 0)
		return;
	table->nrows = 0;
	table_multi_insert(table->rel, table->rows, n, GetCurrentCommandId(true),
					   0, NULL);
	for (int i = 0; i < n; i++)
		insert_index_entries(table, table->rows[i], false);
}

/* Delete a row that no other transaction can be changing. */
void
fairq_table_delete(FairqTable *table, ItemPointer tid)
{
	TM_FailureData tmfd;
	TM_Result	result;

	check_use(table->rel, TO_DELETE);
	result = fairq_tuple_delete(table->rel, tid, GetCurrentCommandId(true),
								true, &tmfd);
	if (result != TM_Ok)
		elog(ERROR, "could not delete a row of \"%s\": %d",
			 RelationGetRelationName(table->rel), (int) result);
}

static RegProcedure
bound_function(Oid type, FairqBound bound)
{
	switch (type)
	{
		case INT2OID:
			Assert(bound == FAIRQ_EQ);
			return F_INT2EQ;
		case INT4OID:
			return bound == FAIRQ_EQ ? F_INT4EQ :
				bound == FAIRQ_GE ? F_INT4GE : F_INT4LT;
		case INT8OID:
			return bound == FAIRQ_EQ ? F_INT8EQ :
				bound == FAIRQ_GE ? F_INT8GE : F_INT8LT;
		case TEXTOID:
			Assert(bound == FAIRQ_EQ);
			return F_TEXTEQ;
		default:
			elog(ERROR, "no comparison for type %u", type);
	}
}

static void
fill_keys(Relation index, const FairqKey *keys, int nkeys, ScanKey scankeys)
{
	static const StrategyNumber strategy[] = {
		[FAIRQ_EQ] = BTEqualStrategyNumber,
		[FAIRQ_GE] = BTGreaterEqualStrategyNumber,
		[FAIRQ_LT] = BTLessStrategyNumber
	};

	for (int i = 0; i < nkeys; i++)
	{
		int			att = keys[i].column - 1;
		Oid			type = TupleDescAttr(RelationGetDescr(index), att)->atttypid;

		ScanKeyEntryInitialize(&scankeys[i], 0, keys[i].column,
							   strategy[keys[i].bound], InvalidOid,
							   index->rd_indcollation[att],
							   bound_function(type, keys[i].bound),
							   keys[i].value);
	}
}

static FairqScan *
scan_begin(FairqTable *table, FairqIndex which, const FairqKey *keys,
		   int nkeys, bool backward, int budget, bool in_order)
{
	static const int addr_columns[FAIRQ_INDEXES] = {
		[FAIRQ_TASK_BY_TIME] = 2,
		[FAIRQ_TASK_BY_GROUP] = 3
	};
	FairqScan  *scan = palloc0(sizeof(FairqScan));
	Relation	index = find_index(table, which);
	ScanKeyData scankeys[FAIRQ_MAX_KEYS + 1];
	MemoryContext old = MemoryContextSwitchTo(table->context);

	scan->table = table;
	/* it may become the table's: see fairq_task_lock_tuple() */
	scan->slot = table_slot_create(table->rel, NULL);
	MemoryContextSwitchTo(old);
	InitDirtySnapshot(scan->snapshot);
	scan->direction = backward ? BackwardScanDirection : ForwardScanDirection;
	scan->desc = fairq_index_beginscan(table->rel, index, &scan->snapshot,
									   nkeys);
	Assert(!in_order || budget == PG_INT32_MAX);
	scan->budget = budget;
	scan->addr_column = addr_columns[which];
	/* to know the address there without a look at the row */
	scan->desc->xs_want_itup = budget < PG_INT32_MAX || in_order;
	fill_keys(index, keys, nkeys, scankeys);
	index_rescan(scan->desc, scankeys, nkeys, NULL, 0);
	return scan;
}

FairqScan *
fairq_scan_begin(FairqTable *table, FairqIndex which, const FairqKey *keys,
				 int nkeys, bool backward)
{
	return scan_begin(table, which, keys, nkeys, backward, PG_INT32_MAX, false);
}

/* A scan for fairq_task_next(). */
FairqScan *
fairq_scan_in_order(FairqTable *table, FairqIndex which, const FairqKey *keys,
					int nkeys)
{
	return scan_begin(table, which, keys, nkeys, false, PG_INT32_MAX, true);
}

/*
 * A scan that looks at no more entries of the index than budget says, dead
 * ones among them; and at as many more as it takes until the caller has had
 * enough.
 */
FairqScan *
fairq_scan_some(FairqTable *table, FairqIndex which, const FairqKey *keys,
				int nkeys, int budget)
{
	return scan_begin(table, which, keys, nkeys, false, budget, false);
}

/* Let the scan look at one entry more than its budget says. */
void
fairq_scan_more(FairqScan *scan)
{
	scan->budget++;
}

/* Returns what is left of the scan's budget. */
int
fairq_scan_left(FairqScan *scan)
{
	return Max(scan->budget, 0);
}

/* The address at an entry whose row was not looked at. */
int64
fairq_scan_reached(FairqScan *scan)
{
	bool		isnull;

	return DatumGetInt64(index_getattr(scan->desc->xs_itup, scan->addr_column,
									   scan->desc->xs_itupdesc, &isnull));
}

/* Begin the scan again, with the same number of keys and other values. */
void
fairq_scan_again(FairqScan *scan, const FairqKey *keys, int nkeys)
{
	ScanKeyData scankeys[FAIRQ_MAX_KEYS + 1];

	ExecClearTuple(scan->slot);
	scan->at_entry = scan->at_end = false;
	scan->nabreast = scan->next_abreast = 0;
	fill_keys(scan->desc->indexRelation, keys, nkeys, scankeys);
	index_rescan(scan->desc, scankeys, nkeys, NULL, 0);
}

/* Go on to the next entry.  An index that has come to its end would start anew. */
static bool
next_entry(FairqScan *scan)
{
	CHECK_FOR_INTERRUPTS();
	scan->at_end = scan->at_end ||
		index_getnext_tid(scan->desc, scan->direction) == NULL;
	if (!scan->at_end)
		scan->root = scan->desc->xs_heaptid;
	return !scan->at_end;
}

/*
 * The group of the next entry, whatever its row is, of a scan in order by the
 * index by group; -1 if there is none.
 */
int32
fairq_scan_next_group(FairqScan *scan)
{
	bool		isnull;

	if (!next_entry(scan))
		return -1;
	return DatumGetInt32(index_getattr(scan->desc->xs_itup, 2,
									   scan->desc->xs_itupdesc, &isnull));
}

/*
 * How many entries there are, whatever their rows are, but no more than most.  The
 * scan is of no use any more until fairq_scan_again().
 */
int
fairq_scan_count(FairqScan *scan, int most)
{
	int			n = 0;

	while (n < most && next_entry(scan))
		n++;
	return n;
}

/*
 * Look at the row of the entry, or another version of it; FAIRQ_ROW_END if
 * there is none any more.
 */
static FairqRowState
look_at_entry(FairqScan *scan)
{
	if (!index_fetch_heap(scan->desc, scan->slot))
		return FAIRQ_ROW_END;
	if (TransactionIdIsValid(scan->snapshot.xmin))
		return FAIRQ_ROW_INSERTING;
	if (TransactionIdIsValid(scan->snapshot.xmax))
		return FAIRQ_ROW_CHANGING;
	/* nothing in its HOT chain can come after it */
	scan->desc->xs_heap_continue = false;
	return FAIRQ_ROW_LIVE;
}

/*
 * The next row.  One that is being changed is returned in its old version
 * (FAIRQ_ROW_CHANGING) and, if the scan comes by, in its new one
 * (FAIRQ_ROW_INSERTING).
 */
FairqRowState
fairq_scan_next(FairqScan *scan)
{
	if (scan->table->at == &scan->slot)
		scan->table->at = NULL;
	for (;;)
	{
		FairqRowState state;

		if (scan->at_entry)
			scan->at_entry = false;
		else if (!scan->desc->xs_heap_continue)
		{
			if (!next_entry(scan))
				return FAIRQ_ROW_END;
			if (scan->budget != PG_INT32_MAX && scan->budget-- <= 0)
			{
				scan->at_entry = true;
				return FAIRQ_ROW_LATER;
			}
		}
		state = look_at_entry(scan);
		if (state != FAIRQ_ROW_END)
			return state;
	}
}

TupleTableSlot *
fairq_scan_slot(FairqScan *scan)
{
	return scan->slot;
}

/*
 * The transaction whose row was returned as FAIRQ_ROW_INSERTING or _CHANGING.
 */
TransactionId
fairq_scan_changer(FairqScan *scan)
{
	return TransactionIdIsValid(scan->snapshot.xmin) ? scan->snapshot.xmin :
		scan->snapshot.xmax;
}

/* Did this very transaction insert the row? */
bool
fairq_scan_is_own(FairqScan *scan)
{
	bool		isnull;
	Datum		xmin = slot_getsysattr(scan->slot,
									   MinTransactionIdAttributeNumber,
									   &isnull);

	return TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin));
}

/*
 * Of a row that was returned as FAIRQ_ROW_INSERTING: has its transaction
 * deleted or changed it again?
 */
bool
fairq_scan_is_deleted(FairqScan *scan)
{
	HeapTupleHeader header = ExecFetchSlotHeapTuple(scan->slot, false,
													NULL)->t_data;
	TransactionId xmax;

	if ((header->t_infomask & HEAP_XMAX_INVALID) ||
		HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask))
		return false;
	/* a subtransaction may have, and be rolled back */
	xmax = HeapTupleHeaderGetUpdateXid(header);
	return TransactionIdIsValid(xmax) && !TransactionIdDidAbort(xmax);
}

/*
 * Is there more to look at, at that address?  If not, the scan stands at the
 * entry behind it.
 */
static bool
is_more_at(FairqScan *scan, int64 addr)
{
	/* versions of a row whose entry is the same stand at the same address */
	if (scan->desc->xs_heap_continue)
		return true;
	scan->at_entry = next_entry(scan);
	return scan->at_entry && fairq_scan_reached(scan) == addr;
}

static int
compare_task_ids(const void *a, const void *b)
{
	int64		x = ((const ScannedTask *) a)->task.id;
	int64		y = ((const ScannedTask *) b)->task.id;

	return x < y ? -1 : x > y;
}

/*
 * Read all tasks at the address of the one that was read, and put them in
 * order.  Read all of it.
 */
static void
read_abreast(FairqScan *scan, FairqRowState state, const FairqTask *task)
{
	int			n = 0;

	if (scan->abreast == NULL)
	{
		scan->max_abreast = 16;
		scan->abreast = MemoryContextAlloc(GetMemoryChunkContext(scan),
										   sizeof(ScannedTask) * scan->max_abreast);
	}
	scan->abreast[n].state = state;
	scan->abreast[n++].task = *task;
	do
	{
		scan->at_entry = false;
		state = look_at_entry(scan);
		if (state == FAIRQ_ROW_END)
			continue;
		if (n == scan->max_abreast)
		{
			scan->max_abreast *= 2;
			scan->abreast = repalloc(scan->abreast,
									 sizeof(ScannedTask) * scan->max_abreast);
		}
		scan->abreast[n].state = state;
		fairq_task_read(scan->slot, &scan->abreast[n].task);
		scan->abreast[n++].task.root = scan->root;
	} while (n < MAX_ABREAST && is_more_at(scan, task->addr));
	scan->nabreast = n;
	scan->next_abreast = 0;
	qsort(scan->abreast, n, sizeof(ScannedTask), compare_task_ids);
}

/*
 * The task of the next row, as fairq_scan_next() returns it; but in order, those
 * that stand abreast, at one address, come by their ids.  There are such where a
 * group has a weight.  If the indexes had the ids, all entries of all tasks would
 * be a third longer.
 */
FairqRowState
fairq_task_next(FairqScan *scan, FairqTask *task, bool in_order)
{
	ScannedTask *next;

	if (scan->next_abreast == scan->nabreast)
	{
		FairqRowState state = fairq_scan_next(scan);

		if (state == FAIRQ_ROW_END)
			return state;
		fairq_task_read(scan->slot, task);
		task->root = scan->root;
		if (!in_order || !is_more_at(scan, task->addr))
		{
			if (state == FAIRQ_ROW_LIVE)
				scan->table->at = &scan->slot;
			return state;
		}
		read_abreast(scan, state, task);
	}
	next = &scan->abreast[scan->next_abreast++];
	*task = next->task;
	return next->state;
}

/*
 * What the next entries are of a scan in order, behind the task that it came by
 * last, whatever has become of their rows; at most so many.  Returns how many, and
 * in *next the address of the one behind.  The scan is of no use any more.
 */
int
fairq_task_ahead(FairqScan *scan, int most, FairqItem *items, int64 *next)
{
	int			n = 0;

	if (scan->next_abreast < scan->nabreast)
	{
		*next = scan->abreast[scan->next_abreast].task.addr;
		return 0;
	}
	scan->desc->xs_heap_continue = false;
	for (*next = FAIRQ_ADDR_MAX; scan->at_entry || next_entry(scan); n++)
	{
		int64		addr = fairq_scan_reached(scan);

		scan->at_entry = false;
		if (n == most)
		{
			*next = addr;
			break;
		}
		items[n].addr = addr;
		items[n].order = 0;
		items[n].tid = scan->root;
	}
	return n;
}

void
fairq_scan_end(FairqScan *scan)
{
	if (scan->table->at == &scan->slot)
		scan->table->at = NULL;
	index_endscan(scan->desc);
	if (scan->abreast)
		pfree(scan->abreast);
	ExecDropSingleTupleTableSlot(scan->slot);
	pfree(scan);
}

void
fairq_task_read(TupleTableSlot *slot, FairqTask *task)
{
	bool		isnull;

	slot_getsomeattrs(slot, TASK_RELEASED);
	task->tid = slot->tts_tid;
	ItemPointerSetInvalid(&task->root);
	task->id = DatumGetInt64(slot_getattr(slot, TASK_ID, &isnull));
	task->addr = DatumGetInt64(slot_getattr(slot, TASK_ADDR, &isnull));
	task->enqueued_at =
		DatumGetTimestampTz(slot_getattr(slot, TASK_ENQUEUED_AT, &isnull));
	task->queue_id = DatumGetInt32(slot_getattr(slot, TASK_QUEUE_ID, &isnull));
	task->group_no = DatumGetInt32(slot_getattr(slot, TASK_GROUP_NO, &isnull));
	task->attempt = DatumGetInt32(slot_getattr(slot, TASK_ATTEMPT, &isnull));
	task->priority = DatumGetInt16(slot_getattr(slot, TASK_PRIORITY, &isnull));
	task->lease_until =
		DatumGetTimestampTz(slot_getattr(slot, TASK_LEASE_UNTIL, &isnull));
	task->running = !isnull;
	task->run_at =
		DatumGetTimestampTz(slot_getattr(slot, TASK_RUN_AT, &isnull));
	task->cancelled = DatumGetBool(slot_getattr(slot, TASK_CANCELLED, &isnull));
	task->released = DatumGetInt32(slot_getattr(slot, TASK_RELEASED, &isnull));
	task->max_attempts =
		DatumGetInt32(slot_getattr(slot, TASK_MAX_ATTEMPTS, &isnull));

	/* not worth finding the way through the columns before it */
	task->keyed = !heap_attisnull(ExecFetchSlotHeapTuple(slot, false, NULL),
								  TASK_DEDUP_KEY, slot->tts_tupleDescriptor);
}

/* Is it worth asking for pages before they are needed? */
static bool
is_prefetching(FairqTable *table)
{
	if (table->prefetching == 0)
	{
		Oid			tablespace = table->rel->rd_rel->reltablespace;

		if (table->nblocks == 0)
			table->nblocks = RelationGetNumberOfBlocks(table->rel);
		table->prefetched = InvalidBlockNumber;
		/* what has room in the server's buffers is mostly there */
		table->prefetching = table->nblocks > NBuffers / 2 &&
			get_tablespace_io_concurrency(tablespace) > 0 ? 1 : -1;
	}
	return table->prefetching > 0;
}

/* The row there is looked at soon: if its page has to be read, begin with that. */
void
fairq_task_prefetch(FairqTable *table, const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);

	if (!is_prefetching(table) || block == table->prefetched ||
		block >= table->nblocks)
		return;
	table->prefetched = block;
	(void) PrefetchBuffer(table->rel, MAIN_FORKNUM, block);
}

/*
 * The task whose row an index leads to from there, as fairq_scan_next() would
 * find it; FAIRQ_ROW_END if there is none.
 */
FairqRowState
fairq_task_at(FairqTable *table, const ItemPointerData *root, FairqTask *task)
{
	ItemPointerData tid = *root;
	SnapshotData snapshot;
	bool		more = false;
	bool		all_dead = false;

	/* the table cannot shrink while we have it locked */
	if (table->nblocks == 0 ||
		ItemPointerGetBlockNumber(root) >= table->nblocks)
		table->nblocks = RelationGetNumberOfBlocks(table->rel);
	if (ItemPointerGetBlockNumber(root) >= table->nblocks)
		return FAIRQ_ROW_END;
	if (table->fetch == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(table->context);

		table->fetch_slot = table_slot_create(table->rel, NULL);
		table->fetch = fairq_index_fetch_begin(table->rel);
		MemoryContextSwitchTo(old);
	}
	table->at = NULL;
	InitDirtySnapshot(snapshot);
	if (!table_index_fetch_tuple(table->fetch, &tid, &snapshot,
								 table->fetch_slot, &more, &all_dead))
		return FAIRQ_ROW_END;
	fairq_task_read(table->fetch_slot, task);
	task->root = *root;
	if (TransactionIdIsValid(snapshot.xmin))
		return FAIRQ_ROW_INSERTING;
	if (TransactionIdIsValid(snapshot.xmax))
		return FAIRQ_ROW_CHANGING;
	table->at = &table->fetch_slot;
	return FAIRQ_ROW_LIVE;
}

/*
 * The first entries that the index by group has of queued tasks of a group, from
 * an address on, whatever has become of these; at most so many.  Returns how many
 * there are, and in *end the address of the next one.  If several stand at one
 * address nothing is said of their order, but *abreast.
 */
int
fairq_task_entries(FairqTable *table, int32 lane, int32 group_no, int64 from,
				   int most, FairqItem *items, int64 *end, bool *abreast)
{
	FairqKey	keys[] = {
		{1, FAIRQ_EQ, Int32GetDatum(lane)},
		{2, FAIRQ_EQ, Int32GetDatum(group_no)},
		{3, FAIRQ_GE, Int64GetDatum(from)},
		{3, FAIRQ_LT, Int64GetDatum(FAIRQ_RETRIES)}
	};
	FairqScan  *scan = table->entries;
	int			n = 0;

	*abreast = false;
	*end = FAIRQ_ADDR_MAX;
	if (scan == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(table->context);

		scan = table->entries = fairq_scan_in_order(table, FAIRQ_TASK_BY_GROUP,
													keys, lengthof(keys));
		MemoryContextSwitchTo(old);
	}
	else
		fairq_scan_again(scan, keys, lengthof(keys));
	while (next_entry(scan))
	{
		int64		addr = fairq_scan_reached(scan);

		if (n > 0 && addr == items[n - 1].addr)
			*abreast = true;
		else if (n == most)
		{
			*end = addr;
			break;
		}
		else
		{
			items[n].addr = addr;
			items[n].order = 0;
			items[n++].tid = scan->root;
		}
	}
	return n;
}

/* Has our own transaction deleted the row, or written another version of it? */
static bool
is_changed_by_us(HeapTupleHeader header)
{
	return !(header->t_infomask & HEAP_XMAX_INVALID) &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(header));
}

/* Another transaction's new row: has it deleted or changed it again? */
static bool
is_changed_again(HeapTupleHeader header)
{
	return !(header->t_infomask & HEAP_XMAX_INVALID) &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask);
}

/*
 * Is the row's task running, by a version of it that is not dead, or in the hands
 * of a transaction that is open, be it ours?  What a transaction has just
 * enqueued is not, unless it has taken that again.
 */
static bool
is_seen(HeapTuple tuple, Buffer buffer, bool *in_hands)
{
	HeapTupleHeader header = tuple->t_data;
	bool		running = !heap_attisnull(tuple, TASK_LEASE_UNTIL, NULL);
	SnapshotData snapshot;

	if (!running && (header->t_infomask & HEAP_XMAX_INVALID))
		return false;
	InitDirtySnapshot(snapshot);
	*in_hands = true;
	if (!HeapTupleSatisfiesVisibility(tuple, &snapshot, buffer))
		return is_changed_by_us(header);
	if (TransactionIdIsValid(snapshot.xmin))
		return running || is_changed_again(header);
	if (TransactionIdIsValid(snapshot.xmax))
		return true;
	*in_hands = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(header));
	return running;
}

/* See the tasks of a page that count, at one moment. */
static void
see_page(FairqTable *table, Buffer buffer, TupleTableSlot *slot,
		 FairqTaskSeen seen, void *arg)
{
	Page		page = BufferGetPage(buffer);
	BlockNumber block = BufferGetBlockNumber(buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber at = FirstOffsetNumber; at <= last; at++)
	{
		ItemId		item = PageGetItemId(page, at);
		HeapTupleData tuple;
		FairqTask	task;
		bool		in_hands;

		if (!ItemIdIsNormal(item))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(table->rel);
		ItemPointerSet(&tuple.t_self, block, at);
		if (!is_seen(&tuple, buffer, &in_hands))
			continue;
		ExecStoreBufferHeapTuple(&tuple, slot, buffer);
		fairq_task_read(slot, &task);
		ExecClearTuple(slot);
		seen(arg, &task, in_hands);
	}
}

/*
 * The tasks on some pages that are running, or in the hands of a transaction:
 * of these maybe in two versions.  Each page is seen at one moment.  What is
 * done with a task is done with the page locked: it may do no more than to
 * keep it in mind.
 */
void
fairq_task_pages(FairqTable *table, BlockNumber from, BlockNumber end,
				 FairqTaskSeen seen, void *arg)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	TupleTableSlot *slot =
		MakeSingleTupleTableSlot(RelationGetDescr(table->rel),
								 &TTSOpsBufferHeapTuple);

	for (BlockNumber block = from; block < end; block++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBufferExtended(table->rel, MAIN_FORKNUM, block,
									RBM_NORMAL, strategy);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		see_page(table, buffer, slot, seen, arg);
		UnlockReleaseBuffer(buffer);
	}
	ExecDropSingleTupleTableSlot(slot);
	FreeAccessStrategy(strategy);
}

static void
make_lock_slot(FairqTable *table)
{
	MemoryContext old;

	if (table->lock_slot != NULL)
		return;
	old = MemoryContextSwitchTo(table->context);
	table->lock_slot = table_slot_create(table->rel, NULL);
	MemoryContextSwitchTo(old);
}

/*
 * Fetch a row as it is now, also if it is being changed, into
 * table->lock_slot; NULL if it is not there.
 */
static HeapTupleHeader
fetch_row(FairqTable *table, ItemPointer tid, SnapshotData *snapshot)
{
	make_lock_slot(table);
	InitDirtySnapshot(*snapshot);
	if (!table_tuple_fetch_row_version(table->rel, tid, snapshot,
									   table->lock_slot))
		return NULL;
	return ExecFetchSlotHeapTuple(table->lock_slot, false, NULL)->t_data;
}

static TM_Result
lock_at_once(FairqTable *table, ItemPointer tid, LockTupleMode mode)
{
	TM_FailureData tmfd;

	return table_tuple_lock(table->rel, tid, InvalidSnapshot,
							table->lock_slot, GetCurrentCommandId(true), mode,
							LockWaitSkip, 0, &tmfd);
}

/*
 * Have we ourselves the row locked already?  If there is more than one who
 * has, then maybe.
 */
static bool
may_be_ours(FairqTable *table, ItemPointer tid)
{
	SnapshotData snapshot;
	HeapTupleHeader header = fetch_row(table, tid, &snapshot);

	return header != NULL && !(header->t_infomask & HEAP_XMAX_INVALID) &&
		((header->t_infomask & HEAP_XMAX_IS_MULTI) ||
		 TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmax(header)));
}

static TM_Result
lock_row(FairqTable *table, ItemPointer tid, LockTupleMode mode)
{
	ItemPointerData at = *tid;
	TM_Result	result;

	make_lock_slot(table);
	if (fairq_conditional_lock_tuple(table->rel, &at))
	{
		result = lock_at_once(table, tid, mode);
		UnlockTuple(table->rel, &at, ExclusiveLock);
		return result;
	}

	/*
	 * A transaction is about to lock or to change it; or it waits for the one
	 * that has it locked, and that may be us.
	 */
	return may_be_ours(table, tid) ? lock_at_once(table, tid, mode) :
		TM_WouldBlock;
}

/*
 * Lock a row that a scan found live, without waiting.  False if it is in the
 * hands of a transaction, or was.
 */
bool
fairq_table_lock(FairqTable *table, ItemPointer tid)
{
	return lock_row(table, tid, LockTupleExclusive) == TM_Ok;
}

/* Read the task anew, as it is in table->lock_slot.  Is it still the same one? */
static bool
read_again(FairqTable *table, FairqTask *task)
{
	ItemPointerData root = task->root;
	int64		id = task->id;

	fairq_task_read(table->lock_slot, task);
	task->root = root;
	return task->id == id;
}

static FairqClaimResult
lock_task(FairqTable *table, FairqTask *task, LockTupleMode mode)
{

	switch (lock_row(table, &task->tid, mode))
	{
		case TM_Ok:
			return read_again(table, task) ? FAIRQ_CLAIMED : FAIRQ_GONE;
		case TM_WouldBlock:
		case TM_BeingModified:
			return FAIRQ_LOCKED;
		default:
			return FAIRQ_GONE;
	}
}

/*
 * Lock a row that a scan found live, without waiting, and look again: the
 * locked version is in table->lock_slot and in *task.  The caller decides
 * whether it is still what it wants.  To delete it then waits for no
 * transaction.
 */
FairqClaimResult
fairq_task_lock(FairqTable *table, FairqTask *task)
{
	return lock_task(table, task, LockTupleExclusive);
}

static FairqClaimResult
lock_to_claim(FairqTable *table, FairqTask *task)
{
	/* FOR KEY SHARE, which SQL can say, is in the way of a delete only */
	return lock_task(table, task, table->claims_delete ? LockTupleExclusive :
					 LockTupleNoKeyExclusive);
}

/*
 * Take the tuple lock of a row, in table->lock_slot, that has been locked or
 * changed before, if only by a transaction that has rolled back: a transaction
 * that queues for the row has its tuple lock, and is not to be overtaken.
 */
static FairqClaimResult
lock_tuple(FairqTable *table, FairqTask *task, HeapTupleHeader header)
{
	if (!fairq_conditional_lock_tuple(table->rel, &task->tid))
		return lock_to_claim(table, task);
	table->tuple_only = table->tuple_locked = true;
	if (header->t_infomask & HEAP_XMAX_INVALID)
		return FAIRQ_CLAIMED;
	/* it is not known to be free */
	fairq_task_unlock_tuple(table, task);
	return lock_to_claim(table, task);
}

/*
 * Have in table->lock_slot what a scan has just read, if that is the row: it is
 * pinned since, so it is there, though others may have changed it.
 */
static HeapTupleHeader
row_at_hand(FairqTable *table, ItemPointer tid)
{
	TupleTableSlot **at = table->at;
	TupleTableSlot *slot;

	if (at == NULL || TTS_EMPTY(*at) || !ItemPointerEquals(&(*at)->tts_tid, tid))
		return NULL;
	make_lock_slot(table);
	slot = *at;
	*at = ExecClearTuple(table->lock_slot);
	table->lock_slot = slot;
	table->at = NULL;
	return ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;
}

/*
 * Get a row that a scan found live, to change it at once: as
 * fairq_task_lock(), but without its trace in the table and in the log.  The
 * row is read again unless the scan has just read it.
 *
 * No rival is kept away meanwhile.  The first transaction to change the row
 * has it, and the second one neither waits nor gets it: its update, which does
 * not wait, finds that out under the lock of the buffer.
 */
FairqClaimResult
fairq_task_lock_tuple(FairqTable *table, FairqTask *task)
{
	SnapshotData snapshot;
	HeapTupleHeader header = row_at_hand(table, &task->tid);

	if (header == NULL)
	{
		header = fetch_row(table, &task->tid, &snapshot);
		/* a rival may be changing it since: as if the scan had found it so */
		if (header == NULL || TransactionIdIsValid(snapshot.xmax))
			return FAIRQ_GONE;
		if (TransactionIdIsValid(snapshot.xmin))
			return lock_to_claim(table, task);
		if (!read_again(table, task))
			return FAIRQ_GONE;
	}
	/* for a row that was never locked or changed no transaction queues */
	if (TransactionIdIsValid(HeapTupleHeaderGetRawXmax(header)))
		return lock_tuple(table, task, header);
	table->tuple_only = true;
	fairq_stall("claim");
	return FAIRQ_CLAIMED;
}

/* Is a lock in the way of a claim? */
static bool
in_the_way(TransactionId xid, bool key_share, bool to_delete)
{
	return !(key_share && !to_delete) &&
		!TransactionIdIsCurrentTransactionId(xid) && TransactionIdIsInProgress(xid);
}

/* Is the row locked in a way that keeps others from claiming it? */
static bool
is_locked(HeapTupleHeader header, bool to_delete)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(header);
	MultiXactMember *members;
	int			nmembers;
	bool		locked = false;

	if (header->t_infomask & HEAP_XMAX_INVALID)
		return false;
	if (!(header->t_infomask & HEAP_XMAX_IS_MULTI))
		return in_the_way(xmax, HEAP_XMAX_IS_KEYSHR_LOCKED(header->t_infomask),
						  to_delete);
	nmembers = GetMultiXactIdMembers(xmax, &members, false,
									 HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask));
	for (int i = 0; i < nmembers && !locked; i++)
		locked = in_the_way(members[i].xid,
							members[i].status == MultiXactStatusForKeyShare,
							to_delete);
	if (nmembers > 0)
		pfree(members);
	return locked;
}

/*
 * Could the caller claim a row that a scan found live?  As
 * fairq_task_lock_tuple() would say, but nothing is locked, written or waited
 * for: so it is true of this moment only.  With to_delete, the claim would
 * take what LockTupleExclusive takes.
 */
FairqClaimResult
fairq_task_peek(FairqTable *table, FairqTask *task, bool to_delete)
{
	SnapshotData snapshot;
	HeapTupleHeader header = fetch_row(table, &task->tid, &snapshot);

	if (header == NULL || TransactionIdIsValid(snapshot.xmin) ||
		TransactionIdIsValid(snapshot.xmax))
		return FAIRQ_GONE;
	if (!read_again(table, task))
		return FAIRQ_GONE;
	return is_locked(header, to_delete) ? FAIRQ_LOCKED : FAIRQ_CLAIMED;
}

/* Release the tuple lock: the row was changed, or will not be. */
void
fairq_task_unlock_tuple(FairqTable *table, const FairqTask *task)
{
	ItemPointerData tid = task->tid;

	if (table->tuple_locked)
		UnlockTuple(table->rel, &tid, ExclusiveLock);
	table->tuple_only = table->tuple_locked = false;
}

/* Lock a row of which at most the tuple lock is held, if it is still free. */
static FairqClaimResult
lock_after_all(FairqTable *table, const FairqTask *task)
{
	FairqTask	again = *task;

	fairq_task_unlock_tuple(table, task);
	return lock_to_claim(table, &again);
}

/*
 * Write the version of the row in which the given columns differ.  The row is
 * locked, or at most its tuple lock is held: then it can be lost, to a rival
 * that has changed it, or merely locked it, or is about to do more than that.
 */
static FairqClaimResult
update_locked(FairqTable *table, FairqTask *task, const AttrNumber *changed,
			  const Datum *values, const bool *nulls, int nchanged)
{
	TupleTableSlot *old = table->lock_slot;
	TupleTableSlot *slot = new_slot(table);
	int			natts = slot->tts_tupleDescriptor->natts;
	TM_FailureData tmfd;
	TM_Result	result;
	bool		update_indexes;

	check_use(table->rel, TO_UPDATE);
	if (FAIRQ_UPDATE_HAS_TO_WAIT && table->tuple_only)
	{
		FairqClaimResult locked = lock_after_all(table, task);

		if (locked != FAIRQ_CLAIMED)
			return locked;
	}
	slot_getallattrs(old);
	memcpy(slot->tts_values, old->tts_values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, old->tts_isnull, sizeof(bool) * natts);
	for (int i = 0; i < nchanged; i++)
	{
		slot->tts_values[changed[i] - 1] = values[i];
		slot->tts_isnull[changed[i] - 1] = nulls[i];
	}
	ExecStoreVirtualTuple(slot);

	result = fairq_tuple_update(table->rel, &task->tid, slot,
								GetCurrentCommandId(true), !table->tuple_only,
								&tmfd, &update_indexes);
	if (result != TM_Ok && !table->tuple_only)
		elog(ERROR, "could not update a locked task: %d", (int) result);
	fairq_task_unlock_tuple(table, task);
	if (result != TM_Ok)
		return result == TM_BeingModified ? FAIRQ_LOCKED : FAIRQ_GONE;
	if (update_indexes)
	{
		insert_index_entries(table, slot, true);
		pg_atomic_fetch_add_u64(&fairq_domain()->moves, 1);
	}
	task->tid = slot->tts_tid;
	return FAIRQ_CLAIMED;
}

static void
remember_leased(const FairqTask *task)
{
	leased[(uint64) task->id % LEASED_SLOTS].id = task->id;
	leased[(uint64) task->id % LEASED_SLOTS].tid = task->tid;
}

/*
 * The task, whose row is locked or read by fairq_task_lock_tuple(), runs until
 * lease_until, where it stands; its attempt is the next one.
 */
FairqClaimResult
fairq_task_lease(FairqTable *table, FairqTask *task, TimestampTz lease_until,
				 Datum worker, bool worker_isnull)
{
	const AttrNumber changed[] = {
		TASK_LEASE_UNTIL, TASK_ATTEMPT, TASK_WORKER
	};
	const Datum values[] = {
		TimestampTzGetDatum(lease_until),
		Int32GetDatum(task->attempt + 1),
		worker
	};
	const bool	nulls[] = {false, false, worker_isnull};
	FairqClaimResult result;

	result = update_locked(table, task, changed, values, nulls,
						   lengthof(changed));
	if (result != FAIRQ_CLAIMED)
		return result;
	task->attempt++;
	task->lease_until = lease_until;
	task->running = true;
	remember_leased(task);
	return FAIRQ_CLAIMED;
}

/*
 * Write that the locked task is not running any more, and stands at a new
 * address.  It is ready at run_at, now or when it is scheduled for.  error, if
 * it is not NULL, is why its attempt has failed; the attempt counts or not.
 */
void
fairq_task_return(FairqTable *table, FairqTask *task, int64 new_addr,
				  TimestampTz run_at, const text *error, bool counts)
{
	const AttrNumber changed[] = {
		TASK_ADDR, TASK_LEASE_UNTIL, TASK_WORKER, TASK_RELEASED, TASK_RUN_AT,
		TASK_ERROR
	};
	int32		released = task->released + (counts ? 0 : 1);
	const Datum values[] = {
		Int64GetDatum(new_addr),
		(Datum) 0,
		(Datum) 0,
		Int32GetDatum(released),
		TimestampTzGetDatum(run_at),
		PointerGetDatum(error)
	};
	const bool	nulls[] = {
		false, true, true, released == 0, false, false
	};

	(void) update_locked(table, task, changed, values, nulls,
						 error == NULL ? lengthof(changed) - 1 : lengthof(changed));
	task->addr = new_addr;
	task->released = released;
	task->running = false;
}

/* Write that the locked task keeps running, until then. */
void
fairq_task_extend(FairqTable *table, FairqTask *task, TimestampTz lease_until)
{
	const AttrNumber changed = TASK_LEASE_UNTIL;
	const Datum value = TimestampTzGetDatum(lease_until);
	const bool	isnull = false;

	(void) update_locked(table, task, &changed, &value, &isnull, 1);
	task->lease_until = lease_until;
	remember_leased(task);
}

/* Write that the worker of the locked task is to stop. */
void
fairq_task_cancel(FairqTable *table, FairqTask *task)
{
	const AttrNumber changed = TASK_CANCELLED;
	const Datum value = BoolGetDatum(true);
	const bool	isnull = false;

	(void) update_locked(table, task, &changed, &value, &isnull, 1);
	task->cancelled = true;
}

/*
 * Delete a row: FAIRQ_GONE if it is not the current version any more;
 * FAIRQ_LOCKED, without wait, if it is locked (by ourselves, too).  If it may
 * be ready it has to be locked, or read by fairq_task_lock_tuple().
 */
FairqClaimResult
fairq_task_delete(FairqTable *table, const FairqTask *task, bool wait)
{
	ItemPointerData tid = task->tid;
	TM_FailureData tmfd;
	TM_Result	result;

	check_use(table->rel, TO_DELETE);
	result = fairq_tuple_delete(table->rel, &tid, GetCurrentCommandId(true),
								wait, &tmfd);
	fairq_task_unlock_tuple(table, task);
	return result == TM_Ok ? FAIRQ_CLAIMED :
		result == TM_BeingModified ? FAIRQ_LOCKED : FAIRQ_GONE;
}

/*
 * Wait for the transaction that has the row.  As a rule the row is not locked
 * then: a caller that locks it has to keep away from transactions that queue
 * for it.
 */
void
fairq_table_wait(FairqTable *table, ItemPointer row)
{
	ItemPointerData tid = *row;
	SnapshotData snapshot;
	HeapTupleHeader header = fetch_row(table, &tid, &snapshot);
	TransactionId xmax;
	TM_FailureData tmfd;

	if (header == NULL)
		return;
	xmax = HeapTupleHeaderGetRawXmax(header);
	if (header->t_infomask & HEAP_XMAX_INVALID)
	{
		/* it is about to be changed */
		ExecClearTuple(table->lock_slot);
		LockTuple(table->rel, &tid, ExclusiveLock);
		UnlockTuple(table->rel, &tid, ExclusiveLock);
	}
	else if (header->t_infomask & HEAP_XMAX_IS_MULTI)
		(void) table_tuple_lock(table->rel, &tid, InvalidSnapshot,
								table->lock_slot, GetCurrentCommandId(true),
								LockTupleExclusive, LockWaitBlock, 0, &tmfd);
	else
	{
		/* don't keep a buffer pinned while asleep */
		ExecClearTuple(table->lock_slot);
		if (!TransactionIdIsCurrentTransactionId(xmax))
			XactLockTableWait(xmax, NULL, NULL, XLTW_None);
	}
}

/*
 * Is the task still where we have put it?  All is checked: the row may have
 * been moved or vacuumed away, and its place taken by another.
 */
static bool
look_where_leased(FairqTable *table, int64 id, FairqTask *task)
{
	ItemPointerData *tid = &leased[(uint64) id % LEASED_SLOTS].tid;
	SnapshotData snapshot;

	if (leased[(uint64) id % LEASED_SLOTS].id != id || !ItemPointerIsValid(tid))
		return false;
	/* the table cannot shrink while we have it locked */
	if (table->nblocks == 0)
		table->nblocks = RelationGetNumberOfBlocks(table->rel);
	if (ItemPointerGetBlockNumber(tid) >= table->nblocks)
		return false;

	if (fetch_row(table, tid, &snapshot) == NULL ||
		TransactionIdIsValid(snapshot.xmin) ||
		TransactionIdIsValid(snapshot.xmax))
		return false;
	fairq_task_read(table->lock_slot, task);
	return task->id == id;
}

/*
 * A scan of the rows of that id; NULL if there is no need for another one: no
 * row was moved since the scan before began, and so it has missed none.
 * *moves is FAIRQ_NOT_SEARCHED before the first one.  It is the same scan each
 * time until the table is closed: a caller that goes on with it does so in the
 * table's memory context.
 */
FairqScan *
fairq_task_scan_by_id(FairqTable *table, int64 id, uint64 *moves)
{
	FairqKey	key = {1, FAIRQ_EQ, Int64GetDatum(id)};
	uint64		before = *moves;

	*moves = pg_atomic_read_u64(&fairq_domain()->moves);
	if (*moves == before)
		return NULL;
	pg_read_barrier();
	if (table->by_id == NULL)
		table->by_id = fairq_scan_begin(table, FAIRQ_TASK_BY_ID, &key, 1,
										false);
	else
		fairq_scan_again(table->by_id, &key, 1);
	return table->by_id;
}

/*
 * Look for a task by its id.  If it is not there, *changer is the transaction
 * that is changing it, if any.
 */
static bool
look_for(FairqTable *table, int64 id, FairqTask *task, TransactionId *changer)
{
	uint64		moves = FAIRQ_NOT_SEARCHED;
	FairqScan  *scan;
	bool		found = false;
	MemoryContext old;

	*changer = InvalidTransactionId;
	if (look_where_leased(table, id, task))
		return true;
	old = MemoryContextSwitchTo(table->context);
	while (!found && !TransactionIdIsValid(*changer) &&
		   (scan = fairq_task_scan_by_id(table, id, &moves)) != NULL)
	{
		FairqRowState state;

		while (!found && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
		{
			if (state == FAIRQ_ROW_INSERTING)
				continue;
			fairq_task_read(fairq_scan_slot(scan), task);
			if (state == FAIRQ_ROW_LIVE)
				found = true;
			else
				*changer = fairq_scan_changer(scan);
		}
	}
	MemoryContextSwitchTo(old);
	return found;
}

/*
 * Look for a task by its id, without waiting.  If a transaction is changing
 * it, *task is as it was before.
 */
bool
fairq_task_find_nowait(FairqTable *table, int64 id, FairqTask *task,
					   bool *changing)
{
	TransactionId changer;

	*changing = !look_for(table, id, task, &changer);
	return !*changing || TransactionIdIsValid(changer);
}

/*
 * Find a task by its id, waiting for a transaction that is changing it.  It
 * may be changed again before the caller does anything to it.
 */
bool
fairq_task_find(FairqTable *table, int64 id, FairqTask *task)
{
	TransactionId changer;

	while (!look_for(table, id, task, &changer))
	{
		if (!TransactionIdIsValid(changer))
			return false;
		/* don't keep a buffer pinned while asleep */
		ExecClearTuple(table->by_id->slot);
		XactLockTableWait(changer, NULL, NULL, XLTW_None);
	}
	return true;
}

/* The same; the locked version is in table->lock_slot and in *task. */
bool
fairq_task_find_locked(FairqTable *table, int64 id, FairqTask *task)
{
	while (fairq_task_find(table, id, task))
	{
		CHECK_FOR_INTERRUPTS();
		switch (fairq_task_lock(table, task))
		{
			case FAIRQ_CLAIMED:
				return true;
			case FAIRQ_GONE:
				break;
			case FAIRQ_LOCKED:
				fairq_table_wait(table, &task->tid);
				break;
		}
	}
	return false;
}
