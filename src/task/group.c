/*
 * group.c
 *		Groups: their keys and their numbers.
 *
 * fairq.group_number has a row (queue_id, group_no, group_key) for each group.
 * Its indexes are not unique, for a reason.  The first enqueue of a new key
 * must not wait for another open transaction that is enqueueing for the same
 * key.  Batches of new keys in opposite order must not deadlock, either.  So a
 * transaction that finds a key that is there but not committed inserts a row
 * of its own, with the same number.  Whichever of them commits, the number is
 * right; equal rows are harmless.
 *
 * Numbers are given in order.  When they are used up, a number that is free
 * again is given, as a rule the first.  maintain.c frees numbers of unused
 * groups.
 *
 * Locking: a backend gives a number, or inserts a second row for one, under
 * ExclusiveLock on the object (fairq.group_number, queue_id).  It releases the
 * lock at once, and never waits for a transaction under it.  Other
 * transactions see the row by then, with a dirty snapshot.  Reading takes no
 * lock.
 *
 * Keys and numbers are cached in the backend.  If our own row is rolled back,
 * entries that were read before are forgotten.  A standby caches nothing.  The
 * primary counts freed numbers in its shared memory, and not in the log, so no
 * backend there would notice.  After a promotion the session could write by an
 * old entry.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "compat.h"
#include "errors.h"
#include "group.h"
#include "shmem.h"
#include "store.h"
#include "transaction.h"

/*
 * past that all is forgotten: the cache is bounded, about 10 MB with short
 * keys
 */
#define MAX_CACHED 65536

/* groups whose keys are read at once, and how far apart those may be */
#define MAX_AHEAD 64
#define NEARBY 8

/* numbers that the walk for a free one checks together */
#define WALK_STEP 256

typedef struct KeyId
{
	int32		queue_id;
	int32		length;
	const char *data;
} KeyId;

typedef struct KeyEntry
{
	KeyId		key;			/* hash key */
	int32		group_no;
} KeyEntry;

typedef struct NumberId
{
	int32		queue_id;
	int32		group_no;
} NumberId;

typedef struct NumberEntry
{
	NumberId	number;			/* hash key */
	text	   *key;
} NumberEntry;

static MemoryContext cache_context = NULL;
static HTAB *by_key = NULL;
static HTAB *by_number = NULL;
static Oid	cached_relid = InvalidOid;
static bool uncommitted = false;	/* something cached is our own, as yet */
static bool stale = false;
static uint64 changes = 0;		/* of the domain's groups, when it was read */

static uint32
key_hash(const void *key, Size keysize)
{
	const KeyId *k = key;

	return hash_combine(murmurhash32((uint32) k->queue_id),
						hash_bytes((const unsigned char *) k->data, k->length));
}

static int
key_match(const void *a, const void *b, Size keysize)
{
	const KeyId *x = a;
	const KeyId *y = b;

	return !(x->queue_id == y->queue_id && x->length == y->length &&
			 memcmp(x->data, y->data, x->length) == 0);
}

