/*
 * shmem.c
 *		Shared memory, had on demand: no shared_preload_libraries.
 *
 * A control struct lies in a segment of dynamic shared memory that is found by
 * name.  From version 17 on PostgreSQL's registry of such segments has it.
 * Before, its handle lies in the slack of the main shared memory segment, which
 * is small, and shared with the lock table, which gives nothing back: if that
 * has filled before fairq's first use there may be no room for the handle until
 * a restart.  With fairq in shared_preload_libraries that room is reserved at
 * the server's start, which is all that this does.
 *
 * Behind the control struct stands a pinned DSA area with the groups, a cache of
 * fixed size, and with what registry.c keeps there.
 *
 * Each backend maps what it may touch before it notes a change of it.  So
 * commit and abort callbacks can follow pointers into the area without
 * allocating, attaching or failing.
 *
 * All of it can be lost at any time (a crash, an immediate shutdown) and is
 * then read off the tables again.  Whose what is, by keys, is domain.c's affair.
 *
 * Where an allocation fails (dynamic shared memory is a file system, and can be
 * full), nothing is left behind that the next attempt would trip over, and the
 * error says what can be done.
 *
 * Locking: control->lock is held while the area is made, and nothing else is
 * taken under it but locks of the DSA.  Which lock protects what else is said
 * in README, under "What is in shared memory, and its locks".
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/dsa.h"
#include "utils/memutils.h"

#include "compat.h"
#include "shmem.h"

/*
 * To be counted up by each version that changes anything in shared memory, be
 * it the meaning of a field: sessions that have an old library and such as
 * have a new one must not share it.
 */
#define LAYOUT 23

/* name of the segment */
#define SEGMENT "fairq"

typedef struct Control
{
	uint32		layout;			/* LAYOUT of the library that made it */
	LWLock		lock;
	int			control_tranche;
	int			area_tranche;
	int			lane_tranche;
	int			tally_tranche;
	pg_atomic_uint32 next_lane_no;
	FairqDomain domains[FAIRQ_DOMAINS];
	/* these are under lock, and constant once area is valid */
	dsa_handle	area;
	dsa_pointer cache;
	FairqRegistry registry;
} Control;

/* this backend's view */
static Control *control = NULL;
static MemoryContext area_context = NULL;
static dsa_area *area = NULL;
static FairqCache *cache = NULL;

static void
init_registry(FairqRegistry *r, int tranche)
{
	LWLockInitialize(&r->lock, tranche);
	r->queues = r->counters = r->extensions = InvalidDsaPointer;
	r->free = r->dropped = InvalidDsaPointer;
	pg_atomic_init_u32(&r->ncounters, 0);
	pg_atomic_init_u32(&r->many_counters, FAIRQ_MANY_COUNTERS);
	pg_atomic_init_u32(&r->crowded, 0);
	pg_atomic_init_u64(&r->swept_at, 0);
	pg_atomic_init_u64(&r->tenures, 0);
}

static void
init_control(FAIRQ_INIT_ARGS)
{
	Control    *c = ptr;

	c->layout = LAYOUT;
	c->control_tranche = fairq_new_tranche("fairq");
	c->area_tranche = fairq_new_tranche("fairq_area");
	c->lane_tranche = fairq_new_tranche("fairq_lane");
	c->tally_tranche = fairq_new_tranche("fairq_tally");
	LWLockInitialize(&c->lock, c->control_tranche);
	pg_atomic_init_u32(&c->next_lane_no, 1);
	for (int i = 0; i < FAIRQ_DOMAINS; i++)
	{
		pg_atomic_init_u64(&c->domains[i].resets, 0);
		pg_atomic_init_u64(&c->domains[i].forgets, 0);
		pg_atomic_init_u64(&c->domains[i].uncounted, 0);
		pg_atomic_init_u64(&c->domains[i].moves, 0);
		pg_atomic_init_u64(&c->domains[i].group_changes, 0);
		pg_atomic_init_u64(&c->domains[i].settings, 0);
		ConditionVariableInit(&c->domains[i].several);
		SpinLockInit(&c->domains[i].ids.mutex);
		c->domains[i].ids.left = 0;
		c->domains[i].ids.source.lsn = InvalidXLogRecPtr;
	}
	c->area = DSA_HANDLE_INVALID;
	init_registry(&c->registry, c->control_tranche);
}

static shmem_request_hook_type next_request = NULL;
static shmem_startup_hook_type next_startup = NULL;

static void
request_segment(void)
{
	if (next_request)
		next_request();
	fairq_request_segment();
}

static void
reserve_segment(void)
{
	if (next_startup)
		next_startup();
	fairq_reserve_segment(SEGMENT);
}

/* When the server starts: reserve room that may be lacking later. */
void
fairq_shmem_preload(void)
{
	next_request = shmem_request_hook;
	shmem_request_hook = request_segment;
	next_startup = shmem_startup_hook;
	shmem_startup_hook = reserve_segment;
}

/*
 * Error context: what to do when shared memory cannot be had.  The next call frees
 * idle counters first (fairq_shmem_make_room()).
 */
