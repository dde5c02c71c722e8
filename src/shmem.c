/*
 * shmem.c
 *		Shared memory, had on demand: no shared_preload_libraries.
 *
 * A small control struct lives in the main shared memory segment (its slack
 * is small, and shared with other extensions) or, from version 17 on, in a
 * named dynamic segment.  Behind it stands a pinned DSA area with the groups, a
 * cache of fixed size, and with what registry.c keeps there.
 *
 * Each backend maps what it may touch before it notes a change of it.  So
 * commit and abort callbacks can follow pointers into the area without
 * allocating, attaching or failing.
 *
 * All of it can be lost at any time (a crash, an immediate shutdown) and is
 * then read off the tables again.  What is kept of a database is known by the
 * database's OID and birth and the OID of fairq.task, so neither an extension
 * that was dropped and created again nor a database that was made anew under
 * its old OID meets what was known of the old one.
 *
 * Where an allocation fails (dynamic shared memory is a file system, and can be
 * full), nothing is left behind that the next attempt would trip over, and the
 * error says what can be done.
 *
 * Locking: control->lock is held while the area is made, and nothing else is
 * taken under it but locks of the DSA.  Which lock protects what else is said
 * in shmem.h and lane.h.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/dsa.h"
#include "utils/memutils.h"

#include "compat.h"
#include "lane.h"
#include "registry.h"
#include "shmem.h"
#include "store.h"

#define DOMAINS 64

/*
 * To be counted up by each version that changes anything in shared memory, be
 * it the meaning of a field: sessions that have an old library and such as
 * have a new one must not share it.
 */
#define LAYOUT 7

typedef struct Control
{
	uint32		layout;			/* LAYOUT of the library that made it */
	LWLock		lock;
	int			control_tranche;
	int			area_tranche;
	int			lane_tranche;
	pg_atomic_uint32 next_lane_no;
	FairqDomain domains[DOMAINS];
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
		pg_atomic_init_u64(&c->domains[i].forgets, 0);
		pg_atomic_init_u64(&c->domains[i].uncounted, 0);
		pg_atomic_init_u64(&c->domains[i].moves, 0);
		pg_atomic_init_u64(&c->domains[i].group_changes, 0);
		pg_atomic_init_u64(&c->domains[i].settings, 0);
		SpinLockInit(&c->domains[i].ids.mutex);
		c->domains[i].ids.left = 0;
		c->domains[i].ids.source.lsn = InvalidXLogRecPtr;
	}
	c->area = DSA_HANDLE_INVALID;
	fairq_registry_init(&c->registry, c->control_tranche);
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

/* Error context: what to do when shared memory cannot be had. */
static void
explain(void *arg)
{
	if (ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_INSUFFICIENT_RESOURCES)
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

/*
 * What tells a database from one that had its OID before: the file that CREATE
 * DATABASE writes, and which does not change.  A backend's database stays the
 * same.
 */
static uint64
database_born(void)
{
	static uint64 born = 0;
	char		path[MAXPGPATH];
	struct stat st;
	uint64		made[3];

	if (born != 0)
		return born;
	snprintf(path, sizeof(path), "%s/PG_VERSION", DatabasePath);
	if (stat(path, &st) != 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not stat file \"%s\": %m", path));
	made[0] = st.st_ino;
	made[1] = st.st_mtim.tv_sec;
	made[2] = st.st_mtim.tv_nsec;
	born = hash_bytes_extended((const unsigned char *) made, sizeof(made), 0);
	return born;
}

/* What belongs to that fairq.task of this database. */
FairqQueueKey
fairq_key_of(Oid task, int32 queue_id, int32 group_no)
{
	FairqQueueKey key = {
		.born = database_born(),
		.database = MyDatabaseId,
		.task = task,
		.queue_id = queue_id,
		.group_no = group_no
	};

	return key;
}

FairqQueueKey
fairq_key(int32 queue_id, int32 group_no)
{
	return fairq_key_of(fairq_catalog()->task, queue_id, group_no);
}

/* Kept until fairq.task is another one: hot paths ask for it row by row. */
int32
fairq_domain_index(void)
{
	static Oid	known_task = InvalidOid;
	static int32 index;
	Oid			task = fairq_catalog()->task;

	if (task != known_task)
	{
		FairqQueueKey key = fairq_key_of(task, 0, -1);

		index = hash_bytes((const unsigned char *) &key, sizeof(key)) % DOMAINS;
		known_task = task;
	}
	return index;
}

FairqDomain *
fairq_domain(void)
{
	if (control == NULL)
		control = attach_control();
	return fairq_domain_at(fairq_domain_index());
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