static void
check_group_cache(void)
{
	HASHCTL		ctl = {0};

	uint64		changes_now = pg_atomic_read_u64(&fairq_domain()->group_changes);

	if (cached_relid != fairq_catalog()->group_number ||
		changes != changes_now)
		stale = true;
	if (by_key != NULL && !stale &&
		hash_get_num_entries(by_key) + hash_get_num_entries(by_number) <
		MAX_CACHED)
		return;

	/* until all is made */
	stale = true;
	by_key = by_number = NULL;
	if (cache_context == NULL)
		cache_context = AllocSetContextCreate(TopMemoryContext,
											  "fairq groups",
											  ALLOCSET_DEFAULT_SIZES);
	else
		MemoryContextReset(cache_context);
	ctl.hcxt = cache_context;
	ctl.keysize = sizeof(KeyId);
	ctl.entrysize = sizeof(KeyEntry);
	ctl.hash = key_hash;
	ctl.match = key_match;
	by_key = hash_create("fairq groups by key", 256, &ctl,
						 HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	ctl.keysize = sizeof(NumberId);
	ctl.entrysize = sizeof(NumberEntry);
	by_number = hash_create("fairq groups by number", 256, &ctl,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	cached_relid = fairq_catalog()->group_number;
	changes = changes_now;
	stale = false;
}

/*
 * Note that groups were changed, and numbers of some maybe freed.  Forget
 * them, here and in other backends, now and again at the end of the
 * transaction.
 */
void
fairq_groups_changed(bool freed)
{
	if (!fairq_pending_groups(freed))
		stale = true;
}

/*
 * Entries of our own rows are committed now, or an abort has made them wrong:
 * then forget all.
 */
static void
settle(bool committed, bool all)
{
	if (!committed && uncommitted)
		stale = true;
	if (all)
		uncommitted = false;
}

static void
remember_key(FairqQueue *queue, text *key, int32 group_no)
{
	KeyId		id = {
		.queue_id = queue->id,
		.length = VARSIZE_ANY_EXHDR(key)
	};
	char	   *data = MemoryContextAlloc(cache_context, Max(id.length, 1));
	bool		found;
	KeyEntry   *entry;

	memcpy(data, VARDATA_ANY(key), id.length);
	id.data = data;
	entry = hash_search(by_key, &id, HASH_ENTER, &found);
	entry->group_no = group_no;
}

/* The number in the row that the scan is at. */
static int32
no_at(FairqScan *scan)
{
	return fairq_int_of(fairq_scan_slot(scan), NUMBER_GROUP_NO, 0);
}

/* A copy of the key there. */
static text *
key_at(FairqScan *scan)
{
	return DatumGetTextPCopy(fairq_column(fairq_scan_slot(scan),
										  NUMBER_GROUP_KEY));
}

/*
 * Look for the key.  Returns its number or -1; *committed is whether a row of
 * it is committed, or our own.
 */
static int32
find_group_key(FairqTable *table, FairqQueue *queue, text *key,
			   bool *committed)
{
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_NUMBER_BY_KEY,
										fairq_range_2(Int32GetDatum(queue->id),
													  PointerGetDatum(key)),
										false);
	FairqRowState state;
	int32		group_no = -1;

	*committed = false;
	while (!*committed && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		group_no = no_at(scan);
		*committed = state == FAIRQ_ROW_LIVE;
		if (*committed && fairq_scan_is_own(scan))
			uncommitted = true;
	}
	fairq_scan_end(scan);
	return group_no;
}

/*
 * The lowest number from there on that no row has; limit, if there is none
 * below.  It proceeds in steps, so that it does not read the dead entries of
 * all free numbers behind the first one.
 */
static int32
next_free_number(FairqTable *table, FairqQueue *queue, int32 from, int32 limit)
{
	FairqRange	of_queue = fairq_range(Int32GetDatum(queue->id));
	FairqScan  *scan = NULL;
	int32		free_no = from;
	int32		end = from;

	while (free_no == end && end < limit)
	{
		FairqRange	step = fairq_range_from(of_queue, Int32GetDatum(free_no));

		end = Min((int64) end + WALK_STEP, limit);
		step = fairq_range_before(step, Int32GetDatum(end));
		if (scan == NULL)
			scan = fairq_scan_begin(table, FAIRQ_NUMBER_BY_NO, step, false);
		else
			fairq_scan_again(scan, step);
		while (fairq_scan_next(scan) != FAIRQ_ROW_END)
		{
			int32		group_no = no_at(scan);

			if (group_no > free_no)
				break;
			if (group_no == free_no)
				free_no++;
		}
	}
	fairq_scan_end(scan);
	return free_no;
}

/*
 * A number that is free again; limit, if there is none.  Under the lock for
 * giving numbers.
 *
 * Shared memory keeps where the last walk ended, and the value of
 * group_changes before it.  That increases when numbers are freed, and then
 * the walk begins anew.  A number may also become free without that, when a
 * new group is rolled back.  So the walk checks all numbers before it reports
 * that they are used up.
 */
static int32
first_free_number(FairqTable *table, FairqQueue *queue, int32 limit)
{
	pg_atomic_uint64 *hint = &queue->hints->free_number;
	uint64		last = pg_atomic_read_u64(hint);
	uint32		freed = (uint32) pg_atomic_read_u64(&fairq_domain()->group_changes);
	int32		from = (uint32) (last >> 32) == freed ? (int32) (uint32) last : 0;
	int32		free_no = next_free_number(table, queue, from, limit);

	if (free_no >= limit && from > 0)
		free_no = next_free_number(table, queue, 0, limit);
	pg_atomic_write_u64(hint, ((uint64) freed << 32) | (uint32) free_no);
	return free_no;
}

static bool
is_used(FairqTable *table, FairqQueue *queue, int32 group_no)
{
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_NUMBER_BY_NO,
										fairq_range_2(Int32GetDatum(queue->id),
													  Int32GetDatum(group_no)),
										false);
	bool		used = fairq_scan_next(scan) != FAIRQ_ROW_END;

	fairq_scan_end(scan);
	return used;
}

