/*
 * domain.h
 *		What of shared memory is this extension's: its keys, and its domain.
 */
#ifndef FAIRQ_DOMAIN_H
#define FAIRQ_DOMAIN_H

#include "shmem.h"

extern FairqQueueKey fairq_key_of(Oid task, int32 queue_id,
								   int32 group_no);
extern FairqQueueKey fairq_key(int32 queue_id, int32 group_no);
extern int32 fairq_domain_index(void);
extern FairqDomain *fairq_domain(void);

#endif							/* FAIRQ_DOMAIN_H */
