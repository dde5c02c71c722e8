/*
 * heads.h
 *		The heads of a group: its first tasks, in the order in which its turns
 *		would serve them.
 */
#ifndef FAIRQ_HEADS_H
#define FAIRQ_HEADS_H

#include "lane_view.h"
#include "turn_due.h"

/* What was read of a group so far. */
typedef struct FairqHeads
{
	FairqTurn	turn;			/* where its due and expired tasks are */
	int64		from;			/* address from which queued tasks are left */
	bool		more;			/* true: there may be some */
	HTAB	   *seen;			/* ids of tasks that are not to be returned
								 * again */
} FairqHeads;

/* One of its tasks. */
typedef struct FairqHead
{
	FairqTask	task;			/* the task */
	bool		expired;		/* true: its lease has ended; it has its
								 * slot */
} FairqHead;

extern void fairq_heads_begin(FairqService *s, FairqQueue *queue,
							  FairqTable *tasks, TimestampTz now);
extern void fairq_heads_in_lane(FairqService *s, int priority,
								TimestampTz clock);
extern void fairq_heads_end(FairqService *s);
extern HTAB *fairq_heads_seen(void);

extern void fairq_heads_of(FairqHeads *heads, const FairqGroupCopy *copy,
						   HTAB *seen);
extern void fairq_heads_fell_due(FairqHeads *heads, int64 addr);
extern void fairq_heads_turn(FairqService *s, FairqHeads *heads,
							 FairqCourse *course, bool paused);
extern bool fairq_heads_next(FairqService *s, FairqHeads *heads,
							 FairqCourse *course, bool have_slot,
							 FairqHead *head);
extern void fairq_heads_served(FairqHeads *heads, FairqCourse *course,
							   const FairqHead *head);
extern void fairq_heads_turn_over(FairqHeads *heads, FairqCourse *course);

#endif							/* FAIRQ_HEADS_H */
