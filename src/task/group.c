/*
 * group.c
 *		Groups: their keys and their numbers.
 *
 * fairq.group_number has a row (queue_id, group_no, group_key) for each group.
 * Its indexes are deliberately not unique.  The first enqueue of a new key
 * must not wait for another open transaction that enqueues for the same key.
 * Batches of new keys in opposite order must not deadlock either.  So a
 * transaction that finds an uncommitted key inserts its own row with the same
 * number.  If any such transaction commits, the number is right; equal rows
 * are harmless.
 *
 * Groups get numbers in ascending order.  When the numbers are used up, a new
 * group gets a number that has become free, usually the first one.  maintain.c
 * frees numbers of unused groups.
 *
 * Locking: a backend gives a number, or inserts a second row for one, under
 * ExclusiveLock on the object (fairq.group_number, queue_id).  It releases the
 * lock at once, and never waits for a transaction while it holds the lock.  By
 * the time of the release, other transactions see the row, with a dirty
 * snapshot.  Reading takes no lock.
 *
 * In a queue with tenants, a key has a tenant, the separator and a user: the
 * part before the first separator is the tenant.  A tenant also has a row,
 * whose key is the tenant's part.  A transaction that adds a group makes sure
 * that the tenant's row exists, too.  So a tenant has a number as long as one
 * of its groups has a number.
 *
 * Keys and numbers are cached in the backend.  If a row of our own transaction
 * is rolled back, the cached entries are forgotten.  A standby caches nothing.
 * The primary counts freed numbers in its shared memory and not in the WAL.
 * So no backend on a standby would notice that a number was freed, and after a
 * promotion the session could write with an old entry.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "group.h"
#include "tools.h"
#include "transaction.h"

/*
 * Number of entries at which the cache is emptied: about 10 MB with short
 * keys.  With more shared memory, the cache has room for the keys and numbers
 * of as many groups as shared memory has entries for (entry.c).
 */
#define MIN_CACHED 65536
#define MAX_CACHED \
	Max(MIN_CACHED, 2 * FAIRQ_SET_WAYS * (int64) fairq_cache.nsets)

/*
 * groups whose keys are read at once, and the greatest distance of their
 * numbers
 */
#define MAX_AHEAD 64
#define NEARBY 8

/* numbers that the search for a free one checks together */
#define WALK_STEP 256

typedef struct KeyId
{
	int32		queue_id;
	int32		length;			/* length of the group's key */
	uint64		hash;			/* its hash */
} KeyId;

