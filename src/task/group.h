/*
 * group.h
 *		Groups: their keys and their numbers.
 */
#ifndef FAIRQ_GROUP_H
#define FAIRQ_GROUP_H

#include "queue.h"
#include "store.h"

/* An action for a tenant, whose key is given, or for a group. */
typedef void (*FairqTenantAction) (void *arg, int32 group_no, text *key);

extern void fairq_put_group_number(FairqTable *table, FairqQueue *queue,
								   int32 group_no, text *key);
extern bool fairq_is_tenant_key(const FairqQueue *queue, const text *key);
extern bool fairq_tenant_has_groups(const FairqQueue *queue,
									FairqTable *numbers, text *key);
extern bool fairq_key_is_of(const FairqQueue *queue, const text *key,
							const text *group);
extern void fairq_each_tenant(FairqQueue *queue, FairqTenantAction action,
							  void *arg);
extern List *fairq_groups_of(FairqQueue *queue, text *key);
extern int32 fairq_tenant_in_key(FairqQueue *queue, text *key);
extern int32 fairq_tenant_no(FairqQueue *queue, int32 group_no);
extern int32 fairq_group_of_task(FairqQueue *queue, text *key);
extern int32 fairq_group_to_set(FairqQueue *queue, text *key);
extern int32 fairq_existing_group(FairqQueue *queue, text *key);
extern Datum fairq_group_key(FairqQueue *queue, int32 group_no);
extern void fairq_groups_changed(bool freed);
extern void fairq_groups_settle(bool committed, bool all);

#endif							/* FAIRQ_GROUP_H */
