/*
 * store_spi.c
 *		fairq's tables through SQL, for rare operations.
 *
 * Statements run as the owner of fairq's tables, with only pg_catalog in the
 * search path.  The snapshot is always a new one, so a new queue is visible
 * even at REPEATABLE READ.  Queries behind views are the exception, since they
 * use the snapshot of the calling statement.
 *
 * The tables can be empty at one moment and full at the next, while the
 * planner's statistics are out of date.  If the planner believes that a full
 * table is empty, it chooses a nested loop as the cheapest join.  It may also
 * choose a merge join on some of the columns, because the estimated cost of
 * that join is hardly higher.  Both then take quadratic time.  So only hash
 * joins are enabled, which take linear time with any statistics.
 *
 * Locking: the locks of the statements.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "executor/tstoreReceiver.h"
#include "miscadmin.h"
#include "nodes/params.h"
#include "nodes/value.h"
#include "tcop/dest.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "store_spi.h"

#define MAX_ARGS 20

static void
set_guc(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* The state before owner_begin(). */
typedef struct Caller
{
	Oid			user;
	int			context;
	int			nest_level;
} Caller;

/* Run the following statements as fairq's owner. */
static void
owner_begin(Caller *caller)
{
	caller->nest_level = NewGUCNestLevel();
	set_guc("search_path", "pg_catalog, pg_temp");
	set_guc("enable_nestloop", "off");
	set_guc("enable_mergejoin", "off");
	set_guc("enable_hashjoin", "on");
	set_guc("jit", "off");
	GetUserIdAndSecContext(&caller->user, &caller->context);
	SetUserIdAndSecContext(fairq_catalog()->owner,
						   caller->context | SECURITY_LOCAL_USERID_CHANGE);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

static void
owner_end(const Caller *caller)
{
	SPI_finish();
	SetUserIdAndSecContext(caller->user, caller->context);
	AtEOXact_GUC(true, caller->nest_level);
}

static SPIPlanPtr
prepare_plan(const char *sql, const FairqSqlArg *args, int nargs)
{
	Oid			types[MAX_ARGS];
	SPIPlanPtr	plan;

	Assert(nargs <= (int) lengthof(types));
	for (int i = 0; i < nargs; i++)
		types[i] = args[i].type;
	plan = SPI_prepare(sql, nargs, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	return plan;
}

/*
 * Run a statement as fairq's owner.  Returns the number of rows processed.
 * Results are copied before they are freed.  *number, unless NULL, becomes the
 * first column of the first row, a bigint; without a row, *number stays
 * unchanged.  *texts, unless NULL, is extended by the first column of all
 * rows, as String nodes.  With as_seen, the statement uses the snapshot of the
 * caller's statement.
 */
static uint64
run_plan(const char *sql, const FairqSqlArg *args, int nargs, int64 *number,
		 List **texts, bool as_seen)
{
	Datum		values[MAX_ARGS];
	char		nulls[MAX_ARGS];
	MemoryContext context = CurrentMemoryContext;
	Caller		caller;
	uint64		processed;

	for (int i = 0; i < nargs; i++)
	{
		values[i] = args[i].value;
		nulls[i] = args[i].isnull ? 'n' : ' ';
	}
	owner_begin(&caller);
	if (SPI_execute_snapshot(prepare_plan(sql, args, nargs), values, nulls,
							 as_seen ? InvalidSnapshot : GetLatestSnapshot(),
							 InvalidSnapshot, as_seen, true, 0) < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(SPI_result));
	processed = SPI_processed;
	if (processed > 0 && number != NULL)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, 1, &isnull);

		if (!isnull)
			*number = DatumGetInt64(value);
	}
	context = MemoryContextSwitchTo(context);
	for (uint64 i = 0; texts != NULL && i < processed; i++)
		*texts = lappend(*texts,
						 makeString(SPI_getvalue(SPI_tuptable->vals[i],
												 SPI_tuptable->tupdesc, 1)));
	MemoryContextSwitchTo(context);
	owner_end(&caller);
	return processed;
}

/*
 * Run a query as fairq's owner, with the snapshot of the caller's statement.
 * Its rows are added to the store.
 */
void
fairq_sql_view(const char *sql, const FairqSqlArg *args, int nargs,
			   Tuplestorestate *store)
{
	DestReceiver *dest = CreateDestReceiver(DestTuplestore);
	ParamListInfo params = makeParamList(nargs);
	SPIExecuteOptions options = {0};
	Caller		caller;

	for (int i = 0; i < nargs; i++)
	{
		params->params[i].value = args[i].value;
		params->params[i].isnull = args[i].isnull;
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = args[i].type;
	}
	SetTuplestoreDestReceiverParams(dest, store, CurrentMemoryContext, false,
									NULL, NULL);
	options.params = params;
	options.read_only = true;
	options.dest = dest;
	owner_begin(&caller);
	if (SPI_execute_plan_extended(prepare_plan(sql, args, nargs),
								  &options) < 0)
		elog(ERROR, "SPI_execute_plan_extended failed: %s",
			 SPI_result_code_string(SPI_result));
	owner_end(&caller);
	dest->rDestroy(dest);
}

/*
 * Run a statement.  Returns the number of rows processed.  *result becomes the
 * first column of the first row, a bigint; without a row it stays unchanged.
 */
uint64
fairq_sql(const char *sql, const FairqSqlArg *args, int nargs, int64 *result)
{
	return run_plan(sql, args, nargs, result, NULL, false);
}

/*
 * Run a query.  With as_seen, the query sees the tables as the caller's
 * statement does.  Returns the first column, as String nodes.
 */
List *
fairq_sql_texts(const char *sql, const FairqSqlArg *args, int nargs,
				bool as_seen)
{
	List	   *texts = NIL;

	(void) run_plan(sql, args, nargs, NULL, &texts, as_seen);
	return texts;
}
