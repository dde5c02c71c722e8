/*
 * seats.c
 *		Sets of groups of a lane, by their seats.
 *
 * A set is a bitmap, one bit for each group number.  A summary has one bit for
 * each word of the bitmap: the bit is set if the word is not empty.  So the
 * next group of a set is found by reading a few words, however many groups
 * there are.
 *
 * The first 64 seats are in the lane itself.  All others are in chunks of the
 * queue (shmem.c).  A chunk has the bits of all ten lanes, so one allocation
 * is enough for all sets that its groups join later.  The sets of ten lanes,
 * with summaries and deadlines, take 112 bits, 14 bytes, for each group
 * number.
 *
 * Each word of seats also has a deadline.  If a group of these seats is in the
 * set "leased", no lease of the group ends before the deadline.
 *
 * Throttled groups, and tenants that are shut until a time, are also in an
 * order by the times at which they return (order.c).
 *
 * A chunk is made (fairq_chunks_have) before a lane is locked.  No other
 * function here allocates, waits or fails.
 *
 * Locking: the lane's lock, exclusively to change anything.  Without the lock,
 * a backend may read a deadline, and whether a group is leased; lane.c
 * explains when.
 */
#include "postgres.h"

#include "seats.h"

/* The words of a chunk, and of its summary; chunk 0 has one word. */
#define WORDS(chunk) (((INT64CONST(1) << (chunk)) + 1) >> 1)
#define SUMMARY_WORDS(chunk) ((chunk) == 0 ? 0 : (WORDS(chunk) + 63) / 64)

/* A lane's part of a chunk: sets with their summaries, then deadlines. */
#define SET_WORDS(chunk) (WORDS(chunk) + SUMMARY_WORDS(chunk))
#define LANE_WORDS(chunk) (FAIRQ_SEAT_SETS * SET_WORDS(chunk) + WORDS(chunk))

/* Initialize a new chunk, which has no deadlines. */
static void
fill_chunk(void *at, int chunk)
{
	uint64	   *words = at;

	for (int priority = 0; priority < FAIRQ_PRIORITIES; priority++)
	{
		words += FAIRQ_SEAT_SETS * SET_WORDS(chunk);
		for (int64 i = 0; i < WORDS(chunk); i++)
			*words++ = PG_INT64_MAX;
	}
}

/* Allocate bits for a group, if there are none. */
void
fairq_chunks_have(FairqChunks *chunks, int32 seat)
{
	int			chunk = fairq_chunk_of(seat);

	if (chunk == 0)
		return;
	while (fairq_chunk_at(chunks, chunk) == NULL)
		fairq_chunk_make(chunks, chunk, LANE_WORDS(chunk) * FAIRQ_PRIORITIES *
						 sizeof(uint64), fill_chunk);
}

/* Returns a lane's part of a chunk; NULL if there is no such chunk. */
static inline uint64 *
lane_part(FairqLane *lane, int chunk)
{
	uint64	   *words;

	if (chunk == 0)
		return lane->seats.first;
	words = fairq_chunk_at(&fairq_hints_of(lane)->chunks, chunk);
	return words == NULL ? NULL : words + LANE_WORDS(chunk) * lane->priority;
}

/* Returns the summary of a set, after its words. */
static inline uint64 *
summary_of(uint64 *words, int chunk)
{
	return words + WORDS(chunk);
}

/* --------------------------------------------------------------------- */

/* Initialize the records of groups, and the orders that contain them. */
void
fairq_lane_records_init(FairqLane *lane)
{
	fairq_records_init(&lane->order.accounts, sizeof(FairqAccount));
	fairq_order_init(&lane->order.flows.order);
	fairq_records_init(&lane->seats.back.nodes, sizeof(FairqNode));
	fairq_order_init(&lane->seats.back.order);
	pg_atomic_init_u64(&lane->seats.back.first, PG_INT64_MAX);
}

/*
 * Record when the first throttled group or tenant returns.  Returns that
 * group; FAIRQ_NO_NODE: there is none.
 */
static int32
note_first_back(FairqLane *lane)
{
	FairqRecords *nodes = &lane->seats.back.nodes;
	int32		first = fairq_order_first(&lane->seats.back.order, nodes);
	const FairqNode *node = first == FAIRQ_NO_NODE ? NULL :
		fairq_record(nodes, first);

	pg_atomic_write_u64(&lane->seats.back.first,
						node == NULL ? PG_INT64_MAX : node->rank.amount.whole);
	return first;
}

