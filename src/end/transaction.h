/*
 * transaction.h
 *		The end of a transaction: it applies pending changes, and modules
 *		settle their caches.
 */
#ifndef FAIRQ_TRANSACTION_H
#define FAIRQ_TRANSACTION_H

#include "pending.h"

/*
 * A module's functions for the end of a transaction or the abort of a
 * subtransaction.  They must neither fail nor allocate.
 */
typedef struct FairqEnding
{
	/*
	 * Ends the module's part of a call that an error or the transaction's end
	 * has interrupted, before pending changes are applied; NULL: none.
	 */
	void		(*end_call) (void);

	/*
	 * Settles the module's caches, after pending changes were applied; NULL:
	 * none.  all: the transaction has ended, not only a subtransaction.
	 */
	void		(*settle) (bool committed, bool all);
} FairqEnding;

extern void fairq_written(void);
extern void fairq_pending_unknown_settings(void);
extern bool fairq_has_changed_rows(void);
extern void fairq_pending_reset(void);
extern bool fairq_pending_groups(bool freed);
extern bool fairq_groups_freed(void);
extern void fairq_reset_hints_now(void);
extern void fairq_transactions_init(const FairqEnding *const *of_modules,
									int n);

#endif							/* FAIRQ_TRANSACTION_H */
