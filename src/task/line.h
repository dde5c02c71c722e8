/*
 * line.h
 *		The lines of groups: the tasks of a group in a lane, in the order of
 *		addr.
 */
#ifndef FAIRQ_LINE_H
#define FAIRQ_LINE_H

#include "queue.h"
#include "transaction.h"

/* The progress of a call that recovers a lane; all zero at first. */
typedef struct FairqRecovering
{
	int			begun;			/* number of times that the call has begun a
								 * recovery of the lane */
	uint32		lane_no;		/* lane_no of the lane when the call last began
								 * a recovery */
} FairqRecovering;

extern FairqTail fairq_line_tail(FairqTable *tasks, int32 lane, int32 group_no,
								 int most);
extern int32 fairq_line_next(FairqScan **scan, FairqTable *tasks, int32 lane,
							 int64 seat);
extern bool fairq_line_retries(FairqQueue *queue, FairqTable *tasks,
							   int32 group_no, TimestampTz *due_at);
extern bool fairq_line_has_earlier(FairqQueue *queue, FairqTable *tasks,
								   const FairqTask *task, TimestampTz now,
								   bool *changing);
extern void fairq_recover(FairqQueue *queue, int priority, FairqTable *tasks,
						  FairqRecovering *recovering);
extern int64 fairq_assign_address(FairqQueue *queue, int priority,
								  int32 group_no, FairqTable *tasks);
extern void fairq_assign_insert(FairqTable *tasks);

#endif							/* FAIRQ_LINE_H */