typedef struct KeyEntry
{
	KeyId		id;				/* hash key */
	char	   *data;			/* the group's key */
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
static bool uncommitted = false;	/* some cached entry comes from our own
									 * uncommitted row */
static bool stale = false;
static uint64 changes = 0;		/* value of the domain's group_changes for
								 * which the cache is valid */

static void
check_group_cache(void)
{
	uint64		changes_now =
		pg_atomic_read_u64(&fairq_domain()->group_changes);

	if (cached_relid != fairq_relid(FAIRQ_GROUP_NUMBER) ||
		changes != changes_now)
		stale = true;
	if (by_key != NULL && !stale &&
		hash_get_num_entries(by_key) + hash_get_num_entries(by_number) <
		MAX_CACHED)
		return;

	/* the cache counts as stale until all of it exists */
	stale = true;
	by_key = by_number = NULL;
	if (cache_context == NULL)
		cache_context = AllocSetContextCreate(TopMemoryContext,
											  "fairq groups",
											  ALLOCSET_DEFAULT_SIZES);
	else
		MemoryContextReset(cache_context);
	by_key = fairq_hash(cache_context, "fairq groups by key", sizeof(KeyId),
						sizeof(KeyEntry));
	by_number = fairq_hash(cache_context, "fairq groups by number",
						   sizeof(NumberId), sizeof(NumberEntry));
	cached_relid = fairq_relid(FAIRQ_GROUP_NUMBER);
	changes = changes_now;
	stale = false;
}

/*
 * Record that groups were changed, and that numbers may have been freed.
 * Forget cached groups, in this backend and in others, now and again at the
 * end of the transaction.
 */
void
fairq_groups_changed(bool freed)
{
	if (!fairq_pending_groups(freed))
		stale = true;
}

/*
 * At the end of a transaction or subtransaction: if an abort has made entries
 * of our own rows wrong, forget all entries.
 */
void
fairq_groups_settle(bool committed, bool all)
{
	if (!committed && uncommitted)
		stale = true;
	if (all)
		uncommitted = false;
}

/* Cache the number of a key, in place of any other key with the same id. */
static void
remember_key(const KeyId *id, const text *key, int32 group_no)
{
	char	   *data = MemoryContextAlloc(cache_context, Max(id->length, 1));
	KeyEntry   *entry = hash_search(by_key, id, HASH_ENTER, NULL);

	memcpy(data, VARDATA_ANY(key), id->length);
	entry->data = data;
	entry->group_no = group_no;
}

/* The number in the scan's row. */
static int32
no_at(FairqScan *scan)
{
	return fairq_int_of(scan->slot, NUMBER_GROUP_NO, 0);
}

/* A copy of the key in the scan's row. */
static text *
key_at(FairqScan *scan)
{
	return DatumGetTextPCopy(fairq_column(scan->slot, NUMBER_GROUP_KEY));
}

/*
 * Find the key.  Returns its number or -1; *committed is true if a row of the
 * key is committed, or our own.
 */
static int32
find_group_key(FairqTable *table, FairqQueue *queue, text *key,
			   bool *committed)
{
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_NUMBER_BY_KEY,
										fairq_range_2(Int32GetDatum(queue->id),
													  PointerGetDatum(key)));
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
 * The lowest number from "from" on that no row has; limit if there is none
 * below it.  The search proceeds in steps, so that it does not read the dead
 * entries of all free numbers after the first one.
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
			scan = fairq_scan_begin(table, FAIRQ_NUMBER_BY_NO, step);
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
 * A number that has become free; limit if there is none.  The caller holds the
 * lock for giving numbers.
 *
 * Shared memory keeps where the last walk ended, and the value of
 * group_changes before it.  That value increases when numbers are freed, and
 * then the walk begins anew.  A number also becomes free when a new group is
 * rolled back.  So the walk checks all numbers before it reports that they are
 * used up.
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

static int32
new_number(FairqTable *table, FairqQueue *queue)
{
	int32		limit = (int32) Min(queue->block_length, PG_INT32_MAX);
	FairqRange	of_queue = fairq_range(Int32GetDatum(queue->id));
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_NUMBER_BY_NO,
										fairq_range_backward(of_queue));
	int64		next = 0;
	int32		last = -1;
	int32		group_no;

	if (fairq_scan_next(scan) != FAIRQ_ROW_END)
		next = no_at(scan) + INT64CONST(1);
	fairq_scan_end(scan);
	group_no = next < limit ? (int32) next :
		first_free_number(table, queue, limit);
	/* one scan can miss a row that was just put back, but two scans cannot */
	while (group_no < limit && group_no != last)
	{
		last = group_no;
		group_no = next_free_number(table, queue, group_no, limit);
	}
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
 * The length of the tenant's part of a key; -1: it has no separator, or the
 * queue has none.
 */
static int
tenant_length(const FairqQueue *queue, const text *key)
{
	const char *data = VARDATA_ANY(key);
	const char *at = queue->shares.separator == 0 ? NULL :
		memchr(data, queue->shares.separator, VARSIZE_ANY_EXHDR(key));

	return at == NULL ? -1 : (int) (at - data);
}

/* The tenant's part of a key that has a separator. */
static text *
tenant_of_key(const FairqQueue *queue, const text *key)
{
	return cstring_to_text_with_len(VARDATA_ANY(key),
									tenant_length(queue, key));
}

/* Whether this is the key of a tenant. */
bool
fairq_is_tenant_key(const FairqQueue *queue, const text *key)
{
	return queue->shares.separator != 0 && VARSIZE_ANY_EXHDR(key) > 0 &&
		VARSIZE_ANY_EXHDR(key) <= FAIRQ_MAX_GROUP_KEY &&
		tenant_length(queue, key) < 0;
}

static void
check_length(const text *key)
{
	int			length = VARSIZE_ANY_EXHDR(key);

	if (length > FAIRQ_MAX_GROUP_KEY)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("group_key must have at most %d bytes",
					   FAIRQ_MAX_GROUP_KEY),
				errdetail("The value has %d bytes.", length));
}

