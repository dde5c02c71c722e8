/*
 * args.h
 *		Arguments of the SQL functions: defaults, ranges, errors.
 */
#ifndef FAIRQ_ARGS_H
#define FAIRQ_ARGS_H

#include "fmgr.h"
#include "datatype/timestamp.h"

#include "queue.h"

/* elements of an array, at most: what is kept of each has to fit into memory */
#define FAIRQ_MAX_ELEMENTS 40000000

extern void fairq_arg_needed(FunctionCallInfo fcinfo, int n, const char *name);
extern text *fairq_arg_text(FunctionCallInfo fcinfo, int n, const char *name);
extern int64 fairq_check_int(const char *name, int64 value, int64 low,
							 int64 high);
extern int64 fairq_check_span(const char *name, const Interval *value,
							  int least, int years);
extern void fairq_check_lease(const Interval *lease);
extern TimestampTz fairq_arg_lease(FunctionCallInfo fcinfo, int n,
								   const FairqQueue *queue,
								   TimestampTz popped_at, TimestampTz now);
extern int	fairq_arg_array(FunctionCallInfo fcinfo, int n, const char *name,
							Oid type, Datum **values, bool **nullsp);
extern Datum *fairq_arg_of_each(FunctionCallInfo fcinfo, int n,
								const char *name, Oid type,
								const char *of_name, int length,
								bool **nullsp);
extern int64 fairq_arg_delay(FunctionCallInfo fcinfo, int n, const char *name,
							 int64 none);
extern int	fairq_arg_queues(FunctionCallInfo fcinfo, int n, Datum **names);
extern text *fairq_check_text(const char *name, text *value, int least,
							  int most);
extern text *fairq_check_key(text *key);
extern float fairq_check_cost(float cost);
extern int64 fairq_check_delay(const char *name, const Interval *delay);
extern void fairq_refuse_both(const char *one, const char *other);
extern TimestampTz fairq_arg_run_at(FunctionCallInfo fcinfo, int run_at, int delay);
extern void fairq_writes(const char *function);

#define FAIRQ_ARG_INT(n, name, def, low, high) \
	fairq_check_int(name, PG_ARGISNULL(n) ? (def) : PG_GETARG_INT32(n), \
					low, high)

#define FAIRQ_ARG_BOOL(n) (PG_ARGISNULL(n) ? false : PG_GETARG_BOOL(n))

/* time from which on a task does not begin; DT_NOEND, if it is not given: none */
#define FAIRQ_ARG_EXPIRES_AT(n) \
	(PG_ARGISNULL(n) ? DT_NOEND : PG_GETARG_TIMESTAMPTZ(n))

#endif							/* FAIRQ_ARGS_H */
