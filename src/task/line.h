/*
 * line.h
 *		The line of a group: its tasks in a lane, in the order of addr.
 */
#ifndef FAIRQ_LINE_H
#define FAIRQ_LINE_H

#include "address.h"
#include "queue.h"
#include "store.h"

extern FairqScan *fairq_line_search(FairqScan *scan, FairqTable *tasks,
									int32 lane, int32 group_no, int64 from,
									int64 end);
extern FairqTail fairq_line_tail(FairqTable *tasks, int32 lane, int32 group_no,
								 int most);
extern int32 fairq_line_next(FairqScan **scan, FairqTable *tasks, int32 lane,
							 int64 seat);
extern bool fairq_line_retries(FairqQueue *queue, FairqTable *tasks,
								int32 group_no, TimestampTz *due_at);
extern bool fairq_line_has_earlier(FairqQueue *queue, FairqTable *tasks,
									const FairqTask *task, TimestampTz now,
									bool *changing);

#endif							/* FAIRQ_LINE_H */
