/*
 * check.c
 *		fairq.check_queue: it finds inconsistencies of a queue.
 *
 * A query, check_tables(), checks the tables.  Shared memory has five
 * invariants while no transaction changes it:
 *
 * - Pops find every ready task.  Its group is in the ring, parked or
 *	 throttled.  The task is in the group's hand, or the next reading finds it
 *	 (entry.c).
 * - A pop will search for each timed or leased task when it becomes due.
 *	 Alternatively, its group is already in a set of groups with due or lapsed
 *	 tasks.
 * - A group is parked only if there is no slot for it.
 * - The committed number of a known counter equals the number of leased rows.
 * - The tally of the queue, if it is known, equals a count of the rows.
 *
 * While other sessions work, each invariant may be violated for a moment,
 * because a transaction's end is visible before it is published.  So faults
 * are checked again for some time.  Only faults that every check has found are
 * reported.
 *
 * Locking: AccessShareLock on the queue and on fairq.task.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "registry.h"
#include "store_spi.h"
#include "survey.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_check_queue);

/*
 * How long the end of a transaction may take to reach the hints.  A virtual
 * machine may stop one of its processors for seconds.
 */
#define SETTLE_MS 10000
#define POLL_EVERY_MS 50
#define LOOK_AT_LEAST 3

/* the most counts of one check, if commits change the tasks meanwhile */
#define COUNT_AT_MOST 3

/* add a fault, as a String node */
#define add_fault(faults, ...) \
	lappend(faults, makeString(psprintf(__VA_ARGS__)))

static List *
check_tasks(FairqQueue *queue, int priority, FairqTable *tasks, List *faults)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	Datum		of_lane = Int32GetDatum(fairq_task_lane(queue->id, priority));
	FairqScan  *scan = fairq_scan_begin(tasks, FAIRQ_TASK_BY_GROUP,
										fairq_range(of_lane));

	while (fairq_scan_next_live(scan))
	{
		FairqTask	task;

		fairq_task_read(scan->slot, &task);
		if (fairq_lane_finds(lane, task.group_no, task.addr, task.running,
							 task.lease_until))
			continue;
		if (task.running || fairq_is_timed(task.addr))
			faults = add_fault(faults, "task " INT64_FORMAT " of priority %d at address "
							   INT64_FORMAT " falls due, when no pop would look",
							   task.id, priority, task.addr);
		else
			faults = add_fault(faults, "task " INT64_FORMAT " of priority %d is ready at address "
							   INT64_FORMAT ", where no pop would look",
							   task.id, priority, task.addr);
	}
	fairq_scan_end(scan);
	return faults;
}

/* Check the groups that are parked, or the tenants that are shut. */
static List *
check_parked(FairqQueue *queue, int priority, bool tenants, List *faults)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);

	for (int32 group_no = 0;
		 fairq_lane_next_parked(lane, tenants, &group_no); group_no++)
	{
		int32		limit = tenants ?
			fairq_tenant_setting(queue, group_no)->limit :
			fairq_group_setting(queue, group_no)->limit;
		int32		running;

		if (limit == FAIRQ_NO_LIMIT ||
			(limit > 0 && fairq_survey_counter(queue, group_no, &running) &&
			 running < limit))
			faults = add_fault(faults, "group number %d is parked in priority %d, though there is room for it",
							   group_no, priority);
		if (group_no == PG_INT32_MAX)
			break;
	}
	return faults;
}

/*
 * Reads numbers of a queue, including our own transaction's uncommitted
 * changes.  The result is a JSON object without its closing bracket.  Returns
 * false if the numbers are not known.
 */
typedef bool (*Numbers) (FairqQueue *queue, StringInfo numbers);

/* Append a number with its key. */
static void
append_number(StringInfo numbers, int key, int64 number)
{
	appendStringInfo(numbers, "%s\"%d\":" INT64_FORMAT,
					 numbers->len == 0 ? "{" : ",", key, number);
}

/*
 * The committed numbers of running tasks in the counters of the queue (key -1)
 * and its groups.
 */
static bool
read_counters(FairqQueue *queue, StringInfo numbers)
{
	FairqHints *hints = queue->hints;
	List	   *group_nos = lcons_int(-1, fairq_shmem_counters(queue->id));
	ListCell   *lc;

	foreach(lc, group_nos)
	{
		int32		group_no = lfirst_int(lc);
		FairqCounter *counter = group_no < 0 ? &hints->running :
			fairq_shmem_counter(hints, group_no, true);
		int32		leased;
		bool		known = fairq_counter_read(counter,
											   fairq_tally_now(&hints->tally),
											   false, &leased);

		if (group_no >= 0)
			fairq_counter_unpin(counter);
		if (!known)
			return false;
		append_number(numbers, group_no,
					  leased + fairq_pending_running(hints, group_no));
	}
	return true;
}

/* The numbers of tasks of each kind. */
static bool
read_tallies(FairqQueue *queue, StringInfo numbers)
{
	int64		n[FAIRQ_TALLIES];
	bool		known = fairq_tally_read(&queue->hints->tally, n);

	fairq_pending_tallies(queue->hints, n);
	for (int i = 0; i < FAIRQ_TALLIES; i++)
		append_number(numbers, i, n[i]);
	return known;
}

/*
 * Compare numbers with the rows, in a query, between two readings of the same
 * numbers.  Unknown numbers, and numbers that our own transaction has changed
 * by SQL, are not compared.
 */
