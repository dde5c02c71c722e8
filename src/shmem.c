/*
 * shmem.c
 *		Shared memory, had on demand: no shared_preload_libraries.
 *
 * A small control struct lives in the main shared memory segment (its slack
 * is small, and shared with other extensions) or, from version 17 on, in a
 * named dynamic segment.  Behind it stands a pinned DSA area with
 *
 *	- the queues with their lanes, allocated on first use and found through a
 *	  dshash,
 *	- the groups, a set-associative cache of fixed size, and
 *	- the counters of running tasks of groups, in a dshash.
 *
 * None is ever moved.  A counter is freed some time after it is idle, and not
 * while it is pinned; the others are never freed.  Each backend maps what it
 * may touch before it owes anything to it.  So commit and abort callbacks can
 * follow these pointers without allocating, attaching or failing.
 *
 * All of it can be lost at any time (a crash, an immediate shutdown) and is
 * then read off the tables again.  Keys hold the database and the OID of
 * fairq.task, so an extension that was dropped and created again never meets
 * what was known of the old one.
 *
 * Locking: control->lock is held while the area is made, and nothing else is
 * taken under it but locks of the DSA.  Which lock protects what else is said
 * in shmem.h and lane.h.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/dshash.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/dsa.h"
#include "utils/memutils.h"

#include "compat.h"
#include "lane.h"
#include "seats.h"
#include "shmem.h"
#include "store.h"

#define DOMAINS 64

/* counters past which the idle ones are looked for and freed */
#define MANY_LIMITS 16384

/*
 * To be counted up by each version that changes anything in shared memory, be
 * it the meaning of a field: sessions that have an old library and such as
 * have a new one must not share it.
 */
#define LAYOUT 1

typedef struct Control
{
	uint32		layout;			/* LAYOUT of the library that made it */
	LWLock		lock;
	int			control_tranche;
	int			area_tranche;
	int			lane_tranche;
	pg_atomic_uint32 next_lane_no;
	FairqDomain domains[DOMAINS];
	/* the rest is under lock, and constant once area is valid */
	dsa_handle	area;
	dshash_table_handle queues;
	dshash_table_handle limits;
	dsa_pointer group_sets;
	pg_atomic_uint32 nlimits;
	pg_atomic_uint32 many_limits;	/* sweep when there are more */
} Control;

typedef struct QueueKey
{
	Oid			database;
	Oid			task;			/* the table */
	int32		queue_id;
} QueueKey;

typedef struct QueueEntry
{
	QueueKey	key;
	dsa_pointer hints;
} QueueEntry;

typedef struct LimitKey
{
	QueueKey	queue;
	int32		group_no;
} LimitKey;

typedef struct LimitEntry
{
	LimitKey	key;
	FairqLimit	limit;
} LimitEntry;

/* this backend's view */
static Control *control = NULL;
static dsa_area *area = NULL;
static dshash_table *queues = NULL;
static dshash_table *limits = NULL;
static FairqGroupSet *group_sets = NULL;

static void
init_control(FAIRQ_INIT_ARGS)
{
	Control    *c = ptr;

	c->layout = LAYOUT;
	c->control_tranche = fairq_new_tranche("fairq");
	c->area_tranche = fairq_new_tranche("fairq_area");
	c->lane_tranche = fairq_new_tranche("fairq_lane");
	LWLockInitialize(&c->lock, c->control_tranche);
	pg_atomic_init_u32(&c->next_lane_no, 1);
	for (int i = 0; i < DOMAINS; i++)
	{
		pg_atomic_init_u64(&c->domains[i].resets, 0);
		pg_atomic_init_u64(&c->domains[i].moves, 0);
		pg_atomic_init_u64(&c->domains[i].group_changes, 0);
	}
	pg_atomic_init_u32(&c->nlimits, 0);
	pg_atomic_init_u32(&c->many_limits, MANY_LIMITS);
	c->area = DSA_HANDLE_INVALID;
}

static Control *
attach_control(void)
{
	Control    *c;

	c = fairq_named_segment("fairq", sizeof(Control), init_control);
	if (c->layout != LAYOUT)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("shared memory was set up by another version of fairq"),
				errhint("Restart the server."));
	fairq_register_tranche(c->control_tranche, "fairq");
	fairq_register_tranche(c->area_tranche, "fairq_area");
	fairq_register_tranche(c->lane_tranche, "fairq_lane");
	return c;
}

