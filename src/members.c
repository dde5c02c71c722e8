/*
 * members.c
 *		Members of a set of a lane's groups, copied some at a time.
 *
 * Locking: the lane's lock, shared, for FAIRQ_MEMBERS of them.
 */
#include "postgres.h"

#include "members.h"

/* Begin with the first seat of the lane. */
void
fairq_members_init(FairqMembers *members, FairqLane *lane, FairqSeatSet set,
				   TimestampTz lapsed_by, bool used)
{
	members->lane = lane;
	members->set = set;
	members->lapsed_by = lapsed_by;
	members->used = used;
	members->mapped = fairq_chunks_map(&fairq_hints_of(lane)->chunks);
	fairq_members_rewind(members);
}

/* Begin again with the first seat. */
void
fairq_members_rewind(FairqMembers *members)
{
	members->next = 0;
	members->n = members->at = 0;
}

/* Copy the next members. */
static void
copy_members(FairqMembers *members)
{
	while ((members->n = fairq_lane_copy_seats(members->lane, members->mapped,
											   members->set,
											   members->lapsed_by,
											   members->next, FAIRQ_MEMBERS,
											   members->copies)) < 0)
		members->mapped =
			fairq_chunks_map(&fairq_hints_of(members->lane)->chunks);
	members->at = 0;
	members->next = members->n < FAIRQ_MEMBERS ? FAIRQ_ALL_SEATS :
		members->copies[members->n - 1].group_no + INT64CONST(1);
}

/*
 * The first member at or behind that seat; NULL if there is none.  It goes on
 * from the last one: to find one before that it has to be rewound.
 */
const FairqSeatCopy *
fairq_members_next(FairqMembers *members, int64 from)
{
	while (members->used)
	{
		while (members->at < members->n &&
			   members->copies[members->at].group_no < from)
			members->at++;
		if (members->at < members->n)
			return &members->copies[members->at];
		if (members->next >= FAIRQ_ALL_SEATS)
			break;
		members->next = Max(members->next, from);
		copy_members(members);
	}
	return NULL;
}
