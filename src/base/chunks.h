/*
 * chunks.h
 *		Data per seat, in shared memory: it grows but never moves.
 */
#ifndef FAIRQ_CHUNKS_H
#define FAIRQ_CHUNKS_H

#include "port/atomics.h"
#include "port/pg_bitutils.h"

#include "shmem.h"

/*
 * number of seats of the first chunk; each later chunk has as many seats as
 * all previous ones together
 */
#define FAIRQ_FIRST_SEATS 64
#define FAIRQ_CHUNKS 26

/* In shared memory, part of a queue or of a lane. */
typedef struct FairqChunks
{
	pg_atomic_uint64 chunk[FAIRQ_CHUNKS];	/* dsa_pointers of the chunks */
} FairqChunks;

/* The chunk of a seat. */
static inline int
fairq_chunk_of(int64 seat)
{
	return seat < FAIRQ_FIRST_SEATS ? 0 :
		pg_leftmost_one_pos32((uint32) (seat / FAIRQ_FIRST_SEATS)) + 1;
}

/* The first seat of a chunk. */
static inline int64
fairq_chunk_first(int chunk)
{
	return chunk == 0 ? 0 : INT64CONST(1) * FAIRQ_FIRST_SEATS << (chunk - 1);
}

/* The number of seats of a chunk. */
static inline int64
fairq_chunk_seats(int chunk)
{
	return chunk == 0 ? FAIRQ_FIRST_SEATS : fairq_chunk_first(chunk);
}

/* Returns a chunk; NULL if it does not exist. */
static inline void *
fairq_chunk_at(FairqChunks *chunks, int chunk)
{
	dsa_pointer ptr = pg_atomic_read_u64(&chunks->chunk[chunk]);

	return DsaPointerIsValid(ptr) ? fairq_at(ptr) : NULL;
}

/* Fills in a new chunk, which is zero. */
typedef void (*FairqChunkFill) (void *at, int chunk);

extern void fairq_chunks_init(FairqChunks *chunks);
extern void fairq_chunks_free(FairqChunks *chunks);
extern void fairq_chunk_make(FairqChunks *chunks, int chunk, Size size,
							 FairqChunkFill fill);

#endif							/* FAIRQ_CHUNKS_H */
