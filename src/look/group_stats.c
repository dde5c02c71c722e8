/*
 * group_stats.c
 *		fairq.group_stats(), fairq.all_group_stats(), fairq.group_shares(),
 *		fairq.tenants and fairq.fairness: groups that wait longest, run most
 *		tasks or have got most, tenants, and the fairness of queues.
 *
 * A walk visits the groups that wait or run (survey.c) at little cost per
 * group, and keeps those that come first in the wanted order.
 *
 * group_stats() first keeps groups that wait, ordered by the time since which
 * they wait according to shared memory.  Then it keeps groups that have only
 * running tasks, ordered by their number of running tasks.  It reads the
 * tables only for these groups (survey.c), and for some more whose waiting
 * time shared memory does not have.  If there are fewer than the caller asks
 * for, groups with only scheduled tasks follow, ordered by the first of these
 * tasks.  For some groups the tables disagree with shared memory, for example
 * because all of their tasks are expired.  If that leaves fewer than the
 * caller asks for, twice as many are kept, and so on, up to MOST_KEPT.
 *
 * group_shares() keeps the groups that have got the most in a cost-fair or
 * time-fair queue.  Like the view fairq.fairness it reads only shared memory,
 * and no task.  The cost of the view depends neither on the backlog nor on the
 * number of groups.  Task-fair queues record no amounts, so turns have no
 * extra cost.  For these queues, the view only shows the number of ready
 * groups.
 *
 * These functions change nothing, and a call does not count as use of a queue
 * (inspect.c).
 *
 * Locking: an AccessShareLock on the queue and on fairq.task, to the end of
 * the transaction, for the reasons in inspect.c.  The function behind the view
 * fairq.groups locks the queue only if the lock is available at once.  So that
 * view does not wait for a queue that is being dropped.  The functions also
 * take a lane's lock, shared, for each group, and the locks of survey.c.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "blocked.h"
#include "group.h"
#include "lane_view.h"
#include "queue.h"
#include "registry.h"
#include "store.h"
#include "survey.h"

PG_FUNCTION_INFO_V1(fairq_group_stats);
PG_FUNCTION_INFO_V1(fairq_all_group_stats);
PG_FUNCTION_INFO_V1(fairq_group_shares);
PG_FUNCTION_INFO_V1(fairq_group_state);
PG_FUNCTION_INFO_V1(fairq_tenants);
PG_FUNCTION_INFO_V1(fairq_visible_fairness);

/* the most groups that a caller can ask for */
#define MOST_GROUPS 1000

/* the maximum number of kept groups, even if many of them have no tasks */
#define MOST_KEPT (2 * MOST_GROUPS)

/* groups that are read because their waiting time is not known */
#define MOST_UNKNOWN 1000

/* index entries of timed tasks that are read for each group to be kept */
#define TIMED_ENTRIES 10

/*
 * The first items of many, in an order.  A caller adds each item, and the
 * first "most" are kept.  There is room for twice as many.  When that space is
 * full, the items are sorted, and the second half is dropped.  So each item
 * usually costs one comparison.
 */
typedef int (*Compare) (const void *a, const void *b);

typedef struct Top
{
	char	   *items;
	size_t		size;			/* size of an item */
	int			most;			/* number of items that are kept */
	int			n;				/* number of items at present */
	bool		full;			/* true: an item that comes after the last kept
								 * one is not added */
	Compare compare;
} Top;

static Top
top_begin(size_t size, int most, Compare compare)
{
	return (Top)
	{
		.items = palloc(2 * most * size),.size = size,.most = most,
		.compare = compare
	};
}

/* Keep only the first items, in their order. */
static void
top_cut(Top *top)
{
	qsort(top->items, top->n, top->size, top->compare);
	top->full |= top->n >= top->most;
	top->n = Min(top->n, top->most);
}

static void
top_put(Top *top, const void *item)
{
	if (top->full &&
		top->compare(item, top->items + (top->most - 1) * top->size) >= 0)
		return;
	memcpy(top->items + top->n++ * top->size, item, top->size);
	if (top->n == 2 * top->most)
		top_cut(top);
}

