/*
 * foresee.c
 *		What a pop would serve, foreseen.
 *
 * It goes the way of a pop (serve.c, lane_take.c, turn.c) on copies: lane by
 * lane, from turn to turn, a group's tasks in the order in which its turns
 * serve them (heads.c), as many of a group and of the queue as there are slots
 * (slots.c).  Nothing is changed: no turn is taken, no group put into the ring
 * or parked, no entry of the cache made, no row locked, nothing recovered.  So
 * each call finds anew what a pop would note:
 *
 * - groups that have lapsed, and parked ones that are to be taken back: they
 *	 are in the ring here from the beginning on (init_members());
 *
 * - what has fallen due, which is read off the table, one step of it (due.c).
 *	 The groups are kept in the set "found";
 *
 * - where a lane is that is not known, which is found by bisection
 *	 (recover.c); and which groups of the seats that are not known have rows,
 *	 which is read in the index as the seats are come by (next_unknown()).
 *
 * In a queue with shares service goes to and fro between lanes.  So what was
 * found of a lane is kept (LaneSight), and the lanes' shares are copied, too.
 *
 * What the caller's own transaction has enqueued is published in advance, as
 * its own pops would do; that alone is written anywhere.
 *
 * What it cannot foresee is said in the reference, under peek().  The cost
 * depends on the tasks that are foreseen, and on the groups that are come by
 * in vain: MOST_IN_VAIN of these are enough.
 *
 * Locking: a lane's lock, shared, for a copy of the lane, of one group, or of
 * some seats (members.c).  So what is foreseen is exact if nothing else happens
 * meanwhile.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "utils/hsearch.h"

#include "claim.h"
#include "due.h"
#include "foresee.h"
#include "foresee_order.h"
#include "heads.h"
#include "members.h"
#include "outcome.h"
#include "recover.h"
#include "retry.h"
#include "shown.h"
#include "slots.h"

/* turns that come to nothing, one after the other, before it gives up */
#define MOST_IN_VAIN 10000

/* The sets whose members are in the ring, or will be once a pop comes by. */
typedef enum Kind
{
	KIND_MAIN,					/* the ring; or the front */
	KIND_LAPSING,				/* groups of which a lease has ended */
	KIND_PARKED,				/* parked groups, if they are to come back */
	KIND_THROTTLED,				/* throttled groups, likewise */
	KINDS						/* number of these */
} Kind;

/* A group whose turns are foreseen. */
typedef struct ForeseenGroup
{
	int32		group_no;		/* the group's number; hash key */
	FairqHeads	heads;			/* its next tasks */
} ForeseenGroup;

/* One lane, as far as it was come by. */
typedef struct LaneSight
{
	FairqLaneCopy lane;			/* where service is, as it goes on */
	int64		passed;			/* seat of the lane at first */
	bool		moved;			/* true: service is in a later block than at
								 * first */
	HTAB	   *groups;			/* ForeseenGroups that were opened */

	/* sets of groups, by their numbers */
	struct
	{
		Bitmapset  *found;		/* groups of which something was found due */
		Bitmapset  *found_front;	/* those of them that are in front */
		Bitmapset  *had;		/* groups that have had their turn in the
								 * block */
		Bitmapset  *out;		/* groups that have nothing left */
	}			sets;

	FairqForeseenOrder order;	/* the order, if the lane is not fair by
								 * tasks */
	FairqMembers front[KINDS];	/* whose members are in front */
	FairqMembers ring[KINDS];	/* whose members are in the ring */

	/* groups that are not known, in the index */
	struct
	{
		int64		from;		/* seat from which on the next one was searched
								 * for */
		int64		next;		/* that one; FAIRQ_ALL_SEATS: there is none */
	}			line;
} LaneSight;

