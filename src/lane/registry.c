/*
 * registry.c
 *		The queues and counters in shared memory: how to find, make and free
 *		them.
 *
 * There are two hash tables in the area of shmem.c.  One contains queues and
 * extensions; each CREATE EXTENSION in a database makes one extension.  The
 * other one contains counters of groups.
 *
 * The hints of a deleted queue are given back for use by another queue.  They
 * are never freed, so a pointer to them can always be followed.  If a backend
 * holds a lock on the queue, the hints continue to belong to this queue.  They
 * are given back
 *
 * - when drop_queue has committed, or the create_queue that made them has been
 *	 rolled back (transaction.c).  Then no other transaction has a lock on the
 *	 queue, so none has pending changes of its lanes, or holds its counters.
 *	 Two kinds of pointers may remain.  A session asleep in fairq.wait has one,
 *	 but holds no lock.  The backends' caches (queue.c) have others, through
 *	 which only the version is read, and the version never decreases.  So hints
 *	 at which a session sleeps are kept in a list of their own ("dropped")
 *	 until the session has left.  Then the memory for the queue's groups is
 *	 freed (shmem.c).
 *
 * - when the extension or its database is gone.  No backend with this library
 *	 is notified of that (DROP DATABASE runs in another database).  So a sweep
 *	 searches for such hints when an extension is new in shared memory, or when
 *	 the cache of groups has no room ("crowded").  fairq.maintain() for all
 *	 queues also starts a sweep.
 *
 * If a queue's row was deleted by SQL, no transaction has waited for the
 * queue's users.  The queue's hints stay until fairq.maintain() for all queues
 * can lock the queue (maintain.c), or until the extension is gone.
 *
 * A dump can restore the number of a queue that is gone.  So hints that were
 * given back are no longer found.  New hints get a new tenure number, which
 * invalidates counters of a queue with the same number.
 *
 * An allocation that fails leaves no incomplete entry, because all memory of
 * an entry is allocated before the entry is made.
 *
 * A counter is freed when it is idle and not pinned.  If its queue is gone, it
 * is freed even if it is not idle.  A search for such counters begins when
 * there are twice as many counters as the last search left.  That costs a
 * constant time per new counter.  A search also begins when shared memory is
 * full.
 *
 * A queue's version increases with each change of its settings, of the
 * settings of one of its groups, and of its privileges.  A ring buffer holds
 * the last changes.  So a backend with settings of an older version rereads
 * only the groups that have changed since.  If it has missed more changes than
 * the ring keeps, it reads all settings again.
 *
 * Locking: a partition of the table of counters, before one of the table of
 * queues.  Then a lane's lock, the mutex of a counter or of versions, or
 * registry->lock, and under the latter the locks of the DSA.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "lib/dshash.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "registry.h"
#include "seats.h"
#include "shadow.h"
#include "shmem.h"

/* bytes that hints take in the area: whole pages of the allocator */
#define HINTS_SIZE TYPEALIGN(4096, sizeof(FairqHints))

StaticAssertDecl(HINTS_SIZE == 3 * 4096,
				 "docs/performance.md has the memory of a queue");

/* least time between two sweeps for extensions that are gone */
#define SWEEP_EVERY (INT64CONST(1) * USECS_PER_SEC)

/* group_no in the key of an extension */
#define OF_EXTENSION (-2)

typedef struct QueueEntry
{
	FairqQueueKey key;
	dsa_pointer data;			/* FairqHints of the queue, or FairqTally of
								 * the extension */
} QueueEntry;

typedef struct CounterEntry
{
	FairqQueueKey key;
	FairqCounter counter;
} CounterEntry;

/* This backend's view of the registry; NULL until it has attached. */
static struct
{
	FairqRegistry *registry;	/* handles and lists */
	dshash_table *queues;		/* QueueEntry, by key */
	dshash_table *counters;		/* CounterEntry, by key */
}			view;