/* Add rows of a locked queue to the result. */
typedef void (*PutQueue) (ReturnSetInfo *rsinfo, FairqQueue *queue, int32 top,
						  bool named);

/*
 * Add rows of each queue that has hints and that the caller may monitor.  A
 * queue that is dropped meanwhile has no rows, and causes no error.
 */
static Datum
put_each(FunctionCallInfo fcinfo, PutQueue put, int32 top)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext context;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	context = AllocSetContextCreate(CurrentMemoryContext, "fairq queue",
									ALLOCSET_DEFAULT_SIZES);
	foreach(lc, fairq_shmem_queues(fairq_relid(FAIRQ_TASK)))
	{
		FairqHints *hints = lfirst(lc);
		int32		id = hints->entry.key.queue_id;
		FairqQueue *queue;
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		/* the queue may have been dropped since */
		if (fairq_shmem_queue(id, false) != hints)
			continue;
		old = MemoryContextSwitchTo(context);
		queue = fairq_queue_use_id(id, FAIRQ_PRIV_MONITOR, true);
		if (queue != NULL)
			put(rsinfo, queue, top, true);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	return (Datum) 0;
}

/* Add rows of the queue in argument 0, if it has hints. */
static Datum
put_one(FunctionCallInfo fcinfo, PutQueue put)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	int32		top = FAIRQ_ARG_INT(1, "top", 20, 1, MOST_GROUPS);
	FairqQueue *queue;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	queue = fairq_queue_to_view(name);
	if (queue != NULL)
		put((ReturnSetInfo *) fcinfo->resultinfo, queue, top, false);
	return (Datum) 0;
}

/* --------------------------------------------------------------------- */

/* A group that may be among those returned. */
typedef struct Candidate
{
	int32		group_no;
	bool		waits;
	TimestampTz since;			/* if it waits, time since which it waits;
								 * DT_NOBEGIN: not known */
	int32		running;		/* if it does not wait, number of its running
								 * tasks */
} Candidate;

/* The part of a call that concerns one queue. */
typedef struct Stats
{
	FairqQueue *queue;
	bool		named;			/* true: rows begin with the queue's name */
	FairqTable *tasks;
	TimestampTz now;
	int			room;			/* groups to keep, for now */
	int			nunknown;		/* groups that were read because their waiting
								 * time was not known */
	Top			kept;			/* the first groups, as candidates; there is
								 * space for "room" of them */
} Stats;

/*
 * Groups that wait come first, the longest wait first.  Then come those with
 * the most running tasks.
 */
static int
compare_candidates(const void *a, const void *b)
{
	const Candidate *x = a;
	const Candidate *y = b;

	if (x->waits != y->waits)
		return x->waits ? -1 : 1;
	if (x->waits && x->since != y->since)
		return x->since < y->since ? -1 : 1;
	if (!x->waits && x->running != y->running)
		return x->running > y->running ? -1 : 1;
	return x->group_no < y->group_no ? -1 : x->group_no > y->group_no;
}

/* Copy the result of reading the group's lines. */
static void
take_survey(Candidate *candidate, const FairqSurvey *survey)
{
	candidate->since = Min(survey->since, survey->ended);
	candidate->waits = candidate->since != DT_NOEND;
	candidate->running = survey->running;
}

/*
 * Complete a candidate, and keep it if it is one of the first so far.  If it
 * only runs, its counter gives the number of running tasks; 1 if that is not
 * known.  If the group waits and its waiting time is not known, read its
 * lines.
 */
static void
keep_candidate(Stats *stats, Candidate *candidate)
{
	FairqSurvey survey;

	if (!candidate->waits)
	{
		if (!fairq_survey_counter(stats->queue, candidate->group_no,
								  &candidate->running))
			candidate->running = 1;
	}
	else if (candidate->since == DT_NOBEGIN)
	{
		/* beyond the limit the time remains unknown; these groups are last */
		candidate->since = DT_NOEND;
		if (stats->nunknown++ < MOST_UNKNOWN)
		{
			fairq_survey(stats->queue, stats->tasks, candidate->group_no,
						 stats->now, true, &survey);
			take_survey(candidate, &survey);
		}
	}
	top_put(&stats->kept, candidate);
}

