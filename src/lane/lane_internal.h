/*
 * lane_internal.h
 *		What the lane files share: a group's bits and its entry.
 *
 * The functions about bits are inline, since a turn calls them dozens of
 * times.  The caller holds the lane's lock.  A shared lock is enough for
 * functions that change nothing.
 */
#ifndef FAIRQ_LANE_INTERNAL_H
#define FAIRQ_LANE_INTERNAL_H

#include "miscadmin.h"

#include "entry.h"
#include "seats.h"
#include "shadow.h"

struct FairqLeases;

/* lane.c */
extern void fairq_lane_init_entry(FairqLane *lane, int32 group_no,
								  FairqGroup *group);
extern void fairq_lane_note_leases(FairqLane *lane, int32 group_no,
								   FairqGroup *group,
								   const struct FairqLeases *leases);

/*
 * Whether a recovery has begun since the last reset invalidated the lane.  If
 * so, the lane records published tasks.
 */
static inline bool
is_begun(FairqLane *lane)
{
	return lane->recovery.lane_no != 0 &&
		lane->recovery.resets ==
		pg_atomic_read_u64(&fairq_domain_at(lane->domain)->resets);
}

/*
 * Lock the lane, unless a recovery with another number has begun.  In that
 * case this returns false, and the lane is not locked.
 */
static inline bool
lock_as_of(FairqLane *lane, uint32 lane_no)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (lane->recovery.lane_no == lane_no)
		return true;
	LWLockRelease(&lane->lock);
	return false;
}

/* Lock the lane, if a recovery of it has begun.  Otherwise returns false. */
static inline bool
lock_begun(FairqLane *lane)
{
	LWLockAcquire(&lane->lock, LW_EXCLUSIVE);
	if (is_begun(lane))
		return true;
	LWLockRelease(&lane->lock);
	return false;
}

static inline bool
has(FairqLane *lane, FairqSeatSet set, int32 group_no)
{
	return fairq_seats_has(lane, set, group_no);
}

/*
 * Whether the group's seat is known.  Otherwise the group may have rows about
 * which the lane has no data.
 */
static inline bool
is_known(FairqLane *lane, int32 group_no)
{
	int64		seats = group_no - lane->recovery.first;

	if (seats < 0)
		seats += FAIRQ_ALL_SEATS;
	return seats < lane->recovery.known;
}

/* Whether the lane is served in turns, one for each group in a block. */
static inline bool
is_by_turns(FairqLane *lane)
{
	return lane->order.ledger.fair_by == FAIRQ_BY_TASKS;
}

/* In a lane served by turns, whether the turn's block has ended. */
static inline bool
is_past(FairqLane *lane, int64 addr)
{
	return fairq_block(addr, lane->recovery.block_length) !=
		lane->present.block;
}

/*
 * Returns the first block in which the group can have its next turn.  In a
 * lane that is not task-fair this block stays the same, because addresses only
 * order a group's own tasks.
 */
static inline int64
next_block(FairqLane *lane, int32 group_no)
{
	return lane->present.block +
		(is_by_turns(lane) && has(lane, FAIRQ_SERVED, group_no) ? 1 : 0);
}

static inline int64
next_turn(FairqLane *lane, int32 group_no)
{
	return group_no + lane->recovery.block_length * next_block(lane, group_no);
}

/*
 * Whether the group is parked or throttled.  Such a group is out of the ring
 * until it is taken back.  A tenant that is aside is in another set, "shut".
 */
static inline bool
is_aside(FairqLane *lane, int32 group_no)
{
	return has(lane, FAIRQ_PARKED, group_no) ||
		has(lane, FAIRQ_THROTTLED, group_no);
}

/* Whether the group is neither in the ring nor aside. */
static inline bool
is_out(FairqLane *lane, int32 group_no)
{
	return !has(lane, FAIRQ_RING, group_no) && !is_aside(lane, group_no);
}

/* Whether a group of the tenant may have lapsed tasks. */
static inline bool
has_lapsed_group(FairqLane *lane, const FairqAccount *tenant)
{
	FairqRecords *accounts = &lane->order.accounts;
	int32		first = fairq_order_first(&tenant->level.groups.order,
										  accounts);

	return first != FAIRQ_NO_NODE &&
		((FairqNode *) fairq_record(accounts, first))->rank.level ==
		FAIRQ_LEVEL_LAPSED;
}

/*
 * Whether a group, or a group of a tenant, may have a task to serve.  A tenant
 * that has no slot may have lapsed tasks.  Only for lanes that are not
 * task-fair.
 */
