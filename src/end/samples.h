/*
 * samples.h
 *		Spans of time that this transaction has measured.
 */
#ifndef FAIRQ_SAMPLES_H
#define FAIRQ_SAMPLES_H

#include "hints.h"

extern void fairq_sample(FairqHints *hints, FairqSpan span, TimestampTz from,
						 TimestampTz until);
extern void fairq_samples_sub_end(SubTransactionId sub,
								  SubTransactionId parent, bool committed);
extern void fairq_samples_end(bool committed);

#endif							/* FAIRQ_SAMPLES_H */
