/*
 * queue.c
 *		Queues and their settings, cached in the backend.
 *
 * Settings are read with a dirty snapshot: what is committed now, whatever
 * snapshot the transaction has.  An address computed with a block length of
 * yesterday would be wrong.
 *
 * Locking: a transaction that works on a queue holds AccessShareLock on it, an
 * object lock on (fairq.queue, queue_id), to the end of the transaction.
 * Dropping it and changing its block length take AccessExclusiveLock.  Other
 * settings change under ShareUpdateExclusiveLock, that is, one at a time and
 * beside all work.  A queue is created under ExclusiveLock on (fairq.queue, hash of
 * the name, 1), released at once; then the row makes others wait.
 *
 * Ids are cached by names, and thrown away when fairq.queue is invalidated in
 * the relation cache, which each change of it does.  They are looked at after
 * the lock is held, as for tables.
 *
 * Settings, with those of groups and with privileges, are read again only if
 * those of this very queue have changed: a queue can have very many.  Who
 * changes them counts the queue's version in shared memory up when it ends
 * (changed.c, transaction.c).  That is enough:
 *
 * - The version is counted up after the change is visible, and noted here before
 *   anything is read.  So what was read before the change bears an old version,
 *   and is read again.
 * - It is counted up before locks are released, before invalidation messages
 *   are sent and before the client hears of the commit.  So a backend that has
 *   heard of a change in any of these ways finds the new version.
 * - It is counted up before the tasks of the same commit are published.  So a
 *   pop that begins when they are there to be found finds it, too.
 * - It is counted up at an abort, too, of a subtransaction as well: others may
 *   have read the row while it was changed, and we ourselves what we wrote.
 * - What our own transaction has changed, and not ended, we hear of in
 *   fairq_queue_changed(), and if it is undone in settle():
 *   "reading" counts up.
 * - If shared memory had nothing of the queue when it was changed, it may have
 *   by the time that is visible; so then a count of the domain goes up instead.
 * - On a standby none of these counts up.  There invalidations say it, as they
 *   are replayed, and what was read there is void after the promotion.
 *
 * Entries are never freed, only read again: a pointer stays good for the
 * backend's life, its content until the next fairq_queue_use().
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/async.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "domain.h"
#include "errors.h"
#include "queue.h"
#include "registry.h"
#include "store.h"
#include "transaction.h"

typedef struct QueueName
{
	char		name[FAIRQ_MAX_QUEUE_NAME + 1]; /* hash key */
	int32		id;
	uint64		generation;
} QueueName;

static HTAB *queues = NULL;
static HTAB *names = NULL;
static uint64 generation = 1;	/* counts invalidations of names */
static uint64 reading = 1;		/* counts what makes all settings void */
static bool changing = false;	/* our own transaction has changed some */
static bool replaying = false;	/* what was read so far, was so on a standby */
static Oid	queue_relid = InvalidOid;

static void
invalidate_names(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == queue_relid)
	{
		generation++;
		if (replaying)
			reading++;
	}
}