static inline bool
is_active(FairqLane *lane, int32 flow, const FairqAccount *account)
{
	if (!account->level.is_tenant)
		return has(lane, FAIRQ_RING, flow);
	if (has(lane, FAIRQ_SHUT, flow) &&
		account->level.shut != FAIRQ_SHUT_FULL)
		return false;
	if (fairq_in_shadow(lane) && !account->level.copied)
		return true;
	if (!has(lane, FAIRQ_SHUT, flow))
		return account->level.groups.order.root != FAIRQ_NO_NODE;
	return has_lapsed_group(lane, account);
}

/* Whether the number is that of a tenant with groups in the lane. */
static inline bool
is_tenant(FairqLane *lane, int32 group_no)
{
	const FairqAccount *account = is_by_turns(lane) ? NULL :
		account_if_any(lane, group_no);

	return account != NULL && account->level.is_tenant;
}

/* Put a group that may have a ready task into the ring. */
static inline void
let_in(FairqLane *lane, int32 group_no)
{
	if (is_aside(lane, group_no))
		return;
	fairq_seats_add(lane, FAIRQ_RING, group_no);
	if (!has(lane, FAIRQ_SERVED, group_no))
		fairq_seats_add(lane, FAIRQ_TODO, group_no);
}

/* Put a group that may have lapsed tasks into the ring. */
static inline void
let_in_lapsed(FairqLane *lane, int32 group_no)
{
	let_in(lane, group_no);
	/* the group's rank may be that of a group without lapsed tasks */
	if (lane->order.ledger.ranks_lapsed && has(lane, FAIRQ_LAPSED, group_no))
		fairq_seats_add(lane, FAIRQ_TODO, group_no);
}

static inline void
take_out(FairqLane *lane, int32 group_no)
{
	fairq_seats_remove(lane, FAIRQ_RING, group_no);
	fairq_seats_remove(lane, FAIRQ_TODO, group_no);
}

/* Whether the group has no task to serve, according to the hints. */
static inline bool
has_nothing(FairqLane *lane, int32 group_no, const FairqGroup *group)
{
	return fairq_hand_is_empty(group) && !has(lane, FAIRQ_DUE, group_no) &&
		!has(lane, FAIRQ_LAPSED, group_no);
}

/*
 * Lower the address at which the search for due tasks begins to that of the
 * first kept task, in the region of that task.
 */
static inline void
lower_to_kept(int64 *from, const FairqDueKept *kept)
{
	if (kept->n > 0 && kept->region != FAIRQ_REGION_QUEUED)
		from[kept->region] = Min(from[kept->region], kept->items[0].addr);
}

/* Record in a group's entry that a task became ready at the given time. */
static inline void
note_since(FairqLane *lane, int32 group_no, FairqGroup *group,
		   TimestampTz since)
{
	bool		first = fairq_hand_is_empty(group) &&
		!has(lane, FAIRQ_DUE, group_no);

	group->turn.since = first ? since : Min(group->turn.since, since);
	group->turn.published = true;
}

/*
 * Returns the time from which the group, which may have a ready task, waits;
 * DT_NOBEGIN: not known.  The exact time at which a lease lapsed is not known,
 * only that it had lapsed by the lane's clock.
 */
static inline TimestampTz
waits_since(FairqLane *lane, int32 group_no, const FairqGroup *group)
{
	return fairq_hand_is_empty(group) && !has(lane, FAIRQ_DUE, group_no) ?
		lane->clock : group->turn.since;
}

/*
 * Returns a group's entry, with its set locked; NULL if there is none.  With
 * create, makes a new one if necessary.
 */
static inline FairqGroup *
lock_group(FairqLane *lane, int32 group_no, bool create)
{
	bool		is_new;
	FairqGroup *group = fairq_entry_lock(lane, group_no, create, &is_new);

	if (group != NULL && is_new)
		fairq_lane_init_entry(lane, group_no, group);
	return group;
}

/*
 * Record in the sets the data of the entry that must survive an eviction.
 * Then release the entry.  The group is NULL if there is no entry.
 */
static inline void
unlock_group(FairqLane *lane, int32 group_no, FairqGroup *group)
{
	bool		aside = is_aside(lane, group_no);

	if (group == NULL)
		return;
	group->sets.idle = !aside && !has(lane, FAIRQ_RING, group_no);
	group->sets.late = aside ||
		(!group->sets.idle &&
		 fairq_hand_low(group) < next_turn(lane, group_no));
	if (group->sets.late)
		fairq_seats_add(lane, FAIRQ_LATE, group_no);
	else
		fairq_seats_remove(lane, FAIRQ_LATE, group_no);
	fairq_entry_unlock(group);
}

/*
 * Record that this backend takes a turn, or has found that no task is ready.
 */
static inline void
note_narrower(FairqLane *lane)
{
	if (lane->narrowing.pid == MyProcPid)
		return;
	lane->narrowing.pid = MyProcPid;
	pg_atomic_fetch_add_u32(&lane->narrowing.n, 1);
}

#endif							/* FAIRQ_LANE_INTERNAL_H */
