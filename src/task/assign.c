/*
 * assign.c
 *		The addresses of tasks.
 *
 * An address follows the group's last one, its tail.  Shared memory has the
 * tails of the groups that it has entries for (lane.c); other tails are read
 * from the table, with one backward probe.  Committed rows and rows of open
 * transactions both count.  The table does not show a row that is not written
 * yet.  So a group's entry is pinned from the reservation of an address until
 * the row is there.  If there is no entry to pin, a call writes its postponed
 * rows before it looks up a tail.
 *
 * Locking: none while the table is read; lane.c names the locks that are held
 * for a moment when an address is reserved.
 */
#include "postgres.h"

#include "assign.h"
#include "errors.h"
#include "line.h"
#include "recover.h"

/*
 * Insert the tasks that the call has postponed.  They must exist when a
 * backend reads addresses from the table.
 */
void
fairq_assign_insert(FairqTable *tasks)
{
	int			n = tasks->batch.n;

	fairq_table_insert_rows(tasks);
	for (int i = 0; i < n; i++)
	{
		TupleTableSlot *row = tasks->batch.rows[i];

		fairq_pending_row_written(i,
								  DatumGetInt64(row->tts_values[TASK_ID - 1]),
								  &row->tts_tid);
	}
	fairq_pending_written();
}

/*
 * Returns the address of a new task of the group.  The caller then writes the
 * row, perhaps together with others, and calls fairq_pending_row_written().
 */
int64
fairq_assign_address(FairqQueue *queue, int priority, int32 group_no,
					 FairqTable *tasks)
{
	FairqLane  *lane = fairq_queue_lane(queue, priority);
	const FairqSetting *setting = fairq_group_setting(queue, group_no);
	FairqPending *pending = fairq_pending(lane, group_no);
	FairqTail	tail;
	int64		highest;
	bool		looked = false;
	FairqRecovering recovering = {0};

	for (;;)
	{
		FairqReservation reservation;

		switch (fairq_lane_reserve(lane, group_no, setting->weight,
								   looked ? &tail : NULL, &reservation))
		{
			case FAIRQ_RESERVED:
				fairq_pending_reserved(pending, &reservation);
				return reservation.tail.addr;
			case FAIRQ_LANE_UNKNOWN:
				fairq_assign_insert(tasks);
				fairq_recover(queue, priority, tasks, &recovering);
				break;
			case FAIRQ_NO_TAIL:
				if (fairq_pending_any_unpinned())
					fairq_assign_insert(tasks);
				tail = fairq_line_tail(tasks,
									   fairq_task_lane(queue->id, priority),
									   group_no, FAIRQ_MAX_WEIGHT);
				highest = fairq_pending_highest(lane, group_no);
				if (highest > tail.addr)
				{
					tail.addr = highest;
					tail.count = FAIRQ_TAIL_FULL;
				}
				looked = true;
				break;
			case FAIRQ_BLOCKS_USED_UP:
				ereport(ERROR,
						errcode(ERRCODE_FAIRQ_BLOCKS_USED_UP),
						errmsg("block numbers of queue \"%s\" are used up",
							   queue->name),
						errdetail("At the queue's block length of " INT64_FORMAT " blocks are numbered up to " INT64_FORMAT ".",
								  queue->block_length,
								  fairq_last_block(group_no, queue->block_length)),
						errhint("When the queue is empty, fairq.reset_hints() starts again from the first block."));
		}
	}
}
