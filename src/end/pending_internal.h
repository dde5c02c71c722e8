/*
 * pending_internal.h
 *		Pending changes, for transaction.c, which applies them.
 */
#ifndef FAIRQ_PENDING_INTERNAL_H
#define FAIRQ_PENDING_INTERNAL_H

#include "access/xact.h"

#include "pending.h"

extern void fairq_watch_with(XactCallback at_end, SubXactCallback at_sub_end);
extern int	fairq_pending_count(void);
extern FairqPending *fairq_pending_at(int index);
extern FairqPending *fairq_pending_pop(void);
extern void fairq_pending_release(FairqPending *pending);
extern void fairq_pending_sub_committed(SubTransactionId sub,
										SubTransactionId parent);
extern void fairq_news_publish(FairqLane *lane, int32 group_no,
							   const FairqNews *news, bool again);
extern void fairq_pending_forget(void);

#endif							/* FAIRQ_PENDING_INTERNAL_H */
