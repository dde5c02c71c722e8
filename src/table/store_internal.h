/*
 * store_internal.h
 *		What the files beside store.c share: scans, and what is checked of a table.
 */
#ifndef FAIRQ_STORE_INTERNAL_H
#define FAIRQ_STORE_INTERNAL_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "utils/snapshot.h"

#include "store.h"

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

/* What a table must be good for, to be checked once until it is changed. */
typedef enum FairqUse
{
	FAIRQ_TO_READ = 1 << 0,
	FAIRQ_TO_WRITE = 1 << 1,
	FAIRQ_TO_UPDATE = 1 << 2,
	FAIRQ_TO_DELETE = 1 << 3
} FairqUse;

extern void fairq_check_use(Relation rel, FairqUse use);
extern TupleTableSlot *fairq_new_slot(FairqTable *table);
extern Relation fairq_find_index(FairqTable *table, FairqIndex which);
extern void fairq_insert_index_entries(FairqTable *table, TupleTableSlot *slot,
									   bool is_update);

#endif							/* FAIRQ_STORE_INTERNAL_H */
