/*
 * ids.c
 *		Ids of tasks: rising, and taken from a sequence many at a time.
 *
 * nextval() of fairq.task_id_seq costs as much as an entry in an index.  So each
 * value of the sequence, which steps by more than 1, stands for a chunk of ids:
 * itself and those up to the next value.  What a call leaves of its chunk stands
 * in shared memory, where all sessions take from it.
 *
 * An id that is given is higher than all that were given before, by whichever
 * session: at one address tasks are served by their ids, and people sort by
 * them.  Therefore a chunk is good for as long as the sequence stands as it
 * stood when the chunk was taken.  Any nextval(), setval(), ALTER SEQUENCE and
 * TRUNCATE ...  RESTART IDENTITY, by a restore or by hand, shows in the
 * sequence's page: in the page's LSN, in last_value, or in that it is another
 * file's.  What is left of an older chunk is never used, so a session that
 * takes the next chunk at the same time as others merely wastes the rest of
 * one.
 *
 * The same tells whose chunk it is, since extensions may share an entry in
 * shared memory (FairqDomain): no two records of the log have the same LSN.  Two
 * copies of a database may, until one of them takes a chunk; before that they
 * take different ids out of the same one.
 *
 * What is given is logged by then: nextval() has written its record before the
 * chunk is seen, so that record is on disk when the commit of a task is.
 *
 * What is wasted: the rest of a chunk at a restart.  After a crash PostgreSQL
 * goes on 32 values further than it logged.  That, and not the cost, is why the
 * step is small (see the script): 33 steps are less than 1,024 ids.
 *
 * The step is read from the catalog with each chunk: of a sequence that was
 * altered to another one, chunks are as long as that says.
 *
 * Locking: the page's content lock to see how the sequence stands, without a lock
 * on the sequence: the caller has fairq.task open, which owns it.  A spinlock for
 * the chunk.  nextval() locks the sequence to the end of the transaction, as
 * ever.
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

#include "compat.h"
#include "domain.h"
#include "ids.h"
#include "shmem.h"
#include "store.h"

/* so many of a shard's ids, at their end, are not given (shard.c) */
#define KEPT_BACK (INT64CONST(1) << 20)

/* Where this backend has seen the sequence's page. */
static struct
{
	Oid			seq;
	uint64		as_of;			/* fairq_catalog_changes() by then */
	FairqFile	file;
	Buffer		buffer;
	bool		logged;			/* so that changes show in the LSN */
}			page;

/* Returns the buffer of the sequence's page, pinned. */
static Buffer
find_page(void)
{
	Oid			seq = fairq_catalog()->task_id_seq;
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
 * Read how the sequence stands.  False if a change might not show in its page.
 */
static bool
look_at_sequence(FairqIdSource *stands)
{
	Buffer		buffer = find_page();
	Page		content = BufferGetPage(buffer);
	ItemId		item;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	item = PageGetItemId(content, FirstOffsetNumber);
	stands->lsn = PageGetLSN(content);
	stands->last_value = ((Form_pg_sequence_data)
						  ((char *) PageGetItem(content, item) +
						   ((HeapTupleHeader) PageGetItem(content, item))->t_hoff))->last_value;
	UnlockReleaseBuffer(buffer);
	return page.logged;
}

static bool
is_same_source(const FairqIdSource *a, const FairqIdSource *b)
{
	return a->lsn == b->lsn && a->last_value == b->last_value;
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
	if (is_same_source(&ids->source, &stands))
		n = Min(n, ids->left);
	else
		n = 0;
	*first = ids->next;
	ids->next += n;
	ids->left -= n;
	SpinLockRelease(&ids->mutex);
	return n;
}

/* Of which shard's ids the sequence is; 0: of none's. */
static int32
shard_of(int64 value)
{
	return value < fairq_shard_begin(1) ||
		value >= fairq_shard_begin(FAIRQ_MAX_SHARD + 1) ? 0 :
		(int32) (value / fairq_shard_begin(1));
}

/* The same.  The caller has fairq.task open. */
int32
fairq_ids_shard(void)
{
	FairqIdSource stands;

	(void) look_at_sequence(&stands);
	return shard_of(stands.last_value);
}

/* Refuse if a shard's ids come to their end: the next ones are another's. */
static void
check_shard_end(int64 value)
{
	int32		shard = shard_of(value);

	if (shard > 0 && fairq_shard_begin(shard + 1) - value < KEPT_BACK)
		ereport(ERROR,
				errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				errmsg("shard %d has given all its ids", shard),
				errhint("Move its groups to a new shard."));
}

/* Returns how many ids a value of the sequence stands for. */
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
	/* of one that goes down, or round and round, each is what it is */
	n = form->seqincrement < 1 || form->seqcycle ? 1 :
		Min(form->seqincrement, PG_INT32_MAX);
	if (pg_add_s64_overflow(value, n, &end) || end - 1 > form->seqmax)
		n = form->seqmax - value + 1;
	ReleaseSysCache(tuple);
	return (int) n;
}

/*
 * Take up to n ids of a new chunk, whose rest is for all sessions.  Returns
 * how many.
 */
static int
take_new_chunk(FairqIds *ids, int64 *first, int n)
{
	Oid			seq = fairq_catalog()->task_id_seq;
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

/* Fill in ids in rising order.  The caller has fairq.task open. */
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

int64
fairq_new_id(void)
{
	int64		id;

	fairq_new_ids(&id, 1);
	return id;
}
