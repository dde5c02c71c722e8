/*
 * queue.c
 *		Queues, their settings and privileges, cached in the backend.
 *
 * Settings are read with a dirty snapshot, which sees what is committed now,
 * whatever the transaction's snapshot.  An address computed with an old block
 * length would be wrong.
 *
 * Locking: a transaction that works on a queue holds AccessShareLock on it, an
 * object lock on (fairq.queue, queue_id), to the end of the transaction.
 * To drop a queue, or to change its block length, a transaction takes
 * AccessExclusiveLock.  Other settings change under ShareUpdateExclusiveLock,
 * one change at a time, concurrently with all other calls.  A queue is created
 * under ExclusiveLock on (fairq.queue, hash of the name, 1), released at once;
 * after that the row makes other transactions wait.
 *
 * Ids are cached by name.  Each change of fairq.queue invalidates that table
 * in the relation cache, which invalidates the ids.  A call checks its id
 * again once it holds the lock, as PostgreSQL does for tables.
 *
 * Settings and privileges of a queue are read again only if they have changed,
 * because there can be very many queues.  Settings of a group are read again
 * only if its own settings have changed, because a queue can have settings of
 * very many groups.  A transaction that changes settings increments the
 * queue's version in shared memory when it ends.  It also records there which
 * settings have changed (fairq.c, transaction.c, registry.c).  That is enough:
 *
 * - The version is incremented after the change is visible, and copied here
 *   before any setting is read.  So settings that were read before the change
 *   have an old version, and are read again.
 * - The version is incremented before locks are released, invalidation
 *   messages are sent and the client is notified of the commit.  So a backend
 *   that learns of a change in any of these ways finds the new version.
 * - The version is incremented before the tasks of the same commit are
 *   published.  So a pop that can find these tasks also finds the new version.
 * - An abort, even of a subtransaction, also increments the version.  Other
 *   backends may have read the row during the change, and we may have read our
 *   own changes.
 * - fairq_queue_changed() records changes of our own transaction in progress:
 *   it increments "reading", or records the group.  If they are undone, the
 *   version changes, as for changes of all other transactions.
 * - Shared memory may have no data of the queue when the queue is changed, but
 *   get data before the change is visible.  Then a count of the domain is
 *   incremented instead.
 * - On a standby none of these counts changes.  There the replay of
 *   invalidations invalidates all settings.  All settings that were read there
 *   are invalid after the promotion.
 *
 * Settings of groups.  The first use of a queue reads the settings of all its
 * groups, each into an entry with the columns of the group's row.  The
 * settings in effect follow from these entries and the queue's own settings.
 * They are computed on demand, once after each reading of the queue's own
 * settings.  So a change of the queue's own settings costs nothing here.  The
 * search for a group neither allocates nor fails, because it also happens
 * under a lane's lock.  A dirty scan can miss a row that a concurrent update
 * moves.  So all settings are read twice.  A group that the second scan did
 * not find is read separately, several times before it counts as missing.
 * Concurrent changes are read again when their version is published.
 *
 * Privileges are rows (queue_id, role, privilege).  A member of the role also
 * has the privilege.  Superusers and members of the role that owns fairq's
 * tables have each privilege.  FAIRQ_PRIV_MANAGE includes the others, and
 * FAIRQ_PRIV_WORK includes FAIRQ_PRIV_MONITOR.  A role that has the privileges
 * of pg_monitor has FAIRQ_PRIV_MONITOR on each queue.  PUBLIC never has a
 * privilege.  A role is stored by its OID, so a new role of the same name
 * inherits nothing.  Rows of roles that were dropped grant nothing, and
 * fairq.maintain() deletes them.
 *
 * If there is no room for a queue's hints, calls on it fail.  Views, maintain
 * and drop_queue then use only its row and its privileges, and read them each
 * time (lookup_queue).
 *
 * Entries are never freed, only reread.  A pointer is valid for the backend's
 * life, and its content is valid until the next fairq_queue_use().
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/async.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"

#include "compat.h"
#include "queue.h"
#include "registry.h"
#include "tools.h"
#include "transaction.h"

/* if the settings of more groups have changed, all settings are read again */
#define MOST_CHANGED 65536

typedef struct Entry
{
	int32		group_no;		/* hash key */
	bool		again;			/* true: the second scan has also found it */

	/* columns of the group's row */
	struct
	{
		int32		weight;		/* its weight */
		int32		limit;		/* its limit; FAIRQ_NO_LIMIT: the queue's */
		int32		rate;		/* its rate; 0: the queue's */
		bool		paused;		/* true: it is paused */
		TimestampTz held_until; /* its hold; DT_NOBEGIN: none */
	}			row;

	/* settings in effect, of a group and of a tenant with that number */
	FairqSetting of_group;
	FairqSetting of_tenant;
	uint64		version;		/* version of the queue's settings from which
								 * both follow; 0: not computed yet */
} Entry;

