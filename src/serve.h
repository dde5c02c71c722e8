/*
 * serve.h
 *		Service: the course of a call.
 */
#ifndef FAIRQ_SERVE_H
#define FAIRQ_SERVE_H

#include "service.h"

/* per_group: 0 for no limit; lease_until: DT_NOEND if tasks are removed */
extern int64 fairq_serve(FairqQueue *queue, FairqTable *tasks,
						 TimestampTz now, int64 max_tasks, int64 per_group,
						 TimestampTz lease_until, FairqServer server,
						 void *arg);
extern bool fairq_worth_a_pop(FairqQueue *queue, FairqTable *tasks,
							  TimestampTz now, bool *saw_locked);
extern void fairq_serve_init(void);

#endif							/* FAIRQ_SERVE_H */
