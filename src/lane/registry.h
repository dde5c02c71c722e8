/*
 * registry.h
 *		The queues and counters in shared memory: how to find, make and free
 *		them.
 */
#ifndef FAIRQ_REGISTRY_H
#define FAIRQ_REGISTRY_H

#include "nodes/pg_list.h"

#include "lane.h"

extern void fairq_version_up(FairqVersions *versions, int32 change);
extern void fairq_registry_use(FairqShmemUse *use);
extern FairqHints *fairq_shmem_queue(int32 queue_id, bool make);
extern FairqTally *fairq_shmem_tally(Oid task);
extern List *fairq_shmem_queues(Oid task);
extern void fairq_shmem_release(FairqHints *hints);
extern FairqCounter *fairq_shmem_counter(FairqHints *hints, int32 group_no,
										 bool make);
extern List *fairq_shmem_counters(int32 queue_id);
extern void fairq_shmem_sweep(bool if_crowded);

#endif							/* FAIRQ_REGISTRY_H */