/* settings of tenants without their own */
static const FairqSetting no_setting = {
	.weight = 1,
	.limit = FAIRQ_NO_LIMIT,
	.held_until = DT_NOBEGIN
};

/*
 * Add the entry to the numbers of groups that are paused, or limited in any
 * way (n is 1), or subtract it (-1).
 */
static void
count_entry(FairqSettings *settings, const Entry *entry, int n)
{
	settings->npaused += entry->row.paused ? n : 0;
	if (entry->row.paused || entry->row.limit != FAIRQ_NO_LIMIT ||
		entry->row.rate != 0 || entry->row.held_until != DT_NOBEGIN)
		settings->nlimiting += n;
}

/* Store the settings of the scan's row. */
static void
put_entry(FairqSettings *settings, TupleTableSlot *slot, bool again)
{
	int32		group_no = fairq_int_of(slot, SETTING_GROUP_NO, 0);
	bool		found;
	Entry	   *entry;

	if (settings->own == NULL)
		settings->own = fairq_hash(TopMemoryContext,
								   "fairq settings of groups", sizeof(int32),
								   sizeof(Entry));
	entry = hash_search(settings->own, &group_no, HASH_ENTER, &found);
	if (found)
		count_entry(settings, entry, -1);
	entry->again = again;
	entry->version = 0;
	entry->row.weight = fairq_int_of(slot, SETTING_WEIGHT, 1);
	entry->row.limit = fairq_int_of(slot, SETTING_CONCURRENCY, FAIRQ_NO_LIMIT);
	entry->row.rate = fairq_int_of(slot, SETTING_RATE, 0);
	entry->row.paused = DatumGetBool(fairq_column(slot, SETTING_PAUSED));
	entry->row.held_until = fairq_time_of(slot, SETTING_HELD_UNTIL, DT_NOBEGIN);
	count_entry(settings, entry, 1);
}

/* The entry of a group; NULL: it does not have its own settings. */
static Entry *
find_entry(const FairqSettings *settings, int32 group_no)
{
	return settings->own == NULL ? NULL :
		hash_search(settings->own, &group_no, HASH_FIND, NULL);
}

static void
remove_entry(FairqSettings *settings, int32 group_no)
{
	Entry	   *entry = find_entry(settings, group_no);

	if (entry == NULL)
		return;
	count_entry(settings, entry, -1);
	(void) hash_search(settings->own, &group_no, HASH_REMOVE, NULL);
}

/*
 * Reread the settings of these groups, whose numbers this function sorts.
 * Returns their number.
 */
static int
read_settings(FairqSettings *settings, int32 queue_id, int32 *group_nos,
			  int n)
{
	FairqRange	range = fairq_range_2(Int32GetDatum(queue_id), (Datum) 0);
	FairqScan  *scan;

	if (n == 0)
		return 0;
	qsort(group_nos, n, sizeof(int32), fairq_compare_uint32);
	n = (int) qunique(group_nos, n, sizeof(int32), fairq_compare_uint32);
	scan = fairq_scan_table(FAIRQ_GROUP_SETTING, FAIRQ_SETTING_BY_GROUP,
							range);
	for (int i = 0; i < n; i++)
	{
		range.equal[1] = Int32GetDatum(group_nos[i]);
		if (fairq_scan_find_current(scan, range))
			put_entry(settings, scan->slot, true);
		else
			remove_entry(settings, group_nos[i]);
	}
	fairq_scan_end(scan);
	return n;
}

/* Reread the groups that the second scan did not find. */
static void
read_missed(FairqSettings *settings, int32 queue_id)
{
	HASH_SEQ_STATUS walk;
	Entry	   *entry;

	if (settings->own == NULL)
		return;
	hash_seq_init(&walk, settings->own);
	while ((entry = hash_seq_search(&walk)) != NULL)
	{
		int32		group_no = entry->group_no;

		/* the call may remove this entry, but adds none */
		if (!entry->again)
			(void) read_settings(settings, queue_id, &group_no, 1);
	}
}