/* the extension that this backend has entered, or has found */
static Oid	entered = InvalidOid;
static dsa_pointer own_tally = InvalidDsaPointer;

static void free_some(void);

/* The key of a queue, a counter or an extension, by the present fairq.task. */
static FairqQueueKey
own_key(int32 queue_id, int32 group_no)
{
	return fairq_key_of(fairq_relid(FAIRQ_TASK), queue_id, group_no);
}

/* Attach to a table, or create it.  Does nothing if this has been done. */
static void
open_table(dshash_table **table, dsa_pointer *handle, size_t entry_size)
{
	dshash_parameters params = {
		.key_size = sizeof(FairqQueueKey),
		.entry_size = entry_size,
		FAIRQ_DSHASH_MEM_FUNCTIONS
	};

	if (*table != NULL)
		return;
	params.tranche_id = fairq_tranche(FAIRQ_AREA_TRANCHE);
	if (DsaPointerIsValid(*handle))
		*table = dshash_attach(fairq_area, &params, *handle, NULL);
	else
	{
		*table = dshash_create(fairq_area, &params, NULL);
		*handle = dshash_get_hash_table_handle(*table);
	}
}

static void
attach(void)
{
	MemoryContext old;

	if (view.counters != NULL)
		return;
	fairq_when_full(free_some);
	view.registry = fairq_shmem_attach();
	old = MemoryContextSwitchTo(TopMemoryContext);
	LWLockAcquire(&view.registry->lock, LW_EXCLUSIVE);
	open_table(&view.queues, &view.registry->queues, sizeof(QueueEntry));
	open_table(&view.counters, &view.registry->counters, sizeof(CounterEntry));
	LWLockRelease(&view.registry->lock);
	MemoryContextSwitchTo(old);
}

/* --------------------------------------------------------------------- */

/*
 * Find or make an entry, and lock it.  NULL if there is no room for it, or for
 * the buckets of a larger table.
 */
static void *
try_insert(dshash_table *table, const FairqQueueKey *key, bool *found)
{
	MemoryContext context = CurrentMemoryContext;
	void	   *volatile entry = NULL;

	PG_TRY();
	{
		entry = dshash_find_or_insert(table, key, found);
	}
	PG_CATCH();
	{
		/* the table is unchanged but locked, and no other lock is held */
		if (!fairq_catch(ERRCODE_OUT_OF_MEMORY, context))
			PG_RE_THROW();
	}
	PG_END_TRY();
	return entry;
}

/* Find or make an entry, and lock it.  No lock may be held. */
static void *
insert(dshash_table *table, const FairqQueueKey *key, bool *found)
{
	/* most entries exist, and finding an entry is cheaper than inserting it */
	void	   *entry = dshash_find(table, key, true);

	*found = entry != NULL;
	if (entry == NULL)
		entry = try_insert(table, key, found);
	if (entry == NULL)
	{
		free_some();
		entry = try_insert(table, key, found);
	}
	if (entry == NULL)
		ereport(ERROR, fairq_errfull());
	return entry;
}

/*
 * Increase the version; change is a group's number, or a constant of hints.h.
 */
void
fairq_version_up(FairqVersions *versions, int32 change)
{
	uint64		now;

	SpinLockAcquire(&versions->mutex);
	now = pg_atomic_read_u64(&versions->now);
	versions->changes[now % FAIRQ_CHANGES_KEPT] = change;
	pg_atomic_write_u64(&versions->now, now + 1);
	SpinLockRelease(&versions->mutex);
}

/* --------------------------------------------------------------------- */

/* Put hints into a list. */
static void
push_hints(dsa_pointer *list, FairqHints *hints)
{
	LWLockAcquire(&view.registry->lock, LW_EXCLUSIVE);
	hints->entry.next = *list;
	*list = hints->entry.self;
	LWLockRelease(&view.registry->lock);
}