static dsa_pointer
make_group_sets(dsa_area *dsa)
{
	dsa_pointer ptr = dsa_allocate_extended(dsa,
											sizeof(FairqGroupSet) * FAIRQ_SETS,
											DSA_ALLOC_HUGE | DSA_ALLOC_ZERO);
	FairqGroupSet *sets = dsa_get_address(dsa, ptr);

	for (int i = 0; i < FAIRQ_SETS; i++)
		SpinLockInit(&sets[i].mutex);
	return ptr;
}

/*
 * Attach to everything, making what is not there yet.  An error on the way
 * leaves nothing behind that the next attempt would trip over.
 */
static void
attach(void)
{
	MemoryContext oldcontext;
	dshash_parameters queue_params = {
		.key_size = sizeof(QueueKey),
		.entry_size = sizeof(QueueEntry),
		FAIRQ_DSHASH_MEM_FUNCTIONS
	};
	dshash_parameters limit_params = {
		.key_size = sizeof(LimitKey),
		.entry_size = sizeof(LimitEntry),
		FAIRQ_DSHASH_MEM_FUNCTIONS
	};

	if (control == NULL)
		control = attach_control();
	queue_params.tranche_id = limit_params.tranche_id = control->area_tranche;

	oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (control->area == DSA_HANDLE_INVALID)
	{
		dsa_area   *new_area = dsa_create(control->area_tranche);

		/* an error from here on detaches and so destroys it: not pinned yet */
		control->group_sets = make_group_sets(new_area);
		queues = dshash_create(new_area, &queue_params, NULL);
		control->queues = dshash_get_hash_table_handle(queues);
		limits = dshash_create(new_area, &limit_params, NULL);
		control->limits = dshash_get_hash_table_handle(limits);
		dsa_pin(new_area);
		dsa_pin_mapping(new_area);
		control->area = dsa_get_handle(new_area);
		area = new_area;
	}
	else
	{
		if (area == NULL)
		{
			area = dsa_attach(control->area);
			dsa_pin_mapping(area);
		}
		queues = dshash_attach(area, &queue_params, control->queues, NULL);
		limits = dshash_attach(area, &limit_params, control->limits, NULL);
	}
	LWLockRelease(&control->lock);
	MemoryContextSwitchTo(oldcontext);
	group_sets = dsa_get_address(area, control->group_sets);
}

static int32
domain_index(void)
{
	uint32		hash = hash_combine(murmurhash32(MyDatabaseId),
									murmurhash32(fairq_catalog()->task));

	return hash % DOMAINS;
}

FairqDomain *
fairq_domain(void)
{
	if (control == NULL)
		control = attach_control();
	return fairq_domain_at(domain_index());
}

/* For callbacks, which must not look up anything. */
FairqDomain *
fairq_domain_at(int32 index)
{
	return &control->domains[index];
}

FairqGroupSet *
fairq_group_sets(void)
{
	return group_sets;
}

FairqGroup *
fairq_group_at(int32 index)
{
	return &group_sets[index / FAIRQ_SET_WAYS].ways[index % FAIRQ_SET_WAYS];
}

int32
fairq_group_index(const FairqGroup *group)
{
	int32		set = ((const char *) group - (char *) group_sets) / sizeof(FairqGroupSet);

	return set * FAIRQ_SET_WAYS + (group - group_sets[set].ways);
}

uint32
fairq_new_lane_no(void)
{
	uint32		lane_no;

	/* 0 means "none"; it comes by again after four billion recoveries */
	do
		lane_no = pg_atomic_fetch_add_u32(&control->next_lane_no, 1);
	while (lane_no == 0);
	return lane_no;
}

static void
init_lane(FairqLane *lane, int priority)
{
	memset(lane, 0, sizeof(FairqLane));
	LWLockInitialize(&lane->lock, control->lane_tranche);
	lane->domain = domain_index();
	lane->priority = priority;
	lane->pos = FAIRQ_ADDR_NONE;
	lane->strays = FAIRQ_ADDR_MAX;
	lane->irregular = lane->parked = FAIRQ_NOBODY;
	lane->full_seat = PG_INT32_MAX;
	fairq_times_init(&lane->times);
	for (int i = 0; i < FAIRQ_RING; i++)
	{
		lane->ring[i] = FAIRQ_ADDR_MAX;
		lane->ring_high[i] = FAIRQ_ADDR_NONE;
	}
	pg_atomic_init_u64(&lane->narrowings, 0);
	pg_atomic_init_u64(&lane->reach, 0);
	for (int i = 0; i < FAIRQ_COUNTERS; i++)
		pg_atomic_init_u64(&lane->counters[i], 0);
}

