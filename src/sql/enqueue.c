/*
 * enqueue.c
 *		fairq.enqueue, fairq.enqueue_or_find, fairq.enqueue_batch, fairq.find,
 *		fairq.create_batch, and the ids of tasks: fairq.shard, fairq.set_shard.
 *
 * A task gets an id and is added, unless another one has its key (dedup.c).
 * The other task may be replaced while it is not running.  Then the last
 * enqueue determines what runs.  To replace a task, the call waits for another
 * transaction that is changing the row, such as an enqueue of an equal key.
 * An expired task will never run, so it is finished and its key is taken over.
 *
 * An enqueue reserves the task's address in shared memory (line.c), and then
 * writes its row.  It holds no lock between these steps, so no backend waits
 * while a large payload is toasted.  fairq.redrive() adds its tasks by the
 * same functions (maintain.c).
 *
 * enqueue_batch() adds all of its tasks or none, because a statement is
 * atomic.  It writes its rows a hundred at a time.  It waits only for an equal
 * key (dedup.c), for the row of an expired task with that key, or for a closed
 * batch (blocked.c).  It holds one lane's lock at a time, and takes its keys
 * in sorted order, before it adds the first task.  So such calls in opposite
 * orders do not deadlock.
 *
 * create_batch() adds the blocked task that waits for the batch (blocked.c).
 * The first check of the batch is due when the batch is closed.  If the wait
 * requires that all of its tasks succeed, checks begin at once, since one of
 * them may fail earlier.
 *
 * Ids increase, and come from a sequence in chunks.  The high bits are the
 * number of the database's shard.
 *
 * nextval() of fairq.task_id_seq costs as much as an index entry.  So the
 * sequence's step is more than 1.  Each of its values begins a chunk of ids,
 * which ends before the next value.  A call leaves the rest of its chunk in
 * shared memory, where all sessions take from it.
 *
 * A new id is higher than all earlier ones of all sessions.  Tasks at one
 * address are served in the order of their ids, and people sort by them.
 * Therefore a chunk is valid as long as the sequence is unchanged since the
 * chunk was taken.  Each nextval(), setval() and ALTER SEQUENCE changes the
 * sequence's page, whether a restore or a user runs it.  So does TRUNCATE with
 * RESTART IDENTITY.  Then the page's LSN, its last_value or its file differs.
 * The rest of an older chunk is never used.  So if several sessions take
 * chunks at the same time, they only waste the rest of all chunks except one.
 *
 * The page also shows to which extension a chunk belongs, because extensions
 * may share an entry in shared memory (FairqDomain).  No two WAL records have
 * the same LSN.  Two copies of a database may have the same LSN until one of
 * them takes a chunk.  Before that they take different ids from the same
 * chunk.
 *
 * Ids are WAL-logged before they are used.  nextval() has written its record
 * before other sessions see the chunk.  So that record is on disk once the
 * commit of a task is on disk.
 *
 * A restart wastes the rest of a chunk.  After a crash PostgreSQL continues up
 * to 32 values later.  Therefore the step is small (see the script): 33 steps
 * are less than 1,024 ids.
 *
 * fairq reads the step from the catalog for each chunk, so the length of
 * chunks changes when the sequence is altered.
 *
 * Shards.  The ids of several databases differ if each has its own shard
 * number:
 *
 *		id = shard * 2^43 + 1, 2, 3 ...		(shard from 1 to 1,023)
 *
 * So an id shows the shard of its task.  All ids are below 2^53, so JavaScript
 * and JSON readers keep them exactly.  Databases without a shard number count
 * from 1.  The number is stored only in the sequence's value.  It is copied
 * with the tasks: in a dump, a base backup or a copy of the database.  It is
 * set before there are tasks and can only increase, so no id is used twice.
 * The 2^43 ids of a shard last for fourteen years at 20,000 tasks a second.
 * The last KEPT_BACK ids are not used, so concurrent sessions cannot reach
 * those of the next shard.
 *
 * Locking: AccessShareLock on the queues, RowExclusiveLock on the tables, and
 * the rows of tasks that are changed, to the end of the transaction.  A call
 * does not finish an expired task whose row is being changed.  A pop that
 * began the task in time may stay open during its work.  So the call first
 * checks whether the row is being changed.  Then it waits only if the row is
 * locked, or if another transaction changes the row after the check.
 *
 * To get ids, a call takes the page's content lock to read the sequence's
 * state, and a spinlock for the chunk.  A lock on the sequence is not needed,
 * because the caller has fairq.task open, which owns the sequence.  nextval()
 * locks the sequence to the end of the transaction.  set_shard() locks
 * fairq.task against all writers, to the end of the transaction.  So it sees
 * every other transaction's tasks, and a session that waits for the lock takes
 * ids of the new shard.  If its caller expects a shard, fairq_shard() takes a
 * lock that blocks set_shard() until the end of the transaction.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "common/int.h"
#include "funcapi.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "blocked.h"
#include "compat.h"
#include "dedup.h"
#include "enqueue.h"
#include "group.h"
#include "line.h"
#include "outcome.h"
#include "shmem.h"
#include "store.h"
#include "store_spi.h"
#include "tools.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_set_shard);
PG_FUNCTION_INFO_V1(fairq_shard);
PG_FUNCTION_INFO_V1(fairq_enqueue);
PG_FUNCTION_INFO_V1(fairq_enqueue_or_find);
PG_FUNCTION_INFO_V1(fairq_find);
PG_FUNCTION_INFO_V1(fairq_enqueue_batch);
PG_FUNCTION_INFO_V1(fairq_create_batch);

/* Shards have numbers from 1 on; 0: the database is not a shard. */
#define MAX_SHARD 1023

