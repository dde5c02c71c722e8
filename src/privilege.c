/*
 * privilege.c
 *		fairq.grant_queue, fairq.revoke_queue: who may do what with a queue.
 *
 * A privilege on a queue is a row (queue_id, role, privilege).  A role that
 * has the privileges of such a role has it; so do superusers, and a role that
 * has those of the role that owns fairq's tables.  FAIRQ_PRIV_MANAGE comprises
 * the others.  Nothing is ever PUBLIC's.
 *
 * A role is kept by its OID, so that a new one of the same name inherits
 * nothing.  Rows of roles that were dropped grant nothing, until
 * fairq.maintain() deletes them.
 *
 * Locking: the rows of a queue are cached with its settings, and change like
 * them (queue.c): what was granted or revoked holds from the next call on.  A
 * trigger sees to that (changed.c), so that it is also true of what the owner
 * changes by SQL.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "args.h"
#include "errors.h"
#include "privilege.h"
#include "store.h"
#include "store_spi.h"
#include "transaction.h"

PG_FUNCTION_INFO_V1(fairq_grant_queue);
PG_FUNCTION_INFO_V1(fairq_revoke_queue);
PG_FUNCTION_INFO_V1(fairq_has_queue_privilege);

/* 0 if there is no such privilege */
FairqPrivilege
fairq_privilege_named(const char *name)
{
	if (strcmp(name, "enqueue") == 0)
		return FAIRQ_PRIV_ENQUEUE;
	if (strcmp(name, "work") == 0)
		return FAIRQ_PRIV_WORK;
	if (strcmp(name, "manage") == 0)
		return FAIRQ_PRIV_MANAGE;
	return 0;
}

/* May the current user do anything at all, with any queue? */
bool
fairq_is_owner(void)
{
	return has_privs_of_role(GetUserId(), fairq_catalog()->owner);
}

/* Has the current user one of these privileges, or the one that comprises all? */
bool
fairq_may(const FairqQueue *queue, int any)
{
	any |= FAIRQ_PRIV_MANAGE;
	for (int i = 0; i < queue->ngrants; i++)
	{
		if ((queue->grants[i].privilege & any) &&
			has_privs_of_role(GetUserId(), queue->grants[i].role))
			return true;
	}
	return fairq_is_owner();
}

void
fairq_check_privilege(const FairqQueue *queue, int any)
{
	if (!fairq_may(queue, any))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for queue \"%s\"", queue->name));
}

static void
no_such_privilege(const char *name)
{
	ereport(ERROR,
			errcode(ERRCODE_FAIRQ_OUT_OF_RANGE),
			errmsg("privilege is \"%.*s\"",
				   pg_mbcliplen(name, strlen(name), 100), name),
			errdetail("It must be \"enqueue\", \"work\" or \"manage\"."));
}

static char *
arg_privilege(FunctionCallInfo fcinfo, int n)
{
	char	   *name = text_to_cstring(fairq_arg_text(fcinfo, n, "privilege"));

	if (fairq_privilege_named(name) == 0)
		no_such_privilege(name);
	return name;
}

static Oid
arg_role(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("role must not be NULL"));
	return PG_GETARG_OID(n);
}

/* With what privilege, of which role, on which queue: what all of them need. */
static FairqQueue *
arg_row(FunctionCallInfo fcinfo, const char *function, FairqSqlArg *args)
{
	text	   *name = fairq_arg_text(fcinfo, 0, "queue");
	Oid			role = arg_role(fcinfo, 1);
	char	   *privilege = arg_privilege(fcinfo, 2);
	FairqQueue *queue;

	fairq_writes(function);
	queue = fairq_queue_use(name, FAIRQ_PRIV_MANAGE, ShareUpdateExclusiveLock);
	args[0] = fairq_sql_int4(queue->id);
	args[1] = fairq_sql_role(role);
	args[2] = fairq_sql_text(cstring_to_text(privilege));
	return queue;
}

static void
write_grant(const FairqSqlArg *args)
{
	fairq_sql("INSERT INTO fairq.queue_privilege (queue_id, role, privilege)"
			  " VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", args, 3, NULL);
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
	write_grant(args);
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

/* Grant MANAGE to the role that makes a queue. */
void
fairq_grant_creator(int32 queue_id)
{
	FairqSqlArg args[] = {
		fairq_sql_int4(queue_id),
		fairq_sql_role(GetUserId()),
		fairq_sql_text(cstring_to_text("manage"))
	};

	if (!fairq_is_owner())
		write_grant(args);
}

/* fairq.has_queue_privilege(queue_id, privilege): for the views */
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
