/*
 * compat.h
 *		Differences between PostgreSQL major versions, all in one place.
 *
 * Code that has the same form in every supported version is used directly.
 * The rest has wrappers here, with the name and arguments of the newest form
 * that all versions can support.
 */
#ifndef FAIRQ_COMPAT_H
#define FAIRQ_COMPAT_H

#include "access/genam.h"
#include "access/tableam.h"
#include "access/tupdesc.h"
#include "storage/bufmgr.h"
#include "storage/condition_variable.h"
#include "storage/dsm.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 170000
#include "storage/dsm_registry.h"
#endif

#if PG_VERSION_NUM < 150000
#error "fairq needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* Version 15 leaves the declaration of _PG_init to the module. */
#if PG_VERSION_NUM < 160000
extern PGDLLEXPORT void _PG_init(void);
#endif

#if PG_VERSION_NUM >= 180000
#define FAIRQ_MODULE_MAGIC \
	PG_MODULE_MAGIC_EXT(.name = "fairq", .version = FAIRQ_VERSION)
#else
#define FAIRQ_MODULE_MAGIC PG_MODULE_MAGIC
#endif

static inline IndexScanDesc
fairq_index_beginscan(Relation heap, Relation index, Snapshot snapshot,
					  int nkeys)
{
#if PG_VERSION_NUM >= 190000
	return index_beginscan(heap, index, snapshot, NULL, nkeys, 0, 0);
#elif PG_VERSION_NUM >= 180000
	return index_beginscan(heap, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(heap, index, snapshot, nkeys, 0);
#endif
}

/* the identification of a relation's files */
#if PG_VERSION_NUM >= 160000
typedef RelFileLocator FairqFile;
#else
typedef RelFileNode FairqFile;
#endif

static inline FairqFile
fairq_file(Relation rel)
{
#if PG_VERSION_NUM >= 160000
	return rel->rd_locator;
#else
	return rel->rd_node;
#endif
}

static inline bool
fairq_conditional_lock_tuple(Relation rel, ItemPointer tid)
{
#if PG_VERSION_NUM >= 180000
	return ConditionalLockTuple(rel, tid, ExclusiveLock, false);
#else
	return ConditionalLockTuple(rel, tid, ExclusiveLock);
#endif
}

/*
 * According to the table interface, an update that must not wait returns when
 * it meets a row that a transaction has locked.  But heap_update() asserts
 * that there is no such row.
 */
#ifdef USE_ASSERT_CHECKING
#define FAIRQ_UPDATE_HAS_TO_WAIT true
#else
#define FAIRQ_UPDATE_HAS_TO_WAIT false
#endif

/*
 * Update a row.  If the new version is not HOT, every index needs an entry,
 * and *update_indexes becomes true.
 */
static inline TM_Result
fairq_tuple_update(Relation rel, ItemPointer tid, TupleTableSlot *slot,
				   CommandId cid, bool wait, TM_FailureData *tmfd,
				   bool *update_indexes)
{
	LockTupleMode lockmode;
	TM_Result	result;
#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes update = TU_None;
#else
	bool		update = false;
#endif

#if PG_VERSION_NUM >= 190000
	result = table_tuple_update(rel, tid, slot, cid, 0, InvalidSnapshot,
								InvalidSnapshot, wait, tmfd, &lockmode,
								&update);
#else
	result = table_tuple_update(rel, tid, slot, cid, InvalidSnapshot,
								InvalidSnapshot, wait, tmfd, &lockmode,
								&update);
#endif
#if PG_VERSION_NUM >= 160000
	/* summarizing indexes are not supported: writing to one is an error */
	*update_indexes = (update != TU_None);
#else
	*update_indexes = update;
#endif
	return result;
}

static inline TM_Result
fairq_tuple_delete(Relation rel, ItemPointer tid, CommandId cid, bool wait,
				   TM_FailureData *tmfd)
{
#if PG_VERSION_NUM >= 190000
	return table_tuple_delete(rel, tid, cid, 0, InvalidSnapshot,
							  InvalidSnapshot, wait, tmfd);
#else
	return table_tuple_delete(rel, tid, cid, InvalidSnapshot,
							  InvalidSnapshot, wait, tmfd, false);
#endif
}

/*
 * Make a tranche, once for the cluster; each backend registers it.  From
 * version 19 on PostgreSQL itself keeps the names in shared memory.
 */
static inline int
fairq_new_tranche(const char *name)
{
#if PG_VERSION_NUM >= 190000
	return LWLockNewTrancheId(name);
#else
	return LWLockNewTrancheId();
#endif
}

static inline void
fairq_register_tranche(int id, const char *name)
{
#if PG_VERSION_NUM < 190000
	LWLockRegisterTranche(id, name);
#endif
}

/*
 * The wait event in pg_stat_activity of a waiting worker.  From version 17 on
 * it has a name.
 */
static inline uint32
fairq_wait_event(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew("FairqWait");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/*
 * End the sleep.  A signal that arrived at the last moment is passed to
 * another sleeper.
 */
static inline void
fairq_cancel_sleep(ConditionVariable *cv)
{
#if PG_VERSION_NUM >= 170000
	if (ConditionVariableCancelSleep())
		ConditionVariableSignal(cv);
#else
	/* this version passes such a signal on by itself */
	ConditionVariableCancelSleep();
#endif
}

/* Up to version 16, rows that an old snapshot sees may be gone. */
static inline void
fairq_test_old_snapshot(Snapshot snapshot, Relation rel, Page page)
{
#if PG_VERSION_NUM < 170000
	TestForOldSnapshot(snapshot, rel, page);
#endif
}

/* NOT ENFORCED came in version 18 */
static inline bool
fairq_check_is_enforced(const ConstrCheck *check)
{
#if PG_VERSION_NUM >= 180000
	return check->ccenforced;
#else
	return true;
#endif
}

/*
 * declared in libpq/libpq.h, which needs the headers of GSSAPI, if PostgreSQL
 * uses it
 */
extern bool pq_check_connection(void);

/*
 * The handle of a segment that all backends find by the name, invalid at
 * first.  The caller holds AddinShmemInitLock.  PostgreSQL has a registry of
 * names from version 17 on.  In older versions, the handle is in an unused
 * part of the main segment.
 */
#if PG_VERSION_NUM >= 170000

#if PG_VERSION_NUM >= 190000
static inline void
fairq_init_handle(void *handle, void *arg)
{
	*(dsm_handle *) handle = DSM_HANDLE_INVALID;
}
#define FAIRQ_INIT_HANDLE(found) fairq_init_handle, found, NULL
#else
static inline void
fairq_init_handle(void *handle)
{
	*(dsm_handle *) handle = DSM_HANDLE_INVALID;
}
#define FAIRQ_INIT_HANDLE(found) fairq_init_handle, found
#endif

static inline dsm_handle *
fairq_shared_handle(const char *name)
{
	bool		found;

	return GetNamedDSMSegment(name, sizeof(dsm_handle),
							  FAIRQ_INIT_HANDLE(&found));
}

#else

static inline dsm_handle *
fairq_shared_handle(const char *name)
{
	bool		found;
	dsm_handle *handle = ShmemInitStruct(name, sizeof(dsm_handle), &found);

	if (!found)
		*handle = DSM_HANDLE_INVALID;
	return handle;
}

#endif

/* dshash of plain bytes: version 17 also requires a copy function */
#if PG_VERSION_NUM >= 170000
#define FAIRQ_DSHASH_MEM_FUNCTIONS \
	.compare_function = dshash_memcmp, .hash_function = dshash_memhash, \
	.copy_function = dshash_memcpy
#else
#define FAIRQ_DSHASH_MEM_FUNCTIONS \
	.compare_function = dshash_memcmp, .hash_function = dshash_memhash
#endif

/* version 19 requires the purpose of the fetches */
static inline IndexFetchTableData *
fairq_index_fetch_begin(Relation rel)
{
#if PG_VERSION_NUM >= 190000
	return table_index_fetch_begin(rel, 0);
#else
	return table_index_fetch_begin(rel);
#endif
}

/*
 * Version 17 added transaction_timeout, which also applies to background
 * workers.
 */
static inline void
fairq_no_transaction_timeout(void)
{
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);
#endif
}

#endif							/* FAIRQ_COMPAT_H */
