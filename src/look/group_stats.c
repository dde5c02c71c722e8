/*
 * group_stats.c
 *		fairq.group_stats() and fairq.all_group_stats(): the groups that wait
 *		longest or run most, and why, of one queue or of each.
 *
 * The groups that wait or run are gone through (waiting.c), which costs little for
 * each.  Those that come first are kept: first those that wait, by the time since
 * when, as far as shared memory knows; then those that only run, by how many
 * tasks.  The tables are read of these alone (survey.c), and of some more of which
 * shared memory does not know since when they wait.  If there are fewer than are asked for, those follow that
 * only have tasks whose time has not come, by the first of these tasks.
 *
 * Of some the tables know better: all that they have is expired, say.  If that
 * leaves fewer than are asked for, twice as many are kept, and so on, up to
 * MOST_KEPT.
 *
 * Looking changes nothing, and is no use of a queue (lanes.c).
 *
 * Locking: an AccessShareLock on the queue and on fairq.task, to the end of the
 * transaction, as lanes.c says why; what waiting.c says.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "group.h"
#include "queue.h"
#include "registry.h"
#include "store.h"
#include "survey.h"
#include "top.h"
#include "waiting.h"

PG_FUNCTION_INFO_V1(fairq_group_stats);
PG_FUNCTION_INFO_V1(fairq_all_group_stats);

/* groups that can be asked for */
#define MOST_GROUPS 1000

/* groups that are kept, however many of them have nothing */
#define MOST_KEPT (2 * MOST_GROUPS)

/* groups that are read because it is not known since when they wait */
#define MOST_UNKNOWN 1000

/* index entries of timed tasks that are read for each group that is to be kept */
#define TIMED_ENTRIES 10

/* A group that may be one of those to be returned. */
typedef struct Candidate
{
	int32		group_no;
	bool		waits;
	TimestampTz since;			/* if it waits; DT_NOBEGIN: not known */
	int32		running;		/* if it does not */
} Candidate;

/* One queue's part of a call. */
typedef struct Stats
{
	FairqQueue *queue;
	bool		named;			/* whether rows begin with the queue's name */
	FairqTable *tasks;
	TimestampTz now;
	int			top;			/* groups that are asked for */
	int			room;			/* groups that are to be kept, for now */
	int			nunknown;		/* groups that were read since it was not known
								 * since when they wait */
	FairqTop	kept;			/* room of them, as candidates */
} Stats;

/* Those come first that wait, longest first; then those that run most. */
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

/* Take what the lines of a group say. */
static void
take_survey(Candidate *candidate, const FairqSurvey *survey)
{
	candidate->since = Min(survey->since, survey->ended);
	candidate->waits = candidate->since != DT_NOEND;
	candidate->running = survey->running;
}

/* Find out of a group what is not known without reading its line. */
static void
complete_candidate(Stats *stats, Candidate *candidate)
{
	FairqSurvey survey;

	if (!candidate->waits)
	{
		if (!fairq_survey_counter(stats->queue, candidate->group_no,
								  &candidate->running))
			candidate->running = 1;
		return;
	}
	if (candidate->since != DT_NOBEGIN)
		return;
	/* of the others it is not known; they come last */
	candidate->since = DT_NOEND;
	if (stats->nunknown++ >= MOST_UNKNOWN)
		return;
	fairq_survey(stats->queue, stats->tasks, candidate->group_no, stats->now,
				 true, &survey);
	take_survey(candidate, &survey);
}

/* Keep the group, if it is one of the first so far. */
static void
keep_candidate(Stats *stats, Candidate *candidate)
{
	complete_candidate(stats, candidate);
	fairq_top_put(&stats->kept, candidate);
}

/* The groups that are kept so far. */
static Candidate *
kept(const Stats *stats)
{
	return (Candidate *) stats->kept.items;
}

/* Go through the groups that wait or run. */
static void
walk_groups(Stats *stats)
{
	FairqWalk  *walk = fairq_walk_begin(stats->queue, DT_NOEND, 0,
										FAIRQ_ALL_SEATS);
	FairqWaiter waiter;

	while (fairq_walk_next(walk, &waiter))
	{
		Candidate	candidate = {
			.group_no = waiter.group_no,
			.waits = waiter.nlanes > 0,
			.since = waiter.since
		};

		keep_candidate(stats, &candidate);
	}
	fairq_top_cut(&stats->kept);
}

