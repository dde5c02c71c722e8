/*
 * shmem.h
 *		Shared memory, had on demand: no shared_preload_libraries.
 */
#ifndef FAIRQ_SHMEM_H
#define FAIRQ_SHMEM_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"

/*
 * What belongs to one fairq.task, that is, to one CREATE EXTENSION in one
 * database.  Several may share an entry: then they share resets, and look
 * again once in a while for nothing.
 */
typedef struct FairqDomain
{
	pg_atomic_uint64 resets;	/* hints from before the last one are void */
	pg_atomic_uint64 moves;		/* rows given new index entries; see store.c */
	pg_atomic_uint64 group_changes; /* counts what makes cached groups void */
	pg_atomic_uint64 settings;	/* counts changes of settings of queues that
								 * had no version to be counted up */
} FairqDomain;

/*
 * What is remembered of a group in a lane; see lane.c for what it means.
 *
 * An entry lies in one of the two sets that its key leads to, so that sets fill
 * up evenly: 131,072 entries have room for some 120,000 irregular groups.  The
 * set's mutex protects the key, the pins and the choice of a victim; all else
 * is protected by the lock of the lane whose number the entry bears, and only
 * as long as the entry is pinned or irregular: such a one is never a victim.
 * Any other may be given to a group of another lane as soon as the mutex is
 * released, and is not touched without it.  An entry's place is its name: sets
 * of groups are linked by index.
 */
typedef struct FairqGroup
{
	uint32		lane_no;		/* key; 0: free */
	int32		group_no;		/* key */
	int32		pins;			/* reservations whose row is being written */
	int32		tail_count;		/* tasks at tail */
	int64		tail;			/* last address given; FAIRQ_ADDR_NONE */

	bool		gap;			/* tasks may stand further on than its turn */
	bool		irregular;		/* in one of the lane's sets; the rest is
								 * valid */
	bool		parked;			/* in which of the two */
	bool		forgot;			/* what it was told, while it is parked */
	int32		tasks_left;		/* it may still have in the turn taken */
	uint32		version;		/* counts what was found out about it */
	uint32		expiries;		/* counts the news of expired leases */
	int32		left;			/* in the set; see seats.c */
	int32		right;
	int64		from;			/* none of its tasks is ready below */
	int64		waiting_from;	/* nor from FAIRQ_WAITING to below this */
	int64		taken;			/* the last turn that a pop took for it */
	int64		until;			/* there may be holes up to here */
	int64		due_from;		/* no scheduled task has fallen due below */
	int64		expired_from;	/* and no lease of which it was told */
	int64		expired_to;		/* nor above this, if that is known */
	TimestampTz told_at;		/* by the latest clock of who told it */
} FairqGroup;

#define FAIRQ_SET_WAYS 8

/* tests build with few, so that entries change hands all the time */
#ifndef FAIRQ_SETS
#define FAIRQ_SETS 16384
#endif

typedef struct FairqGroupSet
{
	slock_t		mutex;
	int32		hand;			/* the next victim; under mutex */
	FairqGroup	ways[FAIRQ_SET_WAYS];
} FairqGroupSet;

/*
 * What a queue, or with a group the group's counter, is known by.  There are no
 * gaps in it: it is compared as bytes.
 */
typedef struct FairqQueueKey
{
	uint64		born;			/* when the database was made, and where */
	Oid			database;
	Oid			task;			/* the table, of one CREATE EXTENSION */
	int32		queue_id;		/* 0: of the extension itself */
	int32		group_no;		/* -1: of the queue itself */
} FairqQueueKey;

/* Where to find queues and counters; see registry.c.  Part of the control. */
typedef struct FairqRegistry
{
	LWLock		lock;
	/* under lock, and constant once they are valid */
	dsa_pointer queues;			/* of hash tables */
	dsa_pointer limits;
	dsa_pointer extensions;
	/* under lock: lists of FairqHints */
	dsa_pointer free;			/* of no queue */
	dsa_pointer dropped;		/* of a queue that is gone */
	/* without a lock */
	pg_atomic_uint32 nlimits;
	pg_atomic_uint32 many_limits;	/* sweep when there are more */
	pg_atomic_uint32 crowded;	/* a group found no entry in the cache */
	pg_atomic_uint64 swept_at;	/* TimestampTz: the last look for extensions
								 * that are gone */
	pg_atomic_uint64 tenures;	/* counts how often hints became a queue's */
} FairqRegistry;

typedef struct FairqHints FairqHints;
typedef struct FairqLimit FairqLimit;

extern FairqDomain *fairq_domain(void);
extern FairqDomain *fairq_domain_at(int32 index);
extern FairqGroupSet *fairq_group_sets(void);
extern FairqGroup *fairq_group_at(int32 index);
extern int32 fairq_group_index(const FairqGroup *group);
extern bool fairq_area_is_made(void);
extern dsa_area *fairq_area(void);
extern FairqRegistry *fairq_registry_shared(void);
extern FairqQueueKey fairq_key_of(Oid task, int32 queue_id,
								   int32 group_no);
extern FairqQueueKey fairq_key(int32 queue_id, int32 group_no);
extern int	fairq_area_tranche(void);
extern int	fairq_lane_tranche(void);
extern int32 fairq_domain_index(void);
extern void fairq_say_crowded(void);
extern void fairq_explain_begin(struct ErrorContextCallback *callback);
extern void fairq_explain_end(struct ErrorContextCallback *callback);
extern uint32 fairq_new_lane_no(void);

#endif							/* FAIRQ_SHMEM_H */