/* One call. */
typedef struct Foresight
{
	FairqService s;				/* what the searches need */
	FairqForeseen foreseen;		/* is told of each task */
	void	   *arg;			/* its first argument */
	FairqSlots	queue;			/* slots of the queue */
	HTAB	   *slots;			/* FairqSlots of groups, of all lanes */
	HTAB	   *seen;			/* ids of tasks that were come by */
	FairqScan  *line;			/* scan for groups; NULL: none yet */
	LaneSight  *lanes[FAIRQ_PRIORITIES];	/* lanes that were come by; NULL:
											 * not yet */
	LaneSight  *at;				/* present lane */
} Foresight;

/* --------------------------------------------------------------------- */

/* Map chunks that were made since: they are needed for a copy. */
static void
map_again(Foresight *f)
{
	f->s.mapped = fairq_chunks_map(&f->s.queue->hints->chunks);
}

/* Begin again with the first seat. */
static void
rewind_members(FairqMembers members[KINDS])
{
	for (int i = 0; i < KINDS; i++)
		fairq_members_rewind(&members[i]);
}

static void
init_members(Foresight *f, FairqMembers members[KINDS], FairqSeatSet main)
{
	const FairqSeatSet sets[KINDS] = {
		[KIND_MAIN] = main,
		[KIND_LAPSING] = FAIRQ_LEASED,
		[KIND_PARKED] = FAIRQ_PARKED,
		[KIND_THROTTLED] = FAIRQ_THROTTLED
	};
	const bool	used[KINDS] = {
		[KIND_MAIN] = true,
		[KIND_LAPSING] = f->at->lane.deadline <= f->s.call.now,
		[KIND_PARKED] = f->at->lane.unparks,
		[KIND_THROTTLED] = f->at->lane.unparks
	};

	for (int i = 0; i < KINDS; i++)
		fairq_members_init(&members[i], f->s.lane, sets[i], f->s.call.now,
						   used[i]);
}

/* --------------------------------------------------------------------- */

/*
 * The first group from a seat on, and before end, that has an entry in the
 * index.
 */
static int64
next_in_line(Foresight *f, int64 from, int64 end)
{
	int32		next;

	if (from >= end)
		return FAIRQ_ALL_SEATS;
	if (from < f->at->line.from || from > f->at->line.next)
	{
		next = fairq_line_next(&f->line, f->s.tasks,
							   fairq_task_lane(f->s.queue->id, f->s.priority),
							   from);
		f->at->line.from = from;
		f->at->line.next = next == FAIRQ_NO_SEAT ? FAIRQ_ALL_SEATS : next;
	}
	return f->at->line.next < end ? f->at->line.next : FAIRQ_ALL_SEATS;
}

/*
 * The first group at or behind that seat, of those that recovery has not come
 * by, that has an entry in the index: it would be put into the ring.
 */
static int64
next_unknown(Foresight *f, int64 from)
{
	int64		behind = f->at->lane.first + f->at->lane.known;
	int64		next;

	if (f->at->lane.known >= FAIRQ_ALL_SEATS)
		return FAIRQ_ALL_SEATS;
	if (behind >= FAIRQ_ALL_SEATS)
		return next_in_line(f, Max(from, behind - FAIRQ_ALL_SEATS),
							f->at->lane.first);
	next = next_in_line(f, from, f->at->lane.first);
	return next < FAIRQ_ALL_SEATS ? next :
		next_in_line(f, Max(from, behind), FAIRQ_ALL_SEATS);
}

/* The first group at or behind that seat that is in one of the first n sets. */
static int64
next_member(FairqMembers *members, int n, int64 from)
{
	int64		next = FAIRQ_ALL_SEATS;

	for (int i = 0; i < n; i++)
	{
		const FairqSeatCopy *member = fairq_members_next(&members[i], from);

		if (member != NULL)
			next = Min(next, member->group_no);
	}
	return next;
}

/* The first group at or behind that seat that is in the ring. */
static int64
next_in_ring(Foresight *f, int64 from)
{
	for (;;)
	{
		int64		next = next_unknown(f, from);
		int			found = bms_next_member(f->at->sets.found, (int) from - 1);

		CHECK_FOR_INTERRUPTS();
		if (found >= 0)
			next = Min(next, found);
		next = Min(next, next_member(f->at->ring, KINDS, from));
		if (next >= FAIRQ_ALL_SEATS || !bms_is_member((int) next, f->at->sets.out))
			return next;
		from = next + 1;
	}
}