static bool
is_kept(const Stats *stats, int32 group_no)
{
	for (int i = 0; i < stats->kept.n; i++)
		if (kept(stats)[i].group_no == group_no)
			return true;
	return false;
}

/* Add groups with tasks of a lane whose time has not come. */
static void
add_scheduled(Stats *stats, int priority)
{
	int32		lane = fairq_task_lane(stats->queue->id, priority);
	FairqScan  *scan = fairq_scan_some(stats->tasks, FAIRQ_TASK_BY_TIME,
									   fairq_range_times(lane, FAIRQ_RETRIES,
														 FAIRQ_ADDR_MAX),
									   false, TIMED_ENTRIES * stats->room);
	FairqRowState state;

	while (stats->kept.n < stats->room &&
		   (state = fairq_scan_next(scan)) != FAIRQ_ROW_END &&
		   state != FAIRQ_ROW_LATER)
	{
		Candidate	candidate = {.since = DT_NOEND};
		FairqTask	task;

		CHECK_FOR_INTERRUPTS();
		fairq_task_read(fairq_scan_slot(scan), &task);
		candidate.group_no = task.group_no;
		if (state == FAIRQ_ROW_LIVE && !task.running &&
			!is_kept(stats, task.group_no))
			keep_candidate(stats, &candidate);
	}
	fairq_scan_end(scan);
}

/* Keep those of all groups that come first. */
static void
keep_groups(Stats *stats)
{
	stats->nunknown = 0;
	stats->kept = fairq_top(sizeof(Candidate), stats->room,
							compare_candidates);
	walk_groups(stats);
	for (int p = 0; p < FAIRQ_PRIORITIES; p++)
		add_scheduled(stats, p);
}

/* A group that is kept, and what the tables say of it. */
typedef struct Shown
{
	Candidate	candidate;		/* as it is by its survey */
	FairqSurvey survey;
} Shown;

/*
 * Read the lines of those that are kept.  Returns how many have something; these are
 * the first of *shown, in their order.
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
		n += candidate->waits || survey->scheduled || survey->running > 0;
	}
	/* a candidate is what they begin with */
	qsort(*shown, n, sizeof(Shown), compare_candidates);
	return n;
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
	const char *reason = shown->candidate.waits ?
		fairq_reason_name(fairq_reason(queue, group_no)) :
		survey->scheduled ? fairq_reason_name(FAIRQ_REASON_SCHEDULED) : NULL;

	/* its number was freed meanwhile */
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

/* Put the groups of a queue that is locked, or of none. */
static void
put_queue(ReturnSetInfo *rsinfo, FairqQueue *queue, int32 top, bool named)
{
	Stats		stats = {.now = GetCurrentTimestamp()};
	Shown	   *shown;
	int			n;

	if (queue == NULL)
		return;
	stats.top = stats.room = top;
	stats.queue = queue;
	stats.named = named;
	stats.tasks = fairq_table_open(fairq_catalog()->task, AccessShareLock);
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
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	int32		top = FAIRQ_ARG_INT(1, "top", 20, 1, MOST_GROUPS);

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	put_queue((ReturnSetInfo *) fcinfo->resultinfo,
			  fairq_queue_use_if_known(name, FAIRQ_PRIV_MONITOR,
									   AccessShareLock), top, false);
	return (Datum) 0;
}

/*
 * fairq.all_group_stats(top): the same of each queue that the caller may
 * monitor.  A queue that is dropped meanwhile has no rows, and is no error.
 */
Datum
fairq_all_group_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int32		top = FAIRQ_ARG_INT(0, "top", 5, 1, MOST_GROUPS);
	MemoryContext context;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	context = AllocSetContextCreate(CurrentMemoryContext, "fairq group stats",
									ALLOCSET_DEFAULT_SIZES);
	foreach(lc, fairq_shmem_queues(fairq_catalog()->task))
	{
		FairqHints *hints = lfirst(lc);
		int32		id = hints->entry.key.queue_id;
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		/* the queue may have been dropped since */
		if (fairq_shmem_find_queue(id) != hints)
			continue;
		old = MemoryContextSwitchTo(context);
		put_queue(rsinfo, fairq_queue_use_id(id, FAIRQ_PRIV_MONITOR), top,
				  true);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	return (Datum) 0;
}