/* Make the caches.  An error on the way leaves nothing that looks like one. */
static void
init_cache(void)
{
	HASHCTL		ctl = {0};
	HTAB	   *new_queues;

	ctl.keysize = sizeof(int32);
	ctl.entrysize = sizeof(FairqQueue);
	new_queues = hash_create("fairq queues", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	ctl.keysize = FAIRQ_MAX_QUEUE_NAME + 1;
	ctl.entrysize = sizeof(QueueName);
	names = hash_create("fairq queue names", 64, &ctl, HASH_ELEM | HASH_STRINGS);
	CacheRegisterRelcacheCallback(invalidate_names, (Datum) 0);
	queues = new_queues;
}

static void
check_queue_cache(void)
{
	Oid			relid = fairq_catalog()->queue;

	if (queues == NULL)
		init_cache();
	if (queue_relid != relid)
	{
		/* the extension was dropped and created again */
		queue_relid = relid;
		generation++;
		reading++;
	}
	if (replaying != RecoveryInProgress())
	{
		replaying = !replaying;
		reading++;
	}
}

/*
 * Note a change in one of the tables that are cached here: it holds for
 * ourselves from now on, for other backends once it has committed.
 */
void
fairq_queue_changed(void)
{
	CacheInvalidateRelcacheByRelid(fairq_catalog()->queue);
	fairq_written();
	changing = true;
	generation++;
	reading++;
}

/*
 * End such changes, all of them or those of a subtransaction: they are
 * committed, or undone.
 */
static void
settle(bool committed, bool all)
{
	if (changing && !committed)
		reading++;
	changing &= !all;
}

/*
 * Go on to the next row as it is committed now, or as we ourselves have
 * changed it.
 */
static bool
next_current(FairqScan *scan)
{
	FairqRowState state;

	while ((state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
		if (state == FAIRQ_ROW_LIVE || state == FAIRQ_ROW_CHANGING)
			return true;
	return false;
}

/* 0 if there is none; ids start at 1. */
static int32
read_id(const char *name)
{
	FairqTable *table = fairq_table_open(queue_relid, AccessShareLock);
	FairqKey	key = {1, FAIRQ_EQ, CStringGetTextDatum(name)};
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_QUEUE_BY_NAME, &key, 1,
										false);
	int32		id = 0;
	bool		isnull;

	if (next_current(scan))
		id = DatumGetInt32(slot_getattr(fairq_scan_slot(scan), QUEUE_ID,
										&isnull));
	fairq_scan_end(scan);
	fairq_table_close(table);
	return id;
}

static int32
lookup_id(const char *name)
{
	bool		found;
	QueueName  *entry = hash_search(names, name, HASH_FIND, NULL);
	int32		id;
	uint64		now = generation;

	if (entry != NULL && entry->generation == generation)
		return entry->id;
	id = read_id(name);
	/* a concurrent update can hide a row from one dirty scan, not from two */
	if (id == 0)
		id = read_id(name);
	if (id != 0)
	{
		entry = hash_search(names, name, HASH_ENTER, &found);
		entry->id = id;
		entry->generation = now;
	}
	return id;
}

static int32
get_limit(TupleTableSlot *slot, AttrNumber attno)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attno, &isnull);

	return isnull ? FAIRQ_NO_LIMIT : DatumGetInt32(value);
}

/* 0: there is none */
static int32
get_rate(TupleTableSlot *slot, AttrNumber attno)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attno, &isnull);

	return isnull ? 0 : DatumGetInt32(value);
}

static TimestampTz
get_hold(TupleTableSlot *slot, AttrNumber attno)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attno, &isnull);

	return isnull ? DT_NOBEGIN : DatumGetTimestampTz(value);
}

/* Do starts have to be counted, or looked at, by that setting? */
static bool
limits_starts(const FairqSetting *setting)
{
	return setting->rate != 0 || setting->held_until != DT_NOBEGIN;
}

/* Read the settings of the queue's groups once. */
static int
read_settings_once(FairqQueue *queue, FairqScan *scan, FairqSetting **settings)
{
	int			max = 8;
	int			n = 0;

	*settings = MemoryContextAlloc(TopMemoryContext,
								   sizeof(FairqSetting) * max);
	while (next_current(scan))
	{
		TupleTableSlot *slot = fairq_scan_slot(scan);
		FairqSetting *setting;
		bool		isnull;

		if (n == max)
		{
			max *= 2;
			*settings = repalloc_huge(*settings, sizeof(FairqSetting) * max);
		}
		setting = &(*settings)[n++];
		/* they are compared byte by byte */
		memset(setting, 0, sizeof(FairqSetting));
		setting->group_no = DatumGetInt32(slot_getattr(slot, SETTING_GROUP_NO,
													   &isnull));
		setting->weight = DatumGetInt32(slot_getattr(slot, SETTING_WEIGHT,
													 &isnull));
		setting->limit = get_limit(slot, SETTING_CONCURRENCY);
		if (setting->limit == FAIRQ_NO_LIMIT)
			setting->limit = queue->groups.others.limit;
		if (DatumGetBool(slot_getattr(slot, SETTING_PAUSED, &isnull)))
			setting->limit = 0;
		setting->rate = get_rate(slot, SETTING_RATE);
		if (setting->rate == 0)
			setting->rate = queue->groups.others.rate;
		setting->pace = fairq_pace(setting->rate, queue->starts.per,
								   queue->starts.burst);
		setting->held_until = get_hold(slot, SETTING_HELD_UNTIL);
	}
	return n;
}

