/*
 * wait.h
 *		The waits of a session that end with a pop, or with an error.
 */
#ifndef FAIRQ_WAIT_H
#define FAIRQ_WAIT_H

#include "wake.h"

extern void fairq_wake_unserved(FairqWakeup *wakeup);
extern void fairq_wait_settle(bool committed);

#endif							/* FAIRQ_WAIT_H */