/* Read the settings of all groups of the queue. */
static void
read_all_settings(FairqSettings *settings, int32 queue_id)
{
	FairqRange	range = fairq_range(Int32GetDatum(queue_id));
	FairqScan  *scan = fairq_scan_table(FAIRQ_GROUP_SETTING,
										FAIRQ_SETTING_BY_GROUP, range);

	/* only the first setting creates a hash table */
	if (settings->own != NULL)
		hash_destroy(settings->own);
	settings->own = NULL;
	settings->nlimiting = settings->npaused = 0;
	for (int again = 0; again < 2; again++)
	{
		fairq_scan_again(scan, range);
		while (fairq_scan_next_current(scan))
			put_entry(settings, scan->slot, again);
	}
	read_missed(settings, queue_id);
	settings->changed.n = 0;
	fairq_scan_end(scan);
}

/*
 * Record that our own transaction has changed a group's settings.  Returns
 * false if there are too many groups.
 */
static bool
note_setting(FairqSettings *settings, int32 group_no)
{
	if (settings->changed.n == MOST_CHANGED)
		return false;
	if (settings->changed.n == settings->changed.max)
		settings->changed.group_nos =
			fairq_grow(TopMemoryContext, settings->changed.group_nos,
					   &settings->changed.max, 16, sizeof(int32));
	settings->changed.group_nos[settings->changed.n++] = group_no;
	return true;
}

/* Compute the settings in effect from the row and the queue's settings. */
static void
compute(const FairqSettings *settings, Entry *entry)
{
	const FairqSetting *others = &settings->others.setting;

	if (entry->version == settings->others.version)
		return;
	entry->of_tenant = (FairqSetting)
	{
		.weight = entry->row.weight,
			.limit = entry->row.paused ? 0 : entry->row.limit,
			.pace = fairq_pace(entry->row.rate, settings->others.per,
							   settings->others.burst),
			.held_until = entry->row.held_until
	};
	entry->of_group = entry->of_tenant;
	if (entry->of_group.limit == FAIRQ_NO_LIMIT)
		entry->of_group.limit = others->limit;
	if (entry->row.rate == 0)
		entry->of_group.pace = others->pace;
	entry->version = settings->others.version;
}

/*
 * The settings in effect for the group; queue->groups.others.setting if it
 * does not have its own.  The result is valid until the queue's settings are
 * read again.
 */
const FairqSetting *
fairq_group_setting(const FairqQueue *queue, int32 group_no)
{
	Entry	   *entry = find_entry(&queue->groups, group_no);

	if (entry == NULL)
		return &queue->groups.others.setting;
	compute(&queue->groups, entry);
	return &entry->of_group;
}

/*
 * The settings of all tasks of a tenant together.  A tenant gets no limit and
 * no rate from the queue.  The result is valid until the queue's settings are
 * read again.
 */
const FairqSetting *
fairq_tenant_setting(const FairqQueue *queue, int32 tenant)
{
	Entry	   *entry = find_entry(&queue->groups, tenant);

	if (entry == NULL)
		return &no_setting;
	compute(&queue->groups, entry);
	return &entry->of_tenant;
}

typedef struct QueueName
{
	char		name[FAIRQ_MAX_QUEUE_NAME + 1]; /* hash key */
	int32		id;
	uint64		generation;
} QueueName;

static HTAB *queues = NULL;
static HTAB *names = NULL;
static uint64 generation = 1;	/* counts invalidations of names */
static uint64 reading = 1;		/* counts events that invalidate all settings,
								 * except those of groups */
static uint64 reading_groups = 1;	/* counts events that invalidate the
									 * settings of all groups */
static bool changing = false;	/* true: our own transaction has changed some
								 * settings */
static bool changing_all = false;	/* true: our own transaction may have
									 * changed settings of any group */

/*
 * the subtransaction whose commit notifies other backends of the last change
 */
static SubTransactionId told_in = InvalidSubTransactionId;

static bool replaying = false;	/* cached settings were read on a standby */
static Oid	queue_relid = InvalidOid;

/* Invalidate all settings, so that they are read again. */
static void
make_all_void(void)
{
	reading++;
	reading_groups++;
}

static void
invalidate_names(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == queue_relid)
	{
		generation++;
		if (replaying)
			make_all_void();
	}
}

/* Make the caches.  If an error occurs, there is no cache. */
static void
init_cache(void)
{
	HASHCTL		ctl = {0};
	HTAB	   *new_queues;

	new_queues = fairq_hash(TopMemoryContext, "fairq queues", sizeof(int32),
							sizeof(FairqQueue));
	ctl.keysize = FAIRQ_MAX_QUEUE_NAME + 1;
	ctl.entrysize = sizeof(QueueName);
	names = hash_create("fairq queue names", 64, &ctl,
						HASH_ELEM | HASH_STRINGS);
	CacheRegisterRelcacheCallback(invalidate_names, (Datum) 0);
	queues = new_queues;
}