/* Take hints off a list; NULL if it is empty. */
static FairqHints *
pop_hints(dsa_pointer *list)
{
	FairqHints *hints = NULL;

	LWLockAcquire(&view.registry->lock, LW_EXCLUSIVE);
	if (DsaPointerIsValid(*list))
	{
		hints = fairq_at(*list);
		*list = hints->entry.next;
	}
	LWLockRelease(&view.registry->lock);
	return hints;
}

/*
 * Initialize the fields that stay the same for all queues that use the hints.
 */
static void
init_once(FairqHints *hints, dsa_pointer self)
{
	hints->entry.self = self;
	SpinLockInit(&hints->versions.mutex);
	pg_atomic_init_u64(&hints->versions.now, 0);
	for (int i = 0; i < FAIRQ_CHANGES_KEPT; i++)
		hints->versions.changes[i] = FAIRQ_ALL_CHANGED;
	fairq_chunks_init(&hints->chunks);
	fairq_wakeup_init(&hints->wakeup);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		LWLockInitialize(&hints->lanes[priority].lock,
						 fairq_tranche(FAIRQ_LANE_TRANCHE));
}

/*
 * Whether the given number of additional hints would be too many.  Hints are
 * never freed, so a part of the area is reserved for groups.
 */
static bool
are_too_many(uint32 more)
{
	uint64		n = pg_atomic_read_u32(&view.registry->nhints) + more;

	return n * HINTS_SIZE > fairq_area_size() / 3 * 2;
}

/* Allocate n hints; InvalidDsaPointer if there is no room. */
static dsa_pointer
allocate_hints(uint32 n)
{
	dsa_pointer ptr = InvalidDsaPointer;

	if (n == 1)
		ptr = fairq_allocate(sizeof(FairqHints));
	else if (!are_too_many(n))
		ptr = fairq_allocate_if_free(sizeof(FairqHints) * n);
	if (DsaPointerIsValid(ptr) && are_too_many(n))
	{
		fairq_free(ptr);
		ptr = InvalidDsaPointer;
	}
	if (n == 1 && !DsaPointerIsValid(ptr))
		ereport(ERROR, fairq_errfull(),
				errdetail("Queues may use two thirds of the memory outside the cache of groups."));
	return ptr;
}

/*
 * Make hints.  They are allocated together, as many as fill a 16th of the
 * area, or fewer if there is no room.  They are never freed.  If hints were
 * allocated one by one, they would lie between pieces of the memory for
 * groups.  No large piece would then be free after that memory is freed.
 */
static FairqHints *
make_hints(void)
{
	uint32		n = Max(4, fairq_area_size() / 16 / HINTS_SIZE);
	dsa_pointer ptr = allocate_hints(n);
	FairqHints *all;

	while (!DsaPointerIsValid(ptr))
	{
		n /= 2;
		ptr = allocate_hints(n);
	}
	pg_atomic_fetch_add_u32(&view.registry->nhints, n);
	all = fairq_at(ptr);
	for (uint32 i = 0; i < n; i++)
	{
		init_once(&all[i], ptr + sizeof(FairqHints) * i);
		if (i > 0)
			push_hints(&view.registry->free, &all[i]);
	}
	return all;
}

static void
init_lane(FairqLane *lane, int priority)
{
	StaticAssertStmt(offsetof(FairqLane, lock) == 0, "the lock comes first");
	memset((char *) lane + sizeof(LWLock), 0,
		   sizeof(FairqLane) - sizeof(LWLock));
	lane->domain = fairq_domain_index();
	lane->priority = priority;
	lane->present.seat = lane->full.seat = FAIRQ_NO_SEAT;
	lane->clock = DT_NOBEGIN;
	fairq_lane_records_init(lane);
	lane->seats.first[FAIRQ_SEAT_SETS] = PG_INT64_MAX;
	fairq_times_init(&lane->times);
	pg_atomic_init_u32(&lane->narrowing.n, 1);
	pg_atomic_init_u64(&lane->searches, 1);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		pg_atomic_init_u64(&lane->reach[r], fairq_region_from(r) - 1);
	for (int i = 0; i < FAIRQ_STATS; i++)
		pg_atomic_init_u64(&lane->stats[i], 0);
}