/*
 * Record that a group or tenant returns at a time of the monotonic clock.
 * Returns true if no other group or tenant returns earlier.
 */
bool
fairq_seats_return_at(FairqLane *lane, int32 group_no, int64 until)
{
	FairqNode  *node = fairq_record(&lane->seats.back.nodes, group_no);

	memset(node, 0, sizeof(FairqNode));
	node->rank.amount.whole = until;
	node->rank.tie = (uint64) group_no + 1;
	fairq_order_add(&lane->seats.back.order, &lane->seats.back.nodes,
					group_no);
	return note_first_back(lane) == group_no;
}

/* Record that a throttled group or tenant returns. */
void
fairq_seats_return(FairqLane *lane, int32 group_no)
{
	FairqRecords *nodes = &lane->seats.back.nodes;
	FairqNode  *node = fairq_record(nodes, group_no);

	/* a copy of the lane has the set without the order */
	if (node->rank.tie != 0)
		fairq_order_remove(&lane->seats.back.order, nodes, group_no);
	node->rank.tie = 0;
	(void) note_first_back(lane);
}

/* Forget when throttled groups return.  The caller empties the set. */
static void
forget_back(FairqLane *lane)
{
	fairq_order_init(&lane->seats.back.order);
	(void) note_first_back(lane);
}

/* Empty all sets except those of leases and of served groups. */
void
fairq_seats_init(FairqLane *lane)
{
	StaticAssertStmt(FAIRQ_SERVED == FAIRQ_SEAT_SETS - 3 &&
					 FAIRQ_LAPSED == FAIRQ_SEAT_SETS - 2 &&
					 FAIRQ_LEASED == FAIRQ_SEAT_SETS - 1, "these come last");
	for (int set = 0; set < FAIRQ_SERVED; set++)
		lane->seats.n[set] = 0;
	for (int chunk = 0; chunk < FAIRQ_CHUNKS; chunk++)
	{
		uint64	   *words = lane_part(lane, chunk);

		if (words != NULL)
			memset(words, 0, FAIRQ_SERVED * SET_WORDS(chunk) * sizeof(uint64));
	}
	forget_back(lane);
}

/*
 * Copy the bits of a lane that are in chunks to another lane.  Returns false
 * if that lane does not have all of these chunks.
 */
bool
fairq_seats_copy(FairqLane *copy, FairqLane *lane)
{
	for (int chunk = 1; chunk < FAIRQ_CHUNKS; chunk++)
	{
		const uint64 *from = lane_part(lane, chunk);
		uint64	   *to = from == NULL ? NULL : lane_part(copy, chunk);

		if (from != NULL && to == NULL)
			return false;
		if (from != NULL)
			memcpy(to, from, LANE_WORDS(chunk) * sizeof(uint64));
	}
	return true;
}

/*
 * Returns the word of a set that has the seat; NULL if there is no such chunk.
 */
static inline uint64 *
word_of(FairqLane *lane, FairqSeatSet set, int32 seat)
{
	int			chunk = fairq_chunk_of(seat);
	uint64	   *words = lane_part(lane, chunk);

	return words == NULL ? NULL : words + set * SET_WORDS(chunk) +
		(seat - fairq_chunk_first(chunk)) / 64;
}

/* Record in the summary whether the word with a seat is empty. */
static inline void
tell_summary(uint64 *word, int64 seat)
{
	int			chunk = fairq_chunk_of(seat);
	int64		at = (seat - fairq_chunk_first(chunk)) / 64;
	uint64		bit = UINT64CONST(1) << (at % 64);
	uint64	   *summary;

	if (chunk == 0)
		return;
	summary = &summary_of(word - at, chunk)[at / 64];
	*summary = *word != 0 ? *summary | bit : *summary & ~bit;
}

bool
fairq_seats_has(FairqLane *lane, FairqSeatSet set, int32 seat)
{
	const uint64 *word = word_of(lane, set, seat);

	return word != NULL && ((*word >> (seat % 64)) & 1) != 0;
}

