/*
 * store_internal.h
 *		Shared by store.c and files next to it: scans, checks of tables.
 */
#ifndef FAIRQ_STORE_INTERNAL_H
#define FAIRQ_STORE_INTERNAL_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "utils/snapshot.h"

#include "store.h"

/* A task that a scan has found. */
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
	int			budget;			/* index entries that it may still visit */
	bool		at_entry;		/* true: it is at an entry whose row it has not
								 * visited */
	bool		at_end;			/* true: there are no more entries */
	ItemPointerData root;		/* TID to which the entry points */
	int			addr_column;	/* column of addr in the index; 0: none */
	ScannedTask *abreast;		/* tasks at one address that were read ahead */
	int			nabreast;
	int			max_abreast;
	int			next_abreast;
};

/* Uses for which a table is checked, once until it is changed. */
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
