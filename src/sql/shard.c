/*
 * shard.c
 *		Which shard a database is: a number in the high bits of its tasks' ids.
 *
 *		id = shard * 2^43 + 1, 2, 3 ...		(shard from 1 to 1,023)
 *
 * So an id says where its task is, and ids of several databases differ.  They are
 * below 2^53, so that JavaScript and JSON readers know them exactly.  A database
 * that is no shard counts from 1.
 *
 * The number stands nowhere but in the sequence's own value (ids.c), which goes
 * wherever the tasks go: a dump, a base backup, a copy of the database.  2^43 ids
 * last a shard fourteen years at 20,000 tasks a second; the last 2^20 are not
 * given, so that sessions beside each other do not come into the next shard's.
 *
 * A number is set before there are tasks, and only rises: ids are never given
 * again.
 *
 * Locking: set_shard locks fairq.task against all that write, to the end of the
 * transaction.  So every task of another transaction is seen, and whoever waits
 * takes ids by what was set.  fairq_shard() takes what ids.c says; if a shard is
 * expected, with a lock that keeps set_shard() away to the end of the transaction.
 */
#include "postgres.h"

#include "args.h"
#include "catalog.h"
#include "errors.h"
#include "ids.h"
#include "store.h"
#include "store_spi.h"

PG_FUNCTION_INFO_V1(fairq_set_shard);
PG_FUNCTION_INFO_V1(fairq_shard);

/* Refuse if there are tasks, also finished ones that are kept. */
static void
check_no_tasks(void)
{
	if (fairq_sql("SELECT 1::bigint WHERE EXISTS (SELECT FROM fairq.task)"
				  " OR EXISTS (SELECT FROM fairq.archive)",
				  NULL, 0, NULL) > 0)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_QUEUE_NOT_EMPTY),
				errmsg("cannot set the shard because there are tasks"),
				errdetail("Their ids are not of that shard."),
				errhint("Set it right after CREATE EXTENSION."));
}

/* The database is a shard: its ids are of that number from here on. */
Datum
fairq_set_shard(PG_FUNCTION_ARGS)
{
	int32		shard;
	int32		present;
	char	   *sql;

	fairq_arg_needed(fcinfo, 0, "shard");
	shard = (int32) FAIRQ_ARG_INT(0, "shard", 0, 1, FAIRQ_MAX_SHARD);
	fairq_writes("fairq.set_shard()");
	fairq_sql("LOCK TABLE fairq.task IN SHARE ROW EXCLUSIVE MODE", NULL, 0,
			  NULL);
	present = fairq_ids_shard();
	if (present == shard)
		PG_RETURN_VOID();
	check_no_tasks();
	if (shard < present)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("the number of a shard can only rise"),
				errdetail("The database is shard %d.", present),
				errhint("DROP EXTENSION fairq and CREATE EXTENSION fairq begin anew."));
	/* unlike setval() it is undone by a rollback */
	/* START is for TRUNCATE fairq.task RESTART IDENTITY */
	sql = psprintf("ALTER SEQUENCE fairq.task_id_seq START WITH " INT64_FORMAT " RESTART",
				   fairq_shard_begin(shard) + 1);
	fairq_sql(sql, NULL, 0, NULL);
	PG_RETURN_VOID();
}

/* Which shard the database is, 0: none.  An error if it is not the expected one. */
Datum
fairq_shard(PG_FUNCTION_ARGS)
{
	/* what the caller goes on to enqueue is of the shard that it expects */
	FairqTable *tasks = fairq_table_open(fairq_catalog()->task,
										 PG_ARGISNULL(0) ? AccessShareLock : RowExclusiveLock);
	int32		shard = fairq_ids_shard();

	fairq_table_close(tasks);
	if (!PG_ARGISNULL(0) && PG_GETARG_INT32(0) != shard)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OTHER_SHARD),
				shard == 0 ?
				errmsg("this database is no shard, and not shard %d",
					   PG_GETARG_INT32(0)) :
				errmsg("this database is shard %d, and not shard %d", shard,
					   PG_GETARG_INT32(0)),
				errhint("Mend the list of shards, or set the number with fairq.set_shard()."));
	PG_RETURN_INT32(shard);
}