/*
 * A concurrent update can hide a row from one dirty scan, as if its group were
 * not limited.  So read until two readings agree.
 */
static void
read_settings(FairqQueue *queue)
{
	FairqTable *table = fairq_table_open(fairq_catalog()->setting,
										 AccessShareLock);
	FairqKey	key = {1, FAIRQ_EQ, Int32GetDatum(queue->id)};
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_SETTING_BY_GROUP, &key, 1,
										false);
	bool		agreed = false;

	if (queue->groups.settings)
		pfree(queue->groups.settings);
	queue->groups.settings = NULL;
	queue->groups.n = read_settings_once(queue, scan, &queue->groups.settings);
	while (!agreed)
	{
		FairqSetting *again;
		int			n;

		fairq_scan_again(scan, &key, 1);
		n = read_settings_once(queue, scan, &again);
		agreed = n == queue->groups.n &&
			memcmp(again, queue->groups.settings,
				   sizeof(FairqSetting) * n) == 0;
		pfree(queue->groups.settings);
		queue->groups.settings = again;
		queue->groups.n = n;
	}
	for (int i = 0; i < queue->groups.n; i++)
		queue->limited |= queue->groups.settings[i].limit != FAIRQ_NO_LIMIT ||
			limits_starts(&queue->groups.settings[i]);
	fairq_scan_end(scan);
	fairq_table_close(table);
}

/* A grant is a row that is never changed, so one scan does not miss it. */
static void
read_grants(FairqQueue *queue)
{
	FairqTable *table = fairq_table_open(fairq_catalog()->privilege,
										 AccessShareLock);
	FairqKey	key = {1, FAIRQ_EQ, Int32GetDatum(queue->id)};
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_PRIVILEGE_BY_QUEUE, &key,
										1, false);

	if (queue->grants.list)
		pfree(queue->grants.list);
	queue->grants.list = NULL;
	queue->grants.n = 0;
	while (next_current(scan))
	{
		TupleTableSlot *slot = fairq_scan_slot(scan);
		FairqGrant *grant;
		bool		isnull;

		queue->grants.list = queue->grants.list == NULL ?
			MemoryContextAlloc(TopMemoryContext, sizeof(FairqGrant)) :
			repalloc(queue->grants.list,
					 sizeof(FairqGrant) * (queue->grants.n + 1));
		grant = &queue->grants.list[queue->grants.n++];
		grant->role = DatumGetObjectId(slot_getattr(slot, PRIVILEGE_ROLE,
													&isnull));
		grant->privilege =
			fairq_privilege_named(TextDatumGetCString(slot_getattr(slot, PRIVILEGE_PRIVILEGE,
																   &isnull)));
	}
	fairq_scan_end(scan);
	fairq_table_close(table);
}

/*
 * Have the scan at the current row of those keys.  A concurrent update can hide
 * a row from one dirty scan, and hardly from several.
 */
static bool
find_current(FairqScan *scan, const FairqKey *key)
{
	for (int tries = 0; tries < 3; tries++)
	{
		fairq_scan_again(scan, key, 1);
		if (next_current(scan))
			return true;
	}
	return false;
}

static FairqFairBy
get_fair_by(TupleTableSlot *slot)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, QUEUE_FAIR_BY, &isnull);
	char	   *name = isnull ? "" : TextDatumGetCString(value);

	return strcmp(name, "cost") == 0 ? FAIRQ_BY_COST :
		strcmp(name, "time") == 0 ? FAIRQ_BY_TIME : FAIRQ_BY_TASKS;
}

