/*
 * shmem.h
 *		Shared memory: one block of fixed size.
 */
#ifndef FAIRQ_SHMEM_H
#define FAIRQ_SHMEM_H

#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "storage/condition_variable.h"
#include "storage/itemptr.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"

#include "address.h"

/* The state of the sequence of ids when a chunk was taken; see enqueue.c. */
typedef struct FairqIdSource
{
	uint64		lsn;			/* LSN of the sequence's page; 0: there is no
								 * chunk */
	int64		last_value;		/* last value of the sequence */
} FairqIdSource;

/* Ids of the last chunk that no session has taken yet. */
typedef struct FairqIds
{
	slock_t		mutex;			/* spinlock of all fields */
	int32		left;			/* number of ids left of the chunk */
	int64		next;			/* lowest id left */
	FairqIdSource source;		/* state of the sequence when the chunk was
								 * taken */
} FairqIds;

/* number of domains in shared memory */
#define FAIRQ_DOMAINS 64

/*
 * The domain of one fairq.task, that is, of one CREATE EXTENSION in one
 * database.  The atomic fields need no lock; the fields ids and several have
 * locks of their own.  Extensions whose keys have the same hash share a
 * domain.  Then resets of one extension also invalidate the other's hints, and
 * the extensions waste each other's ids.
 */
typedef struct FairqDomain
{
	pg_atomic_uint64 resets;	/* number of times that all hints became
								 * invalid */
	pg_atomic_uint64 moves;		/* number of rows that got new index entries
								 * (store_task.c) */
	pg_atomic_uint64 group_changes; /* number of times that cached groups
									 * became invalid */
	pg_atomic_uint64 settings;	/* number of changes of settings of queues that
								 * had no hints */
	ConditionVariable several;	/* sessions that wait at several queues sleep
								 * on this (wake.c) */
	FairqIds	ids;			/* ids left of the last chunk */
} FairqDomain;

/* the most tasks in the hand of a group */
#define FAIRQ_HAND 8

/* largest number of due or lapsed tasks in FairqDueKept */
#define FAIRQ_DUE_KEPT 4

/* A task that may be ready, and the TID of its row. */
typedef struct FairqItem
{
	int64		addr;			/* address of the task */
	uint32		order;			/* low 32 bits of the task's id */
	ItemPointerData tid;		/* TID of the root of its HOT chain */
}
#if defined(pg_attribute_packed) && defined(pg_attribute_aligned)
			pg_attribute_packed()
			pg_attribute_aligned(4)
#endif
FairqItem;

/* The next few due or lapsed tasks of a group, kept from a search. */
typedef struct FairqDueKept
{
	int32		n;				/* number of items */
	int32		region;			/* region of items; FAIRQ_REGION_QUEUED: these
								 * are lapsed tasks */
	FairqItem	items[FAIRQ_DUE_KEPT];	/* the tasks */
} FairqDueKept;

/*
 * A place in a group's line: after the task with the given id at the given
 * address.
 */
typedef struct FairqPlace
{
	int64		addr;			/* the address */
	int64		id;				/* the id */
} FairqPlace;

/*
 * The entry of a group in a lane, in a cache of fixed size: entry.c has the
 * cache and the protocol of the hand.  All fields are protected by the mutex
 * of the set that the entry is in.  A backend also holds the lane's lock,
 * exclusive, or shared to copy the entry.  Exceptions are the pins, and the
 * time that a claim records.  Apart from these, the entry changes without that
 * lock only if it is evicted.  A backend that evicts an entry holds only the
 * mutex: it reads pins and sets, and clears the entry.  An entry with pins is
 * not evicted.
 */
