/*
 * workers.c
 *		fairq.register_worker, fairq.unregister_worker.
 *
 * A worker registers every ten seconds, and the view fairq.workers shows who
 * has.  Nothing else depends on the registry: the leases of its tasks decide
 * whether a worker still has them.  A worker that ends removes its row.  The
 * view hides workers that have not registered for an hour.  The first call of
 * another worker deletes their rows; later calls do not read other rows.
 *
 * The key is a random id, since two workers may have the same name.  No view
 * shows it, so a role can change only the rows of its own workers.
 *
 * Locking: AccessShareLock on the queues and the worker's own row, to the end
 * of the transaction.  Other rows are deleted only if no transaction has
 * locked them.
 */
#include "postgres.h"

#include "nodes/value.h"
#include "utils/builtins.h"

#include "args.h"
#include "store_spi.h"

PG_FUNCTION_INFO_V1(fairq_register_worker);
PG_FUNCTION_INFO_V1(fairq_unregister_worker);

#define MAX_NAME 1024

static FairqSqlArg
arg_worker_id(FunctionCallInfo fcinfo)
{
	FairqSqlArg arg = {UUIDOID};

	fairq_arg_needed(fcinfo, 0, "worker_id");
	arg.value = PG_GETARG_DATUM(0);
	return arg;
}

static FairqSqlArg
arg_name(FunctionCallInfo fcinfo, int n, const char *name)
{
	FairqSqlArg arg = {TEXTOID, (Datum) 0, PG_ARGISNULL(n)};

	if (!arg.isnull)
		arg.value = PointerGetDatum(fairq_check_text(name,
													 PG_GETARG_TEXT_PP(n), 0,
													 MAX_NAME));
	return arg;
}

static FairqSqlArg
arg_number(FunctionCallInfo fcinfo, int n, const char *name)
{
	int32		number = FAIRQ_ARG_INT(n, name, 0, 0, PG_INT32_MAX);
	FairqSqlArg arg = fairq_sql_int4(number);

	arg.isnull = PG_ARGISNULL(n);
	return arg;
}

/*
 * fairq.register_worker(worker_id, worker, queues, host, client, version,
 * concurrency, running)
 */
Datum
fairq_register_worker(PG_FUNCTION_ARGS)
{
	Datum	   *queues;
	int			nqueues = fairq_arg_queues(fcinfo, 2, &queues);
	int64		added = 0;
	FairqSqlArg args[] = {
		arg_worker_id(fcinfo),
		arg_name(fcinfo, 1, "worker"),
		{TEXTARRAYOID, PG_GETARG_DATUM(2)},
		arg_name(fcinfo, 3, "host"),
		arg_name(fcinfo, 4, "client"),
		arg_name(fcinfo, 5, "version"),
		arg_number(fcinfo, 6, "concurrency"),
		arg_number(fcinfo, 7, "running")
	};

	fairq_arg_needed(fcinfo, 1, "worker");
	fairq_writes("fairq.register_worker()");
	for (int i = 0; i < nqueues; i++)
		(void) fairq_queue_use(DatumGetTextPP(queues[i]), FAIRQ_PRIV_WORK,
							   AccessShareLock);
	fairq_sql("INSERT INTO fairq.worker (worker_id, worker, queues, host,"
			  " client, version, concurrency, running, started_at, last_seen)"
			  " SELECT $1, $2, $3, $4, $5, $6, $7, $8, now, now"
			  " FROM clock_timestamp() now"
			  " ON CONFLICT (worker_id) DO UPDATE SET (worker, queues, host,"
			  " client, version, concurrency, running, last_seen) = ($2, $3, $4,"
			  " $5, $6, $7, $8, excluded.last_seen)"
			  " RETURNING (started_at = last_seen)::int::bigint",
			  args, lengthof(args), &added);
	if (added != 0)
		fairq_sql("DELETE FROM fairq.worker WHERE worker_id IN"
				  " (SELECT worker_id FROM fairq.worker"
				  " WHERE last_seen < clock_timestamp() - interval '1 hour'"
				  " FOR UPDATE SKIP LOCKED)", NULL, 0, NULL);
	PG_RETURN_VOID();
}

/* fairq.unregister_worker(worker_id) */
Datum
fairq_unregister_worker(PG_FUNCTION_ARGS)
{
	FairqSqlArg id = arg_worker_id(fcinfo);
	ListCell   *lc;

	fairq_writes("fairq.unregister_worker()");
	foreach(lc, fairq_sql_texts("SELECT unnest(queues) FROM fairq.worker"
								" WHERE worker_id = $1", &id, 1, false))
		(void) fairq_queue_use_if_exists(cstring_to_text(strVal(lfirst(lc))),
										 FAIRQ_PRIV_WORK, AccessShareLock);
	PG_RETURN_BOOL(fairq_sql("DELETE FROM fairq.worker WHERE worker_id = $1",
							 &id, 1, NULL) > 0);
}
