/*
 * ids.h
 *		Ids of tasks: they increase, and come from a sequence in chunks.
 */
#ifndef FAIRQ_IDS_H
#define FAIRQ_IDS_H

extern void fairq_new_ids(int64 *ids, int n);

#endif							/* FAIRQ_IDS_H */
