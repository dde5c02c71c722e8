/*
 * args.c
 *		The arguments of SQL functions: defaults, ranges, errors.
 *
 * The functions are not strict: a NULL argument means the default, or is an
 * error that names the argument.  No function here takes a lock.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "args.h"
#include "compat.h"
#include "tools.h"
#include "wake.h"

/* a year, in microseconds */
#define LEAP_YEAR (366.0 * USECS_PER_DAY)

/* Check that an argument has a value. */
void
fairq_arg_needed(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("%s must not be NULL", name));
}

/* Returns a required text argument. */
text *
fairq_arg_text(FunctionCallInfo fcinfo, int n, const char *name)
{
	fairq_arg_needed(fcinfo, n, name);
	return PG_GETARG_TEXT_PP(n);
}

int64
fairq_check_int(const char *name, int64 value, int64 low, int64 high)
{
	if (value < low || value > high)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("%s must be between " INT64_FORMAT " and " INT64_FORMAT,
					   name, low, high),
				errdetail("The value is " INT64_FORMAT ".", value));
	return value;
}

static void
refuse_span(const char *name, const Interval *value, bool more_than_0,
			int years)
{
	Datum		given = DirectFunctionCall1(interval_out,
											IntervalPGetDatum(value));

	ereport(ERROR,
			errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
			errmsg("%s must be %s %d year%s", name,
				   more_than_0 ? "longer than 0 and at most" :
				   "between 0 and", years, years == 1 ? "" : "s"),
			errdetail("The value is %s.", DatumGetCString(given)));
}

/*
 * Check that an interval has at least a number of microseconds, 0 or 1, and at
 * most a number of years.  Infinity is too long.  Returns its length in
 * microseconds.
 */
int64
fairq_check_span(const char *name, const Interval *value, int least, int years)
{
	double		length = fairq_interval_length(value);

	if (length < least || length > years * LEAP_YEAR)
		refuse_span(name, value, least > 0, years);
	return (int64) length;
}

/* Check the length of a lease, if the argument has a value. */
void
fairq_check_lease(FunctionCallInfo fcinfo, int n)
{
	if (!PG_ARGISNULL(n))
		(void) fairq_check_span("lease", PG_GETARG_INTERVAL_P(n), 1,
								FAIRQ_LIFETIME);
}

/*
 * Returns the end of a lease that is taken now.  The lease ends at popped_at
 * plus the queue's max_run_time at the latest.
 */
TimestampTz
fairq_arg_lease(FunctionCallInfo fcinfo, int n, const FairqQueue *queue,
				TimestampTz popped_at, TimestampTz now)
{
	const Interval *lease = PG_ARGISNULL(n) ? &queue->retries.lease :
		PG_GETARG_INTERVAL_P(n);
	TimestampTz until;

	fairq_check_lease(fcinfo, n);
	until = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
													TimestampTzGetDatum(now),
													IntervalPGetDatum(lease)));
	/* months and days of either sign may cancel out */
	if (until <= now)
		refuse_span("lease", lease, true, FAIRQ_LIFETIME);
	return Min(until, fairq_last_lease_end(queue, popped_at));
}

/*
 * Check that the number of bytes of a text is from least to most.
 */
text *
fairq_check_text(const char *name, text *value, int least, int most)
{
	int			length = VARSIZE_ANY_EXHDR(value);

	if (length < least || length > most)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("%s must have between %d and %d bytes", name, least,
					   most),
				errdetail("The value has %d bytes.", length));
	return value;
}

/* Returns an optional name; 0: NULL. */
Datum
fairq_arg_name(FunctionCallInfo fcinfo, int n, const char *name)
{
	return PG_ARGISNULL(n) ? (Datum) 0 :
		PointerGetDatum(fairq_check_text(name, PG_GETARG_TEXT_PP(n), 0,
										 FAIRQ_MAX_NAME));
}

/*
 * Read the elements of a one-dimensional array.  Without nullsp, a NULL is an
 * error.  Returns their number.
 */
int
fairq_arg_array(FunctionCallInfo fcinfo, int n, const char *name, Oid type,
				Datum **values, bool **nullsp)
{
	ArrayType  *array;
	int16		typlen;
	bool		typbyval;
	char		typalign;
	bool	   *nulls;
	int			count;

	fairq_arg_needed(fcinfo, n, name);
	array = PG_GETARG_ARRAYTYPE_P(n);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s must have one dimension", name),
				errdetail("The array has %d dimensions.", ARR_NDIM(array)));
	count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	if (count > FAIRQ_MAX_ELEMENTS)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("%s must have at most %d elements", name,
					   FAIRQ_MAX_ELEMENTS),
				errdetail("The array has %d elements.", count),
				errhint("Split the array over several calls."));
	get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
	deconstruct_array(array, type, typlen, typbyval, typalign, values, &nulls,
					  &count);
	if (nullsp != NULL)
		*nullsp = nulls;
	for (int i = 0; i < count && nullsp == NULL; i++)
		if (nulls[i])
			ereport(ERROR,
					errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("%s must not contain NULL", name),
					errdetail("Element %d is NULL.", i + 1));
	return count;
}

/* Read an array with a value for each element of another one; NULL: none. */
FairqOfEach
fairq_arg_of_each(FunctionCallInfo fcinfo, int n, const char *name, Oid type,
				  const char *of_name, int length, bool may_be_null)
{
	FairqOfEach array = {NULL, NULL};
	int			count;

	if (PG_ARGISNULL(n))
		return array;
	count = fairq_arg_array(fcinfo, n, name, type, &array.values,
							may_be_null ? &array.nulls : NULL);
	if (count != length)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s and %s must have the same length", of_name, name),
				errdetail("The arrays have %d and %d elements.", length, count));
	return array;
}

/* Read the names of the queues for one call.  Returns their number. */
int
fairq_arg_queues(FunctionCallInfo fcinfo, int n, Datum **names)
{
	int			count = fairq_arg_array(fcinfo, n, "queues", TEXTOID, names, NULL);

	if (count < 1 || count > FAIRQ_MAX_WAITS)
		ereport(ERROR,
				errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
				errmsg("queues must have between 1 and %d elements",
					   FAIRQ_MAX_WAITS),
				errdetail("The array has %d elements.", count));
	return count;
}

/*
 * Make the executor's checks before a write, because direct writes bypass
 * them.
 */
void
fairq_writes(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
}