void
fairq_seats_add(FairqLane *lane, FairqSeatSet set, int32 seat)
{
	uint64		bit = UINT64CONST(1) << (seat % 64);
	uint64	   *word = word_of(lane, set, seat);

	Assert(word != NULL);
	if (*word & bit)
		return;
	*word |= bit;
	tell_summary(word, seat);
	lane->seats.n[set]++;
}

void
fairq_seats_remove(FairqLane *lane, FairqSeatSet set, int32 seat)
{
	uint64		bit = UINT64CONST(1) << (seat % 64);
	uint64	   *word = lane->seats.n[set] == 0 ? NULL :
		word_of(lane, set, seat);

	if (word == NULL || (*word & bit) == 0)
		return;
	*word &= ~bit;
	tell_summary(word, seat);
	lane->seats.n[set]--;
}

/*
 * Returns the first bit that is set in words, at or after "from"; -1 if there
 * is none.
 */
static int64
next_bit(const uint64 *words, int64 nwords, int64 from)
{
	int64		at = from / 64;
	uint64		word;

	if (at >= nwords)
		return -1;
	word = words[at] & (~UINT64CONST(0) << (from % 64));
	while (word == 0)
	{
		if (++at >= nwords)
			return -1;
		word = words[at];
	}
	return at * 64 + pg_rightmost_one_pos64(word);
}

/* Returns the first group of a set at or after a seat; FAIRQ_NO_SEAT: none. */
int32
fairq_seats_next(FairqLane *lane, FairqSeatSet set, int64 from)
{
	if (lane->seats.n[set] == 0 || from >= FAIRQ_ALL_SEATS)
		return FAIRQ_NO_SEAT;
	for (int chunk = fairq_chunk_of(from); chunk < FAIRQ_CHUNKS; chunk++)
	{
		int64		first = fairq_chunk_first(chunk);
		uint64	   *words = lane_part(lane, chunk);
		int64		bit;

		if (words == NULL)
			continue;
		words += set * SET_WORDS(chunk);
		from = Max(from, first) - first;
		/*
		 * the group is in the word of that seat, or in the next word that is
		 * not empty
		 */
		bit = next_bit(words, from / 64 + 1, from);
		if (bit < 0)
		{
			int64		at = next_bit(summary_of(words, chunk),
									  SUMMARY_WORDS(chunk), from / 64 + 1);

			if (at >= 0)
				bit = next_bit(words, at + 1, at * 64);
		}
		if (bit >= 0)
			return (int32) (first + bit);
		from = 0;
	}
	return FAIRQ_NO_SEAT;
}

/*
 * Returns the first group that is in one set but not in another, at or after a
 * seat; FAIRQ_NO_SEAT: none.
 */
int32
fairq_seats_next_but(FairqLane *lane, FairqSeatSet set, FairqSeatSet but,
					 int64 from)
{
	for (;;)
	{
		int32		seat = fairq_seats_next(lane, set, from);
		uint64		bits;

		if (seat == FAIRQ_NO_SEAT || lane->seats.n[but] == 0)
			return seat;
		/* check all seats of the word at once */
		bits = *word_of(lane, set, seat) & ~*word_of(lane, but, seat) &
			(~UINT64CONST(0) << (seat % 64));
		if (bits != 0)
			return (seat & ~63) + pg_rightmost_one_pos64(bits);
		from = (seat | 63) + INT64CONST(1);
	}
}

/* An action for each non-empty word of a set. */
typedef void (*WordAction) (FairqLane *lane, uint64 *first_set, int64 stride,
							int64 seat, void *arg);

/*
 * Call an action for all words of a set that are not empty.  The action gets
 * the word of the first set; the word of the next set is stride words later.
 * If the word is empty afterwards, its summary is updated.
 */
static void
for_each_word(FairqLane *lane, FairqSeatSet set, WordAction action, void *arg)
{
	if (lane->seats.first[set] != 0)
		action(lane, lane->seats.first, 1, 0, arg);
	for (int chunk = 1; chunk < FAIRQ_CHUNKS; chunk++)
	{
		uint64	   *part = lane_part(lane, chunk);
		uint64	   *words;
		uint64	   *summary;
		int64		at = -1;

		if (part == NULL)
			continue;
		words = part + set * SET_WORDS(chunk);
		summary = summary_of(words, chunk);
		while ((at = next_bit(summary, SUMMARY_WORDS(chunk), at + 1)) >= 0)
		{
			if (words[at] != 0)
				action(lane, part + at, SET_WORDS(chunk),
					   fairq_chunk_first(chunk) + at * 64, arg);
			if (words[at] == 0)
				summary[at / 64] &= ~(UINT64CONST(1) << (at % 64));
		}
	}
}