/* Initialize hints for a queue, which uses them from now on. */
static void
init_hints(FairqHints *hints, const FairqQueueKey *key)
{
	LWLockAcquire(&view.registry->lock, LW_EXCLUSIVE);
	hints->entry.key = *key;
	hints->entry.released = false;
	LWLockRelease(&view.registry->lock);
	fairq_version_up(&hints->versions, FAIRQ_ALL_CHANGED);
	/* counters that have outlived a queue with the same number are invalid */
	hints->entry.tenure =
		pg_atomic_add_fetch_u64(&view.registry->tenures, 1);
	fairq_queue_tally_init(&hints->tally, own_tally);
	pg_atomic_init_u64(&hints->free_number, 0);
	pg_atomic_init_u64(&hints->unparks, 0);
	hints->awaited = false;
	hints->entry.born = fairq_monotonic();
	hints->entry.replayed = RecoveryInProgress();
	fairq_counter_init(&hints->running, hints->entry.tenure,
					   hints->entry.born);
	fairq_shares_init(&hints->shares);
	for (int i = 0; i < FAIRQ_SPANS; i++)
		fairq_histogram_init(&hints->histograms[i]);
	fairq_wakeup_begin(&hints->wakeup, fairq_domain_index());
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		init_lane(&hints->lanes[priority], priority);
}

/* Free the memory for the queue's groups. */
static void
free_chunks(FairqHints *hints)
{
	fairq_chunks_free(&hints->chunks);
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		FairqLane  *lane = &hints->lanes[priority];

		fairq_chunks_free(&lane->order.accounts.chunks);
		fairq_chunks_free(&lane->seats.back.nodes.chunks);
	}
}

/*
 * Remove a queue's hints from the list of dropped ones, if no session waits at
 * them any more.  *key is set to the key of their queue.  Returns NULL if
 * there are none.
 */
static FairqHints *
pop_dropped(FairqQueueKey *key)
{
	dsa_pointer *at = &view.registry->dropped;
	FairqHints *found = NULL;

	LWLockAcquire(&view.registry->lock, LW_EXCLUSIVE);
	while (found == NULL && DsaPointerIsValid(*at))
	{
		FairqHints *hints = fairq_at(*at);

		/* a session that just left may wake another, which finds no task */
		if (pg_atomic_read_u32(&hints->wakeup.waiters) == 0)
		{
			found = hints;
			*key = hints->entry.key;
			*at = hints->entry.next;
		}
		else
			at = &hints->entry.next;
	}
	LWLockRelease(&view.registry->lock);
	return found;
}

/*
 * Delete the entry that leads to these hints.  If the queue's number is in use
 * again, its entry may lead to other hints.  Such an entry stays.
 */
static void
remove_entry(const FairqQueueKey *key, dsa_pointer self)
{
	QueueEntry *entry = dshash_find(view.queues, key, true);

	if (entry == NULL)
		return;
	if (entry->data == self)
		dshash_delete_entry(view.queues, entry);
	else
		dshash_release_lock(view.queues, entry);
}

/* Make dropped hints available to other queues. */
static void
reclaim_dropped(void)
{
	FairqQueueKey key;
	FairqHints *hints;

	while ((hints = pop_dropped(&key)) != NULL)
	{
		remove_entry(&key, hints->entry.self);
		free_chunks(hints);
		push_hints(&view.registry->free, hints);
	}
}

static FairqHints *
take_free(void)
{
	FairqHints *hints;

	reclaim_dropped();
	hints = pop_hints(&view.registry->free);
	if (hints == NULL && are_too_many(1))
	{
		free_some();
		hints = pop_hints(&view.registry->free);
	}
	return hints != NULL ? hints : make_hints();
}

