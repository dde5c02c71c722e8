/*
 * fairq.c
 *		The module: magic and version.
 *
 * Next to nothing is set up when the library is loaded, by design: it can be
 * loaded at any time, in any backend.  Shared memory, caches and callbacks are
 * had on first use.  Nothing here locks.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "changed.h"
#include "compat.h"
#include "errors.h"

FAIRQ_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(fairq_version);

void
_PG_init(void)
{
	/* there are no settings yet; no other module may make some in our name */
	MarkGUCPrefixReserved("fairq");
	fairq_watch_drops();
}

Datum
fairq_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(FAIRQ_VERSION));
}
