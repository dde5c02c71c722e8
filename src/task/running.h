/*
 * running.h
 *		The slots of running tasks in queues and groups.
 */
#ifndef FAIRQ_RUNNING_H
#define FAIRQ_RUNNING_H

#include "queue.h"
#include "transaction.h"

extern void fairq_running_begin(FairqQueue *queue, bool peeks);
extern void fairq_running_end(void);
extern bool fairq_slot_in_queue(void);
extern bool fairq_queue_is_throttled(void);
extern bool fairq_is_paced(const FairqTurn *turn);
extern bool fairq_start_lapsed(FairqTurn *turn);
extern void fairq_start_lapsed_done(void);
extern void fairq_wait_for_retry(FairqTurn *turn, TimestampTz due_at);
extern void fairq_start_is_used(void);
extern bool fairq_slot_in_group(FairqTurn *turn, bool may_park);
extern void fairq_slot_prepare(FairqLane *lane);
extern void fairq_slot_is_used(FairqPending *pending, const FairqTask *task,
							   bool removed);
extern void fairq_slot_in_group_back(void);
extern void fairq_slot_is_left(FairqQueue *queue, FairqPending *pending);
extern FairqSlot fairq_within_limits(int32 group_no);

#endif							/* FAIRQ_RUNNING_H */
