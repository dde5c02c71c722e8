/*
 * turn.h
 *		Service: the turn of a group.
 */
#ifndef FAIRQ_TURN_H
#define FAIRQ_TURN_H

#include "service.h"

extern bool fairq_glance(FairqService *s);
extern bool fairq_serve_turn(FairqService *s, FairqTurn *turn);

#endif							/* FAIRQ_TURN_H */
