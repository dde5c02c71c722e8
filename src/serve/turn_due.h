/*
 * turn_due.h
 *		Service: the course of a turn, and its group's due and lapsed tasks.
 */
#ifndef FAIRQ_TURN_DUE_H
#define FAIRQ_TURN_DUE_H

#include "line.h"
#include "service.h"

/* A search for a group's next task, of one kind. */
typedef struct FairqSearch
{
	bool		open;			/* more tasks may be found */
	bool		begun;			/* a scan of the index was begun */
	bool		at_hand;		/* task came from the entry, not from a scan */
	bool		have;			/* task is the next one */
	FairqTask	task;
	TimestampTz since;			/* when it became ready */
	int64		from;			/* address below which no task is left */
	int64		locked;			/* lowest address of a task that was only
								 * locked */
} FairqSearch;

/* A contiguous piece of a group's line. */
typedef struct FairqStretch
{
	int64		from;
	int64		end;
	bool		before;			/* it lies before the beginning of the cycle */
} FairqStretch;

/* The course of a group's turn. */
typedef struct FairqCourse
{
	FairqTurn  *turn;
	bool		search;			/* the group is in the set "due" or "lapsed" */
	bool		no_slot;		/* no slot or no start for another running
								 * task */
	bool		not_now;		/* the turn is kept for later: the queue has no
								 * slot, or its settings have changed */
	FairqSearch queued;
	FairqSearch due[FAIRQ_REGIONS];
	FairqSearch lapsed;
	FairqStretch stretches[2 * FAIRQ_REGIONS];	/* to be searched for lapsed
												 * tasks */
	int			nstretches;
	int			next_stretch;
	int64		cycle;			/* address and id behind which they begin */
	int64		cycle_id;
	bool		claimed;		/* a queued or scheduled task was claimed */
	bool		no_scheduled;	/* its scheduled tasks are left to other
								 * calls */
	FairqFindings findings;
} FairqCourse;

/* Whether the task belongs to the group whose turn it is, in this lane. */
static inline bool
is_of_turn(const FairqService *s, const FairqTurn *turn, const FairqTask *task)
{
	return task->group_no == turn->group_no &&
		task->priority == s->priority && task->queue_id == s->queue->id;
}

/* Search a group's tasks at or past an address, and before end. */
static inline FairqScan *
search_group(FairqService *s, FairqScan *scan, int32 group_no, int64 from,
			 int64 end)
{
	return fairq_line_search(scan, s->tasks,
							 fairq_task_lane(s->queue->id, s->priority),
							 group_no, from, end);
}

/*
 * The scheduled task or the queued one, whichever became ready first; NULL:
 * there is neither.
 */
static inline FairqSearch *
fairq_search_first(FairqCourse *course)
{
	FairqSearch *scheduled = &course->due[FAIRQ_REGION_SCHEDULED];

	if (scheduled->have && !course->no_scheduled &&
		(!course->queued.have || scheduled->since < course->queued.since))
		return scheduled;
	return course->queued.have ? &course->queued : NULL;
}

extern void fairq_look_for_due(FairqService *s, FairqCourse *course,
							   FairqRegion region);
extern void fairq_keep_due(FairqService *s, FairqCourse *course);
extern void fairq_still_runs(FairqFindings *findings, const FairqTask *task,
							 bool changing);
extern void fairq_look_for_lapsed(FairqService *s, FairqCourse *course);
extern void fairq_leave_lapsed(FairqService *s, FairqCourse *course);
extern void fairq_course_begin(FairqService *s, FairqCourse *course,
							   bool paused);

#endif							/* FAIRQ_TURN_DUE_H */
