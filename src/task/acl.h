/*
 * acl.h
 *		Privileges of roles on queues.
 */
#ifndef FAIRQ_ACL_H
#define FAIRQ_ACL_H

/* Privileges on a queue; these are bits. */
typedef enum FairqPrivilege
{
	FAIRQ_PRIV_ENQUEUE = 1,
	FAIRQ_PRIV_WORK = 2,		/* comprises FAIRQ_PRIV_MONITOR */
	FAIRQ_PRIV_MANAGE = 4,		/* comprises the others */
	FAIRQ_PRIV_MONITOR = 8		/* to see queues, groups and tasks, without
								 * data from a task's producer or worker */
} FairqPrivilege;

#define FAIRQ_PRIV_ANY \
	(FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK | FAIRQ_PRIV_MONITOR)

typedef struct FairqGrant
{
	Oid			role;
	FairqPrivilege privilege;
} FairqGrant;

extern FairqPrivilege fairq_privilege_named(const char *name);
extern bool fairq_grants_allow(const FairqGrant *grants, int ngrants, int any);

#endif							/* FAIRQ_ACL_H */
