/*
 * privilege.c
 *		fairq.grant_queue, fairq.revoke_queue: who may do what with a queue.
 *
 * Who may do what, by these rows, is said in acl.c.
 *
 * Locking: the rows of a queue are cached with its settings, and change like
 * them (queue.c): what was granted or revoked holds from the next call on.  A
 * trigger sees to that (changed.c), so that it is also true of what the owner
 * changes by SQL.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "args.h"
#include "errors.h"
#include "queue.h"
#include "store_spi.h"

PG_FUNCTION_INFO_V1(fairq_grant_queue);
PG_FUNCTION_INFO_V1(fairq_revoke_queue);
PG_FUNCTION_INFO_V1(fairq_has_queue_privilege);

static void
no_such_privilege(const char *name)
{
	ereport(ERROR,
			errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
			errmsg("privilege must be \"enqueue\", \"work\", \"monitor\" or \"manage\""),
			errdetail("The value is \"%.*s\".",
					  pg_mbcliplen(name, strlen(name), 100), name));
}

static char *
arg_privilege(FunctionCallInfo fcinfo, int n)
{
	char	   *name = text_to_cstring(fairq_arg_text(fcinfo, n, "privilege"));

	if (fairq_privilege_named(name) == 0)
		no_such_privilege(name);
	return name;
}

/* With what privilege, of which role, on which queue: what all of them need. */
static FairqQueue *
arg_row(FunctionCallInfo fcinfo, const char *function, FairqSqlArg *args)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	char	   *privilege;
	FairqQueue *queue;

	fairq_arg_needed(fcinfo, 1, "role");
	privilege = arg_privilege(fcinfo, 2);
	fairq_writes(function);
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, ShareUpdateExclusiveLock);
	args[0] = fairq_sql_int4(queue->id);
	args[1] = fairq_sql_role(PG_GETARG_OID(1));
	args[2] = fairq_sql_text(cstring_to_text(privilege));
	return queue;
}

Datum
fairq_grant_queue(PG_FUNCTION_ARGS)
{
	FairqSqlArg args[3];

	(void) arg_row(fcinfo, "fairq.grant_queue()", args);
	if (!SearchSysCacheExists1(AUTHOID, args[1].value))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("role with OID %u does not exist",
					   DatumGetObjectId(args[1].value)));
	fairq_write_grant(args);
	PG_RETURN_VOID();
}

/* Also of a role that is gone, by its OID. */
Datum
fairq_revoke_queue(PG_FUNCTION_ARGS)
{
	FairqSqlArg args[3];

	(void) arg_row(fcinfo, "fairq.revoke_queue()", args);
	fairq_sql("DELETE FROM fairq.queue_privilege"
			  " WHERE queue_id = $1 AND role = $2 AND privilege = $3",
			  args, lengthof(args), NULL);
	PG_RETURN_VOID();
}

/* has_queue_privilege(queue_id, privilege): for the views */
Datum
fairq_has_queue_privilege(PG_FUNCTION_ARGS)
{
	FairqQueue *queue = fairq_queue_by_id(PG_GETARG_INT32(0));
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(1));

	int			privilege = strcmp(name, "any") == 0 ? FAIRQ_PRIV_ANY :
		fairq_privilege_named(name);

	if (privilege == 0)
		no_such_privilege(name);
	PG_RETURN_BOOL(queue != NULL && fairq_may(queue, privilege));
}