/*
 * The first member at or behind that seat that is in front: those that come
 * into the ring only now if they were passed, and have not been served.
 */
static int64
next_member_in_front(Foresight *f, Kind kind, int64 from)
{
	const FairqSeatCopy *member;

	while ((member = fairq_members_next(&f->at->front[kind], from)) != NULL)
	{
		if (kind == KIND_MAIN)
			return member->group_no;
		/* when a recovery begins, what has rows counts as served first */
		if (member->group_no > f->at->passed || !f->at->lane.begun)
			break;
		if (!member->served)
			return member->group_no;
		from = member->group_no + INT64CONST(1);
	}
	return FAIRQ_ALL_SEATS;
}

/* The first group that is in front. */
static int64
next_in_front(Foresight *f)
{
	for (int64 from = 0;;)
	{
		int64		next = FAIRQ_ALL_SEATS;
		int			found = bms_next_member(f->at->sets.found_front,
											(int) from - 1);

		CHECK_FOR_INTERRUPTS();
		if (found >= 0)
			next = found;
		for (int i = 0; i < KINDS; i++)
			next = Min(next, next_member_in_front(f, i, from));
		if (next >= FAIRQ_ALL_SEATS ||
			(!bms_is_member((int) next, f->at->sets.out) &&
			 !bms_is_member((int) next, f->at->sets.had)))
			return next;
		from = next + 1;
	}
}

/* --------------------------------------------------------------------- */

static void
copy_group(Foresight *f, int32 group_no, FairqGroupCopy *copy)
{
	while (!fairq_lane_copy_group(f->s.lane, f->s.mapped, group_no,
								  f->s.call.now, copy))
		map_again(f);
}

static ForeseenGroup *
open_group(Foresight *f, int32 group_no, FairqGroupCopy *copy)
{
	bool		found;
	ForeseenGroup *group = hash_search(f->at->groups, &group_no, HASH_ENTER, &found);

	if (!found)
	{
		copy_group(f, group_no, copy);
		fairq_heads_of(&group->heads, copy, f->seen);
	}
	return group;
}

/* Has the group had its turn in the present block? */
static bool
was_served(Foresight *f, const FairqGroupCopy *copy)
{
	bool		served = fairq_copy_has(copy, FAIRQ_SERVED);
	bool		unsure = f->at->lane.begun ? copy->unsure :
		copy->group_no < f->at->lane.first;

	if (unsure && !fairq_copy_has(copy, FAIRQ_FRONT) &&
		!copy->group.newcomer)
		served = true;
	/* a turn that came to nothing goes back when something is found due */
	if (served && fairq_copy_has(copy, FAIRQ_SERVED) &&
		copy->group.turn.parts == 0 && copy->group.turn.unused)
	{
		if (f->at->lane.turn_seat == copy->group_no)
			f->at->lane.turn_left = 0;
		return false;
	}
	return served;
}

/*
 * Put the group of a task that has fallen due into the ring, and maybe in
 * front.
 */
static bool
fell_due(void *arg, const FairqTask *task)
{
	Foresight  *f = arg;
	FairqGroupCopy copy = {.group_no = -1};
	ForeseenGroup *group = open_group(f, task->group_no, &copy);

	fairq_heads_fell_due(&group->heads, task->addr);
	if (copy.group_no < 0 ||
		(!f->at->lane.unparks &&
		 (fairq_copy_has(&copy, FAIRQ_THROTTLED) ||
		  (fairq_copy_has(&copy, FAIRQ_PARKED) && !copy.lapsing))))
		return true;
	f->at->sets.found = bms_add_member(f->at->sets.found, task->group_no);
	if (!was_served(f, &copy) && task->group_no <= f->at->lane.seat)
		f->at->sets.found_front = bms_add_member(f->at->sets.found_front,
											 task->group_no);
	return true;
}

/* throttled groups that are taken back under one hold of a lane's lock */
#define MOST_BACK 64

