/*
 * taken.h
 *		The tasks that this transaction has taken.
 */
#ifndef FAIRQ_TAKEN_H
#define FAIRQ_TAKEN_H

#include "store.h"

extern void fairq_taken_note(FairqTable *tasks, const FairqTask *task,
							 TimestampTz at);
extern bool fairq_taken_find(FairqTable *tasks, int64 id, int32 attempt,
							 FairqTask *task);
extern bool fairq_taken_any(void);
extern void fairq_taken_ended(const FairqTask *task);
extern const struct FairqEnding fairq_taken_ending;

#endif							/* FAIRQ_TAKEN_H */
