/*
 * store_spi.h
 *		fairq's tables by way of SQL.
 */
#ifndef FAIRQ_STORE_SPI_H
#define FAIRQ_STORE_SPI_H

typedef struct FairqSqlArg
{
	Oid			type;
	Datum		value;
	bool		isnull;
} FairqSqlArg;

extern uint64 fairq_sql(const char *sql, const FairqSqlArg *args, int nargs,
						int64 *result);

#endif							/* FAIRQ_STORE_SPI_H */