/* Read the lanes' shares.  What is out of range, by hand, is none. */
static void
read_shares(FairqQueue *queue, TupleTableSlot *slot)
{
	bool		isnull;
	Datum		shares = slot_getattr(slot, QUEUE_SHARES, &isnull);
	Datum	   *values;
	bool	   *nulls;
	int			n;

	memset(&queue->shares, 0, sizeof(queue->shares));
	if (isnull)
		return;
	deconstruct_array(DatumGetArrayTypeP(shares), INT4OID, sizeof(int32), true,
					  TYPALIGN_INT, &values, &nulls, &n);
	for (int p = 0; p < Min(n, FAIRQ_PRIORITIES); p++)
	{
		int32		share = nulls[p] ? 0 : DatumGetInt32(values[p]);

		if (share < 1 || share > FAIRQ_MAX_SHARE)
			continue;
		queue->shares.of[p] = share;
		queue->shares.any = true;
	}
}

/* Read the queue's settings from its row. */
static void
read_queue(FairqQueue *queue, TupleTableSlot *slot)
{
	bool		isnull;

	queue->block_length =
		DatumGetInt64(slot_getattr(slot, QUEUE_BLOCK_LENGTH, &isnull));
	queue->paused = DatumGetBool(slot_getattr(slot, QUEUE_PAUSED, &isnull));
	queue->max_running = get_limit(slot, QUEUE_MAX_RUNNING);
	queue->groups.others.weight = 1;
	queue->groups.others.limit = get_limit(slot, QUEUE_CONCURRENCY);
	queue->starts.per = fairq_interval_length(DatumGetIntervalP(slot_getattr(slot, QUEUE_PER,
																			 &isnull)));
	queue->starts.burst = DatumGetInt32(slot_getattr(slot, QUEUE_BURST, &isnull));
	queue->starts.pace = fairq_pace(get_rate(slot, QUEUE_MAX_RATE),
									queue->starts.per, queue->starts.burst);
	queue->starts.held_until = get_hold(slot, QUEUE_HELD_UNTIL);
	queue->groups.others.rate = get_rate(slot, QUEUE_RATE);
	queue->groups.others.pace = fairq_pace(queue->groups.others.rate,
										   queue->starts.per,
										   queue->starts.burst);
	queue->groups.others.held_until = DT_NOBEGIN;
	queue->limited = queue->max_running != FAIRQ_NO_LIMIT ||
		queue->groups.others.limit != FAIRQ_NO_LIMIT ||
		queue->starts.pace.gap != 0 || queue->groups.others.rate != 0;
	text_to_cstring_buffer(DatumGetTextPP(slot_getattr(slot, QUEUE_NAME,
													   &isnull)),
						   queue->name, sizeof(queue->name));
	queue->retries.lease = *DatumGetIntervalP(slot_getattr(slot, QUEUE_LEASE, &isnull));
	queue->retries.max_attempts =
		DatumGetInt32(slot_getattr(slot, QUEUE_MAX_ATTEMPTS, &isnull));
	queue->retries.backoff = (int64)
		fairq_interval_length(DatumGetIntervalP(slot_getattr(slot, QUEUE_BACKOFF,
															 &isnull)));
	queue->retries.in_order =
		DatumGetBool(slot_getattr(slot, QUEUE_IN_ORDER, &isnull));
	queue->notify = DatumGetBool(slot_getattr(slot, QUEUE_NOTIFY, &isnull));
	(void) slot_getattr(slot, QUEUE_RETAIN, &isnull);
	queue->retains = !isnull;
	read_shares(queue, slot);
	queue->shares.fair_by = get_fair_by(slot);
}

/* Has the current user one of these privileges on the queue? */
bool
fairq_may(const FairqQueue *queue, int any)
{
	return fairq_grants_allow(queue->grants.list, queue->grants.n, any);
}