/*
 * Give back the hints of the queue with the given key, which is gone or never
 * existed.  A sweep may find hints that were given back before, or even belong
 * to another queue by now.  Callbacks also call this, so it must not fail.
 */
static void
release_hints(FairqHints *hints, const FairqQueueKey *key)
{
	bool		ours;

	LWLockAcquire(&view.registry->lock, LW_EXCLUSIVE);
	ours = !hints->entry.released &&
		memcmp(&hints->entry.key, key, sizeof(*key)) == 0;
	hints->entry.released |= ours;
	LWLockRelease(&view.registry->lock);
	if (!ours)
		return;
	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
		fairq_lane_forget(&hints->lanes[priority]);
	/* backends that have cached the queue read it again and do not find it */
	fairq_version_up(&hints->versions, FAIRQ_ALL_CHANGED);
	push_hints(&view.registry->dropped, hints);
}

void
fairq_shmem_release(FairqHints *hints)
{
	release_hints(hints, &hints->entry.key);
}

/* --------------------------------------------------------------------- */

/* Whether a table of this database is dropped for good. */
static bool
table_is_gone(Oid task)
{
	LOCKTAG		tag;
	LockAcquireResult result;

	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(task)) ||
		RecoveryInProgress())
		return false;
	/* our own DROP may still be rolled back */
	SET_LOCKTAG_RELATION(tag, MyDatabaseId, task);
	result = LockAcquire(&tag, AccessExclusiveLock, false, true);
	if (result != LOCKACQUIRE_NOT_AVAIL)
		LockRelease(&tag, AccessExclusiveLock, false);
	return result == LOCKACQUIRE_OK;
}

static bool
extension_is_gone(const FairqQueueKey *key)
{
	FairqQueueKey own = own_key(0, -1);

	if (key->database != MyDatabaseId)
		return !SearchSysCacheExists1(DATABASEOID,
									  ObjectIdGetDatum(key->database));
	return key->born != own.born || table_is_gone(key->task);
}

static bool
is_of_extension(const FairqQueueKey *key, const FairqQueueKey *extension)
{
	return key->born == extension->born &&
		key->database == extension->database && key->task == extension->task;
}

/* Delete an extension, and give back the hints of all its queues. */
static void
delete_extension(const FairqQueueKey *extension)
{
	dshash_seq_status status;
	QueueEntry *entry;
	dsa_pointer tally = InvalidDsaPointer;

	dshash_seq_init(&status, view.queues, true);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (is_of_extension(&entry->key, extension))
		{
			dsa_pointer data = entry->data;
			FairqQueueKey key = entry->key;

			dshash_delete_current(&status);
			if (key.group_no == OF_EXTENSION)
				tally = data;
			else
				release_hints(fairq_at(data), &key);
		}
	}
	dshash_seq_term(&status);
	if (DsaPointerIsValid(tally))
		fairq_free(tally);
}

/* Whether the last sweep was long enough ago for another one. */
static bool
is_sweep_due(void)
{
	return GetCurrentTimestamp() >=
		(int64) pg_atomic_read_u64(&view.registry->swept_at) +
		SWEEP_EVERY;
}

/*
 * Give back the hints of extensions and databases that are gone.  If
 * if_crowded is true, do so only if the cache of groups was full, possibly
 * with groups of such extensions.  The caller has a table of fairq open.  So
 * no other transaction can be creating this database's extension again.
 */
void
fairq_shmem_sweep(bool if_crowded)
{
	dshash_seq_status status;
	QueueEntry *entry;
	List	   *keys = NIL;
	ListCell   *lc;

	attach();
	if (if_crowded && (pg_atomic_read_u32(&view.registry->crowded) == 0 ||
					   !is_sweep_due()))
		return;
	if (if_crowded)
		pg_atomic_write_u32(&view.registry->crowded, 0);
	dshash_seq_init(&status, view.queues, false);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		FairqQueueKey *key;

		if (entry->key.group_no != OF_EXTENSION)
			continue;
		key = palloc(sizeof(FairqQueueKey));
		*key = entry->key;
		keys = lappend(keys, key);
	}
	dshash_seq_term(&status);
	foreach(lc, keys)
	{
		CHECK_FOR_INTERRUPTS();
		if (extension_is_gone(lfirst(lc)))
			delete_extension(lfirst(lc));
	}
	list_free_deep(keys);
	pg_atomic_write_u64(&view.registry->swept_at, GetCurrentTimestamp());
}