typedef struct FairqGroup
{
	/* the fields that a turn usually needs come first */
	int32		pins;			/* number of reservations whose rows are being
								 * written; if it is above 0, the entry is not
								 * evicted */

	/* pids of backends that read the group's line */
	struct
	{
		int32		reader;		/* pid of the backend whose results of reading
								 * may be stored here; 0: none */
		int32		searcher;	/* pid of the backend whose results about due
								 * and lapsed tasks may be stored here; 0:
								 * none */
	}			pid;

	/*
	 * whether the group is in some of the lane's sets, for a backend that
	 * evicts the entry
	 */
	struct
	{
		bool		idle;		/* true: neither in the ring nor aside
								 * (parked or throttled) */
		bool		late;		/* true: in the set "late" */
	}			sets;

	bool		by_row;			/* true: the next reading visits rows, and not
								 * only index entries */

	/* the part of hand that is filled */
	struct
	{
		int16		first;		/* index of the first item */
		int16		n;			/* number of items */
	}			in_hand;

	/* outcome of the last turn */
	struct
	{
		int32		parts;		/* number of its parts that calls have taken
								 * but not given back */
		bool		published;	/* true: a task has been published since the
								 * turn was taken */
		TimestampTz since;		/* time before which none of the group's ready
								 * tasks became ready, DT_NOBEGIN if not known;
								 * valid only with ready tasks (survey.c) */
	}			turn;

	FairqTail	tail;			/* last address given, which may be
								 * FAIRQ_TAIL_UNKNOWN */
	int64		upto;			/* address at which the next reading begins:
								 * each ready task below it is in hand;
								 * FAIRQ_ADDR_MAX: there is nothing to read */
	int64		lost;			/* lowest address published since the reading
								 * began that is not in hand; FAIRQ_ADDR_MAX:
								 * none */

	/* where tasks may be running */
	struct
	{
		int64		low[FAIRQ_REGIONS]; /* address of each region below which
										 * no task is running; FAIRQ_ADDR_MAX:
										 * no task runs */
		int64		since[FAIRQ_REGIONS];	/* in each region, the lowest
											 * address leased since the search
											 * began; FAIRQ_ADDR_MAX: none */
		int64		high;		/* highest address of the queued region at
								 * which a task may be running;
								 * FAIRQ_ADDR_NONE: none */
	}			run;

	FairqItem	hand[FAIRQ_HAND];	/* next ready tasks, by address and order,
									 * from in_hand.first on */

	/* where due tasks may be, and the next few due or lapsed tasks */
	struct
	{
		int64		from[FAIRQ_REGIONS];	/* address of each timed region
											 * below which no task is due,
											 * except in kept; FAIRQ_ADDR_MAX:
											 * none is due */
		int64		since[FAIRQ_REGIONS];	/* lowest address of each timed
											 * region published as due since
											 * the search began;
											 * FAIRQ_ADDR_MAX: none */
		FairqDueKept kept;		/* next due or lapsed tasks */
	}			due;

	FairqPlace	cycle;			/* where the next search for lapsed tasks
								 * begins; after the end of the line, the
								 * search begins again */
} FairqGroup;

#define FAIRQ_SET_WAYS 8

/* The group and lane of an entry. */
typedef struct FairqGroupKey
{
	uint32		lane_no;		/* lane_no of the lane; 0: the way is free */
	int32		group_no;		/* the group's number */
} FairqGroupKey;

/*
 * A set of ways, each with the entry of a group.  All fields are under the
 * mutex.
 */
typedef struct FairqGroupSet
{
	slock_t		mutex;			/* spinlock of the set and its entries */
	int32		next_victim;	/* way at which a search for victims begins */
	FairqGroupKey keys[FAIRQ_SET_WAYS]; /* key of the entry in each way */
} FairqGroupSet;

/*
 * This backend's view of the cache of entries.  The entries are separate from
 * the sets.  Only the sets, a fiftieth of the cache, are initialized, so an
 * entry is undefined until it has a key.
 */
typedef struct FairqCache
{
	uint32		nsets;			/* number of sets; 0: this backend has not
								 * attached yet */
	FairqGroupSet *sets;		/* keys of all entries */
	FairqGroup *ways;			/* FAIRQ_SET_WAYS entries for each set; under
								 * their set's mutex */
} FairqCache;

/*
 * The key of a queue, or of a group's counter, in hash tables of the registry.
 * It is compared as bytes, so there is no padding in it.
 */
typedef struct FairqQueueKey
{
	uint64		born;			/* hash of the place and time of the database's
								 * creation */
	Oid			database;		/* OID of the database */
	Oid			task;			/* OID of fairq.task */
	int32		queue_id;		/* id of the queue; 0: key of the extension */
	int32		group_no;		/* the group's number; -1: key of the queue.
								 * -2: key of the extension */
} FairqQueueKey;

/* number of counters at which idle ones are freed */
#define FAIRQ_MANY_COUNTERS 16384

/* The registry of queues and counters; see registry.c.  Part of Arena. */
typedef struct FairqRegistry
{
	LWLock		lock;			/* lock of the handles, the lists, and keys in
								 * hints */
	/* under lock */
	dsa_pointer queues;			/* handle of the hash table of queues and
								 * extensions; constant once it is valid */
	dsa_pointer counters;		/* handle of the hash table of counters;
								 * constant once it is valid */
	dsa_pointer free;			/* list of hints that belong to no queue */
	dsa_pointer dropped;		/* list of hints of dropped queues */
	/* the following fields are read and written without the lock */
	pg_atomic_uint32 nhints;	/* number of hints, whether or not they belong
								 * to a queue */
	pg_atomic_uint32 ncounters; /* number of counters of groups */
	pg_atomic_uint32 many_counters; /* number of counters at which idle ones
									 * are freed */
	pg_atomic_uint32 crowded;	/* 1: some group has found no entry in the
								 * cache, which calls for a sweep; 0: none
								 * has */
	pg_atomic_uint64 swept_at;	/* time of the last search for extensions that
								 * are gone, a TimestampTz */
	pg_atomic_uint64 tenures;	/* number of times that hints were assigned to
								 * a queue */
} FairqRegistry;

