/*
 * queue.h
 *		Queues and their settings, cached in the backend.
 */
#ifndef FAIRQ_QUEUE_H
#define FAIRQ_QUEUE_H

#include "datatype/timestamp.h"
#include "lane.h"
#include "storage/lockdefs.h"

/* The channel "fairq.<queue>" must fit into a name. */
#define FAIRQ_MAX_QUEUE_NAME 57
#define FAIRQ_MAX_GROUP_KEY 1024
#define FAIRQ_MAX_WEIGHT 1000

typedef struct FairqSetting
{
	int32		group_no;
	int32		weight;
} FairqSetting;

typedef struct FairqQueue
{
	int32		id;				/* hash key */
	uint64		generation;		/* of the cache, when it was read */
	char		name[FAIRQ_MAX_QUEUE_NAME + 1];
	int64		block_length;
	bool		paused;
	Interval	lease;
	int			nsettings;
	FairqSetting *settings;		/* in the order of group_no */
	FairqLane  *lanes[FAIRQ_PRIORITIES];	/* NULL: not looked up yet */
} FairqQueue;

extern FairqQueue *fairq_queue_use(text *name, LOCKMODE lockmode);
extern FairqQueue *fairq_queue_use_id(int32 id, LOCKMODE lockmode);
extern bool fairq_queue_exists(const char *name);
extern FairqLane *fairq_queue_lane(FairqQueue *queue, int priority);
extern int32 fairq_queue_weight(const FairqQueue *queue, int32 group_no);
extern void fairq_queue_changed(void);

#endif							/* FAIRQ_QUEUE_H */
