/*
 * transaction.h
 *		What this transaction owes to shared memory when it ends.
 */
#ifndef FAIRQ_TRANSACTION_H
#define FAIRQ_TRANSACTION_H

#include "lane.h"

/*
 * Of one group in one lane, in one subtransaction; or, once there are too
 * many of them, of a lane.
 */
typedef struct FairqDebt
{
	SubTransactionId sub;
	FairqLane  *lane;
	int32		group_no;		/* -1: the lane */
	uint32		lane_no;		/* when it reserved */
	int64		ready_at_commit;	/* lowest address; FAIRQ_ADDR_MAX: none */
	int64		ready_at_abort;
	int64		highest_at_abort;
	int64		hole_at_commit;
	int64		highest_hole;
	int64		first_reserved; /* FAIRQ_ADDR_NONE: nothing */
	FairqTail	before;			/* the tail before that */
	FairqTail	last;			/* the last reserved */
	bool		torn;			/* others have reserved in between */
	uint32		counts[FAIRQ_COUNTERS];
} FairqDebt;

extern void fairq_written(void);
extern FairqDebt *fairq_debt(FairqLane *lane, int32 group_no);
extern void fairq_debt_reserved(FairqDebt *debt,
								const FairqReservation *reservation);
extern void fairq_debt_written(void);
extern void fairq_debts_show(void);
extern int64 fairq_debts_highest(FairqLane *lane, int32 group_no);
extern void fairq_debt_ready_at_abort(FairqDebt *debt, int64 addr);
extern void fairq_debt_hole_at_commit(FairqDebt *debt, int64 addr);
extern void fairq_debt_reset(void);
extern void fairq_reset_hints_now(void);

#endif							/* FAIRQ_TRANSACTION_H */