static int
weight_of(Foresight *f, int32 group_no)
{
	return fairq_group_setting(f->s.queue, group_no)->weight;
}

static FairqSlots *
slots_of(Foresight *f, int32 group_no, int32 limit)
{
	const FairqSetting *setting = fairq_group_setting(f->s.queue, group_no);
	bool		found;
	FairqSlots *slots = hash_search(f->slots, &group_no, HASH_ENTER, &found);

	if (!found)
	{
		slots->limit = limit;
		slots->pace = setting->pace;
		slots->held = setting->held_until > f->s.call.now;
		fairq_slots_look(f->s.queue, f->s.tasks, slots);
	}
	return slots;
}

/* Is a slot left for the group? */
static bool
has_slot(Foresight *f, FairqSlots *slots)
{
	return fairq_slots_any(f->s.queue, f->s.tasks, slots) &&
		fairq_slots_any(f->s.queue, f->s.tasks, &f->queue);
}

/*
 * May the expired task run on, in other hands?  Else a pop brings it to its
 * end, or, in a transaction block, leaves it to others, and with it what has
 * expired of the group (claim.c).
 */
static bool
runs_on(Foresight *f, const FairqSlots *slots, const FairqTask *task)
{
	if (!slots->known || !f->queue.known)
		f->s.left = true;
	else if (!task->cancelled &&
			 !fairq_attempts_used_up(f->s.queue, task) &&
			 slots->left >= 0 && f->queue.left >= 0)
		return true;
	else if (IsTransactionBlock() &&
			 task->lease_until > f->s.taken.by - FAIRQ_LEFT_TO_OTHERS)
		f->s.left = true;
	else
		f->s.got.ended++;
	return false;
}

/* Does the group wait for another task, which is to be retried? */
static bool
waits_for_retry(Foresight *f, const FairqTask *task)
{
	TimestampTz due_at;

	return f->s.queue->retries.in_order &&
		fairq_region(task->addr) != FAIRQ_REGION_RETRIED &&
		fairq_group_retries(f->s.queue, f->s.tasks, task->group_no, &due_at);
}

/*
 * Foresee a turn of the group.  Returns how many tasks it would be served.  Without
 * an address (FAIRQ_ADDR_NONE) their own count.
 */
static int
foresee_turn(Foresight *f, int32 group_no, int64 addr, int left)
{
	const FairqSetting *setting = fairq_group_setting(f->s.queue, group_no);
	FairqSlots *slots = slots_of(f, group_no, setting->limit);
	FairqGroupCopy copy;
	ForeseenGroup *group = open_group(f, group_no, &copy);
	FairqCourse course;
	FairqHead	head;
	FairqClaimResult claimable;
	int			want = (int) Min(left, f->s.call.max_tasks - f->s.got.served);
	int			served = 0;

	CHECK_FOR_INTERRUPTS();
	fairq_heads_turn(&f->s, &group->heads, &course, setting->limit == 0);
	while (served < want &&
		   fairq_heads_next(&f->s, &group->heads, &course,
							has_slot(f, slots), &head))
	{
		if (head.expired && (slots->starts <= 0 || f->queue.starts <= 0))
			break;
		if (!head.expired && waits_for_retry(f, &head.task))
			break;
		if (fairq_stops_before(&f->s, &head.task, &claimable))
			break;
		if (head.expired && !runs_on(f, slots, &head.task))
		{
			fairq_leave_expired(&f->s, &course);
			continue;
		}
		if (!head.expired)
		{
			fairq_slots_take(slots);
			fairq_slots_take(&f->queue);
		}
		else
		{
			slots->starts--;
			f->queue.starts--;
		}
		fairq_heads_served(&group->heads, &course, &head);
		head.task.turn = addr == FAIRQ_ADDR_NONE ? head.task.addr : addr;
		f->at->order.cost = head.task.cost;
		f->foreseen(f->arg, &head.task);
		f->s.got.served++;
		f->s.got.charge += fairq_charge_of(f->s.queue, &head.task);
		served++;
		if (fairq_is_alone(&head.task))
		{
			f->s.got.stopped = true;
			f->s.call.max_tasks = f->s.got.served;
			break;
		}
	}
	fairq_heads_turn_over(&group->heads, &course);
	if (served < want)
		f->at->sets.out = bms_add_member(f->at->sets.out, group_no);
	return served;
}

