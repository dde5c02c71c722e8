/*
 * shmem.c
 *		Shared memory, had on demand: no shared_preload_libraries.
 *
 * A small control struct lives in the main shared memory segment (its slack
 * is small, and shared with other extensions) or, from version 17 on, in a
 * named dynamic segment.  Behind it stands a pinned DSA area with
 *
 *	- the lanes, each allocated on first use and found through a dshash, and
 *	- the groups, a set-associative cache of fixed size.
 *
 * Neither is ever moved or freed, and each backend maps what it may touch
 * before it owes anything to it.  So commit and abort callbacks can follow
 * these pointers without allocating, attaching or failing.
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
#include "shmem.h"
#include "store.h"

#define DOMAINS 64

typedef struct Control
{
	LWLock		lock;
	int			control_tranche;
	int			area_tranche;
	int			lane_tranche;
	pg_atomic_uint32 next_lane_no;
	FairqDomain domains[DOMAINS];
	/* the rest is under lock, and constant once area is valid */
	dsa_handle	area;
	dshash_table_handle lanes;
	dsa_pointer group_sets;
} Control;

typedef struct LaneKey
{
	Oid			database;
	Oid			task;			/* the table */
	int32		queue_id;
	int32		priority;
} LaneKey;

typedef struct LaneEntry
{
	LaneKey		key;
	dsa_pointer lane;
} LaneEntry;

/* this backend's view */
static Control *control = NULL;
static dsa_area *area = NULL;
static dshash_table *lanes = NULL;
static FairqGroupSet *group_sets = NULL;

static void
init_control(FAIRQ_INIT_ARGS)
{
	Control    *c = ptr;

	c->control_tranche = fairq_new_tranche("fairq");
	c->area_tranche = fairq_new_tranche("fairq_area");
	c->lane_tranche = fairq_new_tranche("fairq_lane");
	LWLockInitialize(&c->lock, c->control_tranche);
	pg_atomic_init_u32(&c->next_lane_no, 1);
	for (int i = 0; i < DOMAINS; i++)
	{
		pg_atomic_init_u64(&c->domains[i].resets, 0);
		pg_atomic_init_u64(&c->domains[i].moves, 0);
	}
	c->area = DSA_HANDLE_INVALID;
}

static Control *
attach_control(void)
{
	Control    *c;

	c = fairq_named_segment("fairq", sizeof(Control), init_control);
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
	dshash_parameters params = {
		.key_size = sizeof(LaneKey),
		.entry_size = sizeof(LaneEntry),
		FAIRQ_DSHASH_MEM_FUNCTIONS
	};

	if (control == NULL)
		control = attach_control();
	params.tranche_id = control->area_tranche;

	oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (control->area == DSA_HANDLE_INVALID)
	{
		dsa_area   *new_area = dsa_create(control->area_tranche);

		/* an error from here on detaches and so destroys it: not pinned yet */
		control->group_sets = make_group_sets(new_area);
		lanes = dshash_create(new_area, &params, NULL);
		control->lanes = dshash_get_hash_table_handle(lanes);
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
		lanes = dshash_attach(area, &params, control->lanes, NULL);
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
init_lane(FairqLane *lane)
{
	memset(lane, 0, sizeof(FairqLane));
	LWLockInitialize(&lane->lock, control->lane_tranche);
	lane->domain = domain_index();
	lane->pos = FAIRQ_ADDR_NONE;
	lane->first = lane->cursor = -1;
	for (int i = 0; i < FAIRQ_RING; i++)
		lane->ring[i] = FAIRQ_ADDR_MAX;
	for (int i = 0; i < FAIRQ_COUNTERS; i++)
		pg_atomic_init_u64(&lane->counters[i], 0);
}

/* Find or make a lane.  The pointer stays good as long as the server runs. */
FairqLane *
fairq_shmem_lane(int32 queue_id, int priority)
{
	LaneKey		key = {
		.database = MyDatabaseId,
		.task = fairq_catalog()->task,
		.queue_id = queue_id,
		.priority = priority
	};
	LaneEntry  *entry;
	bool		found;
	dsa_pointer ptr;

	if (group_sets == NULL)
		attach();

	entry = dshash_find_or_insert(lanes, &key, &found);
	if (!found)
	{
		ptr = dsa_allocate_extended(area, sizeof(FairqLane), DSA_ALLOC_NO_OOM);
		if (!DsaPointerIsValid(ptr))
		{
			dshash_delete_entry(lanes, entry);
			ereport(ERROR,
					errcode(ERRCODE_OUT_OF_MEMORY),
					errmsg("out of shared memory"));
		}
		init_lane(dsa_get_address(area, ptr));
		entry->lane = ptr;
	}
	ptr = entry->lane;
	dshash_release_lock(lanes, entry);
	return dsa_get_address(area, ptr);
}
