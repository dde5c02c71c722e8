/*
 * privilege.h
 *		Who may do what with a queue.
 */
#ifndef FAIRQ_PRIVILEGE_H
#define FAIRQ_PRIVILEGE_H

#include "queue.h"

extern FairqPrivilege fairq_privilege_named(const char *name);
extern bool fairq_is_owner(void);
extern bool fairq_may(const FairqQueue *queue, int any);
extern void fairq_check_privilege(const FairqQueue *queue, int any);
extern void fairq_grant_creator(int32 queue_id);

#endif							/* FAIRQ_PRIVILEGE_H */