static int32
new_number(FairqTable *table, FairqQueue *queue)
{
	int32		limit = (int32) Min(queue->block_length, PG_INT32_MAX);
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_NUMBER_BY_NO,
										fairq_range(Int32GetDatum(queue->id)),
										true);
	int64		next = 0;
	int32		group_no;

	if (fairq_scan_next(scan) != FAIRQ_ROW_END)
		next = no_at(scan) + INT64CONST(1);
	fairq_scan_end(scan);
	group_no = next < limit ? (int32) next :
		first_free_number(table, queue, limit);
	/* one scan can miss a row that was just put back, two cannot */
	while (group_no < limit && is_used(table, queue, group_no))
		group_no = next_free_number(table, queue, group_no + 1, limit);
	if (group_no >= limit)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_GROUPS_USED_UP),
				errmsg("group numbers of queue \"%s\" are used up",
					   queue->name),
				errdetail("The queue's block length is " INT64_FORMAT ", which is the number of groups that it can have.",
						  queue->block_length),
				errhint("Call fairq.maintain(), which frees the numbers of unused groups, or increase block_length with fairq.alter_queue()."));
	return group_no;
}

/* Write the row that gives the number to the key. */
void
fairq_put_group_number(FairqTable *table, FairqQueue *queue, int32 group_no,
					   text *key)
{
	Datum		values[NUMBER_NATTS];
	bool		nulls[NUMBER_NATTS] = {0};

	values[NUMBER_QUEUE_ID - 1] = Int32GetDatum(queue->id);
	values[NUMBER_GROUP_NO - 1] = Int32GetDatum(group_no);
	values[NUMBER_GROUP_KEY - 1] = PointerGetDatum(key);
	fairq_table_insert(table, values, nulls, NUMBER_NATTS);
}

/*
 * The number of a group.  Without create, -1 if there is no such group.
 */
int32
fairq_group_no(FairqQueue *queue, text *key, bool create)
{
	KeyId		id = {
		.queue_id = queue->id,
		.length = VARSIZE_ANY_EXHDR(key),
		.data = VARDATA_ANY(key)
	};
	KeyEntry   *entry;
	FairqTable *table;
	int32		group_no;
	bool		committed;
	uint64		changes_before;
	bool		in_recovery;

	check_group_cache();
	changes_before = changes;
	in_recovery = RecoveryInProgress();
	entry = hash_search(by_key, &id, HASH_FIND, NULL);
	if (entry != NULL)
		return entry->group_no;

	if (id.length > FAIRQ_MAX_GROUP_KEY)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("group_key must have at most %d bytes",
					   FAIRQ_MAX_GROUP_KEY),
				errdetail("The value has %d bytes.", id.length));

	table = fairq_table_open(cached_relid,
							 create ? RowExclusiveLock : AccessShareLock);
	group_no = find_group_key(table, queue, key, &committed);
	if (!committed && !create)
		group_no = -1;
	else if (!committed)
	{
		fairq_table_open_indexes(table);
		LockDatabaseObject(cached_relid, queue->id, 0, ExclusiveLock);
		group_no = find_group_key(table, queue, key, &committed);
		/* maintain() may have put it back in that moment: see maintain.c */
		if (group_no < 0)
			group_no = find_group_key(table, queue, key, &committed);
		if (!committed)
		{
			if (fairq_groups_freed())
				ereport(ERROR,
						errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot add a group in a transaction in which fairq.maintain() has removed groups"));
			if (group_no < 0)
				group_no = new_number(table, queue);
			fairq_put_group_number(table, queue, group_no, key);
			fairq_written();
		}
		UnlockDatabaseObject(cached_relid, queue->id, 0, ExclusiveLock);
		uncommitted = true;
	}
	fairq_table_close(table);
	if (group_no >= 0)
	{
		/*
		 * an entry that was read before a change must not be cached after it
		 */
		check_group_cache();
		if (changes == changes_before && !in_recovery)
			remember_key(queue, key, group_no);
	}
	return group_no;
}

