/*
 * acl.c
 *		Privileges of roles on queues.
 *
 * A privilege on a queue is a row (queue_id, role, privilege).  A role that
 * has the privileges of such a role has it.  So do superusers, and a role that
 * has those of the owner of fairq's tables.  FAIRQ_PRIV_MANAGE comprises the
 * others, and FAIRQ_PRIV_WORK comprises FAIRQ_PRIV_MONITOR, which a role that
 * has the privileges of pg_monitor has on each queue.  PUBLIC never has any.
 *
 * A role is kept by its OID, so that a new one of the same name inherits
 * nothing.  Rows of roles that were dropped grant nothing, until
 * fairq.maintain() deletes them.
 *
 * Locking: none.  The rows are cached with a queue's settings (queue.c).
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "acl.h"
#include "store.h"

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
	if (strcmp(name, "monitor") == 0)
		return FAIRQ_PRIV_MONITOR;
	return 0;
}

/* Whether the current user has all privileges on all queues. */
static bool
is_owner(void)
{
	return has_privs_of_role(GetUserId(), fairq_catalog()->owner);
}

/*
 * Has the current user one of these privileges, or one that comprises one of
 * them?
 */
bool
fairq_grants_allow(const FairqGrant *grants, int ngrants, int any)
{
	any |= FAIRQ_PRIV_MANAGE;
	if (any & FAIRQ_PRIV_MONITOR)
		any |= FAIRQ_PRIV_WORK;
	for (int i = 0; i < ngrants; i++)
	{
		if ((grants[i].privilege & any) &&
			has_privs_of_role(GetUserId(), grants[i].role))
			return true;
	}
	if ((any & FAIRQ_PRIV_MONITOR) &&
		has_privs_of_role(GetUserId(), ROLE_PG_MONITOR))
		return true;
	return is_owner();
}

/* Write the row (queue_id, role, privilege), unless it is there. */
void
fairq_write_grant(const FairqSqlArg *args)
{
	fairq_sql("INSERT INTO fairq.queue_privilege (queue_id, role, privilege)"
			  " VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", args, 3, NULL);
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

	if (!is_owner())
		fairq_write_grant(args);
}
