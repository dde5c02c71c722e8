/*
 * args.h
 *		The arguments of SQL functions: defaults, ranges, errors.  It also
 *		makes the rows that the functions return, column by column.
 */
#ifndef FAIRQ_ARGS_H
#define FAIRQ_ARGS_H

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "queue.h"

/*
 * most elements of an array, because the data kept for each has to fit into
 * memory
 */
#define FAIRQ_MAX_ELEMENTS 40000000

/*
 * maximum number of bytes of the name of a worker, and of other data about it
 */
#define FAIRQ_MAX_NAME 1024

/* the longest lease, and the longest wait, in years */
#define FAIRQ_LIFETIME 100

/* An array with a value for each element of another one. */
typedef struct FairqOfEach
{
	Datum	   *values;			/* the values; NULL: none */
	bool	   *nulls;			/* true for each value that is NULL; NULL: no
								 * value is */
} FairqOfEach;

static inline bool
fairq_is_null_of(const FairqOfEach *array, int i)
{
	return array->values == NULL || (array->nulls != NULL && array->nulls[i]);
}

/* A value that is passed by reference; 0: none. */
static inline Datum
fairq_value_of(const FairqOfEach *array, int i)
{
	return fairq_is_null_of(array, i) ? (Datum) 0 : array->values[i];
}

extern void fairq_arg_needed(FunctionCallInfo fcinfo, int n, const char *name);
extern text *fairq_arg_text(FunctionCallInfo fcinfo, int n, const char *name);
extern Datum fairq_arg_name(FunctionCallInfo fcinfo, int n, const char *name);
extern int64 fairq_check_int(const char *name, int64 value, int64 low,
							 int64 high);
extern int64 fairq_check_span(const char *name, const Interval *value,
							  int least, int years);
extern void fairq_check_lease(FunctionCallInfo fcinfo, int n);
extern TimestampTz fairq_arg_lease(FunctionCallInfo fcinfo, int n,
								   const FairqQueue *queue,
								   TimestampTz popped_at, TimestampTz now);
extern int	fairq_arg_array(FunctionCallInfo fcinfo, int n, const char *name,
							Oid type, Datum **values, bool **nullsp);
extern FairqOfEach fairq_arg_of_each(FunctionCallInfo fcinfo, int n,
									 const char *name, Oid type,
									 const char *of_name, int length,
									 bool may_be_null);
extern int	fairq_arg_queues(FunctionCallInfo fcinfo, int n, Datum **names);
extern text *fairq_check_text(const char *name, text *value, int least,
							  int most);
extern void fairq_writes(const char *function);

/*
 * Check a time to wait, which may be 0.  Returns its length in microseconds.
 */
static inline int64
fairq_check_delay(const char *name, const Interval *delay)
{
	return fairq_check_span(name, delay, 0, FAIRQ_LIFETIME);
}

#define FAIRQ_ARG_INT(n, name, def, low, high) \
	(PG_ARGISNULL(n) ? (def) : \
	 fairq_check_int(name, PG_GETARG_INT32(n), low, high))

#define FAIRQ_ARG_BOOL(n) (PG_ARGISNULL(n) ? false : PG_GETARG_BOOL(n))

#define FAIRQ_ROW_COLUMNS 40

/* A row of a result, to which a caller adds one column after the other. */
typedef struct FairqRow
{
	int			n;				/* number of columns that were added */
	Datum		values[FAIRQ_ROW_COLUMNS];
	bool		nulls[FAIRQ_ROW_COLUMNS];
} FairqRow;

static inline void
fairq_put(FairqRow *row, Datum value, bool isnull)
{
	Assert(row->n < FAIRQ_ROW_COLUMNS);
	row->values[row->n] = value;
	row->nulls[row->n++] = isnull;
}

static inline void
fairq_put_int8(FairqRow *row, int64 value, bool isnull)
{
	fairq_put(row, Int64GetDatum(value), isnull);
}

static inline void
fairq_put_int4(FairqRow *row, int32 value, bool isnull)
{
	fairq_put(row, Int32GetDatum(value), isnull);
}

/* Add a duration in microseconds. */
static inline void
fairq_put_interval(FairqRow *row, int64 usecs, bool isnull)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = usecs;
	fairq_put(row, IntervalPGetDatum(interval), isnull);
}

/*
 * Check that the row is complete for its type.  It is incomplete if this
 * library and the extension's script have different versions.
 */
static inline void
fairq_check_row(const FairqRow *row, TupleDesc desc)
{
	if (row->n != desc->natts)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("a result of fairq must have %d columns, not %d",
					   row->n, desc->natts),
				errhint("Restart the server, and run ALTER EXTENSION fairq UPDATE."));
}

/* The complete row as a function's only result. */
static inline Datum
fairq_row_result(FunctionCallInfo fcinfo, FairqRow *row)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	fairq_check_row(row, desc);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
											 row->values, row->nulls));
}

/* Return the complete row. */
static inline void
fairq_put_row(ReturnSetInfo *rsinfo, FairqRow *row)
{
	fairq_check_row(row, rsinfo->setDesc);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values,
						 row->nulls);
}

#endif							/* FAIRQ_ARGS_H */