/* --------------------------------------------------------------------- */

/*
 * The address of a turn, as pops count it: past the last block that is
 * repeated.
 */
static int64
turn_address(Foresight *f, int32 group_no, int64 block)
{
	int64		addr = fairq_address(group_no, block,
									 f->s.queue->block_length);

	return addr != FAIRQ_ADDR_NONE ? addr :
		fairq_last_address(group_no, f->s.queue->block_length);
}

/* Is the last turn of the lane to be gone on with? */
static bool
is_continued(Foresight *f)
{
	bool		in_ring;

	if (f->at->lane.turn_left == 0)
		return false;
	in_ring = next_in_ring(f, f->at->lane.turn_seat) == f->at->lane.turn_seat;
	rewind_members(f->at->ring);
	return in_ring;
}

/* Go on to the next turn, as lane_take.c does.  False if the ring is empty. */
static bool
next_turn(Foresight *f, int32 *group_no, int64 *addr, int *left)
{
	FairqLaneCopy *lane = &f->at->lane;
	int64		seat;

	if (is_continued(f))
	{
		*group_no = lane->turn_seat;
		*addr = lane->turn;
		*left = lane->turn_left;
		lane->turn_left = 0;
		/* one that was left over is beside those of the block */
		if (fairq_block(*addr, f->s.queue->block_length) == lane->block)
			f->at->sets.had = bms_add_member(f->at->sets.had, *group_no);
		return true;
	}
	lane->turn_left = 0;
	seat = f->at->moved ? FAIRQ_ALL_SEATS : next_in_front(f);
	if (seat >= FAIRQ_ALL_SEATS)
	{
		seat = next_in_ring(f, lane->seat + INT64CONST(1));
		if (seat >= FAIRQ_ALL_SEATS)
		{
			rewind_members(f->at->ring);
			seat = next_in_ring(f, 0);
			if (seat >= FAIRQ_ALL_SEATS)
				return false;
			f->at->moved = true;
			bms_free(f->at->sets.had);
			f->at->sets.had = NULL;
			if (fairq_address((int32) seat, lane->block + 1,
							  f->s.queue->block_length) != FAIRQ_ADDR_NONE)
				lane->block++;
		}
		lane->seat = (int32) seat;
	}
	*group_no = (int32) seat;
	*addr = turn_address(f, *group_no, lane->block);
	*left = weight_of(f, *group_no);
	f->at->sets.had = bms_add_member(f->at->sets.had, *group_no);
	return true;
}

/* Is the lane fair by tasks, and so served by turns? */
static bool
is_by_turns(const Foresight *f)
{
	return f->at->lane.ledger.fair_by == FAIRQ_BY_TASKS;
}

/*
 * The first group at or behind that seat that has lapsed, and may have
 * something expired left.
 */
static int64
next_lapsed(Foresight *f, FairqMembers members[KINDS], int64 from)
{
	for (;;)
	{
		/* parked groups are none of these */
		int64		next = next_member(members, KIND_LAPSING + 1, from);

		if (next >= FAIRQ_ALL_SEATS || !bms_is_member((int) next, f->at->sets.out))
			return next;
		from = next + 1;
	}
}

/*
 * Foresee what is served in a full queue: what has expired, in rounds of the
 * groups, beside the turns (serve.c).
 */
