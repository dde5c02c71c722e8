/*
 * ids.c
 *		Ids of tasks.  Ids increase, and come from a sequence in chunks.  The
 *		high bits are the number of the database's shard.
 *
 * nextval() of fairq.task_id_seq costs as much as an index entry.  So the
 * sequence's step is more than 1.  Each of its values is a chunk of ids:
 * itself and those up to the next value.  A call leaves the rest of its chunk
 * in shared memory, where all sessions take from it.
 *
 * A new id is higher than all earlier ones of all sessions.  Tasks at one
 * address are served in the order of their ids, and people sort by them.
 * Therefore a chunk is valid as long as the sequence is unchanged since the
 * chunk was taken.  Each nextval(), setval() and ALTER SEQUENCE changes the
 * sequence's page, whether a restore or a user runs it.  So does TRUNCATE with
 * RESTART IDENTITY.  The page's LSN, last_value or its file differ.  The rest
 * of an older chunk is never used.  So if several sessions take a chunk at the
 * same time, they only waste the rest of one.
 *
 * The page also shows which extension has a chunk, because extensions may
 * share an entry in shared memory (FairqDomain).  No two records of the log
 * have the same LSN.  Two copies of a database may have the same LSN until one
 * of them takes a chunk.  Before that they take different ids from the same
 * chunk.
 *
 * Ids are logged before they are used.  nextval() has written its record
 * before others see the chunk, so that record is on disk when a task's commit
 * is.
 *
 * A restart wastes the rest of a chunk.  After a crash PostgreSQL continues up
 * to 32 values later.  For that reason the step is small (see the script): 33
 * steps are less than 1,024 ids.
 *
 * The step is read from the catalog with each chunk: if the sequence is
 * altered, the length of chunks follows.
 *
 * Shards.  The ids of several databases differ if each has a shard's number:
 *
 *		id = shard * 2^43 + 1, 2, 3 ...		(shard from 1 to 1,023)
 *
 * So an id shows the shard of its task.  All ids are below 2^53, so JavaScript
 * and JSON readers keep them exactly.  A database that is not a shard counts
 * from
 * 1.  Only the sequence's own value keeps the number.  It is copied with the
 * tasks: in a dump, a base backup or a copy of the database.  It is set before
 * there are tasks and can only increase, so no id is used twice.  A shard can
 * use 2^43 ids for fourteen years at 20,000 tasks a second.  The last
 * KEPT_BACK ids are not used, so concurrent sessions cannot reach those of the
 * next shard.
 *
 * Locking: the page's content lock to read the sequence's state.  A lock on
 * the sequence is not needed: the caller has fairq.task open, which owns it.
 * A spinlock for the chunk.  nextval() locks the sequence to the end of the
 * transaction.  set_shard() locks fairq.task against all writers, to the end
 * of the transaction.  So it sees every other transaction's task, and a
 * session that waits for it takes ids of the new number.  If a shard is
 * expected, fairq_shard() takes a lock that blocks set_shard() until then.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_sequence.h"
#include "commands/sequence.h"
#include "common/int.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "args.h"
#include "compat.h"
#include "errors.h"
#include "ids.h"
#include "shmem.h"
#include "store.h"
#include "store_spi.h"

PG_FUNCTION_INFO_V1(fairq_set_shard);
PG_FUNCTION_INFO_V1(fairq_shard);

/* Shards have numbers from 1 on; 0: the database is not a shard. */
#define MAX_SHARD 1023

/* ids at the end of a shard that are not used */
#define KEPT_BACK (INT64CONST(1) << 20)

/* Location of the sequence's page, as this backend has seen it. */
static struct
{
	Oid			seq;
	uint64		as_of;			/* fairq_catalog_changes() by then */
	FairqFile	file;
	Buffer		buffer;
	bool		logged;			/* so that changes are visible in the LSN */
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

/* Read the sequence's state.  False if a change might not show in its page. */
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
 * Take up to n ids of the chunk that other sessions have begun.  Returns how
 * many.
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
 * Refuse if a shard's ids are used up: the next ids belong to another shard.
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

/* Returns the number of ids for one value of the sequence. */
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
	/* if the sequence descends or cycles, each value is only itself */
	n = form->seqincrement < 1 || form->seqcycle ? 1 :
		Min(form->seqincrement, PG_INT32_MAX);
	if (pg_add_s64_overflow(value, n, &end) || end - 1 > form->seqmax)
		n = form->seqmax - value + 1;
	ReleaseSysCache(tuple);
	return (int) n;
}

/*
 * Take up to n ids of a new chunk, and leave the rest to all sessions.
 * Returns how many.
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
void
fairq_new_ids(int64 *ids, int n)
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
	if (fairq_sql("SELECT 1::bigint WHERE EXISTS (SELECT FROM fairq.task)"
				  " OR EXISTS (SELECT FROM fairq.archive)",
				  NULL, 0, NULL) > 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_QUEUE_NOT_EMPTY),
				errmsg("cannot set the shard because there are tasks"),
				errdetail("Their ids belong to another shard."),
				errhint("Set it right after CREATE EXTENSION."));
}

/* Make the database a shard: its ids have the number from now on. */
Datum
fairq_set_shard(PG_FUNCTION_ARGS)
{
	int32		shard;
	int32		present;
	char	   *sql;

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
	/* unlike setval() it is undone by a rollback */
	/* START applies to TRUNCATE fairq.task RESTART IDENTITY */
	sql = psprintf("ALTER SEQUENCE fairq.task_id_seq START WITH " INT64_FORMAT " RESTART",
				   shard_begin(shard) + 1);
	fairq_sql(sql, NULL, 0, NULL);
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
	FairqTable *tasks = fairq_table_open(fairq_relid(FAIRQ_TASK), lockmode);
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
