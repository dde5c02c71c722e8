/*
 * store_spi.h
 *		fairq's tables through SQL.
 */
#ifndef FAIRQ_STORE_SPI_H
#define FAIRQ_STORE_SPI_H

#include "catalog/pg_type.h"
#include "nodes/pg_list.h"
#include "utils/tuplestore.h"

typedef struct FairqSqlArg
{
	Oid			type;
	Datum		value;
	bool		isnull;
} FairqSqlArg;

static inline FairqSqlArg
fairq_sql_int4(int32 value)
{
	FairqSqlArg arg = {INT4OID, Int32GetDatum(value), false};

	return arg;
}

static inline FairqSqlArg
fairq_sql_text(const text *value)
{
	FairqSqlArg arg = {TEXTOID, PointerGetDatum(value), false};

	return arg;
}

extern uint64 fairq_sql(const char *sql, const FairqSqlArg *args, int nargs,
						int64 *result);
extern void fairq_sql_view(const char *sql, const FairqSqlArg *args, int nargs,
						   Tuplestorestate *store);
extern List *fairq_sql_texts(const char *sql, const FairqSqlArg *args,
							 int nargs, bool as_seen);

#endif							/* FAIRQ_STORE_SPI_H */