/* ids at the end of a shard that are not used */
#define KEPT_BACK (INT64CONST(1) << 20)

/* Location of the sequence's page, as this backend has seen it. */
static struct
{
	Oid			seq;
	uint64		as_of;			/* fairq_catalog_changes() at that time */
	FairqFile	file;
	Buffer		buffer;
	bool		logged;			/* true: the page is WAL-logged, so its LSN
								 * shows changes */
}			page;

/* Returns the buffer of the sequence's page, pinned. */
static Buffer
find_page(void)
{
	Oid			seq = fairq_relid(FAIRQ_TASK_ID_SEQ);
	Relation	rel;

	if (page.seq == seq && page.as_of == fairq_catalog_changes() &&
		ReadRecentBuffer(page.file, MAIN_FORKNUM, 0, page.buffer))
		return page.buffer;
	rel = relation_open(seq, AccessShareLock);
	page.as_of = fairq_catalog_changes();
	page.file = fairq_file(rel);
	page.logged = RelationNeedsWAL(rel);
	page.buffer = ReadBuffer(rel, 0);
	page.seq = seq;
	relation_close(rel, AccessShareLock);
	return page.buffer;
}

/*
 * Read the sequence's state.  Returns false if changes might not show in its
 * page.
 */
static bool
look_at_sequence(FairqIdSource *stands)
{
	Buffer		buffer = find_page();
	Page		content = BufferGetPage(buffer);
	HeapTupleHeader row;
	Form_pg_sequence_data state;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	row = (HeapTupleHeader)
		PageGetItem(content, PageGetItemId(content, FirstOffsetNumber));
	state = (Form_pg_sequence_data) ((char *) row + row->t_hoff);
	stands->lsn = PageGetLSN(content);
	stands->last_value = state->last_value;
	UnlockReleaseBuffer(buffer);
	return page.logged;
}

/*
 * Take up to n ids of the chunk that other sessions have begun.  Returns the
 * number of ids.
 */
static int
take_ids(FairqIds *ids, int64 *first, int n)
{
	FairqIdSource stands;

	if (!look_at_sequence(&stands))
		return 0;
	SpinLockAcquire(&ids->mutex);
	n = ids->source.lsn != stands.lsn ||
		ids->source.last_value != stands.last_value ? 0 : Min(n, ids->left);
	*first = ids->next;
	ids->next += n;
	ids->left -= n;
	SpinLockRelease(&ids->mutex);
	return n;
}

/* The number below a shard's first id. */
static int64
shard_begin(int32 shard)
{
	return (int64) shard << 43;
}

/* The shard of an id; 0: none. */
static int32
shard_of(int64 value)
{
	return value < shard_begin(1) ||
		value >= shard_begin(MAX_SHARD + 1) ? 0 :
		(int32) (value / shard_begin(1));
}

/* The shard of the sequence's ids.  The caller has fairq.task open. */
static int32
present_shard(void)
{
	FairqIdSource stands;

	(void) look_at_sequence(&stands);
	return shard_of(stands.last_value);
}

/*
 * Refuse if a shard's ids are used up, because the next ids belong to another
 * shard.
 */
static void
check_shard_end(int64 value)
{
	int32		shard = shard_of(value);

	if (shard > 0 && shard_begin(shard + 1) - value < KEPT_BACK)
		ereport(ERROR,
				errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				errmsg("ids of shard %d are used up", shard),
				errhint("Move its groups to a new shard."));
}

/* Returns the number of ids in the chunk of one value of the sequence. */
static int
chunk_size(Oid seq, int64 value)
{
	HeapTuple	tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(seq));
	Form_pg_sequence form;
	int64		end;
	int64		n;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for sequence %u", seq);
	form = (Form_pg_sequence) GETSTRUCT(tuple);
	/* if the sequence descends or cycles, each of its values is one id */
	n = form->seqincrement < 1 || form->seqcycle ? 1 :
		Min(form->seqincrement, PG_INT32_MAX);
	if (pg_add_s64_overflow(value, n, &end) || end - 1 > form->seqmax)
		n = form->seqmax - value + 1;
	ReleaseSysCache(tuple);
	return (int) n;
}

/*
 * Take up to n ids of a new chunk, and leave the rest to all sessions.
 * Returns the number of ids.
 */
static int
take_new_chunk(FairqIds *ids, int64 *first, int n)
{
	Oid			seq = fairq_relid(FAIRQ_TASK_ID_SEQ);
	int64		value;
	int			chunk;
	FairqIdSource stands;

	(void) look_at_sequence(&stands);
	check_shard_end(stands.last_value);
	value = nextval_internal(seq, false);
	chunk = chunk_size(seq, value);
	*first = value;
	if (n >= chunk)
		return chunk;
	if (look_at_sequence(&stands) && stands.last_value == value)
	{
		SpinLockAcquire(&ids->mutex);
		ids->source = stands;
		ids->next = value + n;
		ids->left = chunk - n;
		SpinLockRelease(&ids->mutex);
	}
	return n;
}

/* Fill in ids in ascending order.  The caller has fairq.task open. */
static void
new_ids(int64 *ids, int n)
{
	FairqIds   *shared = &fairq_domain()->ids;
	int64		first;
	int			got = n == 0 ? 0 : take_ids(shared, &first, n);

	for (;;)
	{
		for (int i = 0; i < got; i++)
			*ids++ = first + i;
		n -= got;
		if (n == 0)
			break;
		got = take_new_chunk(shared, &first, n);
	}
}

