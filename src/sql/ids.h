/*
 * ids.h
 *		Ids of tasks: rising, and taken from a sequence many at a time.
 */
#ifndef FAIRQ_IDS_H
#define FAIRQ_IDS_H

extern void fairq_new_ids(int64 *ids, int n);

#endif							/* FAIRQ_IDS_H */
