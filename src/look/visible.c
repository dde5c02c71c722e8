/*
 * visible.c
 *		Which queues a caller may see something of.
 *
 * Locking: AccessShareLock on the table of queues.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/array.h"

#include "compat.h"
#include "queue.h"
#include "store.h"
#include "store_spi.h"
#include "visible.h"

/*
 * Of the queues that the caller's statement sees, those on which the caller
 * has one of these privileges: an array of their ids.
 */
Datum
fairq_visible_ids(int any_privilege)
{
	Tuplestorestate *store = tuplestore_begin_heap(false, false, work_mem);
	TupleDesc	desc = CreateTemplateTupleDesc(1);
	TupleTableSlot *slot;
	ArrayBuildState *ids = initArrayResult(INT4OID, CurrentMemoryContext,
										   false);

	TupleDescInitEntry(desc, 1, "queue_id", INT4OID, -1, 0);
	fairq_finalize_tupdesc(desc);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	fairq_sql_view("SELECT queue_id FROM fairq.queue", NULL, 0, store);
	while (tuplestore_gettupleslot(store, true, false, slot))
	{
		Datum		id = fairq_column(slot, 1);
		FairqQueue *queue = fairq_queue_by_id(DatumGetInt32(id));

		if (queue != NULL && fairq_may(queue, any_privilege))
			(void) accumArrayResult(ids, id, false, INT4OID,
									CurrentMemoryContext);
	}
	ExecDropSingleTupleTableSlot(slot);
	tuplestore_end(store);
	return makeArrayResult(ids, CurrentMemoryContext);
}
