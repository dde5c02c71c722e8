/*
 * chunks.c
 *		Data per seat, in shared memory: it grows but never moves.
 *
 * The first chunk is for seats 0 to 63, the next for 64 to 127, then for 128
 * to 255, and so on.  A chunk is allocated when the first of its seats is
 * used.  So 26 chunks are enough for all seats, and at most half of the memory
 * is unused.
 *
 * A chunk is made before the lane is locked, because the allocation can fail.
 *
 * Locking: none.  A chunk is put in its place by a compare-and-exchange, and
 * stays there as long as the queue does.
 */
#include "postgres.h"

#include "chunks.h"
#include "shadow.h"

void
fairq_chunks_init(FairqChunks *chunks)
{
	for (int i = 0; i < FAIRQ_CHUNKS; i++)
		pg_atomic_init_u64(&chunks->chunk[i], InvalidDsaPointer);
}

/* Free all chunks.  The queue is gone, so no backend uses them. */
void
fairq_chunks_free(FairqChunks *chunks)
{
	for (int i = 0; i < FAIRQ_CHUNKS; i++)
	{
		dsa_pointer ptr = pg_atomic_exchange_u64(&chunks->chunk[i],
												 InvalidDsaPointer);

		if (DsaPointerIsValid(ptr))
			fairq_free(ptr);
	}
}

/*
 * Make a chunk of a copy.  The copy is private to this backend, which accesses
 * it like a shared one.
 */
static void
make_own(FairqChunks *chunks, int chunk, Size size, FairqChunkFill fill)
{
	void	   *at = fairq_shadow_alloc(size);

	if (fill != NULL)
		fill(at, chunk);
	pg_atomic_write_u64(&chunks->chunk[chunk],
						(uintptr_t) at - (uintptr_t) fairq_area_base);
}

/*
 * Make a chunk of the given size unless another backend makes it first.  fill
 * may be NULL.
 */
void
fairq_chunk_make(FairqChunks *chunks, int chunk, Size size,
				 FairqChunkFill fill)
{
	uint64		none = InvalidDsaPointer;
	dsa_pointer ptr;

	if (fairq_in_shadow(chunks))
	{
		make_own(chunks, chunk, size, fill);
		return;
	}
	ptr = fairq_allocate(size);
	if (fill != NULL)
		fill(fairq_at(ptr), chunk);
	pg_write_barrier();
	if (!pg_atomic_compare_exchange_u64(&chunks->chunk[chunk], &none, ptr))
		fairq_free(ptr);
}