static void
check_queue_cache(void)
{
	Oid			relid = fairq_relid(FAIRQ_QUEUE);

	if (queues == NULL)
		init_cache();
	if (queue_relid != relid)
	{
		/* the extension was dropped and created again */
		queue_relid = relid;
		generation++;
		make_all_void();
	}
	if (replaying != RecoveryInProgress())
	{
		replaying = !replaying;
		make_all_void();
	}
}

/*
 * If this transaction commits, invalidate names in other backends, and on
 * standbys everything cached here.  Make our own later commands see its
 * changes.  One message per subtransaction is enough.
 */
static void
tell_others(void)
{
	SubTransactionId sub = GetCurrentSubTransactionId();

	if (told_in != sub)
		CacheInvalidateRelcacheByRelid(fairq_relid(FAIRQ_QUEUE));
	fairq_written();
	told_in = sub;
	changing = true;
}

/*
 * Record a change of queues or privileges; with all, settings of any groups
 * may have changed, too.  It applies to this backend from now on, and to other
 * backends once it has committed.
 */
void
fairq_queue_changed(bool all)
{
	tell_others();
	generation++;
	reading++;
	reading_groups += all;
	changing_all |= all;
}

/* Record a change of a group's settings. */
void
fairq_queue_group_changed(int32 queue_id, int32 group_no)
{
	FairqQueue *queue = queues == NULL ? NULL :
		hash_search(queues, &queue_id, HASH_FIND, NULL);

	tell_others();
	if (queue != NULL && !note_setting(&queue->groups, group_no))
		reading_groups++;
}

/*
 * Settle changes of queues and settings at the end of a transaction, or of a
 * subtransaction (!all), which has committed or aborted.
 */
void
fairq_queues_settle(bool committed, bool all)
{
	if (changing && !committed)
		reading++;
	if (changing_all && !committed)
		reading_groups++;
	changing &= !all;
	changing_all &= !all;
	if (all)
		told_in = InvalidSubTransactionId;
}

/*
 * The id of the queue with a given name; 0 if there is none.  Ids start at 1.
 */
static int32
read_id(const char *name)
{
	FairqRange	range = fairq_range(CStringGetTextDatum(name));
	FairqScan  *scan = fairq_scan_table(FAIRQ_QUEUE, FAIRQ_QUEUE_BY_NAME,
										range);
	int32		id = 0;

	if (fairq_scan_find_current(scan, range))
		id = fairq_int_of(scan->slot, QUEUE_ID, 0);
	fairq_scan_end(scan);
	return id;
}

static int32
lookup_id(const char *name)
{
	QueueName  *entry = hash_search(names, name, HASH_FIND, NULL);
	int32		id;
	uint64		now = generation;

	if (entry != NULL && entry->generation == generation)
		return entry->id;
	id = read_id(name);
	if (id != 0)
	{
		entry = hash_search(names, name, HASH_ENTER, NULL);
		entry->id = id;
		entry->generation = now;
	}
	return id;
}

/*
 * Read the grants, whose list is allocated in the given context.  A grant is a
 * row that is never changed, so one scan does not miss it.
 */
static void
read_grants(FairqQueue *queue, MemoryContext context)
{
	FairqRange	range = fairq_range(Int32GetDatum(queue->id));
	FairqScan  *scan = fairq_scan_table(FAIRQ_QUEUE_PRIVILEGE,
										FAIRQ_PRIVILEGE_BY_QUEUE, range);

	if (queue->grants.list)
		pfree(queue->grants.list);
	queue->grants.list = NULL;
	queue->grants.n = 0;
	while (fairq_scan_next_current(scan))
	{
		TupleTableSlot *slot = scan->slot;
		Datum		privilege = fairq_column(slot, PRIVILEGE_PRIVILEGE);
		FairqGrant *grant;

		queue->grants.list = queue->grants.list == NULL ?
			MemoryContextAlloc(context, sizeof(FairqGrant)) :
			repalloc(queue->grants.list,
					 sizeof(FairqGrant) * (queue->grants.n + 1));
		grant = &queue->grants.list[queue->grants.n++];
		grant->role = DatumGetObjectId(fairq_column(slot, PRIVILEGE_ROLE));
		grant->privilege = fairq_privilege_named(TextDatumGetCString(privilege));
	}
	fairq_scan_end(scan);
}

