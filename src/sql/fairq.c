/*
 * fairq.c
 *		The module: magic and version.
 *
 * Next to nothing is set up when the library is loaded, by design: it can be
 * loaded at any time, in any backend.  Shared memory, caches and callbacks are
 * had on first use.  A server that loads it at its start reserves room in shared
 * memory, and no more (shmem.c).  Only what modules do when a transaction ends is
 * noted here, since the order matters.  Nothing here locks.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "changed.h"
#include "compat.h"
#include "due.h"
#include "errors.h"
#include "group.h"
#include "load.h"
#include "queue.h"
#include "registry.h"
#include "running.h"
#include "serve.h"
#include "shmem.h"
#include "taken.h"
#include "transaction.h"
#include "turns.h"

FAIRQ_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(fairq_version);

/*
 * At the end of a transaction, in this order: turns go back to their lane before
 * their slots do, and the caches follow once all is applied.  What others are to
 * find is there when serve.c wakes them.
 */
static const FairqEnding *const endings[] = {
	&fairq_turns_ending,
	&fairq_running_ending,
	&fairq_load_ending,
	&fairq_taken_ending,
	&fairq_due_ending,
	&fairq_serve_ending,
	&fairq_groups_ending,
	&fairq_queues_ending
};

void
_PG_init(void)
{
	fairq_shmem_init();
	fairq_counters_init();
	MarkGUCPrefixReserved("fairq");
	fairq_watch_drops();
	fairq_transactions_init(endings, lengthof(endings));
}

Datum
fairq_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(FAIRQ_VERSION));
}