/*
 * Enter this database's extension.  If the extension is new in shared memory,
 * it may replace one that is gone, so this starts a sweep.
 */
static void
enter_extension(void)
{
	FairqQueueKey key = own_key(0, OF_EXTENSION);
	QueueEntry *extension;
	dsa_pointer tally;
	bool		found;

	if (entered == key.task)
		return;
	tally = fairq_tally_make(fairq_domain_index());
	PG_TRY();
	{
		extension = insert(view.queues, &key, &found);
	}
	PG_CATCH();
	{
		fairq_free(tally);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!found)
		extension->data = tally;
	own_tally = extension->data;
	dshash_release_lock(view.queues, extension);
	if (found)
		fairq_free(tally);
	else
		fairq_shmem_sweep(false);
	entered = key.task;
}

/* Returns the data of a queue or an extension; NULL: there is none. */
static void *
find_data(const FairqQueueKey *key)
{
	QueueEntry *entry = dshash_find(view.queues, key, false);
	dsa_pointer data;

	if (entry == NULL)
		return NULL;
	data = entry->data;
	dshash_release_lock(view.queues, entry);
	return fairq_at(data);
}

/*
 * Returns the tally of the extension with the given fairq.task, on which the
 * caller holds a lock; NULL: there is none.
 */
FairqTally *
fairq_shmem_tally(Oid task)
{
	FairqQueueKey key = fairq_key_of(task, 0, OF_EXTENSION);

	attach();
	return find_data(&key);
}

/* Whether these hints still belong to the queue. */
static bool
is_of_queue(FairqHints *hints, const FairqQueueKey *key)
{
	bool		is_its;

	LWLockAcquire(&view.registry->lock, LW_SHARED);
	is_its = !hints->entry.released &&
		memcmp(&hints->entry.key, key, sizeof(*key)) == 0;
	LWLockRelease(&view.registry->lock);
	return is_its;
}

static FairqHints *
find_queue(const FairqQueueKey *key)
{
	FairqHints *hints = find_data(key);

	if (hints == NULL || is_of_queue(hints, key))
		return hints;
	remove_entry(key, hints->entry.self);
	return NULL;
}

/*
 * Enter these free hints for the queue, unless another backend has entered
 * other hints.  Returns the queue's hints.
 */
static FairqHints *
enter_hints(const FairqQueueKey *key, FairqHints *hints)
{
	QueueEntry *entry;
	bool		found;
	dsa_pointer ptr;

	PG_TRY();
	{
		init_hints(hints, key);
		entry = insert(view.queues, key, &found);
	}
	PG_CATCH();
	{
		push_hints(&view.registry->free, hints);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!found)
		entry->data = hints->entry.self;
	ptr = entry->data;
	dshash_release_lock(view.queues, entry);
	if (!found)
	{
		fairq_queue_tally_entered(&hints->tally);
		return hints;
	}
	push_hints(&view.registry->free, hints);
	return fairq_at(ptr);
}

/*
 * Settle hints that were made on a standby and may be found after its
 * promotion.  Tasks may have started on the primary until then, so assume that
 * one has started just now.  No group has a counter yet.
 */
static void
end_replay(FairqHints *hints)
{
	LWLockAcquire(&view.registry->lock, LW_EXCLUSIVE);
	if (hints->entry.replayed)
	{
		hints->entry.born = fairq_monotonic();
		fairq_counter_begin_starts(&hints->running, hints->entry.born);
		hints->entry.replayed = false;
	}
	LWLockRelease(&view.registry->lock);
}