/* The unit of fairness.  The column's CHECK refuses other names. */
static FairqFairBy
get_fair_by(TupleTableSlot *slot, bool tenants)
{
	char	   *name = TextDatumGetCString(fairq_column(slot, QUEUE_FAIR_BY));

	if (strcmp(name, "cost") == 0)
		return FAIRQ_BY_COST;
	if (strcmp(name, "time") == 0)
		return FAIRQ_BY_TIME;
	if (strcmp(name, "tasks") != 0)
		elog(ERROR, "unknown fair_by: \"%s\"", name);
	return tenants ? FAIRQ_BY_UNITS : FAIRQ_BY_TASKS;
}

/*
 * Read the lanes' shares.  A share that was written by SQL and is out of range
 * counts as none.
 */
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

/* The length of an interval; NULL: 0. */
static double
length_of(TupleTableSlot *slot, AttrNumber attno)
{
	Datum		value = fairq_column(slot, attno);

	return DatumGetPointer(value) == NULL ? 0 :
		fairq_interval_length(DatumGetIntervalP(value));
}

/* Read the settings that apply to groups without their own settings. */
static void
read_others(FairqQueue *queue, TupleTableSlot *slot)
{
	FairqSettings *groups = &queue->groups;
	FairqSetting *setting = &groups->others.setting;

	groups->others.per = length_of(slot, QUEUE_PER);
	groups->others.burst = fairq_int_of(slot, QUEUE_BURST, 1);
	setting->weight = 1;
	setting->limit = fairq_int_of(slot, QUEUE_CONCURRENCY, FAIRQ_NO_LIMIT);
	setting->pace = fairq_pace(fairq_int_of(slot, QUEUE_RATE, 0),
							   groups->others.per, groups->others.burst);
	setting->held_until = DT_NOBEGIN;
	groups->others.version++;
}

/* Read the queue's settings from its row. */
static void
read_queue(FairqQueue *queue, TupleTableSlot *slot)
{
	Datum		separator = fairq_column(slot, QUEUE_SEPARATOR);

	queue->block_length = DatumGetInt64(fairq_column(slot, QUEUE_BLOCK_LENGTH));
	queue->paused = DatumGetBool(fairq_column(slot, QUEUE_PAUSED));
	queue->max_running = fairq_int_of(slot, QUEUE_MAX_RUNNING, FAIRQ_NO_LIMIT);
	read_others(queue, slot);
	queue->starts.pace = fairq_pace(fairq_int_of(slot, QUEUE_MAX_RATE, 0),
									queue->groups.others.per,
									queue->groups.others.burst);
	queue->starts.held_until = fairq_time_of(slot, QUEUE_HELD_UNTIL, DT_NOBEGIN);
	text_to_cstring_buffer(DatumGetTextPP(fairq_column(slot, QUEUE_NAME)),
						   queue->name, sizeof(queue->name));
	queue->retries.lease = *DatumGetIntervalP(fairq_column(slot, QUEUE_LEASE));
	queue->retries.max_attempts = fairq_int_of(slot, QUEUE_MAX_ATTEMPTS, 1);
	queue->retries.backoff = (int64) length_of(slot, QUEUE_BACKOFF);
	queue->retries.backoff_max = (int64) length_of(slot, QUEUE_BACKOFF_MAX);
	queue->retries.max_run_time = (int64) length_of(slot, QUEUE_MAX_RUN_TIME);
	queue->retries.in_order = DatumGetBool(fairq_column(slot, QUEUE_IN_ORDER));
	queue->notify = DatumGetBool(fairq_column(slot, QUEUE_NOTIFY));
	queue->retains = !slot_attisnull(slot, QUEUE_RETAIN);
	read_shares(queue, slot);
	queue->shares.separator = DatumGetPointer(separator) == NULL ? 0 :
		*VARDATA_ANY(DatumGetTextPP(separator));
	queue->shares.fair_by = get_fair_by(slot, queue->shares.separator != 0);
}

/*
 * Whether the current user has one of these privileges on the queue (NULL: on
 * all), or a privilege that includes one of them.
 */
bool
fairq_may(const FairqQueue *queue, int any)
{
	any |= FAIRQ_PRIV_MANAGE;
	if (any & FAIRQ_PRIV_MONITOR)
		any |= FAIRQ_PRIV_WORK;
	for (int i = 0; queue != NULL && i < queue->grants.n; i++)
	{
		const FairqGrant *grant = &queue->grants.list[i];

		if ((grant->privilege & any) &&
			has_privs_of_role(GetUserId(), grant->role))
			return true;
	}
	if ((any & FAIRQ_PRIV_MONITOR) &&
		has_privs_of_role(GetUserId(), ROLE_PG_MONITOR))
		return true;
	return has_privs_of_role(GetUserId(), fairq_catalog()->owner);
}