/* Refuse if there are tasks, including archived ones. */
static void
check_no_tasks(void)
{
	if (fairq_sql("SELECT WHERE EXISTS (SELECT FROM fairq.task)"
				  " OR EXISTS (SELECT FROM fairq.archive)",
				  NULL, 0, NULL) > 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_QUEUE_NOT_EMPTY),
				errmsg("cannot set the shard because there are tasks"),
				errdetail("Their ids belong to another shard."),
				errhint("Set it right after CREATE EXTENSION."));
}

/*
 * Make the database a shard: new ids contain the shard's number from now on.
 */
Datum
fairq_set_shard(PG_FUNCTION_ARGS)
{
	int32		shard;
	int32		present;

	fairq_arg_needed(fcinfo, 0, "shard");
	shard = (int32) FAIRQ_ARG_INT(0, "shard", 0, 1, MAX_SHARD);
	fairq_writes("fairq.set_shard()");
	fairq_sql("LOCK TABLE fairq.task IN SHARE ROW EXCLUSIVE MODE", NULL, 0,
			  NULL);
	present = present_shard();
	if (present == shard)
		PG_RETURN_VOID();
	check_no_tasks();
	if (shard < present)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("the number of a shard can only increase"),
				errdetail("The database is shard %d.", present),
				errhint("To start again, drop and create the extension."));
	/* a rollback undoes this, unlike setval() */
	/* START applies to TRUNCATE fairq.task RESTART IDENTITY */
	fairq_sql(psprintf("ALTER SEQUENCE fairq.task_id_seq"
					   " START WITH " INT64_FORMAT " RESTART",
					   shard_begin(shard) + 1),
			  NULL, 0, NULL);
	PG_RETURN_VOID();
}

/*
 * Returns which shard the database is; 0: none.  Raises an error if it is not
 * the expected one.
 */
Datum
fairq_shard(PG_FUNCTION_ARGS)
{
	/*
	 * tasks that the caller enqueues next belong to the shard that it expects
	 */
	LOCKMODE	lockmode = PG_ARGISNULL(0) ? AccessShareLock :
		RowExclusiveLock;
	FairqTable *tasks = fairq_open(FAIRQ_TASK, lockmode);
	int32		shard = present_shard();

	fairq_table_close(tasks);
	if (!PG_ARGISNULL(0) && PG_GETARG_INT32(0) != shard)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OTHER_SHARD),
				shard == 0 ?
				errmsg("this database has no shard number, and is not shard %d",
					   PG_GETARG_INT32(0)) :
				errmsg("this database is shard %d, and not shard %d", shard,
					   PG_GETARG_INT32(0)),
				errhint("Correct the list of shards, or set the number with fairq.set_shard()."));
	PG_RETURN_INT32(shard);
}

/* --------------------------------------------------------------------- */

/*
 * bytes of payloads and headers that are kept until their rows are written
 * together
 */
#define MAX_KEPT (1024 * 1024)

/* Check the length of a dedup_key. */
static text *
check_key(text *key)
{
	return fairq_check_text("dedup_key", key, 1, FAIRQ_MAX_DEDUP_KEY);
}

/* Check a cost that a group is charged. */
static float
check_cost(float cost)
{
	/* this condition also refuses NaN */
	if (!(cost > 0 && cost <= FAIRQ_MAX_COST))
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("cost must be greater than 0 and at most %d",
					   FAIRQ_MAX_COST),
				errdetail("The value is %g.", cost));
	return cost;
}

static void
refuse_both(const char *one, const char *other)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("%s and %s must not both be given", one, other));
}

/*
 * Returns the time at which a task becomes ready, from the arguments run_at
 * and delay; DT_NOBEGIN: at once.
 */
static TimestampTz
arg_run_at(FunctionCallInfo fcinfo, int run_at, int delay)
{
	if (!PG_ARGISNULL(run_at) && !PG_ARGISNULL(delay))
		refuse_both("run_at", "delay");
	if (!PG_ARGISNULL(delay))
		return GetCurrentTimestamp() +
			fairq_check_delay("delay", PG_GETARG_INTERVAL_P(delay));
	return PG_ARGISNULL(run_at) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(run_at);
}

static Datum
arg_payload(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ?
		DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")) :
		PointerGetDatum(PG_GETARG_JSONB_P(n));
}

static int
arg_priority(FunctionCallInfo fcinfo, int n)
{
	return FAIRQ_ARG_INT(n, "priority", 0, 0, FAIRQ_PRIORITIES - 1);
}

static int
arg_max_attempts(FunctionCallInfo fcinfo, int n)
{
	return FAIRQ_ARG_INT(n, "max_attempts", 0, 1, PG_INT32_MAX);
}

/* Arguments of enqueue() and enqueue_or_find(), in their order. */
enum
{
	ARG_QUEUE,
	ARG_GROUP_KEY,
	ARG_PAYLOAD,
	ARG_PRIORITY,
	ARG_RUN_AT,
	ARG_DEDUP_KEY,
	ARG_MAX_ATTEMPTS,
	ARG_COST,
	ARG_HEADERS,
	ARG_EXPIRES_AT,
	ARG_REPLACE,
	ARG_DEDUP_UNTIL,
	ARG_DEDUP_FOR,
	ARG_DELAY,
	ARG_BATCH,
	ARG_AFTER,
	ARG_AFTER_ANY
};