/* Empty a set.  The action gets the set and empties one word of it. */
static void
empty(FairqLane *lane, FairqSeatSet set, WordAction action)
{
	if (lane->seats.n[set] > 0)
		for_each_word(lane, set, action, &set);
	lane->seats.n[set] = 0;
}

typedef struct Count
{
	FairqSeatSet set;
	int64		last;
	int32		n;
} Count;

static void
count_word(FairqLane *lane, uint64 *first_set, int64 stride, int64 seat,
		   void *arg)
{
	Count	   *count = arg;
	uint64		bits = first_set[count->set * stride];

	/* exclude the bits after the last seat */
	if (count->last - seat < 63)
		bits &= count->last < seat ? 0 :
			(UINT64CONST(2) << (count->last - seat)) - 1;
	count->n += pg_popcount64(bits);
}

/* Returns how many groups of a set have seats up to the given one. */
int32
fairq_seats_count(FairqLane *lane, FairqSeatSet set, int32 last)
{
	Count		count = {.set = set,.last = last};

	if (lane->seats.n[set] > 0)
		for_each_word(lane, set, count_word, &count);
	return count.n;
}

/* Add bits to a word of a set, and to the summary. */
static void
add_bits(FairqLane *lane, FairqSeatSet set, uint64 *first_set, int64 stride,
		 int64 seat, uint64 bits)
{
	uint64	   *word = &first_set[set * stride];

	lane->seats.n[set] += pg_popcount64(bits & ~*word);
	*word |= bits;
	if (bits != 0)
		tell_summary(word, seat);
}

static void
clear_served_word(FairqLane *lane, uint64 *first_set, int64 stride,
				  int64 seat, void *arg)
{
	first_set[FAIRQ_SERVED * stride] = 0;
}

static void
begin_word(FairqLane *lane, uint64 *first_set, int64 stride, int64 seat,
		   void *arg)
{
	first_set[FAIRQ_SERVED * stride] = 0;
	add_bits(lane, FAIRQ_TODO, first_set, stride, seat,
			 first_set[FAIRQ_RING * stride]);
}

/*
 * Record that no group has been served.  With begins, also begin a block, in
 * which each group of the ring will have a turn.  All groups of the ring were
 * served in the previous block, so only served groups are visited.
 */
void
fairq_seats_clear_served(FairqLane *lane, bool begins)
{
	Assert(!begins || lane->seats.n[FAIRQ_TODO] == 0);
	empty(lane, FAIRQ_SERVED, begins ? begin_word : clear_served_word);
}

/* Put the groups of a word into the ring, like let_in_lapsed(). */
static void
let_in_word(FairqLane *lane, uint64 *first_set, int64 stride, int64 seat,
			uint64 bits)
{
	uint64		lapsed = lane->order.ledger.ranks_lapsed ?
		first_set[FAIRQ_LAPSED * stride] : 0;

	add_bits(lane, FAIRQ_RING, first_set, stride, seat, bits);
	add_bits(lane, FAIRQ_TODO, first_set, stride, seat,
			 bits & (~first_set[FAIRQ_SERVED * stride] | lapsed));
}

static void
unpark_word(FairqLane *lane, uint64 *first_set, int64 stride, int64 seat,
			void *arg)
{
	FairqSeatSet set = *(FairqSeatSet *) arg;

	let_in_word(lane, first_set, stride, seat, first_set[set * stride]);
	first_set[set * stride] = 0;
}

static void
open_word(FairqLane *lane, uint64 *first_set, int64 stride, int64 seat,
		  void *arg)
{
	add_bits(lane, FAIRQ_TODO, first_set, stride, seat,
			 first_set[FAIRQ_SHUT * stride]);
	first_set[FAIRQ_SHUT * stride] = 0;
}

/*
 * Put all groups that are parked or throttled into the ring again, and all
 * tenants that are shut into the lane's order.
 */
void
fairq_seats_unpark(FairqLane *lane)
{
	empty(lane, FAIRQ_PARKED, unpark_word);
	empty(lane, FAIRQ_THROTTLED, unpark_word);
	empty(lane, FAIRQ_SHUT, open_word);
	forget_back(lane);
}