static void
check_privilege(const FairqQueue *queue, int any)
{
	if (!fairq_may(queue, any))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for queue \"%s\"", queue->name));
}

/*
 * Returns the number of changes since a version, at most FAIRQ_CHANGES_KEPT,
 * and copies them; -1 if there are more.  *now is the present version.
 */
static int
changes_since(FairqVersions *versions, uint64 version, int32 *changes,
			  uint64 *now)
{
	int			n = -1;

	SpinLockAcquire(&versions->mutex);
	*now = pg_atomic_read_u64(&versions->now);
	if (*now - version <= FAIRQ_CHANGES_KEPT)
	{
		for (n = 0; version + n < *now; n++)
			changes[n] = versions->changes[(version + n) % FAIRQ_CHANGES_KEPT];
	}
	SpinLockRelease(&versions->mutex);
	return n;
}

/* Which cached data of a queue has to be read again. */
typedef struct Stale
{
	bool		row;			/* true: the queue's own settings, and its
								 * privileges */
	bool		groups;			/* true: the settings of all groups */
	int			n;				/* number of groups with changed settings */
	int32		changes[FAIRQ_CHANGES_KEPT];	/* their numbers */
	FairqAsOf	as_of;			/* versions up to which these are complete */
} Stale;

/*
 * Find stale cached data of the queue.  Returns false if there is none.
 */
static bool
find_stale(FairqQueue *queue, Stale *stale)
{
	FairqVersions *versions;
	int			n;

	stale->as_of.unknown = pg_atomic_read_u64(&fairq_domain()->settings);
	stale->as_of.reading = reading;
	stale->as_of.groups = reading_groups;
	stale->row = queue == NULL || queue->as_of.reading != reading;
	stale->groups = queue == NULL || queue->as_of.groups != reading_groups ||
		queue->as_of.unknown != stale->as_of.unknown;
	stale->n = 0;
	/*
	 * after a new CREATE EXTENSION the queue's hints may belong to another
	 * queue
	 */
	if (stale->groups)
		return true;
	versions = &queue->hints->versions;
	stale->as_of.version = queue->as_of.version;
	if (pg_atomic_read_u64(&versions->now) == queue->as_of.version)
		return stale->row || queue->groups.changed.n > 0;
	n = changes_since(versions, queue->as_of.version, stale->changes,
					  &stale->as_of.version);
	stale->groups = n < 0;
	for (int i = 0; i < n; i++)
	{
		stale->groups |= stale->changes[i] == FAIRQ_ALL_CHANGED;
		stale->row |= stale->changes[i] == FAIRQ_QUEUE_CHANGED;
		if (stale->changes[i] >= 0)
			stale->changes[stale->n++] = stale->changes[i];
	}
	return true;
}

/* Read the stale parts of a queue, whose row was read if necessary. */
static void
read_stale(FairqQueue *queue, Stale *stale)
{
	FairqSettings *groups = &queue->groups;
	int			nread = 0;

	if (stale->groups)
		read_all_settings(groups, queue->id);
	else
	{
		nread = read_settings(groups, queue->id, stale->changes, stale->n) +
			read_settings(groups, queue->id, groups->changed.group_nos,
						  groups->changed.n);
		groups->changed.n = 0;
	}
	queue->limited = queue->max_running != FAIRQ_NO_LIMIT ||
		groups->others.setting.limit != FAIRQ_NO_LIMIT ||
		queue->starts.pace.gap != 0 ||
		groups->others.setting.pace.gap != 0 ||
		groups->nlimiting > 0;
	queue->as_of = stale->as_of;
	/* this message is for roles that may see the queue's groups */
	if (!fairq_may(queue, FAIRQ_PRIV_MONITOR))
		return;
	if (stale->groups)
		elog(DEBUG2, "read the settings of queue \"%s\": %ld groups have some",
			 queue->name, groups->own == NULL ? 0 :
			 hash_get_num_entries(groups->own));
	else
		elog(DEBUG2, "read the settings of queue \"%s\" again: those of %d groups%s",
			 queue->name, nread, stale->row ? ", and its own" : "");
}

/* Cache the queue of the scan's row, or reread the row. */
static FairqQueue *
enter_queue(int32 id, FairqHints *hints, TupleTableSlot *slot, Stale *stale)
{
	bool		found;
	FairqQueue *queue = hash_search(queues, &id, HASH_ENTER, &found);

	if (!found)
		memset((char *) queue + sizeof(int32), 0,
			   sizeof(FairqQueue) - sizeof(int32));
	/* so that the entry does not count as valid after an error */
	queue->as_of.reading = 0;
	if (stale->groups)
		queue->as_of.groups = 0;
	queue->hints = hints;
	read_queue(queue, slot);
	read_grants(queue, TopMemoryContext);
	return queue;
}

