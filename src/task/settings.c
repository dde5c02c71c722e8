/*
 * settings.c
 *		Settings of a queue's groups, cached in the backend.
 *
 * All of them are read at the first use of a queue, each into an entry of a
 * hash table.  After that, only groups with changed settings are reread, one
 * by one; queue.c finds them.  So a change to one group costs each backend one
 * read, however many groups have settings.
 *
 * An entry holds the columns of the group's row.  The settings in effect
 * follow from these and the queue's own settings.  They are computed on
 * demand, once after each reading of the queue's settings.  So a change of the
 * queue's settings costs nothing here.  The search for a group neither
 * allocates nor fails, because it also happens under a lane's lock.
 *
 * A dirty scan can miss a row that a concurrent update moves.  So all settings
 * are read twice.  A group that the second scan did not find is then read
 * separately.  A single group is read several times before it counts as
 * missing.  Concurrent changes are read again when their version is published.
 *
 * Locking: none.
 */
#include "postgres.h"

#include "counter.h"
#include "grow.h"
#include "settings.h"
#include "store.h"

/* if more have changed, all settings are read again */
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
	.group_no = -1,
	.weight = 1,
	.limit = FAIRQ_NO_LIMIT,
	.held_until = DT_NOBEGIN
};

/* Add the entry to the counts, or subtract it (-1). */
static void
count_entry(FairqSettings *settings, const Entry *entry, int n)
{
	settings->npaused += entry->row.paused ? n : 0;
	if (entry->row.paused || entry->row.limit != FAIRQ_NO_LIMIT ||
		entry->row.rate != 0 || entry->row.held_until != DT_NOBEGIN)
		settings->nlimiting += n;
}

/* Begin without settings.  Only the first setting makes a table. */
static void
forget_all(FairqSettings *settings)
{
	if (settings->own != NULL)
		hash_destroy(settings->own);
	settings->own = NULL;
	settings->nlimiting = settings->npaused = 0;
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

static int
compare_group_nos(const void *a, const void *b)
{
	int32		x = *(const int32 *) a;
	int32		y = *(const int32 *) b;

	return x < y ? -1 : x > y;
}

/*
 * Reread the settings of these groups, which this sorts.  Returns their
 * number.
 */
int
fairq_settings_read(FairqSettings *settings, int32 queue_id, int32 *group_nos,
					int n)
{
	FairqRange	range = fairq_range_2(Int32GetDatum(queue_id), (Datum) 0);
	FairqTable *table;
	FairqScan  *scan;
	int			nread = 0;

	if (n == 0)
		return 0;
	qsort(group_nos, n, sizeof(int32), compare_group_nos);
	table = fairq_open(FAIRQ_GROUP_SETTING, AccessShareLock);
	scan = fairq_scan_begin(table, FAIRQ_SETTING_BY_GROUP, range);
	for (int i = 0; i < n; i++)
	{
		if (i > 0 && group_nos[i] == group_nos[i - 1])
			continue;
		range.equal[1] = Int32GetDatum(group_nos[i]);
		if (fairq_scan_find_current(scan, range))
			put_entry(settings, scan->slot, true);
		else
			remove_entry(settings, group_nos[i]);
		nread++;
	}
	fairq_scan_end(scan);
	fairq_table_close(table);
	return nread;
}

/* Store the settings of the rows of a scan. */
static void
read_rows(FairqSettings *settings, FairqScan *scan, bool again)
{
	while (fairq_scan_next_current(scan))
		put_entry(settings, scan->slot, again);
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

		/* that entry may be removed, but none is added */
		if (!entry->again)
			(void) fairq_settings_read(settings, queue_id, &group_no, 1);
	}
}

/* Read the settings of all groups of the queue. */
void
fairq_settings_read_all(FairqSettings *settings, int32 queue_id)
{
	FairqTable *table = fairq_open(FAIRQ_GROUP_SETTING, AccessShareLock);
	FairqRange	range = fairq_range(Int32GetDatum(queue_id));
	FairqScan  *scan = fairq_scan_begin(table, FAIRQ_SETTING_BY_GROUP, range);

	forget_all(settings);
	read_rows(settings, scan, false);
	fairq_scan_again(scan, range);
	read_rows(settings, scan, true);
	read_missed(settings, queue_id);
	settings->changed.n = 0;
	fairq_scan_end(scan);
	fairq_table_close(table);
}

/*
 * Record that our own transaction has changed a group's settings.  Returns
 * false if there are too many groups.
 */
bool
fairq_settings_note(FairqSettings *settings, int32 group_no)
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
		.group_no = entry->group_no,
			.weight = entry->row.weight,
			.limit = entry->row.paused ? 0 : entry->row.limit,
			.rate = entry->row.rate,
			.pace = fairq_pace(entry->row.rate, settings->others.per,
							   settings->others.burst),
			.held_until = entry->row.held_until
	};
	entry->of_group = entry->of_tenant;
	if (entry->of_group.limit == FAIRQ_NO_LIMIT)
		entry->of_group.limit = others->limit;
	if (entry->of_group.rate == 0)
	{
		entry->of_group.rate = others->rate;
		entry->of_group.pace = others->pace;
	}
	entry->version = settings->others.version;
}

/*
 * The settings in effect for the group; settings->others.setting if it does
 * not have its own.  Valid until the queue's settings are read again.
 */
const FairqSetting *
fairq_setting_of(const FairqSettings *settings, int32 group_no)
{
	Entry	   *entry = find_entry(settings, group_no);

	if (entry == NULL)
		return &settings->others.setting;
	compute(settings, entry);
	return &entry->of_group;
}

/*
 * The settings of all tasks of a tenant together.  It has no limit and no rate
 * from the queue.  Valid until the queue's settings are read again.
 */
const FairqSetting *
fairq_tenant_setting(const FairqSettings *settings, int32 tenant)
{
	Entry	   *entry = find_entry(settings, tenant);

	if (entry == NULL)
		return &no_setting;
	compute(settings, entry);
	return &entry->of_tenant;
}

/* Whether a group, or its tenant (-1: none), is paused. */
bool
fairq_is_paused(const FairqSettings *settings, int32 group_no, int32 tenant)
{
	return fairq_setting_of(settings, group_no)->limit == 0 ||
		(tenant >= 0 &&
		 fairq_tenant_setting(settings, tenant)->limit == 0);
}

/* Begin a walk through all groups that have their own settings. */
void
fairq_settings_walk(const FairqSettings *settings, FairqSettingsWalk *walk)
{
	walk->settings = settings->own == NULL ? NULL : settings;
	if (settings->own != NULL)
		hash_seq_init(&walk->status, settings->own);
}

/* The next of them, in no order; NULL: there are no more. */
const FairqSetting *
fairq_settings_next(FairqSettingsWalk *walk)
{
	Entry	   *entry = walk->settings == NULL ? NULL :
		hash_seq_search(&walk->status);

	if (entry == NULL)
		return NULL;
	compute(walk->settings, entry);
	return &entry->of_group;
}