/* Whether the task gives up its key once it is claimed. */
static bool
arg_until_started(FunctionCallInfo fcinfo)
{
	const char *until = PG_ARGISNULL(ARG_DEDUP_UNTIL) ? "finished" :
		text_to_cstring(PG_GETARG_TEXT_PP(ARG_DEDUP_UNTIL));

	if (strcmp(until, "finished") == 0)
		return false;
	if (strcmp(until, "started") != 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("dedup_until must be finished or started"),
				errdetail("The value is \"%s\".", until));
	return true;
}

/*
 * Read the arguments for the key.  Without a key, the other arguments have no
 * meaning.
 */
static void
read_dedup(FunctionCallInfo fcinfo, FairqNewTask *new)
{
	bool		until_started = arg_until_started(fcinfo);
	Interval   *held_for = PG_ARGISNULL(ARG_DEDUP_FOR) ? NULL :
		PG_GETARG_INTERVAL_P(ARG_DEDUP_FOR);

	if (held_for != NULL && fairq_check_delay("dedup_for", held_for) == 0)
		held_for = NULL;
	if (PG_ARGISNULL(ARG_DEDUP_KEY))
		return;
	new->dedup.key =
		PointerGetDatum(check_key(PG_GETARG_TEXT_PP(ARG_DEDUP_KEY)));
	new->dedup.until_started = until_started;
	new->dedup.held_for = PointerGetDatum(held_for);
}

/* Read the arguments for the task. */
static void
read_task(FunctionCallInfo fcinfo, FairqNewTask *new)
{
	new->group_key = fairq_arg_text(fcinfo, ARG_GROUP_KEY, "group_key");
	new->payload = arg_payload(fcinfo, ARG_PAYLOAD);
	new->priority = arg_priority(fcinfo, ARG_PRIORITY);
	read_dedup(fcinfo, new);
	new->max_attempts = arg_max_attempts(fcinfo, ARG_MAX_ATTEMPTS);
	if (!PG_ARGISNULL(ARG_COST))
		new->cost = check_cost(PG_GETARG_FLOAT4(ARG_COST));
	if (!PG_ARGISNULL(ARG_HEADERS))
		new->headers = PointerGetDatum(PG_GETARG_JSONB_P(ARG_HEADERS));
	new->run_at = arg_run_at(fcinfo, ARG_RUN_AT, ARG_DELAY);
	new->expires_at = PG_ARGISNULL(ARG_EXPIRES_AT) ? DT_NOEND :
		PG_GETARG_TIMESTAMPTZ(ARG_EXPIRES_AT);
}

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

/*
 * Read the predecessors of tasks, from the arguments after and after_any;
 * NULL: none.  "other" names an argument that excludes them; NULL: that
 * argument has no value.
 */
static const FairqAfter *
arg_after(FunctionCallInfo fcinfo, int n, const char *other)
{
	FairqAfter *after;
	Datum	   *ids;

	if (PG_ARGISNULL(n))
		return NULL;
	after = palloc(sizeof(FairqAfter));
	after->n = fairq_arg_array(fcinfo, n, "after", INT8OID, &ids, NULL);
	if (after->n > FAIRQ_MAX_AFTER)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("after must have at most %d elements", FAIRQ_MAX_AFTER),
				errdetail("The array has %d elements.", after->n),
				errhint("Use a batch."));
	if (after->n > 0 && other != NULL)
		refuse_both("after", other);
	after->ids = palloc(sizeof(int64) * Max(after->n, 1));
	for (int i = 0; i < after->n; i++)
		after->ids[i] = DatumGetInt64(ids[i]);
	qsort(after->ids, after->n, sizeof(int64), compare_ids);
	after->n = qunique(after->ids, after->n, sizeof(int64), compare_ids);
	after->any = FAIRQ_ARG_BOOL(n + 1);
	return after->n == 0 ? NULL : after;
}

/* A time in the future, or DT_NOBEGIN if it is past. */
static TimestampTz
time_ahead(TimestampTz run_at, TimestampTz now)
{
	return run_at > now ? run_at : DT_NOBEGIN;
}

/* End a call that adds tasks; any: the call has added some tasks. */
void
fairq_add_end(FairqEnqueue *e, bool any)
{
	if (e->added > 0)
		fairq_batch_count(e->tasks, e->batch, FAIRQ_BATCH_ADDED, e->added, 0);
	fairq_table_close(e->tasks);
	if (e->ready)
		fairq_notify(e->queue);
	if (any)
		fairq_written();
}

/*
 * Give a ready or scheduled task its address, and make its row, which the
 * caller writes soon (line.c).
 */