/* The kept groups. */
static Candidate *
kept(const Stats *stats)
{
	return (Candidate *) stats->kept.items;
}

static bool
is_kept(const Stats *stats, int32 group_no)
{
	for (int i = 0; i < stats->kept.n; i++)
		if (kept(stats)[i].group_no == group_no)
			return true;
	return false;
}

/* Add the groups of a lane that have tasks whose time has not come. */
static void
add_scheduled(Stats *stats, int priority)
{
	int32		lane = fairq_task_lane(stats->queue->id, priority);
	FairqScan  *scan = fairq_scan_some(stats->tasks, FAIRQ_TASK_BY_TIME,
									   fairq_range_times(lane, FAIRQ_RETRIES,
														 FAIRQ_ADDR_MAX),
									   TIMED_ENTRIES * stats->room);
	FairqRowState state;

	while (stats->kept.n < stats->room &&
		   (state = fairq_scan_next(scan)) != FAIRQ_ROW_END &&
		   state != FAIRQ_ROW_LATER)
	{
		Candidate	candidate = {.since = DT_NOEND};
		FairqTask	task;

		CHECK_FOR_INTERRUPTS();
		fairq_task_read(scan->slot, &task);
		candidate.group_no = task.group_no;
		if (state == FAIRQ_ROW_LIVE && !task.running &&
			!is_kept(stats, task.group_no))
			keep_candidate(stats, &candidate);
	}
	fairq_scan_end(scan);
}

/* Keep the first of all groups that wait, run or have scheduled tasks. */
static void
keep_groups(Stats *stats)
{
	FairqWalk  *walk = fairq_walk_begin(stats->queue, DT_NOEND, 0,
										FAIRQ_ALL_SEATS);
	FairqWaiter waiter;

	stats->nunknown = 0;
	stats->kept = top_begin(sizeof(Candidate), stats->room,
							compare_candidates);
	while (fairq_walk_next(walk, &waiter))
	{
		Candidate	candidate = {
			.group_no = waiter.group_no,
			.waits = waiter.nlanes > 0,
			.since = waiter.since
		};

		keep_candidate(stats, &candidate);
	}
	top_cut(&stats->kept);
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		add_scheduled(stats, p);
}

/* A group that is kept, and its survey of the tables. */
typedef struct Shown
{
	Candidate	candidate;		/* the group according to its survey */
	FairqSurvey survey;
} Shown;

/*
 * Read the lines of the kept groups.  Returns the number of groups with tasks.
 * These groups come first in *shown, in their order.
 */
static int
read_groups(Stats *stats, Shown **shown)
{
	int			n = 0;

	*shown = palloc0(sizeof(Shown) * Max(stats->kept.n, 1));
	for (int i = 0; i < stats->kept.n; i++)
	{
		Candidate  *candidate = &(*shown)[n].candidate;
		FairqSurvey *survey = &(*shown)[n].survey;

		CHECK_FOR_INTERRUPTS();
		candidate->group_no = kept(stats)[i].group_no;
		fairq_survey(stats->queue, stats->tasks, candidate->group_no,
					 stats->now, true, survey);
		take_survey(candidate, survey);
		n += candidate->waits || survey->scheduled || survey->blocked != 0 ||
			survey->running > 0;
	}
	/* each Shown begins with a Candidate */
	qsort(*shown, n, sizeof(Shown), compare_candidates);
	return n;
}

/*
 * Reason why the group's first task does not run; NULL: there is no such task.
 */
static const char *
reason_of(const Stats *stats, const Shown *shown)
{
	const FairqSurvey *survey = &shown->survey;
	int64		other;

	if (shown->candidate.waits)
		return fairq_reason(stats->queue, shown->candidate.group_no);
	if (survey->scheduled || survey->blocked == 0)
		return survey->scheduled ? "scheduled" : NULL;
	return fairq_after_look(stats->tasks, survey->blocked, true, &other) ==
		FAIRQ_BATCH_NONE ? "batch" : "after";
}