/*
 * Find or make the hints of a queue; NULL: there is no room for them.  Views
 * look up a queue for each row, so the function tries once per statement.
 */
static FairqHints *
hints_if_room(int32 id)
{
	/* a background worker has no statement, so its time is 0 */
	static TimestampTz full_at = DT_NOBEGIN;
	MemoryContext context = CurrentMemoryContext;
	FairqHints *volatile hints = NULL;

	if (full_at == GetCurrentStatementStartTimestamp() &&
		fairq_shmem_queue(id, false) == NULL)
		return NULL;
	PG_TRY();
	{
		hints = fairq_shmem_queue(id, true);
	}
	PG_CATCH();
	{
		if (!fairq_catch(ERRCODE_DISK_FULL, context))
			PG_RE_THROW();
		full_at = GetCurrentStatementStartTimestamp();
	}
	PG_END_TRY();
	return hints;
}

/*
 * NULL if there is no such queue.  Without must_have, a queue gets no hints if
 * there is no room for them.  Then only its own settings and its privileges
 * are read, and the queue is valid until the next such look-up.
 */
static FairqQueue *
lookup_queue(int32 id, bool must_have)
{
	static FairqQueue without = {0};

	FairqQueue *queue = hash_search(queues, &id, HASH_FIND, NULL);
	FairqQueue *entered = NULL;
	FairqRange	range = fairq_range(Int32GetDatum(id));
	FairqScan  *scan;
	Stale		stale;

	if (!find_stale(queue, &stale))
		return queue;
	if (!stale.row && !stale.groups)
	{
		read_stale(queue, &stale);
		return queue;
	}
	scan = fairq_scan_table(FAIRQ_QUEUE, FAIRQ_QUEUE_BY_ID, range);
	if (fairq_scan_find_current(scan, range))
	{
		FairqHints *hints = must_have ? fairq_shmem_queue(id, true) :
			hints_if_room(id);

		if (hints == NULL)
		{
			without.id = id;
			read_queue(&without, scan->slot);
			read_grants(&without, TopMemoryContext);
			fairq_scan_end(scan);
			return &without;
		}
		if (stale.groups || hints != queue->hints)
		{
			stale.groups = true;
			stale.as_of.version = pg_atomic_read_u64(&hints->versions.now);
		}
		/*
		 * changes that were committed before the version was incremented are
		 * read now
		 */
		pg_read_barrier();
		if (fairq_scan_find_current(scan, range))
		{
			entered = enter_queue(id, hints, scan->slot, &stale);
			read_stale(entered, &stale);
		}
	}
	fairq_scan_end(scan);
	return entered;
}

/*
 * Report that there is no queue with the name.  The report is an error, or
 * with skip a NOTICE.
 */
void
fairq_no_such_queue(text *name, bool skip)
{
	char		shown[100 + 1];

	/*
	 * cuts between characters, because a part of one could not be sent to the
	 * client
	 */
	text_to_cstring_buffer(name, shown, sizeof(shown));
	ereport(skip ? NOTICE : ERROR,
			errcode(ERRCODE_FAIRQ_NO_QUEUE),
			skip ? errmsg("queue \"%s\" does not exist, skipping", shown) :
			errmsg("queue \"%s\" does not exist", shown),
			skip ? 0 : errhint("Create it with fairq.create_queue()."));
}

/*
 * The id of the queue with the given name, which is copied to cname; 0 if
 * there is no such queue.  cname has room for FAIRQ_MAX_QUEUE_NAME bytes.
 */
static int32
find_id(text *name, char *cname)
{
	check_queue_cache();
	if (VARSIZE_ANY_EXHDR(name) > FAIRQ_MAX_QUEUE_NAME)
		return 0;
	text_to_cstring_buffer(name, cname, FAIRQ_MAX_QUEUE_NAME + 1);
	return lookup_id(cname);
}

/*
 * The queue with a given name, locked until the end of the transaction, for a
 * caller that has one of these privileges.  A caller without any of them takes
 * no lock.  NULL: there is no such queue.  Without must_have, queue->hints is
 * NULL if there is no room for its hints.
 */
