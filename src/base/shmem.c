/*
 * shmem.c
 *		Shared memory: one block of fixed size, and this extension's part of
 *		it.
 *
 * All shared memory of fairq is in one block, whose size is
 * fairq.shared_memory.  With fairq in shared_preload_libraries the block is
 * part of the main segment.  Otherwise the first backend that needs it creates
 * a segment of dynamic shared memory, and pins it; the others find its handle
 * by name (compat.h).
 *
 * At the beginning of the block are structs that always exist.  Behind them,
 * in the block's first half, is the cache of groups (entry.c).  The rest is an
 * area of PostgreSQL's allocator, a DSA made in place, which holds queues,
 * sets of groups and counters.  That area never gets a second segment.  So a
 * backend maps nothing more once it has attached, and pointers are always
 * valid, even in callbacks.
 *
 * When the area is full, a call that needs more of it fails before it has
 * changed anything.  The end of a transaction allocates no memory in the area.
 *
 * The block can be lost at any time, by a crash or an immediate shutdown.
 * fairq then reads the tables again.
 *
 * The hints of an extension are found by a key: the database's OID, a hash
 * that identifies its creation, and the OID of fairq.task.  So an extension
 * that was dropped and created again does not see hints of the old one.  The
 * same holds for a new database with an old OID.
 *
 * Data per seat is in chunks, so that the data can grow but never moves.  The
 * first chunk is for seats 0 to 63, the next for 64 to 127, then for 128 to
 * 255, and so on.  A chunk is allocated when the first of its seats is used,
 * before the lane is locked, because the allocation can fail.  With these
 * sizes, 26 chunks are enough for all seats, and at most half of the memory is
 * unused.  A chunk is put in its place by a compare-and-exchange, and stays
 * there as long as the queue exists.
 *
 * Locking: AddinShmemInitLock while the segment is made or found.  The
 * comments of the structs name the lock of each field; README has the order.
 */
#include "postgres.h"

#include <limits.h>
#include <sys/stat.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "catalog.h"
#include "compat.h"
#include "shadow.h"
#include "shmem.h"

/*
 * Each version that changes anything in shared memory, even the meaning of a
 * field, increments this.  A session with an old library must not share the
 * block with a session with a new one.
 */
#define LAYOUT 41

/* name of the block, or of its handle */
#define NAME "fairq"

/* limits of fairq.shared_memory, in MB: the default, and the minimum */
#define DEFAULT_SIZE 24
#define LEAST_SIZE 4

/* the maximum: the largest size of an area's single segment */
#define MOST_SIZE (SIZEOF_SIZE_T > 4 ? 1024 * 1024 / 2 : 64)

#define MEGABYTE ((Size) 1024 * 1024)

/*
 * The beginning of the block.  Fields are constant once the block is made,
 * except atomic ones, the domains and the registry, whose comments describe
 * their protection.
 */
typedef struct Arena
{
	uint32		layout;			/* LAYOUT of the library that made the block;
								 * first field */
	int			tranches[FAIRQ_TRANCHES];
	Size		size;			/* bytes of the block */
	Size		area;			/* offset of the area in the block */
	uint32		nsets;			/* number of sets in the cache */
	pg_atomic_uint64 allocated; /* bytes that fairq_allocate() has given out */
	pg_atomic_uint32 next_lane_no;
	FairqDomain domains[FAIRQ_DOMAINS];
	FairqRegistry registry;
} Arena;

/* The header of each allocation. */
typedef union Header
{
	Size		size;			/* bytes, including this header */
	char		aligned[MAXIMUM_ALIGNOF];
} Header;

static const char *const tranche_names[] = {
	[FAIRQ_REGISTRY_TRANCHE] = "fairq",
	[FAIRQ_AREA_TRANCHE] = "fairq_area",
	[FAIRQ_LANE_TRANCHE] = "fairq_lane",
	[FAIRQ_TALLY_TRANCHE] = "fairq_tally"
};

/* fairq.shared_memory */
static int	size_mb = DEFAULT_SIZE;

/* the block in the main segment; NULL: there is none */
static Arena *reserved = NULL;

/* this backend's view of the block */
static Arena *arena = NULL;
FairqCache	fairq_cache;
char	   *fairq_area_base = NULL;
dsa_area   *fairq_area = NULL;

/* called to free memory in the area */
static void (*make_room) (void) = NULL;

static shmem_request_hook_type next_request = NULL;
static shmem_startup_hook_type next_startup = NULL;

/* --------------------------------------------------------------------- */

/* The addresses of the cache's sets, and of the entries after them. */
static FairqGroupSet *
sets_of(Arena *a)
{
	return (FairqGroupSet *) ((char *) a + CACHELINEALIGN(sizeof(Arena)));
}