static void
put_group(ReturnSetInfo *rsinfo, const Stats *stats, const Shown *shown)
{
	FairqRow	row = {0};
	FairqQueue *queue = stats->queue;
	const FairqSurvey *survey = &shown->survey;
	int32		group_no = shown->candidate.group_no;
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	Datum		key = fairq_group_key(queue, group_no);
	const char *reason = reason_of(stats, shown);

	/* the group's number was freed meanwhile */
	if (DatumGetPointer(key) == NULL)
		return;
	if (stats->named)
		fairq_put(&row, CStringGetTextDatum(queue->name), false);
	fairq_put(&row, key, false);
	fairq_put(&row, reason == NULL ? (Datum) 0 : CStringGetTextDatum(reason),
			  reason == NULL);
	fairq_put(&row, TimestampTzGetDatum(shown->candidate.since),
			  !shown->candidate.waits);
	fairq_put_int8(&row, survey->ready, false);
	fairq_put_int4(&row, survey->running, false);
	fairq_put_int4(&row, setting->limit, setting->limit == FAIRQ_NO_LIMIT);
	fairq_put_int4(&row, setting->weight, false);
	fairq_put_row(rsinfo, &row);
}

/* Add the first groups of a queue. */
static void
put_stats(ReturnSetInfo *rsinfo, FairqQueue *queue, int32 top, bool named)
{
	Stats		stats = {.now = GetCurrentTimestamp()};
	Shown	   *shown;
	int			n;

	stats.room = top;
	stats.queue = queue;
	stats.named = named;
	stats.tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	for (;;)
	{
		keep_groups(&stats);
		n = read_groups(&stats, &shown);
		if (n >= top || stats.kept.n < stats.room || stats.room == MOST_KEPT)
			break;
		stats.room = Min(stats.room * 2, MOST_KEPT);
	}
	for (int i = 0; i < Min(n, top); i++)
		put_group(rsinfo, &stats, &shown[i]);
	fairq_table_close(stats.tasks);
}

/* fairq.group_stats(queue, top) */
Datum
fairq_group_stats(PG_FUNCTION_ARGS)
{
	return put_one(fcinfo, put_stats);
}

/* fairq.all_group_stats(top): the rows of fairq.group_stats for each queue */
Datum
fairq_all_group_stats(PG_FUNCTION_ARGS)
{
	return put_each(fcinfo, put_stats,
					FAIRQ_ARG_INT(0, "top", 5, 1, MOST_GROUPS));
}

/* --------------------------------------------------------------------- */

/* The service of a group, in all priorities. */
typedef struct Share
{
	int32		group_no;		/* the group's number */
	bool		any;			/* true: the group has an account in some
								 * lane */
	double		got;			/* service that the group has got, per
								 * weight */
	double		ahead;			/* the group's lead over the group that has got
								 * the least; -1: not known, or there is no
								 * other group */
	int32		nactive;		/* for a tenant, number of its groups that may
								 * have a ready task */
	int32		running;		/* if time-fair, number of the group's running
								 * tasks */
	int32		level;			/* if time-fair, the group's highest level in
								 * any lane */
	TimestampTz since;			/* time from which the group waits; not finite:
								 * it does not wait, or the time is not
								 * known */
} Share;

static void
put_float8(FairqRow *row, double value, bool isnull)
{
	fairq_put(row, Float8GetDatum(value), isnull);
}

/* Groups that have got the most come first. */
static int
compare_shares(const void *a, const void *b)
{
	const Share *x = a;
	const Share *y = b;

	if (x->got != y->got)
		return x->got > y->got ? -1 : 1;
	return x->group_no < y->group_no ? -1 : x->group_no > y->group_no;
}

/* Add the service of a group in one lane. */
static void
add_share(Share *share, const FairqFairness *f, const FairqAccount *account,
		  double got)
{
	share->any = true;
	share->got += got;
	share->nactive += account->level.groups.order.n;
	if (f->fair_by == FAIRQ_BY_TIME)
	{
		share->running += account->by.time.running;
		share->level = Max(share->level,
						   account->by.time.running / account->weight);
	}
	/* users of different tenants do not get equal amounts */
	if (f->known && f->ranked && account->level.tenant == FAIRQ_NO_NODE)
		share->ahead = Max(share->ahead, Max(got - f->least, 0));
}

