/*
 * entry.h
 *		The cache of what is known of groups.
 */
#ifndef FAIRQ_ENTRY_H
#define FAIRQ_ENTRY_H

#include "hints.h"

#define FAIRQ_TAIL_UNKNOWN INT64CONST(-2)

extern FairqGroup *fairq_entry_lock(FairqLane *lane, int32 group_no,
									bool create, bool *is_new,
									FairqGroupSet **set);
extern void fairq_entry_unlock(FairqGroupSet *set);
extern void fairq_entry_claimed(FairqGroup *group, uint32 lane_no,
								int32 group_no, TimestampTz since);
extern void fairq_entry_unpin(FairqGroup *group);
extern int64 fairq_entries_used(void);

#endif							/* FAIRQ_ENTRY_H */
