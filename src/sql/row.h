/*
 * row.h
 *		Rows that a function returns, put together column by column.
 */
#ifndef FAIRQ_ROW_H
#define FAIRQ_ROW_H

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#define FAIRQ_ROW_COLUMNS 40

/* A row to be, whose columns are put one after the other. */
typedef struct FairqRow
{
	int			n;				/* number of columns that were put */
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

/* Put a duration of so many microseconds. */
static inline void
fairq_put_interval(FairqRow *row, int64 usecs, bool isnull)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = usecs;
	fairq_put(row, IntervalPGetDatum(interval), isnull);
}

/* The row as a function's one result, of which all columns are put. */
static inline Datum
fairq_row_result(FunctionCallInfo fcinfo, FairqRow *row)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	Assert(row->n == desc->natts);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
											 row->values, row->nulls));
}

/* Return the row, of which all columns are put. */
static inline void
fairq_put_row(ReturnSetInfo *rsinfo, FairqRow *row)
{
	Assert(row->n == rsinfo->setDesc->natts);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values,
						 row->nulls);
}

#endif							/* FAIRQ_ROW_H */