/*
 * Find a queue's hints; NULL: shared memory has none.  If make is true, they
 * are made if necessary, and belong to the queue as long as it exists.  Then
 * the caller has read the queue's row, and holds a lock that prevents others
 * from dropping it.
 */
FairqHints *
fairq_shmem_queue(int32 queue_id, bool make)
{
	FairqQueueKey key = own_key(queue_id, -1);
	FairqHints *hints;

	attach();
	hints = find_queue(&key);
	if (!make)
		return hints;
	if (hints == NULL)
	{
		enter_extension();
		hints = enter_hints(&key, take_free());
	}
	if (hints->entry.replayed && !RecoveryInProgress())
		end_replay(hints);
	return hints;
}

/*
 * Returns the hints of all queues of a fairq.task.  The table may be dropped
 * at the same time.
 */
List *
fairq_shmem_queues(Oid task)
{
	FairqQueueKey key = fairq_key_of(task, 0, -1);
	dshash_seq_status status;
	QueueEntry *entry;
	List	   *all = NIL;

	attach();
	dshash_seq_init(&status, view.queues, false);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		FairqHints *hints;

		if (entry->key.group_no == OF_EXTENSION ||
			!is_of_extension(&entry->key, &key))
			continue;
		hints = fairq_at(entry->data);
		if (is_of_queue(hints, &entry->key))
			all = lappend(all, hints);
	}
	dshash_seq_term(&status);
	return all;
}

/*
 * Find the size of shared memory, and its use by all databases.  The size of
 * the registry is not exact, because the allocator rounds up sizes and an
 * entry has one or two buckets.
 */
void
fairq_registry_use(FairqShmemUse *use)
{
	const int64 overhead = 32;
	dshash_seq_status status;
	const QueueEntry *entry;

	attach();
	fairq_shmem_use(use);
	dshash_seq_init(&status, view.queues, false);
	while ((entry = dshash_seq_next(&status)) != NULL)
		use->nqueues += entry->key.group_no != OF_EXTENSION;
	dshash_seq_term(&status);
	use->ncounters = pg_atomic_read_u32(&view.registry->ncounters);
	use->allocated += use->nqueues * (sizeof(QueueEntry) + overhead) +
		use->ncounters * (sizeof(CounterEntry) + overhead);
}

/* --------------------------------------------------------------------- */

/*
 * Read the number of the last load that is over, and the tenure of the hints
 * of a counter's queue.  Returns false if the queue is gone.  Then the counter
 * may be freed even if it is not idle.
 */
static bool
read_queue_of(const FairqQueueKey *key, uint64 *current, uint64 *tenure)
{
	FairqQueueKey queue = *key;
	QueueEntry *entry;
	FairqHints *hints;

	queue.group_no = -1;
	entry = dshash_find(view.queues, &queue, false);
	if (entry == NULL)
		return false;
	hints = fairq_at(entry->data);
	*current = pg_atomic_read_u64(&fairq_tally_of(&hints->tally)->current);
	*tenure = hints->entry.tenure;
	dshash_release_lock(view.queues, entry);
	return true;
}

/*
 * Whether the counter can be freed.  Usually its own fields are enough to
 * decide.
 */
static bool
is_of_no_use(CounterEntry *entry)
{
	uint64		current;
	uint64		tenure;

	if (fairq_counter_is_idle(&entry->counter, 0))
		return true;
	return !fairq_counter_is_pinned(&entry->counter) &&
		(!read_queue_of(&entry->key, &current, &tenure) ||
		 tenure != entry->counter.tenure ||
		 fairq_counter_is_idle(&entry->counter, current));
}

