/*
 * copy.h
 *		Copying a queue's hints in shared memory.
 */
#ifndef FAIRQ_COPY_H
#define FAIRQ_COPY_H

#include "queue.h"

extern FairqQueue *fairq_copy_queue(const FairqQueue *queue, int64 max_tasks);

#endif							/* FAIRQ_COPY_H */