static void
foresee_in_full(Foresight *f)
{
	FairqLaneCopy *lane = &f->at->lane;
	FairqMembers members[KINDS];
	int64		tried = FAIRQ_NO_SEAT;

	init_members(f, members, FAIRQ_LAPSED);
	while (f->s.got.served < f->s.call.max_tasks &&
		   f->s.got.ended < FAIRQ_MAX_ENDED)
	{
		int64		seat = tried != FAIRQ_NO_SEAT ? tried : lane->full_seat;
		int32		group_no;
		FairqGroupCopy copy;
		bool		had;
		int			left;
		int			served;

		CHECK_FOR_INTERRUPTS();
		if (tried != FAIRQ_NO_SEAT || lane->full_left == 0)
			seat++;
		rewind_members(members);
		seat = next_lapsed(f, members, Max(seat, 0));
		if (seat >= FAIRQ_ALL_SEATS)
		{
			rewind_members(members);
			seat = next_lapsed(f, members, 0);
		}
		if (seat >= FAIRQ_ALL_SEATS)
			return;
		group_no = (int32) seat;
		left = seat == lane->full_seat && lane->full_left > 0 ?
			lane->full_left : weight_of(f, group_no);
		copy_group(f, group_no, &copy);
		had = bms_is_member(group_no, f->at->sets.had) ||
			(!f->at->moved && fairq_copy_has(&copy, FAIRQ_SERVED));
		served = foresee_turn(f, group_no, !is_by_turns(f) ? FAIRQ_ADDR_NONE :
							  turn_address(f, group_no,
										   lane->block + (had ? 1 : 0)),
							  left);
		if (served > 0)
		{
			lane->full_seat = group_no;
			lane->full_left = left - served;
			tried = FAIRQ_NO_SEAT;
		}
		else
			tried = group_no;
	}
}

/* Would the group, which a pop would put into the ring, be in front there? */
static bool
comes(Foresight *f, int32 group_no)
{
	bool		by_time = f->at->lane.ledger.fair_by == FAIRQ_BY_TIME;
	bool		in_front = bms_is_member(group_no, f->at->sets.found_front);

	for (int kind = 0; kind < KINDS; kind++)
	{
		const FairqSeatCopy *member = fairq_members_next(&f->at->front[kind],
														 group_no);

		if (member != NULL && member->group_no == group_no)
			in_front |= kind == KIND_MAIN || !member->served ||
				(kind == KIND_LAPSING && by_time);
	}
	return in_front;
}

/*
 * In another lane: have all groups come that would, once a pop comes by.  Of those
 * that are not known no more are needed than tasks.
 */
static void
begin_order(Foresight *f)
{
	int64		unknown = 0;

	fairq_foresee_order_begin(&f->at->order, f->s.lane, &f->at->lane.ledger,
							  f->s.call.now);
	/* in the order of their seats, as a pop adds them */
	for (int64 from = 0;;)
	{
		int64		next = next_member(f->at->front, KINDS, from);
		int			found = bms_next_member(f->at->sets.found, (int) from - 1);

		CHECK_FOR_INTERRUPTS();
		if (found >= 0)
			next = Min(next, found);
		if (next >= FAIRQ_ALL_SEATS)
			break;
		if (comes(f, (int32) next))
			fairq_foresee_order_comes(&f->at->order, (int32) next);
		else
			fairq_foresee_order_stays(&f->at->order, (int32) next);
		from = next + 1;
	}
	for (int64 from = 0; unknown < f->s.call.max_tasks + FAIRQ_MEMBERS; unknown++)
	{
		int64		next = next_unknown(f, from);

		CHECK_FOR_INTERRUPTS();
		if (next >= FAIRQ_ALL_SEATS)
			break;
		fairq_foresee_order_comes(&f->at->order, (int32) next);
		from = next + 1;
	}
}

/* Foresee a lane that is not fair by tasks: one task after the other. */
static void
foresee_order(Foresight *f)
{
	int			in_vain = 0;
	int32		group_no;

	while (f->s.got.served < f->s.call.max_tasks && in_vain < MOST_IN_VAIN)
	{
		if (!fairq_slots_any(f->s.queue, f->s.tasks, &f->queue))
		{
			foresee_in_full(f);
			break;
		}
		if (!fairq_foresee_order_next(&f->at->order, &group_no))
			break;
		if (foresee_turn(f, group_no, FAIRQ_ADDR_NONE, 1) > 0)
		{
			fairq_foresee_order_served(&f->at->order, group_no,
									   weight_of(f, group_no), f->at->order.cost);
			in_vain = 0;
		}
		else
			in_vain++;
	}
}