static void
check_privilege(const FairqQueue *queue, int any)
{
	if (!fairq_may(queue, any))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for queue \"%s\"", queue->name));
}

/* NULL if there is no such queue. */
static FairqQueue *
lookup_queue(int32 id)
{
	FairqQueue *queue = hash_search(queues, &id, HASH_FIND, NULL);
	FairqTable *table;
	FairqKey	key = {1, FAIRQ_EQ, Int32GetDatum(id)};
	FairqScan  *scan;
	uint64		now = reading;
	uint64		unknown = pg_atomic_read_u64(&fairq_domain()->settings);

	/* in this order: of another extension it points to what may be another queue's */
	if (queue != NULL && queue->as_of.reading == reading &&
		queue->as_of.unknown == unknown &&
		queue->as_of.version == pg_atomic_read_u64(&queue->hints->version))
		return queue;

	queue = NULL;
	table = fairq_table_open(queue_relid, AccessShareLock);
	scan = fairq_scan_begin(table, FAIRQ_QUEUE_BY_ID, &key, 1, false);
	if (find_current(scan, &key))
	{
		FairqHints *hints = fairq_shmem_queue(id);
		uint64		version = pg_atomic_read_u64(&hints->version);

		/* what was committed before its version was counted up is read now */
		pg_read_barrier();
		if (find_current(scan, &key))
		{
			bool		found;

			queue = hash_search(queues, &id, HASH_ENTER, &found);
			if (!found)
				memset((char *) queue + sizeof(int32), 0,
					   sizeof(FairqQueue) - sizeof(int32));
			queue->as_of.reading = 0;
			queue->hints = hints;
			queue->as_of.version = version;
			queue->as_of.unknown = unknown;
			read_queue(queue, fairq_scan_slot(scan));
			read_settings(queue);
			read_grants(queue);
			queue->as_of.reading = now;
			/* this is for those who may see the queue's groups */
			if (fairq_may(queue, FAIRQ_PRIV_MONITOR))
				elog(DEBUG2, "read the settings of queue \"%s\": %d groups have some",
					 queue->name, queue->groups.n);
		}
	}
	fairq_scan_end(scan);
	fairq_table_close(table);
	return queue;
}

static void
lock_queue(int32 id, LOCKMODE lockmode)
{
	LockDatabaseObject(queue_relid, id, 0, lockmode);
}

/* Report that there is no queue of that name: an error, unless it is skipped. */
void
fairq_no_such_queue(text *name, bool skip)
{
	char		shown[100 + 1];

	/* cuts between characters: a part of one could not be sent to the client */
	text_to_cstring_buffer(name, shown, sizeof(shown));
	if (skip)
		ereport(NOTICE,
				errcode(ERRCODE_FAIRQ_NO_QUEUE),
				errmsg("queue \"%s\" does not exist, skipping", shown));
	else
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_NO_QUEUE),
				errmsg("queue \"%s\" does not exist", shown),
				errhint("Create it with fairq.create_queue()."));
}

/*
 * The queue of that name, locked until the end of the transaction, for one of
 * these privileges.  A caller that has none of them locks nothing.  NULL: there is
 * no such queue.
 */
FairqQueue *
fairq_queue_use_if_exists(text *name, int any_privilege, LOCKMODE lockmode)
{
	char		cname[FAIRQ_MAX_QUEUE_NAME + 1];
	int32		id = 0;

	check_queue_cache();
	if (VARSIZE_ANY_EXHDR(name) <= FAIRQ_MAX_QUEUE_NAME)
	{
		text_to_cstring_buffer(name, cname, sizeof(cname));
		id = lookup_id(cname);
	}
	while (id != 0)
	{
		int32		again;
		FairqQueue *queue = lookup_queue(id);

		if (queue != NULL && !fairq_may(queue, any_privilege))
		{
			/* it may just have been granted */
			AcceptInvalidationMessages();
			check_queue_cache();
			queue = lookup_queue(id);
			if (queue != NULL)
				check_privilege(queue, any_privilege);
		}
		lock_queue(id, lockmode);
		/* waiting for the lock, we may have heard that all is different */
		again = lookup_id(cname);
		if (again == id && (queue = lookup_queue(id)) != NULL)
		{
			check_privilege(queue, any_privilege);
			fairq_shmem_make_room();
			return queue;
		}
		UnlockDatabaseObject(queue_relid, id, 0, lockmode);
		id = again == id ? 0 : again;
	}
	return NULL;
}