static FairqGroup *
ways_of(Arena *a)
{
	return (FairqGroup *) CACHELINEALIGN(sets_of(a) + a->nsets);
}

static void
init_domain(FairqDomain *domain)
{
	pg_atomic_init_u64(&domain->resets, 0);
	pg_atomic_init_u64(&domain->moves, 0);
	pg_atomic_init_u64(&domain->group_changes, 0);
	pg_atomic_init_u64(&domain->settings, 0);
	ConditionVariableInit(&domain->several);
	SpinLockInit(&domain->ids.mutex);
	domain->ids.left = 0;
	domain->ids.source.lsn = InvalidXLogRecPtr;
}

static void
init_registry(FairqRegistry *r, int tranche)
{
	LWLockInitialize(&r->lock, tranche);
	r->queues = r->counters = InvalidDsaPointer;
	r->free = r->dropped = InvalidDsaPointer;
	pg_atomic_init_u32(&r->nhints, 0);
	pg_atomic_init_u32(&r->ncounters, 0);
	pg_atomic_init_u32(&r->many_counters, FAIRQ_MANY_COUNTERS);
	pg_atomic_init_u32(&r->crowded, 0);
	pg_atomic_init_u64(&r->swept_at, 0);
	pg_atomic_init_u64(&r->tenures, 0);
}

/*
 * Mark all ways as free.  The memory of entries is not touched, so a new block
 * costs less memory than one that has been used.
 */
static void
init_cache(Arena *a)
{
	FairqGroupSet *sets = sets_of(a);

#ifdef FAIRQ_SETS
	/* tests build with few sets, so entries are evicted constantly */
	a->nsets = FAIRQ_SETS;
#else
	a->nsets = a->size / 2 /
		(sizeof(FairqGroupSet) + FAIRQ_SET_WAYS * sizeof(FairqGroup));
#endif
	memset(sets, 0, sizeof(FairqGroupSet) * a->nsets);
	for (uint32 i = 0; i < a->nsets; i++)
		SpinLockInit(&sets[i].mutex);
}

/* Make the rest of the block one area, for as long as the server runs. */
static void
init_area(Arena *a)
{
	char	   *place = (char *)
		CACHELINEALIGN(ways_of(a) + (Size) a->nsets * FAIRQ_SET_WAYS);
	Size		size = (char *) a + a->size - place;
	int			tranche = a->tranches[FAIRQ_AREA_TRANCHE];
	dsa_area   *made = dsa_create_in_place(place, size, tranche, NULL);

	dsa_pin(made);
	dsa_set_size_limit(made, size);
	dsa_detach(made);
	a->area = place - (char *) a;
	pg_atomic_init_u64(&a->allocated, 0);
}

/* Fill in a new block. */
static void
init_arena(Arena *a, Size size)
{
	a->layout = LAYOUT;
	for (int i = 0; i < FAIRQ_TRANCHES; i++)
		a->tranches[i] = fairq_new_tranche(tranche_names[i]);
	a->size = size;
	pg_atomic_init_u32(&a->next_lane_no, 1);
	for (int i = 0; i < FAIRQ_DOMAINS; i++)
		init_domain(&a->domains[i]);
	init_registry(&a->registry, a->tranches[FAIRQ_REGISTRY_TRANCHE]);
	init_cache(a);
	init_area(a);
}

/* --------------------------------------------------------------------- */

/* At the start of the server: make the block part of the main segment. */
static void
request_block(void)
{
	if (next_request)
		next_request();
	RequestAddinShmemSpace(size_mb * MEGABYTE);
}

/*
 * Find the block in the main segment.  If the segment is not new, because
 * processes are not forked, the block exists.
 */
static void
reserve_block(void)
{
	bool		found;

	if (next_startup)
		next_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	reserved = ShmemInitStruct(NAME, size_mb * MEGABYTE, &found);
	if (!found)
		init_arena(reserved, size_mb * MEGABYTE);
	LWLockRelease(AddinShmemInitLock);
}

/*
 * When the library is loaded: define the setting, and reserve the block if the
 * server preloads the library.
 */
void
fairq_shmem_init(void)
{
	bool		preload = process_shared_preload_libraries_in_progress;

	DefineCustomIntVariable("fairq.shared_memory",
							"Sets the size of fairq's shared memory.",
							"A new value takes effect at the first use after the server's start.",
							&size_mb, DEFAULT_SIZE, LEAST_SIZE, MOST_SIZE,
							preload ? PGC_POSTMASTER : PGC_SIGHUP,
							GUC_UNIT_MB, NULL, NULL, NULL);
	if (!preload)
		return;
	next_request = shmem_request_hook;
	shmem_request_hook = request_block;
	next_startup = shmem_startup_hook;
	shmem_startup_hook = reserve_block;
}

