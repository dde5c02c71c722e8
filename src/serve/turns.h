/*
 * turns.h
 *		The turns that a call has in flight.
 */
#ifndef FAIRQ_TURNS_H
#define FAIRQ_TURNS_H

#include "lane.h"

extern FairqTaken fairq_turns_take(FairqLane *lane, FairqTaking *taking);
extern FairqTaken fairq_turns_take_in_full(FairqLane *lane, FairqTaking *taking,
										   int32 tried_seat, int32 *nlapsed);
extern bool fairq_turns_bring_forward(FairqTurn *turn);
extern void fairq_turns_reading(FairqTurn *turn);
extern void fairq_turns_stop(FairqTurn *turn);
extern void fairq_turns_back_later(const FairqTurn *turn);
extern void fairq_turns_back(void);
extern void fairq_turns_in_vain(FairqLane *lane, uint32 lane_no,
								const FairqTurn *turn);
extern void fairq_turns_leave(void);
extern const struct FairqEnding fairq_turns_ending;

#endif							/* FAIRQ_TURNS_H */