static void
unpark_lapsed_word(FairqLane *lane, uint64 *first_set, int64 stride,
				   int64 seat, void *arg)
{
	uint64	   *parked = &first_set[FAIRQ_PARKED * stride];
	uint64		bits = *parked & first_set[FAIRQ_LAPSED * stride];

	let_in_word(lane, first_set, stride, seat, bits);
	lane->seats.n[FAIRQ_PARKED] -= pg_popcount64(bits);
	*parked &= ~bits;
}

/* Put all parked groups that may have lapsed tasks into the ring again. */
void
fairq_seats_unpark_lapsed(FairqLane *lane)
{
	if (lane->seats.n[FAIRQ_PARKED] > 0)
		for_each_word(lane, FAIRQ_PARKED, unpark_lapsed_word, NULL);
}

/*
 * Returns the deadline of the 64 seats in a seat's word: no lease of their
 * groups ends earlier.
 */
volatile int64 *
fairq_seats_deadline(FairqLane *lane, int32 seat)
{
	int			chunk = fairq_chunk_of(seat);

	return (int64 *) lane_part(lane, chunk) +
		FAIRQ_SEAT_SETS * SET_WORDS(chunk) +
		(seat - fairq_chunk_first(chunk)) / 64;
}

typedef struct Lapse
{
	int64		now;
	int64		next;
	int64		ngroups;
} Lapse;

/*
 * Record in the accounts of these groups that leases expired at the given
 * time.
 */
static void
note_lapsed(FairqLane *lane, int64 seat, uint64 bits, TimestampTz at)
{
	for (; bits != 0; bits &= bits - 1)
	{
		int32		group_no = seat + pg_rightmost_one_pos64(bits);
		FairqAccount *account = account_if_any(lane, group_no);
		FairqAccount *tenant;

		if (account == NULL)
			continue;
		tenant = tenant_if_any(lane, account);
		fairq_account_lapses(&lane->order.ledger, account, tenant, at);
		/*
		 * a throttled group enters the ring only when its time has come, so it
		 * does not bring its tenant now
		 */
		if (tenant != NULL &&
			fairq_seats_has(lane, FAIRQ_THROTTLED, group_no))
			fairq_seats_add(lane, FAIRQ_TODO, account->level.tenant);
	}
}

static void
lapse_word(FairqLane *lane, uint64 *first_set, int64 stride, int64 seat,
		   void *arg)
{
	Lapse	   *lapse = arg;
	volatile int64 *deadline = fairq_seats_deadline(lane, (int32) seat);
	uint64		bits = first_set[FAIRQ_LEASED * stride];

	if (*deadline > lapse->now)
	{
		lapse->next = Min(lapse->next, *deadline);
		return;
	}
	if (lane->order.ledger.fair_by == FAIRQ_BY_TIME)
		note_lapsed(lane, seat, bits, *deadline);
	*deadline = PG_INT64_MAX;
	first_set[FAIRQ_LEASED * stride] = 0;
	lane->seats.n[FAIRQ_LEASED] -= pg_popcount64(bits);
	add_bits(lane, FAIRQ_LAPSED, first_set, stride, seat, bits);
	/* a throttled group enters the ring when its time has come */
	let_in_word(lane, first_set, stride, seat,
				bits & ~first_set[FAIRQ_THROTTLED * stride]);
	/* a parked group has a slot for a lapsed task already */
	lane->seats.n[FAIRQ_PARKED] -=
		pg_popcount64(bits & first_set[FAIRQ_PARKED * stride]);
	first_set[FAIRQ_PARKED * stride] &= ~bits;
	tell_summary(&first_set[FAIRQ_PARKED * stride], seat);
	lapse->ngroups += pg_popcount64(bits);
}

/*
 * Move the groups whose leases may have expired from the set "leased" to the
 * set "lapsed", and into the ring.  Returns the next deadline, and the number
 * of these groups.
 */
int64
fairq_seats_lapse(FairqLane *lane, int64 now, int64 *ngroups)
{
	Lapse		lapse = {.now = now,.next = PG_INT64_MAX};

	if (lane->seats.n[FAIRQ_LEASED] > 0)
		for_each_word(lane, FAIRQ_LEASED, lapse_word, &lapse);
	*ngroups = lapse.ngroups;
	return lapse.next;
}