/* Returns the segment with the block, and makes it if it does not exist. */
static Arena *
find_segment(void)
{
	dsm_handle *handle;
	dsm_segment *segment;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	handle = fairq_shared_handle(NAME);
	if (*handle == DSM_HANDLE_INVALID)
	{
		segment = dsm_create(size_mb * MEGABYTE, 0);
		init_arena(dsm_segment_address(segment), size_mb * MEGABYTE);
		dsm_pin_segment(segment);
		dsm_pin_mapping(segment);
		*handle = dsm_segment_handle(segment);
	}
	else if ((segment = dsm_find_mapping(*handle)) == NULL)
	{
		segment = dsm_attach(*handle);
		if (segment == NULL)
			elog(ERROR, "could not map dynamic shared memory segment");
		dsm_pin_mapping(segment);
	}
	LWLockRelease(AddinShmemInitLock);
	return dsm_segment_address(segment);
}

/* Error context: how to proceed if the block cannot be allocated. */
static void
explain(void *arg)
{
	if (ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_INSUFFICIENT_RESOURCES)
		errhint("fairq needs %d MB of shared memory (fairq.shared_memory). Make dynamic shared memory larger (in a container, that of /dev/shm), or add fairq to shared_preload_libraries and restart the server.",
				size_mb);
}

/* Attach to the block, or fail if a different version made it. */
static void
attach_arena(void)
{
	arena = reserved != NULL ? reserved : find_segment();
	if (arena->layout != LAYOUT)
	{
		arena = NULL;
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("shared memory was set up by another version of fairq"),
				errhint("Restart the server."));
	}
	for (int i = 0; i < FAIRQ_TRANCHES; i++)
		fairq_register_tranche(arena->tranches[i], tranche_names[i]);
}

static void
attach_area(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	char	   *place = (char *) arena + arena->area;

	fairq_area = dsa_attach_in_place(place, NULL);
	dsa_pin_mapping(fairq_area);
	before_shmem_exit(dsa_on_shmem_exit_release_in_place,
					  PointerGetDatum(place));
	MemoryContextSwitchTo(old);
	fairq_area_base = place;
}

/*
 * Whether this backend has attached, or can attach without an allocation that
 * may fail.
 */
bool
fairq_shmem_can_be_had(void)
{
	return fairq_cache.nsets > 0 || reserved != NULL;
}

/*
 * Attach to shared memory, and make it if it does not exist.  Returns the
 * registry in it.
 */
FairqRegistry *
fairq_shmem_attach(void)
{
	ErrorContextCallback callback = {
		.callback = explain,
		.previous = error_context_stack
	};

	if (fairq_cache.nsets > 0)
		return &arena->registry;
	error_context_stack = &callback;
	if (arena == NULL)
		attach_arena();
	if (fairq_area == NULL)
		attach_area();
	error_context_stack = callback.previous;
	fairq_cache.sets = sets_of(arena);
	fairq_cache.ways = ways_of(arena);
	fairq_cache.nsets = arena->nsets;
	return &arena->registry;
}

/* --------------------------------------------------------------------- */

Size
fairq_area_size(void)
{
	return arena->size - arena->area;
}

/* Set the function that is called when the area is full, to free memory. */
void
fairq_when_full(void (*free_some) (void))
{
	make_room = free_some;
}

/* For ereport(): the area is full. */
int
fairq_errfull(void)
{
	errcode(ERRCODE_DISK_FULL);
	errmsg("fairq's shared memory is full");
	errhint("Set fairq.shared_memory to more than %d MB and restart the server, or drop queues that are not used.",
			(int) (arena->size / MEGABYTE));
	return 0;
}

/*
 * In PG_CATCH(): end an error with the given code, in the given context.
 * Returns false for any other error.  The caller held no LWLock.
 */
bool
fairq_catch(int sqlerrcode, MemoryContext context)
{
	if (geterrcode() != sqlerrcode)
		return false;
	/* if a hash table could not grow, this backend still has its locks */
	LWLockReleaseAll();
	MemoryContextSwitchTo(context);
	FlushErrorState();
	return true;
}

/*
 * Allocate memory, all of it zero; InvalidDsaPointer if there is not enough.
 */
dsa_pointer
fairq_allocate_if_free(Size size)
{
	Header	   *header;
	dsa_pointer ptr;

	size += sizeof(Header);
	ptr = dsa_allocate_extended(fairq_area, size, DSA_ALLOC_HUGE |
								DSA_ALLOC_ZERO | DSA_ALLOC_NO_OOM);
	if (!DsaPointerIsValid(ptr))
		return InvalidDsaPointer;
	header = fairq_at(ptr);
	Assert(header == dsa_get_address(fairq_area, ptr));
	header->size = size;
	pg_atomic_fetch_add_u64(&arena->allocated, size);
	return ptr + sizeof(Header);
}

