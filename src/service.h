/*
 * service.h
 *		What the parts of service share: one call's state.
 */
#ifndef FAIRQ_SERVICE_H
#define FAIRQ_SERVICE_H

#include "due.h"
#include "recover.h"
#include "serve.h"
#include "transaction.h"

/* expired tasks that a call brings to their end, beside what it serves */
#define FAIRQ_MAX_ENDED 100

/* One call, in one lane. */
typedef struct FairqService
{
	FairqQueue *queue;
	FairqTable *tasks;
	FairqLane  *lane;
	int			priority;
	uint32		lane_no;		/* when the turns in hand were taken */
	uint64		searches;		/* of the lane, likewise */
	uint32		mapped;			/* chunks of the queue, in this backend */
	FairqServer server;
	void	   *arg;
	TimestampTz now;
	TimestampTz by;				/* what has fallen due by then; may be later, by
								 * the clock of whoever has found it */
	TimestampTz lease_until;	/* of what is served; DT_NOEND: it is removed */
	bool		peek;			/* don't serve, but say whether one could */
	bool		peeked;			/* yes */
	bool		saw_locked;		/* not those whose rows are merely locked */
	int64		max_tasks;
	int64		served;			/* in all lanes */
	int64		ended;			/* likewise, brought to their end */
	bool		left;			/* in this turn, there is some for others to
								 * end */
	int64		found;			/* what has fallen due, in all lanes */
	int64		per_group;
	int64		first;			/* with that: the first turn in which something
								 * was served, or -1 */
	int32		full_first;		/* in a full queue: the seat served first, or -1 */
	int32		full_last;		/* and the last one */
	int64		full_rounds;	/* so often the first one was come by again */
	int64		past;			/* rounds begun past the last block, in this
								 * lane */
	FairqRecovering recovering; /* the lane */
	FairqScan  *rows;			/* scans by group that are kept for the call */
	FairqScan  *due[FAIRQ_REGIONS];
	FairqScan  *expired;
} FairqService;

extern FairqClaimResult fairq_claim(FairqService *s, FairqTask *task,
									FairqTurn *turn);
extern FairqClaimResult fairq_take_over(FairqService *s, FairqTask *task,
										FairqTurn *turn);
extern bool fairq_glance(FairqService *s);
extern bool fairq_serve_turn(FairqService *s, FairqTurn *turn);

#endif							/* FAIRQ_SERVICE_H */
