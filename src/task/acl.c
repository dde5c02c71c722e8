/*
 * acl.c
 *		Privileges of roles on queues.
 *
 * A privilege on a queue is a row (queue_id, role, privilege).  A member of
 * such a role also has the privilege.  So do superusers and members of the
 * role that owns fairq's tables.  FAIRQ_PRIV_MANAGE includes the others, and
 * FAIRQ_PRIV_WORK includes FAIRQ_PRIV_MONITOR. A role that has the privileges
 * of pg_monitor has FAIRQ_PRIV_MONITOR on each queue.  PUBLIC never has a
 * privilege.
 *
 * A role is stored by its OID, so a new role of the same name inherits
 * nothing.  Rows of roles that were dropped grant nothing, until
 * fairq.maintain() deletes them.
 *
 * Locking: none.  The rows are cached with a queue's settings (queue.c).
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"

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

/*
 * Whether the current user has one of these privileges, or one that includes
 * it.
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
	return has_privs_of_role(GetUserId(), fairq_catalog()->owner);
}