/* The same of a queue that must exist. */
FairqQueue *
fairq_queue_use(text *name, int any_privilege, LOCKMODE lockmode)
{
	FairqQueue *queue = fairq_queue_use_if_exists(name, any_privilege, lockmode);

	if (queue == NULL)
		fairq_no_such_queue(name, false);
	return queue;
}

/*
 * The same, after the same errors, if shared memory knows the queue.  Else
 * NULL, and nothing is made there, and nothing locked.
 */
FairqQueue *
fairq_queue_use_if_known(text *name, int any_privilege, LOCKMODE lockmode)
{
	FairqQueue	unknown = {0};
	bool		may;

	check_queue_cache();
	if (VARSIZE_ANY_EXHDR(name) <= FAIRQ_MAX_QUEUE_NAME)
	{
		text_to_cstring_buffer(name, unknown.name, sizeof(unknown.name));
		unknown.id = lookup_id(unknown.name);
	}
	if (unknown.id == 0)
		fairq_no_such_queue(name, false);
	if (fairq_shmem_find_queue(unknown.id) != NULL)
		return fairq_queue_use(name, any_privilege, lockmode);

	/* settings are cached beside hints, so privileges are read for this once */
	read_grants(&unknown);
	may = fairq_may(&unknown, any_privilege);
	unknown.grants.n = 0;
	if (unknown.grants.list != NULL)
		pfree(unknown.grants.list);
	if (!may)
		check_privilege(&unknown, any_privilege);
	/* reading, we may have heard that the queue was dropped */
	if (lookup_id(unknown.name) != unknown.id)
		fairq_no_such_queue(name, false);
	return NULL;
}

/* The queue of that number, not locked; NULL if it is gone. */
FairqQueue *
fairq_queue_by_id(int32 id)
{
	check_queue_cache();
	return lookup_queue(id);
}

/*
 * The same, locked as by fairq_queue_use(), if the caller has one of these
 * privileges on it; else NULL.
 */
FairqQueue *
fairq_queue_use_id(int32 id, int any_privilege)
{
	FairqQueue *queue = fairq_queue_by_id(id);

	if (queue == NULL || !fairq_may(queue, any_privilege))
		return NULL;
	lock_queue(id, AccessShareLock);
	queue = fairq_queue_by_id(id);
	/* it may have been dropped meanwhile, or the privilege revoked */
	if (queue != NULL && fairq_may(queue, any_privilege))
		return queue;
	UnlockDatabaseObject(queue_relid, id, 0, AccessShareLock);
	return NULL;
}

/* Is the queue being made by this very transaction? */
bool
fairq_queue_is_own(int32 id)
{
	FairqTable *table = fairq_table_open(fairq_catalog()->queue,
										 AccessShareLock);
	FairqKey	key = {1, FAIRQ_EQ, Int32GetDatum(id)};
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_QUEUE_BY_ID, &key, 1,
										false);
	bool		own = next_current(scan) && fairq_scan_is_own(scan);

	fairq_scan_end(scan);
	fairq_table_close(table);
	return own;
}

/* What stands for the name of a queue in the lock under which it is created. */
static Oid
hash_of_name(const char *name)
{
	return hash_bytes((const unsigned char *) name, strlen(name));
}

/*
 * Is there a queue of that name, as it is committed or our own?  If not, *creator is
 * the transaction that is creating one, if any.
 */