/* The number of a group that must be there. */
int32
fairq_existing_group(FairqQueue *queue, text *key)
{
	int32		group_no = fairq_group_no(queue, key, false);

	if (group_no < 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_NO_GROUP),
				errmsg("group \"%s\" of queue \"%s\" does not exist",
					   text_to_cstring(key), queue->name));
	return group_no;
}

/*
 * How many groups to read when the key of one is not known.  Tasks are served
 * in the order of their groups' numbers.  If the last keys read were requested
 * one after the other, the next ones probably follow.  One scan for many costs
 * a fraction of a scan for each.
 */
static int32
read_ahead(FairqQueue *queue, int32 group_no)
{
	static int32 queue_id = 0;
	static int64 end = 0;		/* read up to there */
	static int32 ahead = 1;

	ahead = queue_id == queue->id && group_no >= end &&
		group_no - end <= NEARBY ? Min(ahead * 2, MAX_AHEAD) : 1;
	queue_id = queue->id;
	end = (int64) group_no + ahead;
	return ahead;
}

/*
 * Remember the key of a group, of which the scan is at a row that is
 * committed, or our own.
 */
static text *
remember_number(FairqQueue *queue, int32 group_no, FairqScan *scan)
{
	NumberId	id = {queue->id, group_no};
	MemoryContext old = MemoryContextSwitchTo(cache_context);
	text	   *key = key_at(scan);
	bool		found;
	NumberEntry *entry = hash_search(by_number, &id, HASH_ENTER, &found);

	MemoryContextSwitchTo(old);
	if (found)
		pfree(key);
	else
		entry->key = key;
	if (fairq_scan_is_own(scan))
		uncommitted = true;
	return entry->key;
}

/* The key of a group that has, or had, a task: a text, or NULL (Datum 0). */
Datum
fairq_group_key(FairqQueue *queue, int32 group_no)
{
	NumberId	id = {queue->id, group_no};
	NumberEntry *entry;
	FairqTable *table;
	FairqScan  *scan;
	FairqRange	range = fairq_range(Int32GetDatum(queue->id));
	text	   *key = NULL;
	bool		again = false;
	bool		in_recovery = RecoveryInProgress();
	int64		end;

	check_group_cache();
	entry = hash_search(by_number, &id, HASH_FIND, NULL);
	if (entry != NULL)
		return PointerGetDatum(entry->key);

	end = (int64) group_no + read_ahead(queue, group_no);
	range = fairq_range_from(range, Int32GetDatum(group_no));
	if (end <= PG_INT32_MAX)
		range = fairq_range_before(range, Int32GetDatum((int32) end));
	table = fairq_table_open(cached_relid, AccessShareLock);
	scan = fairq_scan_begin(table, FAIRQ_NUMBER_BY_NO, range, false);
	for (;;)
	{
		FairqRowState state = fairq_scan_next(scan);
		int32		no;

		if (state == FAIRQ_ROW_END)
		{
			/* one scan can miss a row that was just put back, two cannot */
			if (again || key != NULL)
				break;
			again = true;
			fairq_scan_again(scan, range);
			continue;
		}
		no = no_at(scan);
		/* all rows of a number are equal, also one that is just freed */
		if (state == FAIRQ_ROW_LIVE && !in_recovery &&
			changes == pg_atomic_read_u64(&fairq_domain()->group_changes))
		{
			text	   *found = remember_number(queue, no, scan);

			if (no == group_no)
				key = found;
		}
		else if (no == group_no && key == NULL)
			key = key_at(scan);
	}
	fairq_scan_end(scan);
	fairq_table_close(table);
	return PointerGetDatum(key);
}

/* The end of a transaction settles the cache. */
const FairqEnding fairq_groups_ending = {.settle = settle};