static List *
check_numbers(FairqQueue *queue, Numbers numbers, const char *sql, List *faults)
{
	List	   *found = NIL;

	for (int tries = 0; tries < COUNT_AT_MOST; tries++)
	{
		StringInfoData before;
		StringInfoData after;
		FairqSqlArg args[2];

		initStringInfo(&before);
		initStringInfo(&after);
		if (fairq_own.rows != 0 || !numbers(queue, &before))
			return faults;
		args[0] = fairq_sql_int4(queue->id);
		args[1] = fairq_sql_text(cstring_to_text(psprintf("%s}", before.data)));
		found = fairq_sql_texts(sql, args, lengthof(args), false);
		if (found == NIL || (numbers(queue, &after) &&
							 strcmp(before.data, after.data) == 0))
			return list_concat(faults, found);
	}
	return faults;
}

/*
 * Compare counters with the rows that are leased.  The leased rows of a tenant
 * are those of its groups.  A missing counter counts as 0.
 */
static List *
check_counters(FairqQueue *queue, List *faults)
{
	return check_numbers(queue, read_counters,
						 "SELECT CASE WHEN group_no < 0"
						 " THEN format('%s tasks are counted as running, but %s are', counted, n)"
						 " ELSE format('%s tasks of group number %s are counted as running, but %s are',"
						 " counted, group_no, n) END"
						 " FROM (SELECT group_no, coalesce(c.counted, 0) AS counted, coalesce(r.n, 0) AS n"
						 " FROM (SELECT key::int AS group_no, value::int AS counted"
						 " FROM json_each_text($2::json)) AS c"
						 " FULL JOIN (SELECT coalesce(group_no, -1) AS group_no, count(*) AS n"
						 " FROM fairq.task WHERE queue_id = $1 AND lease_until IS NOT NULL"
						 " GROUP BY ROLLUP (group_no)"
						 " UNION ALL SELECT t.group_no, count(*) FROM fairq.task k"
						 " JOIN (SELECT DISTINCT * FROM fairq.group_number) u USING (queue_id, group_no)"
						 " JOIN (SELECT DISTINCT * FROM fairq.group_number) t ON t.queue_id = k.queue_id"
						 " AND t.group_key = split_part(u.group_key,"
						 " (SELECT separator FROM fairq.queue WHERE queue_id = $1), 1)"
						 " WHERE k.queue_id = $1 AND k.lease_until IS NOT NULL"
						 " GROUP BY t.group_no) AS r USING (group_no)) AS v"
						 " WHERE counted <> n", faults);
}

/*
 * Compare the numbers of tasks with a count of the rows.  A fault contains the
 * difference, which changes from one check to the next if the numbers are only
 * late because of other transactions.
 */
static List *
check_tallies(FairqQueue *queue, List *faults)
{
	/* if the counts were in the FROM clause, the planner would join them */
	return check_numbers(queue, read_tallies,
						 "SELECT format('tasks that are %s: fairq.stats is off by %s',"
						 " kind, shown - n) FROM (SELECT"
						 " unnest('{queued,scheduled,running}'::text[]) AS kind,"
						 " unnest(ARRAY(SELECT value::bigint"
						 " FROM json_each_text($2::json))) AS shown, unnest(ARRAY["
						 "count(*) FILTER (WHERE lease_until IS NULL AND addr < (1::bigint << 62)),"
						 " count(*) FILTER (WHERE lease_until IS NULL AND addr >= (1::bigint << 62)),"
						 " count(lease_until)]) AS n"
						 " FROM fairq.task WHERE queue_id = $1) AS v WHERE shown <> n",
						 faults);
}

/* Returns all present faults, as String nodes with distinct texts. */
static List *
check_all(FairqQueue *queue, FairqTable *tasks)
{
	List	   *faults = NIL;

	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		if (fairq_lane_recovered(fairq_queue_lane(queue, priority), NULL))
		{
			faults = check_tasks(queue, priority, tasks, faults);
			faults = check_parked(queue, priority, false, faults);
			faults = check_parked(queue, priority, true, faults);
		}
	}
	return check_counters(queue, check_tallies(queue, faults));
}

/* fairq.check_queue(queue): one row for each fault that remains */
Datum
fairq_check_queue(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	TimestampTz end = GetCurrentTimestamp() + SETTLE_MS * INT64CONST(1000);
	FairqQueue *queue;
	FairqTable *tasks;
	FairqSqlArg arg;
	List	   *faults;
	ListCell   *lc;

	/* this function takes new snapshots */
	PreventCommandIfParallelMode("fairq.check_queue()");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, AccessShareLock);
	tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	(void) fairq_pending_show(queue->hints);
	faults = check_all(queue, tasks);
	for (int looks = 1; faults != NIL &&
		 (looks < LOOK_AT_LEAST || GetCurrentTimestamp() < end); looks++)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(POLL_EVERY_MS * 1000);
		faults = list_intersection(faults, check_all(queue, tasks));
	}

	arg = fairq_sql_int4(queue->id);
	faults = list_concat(faults, fairq_sql_texts(
												 "SELECT * FROM fairq_internal.check_tables($1)",
												 &arg, 1, false));
	foreach(lc, faults)
	{
		FairqRow	row = {0};

		fairq_put(&row, CStringGetTextDatum(strVal(lfirst(lc))), false);
		fairq_put_row(rsinfo, &row);
	}
	fairq_table_close(tasks);
	return (Datum) 0;
}