static bool
name_exists(const char *name, TransactionId *creator)
{
	FairqTable *table = fairq_table_open(queue_relid, AccessShareLock);
	FairqKey	key = {1, FAIRQ_EQ, CStringGetTextDatum(name)};
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_QUEUE_BY_NAME, &key, 1,
										false);
	FairqRowState state;
	bool		exists = false;

	*creator = InvalidTransactionId;
	while (!exists && (state = fairq_scan_next(scan)) != FAIRQ_ROW_END)
	{
		exists = state != FAIRQ_ROW_INSERTING;
		if (!exists)
			*creator = fairq_scan_changer(scan);
	}
	fairq_scan_end(scan);
	fairq_table_close(table);
	return exists;
}

/*
 * Begin to create a queue of that name; false if there is one.  A transaction that is
 * creating one is waited for here, and not by the INSERT, which would fail at
 * REPEATABLE READ.  After true the caller inserts the row, and calls
 * fairq_queue_create_end(): until then no other session begins.
 */
bool
fairq_queue_create_begin(const char *name)
{
	TransactionId creator;

	check_queue_cache();
	while (lookup_id(name) == 0)
	{
		bool		exists;

		CHECK_FOR_INTERRUPTS();
		LockDatabaseObject(queue_relid, hash_of_name(name), 1, ExclusiveLock);
		exists = name_exists(name, &creator);
		if (!exists && !TransactionIdIsValid(creator))
			return true;
		fairq_queue_create_end(name);
		if (exists)
			return false;
		XactLockTableWait(creator, NULL, NULL, XLTW_None);
	}
	return false;
}

void
fairq_queue_create_end(const char *name)
{
	UnlockDatabaseObject(queue_relid, hash_of_name(name), 1, ExclusiveLock);
}

/* Have a lock on the queue, if that can be had at once. */
bool
fairq_queue_try_lock(FairqQueue *queue, LOCKMODE lockmode)
{
	return fairq_queue_id_try_lock(queue->id, lockmode);
}

/* The same of a queue by its id. */
bool
fairq_queue_id_try_lock(int32 id, LOCKMODE lockmode)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, queue_relid, id, 0);
	return LockAcquire(&tag, lockmode, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
fairq_queue_id_unlock(int32 id, LOCKMODE lockmode)
{
	UnlockDatabaseObject(queue_relid, id, 0, lockmode);
}

/* All queues that there are. */
List *
fairq_queue_ids(void)
{
	FairqTable *table = fairq_table_open(fairq_catalog()->queue,
										 AccessShareLock);
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_QUEUE_BY_NAME, NULL, 0,
										false);
	List	   *ids = NIL;
	bool		isnull;

	while (next_current(scan))
		ids = lappend_int(ids, DatumGetInt32(slot_getattr(fairq_scan_slot(scan),
														  QUEUE_ID, &isnull)));
	fairq_scan_end(scan);
	fairq_table_close(table);
	return ids;
}

const FairqSetting *
fairq_group_setting(const FairqQueue *queue, int32 group_no)
{
	int			low = 0;
	int			high = queue->groups.n;

	while (low < high)
	{
		int			mid = (low + high) / 2;

		if (queue->groups.settings[mid].group_no < group_no)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < queue->groups.n &&
		queue->groups.settings[low].group_no == group_no)
		return &queue->groups.settings[low];
	return &queue->groups.others;
}

/* An interval in microseconds, a month of 30 days, as far as a double goes. */
double
fairq_interval_length(const Interval *interval)
{
	return (double) interval->time +
		((double) interval->month * DAYS_PER_MONTH + interval->day) *
		(double) USECS_PER_DAY;
}

/* Notify listening sessions, if we commit, that tasks may be ready. */
void
fairq_notify(const FairqQueue *queue)
{
	if (queue->notify)
	{
		char		channel[FAIRQ_MAX_QUEUE_NAME + sizeof("fairq.")];

		snprintf(channel, sizeof(channel), "fairq.%s", queue->name);
		Async_Notify(channel, "");
	}
}

static const FairqEnding ending = {.settle = settle};

/* Once per backend: settle the cache when transactions end. */
void
fairq_queues_init(void)
{
	fairq_at_end(&ending);
}
