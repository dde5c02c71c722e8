/*
 * store_internal.h
 *		Shared by store.c and the files next to it: scans, and checks of
 *		tables.
 */
#ifndef FAIRQ_STORE_INTERNAL_H
#define FAIRQ_STORE_INTERNAL_H

#include "store.h"

/* Uses for which a table is checked once, until it changes. */
typedef enum FairqUse
{
	FAIRQ_TO_READ = 1 << 0,
	FAIRQ_TO_WRITE = 1 << 1,
	FAIRQ_TO_UPDATE = 1 << 2,
	FAIRQ_TO_DELETE = 1 << 3
} FairqUse;

extern void fairq_check_use(FairqTable *table, FairqUse use);
extern TupleTableSlot *fairq_new_slot(FairqTable *table);
extern Relation fairq_find_index(FairqTable *table, FairqIndex which);
extern void fairq_insert_index_entries(FairqTable *table, TupleTableSlot *slot,
									   bool is_update);

#endif							/* FAIRQ_STORE_INTERNAL_H */
