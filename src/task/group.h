/*
 * group.h
 *		Groups: their keys and their numbers.
 */
#ifndef FAIRQ_GROUP_H
#define FAIRQ_GROUP_H

#include "queue.h"
#include "store.h"

extern void fairq_put_group_number(FairqTable *table, FairqQueue *queue,
								   int32 group_no, text *key);
extern int32 fairq_group_no(FairqQueue *queue, text *key, bool create);
extern int32 fairq_existing_group(FairqQueue *queue, text *key);
extern Datum fairq_group_key(FairqQueue *queue, int32 group_no);
extern void fairq_groups_changed(bool freed);
extern const struct FairqEnding fairq_groups_ending;

#endif							/* FAIRQ_GROUP_H */