static void
explain(void *arg)
{
	if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_INSUFFICIENT_RESOURCES)
		return;
	if (control != NULL)
		pg_atomic_write_u32(&control->registry.many_counters, 0);
	else if (FAIRQ_SEGMENT_IS_RESERVABLE &&
			 geterrcode() == ERRCODE_OUT_OF_MEMORY)
	{
		errhint("If the lock table has filled since the server started, add fairq to shared_preload_libraries, which reserves room for it, and restart the server.");
		return;
	}
	errhint("If it is dynamic shared memory that is full, make it larger (in a container, that of /dev/shm), or drop queues that are not used.");
}

/*
 * From here to fairq_explain_end(), errors for want of memory tell what can be
 * done about it.
 */
void
fairq_explain_begin(ErrorContextCallback *callback)
{
	callback->callback = explain;
	callback->arg = NULL;
	callback->previous = error_context_stack;
	error_context_stack = callback;
}

void
fairq_explain_end(ErrorContextCallback *callback)
{
	error_context_stack = callback->previous;
}

static Control *
attach_control(void)
{
	ErrorContextCallback callback;
	Control    *c;

	fairq_explain_begin(&callback);
	c = fairq_named_segment(SEGMENT, sizeof(Control), init_control);
	fairq_explain_end(&callback);
	if (c->layout != LAYOUT)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("shared memory was set up by another version of fairq"),
				errhint("Restart the server."));
	fairq_register_tranche(c->control_tranche, "fairq");
	fairq_register_tranche(c->area_tranche, "fairq_area");
	fairq_register_tranche(c->lane_tranche, "fairq_lane");
	fairq_register_tranche(c->tally_tranche, "fairq_tally");
	return c;
}

/* All ways are free.  Memory of entries is left untouched; see entry.c. */
static dsa_pointer
make_cache(dsa_area *dsa)
{
	dsa_pointer ptr = dsa_allocate_extended(dsa, sizeof(FairqCache),
											DSA_ALLOC_HUGE);
	FairqCache *made = dsa_get_address(dsa, ptr);

	memset(made->sets, 0, sizeof(made->sets));
	for (int i = 0; i < FAIRQ_SETS; i++)
		SpinLockInit(&made->sets[i].mutex);
	return ptr;
}

/*
 * Attach to the area, or make it.  An error on the way destroys a new one: it
 * is not pinned yet.
 */
static void
attach_area(void)
{
	MemoryContext oldcontext;

	if (control == NULL)
		control = attach_control();
	if (area == NULL)
	{
		/* what an attempt that has failed has allocated */
		if (area_context != NULL)
			MemoryContextReset(area_context);
		else
			area_context = AllocSetContextCreate(TopMemoryContext,
												 "fairq shared memory",
												 ALLOCSET_DEFAULT_SIZES);
		oldcontext = MemoryContextSwitchTo(area_context);
		LWLockAcquire(&control->lock, LW_EXCLUSIVE);
		if (control->area == DSA_HANDLE_INVALID)
		{
			dsa_area   *new_area = dsa_create(control->area_tranche);

			control->cache = make_cache(new_area);
			dsa_pin(new_area);
			dsa_pin_mapping(new_area);
			control->area = dsa_get_handle(new_area);
			area = new_area;
		}
		else
		{
			dsa_area   *old_area = dsa_attach(control->area);

			dsa_pin_mapping(old_area);
			area = old_area;
		}
		LWLockRelease(&control->lock);
		MemoryContextSwitchTo(oldcontext);
	}
	cache = dsa_get_address(area, control->cache);
}

/* Has any backend made the area? */
bool
fairq_area_is_made(void)
{
	bool		made;

	if (cache != NULL)
		return true;
	if (control == NULL)
		control = attach_control();
	LWLockAcquire(&control->lock, LW_SHARED);
	made = control->area != DSA_HANDLE_INVALID;
	LWLockRelease(&control->lock);
	return made;
}

/* The area; it is made if it is not there. */
dsa_area *
fairq_area(void)
{
	if (cache == NULL)
	{
		ErrorContextCallback callback;

		fairq_explain_begin(&callback);
		attach_area();
		fairq_explain_end(&callback);
	}
	return area;
}

FairqRegistry *
fairq_registry_shared(void)
{
	return &control->registry;
}

int
fairq_area_tranche(void)
{
	return control->area_tranche;
}

int
fairq_lane_tranche(void)
{
	return control->lane_tranche;
}

int
fairq_tally_tranche(void)
{
	return control->tally_tranche;
}

/* Have the control struct, so that its domains can be asked for. */
void
fairq_shmem_have(void)
{
	if (control == NULL)
		control = attach_control();
}

/* For callbacks, which must not look up anything. */
FairqDomain *
fairq_domain_at(int32 index)
{
	return &control->domains[index];
}

FairqCache *
fairq_cache(void)
{
	return cache;
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

/* Note that a group got no entry, as all that it could have are in use. */
void
fairq_say_crowded(void)
{
	if (pg_atomic_read_u32(&control->registry.crowded) == 0)
		pg_atomic_write_u32(&control->registry.crowded, 1);
}
