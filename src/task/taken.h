/*
 * taken.h
 *		Tasks that this transaction has taken.
 */
#ifndef FAIRQ_TAKEN_H
#define FAIRQ_TAKEN_H

#include "transaction.h"

/* the key of a batch's tasks in fairq_is_taken(); ids are positive */
#define FAIRQ_TAKEN_OF(batch) (-(batch))

extern void fairq_taken_note(FairqTable *tasks, const FairqTask *task,
							 TimestampTz at);
extern bool fairq_taken_find(FairqTable *tasks, int64 id, int32 attempt,
							 FairqTask *task);
extern bool fairq_is_taken(int64 key);
extern bool fairq_taken_any(void);
extern void fairq_taken_ended(int64 id);
extern void fairq_taken_settle(void);

#endif							/* FAIRQ_TAKEN_H */
