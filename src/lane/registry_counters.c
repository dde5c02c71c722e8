/*
 * registry_counters.c
 *		The counters of groups in shared memory: how to find, make and free
 *		them.
 *
 * A counter is freed when it is idle and not pinned.  If its queue is gone, it
 * is freed even if it is not idle.  A search for such counters begins when
 * there are twice as many counters as the last search left.  That costs a
 * constant time per new counter.  A search also begins when shared memory is
 * full.
 *
 * Locking: a partition of the table of counters, before one of queues; see
 * registry.c.
 */
#include "postgres.h"

#include "registry_internal.h"
#include "shadow.h"
#include "shmem.h"

/*
 * Read the number of the last load that is over, and the tenure of the hints
 * of a counter's queue.  False if the queue is gone: then the counter may be
 * freed, though it is not idle.
 */
static bool
read_queue_of(const FairqQueueKey *key, uint64 *current, uint64 *tenure)
{
	FairqQueueKey queue = *key;
	FairqQueueEntry *entry;
	FairqHints *hints;

	queue.group_no = -1;
	entry = dshash_find(fairq_view.queues, &queue, false);
	if (entry == NULL)
		return false;
	hints = fairq_at(entry->hints);
	*current = pg_atomic_read_u64(&fairq_tally_of(&hints->tally)->current);
	*tenure = hints->entry.tenure;
	dshash_release_lock(fairq_view.queues, entry);
	return true;
}

/*
 * Whether the counter can be freed.  Usually its own fields are enough to
 * decide.
 */
static bool
is_of_no_use(FairqCounterEntry *entry)
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
	FairqCounterEntry *entry;
	uint32		left = 0;

	fairq_reclaim_dropped();
	dshash_seq_init(&status, fairq_view.counters, true);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (is_of_no_use(entry))
		{
			dshash_delete_current(&status);
			pg_atomic_fetch_sub_u32(&fairq_view.registry->ncounters, 1);
		}
		else
			left++;
	}
	dshash_seq_term(&status);
	pg_atomic_write_u32(&fairq_view.registry->many_counters,
						Max(FAIRQ_MANY_COUNTERS, 2 * left));
}

/*
 * If there are many counters, free those that are only kept for their next
 * use.
 */
static void
free_if_many(void)
{
	if (pg_atomic_read_u32(&fairq_view.registry->ncounters) >=
		pg_atomic_read_u32(&fairq_view.registry->many_counters))
		free_idle_counters();
}

/*
 * Find the counter of a group in a copy, or make it from the real one.  It is
 * pinned.
 */
static FairqCounter *
own_counter(FairqHints *copy, int32 group_no)
{
	bool		is_new;
	FairqCounter *counter = fairq_shadow_part(copy, group_no,
											  sizeof(FairqCounter), &is_new);
	FairqCounter *real;

	if (is_new)
	{
		fairq_counter_init(counter, copy->entry.tenure, copy->entry.born);
		real = fairq_shmem_find_counter(fairq_shadow_real(copy), group_no);
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
	FairqQueueKey key = fairq_key(hints->entry.key.queue_id, group_no);
	FairqCounterEntry *entry;
	bool		found;

	fairq_registry_attach();
	free_if_many();
	entry = fairq_registry_insert(fairq_view.counters, &key, &found);
	if (!found)
		pg_atomic_fetch_add_u32(&fairq_view.registry->ncounters, 1);
	/* a counter that has outlived a queue with the same number is invalid */
	if (!found || entry->counter.tenure != hints->entry.tenure)
		fairq_counter_init(&entry->counter, hints->entry.tenure,
						   hints->entry.born);
	fairq_counter_pin(&entry->counter);
	dshash_release_lock(fairq_view.counters, entry);
	return &entry->counter;
}

/* Find or make the counter of a group.  It is pinned. */
FairqCounter *
fairq_shmem_counter(FairqHints *hints, int32 group_no)
{
	fairq_chunks_have(&hints->chunks, group_no);
	return fairq_in_shadow(hints) ? own_counter(hints, group_no) :
		have_counter(hints, group_no);
}

/* Find the counter of a group; NULL: there is none. */
FairqCounter *
fairq_shmem_find_counter(FairqHints *hints, int32 group_no)
{
	FairqQueueKey key = fairq_key(hints->entry.key.queue_id, group_no);
	FairqCounterEntry *entry;

	if (fairq_in_shadow(hints))
		return own_counter(hints, group_no);
	fairq_registry_attach();
	entry = dshash_find(fairq_view.counters, &key, false);
	if (entry != NULL && entry->counter.tenure != hints->entry.tenure)
	{
		dshash_release_lock(fairq_view.counters, entry);
		entry = NULL;
	}
	if (entry == NULL)
		return NULL;
	fairq_counter_pin(&entry->counter);
	dshash_release_lock(fairq_view.counters, entry);
	return &entry->counter;
}

/* Find the groups of a queue that have counters. */
List *
fairq_shmem_counters(int32 queue_id)
{
	FairqQueueKey key = fairq_key(queue_id, -1);
	dshash_seq_status status;
	FairqCounterEntry *entry;
	List	   *group_nos = NIL;

	fairq_registry_attach();
	dshash_seq_init(&status, fairq_view.counters, false);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (fairq_is_of_extension(&entry->key, &key) &&
			entry->key.queue_id == queue_id)
			group_nos = lappend_int(group_nos, entry->key.group_no);
	}
	dshash_seq_term(&status);
	return group_nos;
}

/*
 * Shared memory is full.  Free idle counters and hints of extensions that are
 * gone.
 */
static void
free_some(void)
{
	fairq_shmem_sweep_if_due();
	free_idle_counters();
}

/*
 * Once per backend: register the function that frees memory when it is full.
 */
void
fairq_counters_init(void)
{
	fairq_when_full(free_some);
}
