/*
 * shown.h
 *		What a transaction's own pops are shown of its pending changes.
 */
#ifndef FAIRQ_SHOWN_H
#define FAIRQ_SHOWN_H

#include "pending.h"

extern bool fairq_pending_show(FairqHints *hints);
extern void fairq_pending_forget_shown(FairqHints *hints);
extern void fairq_shown_forget(void);

#endif							/* FAIRQ_SHOWN_H */
