/*
 * claim.h
 *		Service: claiming a task.
 */
#ifndef FAIRQ_CLAIM_H
#define FAIRQ_CLAIM_H

#include "service.h"

extern bool fairq_leaves_expired(FairqService *s, const FairqTask *task);
extern bool fairq_stops_before(FairqService *s, const FairqTask *task,
							   FairqClaimResult *result);
extern FairqClaimResult fairq_claim(FairqService *s, FairqTask *task,
									FairqTurn *turn);
extern FairqClaimResult fairq_take_over(FairqService *s, FairqTask *task,
										FairqTurn *turn);

#endif							/* FAIRQ_CLAIM_H */