/*
 * Allocate memory, or raise an error.  If the area is full, this first frees
 * memory that is kept for reuse, so no lock may be held.
 */
dsa_pointer
fairq_allocate(Size size)
{
	dsa_pointer ptr = fairq_allocate_if_free(size);

	if (!DsaPointerIsValid(ptr))
	{
		make_room();
		ptr = fairq_allocate_if_free(size);
	}
	if (!DsaPointerIsValid(ptr))
		ereport(ERROR, fairq_errfull(),
				errdetail("Failed to allocate %zu bytes.", size));
	return ptr;
}

/* Cannot fail. */
void
fairq_free(dsa_pointer ptr)
{
	Header	   *header = fairq_at(ptr - sizeof(Header));

	pg_atomic_fetch_sub_u64(&arena->allocated, header->size);
	dsa_free(fairq_area, ptr - sizeof(Header));
}

/* Free all chunks.  The queue is gone, so no backend uses them. */
void
fairq_chunks_free(FairqChunks *chunks)
{
	for (int i = 0; i < FAIRQ_CHUNKS; i++)
	{
		dsa_pointer ptr = pg_atomic_exchange_u64(&chunks->chunk[i],
												 InvalidDsaPointer);

		if (DsaPointerIsValid(ptr))
			fairq_free(ptr);
	}
}

/*
 * Make a chunk of the given size unless another backend makes it first.  fill
 * may be NULL.  The chunk of a copy is private to this backend, which accesses
 * it like a shared one.
 */
void
fairq_chunk_make(FairqChunks *chunks, int chunk, Size size,
				 FairqChunkFill fill)
{
	bool		own = fairq_in_shadow(chunks);
	uint64		none = InvalidDsaPointer;
	dsa_pointer ptr = !own ? fairq_allocate(size) :
		(uintptr_t) fairq_shadow_alloc(size) - (uintptr_t) fairq_area_base;

	if (fill != NULL)
		fill(fairq_at(ptr), chunk);
	pg_write_barrier();
	if (!pg_atomic_compare_exchange_u64(&chunks->chunk[chunk], &none, ptr) &&
		!own)
		fairq_free(ptr);
}

/* --------------------------------------------------------------------- */

/*
 * Find the size of the block and how much of it is in use, without the
 * registry's hash tables.
 */
void
fairq_shmem_use(FairqShmemUse *use)
{
	memset(use, 0, sizeof(*use));
	use->size = arena->size;
	for (uint32 i = 0; i < arena->nsets; i++)
	{
		for (int way = 0; way < FAIRQ_SET_WAYS; way++)
			use->nentries += fairq_cache.sets[i].keys[way].lane_no != 0;
	}
	use->area_size = fairq_area_size();
	use->allocated = pg_atomic_read_u64(&arena->allocated);
	use->reserved = arena == reserved;
}

int
fairq_tranche(FairqTranche tranche)
{
	return arena->tranches[tranche];
}

/* The domain at an index, for callbacks, which must not look up an OID. */
FairqDomain *
fairq_domain_at(int32 index)
{
	return &arena->domains[index];
}

uint32
fairq_new_lane_no(void)
{
	uint32		lane_no;

	/* skip 0, which means "none", when the numbers wrap around */
	do
		lane_no = pg_atomic_fetch_add_u32(&arena->next_lane_no, 1);
	while (lane_no == 0);
	return lane_no;
}

/*
 * Record that a group got no entry, because all possible entries are in use.
 */
void
fairq_say_crowded(void)
{
	if (pg_atomic_read_u32(&arena->registry.crowded) == 0)
		pg_atomic_write_u32(&arena->registry.crowded, 1);
}

/*
 * Returns a hash that distinguishes databases that had the same OID.  It is
 * computed from the file that CREATE DATABASE writes and that does not change.
 * A backend stays in one database.
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

/*
 * The key of a queue, of a group's counter or of an extension, in this
 * database.
 */
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

/*
 * The index of the domain of this database's fairq.task.  It is cached until
 * the table's OID changes, because hot paths call this for each row.
 */
int32
fairq_domain_index(void)
{
	static Oid	known_task = InvalidOid;
	static int32 index;
	Oid			task = fairq_relid(FAIRQ_TASK);

	if (task != known_task)
	{
		FairqQueueKey key = fairq_key_of(task, 0, -1);

		index = hash_bytes((const unsigned char *) &key, sizeof(key)) %
			FAIRQ_DOMAINS;
		known_task = task;
	}
	return index;
}

FairqDomain *
fairq_domain(void)
{
	fairq_shmem_attach();
	return fairq_domain_at(fairq_domain_index());
}
