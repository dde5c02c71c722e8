/*
 * running.h
 *		Slots of running tasks in queues and groups.
 */
#ifndef FAIRQ_RUNNING_H
#define FAIRQ_RUNNING_H

#include "queue.h"
#include "store.h"
#include "transaction.h"

extern void fairq_running_begin(FairqQueue *queue, bool peeks);
extern void fairq_running_end(void);
extern void fairq_running_init(void);
extern bool fairq_settings_are_old(const FairqQueue *queue);
extern bool fairq_slot_in_queue(FairqTable *tasks);
extern bool fairq_queue_is_throttled(void);
extern bool fairq_is_paced(int32 group_no);
extern bool fairq_start_expired(FairqLane *lane, uint32 lane_no,
								FairqTurn *turn);
extern void fairq_wait_for_retry(FairqLane *lane, uint32 lane_no,
								 FairqTurn *turn, TimestampTz due_at);
extern void fairq_start_is_used(void);
extern bool fairq_slot_in_group(FairqLane *lane, uint32 lane_no,
								FairqTurn *turn, bool may_park,
								FairqTable *tasks);
extern void fairq_slot_is_used(FairqPending *pending, const FairqTask *task,
							   bool removed);
extern void fairq_slot_in_group_back(void);
extern void fairq_hold_begin(FairqQueue *queue, FairqLane *lane,
							 int32 group_no);
extern FairqSlot fairq_hold_within_limits(void);
extern void fairq_hold_written(const FairqTask *task,
							   const ItemPointerData *before);
extern void fairq_hold_end(FairqPending *pending);
extern bool fairq_running_is_off(FairqQueue *queue, int32 group_no,
								 FairqCounter *counter, FairqTable *tasks,
								 int32 *counted, int32 *rows);

#endif							/* FAIRQ_RUNNING_H */