/* Sum up the service of a group in all lanes, whose fairness is in "lanes". */
static Share
find_share(FairqQueue *queue, const FairqFairness *lanes, TimestampTz now,
		   int32 group_no)
{
	Share		share = {.group_no = group_no,.ahead = -1};

	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		FairqAccount account;
		double		got;

		if (lanes[p].begun && lanes[p].fair_by == queue->shares.fair_by &&
			fairq_lane_served(fairq_queue_lane(queue, p), now, group_no,
							  &account, &got))
			add_share(&share, &lanes[p], &account, got);
	}
	return share;
}

/* Compute the fairness of all lanes of a queue. */
static void
look_at_lanes(FairqQueue *queue, TimestampTz now, FairqFairness *lanes)
{
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		fairq_lane_fairness(fairq_queue_lane(queue, p), now, &lanes[p]);
}

static void
put_share(ReturnSetInfo *rsinfo, FairqQueue *queue, const Share *share)
{
	FairqRow	row = {0};
	bool		by_time = queue->shares.fair_by == FAIRQ_BY_TIME;
	Datum		key = fairq_group_key(queue, share->group_no);
	int32		running = share->running;
	bool		counted = by_time ||
		fairq_survey_counter(queue, share->group_no, &running);

	/* the group's number was freed meanwhile */
	if (DatumGetPointer(key) == NULL)
		return;
	fairq_put(&row, key, false);
	put_float8(&row, share->got, false);
	put_float8(&row, share->ahead, share->ahead < 0);
	fairq_put_int4(&row, running, !counted);
	fairq_put_int4(&row, share->level, !by_time);
	fairq_put(&row, TimestampTzGetDatum(share->since),
			  TIMESTAMP_NOT_FINITE(share->since));
	fairq_put_row(rsinfo, &row);
}

/*
 * Add the groups that have got the most, if the queue is cost-fair or
 * time-fair.
 */
static void
put_shares(ReturnSetInfo *rsinfo, FairqQueue *queue, int32 top, bool named)
{
	FairqTable *tasks;
	Top			first = top_begin(sizeof(Share), top, compare_shares);
	FairqWalk  *walk;
	TimestampTz now = GetCurrentTimestamp();
	FairqFairness lanes[FAIRQ_PRIORITIES];
	FairqWaiter waiter;

	if (queue->shares.fair_by == FAIRQ_BY_TASKS)
		return;
	tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	walk = fairq_walk_begin(queue, DT_NOEND, 0, FAIRQ_ALL_SEATS);
	look_at_lanes(queue, now, lanes);
	while (fairq_walk_next(walk, &waiter))
	{
		Share		share = find_share(queue, lanes, now, waiter.group_no);

		share.since = waiter.since;
		if (share.any)
			top_put(&first, &share);
	}
	top_cut(&first);
	for (int i = 0; i < first.n; i++)
		put_share(rsinfo, queue, &((Share *) first.items)[i]);
	fairq_table_close(tasks);
}

/* fairq.group_shares(queue, top) */
Datum
fairq_group_shares(PG_FUNCTION_ARGS)
{
	return put_one(fcinfo, put_shares);
}

/* group_state(queue_id, group_no): one row, for the view fairq.groups */
Datum
fairq_group_state(PG_FUNCTION_ARGS)
{
	int32		group_no = PG_GETARG_INT32(1);
	FairqQueue *queue = fairq_queue_if_hints(PG_GETARG_INT32(0),
											 FAIRQ_PRIV_MONITOR);
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next_at;
	FairqFairness lanes[FAIRQ_PRIORITIES];
	Share		share = {.ahead = -1};
	FairqRow	row = {0};

	/*
	 * the number is an index into the accounts' chunks, so it must not be
	 * negative
	 */
	if (queue == NULL || group_no < 0)
		PG_RETURN_NULL();
	next_at = fairq_next_at(queue, group_no, false);
	if (queue->shares.fair_by != FAIRQ_BY_TASKS &&
		(queue = fairq_queue_use_id(queue->id, FAIRQ_PRIV_MONITOR,
									false)) != NULL)
	{
		look_at_lanes(queue, now, lanes);
		share = find_share(queue, lanes, now, group_no);
		fairq_queue_id_unlock(queue->id, AccessShareLock);
	}
	fairq_put(&row, TimestampTzGetDatum(next_at), next_at == DT_NOBEGIN);
	put_float8(&row, share.got, !share.any);
	put_float8(&row, share.ahead, share.ahead < 0);
	PG_RETURN_DATUM(fairq_row_result(fcinfo, &row));
}

