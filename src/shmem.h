/*
 * shmem.h
 *		Shared memory, had on demand: no shared_preload_libraries.
 */
#ifndef FAIRQ_SHMEM_H
#define FAIRQ_SHMEM_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/itemptr.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"

#include "address.h"
/* How the sequence of ids stood when a chunk was taken from it; see ids.c. */
typedef struct FairqIdSource
{
	uint64		lsn;			/* of its page; 0: there is no chunk */
	int64		last_value;
} FairqIdSource;

/* Ids that nobody has taken yet, of the last chunk; all under mutex. */
typedef struct FairqIds
{
	slock_t		mutex;
	int32		left;			/* so many */
	int64		next;			/* from this one on */
	FairqIdSource source;
} FairqIds;

/*
 * What belongs to one fairq.task, that is, to one CREATE EXTENSION in one
 * database.  Several may share an entry: then they share resets, and look
 * again once in a while for nothing; and waste each other's ids.
 */
typedef struct FairqDomain
{
	pg_atomic_uint64 resets;	/* hints from before the last one are void */
	pg_atomic_uint64 forgets;	/* counts what asks for another census: leases
								 * forgotten, a queue to be counted */
	pg_atomic_uint64 uncounted; /* times that counters of a queue missed what
								 * ended */
	pg_atomic_uint64 moves;		/* rows given new index entries; see store.c */
	pg_atomic_uint64 group_changes; /* counts what makes cached groups void */
	pg_atomic_uint64 settings;	/* counts changes of settings of queues that
								 * had no version to be counted up */
	FairqIds	ids;
} FairqDomain;

/* tasks in the hand of a group */
#define FAIRQ_HAND 8

/* tasks in its hand of those that have fallen due, or expired */
#define FAIRQ_DUE_HAND 4

/* A task that may be ready, and where its row is. */
typedef struct FairqItem
{
	int64		addr;
	uint32		order;			/* the low bits of its id */
	ItemPointerData tid;		/* the root of its HOT chain */
}
#if defined(pg_attribute_packed) && defined(pg_attribute_aligned)
			pg_attribute_packed()
			pg_attribute_aligned(4)
#endif
FairqItem;

/*
 * The entry of a group in a lane, in a cache of fixed size; entry.c has the
 * cache, hand.c what the fields mean.  All is protected by the mutex of the set
 * that the entry lies in; whoever uses anything but the pins has the lane's
 * lock besides, exclusively, and so finds all as he has left it, unless the
 * entry was evicted.  Only who evicts has the mutex alone: he reads pins, idle
 * and late, and clears the entry.  One with pins is not evicted.
 */
typedef struct FairqGroup
{
	/* what a turn mostly needs comes first */
	int32		pins;			/* reservations whose row is being written */
	int32		reader;			/* pid of the backend that may offer its
								 * reading; 0: none */
	int32		searcher;		/* pid of the backend that may say what it has
								 * found of due and expired tasks; 0: none */
	bool		idle;			/* in no set that a turn would come from */
	bool		late;			/* in the lane's set of that name */
	bool		by_row;			/* the next reading looks at rows */
	bool		newcomer;		/* it was given an address in the block in
								 * which recovery began */
	int16		first;			/* item of the hand */
	int16		nhand;			/* items in the hand */
	int32		parts;			/* of its last turn: those that calls have
								 * taken, but for what came to nothing */
	bool		unused;			/* nothing of that turn is known to be served,
								 * and it was not given back */
	bool		published;		/* something was published since it was
								 * taken */
	int32		tail_count;		/* tasks at tail */
	int64		tail;			/* last address given; FAIRQ_ADDR_NONE */
	int64		upto;			/* address from which the next reading begins;
								 * FAIRQ_ADDR_MAX: there is nothing to read */
	int64		lost;			/* lowest address published since the reading
								 * began that is not in the hand */
	int64		run_low[FAIRQ_REGIONS]; /* no task is running below */
	int64		run_since[FAIRQ_REGIONS];	/* lowest address leased since the
											 * look began */
	int64		run_high;		/* of the queued region: none is above */
	FairqItem	hand[FAIRQ_HAND];	/* by address and order, from first on */
	int64		due_from[FAIRQ_REGIONS];	/* of timed regions: no task is due
											 * below, but for those in due_hand;
											 * FAIRQ_ADDR_MAX: none */
	int64		due_since[FAIRQ_REGIONS];	/* lowest address published as due
											 * since the look began */
	int32		ndue;			/* items in due_hand */
	int32		due_region;		/* their region; FAIRQ_REGION_QUEUED: they are
								 * expired tasks */
	FairqItem	due_hand[FAIRQ_DUE_HAND];
	int64		cycle;			/* address and id behind which expired tasks */
	int64		cycle_id;		/* are served next, and then round */
} FairqGroup;

#define FAIRQ_SET_WAYS 8

/* tests build with few, so that entries change hands all the time */
#ifndef FAIRQ_SETS
#define FAIRQ_SETS 8192
#endif

/* Whose entry it is; lane_no is 0 if it is free. */
typedef struct FairqGroupKey
{
	uint32		lane_no;
	int32		group_no;
} FairqGroupKey;

typedef struct FairqGroupSet
{
	slock_t		mutex;
	int32		next_victim;	/* under mutex, as all is */
	FairqGroupKey keys[FAIRQ_SET_WAYS];
} FairqGroupSet;

/*
 * The cache.  Its entries are apart from the sets, which are a fiftieth of it and
 * all that is written when it is made: what an entry holds is undefined until
 * there is a key for it.
 */
typedef struct FairqCache
{
	FairqGroupSet sets[FAIRQ_SETS];
	FairqGroup	ways[FAIRQ_SETS][FAIRQ_SET_WAYS];	/* under a set's mutex */
} FairqCache;

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
	dsa_pointer counters;
	dsa_pointer extensions;
	/* under lock: lists of FairqHints */
	dsa_pointer free;			/* of no queue */
	dsa_pointer dropped;		/* of a queue that is gone */
	/* without a lock */
	pg_atomic_uint32 ncounters;
	pg_atomic_uint32 many_counters; /* sweep when there are more */
	pg_atomic_uint32 crowded;	/* a group found no entry in the cache */
	pg_atomic_uint64 swept_at;	/* TimestampTz: the last look for extensions
								 * that are gone */
	pg_atomic_uint64 tenures;	/* counts how often hints became a queue's */
} FairqRegistry;

typedef struct FairqCensus FairqCensus;
typedef struct FairqHints FairqHints;
typedef struct FairqCounter FairqCounter;

extern FairqDomain *fairq_domain(void);
extern FairqDomain *fairq_domain_at(int32 index);
extern FairqCache *fairq_cache(void);
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
