/*
 * turn.h
 *		Service: the turn of a group, and the turns that a call has in flight.
 */
#ifndef FAIRQ_TURN_H
#define FAIRQ_TURN_H

#include "claim.h"

extern FairqTaken fairq_turns_take(FairqLane *lane, FairqTaking *taking,
								   int32 tried_seat, int32 *nlapsed);
extern void fairq_turns_back(void);
extern void fairq_turns_leave(void);
extern bool fairq_glance(FairqService *s, FairqTaking *taking);
extern bool fairq_serve_turn(FairqService *s, FairqTurn *turn);

#endif							/* FAIRQ_TURN_H */