/* Free the counters that are idle, and those of queues that are gone. */
static void
free_idle_counters(void)
{
	dshash_seq_status status;
	CounterEntry *entry;
	uint32		left = 0;

	reclaim_dropped();
	dshash_seq_init(&status, view.counters, true);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (is_of_no_use(entry))
		{
			dshash_delete_current(&status);
			pg_atomic_fetch_sub_u32(&view.registry->ncounters, 1);
		}
		else
			left++;
	}
	dshash_seq_term(&status);
	pg_atomic_write_u32(&view.registry->many_counters,
						Max(FAIRQ_MANY_COUNTERS, 2 * left));
}

/* Find the counter of a group in shared memory, and pin it; or NULL. */
static FairqCounter *
find_counter(FairqHints *hints, int32 group_no)
{
	FairqQueueKey key = own_key(hints->entry.key.queue_id, group_no);
	CounterEntry *entry = dshash_find(view.counters, &key, false);
	bool		valid = entry != NULL &&
		entry->counter.tenure == hints->entry.tenure;

	if (valid)
		fairq_counter_pin(&entry->counter);
	if (entry != NULL)
		dshash_release_lock(view.counters, entry);
	return valid ? &entry->counter : NULL;
}

/*
 * Find the counter of a group in a copy, or make it from the real one.  It is
 * pinned.
 */
static FairqCounter *
own_counter(FairqHints *copy, int32 group_no)
{
	FairqCounter *counter = fairq_shadow_find(copy, group_no);
	FairqCounter *real;

	if (counter == NULL)
	{
		counter = fairq_shadow_part(copy, group_no, sizeof(FairqCounter));
		fairq_counter_init(counter, copy->entry.tenure, copy->entry.born);
		real = find_counter(fairq_shadow_real(copy), group_no);
		if (real != NULL)
		{
			fairq_counter_copy(counter, real);
			fairq_counter_unpin(real);
		}
	}
	fairq_counter_pin(counter);
	return counter;
}

/* Find the counter of a group in shared memory, or make it. */
static FairqCounter *
have_counter(FairqHints *hints, int32 group_no)
{
	FairqQueueKey key = own_key(hints->entry.key.queue_id, group_no);
	CounterEntry *entry;
	bool		found;

	/*
	 * if there are many counters, free those that are only kept for their next
	 * use
	 */
	if (pg_atomic_read_u32(&view.registry->ncounters) >=
		pg_atomic_read_u32(&view.registry->many_counters))
		free_idle_counters();
	entry = insert(view.counters, &key, &found);
	if (!found)
		pg_atomic_fetch_add_u32(&view.registry->ncounters, 1);
	/* a counter that has outlived a queue with the same number is invalid */
	if (!found || entry->counter.tenure != hints->entry.tenure)
		fairq_counter_init(&entry->counter, hints->entry.tenure,
						   hints->entry.born);
	fairq_counter_pin(&entry->counter);
	dshash_release_lock(view.counters, entry);
	return &entry->counter;
}

/*
 * Find the counter of a group, and pin it; NULL: there is none.  With make, it
 * is made if necessary.
 */
FairqCounter *
fairq_shmem_counter(FairqHints *hints, int32 group_no, bool make)
{
	if (make)
		fairq_chunks_have(&hints->chunks, group_no);
	return fairq_in_shadow(hints) ? own_counter(hints, group_no) :
		make ? have_counter(hints, group_no) : find_counter(hints, group_no);
}

/* Find the groups of a queue that have counters. */
List *
fairq_shmem_counters(int32 queue_id)
{
	FairqQueueKey key = own_key(queue_id, -1);
	dshash_seq_status status;
	CounterEntry *entry;
	List	   *group_nos = NIL;

	attach();
	dshash_seq_init(&status, view.counters, false);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (is_of_extension(&entry->key, &key) &&
			entry->key.queue_id == queue_id)
			group_nos = lappend_int(group_nos, entry->key.group_no);
	}
	dshash_seq_term(&status);
	return group_nos;
}

/*
 * Free idle counters and hints of extensions that are gone, because shared
 * memory is full.
 */
static void
free_some(void)
{
	if (is_sweep_due())
		fairq_shmem_sweep(false);
	free_idle_counters();
}