FairqQueue *
fairq_queue_use_if_exists(text *name, int any_privilege, LOCKMODE lockmode,
						  bool must_have)
{
	char		cname[FAIRQ_MAX_QUEUE_NAME + 1];
	int32		id = find_id(name, cname);

	while (id != 0)
	{
		int32		again;
		FairqQueue *queue = lookup_queue(id, must_have);

		if (queue != NULL && !fairq_may(queue, any_privilege))
		{
			/* the privilege may have just been granted */
			AcceptInvalidationMessages();
			check_queue_cache();
			queue = lookup_queue(id, must_have);
			if (queue != NULL)
				check_privilege(queue, any_privilege);
		}
		LockDatabaseObject(queue_relid, id, 0, lockmode);
		/* while we waited for the lock, invalidations may have arrived */
		again = lookup_id(cname);
		if (again == id && (queue = lookup_queue(id, must_have)) != NULL)
		{
			check_privilege(queue, any_privilege);
			return queue;
		}
		UnlockDatabaseObject(queue_relid, id, 0, lockmode);
		id = again == id ? 0 : again;
	}
	return NULL;
}

/* The queue with a given name, which must exist. */
FairqQueue *
fairq_queue_use(text *name, int any_privilege, LOCKMODE lockmode)
{
	FairqQueue *queue = fairq_queue_use_if_exists(name, any_privilege,
												  lockmode, true);

	if (queue == NULL)
		fairq_no_such_queue(name, false);
	return queue;
}

/*
 * Returns the queue with a given name, if shared memory has its hints, with
 * the errors of fairq_queue_use().  Otherwise NULL, and the call neither
 * creates hints nor takes a lock.
 */
FairqQueue *
fairq_queue_to_view(text *name)
{
	FairqQueue	unknown = {0};

	unknown.id = find_id(name, unknown.name);
	if (unknown.id == 0)
		fairq_no_such_queue(name, false);
	if (fairq_shmem_queue(unknown.id, false) != NULL)
		return fairq_queue_use(name, FAIRQ_PRIV_MONITOR, AccessShareLock);

	/*
	 * the cache has only queues with hints, so read the privileges separately
	 */
	read_grants(&unknown, CurrentMemoryContext);
	check_privilege(&unknown, FAIRQ_PRIV_MONITOR);
	/* an invalidation during the read may say that the queue was dropped */
	if (lookup_id(unknown.name) != unknown.id)
		fairq_no_such_queue(name, false);
	return NULL;
}

/*
 * The queue with a given id, not locked; NULL if it is gone.  Without
 * must_have, queue->hints is NULL if there is no room for its hints.  Then the
 * queue is valid until the next look-up.
 */
FairqQueue *
fairq_queue_by_id(int32 id, bool must_have)
{
	check_queue_cache();
	return lookup_queue(id, must_have);
}

/*
 * The queue with a given id, not locked, to view its hints.  NULL if it is
 * gone, there is no room for its hints, or the caller has none of these
 * privileges.
 */
FairqQueue *
fairq_queue_if_hints(int32 id, int any_privilege)
{
	FairqQueue *queue = fairq_queue_by_id(id, false);

	return queue != NULL && queue->hints != NULL &&
		fairq_may(queue, any_privilege) ? queue : NULL;
}

/*
 * The queue with a given id, locked as by fairq_queue_use(), if the caller has
 * one of these privileges on it; else NULL.  Without wait, NULL also means
 * that the lock is not free, or that there is no room for its hints.
 */
FairqQueue *
fairq_queue_use_id(int32 id, int any_privilege, bool wait)
{
	FairqQueue *queue = fairq_queue_by_id(id, wait);

	if (queue == NULL || queue->hints == NULL ||
		!fairq_may(queue, any_privilege))
		return NULL;
	if (wait)
		LockDatabaseObject(queue_relid, id, 0, AccessShareLock);
	else if (!fairq_queue_id_try_lock(id, AccessShareLock))
		return NULL;
	queue = fairq_queue_by_id(id, true);
	/* the queue may have been dropped meanwhile, or the privilege revoked */
	if (queue != NULL && fairq_may(queue, any_privilege))
		return queue;
	fairq_queue_id_unlock(id, AccessShareLock);
	return NULL;
}

/* Lock the queue with a given id, if that is possible at once. */
bool
fairq_queue_id_try_lock(int32 id, LOCKMODE lockmode)
{
	LOCKTAG		tag;

	/*
	 * do not use queue_relid, because a worker that loads has not looked up
	 * any queue yet
	 */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, fairq_relid(FAIRQ_QUEUE), id, 0);
	return LockAcquire(&tag, lockmode, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
fairq_queue_id_unlock(int32 id, LOCKMODE lockmode)
{
	UnlockDatabaseObject(fairq_relid(FAIRQ_QUEUE), id, 0, lockmode);
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