static void
make_row(FairqEnqueue *e, const FairqNewTask *new, Datum *values, bool *nulls)
{
	FairqLane  *lane = fairq_queue_lane(e->queue, new->priority);
	int32		group_no = fairq_group_of_task(e->queue, new->group_key);
	TimestampTz run_at = e->after == NULL ? new->run_at :
		fairq_after_add(e->tasks, e->after, new->id, new->enqueued_at);
	bool		scheduled = run_at != DT_NOBEGIN;
	FairqPending *pending;
	int64		addr;

	/*
	 * make records before the row is written, because a pop might find no
	 * memory for them
	 */
	if (e->queue->shares.fair_by != FAIRQ_BY_TASKS)
		fairq_lane_have_records(lane, group_no,
								fairq_tenant_in_key(e->queue, new->group_key));
	addr = scheduled ?
		fairq_timed_addr(FAIRQ_REGION_SCHEDULED, run_at, new->id) :
		fairq_assign_address(e->queue, new->priority, group_no, e->tasks);

	memset(nulls, true, sizeof(bool) * TASK_NATTS);
	fairq_set(values, nulls, TASK_ID, Int64GetDatum(new->id));
	fairq_set(values, nulls, TASK_ADDR, Int64GetDatum(addr));
	fairq_set(values, nulls, TASK_ENQUEUED_AT,
			  TimestampTzGetDatum(new->enqueued_at));
	fairq_set(values, nulls, TASK_QUEUE_ID, Int32GetDatum(e->queue->id));
	fairq_set(values, nulls, TASK_GROUP_NO, Int32GetDatum(group_no));
	fairq_set(values, nulls, TASK_LANE,
			  Int32GetDatum(fairq_task_lane(e->queue->id, new->priority)));
	fairq_set(values, nulls, TASK_PRIORITY, Int16GetDatum(new->priority));
	fairq_set(values, nulls, TASK_CANCELLED, BoolGetDatum(false));
	fairq_set(values, nulls, TASK_ATTEMPT, Int32GetDatum(new->past.attempt));
	fairq_set_if_any(values, nulls, TASK_POPPED_AT,
					 TimestampTzGetDatum(new->past.popped_at));
	if (scheduled || new->put_back_at != DT_NOBEGIN)
		fairq_set(values, nulls, TASK_RUN_AT,
				  TimestampTzGetDatum(scheduled ? run_at : new->put_back_at));
	fairq_set_if_any(values, nulls, TASK_MAX_ATTEMPTS,
					 Int32GetDatum(new->max_attempts));
	fairq_set_if_any(values, nulls, TASK_RELEASED,
					 Int32GetDatum(new->past.attempt));
	fairq_set_if_any(values, nulls, TASK_COST, Float4GetDatum(new->cost));
	fairq_set(values, nulls, TASK_PAYLOAD, new->payload);
	fairq_set_if_any(values, nulls, TASK_DEDUP_KEY, new->dedup.key);
	fairq_set_if_any(values, nulls, TASK_ERROR, new->past.error);
	fairq_set_if_any(values, nulls, TASK_HEADERS, new->headers);
	fairq_set_if_any(values, nulls, TASK_PROGRESS, new->past.progress);
	fairq_set_if_any(values, nulls, TASK_ATTEMPT_LOG, new->past.log);
	fairq_set_if_any(values, nulls, TASK_UNTIL_STARTED,
					 BoolGetDatum(new->dedup.until_started));
	fairq_set_if_any(values, nulls, TASK_DEDUP_FOR, new->dedup.held_for);
	if (new->expires_at != DT_NOEND)
		fairq_set(values, nulls, TASK_EXPIRES_AT,
				  TimestampTzGetDatum(new->expires_at));
	fairq_set_if_any(values, nulls, TASK_BATCH,
					 Int64GetDatum(e->batch != 0 ? e->batch : new->batch));
	fairq_set_if_any(values, nulls, TASK_BLOCKED,
					 BoolGetDatum(new->blocked || e->after != NULL));
	e->added += e->batch != 0;
	pending = fairq_pending(lane, group_no);
	pending->stats[FAIRQ_STAT_ENQUEUED]++;
	pending->tally[fairq_tallied_at(addr)]++;
	if (scheduled)
		fairq_pending_scheduled(pending, addr);
	else
	{
		fairq_news_since(&pending->at_commit,
						 Max(new->enqueued_at, new->put_back_at));
		e->ready = true;
	}
}

/* Write a task that is ready, or scheduled. */
void
fairq_add_task(FairqEnqueue *e, const FairqNewTask *new)
{
	Datum		values[TASK_NATTS];
	bool		nulls[TASK_NATTS];

	make_row(e, new, values, nulls);
	fairq_pending_row_written(0, new->id,
							  fairq_table_insert(e->tasks, values, nulls,
												 TASK_NATTS));
}

/*
 * Finish the task that has the key, if it is expired, since no worker will
 * ever begin it.  Returns false if it is not expired.  Otherwise the caller
 * tries again to take the key.
 */
static bool
finish_expired(FairqEnqueue *e, int64 id)
{
	FairqTask	task;

	if (!fairq_dedup_is_expired(e->tasks, id))
		return false;
	if (fairq_task_find_locked(e->tasks, id, &task) && task.keyed &&
		fairq_is_expired(&task, GetCurrentTimestamp()))
	{
		fairq_finish_expired(e->queue, e->tasks, &task);
		fairq_written();
	}
	return true;
}

/*
 * Take a key for a task, as fairq_dedup_take() does, but also from an expired
 * task, which this function finishes.
 */
int64
fairq_take_key(FairqEnqueue *e, Datum key, int64 id, bool wait)
{
	int64		owner;

	do
	{
		CHECK_FOR_INTERRUPTS();
		owner = fairq_dedup_take(e->queue, e->tasks, key, id, wait);
	} while (owner != id && owner != 0 && finish_expired(e, owner));
	return owner;
}

/*
 * Add all tasks of the call to a batch.  Raises an error if the batch is
 * closed.
 */
static void
add_to_batch(FairqEnqueue *e, int64 batch)
{
	if (!fairq_batch_join(e->tasks, batch, false))
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_NO_BATCH),
				errmsg("batch " INT64_FORMAT " takes no more tasks", batch),
				errhint("It is closed, or you may not add to it."));
	for (int i = 0; e->after != NULL && i < e->after->n; i++)
	{
		if (e->after->ids[i] == batch)
			ereport(ERROR,
					errcode(ERRCODE_FAIRQ_NO_TASK),
					errmsg("no task of a batch can wait for the task that waits for the batch"),
					errdetail("The batch is " INT64_FORMAT ".", batch));
	}
	e->batch = batch;
}

