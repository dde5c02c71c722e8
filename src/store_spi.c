/*
 * store_spi.c
 *		fairq's tables by way of SQL, for what is done seldom.
 *
 * Statements run as the owner of fairq's tables, with nothing in the search
 * path but pg_catalog.  The snapshot is always a fresh one: at REPEATABLE READ
 * too a queue that was just made is there.
 *
 * A procedure that commits by itself does that through SPI, too.
 *
 * Locking: what the statements take.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "store.h"
#include "store_spi.h"

#define MAX_ARGS 12

/* What is done with the result, before it is gone. */
typedef void (*Reader) (void *arg);

/*
 * Run a statement as fairq's owner.  Returns the number of rows processed.
 */
static uint64
run(const char *sql, const FairqSqlArg *args, int nargs, Reader reader,
	void *arg)
{
	Oid			types[MAX_ARGS];
	Datum		values[MAX_ARGS];
	char		nulls[MAX_ARGS];
	SPIPlanPtr	plan;
	Oid			user;
	int			context;
	int			nest_level = NewGUCNestLevel();
	uint64		processed;

	Assert(nargs <= (int) lengthof(types));
	for (int i = 0; i < nargs; i++)
	{
		types[i] = args[i].type;
		values[i] = args[i].value;
		nulls[i] = args[i].isnull ? 'n' : ' ';
	}

	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
							 0, false);
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(fairq_catalog()->owner,
						   context | SECURITY_LOCAL_USERID_CHANGE);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	plan = SPI_prepare(sql, nargs, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_execute_snapshot(plan, values, nulls, GetLatestSnapshot(),
							 InvalidSnapshot, false, true, 0) < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s",
			 SPI_result_code_string(SPI_result));
	processed = SPI_processed;
	if (processed > 0)
		reader(arg);
	SPI_finish();
	SetUserIdAndSecContext(user, context);
	AtEOXact_GUC(true, nest_level);
	return processed;
}

static void
read_number(void *arg)
{
	int64	   *result = arg;
	bool		isnull;
	Datum		value;

	if (result == NULL)
		return;
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
						  &isnull);
	if (!isnull)
		*result = DatumGetInt64(value);
}

/*
 * Run a statement.  Returns the number of rows processed; *result is the first
 * column of the first row, a bigint, or unchanged.
 */
uint64
fairq_sql(const char *sql, const FairqSqlArg *args, int nargs, int64 *result)
{
	return run(sql, args, nargs, read_number, result);
}

typedef struct Texts
{
	List	   *list;
	MemoryContext context;
} Texts;

static void
read_texts(void *arg)
{
	Texts	   *texts = arg;
	MemoryContext old = MemoryContextSwitchTo(texts->context);

	for (uint64 i = 0; i < SPI_tuptable->numvals; i++)
		texts->list = lappend(texts->list,
							  SPI_getvalue(SPI_tuptable->vals[i],
										   SPI_tuptable->tupdesc, 1));
	MemoryContextSwitchTo(old);
}

/* Run a query.  Returns the first column, as strings. */
List *
fairq_sql_texts(const char *sql, const FairqSqlArg *args, int nargs)
{
	Texts		texts = {NIL, CurrentMemoryContext};

	(void) run(sql, args, nargs, read_texts, &texts);
	return texts.list;
}

/* A procedure that has been called outside of a transaction block. */
void
fairq_procedure_begin(void)
{
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
}

/* Commit, and go on in a transaction that has no snapshot yet. */
void
fairq_procedure_commit(void)
{
	SPI_commit();
}

void
fairq_procedure_end(void)
{
	SPI_finish();
}