typedef struct FairqHints FairqHints;
typedef struct FairqCounter FairqCounter;

/* Tranches of LWLocks, by the object of the lock. */
typedef enum FairqTranche
{
	FAIRQ_REGISTRY_TRANCHE,
	FAIRQ_AREA_TRANCHE,
	FAIRQ_LANE_TRANCHE,
	FAIRQ_TALLY_TRANCHE,
	FAIRQ_TRANCHES				/* number of tranches */
} FairqTranche;

/* The result of fairq.shared_memory() about the whole block. */
typedef struct FairqShmemUse
{
	int64		size;			/* bytes of the block */
	int64		nentries;		/* number of groups that have an entry in the
								 * cache */
	int64		area_size;		/* bytes of the area */
	int64		allocated;		/* bytes of the area that are in use,
								 * approximately */
	int64		nqueues;		/* number of queues */
	int64		ncounters;		/* number of counters of groups */
	bool		reserved;		/* true: the block is part of the main
								 * segment */
} FairqShmemUse;

extern FairqCache fairq_cache;
extern char *fairq_area_base;
extern dsa_area *fairq_area;

/*
 * A pointer to an allocation.  The area never has a second segment, so an
 * address in it is an offset from its beginning.
 */
static inline void *
fairq_at(dsa_pointer ptr)
{
	return (void *) ((uintptr_t) fairq_area_base + (uintptr_t) ptr);
}

/*
 * number of seats of the first chunk; each later chunk has as many seats as
 * all previous ones together
 */
#define FAIRQ_FIRST_SEATS 64
#define FAIRQ_CHUNKS 26

/* Chunks of data per seat, in a queue or a lane in shared memory. */
typedef struct FairqChunks
{
	pg_atomic_uint64 chunk[FAIRQ_CHUNKS];	/* dsa_pointers of the chunks */
} FairqChunks;

static inline void
fairq_chunks_init(FairqChunks *chunks)
{
	for (int i = 0; i < FAIRQ_CHUNKS; i++)
		pg_atomic_init_u64(&chunks->chunk[i], InvalidDsaPointer);
}

/* The chunk of a seat. */
static inline int
fairq_chunk_of(int64 seat)
{
	return seat < FAIRQ_FIRST_SEATS ? 0 :
		pg_leftmost_one_pos32((uint32) (seat / FAIRQ_FIRST_SEATS)) + 1;
}

/* The first seat of a chunk. */
static inline int64
fairq_chunk_first(int chunk)
{
	return chunk == 0 ? 0 : INT64CONST(1) * FAIRQ_FIRST_SEATS << (chunk - 1);
}

/* The number of seats of a chunk. */
static inline int64
fairq_chunk_seats(int chunk)
{
	return chunk == 0 ? FAIRQ_FIRST_SEATS : fairq_chunk_first(chunk);
}

/* Returns a chunk; NULL if it does not exist. */
static inline void *
fairq_chunk_at(FairqChunks *chunks, int chunk)
{
	dsa_pointer ptr = pg_atomic_read_u64(&chunks->chunk[chunk]);

	return DsaPointerIsValid(ptr) ? fairq_at(ptr) : NULL;
}

/* Fills in a new chunk, which is zero. */
typedef void (*FairqChunkFill) (void *at, int chunk);

extern void fairq_shmem_init(void);
extern FairqRegistry *fairq_shmem_attach(void);
extern bool fairq_shmem_can_be_had(void);
extern FairqDomain *fairq_domain_at(int32 index);
extern FairqQueueKey fairq_key_of(Oid task, int32 queue_id,
								   int32 group_no);
extern int32 fairq_domain_index(void);
extern FairqDomain *fairq_domain(void);
extern Size fairq_area_size(void);
extern dsa_pointer fairq_allocate(Size size);
extern dsa_pointer fairq_allocate_if_free(Size size);
extern void fairq_free(dsa_pointer ptr);
extern void fairq_chunks_free(FairqChunks *chunks);
extern void fairq_chunk_make(FairqChunks *chunks, int chunk, Size size,
							 FairqChunkFill fill);
extern void fairq_when_full(void (*free_some) (void));
extern int	fairq_errfull(void);
extern bool fairq_catch(int sqlerrcode, MemoryContext context);
extern int	fairq_tranche(FairqTranche tranche);
extern void fairq_say_crowded(void);
extern uint32 fairq_new_lane_no(void);
extern void fairq_shmem_use(FairqShmemUse *use);

#endif							/* FAIRQ_SHMEM_H */
