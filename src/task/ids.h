/*
 * ids.h
 *		Ids of tasks: rising, and taken from a sequence many at a time.
 */
#ifndef FAIRQ_IDS_H
#define FAIRQ_IDS_H

/* Shards have numbers from 1 on; 0: the database is no shard. */
#define FAIRQ_MAX_SHARD 1023

/* What a shard's ids are above. */
static inline int64
fairq_shard_begin(int32 shard)
{
	return (int64) shard << 43;
}

extern int32 fairq_ids_shard(void);
extern int64 fairq_new_id(void);
extern void fairq_new_ids(int64 *ids, int n);

#endif							/* FAIRQ_IDS_H */