/*
 * Begin a call that adds tasks now, to a batch if argument "batch" names one.
 * All other fields of *e are 0, except "after".
 */
static void
begin_adding(FunctionCallInfo fcinfo, const char *function, text *queue_name,
			 int batch, FairqEnqueue *e, FairqNewTask *new)
{
	fairq_writes(function);
	e->queue = fairq_queue_use(queue_name, FAIRQ_PRIV_ENQUEUE,
							   AccessShareLock);
	e->tasks = fairq_open(FAIRQ_TASK, RowExclusiveLock);
	if (!PG_ARGISNULL(batch))
		add_to_batch(e, PG_GETARG_INT64(batch));
	new->enqueued_at = GetCurrentTimestamp();
	new->run_at = time_ahead(new->run_at, new->enqueued_at);
}

/*
 * Replace the content of a locked task that is not running, and run it at
 * run_at, or at once if that is DT_NOBEGIN.  If the task is ready then, and
 * was ready before, it keeps its turn.  A task that waits for a retry does not
 * run earlier, unless the caller gives a time (timed).  For a blocked task a
 * time is an error, as for a new one.
 */
static void
replace_locked(FairqEnqueue *e, FairqTask *task, const FairqNewTask *new,
			   bool timed)
{
	FairqContent content = {
		.payload = new->payload,
		.headers = new->headers,
		.expires_at = new->expires_at,
		.blocked = task->blocked
	};
	FairqRegion region = fairq_region(task->addr);
	bool		now = new->run_at == DT_NOBEGIN;
	bool		stays = now &&
		(region == FAIRQ_REGION_QUEUED || task->blocked ||
		 (region == FAIRQ_REGION_RETRIED && !timed));

	if (task->blocked && timed)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("neither run_at nor delay can be given for task " INT64_FORMAT ", which waits for other tasks",
					   task->id));
	fairq_change_task(e->queue, e->tasks, task, new->run_at, stays,
					  &content);
	e->ready |= !fairq_is_timed(task->addr) || (now && !stays);
}

/*
 * Replace the task that has the key, unless it is running.  Returns false if
 * the task has finished; the key is then free or held.
 */
static bool
replace_task(FairqEnqueue *e, int64 id, const FairqNewTask *new, bool timed)
{
	FairqTask	task;

	if (!fairq_task_find(e->tasks, id, &task))
		return false;
	/* do not lock a running task, because its worker would have to wait */
	if (task.running)
		return true;
	if (!fairq_task_find_locked(e->tasks, id, &task))
		return false;
	/*
	 * a task that no longer has the key has given it up, and the key is now
	 * held
	 */
	if (task.running || !task.keyed)
		return true;
	replace_locked(e, &task, new, timed);
	return true;
}

/*
 * Add a task, unless another task has its key; if replace is true, replace
 * that task. timed: the caller gave a time for the task, possibly in the past.
 * Returns the id of the task that has the key.
 */
static int64
add_unique(FairqEnqueue *e, const FairqNewTask *new, bool replace, bool timed)
{
	int64		gone = 0;		/* a task that had the key but was not found */

	for (;;)
	{
		int64		owner = DatumGetPointer(new->dedup.key) == NULL ? new->id :
			fairq_take_key(e, new->dedup.key, new->id, true);

		CHECK_FOR_INTERRUPTS();
		if (owner == new->id)
			fairq_add_task(e, new);
		/* if the task is gone a second time, its key is held */
		if (owner == new->id || !replace || owner == gone ||
			replace_task(e, owner, new, timed))
			return owner;
		gone = owner;
	}
}

/*
 * Add a task, unless another task has its key.  Returns the id of the new
 * task, or of the task that has the key.
 */
static int64
enqueue(FunctionCallInfo fcinfo, const char *function, bool *added)
{
	text	   *queue_name = fairq_arg_text(fcinfo, ARG_QUEUE, "queue");
	bool		timed = !PG_ARGISNULL(ARG_RUN_AT) || !PG_ARGISNULL(ARG_DELAY);
	bool		replace = FAIRQ_ARG_BOOL(ARG_REPLACE);
	FairqNewTask new = {.put_back_at = DT_NOBEGIN};
	FairqEnqueue e = {0};
	int64		owner;

	read_task(fcinfo, &new);
	e.after = arg_after(fcinfo, ARG_AFTER,
						!PG_ARGISNULL(ARG_RUN_AT) ? "run_at" :
						!PG_ARGISNULL(ARG_DELAY) ? "delay" :
						replace ? "replace" : NULL);
	begin_adding(fcinfo, function, queue_name, ARG_BATCH, &e, &new);
	new_ids(&new.id, 1);
	owner = add_unique(&e, &new, replace, timed);
	*added = owner == new.id;
	fairq_add_end(&e, *added || replace);
	return owner;
}

Datum
fairq_enqueue(PG_FUNCTION_ARGS)
{
	bool		added;

	PG_RETURN_INT64(enqueue(fcinfo, "fairq.enqueue()", &added));
}

Datum
fairq_enqueue_or_find(PG_FUNCTION_ARGS)
{
	FairqRow	row = {0};
	bool		added;

	fairq_put_int8(&row, enqueue(fcinfo, "fairq.enqueue_or_find()", &added),
				   false);
	fairq_put(&row, BoolGetDatum(added), false);
	PG_RETURN_DATUM(fairq_row_result(fcinfo, &row));
}