static void
init_hints(FairqHints *hints)
{
	pg_atomic_init_u64(&hints->version, 0);
	pg_atomic_init_u64(&hints->uncounted, 0);
	pg_atomic_init_u32(&hints->limited, 0);
	pg_atomic_init_u32(&hints->calls, 0);
	fairq_limit_init(&hints->running);
	fairq_wakeup_init(&hints->wakeup);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		init_lane(&hints->lanes[priority], priority);
}

static QueueKey
queue_key(int32 queue_id)
{
	QueueKey	key = {
		.database = MyDatabaseId,
		.task = fairq_catalog()->task,
		.queue_id = queue_id
	};

	return key;
}

/* Find or make a queue.  The pointer stays good as long as the server runs. */
FairqHints *
fairq_shmem_queue(int32 queue_id)
{
	QueueKey	key = queue_key(queue_id);
	QueueEntry *entry;
	bool		found;
	dsa_pointer ptr;

	if (group_sets == NULL)
		attach();

	entry = dshash_find_or_insert(queues, &key, &found);
	if (!found)
	{
		ptr = dsa_allocate_extended(area, sizeof(FairqHints), DSA_ALLOC_NO_OOM);
		if (!DsaPointerIsValid(ptr))
		{
			dshash_delete_entry(queues, entry);
			ereport(ERROR,
					errcode(ERRCODE_OUT_OF_MEMORY),
					errmsg("out of shared memory"));
		}
		init_hints(dsa_get_address(area, ptr));
		entry->hints = ptr;
	}
	ptr = entry->hints;
	dshash_release_lock(queues, entry);
	return dsa_get_address(area, ptr);
}

/*
 * Free the counters that are idle.  Done whenever there are twice as many as
 * the last time left, so it costs a constant time per new counter.
 */
static void
free_idle_limits(void)
{
	dshash_seq_status status;
	LimitEntry *entry;
	uint32		left = 0;

	dshash_seq_init(&status, limits, true);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (fairq_limit_is_idle(&entry->limit))
		{
			dshash_delete_current(&status);
			pg_atomic_fetch_sub_u32(&control->nlimits, 1);
		}
		else
			left++;
	}
	dshash_seq_term(&status);
	pg_atomic_write_u32(&control->many_limits, Max(MANY_LIMITS, 2 * left));
}

/* Find or make the counter of a group.  It is pinned. */
FairqLimit *
fairq_shmem_limit(int32 queue_id, int32 group_no)
{
	LimitKey	key = {.queue = queue_key(queue_id), .group_no = group_no};
	LimitEntry *entry;
	bool		found;

	if (pg_atomic_read_u32(&control->nlimits) >
		pg_atomic_read_u32(&control->many_limits))
		free_idle_limits();
	entry = dshash_find_or_insert(limits, &key, &found);
	if (!found)
	{
		fairq_limit_init(&entry->limit);
		pg_atomic_fetch_add_u32(&control->nlimits, 1);
	}
	fairq_limit_pin(&entry->limit);
	dshash_release_lock(limits, entry);
	return &entry->limit;
}

/* The groups of a queue that have counters.  Returns how many. */
int
fairq_shmem_limits(int32 queue_id, int32 **group_nos)
{
	QueueKey	key = queue_key(queue_id);
	dshash_seq_status status;
	LimitEntry *entry;
	int			max = 64;
	int			n = 0;

	*group_nos = palloc(sizeof(int32) * max);
	dshash_seq_init(&status, limits, false);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (memcmp(&entry->key.queue, &key, sizeof(key)) != 0)
			continue;
		if (n == max)
		{
			max *= 2;
			*group_nos = repalloc_huge(*group_nos, sizeof(int32) * max);
		}
		(*group_nos)[n++] = entry->key.group_no;
	}
	dshash_seq_term(&status);
	return n;
}