/*
 * In a queue with tenants, check that the key names a tenant and a user.  With
 * or_tenant, the key may also be a tenant's.
 */
static void
check_key(const FairqQueue *queue, text *key, bool or_tenant)
{
	int			length;

	if (queue->shares.separator == 0)
		return;
	length = tenant_length(queue, key);
	if ((length > 0 && length + 1 < VARSIZE_ANY_EXHDR(key)) ||
		(or_tenant && fairq_is_tenant_key(queue, key)))
		return;
	/* a key that is too long is not printed */
	check_length(key);
	ereport(ERROR,
			errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
			or_tenant ?
			errmsg("group_key must be a tenant, or a tenant, \"%c\" and a user",
				   queue->shares.separator) :
			errmsg("group_key must be a tenant, \"%c\" and a user",
				   queue->shares.separator),
			errdetail("The value is \"%s\".", text_to_cstring(key)));
}

/*
 * The number of a group.  Without create, -1 if there is no group with the
 * key.
 */
static int32
number_of(FairqQueue *queue, text *key, bool create)
{
	int32		length = VARSIZE_ANY_EXHDR(key);
	KeyId		id = {
		.queue_id = queue->id,
		.length = length,
		.hash = hash_bytes_extended((unsigned char *) VARDATA_ANY(key),
									length, 0)
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
	if (entry != NULL && memcmp(entry->data, VARDATA_ANY(key), length) == 0)
		return entry->group_no;

	check_length(key);
	if (create && tenant_length(queue, key) >= 0)
		(void) number_of(queue, tenant_of_key(queue, key), true);
	table = fairq_open(FAIRQ_GROUP_NUMBER,
					   create ? RowExclusiveLock : AccessShareLock);
	group_no = find_group_key(table, queue, key, &committed);
	if (!committed && !create)
		group_no = -1;
	else if (!committed)
	{
		fairq_table_open_indexes(table);
		LockDatabaseObject(cached_relid, queue->id, 0, ExclusiveLock);
		group_no = find_group_key(table, queue, key, &committed);
		/*
		 * maintain() may have put the row back at that moment: see maintain.c
		 */
		if (group_no < 0)
			group_no = find_group_key(table, queue, key, &committed);
		if (!committed)
		{
			if (fairq_own.groups_freed_at > 0)
				ereport(ERROR,
						errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot add a group in a transaction in which fairq.maintain() has removed groups"));
			if (group_no < 0)
			{
				group_no = new_number(table, queue);
				for (int p = 0; p < FAIRQ_PRIORITIES; p++)
					fairq_lane_order_renew(fairq_queue_lane(queue, p),
										   group_no);
			}
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
			remember_key(&id, key, group_no);
	}
	return group_no;
}

/* The number of a new task's group. */
int32
fairq_group_of_task(FairqQueue *queue, text *key)
{
	check_key(queue, key, false);
	return number_of(queue, key, true);
}

/*
 * The number of a group that gets settings.  A group may get settings before
 * it has a task.  A NOTICE then reports the new group, because its key may be
 * misspelled.
 */
int32
fairq_group_to_set(FairqQueue *queue, text *key)
{
	check_key(queue, key, true);
	if (number_of(queue, key, false) < 0)
		ereport(NOTICE,
				errcode(ERRCODE_FAIRQ_NO_GROUP),
				errmsg("group \"%s\" of queue \"%s\" does not exist, creating it",
					   text_to_cstring(key), queue->name));
	return number_of(queue, key, true);
}

/* The number of a group that must exist. */
int32
fairq_existing_group(FairqQueue *queue, text *key)
{
	int32		group_no = number_of(queue, key, false);

	if (group_no < 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_NO_GROUP),
				errmsg("group \"%s\" of queue \"%s\" does not exist",
					   text_to_cstring(key), queue->name));
	return group_no;
}

/*
 * The number of groups to read when the key of one is not cached.  Tasks are
 * served in the order of their groups' numbers.  If the last keys were
 * requested in order, the next keys will probably be requested, too.  One scan
 * for many keys costs a fraction of one scan for each key.
 */
static int32
read_ahead(FairqQueue *queue, int32 group_no)
{
	static int32 queue_id = 0;
	static int64 end = 0;		/* number up to which keys were read */
	static int32 ahead = 1;

	ahead = queue_id == queue->id && group_no >= end &&
		group_no - end <= NEARBY ? Min(ahead * 2, MAX_AHEAD) : 1;
	queue_id = queue->id;
	end = (int64) group_no + ahead;
	return ahead;
}

/*
 * Cache the key of a group.  The scan is at its row, which is committed or our
 * own.
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

/*
 * The key of a group that has or had a task, as a text; NULL (Datum 0): none.
 */
Datum
fairq_group_key(FairqQueue *queue, int32 group_no)
{
	NumberId	id = {queue->id, group_no};
	NumberEntry *entry;
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
	scan = fairq_scan_table(FAIRQ_GROUP_NUMBER, FAIRQ_NUMBER_BY_NO, range);
	for (;;)
	{
		FairqRowState state = fairq_scan_next(scan);
		int32		no;

		if (state == FAIRQ_ROW_END)
		{
			/*
			 * one scan can miss a row that was just put back, but two scans
			 * cannot
			 */
			if (again || key != NULL)
				break;
			again = true;
			fairq_scan_again(scan, range);
			continue;
		}
		no = no_at(scan);
		/* all rows with a number are equal, even one that is being freed */
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
	return PointerGetDatum(key);
}

/*
 * The number of the tenant in a group's key; -1: it has none.  Even an
 * uncommitted row of the tenant is used, like that of a group.
 */
int32
fairq_tenant_in_key(FairqQueue *queue, text *key)
{
	int32		tenant;
	FairqTable *table;
	bool		committed;

	if (tenant_length(queue, key) < 0)
		return -1;
	key = tenant_of_key(queue, key);
	tenant = number_of(queue, key, false);
	if (tenant >= 0)
		return tenant;
	table = fairq_open(FAIRQ_GROUP_NUMBER, AccessShareLock);
	/* one scan can miss a row that was just put back, but two scans cannot */
	for (int i = 0; i < 2 && tenant < 0; i++)
		tenant = find_group_key(table, queue, key, &committed);
	fairq_table_close(table);
	return tenant;
}

/* The number of a group's tenant; -1: it has none. */
int32
fairq_tenant_no(FairqQueue *queue, int32 group_no)
{
	text	   *key = queue->shares.separator == 0 ? NULL :
		(text *) DatumGetPointer(fairq_group_key(queue, group_no));

	return key == NULL ? -1 : fairq_tenant_in_key(queue, key);
}

/* A text of the first bytes of a key, and one more byte. */
static Datum
key_with(const text *key, int length, char byte)
{
	text	   *made = palloc(VARHDRSZ + length + 1);

	SET_VARSIZE(made, VARHDRSZ + length + 1);
	memcpy(VARDATA(made), VARDATA_ANY(key), length);
	VARDATA(made)[length] = byte;
	return PointerGetDatum(made);
}

/* The keys of a tenant's groups. */
static FairqRange
range_of_tenant(const FairqQueue *queue, const text *tenant)
{
	FairqRange	range = fairq_range(Int32GetDatum(queue->id));
	int			length = VARSIZE_ANY_EXHDR(tenant);
	char		separator = queue->shares.separator;

	range = fairq_range_from(range, key_with(tenant, length, separator));
	return fairq_range_before(range, key_with(tenant, length, separator + 1));
}

/* Whether this is the key of a tenant that has groups. */
bool
fairq_tenant_has_groups(const FairqQueue *queue, FairqTable *numbers,
						text *key)
{
	FairqScan  *scan;
	bool		any;

	if (!fairq_is_tenant_key(queue, key))
		return false;
	scan = fairq_scan_begin(numbers, FAIRQ_NUMBER_BY_KEY,
							range_of_tenant(queue, key));
	any = fairq_scan_next(scan) != FAIRQ_ROW_END;
	fairq_scan_end(scan);
	return any;
}

/*
 * Whether a key is the given one, or the key of a group whose tenant has the
 * given key.
 */
bool
fairq_key_is_of(const FairqQueue *queue, const text *key, const text *group)
{
	int			length = VARSIZE_ANY_EXHDR(group);
	bool		longer = fairq_is_tenant_key(queue, group) &&
		tenant_length(queue, key) == length;

	return (longer || VARSIZE_ANY_EXHDR(key) == length) &&
		memcmp(VARDATA_ANY(key), VARDATA_ANY(group), length) == 0;
}

/*
 * Find the first tenant after a key (NULL: the first of all).  Returns its
 * key; NULL: there is none.  The search skips the groups of tenants, and reads
 * at most one group of each tenant.
 */
static text *
next_tenant(const FairqQueue *queue, FairqScan *scan, text *key)
{
	FairqRange	of_queue = fairq_range(Int32GetDatum(queue->id));
	Datum		from = key == NULL ? CStringGetTextDatum("") :
		key_with(key, VARSIZE_ANY_EXHDR(key), 1);

	for (;;)
	{
		FairqRowState state;
		int			length;

		CHECK_FOR_INTERRUPTS();
		fairq_scan_again(scan, fairq_range_from(of_queue, from));
		do
		{
			state = fairq_scan_next(scan);
			if (state == FAIRQ_ROW_END)
				return NULL;
			key = key_at(scan);
			length = tenant_length(queue, key);
		} while (length < 0 && state != FAIRQ_ROW_LIVE);
		if (length < 0)
			return key;
		from = key_with(key, length, queue->shares.separator + 1);
	}
}

/* Call a function for each tenant of the queue, in the order of the keys. */
void
fairq_each_tenant(FairqQueue *queue, FairqTenantAction action, void *arg)
{
	FairqRange	range = fairq_range_from(fairq_range(Int32GetDatum(queue->id)),
										 CStringGetTextDatum(""));
	FairqScan  *scan = fairq_scan_table(FAIRQ_GROUP_NUMBER,
										FAIRQ_NUMBER_BY_KEY, range);
	text	   *key = NULL;

	while ((key = next_tenant(queue, scan, key)) != NULL)
		action(arg, no_at(scan), key);
	fairq_scan_end(scan);
}

/*
 * The numbers of the groups that a key names: the group, or the groups of a
 * tenant.
 */
List *
fairq_groups_of(FairqQueue *queue, text *key)
{
	int32		group_no = fairq_existing_group(queue, key);
	List	   *group_nos = NIL;
	FairqScan  *scan;

	if (!fairq_is_tenant_key(queue, key))
		return list_make1_int(group_no);
	scan = fairq_scan_table(FAIRQ_GROUP_NUMBER, FAIRQ_NUMBER_BY_KEY,
							range_of_tenant(queue, key));
	while (fairq_scan_next(scan) != FAIRQ_ROW_END)
	{
		/* rows of one group are neighbours */
		if (group_nos == NIL || llast_int(group_nos) != no_at(scan))
			group_nos = lappend_int(group_nos, no_at(scan));
	}
	fairq_scan_end(scan);
	return group_nos;
}