/* fairq.find(queue, dedup_key) */
Datum
fairq_find(PG_FUNCTION_ARGS)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	text	   *key = check_key(fairq_arg_text(fcinfo, 1, "dedup_key"));
	FairqQueue *queue = fairq_queue_use(name,
										FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK,
										AccessShareLock);
	FairqTable *tasks = fairq_open(FAIRQ_TASK, AccessShareLock);
	int64		id = fairq_dedup_find(queue, tasks, PointerGetDatum(key));

	fairq_table_close(tasks);
	if (id == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}

typedef struct Batch
{
	int			n;				/* number of tasks */
	FairqOfEach group_keys;
	FairqOfEach payloads;
	FairqOfEach keys;
	FairqOfEach costs;
	FairqOfEach priorities;
	FairqOfEach run_ats;
	FairqOfEach headers;
	int64	   *ids;			/* ids of the tasks, or of the tasks that have
								 * their keys */
	bool	   *add;			/* true: the task is to be added */
	int64		kept;			/* bytes of payloads and headers of the
								 * postponed tasks */
} Batch;

typedef struct KeyOfTask
{
	text	   *key;
	int			task;			/* index of the task in the batch */
} KeyOfTask;

static int
compare_keys(const void *a, const void *b)
{
	const KeyOfTask *x = a;
	const KeyOfTask *y = b;
	int			order =
		DatumGetInt32(DirectFunctionCall2Coll(bttextcmp, C_COLLATION_OID,
											  PointerGetDatum(x->key),
											  PointerGetDatum(y->key)));

	return order != 0 ? order : x->task - y->task;
}

/*
 * Take the keys of a batch.  A task whose key belongs to another task gets
 * that task's id, and is not added.
 */
static void
take_keys(FairqEnqueue *e, Batch *batch)
{
	KeyOfTask  *sorted;
	int64	   *ids = batch->ids;
	int			nkeys = 0;

	StaticAssertStmt(sizeof(KeyOfTask) * FAIRQ_MAX_ELEMENTS <= MaxAllocSize,
					 "a batch does not fit");
	sorted = palloc(sizeof(KeyOfTask) * Max(batch->n, 1));
	for (int i = 0; i < batch->n; i++)
	{
		if (fairq_is_null_of(&batch->keys, i))
			continue;
		sorted[nkeys].key = check_key(DatumGetTextPP(batch->keys.values[i]));
		sorted[nkeys++].task = i;
	}
	qsort(sorted, nkeys, sizeof(KeyOfTask), compare_keys);
	for (int i = 0; i < nkeys; i++)
	{
		int			task = sorted[i].task;
		int64		owner;

		CHECK_FOR_INTERRUPTS();
		/*
		 * if two keys are equal, find the owner here, because no task is
		 * written yet
		 */
		if (i > 0 && datum_image_eq(PointerGetDatum(sorted[i - 1].key),
									PointerGetDatum(sorted[i].key), false, -1))
			owner = ids[sorted[i - 1].task];
		else
			owner = fairq_take_key(e, PointerGetDatum(sorted[i].key),
								   ids[task], true);
		batch->add[task] = owner == ids[task];
		ids[task] = owner;
	}
	pfree(sorted);
}

static void
read_args(FunctionCallInfo fcinfo, Batch *batch)
{
	batch->n = fairq_arg_array(fcinfo, 1, "group_keys", TEXTOID,
							   &batch->group_keys.values, NULL);
	fairq_arg_needed(fcinfo, 2, "payloads");
	batch->payloads = fairq_arg_of_each(fcinfo, 2, "payloads", JSONBOID,
										"group_keys", batch->n, false);
	batch->keys = fairq_arg_of_each(fcinfo, 5, "dedup_keys", TEXTOID,
									"group_keys", batch->n, true);
	batch->costs = fairq_arg_of_each(fcinfo, 6, "costs", FLOAT4OID,
									 "group_keys", batch->n, false);
	batch->priorities = fairq_arg_of_each(fcinfo, 7, "priorities", INT4OID,
										  "group_keys", batch->n, false);
	batch->run_ats = fairq_arg_of_each(fcinfo, 8, "run_ats", TIMESTAMPTZOID,
									   "group_keys", batch->n, true);
	batch->headers = fairq_arg_of_each(fcinfo, 9, "headers", JSONBOID,
									   "group_keys", batch->n, true);
	/* 0 is the default of priority */
	if (batch->priorities.values != NULL && !PG_ARGISNULL(3) &&
		PG_GETARG_INT32(3) != 0)
		refuse_both("priority", "priorities");
	if (batch->run_ats.values != NULL && !PG_ARGISNULL(4))
		refuse_both("run_at", "run_ats");
	if (batch->run_ats.values != NULL && !PG_ARGISNULL(11))
		refuse_both("run_ats", "delay");
	batch->ids = palloc(sizeof(int64) * Max(batch->n, 1));
	batch->add = palloc(sizeof(bool) * Max(batch->n, 1));
}

static void
write_rows(FairqEnqueue *e, Batch *batch, MemoryContext rows)
{
	fairq_assign_insert(e->tasks);
	MemoryContextReset(rows);
	batch->kept = 0;
}

/*
 * Postpone the i-th task.  Returns whether it is time to write the postponed
 * tasks.
 */