/* Go on with a lane that was come by.  False if that one was not. */
static bool
back_in_lane(Foresight *f)
{
	f->at = f->lanes[f->s.priority];
	if (f->at == NULL)
		return false;
	fairq_heads_in_lane(&f->s, f->s.priority, f->at->lane.clock);
	return true;
}

/* Begin with a lane: have where it stands, and what a pop would find first. */
static void
begin_lane(Foresight *f)
{
	FairqLane  *lane = fairq_queue_lane(f->s.queue, f->s.priority);
	HASHCTL		ctl = {
		.keysize = sizeof(int32),
		.entrysize = sizeof(ForeseenGroup),
		.hcxt = CurrentMemoryContext
	};

	f->at = f->lanes[f->s.priority] = palloc0(sizeof(LaneSight));
	f->at->groups = hash_create("fairq foreseen groups", 64, &ctl,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	f->at->line.from = FAIRQ_ALL_SEATS;
	f->at->line.next = -1;
	map_again(f);
	/* as the first pop would: it takes back who may start by now */
	while (fairq_lane_come_back(lane, f->s.mapped, MOST_BACK) > 0)
		CHECK_FOR_INTERRUPTS();
	fairq_lane_copy(lane, &f->at->lane);
	if (!f->at->lane.begun)
	{
		int32		seat;

		fairq_find_position(f->s.queue, f->s.priority, f->s.tasks,
							&f->at->lane.block, &seat);
		f->at->lane.seat = seat;
		f->at->lane.first = seat + INT64CONST(1);
		f->at->lane.known = 0;
		f->at->lane.turn_left = 0;
		f->at->lane.full_seat = FAIRQ_NO_SEAT;
		f->at->lane.full_left = 0;
		fairq_ledger_begin(&f->at->lane.ledger, f->s.queue->shares.fair_by,
						   f->s.call.now);
		if (!is_by_turns(f))
		{
			f->at->lane.seat = PG_INT32_MAX;
			f->at->lane.first = 0;
		}
		for (int r = 0; r < FAIRQ_REGIONS; r++)
			f->at->lane.timers[r] = fairq_region_from(r);
	}
	f->at->passed = f->at->lane.seat;
	f->at->lane.unparks |= fairq_has_changed_settings();
	fairq_heads_in_lane(&f->s, f->s.priority, f->at->lane.clock);
	init_members(f, f->at->front, FAIRQ_FRONT);
	init_members(f, f->at->ring, FAIRQ_RING);
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		(void) fairq_due_read(f->s.queue, f->s.priority, f->s.tasks, r,
							  f->at->lane.timers[r], f->s.call.now, fell_due, f);
	if (!is_by_turns(f))
		begin_order(f);
}

/* Foresee what is served in the present lane. */
static void
foresee_lane(Foresight *f)
{
	int			in_vain = 0;

	if (!back_in_lane(f))
		begin_lane(f);
	if (!is_by_turns(f))
	{
		foresee_order(f);
		return;
	}
	while (f->s.got.served < f->s.call.max_tasks && in_vain < MOST_IN_VAIN)
	{
		int32		group_no;
		int64		addr;
		int			left;
		int			served;

		if (f->queue.starts <= 0)
			break;
		if (!fairq_slots_any(f->s.queue, f->s.tasks, &f->queue))
		{
			foresee_in_full(f);
			break;
		}
		if (!next_turn(f, &group_no, &addr, &left))
			break;
		served = foresee_turn(f, group_no, addr, left);
		in_vain = served > 0 ? 0 : in_vain + 1;
		/* if enough was served of the lane, for now, the turn is gone on with */
		if (f->s.got.served == f->s.call.max_tasks && served < left)
		{
			f->at->lane.turn_seat = group_no;
			f->at->lane.turn = addr;
			f->at->lane.turn_left = left - served;
		}
	}
}

/* Foresee what is served by shares, as serve.c does. */
static void
foresee_by_shares(Foresight *f)
{
	FairqQueue *queue = f->s.queue;
	int64		max_tasks = f->s.call.max_tasks;
	uint32		without = 0;
	FairqLaneWork works[FAIRQ_PRIORITIES];
	bool		by_time = fairq_lane_works(queue, f->s.call.now, works);
	FairqShareState state;
	FairqShareRun run;

	fairq_shares_copy(&queue->hints->shares, queue->shares.of,
					  queue->as_of.version, &state);
	while (f->s.got.served < max_tasks && !f->s.got.stopped &&
		   fairq_share_choose(&state, by_time ? works : NULL, without,
							  fairq_most_of_share(queue,
												  max_tasks - f->s.got.served),
							  &run))
	{
		int64		served = f->s.got.served;
		int64		charge = f->s.got.charge;

		f->s.priority = run.priority;
		f->s.call.max_tasks = served + run.most;
		foresee_lane(f);
		served = f->s.got.served - served;
		fairq_share_settle(&state, &run, served, f->s.got.charge - charge);
		if (by_time && works[run.priority].counts)
			works[run.priority].running += served;
		if (served < run.most)
			without |= (uint32) 1 << run.priority;
		f->s.call.max_tasks = f->s.got.stopped ? f->s.got.served : max_tasks;
	}
}

/* Begin to foresee a call. */
static void
begin_call(Foresight *f, FairqQueue *queue, FairqTable *tasks, TimestampTz now,
		   int64 max_tasks)
{
	HASHCTL		ctl = {
		.keysize = sizeof(int32),
		.entrysize = sizeof(FairqSlots),
		.hcxt = CurrentMemoryContext
	};

	fairq_heads_begin(&f->s, queue, tasks, now);
	f->s.call.max_tasks = max_tasks;
	f->slots = hash_create("fairq foreseen slots", 64, &ctl,
						   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	f->seen = fairq_heads_seen();
	f->queue.group_no = -1;
	f->queue.limit = queue->max_running;
	f->queue.pace = queue->starts.pace;
	fairq_slots_look(queue, tasks, &f->queue);
}

static void
end_call(Foresight *f)
{
	fairq_heads_end(&f->s);
	if (f->line != NULL)
		fairq_scan_end(f->line);
}

/*
 * Foresee a task that is served alone, with which a call begins (serve_alone() in
 * serve.c).  False if there is none.
 */
static bool
foresee_alone(FairqQueue *queue, FairqTable *tasks, TimestampTz now,
			  FairqForeseen foreseen, void *arg)
{
	uint32		lanes = pg_atomic_read_u32(&queue->hints->shares.first);
	bool		any = false;

	for (int priority = 0; lanes != 0 && !any; priority++, lanes >>= 1)
	{
		Foresight	f = {.foreseen = foreseen, .arg = arg};

		if ((lanes & 1) == 0)
			continue;
		begin_call(&f, queue, tasks, now, 1);
		f.s.call.only_alone = true;
		f.s.priority = priority;
		foresee_lane(&f);
		any = f.s.got.served > 0;
		end_call(&f);
	}
	return any;
}

/*
 * Foresee which tasks a pop of so many would serve, in the order of service.
 * The table is open, and the queue is locked.
 */
void
fairq_foresee(FairqQueue *queue, FairqTable *tasks, TimestampTz now,
			  int64 max_tasks, FairqForeseen foreseen, void *arg)
{
	Foresight	f = {.foreseen = foreseen, .arg = arg};

	if (queue->paused || fairq_queue_is_held(queue, now))
		return;
	/* what our own transaction has done our own pops are shown, too */
	(void) fairq_pending_show(queue->hints);
	if (foresee_alone(queue, tasks, now, foreseen, arg))
		return;
	begin_call(&f, queue, tasks, now, max_tasks);
	if (queue->shares.any)
		foresee_by_shares(&f);
	for (f.s.priority = 0;
		 f.s.priority < FAIRQ_PRIORITIES &&
		 f.s.got.served < f.s.call.max_tasks;
		 f.s.priority++)
		if (queue->shares.of[f.s.priority] == 0)
			foresee_lane(&f);
	end_call(&f);
}
