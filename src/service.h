/*
 * service.h
 *		What the parts of service share: one call's state.
 */
#ifndef FAIRQ_SERVICE_H
#define FAIRQ_SERVICE_H

#include "due.h"
#include "serve.h"
#include "transaction.h"

/* expired tasks that a call brings to their end, beside what it serves */
#define FAIRQ_MAX_ENDED 100

/* A search for a group's next task, of one kind. */
typedef struct FairqSearch
{
	FairqScan  *scan;			/* kept for the call, or NULL */
	bool		open;			/* there may be more */
	bool		have;			/* task is the next one */
	FairqTask	task;
	TimestampTz since;			/* when it became ready */
	int64		from;			/* nothing is left below */
	int64		locked;			/* lowest one that was merely locked */
} FairqSearch;

/* One call, in one lane. */
typedef struct FairqService
{
	FairqQueue *queue;
	FairqTable *tasks;
	FairqLane  *lane;
	int			priority;
	FairqServer server;
	void	   *arg;
	TimestampTz now;
	bool		peek;			/* don't serve, but say whether one could */
	bool		peeked;			/* yes */
	bool		saw_locked;		/* not those whose rows are merely locked */
	int64		max_tasks;
	int64		served;			/* in all lanes */
	int64		ended;			/* likewise, brought to their end */
	bool		left;			/* in this turn, there is some for others to
								 * end */
	FairqFound	found;			/* likewise, fallen due */
	int64		per_group;
	int64		first_block;	/* with per_group: that is looked at now */
	int64		last_block;		/* once something was served; before, -1 */
	FairqNote	note;
	bool		in_full;		/* what is served now is in a full queue */
	int32		full_first;		/* the seat served first in one, or -1 */
	int32		full_last;		/* and the last one */
	int64		full_rounds;	/* so often the first one was come by again */
	bool		any_irregular;
	bool		any_regular;	/* a group became regular at the last turn */
	bool		homeless;		/* tasks are behind whose group has no entry */
	int64		locked;			/* lowest row that was merely locked */
	int64		walk_end;		/* the walk's scan goes up to there */
	int64		walk_length;	/* it is begun for so many addresses */
	bool		walk_longer;	/* it was not enough */
	int64		walked;			/* rows that it came by */
	int			passed;			/* rows that the walk has passed over in a row */
	int64		passed_from;	/* the first of them */
	int64		jumped_to;		/* the end of the desert, after it */
	int64		strays;			/* where to look on for those */
	int64		left_strays;	/* lowest one that could not be served */
	FairqSearch queued;
	FairqSearch due;
	FairqSearch expired;
	TimestampTz by;				/* what has fallen due by then */
} FairqService;

extern FairqClaimResult fairq_claim(FairqService *s, FairqTask *task,
									int64 turn);
extern FairqClaimResult fairq_take_over(FairqService *s, FairqTask *task,
										int64 addr);
extern void fairq_search_group(FairqService *s, FairqSearch *search,
							   int32 group_no, int64 from, int64 end);
extern bool fairq_next_is_regular(FairqService *s, int32 group_no,
								  int64 turn);
extern bool fairq_serve_turn(FairqService *s, const FairqTurn *turn);

#endif							/* FAIRQ_SERVICE_H */