/* --------------------------------------------------------------------- */

/* The tenants of a queue, for the result. */
typedef struct Tenants
{
	ReturnSetInfo *rsinfo;
	FairqQueue *queue;
	TimestampTz now;
	bool		known;			/* true: shared memory has a lane of the
								 * queue */
	FairqFairness lanes[FAIRQ_PRIORITIES];
} Tenants;

static void
put_tenant(void *arg, int32 tenant, text *key)
{
	Tenants    *t = arg;
	FairqRow	row = {0};
	int32		running = 0;
	/* without limits no task is counted */
	bool		counted = t->queue->limited &&
		(fairq_survey_counter(t->queue, tenant, &running) ||
		 fairq_tally_now(&t->queue->hints->tally).known);
	Share		share = find_share(t->queue, t->lanes, t->now, tenant);
	TimestampTz next_at = fairq_next_at(t->queue, tenant, true);

	fairq_put(&row, PointerGetDatum(key), false);
	fairq_put_int4(&row, tenant, false);
	fairq_put_int4(&row, share.nactive, !t->known);
	put_float8(&row, share.got, !share.any);
	put_float8(&row, share.ahead, share.ahead < 0);
	fairq_put_int4(&row, running, !counted);
	fairq_put(&row, TimestampTzGetDatum(next_at), next_at == DT_NOBEGIN);
	fairq_put_row(t->rsinfo, &row);
}

/* tenants(queue_id): for the view fairq.tenants */
Datum
fairq_tenants(PG_FUNCTION_ARGS)
{
	Tenants		tenants = {
		.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo,
		.queue = fairq_queue_use_id(PG_GETARG_INT32(0), FAIRQ_PRIV_MONITOR,
									false),
		.now = GetCurrentTimestamp()
	};

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (tenants.queue == NULL)
		return (Datum) 0;
	look_at_lanes(tenants.queue, tenants.now, tenants.lanes);
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		tenants.known |= tenants.lanes[p].begun;
	if (tenants.queue->shares.separator != 0)
		fairq_each_tenant(tenants.queue, put_tenant, &tenants);
	fairq_queue_id_unlock(tenants.queue->id, AccessShareLock);
	return (Datum) 0;
}

/* --------------------------------------------------------------------- */

/* Add rows for the lanes of a queue whose data shared memory has. */
static void
put_fairness(ReturnSetInfo *rsinfo, FairqQueue *queue, int32 top, bool named)
{
	static const char *const names[] = {
		[FAIRQ_BY_TASKS] = "tasks",
		[FAIRQ_BY_COST] = "cost",
		[FAIRQ_BY_TIME] = "time",
		[FAIRQ_BY_UNITS] = "tasks"
	};
	FairqTable *tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	FairqFairness lanes[FAIRQ_PRIORITIES];

	look_at_lanes(queue, GetCurrentTimestamp(), lanes);
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
	{
		const FairqFairness *f = &lanes[p];
		FairqRow	row = {0};

		if (!f->begun)
			continue;
		fairq_put(&row, CStringGetTextDatum(queue->name), false);
		fairq_put_int4(&row, p, false);
		fairq_put(&row, CStringGetTextDatum(names[f->fair_by]), false);
		fairq_put_int4(&row, f->nready, !f->known);
		put_float8(&row, Max(f->most - f->least, 0),
				   !f->known || !f->ranked);
		fairq_put_interval(&row, (int64) f->longest,
						   f->fair_by != FAIRQ_BY_TIME || f->longest == 0);
		fairq_put_row(rsinfo, &row);
	}
	fairq_table_close(tasks);
}

/* visible_fairness() */
Datum
fairq_visible_fairness(PG_FUNCTION_ARGS)
{
	return put_each(fcinfo, put_fairness, 0);
}
