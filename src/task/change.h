/*
 * change.h
 *		Changing a task that is not running.
 */
#ifndef FAIRQ_CHANGE_H
#define FAIRQ_CHANGE_H

#include "queue.h"
#include "store.h"

extern FairqQueue *fairq_find_waiting(FairqTable *tasks, int64 id,
									  int any_privilege, FairqTask *task);
extern bool fairq_reschedule_task(FairqQueue *queue, FairqTable *tasks,
								  FairqTask *task, TimestampTz run_at);

extern bool fairq_replace_task(FairqQueue *queue, FairqTable *tasks,
							   FairqTask *task, TimestampTz run_at, bool timed,
							   const FairqContent *content);

#endif							/* FAIRQ_CHANGE_H */