static bool
put_off(FairqEnqueue *e, Batch *batch, int i, FairqNewTask *new)
{
	Datum		values[TASK_NATTS];
	bool		nulls[TASK_NATTS];

	new->id = batch->ids[i];
	new->group_key = DatumGetTextPP(batch->group_keys.values[i]);
	new->payload = batch->payloads.values[i];
	new->dedup.key = fairq_value_of(&batch->keys, i);
	new->headers = fairq_value_of(&batch->headers, i);
	if (batch->costs.values != NULL)
		new->cost = check_cost(DatumGetFloat4(batch->costs.values[i]));
	if (batch->priorities.values != NULL)
		new->priority = fairq_check_int("priorities",
										DatumGetInt32(batch->priorities.values[i]),
										0, FAIRQ_PRIORITIES - 1);
	if (batch->run_ats.values != NULL)
		new->run_at = fairq_is_null_of(&batch->run_ats, i) ? DT_NOBEGIN :
			time_ahead(DatumGetTimestampTz(batch->run_ats.values[i]),
					   new->enqueued_at);
	make_row(e, new, values, nulls);
	batch->kept += VARSIZE_ANY(DatumGetPointer(new->payload));
	if (DatumGetPointer(new->headers) != NULL)
		batch->kept += VARSIZE_ANY(DatumGetPointer(new->headers));
	return fairq_table_put_off(e->tasks, values, nulls, TASK_NATTS) ||
		batch->kept >= MAX_KEPT;
}

Datum
fairq_enqueue_batch(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	Batch		batch = {.n = 0};
	bool		any = false;
	FairqEnqueue e = {0};
	FairqNewTask new = {.put_back_at = DT_NOBEGIN};
	MemoryContext rows = AllocSetContextCreate(CurrentMemoryContext,
											   "fairq tasks",
											   ALLOCSET_DEFAULT_SIZES);

	new.priority = arg_priority(fcinfo, 3);
	new.run_at = arg_run_at(fcinfo, 4, 11);
	new.expires_at = PG_ARGISNULL(10) ? DT_NOEND : PG_GETARG_TIMESTAMPTZ(10);
	read_args(fcinfo, &batch);
	e.after = arg_after(fcinfo, 13, !PG_ARGISNULL(4) ? "run_at" :
						!PG_ARGISNULL(8) ? "run_ats" :
						!PG_ARGISNULL(11) ? "delay" : NULL);
	begin_adding(fcinfo, "fairq.enqueue_batch()", queue_name, 12, &e, &new);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	new_ids(batch.ids, batch.n);
	memset(batch.add, true, sizeof(bool) * batch.n);
	if (batch.keys.values != NULL)
		take_keys(&e, &batch);
	for (int i = 0; i < batch.n; i++)
	{
		Datum		id = Int64GetDatum(batch.ids[i]);
		bool		isnull = false;
		MemoryContext old = MemoryContextSwitchTo(rows);

		CHECK_FOR_INTERRUPTS();
		if (batch.add[i] && put_off(&e, &batch, i, &new))
			write_rows(&e, &batch, rows);
		any |= batch.add[i];
		MemoryContextSwitchTo(old);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &id, &isnull);
	}
	write_rows(&e, &batch, rows);
	fairq_add_end(&e, any);
	MemoryContextDelete(rows);
	return (Datum) 0;
}

/* --------------------------------------------------------------------- */

/*
 * Returns the argument, a JSON object to which the numbers of the batch can be
 * added; 0: none.
 */
static Datum
arg_headers(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		return (Datum) 0;
	if (!JB_ROOT_IS_OBJECT(PG_GETARG_JSONB_P(n)))
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("headers of a batch's task must be a JSON object"));
	return PointerGetDatum(PG_GETARG_JSONB_P(n));
}

/* Write the row of a new batch. */
static void
create_batch(const FairqEnqueue *e, const FairqNewTask *new, bool on_success)
{
	Datum		values[BATCH_NATTS];
	bool		nulls[BATCH_NATTS];

	memset(nulls, true, sizeof(nulls));
	fairq_set(values, nulls, BATCH_ID, Int64GetDatum(new->id));
	fairq_set(values, nulls, BATCH_QUEUE_ID, Int32GetDatum(e->queue->id));
	fairq_set(values, nulls, BATCH_ON_SUCCESS, BoolGetDatum(on_success));
	fairq_set(values, nulls, BATCH_CREATED_AT,
			  TimestampTzGetDatum(new->enqueued_at));
	fairq_table_insert(fairq_table_beside(e->tasks, FAIRQ_BATCH), values,
					   nulls, BATCH_NATTS);
}

/*
 * fairq.create_batch(queue, group_key, payload, priority, on_success,
 * max_attempts, headers, batch)
 */
Datum
fairq_create_batch(PG_FUNCTION_ARGS)
{
	text	   *queue_name = fairq_arg_text(fcinfo, 0, "queue");
	FairqNewTask new = {
		.put_back_at = DT_NOBEGIN,
		.expires_at = DT_NOEND,
		.blocked = true,
		.group_key = fairq_arg_text(fcinfo, 1, "group_key"),
		.payload = arg_payload(fcinfo, 2),
		.priority = arg_priority(fcinfo, 3),
		.max_attempts = arg_max_attempts(fcinfo, 5),
		.headers = arg_headers(fcinfo, 6)
	};
	bool		on_success = FAIRQ_ARG_BOOL(4);
	FairqEnqueue e = {0};

	begin_adding(fcinfo, "fairq.create_batch()", queue_name, 7, &e, &new);
	new.run_at = on_success ? new.enqueued_at + USECS_PER_SEC : DT_NOEND;
	new_ids(&new.id, 1);
	fairq_add_task(&e, &new);
	create_batch(&e, &new, on_success);
	fairq_add_end(&e, true);
	PG_RETURN_INT64(new.id);
}
